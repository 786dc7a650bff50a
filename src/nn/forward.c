/* forward.c - steps that all layers share. */
#include "nn/forward.h"

#include <hark/experimental.h>

#include "core/compact.h"

hark_status hark_forward_parameter(const hark_forward *forward, hark_parameter_id id, hark_value *out) {
  *out = 0;
  if (id == 0) return HARK_OK;
  const hark_parameter *parameter = hark_parameters_at(forward->parameters, id);
  return hark_tape_leaf(forward->tape, &parameter->weight, forward->training ? &parameter->gradient : NULL, out);
}

hark_status hark_forward_operand(const hark_forward *forward, hark_value x, hark_value *operand) {
  *operand = x;
  if (!hark_forward_rounds(forward) || hark_tape_tensor(forward->tape, x)->type == HARK_BF16) return HARK_OK;
  return hark_tape_apply(forward->tape, &hark_op_round_bf16, NULL, 1, &x, 0, operand);
}

void hark_forward_operand_release(const hark_forward *forward, hark_value x, hark_value operand) {
  if (operand != x) hark_tape_release(forward->tape, operand);
}

bool hark_forward_is_compact(const hark_forward *forward, hark_parameter_id id) {
  return hark_type_is_compact(hark_parameters_at(forward->parameters, id)->weight.type);
}

hark_status hark_forward_scale(const hark_forward *forward, hark_parameter_id id, hark_value *out) {
  const hark_tensor *scale = &hark_parameters_at(forward->parameters, id)->scale;
  *out = 0;
  return scale->type != HARK_NONE ? hark_tape_leaf(forward->tape, scale, NULL, out) : HARK_OK;
}

hark_status hark_forward_dropout(const hark_forward *forward, double probability, int64_t layer, hark_dropout_place place,
                                 hark_value *value) {
  if (!forward->training || probability == 0) return HARK_OK;
  const hark_tensor *tensor = hark_tape_tensor(forward->tape, *value);
  const int64_t width = tensor->shape[tensor->rank - 1];
  uint64_t row_elements = tensor->shape[0] > 0 ? (uint64_t)(hark_tensor_count(tensor) / tensor->shape[0]) : 0;
  if (forward->rows > 0) row_elements = (uint64_t)(forward->rows * width);
  const hark_dropout_attributes attributes = {
      .probability = probability,
      .stream = {
          .seed = forward->seed,
          .first_index = forward->first_sample * ((row_elements + 3) / 4) + (uint64_t)(forward->slice_row * width * tensor->shape[0] / 4),
          .micro_step = forward->micro_step,
          .layer_purpose = hark_random_layer_purpose((uint32_t)(layer * HARK_DROPOUT_PLACES + place), HARK_RANDOM_DROPOUT)}};
  return hark_tape_apply(forward->tape, &hark_op_dropout, &attributes, 1, value, 1, value);
}

hark_status hark_forward_take_logit_rows(const hark_forward *forward, hark_value *x) {
  const hark_gather_rows_attributes attributes = {2};
  hark_value inputs[] = {*x, 0}, taken = 0;
  if (forward->logit_rows == NULL) return HARK_OK;
  HARK_TRY(hark_tape_leaf(forward->tape, forward->logit_rows, NULL, &inputs[1]));
  HARK_TRY(hark_tape_apply(forward->tape, &hark_op_gather_rows, &attributes, 2, inputs, 0, &taken));
  hark_tape_release(forward->tape, *x);
  *x = taken;
  return HARK_OK;
}

hark_status hark_forward_add(const hark_forward *forward, hark_value a, hark_value b, hark_value *out) {
  const hark_value inputs[] = {a, b};
  return hark_tape_apply(forward->tape, &hark_op_add, NULL, 2, inputs, 3, out);
}
