/* kernel_ridge_wide.c - kernel ridge attention in f64 with HARK_SOLVER_CONJUGATE_GRADIENTS.
 *
 * Rows, parameters and checks are those of the reference (backend/reference/kernel_ridge.h), systems are solved without a factor
 * (kernel_ridge_solver.h). One head at a time: threads share solves and gradients of keys, one of them does the rest. With alpha = M^-1 V,
 * dalpha = kappa(K, Q) dY, dV = M^-1 dalpha:
 *
 *     y_n = alpha' b_n,   dM = -(dV alpha' + alpha dV') / 2,   dkappa(K, Q) = alpha dY'
 *     var_n = kappa(q_n, q_n) - b_n'w_n,  w_n = M^-1 b_n:   dM += w D w',   dkappa(K, Q) -= 2 w D,   dkappa(q, q) = D
 *     quad = V'alpha:   dM -= alpha diag(g) alpha',   dV += 2 alpha diag(g)
 *
 * Memory: one head at a time, n (5 columns + rank + 3 d + 4 dv) numbers. Cost: kernel_ridge_solver.h, and a pass over the pairs in the
 * backward, another one for every block of queries with dvariance.
 */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "backend/reference/kernel_ridge.h"
#include "core/cancel.h"
#include "kernel_ridge_solver.h"

typedef struct wide_head {
  ridge_head h;
  ridge_solver solver;
  const hark_attention_call *run;
  double *lanes;               /* tiles of keys transposed: [d][64] each */
  double *alpha, *products;    /* [m, dv]; [dv]: V'alpha */
  double *dkeys, *dvalues;     /* [m, d], [m, dv]; backward, as the next line */
  double *weights, *tile_sums; /* [columns]; [tiles][2]: trace of dM, and ds times the exponent */
  int columns;                 /* of the queries' block in the solver: 0 for dV and alpha */
} wide_head;

static bool supports(const hark_context *context, const hark_attention_desc *desc, char *why, size_t size) {
  (void)context;
  const char *reason = NULL;
  if (desc->normalisation != HARK_NORMALISATION_CME)
    reason = "normalisation is not cme";
  else if (desc->type != HARK_F64)
    reason = "type is not f64";
  else if (desc->solver != HARK_SOLVER_CONJUGATE_GRADIENTS)
    reason = "solver is factor";
  else if (desc->value_dim > INT32_MAX / HARK_RIDGE_TILE)
    reason = "value_dim is too large";
  if (reason != NULL && size > 0) snprintf(why, size, "%s", reason);
  return reason == NULL;
}

static double *carve(double *memory, size_t *used, int64_t count) {
  double *at = memory != NULL ? memory + *used : NULL;
  *used += hark_align_up((size_t)count * sizeof(double)) / sizeof(double);
  return at;
}

/* Sets the arrays from `memory` on (NULL: only counts); returns the number of doubles. *reading: those of the reference's arrays. */
static size_t carve_head(const hark_attention_desc *desc, bool backward, double *memory, wide_head *w, double **reading) {
  const int64_t keys = hark_ridge_most_keys(desc), tiles = hark_ceil_div(keys, HARK_RIDGE_TILE), rows = tiles * HARK_RIDGE_TILE;
  const int64_t d = desc->head_dim, dv = desc->value_dim;
  size_t used = 0;
  *reading = carve(memory, &used, keys * (d + 2 * dv + 8) + 2 * d + hark_max(d, dv));
  w->lanes = carve(memory, &used, rows * d);
  w->alpha = carve(memory, &used, keys * dv);
  w->products = carve(memory, &used, dv);
  w->dkeys = carve(memory, &used, backward ? keys * d : 0);
  w->dvalues = carve(memory, &used, backward ? keys * dv : 0);
  w->weights = carve(memory, &used, RIDGE_SOLVER_COLUMNS);
  w->tile_sums = carve(memory, &used, 2 * tiles);
  double *solver = memory != NULL ? memory + used : NULL;
  return used + HARK_ISA(hark_cpu_ridge_solver_carve)(rows, ridge_solver_columns(dv), solver, &w->solver);
}

static hark_status workspace(hark_context *context, const hark_attention_desc *desc, int workers, bool backward, size_t *out) {
  wide_head w;
  double *reading;
  size_t bytes, partials = 0;
  const double most = ((double)hark_ridge_most_keys(desc) + HARK_RIDGE_TILE) *
                      (4 * ((double)desc->head_dim + (double)desc->value_dim) + 6 * RIDGE_SOLVER_COLUMNS + 2 * RIDGE_SOLVER_RANK);
  if (most > (double)(PTRDIFF_MAX / 64))
    return hark_fail(context, HARK_TOO_LARGE, "attention: %lld keys with normalisation cme need more memory than there can be",
                     (long long)hark_ridge_most_keys(desc));
  HARK_TRY(hark_size_multiply(context, carve_head(desc, backward, NULL, &w, &reading), sizeof(double), &bytes));
  if (backward) HARK_TRY(hark_ridge_partials_bytes(context, desc, &partials));
  HARK_TRY(hark_size_add(context, bytes, hark_align_up(partials), &bytes));
  return hark_size_add(context, bytes, (size_t)workers * sizeof(hark_ridge_record), out);
}

static hark_status sizes(hark_context *context, const hark_attention_desc *desc, int workers, hark_attention_sizes *out) {
  out->saved = 0;
  HARK_TRY(workspace(context, desc, workers, false, &out->forward_workspace));
  return workspace(context, desc, workers, true, &out->backward_workspace);
}

/* ---- kernels of keys ---- */

/* Exponents of a row of keys and a tile. */
static void exponents(const wide_head *w, const double *key, int64_t tile, double *out) {
  const int64_t d = w->h.at.desc->head_dim;
  const double *lanes = w->lanes + tile * HARK_RIDGE_TILE * d;
  const bool rbf = w->h.at.desc->kernel == HARK_KERNEL_RBF;
  for (int l = 0; l < HARK_RIDGE_TILE; l++) out[l] = 0;
  for (int64_t c = 0; c < d; c++, lanes += HARK_RIDGE_TILE)
    for (int l = 0; l < HARK_RIDGE_TILE; l++) {
      const double difference = key[c] - lanes[l];
      out[l] += rbf ? difference * difference : key[c] * lanes[l];
    }
  for (int l = 0; l < HARK_RIDGE_TILE; l++) out[l] = rbf ? -out[l] * w->h.is.scale / 2 : w->h.is.scale * out[l] - w->h.is.shift;
}

static int lanes_of(const wide_head *w, int64_t tile) {
  return (int)hark_max(0, hark_min(HARK_RIDGE_TILE, w->h.keys - tile * HARK_RIDGE_TILE));
}

static void fill_kernels(const void *data, int64_t i, int64_t j, ridge_solver_tile *out) {
  const wide_head *w = data;
  const int rows = lanes_of(w, i), lanes = lanes_of(w, j);
  memset(out->of_doubles, 0, sizeof out->of_doubles);
  for (int r = 0; r < rows; r++) {
    double exponent[HARK_RIDGE_TILE], *to = out->of_doubles + (ptrdiff_t)r * HARK_RIDGE_TILE;
    exponents(w, w->h.key + (i * HARK_RIDGE_TILE + r) * w->h.at.desc->head_dim, j, exponent);
    for (int l = i == j ? r : 0; l < lanes; l++) to[l] = exp(exponent[l]);
    for (int l = 0; l < r && i == j; l++) to[l] = out->of_doubles[l * HARK_RIDGE_TILE + r];
  }
}

static void turn_keys(const wide_head *w) {
  const int64_t d = w->h.at.desc->head_dim, m = w->h.keys;
  for (int64_t i = 0; i < hark_ceil_div(m, HARK_RIDGE_TILE) * HARK_RIDGE_TILE; i++)
    for (int64_t c = 0; c < d; c++)
      w->lanes[(i / HARK_RIDGE_TILE * d + c) * HARK_RIDGE_TILE + i % HARK_RIDGE_TILE] = i < m ? w->h.key[i * d + c] : 0;
}

/* False, with a record, if a kernel of two keys is out of range. */
static bool keys_in_range(const wide_head *w) {
  const ridge_head *h = &w->h;
  const int64_t d = h->at.desc->head_dim;
  const double limit = hark_ridge_exponent_limit(HARK_F64);
  double longest = 0;
  if (h->at.desc->kernel == HARK_KERNEL_RBF) return true;
  for (int64_t i = 0; i < h->keys; i++) {
    double square = 0;
    for (int64_t c = 0; c < d; c++) square += h->key[i * d + c] * h->key[i * d + c];
    longest = hark_larger(longest, square);
  }
  for (int64_t i = 0; i < h->keys && !(h->is.scale * longest - h->is.shift <= limit); i++)
    for (int64_t j = 0; j <= i; j++) {
      const double exponent = hark_reference_ridge_exponent(h, h->key + i * d, h->key + j * d);
      if (exponent <= limit) continue;
      hark_ridge_trouble(h->record, h->system, HARK_RIDGE_KEY_RANGE, h->at.sequence->key_row + h->place[i], exponent);
      return false;
    }
  return true;
}

/* ---- systems ---- */

static bool solve(wide_head *w, int count) {
  const bool done = HARK_ISA(hark_cpu_ridge_solver_solve)(&w->solver, count);
  hark_ridge_record *record = w->h.record;
  record->iterations = hark_max(record->iterations, w->solver.iterations);
  if (!done) hark_ridge_trouble(record, w->h.system, HARK_RIDGE_NO_CONVERGENCE, w->solver.last, w->solver.residual);
  return done;
}

/* X <- M^-1 X' of columns in rows of dv numbers. products: NULL, or receives X' M^-1 X of each. */
static bool solve_rows(wide_head *w, const double *from, double *to, double *products) {
  ridge_solver *s = &w->solver;
  const int64_t dv = w->h.at.desc->value_dim, m = w->h.keys;
  for (int64_t first = 0; first < dv; first += s->columns) {
    const int count = (int)hark_min(s->columns, dv - first);
    for (int c = 0; c < count; c++)
      for (int64_t i = 0; i < s->rows; i++) s->b[c * s->rows + i] = i < m ? from[i * dv + first + c] : 0;
    if (!solve(w, count)) return false;
    for (int c = 0; c < count; c++) {
      double sum = 0;
      for (int64_t i = 0; i < m; i++) sum += s->b[c * s->rows + i] * s->x[c * s->rows + i];
      if (products != NULL) products[first + c] = sum;
      for (int64_t i = 0; i < m; i++) to[i * dv + first + c] = s->x[c * s->rows + i];
    }
  }
  return true;
}

/* Reads a head and solves for alpha. False after trouble, which is in the record. */
static bool begin(hark_context *context, const hark_attention_call *run, int64_t sequence, int64_t head, bool backward, double *memory,
                  hark_ridge_record *record, wide_head *w) {
  double *reading;
  *w = (wide_head){.run = run};
  carve_head(&run->plan->desc, backward, memory, w, &reading);
  if (!hark_reference_ridge_read(run, sequence, head, 0, reading, record, &w->h)) return false;
  ridge_solver *s = &w->solver;
  s->context = s->caller = context;
  s->wide = true;
  s->kernels = fill_kernels;
  s->data = w;
  s->tolerance = run->plan->desc.solver_tolerance;
  s->limit = run->plan->desc.solver_iterations;
  s->tiles = hark_ceil_div(w->h.keys, HARK_RIDGE_TILE);
  s->rows = s->tiles * HARK_RIDGE_TILE;
  s->visible = w->h.keys;
  for (int64_t i = 0; i < s->rows; i++) s->diagonal[i] = i < w->h.keys ? w->h.added[i] : 1;
  turn_keys(w);
  if (!keys_in_range(w)) return false;
  if (HARK_ISA(hark_cpu_ridge_solver_prepare)(s)) return solve_rows(w, w->h.value, w->alpha, w->products);
  hark_ridge_trouble(record, w->h.system, HARK_RIDGE_BAD_PIVOT, w->h.at.sequence->key_row, 0);
  return false;
}

/* ---- forward ---- */

/* Right-hand sides: the kernels of queries [row, row + count). */
static bool fill_queries(wide_head *w, int64_t row, int count) {
  ridge_solver *s = &w->solver;
  for (int c = 0; c < count; c++) {
    double *b = s->b + c * s->rows;
    if (!hark_reference_ridge_query(&w->h, row + c) || !hark_reference_ridge_kernels(&w->h, row + c, w->h.keys, b)) return false;
    for (int64_t i = w->h.keys; i < s->rows; i++) b[i] = 0;
  }
  return true;
}

/* out of a row whose kernels are in b. */
static bool store_out(const wide_head *w, int64_t row, const double *b) {
  const ridge_head *h = &w->h;
  const hark_tensor *out = &h->at.args->out;
  const int64_t dv = h->at.desc->value_dim, first = dense_query_index(&h->at, out, row);
  double *sums = h->sums;
  for (int64_t c = 0; c < dv; c++) sums[c] = 0;
  for (int64_t i = 0; i < h->keys; i++)
    for (int64_t c = 0; c < dv; c++) sums[c] += b[i] * w->alpha[i * dv + c];
  for (int64_t c = 0; c < dv; c++) {
    dense_put(out, first + c, sums[c]);
    if (isfinite(sums[c])) continue;
    hark_ridge_trouble(h->record, h->system, HARK_RIDGE_BAD_RESULT, h->at.sequence->query_row + row, 0);
    return false;
  }
  return true;
}

static bool store_variance(const wide_head *w, int64_t row, const double *b, const double *x) {
  const ridge_head *h = &w->h;
  double own, explained = 0;
  if (!hark_reference_ridge_query(h, row) || !hark_reference_ridge_own(h, row, &own)) return false;
  for (int64_t i = 0; i < h->keys; i++) explained += b[i] * x[i];
  dense_put(&h->at.args->variance, hark_reference_ridge_statistic(h, row), hark_larger(exp(own) - explained, 0) * exp(h->is.shift));
  return true;
}

/* Log-determinant and quadratic forms, the same in all rows. */
static void store_statistics(wide_head *w) {
  const ridge_head *h = &w->h;
  const hark_attention_args *args = h->at.args;
  const int64_t dv = h->at.desc->value_dim;
  const double gain = exp(-h->is.shift);
  double determinant = 0;
  if (args->log_determinant.type != HARK_NONE)
    determinant = HARK_ISA(hark_cpu_ridge_solver_determinant)(&w->solver) + (double)h->keys * h->is.shift;
  for (int64_t row = 0; row < h->at.sequence->query_count; row++) {
    if (args->log_determinant.type != HARK_NONE) dense_put(&args->log_determinant, hark_reference_ridge_statistic(h, row), determinant);
    if (args->quadratic.type == HARK_NONE) continue;
    const int64_t first = dense_query_index(&h->at, &args->quadratic, row);
    for (int64_t c = 0; c < dv; c++) dense_put(&args->quadratic, first + c, gain * w->products[c]);
  }
}

static void forward_head(wide_head *w) {
  ridge_solver *s = &w->solver;
  const int64_t queries = w->h.at.sequence->query_count;
  store_statistics(w);
  for (int64_t row = 0; row < queries && !hark_cancel_now(s->caller); row += s->columns) {
    const int count = (int)hark_min(s->columns, queries - row);
    if (!fill_queries(w, row, count)) return;
    for (int c = 0; c < count; c++)
      if (!store_out(w, row + c, s->b + c * s->rows)) return;
    if (w->h.at.args->variance.type == HARK_NONE) continue;
    if (!solve(w, count)) return;
    for (int c = 0; c < count; c++)
      if (!store_variance(w, row + c, s->b + c * s->rows, s->x + c * s->rows)) return;
  }
}

/* The memory of a call: [ records of workers | partial sums, in the backward | one head ]. */
typedef struct memory {
  hark_ridge_record *records;
  double *partials, *head;
} memory;

static memory memory_of(hark_context *context, const hark_attention_call *run, bool backward) {
  memory m = {.records = run->scratch};
  size_t partials = 0; /* sizes() has checked that it does not overflow */
  const hark_status status = backward ? hark_ridge_partials_bytes(context, &run->plan->desc, &partials) : HARK_OK;
  (void)status;
  m.partials = (double *)(void *)(m.records + run->plan->workers);
  m.head = m.partials + hark_align_up(partials) / sizeof(double);
  hark_ridge_records_clear(m.records, run->plan->workers);
  return m;
}

static hark_status forward(hark_context *context, const hark_attention_call *run) {
  const memory m = memory_of(context, run, false);
  const int64_t heads = run->plan->desc.heads;
  for (int64_t index = 0; index < run->sequence_count * heads && !hark_cancel_now(context); index++) {
    wide_head w;
    if (begin(context, run, index / heads, index % heads, false, m.head, m.records, &w)) forward_head(&w);
  }
  return hark_ridge_conclude(context, run, m.records, true);
}

/* ---- backward ---- */

/* dM of keys i and j. */
static double matrix_entry(const wide_head *w, int64_t i, int64_t j) {
  double sum = 0;
  if (w->columns > 0) {
    for (int c = 0; c < w->columns; c++) {
      const double *x = w->solver.x + c * w->solver.rows;
      sum += w->weights[c] * x[i] * x[j];
    }
    return sum;
  }
  const int64_t dv = w->h.at.desc->value_dim;
  for (int64_t c = 0; c < dv; c++) sum -= w->dvalues[i * dv + c] * w->alpha[j * dv + c] + w->alpha[i * dv + c] * w->dvalues[j * dv + c];
  return sum / 2;
}

/* Gradients of a tile of keys by dM, which is symmetric, so that an entry off its diagonal counts twice. */
static void stream_keys(void *data, int64_t tile, int worker) {
  wide_head *w = data;
  const ridge_head *h = &w->h;
  const int64_t d = h->at.desc->head_dim, m = h->keys;
  const bool rbf = h->at.desc->kernel == HARK_KERNEL_RBF;
  double trace = 0, along = 0;
  (void)worker;
  for (int64_t i = tile * HARK_RIDGE_TILE; i < hark_min(m, (tile + 1) * HARK_RIDGE_TILE) && !hark_cancel_now(w->solver.caller); i++) {
    const double *key = h->key + i * d;
    double *to = w->dkeys + i * d;
    for (int64_t j = 0; j < m; j++) {
      const double *other = h->key + j * d, dmatrix = matrix_entry(w, i, j), exponent = hark_reference_ridge_exponent(h, key, other);
      const double ds = dmatrix * exp(exponent), gain = 2 * h->is.scale * ds;
      for (int64_t c = 0; c < d; c++) to[c] += gain * (rbf ? other[c] - key[c] : other[c]);
      along += ds * exponent;
      if (i != j) continue;
      trace += dmatrix;
      hark_ridge_give_noise(h->at.args, h->at.sequence, h->at.head, h->place[i], &h->is, dmatrix);
    }
  }
  w->tile_sums[2 * tile] = trace;
  w->tile_sums[2 * tile + 1] = along;
}

static void stream(wide_head *w, int columns, double *partial) {
  const ridge_head *h = &w->h;
  double trace = 0;
  w->columns = columns;
  hark_parallel_for(w->solver.context, w->solver.tiles, stream_keys, w);
  for (int64_t tile = 0; tile < w->solver.tiles && !hark_cancel_now(w->solver.caller); tile++) {
    trace += w->tile_sums[2 * tile];
    if (h->at.desc->kernel == HARK_KERNEL_RBF) partial[1] -= 2 * w->tile_sums[2 * tile + 1] / h->is.sigma;
  }
  partial[0] += trace * exp(-h->is.shift) * hark_ridge_slope(h->at.desc, hark_max(h->keys, 1));
}

/* dquery of a row, and its contributions to keys; x: its column w with dvariance. */
static bool give_query(wide_head *w, int64_t row, double weight, const double *x, double *partial) {
  const ridge_head *h = &w->h;
  const hark_attention_args *args = h->at.args;
  const int64_t d = h->at.desc->head_dim, dv = h->at.desc->value_dim;
  const int64_t dout = args->dout.type != HARK_NONE ? dense_query_index(&h->at, &args->dout, row) : 0;
  double *dquery = h->sums, own;
  if (!hark_reference_ridge_query(h, row)) return false;
  for (int64_t c = 0; c < d; c++) dquery[c] = 0;
  for (int64_t i = 0; i < h->keys; i++) {
    double dkernel = x != NULL ? -2 * weight * x[i] : 0;
    for (int64_t c = 0; c < dv && args->dout.type != HARK_NONE; c++) dkernel += w->alpha[i * dv + c] * dense_get(&args->dout, dout + c);
    hark_reference_ridge_kernel_gradient(h, dkernel, h->query, h->key + i * d, 0, dquery, w->dkeys + i * d, partial);
  }
  if (x != NULL) {
    if (!hark_reference_ridge_own(h, row, &own)) return false;
    hark_reference_ridge_kernel_gradient(h, weight, h->query, h->query, 0, dquery, dquery, partial);
  }
  if (args->dquery.type != HARK_NONE)
    hark_reference_ridge_store_row(h, &args->query, dense_query_index(&h->at, &args->query, row), h->query, dquery, &args->dquery,
                                   dense_query_index(&h->at, &args->dquery, row), args->accumulate & HARK_ACCUMULATE_QUERY);
  return true;
}

/* dalpha of a block of queries, and all that follows from their kernels. */
static bool give_block(wide_head *w, int64_t row, int count, double *partial) {
  ridge_solver *s = &w->solver;
  const ridge_head *h = &w->h;
  const hark_attention_args *args = h->at.args;
  const int64_t dv = h->at.desc->value_dim;
  const bool has_dvariance = args->dvariance.type != HARK_NONE;
  if (!fill_queries(w, row, count)) return false;
  for (int q = 0; q < count && args->dout.type != HARK_NONE; q++) {
    const int64_t dout = dense_query_index(&h->at, &args->dout, row + q);
    for (int64_t i = 0; i < h->keys; i++)
      for (int64_t c = 0; c < dv; c++) w->dvalues[i * dv + c] += s->b[q * s->rows + i] * dense_get(&args->dout, dout + c);
  }
  if (has_dvariance && !solve(w, count)) return false;
  for (int q = 0; q < count; q++) {
    w->weights[q] = has_dvariance ? dense_get(&args->dvariance, hark_reference_ridge_statistic(h, row + q)) * exp(h->is.shift) : 0;
    if (!give_query(w, row + q, w->weights[q], has_dvariance ? s->x + q * s->rows : NULL, partial)) return false;
  }
  if (has_dvariance) stream(w, count, partial);
  return true;
}

/* dV += alpha diag(g), half of the contribution of dquadratic. */
static void add_quadratics(const wide_head *w) {
  const ridge_head *h = &w->h;
  const hark_tensor *given = &h->at.args->dquadratic;
  const int64_t dv = h->at.desc->value_dim;
  for (int64_t c = 0; c < dv && given->type != HARK_NONE; c++) {
    double sum = 0;
    for (int64_t row = 0; row < h->at.sequence->query_count; row++) sum += dense_get(given, dense_query_index(&h->at, given, row) + c);
    sum *= exp(-h->is.shift);
    for (int64_t i = 0; i < h->keys; i++) w->dvalues[i * dv + c] += sum * w->alpha[i * dv + c];
  }
}

static void backward_head(wide_head *w, bool first, double *partial) {
  ridge_solver *s = &w->solver;
  const int64_t d = w->h.at.desc->head_dim, dv = w->h.at.desc->value_dim, queries = w->h.at.sequence->query_count;
  memset(w->dkeys, 0, (size_t)(w->h.keys * d) * sizeof(double));
  memset(w->dvalues, 0, (size_t)(w->h.keys * dv) * sizeof(double));
  for (int64_t row = 0; row < queries && !hark_cancel_now(s->caller); row += s->columns)
    if (!give_block(w, row, (int)hark_min(s->columns, queries - row), partial)) return;
  if (!solve_rows(w, w->dvalues, w->dvalues, NULL)) return;
  add_quadratics(w);
  stream(w, 0, partial);
  add_quadratics(w);
  hark_reference_ridge_store_keys(&w->h, w->dkeys, w->dvalues, first);
}

static hark_status backward(hark_context *context, const hark_attention_call *run) {
  const hark_attention_desc *desc = &run->plan->desc;
  const memory m = memory_of(context, run, true);
  const int64_t slices = hark_ridge_slices(desc), width = hark_ridge_partial(desc), group = desc->heads / desc->key_heads;
  memset(m.partials, 0, (size_t)(slices * desc->heads * width) * sizeof(double));
  for (int64_t slice = 0; slice < slices; slice++) {
    int64_t from, end;
    hark_ridge_slice(run, slice, &from, &end);
    for (int64_t head = 0; head < desc->heads; head++)
      for (int64_t sequence = from; sequence < end && !hark_cancel_now(context); sequence++) {
        wide_head w;
        if (begin(context, run, sequence, head, true, m.head, m.records, &w))
          backward_head(&w, head % group == 0, m.partials + (slice * desc->heads + head) * width);
      }
  }
  const hark_status status = hark_ridge_conclude(context, run, m.records, false);
  if (status == HARK_OK) hark_ridge_collect(run, m.partials);
  return status;
}

static int print(const hark_attention_plan *plan, char *text, size_t size) {
  return snprintf(text, size, "tiles of %d x %d, lanes %d, preconditioner of rank %d, %d right-hand sides at a time", HARK_RIDGE_TILE,
                  HARK_RIDGE_TILE, HARK_LANES / 2, RIDGE_SOLVER_RANK, ridge_solver_columns(plan->desc.value_dim));
}

extern const hark_attention_algorithm HARK_ISA(hark_cpu_kernel_ridge_wide);
const hark_attention_algorithm HARK_ISA(hark_cpu_kernel_ridge_wide) = {
    .name = "kernel ridge conjugate gradients",
    .flush = HARK_FLUSH_ALWAYS,
    .supports = supports,
    .sizes = sizes,
    .forward = forward,
    .backward = backward,
    .print = print,
};
