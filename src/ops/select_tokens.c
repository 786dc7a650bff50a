/* select_tokens.c - selects the rows of every sequence that attention sees: `count` of them, or all.
 *
 *     offsets, in units of u rows     candidates of sequence b: rows offsets[b] u .. offsets[b + 1] u - 1
 *     index   i32 [B count]           4 7 9 | 12 15 | -1 -1 ..    ascending within a sequence, one after the other, -1 after the last
 *     offsets i64 [B + 1]             0       3       5
 *
 * NORM |x|, SCORE, QUERY x . (mean of the sequence's query rows): the largest values, the first of equal ones; a NaN is lowest. MEDOIDS:
 * Lloyd's iterations from a maximin start (Gonzalez, TCS 38, 1985): first the row nearest to the mean, then the row farthest from all
 * chosen rows; after the iterations, for each centre the nearest row that no earlier centre has. Rows with a NaN or an infinity have no
 * distance: they are in no cluster, and they are selected, in their order, only if the others are too few. GIVEN: the caller's. The
 * selection is a decision without a gradient; scores get one through the logits (log_sigmoid of a score). Operations: 2 D per row (NORM,
 * QUERY), 3 D count (iterations + 2) per row (MEDOIDS).
 */
#include <float.h>
#include <hark/experimental.h>
#include <inttypes.h>
#include <string.h>

#include "ops/segments.h"

enum { INPUT_OFFSETS, INPUT_X, INPUT_SCORE, INPUT_QUERY, INPUT_QUERY_OFFSETS, INPUT_INDEX, INPUT_COUNT };
enum { OUTPUT_INDEX, OUTPUT_OFFSETS, OUTPUT_COUNT };

static const hark_input_rule rules[INPUT_COUNT] = {{"offsets", HARK_I64, 1, 1},           {"x", HARK_F32, 2, HARK_MAX_RANK},
                                                   {"score", HARK_F32, 1, HARK_MAX_RANK}, {"query", HARK_F32, 2, HARK_MAX_RANK},
                                                   {"query_offsets", HARK_I64, 1, 1},     {"index", HARK_I32, 2, 2}};

static const unsigned needed[] = {[HARK_SELECTION_NORM] = 1u << INPUT_X,
                                  [HARK_SELECTION_SCORE] = 1u << INPUT_SCORE,
                                  [HARK_SELECTION_QUERY] = 1u << INPUT_X | 1u << INPUT_QUERY | 1u << INPUT_QUERY_OFFSETS,
                                  [HARK_SELECTION_MEDOIDS] = 1u << INPUT_X,
                                  [HARK_SELECTION_GIVEN] = 1u << INPUT_INDEX};

static hark_status check_attributes(hark_context *context, const hark_select_tokens_attributes *options) {
  const hark_operator *op = &hark_op_select_tokens;
  if (options->kind < HARK_SELECTION_NORM || options->kind > HARK_SELECTION_GIVEN) {
    return hark_fail(context, HARK_INVALID_ARGUMENT, "select_tokens: kind is %d, expected one of hark_selection", (int)options->kind);
  }
  HARK_TRY(hark_check_number(context, op, "rows", options->rows, 0, INT32_MAX));
  HARK_TRY(hark_check_number(context, op, "count", options->count, 1, INT32_MAX));
  HARK_TRY(hark_check_number(context, op, "iterations", options->iterations, 0, INT32_MAX));
  return hark_check_unit(context, op, options->unit, options->rows);
}

/* Per row: score, order and scratch of the sort (for MEDOIDS: distance, owner and mark); then sums of the rows of a centre or query. */
static hark_status workspace_bytes(hark_context *context, const hark_select_tokens_attributes *options, const hark_tensor *inputs,
                                   int64_t sequences, size_t *out) {
  size_t rows = 0, centres = 0;
  HARK_TRY(hark_size_multiply(context, (size_t)options->rows, sizeof(double) + 2 * sizeof(int64_t), &rows));
  if (options->kind == HARK_SELECTION_QUERY || options->kind == HARK_SELECTION_MEDOIDS) {
    const size_t vectors = options->kind == HARK_SELECTION_QUERY ? 1 : 1 + (size_t)hark_min(options->count, options->rows);
    HARK_TRY(
        hark_size_multiply(context, (size_t)sequences * vectors, (size_t)hark_row_length(&inputs[INPUT_X]) * sizeof(double), &centres));
  }
  return hark_size_add(context, rows, centres, out);
}

static hark_status infer(hark_context *context, const void *attributes, const hark_tensor *inputs, int input_count, hark_inferred *out) {
  const hark_operator *op = &hark_op_select_tokens;
  HARK_TRY(hark_check_inputs(context, op, rules, attributes, inputs, input_count));
  HARK_TRY(hark_check_offsets_shape(context, op, "offsets", &inputs[INPUT_OFFSETS]));
  const hark_select_tokens_attributes *options = attributes;
  HARK_TRY(check_attributes(context, options));
  for (int i = INPUT_X; i < INPUT_COUNT; i++) {
    const bool required = (needed[options->kind] >> i & 1u) != 0;
    if (hark_has_input(inputs, input_count, i) == required) continue;
    return hark_fail(context, HARK_INVALID_ARGUMENT, "select_tokens: %s is %s, expected it only with the kinds that use it", rules[i].name,
                     required ? "absent" : "given");
  }
  const int64_t sequences = inputs[INPUT_OFFSETS].shape[0] - 1;
  if (hark_has_input(inputs, input_count, INPUT_X))
    HARK_TRY(hark_check_rows(context, op, "x", &inputs[INPUT_X], options->rows, "attributes"));
  if (options->kind == HARK_SELECTION_SCORE)
    HARK_TRY(hark_check_numbers(context, op, "score", &inputs[INPUT_SCORE], options->rows, "the rows"));
  if (options->kind == HARK_SELECTION_QUERY) {
    HARK_TRY(hark_check_vector(context, op, "query_offsets", &inputs[INPUT_QUERY_OFFSETS], sequences + 1, "as many as offsets"));
    if (hark_row_length(&inputs[INPUT_QUERY]) != hark_row_length(&inputs[INPUT_X])) {
      return hark_fail(context, HARK_SHAPE_MISMATCH, "select_tokens: query has %" PRId64 " features, expected the %" PRId64 " of x",
                       hark_row_length(&inputs[INPUT_QUERY]), hark_row_length(&inputs[INPUT_X]));
    }
  }
  if (options->kind == HARK_SELECTION_GIVEN &&
      (inputs[INPUT_INDEX].shape[0] != sequences || inputs[INPUT_INDEX].shape[1] != options->count)) {
    char text[HARK_SHAPE_TEXT_BYTES];
    return hark_fail(context, HARK_SHAPE_MISMATCH, "select_tokens: index has %s, expected [%" PRId64 ", %" PRId64 "] (sequences, count)",
                     hark_shape_text(&inputs[INPUT_INDEX], text, sizeof text), sequences, options->count);
  }
  HARK_TRY(workspace_bytes(context, options, inputs, sequences, &out->forward_workspace));
  size_t places_in_all = 0;
  HARK_TRY(hark_size_multiply(context, (size_t)sequences, (size_t)options->count, &places_in_all));
  const int64_t places = (int64_t)places_in_all;
  HARK_TRY(hark_tensor_describe(context, HARK_I32, 1, &places, &out->outputs[OUTPUT_INDEX]));
  return hark_tensor_describe(context, HARK_I64, 1, inputs[INPUT_OFFSETS].shape, &out->outputs[OUTPUT_OFFSETS]);
}

/* The candidates of one sequence and its part of the workspace. */
typedef struct candidates {
  const hark_select_tokens_attributes *options;
  int64_t first, rows, width, count;
  hark_numbers x;
  double *score;
  int64_t *order, *scratch;
  double *vectors;
  double longest; /* MEDOIDS: length of the longest finite row */
} candidates;

static double distance(const candidates *c, int64_t n, const double *centre) {
  double sum = 0;
  for (int64_t d = 0; d < c->width; d++) {
    const double difference = hark_get(c->x, (c->first + n) * c->width + d) - centre[d];
    sum += difference * difference;
  }
  return sum;
}

static void copy_row(const candidates *c, int64_t n, double *centre) {
  for (int64_t d = 0; d < c->width; d++) centre[d] = hark_get(c->x, (c->first + n) * c->width + d);
}

/* The rounding error of a squared distance of about `square` from a mean of rows. Smaller differences count as ties, so that rows equally
 * far from a centre tie for any order of the sums. */
static double rounding_of(const candidates *c, double square) {
  const double rounding = 8 * DBL_EPSILON * (double)(c->rows + c->width) * (sqrt(square) * c->longest + square);
  return isfinite(rounding) ? rounding : 0;
}

/* Owner of rows that are in no cluster. */
#define NOBODY (-1)

/* *owner <- the first centre, or NOBODY for rows that are not finite; returns the number of finite rows. */
static int64_t own_finite_rows(candidates *c, int64_t *owner) {
  int64_t count = 0;
  c->longest = 0;
  for (int64_t n = 0; n < c->rows; n++) {
    bool finite = true;
    double square = 0;
    for (int64_t d = 0; d < c->width; d++) {
      const double number = hark_get(c->x, (c->first + n) * c->width + d);
      finite = finite && isfinite(number);
      square += number * number;
    }
    owner[n] = finite ? 0 : NOBODY;
    if (finite) c->longest = hark_larger(c->longest, sqrt(square));
    count += finite;
  }
  return count;
}

/* Of finite rows that are not chosen, the first with the smallest score or, with `most`, the largest, up to rounding. */
static int64_t first_of(const candidates *c, const int64_t *owner, const int64_t *taken, bool most) {
  int64_t best = -1;
  for (int64_t n = 0; n < c->rows; n++)
    if (owner[n] != NOBODY && taken[n] == 0 && (best < 0 || (most ? c->score[n] > c->score[best] : c->score[n] < c->score[best]))) best = n;
  if (best < 0) return best;
  const double within = rounding_of(c, c->score[best]);
  for (int64_t n = 0; n < best; n++)
    if (owner[n] != NOBODY && taken[n] == 0 && fabs(c->score[n] - c->score[best]) <= within) return n;
  return best;
}

/* The row nearest to a centre, of the finite rows that are not chosen. */
static int64_t nearest(const candidates *c, const double *centre, const int64_t *owner, const int64_t *taken) {
  for (int64_t n = 0; n < c->rows; n++) c->score[n] = distance(c, n, centre);
  return first_of(c, owner, taken, false);
}

/* The first centre that is nearest to a row. */
static int64_t nearest_centre(const candidates *c, int64_t n, const double *centres) {
  double least = INFINITY;
  for (int64_t k = 0; k < c->count; k++) least = hark_smaller(least, distance(c, n, centres + k * c->width));
  for (int64_t k = 0; k < c->count; k++)
    if (distance(c, n, centres + k * c->width) <= least + rounding_of(c, least)) return k;
  return 0;
}

static void mean_of_rows(const candidates *c, const int64_t *owner, int64_t centre, double *mean, int64_t *count) {
  *count = 0;
  for (int64_t n = 0; n < c->rows; n++) *count += owner[n] == centre;
  if (*count == 0) return; /* a centre without rows does not move */
  for (int64_t d = 0; d < c->width; d++) {
    double sum = 0;
    for (int64_t n = 0; n < c->rows; n++)
      if (owner[n] == centre) sum += hark_get(c->x, (c->first + n) * c->width + d);
    mean[d] = sum / (double)*count;
  }
}

/* Chooses the row nearest to the mean, then rows farthest from the chosen ones: c->score is the distance to the nearest chosen row. */
static void start_centres(const candidates *c, const int64_t *owner, int64_t *taken) {
  double *mean = c->vectors, *centres = c->vectors + c->width;
  int64_t count;
  mean_of_rows(c, owner, 0, mean, &count);
  for (int64_t n = 0; n < c->rows; n++) taken[n] = 0;
  for (int64_t k = 0; k < c->count; k++) {
    const int64_t next = k == 0 ? nearest(c, mean, owner, taken) : first_of(c, owner, taken, true);
    taken[next] = 1;
    copy_row(c, next, centres + k * c->width);
    for (int64_t n = 0; n < c->rows; n++) {
      const double here = distance(c, n, centres + k * c->width);
      c->score[n] = k == 0 ? here : fmin(c->score[n], here);
    }
  }
}

static void find_medoids(const candidates *all) {
  int64_t *owner = all->order, *taken = all->scratch, count;
  double *centres = all->vectors + all->width;
  candidates finite = *all;
  const candidates *c = &finite;
  finite.count = hark_min(all->count, own_finite_rows(&finite, owner));
  start_centres(c, owner, taken);
  for (int64_t i = 0; i < c->options->iterations; i++) {
    for (int64_t n = 0; n < c->rows; n++)
      if (owner[n] != NOBODY) owner[n] = nearest_centre(c, n, centres);
    for (int64_t k = 0; k < c->count; k++) mean_of_rows(c, owner, k, centres + k * c->width, &count);
  }
  for (int64_t n = 0; n < c->rows; n++) taken[n] = 0;
  for (int64_t k = 0; k < c->count; k++) taken[nearest(c, centres + k * c->width, owner, taken)] = 1;
  for (int64_t n = 0, left = all->count - c->count; left > 0; n++) {
    if (owner[n] != NOBODY) continue;
    taken[n] = 1;
    left--;
  }
}

/* Marks the `count` rows with the largest scores. */
static void mark_largest(const candidates *c) {
  int64_t *marks = c->scratch;
  hark_order_by_score(c->score, c->rows, c->order, c->scratch);
  for (int64_t n = 0; n < c->rows; n++) marks[n] = 0;
  for (int64_t k = 0; k < c->count; k++) marks[c->order[k]] = 1;
}

static void score_rows(const hark_call *call, const candidates *c, int64_t b) {
  const hark_selection kind = c->options->kind;
  if (kind == HARK_SELECTION_QUERY) {
    const hark_segments queries = hark_segments_of(&call->inputs[INPUT_QUERY_OFFSETS], 1);
    const hark_numbers query = hark_numbers_of(&call->inputs[INPUT_QUERY]);
    for (int64_t d = 0; d < c->width; d++) { /* the sum has the same ranks as the mean */
      c->vectors[d] = 0;
      for (int64_t n = queries.offsets[b]; n < queries.offsets[b + 1]; n++) c->vectors[d] += hark_get(query, n * c->width + d);
    }
  }
  for (int64_t n = 0; n < c->rows; n++) {
    const int64_t row = c->first + n;
    double sum = 0;
    if (kind == HARK_SELECTION_SCORE) sum = hark_get(hark_numbers_of(&call->inputs[INPUT_SCORE]), row);
    for (int64_t d = 0; kind != HARK_SELECTION_SCORE && d < c->width; d++) {
      const double value = hark_get(c->x, row * c->width + d);
      sum += value * (kind == HARK_SELECTION_NORM ? value : c->vectors[d]);
    }
    c->score[n] = sum;
  }
}

static void mark_sequences(const hark_call *call, int64_t first, int64_t last) {
  const hark_select_tokens_attributes *options = call->attributes;
  const hark_segments sequences = hark_segments_of(&call->inputs[INPUT_OFFSETS], options->unit);
  const bool has_x = hark_has_input(call->inputs, call->input_count, INPUT_X);
  double *score = call->workspace;
  int64_t *order = (int64_t *)(score + options->rows), *scratch = order + options->rows;
  const int64_t width = has_x ? hark_row_length(&call->inputs[INPUT_X]) : 0;
  const int64_t vectors = options->kind == HARK_SELECTION_MEDOIDS ? 1 + hark_min(options->count, options->rows) : 1;
  for (int64_t b = first; b < last; b++) {
    const int64_t from = hark_segment_first(&sequences, b), rows = hark_segment_rows(&sequences, b);
    const candidates c = {.options = options,
                          .first = from,
                          .rows = rows,
                          .width = width,
                          .count = hark_min(options->count, rows),
                          .x = has_x ? hark_numbers_of(&call->inputs[INPUT_X]) : (hark_numbers){0},
                          .score = score + from,
                          .order = order + from,
                          .scratch = scratch + from,
                          .vectors = (double *)(scratch + options->rows) + b * vectors * width};
    if (rows == 0) continue;
    if (options->kind == HARK_SELECTION_MEDOIDS) {
      find_medoids(&c);
    } else {
      score_rows(call, &c, b);
      mark_largest(&c);
    }
  }
}

/* Marks the rows that the caller chose. */
static hark_status mark_given(hark_context *context, const hark_call *call) {
  const hark_select_tokens_attributes *options = call->attributes;
  const hark_segments sequences = hark_segments_of(&call->inputs[INPUT_OFFSETS], options->unit);
  const int32_t *index = call->inputs[INPUT_INDEX].data;
  int64_t *marks = (int64_t *)((double *)call->workspace + options->rows) + options->rows;
  for (int64_t n = 0; n < options->rows; n++) marks[n] = 0;
  for (int64_t i = 0; i < sequences.count * options->count; i++) {
    const int64_t b = i / options->count, first = hark_segment_first(&sequences, b), rows = hark_segment_rows(&sequences, b);
    if (index[i] == -1) continue;
    if (index[i] < first || index[i] >= first + rows) {
      return hark_fail(context, HARK_INVALID_ARGUMENT,
                       "select_tokens: index %" PRId64 " is %" PRId32 ", expected a row of its sequence, %" PRId64 " to %" PRId64 ", or -1",
                       i, index[i], first, first + rows - 1);
    }
    if (marks[index[i]] != 0) {
      return hark_fail(context, HARK_INVALID_ARGUMENT, "select_tokens: index %" PRId64 " is %" PRId32 " once more, expected each row once",
                       i, index[i]);
    }
    marks[index[i]] = 1;
  }
  return HARK_OK;
}

static hark_status forward(hark_context *context, const hark_call *call) {
  const hark_select_tokens_attributes *options = call->attributes;
  const hark_operator *op = &hark_op_select_tokens;
  HARK_TRY(hark_check_offsets(context, op, "offsets", &call->inputs[INPUT_OFFSETS], options->unit, options->rows));
  const hark_segments sequences = hark_segments_of(&call->inputs[INPUT_OFFSETS], options->unit);
  if (options->kind == HARK_SELECTION_QUERY) {
    HARK_TRY(hark_check_offsets(context, op, "query_offsets", &call->inputs[INPUT_QUERY_OFFSETS], 1,
                                hark_row_count(&call->inputs[INPUT_QUERY])));
  }
  if (options->kind == HARK_SELECTION_GIVEN) {
    HARK_TRY(mark_given(context, call));
  } else {
    hark_range_for(context, call, sequences.count, 1, mark_sequences);
  }
  const int64_t *marks = (int64_t *)((double *)call->workspace + options->rows) + options->rows;
  int32_t *index = call->outputs[OUTPUT_INDEX].data;
  int64_t *offsets = call->outputs[OUTPUT_OFFSETS].data, count = 0;
  for (int64_t b = 0; b < sequences.count; b++) {
    offsets[b] = count;
    const int64_t first = hark_segment_first(&sequences, b), rows = hark_segment_rows(&sequences, b);
    for (int64_t n = first; n < first + rows; n++)
      if (marks[n] != 0) index[count++] = (int32_t)n;
  }
  offsets[sequences.count] = count;
  for (int64_t i = count; i < sequences.count * options->count; i++) index[i] = -1;
  return HARK_OK;
}

static double operations(const void *attributes, const hark_tensor *inputs, int input_count, bool is_backward) {
  (void)is_backward;
  const hark_select_tokens_attributes *options = attributes;
  if (!hark_has_input(inputs, input_count, INPUT_X)) return 0;
  const double numbers = (double)hark_tensor_count(&inputs[INPUT_X]);
  if (options->kind != HARK_SELECTION_MEDOIDS) return 2 * numbers;
  return 3 * numbers * (double)options->count * (double)(options->iterations + 2);
}

static int64_t terms(const void *attributes, const hark_tensor *inputs, int input_count) {
  (void)attributes, (void)inputs, (void)input_count;
  return 1;
}

static const hark_select_tokens_attributes norm = {HARK_SELECTION_NORM, 40, 4, 0, 0}, score = {HARK_SELECTION_SCORE, 40, 4, 2, 0},
                                           query = {HARK_SELECTION_QUERY, 40, 3, 0, 0}, medoids = {HARK_SELECTION_MEDOIDS, 40, 5, 0, 4},
                                           few = {HARK_SELECTION_SCORE, 9, 16, 0, 0}, given = {HARK_SELECTION_GIVEN, 40, 2, 0, 0};

#define ABSENT                                                                                                                             \
  { .type = HARK_NONE }

static const hark_sample samples[] = {
    {"norm", &norm, {{HARK_I64, 1, {5}, 40, 0}, {HARK_F32, 2, {40, 7}, -1, 1}}},
    {"score_of_units", &score, {{HARK_I64, 1, {5}, 20, 0}, ABSENT, {HARK_F32, 1, {40}, -1, 1}}},
    {"fewer_than_requested", &few, {{HARK_I64, 1, {4}, 9, 0}, ABSENT, {HARK_F32, 1, {9}, -1, 1}}},
    {"medoids", &medoids, {{HARK_I64, 1, {4}, 39, 1}, {HARK_F32, 3, {10, 4, 5}, -1, 1}}},
    {"given", &given, {{HARK_I64, 1, {3}, 40, 0}, ABSENT, ABSENT, ABSENT, ABSENT, {HARK_I32, 2, {2, 2}, -1, -1}}},
    {"query",
     &query,
     {{HARK_I64, 1, {4}, 40, 0}, {HARK_F32, 2, {40, 6}, -1, 1}, ABSENT, {HARK_F32, 2, {21, 6}, -1, 1}, {HARK_I64, 1, {4}, 21, 0}}},
};

const hark_operator hark_op_select_tokens = {
    .name = "select_tokens",
    .formula = "index = the count rows of largest norm, score or product with the mean query, the medoids, or those given",
    .attributes_size = sizeof(hark_select_tokens_attributes),
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
