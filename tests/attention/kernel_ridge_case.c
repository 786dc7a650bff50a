/* kernel_ridge_case.c - see kernel_ridge_case.h. */
#include "kernel_ridge_case.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/core.h"

const char *const ridge_array_names[RIDGE_ARRAYS] = {
    "query",      "key",   "value",    "log_kernel",      "ridge",     "sigma",  "noise", "dout",   "dvariance",   "dlog_determinant",
    "dquadratic", "out",   "variance", "log_determinant", "quadratic", "dquery", "dkey",  "dvalue", "dlog_kernel", "dridge",
    "dsigma",     "dnoise"};

double ridge_before(int64_t i) { return 0.25 * (double)(i % 5) - 0.5; }

static double *need(int64_t count) {
  double *memory = calloc((size_t)(count > 0 ? count : 1), sizeof *memory);
  if (memory == NULL) exit(EXIT_FAILURE);
  return memory;
}

static bool read_word(ridge_problem *p, const char *word) {
  const struct {
    const char *name;
    bool *flag;
  } flags[] = {{"causal", &p->causal},
               {"rbf", &p->rbf},
               {"unit", &p->unit},
               {"bound", &p->bound},
               {"kernel", &p->kernel},
               {"shared", &p->shared},
               {"heads", &p->per_head},
               {"learned", &p->learned},
               {"power", &p->power},
               {"mask", &p->mask},
               {"perhead", &p->mask_heads},
               {"lengths", &p->lengths},
               {"ragged", &p->ragged},
               {"segments", &p->segments},
               {"accumulate", &p->accumulate},
               {"equal", &p->equal},
               {"roomy", &p->roomy},
               {"far", &p->far},
               {"dvariance", &p->dvariance},
               {"determinant", &p->determinant},
               {"quadratic", &p->quadratic},
               {"noise", &p->noise},
               {"plain", &p->plain},
               {"uneven", &p->uneven},
               {"iterate", &p->iterate}};
  for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++)
    if (strcmp(word, flags[i].name) == 0) return *flags[i].flag = true;
  const struct {
    const char *name;
    int64_t *number;
  } numbers[] = {{"iterations=", &p->iterations},
                 {"offset=", &p->offset},
                 {"layout=", &p->layout},
                 {"seed=", &p->seed},
                 {"threads=", &p->threads},
                 {"B", &p->batch},
                 {"H", &p->heads},
                 {"K", &p->key_heads},
                 {"L", &p->queries},
                 {"S", &p->keys},
                 {"D", &p->head_dim},
                 {"V", &p->value_dim}};
  for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
    const size_t length = strlen(numbers[i].name);
    if (strncmp(word, numbers[i].name, length) != 0) continue;
    *numbers[i].number = strtoll(word + length, NULL, 10);
    if (numbers[i].number == &p->offset) p->has_offset = true;
    return true;
  }
  if (strncmp(word, "tolerance=", 10) == 0) {
    p->tolerance = strtod(word + 10, NULL);
    return true;
  }
  if (strncmp(word, "ridge=", 6) != 0) return false;
  p->ridge = strtod(word + 6, NULL);
  return true;
}

/* Uniform in [low, high], an f32 number. */
static double draw(uint64_t *state, double low, double high) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return (double)(float)(low + (high - low) * (double)(*state >> 40) / 16777216.0);
}

static void fill(ridge_problem *p, ridge_array array, int64_t count, uint64_t *state, double low, double high) {
  p->count[array] = count;
  p->array[array] = need(count);
  for (int64_t i = 0; i < count; i++) p->array[array][i] = draw(state, low, high);
}

static void divide(ridge_problem *p) {
  if (p->lengths)
    for (int64_t b = 0; b < p->batch; b++) p->key_lengths[b] = b % 2 == 0 ? p->keys - p->keys / 3 : 0;
  if (p->batch == 1 && p->lengths) p->key_lengths[0] = p->keys - p->keys / 3;
  if (p->ragged) { /* three sequences, the second one empty on the key side */
    p->sequences = 3;
    const int64_t q[] = {0, p->queries / 2, p->queries / 2 + 1, p->queries}, k[] = {0, p->keys / 2, p->keys / 2, p->keys - 1};
    memcpy(p->query_offsets, q, sizeof q);
    memcpy(p->offsets, k, sizeof k);
  }
  if (!p->segments) return;
  p->ids = calloc((size_t)(p->batch * p->keys), sizeof *p->ids);
  assert_non_null(p->ids);
  for (int64_t i = 0; i < p->batch * p->keys; i++) {
    const int64_t at = i % p->keys;
    p->ids[i] = at < p->keys / 3 ? 4 : at < p->keys / 3 + 2 ? -1 : at < p->keys - 1 ? 2 : 9;
  }
}

void ridge_problem_make(const char *text, ridge_problem *out) {
  *out = (ridge_problem){.batch = 1, .heads = 1, .queries = 1, .head_dim = 4, .ridge = 0.25, .seed = 1, .threads = 2};
  snprintf(out->text, sizeof out->text, "%s", text);
  char copy[ATTENTION_CASE_BYTES], *rest = copy;
  snprintf(copy, sizeof copy, "%s", text);
  if (strncmp(copy, "cme:", 4) != 0) fail_msg("%s: expected cme:...", text);
  rest += 4;
  for (char *word = strtok(rest, ","); word != NULL; word = strtok(NULL, ","))
    if (!read_word(out, word)) fail_msg("%s: %s means nothing", text, word);
  ridge_problem *p = out;
  if (p->key_heads == 0) p->key_heads = p->heads;
  if (p->keys == 0) p->keys = p->queries;
  if (p->value_dim == 0) p->value_dim = p->head_dim;
  uint64_t state = (uint64_t)p->seed * 7919 + 12345;
  const double extent = sqrt(3.0 / (double)p->head_dim); /* rows of length about one */
  fill(p, RIDGE_QUERY, p->batch * p->heads * p->queries * p->head_dim, &state, -extent, extent);
  fill(p, RIDGE_KEY, p->batch * p->key_heads * p->keys * p->head_dim, &state, -extent, extent);
  fill(p, RIDGE_VALUE, p->batch * p->key_heads * p->keys * p->value_dim, &state, -1, 1);
  fill(p, RIDGE_DOUT, p->batch * p->heads * p->queries * p->value_dim, &state, -1, 1);
  if (p->equal)
    for (int64_t i = 0; i < p->batch * p->key_heads; i++)
      for (int64_t r = 1; r < p->keys; r += 2)
        memcpy(p->array[RIDGE_KEY] + (i * p->keys + r) * p->head_dim, p->array[RIDGE_KEY] + (i * p->keys + r - 1) * p->head_dim,
               (size_t)p->head_dim * sizeof(double));
  for (int a = RIDGE_QUERY; a <= RIDGE_KEY && p->far; a++)
    for (int64_t i = 0; i < p->count[a]; i++) p->array[a][i] = (double)(float)(p->array[a][i] + (i % p->head_dim % 2 == 0 ? 750 : -750));
  if (p->bound)
    for (int64_t i = 0; i < p->count[RIDGE_QUERY]; i++) p->array[RIDGE_QUERY][i] = (double)(float)(p->array[RIDGE_QUERY][i] * 0.5);
  p->scale = p->bound || p->unit ? 6 : 0.75; /* exp */
  p->sigma = 0.75;
  if (p->per_head || p->learned) {
    fill(p, RIDGE_RIDGE, p->per_head ? p->heads : 1, &state, 0.5 * p->ridge, 1.5 * p->ridge);
    if (p->rbf) fill(p, RIDGE_SIGMA, p->per_head ? p->heads : 1, &state, 0.5, 1.5);
  }
  if (p->kernel || p->shared) { /* exp(-rate t), which is positive definite, less than that at zero */
    p->distances = p->queries + p->keys + (p->offset > 0 ? p->offset : -p->offset);
    const int64_t tables = p->shared ? 1 : p->heads;
    fill(p, RIDGE_LOG_KERNEL, tables * p->distances, &state, 0, 0);
    for (int64_t i = 0; i < tables * p->distances; i++)
      p->array[RIDGE_LOG_KERNEL][i] = (double)(float)(-0.25 * (double)(i / p->distances + 1) * (double)(i % p->distances) + 0.125);
  }
  if (p->mask) {
    const int64_t count = p->batch * (p->mask_heads ? p->heads : 1) * p->keys;
    p->hidden = calloc((size_t)count, 1);
    assert_non_null(p->hidden);
    for (int64_t i = 0; i < count; i++) p->hidden[i] = draw(&state, 0, 1) < 0.7;
  }
  if (p->dvariance) fill(p, RIDGE_DVARIANCE, p->batch * p->heads * p->queries, &state, -1, 1);
  if (p->determinant) fill(p, RIDGE_DLOG_DETERMINANT, p->batch * p->heads * p->queries, &state, -1, 1);
  if (p->noise) fill(p, RIDGE_NOISE, p->batch * p->heads * p->keys, &state, 0.1, 0.6);
  for (int64_t i = 0; i < p->count[RIDGE_NOISE] && p->uneven; i++) p->array[RIDGE_NOISE][i] = (double)(float)pow(10, (double)(i % 7) - 3);
  if (p->quadratic) fill(p, RIDGE_DQUADRATIC, p->count[RIDGE_DOUT], &state, -1, 1);
  divide(p);
}

void ridge_problem_free(ridge_problem *p) {
  for (int i = 0; i < RIDGE_ARRAYS; i++) free(p->array[i]);
  free(p->hidden);
  free(p->ids);
  memset(p, 0, sizeof *p);
}

hark_attention_desc ridge_problem_desc(const ridge_problem *p, hark_type type) {
  hark_attention_desc desc = hark_attention_desc_default();
  const int64_t room = p->roomy ? 3 : 0;
  desc.type = type;
  desc.normalisation = HARK_NORMALISATION_CME;
  desc.kernel = p->rbf ? HARK_KERNEL_RBF : HARK_KERNEL_EXP;
  desc.batch = p->batch + room;
  desc.heads = p->heads;
  desc.key_heads = p->key_heads;
  desc.query_length = p->queries + room + (p->has_offset ? 2 * (p->offset > 0 ? p->offset : -p->offset) : 0);
  desc.key_length = p->keys + 2 * room;
  desc.head_dim = p->head_dim;
  desc.value_dim = p->value_dim;
  desc.max_sequences = p->ragged ? 3 : 0;
  for (int s = 0; s < 3 && p->ragged; s++) { /* memory is that of the longest sequence */
    desc.longest = hark_max(desc.longest, p->offsets[s + 1] - p->offsets[s]);
    desc.longest = hark_max(desc.longest, p->query_offsets[s + 1] - p->query_offsets[s]);
  }
  desc.causal = p->causal;
  desc.has_ridge = desc.has_sigma = p->per_head || p->learned;
  desc.has_sigma = desc.has_sigma && p->rbf;
  if (!p->rbf) desc.scale = p->scale;
  if (p->rbf && !desc.has_sigma) desc.sigma = p->sigma;
  if (!desc.has_ridge) desc.ridge = p->ridge;
  desc.ridge_power = p->power ? 0.75 : 0;
  desc.bound = p->bound ? 1 : 0;
  desc.unit = p->unit;
  desc.has_mask = p->mask;
  desc.has_segments = p->segments;
  desc.has_log_kernel = p->kernel || p->shared;
  desc.has_dvariance = p->dvariance;
  desc.has_dlog_determinant = p->determinant;
  desc.has_dquadratic = p->quadratic;
  desc.has_noise = p->noise;
  desc.solver = p->iterate ? HARK_SOLVER_CONJUGATE_GRADIENTS : HARK_SOLVER_FACTOR;
  desc.solver_tolerance = p->tolerance;
  desc.solver_iterations = p->iterations;
  return desc;
}

/* ---- the definition ---- */

typedef struct place {
  int64_t sequence, row, first, keys, offset; /* of a query: its sequence, its number in it, first key row and number of keys */
} place;

static place place_of(const ridge_problem *p, int64_t item, int64_t row) {
  if (p->ragged) {
    for (int64_t s = 0; s < p->sequences; s++) {
      if (row < p->query_offsets[s] || row >= p->query_offsets[s + 1]) continue;
      const int64_t keys = p->offsets[s + 1] - p->offsets[s], queries = p->query_offsets[s + 1] - p->query_offsets[s];
      const int64_t offset = p->has_offset ? p->offset : p->causal ? keys - queries : 0;
      return (place){s, row - p->query_offsets[s], p->offsets[s], keys, offset};
    }
    return (place){.sequence = -1};
  }
  if (p->segments) {
    const int64_t *ids = p->ids + item * p->keys;
    if (ids[row] < 0) return (place){.sequence = -1};
    int64_t first = row, end = row;
    while (first > 0 && ids[first - 1] == ids[row]) first--;
    while (end < p->keys && ids[end] == ids[row]) end++;
    return (place){item, row - first, first, end - first, 0};
  }
  const int64_t keys = p->lengths ? p->key_lengths[item] : p->keys;
  return (place){item, row, 0, keys, p->has_offset ? p->offset : p->causal ? p->keys - p->queries : 0};
}

/* x / |x| where asked for. */
static void row_of(const ridge_problem *p, const double *from, double *out) {
  double squares = 0;
  for (int64_t c = 0; c < p->head_dim; c++) squares += from[c] * from[c];
  for (int64_t c = 0; c < p->head_dim; c++) out[c] = p->unit && squares > 0 ? from[c] / sqrt(squares) : from[c];
}

static double kernel_of(const ridge_problem *p, int64_t head, const double *x0, const double *y0, int64_t distance) {
  double x[256], y[256], product = 0, square = 0;
  row_of(p, x0, x);
  row_of(p, y0, y);
  for (int64_t c = 0; c < p->head_dim; c++) {
    product += x[c] * y[c];
    square += (x[c] - y[c]) * (x[c] - y[c]);
  }
  const double sigma = p->array[RIDGE_SIGMA] != NULL ? p->array[RIDGE_SIGMA][p->per_head ? head : 0] : p->sigma;
  double value = p->rbf ? exp(-square / (2 * sigma * sigma)) : exp(p->scale * product);
  const double *table = p->array[RIDGE_LOG_KERNEL];
  if (table != NULL) value *= exp(table[(p->shared ? 0 : head) * p->distances + (distance < 0 ? -distance : distance)]);
  return value;
}

/* Solves a x = b with `columns` right-hand sides in place, pivoting by rows; returns log |det a|. */
static double eliminate(int64_t n, double *a, int64_t columns, double *b) {
  for (int64_t i = 0; i < n; i++) {
    int64_t best = i;
    for (int64_t r = i + 1; r < n; r++)
      if (fabs(a[r * n + i]) > fabs(a[best * n + i])) best = r;
    for (int64_t c = 0; c < n && best != i; c++) {
      const double t = a[i * n + c];
      a[i * n + c] = a[best * n + c];
      a[best * n + c] = t;
    }
    for (int64_t c = 0; c < columns && best != i; c++) {
      const double t = b[i * columns + c];
      b[i * columns + c] = b[best * columns + c];
      b[best * columns + c] = t;
    }
    for (int64_t r = i + 1; r < n; r++) {
      const double factor = a[r * n + i] / a[i * n + i];
      for (int64_t c = i; c < n; c++) a[r * n + c] -= factor * a[i * n + c];
      for (int64_t c = 0; c < columns; c++) b[r * columns + c] -= factor * b[i * columns + c];
    }
  }
  double determinant = 0;
  for (int64_t i = 0; i < n; i++) determinant += log(fabs(a[i * n + i]));
  for (int64_t i = n - 1; i >= 0; i--)
    for (int64_t c = 0; c < columns; c++) {
      for (int64_t k = i + 1; k < n; k++) b[i * columns + c] -= a[i * n + k] * b[k * columns + c];
      b[i * columns + c] /= a[i * n + i];
    }
  return determinant;
}

static double noise_of(const ridge_problem *p, int64_t item, int64_t head, int64_t key) {
  return p->noise ? p->array[RIDGE_NOISE][(item * p->heads + head) * p->keys + key] : 0;
}

#define MOST_INVERTED 96 /* keys of a system whose trace(M^-1) is computed; it is at most n / lambda */

/* One query of one head. The bound: with M computed as M + E and kappa as kappa + e, |E_ij| <= c u M_ij from exponents and a factorisation
 * whose backward error is at most c n u trace(M) / n, so |dy| <= |V^T M^-1| (|e| + |E| |M^-1 kappa|) in norms; c covers exponents up to 8
 * and the rounding of products of d terms. The logarithm of the determinant is off by trace(M^-1 E), at most trace(M^-1) |E|, and a
 * quadratic form by alpha^T E alpha, at most |alpha|^2 |E|, and by its own rounding. */
static void expect_row(const ridge_problem *p, int64_t item, int64_t head, int64_t row, const place *at, double *work,
                       ridge_expected *out) {
  const int64_t d = p->head_dim, dv = p->value_dim, key_head = head / (p->heads / p->key_heads),
                index = (item * p->heads + head) * p->queries + row;
  const double *q = p->array[RIDGE_QUERY] + index * d;
  const double *keys = p->array[RIDGE_KEY] + ((item * p->key_heads + key_head) * p->keys + at->first) * d;
  const double *values = p->array[RIDGE_VALUE] + ((item * p->key_heads + key_head) * p->keys + at->first) * dv;
  int64_t seen[4096], visible = 0, n = 0;
  assert_true(at->keys <= 4096);
  for (int64_t i = 0; i < at->keys; i++) {
    const int64_t h = p->mask_heads ? head : 0, heads = p->mask_heads ? p->heads : 1;
    if (p->mask && p->hidden[(item * heads + h) * p->keys + at->first + i] == 0) continue;
    visible++;
    if (!p->causal || i <= at->row + at->offset) seen[n++] = i;
  }
  double *a = work, *b = a + n * n, lambda = p->array[RIDGE_RIDGE] != NULL ? p->array[RIDGE_RIDGE][p->per_head ? head : 0] : p->ridge;
  if (p->power) lambda *= pow((double)visible, 0.75);
  const int64_t inverse = n <= MOST_INVERTED ? n : 0, columns = dv + 1 + inverse;
  double *kappa = b + n * columns, trace = 0;
  for (int64_t i = 0; i < n; i++) {
    for (int64_t j = 0; j < n; j++)
      a[i * n + j] = kernel_of(p, head, keys + seen[i] * d, keys + seen[j] * d, seen[i] - seen[j]) +
                     (i == j ? lambda + noise_of(p, item, head, at->first + seen[i]) : 0);
    trace += a[i * n + i];
    kappa[i] = b[i * columns] = kernel_of(p, head, q, keys + seen[i] * d, at->row + at->offset - seen[i]);
    for (int64_t c = 0; c < dv; c++) b[i * columns + 1 + c] = values[seen[i] * dv + c];
    for (int64_t c = 0; c < inverse; c++) b[i * columns + 1 + dv + c] = i == c;
  }
  double least = INFINITY; /* diagonal entry beside the kernel's */
  for (int64_t i = 0; i < n; i++) least = fmin(least, lambda + noise_of(p, item, head, at->first + seen[i]));
  out->log_determinant[index] = eliminate(n, a, columns, b);
  double inverse_trace = inverse > 0 ? 0 : (double)n / least;
  for (int64_t c = 0; c < inverse; c++) inverse_trace += b[c * columns + 1 + dv + c];
  const double own = kernel_of(p, head, q, q, 0), weight = 64 + (double)d + 4 * (double)n;
  double explained = 0, kappa_norm = 0, solved_norm = 0;
  for (int64_t i = 0; i < n; i++) {
    explained += kappa[i] * b[i * columns];
    kappa_norm += kappa[i] * kappa[i];
    solved_norm += b[i * columns] * b[i * columns];
  }
  const double error = weight * (sqrt(kappa_norm) + trace * sqrt(solved_norm));
  out->log_determinant_bound[index] = weight * trace * inverse_trace + fabs(out->log_determinant[index]);
  out->variance[index] = own - explained;
  out->variance_bound[index] = weight * own + 2 * error * sqrt(solved_norm);
  for (int64_t c = 0; c < dv; c++) {
    double sum = 0, alpha = 0;
    for (int64_t i = 0; i < n; i++) {
      sum += values[seen[i] * dv + c] * b[i * columns];
      alpha += b[i * columns + 1 + c] * b[i * columns + 1 + c];
    }
    out->out[index * dv + c] = sum;
    out->out_bound[index * dv + c] = error * sqrt(alpha) + 1;
    for (int64_t i = 0; i < n; i++) out->quadratic[index * dv + c] += values[seen[i] * dv + c] * b[i * columns + 1 + c];
    out->quadratic_bound[index * dv + c] = weight * (trace * alpha + out->quadratic[index * dv + c]);
  }
}

void ridge_expected_rows(const ridge_problem *p, int64_t count, const int64_t *chosen, ridge_expected *out) {
  const int64_t rows = p->batch * p->heads * p->queries, n = p->keys;
  *out = (ridge_expected){need(rows * p->value_dim), need(rows), need(rows), need(rows * p->value_dim),
                          need(rows * p->value_dim), need(rows), need(rows), need(rows * p->value_dim)};
  double *work = need(n * n + n * (p->value_dim + 2 + MOST_INVERTED));
  for (int64_t item = 0; item < p->batch; item++)
    for (int64_t head = 0; head < p->heads; head++)
      for (int64_t i = 0; i < count; i++) {
        const int64_t row = chosen != NULL ? chosen[i] : i;
        const place at = place_of(p, item, row);
        if (at.sequence >= 0) expect_row(p, item, head, row, &at, work, out);
      }
  free(work);
}

void ridge_expected_make(const ridge_problem *p, ridge_expected *out) { ridge_expected_rows(p, p->queries, NULL, out); }

void ridge_expected_free(ridge_expected *expected) {
  free(expected->out);
  free(expected->variance);
  free(expected->log_determinant);
  free(expected->log_determinant_bound);
  free(expected->quadratic);
  free(expected->quadratic_bound);
  free(expected->out_bound);
  free(expected->variance_bound);
}

/* ---- runs ---- */

/* Tensors of a run, in memory of the test's: the backends under test compute on host memory. */
typedef struct place_of_run {
  hark_tensor tensor[RIDGE_ARRAYS];
  void *memory[RIDGE_ARRAYS];
} place_of_run;

static void put(void *data, hark_type type, int64_t i, double value) {
  if (type == HARK_F64)
    ((double *)data)[i] = value;
  else
    ((float *)data)[i] = (float)value;
}

static double get(const void *data, hark_type type, int64_t i) {
  return type == HARK_F64 ? ((const double *)data)[i] : (double)((const float *)data)[i];
}

/* [B, H, L, d] in layout 0, else [B, L, H, d] with three numbers between rows. */
static void place_array(const ridge_problem *p, hark_type type, ridge_array array, int rank, const int64_t *shape, place_of_run *run) {
  hark_tensor *t = &run->tensor[array];
  *t = (hark_tensor){.type = type, .rank = rank};
  int64_t next = 1;
  for (int i = rank - 1; i >= 0; i--) {
    t->shape[i] = shape[i];
    t->stride[i] = next;
    next *= shape[i];
  }
  if (rank == 4 && p->layout == 1) {
    t->stride[1] = shape[3] + 3;
    t->stride[2] = shape[1] * t->stride[1];
    t->stride[0] = shape[2] * t->stride[2];
    next = shape[0] * t->stride[0];
  }
  if (array == RIDGE_NOISE && p->layout == 1) { /* [Lk, H, B] with a number between keys */
    t->stride[0] = 1;
    t->stride[1] = shape[0];
    t->stride[2] = shape[0] * shape[1] + 1;
    next = shape[2] * t->stride[2];
  }
  run->memory[array] = calloc((size_t)next, hark_type_bytes(type));
  assert_non_null(run->memory[array]);
  t->data = run->memory[array];
}

static int64_t element(const hark_tensor *t, int64_t i) {
  int64_t at = 0;
  for (int k = t->rank - 1; k >= 0; k--) {
    at += i % t->shape[k] * t->stride[k];
    i /= t->shape[k];
  }
  return at;
}

static const ridge_array gradient_of[] = {
    [RIDGE_DQUERY] = RIDGE_QUERY, [RIDGE_DKEY] = RIDGE_KEY,     [RIDGE_DVALUE] = RIDGE_VALUE, [RIDGE_DLOG_KERNEL] = RIDGE_LOG_KERNEL,
    [RIDGE_DRIDGE] = RIDGE_RIDGE, [RIDGE_DSIGMA] = RIDGE_SIGMA, [RIDGE_DNOISE] = RIDGE_NOISE};

ridge_array ridge_input_of(ridge_array gradient) { return gradient_of[gradient]; }

int64_t ridge_count_of(const ridge_problem *p, ridge_array array) {
  if (array < RIDGE_OUT) return p->count[array];
  if (array == RIDGE_OUT || array == RIDGE_QUADRATIC) return p->count[RIDGE_DOUT];
  return array >= RIDGE_DQUERY ? p->count[gradient_of[array]] : p->batch * p->heads * p->queries;
}

static void place_all(const ridge_problem *p, hark_type type, place_of_run *run) {
  const int64_t query[] = {p->batch, p->heads, p->queries, p->head_dim}, key[] = {p->batch, p->key_heads, p->keys, p->head_dim};
  const int64_t value[] = {p->batch, p->key_heads, p->keys, p->value_dim}, out[] = {p->batch, p->heads, p->queries, p->value_dim};
  const int64_t table[] = {p->shared ? 1 : p->heads, p->distances}, vector[] = {p->per_head ? p->heads : 1},
                noise[] = {p->batch, p->heads, p->keys};
  const struct {
    int rank;
    const int64_t *shape;
  } shapes[RIDGE_ARRAYS] = {[RIDGE_QUERY] = {4, query},
                            [RIDGE_KEY] = {4, key},
                            [RIDGE_VALUE] = {4, value},
                            [RIDGE_LOG_KERNEL] = {2, table},
                            [RIDGE_RIDGE] = {1, vector},
                            [RIDGE_SIGMA] = {1, vector},
                            [RIDGE_DOUT] = {4, out},
                            [RIDGE_OUT] = {4, out},
                            [RIDGE_VARIANCE] = {3, query},
                            [RIDGE_DVARIANCE] = {3, query},
                            [RIDGE_LOG_DETERMINANT] = {3, query},
                            [RIDGE_DLOG_DETERMINANT] = {3, query},
                            [RIDGE_QUADRATIC] = {4, out},
                            [RIDGE_DQUADRATIC] = {4, out},
                            [RIDGE_NOISE] = {3, noise},
                            [RIDGE_DNOISE] = {3, noise},
                            [RIDGE_DQUERY] = {4, query},
                            [RIDGE_DKEY] = {4, key},
                            [RIDGE_DVALUE] = {4, value},
                            [RIDGE_DLOG_KERNEL] = {2, table},
                            [RIDGE_DRIDGE] = {1, vector},
                            [RIDGE_DSIGMA] = {1, vector}};
  for (int a = 0; a < RIDGE_ARRAYS; a++) {
    const bool input = a < RIDGE_OUT, gradient = a >= RIDGE_DQUERY;
    if ((input && p->array[a] == NULL) || (gradient && p->array[gradient_of[a]] == NULL)) continue;
    place_array(p, type, (ridge_array)a, shapes[a].rank, shapes[a].shape, run);
    const int64_t count = hark_tensor_count(&run->tensor[a]);
    for (int64_t i = 0; i < count; i++)
      put(run->memory[a], type, element(&run->tensor[a], i), input ? p->array[a][i] : p->accumulate && gradient ? ridge_before(i) : NAN);
  }
}

/* Bytes of lines that are no longer as memset left them. */
static size_t touched_bytes(const unsigned char *memory, size_t bytes, unsigned char filling) {
  size_t touched = 0;
  for (size_t line = 0; line < bytes; line += HARK_ALIGNMENT) {
    const size_t length = bytes - line < HARK_ALIGNMENT ? bytes - line : HARK_ALIGNMENT;
    for (size_t i = 0; i < length; i++)
      if (memory[line + i] != filling) {
        touched += length;
        break;
      }
  }
  return touched;
}

bool ridge_run_on(const attention_machine *machine, const ridge_problem *p, ridge_results *out) {
  *out = (ridge_results){0};
  hark_context *context = attention_machine_open(machine, p->threads);
  if (context == NULL) return false;
  const hark_attention_desc desc = ridge_problem_desc(p, machine->type);
  hark_attention_plan *plan;
  const hark_status planned = hark_attention_plan_create(context, &desc, &plan);
  if (planned != HARK_OK) fail_msg("%s on %s: %s", p->text, machine->name, hark_context_message(context));
  const hark_attention_sizes sizes = hark_attention_plan_sizes(plan);
  const size_t bytes = sizes.forward_workspace > sizes.backward_workspace ? sizes.forward_workspace : sizes.backward_workspace;
  void *workspace = aligned_alloc(HARK_ALIGNMENT, bytes + HARK_ALIGNMENT);
  assert_non_null(workspace);
  assert_int_equal(sizes.saved, 0);
  place_of_run run = {0};
  place_all(p, machine->type, &run);
  hark_attention_args args = {.struct_size = sizeof args,
                              .query = run.tensor[RIDGE_QUERY],
                              .key = run.tensor[RIDGE_KEY],
                              .value = run.tensor[RIDGE_VALUE],
                              .out = run.tensor[RIDGE_OUT],
                              .log_kernel = run.tensor[RIDGE_LOG_KERNEL],
                              .ridge = run.tensor[RIDGE_RIDGE],
                              .sigma = run.tensor[RIDGE_SIGMA],
                              .noise = run.tensor[RIDGE_NOISE],
                              .variance = run.tensor[RIDGE_VARIANCE],
                              .log_determinant = run.tensor[RIDGE_LOG_DETERMINANT],
                              .quadratic = run.tensor[RIDGE_QUADRATIC],
                              .key_lengths = p->lengths ? p->key_lengths : NULL,
                              .query_offsets = p->ragged ? p->query_offsets : NULL,
                              .key_offsets = p->ragged ? p->offsets : NULL,
                              .sequences = p->ragged ? p->sequences : 0,
                              .segments = p->ids,
                              .has_query_offset = p->has_offset,
                              .query_offset = p->offset,
                              .report = &out->report,
                              .workspace = workspace};
  if (p->plain) args.variance = args.log_determinant = args.quadratic = (hark_tensor){0};
  if (p->mask)
    args.mask = (hark_tensor){.data = p->hidden,
                              .type = HARK_U8,
                              .rank = 4,
                              .shape = {p->batch, p->mask_heads ? p->heads : 1, 1, p->keys},
                              .stride = {(p->mask_heads ? p->heads : 1) * p->keys, p->keys, p->keys, 1}};
  unsigned char *canary = (unsigned char *)workspace + sizes.forward_workspace;
  memset(workspace, 0xff, bytes); /* NaN */
  memset(canary, 0x5a, HARK_ALIGNMENT);
  out->status = hark_attention_forward(context, plan, &args);
  for (int i = 0; i < HARK_ALIGNMENT; i++)
    if (canary[i] != 0x5a) fail_msg("%s on %s: the forward wrote beyond its workspace", p->text, machine->name);
  snprintf(out->message, sizeof out->message, "%s", hark_context_message(context));
  out->workspace[0] = sizes.forward_workspace;
  out->workspace[1] = sizes.backward_workspace;
  out->touched[0] = touched_bytes(workspace, sizes.forward_workspace, 0xff);
  if (out->status == HARK_OK) {
    args.dout = run.tensor[RIDGE_DOUT];
    args.dvariance = run.tensor[RIDGE_DVARIANCE];
    args.dlog_determinant = run.tensor[RIDGE_DLOG_DETERMINANT];
    args.dquadratic = run.tensor[RIDGE_DQUADRATIC];
    args.dquery = run.tensor[RIDGE_DQUERY];
    args.dkey = run.tensor[RIDGE_DKEY];
    args.dvalue = run.tensor[RIDGE_DVALUE];
    args.dlog_kernel = run.tensor[RIDGE_DLOG_KERNEL];
    args.dridge = run.tensor[RIDGE_DRIDGE];
    args.dsigma = run.tensor[RIDGE_DSIGMA];
    args.dnoise = run.tensor[RIDGE_DNOISE];
    args.accumulate = p->accumulate ? ~0u : 0;
    memset(workspace, 0xff, bytes);
    canary = (unsigned char *)workspace + sizes.backward_workspace;
    memset(canary, 0x5a, HARK_ALIGNMENT);
    const uint64_t before = hark_context_memory(context).allocations;
    out->status = hark_attention_backward(context, plan, &args);
    if (out->status != HARK_OK && !p->plain) fail_msg("%s on %s: %s", p->text, machine->name, hark_context_message(context));
    snprintf(out->message, sizeof out->message, "%s", hark_context_message(context));
    assert_int_equal(hark_context_memory(context).allocations, before);
    out->touched[1] = touched_bytes(workspace, sizes.backward_workspace, 0xff);
    for (int i = 0; i < HARK_ALIGNMENT; i++)
      if (canary[i] != 0x5a) fail_msg("%s on %s: the backward wrote beyond its workspace", p->text, machine->name);
  }
  for (int a = 0; a < RIDGE_ARRAYS; a++) {
    if (run.memory[a] == NULL) continue;
    const int64_t count = hark_tensor_count(&run.tensor[a]);
    if (a >= RIDGE_OUT) out->array[a] = need(count);
    for (int64_t i = 0; i < count; i++) {
      const double have = get(run.memory[a], machine->type, element(&run.tensor[a], i));
      if (a >= RIDGE_OUT)
        out->array[a][i] = have;
      else if (!(have == p->array[a][i]) && !isnan(p->array[a][i]))
        fail_msg("%s on %s: %s was written to", p->text, machine->name, ridge_array_names[a]);
    }
    free(run.memory[a]);
  }
  free(workspace);
  hark_attention_plan_destroy(context, &plan);
  hark_context_destroy(&context);
  return true;
}

void ridge_results_free(ridge_results *results) {
  for (int a = 0; a < RIDGE_ARRAYS; a++) free(results->array[a]);
  memset(results, 0, sizeof *results);
}

void ridge_assert_same_bits(const attention_machine *machine, ridge_problem *p, size_t count, const int64_t *threads) {
  ridge_results one, many;
  p->threads = 1;
  if (!ridge_run_on(machine, p, &one)) return;
  assert_int_equal(one.status, HARK_OK);
  for (size_t n = 0; n < count; n++) {
    p->threads = threads[n];
    assert_true(ridge_run_on(machine, p, &many));
    for (int a = RIDGE_OUT; a < RIDGE_ARRAYS; a++)
      if (one.array[a] != NULL && memcmp(one.array[a], many.array[a], (size_t)ridge_count_of(p, (ridge_array)a) * sizeof(double)) != 0)
        fail_msg("%s on %s: other bits of %s with %d threads", p->text, machine->name, ridge_array_names[a], (int)threads[n]);
    ridge_results_free(&many);
  }
  ridge_results_free(&one);
}
