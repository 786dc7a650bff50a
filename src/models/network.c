/* network.c - see network.h. */
#include "models/network.h"

#include <inttypes.h>
#include <math.h>

#include "models/stack.h"

const hark_architecture *hark_architecture_of(int kind) {
  static const hark_architecture *const rows[] = {
#define HARK_ARCHITECTURE_ROW(name, constant) &hark_architecture_##name,
      HARK_ARCHITECTURES(HARK_ARCHITECTURE_ROW)
#undef HARK_ARCHITECTURE_ROW
  };
  return kind >= 0 && kind < HARK_ARCHITECTURE_COUNT ? rows[kind] : NULL;
}

static hark_status check_rotary(hark_context *context, const hark_network_config *config) {
  const bool learned = config->rotary.learned != HARK_ROTARY_STATIC, scaled = config->rotary.scaling != HARK_ROTARY_AS_TRAINED;
  if ((learned || scaled) && config->positions != HARK_POSITIONS_ROTARY)
    return hark_fail(context, HARK_BAD_CONFIGURATION, "model.rotary.%s needs model.positions rotary", learned ? "learned" : "scaling");
  if (learned && scaled)
    return hark_fail(context, HARK_BAD_CONFIGURATION, "model.rotary.scaling is for static rates, and model.rotary.learned asks for others");
  if (!scaled) return HARK_OK;
  hark_rotary_tuning tuning;
  const hark_rotary_spec spec = hark_stack_rotary(config, &tuning);
  if (hark_rotary_depends_on_length(&spec) && (config->architecture != HARK_ARCHITECTURE_DECODER || config->sentences))
    return hark_fail(
        context, HARK_BAD_CONFIGURATION,
        "model.rotary.scaling dynamic and longrope depend on the length of a text, expected model.architecture decoder and texts "
        "that are read one by one, no sentences");
  return hark_rotary_check(context, &spec);
}

/* What a file may say that no configuration does. */
static hark_status check_ridge(hark_context *context, const hark_network_config *config) {
  if (!hark_layer_choice_has(&config->attention.normalisation, HARK_NORMALISATION_CME))
    return HARK_OK; /* configurations carry the fields always */
  if (!(config->attention.ridge > 0) || !isfinite(config->attention.ridge))
    return hark_fail(context, HARK_BAD_CONFIGURATION, "model.attention.ridge is %g, expected a finite number above 0",
                     config->attention.ridge);
  const int64_t apart = hark_layer_choice_without(&config->attention.normalisation, HARK_NORMALISATION_CME, &config->attention.structure,
                                                  HARK_STRUCTURE_DENSE, config->layers);
  if (apart >= 0)
    return hark_fail(context, HARK_BAD_CONFIGURATION,
                     "model.attention.normalisation cme needs model.attention.structure dense, in layer %" PRId64, apart);
  hark_rotary_tuning tuning;
  const hark_rotary_spec rotary = hark_stack_rotary(config, &tuning);
  if (config->attention.sigma_learned && config->attention.unit && hark_rotary_magnitude(&rotary) != 1)
    return hark_fail(context, HARK_BAD_CONFIGURATION,
                     "model.rotary.scaling %s enlarges queries and keys, which model.attention.unit undoes where "
                     "model.attention.sigma_learned is set",
                     config->rotary.scaling == HARK_ROTARY_YARN ? "yarn" : "longrope");
  if (config->attention.sigma_learned && config->attention.kernel != HARK_KERNEL_RBF)
    return hark_fail(context, HARK_BAD_CONFIGURATION, "model.attention.sigma_learned needs model.attention.kernel rbf");
  return HARK_OK;
}

static hark_status check_layers(hark_context *context, const hark_network_config *config) {
  const struct {
    const char *name;
    const hark_layer_choice *choice;
  } patterns[] = {{"structure", &config->attention.structure}, {"normalisation", &config->attention.normalisation}};
  for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++)
    if (patterns[i].choice->count > hark_max(1, config->layers))
      return hark_fail(context, HARK_BAD_CONFIGURATION,
                       "model.attention.%s has %d words for %" PRId64 " layers, expected one a layer or fewer", patterns[i].name,
                       (int)patterns[i].choice->count, config->layers);
  return HARK_OK;
}

static hark_status check(hark_context *context, const hark_network_config *config) {
  const struct {
    const char *name;
    int64_t value;
  } positive[] = {{"vocabulary", config->vocabulary}, {"layers", config->layers}, {"heads", config->heads},
                  {"key_heads", config->key_heads},   {"width", config->width},   {"feed_forward_width", config->feed_forward_width},
                  {"context", config->context}};
  for (size_t i = 0; i < sizeof positive / sizeof *positive; i++)
    if (positive[i].value < 1)
      return hark_fail(context, HARK_BAD_CONFIGURATION, "model.%s is %" PRId64 ", expected at least 1", positive[i].name,
                       positive[i].value);
  const bool apart = config->attention_width != 0;
  const int64_t width = apart ? config->attention_width : config->width;
  if (width < 1 || width % config->heads != 0)
    return hark_fail(context, HARK_BAD_CONFIGURATION, "model.%s %" PRId64 " is not a multiple of model.heads %" PRId64,
                     apart ? "attention_width" : "width", width, config->heads);
  if (config->heads % config->key_heads != 0)
    return hark_fail(context, HARK_BAD_CONFIGURATION, "model.heads %" PRId64 " is not a multiple of model.key_heads %" PRId64,
                     config->heads, config->key_heads);
  if (config->positions == HARK_POSITIONS_ROTARY && hark_network_head_dim(config) % 2 != 0)
    return hark_fail(context, HARK_BAD_CONFIGURATION,
                     "rotary positions turn pairs of features: model.%s / model.heads is %" PRId64 ", expected an even number",
                     apart ? "attention_width" : "width", hark_network_head_dim(config));
  HARK_TRY(check_layers(context, config));
  HARK_TRY(check_ridge(context, config));
  return check_rotary(context, config);
}

/* Real vectors go into some architectures, and numbers come out of these. */
static hark_status check_vectors(hark_context *context, const hark_network_config *config, const hark_architecture *architecture) {
  if (config->features < 0 || config->responses < 0 || (config->features > 0) != (config->responses > 0))
    return hark_fail(context, HARK_BAD_CONFIGURATION,
                     "vectors of %" PRId64 " features and %" PRId64 " responses, expected both at least 1, or none", config->features,
                     config->responses);
  if (config->features == 0 || architecture->predicts_vectors || architecture->may_read_vectors) return HARK_OK;
  return hark_fail(context, HARK_BAD_CONFIGURATION,
                   "model.architecture %s reads tokens of a vocabulary, and vectors of %" PRId64 " features are asked for",
                   architecture->name, config->features);
}

hark_status hark_network_declare(hark_context *context, const hark_network_config *config, hark_type type, hark_network **out) {
  *out = NULL;
  const hark_architecture *architecture = hark_architecture_of(config->architecture);
  if (architecture == NULL)
    return hark_fail(context, HARK_BAD_CONFIGURATION, "model.architecture is %d, expected one of " HARK_ARCHITECTURE_WORDS,
                     config->architecture);
  HARK_TRY(check(context, config));
  if (architecture->causal && config->attention.coarse_query == HARK_COARSE_QUERY_MEAN &&
      hark_layer_choice_has(&config->attention.structure, HARK_STRUCTURE_HIERARCHICAL))
    return hark_fail(
        context, HARK_BAD_CONFIGURATION,
        "model.attention.coarse_query is mean, and a causal model's queries know nothing of later ones, expected first or exact");
  if (architecture->check != NULL) HARK_TRY(architecture->check(context, config));
  HARK_TRY(check_vectors(context, config, architecture));
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
  hark_release(context, network, sizeof *network);
}

hark_status hark_network_plans_create(hark_context *context, const hark_network *network, const hark_pass_sizes *sizes, bool training,
                                      hark_attention_plan ***out) {
  *out = NULL;
  void *memory = NULL;
  HARK_TRY(hark_allocate_zero(context, (size_t)network->config.layers * sizeof **out, &memory));
  hark_attention_plan **plans = memory;
  for (int64_t layer = 0; network->blocks != NULL && layer < network->config.layers; layer++) {
    const hark_self_attention_spec *const spec = &network->blocks[layer].attention.spec;
    if (sizes->cached && hark_self_attention_has_record(spec)) continue;
    const hark_status status = hark_self_attention_plan(context, spec, network->parameters.type, sizes, training, &plans[layer]);
    if (status != HARK_OK) {
      hark_fail_prefix(context, "layer %" PRId64 ": ", layer);
      hark_network_plans_destroy(context, network, &plans);
      return status;
    }
  }
  *out = plans;
  return HARK_OK;
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
  for (int64_t layer = 0; layer < network->config.layers; layer++) hark_attention_plan_destroy(context, &plans[layer]);
  hark_release(context, plans, (size_t)network->config.layers * sizeof *plans);
}

hark_status hark_network_squared_error(hark_tape *tape, hark_value predictions, hark_value targets, double weight, hark_value *loss) {
  const hark_value inputs[] = {predictions, targets};
  const hark_squared_error_attributes attributes = {.weight = weight};
  return hark_tape_apply(tape, &hark_op_squared_error, &attributes, 2, inputs, 0, loss);
}

hark_status hark_network_loss(hark_tape *tape, hark_value logits, hark_value targets, double weight, double smoothing, hark_value *loss) {
  const hark_value inputs[] = {logits, targets};
  hark_value outputs[HARK_MAX_OUTPUTS] = {0};
  const hark_cross_entropy_attributes attributes = {.weight = weight, .smoothing = smoothing, .ignore = -1};
  HARK_TRY(hark_tape_apply(tape, &hark_op_cross_entropy, &attributes, 2, inputs, 0, outputs));
  *loss = outputs[0];
  hark_tape_release(tape, outputs[1]);
  return HARK_OK;
}
