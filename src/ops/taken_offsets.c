/* taken_offsets.c - offsets of segments among the rows that an index takes: y[s] = number of i with index[i] < offsets[s].
 *
 * index i32 [I], offsets i64 [S + 1], y i64 [S + 1]. Of an ascending index, gather_rows takes the rows of segment s to rows y[s] ..
 * y[s + 1] - 1. No arithmetic.
 */
#include <hark/experimental.h>
#include <string.h>

#include "ops/segments.h"

enum { INPUT_INDEX, INPUT_OFFSETS, INPUT_COUNT };

static hark_status infer(hark_context *context, const void *attributes, const hark_tensor *inputs, int input_count, hark_inferred *out) {
  static const hark_input_rule rules[INPUT_COUNT] = {{"index", HARK_I32, 1, 1}, {"offsets", HARK_I64, 1, 1}};
  HARK_TRY(hark_check_inputs(context, &hark_op_taken_offsets, rules, attributes, inputs, input_count));
  HARK_TRY(hark_check_offsets_shape(context, &hark_op_taken_offsets, "offsets", &inputs[INPUT_OFFSETS]));
  return hark_tensor_describe(context, HARK_I64, 1, inputs[INPUT_OFFSETS].shape, &out->outputs[0]);
}

/* The first of the offsets that is above `row`; `count` if none is. */
static int64_t first_above(const int64_t *offsets, int64_t count, int64_t row) {
  int64_t low = 0, high = count;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (offsets[middle] > row)
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

static hark_status forward(hark_context *context, const hark_call *call) {
  HARK_TRY(hark_check_offsets(context, &hark_op_taken_offsets, "offsets", &call->inputs[INPUT_OFFSETS], 1, INT64_MAX));
  const int32_t *index = call->inputs[INPUT_INDEX].data;
  const int64_t *offsets = call->inputs[INPUT_OFFSETS].data, count = call->inputs[INPUT_OFFSETS].shape[0];
  int64_t *y = call->outputs[0].data;
  memset(y, 0, (size_t)count * sizeof *y);
  for (int64_t i = 0; i < call->inputs[INPUT_INDEX].shape[0]; i++) {
    const int64_t s = first_above(offsets, count, index[i]);
    if (s < count) y[s]++;
  }
  for (int64_t s = 1; s < count; s++) y[s] += y[s - 1];
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
    {"one", NULL, {{HARK_I32, 1, {1}, 0, 0}, {HARK_I64, 1, {2}, 1, 0}}},
    {"none", NULL, {{HARK_I32, 1, {5}, -1, -1}, {HARK_I64, 1, {4}, 9, 0}}},
    {"some", NULL, {{HARK_I32, 1, {37}, -1, 63}, {HARK_I64, 1, {7}, 61, 0}}},
    {"units", NULL, {{HARK_I32, 1, {257}, 0, 28}, {HARK_I64, 1, {8}, 29, 2}}},
};

const hark_operator hark_op_taken_offsets = {
    .name = "taken_offsets",
    .formula = "y[s] = number of i with index[i] < offsets[s]",
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
