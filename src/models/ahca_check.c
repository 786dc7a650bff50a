/* ahca_check.c - what an AHCA model's configuration may be. See ahca.h. */
#include <hark/experimental.h>
#include <inttypes.h>
#include <math.h>

#include "models/ahca_layers.h"

static hark_status check_sizes(hark_context *context, const hark_network_config *config) {
  const hark_ahca_config *ahca = &config->ahca;
  const struct {
    const char *name;
    int64_t value, least;
  } numbers[] = {{"chunk_size", ahca->chunk_size, 1},
                 {"chunk_minimum", ahca->chunk_minimum, 0},
                 {"chunk_maximum", ahca->chunk_maximum, 0},
                 {"window", ahca->window, 1},
                 {"primary_slots", ahca->primary_slots, 1},
                 {"secondary_slots", ahca->secondary_slots, hark_ahca_has_global(config)},
                 {"selected", ahca->selected, 0},
                 {"primary_width", ahca->primary_width, 0},
                 {"secondary_width", ahca->secondary_width, 0}};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
    if (numbers[i].value < numbers[i].least || numbers[i].value > INT32_MAX / 4)
      return hark_fail(context, HARK_BAD_CONFIGURATION, "model.ahca.%s is %" PRId64 ", expected %" PRId64 " to %d", numbers[i].name,
                       numbers[i].value, numbers[i].least, INT32_MAX / 4);
  if (ahca->selected > ahca->secondary_slots)
    return hark_fail(context, HARK_BAD_CONFIGURATION,
                     "model.ahca.selected is %" PRId64 ", expected at most the %" PRId64 " of model.ahca.secondary_slots", ahca->selected,
                     ahca->secondary_slots);
  const hark_ahca_sizes sizes = hark_ahca_sizes_of(config);
  if (sizes.minimum > sizes.maximum)
    return hark_fail(context, HARK_BAD_CONFIGURATION,
                     "model.ahca.chunk_minimum is %" PRId64 ", expected at most the %" PRId64 " of model.ahca.chunk_maximum", sizes.minimum,
                     sizes.maximum);
  if (sizes.primary_width % config->heads != 0)
    return hark_fail(context, HARK_BAD_CONFIGURATION, "model.ahca.primary_width %" PRId64 " is not a multiple of model.heads %" PRId64,
                     sizes.primary_width, config->heads);
  if (ahca->secondary_pool == HARK_AHCA_POOL_ATTENTION && sizes.secondary_width % config->heads != 0)
    return hark_fail(context, HARK_BAD_CONFIGURATION, "model.ahca.secondary_width %" PRId64 " is not a multiple of model.heads %" PRId64,
                     sizes.secondary_width, config->heads);
  if (ahca->select == HARK_AHCA_SELECT_QUERY && sizes.primary_width != sizes.secondary_width)
    return hark_fail(context, HARK_BAD_CONFIGURATION,
                     "model.ahca.select query multiplies both levels: primary_width is %" PRId64 " and secondary_width %" PRId64
                     ", expected one number",
                     sizes.primary_width, sizes.secondary_width);
  return HARK_OK;
}

static hark_status check_delimiters(hark_context *context, const hark_network_config *config) {
  const hark_ahca_config *ahca = &config->ahca;
  if (ahca->chunk != HARK_AHCA_CHUNK_DELIMITER) return HARK_OK;
  if (ahca->other_delimiter_count < 0 || ahca->other_delimiter_count > HARK_AHCA_DELIMITERS)
    return hark_fail(context, HARK_BAD_CONFIGURATION, "model.ahca.more_delimiters has %d tokens, expected at most %d",
                     (int)ahca->other_delimiter_count, HARK_AHCA_DELIMITERS);
  for (int32_t i = -1; i < ahca->other_delimiter_count; i++) {
    const int64_t id = i < 0 ? ahca->delimiter : ahca->other_delimiters[i];
    if (id < 0 || id >= config->vocabulary)
      return hark_fail(context, HARK_BAD_CONFIGURATION, "model.ahca.%s is %" PRId64 ", expected a token, 0 to %" PRId64,
                       i < 0 ? "delimiter" : "more_delimiters", id, config->vocabulary - 1);
  }
  return HARK_OK;
}

/* Without selected tokens there is no second level, and nothing that is made of it. */
static hark_status check_global(hark_context *context, const hark_network_config *config) {
  const hark_ahca_config *ahca = &config->ahca;
  if (hark_ahca_has_global(config)) return HARK_OK;
  if (ahca->output == HARK_AHCA_OUTPUT_SELECTED)
    return hark_fail(context, HARK_BAD_CONFIGURATION, "model.ahca.selected is 0, expected at least 1 with model.ahca.output selected");
  if (ahca->depth_score == HARK_AHCA_DEPTH_SCORE_ATTENTION)
    return hark_fail(context, HARK_BAD_CONFIGURATION,
                     "model.ahca.selected is 0, expected at least 1 with model.ahca.depth_score attention");
  return HARK_OK;
}

static hark_status check_parts(hark_context *context, const hark_network_config *config) {
  const hark_ahca_config *ahca = &config->ahca;
  const hark_ahca_head head = hark_ahca_head_of(config);
  if (config->features > 0) {
    if (head != HARK_AHCA_HEAD_REGRESSION || config->responses < 1)
      return hark_fail(context, HARK_BAD_CONFIGURATION,
                       "real vectors come with numbers to predict: expected model.ahca.head data or regression");
    if (ahca->chunk == HARK_AHCA_CHUNK_DELIMITER)
      return hark_fail(context, HARK_BAD_CONFIGURATION,
                       "real vectors have no delimiters: expected model.ahca.chunk fixed, semantic or learned");
  } else if (head == HARK_AHCA_HEAD_REGRESSION && config->classes < 1)
    return hark_fail(context, HARK_BAD_CONFIGURATION, "ahca predicts numbers: there are %" PRId64 ", expected at least 1", config->classes);
  if (head == HARK_AHCA_HEAD_CLASSES && config->classes < 2)
    return hark_fail(context, HARK_BAD_CONFIGURATION, "ahca predicts classes: there are %" PRId64 ", expected at least 2", config->classes);
  if (hark_ahca_has_token_head(config) && config->classes != 0)
    return hark_fail(context, HARK_BAD_CONFIGURATION, "model.ahca.head %s predicts tokens, and the data have classes: expected classes",
                     head == HARK_AHCA_HEAD_LABELS ? "labels" : "reconstruction");
  if (hark_ahca_has_token_head(config) && ahca->output == HARK_AHCA_OUTPUT_SELECTED)
    return hark_fail(context, HARK_BAD_CONFIGURATION,
                     "model.ahca.output selected leaves no slots of chunks for tokens to ask, expected chunks with model.ahca.head %s",
                     head == HARK_AHCA_HEAD_LABELS ? "labels" : "reconstruction");
  if (head == HARK_AHCA_HEAD_RECONSTRUCTION && config->positions != HARK_POSITIONS_LEARNED)
    return hark_fail(context, HARK_BAD_CONFIGURATION,
                     "model.ahca.head reconstruction asks with positions alone, expected model.positions learned");
  if (ahca->primary_depth < 0 || ahca->primary_depth > 2 || ahca->secondary_depth < 0 || ahca->secondary_depth > 2)
    return hark_fail(context, HARK_BAD_CONFIGURATION,
                     "model.ahca.primary_depth is %" PRId64 " and secondary_depth %" PRId64 ", expected 1 or 2 linear layers",
                     ahca->primary_depth, ahca->secondary_depth);
  return check_delimiters(context, config);
}

static hark_status check_capacities(hark_context *context, const hark_network_config *config) {
  const hark_ahca_config *ahca = &config->ahca;
  if (!(ahca->capacity >= 0 && ahca->capacity <= 1))
    return hark_fail(context, HARK_BAD_CONFIGURATION, "model.ahca.capacity is %g, expected 0 to 1", ahca->capacity);
  if (ahca->capacity_count == 0) return HARK_OK;
  if (ahca->capacity_count != config->layers - 1)
    return hark_fail(context, HARK_BAD_CONFIGURATION,
                     "model.ahca.capacities has %d numbers, expected one for each layer but the first, %" PRId64, (int)ahca->capacity_count,
                     config->layers - 1);
  for (int32_t i = 0; i < ahca->capacity_count; i++) {
    const double most = i > 0 ? ahca->layer_capacities[i - 1] : 1;
    if (!(ahca->layer_capacities[i] >= 0 && ahca->layer_capacities[i] <= most))
      return hark_fail(context, HARK_BAD_CONFIGURATION,
                       "model.ahca.capacities has %g for layer %d, expected 0 to %g: numbers that do not grow from layer to layer",
                       ahca->layer_capacities[i], (int)i + 2, most);
  }
  return HARK_OK;
}

/* Attention among a chunk's slots has the structure of the configuration; everybody else attends densely. */
static hark_status check_attention(hark_context *context, const hark_network_config *config) {
  const hark_ahca_config *ahca = &config->ahca;
  const bool slots = ahca->output == HARK_AHCA_OUTPUT_CHUNKS && ahca->layer == HARK_AHCA_LAYER_BLOCK;
  if (config->attention.kernel != HARK_KERNEL_EXP || config->attention.forget_gate || config->attention.hierarchical_bias)
    return hark_fail(context, HARK_BAD_CONFIGURATION,
                     "ahca attends by exp(q.k): expected model.attention.kernel exp, no forget gate and no hierarchical_bias");
  if (config->attention.structure.count > 1 || config->attention.normalisation.count > 1)
    return hark_fail(context, HARK_BAD_CONFIGURATION, "ahca attends alike in all layers, expected one word in model.attention.%s",
                     config->attention.structure.count > 1 ? "structure" : "normalisation");
  if (!hark_layer_choice_is(&config->attention.structure, HARK_STRUCTURE_DENSE) && !slots)
    return hark_fail(context, HARK_BAD_CONFIGURATION,
                     "model.attention.structure is that of attention among a chunk's slots, expected dense with model.ahca.output selected "
                     "or model.ahca.layer linear");
  if (config->positional == NULL || config->positional[0] == '\0') return HARK_OK;
  if (!slots)
    return hark_fail(
        context, HARK_BAD_CONFIGURATION,
        "model.positional is of the distance in chunks, expected none with model.ahca.output selected or model.ahca.layer linear");
  if (hark_ahca_has_global(config) && ahca->secondary_pool == HARK_AHCA_POOL_ATTENTION)
    return hark_fail(context, HARK_BAD_CONFIGURATION,
                     "model.positional asks where global tokens lie, expected model.ahca.secondary_pool average or max: those pooled by "
                     "learned queries are of the whole sequence");
  if (config->positional_scope != HARK_SCOPE_MODEL)
    return hark_fail(context, HARK_BAD_CONFIGURATION, "model.positional_scope is of layers or heads, expected model with ahca");
  return HARK_OK;
}

hark_status hark_ahca_check(hark_context *context, const hark_network_config *config) {
  const hark_ahca_config *ahca = &config->ahca;
  HARK_TRY(check_sizes(context, config));
  HARK_TRY(check_parts(context, config));
  HARK_TRY(check_global(context, config));
  if (config->parts > 1)
    return hark_fail(context, HARK_BAD_CONFIGURATION, "ahca reads one sequence an example, the data have %" PRId64, config->parts);
  if (config->layers > HARK_MAX_DEPTH)
    return hark_fail(context, HARK_BAD_CONFIGURATION, "model.layers is %" PRId64 ", expected at most %d with ahca", config->layers,
                     HARK_MAX_DEPTH);
  HARK_TRY(check_capacities(context, config));
  if (!isfinite(ahca->threshold) || !(ahca->ratio_weight >= 0) || !(ahca->ponder_weight >= 0))
    return hark_fail(context, HARK_BAD_CONFIGURATION,
                     "model.ahca.threshold is %g, ratio_weight %g, ponder_weight %g, expected finite numbers and weights of 0 or more",
                     ahca->threshold, ahca->ratio_weight, ahca->ponder_weight);
  if (ahca->chunk == HARK_AHCA_CHUNK_LEARNED && ahca->chunk_size < 2)
    return hark_fail(context, HARK_BAD_CONFIGURATION, "model.ahca.chunk_size is 1, expected at least 2 for learned chunks");
  HARK_TRY(check_attention(context, config));
  if (config->positions == HARK_POSITIONS_ROTARY || config->positions == HARK_POSITIONS_SINUSOIDAL)
    return hark_fail(
        context, HARK_BAD_CONFIGURATION,
        "pooled slots have no position of their own: expected model.positions learned (in chunks, of chunks and of slots) or none");
  if (config->attention.unbiased)
    return hark_fail(context, HARK_BAD_CONFIGURATION,
                     "ahca's attention has the biases of model.bias, expected no model.attention.unbiased");
  if (!hark_layer_choice_is(&config->attention.normalisation, HARK_NORMALISATION_SOFTMAX) || config->attention.dropout > 0 ||
      config->key_heads != config->heads || config->attention_width != 0)
    return hark_fail(context, HARK_BAD_CONFIGURATION,
                     "ahca attends by softmax with whole heads: expected model.attention.normalisation softmax and dropout 0, "
                     "model.key_heads as many as model.heads and no model.attention_width");
  if (config->recompute)
    return hark_fail(context, HARK_BAD_CONFIGURATION, "model.recompute is for stacks of blocks, expected false with ahca");
  return HARK_OK;
}
