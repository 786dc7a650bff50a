/* gate_segments.c - y[n, :] = x[n, :] log(1 + exp(gate[s, :])) for the rows n of segment s; rows of no segment are 0.
 *
 * x [..., D], gate [S, D], offsets i64 [S + 1]; y as x. dx = dy log(1 + exp(gate)), dgate[s, :] = sum over the rows of segment s of dy x /
 * (1 + exp(-gate)), in the order of the rows. About 2 operations per element forward, 4 backward, and 6 per gate.
 */
#include <hark/experimental.h>

#include "ops/segments.h"

enum { INPUT_X, INPUT_GATE, INPUT_OFFSETS, INPUT_COUNT };

static hark_status infer(hark_context *context, const void *attributes, const hark_tensor *inputs, int input_count, hark_inferred *out) {
  static const hark_input_rule rules[INPUT_COUNT] = {
      {"x", HARK_F32, 2, HARK_MAX_RANK}, {"gate", HARK_F32, 2, 2}, {"offsets", HARK_I64, 1, 1}};
  const hark_operator *const op = &hark_op_gate_segments;
  HARK_TRY(hark_check_inputs(context, op, rules, attributes, inputs, input_count));
  const hark_tensor *x = &inputs[INPUT_X], *offsets = &inputs[INPUT_OFFSETS];
  HARK_TRY(hark_check_offsets_shape(context, op, "offsets", offsets));
  const int64_t gate[] = {offsets->shape[0] - 1, hark_row_length(x)};
  HARK_TRY(hark_check_shape(context, op, "gate", &inputs[INPUT_GATE], 2, gate));
  return hark_tensor_describe(context, x->type, x->rank, x->shape, &out->outputs[0]);
}

/* log(1 + exp(x)), without overflow */
static double softplus(double x) { return fmax(x, 0) + log1p(exp(-fabs(x))); }

static void forward_segments(const hark_call *call, int64_t first, int64_t last) {
  const hark_numbers x = hark_numbers_of(&call->inputs[INPUT_X]), gate = hark_numbers_of(&call->inputs[INPUT_GATE]);
  const hark_numbers y = hark_numbers_of(&call->outputs[0]);
  const hark_segments segments = hark_segments_of(&call->inputs[INPUT_OFFSETS], 1);
  const int64_t width = hark_row_length(&call->inputs[INPUT_X]);
  for (int64_t s = first; s < last; s++)
    for (int64_t d = 0; d < width; d++) {
      const double factor = softplus(hark_get(gate, s * width + d));
      const int64_t row = hark_segment_first(&segments, s), end = row + hark_segment_rows(&segments, s);
      for (int64_t n = row; n < end; n++) hark_put(y, n * width + d, factor * hark_get(x, n * width + d));
    }
}

static hark_status forward(hark_context *context, const hark_call *call) {
  const hark_tensor *x = &call->inputs[INPUT_X], *offsets = &call->inputs[INPUT_OFFSETS];
  const int64_t rows = hark_row_count(x);
  HARK_TRY(hark_check_offsets(context, call->op, "offsets", offsets, 1, rows));
  const hark_segments segments = hark_segments_of(offsets, 1);
  hark_clear_gaps(&segments, hark_numbers_of(&call->outputs[0]), rows, hark_row_length(x));
  hark_range_for(context, call, segments.count, 1, forward_segments);
  return HARK_OK;
}

/* y = x softplus(gate): dx = dy softplus(gate), dgate = sum dy x / (1 + exp(-gate)) */
static void backward_segments(const hark_call *call, int64_t first, int64_t last) {
  const hark_numbers x = hark_numbers_of(&call->inputs[INPUT_X]), gate = hark_numbers_of(&call->inputs[INPUT_GATE]);
  const hark_numbers dy = hark_numbers_of(&call->output_gradients[0]);
  const hark_numbers dx = hark_gradient_of(call, INPUT_X), dgate = hark_gradient_of(call, INPUT_GATE);
  const hark_segments segments = hark_segments_of(&call->inputs[INPUT_OFFSETS], 1);
  const int64_t width = hark_row_length(&call->inputs[INPUT_X]);
  for (int64_t s = first; s < last; s++)
    for (int64_t d = 0; d < width; d++) {
      const double at = hark_get(gate, s * width + d), factor = softplus(at);
      const int64_t row = hark_segment_first(&segments, s), end = row + hark_segment_rows(&segments, s);
      double sum = 0;
      for (int64_t n = row; n < end; n++) {
        sum += hark_get(dy, n * width + d) * hark_get(x, n * width + d);
        if (dx.data != NULL) hark_give(dx, n * width + d, factor * hark_get(dy, n * width + d));
      }
      if (dgate.data != NULL) hark_give(dgate, s * width + d, sum / (1 + exp(-at)));
    }
}

static hark_status backward(hark_context *context, const hark_call *call) {
  if (hark_gradient_is_absent(call)) return HARK_OK;
  const hark_tensor *x = &call->inputs[INPUT_X];
  const hark_segments segments = hark_segments_of(&call->inputs[INPUT_OFFSETS], 1);
  if (hark_present(&call->input_gradients[INPUT_X]))
    hark_clear_gaps(&segments, hark_gradient_of(call, INPUT_X), hark_row_count(x), hark_row_length(x));
  hark_range_for(context, call, segments.count, 1, backward_segments);
  return HARK_OK;
}

static double operations(const void *attributes, const hark_tensor *inputs, int input_count, bool is_backward) {
  (void)attributes, (void)input_count;
  return (is_backward ? 4 : 2) * (double)hark_tensor_count(&inputs[INPUT_X]) + 6 * (double)hark_tensor_count(&inputs[INPUT_GATE]);
}

static int64_t terms(const void *attributes, const hark_tensor *inputs, int input_count) {
  (void)attributes, (void)input_count;
  return hark_max(1, hark_row_count(&inputs[INPUT_X]));
}

static const hark_sample samples[] = {
    {"one", NULL, {{HARK_F32, 2, {1, 1}, -1, 1}, {HARK_F32, 2, {1, 1}, -2, 2}, {HARK_I64, 1, {2}, 1, 0}}},
    {"none", NULL, {{HARK_F32, 2, {4, 3}, -1, 1}, {HARK_F32, 2, {0, 3}, -2, 2}, {HARK_I64, 1, {1}, 0, 0}}},
    {"segments", NULL, {{HARK_F32, 3, {1, 37, 5}, -1, 1}, {HARK_F32, 2, {4, 5}, -3, 3}, {HARK_I64, 1, {5}, 35, 1}}},
    {"many", NULL, {{HARK_F32, 2, {523, 33}, -1, 1}, {HARK_F32, 2, {9, 33}, -3, 3}, {HARK_I64, 1, {10}, 523, 0}}},
};

const hark_operator hark_op_gate_segments = {
    .name = "gate_segments",
    .formula = "y[n, :] = x[n, :] log(1 + exp(gate[s, :])), s the segment of row n",
    .input_minimum = INPUT_COUNT,
    .input_maximum = INPUT_COUNT,
    .output_count = 1,
    .differentiable = 1u << INPUT_X | 1u << INPUT_GATE,
    .backward_inputs = 1u << INPUT_X | 1u << INPUT_GATE | 1u << INPUT_OFFSETS,
    .gradient_in_place = 1u << INPUT_X,
    .infer = infer,
    .forward = forward,
    .backward = backward,
    .operations = operations,
    .terms = terms,
    .samples = samples,
    .sample_count = sizeof samples / sizeof samples[0],
};
