/* class_logits.c - logits of the classes of a table, from the posterior of their indicators.
 *
 *     y[n, c] = exp(a) m[n, c] (1 + exp(b + v[n, c]))^-1/2 + level[n, c]
 *
 * prediction [..., 2 C]: in each row C means m, then C logarithms of variances v; level [..., C], scale [2]: a and b; y [..., C]. The
 * factor of the mean is smaller where the posterior is wide (the approximation of MacKay 1992 for the mean of a logistic function of a
 * normal variable). With g that factor and u = exp(b + v): dm = dy g, dv = -dy m g u / (2 (1 + u)), da = sum dy m g, db = sum dv; level is
 * data.
 * Sums over rows are added in double, in the order of the rows. About 10 operations per class forward, 16 backward.
 */
#include <hark/experimental.h>

#include "core/range.h"
#include "ops/definition.h"

enum { INPUT_PREDICTION, INPUT_LEVEL, INPUT_SCALE, INPUT_COUNT };
enum { SCALE_MEAN, SCALE_VARIANCE, SCALES };

#define FORWARD_OPERATIONS 10.0 /* per class of a row */
#define BACKWARD_OPERATIONS 16.0

static hark_status infer(hark_context *context, const void *attributes, const hark_tensor *inputs, int input_count, hark_inferred *out) {
  static const hark_input_rule rules[INPUT_COUNT] = {
      {"prediction", HARK_F32, 1, HARK_MAX_RANK}, {"level", HARK_F32, 1, HARK_MAX_RANK}, {"scale", HARK_F32, 1, 1}};
  const hark_operator *const op = &hark_op_class_logits;
  HARK_TRY(hark_check_inputs(context, op, rules, attributes, inputs, input_count));
  const hark_tensor *prediction = &inputs[INPUT_PREDICTION], *level = &inputs[INPUT_LEVEL];
  bool fits = prediction->rank == level->rank && hark_row_length(prediction) == 2 * hark_row_length(level);
  for (int i = 0; fits && i + 1 < level->rank; i++) fits = prediction->shape[i] == level->shape[i];
  if (!fits) {
    char predicted[HARK_SHAPE_TEXT_BYTES], levels[HARK_SHAPE_TEXT_BYTES];
    return hark_fail(context, HARK_SHAPE_MISMATCH,
                     "class_logits: prediction has %s and level has %s, expected twice as many numbers in a row: means and logarithms of "
                     "variances",
                     hark_shape_text(prediction, predicted, sizeof predicted), hark_shape_text(level, levels, sizeof levels));
  }
  HARK_TRY(hark_check_vector(context, op, "scale", &inputs[INPUT_SCALE], SCALES, "of means and of variances"));
  HARK_TRY(hark_tensor_describe(context, level->type, level->rank, level->shape, &out->outputs[0]));
  return hark_size_multiply(context, (size_t)hark_row_count(level), SCALES * sizeof(double), &out->backward_workspace);
}

typedef struct logits {
  hark_numbers prediction;
  int64_t width;
  double factor, spread; /* exp(a), exp(b) */
} logits;

static logits logits_of(const hark_call *call) {
  const hark_numbers scale = hark_numbers_of(&call->inputs[INPUT_SCALE]);
  return (logits){.prediction = hark_numbers_of(&call->inputs[INPUT_PREDICTION]),
                  .width = hark_row_length(&call->inputs[INPUT_LEVEL]),
                  .factor = exp(hark_get(scale, SCALE_MEAN)),
                  .spread = exp(hark_get(scale, SCALE_VARIANCE))};
}

static void forward_rows(const hark_call *call, int64_t first, int64_t last) {
  const logits x = logits_of(call);
  const hark_numbers level = hark_numbers_of(&call->inputs[INPUT_LEVEL]), y = hark_numbers_of(&call->outputs[0]);
  for (int64_t n = first; n < last; n++)
    for (int64_t c = 0; c < x.width; c++) {
      const double m = hark_get(x.prediction, 2 * n * x.width + c), v = hark_get(x.prediction, (2 * n + 1) * x.width + c);
      hark_put(y, n * x.width + c, x.factor * m / sqrt(1 + x.spread * exp(v)) + hark_get(level, n * x.width + c));
    }
}

static hark_status forward(hark_context *context, const hark_call *call) {
  const hark_tensor *level = &call->inputs[INPUT_LEVEL];
  hark_range_for(context, call, hark_row_count(level), hark_row_grain(hark_row_length(level)), forward_rows);
  return HARK_OK;
}

/* y = g m + level, g = exp(a) / sqrt(1 + u), u = exp(b + v): dm = dy g, dv = -dy m g u / (2 (1 + u)), da = sum dy m g, db = sum dv */
static void backward_rows(const hark_call *call, int64_t first, int64_t last) {
  const logits x = logits_of(call);
  const hark_numbers dy = hark_numbers_of(&call->output_gradients[0]), dx = hark_gradient_of(call, INPUT_PREDICTION);
  double *const terms = call->workspace;
  for (int64_t n = first; n < last; n++) {
    double of_mean = 0, of_variance = 0;
    for (int64_t c = 0; c < x.width; c++) {
      const int64_t mean = 2 * n * x.width + c, variance = mean + x.width;
      const double m = hark_get(x.prediction, mean), u = x.spread * exp(hark_get(x.prediction, variance));
      const double g = x.factor / sqrt(1 + u), by_y = hark_get(dy, n * x.width + c);
      const double dv = -by_y * m * g / 2 * (u / (1 + u));
      if (dx.data != NULL) {
        hark_give(dx, mean, by_y * g);
        hark_give(dx, variance, dv);
      }
      of_mean += by_y * m * g;
      of_variance += dv;
    }
    terms[n * SCALES + SCALE_MEAN] = of_mean;
    terms[n * SCALES + SCALE_VARIANCE] = of_variance;
  }
}

static hark_status backward(hark_context *context, const hark_call *call) {
  if (hark_gradient_is_absent(call)) return HARK_OK;
  const hark_tensor *level = &call->inputs[INPUT_LEVEL];
  const int64_t rows = hark_row_count(level);
  const double *const terms = call->workspace;
  const hark_numbers dscale = hark_gradient_of(call, INPUT_SCALE);
  hark_range_for(context, call, rows, hark_row_grain(hark_row_length(level)), backward_rows);
  for (int s = 0; s < SCALES && dscale.data != NULL; s++) {
    double sum = 0;
    for (int64_t n = 0; n < rows; n++) sum += terms[n * SCALES + s];
    hark_give(dscale, s, sum);
  }
  return HARK_OK;
}

static double operations(const void *attributes, const hark_tensor *inputs, int input_count, bool is_backward) {
  (void)attributes, (void)input_count;
  return (is_backward ? BACKWARD_OPERATIONS : FORWARD_OPERATIONS) * (double)hark_tensor_count(&inputs[INPUT_LEVEL]);
}

/* dscale is a sum over all; exp(v) magnifies the rounding of v */
static int64_t terms(const void *attributes, const hark_tensor *inputs, int input_count) {
  (void)attributes, (void)input_count;
  return hark_max(1, 8 * hark_tensor_count(&inputs[INPUT_LEVEL]));
}

static const hark_sample samples[] = {
    {"one", NULL, {{HARK_F32, 1, {2}, -1, 1}, {HARK_F32, 1, {1}, -1, 1}, {HARK_F32, 1, {2}, -1, 1}}},
    {"none", NULL, {{HARK_F32, 2, {0, 6}, -1, 1}, {HARK_F32, 2, {0, 3}, -1, 1}, {HARK_F32, 1, {2}, -1, 1}}},
    {"rows", NULL, {{HARK_F32, 2, {33, 14}, -2, 2}, {HARK_F32, 2, {33, 7}, -3, 0}, {HARK_F32, 1, {2}, -1, 2}}},
    {"blocks", NULL, {{HARK_F32, 3, {5, 4, 34}, -2, 2}, {HARK_F32, 3, {5, 4, 17}, -3, 0}, {HARK_F32, 1, {2}, -1, 2}}},
    {"many", NULL, {{HARK_F32, 2, {1031, 4}, -2, 2}, {HARK_F32, 2, {1031, 2}, -3, 0}, {HARK_F32, 1, {2}, -1, 1}}},
};

const hark_operator hark_op_class_logits = {
    .name = "class_logits",
    .formula = "y[n, c] = exp(a) m[n, c] (1 + exp(b + v[n, c]))^-1/2 + level[n, c], prediction = (m, v), scale = (a, b)",
    .input_minimum = INPUT_COUNT,
    .input_maximum = INPUT_COUNT,
    .output_count = 1,
    .differentiable = 1u << INPUT_PREDICTION | 1u << INPUT_SCALE,
    .backward_inputs = 1u << INPUT_PREDICTION | 1u << INPUT_LEVEL | 1u << INPUT_SCALE,
    .gradient_in_place = 1u << INPUT_PREDICTION,
    .infer = infer,
    .forward = forward,
    .backward = backward,
    .operations = operations,
    .terms = terms,
    .samples = samples,
    .sample_count = sizeof samples / sizeof samples[0],
};
