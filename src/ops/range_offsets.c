/* range_offsets.c - offsets of packed sequences from their ranges.
 *
 * ranges i64 [.., 2], first row and the row after the last; each range begins where the previous one ends; offsets i64 [S + 1]. No
 * arithmetic.
 */
#include <inttypes.h>

#include "ops/segments.h"

enum { INPUT_RANGES, INPUT_COUNT };

static hark_status infer(hark_context *context, const void *attributes, const hark_tensor *inputs, int input_count, hark_inferred *out) {
  static const hark_input_rule rules[INPUT_COUNT] = {{"ranges", HARK_I64, 2, HARK_MAX_RANK}};
  HARK_TRY(hark_check_inputs(context, &hark_op_range_offsets, rules, attributes, inputs, input_count));
  const hark_tensor *ranges = &inputs[INPUT_RANGES];
  if (hark_row_length(ranges) != 2) {
    char text[HARK_SHAPE_TEXT_BYTES];
    return hark_fail(context, HARK_SHAPE_MISMATCH, "range_offsets: ranges has %s, expected two numbers a sequence",
                     hark_shape_text(ranges, text, sizeof text));
  }
  const int64_t count = hark_row_count(ranges) + 1;
  return hark_tensor_describe(context, HARK_I64, 1, &count, &out->outputs[0]);
}

static hark_status forward(hark_context *context, const hark_call *call) {
  const int64_t *range = call->inputs[INPUT_RANGES].data, count = hark_row_count(&call->inputs[INPUT_RANGES]);
  int64_t *offsets = call->outputs[0].data;
  offsets[0] = count > 0 ? range[0] : 0;
  for (int64_t s = 0; s < count; s++) {
    if (range[2 * s] != offsets[s] || range[2 * s + 1] < range[2 * s] || range[2 * s] < 0) {
      return hark_fail(context, HARK_INVALID_ARGUMENT,
                       "range_offsets: range %" PRId64 " is %" PRId64 " to %" PRId64 ", expected one that begins at %" PRId64, s,
                       range[2 * s], range[2 * s + 1], offsets[s]);
    }
    offsets[s + 1] = range[2 * s + 1];
  }
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
    {"one", NULL, {{HARK_I64, 2, {1, 2}, 7, 0}}},
    {"empty", NULL, {{HARK_I64, 3, {3, 1, 2}, 0, 0}}},
};

const hark_operator hark_op_range_offsets = {
    .name = "range_offsets",
    .formula = "offsets[s] = first row of sequence s, offsets[S] = the row after the last",
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
