/* position_embedding.c - y[b, l, :] = x[b, l, :] + table[first_position + l, :]: learned absolute positions.
 *
 * x, y [B, L, D], table [P, D]. B L D additions forward and backward.
 * Gradients: dx = dy; dtable[first_position + l, :] = sum_b dy[b, l, :], zero elsewhere.
 */
#include <inttypes.h>

#include "ops/definition.h"

enum { INPUT_X, INPUT_TABLE, INPUT_COUNT };

static hark_status infer(hark_context *context, const void *attributes, const hark_tensor *inputs, int input_count, hark_inferred *out) {
  static const hark_input_rule rules[INPUT_COUNT] = {{"x", HARK_F32, 3, 3}, {"table", HARK_F32, 2, 2}};
  HARK_TRY(hark_check_inputs(context, &hark_op_position_embedding, rules, attributes, inputs, input_count));
  const int64_t first = ((const hark_position_embedding_attributes *)attributes)->first_position;
  const hark_tensor *x = &inputs[INPUT_X], *table = &inputs[INPUT_TABLE];
  char text_x[HARK_SHAPE_TEXT_BYTES], text_table[HARK_SHAPE_TEXT_BYTES];
  if (table->shape[1] != x->shape[2]) {
    return hark_fail(context, HARK_SHAPE_MISMATCH, "position_embedding: table has %s and x has %s, expected table [P, %" PRId64 "]",
                     hark_shape_text(table, text_table, sizeof text_table), hark_shape_text(x, text_x, sizeof text_x), x->shape[2]);
  }
  if (first < 0 || x->shape[1] > table->shape[0] || first > table->shape[0] - x->shape[1]) {
    return hark_fail(context, HARK_INVALID_ARGUMENT,
                     "position_embedding: %" PRId64 " positions from first_position %" PRId64 " on, expected them within the %" PRId64
                     " of table",
                     x->shape[1], first, table->shape[0]);
  }
  return hark_tensor_describe(context, x->type, x->rank, x->shape, &out->outputs[0]);
}

static void forward_rows(const hark_call *call, int64_t first, int64_t last) {
  const int64_t first_position = ((const hark_position_embedding_attributes *)call->attributes)->first_position;
  const hark_tensor *input = &call->inputs[INPUT_X];
  const hark_numbers x = hark_numbers_of(input), table = hark_numbers_of(&call->inputs[INPUT_TABLE]);
  const hark_numbers y = hark_numbers_of(&call->outputs[0]);
  const int64_t length = input->shape[1], width = input->shape[2];
  for (int64_t n = first; n < last; n++) {
    const int64_t position = first_position + n % length;
    for (int64_t d = 0; d < width; d++) hark_put(y, n * width + d, hark_get(x, n * width + d) + hark_get(table, position * width + d));
  }
}

static hark_status forward(hark_context *context, const hark_call *call) {
  const hark_tensor *x = &call->inputs[INPUT_X];
  hark_range_for(context, call, hark_row_count(x), hark_row_grain(hark_row_length(x)), forward_rows);
  return HARK_OK;
}

/* y = x + ...: dx = dy */
static void backward_x(const hark_call *call, int64_t first, int64_t last) {
  const hark_numbers dy = hark_numbers_of(&call->output_gradients[0]), dx = hark_gradient_of(call, INPUT_X);
  for (int64_t i = first; i < last; i++) hark_give(dx, i, hark_get(dy, i));
}

/* y[b, l] = ... + table[first_position + l]: dtable[p] = sum_b dy[b, p - first_position], for p in [first, last) */
static void backward_table(const hark_call *call, int64_t first, int64_t last) {
  const int64_t first_position = ((const hark_position_embedding_attributes *)call->attributes)->first_position;
  const hark_tensor *gradient = &call->output_gradients[0];
  const hark_numbers dy = hark_numbers_of(gradient), dtable = hark_gradient_of(call, INPUT_TABLE);
  const int64_t batch = gradient->shape[0], length = gradient->shape[1], width = gradient->shape[2];
  for (int64_t p = first; p < last; p++) {
    const int64_t l = p - first_position;
    const bool used = l >= 0 && l < length;
    for (int64_t d = 0; d < width; d++) {
      double sum = 0;
      for (int64_t b = 0; used && b < batch; b++) sum += hark_get(dy, (b * length + l) * width + d);
      hark_give(dtable, p * width + d, sum);
    }
  }
}

static hark_status backward(hark_context *context, const hark_call *call) {
  if (hark_gradient_is_absent(call)) return HARK_OK;
  const hark_tensor *dy = &call->output_gradients[0], *dtable = &call->input_gradients[INPUT_TABLE];
  if (hark_present(&call->input_gradients[INPUT_X])) {
    hark_range_for(context, call, hark_tensor_count(dy), HARK_DEFINITION_GRAIN, backward_x);
  }
  if (hark_present(dtable)) {
    hark_range_for(context, call, dtable->shape[0], hark_row_grain(dy->shape[0] * dy->shape[2]), backward_table);
  }
  return HARK_OK;
}

static double operations(const void *attributes, const hark_tensor *inputs, int input_count, bool is_backward) {
  (void)attributes, (void)input_count, (void)is_backward;
  return (double)hark_tensor_count(&inputs[INPUT_X]);
}

static int64_t terms(const void *attributes, const hark_tensor *inputs, int input_count) {
  (void)attributes, (void)input_count;
  return hark_max(2, inputs[INPUT_X].shape[0]);
}

static const hark_position_embedding_attributes from_zero = {0}, from_three = {3};

static const hark_sample samples[] = {
    {"one", &from_zero, {{HARK_F32, 3, {1, 1, 1}, -1, 1}, {HARK_F32, 2, {1, 1}, -1, 1}}},
    {"whole_table", &from_zero, {{HARK_F32, 3, {3, 17, 19}, -1, 1}, {HARK_F32, 2, {17, 19}, -1, 1}}},
    {"inside_table", &from_three, {{HARK_F32, 3, {2, 5, 33}, -1, 1}, {HARK_F32, 2, {11, 33}, -1, 1}}},
    {"end_of_table", &from_three, {{HARK_F32, 3, {2, 5, 64}, -1, 1}, {HARK_F32, 2, {8, 64}, -1, 1}}},
    {"long", &from_zero, {{HARK_F32, 3, {1, 257, 5}, -1, 1}, {HARK_F32, 2, {300, 5}, -1, 1}}},
};

const hark_operator hark_op_position_embedding = {
    .name = "position_embedding",
    .formula = "y[b,l] = x[b,l] + table[first_position + l]",
    .attributes_size = sizeof(hark_position_embedding_attributes),
    .input_minimum = INPUT_COUNT,
    .input_maximum = INPUT_COUNT,
    .output_count = 1,
    .differentiable = 1u << INPUT_X | 1u << INPUT_TABLE,
    .in_place = 1u << INPUT_X,
    .gradient_passes = 1u << INPUT_X,
    .infer = infer,
    .forward = forward,
    .backward = backward,
    .operations = operations,
    .terms = terms,
    .samples = samples,
    .sample_count = sizeof samples / sizeof samples[0],
};
