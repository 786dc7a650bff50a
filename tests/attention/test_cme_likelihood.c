/* test_cme_likelihood.c - the log marginal likelihood of a Gaussian process by kernel ridge (CME) attention, on every machine, against its
 * closed form by elimination in f64:
 *
 *     L = log N(y; 0, M) = -1/2 (y' M^-1 y + log det M + n log 2 pi),   M = kappa(K, K) + D,   D = lambda I + diag(noise)
 *     dL / dM = 1/2 (alpha alpha' - M^-1),   alpha = M^-1 y
 *
 * once by full attention with the keys as queries, out = y - D alpha, and the log-determinant; once by causal attention with
 * query_offset -1, in which row n predicts y_n from the pairs before it: L = sum over n of log N(y_n; out_n, var_n + D_nn); and by the
 * quadratic form and the log-determinant of one row that sees all keys, full and causal. All with the gradients by keys, ridge, sigma and
 * noise; the last also by y.
 */
#include "kernel_ridge_case.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DIM = 3, MOST = 70 };
#define LOG_2_PI 1.8378770664093454836

enum {
  QUERY,
  KEY,
  VALUE,
  RIDGE,
  SIGMA,
  NOISE,
  DOUT,
  DVARIANCE,
  DLOG_DETERMINANT,
  DQUADRATIC,
  OUT,
  VARIANCE,
  LOG_DETERMINANT,
  QUADRATIC,
  DQUERY,
  DKEY,
  DVALUE,
  DRIDGE,
  DSIGMA,
  DNOISE,
  ARRAYS
};

typedef struct process {
  int64_t n;
  bool noisy;
  double x[MOST * DIM], y[MOST], noise[MOST], ridge, sigma;
} process;

typedef struct likelihood {
  double value, determinant, dx[MOST * DIM], dy[MOST], dnoise[MOST], dridge, dsigma;
} likelihood;

/* Numbers of f32, so that every machine computes the same process. */
static process make(int64_t n, double ridge, bool noisy) {
  process p = {.n = n, .noisy = noisy, .ridge = ridge, .sigma = 0.75};
  for (int64_t i = 0; i < n * DIM; i++) p.x[i] = (double)(float)(2 * sin(1.7 * (double)(i + 1) + 0.1 * (double)(i * i % 97)));
  for (int64_t i = 0; i < n; i++) p.y[i] = (double)(float)(sin(p.x[i * DIM]) + 0.3 * cos(5 * (double)i));
  for (int64_t i = 0; i < n && noisy; i++) p.noise[i] = (double)(float)(0.25 + 0.2 * cos((double)i));
  return p;
}

/* D_ii */
static double added(const process *p, int64_t i) { return p->ridge + p->noise[i]; }

static double kernel(const process *p, int64_t i, int64_t j) {
  double square = 0;
  for (int c = 0; c < DIM; c++) square += pow(p->x[i * DIM + c] - p->x[j * DIM + c], 2);
  return exp(-square / (2 * p->sigma * p->sigma));
}

/* Replaces a [n, n] by its inverse (Gauss and Jordan; M is positive definite); returns log det. */
static double invert(int64_t n, double *a) {
  double determinant = 0;
  for (int64_t k = 0; k < n; k++) {
    const double pivot = a[k * n + k];
    determinant += log(pivot);
    a[k * n + k] = 1;
    for (int64_t j = 0; j < n; j++) a[k * n + j] /= pivot;
    for (int64_t i = 0; i < n; i++) {
      if (i == k) continue;
      const double factor = a[i * n + k];
      a[i * n + k] = 0;
      for (int64_t j = 0; j < n; j++) a[i * n + j] -= factor * a[k * n + j];
    }
  }
  return determinant;
}

static likelihood closed_form(const process *p) {
  static double inverse[MOST * MOST], alpha[MOST];
  const int64_t n = p->n;
  likelihood l = {0};
  for (int64_t i = 0; i < n; i++)
    for (int64_t j = 0; j < n; j++) inverse[i * n + j] = kernel(p, i, j) + (i == j ? added(p, i) : 0);
  l.determinant = invert(n, inverse);
  l.value = -0.5 * (l.determinant + (double)n * LOG_2_PI);
  for (int64_t i = 0; i < n; i++) {
    alpha[i] = 0;
    for (int64_t j = 0; j < n; j++) alpha[i] += inverse[i * n + j] * p->y[j];
    l.value -= 0.5 * p->y[i] * alpha[i];
    l.dy[i] = -alpha[i];
  }
  for (int64_t i = 0; i < n; i++)
    for (int64_t j = 0; j < n; j++) {
      const double dm = 0.5 * (alpha[i] * alpha[j] - inverse[i * n + j]), dkernel = dm * kernel(p, i, j);
      if (i == j) l.dridge += l.dnoise[i] = dm;
      for (int c = 0; c < DIM; c++) {
        const double apart = p->x[i * DIM + c] - p->x[j * DIM + c];
        l.dx[i * DIM + c] -= 2 * dkernel * apart / pow(p->sigma, 2); /* (i, j) and (j, i) */
        l.dsigma += dkernel * apart * apart / pow(p->sigma, 3);
      }
    }
  return l;
}

/* One plan with its arguments. */
typedef struct run {
  hark_context *context;
  hark_attention_plan *plan;
  hark_attention_args args;
  hark_type type;
  void *memory[ARRAYS], *workspace;
} run;

static double get(const run *r, int array, int64_t i) {
  return r->type == HARK_F64 ? ((double *)r->memory[array])[i] : (double)((float *)r->memory[array])[i];
}

static void put(const run *r, int array, int64_t i, double x) {
  if (r->type == HARK_F64)
    ((double *)r->memory[array])[i] = x;
  else
    ((float *)r->memory[array])[i] = (float)x;
}

static void give(run *r, int array, int rank, const int64_t *shape, const double *numbers, hark_tensor *out) {
  r->memory[array] = calloc(MOST * DIM, sizeof(double));
  assert_non_null(r->memory[array]);
  assert_int_equal(hark_tensor_wrap(r->context, r->memory[array], r->type, rank, shape, NULL, out), HARK_OK);
  for (int64_t i = 0; numbers != NULL && i < hark_tensor_count(out); i++) put(r, array, i, numbers[i]);
}

/* Runs the forward; false if the machine is not there. */
static bool begin(const attention_machine *machine, const process *p, bool causal, bool quadratic, run *r) {
  *r = (run){.context = attention_machine_open(machine, 2), .type = machine->type};
  if (r->context == NULL) return false;
  hark_attention_desc desc = hark_attention_desc_default();
  desc.type = machine->type;
  desc.normalisation = HARK_NORMALISATION_CME;
  desc.kernel = HARK_KERNEL_RBF;
  desc.batch = desc.heads = desc.value_dim = 1;
  desc.query_length = desc.key_length = p->n;
  desc.head_dim = DIM;
  desc.causal = causal;
  desc.has_ridge = desc.has_sigma = true;
  desc.has_noise = p->noisy;
  desc.has_dvariance = causal && !quadratic;
  desc.has_dlog_determinant = !causal || quadratic;
  desc.has_dquadratic = quadratic;
  assert_int_equal(hark_attention_plan_create(r->context, &desc, &r->plan), HARK_OK);
  hark_attention_args *a = &r->args;
  const int64_t rows[] = {1, 1, p->n, DIM}, values[] = {1, 1, p->n, 1}, one[] = {1};
  a->struct_size = sizeof *a;
  give(r, QUERY, 4, rows, p->x, &a->query);
  give(r, KEY, 4, rows, p->x, &a->key);
  give(r, VALUE, 4, values, p->y, &a->value);
  give(r, RIDGE, 1, one, &p->ridge, &a->ridge);
  give(r, SIGMA, 1, one, &p->sigma, &a->sigma);
  if (p->noisy) give(r, NOISE, 3, rows, p->noise, &a->noise);
  if (p->noisy) give(r, DNOISE, 3, rows, NULL, &a->dnoise);
  give(r, OUT, 4, values, NULL, &a->out);
  give(r, VARIANCE, 3, rows, NULL, &a->variance);
  give(r, LOG_DETERMINANT, 3, rows, NULL, &a->log_determinant);
  give(r, QUADRATIC, 4, values, NULL, &a->quadratic);
  give(r, DQUADRATIC, 4, values, NULL, &a->dquadratic);
  give(r, DVALUE, 4, values, NULL, &a->dvalue);
  give(r, DOUT, 4, values, NULL, &a->dout);
  give(r, DVARIANCE, 3, rows, NULL, &a->dvariance);
  give(r, DLOG_DETERMINANT, 3, rows, NULL, &a->dlog_determinant);
  give(r, DQUERY, 4, rows, NULL, &a->dquery);
  give(r, DKEY, 4, rows, NULL, &a->dkey);
  give(r, DRIDGE, 1, one, NULL, &a->dridge);
  give(r, DSIGMA, 1, one, NULL, &a->dsigma);
  if (desc.has_dlog_determinant == 0) a->dlog_determinant = (hark_tensor){0};
  if (desc.has_dvariance == 0) a->dvariance = (hark_tensor){0};
  if (quadratic)
    a->dout = (hark_tensor){0};
  else
    a->dquadratic = (hark_tensor){0};
  a->has_query_offset = causal && !quadratic;
  a->query_offset = a->has_query_offset ? -1 : 0;
  const hark_attention_sizes sizes = hark_attention_plan_sizes(r->plan);
  a->workspace = r->workspace = aligned_alloc(64, ((sizes.forward_workspace + sizes.backward_workspace) / 64 + 1) * 64);
  assert_non_null(r->workspace);
  if (hark_attention_forward(r->context, r->plan, a) != HARK_OK) fail_msg("%s: %s", machine->name, hark_context_message(r->context));
  return true;
}

/* Runs the backward, and adds it to the derivatives that have been computed beside attention. */
static void finish(const process *p, run *r, likelihood *out) {
  if (hark_attention_backward(r->context, r->plan, &r->args) != HARK_OK) fail_msg("%s", hark_context_message(r->context));
  for (int64_t i = 0; i < p->n * DIM; i++) out->dx[i] = get(r, DQUERY, i) + get(r, DKEY, i);
  for (int64_t i = 0; i < p->n; i++) out->dy[i] = get(r, DVALUE, i);
  out->dridge += get(r, DRIDGE, 0);
  out->dsigma = get(r, DSIGMA, 0);
  for (int64_t i = 0; i < p->n && p->noisy; i++) out->dnoise[i] += get(r, DNOISE, i);
  for (int i = 0; i < ARRAYS; i++) free(r->memory[i]);
  free(r->workspace);
  hark_attention_plan_destroy(r->context, &r->plan);
  hark_context_destroy(&r->context);
}

/* f32: 64 roundoffs times the condition, at most n over the least of D. */
static double tolerance(const attention_machine *machine, const process *p) {
  return machine->type == HARK_F64 ? 1e-8 : 64 * 0x1p-24 * (double)p->n / (p->ridge + (p->noisy ? 0.05 : 0));
}

static void expect(const char *what, const attention_machine *machine, double have, double want, double within) {
  if (!(fabs(have - want) <= within * fmax(1, fabs(want)))) fail_msg("%s on %s is %.12g, expected %.12g", what, machine->name, have, want);
}

/* y' alpha = sum of y (y - out) / D. */
static bool by_determinant(const attention_machine *machine, const process *p, likelihood *out) {
  run r;
  *out = (likelihood){0};
  if (!begin(machine, p, false, false, &r)) return false;
  out->determinant = get(&r, LOG_DETERMINANT, p->n - 1);
  out->value = -0.5 * (out->determinant + (double)p->n * LOG_2_PI);
  for (int64_t i = 0; i < p->n; i++) {
    const double y = p->y[i], alpha = (y - get(&r, OUT, i)) / added(p, i);
    assert_true(get(&r, LOG_DETERMINANT, i) == out->determinant); /* the rows see the same keys */
    out->value -= 0.5 * y * alpha;
    out->dnoise[i] = 0.5 * y * alpha / added(p, i);
    out->dridge += out->dnoise[i];
    put(&r, DOUT, i, 0.5 * y / added(p, i));
  }
  put(&r, DLOG_DETERMINANT, p->n / 2, -0.5);
  finish(p, &r, out);
  return true;
}

/* The chain rule of probabilities. */
static bool by_prediction(const attention_machine *machine, const process *p, likelihood *out) {
  run r;
  *out = (likelihood){0};
  if (!begin(machine, p, true, false, &r)) return false;
  for (int64_t i = 0; i < p->n; i++) {
    const double variance = get(&r, VARIANCE, i) + added(p, i), error = p->y[i] - get(&r, OUT, i);
    const double dvariance = 0.5 * (error * error / variance - 1) / variance;
    expect("a row's log-determinant", machine, get(&r, LOG_DETERMINANT, i), out->determinant, tolerance(machine, p));
    out->value -= 0.5 * (error * error / variance + log(variance) + LOG_2_PI);
    out->determinant += log(variance);
    out->dnoise[i] = dvariance;
    out->dridge += dvariance;
    put(&r, DOUT, i, error / variance);
    put(&r, DVARIANCE, i, dvariance);
  }
  finish(p, &r, out);
  return true;
}

/* The last row sees all keys. */
static bool by_quadratic(const attention_machine *machine, const process *p, bool causal, likelihood *out) {
  run r;
  *out = (likelihood){0};
  if (!begin(machine, p, causal, true, &r)) return false;
  const int64_t last = p->n - 1;
  out->determinant = get(&r, LOG_DETERMINANT, last);
  out->value = -0.5 * (get(&r, QUADRATIC, last) + out->determinant + (double)p->n * LOG_2_PI);
  put(&r, DLOG_DETERMINANT, last, -0.5);
  put(&r, DQUADRATIC, last, -0.5);
  finish(p, &r, out);
  return true;
}

static void check(const attention_machine *machine, const process *p, const likelihood *have, const likelihood *want) {
  const double within = tolerance(machine, p);
  expect("the log-likelihood", machine, have->value, want->value, within);
  expect("the log-determinant", machine, have->determinant, want->determinant, within);
  expect("dridge", machine, have->dridge, want->dridge, within);
  expect("dsigma", machine, have->dsigma, want->dsigma, within);
  for (int64_t i = 0; i < p->n && p->noisy; i++) expect("dnoise", machine, have->dnoise[i], want->dnoise[i], within);
  double largest = 1;
  for (int64_t i = 0; i < p->n * DIM; i++) largest = fmax(largest, fabs(want->dx[i]));
  for (int64_t i = 0; i < p->n * DIM; i++) expect("dx", machine, have->dx[i] / largest, want->dx[i] / largest, within);
}

static void check_all(int64_t n, double ridge, bool noisy) {
  const process p = make(n, ridge, noisy);
  const likelihood want = closed_form(&p);
  for (int m = 0; m < attention_machine_count; m++) {
    likelihood have;
    if (by_determinant(&attention_machines[m], &p, &have)) check(&attention_machines[m], &p, &have, &want);
    if (by_prediction(&attention_machines[m], &p, &have)) check(&attention_machines[m], &p, &have, &want);
    for (int causal = 0; causal < 2; causal++) {
      if (!by_quadratic(&attention_machines[m], &p, causal != 0, &have)) continue;
      check(&attention_machines[m], &p, &have, &want);
      for (int64_t i = 0; i < n; i++) expect("dy", &attention_machines[m], have.dy[i], want.dy[i], tolerance(&attention_machines[m], &p));
    }
  }
}

static void test_likelihood(void **state) {
  (void)state;
  check_all(1, 0.25, false);
  check_all(23, 0.25, false);
  check_all(64, 0.25, false);
  check_all(MOST, 0.25, false);
}

/* Values that are not equally certain, also without a ridge. */
static void test_noise(void **state) {
  (void)state;
  check_all(1, 0.25, true);
  check_all(23, 0, true);
  check_all(MOST, 0.25, true);
  check_all(MOST, 0, true);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_likelihood), cmocka_unit_test(test_noise)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
