/* log_sigmoid.c - y = log sigmoid(x) = min(x, 0) - log(1 + exp(-|x|)), which never overflows.
 *
 * dy/dx = 1 - sigmoid(x) = 1 - exp(y), computed as -expm1(y), so that the backward reads the output.
 */
#include "ops/elementwise.h"

enum { INPUT_X, INPUT_COUNT };

static hark_status infer(hark_context *context, const void *attributes, const hark_tensor *inputs, int input_count, hark_inferred *out) {
  static const char *const names[INPUT_COUNT] = {"x"};
  return hark_elementwise_infer(context, &hark_op_log_sigmoid, names, attributes, inputs, input_count, out);
}

static void forward_range(const hark_call *call, int64_t first, int64_t last) {
  const hark_numbers x = hark_numbers_of(&call->inputs[INPUT_X]), y = hark_numbers_of(&call->outputs[0]);
  for (int64_t i = first; i < last; i++) hark_put(y, i, fmin(hark_get(x, i), 0) - log1p(exp(-fabs(hark_get(x, i)))));
}

/* y = log sigmoid(x): dx = dy (1 - exp(y)) */
static void backward_range(const hark_call *call, int64_t first, int64_t last) {
  const hark_numbers y = hark_numbers_of(&call->outputs[0]);
  const hark_numbers dy = hark_numbers_of(&call->output_gradients[0]), dx = hark_gradient_of(call, INPUT_X);
  for (int64_t i = first; i < last; i++) hark_give(dx, i, hark_get(dy, i) * -expm1(hark_get(y, i)));
}

HARK_ELEMENTWISE(4, 2, 2);

static const hark_sample samples[] = {
    {"one", NULL, {{HARK_F32, 1, {1}, -3, 3}}},
    {"primes", NULL, {{HARK_F32, 3, {3, 5, 7}, -3, 3}}},
    {"odd", NULL, {{HARK_F32, 1, {257}, -3, 3}}},
    {"tails", NULL, {{HARK_F32, 2, {5, 31}, -80, 8}}},
};

const hark_operator hark_op_log_sigmoid = {
    .name = "log_sigmoid",
    .formula = "y = log sigmoid(x)",
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
