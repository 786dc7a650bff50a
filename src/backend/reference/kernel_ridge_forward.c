/* kernel_ridge_forward.c - kernel ridge (CME) attention by its definition, in double, with plain loops: the algorithm's record and its
 * forward.
 *
 *     y_n = sum over i < p of z_i U_i,   var_n = kappa(q_n, q_n) - sum over i < p of z_i^2,   z = R_p^-1 kappa(K_p, q_n)
 *
 *     logdet_n = 2 sum over i < p of log R_ii
 *
 * M = kappa(K, K) + lambda I + diag(noise) = R R^T and U = R^-1 V. p is the number of visible keys that row n sees. The leading p rows of R
 * factorise the leading p x p part of M, so this is V_p^T M_p^-1 kappa(K_p, q_n) for every p at once, causal or not. K contains only
 * visible keys, at their positions: not masked ones, nor with causality those after the last query. Legend: m visible keys, d head_dim, dv
 * value_dim. Cost: m^3 / 6 + Lq m^2 / 2 per head; scratch: m (m + d + 2 dv + 8) doubles per worker. Source: paper X (exchangeability)
 * equations 4.3 to 4.8, A.5 and B.1; the causal identity: docs/mathematics/kernel-ridge.md.
 */
#include "backend/reference/kernel_ridge.h"

#include <math.h>
#include <stdio.h>

static bool supports(const hark_context *context, const hark_attention_desc *desc, char *why, size_t size) {
  (void)context;
  if (desc->normalisation == HARK_NORMALISATION_CME) return true;
  snprintf(why, size, "normalisation is not cme");
  return false;
}

hark_status hark_reference_ridge_doubles(hark_context *context, const hark_attention_desc *desc, size_t *out) {
  const size_t keys = (size_t)hark_ridge_most_keys(desc), dims = (size_t)desc->head_dim + 2 * (size_t)desc->value_dim;
  size_t rows;
  HARK_TRY(hark_size_multiply(context, keys, keys + dims + 8, &rows)); /* eight: six rows of scratch, the positions, and `added` */
  return hark_size_add(context, rows, 2 * (size_t)desc->head_dim + (size_t)desc->value_dim, out);
}

static hark_status workspace(hark_context *context, const hark_attention_desc *desc, int workers, bool backward, size_t *out) {
  size_t doubles = 0, bytes, partials = 0;
  HARK_TRY((backward ? hark_reference_ridge_backward_doubles : hark_reference_ridge_doubles)(context, desc, &doubles));
  HARK_TRY(hark_size_multiply(context, doubles, sizeof(double), &bytes));
  HARK_TRY(hark_size_multiply(context, bytes, (size_t)workers, &bytes));
  if (backward) HARK_TRY(hark_ridge_partials_bytes(context, desc, &partials));
  HARK_TRY(hark_size_add(context, bytes, hark_align_up(partials), &bytes));
  return hark_size_add(context, bytes, (size_t)workers * sizeof(hark_ridge_record), out);
}

static hark_status sizes(hark_context *context, const hark_attention_desc *desc, int workers, hark_attention_sizes *out) {
  out->saved = 0;
  HARK_TRY(workspace(context, desc, workers, false, &out->forward_workspace));
  return workspace(context, desc, workers, true, &out->backward_workspace);
}

ridge_memory hark_reference_ridge_memory(hark_context *context, const hark_attention_call *run, bool backward) {
  const hark_attention_desc *desc = &run->plan->desc;
  ridge_memory memory = {.records = run->scratch};
  size_t partials = 0; /* sizes() has checked that nothing overflows */
  hark_status status = (backward ? hark_reference_ridge_backward_doubles : hark_reference_ridge_doubles)(context, desc, &memory.per_worker);
  if (backward && status == HARK_OK) status = hark_ridge_partials_bytes(context, desc, &partials);
  (void)status;
  memory.partials = (double *)(void *)(memory.records + run->plan->workers);
  memory.scratch = memory.partials + hark_align_up(partials) / sizeof(double);
  hark_ridge_records_clear(memory.records, run->plan->workers);
  return memory;
}

double hark_reference_ridge_exponent(const ridge_head *h, const double *x, const double *y) {
  double sum = 0;
  for (int64_t c = 0; c < h->at.desc->head_dim; c++) {
    const double difference = x[c] - y[c];
    sum += h->at.desc->kernel == HARK_KERNEL_RBF ? difference * difference : x[c] * y[c];
  }
  return h->at.desc->kernel == HARK_KERNEL_RBF ? -sum * h->is.scale / 2 : h->is.scale * sum - h->is.shift;
}

double hark_reference_ridge_log_kernel(const ridge_head *h, int64_t distance) {
  const hark_tensor *table = &h->at.args->log_kernel;
  return table->type == HARK_NONE ? 0 : dense_get(table, h->at.head * table->stride[0] + distance);
}

/* Reads a row of d numbers and divides it by its length if requested; false if one is not finite. */
static bool read_row(const ridge_head *h, const hark_tensor *tensor, int64_t first, double *out) {
  const int64_t d = h->at.desc->head_dim;
  double squares = 0, largest = 0;
  for (int64_t c = 0; c < d; c++) {
    out[c] = dense_get(tensor, first + c);
    if (!isfinite(out[c])) return false;
    squares += out[c] * out[c];
    largest = fmax(largest, fabs(out[c]));
  }
  if (!h->at.desc->unit || squares == 0) return true;
  const double by = isfinite(squares) ? 1 : largest; /* the squares must be in range */
  squares = 0;
  for (int64_t c = 0; c < d; c++) {
    out[c] /= by;
    squares += out[c] * out[c];
  }
  for (int64_t c = 0; c < d; c++) out[c] /= sqrt(squares);
  return true;
}

bool hark_reference_ridge_query(const ridge_head *h, int64_t row) {
  if (read_row(h, &h->at.args->query, dense_query_index(&h->at, &h->at.args->query, row), h->query)) return true;
  hark_ridge_trouble(h->record, h->system, HARK_RIDGE_BAD_QUERY, h->at.sequence->query_row + row, 0);
  return false;
}

/* The visible keys and their values. */
static bool read_keys(ridge_head *h) {
  const hark_attention_args *args = h->at.args;
  const int64_t d = h->at.desc->head_dim, dv = h->at.desc->value_dim;
  for (int64_t i = 0; i < hark_ridge_keys(h->at.desc, h->at.sequence); i++) {
    if (args->mask.type != HARK_NONE && ((const uint8_t *)args->mask.data)[dense_entry_index(&h->at, &args->mask, 0, i)] == 0) continue;
    h->place[h->keys++] = i;
  }
  for (int64_t i = 0; i < h->keys; i++) {
    const int64_t row = h->at.sequence->key_row + h->place[i];
    if (!read_row(h, &args->key, dense_key_index(&h->at, &args->key, h->place[i]), h->key + i * d)) {
      hark_ridge_trouble(h->record, h->system, HARK_RIDGE_BAD_KEY, row, 0);
      return false;
    }
    const int64_t v = dense_key_index(&h->at, &args->value, h->place[i]);
    for (int64_t c = 0; c < dv; c++) {
      h->value[i * dv + c] = dense_get(&args->value, v + c);
      if (isfinite(h->value[i * dv + c])) continue;
      hark_ridge_trouble(h->record, h->system, HARK_RIDGE_BAD_VALUE, row, 0);
      return false;
    }
  }
  return true;
}

/* Eight separate sums, so that none waits for the previous one. The order depends on count alone, as causal rows require. */
static double dot(const double *a, const double *b, int64_t count) {
  double sums[8] = {0}, rest = 0;
  int64_t i = 0;
  for (; i + 8 <= count; i += 8)
    for (int k = 0; k < 8; k++) sums[k] += a[i + k] * b[i + k];
  for (; i < count; i++) rest += a[i] * b[i];
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7])) + rest;
}

/* M's lower triangle. */
static bool fill(const ridge_head *h) {
  const int64_t m = h->keys, d = h->at.desc->head_dim;
  const double limit = hark_ridge_exponent_limit(h->at.desc->type);
  for (int64_t i = 0; i < m; i++) {
    double *row = h->factor + i * m;
    for (int64_t j = 0; j <= i; j++) {
      const double exponent =
          hark_reference_ridge_exponent(h, h->key + i * d, h->key + j * d) + hark_reference_ridge_log_kernel(h, h->place[i] - h->place[j]);
      if (!(exponent <= limit)) {
        hark_ridge_trouble(h->record, h->system, HARK_RIDGE_KEY_RANGE, h->at.sequence->key_row + h->place[i], exponent);
        return false;
      }
      row[j] = exp(exponent) + (i == j ? h->added[i] : 0);
    }
    for (int64_t j = i + 1; j < m; j++) row[j] = 0;
  }
  return true;
}

/* Replaces M by R: R[i, j] = (M[i, j] - R[i, :j] . R[j, :j]) / R[j, j]. A group of rows reads every row above it once. */
static void factorise(const ridge_head *h) {
  enum { GROUP = 8 };
  const int64_t m = h->keys;
  for (int64_t first = 0; first < m; first += GROUP) {
    const int64_t end = hark_min(first + GROUP, m);
    for (int64_t j = 0; j < end; j++) {
      double *pivot_row = h->factor + j * m;
      if (j >= first) {
        const double diagonal = pivot_row[j], left = diagonal - dot(pivot_row, pivot_row, j);
        pivot_row[j] = sqrt(hark_ridge_pivot(h->record, h->system, h->at.sequence->key_row + h->place[j], left, diagonal, h->added[j],
                                             HARK_RIDGE_PIVOT_F64));
      }
      for (int64_t i = hark_max(first, j + 1); i < end; i++) {
        double *row = h->factor + i * m;
        row[j] = (row[j] - dot(row, pivot_row, j)) / pivot_row[j];
      }
    }
  }
}

void hark_reference_ridge_solve(const ridge_head *h, int64_t n, double *x) {
  for (int64_t i = 0; i < n; i++) {
    const double *row = h->factor + i * h->keys;
    x[i] = (x[i] - dot(row, x, i)) / row[i];
  }
}

void hark_reference_ridge_solve_transposed(const ridge_head *h, int64_t n, double *x) {
  for (int64_t i = n - 1; i >= 0; i--) {
    const double *row = h->factor + i * h->keys;
    x[i] /= row[i];
    for (int64_t k = 0; k < i; k++) x[k] -= row[k] * x[i];
  }
}

bool hark_reference_ridge_read(const hark_attention_call *run, int64_t sequence, int64_t head, int64_t factor, double *memory,
                               hark_ridge_record *record, ridge_head *h) {
  const hark_attention_desc *desc = &run->plan->desc;
  const int64_t length = hark_ridge_most_keys(desc), d = desc->head_dim, dv = desc->value_dim;
  *h = (ridge_head){.at = hark_dense_head(run, NULL, sequence, head), .record = record, .system = sequence * desc->heads + head};
  h->key = memory;
  h->value = h->key + length * d;
  h->factor = h->value + length * dv;
  h->solved = h->factor + factor;
  for (int i = 0; i < 6; i++) h->rows[i] = h->solved + length * (dv + i);
  h->place = (int64_t *)(void *)(h->rows[5] + length);
  h->added = h->rows[5] + 2 * length;
  h->query = h->added + length;
  h->sums = h->query + d;
  if (!read_keys(h) || !hark_ridge_read(run, head, h->keys, h->system, record, &h->is)) return false;
  for (int64_t i = 0; i < h->keys; i++)
    if (!hark_ridge_added(&h->is, desc->type, hark_ridge_noise(run->args, h->at.sequence, head, h->place[i]), h->system,
                          h->at.sequence->key_row + h->place[i], record, &h->added[i]))
      return false;
  return true;
}

bool hark_reference_ridge_factorise(const hark_attention_call *run, int64_t sequence, int64_t head, double *memory,
                                    hark_ridge_record *record, ridge_head *h) {
  const int64_t length = hark_ridge_most_keys(&run->plan->desc), dv = run->plan->desc.value_dim;
  if (!hark_reference_ridge_read(run, sequence, head, length * length, memory, record, h) || !fill(h)) return false;
  factorise(h);
  if (record->system == h->system) return false; /* a pivot is not finite */
  for (int64_t i = 0; i < h->keys; i++) {        /* U = R^-1 V */
    const double *row = h->factor + i * h->keys;
    double *u = h->solved + i * dv;
    for (int64_t c = 0; c < dv; c++) u[c] = h->value[i * dv + c];
    for (int64_t k = 0; k < i; k++)
      for (int64_t c = 0; c < dv; c++) u[c] -= row[k] * h->solved[k * dv + c];
    for (int64_t c = 0; c < dv; c++) u[c] /= row[i];
  }
  return true;
}

int64_t hark_reference_ridge_seen(const ridge_head *h, int64_t row) {
  int64_t seen = h->keys;
  if (h->at.desc->causal)
    while (seen > 0 && h->place[seen - 1] > row + h->at.sequence->offset) seen--;
  return seen;
}

bool hark_reference_ridge_kernels(const ridge_head *h, int64_t row, int64_t seen, double *out) {
  const int64_t position = row + h->at.sequence->offset;
  const double limit = hark_ridge_exponent_limit(h->at.desc->type);
  for (int64_t i = 0; i < seen; i++) {
    const int64_t distance = position > h->place[i] ? position - h->place[i] : h->place[i] - position;
    const double exponent =
        hark_reference_ridge_exponent(h, h->query, h->key + i * h->at.desc->head_dim) + hark_reference_ridge_log_kernel(h, distance);
    if (!(exponent <= limit)) {
      hark_ridge_trouble(h->record, h->system, HARK_RIDGE_QUERY_RANGE, h->at.sequence->query_row + row, exponent);
      return false;
    }
    out[i] = exp(exponent);
  }
  return true;
}

bool hark_reference_ridge_own(const ridge_head *h, int64_t row, double *out) {
  *out = hark_reference_ridge_exponent(h, h->query, h->query) + hark_reference_ridge_log_kernel(h, 0);
  if (*out <= hark_ridge_exponent_limit(h->at.desc->type)) return true;
  hark_ridge_trouble(h->record, h->system, HARK_RIDGE_QUERY_RANGE, h->at.sequence->query_row + row, *out);
  return false;
}

int64_t hark_reference_ridge_statistic(const ridge_head *h, int64_t row) {
  return (h->at.sequence->item * h->at.desc->heads + h->at.head) * h->at.args->query.shape[2] + h->at.sequence->query_row + row;
}

/* log det of the leading n x n part of M, whose kernels were divided by e^shift. */
static double determinant(const ridge_head *h, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += 2 * log(h->factor[i * h->keys + i]) + h->is.shift;
  return sum;
}

/* V'M^-1 V of each column of values, with the leading n x n part of M: the sum of U^2. */
static void store_quadratic(const ridge_head *h, int64_t row, int64_t n) {
  const hark_attention_args *args = h->at.args;
  const int64_t dv = h->at.desc->value_dim, out = dense_query_index(&h->at, &args->quadratic, row);
  for (int64_t c = 0; c < dv; c++) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += h->solved[i * dv + c] * h->solved[i * dv + c];
    dense_put(&args->quadratic, out + c, sum * exp(-h->is.shift));
  }
}

/* One row of out and of the statistics. */
static bool forward_row(const ridge_head *h, int64_t row) {
  const hark_attention_args *args = h->at.args;
  const int64_t dv = h->at.desc->value_dim, seen = hark_reference_ridge_seen(h, row);
  double *z = h->rows[0], *sums = h->sums;
  if (!hark_reference_ridge_query(h, row) || !hark_reference_ridge_kernels(h, row, seen, z)) return false;
  hark_reference_ridge_solve(h, seen, z);
  for (int64_t c = 0; c < dv; c++) sums[c] = 0;
  double squares = 0;
  for (int64_t i = 0; i < seen; i++) {
    for (int64_t c = 0; c < dv; c++) sums[c] += z[i] * h->solved[i * dv + c];
    squares += z[i] * z[i];
  }
  const int64_t out = dense_query_index(&h->at, &args->out, row);
  for (int64_t c = 0; c < dv; c++) {
    dense_put(&args->out, out + c, sums[c]);
    if (isfinite(dense_get(&args->out, out + c))) continue;
    hark_ridge_trouble(h->record, h->system, HARK_RIDGE_BAD_RESULT, h->at.sequence->query_row + row, 0);
    return false;
  }
  if (args->log_determinant.type != HARK_NONE)
    dense_put(&args->log_determinant, hark_reference_ridge_statistic(h, row), determinant(h, seen));
  if (args->quadratic.type != HARK_NONE) store_quadratic(h, row, seen);
  if (args->variance.type == HARK_NONE) return true;
  double own;
  if (!hark_reference_ridge_own(h, row, &own)) return false;
  dense_put(&args->variance, hark_reference_ridge_statistic(h, row), hark_larger(exp(own) - squares, 0) * exp(h->is.shift));
  return true;
}

typedef struct forward_task {
  const hark_attention_call *run;
  ridge_memory memory;
} forward_task;

static void forward_head(void *data, int64_t index, int worker) {
  const forward_task *task = data;
  const int64_t heads = task->run->plan->desc.heads;
  ridge_head h;
  const bool fine =
      hark_reference_ridge_factorise(task->run, index / heads, index % heads,
                                     task->memory.scratch + task->memory.per_worker * (size_t)worker, &task->memory.records[worker], &h);
  if (!fine) return;
  for (int64_t row = 0; row < h.at.sequence->query_count; row++)
    if (!forward_row(&h, row)) return;
}

static hark_status forward(hark_context *context, const hark_attention_call *run) {
  forward_task task = {run, hark_reference_ridge_memory(context, run, false)};
  hark_parallel_for(context, run->sequence_count * run->plan->desc.heads, forward_head, &task);
  return hark_ridge_conclude(context, run, task.memory.records, true);
}

static int print(const hark_attention_plan *plan, char *text, size_t size) {
  return snprintf(text, size, "a whole factor in double a worker, %d workers", plan->workers);
}

const hark_attention_algorithm hark_reference_kernel_ridge = {
    .name = "kernel ridge by definition",
    .supports = supports,
    .sizes = sizes,
    .forward = forward,
    .backward = hark_reference_ridge_backward,
    .print = print,
};
