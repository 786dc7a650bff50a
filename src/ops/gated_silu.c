/* gated_silu.c - y = silu(a) b, silu(a) = a s(a), s(a) = 1 / (1 + exp(-a)): the gate of SwiGLU.
 *
 * a, b, y of one shape. da = dy b s (1 + a (1 - s)), db = dy silu(a). Shazeer, arXiv 2002.05202.
 */
#include "ops/elementwise.h"

enum { INPUT_A, INPUT_B, INPUT_COUNT };

static hark_status infer(hark_context *context, const void *attributes, const hark_tensor *inputs, int input_count, hark_inferred *out) {
  static const char *const names[INPUT_COUNT] = {"a", "b"};
  return hark_elementwise_infer(context, &hark_op_gated_silu, names, attributes, inputs, input_count, out);
}

static void forward_range(const hark_call *call, int64_t first, int64_t last) {
  const hark_numbers a = hark_numbers_of(&call->inputs[INPUT_A]), b = hark_numbers_of(&call->inputs[INPUT_B]);
  const hark_numbers y = hark_numbers_of(&call->outputs[0]);
  for (int64_t i = first; i < last; i++) hark_put(y, i, hark_get(a, i) / (1 + exp(-hark_get(a, i))) * hark_get(b, i));
}

/* y = a s(a) b: da = dy b s (1 + a (1 - s)), db = dy a s. The gradients may overwrite the inputs, which are read before either is
 * written. */
static void backward_range(const hark_call *call, int64_t first, int64_t last) {
  const hark_numbers a = hark_numbers_of(&call->inputs[INPUT_A]), b = hark_numbers_of(&call->inputs[INPUT_B]);
  const hark_numbers dy = hark_numbers_of(&call->output_gradients[0]);
  const hark_numbers da = hark_gradient_of(call, INPUT_A), db = hark_gradient_of(call, INPUT_B);
  for (int64_t i = first; i < last; i++) {
    const double gate = hark_get(a, i), value = hark_get(b, i), gradient = hark_get(dy, i), sigmoid = 1 / (1 + exp(-gate));
    if (da.data != NULL) hark_give(da, i, gradient * value * sigmoid * (1 + gate * (1 - sigmoid)));
    if (db.data != NULL) hark_give(db, i, gradient * gate * sigmoid);
  }
}

HARK_ELEMENTWISE(5, 10, 4);

static const hark_sample samples[] = {
    {"one", NULL, {{HARK_F32, 1, {1}, -3, 3}, {HARK_F32, 1, {1}, -2, 2}}},
    {"primes", NULL, {{HARK_F32, 3, {3, 5, 7}, -3, 3}, {HARK_F32, 3, {3, 5, 7}, -2, 2}}},
    {"odd", NULL, {{HARK_F32, 1, {257}, -3, 3}, {HARK_F32, 1, {257}, -2, 2}}},
    {"many", NULL, {{HARK_F32, 2, {70, 129}, -3, 3}, {HARK_F32, 2, {70, 129}, -2, 2}}},
    {"tails", NULL, {{HARK_F32, 2, {5, 31}, -80, 80}, {HARK_F32, 2, {5, 31}, -2, 2}}},
};

const hark_operator hark_op_gated_silu = {
    .name = "gated_silu",
    .formula = "y = silu(a) b",
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
