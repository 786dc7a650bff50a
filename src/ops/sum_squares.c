/* sum_squares.c - y = sum over all elements of x^2, in f64: the square of the gradient's norm.
 *
 * x of any shape, y f64 [1]. 2 n operations. The elements are cut into at most HARK_DEFINITION_PARTIALS ranges whose bounds depend on n
 * alone, and the ranges' sums are added in order, so that the bits do not depend on the threads. Not differentiable.
 */
#include "ops/definition.h"

enum { INPUT_X, INPUT_COUNT };

#define OPERATIONS_PER_NUMBER 2.0

static hark_status infer(hark_context *context, const void *attributes, const hark_tensor *inputs, int input_count, hark_inferred *out) {
  static const hark_input_rule rules[INPUT_COUNT] = {{"x", HARK_F32, 0, HARK_MAX_RANK}};
  HARK_TRY(hark_check_inputs(context, &hark_op_sum_squares, rules, attributes, inputs, input_count));
  const int64_t one = 1;
  out->forward_workspace = HARK_DEFINITION_PARTIALS * sizeof(double);
  return hark_tensor_describe(context, HARK_F64, 1, &one, &out->outputs[0]);
}

static int64_t range_length(int64_t count) { return hark_max(HARK_DEFINITION_GRAIN, hark_ceil_div(count, HARK_DEFINITION_PARTIALS)); }

static void forward_range(const hark_call *call, int64_t first, int64_t last) {
  const hark_tensor *input = &call->inputs[INPUT_X];
  const hark_numbers x = hark_numbers_of(input);
  double sum = 0;
  for (int64_t i = first; i < last; i++) sum += hark_get(x, i) * hark_get(x, i);
  ((double *)call->workspace)[first / range_length(hark_tensor_count(input))] = sum;
}

static hark_status forward(hark_context *context, const hark_call *call) {
  const int64_t count = hark_tensor_count(&call->inputs[INPUT_X]), length = range_length(count);
  hark_range_for(context, call, count, length, forward_range);
  const double *partials = call->workspace;
  double sum = 0;
  for (int64_t p = 0; p < hark_ceil_div(count, length); p++) sum += partials[p];
  *(double *)call->outputs[0].data = sum;
  return HARK_OK;
}

static double operations(const void *attributes, const hark_tensor *inputs, int input_count, bool is_backward) {
  (void)attributes, (void)input_count;
  return is_backward ? 0 : OPERATIONS_PER_NUMBER * (double)hark_tensor_count(&inputs[INPUT_X]);
}

static int64_t terms(const void *attributes, const hark_tensor *inputs, int input_count) {
  (void)attributes, (void)input_count;
  return hark_max(1, hark_tensor_count(&inputs[INPUT_X]));
}

static const hark_sample samples[] = {
    {"one", NULL, {{HARK_F32, 1, {1}, -2, 2}}},          {"scalar", NULL, {{HARK_F32, 0, {0}, -2, 2}}},
    {"primes", NULL, {{HARK_F32, 3, {3, 5, 7}, -2, 2}}}, {"odd", NULL, {{HARK_F32, 1, {257}, -2, 2}}},
    {"many", NULL, {{HARK_F32, 2, {301, 129}, -2, 2}}},  {"small_numbers", NULL, {{HARK_F32, 1, {4097}, -1e-20, 1e-20}}},
};

const hark_operator hark_op_sum_squares = {
    .name = "sum_squares",
    .formula = "y = sum x^2",
    .input_minimum = INPUT_COUNT,
    .input_maximum = INPUT_COUNT,
    .output_count = 1,
    .infer = infer,
    .forward = forward,
    .operations = operations,
    .terms = terms,
    .samples = samples,
    .sample_count = sizeof samples / sizeof samples[0],
};
