/* options.h - one table of options for defaults, YAML sections, command-line flags, --help, config.yaml, metadata and the reference.
 *
 * A table describes the fields of one plain struct. A set of options joins one or more tables with their structs. It is filled from
 * defaults, files and the command line, in any order: the rank of the source decides. Problems are collected, not returned one by one: read
 * everything, then call hark_options_finish(). Strings and lists in the structs belong to the set and live until it is destroyed.
 *
 *     hark_config config;
 *     const hark_option_group group = {&hark_config_table, &config};
 *     hark_options *options;
 *     HARK_TRY(hark_options_create(context, "train", &group, 1, &options));
 *     status = hark_options_read_arguments(context, options, argc, argv);
 *     if (status == HARK_OK) status = hark_options_read_yaml(context, options, "run.yaml", HARK_SOURCE_FILE);
 *     if (status == HARK_OK) status = hark_options_finish(context, options);   then hark_options_problem(options, 0 .. count - 1)
 *     hark_options_destroy(context, &options);
 *
 * Spelling: a key is dotted (model.attention.window), in YAML nested sections or the dotted key itself. A flag is --model.attention.window,
 * or one of the option's short forms; '-' and '_' are the same in flags. A value is the next word or follows '='; a boolean is --flag or
 * --no-flag. "ization" is read as "isation" in keys, flags and choices. Only lists may be given several times: for other options, a second
 * time on the command line, or in one file, is a problem.
 */
#ifndef HARK_CONFIG_OPTIONS_H
#define HARK_CONFIG_OPTIONS_H

#include "options/option.h"

typedef struct hark_option_group {
  const hark_option_table *table;
  void *values; /* the struct, of table->values_size bytes; caller-owned */
} hark_option_group;

/* The source of a value; a higher rank wins in any order of reading. */
typedef enum hark_option_source {
  HARK_SOURCE_DEFAULT,
  HARK_SOURCE_RUN, /* config.yaml of the run that is continued or read */
  HARK_SOURCE_PRESET,
  HARK_SOURCE_FILE,
  HARK_SOURCE_COMMAND
} hark_option_source;

typedef struct hark_options hark_options;

/* Makes a set for a subcommand (NULL: flags of all) and fills the structs with the defaults. Errors: HARK_OUT_OF_MEMORY;
 * HARK_INTERNAL_ERROR if a table contradicts itself (a default outside its range, a name that occurs twice). */
HARK_MUST_CHECK hark_status hark_options_create(hark_context *context, const char *command, const hark_option_group *groups, int count,
                                                hark_options **out);
/* Frees the set and every string and list in the structs. */
void hark_options_destroy(hark_context *context, hark_options **options);

/* Reads the words after the subcommand. Words without a dash, and all after "--", are stored as arguments in their order. Errors in the
 * words become problems; the status only reports lack of memory. */
HARK_MUST_CHECK hark_status hark_options_read_arguments(hark_context *context, hark_options *options, int count, const char *const *words);

/* Reads a YAML file. Errors: of files; a file that is not well-formed YAML is a problem like a wrong value. */
HARK_MUST_CHECK hark_status hark_options_read_yaml(hark_context *context, hark_options *options, const char *path,
                                                   hark_option_source source);

/* Sets one option by its name, for programs; a problem names `where`. */
HARK_MUST_CHECK hark_status hark_options_set(hark_context *context, hark_options *options, const char *name, const char *value,
                                             const char *where, hark_option_source source);

/* Sets item `index` of a list, which must be the next one; item 0 begins the list anew. */
HARK_MUST_CHECK hark_status hark_options_set_item(hark_context *context, hark_options *options, const char *name, int64_t index,
                                                  const char *value, const char *where, hark_option_source source);

/* Adds a problem for every text of a configuration that is not UTF-8 (a path may be): it could not be written to a file. */
HARK_MUST_CHECK hark_status hark_options_require_utf8(hark_context *context, hark_options *options);

/* Copies one option from another set of the same tables; for a list, every item. */
HARK_MUST_CHECK hark_status hark_options_copy(hark_context *context, hark_options *options, const hark_options *from, const char *name,
                                              const char *where, hark_option_source source);

/* HARK_OK, or HARK_BAD_CONFIGURATION with the first problem (and the number of the others) as the message. */
HARK_MUST_CHECK hark_status hark_options_finish(hark_context *context, const hark_options *options);

/* The problems found so far, one line each without a newline: the place, the problem, the expected value. */
int hark_options_problem_count(const hark_options *options);
const char *hark_options_problem(const hark_options *options, int index);

/* Adds a problem that a check of several options found. `names` are the options concerned, separated by blanks: the first one with a source
 * other than the default gives the place. Nothing is added if one of them already has a problem. */
hark_status hark_options_complain(hark_context *context, hark_options *options, const char *names, const char *format, ...)
    HARK_PRINTF(4, 5);

/* Adds a problem for every requested option that has no effect with the other options: one of the conditions in its column `needs` does not
 * hold. A value of the command line is requested. A value of a file is requested if it is not the default (because files may list
 * everything), and if the command line has not changed an option that it needs. A value recorded in a run is not. To be called once, after
 * everything has been read and derived. Errors: HARK_OUT_OF_MEMORY. */
HARK_MUST_CHECK hark_status hark_options_refuse_idle(hark_context *context, hark_options *options);
/* True if an option would be refused; and true if its conditions hold, whether it is requested or not. */
bool hark_options_is_idle(const hark_options *options, const char *name);
bool hark_options_has_effect(const hark_options *options, const char *name);
/* True if the option is requested, as hark_options_refuse_idle() means it, and none of `others` (names separated by blanks) has a higher
 * source. */
bool hark_options_is_requested(const hark_options *options, const char *name, const char *others);
/* "--structure window, and --kernel rbf": the column in words, by the flags of the set's subcommand or by keys. Nothing if there are none.
 * By flags, options that must not be given are left out; hark_option_print_exclusions() prints them: "--item". */
void hark_option_print_needs(const hark_options *options, const hark_option *option, bool keys, hark_text *text);
void hark_option_print_exclusions(const hark_options *options, const hark_option *option, hark_text *text);
/* Appends "cannot be used together with --item" if the option of this name has no effect because that one is given; false: nothing. */
bool hark_options_print_excluded(const hark_options *options, const char *name, hark_text *text);

/* Marks a file's value of an option as usual: it is the default that is derived from other options. */
void hark_options_note_usual(hark_options *options, const char *name);

/* Marks an option whose value has a problem: hark_options_complain() adds no other problem that concerns it. */
void hark_options_note_bad(hark_options *options, const char *name);

/* Resets an option to its default, as if no source had set it. */
HARK_MUST_CHECK hark_status hark_options_reset(hark_context *context, hark_options *options, const char *name);

/* Words that are not flags. */
int hark_options_argument_count(const hark_options *options);
const char *hark_options_argument(const hark_options *options, int index);
/* Keeps only this one of several words. */
void hark_options_keep_argument(hark_options *options, int index);

/* The source of an option's value: its rank, and in words: "default", "run.yaml:12", "--layers". An unknown name: default. */
hark_option_source hark_options_source(const hark_options *options, const char *name);
const char *hark_options_where(const hark_options *options, const char *name);
/* `name` has a value because of `other`: complaints about it name the place of the other one. */
void hark_options_follow(hark_options *options, const char *name, const char *other);

/* Appends the value of an option, as a user would write it, to `text`, which the caller frees. */
void hark_options_print_value(const hark_options *options, const char *name, hark_text *text);

/* Writers. Each appends to `text`; check the text's status afterwards. Configuration tables only, except for help. */
/* Flags of the set's subcommand, by section. `only`: names of the options to print, separated by blanks, without their
 * conditions and keys; NULL: all, with these. */
void hark_options_print_help(const hark_options *options, const char *only, hark_text *text);
void hark_options_print_yaml(const hark_options *options, bool comments,
                             hark_text *text);                                  /* all values; reading it gives the same values */
void hark_options_print_json(const hark_options *options, hark_text *text);     /* all values, one object, nested */
void hark_options_print_markdown(const hark_options *options, hark_text *text); /* the reference */

/* One option of a set for texts about options (manual pages, completion). */
typedef struct hark_option_view {
  const hark_option *option;
  const char *section; /* title */
  bool configuration;  /* allowed in files too */
  const hark_options *options;
} hark_option_view;
/* Number of options in the set, and the index-th one; false if the set's subcommand does not accept it as a flag. */
int hark_options_count(const hark_options *options);
bool hark_options_view(const hark_options *options, int index, hark_option_view *out);

/* Spelling `index` of an option's flag as --help prints it: "--learning-rate", "-o", "--no-comments"; false if there are no more. */
bool hark_option_flag(const hark_option *option, int index, char out[HARK_OPTION_WORD_BYTES]);
/* The name of its value in --help: "N", "FILE"; "" if it has none. */
const char *hark_option_argument(const hark_option *option);
/* Its description in --help: meaning, choices, default, key. */
void hark_option_print_meaning(const hark_option_view *view, hark_text *text);

#endif
