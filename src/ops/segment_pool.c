/* segment_pool.c - mean or maximum of C bins of every segment's rows, like adaptive pooling.
 *
 *     y[s, i, :] = mean or max of x[first_s + n, :], n in [floor(i M / C), ceil((i + 1) M / C)),  M rows of segment s
 *
 * Every bin has a row for M > 0, also where C > M (rows are then in several bins), and the bins overlap where C does not divide M. x [...,
 * D]; offsets i64 [S + 1]; y [S, C, D], zeros for an empty segment. With `fewer`, C is min(slots, M) for a segment of M rows, and the rows
 * of y are contiguous (segment_slots); if their number is given, y is [rows, D]. For the maximum, the row where it was found is saved, i64,
 * in y's shape (the first of equal values; a NaN counts as largest). Gradients: dx[n] = sum over the bins i that contain n, floor(n C / M)
 * .. floor(((n + 1) C - 1) / M), of dy[i] / rows of the bin, or of dy[i] where n was chosen. M + C additions per feature, forward and
 * backward.
 */
#include <hark/experimental.h>
#include <inttypes.h>

#include "ops/segments.h"

enum { INPUT_X, INPUT_OFFSETS, INPUT_COUNT };

/* Rows of y. */
static int64_t pooled_rows(const hark_segment_pool_attributes *options, int64_t segments) {
  return options->rows > 0 ? options->rows : segments * options->slots;
}

static hark_status infer(hark_context *context, const void *attributes, const hark_tensor *inputs, int input_count, hark_inferred *out) {
  static const hark_input_rule rules[INPUT_COUNT] = {{"x", HARK_F32, 2, HARK_MAX_RANK}, {"offsets", HARK_I64, 1, 1}};
  HARK_TRY(hark_check_inputs(context, &hark_op_segment_pool, rules, attributes, inputs, input_count));
  HARK_TRY(hark_check_offsets_shape(context, &hark_op_segment_pool, "offsets", &inputs[INPUT_OFFSETS]));
  const hark_segment_pool_attributes *options = attributes;
  const hark_tensor *x = &inputs[INPUT_X];
  if (options->kind != HARK_SEGMENT_POOL_AVERAGE && options->kind != HARK_SEGMENT_POOL_MAX) {
    return hark_fail(context, HARK_INVALID_ARGUMENT, "segment_pool: kind is %d, expected one of hark_segment_pool_kind",
                     (int)options->kind);
  }
  HARK_TRY(hark_check_number(context, &hark_op_segment_pool, "slots", options->slots, 1, INT32_MAX));
  HARK_TRY(hark_check_unit(context, &hark_op_segment_pool, options->unit, hark_row_count(x)));
  HARK_TRY(hark_check_number(context, &hark_op_segment_pool, "rows of x", hark_row_count(x), 0, INT32_MAX)); /* products of two fit */
  HARK_TRY(hark_check_number(context, &hark_op_segment_pool, "rows", options->rows, 0, options->fewer ? INT32_MAX : 0));
  const int64_t segments = inputs[INPUT_OFFSETS].shape[0] - 1, width = hark_row_length(x);
  const int64_t of_segments[] = {segments, options->slots, width}, of_rows[] = {options->rows, width};
  const int rank = options->rows > 0 ? 2 : 3;
  const int64_t *shape = options->rows > 0 ? of_rows : of_segments;
  HARK_TRY(hark_tensor_describe(context, x->type, rank, shape, &out->outputs[0]));
  size_t starts = 0; /* the first row of y of every segment */
  HARK_TRY(hark_size_multiply(context, (size_t)segments + 1, sizeof(int64_t), &starts));
  out->forward_workspace = out->backward_workspace = starts;
  return options->kind == HARK_SEGMENT_POOL_MAX ? hark_tensor_describe(context, HARK_I64, rank, shape, &out->saved[0]) : HARK_OK;
}

/* Writes the first row of y of every segment to the workspace. */
static hark_status place_slots(hark_context *context, const hark_call *call, const hark_segments *segments) {
  const hark_segment_pool_attributes *options = call->attributes;
  int64_t *starts = call->workspace;
  starts[0] = 0;
  for (int64_t s = 0; s < segments->count; s++) {
    starts[s + 1] = starts[s] + (options->fewer ? hark_min(options->slots, hark_segment_rows(segments, s)) : options->slots);
  }
  const int64_t rows = pooled_rows(options, segments->count);
  if (starts[segments->count] <= rows) return HARK_OK;
  return hark_fail(context, HARK_INVALID_ARGUMENT, "segment_pool: rows is %" PRId64 ", and the segments have %" PRId64, rows,
                   starts[segments->count]);
}

static int64_t bin_first(int64_t bin, int64_t rows, int64_t bins) { return bin * rows / bins; }
static int64_t bin_last(int64_t bin, int64_t rows, int64_t bins) { return hark_ceil_div((bin + 1) * rows, bins); } /* the row after it */

/* Row `at` of y <- the mean of rows [begin, end) of x; zeros if there are none. */
static void average_rows(hark_numbers x, int64_t begin, int64_t end, int64_t width, hark_numbers y, int64_t at) {
  for (int64_t d = 0; d < width; d += HARK_BLOCK) {
    const int64_t count = hark_min(HARK_BLOCK, width - d);
    hark_block block = {{0}};
    for (int64_t n = begin; n < end; n++) hark_block_add(&block, count, 1, x, n * width + d);
    for (int64_t j = 0; j < count && begin < end; j++) block.sum[j] /= (double)(end - begin);
    hark_block_give(&block, count, y, at * width + d);
  }
}

/* Row `at` of dx <- the sum of rows of dy of bins [low, high], each over its number of rows; `bins` of `rows` rows begin at row `start` of
 * dy. */
static void spread_average(hark_numbers dy, int64_t start, int64_t low, int64_t high, int64_t rows, int64_t bins, int64_t width,
                           hark_numbers dx, int64_t at) {
  for (int64_t d = 0; d < width; d += HARK_BLOCK) {
    const int64_t count = hark_min(HARK_BLOCK, width - d);
    hark_block block = {{0}};
    for (int64_t i = low; i <= high; i++)
      hark_block_add(&block, count, 1 / (double)(bin_last(i, rows, bins) - bin_first(i, rows, bins)), dy, (start + i) * width + d);
    hark_block_give(&block, count, dx, at * width + d);
  }
}

static void forward_segments(const hark_call *call, int64_t first, int64_t last) {
  const hark_segment_pool_attributes *options = call->attributes;
  const hark_segments segments = hark_segments_of(&call->inputs[INPUT_OFFSETS], options->unit);
  const hark_numbers x = hark_numbers_of(&call->inputs[INPUT_X]), y = hark_numbers_of(&call->outputs[0]);
  const int64_t width = hark_row_length(&call->outputs[0]), *starts = call->workspace;
  int64_t *chosen = call->saved[0].data;
  for (int64_t s = first; s < last; s++) {
    const int64_t from = hark_segment_first(&segments, s), rows = hark_segment_rows(&segments, s), bins = starts[s + 1] - starts[s];
    for (int64_t i = 0; i < bins; i++) {
      const int64_t begin = from + bin_first(i, rows, bins), end = from + bin_last(i, rows, bins);
      if (options->kind == HARK_SEGMENT_POOL_AVERAGE) {
        average_rows(x, begin, end, width, y, starts[s] + i);
        continue;
      }
      for (int64_t d = 0; d < width; d++) {
        const int64_t at = (starts[s] + i) * width + d;
        int64_t best = begin;
        for (int64_t n = begin; n < end; n++) {
          const double value = hark_get(x, n * width + d), most = hark_get(x, best * width + d);
          if (value > most || (isnan(value) && !isnan(most))) best = n;
        }
        hark_put(y, at, begin == end ? 0 : hark_get(x, best * width + d));
        chosen[at] = begin == end ? -1 : best;
      }
    }
  }
}

static hark_status forward(hark_context *context, const hark_call *call) {
  const hark_segment_pool_attributes *options = call->attributes;
  const hark_tensor *x = &call->inputs[INPUT_X], *offsets = &call->inputs[INPUT_OFFSETS], *y = &call->outputs[0];
  HARK_TRY(hark_check_offsets(context, &hark_op_segment_pool, "offsets", offsets, options->unit, hark_row_count(x)));
  const hark_segments segments = hark_segments_of(offsets, options->unit);
  HARK_TRY(place_slots(context, call, &segments));
  const int64_t used = ((const int64_t *)call->workspace)[segments.count] * hark_row_length(y), count = hark_tensor_count(y);
  int64_t *chosen = call->saved[0].data;
  for (int64_t i = used; i < count; i++) {
    hark_put(hark_numbers_of(y), i, 0);
    if (options->kind == HARK_SEGMENT_POOL_MAX) chosen[i] = -1;
  }
  const int64_t per_segment = hark_row_count(x) / hark_max(1, segments.count) * hark_row_length(x);
  hark_range_for(context, call, segments.count, hark_row_grain(per_segment), forward_segments);
  return HARK_OK;
}

/* y[i] = mean or maximum of the bin's rows: dx[n] = sum over bins of dy[i] / rows, or of dy[i] where n was chosen */
static void backward_segments(const hark_call *call, int64_t first, int64_t last) {
  const hark_segment_pool_attributes *options = call->attributes;
  const hark_segments segments = hark_segments_of(&call->inputs[INPUT_OFFSETS], options->unit);
  const hark_numbers dy = hark_numbers_of(&call->output_gradients[0]), dx = hark_gradient_of(call, INPUT_X);
  const int64_t width = hark_row_length(&call->output_gradients[0]), *starts = call->workspace, *chosen = call->saved[0].data;
  for (int64_t s = first; s < last; s++) {
    const int64_t from = hark_segment_first(&segments, s), rows = hark_segment_rows(&segments, s), bins = starts[s + 1] - starts[s];
    for (int64_t n = 0; n < rows; n++) {
      const int64_t low = n * bins / rows, high = ((n + 1) * bins - 1) / rows;
      if (options->kind == HARK_SEGMENT_POOL_AVERAGE) {
        spread_average(dy, starts[s], low, high, rows, bins, width, dx, from + n);
        continue;
      }
      for (int64_t d = 0; d < width; d++) {
        double sum = 0;
        for (int64_t i = low; i <= high; i++)
          if (chosen[(starts[s] + i) * width + d] == from + n) sum += hark_get(dy, (starts[s] + i) * width + d);
        hark_give(dx, (from + n) * width + d, sum);
      }
    }
  }
}

static hark_status backward(hark_context *context, const hark_call *call) {
  if (hark_gradient_is_absent(call) || !hark_present(&call->input_gradients[INPUT_X])) return HARK_OK;
  const hark_segment_pool_attributes *options = call->attributes;
  const hark_tensor *dx = &call->input_gradients[INPUT_X], *offsets = &call->inputs[INPUT_OFFSETS];
  HARK_TRY(hark_check_offsets(context, &hark_op_segment_pool, "offsets", offsets, options->unit, hark_row_count(dx)));
  const hark_segments segments = hark_segments_of(offsets, options->unit);
  HARK_TRY(place_slots(context, call, &segments));
  hark_clear_gaps(&segments, hark_gradient_of(call, INPUT_X), hark_row_count(dx), hark_row_length(dx));
  const int64_t per_segment = hark_row_count(dx) / hark_max(1, segments.count) * hark_row_length(dx);
  hark_range_for(context, call, segments.count, hark_row_grain(per_segment), backward_segments);
  return HARK_OK;
}

static double operations(const void *attributes, const hark_tensor *inputs, int input_count, bool is_backward) {
  (void)input_count;
  const hark_segment_pool_attributes *options = attributes;
  const hark_tensor *x = &inputs[INPUT_X];
  if (is_backward && options->kind == HARK_SEGMENT_POOL_MAX) return 0;
  return (double)hark_tensor_count(x) + (double)pooled_rows(options, inputs[INPUT_OFFSETS].shape[0] - 1) * (double)hark_row_length(x);
}

static int64_t terms(const void *attributes, const hark_tensor *inputs, int input_count) {
  (void)input_count;
  const hark_segment_pool_attributes *options = attributes;
  return options->kind == HARK_SEGMENT_POOL_MAX ? options->slots : hark_max(options->slots, hark_max(1, hark_row_count(&inputs[INPUT_X])));
}

static const hark_segment_pool_attributes average = {HARK_SEGMENT_POOL_AVERAGE, 4, 0, false, 0},
                                          average_fewer = {HARK_SEGMENT_POOL_AVERAGE, 4, 0, true, 0},
                                          average_units = {HARK_SEGMENT_POOL_AVERAGE, 5, 3, true, 0},
                                          average_rows_given = {HARK_SEGMENT_POOL_AVERAGE, 4, 0, true, 21},
                                          average_one = {HARK_SEGMENT_POOL_AVERAGE, 1, 0, false, 0},
                                          max = {HARK_SEGMENT_POOL_MAX, 4, 0, false, 0}, max_fewer = {HARK_SEGMENT_POOL_MAX, 4, 0, true, 0},
                                          max_units = {HARK_SEGMENT_POOL_MAX, 5, 3, false, 0},
                                          max_rows_given = {HARK_SEGMENT_POOL_MAX, 5, 3, true, 19};

static const hark_sample samples[] = {
    {"one", &average_one, {{HARK_F32, 2, {1, 1}, -2, 2}, {HARK_I64, 1, {2}, 1, 0}}},
    {"empty", &average, {{HARK_F32, 2, {3, 5}, -2, 2}, {HARK_I64, 1, {4}, 0, 0}}},
    {"average", &average, {{HARK_F32, 2, {33, 17}, -2, 2}, {HARK_I64, 1, {6}, 31, 0}}},
    {"average_short", &average, {{HARK_F32, 2, {17, 5}, -2, 2}, {HARK_I64, 1, {10}, 17, 1}}},
    {"average_fewer", &average_fewer, {{HARK_F32, 2, {17, 5}, -2, 2}, {HARK_I64, 1, {10}, 16, 0}}},
    {"average_units", &average_units, {{HARK_F32, 3, {11, 3, 7}, -2, 2}, {HARK_I64, 1, {4}, 10, 0}}},
    {"average_rows", &average_rows_given, {{HARK_F32, 2, {19, 5}, -2, 2}, {HARK_I64, 1, {10}, 17, 0}}},
    {"average_wide", &average, {{HARK_F32, 2, {21, 67}, -2, 2}, {HARK_I64, 1, {5}, 21, 0}}},
    {"average_many", &average, {{HARK_F32, 2, {257, 33}, -2, 2}, {HARK_I64, 1, {40}, 257, 0}}},
    {"max", &max, {{HARK_F32, 2, {33, 17}, -2, 2}, {HARK_I64, 1, {6}, 31, 0}}},
    {"max_fewer", &max_fewer, {{HARK_F32, 2, {17, 5}, -2, 2}, {HARK_I64, 1, {10}, 16, 0}}},
    {"max_units", &max_units, {{HARK_F32, 3, {11, 3, 7}, -2, 2}, {HARK_I64, 1, {4}, 10, 0}}},
    {"max_rows", &max_rows_given, {{HARK_F32, 3, {11, 3, 7}, -2, 2}, {HARK_I64, 1, {4}, 10, 0}}},
};

const hark_operator hark_op_segment_pool = {
    .name = "segment_pool",
    .formula = "y[s, i] = mean or maximum of rows floor(i M / C) .. ceil((i + 1) M / C) - 1 of segment s",
    .attributes_size = sizeof(hark_segment_pool_attributes),
    .input_minimum = INPUT_COUNT,
    .input_maximum = INPUT_COUNT,
    .output_count = 1,
    .differentiable = 1u << INPUT_X,
    .backward_inputs = 1u << INPUT_OFFSETS,
    .infer = infer,
    .forward = forward,
    .backward = backward,
    .operations = operations,
    .terms = terms,
    .samples = samples,
    .sample_count = sizeof samples / sizeof samples[0],
};
