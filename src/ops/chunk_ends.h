/* chunk_ends.h - where a chunk ends that is cut after delimiters: known from its own rows, so that a text can be cut while it is read. */
#ifndef HARK_OPS_CHUNK_ENDS_H
#define HARK_OPS_CHUNK_ENDS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct hark_chunk_ends {
  const int32_t *delimiters;
  int64_t delimiter_count;
  int64_t minimum, maximum; /* rows of a chunk that another one follows */
} hark_chunk_ends;

static inline bool hark_chunk_is_delimiter(const hark_chunk_ends *ends, int32_t token) {
  for (int64_t i = 0; i < ends->delimiter_count; i++)
    if (ends->delimiters[i] == token) return true;
  return false;
}

/* Whether a chunk ends with this token, if it has `length` rows with it. */
static inline bool hark_chunk_ends_with(const hark_chunk_ends *ends, int64_t length, int32_t token) {
  return length >= ends->maximum || (length >= ends->minimum && hark_chunk_is_delimiter(ends, token));
}

#endif
