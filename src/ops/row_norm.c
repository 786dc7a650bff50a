/* row_norm.c - y[k] = |x[k]|, the square root of the sum of squares of everything that belongs to row k.
 *
 * x [K, ...], D numbers per row; y [K]. dx[k] = dy[k] x[k] / y[k], zero where y[k] is zero. 2 D operations per row forward, 2 D backward.
 */
#include "ops/definition.h"

enum { INPUT_X, INPUT_COUNT };

static int64_t width_of(const hark_tensor *x) { return x->shape[0] == 0 ? 0 : hark_tensor_count(x) / x->shape[0]; }

static hark_status infer(hark_context *context, const void *attributes, const hark_tensor *inputs, int input_count, hark_inferred *out) {
  static const hark_input_rule rules[INPUT_COUNT] = {{"x", HARK_F32, 2, HARK_MAX_RANK}};
  HARK_TRY(hark_check_inputs(context, &hark_op_row_norm, rules, attributes, inputs, input_count));
  return hark_tensor_describe(context, inputs[INPUT_X].type, 1, inputs[INPUT_X].shape, &out->outputs[0]);
}

static void forward_rows(const hark_call *call, int64_t first, int64_t last) {
  const hark_numbers x = hark_numbers_of(&call->inputs[INPUT_X]), y = hark_numbers_of(&call->outputs[0]);
  const int64_t width = width_of(&call->inputs[INPUT_X]);
  for (int64_t k = first; k < last; k++) {
    double sum = 0;
    for (int64_t i = k * width; i < (k + 1) * width; i++) sum += hark_get(x, i) * hark_get(x, i);
    hark_put(y, k, sqrt(sum));
  }
}

static hark_status forward(hark_context *context, const hark_call *call) {
  const hark_tensor *x = &call->inputs[INPUT_X];
  hark_range_for(context, call, x->shape[0], hark_row_grain(width_of(x)), forward_rows);
  return HARK_OK;
}

/* y = |x|: dx = dy x / y */
static void backward_rows(const hark_call *call, int64_t first, int64_t last) {
  const hark_numbers x = hark_numbers_of(&call->inputs[INPUT_X]), y = hark_numbers_of(&call->outputs[0]);
  const hark_numbers dy = hark_numbers_of(&call->output_gradients[0]), dx = hark_gradient_of(call, INPUT_X);
  const int64_t width = width_of(&call->inputs[INPUT_X]);
  for (int64_t k = first; k < last; k++) {
    const double norm = hark_get(y, k), factor = norm == 0 ? 0 : hark_get(dy, k) / norm;
    for (int64_t i = k * width; i < (k + 1) * width; i++) hark_give(dx, i, factor * hark_get(x, i));
  }
}

static hark_status backward(hark_context *context, const hark_call *call) {
  if (hark_gradient_is_absent(call) || !hark_present(&call->input_gradients[INPUT_X])) return HARK_OK;
  const hark_tensor *x = &call->inputs[INPUT_X];
  hark_range_for(context, call, x->shape[0], hark_row_grain(width_of(x)), backward_rows);
  return HARK_OK;
}

static double operations(const void *attributes, const hark_tensor *inputs, int input_count, bool is_backward) {
  (void)attributes, (void)input_count, (void)is_backward;
  return 2 * (double)hark_tensor_count(&inputs[INPUT_X]);
}

static int64_t terms(const void *attributes, const hark_tensor *inputs, int input_count) {
  (void)attributes, (void)input_count;
  return hark_max(1, width_of(&inputs[INPUT_X]));
}

static const hark_sample samples[] = {
    {"one", NULL, {{HARK_F32, 2, {1, 1}, 0.5, 1}}},       {"rows", NULL, {{HARK_F32, 2, {7, 33}, -1, 1}}},
    {"blocks", NULL, {{HARK_F32, 3, {5, 4, 17}, -1, 1}}}, {"many", NULL, {{HARK_F32, 2, {131, 257}, -1, 1}}},
    {"zeros", NULL, {{HARK_F32, 2, {3, 5}, 0, 0}}},
};

const hark_operator hark_op_row_norm = {
    .name = "row_norm",
    .formula = "y[k] = |x[k]|",
    .input_minimum = INPUT_COUNT,
    .input_maximum = INPUT_COUNT,
    .output_count = 1,
    .differentiable = 1u << INPUT_X,
    .backward_inputs = 1u << INPUT_X,
    .backward_outputs = 1u,
    .infer = infer,
    .forward = forward,
    .backward = backward,
    .operations = operations,
    .terms = terms,
    .samples = samples,
    .sample_count = sizeof samples / sizeof samples[0],
};
