/* dense_backward.c - gradients of softmax attention, tile by tile, from log_sum_exp.
 *
 * forward: S = scale q.k + terms;  P[n,i] = exp(S[n,i] - lse[n]);  out[n] = sum_i P[n,i] v[i]
 *
 *     dv[i] = sum_n P[n,i] dout[n]
 *     dP[n,i] = dout[n].v[i];   dS[n,i] = P[n,i] (dP[n,i] - D[n]),   D[n] = dout[n].out[n]
 *     dq[n] = scale sum_i dS[n,i] k[i];   dk[i] = scale sum_n dS[n,i] q[n]
 *
 * With dropout (mask M, including the gain 1/(1-p)) out = (P o M) v, so dv uses P o M, and dS = P o M o dP - P D. With the RBF kernel S
 * includes -|q|^2/(2 sigma^2), whose gradient is the sum of a row of dS and thus zero, and -|k|^2/(2 sigma^2), a term.
 *
 * One piece of work is a range of keys of one (sequence, key head). It owns those rows of dk and dv, visits the queries of all heads of the
 * group, and stores its part of dq; these parts are summed in the order of the ranges. The ranges depend on shapes alone, so the bits do
 * not depend on the number of threads. Cost: five products, one exponential per logit. Source: Dao et al. 2022, arXiv 2205.14135, algorithm
 * 4; the order of loops is ours.
 *
 * Operands in bf16 are in dense_backward_bf16.c, rows in float64 in dense_backward_exact.c.
 */
#include "dense_backward.h"
#include "core/cancel.h"
#include "stick_tile.h"

static size_t row_bytes(int64_t features) { return HARK_TILE_QUERIES * hark_padded(features) * sizeof(float); }

static size_t clean_floats(const hark_attention_desc *desc) { return row_bytes(hark_max(desc->head_dim, desc->value_dim)) / sizeof(float); }

size_t HARK_ISA(hark_dense_backward_bytes)(const hark_attention_desc *desc) {
  const size_t lanes = HARK_TILE_QUERIES * sizeof(float);
  const size_t features = (size_t)(desc->head_dim * 2 + desc->value_dim) * lanes; /* queries, dquery, gradients */
  const size_t rows = row_bytes(desc->head_dim) + row_bytes(desc->value_dim);
  const size_t clean = clean_floats(desc) * sizeof(float);
  return hark_align_up(sizeof(hark_dense_backward_state)) + features + rows + clean + 2 * HARK_TILE_KEYS * lanes +
         (hark_dense_exact_floats(desc, true) + HARK_ISA(hark_dense_backward_word_floats)(desc) +
          HARK_ISA(hark_dense_contextual_floats)(desc, true)) *
             sizeof(float);
}

HARK_PRODUCT_FUNCTION(scores_store, HARK_FINISH_STORE)
HARK_PRODUCT_FUNCTION(scores_exp2, HARK_FINISH_EXP2)
HARK_PRODUCT_FUNCTION(scores_times, HARK_FINISH_TIMES)
HARK_PRODUCT_FUNCTION(scores_times_seen, HARK_FINISH_TIMES_SEEN)
HARK_PRODUCT_FUNCTION(scores_times_add, HARK_FINISH_TIMES_ADD)
HARK_PRODUCT_FUNCTION(combine_vectors, HARK_FINISH_COMBINE)
HARK_PRODUCT_FUNCTION(spread_vectors, HARK_FINISH_SPREAD)
HARK_PRODUCT_FUNCTION(spread_part, HARK_FINISH_SPREAD_PART)

static void combine(const hark_product *p, int last) { combine_vectors(p, 0, last); }

/* target[i] += sum over lanes n of tile[i][n] rows[n]: dv and dk. row_words: the words of the rows; NULL: in f32. */
static void spread(const hark_dense_tile *tile, const hark_dense_backward_state *state, const float *tile_weights, const float *rows,
                   const float *row_words, int padded, int features, float *target, int64_t target_stride) {
  if (row_words != NULL)
    hark_word_pairs(tile->call->arithmetic, tile_weights, HARK_TILE_QUERIES, tile->keys, HARK_TILE_QUERIES, state->words.tile);
  const bool whole = hark_dense_first_vector(tile, tile->keys - 1) == 0;
  for (int key = 0; key < tile->keys; key += whole ? tile->keys : HARK_KEY_GROUP) {
    hark_product product = {.a = rows,
                            .a_step = padded,
                            .b = tile_weights + key * HARK_TILE_QUERIES,
                            .b_row = HARK_TILE_QUERIES,
                            .b_step = 1,
                            .c = target + key * target_stride,
                            .c_row = target_stride,
                            .rows = whole ? tile->keys : (int)hark_min(HARK_KEY_GROUP, tile->keys - key),
                            .begin = whole ? 0 : hark_dense_first_vector(tile, key) * HARK_LANES,
                            .end = tile->queries,
                            .part = features % HARK_LANES};
    if (product.begin >= product.end) break;
    if (row_words != NULL) HARK_ISA(hark_dense_backward_spread_words)(tile, state, row_words, key, &product);
    spread_vectors(&product, 0, features / HARK_LANES);
    if (product.part > 0) spread_part(&product, features / HARK_LANES, features / HARK_LANES + 1);
  }
}

/* The same if rows are not finite and entries are hidden: such rows are added separately, to keys with a weight above 0. */
static void spread_seen(const hark_dense_tile *tile, hark_dense_backward_state *state, const float *tile_weights, const float *rows,
                        int padded, int features, float *target, int64_t target_stride) {
  bool bad[HARK_TILE_QUERIES];
  hark_clean_rows(rows, padded, tile->queries, features, padded, state->clean, bad);
  spread(tile, state, tile_weights, state->clean, NULL, padded, features, target, target_stride);
  for (int key = 0; key < tile->keys; key++)
    for (int lane = hark_dense_first_vector(tile, key) * HARK_LANES; lane < tile->queries; lane++) {
      const float weight = tile_weights[key * HARK_TILE_QUERIES + lane];
      if (!bad[lane] || weight == 0.0f) continue;
      for (int c = 0; c < features; c++) target[key * target_stride + c] += weight * rows[lane * padded + c];
    }
}

/* dquery += K' dS' if K is not finite and entries are hidden. */
static void combine_seen(const hark_dense_tile *tile, const hark_product *product, hark_dense_backward_state *state) {
  bool bad[HARK_TILE_KEYS];
  const int features = tile->call->head_dim;
  hark_product clean = *product;
  hark_clean_rows(product->b, product->b_step, tile->keys, features, tile->call->head_pad, state->clean, bad);
  clean.b = state->clean;
  clean.b_step = tile->call->head_pad;
  combine(&clean, hark_dense_vectors(tile));
  for (int key = 0; key < tile->keys; key++)
    for (int lane = hark_dense_first_vector(tile, key) * HARK_LANES; bad[key] && lane < tile->queries; lane++) {
      const float weight = state->dlogits[key * HARK_TILE_QUERIES + lane];
      if (weight == 0.0f) continue;
      for (int c = 0; c < features; c++) state->dquery[c * HARK_TILE_QUERIES + lane] += weight * product->b[key * product->b_step + c];
    }
}

/* Marks keys with values, and lanes with numbers, that are not finite: there visible entries keep weights above 0. */
typedef struct not_finite {
  bool key[HARK_TILE_KEYS];
  float lane[HARK_TILE_QUERIES]; /* 0, or NaN */
} not_finite;

/* Logits with their terms -> P, exactly zero if hidden; with dropout also dlogits = -P D and P o M. marks: NULL if everything is finite. */
static void tile_weights(const hark_dense_tile *tile, hark_dense_backward_state *state, const not_finite *marks) {
  const bool dropout = tile->call->dropout_threshold > 0, exact = state->exact.any;
  for (int m = 0; m < hark_dense_vectors(tile); m++) {
    const int lane = m * HARK_LANES;
    const vm nothing = vf_equal(vf_load(state->start + lane), vf_set(-INFINITY));
    const vf delta = vf_load(state->delta + lane);
    for (int key = 0; key < tile->keys && hark_dense_first_vector(tile, key) <= m; key++) {
      const ptrdiff_t at = (ptrdiff_t)key * HARK_TILE_QUERIES + lane;
      const vf logit = vf_load(state->weights + at);
      vf weight = vf_exp2(vf_not_above(logit, vf_zero()));
      if (marks != NULL) {
        const vm bad = vm_not(vf_equal(vf_load(marks->lane + lane), vf_zero()));
        const vf seen = hark_seen_weight(weight, logit);
        weight = marks->key[key] ? seen : vf_select(bad, seen, weight);
      }
      if (exact) weight = weight * vf_load(state->inverse + lane);
      weight = vf_select(nothing, vf_zero(), weight);
      vf_store(state->weights + at, weight);
      if (dropout) vf_store(state->dlogits + at, vf_select(vf_equal(weight, vf_zero()), vf_zero(), weight * delta));
    }
  }
  if (dropout) HARK_ISA(hark_dense_drop)(tile, state->weights);
}

/* Sets dS to zero for terms that gather gradients: in vectors that were not computed because no lane sees the key, and in lanes without a
 * query. */
static void zero_unseen(const hark_dense_tile *tile, float *dlogits) {
  const int lanes = hark_dense_vectors(tile) * HARK_LANES;
  for (int key = 0; key < tile->keys; key++) {
    const int first = (int)hark_min(hark_dense_first_vector(tile, key), hark_dense_vectors(tile));
    float *row = dlogits + key * HARK_TILE_QUERIES;
    memset(row, 0, (size_t)first * HARK_LANES * sizeof *row);
    for (int lane = tile->queries; lane < lanes; lane++) row[lane] = 0.0f;
  }
}

/* Memory that the next tile needs: keys and values, or after the last of them the next queries' rows. */
static void look_ahead(const hark_dense_tile *tile, const hark_dense_backward_state *state, hark_product_ahead *ahead) {
  const hark_dense_call *call = tile->call;
  const hark_attention_args *args = call->args;
  const int64_t item = tile->sequence->item, row = hark_dense_query_row(tile) + HARK_TILE_QUERIES;
  if (state->keys_left > 0) {
    const int keys = (int)hark_min(HARK_TILE_KEYS, state->keys_left);
    ahead[0] = (hark_product_ahead){state->key + tile->keys * state->key_stride, state->key_stride, keys, call->head_dim};
    ahead[1] = (hark_product_ahead){state->value + tile->keys * state->value_stride, state->value_stride, keys, call->value_dim};
  } else if (state->next_queries > 0) {
    const int queries = state->next_queries;
    ahead[0] = (hark_product_ahead){hark_dense_row(&args->query, item, tile->head, row), state->query_stride, queries, call->head_dim};
    ahead[1] = (hark_product_ahead){hark_dense_row(&args->dout, item, tile->head, row), state->gradient_stride, queries, call->value_dim};
    ahead[2] = (hark_product_ahead){hark_dense_row(&args->out, item, tile->head, row), args->out.stride[2], queries, call->value_dim};
  }
}

static void find_not_finite(const hark_dense_tile *tile, const hark_dense_backward_state *state, not_finite *out) {
  const hark_dense_call *call = tile->call;
  for (int key = 0; key < tile->keys; key++)
    out->key[key] = !hark_rows_finite(state->value + key * state->value_stride, 0, 1, call->value_dim);
  memset(out->lane, 0, sizeof out->lane);
  for (int lane = 0; lane < tile->queries; lane++) {
    const bool finite = hark_rows_finite(state->query_rows + (ptrdiff_t)lane * call->head_pad, 0, 1, call->head_dim) &&
                        hark_rows_finite(state->gradient_rows + (ptrdiff_t)lane * call->value_pad, 0, 1, call->value_dim);
    out->lane[lane] = finite ? 0.0f * state->delta[lane] : NAN;
  }
}

static void visit_tile(const hark_dense_tile *tile, hark_dense_backward_state *state) {
  const hark_dense_call *call = tile->call;
  hark_product product = {.a = state->queries,
                          .a_step = HARK_TILE_QUERIES,
                          .b = state->key,
                          .b_row = state->key_stride,
                          .b_step = 1,
                          .c = state->weights,
                          .c_row = HARK_TILE_QUERIES,
                          .rows = tile->keys,
                          .end = call->head_dim,
                          .start = state->start,
                          .diagonal = hark_dense_diagonal(tile)};
  look_ahead(tile, state, product.ahead);
  HARK_ISA(hark_dense_backward_score_words)(tile, state->words.queries, state->words.keys, &product);
  bool hidden = false;
  if (tile->general || state->exact.any || !state->rows_finite) {
    if (call->contextual) { /* whose gates see the products alone */
      product.start = state->zero;
      product.diagonal = NULL;
    }
    hark_dense_scores(tile, scores_store, &product);
    if (call->contextual) HARK_ISA(hark_dense_contextual_count)(tile, state->start, state->weights, &state->contextual);
    hidden = HARK_ISA(hark_dense_finish_logits)(tile) || !state->rows_finite; /* an infinite query sees no key */
    if (state->exact.any) HARK_ISA(hark_dense_backward_exact_logits)(tile, state);
    not_finite marks;
    const bool finite = state->rows_finite && hark_rows_finite(state->value, state->value_stride, tile->keys, call->value_dim);
    if (!finite) find_not_finite(tile, state, &marks);
    tile_weights(tile, state, finite ? NULL : &marks);
  } else {
    hark_dense_scores(tile, scores_exp2, &product);
  }
  const bool careful = hidden && !state->rows_finite;
  if (state->dvalue != NULL) {
    if (careful)
      spread_seen(tile, state, state->weights, state->gradient_rows, call->value_pad, call->value_dim, state->dvalue, state->dvalue_stride);
    else
      spread(tile, state, state->weights, state->gradient_rows, state->words.gradient_rows, call->value_pad, call->value_dim, state->dvalue,
             state->dvalue_stride);
  }
  if (state->dkey == NULL && !state->dquery_requested && !state->collects && call->args->dcontextual.data == NULL) return;

  memset(product.ahead, 0, sizeof product.ahead);
  product.diagonal = NULL;
  product.a = state->gradients;
  product.b = state->value;
  product.b_row = state->value_stride;
  product.arithmetic = HARK_ADD_NUMBERS;
  product.c = state->dlogits;
  product.times = state->weights;
  product.end = call->value_dim;
  product.start = call->dropout_threshold > 0 ? state->zero : state->delta;
  HARK_ISA(hark_dense_backward_score_words)(tile, state->words.gradients, state->words.values, &product);
  hark_dense_scores(tile, call->dropout_threshold > 0 ? scores_times_add : tile->general ? scores_times_seen : scores_times, &product);
  if (call->rbf && state->exact.any) HARK_ISA(hark_dense_backward_exact_differences)(tile, state);
  if (state->collects || (call->rbf && state->exact.any)) zero_unseen(tile, state->dlogits);
  if (state->collects) {
    if (state->only != NULL) state->only->collect(tile, state->only_memory, state->dlogits);
    for (int i = 0; i < call->term_count && state->only == NULL; i++)
      if (call->terms[i]->collects != NULL && call->terms[i]->collects(call) && call->terms[i] != &HARK_ISA(hark_dense_rbf))
        call->terms[i]->collect(tile, call->term_memory[i], state->dlogits);
  }
  if (call->rbf && state->exact.any && state->only == NULL) HARK_ISA(hark_dense_backward_exact_gradients)(tile, state);
  for (int i = 0; i < call->term_count && state->only == NULL && state->dkey != NULL; i++) /* the columns of ordinary rows */
    if (call->terms[i] == &HARK_ISA(hark_dense_rbf)) call->terms[i]->collect(tile, call->term_memory[i], state->dlogits);
  if (call->contextual && state->only == NULL)
    HARK_ISA(hark_dense_contextual_differentiate)(tile, state->start, state->dlogits, &state->contextual);
  if (state->dkey != NULL) {
    if (careful)
      spread_seen(tile, state, state->dlogits, state->query_rows, call->head_pad, call->head_dim, state->dkey, state->dkey_stride);
    else
      spread(tile, state, state->dlogits, state->query_rows, state->words.query_rows, call->head_pad, call->head_dim, state->dkey,
             state->dkey_stride);
  }
  if (state->dquery_requested) {
    int limits[HARK_TILE_VECTORS], pair_limits[HARK_TILE_VECTORS];
    hark_product sum = {.a = state->dlogits,
                        .a_step = HARK_TILE_QUERIES,
                        .b = state->key,
                        .b_row = 1,
                        .b_step = state->key_stride,
                        .c = state->dquery,
                        .c_row = HARK_TILE_QUERIES,
                        .rows = call->head_dim,
                        .end = tile->keys};
    if (call->causal && tile->keys - 1 > tile->shift) {
      for (int m = 0; m < HARK_TILE_VECTORS; m++)
        limits[m] = (int)hark_max(0, hark_min(tile->keys, tile->shift + (int64_t)(m + 1) * HARK_LANES));
      sum.limits = limits;
    }
    if (!hark_rows_finite(state->key, state->key_stride, tile->keys, call->head_dim))
      combine_seen(tile, &sum, state);
    else {
      HARK_ISA(hark_dense_backward_sum_words)(tile, state, &sum, pair_limits);
      combine(&sum, hark_dense_vectors(tile));
    }
  }
}

void HARK_ISA(hark_dense_backward_pack_scores)(const hark_dense_tile *tile, hark_dense_backward_state *state) {
  const hark_dense_call *call = tile->call;
  const hark_attention_args *args = call->args;
  const int64_t item = tile->sequence->item, row = tile->sequence->query_row + tile->query;
  const float *log_sum_exp = hark_dense_log_sum_exp(call, tile->sequence, tile->head) + tile->query;
  state->query_stride = args->query.stride[2];
  hark_pack_transposed(hark_dense_row(&args->query, item, tile->head, row), state->query_stride, tile->queries, call->head_dim,
                       (float)(call->scale * HARK_LOG2_E), state->queries);
  for (int lane = 0; lane < HARK_TILE_QUERIES; lane++) {
    state->start[lane] = -INFINITY;
    if (lane < tile->queries && log_sum_exp[lane] != -INFINITY) state->start[lane] = -log_sum_exp[lane] * HARK_LOG2_E;
  }
  if (call->exact_rows != NULL) HARK_ISA(hark_dense_exact_begin)(tile, state->queries, state->exact_memory, &state->exact);
  for (int lane = 0; call->rbf && lane < tile->queries;
       lane += HARK_LANES) /* log_sum_exp contains -|q|^2 / (2 sigma^2), the tile's logits do not */
    vf_store(state->start + lane, vf_load(state->start + lane) - vf_load(state->exact.square + lane) * vf_set(state->exact.to_half));
}

/* The same with its gradients, -D, and the data of its exact rows. */
static void pack_queries(const hark_dense_tile *tile, hark_dense_backward_state *state) {
  const hark_dense_call *call = tile->call;
  const hark_attention_args *args = call->args;
  const int64_t item = tile->sequence->item, row = tile->sequence->query_row + tile->query;
  const int d = call->head_dim, dv = call->value_dim;
  const float *query = hark_dense_row(&args->query, item, tile->head, row);
  const float *gradient = hark_dense_row(&args->dout, item, tile->head, row);
  const float *out = hark_dense_row(&args->out, item, tile->head, row);
  HARK_ISA(hark_dense_backward_pack_scores)(tile, state);
  state->gradient_stride = args->dout.stride[2];
  hark_pack_transposed(gradient, state->gradient_stride, tile->queries, dv, 1.0f, state->gradients);
  hark_pack_rows(query, state->query_stride, tile->queries, d, call->head_pad, (float)call->scale, state->query_rows);
  hark_pack_rows(gradient, state->gradient_stride, tile->queries, dv, call->value_pad, 1.0f, state->gradient_rows);
  if (call->arithmetic != HARK_ADD_NUMBERS) HARK_ISA(hark_dense_backward_pack_words)(tile, state);
  for (int lane = 0; lane < HARK_TILE_QUERIES; lane++) {
    state->delta[lane] = 0.0f;
    if (lane >= tile->queries) continue;
    const float *o = out + lane * args->out.stride[2], *g = state->gradient_rows + (ptrdiff_t)lane * call->value_pad;
    vf sum = vf_zero();
    int c = 0;
    for (; c + HARK_LANES <= dv; c += HARK_LANES) sum = vf_fma(vf_load(o + c), vf_load(g + c), sum);
    if (c < dv) sum = vf_fma(vf_load_part(o + c, dv - c), vf_load(g + c), sum);
    state->delta[lane] = -vf_sum(sum);
  }
  state->rows_finite = hark_rows_finite(state->query_rows, call->head_pad, tile->queries, d) &&
                       hark_rows_finite(state->gradient_rows, call->value_pad, tile->queries, dv) &&
                       hark_rows_finite(state->delta, 0, 1, HARK_TILE_QUERIES);
  if (call->exact_rows != NULL) HARK_ISA(hark_dense_backward_take_exact_rows)(tile, state);
}

static float *partial_tile(const hark_dense_call *call, int64_t chunk, int64_t sequence, int64_t head, int64_t tile) {
  const int64_t index = (chunk * call->tile_count + call->tiles_before[sequence] + tile) * call->heads + head;
  return call->partial_dquery + index * call->head_dim * HARK_TILE_QUERIES;
}

/* Keys of one range that a tile of queries sees. */
static void range_of(const hark_dense_call *call, const hark_attention_sequence *sequence, int64_t query, int64_t queries, int64_t chunk,
                     int64_t *from, int64_t *to) {
  int64_t begin, end;
  hark_dense_chunk(call, sequence, chunk, &begin, &end);
  HARK_ISA(hark_dense_visible_keys)(call, sequence, query, queries, from, to);
  *from = hark_max(*from, begin);
  *to = hark_min(*to, end);
}

static void zero_rows(float *rows, int64_t stride, int64_t count, int features) {
  for (int64_t r = 0; r < count; r++) memset(rows + r * stride, 0, (size_t)features * sizeof *rows);
}

hark_dense_backward_state *HARK_ISA(hark_dense_backward_open)(const hark_dense_call *call, void *memory) {
  hark_dense_backward_state *state = memory;
  memset(state, 0, sizeof *state);
  state->queries = (float *)(void *)((char *)memory + hark_align_up(sizeof *state));
  state->dquery = state->queries + (size_t)call->head_dim * HARK_TILE_QUERIES;
  state->gradients = state->dquery + (size_t)call->head_dim * HARK_TILE_QUERIES;
  state->query_rows = state->gradients + (size_t)call->value_dim * HARK_TILE_QUERIES;
  state->gradient_rows = state->query_rows + (size_t)call->head_pad * HARK_TILE_QUERIES;
  state->weights = state->gradient_rows + (size_t)call->value_pad * HARK_TILE_QUERIES;
  state->dlogits = state->weights + HARK_TILE_KEYS * HARK_TILE_QUERIES;
  state->exact_memory = state->dlogits + HARK_TILE_KEYS * HARK_TILE_QUERIES;
  state->clean = state->exact_memory + hark_dense_exact_floats(call->desc, true);
  if (call->arithmetic != HARK_ADD_NUMBERS)
    state->words = HARK_ISA(hark_dense_backward_place_words)(call, state->clean + clean_floats(call->desc));
  state->contextual_memory = state->clean + clean_floats(call->desc); /* there are no words then */
  state->key_stride = call->args->key.stride[2];
  state->value_stride = call->args->value.stride[2];
  for (int lane = 0; lane < HARK_TILE_QUERIES; lane++) state->gain[lane] = (float)call->scale;
  return state;
}

void HARK_ISA(hark_dense_backward_count)(hark_dense_tile *tile, hark_dense_backward_state *state, const float *keys, int64_t from,
                                         int64_t to, int64_t seen) {
  hark_dense_contextual_state *contextual = &state->contextual;
  HARK_ISA(hark_dense_contextual_begin)(tile, state->queries, from, seen - from, state->contextual_memory, contextual);
  tile->contextual = contextual;
  if (seen > to) { /* the last tile that is visited ends at `to`: those nearer begin there */
    contextual->from = to;
    HARK_ISA(hark_dense_contextual_sum)(tile, state->queries, keys, state->key_stride, seen, contextual);
  }
  contextual->from = from;
  HARK_ISA(hark_dense_contextual_sum)(tile, state->queries, keys, state->key_stride, to, contextual);
}

void HARK_ISA(hark_dense_backward_range)(const hark_dense_call *call, int64_t sequence_index, int64_t key_head, int64_t chunk,
                                         void *memory) {
  const hark_attention_sequence *sequence = call->run->sequences + sequence_index;
  const hark_attention_args *args = call->args;
  hark_dense_backward_state *state = HARK_ISA(hark_dense_backward_open)(call, memory);
  state->dquery_requested = args->dquery.data != NULL;
  for (int i = 0; i < call->term_count; i++)
    state->collects = state->collects || (call->terms[i]->collects != NULL && call->terms[i]->collects(call));
  state->dkey_stride = args->dkey.stride[2];
  state->dvalue_stride = args->dvalue.stride[2];
  int64_t begin, end;
  hark_dense_chunk(call, sequence, chunk, &begin, &end);
  const int64_t item = sequence->item, row = sequence->key_row;
  float *dkey = NULL, *dvalue = NULL;
  const float *key = NULL, *value = NULL;
  if (begin < end) {
    key = hark_dense_row(&args->key, item, key_head, row);
    value = hark_dense_row(&args->value, item, key_head, row);
    if (args->dkey.data != NULL) {
      dkey = hark_dense_row_of(&args->dkey, item, key_head, row);
      if (!(args->accumulate & HARK_ACCUMULATE_KEY))
        zero_rows(dkey + begin * state->dkey_stride, state->dkey_stride, end - begin, call->head_dim);
    }
    if (args->dvalue.data != NULL) {
      dvalue = hark_dense_row_of(&args->dvalue, item, key_head, row);
      if (!(args->accumulate & HARK_ACCUMULATE_VALUE))
        zero_rows(dvalue + begin * state->dvalue_stride, state->dvalue_stride, end - begin, call->value_dim);
    }
  }
  state->all_keys = key;
  hark_dense_tile tile = {.call = call, .sequence = sequence, .sequence_index = sequence_index, .chunk = chunk, .logits = state->weights};
  for (tile.head = key_head * call->group; tile.head < (key_head + 1) * call->group; tile.head++)
    for (tile.query = 0; tile.query < sequence->query_count; tile.query += HARK_TILE_QUERIES) {
      int64_t from, to;
      tile.queries = (int)hark_min(HARK_TILE_QUERIES, sequence->query_count - tile.query);
      range_of(call, sequence, tile.query, tile.queries, chunk, &from, &to);
      if (from >= to && call->partial_dquery != NULL) continue;
      if (hark_cancel_now(call->context)) return;
      memset(state->dquery, 0, (size_t)call->head_dim * HARK_TILE_QUERIES * sizeof(float));
      if (from < to) pack_queries(&tile, state);
      if (call->contextual && from < to) HARK_ISA(hark_dense_backward_count)(&tile, state, key, from, to, to);
      for (tile.key = from; tile.key < to; tile.key += HARK_TILE_KEYS) {
        tile.keys = (int)hark_min(HARK_TILE_KEYS, to - tile.key);
        tile.shift = tile.query + sequence->offset - tile.key;
        state->keys_left = to - tile.key - tile.keys;
        state->next_queries = (int)hark_max(0, hark_min(HARK_TILE_QUERIES, sequence->query_count - tile.query - tile.queries));
        state->key = key + tile.key * state->key_stride;
        state->value = value + tile.key * state->value_stride;
        state->dkey = dkey == NULL ? NULL : dkey + tile.key * state->dkey_stride;
        state->dvalue = dvalue == NULL ? NULL : dvalue + tile.key * state->dvalue_stride;
        HARK_ISA(hark_dense_start_tile)(&tile);
        visit_tile(&tile, state);
      }
      if (call->contextual && from < to) HARK_ISA(hark_dense_contextual_finish)
      (&tile, state->query_rows, state->dquery_requested ? state->dquery : NULL, &state->contextual);
      if (!state->dquery_requested) continue;
      if (call->partial_dquery != NULL)
        memcpy(partial_tile(call, chunk, sequence_index, tile.head, tile.query / HARK_TILE_QUERIES), state->dquery,
               (size_t)call->head_dim * HARK_TILE_QUERIES * sizeof(float));
      else
        hark_unpack_transposed(state->dquery, state->gain, tile.queries, call->head_dim, (args->accumulate & HARK_ACCUMULATE_QUERY) != 0,
                               hark_dense_row_of(&args->dquery, item, tile.head, sequence->query_row + tile.query), args->dquery.stride[2]);
    }
}

void HARK_ISA(hark_dense_visit_gradients)(const hark_dense_call *call, const hark_dense_term *term, void *term_memory,
                                          int64_t sequence_index, int64_t head, int64_t query, int queries, int64_t key_from,
                                          int64_t key_to, void *memory) {
  if (call->sticks) {
    HARK_ISA(hark_stick_visit_gradients)
    (call, term, term_memory, sequence_index, head, query, queries, key_from, key_to, memory);
    return;
  }
  const hark_attention_sequence *sequence = call->run->sequences + sequence_index;
  hark_dense_tile tile = {
      .call = call, .sequence = sequence, .sequence_index = sequence_index, .head = head, .query = query, .queries = queries};
  int64_t from, to;
  HARK_ISA(hark_dense_visible_keys)(call, sequence, query, queries, &from, &to);
  const int64_t seen = to;
  from = hark_max(from, key_from);
  to = hark_min(to, key_to);
  if (from >= to) return;
  hark_dense_backward_state *state = HARK_ISA(hark_dense_backward_open)(call, memory);
  state->collects = true;
  state->only = term;
  state->only_memory = term_memory;
  tile.logits = state->weights;
  pack_queries(&tile, state);
  const float *key = hark_dense_row(&call->args->key, sequence->item, head / call->group, sequence->key_row);
  const float *value = hark_dense_row(&call->args->value, sequence->item, head / call->group, sequence->key_row);
  if (call->contextual) HARK_ISA(hark_dense_backward_count)(&tile, state, key, from, to, seen);
  for (tile.key = from; tile.key < to; tile.key += HARK_TILE_KEYS) {
    tile.keys = (int)hark_min(HARK_TILE_KEYS, to - tile.key);
    tile.shift = query + sequence->offset - tile.key;
    state->key = key + tile.key * state->key_stride;
    state->value = value + tile.key * state->value_stride;
    HARK_ISA(hark_dense_start_tile)(&tile);
    visit_tile(&tile, state);
  }
}

void HARK_ISA(hark_dense_gather_dquery)(const hark_dense_call *call, int64_t sequence_index, int64_t head, int64_t index, void *memory) {
  const hark_attention_sequence *sequence = call->run->sequences + sequence_index;
  const hark_attention_args *args = call->args;
  const int64_t query = index * HARK_TILE_QUERIES;
  const int queries = (int)hark_min(HARK_TILE_QUERIES, sequence->query_count - query);
  const int64_t count = (int64_t)call->head_dim * HARK_TILE_QUERIES;
  float *sum = memory, gain[HARK_TILE_QUERIES];
  for (int lane = 0; lane < HARK_TILE_QUERIES; lane++) gain[lane] = (float)call->scale;
  memset(sum, 0, (size_t)count * sizeof *sum);
  for (int64_t chunk = 0; chunk < call->chunks; chunk++) {
    int64_t from, to;
    range_of(call, sequence, query, queries, chunk, &from, &to);
    if (from >= to) continue;
    const float *part = partial_tile(call, chunk, sequence_index, head, index);
    for (int64_t i = 0; i < count; i += HARK_LANES) vf_store(sum + i, vf_load(sum + i) + vf_load(part + i));
  }
  hark_unpack_transposed(sum, gain, queries, call->head_dim, (args->accumulate & HARK_ACCUMULATE_QUERY) != 0,
                         hark_dense_row_of(&args->dquery, sequence->item, head, sequence->query_row + query), args->dquery.stride[2]);
}
