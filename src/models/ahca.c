/* ahca.c - the configuration and parameters of adaptive hierarchical compressed attention; ahca_pass.c has the pass. See ahca.h.
 *
 * Initial weights: linear layers preserve the size of their input, deviation 1 / sqrt(in), and 1 / sqrt(2 layers) of that where they write
 * into the residual stream; learned queries have deviation 1, boundaries begin at the identity. Tables of positions are as large as what
 * they are added to. docs/mathematics/ahca.md has the reasons.
 */
#include "models/ahca.h"

#include <hark/experimental.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "models/ahca_layers.h"
#include "models/boundaries.h"
#include "models/stack.h"

hark_ahca_sizes hark_ahca_sizes_of(const hark_network_config *config) {
  const hark_ahca_config *ahca = &config->ahca;
  const bool fixed = ahca->chunk == HARK_AHCA_CHUNK_FIXED;
  hark_ahca_sizes sizes = {.primary_width = ahca->primary_width != 0 ? ahca->primary_width : config->width};
  sizes.secondary_width = ahca->secondary_width != 0 ? ahca->secondary_width : sizes.primary_width;
  sizes.minimum = ahca->chunk_minimum != 0 ? ahca->chunk_minimum : hark_max(1, ahca->chunk_size / 4);
  sizes.maximum = ahca->chunk_maximum != 0 ? ahca->chunk_maximum : 4 * ahca->chunk_size;
  if (fixed) sizes.minimum = sizes.maximum = ahca->chunk_size;
  sizes.chunks = hark_chunk_capacity(config->context, 1, sizes.minimum);
  return sizes;
}

double hark_ahca_deviation(int64_t in) { return 1 / sqrt((double)in); }

/* Of linear layers that write into the residual stream, to which every layer adds two branches. */
static double output_deviation_of(const hark_network *network, int64_t in) {
  return hark_ahca_deviation(in) / sqrt(2.0 * (double)network->config.layers);
}

double hark_ahca_content_deviation(const hark_network_config *config) {
  if (config->features > 0) return 1;
  return config->embedding_deviation != 0 ? config->embedding_deviation : HARK_INITIAL_DEVIATION;
}

/* About what an element of a slot has: the mean of n rows of independent elements of deviation e has e / sqrt(n). With a small e learned
 * queries begin with nearly equal weights, so that a slot is the mean of the chunk. */
static double slot_deviation(const hark_network_config *config) {
  const hark_ahca_config *options = &config->ahca;
  const int64_t rows = options->primary_pool == HARK_AHCA_POOL_ATTENTION ? options->chunk_size
                       : options->primary_pool == HARK_AHCA_POOL_AVERAGE ? hark_ceil_div(options->chunk_size, options->primary_slots)
                                                                         : 1;
  return hark_ahca_content_deviation(config) / sqrt((double)rows);
}

hark_status hark_ahca_declare_table(hark_context *context, hark_network *network, const char *name, int64_t rows, int64_t width,
                                    double deviation, hark_parameter_id *out) {
  const hark_parameter_spec spec = {
      .rank = 2, .shape = {rows, width}, .initial = HARK_INITIAL_NORMAL, .value = deviation, .decays = true, .compact = true};
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
  const struct {
    const char *name;
    int64_t in, out;
    double deviation;
    hark_linear *layer;
  } parts[] = {{"query", widths->query, width, hark_ahca_deviation(widths->query), &attention->query},
               {"key", widths->query != 0 ? widths->key : 0, width, hark_ahca_deviation(widths->key), &attention->key},
               {"value", widths->key, width, hark_ahca_deviation(widths->key), &attention->value},
               {"output", width, widths->output, output_deviation_of(network, width), &attention->output}};
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

/* A selected token is alone in its layers: it would attend to itself, so that no query and key are needed. */
static hark_status declare_block(hark_context *context, hark_network *network, int64_t number, hark_ahca_layer *layer) {
  const hark_network_config *config = &network->config;
  const int64_t width = hark_ahca_sizes_of(config).primary_width;
  const hark_ahca_widths widths = {config->ahca.output == HARK_AHCA_OUTPUT_SELECTED ? 0 : width, width, width};
  char name[HARK_PARAMETER_NAME_BYTES];
  (void)snprintf(name, sizeof name, "blocks.%" PRId64 ".attention_norm", number);
  HARK_TRY(hark_ahca_declare_norm(context, network, name, width, &layer->attention_norm));
  (void)snprintf(name, sizeof name, "blocks.%" PRId64 ".attention", number);
  HARK_TRY(hark_ahca_declare_attention(context, network, name, &widths, &layer->attention));
  (void)snprintf(name, sizeof name, "blocks.%" PRId64 ".feed_forward_norm", number);
  HARK_TRY(hark_ahca_declare_norm(context, network, name, width, &layer->feed_forward_norm));
  (void)snprintf(name, sizeof name, "blocks.%" PRId64 ".feed_forward", number);
  return hark_feed_forward_declare(context, &network->parameters, config->activation, width, config->feed_forward_width, config->bias,
                                   hark_ahca_deviation(width), output_deviation_of(network, config->feed_forward_width), name,
                                   &layer->feed_forward);
}

static hark_status declare_layer(hark_context *context, hark_network *network, int64_t number, hark_ahca_layer *layer) {
  const hark_network_config *config = &network->config;
  const int64_t width = hark_ahca_sizes_of(config).primary_width;
  char name[HARK_PARAMETER_NAME_BYTES];
  const bool joins = number == 0 || config->ahca.join == HARK_AHCA_JOIN_EVERY;
  if (joins && hark_ahca_has_global(config)) HARK_TRY(declare_join(context, network, number, &layer->join));
  if (config->ahca.layer == HARK_AHCA_LAYER_BLOCK) return declare_block(context, network, number, layer);
  (void)snprintf(name, sizeof name, "blocks.%" PRId64 ".linear", number);
  return hark_linear_declare(context, &network->parameters, width, width, true, sqrt(2.0 / (double)width), name, &layer->linear);
}

/* Of two layers the first has the name of the one that is alone otherwise. */
static hark_status declare_compressor(hark_context *context, hark_network *network, const char *name, int64_t in, int64_t out,
                                      int64_t depth, hark_ahca_compressor *compressor) {
  char second[HARK_PARAMETER_NAME_BYTES];
  HARK_TRY(hark_ahca_declare_linear(context, network, name, in, out, hark_ahca_deviation(in), &compressor->first));
  if (depth < 2) return HARK_OK;
  (void)snprintf(second, sizeof second, "%s.second", name);
  return hark_ahca_declare_linear(context, network, second, out, out, hark_ahca_deviation(out), &compressor->second);
}

static hark_status declare_boundary(hark_context *context, hark_network *network, hark_ahca_layers *ahca) {
  const bool compressed = network->config.ahca.boundary == HARK_AHCA_BOUNDARY_COMPRESSED; /* which keeps the size of elements */
  const int64_t width = compressed ? hark_ahca_sizes_of(&network->config).primary_width : network->config.width;
  return hark_boundaries_declare(context, network, width, hark_ahca_content_deviation(&network->config), &ahca->boundary_query,
                                 &ahca->boundary_key);
}

static hark_status declare_score(hark_context *context, hark_network *network, const char *name, int64_t in, hark_linear *layer) {
  return hark_linear_declare(context, &network->parameters, in, 1, true, hark_ahca_deviation(in), name, layer);
}

/* Tables of positions are as large as what they are added to: in_chunk to compressed tokens, the other two to slots. */
static hark_status declare_positions(hark_context *context, hark_network *network, hark_ahca_layers *ahca) {
  const hark_network_config *config = &network->config;
  const hark_ahca_sizes sizes = hark_ahca_sizes_of(config);
  const struct {
    const char *name;
    int64_t rows, width;
    double deviation;
    hark_parameter_id *table;
  } tables[] = {{"embedding.in_chunk", hark_min(sizes.maximum, config->context), sizes.primary_width, hark_ahca_content_deviation(config),
                 &ahca->in_chunk_table},
                {"embedding.chunk", sizes.chunks, sizes.secondary_width, slot_deviation(config), &ahca->chunk_table},
                {"embedding.slot", config->ahca.primary_slots, sizes.secondary_width, slot_deviation(config), &ahca->slot_table}};
  const size_t count = hark_ahca_has_global(config) ? sizeof tables / sizeof *tables : 1; /* the others are of the second level */
  if (config->positions != HARK_POSITIONS_LEARNED) return HARK_OK;
  for (size_t i = 0; i < count; i++)
    HARK_TRY(
        hark_ahca_declare_table(context, network, tables[i].name, tables[i].rows, tables[i].width, tables[i].deviation, tables[i].table));
  return HARK_OK;
}

/* Learned queries of deviation 1 and the keys of what they pool. */
static hark_status declare_pool(hark_context *context, hark_network *network, const char *prefix, int64_t slots, int64_t width,
                                hark_parameter_id *queries, hark_linear *key) {
  char name[HARK_PARAMETER_NAME_BYTES];
  hark_join_name(name, prefix, "queries");
  HARK_TRY(hark_ahca_declare_table(context, network, name, slots, width, 1, queries));
  hark_join_name(name, prefix, "key");
  return hark_ahca_declare_linear(context, network, name, width, width, hark_ahca_deviation(width), key);
}

/* Scores and norms of the second level. */
static hark_status declare_selection(hark_context *context, hark_network *network, hark_ahca_layers *ahca) {
  const hark_network_config *config = &network->config;
  const hark_ahca_config *options = &config->ahca;
  const hark_ahca_sizes sizes = hark_ahca_sizes_of(config);
  HARK_TRY(hark_ahca_declare_norm(context, network, "secondary_norm", sizes.secondary_width, &ahca->secondary_norm));
  if (options->select == HARK_AHCA_SELECT_SCORE) HARK_TRY(declare_score(context, network, "select", sizes.secondary_width, &ahca->select));
  if (options->output != HARK_AHCA_OUTPUT_SELECTED) return HARK_OK;
  return hark_ahca_declare_linear(context, network, "from_selected", sizes.secondary_width, sizes.primary_width,
                                  hark_ahca_deviation(sizes.secondary_width), &ahca->from_selected);
}

static hark_status declare_compression(hark_context *context, hark_network *network, hark_ahca_layers *ahca) {
  const hark_network_config *config = &network->config;
  const hark_ahca_config *options = &config->ahca;
  const hark_ahca_sizes sizes = hark_ahca_sizes_of(config);
  const bool global = hark_ahca_has_global(config);
  if (options->chunk == HARK_AHCA_CHUNK_LEARNED) HARK_TRY(declare_boundary(context, network, ahca));
  HARK_TRY(declare_compressor(context, network, "primary", config->width, sizes.primary_width, options->primary_depth, &ahca->primary));
  if (global)
    HARK_TRY(declare_compressor(context, network, "secondary", sizes.primary_width, sizes.secondary_width, options->secondary_depth,
                                &ahca->secondary));
  HARK_TRY(declare_positions(context, network, ahca));
  if (options->primary_pool == HARK_AHCA_POOL_ATTENTION)
    HARK_TRY(
        declare_pool(context, network, "primary", options->primary_slots, sizes.primary_width, &ahca->primary_queries, &ahca->primary_key));
  if (global && options->secondary_pool == HARK_AHCA_POOL_ATTENTION)
    HARK_TRY(declare_pool(context, network, "secondary", options->secondary_slots, sizes.secondary_width, &ahca->secondary_queries,
                          &ahca->secondary_key));
  if (global) HARK_TRY(declare_selection(context, network, ahca));
  if (config->layers > 1 && options->depth == HARK_AHCA_DEPTH_CAPACITY && options->depth_score == HARK_AHCA_DEPTH_SCORE_CHUNK) {
    HARK_TRY(hark_ahca_declare_norm(context, network, "depth_norm", sizes.primary_width, &ahca->depth_norm));
    HARK_TRY(declare_score(context, network, "depth", sizes.primary_width, &ahca->depth));
  }
  return HARK_OK;
}

static hark_status declare(hark_context *context, hark_network *network) {
  const hark_network_config *config = &network->config;
  const hark_parameter_spec tokens = {.rank = 2,
                                      .shape = {config->vocabulary, config->width},
                                      .initial = HARK_INITIAL_NORMAL,
                                      .value = hark_ahca_content_deviation(config),
                                      .decays = true,
                                      .compact = true};
  void *memory = NULL;
  HARK_TRY(hark_allocate_zero(context, sizeof *network->ahca, &memory));
  network->ahca = memory;
  if (config->features > 0) {
    HARK_TRY(hark_ahca_declare_linear(context, network, "embedding.features", config->features, config->width,
                                      hark_ahca_deviation(config->features), &network->ahca->features));
  } else {
    HARK_TRY(hark_parameters_add(context, &network->parameters, &tokens, &network->token_table, "embedding.token.weight"));
  }
  HARK_TRY(hark_ahca_declare_local(context, network));
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
    .summary =
        "chunks, compressed twice, that attend to selected tokens of the whole; predicts the class of a sequence, or labels of its tokens",
    .looks_ahead = "pools, selection and ranks over a sequence leak later tokens into earlier ones",
    .predicts_classes = true,
    .may_read_vectors = true,
    .check = hark_ahca_check,
    .declare = declare,
    .close = close,
    .logits = logits,
};
