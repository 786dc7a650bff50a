/* parser.h - the parser of expressions in three parts: words, numbers and messages (parse_words.c), kernels with their values
 * (parse_kernel.c), and the tree of sums, products, banks and directions (parse.c, which has the grammar). */
#ifndef HARK_POSITIONAL_PARSER_H
#define HARK_POSITIONAL_PARSER_H

#include "positional/expression.h"

#define HARK_PARSER_WORD 32    /* bytes of a word in a message */
#define HARK_PARSER_LETTERS 26 /* from a to z */

typedef struct hark_parser {
  hark_context *context;
  const char *text;
  int32_t length, at;
  int depth, kernels;
  int32_t direction;                      /* the place of the left(...) or right(...) that is being read; -1: none */
  int32_t part_limit, given_limit;        /* capacity of the memory */
  int32_t letter_at[HARK_PARSER_LETTERS]; /* where a letter was read first */
  int32_t letter_count[HARK_PARSER_LETTERS];
  hark_positional *tree;
} hark_parser;

/* --- words, numbers, messages (parse_words.c) --- */

static inline int hark_parser_column(int32_t at) { return at + 1; }
static inline bool hark_parser_is_digit(char c) { return c >= '0' && c <= '9'; }

/* Reports a mistake at a place of the text, which is `column` - 1. */
hark_status hark_parser_complain(hark_context *context, int column, const char *format, ...) HARK_PRINTF(3, 4);
#define HARK_COMPLAIN(parser, place, ...) hark_parser_complain((parser)->context, hark_parser_column(place), __VA_ARGS__)

/* "found 'x', expected WHAT" at the parser's place. */
hark_status hark_parser_expected(const hark_parser *parser, const char *what);

void hark_parser_skip(hark_parser *parser); /* blanks */
bool hark_parser_take(hark_parser *parser, char c);
HARK_MUST_CHECK hark_status hark_parser_need(hark_parser *parser, char c, const char *what);

/* The length of the word at the parser's place, 0 if there is none; whether it is `word`; the word as text, cut if it is longer. */
int32_t hark_parser_word(const hark_parser *parser);
bool hark_parser_word_is(const hark_parser *parser, int32_t length, const char *word);
const char *hark_parser_word_text(const hark_parser *parser, int32_t length, char text[HARK_PARSER_WORD]);

/* A whole number called `what`; a natural value of a parameter, times the factor of the name by which it was given. */
HARK_MUST_CHECK hark_status hark_parser_whole(hark_parser *parser, const char *what, int64_t least, int64_t most, int64_t *out);
HARK_MUST_CHECK hark_status hark_parser_value(hark_parser *parser, const hark_leaf_parameter *parameter, double factor, double *out);

/* --- kernels (parse_kernel.c) --- */

/* Reads the kernel, or the number, at the parser's place. */
HARK_MUST_CHECK hark_status hark_parser_kernel(hark_parser *parser, int32_t components);
HARK_MUST_CHECK hark_status hark_parser_constant(hark_parser *parser, int32_t components);

/* A letter that occurs once is a mistake in writing. */
HARK_MUST_CHECK hark_status hark_parser_check_letters(const hark_parser *parser);

/* --- the tree (parse.c) --- */

/* Makes room for a part at `index`, moving the later ones up. `at`: its place in the text. */
HARK_MUST_CHECK hark_status hark_parser_insert(hark_parser *parser, int32_t index, int32_t at, const hark_positional_part *part);

#endif
