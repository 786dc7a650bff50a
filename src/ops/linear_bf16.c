/* linear_bf16.c - y = x W^T + b from bf16 numbers.
 *
 * x [N, in] and W [out, in] bf16, b [out] or absent, y [N, out] of the type of b, else f32; the leading dimensions of x and y may be
 * several. 2 N in out operations forward, twice that backward. With r the rounding to bf16 (core/half.h):
 *
 *     dx = r(dy) W,  dW = r(dy)^T x,  db = 1^T dy
 *
 * Subnormal operands count as zeros, in f32 before they are rounded and in bf16, as they do for the instructions of processors. The sums of
 * the definition are in double; kernels add in f32, in the order of backend/cpu/isa/bf16_product.c.
 */
#include <float.h>
#include <hark/experimental.h>
#include <inttypes.h>
#include <math.h>

#include "core/half.h"
#include "ops/linear.h"

static hark_status infer(hark_context *context, const void *attributes, const hark_tensor *inputs, int input_count, hark_inferred *out) {
  static const hark_input_rule rules[HARK_LINEAR_INPUTS] = {
      {"x", HARK_BF16, 1, HARK_MAX_RANK}, {"weight", HARK_BF16, 2, 2}, {"bias", HARK_F32, 1, 1}};
  HARK_TRY(hark_check_inputs(context, &hark_op_linear_bf16, rules, attributes, inputs, input_count));
  const hark_tensor *x = &inputs[HARK_LINEAR_X], *weight = &inputs[HARK_LINEAR_WEIGHT];
  const int64_t features = weight->shape[0];
  const int64_t shape[] = {features, hark_row_length(x)};
  HARK_TRY(hark_check_shape(context, &hark_op_linear_bf16, "weight", weight, 2, shape));
  const bool biased = hark_has_input(inputs, input_count, HARK_LINEAR_BIAS);
  if (biased) HARK_TRY(hark_check_vector(context, &hark_op_linear_bf16, "bias", &inputs[HARK_LINEAR_BIAS], features, "the rows of weight"));
  int64_t extents[HARK_MAX_RANK];
  for (int i = 0; i + 1 < x->rank; i++) extents[i] = x->shape[i];
  extents[x->rank - 1] = features;
  return hark_tensor_describe(context, biased ? inputs[HARK_LINEAR_BIAS].type : HARK_F32, x->rank, extents, &out->outputs[0]);
}

/* A number as a product uses it. */
static double used(uint16_t bits) {
  const bool subnormal = (bits & 0x7F80) == 0;
  return subnormal ? 0 : (double)hark_half_widen(HARK_BF16, bits);
}
static double number(const hark_tensor *tensor, int64_t i) { return used(((const uint16_t *)tensor->data)[i]); }
static double rounded(hark_numbers numbers, int64_t i) {
  const float x = (float)hark_get(numbers, i);
  return fabsf(x) < FLT_MIN ? 0 : used(hark_half_narrow(HARK_BF16, x));
}

/* The elements [first, last) of y. */
static void forward_range(const hark_call *call, int64_t first, int64_t last) {
  const hark_tensor *x = &call->inputs[HARK_LINEAR_X], *weight = &call->inputs[HARK_LINEAR_WEIGHT], *bias = &call->inputs[HARK_LINEAR_BIAS];
  const hark_numbers y = hark_numbers_of(&call->outputs[0]);
  const int64_t outputs = weight->shape[0], inputs = weight->shape[1];
  for (int64_t i = first; i < last; i++) {
    const int64_t n = i / outputs, o = i % outputs;
    double sum = hark_present(bias) ? hark_get(hark_numbers_of(bias), o) : 0;
    for (int64_t k = 0; k < inputs; k++) sum += number(x, n * inputs + k) * number(weight, o * inputs + k);
    hark_put(y, i, sum);
  }
}

static hark_status forward(hark_context *context, const hark_call *call) {
  const int64_t inputs = call->inputs[HARK_LINEAR_WEIGHT].shape[1];
  hark_range_for(context, call, hark_tensor_count(&call->outputs[0]), hark_row_grain(inputs), forward_range);
  return HARK_OK;
}

/* y[n, :] = W x[n, :] + ...: dx[n, k] = sum_o r(dy[n, o]) W[o, k], for the elements [first, last) */
static void x_gradient(const hark_call *call, int64_t first, int64_t last) {
  const hark_tensor *weight = &call->inputs[HARK_LINEAR_WEIGHT];
  const hark_numbers dy = hark_numbers_of(&call->output_gradients[0]), dx = hark_gradient_of(call, HARK_LINEAR_X);
  const int64_t outputs = weight->shape[0], inputs = weight->shape[1];
  for (int64_t i = first; i < last; i++) {
    const int64_t n = i / inputs, k = i % inputs;
    double sum = 0;
    for (int64_t o = 0; o < outputs; o++) sum += rounded(dy, n * outputs + o) * number(weight, o * inputs + k);
    hark_give(dx, i, sum);
  }
}

/* y[n, o] = sum_k W[o, k] x[n, k] + ...: dW[o, k] = sum_n r(dy[n, o]) x[n, k], for the elements [first, last) */
static void weight_gradient(const hark_call *call, int64_t first, int64_t last) {
  const hark_tensor *x = &call->inputs[HARK_LINEAR_X];
  const hark_numbers dy = hark_numbers_of(&call->output_gradients[0]), dw = hark_gradient_of(call, HARK_LINEAR_WEIGHT);
  const int64_t rows = hark_row_count(x), inputs = hark_row_length(x), outputs = hark_row_length(&call->output_gradients[0]);
  for (int64_t i = first; i < last; i++) {
    const int64_t o = i / inputs, k = i % inputs;
    double sum = 0;
    for (int64_t n = 0; n < rows; n++) sum += rounded(dy, n * outputs + o) * number(x, n * inputs + k);
    hark_give(dw, i, sum);
  }
}

static hark_status backward(hark_context *context, const hark_call *call) {
  if (hark_gradient_is_absent(call)) return HARK_OK;
  const hark_tensor *dy = &call->output_gradients[0], *dx = &call->input_gradients[HARK_LINEAR_X],
                    *dw = &call->input_gradients[HARK_LINEAR_WEIGHT];
  if (hark_present(dx)) hark_range_for(context, call, hark_tensor_count(dx), hark_row_grain(hark_row_length(dy)), x_gradient);
  if (hark_present(dw)) hark_range_for(context, call, hark_tensor_count(dw), hark_row_grain(hark_row_count(dy)), weight_gradient);
  hark_linear_bias_gradient(context, call);
  return HARK_OK;
}

static const hark_sample samples[] = {
    {"one", NULL, {{HARK_BF16, 2, {1, 1}, -2, 2}, {HARK_BF16, 2, {1, 1}, -1, 1}, {HARK_F32, 1, {1}, -1, 1}}},
    {"row", NULL, {{HARK_BF16, 1, {19}, -2, 2}, {HARK_BF16, 2, {23, 19}, -1, 1}, {HARK_F32, 1, {23}, -1, 1}}},
    {"primes", NULL, {{HARK_BF16, 2, {13, 37}, -2, 2}, {HARK_BF16, 2, {17, 37}, -1, 1}, {HARK_F32, 1, {17}, -1, 1}}},
    {"without_bias", NULL, {{HARK_BF16, 3, {3, 5, 64}, -2, 2}, {HARK_BF16, 2, {48, 64}, -1, 1}}},
    {"one_feature", NULL, {{HARK_BF16, 2, {33, 31}, -2, 2}, {HARK_BF16, 2, {1, 31}, -1, 1}, {HARK_F32, 1, {1}, -1, 1}}},
    {"from_one", NULL, {{HARK_BF16, 2, {9, 1}, -2, 2}, {HARK_BF16, 2, {40, 1}, -1, 1}, {HARK_F32, 1, {40}, -1, 1}}},
    {"none", NULL, {{HARK_BF16, 2, {0, 5}, -2, 2}, {HARK_BF16, 2, {3, 5}, -1, 1}, {HARK_F32, 1, {3}, -1, 1}}},
    {"two_slices", NULL, {{HARK_BF16, 2, {5, 515}, -2, 2}, {HARK_BF16, 2, {29, 515}, -1, 1}, {HARK_F32, 1, {29}, -1, 1}}},
    {"long_sums", NULL, {{HARK_BF16, 2, {1031, 35}, -2, 2}, {HARK_BF16, 2, {13, 35}, -1, 1}, {HARK_F32, 1, {13}, -1, 1}}},
    {"pieces", NULL, {{HARK_BF16, 2, {259, 67}, -2, 2}, {HARK_BF16, 2, {263, 67}, -1, 1}, {HARK_F32, 1, {263}, -1, 1}}},
    {"many_features", NULL, {{HARK_BF16, 2, {37, 31}, -2, 2}, {HARK_BF16, 2, {523, 31}, -1, 1}, {HARK_F32, 1, {523}, -1, 1}}},
};

const hark_operator hark_op_linear_bf16 = {
    .name = "linear_bf16",
    .formula = "y = x W^T + b, x and W in bf16",
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
