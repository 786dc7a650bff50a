/* compressed_cache.h - the layout of the cache of compressed attention that reads token by token, for every backend.
 *
 *     ring       the last 2 m keys and values: chunks c - 1 and c, m rows each; row n is in place n mod R, R = 2 m or all rows of the text
 *     slots      of the last S finished chunks, chunk k in place k mod S. S is at least N + 1, or as large as all chunks that are finished
 *     globals    means over the rows of older slots: each as two numbers of the type, the second one the rounding error of the first
 *
 * Where chunk c begins, the slots of chunk c - N - 2 are added to the globals, and those of chunk c - 1 take their place. They are seen
 * from chunk c + 1 on. A global begins with its first slot, so a cache needs no initialisation. Chunks have m rows; slots, globals and what
 * a query sees are those of chunks.h. docs/mathematics/compressed.md.
 */
#ifndef HARK_BACKEND_COMPRESSED_CACHE_H
#define HARK_BACKEND_COMPRESSED_CACHE_H

#include <hark/experimental.h>

#include "core/core.h"

/* Inputs of the record. */
enum {
  HARK_COMPRESSED_QUERY,
  HARK_COMPRESSED_KEY,
  HARK_COMPRESSED_VALUE,
  HARK_COMPRESSED_RING_KEY,
  HARK_COMPRESSED_RING_VALUE,
  HARK_COMPRESSED_SLOT_KEY,
  HARK_COMPRESSED_SLOT_VALUE,
  HARK_COMPRESSED_GLOBAL_KEY,
  HARK_COMPRESSED_GLOBAL_VALUE,
  HARK_COMPRESSED_INPUTS
};

typedef struct hark_compressed_cache {
  const hark_compressed_decode_attributes *decode;
  int64_t ring, stored; /* R rows, and S chunks of slots */
} hark_compressed_cache;

static inline hark_compressed_cache hark_compressed_cache_of(const hark_call *call) {
  return (hark_compressed_cache){.decode = call->attributes,
                                 .ring = call->inputs[HARK_COMPRESSED_RING_KEY].shape[1],
                                 .stored = call->inputs[HARK_COMPRESSED_SLOT_KEY].shape[0]};
}

/* The row of a slot among those that are stored. */
static inline int64_t hark_compressed_slot_row(const hark_compressed_cache *cache, int64_t slot) {
  const int64_t chunk = slot / cache->decode->chunk_slots, i = slot % cache->decode->chunk_slots;
  return chunk % cache->stored * cache->decode->chunk_slots + i;
}

/* Rows of slot i of a chunk begin here; slot i + 1 begins where they end. */
static inline int64_t hark_compressed_slot_begin(const hark_compressed_cache *cache, int64_t i) {
  return i * cache->decode->chunk / cache->decode->chunk_slots;
}
static inline int64_t hark_compressed_slot_count(const hark_compressed_cache *cache, int64_t slot) {
  const int64_t i = slot % cache->decode->chunk_slots;
  return hark_compressed_slot_begin(cache, i + 1) - hark_compressed_slot_begin(cache, i);
}

/* The slots from <= number < to of which a query of a chunk sees the best. */
static inline void hark_compressed_candidates(const hark_compressed_cache *cache, int64_t chunk, int64_t *from, int64_t *to) {
  const int64_t kept = cache->decode->kept_chunks;
  *to = hark_max(0, chunk - 1) * cache->decode->chunk_slots;
  *from = kept == 0 ? 0 : hark_max(0, chunk - 1 - kept) * cache->decode->chunk_slots;
}

/* The number of older slots, which are parts of globals for a query of a chunk. */
static inline int64_t hark_compressed_merged(const hark_compressed_cache *cache, int64_t chunk) {
  if (cache->decode->global_slots == 0) return 0;
  return hark_max(0, chunk - 1 - cache->decode->kept_chunks) * cache->decode->chunk_slots;
}

/* Rows of a global slot of which the slots before `end` are parts. Its slots j and j + period have the same place in their chunks. */
static inline int64_t hark_compressed_global_count(const hark_compressed_cache *cache, int64_t global, int64_t end) {
  const int64_t globals = cache->decode->global_slots, slots = cache->decode->chunk_slots;
  const int64_t members = end > global ? (end - global + globals - 1) / globals : 0;
  if (cache->decode->chunk % slots == 0) return members * (cache->decode->chunk / slots);
  int64_t a = globals, b = slots, count = 0;
  while (b != 0) {
    const int64_t rest = a % b;
    a = b;
    b = rest;
  }
  const int64_t period = slots / a;
  for (int64_t j = 0; j < hark_min(period, members); j++)
    count += hark_compressed_slot_count(cache, (global + j * globals) % slots) * ((members - j + period - 1) / period);
  return count;
}

/* Doubles of a key head's work, enough for the record (d + dv + 2 G + 2 S C + R) and for the kernel of f32 (G, and S C + 2 G + R entries of
 * 12 bytes). Errors: HARK_TOO_LARGE. */
static inline hark_status hark_compressed_work(hark_context *context, const hark_compressed_decode_attributes *decode,
                                               const hark_tensor *inputs, size_t *out) {
  const int64_t head_dim = inputs[HARK_COMPRESSED_QUERY].shape[2] / decode->heads;
  const int64_t value_dim = inputs[HARK_COMPRESSED_VALUE].shape[2] / decode->key_heads;
  const int64_t globals = inputs[HARK_COMPRESSED_GLOBAL_KEY].shape[0], ring = inputs[HARK_COMPRESSED_RING_KEY].shape[1];
  HARK_TRY(hark_size_multiply(context, 2 * (size_t)inputs[HARK_COMPRESSED_SLOT_KEY].shape[0], (size_t)decode->chunk_slots, out));
  return hark_size_add(context, *out, (size_t)(head_dim + value_dim + 4 * globals + 2 * ring), out);
}

/* The chunk whose slots become parts of the globals where `chunk` begins; negative: none. */
static inline int64_t hark_compressed_leaves(const hark_compressed_cache *cache, int64_t chunk) {
  return cache->decode->global_slots > 0 ? chunk - cache->decode->kept_chunks - 2 : -1;
}

#endif
