/* format_listops.c - nested operations on lists of digits, and their values (Nangia, Bowman, "ListOps", 2018), in the format of Long Range
 * Arena:
 *
 *     Source <TAB> Target                                       the first line
 *     ( ( ( ( [MAX 2 ) 9 ) 5 ) ] ) <TAB> 9                       an expression in binary application form, and its value
 *
 * The parentheses show which operator is applied to which argument, one argument at a time. The brackets show this too, so the parentheses
 * are dropped; if there are any, they must agree with the brackets. The order of the symbols is that of the table below and never changes
 * (the original's depends on a hash set).
 */
#include <stdio.h>
#include <string.h>

#include "data/formats/example_format.h"
#include "data/line_reader.h"
#include "data/tasks/listops.h"
#include "io/words.h"

const char *const hark_listops_words[HARK_LISTOPS_SYMBOLS] = {"0", "1", "2",    "3",    "4",    "5",   "6", "7",
                                                              "8", "9", "[MAX", "[MED", "[MIN", "[SM", "]"};

static int32_t find(const char *word, size_t length) {
  for (int32_t i = 0; i < HARK_LISTOPS_SYMBOLS; i++)
    if (strlen(hark_listops_words[i]) == length && memcmp(hark_listops_words[i], word, length) == 0) return i;
  return -1;
}

/* Items that were read and not applied yet. */
enum { OPEN = '(', BARE_OPERATOR = 'o', OPERATOR = 'p' /* with arguments */, VALUE = 'v', END = ']' };

static hark_status push(hark_text *stack, char what) {
  hark_text_append_bytes(stack, &what, 1);
  return stack->status;
}

/* Applies a pair of parentheses: "( operator value )" is an operator with one more argument, "( operator ] )" its value; anything else is
 * invalid. */
static bool apply(hark_text *stack) {
  const size_t count = stack->length;
  if (count < 3 || stack->data[count - 3] != OPEN) return false;
  const char function = stack->data[count - 2], argument = stack->data[count - 1];
  const bool one_more = (function == BARE_OPERATOR || function == OPERATOR) && argument == VALUE,
             last = function == OPERATOR && argument == END;
  stack->data[count - 3] = one_more ? OPERATOR : VALUE;
  stack->length = count - 2;
  return one_more || last;
}

/* Reads the symbols of an expression, as bytes, into scratch. Brackets and parentheses must match, and there must be exactly one
 * expression, without operators that have no arguments. */
static hark_status read_expression(hark_example_reader *reader, const hark_line_reader *lines, size_t length, hark_text *stack) {
  hark_context *const context = reader->context;
  const char *const line = lines->line;
  int64_t depth = 0, parentheses = 0;
  int32_t before = -1;
  bool has_parentheses = false;
  reader->scratch.length = 0;
  stack->length = 0;
  for (size_t at = 0; at < length;) {
    size_t end = at;
    while (end < length && line[end] != ' ') end++;
    const bool is_parenthesis = end == at + 1 && (line[at] == '(' || line[at] == ')');
    const int32_t symbol = is_parenthesis || end == at ? -1 : find(line + at, end - at);
    if (symbol < 0 && !is_parenthesis && end > at) {
      char word[HARK_WORD_BYTES], shown[HARK_SHOWN_BYTES];
      (void)snprintf(word, sizeof word, "%.*s", (int)hark_min((int64_t)(end - at), HARK_WORD_BYTES - 1), line + at);
      return hark_lines_fail(context, lines, at, "\"%s\", expected an operator, a digit, a bracket or a parenthesis",
                             hark_text_shown(word, shown));
    }
    if (is_parenthesis) {
      parentheses += line[at] == '(' ? 1 : -1;
      has_parentheses = true;
      if (parentheses < 0) return hark_lines_fail(context, lines, at, "\")\" without its \"(\"");
      if (line[at] == '(') HARK_TRY(push(stack, OPEN));
      if (line[at] == ')' && !apply(stack))
        return hark_lines_fail(context, lines, at, "expected an operator and one argument, or its \"]\", between \"(\" and \")\"");
    }
    if (symbol >= 0) {
      const char byte = (char)symbol;
      if (depth == 0 && reader->scratch.length > 0) return hark_lines_fail(context, lines, at, "after the end of the expression");
      if (symbol == HARK_LISTOPS_CLOSE && --depth < 0) return hark_lines_fail(context, lines, at, "\"]\" without its operator");
      if (symbol == HARK_LISTOPS_CLOSE && before >= HARK_LISTOPS_OPERATOR && before < HARK_LISTOPS_CLOSE)
        return hark_lines_fail(context, lines, at, "%s has no arguments", hark_listops_words[before]);
      before = symbol;
      depth += symbol >= HARK_LISTOPS_OPERATOR && symbol < HARK_LISTOPS_CLOSE;
      hark_text_append_bytes(&reader->scratch, &byte, 1);
      HARK_TRY(push(stack, symbol == HARK_LISTOPS_CLOSE ? END : symbol >= HARK_LISTOPS_OPERATOR ? BARE_OPERATOR : VALUE));
    }
    at = end + 1;
  }
  HARK_TRY(reader->scratch.status);
  if (reader->scratch.length == 0) return hark_lines_fail(context, lines, 0, "empty expression");
  if (depth > 0)
    return hark_lines_fail(context, lines, length, "%lld bracket%s not closed", (long long)depth, depth == 1 ? " is" : "s are");
  if (parentheses > 0)
    return hark_lines_fail(context, lines, length, "%lld parenthes%s not closed", (long long)parentheses,
                           parentheses == 1 ? "is is" : "es are");
  if (has_parentheses && (stack->length != 1 || stack->data[0] != VALUE))
    return hark_lines_fail(context, lines, length, "not everything here is applied by parentheses, as in ( ( ( [MAX 2 ) 9 ) ] )");
  return HARK_OK;
}

static hark_status read_line(hark_example_reader *reader, const hark_line_reader *lines, hark_text *stack) {
  const char *const tab = lines->length > 0 ? memchr(lines->line, '\t', lines->length) : NULL;
  if (tab == NULL) return hark_lines_fail(reader->context, lines, lines->length, "no tab, expected an expression, a tab and its value");
  const size_t length = (size_t)(tab - lines->line);
  if (lines->length != length + 2 || tab[1] < '0' || tab[1] > '9')
    return hark_lines_fail(reader->context, lines, length + 1, "value out of range, expected 0 to 9");
  HARK_TRY(read_expression(reader, lines, length, stack));
  HARK_TRY(hark_example_part(reader, hark_text_get(&reader->scratch), reader->scratch.length));
  return hark_example_end(reader, tab[1] - '0');
}

static hark_status read_lines(hark_example_reader *reader, hark_line_reader *lines, hark_text *stack) {
  bool more;
  HARK_TRY(hark_lines_next(reader->context, lines, &more));
  if (!more || lines->length != strlen(HARK_LISTOPS_HEADER) || memcmp(lines->line, HARK_LISTOPS_HEADER, lines->length) != 0)
    return hark_lines_fail(reader->context, lines, 0, "expected the header \"Source<TAB>Target\"");
  for (;;) {
    HARK_TRY(hark_lines_next(reader->context, lines, &more));
    if (!more) return HARK_OK;
    HARK_TRY(read_line(reader, lines, stack));
  }
}

static hark_status read_file(hark_example_reader *reader) {
  hark_line_reader lines = {0};
  hark_text stack = hark_text_empty(reader->context);
  hark_status status = hark_lines_open_source(reader->context, &lines, reader->source);
  if (status == HARK_OK) status = read_lines(reader, &lines, &stack);
  hark_lines_close(&lines);
  hark_text_free(&stack);
  return status;
}

/* A symbol and the blank or tab after it have at least two bytes. */
static int64_t symbols_at_most(uint64_t file_bytes) { return (int64_t)(file_bytes / 2) + 1; }

static const char *symbol_name(int32_t symbol, char *text, size_t size) {
  (void)snprintf(text, size, "%s", hark_listops_words[symbol]);
  return text;
}

const hark_example_format hark_example_format_listops = {
    .name = "listops",
    .summary = "nested operations on lists of digits, tab-separated from their values",
    .ending = "tsv",
    .parts = 1,
    .target_kind = HARK_TARGET_CLASS,
    .shape = {.symbols = HARK_LISTOPS_SYMBOLS, .classes = 10},
    .symbols_at_most = symbols_at_most,
    .read = read_file,
    .symbol_name = symbol_name,
};
