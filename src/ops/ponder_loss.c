/* ponder_loss.c - the cost of depth: loss = weight sum over sequences of the mean over their chunks of sigmoid(score).
 *
 * score [K]; sequences i64 [B + 1], offsets into the chunks; output of rank 0. dscore[k] = dloss weight g (1 - g) / K_b, g =
 * sigmoid(score[k]). Sequences without chunks add nothing. Summed in double, in order. 4 operations per chunk.
 */
#include <hark/experimental.h>

#include "io/number.h"
#include "ops/segments.h"

enum { INPUT_SCORE, INPUT_SEQUENCES, INPUT_COUNT };

static hark_status infer(hark_context *context, const void *attributes, const hark_tensor *inputs, int input_count, hark_inferred *out) {
  static const hark_input_rule rules[INPUT_COUNT] = {{"score", HARK_F32, 1, HARK_MAX_RANK}, {"sequences", HARK_I64, 1, 1}};
  HARK_TRY(hark_check_inputs(context, &hark_op_ponder_loss, rules, attributes, inputs, input_count));
  HARK_TRY(hark_check_offsets_shape(context, &hark_op_ponder_loss, "sequences", &inputs[INPUT_SEQUENCES]));
  const double weight = ((const hark_ponder_loss_attributes *)attributes)->weight;
  if (!isfinite(weight)) {
    return hark_fail(context, HARK_INVALID_ARGUMENT, "ponder_loss: weight is %s, expected a finite number", HARK_PRINTED(weight));
  }
  return hark_tensor_describe(context, inputs[INPUT_SCORE].type, 0, NULL, &out->outputs[0]);
}

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

static hark_status forward(hark_context *context, const hark_call *call) {
  const hark_tensor *score = &call->inputs[INPUT_SCORE], *sequences = &call->inputs[INPUT_SEQUENCES];
  HARK_TRY(hark_check_offsets(context, &hark_op_ponder_loss, "sequences", sequences, 1, hark_tensor_count(score)));
  const hark_segments chunks = hark_segments_of(sequences, 1);
  const hark_numbers s = hark_numbers_of(score);
  double loss = 0;
  for (int64_t b = 0; b < chunks.count; b++) {
    double sum = 0;
    for (int64_t k = chunks.offsets[b]; k < chunks.offsets[b + 1]; k++) sum += sigmoid(hark_get(s, k));
    if (hark_segment_rows(&chunks, b) > 0) loss += sum / (double)hark_segment_rows(&chunks, b);
  }
  hark_put(hark_numbers_of(&call->outputs[0]), 0, ((const hark_ponder_loss_attributes *)call->attributes)->weight * loss);
  return HARK_OK;
}

/* loss = weight sum of g / K_b: dscore = dloss weight g (1 - g) / K_b */
static hark_status backward(hark_context *context, const hark_call *call) {
  if (hark_gradient_is_absent(call) || !hark_present(&call->input_gradients[INPUT_SCORE])) return HARK_OK;
  const hark_tensor *score = &call->inputs[INPUT_SCORE], *sequences = &call->inputs[INPUT_SEQUENCES];
  HARK_TRY(hark_check_offsets(context, &hark_op_ponder_loss, "sequences", sequences, 1, hark_tensor_count(score)));
  const hark_segments chunks = hark_segments_of(sequences, 1);
  const hark_numbers s = hark_numbers_of(score), ds = hark_gradient_of(call, INPUT_SCORE);
  const double weight = ((const hark_ponder_loss_attributes *)call->attributes)->weight;
  const double dloss = weight * hark_get(hark_numbers_of(&call->output_gradients[0]), 0);
  hark_clear_gaps(&chunks, ds, hark_tensor_count(score), 1);
  for (int64_t b = 0; b < chunks.count; b++) {
    for (int64_t k = chunks.offsets[b]; k < chunks.offsets[b + 1]; k++) {
      const double gate = sigmoid(hark_get(s, k));
      hark_give(ds, k, dloss * gate * (1 - gate) / (double)hark_segment_rows(&chunks, b));
    }
  }
  return HARK_OK;
}

static double operations(const void *attributes, const hark_tensor *inputs, int input_count, bool is_backward) {
  (void)attributes, (void)input_count, (void)is_backward;
  return 4 * (double)hark_tensor_count(&inputs[INPUT_SCORE]);
}

static int64_t terms(const void *attributes, const hark_tensor *inputs, int input_count) {
  (void)attributes, (void)input_count;
  return hark_max(1, hark_tensor_count(&inputs[INPUT_SCORE]));
}

static const hark_ponder_loss_attributes usual = {0.02};

static const hark_sample samples[] = {
    {"one", &usual, {{HARK_F32, 1, {1}, -1, 1}, {HARK_I64, 1, {2}, 1, 0}}},
    {"sequences", &usual, {{HARK_F32, 1, {61}, -3, 3}, {HARK_I64, 1, {5}, 60, 1}}},
    {"tails", &usual, {{HARK_F32, 1, {31}, -80, 80}, {HARK_I64, 1, {4}, 31, 0}}},
};

const hark_operator hark_op_ponder_loss = {
    .name = "ponder_loss",
    .formula = "loss = weight sum over sequences of mean sigmoid(score)",
    .attributes_size = sizeof(hark_ponder_loss_attributes),
    .input_minimum = INPUT_COUNT,
    .input_maximum = INPUT_COUNT,
    .output_count = 1,
    .differentiable = 1u << INPUT_SCORE,
    .backward_inputs = 1u << INPUT_SCORE | 1u << INPUT_SEQUENCES,
    .infer = infer,
    .forward = forward,
    .backward = backward,
    .operations = operations,
    .terms = terms,
    .samples = samples,
    .sample_count = sizeof samples / sizeof samples[0],
};
