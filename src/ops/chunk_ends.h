/* chunk_ends.h - where a chunk ends that is cut after delimiters: known from its own rows, so that a text can be cut while it is read. */
#ifndef HARK_OPS_CHUNK_ENDS_H
#define HARK_OPS_CHUNK_ENDS_H

#include <stdbool.h>
#include <stdint.h>

/* Tokens of all delimiters of a model, at most. */
#define HARK_DELIMITER_TOKENS 64

typedef struct hark_chunk_ends {
  const int32_t *delimiters; /* their tokens, one delimiter after another; -1 - t is a token t with which a delimiter goes on */
  int64_t delimiter_count;   /* of tokens */
  int64_t minimum, maximum;  /* rows of a chunk that another one follows */
} hark_chunk_ends;

static inline bool hark_delimiter_goes_on(int32_t number) { return number < 0; }
static inline int32_t hark_delimiter_token(int32_t number) { return number < 0 ? -1 - number : number; }

/* Whether one of the delimiters is at the end of `length` tokens. end: after the last one. */
static inline bool hark_chunk_has_delimiter(const hark_chunk_ends *ends, int64_t length, const int32_t *end) {
  for (int64_t last = 0, first = 0; last < ends->delimiter_count; last++) {
    if (hark_delimiter_goes_on(ends->delimiters[last])) continue;
    int64_t at = last;
    while (at >= first && last - at < length && hark_delimiter_token(ends->delimiters[at]) == end[at - last - 1]) at--;
    if (at < first) return true;
    first = last + 1;
  }
  return false;
}

/* Whether a chunk ends that has `length` tokens so far. end: after the last one. */
static inline bool hark_chunk_ends_at(const hark_chunk_ends *ends, int64_t length, const int32_t *end) {
  return length >= ends->maximum || (length >= ends->minimum && hark_chunk_has_delimiter(ends, length, end));
}

/* The last tokens of a text that is read token by token; zeros at first. */
typedef struct hark_chunk_reader {
  int32_t recent[HARK_DELIMITER_TOKENS];
  int64_t length; /* of the chunk so far */
} hark_chunk_reader;

/* Reads a token. Whether its chunk ends with it: then the next token begins one. */
static inline bool hark_chunk_read(hark_chunk_reader *reader, const hark_chunk_ends *ends, int32_t token) {
  for (int i = 1; i < HARK_DELIMITER_TOKENS; i++) reader->recent[i - 1] = reader->recent[i];
  reader->recent[HARK_DELIMITER_TOKENS - 1] = token;
  const bool is_end = hark_chunk_ends_at(ends, ++reader->length, reader->recent + HARK_DELIMITER_TOKENS);
  if (is_end) reader->length = 0;
  return is_end;
}

#endif
