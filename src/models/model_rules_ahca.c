/* model_rules_ahca.c - the rules for compressed chunks. See model_rules.h. */
#include <hark/experimental.h>
#include <inttypes.h>

#include "io/number.h"
#include "models/ahca_layers.h"
#include "models/model_rules.h"
#include "positional/list.h"

static bool is_ahca(const hark_network_config *config) { return config->architecture == HARK_ARCHITECTURE_AHCA; }
static bool has_global(const hark_network_config *config) { return is_ahca(config) && hark_ahca_has_global(config); }

/* ---- sizes ---- */

static bool selected_of_secondary(const hark_network_config *config, char *message) {
  return is_ahca(config) && config->ahca.selected > config->ahca.secondary_slots &&
         hark_rule_violated(message, "model.ahca.selected is %" PRId64 ", expected at most the %" PRId64 " of model.ahca.secondary_slots",
                            config->ahca.selected, config->ahca.secondary_slots);
}

static bool lengths_of_chunks(const hark_network_config *config, char *message) {
  if (!is_ahca(config)) return false;
  const hark_ahca_sizes sizes = hark_ahca_sizes_of(config);
  return sizes.minimum > sizes.maximum &&
         hark_rule_violated(message,
                            "model.ahca.chunk_minimum is %" PRId64 ", expected at most the %" PRId64 " of model.ahca.chunk_maximum",
                            sizes.minimum, sizes.maximum);
}

static bool primary_width_of_heads(const hark_network_config *config, char *message) {
  const int64_t width = is_ahca(config) ? hark_ahca_sizes_of(config).primary_width : 0;
  return width % config->heads != 0 &&
         hark_rule_violated(message, "model.ahca.primary_width %" PRId64 " is not divisible by model.heads %" PRId64, width, config->heads);
}

static bool secondary_width_of_heads(const hark_network_config *config, char *message) {
  const int64_t width = has_global(config) ? hark_ahca_sizes_of(config).secondary_width : 0;
  return config->ahca.secondary_pool == HARK_AHCA_POOL_ATTENTION && width % config->heads != 0 &&
         hark_rule_violated(message,
                            "model.ahca.secondary_width %" PRId64 " is not divisible by model.heads %" PRId64
                            ", which model.ahca.secondary_pool attention needs",
                            width, config->heads);
}

static bool widths_of_query(const hark_network_config *config, char *message) {
  if (!has_global(config) || config->ahca.select != HARK_AHCA_SELECT_QUERY) return false;
  const hark_ahca_sizes sizes = hark_ahca_sizes_of(config);
  return sizes.primary_width != sizes.secondary_width &&
         hark_rule_violated(message,
                            "model.ahca.select query multiplies both levels: model.ahca.primary_width is %" PRId64
                            " and model.ahca.secondary_width %" PRId64 ", expected equal numbers",
                            sizes.primary_width, sizes.secondary_width);
}

static bool size_of_learned(const hark_network_config *config, char *message) {
  return is_ahca(config) && config->ahca.chunk == HARK_AHCA_CHUNK_LEARNED && config->ahca.chunk_size < 2 &&
         hark_rule_violated(message, "model.ahca.chunk_size is 1, expected at least 2 with model.ahca.chunk learned");
}

static bool number_of_layers(const hark_network_config *config, char *message) {
  return is_ahca(config) && config->layers > HARK_MAX_DEPTH &&
         hark_rule_violated(message, "model.layers is %" PRId64 ", expected at most %d with model.architecture ahca", config->layers,
                            HARK_MAX_DEPTH);
}

/* ---- without selected tokens there is no second level, and nothing that is made of it ---- */

static bool output_of_selected(const hark_network_config *config, char *message) {
  return is_ahca(config) && !has_global(config) && config->ahca.output == HARK_AHCA_OUTPUT_SELECTED &&
         hark_rule_violated(message, "model.ahca.selected is 0, expected at least 1 with model.ahca.output selected");
}

static bool depth_of_selected(const hark_network_config *config, char *message) {
  return is_ahca(config) && !has_global(config) && config->ahca.depth_score == HARK_AHCA_DEPTH_SCORE_ATTENTION &&
         hark_rule_violated(message, "model.ahca.selected is 0, expected at least 1 with model.ahca.depth_score attention");
}

/* ---- capacities ---- */

static bool capacities_of_layers(const hark_network_config *config, char *message) {
  const int64_t needed = config->layers - 1;
  return is_ahca(config) && config->ahca.capacity_count != 0 && config->ahca.capacity_count != needed &&
         hark_rule_violated(message, "model.ahca.capacities has %d numbers, expected one for each layer but the first, %" PRId64,
                            (int)config->ahca.capacity_count, needed);
}

static bool capacities_fall(const hark_network_config *config, char *message) {
  const double *const capacities = config->ahca.layer_capacities;
  char numbers[2][HARK_NUMBER_BYTES];
  for (int32_t i = 0; is_ahca(config) && i < config->ahca.capacity_count; i++) {
    const double most = i > 0 ? capacities[i - 1] : 1;
    if (!(capacities[i] >= 0 && capacities[i] <= most))
      return hark_rule_violated(message,
                                "model.ahca.capacities has %s for layer %d, expected 0 to %s: numbers that do not grow from layer to layer",
                                hark_number_print(capacities[i], numbers[0]), (int)i + 2, hark_number_print(most, numbers[1]));
  }
  return false;
}

/* ---- what the data have, and what is predicted ---- */

static const char *token_head(const hark_network_config *config) {
  return config->ahca.head == HARK_AHCA_HEAD_LABELS ? "labels" : "reconstruction";
}

static bool numbers_of_vectors(const hark_network_config *config, char *message) {
  return is_ahca(config) && config->features > 0 && hark_ahca_head_of(config) != HARK_AHCA_HEAD_REGRESSION &&
         hark_rule_violated(message, "real vectors have numbers to predict, expected model.ahca.head data or regression");
}

static bool chunks_of_vectors(const hark_network_config *config, char *message) {
  return is_ahca(config) && config->features > 0 && config->ahca.chunk == HARK_AHCA_CHUNK_DELIMITER &&
         hark_rule_violated(message, "real vectors have no delimiters, expected model.ahca.chunk fixed, semantic or learned");
}

static bool numbers_of_tokens(const hark_network_config *config, char *message) {
  return is_ahca(config) && config->features == 0 && hark_ahca_head_of(config) == HARK_AHCA_HEAD_REGRESSION && config->classes < 1 &&
         hark_rule_violated(message, "model.ahca.head regression predicts numbers: there are %" PRId64 ", expected at least 1",
                            config->classes);
}

static bool classes_of_head(const hark_network_config *config, char *message) {
  return is_ahca(config) && hark_ahca_head_of(config) == HARK_AHCA_HEAD_CLASSES && config->classes < 2 &&
         hark_rule_violated(message, "ahca predicts classes: there are %" PRId64 ", expected at least 2", config->classes);
}

static bool tokens_of_head(const hark_network_config *config, char *message) {
  return is_ahca(config) && hark_ahca_has_token_head(config) && config->classes != 0 &&
         hark_rule_violated(message, "model.ahca.head %s predicts tokens, and the data have classes, expected classes", token_head(config));
}

static bool slots_of_head(const hark_network_config *config, char *message) {
  return is_ahca(config) && hark_ahca_has_token_head(config) && config->ahca.output == HARK_AHCA_OUTPUT_SELECTED &&
         hark_rule_violated(message,
                            "model.ahca.output selected leaves no slots of chunks for the queries of tokens, expected chunks with "
                            "model.ahca.head %s",
                            token_head(config));
}

static bool positions_of_reconstruction(const hark_network_config *config, char *message) {
  return is_ahca(config) && config->ahca.head == HARK_AHCA_HEAD_RECONSTRUCTION && config->positions == HARK_POSITIONS_NONE &&
         hark_rule_violated(message, "model.ahca.head reconstruction has queries of positions alone, expected model.positions learned");
}

static bool one_part(const hark_network_config *config, char *message) {
  return is_ahca(config) && config->parts > 1 &&
         hark_rule_violated(message, "ahca reads one sequence per example, the data have %" PRId64, config->parts);
}

/* Local layers have rotary positions. Widths that are not divisible violate another rule. */
static bool pairs_of_local(const hark_network_config *config, char *message) {
  return is_ahca(config) && config->ahca.local_layers > 0 && config->positions != HARK_POSITIONS_NONE &&
         config->width % config->heads == 0 && hark_network_head_dim(config) % 2 != 0 &&
         hark_rule_violated(message,
                            "model.width / model.heads is %" PRId64
                            "; local layers have rotary positions and need an even number, or "
                            "model.positions none",
                            hark_network_head_dim(config));
}

/* ---- attention ---- */

/* Whether the slots of a chunk attend to each other. */
static bool slots_attend(const hark_network_config *config) {
  return config->ahca.output == HARK_AHCA_OUTPUT_CHUNKS && config->ahca.layer == HARK_AHCA_LAYER_BLOCK;
}

static bool has_positional(const hark_network_config *config) {
  return is_ahca(config) && config->positional != NULL && config->positional[0] != '\0';
}

static bool exp_kernel(const hark_network_config *config, char *message) {
  return is_ahca(config) && config->attention.kernel != HARK_KERNEL_EXP &&
         hark_rule_violated(message, "ahca attends by exp(q.k), expected model.attention.kernel exp");
}

static bool no_hierarchical_bias(const hark_network_config *config, char *message) {
  return is_ahca(config) && config->attention.hierarchical_bias &&
         hark_rule_violated(message, "ahca attends by exp(q.k), expected no model.attention.hierarchical_bias");
}

static bool one_structure(const hark_network_config *config, char *message) {
  return is_ahca(config) && config->attention.structure.count > 1 &&
         hark_rule_violated(message, "ahca has the same attention in all layers, expected one word in model.attention.structure");
}

static bool one_normalisation(const hark_network_config *config, char *message) {
  return is_ahca(config) && config->attention.normalisation.count > 1 &&
         hark_rule_violated(message, "ahca has the same attention in all layers, expected one word in model.attention.normalisation");
}

static bool structure_of_slots(const hark_network_config *config, char *message) {
  return is_ahca(config) && !hark_layer_choice_is(&config->attention.structure, HARK_STRUCTURE_DENSE) && !slots_attend(config) &&
         hark_rule_violated(message,
                            "model.attention.structure is that of attention among the slots of a chunk, expected dense with "
                            "model.ahca.output selected or model.ahca.layer linear");
}

static bool positional_of_slots(const hark_network_config *config, char *message) {
  return has_positional(config) && !slots_attend(config) &&
         hark_rule_violated(message,
                            "model.positional is a kernel of the distance in chunks, expected none with model.ahca.output selected or "
                            "model.ahca.layer linear");
}

static bool positional_of_places(const hark_network_config *config, char *message) {
  return has_positional(config) && has_global(config) && config->ahca.secondary_pool == HARK_AHCA_POOL_ATTENTION &&
         hark_rule_violated(message,
                            "model.positional needs the chunk of a global token, and with model.ahca.secondary_pool attention it is of the "
                            "whole sequence, expected average or max");
}

static bool one_positional(const hark_network_config *config, char *message) {
  return has_positional(config) && hark_positional_list_length(config->positional) > 1 &&
         hark_rule_violated(message, "model.positional has several expressions, expected one with model.architecture ahca");
}

static bool no_direction(const hark_network_config *config, char *message) {
  const int left = hark_positional_list_direction(config->positional, "left");
  const int right = hark_positional_list_direction(config->positional, "right");
  return has_positional(config) && (left > 0 || right > 0) &&
         hark_rule_violated(message,
                            "model.positional has %s(...) at column %d, expected a kernel without a direction with model.architecture ahca",
                            left > 0 ? "left" : "right", left > 0 ? left : right);
}

static bool positional_of_model(const hark_network_config *config, char *message) {
  return has_positional(config) && config->positional_scope != HARK_SCOPE_MODEL &&
         hark_rule_violated(message, "model.positional_scope is layer or head, expected model with model.architecture ahca");
}

static bool positions_of_slots(const hark_network_config *config, char *message) {
  return is_ahca(config) && (config->positions == HARK_POSITIONS_ROTARY || config->positions == HARK_POSITIONS_SINUSOIDAL) &&
         hark_rule_violated(message,
                            "pooled slots have no position of their own, expected model.positions learned (in chunks, of chunks and "
                            "of slots) or none");
}

static bool biases(const hark_network_config *config, char *message) {
  return is_ahca(config) && config->attention.unbiased &&
         hark_rule_violated(message, "the attention of ahca has the biases of model.bias, expected no model.attention.unbiased");
}

static bool softmax_normalisation(const hark_network_config *config, char *message) {
  return is_ahca(config) && !hark_layer_choice_is(&config->attention.normalisation, HARK_NORMALISATION_SOFTMAX) &&
         hark_rule_violated(message, "ahca attends by softmax, expected model.attention.normalisation softmax");
}

static bool no_attention_dropout(const hark_network_config *config, char *message) {
  return is_ahca(config) && config->attention.dropout > 0 &&
         hark_rule_violated(message, "ahca has no dropout of attention weights, expected model.attention.dropout 0");
}

static bool own_initialisation(const hark_network_config *config, char *message) {
  return is_ahca(config) && config->initialisation != HARK_INITIALISATION_GPT2 &&
         hark_rule_violated(message, "ahca has its own initial weights, expected no model.initialisation xavier");
}

#define AHCA "model.ahca."
#define ATTENTION "model.attention."
#define IN_AHCA " model.architecture"
static const hark_model_rule rules[] = {
    {AHCA "selected " AHCA "secondary_slots", selected_of_secondary},
    {AHCA "chunk_minimum " AHCA "chunk_maximum " AHCA "chunk_size", lengths_of_chunks},
    {AHCA "primary_width model.width model.heads", primary_width_of_heads},
    {AHCA "secondary_width model.width model.heads " AHCA "secondary_pool " AHCA "selected", secondary_width_of_heads},
    {AHCA "select " AHCA "primary_width " AHCA "secondary_width " AHCA "selected", widths_of_query},
    {AHCA "chunk_size " AHCA "chunk", size_of_learned},
    {"model.layers" IN_AHCA, number_of_layers},
    {AHCA "selected " AHCA "output", output_of_selected},
    {AHCA "selected " AHCA "depth_score", depth_of_selected},
    {AHCA "capacities model.layers", capacities_of_layers},
    {AHCA "capacities", capacities_fall},
    {AHCA "head model.features", numbers_of_vectors},
    {AHCA "chunk model.features", chunks_of_vectors},
    {AHCA "head model.classes", numbers_of_tokens},
    {AHCA "head model.classes", classes_of_head},
    {AHCA "head model.classes", tokens_of_head},
    {AHCA "output " AHCA "head", slots_of_head},
    {"model.positions " AHCA "head", positions_of_reconstruction},
    {"model.architecture model.parts", one_part},
    {AHCA "local_layers model.width model.heads model.positions", pairs_of_local},
    {ATTENTION "kernel" IN_AHCA, exp_kernel},
    {ATTENTION "hierarchical_bias" IN_AHCA, no_hierarchical_bias},
    {ATTENTION "structure" IN_AHCA, one_structure},
    {ATTENTION "normalisation" IN_AHCA, one_normalisation},
    {ATTENTION "structure " AHCA "output " AHCA "layer", structure_of_slots},
    {"model.positional " AHCA "output " AHCA "layer", positional_of_slots},
    {"model.positional " AHCA "secondary_pool " AHCA "selected", positional_of_places},
    {"model.positional_scope" IN_AHCA, positional_of_model},
    {"model.positional" IN_AHCA, one_positional},
    {"model.positional" IN_AHCA, no_direction},
    {"model.positions" IN_AHCA, positions_of_slots},
    {ATTENTION "unbiased" IN_AHCA, biases},
    {ATTENTION "normalisation" IN_AHCA, softmax_normalisation},
    {ATTENTION "dropout" IN_AHCA, no_attention_dropout},
    {"model.initialisation" IN_AHCA, own_initialisation},
};
const hark_rule_list hark_rules_of_ahca = {rules, (int)(sizeof rules / sizeof *rules)};
