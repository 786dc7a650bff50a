/* ahca.c - the configuration and parameters of adaptive hierarchical compressed attention; ahca_pass.c has the pass. See ahca.h. */
#include "models/ahca.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "models/ahca_layers.h"
#include "models/stack.h"

hark_ahca_sizes hark_ahca_sizes_of(const hark_network_config *config) {
  const hark_ahca_config *ahca = &config->ahca;
  const bool fixed = ahca->chunk == HARK_AHCA_FIXED;
  hark_ahca_sizes sizes = {.primary_width = ahca->primary_width != 0 ? ahca->primary_width : config->width};
  sizes.secondary_width = ahca->secondary_width != 0 ? ahca->secondary_width : sizes.primary_width;
  sizes.minimum = ahca->chunk_minimum != 0 ? ahca->chunk_minimum : hark_max(1, ahca->chunk_size / 4);
  sizes.maximum = ahca->chunk_maximum != 0 ? ahca->chunk_maximum : 4 * ahca->chunk_size;
  if (fixed) sizes.minimum = sizes.maximum = ahca->chunk_size;
  sizes.chunks = hark_chunk_capacity(config->context, 1, sizes.minimum);
  return sizes;
}

static hark_status check_sizes(hark_context *context, const hark_network_config *config) {
  const hark_ahca_config *ahca = &config->ahca;
  const struct {
    const char *name;
    int64_t value, least;
  } numbers[] = {
      {"chunk_size", ahca->chunk_size, 1}, {"chunk_minimum", ahca->chunk_minimum, 0}, {"chunk_maximum", ahca->chunk_maximum, 0},
      {"window", ahca->window, 1},         {"primary_slots", ahca->primary_slots, 1}, {"secondary_slots", ahca->secondary_slots, 1},
      {"selected", ahca->selected, 1},     {"primary_width", ahca->primary_width, 0}, {"secondary_width", ahca->secondary_width, 0}};
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
  if (ahca->secondary_pool == HARK_AHCA_ATTENTION && sizes.secondary_width % config->heads != 0)
    return hark_fail(context, HARK_BAD_CONFIGURATION, "model.ahca.secondary_width %" PRId64 " is not a multiple of model.heads %" PRId64,
                     sizes.secondary_width, config->heads);
  if (ahca->select == HARK_AHCA_QUERY && sizes.primary_width != sizes.secondary_width)
    return hark_fail(context, HARK_BAD_CONFIGURATION,
                     "model.ahca.select query multiplies both levels: primary_width is %" PRId64 " and secondary_width %" PRId64
                     ", expected one number",
                     sizes.primary_width, sizes.secondary_width);
  return HARK_OK;
}

static hark_status check(hark_context *context, const hark_network_config *config) {
  const hark_ahca_config *ahca = &config->ahca;
  HARK_TRY(check_sizes(context, config));
  if (config->classes < 2)
    return hark_fail(context, HARK_BAD_CONFIGURATION, "ahca tells classes apart: there are %" PRId64 ", expected at least 2",
                     config->classes);
  if (config->parts > 1)
    return hark_fail(context, HARK_BAD_CONFIGURATION, "ahca reads one sequence an example, the data have %" PRId64, config->parts);
  if (config->layers > HARK_MAX_DEPTH)
    return hark_fail(context, HARK_BAD_CONFIGURATION, "model.layers is %" PRId64 ", expected at most %d with ahca", config->layers,
                     HARK_MAX_DEPTH);
  if (!(ahca->capacity >= 0 && ahca->capacity <= 1))
    return hark_fail(context, HARK_BAD_CONFIGURATION, "model.ahca.capacity is %g, expected 0 to 1", ahca->capacity);
  if (!isfinite(ahca->threshold) || !(ahca->ratio_weight >= 0) || !(ahca->ponder_weight >= 0))
    return hark_fail(context, HARK_BAD_CONFIGURATION,
                     "model.ahca.threshold is %g, ratio_weight %g, ponder_weight %g, expected finite numbers and weights of 0 or more",
                     ahca->threshold, ahca->ratio_weight, ahca->ponder_weight);
  if (ahca->chunk == HARK_AHCA_LEARNED && ahca->chunk_size < 2)
    return hark_fail(context, HARK_BAD_CONFIGURATION, "model.ahca.chunk_size is 1, expected at least 2 for learned chunks");
  if (config->structure != HARK_STRUCTURE_DENSE || config->kernel != HARK_KERNEL_EXP || config->forget_gate)
    return hark_fail(
        context, HARK_BAD_CONFIGURATION,
        "ahca attends densely to a chunk's slots and to selected tokens: expected model.attention.structure dense, kernel exp and "
        "no forget gate");
  if (config->positions == HARK_POSITIONS_ROTARY || config->positions == HARK_POSITIONS_SINUSOIDAL)
    return hark_fail(
        context, HARK_BAD_CONFIGURATION,
        "pooled slots have no position of their own: expected model.positions learned (in chunks, of chunks and of slots) or none");
  if (config->positional != NULL && config->positional[0] != '\0')
    return hark_fail(context, HARK_BAD_CONFIGURATION, "model.positional needs attention between tokens, expected none with ahca");
  if (config->attention_unbiased)
    return hark_fail(context, HARK_BAD_CONFIGURATION,
                     "ahca's attention has the biases of model.bias, expected no model.attention.unbiased");
  if (config->normalisation != HARK_NORMALISATION_SOFTMAX || config->attention_dropout > 0 || config->key_heads != config->heads ||
      config->attention_width != 0)
    return hark_fail(context, HARK_BAD_CONFIGURATION,
                     "ahca attends by softmax with whole heads: expected model.attention.normalisation softmax and dropout 0, "
                     "model.key_heads as many as model.heads and no model.attention_width");
  if (config->recompute)
    return hark_fail(context, HARK_BAD_CONFIGURATION, "model.recompute is for stacks of blocks, expected false with ahca");
  return HARK_OK;
}

static hark_status declare_table(hark_context *context, hark_network *network, const char *name, int64_t rows, int64_t width,
                                 hark_parameter_id *out) {
  const hark_parameter_spec spec = {
      .rank = 2, .shape = {rows, width}, .initial = HARK_INITIAL_NORMAL, .value = HARK_INITIAL_DEVIATION, .decays = true};
  return hark_parameters_add(context, &network->parameters, &spec, out, "%s.weight", name);
}

static hark_status declare_linear(hark_context *context, hark_network *network, const char *name, int64_t in, int64_t out, double deviation,
                                  hark_linear *layer) {
  return hark_linear_declare(context, &network->parameters, in, out, network->config.bias, deviation, name, layer);
}

static hark_status declare_norm(hark_context *context, hark_network *network, const char *name, int64_t width, hark_norm_layer *layer) {
  const hark_network_config *config = &network->config;
  return hark_norm_declare(context, &network->parameters, config->norm, config->norm_epsilon, width, config->bias, name, layer);
}

static hark_status declare_attention(hark_context *context, hark_network *network, const char *prefix, int64_t query_width,
                                     int64_t key_width, hark_ahca_attention *attention) {
  const int64_t width = hark_ahca_sizes_of(&network->config).primary_width;
  const double output_deviation = HARK_INITIAL_DEVIATION / sqrt(2.0 * (double)network->config.layers);
  const struct {
    const char *name;
    int64_t in;
    double deviation;
    hark_linear *layer;
  } parts[] = {{"query", query_width, HARK_INITIAL_DEVIATION, &attention->query},
               {"key", key_width, HARK_INITIAL_DEVIATION, &attention->key},
               {"value", key_width, HARK_INITIAL_DEVIATION, &attention->value},
               {"output", width, output_deviation, &attention->output}};
  char name[HARK_PARAMETER_NAME_BYTES];
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
    (void)snprintf(name, sizeof name, "%s.%s", prefix, parts[i].name);
    HARK_TRY(declare_linear(context, network, name, parts[i].in, width, parts[i].deviation, parts[i].layer));
  }
  return HARK_OK;
}

static hark_status declare_join(hark_context *context, hark_network *network, int64_t layer, hark_ahca_join_layer *join) {
  const hark_ahca_sizes sizes = hark_ahca_sizes_of(&network->config);
  char name[HARK_PARAMETER_NAME_BYTES];
  (void)snprintf(name, sizeof name, "blocks.%" PRId64 ".join_norm", layer);
  HARK_TRY(declare_norm(context, network, name, sizes.primary_width, &join->norm));
  (void)snprintf(name, sizeof name, "blocks.%" PRId64 ".join", layer);
  return declare_attention(context, network, name, sizes.primary_width, sizes.secondary_width, &join->attention);
}

static hark_status declare_layer(hark_context *context, hark_network *network, int64_t number, hark_ahca_layer *layer) {
  const hark_network_config *config = &network->config;
  const int64_t width = hark_ahca_sizes_of(config).primary_width;
  const double output_deviation = HARK_INITIAL_DEVIATION / sqrt(2.0 * (double)config->layers);
  char name[HARK_PARAMETER_NAME_BYTES];
  if (number == 0 || config->ahca.join == HARK_AHCA_EVERY) HARK_TRY(declare_join(context, network, number, &layer->join));
  (void)snprintf(name, sizeof name, "blocks.%" PRId64 ".attention_norm", number);
  HARK_TRY(declare_norm(context, network, name, width, &layer->attention_norm));
  (void)snprintf(name, sizeof name, "blocks.%" PRId64 ".attention", number);
  HARK_TRY(declare_attention(context, network, name, width, width, &layer->attention));
  (void)snprintf(name, sizeof name, "blocks.%" PRId64 ".feed_forward_norm", number);
  HARK_TRY(declare_norm(context, network, name, width, &layer->feed_forward_norm));
  (void)snprintf(name, sizeof name, "blocks.%" PRId64 ".feed_forward", number);
  return hark_feed_forward_declare(context, &network->parameters, config->activation, width, config->feed_forward_width, config->bias,
                                   HARK_INITIAL_DEVIATION, output_deviation, name, &layer->feed_forward);
}

static hark_status declare_compression(hark_context *context, hark_network *network, hark_ahca_layers *ahca) {
  const hark_network_config *config = &network->config;
  const hark_ahca_config *options = &config->ahca;
  const hark_ahca_sizes sizes = hark_ahca_sizes_of(config);
  if (options->chunk == HARK_AHCA_LEARNED) {
    HARK_TRY(
        declare_linear(context, network, "boundary.query", config->width, config->width, HARK_INITIAL_DEVIATION, &ahca->boundary_query));
    HARK_TRY(declare_linear(context, network, "boundary.key", config->width, config->width, HARK_INITIAL_DEVIATION, &ahca->boundary_key));
  }
  HARK_TRY(declare_linear(context, network, "primary", config->width, sizes.primary_width, HARK_INITIAL_DEVIATION, &ahca->primary));
  HARK_TRY(
      declare_linear(context, network, "secondary", sizes.primary_width, sizes.secondary_width, HARK_INITIAL_DEVIATION, &ahca->secondary));
  if (config->positions == HARK_POSITIONS_LEARNED) {
    HARK_TRY(declare_table(context, network, "embedding.in_chunk", hark_min(sizes.maximum, config->context), sizes.primary_width,
                           &ahca->in_chunk_table));
    HARK_TRY(declare_table(context, network, "embedding.chunk", sizes.chunks, sizes.secondary_width, &ahca->chunk_table));
    HARK_TRY(declare_table(context, network, "embedding.slot", options->primary_slots, sizes.secondary_width, &ahca->slot_table));
  }
  if (options->primary_pool == HARK_AHCA_ATTENTION) {
    HARK_TRY(declare_table(context, network, "primary.queries", options->primary_slots, sizes.primary_width, &ahca->primary_queries));
    HARK_TRY(declare_linear(context, network, "primary.key", sizes.primary_width, sizes.primary_width, HARK_INITIAL_DEVIATION,
                            &ahca->primary_key));
  }
  if (options->secondary_pool == HARK_AHCA_ATTENTION) {
    HARK_TRY(
        declare_table(context, network, "secondary.queries", options->secondary_slots, sizes.secondary_width, &ahca->secondary_queries));
    HARK_TRY(declare_linear(context, network, "secondary.key", sizes.secondary_width, sizes.secondary_width, HARK_INITIAL_DEVIATION,
                            &ahca->secondary_key));
  }
  HARK_TRY(declare_norm(context, network, "secondary_norm", sizes.secondary_width, &ahca->secondary_norm));
  if (options->select == HARK_AHCA_SCORE)
    HARK_TRY(hark_linear_declare(context, &network->parameters, sizes.secondary_width, 1, true, HARK_INITIAL_DEVIATION, "select",
                                 &ahca->select));
  if (config->layers > 1 && options->depth == HARK_AHCA_CAPACITY && options->depth_score == HARK_AHCA_OF_CHUNK) {
    HARK_TRY(declare_norm(context, network, "depth_norm", sizes.primary_width, &ahca->depth_norm));
    HARK_TRY(
        hark_linear_declare(context, &network->parameters, sizes.primary_width, 1, true, HARK_INITIAL_DEVIATION, "depth", &ahca->depth));
  }
  return HARK_OK;
}

static hark_status declare(hark_context *context, hark_network *network) {
  const hark_network_config *config = &network->config;
  const int64_t width = hark_ahca_sizes_of(config).primary_width,
                hidden = config->head_width != 0 ? config->head_width : config->feed_forward_width;
  const hark_parameter_spec tokens = {.rank = 2,
                                      .shape = {config->vocabulary, config->width},
                                      .initial = HARK_INITIAL_NORMAL,
                                      .value = config->embedding_deviation != 0 ? config->embedding_deviation : HARK_INITIAL_DEVIATION,
                                      .decays = true};
  void *memory = NULL;
  HARK_TRY(hark_allocate_zero(context, sizeof *network->ahca, &memory));
  network->ahca = memory;
  HARK_TRY(hark_parameters_add(context, &network->parameters, &tokens, &network->token_table, "embedding.token.weight"));
  HARK_TRY(declare_compression(context, network, network->ahca));
  for (int64_t layer = 0; layer < config->layers; layer++) HARK_TRY(declare_layer(context, network, layer, &network->ahca->layers[layer]));
  HARK_TRY(declare_norm(context, network, "final_norm", width, &network->final_norm));
  HARK_TRY(
      hark_linear_declare(context, &network->parameters, width, hidden, true, HARK_INITIAL_DEVIATION, "head.hidden", &network->hidden[0]));
  return hark_linear_declare(context, &network->parameters, hidden, config->classes, true, HARK_INITIAL_DEVIATION, "head", &network->head);
}

static void close(hark_context *context, hark_network *network) {
  hark_release(context, network->ahca, sizeof *network->ahca);
  network->ahca = NULL;
}

static hark_status logits(hark_context *context, const hark_network *network, const hark_forward *forward, const hark_network_input *input,
                          hark_value *out) {
  return hark_ahca_logits(context, network, forward, input, out, NULL);
}

const hark_architecture hark_architecture_ahca = {
    .name = "ahca",
    .summary = "chunks, compressed twice, that attend to selected tokens of the whole; tells the class of a sequence",
    .predicts_classes = true,
    .check = check,
    .declare = declare,
    .close = close,
    .logits = logits,
};
