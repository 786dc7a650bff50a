/* chunk_starts.c - where chunks begin that are cut after delimiters, in the form that compressed attention reads (chunk_starts).
 *
 *     y[b, t] = 1 where t is the first token of a sequence, or the chunk ends with token t - 1 (chunk_ends.h); else 0
 *
 * A start depends on earlier tokens only. A few comparisons per token.
 */
#include <hark/experimental.h>
#include <inttypes.h>

#include "ops/chunk_ends.h"
#include "ops/delimiters.h"
#include "ops/segments.h"

static hark_status infer(hark_context *context, const void *attributes, const hark_tensor *inputs, int input_count, hark_inferred *out) {
  static const hark_input_rule rules[] = {{"tokens", HARK_I32, 2, 2}};
  const hark_operator *op = &hark_op_chunk_starts;
  const hark_chunk_starts_attributes *cut = attributes;
  HARK_TRY(hark_check_inputs(context, op, rules, attributes, inputs, input_count));
  HARK_TRY(hark_check_number(context, op, "minimum", cut->minimum, 1, INT32_MAX));
  HARK_TRY(hark_check_number(context, op, "maximum", cut->maximum, cut->minimum, INT32_MAX));
  if (cut->delimiter_count > 0 && cut->delimiters == NULL)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "chunk_starts: delimiters is NULL with delimiter_count %" PRId64,
                     cut->delimiter_count);
  HARK_TRY(hark_check_delimiters(context, op, cut->delimiters, cut->delimiter_count));
  if (cut->segments != NULL && inputs[0].shape[0] != 1)
    return hark_fail(context, HARK_SHAPE_MISMATCH, "chunk_starts: tokens has %" PRId64 " rows with segments, expected 1",
                     inputs[0].shape[0]);
  return hark_tensor_describe(context, HARK_U8, 2, inputs[0].shape, &out->outputs[0]);
}

static hark_status forward(hark_context *context, const hark_call *call) {
  const hark_chunk_starts_attributes *cut = call->attributes;
  const hark_chunk_ends ends = {
      .delimiters = cut->delimiters, .delimiter_count = cut->delimiter_count, .minimum = cut->minimum, .maximum = cut->maximum};
  const int64_t batch = call->inputs[0].shape[0], rows = call->inputs[0].shape[1];
  (void)context;
  for (int64_t b = 0; b < batch; b++) {
    const int32_t *tokens = (const int32_t *)call->inputs[0].data + b * rows;
    uint8_t *starts = (uint8_t *)call->outputs[0].data + b * rows;
    int64_t length = 0; /* of the chunk, without token t */
    for (int64_t t = 0; t < rows; t++) {
      const bool first = t == 0 || (cut->segments != NULL && cut->segments[t] != cut->segments[t - 1]);
      starts[t] = first || hark_chunk_ends_at(&ends, length, tokens + t);
      length = starts[t] != 0 ? 1 : length + 1;
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

static const int32_t stops[] = {3, -1 - 7, 2, 7};
static const hark_chunk_starts_attributes fixed = {.minimum = 5, .maximum = 5},
                                          delimited = {.delimiters = stops, .delimiter_count = 4, .minimum = 2, .maximum = 11};

static const hark_sample samples[] = {
    {"fixed", &fixed, {{HARK_I32, 2, {2, 23}, 0, 9}}},
    {"delimited", &delimited, {{HARK_I32, 2, {3, 40}, 0, 9}}},
};

const hark_operator hark_op_chunk_starts = {
    .name = "chunk_starts",
    .formula = "y[b, t] = whether a chunk begins at token t; chunks end after delimiters, within minimum and maximum",
    .attributes_size = sizeof(hark_chunk_starts_attributes),
    .input_minimum = 1,
    .input_maximum = 1,
    .output_count = 1,
    .infer = infer,
    .forward = forward,
    .operations = operations,
    .terms = terms,
    .samples = samples,
    .sample_count = sizeof samples / sizeof samples[0],
};
