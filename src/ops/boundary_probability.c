/* boundary_probability.c - p[t] = (1 - cos(query[t], key[t - 1])) / 2: how different neighbouring rows are; 1 where a sequence begins.
 *
 * query, key [..., D]; offsets i64 [B + 1]; p [rows], 0 for rows of no sequence. H-Net (arXiv 2507.07955, eq. 4). The cosine with a row of
 * zeros is 0 and its gradient zero. With u = q / |q|, v = k / |k|, c = u . v:
 *   dq = -dp/2 (v - c u) / |q|,   dk = -dp/2 (u - c v) / |k|
 * 6 D operations per row forward, 12 D backward.
 */
#include <hark/experimental.h>

#include "ops/boundary_pair.h"
#include "ops/segments.h"

enum { INPUT_QUERY, INPUT_KEY, INPUT_OFFSETS, INPUT_COUNT };

static hark_status infer(hark_context *context, const void *attributes, const hark_tensor *inputs, int input_count, hark_inferred *out) {
  static const hark_input_rule rules[INPUT_COUNT] = {
      {"query", HARK_F32, 2, HARK_MAX_RANK}, {"key", HARK_F32, 2, HARK_MAX_RANK}, {"offsets", HARK_I64, 1, 1}};
  const hark_operator *op = &hark_op_boundary_probability;
  HARK_TRY(hark_check_inputs(context, op, rules, attributes, inputs, input_count));
  HARK_TRY(hark_check_same_shape(context, op, "query", &inputs[INPUT_QUERY], "key", &inputs[INPUT_KEY]));
  HARK_TRY(hark_check_offsets_shape(context, op, "offsets", &inputs[INPUT_OFFSETS]));
  const int64_t rows = hark_row_count(&inputs[INPUT_QUERY]);
  return hark_tensor_describe(context, inputs[INPUT_QUERY].type, 1, &rows, &out->outputs[0]);
}

/* The neighbours query[t] and key[t - 1]. */
static hark_boundary_pair pair_at(hark_numbers query, hark_numbers key, int64_t t, int64_t width) {
  return hark_boundary_pair_at(query.wide, query.data, t * width, key.data, (t - 1) * width, width);
}

static void forward_sequences(const hark_call *call, int64_t first, int64_t last) {
  const hark_segments sequences = hark_segments_of(&call->inputs[INPUT_OFFSETS], 1);
  const hark_numbers query = hark_numbers_of(&call->inputs[INPUT_QUERY]), key = hark_numbers_of(&call->inputs[INPUT_KEY]);
  const hark_numbers p = hark_numbers_of(&call->outputs[0]);
  const int64_t width = hark_row_length(&call->inputs[INPUT_QUERY]);
  for (int64_t b = first; b < last; b++) {
    for (int64_t t = sequences.offsets[b]; t < sequences.offsets[b + 1]; t++) {
      const bool begins = t == sequences.offsets[b];
      hark_put(p, t, begins ? 1 : hark_boundary_probability(pair_at(query, key, t, width)));
    }
  }
}

static int64_t grain_of(const hark_call *call, const hark_tensor *rows) {
  const int64_t sequences = hark_max(1, call->inputs[INPUT_OFFSETS].shape[0] - 1);
  return hark_row_grain(hark_tensor_count(rows) / sequences);
}

static hark_status forward(hark_context *context, const hark_call *call) {
  const hark_tensor *query = &call->inputs[INPUT_QUERY], *offsets = &call->inputs[INPUT_OFFSETS];
  HARK_TRY(hark_check_offsets(context, &hark_op_boundary_probability, "offsets", offsets, 1, hark_row_count(query)));
  const hark_segments sequences = hark_segments_of(offsets, 1);
  hark_clear_gaps(&sequences, hark_numbers_of(&call->outputs[0]), hark_row_count(query), 1);
  hark_range_for(context, call, sequences.count, grain_of(call, query), forward_sequences);
  return HARK_OK;
}

/* p = (1 - u . v) / 2: dq = -dp/2 (v - c u) / |q| and dk likewise. A row t is a query against t - 1 and a key for t + 1. */
static void backward_sequences(const hark_call *call, int64_t first, int64_t last) {
  const hark_segments sequences = hark_segments_of(&call->inputs[INPUT_OFFSETS], 1);
  const hark_numbers query = hark_numbers_of(&call->inputs[INPUT_QUERY]), key = hark_numbers_of(&call->inputs[INPUT_KEY]);
  const hark_numbers dp = hark_numbers_of(&call->output_gradients[0]);
  const hark_numbers dq = hark_gradient_of(call, INPUT_QUERY), dk = hark_gradient_of(call, INPUT_KEY);
  const int64_t width = hark_row_length(&call->inputs[INPUT_QUERY]);
  for (int64_t b = first; b < last; b++) {
    const int64_t begin = sequences.offsets[b], end = sequences.offsets[b + 1];
    for (int64_t t = begin; t < end; t++) {
      const hark_boundary_pair before = t > begin ? pair_at(query, key, t, width) : (hark_boundary_pair){0};
      const hark_boundary_pair after = t + 1 < end ? pair_at(query, key, t + 1, width) : (hark_boundary_pair){0};
      const bool has_before = before.query_norm != 0 && before.key_norm != 0, has_after = after.query_norm != 0 && after.key_norm != 0;
      for (int64_t d = 0; d < width; d++) {
        if (dq.data != NULL) {
          double gradient = 0;
          if (has_before) {
            const double u = hark_get(query, t * width + d) / before.query_norm;
            const double v = hark_get(key, (t - 1) * width + d) / before.key_norm;
            gradient = -hark_get(dp, t) / 2 * (v - before.cosine * u) / before.query_norm;
          }
          hark_give(dq, t * width + d, gradient);
        }
        if (dk.data == NULL) continue;
        double gradient = 0;
        if (has_after) {
          const double u = hark_get(query, (t + 1) * width + d) / after.query_norm;
          const double v = hark_get(key, t * width + d) / after.key_norm;
          gradient = -hark_get(dp, t + 1) / 2 * (u - after.cosine * v) / after.key_norm;
        }
        hark_give(dk, t * width + d, gradient);
      }
    }
  }
}

static hark_status backward(hark_context *context, const hark_call *call) {
  if (hark_gradient_is_absent(call)) return HARK_OK;
  const hark_tensor *query = &call->inputs[INPUT_QUERY], *offsets = &call->inputs[INPUT_OFFSETS];
  const int64_t rows = hark_row_count(query);
  HARK_TRY(hark_check_offsets(context, &hark_op_boundary_probability, "offsets", offsets, 1, rows));
  const hark_segments sequences = hark_segments_of(offsets, 1);
  hark_clear_gaps(&sequences, hark_gradient_of(call, INPUT_QUERY), rows, hark_row_length(query));
  hark_clear_gaps(&sequences, hark_gradient_of(call, INPUT_KEY), rows, hark_row_length(query));
  hark_range_for(context, call, sequences.count, grain_of(call, query), backward_sequences);
  return HARK_OK;
}

static double operations(const void *attributes, const hark_tensor *inputs, int input_count, bool is_backward) {
  (void)attributes, (void)input_count;
  return (is_backward ? 12 : 6) * (double)hark_tensor_count(&inputs[INPUT_QUERY]);
}

static int64_t terms(const void *attributes, const hark_tensor *inputs, int input_count) {
  (void)attributes, (void)input_count;
  return hark_max(1, hark_row_length(&inputs[INPUT_QUERY]));
}

static const hark_sample samples[] = {
    {"one", NULL, {{HARK_F32, 2, {1, 1}, -1, 1}, {HARK_F32, 2, {1, 1}, -1, 1}, {HARK_I64, 1, {2}, 1, 0}}},
    {"two", NULL, {{HARK_F32, 2, {2, 3}, -1, 1}, {HARK_F32, 2, {2, 3}, -1, 1}, {HARK_I64, 1, {2}, 2, 0}}},
    {"sequences", NULL, {{HARK_F32, 2, {19, 7}, -1, 1}, {HARK_F32, 2, {19, 7}, -1, 1}, {HARK_I64, 1, {5}, 17, 1}}},
    {"batch", NULL, {{HARK_F32, 3, {3, 43, 33}, -1, 1}, {HARK_F32, 3, {3, 43, 33}, -1, 1}, {HARK_I64, 1, {4}, 129, 0}}},
};

const hark_operator hark_op_boundary_probability = {
    .name = "boundary_probability",
    .formula = "p[t] = (1 - cos(query[t], key[t - 1])) / 2, 1 at the start of a sequence",
    .input_minimum = INPUT_COUNT,
    .input_maximum = INPUT_COUNT,
    .output_count = 1,
    .differentiable = 1u << INPUT_QUERY | 1u << INPUT_KEY,
    .backward_inputs = 1u << INPUT_QUERY | 1u << INPUT_KEY | 1u << INPUT_OFFSETS,
    .infer = infer,
    .forward = forward,
    .backward = backward,
    .operations = operations,
    .terms = terms,
    .samples = samples,
    .sample_count = sizeof samples / sizeof samples[0],
};
