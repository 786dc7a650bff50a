/* dense_contextual.c - contextual positions: their terms, tile by tile, and their gradients. See dense_contextual.h.
 *
 *     dT[x][n] = sum over i with floor c[n,i] = x of dS[n,i] (1 - f);  dT[x + 1][n] gets dS[n,i] f
 *     dq[n] += scale sum_x dT[x][n] e[x];   de[x] = scale sum_n dT[x][n] q[n]
 *     dc[n,i] = dS[n,i] (T[x + 1][n] - T[x][n]), 0 from c = N - 1 on;   d(scale q.k) = dS + g (1 - g) sum over farther i of dc, and its own
 *
 * Lanes are queries: each has its own column of T and dT, so that no addition meets another. A row's sums have one order. Source: Golovneva
 * et al. 2024, arXiv 2405.18719; the tiles are ours.
 *
 * Cost of a logit: an exponential, a quotient and two loads; the backward adds a product, two loads and two stores. Cost of a tile of
 * queries: N d multiply-adds for each query, three times as many in the backward.
 */
#include "dense_contextual.h"

#include "dense_pack.h"

#define TILE_FLOATS ((size_t)HARK_TILE_KEYS * HARK_TILE_QUERIES)

/* Keys that a tile of queries sees at most. */
static int64_t most_keys(const hark_attention_desc *desc) {
  if (desc->structure != HARK_STRUCTURE_WINDOW) return desc->key_length;
  return hark_min(desc->key_length, hark_min(desc->window, desc->key_length) + HARK_TILE_QUERIES);
}

/* Rows of e that a call of this descriptor can reach. */
static int64_t reachable_rows(const hark_attention_desc *desc) { return hark_dense_contextual_rows(desc, most_keys(desc)); }

bool HARK_ISA(hark_dense_contextual_fits)(const hark_attention_desc *desc) {
  return desc->contextual_positions == 0 || reachable_rows(desc) <= HARK_CONTEXTUAL_ROWS;
}

size_t HARK_ISA(hark_dense_contextual_floats)(const hark_attention_desc *desc, bool backward) {
  if (desc->contextual_positions == 0) return 0;
  const size_t rows = (size_t)(reachable_rows(desc) + 1) * HARK_TILE_QUERIES;
  if (!backward) return rows + 2 * TILE_FLOATS;
  const size_t tiles = (size_t)hark_ceil_div(most_keys(desc), HARK_TILE_KEYS) + 1;
  return 2 * rows + 6 * TILE_FLOATS + tiles * HARK_TILE_QUERIES + HARK_TILE_KEYS * hark_padded(desc->head_dim);
}

HARK_PRODUCT_FUNCTION(scores_store, HARK_FINISH_STORE)
HARK_PRODUCT_FUNCTION(combine_vectors, HARK_FINISH_COMBINE)
HARK_PRODUCT_FUNCTION(spread_vectors, HARK_FINISH_SPREAD)
HARK_PRODUCT_FUNCTION(spread_part, HARK_FINISH_SPREAD_PART)

static const float none[HARK_TILE_QUERIES];

/* scores [rows][lanes] = rows packed' */
static void multiply(const hark_dense_tile *tile, const float *packed, const float *rows, int64_t stride, int count, float *scores) {
  const hark_product product = {.a = packed,
                                .a_step = HARK_TILE_QUERIES,
                                .b = rows,
                                .b_row = stride,
                                .b_step = 1,
                                .c = scores,
                                .c_row = HARK_TILE_QUERIES,
                                .rows = count,
                                .end = tile->call->head_dim,
                                .start = none};
  scores_store(&product, 0, hark_dense_vectors(tile));
}

static void place(const hark_dense_call *call, int64_t keys, float *memory, hark_dense_contextual_state *state) {
  const size_t rows = (size_t)(state->rows + 1) * HARK_TILE_QUERIES, tiles = (size_t)hark_ceil_div(keys, HARK_TILE_KEYS) + 1;
  state->products = memory;
  state->terms = state->products + rows;
  state->hidden = state->terms + TILE_FLOATS;
  if (!call->backward) return;
  state->raw = state->hidden + TILE_FLOATS;
  state->positions = state->raw + TILE_FLOATS;
  state->slopes = state->positions + TILE_FLOATS;
  state->gates = state->slopes + TILE_FLOATS;
  state->sums = state->gates + TILE_FLOATS;
  state->carries = state->sums + rows;
  state->clean = state->carries + tiles * HARK_TILE_QUERIES;
  memset(state->sums, 0, rows * sizeof(float));
}

/* The call with those terms alone that hide entries. */
static hark_dense_call hiding_call(const hark_dense_call *call) {
  hark_dense_call hiding = *call;
  hiding.term_count = 0;
  hiding.hides = false;
  for (int i = 0; i < call->term_count; i++) {
    if (!call->terms[i]->hides && call->terms[i]->start == NULL) continue;
    hiding.term_memory[hiding.term_count] = call->term_memory[i];
    hiding.terms[hiding.term_count++] = call->terms[i];
    hiding.hides = hiding.hides || call->terms[i]->hides;
  }
  return hiding;
}

void HARK_ISA(hark_dense_contextual_begin)(const hark_dense_tile *tile, const float *queries, int64_t from, int64_t keys, float *memory,
                                           hark_dense_contextual_state *state) {
  const hark_dense_call *call = tile->call;
  const hark_tensor *table = &call->args->contextual;
  const int64_t last = call->desc->contextual_positions - 1;
  state->hiding = hiding_call(call);
  state->table = (const float *)table->data + tile->head * table->stride[0];
  state->rows = hark_dense_contextual_rows(call->desc, keys);
  state->last = (float)last;
  state->most = (float)hark_min(last, keys);
  state->from = from;
  state->unknown = false;
  state->keeps = call->exact_rows != NULL;
  place(call, keys, memory, state);
  memset(state->counted, 0, sizeof state->counted);
  memset(state->passed, 0, sizeof state->passed);
  memset(state->seen, 0, sizeof state->seen);
  multiply(tile, queries, state->table, call->head_dim, (int)state->rows, state->products);
  memset(state->products + state->rows * HARK_TILE_QUERIES, 0, HARK_TILE_QUERIES * sizeof(float));
}

/* True if the tile hides entries, which are marked in state->hidden then. */
static bool find_hidden(const hark_dense_tile *tile, hark_dense_contextual_state *state) {
  if (state->hiding.term_count == 0 && !hark_dense_tile_is_partial(tile)) return false;
  hark_dense_tile alone = *tile;
  alone.call = &state->hiding;
  alone.logits = state->hidden;
  alone.terms_alone = true;
  memset(state->hidden, 0, TILE_FLOATS * sizeof(float));
  return HARK_ISA(hark_dense_finish_logits)(&alone);
}

/* ---- gates and positions ---- */

typedef enum count_purpose { COUNT_GATES, COUNT_TERMS, COUNT_PARTS } count_purpose;

/* Where e is interpolated for positions: entries of T, or dT, at row floor c; and c - floor c. A position that is NaN is in row 0. */
HARK_SIMD vi interpolate(vf position, int lane, vf *fraction) {
  const vi whole = vf_whole(vf_select(vf_equal(position, position), position, vf_zero()));
  *fraction = position - vi_number(whole);
  return whole * HARK_TILE_QUERIES + (vi)(vu_lane() + vu_set((uint32_t)lane));
}

/* True if all lanes of vector m have counted as many keys as positions go: the terms of farther keys do not depend on them. */
HARK_SIMD bool is_full(const hark_dense_contextual_state *state, int m) {
  return !vm_any(vm_not(vm_or(vf_equal(vf_load(state->counted + m * HARK_LANES), vf_set(state->most)),
                              vf_less(vf_set(state->most), vf_load(state->counted + m * HARK_LANES)))));
}

/* A logit without its term: product, diagonal and start. */
HARK_SIMD vf base_of(vf product, const float *diagonal, vf start, int lane, int key) {
  return diagonal == NULL ? product + start : product + vf_load(diagonal + lane - key) + start;
}

/* -infinity stays, whatever the term is. */
HARK_SIMD vf add_term(vf base, vf term) { return vf_select(vf_equal(base, vf_set(-INFINITY)), base, base + term); }

/* Gates and positions of one vector of lanes, from the last key of the tile to the first. Apart from their terms, so that the exponentials
 * of several keys overlap. */
HARK_SIMD void place_vector(const count_purpose purpose, const bool hides, const hark_dense_tile *tile, int m, const float *logits,
                            vf positions[HARK_TILE_KEYS], hark_dense_contextual_state *state) {
  const vf one = vf_set(1.0f), zero = vf_zero(), top = vf_set(126.0f), most = vf_set(state->most), never = vf_set(-INFINITY);
  const int lane = m * HARK_LANES;
  const vf before = vf_load(state->counted + lane);
  vf sum = zero;
  for (int key = hark_dense_end(tile, m) - 1; key >= 0; key--) {
    const ptrdiff_t at = (ptrdiff_t)key * HARK_TILE_QUERIES + lane;
    const vf power = vf_exp2(vf_not_above(vf_load(logits + at), top)), rest = vf_inverse(one + power);
    const vm hidden = vf_equal(hides ? vf_load(state->hidden + at) : zero, never);
    vf gate = power * rest;
    if (hides) gate = vf_select(hidden, zero, gate);
    gate = vf_select(vf_less(before + sum, most), gate, vf_select(vf_equal(before + sum, before + sum), zero, gate)); /* NaN stays */
    sum = sum + gate;
    if (purpose != COUNT_GATES) positions[key] = vf_not_above(before + sum, most);
    if (purpose == COUNT_PARTS) vf_store(state->gates + at, vf_select(hidden, zero - one, gate * rest));
  }
  vf_store(state->counted + lane, before + sum);
}

HARK_SIMD void count_vector(const count_purpose purpose, const bool hides, const hark_dense_tile *tile, int m, const float *start,
                            float *logits, hark_dense_contextual_state *state) {
  const vf one = vf_set(1.0f), zero = vf_zero(), last = vf_set(state->last), never = vf_set(-INFINITY);
  const int lane = m * HARK_LANES;
  const float *const diagonal = purpose == COUNT_GATES ? NULL : hark_dense_diagonal(tile);
  const vf from = vf_load(start + lane);
  vf positions[HARK_TILE_KEYS];
  place_vector(purpose, hides, tile, m, logits, positions, state);
  if (purpose == COUNT_GATES) return;
  for (int key = hark_dense_end(tile, m) - 1; key >= 0; key--) {
    const ptrdiff_t at = (ptrdiff_t)key * HARK_TILE_QUERIES + lane;
    vf fraction;
    const vi row = interpolate(positions[key], lane, &fraction);
    const vf here = vf_gather(state->products, row), there = vf_gather(state->products + HARK_TILE_QUERIES, row);
    const vf term = vf_select(vf_equal(fraction, zero), here, vf_fma(fraction, there, (one - fraction) * here));
    const vf logit = add_term(base_of(vf_load(logits + at), diagonal, from, lane, key), term);
    vf_store(logits + at, logit);
    if (state->keeps) vf_store(state->terms + at, term);
    if (purpose == COUNT_TERMS) continue;
    vf_store(state->positions + at, positions[key]);
    vf_store(state->slopes + at, vf_select(vf_less(positions[key], last), (there - here) * vf_set(HARK_LN_2), zero));
    vf_store(state->gates + at, vf_select(vf_equal(logit, never), zero - one, vf_load(state->gates + at)));
  }
}

/* The same where no lane counts further. */
HARK_SIMD void fill_vector(const hark_dense_tile *tile, int m, const float *start, float *logits, hark_dense_contextual_state *state) {
  const int lane = m * HARK_LANES;
  const float *const diagonal = hark_dense_diagonal(tile);
  const vf from = vf_load(start + lane), term = vf_load(state->products + (ptrdiff_t)state->most * HARK_TILE_QUERIES + lane);
  for (int key = hark_dense_end(tile, m) - 1; key >= 0; key--) {
    const ptrdiff_t at = (ptrdiff_t)key * HARK_TILE_QUERIES + lane;
    vf_store(logits + at, add_term(base_of(vf_load(logits + at), diagonal, from, lane, key), term));
    if (state->keeps) vf_store(state->terms + at, term);
  }
}

#define COUNT_FUNCTION(name, purpose, hides)                                                                                               \
  HARK_SIMD_NOINLINE void name(const hark_dense_tile *tile, const float *start, float *logits, hark_dense_contextual_state *state) {       \
    for (int m = 0; m < hark_dense_vectors(tile); m++) {                                                                                   \
      state->full[m] = is_full(state, m);                                                                                                  \
      if (!state->full[m])                                                                                                                 \
        count_vector(purpose, hides, tile, m, start, logits, state);                                                                       \
      else if ((purpose) != COUNT_GATES)                                                                                                   \
        fill_vector(tile, m, start, logits, state);                                                                                        \
    }                                                                                                                                      \
  }
COUNT_FUNCTION(count_gates, COUNT_GATES, false)
COUNT_FUNCTION(count_gates_seen, COUNT_GATES, true)
COUNT_FUNCTION(count_terms, COUNT_TERMS, false)
COUNT_FUNCTION(count_terms_seen, COUNT_TERMS, true)
COUNT_FUNCTION(count_parts, COUNT_PARTS, false)
COUNT_FUNCTION(count_parts_seen, COUNT_PARTS, true)

static bool are_full(const hark_dense_tile *tile, const hark_dense_contextual_state *state) {
  bool full = true;
  for (int m = 0; m < hark_dense_vectors(tile) && full; m++) full = is_full(state, m);
  return full;
}

void HARK_ISA(hark_dense_contextual_count)(const hark_dense_tile *tile, const float *start, float *logits,
                                           hark_dense_contextual_state *state) {
  if (tile->call->backward)
    memcpy(state->counted, state->carries + (tile->key - state->from) / HARK_TILE_KEYS * HARK_TILE_QUERIES, sizeof state->counted);
  const bool hides = !are_full(tile, state) && find_hidden(tile, state);
  if (!tile->call->backward)
    (hides ? count_terms_seen : count_terms)(tile, start, logits, state);
  else
    (hides ? count_parts_seen : count_parts)(tile, start, logits, state);
}

void HARK_ISA(hark_dense_contextual_sum)(const hark_dense_tile *tile, const float *queries, const float *keys, int64_t key_stride,
                                         int64_t to, hark_dense_contextual_state *state) {
  hark_dense_tile at = *tile;
  const int64_t tiles = hark_ceil_div(to - state->from, HARK_TILE_KEYS);
  for (int64_t index = tiles - 1; index >= 0; index--) {
    at.key = state->from + index * HARK_TILE_KEYS;
    at.keys = (int)hark_min(HARK_TILE_KEYS, to - at.key);
    at.shift = at.query + at.sequence->offset - at.key;
    memcpy(state->carries + index * HARK_TILE_QUERIES, state->counted, sizeof state->counted);
    if (are_full(&at, state)) continue;
    HARK_ISA(hark_dense_start_tile)(&at);
    multiply(&at, queries, keys + at.key * key_stride, key_stride, at.keys, state->raw);
    (find_hidden(&at, state) ? count_gates_seen : count_gates)(&at, none, state->raw, state);
  }
  for (int lane = 0; lane < tile->queries; lane++) {
    state->is_unknown[lane] = isnan(state->counted[lane]);
    state->unknown = state->unknown || state->is_unknown[lane];
  }
}

void HARK_ISA(hark_dense_contextual_terms)(const hark_dense_tile *tile, const float *queries, const float *key, int64_t key_stride,
                                           hark_dense_contextual_state *state) {
  multiply(tile, queries, key, key_stride, tile->keys, state->raw);
  HARK_ISA(hark_dense_contextual_count)(tile, none, state->raw, state);
}

/* ---- gradients ---- */

HARK_SIMD void differentiate_vector(const hark_dense_tile *tile, int m, const float *start, float *dlogits,
                                    hark_dense_contextual_state *state) {
  const vf one = vf_set(1.0f), zero = vf_zero();
  const int lane = m * HARK_LANES, end = hark_dense_end(tile, m);
  const vm blind = vf_equal(vf_load(start + lane), vf_set(-INFINITY));
  for (int key = 0; key < end; key++) { /* dT, apart from the sums over farther keys, as in count_vector() */
    const ptrdiff_t at = (ptrdiff_t)key * HARK_TILE_QUERIES + lane;
    const vf gradient = vf_load(dlogits + at);
    const vm hidden = vm_or(blind, vf_less(vf_load(state->gates + at), zero));
    vf fraction;
    const vi row = interpolate(vf_load(state->positions + at), lane, &fraction);
    vf_scatter_add(state->sums, row, vf_select(hidden, zero, gradient * (one - fraction)));
    const vm alone = vm_or(hidden, vf_equal(fraction, zero));
    vf_scatter_add(state->sums + HARK_TILE_QUERIES, row, vf_select(alone, zero, gradient * fraction));
  }
  vf passed = vf_load(state->passed + lane);
  for (int key = 0; key < end; key++) {
    const ptrdiff_t at = (ptrdiff_t)key * HARK_TILE_QUERIES + lane;
    const vf gate = vf_load(state->gates + at), gradient = vf_load(dlogits + at);
    const vm hidden = vm_or(blind, vf_less(gate, zero));
    passed = vf_select(hidden, passed, vf_fma(gradient, vf_load(state->slopes + at), passed));
    vf_store(dlogits + at, vf_select(hidden, gradient, vf_fma(passed, gate, gradient)));
  }
  vf_store(state->passed + lane, passed);
}

/* The same where no lane counts further: no dc, and one row of dT. */
HARK_SIMD void gather_vector(const hark_dense_tile *tile, int m, const float *dlogits, hark_dense_contextual_state *state) {
  const int lane = m * HARK_LANES, end = hark_dense_end(tile, m);
  float *const to = state->sums + (ptrdiff_t)state->most * HARK_TILE_QUERIES + lane;
  vf sum = vf_load(to); /* in the order of differentiate_vector() */
  for (int key = 0; key < end; key++) sum = sum + vf_load(dlogits + (ptrdiff_t)key * HARK_TILE_QUERIES + lane);
  vf_store(to, sum);
}

HARK_SIMD_NOINLINE void differentiate_tile(const hark_dense_tile *tile, const float *start, float *dlogits,
                                           hark_dense_contextual_state *state) {
  for (int m = 0; m < hark_dense_vectors(tile); m++) {
    if (state->full[m])
      gather_vector(tile, m, dlogits, state);
    else
      differentiate_vector(tile, m, start, dlogits, state);
  }
}

static void count_seen(const hark_dense_tile *tile, hark_dense_contextual_state *state) {
  for (int key = 0; key < tile->keys; key++)
    for (int lane = hark_dense_first_vector(tile, key) * HARK_LANES; lane < tile->queries; lane++)
      if (!(state->gates[key * HARK_TILE_QUERIES + lane] < 0.0f)) state->seen[lane]++;
}

void HARK_ISA(hark_dense_contextual_differentiate)(const hark_dense_tile *tile, const float *start, float *dlogits,
                                                   hark_dense_contextual_state *state) {
  if (state->unknown) count_seen(tile, state);
  differentiate_tile(tile, start, dlogits, state);
}

/* Where a row's positions are NaN, all rows of e that they might reach have a gradient of NaN: each gate may be up to 1. */
static void spread_unknown(const hark_dense_tile *tile, hark_dense_contextual_state *state) {
  for (int lane = 0; state->unknown && lane < tile->queries; lane++) {
    if (!state->is_unknown[lane]) continue;
    for (int64_t row = 0; row < hark_min(state->rows, (int64_t)state->seen[lane] + 1); row++)
      state->sums[row * HARK_TILE_QUERIES + lane] = NAN;
  }
}

/* dquery += e' dT, for rows of e from `row` on. Rows that are not finite reach only the lanes that read them. */
static void combine_rows(const hark_dense_tile *tile, int64_t row, int count, float *dquery, hark_dense_contextual_state *state) {
  const int features = tile->call->head_dim;
  const float *rows = state->table + row * features, *sums = state->sums + row * HARK_TILE_QUERIES;
  bool bad[HARK_TILE_KEYS];
  hark_product sum = {.a = sums,
                      .a_step = HARK_TILE_QUERIES,
                      .b = rows,
                      .b_row = 1,
                      .b_step = features,
                      .c = dquery,
                      .c_row = HARK_TILE_QUERIES,
                      .rows = features,
                      .end = count};
  const bool finite = hark_rows_finite(rows, features, count, features);
  if (!finite) {
    hark_clean_rows(rows, features, count, features, tile->call->head_pad, state->clean, bad);
    sum.b = state->clean;
    sum.b_step = tile->call->head_pad;
  }
  combine_vectors(&sum, 0, hark_dense_vectors(tile));
  for (int r = 0; !finite && r < count; r++)
    for (int lane = 0; bad[r] && lane < tile->queries; lane++) {
      const float weight = sums[r * HARK_TILE_QUERIES + lane];
      if (weight == 0.0f) continue;
      for (int c = 0; c < features; c++) dquery[c * HARK_TILE_QUERIES + lane] += weight * rows[r * features + c];
    }
}

/* Where a range of sequences adds de of a head: [reachable rows][d]. */
static float *range_sums(const hark_dense_call *call, void *memory, int64_t range, int64_t head) {
  return (float *)memory + (range * call->heads + head) * reachable_rows(call->desc) * call->head_dim;
}

static float *sums_of(const hark_dense_tile *tile) {
  const hark_dense_call *call = tile->call;
  const int64_t range = tile->sequence_index * call->ranges / call->run->sequence_count;
  int term = 0;
  while (call->terms[term] != &HARK_ISA(hark_dense_contextual)) term++;
  return range_sums(call, call->term_memory[term], range, tile->head);
}

/* de += dT q. Queries that are not finite reach only the rows that they read. */
static void spread_queries(const hark_dense_tile *tile, const float *query_rows, hark_dense_contextual_state *state) {
  const int features = tile->call->head_dim, padded = tile->call->head_pad;
  float *const target = sums_of(tile);
  bool bad[HARK_TILE_QUERIES];
  hark_product product = {.a = query_rows,
                          .a_step = padded,
                          .b = state->sums,
                          .b_row = HARK_TILE_QUERIES,
                          .b_step = 1,
                          .c = target,
                          .c_row = features,
                          .rows = (int)state->rows,
                          .end = tile->queries,
                          .part = features % HARK_LANES};
  const bool finite = hark_rows_finite(query_rows, padded, tile->queries, features);
  if (!finite) {
    hark_clean_rows(query_rows, padded, tile->queries, features, padded, state->clean, bad);
    product.a = state->clean;
  }
  spread_vectors(&product, 0, features / HARK_LANES);
  if (product.part > 0) spread_part(&product, features / HARK_LANES, features / HARK_LANES + 1);
  for (int lane = 0; !finite && lane < tile->queries; lane++)
    for (int64_t row = 0; bad[lane] && row < state->rows; row++) {
      const float weight = state->sums[row * HARK_TILE_QUERIES + lane];
      if (weight == 0.0f) continue;
      for (int c = 0; c < features; c++) target[row * features + c] += weight * query_rows[(ptrdiff_t)lane * padded + c];
    }
}

void HARK_ISA(hark_dense_contextual_finish)(const hark_dense_tile *tile, const float *query_rows, float *dquery,
                                            hark_dense_contextual_state *state) {
  spread_unknown(tile, state);
  for (int64_t row = 0; dquery != NULL && row < state->rows; row += HARK_TILE_KEYS)
    combine_rows(tile, row, (int)hark_min(HARK_TILE_KEYS, state->rows - row), dquery, state);
  if (tile->call->args->dcontextual.data != NULL) spread_queries(tile, query_rows, state);
}

/* ---- the term -------------------------------------------------------------------------------------------------------------------- */

static bool used(const hark_attention_desc *desc, const hark_attention_args *args) {
  (void)args;
  return desc->contextual_positions > 0;
}

/* Sums of de, each for a range and a head. */
static int64_t sums(const hark_attention_desc *desc) {
  return hark_dense_contextual_ranges(hark_max(desc->max_sequences, desc->batch), desc->key_heads) * desc->heads;
}

static size_t bytes(const hark_attention_desc *desc, bool backward, int64_t item_pieces) {
  (void)item_pieces;
  return backward ? (size_t)sums(desc) * (size_t)(reachable_rows(desc) * desc->head_dim) * sizeof(float) : 0;
}

hark_status HARK_ISA(hark_dense_contextual_check)(hark_context *context, const hark_attention_desc *desc) {
  size_t all;
  HARK_TRY(hark_size_multiply(context, (size_t)sums(desc), (size_t)(reachable_rows(desc) * desc->head_dim), &all));
  return hark_size_multiply(context, all, sizeof(float), &all);
}

/* The logits have the terms since they were counted: only sums of the terms alone need them here. */
static void add(const hark_dense_tile *tile, void *memory) {
  const float *terms = tile->contextual->terms;
  const vf unit = vf_set(0.25f);
  (void)memory;
  for (int key = 0; key < tile->keys && tile->terms_alone; key++)
    for (int m = hark_dense_first_vector(tile, key); m < hark_dense_vectors(tile); m++) {
      float *logits = tile->logits + key * HARK_TILE_QUERIES + m * HARK_LANES;
      vf_store(logits, vf_fma(unit, vf_load(terms + (ptrdiff_t)key * HARK_TILE_QUERIES + m * HARK_LANES), vf_load(logits)));
    }
}

static int64_t prepare_count(const hark_dense_call *call) {
  return call->backward && call->args->dcontextual.data != NULL ? call->ranges * call->heads : 0;
}

static void prepare(const hark_dense_call *call, void *memory, int64_t index) {
  memset(range_sums(call, memory, index / call->heads, index % call->heads), 0,
         (size_t)(reachable_rows(call->desc) * call->head_dim) * sizeof(float));
}

/* Pieces: blocks of positions of a table. */
#define POSITION_BLOCK 64

static int64_t finish_count(const hark_dense_call *call) {
  const hark_tensor *gradient = &call->args->dcontextual;
  if (!call->backward || gradient->data == NULL) return 0;
  return (gradient->stride[0] == 0 ? 1 : gradient->shape[0]) * hark_ceil_div(gradient->shape[1], POSITION_BLOCK);
}

static void finish(const hark_dense_call *call, void *memory, int64_t index, void *worker_memory) {
  const hark_tensor *gradient = &call->args->dcontextual;
  const int64_t blocks = hark_ceil_div(gradient->shape[1], POSITION_BLOCK), table = index / blocks, features = call->head_dim;
  const int64_t begin = index % blocks * POSITION_BLOCK * features, reached = reachable_rows(call->desc) * features,
                end = hark_min(gradient->shape[1] * features, begin + POSITION_BLOCK * features);
  const bool shared = gradient->stride[0] == 0, adds = (call->args->accumulate & HARK_ACCUMULATE_CONTEXTUAL) != 0;
  float *to = (float *)gradient->data + table * gradient->stride[0];
  (void)worker_memory;
  for (int64_t i = begin; i < end; i++) {
    double sum = adds ? (double)to[i] : 0.0;
    for (int64_t range = 0; range < call->ranges && i < reached; range++)
      for (int64_t head = shared ? 0 : table; head < (shared ? call->heads : table + 1); head++)
        sum += (double)range_sums(call, memory, range, head)[i];
    to[i] = (float)sum;
  }
}

const hark_dense_term HARK_ISA(hark_dense_contextual) = {.name = "contextual",
                                                         .used = used,
                                                         .bytes = bytes,
                                                         .prepare_count = prepare_count,
                                                         .prepare = prepare,
                                                         .add = add,
                                                         .finish_count = finish_count,
                                                         .finish = finish};
