/* embedding_compact.c - y[n, :] = table[id[n], :] with a table of bf16, f16 or i8.
 *
 * ids i32, N of them; table [V, D]; scale f32 [V] for i8; y f32 [N, D]. N D operations. No backward.
 */
#include <inttypes.h>

#include "ops/compact.h"

enum { INPUT_IDS, INPUT_TABLE, INPUT_SCALE, INPUT_COUNT };

static hark_status infer(hark_context *context, const void *attributes, const hark_tensor *inputs, int input_count, hark_inferred *out) {
  const hark_input_rule rules[INPUT_COUNT] = {{"ids", HARK_I32, 0, HARK_MAX_RANK - 1},
                                              {"table", hark_compact_rule(inputs, input_count, INPUT_TABLE), 2, 2},
                                              {"scale", HARK_F32, 1, 1}};
  HARK_TRY(hark_check_inputs(context, &hark_op_embedding_compact, rules, attributes, inputs, input_count));
  const hark_tensor absent = {0}, *ids = &inputs[INPUT_IDS], *table = &inputs[INPUT_TABLE],
                    *scale = input_count > INPUT_SCALE ? &inputs[INPUT_SCALE] : &absent;
  HARK_TRY(hark_check_scale(context, &hark_op_embedding_compact, "table", table, scale));
  int64_t shape[HARK_MAX_RANK];
  for (int i = 0; i < ids->rank; i++) shape[i] = ids->shape[i];
  shape[ids->rank] = table->shape[1];
  return hark_tensor_describe(context, hark_present(scale) ? scale->type : HARK_F32, ids->rank + 1, shape, &out->outputs[0]);
}

static void forward_rows(const hark_call *call, int64_t first, int64_t last) {
  const int32_t *id = call->inputs[INPUT_IDS].data;
  const hark_tensor *table = &call->inputs[INPUT_TABLE];
  const hark_numbers scale = hark_numbers_of(&call->inputs[INPUT_SCALE]), y = hark_numbers_of(&call->outputs[0]);
  const int64_t width = table->shape[1];
  for (int64_t n = first; n < last; n++) {
    const double factor = table->type == HARK_I8 ? hark_get(scale, id[n]) : 1;
    for (int64_t d = 0; d < width; d++) hark_put(y, n * width + d, factor * hark_compact_get(table, id[n], d));
  }
}

static hark_status forward(hark_context *context, const hark_call *call) {
  const hark_tensor *table = &call->inputs[INPUT_TABLE], *ids = &call->inputs[INPUT_IDS];
  HARK_TRY(hark_check_ids(context, call->op, ids, table->shape[0]));
  if (table->shape[1] > 0) hark_range_for(context, call, hark_tensor_count(ids), hark_row_grain(table->shape[1]), forward_rows);
  return HARK_OK;
}

static double operations(const void *attributes, const hark_tensor *inputs, int input_count, bool is_backward) {
  (void)attributes, (void)input_count, (void)is_backward;
  return (double)hark_tensor_count(&inputs[INPUT_IDS]) * (double)inputs[INPUT_TABLE].shape[1];
}

static int64_t terms(const void *attributes, const hark_tensor *inputs, int input_count) {
  (void)attributes, (void)inputs, (void)input_count;
  return 1;
}

static const hark_sample samples[] = {
    {"bf16", NULL, {{HARK_I32, 2, {3, 11}, 0, 12}, {HARK_BF16, 2, {13, 33}, -1, 1}}},
    {"f16", NULL, {{HARK_I32, 0, {0}, 0, 6}, {HARK_F16, 2, {7, 5}, -1, 1}}},
    {"i8", NULL, {{HARK_I32, 1, {31}, 0, 16}, {HARK_I8, 2, {17, 37}, -127, 127}, {HARK_F32, 1, {17}, .01, .02}}},
};

const hark_operator hark_op_embedding_compact = {
    .name = "embedding_compact",
    .formula = "y[n] = table[id[n]], table of bf16, f16 or i8",
    .input_minimum = 2,
    .input_maximum = INPUT_COUNT,
    .output_count = 1,
    .infer = infer,
    .forward = forward,
    .operations = operations,
    .terms = terms,
    .samples = samples,
    .sample_count = sizeof samples / sizeof samples[0],
};
