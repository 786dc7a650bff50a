/* chunk_depth.c - how many of L layers run on each chunk, from its score and those of its sequence.
 *
 *     CAPACITY  L_k = 1 + number of l = 2 .. L with rank_k < ceil(c_l K),   rank 0 the largest score, c_l falling from 1 to 0
 *     PAPER     L_k = floor(score_k / max score * L), at least 1 and at most L; 1 where the maximum is not positive
 *
 * score [K]; sequences i64 [B + 1]; depth i32 [K], 0 for chunks of no sequence. Of equal scores, the lowest index ranks first; a NaN is
 * lowest. c K is reduced by a factor of 1 - 10^-9 before it is rounded up, so that 0.07 * 100 makes 7 chunks. One sort per sequence; no
 * arithmetic on numbers.
 */
#include <hark/experimental.h>

#include "io/number.h"
#include "ops/segments.h"

#define ROUNDING 1e-9

enum { INPUT_SCORE, INPUT_SEQUENCES, INPUT_COUNT };

static int64_t chunks_of_capacity(double capacity, int64_t chunks) {
  return hark_min(chunks, (int64_t)ceil(capacity * (double)chunks * (1 - ROUNDING)));
}

int64_t hark_depth_capacity(double capacity, int64_t chunks, int64_t sequences) {
  if (!(capacity > 0) || chunks < 1) return 0;
  return hark_min(chunks, chunks_of_capacity(capacity, chunks) + hark_min(sequences, chunks));
}

static hark_status infer(hark_context *context, const void *attributes, const hark_tensor *inputs, int input_count, hark_inferred *out) {
  static const hark_input_rule rules[INPUT_COUNT] = {{"score", HARK_F32, 1, HARK_MAX_RANK}, {"sequences", HARK_I64, 1, 1}};
  const hark_operator *op = &hark_op_chunk_depth;
  HARK_TRY(hark_check_inputs(context, op, rules, attributes, inputs, input_count));
  HARK_TRY(hark_check_offsets_shape(context, op, "sequences", &inputs[INPUT_SEQUENCES]));
  const hark_chunk_depth_attributes *options = attributes;
  if (options->rule != HARK_DEPTH_CAPACITY && options->rule != HARK_DEPTH_PAPER) {
    return hark_fail(context, HARK_INVALID_ARGUMENT, "chunk_depth: rule is %d, expected one of hark_depth_rule", (int)options->rule);
  }
  HARK_TRY(hark_check_number(context, op, "layers", options->layers, 1, HARK_MAX_DEPTH));
  for (int64_t l = 1; options->rule == HARK_DEPTH_CAPACITY && l < options->layers; l++) {
    const double most = l == 1 ? 1 : options->capacity[l - 1];
    if (!(options->capacity[l] >= 0 && options->capacity[l] <= most)) {
      return hark_fail(context, HARK_INVALID_ARGUMENT,
                       "chunk_depth: the capacity of layer %d is %s, expected 0 to %s, that of the layer before", (int)l + 1,
                       HARK_PRINTED(options->capacity[l]), HARK_PRINTED(most));
    }
  }
  const int64_t chunks = hark_tensor_count(&inputs[INPUT_SCORE]);
  HARK_TRY(hark_size_multiply(context, (size_t)chunks, sizeof(double) + 2 * sizeof(int64_t), &out->forward_workspace));
  return hark_tensor_describe(context, HARK_I32, 1, &chunks, &out->outputs[0]);
}

static void by_capacity(const hark_chunk_depth_attributes *options, int64_t chunks, const int64_t *order, int32_t *depth) {
  for (int64_t k = 0; k < chunks; k++) depth[k] = 1;
  for (int64_t l = 1; l < options->layers; l++) {
    const int64_t deep = chunks_of_capacity(options->capacity[l], chunks);
    for (int64_t rank = 0; rank < deep; rank++) depth[order[rank]]++;
  }
}

static void by_share(const hark_chunk_depth_attributes *options, int64_t chunks, const double *score, int32_t *depth) {
  double largest = 0;
  for (int64_t k = 0; k < chunks; k++) largest = score[k] > largest ? score[k] : largest;
  for (int64_t k = 0; k < chunks; k++) {
    depth[k] = 1;
    if (!(largest > 0) || !(score[k] > 0)) continue;
    const double share = score[k] == largest ? 1 : score[k] / largest; /* infinity over itself is 1 here */
    depth[k] = (int32_t)fmin(fmax(floor(share * (double)options->layers), 1), (double)options->layers);
  }
}

static void forward_sequences(const hark_call *call, int64_t first, int64_t last) {
  const hark_chunk_depth_attributes *options = call->attributes;
  const hark_segments sequences = hark_segments_of(&call->inputs[INPUT_SEQUENCES], 1);
  const hark_numbers from = hark_numbers_of(&call->inputs[INPUT_SCORE]);
  const int64_t count = hark_tensor_count(&call->inputs[INPUT_SCORE]);
  double *score = call->workspace;
  int64_t *order = (int64_t *)(score + count), *scratch = order + count;
  int32_t *depth = call->outputs[0].data;
  for (int64_t b = first; b < last; b++) {
    const int64_t at = sequences.offsets[b], chunks = hark_segment_rows(&sequences, b);
    for (int64_t k = at; k < at + chunks; k++) score[k] = hark_get(from, k);
    if (options->rule == HARK_DEPTH_CAPACITY) {
      hark_order_by_score(score + at, chunks, order + at, scratch + at);
      by_capacity(options, chunks, order + at, depth + at);
    } else {
      by_share(options, chunks, score + at, depth + at);
    }
  }
}

static hark_status forward(hark_context *context, const hark_call *call) {
  const int64_t count = hark_tensor_count(&call->inputs[INPUT_SCORE]);
  HARK_TRY(hark_check_offsets(context, &hark_op_chunk_depth, "sequences", &call->inputs[INPUT_SEQUENCES], 1, count));
  const hark_segments sequences = hark_segments_of(&call->inputs[INPUT_SEQUENCES], 1);
  int32_t *depth = call->outputs[0].data;
  for (int64_t k = 0; k < count; k++) depth[k] = 0;
  hark_range_for(context, call, sequences.count, 1, forward_sequences);
  return HARK_OK;
}

static double operations(const void *attributes, const hark_tensor *inputs, int input_count, bool is_backward) {
  (void)attributes, (void)inputs, (void)input_count, (void)is_backward;
  return 0;
}

static int64_t terms(const void *attributes, const hark_tensor *inputs, int input_count) {
  (void)attributes, (void)inputs, (void)input_count;
  return 1;
}

static const hark_chunk_depth_attributes falling = {HARK_DEPTH_CAPACITY, 4, {1, 0.5, 0.25, 0.1}}, one_layer = {HARK_DEPTH_CAPACITY, 1, {1}},
                                         paper = {HARK_DEPTH_PAPER, 5, {0}};

static const hark_sample samples[] = {
    {"one", &one_layer, {{HARK_F32, 1, {1}, -1, 1}, {HARK_I64, 1, {2}, 1, 0}}},
    {"capacity", &falling, {{HARK_F32, 1, {61}, -1, 1}, {HARK_I64, 1, {5}, 60, 1}}},
    {"paper", &paper, {{HARK_F32, 1, {61}, -1, 1}, {HARK_I64, 1, {5}, 61, 0}}},
};

const hark_operator hark_op_chunk_depth = {
    .name = "chunk_depth",
    .formula = "depth[k] = 1 + number of layers l with rank[k] < ceil(c_l K), or floor(score / max score L)",
    .attributes_size = sizeof(hark_chunk_depth_attributes),
    .input_minimum = INPUT_COUNT,
    .input_maximum = INPUT_COUNT,
    .output_count = 1,
    .infer = infer,
    .forward = forward,
    .operations = operations,
    .terms = terms,
    .samples = samples,
    .sample_count = sizeof samples / sizeof samples[0],
};
