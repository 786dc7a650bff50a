/* settled_probability.c - a boundary probability corrected by the chunks made from it: 0 or 1 where the minimum or maximum length decided.
 *
 *     y[t] = p[t] where the chunks agree with p[t] >= 1/2, else the decision: 1 at the first row of a chunk, 0 within
 *
 * p [rows]; chunks i64 [K + 1]; y [rows]. dp = dy where p was copied (a NaN always is), else 0. One comparison per row.
 */
#include <hark/experimental.h>

#include "ops/segments.h"

enum { INPUT_P, INPUT_CHUNKS, INPUT_COUNT };

static hark_status infer(hark_context *context, const void *attributes, const hark_tensor *inputs, int input_count, hark_inferred *out) {
  static const hark_input_rule rules[INPUT_COUNT] = {{"p", HARK_F32, 1, 1}, {"chunks", HARK_I64, 1, 1}};
  HARK_TRY(hark_check_inputs(context, &hark_op_settled_probability, rules, attributes, inputs, input_count));
  HARK_TRY(hark_check_offsets_shape(context, &hark_op_settled_probability, "chunks", &inputs[INPUT_CHUNKS]));
  out->forward_workspace = out->backward_workspace = (size_t)inputs[INPUT_P].shape[0]; /* the marks of first rows */
  return hark_tensor_describe(context, inputs[INPUT_P].type, 1, inputs[INPUT_P].shape, &out->outputs[0]);
}

static hark_status mark(hark_context *context, const hark_call *call, int64_t rows) {
  const hark_tensor *offsets = &call->inputs[INPUT_CHUNKS];
  HARK_TRY(hark_check_offsets(context, &hark_op_settled_probability, "chunks", offsets, 1, rows));
  const hark_segments chunks = hark_segments_of(offsets, 1);
  hark_mark_starts(&chunks, rows, call->workspace);
  return HARK_OK;
}

/* Whether p is copied; a NaN is, so that it is noticed. */
static bool is_kept(double p, unsigned char start) { return isnan(p) || (p >= 0.5) == (start != 0); }

static hark_status forward(hark_context *context, const hark_call *call) {
  const int64_t rows = call->inputs[INPUT_P].shape[0];
  const hark_numbers p = hark_numbers_of(&call->inputs[INPUT_P]), y = hark_numbers_of(&call->outputs[0]);
  HARK_TRY(mark(context, call, rows));
  const unsigned char *starts = call->workspace;
  for (int64_t t = 0; t < rows; t++) {
    const double given = hark_get(p, t);
    hark_put(y, t, is_kept(given, starts[t]) ? given : starts[t]);
  }
  return HARK_OK;
}

/* y = p where the chunks agree, else a constant */
static hark_status backward(hark_context *context, const hark_call *call) {
  if (hark_gradient_is_absent(call) || !hark_present(&call->input_gradients[INPUT_P])) return HARK_OK;
  const int64_t rows = call->inputs[INPUT_P].shape[0];
  const hark_numbers p = hark_numbers_of(&call->inputs[INPUT_P]), dy = hark_numbers_of(&call->output_gradients[0]);
  const hark_numbers dp = hark_gradient_of(call, INPUT_P);
  HARK_TRY(mark(context, call, rows));
  const unsigned char *starts = call->workspace;
  for (int64_t t = 0; t < rows; t++) {
    hark_give(dp, t, is_kept(hark_get(p, t), starts[t]) ? hark_get(dy, t) : 0);
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
    {"one", NULL, {{HARK_F32, 1, {1}, 0.6, 1}, {HARK_I64, 1, {2}, 1, 0}}},
    {"some", NULL, {{HARK_F32, 1, {61}, 0, 1}, {HARK_I64, 1, {20}, 60, 0}}},
};

const hark_operator hark_op_settled_probability = {
    .name = "settled_probability",
    .formula = "y[t] = p[t] where chunks agree with p[t] >= 1/2, else the decision",
    .input_minimum = INPUT_COUNT,
    .input_maximum = INPUT_COUNT,
    .output_count = 1,
    .differentiable = 1u << INPUT_P,
    .backward_inputs = 1u << INPUT_P | 1u << INPUT_CHUNKS,
    .infer = infer,
    .forward = forward,
    .backward = backward,
    .operations = operations,
    .terms = terms,
    .samples = samples,
    .sample_count = sizeof samples / sizeof samples[0],
};
