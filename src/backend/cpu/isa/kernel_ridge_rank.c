/* kernel_ridge_rank.c - forward of full kernel ridge attention with a Gaussian kernel whose matrix of the keys has a low numerical rank:
 * smooth functions of few inputs. A key needs rank^2 multiply-adds instead of n^2 / 6.
 *
 *     K = L L' + E,   M = L L' + D,   C C' = I + L' D^-1 L,   M^-1 = D^-1 - D^-1 L (C C')^-1 L' D^-1
 *     alpha = M^-1 V,   beta = L' alpha,   V' M^-1 V = alpha' D alpha + beta' beta,   log det M = log det D + 2 log det C
 *     w = L_P^-1 kappa(P, q),   y = w' beta,   var = kappa(q, q) - |w|^2 + |C^-1 w|^2
 *
 * D is lambda and the noise of the keys. L has columns of the Cholesky factor of K with pivots P, the largest E_ii / D_ii first, until s,
 * the sum of all E_ii / D_ii, is small. s bounds the 2-norm of D^-1/2 E D^-1/2, which is the relative error of M, and the error of
 * log det M. If too many columns are needed (part_of), or seem to be, there is no L, and M is factored. M is also factored if some D is
 * very small, because D^-1 (V - L beta) would lose all digits. One step of refinement restores the digits that are lost otherwise.
 *
 * kappa(K, q) = L w + delta with |delta_i|^2 <= E_ii e, e = kappa(q, q) - |w|^2. Without delta, y is wrong by at most
 * sqrt(e s V' M^-1 V), and var by at most 2 sqrt(e s) + e s. For queries with a larger e, delta comes from the kernels of all keys:
 *     y = w' beta + delta' alpha,   var = e - delta' D^-1 delta + |C^-1 (w - L' D^-1 delta)|^2
 *
 * All of it is f64; results are rounded once. Memory: that of the factor. Source: docs/mathematics/kernel-ridge.md.
 */
#include "kernel_ridge_rank.h"
#include "core/cancel.h"

#define LEAST_KEYS 256         /* with fewer, a factor takes no longer */
#define LEAST_COLUMNS 16       /* for which there must be memory */
#define GOAL 0x1p-23           /* of the sum of E_ii / D_ii; the smaller it is, the farther away a query may be */
#define TOLERANCE 0x1p-20      /* of the sum, if the goal is not reached */
#define ROUNDING 0x1p-50       /* E_ii below that is rounding error */
#define LEAST_DIAGONAL 0x1p-24 /* of D */
#define CHECKS 8               /* of progress, while the number of columns grows to the most */
#define ERROR 0x1p-22          /* of y over the largest |V|, and of var, without delta */

/* ---- memory ---- */

/* Columns of L at most: keys / this. With more, a factor takes no longer. With many keys, L does not fit into the cache of a core. */
static int64_t part_of(int64_t keys) { return keys <= 1024 ? 6 : 10; }

/* Doubles for L with so many columns, and for a tile of queries. */
static int64_t doubles_of(const ridge_tiles *h, int64_t most) {
  const int64_t d = h->desc->head_dim, dv = h->desc->value_dim, rows = h->tiles * HARK_RIDGE_TILE;
  return rows * (d + dv + 5 + most) + most * (2 * most + d + dv) + dv + 11 * (int64_t)(HARK_ALIGNMENT / sizeof(double));
}
static int64_t query_doubles_of(const ridge_tiles *h, int64_t most) {
  return (h->desc->head_dim + 2 * most) * HARK_RIDGE_TILE + h->low.rows + most + 5 * (int64_t)(HARK_ALIGNMENT / sizeof(double));
}

/* Sets the arrays. False if not even LEAST_COLUMNS fit into the memory of the factor, or a tile of queries does not fit into the panel. */
static bool carve_rank(ridge_tiles *h) {
  ridge_rank *r = &h->low;
  const int64_t d = h->desc->head_dim, dv = h->desc->value_dim, rows = h->tiles * HARK_RIDGE_TILE;
  const int64_t room = h->tiles * (h->tiles + 1) / 4 * HARK_RIDGE_TILE_FLOATS;
  int64_t most = h->visible / part_of(h->visible);
  while (most >= LEAST_COLUMNS && doubles_of(h, most) > room) most -= LEAST_COLUMNS;
  *r = (ridge_rank){.most = (int)most, .rows = rows};
  if (most < LEAST_COLUMNS || (h->panel != NULL && query_doubles_of(h, most) > rows * HARK_RIDGE_TILE / 2)) return false;
  double *memory = (double *)(void *)h->factor;
  r->keys = ridge_rank_carve(&memory, d * rows);
  r->diagonal = ridge_rank_carve(&memory, rows);
  r->weights = ridge_rank_carve(&memory, rows);
  r->left = ridge_rank_carve(&memory, rows);
  r->factor = ridge_rank_carve(&memory, most * rows);
  r->inner = ridge_rank_carve(&memory, most * most);
  r->pivot_keys = ridge_rank_carve(&memory, most * d);
  r->pivot_rows = ridge_rank_carve(&memory, most * most);
  r->alpha = ridge_rank_carve(&memory, dv * rows);
  r->beta = ridge_rank_carve(&memory, dv * most);
  r->quadratic = ridge_rank_carve(&memory, dv);
  r->scratch = ridge_rank_carve(&memory, 2 * rows);
  return true;
}

/* Scratch of a tile of queries, in the panel. */
typedef struct query_tile {
  double *lanes;    /* [d][64]: queries over sigma sqrt 2 */
  double *w, *u;    /* [rank][64] */
  double *delta;    /* [rows] of one query, and */
  double *products; /* [rank] */
} query_tile;

static query_tile carve_queries(const ridge_tiles *h) {
  double *memory = (double *)(void *)h->panel;
  query_tile t;
  t.lanes = ridge_rank_carve(&memory, h->desc->head_dim * HARK_RIDGE_TILE);
  t.w = ridge_rank_carve(&memory, (int64_t)h->low.rank * HARK_RIDGE_TILE);
  t.u = ridge_rank_carve(&memory, (int64_t)h->low.rank * HARK_RIDGE_TILE);
  t.delta = ridge_rank_carve(&memory, h->low.rows);
  t.products = ridge_rank_carve(&memory, h->low.rank);
  return t;
}

/* ---- L ---- */

/* Keys, D, and the diagonal of K; false if some D is too small. Masked keys may have any L: all that L is used for has the weight 1 / D,
 * which is 0. */
static bool read_keys(const ridge_tiles *h) {
  const ridge_rank *r = &h->low;
  const int64_t d = h->desc->head_dim;
  const double gain = sqrt(h->is.scale / 2);
  for (int64_t i = 0; i < r->rows; i++) {
    const bool seen = h->seen[i] != 0;
    r->left[i] = seen;
    r->diagonal[i] = seen ? h->is.lambda + hark_ridge_noise(h->run->args, h->sequence, h->head, i) : 0;
    r->weights[i] = seen ? 1 / r->diagonal[i] : 0;
    if (seen && !(r->diagonal[i] >= LEAST_DIAGONAL)) return false;
  }
  for (int64_t first = 0; first < r->rows; first += HARK_RIDGE_TILE)
    for (int64_t c = 0; c < d; c++) {
      const float *from = h->key_places.given + first * d + c * HARK_RIDGE_TILE;
      double *to = r->keys + c * r->rows + first;
      for (int i = 0; i < HARK_RIDGE_TILE; i++) {
        const bool seen = h->seen[first + i] != 0;
        to[i] = seen ? gain * h->key_places.lengths[first + i] * (double)from[i] : 0;
      }
    }
  return true;
}

/* What is left of K: the sum of E_ii / D_ii, and the largest. */
typedef struct remainder_of {
  double sum, largest;
} remainder_of;

static remainder_of first_remainder(const ridge_rank *r) {
  remainder_of all = {0};
  for (int64_t i = 0; i < r->rows; i++) {
    all.sum += r->left[i] * r->weights[i];
    all.largest = hark_larger(all.largest, r->left[i] * r->weights[i]);
  }
  return all;
}

/* Column `rank` of L. */
HARK_SIMD_NOINLINE remainder_of take_pivot(const ridge_tiles *h, int64_t pivot) {
  const ridge_rank *r = &h->low;
  const int64_t d = h->desc->head_dim;
  double *to = r->factor + r->rank * r->rows;
  const vd over = vd_set(1 / sqrt(r->left[pivot]));
  vd sum = vd_set(0), largest = vd_set(0);
  r->left[pivot] = 0;
  for (int64_t i = 0; i < r->rows; i += RIDGE_RANK_LANES) {
    vd x[RIDGE_RANK_VECTORS];
    ridge_rank_kernels(d, r->keys + pivot, r->rows, r->keys + i, r->rows, x);
    ridge_rank_less(r->rank, r->factor + pivot, r->rows, r->factor + i, r->rows, x);
    HARK_UNROLL
    for (int v = 0; v < RIDGE_RANK_VECTORS; v++) {
      const int64_t at = i + v * HARK_WIDE_LANES;
      const vd column = x[v] * over;
      const vd left = vd_max(vd_load(r->left + at) - column * column, vd_set(0)), part = left * vd_load(r->weights + at);
      vd_store(to + at, column);
      vd_store(r->left + at, left);
      sum = sum + part;
      largest = vd_max(largest, part);
    }
  }
  double lanes[HARK_WIDE_LANES];
  remainder_of all = {vd_sum(sum), 0};
  vd_store(lanes, largest);
  for (int i = 0; i < HARK_WIDE_LANES; i++) all.largest = hark_larger(all.largest, lanes[i]);
  return all;
}

/* The first key with the largest E_ii / D_ii. */
static int64_t find_pivot(const ridge_rank *r, double largest) {
  int64_t i = 0;
  while (i < r->rows - 1 && r->left[i] * r->weights[i] != largest) i++;
  return i;
}

static void keep_pivot(const ridge_tiles *h, int64_t pivot) {
  const ridge_rank *r = &h->low;
  for (int64_t c = 0; c < h->desc->head_dim; c++) r->pivot_keys[r->rank * h->desc->head_dim + c] = r->keys[c * r->rows + pivot];
  for (int t = 0; t <= r->rank; t++) r->pivot_rows[r->rank * r->most + t] = r->factor[t * r->rows + pivot];
}

/* True if the most columns are likely to be enough. With `count` of them, the logarithm of the sum has fallen to sums[count] from its first
 * value. It falls at least in proportion to the count, or like a power of it, which the last half of the columns shows. With fewer columns,
 * the estimate must reach less. A kernel that needs nearly the most columns may be given up. */
static bool is_promising(const double *sums, int count, int most) {
  const double done = sums[0] - sums[count], half = sums[0] - sums[count / 2], goal = sums[0] - log(TOLERANCE);
  const double power = half > 0 ? fmin(fmax(log2(done / half), 1), 2.5) : 2.5, left = (double)most / count;
  return done * pow(left, power) >= (1.1 - 0.11 * left) * goal;
}

/* Computes L; *sum: that of E_ii / D_ii at the end. False if there are too many columns. sums: room for most + 1 numbers. */
static bool find_columns(ridge_tiles *h, double *sums, double *sum) {
  ridge_rank *r = &h->low;
  const int check = (int)hark_ceil_div(r->most, CHECKS);
  remainder_of left = first_remainder(r);
  sums[0] = log(left.sum);
  while (left.sum > GOAL) {
    if (hark_cancel_now(h->memory->context)) return false;
    const int64_t pivot = find_pivot(r, left.largest);
    if (r->rank == r->most || r->left[pivot] < ROUNDING) break;
    if (r->rank > 0 && r->rank % check == 0 && !is_promising(sums, r->rank, r->most)) return false;
    left = take_pivot(h, pivot);
    keep_pivot(h, pivot);
    sums[++r->rank] = log(left.sum);
  }
  *sum = left.sum;
  return left.sum <= TOLERANCE;
}

/* ---- systems ---- */

/* Row s of C C' = I + L' D^-1 L up to its diagonal, four columns at a time. */
HARK_SIMD_NOINLINE void fill_inner(const ridge_rank *r, int s) {
  const double *own = r->factor + s * r->rows;
  double *to = r->inner + (ptrdiff_t)s * r->most;
  for (int t = 0; t <= s; t += 4) {
    const int columns = (int)hark_min(4, s + 1 - t);
    vd sums[4] = {vd_set(0), vd_set(0), vd_set(0), vd_set(0)};
    const double *other[4];
    for (int j = 0; j < 4; j++) other[j] = r->factor + (int64_t)(j < columns ? t + j : t) * r->rows;
    for (int64_t i = 0; i < r->rows; i += HARK_WIDE_LANES) {
      const vd x = vd_load(own + i) * vd_load(r->weights + i);
      HARK_UNROLL
      for (int j = 0; j < 4; j++) sums[j] = vd_fma(x, vd_load(other[j] + i), sums[j]);
    }
    for (int j = 0; j < columns; j++) to[t + j] = vd_sum(sums[j]) + (t + j == s ? 1 : 0);
  }
}

/* Its Cholesky factor, in its place: eigenvalues are at least 1. */
HARK_SIMD_NOINLINE void factor_inner(const ridge_rank *r) {
  for (int i = 0; i < r->rank; i++) {
    double *row = r->inner + (ptrdiff_t)i * r->most;
    for (int j = 0; j <= i; j++) {
      const double *other = r->inner + (ptrdiff_t)j * r->most, left = row[j] - ridge_rank_dot(row, other, j);
      row[j] = i == j ? sqrt(left) : left / other[j];
    }
  }
}

/* x <- (C C')^-1 x */
static void solve_inner(const ridge_rank *r, double *x) {
  for (int i = 0; i < r->rank; i++) {
    const double *row = r->inner + (ptrdiff_t)i * r->most;
    x[i] = (x[i] - ridge_rank_dot(row, x, i)) / row[i];
  }
  for (int i = r->rank - 1; i >= 0; i--) {
    const double *row = r->inner + (ptrdiff_t)i * r->most;
    x[i] /= row[i];
    for (int j = 0; j < i; j++) x[j] -= row[j] * x[i];
  }
}

/* x <- D^-1 x - D^-1 L (C C')^-1 L' D^-1 x */
HARK_SIMD_NOINLINE void solve_once(const ridge_rank *r, double *x, double *t) {
  for (int64_t i = 0; i < r->rows; i += HARK_WIDE_LANES) vd_store(x + i, vd_load(x + i) * vd_load(r->weights + i));
  for (int s = 0; s < r->rank; s++) t[s] = ridge_rank_dot(r->factor + s * r->rows, x, r->rows);
  solve_inner(r, t);
  for (int64_t i = 0; i < r->rows; i += RIDGE_RANK_LANES) {
    vd sums[RIDGE_RANK_VECTORS];
    HARK_UNROLL
    for (int v = 0; v < RIDGE_RANK_VECTORS; v++) sums[v] = vd_set(0);
    ridge_rank_less(r->rank, t, 1, r->factor + i, r->rows, sums);
    HARK_UNROLL
    for (int v = 0; v < RIDGE_RANK_VECTORS; v++) {
      const int64_t at = i + v * HARK_WIDE_LANES;
      vd_store(x + at, vd_fma(sums[v], vd_load(r->weights + at), vd_load(x + at)));
    }
  }
}

/* to = b - (L L' + D) x, with t = L' x. */
HARK_SIMD_NOINLINE void find_residual(const ridge_rank *r, const double *b, const double *x, double *t, double *to) {
  for (int s = 0; s < r->rank; s++) t[s] = ridge_rank_dot(r->factor + s * r->rows, x, r->rows);
  for (int64_t i = 0; i < r->rows; i += RIDGE_RANK_LANES) {
    vd sums[RIDGE_RANK_VECTORS];
    HARK_UNROLL
    for (int v = 0; v < RIDGE_RANK_VECTORS; v++) {
      const int64_t at = i + v * HARK_WIDE_LANES;
      sums[v] = vd_fma(-vd_load(r->diagonal + at), vd_load(x + at), vd_load(b + at));
    }
    ridge_rank_less(r->rank, t, 1, r->factor + i, r->rows, sums);
    HARK_UNROLL
    for (int v = 0; v < RIDGE_RANK_VECTORS; v++) vd_store(to + i + v * HARK_WIDE_LANES, sums[v]);
  }
}

void HARK_ISA(hark_cpu_ridge_rank_solve)(const ridge_rank *r, double *x, double *t) {
  double *const b = r->scratch, *const residual = r->scratch + r->rows;
  memcpy(b, x, (size_t)r->rows * sizeof(double));
  solve_once(r, x, t);
  find_residual(r, b, x, t, residual);
  solve_once(r, residual, t);
  for (int64_t i = 0; i < r->rows; i++) x[i] += residual[i];
}

/* alpha, beta and the quadratic form of a column of values; returns the largest |V|. */
static double solve_column(const ridge_tiles *h, int64_t c) {
  const ridge_rank *r = &h->low;
  double *alpha = r->alpha + c * r->rows, *beta = r->beta + c * r->most, largest = 0, sum = 0;
  for (int64_t i = 0; i < r->rows; i++) {
    alpha[i] = (double)h->solved[i * h->dvp + c];
    largest = hark_larger(largest, fabs(alpha[i]));
  }
  HARK_ISA(hark_cpu_ridge_rank_solve)(r, alpha, beta);
  for (int s = 0; s < r->rank; s++) beta[s] = ridge_rank_dot(r->factor + s * r->rows, alpha, r->rows);
  for (int64_t i = 0; i < r->rows; i++) sum += r->diagonal[i] * alpha[i] * alpha[i];
  r->quadratic[c] = sum + ridge_rank_dot(beta, beta, r->rank);
  return largest;
}

static double find_determinant(const ridge_rank *r) {
  double sum = 0;
  for (int64_t i = 0; i < r->rows; i++)
    if (r->weights[i] > 0) sum -= log(r->weights[i]);
  for (int s = 0; s < r->rank; s++) sum += 2 * log(r->inner[(ptrdiff_t)s * r->most + s]);
  return sum;
}

void HARK_ISA(hark_cpu_ridge_find_rank)(ridge_tiles *h) {
  const hark_attention_desc *desc = h->desc;
  ridge_rank *r = &h->low;
  double left = 0;
  r->rank = 0;
  if (!h->rbf || desc->causal || desc->has_log_kernel || h->visible < LEAST_KEYS || !carve_rank(h)) return;
  if (!read_keys(h) || !find_columns(h, r->alpha, &left)) {
    r->rank = 0;
    return;
  }
  for (int s = 0; s < r->rank; s++) fill_inner(r, s);
  factor_inner(r);
  double ratio = 1; /* the least square of the largest |V| over V' M^-1 V */
  for (int64_t c = 0; c < desc->value_dim; c++) {
    const double largest = solve_column(h, c);
    if (r->quadratic[c] * ratio > largest * largest) ratio = largest * largest / r->quadratic[c];
  }
  r->determinant = find_determinant(r);
  r->farthest = ERROR * ERROR / (4 * hark_larger(left, DBL_MIN / ERROR));
  r->out_farthest = r->farthest * ratio;
}

/* ---- queries ---- */

/* Element s of a solve with a triangle, whose row s is `row`, for RIDGE_RANK_LANES queries. x: that element of the right side; `to`
 * [rank][64]: has the elements before it, and receives it. */
HARK_SIMD void solve_lanes(const double *row, int s, double *to, vd *x) {
  const vd over = vd_set(1 / row[s]);
  ridge_rank_less(s, row, 1, to, HARK_RIDGE_TILE, x);
  HARK_UNROLL
  for (int v = 0; v < RIDGE_RANK_VECTORS; v++) {
    x[v] = x[v] * over;
    vd_store(to + s * HARK_RIDGE_TILE + v * HARK_WIDE_LANES, x[v]);
  }
}

/* w = L_P^-1 kappa(P, q) for RIDGE_RANK_LANES queries; left[lane]: kappa(q, q) - |w|^2. */
HARK_SIMD_NOINLINE void project(const ridge_tiles *h, const query_tile *t, int lane, double *left) {
  const ridge_rank *r = &h->low;
  const int64_t d = h->desc->head_dim;
  vd squares[RIDGE_RANK_VECTORS];
  HARK_UNROLL
  for (int v = 0; v < RIDGE_RANK_VECTORS; v++) squares[v] = vd_set(1);
  for (int s = 0; s < r->rank; s++) {
    vd x[RIDGE_RANK_VECTORS];
    ridge_rank_kernels(d, r->pivot_keys + s * d, 1, t->lanes + lane, HARK_RIDGE_TILE, x);
    solve_lanes(r->pivot_rows + (ptrdiff_t)s * r->most, s, t->w + lane, x);
    HARK_UNROLL
    for (int v = 0; v < RIDGE_RANK_VECTORS; v++) squares[v] = squares[v] - x[v] * x[v];
  }
  HARK_UNROLL
  for (int v = 0; v < RIDGE_RANK_VECTORS; v++) vd_store(left + lane + v * HARK_WIDE_LANES, vd_max(squares[v], vd_set(0)));
}

/* u = C^-1 w for RIDGE_RANK_LANES queries; adds |u|^2 to variance[lane]. */
HARK_SIMD_NOINLINE void add_explained(const ridge_tiles *h, const query_tile *t, int lane, double *variance) {
  const ridge_rank *r = &h->low;
  vd squares[RIDGE_RANK_VECTORS];
  HARK_UNROLL
  for (int v = 0; v < RIDGE_RANK_VECTORS; v++) squares[v] = vd_load(variance + lane + v * HARK_WIDE_LANES);
  for (int s = 0; s < r->rank; s++) {
    vd x[RIDGE_RANK_VECTORS];
    HARK_UNROLL
    for (int v = 0; v < RIDGE_RANK_VECTORS; v++) x[v] = vd_load(t->w + s * HARK_RIDGE_TILE + lane + v * HARK_WIDE_LANES);
    solve_lanes(r->inner + (ptrdiff_t)s * r->most, s, t->u + lane, x);
    HARK_UNROLL
    for (int v = 0; v < RIDGE_RANK_VECTORS; v++) squares[v] = vd_fma(x[v], x[v], squares[v]);
  }
  HARK_UNROLL
  for (int v = 0; v < RIDGE_RANK_VECTORS; v++) vd_store(variance + lane + v * HARK_WIDE_LANES, squares[v]);
}

/* y_c = w' beta_c for RIDGE_RANK_LANES queries. */
HARK_SIMD_NOINLINE void combine(const ridge_tiles *h, const query_tile *t, int lane, int64_t c, double *y) {
  const ridge_rank *r = &h->low;
  vd sums[RIDGE_RANK_VECTORS];
  HARK_UNROLL
  for (int v = 0; v < RIDGE_RANK_VECTORS; v++) sums[v] = vd_set(0);
  for (int s = 0; s < r->rank; s++) {
    const vd weight = vd_set(r->beta[c * r->most + s]);
    HARK_UNROLL
    for (int v = 0; v < RIDGE_RANK_VECTORS; v++)
      sums[v] = vd_fma(weight, vd_load(t->w + s * HARK_RIDGE_TILE + lane + v * HARK_WIDE_LANES), sums[v]);
  }
  HARK_UNROLL
  for (int v = 0; v < RIDGE_RANK_VECTORS; v++) vd_store(y + lane + v * HARK_WIDE_LANES, sums[v]);
}

/* delta of the query in lane `query`. */
HARK_SIMD_NOINLINE void find_delta(const ridge_tiles *h, const query_tile *t, int query) {
  const ridge_rank *r = &h->low;
  for (int64_t i = 0; i < r->rows; i += RIDGE_RANK_LANES) {
    vd x[RIDGE_RANK_VECTORS];
    ridge_rank_kernels(h->desc->head_dim, t->lanes + query, HARK_RIDGE_TILE, r->keys + i, r->rows, x);
    ridge_rank_less(r->rank, t->w + query, HARK_RIDGE_TILE, r->factor + i, r->rows, x);
    HARK_UNROLL
    for (int v = 0; v < RIDGE_RANK_VECTORS; v++) vd_store(t->delta + i + v * HARK_WIDE_LANES, x[v]);
  }
}

/* e - delta' D^-1 delta + |C^-1 (w - L' D^-1 delta)|^2; D^-1 delta takes the place of delta. */
static double far_variance(const ridge_rank *r, const query_tile *t, int query, double e) {
  double sum = e;
  for (int64_t i = 0; i < r->rows; i++) {
    const double delta = t->delta[i];
    t->delta[i] *= r->weights[i];
    sum -= delta * t->delta[i];
  }
  for (int s = 0; s < r->rank; s++) {
    const double *inner = r->inner + (ptrdiff_t)s * r->most;
    const double own = t->w[s * HARK_RIDGE_TILE + query] - ridge_rank_dot(r->factor + s * r->rows, t->delta, r->rows);
    t->products[s] = (own - ridge_rank_dot(inner, t->products, s)) / inner[s];
    sum += t->products[s] * t->products[s];
  }
  return hark_larger(sum, 0);
}

static bool read_queries(const ridge_tiles *h, int64_t row, int count, const query_tile *t) {
  memset(t->lanes, 0, (size_t)(h->desc->head_dim * HARK_RIDGE_TILE) * sizeof(double));
  for (int q = 0; q < count; q++) {
    const int64_t at = h->sequence->query_row + row + q;
    if (ridge_rank_row(h, ridge_row(&h->run->args->query, h->sequence, h->head, at), HARK_RIDGE_TILE, t->lanes + q)) continue;
    hark_ridge_trouble(h->record, h->system, HARK_RIDGE_BAD_QUERY, at, 0);
    return false;
  }
  return true;
}

/* w' beta of the query in lane `query`. */
static double combine_lane(const query_tile *t, int query, const double *beta, int rank) {
  double sum = 0;
  for (int s = 0; s < rank; s++) sum += t->w[s * HARK_RIDGE_TILE + query] * beta[s];
  return sum;
}

static float *out_of(const ridge_tiles *h, int64_t row) {
  return ridge_row(&h->run->args->out, h->sequence, h->head, h->sequence->query_row + row);
}

/* Results of queries [row, row + count); trouble is in the record. */
static void low_tile(const ridge_tiles *h, int64_t row, int count) {
  const ridge_rank *r = &h->low;
  const hark_tensor *to = &h->run->args->variance;
  const query_tile t = carve_queries(h);
  double left[HARK_RIDGE_TILE] = {0}, variance[HARK_RIDGE_TILE] = {0}, y[HARK_RIDGE_TILE];
  const bool varies = to->type != HARK_NONE;
  if (!read_queries(h, row, count, &t)) return;
  for (int lane = 0; lane < count; lane += RIDGE_RANK_LANES) project(h, &t, lane, left);
  memcpy(variance, left, sizeof variance);
  for (int lane = 0; lane < count && varies; lane += RIDGE_RANK_LANES) add_explained(h, &t, lane, variance);
  for (int64_t c = 0; c < h->desc->value_dim; c++) {
    for (int lane = 0; lane < count; lane += RIDGE_RANK_LANES) combine(h, &t, lane, c, y);
    for (int q = 0; q < count; q++) out_of(h, row + q)[c] = (float)y[q];
  }
  for (int q = 0; q < count; q++) {
    if (left[q] > r->out_farthest) {
      find_delta(h, &t, q);
      for (int64_t c = 0; c < h->desc->value_dim; c++) {
        const double near = combine_lane(&t, q, r->beta + c * r->most, r->rank);
        out_of(h, row + q)[c] = (float)(near + ridge_rank_dot(t.delta, r->alpha + c * r->rows, r->rows));
      }
      if (varies && left[q] > r->farthest) variance[q] = far_variance(r, &t, q, left[q]);
    }
    if (hark_rows_finite(out_of(h, row + q), 0, 1, (int)h->desc->value_dim)) continue;
    hark_ridge_trouble(h->record, h->system, HARK_RIDGE_BAD_RESULT, h->sequence->query_row + row + q, 0);
    return;
  }
  for (int q = 0; q < count && varies; q++) ridge_statistic(h, to, row)[q] = (float)variance[q];
}

static void low_part(void *data, int64_t index, int worker) {
  const ridge_tiles *owner = data;
  const int64_t row = index * HARK_RIDGE_TILE;
  ridge_tiles h;
  if (hark_cancel_now(owner->memory->context)) return;
  HARK_ISA(hark_cpu_ridge_join)(owner, worker, &h);
  low_tile(&h, row, (int)hark_min(HARK_RIDGE_TILE, h.sequence->query_count - row));
}

void HARK_ISA(hark_cpu_ridge_low_forward)(ridge_tiles *h) {
  if (h->run->args->log_determinant.type != HARK_NONE) ridge_store_determinant(h, h->low.determinant);
  ridge_store_quadratics(h, h->low.quadratic);
  ridge_run(h, hark_ceil_div(h->sequence->query_count, HARK_RIDGE_TILE), low_part, h);
}
