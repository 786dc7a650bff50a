/* network.c - see network.h. */
#include "models/network.h"
#include "models/regressor.h"

#include <hark/experimental.h>
#include <inttypes.h>
#include <math.h>

#include "io/number.h"
#include "models/model_rules.h"
#include "nn/attention_cache.h"

const hark_architecture *hark_architecture_of(int kind) {
  static const hark_architecture *const rows[] = {
#define HARK_ARCHITECTURE_ROW(name, constant) &hark_architecture_##name,
      HARK_ARCHITECTURES(HARK_ARCHITECTURE_ROW)
#undef HARK_ARCHITECTURE_ROW
  };
  return kind >= 0 && kind < HARK_ARCHITECTURE_COUNT ? rows[kind] : NULL;
}

/* Refuses numbers that are out of range in a struct that was filled by hand. Files and configurations are checked by the table of options
 * (model_options.h); the rules between options (model_rules.h) divide by some of these numbers. */
static hark_status check_numbers(hark_context *context, const hark_network_config *config) {
  const struct {
    const char *name;
    int64_t value, least;
  } numbers[] = {{"vocabulary", config->vocabulary, 1}, {"layers", config->layers, 1},
                 {"heads", config->heads, 1},           {"key_heads", config->key_heads, 1},
                 {"width", config->width, 1},           {"feed_forward_width", config->feed_forward_width, 1},
                 {"context", config->context, 1},       {"attention_width", config->attention_width, 0}};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
    if (numbers[i].value < numbers[i].least)
      return hark_fail(context, HARK_BAD_CONFIGURATION, "model.%s is %" PRId64 ", expected at least %" PRId64, numbers[i].name,
                       numbers[i].value, numbers[i].least);
  if (hark_layer_choice_has(&config->attention.normalisation, HARK_NORMALISATION_CME) &&
      (!(config->attention.ridge > 0) || !isfinite(config->attention.ridge)))
    return hark_fail(context, HARK_BAD_CONFIGURATION, "model.attention.ridge is %s, expected a finite number above 0",
                     HARK_PRINTED(config->attention.ridge));
  return HARK_OK;
}

hark_status hark_network_declare(hark_context *context, const hark_network_config *config, hark_type type, hark_network **out) {
  *out = NULL;
  const hark_architecture *architecture = hark_architecture_of(config->architecture);
  if (architecture == NULL)
    return hark_fail(context, HARK_BAD_CONFIGURATION, "model.architecture is %d, expected one of " HARK_ARCHITECTURE_WORDS,
                     config->architecture);
  HARK_TRY(check_numbers(context, config));
  if (architecture->check != NULL) HARK_TRY(architecture->check(context, config));
  HARK_TRY(hark_model_rules_require(context, config));
  void *memory = NULL;
  HARK_TRY(hark_allocate_zero(context, sizeof(hark_network), &memory));
  hark_network *network = memory;
  network->architecture = architecture;
  network->config = *config;
  hark_parameters_open(&network->parameters, type);
  const hark_status status = architecture->declare(context, network);
  if (status != HARK_OK) {
    hark_network_destroy(context, &network);
    return status;
  }
  *out = network;
  return HARK_OK;
}

hark_status hark_network_create(hark_context *context, const hark_network_config *config, hark_type type, bool training,
                                hark_network **out) {
  HARK_TRY(hark_network_declare(context, config, type, out));
  const hark_status status = hark_parameters_finish(context, &(*out)->parameters, training);
  if (status != HARK_OK) hark_network_destroy(context, out);
  return status;
}

void hark_network_destroy(hark_context *context, hark_network **network_pointer) {
  if (network_pointer == NULL || *network_pointer == NULL) return;
  hark_network *network = *network_pointer;
  *network_pointer = NULL;
  hark_parameters_close(context, &network->parameters);
  if (network->architecture->close != NULL) network->architecture->close(context, network);
  hark_positional_source_close(context, &network->positional_source);
  hark_rotary_source_close(context, &network->rotary_source);
  hark_rotary_tables_close(context, &network->rotary_tables);
  hark_release(context, network->blocks, (size_t)network->config.layers * sizeof *network->blocks);
  hark_release(context, network->local, (size_t)network->config.ahca.local_layers * sizeof *network->local);
  hark_release(context, network, sizeof *network);
}

hark_status hark_network_row_unit(hark_context *context, const hark_network *network, const hark_pass_sizes *sizes, int64_t *unit) {
  *unit = 0;
  for (int64_t layer = 0; network->blocks != NULL && layer < network->config.layers; layer++) {
    int64_t own = 0;
    const hark_status status =
        hark_self_attention_row_unit(context, &network->blocks[layer].attention.spec, network->parameters.type, sizes, &own);
    if (status != HARK_OK) hark_fail_prefix(context, "layer %" PRId64 ": ", layer);
    HARK_TRY(status);
    *unit = hark_max(*unit, own); /* powers of two */
  }
  return HARK_OK;
}

/* The number of blocks that have plans, and these blocks; NULL: none has. */
static int64_t planned_blocks(const hark_network *network, const hark_block **blocks) {
  if (network->regressor != NULL) {
    *blocks = network->regressor->blocks;
    return network->config.layers;
  }
  *blocks = network->blocks != NULL ? network->blocks : network->local;
  return *blocks != NULL && *blocks == network->local ? network->config.ahca.local_layers : network->config.layers;
}

hark_status hark_network_plans_create(hark_context *context, const hark_network *network, const hark_pass_sizes *sizes, bool training,
                                      hark_attention_plan ***out) {
  *out = NULL;
  void *memory = NULL;
  const hark_block *blocks = NULL;
  const int64_t count = planned_blocks(network, &blocks);
  hark_status status = HARK_OK;
  HARK_TRY(hark_allocate_zero(context, (size_t)(count + 1) * sizeof **out, &memory));
  hark_attention_plan **plans = memory;
  hark_pass_sizes own = *sizes;
  own.product_type = network->parameters.halves.type;
  for (int64_t layer = 0; blocks != NULL && layer < count; layer++) {
    const hark_self_attention_spec *const spec = &blocks[layer].attention.spec;
    if (sizes->cached && hark_attention_cache_has_operator(spec)) continue;
    status = hark_self_attention_plan(context, spec, network->parameters.type, &own, training, &plans[layer]);
    if (status == HARK_OK) continue;
    hark_fail_prefix(context, "layer %" PRId64 ": ", layer);
    break;
  }
  if (status == HARK_OK && network->regressor != NULL) status = hark_regressor_plan(context, network, &own, training, &plans[count]);
  if (status == HARK_OK)
    *out = plans;
  else
    hark_network_plans_destroy(context, network, &plans);
  return status;
}

hark_status hark_network_plans_rectangular(hark_context *context, const hark_network *network, int64_t batch, int64_t queries, int64_t keys,
                                           bool training, hark_attention_plan ***out) {
  const hark_pass_sizes sizes = {.batch = batch, .queries = queries, .keys = keys};
  return hark_network_plans_create(context, network, &sizes, training, out);
}

void hark_network_plans_destroy(hark_context *context, const hark_network *network, hark_attention_plan ***plans_pointer) {
  hark_attention_plan **plans = *plans_pointer;
  if (plans == NULL) return;
  *plans_pointer = NULL;
  const hark_block *blocks = NULL;
  const int64_t count = planned_blocks(network, &blocks);
  for (int64_t layer = 0; layer <= count; layer++) hark_attention_plan_destroy(context, &plans[layer]);
  hark_release(context, plans, (size_t)(count + 1) * sizeof *plans);
}

hark_status hark_network_squared_error(hark_tape *tape, hark_value predictions, hark_value targets, double weight, hark_value *loss) {
  const hark_value inputs[] = {predictions, targets};
  const hark_squared_error_attributes attributes = {.weight = weight};
  return hark_tape_apply(tape, &hark_op_squared_error, &attributes, 2, inputs, 0, loss);
}

hark_status hark_network_gaussian_loss(hark_tape *tape, hark_value predictions, hark_value targets, double weight, bool squared,
                                       hark_value *loss) {
  const hark_value inputs[] = {predictions, targets};
  const hark_gaussian_loss_attributes attributes = {.weight = weight, .squared = squared};
  return hark_tape_apply(tape, &hark_op_gaussian_loss, &attributes, 2, inputs, 0, loss);
}

hark_status hark_network_loss(hark_tape *tape, hark_value logits, hark_value targets, hark_target_loss how, hark_value *loss) {
  const hark_value inputs[] = {logits, targets};
  hark_value outputs[HARK_MAX_OUTPUTS] = {0};
  const hark_cross_entropy_attributes attributes = {.weight = how.weight, .smoothing = how.smoothing, .ignore = -1, .z = how.z};
  HARK_TRY(hark_tape_apply(tape, &hark_op_cross_entropy, &attributes, 2, inputs, 0, outputs));
  *loss = outputs[0];
  hark_tape_release(tape, outputs[1]);
  return HARK_OK;
}
