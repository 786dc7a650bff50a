/* hierarchical_decode.c - hierarchical attention of new rows after a cache, in f32: the record's loops (ops/hierarchical_decode.c), in
 * vectors.
 *
 * The keys that a row meets on a level are a range of a ring of 2 Nr rows, at most two contiguous stretches of memory. A stretch is
 * processed CHUNK keys at a time: logits, their maximum, weights, and the weighted values; previous sums are scaled down if the maximum
 * grew. Lanes are features. Cost: d + dv multiply-adds per key. Memory: a row of values per key head, in the record's workspace.
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "backend/cpu/isa/distances.h"
#include "backend/cpu/isa/row_products.h"
#include "backend/hierarchy.h"

enum { QUERY, KEY, VALUE, CACHED_KEY, CACHED_VALUE, PARTIAL, BIAS, MEANS };

#define CHUNK 64
#define SERIAL_PRODUCTS 262144 /* multiply-adds below which a second thread costs more than it saves */

typedef struct decoder {
  const hark_call *call;
  const hark_hierarchical_decode_attributes *decode;
  hark_hierarchy hierarchy;
  int64_t ring, head, key_head, mean_width;
  int head_dim, value_dim;
  float *cached_key, *cached_value; /* of the key head */
  int64_t key_step, value_step;     /* from one token to the next */
  const float *bias, *means;        /* of the head; NULL: none */
} decoder;

/* Sums of a head over the keys so far: sum_b c_b e^s_b and sum_b e^s_b v_b, relative to e^highest. */
typedef struct gathered {
  float highest, sum;
  float *mixed; /* [dv] */
} gathered;

static const float *table_of(const hark_call *call, int input, int64_t head) {
  if (input >= call->input_count || call->inputs[input].type == HARK_NONE) return NULL;
  const hark_tensor *table = &call->inputs[input];
  return (const float *)table->data + (table->shape[0] == 1 ? 0 : head * table->shape[1]);
}

static decoder open_decoder(const hark_call *call, int64_t head) {
  const hark_hierarchical_decode_attributes *decode = call->attributes;
  const int levels = (int)call->inputs[CACHED_KEY].shape[0];
  decoder d = {.call = call, .decode = decode, .head = head, .key_head = head / (decode->heads / decode->key_heads)};
  d.hierarchy = (hark_hierarchy){.length = decode->hierarchy_block << levels,
                                 .block = decode->hierarchy_block,
                                 .causal = true,
                                 .sibling = decode->partition == HARK_PARTITION_SIBLING,
                                 .levels = levels};
  d.ring = 2 * decode->hierarchy_block;
  d.mean_width = decode->coarse_query == HARK_COARSE_QUERY_EXACT ? hark_hierarchy_reach(&d.hierarchy) : d.ring;
  d.head_dim = (int)(call->inputs[QUERY].shape[2] / decode->heads);
  d.value_dim = (int)(call->inputs[VALUE].shape[2] / decode->key_heads);
  d.key_step = decode->key_heads * d.head_dim;
  d.value_step = decode->key_heads * d.value_dim;
  d.cached_key = (float *)call->inputs[CACHED_KEY].data + d.key_head * d.head_dim;
  d.cached_value = (float *)call->inputs[CACHED_VALUE].data + d.key_head * d.value_dim;
  d.bias = table_of(call, BIAS, head);
  d.means = table_of(call, MEANS, head);
  return d;
}

/* The row of a token in the ring of its level. */
HARK_SIMD int64_t slot_of(const decoder *d, int level, int64_t token) { return level * d->ring + token % d->ring; }

HARK_SIMD float squared_distance(const float *a, const float *b, int width) {
  vf sum = vf_zero();
  for (int c = 0; c < width; c += HARK_LANES) {
    const int lanes = width - c < HARK_LANES ? width - c : HARK_LANES;
    const vf apart = load_lanes(a + c, lanes) - load_lanes(b + c, lanes);
    sum = vf_fma(apart, apart, sum);
  }
  return vf_sum(sum);
}

/* Below this logit a squared distance is computed in float64: its rounding would change a weight by more than 2^-18. */
#define FAR_LOGIT (-64.0f)

/* Logits of row n with `count` contiguous keys of a level from `key` on, filled up to whole vectors with -infinity. *far: some logits need
 * float64; then `fine` contains all. True: some are not hidden. */
static bool make_logits(const decoder *d, const float *query, int64_t n, int level, int64_t key, int count, float *logits, double *fine,
                        bool *far) {
  const float scale = (float)d->decode->scale, *keys = d->cached_key + slot_of(d, level, key) * d->key_step;
  const bool rbf = d->decode->kernel == HARK_KERNEL_RBF, exact = d->decode->coarse_query == HARK_COARSE_QUERY_EXACT;
  const int64_t token = n >> level;
  double added_to[CHUNK];
  bool any = false;
  for (int i = 0; i < count; i++) {
    const float *row = keys + i * d->key_step;
    float s = rbf ? -0.5f * scale * squared_distance(query, row, d->head_dim) : scale * inner_product(query, row, d->head_dim);
    double added = d->bias != NULL ? (double)d->bias[key + i - token + d->ring - 1] : 0.0;
    if (d->means != NULL) added += (double)d->means[level * d->mean_width + (exact ? n - ((key + i) << level) : token - (key + i))];
    s = added == -INFINITY ? -INFINITY : s + (float)hark_larger(-FLT_MAX, added); /* only -infinity hides, whatever the key contains */
    logits[i] = s;
    any = any || s != -INFINITY;
    added_to[i] = added;
  }
  *far = false;
  for (int i = 0; i < count && rbf; i++) *far = *far || (logits[i] < FAR_LOGIT && added_to[i] != -INFINITY);
  for (int i = 0; i < count && *far; i++)
    fine[i] = added_to[i] == -INFINITY ? -INFINITY
                                       : hark_larger(-FLT_MAX, added_to[i]) -
                                             0.5 * d->decode->scale * hark_squared_distance(query, keys + i * d->key_step, d->head_dim);
  for (int i = count; i % HARK_LANES != 0; i++) logits[i] = -INFINITY;
  return any;
}

/* Adds `count` keys of a level, each of which represents 2^level rows. */
static void meet_stretch(const decoder *d, const float *query, int64_t n, int level, int64_t key, int count, gathered *row) {
  float logits[CHUNK + HARK_LANES];
  double fine[CHUNK];
  bool far;
  if (!make_logits(d, query, n, level, key, count, logits, fine, &far)) return;
  float highest = row->highest;
  for (int i = 0; i < count; i++) highest = (float)hark_larger((double)highest, (double)logits[i]);
  for (int i = 0; i < count && far && highest != -INFINITY; i++) logits[i] = (float)(fine[i] - (double)highest);
  const vf shift = vf_set(far && highest != -INFINITY ? 0.0f : highest);
  const float less = row->highest == highest ? 1.0f : expf(row->highest - highest);
  const vf hidden = vf_set(-INFINITY);
  vf total = vf_zero();
  for (int i = 0; i < count; i += HARK_LANES) {
    const vf s = vf_load(logits + i), weight = vf_select(vf_equal(s, hidden), vf_zero(), vf_exp(s - shift));
    total = total + weight;
    vf_store(logits + i, weight);
  }
  row->highest = highest;
  row->sum = less * row->sum + ldexpf(vf_sum(total), level);
  const float *values = d->cached_value + slot_of(d, level, key) * d->value_step;
  for (int c = 0; c < d->value_dim; c += HARK_LANES) {
    const int lanes = d->value_dim - c < HARK_LANES ? d->value_dim - c : HARK_LANES;
    vf sum = vf_set(less) * load_lanes(row->mixed + c, lanes);
    for (int i = 0; i < count; i++) {
      if (logits[i] == 0.0f) continue; /* values without weight may hold anything */
      sum = vf_fma(vf_set(logits[i]), load_lanes(values + i * d->value_step + c, lanes), sum);
    }
    store_lanes(row->mixed + c, sum, lanes);
  }
}

/* Adds the entries of row n's token of a level and the keys that it meets. */
static void meet(const decoder *d, const float *query, int64_t n, int level, gathered *row) {
  const hark_hierarchy_range keys = hark_hierarchy_meets(&d->hierarchy, level, n >> level).range[0];
  for (int64_t key = keys.from, end; key < keys.to; key = end) {
    end = hark_min(hark_min(keys.to, key + CHUNK), (key / d->ring + 1) * d->ring);
    meet_stretch(d, query, n, level, key, (int)(end - key), row);
  }
}

/* partial[level], [highest, sum, mixed...] of the head */
static float *partial_at(const decoder *d, int level) {
  return (float *)d->call->inputs[PARTIAL].data + (level * d->decode->heads + d->head) * (d->value_dim + 2);
}

static void begin_empty(const decoder *d, gathered *row) {
  row->highest = -INFINITY;
  row->sum = 0.0f;
  memset(row->mixed, 0, (size_t)d->value_dim * sizeof(float));
}

static void load_partial(const decoder *d, int level, gathered *row) {
  if (level >= d->hierarchy.levels) {
    begin_empty(d, row);
    return;
  }
  const float *partial = partial_at(d, level);
  row->highest = partial[0];
  row->sum = partial[1];
  memcpy(row->mixed, partial + 2, (size_t)d->value_dim * sizeof(float));
}

static void store_partial(const decoder *d, int level, const gathered *row) {
  float *partial = partial_at(d, level);
  partial[0] = row->highest;
  partial[1] = row->sum;
  memcpy(partial + 2, row->mixed, (size_t)d->value_dim * sizeof(float));
}

static void attend(const decoder *d, int64_t r, float *memory) {
  const int64_t n = d->decode->first_position + r, at = r * d->decode->heads + d->head;
  const float *query = (const float *)d->call->inputs[QUERY].data + at * d->head_dim;
  float *out = (float *)d->call->outputs[0].data + at * d->value_dim;
  gathered row = {.mixed = memory};
  if (d->decode->coarse_query == HARK_COARSE_QUERY_EXACT) {
    begin_empty(d, &row);
    for (int level = d->hierarchy.levels - 1; level > 0; level--) meet(d, query, n, level, &row);
  } else {
    int begun = 0; /* the highest level with a cell that begins here */
    while (begun + 1 < d->hierarchy.levels && n % ((int64_t)1 << (begun + 1)) == 0) begun++;
    load_partial(d, begun + 1, &row);
    for (int level = begun; level > 0; level--) {
      meet(d, query, n, level, &row);
      store_partial(d, level, &row);
    }
  }
  meet(d, query, n, 0, &row);
  for (int c = 0; c < d->value_dim; c++) out[c] = row.sum == 0.0f ? 0.0f : row.mixed[c] / row.sum; /* a key that is NaN gives NaN */
}

/* Writes row n of the lowest level's ring, and the cells that it completes: means of keys, sums of values. */
static void append(const decoder *d, const float *from, float *cached, int64_t n, int width, int64_t step, float share) {
  memcpy(cached + slot_of(d, 0, n) * step, from, (size_t)width * sizeof *from);
  for (int level = 1; level < d->hierarchy.levels && (n + 1) % ((int64_t)1 << level) == 0; level++) {
    const int64_t token = n >> level;
    float *parent = cached + slot_of(d, level, token) * step;
    const float *left = cached + slot_of(d, level - 1, 2 * token) * step, *right = cached + slot_of(d, level - 1, 2 * token + 1) * step;
    for (int c = 0; c < width; c += HARK_LANES) {
      const int lanes = width - c < HARK_LANES ? width - c : HARK_LANES;
      store_lanes(parent + c, vf_set(share) * (load_lanes(left + c, lanes) + load_lanes(right + c, lanes)), lanes);
    }
  }
}

/* Heads that share a key head share its part of the cache: one piece of work, row after row. */
static void decode_heads(const hark_call *call, int64_t first, int64_t last) {
  const hark_hierarchical_decode_attributes *decode = call->attributes;
  const int64_t group = decode->heads / decode->key_heads;
  for (int64_t key_head = first; key_head < last; key_head++) {
    decoder d = open_decoder(call, key_head * group);
    float *memory = (float *)((double *)call->workspace + key_head * (d.head_dim + d.value_dim));
    const float *key = (const float *)call->inputs[KEY].data + key_head * d.head_dim;
    const float *value = (const float *)call->inputs[VALUE].data + key_head * d.value_dim;
    for (int64_t row = 0; row < call->inputs[QUERY].shape[1]; row++) {
      const int64_t n = decode->first_position + row;
      append(&d, key + row * d.key_step, d.cached_key, n, d.head_dim, d.key_step, 0.5f);
      append(&d, value + row * d.value_step, d.cached_value, n, d.value_dim, d.value_step, 1.0f);
      for (int64_t head = key_head * group; head < (key_head + 1) * group; head++) {
        const decoder own = open_decoder(call, head);
        attend(&own, row, memory);
      }
    }
  }
}

hark_status HARK_ISA(hark_cpu_hierarchical_decode_forward)(hark_context *context, const hark_call *call) {
  const hark_hierarchical_decode_attributes *decode = call->attributes;
  const int64_t levels = decode->coarse_query == HARK_COARSE_QUERY_EXACT ? call->inputs[CACHED_KEY].shape[0] : 2;
  const int64_t features = call->inputs[QUERY].shape[2] + decode->heads * (call->inputs[VALUE].shape[2] / decode->key_heads);
  const int64_t products = features * call->inputs[QUERY].shape[1] * levels * decode->hierarchy_block;
  hark_cpu_ranges(context, call, decode->key_heads, 1, products < SERIAL_PRODUCTS ? INT64_MAX : 1, decode_heads);
  return HARK_OK;
}
