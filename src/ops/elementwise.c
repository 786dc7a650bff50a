/* elementwise.c - inference and execution of the operators whose inputs and output have one shape. */
#include "ops/elementwise.h"

hark_status hark_elementwise_infer(hark_context *context, const hark_operator *op, const char *const *names, const void *attributes,
                                   const hark_tensor *inputs, int input_count, hark_inferred *out) {
  hark_input_rule rules[HARK_MAX_INPUTS];
  for (int i = 0; i < op->input_maximum; i++) rules[i] = (hark_input_rule){names[i], HARK_F32, 0, HARK_MAX_RANK};
  HARK_TRY(hark_check_inputs(context, op, rules, attributes, inputs, input_count));
  for (int i = 1; i < input_count; i++) {
    HARK_TRY(hark_check_same_shape(context, op, names[0], &inputs[0], names[i], &inputs[i]));
  }
  return hark_tensor_describe(context, inputs[0].type, inputs[0].rank, inputs[0].shape, &out->outputs[0]);
}

hark_status hark_elementwise_forward(hark_context *context, const hark_call *call, hark_range_body *body) {
  hark_range_for(context, call, hark_tensor_count(&call->outputs[0]), HARK_DEFINITION_GRAIN, body);
  return HARK_OK;
}

hark_status hark_elementwise_backward(hark_context *context, const hark_call *call, hark_range_body *body) {
  if (hark_gradient_is_absent(call)) return HARK_OK;
  bool requested = false;
  for (int i = 0; i < call->input_count; i++) requested = requested || hark_present(&call->input_gradients[i]);
  if (requested) hark_range_for(context, call, hark_tensor_count(&call->output_gradients[0]), HARK_DEFINITION_GRAIN, body);
  return HARK_OK;
}
