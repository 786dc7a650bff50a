/* options_set.h - the internals of a set of options: options.c and options_yaml.c fill it, options_print.c writes it. */
#ifndef HARK_CONFIG_OPTIONS_SET_H
#define HARK_CONFIG_OPTIONS_SET_H

#include "config/options.h"

/* One option of the set with its field. */
typedef struct hark_option_entry {
  const hark_option *option;
  const hark_option_table *table;
  void *field;
  const char *where; /* of the value: "--layers", "run.yaml:12"; NULL: the default */
  hark_option_source source;
  int reading; /* index of the last reading, of a file or a command line, that mentioned it */
  bool usual;  /* the given value is the default */
  bool bad;    /* a problem was found with it */
} hark_option_entry;

/* Memory of the set, freed with it. */
typedef struct hark_option_piece {
  struct hark_option_piece *next;
  size_t bytes;
} hark_option_piece;

struct hark_options {
  const char *command;
  hark_option_entry *entries;
  int count;
  hark_option_piece *pieces;
  hark_string_list problems;
  hark_string_list arguments;
  int readings; /* of files and command lines */
};

/* For code that fills a set from a command line or a file (options.c, options_yaml.c). where: "--layers", "run.yaml:12". A problem is
 * stored in the set, once; HARK_OK unless memory is short. */
HARK_MUST_CHECK hark_status hark_options_problem_add(hark_context *context, hark_options *options, const char *format, ...)
    HARK_PRINTF(3, 4);
HARK_MUST_CHECK hark_status hark_options_refuse_value(hark_context *context, hark_options *options, hark_option_entry *entry,
                                                      const char *value, const char *where);
HARK_MUST_CHECK hark_status hark_options_unknown_word(hark_context *context, hark_options *options, const char *where, const char *word,
                                                      bool flag);
/* Reads and stores a value, unless there is one of a higher source. afresh: a list begins anew with it. */
HARK_MUST_CHECK hark_status hark_options_take_value(hark_context *context, hark_options *options, hark_option_entry *entry,
                                                    const char *value, const char *where, hark_option_source source, bool afresh);
HARK_MUST_CHECK hark_status hark_options_own_text(hark_context *context, hark_options *options, const char *text, size_t length,
                                                  const char **out);
hark_option_entry *hark_options_find_key(hark_options *options, const char *key);
bool hark_options_is_section(const hark_options *options, const char *key);

const hark_option_entry *hark_options_entry(const hark_options *options, const char *name);
/* True if the column `needs` is well-formed, and names options of the set. */
bool hark_option_needs_are_sound(const hark_options *options, const hark_option *option);

#endif
