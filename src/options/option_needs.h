/* option_needs.h - a condition of the column `needs` (its grammar is in option.h), read and tested without a set of options. */
#ifndef HARK_OPTIONS_OPTION_NEEDS_H
#define HARK_OPTIONS_OPTION_NEEDS_H

#include "options/option.h"

typedef enum hark_option_need_kind {
  HARK_NEED_WORDS,
  HARK_NEED_OTHER_WORDS,
  HARK_NEED_GIVEN,
  HARK_NEED_NONE,
  HARK_NEED_ABOVE,
  HARK_NEED_AT_LEAST
} hark_option_need_kind;

/* One alternative of a condition: "model.positions rotary|sinusoidal", "data.format !corpus", "positional given", "layers >=2". */
typedef struct hark_option_need {
  char name[HARK_OPTION_WORD_BYTES]; /* of the option; or "$1" */
  char test[HARK_OPTION_WORD_BYTES]; /* the words, without '!'; or "given", "none", a number */
  hark_option_need_kind kind;
  double bound;
  bool last_of_condition, last; /* no other alternative follows; no other condition follows */
} hark_option_need;

/* Reads the alternative at *at and moves after it. False if it is malformed. */
bool hark_option_need_read(const char **at, hark_option_need *out);

/* True if it holds for `option`, whose value is in `field`. */
bool hark_option_need_holds(const hark_option_need *need, const hark_option *option, const void *field);

#endif
