/* decoder.c - assembling the decoder from layers. Initial deviations are GPT-2's: 0.02, and 0.02 / sqrt(2 layers) into the residual stream
 * (Radford et al. 2019). */
#include "models/decoder.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#define INITIAL_DEVIATION 0.02

static hark_status check_rotary(hark_context *context, const hark_decoder_config *config) {
  const bool learned = config->rotary_learned != HARK_ROTARY_STATIC, scaled = config->rotary_scaling != HARK_ROTARY_AS_TRAINED;
  if ((learned || scaled) && config->positions != HARK_POSITIONS_ROTARY)
    return hark_fail(context, HARK_BAD_CONFIGURATION, "model.rotary.%s needs model.positions rotary", learned ? "learned" : "scaling");
  if (learned && scaled)
    return hark_fail(context, HARK_BAD_CONFIGURATION, "model.rotary.scaling is for static rates, and model.rotary.learned asks for others");
  return HARK_OK;
}

/* What a file may say that no configuration does. */
static hark_status check_ridge(hark_context *context, const hark_decoder_config *config) {
  if (config->normalisation != HARK_NORMALISATION_CME) return HARK_OK; /* configurations carry the fields always */
  if (!(config->ridge > 0) || !isfinite(config->ridge))
    return hark_fail(context, HARK_BAD_CONFIGURATION, "model.attention.ridge is %g, expected a finite number above 0", config->ridge);
  if (config->sigma_learned && config->kernel != HARK_KERNEL_RBF)
    return hark_fail(context, HARK_BAD_CONFIGURATION, "model.attention.sigma_learned needs model.attention.kernel rbf");
  return HARK_OK;
}

static hark_status check(hark_context *context, const hark_decoder_config *config) {
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
  if (config->width % config->heads != 0)
    return hark_fail(context, HARK_BAD_CONFIGURATION, "model.width %" PRId64 " is not a multiple of model.heads %" PRId64, config->width,
                     config->heads);
  if (config->heads % config->key_heads != 0)
    return hark_fail(context, HARK_BAD_CONFIGURATION, "model.heads %" PRId64 " is not a multiple of model.key_heads %" PRId64,
                     config->heads, config->key_heads);
  if (config->positions == HARK_POSITIONS_ROTARY && config->width / config->heads % 2 != 0)
    return hark_fail(context, HARK_BAD_CONFIGURATION,
                     "rotary positions turn pairs of features: model.width / model.heads is %" PRId64 ", expected an even number",
                     config->width / config->heads);
  HARK_TRY(check_ridge(context, config));
  return check_rotary(context, config);
}

/* Whether the layers have a positional kernel with parameters of their own. */
static bool has_own_kernels(const hark_decoder *decoder) {
  return decoder->positional_source.expression != NULL && decoder->config.positional_scope != HARK_SCOPE_MODEL;
}

static bool shares_kernel(const hark_decoder *decoder) {
  return decoder->positional_source.expression != NULL && decoder->config.positional_scope == HARK_SCOPE_MODEL;
}

hark_rotary_spec hark_decoder_rotary(const hark_decoder_config *config) {
  return (hark_rotary_spec){.present = config->positions == HARK_POSITIONS_ROTARY,
                            .base = config->rotary_base,
                            .pairs = config->rotary_pairs,
                            .fraction = config->rotary_fraction,
                            .scaling = config->rotary_scaling,
                            .factor = config->rotary_factor,
                            .context = config->rotary_original_context != 0 ? config->rotary_original_context : config->context,
                            .head_dim = config->width / config->heads};
}

static bool has_own_rates(const hark_decoder_config *config) {
  return config->rotary_learned == HARK_ROTARY_OF_LAYER || config->rotary_learned == HARK_ROTARY_OF_HEAD;
}

static hark_status declare_block(hark_context *context, hark_decoder *decoder, int64_t layer) {
  const hark_decoder_config *config = &decoder->config;
  hark_decoder_block *block = &decoder->blocks[layer];
  hark_parameters *parameters = &decoder->parameters;
  const double output_deviation = INITIAL_DEVIATION / sqrt(2.0 * (double)config->layers);
  const hark_self_attention_spec attention = {.width = config->width,
                                              .heads = config->heads,
                                              .key_heads = config->key_heads,
                                              .bias = config->bias,
                                              .deviation = INITIAL_DEVIATION,
                                              .output_deviation = output_deviation,
                                              .rotary = hark_decoder_rotary(config),
                                              .rotary_source = has_own_rates(config) ? &decoder->rotary_source : NULL,
                                              .rotary_rates = decoder->rotary_rates,
                                              .structure = config->structure,
                                              .window = config->window,
                                              .hierarchy_block = config->hierarchy_block,
                                              .partition = config->partition,
                                              .coarse_query = config->coarse_query,
                                              .hierarchical_bias = config->hierarchical_bias,
                                              .kernel = config->kernel,
                                              .sigma = config->sigma,
                                              .forget_gate = config->forget_gate,
                                              .normalisation = config->normalisation,
                                              .ridge = config->ridge * pow((double)config->context, config->ridge_power),
                                              .ridge_learned = config->ridge_learned,
                                              .sigma_learned = config->sigma_learned,
                                              .unit = config->unit,
                                              .dropout = config->attention_dropout,
                                              .positional = decoder->positional_source.expression != NULL,
                                              .positional_source = has_own_kernels(decoder) ? &decoder->positional_source : NULL};
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
                                   INITIAL_DEVIATION, output_deviation, name, &block->feed_forward);
}

static hark_status declare(hark_context *context, hark_decoder *decoder) {
  const hark_decoder_config *config = &decoder->config;
  hark_parameters *parameters = &decoder->parameters;
  const hark_parameter_spec tokens = {
      .rank = 2, .shape = {config->vocabulary, config->width}, .initial = HARK_INITIAL_NORMAL, .value = INITIAL_DEVIATION, .decays = true};
  hark_parameter_spec positions = tokens;
  positions.shape[0] = config->context;
  HARK_TRY(hark_parameters_add(context, parameters, &tokens, &decoder->token_table, "embedding.token.weight"));
  if (config->positions == HARK_POSITIONS_LEARNED)
    HARK_TRY(hark_parameters_add(context, parameters, &positions, &decoder->position_table, "embedding.position.weight"));
  if (shares_kernel(decoder)) HARK_TRY(hark_positional_declare(context, parameters, &decoder->positional_source, "", &decoder->positional));
  if (config->rotary_learned == HARK_ROTARY_OF_MODEL)
    HARK_TRY(hark_rotary_declare(context, parameters, &decoder->rotary_source, "", &decoder->rotary_rates));
  for (int64_t layer = 0; layer < config->layers; layer++) HARK_TRY(declare_block(context, decoder, layer));
  HARK_TRY(hark_norm_declare(context, parameters, config->norm, config->norm_epsilon, config->width, config->bias, "final_norm",
                             &decoder->final_norm));
  if (config->tie_embeddings) {
    decoder->head.weight = decoder->token_table;
    return HARK_OK;
  }
  return hark_linear_declare(context, parameters, config->width, config->vocabulary, false, INITIAL_DEVIATION, "head", &decoder->head);
}

/* Reads the expression; weights of one expression are no weights of another. */
static hark_status open_positional(hark_context *context, hark_decoder *decoder) {
  static const char *const scopes[] = {"model", "layer", "head"};
  hark_decoder_config *config = &decoder->config;
  const int64_t rows = config->positional_scope == HARK_SCOPE_HEAD ? config->heads : 1;
  HARK_TRY(hark_positional_source_open(context, config->positional, rows, config->context, &decoder->positional_source));
  config->positional = decoder->positional_source.text;
  decoder->positional_source.stretch = config->positional_stretch;
  const bool present = decoder->positional_source.expression != NULL;
  hark_parameters *parameters = &decoder->parameters;
  parameters->notes[parameters->note_count++] =
      (hark_parameter_note){.key = HARK_POSITIONAL_KEY, .text = present ? decoder->positional_source.text : ""};
  parameters->notes[parameters->note_count++] =
      (hark_parameter_note){.key = HARK_POSITIONAL_SCOPE_KEY, .text = present ? scopes[config->positional_scope] : ""};
  return HARK_OK;
}

static hark_status open_rotary(hark_context *context, hark_decoder *decoder) {
  const hark_decoder_config *config = &decoder->config;
  const hark_rotary_spec spec = hark_decoder_rotary(config);
  if (config->rotary_learned == HARK_ROTARY_STATIC) return HARK_OK;
  const int64_t rows = config->rotary_learned == HARK_ROTARY_OF_HEAD ? config->key_heads : 1;
  return hark_rotary_source_open(context, &spec, rows, &decoder->rotary_source);
}

hark_parameter_id hark_decoder_rates(const hark_decoder *decoder, int64_t block) { return decoder->blocks[block].attention.rotary_rates; }

const hark_positional_layer *hark_decoder_positional(const hark_decoder *decoder, int64_t block) {
  return has_own_kernels(decoder) ? &decoder->blocks[block].attention.positional : &decoder->positional;
}

hark_status hark_decoder_declare(hark_context *context, const hark_decoder_config *config, hark_type type, hark_decoder **out) {
  *out = NULL;
  HARK_TRY(check(context, config));
  void *memory = NULL;
  HARK_TRY(hark_allocate_zero(context, sizeof(hark_decoder), &memory));
  hark_decoder *decoder = memory;
  decoder->config = *config;
  hark_parameters_open(&decoder->parameters, type);
  hark_status status = hark_allocate_zero(context, (size_t)config->layers * sizeof *decoder->blocks, &memory);
  decoder->blocks = memory;
  if (status == HARK_OK) status = open_positional(context, decoder);
  if (status == HARK_OK) status = open_rotary(context, decoder);
  if (status == HARK_OK) status = declare(context, decoder);
  if (status != HARK_OK) {
    hark_decoder_destroy(context, &decoder);
    return status;
  }
  *out = decoder;
  return HARK_OK;
}

hark_status hark_decoder_create(hark_context *context, const hark_decoder_config *config, hark_type type, bool training,
                                hark_decoder **out) {
  HARK_TRY(hark_decoder_declare(context, config, type, out));
  const hark_status status = hark_parameters_finish(context, &(*out)->parameters, training);
  if (status != HARK_OK) hark_decoder_destroy(context, out);
  return status;
}

void hark_decoder_destroy(hark_context *context, hark_decoder **decoder_pointer) {
  if (decoder_pointer == NULL || *decoder_pointer == NULL) return;
  hark_decoder *decoder = *decoder_pointer;
  *decoder_pointer = NULL;
  hark_parameters_close(context, &decoder->parameters);
  hark_positional_source_close(context, &decoder->positional_source);
  hark_rotary_source_close(context, &decoder->rotary_source);
  hark_release(context, decoder->blocks, (size_t)decoder->config.layers * sizeof *decoder->blocks);
  hark_release(context, decoder, sizeof *decoder);
}

hark_status hark_decoder_plans_create(hark_context *context, const hark_decoder *decoder, int64_t batch, int64_t queries, int64_t keys,
                                      bool training, hark_attention_plan ***out) {
  *out = NULL;
  void *memory = NULL;
  HARK_TRY(hark_allocate_zero(context, (size_t)decoder->config.layers * sizeof **out, &memory));
  hark_attention_plan **plans = memory;
  for (int64_t layer = 0; layer < decoder->config.layers; layer++) {
    const hark_status status = hark_self_attention_plan(context, &decoder->blocks[layer].attention.spec, decoder->parameters.type, batch,
                                                        queries, keys, training, &plans[layer]);
    if (status != HARK_OK) {
      hark_fail_prefix(context, "layer %" PRId64 ": ", layer);
      hark_decoder_plans_destroy(context, decoder, &plans);
      return status;
    }
  }
  *out = plans;
  return HARK_OK;
}

void hark_decoder_plans_destroy(hark_context *context, const hark_decoder *decoder, hark_attention_plan ***plans_pointer) {
  hark_attention_plan **plans = *plans_pointer;
  if (plans == NULL) return;
  *plans_pointer = NULL;
  for (int64_t layer = 0; layer < decoder->config.layers; layer++) hark_attention_plan_destroy(context, &plans[layer]);
  hark_release(context, plans, (size_t)decoder->config.layers * sizeof *plans);
}

/* What a block needs when it is built, and built again for the backward. */
typedef struct block_closure {
  hark_context *context;
  const hark_decoder *decoder;
  const hark_forward *forward;
  int64_t layer;
} block_closure;

/* inputs: x, and where the model shares one the table of a positional kernel.
 * x' = x + attention(norm(x)); y = x' + feed_forward(norm(x')). x is released where it is not an input of a segment. */
static hark_status build_block(void *data, hark_tape *tape, const hark_value *inputs, hark_value *outputs) {
  const block_closure *closure = data;
  const hark_decoder_config *config = &closure->decoder->config;
  const hark_decoder_block *block = &closure->decoder->blocks[closure->layer];
  const hark_forward *forward = closure->forward;
  hark_value normed = 0, branch = 0, x = inputs[0];
  HARK_TRY(hark_norm_apply(forward, &block->attention_norm, x, &normed));
  const hark_value log_kernel = shares_kernel(closure->decoder) ? inputs[1] : 0;
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

static hark_status embed(hark_context *context, const hark_decoder *decoder, const hark_forward *forward, hark_value tokens,
                         hark_value *out) {
  const hark_decoder_config *config = &decoder->config;
  hark_tape *tape = forward->tape;
  hark_value inputs[2] = {tokens};
  HARK_TRY(hark_forward_parameter(forward, decoder->token_table, &inputs[1]));
  HARK_TRY(hark_tape_apply(tape, &hark_op_embedding, NULL, 2, inputs, 0, &inputs[0]));
  if (config->positions == HARK_POSITIONS_LEARNED) {
    const int64_t end = forward->first_position + hark_tape_tensor(tape, tokens)->shape[1];
    if (end > config->context)
      return hark_fail(context, HARK_INVALID_ARGUMENT, "learned positions end at the context of %" PRId64 " tokens, %" PRId64 " were given",
                       config->context, end);
    const hark_position_embedding_attributes attributes = {.first_position = forward->first_position};
    HARK_TRY(hark_forward_parameter(forward, decoder->position_table, &inputs[1]));
    HARK_TRY(hark_tape_apply(tape, &hark_op_position_embedding, &attributes, 2, inputs, 1, &inputs[0]));
  } else if (config->positions == HARK_POSITIONS_SINUSOIDAL) {
    const hark_sinusoidal_positions_attributes attributes = {.first_position = forward->first_position, .base = config->rotary_base};
    HARK_TRY(hark_tape_apply(tape, &hark_op_sinusoidal_positions, &attributes, 1, inputs, 1, &inputs[0]));
  }
  HARK_TRY(hark_forward_dropout(forward, config->embedding_dropout, 0, HARK_DROPOUT_EMBEDDING, &inputs[0]));
  *out = inputs[0];
  return HARK_OK;
}

/* The table of the model's positional kernel for the distances of this pass, or the one that decoding keeps. */
static hark_status shared_table(const hark_decoder *decoder, const hark_forward *forward, hark_value tokens, hark_value *table) {
  if (forward->log_kernels != NULL) return hark_tape_leaf(forward->tape, &forward->log_kernels[0], NULL, table);
  const int64_t length = forward->first_position + hark_tape_tensor(forward->tape, tokens)->shape[1];
  const int64_t distances = hark_self_attention_distances(&decoder->blocks[0].attention.spec, length);
  return hark_positional_apply(forward, &decoder->positional, distances, table);
}

hark_status hark_decoder_logits(hark_context *context, const hark_decoder *decoder, const hark_forward *forward, hark_value tokens,
                                bool last_only, hark_value *logits) {
  const hark_decoder_config *config = &decoder->config;
  hark_tape *tape = forward->tape;
  hark_value inputs[2] = {0}, x = 0, y = 0;
  HARK_TRY(embed(context, decoder, forward, tokens, &x));
  if (shares_kernel(decoder)) HARK_TRY(shared_table(decoder, forward, tokens, &inputs[1]));
  for (int64_t layer = 0; layer < config->layers; layer++) {
    if (forward->cancel != NULL && forward->cancel(forward->cancel_user)) return hark_fail(context, HARK_CANCELLED, "cancelled");
    inputs[0] = x;
    const block_closure closure = {.context = context, .decoder = decoder, .forward = forward, .layer = layer};
    if (config->recompute && forward->training)
      HARK_TRY(hark_tape_segment(tape, build_block, &closure, sizeof closure, inputs[1] != 0 ? 2 : 1, inputs, 1, &y));
    else {
      block_closure own = closure;
      HARK_TRY(build_block(&own, tape, inputs, &y));
    }
    hark_tape_release(tape, x);
    x = y;
  }
  if (inputs[1] != 0) hark_tape_release(tape, inputs[1]);
  if (last_only) {
    const hark_pool_attributes last = {.kind = HARK_POOL_LAST};
    HARK_TRY(hark_tape_apply(tape, &hark_op_pool, &last, 1, &x, 1, &x));
  }
  HARK_TRY(hark_norm_apply(forward, &decoder->final_norm, x, &y));
  hark_tape_release(tape, x);
  HARK_TRY(hark_linear_apply(forward, &decoder->head, y, logits));
  hark_tape_release(tape, y);
  return HARK_OK;
}

hark_status hark_decoder_loss_of_logits(hark_tape *tape, hark_value logits, hark_value targets, double weight, double smoothing,
                                        hark_value *loss) {
  const hark_value inputs[] = {logits, targets};
  hark_value outputs[HARK_MAX_OUTPUTS] = {0};
  const hark_cross_entropy_attributes attributes = {.weight = weight, .smoothing = smoothing, .ignore = -1};
  HARK_TRY(hark_tape_apply(tape, &hark_op_cross_entropy, &attributes, 2, inputs, 0, outputs));
  *loss = outputs[0];
  hark_tape_release(tape, outputs[1]);
  return HARK_OK;
}

hark_status hark_decoder_loss(hark_context *context, const hark_decoder *decoder, const hark_forward *forward, hark_value tokens,
                              hark_value targets, double weight, double smoothing, hark_value *loss) {
  hark_value logits = 0;
  HARK_TRY(hark_decoder_logits(context, decoder, forward, tokens, false, &logits));
  HARK_TRY(hark_decoder_loss_of_logits(forward->tape, logits, targets, weight, smoothing, loss));
  hark_tape_release(forward->tape, logits);
  return HARK_OK;
}
