/* kernel_ridge_backward.c - gradients of kernel ridge attention in f32, blocked. The factorisation is recomputed; nothing is saved.
 *
 * Full, with alpha = M^-1 V:
 *     dalpha = kappa(K, Q) dY,  dV = M^-1 dalpha,  dkappa(K, Q) = alpha dY',  -2 dM = dV alpha' + alpha dV'
 * With D the diagonal matrix of dvariance, for a panel of 64 queries at a time, and two panels at a time for dM:
 *     w = M^-1 kappa(K, Q),  dkappa(K, Q) = alpha dY' - 2 w D,  -2 dM -= 2 w D w',  dkappa(q, q) = D
 * Causal, for a panel of 64 queries at a time, hidden entries of z and of X dY' are zero:
 *     z = U'^-1 kappa(K, Q),  w = U^-1 z,  dkappa(K, Q) = db = U^-1 (X dY'),  dV += w dY,  -2 dM += w db' + db w'
 * and with dvariance:
 *     db = U^-1 (X dY' - z D),  -2 dM += w db' + db w',  dkappa(K, Q) = db - w D,  dkappa(q, q) = D
 * dlog_determinant and dquadratic: kernel_ridge_statistics.c. Then, with s the exponent of kappa = exp(s) and ds = dkappa kappa,
 *     exp: dq = scale sum ds k, dk = scale sum ds q;   rbf: dq = scale sum ds (k - q), dk = scale sum ds (q - k),  scale = 1 / sigma^2
 *     dlogG[t] = sum of ds at distance t;   dlambda = trace dM;   dnoise = diagonal of dM;   dsigma = -(<q, dq> + <k, dk>) / sigma, s being
 *     of degree -2 in sigma and of degree 2 in (q, k);   unit: dx0 = (dx - x (x . dx)) / |x0|
 * Pieces of work are key heads over slices of sequences (ridge_terms.h): every element is written by one piece, in one order.
 * Cost: causal, in addition to the forward's factor and panel: 2 p^2 multiply-adds for a query that sees p keys. Sources: kernel-ridge.md.
 */
#include "core/cancel.h"
#include "kernel_ridge_tile.h"

static void clear(float *x, int64_t count) { memset(x, 0, (size_t)count * sizeof *x); }

/* dout of rows [row, row + count) into padded rows and transposed. */
static void read_dout(const ridge_tiles *h, int64_t row, int count) {
  const int dv = (int)h->desc->value_dim;
  clear(h->dout_rows, (int64_t)HARK_RIDGE_TILE * h->dvp);
  for (int r = 0; r < count && h->run->args->dout.type != HARK_NONE; r++)
    hark_pack_rows(ridge_row(&h->run->args->dout, h->sequence, h->head, h->sequence->query_row + row + r), 0, 1, dv, h->dvp, 1.0f,
                   h->dout_rows + (ptrdiff_t)r * h->dvp);
  hark_pack_transposed(h->dout_rows, h->dvp, HARK_RIDGE_TILE, dv, 1.0f, h->dout_lanes);
}

/* ds = dkappa kappa over a tile, with a factor. */
HARK_SIMD_NOINLINE void weigh(const float *dkernel, ptrdiff_t d_row, float factor, const float *kernel, float *ds) {
  const vf gain = vf_set(factor);
  for (int i = 0; i < HARK_RIDGE_TILE; i++)
    for (int lane = 0; lane < HARK_RIDGE_TILE; lane += HARK_LANES)
      vf_store(ds + i * HARK_RIDGE_TILE + lane, gain * vf_load(dkernel + i * d_row + lane) * vf_load(kernel + i * HARK_RIDGE_TILE + lane));
}

/* Add the sums of a tile by row, by lane, and by distance. */
HARK_SIMD_NOINLINE void add_rows(const float *ds, float *row_sums) {
  for (int i = 0; i < HARK_RIDGE_TILE; i++) {
    vf sum = vf_zero();
    for (int lane = 0; lane < HARK_RIDGE_TILE; lane += HARK_LANES) sum = sum + vf_load(ds + i * HARK_RIDGE_TILE + lane);
    row_sums[i] += vf_sum(sum);
  }
}
HARK_SIMD_NOINLINE void add_lanes(const float *ds, float *lane_sums) {
  for (int lane = 0; lane < HARK_RIDGE_TILE; lane += HARK_LANES) {
    vf sum = vf_load(lane_sums + lane);
    for (int i = 0; i < HARK_RIDGE_TILE; i++) sum = sum + vf_load(ds + i * HARK_RIDGE_TILE + lane);
    vf_store(lane_sums + lane, sum);
  }
}
HARK_SIMD_NOINLINE void add_distances(const float *ds, float *distances) {
  for (int i = 0; i < HARK_RIDGE_TILE; i++)
    for (int lane = 0; lane < HARK_RIDGE_TILE; lane += HARK_LANES) {
      float *to = distances + HARK_RIDGE_TILE - 1 - i + lane;
      vf_store(to, vf_load(to) + vf_load(ds + i * HARK_RIDGE_TILE + lane));
    }
}

/* Adds sums by distance of a tile to the partial sums: entry t is for the distance delta + t - 63. */
static void pass_distances(const ridge_tiles *h, const float *ds, int64_t delta, double factor, double *partial) {
  if (!h->desc->has_log_kernel) return;
  add_distances(ds, h->distances);
  for (int t = 0; t < 2 * HARK_RIDGE_TILE - 1; t++) {
    const int64_t at = delta + t - (HARK_RIDGE_TILE - 1), distance = at < 0 ? -at : at;
    if (h->distances[t] != 0 && distance < hark_ridge_distances(h->desc)) partial[2 + distance] += factor * (double)h->distances[t];
  }
  clear(h->distances, (int64_t)2 * HARK_RIDGE_TILE);
}

/* C += sum over rows k of A of W(j, k) A[k]. Rows of A and C have `a_row` numbers, of which `width` are used. turned: W[k][j] is W(j,
 * k). */
static void spread(const float *w, bool turned, const float *a, ptrdiff_t a_row, int width, float *c) {
  const hark_ridge_product p = {.a = a,
                                .a_row = a_row,
                                .b = w,
                                .b_row = turned ? 1 : HARK_RIDGE_TILE,
                                .b_step = turned ? HARK_RIDGE_TILE : 1,
                                .c = c,
                                .c_row = a_row,
                                .rows = HARK_RIDGE_TILE,
                                .depth = HARK_RIDGE_TILE,
                                .width = width};
  if (turned)
    hark_ridge_add_columns(&p);
  else
    hark_ridge_add(&p);
}

/* A tile of queries: the data of the tasks of a head that threads may share. */
typedef struct panel {
  const ridge_tiles *h;
  int64_t first, tiles; /* position of the first query; number of tiles of keys that it sees */
  double *partial;
  ridge_side side;
  double along; /* <q, dq> + <k, dk> of pairs whose gradients come from differences */
  int lane;     /* full, with dvariance: the first of its columns w in h->pair */
  bool has_dvariance;
  float dvariance[HARK_RIDGE_TILE]; /* times e^shift, by which the variance was multiplied */
} panel;

/* ds of a tile with zeros for pairs in `apart`, whose gradients come from differences; in `copy` if the tile is loose. */
static const float *without_apart(const ridge_tiles *h, const ridge_side *side, int64_t tile, const float *ds, const ridge_apart *apart,
                                  float *copy) {
  if (!h->rbf || !HARK_ISA(hark_cpu_ridge_is_loose)(h, side, tile)) return ds;
  HARK_ISA(hark_cpu_ridge_without)(ds, apart, copy);
  return copy;
}

/* Replaces kappa of a tile of keys by ds = dkappa(K, Q) kappa, and adds the gradients of the keys. */
static void give_keys(const panel *at, const ridge_tiles *h, int64_t tile, const float *dkernel, ptrdiff_t d_row) {
  const int64_t key = tile * HARK_RIDGE_TILE;
  float *ds = h->kernels + tile * HARK_RIDGE_TILE_FLOATS, copy[HARK_RIDGE_TILE_FLOATS];
  weigh(dkernel, d_row, 1.0f, ds, ds);
  const ridge_apart *apart = h->rbf ? h->panel_apart + tile : NULL;
  const float *products = without_apart(h, &at->side, tile, ds, apart, copy);
  if (products != ds) (void)HARK_ISA(hark_cpu_ridge_give_apart)(h, &at->side, tile, ds, apart, false, h->apart_dkeys + key * h->dp);
  if (h->rbf) add_rows(products, h->key_sums + key);
  spread(products, false, h->query_rows, h->dp, h->dp, h->dkeys + key * h->dp);
}

/* Adds the gradients of the queries from ds of all tiles, for a block of features; the first block also adds the sums. */
static void give_block(panel *at, int first, int width) {
  const ridge_tiles *h = at->h;
  float copy[HARK_RIDGE_TILE_FLOATS];
  for (int64_t tile = 0; tile < at->tiles; tile++) {
    const int64_t key = tile * HARK_RIDGE_TILE;
    const float *ds = h->kernels + tile * HARK_RIDGE_TILE_FLOATS;
    const ridge_apart *apart = h->rbf ? h->panel_apart + tile : NULL;
    const float *products = without_apart(h, &at->side, tile, ds, apart, copy);
    spread(products, true, h->key_rows + key * h->dp + first, h->dp, width, h->dquery + first);
    if (first > 0) continue;
    if (products != ds) at->along += HARK_ISA(hark_cpu_ridge_give_apart)(h, &at->side, tile, ds, apart, true, h->apart_dquery);
    if (h->rbf) add_lanes(products, h->query_sums);
    pass_distances(h, ds, at->first - key, 1, at->partial);
  }
}

static void give_queries(void *data, int64_t index, int worker) {
  panel *at = data;
  const int first = (int)index * RIDGE_BLOCK_LANES;
  (void)worker;
  give_block(at, first, (int)hark_min(RIDGE_BLOCK_LANES, at->h->dp - first));
}

static void give_all_queries(panel *at) {
  if (at->h->context != NULL) {
    hark_parallel_for(at->h->context, hark_ceil_div(at->h->dp, RIDGE_BLOCK_LANES), give_queries, at);
    return;
  }
  give_block(at, 0, at->h->dp); /* whole rows at once are faster */
}

/* Stores a row's gradient: times scale, minus the part with the row itself. Returns <x, dx> of the row without the centre, on which no
 * gradient depends. apart: the contributions of pairs from differences, whose part of the result is already known; or NULL. */
static double store_row(const ridge_tiles *h, const float *given, const float *row, float *gradient, const float *apart, float own,
                        bool add, float *to) {
  const int d = (int)h->desc->head_dim;
  double along = 0, along_given = 0, squares = 0;
  for (int c = 0; c < d; c++) {
    gradient[c] = (float)h->is.scale * (gradient[c] - own * row[c]);
    along += (double)row[c] * gradient[c];
    if (apart != NULL) gradient[c] += (float)h->is.scale * apart[c];
    along_given += (double)given[c] * gradient[c];
    squares += (double)given[c] * given[c];
  }
  if (to == NULL) return along;
  for (int c = 0; c < d; c++) {
    double value = (double)gradient[c];
    if (h->desc->unit) value = squares > 0 ? (value - along_given / squares * (double)given[c]) / sqrt(squares) : 0;
    to[c] = add ? to[c] + (float)value : (float)value;
  }
  return along;
}

/* dquery of rows [row, row + count). */
double HARK_ISA(hark_cpu_ridge_store_queries)(const ridge_tiles *h, int64_t row, int count) {
  const hark_attention_args *args = h->run->args;
  double along = 0;
  for (int r = 0; r < count; r++) {
    const int64_t at = h->sequence->query_row + row + r;
    float *to = args->dquery.type != HARK_NONE ? ridge_row(&args->dquery, h->sequence, h->head, at) : NULL;
    along += store_row(h, ridge_row(&args->query, h->sequence, h->head, at), h->query_rows + (ptrdiff_t)r * h->dp,
                       h->dquery + (ptrdiff_t)r * h->dp, h->rbf ? h->apart_dquery + (ptrdiff_t)r * h->dp : NULL,
                       h->rbf ? h->query_sums[r] : 0, args->accumulate & HARK_ACCUMULATE_QUERY, to);
  }
  return along;
}

/* dkey and dvalue. `first`: the first head of its key head; the other heads of the group add to its gradients. */
double HARK_ISA(hark_cpu_ridge_store_keys)(const ridge_tiles *h, bool first) {
  const hark_attention_args *args = h->run->args;
  const bool add_key = !first || (args->accumulate & HARK_ACCUMULATE_KEY), add_value = !first || (args->accumulate & HARK_ACCUMULATE_VALUE);
  const int64_t d = h->desc->head_dim, dv = h->desc->value_dim;
  double along = 0;
  for (int64_t i = 0; i < h->sequence->key_count; i++) {
    const int64_t at = h->sequence->key_row + i;
    float *dk = args->dkey.type != HARK_NONE ? ridge_row(&args->dkey, h->sequence, h->key_head, at) : NULL;
    float *dvalue = args->dvalue.type != HARK_NONE ? ridge_row(&args->dvalue, h->sequence, h->key_head, at) : NULL;
    if (i >= h->keys || h->seen[i] == 0) {
      if (dk != NULL && !add_key) clear(dk, d);
      if (dvalue != NULL && !add_value) clear(dvalue, dv);
      continue;
    }
    along += store_row(h, ridge_row(&args->key, h->sequence, h->key_head, at), h->key_rows + i * h->dp, h->dkeys + i * h->dp,
                       h->rbf ? h->apart_dkeys + i * h->dp : NULL, h->rbf ? h->key_sums[i] : 0, add_key, dk);
    const float *from = h->dvalues + i * h->dvp;
    for (int64_t c = 0; dvalue != NULL && c < dv; c++) dvalue[c] = add_value ? dvalue[c] + from[c] : from[c];
  }
  return along;
}

/* Transposes tiles of rows [n][width], to [dim][64] each. */
static void turn_tiles(const ridge_tiles *h, const float *rows, float *lanes) {
  const int64_t dv = h->desc->value_dim;
  for (int64_t t = 0; t < h->tiles; t++)
    hark_pack_transposed(rows + t * HARK_RIDGE_TILE * h->dvp, h->dvp, HARK_RIDGE_TILE, (int)dv, 1.0f, lanes + t * HARK_RIDGE_TILE * dv);
}

/* C (= or +=) rows A': one lane per row of the transposed tile. */
static void product_of_rows(const ridge_tiles *h, const float *rows, const float *lanes, bool add, float *c, ptrdiff_t c_row) {
  const hark_ridge_product p = {.a = lanes,
                                .a_row = HARK_RIDGE_TILE,
                                .b = rows,
                                .b_row = h->dvp,
                                .b_step = 1,
                                .c = c,
                                .c_row = c_row,
                                .rows = HARK_RIDGE_TILE,
                                .depth = (int)h->desc->value_dim,
                                .width = HARK_RIDGE_TILE};
  if (add)
    hark_ridge_add(&p);
  else
    hark_ridge_store(&p);
}

/* Reads rows [row, row + count) of queries and dout, and sets their gradients to zero. */
bool HARK_ISA(hark_cpu_ridge_take_queries)(ridge_tiles *h, int64_t row, int count) {
  if (!HARK_ISA(hark_cpu_ridge_queries)(h, row, count)) return false;
  read_dout(h, row, count);
  clear(h->dquery, (int64_t)HARK_RIDGE_TILE * h->dp);
  clear(h->query_sums, HARK_RIDGE_TILE);
  if (h->rbf) clear(h->apart_dquery, (int64_t)HARK_RIDGE_TILE * h->dp);
  return true;
}

/* kappa of a tile of keys and the panel's queries. */
static void fill_kernels(const panel *at, int64_t tile) {
  HARK_ISA(hark_cpu_ridge_gram)
  (at->h, &at->side, tile, at->first - tile * HARK_RIDGE_TILE, at->h->kernels + tile * HARK_RIDGE_TILE_FLOATS,
   at->h->rbf ? at->h->panel_apart + tile : NULL);
}

/* Rows [row, row + count) of dvariance. */
static void read_dvariance(panel *at, int64_t row, int count) {
  const ridge_tiles *h = at->h;
  const hark_tensor *given = &h->run->args->dvariance;
  at->has_dvariance = given->type != HARK_NONE;
  if (!at->has_dvariance) return;
  const float *from = ridge_statistic(h, given, row);
  for (int r = 0; r < HARK_RIDGE_TILE; r++) at->dvariance[r] = r < count ? (float)((double)from[r] * exp(h->is.shift)) : 0;
}

/* The gradients of kappa(q, q) G(0); false, with a record, if one is out of range. */
static bool give_own(const panel *at, int64_t row, int count) {
  const ridge_tiles *h = at->h;
  for (int r = 0; r < count && at->has_dvariance; r++) {
    double own;
    if (!HARK_ISA(hark_cpu_ridge_own)(h, row, r, &own)) return false;
    const double ds = (double)at->dvariance[r] * exp(own);
    const float *query = h->query_rows + (ptrdiff_t)r * h->dp;
    float *dquery = h->dquery + (ptrdiff_t)r * h->dp;
    for (int c = 0; !h->rbf && c < (int)h->desc->head_dim; c++) dquery[c] += (float)(2 * ds * (double)query[c]);
    if (h->desc->has_log_kernel) at->partial[2] += ds;
  }
  return true;
}

/* ---- full; alpha is in h->solved ---- */

/* kappa of a tile of keys, its part of dalpha, and the right sides of w. */
static void full_fill(void *data, int64_t tile, int worker) {
  const panel *at = data;
  const ridge_tiles *h = at->h;
  const int64_t key = tile * HARK_RIDGE_TILE;
  const ptrdiff_t row = 2 * HARK_RIDGE_TILE;
  const float *kernel = h->kernels + tile * HARK_RIDGE_TILE_FLOATS;
  (void)worker;
  fill_kernels(at, tile);
  spread(kernel, false, h->dout_rows, h->dvp, h->dvp, h->dvalues + key * h->dvp);
  for (int i = 0; i < HARK_RIDGE_TILE && at->has_dvariance; i++)
    memcpy(h->pair + (key + i) * row + at->lane, kernel + i * HARK_RIDGE_TILE, HARK_RIDGE_TILE * sizeof *kernel);
}

/* dkappa -= 2 w D over the rows of a tile. */
HARK_SIMD_NOINLINE void less_twice(const panel *at, int64_t tile, float *dkernel) {
  const ptrdiff_t row = 2 * HARK_RIDGE_TILE;
  const float *w = at->h->pair + tile * HARK_RIDGE_TILE * row + at->lane;
  for (int i = 0; i < HARK_RIDGE_TILE; i++)
    for (int lane = 0; lane < HARK_RIDGE_TILE; lane += HARK_LANES) {
      float *to = dkernel + i * HARK_RIDGE_TILE + lane;
      vf_store(to, vf_load(to) - vf_set(2) * vf_load(w + i * row + lane) * vf_load(at->dvariance + lane));
    }
}

/* dkappa of a tile of keys. */
static void full_give(void *data, int64_t tile, int worker) {
  const panel *at = data;
  ridge_tiles h;
  HARK_ISA(hark_cpu_ridge_join)(at->h, worker, &h);
  product_of_rows(&h, h.solved + tile * HARK_RIDGE_TILE * h.dvp, h.dout_lanes, false, h.work, HARK_RIDGE_TILE);
  if (at->has_dvariance) less_twice(at, tile, h.work);
  h.query_rows = at->h->query_rows;
  h.query_places = at->h->query_places;
  give_keys(at, &h, tile, h.work, HARK_RIDGE_TILE);
}

static void full_keys(void *data, int64_t tile, int worker) {
  full_fill(data, tile, worker);
  full_give(data, tile, worker);
}

/* dM of the variances of two panels. */
static void full_matrix(const panel *at, bool last) {
  const ridge_tiles *h = at->h;
  for (int r = 0; r < HARK_RIDGE_TILE; r++) h->weights[at->lane + r] = -at->dvariance[r];
  if (last || at->lane > 0) HARK_ISA(hark_cpu_ridge_add_outer)(h, h->tiles, at->lane + HARK_RIDGE_TILE, h->weights);
}

/* Columns w of a panel of `count` queries: M^-1 kappa(K, Q). */
static bool solve_panel(ridge_tiles *h, float *w, ptrdiff_t w_row, int count) {
  if (ridge_iterates(h->desc)) return HARK_ISA(hark_cpu_ridge_iterate_rows)(h, w, w_row, count, NULL);
  HARK_ISA(hark_cpu_ridge_solve)(h, h->tiles, w, w_row, HARK_RIDGE_TILE);
  HARK_ISA(hark_cpu_ridge_solve_back)(h, h->tiles, w, w_row, HARK_RIDGE_TILE);
  return true;
}

/* ---- plans that iterate: tiles of M and of dM are computed when they are needed, and not stored ---- */

/* The rows of which -2 dM consists: weights NULL: dV alpha' + alpha dV'; otherwise w diag(weights) w' of the columns in h->pair, twice. */
typedef struct stream {
  const ridge_tiles *h;
  const float *weights;
} stream;

/* Tile (i, j) of -2 dM, i <= j. */
static void stream_matrix(const stream *of, int64_t i, int64_t j, float *matrix) {
  const ridge_tiles *h = of->h;
  const int64_t row = i * HARK_RIDGE_TILE, lane = j * HARK_RIDGE_TILE, dv = h->desc->value_dim;
  const ptrdiff_t pair_row = 2 * HARK_RIDGE_TILE;
  if (of->weights == NULL) {
    product_of_rows(h, h->dvalues + row * h->dvp, h->lanes_solved + lane * dv, false, matrix, HARK_RIDGE_TILE);
    product_of_rows(h, h->solved + row * h->dvp, h->lanes_dvalues + lane * dv, true, matrix, HARK_RIDGE_TILE);
    return;
  }
  float turned[HARK_RIDGE_TILE_FLOATS];
  hark_pack_transposed(h->pair + lane * pair_row, pair_row, HARK_RIDGE_TILE, HARK_RIDGE_TILE, 2.0f, turned);
  for (int k = 0; k < HARK_RIDGE_TILE; k++) hark_ridge_row_times(turned + (ptrdiff_t)k * HARK_RIDGE_TILE, of->weights[k], HARK_RIDGE_TILE);
  const hark_ridge_product p = {.a = turned,
                                .a_row = HARK_RIDGE_TILE,
                                .b = h->pair + row * pair_row,
                                .b_row = pair_row,
                                .b_step = 1,
                                .c = matrix,
                                .c_row = HARK_RIDGE_TILE,
                                .rows = HARK_RIDGE_TILE,
                                .depth = HARK_RIDGE_TILE,
                                .width = HARK_RIDGE_TILE};
  hark_ridge_store(&p);
}

/* Adds the gradients of a tile of keys from all tiles of M with these keys, and those of its diagonal. */
static void stream_keys(void *data, int64_t tile, int worker) {
  const stream *of = data;
  const ridge_tiles *h = of->h;
  const int64_t row = tile * HARK_RIDGE_TILE;
  float matrix[HARK_RIDGE_TILE_FLOATS], ds[HARK_RIDGE_TILE_FLOATS], copy[HARK_RIDGE_TILE_FLOATS];
  ridge_apart apart;
  (void)worker;
  for (int64_t other = 0; other < h->tiles && !hark_cancel_now(h->memory->context); other++) {
    const bool turned = other < tile;
    const int64_t above = turned ? other : tile, lanes = turned ? tile : other;
    const ridge_side side = HARK_ISA(hark_cpu_ridge_key_side)(h, lanes);
    stream_matrix(of, above, lanes, matrix);
    for (int r = 0; other == tile && r < HARK_RIDGE_TILE; r++)
      h->reciprocal[row + r] += h->seen[row + r] * matrix[r * (HARK_RIDGE_TILE + 1)];
    HARK_ISA(hark_cpu_ridge_key_gram)(h, above, lanes, ds, h->rbf ? &apart : NULL);
    weigh(matrix, HARK_RIDGE_TILE, -1.0f, ds, ds);
    const float *products = without_apart(h, &side, above, ds, &apart, copy);
    if (products != ds)
      h->apart_along[tile] += 0.5 * HARK_ISA(hark_cpu_ridge_give_apart)(h, &side, above, ds, &apart, turned, h->apart_dkeys + row * h->dp);
    if (h->rbf) (turned ? add_lanes : add_rows)(products, h->key_sums + row);
    spread(products, turned, h->key_rows + other * HARK_RIDGE_TILE * h->dp, h->dp, h->dp, h->dkeys + row * h->dp);
  }
}

/* dM of the variances of a panel. */
static void stream_variances(const panel *at, int count) {
  float weights[HARK_RIDGE_TILE] = {0};
  for (int r = 0; r < count; r++) weights[r] = -at->dvariance[r];
  stream of = {at->h, weights};
  ridge_run(at->h, at->h->tiles, stream_keys, &of);
}

static bool full_tile(ridge_tiles *h, int64_t row, int count, double *partial, double *along) {
  panel at = {.h = h,
              .first = row + h->sequence->offset,
              .tiles = h->tiles,
              .partial = partial,
              .side = HARK_ISA(hark_cpu_ridge_query_side)(h, row, count),
              .lane = ridge_iterates(h->desc) ? 0 : (int)(row % (2 * HARK_RIDGE_TILE))};
  const ptrdiff_t pair_row = 2 * HARK_RIDGE_TILE;
  if (!HARK_ISA(hark_cpu_ridge_take_queries)(h, row, count)) return false;
  read_dvariance(&at, row, count);
  if (at.has_dvariance) {
    ridge_run(h, h->tiles, full_fill, &at);
    if (!solve_panel(h, h->pair + at.lane, pair_row, count)) return false;
    ridge_run(h, h->tiles, full_give, &at);
    if (ridge_iterates(h->desc))
      stream_variances(&at, count);
    else
      full_matrix(&at, row + count == h->sequence->query_count);
  } else {
    ridge_run(h, h->tiles, full_keys, &at);
  }
  give_all_queries(&at);
  if (!give_own(&at, row, count)) return false;
  *along += HARK_ISA(hark_cpu_ridge_store_queries)(h, row, count) + h->is.scale * at.along;
  return true;
}

/* ---- causal ---- */

/* db -= z D over the rows of a tile. */
HARK_SIMD_NOINLINE void less_variance(const panel *at, int64_t tile) {
  const ptrdiff_t row = 2 * HARK_RIDGE_TILE;
  float *z = at->h->pair + tile * HARK_RIDGE_TILE * row;
  for (int i = 0; i < HARK_RIDGE_TILE; i++, z += row)
    for (int lane = 0; lane < HARK_RIDGE_TILE; lane += HARK_LANES) {
      float *db = z + HARK_RIDGE_TILE + lane;
      vf_store(db, vf_load(db) - vf_load(z + lane) * vf_load(at->dvariance + lane));
    }
}

static void causal_variance(void *data, int64_t tile, int worker) {
  (void)worker;
  less_variance(data, tile);
}

/* z and dz of a panel, in h->pair: [n][128], z next to dz. */
static void fill_z(const panel *at, int lane, int width) {
  const ridge_tiles *h = at->h;
  const ptrdiff_t row = 2 * HARK_RIDGE_TILE;
  for (int64_t tile = 0; tile < at->tiles; tile++) {
    const int64_t key = tile * HARK_RIDGE_TILE;
    const float *kernel = h->kernels + tile * HARK_RIDGE_TILE_FLOATS + lane;
    float *z = h->pair + key * row + lane;
    for (int i = 0; i < HARK_RIDGE_TILE; i++) memcpy(z + i * row, kernel + i * HARK_RIDGE_TILE, (size_t)width * sizeof *z);
    HARK_ISA(hark_cpu_ridge_solve_rows)(h, tile, h->pair + lane, row, width, ridge_above(h, tile, at->first + lane));
    HARK_ISA(hark_cpu_ridge_hide)(tile, at->first + lane, z, row, width);
  }
}

static void causal_fill(void *data, int64_t tile, int worker) {
  const panel *at = data;
  const ridge_tiles *h = at->h;
  const int64_t key = tile * HARK_RIDGE_TILE;
  const ptrdiff_t row = 2 * HARK_RIDGE_TILE;
  float *dz = h->pair + key * row + HARK_RIDGE_TILE;
  (void)worker;
  fill_kernels(at, tile);
  product_of_rows(h, h->solved + key * h->dvp, h->dout_lanes, false, dz, row);
  HARK_ISA(hark_cpu_ridge_hide)(tile, at->first, dz, row, HARK_RIDGE_TILE);
}

static void causal_z(void *data, int64_t index, int worker) {
  (void)worker;
  fill_z(data, (int)index * RIDGE_BLOCK_LANES, RIDGE_BLOCK_LANES);
}

/* Columns j of -2 dM += w db' + db w', tiles i <= j, transposed: [db_j'; w_j']. The last columns are the longest. */
static void causal_matrix(void *data, int64_t index, int worker) {
  const panel *at = data;
  const int64_t j = at->tiles - 1 - index;
  const ptrdiff_t row = 2 * HARK_RIDGE_TILE;
  ridge_tiles h;
  HARK_ISA(hark_cpu_ridge_join)(at->h, worker, &h);
  const float *w = h.pair + j * HARK_RIDGE_TILE * row;
  hark_pack_transposed(w + HARK_RIDGE_TILE, row, HARK_RIDGE_TILE, HARK_RIDGE_TILE, 1.0f, h.turned);
  hark_pack_transposed(w, row, HARK_RIDGE_TILE, HARK_RIDGE_TILE, 1.0f, h.turned + HARK_RIDGE_TILE_FLOATS);
  ridge_add_turned(&h, j, 2 * HARK_RIDGE_TILE);
}

static void causal_keys(void *data, int64_t tile, int worker) {
  const panel *at = data;
  const ridge_tiles *h = at->h;
  const int64_t key = tile * HARK_RIDGE_TILE;
  const ptrdiff_t pair_row = 2 * HARK_RIDGE_TILE;
  const float *w = h->pair + key * pair_row;
  (void)worker;
  const hark_ridge_product p = {.a = h->dout_rows,
                                .a_row = h->dvp,
                                .b = w,
                                .b_row = pair_row,
                                .b_step = 1,
                                .c = h->dvalues + key * h->dvp,
                                .c_row = h->dvp,
                                .rows = HARK_RIDGE_TILE,
                                .depth = HARK_RIDGE_TILE,
                                .width = h->dvp};
  hark_ridge_add(&p);
  if (at->has_dvariance) less_variance(at, tile); /* dM has been summed: from db to dkappa(K, Q) */
  give_keys(at, h, tile, w + HARK_RIDGE_TILE, pair_row);
}

static bool causal_tile(ridge_tiles *h, int64_t row, int count, double *partial, double *along) {
  panel at = {.h = h,
              .first = row + h->sequence->offset,
              .tiles = ridge_seen_tiles(h, row + count - 1),
              .partial = partial,
              .side = HARK_ISA(hark_cpu_ridge_query_side)(h, row, count)};
  const ptrdiff_t pair_row = 2 * HARK_RIDGE_TILE;
  if (!HARK_ISA(hark_cpu_ridge_take_queries)(h, row, count)) return false;
  read_dvariance(&at, row, count);
  ridge_run(h, at.tiles, causal_fill, &at);
  if (h->context != NULL)
    hark_parallel_for(h->context, HARK_RIDGE_TILE / RIDGE_BLOCK_LANES, causal_z, &at);
  else
    fill_z(&at, 0, HARK_RIDGE_TILE);
  if (at.has_dvariance) ridge_run(h, at.tiles, causal_variance, &at);
  HARK_ISA(hark_cpu_ridge_solve_back)(h, at.tiles, h->pair, pair_row, (int)pair_row);
  ridge_run(h, at.tiles, causal_matrix, &at);
  ridge_run(h, at.tiles, causal_keys, &at);
  give_all_queries(&at);
  if (!give_own(&at, row, count)) return false;
  *along += HARK_ISA(hark_cpu_ridge_store_queries)(h, row, count) + h->is.scale * at.along;
  return true;
}

/* ---- both ---- */

/* The pairs of tile (i, j) of M whose gradients come from differences. */
static ridge_apart *apart_of(const ridge_tiles *h, int64_t i, int64_t j) {
  return h->matrix_apart + ridge_tile(h, i, j) / HARK_RIDGE_TILE_FLOATS;
}

/* Contributions of dM to keys, ridge and distances. A tile off the diagonal is in M twice, so that dkappa is 2 dM; on the diagonal both
 * keys of an entry are in the tile's rows, which again gives 2 dM for a key and dM for a distance. ds of the tiles is stored in place of
 * the factor, which is no longer needed. */
static void matrix_column(void *data, int64_t index, int worker) {
  const panel *at = data;
  const int64_t j = at->h->tiles - 1 - index, dv = at->h->desc->value_dim, lane = j * HARK_RIDGE_TILE;
  ridge_tiles h;
  HARK_ISA(hark_cpu_ridge_join)(at->h, worker, &h);
  for (int64_t i = 0; i <= j; i++) {
    const int64_t row = i * HARK_RIDGE_TILE;
    float *matrix = h.matrix != NULL ? h.matrix + ridge_tile(&h, i, j) : h.work, *ds = h.factor + ridge_tile(&h, i, j);
    if (!h.desc->causal) {
      product_of_rows(&h, h.dvalues + row * h.dvp, h.lanes_solved + lane * dv, h.matrix != NULL, matrix, HARK_RIDGE_TILE);
      product_of_rows(&h, h.solved + row * h.dvp, h.lanes_dvalues + lane * dv, true, matrix, HARK_RIDGE_TILE);
    }
    for (int r = 0; i == j && r < HARK_RIDGE_TILE; r++) h.reciprocal[row + r] = h.seen[row + r] * matrix[r * (HARK_RIDGE_TILE + 1)];
    HARK_ISA(hark_cpu_ridge_key_gram)(&h, i, j, ds, h.rbf ? apart_of(&h, i, j) : NULL);
    weigh(matrix, HARK_RIDGE_TILE, -1.0f, ds, ds);
  }
}

/* Adds the gradients of a tile of keys from all its tiles of M, in their order. */
static void matrix_keys(void *data, int64_t tile, int worker) {
  const panel *at = data;
  const ridge_tiles *h = at->h;
  const int64_t row = tile * HARK_RIDGE_TILE;
  float copy[HARK_RIDGE_TILE_FLOATS];
  (void)worker;
  for (int64_t other = 0; other < h->tiles; other++) {
    const bool turned = other < tile;
    const int64_t above = turned ? other : tile, lanes = turned ? tile : other;
    const float *tile_ds = h->factor + ridge_tile(h, above, lanes);
    const ridge_apart *apart = h->rbf ? apart_of(h, above, lanes) : NULL;
    const ridge_side side = HARK_ISA(hark_cpu_ridge_key_side)(h, lanes);
    const float *ds = without_apart(h, &side, above, tile_ds, apart, copy);
    if (ds != tile_ds) /* half for each pair, because its other row's tile adds it too */
      h->apart_along[tile] +=
          0.5 * HARK_ISA(hark_cpu_ridge_give_apart)(h, &side, above, tile_ds, apart, turned, h->apart_dkeys + row * h->dp);
    if (h->rbf) (turned ? add_lanes : add_rows)(ds, h->key_sums + row);
    spread(ds, turned, h->key_rows + other * HARK_RIDGE_TILE * h->dp, h->dp, h->dp, h->dkeys + row * h->dp);
  }
}

/* Returns the part of <k, dk> from differences. */
static double matrix_gradients(const ridge_tiles *h, double *partial) {
  panel at = {.h = h, .tiles = h->tiles, .partial = partial};
  stream of = {.h = h};
  double trace = 0, along = 0;
  if (ridge_iterates(h->desc)) {
    ridge_run(h, h->tiles, stream_keys, &of);
  } else {
    ridge_run(h, h->tiles, matrix_column, &at);
    ridge_run(h, h->tiles, matrix_keys, &at);
  }
  for (int64_t i = 0; i < h->tiles * HARK_RIDGE_TILE; i++) trace -= 0.5 * (double)h->reciprocal[i]; /* half of the diagonal of 2 dM */
  for (int64_t i = 0; i < h->keys; i++)
    if (h->seen[i] != 0) hark_ridge_give_noise(h->run->args, h->sequence, h->head, i, &h->is, -0.5 * (double)h->reciprocal[i]);
  for (int64_t j = 0; j < h->tiles && h->desc->has_log_kernel; j++)
    for (int64_t i = 0; i <= j; i++)
      pass_distances(h, h->factor + ridge_tile(h, i, j), (j - i) * HARK_RIDGE_TILE, i == j ? 0.5 : 1, partial);
  partial[0] += trace * exp(-h->is.shift) * hark_ridge_slope(h->desc, hark_max(h->visible, 1));
  for (int64_t tile = 0; tile < h->tiles && h->rbf; tile++) along += h->apart_along[tile];
  return along;
}

typedef struct backward_task {
  const hark_attention_call *run;
  ridge_workspace memory;
  hark_context *shared; /* NULL: one thread per key head of a slice */
} backward_task;

/* dV <- M^-1 dalpha. */
static bool solve_values(ridge_tiles *h) {
  if (ridge_iterates(h->desc)) return HARK_ISA(hark_cpu_ridge_iterate_rows)(h, h->dvalues, h->dvp, (int)h->desc->value_dim, NULL);
  HARK_ISA(hark_cpu_ridge_solve)(h, h->tiles, h->dvalues, h->dvp, h->dvp);
  HARK_ISA(hark_cpu_ridge_solve_back)(h, h->tiles, h->dvalues, h->dvp, h->dvp);
  return true;
}

static void backward_head(const backward_task *task, int64_t sequence, int64_t head, bool first, int worker, double *partial) {
  ridge_tiles h;
  if (!HARK_ISA(hark_cpu_ridge_begin)(task->shared, task->run, &task->memory, sequence, head, worker, &h)) return;
  if (h.low.rank > 0) {
    HARK_ISA(hark_cpu_ridge_low_backward)(&h, first, partial);
    return;
  }
  const hark_attention_args *args = h.run->args;
  const bool has_dquadratic = args->dquadratic.type != HARK_NONE, has_ddeterminant = args->dlog_determinant.type != HARK_NONE;
  const bool causal = h.desc->causal;
  const int64_t keys = h.tiles * HARK_RIDGE_TILE;
  const bool iterates = ridge_iterates(h.desc);
  if (!causal && args->dvariance.type == HARK_NONE && !has_ddeterminant) h.matrix = NULL;
  if (iterates) clear(h.reciprocal, keys);
  clear(h.dkeys, keys * h.dp);
  clear(h.dvalues, keys * h.dvp);
  clear(h.key_sums, keys);
  if (h.rbf) clear(h.apart_dkeys, keys * h.dp);
  if (h.rbf) memset(h.apart_along, 0, (size_t)h.tiles * sizeof *h.apart_along);
  clear(h.distances, (int64_t)2 * HARK_RIDGE_TILE);
  if (h.matrix != NULL && !iterates) clear(h.matrix, h.tiles * (h.tiles + 1) / 2 * HARK_RIDGE_TILE_FLOATS);
  if (!causal && !iterates) HARK_ISA(hark_cpu_ridge_solve_back)(&h, h.tiles, h.solved, h.dvp, h.dvp); /* alpha */
  double along = 0;
  for (int64_t row = 0; row < h.sequence->query_count && !hark_cancel_now(task->memory.context); row += HARK_RIDGE_TILE) {
    const int count = (int)hark_min(HARK_RIDGE_TILE, h.sequence->query_count - row);
    if (!(causal ? causal_tile : full_tile)(&h, row, count, partial, &along)) return;
  }
  if (has_ddeterminant) HARK_ISA(hark_cpu_ridge_give_determinants)(&h);
  if (causal && has_dquadratic) HARK_ISA(hark_cpu_ridge_give_prefixes)(&h);
  if (!causal) {
    if (!solve_values(&h)) return;
    if (has_dquadratic) HARK_ISA(hark_cpu_ridge_add_quadratics)(&h); /* -2 dM += 2 alpha diag(g) alpha' */
    turn_tiles(&h, h.solved, h.lanes_solved);
    turn_tiles(&h, h.dvalues, h.lanes_dvalues);
  }
  along += h.is.scale * matrix_gradients(&h, partial);
  if (!causal && has_dquadratic) HARK_ISA(hark_cpu_ridge_add_quadratics)(&h);
  along += HARK_ISA(hark_cpu_ridge_store_keys)(&h, first);
  if (h.rbf) partial[1] -= along / h.is.sigma;
}

/* A key head over a slice of sequences. */
static void backward_piece(void *data, int64_t index, int worker) {
  const backward_task *task = data;
  const hark_attention_desc *desc = &task->run->plan->desc;
  const int64_t slice = index / desc->key_heads, key_head = index % desc->key_heads, group = desc->heads / desc->key_heads;
  const int64_t width = hark_ridge_partial(desc);
  int64_t first, end;
  hark_ridge_slice(task->run, slice, &first, &end);
  for (int64_t head = key_head * group; head < (key_head + 1) * group; head++) {
    double *partial = task->memory.partials + (slice * desc->heads + head) * width;
    memset(partial, 0, (size_t)width * sizeof *partial);
    for (int64_t s = first; s < end; s++) backward_head(task, s, head, head == key_head * group, worker, partial);
  }
}

hark_status HARK_ISA(hark_cpu_ridge_backward)(hark_context *context, const hark_attention_call *run) {
  const int64_t slices = hark_ridge_slices(&run->plan->desc), pieces = slices * run->plan->desc.key_heads;
  const bool shares = ridge_shares(context, run, hark_min(slices, run->sequence_count) * run->plan->desc.key_heads);
  backward_task task = {run, HARK_ISA(hark_cpu_ridge_workspace)(context, run, true), shares ? context : NULL};
  for (int64_t index = 0; index < pieces && shares; index++) backward_piece(&task, index, 0);
  if (!shares) hark_parallel_for(context, pieces, backward_piece, &task);
  const hark_status status = hark_ridge_conclude(context, run, task.memory.records, false);
  if (status == HARK_OK) hark_ridge_collect(run, task.memory.partials);
  return status;
}
