/* pool.c - y[b, :] = mean, maximum, first or last of the rows x[b, 0 .. length_b - 1, :].
 *
 * x [B, L, D]; lengths i64 [B] or absent (all L rows); y [B, D]. A sequence of length 0 gives zeros and zero gradients; rows behind the
 * length are not read, and their gradient is zero. The maximum saves the row it was found in, i64 [B, D] (of equal ones the first; a NaN counts as
 * largest; -1: none), so that the backward needs no x.
 * Gradients: mean dx[b, l] = dy[b] / length_b; the others give dy[b] to the row that was chosen.
 */
#include <inttypes.h>

#include "ops/definition.h"

enum { INPUT_X, INPUT_LENGTHS, INPUT_COUNT };

static hark_status infer(hark_context *context, const void *attributes, const hark_tensor *inputs, int input_count, hark_inferred *out) {
  static const hark_input_rule rules[INPUT_COUNT] = {{"x", HARK_F32, 3, 3}, {"lengths", HARK_I64, 1, 1}};
  HARK_TRY(hark_check_inputs(context, &hark_op_pool, rules, attributes, inputs, input_count));
  const hark_pool_kind kind = ((const hark_pool_attributes *)attributes)->kind;
  const hark_tensor *x = &inputs[INPUT_X];
  if (kind != HARK_POOL_MEAN && kind != HARK_POOL_MAX && kind != HARK_POOL_FIRST && kind != HARK_POOL_LAST) {
    return hark_fail(context, HARK_INVALID_ARGUMENT, "pool: kind is %d, expected one of hark_pool_kind", (int)kind);
  }
  if (hark_has_input(inputs, input_count, INPUT_LENGTHS)) {
    HARK_TRY(hark_check_vector(context, &hark_op_pool, "lengths", &inputs[INPUT_LENGTHS], x->shape[0], "the sequences of x"));
  }
  const int64_t shape[] = {x->shape[0], x->shape[2]};
  HARK_TRY(hark_tensor_describe(context, x->type, 2, shape, &out->outputs[0]));
  return kind == HARK_POOL_MAX ? hark_tensor_describe(context, HARK_I64, 2, shape, &out->saved[0]) : HARK_OK;
}

static int64_t length_of(const hark_call *call, int64_t sequence, int64_t maximum) {
  const hark_tensor *lengths = &call->inputs[INPUT_LENGTHS];
  return hark_present(lengths) ? ((const int64_t *)lengths->data)[sequence] : maximum;
}

static hark_status check_lengths(hark_context *context, const hark_call *call, int64_t batch, int64_t maximum) {
  for (int64_t b = 0; b < batch; b++) {
    const int64_t length = length_of(call, b, maximum);
    if (length < 0 || length > maximum) {
      return hark_fail(context, HARK_INVALID_ARGUMENT, "pool: length %" PRId64 " is %" PRId64 ", expected 0 to %" PRId64, b, length,
                       maximum);
    }
  }
  return HARK_OK;
}

/* The row of the largest x[row * stride] of rows [0, length), length > 0. */
static int64_t largest(hark_numbers x, int64_t length, int64_t stride) {
  int64_t best = 0;
  for (int64_t l = 1; l < length; l++) {
    const double candidate = hark_get(x, l * stride);
    if (candidate > hark_get(x, best * stride) || isnan(candidate)) best = l;
  }
  return best;
}

static void forward_sequences(const hark_call *call, int64_t first, int64_t last) {
  const hark_pool_kind kind = ((const hark_pool_attributes *)call->attributes)->kind;
  const hark_tensor *input = &call->inputs[INPUT_X];
  const int64_t maximum = input->shape[1], width = input->shape[2];
  const hark_numbers y = hark_numbers_of(&call->outputs[0]);
  int64_t *chosen = call->saved[0].data;
  for (int64_t b = first; b < last; b++) {
    const hark_numbers x = hark_numbers_from(hark_numbers_of(input), b * maximum * width);
    const int64_t length = length_of(call, b, maximum);
    for (int64_t d = 0; d < width; d++) {
      const hark_numbers column = hark_numbers_from(x, d);
      const int64_t row = length == 0              ? -1
                          : kind == HARK_POOL_MAX  ? largest(column, length, width)
                          : kind == HARK_POOL_LAST ? length - 1
                                                   : 0;
      double value = 0;
      if (length > 0 && kind == HARK_POOL_MEAN) {
        for (int64_t l = 0; l < length; l++) value += hark_get(column, l * width);
        value /= (double)length;
      } else if (length > 0) {
        value = hark_get(column, row * width);
      }
      hark_put(y, b * width + d, value);
      if (kind == HARK_POOL_MAX) chosen[b * width + d] = row;
    }
  }
}

static hark_status forward(hark_context *context, const hark_call *call) {
  const hark_tensor *x = &call->inputs[INPUT_X];
  HARK_TRY(check_lengths(context, call, x->shape[0], x->shape[1]));
  hark_range_for(context, call, x->shape[0], 1, forward_sequences);
  return HARK_OK;
}

/* y = mean of rows: dx = dy / length; y = x[row]: dx[row] = dy, the other rows zero */
static void backward_sequences(const hark_call *call, int64_t first, int64_t last) {
  const hark_pool_kind kind = ((const hark_pool_attributes *)call->attributes)->kind;
  const hark_tensor *gradient = &call->input_gradients[INPUT_X];
  const int64_t maximum = gradient->shape[1], width = gradient->shape[2];
  const hark_numbers dy = hark_numbers_of(&call->output_gradients[0]), dx = hark_gradient_of(call, INPUT_X);
  const int64_t *chosen = call->saved[0].data;
  for (int64_t b = first; b < last; b++) {
    const int64_t length = length_of(call, b, maximum);
    for (int64_t l = 0; l < maximum; l++) {
      for (int64_t d = 0; d < width; d++) {
        const double given = hark_get(dy, b * width + d);
        const int64_t row = kind == HARK_POOL_MAX ? chosen[b * width + d] : kind == HARK_POOL_LAST ? length - 1 : 0;
        double value = 0;
        if (l < length && kind == HARK_POOL_MEAN) {
          value = given / (double)length;
        } else if (l < length && l == row) {
          value = given;
        }
        hark_give(dx, (b * maximum + l) * width + d, value);
      }
    }
  }
}

static hark_status backward(hark_context *context, const hark_call *call) {
  if (hark_gradient_is_absent(call) || !hark_present(&call->input_gradients[INPUT_X])) return HARK_OK;
  const hark_tensor *dx = &call->input_gradients[INPUT_X];
  HARK_TRY(check_lengths(context, call, dx->shape[0], dx->shape[1]));
  hark_range_for(context, call, dx->shape[0], 1, backward_sequences);
  return HARK_OK;
}

static double operations(const void *attributes, const hark_tensor *inputs, int input_count, bool is_backward) {
  (void)input_count;
  const hark_pool_kind kind = ((const hark_pool_attributes *)attributes)->kind;
  const double outputs = (double)inputs[INPUT_X].shape[0] * (double)inputs[INPUT_X].shape[2];
  if (kind == HARK_POOL_MEAN) return is_backward ? outputs : (double)hark_tensor_count(&inputs[INPUT_X]);
  return kind == HARK_POOL_MAX && !is_backward ? (double)hark_tensor_count(&inputs[INPUT_X]) : 0;
}

static int64_t terms(const void *attributes, const hark_tensor *inputs, int input_count) {
  (void)input_count;
  const bool mean = ((const hark_pool_attributes *)attributes)->kind == HARK_POOL_MEAN;
  return mean ? hark_max(1, inputs[INPUT_X].shape[1]) : 1;
}

static const hark_pool_attributes mean = {HARK_POOL_MEAN}, max = {HARK_POOL_MAX}, first_row = {HARK_POOL_FIRST},
                                  last_row = {HARK_POOL_LAST};

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
};

const hark_operator hark_op_pool = {
    .name = "pool",
    .formula = "y[b] = mean, maximum, first or last of the real rows of x[b]",
    .attributes_size = sizeof(hark_pool_attributes),
    .input_minimum = 1,
    .input_maximum = INPUT_COUNT,
    .output_count = 1,
    .differentiable = 1u << INPUT_X,
    .backward_inputs = 1u << INPUT_LENGTHS,
    .infer = infer,
    .forward = forward,
    .backward = backward,
    .operations = operations,
    .terms = terms,
    .samples = samples,
    .sample_count = sizeof samples / sizeof samples[0],
};
