/* vocabulary.h - the tokens of a tokenizer: number to text and back. */
#ifndef HARK_TOKENIZERS_PIPELINE_VOCABULARY_H
#define HARK_TOKENIZERS_PIPELINE_VOCABULARY_H

#include "tokenizers/pipeline/growing.h"

#define HARK_TOKEN_LIMIT ((int64_t)1 << 24) /* numbers of tokens are smaller */

/* Zero it before use. */
typedef struct hark_token_table {
  hark_bytes text;
  hark_span *token; /* [size]: by number; no text: there is no such token */
  int32_t size;     /* the largest number plus 1 */
  uint32_t *slot;   /* [slots], a power of two: number + 1, 0 for none */
  size_t slots;
  int32_t count;
} hark_token_table;

/* Makes room for `count` tokens of numbers below `size`, with `bytes` bytes of text in all. */
HARK_MUST_CHECK hark_status hark_token_table_open(hark_context *context, hark_token_table *table, int64_t count, int64_t size,
                                                  size_t bytes);
/* Adds a token; a text that is there already gets the new number too, which is what finding it returns. */
void hark_token_table_add(hark_token_table *table, const char *text, size_t bytes, int32_t id);
void hark_token_table_close(hark_context *context, hark_token_table *table);

/* The number of a text; -1: none. */
int32_t hark_token_find(const hark_token_table *table, const char *text, size_t bytes);
/* The text of a number; no text: there is none. */
static inline hark_span hark_token_text(const hark_token_table *table, int64_t id) {
  return id >= 0 && id < table->size ? table->token[id] : (hark_span){NULL, 0};
}

/* Mixes eight bytes at a time; for tables in memory only. */
static inline uint64_t hark_span_hash(const char *text, size_t bytes) {
  uint64_t sum = bytes * UINT64_C(0x9E3779B97F4A7C15), word;
  for (; bytes >= 8; bytes -= 8, text += 8) {
    memcpy(&word, text, 8);
    sum = (sum ^ word) * UINT64_C(0xD6E8FEB86659FD93);
    sum ^= sum >> 32;
  }
  word = 0;
  for (size_t i = 0; i < bytes; i++) word = word << 8 | (unsigned char)text[i];
  sum = (sum ^ word) * UINT64_C(0xD6E8FEB86659FD93);
  return sum ^ sum >> 32;
}

#endif
