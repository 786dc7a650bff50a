/* fit.c - see fit.h. The method of Levenberg and Marquardt: with the gradient g of D by the parameters as they are trained, and the
 * covariance C of the derivatives of log G under the mean of both distributions, which is about the curvature of D, a step solves (C +
 * damping diag(C)) step = -g. */
#include "positional/fit.h"

#include <math.h>
#include <string.h>

#include "positional/expression.h"

#define STEPS 200
#define TRIES 24   /* of a step, with 4^24 times its damping at the end */
#define LEAST 1e-6 /* natural values without a range of their own */
#define MOST 1e6
#define ENOUGH 1e-10 /* a smaller decrease of D ends the search */

typedef struct fitting {
  hark_context *context;
  const hark_positional *expression;
  const hark_fit_target *target;
  int64_t size; /* of the parameters */
  size_t bytes;
  double *memory;
  double *natural, *candidate, *step, *gradient; /* [size] */
  double *matrix;                                /* [size, size] */
  double *factor;                                /* [size, size] */
  double *mean;                                  /* [size] */
  double *distances, *share;                     /* [count] */
  double *rows;                                  /* [count, size]: J */
  void *scratch;
} fitting;

static hark_status open_fitting(hark_context *context, const hark_positional *expression, const hark_fit_target *target, fitting *out) {
  const int64_t size = hark_positional_parameter_count(expression), count = target->count;
  const size_t line = HARK_ALIGNMENT / sizeof(double), scratch = hark_positional_scratch_bytes(expression);
  const size_t numbers = (size_t)(5 * size + 2 * size * size + 2 * count + count * size) / line * line + line;
  void *memory = NULL;
  *out = (fitting){.context = context, .expression = expression, .target = target, .size = size};
  HARK_TRY(hark_allocate_zero(context, numbers * sizeof(double) + scratch, &memory));
  out->bytes = numbers * sizeof(double) + scratch;
  out->memory = out->natural = memory;
  out->candidate = out->natural + size;
  out->step = out->candidate + size;
  out->gradient = out->step + size;
  out->matrix = out->gradient + size;
  out->factor = out->matrix + size * size;
  out->mean = out->factor + size * size;
  out->distances = out->mean + size;
  out->share = out->distances + count;
  out->rows = out->share + count;
  out->scratch = out->memory + numbers;
  for (int64_t d = 0; d < count; d++) out->distances[d] = (double)d;
  return HARK_OK;
}

static void close_fitting(fitting *f) { hark_release(f->context, f->memory, f->bytes); }

/* Where values differ on whole distances: the range of a parameter by its name, and of all others. */
static const struct {
  const char *name;
  double least, most;
} ranges[] = {{"sigma2", 1e-12, 1e12}, {"l", 0.25, 1e4}, {"mu", 1e-2, 1e4}, {"tau", 0.6, 1e4}, {"alpha", 1e-2, 20}, {"", LEAST, MOST}};

static bool is_in_range(const fitting *f, const hark_positional_parameter *named) {
  size_t of = 0;
  while (ranges[of].name[0] != '\0' && strcmp(ranges[of].name, named->name) != 0) of++;
  for (int64_t p = named->first; p < named->first + named->count; p++) {
    const double size = fabs(f->natural[p]); /* weights of networks may be negative */
    const bool inside = size >= ranges[of].least && size <= ranges[of].most;
    if (!inside && hark_positional_is_learned(f->expression, p)) return false;
  }
  return true;
}

/* natural <- of parameters; false outside the range. */
static bool set_natural(fitting *f, const double *parameters) {
  if (hark_positional_natural(f->context, f->expression, parameters, f->natural) != HARK_OK) return false;
  for (int i = 0; i < hark_positional_named_count(f->expression); i++) {
    const hark_positional_parameter named = hark_positional_named(f->expression, i);
    if (!is_in_range(f, &named)) return false;
  }
  return true;
}

/* With the weights p of the target and e = log G - table: share <- q, proportional to p exp(e), and D = log sum p exp(e) - sum p e.
 * +infinity where log G is not finite at a distance that counts. */
static double evaluate(fitting *f) {
  const double *p = f->target->weights;
  double most = -INFINITY, sum = 0, mean = 0;
  hark_positional_log_block(f->expression, f->natural, f->distances, f->target->count, f->share, f->scratch);
  for (int64_t d = 0; d < f->target->count; d++) {
    if (!isfinite(f->share[d]) && p[d] > 0) return INFINITY;
    f->share[d] = p[d] > 0 ? f->share[d] - f->target->log_table[d] : 0;
    most = p[d] > 0 ? fmax(most, f->share[d]) : most;
    mean += p[d] * f->share[d];
  }
  for (int64_t d = 0; d < f->target->count; d++) {
    f->share[d] = p[d] * exp(f->share[d] - most);
    sum += f->share[d];
  }
  for (int64_t d = 0; d < f->target->count; d++) f->share[d] /= sum;
  return hark_larger(most + log(sum) - mean, 0); /* rounding could make it negative */
}

/* matrix <- the curvature of D by the parameters, gradient <- its gradient sum (q - p) d log G, for the shares of `parameters`. */
static void differentiate(fitting *f, const double *parameters) {
  const double one = 1, *p = f->target->weights;
  const int64_t n = f->size;
  memset(f->matrix, 0, (size_t)(n * n) * sizeof *f->matrix);
  memset(f->gradient, 0, (size_t)n * sizeof *f->gradient);
  memset(f->mean, 0, (size_t)n * sizeof *f->mean);
  for (int64_t d = 0; d < f->target->count; d++) {
    double *const row = f->rows + d * n, both = (p[d] + f->share[d]) / 2;
    memset(row, 0, (size_t)n * sizeof *row);
    if (both == 0) continue;
    hark_positional_gradient_block(f->expression, f->natural, f->distances + d, &one, 1, row, f->scratch);
    hark_positional_gradient_to_raw(f->expression, parameters, row);
    for (int64_t i = 0; i < n; i++) f->gradient[i] += (f->share[d] - p[d]) * row[i];
    for (int64_t i = 0; i < n; i++) f->mean[i] += both * row[i];
  }
  for (int64_t d = 0; d < f->target->count; d++) {
    const double *const row = f->rows + d * n, both = (p[d] + f->share[d]) / 2;
    for (int64_t i = 0; i < n && both > 0; i++)
      for (int64_t j = 0; j <= i; j++) f->matrix[i * n + j] += both * (row[i] - f->mean[i]) * (row[j] - f->mean[j]);
  }
}

/* step <- solution; false if the matrix is not positive definite. What is not learned does not move. */
static bool solve(fitting *f, double damping) {
  const int64_t n = f->size;
  double *const l = f->factor;
  for (int64_t i = 0; i < n; i++) {
    for (int64_t j = 0; j <= i; j++) {
      double sum = f->matrix[i * n + j];
      if (i == j) sum += damping * sum + 1e-12;
      for (int64_t k = 0; k < j; k++) sum -= l[i * n + k] * l[j * n + k];
      if (i == j && !(sum > 0)) return false;
      l[i * n + j] = i == j ? sqrt(sum) : sum / l[j * n + j];
    }
  }
  for (int64_t i = 0; i < n; i++) {
    double sum = -f->gradient[i];
    for (int64_t k = 0; k < i; k++) sum -= l[i * n + k] * f->step[k];
    f->step[i] = sum / l[i * n + i];
  }
  for (int64_t i = n - 1; i >= 0; i--) {
    double sum = f->step[i];
    for (int64_t k = i + 1; k < n; k++) sum -= l[k * n + i] * f->step[k];
    f->step[i] = sum / l[i * n + i];
  }
  return true;
}

/* Takes a step if it decreases D. */
static bool attempt(fitting *f, double damping, double *parameters, double *divergence) {
  if (!solve(f, damping)) return false;
  for (int64_t p = 0; p < f->size; p++) f->candidate[p] = parameters[p] + hark_positional_is_learned(f->expression, p) * f->step[p];
  if (!set_natural(f, f->candidate)) return false;
  const double now = evaluate(f);
  if (!(now < *divergence)) return false;
  memcpy(parameters, f->candidate, (size_t)f->size * sizeof *parameters);
  *divergence = now;
  return true;
}

/* Tries steps with more and more damping; true if one of them decreased D, which is then at *parameters. */
static bool advance(fitting *f, double *parameters, double *divergence, double *damping) {
  for (int tries = 0; tries < TRIES; tries++) {
    if (attempt(f, *damping, parameters, divergence)) {
      *damping = fmax(*damping / 10, 1e-9);
      return true;
    }
    *damping *= 4;
  }
  return false;
}

hark_status hark_fit_divergence(hark_context *context, const hark_positional *expression, const hark_fit_target *target,
                                const double *parameters, double *divergence) {
  fitting f;
  HARK_TRY(open_fitting(context, expression, target, &f));
  const hark_status status = hark_positional_natural(context, expression, parameters, f.natural);
  if (status == HARK_OK) *divergence = evaluate(&f);
  close_fitting(&f);
  return status;
}

hark_status hark_fit_improve(hark_context *context, const hark_positional *expression, const hark_fit_target *target, double *parameters,
                             double *divergence) {
  fitting f;
  double damping = 1e-3;
  HARK_TRY(open_fitting(context, expression, target, &f));
  const hark_status status = hark_positional_natural(context, expression, parameters, f.natural);
  *divergence = status == HARK_OK ? evaluate(&f) : INFINITY;
  for (int step = 0; step < STEPS && f.size > 0 && isfinite(*divergence); step++) {
    const double before = *divergence;
    if (!set_natural(&f, parameters)) break;
    (void)evaluate(&f);
    differentiate(&f, parameters);
    if (!advance(&f, parameters, divergence, &damping) || before - *divergence < ENOUGH * (1 + before)) break;
  }
  close_fitting(&f);
  return status;
}
