/* relu.c - y = max(x, 0).
 *
 * dy/dx = 1 where y > 0, else 0; so the backward reads the output, and the input may be overwritten. A NaN stays NaN. x, y of one shape.
 */
#include "ops/definition.h"

enum { INPUT_X, INPUT_COUNT };

#define FORWARD_OPERATIONS 1.0 /* per element */
#define BACKWARD_OPERATIONS 1.0

static hark_status infer(hark_context *context, const void *attributes, const hark_tensor *inputs, int input_count, hark_inferred *out) {
  static const hark_input_rule rules[INPUT_COUNT] = {{"x", HARK_F32, 0, HARK_MAX_RANK}};
  HARK_TRY(hark_check_inputs(context, &hark_op_relu, rules, attributes, inputs, input_count));
  const hark_tensor *x = &inputs[INPUT_X];
  return hark_tensor_describe(context, x->type, x->rank, x->shape, &out->outputs[0]);
}

/* Written so that a NaN, for which every comparison is false, passes through. */
static void forward_range(const hark_call *call, int64_t first, int64_t last) {
  const hark_numbers x = hark_numbers_of(&call->inputs[INPUT_X]), y = hark_numbers_of(&call->outputs[0]);
  for (int64_t i = first; i < last; i++) hark_put(y, i, hark_get(x, i) <= 0 ? 0 : hark_get(x, i));
}

static hark_status forward(hark_context *context, const hark_call *call) {
  hark_range_for(context, call, hark_tensor_count(&call->inputs[INPUT_X]), HARK_DEFINITION_GRAIN, forward_range);
  return HARK_OK;
}

/* y = max(x, 0): dx = dy where y > 0 */
static void backward_range(const hark_call *call, int64_t first, int64_t last) {
  const hark_numbers y = hark_numbers_of(&call->outputs[0]);
  const hark_numbers dy = hark_numbers_of(&call->output_gradients[0]), dx = hark_gradient_of(call, INPUT_X);
  for (int64_t i = first; i < last; i++) hark_give(dx, i, hark_get(y, i) > 0 ? hark_get(dy, i) : 0);
}

static hark_status backward(hark_context *context, const hark_call *call) {
  if (hark_gradient_is_absent(call) || !hark_present(&call->input_gradients[INPUT_X])) return HARK_OK;
  hark_range_for(context, call, hark_tensor_count(&call->output_gradients[0]), HARK_DEFINITION_GRAIN, backward_range);
  return HARK_OK;
}

static double operations(const void *attributes, const hark_tensor *inputs, int input_count, bool is_backward) {
  (void)attributes, (void)input_count;
  return (is_backward ? BACKWARD_OPERATIONS : FORWARD_OPERATIONS) * (double)hark_tensor_count(&inputs[INPUT_X]);
}

static int64_t terms(const void *attributes, const hark_tensor *inputs, int input_count) {
  (void)attributes, (void)inputs, (void)input_count;
  return 1;
}

static const hark_sample samples[] = {
    {"one", NULL, {{HARK_F32, 1, {1}, -3, 3}}},          {"scalar", NULL, {{HARK_F32, 0, {0}, -3, 3}}},
    {"primes", NULL, {{HARK_F32, 3, {3, 5, 7}, -3, 3}}}, {"odd", NULL, {{HARK_F32, 1, {257}, -3, 3}}},
    {"many", NULL, {{HARK_F32, 2, {70, 129}, -3, 3}}},   {"all_negative", NULL, {{HARK_F32, 1, {33}, -2, -1}}},
};

const hark_operator hark_op_relu = {
    .name = "relu",
    .formula = "y = max(x, 0)",
    .input_minimum = INPUT_COUNT,
    .input_maximum = INPUT_COUNT,
    .output_count = 1,
    .differentiable = 1u << INPUT_X,
    .backward_outputs = 1u,
    .in_place = 1u << INPUT_X,
    .infer = infer,
    .forward = forward,
    .backward = backward,
    .operations = operations,
    .terms = terms,
    .samples = samples,
    .sample_count = sizeof samples / sizeof samples[0],
};
