/* option_needs.c - see option_needs.h. */
#include "options/option_needs.h"

#include <string.h>

#include "io/number.h"

#define OR " or "

bool hark_option_need_read(const char **at, hark_option_need *out) {
  const char *const end = strchr(*at, ','), *const or_word = strstr(*at, OR), *stop = *at + strlen(*at);
  *out = (hark_option_need){.last_of_condition = true, .last = end == NULL};
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
  out->kind = other ? HARK_NEED_OTHER_WORDS : at_least ? HARK_NEED_AT_LEAST : above ? HARK_NEED_ABOVE : HARK_NEED_WORDS;
  if (out->kind == HARK_NEED_WORDS && strcmp(out->test, "given") == 0) out->kind = HARK_NEED_GIVEN;
  if (out->kind == HARK_NEED_WORDS && strcmp(out->test, "none") == 0) out->kind = HARK_NEED_NONE;
  if (above && !hark_number_read(out->test, strlen(out->test), &out->bound)) return false;
  *at = stop + (out->last ? 0 : out->last_of_condition ? strlen(", ") : strlen(OR));
  return out->test[0] != '\0' && (*stop == '\0' || *stop == ' ' || stop[1] == ' ');
}

/* True if one of the choices is among the words. */
static bool has_choice(const hark_option *option, const void *field, const char *words) {
  char word[HARK_OPTION_WORD_BYTES];
  const hark_layer_choice *const layers = field;
  for (int i = 0; hark_option_choice_at(words, i, word); i++) {
    const int choice = hark_option_choice(option->range, word);
    if (option->type == HARK_OPTION_LAYERS ? hark_layer_choice_has(layers, choice) : *(const int *)field == choice) return true;
  }
  return false;
}

/* True if some choice is not among the words. */
static bool has_other_choice(const hark_option *option, const void *field, const char *words) {
  char word[HARK_OPTION_WORD_BYTES];
  for (int i = 0; hark_option_choice_at(option->range, i, word); i++)
    if (hark_option_choice(words, word) < 0 && has_choice(option, field, word)) return true;
  return false;
}

bool hark_option_need_holds(const hark_option_need *need, const hark_option *option, const void *field) {
  const hark_option_type type = option->type;
  if (type == HARK_OPTION_BOOL) return *(const bool *)field == (need->test[0] == 't');
  if (hark_option_has_choices(option))
    return need->kind == HARK_NEED_OTHER_WORDS ? has_other_choice(option, field, need->test) : has_choice(option, field, need->test);
  const double number = type == HARK_OPTION_INT                                     ? (double)*(const int64_t *)field
                        : type == HARK_OPTION_FLOAT || type == HARK_OPTION_DURATION ? *(const double *)field
                                                                                    : 0;
  const char *const text = type == HARK_OPTION_STRING ? *(const char *const *)field : NULL;
  const bool there = type == HARK_OPTION_LIST ? ((const hark_string_list *)field)->count > 0 : text != NULL && text[0] != '\0';
  switch (need->kind) {
    case HARK_NEED_GIVEN: return there;
    case HARK_NEED_NONE: return !there;
    case HARK_NEED_ABOVE: return number > need->bound;
    case HARK_NEED_AT_LEAST: return number >= need->bound;
    case HARK_NEED_WORDS:
    case HARK_NEED_OTHER_WORDS: break;
  }
  return true;
}
