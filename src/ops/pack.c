/* pack.c - concatenates the real ids of rows that are padded on the right, and computes where each sequence begins.
 *
 * ids i32 [B, L], lengths i64 [B] or absent (all L are real); packed i32 [B L], zeros at the end; offsets i64 [B + 1]. No arithmetic.
 */
#include <string.h>

#include "ops/segments.h"

enum { INPUT_IDS, INPUT_LENGTHS, INPUT_COUNT };
enum { OUTPUT_PACKED, OUTPUT_OFFSETS, OUTPUT_COUNT };

static hark_status infer(hark_context *context, const void *attributes, const hark_tensor *inputs, int input_count, hark_inferred *out) {
  static const hark_input_rule rules[INPUT_COUNT] = {{"ids", HARK_I32, 2, 2}, {"lengths", HARK_I64, 1, 1}};
  HARK_TRY(hark_check_inputs(context, &hark_op_pack, rules, attributes, inputs, input_count));
  const hark_tensor *ids = &inputs[INPUT_IDS];
  if (hark_has_input(inputs, input_count, INPUT_LENGTHS)) {
    HARK_TRY(hark_check_vector(context, &hark_op_pack, "lengths", &inputs[INPUT_LENGTHS], ids->shape[0], "the sequences of ids"));
  }
  const int64_t count = hark_tensor_count(ids), offsets = ids->shape[0] + 1;
  HARK_TRY(hark_tensor_describe(context, HARK_I32, 1, &count, &out->outputs[OUTPUT_PACKED]));
  return hark_tensor_describe(context, HARK_I64, 1, &offsets, &out->outputs[OUTPUT_OFFSETS]);
}

static hark_status forward(hark_context *context, const hark_call *call) {
  const hark_tensor *ids = &call->inputs[INPUT_IDS], *lengths = &call->inputs[INPUT_LENGTHS];
  const int64_t batch = ids->shape[0], maximum = ids->shape[1];
  const int32_t *from = ids->data;
  int32_t *packed = call->outputs[OUTPUT_PACKED].data;
  int64_t *offsets = call->outputs[OUTPUT_OFFSETS].data;
  offsets[0] = 0;
  for (int64_t b = 0; b < batch; b++) {
    const int64_t length = hark_present(lengths) ? ((const int64_t *)lengths->data)[b] : maximum;
    HARK_TRY(hark_check_number(context, &hark_op_pack, "a length", length, 0, maximum));
    if (length > 0) memcpy(packed + offsets[b], from + b * maximum, (size_t)length * sizeof *packed);
    offsets[b + 1] = offsets[b] + length;
  }
  for (int64_t n = offsets[batch]; n < batch * maximum; n++) packed[n] = 0;
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
    {"one", NULL, {{HARK_I32, 2, {1, 1}, 0, 9}}},
    {"whole", NULL, {{HARK_I32, 2, {3, 7}, 0, 99}}},
    {"lengths", NULL, {{HARK_I32, 2, {7, 5}, 1, 99}, {HARK_I64, 1, {7}, 0, 5}}},
};

const hark_operator hark_op_pack = {
    .name = "pack",
    .formula = "packed = the first length[b] ids of every row; offsets[b + 1] = offsets[b] + length[b]",
    .input_minimum = 1,
    .input_maximum = INPUT_COUNT,
    .output_count = OUTPUT_COUNT,
    .infer = infer,
    .forward = forward,
    .operations = operations,
    .terms = terms,
    .samples = samples,
    .sample_count = sizeof samples / sizeof samples[0],
};
