/* gelu.c - y = x Phi(x), Phi the distribution function of the standard normal; or its tanh approximation.
 *
 * exact: Phi(x) = erfc(-x / sqrt 2) / 2, dy/dx = Phi(x) + x phi(x), phi(x) = exp(-x^2 / 2) / sqrt(2 pi).
 * tanh:  y = x/2 (1 + t), t = tanh(u), u = sqrt(2/pi) (x + 0.044715 x^3), dy/dx = (1 + t)/2 + x/2 (1 - t^2) u'.
 * x, y of one shape. Hendrycks, Gimpel, arXiv 1606.08415.
 */
#include "ops/elementwise.h"
#include "ops/gelu_value.h"

enum { INPUT_X, INPUT_COUNT };

static hark_status infer(hark_context *context, const void *attributes, const hark_tensor *inputs, int input_count, hark_inferred *out) {
  static const char *const names[INPUT_COUNT] = {"x"};
  return hark_elementwise_infer(context, &hark_op_gelu, names, attributes, inputs, input_count, out);
}

static void forward_range(const hark_call *call, int64_t first, int64_t last) {
  const bool tanh_approximation = ((const hark_gelu_attributes *)call->attributes)->tanh_approximation;
  const hark_numbers x = hark_numbers_of(&call->inputs[INPUT_X]), y = hark_numbers_of(&call->outputs[0]);
  for (int64_t i = first; i < last; i++) hark_put(y, i, gelu_value(hark_get(x, i), tanh_approximation));
}

/* y = f(x): dx = dy f'(x) */
static void backward_range(const hark_call *call, int64_t first, int64_t last) {
  const bool tanh_approximation = ((const hark_gelu_attributes *)call->attributes)->tanh_approximation;
  const hark_numbers x = hark_numbers_of(&call->inputs[INPUT_X]);
  const hark_numbers dy = hark_numbers_of(&call->output_gradients[0]), dx = hark_gradient_of(call, INPUT_X);
  for (int64_t i = first; i < last; i++) hark_give(dx, i, hark_get(dy, i) * gelu_slope(hark_get(x, i), tanh_approximation));
}

HARK_ELEMENTWISE(8, 14, 4);

static const hark_gelu_attributes exact = {false}, approximate = {true};

static const hark_sample samples[] = {
    {"one", &exact, {{HARK_F32, 1, {1}, -3, 3}}},
    {"scalar", &exact, {{HARK_F32, 0, {0}, -3, 3}}},
    {"primes", &exact, {{HARK_F32, 3, {3, 5, 7}, -3, 3}}},
    {"odd", &exact, {{HARK_F32, 1, {257}, -3, 3}}},
    {"many", &exact, {{HARK_F32, 2, {70, 129}, -3, 3}}},
    {"tails", &exact, {{HARK_F32, 2, {5, 31}, -9, 9}}},
    {"tanh", &approximate, {{HARK_F32, 2, {7, 37}, -3, 3}}},
    {"tanh_tails", &approximate, {{HARK_F32, 2, {5, 31}, -9, 9}}},
};

const hark_operator hark_op_gelu = {
    .name = "gelu",
    .formula = "y = x Phi(x), or x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))",
    .attributes_size = sizeof(hark_gelu_attributes),
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
