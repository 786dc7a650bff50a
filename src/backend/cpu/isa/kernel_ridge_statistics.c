/* kernel_ridge_statistics.c - gradients of kernel ridge attention by log-determinants and quadratic forms of the values, in f32.
 *
 * dM gets sums of outer products of columns w, which are computed for 128 keys at a time, from the last keys, which the fewest rows see, to
 * the first ones. With X = U'^-1 V of one column V of the values, e_i the unit vector of key i, and (X)_i the first i entries of X:
 *     log det       dM += U^-1 diag(g) U'^-1:  w_i = U^-1 e_i,    dM += g_i w_i w_i',  g_i the sum of dlog_determinant over rows that see i
 *     causal quad   row n sees keys up to i:   w_i = U^-1 (X)_i,  dM -= g_i w_i w_i',  dV += 2 g_i w_i,  g_i the sum over such rows
 *     full quad     alpha = U^-1 X of every column:  dM -= alpha diag(g) alpha',  dV += 2 alpha diag(g),  g the sum over all rows
 * Cost in multiply-adds: n^3 / 3 each (causal quad: for each column), full quad 2 n dv. Sources: docs/mathematics/kernel-ridge.md.
 */
#include "core/cancel.h"
#include "kernel_ridge_tile.h"

/* Columns in h->pair: lane `lane` of row i is w_i of that column. */
#define ROW (2 * HARK_RIDGE_TILE)

typedef struct outer_task {
  const ridge_tiles *h;
  int64_t tiles;
  int lanes;
  const float *weights;
} outer_task;

/* Column j of tiles i <= j; the last columns are the longest. */
static void add_outer_column(void *data, int64_t index, int worker) {
  const outer_task *task = data;
  const int64_t j = task->tiles - 1 - index;
  ridge_tiles h;
  HARK_ISA(hark_cpu_ridge_join)(task->h, worker, &h);
  for (int lane = 0; lane < task->lanes; lane += HARK_RIDGE_TILE)
    hark_pack_transposed(h.pair + j * HARK_RIDGE_TILE * ROW + lane, ROW, HARK_RIDGE_TILE, HARK_RIDGE_TILE, 2.0f,
                         h.turned + lane * HARK_RIDGE_TILE);
  for (int lane = 0; lane < task->lanes; lane++)
    hark_ridge_row_times(h.turned + lane * HARK_RIDGE_TILE, task->weights[lane], HARK_RIDGE_TILE);
  ridge_add_turned(&h, j, task->lanes);
}

void HARK_ISA(hark_cpu_ridge_add_outer)(const ridge_tiles *h, int64_t tiles, int lanes, const float *weights) {
  outer_task task = {h, tiles, lanes, weights};
  ridge_run(h, tiles, add_outer_column, &task);
}

/* A column of the values and its prefixes, or the unit vectors: what ends at a key. */
typedef struct columns {
  const ridge_tiles *h;
  int64_t first, end;  /* tiles of the keys at which the columns end */
  const float *solved; /* X of the column, with h->dvp numbers from row to row; NULL: unit vectors */
} columns;

static int lanes_of(const columns *c) { return (int)(c->end - c->first) * HARK_RIDGE_TILE; }

/* Fills the right sides and solves. */
static void solve_columns(const columns *c) {
  const ridge_tiles *h = c->h;
  const int64_t key = c->first * HARK_RIDGE_TILE, rows = c->end * HARK_RIDGE_TILE;
  const int lanes = lanes_of(c);
  for (int64_t i = 0; i < rows; i++) {
    float *row = h->pair + i * ROW;
    const int from = (int)hark_max(0, i - key); /* the first lane whose column has row i */
    memset(row, 0, ROW * sizeof *row);
    if (c->solved == NULL && i >= key) row[from] = 1;
    for (int lane = from; lane < lanes && c->solved != NULL; lane++) row[lane] = c->solved[i * h->dvp];
  }
  HARK_ISA(hark_cpu_ridge_solve_back)(h, c->end, h->pair, ROW, lanes);
}

void HARK_ISA(hark_cpu_ridge_give_determinants)(const ridge_tiles *h) {
  const float *given = ridge_statistic(h, &h->run->args->dlog_determinant, 0);
  double sum = 0;
  int64_t row = h->sequence->query_count;
  for (int64_t end = h->tiles; end > 0 && !hark_cancel_now(h->memory->context); end -= 2) {
    const columns c = {.h = h, .first = hark_max(0, end - 2), .end = end};
    const int64_t first = c.first * HARK_RIDGE_TILE;
    float weights[ROW] = {0};
    for (int lane = lanes_of(&c) - 1; lane >= 0; lane--) {
      while (row > 0 && ridge_seen_keys(h, row - 1) > first + lane) sum += (double)given[--row];
      weights[lane] = h->seen[first + lane] != 0 ? -(float)sum : 0; /* of -2 dM */
    }
    solve_columns(&c);
    HARK_ISA(hark_cpu_ridge_add_outer)(h, end, lanes_of(&c), weights);
  }
}

/* dV += 2 w diag(weights), over the lanes. */
static void add_values(const columns *c, const float *weights, float *dvalues) {
  const int lanes = lanes_of(c);
  for (int64_t i = 0; i < c->end * HARK_RIDGE_TILE; i++) {
    vf sum = vf_zero();
    for (int lane = 0; lane < lanes; lane += HARK_LANES) sum = vf_fma(vf_load(c->h->pair + i * ROW + lane), vf_load(weights + lane), sum);
    dvalues[i * c->h->dvp] += 2 * vf_sum(sum);
  }
}

/* dquadratic of a row of the sequence. */
static double given_quadratic(const ridge_tiles *h, int64_t row, int64_t feature) {
  return (double)ridge_row(&h->run->args->dquadratic, h->sequence, h->head, h->sequence->query_row + row)[feature];
}

/* The factor of sums of dquadratic: M was divided by e^shift. */
static double gain_of(const ridge_tiles *h) { return exp(-h->is.shift); }

/* One column of the values. */
static void give_prefixes(const ridge_tiles *h, int64_t feature) {
  const double gain = gain_of(h);
  int64_t row = h->sequence->query_count;
  for (int64_t end = h->tiles; end > 0 && !hark_cancel_now(h->memory->context); end -= 2) {
    const columns c = {.h = h, .first = hark_max(0, end - 2), .end = end, .solved = h->solved + feature};
    const int64_t first = c.first * HARK_RIDGE_TILE;
    float weights[ROW] = {0};
    bool any = false;
    for (int lane = lanes_of(&c) - 1; lane >= 0; lane--) {
      double sum = 0;
      while (row > 0 && ridge_seen_keys(h, row - 1) > first + lane) sum += given_quadratic(h, --row, feature);
      weights[lane] = (float)(gain * sum);
      any = any || sum != 0;
    }
    if (!any) continue;
    solve_columns(&c);
    add_values(&c, weights, h->dvalues + feature);
    HARK_ISA(hark_cpu_ridge_add_outer)(h, end, lanes_of(&c), weights);
  }
}

void HARK_ISA(hark_cpu_ridge_give_prefixes)(const ridge_tiles *h) {
  for (int64_t feature = 0; feature < h->desc->value_dim; feature++) give_prefixes(h, feature);
}

void HARK_ISA(hark_cpu_ridge_add_quadratics)(const ridge_tiles *h) {
  const double gain = gain_of(h);
  for (int64_t feature = 0; feature < h->desc->value_dim; feature++) {
    double sum = 0;
    for (int64_t row = 0; row < h->sequence->query_count; row++) sum += given_quadratic(h, row, feature);
    sum *= gain;
    for (int64_t i = 0; i < h->keys; i++) h->dvalues[i * h->dvp + feature] += (float)(sum * (double)h->solved[i * h->dvp + feature]);
  }
}
