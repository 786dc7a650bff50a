/* kernel_ridge_rank_backward.c - gradients of full kernel ridge attention without a factor (kernel_ridge_rank.c), in f64.
 *
 *     M^-1 = D^-1 - G' G,  G = C^-1 L' D^-1
 *     a_n = M^-1 kappa(K, q_n),  dalpha = kappa(K, Q) dY,  F = M^-1 dalpha + alpha diag(e),  dV = F + alpha diag(e)
 *     dkappa(k_i, q_n) = alpha_i dY_n' - 2 g_n a_in
 *     dM = sum of g_n a_n a_n' - (F alpha' + alpha F') / 2 + b M^-1
 *
 * with g_n = dvariance, b the sum of dlog_determinant, e the sums of dquadratic. ds = dkappa kappa for a query and a key, and 2 dM kappa
 * for two keys. Gradients of rows are sums of ds times differences of rows, those of sigma sums of ds times squared distances. Nothing of
 * n x n numbers is stored: only those of four rows and all keys. dM is a sum of products of rows: `rank` rows of G, one row for each query
 * with dvariance (if there are many, a part of them at a time), and two for each feature of the values. Cost in multiply-adds: n^2 times
 * their number, and n^2 3 d; n (6 rank + 4 d) for a query. Source: docs/mathematics/kernel-ridge.md.
 */
#include "core/cancel.h"
#include "kernel_ridge_rank.h"

#define ROWS 4    /* at a time */
#define VECTORS 2 /* of lanes in registers, for ROWS rows */
#define MOST_FEATURES 56
#define MOST_VALUES 20 /* without `pair`: features and values together */

typedef struct gradients {
  ridge_tiles *h;
  double *ds;     /* [ROWS][rows]: kernels of rows, then ds */
  double *matrix; /* [ROWS][rows]: rows of dM */
  double *dalpha; /* [dv][rows]; F at the end */
  double *dkeys;  /* [d][rows]: sums of ds times differences over sigma sqrt 2 */
  double *t;      /* [rank] */
  double *outer;  /* a of queries, [most][rows] */
  double *gains;  /* dvariance of these queries */
  int64_t most, count;
  double *x, *dx;  /* [ROWS][d]: a block's rows, and sums for their gradients */
  double b, along; /* along: sum of ds times |x - y|^2 / (2 sigma^2), over pairs */
} gradients;

bool HARK_ISA(hark_cpu_ridge_low_fits)(const ridge_tiles *h) {
  const int64_t d = h->desc->head_dim, dv = h->desc->value_dim;
  if (h->desc->causal) return false;
  if (h->pair == NULL) return d + dv <= MOST_VALUES;
  return d <= MOST_FEATURES && dv <= MOST_VALUES && (h->run->args->dvariance.type == HARK_NONE || h->sequence->query_count <= h->visible);
}

static void begin(ridge_tiles *h, gradients *g) {
  const ridge_rank *r = &h->low;
  const hark_tensor *given = &h->run->args->dlog_determinant;
  const int64_t d = h->desc->head_dim, dv = h->desc->value_dim;
  double *memory = (double *)(void *)h->kernels;
  *g = (gradients){.h = h, .most = h->matrix != NULL ? (h->tiles + 1) * HARK_RIDGE_TILE / 4 : 0};
  g->ds = ridge_rank_carve(&memory, ROWS * r->rows);
  g->matrix = ridge_rank_carve(&memory, ROWS * r->rows);
  g->dalpha = ridge_rank_carve(&memory, dv * r->rows);
  if (h->pair != NULL) memory = (double *)(void *)h->pair;
  g->dkeys = ridge_rank_carve(&memory, d * r->rows);
  g->t = ridge_rank_carve(&memory, r->rank);
  g->gains = ridge_rank_carve(&memory, g->most);
  g->x = ridge_rank_carve(&memory, ROWS * d);
  g->dx = ridge_rank_carve(&memory, ROWS * d);
  g->outer = (double *)(void *)h->matrix;
  memset(g->dalpha, 0, (size_t)(dv * r->rows) * sizeof(double));
  memset(g->dkeys, 0, (size_t)(d * r->rows) * sizeof(double));
  memset(r->left, 0, (size_t)r->rows * sizeof(double)); /* from here on the diagonal of dM */
  for (int64_t row = 0; row < h->sequence->query_count && given->type != HARK_NONE; row++)
    g->b += (double)ridge_statistic(h, given, 0)[row];
}

/* The kernels of the ROWS rows in g->x and all keys. */
HARK_SIMD_NOINLINE void fill_kernels(const gradients *g) {
  const ridge_rank *r = &g->h->low;
  const int64_t d = g->h->desc->head_dim;
  for (int64_t j = 0; j < r->rows; j += RIDGE_RANK_LANES)
    for (int row = 0; row < ROWS; row++) {
      vd x[RIDGE_RANK_VECTORS];
      ridge_rank_kernels(d, g->x + row * d, 1, r->keys + j, r->rows, x);
      HARK_UNROLL
      for (int v = 0; v < RIDGE_RANK_VECTORS; v++) vd_store(g->ds + row * r->rows + j + v * HARK_WIDE_LANES, x[v]);
    }
}

/* From ds of ROWS rows and all keys: g->dx, the sums of ds times the differences of keys and rows, and the part of g->along times `part`.
 * `keys`: adds the opposite to the gradients of the keys. */
HARK_SIMD_NOINLINE void give_rows(gradients *g, const bool keys, double part) {
  const ridge_rank *r = &g->h->low;
  const int64_t d = g->h->desc->head_dim;
  vd along = vd_set(0);
  for (int64_t c = 0; c < d; c++) {
    vd sums[ROWS], x[ROWS];
    HARK_UNROLL
    for (int row = 0; row < ROWS; row++) {
      sums[row] = vd_set(0);
      x[row] = vd_set(g->x[row * d + c]);
    }
    HARK_ROLLED
    for (int64_t j = 0; j < r->rows; j += HARK_WIDE_LANES) {
      const vd key = vd_load(r->keys + c * r->rows + j);
      vd all = vd_set(0);
      HARK_UNROLL
      for (int row = 0; row < ROWS; row++) {
        const vd difference = key - x[row], ds = vd_load(g->ds + row * r->rows + j) * difference;
        sums[row] = sums[row] + ds;
        along = vd_fma(ds, difference, along);
        all = all + ds;
      }
      if (keys) vd_store(g->dkeys + c * r->rows + j, vd_load(g->dkeys + c * r->rows + j) - all);
    }
    HARK_UNROLL
    for (int row = 0; row < ROWS; row++) g->dx[row * d + c] = vd_sum(sums[row]);
  }
  g->along += part * vd_sum(along);
}

/* ---- queries ---- */

/* dalpha += kappa(K, Q) dY of ROWS queries, whose dY begin at `dout`; then ds in place of the kernels. outer: a of the first of them, whose
 * gains are `gains`; or NULL. */
HARK_SIMD_NOINLINE void weigh_queries(const gradients *g, const float *dout, const double *outer, const double *gains) {
  const ridge_rank *r = &g->h->low;
  const int64_t dv = g->h->desc->value_dim, dout_row = g->h->dvp;
  for (int64_t j = 0; j < r->rows; j += HARK_WIDE_LANES) {
    vd kernel[ROWS], dkernel[ROWS];
    HARK_UNROLL
    for (int row = 0; row < ROWS; row++) {
      kernel[row] = vd_load(g->ds + row * r->rows + j);
      dkernel[row] = vd_set(0);
    }
    for (int64_t c = 0; c < dv; c++) {
      const vd alpha = vd_load(r->alpha + c * r->rows + j);
      vd dalpha = vd_load(g->dalpha + c * r->rows + j);
      HARK_UNROLL
      for (int row = 0; row < ROWS; row++) {
        const vd dy = vd_set((double)dout[row * dout_row + c]);
        dalpha = vd_fma(kernel[row], dy, dalpha);
        dkernel[row] = vd_fma(alpha, dy, dkernel[row]);
      }
      vd_store(g->dalpha + c * r->rows + j, dalpha);
    }
    if (outer != NULL) {
      HARK_UNROLL
      for (int row = 0; row < ROWS; row++) dkernel[row] = vd_fma(vd_set(-2 * gains[row]), vd_load(outer + row * r->rows + j), dkernel[row]);
    }
    HARK_UNROLL
    for (int row = 0; row < ROWS; row++) vd_store(g->ds + row * r->rows + j, kernel[row] * dkernel[row]);
  }
}

static void give_matrix(gradients *g, bool last);

/* Gradients of queries [row, row + count), which have been read, and contributions to the others. */
static void give_queries(gradients *g, int64_t row, int count) {
  const ridge_tiles *h = g->h;
  const ridge_rank *r = &h->low;
  const hark_tensor *dvariance = &h->run->args->dvariance;
  const int64_t d = h->desc->head_dim;
  const double gain = sqrt(h->is.scale / 2);
  for (int first = 0; first < count; first += ROWS) {
    const int rows = (int)hark_min(ROWS, count - first);
    double *outer = NULL, *gains = NULL;
    if (dvariance->type != HARK_NONE && g->count == g->most) give_matrix(g, false);
    memset(g->x, 0, (size_t)(ROWS * d) * sizeof(double));
    for (int q = 0; q < rows; q++)
      (void)ridge_rank_row(h, ridge_row(&h->run->args->query, h->sequence, h->head, h->sequence->query_row + row + first + q), 1,
                           g->x + q * d);
    fill_kernels(g);
    if (dvariance->type != HARK_NONE) {
      outer = g->outer + g->count * r->rows;
      gains = g->gains + g->count;
      memcpy(outer, g->ds, (size_t)(ROWS * r->rows) * sizeof(double));
      for (int q = 0; q < ROWS; q++) {
        gains[q] = q < rows ? (double)ridge_statistic(h, dvariance, row + first)[q] : 0;
        HARK_ISA(hark_cpu_ridge_rank_solve)(r, outer + q * r->rows, g->t);
      }
      g->count += ROWS;
    }
    weigh_queries(g, h->dout_rows + (ptrdiff_t)first * h->dvp, outer, gains);
    give_rows(g, true, 1);
    for (int q = 0; q < rows; q++)
      for (int64_t c = 0; c < d; c++) h->dquery[(first + q) * h->dp + c] = (float)(g->dx[q * d + c] / gain);
  }
}

/* ---- dM ---- */

/* A part of dM: `gain` times the sum of left[s]' right[s], with another factor gains[s] unless that is NULL. */
typedef struct outer_rows {
  const double *left, *right, *gains;
  double gain;
  int64_t count;
} outer_rows;

/* x [ROWS][rows] += ROWS rows of it, from key i on. */
HARK_SIMD_NOINLINE void add_products(const ridge_rank *r, const outer_rows *of, int64_t i, double *x) {
  for (int64_t j = 0; j < r->rows; j += VECTORS * HARK_WIDE_LANES) {
    vd sums[ROWS][VECTORS];
    HARK_UNROLL
    for (int row = 0; row < ROWS; row++) {
      HARK_UNROLL
      for (int v = 0; v < VECTORS; v++) sums[row][v] = vd_load(x + row * r->rows + j + v * HARK_WIDE_LANES);
    }
    HARK_ROLLED
    for (int64_t s = 0; s < of->count; s++) {
      const double *left = of->left + s * r->rows + i, *right = of->right + s * r->rows + j;
      const double gain = of->gains != NULL ? of->gain * of->gains[s] : of->gain;
      vd other[VECTORS];
      HARK_UNROLL
      for (int v = 0; v < VECTORS; v++) other[v] = vd_load(right + v * HARK_WIDE_LANES);
      HARK_UNROLL
      for (int row = 0; row < ROWS; row++) {
        const vd own = vd_set(gain * left[row]);
        HARK_UNROLL
        for (int v = 0; v < VECTORS; v++) sums[row][v] = vd_fma(own, other[v], sums[row][v]);
      }
    }
    HARK_UNROLL
    for (int row = 0; row < ROWS; row++) {
      HARK_UNROLL
      for (int v = 0; v < VECTORS; v++) vd_store(x + row * r->rows + j + v * HARK_WIDE_LANES, sums[row][v]);
    }
  }
}

/* ds = 2 dM kappa of the ROWS keys in g->x. */
HARK_SIMD_NOINLINE void weigh_keys(const gradients *g) {
  const int64_t count = ROWS * g->h->low.rows;
  for (int64_t j = 0; j < count; j += HARK_WIDE_LANES) vd_store(g->ds + j, vd_set(2) * vd_load(g->ds + j) * vd_load(g->matrix + j));
}

/* G in place of L'. */
HARK_SIMD_NOINLINE void find_root(const ridge_rank *r) {
  for (int s = 0; s < r->rank; s++) {
    double *to = r->factor + s * r->rows;
    const double *row = r->inner + (ptrdiff_t)s * r->most;
    const vd over = vd_set(1 / row[s]);
    for (int64_t j = 0; j < r->rows; j += RIDGE_RANK_LANES) {
      vd x[RIDGE_RANK_VECTORS];
      HARK_UNROLL
      for (int v = 0; v < RIDGE_RANK_VECTORS; v++)
        x[v] = vd_load(to + j + v * HARK_WIDE_LANES) * vd_load(r->weights + j + v * HARK_WIDE_LANES);
      ridge_rank_less(s, row, 1, r->factor + j, r->rows, x);
      HARK_UNROLL
      for (int v = 0; v < RIDGE_RANK_VECTORS; v++) vd_store(to + j + v * HARK_WIDE_LANES, x[v] * over);
    }
  }
}

/* The gradients of keys and of the diagonal from the queries in g->outer, which are then dropped; the last time, also from all else. */
static void give_matrix(gradients *g, bool last) {
  const ridge_tiles *h = g->h;
  const ridge_rank *r = &h->low;
  const int64_t d = h->desc->head_dim, dv = h->desc->value_dim;
  outer_rows parts[4] = {{g->outer, g->outer, g->gains, 1, g->count}};
  int count = 1;
  if (last) {
    parts[count++] = (outer_rows){g->dalpha, r->alpha, NULL, -0.5, dv};
    parts[count++] = (outer_rows){r->alpha, g->dalpha, NULL, -0.5, dv};
    if (g->b != 0) {
      find_root(r);
      parts[count++] = (outer_rows){r->factor, r->factor, NULL, -g->b, r->rank};
    }
  }
  double *const matrix = g->matrix;
  for (int64_t i = 0; i < r->rows && !hark_cancel_now(h->memory->context); i += ROWS) {
    for (int row = 0; row < ROWS; row++)
      for (int64_t c = 0; c < d; c++) g->x[row * d + c] = r->keys[c * r->rows + i + row];
    memset(matrix, 0, (size_t)(ROWS * r->rows) * sizeof(double));
    for (int p = 0; p < count; p++) add_products(r, &parts[p], i, matrix);
    for (int row = 0; row < ROWS; row++) r->left[i + row] += matrix[row * r->rows + i + row] + (last ? g->b * r->weights[i + row] : 0);
    fill_kernels(g);
    weigh_keys(g);
    give_rows(g, false, 0.5);
    for (int row = 0; row < ROWS; row++)
      for (int64_t c = 0; c < d; c++) g->dkeys[c * r->rows + i + row] += g->dx[row * d + c];
  }
  g->count = 0;
}

/* ---- a head ---- */

/* F in place of dalpha, and dV. */
static void solve_values(const gradients *g) {
  const ridge_tiles *h = g->h;
  const ridge_rank *r = &h->low;
  const hark_tensor *given = &h->run->args->dquadratic;
  for (int64_t c = 0; c < h->desc->value_dim; c++) {
    double *f = g->dalpha + c * r->rows, e = 0;
    const double *alpha = r->alpha + c * r->rows;
    for (int64_t row = 0; row < h->sequence->query_count && given->type != HARK_NONE; row++)
      e += (double)ridge_row(given, h->sequence, h->head, h->sequence->query_row + row)[c];
    HARK_ISA(hark_cpu_ridge_rank_solve)(r, f, g->t);
    for (int64_t i = 0; i < r->rows; i++) {
      f[i] += e * alpha[i];
      h->dvalues[i * h->dvp + c] = (float)(f[i] + e * alpha[i]);
    }
  }
}

void HARK_ISA(hark_cpu_ridge_low_backward)(ridge_tiles *h, bool first, double *partial) {
  const ridge_rank *r = &h->low;
  const int64_t d = h->desc->head_dim;
  const double gain = sqrt(h->is.scale / 2);
  double trace = 0;
  gradients g;
  begin(h, &g);
  for (int64_t row = 0; row < h->sequence->query_count && !hark_cancel_now(h->memory->context); row += HARK_RIDGE_TILE) {
    const int count = (int)hark_min(HARK_RIDGE_TILE, h->sequence->query_count - row);
    if (!HARK_ISA(hark_cpu_ridge_take_queries)(h, row, count)) return;
    give_queries(&g, row, count);
    (void)HARK_ISA(hark_cpu_ridge_store_queries)(h, row, count);
  }
  solve_values(&g);
  give_matrix(&g, true);
  for (int64_t i = 0; i < h->keys; i++) {
    if (h->seen[i] == 0) continue;
    for (int64_t c = 0; c < d; c++) h->dkeys[i * h->dp + c] = (float)(g.dkeys[c * r->rows + i] / gain);
    trace += r->left[i];
    hark_ridge_give_noise(h->run->args, h->sequence, h->head, i, &h->is, r->left[i]);
  }
  memset(h->key_sums, 0, (size_t)r->rows * sizeof *h->key_sums);
  memset(h->apart_dkeys, 0, (size_t)(r->rows * h->dp) * sizeof *h->apart_dkeys);
  partial[0] += trace * hark_ridge_slope(h->desc, h->visible);
  partial[1] += 2 * g.along / h->is.sigma;
  (void)HARK_ISA(hark_cpu_ridge_store_keys)(h, first);
}
