/* options.c - the option engine: defaults and command lines into structs, problems collected; files are in options_yaml.c.
 *
 * Every value, from any source, goes through hark_options_take_value(): it is checked against the option's type and range, and stored if
 * its source ranks at least as high as that of the current value. A list grows within one source and begins anew with a higher one. Cost:
 * linear in the table for each word.
 */
#include "config/options.h"

#include <stdio.h>
#include <string.h>

#include "config/options_set.h"
#include "config/peer_words.h"
#include "core/line.h"
#include "io/json_write.h"
#include "io/number.h"
#include "io/words.h"

#define PROBLEM_LIMIT 50 /* more are counted, not stored */

/* ---- memory of the set ---- */

static hark_status own_bytes(hark_context *context, hark_options *options, size_t bytes, void **out) {
  void *memory;
  HARK_TRY(hark_size_add(context, bytes, sizeof(hark_option_piece), &bytes));
  HARK_TRY(hark_allocate(context, bytes, &memory));
  hark_option_piece *const piece = memory;
  *piece = (hark_option_piece){options->pieces, bytes};
  options->pieces = piece;
  *out = piece + 1;
  return HARK_OK;
}

hark_status hark_options_own_text(hark_context *context, hark_options *options, const char *text, size_t length, const char **out) {
  void *copy;
  *out = ""; /* needs no memory, and outlives the set */
  if (length == 0) return HARK_OK;
  HARK_TRY(own_bytes(context, options, length + 1, &copy));
  memcpy(copy, text, length);
  ((char *)copy)[length] = 0;
  *out = copy;
  return HARK_OK;
}

/* Appends an item that the set owns; the array doubles if the count is a power of two. */
static hark_status append_item(hark_context *context, hark_options *options, hark_string_list *list, const char *item) {
  if ((list->count & (list->count - 1)) == 0) {
    void *grown;
    const size_t count = (size_t)list->count;
    HARK_TRY(own_bytes(context, options, (count > 0 ? 2 * count : 1) * sizeof(char *), &grown));
    if (count > 0) memcpy(grown, list->items, count * sizeof(char *));
    list->items = grown;
  }
  const char **const items = (const char **)list->items;
  items[list->count++] = item;
  return HARK_OK;
}

/* ---- problems ---- */

static hark_status add_problem(hark_context *context, hark_options *options, const hark_text *text) {
  HARK_TRY(text->status);
  const char *kept = "";
  if (options->problems.count < PROBLEM_LIMIT) {
    HARK_TRY(hark_options_own_text(context, options, hark_text_get(text), text->length, &kept));
    hark_line_clean((char *)kept); /* file names may contain anything */
  }
  if (options->problems.count <= PROBLEM_LIMIT) {
    if (options->problems.count == PROBLEM_LIMIT) kept = "more problems of this kind are not shown";
    HARK_TRY(append_item(context, options, &options->problems, kept));
  }
  return HARK_OK;
}

hark_status hark_options_problem_add(hark_context *context, hark_options *options, const char *format, ...) {
  char line[1024];
  va_list arguments;
  va_start(arguments, format);
  (void)vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  hark_text text = hark_text_empty(context);
  hark_text_append(&text, "%s", line);
  const hark_status status = add_problem(context, options, &text);
  hark_text_free(&text);
  return status;
}

int hark_options_problem_count(const hark_options *options) { return (int)options->problems.count; }
const char *hark_options_problem(const hark_options *options, int index) { return options->problems.items[index]; }

hark_status hark_options_finish(hark_context *context, const hark_options *options) {
  if (options->problems.count == 0) return HARK_OK;
  const int others = (int)options->problems.count - 1;
  if (others == 0) return hark_fail(context, HARK_BAD_CONFIGURATION, "%s", options->problems.items[0]);
  return hark_fail(context, HARK_BAD_CONFIGURATION, "%s (and %d more problem%s)", options->problems.items[0], others,
                   others > 1 ? "s" : "");
}

hark_status hark_options_complain(hark_context *context, hark_options *options, const char *names, const char *format, ...) {
  char line[512];
  const hark_option_entry *first = NULL;
  const char *where = NULL;
  size_t length;
  for (const char *at = names, *word; (word = hark_next_word(&at, ' ', &length)) != NULL;) {
    for (int i = 0; i < options->count; i++) {
      const hark_option_entry *const entry = &options->entries[i];
      if (strlen(entry->option->name) != length || memcmp(entry->option->name, word, length) != 0) continue;
      if (entry->bad) return HARK_OK;
      if (first == NULL) first = entry;
      if (where == NULL && entry->where != NULL) {
        where = entry->where;
        first = entry;
      }
    }
  }
  va_list arguments;
  va_start(arguments, format);
  (void)vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  char flag[HARK_OPTION_WORD_BYTES];
  const bool only_flag =
      first != NULL && !first->table->configuration && hark_option_flag(first->option, 0, flag); /* not an option of files */
  const char *const name = only_flag ? flag : first != NULL ? first->option->name : names;
  const size_t named = strlen(name);
  if (strncmp(line, name, named) == 0 && line[named] == ' ') /* "run.yaml:3: model.width 30 is not ..." */
    return hark_options_problem_add(context, options, "%s%s%s", where != NULL ? where : "", where != NULL ? ": " : "", line);
  if (where != NULL && where[0] != '-') return hark_options_problem_add(context, options, "%s: %s: %s", where, name, line);
  return hark_options_problem_add(context, options, "%s: %s", where != NULL ? where : name, line);
}

/* ---- values ---- */

hark_status hark_options_refuse_value(hark_context *context, hark_options *options, hark_option_entry *entry, const char *value,
                                      const char *where) {
  char word[HARK_SHOWN_BYTES], first[HARK_OPTION_WORD_BYTES] = ""; /* the first incorrect word of several */
  hark_layer_choice layers;
  if (entry->option->type == HARK_OPTION_LAYERS && !hark_option_read_layers(entry->option->range, value, &layers, first) &&
      first[0] != '\0')
    value = first;
  hark_text_shown(value, word);
  entry->bad = true;
  hark_text text = hark_text_empty(context);
  hark_text_append(&text, "%s: ", where);
  if (where[0] != '-') hark_text_append(&text, "%s: ", entry->option->name);
  hark_text_append(&text, "\"%s\" given, expected ", word);
  hark_option_expected(entry->option, &text);
  hark_option_append_limit(entry->option, value, &text);
  char near[HARK_OPTION_WORD_BYTES];
  if (hark_option_has_choices(entry->option) && hark_option_near_choice(entry->option->range, value, near)) {
    hark_text_append(&text, "; did you mean %s?", near);
  }
  const hark_status status = add_problem(context, options, &text);
  hark_text_free(&text);
  return status;
}

static bool same_layers(const hark_option *option, const char *value, const char *other) {
  hark_layer_choice a, b;
  char bad[HARK_OPTION_WORD_BYTES];
  return hark_option_read_layers(option->range, value, &a, bad) && hark_option_read_layers(option->range, other, &b, bad) &&
         hark_layer_choice_same(&a, &b);
}

/* True if two texts mean the same value of the option. */
static bool is_same(const hark_option *option, const char *value, const char *other) {
  double a = 0, b = 1;
  bool yes = false, too = true;
  switch (option->type) {
    case HARK_OPTION_BOOL: return hark_option_read_bool(value, &yes) && hark_option_read_bool(other, &too) && yes == too;
    case HARK_OPTION_INT:
    case HARK_OPTION_FLOAT: return hark_number_read(value, strlen(value), &a) && hark_number_read(other, strlen(other), &b) && a == b;
    case HARK_OPTION_DURATION:
      return hark_number_read_duration(value, strlen(value), &a) && hark_number_read_duration(other, strlen(other), &b) && a == b;
    case HARK_OPTION_ENUM: return hark_option_choice(option->range, value) == hark_option_choice(option->range, other);
    case HARK_OPTION_LAYERS: return same_layers(option, value, other);
    case HARK_OPTION_STRING: return strcmp(value, other) == 0;
    case HARK_OPTION_LIST: return false;
  }
  return false;
}

/* True for an option that names something, such as a file, a checkpoint or a metric, by the word for its value. A text, an expression of
 * positional kernels, a list of numbers and a name in brackets may be empty. */
static bool names_something(const hark_option *option) {
  static const char *const of_lists[] = {"FILE", "FOLDER", "PATH", "RUN", "NAME"};
  const char *const word = option->argument;
  if (word == NULL || word[0] == '[') return false;
  if (option->type == HARK_OPTION_STRING) return strstr(word, "TEXT") == NULL && strstr(word, "EXPR") == NULL;
  for (size_t i = 0; i < sizeof of_lists / sizeof *of_lists; i++)
    if (option->type == HARK_OPTION_LIST && strstr(word, of_lists[i]) != NULL) return true;
  return false;
}

/* A variable of the shell that is not set must not choose the usual file or name. */
static hark_status refuse_empty(hark_context *context, hark_options *options, hark_option_entry *entry, const char *where) {
  entry->bad = true;
  return hark_options_problem_add(context, options, "%s: is empty, expected %s; without the option its usual value is used", where,
                                  entry->option->argument);
}

/* Checks a value and stores it unless a higher source has set one. `afresh`: the first value of a list in this place. */
hark_status hark_options_take_value(hark_context *context, hark_options *options, hark_option_entry *entry, const char *value,
                                    const char *where, hark_option_source source, bool afresh) {
  const hark_option *const option = entry->option;
  const bool store = source >= entry->source;
  const size_t length = strlen(value);
  hark_option_value read = {0};
  if (source == HARK_SOURCE_COMMAND && length == 0 && names_something(option)) return refuse_empty(context, options, entry, where);
  if (!hark_option_read_value(option, value, &read)) return hark_options_refuse_value(context, options, entry, value, where);
  if (!store) return HARK_OK;
  hark_option_put_value(option, &read, entry->field);
  switch (option->type) {
    case HARK_OPTION_BOOL:
    case HARK_OPTION_INT:
    case HARK_OPTION_FLOAT:
    case HARK_OPTION_DURATION:
    case HARK_OPTION_ENUM:
    case HARK_OPTION_LAYERS: break;
    case HARK_OPTION_STRING: HARK_TRY(hark_options_own_text(context, options, value, length, (const char **)entry->field)); break;
    case HARK_OPTION_LIST: {
      hark_string_list *const list = entry->field;
      const char *item;
      if (afresh || source > entry->source) *list = (hark_string_list){0};
      HARK_TRY(hark_options_own_text(context, options, value, length, &item));
      HARK_TRY(append_item(context, options, list, item));
      break;
    }
  }
  /* A list's place is that of its first item: a place for each item would need far more text than the items. */
  const bool placed = option->type == HARK_OPTION_LIST && !afresh && source == entry->source && entry->where != NULL;
  if (source > HARK_SOURCE_DEFAULT && !placed) HARK_TRY(hark_options_own_text(context, options, where, strlen(where), &entry->where));
  entry->source = source;
  entry->usual = is_same(option, value, option->initial != NULL ? option->initial : "");
  return HARK_OK;
}

/* ---- finding options ---- */

/* The part of the word after its last dot. */
static const char *last_part(const char *name) {
  const char *const dot = strrchr(name, '.');
  return dot != NULL ? dot + 1 : name;
}

static bool same_flag(const hark_option *option, const char *word) {
  char name[HARK_OPTION_WORD_BYTES];
  if (option->name[0] == word[0] && strcmp(option->name, word) == 0) return true; /* fast: most differ in the first letter */
  size_t length;
  if (option->flags == NULL) return false;
  const size_t word_length = strlen(word); /* spelling does not change the length */
  for (const char *at = option->flags, *first; (first = hark_next_word(&at, ' ', &length)) != NULL;) {
    if (length == word_length && hark_option_spelling(first, length, true, name) && strcmp(name, word) == 0) return true;
  }
  return false;
}

/* The option of a flag; an option that the subcommand accepts has priority over options of others. */
static hark_option_entry *find_flag(hark_options *options, const char *word) {
  hark_option_entry *of_others = NULL;
  for (int i = 0; i < options->count; i++) {
    hark_option_entry *const entry = &options->entries[i];
    if (!same_flag(entry->option, word)) continue;
    if (hark_option_applies(entry->option, options->command)) return entry;
    if (of_others == NULL) of_others = entry;
  }
  return of_others;
}

hark_option_entry *hark_options_find_key(hark_options *options, const char *key) {
  char word[HARK_OPTION_WORD_BYTES];
  if (!hark_option_spelling(key, strlen(key), false, word)) return NULL;
  for (int i = 0; i < options->count; i++) {
    hark_option_entry *const entry = &options->entries[i];
    if (entry->table->configuration && strcmp(entry->option->name, word) == 0) return entry;
  }
  return NULL;
}

const hark_option_entry *hark_options_entry(const hark_options *options, const char *name) {
  for (int i = 0; i < options->count; i++) {
    if (strcmp(options->entries[i].option->name, name) == 0) return &options->entries[i];
  }
  return NULL;
}

/* True if `key` is a section: the part before a dot of some key. */
bool hark_options_is_section(const hark_options *options, const char *key) {
  char word[HARK_OPTION_WORD_BYTES];
  if (!hark_option_spelling(key, strlen(key), false, word)) return false;
  const size_t length = strlen(word);
  for (int i = 0; i < options->count; i++) {
    const char *const name = options->entries[i].option->name;
    if (options->entries[i].table->configuration && strncmp(name, word, length) == 0 && name[length] == '.') return true;
  }
  return false;
}

/* Distance of a flag or key from an option: from its whole name, its last part, or a short form. */
static int steps_to(const hark_option *option, const char *word, bool flag) {
  int steps = (int)hark_min(hark_word_distance(word, option->name),
                            hark_word_distance(last_part(word), last_part(option->name)) + (strchr(word, '.') != NULL));
  size_t length;
  char form[HARK_OPTION_WORD_BYTES];
  if (!flag || option->flags == NULL) return steps;
  for (const char *at = option->flags, *first; (first = hark_next_word(&at, ' ', &length)) != NULL;) {
    if (hark_option_spelling(first, length, true, form)) steps = (int)hark_min(steps, hark_word_distance(word, form));
  }
  return steps;
}

/* As a user writes an option: "--count", "-o", the key "model.count". */
static void write_name(const hark_option *option, bool flag, char out[HARK_OPTION_WORD_BYTES]) {
  const char *at = flag && option->flags != NULL ? option->flags : option->name;
  size_t length;
  const char *const first = hark_next_word(&at, ' ', &length);
  snprintf(out, HARK_OPTION_WORD_BYTES, "%s%.*s", !flag ? "" : length == 1 ? "-" : "--", (int)length, first);
}

/* The option that another program calls by this name. Keys of other programs have no sections, or others. */
static bool find_peer(const hark_options *options, const char *word, bool flag, char near[HARK_OPTION_WORD_BYTES]) {
  const char *peer, *name;
  for (int i = 0; hark_peer_word(i, &peer, &name); i++) {
    if (strcmp(peer, flag ? word : last_part(word)) != 0) continue;
    const hark_option_entry *const entry = hark_options_entry(options, name);
    if (entry == NULL || (flag ? !hark_option_applies(entry->option, options->command) : !entry->table->configuration)) continue;
    write_name(entry->option, flag, near);
    return true;
  }
  return false;
}

/* Finds what the user may have meant, as a user writes it: "--count", "model.count", a section "model". False if nothing is near. */
static bool find_near(const hark_options *options, const char *word, bool flag, char near[HARK_OPTION_WORD_BYTES]) {
  int best = hark_word_near(word) + 1;
  near[0] = 0;
  for (int i = 0; i < options->count; i++) {
    const hark_option *const option = options->entries[i].option;
    if (flag ? !hark_option_applies(option, options->command) : !options->entries[i].table->configuration) continue;
    int steps = steps_to(option, word, flag);
    if (steps < best) {
      write_name(option, flag, near);
      best = steps;
    }
    for (const char *dot = strchr(option->name, '.'); dot != NULL && !flag; dot = strchr(dot + 1, '.')) {
      char section[HARK_OPTION_WORD_BYTES];
      snprintf(section, sizeof section, "%.*s", (int)(dot - option->name), option->name);
      steps = hark_word_distance(word, section);
      if (steps >= best) continue;
      memcpy(near, section, sizeof section);
      best = steps;
    }
  }
  return near[0] != 0;
}

hark_status hark_options_unknown_word(hark_context *context, hark_options *options, const char *where, const char *word, bool flag) {
  char plain[HARK_OPTION_WORD_BYTES], text[HARK_SHOWN_BYTES];
  const size_t used = flag ? strcspn(word, "=") : strlen(word);
  snprintf(plain, sizeof plain, "%.*s", (int)used, word);
  hark_text_shown(plain, text);
  if (!flag && hark_options_is_section(options, word))
    return hark_options_problem_add(context, options, "%s: %s: a value given, expected a section", where, word);
  const char *const what = flag ? "unknown flag" : "unknown key";
  const char *const stem = flag ? word + strspn(word, "-") : word;
  char near[HARK_OPTION_WORD_BYTES];
  const bool found = hark_option_spelling(stem, strcspn(stem, "="), flag, plain) &&
                     (find_peer(options, plain, flag, near) || find_near(options, plain, flag, near));
  const char *const before = flag ? "" : where, *const colon = flag ? "" : ": ";
  if (!found) return hark_options_problem_add(context, options, "%s%s%s: %s", before, colon, text, what);
  return hark_options_problem_add(context, options, "%s%s%s: %s; did you mean %s?", before, colon, text, what, near);
}

/* ---- command line ---- */

/* Refuses a flag that was given before with another value: the intended value is unknown. The same value again is accepted. */
static hark_status refuse_another(hark_context *context, hark_options *options, hark_option_entry *entry, const char *value,
                                  const char *flag) {
  char before[HARK_SHOWN_BYTES], now[HARK_SHOWN_BYTES];
  hark_text text = hark_text_empty(context);
  hark_options_print_value(options, entry->option->name, &text);
  hark_status status = text.status;
  if (status == HARK_OK && !entry->bad && !is_same(entry->option, value, hark_text_get(&text))) {
    entry->bad = true;
    hark_text_shown_both(hark_text_get(&text), value, before, now);
    status = strcmp(entry->where, flag) == 0
                 ? hark_options_problem_add(context, options, "%s: given twice, as \"%s\" and \"%s\", expected once", flag, before, now)
                 : hark_options_problem_add(context, options, "%s: given twice, \"%s\" and with %s \"%s\", expected once", flag, now,
                                            entry->where, before);
  }
  hark_text_free(&text);
  return status;
}

/* Reads one flag. *used is set to 2 if the next word was its value. */
static hark_status read_flag(hark_context *context, hark_options *options, const char *word, const char *next, int *used) {
  char name[HARK_OPTION_WORD_BYTES], flag[HARK_OPTION_WORD_BYTES];
  const char *const stem = word + (word[1] == '-' ? 2 : 1);
  const size_t length = strcspn(stem, "=");
  const char *value = stem[length] == '=' ? stem + length + 1 : NULL;
  *used = 1;
  if (!hark_option_spelling(stem, length, true, name)) return hark_options_unknown_word(context, options, "", word, true);
  hark_option_entry *entry = find_flag(options, name);
  const bool one_letter = length == 1;
  if (entry != NULL && one_letter != (word[1] != '-')) entry = NULL; /* -o and --out; not --o, not -out */
  snprintf(flag, sizeof flag, "%.*s", (int)(length + (size_t)(stem - word)), word);
  if (entry == NULL && strncmp(name, "no_", 3) == 0) {
    entry = find_flag(options, name + 3);
    if (entry != NULL && entry->option->type == HARK_OPTION_BOOL) {
      if (value != NULL) return hark_options_problem_add(context, options, "%s: takes no value", flag);
      value = "false";
    } else {
      entry = NULL;
    }
  }
  if (entry == NULL) return hark_options_unknown_word(context, options, "", word, true);
  if (value == NULL && entry->option->type == HARK_OPTION_BOOL) value = "true";
  if (value == NULL) {
    double number;
    const bool negative = next != NULL && next[0] == '-' && hark_number_read(next, strlen(next), &number);
    if (next == NULL || (next[0] == '-' && next[1] != 0 && !negative)) {
      entry->bad = true;
      return hark_options_problem_add(context, options, "%s: needs a value (or %s=VALUE)", flag, flag);
    }
    value = next;
    *used = 2;
  }
  if (!hark_option_applies(entry->option, options->command)) {
    return hark_options_problem_add(context, options, "%s: does not apply to %s (it applies to: %s)", flag, options->command,
                                    entry->option->commands);
  }
  if (entry->reading == options->readings && entry->source == HARK_SOURCE_COMMAND && entry->option->type != HARK_OPTION_LIST)
    return refuse_another(context, options, entry, value, flag);
  entry->reading = options->readings;
  return hark_options_take_value(context, options, entry, value, flag, HARK_SOURCE_COMMAND, false);
}

hark_status hark_options_read_arguments(hark_context *context, hark_options *options, int count, const char *const *words) {
  bool plain = false;
  options->readings++;
  for (int i = 0; i < count;) {
    const char *const word = words[i];
    int used = 1;
    if (!plain && strcmp(word, "--") == 0) {
      plain = true;
    } else if (plain || word[0] != '-' || word[1] == 0) {
      const char *copy;
      HARK_TRY(hark_options_own_text(context, options, word, strlen(word), &copy));
      HARK_TRY(append_item(context, options, &options->arguments, copy));
    } else {
      HARK_TRY(read_flag(context, options, word, i + 1 < count ? words[i + 1] : NULL, &used));
    }
    i += used;
  }
  return HARK_OK;
}

int hark_options_argument_count(const hark_options *options) { return (int)options->arguments.count; }
const char *hark_options_argument(const hark_options *options, int index) { return options->arguments.items[index]; }

void hark_options_keep_argument(hark_options *options, int index) {
  const char **const items = (const char **)options->arguments.items;
  items[0] = items[index];
  options->arguments.count = 1;
}

/* ---- by name ---- */

hark_status hark_options_set(hark_context *context, hark_options *options, const char *name, const char *value, const char *where,
                             hark_option_source source) {
  hark_option_entry *const entry = (hark_option_entry *)hark_options_entry(options, name);
  if (entry == NULL) return hark_options_unknown_word(context, options, where, name, false);
  return hark_options_take_value(context, options, entry, value, where, source, false);
}

hark_status hark_options_set_item(hark_context *context, hark_options *options, const char *name, int64_t index, const char *value,
                                  const char *where, hark_option_source source) {
  hark_option_entry *const entry = (hark_option_entry *)hark_options_entry(options, name);
  if (entry == NULL || entry->option->type != HARK_OPTION_LIST) return hark_options_unknown_word(context, options, where, name, false);
  return hark_options_take_value(context, options, entry, value, where, source, index == 0);
}

/* The bytes before the first one that is not UTF-8; the length of the text if all are. */
static size_t utf8_bytes(const char *text) {
  const unsigned char *const begin = (const unsigned char *)text, *const end = begin + strlen(text), *at = begin;
  for (size_t length; at < end; at += length) {
    length = hark_json_sequence_length(at, (size_t)(end - at));
    if (length == 0) break;
  }
  return (size_t)(at - begin);
}

/* Appends the text, with bytes that are not UTF-8 escaped, such as \xe9. */
static void append_escaped(const char *text, hark_text *out) {
  const unsigned char *at = (const unsigned char *)text, *const end = at + strlen(text);
  while (at < end) {
    const size_t length = hark_json_sequence_length(at, (size_t)(end - at));
    if (length == 0)
      hark_text_append(out, "\\x%02x", *at++);
    else
      hark_text_append_bytes(out, (const char *)at, length);
    at += length;
  }
}

static hark_status require_utf8(hark_context *context, hark_options *options, hark_option_entry *entry, const char *value) {
  char shown[HARK_SHOWN_BYTES];
  hark_text text = hark_text_empty(context);
  const size_t good = utf8_bytes(value);
  if (entry->bad || value[good] == '\0') return HARK_OK;
  append_escaped(value, &text);
  entry->bad = true;
  hark_status status = text.status;
  const bool path = hark_option_words_are_paths(entry->option->argument);
  if (status == HARK_OK)
    status = hark_options_problem_add(
        context, options, "%s: \"%s\" given, expected UTF-8 (byte offset %zu): other %s cannot be written into the run%s",
        entry->where != NULL ? entry->where : entry->option->name, hark_text_shown(hark_text_get(&text), shown), good,
        path ? "names" : "texts", path ? " (use a link with a name in UTF-8)" : "");
  hark_text_free(&text);
  return status;
}

hark_status hark_options_require_utf8(hark_context *context, hark_options *options) {
  for (int i = 0; i < options->count; i++) {
    hark_option_entry *const entry = &options->entries[i];
    if (!entry->table->configuration) continue;
    if (entry->option->type == HARK_OPTION_STRING) HARK_TRY(require_utf8(context, options, entry, *(const char *const *)entry->field));
    if (entry->option->type != HARK_OPTION_LIST) continue;
    const hark_string_list *const list = entry->field;
    for (int64_t item = 0; item < list->count; item++) HARK_TRY(require_utf8(context, options, entry, list->items[item]));
  }
  return HARK_OK;
}

hark_status hark_options_copy(hark_context *context, hark_options *options, const hark_options *from, const char *name, const char *where,
                              hark_option_source source) {
  const hark_option_entry *const there = hark_options_entry(from, name);
  hark_option_entry *const here = (hark_option_entry *)hark_options_entry(options, name);
  if (there == NULL || here == NULL) return hark_options_unknown_word(context, options, where, name, false);
  if (there->option->type == HARK_OPTION_LIST) {
    const hark_string_list *const list = there->field;
    if (list->count == 0 && source >= here->source) *(hark_string_list *)here->field = (hark_string_list){0};
    for (int64_t i = 0; i < list->count; i++)
      HARK_TRY(hark_options_take_value(context, options, here, list->items[i], where, source, i == 0));
    return HARK_OK;
  }
  hark_text value = hark_text_empty(context);
  hark_options_print_value(from, name, &value);
  hark_status status = value.status;
  if (status == HARK_OK) status = hark_options_take_value(context, options, here, hark_text_get(&value), where, source, true);
  hark_text_free(&value);
  return status;
}

void hark_options_note_usual(hark_options *options, const char *name) {
  hark_option_entry *const entry = (hark_option_entry *)hark_options_entry(options, name);
  if (entry != NULL) entry->usual = true;
}

void hark_options_note_bad(hark_options *options, const char *name) {
  hark_option_entry *const entry = (hark_option_entry *)hark_options_entry(options, name);
  if (entry != NULL) entry->bad = true;
}

hark_status hark_options_reset(hark_context *context, hark_options *options, const char *name) {
  hark_option_entry *const entry = (hark_option_entry *)hark_options_entry(options, name);
  if (entry == NULL) return hark_fail(context, HARK_INTERNAL_ERROR, "%s is not an option", name);
  const char *const initial = entry->option->initial != NULL ? entry->option->initial : "";
  entry->source = HARK_SOURCE_DEFAULT;
  entry->where = NULL;
  if (entry->option->type != HARK_OPTION_LIST)
    return hark_options_take_value(context, options, entry, initial, "default", HARK_SOURCE_DEFAULT, true);
  *(hark_string_list *)entry->field = (hark_string_list){0};
  return initial[0] == '\0' ? HARK_OK : hark_options_take_value(context, options, entry, initial, "default", HARK_SOURCE_DEFAULT, true);
}

/* ---- the set ---- */

/* Checks that no previous option has this name or flag. */
static hark_status check_flag(hark_context *context, const hark_options *options, int index, const char *word) {
  for (int i = 0; i < index; i++) {
    const hark_option *const other = options->entries[i].option;
    if (same_flag(other, word) && hark_option_applies(other, options->command))
      return hark_fail(context, HARK_INTERNAL_ERROR, "options %s and %s share a flag", other->name, options->entries[index].option->name);
  }
  return HARK_OK;
}

/* Refuses a table that contradicts itself: a programming error that the first use shows. */
static hark_status check_entry(hark_context *context, const hark_options *options, int index) {
  const hark_option *const option = options->entries[index].option;
  const bool number = option->type == HARK_OPTION_INT || option->type == HARK_OPTION_FLOAT || option->type == HARK_OPTION_DURATION ||
                      option->type == HARK_OPTION_LIST;
  if ((number && option->range != NULL && !hark_option_range_is_sound(option->range)) ||
      (hark_option_has_choices(option) && option->range == NULL)) {
    return hark_fail(context, HARK_INTERNAL_ERROR, "option %s: range \"%s\"", option->name, option->range != NULL ? option->range : "");
  }
  if (!hark_option_applies(option, options->command)) return HARK_OK;
  const char *at = option->flags != NULL ? option->flags : "", *first;
  char form[HARK_OPTION_WORD_BYTES];
  size_t length = 0;
  HARK_TRY(check_flag(context, options, index, option->name));
  while ((first = hark_next_word(&at, ' ', &length)) != NULL)
    if (hark_option_spelling(first, length, true, form)) HARK_TRY(check_flag(context, options, index, form));
  return HARK_OK;
}

static hark_status fill_set(hark_context *context, hark_options *options, const hark_option_group *groups, int count) {
  void *entries;
  int total = 0;
  for (int g = 0; g < count; g++) total += groups[g].table->count;
  HARK_TRY(own_bytes(context, options, (size_t)total * sizeof(hark_option_entry), &entries));
  options->entries = entries;
  for (int g = 0; g < count; g++) {
    const hark_option_table *const table = groups[g].table;
    memset(groups[g].values, 0, table->values_size);
    for (int i = 0; i < table->count; i++) {
      hark_option_entry *const entry = &options->entries[options->count++];
      *entry = (hark_option_entry){.option = &table->options[i], .table = table};
      entry->field = (char *)groups[g].values + table->options[i].offset;
      HARK_TRY(check_entry(context, options, options->count - 1));
      const char *const initial = entry->option->initial != NULL ? entry->option->initial : "";
      if (entry->option->type == HARK_OPTION_LIST && initial[0] == 0) continue;
      HARK_TRY(hark_options_take_value(context, options, entry, initial, "default", HARK_SOURCE_DEFAULT, true));
    }
  }
  if (options->problems.count > 0) return hark_fail(context, HARK_INTERNAL_ERROR, "option table: %s", options->problems.items[0]);
  for (int i = 0; i < options->count; i++) {
    const hark_option *const option = options->entries[i].option;
    if (!hark_option_needs_are_sound(options, option))
      return hark_fail(context, HARK_INTERNAL_ERROR, "option %s: needs \"%s\"", option->name, option->needs);
  }
  return HARK_OK;
}

hark_status hark_options_create(hark_context *context, const char *command, const hark_option_group *groups, int count,
                                hark_options **out) {
  void *memory;
  *out = NULL;
  HARK_TRY(hark_allocate_zero(context, sizeof(hark_options), &memory));
  hark_options *options = memory;
  options->command = command;
  const hark_status status = fill_set(context, options, groups, count);
  if (status != HARK_OK) {
    hark_options_destroy(context, &options);
    return status;
  }
  *out = options;
  return HARK_OK;
}

void hark_options_destroy(hark_context *context, hark_options **options) {
  if (*options == NULL) return;
  for (hark_option_piece *piece = (*options)->pieces; piece != NULL;) {
    hark_option_piece *const next = piece->next;
    hark_release(context, piece, piece->bytes);
    piece = next;
  }
  hark_release(context, *options, sizeof(hark_options));
  *options = NULL;
}

hark_option_source hark_options_source(const hark_options *options, const char *name) {
  const hark_option_entry *const entry = hark_options_entry(options, name);
  return entry != NULL ? entry->source : HARK_SOURCE_DEFAULT;
}

void hark_options_follow(hark_options *options, const char *name, const char *other) {
  hark_option_entry *const entry = (hark_option_entry *)hark_options_entry(options, name);
  const hark_option_entry *const from = hark_options_entry(options, other);
  if (entry != NULL && from != NULL && from->where != NULL) entry->where = from->where;
}

const char *hark_options_where(const hark_options *options, const char *name) {
  const hark_option_entry *const entry = hark_options_entry(options, name);
  return entry != NULL && entry->where != NULL ? entry->where : "default";
}
