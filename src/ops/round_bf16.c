/* round_bf16.c - y = x rounded to bf16.
 *
 * x [...], f32 or f64; y [...], bf16 (core/half.h). The backward is that of the identity, as for every rounding in mixed precision:
 * dx = dy. One operation per number is counted as none, like in other operators that only copy.
 */
#include <hark/experimental.h>
#include <string.h>

#include "core/half.h"
#include "ops/definition.h"

enum { INPUT_X, INPUT_COUNT };

static hark_status infer(hark_context *context, const void *attributes, const hark_tensor *inputs, int input_count, hark_inferred *out) {
  static const hark_input_rule rules[INPUT_COUNT] = {{"x", HARK_F32, 0, HARK_MAX_RANK}};
  HARK_TRY(hark_check_inputs(context, &hark_op_round_bf16, rules, attributes, inputs, input_count));
  return hark_tensor_describe(context, HARK_BF16, inputs[INPUT_X].rank, inputs[INPUT_X].shape, &out->outputs[0]);
}

static void forward_range(const hark_call *call, int64_t first, int64_t last) {
  const hark_numbers x = hark_numbers_of(&call->inputs[INPUT_X]);
  uint16_t *y = call->outputs[0].data;
  for (int64_t i = first; i < last; i++) y[i] = hark_half_narrow(HARK_BF16, (float)hark_get(x, i));
}

static hark_status forward(hark_context *context, const hark_call *call) {
  hark_range_for(context, call, hark_tensor_count(&call->inputs[INPUT_X]), HARK_DEFINITION_GRAIN, forward_range);
  return HARK_OK;
}

/* y = x, for the gradient: dx = dy */
static void backward_range(const hark_call *call, int64_t first, int64_t last) {
  const hark_numbers dy = hark_numbers_of(&call->output_gradients[0]), dx = hark_gradient_of(call, INPUT_X);
  for (int64_t i = first; i < last; i++) hark_give(dx, i, hark_get(dy, i));
}

static hark_status backward(hark_context *context, const hark_call *call) {
  if (hark_gradient_is_absent(call) || !hark_present(&call->input_gradients[INPUT_X])) return HARK_OK;
  hark_range_for(context, call, hark_tensor_count(&call->output_gradients[0]), HARK_DEFINITION_GRAIN, backward_range);
  return HARK_OK;
}

static double operations(const void *attributes, const hark_tensor *inputs, int input_count, bool is_backward) {
  (void)attributes, (void)inputs, (void)input_count, (void)is_backward;
  return 0;
}

static int64_t terms(const void *attributes, const hark_tensor *inputs, int input_count) {
  (void)attributes, (void)inputs, (void)input_count;
  return 1;
}

static const hark_sample samples[] = {
    {"one", NULL, {{HARK_F32, 1, {1}, -2, 2}}},
    {"scalar", NULL, {{HARK_F32, 0, {0}, -2, 2}}},
    {"odd", NULL, {{HARK_F32, 2, {7, 37}, -2, 2}}},
    {"many", NULL, {{HARK_F32, 3, {3, 101, 173}, -2, 2}}},
    {"subnormal", NULL, {{HARK_F32, 1, {67}, -0x1p-126, 0x1p-126}}},
};

const hark_operator hark_op_round_bf16 = {
    .name = "round_bf16",
    .formula = "y = x, rounded to bf16",
    .input_minimum = INPUT_COUNT,
    .input_maximum = INPUT_COUNT,
    .output_count = 1,
    .differentiable = 1u << INPUT_X,
    .gradient_passes = 1u << INPUT_X,
    .infer = infer,
    .forward = forward,
    .backward = backward,
    .operations = operations,
    .terms = terms,
    .samples = samples,
    .sample_count = sizeof samples / sizeof samples[0],
};
