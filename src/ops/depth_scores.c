/* depth_scores.c - the depth of the valley of similarity before each row (TextTiling: Hearst, Computational Linguistics 23, 1997).
 *
 *     g(t) = cos(mean of the up to w rows before t, mean of the up to w rows from t on)       within the sequence, 1 <= t < M
 *     y[t] = (l - g(t)) + (r - g(t)),  l: the value reached from g(t) to the left while g does not fall, r: to the right; y[0] = 0
 *
 * x [..., D]; offsets i64 [B + 1]; y [rows], 0 for rows of no sequence. The cosine with a mean of zeros is 0. Boundaries made from it are
 * decisions: no backward. (2 w + 6) D operations per row.
 */
#include <hark/experimental.h>

#include "ops/segments.h"

enum { INPUT_X, INPUT_OFFSETS, INPUT_COUNT };

static hark_status infer(hark_context *context, const void *attributes, const hark_tensor *inputs, int input_count, hark_inferred *out) {
  static const hark_input_rule rules[INPUT_COUNT] = {{"x", HARK_F32, 2, HARK_MAX_RANK}, {"offsets", HARK_I64, 1, 1}};
  HARK_TRY(hark_check_inputs(context, &hark_op_depth_scores, rules, attributes, inputs, input_count));
  HARK_TRY(hark_check_offsets_shape(context, &hark_op_depth_scores, "offsets", &inputs[INPUT_OFFSETS]));
  HARK_TRY(hark_check_number(context, &hark_op_depth_scores, "window", ((const hark_depth_scores_attributes *)attributes)->window, 1,
                             INT32_MAX));
  const int64_t rows = hark_row_count(&inputs[INPUT_X]);
  /* g, and the value that it reaches to the right */
  HARK_TRY(hark_size_multiply(context, (size_t)rows, 2 * sizeof(double), &out->forward_workspace));
  return hark_tensor_describe(context, inputs[INPUT_X].type, 1, &rows, &out->outputs[0]);
}

/* The cosine of the sums of rows [from, middle) and [middle, to), which is that of their means. */
static double similarity(hark_numbers x, int64_t width, int64_t from, int64_t middle, int64_t to) {
  double product = 0, left_square = 0, right_square = 0;
  for (int64_t d = 0; d < width; d++) {
    double left = 0, right = 0;
    for (int64_t n = from; n < middle; n++) left += hark_get(x, n * width + d);
    for (int64_t n = middle; n < to; n++) right += hark_get(x, n * width + d);
    product += left * right;
    left_square += left * left;
    right_square += right * right;
  }
  return left_square == 0 || right_square == 0 ? 0 : product / (sqrt(left_square) * sqrt(right_square));
}

/* The value reached from `here` by a step to `next` and on to `peak`, while g does not fall. A NaN on the way is the peak. */
static double climb(double here, double next, double peak) { return isnan(here) || next < here ? here : isnan(next) ? next : peak; }

static void forward_sequences(const hark_call *call, int64_t first, int64_t last) {
  const int64_t window = ((const hark_depth_scores_attributes *)call->attributes)->window;
  const hark_segments sequences = hark_segments_of(&call->inputs[INPUT_OFFSETS], 1);
  const hark_numbers x = hark_numbers_of(&call->inputs[INPUT_X]), y = hark_numbers_of(&call->outputs[0]);
  const int64_t width = hark_row_length(&call->inputs[INPUT_X]);
  double *g = call->workspace, *right = g + hark_tensor_count(&call->outputs[0]);
  for (int64_t b = first; b < last; b++) {
    const int64_t begin = sequences.offsets[b], end = sequences.offsets[b + 1];
    for (int64_t t = begin + 1; t < end; t++) {
      g[t] = similarity(x, width, hark_max(begin, t - window), t, hark_min(end, t + window));
    }
    for (int64_t t = end - 1; t > begin; t--) right[t] = t + 1 < end ? climb(g[t], g[t + 1], right[t + 1]) : g[t];
    if (begin < end) hark_put(y, begin, 0);
    double left = 0;
    for (int64_t t = begin + 1; t < end; t++) {
      left = t - 1 > begin ? climb(g[t], g[t - 1], left) : g[t];
      hark_put(y, t, left + right[t] - 2 * g[t]);
    }
  }
}

static hark_status forward(hark_context *context, const hark_call *call) {
  const hark_tensor *x = &call->inputs[INPUT_X], *offsets = &call->inputs[INPUT_OFFSETS];
  HARK_TRY(hark_check_offsets(context, &hark_op_depth_scores, "offsets", offsets, 1, hark_row_count(x)));
  const hark_segments sequences = hark_segments_of(offsets, 1);
  hark_clear_gaps(&sequences, hark_numbers_of(&call->outputs[0]), hark_row_count(x), 1);
  hark_range_for(context, call, sequences.count, 1, forward_sequences);
  return HARK_OK;
}

static double operations(const void *attributes, const hark_tensor *inputs, int input_count, bool is_backward) {
  (void)input_count, (void)is_backward;
  const int64_t window = ((const hark_depth_scores_attributes *)attributes)->window;
  return (2 * (double)window + 6) * (double)hark_tensor_count(&inputs[INPUT_X]);
}

static int64_t terms(const void *attributes, const hark_tensor *inputs, int input_count) {
  (void)input_count;
  const hark_tensor *x = &inputs[INPUT_X];
  const int64_t window = hark_min(((const hark_depth_scores_attributes *)attributes)->window, hark_row_count(x));
  return hark_max(1, hark_row_length(x)) + hark_max(1, window);
}

static const hark_depth_scores_attributes one_row = {1}, three = {3}, wide = {50};

static const hark_sample samples[] = {
    {"one", &one_row, {{HARK_F32, 2, {1, 1}, -1, 1}, {HARK_I64, 1, {2}, 1, 0}}},
    {"neighbours", &one_row, {{HARK_F32, 2, {23, 5}, -1, 1}, {HARK_I64, 1, {4}, 21, 1}}},
    {"windows", &three, {{HARK_F32, 3, {2, 31, 17}, -1, 1}, {HARK_I64, 1, {4}, 62, 0}}},
    {"wider_than_long", &wide, {{HARK_F32, 2, {19, 7}, -1, 1}, {HARK_I64, 1, {3}, 19, 0}}},
};

const hark_operator hark_op_depth_scores = {
    .name = "depth_scores",
    .formula = "y[t] = (peak left of t - g(t)) + (peak right of t - g(t)), g the cosine of the means of the rows on both sides",
    .attributes_size = sizeof(hark_depth_scores_attributes),
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
