/* relu.c - y = max(x, 0).
 *
 * dy/dx = 1 where y > 0, NaN where y is NaN, else 0. So the backward reads the output, and the input may be overwritten. A NaN stays NaN.
 * x, y of one shape.
 */
#include "ops/elementwise.h"

enum { INPUT_X, INPUT_COUNT };

static hark_status infer(hark_context *context, const void *attributes, const hark_tensor *inputs, int input_count, hark_inferred *out) {
  static const char *const names[INPUT_COUNT] = {"x"};
  return hark_elementwise_infer(context, &hark_op_relu, names, attributes, inputs, input_count, out);
}

/* Written so that a NaN, for which every comparison is false, passes through. */
static void forward_range(const hark_call *call, int64_t first, int64_t last) {
  const hark_numbers x = hark_numbers_of(&call->inputs[INPUT_X]), y = hark_numbers_of(&call->outputs[0]);
  for (int64_t i = first; i < last; i++) hark_put(y, i, hark_get(x, i) <= 0 ? 0 : hark_get(x, i));
}

/* y = max(x, 0): dx = dy where y > 0 */
static void backward_range(const hark_call *call, int64_t first, int64_t last) {
  const hark_numbers y = hark_numbers_of(&call->outputs[0]);
  const hark_numbers dy = hark_numbers_of(&call->output_gradients[0]), dx = hark_gradient_of(call, INPUT_X);
  for (int64_t i = first; i < last; i++) {
    const double value = hark_get(y, i);
    hark_give(dx, i, value > 0 ? hark_get(dy, i) : isnan(value) ? value : 0);
  }
}

HARK_ELEMENTWISE(1, 1, 1);

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
