/* parse_words.c - words, numbers and messages of the parser. See parser.h. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "io/number.h"
#include "positional/parser.h"

/* The text at the parser's place, for messages. */
static const char *found(const hark_parser *parser, char text[HARK_PARSER_WORD]) {
  const unsigned char c = parser->at < parser->length ? (unsigned char)parser->text[parser->at] : 0;
  if (parser->at >= parser->length)
    (void)snprintf(text, HARK_PARSER_WORD, "%s",
                   parser->text[parser->length] == '\0' ? "the end" : "'|'"); /* or another expression follows */
  else if (c > ' ' && c < 127)
    (void)snprintf(text, HARK_PARSER_WORD, "'%c'", c);
  else
    (void)snprintf(text, HARK_PARSER_WORD, "byte 0x%02X", c);
  return text;
}

hark_status hark_parser_complain(hark_context *context, int column, const char *format, ...) {
  char text[HARK_MESSAGE_BYTES];
  va_list arguments;
  va_start(arguments, format);
  (void)vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  return hark_fail(context, HARK_INVALID_ARGUMENT, "positional kernel, column %d: %s", column, text);
}

hark_status hark_parser_expected(const hark_parser *parser, const char *what) {
  char text[HARK_PARSER_WORD];
  return HARK_COMPLAIN(parser, parser->at, "found %s, expected %s", found(parser, text), what);
}

void hark_parser_skip(hark_parser *parser) {
  while (parser->at < parser->length && strchr(" \t\r\n", parser->text[parser->at]) != NULL) parser->at++;
}

bool hark_parser_take(hark_parser *parser, char c) {
  hark_parser_skip(parser);
  if (parser->at >= parser->length || parser->text[parser->at] != c) return false;
  parser->at++;
  return true;
}

hark_status hark_parser_need(hark_parser *parser, char c, const char *what) {
  return hark_parser_take(parser, c) ? HARK_OK : hark_parser_expected(parser, what);
}

static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

/* The length of the word at the parser's place, 0 if there is none. */
int32_t hark_parser_word(const hark_parser *parser) {
  int32_t end = parser->at;
  if (end >= parser->length || !is_letter(parser->text[end])) return 0;
  while (end < parser->length && (is_letter(parser->text[end]) || hark_parser_is_digit(parser->text[end]))) end++;
  return end - parser->at;
}

bool hark_parser_word_is(const hark_parser *parser, int32_t length, const char *word) {
  return strlen(word) == (size_t)length && memcmp(parser->text + parser->at, word, (size_t)length) == 0;
}

/* The word as text, cut if it is longer than messages need. */
const char *hark_parser_word_text(const hark_parser *parser, int32_t length, char text[HARK_PARSER_WORD]) {
  (void)snprintf(text, HARK_PARSER_WORD, "%.*s", (int)hark_min(length, HARK_PARSER_WORD - 1), parser->text + parser->at);
  return text;
}

/* --- numbers -------------------------------------------------------------------------------------------------------------------------- */

/* A number ends at the first character that cannot belong to one. */
static hark_status read_number(hark_parser *parser, double *out, int32_t *place) {
  hark_parser_skip(parser);
  int32_t end = parser->at;
  while (end < parser->length) {
    const char c = parser->text[end], before = end > parser->at ? parser->text[end - 1] : 0;
    const bool sign = (c == '+' || c == '-') && (end == parser->at || before == 'e' || before == 'E');
    if (!hark_parser_is_digit(c) && !is_letter(c) && c != '.' && !sign) break;
    end++;
  }
  *place = parser->at;
  if (end == parser->at) return hark_parser_expected(parser, "a number");
  if (!hark_number_read(parser->text + parser->at, (size_t)(end - parser->at), out)) {
    char text[HARK_PARSER_WORD];
    return HARK_COMPLAIN(parser, parser->at, "\"%s\" is not a finite decimal number",
                         hark_parser_word_text(parser, end - parser->at, text));
  }
  parser->at = end;
  return HARK_OK;
}

hark_status hark_parser_whole(hark_parser *parser, const char *what, int64_t least, int64_t most, int64_t *out) {
  double value;
  int32_t place;
  HARK_TRY(read_number(parser, &value, &place));
  char number[HARK_NUMBER_BYTES];
  if (value != floor(value) || value < (double)least || value > (double)most)
    return HARK_COMPLAIN(parser, place, "%s is %s, expected a whole number from %" PRId64 " to %" PRId64, what,
                         hark_number_print(value, number), least, most);
  *out = (int64_t)value;
  return HARK_OK;
}

/* A natural value, times the factor of the given name. */
hark_status hark_parser_value(hark_parser *parser, const hark_leaf_parameter *parameter, double factor, double *out) {
  double value;
  int32_t place;
  HARK_TRY(read_number(parser, &value, &place));
  const double natural = value * factor;
  const hark_value_range range = hark_transform_range(parameter->transform);
  char given[HARK_NUMBER_BYTES], low[HARK_NUMBER_BYTES], high[HARK_NUMBER_BYTES];
  if (!(natural >= range.low && natural <= range.high))
    return HARK_COMPLAIN(parser, place, "%s is %s, expected a %snumber from %s to %s", parameter->name, hark_number_print(value, given),
                         range.low > 0 ? "positive " : "", hark_number_print(range.low / factor, low),
                         hark_number_print(range.high / factor, high));
  *out = natural;
  return HARK_OK;
}
