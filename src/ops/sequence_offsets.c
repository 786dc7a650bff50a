/* sequence_offsets.c - the offsets of sequences among rows of tokens: rows of a batch, or runs of equal segment numbers.
 *
 *     tokens [B, L]                 0 L 2L .. B L
 *     packed, segments 4 4 4 1 1    0 3 5 5 5 5       sequences that do not exist are empty
 *
 * y i64 [B + 1], or packed [L + 1], one entry for the most sequences that there can be. No arithmetic.
 */
#include <hark/experimental.h>
#include <inttypes.h>

#include "ops/segments.h"

static hark_status infer(hark_context *context, const void *attributes, const hark_tensor *inputs, int input_count, hark_inferred *out) {
  static const hark_input_rule rules[] = {{"tokens", HARK_I32, 2, 2}};
  const hark_sequence_offsets_attributes *sequences = attributes;
  HARK_TRY(hark_check_inputs(context, &hark_op_sequence_offsets, rules, attributes, inputs, input_count));
  if (sequences->packed && inputs[0].shape[0] != 1)
    return hark_fail(context, HARK_SHAPE_MISMATCH, "sequence_offsets: tokens has %" PRId64 " rows with packed, expected 1",
                     inputs[0].shape[0]);
  const int64_t offsets = (sequences->packed ? inputs[0].shape[1] : inputs[0].shape[0]) + 1;
  return hark_tensor_describe(context, HARK_I64, 1, &offsets, &out->outputs[0]);
}

static hark_status forward(hark_context *context, const hark_call *call) {
  const hark_sequence_offsets_attributes *sequences = call->attributes;
  const int64_t batch = call->inputs[0].shape[0], rows = call->inputs[0].shape[1];
  int64_t *y = call->outputs[0].data;
  if (!sequences->packed) {
    for (int64_t b = 0; b <= batch; b++) y[b] = b * rows;
    return HARK_OK;
  }
  if (sequences->segments == NULL && rows > 0)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "sequence_offsets: segments is NULL with packed");
  int64_t count = 0;
  for (int64_t t = 0; t < rows; t++)
    if (t == 0 || sequences->segments[t] != sequences->segments[t - 1]) y[count++] = t;
  while (count <= rows) y[count++] = rows;
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

static const int64_t runs[] = {4, 4, 4, 1, 1, 9, 4};
static const hark_sequence_offsets_attributes rectangular = {.packed = false}, packed = {.packed = true, .segments = runs};

static const hark_sample samples[] = {
    {"rectangular", &rectangular, {{HARK_I32, 2, {3, 11}, 0, 9}}},
    {"packed", &packed, {{HARK_I32, 2, {1, 7}, 0, 9}}},
};

const hark_operator hark_op_sequence_offsets = {
    .name = "sequence_offsets",
    .formula = "y = the first rows of sequences, and the end of the last one",
    .attributes_size = sizeof(hark_sequence_offsets_attributes),
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
