/* options_needs.c - options that only have an effect with others: the column `needs` of the tables (its grammar is in option.h).
 *
 * Conditions are parsed each time they are tested: tables are small, and nothing has to be stored.
 */
#include <stdio.h>
#include <string.h>

#include "config/options_set.h"
#include "io/number.h"
#include "io/words.h"
#include "options/option_needs.h"

/* ---- reading ---- */

/* "$1": the first word of the command line that is not a flag. */
static int argument_of(const hark_option_need *n) {
  return n->name[0] == '$' && n->name[1] >= '1' && n->name[1] <= '9' ? n->name[1] - '1' : -1;
}

/* Checks a condition. "given" and "none" only test texts and lists, not choices. */
static bool is_sound(const hark_options *options, const hark_option_need *n) {
  if (argument_of(n) >= 0) return n->kind == HARK_NEED_WORDS || n->kind == HARK_NEED_OTHER_WORDS;
  const hark_option_entry *const entry = hark_options_entry(options, n->name);
  if (entry == NULL) return false;
  switch (entry->option->type) {
    case HARK_OPTION_BOOL: return n->kind == HARK_NEED_WORDS && (strcmp(n->test, "true") == 0 || strcmp(n->test, "false") == 0);
    case HARK_OPTION_INT:
    case HARK_OPTION_FLOAT:
    case HARK_OPTION_DURATION: return n->kind == HARK_NEED_ABOVE || n->kind == HARK_NEED_AT_LEAST;
    case HARK_OPTION_STRING:
    case HARK_OPTION_LIST: return n->kind == HARK_NEED_GIVEN || n->kind == HARK_NEED_NONE;
    case HARK_OPTION_ENUM:
    case HARK_OPTION_LAYERS: break;
  }
  char word[HARK_OPTION_WORD_BYTES];
  if (n->kind != HARK_NEED_WORDS && n->kind != HARK_NEED_OTHER_WORDS && n->kind != HARK_NEED_NONE) return false;
  for (int i = 0; hark_option_choice_at(n->test, i, word); i++)
    if (hark_option_choice(entry->option->range, word) < 0) return false;
  return true;
}

bool hark_option_needs_are_sound(const hark_options *options, const hark_option *option) {
  hark_option_need n = {0};
  for (const char *at = option->needs; at != NULL && !n.last;)
    if (!hark_option_need_read(&at, &n) || !is_sound(options, &n)) return false;
  return true;
}

/* ---- which conditions hold ---- */

static bool holds(const hark_options *options, const hark_option_need *n) {
  const int argument = argument_of(n);
  if (argument >= 0) {
    if (argument >= hark_options_argument_count(options)) return true; /* reported as a separate problem */
    return (hark_option_choice(n->test, hark_options_argument(options, argument)) >= 0) == (n->kind == HARK_NEED_WORDS);
  }
  const hark_option_entry *const entry = hark_options_entry(options, n->name);
  return entry->bad || hark_option_need_holds(n, entry->option, entry->field); /* its own problem is reported */
}

/* The first condition that does not hold; NULL: all hold. *overruled: an option of one of its alternatives has a higher source than this
 * option, which explains it. */
static const char *missing(const hark_options *options, const hark_option_entry *entry, bool *overruled) {
  hark_option_need n = {0};
  *overruled = false;
  for (const char *at = entry->option->needs; at != NULL && !n.last;) {
    const char *const condition = at;
    bool held = false, higher = false;
    do {
      if (!hark_option_need_read(&at, &n)) return NULL;
      const hark_option_entry *const needed = hark_options_entry(options, n.name);
      held = held || holds(options, &n);
      higher = higher || (needed != NULL && needed->source > entry->source);
    } while (!n.last_of_condition);
    if (held) continue;
    *overruled = higher;
    return condition;
  }
  return NULL;
}

/* Not requested are values recorded in a run or of a preset, and defaults listed in a file. */
static bool is_requested(const hark_option_entry *entry) {
  return entry->source == HARK_SOURCE_COMMAND || (entry->source == HARK_SOURCE_FILE && !entry->usual);
}

/* The missing condition of a requested option, or NULL. A file's values whose conditions the command line has changed are not requested. */
static const char *idle_for(const hark_options *options, const hark_option_entry *entry) {
  bool overruled = false;
  if (!is_requested(entry)) return NULL;
  const char *const condition = missing(options, entry, &overruled);
  return overruled ? NULL : condition;
}

bool hark_options_has_effect(const hark_options *options, const char *name) {
  const hark_option_entry *const entry = hark_options_entry(options, name);
  bool overruled = false;
  return entry == NULL || missing(options, entry, &overruled) == NULL;
}

bool hark_options_is_idle(const hark_options *options, const char *name) {
  const hark_option_entry *const entry = hark_options_entry(options, name);
  return entry != NULL && idle_for(options, entry) != NULL;
}

bool hark_options_is_requested(const hark_options *options, const char *name, const char *others) {
  const hark_option_entry *const entry = hark_options_entry(options, name);
  size_t length;
  if (entry == NULL || !is_requested(entry)) return false;
  for (const char *at = others, *word; (word = hark_next_word(&at, ' ', &length)) != NULL;) {
    char other[HARK_OPTION_WORD_BYTES];
    (void)snprintf(other, sizeof other, "%.*s", (int)length, word);
    if (hark_options_source(options, other) > entry->source) return false;
  }
  return true;
}

/* ---- in words ---- */

/* "--structure", or the key if it is not a flag here or keys are requested. */
static void print_name(const hark_options *options, const hark_option_need *n, bool keys, hark_text *text) {
  const hark_option_entry *const entry = hark_options_entry(options, n->name);
  char flag[HARK_OPTION_WORD_BYTES];
  if (argument_of(n) >= 0) {
    hark_text_append(text, "%s", options->command != NULL ? options->command : "argument");
    for (int i = 0; i < argument_of(n) && i < hark_options_argument_count(options); i++)
      hark_text_append(text, " %s", hark_options_argument(options, i));
    return;
  }
  const bool configuration = entry != NULL && entry->table->configuration;
  if (entry != NULL && !(keys && configuration) && hark_option_applies(entry->option, options->command) &&
      hark_option_flag(entry->option, 0, flag)) {
    const bool negated = entry->option->type == HARK_OPTION_BOOL && strncmp(flag, "--no-", 5) == 0;
    hark_text_append(text, "%s%s", negated ? "--" : "", negated ? flag + 5 : flag);
    return;
  }
  hark_text_append(text, "%s", n->name);
}

/* "rotary or sinusoidal" */
static void print_words(const char *words, hark_text *text) {
  char word[HARK_OPTION_WORD_BYTES], next[HARK_OPTION_WORD_BYTES];
  for (int i = 0; hark_option_choice_at(words, i, word); i++)
    hark_text_append(text, "%s%s", i == 0 ? "" : hark_option_choice_at(words, i + 1, next) ? ", " : " or ", word);
}

/* A text or a list that must not be given. */
static bool is_absence(const hark_options *options, const hark_option_need *n) {
  const hark_option_entry *const entry = hark_options_entry(options, n->name);
  return n->kind == HARK_NEED_NONE && entry != NULL && entry->option->type != HARK_OPTION_BOOL && !hark_option_has_choices(entry->option);
}

/* A condition of only one absence: both options cannot be given. */
static bool is_exclusion(const hark_options *options, const char *condition) {
  hark_option_need n = {0};
  return hark_option_need_read(&condition, &n) && n.last_of_condition && is_absence(options, &n);
}

static void print_need(const hark_options *options, const hark_option_need *n, bool keys, hark_text *text) {
  const hark_option_entry *const entry = hark_options_entry(options, n->name);
  const bool truth = entry != NULL && entry->option->type == HARK_OPTION_BOOL;
  char number[HARK_NUMBER_BYTES];
  print_name(options, n, keys, text);
  if (truth) {
    if (n->test[0] == 'f') hark_text_append(text, " off");
    return;
  }
  switch (n->kind) {
    case HARK_NEED_GIVEN: hark_text_append(text, " %s", hark_option_argument(entry->option)); break;
    case HARK_NEED_ABOVE: hark_text_append(text, " above %s", hark_number_print(n->bound, number)); break;
    case HARK_NEED_AT_LEAST: hark_text_append(text, " of at least %s", hark_number_print(n->bound, number)); break;
    case HARK_NEED_OTHER_WORDS:
      hark_text_append(text, " other than ");
      print_words(n->test, text);
      break;
    case HARK_NEED_WORDS:
      hark_text_append(text, " ");
      print_words(n->test, text);
      break;
    case HARK_NEED_NONE: hark_text_append(text, is_absence(options, n) ? " not given" : " none"); break;
  }
}

/* The condition after the one at `at`, NULL after the last one. *alternatives: the condition at `at` has several. */
static const char *next_condition(const char *at, bool *alternatives) {
  hark_option_need n = {0};
  *alternatives = false;
  while (!n.last_of_condition) {
    if (!hark_option_need_read(&at, &n)) return NULL;
    *alternatives = *alternatives || !n.last_of_condition;
  }
  return n.last ? NULL : at;
}

/* Prints the alternatives of the condition at `at`. */
static void print_condition(const hark_options *options, const char *at, bool keys, hark_text *text) {
  hark_option_need n = {0};
  for (bool first = true; !n.last_of_condition; first = false) {
    if (!hark_option_need_read(&at, &n)) return;
    if (!first) hark_text_append(text, " or ");
    print_need(options, &n, keys, text);
  }
}

/* Conditions about words of the command line are left to its help. */
static bool is_left_out(const hark_options *options, const char *at, bool keys) {
  return *at == '$' || (!keys && is_exclusion(options, at));
}

/* With ", and " between conditions, a condition of several alternatives is in brackets. */
void hark_option_print_needs(const hark_options *options, const hark_option *option, bool keys, hark_text *text) {
  int count = 0, printed = 0;
  bool alternatives;
  for (const char *at = option->needs; at != NULL; at = next_condition(at, &alternatives)) count += !is_left_out(options, at, keys);
  for (const char *at = option->needs, *next; at != NULL; at = next) {
    next = next_condition(at, &alternatives);
    if (is_left_out(options, at, keys)) continue;
    const bool brackets = alternatives && count > 1 && !keys;
    hark_text_append(text, "%s%s", printed++ == 0 ? "" : keys ? "; " : ", and ", brackets ? "(" : "");
    print_condition(options, at, keys, text);
    if (brackets) hark_text_append(text, ")");
  }
}

void hark_option_print_exclusions(const hark_options *options, const hark_option *option, hark_text *text) {
  const size_t before = text->length;
  hark_option_need n = {.last_of_condition = true};
  for (const char *at = option->needs; at != NULL && !n.last;) {
    const bool exclusion = n.last_of_condition && is_exclusion(options, at);
    if (!hark_option_need_read(&at, &n)) return;
    if (exclusion && text->length > before) hark_text_append(text, " or ");
    if (exclusion) print_name(options, &n, false, text);
  }
}

/* " (currently dense)" for the option of the alternative at `at`, if it has a value to name. */
static void print_present(const hark_options *options, const char *at, hark_text *text) {
  hark_option_need n;
  if (!hark_option_need_read(&at, &n) || !n.last_of_condition) return;
  const hark_option_entry *const entry = hark_options_entry(options, n.name);
  if (entry == NULL || entry->option->type == HARK_OPTION_BOOL || n.kind == HARK_NEED_GIVEN || n.kind == HARK_NEED_NONE) return;
  hark_text_append(text, " (currently ");
  hark_options_print_value(options, n.name, text);
  hark_text_append(text, ")");
}

/* False: the condition is no exclusion, and nothing is appended. On the command line, the place of the other option is named if that is a
 * file. */
static bool print_excluded(const hark_options *options, const char *condition, bool keys, hark_text *text) {
  hark_option_need n;
  if (!is_exclusion(options, condition) || !hark_option_need_read(&condition, &n)) return false;
  const hark_option_entry *const other = hark_options_entry(options, n.name);
  const bool apart = !keys && other != NULL && other->where != NULL && other->where[0] != '-';
  hark_text_append(text, "cannot be used together with ");
  print_name(options, &n, keys || apart, text);
  if (apart) hark_text_append(text, " (%s)", other->where);
  return true;
}

bool hark_options_print_excluded(const hark_options *options, const char *name, hark_text *text) {
  const hark_option_entry *const entry = hark_options_entry(options, name);
  const char *const condition = entry == NULL ? NULL : idle_for(options, entry);
  return condition != NULL && print_excluded(options, condition, entry->where[0] != '-', text);
}

hark_status hark_options_refuse_idle(hark_context *context, hark_options *options) {
  for (int i = 0; i < options->count; i++) {
    hark_option_entry *const entry = &options->entries[i];
    const char *condition = entry->bad ? NULL : idle_for(options, entry);
    if (condition == NULL) continue;
    hark_text text = hark_text_empty(context);
    const bool keys = entry->where[0] != '-';
    if (!print_excluded(options, condition, keys, &text)) {
      hark_text_append(&text, "has no effect here, it needs ");
      print_condition(options, condition, keys, &text);
      print_present(options, condition, &text);
    }
    hark_status status = text.status;
    if (status == HARK_OK) status = hark_options_complain(context, options, entry->option->name, "%s", hark_text_get(&text));
    hark_text_free(&text);
    HARK_TRY(status);
    entry->bad = true;
  }
  return HARK_OK;
}
