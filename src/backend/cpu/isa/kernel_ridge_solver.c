/* kernel_ridge_solver.c - see kernel_ridge_solver.h.
 *
 * Woodbury: P^-1 = D^-1 - W (I + L' W)^-1 W' with W = D^-1 L, of which `factor` has the rows [rank][rows].
 */
#include "kernel_ridge_solver.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "core/cancel.h"
#include "wide.h"

#define GROUPS 64        /* of tiles in a tournament, at most: an even number */
#define PART 512         /* rows that are summed together */
#define BLOCK 4          /* columns in registers */
#define LEAST_PIVOT 1e-6 /* L ends where no (K - L L')_ii / D_ii is above this */
#define MOST_RESTARTS 20 /* from residuals of x itself */

#if HARK_VECTOR_REGISTERS == 32
#define VECTORS 4 /* of lanes in registers, with BLOCK columns */
#else
#define VECTORS 2
#endif

/* ---- memory ---- */

static int64_t parts_of(int64_t rows) { return hark_ceil_div(rows, PART); }

static double *carve(double *memory, size_t *used, int64_t count) {
  double *at = memory != NULL ? memory + *used : NULL;
  *used += hark_align_up((size_t)count * sizeof(double)) / sizeof(double);
  return at;
}

size_t HARK_ISA(hark_cpu_ridge_solver_carve)(int64_t rows, int columns, double *memory, ridge_solver *out) {
  const int64_t rank = hark_min(RIDGE_SOLVER_RANK, rows), vectors = rows * columns;
  size_t used = 0;
  out->columns = columns;
  out->diagonal = carve(memory, &used, rows);
  out->left = carve(memory, &used, rows);
  out->b = carve(memory, &used, vectors);
  out->x = carve(memory, &used, vectors);
  out->r = carve(memory, &used, vectors);
  out->p = carve(memory, &used, vectors);
  out->q = carve(memory, &used, vectors);
  out->factor = carve(memory, &used, rank * rows);
  out->inner = carve(memory, &used, rank * rank);
  out->partials = carve(memory, &used, parts_of(rows) * columns * (rank + 1));
  out->small = carve(memory, &used, columns * (rank + 6));
  out->steps = carve(memory, &used, (int64_t)2 * RIDGE_SOLVER_PROBES * RIDGE_SOLVER_STEPS + 3 * RIDGE_SOLVER_STEPS);
  return used;
}

static void run(const ridge_solver *s, int64_t count, hark_task *task, void *data) {
  if (s->context != NULL) {
    hark_parallel_for(s->context, count, task, data);
    return;
  }
  for (int64_t index = 0; index < count && !hark_cancel_now(s->caller); index++) task(data, index, 0);
}

/* ---- multiplication ---- */

/* Columns of vectors: which ones, and those that are read and written. */
typedef struct columns {
  int count;
  const int *index;
  const double *from;
  double *to;
  int64_t stride;
} columns;

/* to[c][lane] += sum over k of tile[k][lane] from[c][k]: `vectors` of lanes from `lane` on, `count` columns from `first` on. */
HARK_SIMD void multiply_block(const bool wide, const int vectors, const int count, const ridge_solver_tile *tile, const columns *at,
                              int first, int lane, int64_t from_row, int64_t to_row) {
  vd sums[BLOCK][HARK_RIDGE_TILE / HARK_WIDE_LANES];
  const double *from[BLOCK];
  double *to[BLOCK];
  HARK_UNROLL
  for (int c = 0; c < count; c++) {
    const int64_t column = (int64_t)at->index[first + c] * at->stride;
    from[c] = at->from + column + from_row;
    to[c] = at->to + column + to_row + lane;
    HARK_UNROLL
    for (int v = 0; v < vectors; v++) sums[c][v] = vd_set(0);
  }
  HARK_ROLLED
  for (int k = 0; k < HARK_RIDGE_TILE; k++) {
    vd kernel[HARK_RIDGE_TILE / HARK_WIDE_LANES];
    HARK_UNROLL
    for (int v = 0; v < vectors; v++) {
      const int place = k * HARK_RIDGE_TILE + lane + v * HARK_WIDE_LANES;
      kernel[v] = wide ? vd_load(tile->of_doubles + place) : vd_of_floats(tile->of_floats + place);
    }
    HARK_UNROLL
    for (int c = 0; c < count; c++) {
      const vd x = vd_set(from[c][k]);
      HARK_UNROLL
      for (int v = 0; v < vectors; v++) sums[c][v] = vd_fma(kernel[v], x, sums[c][v]);
    }
  }
  HARK_UNROLL
  for (int c = 0; c < count; c++) {
    HARK_UNROLL
    for (int v = 0; v < vectors; v++) {
      double *place = to[c] + v * HARK_WIDE_LANES;
      vd_store(place, vd_load(place) + sums[c][v]);
    }
  }
}

HARK_SIMD void multiply_columns(const bool wide, const ridge_solver_tile *tile, const columns *at, int64_t from_row, int64_t to_row) {
  const int single = HARK_WIDE_LANES >= 4 ? 8 : 4; /* vectors of one column */
  int first = 0;
  for (; first + BLOCK <= at->count; first += BLOCK)
    for (int lane = 0; lane < HARK_RIDGE_TILE; lane += VECTORS * HARK_WIDE_LANES)
      multiply_block(wide, VECTORS, BLOCK, tile, at, first, lane, from_row, to_row);
  for (; first + 2 <= at->count; first += 2)
    for (int lane = 0; lane < HARK_RIDGE_TILE; lane += VECTORS * HARK_WIDE_LANES)
      multiply_block(wide, VECTORS, 2, tile, at, first, lane, from_row, to_row);
  for (; first < at->count; first++)
    for (int lane = 0; lane < HARK_RIDGE_TILE; lane += single * HARK_WIDE_LANES)
      multiply_block(wide, single, 1, tile, at, first, lane, from_row, to_row);
}

HARK_SIMD_NOINLINE void multiply_floats(const ridge_solver_tile *tile, const columns *at, int64_t from_row, int64_t to_row) {
  multiply_columns(false, tile, at, from_row, to_row);
}
HARK_SIMD_NOINLINE void multiply_doubles(const ridge_solver_tile *tile, const columns *at, int64_t from_row, int64_t to_row) {
  multiply_columns(true, tile, at, from_row, to_row);
}

HARK_SIMD_NOINLINE void turn_floats(const float *tile, float *out) {
  hark_pack_transposed(tile, HARK_RIDGE_TILE, HARK_RIDGE_TILE, HARK_RIDGE_TILE, 1.0f, out);
}
static void turn_doubles(const double *tile, double *out) {
  for (int i = 0; i < HARK_RIDGE_TILE; i++)
    for (int j = 0; j < HARK_RIDGE_TILE; j++) out[j * HARK_RIDGE_TILE + i] = tile[i * HARK_RIDGE_TILE + j];
}

/* to[c][lane] += sum over k of tile[k][lane] from[c][k] for 64 rows k from `row` on. */
void HARK_ISA(hark_cpu_ridge_solver_combine)(const ridge_solver *s, const ridge_solver_tile *kernels, int count, int64_t row, double *to) {
  for (int c = 0; c < count; c++) {
    double sums[HARK_RIDGE_TILE] = {0};
    const int index = 0;
    const columns at = {1, &index, s->x + c * s->rows, sums, s->rows};
    (s->wide ? multiply_doubles : multiply_floats)(kernels, &at, row, 0);
    for (int lane = 0; lane < HARK_RIDGE_TILE; lane++) to[c * HARK_RIDGE_TILE + lane] += sums[lane];
  }
}

/* Adds the products of tile (i, j) and of its transpose. */
static void multiply_tile(const ridge_solver *s, const columns *at, int64_t i, int64_t j) {
  const int64_t above = i * HARK_RIDGE_TILE, right = j * HARK_RIDGE_TILE;
  ridge_solver_tile tile, turned;
  s->kernels(s->data, i, j, &tile);
  (s->wide ? multiply_doubles : multiply_floats)(&tile, at, above, right);
  if (i == j) return;
  if (s->wide)
    turn_doubles(tile.of_doubles, turned.of_doubles);
  else
    turn_floats(tile.of_floats, turned.of_floats);
  (s->wide ? multiply_doubles : multiply_floats)(&turned, at, right, above);
}

/* A round of the tournament: pair `index` of groups of tiles. Round -1: every group with itself. */
typedef struct tournament {
  const ridge_solver *s;
  const columns *at;
  int64_t groups, round;
} tournament;

static int64_t first_of(const tournament *t, int64_t group) { return group * t->s->tiles / t->groups; }

/* The other group of `group` in a round, with an even number of groups: the last one stays in its place, the others rotate. */
static void pair_of(const tournament *t, int64_t index, int64_t *one, int64_t *other) {
  const int64_t turning = t->groups - 1;
  *one = index == 0 ? t->round : (t->round + index) % turning;
  *other = index == 0 ? turning : (t->round + turning - index) % turning;
  if (*one <= *other) return;
  const int64_t last = *one;
  *one = *other;
  *other = last;
}

static void play(void *data, int64_t index, int worker) {
  const tournament *t = data;
  int64_t one = index, other = index;
  (void)worker;
  if (t->round >= 0) pair_of(t, index, &one, &other);
  for (int64_t i = first_of(t, one); i < first_of(t, one + 1); i++)
    for (int64_t j = one == other ? i : first_of(t, other); j < first_of(t, other + 1); j++) {
      if (hark_cancel_now(t->s->caller)) return;
      multiply_tile(t->s, t->at, i, j);
    }
}

/* to = K from; D is not in it. */
static void multiply(const ridge_solver *s, const columns *at) {
  const int64_t groups = hark_max(2, hark_min(GROUPS, s->tiles / 2 * 2));
  tournament t = {s, at, groups, -1};
  for (int c = 0; c < at->count; c++) memset(at->to + at->index[c] * at->stride, 0, (size_t)s->rows * sizeof(double));
  run(s, groups, play, &t);
  for (t.round = 0; t.round < groups - 1; t.round++) run(s, groups / 2, play, &t);
}

/* ---- the preconditioner ---- */

/* Column `rank` of L, from row `pivot` of K. */
typedef struct pivot_task {
  ridge_solver *s;
  int64_t pivot;
  double root;
} pivot_task;

static void take_pivot(void *data, int64_t tile, int worker) {
  const pivot_task *task = data;
  ridge_solver *s = task->s;
  const int64_t own = task->pivot / HARK_RIDGE_TILE, at = task->pivot % HARK_RIDGE_TILE, first = tile * HARK_RIDGE_TILE;
  double *to = s->factor + (int64_t)s->rank * s->rows + first;
  ridge_solver_tile kernels;
  (void)worker;
  s->kernels(s->data, hark_min(own, tile), hark_max(own, tile), &kernels);
  for (int64_t i = 0; i < HARK_RIDGE_TILE; i++) {
    const int64_t entry = tile <= own && (tile < own || i <= at) ? i * HARK_RIDGE_TILE + at : at * HARK_RIDGE_TILE + i;
    to[i] = s->wide ? kernels.of_doubles[entry] : (double)kernels.of_floats[entry];
  }
  for (int k = 0; k < s->rank; k++) {
    const double *row = s->factor + (int64_t)k * s->rows;
    const double weight = row[task->pivot];
    for (int64_t i = 0; i < HARK_RIDGE_TILE; i++) to[i] -= weight * row[first + i];
  }
  for (int64_t i = 0; i < HARK_RIDGE_TILE; i++) {
    to[i] /= task->root;
    s->left[first + i] -= to[i] * to[i];
  }
}

static void read_diagonal(void *data, int64_t tile, int worker) {
  const ridge_solver *s = data;
  ridge_solver_tile kernels;
  (void)worker;
  s->kernels(s->data, tile, tile, &kernels);
  for (int64_t i = 0; i < HARK_RIDGE_TILE; i++) {
    const int64_t entry = i * (HARK_RIDGE_TILE + 1);
    s->left[tile * HARK_RIDGE_TILE + i] = s->wide ? kernels.of_doubles[entry] : (double)kernels.of_floats[entry];
  }
}

/* The next pivot: the first of the largest; -1 if L is complete. */
static int64_t next_pivot(const ridge_solver *s) {
  int64_t pivot = -1;
  double most = LEAST_PIVOT;
  for (int64_t i = 0; i < s->rows; i++)
    if (s->left[i] > most * s->diagonal[i]) {
      most = s->left[i] / s->diagonal[i];
      pivot = i;
    }
  return pivot;
}

static void divide_factor(void *data, int64_t k, int worker) {
  const ridge_solver *s = data;
  double *row = s->factor + k * s->rows;
  (void)worker;
  for (int64_t i = 0; i < s->rows; i++) row[i] /= s->diagonal[i];
}

/* Row k of I + L' W up to its diagonal. */
static void fill_inner(void *data, int64_t k, int worker) {
  const ridge_solver *s = data;
  const double *row = s->factor + k * s->rows;
  (void)worker;
  for (int64_t j = 0; j <= k; j++) {
    const double *other = s->factor + j * s->rows;
    vd sum = vd_set(0);
    for (int64_t i = 0; i < s->rows; i += HARK_WIDE_LANES)
      sum = vd_fma(vd_load(row + i) * vd_load(s->diagonal + i), vd_load(other + i), sum);
    s->inner[k * s->rank + j] = vd_sum(sum) + (j == k ? 1 : 0);
  }
}

/* I + L' W <- its Cholesky factor, in the lower triangle. */
static bool factor_inner(const ridge_solver *s) {
  const int n = s->rank;
  double *c = s->inner;
  for (int i = 0; i < n; i++)
    for (int j = 0; j <= i; j++) {
      double sum = c[i * n + j];
      for (int k = 0; k < j; k++) sum -= c[i * n + k] * c[j * n + k];
      if (i == j && !(sum > 0 && sum <= DBL_MAX)) return false;
      c[i * n + j] = i == j ? sqrt(sum) : sum / c[j * n + j];
    }
  return true;
}

bool HARK_ISA(hark_cpu_ridge_solver_prepare)(ridge_solver *s) {
  const int64_t most = hark_min(RIDGE_SOLVER_RANK, s->rows);
  s->rank = 0;
  s->iterations = 0;
  s->residual = 0;
  run(s, s->tiles, read_diagonal, s);
  while (s->rank < most && !hark_cancel_now(s->caller)) {
    const int64_t pivot = next_pivot(s);
    if (pivot < 0) break;
    pivot_task task = {s, pivot, sqrt(s->left[pivot])};
    run(s, s->tiles, take_pivot, &task);
    s->left[pivot] = 0;
    s->rank++;
  }
  run(s, s->rank, divide_factor, s);
  run(s, s->rank, fill_inner, s);
  return !hark_cancel_now(s->caller) && factor_inner(s);
}

/* ---- the iteration ---- */

/* Numbers of each column that is not done. */
typedef struct iteration {
  ridge_solver *s;
  int count, *index;                 /* columns that are not done */
  double *alpha, *beta, *rho, *norm; /* [columns] each */
  double *inner;                     /* [columns][rank] */
} iteration;

static double *partial_of(const ridge_solver *s, int64_t part, int column) {
  return s->partials + (part * s->columns + column) * (hark_min(RIDGE_SOLVER_RANK, s->rows) + 1);
}

static int64_t part_end(const ridge_solver *s, int64_t part) { return hark_min(s->rows, (part + 1) * PART); }

/* Sums of a part over all parts, for number `k` of a column. */
static double sum_parts(const ridge_solver *s, int column, int k) {
  double sum = 0;
  for (int64_t part = 0; part < parts_of(s->rows); part++) sum += partial_of(s, part, column)[k];
  return sum;
}

/* q += D p, and p'q. */
static void add_diagonal(void *data, int64_t part, int worker) {
  const iteration *it = data;
  const ridge_solver *s = it->s;
  (void)worker;
  for (int c = 0; c < it->count; c++) {
    const int64_t column = it->index[c] * s->rows;
    vd sum = vd_set(0);
    for (int64_t i = part * PART; i < part_end(s, part); i += HARK_WIDE_LANES) {
      const vd p = vd_load(s->p + column + i), q = vd_fma(vd_load(s->diagonal + i), p, vd_load(s->q + column + i));
      vd_store(s->q + column + i, q);
      sum = vd_fma(p, q, sum);
    }
    partial_of(s, part, it->index[c])[0] = vd_sum(sum);
  }
}

/* x += alpha p, r -= alpha q, and r'r. */
static void step(void *data, int64_t part, int worker) {
  const iteration *it = data;
  const ridge_solver *s = it->s;
  (void)worker;
  for (int c = 0; c < it->count; c++) {
    const int64_t column = it->index[c] * s->rows;
    const vd alpha = vd_set(it->alpha[it->index[c]]);
    vd sum = vd_set(0);
    for (int64_t i = part * PART; i < part_end(s, part); i += HARK_WIDE_LANES) {
      const vd r = vd_load(s->r + column + i) - alpha * vd_load(s->q + column + i);
      vd_store(s->x + column + i, vd_fma(alpha, vd_load(s->p + column + i), vd_load(s->x + column + i)));
      vd_store(s->r + column + i, r);
      sum = vd_fma(r, r, sum);
    }
    partial_of(s, part, it->index[c])[0] = vd_sum(sum);
  }
}

/* W' r of a part, for `count` columns and `rows` rows of W in registers. */
HARK_SIMD void project_block(const int rows, const int count, const iteration *it, int64_t part, int k, int first) {
  const ridge_solver *s = it->s;
  vd sums[BLOCK][BLOCK];
  HARK_UNROLL
  for (int c = 0; c < count; c++) {
    HARK_UNROLL
    for (int j = 0; j < rows; j++) sums[c][j] = vd_set(0);
  }
  HARK_ROLLED
  for (int64_t i = part * PART; i < part_end(s, part); i += HARK_WIDE_LANES) {
    vd w[BLOCK];
    HARK_UNROLL
    for (int j = 0; j < rows; j++) w[j] = vd_load(s->factor + (int64_t)(k + j) * s->rows + i);
    HARK_UNROLL
    for (int c = 0; c < count; c++) {
      const vd r = vd_load(s->r + it->index[first + c] * s->rows + i);
      HARK_UNROLL
      for (int j = 0; j < rows; j++) sums[c][j] = vd_fma(w[j], r, sums[c][j]);
    }
  }
  HARK_UNROLL
  for (int c = 0; c < count; c++) {
    HARK_UNROLL
    for (int j = 0; j < rows; j++) partial_of(s, part, it->index[first + c])[k + j] = vd_sum(sums[c][j]);
  }
}

HARK_SIMD void project_columns(const int count, const iteration *it, int64_t part, int first) {
  int k = 0;
  for (; k + BLOCK <= it->s->rank; k += BLOCK) project_block(BLOCK, count, it, part, k, first);
  for (; k < it->s->rank; k++) project_block(1, count, it, part, k, first);
}

static void project(void *data, int64_t part, int worker) {
  const iteration *it = data;
  int first = 0;
  (void)worker;
  for (; first + BLOCK <= it->count; first += BLOCK) project_columns(BLOCK, it, part, first);
  for (; first < it->count; first++) project_columns(1, it, part, first);
}

/* q = D^-1 r - W s, and r'q. */
static void precondition(void *data, int64_t part, int worker) {
  const iteration *it = data;
  const ridge_solver *s = it->s;
  const int64_t from = part * PART, end = part_end(s, part);
  (void)worker;
  for (int c = 0; c < it->count; c++) {
    const double *r = s->r + it->index[c] * s->rows, *inner = it->inner + (int64_t)it->index[c] * s->rank;
    double *q = s->q + it->index[c] * s->rows;
    vd sum = vd_set(0);
    for (int64_t i = from; i < end; i += HARK_WIDE_LANES) vd_store(q + i, vd_load(r + i) / vd_load(s->diagonal + i));
    int k = 0;
    for (; k + 4 <= s->rank; k += 4) {
      const double *w = s->factor + (int64_t)k * s->rows;
      const vd a = vd_set(-inner[k]), b = vd_set(-inner[k + 1]), e = vd_set(-inner[k + 2]), f = vd_set(-inner[k + 3]);
      for (int64_t i = from; i < end; i += HARK_WIDE_LANES) {
        vd z = vd_fma(a, vd_load(w + i), vd_load(q + i));
        z = vd_fma(b, vd_load(w + s->rows + i), z);
        z = vd_fma(e, vd_load(w + 2 * s->rows + i), z);
        vd_store(q + i, vd_fma(f, vd_load(w + 3 * s->rows + i), z));
      }
    }
    for (; k < s->rank; k++)
      for (int64_t i = from; i < end; i += HARK_WIDE_LANES)
        vd_store(q + i, vd_fma(vd_set(-inner[k]), vd_load(s->factor + (int64_t)k * s->rows + i), vd_load(q + i)));
    for (int64_t i = from; i < end; i += HARK_WIDE_LANES) sum = vd_fma(vd_load(r + i), vd_load(q + i), sum);
    partial_of(s, part, it->index[c])[0] = vd_sum(sum);
  }
}

/* p = z + beta p, z in q. */
static void turn(void *data, int64_t part, int worker) {
  const iteration *it = data;
  const ridge_solver *s = it->s;
  (void)worker;
  for (int c = 0; c < it->count; c++) {
    const int64_t column = it->index[c] * s->rows;
    const vd beta = vd_set(it->beta[it->index[c]]);
    for (int64_t i = part * PART; i < part_end(s, part); i += HARK_WIDE_LANES)
      vd_store(s->p + column + i, vd_fma(beta, vd_load(s->p + column + i), vd_load(s->q + column + i)));
  }
}

/* (I + L' W)^-1 of the sums of a column's parts. */
static void solve_inner(const iteration *it, int column) {
  const ridge_solver *s = it->s;
  const int n = s->rank;
  double *y = it->inner + (int64_t)column * n;
  for (int i = 0; i < n; i++) {
    double sum = sum_parts(s, column, i);
    for (int k = 0; k < i; k++) sum -= s->inner[i * n + k] * y[k];
    y[i] = sum / s->inner[i * n + i];
  }
  for (int i = n - 1; i >= 0; i--) {
    y[i] /= s->inner[i * n + i];
    for (int k = 0; k < i; k++) y[k] -= s->inner[i * n + k] * y[i];
  }
}

/* z = P^-1 r in q, and rho = r'z of the columns that are not done; returns them in `fresh`. */
static void apply(iteration *it, double *fresh) {
  ridge_solver *s = it->s;
  const int64_t parts = parts_of(s->rows);
  run(s, parts, project, it);
  for (int c = 0; c < it->count; c++) solve_inner(it, it->index[c]);
  run(s, parts, precondition, it);
  for (int c = 0; c < it->count; c++) fresh[it->index[c]] = sum_parts(s, it->index[c], 0);
}

static columns of_all(const iteration *it, const double *from, double *to) {
  return (columns){it->count, it->index, from, to, it->s->rows};
}

/* p'q after q = M p, of all columns that are not done, in alpha. */
static void multiply_directions(iteration *it) {
  ridge_solver *s = it->s;
  const columns at = of_all(it, s->p, s->q);
  multiply(s, &at);
  run(s, parts_of(s->rows), add_diagonal, it);
  for (int c = 0; c < it->count; c++) it->alpha[it->index[c]] = sum_parts(s, it->index[c], 0);
}

/* Squares of a part of r = b - q, q = M x. */
static void subtract(void *data, int64_t part, int worker) {
  const iteration *it = data;
  const ridge_solver *s = it->s;
  (void)worker;
  for (int c = 0; c < it->count; c++) {
    const int64_t column = it->index[c] * s->rows;
    double sum = 0;
    for (int64_t i = column + part * PART; i < column + part_end(s, part); i++) {
      s->r[i] = s->b[i] - s->q[i] - s->diagonal[i - column] * s->x[i];
      sum += s->r[i] * s->r[i];
    }
    partial_of(s, part, it->index[c])[0] = sum;
  }
}

/* Keeps the columns whose residual, whose square is in `partials`, is above the tolerance. */
static void keep_open(iteration *it, double *most) {
  const ridge_solver *s = it->s;
  int kept = 0;
  *most = 0;
  for (int c = 0; c < it->count; c++) {
    const int column = it->index[c];
    const double residual = sqrt(sum_parts(s, column, 0)) / it->norm[column];
    *most = hark_larger(*most, residual);
    if (!(residual <= s->tolerance)) it->index[kept++] = column;
  }
  it->count = kept;
}

/* Lists the columns whose right-hand side is not zero, with r = b and x = 0. */
static void start(iteration *it, int count) {
  ridge_solver *s = it->s;
  it->count = 0;
  for (int c = 0; c < count; c++) {
    const double *b = s->b + c * s->rows;
    double squares = 0;
    for (int64_t i = 0; i < s->rows; i++) squares += b[i] * b[i];
    it->norm[c] = sqrt(squares);
    memset(s->x + c * s->rows, 0, (size_t)s->rows * sizeof(double));
    memcpy(s->r + c * s->rows, b, (size_t)s->rows * sizeof(double));
    if (squares != 0) it->index[it->count++] = c;
  }
}

/* Directions from the residuals alone. */
static void begin_directions(iteration *it) {
  ridge_solver *s = it->s;
  apply(it, it->rho);
  for (int c = 0; c < it->count; c++)
    memcpy(s->p + it->index[c] * s->rows, s->q + it->index[c] * s->rows, (size_t)s->rows * sizeof(double));
}

static iteration iteration_of(ridge_solver *s, int *index) {
  double *small = s->small;
  return (iteration){.s = s,
                     .index = index,
                     .alpha = small,
                     .beta = small + s->columns,
                     .rho = small + 2 * s->columns,
                     .norm = small + 3 * s->columns,
                     .inner = small + 6 * s->columns};
}

/* One iteration of the columns that are not done. False if a number is not usable: M is not positive definite, or out of range. */
static bool iterate(iteration *it) {
  ridge_solver *s = it->s;
  double *fresh = s->small + 4 * s->columns;
  multiply_directions(it);
  for (int c = 0; c < it->count; c++) {
    const int column = it->index[c];
    if (!(it->alpha[column] > 0) || !(it->alpha[column] <= DBL_MAX)) return false;
    it->alpha[column] = it->rho[column] / it->alpha[column];
  }
  run(s, parts_of(s->rows), step, it);
  keep_open(it, &s->residual);
  if (it->count == 0) return true;
  apply(it, fresh);
  for (int c = 0; c < it->count; c++) {
    const int column = it->index[c];
    it->beta[column] = fresh[column] / it->rho[column];
    it->rho[column] = fresh[column];
  }
  run(s, parts_of(s->rows), turn, it);
  return true;
}

/* Residuals from x itself of the first `count` columns; those above the tolerance are not done. */
static void check_residuals(iteration *it, int count) {
  ridge_solver *s = it->s;
  it->count = 0;
  for (int c = 0; c < count; c++)
    if (it->norm[c] != 0) it->index[it->count++] = c;
  const columns at = of_all(it, s->x, s->q);
  multiply(s, &at);
  run(s, parts_of(s->rows), subtract, it);
  keep_open(it, &s->residual);
}

bool HARK_ISA(hark_cpu_ridge_solver_solve)(ridge_solver *s, int count) {
  int index[RIDGE_SOLVER_COLUMNS];
  iteration it = iteration_of(s, index);
  int64_t done = 0;
  s->residual = 0;
  start(&it, count);
  for (int restart = 0; it.count > 0 && restart < MOST_RESTARTS; restart++) {
    begin_directions(&it);
    while (it.count > 0 && done < s->limit && !hark_cancel_now(s->caller)) {
      done++;
      if (!iterate(&it)) break;
    }
    const bool stopped = it.count > 0;
    check_residuals(&it, count);
    if (stopped || done >= s->limit) break;
  }
  s->last = done;
  s->iterations = hark_max(s->iterations, done);
  return it.count == 0;
}

/* ---- the log-determinant ---- */

/* Row 0 of log T, first element, of a symmetric tridiagonal T: eigenvalues and the first elements of eigenvectors by implicit QL steps. T
 * is in diagonal[n] and beside[n - 1]; first[n] is scratch. */
static double log_of_first(int n, double *diagonal, double *beside, double *first) {
  for (int i = 0; i < n; i++) first[i] = i == 0;
  beside[n - 1] = 0;
  for (int l = 0; l < n; l++)
    for (int tries = 0; tries < 60; tries++) {
      int m = l;
      while (m < n - 1 && fabs(beside[m]) > DBL_EPSILON * (fabs(diagonal[m]) + fabs(diagonal[m + 1]))) m++;
      if (m == l) break;
      double g = (diagonal[l + 1] - diagonal[l]) / (2 * beside[l]), r = hypot(g, 1), sine = 1, cosine = 1, shift = 0;
      g = diagonal[m] - diagonal[l] + beside[l] / (g + copysign(r, g));
      int i = m - 1;
      for (; i >= l; i--) {
        const double f = sine * beside[i], b = cosine * beside[i];
        r = hypot(f, g);
        beside[i + 1] = r;
        if (r == 0) break;
        sine = f / r;
        cosine = g / r;
        g = diagonal[i + 1] - shift;
        r = (diagonal[i] - g) * sine + 2 * cosine * b;
        shift = sine * r;
        diagonal[i + 1] = g + shift;
        g = cosine * r - b;
        const double next = first[i + 1];
        first[i + 1] = sine * first[i] + cosine * next;
        first[i] = cosine * first[i] - sine * next;
      }
      if (r == 0 && i >= l) {
        diagonal[i + 1] -= shift;
        beside[m] = 0;
        continue;
      }
      diagonal[l] -= shift;
      beside[l] = g;
      beside[m] = 0;
    }
  double sum = 0;
  for (int i = 0; i < n; i++) sum += first[i] * first[i] * log(fmax(diagonal[i], DBL_MIN));
  return sum;
}

/* 1 or -1: element i of a probe. */
static double sign_of(int probe, int64_t i) {
  const hark_random_stream stream = {
      .seed = 0x6861726b, .micro_step = (uint32_t)probe, .layer_purpose = hark_random_layer_purpose(0, HARK_RANDOM_ATTENTION)};
  return hark_random_word(&stream, (uint64_t)i) & 1 ? 1 : -1;
}

/* A probe with covariance P: L g + D^1/2 g' with elements of 1 or -1. */
static void make_probe(void *data, int64_t probe, int worker) {
  ridge_solver *s = data;
  double *b = s->b + probe * s->rows;
  (void)worker;
  for (int64_t i = 0; i < s->rows; i++) b[i] = 0;
  for (int k = 0; k < s->rank; k++) {
    const double sign = sign_of((int)probe, s->rows + k);
    for (int64_t i = 0; i < s->rows; i++) b[i] += sign * s->factor[(int64_t)k * s->rows + i];
  }
  for (int64_t i = 0; i < s->rows; i++) {
    const bool seen = s->seen != NULL ? s->seen[i] != 0 : i < s->visible;
    b[i] = seen ? s->diagonal[i] * b[i] + sqrt(s->diagonal[i]) * sign_of((int)probe, i) : 0;
  }
}

/* T of a probe from the numbers of its iterations: alpha and beta of each. */
static double quadrature(const ridge_solver *s, int probe, int steps) {
  const double *alpha = s->steps + (int64_t)2 * probe * RIDGE_SOLVER_STEPS, *beta = alpha + RIDGE_SOLVER_STEPS;
  double *diagonal = s->steps + (int64_t)2 * RIDGE_SOLVER_PROBES * RIDGE_SOLVER_STEPS, *beside = diagonal + RIDGE_SOLVER_STEPS;
  for (int i = 0; i < steps; i++) {
    diagonal[i] = 1 / alpha[i] + (i > 0 ? beta[i - 1] / alpha[i - 1] : 0);
    beside[i] = i + 1 < steps ? sqrt(beta[i]) / alpha[i] : 0;
  }
  return log_of_first(steps, diagonal, beside, beside + RIDGE_SOLVER_STEPS);
}

double HARK_ISA(hark_cpu_ridge_solver_determinant)(ridge_solver *s) {
  int index[RIDGE_SOLVER_COLUMNS], steps[RIDGE_SOLVER_PROBES] = {0};
  double squares[RIDGE_SOLVER_PROBES] = {0}, sum = 0, exact = 0;
  iteration it = iteration_of(s, index);
  const int probes = hark_min(RIDGE_SOLVER_PROBES, s->columns);
  for (int64_t i = 0; i < s->rows; i++) exact += log(s->diagonal[i]);
  for (int i = 0; i < s->rank; i++) exact += 2 * log(s->inner[(int64_t)i * (s->rank + 1)]);
  run(s, probes, make_probe, s);
  start(&it, probes);
  begin_directions(&it);
  for (int c = 0; c < it.count; c++) squares[it.index[c]] = it.rho[it.index[c]];
  for (int done = 0; done < RIDGE_SOLVER_STEPS && it.count > 0 && !hark_cancel_now(s->caller); done++) {
    int open[RIDGE_SOLVER_COLUMNS];
    const int count = it.count;
    memcpy(open, index, sizeof open);
    if (!iterate(&it)) break;
    for (int c = 0; c < count; c++) {
      double *at = s->steps + (int64_t)2 * open[c] * RIDGE_SOLVER_STEPS;
      at[done] = it.alpha[open[c]];
      at[RIDGE_SOLVER_STEPS + done] = it.beta[open[c]];
      steps[open[c]] = done + 1;
    }
  }
  for (int c = 0; c < probes; c++)
    if (steps[c] > 0) sum += squares[c] * quadrature(s, c, steps[c]) / probes;
  return exact + sum;
}
