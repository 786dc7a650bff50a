/* kernel_ridge_decode.c - kernel ridge (CME) attention of new rows after a cache, in f32: the record's formulas
 * (ops/kernel_ridge_decode.c).
 *
 *     few rows    one after another: kernels, then both forward substitutions in one pass over R, limited by memory; then U
 *     many        32 at a time: X = R^-1 [kappa(K, K_new), kappa(K, Q_new)], 64 columns, by products of bands of R with the rows of X above
 *                 A new row of R is a column of X: for new rows the pass uses columns of X instead of rows of R
 *
 * Differences of rbf are computed feature by feature, so keys may have any mean; where their squares do not fit into f32, in float64.
 * Legend: n previous tokens, m with the new ones.
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "backend/cpu/isa/elements.h"
#include "backend/kernel_ridge_decode.h"
#include "core/floating_point.h"
#include "kernel_ridge_products.h"

#define COLUMNS (2 * HARK_RIDGE_DECODE_BLOCK) /* of X: new keys, then new queries */
#define SERIAL_PRODUCTS 262144                /* multiply-adds below which a second thread costs more than it saves */

_Static_assert(COLUMNS == HARK_TILE_QUERIES, "transposed rows have a column a lane");

static const float *rows_of(const hark_ridge_decode *d, int input) { return (const float *)d->call->inputs[input].data; }
static float *cached_key(const hark_ridge_decode *d) {
  return (float *)d->call->inputs[HARK_RIDGE_DECODE_CACHED_KEY].data + d->key_head * d->head_dim;
}
static float *solved_of(const hark_ridge_decode *d) {
  return (float *)d->call->inputs[HARK_RIDGE_DECODE_SOLVED].data + d->head * d->value_width;
}
static float *factor_row(const hark_ridge_decode *d, int64_t i) {
  return (float *)d->call->inputs[HARK_RIDGE_DECODE_FACTOR].data + hark_ridge_decode_row(d->is->heads, d->head, i);
}
static const float *log_kernel(const hark_ridge_decode *d) {
  return d->positional ? rows_of(d, HARK_RIDGE_DECODE_LOG_KERNEL) + d->table_row : NULL;
}

/* Copies a row, scaled to unit length if requested; false if a number is not finite, or its square too large for products. */
static bool take_row(const hark_ridge_decode *d, const float *from, float *to) {
  double squares = 0;
  for (int64_t c = 0; c < d->head_dim; c++) squares += (double)from[c] * from[c];
  if (!(squares <= (d->rbf || d->is->unit ? DBL_MAX : (double)FLT_MAX))) return false; /* in float64 squares of finite numbers are finite */
  const double length = d->is->unit && squares > 0 ? sqrt(squares) : 1;
  const float gain = (float)(1 / length);
  const bool in_range = gain >= FLT_MIN && gain <= FLT_MAX; /* false for lengths near the limits of f32 */
  for (int64_t c = 0; c < d->head_dim; c++) to[c] = in_range ? gain * from[c] : (float)((double)from[c] / length);
  return true;
}

static bool take_query(const hark_ridge_decode *d, int64_t row, float *to) {
  if (take_row(d, rows_of(d, HARK_RIDGE_DECODE_QUERY) + (row * d->is->heads + d->head) * d->head_dim, to)) return true;
  hark_ridge_trouble(d->record, d->head, HARK_RIDGE_BAD_QUERY, d->is->first_position + row, 0);
  return false;
}

static bool trouble(const hark_ridge_decode *d, hark_ridge_kind kind, int64_t row, double value) {
  hark_ridge_trouble(d->record, d->head, kind, row, value);
  return false;
}

/* ---- one row ---- */

/* x and y with row i of `rows`: their products, or their distances squared. */
HARK_SIMD void meet(const bool squared, const float *row, const float *x, const float *y, int width, float *to_x, float *to_y) {
  vf sum_x = vf_zero(), sum_y = vf_zero();
  for (int c = 0; c < width; c += HARK_LANES) {
    const int lanes = width - c < HARK_LANES ? width - c : HARK_LANES;
    const vf k = load_lanes(row + c, lanes), a = load_lanes(x + c, lanes), b = load_lanes(y + c, lanes);
    sum_x = squared ? vf_fma(k - a, k - a, sum_x) : vf_fma(k, a, sum_x);
    sum_y = squared ? vf_fma(k - b, k - b, sum_y) : vf_fma(k, b, sum_y);
  }
  *to_x = vf_sum(sum_x);
  *to_y = vf_sum(sum_y);
}

/* The exponent without log G of key i and a row x, whose features are `step` apart. */
static float far_exponent(const hark_ridge_decode *d, int64_t i, const float *x, int64_t step) {
  const float *key = cached_key(d) + i * d->key_step;
  double square = 0;
  for (int64_t c = 0; c < d->head_dim; c++) {
    const double apart = (double)key[c] - (double)x[c * step];
    square += apart * apart;
  }
  return (float)fmax(-d->parameters.scale / 2 * square, (double)-FLT_MAX);
}

static bool is_far(const hark_ridge_decode *d, vf squares) { return d->rbf && vm_any(vf_less(vf_set(FLT_MAX), squares)); }

/* x <- exp of the exponents from the products or squares in x, of `row`, at distances n - i; returns the largest exponent. */
static float exponentiate_row(const hark_ridge_decode *d, int64_t n, const float *row, float *x) {
  const vf gain = vf_set((float)(d->rbf ? -d->parameters.scale / 2 : d->parameters.scale)), shift = vf_set((float)d->parameters.shift);
  const float *table = log_kernel(d);
  float largest = -INFINITY, part[HARK_LANES];
  for (int64_t i = 0; i <= n; i += HARK_LANES) {
    const int lanes = (int)hark_min(HARK_LANES, n + 1 - i);
    const vf met = load_lanes(x + i, lanes);
    vf s = met * gain - shift;
    if (is_far(d, met)) {
      store_lanes(part, s, lanes);
      for (int l = 0; l < lanes; l++)
        if (x[i + l] > FLT_MAX) part[l] = far_exponent(d, i + l, row, 1);
      s = load_lanes(part, lanes);
    }
    if (table != NULL) {
      for (int l = 0; l < lanes; l++) part[l] = table[n - i - l];
      s = s + load_lanes(part, lanes);
    }
    store_lanes(part, s, lanes);
    for (int l = 0; l < lanes; l++) largest = part[l] > largest ? part[l] : largest;
    store_lanes(x + i, vf_exp(vf_min(s, vf_set(88))), lanes);
  }
  return largest;
}

/* Products of four rows of R, `step` apart, with r and z over `width` numbers. */
HARK_SIMD void four_rows(const float *rows, int64_t step, const float *r, const float *z, int64_t width, float sums[2][4]) {
  vf of_r[4], of_z[4];
  HARK_UNROLL
  for (int i = 0; i < 4; i++) of_r[i] = of_z[i] = vf_zero();
  for (int64_t k = 0; k < width; k += HARK_LANES) {
    const vf a = vf_load(r + k), b = vf_load(z + k);
    HARK_UNROLL
    for (int i = 0; i < 4; i++) {
      const vf row = vf_load(rows + i * step + k);
      of_r[i] = vf_fma(row, a, of_r[i]);
      of_z[i] = vf_fma(row, b, of_z[i]);
    }
  }
  HARK_UNROLL
  for (int i = 0; i < 4; i++) {
    sums[0][i] = vf_sum(of_r[i]);
    sums[1][i] = vf_sum(of_z[i]);
  }
}

/* r, z <- R^-1 r, R^-1 z over n rows. A band always has memory for sixteen rows; rows that do not exist yet may hold anything. */
HARK_SIMD_NOINLINE void solve_two(const hark_ridge_decode *d, int64_t n, float *r, float *z) {
  for (int64_t first = 0; first < n; first += HARK_RIDGE_BAND) {
    const float *band = factor_row(d, first);
    const int64_t step = hark_ridge_decode_step(first), count = hark_min(HARK_RIDGE_BAND, n - first);
    for (int64_t g = 0; g < count; g += 4) {
      float sums[2][4];
      four_rows(band + g * step, step, r, z, first, sums);
      for (int64_t i = g; i < hark_min(g + 4, count); i++) {
        const float *row = band + i * step + first;
        float a = r[first + i] - sums[0][i - g], b = z[first + i] - sums[1][i - g];
        for (int64_t k = 0; k < i; k++) {
          a -= row[k] * r[first + k];
          b -= row[k] * z[first + k];
        }
        r[first + i] = a / row[i];
        z[first + i] = b / row[i];
      }
    }
  }
}

HARK_SIMD_NOINLINE void two_products(const float *r, const float *z, int64_t n, float *rr, float *rz) {
  vf squares = vf_zero(), products = vf_zero();
  for (int64_t i = 0; i < n; i += HARK_LANES) {
    const int lanes = (int)hark_min(HARK_LANES, n - i);
    const vf a = load_lanes(r + i, lanes);
    squares = vf_fma(a, a, squares);
    products = vf_fma(a, load_lanes(z + i, lanes), products);
  }
  *rr = vf_sum(squares);
  *rz = vf_sum(products);
}

/* u -= U^T r and y += U^T z over n rows of U, whole vectors: `width` is a multiple of HARK_RIDGE_BAND. */
HARK_SIMD_NOINLINE void mix_values(const float *solved, int64_t step, int64_t n, const float *r, const float *z, int64_t width, float *u,
                                   float *y) {
  for (int64_t c = 0; c < width; c += HARK_LANES) {
    vf of_u = vf_load(u + c), of_y = vf_load(y + c);
    const float *row = solved + c;
    for (int64_t i = 0; i < n; i++, row += step) {
      const vf x = vf_load(row);
      of_u = vf_fma(vf_set(-r[i]), x, of_u);
      of_y = vf_fma(vf_set(z[i]), x, of_y);
    }
    vf_store(u + c, of_u);
    vf_store(y + c, of_y);
  }
}

static bool store_result(const hark_ridge_decode *d, int64_t row, const float *y) {
  float *out = (float *)d->call->outputs[0].data + (row * d->is->heads + d->head) * d->value_dim;
  for (int64_t c = 0; c < d->value_dim; c++)
    if (!isfinite(y[c])) return trouble(d, HARK_RIDGE_BAD_RESULT, d->is->first_position + row, 0);
  memcpy(out, y, (size_t)d->value_dim * sizeof *out);
  return true;
}

static void take_value(const hark_ridge_decode *d, int64_t row, float *to) {
  memcpy(to, rows_of(d, HARK_RIDGE_DECODE_VALUE) + row * d->value_step + d->key_head * d->value_dim, (size_t)d->value_dim * sizeof *to);
  memset(to + d->value_dim, 0, (size_t)(d->value_width - d->value_dim) * sizeof *to);
}

static int64_t whole(int64_t count) { return hark_ceil_div(count, HARK_RIDGE_BAND) * HARK_RIDGE_BAND; }

static bool one_row(const hark_ridge_decode *d, int64_t row) {
  const int64_t n = d->is->first_position + row, tokens = whole(d->capacity + 1);
  float *const r = d->memory, *const z = r + tokens, *const query = z + tokens, *const y = query + whole(d->head_dim);
  const float *keys = cached_key(d), *key = keys + n * d->key_step;
  const double limit = hark_ridge_exponent_limit(HARK_F32);
  if (!take_query(d, row, query)) return false;
  for (int64_t i = 0; i <= n; i++) {
    if (d->rbf)
      meet(true, keys + i * d->key_step, key, query, (int)d->head_dim, &r[i], &z[i]);
    else
      meet(false, keys + i * d->key_step, key, query, (int)d->head_dim, &r[i], &z[i]);
  }
  const float of_keys = exponentiate_row(d, n, key, r), of_query = exponentiate_row(d, n, query, z);
  if (of_keys > limit) return trouble(d, HARK_RIDGE_KEY_RANGE, n, (double)of_keys);
  if (of_query > limit) return trouble(d, HARK_RIDGE_QUERY_RANGE, n, (double)of_query);
  solve_two(d, n, r, z);
  float rr, rz;
  two_products(r, z, n, &rr, &rz);
  double added;
  if (!hark_ridge_decode_added(d, row, &added)) return false;
  const double diagonal = (double)r[n] + added;
  const double pivot = hark_ridge_pivot(d->record, d->head, n, diagonal - (double)rr, diagonal, added, HARK_RIDGE_PIVOT_F32);
  if (d->record->kind != HARK_RIDGE_FINE) return false;
  float *to = factor_row(d, n), *u = solved_of(d) + n * d->solved_step;
  r[n] = (float)sqrt(pivot);
  z[n] = (z[n] - rz) / r[n];
  memcpy(to, r, (size_t)(n + 1) * sizeof *to);
  memset(to + n + 1, 0, (size_t)(hark_ridge_decode_step(n) - n - 1) * sizeof *to);
  take_value(d, row, u);
  memset(y, 0, (size_t)d->value_width * sizeof *y);
  mix_values(solved_of(d), d->solved_step, n, r, z, d->value_width, u, y);
  for (int64_t c = 0; c < d->value_width; c++) u[c] = c < d->value_dim ? u[c] / r[n] : 0;
  for (int64_t c = 0; c < d->value_dim; c++) y[c] += z[n] * u[c];
  return store_result(d, row, y);
}

/* ---- many rows ---- */

/* A block of new rows, and its parts in the head's memory. */
typedef struct block {
  int64_t row, n, count; /* first row of the call, its position, number of rows */
  float *x;              /* [m][COLUMNS] */
  float *lanes;          /* [d][COLUMNS]: the new keys and queries, transposed */
  float *rows;           /* [COLUMNS / 2][d]: queries; later results [][value_width] */
  float *table;          /* log G with zeros after */
} block;

static block open_block(const hark_ridge_decode *d, int64_t row) {
  block b = {.row = row, .n = d->is->first_position + row, .count = hark_min(HARK_RIDGE_DECODE_BLOCK, d->rows - row)};
  b.x = d->memory;
  b.table = b.x + whole(d->capacity + 1) * COLUMNS;
  b.lanes = b.table + whole(d->capacity + COLUMNS / 2);
  b.rows = b.lanes + d->head_dim * COLUMNS;
  return b;
}

static bool take_block(const hark_ridge_decode *d, const block *b) {
  const int64_t dim = d->head_dim, left = d->is->first_position + d->rows;
  for (int64_t r = 0; r < b->count; r++)
    if (!take_query(d, b->row + r, b->rows + r * dim)) return false;
  memset(b->lanes, 0, (size_t)(dim * COLUMNS) * sizeof *b->lanes);
  hark_pack_transposed(cached_key(d) + b->n * d->key_step, d->key_step, (int)b->count, (int)dim, 1.0f, b->lanes);
  hark_pack_transposed(b->rows, dim, (int)b->count, (int)dim, 1.0f, b->lanes + COLUMNS / 2);
  if (!d->positional) return true;
  memcpy(b->table, log_kernel(d), (size_t)left * sizeof *b->table);
  memset(b->table + left, 0, (COLUMNS / 2) * sizeof *b->table);
  return true;
}

/* X <- |k_i - lane|^2. */
HARK_SIMD_NOINLINE void squares_of(const hark_ridge_decode *d, const block *b) {
  const float *keys = cached_key(d);
  for (int64_t i = 0; i < b->n + b->count; i++)
    for (int lane = 0; lane < COLUMNS; lane += 2 * HARK_LANES) { /* two independent sums */
      vf sum = vf_zero(), other = vf_zero();
      const float *at = b->lanes + lane, *key = keys + i * d->key_step;
      for (int64_t c = 0; c < d->head_dim; c++, at += COLUMNS) {
        const vf k = vf_set(key[c]), x = k - vf_load(at), y = k - vf_load(at + HARK_LANES);
        sum = vf_fma(x, x, sum);
        other = vf_fma(y, y, other);
      }
      vf_store(b->x + i * COLUMNS + lane, sum);
      vf_store(b->x + i * COLUMNS + lane + HARK_LANES, other);
    }
}

/* Finds the first exponent of row i beyond the limit among the lanes that see it. */
static bool find_range(const hark_ridge_decode *d, const block *b, int64_t i, const float *exponents) {
  for (int64_t lane = 0; lane < COLUMNS; lane++) {
    const int64_t r = lane % (COLUMNS / 2), n = b->n + r;
    if (r >= b->count || n < i || !((double)exponents[lane] > hark_ridge_exponent_limit(HARK_F32))) continue;
    return trouble(d, lane < COLUMNS / 2 ? HARK_RIDGE_KEY_RANGE : HARK_RIDGE_QUERY_RANGE, n, (double)exponents[lane]);
  }
  return true;
}

/* X <- kappa of keys i < m with the new keys and queries, zero for keys after them. */
static bool fill_block(const hark_ridge_decode *d, const block *b) {
  const int64_t m = b->n + b->count;
  const vf gain = vf_set((float)(d->rbf ? -d->parameters.scale / 2 : d->parameters.scale)), shift = vf_set((float)d->parameters.shift);
  if (d->rbf) {
    squares_of(d, b);
  } else {
    const hark_ridge_product p = {.a = b->lanes,
                                  .a_row = COLUMNS,
                                  .b = cached_key(d),
                                  .b_row = d->key_step,
                                  .b_step = 1,
                                  .c = b->x,
                                  .c_row = COLUMNS,
                                  .rows = (int)m,
                                  .depth = (int)d->head_dim,
                                  .width = COLUMNS};
    hark_ridge_store(&p);
  }
  for (int64_t i = 0; i < m; i++) {
    float *x = b->x + i * COLUMNS, exponents[COLUMNS];
    vf largest = vf_set(-INFINITY);
    for (int lane = 0; lane < COLUMNS; lane += HARK_LANES) {
      const vf met = vf_load(x + lane);
      vf s = met * gain - shift;
      if (is_far(d, met)) {
        vf_store(exponents + lane, s);
        for (int l = lane; l < lane + HARK_LANES; l++)
          if (x[l] > FLT_MAX) exponents[l] = far_exponent(d, i, b->lanes + l, COLUMNS);
        s = vf_load(exponents + lane);
      }
      for (int l = 0; d->positional && l < HARK_LANES; l++) {
        const int64_t distance = b->n + (lane + l) % (COLUMNS / 2) - i;
        exponents[lane + l] = distance < 0 ? 0 : b->table[distance];
      }
      if (d->positional) s = s + vf_load(exponents + lane);
      vf_store(exponents + lane, s);
      largest = vf_max(largest, s);
      vf_store(x + lane, vf_exp(vf_min(s, vf_set(88))));
    }
    if ((double)vf_highest(largest) > hark_ridge_exponent_limit(HARK_F32) && !find_range(d, b, i, exponents)) return false;
    const size_t hidden = (size_t)hark_max(0, i - b->n) * sizeof *x; /* lanes of tokens before key i */
    memset(x, 0, hidden);
    memset(x + COLUMNS / 2, 0, hidden);
  }
  return true;
}

/* X <- R^-1 X, band after band, and the new rows of R. */
static bool solve_block(const hark_ridge_decode *d, const block *b) {
  const int64_t n = b->n, m = n + b->count;
  double diagonal[HARK_RIDGE_DECODE_BLOCK], added[HARK_RIDGE_DECODE_BLOCK];
  for (int64_t r = 0; r < b->count; r++) {
    if (!hark_ridge_decode_added(d, b->row + r, &added[r])) return false;
    diagonal[r] = (double)b->x[(n + r) * COLUMNS + r] + added[r];
  }
  for (int64_t first = 0; first < m; first += HARK_RIDGE_BAND) {
    const int64_t end = hark_min(first + HARK_RIDGE_BAND, m), old = hark_max(first, hark_min(end, n)), step = hark_ridge_decode_step(first);
    const float *band = factor_row(d, first);
    hark_ridge_product p = {.a = b->x,
                            .a_row = COLUMNS,
                            .b = band,
                            .b_row = step,
                            .b_step = 1,
                            .c = b->x + first * COLUMNS,
                            .c_row = COLUMNS,
                            .rows = (int)(old - first),
                            .depth = (int)first,
                            .width = COLUMNS};
    if (first > 0 && old > first) hark_ridge_less(&p);
    p.b = b->x + hark_max(0, old - n); /* for new rows, where old >= n */
    p.b_row = 1;
    p.b_step = COLUMNS;
    p.c = b->x + old * COLUMNS;
    p.rows = (int)(end - old);
    if (first > 0 && end > old) hark_ridge_less_columns(&p);
    for (int64_t i = first; i < end; i++) {
      float *x = b->x + i * COLUMNS;
      for (int64_t k = first; k < i; k++)
        hark_ridge_row_less(x, b->x + k * COLUMNS, i < n ? band[(i - first) * step + k] : b->x[k * COLUMNS + (i - n)], COLUMNS);
      float own = i < n ? band[(i - first) * step + i] : 0;
      if (i >= n) {
        const double pivot =
            hark_ridge_pivot(d->record, d->head, i, (double)x[i - n] + added[i - n], diagonal[i - n], added[i - n], HARK_RIDGE_PIVOT_F32);
        if (d->record->kind != HARK_RIDGE_FINE) return false;
        own = (float)sqrt(pivot);
      }
      hark_ridge_row_times(x, 1 / own, COLUMNS);
      if (i < n) continue;
      const size_t hidden = (size_t)(i - n) * sizeof *x;
      memset(x, 0, hidden);
      memset(x + COLUMNS / 2, 0, hidden);
      x[i - n] = own;
    }
  }
  for (int64_t r = 0; r < b->count; r++) {
    float *to = factor_row(d, n + r);
    for (int64_t k = 0; k <= n + r; k++) to[k] = b->x[k * COLUMNS + r];
    memset(to + n + r + 1, 0, (size_t)(hark_ridge_decode_step(n + r) - (n + r) - 1) * sizeof *to);
  }
  return true;
}

/* The new rows of U, and the results. */
static bool mix_block(const hark_ridge_decode *d, const block *b) {
  float *solved = solved_of(d), *fresh = solved + b->n * d->solved_step, *y = b->rows;
  hark_ridge_product p = {.a = solved,
                          .a_row = d->solved_step,
                          .b = b->x,
                          .b_row = 1,
                          .b_step = COLUMNS,
                          .c = fresh,
                          .c_row = d->solved_step,
                          .rows = (int)b->count,
                          .depth = (int)b->n,
                          .width = (int)d->value_width};
  for (int64_t r = 0; r < b->count; r++) take_value(d, b->row + r, fresh + r * d->solved_step);
  hark_ridge_less_columns(&p);
  for (int64_t r = 0; r < b->count; r++) {
    float *u = fresh + r * d->solved_step;
    for (int64_t k = 0; k < r; k++) hark_ridge_row_less(u, fresh + k * d->solved_step, b->x[(b->n + k) * COLUMNS + r], (int)d->value_width);
    hark_ridge_row_times(u, 1 / b->x[(b->n + r) * COLUMNS + r], (int)d->value_width);
    memset(u + d->value_dim, 0, (size_t)(d->value_width - d->value_dim) * sizeof *u);
  }
  memset(y, 0, (size_t)(b->count * d->value_width) * sizeof *y);
  p.b = b->x + COLUMNS / 2;
  p.c = y;
  p.c_row = d->value_width;
  p.depth = (int)(b->n + b->count);
  hark_ridge_add_columns(&p);
  for (int64_t r = 0; r < b->count; r++)
    if (!store_result(d, b->row + r, y + r * d->value_width)) return false;
  return true;
}

static bool many_rows(const hark_ridge_decode *d) {
  for (int64_t row = 0; row < d->rows; row += HARK_RIDGE_DECODE_BLOCK) {
    const block b = open_block(d, row);
    if (!take_block(d, &b) || !fill_block(d, &b) || !solve_block(d, &b) || !mix_block(d, &b)) return false;
  }
  return true;
}

/* ---- the call ---- */

/* Appends the new keys and checks the values before the heads begin, because heads share them. */
static void append_keys(const hark_call *call) {
  const hark_kernel_ridge_decode_attributes *is = call->attributes;
  for (int64_t key_head = 0; key_head < is->key_heads; key_head++) {
    const hark_ridge_decode d = hark_ridge_decode_open(call, key_head * (is->heads / is->key_heads));
    const float *key = rows_of(&d, HARK_RIDGE_DECODE_KEY) + key_head * d.head_dim;
    const float *value = rows_of(&d, HARK_RIDGE_DECODE_VALUE) + key_head * d.value_dim;
    for (int64_t row = 0; row < d.rows; row++) {
      const int64_t n = is->first_position + row;
      if (!take_row(&d, key + row * d.key_step, cached_key(&d) + n * d.key_step))
        hark_ridge_trouble(d.record, d.head, HARK_RIDGE_BAD_KEY, n, 0);
      if (!hark_rows_finite(value + row * d.value_step, 0, 1, (int)d.value_dim))
        hark_ridge_trouble(d.record, d.head, HARK_RIDGE_BAD_VALUE, n, 0);
    }
  }
}

static void decode_heads(const hark_call *call, int64_t first, int64_t last) {
  for (int64_t head = first; head < last; head++) {
    hark_ridge_decode d = hark_ridge_decode_open(call, head);
    bool fine = d.record->kind == HARK_RIDGE_FINE && hark_ridge_decode_read(&d);
    if (fine && d.rows >= HARK_RIDGE_DECODE_LEAST) fine = many_rows(&d);
    for (int64_t row = 0; d.rows < HARK_RIDGE_DECODE_LEAST && row < d.rows && fine; row++) fine = one_row(&d, row);
  }
}

hark_status HARK_ISA(hark_cpu_kernel_ridge_decode_forward)(hark_context *context, const hark_call *call) {
  const hark_kernel_ridge_decode_attributes *is = call->attributes;
  const double products = call->op->operations(is, call->inputs, call->input_count, false) / 2;
  hark_floating_point before;
  HARK_TRY(hark_ridge_decode_begin(context, call));
  append_keys(call);
  hark_floating_point_hold_flushing(&before, hark_ridge_may_flush(is->scale, is->bound, is->unit));
  hark_cpu_ranges(context, call, is->heads, 1, products < SERIAL_PRODUCTS ? INT64_MAX : 1, decode_heads);
  hark_floating_point_leave(&before);
  return hark_ridge_decode_end(context, call);
}
