/* add.c - y = a + b, for equal shapes: the residual connection.
 *
 * da = db = dy. One operation per element.
 */
#include "ops/elementwise.h"

enum { INPUT_A, INPUT_B, INPUT_COUNT };

static hark_status infer(hark_context *context, const void *attributes, const hark_tensor *inputs, int input_count, hark_inferred *out) {
  static const char *const names[INPUT_COUNT] = {"a", "b"};
  return hark_elementwise_infer(context, &hark_op_add, names, attributes, inputs, input_count, out);
}

static void forward_range(const hark_call *call, int64_t first, int64_t last) {
  const hark_numbers a = hark_numbers_of(&call->inputs[INPUT_A]), b = hark_numbers_of(&call->inputs[INPUT_B]);
  const hark_numbers y = hark_numbers_of(&call->outputs[0]);
  for (int64_t i = first; i < last; i++) hark_put(y, i, hark_get(a, i) + hark_get(b, i));
}

/* y = a + b: da = dy, db = dy */
static void backward_range(const hark_call *call, int64_t first, int64_t last) {
  const hark_numbers dy = hark_numbers_of(&call->output_gradients[0]);
  const hark_numbers da = hark_gradient_of(call, INPUT_A), db = hark_gradient_of(call, INPUT_B);
  for (int64_t i = first; i < last; i++) {
    const double gradient = hark_get(dy, i);
    if (da.data != NULL) hark_give(da, i, gradient);
    if (db.data != NULL) hark_give(db, i, gradient);
  }
}

HARK_ELEMENTWISE(1, 0, 2);

static const hark_sample samples[] = {
    {"one", NULL, {{HARK_F32, 1, {1}, -2, 2}, {HARK_F32, 1, {1}, -2, 2}}},
    {"scalar", NULL, {{HARK_F32, 0, {0}, -2, 2}, {HARK_F32, 0, {0}, -2, 2}}},
    {"primes", NULL, {{HARK_F32, 3, {3, 5, 7}, -2, 2}, {HARK_F32, 3, {3, 5, 7}, -2, 2}}},
    {"odd", NULL, {{HARK_F32, 1, {257}, -2, 2}, {HARK_F32, 1, {257}, -2, 2}}},
    {"many", NULL, {{HARK_F32, 2, {70, 129}, -2, 2}, {HARK_F32, 2, {70, 129}, -2, 2}}},
};

const hark_operator hark_op_add = {
    .name = "add",
    .formula = "y = a + b",
    .input_minimum = INPUT_COUNT,
    .input_maximum = INPUT_COUNT,
    .output_count = 1,
    .differentiable = 1u << INPUT_A | 1u << INPUT_B,
    .in_place = 1u << INPUT_A | 1u << INPUT_B,
    .gradient_passes = 1u << INPUT_A | 1u << INPUT_B,
    .infer = infer,
    .forward = forward,
    .backward = backward,
    .operations = operations,
    .terms = terms,
    .samples = samples,
    .sample_count = sizeof samples / sizeof samples[0],
};
