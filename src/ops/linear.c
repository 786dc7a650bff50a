/* linear.c - y = x W^T + b.
 *
 * x [N, in], W [out, in], b [out] or absent, y [N, out]; the leading dimensions of x and y may be several, N is their product.
 * 2 N in out operations forward, twice that backward.
 * Gradients: dx = dy W, dW = dy^T x, db = 1^T dy.
 */
#include "ops/linear.h"

#include <inttypes.h>

/* Columns of the bias gradient that one piece of work sums: a cache line of doubles. */
#define COLUMNS 8

static hark_status infer(hark_context *context, const void *attributes, const hark_tensor *inputs, int input_count, hark_inferred *out) {
  static const hark_input_rule rules[HARK_LINEAR_INPUTS] = {
      {"x", HARK_F32, 1, HARK_MAX_RANK}, {"weight", HARK_F32, 2, 2}, {"bias", HARK_F32, 1, 1}};
  HARK_TRY(hark_check_inputs(context, &hark_op_linear, rules, attributes, inputs, input_count));
  const hark_tensor *x = &inputs[HARK_LINEAR_X], *weight = &inputs[HARK_LINEAR_WEIGHT];
  const int64_t features = weight->shape[0];
  if (weight->shape[1] != hark_row_length(x)) {
    char text_x[HARK_SHAPE_TEXT_BYTES], text_weight[HARK_SHAPE_TEXT_BYTES];
    return hark_fail(context, HARK_SHAPE_MISMATCH, "linear: weight has %s and x has %s, expected weight [out, %" PRId64 "]",
                     hark_shape_text(weight, text_weight, sizeof text_weight), hark_shape_text(x, text_x, sizeof text_x),
                     hark_row_length(x));
  }
  if (hark_has_input(inputs, input_count, HARK_LINEAR_BIAS)) {
    HARK_TRY(hark_check_vector(context, &hark_op_linear, "bias", &inputs[HARK_LINEAR_BIAS], features, "the rows of weight"));
  }
  int64_t shape[HARK_MAX_RANK];
  for (int i = 0; i + 1 < x->rank; i++) shape[i] = x->shape[i];
  shape[x->rank - 1] = features;
  HARK_TRY(hark_tensor_describe(context, x->type, x->rank, shape, &out->outputs[0]));
  return hark_partials_bytes(context, features, &out->backward_workspace);
}

static hark_status forward(hark_context *context, const hark_call *call) {
  const hark_tensor *x = &call->inputs[HARK_LINEAR_X], *weight = &call->inputs[HARK_LINEAR_WEIGHT], *bias = &call->inputs[HARK_LINEAR_BIAS];
  const hark_definition_product product = {.transpose_b = true,
                                           .batch = 1,
                                           .m = hark_row_count(x),
                                           .n = weight->shape[0],
                                           .k = weight->shape[1],
                                           .a = hark_numbers_of(x),
                                           .b = hark_numbers_of(weight),
                                           .c = hark_numbers_of(&call->outputs[0]),
                                           .bias = hark_numbers_of(bias)};
  hark_product(context, &product);
  return HARK_OK;
}

/* y[n, o] = ... + b[o]: db[o] = sum_n dy[n, o], for the columns [first, last) */
static void bias_gradient(const hark_call *call, int64_t first, int64_t last) {
  const hark_tensor *dy_tensor = &call->output_gradients[0];
  const hark_numbers dy = hark_numbers_of(dy_tensor), db = hark_gradient_of(call, HARK_LINEAR_BIAS);
  const int64_t rows = hark_row_count(dy_tensor), features = hark_row_length(dy_tensor);
  double sum[COLUMNS] = {0};
  for (int64_t n = 0; n < rows; n++) {
    for (int64_t o = first; o < last; o++) sum[o - first] += hark_get(dy, n * features + o);
  }
  for (int64_t o = first; o < last; o++) hark_give(db, o, sum[o - first]);
}

void hark_linear_bias_gradient(hark_context *context, const hark_call *call) {
  const hark_tensor *db = &call->input_gradients[HARK_LINEAR_BIAS];
  if (hark_present(db)) hark_range_for(context, call, hark_tensor_count(db), COLUMNS, bias_gradient);
}

static hark_status backward(hark_context *context, const hark_call *call) {
  if (hark_gradient_is_absent(call)) return HARK_OK;
  const hark_tensor *dy = &call->output_gradients[0];
  const hark_numbers dx = hark_gradient_of(call, HARK_LINEAR_X), dw = hark_gradient_of(call, HARK_LINEAR_WEIGHT);
  const int64_t rows = hark_row_count(dy), features = hark_row_length(dy);
  if (dx.data != NULL) { /* y = x W^T: dx = dy W */
    const hark_definition_product product = {.batch = 1,
                                             .m = rows,
                                             .n = hark_row_length(&call->input_gradients[HARK_LINEAR_X]),
                                             .k = features,
                                             .a = hark_numbers_of(dy),
                                             .b = hark_numbers_of(&call->inputs[HARK_LINEAR_WEIGHT]),
                                             .c = dx};
    hark_product(context, &product);
  }
  if (dw.data != NULL) { /* y = x W^T: dW = dy^T x */
    const hark_definition_product product = {.transpose_a = true,
                                             .batch = 1,
                                             .m = features,
                                             .n = call->input_gradients[HARK_LINEAR_WEIGHT].shape[1],
                                             .k = rows,
                                             .a = hark_numbers_of(dy),
                                             .b = hark_numbers_of(&call->inputs[HARK_LINEAR_X]),
                                             .c = dw};
    hark_product(context, &product);
  }
  hark_linear_bias_gradient(context, call);
  return HARK_OK;
}

double hark_linear_operations(const void *attributes, const hark_tensor *inputs, int input_count, bool is_backward) {
  (void)attributes, (void)input_count;
  const hark_tensor *weight = &inputs[HARK_LINEAR_WEIGHT];
  const double product = 2.0 * (double)hark_row_count(&inputs[HARK_LINEAR_X]) * (double)weight->shape[0] * (double)weight->shape[1];
  return is_backward ? 2 * product : product;
}

int64_t hark_linear_terms(const void *attributes, const hark_tensor *inputs, int input_count) {
  (void)attributes, (void)input_count;
  const hark_tensor *weight = &inputs[HARK_LINEAR_WEIGHT];
  return hark_max(hark_row_count(&inputs[HARK_LINEAR_X]), hark_max(weight->shape[0], weight->shape[1]) + 1);
}

static const hark_sample samples[] = {
    {"one", NULL, {{HARK_F32, 2, {1, 1}, -2, 2}, {HARK_F32, 2, {1, 1}, -1, 1}, {HARK_F32, 1, {1}, -1, 1}}},
    {"row", NULL, {{HARK_F32, 1, {19}, -2, 2}, {HARK_F32, 2, {23, 19}, -1, 1}, {HARK_F32, 1, {23}, -1, 1}}},
    {"primes", NULL, {{HARK_F32, 2, {13, 37}, -2, 2}, {HARK_F32, 2, {17, 37}, -1, 1}, {HARK_F32, 1, {17}, -1, 1}}},
    {"without_bias", NULL, {{HARK_F32, 3, {3, 5, 64}, -2, 2}, {HARK_F32, 2, {48, 64}, -1, 1}}},
    {"one_feature", NULL, {{HARK_F32, 2, {33, 31}, -2, 2}, {HARK_F32, 2, {1, 31}, -1, 1}, {HARK_F32, 1, {1}, -1, 1}}},
    {"from_one", NULL, {{HARK_F32, 2, {9, 1}, -2, 2}, {HARK_F32, 2, {40, 1}, -1, 1}, {HARK_F32, 1, {40}, -1, 1}}},
    {"wide", NULL, {{HARK_F32, 2, {5, 257}, -2, 2}, {HARK_F32, 2, {129, 257}, -1, 1}, {HARK_F32, 1, {129}, -1, 1}}},
    {"few_rows", NULL, {{HARK_F32, 2, {7, 401}, -2, 2}, {HARK_F32, 2, {530, 401}, -1, 1}, {HARK_F32, 1, {530}, -1, 1}}},
    {"long_sums", NULL, {{HARK_F32, 2, {257, 391}, -2, 2}, {HARK_F32, 2, {37, 391}, -1, 1}, {HARK_F32, 1, {37}, -1, 1}}},
    {"many_features", NULL, {{HARK_F32, 2, {67, 31}, -2, 2}, {HARK_F32, 2, {523, 31}, -1, 1}, {HARK_F32, 1, {523}, -1, 1}}},
    {"large", NULL, {{HARK_F32, 2, {301, 401}, -2, 2}, {HARK_F32, 2, {270, 401}, -1, 1}, {HARK_F32, 1, {270}, -1, 1}}},
    {"many_rows", NULL, {{HARK_F32, 3, {2, 257, 16}, -2, 2}, {HARK_F32, 2, {24, 16}, -1, 1}, {HARK_F32, 1, {24}, -1, 1}}},
};

const hark_operator hark_op_linear = {
    .name = "linear",
    .formula = "y = x W^T + b",
    .input_minimum = 2,
    .input_maximum = HARK_LINEAR_INPUTS,
    .output_count = 1,
    .differentiable = 1u << HARK_LINEAR_X | 1u << HARK_LINEAR_WEIGHT | 1u << HARK_LINEAR_BIAS,
    .backward_inputs = 1u << HARK_LINEAR_X | 1u << HARK_LINEAR_WEIGHT,
    .infer = infer,
    .forward = forward,
    .backward = backward,
    .operations = hark_linear_operations,
    .terms = hark_linear_terms,
    .samples = samples,
    .sample_count = sizeof samples / sizeof samples[0],
};
