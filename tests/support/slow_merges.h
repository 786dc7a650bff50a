/* slow_merges.h - merges of pairs by their definition: all pairs are counted again for each merge. */
#ifndef HARK_TESTS_SUPPORT_SLOW_MERGES_H
#define HARK_TESTS_SUPPORT_SLOW_MERGES_H

#include <stddef.h>
#include <stdint.h>

enum { SLOW_WORDS = 4000, SLOW_SYMBOLS = 24, SLOW_TEXTS = 1200 };

/* Words are not counted: each occurrence is one. A symbol is the index of its text. The caller sets text and texts of the first symbols,
 * and words to 0, and adds words. */
typedef struct slow_merges {
  int symbol[SLOW_WORDS][SLOW_SYMBOLS], length[SLOW_WORDS], words;
  char text[SLOW_TEXTS][SLOW_SYMBOLS + 1];
  int texts;
  int left[SLOW_TEXTS], right[SLOW_TEXTS], merges;
} slow_merges;

void slow_merges_begin_word(slow_merges *s);
/* Adds a symbol to the last word. */
void slow_merges_add(slow_merges *s, int symbol);
/* Merges the most frequent pair, of equal ones that with the smallest left, then right symbol, until there are `texts` symbols or no pair
 * is left. */
void slow_merges_learn(slow_merges *s, int texts);

/* Random words of few letters and digits, each at most `longest`, with spaces between them: many pairs are equally frequent, and many
 * letters repeat. */
void slow_merges_text(uint64_t *seed, char *text, size_t words, unsigned letters, unsigned longest);

#endif
