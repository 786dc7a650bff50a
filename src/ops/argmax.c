/* argmax.c - y[n] = the index v of the largest x[n, v].
 *
 * x [N, V], V >= 1; y i32 [N]. The first of equal values; a NaN counts as largest, so that it is noticed. N V comparisons. Not
 * differentiable.
 */
#include <inttypes.h>

#include "ops/definition.h"

enum { INPUT_X, INPUT_COUNT };

static hark_status infer(hark_context *context, const void *attributes, const hark_tensor *inputs, int input_count, hark_inferred *out) {
  static const hark_input_rule rules[INPUT_COUNT] = {{"x", HARK_F32, 1, HARK_MAX_RANK}};
  HARK_TRY(hark_check_inputs(context, &hark_op_argmax, rules, attributes, inputs, input_count));
  const hark_tensor *x = &inputs[INPUT_X];
  if (hark_row_length(x) < 1 || hark_row_length(x) > INT32_MAX) {
    return hark_fail(context, HARK_SHAPE_MISMATCH, "argmax: rows of x have %" PRId64 " numbers, expected 1 to %" PRId32, hark_row_length(x),
                     INT32_MAX);
  }
  return hark_tensor_describe(context, HARK_I32, x->rank - 1, x->shape, &out->outputs[0]);
}

static void forward_rows(const hark_call *call, int64_t first, int64_t last) {
  const hark_tensor *input = &call->inputs[INPUT_X];
  const int64_t count = hark_row_length(input);
  int32_t *y = call->outputs[0].data;
  for (int64_t n = first; n < last; n++) {
    const hark_numbers x = hark_numbers_from(hark_numbers_of(input), n * count);
    double most = hark_get(x, 0);
    int64_t best = 0;
    for (int64_t v = 1; v < count && !isnan(most); v++) {
      const double candidate = hark_get(x, v);
      if (!(candidate > most) && !isnan(candidate)) continue;
      most = candidate;
      best = v;
    }
    y[n] = (int32_t)best;
  }
}

static hark_status forward(hark_context *context, const hark_call *call) {
  const hark_tensor *x = &call->inputs[INPUT_X];
  hark_range_for(context, call, hark_row_count(x), hark_row_grain(hark_row_length(x)), forward_rows);
  return HARK_OK;
}

static double operations(const void *attributes, const hark_tensor *inputs, int input_count, bool is_backward) {
  (void)attributes, (void)input_count;
  return is_backward ? 0 : (double)hark_tensor_count(&inputs[INPUT_X]);
}

static int64_t terms(const void *attributes, const hark_tensor *inputs, int input_count) {
  (void)attributes, (void)inputs, (void)input_count;
  return 1;
}

static const hark_sample samples[] = {
    {"one", NULL, {{HARK_F32, 2, {1, 1}, -2, 2}}},       {"vector", NULL, {{HARK_F32, 1, {17}, -2, 2}}},
    {"classes", NULL, {{HARK_F32, 2, {33, 10}, -2, 2}}}, {"tokens", NULL, {{HARK_F32, 3, {3, 7, 257}, -2, 2}}},
    {"equal", NULL, {{HARK_F32, 2, {5, 19}, 3, 3}}},
};

const hark_operator hark_op_argmax = {
    .name = "argmax",
    .formula = "y[n] = the v of the largest x[n, v]",
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
