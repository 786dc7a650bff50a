/* straight_through.c - y[t, :] = x[t, :] (1 + c(p[t]) - c(reference[t])): gives boundary probabilities a gradient through the tokens'
 * outputs.
 *
 * c(q) = q for the first row of a chunk, 1 - q for the others. Without a reference, the reference is p, held constant: y = x, and the
 * gradients are those of the surrogate x c / stop(c) with stop(c) = 1 (H-Net, arXiv 2507.07955, eq. 6 to 9). With a reference, y is an
 * ordinary function.
 *   dx = dy (1 + c(p) - c(reference)),   dp[t] = +- dy[t, :] . x[t, :]
 * x [..., D]; p, reference [rows]; chunks i64 [K + 1]. Rows in no chunk: y = x, dp = 0. 2 D operations per row forward, 4 D backward.
 */
#include <hark/experimental.h>

#include "ops/segments.h"

enum { INPUT_X, INPUT_P, INPUT_CHUNKS, INPUT_REFERENCE, INPUT_COUNT };

static hark_status infer(hark_context *context, const void *attributes, const hark_tensor *inputs, int input_count, hark_inferred *out) {
  static const hark_input_rule rules[INPUT_COUNT] = {
      {"x", HARK_F32, 2, HARK_MAX_RANK}, {"p", HARK_F32, 1, 1}, {"chunks", HARK_I64, 1, 1}, {"reference", HARK_F32, 1, 1}};
  const hark_operator *op = &hark_op_straight_through;
  HARK_TRY(hark_check_inputs(context, op, rules, attributes, inputs, input_count));
  const hark_tensor *x = &inputs[INPUT_X];
  HARK_TRY(hark_check_vector(context, op, "p", &inputs[INPUT_P], hark_row_count(x), "the rows of x"));
  HARK_TRY(hark_check_offsets_shape(context, op, "chunks", &inputs[INPUT_CHUNKS]));
  if (hark_has_input(inputs, input_count, INPUT_REFERENCE)) {
    HARK_TRY(hark_check_vector(context, op, "reference", &inputs[INPUT_REFERENCE], hark_row_count(x), "the rows of x"));
  }
  out->forward_workspace = out->backward_workspace = (size_t)hark_row_count(x); /* the marks of first rows */
  return hark_tensor_describe(context, x->type, x->rank, x->shape, &out->outputs[0]);
}

/* Rows of the chunks: [first, last). */
typedef struct chunk_rows {
  int64_t first, last;
} chunk_rows;

static chunk_rows rows_of_chunks(const hark_call *call) {
  const hark_segments chunks = hark_segments_of(&call->inputs[INPUT_CHUNKS], 1);
  return (chunk_rows){chunks.offsets[0], chunks.offsets[chunks.count]};
}

static double sign_of(const hark_call *call, chunk_rows rows, int64_t t) {
  if (t < rows.first || t >= rows.last) return 0;
  return ((const unsigned char *)call->workspace)[t] != 0 ? 1 : -1;
}

static double factor_of(const hark_call *call, double sign, int64_t t) {
  const hark_tensor *reference = &call->inputs[INPUT_REFERENCE];
  if (!hark_present(reference)) return 1;
  return 1 + sign * (hark_get(hark_numbers_of(&call->inputs[INPUT_P]), t) - hark_get(hark_numbers_of(reference), t));
}

static void forward_rows(const hark_call *call, int64_t first, int64_t last) {
  const hark_numbers x = hark_numbers_of(&call->inputs[INPUT_X]), y = hark_numbers_of(&call->outputs[0]);
  const int64_t width = hark_row_length(&call->inputs[INPUT_X]);
  const chunk_rows rows = rows_of_chunks(call);
  for (int64_t t = first; t < last; t++) {
    const double factor = factor_of(call, sign_of(call, rows, t), t);
    for (int64_t i = t * width; i < (t + 1) * width; i++) hark_put(y, i, hark_get(x, i) * factor);
  }
}

static hark_status mark(hark_context *context, const hark_call *call, int64_t rows) {
  const hark_tensor *offsets = &call->inputs[INPUT_CHUNKS];
  HARK_TRY(hark_check_offsets(context, &hark_op_straight_through, "chunks", offsets, 1, rows));
  const hark_segments chunks = hark_segments_of(offsets, 1);
  hark_mark_starts(&chunks, rows, call->workspace);
  return HARK_OK;
}

static hark_status forward(hark_context *context, const hark_call *call) {
  const hark_tensor *x = &call->inputs[INPUT_X];
  HARK_TRY(mark(context, call, hark_row_count(x)));
  hark_range_for(context, call, hark_row_count(x), hark_row_grain(hark_row_length(x)), forward_rows);
  return HARK_OK;
}

/* y = x (1 + c(p) - c(reference)): dx = dy (1 + c(p) - c(reference)), dp = c'(p) dy . x */
static void backward_rows(const hark_call *call, int64_t first, int64_t last) {
  const hark_numbers x = hark_numbers_of(&call->inputs[INPUT_X]), dy = hark_numbers_of(&call->output_gradients[0]);
  const hark_numbers dx = hark_gradient_of(call, INPUT_X), dp = hark_gradient_of(call, INPUT_P);
  const hark_numbers dreference = hark_gradient_of(call, INPUT_REFERENCE);
  const int64_t width = hark_row_length(&call->inputs[INPUT_X]);
  const chunk_rows rows = rows_of_chunks(call);
  for (int64_t t = first; t < last; t++) {
    const double sign = sign_of(call, rows, t), factor = factor_of(call, sign, t);
    double product = 0;
    for (int64_t i = t * width; i < (t + 1) * width; i++) {
      product += hark_get(dy, i) * hark_get(x, i);
      if (dx.data != NULL) hark_give(dx, i, hark_get(dy, i) * factor);
    }
    if (dp.data != NULL) hark_give(dp, t, sign * product);
    if (dreference.data != NULL) hark_give(dreference, t, -sign * product);
  }
}

static hark_status backward(hark_context *context, const hark_call *call) {
  if (hark_gradient_is_absent(call)) return HARK_OK;
  const hark_tensor *x = &call->inputs[INPUT_X];
  HARK_TRY(mark(context, call, hark_row_count(x)));
  hark_range_for(context, call, hark_row_count(x), hark_row_grain(hark_row_length(x)), backward_rows);
  return HARK_OK;
}

static double operations(const void *attributes, const hark_tensor *inputs, int input_count, bool is_backward) {
  (void)attributes;
  const double count = (double)hark_tensor_count(&inputs[INPUT_X]);
  if (is_backward) return 4 * count;
  return hark_has_input(inputs, input_count, INPUT_REFERENCE) ? 2 * count : 0;
}

static int64_t terms(const void *attributes, const hark_tensor *inputs, int input_count) {
  (void)attributes, (void)input_count;
  return hark_max(1, hark_row_length(&inputs[INPUT_X]));
}

/* All samples have a reference: without one, the gradient is intentionally not that of the forward (tests/reference). */
static const hark_sample samples[] = {
    {"one", NULL, {{HARK_F32, 2, {1, 1}, -1, 1}, {HARK_F32, 1, {1}, 0, 1}, {HARK_I64, 1, {2}, 1, 0}, {HARK_F32, 1, {1}, 0, 1}}},
    {"rows", NULL, {{HARK_F32, 2, {19, 7}, -1, 1}, {HARK_F32, 1, {19}, 0, 1}, {HARK_I64, 1, {6}, 17, 2}, {HARK_F32, 1, {19}, 0, 1}}},
    {"batch",
     NULL,
     {{HARK_F32, 3, {3, 43, 33}, -1, 1}, {HARK_F32, 1, {129}, 0, 1}, {HARK_I64, 1, {40}, 129, 0}, {HARK_F32, 1, {129}, 0, 1}}},
};

const hark_operator hark_op_straight_through = {
    .name = "straight_through",
    .formula = "y = x (1 + c(p) - c(reference)), c(p) = p in the first row of a chunk, 1 - p in the others",
    .input_minimum = 3,
    .input_maximum = INPUT_COUNT,
    .output_count = 1,
    .differentiable = 1u << INPUT_X | 1u << INPUT_P | 1u << INPUT_REFERENCE,
    .backward_inputs = (1u << INPUT_COUNT) - 1,
    .infer = infer,
    .forward = forward,
    .backward = backward,
    .operations = operations,
    .terms = terms,
    .samples = samples,
    .sample_count = sizeof samples / sizeof samples[0],
};
