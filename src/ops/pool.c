/* pool.c - y[b, :] = mean, maximum, first or last of the rows x[b, 0 .. length_b - 1, :], or of ranges of the rows of one item.
 *
 * x [B, L, D]; lengths i64 [B] or absent (all L rows); y [B, D]. A sequence of length 0 gives zeros and zero gradients; rows after the
 * length are not read, and their gradient is zero. For the maximum, the row where it was found is saved, i64 [B, D] (the first of equal
 * values; a NaN counts as largest; -1: none), so the backward does not need x. With ranges i64 [N, P, 2] x is [1, L, D] and y [N, P D]:
 * part p of y[n, :] is pooled over the rows ranges[n, p, 0] <= l < ranges[n, p, 1]; a range that ends at or before its beginning is empty.
 * Ranges may share rows, whose gradients are sums. Gradients: mean dx[b, l] = dy[b] / length_b; the others give dy[b] to the row that was
 * chosen.
 */
#include <inttypes.h>

#include "ops/definition.h"

enum { INPUT_X, INPUT_LENGTHS, INPUT_RANGES, INPUT_COUNT };

static hark_status infer_ranges(hark_context *context, hark_pool_kind kind, const hark_tensor *inputs, int input_count,
                                hark_inferred *out) {
  const hark_tensor *x = &inputs[INPUT_X], *ranges = &inputs[INPUT_RANGES];
  char text[HARK_SHAPE_TEXT_BYTES];
  if (hark_has_input(inputs, input_count, INPUT_LENGTHS))
    return hark_fail(context, HARK_INVALID_ARGUMENT, "pool: lengths and ranges are given together, expected one of them");
  if (x->shape[0] != 1)
    return hark_fail(context, HARK_SHAPE_MISMATCH, "pool: x has %s with ranges, expected [1, L, D]", hark_shape_text(x, text, sizeof text));
  if (ranges->shape[2] != 2)
    return hark_fail(context, HARK_SHAPE_MISMATCH, "pool: ranges has %s, expected [N, P, 2]", hark_shape_text(ranges, text, sizeof text));
  const int64_t shape[] = {ranges->shape[0], ranges->shape[1] * x->shape[2]};
  HARK_TRY(hark_tensor_describe(context, x->type, 2, shape, &out->outputs[0]));
  return kind == HARK_POOL_MAX ? hark_tensor_describe(context, HARK_I64, 2, shape, &out->saved[0]) : HARK_OK;
}

static hark_status infer(hark_context *context, const void *attributes, const hark_tensor *inputs, int input_count, hark_inferred *out) {
  static const hark_input_rule rules[INPUT_COUNT] = {{"x", HARK_F32, 3, 3}, {"lengths", HARK_I64, 1, 1}, {"ranges", HARK_I64, 3, 3}};
  HARK_TRY(hark_check_inputs(context, &hark_op_pool, rules, attributes, inputs, input_count));
  const hark_pool_kind kind = ((const hark_pool_attributes *)attributes)->kind;
  const hark_tensor *x = &inputs[INPUT_X];
  if (kind != HARK_POOL_MEAN && kind != HARK_POOL_MAX && kind != HARK_POOL_FIRST && kind != HARK_POOL_LAST) {
    return hark_fail(context, HARK_INVALID_ARGUMENT, "pool: kind is %d, expected one of hark_pool_kind", (int)kind);
  }
  if (hark_has_input(inputs, input_count, INPUT_RANGES)) return infer_ranges(context, kind, inputs, input_count, out);
  if (hark_has_input(inputs, input_count, INPUT_LENGTHS)) {
    HARK_TRY(hark_check_vector(context, &hark_op_pool, "lengths", &inputs[INPUT_LENGTHS], x->shape[0], "the sequences of x"));
  }
  const int64_t shape[] = {x->shape[0], x->shape[2]};
  HARK_TRY(hark_tensor_describe(context, x->type, 2, shape, &out->outputs[0]));
  return kind == HARK_POOL_MAX ? hark_tensor_describe(context, HARK_I64, 2, shape, &out->saved[0]) : HARK_OK;
}

/* The rows that are pooled into one vector of y. */
typedef struct rows_of_vector {
  int64_t first, count; /* rows of all items, one after the other */
} rows_of_vector;

static bool has_ranges(const hark_call *call) { return hark_has_input(call->inputs, call->input_count, INPUT_RANGES); }

/* Number of vectors of D numbers in y: B, or N P. */
static int64_t vector_count(const hark_call *call, int64_t batch) {
  const hark_tensor *ranges = &call->inputs[INPUT_RANGES];
  return has_ranges(call) ? ranges->shape[0] * ranges->shape[1] : batch;
}

/* An item has `maximum` rows. */
static rows_of_vector rows_of(const hark_call *call, int64_t vector, int64_t maximum) {
  if (has_ranges(call)) {
    const int64_t *range = (const int64_t *)call->inputs[INPUT_RANGES].data + 2 * vector;
    return (rows_of_vector){.first = range[0], .count = hark_max(0, range[1] - range[0])};
  }
  const hark_tensor *lengths = &call->inputs[INPUT_LENGTHS];
  const bool given = hark_has_input(call->inputs, call->input_count, INPUT_LENGTHS);
  return (rows_of_vector){.first = vector * maximum, .count = given ? ((const int64_t *)lengths->data)[vector] : maximum};
}

static hark_status check_rows(hark_context *context, const hark_call *call, int64_t batch, int64_t maximum) {
  for (int64_t v = 0; v < vector_count(call, batch); v++) {
    if (has_ranges(call)) {
      const int64_t *range = (const int64_t *)call->inputs[INPUT_RANGES].data + 2 * v;
      if (range[0] < 0 || range[0] > maximum || range[1] < 0 || range[1] > maximum)
        return hark_fail(context, HARK_INVALID_ARGUMENT, "pool: range %" PRId64 " is %" PRId64 " to %" PRId64 ", expected 0 to %" PRId64, v,
                         range[0], range[1], maximum);
      continue;
    }
    const rows_of_vector rows = rows_of(call, v, maximum);
    if (rows.count < 0 || rows.count > maximum)
      return hark_fail(context, HARK_INVALID_ARGUMENT, "pool: length %" PRId64 " is %" PRId64 ", expected 0 to %" PRId64, v, rows.count,
                       maximum);
  }
  return HARK_OK;
}

/* The row of the largest x[row * stride] of rows [0, length), length > 0. */
static int64_t largest(hark_numbers x, int64_t length, int64_t stride) {
  int64_t best = 0;
  for (int64_t l = 1; l < length; l++) {
    const double candidate = hark_get(x, l * stride);
    const double most = hark_get(x, best * stride);
    if (candidate > most || (isnan(candidate) && !isnan(most))) best = l;
  }
  return best;
}

static void forward_vectors(const hark_call *call, int64_t first, int64_t last) {
  const hark_pool_kind kind = ((const hark_pool_attributes *)call->attributes)->kind;
  const hark_tensor *input = &call->inputs[INPUT_X];
  const int64_t maximum = input->shape[1], width = input->shape[2];
  const hark_numbers y = hark_numbers_of(&call->outputs[0]);
  int64_t *chosen = call->saved[0].data;
  for (int64_t v = first; v < last; v++) {
    const rows_of_vector rows = rows_of(call, v, maximum);
    const hark_numbers x = hark_numbers_from(hark_numbers_of(input), rows.first * width);
    for (int64_t d = 0; d < width; d++) {
      const hark_numbers column = hark_numbers_from(x, d);
      const int64_t row = rows.count == 0          ? -1
                          : kind == HARK_POOL_MAX  ? largest(column, rows.count, width)
                          : kind == HARK_POOL_LAST ? rows.count - 1
                                                   : 0;
      double value = 0;
      if (rows.count > 0 && kind == HARK_POOL_MEAN) {
        for (int64_t l = 0; l < rows.count; l++) value += hark_get(column, l * width);
        value /= (double)rows.count;
      } else if (rows.count > 0) {
        value = hark_get(column, row * width);
      }
      hark_put(y, v * width + d, value);
      if (kind == HARK_POOL_MAX) chosen[v * width + d] = row;
    }
  }
}

static hark_status forward(hark_context *context, const hark_call *call) {
  const hark_tensor *x = &call->inputs[INPUT_X];
  HARK_TRY(check_rows(context, call, x->shape[0], x->shape[1]));
  hark_range_for(context, call, vector_count(call, x->shape[0]), 1, forward_vectors);
  return HARK_OK;
}

/* y = mean of rows: dx += dy / count; y = x[row]: dx[row] += dy. The features d in [first, last) of all rows. */
static void backward_features(const hark_call *call, int64_t first, int64_t last) {
  const hark_pool_kind kind = ((const hark_pool_attributes *)call->attributes)->kind;
  const hark_tensor *gradient = &call->input_gradients[INPUT_X];
  const int64_t batch = gradient->shape[0], maximum = gradient->shape[1], width = gradient->shape[2];
  const hark_numbers dy = hark_numbers_of(&call->output_gradients[0]), dx = hark_gradient_of(call, INPUT_X);
  const int64_t *chosen = call->saved[0].data;
  for (int64_t row = 0; row < batch * maximum && !dx.add; row++)
    for (int64_t d = first; d < last; d++) hark_put(dx, row * width + d, 0);
  for (int64_t v = 0; v < vector_count(call, batch); v++) {
    const rows_of_vector rows = rows_of(call, v, maximum);
    const bool mean = kind == HARK_POOL_MEAN;
    for (int64_t l = 0; l < (mean ? rows.count : hark_min(1, rows.count)); l++)
      for (int64_t d = first; d < last; d++) {
        const int64_t row = mean ? l : kind == HARK_POOL_MAX ? chosen[v * width + d] : kind == HARK_POOL_LAST ? rows.count - 1 : 0;
        const int64_t i = (rows.first + row) * width + d;
        hark_put(dx, i, hark_get(dx, i) + hark_get(dy, v * width + d) / (mean ? (double)rows.count : 1));
      }
  }
}

static hark_status backward(hark_context *context, const hark_call *call) {
  if (hark_gradient_is_absent(call) || !hark_present(&call->input_gradients[INPUT_X])) return HARK_OK;
  const hark_tensor *dx = &call->input_gradients[INPUT_X];
  HARK_TRY(check_rows(context, call, dx->shape[0], dx->shape[1]));
  hark_range_for(context, call, dx->shape[2], hark_row_grain(dx->shape[0] * dx->shape[1]), backward_features);
  return HARK_OK;
}

static double operations(const void *attributes, const hark_tensor *inputs, int input_count, bool is_backward) {
  const hark_pool_kind kind = ((const hark_pool_attributes *)attributes)->kind;
  const bool ranges = hark_has_input(inputs, input_count, INPUT_RANGES);
  const int64_t vectors = ranges ? inputs[INPUT_RANGES].shape[0] * inputs[INPUT_RANGES].shape[1] : inputs[INPUT_X].shape[0];
  const double outputs = (double)vectors * (double)inputs[INPUT_X].shape[2];
  if (kind == HARK_POOL_MEAN) return is_backward ? outputs : (double)hark_tensor_count(&inputs[INPUT_X]);
  return kind == HARK_POOL_MAX && !is_backward ? (double)hark_tensor_count(&inputs[INPUT_X]) : 0;
}

static int64_t terms(const void *attributes, const hark_tensor *inputs, int input_count) {
  const bool mean = ((const hark_pool_attributes *)attributes)->kind == HARK_POOL_MEAN;
  const bool ranges = hark_has_input(inputs, input_count, INPUT_RANGES); /* all ranges may share a row */
  const int64_t sharing = ranges ? inputs[INPUT_RANGES].shape[0] * inputs[INPUT_RANGES].shape[1] : 1;
  return hark_max(1, mean ? hark_max(sharing, inputs[INPUT_X].shape[1]) : sharing);
}

static const hark_pool_attributes mean = {HARK_POOL_MEAN}, max = {HARK_POOL_MAX}, first_row = {HARK_POOL_FIRST},
                                  last_row = {HARK_POOL_LAST};

#define ABSENT                                                                                                                             \
  { .type = HARK_NONE }

static const hark_sample samples[] = {
    {"mean_one", &mean, {{HARK_F32, 3, {1, 1, 1}, -2, 2}}},
    {"mean", &mean, {{HARK_F32, 3, {3, 17, 19}, -2, 2}}},
    {"mean_lengths", &mean, {{HARK_F32, 3, {7, 5, 33}, -2, 2}, {HARK_I64, 1, {7}, 0, 5}}},
    {"mean_empty", &mean, {{HARK_F32, 3, {2, 3, 4}, -2, 2}, {HARK_I64, 1, {2}, 0, 0}}},
    {"mean_long", &mean, {{HARK_F32, 3, {2, 257, 16}, -2, 2}, {HARK_I64, 1, {2}, 200, 257}}},
    {"max", &max, {{HARK_F32, 3, {3, 7, 11}, -2, 2}}},
    {"max_lengths", &max, {{HARK_F32, 3, {7, 5, 33}, -2, 2}, {HARK_I64, 1, {7}, 0, 5}}},
    {"first", &first_row, {{HARK_F32, 3, {3, 7, 11}, -2, 2}}},
    {"first_lengths", &first_row, {{HARK_F32, 3, {7, 2, 5}, -2, 2}, {HARK_I64, 1, {7}, 0, 2}}},
    {"last", &last_row, {{HARK_F32, 3, {3, 7, 11}, -2, 2}}},
    {"last_lengths", &last_row, {{HARK_F32, 3, {7, 5, 13}, -2, 2}, {HARK_I64, 1, {7}, 0, 5}}},
    {"mean_ranges", &mean, {{HARK_F32, 3, {1, 29, 17}, -2, 2}, ABSENT, {HARK_I64, 3, {5, 1, 2}, 0, 29}}},
    {"mean_pairs", &mean, {{HARK_F32, 3, {1, 31, 9}, -2, 2}, ABSENT, {HARK_I64, 3, {4, 2, 2}, 0, 31}}},
    {"max_ranges", &max, {{HARK_F32, 3, {1, 19, 5}, -2, 2}, ABSENT, {HARK_I64, 3, {3, 2, 2}, 0, 19}}},
    {"first_pairs", &first_row, {{HARK_F32, 3, {1, 23, 7}, -2, 2}, ABSENT, {HARK_I64, 3, {3, 2, 2}, 0, 23}}},
    {"last_ranges", &last_row, {{HARK_F32, 3, {1, 11, 33}, -2, 2}, ABSENT, {HARK_I64, 3, {6, 1, 2}, 0, 11}}},
};

const hark_operator hark_op_pool = {
    .name = "pool",
    .formula = "y[b] = mean, maximum, first or last of the real rows of x[b]",
    .attributes_size = sizeof(hark_pool_attributes),
    .input_minimum = 1,
    .input_maximum = INPUT_COUNT,
    .output_count = 1,
    .differentiable = 1u << INPUT_X,
    .backward_inputs = 1u << INPUT_LENGTHS | 1u << INPUT_RANGES,
    .infer = infer,
    .forward = forward,
    .backward = backward,
    .operations = operations,
    .terms = terms,
    .samples = samples,
    .sample_count = sizeof samples / sizeof samples[0],
};
