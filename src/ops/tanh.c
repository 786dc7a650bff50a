/* tanh.c - y = tanh(x).
 *
 * dy/dx = 1 - y^2, so the backward reads the output, and the input may be overwritten. x, y of one shape.
 */
#include "ops/elementwise.h"

enum { INPUT_X, INPUT_COUNT };

static hark_status infer(hark_context *context, const void *attributes, const hark_tensor *inputs, int input_count, hark_inferred *out) {
  static const char *const names[INPUT_COUNT] = {"x"};
  return hark_elementwise_infer(context, &hark_op_tanh, names, attributes, inputs, input_count, out);
}

static void forward_range(const hark_call *call, int64_t first, int64_t last) {
  const hark_numbers x = hark_numbers_of(&call->inputs[INPUT_X]), y = hark_numbers_of(&call->outputs[0]);
  for (int64_t i = first; i < last; i++) hark_put(y, i, tanh(hark_get(x, i)));
}

/* y = tanh(x): dx = dy (1 - y^2) = dy (1 - y) (1 + y) */
static void backward_range(const hark_call *call, int64_t first, int64_t last) {
  const hark_numbers y = hark_numbers_of(&call->outputs[0]);
  const hark_numbers dy = hark_numbers_of(&call->output_gradients[0]), dx = hark_gradient_of(call, INPUT_X);
  for (int64_t i = first; i < last; i++) hark_give(dx, i, hark_get(dy, i) * (1 - hark_get(y, i)) * (1 + hark_get(y, i)));
}

HARK_ELEMENTWISE(4, 3, 1);

static const hark_sample samples[] = {
    {"one", NULL, {{HARK_F32, 1, {1}, -3, 3}}},          {"scalar", NULL, {{HARK_F32, 0, {0}, -3, 3}}},
    {"primes", NULL, {{HARK_F32, 3, {3, 5, 7}, -2, 2}}}, {"odd", NULL, {{HARK_F32, 1, {257}, -2, 2}}},
    {"many", NULL, {{HARK_F32, 2, {70, 129}, -2, 2}}},   {"steep", NULL, {{HARK_F32, 1, {33}, -5, 5}}},
};

const hark_operator hark_op_tanh = {
    .name = "tanh",
    .formula = "y = tanh(x)",
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
