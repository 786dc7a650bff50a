/* compressed_cache.h - the layout of the cache of compressed attention that reads token by token, for every backend.
 *
 *     ring       the last 2 m keys and values: chunks c - 1 and c, m rows each at most; row n is in place n mod R, R = 2 m or all rows of
 *                the text
 *     slots      of the last S finished chunks, chunk k in place k mod S. S is at least N + 1, or as large as all chunks that are finished
 *     globals    means over the rows of older slots: each as two numbers of the type, the second one the rounding error of the first
 *
 * Where chunk c begins, the slots of chunk c - N - 2 are added to the globals, and those of chunk c - 1 take their place. They are seen
 * from chunk c + 1 on. A global begins with its first slot, so a cache needs no initialisation. Slots, globals and what a query sees are
 * those of chunks.h. Chunks have m rows, or begin where the caller says (`starts`): then the cache also has the number of rows in each
 * global, for each key head by itself, because key heads are separate pieces of work. docs/mathematics/compressed.md.
 */
#ifndef HARK_BACKEND_COMPRESSED_CACHE_H
#define HARK_BACKEND_COMPRESSED_CACHE_H

#include <hark/experimental.h>
#include <inttypes.h>
#include <math.h>

#include "backend/chunk_kernel.h"
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
  HARK_COMPRESSED_CHUNK_STARTS, /* with chunk_maximum > 0, also the next one */
  HARK_COMPRESSED_GLOBAL_ROWS,
  HARK_COMPRESSED_LOG_SUMS, /* with a kernel of the distance */
  HARK_COMPRESSED_INPUTS
};

/* The most rows of a chunk. */
static inline int64_t hark_compressed_longest(const hark_compressed_decode_attributes *decode) {
  return decode->chunk_maximum > 0 ? decode->chunk_maximum : decode->chunk;
}

typedef struct hark_compressed_cache {
  const hark_compressed_decode_attributes *decode;
  int64_t ring, stored;  /* R rows, and S chunks of slots */
  const int64_t *starts; /* [chunks]; NULL: chunks of decode->chunk rows */
  int64_t chunks;
  int64_t *global_rows; /* with `starts`: of this key head's globals, one after another in steps of key_heads */
} hark_compressed_cache;

static inline hark_compressed_cache hark_compressed_cache_of(const hark_call *call, int64_t key_head) {
  const hark_compressed_decode_attributes *decode = call->attributes;
  hark_compressed_cache cache = {
      .decode = decode, .ring = call->inputs[HARK_COMPRESSED_RING_KEY].shape[1], .stored = call->inputs[HARK_COMPRESSED_SLOT_KEY].shape[0]};
  if (decode->chunk_maximum > 0) {
    cache.starts = call->inputs[HARK_COMPRESSED_CHUNK_STARTS].data;
    cache.chunks = call->inputs[HARK_COMPRESSED_CHUNK_STARTS].shape[0];
    cache.global_rows = (int64_t *)call->inputs[HARK_COMPRESSED_GLOBAL_ROWS].data + key_head;
  }
  return cache;
}

/* The logarithms of sums of G for a head (kernel_sums): entry [level * step + t] for 2^level distances from t on. */
typedef struct hark_compressed_sums {
  hark_type type; /* HARK_NONE: there is no kernel */
  const void *data;
  int64_t step;
} hark_compressed_sums;

static inline hark_compressed_sums hark_compressed_sums_of(const hark_call *call, int64_t head) {
  if (call->input_count <= HARK_COMPRESSED_LOG_SUMS || call->inputs[HARK_COMPRESSED_LOG_SUMS].type == HARK_NONE)
    return (hark_compressed_sums){.type = HARK_NONE};
  const hark_tensor *table = &call->inputs[HARK_COMPRESSED_LOG_SUMS];
  const int64_t row = table->shape[1] > 1 ? head : 0;
  return (hark_compressed_sums){.type = table->type,
                                .data = (const char *)table->data + (size_t)(row * table->shape[2]) * hark_type_bytes(table->type),
                                .step = table->shape[1] * table->shape[2]};
}

static inline double hark_compressed_sum(const hark_compressed_sums *sums, int level, int64_t distance) {
  const int64_t at = level * sums->step + distance;
  return sums->type == HARK_F64 ? ((const double *)sums->data)[at] : (double)((const float *)sums->data)[at];
}

/* The first row of a chunk. */
static inline int64_t hark_compressed_begin(const hark_compressed_cache *cache, int64_t chunk) {
  return cache->starts != NULL ? cache->starts[chunk] : chunk * cache->decode->chunk;
}

/* The chunk of row n: the last one that begins at it or before. */
static inline int64_t hark_compressed_chunk_of(const hark_compressed_cache *cache, int64_t n) {
  if (cache->starts == NULL) return n / cache->decode->chunk;
  int64_t low = 0, high = cache->chunks; /* starts[low] <= n < starts[high] */
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    if (cache->starts[middle] <= n)
      low = middle;
    else
      high = middle;
  }
  return low;
}

/* That of the next row. */
static inline int64_t hark_compressed_next_chunk(const hark_compressed_cache *cache, int64_t chunk, int64_t next_row) {
  if (cache->starts == NULL) return next_row / cache->decode->chunk;
  return chunk + 1 < cache->chunks && cache->starts[chunk + 1] <= next_row ? chunk + 1 : chunk;
}

/* The row of a slot among those that are stored. */
static inline int64_t hark_compressed_slot_row(const hark_compressed_cache *cache, int64_t slot) {
  const int64_t chunk = slot / cache->decode->chunk_slots, i = slot % cache->decode->chunk_slots;
  return chunk % cache->stored * cache->decode->chunk_slots + i;
}

/* Rows of slot i of a finished chunk begin here; slot i + 1 begins where they end. */
static inline int64_t hark_compressed_slot_begin(const hark_compressed_cache *cache, int64_t chunk, int64_t i) {
  const int64_t first = hark_compressed_begin(cache, chunk), rows = hark_compressed_begin(cache, chunk + 1) - first;
  return first + i * rows / cache->decode->chunk_slots;
}
static inline int64_t hark_compressed_slot_count(const hark_compressed_cache *cache, int64_t slot) {
  const int64_t chunk = slot / cache->decode->chunk_slots, i = slot % cache->decode->chunk_slots;
  return hark_compressed_slot_begin(cache, chunk, i + 1) - hark_compressed_slot_begin(cache, chunk, i);
}

/* The logarithm of the sum of G over the rows of a slot, for row n: that of its parts (chunk_kernel.h). */
static inline double hark_compressed_slot_term(const hark_compressed_cache *cache, const hark_compressed_sums *sums, int64_t n,
                                               int64_t slot) {
  const int64_t chunk = slot / cache->decode->chunk_slots, i = slot % cache->decode->chunk_slots;
  const int64_t first = hark_compressed_slot_begin(cache, chunk, i);
  double term = -INFINITY;
  for (int64_t end = hark_compressed_slot_begin(cache, chunk, i + 1); end > first;) {
    const int level = hark_chunk_part_level(end - first);
    const double part = hark_compressed_sum(sums, level, n - end + 1), top = part > term || isnan(part) ? part : term;
    if (term == -INFINITY || !isfinite(top))
      term = top;
    else
      term = top + log(exp(part - top) + exp(term - top));
    end -= (int64_t)1 << level;
  }
  return term;
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

/* Errors: HARK_INVALID_ARGUMENT if one of the starts that this call reads is not where a chunk may begin, or if a global slot has more rows
 * than the text. */
static inline hark_status hark_compressed_check_starts(hark_context *context, const hark_call *call) {
  const hark_compressed_decode_attributes *decode = call->attributes;
  const hark_compressed_cache cache = hark_compressed_cache_of(call, 0);
  if (cache.starts == NULL) return HARK_OK;
  const int64_t last = decode->first_position + call->inputs[HARK_COMPRESSED_QUERY].shape[1] - 1;
  const int64_t chunk = hark_compressed_chunk_of(&cache, decode->first_position);
  const int64_t from = decode->kept_chunks == 0 ? 0 : hark_max(0, chunk - decode->kept_chunks - 2);
  if (cache.starts[0] != 0)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "compressed_decode: chunk_starts begins with %" PRId64 ", expected 0",
                     cache.starts[0]);
  if (cache.starts[from] < from * decode->chunk)
    return hark_fail(context, HARK_INVALID_ARGUMENT,
                     "compressed_decode: chunk %" PRId64 " begins at row %" PRId64 ", expected at least %" PRId64, from, cache.starts[from],
                     from * decode->chunk);
  for (int64_t k = from; k < cache.chunks; k++) { /* each start is above the one before it, and none is negative */
    const bool is_last = k + 1 == cache.chunks;
    const int64_t end = is_last ? last + 1 : cache.starts[k + 1], rows = end > cache.starts[k] ? end - cache.starts[k] : 0;
    if (rows < (is_last ? 1 : decode->chunk) || rows > decode->chunk_maximum)
      return hark_fail(context, HARK_INVALID_ARGUMENT,
                       "compressed_decode: the chunk from row %" PRId64 " on has %" PRId64 " rows, expected %" PRId64 " to %" PRId64,
                       cache.starts[k], rows, is_last ? 1 : decode->chunk, decode->chunk_maximum);
  }
  const int64_t seen = decode->first_position;
  const int64_t merged = seen > 0 ? hark_compressed_merged(&cache, hark_compressed_chunk_of(&cache, seen - 1)) : 0;
  for (int64_t i = 0; i < hark_min(decode->global_slots, merged) * decode->key_heads; i++)
    if (cache.global_rows[i] < 1 || cache.global_rows[i] > seen)
      return hark_fail(context, HARK_INVALID_ARGUMENT, "compressed_decode: global_rows has %" PRId64 ", expected 1 to %" PRId64,
                       cache.global_rows[i], seen);
  return HARK_OK;
}

/* The same with `starts`: the rows of earlier chunks are counted, those of the chunk of slot `end` not yet. */
static inline int64_t hark_compressed_counted_rows(const hark_compressed_cache *cache, int64_t global, int64_t end) {
  const hark_compressed_decode_attributes *decode = cache->decode;
  const int64_t first = end - end % decode->chunk_slots;
  int64_t rows = global < first ? cache->global_rows[global * decode->key_heads] : 0;
  for (int64_t slot = first; slot < end; slot++)
    if (slot % decode->global_slots == global) rows += hark_compressed_slot_count(cache, slot);
  return rows;
}

/* Rows of a global slot of which the slots before `end` are parts. Its slots j and j + period have the same place in their chunks. */
static inline int64_t hark_compressed_global_count(const hark_compressed_cache *cache, int64_t global, int64_t end) {
  if (cache->starts != NULL) return hark_compressed_counted_rows(cache, global, end);
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

/* Counts the slots of a chunk that has been merged, after its keys and values. */
static inline void hark_compressed_count_merged(const hark_compressed_cache *cache, int64_t chunk) {
  const hark_compressed_decode_attributes *decode = cache->decode;
  if (cache->starts == NULL) return;
  for (int64_t slot = chunk * decode->chunk_slots; slot < (chunk + 1) * decode->chunk_slots; slot++) {
    const int64_t at = slot % decode->global_slots * decode->key_heads;
    cache->global_rows[at] = (slot < decode->global_slots ? 0 : cache->global_rows[at]) + hark_compressed_slot_count(cache, slot);
  }
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
