/* layers.c - linear, norm and feed-forward layers. */
#include "nn/layers.h"

#include <hark/experimental.h>

hark_status hark_linear_declare(hark_context *context, hark_parameters *parameters, int64_t in, int64_t out, bool bias, double deviation,
                                const char *prefix, hark_linear *layer) {
  *layer = (hark_linear){0};
  const hark_parameter_spec weight = {.rank = 2,
                                      .shape = {out, in},
                                      .initial = HARK_INITIAL_NORMAL,
                                      .value = hark_deviation_for(deviation, in, out),
                                      .decays = true,
                                      .compact = true};
  HARK_TRY(hark_parameters_add(context, parameters, &weight, &layer->weight, "%s.weight", prefix));
  if (!bias) return HARK_OK;
  const hark_parameter_spec offset = {.rank = 1, .shape = {out}, .initial = HARK_INITIAL_ZERO};
  return hark_parameters_add(context, parameters, &offset, &layer->bias, "%s.bias", prefix);
}

/* The same from bf16 operands; the gradient of the weight is that of the f32 weight. */
static hark_status apply_rounded(const hark_forward *forward, const hark_linear *layer, hark_value x, hark_value *out) {
  const hark_tensor half = hark_parameters_half(forward->parameters, layer->weight);
  hark_value inputs[3] = {0};
  HARK_TRY(hark_forward_operand(forward, x, &inputs[0]));
  const hark_tensor *const gradient = &hark_parameters_at(forward->parameters, layer->weight)->gradient;
  HARK_TRY(hark_tape_leaf(forward->tape, &half, forward->training ? gradient : NULL, &inputs[1]));
  HARK_TRY(hark_forward_parameter(forward, layer->bias, &inputs[2]));
  HARK_TRY(hark_tape_apply(forward->tape, &hark_op_linear_bf16, NULL, 3, inputs, 0, out));
  hark_forward_operand_release(forward, x, inputs[0]);
  return HARK_OK;
}

hark_status hark_linear_apply(const hark_forward *forward, const hark_linear *layer, hark_value x, hark_value *out) {
  hark_value inputs[4] = {x};
  if (hark_forward_rounds(forward)) return apply_rounded(forward, layer, x, out);
  HARK_TRY(hark_forward_parameter(forward, layer->weight, &inputs[1]));
  if (hark_forward_is_compact(forward, layer->weight)) {
    HARK_TRY(hark_forward_scale(forward, layer->weight, &inputs[2]));
    HARK_TRY(hark_forward_parameter(forward, layer->bias, &inputs[3]));
    return hark_tape_apply(forward->tape, &hark_op_linear_compact, NULL, 4, inputs, 0, out);
  }
  HARK_TRY(hark_forward_parameter(forward, layer->bias, &inputs[2]));
  return hark_tape_apply(forward->tape, &hark_op_linear, NULL, 3, inputs, 0, out);
}

hark_status hark_embedding_apply(const hark_forward *forward, hark_parameter_id table, hark_value ids, hark_value *out) {
  hark_value inputs[3] = {ids};
  HARK_TRY(hark_forward_parameter(forward, table, &inputs[1]));
  if (!hark_forward_is_compact(forward, table)) return hark_tape_apply(forward->tape, &hark_op_embedding, NULL, 2, inputs, 0, out);
  HARK_TRY(hark_forward_scale(forward, table, &inputs[2]));
  return hark_tape_apply(forward->tape, &hark_op_embedding_compact, NULL, 3, inputs, 0, out);
}

hark_status hark_norm_declare(hark_context *context, hark_parameters *parameters, hark_norm kind, double epsilon, int64_t features,
                              bool bias, const char *prefix, hark_norm_layer *layer) {
  *layer = (hark_norm_layer){.kind = kind, .epsilon = epsilon};
  const hark_parameter_spec weight = {.rank = 1, .shape = {features}, .initial = HARK_INITIAL_ONE};
  HARK_TRY(hark_parameters_add(context, parameters, &weight, &layer->weight, "%s.weight", prefix));
  if (!bias || kind != HARK_NORM_LAYER) return HARK_OK;
  const hark_parameter_spec offset = {.rank = 1, .shape = {features}, .initial = HARK_INITIAL_ZERO};
  return hark_parameters_add(context, parameters, &offset, &layer->bias, "%s.bias", prefix);
}

hark_status hark_norm_apply(const hark_forward *forward, const hark_norm_layer *layer, hark_value x, hark_value *out) {
  hark_value inputs[3] = {x};
  HARK_TRY(hark_forward_parameter(forward, layer->weight, &inputs[1]));
  HARK_TRY(hark_forward_parameter(forward, layer->bias, &inputs[2]));
  const hark_norm_attributes attributes = {.epsilon = layer->epsilon};
  if (layer->kind == HARK_NORM_RMS) return hark_tape_apply(forward->tape, &hark_op_rms_norm, &attributes, 2, inputs, 0, out);
  return hark_tape_apply(forward->tape, &hark_op_layer_norm, &attributes, 3, inputs, 0, out);
}

static hark_status declare_part(hark_context *context, hark_parameters *parameters, int64_t in, int64_t out, bool bias, double deviation,
                                const char *prefix, const char *part, hark_linear *layer) {
  char name[HARK_PARAMETER_NAME_BYTES];
  hark_join_name(name, prefix, part);
  return hark_linear_declare(context, parameters, in, out, bias, deviation, name, layer);
}

static bool is_gated(hark_activation activation) {
  return activation == HARK_ACTIVATION_GATED_SILU || activation == HARK_ACTIVATION_GATED_GELU ||
         activation == HARK_ACTIVATION_GATED_GELU_TANH;
}

hark_status hark_feed_forward_declare(hark_context *context, hark_parameters *parameters, hark_activation activation, int64_t width,
                                      int64_t inner, bool bias, double deviation, double output_deviation, const char *prefix,
                                      hark_feed_forward *layer) {
  *layer = (hark_feed_forward){.activation = activation};
  if (is_gated(activation)) HARK_TRY(declare_part(context, parameters, width, inner, bias, deviation, prefix, "gate", &layer->gate));
  HARK_TRY(declare_part(context, parameters, width, inner, bias, deviation, prefix, "up", &layer->up));
  return declare_part(context, parameters, inner, width, bias, output_deviation, prefix, "down", &layer->down);
}

/* Releases the values, two of a gated activation and one of the others. *out may be one of them. */
static hark_status activate(const hark_forward *forward, hark_activation activation, const hark_value *values, hark_value *out) {
  static const hark_gelu_attributes exact = {.tanh_approximation = false}, approximate = {.tanh_approximation = true};
  hark_tape *const tape = forward->tape;
  switch (activation) {
    case HARK_ACTIVATION_GELU: return hark_tape_apply(tape, &hark_op_gelu, &exact, 1, values, 1, out);
    case HARK_ACTIVATION_GELU_TANH: return hark_tape_apply(tape, &hark_op_gelu, &approximate, 1, values, 1, out);
    case HARK_ACTIVATION_RELU: return hark_tape_apply(tape, &hark_op_relu, NULL, 1, values, 1, out);
    case HARK_ACTIVATION_GATED_SILU: return hark_tape_apply(tape, &hark_op_gated_silu, NULL, 2, values, 3, out);
    case HARK_ACTIVATION_GATED_GELU: return hark_tape_apply(tape, &hark_op_gated_gelu, &exact, 2, values, 3, out);
    case HARK_ACTIVATION_GATED_GELU_TANH: return hark_tape_apply(tape, &hark_op_gated_gelu, &approximate, 2, values, 3, out);
    case HARK_ACTIVATION_SILU: break;
  }
  return hark_tape_apply(tape, &hark_op_silu, NULL, 1, values, 1, out);
}

hark_status hark_feed_forward_apply(const hark_forward *forward, const hark_feed_forward *layer, hark_value x, hark_value *out) {
  hark_value inner = 0;
  if (is_gated(layer->activation)) {
    hark_value parts[2] = {0};
    hark_value operand = 0;
    HARK_TRY(hark_forward_operand(forward, x, &operand));
    HARK_TRY(hark_linear_apply(forward, &layer->gate, operand, &parts[0]));
    HARK_TRY(hark_linear_apply(forward, &layer->up, operand, &parts[1]));
    hark_forward_operand_release(forward, x, operand);
    HARK_TRY(activate(forward, layer->activation, parts, &inner));
  } else {
    HARK_TRY(hark_linear_apply(forward, &layer->up, x, &inner));
    HARK_TRY(activate(forward, layer->activation, &inner, &inner));
  }
  HARK_TRY(hark_linear_apply(forward, &layer->down, inner, out));
  hark_tape_release(forward->tape, inner);
  return HARK_OK;
}
