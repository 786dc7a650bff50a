/* attention_cache.c - see attention_cache.h. */
#include "nn/attention_cache.h"

#include <hark/experimental.h>

#include "backend/backend.h"
#include "backend/chunk_kernel.h"
#include "backend/hierarchy.h"
#include "backend/kernel_ridge_decode.h"
#include "ops/compressed_decode.h"

/* The hierarchy for the tokens that a hierarchical cache has room for. */
static hark_hierarchy hierarchy_of(const hark_self_attention_spec *spec, int64_t length) {
  const hark_attention_desc desc = {.structure = HARK_STRUCTURE_HIERARCHICAL,
                                    .hierarchy_block = spec->choice.hierarchy_block,
                                    .partition = spec->choice.partition,
                                    .causal = spec->causal};
  return hark_hierarchy_make(&desc, length);
}

bool hark_attention_cache_has_operator(const hark_self_attention_spec *spec) {
  return spec->structure == HARK_STRUCTURE_HIERARCHICAL || spec->structure == HARK_STRUCTURE_COMPRESSED ||
         spec->normalisation == HARK_NORMALISATION_CME;
}

bool hark_attention_cache_goes_back(const hark_self_attention_spec *spec) {
  return spec->structure != HARK_STRUCTURE_HIERARCHICAL && spec->structure != HARK_STRUCTURE_COMPRESSED;
}

/* The operator of a compressed cache, for rows from `first` on. */
static hark_compressed_decode_attributes decode_of(const hark_self_attention_spec *spec, int64_t first) {
  const hark_chunk_ends ends = hark_attention_chunk_ends(&spec->choice);
  return (hark_compressed_decode_attributes){.heads = spec->heads,
                                             .key_heads = spec->key_heads,
                                             .chunk = spec->choice.chunk,
                                             .chunk_slots = spec->choice.chunk_slots,
                                             .selected_slots = spec->choice.selected_slots,
                                             .kept_chunks = spec->choice.kept_chunks,
                                             .global_slots = spec->choice.kept_chunks > 0 ? spec->choice.global_slots : 0,
                                             .first_position = first,
                                             .scale = hark_self_attention_scale(spec),
                                             .chunk_maximum = hark_attention_chunks_differ(&spec->choice) ? ends.maximum : 0};
}

hark_attention_cache_table hark_attention_cache_table_of(const hark_self_attention_spec *spec, int64_t capacity) {
  hark_attention_cache_table table = {0};
  if (spec->structure == HARK_STRUCTURE_HIERARCHICAL) {
    table.op = &hark_op_hierarchical_means;
    table.attributes.means = (hark_hierarchical_means_attributes){.hierarchy_block = spec->choice.hierarchy_block,
                                                                  .levels = hierarchy_of(spec, capacity).levels,
                                                                  .exact = spec->choice.coarse_query == HARK_COARSE_QUERY_EXACT};
  } else if (spec->structure == HARK_STRUCTURE_COMPRESSED) {
    const hark_compressed_decode_attributes decode = decode_of(spec, 0);
    const int64_t rows = decode.chunk_maximum > 0 ? decode.chunk_maximum : decode.chunk;
    table.op = &hark_op_kernel_sums;
    table.attributes.sums.levels = hark_chunk_part_levels(hark_ceil_div(rows, decode.chunk_slots));
  }
  return table;
}

int64_t hark_attention_cache_distances(const hark_self_attention_spec *spec, int64_t capacity) {
  const int64_t all = hark_self_attention_distances(spec, capacity), kept = spec->choice.kept_chunks;
  if (spec->structure != HARK_STRUCTURE_COMPRESSED || kept == 0) return all;
  const hark_compressed_decode_attributes decode = decode_of(spec, 0);
  return hark_min(all, (kept + 2) * (decode.chunk_maximum > 0 ? decode.chunk_maximum : decode.chunk));
}

int64_t hark_attention_cache_front(const hark_self_attention_spec *spec, const hark_attention_cache *cache, int part, int64_t tokens,
                                   int64_t levels, int64_t finished) {
  const hark_tensor *tensor = &cache->part[part];
  if (tensor->type == HARK_NONE) return 0;
  if (spec->structure == HARK_STRUCTURE_HIERARCHICAL) return levels * tensor->shape[1] * tensor->shape[2];
  if (spec->structure == HARK_STRUCTURE_COMPRESSED) {
    const hark_compressed_decode_attributes decode = decode_of(spec, 0);
    const hark_compressed_decode_sizes has = decode.chunk_maximum > 0 ? hark_compressed_decode_sizes_with(&decode, tokens, finished)
                                                                      : hark_compressed_decode_sizes_of(&decode, tokens);
    if (part == HARK_CACHE_KEY || part == HARK_CACHE_VALUE) return has.ring * tensor->shape[2];
    if (part == HARK_CACHE_GLOBAL_ROWS) return has.globals * tensor->shape[1];
    const bool slots = part == HARK_CACHE_SLOT_KEY || part == HARK_CACHE_SLOT_VALUE;
    return (slots ? has.chunks : has.globals) * tensor->shape[1] * tensor->shape[2];
  }
  return part == HARK_CACHE_FACTOR ? hark_ridge_decode_tiles(tokens) * tensor->shape[1] * tensor->shape[2] : tokens * tensor->shape[2];
}

static hark_status describe_hierarchical(hark_context *context, const hark_self_attention_spec *spec, hark_type type, int64_t capacity,
                                         hark_attention_cache *out) {
  const int64_t levels = hierarchy_of(spec, capacity).levels, partial[] = {levels, spec->heads, spec->head_dim + 2};
  const int64_t shape[] = {levels, 2 * spec->choice.hierarchy_block, spec->head_dim * spec->key_heads};
  HARK_TRY(hark_tensor_describe(context, type, 3, partial, &out->part[HARK_CACHE_PARTIAL]));
  HARK_TRY(hark_tensor_describe(context, type, 3, shape, &out->part[HARK_CACHE_KEY]));
  out->part[HARK_CACHE_VALUE] = out->part[HARK_CACHE_KEY];
  return HARK_OK;
}

static hark_status describe_compressed(hark_context *context, const hark_self_attention_spec *spec, hark_type type, int64_t capacity,
                                       hark_attention_cache *out) {
  const hark_compressed_decode_attributes decode = decode_of(spec, 0);
  const hark_compressed_decode_sizes has = hark_compressed_decode_sizes_of(&decode, capacity);
  const int64_t width = spec->head_dim * spec->key_heads, ring[] = {1, hark_max(1, has.ring), width};
  const int64_t slots[] = {hark_max(1, has.chunks), decode.chunk_slots, width}, global[] = {hark_max(1, has.globals), 2, width};
  const int64_t rows[] = {global[0], spec->key_heads};
  HARK_TRY(hark_tensor_describe(context, type, 3, ring, &out->part[HARK_CACHE_KEY]));
  HARK_TRY(hark_tensor_describe(context, type, 3, slots, &out->part[HARK_CACHE_SLOT_KEY]));
  HARK_TRY(hark_tensor_describe(context, type, 3, global, &out->part[HARK_CACHE_GLOBAL_KEY]));
  out->part[HARK_CACHE_VALUE] = out->part[HARK_CACHE_KEY];
  out->part[HARK_CACHE_SLOT_VALUE] = out->part[HARK_CACHE_SLOT_KEY];
  out->part[HARK_CACHE_GLOBAL_VALUE] = out->part[HARK_CACHE_GLOBAL_KEY];
  if (decode.chunk_maximum > 0) return hark_tensor_describe(context, HARK_I64, 2, rows, &out->part[HARK_CACHE_GLOBAL_ROWS]);
  return HARK_OK;
}

static hark_status describe_ridge(hark_context *context, const hark_self_attention_spec *spec, hark_type type, int64_t capacity,
                                  hark_attention_cache *out) {
  if (capacity > HARK_RIDGE_DECODE_CAPACITY)
    return hark_fail(context, HARK_TOO_LARGE, "cache: the factor of %lld tokens with normalisation cme, expected at most %lld",
                     (long long)capacity, (long long)HARK_RIDGE_DECODE_CAPACITY);
  const int64_t key[] = {1, capacity, spec->head_dim * spec->key_heads};
  const int64_t solved[] = {1, capacity, hark_ridge_decode_width(spec->head_dim) * spec->heads};
  const int64_t factor[] = {hark_ridge_decode_tiles(capacity), spec->heads, HARK_RIDGE_BAND_TILE};
  HARK_TRY(hark_tensor_describe(context, type, 3, key, &out->part[HARK_CACHE_KEY]));
  HARK_TRY(hark_tensor_describe(context, type, 3, solved, &out->part[HARK_CACHE_VALUE]));
  return hark_tensor_describe(context, type, 3, factor, &out->part[HARK_CACHE_FACTOR]);
}

hark_status hark_attention_cache_describe(hark_context *context, const hark_self_attention_spec *spec, hark_type type, int64_t capacity,
                                          hark_attention_cache *out) {
  *out = (hark_attention_cache){0};
  if (spec->structure == HARK_STRUCTURE_HIERARCHICAL) return describe_hierarchical(context, spec, type, capacity, out);
  if (spec->structure == HARK_STRUCTURE_COMPRESSED) return describe_compressed(context, spec, type, capacity, out);
  if (spec->normalisation == HARK_NORMALISATION_CME) return describe_ridge(context, spec, type, capacity, out);
  const int64_t key[] = {1, capacity, spec->head_dim * spec->key_heads}, gates[] = {1, capacity, spec->heads};
  HARK_TRY(hark_tensor_describe(context, type, 3, key, &out->part[HARK_CACHE_KEY]));
  out->part[HARK_CACHE_VALUE] = out->part[HARK_CACHE_KEY];
  return spec->choice.forget_gate ? hark_tensor_describe(context, type, 3, gates, &out->part[HARK_CACHE_FORGET]) : HARK_OK;
}

hark_status hark_attention_cache_create(hark_context *context, hark_attention_cache *cache) {
  for (int i = 0; i < HARK_CACHE_PARTS; i++) HARK_TRY(hark_tensor_allocate(context, &cache->part[i]));
  return HARK_OK;
}

void hark_attention_cache_destroy(hark_context *context, hark_attention_cache *cache) {
  for (int i = 0; i < HARK_CACHE_PARTS; i++) hark_tensor_destroy(context, &cache->part[i]);
}

hark_status hark_attention_cache_append(hark_context *context, const hark_forward *forward, hark_tensor *cache, hark_value *value) {
  const hark_tensor rows = *hark_tape_tensor(forward->tape, *value);
  const size_t row_bytes = (size_t)rows.shape[2] * hark_type_bytes(rows.type);
  hark_tensor all = *cache;
  all.owned_bytes = 0;
  all.shape[1] = forward->first_position + rows.shape[1];
  if (all.shape[1] > cache->shape[1])
    return hark_fail(context, HARK_INVALID_ARGUMENT, "cache: no room for more than %lld tokens", (long long)cache->shape[1]);
  if (rows.data != NULL) /* not in a shape-only run */
    HARK_TRY(hark_backend_copy(context, (char *)cache->data + (size_t)forward->first_position * row_bytes, rows.data,
                               (size_t)rows.shape[1] * row_bytes));
  hark_tape_release(forward->tape, *value);
  return hark_tape_leaf(forward->tape, &all, NULL, value);
}

enum { QUERY, KEY, VALUE, ROWS }; /* the first inputs of every operator */

/* Parts of the layer's cache as inputs of an operator, from input ROWS on. */
static hark_status take_parts(const hark_forward *forward, const hark_self_attention *layer, const int *parts, int count,
                              hark_value *inputs) {
  const hark_attention_cache *cache = &forward->caches[layer->layer];
  for (int i = 0; i < count; i++) HARK_TRY(hark_tape_leaf(forward->tape, &cache->part[parts[i]], NULL, &inputs[ROWS + i]));
  return HARK_OK;
}

/* The table of the layer's positional kernel in decoding. */
static hark_status take_table(const hark_forward *forward, const hark_self_attention *layer, hark_value *table) {
  const hark_self_attention_spec *spec = &layer->spec;
  if (!spec->positional) return HARK_OK;
  return hark_tape_leaf(forward->tape, &forward->log_kernels[layer->layer], NULL, table);
}

/* One pass through a hierarchical cache, which changes it; the rows are consumed. */
static hark_status attend_hierarchical(const hark_forward *forward, const hark_self_attention *layer, const hark_value *rows,
                                       hark_value *out) {
  enum { OWN_BIAS = ROWS + 3, MEANS, CACHE_INPUTS }; /* the operator's */
  static const int parts[] = {HARK_CACHE_KEY, HARK_CACHE_VALUE, HARK_CACHE_PARTIAL};
  const hark_self_attention_spec *spec = &layer->spec;
  const double sigma = hark_self_attention_sigma(spec);
  hark_value inputs[CACHE_INPUTS] = {rows[QUERY], rows[KEY], rows[VALUE]};
  HARK_TRY(take_parts(forward, layer, parts, OWN_BIAS - ROWS, inputs));
  HARK_TRY(hark_forward_parameter(forward, layer->hierarchical_bias, &inputs[OWN_BIAS]));
  HARK_TRY(take_table(forward, layer, &inputs[MEANS]));
  const hark_hierarchical_decode_attributes attributes = {
      .heads = spec->heads,
      .key_heads = spec->key_heads,
      .hierarchy_block = spec->choice.hierarchy_block,
      .first_position = forward->first_position,
      .partition = spec->choice.partition,
      .coarse_query = spec->choice.coarse_query == HARK_COARSE_QUERY_EXACT ? HARK_COARSE_QUERY_EXACT : HARK_COARSE_QUERY_FIRST,
      .kernel = spec->choice.kernel,
      .scale = spec->choice.kernel == HARK_KERNEL_RBF ? 1 / (sigma * sigma) : hark_self_attention_scale(spec)};
  return hark_tape_apply(forward->tape, &hark_op_hierarchical_decode, &attributes, CACHE_INPUTS, inputs, (1u << ROWS) - 1, out);
}

/* The same through the cache of kernel ridge attention. */
static hark_status attend_ridge(const hark_forward *forward, const hark_self_attention *layer, const hark_value *rows, hark_value gate,
                                hark_value *out) {
  enum { LOG_RIDGE = ROWS + 3, LOG_SIGMA, TABLE, NOISE, RIDGE_INPUTS }; /* the operator's */
  static const int parts[] = {HARK_CACHE_KEY, HARK_CACHE_VALUE, HARK_CACHE_FACTOR};
  const hark_self_attention_spec *spec = &layer->spec;
  hark_value inputs[RIDGE_INPUTS] = {rows[QUERY], rows[KEY], rows[VALUE]};
  HARK_TRY(hark_self_attention_noise(forward, gate, true, &inputs[NOISE]));
  HARK_TRY(take_parts(forward, layer, parts, LOG_RIDGE - ROWS, inputs));
  HARK_TRY(hark_forward_parameter(forward, layer->log_ridge, &inputs[LOG_RIDGE]));
  HARK_TRY(hark_forward_parameter(forward, layer->log_sigma, &inputs[LOG_SIGMA]));
  HARK_TRY(take_table(forward, layer, &inputs[TABLE]));
  const hark_kernel_ridge_decode_attributes attributes = {
      .heads = spec->heads,
      .key_heads = spec->key_heads,
      .first_position = forward->first_position,
      .kernel = spec->choice.kernel,
      .unit = spec->choice.unit,
      .ridge = spec->ridge,
      .scale = hark_self_attention_scale(spec),
      .sigma = spec->choice.kernel == HARK_KERNEL_RBF ? hark_self_attention_sigma(spec) : 0,
      .report = forward->report};
  return hark_tape_apply(forward->tape, &hark_op_kernel_ridge_decode, &attributes, inputs[NOISE] != 0 ? RIDGE_INPUTS : NOISE, inputs,
                         ((1u << ROWS) - 1) | 1u << NOISE, out);
}

/* The same through the cache of compressed attention. */
static hark_status attend_compressed(const hark_forward *forward, const hark_self_attention *layer, const hark_value *rows,
                                     hark_value *out) {
  static const int parts[] = {HARK_CACHE_KEY,        HARK_CACHE_VALUE,      HARK_CACHE_SLOT_KEY,
                              HARK_CACHE_SLOT_VALUE, HARK_CACHE_GLOBAL_KEY, HARK_CACHE_GLOBAL_VALUE};
  enum { PARTS = (int)(sizeof parts / sizeof *parts), STARTS = ROWS + PARTS, GLOBAL_ROWS, LOG_SUMS, DECODE_INPUTS }; /* the operator's */
  const hark_self_attention_spec *spec = &layer->spec;
  const hark_attention_cache *cache = &forward->caches[layer->layer];
  hark_value inputs[DECODE_INPUTS] = {rows[QUERY], rows[KEY], rows[VALUE]};
  HARK_TRY(take_parts(forward, layer, parts, PARTS, inputs));
  const hark_compressed_decode_attributes attributes = decode_of(spec, forward->first_position);
  if (attributes.chunk_maximum > 0) {
    HARK_TRY(hark_tape_leaf(forward->tape, forward->chunk_starts, NULL, &inputs[STARTS]));
    HARK_TRY(hark_tape_leaf(forward->tape, &cache->part[HARK_CACHE_GLOBAL_ROWS], NULL, &inputs[GLOBAL_ROWS]));
  }
  HARK_TRY(take_table(forward, layer, &inputs[LOG_SUMS]));
  const int count = spec->positional ? DECODE_INPUTS : attributes.chunk_maximum > 0 ? LOG_SUMS : STARTS;
  return hark_tape_apply(forward->tape, &hark_op_compressed_decode, &attributes, count, inputs, (1u << ROWS) - 1, out);
}

hark_status hark_attention_cache_attend(const hark_forward *forward, const hark_self_attention *layer, const hark_value *rows,
                                        hark_value gate, hark_value *out) {
  if (layer->spec.structure == HARK_STRUCTURE_HIERARCHICAL) return attend_hierarchical(forward, layer, rows, out);
  if (layer->spec.structure == HARK_STRUCTURE_COMPRESSED) return attend_compressed(forward, layer, rows, out);
  return attend_ridge(forward, layer, rows, gate, out);
}
