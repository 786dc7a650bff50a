/* attention_cache.h - what a layer of attention keeps of earlier tokens in decoding, and attention to them.
 */
#ifndef HARK_NN_ATTENTION_CACHE_H
#define HARK_NN_ATTENTION_CACHE_H

#include <hark/experimental.h>

#include "nn/self_attention.h"

/* What a layer's cache contains. Dense and window: one row per token, keys and values [1, capacity, key_heads * head_dim], gate logits [1,
 * capacity, heads]. Kernel ridge: keys, rows of U and the factor (kernel_ridge_decode in hark/operators.h). Hierarchical: keys and values
 * [M, 2 Nr, key_heads * head_dim] of the last tokens of every level, and the sums [M, heads, head_dim + 2] that later rows share
 * (hierarchical_decode in hark/operators.h). Compressed: keys and values of the last two chunks, slots and global slots
 * (compressed_decode in hark/experimental.h). Absent parts have type HARK_NONE. */
enum {
  HARK_CACHE_KEY,
  HARK_CACHE_VALUE, /* kernel ridge: rows of U */
  HARK_CACHE_FORGET,
  HARK_CACHE_PARTIAL,
  HARK_CACHE_FACTOR,   /* kernel ridge */
  HARK_CACHE_SLOT_KEY, /* compressed, also the next three */
  HARK_CACHE_SLOT_VALUE,
  HARK_CACHE_GLOBAL_KEY,
  HARK_CACHE_GLOBAL_VALUE,
  HARK_CACHE_GLOBAL_ROWS, /* i64; where chunks end after delimiters */
  HARK_CACHE_PARTS
};
typedef struct hark_attention_cache {
  hark_tensor part[HARK_CACHE_PARTS];
} hark_attention_cache;

/* Sets types and shapes of a cache, without memory, which suffices for shape-only runs. */
HARK_MUST_CHECK hark_status hark_attention_cache_describe(hark_context *context, const hark_self_attention_spec *spec, hark_type type,
                                                          int64_t capacity, hark_attention_cache *out);
/* Allocates the memory of a described cache, cleared to zero. */
HARK_MUST_CHECK hark_status hark_attention_cache_create(hark_context *context, hark_attention_cache *cache);
void hark_attention_cache_destroy(hark_context *context, hark_attention_cache *cache);

/* Whether a separate operator attends to the cache: then passes with caches have no plan. */
bool hark_attention_cache_has_operator(const hark_self_attention_spec *spec);
/* Whether a cache can be cut to its first n tokens: their part equals a cache of n tokens. */
bool hark_attention_cache_goes_back(const hark_self_attention_spec *spec);
/* Count of numbers at the beginning of a part that belong to the first `tokens` tokens. It does not depend on the capacity, except through
 * the levels of a hierarchical cache. `finished`: number of chunks that another one follows, where they end after delimiters. */
int64_t hark_attention_cache_front(const hark_self_attention_spec *spec, const hark_attention_cache *cache, int part, int64_t tokens,
                                   int64_t levels, int64_t finished);
/* What attention to a cache uses in place of a table of log G: the output of an operator. */
typedef struct hark_attention_cache_table {
  const hark_operator *op; /* NULL: the table itself */
  union {
    hark_hierarchical_means_attributes means;
    hark_kernel_sums_attributes sums;
  } attributes;
} hark_attention_cache_table;
/* The distances of a table of log G that attention to a cache needs. */
int64_t hark_attention_cache_distances(const hark_self_attention_spec *spec, int64_t capacity);
hark_attention_cache_table hark_attention_cache_table_of(const hark_self_attention_spec *spec, int64_t capacity);

/* Appends the new rows to those in a part of the cache; *value becomes all rows. */
HARK_MUST_CHECK hark_status hark_attention_cache_append(hark_context *context, const hark_forward *forward, hark_tensor *cache,
                                                        hark_value *value);

/* Attention of the query, key and value at the beginning of `rows` and of the gate's logits, or 0, to the layer's cache, which it changes.
 * All are consumed. For layers with hark_attention_cache_has_operator(). */
HARK_MUST_CHECK hark_status hark_attention_cache_attend(const hark_forward *forward, const hark_self_attention *layer,
                                                        const hark_value *rows, hark_value gate, hark_value *out);

#endif
