/* silu.c - y = x s(x), s(x) = 1 / (1 + exp(-x)).
 *
 * dy/dx = s (1 + x (1 - s)). x, y of one shape. Elfwing, Uchibe, Doya, arXiv 1702.03118.
 */
#include "ops/elementwise.h"

enum { INPUT_X, INPUT_COUNT };

static hark_status infer(hark_context *context, const void *attributes, const hark_tensor *inputs, int input_count, hark_inferred *out) {
  static const char *const names[INPUT_COUNT] = {"x"};
  return hark_elementwise_infer(context, &hark_op_silu, names, attributes, inputs, input_count, out);
}

static void forward_range(const hark_call *call, int64_t first, int64_t last) {
  const hark_numbers x = hark_numbers_of(&call->inputs[INPUT_X]), y = hark_numbers_of(&call->outputs[0]);
  for (int64_t i = first; i < last; i++) hark_put(y, i, hark_get(x, i) / (1 + exp(-hark_get(x, i))));
}

/* y = x s(x): dx = dy s (1 + x (1 - s)) */
static void backward_range(const hark_call *call, int64_t first, int64_t last) {
  const hark_numbers x = hark_numbers_of(&call->inputs[INPUT_X]);
  const hark_numbers dy = hark_numbers_of(&call->output_gradients[0]), dx = hark_gradient_of(call, INPUT_X);
  for (int64_t i = first; i < last; i++) {
    const double at = hark_get(x, i), sigmoid = 1 / (1 + exp(-at));
    hark_give(dx, i, hark_get(dy, i) * sigmoid * (1 + at * (1 - sigmoid)));
  }
}

HARK_ELEMENTWISE(4, 7, 4);

static const hark_sample samples[] = {
    {"one", NULL, {{HARK_F32, 1, {1}, -3, 3}}},          {"scalar", NULL, {{HARK_F32, 0, {0}, -3, 3}}},
    {"primes", NULL, {{HARK_F32, 3, {3, 5, 7}, -3, 3}}}, {"odd", NULL, {{HARK_F32, 1, {257}, -3, 3}}},
    {"many", NULL, {{HARK_F32, 2, {70, 129}, -3, 3}}},   {"tails", NULL, {{HARK_F32, 2, {5, 31}, -80, 80}}},
};

const hark_operator hark_op_silu = {
    .name = "silu",
    .formula = "y = x sigmoid(x)",
    .input_minimum = INPUT_COUNT,
    .input_maximum = INPUT_COUNT,
    .output_count = 1,
    .differentiable = 1u << INPUT_X,
    .backward_inputs = 1u << INPUT_X,
    .in_place = 1u << INPUT_X,
    .gradient_in_place = 1u << INPUT_X,
    .infer = infer,
    .forward = forward,
    .backward = backward,
    .operations = operations,
    .terms = terms,
    .samples = samples,
    .sample_count = sizeof samples / sizeof samples[0],
};
