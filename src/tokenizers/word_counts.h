/* word_counts.h - how often each distinct word of a text occurs, in the order of first occurrence. */
#ifndef HARK_TOKENIZERS_WORD_COUNTS_H
#define HARK_TOKENIZERS_WORD_COUNTS_H

#include "core/core.h"

/* Limit on the bytes of distinct words: further words are not counted. So text without spaces does not fill the memory. */
#define HARK_WORD_COUNTS_BYTES ((size_t)256 << 20)

/* Word w is text[at[w] .. at[w + 1]). Zero it before use. */
typedef struct hark_word_counts {
  char *text;
  size_t *at;     /* [capacity + 1] */
  int64_t *count; /* [capacity] */
  uint32_t *slot; /* [slots], a power of two: word + 1, 0 for none */
  size_t words, capacity, text_capacity, slots;
} hark_word_counts;

/* Counts one occurrence. Errors: HARK_OUT_OF_MEMORY; the counts are then unchanged. */
HARK_MUST_CHECK hark_status hark_word_counts_add(hark_context *context, hark_word_counts *counts, const char *word, size_t bytes);
void hark_word_counts_free(hark_context *context, hark_word_counts *counts);

#endif
