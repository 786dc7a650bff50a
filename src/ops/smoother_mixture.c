/* smoother_mixture.c - one prediction from several kernel smoothers: means of the targets and of their squares, weighted by each head.
 *
 * Head h gives the mean m and the mean square s of every response of row n; N is the noise of a new observation.
 *
 *     w = softmax over h of logit[n, h]
 *     mean[r] = sum_h w m[h, r],   variance[r] = sum_h w (s[h, r] + N[h]) - mean[r]^2
 *
 * moments [..., H 2 R]: of every head R means, then R mean squares; noise [1, H, rows], logit [..., H]; output [rows, 2 R]: R means, then R
 * logarithms of variances, of which none is below that of the noise. With g and k the gradients by mean and variance: dm = w (g - 2 k
 * mean), ds = w k, dN = sum_r w k, dw = sum_r (g m + k (s + N - 2 mean m)). About 8 H R operations per row forward, 16 H R backward.
 */
#include <hark/experimental.h>
#include <inttypes.h>

#include "ops/segments.h"

enum { INPUT_MOMENTS, INPUT_NOISE, INPUT_LOGIT, INPUT_COUNT };

#define LEAST_VARIANCE 1e-12
#define FORWARD_OPERATIONS 8.0 /* per row, head and response */
#define BACKWARD_OPERATIONS 16.0

static hark_status infer(hark_context *context, const void *attributes, const hark_tensor *inputs, int input_count, hark_inferred *out) {
  static const hark_input_rule rules[INPUT_COUNT] = {
      {"moments", HARK_F32, 2, HARK_MAX_RANK}, {"noise", HARK_F32, 3, 3}, {"logit", HARK_F32, 2, HARK_MAX_RANK}};
  const hark_operator *const op = &hark_op_smoother_mixture;
  HARK_TRY(hark_check_inputs(context, op, rules, attributes, inputs, input_count));
  const hark_tensor *const moments = &inputs[INPUT_MOMENTS];
  const int64_t rows = hark_row_count(moments), width = hark_row_length(moments), heads = hark_row_length(&inputs[INPUT_LOGIT]);
  if (heads < 1 || heads > HARK_POSTERIOR_MIXTURE_HEADS || width == 0 || width % (2 * heads) != 0)
    return hark_fail(context, HARK_SHAPE_MISMATCH,
                     "smoother_mixture: moments has %" PRId64 " numbers in a row for the %" PRId64
                     " heads of logit, expected a multiple of two for each of 1 to %d heads",
                     width, heads, HARK_POSTERIOR_MIXTURE_HEADS);
  const int64_t noise[] = {1, heads, rows}, out_shape[] = {rows, width / heads};
  HARK_TRY(hark_check_shape(context, op, "noise", &inputs[INPUT_NOISE], 3, noise));
  HARK_TRY(hark_check_rows(context, op, "logit", &inputs[INPUT_LOGIT], rows, "rows of moments"));
  return hark_tensor_describe(context, moments->type, 2, out_shape, &out->outputs[0]);
}

typedef struct mixture {
  hark_numbers moments, noise, logit;
  int64_t rows, heads, responses;
  double weight[HARK_POSTERIOR_MIXTURE_HEADS];
} mixture;

static mixture mixture_of(const hark_call *call) {
  const int64_t heads = hark_row_length(&call->inputs[INPUT_LOGIT]);
  return (mixture){.moments = hark_numbers_of(&call->inputs[INPUT_MOMENTS]),
                   .noise = hark_numbers_of(&call->inputs[INPUT_NOISE]),
                   .logit = hark_numbers_of(&call->inputs[INPUT_LOGIT]),
                   .rows = hark_row_count(&call->inputs[INPUT_MOMENTS]),
                   .heads = heads,
                   .responses = hark_row_length(&call->inputs[INPUT_MOMENTS]) / (2 * heads)};
}

/* The place of a mean among the moments; that of the mean square is `responses` after it. */
static int64_t place(const mixture *x, int64_t n, int64_t h, int64_t r) { return (n * x->heads + h) * 2 * x->responses + r; }

static void weigh(mixture *x, int64_t n) {
  double largest = -INFINITY, sum = 0;
  for (int64_t h = 0; h < x->heads; h++) { /* with fmax() instead, gcc 12 for 64-bit ARM ends with an internal error */
    const double logit = hark_get(x->logit, n * x->heads + h);
    if (logit > largest) largest = logit;
  }
  for (int64_t h = 0; h < x->heads; h++) sum += x->weight[h] = exp(hark_get(x->logit, n * x->heads + h) - largest);
  for (int64_t h = 0; h < x->heads; h++) x->weight[h] /= sum;
}

/* Mean and variance of response r in row n. Returns whether the variance contains that of the moments, which rounding can make negative. */
static bool reduce(const mixture *x, int64_t n, int64_t r, double *mean, double *variance) {
  double first = 0, second = 0, noise = 0;
  for (int64_t h = 0; h < x->heads; h++) {
    first += x->weight[h] * hark_get(x->moments, place(x, n, h, r));
    second += x->weight[h] * hark_get(x->moments, place(x, n, h, r) + x->responses);
    noise += x->weight[h] * hark_get(x->noise, h * x->rows + n);
  }
  const bool negative = second - first * first < 0; /* not for NaN */
  *mean = first;
  *variance = noise + (negative ? 0 : second - first * first);
  if (*variance < LEAST_VARIANCE) *variance = LEAST_VARIANCE;
  return !negative;
}

static void forward_rows(const hark_call *call, int64_t first, int64_t last) {
  mixture x = mixture_of(call);
  const hark_numbers y = hark_numbers_of(&call->outputs[0]);
  for (int64_t n = first; n < last; n++) {
    weigh(&x, n);
    for (int64_t r = 0; r < x.responses; r++) {
      double mean, variance;
      (void)reduce(&x, n, r, &mean, &variance);
      hark_put(y, 2 * n * x.responses + r, mean);
      hark_put(y, (2 * n + 1) * x.responses + r, log(variance));
    }
  }
}

static hark_status forward(hark_context *context, const hark_call *call) {
  const hark_tensor *const moments = &call->inputs[INPUT_MOMENTS];
  hark_range_for(context, call, hark_row_count(moments), hark_row_grain(hark_row_length(moments)), forward_rows);
  return HARK_OK;
}

/* Gradients of row n by the mean and the variance of a response. */
typedef struct response_gradient {
  double by_mean, by_noise, by_moments, mean; /* the middle two: by the parts of the variance */
} response_gradient;

static response_gradient gradient_of(const mixture *x, hark_numbers dy, int64_t n, int64_t r) {
  response_gradient g;
  double variance;
  const bool contained = reduce(x, n, r, &g.mean, &variance);
  g.by_mean = hark_get(dy, 2 * n * x->responses + r);
  g.by_noise = hark_get(dy, (2 * n + 1) * x->responses + r) / variance;
  g.by_moments = contained ? g.by_noise : 0;
  return g;
}

/* mean = sum w m, variance = sum w (s + N) - mean^2: dm = w (g - 2 k mean), ds = w k, dN = sum_r w k, dw = sum_r (g m + k (s + N - 2 mean
 * m)), and dlogit = w (dw - sum w dw) */
static void backward_rows(const hark_call *call, int64_t first, int64_t last) {
  mixture x = mixture_of(call);
  const hark_numbers dy = hark_numbers_of(&call->output_gradients[0]), dmoments = hark_gradient_of(call, INPUT_MOMENTS),
                     dnoise = hark_gradient_of(call, INPUT_NOISE), dlogit = hark_gradient_of(call, INPUT_LOGIT);
  double by_weight[HARK_POSTERIOR_MIXTURE_HEADS], by_noise[HARK_POSTERIOR_MIXTURE_HEADS];
  for (int64_t n = first; n < last; n++) {
    double sum = 0;
    weigh(&x, n);
    for (int64_t h = 0; h < x.heads; h++) by_weight[h] = by_noise[h] = 0;
    for (int64_t r = 0; r < x.responses; r++) {
      const response_gradient g = gradient_of(&x, dy, n, r);
      for (int64_t h = 0; h < x.heads; h++) {
        const int64_t at = place(&x, n, h, r);
        const double m = hark_get(x.moments, at), s = hark_get(x.moments, at + x.responses);
        by_weight[h] += g.by_mean * m + g.by_moments * (s - 2 * g.mean * m) + g.by_noise * hark_get(x.noise, h * x.rows + n);
        by_noise[h] += x.weight[h] * g.by_noise;
        if (dmoments.data == NULL) continue;
        hark_give(dmoments, at, x.weight[h] * (g.by_mean - 2 * g.by_moments * g.mean));
        hark_give(dmoments, at + x.responses, x.weight[h] * g.by_moments);
      }
    }
    for (int64_t h = 0; h < x.heads; h++) sum += x.weight[h] * by_weight[h];
    for (int64_t h = 0; h < x.heads; h++) {
      if (dnoise.data != NULL) hark_give(dnoise, h * x.rows + n, by_noise[h]);
      if (dlogit.data != NULL) hark_give(dlogit, n * x.heads + h, x.weight[h] * (by_weight[h] - sum));
    }
  }
}

static hark_status backward(hark_context *context, const hark_call *call) {
  if (hark_gradient_is_absent(call)) return HARK_OK;
  const hark_tensor *const moments = &call->inputs[INPUT_MOMENTS];
  hark_range_for(context, call, hark_row_count(moments), hark_row_grain(hark_row_length(moments)), backward_rows);
  return HARK_OK;
}

static double operations(const void *attributes, const hark_tensor *inputs, int input_count, bool is_backward) {
  (void)attributes, (void)input_count;
  return (is_backward ? BACKWARD_OPERATIONS : FORWARD_OPERATIONS) * (double)hark_tensor_count(&inputs[INPUT_MOMENTS]) / 2;
}

/* Sums over heads and responses; the variance is a difference of numbers of about its size. */
static int64_t terms(const void *attributes, const hark_tensor *inputs, int input_count) {
  (void)attributes, (void)input_count;
  return hark_max(1, 8 * hark_row_length(&inputs[INPUT_MOMENTS]));
}

static const hark_sample samples[] = {
    {"one", NULL, {{HARK_F32, 2, {1, 2}, 0.5, 0.7}, {HARK_F32, 3, {1, 1, 1}, 1, 2}, {HARK_F32, 2, {1, 1}, -1, 1}}},
    {"none", NULL, {{HARK_F32, 2, {0, 12}, 0.5, 0.7}, {HARK_F32, 3, {1, 3, 0}, 1, 2}, {HARK_F32, 2, {0, 3}, -1, 1}}},
    {"heads", NULL, {{HARK_F32, 3, {1, 37, 24}, 0.5, 0.7}, {HARK_F32, 3, {1, 4, 37}, 1, 2}, {HARK_F32, 3, {1, 37, 4}, -2, 2}}},
    {"many", NULL, {{HARK_F32, 2, {523, 14}, 0.5, 0.7}, {HARK_F32, 3, {1, 7, 523}, 1, 2}, {HARK_F32, 2, {523, 7}, -2, 2}}},
};

const hark_operator hark_op_smoother_mixture = {
    .name = "smoother_mixture",
    .formula = "mean = sum_h w m, variance = sum_h w (s + N) - mean^2, w = softmax of logit; y = (mean, log variance)",
    .input_minimum = INPUT_COUNT,
    .input_maximum = INPUT_COUNT,
    .output_count = 1,
    .differentiable = 1u << INPUT_MOMENTS | 1u << INPUT_NOISE | 1u << INPUT_LOGIT,
    .backward_inputs = 1u << INPUT_MOMENTS | 1u << INPUT_NOISE | 1u << INPUT_LOGIT,
    .infer = infer,
    .forward = forward,
    .backward = backward,
    .operations = operations,
    .terms = terms,
    .samples = samples,
    .sample_count = sizeof samples / sizeof samples[0],
};
