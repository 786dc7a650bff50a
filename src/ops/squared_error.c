/* squared_error.c - loss = weight sum (prediction - target)^2.
 *
 * prediction, target of one shape; loss of rank 0. dprediction = 2 dloss weight (prediction - target), which may overwrite the prediction;
 * the target is data. Rows' sums are added in double, in the order of the rows. 3 operations per element forward, 3 backward.
 */
#include "core/range.h"
#include "io/number.h"
#include "ops/definition.h"

enum { INPUT_PREDICTION, INPUT_TARGET, INPUT_COUNT };

#define ELEMENT_OPERATIONS 3.0

static hark_status infer(hark_context *context, const void *attributes, const hark_tensor *inputs, int input_count, hark_inferred *out) {
  static const hark_input_rule rules[INPUT_COUNT] = {{"prediction", HARK_F32, 1, HARK_MAX_RANK}, {"target", HARK_F32, 1, HARK_MAX_RANK}};
  const hark_operator *const op = &hark_op_squared_error;
  HARK_TRY(hark_check_inputs(context, op, rules, attributes, inputs, input_count));
  HARK_TRY(hark_check_same_shape(context, op, "prediction", &inputs[INPUT_PREDICTION], "target", &inputs[INPUT_TARGET]));
  const double weight = ((const hark_squared_error_attributes *)attributes)->weight;
  if (!isfinite(weight)) {
    return hark_fail(context, HARK_INVALID_ARGUMENT, "squared_error: weight is %s, expected a finite number", HARK_PRINTED(weight));
  }
  const hark_type type = inputs[INPUT_PREDICTION].type;
  HARK_TRY(hark_check_range(context, "squared_error", "weight", weight, type, hark_range_of(type)));
  HARK_TRY(hark_tensor_describe(context, inputs[INPUT_PREDICTION].type, 0, NULL, &out->outputs[0]));
  return hark_size_multiply(context, (size_t)hark_row_count(&inputs[INPUT_PREDICTION]), sizeof(double), &out->forward_workspace);
}

static void forward_rows(const hark_call *call, int64_t first, int64_t last) {
  const hark_numbers x = hark_numbers_of(&call->inputs[INPUT_PREDICTION]), t = hark_numbers_of(&call->inputs[INPUT_TARGET]);
  const int64_t width = hark_row_length(&call->inputs[INPUT_PREDICTION]);
  double *row_terms = call->workspace;
  for (int64_t n = first; n < last; n++) {
    double sum = 0;
    for (int64_t i = n * width; i < (n + 1) * width; i++) {
      const double error = hark_get(x, i) - hark_get(t, i);
      sum += error * error;
    }
    row_terms[n] = sum;
  }
}

static hark_status forward(hark_context *context, const hark_call *call) {
  const hark_tensor *x = &call->inputs[INPUT_PREDICTION];
  const int64_t rows = hark_row_count(x);
  const double *row_terms = call->workspace;
  double sum = 0;
  hark_range_for(context, call, rows, hark_row_grain(hark_row_length(x)), forward_rows);
  for (int64_t n = 0; n < rows; n++) sum += row_terms[n];
  hark_put(hark_numbers_of(&call->outputs[0]), 0, ((const hark_squared_error_attributes *)call->attributes)->weight * sum);
  return HARK_OK;
}

/* loss = weight sum (x - t)^2: dx = 2 dloss weight (x - t) */
static void backward_range(const hark_call *call, int64_t first, int64_t last) {
  const hark_numbers x = hark_numbers_of(&call->inputs[INPUT_PREDICTION]), t = hark_numbers_of(&call->inputs[INPUT_TARGET]);
  const hark_numbers dx = hark_gradient_of(call, INPUT_PREDICTION);
  const double weight = ((const hark_squared_error_attributes *)call->attributes)->weight;
  const double factor = 2 * weight * hark_get(hark_numbers_of(&call->output_gradients[0]), 0);
  for (int64_t i = first; i < last; i++) hark_give(dx, i, factor * (hark_get(x, i) - hark_get(t, i)));
}

static hark_status backward(hark_context *context, const hark_call *call) {
  if (hark_gradient_is_absent(call) || !hark_present(&call->input_gradients[INPUT_PREDICTION])) return HARK_OK;
  hark_range_for(context, call, hark_tensor_count(&call->inputs[INPUT_PREDICTION]), HARK_DEFINITION_GRAIN, backward_range);
  return HARK_OK;
}

static double operations(const void *attributes, const hark_tensor *inputs, int input_count, bool is_backward) {
  (void)attributes, (void)input_count, (void)is_backward;
  return ELEMENT_OPERATIONS * (double)hark_tensor_count(&inputs[INPUT_PREDICTION]);
}

static int64_t terms(const void *attributes, const hark_tensor *inputs, int input_count) {
  (void)attributes, (void)input_count;
  return hark_max(1, hark_tensor_count(&inputs[INPUT_PREDICTION]));
}

static const hark_squared_error_attributes one = {1}, mean = {1.0 / 33};

static const hark_sample samples[] = {
    {"one", &one, {{HARK_F32, 1, {1}, -1, 1}, {HARK_F32, 1, {1}, -1, 1}}},
    {"none", &one, {{HARK_F32, 2, {0, 3}, -1, 1}, {HARK_F32, 2, {0, 3}, -1, 1}}},
    {"rows", &mean, {{HARK_F32, 2, {33, 7}, -1, 1}, {HARK_F32, 2, {33, 7}, -1, 1}}},
    {"blocks", &mean, {{HARK_F32, 3, {5, 4, 17}, -2, 2}, {HARK_F32, 3, {5, 4, 17}, -2, 2}}},
    {"many", &mean, {{HARK_F32, 2, {131, 129}, -1, 1}, {HARK_F32, 2, {131, 129}, -1, 1}}},
};

const hark_operator hark_op_squared_error = {
    .name = "squared_error",
    .formula = "loss = weight sum (prediction - target)^2",
    .attributes_size = sizeof(hark_squared_error_attributes),
    .input_minimum = INPUT_COUNT,
    .input_maximum = INPUT_COUNT,
    .output_count = 1,
    .differentiable = 1u << INPUT_PREDICTION,
    .backward_inputs = 1u << INPUT_PREDICTION | 1u << INPUT_TARGET,
    .gradient_in_place = 1u << INPUT_PREDICTION,
    .infer = infer,
    .forward = forward,
    .backward = backward,
    .operations = operations,
    .terms = terms,
    .samples = samples,
    .sample_count = sizeof samples / sizeof samples[0],
};
