/* dense_gates.c - terms that are a number of the query plus a number of the key: forget gates, and the squared norms of the RBF kernel.
 *
 *     FoX (arXiv 2503.02130, eq. 4)    S[n,i] += F[p] - F[i],  F[i] = sum over 0 < t <= i of log sigmoid(f_t),  p = min(n + offset, Lk - 1)
 *     RBF                              -|q - k|^2 / (2 sigma^2) = q.k / sigma^2 - |q|^2 / (2 sigma^2) - |k|^2 / (2 sigma^2)
 *
 * (If the right side of the second would lose too much, dense_exact.c uses the left side, and gradients by differences.)
 *
 * A number of the query alone changes no weight: |q|^2 is only in log_sum_exp, and the rows of dS sum to zero. With the sums c[i] of
 * columns and r[n] of rows, p the query's position:
 *
 *     dlog sigmoid(f_t) = sum over p >= t > i of dS[n,i] = sum over p >= t of r[n] - sum over i >= t of c[i]
 *     dk[i] -= k[i] c[i] / sigma^2
 *
 * r consists of rounding errors only, but they are also in c: a common error of a row's dS, such as the rounding of D, is in both sums and
 * cancels. Without r it adds up over the rows, and grows with the length (of 8192 rows, worst of the gates: 2e-6 with it, 5e-5 without).
 *
 * F is summed in float64 and stored as a pair of floats, high and low: the difference of two entries is then correct to f32 for sequences
 * of any length. Memory: two floats per key and head; the backward adds a float64, and one for every query, head and range of keys.
 */
#include "dense_tile.h"

/* Copies of the row sums, for successive keys, so that one addition does not wait for another. */
#define ROW_COPIES 4

/* r[n] += sum over the tile's keys of dS[n,i]. */
static void add_rows(const hark_dense_tile *tile, const float *gradient, double *rows) {
  for (int m = 0; m < hark_dense_vectors(tile); m++) {
    const int lane = m * HARK_LANES, count = (int)hark_min(HARK_LANES, tile->queries - lane);
    float lanes[HARK_LANES];
    const float *from = gradient + lane;
    vf sums[ROW_COPIES];
    int key = 0;
    HARK_UNROLL
    for (int i = 0; i < ROW_COPIES; i++) sums[i] = vf_zero();
    for (; key + ROW_COPIES <= tile->keys; key += ROW_COPIES) {
      HARK_UNROLL
      for (int i = 0; i < ROW_COPIES; i++) sums[i] = sums[i] + vf_load(from + (key + i) * HARK_TILE_QUERIES);
    }
    for (; key < tile->keys; key++) sums[0] = sums[0] + vf_load(from + key * HARK_TILE_QUERIES);
    vf_store(lanes, (sums[0] + sums[1]) + (sums[2] + sums[3]));
    for (int i = 0; i < count; i++) rows[lane + i] += (double)lanes[i];
  }
}

/* c[i] += sum over the tile's queries of dS[n,i]. */
static void add_columns(const hark_dense_tile *tile, const float *gradient, double *columns) {
  for (int key = 0; key < tile->keys; key++) {
    vf sum = vf_zero();
    for (int m = hark_dense_first_vector(tile, key); m < hark_dense_vectors(tile); m++)
      sum = sum + vf_load(gradient + key * HARK_TILE_QUERIES + m * HARK_LANES);
    columns[key] += (double)vf_sum(sum);
  }
}

static int64_t sequence_heads(const hark_dense_call *call) { return call->run->sequence_count * call->heads; }

/* ---- forget gates ------------------------------------------------------------------------------------------------------------------ */

static bool forget_used(const hark_attention_desc *desc, const hark_attention_args *args) {
  return desc->has_forget && (args == NULL || args->forget.data != NULL);
}

static size_t forget_bytes(const hark_attention_desc *desc, bool backward, int64_t item_pieces) {
  const size_t keys = (size_t)(desc->batch * desc->heads * desc->key_length),
               rows = (size_t)(item_pieces * desc->heads * desc->query_length);
  return keys * 2 * sizeof(float) + (backward ? (keys + rows) * sizeof(double) : 0);
}

/* Numbers of one (item, head), by key row of the item. */
typedef struct gates {
  double *columns; /* backward only */
  float *high, *low;
} gates;

/* Row sums of one (item, head) and range of keys, by query of the sequence; after those of the columns. Backward only. */
static double *row_sums(const hark_dense_call *call, void *memory, const hark_attention_sequence *sequence, int64_t head, int64_t chunk) {
  double *rows = (double *)memory + call->batch * call->heads * call->key_rows;
  return rows + ((chunk * call->batch + sequence->item) * call->heads + head) * call->query_rows + sequence->query_row;
}

static gates gates_of(const hark_dense_call *call, void *memory, const hark_attention_sequence *sequence, int64_t head) {
  const int64_t count = call->batch * call->heads * call->key_rows;
  const int64_t at = (sequence->item * call->heads + head) * call->key_rows + sequence->key_row;
  double *columns = memory;
  const int64_t rows = call->chunks * call->batch * call->heads * call->query_rows;
  float *high = (float *)(void *)(columns + (call->backward ? count + rows : 0));
  return (gates){columns + at, high + at, high + count + at};
}

/* The first gate of a sequence and head in [B, H, Lk] with any strides; gates follow at stride[2]. */
static float *gate_row(const hark_tensor *logits, const hark_attention_sequence *sequence, int64_t head) {
  return (float *)logits->data + sequence->item * logits->stride[0] + head * logits->stride[1] + sequence->key_row * logits->stride[2];
}

static bool forget_collects(const hark_dense_call *call) { return call->args->dforget.data != NULL; }

static void forget_prepare(const hark_dense_call *call, void *memory, int64_t index) {
  const hark_attention_sequence *sequence = call->run->sequences + index / call->heads;
  const hark_tensor *forget = &call->args->forget;
  const float *row = gate_row(forget, sequence, index % call->heads);
  const gates g = gates_of(call, memory, sequence, index % call->heads);
  double sum = 0.0;
  for (int64_t t = 0; t < sequence->key_count; t++) {
    const double f = row[t * forget->stride[2]];
    if (t > 0) sum += (f < 0.0 ? f - log1p(exp(f)) : -log1p(exp(-f))) * 1.44269504088896340736; /* units of log 2 */
    g.high[t] = (float)sum;
    g.low[t] = g.high[t] == -INFINITY ? 0.0f : (float)(sum - g.high[t]);
    if (call->backward) g.columns[t] = 0.0;
  }
  for (int64_t chunk = 0; call->backward && forget_collects(call) && chunk < call->chunks; chunk++)
    memset(row_sums(call, memory, sequence, index % call->heads, chunk), 0, (size_t)sequence->query_count * sizeof(double));
}

static void forget_add(const hark_dense_tile *tile, void *memory) {
  const gates g = gates_of(tile->call, memory, tile->sequence, tile->head);
  float high[HARK_TILE_QUERIES] = {0}, low[HARK_TILE_QUERIES] = {0};
  for (int lane = 0; lane < tile->queries; lane++) {
    const int64_t position = hark_min(tile->key + tile->shift + lane, tile->sequence->key_count - 1);
    if (position < 0) continue; /* sees no key */
    high[lane] = g.high[position];
    low[lane] = g.low[position];
  }
  for (int key = 0; key < tile->keys; key++)
    for (int m = hark_dense_first_vector(tile, key); m < hark_dense_vectors(tile); m++) {
      float *logits = tile->logits + key * HARK_TILE_QUERIES + m * HARK_LANES;
      const vf coarse = vf_load(high + m * HARK_LANES) - vf_set(g.high[tile->key + key]);
      const vf fine = vf_load(low + m * HARK_LANES) - vf_set(g.low[tile->key + key]);
      const vf term = coarse + fine;
      vf_store(logits, vf_load(logits) + (tile->terms_alone ? vf_set(0.25f) * term : term));
    }
}

static void forget_collect(const hark_dense_tile *tile, void *memory, const float *gradient) {
  add_columns(tile, gradient, gates_of(tile->call, memory, tile->sequence, tile->head).columns + tile->key);
  add_rows(tile, gradient, row_sums(tile->call, memory, tile->sequence, tile->head, tile->chunk) + tile->query);
}

/* Sums of dS[n,i] over i < t <= p by definition, not as the difference of two sums: a number that is not finite then reaches only the gates
 * between its query and its key. */
typedef struct direct_sums {
  double *passed;                   /* by t */
  double before[HARK_TILE_QUERIES]; /* per lane: the keys so far */
} direct_sums;

static void direct_collect(const hark_dense_tile *tile, void *memory, const float *gradient) {
  direct_sums *sums = memory;
  for (int key = 0; key < tile->keys; key++)
    for (int lane = 0; lane < tile->queries; lane++) {
      const int64_t t = tile->key + key, position = hark_min(tile->query + lane + tile->sequence->offset, tile->sequence->key_count - 1);
      if (t <= position) sums->passed[t] += sums->before[lane];
      sums->before[lane] += (double)gradient[key * HARK_TILE_QUERIES + lane];
    }
}

static const hark_dense_term direct = {.name = "forget, directly", .collect = direct_collect};

/* Where a query does not see its own position, no tile has that gate of the last queries: their paths pass it too. */
static void pass_own(const hark_dense_call *call, const hark_attention_sequence *sequence, int64_t query, int queries, direct_sums *sums) {
  int64_t from, to;
  HARK_ISA(hark_dense_visible_keys)(call, sequence, query, queries, &from, &to);
  for (int lane = 0; from < to && lane < queries; lane++) {
    const int64_t position = hark_min(query + lane + sequence->offset, sequence->key_count - 1);
    if (position >= to) sums->passed[position] += sums->before[lane];
  }
}

/* columns[t] becomes the sum over n and i < t <= p of dS[n,i]. */
static void sum_directly(const hark_dense_call *call, int64_t sequence_index, int64_t head, double *columns, void *worker_memory) {
  const hark_attention_sequence *sequence = call->run->sequences + sequence_index;
  direct_sums sums = {.passed = columns};
  memset(columns, 0, (size_t)sequence->key_count * sizeof *columns);
  for (int64_t query = 0; query < sequence->query_count; query += HARK_TILE_QUERIES) {
    memset(sums.before, 0, sizeof sums.before);
    const int queries = (int)hark_min(HARK_TILE_QUERIES, sequence->query_count - query);
    HARK_ISA(hark_dense_visit_gradients)
    (call, &direct, &sums, sequence_index, head, query, queries, 0, sequence->key_count, worker_memory);
    if (call->sticks) pass_own(call, sequence, query, queries, &sums);
  }
}

static bool sums_finite(const double *sums, int64_t count) {
  double poison = 0.0;
  for (int64_t i = 0; i < count; i++) poison += 0.0 * sums[i];
  return poison == 0.0;
}

static bool forget_is_finite(const hark_dense_call *call, void *memory, const hark_attention_sequence *sequence, int64_t head) {
  bool finite = sums_finite(gates_of(call, memory, sequence, head).columns, sequence->key_count);
  for (int64_t chunk = 0; chunk < call->chunks; chunk++)
    finite = finite && sums_finite(row_sums(call, memory, sequence, head, chunk), sequence->query_count);
  return finite;
}

static int64_t forget_finish_count(const hark_dense_call *call) {
  return call->backward && forget_collects(call) ? sequence_heads(call) : 0;
}

/* F[p] - F[i] = sum over i < t <= p of log sigmoid(f_t), whose derivative is 1 / (1 + e^f). Summed from the last key on, because only
 * queries from t on see keys from t on: errors of earlier queries have no influence. No path passes the first gate. */
static void forget_finish(const hark_dense_call *call, void *memory, int64_t index, void *worker_memory) {
  const hark_attention_sequence *sequence = call->run->sequences + index / call->heads;
  const int64_t head = index % call->heads;
  const hark_tensor *forget = &call->args->forget, *dforget = &call->args->dforget;
  const float *row = gate_row(forget, sequence, head);
  const gates g = gates_of(call, memory, sequence, head);
  float *out = gate_row(dforget, sequence, head);
  const bool add = (call->args->accumulate & HARK_ACCUMULATE_FORGET) != 0;
  int64_t left = sequence->query_count; /* queries before t: their rows are not yet included */
  double after = 0.0;
  const bool finite = forget_is_finite(call, memory, sequence, head);
  if (!finite) sum_directly(call, index / call->heads, head, g.columns, worker_memory);
  for (int64_t t = sequence->key_count - 1; t >= 0; t--) {
    for (; finite && left > 0 && hark_min(left - 1 + sequence->offset, sequence->key_count - 1) >= t; left--)
      for (int64_t chunk = 0; chunk < call->chunks; chunk++) after -= row_sums(call, memory, sequence, head, chunk)[left - 1];
    after = finite ? after + g.columns[t] : -g.columns[t];
    const double gradient = t > 0 ? -after / (1.0 + exp((double)row[t * forget->stride[2]])) : 0.0;
    float *const to = &out[t * dforget->stride[2]];
    *to = (float)(gradient + (add ? (double)*to : 0.0));
  }
}

const hark_dense_term HARK_ISA(hark_dense_forget) = {.name = "forget",
                                                     .used = forget_used,
                                                     .bytes = forget_bytes,
                                                     .prepare_count = sequence_heads,
                                                     .prepare = forget_prepare,
                                                     .add = forget_add,
                                                     .collects = forget_collects,
                                                     .collect = forget_collect,
                                                     .finish_count = forget_finish_count,
                                                     .finish = forget_finish};

/* ---- RBF kernel -------------------------------------------------------------------------------------------------------------------- */

static bool rbf_used(const hark_attention_desc *desc, const hark_attention_args *args) {
  (void)args;
  return desc->kernel == HARK_KERNEL_RBF;
}

static size_t rbf_bytes(const hark_attention_desc *desc, bool backward, int64_t item_pieces) {
  (void)item_pieces;
  const size_t keys = (size_t)(desc->batch * desc->key_heads * desc->key_length);
  return keys * sizeof(float) + (backward ? keys * sizeof(double) : 0);
}

typedef struct norms {
  double *columns; /* backward only; summed over the heads of the group */
  float *norm;     /* -|k|^2 log2(e) / (2 sigma^2) */
} norms;

/* Memory: columns, in the backward only | norms. */
static norms norms_of(const hark_dense_call *call, void *memory, const hark_attention_sequence *sequence, int64_t key_head) {
  const int64_t count = call->batch * call->key_heads * call->key_rows;
  const int64_t at = (sequence->item * call->key_heads + key_head) * call->key_rows + sequence->key_row;
  double *columns = memory;
  return (norms){columns + at, (float *)(void *)(columns + (call->backward ? count : 0)) + at};
}

static void *rbf_memory(const hark_dense_call *call) {
  int i = 0;
  while (call->terms[i] != &HARK_ISA(hark_dense_rbf)) i++;
  return call->term_memory[i];
}

const float *HARK_ISA(hark_dense_key_norms)(const hark_dense_call *call, const hark_attention_sequence *sequence, int64_t key_head) {
  return norms_of(call, rbf_memory(call), sequence, key_head).norm;
}

static int64_t sequence_key_heads(const hark_dense_call *call) { return call->run->sequence_count * call->key_heads; }

static void rbf_prepare(const hark_dense_call *call, void *memory, int64_t index) {
  const hark_attention_sequence *sequence = call->run->sequences + index / call->key_heads;
  const norms n = norms_of(call, memory, sequence, index % call->key_heads);
  for (int64_t i = 0; i < sequence->key_count; i++) {
    const float *key = hark_dense_row(&call->args->key, sequence->item, index % call->key_heads, sequence->key_row + i);
    double square = 0.0;
    for (int c = 0; c < call->head_dim; c++) square += (double)key[c] * (double)key[c];
    n.norm[i] = (float)(-0.5 * call->scale * 1.44269504088896340736 * square);
    if (call->backward) n.columns[i] = 0.0;
  }
}

static void rbf_add(const hark_dense_tile *tile, void *memory) {
  const norms n = norms_of(tile->call, memory, tile->sequence, tile->head / tile->call->group);
  for (int key = 0; key < tile->keys; key++)
    for (int m = hark_dense_first_vector(tile, key); m < hark_dense_vectors(tile); m++) {
      float *logits = tile->logits + key * HARK_TILE_QUERIES + m * HARK_LANES;
      vf_store(logits, vf_load(logits) + vf_set(n.norm[tile->key + key]));
    }
}

static bool rbf_collects(const hark_dense_call *call) { return call->args->dkey.data != NULL; }

static void rbf_collect(const hark_dense_tile *tile, void *memory, const float *gradient) {
  add_columns(tile, gradient, norms_of(tile->call, memory, tile->sequence, tile->head / tile->call->group).columns + tile->key);
}

static int64_t rbf_finish_count(const hark_dense_call *call) { return call->backward && rbf_collects(call) ? sequence_key_heads(call) : 0; }

/* S -= |k|^2 / (2 sigma^2): dk -= c k / sigma^2. */
static void rbf_finish(const hark_dense_call *call, void *memory, int64_t index, void *worker_memory) {
  const hark_attention_sequence *sequence = call->run->sequences + index / call->key_heads;
  const int64_t key_head = index % call->key_heads;
  const norms n = norms_of(call, memory, sequence, key_head);
  (void)worker_memory;
  for (int64_t i = 0; i < sequence->key_count; i++) {
    const float *key = hark_dense_row(&call->args->key, sequence->item, key_head, sequence->key_row + i);
    float *dkey = hark_dense_row_of(&call->args->dkey, sequence->item, key_head, sequence->key_row + i);
    const float weight = (float)(n.columns[i] * call->scale);
    if (weight == 0.0f) continue; /* no query sees it: the key may hold anything */
    for (int c = 0; c < call->head_dim; c++) dkey[c] -= weight * key[c];
  }
}

const hark_dense_term HARK_ISA(hark_dense_rbf) = {.name = "rbf",
                                                  .used = rbf_used,
                                                  .bytes = rbf_bytes,
                                                  .prepare_count = sequence_key_heads,
                                                  .prepare = rbf_prepare,
                                                  .add = rbf_add,
                                                  .collects = rbf_collects,
                                                  .collect = rbf_collect,
                                                  .finish_count = rbf_finish_count,
                                                  .finish = rbf_finish};
