/* rms_norm.c - y = gain x r, r = 1 / sqrt(mean(x^2) + epsilon), over the last dimension.
 *
 * x, y [N, D]; gain [D]. Saved: r [N].
 * With g = gain dy:  dx = r (g - x r^2 mean(g x)),  dgain = sum_n dy x r.
 * About 5 N D operations forward, 10 N D backward. Zhang, Sennrich, arXiv 1910.07467.
 */
#include "ops/definition.h"

enum { INPUT_X, INPUT_GAIN, INPUT_COUNT };

/* Columns of the gradient of gain that one piece of work sums: a cache line of doubles. */
#define COLUMNS 8

#define FORWARD_OPERATIONS 5.0 /* per element */
#define BACKWARD_OPERATIONS 10.0

static hark_status infer(hark_context *context, const void *attributes, const hark_tensor *inputs, int input_count, hark_inferred *out) {
  static const hark_input_rule rules[INPUT_COUNT] = {{"x", HARK_F32, 1, HARK_MAX_RANK}, {"gain", HARK_F32, 1, 1}};
  HARK_TRY(hark_check_inputs(context, &hark_op_rms_norm, rules, attributes, inputs, input_count));
  const double epsilon = ((const hark_norm_attributes *)attributes)->epsilon;
  const hark_tensor *x = &inputs[INPUT_X];
  const int64_t rows = hark_row_count(x), width = hark_row_length(x);
  if (!(epsilon >= 0) || !isfinite(epsilon)) {
    return hark_fail(context, HARK_INVALID_ARGUMENT, "rms_norm: epsilon is %g, expected 0 or more", epsilon);
  }
  if (width == 0) return hark_fail(context, HARK_SHAPE_MISMATCH, "rms_norm: rows of x have no features, expected at least one");
  HARK_TRY(hark_check_vector(context, &hark_op_rms_norm, "gain", &inputs[INPUT_GAIN], width, "the features of x"));
  HARK_TRY(hark_tensor_describe(context, x->type, x->rank, x->shape, &out->outputs[0]));
  HARK_TRY(hark_tensor_describe(context, x->type, 1, &rows, &out->saved[0]));
  return hark_partials_bytes(context, width, &out->backward_workspace);
}

static void forward_rows(const hark_call *call, int64_t first, int64_t last) {
  const double epsilon = ((const hark_norm_attributes *)call->attributes)->epsilon;
  const hark_tensor *input = &call->inputs[INPUT_X];
  const hark_numbers x = hark_numbers_of(input), gain = hark_numbers_of(&call->inputs[INPUT_GAIN]);
  const hark_numbers y = hark_numbers_of(&call->outputs[0]), inverses = hark_numbers_of(&call->saved[0]);
  const int64_t width = hark_row_length(input);
  for (int64_t n = first; n < last; n++) {
    double square = 0;
    for (int64_t d = 0; d < width; d++) square += hark_get(x, n * width + d) * hark_get(x, n * width + d);
    const double inverse = 1 / sqrt(square / (double)width + epsilon);
    for (int64_t d = 0; d < width; d++) hark_put(y, n * width + d, hark_get(gain, d) * hark_get(x, n * width + d) * inverse);
    hark_put(inverses, n, inverse);
  }
}

static hark_status forward(hark_context *context, const hark_call *call) {
  const hark_tensor *x = &call->inputs[INPUT_X];
  hark_range_for(context, call, hark_row_count(x), hark_row_grain(hark_row_length(x)), forward_rows);
  return HARK_OK;
}

/* y = gain x r: dx = r (g - x r^2 mean(g x)), g = gain dy */
static void backward_rows(const hark_call *call, int64_t first, int64_t last) {
  const hark_tensor *input = &call->inputs[INPUT_X];
  const hark_numbers x = hark_numbers_of(input), gain = hark_numbers_of(&call->inputs[INPUT_GAIN]);
  const hark_numbers dy = hark_numbers_of(&call->output_gradients[0]), dx = hark_gradient_of(call, INPUT_X);
  const hark_numbers inverses = hark_numbers_of(&call->saved[0]);
  const int64_t width = hark_row_length(input);
  for (int64_t n = first; n < last; n++) {
    const double inverse = hark_get(inverses, n);
    double mean_gx = 0;
    for (int64_t d = 0; d < width; d++) mean_gx += hark_get(gain, d) * hark_get(dy, n * width + d) * hark_get(x, n * width + d);
    mean_gx /= (double)width;
    for (int64_t d = 0; d < width; d++) {
      const double g = hark_get(gain, d) * hark_get(dy, n * width + d);
      hark_give(dx, n * width + d, inverse * (g - hark_get(x, n * width + d) * inverse * inverse * mean_gx));
    }
  }
}

/* y = gain x r: dgain = sum_n dy x r, for the columns [first, last) */
static void backward_columns(const hark_call *call, int64_t first, int64_t last) {
  const hark_tensor *input = &call->inputs[INPUT_X];
  const hark_numbers x = hark_numbers_of(input), dy = hark_numbers_of(&call->output_gradients[0]);
  const hark_numbers dgain = hark_gradient_of(call, INPUT_GAIN), inverses = hark_numbers_of(&call->saved[0]);
  const int64_t rows = hark_row_count(input), width = hark_row_length(input);
  double sum[COLUMNS] = {0};
  for (int64_t n = 0; n < rows; n++) {
    const double inverse = hark_get(inverses, n);
    for (int64_t d = first; d < last; d++) sum[d - first] += hark_get(dy, n * width + d) * hark_get(x, n * width + d) * inverse;
  }
  for (int64_t d = first; d < last; d++) hark_give(dgain, d, sum[d - first]);
}

static hark_status backward(hark_context *context, const hark_call *call) {
  if (hark_gradient_is_absent(call)) return HARK_OK;
  const hark_tensor *x = &call->inputs[INPUT_X];
  const int64_t rows = hark_row_count(x), width = hark_row_length(x);
  if (hark_present(&call->input_gradients[INPUT_GAIN])) hark_range_for(context, call, width, COLUMNS, backward_columns);
  if (hark_present(&call->input_gradients[INPUT_X])) hark_range_for(context, call, rows, hark_row_grain(width), backward_rows);
  return HARK_OK;
}

static double operations(const void *attributes, const hark_tensor *inputs, int input_count, bool is_backward) {
  (void)attributes, (void)input_count;
  return (is_backward ? BACKWARD_OPERATIONS : FORWARD_OPERATIONS) * (double)hark_tensor_count(&inputs[INPUT_X]);
}

static int64_t terms(const void *attributes, const hark_tensor *inputs, int input_count) {
  (void)attributes, (void)input_count;
  return hark_max(hark_row_length(&inputs[INPUT_X]), hark_row_count(&inputs[INPUT_X]));
}

static const hark_norm_attributes usual = {1e-5}, large = {0.1};

static const hark_sample samples[] = {
    {"one_row", &usual, {{HARK_F32, 1, {37}, -2, 2}, {HARK_F32, 1, {37}, 0.5, 1.5}}},
    {"one_feature", &large, {{HARK_F32, 2, {5, 1}, -2, 2}, {HARK_F32, 1, {1}, 0.5, 1.5}}},
    {"batch", &usual, {{HARK_F32, 3, {2, 7, 64}, -2, 2}, {HARK_F32, 1, {64}, -1, 1}}},
    {"primes", &usual, {{HARK_F32, 2, {13, 29}, -2, 2}, {HARK_F32, 1, {29}, 0.5, 1.5}}},
    {"many_rows", &usual, {{HARK_F32, 2, {257, 17}, -2, 2}, {HARK_F32, 1, {17}, 0.5, 1.5}}},
    {"wide", &usual, {{HARK_F32, 2, {3, 1031}, -2, 2}, {HARK_F32, 1, {1031}, 0.5, 1.5}}},
};

const hark_operator hark_op_rms_norm = {
    .name = "rms_norm",
    .formula = "y = gain x / sqrt(mean(x^2) + epsilon)",
    .attributes_size = sizeof(hark_norm_attributes),
    .input_minimum = INPUT_COUNT,
    .input_maximum = INPUT_COUNT,
    .output_count = 1,
    .differentiable = 1u << INPUT_X | 1u << INPUT_GAIN,
    .backward_inputs = 1u << INPUT_X | 1u << INPUT_GAIN,
    .infer = infer,
    .forward = forward,
    .backward = backward,
    .operations = operations,
    .terms = terms,
    .samples = samples,
    .sample_count = sizeof samples / sizeof samples[0],
};
