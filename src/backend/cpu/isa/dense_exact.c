/* dense_exact.c - rows of attention whose logits need float64.
 *
 * Large logits: rows whose highest logit, with all terms, is so far from 0 that its rounding would change the weights, for example with a
 * bias of -1e9 on all keys. Their logits are float64 until they are relative to the row's own base: a product in f32, which is exact enough
 * for its size, plus the terms, which may be any numbers of f32 (in units of log 2, those above 2.4e38 exceed it). The backward recomputes
 * the highest logit and the sum of such a row, because log_sum_exp is their logarithm, in which the sum is lost. Rows without terms lose
 * nothing in the forward, where the base is a logit itself.
 *
 * RBF: rows whose squared distances must not come from products (distances.h). Logits of a tile are first computed from products, which
 * show the significant ones: a lane becomes exact if it has a pair with a spread above the bound and a logit that may reach the highest
 * minus 40. All logits of that lane in the tile are then -|q - k|^2 / (2 sigma^2) from differences, in float64 until they are relative to
 * the lane's offset, plus the other terms, which are recomputed on a tile of zeros. A far key without weight costs nothing: a row is exact
 * only where that is significant. In the backward a row is exact in all tiles, and its log-sum-exp is recomputed, because the given one has
 * been rounded.
 *
 * Cost of an exact logit: d differences in float64, about five times a product's. Ordinary tiles: a few operations per key.
 */
#include "dense_tile.h"
#include "distances.h"

void HARK_ISA(hark_dense_exact_begin)(const hark_dense_tile *tile, const float *queries, float *memory, hark_dense_exact *exact) {
  const hark_dense_call *call = tile->call;
  const hark_tensor *query = &call->args->query;
  exact->query = hark_dense_row(query, tile->sequence->item, tile->head, hark_dense_query_row(tile));
  exact->query_stride = query->stride[2];
  exact->packed = queries;
  exact->others = (double *)(void *)memory;
  exact->one = memory + (ptrdiff_t)2 * HARK_TILE_KEYS * HARK_TILE_QUERIES;
  exact->products = exact->one + (ptrdiff_t)HARK_TILE_KEYS * HARK_TILE_QUERIES;
  exact->others_of = -1;
  exact->any = false;
  exact->longest = 0.0f;
  memset(exact->is, 0, sizeof exact->is);
  if (!call->rbf) return;
  const hark_square_factors factors = hark_square_factors_of(call->scale * HARK_LOG2_E); /* the packed query is q log2(e) / sigma^2 */
  exact->to_half = factors.after;
  for (int lane = 0; lane < hark_dense_vectors(tile) * HARK_LANES; lane += HARK_LANES) {
    vf square = vf_zero();
    for (int c = 0; c < call->head_dim; c++) {
      const vf x = vf_set(factors.before) * vf_load(queries + (ptrdiff_t)c * HARK_TILE_QUERIES + lane);
      square = vf_fma(x, x, square);
    }
    vf_store(exact->square + lane, square);
    vf_store(exact->root + lane, vf_sqrt(square * vf_set(exact->to_half)));
  }
  for (int lane = 0; lane < tile->queries; lane++) /* ignores NaN: its spread is above no bound */
    exact->longest = exact->root[lane] > exact->longest ? exact->root[lane] : exact->longest;
}

static const float *norms_of(const hark_dense_tile *tile) {
  return HARK_ISA(hark_dense_key_norms)(tile->call, tile->sequence, tile->head / tile->call->group) + tile->key;
}

/* The rounding of q.k and |k|^2: the part of the spread without |q|^2, because |q|^2 is in no logit. */
HARK_SIMD vf lost(vf query_root, vf key_root) { return vf_fma(query_root + query_root, key_root, key_root * key_root); }

HARK_SIMD vf spread_of(vf query_root, vf key_root) {
  const vf sum = query_root + key_root;
  return sum * sum;
}

bool HARK_ISA(hark_dense_exact_possible)(const hark_dense_tile *tile, const hark_dense_exact *exact) {
  const float *norms = norms_of(tile);
  vm above = vf_less(vf_zero(), vf_zero());
  for (int key = 0; key < tile->keys; key += HARK_LANES) {
    const vf roots = vf_sqrt(vf_zero() - vf_load_part_or_all(norms + key, tile->keys - key));
    above = vm_or(above, vm_not(vf_less(lost(vf_set(exact->longest), roots), vf_set(HARK_DISTANCE_SPREAD))));
  }
  return exact->any || vm_any(above);
}

/* A lower bound of the highest logit of lanes that have seen no key. */
static vf lowest_top(const hark_dense_tile *tile, const float *roots, int m, vf query_root, vf slack) {
  vf top = vf_set(-INFINITY);
  for (int key = 0; key < tile->keys && hark_dense_first_vector(tile, key) <= m; key++) {
    const vf x = vf_load(tile->logits + key * HARK_TILE_QUERIES + m * HARK_LANES);
    const vf least = x - slack * spread_of(query_root, vf_set(roots[key]));
    top = vf_select(vf_less(top, least), least, top); /* ignores NaN */
  }
  return top;
}

bool HARK_ISA(hark_dense_exact_find)(const hark_dense_tile *tile, const hark_dense_exact *exact, const float *bound, bool *found) {
  const float *norms = norms_of(tile);
  const vf hidden = vf_set(-INFINITY), slack = vf_set(HARK_DISTANCE_SLACK(tile->call->head_dim));
  float roots[HARK_TILE_KEYS], flags[HARK_TILE_QUERIES] = {0};
  bool any = false;
  for (int key = 0; key < tile->keys; key += HARK_LANES)
    vf_store(roots + key, vf_sqrt(vf_zero() - vf_load_part_or_all(norms + key, tile->keys - key)));
  for (int lane = 0; lane < hark_dense_vectors(tile) * HARK_LANES; lane++) flags[lane] = exact->is[lane] ? 1.0f : 0.0f;
  for (int m = 0; m < hark_dense_vectors(tile); m++) {
    const int lane = m * HARK_LANES;
    const vf query_root = vf_load(exact->root + lane);
    vf highest = vf_zero();
    if (bound != NULL) {
      const vm begins = vf_equal(vf_load(bound + lane), hidden);
      if (vm_any(begins)) highest = vf_select(begins, lowest_top(tile, roots, m, query_root, slack), highest);
    }
    const vf least = highest + vf_set(HARK_DISTANCE_FAINT);
    const vm already = vm_not(vf_equal(vf_load(flags + lane), vf_zero()));
    vm needs = vf_less(vf_zero(), vf_zero());
    for (int key = 0; key < tile->keys && hark_dense_first_vector(tile, key) <= m; key++) {
      const vf root = vf_set(roots[key]), x = vf_load(tile->logits + key * HARK_TILE_QUERIES + lane);
      const vm above = vm_or(already, vm_not(vf_less(lost(query_root, root), vf_set(HARK_DISTANCE_SPREAD))));
      const vm faint = vm_or(vf_equal(x, hidden), vf_less(vf_fma(slack, spread_of(query_root, root), x), least));
      needs = vm_or(needs, vm_and(above, vm_not(faint)));
    }
    vf_store(flags + lane, vf_select(needs, vf_set(1.0f), vf_zero()));
  }
  for (int lane = 0; lane < tile->queries; lane++) {
    found[lane] = flags[lane] != 0.0f;
    any = any || found[lane];
  }
  return any;
}

HARK_SIMD_NOINLINE void scores(const hark_product *p, int last) { hark_product_run(HARK_FINISH_STORE, p, 0, last); }

/* Adds one term (or none: -1) to exact->others, -infinity where it, causality or the window hides. */
static void add_term(const hark_dense_tile *tile, int term, hark_dense_exact *exact) {
  const int lanes = hark_dense_vectors(tile) * HARK_LANES;
  hark_dense_call call = *tile->call;
  hark_dense_tile alone = *tile;
  call.term_count = term >= 0;
  call.starts = call.term_count > 0 && call.terms[term]->start != NULL;
  if (call.term_count > 0) {
    call.term_memory[0] = call.term_memory[term];
    call.terms[0] = call.terms[term];
  }
  alone.call = &call;
  alone.logits = exact->one;
  alone.terms_alone = true;
  HARK_ISA(hark_dense_start_tile)(&alone);
  const float *diagonal = hark_dense_diagonal(&alone);
  for (int key = 0; key < tile->keys; key++)
    for (int lane = 0; lane < lanes; lane++) exact->one[key * HARK_TILE_QUERIES + lane] = diagonal == NULL ? 0.0f : diagonal[lane - key];
  (void)HARK_ISA(hark_dense_finish_logits)(&alone);
  for (int key = 0; key < tile->keys; key++)
    for (int lane = 0; lane < lanes; lane++) {
      const double x = 4.0 * (double)exact->one[key * HARK_TILE_QUERIES + lane];
      double *sum = &exact->others[key * HARK_TILE_QUERIES + lane];
      *sum = term < 0 || x == -INFINITY ? x : *sum == -INFINITY ? *sum : *sum + x;
    }
}

/* Sums of the terms, each computed separately, -infinity if the entry is hidden; and, without rbf, the products. */
static void make_others(const hark_dense_tile *tile, hark_dense_exact *exact, const float *key, int64_t key_stride) {
  static const float none[HARK_TILE_QUERIES];
  if (exact->others_of == tile->key) return;
  exact->others_of = tile->key;
  add_term(tile, -1, exact);
  for (int i = 0; i < tile->call->term_count; i++)
    if (tile->call->terms[i] != &HARK_ISA(hark_dense_rbf)) add_term(tile, i, exact);
  if (tile->call->rbf) return;
  const hark_product product = {.a = exact->packed,
                                .a_step = HARK_TILE_QUERIES,
                                .b = key,
                                .b_row = key_stride,
                                .b_step = 1,
                                .c = exact->products,
                                .c_row = HARK_TILE_QUERIES,
                                .rows = tile->keys,
                                .end = tile->call->head_dim,
                                .start = none};
  scores(&product, hark_dense_vectors(tile));
}

void HARK_ISA(hark_dense_exact_logits)(const hark_dense_tile *tile, hark_dense_exact *exact, const float *key, int64_t key_stride, int lane,
                                       double *logits) {
  const hark_dense_call *call = tile->call;
  const float *query = exact->query + lane * exact->query_stride;
  const double scale = -0.5 * call->scale * HARK_DISTANCE_LOG2_E;
  make_others(tile, exact, key, key_stride);
  for (int i = 0; i < tile->keys; i++) {
    const double other = exact->others[i * HARK_TILE_QUERIES + lane];
    if (other == -INFINITY) /* the key may hold anything */
      logits[i] = -INFINITY;
    else if (call->rbf)
      logits[i] = scale * hark_squared_distance(query, key + i * key_stride, call->head_dim) + other;
    else
      logits[i] = (double)exact->products[i * HARK_TILE_QUERIES + lane] + other;
  }
}

double HARK_ISA(hark_dense_exact_half)(const hark_dense_tile *tile, const hark_dense_exact *exact, int lane) {
  const hark_dense_call *call = tile->call;
  if (!call->rbf) return 0.0;
  return 0.5 * call->scale * HARK_DISTANCE_LOG2_E * hark_square(exact->query + lane * exact->query_stride, call->head_dim);
}
