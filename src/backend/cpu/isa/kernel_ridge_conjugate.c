/* kernel_ridge_conjugate.c - kernel ridge attention in f32 with HARK_SOLVER_CONJUGATE_GRADIENTS: the systems of one head.
 *
 *     alpha = M^-1 V,  V' alpha,  log det M,  var_n = kappa(q_n, q_n) - b_n' M^-1 b_n with b_n = kappa(K, q_n)
 *
 * Solutions are f64 and rounded to f32 once. Everything that is stored has n rows: kernel_ridge_solver.h. Kernels are those of the factor.
 */
#include "core/cancel.h"
#include "kernel_ridge_tile.h"

/* A tile on the diagonal has the entries above it on both sides: they differ by rounding. */
static void fill_kernels(const void *data, int64_t i, int64_t j, ridge_solver_tile *out) {
  HARK_ISA(hark_cpu_ridge_key_gram)(data, i, j, out->of_floats, NULL);
  for (int row = 1; i == j && row < HARK_RIDGE_TILE; row++)
    for (int lane = 0; lane < row; lane++) out->of_floats[row * HARK_RIDGE_TILE + lane] = out->of_floats[lane * HARK_RIDGE_TILE + row];
}

static void report_residual(const ridge_tiles *h) {
  hark_ridge_trouble(h->record, h->system, HARK_RIDGE_NO_CONVERGENCE, h->solver.last, h->solver.residual);
}

/* Columns [first, first + count) of the given rows; `to`: into right-hand sides, else from solutions. */
typedef struct exchange {
  const ridge_tiles *h;
  float *rows;
  ptrdiff_t row;
  int first, count;
  bool to;
} exchange;

static void exchange_tile(void *data, int64_t tile, int worker) {
  const exchange *e = data;
  const ridge_solver *s = &e->h->solver;
  (void)worker;
  for (int64_t i = tile * HARK_RIDGE_TILE; i < (tile + 1) * HARK_RIDGE_TILE; i++) {
    float *row = e->rows + i * e->row + e->first;
    for (int c = 0; c < e->count; c++) {
      if (e->to)
        s->b[c * s->rows + i] = (double)row[c] * (double)e->h->seen[i];
      else
        row[c] = (float)s->x[c * s->rows + i];
    }
  }
}

/* b'x of a column. */
static double product_of(const ridge_solver *s, int column) {
  const double *b = s->b + column * s->rows, *x = s->x + column * s->rows;
  double sum = 0;
  for (int64_t i = 0; i < s->rows; i++) sum += b[i] * x[i];
  return sum;
}

/* Solves for the first `count` columns. */
static bool solve(ridge_tiles *h, int count) {
  const bool done = HARK_ISA(hark_cpu_ridge_solver_solve)(&h->solver, count);
  h->record->iterations = hark_max(h->record->iterations, h->solver.iterations);
  if (!done) report_residual(h);
  return done;
}

/* Columns [first, first + count) of out, from alpha in the solver's x, so that sums over keys are f64. */
typedef struct output_task {
  const ridge_tiles *h;
  int first, count;
} output_task;

static void store_outputs(const ridge_tiles *h, const output_task *task, int64_t row, int r, const double *sums) {
  float *to = ridge_row(&h->run->args->out, h->sequence, h->head, h->sequence->query_row + row + r) + task->first;
  for (int c = 0; c < task->count; c++) {
    to[c] = (float)sums[c * HARK_RIDGE_TILE + r];
    if (!isfinite(to[c])) hark_ridge_trouble(h->record, h->system, HARK_RIDGE_BAD_RESULT, h->sequence->query_row + row + r, 0);
  }
}

/* A tile of queries. */
static void give_outputs(void *data, int64_t index, int worker) {
  const output_task *task = data;
  const int64_t row = index * HARK_RIDGE_TILE;
  const int count = (int)hark_min(HARK_RIDGE_TILE, task->h->sequence->query_count - row);
  double sums[RIDGE_SOLVER_COLUMNS * HARK_RIDGE_TILE] = {0};
  ridge_solver_tile kernels;
  ridge_tiles h;
  HARK_ISA(hark_cpu_ridge_join)(task->h, worker, &h);
  if (!HARK_ISA(hark_cpu_ridge_queries)(&h, row, count)) return; /* trouble is in the record */
  const ridge_side side = HARK_ISA(hark_cpu_ridge_query_side)(&h, row, count);
  for (int64_t tile = 0; tile < h.tiles && !hark_cancel_now(h.memory->context); tile++) {
    HARK_ISA(hark_cpu_ridge_gram)(&h, &side, tile, 0, kernels.of_floats, NULL);
    HARK_ISA(hark_cpu_ridge_solver_combine)(&h.solver, &kernels, task->count, tile * HARK_RIDGE_TILE, sums);
  }
  for (int r = 0; r < count; r++) store_outputs(&h, task, row, r, sums);
}

bool HARK_ISA(hark_cpu_ridge_iterate_rows)(ridge_tiles *h, float *rows, ptrdiff_t row, int width, double *products) {
  exchange e = {.h = h, .rows = rows, .row = row};
  for (; e.first < width && !hark_cancel_now(h->memory->context); e.first += h->solver.columns) {
    e.count = (int)hark_min(h->solver.columns, width - e.first);
    e.to = true;
    ridge_run(h, h->tiles, exchange_tile, &e);
    if (!solve(h, e.count)) return false;
    for (int c = 0; c < e.count && products != NULL; c++) products[e.first + c] = product_of(&h->solver, c);
    e.to = false;
    ridge_run(h, h->tiles, exchange_tile, &e);
    if (h->memory->backward) continue;
    output_task outputs = {h, e.first, e.count};
    ridge_run(h, hark_ceil_div(h->sequence->query_count, HARK_RIDGE_TILE), give_outputs, &outputs);
  }
  return true;
}

bool HARK_ISA(hark_cpu_ridge_iterate)(ridge_tiles *h) {
  ridge_solver *s = &h->solver;
  s->context = h->context;
  s->caller = h->memory->context;
  s->kernels = fill_kernels;
  s->data = h;
  s->tolerance = h->desc->solver_tolerance;
  s->limit = h->desc->solver_iterations;
  s->tiles = h->tiles;
  s->rows = h->tiles * HARK_RIDGE_TILE;
  s->visible = h->visible;
  s->seen = h->seen;
  for (int64_t i = 0; i < s->rows; i++) s->diagonal[i] = h->seen[i] == 0 ? 1 : h->added != NULL ? (double)h->added[i] : h->is.lambda;
  if (!HARK_ISA(hark_cpu_ridge_solver_prepare)(s)) {
    hark_ridge_trouble(h->record, h->system, HARK_RIDGE_BAD_PIVOT, h->sequence->key_row, 0);
    return false;
  }
  return HARK_ISA(hark_cpu_ridge_iterate_rows)(h, h->solved, h->dvp, (int)h->desc->value_dim, h->products);
}

/* Kernels of a block of queries, as right-hand sides. */
typedef struct query_task {
  ridge_tiles *h;
  int64_t row;
  int count;
  double *explained;
} query_task;

static void fill_queries(void *data, int64_t tile, int worker) {
  const query_task *task = data;
  const ridge_tiles *h = task->h;
  const ridge_side side = HARK_ISA(hark_cpu_ridge_query_side)(h, task->row, task->count);
  float kernels[HARK_RIDGE_TILE_FLOATS];
  (void)worker;
  HARK_ISA(hark_cpu_ridge_gram)(h, &side, tile, 0, kernels, NULL);
  for (int c = 0; c < task->count; c++) {
    double *b = h->solver.b + c * h->solver.rows + tile * HARK_RIDGE_TILE;
    for (int i = 0; i < HARK_RIDGE_TILE; i++) b[i] = (double)kernels[i * HARK_RIDGE_TILE + c];
  }
}

static void explain(void *data, int64_t column, int worker) {
  const query_task *task = data;
  (void)worker;
  task->explained[column] = product_of(&task->h->solver, (int)column);
}

bool HARK_ISA(hark_cpu_ridge_iterate_variances)(ridge_tiles *h) {
  const int64_t queries = h->sequence->query_count;
  for (int64_t row = 0; row < queries && !hark_cancel_now(h->memory->context); row += h->solver.columns) {
    double explained[RIDGE_SOLVER_COLUMNS];
    query_task task = {h, row, (int)hark_min(h->solver.columns, queries - row), explained};
    float *out = ridge_statistic(h, &h->run->args->variance, row);
    if (!HARK_ISA(hark_cpu_ridge_queries)(h, row, task.count)) return false;
    ridge_run(h, h->tiles, fill_queries, &task);
    if (!solve(h, task.count)) return false;
    ridge_run(h, task.count, explain, &task);
    for (int r = 0; r < task.count; r++) {
      double own;
      if (!HARK_ISA(hark_cpu_ridge_own)(h, row, r, &own)) return false;
      out[r] = (float)(hark_larger(exp(own) - explained[r], 0) * exp(h->is.shift));
    }
  }
  return true;
}

double HARK_ISA(hark_cpu_ridge_iterate_determinant)(ridge_tiles *h) {
  return HARK_ISA(hark_cpu_ridge_solver_determinant)(&h->solver) + (double)h->visible * h->is.shift;
}
