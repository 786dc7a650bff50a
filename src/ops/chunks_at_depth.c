/* chunks_at_depth.c - the chunks that a layer runs on: the rows k with depth[k] >= l, ascending; the remaining entries are -1.
 *
 * depth i32 [K] -> index i32 [rows]. One comparison per chunk.
 */
#include <hark/experimental.h>
#include <inttypes.h>

#include "ops/segments.h"

enum { INPUT_DEPTH, INPUT_COUNT };

static hark_status infer(hark_context *context, const void *attributes, const hark_tensor *inputs, int input_count, hark_inferred *out) {
  static const hark_input_rule rules[INPUT_COUNT] = {{"depth", HARK_I32, 1, 1}};
  HARK_TRY(hark_check_inputs(context, &hark_op_chunks_at_depth, rules, attributes, inputs, input_count));
  const hark_chunks_at_depth_attributes *options = attributes;
  HARK_TRY(hark_check_number(context, &hark_op_chunks_at_depth, "depth", options->depth, 0, INT32_MAX));
  HARK_TRY(hark_check_number(context, &hark_op_chunks_at_depth, "rows", options->rows, 0, INT32_MAX));
  return hark_tensor_describe(context, HARK_I32, 1, &options->rows, &out->outputs[0]);
}

static hark_status forward(hark_context *context, const hark_call *call) {
  const hark_chunks_at_depth_attributes *options = call->attributes;
  const int32_t *depth = call->inputs[INPUT_DEPTH].data;
  int32_t *index = call->outputs[0].data;
  int64_t count = 0;
  for (int64_t k = 0; k < call->inputs[INPUT_DEPTH].shape[0]; k++) {
    if (depth[k] < options->depth) continue;
    if (count == options->rows) {
      return hark_fail(context, HARK_INVALID_ARGUMENT,
                       "chunks_at_depth: more than %" PRId64 " chunks have depth %" PRId64 ", expected no more than the rows",
                       options->rows, options->depth);
    }
    index[count++] = (int32_t)k;
  }
  for (int64_t i = count; i < options->rows; i++) index[i] = -1;
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

static const hark_chunks_at_depth_attributes second = {2, 40}, none = {9, 3};

static const hark_sample samples[] = {
    {"none", &none, {{HARK_I32, 1, {7}, 0, 4}}},
    {"second", &second, {{HARK_I32, 1, {40}, 0, 4}}},
};

const hark_operator hark_op_chunks_at_depth = {
    .name = "chunks_at_depth",
    .formula = "index = the k with depth[k] >= depth, ascending, then -1",
    .attributes_size = sizeof(hark_chunks_at_depth_attributes),
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
