/* unit_rows.c - y[n, :] = x[n, :] / |x[n, :]|: rows of length 1. A row of zeros stays zero.
 *
 * x, y [..., D]. With u = x / |x|:  dx = (dy - u (u . dy)) / |x|, zero for a row of zeros. 3 D operations per row forward, 6 D backward.
 */
#include "ops/rowwise.h"

enum { INPUT_X, INPUT_COUNT };

#define FORWARD_OPERATIONS 3.0 /* per element */
#define BACKWARD_OPERATIONS 6.0

static hark_status infer(hark_context *context, const void *attributes, const hark_tensor *inputs, int input_count, hark_inferred *out) {
  static const hark_input_rule rules[INPUT_COUNT] = {{"x", HARK_F32, 1, HARK_MAX_RANK}};
  HARK_TRY(hark_check_inputs(context, &hark_op_unit_rows, rules, attributes, inputs, input_count));
  return hark_tensor_describe(context, inputs[INPUT_X].type, inputs[INPUT_X].rank, inputs[INPUT_X].shape, &out->outputs[0]);
}

/* 1 / |x| of a row; 0 for a row of zeros. */
static double inverse_length(hark_numbers x, int64_t first, int64_t width) {
  const double sum = hark_rowwise_square(x, first, width);
  return sum == 0 ? 0 : 1 / sqrt(sum);
}

static void forward_rows(const hark_call *call, int64_t first, int64_t last) {
  const hark_numbers x = hark_numbers_of(&call->inputs[INPUT_X]), y = hark_numbers_of(&call->outputs[0]);
  const int64_t width = hark_row_length(&call->inputs[INPUT_X]);
  for (int64_t n = first; n < last; n++) {
    const double inverse = inverse_length(x, n * width, width);
    for (int64_t i = n * width; i < (n + 1) * width; i++) hark_put(y, i, inverse * hark_get(x, i));
  }
}

/* y = x / |x|: dx = (dy - u (u . dy)) / |x| */
static void backward_rows(const hark_call *call, int64_t first, int64_t last) {
  const hark_numbers x = hark_numbers_of(&call->inputs[INPUT_X]), dy = hark_numbers_of(&call->output_gradients[0]);
  const hark_numbers dx = hark_gradient_of(call, INPUT_X);
  const int64_t width = hark_row_length(&call->inputs[INPUT_X]);
  for (int64_t n = first; n < last; n++) {
    const double inverse = inverse_length(x, n * width, width);
    double along = 0; /* u . dy */
    for (int64_t i = n * width; i < (n + 1) * width; i++) along += inverse * hark_get(x, i) * hark_get(dy, i);
    for (int64_t i = n * width; i < (n + 1) * width; i++) hark_give(dx, i, inverse * (hark_get(dy, i) - inverse * hark_get(x, i) * along));
  }
}

HARK_ROWWISE(FORWARD_OPERATIONS, BACKWARD_OPERATIONS);

static const hark_sample samples[] = {
    {"one", NULL, {{HARK_F32, 1, {3}, 0.25, 1}}},       {"pairs", NULL, {{HARK_F32, 2, {7, 2}, 0.25, 1}}},
    {"rows", NULL, {{HARK_F32, 2, {5, 17}, -1, 1}}},    {"blocks", NULL, {{HARK_F32, 3, {5, 4, 9}, -1, 1}}},
    {"many", NULL, {{HARK_F32, 2, {131, 129}, -1, 1}}}, {"large", NULL, {{HARK_F32, 2, {3, 33}, -100, 100}}},
    {"none", NULL, {{HARK_F32, 2, {0, 5}, -1, 1}}},
};

const hark_operator hark_op_unit_rows = {
    .name = "unit_rows",
    .formula = "y[n] = x[n] / |x[n]|",
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
