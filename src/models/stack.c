/* stack.c - see stack.h. Initial weights into the residual stream are smaller by a factor of sqrt(2 layers) (Radford et al. 2019). */
#include "models/stack.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

/* Whether the layers have a positional kernel with their own parameters. */
static bool has_own_kernels(const hark_network *network) {
  return network->positional_source.expression != NULL && network->config.positional_scope != HARK_SCOPE_MODEL;
}

static bool shares_kernel(const hark_network *network) {
  return network->positional_source.expression != NULL && network->config.positional_scope == HARK_SCOPE_MODEL;
}

hark_rotary_spec hark_stack_rotary(const hark_network_config *config, hark_rotary_tuning *tuning) {
  const hark_rotary_choice *rotary = &config->rotary;
  *tuning = hark_network_rotary_tuning(rotary);
  return (hark_rotary_spec){.present = config->positions == HARK_POSITIONS_ROTARY,
                            .base = rotary->base,
                            .pairs = rotary->pairs,
                            .fraction = rotary->fraction,
                            .scaling = rotary->scaling,
                            .factor = rotary->scaling_factor,
                            .context = rotary->original_context != 0 ? rotary->original_context : config->context,
                            .head_dim = hark_network_head_dim(config),
                            .tuning = tuning};
}

static bool has_own_rates(const hark_network_config *config) {
  return config->rotary.learned == HARK_ROTARY_OF_LAYER || config->rotary.learned == HARK_ROTARY_OF_HEAD;
}

static hark_status declare_block(hark_context *context, hark_network *network, int64_t layer) {
  const hark_network_config *config = &network->config;
  hark_block *block = &network->blocks[layer];
  hark_parameters *parameters = &network->parameters;
  hark_rotary_spec rotary = hark_stack_rotary(config, &network->rotary_tuning);
  rotary.tables = &network->rotary_tables;
  const double deviation = hark_stack_deviation(config), output_deviation = deviation / sqrt(2.0 * (double)config->layers);
  const hark_self_attention_spec attention = {
      .width = config->width,
      .head_dim = hark_network_head_dim(config),
      .causal = network->architecture->causal,
      .heads = config->heads,
      .key_heads = config->key_heads,
      .bias = config->bias && !config->attention.unbiased,
      .deviation = deviation,
      .output_deviation = output_deviation,
      .rotary = rotary,
      .rotary_source = has_own_rates(config) ? &network->rotary_source : NULL,
      .rotary_rates = network->rotary_rates,
      .choice = config->attention,
      .structure = (hark_attention_structure)hark_layer_choice_of(&config->attention.structure, layer),
      .normalisation = (hark_attention_normalisation)hark_layer_choice_of(&config->attention.normalisation, layer),
      .ridge = config->attention.ridge * pow((double)config->context, config->attention.ridge_power),
      .positional = network->positional_source.expression != NULL,
      .positional_source = has_own_kernels(network) ? &network->positional_source : NULL};
  char name[HARK_PARAMETER_NAME_BYTES];
  (void)snprintf(name, sizeof name, "blocks.%" PRId64 ".attention_norm", layer);
  HARK_TRY(hark_norm_declare(context, parameters, config->norm, config->norm_epsilon, config->width, config->bias, name,
                             &block->attention_norm));
  (void)snprintf(name, sizeof name, "blocks.%" PRId64 ".attention", layer);
  HARK_TRY(hark_self_attention_declare(context, parameters, &attention, layer, name, &block->attention));
  (void)snprintf(name, sizeof name, "blocks.%" PRId64 ".feed_forward_norm", layer);
  HARK_TRY(hark_norm_declare(context, parameters, config->norm, config->norm_epsilon, config->width, config->bias, name,
                             &block->feed_forward_norm));
  (void)snprintf(name, sizeof name, "blocks.%" PRId64 ".feed_forward", layer);
  return hark_feed_forward_declare(context, parameters, config->activation, config->width, config->feed_forward_width, config->bias,
                                   deviation, output_deviation, name, &block->feed_forward);
}

/* The expression is also a note of the parameters: weights of one expression cannot be used for another. */
hark_status hark_stack_open_positional(hark_context *context, hark_network *network, int64_t length) {
  static const char *const scopes[] = {"model", "layer", "head"};
  hark_network_config *config = &network->config;
  const int64_t rows = config->positional_scope == HARK_SCOPE_HEAD ? config->heads : 1;
  HARK_TRY(hark_positional_source_open(context, config->positional, rows, length, &network->positional_source));
  config->positional = network->positional_source.text;
  network->positional_source.stretch = config->positional_stretch;
  const bool present = network->positional_source.expression != NULL;
  hark_parameters *parameters = &network->parameters;
  parameters->notes[parameters->note_count++] =
      (hark_parameter_note){.key = HARK_POSITIONAL_KEY, .text = present ? network->positional_source.text : ""};
  parameters->notes[parameters->note_count++] =
      (hark_parameter_note){.key = HARK_POSITIONAL_SCOPE_KEY, .text = present ? scopes[config->positional_scope] : ""};
  return HARK_OK;
}

static hark_status open_rotary(hark_context *context, hark_network *network) {
  const hark_network_config *config = &network->config;
  const hark_rotary_spec spec = hark_stack_rotary(config, &network->rotary_tuning);
  if (config->rotary.learned == HARK_ROTARY_STATIC) return hark_rotary_tables_open(context, &spec, &network->rotary_tables);
  const int64_t rows = config->rotary.learned == HARK_ROTARY_OF_HEAD ? config->key_heads : 1;
  return hark_rotary_source_open(context, &spec, rows, &network->rotary_source);
}

static hark_status declare_parts(hark_context *context, hark_network *network) {
  const hark_network_config *config = &network->config;
  hark_parameters *parameters = &network->parameters;
  hark_parameter_spec tokens = {.rank = 2,
                                .shape = {config->vocabulary, config->width},
                                .initial = HARK_INITIAL_NORMAL,
                                .value = HARK_INITIAL_DEVIATION,
                                .decays = true,
                                .compact = true};
  hark_parameter_spec positions = tokens;
  positions.shape[0] = config->context;
  positions.compact = false; /* read by position_embedding */
  if (config->embedding_deviation != 0) tokens.value = config->embedding_deviation;
  HARK_TRY(hark_parameters_add(context, parameters, &tokens, &network->token_table, "embedding.token.weight"));
  if (config->positions == HARK_POSITIONS_LEARNED)
    HARK_TRY(hark_parameters_add(context, parameters, &positions, &network->position_table, "embedding.position.weight"));
  if (shares_kernel(network)) HARK_TRY(hark_positional_declare(context, parameters, &network->positional_source, "", &network->positional));
  if (config->rotary.learned == HARK_ROTARY_OF_MODEL)
    HARK_TRY(hark_rotary_declare(context, parameters, &network->rotary_source, "", &network->rotary_rates));
  for (int64_t layer = 0; layer < config->layers; layer++) HARK_TRY(declare_block(context, network, layer));
  return hark_norm_declare(context, parameters, config->norm, config->norm_epsilon, config->width, config->bias, "final_norm",
                           &network->final_norm);
}

hark_status hark_stack_declare(hark_context *context, hark_network *network) {
  void *memory = NULL;
  HARK_TRY(hark_allocate_zero(context, (size_t)network->config.layers * sizeof *network->blocks, &memory));
  network->blocks = memory;
  HARK_TRY(hark_stack_open_positional(context, network, network->config.context));
  HARK_TRY(open_rotary(context, network));
  return declare_parts(context, network);
}

hark_parameter_id hark_stack_rates(const hark_network *network, int64_t block) { return network->blocks[block].attention.rotary_rates; }

const hark_positional_layer *hark_stack_positional(const hark_network *network, int64_t block) {
  return has_own_kernels(network) ? &network->blocks[block].attention.positional : &network->positional;
}

/* Arguments for building a block, which is built again for the backward. */
typedef struct block_closure {
  hark_context *context;
  const hark_network *network;
  const hark_forward *forward;
  int64_t layer;
  bool built; /* built before: its report was already counted */
} block_closure;

/* inputs: x, and where the model shares one, the table of a positional kernel. x' = x + attention(norm(x)); y = x' +
 * feed_forward(norm(x')). x is released if it is not an input of a segment. */
static hark_status build_block(void *data, hark_tape *tape, const hark_value *inputs, hark_value *outputs) {
  block_closure *closure = data;
  const hark_network_config *config = &closure->network->config;
  const hark_block *block = &closure->network->blocks[closure->layer];
  hark_forward own = *closure->forward;
  const hark_forward *forward = &own;
  hark_value normed = 0, branch = 0, x = inputs[0];
  if (closure->built) own.report = NULL;
  closure->built = true;
  HARK_TRY(hark_norm_apply(forward, &block->attention_norm, x, &normed));
  const hark_value log_kernel = shares_kernel(closure->network) ? inputs[1] : 0;
  HARK_TRY(hark_self_attention_apply(closure->context, forward, &block->attention, normed, log_kernel, &branch));
  hark_tape_release(tape, normed);
  HARK_TRY(hark_forward_dropout(forward, config->dropout, closure->layer, HARK_DROPOUT_ATTENTION_BRANCH, &branch));
  HARK_TRY(hark_forward_add(forward, x, branch, &x));
  HARK_TRY(hark_norm_apply(forward, &block->feed_forward_norm, x, &normed));
  HARK_TRY(hark_feed_forward_apply(forward, &block->feed_forward, normed, &branch));
  hark_tape_release(tape, normed);
  HARK_TRY(hark_forward_dropout(forward, config->dropout, closure->layer, HARK_DROPOUT_FEED_FORWARD_BRANCH, &branch));
  return hark_forward_add(forward, x, branch, &outputs[0]);
}

/* Adds positions to the embedded tokens of packed sequences, each of which begins at position 0. */
static hark_status embed_packed_positions(const hark_network *network, const hark_forward *forward, hark_value *x) {
  hark_value inputs[2] = {0};
  hark_tensor positions = *forward->packing->positions;
  if (network->config.positions == HARK_POSITIONS_LEARNED) { /* a table of the same shape as x: [1, T] in, [1, T, D] out */
    positions.rank = 2;
    positions.shape[1] = positions.shape[0];
    positions.shape[0] = 1;
    positions.stride[1] = 1;
    positions.stride[0] = positions.shape[1];
  }
  positions.owned_bytes = 0;
  HARK_TRY(hark_tape_leaf(forward->tape, &positions, NULL, &inputs[0]));
  if (network->config.positions == HARK_POSITIONS_LEARNED) {
    HARK_TRY(hark_forward_parameter(forward, network->position_table, &inputs[1]));
    HARK_TRY(hark_tape_apply(forward->tape, &hark_op_embedding, NULL, 2, inputs, 0, &inputs[0]));
    return hark_forward_add(forward, *x, inputs[0], x);
  }
  const hark_sinusoidal_positions_attributes attributes = {.base = network->config.rotary.base};
  const hark_value parts[] = {*x, inputs[0]};
  return hark_tape_apply(forward->tape, &hark_op_sinusoidal_positions, &attributes, 2, parts, 1, x);
}

static hark_status embed_positions(const hark_network *network, const hark_forward *forward, hark_value *x) {
  const hark_network_config *config = &network->config;
  if (config->positions != HARK_POSITIONS_LEARNED && config->positions != HARK_POSITIONS_SINUSOIDAL) return HARK_OK;
  if (forward->packing != NULL) return embed_packed_positions(network, forward, x);
  hark_value inputs[2] = {*x};
  if (config->positions == HARK_POSITIONS_LEARNED) {
    const hark_position_embedding_attributes attributes = {.first_position = forward->first_position};
    HARK_TRY(hark_forward_parameter(forward, network->position_table, &inputs[1]));
    return hark_tape_apply(forward->tape, &hark_op_position_embedding, &attributes, 2, inputs, 1, x);
  }
  const hark_sinusoidal_positions_attributes attributes = {.first_position = forward->first_position, .base = config->rotary.base};
  return hark_tape_apply(forward->tape, &hark_op_sinusoidal_positions, &attributes, 1, inputs, 1, x);
}

/* Length of the longest sequence of a pass, including earlier tokens. */
static int64_t length_of(const hark_forward *forward, hark_value tokens) {
  if (forward->packing != NULL) return forward->packing->longest;
  return forward->first_position + hark_tape_tensor(forward->tape, tokens)->shape[1];
}

static hark_status embed(hark_context *context, const hark_network *network, const hark_forward *forward, hark_value tokens,
                         hark_value *out) {
  const hark_network_config *config = &network->config;
  if (config->positions == HARK_POSITIONS_LEARNED && length_of(forward, tokens) > config->context)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "learned positions end at the context of %" PRId64 " tokens, %" PRId64 " were given",
                     config->context, length_of(forward, tokens));
  HARK_TRY(hark_embedding_apply(forward, network->token_table, tokens, out));
  HARK_TRY(embed_positions(network, forward, out));
  return hark_forward_dropout(forward, config->embedding_dropout, 0, HARK_DROPOUT_EMBEDDING, out);
}

/* The table of the model's positional kernel for this pass, with the distances of the layer that needs most. */
static hark_status shared_table(const hark_network *network, const hark_forward *forward, hark_value tokens, hark_value *table) {
  int64_t distances = 0;
  for (int64_t layer = 0; layer < network->config.layers; layer++)
    distances = hark_max(distances, hark_self_attention_distances(&network->blocks[layer].attention.spec, length_of(forward, tokens)));
  return hark_positional_apply(forward, &network->positional, distances, table);
}

hark_status hark_stack_apply(hark_context *context, const hark_network *network, const hark_forward *forward, hark_value tokens,
                             hark_value *out) {
  const hark_network_config *config = &network->config;
  hark_tape *tape = forward->tape;
  hark_value inputs[2] = {0}, x = 0, y = 0;
  HARK_TRY(embed(context, network, forward, tokens, &x));
  if (shares_kernel(network) && forward->log_kernels == NULL) HARK_TRY(shared_table(network, forward, tokens, &inputs[1]));
  for (int64_t layer = 0; layer < config->layers; layer++) {
    if (forward->cancel != NULL && forward->cancel(forward->cancel_user)) return hark_fail(context, HARK_CANCELLED, "cancelled");
    inputs[0] = x;
    block_closure closure = {.context = context, .network = network, .forward = forward, .layer = layer};
    if (config->recompute && forward->training)
      HARK_TRY(hark_tape_segment(tape, build_block, &closure, sizeof closure, inputs[1] != 0 ? 2 : 1, inputs, 1, &y));
    else
      HARK_TRY(build_block(&closure, tape, inputs, &y));
    hark_tape_release(tape, x);
    x = y;
  }
  if (inputs[1] != 0) hark_tape_release(tape, inputs[1]);
  *out = x;
  return HARK_OK;
}

hark_status hark_stack_logits(hark_context *context, const hark_network *network, const hark_forward *forward, hark_value tokens,
                              bool last_only, hark_value *logits) {
  hark_tape *tape = forward->tape;
  hark_value x = 0, y = 0;
  HARK_TRY(hark_stack_apply(context, network, forward, tokens, &x));
  if (last_only) {
    const hark_pool_attributes last = {.kind = HARK_POOL_LAST};
    HARK_TRY(hark_tape_apply(tape, &hark_op_pool, &last, 1, &x, 1, &x));
  }
  HARK_TRY(hark_norm_apply(forward, &network->final_norm, x, &y));
  hark_tape_release(tape, x);
  HARK_TRY(hark_linear_apply(forward, &network->head, y, logits));
  hark_tape_release(tape, y);
  return HARK_OK;
}

hark_status hark_stack_loss(hark_context *context, const hark_network *network, const hark_forward *forward, hark_value tokens,
                            hark_value targets, double weight, double smoothing, hark_value *loss) {
  hark_value logits = 0;
  HARK_TRY(hark_stack_logits(context, network, forward, tokens, false, &logits));
  HARK_TRY(hark_network_loss(forward->tape, logits, targets, weight, smoothing, loss));
  hark_tape_release(forward->tape, logits);
  return HARK_OK;
}
