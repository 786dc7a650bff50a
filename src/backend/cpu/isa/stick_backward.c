/* stick_backward.c - gradients of stick-breaking attention.
 *
 * forward: b = sigmoid(S);  P[n,i] = b[n,i] prod over visible j > i of (1 - b[n,j]);  out[n] = sum_i P[n,i] v[i]
 *
 *     dv[i] = sum_n P[n,i] dout[n];   g[n,i] = dout[n].v[i]
 *     dS[n,j] = P[n,j] (1 - b[n,j]) g[n,j] - b[n,j] sum over i < j of P[n,i] g[n,i]
 *             = P[n,j] (1 - b[n,j]) (g[n,j] - W[n,j]),   W' = W + b (g - W) from the farthest key to the nearest, W = 0 first
 *     dq[n] = scale sum_i dS[n,i] k[i];   dk[i] = scale sum_n dS[n,i] q[n]
 *
 * W[n,j] is what the rest of the stick is worth that key j leaves: the sum over i < j, divided by the length of that rest. In this form
 * every error is relative to the weight of its entry. The difference dout.out - sum over i >= j would leave the rounding of complete sums
 * at keys without weight. With dropout (mask M, including the gain) out = (M o P) v: dv has M o P, and g = M dout.v.
 *
 * A tile of queries visits its keys twice: from the nearest to the farthest for P, and back for W. Between the two, b and P (1 - b) of all
 * its keys are in the worker's memory, or of longer rows what is left at the beginning of each tile, from which the second visit computes
 * them again.
 *
 * One piece of work is a range of queries of one (sequence, key head), for all heads of the group: it owns those rows of dq, and adds to dk
 * and dv of all keys, or, if there are several ranges, to its part of them; these parts are summed in the order of the ranges. The ranges
 * depend on shapes alone, so the bits do not depend on the number of threads. Cost: five products (six for long rows), an exponential and a
 * quotient per logit. Memory per worker: O(Lk) for each of 64 lanes, up to KEPT_TILES tiles; for longer rows one number.
 */
#include "core/cancel.h"
#include "stick_tile.h"

/* Tiles of a row whose b and P (1 - b) are kept: 2 MB. */
#define KEPT_TILES 64
#define TILE_FLOATS ((size_t)HARK_TILE_KEYS * HARK_TILE_QUERIES)

typedef struct stick_state {
  float *queries, *query_rows;      /* [d][lanes] times scale log2(e); [lanes][d padded] times scale */
  float *gradients, *gradient_rows; /* dout: [dv][lanes]; [lanes][dv padded] */
  float *dquery;                    /* [d][lanes], to be multiplied by scale */
  float *weights, *dlogits;         /* P; g, then dS: [keys][lanes] */
  float *clean;                     /* rows, zero if not finite */
  float *kept;                      /* tiles of b and of P (1 - b), or vectors of what is left; by tile from the first visible one on */
  float left[HARK_TILE_QUERIES], worth[HARK_TILE_QUERIES], zero[HARK_TILE_QUERIES], gain[HARK_TILE_QUERIES];
  bool rows_finite; /* all queries and dout of the tile are finite */
  hark_stick_marks marks;
  int64_t query_stride, gradient_stride, key_stride, value_stride, dkey_stride, dvalue_stride;
  const float *all_keys, *all_values; /* of the sequence */
  float *all_dkeys, *all_dvalues;     /* NULL: not requested */
  bool dquery_requested, collects;
  const hark_dense_term *only; /* the only term that gathers, from keys only_from to only_to; NULL: all that collect */
  void *only_memory;
  int64_t only_from, only_to;
} stick_state;

/* Tiles of keys that a tile of queries may see. */
static int64_t most_tiles(const hark_attention_desc *desc) {
  int64_t keys = desc->key_length;
  if (desc->structure == HARK_STRUCTURE_WINDOW) keys = hark_min(keys, hark_min(desc->window, keys) + HARK_TILE_QUERIES);
  return hark_ceil_div(keys, HARK_TILE_KEYS);
}

static size_t kept_floats(const hark_attention_desc *desc) {
  const size_t tiles = (size_t)most_tiles(desc);
  return tiles <= KEPT_TILES ? 2 * TILE_FLOATS * tiles : 2 * TILE_FLOATS * (KEPT_TILES + 1) + tiles * HARK_TILE_QUERIES;
}

static size_t clean_floats(const hark_attention_desc *desc) {
  const size_t d = hark_padded(desc->head_dim), dv = hark_padded(desc->value_dim);
  return HARK_TILE_QUERIES * (d > dv ? d : dv);
}

size_t HARK_ISA(hark_stick_backward_bytes)(const hark_attention_desc *desc) {
  const size_t features = (size_t)(2 * desc->head_dim + desc->value_dim) + hark_padded(desc->head_dim) + hark_padded(desc->value_dim);
  return hark_align_up(sizeof(stick_state)) +
         sizeof(float) * (features * HARK_TILE_QUERIES + 2 * TILE_FLOATS + clean_floats(desc) + kept_floats(desc));
}

size_t HARK_ISA(hark_stick_partial_floats)(const hark_attention_desc *desc, int64_t item_pieces) {
  return (size_t)(item_pieces * desc->key_heads * desc->key_length * (desc->head_dim + desc->value_dim));
}

HARK_PRODUCT_FUNCTION(scores_store, HARK_FINISH_STORE)
HARK_PRODUCT_FUNCTION(combine_vectors, HARK_FINISH_COMBINE)
HARK_PRODUCT_FUNCTION(spread_vectors, HARK_FINISH_SPREAD)
HARK_PRODUCT_FUNCTION(spread_part, HARK_FINISH_SPREAD_PART)

HARK_SIMD_NOINLINE void break_plain(const hark_dense_tile *tile, hark_stick_parts parts, float *left) {
  for (int m = 0; m < hark_dense_vectors(tile); m++) hark_stick_break_vector(tile, m, NULL, true, false, parts, left);
}

HARK_SIMD_NOINLINE void break_marked(const hark_dense_tile *tile, const hark_stick_marks *marks, hark_stick_parts parts, float *left) {
  for (int m = 0; m < hark_dense_vectors(tile); m++) hark_stick_break_vector(tile, m, marks, true, true, parts, left);
}

HARK_SIMD_NOINLINE void remain_plain(const hark_dense_tile *tile, float *left) {
  for (int m = 0; m < hark_dense_vectors(tile); m++)
    hark_stick_break_vector(tile, m, NULL, false, false, (hark_stick_parts){NULL, NULL}, left);
}

/* g -> dS = P (1 - b) (g - W), W += b (g - W), from the first key of the tile to the last. Hidden entries are left out. */
HARK_SIMD_NOINLINE void differentiate(const hark_dense_tile *tile, hark_stick_parts parts, float *gradients, float *worth) {
  for (int m = 0; m < hark_dense_vectors(tile); m++) {
    const int end = hark_dense_end(tile, m);
    vf rest = vf_load(worth + m * HARK_LANES);
    for (int key = 0; key < end; key++) {
      const ptrdiff_t at = (ptrdiff_t)key * HARK_TILE_QUERIES + m * HARK_LANES;
      const vf share = vf_load(parts.shares + at), difference = vf_load(gradients + at) - rest;
      const vm hidden = vf_equal(share, vf_zero());
      vf_store(gradients + at, vf_select(hidden, vf_zero(), vf_load(parts.slopes + at) * difference));
      rest = vf_select(hidden, rest, vf_fma(share, difference, rest));
    }
    vf_store(worth + m * HARK_LANES, rest);
  }
}

/* ---- products ---- */

/* target[i] += sum over lanes n of tile[i][n] rows[n]: dv and dk. */
static void spread(const hark_dense_tile *tile, const float *weights, const float *rows, int padded, int features, float *target,
                   int64_t target_stride) {
  const bool whole = hark_dense_first_vector(tile, tile->keys - 1) == 0;
  for (int key = 0; key < tile->keys; key += whole ? tile->keys : HARK_KEY_GROUP) {
    const hark_product product = {.a = rows,
                                  .a_step = padded,
                                  .b = weights + key * HARK_TILE_QUERIES,
                                  .b_row = HARK_TILE_QUERIES,
                                  .b_step = 1,
                                  .c = target + key * target_stride,
                                  .c_row = target_stride,
                                  .rows = whole ? tile->keys : (int)hark_min(HARK_KEY_GROUP, tile->keys - key),
                                  .begin = whole ? 0 : hark_dense_first_vector(tile, key) * HARK_LANES,
                                  .end = tile->queries,
                                  .part = features % HARK_LANES};
    if (product.begin >= product.end) break;
    spread_vectors(&product, 0, features / HARK_LANES);
    if (product.part > 0) spread_part(&product, features / HARK_LANES, features / HARK_LANES + 1);
  }
}

/* The same if rows may not be finite: such rows are added separately, to keys whose entry in `seen` is not 0. */
static void spread_seen(const hark_dense_tile *tile, const stick_state *state, const float *weights, const float *seen, const float *rows,
                        int padded, int features, float *target, int64_t target_stride) {
  bool bad[HARK_TILE_QUERIES];
  if (state->rows_finite) {
    spread(tile, weights, rows, padded, features, target, target_stride);
    return;
  }
  hark_clean_rows(rows, padded, tile->queries, features, padded, state->clean, bad);
  spread(tile, weights, state->clean, padded, features, target, target_stride);
  for (int key = 0; key < tile->keys; key++)
    for (int lane = hark_dense_first_vector(tile, key) * HARK_LANES; lane < tile->queries; lane++) {
      const int at = key * HARK_TILE_QUERIES + lane;
      if (!bad[lane] || seen[at] == 0.0f) continue;
      for (int c = 0; c < features; c++) target[key * target_stride + c] += weights[at] * rows[lane * padded + c];
    }
}

/* dquery += K' dS', where keys may not be finite: b marks what is seen. */
static void combine(const hark_dense_tile *tile, const stick_state *state, const float *shares, const float *keys) {
  bool bad[HARK_TILE_KEYS];
  int limits[HARK_TILE_VECTORS];
  const int features = tile->call->head_dim;
  hark_product sum = {.a = state->dlogits,
                      .a_step = HARK_TILE_QUERIES,
                      .b = keys,
                      .b_row = 1,
                      .b_step = state->key_stride,
                      .c = state->dquery,
                      .c_row = HARK_TILE_QUERIES,
                      .rows = features,
                      .end = tile->keys};
  sum.limits = hark_stick_limits(tile, limits);
  if (hark_rows_finite(keys, state->key_stride, tile->keys, features)) {
    combine_vectors(&sum, 0, hark_dense_vectors(tile));
    return;
  }
  hark_clean_rows(keys, state->key_stride, tile->keys, features, tile->call->head_pad, state->clean, bad);
  sum.b = state->clean;
  sum.b_step = tile->call->head_pad;
  combine_vectors(&sum, 0, hark_dense_vectors(tile));
  for (int key = 0; key < tile->keys; key++)
    for (int lane = hark_dense_first_vector(tile, key) * HARK_LANES; bad[key] && lane < tile->queries; lane++) {
      const float weight = state->dlogits[key * HARK_TILE_QUERIES + lane];
      if (shares[key * HARK_TILE_QUERIES + lane] == 0.0f) continue;
      for (int c = 0; c < features; c++) state->dquery[c * HARK_TILE_QUERIES + lane] += weight * keys[key * state->key_stride + c];
    }
}

/* ---- visits ---- */

/* Scores of the tile from packed rows and rows of keys or values: logits without terms, or g. */
static void score(const hark_dense_tile *tile, const stick_state *state, const float *packed, const float *rows, int64_t stride,
                  int features, const float *diagonal, float *scores) {
  const hark_product product = {.a = packed,
                                .a_step = HARK_TILE_QUERIES,
                                .b = rows,
                                .b_row = stride,
                                .b_step = 1,
                                .c = scores,
                                .c_row = HARK_TILE_QUERIES,
                                .rows = tile->keys,
                                .end = features,
                                .start = state->zero,
                                .diagonal = diagonal};
  hark_stick_scores(tile, scores_store, &product);
}

/* Everything is finite that a tile's weights are multiplied by; otherwise the marks are set. */
static bool find_marks(const hark_dense_tile *tile, stick_state *state) {
  const hark_dense_call *call = tile->call;
  const float *keys = state->all_keys + tile->key * state->key_stride, *values = state->all_values + tile->key * state->value_stride;
  if (state->rows_finite && hark_rows_finite(values, state->value_stride, tile->keys, call->value_dim) &&
      hark_rows_finite(keys, state->key_stride, tile->keys, call->head_dim))
    return true;
  for (int key = 0; key < tile->keys; key++)
    state->marks.key[key] = !hark_rows_finite(values + key * state->value_stride, 0, 1, call->value_dim) ||
                            !hark_rows_finite(keys + key * state->key_stride, 0, 1, call->head_dim);
  return false;
}

/* The logits of a tile. */
static void compute_logits(hark_dense_tile *tile, const stick_state *state) {
  HARK_ISA(hark_dense_start_tile)(tile);
  score(tile, state, state->queries, state->all_keys + tile->key * state->key_stride, state->key_stride, tile->call->head_dim,
        hark_dense_diagonal(tile), state->weights);
  (void)hark_stick_finish_logits(tile);
}

/* P, b and P (1 - b) of a tile, and its part of dv. */
static void break_tile(hark_dense_tile *tile, stick_state *state, hark_stick_parts parts) {
  const hark_dense_call *call = tile->call;
  compute_logits(tile, state);
  if (find_marks(tile, state))
    break_plain(tile, parts, state->left);
  else
    break_marked(tile, &state->marks, parts, state->left);
  if (state->all_dvalues == NULL) return;
  if (call->dropout_threshold > 0) HARK_ISA(hark_dense_drop)(tile, state->weights);
  spread_seen(tile, state, state->weights, state->weights, state->gradient_rows, call->value_pad, call->value_dim,
              state->all_dvalues + tile->key * state->dvalue_stride, state->dvalue_stride);
}

/* Sets dS to zero for terms that gather gradients: in vectors that were not computed, and in lanes without a query. */
static void zero_unseen(const hark_dense_tile *tile, float *dlogits) {
  const int vectors = hark_dense_vectors(tile);
  for (int key = 0; key < tile->keys; key++) {
    float *row = dlogits + key * HARK_TILE_QUERIES;
    memset(row, 0, (size_t)hark_min(hark_dense_first_vector(tile, key), vectors) * HARK_LANES * sizeof *row);
    for (int lane = tile->queries; lane < vectors * HARK_LANES; lane++) row[lane] = 0.0f;
  }
}

/* Passes the part of a tile that is in the keys of state->only. */
static void collect_only(const hark_dense_tile *tile, const stick_state *state) {
  hark_dense_tile part = *tile;
  part.key = hark_max(tile->key, state->only_from);
  part.keys = (int)(hark_min(tile->key + tile->keys, state->only_to) - part.key);
  part.shift = tile->shift - (part.key - tile->key);
  if (part.keys > 0) state->only->collect(&part, state->only_memory, state->dlogits + (part.key - tile->key) * HARK_TILE_QUERIES);
}

static void collect(const hark_dense_tile *tile, stick_state *state) {
  const hark_dense_call *call = tile->call;
  zero_unseen(tile, state->dlogits);
  if (state->only != NULL) {
    collect_only(tile, state);
    return;
  }
  for (int i = 0; i < call->term_count; i++)
    if (call->terms[i]->collects != NULL && call->terms[i]->collects(call))
      call->terms[i]->collect(tile, call->term_memory[i], state->dlogits);
}

/* dS of a tile, and its parts of dk and dq. */
static void differentiate_tile(hark_dense_tile *tile, stick_state *state, hark_stick_parts parts) {
  const hark_dense_call *call = tile->call;
  const float *keys = state->all_keys + tile->key * state->key_stride;
  score(tile, state, state->gradients, state->all_values + tile->key * state->value_stride, state->value_stride, call->value_dim, NULL,
        state->dlogits);
  if (call->dropout_threshold > 0) HARK_ISA(hark_dense_drop)(tile, state->dlogits);
  differentiate(tile, parts, state->dlogits, state->worth);
  if (state->collects) collect(tile, state);
  if (state->all_dkeys != NULL)
    spread_seen(tile, state, state->dlogits, parts.shares, state->query_rows, call->head_pad, call->head_dim,
                state->all_dkeys + tile->key * state->dkey_stride, state->dkey_stride);
  if (state->dquery_requested) combine(tile, state, parts.shares, keys);
}

/* Tile number `index` of the keys [from, to). */
static void go_to(hark_dense_tile *tile, int64_t from, int64_t to, int64_t index) {
  tile->key = from + index * HARK_TILE_KEYS;
  tile->keys = (int)hark_min(HARK_TILE_KEYS, to - tile->key);
  tile->shift = tile->query + tile->sequence->offset - tile->key;
}

/* Where b and P (1 - b) of a tile are: a tile before the kept ones is computed again into the memory after theirs. */
static hark_stick_parts parts_of(const stick_state *state, int64_t index, int64_t first_kept) {
  float *const shares = state->kept + 2 * TILE_FLOATS * (size_t)(index >= first_kept ? index - first_kept : KEPT_TILES);
  return (hark_stick_parts){shares, shares + TILE_FLOATS};
}

/* Both visits of the keys [from, to). Of the nearest tiles everything is kept, of the others what is left before them. */
static void visit_keys(hark_dense_tile *tile, stick_state *state, int64_t from, int64_t to) {
  const int64_t tiles = hark_ceil_div(to - from, HARK_TILE_KEYS), first_kept = hark_max(0, tiles - KEPT_TILES);
  float *const lefts = state->kept + 2 * TILE_FLOATS * (KEPT_TILES + 1); /* only if there are tiles that are not kept */
  int64_t farthest = tiles - 1;
  for (int lane = 0; lane < HARK_TILE_QUERIES; lane++) {
    state->left[lane] = 1.0f;
    state->worth[lane] = 0.0f;
  }
  for (; farthest >= 0; farthest--) {
    go_to(tile, from, to, farthest);
    if (farthest >= first_kept) {
      break_tile(tile, state, parts_of(state, farthest, first_kept));
    } else {
      memcpy(lefts + farthest * HARK_TILE_QUERIES, state->left, sizeof state->left);
      compute_logits(tile, state);
      remain_plain(tile, state->left);
    }
    if (farthest == 0 || !hark_stick_remains(tile, state->left)) break;
  }
  for (int64_t index = farthest; index < tiles; index++) {
    const hark_stick_parts parts = parts_of(state, index, first_kept);
    go_to(tile, from, to, index);
    if (index < first_kept) {
      memcpy(state->left, lefts + index * HARK_TILE_QUERIES, sizeof state->left);
      break_tile(tile, state, parts);
    }
    differentiate_tile(tile, state, parts);
  }
}

static void pack_queries(const hark_dense_tile *tile, stick_state *state) {
  const hark_dense_call *call = tile->call;
  const hark_attention_args *args = call->args;
  const int64_t item = tile->sequence->item, row = tile->sequence->query_row + tile->query;
  const int d = call->head_dim, dv = call->value_dim;
  const float *query = hark_dense_row(&args->query, item, tile->head, row), *gradient = hark_dense_row(&args->dout, item, tile->head, row);
  hark_pack_transposed(query, state->query_stride, tile->queries, d, (float)(call->scale * HARK_LOG2_E), state->queries);
  hark_pack_rows(query, state->query_stride, tile->queries, d, call->head_pad, (float)call->scale, state->query_rows);
  hark_pack_transposed(gradient, state->gradient_stride, tile->queries, dv, 1.0f, state->gradients);
  hark_pack_rows(gradient, state->gradient_stride, tile->queries, dv, call->value_pad, 1.0f, state->gradient_rows);
  state->rows_finite = true;
  for (int lane = 0; lane < HARK_TILE_QUERIES; lane++) {
    const bool finite = lane >= tile->queries || (hark_rows_finite(state->query_rows + (ptrdiff_t)lane * call->head_pad, 0, 1, d) &&
                                                  hark_rows_finite(state->gradient_rows + (ptrdiff_t)lane * call->value_pad, 0, 1, dv));
    state->marks.lane[lane] = finite ? 0.0f : NAN;
    state->rows_finite = state->rows_finite && finite;
  }
}

static stick_state *open_state(const hark_dense_call *call, void *memory) {
  const hark_attention_args *args = call->args;
  stick_state *state = memory;
  memset(state, 0, sizeof *state);
  state->queries = (float *)(void *)((char *)memory + hark_align_up(sizeof *state));
  state->dquery = state->queries + (size_t)call->head_dim * HARK_TILE_QUERIES;
  state->gradients = state->dquery + (size_t)call->head_dim * HARK_TILE_QUERIES;
  state->query_rows = state->gradients + (size_t)call->value_dim * HARK_TILE_QUERIES;
  state->gradient_rows = state->query_rows + (size_t)call->head_pad * HARK_TILE_QUERIES;
  state->weights = state->gradient_rows + (size_t)call->value_pad * HARK_TILE_QUERIES;
  state->dlogits = state->weights + TILE_FLOATS;
  state->clean = state->dlogits + TILE_FLOATS;
  state->kept = state->clean + clean_floats(call->desc);
  state->query_stride = args->query.stride[2];
  state->gradient_stride = args->dout.stride[2];
  state->key_stride = args->key.stride[2];
  state->value_stride = args->value.stride[2];
  for (int lane = 0; lane < HARK_TILE_QUERIES; lane++) state->gain[lane] = (float)call->scale;
  return state;
}

static void take_keys(const hark_dense_call *call, const hark_attention_sequence *sequence, int64_t key_head, stick_state *state) {
  state->all_keys = hark_dense_row(&call->args->key, sequence->item, key_head, sequence->key_row);
  state->all_values = hark_dense_row(&call->args->value, sequence->item, key_head, sequence->key_row);
}

/* ---- a range of queries ---- */

static void zero_rows(float *rows, int64_t stride, int64_t from, int64_t to, int features) {
  for (int64_t r = from; r < to; r++) memset(rows + r * stride, 0, (size_t)features * sizeof *rows);
}

/* The tiles of queries of a range, and the keys that any of them sees. */
static void range_of(const hark_dense_call *call, const hark_attention_sequence *sequence, int64_t chunk, int64_t *first, int64_t *end,
                     int64_t *from, int64_t *to) {
  const int64_t tiles = hark_ceil_div(sequence->query_count, HARK_TILE_QUERIES);
  *first = tiles * chunk / call->chunks;
  *end = tiles * (chunk + 1) / call->chunks;
  *from = *to = 0;
  if (*first == *end) return;
  const int64_t query = *first * HARK_TILE_QUERIES;
  HARK_ISA(hark_dense_visible_keys)
  (call, sequence, query, hark_min(sequence->query_count, *end * HARK_TILE_QUERIES) - query, from, to);
  *to = hark_max(*from, *to);
}

/* A range's part of dk or dv of an item and key head: [keys][d], after all parts of dk [keys][dv]. */
static float *partial_rows(const hark_dense_call *call, bool values, int64_t chunk, int64_t item, int64_t key_head) {
  const int64_t planes = call->chunks * call->batch * call->key_heads, plane = (chunk * call->batch + item) * call->key_heads + key_head;
  float *const parts = call->partial_dquery;
  if (values) return parts + planes * call->key_rows * call->head_dim + plane * call->key_rows * call->value_dim;
  return parts + plane * call->key_rows * call->head_dim;
}

/* Where a range adds to dk or dv of its sequence, set to zero first; of a part the keys [from, to) are used. NULL: not requested. */
static float *take_gradient(const hark_dense_call *call, const hark_attention_sequence *sequence, int64_t key_head, int64_t chunk,
                            bool values, int64_t from, int64_t to, int64_t *stride) {
  const hark_tensor *gradient = values ? &call->args->dvalue : &call->args->dkey;
  const int features = values ? call->value_dim : call->head_dim;
  if (gradient->data == NULL) return NULL;
  const bool partial = call->partial_dquery != NULL;
  *stride = partial ? features : gradient->stride[2];
  float *const rows = partial ? partial_rows(call, values, chunk, sequence->item, key_head) + sequence->key_row * features
                              : hark_dense_row_of(gradient, sequence->item, key_head, sequence->key_row);
  if (partial || !(call->args->accumulate & (values ? HARK_ACCUMULATE_VALUE : HARK_ACCUMULATE_KEY)))
    zero_rows(rows, *stride, partial ? from : 0, partial ? to : sequence->key_count, features);
  return rows;
}

void HARK_ISA(hark_stick_backward_range)(const hark_dense_call *call, int64_t sequence_index, int64_t key_head, int64_t chunk,
                                         void *memory) {
  const hark_attention_sequence *sequence = call->run->sequences + sequence_index;
  const hark_attention_args *args = call->args;
  stick_state *state = open_state(call, memory);
  int64_t first, end, from, to;
  range_of(call, sequence, chunk, &first, &end, &from, &to);
  state->dquery_requested = args->dquery.data != NULL;
  for (int i = 0; i < call->term_count; i++)
    state->collects = state->collects || (call->terms[i]->collects != NULL && call->terms[i]->collects(call));
  take_keys(call, sequence, key_head, state);
  state->all_dkeys = take_gradient(call, sequence, key_head, chunk, false, from, to, &state->dkey_stride);
  state->all_dvalues = take_gradient(call, sequence, key_head, chunk, true, from, to, &state->dvalue_stride);
  hark_dense_tile tile = {.call = call, .sequence = sequence, .sequence_index = sequence_index, .chunk = chunk, .logits = state->weights};
  for (tile.head = key_head * call->group; tile.head < (key_head + 1) * call->group; tile.head++)
    for (int64_t index = first; index < end; index++) {
      tile.query = index * HARK_TILE_QUERIES;
      tile.queries = (int)hark_min(HARK_TILE_QUERIES, sequence->query_count - tile.query);
      HARK_ISA(hark_dense_visible_keys)(call, sequence, tile.query, tile.queries, &from, &to);
      if (hark_cancel_now(call->context)) return;
      memset(state->dquery, 0, (size_t)call->head_dim * HARK_TILE_QUERIES * sizeof(float));
      if (from < to) {
        pack_queries(&tile, state);
        visit_keys(&tile, state, from, to);
      }
      if (state->dquery_requested)
        hark_unpack_transposed(state->dquery, state->gain, tile.queries, call->head_dim, (args->accumulate & HARK_ACCUMULATE_QUERY) != 0,
                               hark_dense_row_of(&args->dquery, sequence->item, tile.head, sequence->query_row + tile.query),
                               args->dquery.stride[2]);
    }
}

/* row += part */
static void add_row(float *row, const float *part, int features) {
  for (int c = 0; c < features; c += HARK_LANES) {
    const int width = features - c < HARK_LANES ? features - c : HARK_LANES;
    const vf sum = vf_load_part_or_all(row + c, width) + vf_load_part_or_all(part + c, width);
    if (width == HARK_LANES)
      vf_store(row + c, sum);
    else
      vf_store_part(row + c, sum, width);
  }
}

static void gather_rows(const hark_dense_call *call, const hark_attention_sequence *sequence, int64_t key_head, bool values) {
  const hark_tensor *gradient = values ? &call->args->dvalue : &call->args->dkey;
  const int64_t stride = gradient->stride[2];
  const int features = values ? call->value_dim : call->head_dim;
  if (gradient->data == NULL) return;
  float *const rows = hark_dense_row_of(gradient, sequence->item, key_head, sequence->key_row);
  if (!(call->args->accumulate & (values ? HARK_ACCUMULATE_VALUE : HARK_ACCUMULATE_KEY)))
    zero_rows(rows, stride, 0, sequence->key_count, features);
  for (int64_t chunk = 0; chunk < call->chunks; chunk++) {
    int64_t first, end, from, to;
    const float *const part = partial_rows(call, values, chunk, sequence->item, key_head) + sequence->key_row * features;
    range_of(call, sequence, chunk, &first, &end, &from, &to);
    for (int64_t i = from; i < to; i++) add_row(rows + i * stride, part + i * features, features);
  }
}

void HARK_ISA(hark_stick_gather)(const hark_dense_call *call, int64_t sequence_index, int64_t key_head) {
  gather_rows(call, call->run->sequences + sequence_index, key_head, false);
  gather_rows(call, call->run->sequences + sequence_index, key_head, true);
}

void HARK_ISA(hark_stick_visit_gradients)(const hark_dense_call *call, const hark_dense_term *term, void *term_memory,
                                          int64_t sequence_index, int64_t head, int64_t query, int queries, int64_t key_from,
                                          int64_t key_to, void *memory) {
  const hark_attention_sequence *sequence = call->run->sequences + sequence_index;
  stick_state *state = open_state(call, memory);
  hark_dense_tile tile = {.call = call,
                          .sequence = sequence,
                          .sequence_index = sequence_index,
                          .head = head,
                          .query = query,
                          .queries = queries,
                          .logits = state->weights};
  int64_t from, to;
  HARK_ISA(hark_dense_visible_keys)(call, sequence, query, queries, &from, &to);
  if (from >= to || key_from >= key_to) return;
  take_keys(call, sequence, head / call->group, state);
  state->collects = true;
  state->only = term;
  state->only_memory = term_memory;
  state->only_from = key_from;
  state->only_to = key_to;
  pack_queries(&tile, state);
  visit_keys(&tile, state, from, to);
}
