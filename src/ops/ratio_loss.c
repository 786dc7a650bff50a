/* ratio_loss.c - keeps the fraction of rows that begin a chunk near 1 / N (H-Net, arXiv 2507.07955, eq. 10).
 *
 *     loss = weight sum over sequences of N / (N - 1) ((N - 1) F G + (1 - F) (1 - G)),   F = chunks / rows, G = mean of p over the rows
 *
 * F is a count and constant: dp[t] = dloss weight N / (N - 1) ((N - 1) F - (1 - F)) / rows. At F = G = 1 / N, the term of a sequence is 1.
 * p [rows]; offsets i64 [B + 1] of rows; sequences i64 [B + 1] of chunks. Sequences without rows add nothing. Summed in double, in order.
 */
#include <hark/experimental.h>

#include "io/number.h"
#include "ops/segments.h"

enum { INPUT_P, INPUT_OFFSETS, INPUT_SEQUENCES, INPUT_COUNT };

static hark_status infer(hark_context *context, const void *attributes, const hark_tensor *inputs, int input_count, hark_inferred *out) {
  static const hark_input_rule rules[INPUT_COUNT] = {{"p", HARK_F32, 1, 1}, {"offsets", HARK_I64, 1, 1}, {"sequences", HARK_I64, 1, 1}};
  const hark_operator *op = &hark_op_ratio_loss;
  HARK_TRY(hark_check_inputs(context, op, rules, attributes, inputs, input_count));
  HARK_TRY(hark_check_offsets_shape(context, op, "offsets", &inputs[INPUT_OFFSETS]));
  HARK_TRY(hark_check_vector(context, op, "sequences", &inputs[INPUT_SEQUENCES], inputs[INPUT_OFFSETS].shape[0], "as many as offsets"));
  const hark_ratio_loss_attributes *options = attributes;
  if (!isfinite(options->weight)) {
    return hark_fail(context, HARK_INVALID_ARGUMENT, "ratio_loss: weight is %s, expected a finite number", HARK_PRINTED(options->weight));
  }
  if (!(options->target > 1) || !isfinite(options->target)) {
    return hark_fail(context, HARK_INVALID_ARGUMENT, "ratio_loss: target is %s, expected rows of a chunk, more than 1",
                     HARK_PRINTED(options->target));
  }
  return hark_tensor_describe(context, inputs[INPUT_P].type, 0, NULL, &out->outputs[0]);
}

static hark_status check(hark_context *context, const hark_call *call) {
  HARK_TRY(hark_check_offsets(context, &hark_op_ratio_loss, "offsets", &call->inputs[INPUT_OFFSETS], 1, call->inputs[INPUT_P].shape[0]));
  return hark_check_offsets(context, &hark_op_ratio_loss, "sequences", &call->inputs[INPUT_SEQUENCES], 1, INT32_MAX);
}

static hark_status forward(hark_context *context, const hark_call *call) {
  HARK_TRY(check(context, call));
  const hark_ratio_loss_attributes *options = call->attributes;
  const hark_segments rows = hark_segments_of(&call->inputs[INPUT_OFFSETS], 1),
                      chunks = hark_segments_of(&call->inputs[INPUT_SEQUENCES], 1);
  const hark_numbers p = hark_numbers_of(&call->inputs[INPUT_P]);
  const double n = options->target;
  double loss = 0;
  for (int64_t b = 0; b < rows.count; b++) {
    const double count = (double)hark_segment_rows(&rows, b);
    if (count == 0) continue;
    double sum = 0;
    for (int64_t t = rows.offsets[b]; t < rows.offsets[b + 1]; t++) sum += hark_get(p, t);
    const double share = (double)hark_segment_rows(&chunks, b) / count, mean = sum / count;
    loss += n / (n - 1) * ((n - 1) * share * mean + (1 - share) * (1 - mean));
  }
  hark_put(hark_numbers_of(&call->outputs[0]), 0, options->weight * loss);
  return HARK_OK;
}

/* loss = N / (N - 1) ((N - 1) F G + (1 - F) (1 - G)): dG = N / (N - 1) ((N - 1) F - (1 - F)), dp = dG / rows */
static hark_status backward(hark_context *context, const hark_call *call) {
  if (hark_gradient_is_absent(call) || !hark_present(&call->input_gradients[INPUT_P])) return HARK_OK;
  const hark_ratio_loss_attributes *options = call->attributes;
  HARK_TRY(hark_check_offsets(context, &hark_op_ratio_loss, "offsets", &call->inputs[INPUT_OFFSETS], 1,
                              call->input_gradients[INPUT_P].shape[0]));
  const hark_segments rows = hark_segments_of(&call->inputs[INPUT_OFFSETS], 1),
                      chunks = hark_segments_of(&call->inputs[INPUT_SEQUENCES], 1);
  const hark_numbers dp = hark_gradient_of(call, INPUT_P);
  const double n = options->target, dloss = options->weight * hark_get(hark_numbers_of(&call->output_gradients[0]), 0);
  hark_clear_gaps(&rows, dp, call->input_gradients[INPUT_P].shape[0], 1);
  for (int64_t b = 0; b < rows.count; b++) {
    const double count = (double)hark_segment_rows(&rows, b), share = (double)hark_segment_rows(&chunks, b) / count;
    const double gradient = dloss * n / (n - 1) * ((n - 1) * share - (1 - share)) / count;
    for (int64_t t = rows.offsets[b]; t < rows.offsets[b + 1]; t++) hark_give(dp, t, gradient);
  }
  return HARK_OK;
}

static double operations(const void *attributes, const hark_tensor *inputs, int input_count, bool is_backward) {
  (void)attributes, (void)input_count;
  return is_backward ? 0 : (double)inputs[INPUT_P].shape[0];
}

static int64_t terms(const void *attributes, const hark_tensor *inputs, int input_count) {
  (void)attributes, (void)input_count;
  return hark_max(1, inputs[INPUT_P].shape[0]);
}

static const hark_ratio_loss_attributes eight = {0.03, 8}, three = {1, 3};

static const hark_sample samples[] = {
    {"one", &three, {{HARK_F32, 1, {1}, 0, 1}, {HARK_I64, 1, {2}, 1, 0}, {HARK_I64, 1, {2}, 1, 0}}},
    {"sequences", &three, {{HARK_F32, 1, {61}, 0, 1}, {HARK_I64, 1, {5}, 60, 1}, {HARK_I64, 1, {5}, 13, 0}}},
    {"batch", &eight, {{HARK_F32, 1, {257}, 0, 1}, {HARK_I64, 1, {9}, 257, 0}, {HARK_I64, 1, {9}, 40, 0}}},
};

const hark_operator hark_op_ratio_loss = {
    .name = "ratio_loss",
    .formula = "loss = weight sum of N / (N - 1) ((N - 1) F G + (1 - F) (1 - G))",
    .attributes_size = sizeof(hark_ratio_loss_attributes),
    .input_minimum = INPUT_COUNT,
    .input_maximum = INPUT_COUNT,
    .output_count = 1,
    .differentiable = 1u << INPUT_P,
    .backward_inputs = 1u << INPUT_OFFSETS | 1u << INPUT_SEQUENCES,
    .infer = infer,
    .forward = forward,
    .backward = backward,
    .operations = operations,
    .terms = terms,
    .samples = samples,
    .sample_count = sizeof samples / sizeof samples[0],
};
