/* rowwise.c - common parts of the operators that map rows to rows. */
#include "ops/rowwise.h"

double hark_rowwise_square(hark_numbers x, int64_t first, int64_t width) {
  double sum = 0;
  for (int64_t i = first; i < first + width; i++) sum += hark_get(x, i) * hark_get(x, i);
  return sum;
}

hark_status hark_rowwise_forward(hark_context *context, const hark_call *call, hark_range_body *rows) {
  const hark_tensor *x = &call->inputs[0];
  hark_range_for(context, call, hark_row_count(x), hark_row_grain(hark_row_length(x)), rows);
  return HARK_OK;
}

hark_status hark_rowwise_backward(hark_context *context, const hark_call *call, hark_range_body *rows) {
  if (hark_gradient_is_absent(call) || !hark_present(&call->input_gradients[0])) return HARK_OK;
  return hark_rowwise_forward(context, call, rows);
}

int64_t hark_rowwise_terms(const void *attributes, const hark_tensor *inputs, int input_count) {
  (void)attributes, (void)input_count;
  return hark_max(1, hark_row_length(&inputs[0]));
}
