/* engine.c - see engine.h. */
#include "train/engine.h"

#include <math.h>

#include "backend/backend.h"

hark_decoder_config hark_engine_decoder_config(const hark_config *config, int32_t vocabulary) {
  return (hark_decoder_config){.vocabulary = vocabulary,
                               .layers = config->model.layers,
                               .heads = config->model.heads,
                               .key_heads = config->model.key_heads,
                               .width = config->model.width,
                               .feed_forward_width = config->model.feed_forward_width,
                               .context = config->model.context,
                               .activation = (hark_activation)config->model.activation,
                               .norm = (hark_norm)config->model.norm,
                               .norm_epsilon = config->model.norm_epsilon,
                               .positions = (hark_positions)config->model.positions,
                               .rotary_base = config->model.rotary.base,
                               .rotary_pairs = (hark_rotary_pairs)config->model.rotary.pairs,
                               .rotary_learned = (hark_rotary_learned)config->model.rotary.learned,
                               .rotary_fraction = config->model.rotary.fraction,
                               .rotary_scaling = (hark_rotary_scaling)config->model.rotary.scaling,
                               .rotary_factor = config->model.rotary.scaling_factor,
                               .rotary_original_context = config->model.rotary.original_context,
                               .tie_embeddings = config->model.tie_embeddings,
                               .bias = config->model.bias,
                               .recompute = config->model.recompute,
                               .dropout = config->model.dropout,
                               .embedding_dropout = config->model.embedding_dropout,
                               .attention_dropout = config->model.attention.dropout,
                               .structure = (hark_attention_structure)config->model.attention.structure,
                               .window = config->model.attention.window,
                               .hierarchy_block = config->model.attention.hierarchy_block,
                               .partition = (hark_hierarchy_partition)config->model.attention.partition,
                               .coarse_query = (hark_coarse_query)config->model.attention.coarse_query,
                               .hierarchical_bias = config->model.attention.hierarchical_bias,
                               .kernel = (hark_attention_kernel)config->model.attention.kernel,
                               .sigma = config->model.attention.sigma,
                               .forget_gate = config->model.attention.forget_gate,
                               .normalisation = (hark_attention_normalisation)config->model.attention.normalisation,
                               .ridge = config->model.attention.ridge,
                               .ridge_power = config->model.attention.ridge_power,
                               .ridge_learned = config->model.attention.ridge_learned,
                               .sigma_learned = config->model.attention.sigma_learned,
                               .unit = config->model.attention.unit,
                               .positional = config->model.positional,
                               .positional_scope = (hark_positional_scope)config->model.positional_scope,
                               .positional_stretch = config->model.positional_stretch};
}

/* Forgets the pass before; the new one's tokens and targets are the first `rows` windows of engine->inputs and engine->targets. */
static hark_status begin_pass(hark_engine *engine, int64_t rows, bool recording, hark_value *tokens, hark_value *targets) {
  hark_tensor windows[] = {engine->inputs, engine->targets};
  for (int i = 0; i < 2; i++) {
    windows[i].shape[0] = rows;
    windows[i].owned_bytes = 0;
  }
  engine->logits = 0;
  hark_tape_reset(engine->tape);
  hark_tape_set_recording(engine->tape, recording);
  HARK_TRY(hark_tape_leaf(engine->tape, &windows[0], NULL, tokens));
  return hark_tape_leaf(engine->tape, &windows[1], NULL, targets);
}

static hark_status training_pass(hark_context *context, hark_engine *engine, int64_t rows, uint64_t first_sample, uint32_t micro_step,
                                 double weight, hark_value *loss) {
  hark_value tokens = 0, targets = 0;
  const hark_forward forward = {.tape = engine->tape,
                                .parameters = &engine->decoder->parameters,
                                .training = true,
                                .seed = (uint64_t)engine->config->train.seed,
                                .first_sample = first_sample,
                                .micro_step = micro_step,
                                .plans = engine->training_plans,
                                .report = &engine->report};
  HARK_TRY(begin_pass(engine, rows, true, &tokens, &targets));
  HARK_TRY(hark_decoder_loss(context, engine->decoder, &forward, tokens, targets, weight, engine->config->train.label_smoothing, loss));
  return hark_tape_backward(engine->tape, *loss, 1.0);
}

/* Leaves engine->logits. */
static hark_status prediction_pass(hark_context *context, hark_engine *engine, int64_t rows) {
  hark_value tokens = 0;
  const hark_forward forward = {
      .tape = engine->tape, .parameters = &engine->decoder->parameters, .plans = engine->evaluation_plans, .report = &engine->report};
  HARK_TRY(begin_pass(engine, rows, false, &tokens, &engine->targets_read));
  return hark_decoder_logits(context, engine->decoder, &forward, tokens, false, &engine->logits);
}

static hark_status loss_of_logits(hark_engine *engine, hark_value *loss) {
  return hark_decoder_loss_of_logits(engine->tape, engine->logits, engine->targets_read, 1, 0, loss);
}

/* Goes through a step without computing, so that its memory is known. */
static hark_status measure_step(hark_context *context, hark_engine *engine) {
  const int64_t rows = engine->config->train.batch;
  hark_value loss = 0;
  hark_tape_set_shape_only(engine->tape, true);
  hark_status status = prediction_pass(context, engine, rows);
  if (status == HARK_OK) status = loss_of_logits(engine, &loss);
  if (status == HARK_OK && engine->training) status = training_pass(context, engine, rows, 0, 0, 1, &loss);
  engine->logits = 0;
  hark_tape_set_shape_only(engine->tape, false);
  return status;
}

static hark_status make_tensor(hark_context *context, bool memory, hark_type type, int rank, const int64_t *shape, hark_tensor *out) {
  return memory ? hark_tensor_create(context, type, rank, shape, out) : hark_tensor_describe(context, type, rank, shape, out);
}

/* Without `memory` everything is described only: such an engine tells sizes and cannot run. */
static hark_status build(hark_context *context, hark_engine *engine, int32_t vocabulary, bool memory) {
  const hark_config *config = engine->config;
  const int64_t batch = config->train.batch, length = config->model.context, shape[] = {batch, length}, one = 1;
  const hark_decoder_config decoder = hark_engine_decoder_config(config, vocabulary);
  HARK_TRY(hark_decoder_declare(context, &decoder, HARK_F32, &engine->decoder));
  HARK_TRY((memory ? hark_parameters_finish : hark_parameters_lay_out)(context, &engine->decoder->parameters, engine->training));
  HARK_TRY(hark_decoder_plans_create(context, engine->decoder, batch, length, length, false, &engine->evaluation_plans));
  if (engine->training) HARK_TRY(hark_decoder_plans_create(context, engine->decoder, batch, length, length, true, &engine->training_plans));
  HARK_TRY(make_tensor(context, memory, HARK_I32, 2, shape, &engine->inputs));
  HARK_TRY(make_tensor(context, memory, HARK_I32, 2, shape, &engine->targets));
  if (engine->training) {
    const hark_tensor *weights = &engine->decoder->parameters.weights;
    HARK_TRY(make_tensor(context, memory, weights->type, 1, weights->shape, &engine->first_moment));
    HARK_TRY(make_tensor(context, memory, weights->type, 1, weights->shape, &engine->second_moment));
    HARK_TRY(make_tensor(context, memory, HARK_F64, 1, &one, &engine->square_sum));
    hark_inferred inferred = {0};
    HARK_TRY(hark_op_sum_squares.infer(context, NULL, &engine->decoder->parameters.gradients, 1, &inferred));
    const int64_t bytes = (int64_t)inferred.forward_workspace;
    HARK_TRY(make_tensor(context, memory, HARK_U8, 1, &bytes, &engine->workspace));
  }
  HARK_TRY(hark_tape_create(context, &engine->tape));
  HARK_TRY(measure_step(context, engine));
  return memory ? hark_tape_reserve(engine->tape) : HARK_OK;
}

static hark_status make(hark_context *context, const hark_config *config, int32_t vocabulary, bool training, bool memory_too,
                        hark_engine **out) {
  *out = NULL;
  void *memory = NULL;
  HARK_TRY(hark_allocate_zero(context, sizeof(hark_engine), &memory));
  hark_engine *engine = memory;
  engine->config = config;
  engine->training = training;
  const hark_status status = build(context, engine, vocabulary, memory_too);
  if (status != HARK_OK) {
    hark_engine_destroy(context, &engine);
    return status;
  }
  *out = engine;
  return HARK_OK;
}

hark_status hark_engine_create(hark_context *context, const hark_config *config, int32_t vocabulary, bool training, hark_engine **out) {
  return make(context, config, vocabulary, training, true, out);
}

hark_status hark_engine_estimate(hark_context *context, const hark_config *config, int32_t vocabulary, bool training,
                                 hark_engine_memory *memory, int64_t *parameters, int64_t *tensors) {
  hark_engine *engine = NULL;
  HARK_TRY(make(context, config, vocabulary, training, false, &engine));
  *memory = hark_engine_memory_of(engine);
  *parameters = hark_parameters_total(&engine->decoder->parameters);
  *tensors = engine->decoder->parameters.count;
  hark_engine_destroy(context, &engine);
  return HARK_OK;
}

void hark_engine_destroy(hark_context *context, hark_engine **engine_pointer) {
  if (engine_pointer == NULL || *engine_pointer == NULL) return;
  hark_engine *engine = *engine_pointer;
  *engine_pointer = NULL;
  hark_tape_destroy(&engine->tape);
  if (engine->decoder != NULL) {
    hark_decoder_plans_destroy(context, engine->decoder, &engine->training_plans);
    hark_decoder_plans_destroy(context, engine->decoder, &engine->evaluation_plans);
  }
  hark_tensor *const owned[] = {&engine->first_moment, &engine->second_moment, &engine->inputs,
                                &engine->targets,      &engine->square_sum,    &engine->workspace};
  for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) hark_tensor_destroy(context, owned[i]);
  hark_decoder_destroy(context, &engine->decoder);
  hark_release(context, engine, sizeof *engine);
}

static size_t bytes_of(const hark_tensor *tensor) {
  return tensor->type != HARK_NONE ? (size_t)hark_tensor_count(tensor) * hark_type_bytes(tensor->type) : 0;
}

hark_engine_memory hark_engine_memory_of(const hark_engine *engine) {
  return (hark_engine_memory){.weights = bytes_of(&engine->decoder->parameters.weights),
                              .gradients = bytes_of(&engine->decoder->parameters.gradients),
                              .moments = bytes_of(&engine->first_moment) + bytes_of(&engine->second_moment),
                              .step = hark_tape_peak_bytes(engine->tape),
                              .batch = bytes_of(&engine->inputs) + bytes_of(&engine->targets) + bytes_of(&engine->workspace)};
}

hark_status hark_engine_begin_step(hark_context *context, hark_engine *engine) {
  return hark_tensor_zero(context, &engine->decoder->parameters.gradients);
}

/* The first rows of engine->inputs or engine->targets <- windows of tokens. */
static hark_status write_windows(hark_context *context, const hark_tensor *to, const int32_t *tokens, int64_t rows) {
  if (rows < 1 || rows > to->shape[0])
    return hark_fail(context, HARK_INVALID_ARGUMENT, "engine: %lld rows given, expected 1 to %lld", (long long)rows,
                     (long long)to->shape[0]);
  return hark_backend_write(context, to->data, tokens, (size_t)(rows * to->shape[1]) * sizeof(int32_t));
}

static hark_status read_loss(hark_context *context, const hark_engine *engine, hark_value value, double *loss) {
  float number = 0;
  HARK_TRY(hark_tensor_read(context, hark_tape_tensor(engine->tape, value), &number));
  *loss = number;
  return HARK_OK;
}

hark_status hark_engine_micro_batch(hark_context *context, hark_engine *engine, const int32_t *inputs, const int32_t *targets, int64_t rows,
                                    uint64_t first_sample, uint32_t micro_step, double weight, double *loss) {
  hark_value value = 0;
  HARK_TRY(write_windows(context, &engine->inputs, inputs, rows));
  HARK_TRY(write_windows(context, &engine->targets, targets, rows));
  HARK_TRY(training_pass(context, engine, rows, first_sample, micro_step, weight, &value));
  return read_loss(context, engine, value, loss);
}

hark_status hark_engine_predict(hark_context *context, hark_engine *engine, const int32_t *inputs, int64_t rows) {
  HARK_TRY(write_windows(context, &engine->inputs, inputs, rows));
  return prediction_pass(context, engine, rows);
}

hark_status hark_engine_loss(hark_context *context, hark_engine *engine, const int32_t *targets, double *sum) {
  hark_value loss = 0;
  if (engine->logits == 0) return hark_fail(context, HARK_INVALID_ARGUMENT, "engine: a loss is asked for where nothing was predicted");
  const int64_t rows = hark_tape_tensor(engine->tape, engine->logits)->shape[0];
  HARK_TRY(write_windows(context, &engine->targets, targets, rows));
  HARK_TRY(loss_of_logits(engine, &loss));
  HARK_TRY(read_loss(context, engine, loss, sum));
  hark_tape_release(engine->tape, loss);
  return HARK_OK;
}

/* Norm of a flat buffer of the size of the weights. */
static hark_status norm_of(hark_context *context, hark_engine *engine, const hark_tensor *flat, double *norm) {
  const hark_call call = {.op = &hark_op_sum_squares,
                          .input_count = 1,
                          .inputs = {*flat},
                          .outputs = {engine->square_sum},
                          .workspace = engine->workspace.data,
                          .workspace_bytes = engine->workspace.owned_bytes};
  HARK_TRY(hark_operator_forward(context, &call));
  HARK_TRY(hark_tensor_read(context, &engine->square_sum, norm));
  *norm = sqrt(*norm);
  return HARK_OK;
}

hark_status hark_engine_check_finite(hark_context *context, hark_engine *engine) {
  const struct {
    const char *what;
    const hark_tensor *flat;
  } state[] = {{"weights", &engine->decoder->parameters.weights},
               {"first moments", &engine->first_moment},
               {"second moments", &engine->second_moment}};
  for (size_t i = 0; i < sizeof state / sizeof *state; i++) {
    double norm = 0; /* in f64: the squares of finite numbers in f32 do not overflow */
    HARK_TRY(norm_of(context, engine, state[i].flat, &norm));
    if (!isfinite(norm)) return hark_fail(context, HARK_NOT_FINITE, "the %s hold numbers that are not finite", state[i].what);
  }
  return HARK_OK;
}

/* The elements of a group in a flat buffer. */
static hark_tensor part(const hark_tensor *flat, const hark_parameter_group *group) {
  hark_tensor tensor = *flat;
  tensor.owned_bytes = 0;
  tensor.shape[0] = group->count;
  tensor.data = (char *)flat->data + (size_t)group->first * hark_type_bytes(flat->type);
  return tensor;
}

hark_status hark_engine_finish_step(hark_context *context, hark_engine *engine, int64_t step, double rate, double loss,
                                    hark_step_result *result) {
  *result = (hark_step_result){0};
  const hark_config *config = engine->config;
  const hark_parameters *parameters = &engine->decoder->parameters;
  HARK_TRY(norm_of(context, engine, &parameters->gradients, &result->gradient_norm));
  if (!isfinite(loss) || !isfinite(result->gradient_norm)) return HARK_OK;
  const double clip = config->train.clip;
  hark_adamw_attributes attributes = {.rate = rate,
                                      .beta1 = config->train.beta1,
                                      .beta2 = config->train.beta2,
                                      .epsilon = config->train.epsilon,
                                      .gradient_scale = clip > 0 && result->gradient_norm > clip ? clip / result->gradient_norm : 1.0,
                                      .step = step};
  const double rate_factors[HARK_RATE_KINDS] = {
      [HARK_RATE_PLAIN] = 1, [HARK_RATE_POSITIONAL] = config->train.positional_rate, [HARK_RATE_ROTARY] = config->train.rotary_rate};
  for (int i = 0; i < parameters->group_count; i++) {
    const hark_parameter_group *group = &parameters->groups[i];
    attributes.decay = group->decays ? config->train.weight_decay : 0.0;
    attributes.rate = rate * rate_factors[group->rate];
    const hark_call call = {.op = &hark_op_adamw,
                            .attributes = &attributes,
                            .input_count = 4,
                            .inputs = {part(&parameters->weights, group), part(&parameters->gradients, group),
                                       part(&engine->first_moment, group), part(&engine->second_moment, group)}};
    HARK_TRY(hark_operator_forward(context, &call));
  }
  result->applied = true;
  return HARK_OK;
}

double hark_engine_operations(const hark_engine *engine) { return hark_tape_operations(engine->tape); }
