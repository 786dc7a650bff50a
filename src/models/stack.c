/* stack.c - see stack.h. Initial weights into the residual stream are smaller by a factor of sqrt(2 layers) (Radford et al. 2019). */
#include "models/stack.h"

#include <hark/experimental.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "autograd/rows.h"
#include "models/boundaries.h"

/* Whether the layers have a positional kernel with their own parameters. */
static bool has_own_kernels(const hark_network *network) {
  return hark_positional_source_given(&network->positional_source) && network->config.positional_scope != HARK_SCOPE_MODEL;
}

static bool shares_kernel(const hark_network *network) {
  return hark_positional_source_given(&network->positional_source) && network->config.positional_scope == HARK_SCOPE_MODEL;
}

hark_rotary_spec hark_stack_rotary(const hark_network_config *config, hark_rotary_tuning *tuning) {
  const hark_rotary_choice *rotary = &config->rotary;
  *tuning = hark_network_rotary_tuning(rotary);
  return (hark_rotary_spec){.present = config->positions == HARK_POSITIONS_ROTARY,
                            .learned = rotary->learned != HARK_ROTARY_STATIC,
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

static bool is_post(const hark_network *network) { return network->config.norm_place == HARK_NORM_POST; }

static hark_status declare_norm(hark_context *context, hark_network *network, const char *name, hark_norm_layer *layer) {
  const hark_network_config *config = &network->config;
  return hark_norm_declare(context, &network->parameters, config->norm, config->norm_epsilon, config->width, config->bias, name, layer);
}

hark_status hark_stack_declare_block(hark_context *context, hark_network *network, const hark_self_attention_spec *attention,
                                     double down_deviation, const char *prefix, int64_t number, hark_block *block) {
  const hark_network_config *config = &network->config;
  hark_parameters *parameters = &network->parameters;
  char name[HARK_PARAMETER_NAME_BYTES];
  (void)snprintf(name, sizeof name, "%s.%" PRId64 ".attention_norm", prefix, number);
  HARK_TRY(declare_norm(context, network, name, &block->attention_norm));
  (void)snprintf(name, sizeof name, "%s.%" PRId64 ".attention", prefix, number);
  HARK_TRY(hark_self_attention_declare(context, parameters, attention, number, name, &block->attention));
  (void)snprintf(name, sizeof name, "%s.%" PRId64 ".feed_forward_norm", prefix, number);
  HARK_TRY(declare_norm(context, network, name, &block->feed_forward_norm));
  (void)snprintf(name, sizeof name, "%s.%" PRId64 ".feed_forward", prefix, number);
  return hark_feed_forward_declare(context, parameters, config->activation, config->width, config->feed_forward_width, config->bias,
                                   attention->deviation, down_deviation, name, &block->feed_forward);
}

static hark_status declare_block(hark_context *context, hark_network *network, int64_t layer) {
  const hark_network_config *config = &network->config;
  hark_rotary_spec rotary = hark_stack_rotary(config, &network->rotary_tuning);
  rotary.tables = &network->rotary_tables;
  const double deviation = hark_stack_deviation(config), output_deviation = deviation / sqrt(2.0 * (double)config->layers);
  const hark_self_attention_spec attention = {
      .width = config->width,
      .head_dim = hark_network_head_dim(config),
      .causal = network->architecture->causal,
      .heads = config->heads,
      .key_heads = config->key_heads,
      .bias = config->bias ? !config->attention.unbiased : config->attention.biased != HARK_BIASED_NONE,
      .output_bias = config->bias ? !config->attention.unbiased : config->attention.biased == HARK_BIASED_ALL,
      .deviation = deviation,
      .output_deviation = output_deviation,
      .rotary = rotary,
      .rotary_source = has_own_rates(config) ? &network->rotary_source : NULL,
      .rotary_rates = network->rotary_rates,
      .choice = config->attention,
      .structure = (hark_attention_structure)hark_layer_choice_of(&config->attention.structure, layer),
      .normalisation = (hark_attention_normalisation)hark_layer_choice_of(&config->attention.normalisation, layer),
      .ridge = config->attention.ridge * pow((double)config->context, config->attention.ridge_power),
      .positional = hark_positional_source_given(&network->positional_source),
      .directed = !network->architecture->causal && hark_positional_source_directed(&network->positional_source),
      .positional_source = has_own_kernels(network) ? &network->positional_source : NULL};
  network->blocks[layer].post = is_post(network);
  return hark_stack_declare_block(context, network, &attention, output_deviation, "blocks", layer, &network->blocks[layer]);
}

/* The expression is also a note of the parameters: weights of one expression cannot be used for another. */
hark_status hark_stack_open_positional(hark_context *context, hark_network *network, int64_t length) {
  static const char *const scopes[] = {"model", "layer", "head"};
  hark_network_config *config = &network->config;
  const int64_t rows = hark_positional_rows(config->positional_scope, hark_positional_list_length(config->positional), config->heads);
  HARK_TRY(hark_positional_source_open(context, config->positional, rows, length, &network->positional_source));
  config->positional = network->positional_source.text;
  network->positional_source.stretch = config->positional_stretch;
  const bool present = hark_positional_source_given(&network->positional_source);
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
  HARK_TRY(hark_rotary_tables_open(context, &spec, &network->rotary_tables));
  if (!spec.learned) return HARK_OK;
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
  hark_parameter_spec types = tokens;
  positions.shape[0] = config->context;
  positions.compact = false; /* read by position_embedding */
  types.shape[0] = config->token_types;
  types.compact = false;
  if (config->embedding_deviation != 0) tokens.value = config->embedding_deviation;
  HARK_TRY(hark_parameters_add(context, parameters, &tokens, &network->token_table, "embedding.token.weight"));
  if (config->positions == HARK_POSITIONS_LEARNED)
    HARK_TRY(hark_parameters_add(context, parameters, &positions, &network->position_table, "embedding.position.weight"));
  if (config->token_types > 0) HARK_TRY(hark_parameters_add(context, parameters, &types, &network->type_table, "embedding.type.weight"));
  if (config->embedding_norm) HARK_TRY(declare_norm(context, network, "embedding_norm", &network->embedding_norm));
  if (shares_kernel(network))
    HARK_TRY(hark_positional_declare(context, parameters, &network->positional_source, 0, "", &network->positional));
  if (config->rotary.learned == HARK_ROTARY_OF_MODEL)
    HARK_TRY(hark_rotary_declare(context, parameters, &network->rotary_source, "", &network->rotary_rates));
  for (int64_t layer = 0; layer < config->layers; layer++) HARK_TRY(declare_block(context, network, layer));
  if (!is_post(network)) HARK_TRY(declare_norm(context, network, "final_norm", &network->final_norm));
  return hark_boundaries_declare_decoder(context, network);
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

/* Arguments for building a block, or a part of it, which is built again for the backward. */
typedef struct block_closure {
  hark_context *context;
  const hark_network *network;
  const hark_forward *forward;
  const hark_block *block;
  int64_t layer;       /* number of the block in the model: selects the dropout's random numbers */
  bool built;          /* built before: its report was already counted */
  bool embeds;         /* the input is the tokens, not the embedded ones */
  bool has_flags;      /* an input: where chunks begin */
  bool has_boundaries; /* two more inputs: of learned chunks in training */
} block_closure;

/* norm(x); x is released. */
static hark_status norm_of(const hark_forward *forward, const hark_norm_layer *norm, hark_value x, hark_value *out) {
  HARK_TRY(hark_norm_apply(forward, norm, x, out));
  hark_tape_release(forward->tape, x);
  return HARK_OK;
}

/* x to queries, keys, values and gates; x is kept. */
static hark_status begin_block(const block_closure *closure, const hark_forward *forward, hark_value x, hark_value *parts) {
  const hark_block *block = closure->block;
  hark_value normed = 0;
  if (block->post) return hark_self_attention_project(closure->context, forward, &block->attention, x, parts);
  HARK_TRY(hark_norm_apply(forward, &block->attention_norm, x, &normed));
  HARK_TRY(hark_self_attention_project(closure->context, forward, &block->attention, normed, parts));
  hark_tape_release(forward->tape, normed);
  return HARK_OK;
}

/* What happens to a branch before it is added to the residual stream. */
static hark_status end_branch(const block_closure *closure, const hark_forward *forward, hark_dropout_place place, hark_value *branch) {
  HARK_TRY(hark_forward_dropout(forward, closure->network->config.dropout, closure->layer, place, branch));
  return HARK_OK;
}

/* Post-norm: x' = norm(x + branch); y = norm(x' + feed_forward(x')); x and the branch are released. */
static hark_status end_post(const block_closure *closure, const hark_forward *forward, hark_value x, hark_value branch, hark_value *out) {
  const hark_block *block = closure->block;
  hark_value sum = 0;
  HARK_TRY(hark_forward_add(forward, x, branch, &sum));
  HARK_TRY(norm_of(forward, &block->attention_norm, sum, &x));
  HARK_TRY(hark_feed_forward_apply(forward, &block->feed_forward, x, &branch));
  HARK_TRY(end_branch(closure, forward, HARK_DROPOUT_FEED_FORWARD_BRANCH, &branch));
  HARK_TRY(hark_forward_add(forward, x, branch, &sum));
  return norm_of(forward, &block->feed_forward_norm, sum, out);
}

/* x' = x + output(mixed); y = x' + feed_forward(norm(x')), or as above; x and mixed are released. */
static hark_status end_block(const block_closure *closure, const hark_forward *forward, hark_value x, hark_value mixed, hark_value *out) {
  const hark_block *block = closure->block;
  hark_value normed = 0, branch = 0;
  HARK_TRY(hark_self_attention_output(forward, &block->attention, mixed, &branch));
  HARK_TRY(end_branch(closure, forward, HARK_DROPOUT_ATTENTION_BRANCH, &branch));
  if (block->post) return end_post(closure, forward, x, branch, out);
  HARK_TRY(hark_forward_add(forward, x, branch, &x));
  HARK_TRY(hark_norm_apply(forward, &block->feed_forward_norm, x, &normed));
  HARK_TRY(hark_feed_forward_apply(forward, &block->feed_forward, normed, &branch));
  hark_tape_release(forward->tape, normed);
  HARK_TRY(end_branch(closure, forward, HARK_DROPOUT_FEED_FORWARD_BRANCH, &branch));
  return hark_forward_add(forward, x, branch, out);
}

/* ---- in slices of rows (autograd/rows.h) ---- */

/* Whether a pass goes through what needs no row of another in slices. Without recomputation the backward needs the values of all rows. */
static bool is_sliced(const hark_context *context, const hark_network *network, const hark_forward *forward, const hark_tensor *rows) {
  return forward->packing == NULL && forward->caches == NULL && (!forward->training || network->config.recompute) && rows->shape[0] == 1 &&
         rows->shape[1] > context->rows.most;
}

/* The settings of a pass through a slice of `rows` rows in all, which may be those of a process. */
static hark_forward forward_of_slice(const hark_forward *whole, int64_t first, int64_t rows) {
  hark_forward forward = *whole;
  forward.slice_row += first;
  if (forward.rows == 0) forward.rows = rows;
  return forward;
}

/* A closure with the number of rows, which a slice does not know. */
typedef struct slice_closure {
  block_closure block;
  int64_t rows;
  double weight; /* of the loss */
} slice_closure;

static hark_tape_rows part_of(hark_context *context, hark_tape_rows_build *build, const slice_closure *closure) {
  return (hark_tape_rows){
      .build = build, .closure = closure, .closure_bytes = sizeof *closure, .rows = closure->rows, .slice = context->rows.part};
}

static hark_status describe_rows(const slice_closure *closure, int64_t width, hark_tensor *out) {
  const int64_t shape[] = {1, closure->rows, width};
  return hark_tensor_describe(closure->block.context, closure->block.network->parameters.type, 3, shape, out);
}

static hark_status begin_slice(void *data, hark_tape *tape, int64_t first, const hark_value *inputs, hark_value *outputs) {
  const slice_closure *closure = data;
  const hark_forward forward = forward_of_slice(closure->block.forward, first, closure->rows);
  hark_value parts[HARK_ATTENTION_PARTS];
  (void)tape;
  HARK_TRY(begin_block(&closure->block, &forward, inputs[0], parts));
  const int count = parts[HARK_ATTENTION_GATE] != 0 ? HARK_ATTENTION_PARTS : HARK_ATTENTION_GATE;
  for (int i = 0; i < count; i++) outputs[i] = parts[i];
  return HARK_OK;
}

static hark_status begin_slices(const slice_closure *closure, hark_value x, hark_value *parts) {
  const hark_self_attention_spec *spec = &closure->block.block->attention.spec;
  hark_tape_rows part = part_of(closure->block.context, begin_slice, closure);
  const int64_t query = spec->heads * spec->head_dim, key = spec->key_heads * spec->head_dim;
  const int64_t widths[HARK_ATTENTION_PARTS] = {query, key, key, spec->heads};
  part.input_count = 1;
  part.inputs[0] = x;
  part.output_count = hark_self_attention_has_gate(spec) ? HARK_ATTENTION_PARTS : HARK_ATTENTION_GATE;
  for (int i = 0; i < part.output_count; i++) HARK_TRY(describe_rows(closure, widths[i], &part.outputs[i]));
  parts[HARK_ATTENTION_GATE] = 0;
  return hark_tape_rows_apply(closure->block.forward->tape, &part, parts);
}

static hark_status end_slice(void *data, hark_tape *tape, int64_t first, const hark_value *inputs, hark_value *outputs) {
  const slice_closure *closure = data;
  const hark_forward forward = forward_of_slice(closure->block.forward, first, closure->rows);
  (void)tape;
  return end_block(&closure->block, &forward, inputs[0], inputs[1], &outputs[0]);
}

static hark_status end_slices(const slice_closure *closure, hark_value x, hark_value mixed, hark_value *out) {
  hark_tape *tape = closure->block.forward->tape;
  hark_tape_rows part = part_of(closure->block.context, end_slice, closure);
  part.input_count = 2;
  part.inputs[0] = x;
  part.inputs[1] = mixed;
  part.output_count = 1;
  part.ends_segment = true;
  HARK_TRY(describe_rows(closure, closure->block.network->config.width, &part.outputs[0]));
  HARK_TRY(hark_tape_rows_apply(tape, &part, out));
  hark_tape_release(tape, mixed);
  hark_tape_release(tape, x);
  return HARK_OK;
}

static hark_status embed(hark_context *context, const hark_network *network, const hark_forward *forward, hark_value tokens,
                         hark_value *out);

/* inputs: x, or the tokens; the table of a positional kernel where the model shares one, or 0; where chunks begin, with has_flags; with
 * has_boundaries the probabilities that they begin, and their offsets. x' = x + attention(norm(x)); y = x' + feed_forward(norm(x')). x is
 * released if it is not an input of a segment. */
enum { TABLE = 1, FLAGS, PROBABILITY, CHUNKS, BLOCK_INPUTS };
static hark_status build_block(void *data, hark_tape *tape, const hark_value *inputs, hark_value *outputs) {
  block_closure *closure = data;
  const hark_network *network = closure->network;
  hark_forward own = *closure->forward;
  hark_value parts[HARK_ATTENTION_PARTS], mixed = 0, x = inputs[0];
  const hark_self_attention *attention = &closure->block->attention;
  if (closure->built) own.report = NULL;
  closure->built = true;
  if (closure->has_flags) own.chunk_flags = inputs[FLAGS];
  if (closure->embeds) HARK_TRY(embed(closure->context, network, &own, inputs[0], &x));
  const slice_closure slices = {.block = *closure, .rows = hark_tape_tensor(tape, x)->shape[1]};
  const bool sliced = is_sliced(closure->context, network, &own, hark_tape_tensor(tape, x));
  HARK_TRY(sliced ? begin_slices(&slices, x, parts) : begin_block(closure, &own, x, parts));
  const hark_value shared = attention->spec.positional && shares_kernel(network) ? inputs[TABLE] : 0;
  HARK_TRY(hark_self_attention_mix(closure->context, &own, attention, parts, shared, &mixed));
  if (closure->has_boundaries && attention->spec.structure == HARK_STRUCTURE_COMPRESSED)
    HARK_TRY(hark_boundaries_pass_through(&own, inputs[PROBABILITY], inputs[CHUNKS], &mixed));
  return sliced ? end_slices(&slices, x, mixed, &outputs[0]) : end_block(closure, &own, x, mixed, &outputs[0]);
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
    const hark_position_embedding_attributes attributes = {.first_position = forward->first_position + forward->slice_row};
    HARK_TRY(hark_forward_parameter(forward, network->position_table, &inputs[1]));
    return hark_tape_apply(forward->tape, &hark_op_position_embedding, &attributes, 2, inputs, 1, x);
  }
  const hark_sinusoidal_positions_attributes attributes = {.first_position = forward->first_position + forward->slice_row,
                                                           .base = config->rotary.base};
  return hark_tape_apply(forward->tape, &hark_op_sinusoidal_positions, &attributes, 1, inputs, 1, x);
}

/* Adds the vectors of the tokens' types. */
static hark_status embed_types(hark_context *context, const hark_network *network, const hark_forward *forward, hark_value *x) {
  hark_value inputs[2] = {0};
  if (network->type_table == 0) return HARK_OK;
  if (forward->types == NULL)
    return hark_fail(context, HARK_INTERNAL_ERROR, "the model has %" PRId64 " token types, and a pass gave none",
                     network->config.token_types);
  HARK_TRY(hark_tape_leaf(forward->tape, forward->types, NULL, &inputs[0]));
  HARK_TRY(hark_forward_parameter(forward, network->type_table, &inputs[1]));
  HARK_TRY(hark_tape_apply(forward->tape, &hark_op_embedding, NULL, 2, inputs, 0, &inputs[0]));
  return hark_forward_add(forward, *x, inputs[0], x);
}

/* Length of the longest sequence of a pass, including earlier tokens. */
static int64_t length_of(const hark_forward *forward, hark_value tokens) {
  if (forward->packing != NULL) return forward->packing->longest;
  return forward->first_position + (forward->rows > 0 ? forward->rows : hark_tape_tensor(forward->tape, tokens)->shape[1]);
}

static hark_status embed(hark_context *context, const hark_network *network, const hark_forward *forward, hark_value tokens,
                         hark_value *out) {
  const hark_network_config *config = &network->config;
  if (config->positions == HARK_POSITIONS_LEARNED && length_of(forward, tokens) > config->context)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "learned positions end at the context of %" PRId64 " tokens, %" PRId64 " were given",
                     config->context, length_of(forward, tokens));
  HARK_TRY(hark_embedding_apply(forward, network->token_table, tokens, out));
  HARK_TRY(embed_positions(network, forward, out));
  HARK_TRY(embed_types(context, network, forward, out));
  if (config->embedding_norm) HARK_TRY(norm_of(forward, &network->embedding_norm, *out, out));
  return hark_forward_dropout(forward, config->embedding_dropout, 0, HARK_DROPOUT_EMBEDDING, out);
}

/* The table of the model's positional kernel for this pass, with the distances of the layer that needs most. */
static hark_status shared_table(const hark_network *network, const hark_forward *forward, hark_value tokens, hark_value *table) {
  int64_t distances = 0;
  for (int64_t layer = 0; layer < network->config.layers; layer++)
    distances = hark_max(distances, hark_self_attention_distances(&network->blocks[layer].attention.spec, length_of(forward, tokens)));
  const bool directed = network->blocks[0].attention.spec.directed; /* those of all layers are */
  return hark_positional_apply(forward, &network->positional, directed ? -distances : distances, table);
}

/* Builds a block; with `again` as a segment, which the backward builds again. */
static hark_status apply_block(block_closure *closure, bool again, int count, const hark_value *inputs, hark_value *out) {
  const hark_forward *forward = closure->forward;
  if (forward->cancel != NULL && forward->cancel(forward->cancel_user)) return hark_fail(closure->context, HARK_CANCELLED, "cancelled");
  if (again) return hark_tape_segment(forward->tape, build_block, closure, sizeof *closure, count, inputs, 1, out);
  return build_block(closure, forward->tape, inputs, out);
}

hark_status hark_stack_apply_blocks(hark_context *context, const hark_network *network, const hark_forward *forward,
                                    const hark_block *blocks, int64_t count, int64_t first_layer, hark_value x, hark_value *out) {
  for (int64_t i = 0; i < count; i++) {
    hark_value y = 0;
    block_closure closure = {.context = context, .network = network, .forward = forward, .block = &blocks[i], .layer = first_layer + i};
    HARK_TRY(apply_block(&closure, network->config.recompute && forward->training, 1, &x, &y));
    hark_tape_release(forward->tape, x);
    x = y;
  }
  *out = x;
  return HARK_OK;
}

/* Where the chunks of compressed layers begin; 0 if they have one length, or if caches are used, whose decodings know it. */
static hark_status cut_chunks(const hark_network *network, const hark_forward *forward, hark_value tokens, hark_value *flags) {
  const hark_attention_choice *choice = &network->config.attention;
  *flags = 0;
  if (!hark_layer_choice_has(&choice->structure, HARK_STRUCTURE_COMPRESSED) || !hark_attention_is_delimited(choice) ||
      forward->caches != NULL || forward->group != NULL)
    return HARK_OK;
  const hark_chunk_ends ends = hark_attention_chunk_ends(choice);
  const hark_chunk_starts_attributes attributes = {.delimiters = ends.delimiters,
                                                   .delimiter_count = ends.delimiter_count,
                                                   .minimum = ends.minimum,
                                                   .maximum = ends.maximum,
                                                   .segments = forward->packing != NULL ? forward->packing->segments : NULL};
  return hark_tape_apply(forward->tape, &hark_op_chunk_starts, &attributes, 1, &tokens, 0, flags);
}

/* Learned chunks for all layers from this one on, whose input is x. */
static hark_status learn_chunks(const hark_network *network, const hark_forward *forward, hark_value tokens, hark_value x,
                                hark_value *inputs) {
  hark_boundary_values learned;
  HARK_TRY(hark_boundaries_learn(network, forward, tokens, x, &learned));
  inputs[FLAGS] = learned.flags;
  inputs[PROBABILITY] = learned.probability;
  inputs[CHUNKS] = learned.chunks;
  if (forward->boundaries != NULL) *forward->boundaries = learned;
  return HARK_OK;
}

hark_status hark_stack_apply(hark_context *context, const hark_network *network, const hark_forward *forward, hark_value tokens,
                             hark_value *out) {
  const hark_network_config *config = &network->config;
  hark_tape *tape = forward->tape;
  hark_value inputs[BLOCK_INPUTS] = {0}, x = 0, y = 0;
  const bool segments = config->recompute && forward->training;
  /* With slices the first segment embeds: the tokens need less memory than what is embedded. */
  const bool embeds = segments && is_sliced(context, network, forward, hark_tape_tensor(tape, tokens));
  if (!embeds) HARK_TRY(embed(context, network, forward, tokens, &x));
  if (shares_kernel(network) && forward->log_kernels == NULL) HARK_TRY(shared_table(network, forward, tokens, &inputs[TABLE]));
  HARK_TRY(cut_chunks(network, forward, tokens, &inputs[FLAGS]));
  for (int64_t layer = 0; layer < config->layers; layer++) {
    if (hark_boundaries_are_learned(network) && layer == hark_boundaries_layer(network))
      HARK_TRY(learn_chunks(network, forward, tokens, x, inputs));
    inputs[0] = x != 0 ? x : tokens;
    block_closure closure = {.context = context,
                             .network = network,
                             .forward = forward,
                             .block = &network->blocks[layer],
                             .layer = layer,
                             .embeds = x == 0,
                             .has_flags = inputs[FLAGS] != 0,
                             .has_boundaries = inputs[PROBABILITY] != 0};
    int count = BLOCK_INPUTS;
    while (count > TABLE && inputs[count - 1] == 0) count--;
    HARK_TRY(apply_block(&closure, segments, count, inputs, &y));
    if (x != 0) hark_tape_release(tape, x);
    x = y;
  }
  for (int i = TABLE; i < BLOCK_INPUTS; i++)
    if (inputs[i] != 0 && (i == TABLE || forward->boundaries == NULL)) hark_tape_release(tape, inputs[i]);
  *out = x;
  return HARK_OK;
}

hark_status hark_stack_finish(const hark_network *network, const hark_forward *forward, hark_value x, hark_value *out) {
  *out = x;
  return is_post(network) ? HARK_OK : norm_of(forward, &network->final_norm, x, out);
}

hark_status hark_stack_head(const hark_network *network, const hark_forward *forward, hark_value x, hark_value *logits) {
  hark_value y = 0;
  HARK_TRY(hark_stack_finish(network, forward, x, &y));
  HARK_TRY(hark_linear_apply(forward, &network->head, y, logits));
  hark_tape_release(forward->tape, y);
  return HARK_OK;
}

static hark_status head_slice(void *data, hark_tape *tape, int64_t first, const hark_value *inputs, hark_value *outputs) {
  const slice_closure *closure = data;
  (void)tape, (void)first;
  return hark_stack_head(closure->block.network, closure->block.forward, inputs[0], &outputs[0]);
}

static hark_status loss_slice(void *data, hark_tape *tape, int64_t first, const hark_value *inputs, hark_value *outputs) {
  const slice_closure *closure = data;
  hark_value logits = 0;
  (void)first;
  HARK_TRY(hark_stack_head(closure->block.network, closure->block.forward, inputs[0], &logits));
  HARK_TRY(hark_network_loss(tape, logits, inputs[1], (hark_target_loss){.weight = closure->weight}, &outputs[0]));
  hark_tape_release(tape, logits);
  return HARK_OK;
}

/* The logits of all rows of x [1, rows, D], or with targets their loss; x is released. */
static hark_status head_slices(slice_closure *closure, hark_value x, hark_value targets, hark_value *out) {
  hark_context *context = closure->block.context;
  const hark_network *network = closure->block.network;
  hark_tape *tape = closure->block.forward->tape;
  closure->rows = hark_tape_tensor(tape, x)->shape[1];
  hark_tape_rows part = part_of(context, targets != 0 ? loss_slice : head_slice, closure);
  part.input_count = targets != 0 ? 2 : 1;
  part.inputs[0] = x;
  part.inputs[1] = targets;
  part.output_count = 1;
  if (targets != 0)
    HARK_TRY(hark_tensor_describe(context, network->parameters.type, 0, NULL, &part.outputs[0]));
  else
    HARK_TRY(describe_rows(closure, hark_parameters_at(&network->parameters, network->head.weight)->weight.shape[0], &part.outputs[0]));
  HARK_TRY(hark_tape_rows_apply(tape, &part, out));
  hark_tape_release(tape, x);
  return HARK_OK;
}

hark_status hark_stack_logits(hark_context *context, const hark_network *network, const hark_forward *forward, hark_value tokens,
                              bool last_only, hark_value *logits) {
  hark_tape *tape = forward->tape;
  slice_closure slices = {.block = {.context = context, .network = network, .forward = forward}};
  hark_value x = 0;
  HARK_TRY(hark_stack_apply(context, network, forward, tokens, &x));
  if (last_only) {
    const hark_pool_attributes last = {.kind = HARK_POOL_LAST};
    HARK_TRY(hark_tape_apply(tape, &hark_op_pool, &last, 1, &x, 1, &x));
    return hark_stack_head(network, forward, x, logits);
  }
  if (forward->logit_rows == NULL && is_sliced(context, network, forward, hark_tape_tensor(tape, x)))
    return head_slices(&slices, x, 0, logits);
  HARK_TRY(hark_forward_take_logit_rows(forward, &x));
  return hark_stack_head(network, forward, x, logits);
}

hark_status hark_stack_loss(hark_context *context, const hark_network *network, const hark_forward *forward, hark_value tokens,
                            hark_value targets, hark_target_loss how, hark_value *loss) {
  slice_closure slices = {.block = {.context = context, .network = network, .forward = forward}, .weight = how.weight};
  hark_value x = 0, logits = 0;
  if (how.smoothing == 0 && how.z == 0 && forward->logit_rows == NULL &&
      is_sliced(context, network, forward, hark_tape_tensor(forward->tape, tokens))) {
    HARK_TRY(hark_stack_apply(context, network, forward, tokens, &x));
    return head_slices(&slices, x, targets, loss);
  }
  HARK_TRY(hark_stack_logits(context, network, forward, tokens, false, &logits));
  HARK_TRY(hark_network_loss(forward->tape, logits, targets, how, loss));
  hark_tape_release(forward->tape, logits);
  return HARK_OK;
}
