/* segment_index.c - the place of every row of a ragged batch: position in its segment, slot in its unit, and the segment.
 *
 * offsets i64 [S + 1] -> position, slot, segment, i32 [rows / unit, unit], [rows] with a unit of 0, [1, rows] where packed. Segment s has
 * rows offsets[s] u .. offsets[s + 1] u - 1, u = max(unit, 1); position counts units up to limit - 1, so that it can index a table of
 * `limit` rows. Rows in no segment: 0, their slot, and -1.
 */
#include <hark/experimental.h>

#include "ops/segments.h"

enum { INPUT_OFFSETS, INPUT_COUNT };
enum { OUTPUT_POSITION, OUTPUT_SLOT, OUTPUT_SEGMENT, OUTPUT_COUNT };

static hark_status infer(hark_context *context, const void *attributes, const hark_tensor *inputs, int input_count, hark_inferred *out) {
  static const hark_input_rule rules[INPUT_COUNT] = {{"offsets", HARK_I64, 1, 1}};
  HARK_TRY(hark_check_inputs(context, &hark_op_segment_index, rules, attributes, inputs, input_count));
  HARK_TRY(hark_check_offsets_shape(context, &hark_op_segment_index, "offsets", &inputs[INPUT_OFFSETS]));
  const hark_segment_index_attributes *options = attributes;
  HARK_TRY(hark_check_number(context, &hark_op_segment_index, "rows", options->rows, 0, INT32_MAX));
  HARK_TRY(hark_check_number(context, &hark_op_segment_index, "limit", options->limit, 0, INT32_MAX));
  HARK_TRY(hark_check_unit(context, &hark_op_segment_index, options->unit, options->rows));
  const int64_t unit = hark_max(1, options->unit), units[] = {options->rows / unit, unit}, packed[] = {1, options->rows};
  const int rank = options->unit == 0 && !options->packed ? 1 : 2;
  for (int i = 0; i < OUTPUT_COUNT; i++) {
    HARK_TRY(hark_tensor_describe(context, HARK_I32, rank, options->packed ? packed : units, &out->outputs[i]));
  }
  return HARK_OK;
}

static hark_status forward(hark_context *context, const hark_call *call) {
  const hark_segment_index_attributes *options = call->attributes;
  HARK_TRY(hark_check_offsets(context, &hark_op_segment_index, "offsets", &call->inputs[INPUT_OFFSETS], options->unit, options->rows));
  const hark_segments segments = hark_segments_of(&call->inputs[INPUT_OFFSETS], options->unit);
  int32_t *position = call->outputs[OUTPUT_POSITION].data, *slot = call->outputs[OUTPUT_SLOT].data;
  int32_t *segment = call->outputs[OUTPUT_SEGMENT].data;
  for (int64_t n = 0; n < options->rows; n++) {
    position[n] = 0;
    slot[n] = (int32_t)(n % segments.unit);
    segment[n] = -1;
  }
  for (int64_t s = 0; s < segments.count; s++) {
    const int64_t first = hark_segment_first(&segments, s), rows = hark_segment_rows(&segments, s);
    for (int64_t i = 0; i < rows; i++) {
      const int64_t units = i / segments.unit;
      position[first + i] = (int32_t)(options->limit > 0 ? hark_min(units, options->limit - 1) : units);
      segment[first + i] = (int32_t)s;
    }
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

static const hark_segment_index_attributes plain = {30, 0, 0, false}, limited = {30, 0, 3, true}, units = {60, 2, 0, false},
                                           one = {1, 1, 1, false};

static const hark_sample samples[] = {
    {"one", &one, {{HARK_I64, 1, {2}, 1, 0}}},
    {"plain", &plain, {{HARK_I64, 1, {6}, 27, 0}}},
    {"limited", &limited, {{HARK_I64, 1, {3}, 30, 0}}},
    {"units", &units, {{HARK_I64, 1, {8}, 29, 2}}},
};

const hark_operator hark_op_segment_index = {
    .name = "segment_index",
    .formula = "position[n] = n - offsets[s], segment[n] = s for the rows n of segment s",
    .attributes_size = sizeof(hark_segment_index_attributes),
    .input_minimum = INPUT_COUNT,
    .input_maximum = INPUT_COUNT,
    .output_count = OUTPUT_COUNT,
    .infer = infer,
    .forward = forward,
    .operations = operations,
    .terms = terms,
    .samples = samples,
    .sample_count = sizeof samples / sizeof samples[0],
};
