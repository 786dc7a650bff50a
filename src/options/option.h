/* option.h - one option: a row of a table that describes a field of a plain struct, its values as words, and their ranges. Sets of options,
 * which are filled from files and the command line, are in config/options.h.
 */
#ifndef HARK_OPTIONS_OPTION_H
#define HARK_OPTIONS_OPTION_H

#include "core/core.h"
#include "core/layer_choice.h"
#include "core/string_list.h"
#include "io/text.h"

#define HARK_OPTION_WORD_BYTES 256 /* of a key, a flag or a choice; longer ones are invalid */

/* The type of an option, and of its field. */
typedef enum hark_option_type {
  HARK_OPTION_BOOL,     /* bool */
  HARK_OPTION_INT,      /* int64_t */
  HARK_OPTION_FLOAT,    /* double */
  HARK_OPTION_STRING,   /* const char *, never NULL */
  HARK_OPTION_ENUM,     /* int: the index of the word in choices */
  HARK_OPTION_LIST,     /* hark_string_list: a flag given several times, a sequence or one scalar in YAML */
  HARK_OPTION_DURATION, /* double, seconds: "90s", "10m", "1h30m" */
  HARK_OPTION_LAYERS,   /* hark_layer_choice: a word of choices, or several separated by commas, in YAML a sequence too */
} hark_option_type;

typedef struct hark_option {
  const char *name;  /* dotted key; without a dot in tables that are not configuration */
  const char *flags; /* short forms separated by blanks, without dashes: "learning-rate lr"; one letter means one dash. NULL: none */
  hark_option_type type;
  size_t offset;       /* of the field */
  const char *initial; /* default, as a user would write it */
  /* Numbers, and lists of numbers: an interval, "[1, inf)", "[0, 1)"; enums and layers: the words, "none|learned". NULL: any. */
  const char *range;
  /* Subcommands that accept its flag, separated by blanks; NULL: all. Files may contain it for any subcommand. Options may share a flag if
   * no subcommand accepts both. */
  const char *commands;
  const char *argument; /* the name of the value in --help: "FILE"; NULL: by type */
  const char *help;     /* one line */
  const char *needs;    /* conditions without which it has no effect; NULL: none */
} hark_option;

/* The column `needs`: conditions that all must hold, separated by ", ". A condition is one alternative or several separated by " or ":
 *
 *     "model.attention.kernel rbf"          the value is one of these words, separated by '|'; for a pattern of layers: one of its words is
 *     "data.format !corpus"                 the value, or the word of some layer, is none of these words
 *     "model.bias true", "json false"
 *     "train.init_from given|none"          given: a text that is not empty, a list with items; none: the opposite (only one is written)
 *     "rotary >0", "model.layers >=2"       a number
 *     "$1 make", "$2 recall|copy"           the first word of the command line that is not a flag, the second
 *
 * An option that is requested although its conditions do not hold is refused, see hark_options_refuse_idle(). */

/* True if the option's value is one or several of the words of its range. */
static inline bool hark_option_has_choices(const hark_option *option) {
  return option->type == HARK_OPTION_ENUM || option->type == HARK_OPTION_LAYERS;
}

/* Title of a section in --help and in the reference. */
typedef struct hark_option_section {
  const char *name; /* "model.attention" */
  const char *title;
} hark_option_section;

typedef struct hark_option_table {
  const hark_option *options;
  int count;
  const hark_option_section *sections; /* ended by a NULL name; NULL: none */
  size_t values_size;                  /* of the struct */
  bool configuration;                  /* allowed in files; otherwise on the command line only */
} hark_option_table;

/* Choice `index` of "none|learned"; false if there are no more. */
bool hark_option_choice_at(const char *choices, int index, char out[HARK_OPTION_WORD_BYTES]);
/* The index of the value among such choices, or -1. The second function finds the nearest choice, or the only one that begins with the
 * value; false if there is neither. */
int hark_option_choice(const char *choices, const char *value);
bool hark_option_near_choice(const char *choices, const char *value, char out[HARK_OPTION_WORD_BYTES]);

/* True for words that are paths by their names in --help, such as "FILE" or "RUN|FILE"; NULL: false. */
bool hark_option_words_are_paths(const char *argument);

/* A value without its texts. */
typedef union hark_option_value {
  bool truth;
  int64_t whole;
  double number;
  int choice;
  hark_layer_choice layers;
} hark_option_value;

/* Reads a written value into *out; false if the option does not allow it. For texts and lists, which are always valid, *out is not
 * changed. */
bool hark_option_read_value(const hark_option *option, const char *text, hark_option_value *out);
/* Stores it in the option's field, which must not be a text or a list. */
void hark_option_put_value(const hark_option *option, const hark_option_value *value, void *field);
/* True if the number is in the option's interval. */
bool hark_option_in_range(const hark_option *option, double value);
/* "a whole number of at least 1", "one of none, learned". */
void hark_option_expected(const hark_option *option, hark_text *text);
/* After that: the largest whole number, if a larger value was given to an option whose interval has no end. */
void hark_option_append_limit(const hark_option *option, const char *value, hark_text *text);

/* One spelling for all: '-' as '_' (in flags) and "ization" as "isation". False if the word is too long to be valid. */
bool hark_option_spelling(const char *text, size_t length, bool flag, char out[HARK_OPTION_WORD_BYTES]);
/* True if the text is an interval: "[1, inf)". */
bool hark_option_range_is_sound(const char *text);
bool hark_option_read_bool(const char *value, bool *out);
/* "window, hierarchical". False for too many words, or for a word that is not a choice; it is copied to `bad` if it is short enough. */
bool hark_option_read_layers(const char *choices, const char *value, hark_layer_choice *out, char bad[HARK_OPTION_WORD_BYTES]);
/* True if the subcommand accepts the option as a flag. */
bool hark_option_applies(const hark_option *option, const char *command);

#endif
