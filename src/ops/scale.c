/* scale.c - y = factor x.
 *
 * dx = factor dy. x, y of one shape.
 */
#include "core/range.h"
#include "ops/elementwise.h"

enum { INPUT_X, INPUT_COUNT };

static hark_status infer(hark_context *context, const void *attributes, const hark_tensor *inputs, int input_count, hark_inferred *out) {
  static const char *const names[INPUT_COUNT] = {"x"};
  HARK_TRY(hark_elementwise_infer(context, &hark_op_scale, names, attributes, inputs, input_count, out));
  const double factor = ((const hark_scale_attributes *)attributes)->factor;
  const hark_type type = inputs[INPUT_X].type;
  return hark_check_range(context, "scale", "factor", factor, type, hark_range_of(type));
}

static void forward_range(const hark_call *call, int64_t first, int64_t last) {
  const double factor = ((const hark_scale_attributes *)call->attributes)->factor;
  const hark_numbers x = hark_numbers_of(&call->inputs[INPUT_X]), y = hark_numbers_of(&call->outputs[0]);
  for (int64_t i = first; i < last; i++) hark_put(y, i, factor * hark_get(x, i));
}

/* y = factor x: dx = factor dy */
static void backward_range(const hark_call *call, int64_t first, int64_t last) {
  const double factor = ((const hark_scale_attributes *)call->attributes)->factor;
  const hark_numbers dy = hark_numbers_of(&call->output_gradients[0]), dx = hark_gradient_of(call, INPUT_X);
  for (int64_t i = first; i < last; i++) hark_give(dx, i, factor * hark_get(dy, i));
}

HARK_ELEMENTWISE(1, 1, 1);

static const hark_scale_attributes down = {0.3}, up = {-7};

static const hark_sample samples[] = {
    {"one", &down, {{HARK_F32, 1, {1}, -3, 3}}},          {"scalar", &down, {{HARK_F32, 0, {0}, -3, 3}}},
    {"primes", &down, {{HARK_F32, 3, {3, 5, 7}, -3, 3}}}, {"odd", &down, {{HARK_F32, 1, {257}, -3, 3}}},
    {"many", &down, {{HARK_F32, 2, {70, 129}, -3, 3}}},   {"negative", &up, {{HARK_F32, 2, {5, 31}, -2, 2}}},
};

const hark_operator hark_op_scale = {
    .name = "scale",
    .formula = "y = factor x",
    .attributes_size = sizeof(hark_scale_attributes),
    .input_minimum = INPUT_COUNT,
    .input_maximum = INPUT_COUNT,
    .output_count = 1,
    .differentiable = 1u << INPUT_X,
    .in_place = 1u << INPUT_X,
    .infer = infer,
    .forward = forward,
    .backward = backward,
    .operations = operations,
    .terms = terms,
    .samples = samples,
    .sample_count = sizeof samples / sizeof samples[0],
};
