/* layer_norm.c - y = gain xhat + bias, xhat = (x - mean) / sqrt(variance + epsilon), over the last dimension.
 *
 * x, y [N, D]; gain [D]; bias [D] or absent. variance is the mean of (x - mean)^2. Saved: mean [N], r = 1 / sqrt(variance + epsilon) [N].
 * With g = gain dy:  dx = r (g - mean(g) - xhat mean(g xhat)),  dgain = sum_n dy xhat,  dbias = sum_n dy.
 * About 8 N D operations forward, 13 N D backward. Ba, Kiros, Hinton, arXiv 1607.06450.
 */
#include "ops/norm.h"

enum { SAVED_MEAN, SAVED_INVERSE_DEVIATION, SAVED_COUNT };

#define FORWARD_OPERATIONS 8.0 /* per element */
#define BACKWARD_OPERATIONS 13.0
#define FAR_MEAN 16.0 /* standard deviations from zero */

/* The mean of row n: the saved one, recomputed where its rounding to f32 would matter. */
static double mean_of(hark_numbers x, int64_t n, int64_t width, double saved, double inverse) {
  double rest = 0;
  if (!(fabs(saved) * inverse > FAR_MEAN)) return saved;
  for (int64_t d = 0; d < width; d++) rest += hark_get(x, n * width + d) - saved;
  return saved + rest / (double)width;
}

static hark_status infer(hark_context *context, const void *attributes, const hark_tensor *inputs, int input_count, hark_inferred *out) {
  return hark_norm_infer(context, &hark_op_layer_norm, attributes, inputs, input_count, SAVED_COUNT, out);
}

static void forward_rows(const hark_call *call, int64_t first, int64_t last) {
  const double epsilon = ((const hark_norm_attributes *)call->attributes)->epsilon;
  const hark_tensor *input = &call->inputs[HARK_NORM_X];
  const hark_numbers x = hark_numbers_of(input), gain = hark_numbers_of(&call->inputs[HARK_NORM_GAIN]);
  const hark_numbers bias = hark_numbers_of(&call->inputs[HARK_NORM_BIAS]), y = hark_numbers_of(&call->outputs[0]);
  const hark_numbers means = hark_numbers_of(&call->saved[SAVED_MEAN]);
  const hark_numbers inverses = hark_numbers_of(&call->saved[SAVED_INVERSE_DEVIATION]);
  const int64_t width = hark_row_length(input);
  for (int64_t n = first; n < last; n++) {
    double mean = 0, variance = 0;
    for (int64_t d = 0; d < width; d++) mean += hark_get(x, n * width + d);
    mean /= (double)width;
    for (int64_t d = 0; d < width; d++) {
      const double centred = hark_get(x, n * width + d) - mean;
      variance += centred * centred;
    }
    variance /= (double)width;
    const double inverse = 1 / sqrt(variance + epsilon);
    for (int64_t d = 0; d < width; d++) {
      const double shift = bias.data == NULL ? 0 : hark_get(bias, d);
      hark_put(y, n * width + d, hark_get(gain, d) * (hark_get(x, n * width + d) - mean) * inverse + shift);
    }
    hark_put(means, n, mean);
    hark_put(inverses, n, inverse);
  }
}

static hark_status forward(hark_context *context, const hark_call *call) { return hark_norm_forward(context, call, forward_rows); }

/* y = gain (x - mean) r: dx = r (g - mean(g) - xhat mean(g xhat)), g = gain dy */
static void backward_rows(const hark_call *call, int64_t first, int64_t last) {
  const hark_tensor *input = &call->inputs[HARK_NORM_X];
  const hark_numbers x = hark_numbers_of(input), gain = hark_numbers_of(&call->inputs[HARK_NORM_GAIN]);
  const hark_numbers dy = hark_numbers_of(&call->output_gradients[0]), dx = hark_gradient_of(call, HARK_NORM_X);
  const hark_numbers means = hark_numbers_of(&call->saved[SAVED_MEAN]);
  const hark_numbers inverses = hark_numbers_of(&call->saved[SAVED_INVERSE_DEVIATION]);
  const int64_t width = hark_row_length(input);
  for (int64_t n = first; n < last; n++) {
    const double inverse = hark_get(inverses, n), mean = mean_of(x, n, width, hark_get(means, n), inverse);
    double mean_g = 0, mean_gx = 0;
    for (int64_t d = 0; d < width; d++) {
      const double g = hark_get(gain, d) * hark_get(dy, n * width + d);
      mean_g += g;
      mean_gx += g * (hark_get(x, n * width + d) - mean) * inverse;
    }
    mean_g /= (double)width;
    mean_gx /= (double)width;
    for (int64_t d = 0; d < width; d++) {
      const double g = hark_get(gain, d) * hark_get(dy, n * width + d), normal = (hark_get(x, n * width + d) - mean) * inverse;
      hark_give(dx, n * width + d, inverse * (g - mean_g - normal * mean_gx));
    }
  }
}

/* y = gain xhat + bias: dgain = sum_n dy xhat, dbias = sum_n dy, for the columns [first, last) */
static void backward_columns(const hark_call *call, int64_t first, int64_t last) {
  const hark_tensor *input = &call->inputs[HARK_NORM_X];
  const hark_numbers x = hark_numbers_of(input), dy = hark_numbers_of(&call->output_gradients[0]);
  const hark_numbers dgain = hark_gradient_of(call, HARK_NORM_GAIN), dbias = hark_gradient_of(call, HARK_NORM_BIAS);
  const hark_numbers means = hark_numbers_of(&call->saved[SAVED_MEAN]);
  const hark_numbers inverses = hark_numbers_of(&call->saved[SAVED_INVERSE_DEVIATION]);
  const int64_t rows = hark_row_count(input), width = hark_row_length(input);
  double sum_gain[HARK_NORM_COLUMNS] = {0}, sum_bias[HARK_NORM_COLUMNS] = {0};
  for (int64_t n = 0; n < rows; n++) {
    const double inverse = hark_get(inverses, n), mean = mean_of(x, n, width, hark_get(means, n), inverse);
    for (int64_t d = first; d < last; d++) {
      const double gradient = hark_get(dy, n * width + d);
      sum_gain[d - first] += gradient * (hark_get(x, n * width + d) - mean) * inverse;
      sum_bias[d - first] += gradient;
    }
  }
  for (int64_t d = first; d < last; d++) {
    if (dgain.data != NULL) hark_give(dgain, d, sum_gain[d - first]);
    if (dbias.data != NULL) hark_give(dbias, d, sum_bias[d - first]);
  }
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
    {"one_row", &usual, {{HARK_F32, 1, {37}, -2, 2}, {HARK_F32, 1, {37}, 0.5, 1.5}, {HARK_F32, 1, {37}, -1, 1}}},
    {"one_feature", &large, {{HARK_F32, 2, {5, 1}, -2, 2}, {HARK_F32, 1, {1}, 0.5, 1.5}, {HARK_F32, 1, {1}, -1, 1}}},
    {"three_features", &large, {{HARK_F32, 2, {11, 3}, -2, 2}, {HARK_F32, 1, {3}, 0.5, 1.5}, {HARK_F32, 1, {3}, -1, 1}}},
    {"far", &usual, {{HARK_F32, 2, {9, 75}, 4094, 4098}, {HARK_F32, 1, {75}, 0.5, 1.5}, {HARK_F32, 1, {75}, -1, 1}}},
    {"batch", &usual, {{HARK_F32, 3, {2, 7, 64}, -2, 2}, {HARK_F32, 1, {64}, -1, 1}, {HARK_F32, 1, {64}, -1, 1}}},
    {"without_bias", &usual, {{HARK_F32, 2, {13, 33}, -2, 2}, {HARK_F32, 1, {33}, 0.5, 1.5}}},
    {"off_centre", &usual, {{HARK_F32, 2, {7, 100}, 1, 3}, {HARK_F32, 1, {100}, 0.5, 1.5}, {HARK_F32, 1, {100}, -1, 1}}},
    {"many_rows", &usual, {{HARK_F32, 2, {257, 17}, -2, 2}, {HARK_F32, 1, {17}, 0.5, 1.5}, {HARK_F32, 1, {17}, -1, 1}}},
    {"wide", &usual, {{HARK_F32, 2, {3, 1031}, -2, 2}, {HARK_F32, 1, {1031}, 0.5, 1.5}, {HARK_F32, 1, {1031}, -1, 1}}},
};

const hark_operator hark_op_layer_norm = {
    .name = "layer_norm",
    .formula = "y = gain (x - mean) / sqrt(variance + epsilon) + bias",
    .attributes_size = sizeof(hark_norm_attributes),
    .input_minimum = 2,
    .input_maximum = 3,
    .output_count = 1,
    .differentiable = 1u << HARK_NORM_X | 1u << HARK_NORM_GAIN | 1u << HARK_NORM_BIAS,
    .backward_inputs = 1u << HARK_NORM_X | 1u << HARK_NORM_GAIN,
    .infer = infer,
    .forward = forward,
    .backward = backward,
    .operations = operations,
    .terms = hark_norm_terms,
    .samples = samples,
    .sample_count = sizeof samples / sizeof samples[0],
};
