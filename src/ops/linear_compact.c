/* linear_compact.c - y = x W^T + b with W in bf16, f16 or i8.
 *
 * x [N, in], W [out, in], b [out] or absent, y [N, out]. i8: s[n] = max_i |x[n, i]| / 127, q[n, i] = x[n, i] / s[n] to the nearest integer,
 * ties to even, y[n, o] = s[n] scale[o] sum_i q[n, i] W[o, i] + b[o]; the sum is exact in 32 bits.
 * |q - x / s| <= 1/2, so an i8 product differs from that of the same weights in f32 by at most s / 2 sum_i |scale[o] W[o, i]|.
 * 2 N in out operations. Weights that do not change have no gradient, and generation needs none by x: there is no backward.
 */
#include <inttypes.h>

#include "ops/compact.h"

enum { INPUT_X, INPUT_WEIGHT, INPUT_SCALE, INPUT_BIAS, INPUT_COUNT };

static hark_status check(hark_context *context, const hark_tensor *inputs, int input_count) {
  const hark_tensor absent = {0}, *x = &inputs[INPUT_X], *weight = &inputs[INPUT_WEIGHT];
  const int64_t features = weight->shape[0], length = hark_row_length(x);
  if (weight->shape[1] != length) {
    char text_x[HARK_SHAPE_TEXT_BYTES], text_weight[HARK_SHAPE_TEXT_BYTES];
    return hark_fail(context, HARK_SHAPE_MISMATCH, "linear_compact: weight has %s and x has %s, expected weight [out, %" PRId64 "]",
                     hark_shape_text(weight, text_weight, sizeof text_weight), hark_shape_text(x, text_x, sizeof text_x), length);
  }
  if (weight->type == HARK_I8 && length > HARK_I8_MOST_TERMS)
    return hark_fail(context, HARK_TOO_LARGE, "linear_compact: %" PRId64 " features, an i8 weight allows at most %d", length,
                     (int)HARK_I8_MOST_TERMS);
  const hark_tensor *scale = input_count > INPUT_SCALE ? &inputs[INPUT_SCALE] : &absent;
  HARK_TRY(hark_check_scale(context, &hark_op_linear_compact, "weight", weight, scale));
  if (!hark_has_input(inputs, input_count, INPUT_BIAS)) return HARK_OK;
  return hark_check_vector(context, &hark_op_linear_compact, "bias", &inputs[INPUT_BIAS], features, "the rows of weight");
}

/* i8: s in double, then q; halves: a part of the weight in f32 for a kernel that needs it. */
static hark_status workspace(hark_context *context, const hark_tensor *x, const hark_tensor *weight, size_t *bytes) {
  const int64_t rows = hark_row_count(x), length = hark_row_length(x);
  size_t scales = 0;
  *bytes = 0;
  if (weight->type == HARK_I8) {
    HARK_TRY(hark_size_multiply(context, (size_t)rows, sizeof(double), &scales));
    HARK_TRY(hark_size_multiply(context, (size_t)hark_tensor_count(x), sizeof(int8_t), bytes));
    return hark_size_add(context, *bytes, scales, bytes);
  }
  if (rows < HARK_COMPACT_FEW_ROWS && !context->deterministic) return HARK_OK;
  HARK_TRY(hark_size_multiply(context, (size_t)hark_compact_panel_rows(weight->shape[0], length), (size_t)length, bytes));
  return hark_size_multiply(context, *bytes, sizeof(float), bytes);
}

static hark_status infer(hark_context *context, const void *attributes, const hark_tensor *inputs, int input_count, hark_inferred *out) {
  const hark_input_rule rules[INPUT_COUNT] = {{"x", HARK_F32, 1, HARK_MAX_RANK},
                                              {"weight", hark_compact_rule(inputs, input_count, INPUT_WEIGHT), 2, 2},
                                              {"scale", HARK_F32, 1, 1},
                                              {"bias", HARK_F32, 1, 1}};
  HARK_TRY(hark_check_inputs(context, &hark_op_linear_compact, rules, attributes, inputs, input_count));
  HARK_TRY(check(context, inputs, input_count));
  const hark_tensor *x = &inputs[INPUT_X], *weight = &inputs[INPUT_WEIGHT];
  int64_t shape[HARK_MAX_RANK];
  for (int i = 0; i + 1 < x->rank; i++) shape[i] = x->shape[i];
  shape[x->rank - 1] = weight->shape[0];
  HARK_TRY(hark_tensor_describe(context, x->type, x->rank, shape, &out->outputs[0]));
  return workspace(context, x, weight, &out->forward_workspace);
}

/* q and s of the rows [first, last) */
static void quantise_rows(const hark_call *call, int64_t first, int64_t last) {
  const hark_tensor *x = &call->inputs[INPUT_X];
  const hark_numbers numbers = hark_numbers_of(x);
  const int64_t length = hark_row_length(x);
  double *s = call->workspace;
  int8_t *q = (int8_t *)(s + hark_row_count(x));
  for (int64_t n = first; n < last; n++) {
    double largest = 0, sum = 0; /* the sum is NaN if a number is not finite */
    for (int64_t i = 0; i < length; i++) {
      largest = fmax(largest, fabs(hark_get(numbers, n * length + i)));
      sum += 0 * hark_get(numbers, n * length + i);
    }
    s[n] = largest / HARK_I8_LARGEST + sum;
    for (int64_t i = 0; i < length; i++) {
      const double quotient = s[n] > 0 ? hark_get(numbers, n * length + i) * HARK_I8_LARGEST / largest : 0;
      q[n * length + i] = (int8_t)nearbyint(quotient);
    }
  }
}

/* y[n, o] = s[n] scale[o] sum_i q[n, i] W[o, i] + b[o], or sum_i x[n, i] W[o, i] + b[o] */
static void forward_outputs(const hark_call *call, int64_t first, int64_t last) {
  const hark_tensor *x = &call->inputs[INPUT_X], *weight = &call->inputs[INPUT_WEIGHT];
  const hark_numbers numbers = hark_numbers_of(x), scale = hark_numbers_of(&call->inputs[INPUT_SCALE]),
                     bias = hark_numbers_of(&call->inputs[INPUT_BIAS]), y = hark_numbers_of(&call->outputs[0]);
  const int64_t features = weight->shape[0], length = weight->shape[1];
  const bool whole = weight->type == HARK_I8;
  const double *s = call->workspace;
  const int8_t *q = whole ? (const int8_t *)(s + hark_row_count(x)) : NULL;
  for (int64_t at = first; at < last; at++) {
    const int64_t n = at / features, o = at % features;
    double sum = 0;
    for (int64_t i = 0; i < length; i++)
      sum += (whole ? (double)q[n * length + i] : hark_get(numbers, n * length + i)) * hark_compact_get(weight, o, i);
    if (whole) sum *= s[n] * hark_get(scale, o);
    hark_put(y, at, sum + (bias.data != NULL ? hark_get(bias, o) : 0));
  }
}

static hark_status forward(hark_context *context, const hark_call *call) {
  const hark_tensor *x = &call->inputs[INPUT_X], *weight = &call->inputs[INPUT_WEIGHT];
  const int64_t grain = hark_row_grain(hark_row_length(x));
  if (weight->type == HARK_I8) hark_range_for(context, call, hark_row_count(x), grain, quantise_rows);
  if (weight->shape[0] > 0) hark_range_for(context, call, hark_row_count(x) * weight->shape[0], grain, forward_outputs);
  return HARK_OK;
}

static double operations(const void *attributes, const hark_tensor *inputs, int input_count, bool is_backward) {
  (void)attributes, (void)input_count, (void)is_backward;
  return 2.0 * (double)hark_tensor_count(&inputs[INPUT_X]) * (double)inputs[INPUT_WEIGHT].shape[0];
}

static int64_t terms(const void *attributes, const hark_tensor *inputs, int input_count) {
  (void)attributes, (void)input_count;
  return inputs[INPUT_WEIGHT].type == HARK_I8 ? 2 : inputs[INPUT_WEIGHT].shape[1] + 1;
}

static const hark_sample samples[] = {
    {"one", NULL, {{HARK_F32, 2, {1, 1}, -2, 2}, {HARK_BF16, 2, {1, 1}, -1, 1}, {HARK_NONE, 0, {0}, 0, 0}, {HARK_F32, 1, {1}, -1, 1}}},
    {"row", NULL, {{HARK_F32, 1, {19}, -2, 2}, {HARK_BF16, 2, {23, 19}, -1, 1}, {HARK_NONE, 0, {0}, 0, 0}, {HARK_F32, 1, {23}, -1, 1}}},
    {"few_rows",
     NULL,
     {{HARK_F32, 2, {7, 401}, -2, 2}, {HARK_BF16, 2, {530, 401}, -1, 1}, {HARK_NONE, 0, {0}, 0, 0}, {HARK_F32, 1, {530}, -1, 1}}},
    {"many_rows", NULL, {{HARK_F32, 3, {2, 33, 67}, -2, 2}, {HARK_BF16, 2, {129, 67}, -1, 1}}},
    {"panels",
     NULL,
     {{HARK_F32, 2, {17, 1031}, -2, 2}, {HARK_BF16, 2, {1100, 1031}, -1, 1}, {HARK_NONE, 0, {0}, 0, 0}, {HARK_F32, 1, {1100}, -1, 1}}},
    {"f16", NULL, {{HARK_F32, 2, {3, 37}, -2, 2}, {HARK_F16, 2, {41, 37}, -1, 1}, {HARK_NONE, 0, {0}, 0, 0}, {HARK_F32, 1, {41}, -1, 1}}},
    {"f16_small", NULL, {{HARK_F32, 2, {5, 67}, -2, 2}, {HARK_F16, 2, {13, 67}, -1e-5, 1e-5}}},
    {"f16_many_rows", NULL, {{HARK_F32, 2, {19, 37}, -2, 2}, {HARK_F16, 2, {41, 37}, -1, 1}}},
    {"i8_one", NULL, {{HARK_F32, 2, {1, 1}, -2, 2}, {HARK_I8, 2, {1, 1}, -127, 127}, {HARK_F32, 1, {1}, .01, .02}}},
    {"i8_row",
     NULL,
     {{HARK_F32, 1, {67}, -2, 2}, {HARK_I8, 2, {43, 67}, -127, 127}, {HARK_F32, 1, {43}, .01, .02}, {HARK_F32, 1, {43}, -1, 1}}},
    {"i8_few_rows",
     NULL,
     {{HARK_F32, 2, {7, 401}, -2, 2}, {HARK_I8, 2, {530, 401}, -128, 127}, {HARK_F32, 1, {530}, .01, .02}, {HARK_F32, 1, {530}, -1, 1}}},
    {"i8_many_rows", NULL, {{HARK_F32, 3, {2, 71, 97}, -2, 2}, {HARK_I8, 2, {129, 97}, -127, 127}, {HARK_F32, 1, {129}, .01, .02}}},
};

const hark_operator hark_op_linear_compact = {
    .name = "linear_compact",
    .formula = "y = x W^T + b, W of bf16, f16 or i8",
    .input_minimum = 2,
    .input_maximum = INPUT_COUNT,
    .output_count = 1,
    .infer = infer,
    .forward = forward,
    .operations = operations,
    .terms = terms,
    .samples = samples,
    .sample_count = sizeof samples / sizeof samples[0],
};
