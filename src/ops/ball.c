/* ball.c - y[n,:] = x[n,:] min(1, r / |x[n,:]|): projects every row to the ball of radius r around 0.
 *
 * x, y [..., D]. Within the ball dx = dy; outside, with u = x / |x|, dx = (r / |x|) (dy - u (u.dy)). The distance of two points does not
 * increase: the Lipschitz constant is 1. 3 D operations per row forward, 5 D backward.
 */
#include <hark/experimental.h>

#include "io/number.h"
#include "ops/rowwise.h"

enum { INPUT_X, INPUT_COUNT };

#define FORWARD_OPERATIONS 3.0 /* per element */
#define BACKWARD_OPERATIONS 5.0

static hark_status infer(hark_context *context, const void *attributes, const hark_tensor *inputs, int input_count, hark_inferred *out) {
  static const hark_input_rule rules[INPUT_COUNT] = {{"x", HARK_F32, 1, HARK_MAX_RANK}};
  HARK_TRY(hark_check_inputs(context, &hark_op_ball, rules, attributes, inputs, input_count));
  const double radius = ((const hark_ball_attributes *)attributes)->radius;
  if (!(radius > 0) || !isfinite(radius)) {
    return hark_fail(context, HARK_INVALID_ARGUMENT, "ball: radius is %s, expected a finite number above 0", HARK_PRINTED(radius));
  }
  return hark_tensor_describe(context, inputs[INPUT_X].type, inputs[INPUT_X].rank, inputs[INPUT_X].shape, &out->outputs[0]);
}

static void forward_rows(const hark_call *call, int64_t first, int64_t last) {
  const double radius = ((const hark_ball_attributes *)call->attributes)->radius;
  const hark_numbers x = hark_numbers_of(&call->inputs[INPUT_X]), y = hark_numbers_of(&call->outputs[0]);
  const int64_t width = hark_row_length(&call->inputs[INPUT_X]);
  for (int64_t n = first; n < last; n++) {
    const double length = sqrt(hark_rowwise_square(x, n * width, width)),
                 factor = length <= radius ? 1 : radius / length; /* NaN for a NaN */
    for (int64_t i = n * width; i < (n + 1) * width; i++) hark_put(y, i, factor * hark_get(x, i));
  }
}

/* y = r x / |x| outside: dx = (r / |x|) (dy - x (x.dy) / |x|^2) */
static void backward_rows(const hark_call *call, int64_t first, int64_t last) {
  const double radius = ((const hark_ball_attributes *)call->attributes)->radius;
  const hark_numbers x = hark_numbers_of(&call->inputs[INPUT_X]), dy = hark_numbers_of(&call->output_gradients[0]);
  const hark_numbers dx = hark_gradient_of(call, INPUT_X);
  const int64_t width = hark_row_length(&call->inputs[INPUT_X]);
  for (int64_t n = first; n < last; n++) {
    const double length = sqrt(hark_rowwise_square(x, n * width, width));
    const bool outside = !(length <= radius);
    double along = 0;
    for (int64_t i = n * width; outside && i < (n + 1) * width; i++) along += hark_get(x, i) * hark_get(dy, i);
    const double factor = outside ? radius / length : 1, share = outside ? along / (length * length) : 0;
    for (int64_t i = n * width; i < (n + 1) * width; i++) hark_give(dx, i, factor * (hark_get(dy, i) - share * hark_get(x, i)));
  }
}

HARK_ROWWISE(FORWARD_OPERATIONS, BACKWARD_OPERATIONS);

static const hark_ball_attributes half = {0.5}, wide = {100}, tenth = {0.1};

static const hark_sample samples[] = {
    {"one", &half, {{HARK_F32, 1, {1}, 0.75, 1}}},        {"within", &wide, {{HARK_F32, 2, {7, 33}, -1, 1}}},
    {"outside", &tenth, {{HARK_F32, 2, {5, 17}, -1, 1}}}, {"some", &half, {{HARK_F32, 2, {40, 2}, -1, 1}}},
    {"blocks", &half, {{HARK_F32, 3, {5, 4, 3}, -1, 1}}}, {"many", &tenth, {{HARK_F32, 2, {131, 129}, -1, 1}}},
    {"zeros", &half, {{HARK_F32, 2, {3, 5}, 0, 0}}},      {"none", &half, {{HARK_F32, 2, {0, 5}, -1, 1}}},
};

const hark_operator hark_op_ball = {
    .name = "ball",
    .formula = "y[n] = x[n] min(1, radius / |x[n]|)",
    .attributes_size = sizeof(hark_ball_attributes),
    .input_minimum = INPUT_COUNT,
    .input_maximum = INPUT_COUNT,
    .output_count = 1,
    .differentiable = 1u << INPUT_X,
    .backward_inputs = 1u << INPUT_X,
    .infer = infer,
    .forward = forward,
    .backward = backward,
    .operations = operations,
    .terms = hark_rowwise_terms,
    .samples = samples,
    .sample_count = sizeof samples / sizeof samples[0],
};
