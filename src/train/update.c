/* update.c - see update.h. AdamW works number by number, so it updates groups of parameters at once. Adafactor takes means over the numbers
 * of one weight, so it updates one parameter after the other. */
#include "train/update.h"

#include <math.h>

#define FACTOR_EPSILON 1e-30 /* epsilon_1 and epsilon_2 of the paper, algorithm 6 */
#define LEAST_SCALE 1e-3

static double rate_factor(const hark_config *config, hark_rate_kind kind) {
  const double factors[HARK_RATE_KINDS] = {
      [HARK_RATE_PLAIN] = 1, [HARK_RATE_POSITIONAL] = config->train.positional_rate, [HARK_RATE_ROTARY] = config->train.rotary_rate};
  return factors[kind];
}

static double decay_of(const hark_config *config, bool decays) { return decays ? config->train.weight_decay : 0.0; }

/* ---- AdamW ---- */

static hark_status update_group(hark_context *context, const hark_engine *engine, const hark_update *update,
                                const hark_parameter_group *group) {
  const hark_config *config = engine->config;
  const hark_parameters *parameters = &engine->network->parameters;
  const hark_adamw_attributes attributes = {.rate = update->rate * rate_factor(config, group->rate),
                                            .beta1 = config->train.beta1,
                                            .beta2 = config->train.beta2,
                                            .epsilon = config->train.epsilon,
                                            .decay = decay_of(config, group->decays),
                                            .gradient_scale = update->gradient_scale,
                                            .step = update->step};
  hark_parameter_group moments = *group;
  moments.first -= engine->share.range.first;
  const hark_call call = {
      .op = &hark_op_adamw,
      .attributes = &attributes,
      .input_count = 4,
      .inputs = {hark_parameters_part(&parameters->weights, group), hark_parameters_part(&parameters->gradients, group),
                 hark_parameters_part(&engine->first_moment, &moments), hark_parameters_part(&engine->second_moment, &moments)}};
  return hark_operator_forward(context, &call);
}

static hark_status update_groups(hark_context *context, const hark_engine *engine, const hark_update *update) {
  const hark_parameters *parameters = &engine->network->parameters;
  for (int i = 0; i < parameters->group_count; i++) {
    const hark_parameter_group group = hark_moment_share_part(&engine->share, &parameters->groups[i]);
    if (group.rate != HARK_RATE_FROZEN && group.count > 0) HARK_TRY(update_group(context, engine, update, &group));
  }
  return HARK_OK;
}

/* ---- Adafactor ---- */

enum { WEIGHT, GRADIENT, SECOND_MOMENT, COLUMN_MOMENT, FIRST_MOMENT, INPUTS };

/* Numbers of a flat buffer from `first` on, in the shape of a weight or as a vector. The buffer of an engine without memory has no data. */
static hark_tensor like_weight(const hark_tensor *flat, int64_t first, const hark_parameter *parameter) {
  hark_tensor tensor = parameter->weight;
  tensor.owned_bytes = 0;
  tensor.data = flat->data == NULL ? NULL : (float *)flat->data + first;
  return tensor;
}

static hark_tensor vector_of(const hark_tensor *flat, int64_t first, int64_t count) {
  hark_tensor tensor = *flat;
  tensor.owned_bytes = 0;
  tensor.shape[0] = count;
  tensor.data = flat->data == NULL ? NULL : (float *)flat->data + first;
  return tensor;
}

static void gather_inputs(const hark_engine *engine, const hark_parameter *parameter, const hark_moment_place *place,
                          hark_tensor inputs[INPUTS]) {
  const int64_t *const shape = parameter->spec.shape;
  inputs[WEIGHT] = parameter->weight;
  inputs[GRADIENT] = parameter->gradient;
  inputs[SECOND_MOMENT] = place->factored ? vector_of(&engine->second_moment, place->second, shape[0])
                                          : like_weight(&engine->second_moment, place->second, parameter);
  if (place->factored) inputs[COLUMN_MOMENT] = vector_of(&engine->second_moment, place->columns, shape[1]);
  if (place->first_too) inputs[FIRST_MOMENT] = like_weight(&engine->first_moment, place->first, parameter);
}

static hark_adafactor_attributes attributes_of(const hark_config *config, const hark_parameter_spec *spec, const hark_update *update) {
  return (hark_adafactor_attributes){.rate = update->rate * rate_factor(config, spec->rate),
                                     .beta1 = config->train.adafactor.beta1,
                                     .beta2 = 1 - pow((double)update->step, -config->train.adafactor.decay_exponent),
                                     .epsilon = FACTOR_EPSILON,
                                     .least_scale = config->train.adafactor.relative ? LEAST_SCALE : 0,
                                     .most = config->train.adafactor.update_clip,
                                     .decay = decay_of(config, spec->decays),
                                     .gradient_scale = update->gradient_scale};
}

static hark_status update_parameters(hark_context *context, const hark_engine *engine, const hark_update *update) {
  const hark_parameters *parameters = &engine->network->parameters;
  int64_t end = 0;
  for (int32_t i = 0; i < parameters->count; i++) {
    const hark_parameter *const parameter = &parameters->list[i];
    const hark_moment_place place = hark_moment_place_next(engine->config, parameter, &end);
    if (parameter->spec.rate == HARK_RATE_FROZEN) continue;
    const hark_adafactor_attributes attributes = attributes_of(engine->config, &parameter->spec, update);
    hark_call call = {.op = &hark_op_adafactor,
                      .attributes = &attributes,
                      .input_count = INPUTS,
                      .workspace = engine->workspace.data,
                      .workspace_bytes = engine->workspace.owned_bytes};
    gather_inputs(engine, parameter, &place, call.inputs);
    HARK_TRY(hark_operator_forward(context, &call));
  }
  return HARK_OK;
}

hark_status hark_update_weights(hark_context *context, hark_engine *engine, const hark_update *update) {
  return (engine->config->train.optimiser == HARK_OPTIMISER_ADAFACTOR ? update_parameters : update_groups)(context, engine, update);
}

hark_status hark_update_workspace(hark_context *context, const hark_engine *engine, size_t *bytes) {
  const hark_parameters *parameters = &engine->network->parameters;
  const hark_update first = {.rate = 0, .gradient_scale = 1, .step = 1};
  int64_t end = 0;
  *bytes = 0;
  for (int32_t i = 0; i < parameters->count && engine->config->train.optimiser == HARK_OPTIMISER_ADAFACTOR; i++) {
    const hark_parameter *const parameter = &parameters->list[i];
    const hark_moment_place place = hark_moment_place_next(engine->config, parameter, &end);
    const hark_adafactor_attributes attributes = attributes_of(engine->config, &parameter->spec, &first);
    hark_tensor inputs[INPUTS] = {{0}};
    hark_inferred inferred = {0};
    gather_inputs(engine, parameter, &place, inputs);
    HARK_TRY(hark_op_adafactor.infer(context, &attributes, inputs, INPUTS, &inferred));
    if (inferred.forward_workspace > *bytes) *bytes = inferred.forward_workspace;
  }
  return HARK_OK;
}
