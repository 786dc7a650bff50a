/* kernel_ridge_backward.c - gradients of kernel ridge attention by adjoint solves, in double.
 *
 * Row n that sees p keys: y_n = V_p^T a with M_p a = b, b = kappa(K_p, q_n). With the solves a = R_p^-T z, z = R_p^-1 b, and
 * db = M_p^-1 V_p dy_n = R_p^-T (U_p dy_n),
 *
 *     dV_i        += a_i dy_n
 *     dkappa(k_i, q_n) = db_i
 *     dM          += -(a db^T + db a^T) / 2        in the leading p x p part
 *     dlambda      = trace dM;   dnoise_i = dM_ii;   amounts added to pivots are constants
 *     var_n = kappa(q_n, q_n) - b^T M_p^-1 b, with dvar:   dkappa(q_n, q_n) = dvar,  db -= 2 dvar a,  dM += dvar a a^T
 *     logdet_n = 2 sum over i < p of log R_ii, with g_i the sum of dlogdet over the rows with p > i:   dM += R^-T diag(g) R^-1
 *     quad_n = V_p^T M_p^-1 V_p of a column V of values, with a = M_p^-1 V_p:   dV += 2 dquad a,  dM -= dquad a a^T
 *     kappa = exp(s) G:  ds = dkappa kappa,  dlogG[|p - i|] += ds
 *     exp: s = scale q.k - shift    dq += scale ds k, dk += scale ds q
 *     rbf: s = -|q - k|^2 / (2 sigma^2)    dq += ds (k - q) / sigma^2, dk += ds (q - k) / sigma^2, dsigma += -2 s ds / sigma
 *     unit: x = x0 / |x0|    dx0 = (dx - x (x . dx)) / |x0|
 *
 * This is the causal backward row by row; the sums over rows that a fast backward forms first (non-causal: dV = M^-1 kappa dY) are in
 * docs/mathematics/kernel-ridge.md. Every element of a result is written by one task: the number of threads changes no bit.
 * Cost: O(Lq m^2) per head.
 */
#include <math.h>
#include <string.h>

#include "backend/reference/kernel_ridge.h"

typedef struct backward_task {
  const hark_attention_call *run;
  ridge_memory memory;
} backward_task;

/* In addition to the forward's: dM [m, m], dK [m, d]. */
hark_status hark_reference_ridge_backward_doubles(hark_context *context, const hark_attention_desc *desc, size_t *out) {
  const size_t keys = (size_t)hark_ridge_most_keys(desc);
  size_t forward, more;
  HARK_TRY(hark_reference_ridge_doubles(context, desc, &forward));
  HARK_TRY(hark_size_multiply(context, keys, keys + (size_t)desc->head_dim, &more));
  return hark_size_add(context, forward, more, out);
}

/* Gradients of one kernel value: of rows x and y, added to dx and dy. */
void hark_reference_ridge_kernel_gradient(const ridge_head *h, double dkernel, const double *x, const double *y, int64_t distance,
                                          double *dx, double *dy, double *partial) {
  const double exponent = hark_reference_ridge_exponent(h, x, y), log_kernel = hark_reference_ridge_log_kernel(h, distance);
  const double ds = dkernel * exp(exponent + log_kernel);
  const bool rbf = h->at.desc->kernel == HARK_KERNEL_RBF;
  for (int64_t c = 0; c < h->at.desc->head_dim; c++) {
    const double to_x = h->is.scale * ds * (rbf ? y[c] - x[c] : y[c]), to_y = h->is.scale * ds * (rbf ? x[c] - y[c] : x[c]);
    dx[c] += to_x;
    dy[c] += to_y;
  }
  if (rbf) partial[1] += -2 * exponent * ds / h->is.sigma;
  if (h->at.desc->has_log_kernel) partial[2 + distance] += ds;
}

/* Adds the gradient by a given row. If unit rows are requested, `row` is its unit vector. */
void hark_reference_ridge_store_row(const ridge_head *h, const hark_tensor *given, int64_t first, const double *row, const double *gradient,
                                    const hark_tensor *to, int64_t to_first, bool add) {
  const int64_t d = h->at.desc->head_dim;
  double squares = 0, along = 0;
  for (int64_t c = 0; c < d; c++) {
    const double x = dense_get(given, first + c);
    squares += x * x;
    along += row[c] * gradient[c];
  }
  for (int64_t c = 0; c < d; c++) {
    double value = gradient[c];
    if (h->at.desc->unit) value = squares > 0 ? (value - row[c] * along) / sqrt(squares) : 0;
    dense_put(to, to_first + c, add ? dense_get(to, to_first + c) + value : value);
  }
}

/* Gradients of a row: dquery, its contributions to keys and values, and its part of dM. */
static void backward_row(const ridge_head *h, int64_t row, double *dmatrix, double *dkeys, double *dvalues, double *partial) {
  const hark_attention_desc *desc = h->at.desc;
  const hark_attention_args *args = h->at.args;
  const int64_t d = desc->head_dim, dv = desc->value_dim, m = h->keys, seen = hark_reference_ridge_seen(h, row);
  const int64_t position = row + h->at.sequence->offset, dout = dense_query_index(&h->at, &args->dout, row);
  const bool has_dout = args->dout.type != HARK_NONE;
  /* var was multiplied by e^shift */
  const double dvariance =
      args->dvariance.type != HARK_NONE ? dense_get(&args->dvariance, hark_reference_ridge_statistic(h, row)) * exp(h->is.shift) : 0;
  double *weight = h->rows[0], *db = h->rows[1], *dquery = h->sums;
  double own;
  if (!hark_reference_ridge_query(h, row) || !hark_reference_ridge_kernels(h, row, seen, weight)) return;
  if (args->dvariance.type != HARK_NONE && !hark_reference_ridge_own(h, row, &own)) return;
  hark_reference_ridge_solve(h, seen, weight);
  hark_reference_ridge_solve_transposed(h, seen, weight);
  for (int64_t i = 0; i < seen; i++) {
    db[i] = 0;
    for (int64_t c = 0; c < dv && has_dout; c++) db[i] += h->solved[i * dv + c] * dense_get(&args->dout, dout + c);
  }
  hark_reference_ridge_solve_transposed(h, seen, db);
  for (int64_t c = 0; c < d; c++) dquery[c] = 0;
  for (int64_t i = 0; i < seen; i++) {
    for (int64_t c = 0; c < dv && has_dout; c++) dvalues[i * dv + c] += weight[i] * dense_get(&args->dout, dout + c);
    for (int64_t j = 0; j <= i; j++) dmatrix[i * m + j] -= (weight[i] * db[j] + db[i] * weight[j]) / 2 - dvariance * weight[i] * weight[j];
    const int64_t distance = position > h->place[i] ? position - h->place[i] : h->place[i] - position;
    hark_reference_ridge_kernel_gradient(h, db[i] - 2 * dvariance * weight[i], h->query, h->key + i * d, distance, dquery, dkeys + i * d,
                                         partial);
  }
  if (dvariance != 0) hark_reference_ridge_kernel_gradient(h, dvariance, h->query, h->query, 0, dquery, dquery, partial);
  if (args->dquery.type != HARK_NONE)
    hark_reference_ridge_store_row(h, &args->query, dense_query_index(&h->at, &args->query, row), h->query, dquery, &args->dquery,
                                   dense_query_index(&h->at, &args->dquery, row), args->accumulate & HARK_ACCUMULATE_QUERY);
}

/* dV += 2 dquad a and dM -= dquad a a^T of a row's quadratic forms, which were multiplied by e^-shift. */
static void quadratic_gradients(const ridge_head *h, int64_t row, double *dmatrix, double *dvalues) {
  const hark_attention_args *args = h->at.args;
  const int64_t dv = h->at.desc->value_dim, m = h->keys, seen = hark_reference_ridge_seen(h, row);
  const int64_t first = dense_query_index(&h->at, &args->dquadratic, row);
  double *a = h->rows[0];
  for (int64_t c = 0; c < dv; c++) {
    const double dquadratic = dense_get(&args->dquadratic, first + c) * exp(-h->is.shift);
    if (dquadratic == 0) continue; /* usually of all rows but one */
    for (int64_t i = 0; i < seen; i++) a[i] = h->solved[i * dv + c];
    hark_reference_ridge_solve_transposed(h, seen, a);
    for (int64_t i = 0; i < seen; i++) {
      dvalues[i * dv + c] += 2 * dquadratic * a[i];
      for (int64_t j = 0; j <= i; j++) dmatrix[i * m + j] -= dquadratic * a[i] * a[j];
    }
  }
}

/* dM += R^-T diag(g) R^-1, the leading p x p part of which is dlogdet_n M_p^-1 of a row that sees p keys. */
static void determinant_gradients(const ridge_head *h, double *dmatrix) {
  const hark_attention_args *args = h->at.args;
  const int64_t m = h->keys;
  double *sums = h->rows[0], *column = h->rows[1];
  for (int64_t i = 0; i < m; i++) sums[i] = 0;
  for (int64_t row = 0; row < h->at.sequence->query_count; row++) {
    const int64_t seen = hark_reference_ridge_seen(h, row);
    for (int64_t i = 0; i < seen; i++) sums[i] += dense_get(&args->dlog_determinant, hark_reference_ridge_statistic(h, row));
  }
  for (int64_t k = 0; k < m; k++) { /* row k of R^-1 */
    for (int64_t i = 0; i < k; i++) column[i] = 0;
    column[k] = 1;
    hark_reference_ridge_solve_transposed(h, k + 1, column);
    for (int64_t i = 0; i <= k; i++)
      for (int64_t j = 0; j <= i; j++) dmatrix[i * m + j] += sums[k] * column[i] * column[j];
  }
}

/* Contributions of dM to keys, ridge, sigma and table: kappa(k_i, k_j) is in M twice if i > j. */
static void matrix_gradients(const ridge_head *h, const double *dmatrix, double *dkeys, double *partial) {
  const int64_t d = h->at.desc->head_dim, m = h->keys;
  double trace = 0;
  for (int64_t i = 0; i < m; i++) {
    trace += dmatrix[i * m + i];
    hark_ridge_give_noise(h->at.args, h->at.sequence, h->at.head, h->place[i], &h->is, dmatrix[i * m + i]);
    for (int64_t j = 0; j <= i; j++)
      hark_reference_ridge_kernel_gradient(h, (i == j ? 1 : 2) * dmatrix[i * m + j], h->key + i * d, h->key + j * d,
                                           h->place[i] - h->place[j], dkeys + i * d, dkeys + j * d, partial);
  }
  partial[0] += trace * exp(-h->is.shift) * hark_ridge_slope(h->at.desc, hark_max(m, 1));
}

void hark_reference_ridge_store_keys(const ridge_head *h, const double *dkeys, const double *dvalues, bool first) {
  const hark_attention_args *args = h->at.args;
  const int64_t d = h->at.desc->head_dim, dv = h->at.desc->value_dim, m = h->keys;
  const bool add_key = !first || (args->accumulate & HARK_ACCUMULATE_KEY), add_value = !first || (args->accumulate & HARK_ACCUMULATE_VALUE);
  int64_t visible = 0;
  for (int64_t i = 0; i < h->at.sequence->key_count; i++) {
    const int64_t dk = args->dkey.type != HARK_NONE ? dense_key_index(&h->at, &args->dkey, i) : 0;
    const int64_t dvalue = args->dvalue.type != HARK_NONE ? dense_key_index(&h->at, &args->dvalue, i) : 0;
    const bool seen = visible < m && h->place[visible] == i;
    if (args->dkey.type != HARK_NONE) {
      if (seen)
        hark_reference_ridge_store_row(h, &args->key, dense_key_index(&h->at, &args->key, i), h->key + visible * d, dkeys + visible * d,
                                       &args->dkey, dk, add_key);
      else if (!add_key)
        for (int64_t c = 0; c < d; c++) dense_put(&args->dkey, dk + c, 0);
    }
    if (args->dvalue.type != HARK_NONE) {
      for (int64_t c = 0; c < dv && (seen || !add_value); c++)
        dense_put(&args->dvalue, dvalue + c,
                  (add_value ? dense_get(&args->dvalue, dvalue + c) : 0) + (seen ? dvalues[visible * dv + c] : 0));
    }
    visible += seen;
  }
}

/* One query head of a sequence. `first`: the first head of its key head; the other heads of the group add to its gradients. */
static void backward_head(const backward_task *task, int64_t sequence, int64_t head, bool first, int worker, double *partial) {
  const hark_attention_call *run = task->run;
  const hark_attention_args *args = run->args;
  const hark_attention_desc *desc = &run->plan->desc;
  const int64_t d = desc->head_dim, dv = desc->value_dim, length = hark_ridge_most_keys(desc);
  double *memory = task->memory.scratch + task->memory.per_worker * (size_t)worker;
  double *dmatrix = memory, *dkeys = dmatrix + length * length;
  ridge_head h;
  if (!hark_reference_ridge_factorise(run, sequence, head, dkeys + length * d, &task->memory.records[worker], &h)) return;
  const int64_t m = h.keys;
  double *dvalues = h.value; /* V is no longer needed */
  memset(dmatrix, 0, (size_t)(m * m) * sizeof(double));
  memset(dkeys, 0, (size_t)(m * d) * sizeof(double));
  memset(dvalues, 0, (size_t)(m * dv) * sizeof(double));
  for (int64_t row = 0; row < h.at.sequence->query_count; row++) backward_row(&h, row, dmatrix, dkeys, dvalues, partial);
  for (int64_t row = 0; row < h.at.sequence->query_count && args->dquadratic.type != HARK_NONE; row++)
    quadratic_gradients(&h, row, dmatrix, dvalues);
  if (args->dlog_determinant.type != HARK_NONE) determinant_gradients(&h, dmatrix);
  matrix_gradients(&h, dmatrix, dkeys, partial);
  hark_reference_ridge_store_keys(&h, dkeys, dvalues, first);
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
    memset(partial, 0, (size_t)width * sizeof(double));
    for (int64_t s = first; s < end; s++) backward_head(task, s, head, head == key_head * group, worker, partial);
  }
}

hark_status hark_reference_ridge_backward(hark_context *context, const hark_attention_call *run) {
  backward_task task = {run, hark_reference_ridge_memory(context, run, true)};
  hark_parallel_for(context, hark_ridge_slices(&run->plan->desc) * run->plan->desc.key_heads, backward_piece, &task);
  const hark_status status = hark_ridge_conclude(context, run, task.memory.records, false);
  if (status == HARK_OK) hark_ridge_collect(run, task.memory.partials);
  return status;
}
