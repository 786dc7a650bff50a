/* gather_rows.c - y[i, ...] = x[index[i], ...]; zeros where the index is -1.
 *
 * x [N.., W..], whose first dimensions (one, or `leading`) number N rows of W numbers; index i32 [I]; y [I, W..]. Gradient: dx[n] = sum
 * over the i with index[i] = n of dy[i], added in increasing i: positions are first sorted by row, so that its bits do not depend on the
 * threads. I W additions backward.
 */
#include <string.h>

#include "ops/segments.h"

enum { INPUT_X, INPUT_INDEX, INPUT_COUNT };

static int64_t rows_of(const hark_gather_rows_attributes *options, const hark_tensor *x) {
  int64_t rows = 1;
  for (int i = 0; i < (options->leading == 0 ? 1 : options->leading); i++) rows *= x->shape[i];
  return rows;
}

static int64_t width_of(const hark_gather_rows_attributes *options, const hark_tensor *x) {
  int64_t width = 1;
  for (int i = options->leading == 0 ? 1 : options->leading; i < x->rank; i++) width *= x->shape[i];
  return width;
}

static hark_status infer(hark_context *context, const void *attributes, const hark_tensor *inputs, int input_count, hark_inferred *out) {
  static const hark_input_rule rules[INPUT_COUNT] = {{"x", HARK_F32, 2, HARK_MAX_RANK}, {"index", HARK_I32, 1, 1}};
  HARK_TRY(hark_check_inputs(context, &hark_op_gather_rows, rules, attributes, inputs, input_count));
  const hark_gather_rows_attributes *options = attributes;
  const hark_tensor *x = &inputs[INPUT_X], *index = &inputs[INPUT_INDEX];
  HARK_TRY(hark_check_number(context, &hark_op_gather_rows, "leading", options->leading, 0, x->rank - 1));
  const int64_t rows = rows_of(options, x);
  HARK_TRY(hark_check_number(context, &hark_op_gather_rows, "rows of x", rows, 0, INT32_MAX));
  const int leading = options->leading == 0 ? 1 : options->leading;
  int64_t shape[HARK_MAX_RANK] = {index->shape[0]};
  for (int i = leading; i < x->rank; i++) shape[1 + i - leading] = x->shape[i];
  HARK_TRY(hark_tensor_describe(context, x->type, 1 + x->rank - leading, shape, &out->outputs[0]));
  return hark_places_bytes(context, rows, index->shape[0], &out->backward_workspace);
}

static void forward_rows(const hark_call *call, int64_t first, int64_t last) {
  const hark_tensor *x = &call->inputs[INPUT_X];
  const int32_t *index = call->inputs[INPUT_INDEX].data;
  const size_t bytes = (size_t)width_of(call->attributes, x) * hark_type_bytes(x->type);
  const char *from = x->data;
  char *y = call->outputs[0].data;
  for (int64_t i = first; i < last; i++) {
    if (index[i] < 0) {
      memset(y + (size_t)i * bytes, 0, bytes);
    } else {
      memcpy(y + (size_t)i * bytes, from + (size_t)index[i] * bytes, bytes);
    }
  }
}

static hark_status forward(hark_context *context, const hark_call *call) {
  const hark_tensor *x = &call->inputs[INPUT_X], *index = &call->inputs[INPUT_INDEX];
  const int64_t width = width_of(call->attributes, x);
  HARK_TRY(hark_check_index(context, &hark_op_gather_rows, index, rows_of(call->attributes, x)));
  if (width > 0) hark_copy_range_for(context, call, index->shape[0], hark_row_grain(width), forward_rows);
  return HARK_OK;
}

/* y[i] = x[index[i]]: dx[n] = sum of dy[i] over the places i of row n */
static void backward_rows(const hark_call *call, int64_t first, int64_t last) {
  const hark_tensor *gradient = &call->input_gradients[INPUT_X];
  const hark_numbers dy = hark_numbers_of(&call->output_gradients[0]), dx = hark_gradient_of(call, INPUT_X);
  const int64_t width = width_of(call->attributes, gradient);
  const hark_places places = hark_places_at(call->workspace, rows_of(call->attributes, gradient));
  for (int64_t n = first; n < last; n++) {
    for (int64_t d = 0; d < width; d += HARK_BLOCK) {
      const int64_t count = hark_min(HARK_BLOCK, width - d);
      hark_block block = {{0}};
      for (int64_t i = places.begin[n]; i < places.begin[n + 1]; i++) hark_block_add(&block, count, 1, dy, places.place[i] * width + d);
      hark_block_give(&block, count, dx, n * width + d);
    }
  }
}

static hark_status backward(hark_context *context, const hark_call *call) {
  if (hark_gradient_is_absent(call) || !hark_present(&call->input_gradients[INPUT_X])) return HARK_OK;
  const hark_tensor *gradient = &call->input_gradients[INPUT_X], *index = &call->inputs[INPUT_INDEX];
  const int64_t rows = rows_of(call->attributes, gradient);
  HARK_TRY(hark_check_index(context, &hark_op_gather_rows, index, rows));
  (void)hark_places_make(index->data, index->shape[0], rows, call->workspace);
  hark_range_for(context, call, rows, hark_row_grain(width_of(call->attributes, gradient)), backward_rows);
  return HARK_OK;
}

static double operations(const void *attributes, const hark_tensor *inputs, int input_count, bool is_backward) {
  (void)input_count;
  return is_backward ? (double)inputs[INPUT_INDEX].shape[0] * (double)width_of(attributes, &inputs[INPUT_X]) : 0;
}

static int64_t terms(const void *attributes, const hark_tensor *inputs, int input_count) {
  (void)attributes, (void)input_count;
  return hark_max(1, inputs[INPUT_INDEX].shape[0]);
}

static const hark_gather_rows_attributes plain = {0}, rows = {2};

static const hark_sample samples[] = {
    {"one", &plain, {{HARK_F32, 2, {1, 1}, -1, 1}, {HARK_I32, 1, {1}, 0, 0}}},
    {"none", &plain, {{HARK_F32, 2, {3, 5}, -1, 1}, {HARK_I32, 1, {4}, -1, -1}}},
    {"some", &plain, {{HARK_F32, 2, {13, 33}, -1, 1}, {HARK_I32, 1, {29}, -1, 12}}},
    {"blocks", &plain, {{HARK_F32, 3, {17, 4, 5}, -1, 1}, {HARK_I32, 1, {9}, -1, 16}}},
    {"rows", &rows, {{HARK_F32, 3, {17, 4, 65}, -1, 1}, {HARK_I32, 1, {257}, -1, 67}}},
};

const hark_operator hark_op_gather_rows = {
    .name = "gather_rows",
    .formula = "y[i] = x[index[i]], 0 where the index is -1",
    .attributes_size = sizeof(hark_gather_rows_attributes),
    .input_minimum = INPUT_COUNT,
    .input_maximum = INPUT_COUNT,
    .output_count = 1,
    .differentiable = 1u << INPUT_X,
    .backward_inputs = 1u << INPUT_INDEX,
    .infer = infer,
    .forward = forward,
    .backward = backward,
    .operations = operations,
    .terms = terms,
    .samples = samples,
    .sample_count = sizeof samples / sizeof samples[0],
};
