/* segment_slots.c - offsets[s + 1] = offsets[s] + C, C is the number of rows that pooling makes of a segment: C slots, or min(C, M) for a
 * segment of M rows.
 *
 * offsets i64 [S + 1] -> i64 [S + 1]. No arithmetic on numbers.
 */
#include <hark/experimental.h>

#include "ops/segments.h"

enum { INPUT_OFFSETS, INPUT_COUNT };

static hark_status infer(hark_context *context, const void *attributes, const hark_tensor *inputs, int input_count, hark_inferred *out) {
  static const hark_input_rule rules[INPUT_COUNT] = {{"offsets", HARK_I64, 1, 1}};
  HARK_TRY(hark_check_inputs(context, &hark_op_segment_slots, rules, attributes, inputs, input_count));
  HARK_TRY(hark_check_offsets_shape(context, &hark_op_segment_slots, "offsets", &inputs[INPUT_OFFSETS]));
  const hark_segment_slots_attributes *options = attributes;
  HARK_TRY(hark_check_number(context, &hark_op_segment_slots, "slots", options->slots, 1, INT32_MAX));
  HARK_TRY(hark_check_number(context, &hark_op_segment_slots, "unit", options->unit, 0, INT32_MAX));
  return hark_tensor_describe(context, HARK_I64, 1, inputs[INPUT_OFFSETS].shape, &out->outputs[0]);
}

static hark_status forward(hark_context *context, const hark_call *call) {
  const hark_segment_slots_attributes *options = call->attributes;
  HARK_TRY(hark_check_offsets(context, &hark_op_segment_slots, "offsets", &call->inputs[INPUT_OFFSETS], 1, INT32_MAX));
  const hark_segments segments = hark_segments_of(&call->inputs[INPUT_OFFSETS], options->unit);
  int64_t *slots = call->outputs[0].data;
  slots[0] = 0;
  for (int64_t s = 0; s < segments.count; s++) {
    slots[s + 1] = slots[s] + (options->fewer ? hark_min(options->slots, hark_segment_rows(&segments, s)) : options->slots);
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

static const hark_segment_slots_attributes four = {4, 0, false}, fewer = {4, 0, true}, units = {7, 2, true};

static const hark_sample samples[] = {
    {"none", &four, {{HARK_I64, 1, {1}, 0, 0}}},
    {"four", &four, {{HARK_I64, 1, {8}, 30, 0}}},
    {"fewer", &fewer, {{HARK_I64, 1, {8}, 30, 0}}},
    {"units", &units, {{HARK_I64, 1, {8}, 30, 0}}},
};

const hark_operator hark_op_segment_slots = {
    .name = "segment_slots",
    .formula = "y[s + 1] = y[s] + slots, or min(slots, rows of segment s)",
    .attributes_size = sizeof(hark_segment_slots_attributes),
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
