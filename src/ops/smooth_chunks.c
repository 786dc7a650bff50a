/* smooth_chunks.c - y[k] = p_k c[k] + (1 - p_k) y[k - 1], k over the chunks of a sequence, p_k the probability of the chunk's first row.
 *
 * c [K, W..]; p [rows]; chunks i64 [K + 1], sequences i64 [B + 1] (offsets into the chunks); y [K, W..], zeros for chunks of no sequence.
 * Before the beginning of a sequence y is zero; a chunk without rows has p = 0. H-Net (arXiv 2507.07955, eq. 5). With e_k = dy[k] + (1 -
 * p_{k+1}) e_{k+1}, from the last chunk to the first:
 *   dc[k] = p_k e_k,   dp_k = e_k . (c[k] - y[k - 1])
 * One e per feature is kept, and the products are computed per chunk with the forward's y. 3 W operations per chunk forward, 5 W backward.
 */
#include <hark/experimental.h>

#include "ops/segments.h"

enum { INPUT_C, INPUT_P, INPUT_CHUNKS, INPUT_SEQUENCES, INPUT_COUNT };

static int64_t width_of(const hark_tensor *c) {
  int64_t width = 1;
  for (int i = 1; i < c->rank; i++) width *= c->shape[i];
  return width;
}

static hark_status infer(hark_context *context, const void *attributes, const hark_tensor *inputs, int input_count, hark_inferred *out) {
  static const hark_input_rule rules[INPUT_COUNT] = {
      {"c", HARK_F32, 2, HARK_MAX_RANK}, {"p", HARK_F32, 1, 1}, {"chunks", HARK_I64, 1, 1}, {"sequences", HARK_I64, 1, 1}};
  const hark_operator *op = &hark_op_smooth_chunks;
  HARK_TRY(hark_check_inputs(context, op, rules, attributes, inputs, input_count));
  const hark_tensor *c = &inputs[INPUT_C];
  HARK_TRY(hark_check_vector(context, op, "chunks", &inputs[INPUT_CHUNKS], c->shape[0] + 1, "one more than chunks in c"));
  HARK_TRY(hark_check_offsets_shape(context, op, "sequences", &inputs[INPUT_SEQUENCES]));
  size_t numbers = 0; /* e of one chunk, for every sequence */
  HARK_TRY(hark_size_multiply(context, (size_t)inputs[INPUT_SEQUENCES].shape[0], sizeof(double), &numbers));
  HARK_TRY(hark_size_multiply(context, numbers, (size_t)width_of(c), &out->backward_workspace));
  return hark_tensor_describe(context, c->type, c->rank, c->shape, &out->outputs[0]);
}

static hark_status check(hark_context *context, const hark_call *call, int64_t count) {
  HARK_TRY(hark_check_offsets(context, call->op, "chunks", &call->inputs[INPUT_CHUNKS], 1, call->inputs[INPUT_P].shape[0]));
  return hark_check_offsets(context, call->op, "sequences", &call->inputs[INPUT_SEQUENCES], 1, count);
}

/* p of a chunk's first row; a chunk without rows repeats the previous y. */
static double share_of(const hark_segments *chunks, hark_numbers p, int64_t k) {
  return hark_segment_rows(chunks, k) > 0 ? hark_get(p, chunks->offsets[k]) : 0;
}

static void forward_sequences(const hark_call *call, int64_t first, int64_t last) {
  const hark_segments sequences = hark_segments_of(&call->inputs[INPUT_SEQUENCES], 1),
                      chunks = hark_segments_of(&call->inputs[INPUT_CHUNKS], 1);
  const hark_numbers c = hark_numbers_of(&call->inputs[INPUT_C]), p = hark_numbers_of(&call->inputs[INPUT_P]);
  const hark_numbers y = hark_numbers_of(&call->outputs[0]);
  const int64_t width = width_of(&call->inputs[INPUT_C]);
  for (int64_t b = first; b < last; b++) {
    for (int64_t k = sequences.offsets[b]; k < sequences.offsets[b + 1]; k++) {
      const double share = share_of(&chunks, p, k);
      const bool begins = k == sequences.offsets[b];
      for (int64_t d = 0; d < width; d++) {
        const double before = begins ? 0 : hark_get(y, (k - 1) * width + d);
        hark_put(y, k * width + d, share * hark_get(c, k * width + d) + (1 - share) * before);
      }
    }
  }
}

static hark_status forward(hark_context *context, const hark_call *call) {
  const hark_tensor *c = &call->inputs[INPUT_C];
  HARK_TRY(check(context, call, c->shape[0]));
  const hark_segments sequences = hark_segments_of(&call->inputs[INPUT_SEQUENCES], 1);
  hark_clear_gaps(&sequences, hark_numbers_of(&call->outputs[0]), c->shape[0], width_of(c));
  hark_range_for(context, call, sequences.count, 1, forward_sequences);
  return HARK_OK;
}

/* y[k] = p c[k] + (1 - p) y[k - 1]: e_k = dy[k] + (1 - p_{k+1}) e_{k+1}, dc = p e, dp = e . (c - y[k - 1]) */
static void backward_sequences(const hark_call *call, int64_t first, int64_t last) {
  const hark_segments sequences = hark_segments_of(&call->inputs[INPUT_SEQUENCES], 1),
                      chunks = hark_segments_of(&call->inputs[INPUT_CHUNKS], 1);
  const hark_numbers c = hark_numbers_of(&call->inputs[INPUT_C]), p = hark_numbers_of(&call->inputs[INPUT_P]);
  const hark_numbers y = hark_numbers_of(&call->outputs[0]), dy = hark_numbers_of(&call->output_gradients[0]);
  const hark_numbers dc = hark_gradient_of(call, INPUT_C), dp = hark_gradient_of(call, INPUT_P);
  const int64_t width = width_of(&call->inputs[INPUT_C]);
  for (int64_t b = first; b < last; b++) {
    double *e = (double *)call->workspace + b * width;
    for (int64_t d = 0; d < width; d++) e[d] = 0;
    for (int64_t k = sequences.offsets[b + 1] - 1; k >= sequences.offsets[b]; k--) {
      const double share = share_of(&chunks, p, k);
      const bool begins = k == sequences.offsets[b];
      double product = 0;
      for (int64_t d = 0; d < width; d++) {
        const int64_t at = k * width + d;
        e[d] += hark_get(dy, at);
        product += e[d] * (hark_get(c, at) - (begins ? 0 : hark_get(y, at - width)));
        if (dc.data != NULL) hark_give(dc, at, share * e[d]);
        e[d] *= 1 - share;
      }
      if (dp.data != NULL && hark_segment_rows(&chunks, k) > 0) hark_put(dp, chunks.offsets[k], hark_get(dp, chunks.offsets[k]) + product);
    }
  }
}

static hark_status backward(hark_context *context, const hark_call *call) {
  if (hark_gradient_is_absent(call)) return HARK_OK;
  const hark_tensor *c = &call->inputs[INPUT_C];
  HARK_TRY(check(context, call, c->shape[0]));
  const hark_segments sequences = hark_segments_of(&call->inputs[INPUT_SEQUENCES], 1);
  const hark_numbers dp = hark_gradient_of(call, INPUT_P);
  hark_clear_gaps(&sequences, hark_gradient_of(call, INPUT_C), c->shape[0], width_of(c));
  for (int64_t t = 0; dp.data != NULL && !dp.add && t < call->inputs[INPUT_P].shape[0]; t++) hark_put(dp, t, 0);
  hark_range_for(context, call, sequences.count, 1, backward_sequences);
  return HARK_OK;
}

static double operations(const void *attributes, const hark_tensor *inputs, int input_count, bool is_backward) {
  (void)attributes, (void)input_count;
  return (is_backward ? 5 : 3) * (double)hark_tensor_count(&inputs[INPUT_C]);
}

static int64_t terms(const void *attributes, const hark_tensor *inputs, int input_count) {
  (void)attributes, (void)input_count;
  const hark_tensor *c = &inputs[INPUT_C];
  return hark_max(1, c->shape[0]) + hark_max(1, width_of(c));
}

static const hark_sample samples[] = {
    {"one", NULL, {{HARK_F32, 2, {1, 1}, -1, 1}, {HARK_F32, 1, {1}, 0, 1}, {HARK_I64, 1, {2}, 1, 0}, {HARK_I64, 1, {2}, 1, 0}}},
    {"none", NULL, {{HARK_F32, 2, {2, 3}, -1, 1}, {HARK_F32, 1, {4}, 0, 1}, {HARK_I64, 1, {3}, 4, 0}, {HARK_I64, 1, {3}, 0, 0}}},
    {"rows", NULL, {{HARK_F32, 2, {17, 5}, -1, 1}, {HARK_F32, 1, {90}, 0, 1}, {HARK_I64, 1, {18}, 88, 1}, {HARK_I64, 1, {4}, 16, 0}}},
    {"blocks",
     NULL,
     {{HARK_F32, 3, {31, 3, 17}, -1, 1}, {HARK_F32, 1, {300}, 0, 1}, {HARK_I64, 1, {32}, 300, 0}, {HARK_I64, 1, {6}, 30, 1}}},
};

const hark_operator hark_op_smooth_chunks = {
    .name = "smooth_chunks",
    .formula = "y[k] = p_k c[k] + (1 - p_k) y[k - 1]",
    .input_minimum = INPUT_COUNT,
    .input_maximum = INPUT_COUNT,
    .output_count = 1,
    .differentiable = 1u << INPUT_C | 1u << INPUT_P,
    .backward_inputs = 1u << INPUT_C | 1u << INPUT_P | 1u << INPUT_CHUNKS | 1u << INPUT_SEQUENCES,
    .backward_outputs = 1u,
    .infer = infer,
    .forward = forward,
    .backward = backward,
    .operations = operations,
    .terms = terms,
    .samples = samples,
    .sample_count = sizeof samples / sizeof samples[0],
};
