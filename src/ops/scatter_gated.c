/* scatter_gated.c - y = h, y[index[i], ...] += g update[i, ...], g = sigmoid(score[index[i]]) or 1: adds a layer's output to the chunks
 * that it ran on.
 *
 * h [K, W..]; update [I, W..]; index i32 [I], -1: not added; score [K], optional. Gradients, k = index[i]:
 *   dh = dy,   dupdate[i] = g dy[k],   dscore[k] = g (1 - g) sum over i with index[i] = k of dy[k] . update[i]
 * Updates of one row are added in increasing i: they are sorted by row first. 2 I W operations forward, 3 I W backward.
 */
#include <hark/experimental.h>
#include <string.h>

#include "ops/segments.h"

enum { INPUT_H, INPUT_UPDATE, INPUT_INDEX, INPUT_SCORE, INPUT_COUNT };

static int64_t width_of(const hark_tensor *x) {
  int64_t width = 1;
  for (int i = 1; i < x->rank; i++) width *= x->shape[i];
  return width;
}

static hark_status infer(hark_context *context, const void *attributes, const hark_tensor *inputs, int input_count, hark_inferred *out) {
  static const hark_input_rule rules[INPUT_COUNT] = {{"h", HARK_F32, 2, HARK_MAX_RANK},
                                                     {"update", HARK_F32, 2, HARK_MAX_RANK},
                                                     {"index", HARK_I32, 1, 1},
                                                     {"score", HARK_F32, 1, HARK_MAX_RANK}};
  HARK_TRY(hark_check_inputs(context, &hark_op_scatter_gated, rules, attributes, inputs, input_count));
  const hark_tensor *h = &inputs[INPUT_H], *update = &inputs[INPUT_UPDATE], *index = &inputs[INPUT_INDEX];
  char text[HARK_SHAPE_TEXT_BYTES], text_h[HARK_SHAPE_TEXT_BYTES];
  bool fits = update->rank == h->rank;
  for (int i = 1; fits && i < h->rank; i++) fits = update->shape[i] == h->shape[i];
  if (!fits) {
    return hark_fail(context, HARK_SHAPE_MISMATCH, "scatter_gated: update has %s and h has %s, expected one shape but for the first extent",
                     hark_shape_text(update, text, sizeof text), hark_shape_text(h, text_h, sizeof text_h));
  }
  HARK_TRY(hark_check_vector(context, &hark_op_scatter_gated, "index", index, update->shape[0], "the rows of update"));
  if (hark_has_input(inputs, input_count, INPUT_SCORE)) {
    HARK_TRY(hark_check_numbers(context, &hark_op_scatter_gated, "score", &inputs[INPUT_SCORE], h->shape[0], "the rows of h"));
  }
  HARK_TRY(hark_check_number(context, &hark_op_scatter_gated, "rows of h", h->shape[0], 0, INT32_MAX));
  HARK_TRY(hark_tensor_describe(context, h->type, h->rank, h->shape, &out->outputs[0]));
  HARK_TRY(hark_places_bytes(context, h->shape[0], index->shape[0], &out->forward_workspace));
  out->backward_workspace = out->forward_workspace;
  return HARK_OK;
}

/* Copies row k of `from` to the same place in `to`. */
static void copy_row(const hark_tensor *from, int64_t k, int64_t width, void *to) {
  const size_t bytes = (size_t)width * hark_type_bytes(from->type), first = (size_t)k * bytes;
  memcpy((char *)to + first, (const char *)from->data + first, bytes);
}

static double gate_of(const hark_call *call, int64_t k) {
  const hark_tensor *score = &call->inputs[INPUT_SCORE];
  return hark_present(score) ? 1 / (1 + exp(-hark_get(hark_numbers_of(score), k))) : 1;
}

static void forward_rows(const hark_call *call, int64_t first, int64_t last) {
  const hark_numbers h = hark_numbers_of(&call->inputs[INPUT_H]), update = hark_numbers_of(&call->inputs[INPUT_UPDATE]);
  const hark_numbers y = hark_numbers_of(&call->outputs[0]);
  const int64_t width = width_of(&call->inputs[INPUT_H]);
  const hark_places places = hark_places_at(call->workspace, call->inputs[INPUT_H].shape[0]);
  for (int64_t k = first; k < last; k++) {
    if (places.begin[k] == places.begin[k + 1]) {
      if (y.data != h.data) copy_row(&call->inputs[INPUT_H], k, width, y.data);
      continue;
    }
    const double gate = gate_of(call, k);
    for (int64_t d = 0; d < width; d += HARK_BLOCK) {
      const int64_t count = hark_min(HARK_BLOCK, width - d);
      hark_block updates = {{0}}, row = {{0}};
      for (int64_t i = places.begin[k]; i < places.begin[k + 1]; i++)
        hark_block_add(&updates, count, 1, update, places.place[i] * width + d);
      hark_block_add(&row, count, 1, h, k * width + d);
      for (int64_t j = 0; j < count; j++) row.sum[j] += gate * updates.sum[j];
      hark_block_give(&row, count, y, k * width + d);
    }
  }
}

static hark_status forward(hark_context *context, const hark_call *call) {
  const hark_tensor *h = &call->inputs[INPUT_H], *index = &call->inputs[INPUT_INDEX];
  HARK_TRY(hark_check_index(context, &hark_op_scatter_gated, index, h->shape[0]));
  (void)hark_places_make(index->data, index->shape[0], h->shape[0], call->workspace);
  hark_copy_range_for(context, call, h->shape[0], hark_row_grain(width_of(h)), forward_rows);
  return HARK_OK;
}

/* Copies a block of at most `left` numbers, times a factor; writes zeros if the factor is 0. */
static void give_row(hark_numbers to, int64_t at, double factor, hark_numbers from, int64_t from_at, int64_t left) {
  const int64_t count = hark_min(HARK_BLOCK, left);
  hark_block block = {{0}};
  if (factor != 0) hark_block_add(&block, count, factor, from, from_at);
  hark_block_give(&block, count, to, at);
}

/* y[k] = h[k] + g sum of its updates: dh = dy, dscore = g (1 - g) sum of dy . update */
static void backward_rows(const hark_call *call, int64_t first, int64_t last) {
  const hark_tensor *output = &call->output_gradients[0];
  const hark_numbers update = hark_numbers_of(&call->inputs[INPUT_UPDATE]), dy = hark_numbers_of(output);
  const hark_numbers dh = hark_gradient_of(call, INPUT_H), dscore = hark_gradient_of(call, INPUT_SCORE);
  const int64_t width = width_of(output);
  const hark_places places = hark_places_at(call->workspace, output->shape[0]);
  for (int64_t k = first; k < last; k++) {
    for (int64_t d = 0; dh.data != NULL && d < width; d += HARK_BLOCK) give_row(dh, k * width + d, 1, dy, k * width + d, width - d);
    if (dscore.data == NULL) continue;
    const double gate = gate_of(call, k);
    double sum = 0;
    for (int64_t i = places.begin[k]; i < places.begin[k + 1]; i++) {
      for (int64_t d = 0; d < width; d++) sum += hark_get(dy, k * width + d) * hark_get(update, places.place[i] * width + d);
    }
    hark_give(dscore, k, gate * (1 - gate) * sum);
  }
}

/* dupdate[i] = g dy[index[i]] */
static void backward_updates(const hark_call *call, int64_t first, int64_t last) {
  const int32_t *index = call->inputs[INPUT_INDEX].data;
  const hark_numbers dy = hark_numbers_of(&call->output_gradients[0]), dupdate = hark_gradient_of(call, INPUT_UPDATE);
  const int64_t width = width_of(&call->output_gradients[0]);
  for (int64_t i = first; i < last; i++) {
    const int64_t k = index[i];
    const double gate = k < 0 ? 0 : gate_of(call, k);
    for (int64_t d = 0; d < width; d += HARK_BLOCK) give_row(dupdate, i * width + d, gate, dy, (k < 0 ? 0 : k) * width + d, width - d);
  }
}

static hark_status backward(hark_context *context, const hark_call *call) {
  if (hark_gradient_is_absent(call)) return HARK_OK;
  const hark_tensor *output = &call->output_gradients[0], *index = &call->inputs[INPUT_INDEX];
  const int64_t rows = output->shape[0], grain = hark_row_grain(width_of(output));
  HARK_TRY(hark_check_index(context, &hark_op_scatter_gated, index, rows));
  (void)hark_places_make(index->data, index->shape[0], rows, call->workspace);
  if (hark_present(&call->input_gradients[INPUT_H]) || hark_present(&call->input_gradients[INPUT_SCORE])) {
    hark_range_for(context, call, rows, grain, backward_rows);
  }
  if (hark_present(&call->input_gradients[INPUT_UPDATE])) hark_copy_range_for(context, call, index->shape[0], grain, backward_updates);
  return HARK_OK;
}

static double operations(const void *attributes, const hark_tensor *inputs, int input_count, bool is_backward) {
  (void)attributes, (void)input_count;
  return (is_backward ? 3 : 2) * (double)hark_tensor_count(&inputs[INPUT_UPDATE]);
}

static int64_t terms(const void *attributes, const hark_tensor *inputs, int input_count) {
  (void)attributes, (void)input_count;
  return hark_max(1, hark_tensor_count(&inputs[INPUT_UPDATE]));
}

static const hark_sample samples[] = {
    {"one", NULL, {{HARK_F32, 2, {1, 1}, -1, 1}, {HARK_F32, 2, {1, 1}, -1, 1}, {HARK_I32, 1, {1}, 0, 0}, {HARK_F32, 1, {1}, -1, 1}}},
    {"nowhere", NULL, {{HARK_F32, 2, {3, 5}, -1, 1}, {HARK_F32, 2, {2, 5}, -1, 1}, {HARK_I32, 1, {2}, -1, -1}}},
    {"plain", NULL, {{HARK_F32, 2, {9, 17}, -1, 1}, {HARK_F32, 2, {12, 17}, -1, 1}, {HARK_I32, 1, {12}, -1, 8}}},
    {"gated",
     NULL,
     {{HARK_F32, 3, {19, 4, 65}, -1, 1}, {HARK_F32, 3, {13, 4, 65}, -1, 1}, {HARK_I32, 1, {13}, -1, 18}, {HARK_F32, 1, {19}, -3, 3}}},
};

const hark_operator hark_op_scatter_gated = {
    .name = "scatter_gated",
    .formula = "y = h; y[index[i]] += sigmoid(score[index[i]]) update[i]",
    .input_minimum = 3,
    .input_maximum = INPUT_COUNT,
    .output_count = 1,
    .differentiable = 1u << INPUT_H | 1u << INPUT_UPDATE | 1u << INPUT_SCORE,
    .backward_inputs = 1u << INPUT_UPDATE | 1u << INPUT_INDEX | 1u << INPUT_SCORE,
    .in_place = 1u << INPUT_H,
    .gradient_passes = 1u << INPUT_H,
    .infer = infer,
    .forward = forward,
    .backward = backward,
    .operations = operations,
    .terms = terms,
    .samples = samples,
    .sample_count = sizeof samples / sizeof samples[0],
};
