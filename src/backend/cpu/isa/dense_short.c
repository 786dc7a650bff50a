/* dense_short.c - softmax attention of a few queries and a few hundred keys, such as the slots of a chunk: all logits at once, in cache.
 *
 *     S = scale q.k;   P[n,i] = exp(S[n,i] - lse[n]);   out[n] = sum_i P[n,i] v[i]
 *     dv[i] = sum_n P[n,i] dout[n];   dS[n,i] = P[n,i] (dout[n].v[i] - dout[n].out[n])
 *     dq[n] = scale sum_i dS[n,i] k[i];   dk[i] = scale sum_n dS[n,i] q[n]
 *
 * Tiles of dense_forward.c have a lane for every query; here most lanes would be empty, at the full cost of preparing a tile. Instead lanes
 * are keys when logits are computed (keys and values are transposed in blocks of lanes) and features otherwise. There is one tile, so that
 * nothing is rescaled. Whether a sequence is short depends on its own rows alone: it has the same bits alone and in a batch. For plain
 * softmax only: without masks, causality, window, biases, kernels of the distance, gates, dropout and shared key heads.
 *
 * Logits are rows [query][HARK_SHORT_KEYS] in units of log 2. Cost: 2 d + 2 dv multiply-adds per logit, 5 products in the backward, and one
 * vector of loads, shuffles and stores for each row of keys and values. Memory: O(queries (keys + d + dv)) per worker.
 */
#include "dense_pack.h"
#include "dense_tile.h"

#define BLOCK 4 /* queries whose sums are in registers together */

typedef struct short_state {
  float *queries, *gradients; /* [queries][d padded], [queries][dv padded] */
  float *weights, *dlogits;   /* P and dS */
  float *panel;               /* transposed rows of keys or values: [d or dv][lanes] */
  float *sums;                /* [queries][d or dv padded] */
} short_state;

bool HARK_ISA(hark_dense_is_short)(const hark_dense_call *call, const hark_attention_sequence *sequence) {
  return call->plain && sequence->query_count <= HARK_SHORT_QUERIES && sequence->key_count <= HARK_SHORT_KEYS;
}

size_t HARK_ISA(hark_dense_short_bytes)(const hark_attention_desc *desc) {
  const size_t d = hark_padded(desc->head_dim), dv = hark_padded(desc->value_dim), widest = d > dv ? d : dv;
  return sizeof(float) * (HARK_SHORT_QUERIES * (d + dv + widest + 2 * HARK_SHORT_KEYS) + HARK_LANES * widest);
}

static short_state open_state(const hark_dense_call *call, void *memory) {
  const size_t d = (size_t)call->head_pad, dv = (size_t)call->value_pad;
  short_state state = {.queries = memory};
  state.gradients = state.queries + HARK_SHORT_QUERIES * d;
  state.weights = state.gradients + HARK_SHORT_QUERIES * dv;
  state.dlogits = state.weights + (size_t)HARK_SHORT_QUERIES * HARK_SHORT_KEYS;
  state.panel = state.dlogits + (size_t)HARK_SHORT_QUERIES * HARK_SHORT_KEYS;
  state.sums = state.panel + HARK_LANES * (d > dv ? d : dv);
  return state;
}

/* panel [features][lanes] = rows', zero beyond `count` rows. */
HARK_SIMD void turn(const float *rows, int64_t stride, int count, int features, float *panel) {
  for (int c = 0; c < features; c += HARK_LANES) {
    const int width = features - c < HARK_LANES ? features - c : HARK_LANES;
    vf block[HARK_LANES];
    if (count == HARK_LANES && width == HARK_LANES) {
      HARK_UNROLL
      for (int i = 0; i < HARK_LANES; i++) block[i] = vf_load(rows + i * stride + c);
    } else {
      HARK_UNROLL
      for (int i = 0; i < HARK_LANES; i++) block[i] = i < count ? vf_load_part_or_all(rows + i * stride + c, width) : vf_zero();
    }
    vf_transpose(block);
    HARK_UNROLL
    for (int i = 0; i < HARK_LANES; i++) vf_store(panel + (ptrdiff_t)(c + i) * HARK_LANES, block[i]);
  }
}

/* out[n][lanes] = a[n] . panel for some queries */
HARK_SIMD void meet(const int queries, const float *a, int a_row, const float *panel, int features, float *out) {
  vf sum[BLOCK];
  HARK_UNROLL
  for (int n = 0; n < queries; n++) sum[n] = vf_zero();
  HARK_ROLLED
  for (int c = 0; c < features; c++) {
    const vf b = vf_load(panel + (ptrdiff_t)c * HARK_LANES);
    HARK_UNROLL
    for (int n = 0; n < queries; n++) sum[n] = vf_fma(vf_set(a[n * a_row + c]), b, sum[n]);
  }
  HARK_UNROLL
  for (int n = 0; n < queries; n++) vf_store(out + (ptrdiff_t)n * HARK_SHORT_KEYS, sum[n]);
}

/* out[n][i] = a[n] . rows[i]; whole vectors of keys are written. */
HARK_SIMD_NOINLINE void scores(const float *a, int a_row, int queries, const float *rows, int64_t stride, int count, int features,
                               float *panel, float *out) {
  for (int key = 0; key < count; key += HARK_LANES) {
    turn(rows + key * stride, stride, count - key < HARK_LANES ? count - key : HARK_LANES, features, panel);
    int n = 0;
    for (; n + BLOCK <= queries; n += BLOCK) meet(BLOCK, a + n * a_row, a_row, panel, features, out + n * HARK_SHORT_KEYS + key);
    for (; n < queries; n++) meet(1, a + n * a_row, a_row, panel, features, out + n * HARK_SHORT_KEYS + key);
  }
}

/* sums[n][c ..] = sum over i of weights[n][i] rows[i][c ..] for some queries; even and odd keys in separate sums, because additions to one
 * sum wait for each other. */
HARK_SIMD void combine_some(const int queries, const float *weights, const float *rows, int64_t stride, int count, int width, float *sums,
                            int sums_row) {
  vf even[BLOCK], odd[BLOCK];
  HARK_UNROLL
  for (int n = 0; n < queries; n++) even[n] = odd[n] = vf_zero();
  int i = 0;
  HARK_ROLLED
  for (; i + 2 <= count; i += 2) {
    const vf first = vf_load_part_or_all(rows + i * stride, width), second = vf_load_part_or_all(rows + (i + 1) * stride, width);
    HARK_UNROLL
    for (int n = 0; n < queries; n++) {
      even[n] = vf_fma(vf_set(weights[n * HARK_SHORT_KEYS + i]), first, even[n]);
      odd[n] = vf_fma(vf_set(weights[n * HARK_SHORT_KEYS + i + 1]), second, odd[n]);
    }
  }
  if (i < count) {
    const vf last = vf_load_part_or_all(rows + i * stride, width);
    HARK_UNROLL
    for (int n = 0; n < queries; n++) even[n] = vf_fma(vf_set(weights[n * HARK_SHORT_KEYS + i]), last, even[n]);
  }
  HARK_UNROLL
  for (int n = 0; n < queries; n++) vf_store(sums + (ptrdiff_t)n * sums_row, even[n] + odd[n]);
}

HARK_SIMD_NOINLINE void combine(const float *weights, int queries, const float *rows, int64_t stride, int count, int features, float *sums,
                                int sums_row) {
  for (int c = 0; c < features; c += HARK_LANES) {
    const int width = features - c < HARK_LANES ? features - c : HARK_LANES;
    int n = 0;
    for (; n + BLOCK <= queries; n += BLOCK)
      combine_some(BLOCK, weights + n * HARK_SHORT_KEYS, rows + c, stride, count, width, sums + n * sums_row + c, sums_row);
    for (; n < queries; n++)
      combine_some(1, weights + n * HARK_SHORT_KEYS, rows + c, stride, count, width, sums + n * sums_row + c, sums_row);
  }
}

/* The same if rows are not finite: rows with weight 0, which an infinite key hides, are not added. */
HARK_SIMD_NOINLINE void combine_seen(const float *weights, int queries, const float *rows, int64_t stride, int count, int features,
                                     float *sums, int sums_row) {
  for (int n = 0; n < queries; n++) {
    memset(sums + (ptrdiff_t)n * sums_row, 0, (size_t)sums_row * sizeof *sums);
    for (int i = 0; i < count; i++) {
      const float weight = weights[n * HARK_SHORT_KEYS + i];
      for (int c = 0; weight != 0.0f && c < features; c++) sums[n * sums_row + c] += weight * rows[i * stride + c];
    }
  }
}

/* target[i] (+)= sum over some queries n of weights[n][i] rows[n] */
HARK_SIMD void spread_some(const int queries, const float *weights, const float *rows, int rows_row, int count, int width, bool add,
                           float *target, int64_t stride) {
  vf row[BLOCK];
  HARK_UNROLL
  for (int n = 0; n < queries; n++) row[n] = vf_load(rows + (ptrdiff_t)n * rows_row);
  for (int i = 0; i < count; i++, target += stride) {
    vf sum = add ? vf_load_part_or_all(target, width) : vf_zero();
    HARK_UNROLL
    for (int n = 0; n < queries; n++) sum = vf_fma(vf_set(weights[n * HARK_SHORT_KEYS + i]), row[n], sum);
    if (width == HARK_LANES)
      vf_store(target, sum);
    else
      vf_store_part(target, sum, width);
  }
}

HARK_SIMD_NOINLINE void spread(const float *weights, int queries, const float *rows, int rows_row, int count, int features, bool add,
                               float *target, int64_t stride) {
  for (int c = 0; c < features; c += HARK_LANES) {
    const int width = features - c < HARK_LANES ? features - c : HARK_LANES;
    int n = 0;
    for (; n + BLOCK <= queries; n += BLOCK)
      spread_some(BLOCK, weights + n * HARK_SHORT_KEYS, rows + n * rows_row + c, rows_row, count, width, add || n > 0, target + c, stride);
    for (; n < queries; n++)
      spread_some(1, weights + n * HARK_SHORT_KEYS, rows + n * rows_row + c, rows_row, count, width, add || n > 0, target + c, stride);
  }
}

/* rows (+)= gain sums */
HARK_SIMD void write_rows(const float *sums, int sums_row, const float *gain, int count, int features, bool add, float *rows,
                          int64_t stride) {
  for (int n = 0; n < count; n++)
    for (int c = 0; c < features; c += HARK_LANES) {
      const int width = features - c < HARK_LANES ? features - c : HARK_LANES;
      float *to = rows + n * stride + c;
      vf x = vf_set(gain[n]) * vf_load(sums + (ptrdiff_t)n * sums_row + c);
      if (add) x = x + vf_load_part_or_all(to, width);
      if (width == HARK_LANES)
        vf_store(to, x);
      else
        vf_store_part(to, x, width);
    }
}

/* Logits of a query -> 2^(S - top), with their sum; without lanes after the last key. */
HARK_SIMD float softmax_row(float *logits, int count, float *base) {
  const int whole = count / HARK_LANES * HARK_LANES, rest = count - whole;
  vf highest = vf_set(-INFINITY), sum = vf_zero();
  for (int i = 0; i < whole; i += HARK_LANES) highest = vf_max(highest, vf_load(logits + i));
  for (int i = rest; i < HARK_LANES && rest > 0; i++) logits[whole + i] = -INFINITY;
  if (rest > 0) highest = vf_max(highest, vf_load(logits + whole));
  const float top = vf_highest(highest);
  *base = top == -INFINITY ? 0.0f : top;
  for (int i = 0; i < count; i += HARK_LANES) {
    const vf weight = vf_exp2(vf_load(logits + i) - vf_set(*base));
    sum = sum + weight;
    vf_store(logits + i, weight);
  }
  return vf_sum(sum);
}

void HARK_ISA(hark_dense_short_forward)(const hark_dense_call *call, const hark_attention_sequence *sequence, int64_t head, void *memory) {
  const hark_attention_args *args = call->args;
  const short_state state = open_state(call, memory);
  const int64_t item = sequence->item, row = sequence->query_row;
  const int queries = (int)sequence->query_count, keys = (int)sequence->key_count, d = call->head_dim, dv = call->value_dim;
  float gain[HARK_SHORT_QUERIES], sums[HARK_SHORT_QUERIES], log_sums[HARK_SHORT_QUERIES];
  hark_pack_rows(hark_dense_row(&args->query, item, head, row), args->query.stride[2], queries, d, call->head_pad,
                 (float)(call->scale * HARK_LOG2_E), state.queries);
  scores(state.queries, call->head_pad, queries, hark_dense_row(&args->key, item, head, sequence->key_row), args->key.stride[2], keys, d,
         state.panel, state.weights);
  for (int n = 0; n < queries; n++) {
    float base;
    sums[n] = softmax_row(state.weights + (ptrdiff_t)n * HARK_SHORT_KEYS, keys, &base);
    gain[n] = sums[n] == 0.0f ? 0.0f : 1.0f / sums[n];
    log_sums[n] = base * HARK_LN_2;
  }
  if (args->log_sum_exp.data != NULL) {
    float *log_sum_exp = (float *)args->log_sum_exp.data + (item * call->heads + head) * call->query_rows + row;
    for (int n = 0; n < queries; n += HARK_LANES) {
      const int count = queries - n < HARK_LANES ? queries - n : HARK_LANES;
      vf_store_part(log_sum_exp + n, vf_load_part(log_sums + n, count) + vf_log(vf_load_part(sums + n, count)), count);
    }
  }
  combine(state.weights, queries, hark_dense_row(&args->value, item, head, sequence->key_row), args->value.stride[2], keys, dv, state.sums,
          call->value_pad);
  write_rows(state.sums, call->value_pad, gain, queries, dv, false, hark_dense_row_of(&args->out, item, head, row), args->out.stride[2]);
}

/* P and, if `dlogits` is requested, dS. */
static void weigh(const hark_dense_call *call, const hark_attention_sequence *sequence, int64_t head, const short_state *state,
                  bool dlogits) {
  const hark_attention_args *args = call->args;
  const int64_t item = sequence->item, row = sequence->query_row;
  const int queries = (int)sequence->query_count, keys = (int)sequence->key_count;
  const float *log_sum_exp = hark_dense_log_sum_exp(call, sequence, head);
  const float *out = hark_dense_row(&args->out, item, head, row);
  scores(state->queries, call->head_pad, queries, hark_dense_row(&args->key, item, head, sequence->key_row), args->key.stride[2], keys,
         call->head_dim, state->panel, state->weights);
  if (dlogits)
    scores(state->gradients, call->value_pad, queries, hark_dense_row(&args->value, item, head, sequence->key_row), args->value.stride[2],
           keys, call->value_dim, state->panel, state->dlogits);
  for (int n = 0; n < queries; n++) {
    float *weights = state->weights + (ptrdiff_t)n * HARK_SHORT_KEYS, *gradients = state->dlogits + (ptrdiff_t)n * HARK_SHORT_KEYS;
    const vf start = vf_set(-log_sum_exp[n] * HARK_LOG2_E);
    const bool nothing = log_sum_exp[n] == -INFINITY;
    float inverse = 1.0f, base;
    const bool far = hark_dense_is_far(log_sum_exp[n]); /* it has lost the sum (dense_exact.c) */
    if (far) inverse = 1.0f / softmax_row(weights, keys, &base);
    vf sum = vf_zero();
    for (int c = 0; c < call->value_dim; c += HARK_LANES)
      sum = vf_fma(vf_load_part_or_all(out + n * args->out.stride[2] + c, call->value_dim - c),
                   vf_load(state->gradients + (ptrdiff_t)n * call->value_pad + c), sum);
    const vf delta = vf_set(vf_sum(sum));
    for (int i = 0; i < keys; i += HARK_LANES) {
      vf weight = nothing ? vf_zero()
                  : far   ? vf_load(weights + i) * vf_set(inverse)
                          : vf_exp2(vf_not_above(vf_load(weights + i) + start, vf_zero()));
      vf_store(weights + i, weight);
      if (dlogits) vf_store(gradients + i, nothing ? vf_zero() : weight * (vf_load(gradients + i) - delta));
    }
  }
}

/* Clears rows that see no key, for example because the query is infinite: their contents must not be added. */
static void clear_blind_rows(const float *log_sum_exp, int queries, int width, float *rows) {
  for (int n = 0; n < queries; n++)
    if (log_sum_exp[n] == -INFINITY) memset(rows + (ptrdiff_t)n * width, 0, (size_t)width * sizeof *rows);
}

void HARK_ISA(hark_dense_short_backward)(const hark_dense_call *call, const hark_attention_sequence *sequence, int64_t head, void *memory) {
  const hark_attention_args *args = call->args;
  const short_state state = open_state(call, memory);
  const int64_t item = sequence->item, row = sequence->query_row;
  const int queries = (int)sequence->query_count, keys = (int)sequence->key_count, d = call->head_dim, dv = call->value_dim;
  const bool needs_query = args->dquery.data != NULL, needs_key = args->dkey.data != NULL;
  hark_pack_rows(hark_dense_row(&args->query, item, head, row), args->query.stride[2], queries, d, call->head_pad,
                 (float)(call->scale * HARK_LOG2_E), state.queries);
  hark_pack_rows(hark_dense_row(&args->dout, item, head, row), args->dout.stride[2], queries, dv, call->value_pad, 1.0f, state.gradients);
  weigh(call, sequence, head, &state, needs_query || needs_key);
  const float *log_sum_exp = hark_dense_log_sum_exp(call, sequence, head);
  clear_blind_rows(log_sum_exp, queries, call->value_pad, state.gradients);
  if (args->dvalue.data != NULL)
    spread(state.weights, queries, state.gradients, call->value_pad, keys, dv, (args->accumulate & HARK_ACCUMULATE_VALUE) != 0,
           hark_dense_row_of(&args->dvalue, item, head, sequence->key_row), args->dvalue.stride[2]);
  if (needs_query) {
    float gain[HARK_SHORT_QUERIES];
    for (int n = 0; n < queries; n++) gain[n] = (float)call->scale;
    const float *key = hark_dense_row(&args->key, item, head, sequence->key_row);
    const bool finite = hark_rows_finite(key, args->key.stride[2], keys, d);
    (finite ? combine : combine_seen)(state.dlogits, queries, key, args->key.stride[2], keys, d, state.sums, call->head_pad);
    write_rows(state.sums, call->head_pad, gain, queries, d, (args->accumulate & HARK_ACCUMULATE_QUERY) != 0,
               hark_dense_row_of(&args->dquery, item, head, row), args->dquery.stride[2]);
  }
  if (needs_key) {
    hark_pack_rows(hark_dense_row(&args->query, item, head, row), args->query.stride[2], queries, d, call->head_pad, (float)call->scale,
                   state.queries);
    clear_blind_rows(log_sum_exp, queries, call->head_pad, state.queries);
    spread(state.dlogits, queries, state.queries, call->head_pad, keys, d, (args->accumulate & HARK_ACCUMULATE_KEY) != 0,
           hark_dense_row_of(&args->dkey, item, head, sequence->key_row), args->dkey.stride[2]);
  }
}
