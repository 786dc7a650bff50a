/* gaussian_loss.c - loss = weight sum over rows and responses of (log 2 pi + v + (t - m)^2 exp(-v)) / 2: the negative logarithm of the
 * density of the targets t, with means m and logarithms of variances v.
 *
 * prediction [..., 2 R]: in each row R means, then R logarithms of variances; target [..., R]; loss of rank 0. With e = (t - m) exp(-v):
 * dm = -dloss weight e, dv = dloss weight (1 - (t - m) e) / 2; they may overwrite the prediction, and the target is data. With `squared`,
 * loss = weight sum (t - m)^2, dm = -2 dloss weight (t - m), dv = 0. Rows' sums are added in double, in the order of the rows. About 8
 * operations per response forward, 10 backward.
 */
#include <hark/experimental.h>

#include "core/range.h"
#include "io/number.h"
#include "ops/definition.h"

enum { INPUT_PREDICTION, INPUT_TARGET, INPUT_COUNT };

#define LOG_TWO_PI 1.8378770664093454836
#define FORWARD_OPERATIONS 8.0 /* per response */
#define BACKWARD_OPERATIONS 10.0

static hark_status check_shapes(hark_context *context, const hark_tensor *prediction, const hark_tensor *target) {
  bool fits = prediction->rank == target->rank && hark_row_length(prediction) == 2 * hark_row_length(target);
  for (int i = 0; fits && i + 1 < target->rank; i++) fits = prediction->shape[i] == target->shape[i];
  if (fits) return HARK_OK;
  char predicted[HARK_SHAPE_TEXT_BYTES], targets[HARK_SHAPE_TEXT_BYTES];
  return hark_fail(context, HARK_SHAPE_MISMATCH,
                   "gaussian_loss: prediction has %s and target has %s, expected twice as many numbers in a row: means and logarithms of "
                   "variances",
                   hark_shape_text(prediction, predicted, sizeof predicted), hark_shape_text(target, targets, sizeof targets));
}

static hark_status infer(hark_context *context, const void *attributes, const hark_tensor *inputs, int input_count, hark_inferred *out) {
  static const hark_input_rule rules[INPUT_COUNT] = {{"prediction", HARK_F32, 1, HARK_MAX_RANK}, {"target", HARK_F32, 1, HARK_MAX_RANK}};
  HARK_TRY(hark_check_inputs(context, &hark_op_gaussian_loss, rules, attributes, inputs, input_count));
  HARK_TRY(check_shapes(context, &inputs[INPUT_PREDICTION], &inputs[INPUT_TARGET]));
  const double weight = ((const hark_gaussian_loss_attributes *)attributes)->weight;
  const hark_type type = inputs[INPUT_PREDICTION].type;
  if (!isfinite(weight))
    return hark_fail(context, HARK_INVALID_ARGUMENT, "gaussian_loss: weight is %s, expected a finite number", HARK_PRINTED(weight));
  HARK_TRY(hark_check_range(context, "gaussian_loss", "weight", weight, type, hark_range_of(type)));
  HARK_TRY(hark_tensor_describe(context, type, 0, NULL, &out->outputs[0]));
  return hark_size_multiply(context, (size_t)hark_row_count(&inputs[INPUT_TARGET]), sizeof(double), &out->forward_workspace);
}

static void forward_rows(const hark_call *call, int64_t first, int64_t last) {
  const hark_numbers x = hark_numbers_of(&call->inputs[INPUT_PREDICTION]), t = hark_numbers_of(&call->inputs[INPUT_TARGET]);
  const int64_t width = hark_row_length(&call->inputs[INPUT_TARGET]);
  const bool squared = ((const hark_gaussian_loss_attributes *)call->attributes)->squared;
  double *row_terms = call->workspace;
  for (int64_t n = first; n < last; n++) {
    double sum = 0;
    for (int64_t r = 0; r < width; r++) {
      const double error = hark_get(t, n * width + r) - hark_get(x, 2 * n * width + r), v = hark_get(x, (2 * n + 1) * width + r);
      sum += squared ? error * error : 0.5 * (LOG_TWO_PI + v + error * error * exp(-v));
    }
    row_terms[n] = sum;
  }
}

static hark_status forward(hark_context *context, const hark_call *call) {
  const hark_tensor *target = &call->inputs[INPUT_TARGET];
  const int64_t rows = hark_row_count(target);
  const double *row_terms = call->workspace;
  double sum = 0;
  hark_range_for(context, call, rows, hark_row_grain(hark_row_length(target)), forward_rows);
  for (int64_t n = 0; n < rows; n++) sum += row_terms[n];
  hark_put(hark_numbers_of(&call->outputs[0]), 0, ((const hark_gaussian_loss_attributes *)call->attributes)->weight * sum);
  return HARK_OK;
}

/* loss = weight sum (log 2 pi + v + (t - m)^2 exp(-v)) / 2: dm = -dloss weight e, dv = dloss weight (1 - (t - m) e) / 2, e = (t - m)
 * exp(-v) */
static void backward_rows(const hark_call *call, int64_t first, int64_t last) {
  const hark_numbers x = hark_numbers_of(&call->inputs[INPUT_PREDICTION]), t = hark_numbers_of(&call->inputs[INPUT_TARGET]);
  const hark_numbers dx = hark_gradient_of(call, INPUT_PREDICTION);
  const int64_t width = hark_row_length(&call->inputs[INPUT_TARGET]);
  const hark_gaussian_loss_attributes *const a = call->attributes;
  const double factor = a->weight * hark_get(hark_numbers_of(&call->output_gradients[0]), 0);
  for (int64_t n = first; n < last; n++)
    for (int64_t r = 0; r < width; r++) {
      const int64_t mean = 2 * n * width + r, variance = mean + width;
      const double error = hark_get(t, n * width + r) - hark_get(x, mean), scaled = error * exp(-hark_get(x, variance));
      hark_give(dx, mean, a->squared ? -2 * factor * error : -factor * scaled);
      hark_give(dx, variance, a->squared ? 0 : factor * 0.5 * (1 - error * scaled));
    }
}

static hark_status backward(hark_context *context, const hark_call *call) {
  if (hark_gradient_is_absent(call) || !hark_present(&call->input_gradients[INPUT_PREDICTION])) return HARK_OK;
  const hark_tensor *target = &call->inputs[INPUT_TARGET];
  hark_range_for(context, call, hark_row_count(target), hark_row_grain(hark_row_length(target)), backward_rows);
  return HARK_OK;
}

static double operations(const void *attributes, const hark_tensor *inputs, int input_count, bool is_backward) {
  (void)attributes, (void)input_count;
  return (is_backward ? BACKWARD_OPERATIONS : FORWARD_OPERATIONS) * (double)hark_tensor_count(&inputs[INPUT_TARGET]);
}

static int64_t terms(const void *attributes, const hark_tensor *inputs, int input_count) {
  (void)attributes, (void)input_count;
  return hark_max(1, 8 * hark_tensor_count(&inputs[INPUT_TARGET])); /* exp(-v) magnifies the rounding of v */
}

static const hark_gaussian_loss_attributes one = {1, false}, mean = {1.0 / 33, false}, squared = {0.5, true};

static const hark_sample samples[] = {
    {"one", &one, {{HARK_F32, 1, {2}, -1, 1}, {HARK_F32, 1, {1}, -1, 1}}},
    {"none", &one, {{HARK_F32, 2, {0, 6}, -1, 1}, {HARK_F32, 2, {0, 3}, -1, 1}}},
    {"rows", &mean, {{HARK_F32, 2, {33, 14}, -1, 1}, {HARK_F32, 2, {33, 7}, -1, 1}}},
    {"blocks", &mean, {{HARK_F32, 3, {5, 4, 34}, -2, 2}, {HARK_F32, 3, {5, 4, 17}, -2, 2}}},
    {"squared", &squared, {{HARK_F32, 2, {33, 14}, -1, 1}, {HARK_F32, 2, {33, 7}, -1, 1}}},
    {"many", &mean, {{HARK_F32, 2, {1031, 2}, -2, 2}, {HARK_F32, 2, {1031, 1}, -1, 1}}},
};

const hark_operator hark_op_gaussian_loss = {
    .name = "gaussian_loss",
    .formula = "loss = weight sum (log 2 pi + v + (target - m)^2 exp(-v)) / 2, prediction = (m, v)",
    .attributes_size = sizeof(hark_gaussian_loss_attributes),
    .input_minimum = INPUT_COUNT,
    .input_maximum = INPUT_COUNT,
    .output_count = 1,
    .differentiable = 1u << INPUT_PREDICTION,
    .backward_inputs = 1u << INPUT_PREDICTION | 1u << INPUT_TARGET,
    .gradient_in_place = 1u << INPUT_PREDICTION,
    .infer = infer,
    .forward = forward,
    .backward = backward,
    .operations = operations,
    .terms = terms,
    .samples = samples,
    .sample_count = sizeof samples / sizeof samples[0],
};
