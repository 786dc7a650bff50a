/* embedding.c - y[n, :] = table[id[n], :].
 *
 * ids i32, N of them; table [V, D]; y [N, D]. Gradient: dtable[v, :] = sum over n with id[n] = v of dy[n, :], added in increasing n, so
 * that its bits do not depend on the threads: the rows are first sorted by id, stably, in the workspace.
 * N D additions backward, none forward.
 */
#include <inttypes.h>
#include <string.h>

#include "ops/segments.h"

enum { INPUT_IDS, INPUT_TABLE, INPUT_COUNT };

static hark_status infer(hark_context *context, const void *attributes, const hark_tensor *inputs, int input_count, hark_inferred *out) {
  static const hark_input_rule rules[INPUT_COUNT] = {{"ids", HARK_I32, 0, HARK_MAX_RANK - 1}, {"table", HARK_F32, 2, 2}};
  HARK_TRY(hark_check_inputs(context, &hark_op_embedding, rules, attributes, inputs, input_count));
  const hark_tensor *ids = &inputs[INPUT_IDS], *table = &inputs[INPUT_TABLE];
  int64_t shape[HARK_MAX_RANK];
  for (int i = 0; i < ids->rank; i++) shape[i] = ids->shape[i];
  shape[ids->rank] = table->shape[1];
  HARK_TRY(hark_tensor_describe(context, table->type, ids->rank + 1, shape, &out->outputs[0]));
  return hark_places_bytes(context, table->shape[0], hark_tensor_count(ids), &out->backward_workspace);
}

static void forward_rows(const hark_call *call, int64_t first, int64_t last) {
  const int32_t *id = call->inputs[INPUT_IDS].data;
  const hark_tensor *table = &call->inputs[INPUT_TABLE];
  const int64_t width = table->shape[1];
  const size_t bytes = (size_t)width * hark_type_bytes(table->type);
  const char *from = table->data;
  char *y = call->outputs[0].data;
  for (int64_t n = first; n < last; n++) memcpy(y + (size_t)n * bytes, from + (size_t)id[n] * bytes, bytes);
}

static hark_status forward(hark_context *context, const hark_call *call) {
  const hark_tensor *table = &call->inputs[INPUT_TABLE], *ids = &call->inputs[INPUT_IDS];
  HARK_TRY(hark_check_ids(context, call->op, ids, table->shape[0]));
  if (table->shape[1] > 0) hark_range_for(context, call, hark_tensor_count(ids), hark_row_grain(table->shape[1]), forward_rows);
  return HARK_OK;
}

/* y[n] = table[id[n]]: dtable[v] = sum of dy[row] over rows.place[begin[v]] .. place[begin[v + 1] - 1], for v in [first, last) */
static void backward_rows(const hark_call *call, int64_t first, int64_t last) {
  const hark_tensor *gradient = &call->input_gradients[INPUT_TABLE];
  const hark_numbers dy = hark_numbers_of(&call->output_gradients[0]), dtable = hark_gradient_of(call, INPUT_TABLE);
  const int64_t vocabulary = gradient->shape[0], width = gradient->shape[1];
  const hark_places rows = hark_places_at(call->workspace, vocabulary);
  for (int64_t v = first; v < last; v++) {
    for (int64_t d = 0; d < width; d++) {
      double sum = 0;
      for (int64_t i = rows.begin[v]; i < rows.begin[v + 1]; i++) sum += hark_get(dy, rows.place[i] * width + d);
      hark_give(dtable, v * width + d, sum);
    }
  }
}

static hark_status backward(hark_context *context, const hark_call *call) {
  if (hark_gradient_is_absent(call) || !hark_present(&call->input_gradients[INPUT_TABLE])) return HARK_OK;
  const hark_tensor *gradient = &call->input_gradients[INPUT_TABLE], *ids = &call->inputs[INPUT_IDS];
  const int64_t vocabulary = gradient->shape[0], width = gradient->shape[1], count = hark_tensor_count(ids);
  HARK_TRY(hark_check_ids(context, call->op, ids, vocabulary));
  (void)hark_places_make(ids->data, count, vocabulary, call->workspace);
  hark_range_for(context, call, vocabulary, hark_row_grain(width), backward_rows);
  return HARK_OK;
}

static double operations(const void *attributes, const hark_tensor *inputs, int input_count, bool is_backward) {
  (void)attributes, (void)input_count;
  return is_backward ? (double)hark_tensor_count(&inputs[INPUT_IDS]) * (double)inputs[INPUT_TABLE].shape[1] : 0;
}

static int64_t terms(const void *attributes, const hark_tensor *inputs, int input_count) {
  (void)attributes, (void)input_count;
  return hark_max(1, hark_tensor_count(&inputs[INPUT_IDS]));
}

static const hark_sample samples[] = {
    {"one", NULL, {{HARK_I32, 1, {1}, 0, 0}, {HARK_F32, 2, {1, 1}, -1, 1}}},
    {"single_id", NULL, {{HARK_I32, 0, {0}, 0, 6}, {HARK_F32, 2, {7, 5}, -1, 1}}},
    {"batch", NULL, {{HARK_I32, 2, {3, 11}, 0, 12}, {HARK_F32, 2, {13, 33}, -1, 1}}},
    {"repeated", NULL, {{HARK_I32, 1, {257}, 0, 2}, {HARK_F32, 2, {3, 17}, -1, 1}}},
    {"sparse", NULL, {{HARK_I32, 2, {2, 7}, 0, 256}, {HARK_F32, 2, {257, 64}, -1, 1}}},
    {"one_feature", NULL, {{HARK_I32, 1, {31}, 0, 9}, {HARK_F32, 2, {10, 1}, -1, 1}}},
};

const hark_operator hark_op_embedding = {
    .name = "embedding",
    .formula = "y[n] = table[id[n]]",
    .input_minimum = INPUT_COUNT,
    .input_maximum = INPUT_COUNT,
    .output_count = 1,
    .differentiable = 1u << INPUT_TABLE,
    .backward_inputs = 1u << INPUT_IDS,
    .infer = infer,
    .forward = forward,
    .backward = backward,
    .operations = operations,
    .terms = terms,
    .samples = samples,
    .sample_count = sizeof samples / sizeof samples[0],
};
