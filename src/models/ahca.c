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

hark_status hark_ahca_declare_table(hark_context *context, hark_network *network, const char *name, int64_t rows, int64_t width,
                                    hark_parameter_id *out) {
  const hark_parameter_spec spec = {
      .rank = 2, .shape = {rows, width}, .initial = HARK_INITIAL_NORMAL, .value = HARK_INITIAL_DEVIATION, .decays = true};
  return hark_parameters_add(context, &network->parameters, &spec, out, "%s.weight", name);
}

hark_status hark_ahca_declare_linear(hark_context *context, hark_network *network, const char *name, int64_t in, int64_t out,
                                     double deviation, hark_linear *layer) {
  return hark_linear_declare(context, &network->parameters, in, out, network->config.bias, deviation, name, layer);
}

hark_status hark_ahca_declare_norm(hark_context *context, hark_network *network, const char *name, int64_t width, hark_norm_layer *layer) {
  const hark_network_config *config = &network->config;
  return hark_norm_declare(context, &network->parameters, config->norm, config->norm_epsilon, width, config->bias, name, layer);
}

hark_status hark_ahca_declare_attention(hark_context *context, hark_network *network, const char *prefix, const hark_ahca_widths *widths,
                                        hark_ahca_attention *attention) {
  const int64_t width = hark_ahca_sizes_of(&network->config).primary_width;
  const double output_deviation = HARK_INITIAL_DEVIATION / sqrt(2.0 * (double)network->config.layers);
  const struct {
    const char *name;
    int64_t in, out;
    double deviation;
    hark_linear *layer;
  } parts[] = {{"query", widths->query, width, HARK_INITIAL_DEVIATION, &attention->query},
               {"key", widths->query != 0 ? widths->key : 0, width, HARK_INITIAL_DEVIATION, &attention->key},
               {"value", widths->key, width, HARK_INITIAL_DEVIATION, &attention->value},
               {"output", width, widths->output, output_deviation, &attention->output}};
  char name[HARK_PARAMETER_NAME_BYTES];
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
    if (parts[i].in == 0) continue;
    (void)snprintf(name, sizeof name, "%s.%s", prefix, parts[i].name);
    HARK_TRY(hark_ahca_declare_linear(context, network, name, parts[i].in, parts[i].out, parts[i].deviation, parts[i].layer));
  }
  return HARK_OK;
}

static hark_status declare_join(hark_context *context, hark_network *network, int64_t layer, hark_ahca_join_layer *join) {
  const hark_ahca_sizes sizes = hark_ahca_sizes_of(&network->config);
  const hark_ahca_widths widths = {sizes.primary_width, sizes.secondary_width, sizes.primary_width};
  char name[HARK_PARAMETER_NAME_BYTES];
  (void)snprintf(name, sizeof name, "blocks.%" PRId64 ".join_norm", layer);
  HARK_TRY(hark_ahca_declare_norm(context, network, name, sizes.primary_width, &join->norm));
  (void)snprintf(name, sizeof name, "blocks.%" PRId64 ".join", layer);
  return hark_ahca_declare_attention(context, network, name, &widths, &join->attention);
}

/* A selected token is alone in its layers: it would attend to itself, so that nobody has to ask. */
static hark_status declare_block(hark_context *context, hark_network *network, int64_t number, hark_ahca_layer *layer) {
  const hark_network_config *config = &network->config;
  const int64_t width = hark_ahca_sizes_of(config).primary_width;
  const double output_deviation = HARK_INITIAL_DEVIATION / sqrt(2.0 * (double)config->layers);
  const hark_ahca_widths widths = {config->ahca.output == HARK_AHCA_OF_SELECTED ? 0 : width, width, width};
  char name[HARK_PARAMETER_NAME_BYTES];
  (void)snprintf(name, sizeof name, "blocks.%" PRId64 ".attention_norm", number);
  HARK_TRY(hark_ahca_declare_norm(context, network, name, width, &layer->attention_norm));
  (void)snprintf(name, sizeof name, "blocks.%" PRId64 ".attention", number);
  HARK_TRY(hark_ahca_declare_attention(context, network, name, &widths, &layer->attention));
  (void)snprintf(name, sizeof name, "blocks.%" PRId64 ".feed_forward_norm", number);
  HARK_TRY(hark_ahca_declare_norm(context, network, name, width, &layer->feed_forward_norm));
  (void)snprintf(name, sizeof name, "blocks.%" PRId64 ".feed_forward", number);
  return hark_feed_forward_declare(context, &network->parameters, config->activation, width, config->feed_forward_width, config->bias,
                                   HARK_INITIAL_DEVIATION, output_deviation, name, &layer->feed_forward);
}

static hark_status declare_layer(hark_context *context, hark_network *network, int64_t number, hark_ahca_layer *layer) {
  const hark_network_config *config = &network->config;
  const int64_t width = hark_ahca_sizes_of(config).primary_width;
  char name[HARK_PARAMETER_NAME_BYTES];
  if (number == 0 || config->ahca.join == HARK_AHCA_EVERY) HARK_TRY(declare_join(context, network, number, &layer->join));
  if (config->ahca.layer == HARK_AHCA_BLOCK) return declare_block(context, network, number, layer);
  (void)snprintf(name, sizeof name, "blocks.%" PRId64 ".linear", number);
  return hark_linear_declare(context, &network->parameters, width, width, true, sqrt(2.0 / (double)width), name, &layer->linear);
}

/* Of two layers the first has the name of the one that is alone otherwise. */
static hark_status declare_compressor(hark_context *context, hark_network *network, const char *name, int64_t in, int64_t out,
                                      int64_t depth, hark_ahca_compressor *compressor) {
  char second[HARK_PARAMETER_NAME_BYTES];
  HARK_TRY(hark_ahca_declare_linear(context, network, name, in, out, HARK_INITIAL_DEVIATION, &compressor->first));
  if (depth < 2) return HARK_OK;
  (void)snprintf(second, sizeof second, "%s.second", name);
  return hark_ahca_declare_linear(context, network, second, out, out, HARK_INITIAL_DEVIATION, &compressor->second);
}

static hark_status declare_compression(hark_context *context, hark_network *network, hark_ahca_layers *ahca) {
  const hark_network_config *config = &network->config;
  const hark_ahca_config *options = &config->ahca;
  const hark_ahca_sizes sizes = hark_ahca_sizes_of(config);
  if (options->chunk == HARK_AHCA_LEARNED) {
    HARK_TRY(hark_ahca_declare_linear(context, network, "boundary.query", config->width, config->width, HARK_INITIAL_DEVIATION,
                                      &ahca->boundary_query));
    HARK_TRY(hark_ahca_declare_linear(context, network, "boundary.key", config->width, config->width, HARK_INITIAL_DEVIATION,
                                      &ahca->boundary_key));
  }
  HARK_TRY(declare_compressor(context, network, "primary", config->width, sizes.primary_width, options->primary_depth, &ahca->primary));
  HARK_TRY(declare_compressor(context, network, "secondary", sizes.primary_width, sizes.secondary_width, options->secondary_depth,
                              &ahca->secondary));
  if (config->positions == HARK_POSITIONS_LEARNED) {
    HARK_TRY(hark_ahca_declare_table(context, network, "embedding.in_chunk", hark_min(sizes.maximum, config->context), sizes.primary_width,
                                     &ahca->in_chunk_table));
    HARK_TRY(hark_ahca_declare_table(context, network, "embedding.chunk", sizes.chunks, sizes.secondary_width, &ahca->chunk_table));
    HARK_TRY(hark_ahca_declare_table(context, network, "embedding.slot", options->primary_slots, sizes.secondary_width, &ahca->slot_table));
  }
  if (options->primary_pool == HARK_AHCA_ATTENTION) {
    HARK_TRY(
        hark_ahca_declare_table(context, network, "primary.queries", options->primary_slots, sizes.primary_width, &ahca->primary_queries));
    HARK_TRY(hark_ahca_declare_linear(context, network, "primary.key", sizes.primary_width, sizes.primary_width, HARK_INITIAL_DEVIATION,
                                      &ahca->primary_key));
  }
  if (options->secondary_pool == HARK_AHCA_ATTENTION) {
    HARK_TRY(hark_ahca_declare_table(context, network, "secondary.queries", options->secondary_slots, sizes.secondary_width,
                                     &ahca->secondary_queries));
    HARK_TRY(hark_ahca_declare_linear(context, network, "secondary.key", sizes.secondary_width, sizes.secondary_width,
                                      HARK_INITIAL_DEVIATION, &ahca->secondary_key));
  }
  HARK_TRY(hark_ahca_declare_norm(context, network, "secondary_norm", sizes.secondary_width, &ahca->secondary_norm));
  if (options->select == HARK_AHCA_SCORE)
    HARK_TRY(hark_linear_declare(context, &network->parameters, sizes.secondary_width, 1, true, HARK_INITIAL_DEVIATION, "select",
                                 &ahca->select));
  if (options->output == HARK_AHCA_OF_SELECTED)
    HARK_TRY(hark_ahca_declare_linear(context, network, "from_selected", sizes.secondary_width, sizes.primary_width, HARK_INITIAL_DEVIATION,
                                      &ahca->from_selected));
  if (config->layers > 1 && options->depth == HARK_AHCA_CAPACITY && options->depth_score == HARK_AHCA_OF_CHUNK) {
    HARK_TRY(hark_ahca_declare_norm(context, network, "depth_norm", sizes.primary_width, &ahca->depth_norm));
    HARK_TRY(
        hark_linear_declare(context, &network->parameters, sizes.primary_width, 1, true, HARK_INITIAL_DEVIATION, "depth", &ahca->depth));
  }
  return HARK_OK;
}

static hark_status declare(hark_context *context, hark_network *network) {
  const hark_network_config *config = &network->config;
  const hark_parameter_spec tokens = {.rank = 2,
                                      .shape = {config->vocabulary, config->width},
                                      .initial = HARK_INITIAL_NORMAL,
                                      .value = config->embedding_deviation != 0 ? config->embedding_deviation : HARK_INITIAL_DEVIATION,
                                      .decays = true};
  void *memory = NULL;
  HARK_TRY(hark_allocate_zero(context, sizeof *network->ahca, &memory));
  network->ahca = memory;
  if (config->features > 0) {
    HARK_TRY(hark_ahca_declare_linear(context, network, "embedding.features", config->features, config->width,
                                      1 / sqrt((double)config->features), &network->ahca->features));
  } else {
    HARK_TRY(hark_parameters_add(context, &network->parameters, &tokens, &network->token_table, "embedding.token.weight"));
  }
  HARK_TRY(declare_compression(context, network, network->ahca));
  for (int64_t layer = 0; layer < config->layers; layer++) HARK_TRY(declare_layer(context, network, layer, &network->ahca->layers[layer]));
  HARK_TRY(hark_ahca_declare_positional(context, network));
  return hark_ahca_declare_head(context, network);
}

static void close(hark_context *context, hark_network *network) {
  hark_release(context, network->ahca, sizeof *network->ahca);
  network->ahca = NULL;
}

static hark_status logits(hark_context *context, const hark_network *network, const hark_forward *forward, const hark_network_input *input,
                          hark_value *out) {
  return hark_ahca_logits(context, network, forward, input, out, input->trace);
}

const hark_architecture hark_architecture_ahca = {
    .name = "ahca",
    .summary = "chunks, compressed twice, that attend to selected tokens of the whole; tells the class of a sequence, or its tokens",
    .looks_ahead = "pools, selection and ranks over a sequence tell a token of those behind it",
    .predicts_classes = true,
    .may_read_vectors = true,
    .check = hark_ahca_check,
    .declare = declare,
    .close = close,
    .logits = logits,
};
