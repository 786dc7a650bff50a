/* chunk_boundaries.c - cuts the sequences of a batch into chunks by a rule, with a minimum and a maximum of rows.
 *
 *     rows        0 1 2 3 4 | 5 6 7 8          two sequences: offsets 0 5 9
 *     chunks      0   2   4   5     8  9 9 9   segments from 5 on, after the last chunk, are empty
 *     sequences   0         3       5          chunks 0 1 2 are the first sequence's, 3 and 4 the second's
 *
 * A cut is made before row t if the rule requires one and the chunk has the minimum of rows, or if the chunk has the maximum. Every chunk
 * except the last of a sequence has at least the minimum, so M rows have at most ceil(M / minimum) chunks. `chunks` has the maximum length
 * for B sequences with this total of rows. A few comparisons per row; the rule PEAK uses mean and standard deviation of the sequence's
 * scores.
 */
#include <hark/experimental.h>
#include <inttypes.h>
#include <string.h>

#include "io/number.h"
#include "ops/delimiters.h"
#include "ops/segments.h"

enum { INPUT_OFFSETS, INPUT_IDS, INPUT_SCORE, INPUT_STARTS, INPUT_COUNT };
enum { OUTPUT_CHUNKS, OUTPUT_SEQUENCES, OUTPUT_COUNT };

int64_t hark_chunk_capacity(int64_t rows, int64_t sequences, int64_t minimum) {
  if (rows < 1 || minimum < 1) return 0;
  const int64_t some = hark_min(sequences, rows); /* maximum number of sequences with rows */
  return rows / minimum + (rows % minimum + some * (minimum - 1)) / minimum;
}

static hark_status check_rule(hark_context *context, const hark_chunk_boundaries_attributes *options) {
  const hark_operator *op = &hark_op_chunk_boundaries;
  if (options->rule < HARK_CHUNK_FIXED || options->rule > HARK_CHUNK_PEAK) {
    return hark_fail(context, HARK_INVALID_ARGUMENT, "chunk_boundaries: rule is %d, expected one of hark_chunk_rule", (int)options->rule);
  }
  HARK_TRY(hark_check_number(context, op, "rows", options->rows, 0, INT32_MAX));
  HARK_TRY(hark_check_number(context, op, "minimum", options->minimum, 1, INT32_MAX));
  HARK_TRY(hark_check_number(context, op, "maximum", options->maximum, options->minimum, INT32_MAX));
  if (options->rule == HARK_CHUNK_FIXED && options->minimum != options->maximum) {
    return hark_fail(context, HARK_INVALID_ARGUMENT,
                     "chunk_boundaries: minimum is %" PRId64 " and maximum %" PRId64 ", expected one size for both with the rule fixed",
                     options->minimum, options->maximum);
  }
  if (options->rule == HARK_CHUNK_DELIMITER && (options->delimiters == NULL || options->delimiter_count < 1)) {
    return hark_fail(context, HARK_INVALID_ARGUMENT, "chunk_boundaries: no delimiters, expected at least one with the rule delimiter");
  }
  if (options->rule == HARK_CHUNK_DELIMITER) HARK_TRY(hark_check_delimiters(context, op, options->delimiters, options->delimiter_count));
  if ((options->rule == HARK_CHUNK_SCORE || options->rule == HARK_CHUNK_PEAK) && !isfinite(options->threshold)) {
    return hark_fail(context, HARK_INVALID_ARGUMENT, "chunk_boundaries: threshold is %s, expected a finite number",
                     HARK_PRINTED(options->threshold));
  }
  return HARK_OK;
}

static hark_status infer(hark_context *context, const void *attributes, const hark_tensor *inputs, int input_count, hark_inferred *out) {
  static const hark_input_rule rules[INPUT_COUNT] = {
      {"offsets", HARK_I64, 1, 1}, {"ids", HARK_I32, 1, 2}, {"score", HARK_F32, 1, 1}, {"starts", HARK_I64, 1, 1}};
  const hark_operator *op = &hark_op_chunk_boundaries;
  HARK_TRY(hark_check_inputs(context, op, rules, attributes, inputs, input_count));
  HARK_TRY(hark_check_offsets_shape(context, op, "offsets", &inputs[INPUT_OFFSETS]));
  const hark_chunk_boundaries_attributes *options = attributes;
  HARK_TRY(check_rule(context, options));
  static const int needed[] = {[HARK_CHUNK_FIXED] = INPUT_OFFSETS,
                               [HARK_CHUNK_DELIMITER] = INPUT_IDS,
                               [HARK_CHUNK_GIVEN] = INPUT_STARTS,
                               [HARK_CHUNK_SCORE] = INPUT_SCORE,
                               [HARK_CHUNK_PEAK] = INPUT_SCORE};
  const int need = needed[options->rule];
  for (int i = INPUT_IDS; i < INPUT_COUNT; i++) {
    if (hark_has_input(inputs, input_count, i) == (i == need)) continue;
    return hark_fail(context, HARK_INVALID_ARGUMENT, "chunk_boundaries: %s is %s, expected it only with its own rule", rules[i].name,
                     i == need ? "absent" : "given");
  }
  if (need == INPUT_SCORE) HARK_TRY(hark_check_vector(context, op, "score", &inputs[INPUT_SCORE], options->rows, "the rows"));
  if (need == INPUT_IDS && hark_tensor_count(&inputs[INPUT_IDS]) != options->rows) {
    char text[HARK_SHAPE_TEXT_BYTES];
    return hark_fail(context, HARK_SHAPE_MISMATCH, "chunk_boundaries: ids has %s, expected %" PRId64 " rows",
                     hark_shape_text(&inputs[INPUT_IDS], text, sizeof text), options->rows);
  }
  if (need == INPUT_STARTS) HARK_TRY(hark_check_offsets_shape(context, op, "starts", &inputs[INPUT_STARTS]));
  const int64_t sequences = inputs[INPUT_OFFSETS].shape[0] - 1,
                capacity = hark_chunk_capacity(options->rows, sequences, options->minimum) + 1;
  HARK_TRY(hark_tensor_describe(context, HARK_I64, 1, &capacity, &out->outputs[OUTPUT_CHUNKS]));
  return hark_tensor_describe(context, HARK_I64, 1, inputs[INPUT_OFFSETS].shape, &out->outputs[OUTPUT_SEQUENCES]);
}

/* The sequence that a rule is applied to. */
typedef struct cutter {
  const hark_chunk_boundaries_attributes *options;
  const int32_t *ids;
  hark_numbers score;
  double least; /* PEAK: the smallest score that counts */
  int64_t begin, end;
} cutter;

static double least_peak(const cutter *c) {
  const int64_t count = c->end - c->begin - 1;
  double sum = 0, square = 0;
  if (count < 1) return INFINITY;
  for (int64_t t = c->begin + 1; t < c->end; t++) sum += hark_get(c->score, t);
  const double mean = sum / (double)count;
  for (int64_t t = c->begin + 1; t < c->end; t++) square += (hark_get(c->score, t) - mean) * (hark_get(c->score, t) - mean);
  return mean + c->options->threshold * sqrt(square / (double)count);
}

/* Whether the chunk that has `length` rows before row t ends there. */
static bool requires_cut(const cutter *c, int64_t length, int64_t t) {
  if (c->options->rule == HARK_CHUNK_DELIMITER) {
    const hark_chunk_ends ends = {.delimiters = c->options->delimiters, .delimiter_count = c->options->delimiter_count};
    return hark_chunk_has_delimiter(&ends, length, c->ids + t);
  }
  if (c->options->rule == HARK_CHUNK_SCORE) return hark_get(c->score, t) >= c->options->threshold;
  if (c->options->rule == HARK_CHUNK_PEAK) {
    const double score = hark_get(c->score, t);
    const bool over_left = t - 1 <= c->begin || score >= hark_get(c->score, t - 1);
    const bool over_right = t + 1 >= c->end || score >= hark_get(c->score, t + 1);
    return score > 0 && score >= c->least && over_left && over_right;
  }
  return false;
}

/* Copies the caller's starts, and adds the first row of every sequence. */
static hark_status take_given(hark_context *context, const hark_call *call) {
  const hark_chunk_boundaries_attributes *options = call->attributes;
  const hark_tensor *offsets = &call->inputs[INPUT_OFFSETS], *given = &call->inputs[INPUT_STARTS];
  HARK_TRY(hark_check_offsets(context, &hark_op_chunk_boundaries, "starts", given, 1, options->rows));
  const hark_segments sequences = hark_segments_of(offsets, 1), starts = hark_segments_of(given, 1);
  int64_t *chunks = call->outputs[OUTPUT_CHUNKS].data, *first = call->outputs[OUTPUT_SEQUENCES].data;
  int64_t k = 0, count = 0;
  for (int64_t b = 0; b < sequences.count; b++) {
    first[b] = count;
    for (int64_t t = sequences.offsets[b]; t < sequences.offsets[b + 1];) {
      while (k < starts.count && starts.offsets[k + 1] <= t) k++; /* skips empty segments, and those before the batch */
      const int64_t from = k < starts.count ? starts.offsets[k] : -1, to = k < starts.count ? starts.offsets[k + 1] : -1;
      if (from != t || to > sequences.offsets[b + 1]) {
        return hark_fail(context, HARK_INVALID_ARGUMENT,
                         "chunk_boundaries: starts has no chunk from row %" PRId64 " to a row of sequence %" PRId64
                         ", expected chunks that begin and end with their sequence",
                         t, b);
      }
      const bool short_one = to - t < options->minimum && to < sequences.offsets[b + 1];
      if (short_one || to - t > options->maximum) {
        return hark_fail(context, HARK_INVALID_ARGUMENT,
                         "chunk_boundaries: the chunk at row %" PRId64 " has %" PRId64 " rows, expected %" PRId64 " to %" PRId64, t, to - t,
                         options->minimum, options->maximum);
      }
      chunks[count++] = t;
      t = to;
    }
  }
  first[sequences.count] = count;
  return HARK_OK;
}

static void cut(const hark_call *call) {
  const hark_segments sequences = hark_segments_of(&call->inputs[INPUT_OFFSETS], 1);
  int64_t *chunks = call->outputs[OUTPUT_CHUNKS].data, *first = call->outputs[OUTPUT_SEQUENCES].data, count = 0;
  cutter c = {.options = call->attributes};
  if (c.options->rule == HARK_CHUNK_DELIMITER) c.ids = call->inputs[INPUT_IDS].data;
  if (c.options->rule == HARK_CHUNK_SCORE || c.options->rule == HARK_CHUNK_PEAK) c.score = hark_numbers_of(&call->inputs[INPUT_SCORE]);
  for (int64_t b = 0; b < sequences.count; b++) {
    first[b] = count;
    c.begin = sequences.offsets[b];
    c.end = sequences.offsets[b + 1];
    if (c.options->rule == HARK_CHUNK_PEAK) c.least = least_peak(&c);
    int64_t start = c.begin;
    for (int64_t t = c.begin; t < c.end; t++) {
      const int64_t length = t - start;
      if (t > c.begin && length < c.options->maximum && (length < c.options->minimum || !requires_cut(&c, length, t))) continue;
      chunks[count++] = t;
      start = t;
    }
  }
  first[sequences.count] = count;
}

static hark_status forward(hark_context *context, const hark_call *call) {
  const hark_chunk_boundaries_attributes *options = call->attributes;
  const hark_tensor *offsets = &call->inputs[INPUT_OFFSETS], *chunks = &call->outputs[OUTPUT_CHUNKS];
  HARK_TRY(hark_check_offsets(context, &hark_op_chunk_boundaries, "offsets", offsets, 1, options->rows));
  if (options->rule == HARK_CHUNK_GIVEN) {
    HARK_TRY(take_given(context, call));
  } else {
    cut(call);
  }
  const int64_t batch = offsets->shape[0] - 1, count = ((const int64_t *)call->outputs[OUTPUT_SEQUENCES].data)[batch];
  const int64_t end = ((const int64_t *)offsets->data)[batch];
  for (int64_t k = count; k < chunks->shape[0]; k++) ((int64_t *)chunks->data)[k] = end;
  return HARK_OK;
}

static double operations(const void *attributes, const hark_tensor *inputs, int input_count, bool is_backward) {
  (void)inputs, (void)input_count, (void)is_backward;
  const hark_chunk_boundaries_attributes *options = attributes;
  return options->rule == HARK_CHUNK_PEAK ? 5 * (double)options->rows : 0;
}

static int64_t terms(const void *attributes, const hark_tensor *inputs, int input_count) {
  (void)attributes, (void)inputs, (void)input_count;
  return 1;
}

static const int32_t stops[] = {3, -1 - 7, 2, 7};
static const hark_chunk_boundaries_attributes fixed = {.rule = HARK_CHUNK_FIXED, .rows = 37, .minimum = 5, .maximum = 5},
                                              one = {.rule = HARK_CHUNK_FIXED, .rows = 1, .minimum = 1, .maximum = 1},
                                              longer = {.rule = HARK_CHUNK_FIXED, .rows = 9, .minimum = 64, .maximum = 64},
                                              delimiter = {.rule = HARK_CHUNK_DELIMITER,
                                                           .rows = 60,
                                                           .minimum = 2,
                                                           .maximum = 11,
                                                           .delimiters = stops,
                                                           .delimiter_count = 4},
                                              given = {.rule = HARK_CHUNK_GIVEN, .rows = 20, .minimum = 1, .maximum = 20},
                                              peak = {.rule = HARK_CHUNK_PEAK, .rows = 60, .minimum = 2, .maximum = 16, .threshold = -0.5},
                                              score = {.rule = HARK_CHUNK_SCORE, .rows = 60, .minimum = 3, .maximum = 9, .threshold = 0.5};

#define ABSENT                                                                                                                             \
  { .type = HARK_NONE }

static const hark_sample samples[] = {
    {"one", &one, {{HARK_I64, 1, {2}, 1, 0}}},
    {"fixed", &fixed, {{HARK_I64, 1, {5}, 36, 0}}},
    {"longer_than_the_rows", &longer, {{HARK_I64, 1, {4}, 9, 0}}},
    {"delimiter", &delimiter, {{HARK_I64, 1, {4}, 58, 1}, {HARK_I32, 2, {3, 20}, 0, 9}}},
    {"given", &given, {{HARK_I64, 1, {2}, 20, 0}, ABSENT, ABSENT, {HARK_I64, 1, {6}, 20, 0}}},
    {"peak", &peak, {{HARK_I64, 1, {4}, 60, 0}, ABSENT, {HARK_F32, 1, {60}, -1, 1}}},
    {"score", &score, {{HARK_I64, 1, {4}, 60, 0}, ABSENT, {HARK_F32, 1, {60}, 0, 1}}},
};

const hark_operator hark_op_chunk_boundaries = {
    .name = "chunk_boundaries",
    .formula = "chunks[k] = first row of chunk k; a cut where the rule requires one, within minimum and maximum",
    .attributes_size = sizeof(hark_chunk_boundaries_attributes),
    .input_minimum = 1,
    .input_maximum = INPUT_COUNT,
    .output_count = OUTPUT_COUNT,
    .infer = infer,
    .forward = forward,
    .operations = operations,
    .terms = terms,
    .samples = samples,
    .sample_count = sizeof samples / sizeof samples[0],
};
