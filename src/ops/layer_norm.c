/* layer_norm.c - y = gain xhat + bias, xhat = (x - mean) / sqrt(variance + epsilon), over the last dimension.
 *
 * x, y [N, D]; gain [D]; bias [D] or absent. variance is the mean of (x - mean)^2. Saved: mean [N], r = 1 / sqrt(variance + epsilon) [N].
 * With g = gain dy:  dx = r (g - mean(g) - xhat mean(g xhat)),  dgain = sum_n dy xhat,  dbias = sum_n dy.
 * About 8 N D operations forward, 13 N D backward. Ba, Kiros, Hinton, arXiv 1607.06450.
 */
#include "ops/definition.h"

enum { INPUT_X, INPUT_GAIN, INPUT_BIAS, INPUT_COUNT };
enum { SAVED_MEAN, SAVED_INVERSE_DEVIATION };

/* Columns of the gradients of gain and bias that one piece of work sums: a cache line of doubles. */
#define COLUMNS 8

#define FORWARD_OPERATIONS 8.0 /* per element */
#define BACKWARD_OPERATIONS 13.0

static hark_status infer(hark_context *context, const void *attributes, const hark_tensor *inputs, int input_count, hark_inferred *out) {
  static const hark_input_rule rules[INPUT_COUNT] = {{"x", HARK_F32, 1, HARK_MAX_RANK}, {"gain", HARK_F32, 1, 1}, {"bias", HARK_F32, 1, 1}};
  HARK_TRY(hark_check_inputs(context, &hark_op_layer_norm, rules, attributes, inputs, input_count));
  const double epsilon = ((const hark_norm_attributes *)attributes)->epsilon;
  const hark_tensor *x = &inputs[INPUT_X];
  const int64_t rows = hark_row_count(x), width = hark_row_length(x);
  if (!(epsilon >= 0) || !isfinite(epsilon)) {
    return hark_fail(context, HARK_INVALID_ARGUMENT, "layer_norm: epsilon is %g, expected 0 or more", epsilon);
  }
  if (width == 0) return hark_fail(context, HARK_SHAPE_MISMATCH, "layer_norm: rows of x have no features, expected at least one");
  HARK_TRY(hark_check_vector(context, &hark_op_layer_norm, "gain", &inputs[INPUT_GAIN], width, "the features of x"));
  if (hark_has_input(inputs, input_count, INPUT_BIAS)) {
    HARK_TRY(hark_check_vector(context, &hark_op_layer_norm, "bias", &inputs[INPUT_BIAS], width, "the features of x"));
  }
  HARK_TRY(hark_tensor_describe(context, x->type, x->rank, x->shape, &out->outputs[0]));
  HARK_TRY(hark_tensor_describe(context, x->type, 1, &rows, &out->saved[SAVED_MEAN]));
  HARK_TRY(hark_tensor_describe(context, x->type, 1, &rows, &out->saved[SAVED_INVERSE_DEVIATION]));
  return hark_partials_bytes(context, width, &out->backward_workspace);
}

static void forward_rows(const hark_call *call, int64_t first, int64_t last) {
  const double epsilon = ((const hark_norm_attributes *)call->attributes)->epsilon;
  const hark_tensor *input = &call->inputs[INPUT_X];
  const hark_numbers x = hark_numbers_of(input), gain = hark_numbers_of(&call->inputs[INPUT_GAIN]);
  const hark_numbers bias = hark_numbers_of(&call->inputs[INPUT_BIAS]), y = hark_numbers_of(&call->outputs[0]);
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

static hark_status forward(hark_context *context, const hark_call *call) {
  const hark_tensor *x = &call->inputs[INPUT_X];
  hark_range_for(context, call, hark_row_count(x), hark_row_grain(hark_row_length(x)), forward_rows);
  return HARK_OK;
}

/* y = gain (x - mean) r: dx = r (g - mean(g) - xhat mean(g xhat)), g = gain dy */
static void backward_rows(const hark_call *call, int64_t first, int64_t last) {
  const hark_tensor *input = &call->inputs[INPUT_X];
  const hark_numbers x = hark_numbers_of(input), gain = hark_numbers_of(&call->inputs[INPUT_GAIN]);
  const hark_numbers dy = hark_numbers_of(&call->output_gradients[0]), dx = hark_gradient_of(call, INPUT_X);
  const hark_numbers means = hark_numbers_of(&call->saved[SAVED_MEAN]);
  const hark_numbers inverses = hark_numbers_of(&call->saved[SAVED_INVERSE_DEVIATION]);
  const int64_t width = hark_row_length(input);
  for (int64_t n = first; n < last; n++) {
    const double mean = hark_get(means, n), inverse = hark_get(inverses, n);
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
  const hark_tensor *input = &call->inputs[INPUT_X];
  const hark_numbers x = hark_numbers_of(input), dy = hark_numbers_of(&call->output_gradients[0]);
  const hark_numbers dgain = hark_gradient_of(call, INPUT_GAIN), dbias = hark_gradient_of(call, INPUT_BIAS);
  const hark_numbers means = hark_numbers_of(&call->saved[SAVED_MEAN]);
  const hark_numbers inverses = hark_numbers_of(&call->saved[SAVED_INVERSE_DEVIATION]);
  const int64_t rows = hark_row_count(input), width = hark_row_length(input);
  double sum_gain[COLUMNS] = {0}, sum_bias[COLUMNS] = {0};
  for (int64_t n = 0; n < rows; n++) {
    const double mean = hark_get(means, n), inverse = hark_get(inverses, n);
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
  if (hark_gradient_is_absent(call)) return HARK_OK;
  const hark_tensor *x = &call->inputs[INPUT_X];
  const int64_t rows = hark_row_count(x), width = hark_row_length(x);
  const hark_tensor *gradients = call->input_gradients;
  if (hark_present(&gradients[INPUT_GAIN]) || hark_present(&gradients[INPUT_BIAS])) {
    hark_range_for(context, call, width, COLUMNS, backward_columns);
  }
  if (hark_present(&gradients[INPUT_X])) hark_range_for(context, call, rows, hark_row_grain(width), backward_rows);
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
    {"one_row", &usual, {{HARK_F32, 1, {37}, -2, 2}, {HARK_F32, 1, {37}, 0.5, 1.5}, {HARK_F32, 1, {37}, -1, 1}}},
    {"one_feature", &large, {{HARK_F32, 2, {5, 1}, -2, 2}, {HARK_F32, 1, {1}, 0.5, 1.5}, {HARK_F32, 1, {1}, -1, 1}}},
    {"three_features", &large, {{HARK_F32, 2, {11, 3}, -2, 2}, {HARK_F32, 1, {3}, 0.5, 1.5}, {HARK_F32, 1, {3}, -1, 1}}},
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
    .input_maximum = INPUT_COUNT,
    .output_count = 1,
    .differentiable = 1u << INPUT_X | 1u << INPUT_GAIN | 1u << INPUT_BIAS,
    .backward_inputs = 1u << INPUT_X | 1u << INPUT_GAIN,
    .infer = infer,
    .forward = forward,
    .backward = backward,
    .operations = operations,
    .terms = terms,
    .samples = samples,
    .sample_count = sizeof samples / sizeof samples[0],
};
