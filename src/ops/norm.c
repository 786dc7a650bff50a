/* norm.c - inference and execution of the normalisation operators. */
#include "ops/norm.h"

#include "core/range.h"
#include "io/number.h"

hark_status hark_norm_infer(hark_context *context, const hark_operator *op, const void *attributes, const hark_tensor *inputs,
                            int input_count, int saved, hark_inferred *out) {
  static const hark_input_rule rules[] = {{"x", HARK_F32, 1, HARK_MAX_RANK}, {"gain", HARK_F32, 1, 1}, {"bias", HARK_F32, 1, 1}};
  HARK_TRY(hark_check_inputs(context, op, rules, attributes, inputs, input_count));
  const double epsilon = ((const hark_norm_attributes *)attributes)->epsilon;
  const hark_tensor *x = &inputs[HARK_NORM_X];
  const int64_t rows = hark_row_count(x), width = hark_row_length(x);
  if (!(epsilon >= 0) || !isfinite(epsilon)) {
    return hark_fail(context, HARK_INVALID_ARGUMENT, "%s: epsilon is %s, expected 0 or more", op->name, HARK_PRINTED(epsilon));
  }
  HARK_TRY(hark_check_range(context, op->name, "epsilon", epsilon, x->type, hark_range_of(x->type)));
  if (width == 0) return hark_fail(context, HARK_SHAPE_MISMATCH, "%s: rows of x have no features, expected at least one", op->name);
  HARK_TRY(hark_check_vector(context, op, "gain", &inputs[HARK_NORM_GAIN], width, "the features of x"));
  if (hark_has_input(inputs, input_count, HARK_NORM_BIAS)) {
    HARK_TRY(hark_check_vector(context, op, "bias", &inputs[HARK_NORM_BIAS], width, "the features of x"));
  }
  HARK_TRY(hark_tensor_describe(context, x->type, x->rank, x->shape, &out->outputs[0]));
  for (int i = 0; i < saved; i++) HARK_TRY(hark_tensor_describe(context, x->type, 1, &rows, &out->saved[i]));
  return hark_partials_bytes(context, width, &out->backward_workspace);
}

hark_status hark_norm_forward(hark_context *context, const hark_call *call, hark_range_body *rows) {
  const hark_tensor *x = &call->inputs[HARK_NORM_X];
  hark_range_for(context, call, hark_row_count(x), hark_row_grain(hark_row_length(x)), rows);
  return HARK_OK;
}

hark_status hark_norm_backward(hark_context *context, const hark_call *call, hark_range_body *rows, hark_range_body *columns) {
  if (hark_gradient_is_absent(call)) return HARK_OK;
  const hark_tensor *x = &call->inputs[HARK_NORM_X], *gradients = call->input_gradients;
  const int64_t width = hark_row_length(x);
  if (hark_present(&gradients[HARK_NORM_GAIN]) || hark_present(&gradients[HARK_NORM_BIAS])) {
    hark_range_for(context, call, width, HARK_NORM_COLUMNS, columns);
  }
  if (hark_present(&gradients[HARK_NORM_X])) hark_range_for(context, call, hark_row_count(x), hark_row_grain(width), rows);
  return HARK_OK;
}

int64_t hark_norm_terms(const void *attributes, const hark_tensor *inputs, int input_count) {
  (void)attributes, (void)input_count;
  return hark_max(hark_row_length(&inputs[HARK_NORM_X]), hark_row_count(&inputs[HARK_NORM_X]));
}
