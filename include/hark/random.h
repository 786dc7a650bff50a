/* random.h - counter-based random numbers: a value depends on its purpose, never on the order in which work is done.
 *
 * Philox 4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011). The key is the seed; the counter
 * holds a 64-bit index, the micro-step, and the purpose with the layer. Backward passes regenerate what the forward drew.
 */
#ifndef HARK_RANDOM_H
#define HARK_RANDOM_H

#include <stdint.h>

#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The purpose of a sequence of numbers. */
typedef enum hark_random_purpose {
  HARK_RANDOM_INITIAL = 1, /* initial weights */
  HARK_RANDOM_DROPOUT,     /* embeddings, residual branches */
  HARK_RANDOM_ATTENTION,   /* attention weights */
  HARK_RANDOM_DATA,        /* order of training windows */
  HARK_RANDOM_SAMPLE,      /* generated tokens */
  HARK_RANDOM_TEST,
  HARK_RANDOM_LAB, /* experiments of hark lab */
  HARK_RANDOM_TASK /* examples that hark data makes */
} hark_random_purpose;

/* Names one sequence of random numbers. */
typedef struct hark_random_stream {
  uint64_t seed;
  uint64_t first_index; /* added to every counter (four words each): the beginning of this rank's samples */
  uint32_t micro_step;
  uint32_t layer_purpose; /* hark_random_layer_purpose() */
} hark_random_stream;

/* layer < 2^24 in the high bits, purpose in the low eight. */
static inline uint32_t hark_random_layer_purpose(uint32_t layer, hark_random_purpose purpose) { return (layer << 8) | (uint32_t)purpose; }

/* Four words for counter {index, micro_step, layer_purpose} under key seed. */
static inline void hark_random_words(const hark_random_stream *stream, uint64_t index, uint32_t words[4]) {
  const uint64_t at = index + stream->first_index;
  uint32_t c0 = (uint32_t)at, c1 = (uint32_t)(at >> 32), c2 = stream->micro_step, c3 = stream->layer_purpose;
  uint32_t k0 = (uint32_t)stream->seed, k1 = (uint32_t)(stream->seed >> 32);
  for (int round = 0; round < 10; round++) {
    const uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
    const uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
    c1 = (uint32_t)p1;
    c3 = (uint32_t)p0;
    c0 = n0;
    c2 = n2;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  words[0] = c0;
  words[1] = c1;
  words[2] = c2;
  words[3] = c3;
}

/* Word `index` of the stream: word index % 4 of counter index / 4. */
static inline uint32_t hark_random_word(const hark_random_stream *stream, uint64_t index) {
  uint32_t words[4];
  hark_random_words(stream, index / 4, words);
  return words[index % 4];
}

/* Dropout keeps an element when its word >= this threshold; probability p in [0, 1). */
static inline uint32_t hark_random_threshold(double p) { return (uint32_t)(p * 4294967296.0); }

/* Fills out[0..count) with uniform numbers in [0, 1) or standard normal ones (Box-Muller), numbers first .. first + count of the stream. */
HARK_API void hark_random_uniform(const hark_random_stream *stream, uint64_t first, int64_t count, double *out);
HARK_API void hark_random_normal(const hark_random_stream *stream, uint64_t first, int64_t count, double *out);

#ifdef __cplusplus
}
#endif
#endif
