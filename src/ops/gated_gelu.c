/* gated_gelu.c - y = gelu(a) b, exact or with the tanh approximation of gelu.c: the gate of GEGLU.
 *
 * a, b, y of one shape. da = dy b gelu'(a), db = dy gelu(a). Shazeer, arXiv 2002.05202.
 */
#include "ops/elementwise.h"
#include "ops/gelu_value.h"

enum { INPUT_A, INPUT_B, INPUT_COUNT };

static hark_status infer(hark_context *context, const void *attributes, const hark_tensor *inputs, int input_count, hark_inferred *out) {
  static const char *const names[INPUT_COUNT] = {"a", "b"};
  return hark_elementwise_infer(context, &hark_op_gated_gelu, names, attributes, inputs, input_count, out);
}

static bool is_approximate(const hark_call *call) { return ((const hark_gelu_attributes *)call->attributes)->tanh_approximation; }

static void forward_range(const hark_call *call, int64_t first, int64_t last) {
  const bool approximate = is_approximate(call);
  const hark_numbers a = hark_numbers_of(&call->inputs[INPUT_A]), b = hark_numbers_of(&call->inputs[INPUT_B]);
  const hark_numbers y = hark_numbers_of(&call->outputs[0]);
  for (int64_t i = first; i < last; i++) hark_put(y, i, gelu_value(hark_get(a, i), approximate) * hark_get(b, i));
}

/* y = gelu(a) b: da = dy b gelu'(a), db = dy gelu(a). The gradients may overwrite the inputs, which are read before either is written. */
static void backward_range(const hark_call *call, int64_t first, int64_t last) {
  const bool approximate = is_approximate(call);
  const hark_numbers a = hark_numbers_of(&call->inputs[INPUT_A]), b = hark_numbers_of(&call->inputs[INPUT_B]);
  const hark_numbers dy = hark_numbers_of(&call->output_gradients[0]);
  const hark_numbers da = hark_gradient_of(call, INPUT_A), db = hark_gradient_of(call, INPUT_B);
  for (int64_t i = first; i < last; i++) {
    const double gate = hark_get(a, i), value = hark_get(b, i), gradient = hark_get(dy, i);
    if (da.data != NULL) hark_give(da, i, gradient * value * gelu_slope(gate, approximate));
    if (db.data != NULL) hark_give(db, i, gradient * gelu_value(gate, approximate));
  }
}

HARK_ELEMENTWISE(9, 16, 4);

static const hark_gelu_attributes exact = {false}, tanh_form = {true};

static const hark_sample samples[] = {
    {"one", &exact, {{HARK_F32, 1, {1}, -3, 3}, {HARK_F32, 1, {1}, -2, 2}}},
    {"primes", &exact, {{HARK_F32, 3, {3, 5, 7}, -3, 3}, {HARK_F32, 3, {3, 5, 7}, -2, 2}}},
    {"odd", &exact, {{HARK_F32, 1, {257}, -3, 3}, {HARK_F32, 1, {257}, -2, 2}}},
    {"many", &exact, {{HARK_F32, 2, {70, 129}, -3, 3}, {HARK_F32, 2, {70, 129}, -2, 2}}},
    {"tails", &exact, {{HARK_F32, 2, {5, 31}, -9, 9}, {HARK_F32, 2, {5, 31}, -2, 2}}},
    {"tanh", &tanh_form, {{HARK_F32, 2, {7, 37}, -3, 3}, {HARK_F32, 2, {7, 37}, -2, 2}}},
    {"tanh_tails", &tanh_form, {{HARK_F32, 2, {5, 31}, -9, 9}, {HARK_F32, 2, {5, 31}, -2, 2}}},
};

const hark_operator hark_op_gated_gelu = {
    .name = "gated_gelu",
    .formula = "y = gelu(a) b",
    .attributes_size = sizeof(hark_gelu_attributes),
    .input_minimum = INPUT_COUNT,
    .input_maximum = INPUT_COUNT,
    .output_count = 1,
    .differentiable = 1u << INPUT_A | 1u << INPUT_B,
    .backward_inputs = 1u << INPUT_A | 1u << INPUT_B,
    .in_place = 1u << INPUT_A | 1u << INPUT_B,
    .gradient_in_place = 1u << INPUT_A | 1u << INPUT_B,
    .infer = infer,
    .forward = forward,
    .backward = backward,
    .operations = operations,
    .terms = terms,
    .samples = samples,
    .sample_count = sizeof samples / sizeof samples[0],
};
