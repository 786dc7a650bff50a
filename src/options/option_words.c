/* option_words.c - words of options: spelling, ranges, and choices written as text. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "io/number.h"
#include "io/words.h"
#include "options/option.h"

/* ---- spelling ---- */

/* One spelling for all: '-' as '_' (in flags) and "ization" as "isation". False if the word is too long to be valid. */
bool hark_option_spelling(const char *text, size_t length, bool flag, char out[HARK_OPTION_WORD_BYTES]) {
  if (length >= HARK_OPTION_WORD_BYTES) return false;
  memcpy(out, text, length);
  out[length] = 0;
  for (char *at = out; *at != 0; at++) {
    if (flag && *at == '-') *at = '_';
  }
  for (char *at = strstr(out, "ization"); at != NULL; at = strstr(at, "ization")) at[1] = 's';
  return true;
}

static bool has_word(const char *words, char separator, const char *word) {
  size_t length;
  const size_t word_length = strlen(word);
  for (const char *at = words, *first; (first = hark_next_word(&at, separator, &length)) != NULL;) {
    if (length == word_length && memcmp(first, word, length) == 0) return true;
  }
  return false;
}

bool hark_option_applies(const hark_option *option, const char *command) {
  return option->commands == NULL || command == NULL || has_word(option->commands, ' ', command);
}

/* ---- ranges ---- */

/* An interval "[1, inf)". False if it is malformed. */
typedef struct interval {
  double low, high;
  bool open_low, open_high;
} interval;

static bool read_bound(const char *text, size_t length, double *out) {
  if (length == 3 && memcmp(text, "inf", 3) == 0) {
    *out = HUGE_VAL;
    return true;
  }
  if (length == 4 && memcmp(text, "-inf", 4) == 0) {
    *out = -HUGE_VAL;
    return true;
  }
  return hark_number_read(text, length, out);
}

static bool read_interval(const char *text, interval *out) {
  const size_t length = strlen(text);
  const char *const comma = strchr(text, ',');
  if (comma == NULL || length < 5 || comma[1] != ' ') return false;
  out->open_low = text[0] == '(';
  out->open_high = text[length - 1] == ')';
  if ((!out->open_low && text[0] != '[') || (!out->open_high && text[length - 1] != ']')) return false;
  return read_bound(text + 1, (size_t)(comma - text) - 1, &out->low) &&
         read_bound(comma + 2, (size_t)(text + length - comma) - 3, &out->high);
}

bool hark_option_range_is_sound(const char *text) {
  interval range;
  return read_interval(text, &range);
}

bool hark_option_in_range(const hark_option *option, double value) {
  interval range;
  if (option->range == NULL || !read_interval(option->range, &range)) return option->range == NULL;
  return (range.open_low ? value > range.low : value >= range.low) && (range.open_high ? value < range.high : value <= range.high);
}

void hark_option_expected(const hark_option *option, hark_text *text) {
  static const char *const words[] = {[HARK_OPTION_BOOL] = "true or false",
                                      [HARK_OPTION_INT] = "a whole number",
                                      [HARK_OPTION_FLOAT] = "a number",
                                      [HARK_OPTION_STRING] = "a text",
                                      [HARK_OPTION_ENUM] = "one of ",
                                      [HARK_OPTION_LIST] = "texts",
                                      [HARK_OPTION_DURATION] = "a time such as 90s, 10m or 1h30m",
                                      [HARK_OPTION_LAYERS] = "one of "};
  hark_text_append(text, "%s", option->type == HARK_OPTION_LIST && option->range != NULL ? "numbers" : words[option->type]);
  if (option->range == NULL) return;
  if (hark_option_has_choices(option)) {
    size_t length;
    for (const char *at = option->range, *word; (word = hark_next_word(&at, '|', &length)) != NULL;) {
      hark_text_append(text, "%s%.*s", word == option->range ? "" : ", ", (int)length, word);
    }
    if (option->type == HARK_OPTION_LAYERS)
      hark_text_append(text, ", or up to %d of them for the layers in turn, with commas", HARK_LAYER_CHOICE_WORDS);
    return;
  }
  interval range;
  if (!read_interval(option->range, &range)) return;
  char low[HARK_NUMBER_BYTES];
  if (range.high == HUGE_VAL) {
    hark_text_append(text, " %s %s%s", range.open_low ? "above" : "of at least", hark_number_print(range.low, low),
                     option->type == HARK_OPTION_DURATION ? "s" : "");
  } else {
    hark_text_append(text, " in %s", option->range);
  }
}

/* Whole numbers from 2^53 on are read in digits alone. */
#define EXACT 9007199254740992.0

/* True for a number without a sign that may be beyond what is read: from 2^53 on. */
static bool is_large(const char *value) {
  static const char digits[] = "0123456789";
  double number;
  const size_t whole = strspn(value, digits);
  const char *at = value + whole;
  const size_t fraction = *at == '.' ? strspn(++at, digits) : 0;
  at += fraction;
  if (*at == 'e' || *at == 'E') {
    at += at[1] == '+' ? 2 : 1;
    if (*at == '\0') return false;
    at += strspn(at, digits);
  }
  return whole + fraction > 0 && *at == '\0' && (!hark_number_read(value, strlen(value), &number) || number >= EXACT);
}

void hark_option_append_limit(const hark_option *option, const char *value, hark_text *text) {
  interval range = {.high = HUGE_VAL};
  double number;
  const bool unlimited = option->range == NULL || (read_interval(option->range, &range) && range.high == HUGE_VAL);
  if (option->type != HARK_OPTION_INT || !unlimited) return;
  if (option->range == NULL && value[0] == '-' && is_large(value + 1)) hark_text_append(text, " of at least %" PRId64, INT64_MIN);
  if (!is_large(value + (value[0] == '+'))) return;
  hark_text_append(text, "%s at most %" PRId64, option->range == NULL ? " of" : " and", INT64_MAX);
  if (hark_number_read(value, strlen(value), &number) && number < (double)INT64_MAX)
    hark_text_append(text, ", from %.0f on without point and exponent", EXACT);
}

/* ---- choices ---- */

int hark_option_choice(const char *choices, const char *value) {
  char word[HARK_OPTION_WORD_BYTES];
  size_t length;
  int index = 0;
  if (!hark_option_spelling(value, strlen(value), false, word)) return -1;
  for (const char *at = choices, *first; (first = hark_next_word(&at, '|', &length)) != NULL; index++) {
    if (strlen(word) == length && memcmp(first, word, length) == 0) return index;
  }
  return -1;
}

bool hark_option_choice_at(const char *choices, int index, char out[HARK_OPTION_WORD_BYTES]) {
  size_t length;
  for (const char *at = choices, *word; (word = hark_next_word(&at, '|', &length)) != NULL; index--) {
    if (index == 0) return hark_option_spelling(word, length, false, out);
  }
  return false;
}

bool hark_option_read_layers(const char *choices, const char *value, hark_layer_choice *out, char bad[HARK_OPTION_WORD_BYTES]) {
  size_t length;
  *out = (hark_layer_choice){0};
  bad[0] = '\0';
  for (const char *at = value;; at += length + 1) {
    length = strcspn(at, ",");
    size_t from = 0, to = length;
    while (from < to && at[from] == ' ') from++;
    while (to > from && at[to - 1] == ' ') to--;
    bad[0] = '\0';
    if (out->count == HARK_LAYER_CHOICE_WORDS || to - from >= HARK_OPTION_WORD_BYTES) return false;
    memcpy(bad, at + from, to - from);
    bad[to - from] = '\0';
    const int word = hark_option_choice(choices, bad);
    if (word < 0) return false;
    out->words[out->count++] = word;
    if (at[length] == '\0') return true;
  }
}

/* With at least so many letters, a unique beginning of a choice is near it. */
#define BEGINNING 3

bool hark_option_near_choice(const char *choices, const char *value, char out[HARK_OPTION_WORD_BYTES]) {
  char given[HARK_OPTION_WORD_BYTES], word[HARK_OPTION_WORD_BYTES];
  if (!hark_option_spelling(value, strlen(value), false, given)) return false;
  const size_t length = strlen(given);
  int best = hark_word_near(given) + 1, longer = 0;
  for (int i = 0; hark_option_choice_at(choices, i, word); i++) {
    const int steps = hark_word_distance(given, word);
    const bool begun = length >= BEGINNING && hark_word_begins(word, given), near = steps < best;
    longer += begun;
    if (near) best = steps;
    if (near || (begun && longer == 1 && best > hark_word_near(given))) memcpy(out, word, sizeof word);
  }
  return best <= hark_word_near(given) || longer == 1;
}

bool hark_option_read_bool(const char *value, bool *out) {
  const int index = hark_option_choice("true|yes|on|false|no|off", value);
  *out = index < 3;
  return index >= 0;
}

/* ---- values ---- */

bool hark_option_read_value(const hark_option *option, const char *text, hark_option_value *out) {
  const size_t length = strlen(text);
  char bad[HARK_OPTION_WORD_BYTES];
  switch (option->type) {
    case HARK_OPTION_BOOL: return hark_option_read_bool(text, &out->truth);
    case HARK_OPTION_INT: return hark_number_read_whole(text, length, &out->whole) && hark_option_in_range(option, (double)out->whole);
    case HARK_OPTION_FLOAT: return hark_number_read(text, length, &out->number) && hark_option_in_range(option, out->number);
    case HARK_OPTION_DURATION: return hark_number_read_duration(text, length, &out->number) && hark_option_in_range(option, out->number);
    case HARK_OPTION_ENUM: return (out->choice = hark_option_choice(option->range, text)) >= 0;
    case HARK_OPTION_LAYERS: return hark_option_read_layers(option->range, text, &out->layers, bad);
    case HARK_OPTION_STRING:
    case HARK_OPTION_LIST: break;
  }
  return true;
}

void hark_option_put_value(const hark_option *option, const hark_option_value *value, void *field) {
  switch (option->type) {
    case HARK_OPTION_BOOL: *(bool *)field = value->truth; break;
    case HARK_OPTION_INT: *(int64_t *)field = value->whole; break;
    case HARK_OPTION_FLOAT:
    case HARK_OPTION_DURATION: *(double *)field = value->number; break;
    case HARK_OPTION_ENUM: *(int *)field = value->choice; break;
    case HARK_OPTION_LAYERS: *(hark_layer_choice *)field = value->layers; break;
    case HARK_OPTION_STRING:
    case HARK_OPTION_LIST: break;
  }
}

bool hark_option_words_are_paths(const char *argument) {
  static const char *const words[] = {"FILE", "PATH", "RUN", "FOLDER"};
  bool any = false;
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) any = any || (argument != NULL && strstr(argument, words[i]) != NULL);
  return any;
}
