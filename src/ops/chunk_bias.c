/* chunk_bias.c - the bias of a positional kernel of the distance in chunks, for chunks of a sequence that attend to tokens which represent
 * the whole sequence.
 *
 *     chunk k of n, token i of a sequence, row r of its C;   c = (2 r + 1) n / (2 C) - 1/2, the middle of the token's bin, in chunks
 *     bias[p] = log_kernel[min(round|k - c|, D - 1)] + term[i],  p = (k, i): the tokens of every chunk one after the other
 *
 * Halves are rounded up, in integers: |2 C k + C - (2 r + 1) n| / (2 C). place[p] = i, and offsets[k] is the first p of chunk k. So with
 * keys gathered by place, ragged attention has a bias by key for every chunk. Gradients: dlog_kernel[d] = sum over pairs at distance d of
 * dbias, dterm[i] = sum over the chunks of dbias, both in the order of the pairs. One addition per pair forward, two backward.
 */
#include <hark/experimental.h>
#include <inttypes.h>
#include <string.h>

#include "ops/segments.h"

#define LIMIT ((int64_t)1 << 28) /* of chunks and rows: products of two are far from overflow */

enum { INPUT_LOG_KERNEL, INPUT_SEQUENCES, INPUT_INDEX, INPUT_INDEX_OFFSETS, INPUT_ROW_OFFSETS, INPUT_TERM, INPUT_COUNT };
enum { OUTPUT_BIAS, OUTPUT_PLACE, OUTPUT_OFFSETS, OUTPUT_COUNT };

static hark_status infer(hark_context *context, const void *attributes, const hark_tensor *inputs, int input_count, hark_inferred *out) {
  static const hark_input_rule rules[INPUT_COUNT] = {{"log_kernel", HARK_F32, 2, 2},  {"sequences", HARK_I64, 1, 1},
                                                     {"index", HARK_I32, 1, 1},       {"index_offsets", HARK_I64, 1, 1},
                                                     {"row_offsets", HARK_I64, 1, 1}, {"term", HARK_F32, 1, HARK_MAX_RANK}};
  const hark_operator *op = &hark_op_chunk_bias;
  HARK_TRY(hark_check_inputs(context, op, rules, attributes, inputs, input_count));
  const hark_chunk_bias_attributes *options = attributes;
  const hark_tensor *table = &inputs[INPUT_LOG_KERNEL], *index = &inputs[INPUT_INDEX];
  char text[HARK_SHAPE_TEXT_BYTES];
  if (table->shape[0] != 1 || table->shape[1] < 1)
    return hark_fail(context, HARK_SHAPE_MISMATCH, "chunk_bias: log_kernel has %s, expected [1, distances]",
                     hark_shape_text(table, text, sizeof text));
  HARK_TRY(hark_check_offsets_shape(context, op, "sequences", &inputs[INPUT_SEQUENCES]));
  for (int i = INPUT_INDEX_OFFSETS; i <= INPUT_ROW_OFFSETS; i++)
    HARK_TRY(hark_check_vector(context, op, rules[i].name, &inputs[i], inputs[INPUT_SEQUENCES].shape[0], "the sequences"));
  HARK_TRY(hark_check_number(context, op, "chunks", options->chunks, 0, LIMIT));
  HARK_TRY(hark_check_number(context, op, "pairs", options->pairs, 0, INT32_MAX));
  if (hark_has_input(inputs, input_count, INPUT_TERM))
    HARK_TRY(hark_check_numbers(context, op, "term", &inputs[INPUT_TERM], index->shape[0], "the index"));
  const int64_t ends = options->chunks + 1;
  HARK_TRY(hark_tensor_describe(context, table->type, 1, &options->pairs, &out->outputs[OUTPUT_BIAS]));
  HARK_TRY(hark_tensor_describe(context, HARK_I32, 1, &options->pairs, &out->outputs[OUTPUT_PLACE]));
  HARK_TRY(hark_tensor_describe(context, HARK_I64, 1, &ends, &out->outputs[OUTPUT_OFFSETS]));
  return hark_size_multiply(context, (size_t)(table->shape[1] + index->shape[0]), sizeof(double), &out->backward_workspace);
}

/* Walks over the pairs in their order. */
typedef struct pair_walk {
  const int64_t *sequences, *places, *rows; /* offsets */
  const int32_t *index;
  int64_t batch, distances;
  int64_t b, k, i, next; /* the next pair: its sequence, its chunk and token in the sequence; its number */
} pair_walk;

static pair_walk walk_of(const hark_call *call) {
  return (pair_walk){.sequences = call->inputs[INPUT_SEQUENCES].data,
                     .places = call->inputs[INPUT_INDEX_OFFSETS].data,
                     .rows = call->inputs[INPUT_ROW_OFFSETS].data,
                     .index = call->inputs[INPUT_INDEX].data,
                     .batch = call->inputs[INPUT_SEQUENCES].shape[0] - 1,
                     .distances = call->inputs[INPUT_LOG_KERNEL].shape[1]};
}

typedef struct pair {
  int64_t number, chunk, place, distance;
} pair;

static bool next_pair(pair_walk *w, pair *out) {
  for (; w->b < w->batch; w->b++, w->k = w->i = 0) {
    const int64_t chunks = w->sequences[w->b + 1] - w->sequences[w->b], tokens = w->places[w->b + 1] - w->places[w->b];
    if (w->k >= chunks || tokens == 0) continue;
    const int64_t rows = hark_max(1, w->rows[w->b + 1] - w->rows[w->b]), place = w->places[w->b] + w->i;
    const int64_t row = w->index[place] - w->rows[w->b], apart = 2 * rows * w->k + rows - (2 * row + 1) * chunks;
    const int64_t distance = ((apart < 0 ? -apart : apart) + rows) / (2 * rows);
    *out = (pair){w->next++, w->sequences[w->b] + w->k, place, hark_min(distance, w->distances - 1)};
    if (++w->i == tokens) {
      w->i = 0;
      w->k++;
    }
    return true;
  }
  return false;
}

static hark_status check(hark_context *context, const hark_call *call) {
  const hark_operator *op = &hark_op_chunk_bias;
  const hark_chunk_bias_attributes *options = call->attributes;
  HARK_TRY(hark_check_offsets(context, op, "sequences", &call->inputs[INPUT_SEQUENCES], 1, options->chunks));
  HARK_TRY(hark_check_offsets(context, op, "index_offsets", &call->inputs[INPUT_INDEX_OFFSETS], 1, call->inputs[INPUT_INDEX].shape[0]));
  HARK_TRY(hark_check_offsets(context, op, "row_offsets", &call->inputs[INPUT_ROW_OFFSETS], 1, LIMIT));
  HARK_TRY(hark_check_index(context, op, &call->inputs[INPUT_INDEX], LIMIT));
  const pair_walk w = walk_of(call);
  int64_t pairs = 0;
  for (int64_t b = 0; b < w.batch; b++) pairs += (w.sequences[b + 1] - w.sequences[b]) * (w.places[b + 1] - w.places[b]);
  if (pairs <= options->pairs) return HARK_OK;
  return hark_fail(context, HARK_INVALID_ARGUMENT, "chunk_bias: chunks and tokens make %" PRId64 " pairs, expected at most %" PRId64, pairs,
                   options->pairs);
}

static hark_status forward(hark_context *context, const hark_call *call) {
  const hark_chunk_bias_attributes *options = call->attributes;
  HARK_TRY(check(context, call));
  const hark_numbers table = hark_numbers_of(&call->inputs[INPUT_LOG_KERNEL]), bias = hark_numbers_of(&call->outputs[OUTPUT_BIAS]);
  const bool has_term = hark_has_input(call->inputs, call->input_count, INPUT_TERM);
  const hark_numbers term = has_term ? hark_numbers_of(&call->inputs[INPUT_TERM]) : (hark_numbers){0};
  int32_t *place = call->outputs[OUTPUT_PLACE].data;
  int64_t *offsets = call->outputs[OUTPUT_OFFSETS].data, chunk = -1;
  pair_walk w = walk_of(call);
  pair p = {0};
  while (next_pair(&w, &p)) {
    for (; chunk < p.chunk; chunk++) offsets[chunk + 1] = p.number; /* also for chunks without tokens */
    place[p.number] = (int32_t)p.place;
    hark_put(bias, p.number, hark_get(table, p.distance) + (has_term ? hark_get(term, p.place) : 0));
  }
  for (; chunk < options->chunks; chunk++) offsets[chunk + 1] = w.next;
  for (int64_t n = w.next; n < options->pairs; n++) {
    place[n] = -1;
    hark_put(bias, n, 0);
  }
  return HARK_OK;
}

/* bias[p] = log_kernel[distance] + term[place]: dlog_kernel[d] = sum of dbias at distance d, dterm[i] = sum of dbias at place i */
static hark_status backward(hark_context *context, const hark_call *call) {
  if (hark_gradient_is_absent(call)) return HARK_OK;
  HARK_TRY(check(context, call));
  const hark_numbers dbias = hark_numbers_of(&call->output_gradients[OUTPUT_BIAS]);
  const hark_numbers dtable = hark_gradient_of(call, INPUT_LOG_KERNEL), dterm = hark_gradient_of(call, INPUT_TERM);
  const int64_t distances = call->inputs[INPUT_LOG_KERNEL].shape[1], places = call->inputs[INPUT_INDEX].shape[0];
  double *by_distance = call->workspace, *by_place = by_distance + distances;
  for (int64_t n = 0; n < distances + places; n++) by_distance[n] = 0;
  pair_walk w = walk_of(call);
  pair p = {0};
  while (next_pair(&w, &p)) {
    const double gradient = hark_get(dbias, p.number);
    by_distance[p.distance] += gradient;
    by_place[p.place] += gradient;
  }
  for (int64_t n = 0; n < distances && dtable.data != NULL; n++) hark_give(dtable, n, by_distance[n]);
  for (int64_t n = 0; n < places && dterm.data != NULL; n++) hark_give(dterm, n, by_place[n]);
  return HARK_OK;
}

static double operations(const void *attributes, const hark_tensor *inputs, int input_count, bool is_backward) {
  (void)inputs, (void)input_count;
  return (is_backward ? 2 : 1) * (double)((const hark_chunk_bias_attributes *)attributes)->pairs;
}

static int64_t terms(const void *attributes, const hark_tensor *inputs, int input_count) {
  (void)inputs, (void)input_count;
  return hark_max(1, ((const hark_chunk_bias_attributes *)attributes)->pairs);
}

static const hark_chunk_bias_attributes one = {1, 1}, few = {9, 60}, room = {20, 500};

static const hark_sample samples[] = {
    {"one",
     &one,
     {{HARK_F32, 2, {1, 1}, -1, 1},
      {HARK_I64, 1, {2}, 1, 0},
      {HARK_I32, 1, {1}, 0, 0},
      {HARK_I64, 1, {2}, 1, 0},
      {HARK_I64, 1, {2}, 1, 0}}},
    {"kernel",
     &few,
     {{HARK_F32, 2, {1, 5}, -1, 1},
      {HARK_I64, 1, {4}, 9, 0},
      {HARK_I32, 1, {6}, 0, 11},
      {HARK_I64, 1, {4}, 6, 0},
      {HARK_I64, 1, {4}, 12, 0}}},
    {"with_term",
     &room,
     {{HARK_F32, 2, {1, 17}, -1, 1},
      {HARK_I64, 1, {5}, 18, 1},
      {HARK_I32, 1, {23}, -1, 30},
      {HARK_I64, 1, {5}, 23, 0},
      {HARK_I64, 1, {5}, 31, 0},
      {HARK_F32, 1, {23}, -1, 1}}},
};

const hark_operator hark_op_chunk_bias = {
    .name = "chunk_bias",
    .formula = "bias[k, i] = log_kernel[|k - c_i|] + term[i], c_i the place of token i in chunks",
    .attributes_size = sizeof(hark_chunk_bias_attributes),
    .input_minimum = INPUT_TERM,
    .input_maximum = INPUT_COUNT,
    .output_count = OUTPUT_COUNT,
    .differentiable = 1u << INPUT_LOG_KERNEL | 1u << INPUT_TERM,
    .backward_inputs = 1u << INPUT_SEQUENCES | 1u << INPUT_INDEX | 1u << INPUT_INDEX_OFFSETS | 1u << INPUT_ROW_OFFSETS,
    .infer = infer,
    .forward = forward,
    .backward = backward,
    .operations = operations,
    .terms = terms,
    .samples = samples,
    .sample_count = sizeof samples / sizeof samples[0],
};
