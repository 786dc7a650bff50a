/* options_needs.c - options that have an effect only beside others: the column `needs` of the tables (options.h has its grammar).
 *
 * A text of conditions is read anew each time it is looked at: tables are small, and nothing has to be kept.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "io/number.h"
#include "io/options_set.h"
#include "io/words.h"

/* ---- reading ---- */

/* One alternative of a condition: "model.positions rotary|sinusoidal", "data.format !corpus", "positional given", "layers >=2". */
typedef struct need {
  char name[HARK_OPTION_WORD_BYTES];
  char test[HARK_OPTION_WORD_BYTES]; /* the words, without '!'; or "given", "none", a number */
  enum { NEED_WORDS, NEED_OTHER_WORDS, NEED_GIVEN, NEED_NONE, NEED_ABOVE, NEED_AT_LEAST } kind;
  double bound;
  bool last_of_condition, last; /* no other alternative follows; no other condition does */
} need;

#define OR " or "

/* Reads the alternative at *at and moves behind it. False when it is malformed. */
static bool read_need(const char **at, need *out) {
  const char *const end = strchr(*at, ','), *const or_word = strstr(*at, OR), *stop = *at + strlen(*at);
  *out = (need){.last_of_condition = true, .last = end == NULL};
  if (end != NULL) stop = end;
  if (or_word != NULL && or_word < stop) {
    stop = or_word;
    out->last_of_condition = out->last = false;
  }
  const char *const blank = strchr(*at, ' ');
  if (blank == NULL || blank >= stop || blank == *at || stop - *at >= HARK_OPTION_WORD_BYTES) return false;
  memcpy(out->name, *at, (size_t)(blank - *at));
  const char *const test = blank + 1;
  const bool other = *test == '!', above = *test == '>', at_least = above && test[1] == '=';
  memcpy(out->test, test + other + above + at_least, (size_t)(stop - test) - (size_t)(other + above + at_least));
  out->kind = other ? NEED_OTHER_WORDS : at_least ? NEED_AT_LEAST : above ? NEED_ABOVE : NEED_WORDS;
  if (out->kind == NEED_WORDS && strcmp(out->test, "given") == 0) out->kind = NEED_GIVEN;
  if (out->kind == NEED_WORDS && strcmp(out->test, "none") == 0) out->kind = NEED_NONE;
  if (above && !hark_number_read(out->test, strlen(out->test), &out->bound)) return false;
  *at = stop + (out->last ? 0 : out->last_of_condition ? strlen(", ") : strlen(OR));
  return out->test[0] != '\0' && (*stop == '\0' || *stop == ' ' || stop[1] == ' ');
}

/* "$1": the first word of the command line that is no flag. */
static int argument_of(const need *n) { return n->name[0] == '$' && n->name[1] >= '1' && n->name[1] <= '9' ? n->name[1] - '1' : -1; }

/* Words that are tested with "given" and "none" are no choices: those tests are of texts and lists. */
static bool is_sound(const hark_options *options, const need *n) {
  if (argument_of(n) >= 0) return n->kind == NEED_WORDS || n->kind == NEED_OTHER_WORDS;
  const hark_option_entry *const entry = hark_options_entry(options, n->name);
  if (entry == NULL) return false;
  switch (entry->option->type) {
    case HARK_OPTION_BOOL: return n->kind == NEED_WORDS && (strcmp(n->test, "true") == 0 || strcmp(n->test, "false") == 0);
    case HARK_OPTION_INT:
    case HARK_OPTION_FLOAT:
    case HARK_OPTION_DURATION: return n->kind == NEED_ABOVE || n->kind == NEED_AT_LEAST;
    case HARK_OPTION_STRING:
    case HARK_OPTION_LIST: return n->kind == NEED_GIVEN || n->kind == NEED_NONE;
    case HARK_OPTION_ENUM:
    case HARK_OPTION_LAYERS: break;
  }
  char word[HARK_OPTION_WORD_BYTES];
  if (n->kind != NEED_WORDS && n->kind != NEED_OTHER_WORDS && n->kind != NEED_NONE) return false;
  for (int i = 0; hark_option_choice_at(n->test, i, word); i++)
    if (hark_option_choice(entry->option->range, word) < 0) return false;
  return true;
}

bool hark_option_needs_are_sound(const hark_options *options, const hark_option *option) {
  need n = {0};
  for (const char *at = option->needs; at != NULL && !n.last;)
    if (!read_need(&at, &n) || !is_sound(options, &n)) return false;
  return true;
}

/* ---- what holds ---- */

/* One of the choices is among the words. */
static bool has_choice(const hark_option_entry *entry, const char *words) {
  char word[HARK_OPTION_WORD_BYTES];
  const hark_layer_choice *const layers = entry->field;
  for (int i = 0; hark_option_choice_at(words, i, word); i++) {
    const int choice = hark_option_choice(entry->option->range, word);
    if (entry->option->type == HARK_OPTION_LAYERS ? hark_layer_choice_has(layers, choice) : *(const int *)entry->field == choice)
      return true;
  }
  return false;
}

/* Some choice is none of the words. */
static bool has_other_choice(const hark_option_entry *entry, const char *words) {
  char word[HARK_OPTION_WORD_BYTES];
  for (int i = 0; hark_option_choice_at(entry->option->range, i, word); i++)
    if (hark_option_choice(words, word) < 0 && has_choice(entry, word)) return true;
  return false;
}

static bool holds(const hark_options *options, const need *n) {
  const int argument = argument_of(n);
  if (argument >= 0) {
    if (argument >= hark_options_argument_count(options)) return true; /* a problem of its own */
    return (hark_option_choice(n->test, hark_options_argument(options, argument)) >= 0) == (n->kind == NEED_WORDS);
  }
  const hark_option_entry *const entry = hark_options_entry(options, n->name);
  const hark_option_type type = entry->option->type;
  const double number = type == HARK_OPTION_INT                                     ? (double)*(const int64_t *)entry->field
                        : type == HARK_OPTION_FLOAT || type == HARK_OPTION_DURATION ? *(const double *)entry->field
                                                                                    : 0;
  const bool there = type == HARK_OPTION_STRING ? (*(const char *const *)entry->field)[0] != '\0'
                     : type == HARK_OPTION_LIST ? ((const hark_string_list *)entry->field)->count > 0
                                                : false;
  if (type == HARK_OPTION_BOOL) return *(const bool *)entry->field == (n->test[0] == 't');
  if (hark_option_has_choices(entry->option))
    return n->kind == NEED_OTHER_WORDS ? has_other_choice(entry, n->test) : has_choice(entry, n->test);
  switch (n->kind) {
    case NEED_GIVEN: return there;
    case NEED_NONE: return !there;
    case NEED_ABOVE: return number > n->bound;
    case NEED_AT_LEAST: return number >= n->bound;
    case NEED_WORDS:
    case NEED_OTHER_WORDS: break;
  }
  return true;
}

/* The first alternative of the first condition that does not hold; NULL: all hold. *overruled: what a higher source than the option's says of
 * one of its alternatives is why. */
static const char *missing(const hark_options *options, const hark_option_entry *entry, bool *overruled) {
  need n = {0};
  *overruled = false;
  for (const char *at = entry->option->needs; at != NULL && !n.last;) {
    const char *const condition = at;
    bool held = false, higher = false;
    do {
      if (!read_need(&at, &n)) return NULL;
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

/* Someone asked for it who can mean it: what a run has recorded, and what a file lists as it is anyway, is no such wish; nor is what a file
 * says beside an option that the command line changes. */
static const char *idle_for(const hark_options *options, const hark_option_entry *entry) {
  bool overruled = false;
  if (entry->source <= HARK_SOURCE_RUN || (entry->source == HARK_SOURCE_FILE && entry->usual)) return NULL;
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

/* ---- in words ---- */

/* "--structure", or the key where it is no flag here or keys are asked for. */
static void print_name(const hark_options *options, const need *n, bool keys, hark_text *text) {
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

static void print_need(const hark_options *options, const need *n, bool keys, hark_text *text) {
  const hark_option_entry *const entry = hark_options_entry(options, n->name);
  const bool truth = entry != NULL && entry->option->type == HARK_OPTION_BOOL;
  char number[HARK_NUMBER_BYTES];
  if (n->kind == NEED_NONE || (truth && n->test[0] == 'f')) hark_text_append(text, "no ");
  print_name(options, n, keys, text);
  if (truth || n->kind == NEED_NONE) return;
  switch (n->kind) {
    case NEED_GIVEN: hark_text_append(text, " %s", hark_option_argument(entry->option)); break;
    case NEED_ABOVE: hark_text_append(text, " above %s", hark_number_print(n->bound, number)); break;
    case NEED_AT_LEAST: hark_text_append(text, " of at least %s", hark_number_print(n->bound, number)); break;
    case NEED_OTHER_WORDS:
      hark_text_append(text, " other than ");
      print_words(n->test, text);
      break;
    case NEED_WORDS:
      hark_text_append(text, " ");
      print_words(n->test, text);
      break;
    case NEED_NONE: break;
  }
}

/* Prints alternatives up to the end of the condition at `at`; returns what stands behind it, NULL at the end of all. */
static const char *print_condition(const hark_options *options, const char *at, bool keys, hark_text *text) {
  need n = {0};
  for (bool first = true; !n.last_of_condition; first = false) {
    if (!read_need(&at, &n)) return NULL;
    if (!first) hark_text_append(text, " or ");
    print_need(options, &n, keys, text);
  }
  return n.last ? NULL : at;
}

/* What concerns words of the command line is for its help to say. */
void hark_option_print_needs(const hark_options *options, const hark_option *option, bool keys, hark_text *text) {
  const size_t before = text->length;
  for (const char *at = option->needs; at != NULL;) {
    hark_text condition = hark_text_empty(text->context);
    const bool of_words = *at == '$';
    at = print_condition(options, at, keys, &condition);
    if (!of_words) hark_text_append(text, "%s%s", text->length > before ? ", " : "", hark_text_get(&condition));
    if (condition.status != HARK_OK && text->status == HARK_OK) text->status = condition.status;
    hark_text_free(&condition);
  }
}

/* " (which is dense)" of the option of the alternative at `at`, where it has a value to be named. */
static void print_present(const hark_options *options, const char *at, hark_text *text) {
  need n;
  if (!read_need(&at, &n) || !n.last_of_condition) return;
  const hark_option_entry *const entry = hark_options_entry(options, n.name);
  if (entry == NULL || entry->option->type == HARK_OPTION_BOOL || n.kind == NEED_GIVEN || n.kind == NEED_NONE) return;
  hark_text_append(text, " (which is ");
  hark_options_print_value(options, n.name, text);
  hark_text_append(text, ")");
}

hark_status hark_options_refuse_idle(hark_context *context, hark_options *options) {
  for (int i = 0; i < options->count; i++) {
    hark_option_entry *const entry = &options->entries[i];
    const char *const condition = entry->bad ? NULL : idle_for(options, entry);
    if (condition == NULL) continue;
    hark_text text = hark_text_empty(context);
    (void)print_condition(options, condition, entry->where[0] != '-', &text);
    print_present(options, condition, &text);
    hark_status status = text.status;
    if (status == HARK_OK)
      status = hark_options_complain(context, options, entry->option->name, "has no effect here, it needs %s", hark_text_get(&text));
    hark_text_free(&text);
    HARK_TRY(status);
    entry->bad = true;
  }
  return HARK_OK;
}
