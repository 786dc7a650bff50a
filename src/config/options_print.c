/* options_print.c - the texts of a set of options: --help, config.yaml, JSON and the reference. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "config/options_set.h"
#include "io/number.h"
#include "io/words.h"
#include "json/json.h"

#define HELP_COLUMN 34 /* column of an option's help */
#define HELP_WIDTH 110 /* end of its lines */
#define INDENT 2       /* of YAML sections */

typedef enum value_style { STYLE_PLAIN, STYLE_YAML, STYLE_JSON } value_style;

/* ---- values ---- */

/* True for a text that YAML reads back as the same text without quotes. */
static bool is_plain_text(const char *text) {
  double number;
  if (text[0] == 0 || hark_number_read(text, strlen(text), &number)) return false;
  if (hark_option_choice("null|true|yes|on|false|no|off", text) >= 0) return false; /* words that other readers do not read as text */
  for (const char *at = text; *at != 0; at++) {
    const bool letter = (*at >= 'a' && *at <= 'z') || (*at >= 'A' && *at <= 'Z') || *at == '_' || *at == '/';
    const bool other = (*at >= '0' && *at <= '9') || *at == '.' || *at == '-';
    if (!letter && !(other && at > text)) return false;
  }
  return true;
}

static void print_text(const char *value, value_style style, hark_text *text) {
  if (style == STYLE_PLAIN || (style == STYLE_YAML && is_plain_text(value))) {
    hark_text_append(text, "%s", value);
  } else {
    hark_json_append_string(text, value); /* a JSON string is a YAML string in double quotes */
  }
}

static void print_value(const hark_option_entry *entry, value_style style, hark_text *text) {
  char number[HARK_NUMBER_BYTES];
  switch (entry->option->type) {
    case HARK_OPTION_BOOL: hark_text_append(text, "%s", *(const bool *)entry->field ? "true" : "false"); break;
    case HARK_OPTION_INT: hark_text_append(text, "%" PRId64, *(const int64_t *)entry->field); break;
    case HARK_OPTION_FLOAT:
    case HARK_OPTION_DURATION:
      hark_text_append(text, "%s", hark_number_print(*(const double *)entry->field, number));
      if (entry->option->type == HARK_OPTION_DURATION && style != STYLE_JSON) hark_text_append(text, "s");
      break;
    case HARK_OPTION_ENUM: {
      char word[HARK_OPTION_WORD_BYTES] = "";
      (void)hark_option_choice_at(entry->option->range, *(const int *)entry->field, word);
      hark_text_append(text, style == STYLE_JSON ? "\"%s\"" : "%s", word);
      break;
    }
    case HARK_OPTION_LAYERS: {
      const hark_layer_choice *const layers = entry->field;
      if (style == STYLE_JSON) hark_text_append(text, "\"");
      for (int64_t i = 0; i < hark_max(1, layers->count); i++) {
        char word[HARK_OPTION_WORD_BYTES] = "";
        (void)hark_option_choice_at(entry->option->range, hark_layer_choice_of(layers, i), word);
        hark_text_append(text, "%s%s", i > 0 ? "," : "", word);
      }
      if (style == STYLE_JSON) hark_text_append(text, "\"");
      break;
    }
    case HARK_OPTION_STRING: print_text(*(const char *const *)entry->field, style, text); break;
    case HARK_OPTION_LIST: {
      const hark_string_list *const list = entry->field;
      if (style != STYLE_PLAIN) hark_text_append(text, "[");
      for (int64_t i = 0; i < list->count; i++) {
        if (i > 0) hark_text_append(text, style == STYLE_PLAIN ? " " : ", ");
        print_text(list->items[i], style, text);
      }
      if (style != STYLE_PLAIN) hark_text_append(text, "]");
      break;
    }
  }
}

void hark_options_print_value(const hark_options *options, const char *name, hark_text *text) {
  const hark_option_entry *const entry = hark_options_entry(options, name);
  if (entry != NULL) print_value(entry, STYLE_PLAIN, text);
}

/* ---- sections ---- */

/* Length of the section before the last dot of a name; 0: none. */
static size_t section_length(const char *name) {
  const char *const dot = strrchr(name, '.');
  return dot != NULL ? (size_t)(dot - name) : 0;
}

static bool same_section(const char *a, const char *b) {
  const size_t length = section_length(a);
  return length == section_length(b) && memcmp(a, b, length) == 0;
}

/* Bytes of the common sections at the beginning of both names, each with its dot. */
static size_t common_sections(const char *a, const char *b) {
  size_t common = 0;
  for (size_t i = 0; a[i] != 0 && a[i] == b[i]; i++) {
    if (a[i] == '.') common = i + 1;
  }
  return common;
}

static int dots(const char *name, size_t length) {
  int count = 0;
  for (size_t i = 0; i < length; i++) count += name[i] == '.';
  return count;
}

static const char *section_title(const hark_option_entry *entry) {
  const size_t length = section_length(entry->option->name);
  for (const hark_option_section *at = entry->table->sections; at != NULL && at->name != NULL; at++) {
    if (strlen(at->name) == length && memcmp(at->name, entry->option->name, length) == 0) return at->title;
  }
  return "Options";
}

/* ---- help ---- */

const char *hark_option_argument(const hark_option *option) {
  static const char *const words[] = {
      [HARK_OPTION_BOOL] = "",     [HARK_OPTION_INT] = "N",     [HARK_OPTION_FLOAT] = "X",       [HARK_OPTION_STRING] = "TEXT",
      [HARK_OPTION_ENUM] = "WORD", [HARK_OPTION_LIST] = "TEXT", [HARK_OPTION_DURATION] = "TIME", [HARK_OPTION_LAYERS] = "WORD,..."};
  return option->argument != NULL ? option->argument : words[option->type];
}

/* Is what the flag says the opposite of the option? Its flag is then printed with "no-". */
static bool negated(const hark_option *option) {
  return option->type == HARK_OPTION_BOOL && option->initial != NULL && strcmp(option->initial, "true") == 0;
}

bool hark_option_flag(const hark_option *option, int index, char out[HARK_OPTION_WORD_BYTES]) {
  size_t length;
  for (const char *at = option->flags != NULL ? option->flags : option->name, *word; (word = hark_next_word(&at, ' ', &length)) != NULL;
       index--) {
    if (index > 0) continue;
    snprintf(out, HARK_OPTION_WORD_BYTES, "%s%s%.*s", length == 1 ? "-" : "--", negated(option) ? "no-" : "", (int)length, word);
    for (char *c = out; *c != 0; c++) {
      if (*c == '_') *c = '-';
    }
    return true;
  }
  return false;
}

static void print_purpose(const hark_option *option, hark_text *text) {
  char word[HARK_OPTION_WORD_BYTES];
  hark_text_append(text, "%s%s", negated(option) ? "do not " : "", option->help);
  for (int i = 0; hark_option_has_choices(option) && hark_option_choice_at(option->range, i, word); i++) {
    hark_text_append(text, "%s %s", i == 0 ? "; one of" : ",", word);
  }
}

static void print_default(const hark_option *option, hark_text *text) {
  if (option->type != HARK_OPTION_BOOL && option->initial != NULL && option->initial[0] != 0)
    hark_text_append(text, " (%s)", option->initial);
}

void hark_option_print_meaning(const hark_option_view *view, hark_text *text) {
  const hark_option *const option = view->option;
  print_purpose(option, text);
  for (int exclusions = 0; exclusions < 2; exclusions++) {
    hark_text others = hark_text_empty(text->context);
    if (exclusions)
      hark_option_print_exclusions(view->options, option, &others);
    else
      hark_option_print_needs(view->options, option, false, &others);
    if (others.length > 0) hark_text_append(text, "; %s %s", exclusions ? "cannot be used together with" : "needs", hark_text_get(&others));
    if (others.status != HARK_OK && text->status == HARK_OK) text->status = others.status;
    hark_text_free(&others);
  }
  print_default(option, text);
  if (option->flags != NULL && view->configuration) hark_text_append(text, " [%s]", option->name);
}

int hark_options_count(const hark_options *options) { return options->count; }

bool hark_options_view(const hark_options *options, int index, hark_option_view *out) {
  const hark_option_entry *const entry = &options->entries[index];
  *out = (hark_option_view){entry->option, section_title(entry), entry->table->configuration, options};
  return hark_option_applies(entry->option, options->command);
}

/* The flags of an option as a user writes them: "-o, --out FOLDER". */
static void print_flags(const hark_option *option, hark_text *text) {
  char flag[HARK_OPTION_WORD_BYTES];
  for (int i = 0; hark_option_flag(option, i, flag); i++) hark_text_append(text, "%s%s", i == 0 ? "" : ", ", flag);
  const char *const argument = hark_option_argument(option);
  if (argument[0] != 0) hark_text_append(text, " %s", argument);
}

/* Appends words from `from` on, broken at HELP_WIDTH and indented to HELP_COLUMN. `column`: the current column. */
static void print_wrapped(const char *from, size_t column, hark_text *text) {
  bool first = true;
  size_t length;
  for (const char *at = from, *word; (word = hark_next_word(&at, ' ', &length)) != NULL; first = false) {
    if (!first && column + 1 + length > HELP_WIDTH) {
      hark_text_append(text, "\n%*s", HELP_COLUMN, "");
      column = HELP_COLUMN;
    } else if (!first) {
      hark_text_append(text, " ");
      column++;
    }
    hark_text_append(text, "%.*s", (int)length, word);
    column += length;
  }
}

/* `whole`: with the conditions of the option, and its key. */
static void print_help_line(const hark_option_view *view, bool whole, hark_text *text) {
  const size_t begin = text->length;
  hark_text_append(text, "  ");
  print_flags(view->option, text);
  const size_t used = text->length - begin;
  if (used + 2 > HELP_COLUMN) {
    hark_text_append(text, "\n%*s", HELP_COLUMN, "");
  } else {
    hark_text_append(text, "%*s", (int)(HELP_COLUMN - used), "");
  }
  hark_text help = hark_text_empty(text->context);
  if (whole) {
    hark_option_print_meaning(view, &help);
  } else {
    print_purpose(view->option, &help);
    print_default(view->option, &help);
  }
  if (help.status != HARK_OK && text->status == HARK_OK) text->status = help.status;
  print_wrapped(hark_text_get(&help), HELP_COLUMN, text);
  hark_text_append(text, "\n");
  hark_text_free(&help);
}

static bool is_among(const char *names, const char *name) {
  const size_t length = strlen(name);
  size_t word_length;
  for (const char *at = names, *word; (word = hark_next_word(&at, ' ', &word_length)) != NULL;)
    if (word_length == length && memcmp(word, name, length) == 0) return true;
  return false;
}

void hark_options_print_help(const hark_options *options, const char *only, hark_text *text) {
  const char *section = NULL;
  hark_option_view view;
  for (int i = 0; i < options->count; i++) {
    if (!hark_options_view(options, i, &view)) continue;
    if (only != NULL && !is_among(only, view.option->name)) continue;
    if (section == NULL || strcmp(section, view.section) != 0) {
      hark_text_append(text, "%s%s:\n", section == NULL ? "" : "\n", view.section);
    }
    print_help_line(&view, only == NULL, text);
    section = view.section;
  }
}

/* ---- YAML and JSON ---- */

void hark_options_print_yaml(const hark_options *options, bool comments, hark_text *text) {
  const char *previous = "";
  for (int i = 0; i < options->count; i++) {
    const hark_option_entry *const entry = &options->entries[i];
    const char *const name = entry->option->name;
    if (!entry->table->configuration) continue;
    size_t at = common_sections(previous, name);
    for (const char *dot; (dot = strchr(name + at, '.')) != NULL; at = (size_t)(dot - name) + 1) { /* sections that begin here */
      hark_text_append(text, "%*s%.*s:\n", INDENT * dots(name, at), "", (int)(dot - (name + at)), name + at);
    }
    if (comments) hark_text_append(text, "%*s# %s\n", INDENT * dots(name, at), "", entry->option->help);
    hark_text_append(text, "%*s%s: ", INDENT * dots(name, at), "", name + at);
    print_value(entry, STYLE_YAML, text);
    hark_text_append(text, "\n");
    previous = name;
  }
}

void hark_options_print_json(const hark_options *options, hark_text *text) {
  const char *previous = "";
  bool first = true; /* in the open object */
  hark_text_append(text, "{");
  for (int i = 0; i < options->count; i++) {
    const hark_option_entry *const entry = &options->entries[i];
    const char *const name = entry->option->name;
    if (!entry->table->configuration) continue;
    size_t at = common_sections(previous, name);
    for (int close = dots(previous, strlen(previous)) - dots(name, at); close > 0; close--) hark_text_append(text, "}");
    for (const char *dot; (dot = strchr(name + at, '.')) != NULL; at = (size_t)(dot - name) + 1) {
      hark_text_append(text, "%s\"%.*s\": {", first ? "" : ", ", (int)(dot - (name + at)), name + at);
      first = true;
    }
    hark_text_append(text, "%s\"%s\": ", first ? "" : ", ", name + at);
    print_value(entry, STYLE_JSON, text);
    first = false;
    previous = name;
  }
  for (int close = dots(previous, strlen(previous)); close >= 0; close--) hark_text_append(text, "}");
}

/* ---- reference ---- */

/* What Markdown would read as its own: '|' separates the columns of a table, and "[8](decay)" in a sentence is a link. */
#define CELL "|"
#define SENTENCE "|["
static void print_cell(const char *value, const char *marks, hark_text *text) {
  for (const char *at = value; *at != 0; at++) {
    if (strchr(marks, *at) != NULL) hark_text_append_bytes(text, "\\", 1);
    hark_text_append_bytes(text, at, 1);
  }
}

void hark_options_print_markdown(const hark_options *options, hark_text *text) {
  const hark_option_entry *previous = NULL;
  for (int i = 0; i < options->count; i++) {
    const hark_option_entry *const entry = &options->entries[i];
    const hark_option *const option = entry->option;
    if (!entry->table->configuration) continue;
    if (previous == NULL || !same_section(previous->option->name, option->name)) {
      hark_text_append(text, "%s## %s\n\n| key | flag | default | expected | needs | meaning |\n|---|---|---|---|---|---|\n",
                       previous == NULL ? "" : "\n", section_title(entry));
    }
    hark_text cell = hark_text_empty(text->context);
    hark_text_append(text, "| `%s` | `", option->name);
    print_flags(option, &cell);
    print_cell(hark_text_get(&cell), CELL, text);
    hark_text_free(&cell);
    hark_option_expected(option, &cell);
    hark_text_append(text, "` | %s%s%s | ", option->initial[0] != 0 ? "`" : "", option->initial, option->initial[0] != 0 ? "`" : "");
    print_cell(hark_text_get(&cell), CELL, text);
    hark_text_free(&cell);
    hark_option_print_needs(options, option, true, &cell);
    hark_text_append(text, " | ");
    print_cell(hark_text_get(&cell), CELL, text);
    hark_text_append(text, " | ");
    print_cell(option->help, SENTENCE, text);
    hark_text_append(text, " |\n");
    if (cell.status != HARK_OK && text->status == HARK_OK) text->status = cell.status;
    hark_text_free(&cell);
    previous = entry;
  }
}
