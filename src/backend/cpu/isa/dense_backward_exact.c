/* dense_backward_exact.c - rows of softmax attention whose logits are in float64 (dense_exact.c), for its gradients (dense_backward.c).
 * They are found, and the sums of their exponentials taken, before the tiles are visited.
 */
#include "dense_backward.h"
#include "distances.h"

HARK_PRODUCT_FUNCTION(scores_store, HARK_FINISH_STORE)

/* ---- computed first ---- */

/* State of a row while its keys are visited. */
typedef struct exact_sum {
  double top, sum;           /* sum of 2^(S - top) */
  double weights, mean;      /* rbf: the same sum, and that of 2^(S - top) dP, without roundings to f32 */
  const float *value, *dout; /* the first value of the tile and the row's dout; NULL: not needed */
  int64_t value_stride;
  int64_t leader;
  bool requested, number;
} exact_sum;

/* powers: the exponentials of a tile, relative to the new top; the sums so far are relative to the old one, `before` times that. */
static void add_means(const float *powers, int keys, int features, double before, exact_sum *row) {
  row->weights *= before;
  row->mean *= before;
  for (int i = 0; i < keys && row->dout != NULL; i++) {
    if (powers[i] == 0.0f) continue;
    row->weights += (double)powers[i];
    row->mean += (double)powers[i] * hark_exact_product(row->dout, row->value + i * row->value_stride, features);
  }
}

/* The same exponentials as in tile_weights() of dense_backward.c, so that the row's weights sum to one. */
static void add_exact(const double *logits, int keys, int64_t first, int features, exact_sum *row) {
  double top = row->top;
  for (int i = 0; i < keys; i++) {
    if (isnan(logits[i])) row->number = false;
    if (!(logits[i] > top)) continue;
    top = logits[i];
    row->leader = first + i;
  }
  if (top == -INFINITY) return;
  const double before = row->top == -INFINITY ? 0.0 : exp2(row->top - top);
  double sum = row->sum * before;
  float powers[HARK_TILE_KEYS];
  vf part = vf_zero();
  for (int i = 0; i < HARK_TILE_KEYS; i++) powers[i] = i < keys ? (float)(logits[i] - top) : -INFINITY;
  for (int i = 0; i < keys; i += HARK_LANES) {
    const vf power = vf_exp2(vf_load(powers + i));
    part = part + power;
    vf_store(powers + i, power);
  }
  add_means(powers, keys, features, before, row);
  sum += (double)vf_sum(part);
  row->top = top;
  row->sum = sum;
}

/* Visits the keys that a tile of queries sees: `summing` for the exact rows, otherwise (rbf) to find them. */
static bool visit_exact(hark_dense_tile *tile, hark_dense_backward_state *state, bool summing, exact_sum *rows) {
  const hark_dense_call *call = tile->call;
  bool any = false;
  int64_t from, to;
  HARK_ISA(hark_dense_visible_keys)(call, tile->sequence, tile->query, tile->queries, &from, &to);
  if (call->contextual && from < to) HARK_ISA(hark_dense_backward_count)(tile, state, state->all_keys, from, to, to);
  for (tile->key = from; tile->key < to; tile->key += HARK_TILE_KEYS) {
    tile->keys = (int)hark_min(HARK_TILE_KEYS, to - tile->key);
    tile->shift = tile->query + tile->sequence->offset - tile->key;
    if (!summing && !HARK_ISA(hark_dense_exact_possible)(tile, &state->exact)) continue;
    state->key = state->all_keys + tile->key * state->key_stride;
    state->value = state->all_values + tile->key * state->value_stride;
    HARK_ISA(hark_dense_start_tile)(tile);
    if (call->contextual) HARK_ISA(hark_dense_contextual_terms)(tile, state->queries, state->key, state->key_stride, &state->contextual);
    double logits[HARK_TILE_KEYS];
    for (int lane = 0; summing && lane < tile->queries; lane++) {
      if (!rows[lane].requested) continue;
      HARK_ISA(hark_dense_exact_logits)(tile, &state->exact, state->key, state->key_stride, lane, logits);
      rows[lane].value = state->value;
      add_exact(logits, tile->keys, tile->key, call->value_dim, &rows[lane]);
    }
    if (summing) continue;
    const hark_product product = {.a = state->queries,
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
    bool found[HARK_TILE_QUERIES];
    hark_dense_scores(tile, scores_store, &product);
    (void)HARK_ISA(hark_dense_finish_logits)(tile);
    if (!HARK_ISA(hark_dense_exact_find)(tile, &state->exact, NULL, found)) continue;
    for (int lane = 0; lane < tile->queries; lane++) rows[lane].requested = rows[lane].requested || (found[lane] && rows[lane].number);
    any = true;
  }
  return any;
}

void HARK_ISA(hark_dense_find_exact_rows)(const hark_dense_call *call, int64_t sequence_index, int64_t head, int64_t index, void *memory) {
  const hark_attention_sequence *sequence = call->run->sequences + sequence_index;
  const int64_t query = index * HARK_TILE_QUERIES;
  hark_dense_exact_row *known = hark_dense_exact_rows(call, sequence, head) + query;
  const float *log_sum_exp = hark_dense_log_sum_exp(call, sequence, head) + query;
  hark_dense_backward_state *state = HARK_ISA(hark_dense_backward_open)(call, memory);
  hark_dense_tile tile = {
      .call = call, .sequence = sequence, .sequence_index = sequence_index, .head = head, .query = query, .logits = state->weights};
  tile.queries = (int)hark_min(HARK_TILE_QUERIES, sequence->query_count - query);
  exact_sum rows[HARK_TILE_QUERIES];
  bool any = false;
  for (int lane = 0; lane < tile.queries; lane++) {
    known[lane].leader = -1;
    rows[lane] = (exact_sum){.top = -INFINITY, .leader = -1, .number = isfinite(log_sum_exp[lane])};
    rows[lane].requested = hark_dense_is_far(log_sum_exp[lane]);
    any = any || rows[lane].requested;
  }
  if (sequence->key_count == 0 || !(any || call->rbf)) return;
  HARK_ISA(hark_dense_backward_pack_scores)(&tile, state);
  for (int lane = 0; call->rbf && lane < tile.queries; lane++) {
    /* log_sum_exp is rounded, and so are |q|^2 and its difference if q is far from zero: such rows are exact whatever their keys are. */
    const float root = state->exact.root[lane];
    rows[lane].requested = rows[lane].requested || (rows[lane].number && root * root > HARK_DISTANCE_SPREAD);
    any = any || rows[lane].requested;
  }
  state->all_keys = hark_dense_row(&call->args->key, sequence->item, head / call->group, sequence->key_row);
  state->all_values = hark_dense_row(&call->args->value, sequence->item, head / call->group, sequence->key_row);
  for (int lane = 0; call->rbf && call->dropout_threshold == 0 && lane < tile.queries; lane++) {
    rows[lane].dout = hark_dense_row(&call->args->dout, sequence->item, head, hark_dense_query_row(&tile) + lane);
    rows[lane].value_stride = state->value_stride;
  }
  if (call->rbf) any = visit_exact(&tile, state, false, rows) || any;
  if (!any) return;
  (void)visit_exact(&tile, state, true, rows);
  for (int lane = 0; lane < tile.queries; lane++)
    if (rows[lane].requested && rows[lane].number && rows[lane].leader >= 0)
      known[lane] = (hark_dense_exact_row){
          .top = rows[lane].top,
          .sum = rows[lane].sum,
          .leader = rows[lane].leader,
          .mean = rows[lane].dout != NULL ? rows[lane].mean / rows[lane].weights : NAN,
      };
}

/* ---- in the tiles ---- */

void HARK_ISA(hark_dense_backward_take_exact_rows)(const hark_dense_tile *tile, hark_dense_backward_state *state) {
  const hark_dense_call *call = tile->call;
  const hark_dense_exact_row *rows = hark_dense_exact_rows(call, tile->sequence, tile->head) + tile->query;
  for (int lane = 0; lane < HARK_TILE_QUERIES; lane++) state->inverse[lane] = 1.0f;
  for (int lane = 0; lane < tile->queries; lane++) {
    if (rows[lane].leader < 0) continue;
    state->exact.any = state->exact.is[lane] = true;
    state->exact.base[lane] = rows[lane].top;
    state->inverse[lane] = (float)(1.0 / rows[lane].sum);
    state->leader[lane] = rows[lane].leader;
    state->mean[lane] = rows[lane].mean;
    state->start[lane] = 0.0f; /* its logits will be replaced */
  }
}

void HARK_ISA(hark_dense_backward_exact_logits)(const hark_dense_tile *tile, hark_dense_backward_state *state) {
  for (int lane = 0; lane < tile->queries; lane++) {
    if (!state->exact.is[lane]) continue;
    double logits[HARK_TILE_KEYS];
    HARK_ISA(hark_dense_exact_logits)(tile, &state->exact, state->key, state->key_stride, lane, logits);
    for (int i = 0; i < tile->keys; i++) state->weights[i * HARK_TILE_QUERIES + lane] = (float)(logits[i] - state->exact.base[lane]);
  }
}

void HARK_ISA(hark_dense_backward_exact_differences)(const hark_dense_tile *tile, hark_dense_backward_state *state) {
  const int features = tile->call->value_dim;
  for (int lane = 0; lane < tile->queries; lane++) {
    if (!state->exact.is[lane] || !isfinite(state->mean[lane])) continue;
    const float *dout = state->gradient_rows + (ptrdiff_t)lane * tile->call->value_pad;
    for (int i = 0; i < tile->keys; i++) {
      const ptrdiff_t at = (ptrdiff_t)i * HARK_TILE_QUERIES + lane;
      const double weight = (double)state->weights[at];
      if (weight == 0) continue;
      state->dlogits[at] =
          (float)(weight * (hark_exact_product(dout, state->value + i * state->value_stride, features) - state->mean[lane]));
    }
  }
}

/* rbf: removes their dS from the tile: dk[i] += scale dS (q[n] - k[i]). dS sums to zero, so dq[n] = scale sum_i dS (k[i] - c) for any c. c
 * is the key with the row's largest weight, so that no term is larger than the distances of the keys with a weight. */
void HARK_ISA(hark_dense_backward_exact_gradients)(const hark_dense_tile *tile, hark_dense_backward_state *state) {
  const hark_dense_call *call = tile->call;
  float *row = state->clean;
  for (int lane = 0; lane < tile->queries; lane++) {
    if (!state->exact.is[lane]) continue;
    const float *query = state->exact.query + lane * state->exact.query_stride;
    const float *leader = state->all_keys + state->leader[lane] * state->key_stride;
    memset(row, 0, (size_t)call->head_pad * sizeof *row);
    for (int i = 0; i < tile->keys; i++) {
      float *dlogit = state->dlogits + i * HARK_TILE_QUERIES + lane;
      const float *key = state->key + i * state->key_stride;
      if (*dlogit == 0.0f) continue; /* hidden: the key may hold anything */
      if (state->dkey != NULL)
        hark_add_difference((float)call->scale * *dlogit, query, key, call->head_dim, state->dkey + i * state->dkey_stride);
      if (state->dquery_requested) hark_add_difference(*dlogit, key, leader, call->head_dim, row);
      *dlogit = 0.0f;
    }
    for (int c = 0; state->dquery_requested && c < call->head_dim; c++) state->dquery[c * HARK_TILE_QUERIES + lane] += row[c];
  }
}
