/* copy_targets.c - y[n, h, k, r] = x[n, r]^(k + 1), k < powers: the targets of a row for every head, and their squares.
 *
 * x [N, R]; y [N, heads powers R], the values of attention with so many heads. Not differentiable. About 1 operation per element.
 */
#include <hark/experimental.h>
#include <inttypes.h>

#include "ops/definition.h"

enum { INPUT_X, INPUT_COUNT };

static hark_status infer(hark_context *context, const void *attributes, const hark_tensor *inputs, int input_count, hark_inferred *out) {
  static const hark_input_rule rules[INPUT_COUNT] = {{"x", HARK_F32, 2, 2}};
  const hark_copy_targets_attributes *const a = attributes;
  size_t width = 0;
  HARK_TRY(hark_check_inputs(context, &hark_op_copy_targets, rules, attributes, inputs, input_count));
  if (a->heads < 1 || a->powers < 1 || a->powers > 2)
    return hark_fail(context, HARK_INVALID_ARGUMENT,
                     "copy_targets: heads is %" PRId64 " and powers is %" PRId64 ", expected at least 1, and 1 or 2", a->heads, a->powers);
  HARK_TRY(hark_size_multiply(context, (size_t)a->heads, (size_t)a->powers, &width));
  HARK_TRY(hark_size_multiply(context, (size_t)hark_row_length(&inputs[INPUT_X]), width, &width));
  const int64_t shape[] = {hark_row_count(&inputs[INPUT_X]), (int64_t)width};
  return hark_tensor_describe(context, inputs[INPUT_X].type, 2, shape, &out->outputs[0]);
}

static void forward_rows(const hark_call *call, int64_t first, int64_t last) {
  const hark_copy_targets_attributes *const a = call->attributes;
  const hark_numbers x = hark_numbers_of(&call->inputs[INPUT_X]), y = hark_numbers_of(&call->outputs[0]);
  const int64_t width = hark_row_length(&call->inputs[INPUT_X]), copies = a->heads * a->powers;
  for (int64_t n = first; n < last; n++)
    for (int64_t copy = 0; copy < copies; copy++)
      for (int64_t r = 0; r < width; r++) {
        const double target = hark_get(x, n * width + r);
        hark_put(y, (n * copies + copy) * width + r, copy % a->powers == 0 ? target : target * target);
      }
}

static hark_status forward(hark_context *context, const hark_call *call) {
  const hark_tensor *const y = &call->outputs[0];
  hark_range_for(context, call, hark_row_count(y), hark_row_grain(hark_row_length(y)), forward_rows);
  return HARK_OK;
}

static double operations(const void *attributes, const hark_tensor *inputs, int input_count, bool is_backward) {
  const hark_copy_targets_attributes *const a = attributes;
  (void)input_count, (void)is_backward;
  return (double)a->heads * (double)a->powers * (double)hark_tensor_count(&inputs[INPUT_X]);
}

static int64_t terms(const void *attributes, const hark_tensor *inputs, int input_count) {
  (void)attributes, (void)inputs, (void)input_count;
  return 1;
}

static const hark_copy_targets_attributes one = {1, 1}, three = {3, 1}, squares = {2, 2};

static const hark_sample samples[] = {
    {"one", &one, {{HARK_F32, 2, {1, 1}, -3, 3}}},
    {"none", &three, {{HARK_F32, 2, {0, 2}, -3, 3}}},
    {"heads", &three, {{HARK_F32, 2, {17, 5}, -3, 3}}},
    {"squares", &squares, {{HARK_F32, 2, {523, 3}, -3, 3}}},
};

const hark_operator hark_op_copy_targets = {
    .name = "copy_targets",
    .formula = "y[n, h, k, r] = x[n, r]^(k + 1), k < powers",
    .attributes_size = sizeof(hark_copy_targets_attributes),
    .input_minimum = INPUT_COUNT,
    .input_maximum = INPUT_COUNT,
    .output_count = 1,
    .infer = infer,
    .forward = forward,
    .operations = operations,
    .terms = terms,
    .samples = samples,
    .sample_count = sizeof samples / sizeof samples[0],
};
