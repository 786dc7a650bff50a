/* rms_norm.c - y = gain x r, r = 1 / sqrt(mean(x^2) + epsilon), over the last dimension.
 *
 * x, y [N, D]; gain [D]. Saved: r [N].
 * With g = gain dy:  dx = r (g - x r^2 mean(g x)),  dgain = sum_n dy x r.
 * About 5 N D operations forward, 10 N D backward. Zhang, Sennrich, arXiv 1910.07467.
 */
#include "ops/norm.h"

#define FORWARD_OPERATIONS 5.0 /* per element */
#define BACKWARD_OPERATIONS 10.0

static hark_status infer(hark_context *context, const void *attributes, const hark_tensor *inputs, int input_count, hark_inferred *out) {
  return hark_norm_infer(context, &hark_op_rms_norm, attributes, inputs, input_count, 1, out);
}

static void forward_rows(const hark_call *call, int64_t first, int64_t last) {
  const double epsilon = ((const hark_norm_attributes *)call->attributes)->epsilon;
  const hark_tensor *input = &call->inputs[HARK_NORM_X];
  const hark_numbers x = hark_numbers_of(input), gain = hark_numbers_of(&call->inputs[HARK_NORM_GAIN]);
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

static hark_status forward(hark_context *context, const hark_call *call) { return hark_norm_forward(context, call, forward_rows); }

/* y = gain x r: dx = r (g - x r^2 mean(g x)), g = gain dy */
static void backward_rows(const hark_call *call, int64_t first, int64_t last) {
  const hark_tensor *input = &call->inputs[HARK_NORM_X];
  const hark_numbers x = hark_numbers_of(input), gain = hark_numbers_of(&call->inputs[HARK_NORM_GAIN]);
  const hark_numbers dy = hark_numbers_of(&call->output_gradients[0]), dx = hark_gradient_of(call, HARK_NORM_X);
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
  const hark_tensor *input = &call->inputs[HARK_NORM_X];
  const hark_numbers x = hark_numbers_of(input), dy = hark_numbers_of(&call->output_gradients[0]);
  const hark_numbers dgain = hark_gradient_of(call, HARK_NORM_GAIN), inverses = hark_numbers_of(&call->saved[0]);
  const int64_t rows = hark_row_count(input), width = hark_row_length(input);
  double sum[HARK_NORM_COLUMNS] = {0};
  for (int64_t n = 0; n < rows; n++) {
    const double inverse = hark_get(inverses, n);
    for (int64_t d = first; d < last; d++) sum[d - first] += hark_get(dy, n * width + d) * hark_get(x, n * width + d) * inverse;
  }
  for (int64_t d = first; d < last; d++) hark_give(dgain, d, sum[d - first]);
}

static hark_status backward(hark_context *context, const hark_call *call) {
  return hark_norm_backward(context, call, backward_rows, backward_columns);
}

static double operations(const void *attributes, const hark_tensor *inputs, int input_count, bool is_backward) {
  (void)attributes, (void)input_count;
  return (is_backward ? BACKWARD_OPERATIONS : FORWARD_OPERATIONS) * (double)hark_tensor_count(&inputs[HARK_NORM_X]);
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
    .input_minimum = 2,
    .input_maximum = 2,
    .output_count = 1,
    .differentiable = 1u << HARK_NORM_X | 1u << HARK_NORM_GAIN,
    .backward_inputs = 1u << HARK_NORM_X | 1u << HARK_NORM_GAIN,
    .infer = infer,
    .forward = forward,
    .backward = backward,
    .operations = operations,
    .terms = hark_norm_terms,
    .samples = samples,
    .sample_count = sizeof samples / sizeof samples[0],
};
