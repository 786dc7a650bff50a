/* model_rules.c - see model_rules.h; the rules for attention, for the data, and for encoders. */
#include "models/model_rules.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "backend/grid.h"
#include "io/words.h"
#include "models/encoder.h"
#include "models/model_options.h"
#include "positional/list.h"

static const char *name_of(const hark_network_config *config) { return hark_architecture_of(config->architecture)->name; }

/* ---- heads ---- */

static bool width_of_heads(const hark_network_config *config, char *message) {
  return config->attention_width == 0 && config->width % config->heads != 0 &&
         hark_rule_violated(message, "model.width %" PRId64 " is not divisible by model.heads %" PRId64, config->width, config->heads);
}

static bool attention_width_of_heads(const hark_network_config *config, char *message) {
  return config->attention_width % config->heads != 0 &&
         hark_rule_violated(message, "model.attention_width %" PRId64 " is not divisible by model.heads %" PRId64, config->attention_width,
                            config->heads);
}

static bool key_heads_of_heads(const hark_network_config *config, char *message) {
  return config->heads % config->key_heads != 0 &&
         hark_rule_violated(message, "model.heads %" PRId64 " is not divisible by model.key_heads %" PRId64, config->heads,
                            config->key_heads);
}

/* Rotary positions rotate pairs of features. A width that is not divisible violates another rule. */
static bool has_odd_heads(const hark_network_config *config) {
  const int64_t width = config->attention_width != 0 ? config->attention_width : config->width;
  return config->positions == HARK_POSITIONS_ROTARY && width % config->heads == 0 && hark_network_head_dim(config) % 2 != 0;
}

static bool pairs_of_width(const hark_network_config *config, char *message) {
  return config->attention_width == 0 && has_odd_heads(config) &&
         hark_rule_violated(message, "rotary positions need an even head dimension, model.width / model.heads is %" PRId64,
                            hark_network_head_dim(config));
}

static bool pairs_of_attention_width(const hark_network_config *config, char *message) {
  return config->attention_width != 0 && has_odd_heads(config) &&
         hark_rule_violated(message, "rotary positions need an even head dimension, model.attention_width / model.heads is %" PRId64,
                            hark_network_head_dim(config));
}

/* ---- the attention of layers ---- */

static bool has_more_words(const hark_network_config *config, const hark_layer_choice *choice, const char *name, char *message) {
  const int64_t layers = hark_max(1, config->layers);
  return choice->count > layers &&
         hark_rule_violated(message, "model.attention.%s has %d words for %" PRId64 " layer%s, expected at most one per layer", name,
                            (int)choice->count, layers, layers == 1 ? "" : "s");
}

static bool structures_of_layers(const hark_network_config *config, char *message) {
  return has_more_words(config, &config->attention.structure, "structure", message);
}

static bool normalisations_of_layers(const hark_network_config *config, char *message) {
  return has_more_words(config, &config->attention.normalisation, "normalisation", message);
}

static bool is_hierarchical(const hark_network_config *config) {
  return hark_layer_choice_has(&config->attention.structure, HARK_STRUCTURE_HIERARCHICAL);
}

static bool even_hierarchy_block(const hark_network_config *config, char *message) {
  return is_hierarchical(config) && config->attention.hierarchy_block % 2 != 0 &&
         hark_rule_violated(message, "model.attention.hierarchy_block is %" PRId64 ", expected an even number",
                            config->attention.hierarchy_block);
}

static bool coarse_query_of_causal(const hark_network_config *config, char *message) {
  return is_hierarchical(config) && config->attention.coarse_query == HARK_COARSE_QUERY_MEAN &&
         hark_architecture_of(config->architecture)->causal &&
         hark_rule_violated(message,
                            "model.attention.coarse_query is mean, which depends on later queries, and model.architecture %s is causal, "
                            "expected first or exact",
                            name_of(config));
}

static bool interpolates(const hark_network_config *config) {
  return is_hierarchical(config) && config->attention.interpolation == HARK_INTERPOLATION_LINEAR;
}

static bool interpolation_of_causal(const hark_network_config *config, char *message) {
  return interpolates(config) && hark_architecture_of(config->architecture)->causal &&
         hark_rule_violated(message,
                            "model.attention.interpolation is linear, which uses later cells, and model.architecture %s is causal, "
                            "expected constant",
                            name_of(config));
}

static bool interpolation_of_exact(const hark_network_config *config, char *message) {
  return interpolates(config) && config->attention.coarse_query == HARK_COARSE_QUERY_EXACT &&
         hark_rule_violated(message,
                            "model.attention.interpolation is linear, and with model.attention.coarse_query exact nothing is "
                            "interpolated, expected constant, or another coarse_query");
}

/* ---- pictures ---- */

static bool sees_pictures(const hark_network_config *config) { return is_hierarchical(config) && config->attention.grid_columns != 0; }

static bool grid_of_encoder(const hark_network_config *config, char *message) {
  return sees_pictures(config) && config->architecture != HARK_ARCHITECTURE_ENCODER &&
         hark_rule_violated(message, "model.attention.grid_columns needs model.architecture encoder, which sees pixels on all sides");
}

static bool grid_of_blocks(const hark_network_config *config, char *message) {
  return sees_pictures(config) && hark_grid_side(config->attention.hierarchy_block) == 0 &&
         hark_rule_violated(message,
                            "model.attention.hierarchy_block is %" PRId64
                            " with model.attention.grid_columns, expected a power of 4 (4, 16, 64, ...): the cells of a square block",
                            config->attention.hierarchy_block);
}

static bool grid_of_neighbours(const hark_network_config *config, char *message) {
  return sees_pictures(config) && config->attention.partition != HARK_PARTITION_NEIGHBOUR &&
         hark_rule_violated(message, "model.attention.partition is sibling with model.attention.grid_columns, expected neighbour");
}

static bool grid_of_queries(const hark_network_config *config, char *message) {
  return sees_pictures(config) && config->attention.coarse_query == HARK_COARSE_QUERY_FIRST &&
         hark_rule_violated(message, "model.attention.coarse_query is first with model.attention.grid_columns, expected mean or exact");
}

static bool grid_of_constant(const hark_network_config *config, char *message) {
  return sees_pictures(config) && config->attention.interpolation != HARK_INTERPOLATION_CONSTANT &&
         hark_rule_violated(message, "model.attention.interpolation is linear with model.attention.grid_columns, expected constant");
}

static bool grid_without_bias(const hark_network_config *config, char *message) {
  return sees_pictures(config) && config->attention.hierarchical_bias &&
         hark_rule_violated(message,
                            "model.attention.hierarchical_bias is indexed by one distance, which pixels with "
                            "model.attention.grid_columns do not have, expected false");
}

static bool grid_without_kernel(const hark_network_config *config, char *message) {
  return sees_pictures(config) && config->positional != NULL && config->positional[0] != '\0' &&
         hark_rule_violated(message,
                            "model.positional is a kernel of one distance, which pixels with model.attention.grid_columns do not have, "
                            "expected no kernel");
}

static bool grid_without_class_token(const hark_network_config *config, char *message) {
  return sees_pictures(config) && config->architecture == HARK_ARCHITECTURE_ENCODER && config->pooling == HARK_POOLING_CLASS &&
         hark_rule_violated(message,
                            "model.pooling class adds a token before the pixels, which model.attention.grid_columns would take for the "
                            "first pixel, expected mean or first");
}

/* ---- compressed attention ---- */

static bool is_compressed(const hark_network_config *config) {
  return hark_layer_choice_has(&config->attention.structure, HARK_STRUCTURE_COMPRESSED);
}

static bool compressed_of_decoder(const hark_network_config *config, char *message) {
  return is_compressed(config) && config->architecture != HARK_ARCHITECTURE_DECODER &&
         hark_rule_violated(message,
                            "model.attention.structure compressed needs model.architecture decoder: a query sees only earlier tokens");
}

static bool slots_of_chunk(const hark_network_config *config, char *message) {
  return is_compressed(config) && (config->attention.chunk < 1 || config->attention.chunk_slots > config->attention.chunk) &&
         hark_rule_violated(message, "model.attention.chunk_slots is %" PRId64 ", expected at most model.attention.chunk = %" PRId64,
                            config->attention.chunk_slots, config->attention.chunk);
}

static bool chunk_maximum_of_chunk(const hark_network_config *config, char *message) {
  const hark_attention_choice *choice = &config->attention;
  return is_compressed(config) && hark_attention_chunks_differ(choice) && choice->chunk_maximum != 0 &&
         choice->chunk_maximum < choice->chunk &&
         hark_rule_violated(message, "model.attention.chunk_maximum is %" PRId64 ", expected at least model.attention.chunk = %" PRId64,
                            choice->chunk_maximum, choice->chunk);
}

static bool delimiters_of_vocabulary(const hark_network_config *config, char *message) {
  const hark_attention_choice *choice = &config->attention;
  if (!is_compressed(config) || config->vocabulary == 0) return false; /* 0: real vectors */
  for (int32_t i = 0; i < choice->chunk_delimiter_count; i++) {
    const int32_t token = hark_delimiter_token(choice->chunk_delimiters[i]);
    if (token == HARK_DELIMITER_TEXT)
      return hark_rule_violated(message, "model.attention.delimiters has a text, expected tokens: no vocabulary is known here");
    if (token >= config->vocabulary)
      return hark_rule_violated(message, "model.attention.delimiters has %" PRId32 ", expected tokens, 0 to %" PRId64, token,
                                config->vocabulary - 1);
  }
  return false;
}

static bool learned_in_range(const hark_network_config *config, char *message) {
  const hark_attention_choice *choice = &config->attention;
  const int64_t most = hark_attention_chunk_ends(choice).maximum, mean = hark_attention_chunk_mean(choice);
  return is_compressed(config) && choice->chunk_learned && most >= choice->chunk && (mean < hark_max(2, choice->chunk) || mean > most) &&
         hark_rule_violated(message, "model.attention.chunk_mean is %" PRId64 ", expected %" PRId64 " to %" PRId64 ", as a chunk has", mean,
                            hark_max(2, choice->chunk), most);
}

static bool learned_from_context(const hark_network_config *config, char *message) {
  return is_compressed(config) && config->attention.chunk_learned &&
         hark_layer_choice_of(&config->attention.structure, 0) == HARK_STRUCTURE_COMPRESSED &&
         hark_rule_violated(message,
                            "model.attention.chunk_learned computes boundaries from the layers before compressed attention, expected a "
                            "model.attention.structure that begins with another one, such as window,compressed");
}

static bool merged_without_kernel(const hark_network_config *config, char *message) {
  const hark_attention_choice *choice = &config->attention;
  return is_compressed(config) && config->positional != NULL && config->positional[0] != '\0' && choice->kept_chunks > 0 &&
         choice->global_slots > 0 &&
         hark_rule_violated(message,
                            "model.attention.global_slots is %" PRId64
                            " with model.positional, a kernel of the distance, and the tokens of "
                            "a global slot have ever more distances, expected global_slots 0",
                            choice->global_slots);
}

static bool compressed_without_gates(const hark_network_config *config, char *message) {
  return is_compressed(config) && config->attention.forget_gate &&
         hark_rule_violated(message,
                            "model.attention.forget_gate has gates that differ inside a slot of model.attention.structure "
                            "compressed, expected false");
}

static bool compressed_without_positions(const hark_network_config *config, char *message) {
  return is_compressed(config) && config->attention.contextual_positions != 0 &&
         hark_rule_violated(message,
                            "model.attention.contextual_positions counts tokens, and earlier keys of model.attention.structure "
                            "compressed are slots, expected 0");
}

static bool compressed_of_exp(const hark_network_config *config, char *message) {
  return is_compressed(config) && config->attention.kernel != HARK_KERNEL_EXP &&
         hark_rule_violated(message, "model.attention.structure compressed needs model.attention.kernel exp");
}

static bool compressed_of_softmax(const hark_network_config *config, char *message) {
  for (int64_t layer = 0; layer < config->layers; layer++)
    if (hark_layer_choice_of(&config->attention.structure, layer) == HARK_STRUCTURE_COMPRESSED &&
        hark_layer_choice_of(&config->attention.normalisation, layer) == HARK_NORMALISATION_STICK_BREAKING)
      return hark_rule_violated(
          message, "model.attention.structure compressed needs model.attention.normalisation softmax, in layer %" PRId64, layer);
  return false;
}

/* ---- gates ---- */

static bool gates_of_hierarchy(const hark_network_config *config, char *message) {
  return is_hierarchical(config) && config->attention.forget_gate &&
         hark_rule_violated(message,
                            "model.attention.forget_gate has gates that differ inside a cell of model.attention.structure "
                            "hierarchical, expected dense or window");
}

static bool gates_of_decoder(const hark_network_config *config, char *message) {
  return config->attention.forget_gate && config->architecture != HARK_ARCHITECTURE_DECODER &&
         hark_rule_violated(message, "model.attention.forget_gate needs model.architecture decoder");
}

/* ---- contextual positions ---- */

static bool counts(const hark_network_config *config) { return config->attention.contextual_positions != 0; }

static bool positions_of_table(const hark_network_config *config, char *message) {
  return counts(config) && config->attention.contextual_positions < 2 &&
         hark_rule_violated(message, "model.attention.contextual_positions is %" PRId64 ", expected 0 (none), or at least 2",
                            config->attention.contextual_positions);
}

static bool positions_of_decoder(const hark_network_config *config, char *message) {
  return counts(config) && config->architecture != HARK_ARCHITECTURE_DECODER &&
         hark_rule_violated(message, "model.attention.contextual_positions needs model.architecture decoder");
}

static bool positions_without_cells(const hark_network_config *config, char *message) {
  return counts(config) && is_hierarchical(config) &&
         hark_rule_violated(message,
                            "model.attention.contextual_positions counts tokens, and the keys of model.attention.structure "
                            "hierarchical are cells, expected dense or window");
}

static bool positions_of_softmax(const hark_network_config *config, char *message) {
  return counts(config) &&
         (hark_layer_choice_has(&config->attention.normalisation, HARK_NORMALISATION_CME) ||
          hark_layer_choice_has(&config->attention.normalisation, HARK_NORMALISATION_STICK_BREAKING)) &&
         hark_rule_violated(message, "model.attention.contextual_positions needs model.attention.normalisation softmax in every layer");
}

static bool positions_of_exp(const hark_network_config *config, char *message) {
  return counts(config) && config->attention.kernel != HARK_KERNEL_EXP &&
         hark_rule_violated(message, "model.attention.contextual_positions needs model.attention.kernel exp");
}

/* ---- kernel ridge regression ---- */

static bool is_ridge(const hark_network_config *config) {
  return hark_layer_choice_has(&config->attention.normalisation, HARK_NORMALISATION_CME);
}

static bool ridge_is_dense(const hark_network_config *config, char *message) {
  const int64_t layer = hark_layer_choice_without(&config->attention.normalisation, HARK_NORMALISATION_CME, &config->attention.structure,
                                                  HARK_STRUCTURE_DENSE, config->layers);
  return layer >= 0 &&
         hark_rule_violated(message, "model.attention.normalisation cme needs model.attention.structure dense, in layer %" PRId64, layer);
}

static bool ridge_without_gates(const hark_network_config *config, char *message) {
  return is_ridge(config) && config->attention.forget_gate &&
         hark_rule_violated(message,
                            "model.attention.normalisation cme needs a symmetric kernel, and with model.attention.forget_gate it "
                            "is not");
}

static bool ridge_without_dropout(const hark_network_config *config, char *message) {
  return is_ridge(config) && config->attention.dropout > 0 &&
         hark_rule_violated(message,
                            "model.attention.normalisation cme has no normalised weights to drop, expected model.attention.dropout 0");
}

/* The magnitude of a scaling would be divided out by the lengths. */
static bool unit_of_scaled(const hark_network_config *config, char *message) {
  hark_rotary_tuning tuning;
  char scaling[HARK_OPTION_WORD_BYTES];
  const hark_rotary_spec rotary = hark_stack_rotary(config, &tuning);
  return is_ridge(config) && config->attention.sigma_learned && config->attention.unit && hark_rotary_magnitude(&rotary) != 1 &&
         hark_rule_violated(message,
                            "model.rotary.scaling %s multiplies queries and keys, which model.attention.unit undoes where "
                            "model.attention.sigma_learned is set",
                            hark_rule_scaling(config, scaling));
}

static bool sigma_of_rbf(const hark_network_config *config, char *message) {
  return is_ridge(config) && config->attention.sigma_learned && config->attention.kernel != HARK_KERNEL_RBF &&
         hark_rule_violated(message, "model.attention.sigma_learned needs model.attention.kernel rbf");
}

/* ---- stick-breaking ---- */

static bool breaks_sticks(const hark_network_config *config) {
  return hark_layer_choice_has(&config->attention.normalisation, HARK_NORMALISATION_STICK_BREAKING);
}

static bool sticks_without_cells(const hark_network_config *config, char *message) {
  for (int64_t layer = 0; layer < config->layers; layer++)
    if (hark_layer_choice_of(&config->attention.normalisation, layer) == HARK_NORMALISATION_STICK_BREAKING &&
        hark_layer_choice_of(&config->attention.structure, layer) == HARK_STRUCTURE_HIERARCHICAL)
      return hark_rule_violated(message,
                                "model.attention.normalisation stick_breaking needs model.attention.structure dense or window, in layer "
                                "%" PRId64,
                                layer);
  return false;
}

static bool sticks_of_exp(const hark_network_config *config, char *message) {
  return breaks_sticks(config) && config->attention.kernel != HARK_KERNEL_EXP &&
         hark_rule_violated(message, "model.attention.normalisation stick_breaking needs model.attention.kernel exp");
}

static bool sticks_of_causal(const hark_network_config *config, char *message) {
  return breaks_sticks(config) && config->architecture != HARK_ARCHITECTURE_DECODER &&
         hark_rule_violated(message, "model.attention.normalisation stick_breaking needs model.architecture decoder: it is causal");
}

/* ---- architectures without blocks ---- */

static bool is_ahca_or_latent(const hark_network_config *config) {
  return config->architecture == HARK_ARCHITECTURE_AHCA || config->architecture == HARK_ARCHITECTURE_LATENT;
}

static bool keys_of_every_head(const hark_network_config *config, char *message) {
  return is_ahca_or_latent(config) && config->key_heads != config->heads &&
         hark_rule_violated(message,
                            "model.architecture %s has keys for every head: model.key_heads is %" PRId64
                            ", expected as many as model.heads, %" PRId64,
                            name_of(config), config->key_heads, config->heads);
}

static bool no_attention_width(const hark_network_config *config, char *message) {
  return is_ahca_or_latent(config) && config->attention_width != 0 &&
         hark_rule_violated(message, "model.architecture %s divides the width of its tokens among heads, expected no model.attention_width",
                            name_of(config));
}

/* Only the local layers of ahca are computed again. */
static bool recompute_of_blocks(const hark_network_config *config, char *message) {
  const bool local = config->architecture == HARK_ARCHITECTURE_AHCA && config->ahca.local_layers > 0;
  return config->recompute && !local && (is_ahca_or_latent(config) || hark_architecture_of(config->architecture)->predicts_vectors) &&
         hark_rule_violated(message, "model.recompute is for stacks of blocks, expected false with model.architecture %s%s",
                            name_of(config),
                            config->architecture == HARK_ARCHITECTURE_AHCA ? ", or model.ahca.local_layers of at least 1" : "");
}

/* ---- encoders ---- */

static bool is_encoder(const hark_network_config *config) { return config->architecture == HARK_ARCHITECTURE_ENCODER; }

static bool classes_of_encoder(const hark_network_config *config, char *message) {
  return is_encoder(config) && config->head == HARK_ENCODER_HEAD_CLASSES && config->classes < 2 &&
         hark_rule_violated(message, "an encoder predicts classes: there are %" PRId64 ", expected at least 2", config->classes);
}

static bool classes_of_embedding(const hark_network_config *config, char *message) {
  return is_encoder(config) && config->head == HARK_ENCODER_HEAD_EMBEDDING && config->classes != 0 &&
         hark_rule_violated(message, "model.head embedding predicts no classes: there are %" PRId64 ", expected 0", config->classes);
}

static bool normalise_of_embedding(const hark_network_config *config, char *message) {
  return is_encoder(config) && config->head == HARK_ENCODER_HEAD_CLASSES && config->normalise &&
         hark_rule_violated(message, "model.normalise needs model.head embedding");
}

static bool types_of_encoder(const hark_network_config *config, char *message) {
  return config->token_types > 0 && !is_encoder(config) && config->architecture != HARK_ARCHITECTURE_MASKED_ENCODER &&
         hark_rule_violated(message, "model.token_types needs model.architecture encoder or masked_encoder");
}

static bool pooler_of_pooling(const hark_network_config *config, char *message) {
  return is_encoder(config) && config->pooling == HARK_POOLING_POOLER && !config->pooler &&
         hark_rule_violated(message, "model.pooling pooler needs model.pooler");
}

/* Its weights are those of one sequence. */
static bool pooler_of_pairs(const hark_network_config *config, char *message) {
  return is_encoder(config) && config->pooling == HARK_POOLING_POOLER && config->pooler && config->parts == 2 &&
         hark_rule_violated(message, "model.pooling pooler reads one sequence per example, the data have 2");
}

static bool parts_of_encoder(const hark_network_config *config, char *message) {
  return is_encoder(config) && (config->parts < 0 || config->parts > 2) &&
         hark_rule_violated(message, "an encoder reads %" PRId64 " sequences per example, expected 1 or 2", config->parts);
}

/* The second hidden layer has half the width. */
static bool head_of_pairs(const hark_network_config *config, char *message) {
  return is_encoder(config) && config->head == HARK_ENCODER_HEAD_CLASSES && config->parts == 2 && hark_encoder_head_width(config) < 2 &&
         hark_rule_violated(message, "model.head_width is 1, expected at least 2 for pairs");
}

/* ---- positional kernels ---- */

/* Expressions of heads or layers, separated by "|". */
static bool kernels_of_heads(const hark_network_config *config, char *message) {
  static const char *const of_what[] = {"head", "layer", "head, or of every head of every layer"};
  const int64_t count = hark_positional_list_length(config->positional);
  const int64_t expected = config->positional_scope == HARK_SCOPE_LAYER ? config->layers : config->heads;
  const bool all = config->positional_scope == HARK_SCOPE_HEAD && count == config->heads * config->layers;
  return count > 1 && count != expected && !all &&
         hark_rule_violated(message, "model.positional has %" PRId64 " expressions, expected 1 or %" PRId64 ", one of every %s", count,
                            expected, of_what[config->positional_scope]);
}

/* A token of a decoder sees no token after it. */
static bool right_of_causal(const hark_network_config *config, char *message) {
  const int column = hark_positional_list_direction(config->positional, "right");
  return column > 0 && hark_architecture_of(config->architecture)->causal &&
         hark_rule_violated(message,
                            "model.positional has right(...) at column %d, and in model.architecture %s no token sees the tokens after it: "
                            "it would have no effect",
                            column, hark_architecture_of(config->architecture)->name);
}

/* ---- the list ---- */

static const hark_model_rule rules[] = {
    {"model.width model.heads", width_of_heads},
    {"model.attention_width model.heads", attention_width_of_heads},
    {"model.key_heads model.heads", key_heads_of_heads},
    {"model.positions model.width model.heads", pairs_of_width},
    {"model.positions model.attention_width model.heads", pairs_of_attention_width},
    {"model.layers model.attention.structure", structures_of_layers},
    {"model.layers model.attention.normalisation", normalisations_of_layers},
    {"model.attention.hierarchy_block model.attention.structure", even_hierarchy_block},
    {"model.attention.coarse_query model.architecture", coarse_query_of_causal},
    {"model.attention.interpolation model.architecture", interpolation_of_causal},
    {"model.attention.interpolation model.attention.coarse_query", interpolation_of_exact},
    {"model.attention.grid_columns model.architecture", grid_of_encoder},
    {"model.attention.hierarchy_block model.attention.grid_columns", grid_of_blocks},
    {"model.attention.partition model.attention.grid_columns", grid_of_neighbours},
    {"model.attention.coarse_query model.attention.grid_columns", grid_of_queries},
    {"model.attention.interpolation model.attention.grid_columns", grid_of_constant},
    {"model.attention.hierarchical_bias model.attention.grid_columns", grid_without_bias},
    {"model.positional model.attention.grid_columns", grid_without_kernel},
    {"model.pooling model.attention.grid_columns", grid_without_class_token},
    {"model.attention.structure model.architecture", compressed_of_decoder},
    {"model.attention.chunk_slots model.attention.chunk", slots_of_chunk},
    {"model.attention.chunk_maximum model.attention.chunk", chunk_maximum_of_chunk},
    {"model.attention.delimiters model.vocabulary", delimiters_of_vocabulary},
    {"model.attention.chunk_mean model.attention.chunk", learned_in_range},
    {"model.attention.chunk_learned model.attention.structure", learned_from_context},
    {"model.positional model.attention.global_slots", merged_without_kernel},
    {"model.attention.forget_gate model.attention.structure", compressed_without_gates},
    {"model.attention.contextual_positions model.attention.structure", compressed_without_positions},
    {"model.attention.structure model.attention.kernel", compressed_of_exp},
    {"model.attention.structure model.attention.normalisation", compressed_of_softmax},
    {"model.attention.forget_gate model.attention.structure", gates_of_hierarchy},
    {"model.attention.forget_gate model.architecture", gates_of_decoder},
    {"model.attention.contextual_positions", positions_of_table},
    {"model.attention.contextual_positions model.architecture", positions_of_decoder},
    {"model.attention.contextual_positions model.attention.structure", positions_without_cells},
    {"model.attention.contextual_positions model.attention.normalisation", positions_of_softmax},
    {"model.attention.contextual_positions model.attention.kernel", positions_of_exp},
    {"model.attention.structure model.attention.normalisation", ridge_is_dense},
    {"model.attention.forget_gate model.attention.normalisation", ridge_without_gates},
    {"model.attention.dropout model.attention.normalisation", ridge_without_dropout},
    {"model.attention.normalisation model.attention.structure", sticks_without_cells},
    {"model.attention.normalisation model.attention.kernel", sticks_of_exp},
    {"model.attention.normalisation model.architecture", sticks_of_causal},
    {"model.attention.unit model.rotary.scaling model.attention.sigma_learned", unit_of_scaled},
    {"model.attention.sigma_learned model.attention.kernel", sigma_of_rbf},
    {"model.key_heads model.heads model.architecture", keys_of_every_head},
    {"model.attention_width model.architecture", no_attention_width},
    {"model.recompute model.architecture", recompute_of_blocks},
    {"model.classes model.architecture", classes_of_encoder},
    {"model.classes model.head", classes_of_embedding},
    {"model.normalise model.head", normalise_of_embedding},
    {"model.token_types model.architecture", types_of_encoder},
    {"model.pooling model.pooler", pooler_of_pooling},
    {"model.pooling model.parts", pooler_of_pairs},
    {"model.parts model.architecture", parts_of_encoder},
    {"model.head_width model.parts", head_of_pairs},
    {"model.positional model.positional_scope model.heads", kernels_of_heads},
    {"model.positional model.architecture", right_of_causal},
};
const hark_rule_list hark_rules_of_all = {rules, (int)(sizeof rules / sizeof *rules)};

/* First whether the architecture reads such data at all. */
static const hark_rule_list *const lists[] = {&hark_rules_of_vectors, &hark_rules_of_all, &hark_rules_of_rotary, &hark_rules_of_ahca};

const hark_model_rule *hark_model_rule_at(int index) {
  for (size_t i = 0; index >= 0 && i < sizeof lists / sizeof *lists; i++) {
    if (index < lists[i]->count) return &lists[i]->rules[index];
    index -= lists[i]->count;
  }
  return NULL;
}

bool hark_model_rule_concerns_data(const hark_model_rule *rule) {
  size_t length;
  for (const char *at = rule->options, *word; (word = hark_next_word(&at, ' ', &length)) != NULL;) {
    const hark_model_option *row;
    for (int i = 0; (row = hark_model_option_at(i)) != NULL; i++)
      if (row->fact && strlen(row->option.name) == length && memcmp(row->option.name, word, length) == 0) return true;
  }
  return false;
}

bool hark_rule_violated(char *message, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  (void)vsnprintf(message, HARK_MESSAGE_BYTES, format, arguments);
  va_end(arguments);
  return true;
}

const char *hark_rule_scaling(const hark_network_config *config, char out[HARK_OPTION_WORD_BYTES]) {
  return hark_option_choice_at(HARK_ROTARY_SCALING_WORDS, (int)config->rotary.scaling, out) ? out : "?";
}

hark_status hark_model_rules_check(const hark_network_config *config, bool data_known, hark_rule_report report, void *data) {
  char message[HARK_MESSAGE_BYTES];
  const hark_model_rule *rule;
  for (int i = 0; (rule = hark_model_rule_at(i)) != NULL; i++) {
    if (!data_known && hark_model_rule_concerns_data(rule)) continue;
    if (rule->violated(config, message)) HARK_TRY(report(data, rule->options, message));
  }
  return HARK_OK;
}

static hark_status refuse(void *data, const char *options, const char *message) {
  (void)options; /* the message names them */
  return hark_fail(data, HARK_BAD_CONFIGURATION, "%s", message);
}

hark_status hark_model_rules_require(hark_context *context, const hark_network_config *config) {
  return hark_model_rules_check(config, true, refuse, context);
}
