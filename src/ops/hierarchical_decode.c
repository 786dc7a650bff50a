/* hierarchical_decode.c - causal hierarchical attention of new tokens with a cache of earlier ones, in O(Nr log L) memory.
 *
 *     level l of the cache: the last 2 Nr tokens of the level, in a ring: the current block and the previous one
 *     first    partial[l] = (m, Z, Y) of the levels l and above, the same for all rows of a cell of level l:
 *              where a cell of level l begins,  partial[l] = partial[l + 1] + entries of level l;   a row: partial[1] + entries of level 0
 *     exact    every row computes the entries of all levels
 *
 * Row n begins a cell of level l if 2^l divides n. So `first` costs O(Nr) per row on average and O(Nr log L) at worst, `exact` always O(Nr
 * log L). To the left of its block, a row attends only to complete cells. A cell of level l is complete, and computed from its two
 * children, after row n if 2^l divides n + 1. Row 0 begins the cells of all levels, so a cache needs no other initialisation. Equal to the
 * rows of HARK_STRUCTURE_HIERARCHICAL up to rounding. H-Transformer-1D, sections 5-7, eq. 25-29 and 73; docs/mathematics/hierarchical.md.
 */
#include <inttypes.h>

#include "backend/hierarchy.h"
#include "core/range.h"
#include "io/number.h"
#include "ops/definition.h"

enum { INPUT_QUERY, INPUT_KEY, INPUT_VALUE, INPUT_CACHED_KEY, INPUT_CACHED_VALUE, INPUT_PARTIAL, INPUT_BIAS, INPUT_MEANS, INPUT_COUNT };

#define OPERATIONS_PER_PRODUCT 2.0

/* ---- shapes ---- */

/* The hierarchy of a cache with `levels` levels. */
static hark_hierarchy hierarchy_of(const hark_hierarchical_decode_attributes *decode, int64_t levels) {
  return (hark_hierarchy){.length = decode->hierarchy_block << levels,
                          .block = decode->hierarchy_block,
                          .causal = true,
                          .sibling = decode->partition == HARK_PARTITION_SIBLING,
                          .levels = (int)levels};
}

/* Checks that there is one table, or one per head. */
static hark_status check_table(hark_context *context, const char *name, const hark_tensor *tensor, int64_t heads, int64_t width) {
  const int64_t expected[] = {tensor->shape[0] == 1 ? 1 : heads, width};
  return hark_check_shape(context, &hark_op_hierarchical_decode, name, tensor, 2, expected);
}

static hark_status check_attributes(hark_context *context, const hark_hierarchical_decode_attributes *decode, hark_type type) {
  if (decode->heads < 1 || decode->key_heads < 1 || decode->heads % decode->key_heads != 0)
    return hark_fail(context, HARK_INVALID_ARGUMENT,
                     "hierarchical_decode: heads is %" PRId64 ", expected a multiple of key_heads = %" PRId64, decode->heads,
                     decode->key_heads);
  if (decode->hierarchy_block < 2 || decode->hierarchy_block % 2 != 0 || decode->hierarchy_block > (int64_t)1 << 20)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "hierarchical_decode: hierarchy_block is %" PRId64 ", expected an even number to 2^20",
                     decode->hierarchy_block);
  if (decode->coarse_query != HARK_COARSE_QUERY_FIRST && decode->coarse_query != HARK_COARSE_QUERY_EXACT)
    return hark_fail(context, HARK_UNSUPPORTED,
                     "hierarchical_decode: coarse_query is %d, expected first or exact: a row cannot depend on later ones",
                     (int)decode->coarse_query);
  if (decode->partition != HARK_PARTITION_NEIGHBOUR && decode->partition != HARK_PARTITION_SIBLING)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "hierarchical_decode: partition is %d, expected one of hark_hierarchy_partition",
                     (int)decode->partition);
  if (decode->kernel != HARK_KERNEL_EXP && decode->kernel != HARK_KERNEL_RBF)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "hierarchical_decode: kernel is %d, expected one of hark_attention_kernel",
                     (int)decode->kernel);
  if (!isfinite(decode->scale) || (decode->kernel == HARK_KERNEL_RBF && decode->scale <= 0))
    return hark_fail(context, HARK_INVALID_ARGUMENT, "hierarchical_decode: scale is %s, expected a finite number, above 0 with kernel rbf",
                     HARK_PRINTED(decode->scale));
  HARK_TRY(hark_check_range(context, "hierarchical_decode", "scale", decode->scale, type, hark_range_of_scale(type)));
  if (decode->first_position < 0)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "hierarchical_decode: first_position is %" PRId64 ", expected 0 or more",
                     decode->first_position);
  return HARK_OK;
}

static hark_status infer(hark_context *context, const void *attributes, const hark_tensor *inputs, int input_count, hark_inferred *out) {
  static const hark_input_rule rules[INPUT_COUNT] = {
      {"query", HARK_F32, 3, 3},        {"key", HARK_F32, 3, 3},     {"value", HARK_F32, 3, 3}, {"cached_key", HARK_F32, 3, 3},
      {"cached_value", HARK_F32, 3, 3}, {"partial", HARK_F32, 3, 3}, {"bias", HARK_F32, 2, 2},  {"means", HARK_F32, 2, 2}};
  const hark_hierarchical_decode_attributes *decode = attributes;
  HARK_TRY(hark_check_inputs(context, &hark_op_hierarchical_decode, rules, attributes, inputs, input_count));
  HARK_TRY(check_attributes(context, decode, inputs[INPUT_QUERY].type));
  const hark_tensor *query = &inputs[INPUT_QUERY], *key = &inputs[INPUT_KEY], *value = &inputs[INPUT_VALUE];
  HARK_TRY(hark_check_decoder_rows(context, &hark_op_hierarchical_decode, query, key, value, decode->heads, decode->key_heads));
  const int64_t rows = query->shape[1], levels = inputs[INPUT_CACHED_KEY].shape[0], ring = 2 * decode->hierarchy_block;
  const int64_t head_dim = query->shape[2] / decode->heads, value_dim = value->shape[2] / decode->key_heads;
  char text[HARK_SHAPE_TEXT_BYTES];
  if (levels < 1 || levels > HARK_HIERARCHY_MAX_LEVELS || decode->first_position > (decode->hierarchy_block << levels) - rows)
    return hark_fail(context, HARK_SHAPE_MISMATCH,
                     "hierarchical_decode: cached_key has %s, which is not a cache of %" PRId64 " + %" PRId64
                     " tokens in blocks of %" PRId64,
                     hark_shape_text(&inputs[INPUT_CACHED_KEY], text, sizeof text), decode->first_position, rows, decode->hierarchy_block);
  const int64_t cached_keys[] = {levels, ring, key->shape[2]}, cached_values[] = {levels, ring, value->shape[2]};
  const int64_t partials[] = {levels, decode->heads, value_dim + 2};
  HARK_TRY(hark_check_shape(context, &hark_op_hierarchical_decode, "cached_key", &inputs[INPUT_CACHED_KEY], 3, cached_keys));
  HARK_TRY(hark_check_shape(context, &hark_op_hierarchical_decode, "cached_value", &inputs[INPUT_CACHED_VALUE], 3, cached_values));
  HARK_TRY(hark_check_shape(context, &hark_op_hierarchical_decode, "partial", &inputs[INPUT_PARTIAL], 3, partials));
  if (hark_has_input(inputs, input_count, INPUT_BIAS))
    HARK_TRY(check_table(context, "bias", &inputs[INPUT_BIAS], decode->heads, 2 * ring - 1));
  if (hark_has_input(inputs, input_count, INPUT_MEANS)) {
    const hark_hierarchy h = hierarchy_of(decode, levels);
    const int64_t width = decode->coarse_query == HARK_COARSE_QUERY_EXACT ? hark_hierarchy_reach(&h) : ring;
    HARK_TRY(check_table(context, "means", &inputs[INPUT_MEANS], decode->heads, levels * width));
  }
  const int64_t shape[] = {1, rows, value_dim * decode->heads};
  out->forward_workspace = (size_t)decode->key_heads * (size_t)(head_dim + value_dim) * sizeof(double);
  return hark_tensor_describe(context, query->type, 3, shape, &out->outputs[0]);
}

/* ---- one row ---- */

/* Sums of a head so far: sum_b c_b e^s_b and sum_b e^s_b v_b, relative to e^highest. */
typedef struct gathered {
  double highest, sum;
  double *mixed; /* [dv] */
} gathered;

typedef struct decoder_head {
  const hark_call *call;
  const hark_hierarchical_decode_attributes *decode;
  hark_hierarchy hierarchy;
  int64_t head, key_head, head_dim, value_dim, ring, mean_width;
  hark_numbers cached_key, cached_value, bias, means; /* of this head; data NULL: none */
} decoder_head;

static hark_numbers table_of(const hark_call *call, int input, int64_t head) {
  if (!hark_has_input(call->inputs, call->input_count, input)) return (hark_numbers){0};
  const hark_tensor *table = &call->inputs[input];
  return hark_numbers_from(hark_numbers_of(table), table->shape[0] == 1 ? 0 : head * table->shape[1]);
}

static decoder_head open_head(const hark_call *call, int64_t head) {
  const hark_hierarchical_decode_attributes *decode = call->attributes;
  decoder_head at = {.call = call, .decode = decode, .head = head};
  at.key_head = head / (decode->heads / decode->key_heads);
  at.hierarchy = hierarchy_of(decode, call->inputs[INPUT_CACHED_KEY].shape[0]);
  at.head_dim = call->inputs[INPUT_QUERY].shape[2] / decode->heads;
  at.value_dim = call->inputs[INPUT_VALUE].shape[2] / decode->key_heads;
  at.ring = 2 * decode->hierarchy_block;
  at.mean_width = decode->coarse_query == HARK_COARSE_QUERY_EXACT ? hark_hierarchy_reach(&at.hierarchy) : at.ring;
  at.cached_key = hark_numbers_from(hark_numbers_of(&call->inputs[INPUT_CACHED_KEY]), at.key_head * at.head_dim);
  at.cached_value = hark_numbers_from(hark_numbers_of(&call->inputs[INPUT_CACHED_VALUE]), at.key_head * at.value_dim);
  at.bias = table_of(call, INPUT_BIAS, head);
  at.means = table_of(call, INPUT_MEANS, head);
  return at;
}

/* Index of a level's token in a cache whose rows have `width` numbers. */
static int64_t cached_at(const decoder_head *at, int64_t level, int64_t token, int64_t width) {
  return (level * at->ring + token % at->ring) * width;
}

static double logit(const decoder_head *at, const double *query, int64_t n, int level, int64_t key) {
  const hark_numbers k = hark_numbers_from(at->cached_key, cached_at(at, level, key, at->decode->key_heads * at->head_dim));
  const int64_t token = n >> level;
  double sum = 0;
  if (at->decode->kernel == HARK_KERNEL_RBF) {
    for (int64_t c = 0; c < at->head_dim; c++) sum += (query[c] - hark_get(k, c)) * (query[c] - hark_get(k, c));
    sum = -0.5 * sum;
  } else {
    for (int64_t c = 0; c < at->head_dim; c++) sum += query[c] * hark_get(k, c);
  }
  sum *= at->decode->scale;
  double added = at->bias.data != NULL ? hark_get(at->bias, key - token + at->ring - 1) : 0;
  if (at->means.data != NULL) {
    const int64_t apart = at->decode->coarse_query == HARK_COARSE_QUERY_EXACT ? n - (key << level) : token - key;
    added += hark_get(at->means, level * at->mean_width + apart);
  }
  return added == -INFINITY ? added : sum + added; /* masked, whatever the key contains */
}

/* Adds the entries of row n's token of a level with its keys. */
static void meet(const decoder_head *at, const double *query, int64_t n, int level, gathered *rows) {
  const hark_hierarchy_range keys = hark_hierarchy_meets(&at->hierarchy, level, n >> level).range[0];
  const double count = ldexp(1, level);
  for (int64_t key = keys.from; key < keys.to; key++) {
    const double s = logit(at, query, n, level, key);
    if (s == -INFINITY) continue;
    if (s > rows->highest || isnan(s)) { /* a NaN logit makes the row NaN */
      const double less = exp(rows->highest - s);
      rows->sum *= less;
      for (int64_t c = 0; c < at->value_dim; c++) rows->mixed[c] *= less;
      rows->highest = s;
    }
    const double weight = exp(s - rows->highest);
    const hark_numbers v = hark_numbers_from(at->cached_value, cached_at(at, level, key, at->decode->key_heads * at->value_dim));
    rows->sum += count * weight;
    for (int64_t c = 0; c < at->value_dim; c++) rows->mixed[c] += weight * hark_get(v, c);
  }
}

static void begin_empty(const decoder_head *at, gathered *rows) {
  rows->highest = -INFINITY;
  rows->sum = 0;
  for (int64_t c = 0; c < at->value_dim; c++) rows->mixed[c] = 0;
}

/* partial[level], [highest, sum, mixed...]: the sums are relative to e^highest with `highest` as stored, which f32 rounds. */
static hark_numbers partial_at(const decoder_head *at, int level) {
  const int64_t width = at->value_dim + 2;
  return hark_numbers_from(hark_numbers_of(&at->call->inputs[INPUT_PARTIAL]), (level * at->decode->heads + at->head) * width);
}

static void load_partial(const decoder_head *at, int level, gathered *rows) {
  if (level >= at->hierarchy.levels) {
    begin_empty(at, rows);
    return;
  }
  const hark_numbers partial = partial_at(at, level);
  rows->highest = hark_get(partial, 0);
  rows->sum = hark_get(partial, 1);
  for (int64_t c = 0; c < at->value_dim; c++) rows->mixed[c] = hark_get(partial, 2 + c);
}

static void store_partial(const decoder_head *at, int level, const gathered *rows) {
  const hark_numbers partial = partial_at(at, level);
  hark_put(partial, 0, rows->highest);
  /* Beyond e^40 the logits are so large that f32 cannot distinguish weights. */
  const double stored = hark_get(partial, 0), less = isfinite(stored) ? exp(fmax(-40, fmin(40, rows->highest - stored))) : 1;
  hark_put(partial, 1, less * rows->sum);
  for (int64_t c = 0; c < at->value_dim; c++) hark_put(partial, 2 + c, less * rows->mixed[c]);
}

static void attend(const decoder_head *at, int64_t row, double *memory) {
  const int64_t n = at->decode->first_position + row;
  const hark_numbers from =
      hark_numbers_from(hark_numbers_of(&at->call->inputs[INPUT_QUERY]), (row * at->decode->heads + at->head) * at->head_dim);
  const hark_numbers to = hark_numbers_from(hark_numbers_of(&at->call->outputs[0]), (row * at->decode->heads + at->head) * at->value_dim);
  double *const query = memory;
  gathered rows = {.mixed = memory + at->head_dim};
  for (int64_t c = 0; c < at->head_dim; c++) query[c] = hark_get(from, c);
  if (at->decode->coarse_query == HARK_COARSE_QUERY_EXACT) {
    begin_empty(at, &rows);
    for (int level = at->hierarchy.levels - 1; level > 0; level--) meet(at, query, n, level, &rows);
  } else {
    int begun = 0; /* the highest level with a cell that begins here */
    while (begun + 1 < at->hierarchy.levels && n % ((int64_t)1 << (begun + 1)) == 0) begun++;
    load_partial(at, begun + 1, &rows);
    for (int level = begun; level > 0; level--) {
      meet(at, query, n, level, &rows);
      store_partial(at, level, &rows);
    }
  }
  meet(at, query, n, 0, &rows);
  for (int64_t c = 0; c < at->value_dim; c++) hark_put(to, c, rows.highest == -INFINITY ? 0 : rows.mixed[c] / rows.sum);
}

/* ---- the cache ---- */

/* Writes row n to a ring's lowest level, and the cells that it completes: means of keys, sums of values. */
static void append(const decoder_head *at, int input, hark_numbers cached, int64_t row, int64_t width, double share) {
  const int64_t n = at->decode->first_position + row, step = at->decode->key_heads * width;
  const hark_numbers new = hark_numbers_from(hark_numbers_of(&at->call->inputs[input]), row * step + at->key_head * width);
  const hark_numbers lowest = hark_numbers_from(cached, cached_at(at, 0, n, step));
  for (int64_t c = 0; c < width; c++) hark_put(lowest, c, hark_get(new, c));
  for (int level = 1; level < at->hierarchy.levels && (n + 1) % ((int64_t)1 << level) == 0; level++) {
    const int64_t token = n >> level;
    const hark_numbers parent = hark_numbers_from(cached, cached_at(at, level, token, step));
    const hark_numbers left = hark_numbers_from(cached, cached_at(at, level - 1, 2 * token, step));
    const hark_numbers right = hark_numbers_from(cached, cached_at(at, level - 1, 2 * token + 1, step));
    for (int64_t c = 0; c < width; c++) hark_put(parent, c, share * (hark_get(left, c) + hark_get(right, c)));
  }
}

/* Heads that share a key head share its part of the cache. They are one piece of work, row after row. */
static void forward_heads(const hark_call *call, int64_t first, int64_t last) {
  const hark_hierarchical_decode_attributes *decode = call->attributes;
  const int64_t group = decode->heads / decode->key_heads;
  for (int64_t key_head = first; key_head < last; key_head++) {
    const decoder_head owner = open_head(call, key_head * group);
    double *const memory = (double *)call->workspace + key_head * (owner.head_dim + owner.value_dim);
    for (int64_t row = 0; row < call->inputs[INPUT_QUERY].shape[1]; row++) {
      append(&owner, INPUT_KEY, owner.cached_key, row, owner.head_dim, 0.5);
      append(&owner, INPUT_VALUE, owner.cached_value, row, owner.value_dim, 1);
      for (int64_t head = key_head * group; head < (key_head + 1) * group; head++) {
        const decoder_head at = open_head(call, head);
        attend(&at, row, memory);
      }
    }
  }
}

static hark_status forward(hark_context *context, const hark_call *call) {
  const hark_hierarchical_decode_attributes *decode = call->attributes;
  hark_range_for(context, call, decode->key_heads, 1, forward_heads);
  return HARK_OK;
}

/* ---- the operator ---- */

/* Number of keys that the rows attend to, on all levels together. */
static double entries(const hark_hierarchical_decode_attributes *decode, const hark_tensor *inputs) {
  const hark_hierarchy h = hierarchy_of(decode, inputs[INPUT_CACHED_KEY].shape[0]);
  double count = 0;
  for (int64_t row = 0; row < inputs[INPUT_QUERY].shape[1]; row++) {
    const int64_t n = decode->first_position + row;
    for (int level = 0; level < h.levels; level++) {
      if (decode->coarse_query == HARK_COARSE_QUERY_FIRST && n % ((int64_t)1 << level) != 0) break;
      const hark_hierarchy_range keys = hark_hierarchy_meets(&h, level, n >> level).range[0];
      count += (double)(keys.to - keys.from);
    }
  }
  return count;
}

static double operations(const void *attributes, const hark_tensor *inputs, int input_count, bool is_backward) {
  const hark_hierarchical_decode_attributes *decode = attributes;
  (void)input_count;
  if (is_backward) return 0;
  const double features = (double)(inputs[INPUT_QUERY].shape[2] + decode->heads * (inputs[INPUT_VALUE].shape[2] / decode->key_heads));
  return OPERATIONS_PER_PRODUCT * features * entries(decode, inputs);
}

static int64_t terms(const void *attributes, const hark_tensor *inputs, int input_count) {
  const hark_hierarchical_decode_attributes *decode = attributes;
  (void)input_count;
  return inputs[INPUT_QUERY].shape[2] / decode->heads + 2 * decode->hierarchy_block * inputs[INPUT_CACHED_KEY].shape[0];
}

#define DECODE(...)                                                                                                                        \
  { .partition = HARK_PARTITION_NEIGHBOUR, .coarse_query = HARK_COARSE_QUERY_FIRST, .kernel = HARK_KERNEL_EXP, __VA_ARGS__ }
static const hark_hierarchical_decode_attributes beginning = DECODE(.heads = 1, .key_heads = 1, .hierarchy_block = 2, .scale = 0.5),
                                                 later = DECODE(.heads = 4, .key_heads = 2, .hierarchy_block = 4, .first_position = 29,
                                                                .scale = 0.3),
                                                 exact = {.heads = 2,
                                                          .key_heads = 2,
                                                          .hierarchy_block = 4,
                                                          .first_position = 16,
                                                          .partition = HARK_PARTITION_SIBLING,
                                                          .coarse_query = HARK_COARSE_QUERY_EXACT,
                                                          .kernel = HARK_KERNEL_RBF,
                                                          .scale = 0.7};

#define REAL(low, high, ...)                                                                                                               \
  { HARK_F32, 3, {__VA_ARGS__}, low, high }
static const hark_sample samples[] = {
    {"beginning",
     &beginning,
     {REAL(-2, 2, 1, 11, 3), REAL(-2, 2, 1, 11, 3), REAL(-2, 2, 1, 11, 5), REAL(-2, 2, 3, 4, 3), REAL(-2, 2, 3, 4, 5),
      REAL(0, 1, 3, 1, 7)}},
    {"grouped_later_bias",
     &later,
     {REAL(-2, 2, 1, 6, 32),
      REAL(-2, 2, 1, 6, 16),
      REAL(-2, 2, 1, 6, 16),
      REAL(-2, 2, 4, 8, 16),
      REAL(-2, 2, 4, 8, 16),
      REAL(0.5, 1, 4, 4, 10),
      {HARK_F32, 2, {4, 15}, -1, 1}}},
    {"exact_sibling_rbf_means",
     &exact,
     {REAL(-2, 2, 1, 3, 10),
      REAL(-2, 2, 1, 3, 10),
      REAL(-2, 2, 1, 3, 6),
      REAL(-2, 2, 3, 8, 10),
      REAL(-2, 2, 3, 8, 6),
      REAL(0, 1, 3, 2, 5),
      {HARK_NONE, 0, {0}, 0, 0},
      {HARK_F32, 2, {1, 96}, -1, 0}}},
};

const hark_operator hark_op_hierarchical_decode = {
    .name = "hierarchical_decode",
    .formula = "y = attention of new rows to a cache of the last 2 Nr tokens of every level",
    .attributes_size = sizeof(hark_hierarchical_decode_attributes),
    .input_minimum = INPUT_BIAS,
    .input_maximum = INPUT_COUNT,
    .output_count = 1,
    .updates = 1u << INPUT_CACHED_KEY | 1u << INPUT_CACHED_VALUE | 1u << INPUT_PARTIAL,
    .infer = infer,
    .forward = forward,
    .operations = operations,
    .terms = terms,
    .samples = samples,
    .sample_count = sizeof samples / sizeof samples[0],
};
