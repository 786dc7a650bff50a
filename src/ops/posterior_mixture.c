/* posterior_mixture.c - one prediction from the posteriors of several Gaussian processes: each is weighted by the evidence that its context
 * gives, and the mixture is reduced to a mean and a variance (Bayesian model averaging).
 *
 * Row m belongs to a segment with n context rows (key_offsets); rows of no segment have n = 0. Head h has the covariance s M_h, with an
 * unknown scale s for each response r, whose prior is inverse gamma with shape a0 > 1 and rate b0. kernel_ridge_posterior gives the mean
 * mu, the variance V, D = log det M and Q = y' M^-1 y; N is the noise of a new observation. Integrating over s gives, up to terms that are
 * equal for all heads,
 *
 *     a = a0 + n / 2,  b[h, r] = b0 + Q[h, r] / 2,  e[h] = -R' D[h] / 2 - sum_r a log b[h, r]             log evidence
 *     w = softmax over h of (t e[h] + logit[m, h]),  v[h, r] = b[h, r] / (a - 1) (V[h] + N[h])            weights, predictive variances
 *     mean[r] = sum_h w mu[h, r],  variance[r] = sum_h w (v[h, r] + (mu[h, r] - mean[r])^2)
 *
 * with the number R' of responses whose Q is not 0: a target that is 0 in all rows has no evidence
 * (conjugate prior of a Gaussian process' scale: Rasmussen and Williams 2006, sections 2.2 and 5.4; MacKay 1992.) prior [3] has
 * log(a0 - 1), log b0 and log t. mean and quadratic [..., H R], variance, log_determinant and noise [1, H, rows], logit [..., H]; output
 * [rows, 2 R]: R means, then R logarithms of variances. About 12 H R operations per row forward, 24 H R backward.
 */
#include <hark/experimental.h>
#include <inttypes.h>

#include "ops/segments.h"

enum {
  INPUT_MEAN,
  INPUT_VARIANCE,
  INPUT_LOG_DETERMINANT,
  INPUT_QUADRATIC,
  INPUT_NOISE,
  INPUT_LOGIT,
  INPUT_PRIOR,
  INPUT_QUERY_OFFSETS,
  INPUT_KEY_OFFSETS,
  INPUT_COUNT
};

enum { PRIOR_SHAPE, PRIOR_RATE, PRIOR_TEMPERATURE, PRIORS };

#define FORWARD_OPERATIONS 12.0 /* per row, head and response */
#define BACKWARD_OPERATIONS 24.0

static hark_status infer(hark_context *context, const void *attributes, const hark_tensor *inputs, int input_count, hark_inferred *out) {
  static const hark_input_rule rules[INPUT_COUNT] = {{"mean", HARK_F32, 2, HARK_MAX_RANK},
                                                     {"variance", HARK_F32, 3, 3},
                                                     {"log_determinant", HARK_F32, 3, 3},
                                                     {"quadratic", HARK_F32, 2, HARK_MAX_RANK},
                                                     {"noise", HARK_F32, 3, 3},
                                                     {"logit", HARK_F32, 2, HARK_MAX_RANK},
                                                     {"prior", HARK_F32, 1, 1},
                                                     {"query_offsets", HARK_I64, 1, 1},
                                                     {"key_offsets", HARK_I64, 1, 1}};
  const hark_operator *const op = &hark_op_posterior_mixture;
  HARK_TRY(hark_check_inputs(context, op, rules, attributes, inputs, input_count));
  const hark_tensor *mean = &inputs[INPUT_MEAN];
  const int64_t rows = hark_row_count(mean), width = hark_row_length(mean), heads = hark_row_length(&inputs[INPUT_LOGIT]);
  if (heads < 1 || heads > HARK_POSTERIOR_MIXTURE_HEADS || width % heads != 0 || width == 0)
    return hark_fail(context, HARK_SHAPE_MISMATCH,
                     "posterior_mixture: mean has %" PRId64 " numbers in a row for the %" PRId64
                     " heads of logit, expected a multiple of 1 to %d heads",
                     width, heads, HARK_POSTERIOR_MIXTURE_HEADS);
  const int64_t statistic[] = {1, heads, rows}, out_shape[] = {rows, 2 * width / heads};
  HARK_TRY(hark_check_shape(context, op, "variance", &inputs[INPUT_VARIANCE], 3, statistic));
  HARK_TRY(hark_check_shape(context, op, "log_determinant", &inputs[INPUT_LOG_DETERMINANT], 3, statistic));
  HARK_TRY(hark_check_shape(context, op, "noise", &inputs[INPUT_NOISE], 3, statistic));
  HARK_TRY(hark_check_rows(context, op, "quadratic", &inputs[INPUT_QUADRATIC], rows, "rows of mean"));
  HARK_TRY(hark_check_numbers(context, op, "quadratic", &inputs[INPUT_QUADRATIC], rows * width, "numbers of mean"));
  HARK_TRY(hark_check_rows(context, op, "logit", &inputs[INPUT_LOGIT], rows, "rows of mean"));
  HARK_TRY(hark_check_vector(context, op, "prior", &inputs[INPUT_PRIOR], PRIORS, "shape, rate and temperature"));
  HARK_TRY(hark_check_offsets_shape(context, op, "query_offsets", &inputs[INPUT_QUERY_OFFSETS]));
  HARK_TRY(hark_check_vector(context, op, "key_offsets", &inputs[INPUT_KEY_OFFSETS], inputs[INPUT_QUERY_OFFSETS].shape[0],
                             "as many as query_offsets"));
  HARK_TRY(hark_tensor_describe(context, mean->type, 2, out_shape, &out->outputs[0]));
  HARK_TRY(hark_size_multiply(context, (size_t)rows, sizeof(double), &out->forward_workspace));              /* n of every row */
  return hark_size_multiply(context, (size_t)rows, (1 + PRIORS) * sizeof(double), &out->backward_workspace); /* and terms of dprior */
}

/* count[m] <- n of the segment of row m. */
static hark_status count_context(hark_context *context, const hark_call *call, double *count) {
  const int64_t rows = hark_row_count(&call->inputs[INPUT_MEAN]);
  HARK_TRY(hark_check_offsets(context, call->op, "query_offsets", &call->inputs[INPUT_QUERY_OFFSETS], 1, rows));
  HARK_TRY(hark_check_offsets(context, call->op, "key_offsets", &call->inputs[INPUT_KEY_OFFSETS], 1, INT64_MAX));
  const hark_segments queries = hark_segments_of(&call->inputs[INPUT_QUERY_OFFSETS], 1),
                      keys = hark_segments_of(&call->inputs[INPUT_KEY_OFFSETS], 1);
  for (int64_t m = 0; m < rows; m++) count[m] = 0;
  for (int64_t s = 0; s < queries.count; s++) {
    const int64_t first = hark_segment_first(&queries, s), end = first + hark_segment_rows(&queries, s);
    for (int64_t m = first; m < end; m++) count[m] = (double)hark_segment_rows(&keys, s);
  }
  return HARK_OK;
}

/* What all responses of a row share. */
typedef struct mixture {
  int64_t rows, heads, responses;
  hark_numbers mean, variance, log_determinant, quadratic, noise, logit;
  double excess, rate, temperature; /* a0 - 1, b0, t */
  double shape, informative;        /* a of the row; its number of responses with evidence */
  double evidence[HARK_POSTERIOR_MIXTURE_HEADS], weight[HARK_POSTERIOR_MIXTURE_HEADS], spread[HARK_POSTERIOR_MIXTURE_HEADS]; /* V + N */
} mixture;

static mixture mixture_of(const hark_call *call) {
  const hark_numbers prior = hark_numbers_of(&call->inputs[INPUT_PRIOR]);
  const int64_t heads = hark_row_length(&call->inputs[INPUT_LOGIT]);
  return (mixture){.rows = hark_row_count(&call->inputs[INPUT_MEAN]),
                   .heads = heads,
                   .responses = hark_row_length(&call->inputs[INPUT_MEAN]) / heads,
                   .mean = hark_numbers_of(&call->inputs[INPUT_MEAN]),
                   .variance = hark_numbers_of(&call->inputs[INPUT_VARIANCE]),
                   .log_determinant = hark_numbers_of(&call->inputs[INPUT_LOG_DETERMINANT]),
                   .quadratic = hark_numbers_of(&call->inputs[INPUT_QUADRATIC]),
                   .noise = hark_numbers_of(&call->inputs[INPUT_NOISE]),
                   .logit = hark_numbers_of(&call->inputs[INPUT_LOGIT]),
                   .excess = exp(hark_get(prior, PRIOR_SHAPE)),
                   .rate = exp(hark_get(prior, PRIOR_RATE)),
                   .temperature = exp(hark_get(prior, PRIOR_TEMPERATURE))};
}

/* Place of response r of head h in row m. */
static int64_t place(const mixture *x, int64_t m, int64_t h, int64_t r) { return (m * x->heads + h) * x->responses + r; }

/* b */
static double rate_of(const mixture *x, int64_t m, int64_t h, int64_t r) { return x->rate + hark_get(x->quadratic, place(x, m, h, r)) / 2; }

/* The number of responses whose target is not 0 in all rows. The others, such as a class that the context lacks, have no evidence. */
static double count_informative(const mixture *x, int64_t m) {
  int64_t count = 0;
  for (int64_t r = 0; r < x->responses; r++) count += hark_get(x->quadratic, place(x, m, 0, r)) > 0;
  return (double)count;
}

/* Evidences and weights of row m with n context rows. */
static void weigh(mixture *x, int64_t m, double n) {
  double largest = -INFINITY, sum = 0;
  x->shape = 1 + x->excess + n / 2;
  x->informative = count_informative(x, m);
  for (int64_t h = 0; h < x->heads; h++) {
    double evidence = -x->informative * hark_get(x->log_determinant, h * x->rows + m) / 2;
    for (int64_t r = 0; r < x->responses; r++) evidence -= x->shape * log(rate_of(x, m, h, r));
    x->evidence[h] = evidence;
    x->weight[h] = x->temperature * evidence + hark_get(x->logit, m * x->heads + h);
    x->spread[h] = hark_get(x->variance, h * x->rows + m) + hark_get(x->noise, h * x->rows + m);
    largest = fmax(largest, x->weight[h]);
  }
  for (int64_t h = 0; h < x->heads; h++) sum += x->weight[h] = exp(x->weight[h] - largest);
  for (int64_t h = 0; h < x->heads; h++) x->weight[h] /= sum;
}

/* Mean and variance of response r in row m. */
static void reduce(const mixture *x, int64_t m, int64_t r, double *mean, double *variance) {
  *mean = *variance = 0;
  for (int64_t h = 0; h < x->heads; h++) *mean += x->weight[h] * hark_get(x->mean, place(x, m, h, r));
  for (int64_t h = 0; h < x->heads; h++) {
    const double apart = hark_get(x->mean, place(x, m, h, r)) - *mean;
    *variance += x->weight[h] * (rate_of(x, m, h, r) / (x->shape - 1) * x->spread[h] + apart * apart);
  }
}

static void forward_rows(const hark_call *call, int64_t first, int64_t last) {
  const hark_numbers y = hark_numbers_of(&call->outputs[0]);
  const double *const count = call->workspace;
  mixture x = mixture_of(call);
  for (int64_t m = first; m < last; m++) {
    weigh(&x, m, count[m]);
    for (int64_t r = 0; r < x.responses; r++) {
      double mean, variance;
      reduce(&x, m, r, &mean, &variance);
      hark_put(y, 2 * m * x.responses + r, mean);
      hark_put(y, (2 * m + 1) * x.responses + r, log(variance));
    }
  }
}

static hark_status forward(hark_context *context, const hark_call *call) {
  const hark_tensor *const mean = &call->inputs[INPUT_MEAN];
  HARK_TRY(count_context(context, call, call->workspace));
  hark_range_for(context, call, hark_row_count(mean), hark_row_grain(hark_row_length(mean)), forward_rows);
  return HARK_OK;
}

/* The gradients of a row: by the outputs, by w, V + N, e and log w, and the sums of the row that dprior is made of. */
typedef struct mixture_gradient {
  hark_numbers dy, mean, variance, log_determinant, quadratic, noise, logit;
  double weight[HARK_POSTERIOR_MIXTURE_HEADS], spread[HARK_POSTERIOR_MIXTURE_HEADS], evidence[HARK_POSTERIOR_MIXTURE_HEADS];
  double dshape, drate, dtemperature; /* by a, b0 and log t */
} mixture_gradient;

static void give(hark_numbers numbers, int64_t i, double value) {
  if (numbers.data != NULL) hark_give(numbers, i, value);
}

/* variance = sum_h w (v + (mu - mean)^2), mean = sum_h w mu: dmu = w (dmean + 2 dvariance (mu - mean)), dv = w dvariance, dw = dmean mu +
 * dvariance (v + (mu - mean)^2), up to a number that is equal for all heads. v = b / (a - 1) (V + N). */
static void back_response(const mixture *x, int64_t m, int64_t r, mixture_gradient *g) {
  double mean, variance;
  reduce(x, m, r, &mean, &variance);
  const double dmean = hark_get(g->dy, 2 * m * x->responses + r), dvariance = hark_get(g->dy, (2 * m + 1) * x->responses + r) / variance;
  for (int64_t h = 0; h < x->heads; h++) {
    const int64_t at = place(x, m, h, r);
    const double mu = hark_get(x->mean, at), b = rate_of(x, m, h, r), v = b / (x->shape - 1) * x->spread[h];
    give(g->mean, at, x->weight[h] * (dmean + 2 * dvariance * (mu - mean)));
    g->weight[h] += dmean * mu + dvariance * (v + (mu - mean) * (mu - mean));
    g->spread[h] += x->weight[h] * dvariance * b / (x->shape - 1);
    g->dshape -= x->weight[h] * dvariance * v / (x->shape - 1);
  }
}

/* Of response r: db = dv (V + N) / (a - 1) - de a / b; dQ = db / 2, db0 = sum db; da -= de log b */
static void back_rates(const mixture *x, int64_t m, int64_t r, mixture_gradient *g) {
  double mean, variance;
  reduce(x, m, r, &mean, &variance);
  const double dvariance = hark_get(g->dy, (2 * m + 1) * x->responses + r) / variance;
  for (int64_t h = 0; h < x->heads; h++) {
    const double b = rate_of(x, m, h, r);
    const double db = x->weight[h] * dvariance * x->spread[h] / (x->shape - 1) - g->evidence[h] * x->shape / b;
    give(g->quadratic, place(x, m, h, r), db / 2);
    g->drate += db;
    g->dshape -= g->evidence[h] * log(b);
  }
}

static void back_row(mixture *x, int64_t m, mixture_gradient *g) {
  double sum = 0;
  for (int64_t h = 0; h < x->heads; h++) g->weight[h] = g->spread[h] = 0;
  g->dshape = g->drate = g->dtemperature = 0;
  for (int64_t r = 0; r < x->responses; r++) back_response(x, m, r, g);
  for (int64_t h = 0; h < x->heads; h++) sum += x->weight[h] * g->weight[h];
  for (int64_t h = 0; h < x->heads; h++) { /* w = softmax(t e + logit) */
    const double dlogit = x->weight[h] * (g->weight[h] - sum), devidence = x->temperature * dlogit;
    give(g->logit, m * x->heads + h, dlogit);
    give(g->log_determinant, h * x->rows + m, -x->informative * devidence / 2);
    give(g->variance, h * x->rows + m, g->spread[h]);
    give(g->noise, h * x->rows + m, g->spread[h]);
    g->dtemperature += devidence * x->evidence[h];
    g->evidence[h] = devidence;
  }
  for (int64_t r = 0; r < x->responses; r++) back_rates(x, m, r, g);
}

static void backward_rows(const hark_call *call, int64_t first, int64_t last) {
  const double *const count = call->workspace;
  mixture x = mixture_of(call);
  double *const terms = (double *)call->workspace + x.rows;
  mixture_gradient g = {.dy = hark_numbers_of(&call->output_gradients[0]),
                        .mean = hark_gradient_of(call, INPUT_MEAN),
                        .variance = hark_gradient_of(call, INPUT_VARIANCE),
                        .log_determinant = hark_gradient_of(call, INPUT_LOG_DETERMINANT),
                        .quadratic = hark_gradient_of(call, INPUT_QUADRATIC),
                        .noise = hark_gradient_of(call, INPUT_NOISE),
                        .logit = hark_gradient_of(call, INPUT_LOGIT)};
  for (int64_t m = first; m < last; m++) {
    weigh(&x, m, count[m]);
    back_row(&x, m, &g);
    terms[m * PRIORS + PRIOR_SHAPE] = g.dshape * x.excess;
    terms[m * PRIORS + PRIOR_RATE] = g.drate * x.rate;
    terms[m * PRIORS + PRIOR_TEMPERATURE] = g.dtemperature;
  }
}

static hark_status backward(hark_context *context, const hark_call *call) {
  if (hark_gradient_is_absent(call)) return HARK_OK;
  const int64_t rows = hark_row_count(&call->inputs[INPUT_MEAN]);
  const double *const terms = rows == 0 ? NULL : (double *)call->workspace + rows;
  HARK_TRY(count_context(context, call, call->workspace));
  hark_range_for(context, call, rows, hark_row_grain(hark_row_length(&call->inputs[INPUT_MEAN])), backward_rows);
  const hark_numbers dprior = hark_gradient_of(call, INPUT_PRIOR);
  for (int p = 0; p < PRIORS && dprior.data != NULL; p++) {
    double sum = 0;
    for (int64_t m = 0; m < rows; m++) sum += terms[m * PRIORS + p];
    hark_give(dprior, p, sum);
  }
  return HARK_OK;
}

static double operations(const void *attributes, const hark_tensor *inputs, int input_count, bool is_backward) {
  (void)attributes, (void)input_count;
  return (is_backward ? BACKWARD_OPERATIONS : FORWARD_OPERATIONS) * (double)hark_tensor_count(&inputs[INPUT_MEAN]);
}

/* Evidences are sums over responses; dprior is a sum over all. */
static int64_t terms(const void *attributes, const hark_tensor *inputs, int input_count) {
  (void)attributes, (void)input_count;
  return hark_max(1, 8 * hark_tensor_count(&inputs[INPUT_MEAN]));
}

#define STATISTIC(heads, rows, low, high)                                                                                                  \
  { HARK_F32, 3, {1, heads, rows}, low, high }

static const hark_sample samples[] = {
    {"one",
     NULL,
     {{HARK_F32, 2, {1, 1}, -1, 1},
      STATISTIC(1, 1, 0.1, 1),
      STATISTIC(1, 1, -1, 1),
      {HARK_F32, 2, {1, 1}, 0, 2},
      STATISTIC(1, 1, 0.1, 1),
      {HARK_F32, 2, {1, 1}, -1, 1},
      {HARK_F32, 1, {3}, -1, 1},
      {HARK_I64, 1, {2}, 1, 0},
      {HARK_I64, 1, {2}, 3, 0}}},
    {"none",
     NULL,
     {{HARK_F32, 2, {0, 6}, -1, 1},
      STATISTIC(3, 0, 0.1, 1),
      STATISTIC(3, 0, -1, 1),
      {HARK_F32, 2, {0, 6}, 0, 2},
      STATISTIC(3, 0, 0.1, 1),
      {HARK_F32, 2, {0, 3}, -1, 1},
      {HARK_F32, 1, {3}, -1, 1},
      {HARK_I64, 1, {1}, 0, 0},
      {HARK_I64, 1, {1}, 0, 0}}},
    {"heads",
     NULL,
     {{HARK_F32, 2, {13, 5}, -1, 1},
      STATISTIC(5, 13, 0.1, 1),
      STATISTIC(5, 13, -1, 1),
      {HARK_F32, 2, {13, 5}, 0, 2},
      STATISTIC(5, 13, 0.1, 1),
      {HARK_F32, 2, {13, 5}, -1, 1},
      {HARK_F32, 1, {3}, -1, 0},
      {HARK_I64, 1, {4}, 11, 0},
      {HARK_I64, 1, {4}, 9, 0}}},
    {"responses",
     NULL,
     {{HARK_F32, 2, {71, 6}, -1, 1},
      STATISTIC(2, 71, 0.1, 1),
      STATISTIC(2, 71, -1, 1),
      {HARK_F32, 2, {71, 6}, 0, 2},
      STATISTIC(2, 71, 0.1, 1),
      {HARK_F32, 2, {71, 2}, -1, 1},
      {HARK_F32, 1, {3}, -1, 0},
      {HARK_I64, 1, {4}, 71, 0},
      {HARK_I64, 1, {4}, 7, 1}}},
};

const hark_operator hark_op_posterior_mixture = {
    .name = "posterior_mixture",
    .formula = "mean = sum_h w mu, variance = sum_h w (v + (mu - mean)^2), w = softmax of the heads' log evidences",
    .input_minimum = INPUT_COUNT,
    .input_maximum = INPUT_COUNT,
    .output_count = 1,
    .differentiable = 1u << INPUT_MEAN | 1u << INPUT_VARIANCE | 1u << INPUT_LOG_DETERMINANT | 1u << INPUT_QUADRATIC | 1u << INPUT_NOISE |
                      1u << INPUT_LOGIT | 1u << INPUT_PRIOR,
    .backward_inputs = (1u << INPUT_COUNT) - 1,
    .infer = infer,
    .forward = forward,
    .backward = backward,
    .operations = operations,
    .terms = terms,
    .samples = samples,
    .sample_count = sizeof samples / sizeof samples[0],
};
