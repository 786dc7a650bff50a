/* scale.c - y = factor x.
 *
 * dx = factor dy. x, y of one shape.
 */
#include "ops/definition.h"

enum { INPUT_X, INPUT_COUNT };

#define FORWARD_OPERATIONS 1.0 /* per element */
#define BACKWARD_OPERATIONS 1.0

static hark_status infer(hark_context *context, const void *attributes, const hark_tensor *inputs, int input_count, hark_inferred *out) {
  static const hark_input_rule rules[INPUT_COUNT] = {{"x", HARK_F32, 0, HARK_MAX_RANK}};
  HARK_TRY(hark_check_inputs(context, &hark_op_scale, rules, attributes, inputs, input_count));
  const hark_tensor *x = &inputs[INPUT_X];
  return hark_tensor_describe(context, x->type, x->rank, x->shape, &out->outputs[0]);
}

static void forward_range(const hark_call *call, int64_t first, int64_t last) {
  const double factor = ((const hark_scale_attributes *)call->attributes)->factor;
  const hark_numbers x = hark_numbers_of(&call->inputs[INPUT_X]), y = hark_numbers_of(&call->outputs[0]);
  for (int64_t i = first; i < last; i++) hark_put(y, i, factor * hark_get(x, i));
}

static hark_status forward(hark_context *context, const hark_call *call) {
  hark_range_for(context, call, hark_tensor_count(&call->inputs[INPUT_X]), HARK_DEFINITION_GRAIN, forward_range);
  return HARK_OK;
}

/* y = factor x: dx = factor dy */
static void backward_range(const hark_call *call, int64_t first, int64_t last) {
  const double factor = ((const hark_scale_attributes *)call->attributes)->factor;
  const hark_numbers dy = hark_numbers_of(&call->output_gradients[0]), dx = hark_gradient_of(call, INPUT_X);
  for (int64_t i = first; i < last; i++) hark_give(dx, i, factor * hark_get(dy, i));
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
