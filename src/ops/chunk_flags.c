/* chunk_flags.c - where chunks begin, one number for each token: offsets of chunks in the form that compressed attention reads.
 *
 *     chunks 0 3 5 9, tokens [1, 9]    1 0 0 1 0 1 0 0 0
 *
 * Rows of no chunk and empty chunks have 0. No arithmetic.
 */
#include <hark/experimental.h>
#include <string.h>

#include "ops/segments.h"

enum { INPUT_TOKENS, INPUT_CHUNKS, INPUT_COUNT };

static hark_status infer(hark_context *context, const void *attributes, const hark_tensor *inputs, int input_count, hark_inferred *out) {
  static const hark_input_rule rules[INPUT_COUNT] = {{"tokens", HARK_I32, 2, 2}, {"chunks", HARK_I64, 1, 1}};
  HARK_TRY(hark_check_inputs(context, &hark_op_chunk_flags, rules, attributes, inputs, input_count));
  HARK_TRY(hark_check_offsets_shape(context, &hark_op_chunk_flags, "chunks", &inputs[INPUT_CHUNKS]));
  return hark_tensor_describe(context, HARK_U8, 2, inputs[INPUT_TOKENS].shape, &out->outputs[0]);
}

static hark_status forward(hark_context *context, const hark_call *call) {
  const int64_t rows = hark_tensor_count(&call->inputs[INPUT_TOKENS]);
  HARK_TRY(hark_check_offsets(context, &hark_op_chunk_flags, "chunks", &call->inputs[INPUT_CHUNKS], 1, rows));
  const hark_segments chunks = hark_segments_of(&call->inputs[INPUT_CHUNKS], 1);
  hark_mark_starts(&chunks, rows, call->outputs[0].data);
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
    {"one", NULL, {{HARK_I32, 2, {1, 1}, 0, 9}, {HARK_I64, 1, {2}, 1, 0}}},
    {"batch", NULL, {{HARK_I32, 2, {3, 17}, 0, 9}, {HARK_I64, 1, {12}, 51, 0}}},
    {"gaps", NULL, {{HARK_I32, 2, {1, 40}, 0, 9}, {HARK_I64, 1, {6}, 33, 2}}},
};

const hark_operator hark_op_chunk_flags = {
    .name = "chunk_flags",
    .formula = "y[b, t] = whether a chunk begins at token t",
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
