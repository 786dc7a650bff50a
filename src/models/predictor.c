/* predictor.c - see hark/predictor.h. A pass is like one of the trainer's evaluation: packed examples, an architecture's logits, no
 * gradients.
 *
 * All memory of a call belongs to the predictor: the inputs (host and backend), the tape's pool, measured by a shape-only run, and for ahca
 * the caller's decisions. One run is enough: shapes are largest for the maximum numbers of examples and tokens and the longest sequence.
 */
#include <hark/predictor.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "backend/backend.h"
#include "core/structs.h"
#include "models/ahca.h"
#include "models/ahca_layers.h"
#include "models/encoder.h"
#include "models/model.h"
#include "models/packed_batch.h"
#include "models/predictor_watch.h"

struct hark_predictor {
  hark_context *context;
  const hark_model *model;
  hark_prediction_shape shape;
  int64_t front;  /* number of tokens inserted at the beginning of a sequence */
  int64_t tokens; /* maximum of a call, without these */
  int32_t *types; /* host, [tokens]: a part of `memory`; NULL: the model has no token types */
  hark_attention_plan **plans;
  hark_tape *tape;
  hark_packed_batch read;
  hark_example_batch host; /* the inputs, in `memory` */
  void *memory;
  size_t bytes;
  /* Of ahca: the caller's decisions. */
  hark_select_global *select;
  void *select_user;
  bool gives_chunks;
  hark_tensor starts, index; /* i64 [tokens + 1], i32 [sequences, selected] */
  hark_tensor index_now;
  float *global; /* host, [sequences, C2, d''] */
  size_t global_bytes;
  int64_t *global_offsets; /* host, [sequences + 1] */
  int32_t *chosen;         /* host, [sequences, selected] */
  hark_attention_report report;
  hark_predictor_watch watch;
  bool embeds;
  hark_encoder_pooling pooling; /* of embeddings */
};

static const hark_network *network_of(const hark_predictor *predictor) { return predictor->model->network; }
static bool is_ahca(const hark_network_config *config) { return config->architecture == HARK_ARCHITECTURE_AHCA; }

/* ---- properties ---- */

static hark_prediction_shape shape_of(const hark_model *model) {
  const hark_network_config *config = &model->network->config;
  const hark_architecture *architecture = model->network->architecture;
  const bool classes = architecture->predicts_classes && config->classes > 0;
  const bool embedding = config->architecture == HARK_ARCHITECTURE_ENCODER && config->head == HARK_ENCODER_HEAD_EMBEDDING;
  return (hark_prediction_shape){.struct_size = sizeof(hark_prediction_shape),
                                 .outputs = config->features > 0 ? config->responses
                                            : classes            ? config->classes
                                            : embedding          ? config->width * hark_max(1, config->parts)
                                                                 : config->vocabulary,
                                 .of_tokens = config->features == 0 && !classes && !embedding,
                                 .parts = hark_max(1, config->parts),
                                 .longest = config->context - hark_encoder_front(config),
                                 .features = config->features,
                                 .selected = is_ahca(config) ? config->ahca.selected : 0};
}

hark_status hark_predictor_shape(const hark_model *model, hark_prediction_shape *shape) {
  const hark_prediction_shape full = shape_of(model);
  return hark_give_struct(NULL, "hark_prediction_shape", shape, HARK_LEAST_PREDICTION_SHAPE, &full, sizeof full);
}

/* ---- making ---- */

/* Reads the options, with defaults for missing ones. */
static hark_status take_options(hark_context *context, const hark_model *model, const hark_predictor_options *given,
                                hark_predictor_options *out) {
  const hark_prediction_shape shape = shape_of(model);
  *out = (hark_predictor_options){.struct_size = sizeof *out};
  if (given != NULL) HARK_TRY(hark_take_struct(context, "hark_predictor_options", given, HARK_LEAST_PREDICTOR_OPTIONS, out, sizeof *out));
  if (out->examples == 0) out->examples = 1;
  if (out->examples < 1 || out->examples > INT32_MAX / shape.parts)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "predictor: %" PRId64 " examples, expected 1 to %" PRId64, out->examples,
                     INT32_MAX / shape.parts);
  const int64_t sequences = out->examples * shape.parts;
  size_t most = 0;
  HARK_TRY(hark_size_multiply(context, (size_t)sequences, (size_t)model->network->config.context, &most));
  if (most > INT32_MAX / 2 && out->tokens == 0)
    return hark_fail(context, HARK_TOO_LARGE, "predictor: %" PRId64 " sequences of up to %" PRId64 " tokens, expected options.tokens",
                     sequences, model->network->config.context);
  if (out->tokens == 0) out->tokens = sequences * shape.longest;
  if (out->tokens < sequences || out->tokens > INT32_MAX / 2)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "predictor: %" PRId64 " tokens for %" PRId64 " sequences, expected %" PRId64 " to %d",
                     out->tokens, sequences, sequences, INT32_MAX / 2);
  if ((int)out->embedding < HARK_EMBEDDING_NONE || out->embedding > HARK_EMBEDDING_POOLER)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "predictor: embedding is %d, expected one of hark_embedding", (int)out->embedding);
  if ((out->select != NULL || out->gives_chunks) && !is_ahca(&model->network->config))
    return hark_fail(context, HARK_INVALID_ARGUMENT,
                     "predictor: chunks and a selection can be given only for ahca models, and this model has architecture %s",
                     model->network->architecture->name);
  if (out->select != NULL && shape.selected == 0)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "predictor: a selection is decided, and the model selects no global tokens");
  if (model->network->architecture->reads_tables)
    return hark_fail(context, HARK_UNSUPPORTED, "predictor: models of architecture %s predict rows of tables, see hark/regressor.h",
                     model->network->architecture->name);
  if (context->backend != model->backend)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "predictor: the context's backend is %s, the model's %s", context->backend->name,
                     model->backend->name);
  return HARK_OK;
}

/* Fills p->pooling and, for embeddings, the shape. */
static hark_status take_pooling(hark_predictor *p, const hark_predictor_options *options) {
  static const hark_pool_kind kinds[] = {[HARK_EMBEDDING_MEAN] = HARK_POOL_MEAN,
                                         [HARK_EMBEDDING_FIRST] = HARK_POOL_FIRST,
                                         [HARK_EMBEDDING_LAST] = HARK_POOL_LAST,
                                         [HARK_EMBEDDING_POOLER] = HARK_POOL_FIRST};
  const hark_network_config *config = &network_of(p)->config;
  const bool encoder = config->architecture == HARK_ARCHITECTURE_ENCODER;
  p->pooling = encoder ? hark_encoder_pooling_of(config) : (hark_encoder_pooling){.kind = HARK_POOL_MEAN};
  if (options->normalise != 0) p->pooling.normalise = options->normalise > 0;
  p->embeds =
      options->embedding != HARK_EMBEDDING_NONE || (options->normalise != 0 && encoder && config->head == HARK_ENCODER_HEAD_EMBEDDING);
  if (!p->embeds && options->normalise != 0)
    return hark_fail(p->context, HARK_INVALID_ARGUMENT, "predictor: normalise is %" PRId64 ", and no embedding is computed, expected 0",
                     options->normalise);
  if (!p->embeds) return HARK_OK;
  if (network_of(p)->blocks == NULL)
    return hark_fail(p->context, HARK_UNSUPPORTED, "embeddings are those of architectures decoder, encoder and masked_encoder, this is %s",
                     network_of(p)->architecture->name);
  if (options->embedding > HARK_EMBEDDING_MODEL) {
    p->pooling.kind = kinds[options->embedding];
    p->pooling.pooler = options->embedding == HARK_EMBEDDING_POOLER;
  }
  if (p->pooling.pooler && network_of(p)->pooler.weight == 0)
    return hark_fail(p->context, HARK_INVALID_ARGUMENT,
                     "pooling pooler: the model has no pooler (model.pooler), expected mean, first or last");
  p->shape.outputs = config->width * p->shape.parts;
  p->shape.of_tokens = false;
  return HARK_OK;
}

/* Makes the host memory of the inputs: 8-byte numbers, then 4-byte ones. */
static hark_status make_host(hark_predictor *p) {
  const hark_packed_extents *most = &p->read.most;
  const size_t tokens = (size_t)most->tokens, sequences = (size_t)(most->examples * most->parts);
  p->bytes = (tokens + 2 * sequences) * sizeof(int64_t) +
             tokens * ((most->types ? 3 : 2) * sizeof(int32_t) + (size_t)most->features * sizeof(float));
  HARK_TRY(hark_allocate(p->context, p->bytes, &p->memory));
  p->host.segments = p->memory;
  p->host.ranges = p->host.segments + tokens;
  p->host.inputs = (int32_t *)(p->host.ranges + 2 * sequences);
  p->host.positions = p->host.inputs + tokens;
  if (most->features > 0) p->host.features = (float *)(p->host.positions + tokens); /* no model of vectors has types */
  p->types = most->types ? p->host.positions + tokens : NULL;
  return HARK_OK;
}

/* Copies the global tokens, calls the caller's function, and writes its choice. */
static hark_status choose(void *user, const hark_tensor *global, const hark_tensor *offsets, hark_tensor *index) {
  hark_predictor *p = user;
  const int64_t sequences = index->shape[0], most = index->shape[1], width = global->shape[global->rank - 1];
  HARK_TRY(hark_tensor_read(p->context, global, p->global));
  HARK_TRY(hark_tensor_read(p->context, offsets, p->global_offsets));
  for (int64_t i = 0; i < sequences * most; i++) p->chosen[i] = -1;
  p->select(p->select_user, p->global, width, p->global_offsets, sequences, most, p->chosen);
  for (int64_t s = 0; s < sequences; s++) {
    bool any = false;
    for (int64_t i = 0; i < most; i++) any = any || p->chosen[s * most + i] >= 0;
    if (!any)
      return hark_fail(p->context, HARK_INVALID_ARGUMENT,
                       "predictor: no global token of sequence %" PRId64 " is selected, expected at least one", s);
  }
  return hark_tensor_write(p->context, index, p->chosen);
}

static hark_status make_decisions(hark_predictor *p) {
  const hark_network_config *config = &network_of(p)->config;
  const int64_t sequences = p->read.most.examples * p->read.most.parts, starts = p->read.most.tokens + 1;
  if (p->gives_chunks) HARK_TRY(hark_tensor_create(p->context, HARK_I64, 1, &starts, &p->starts));
  if (p->select == NULL) return HARK_OK;
  const int64_t index[] = {sequences, config->ahca.selected};
  size_t floats = 0, bytes = 0;
  void *memory = NULL;
  HARK_TRY(hark_tensor_create(p->context, HARK_I32, 2, index, &p->index));
  HARK_TRY(hark_size_multiply(p->context, (size_t)(sequences * hark_ahca_sizes_of(config).secondary_width),
                              (size_t)config->ahca.secondary_slots, &floats));
  HARK_TRY(hark_size_multiply(p->context, floats, sizeof(float), &bytes));
  const size_t own = (size_t)(sequences + 1) * sizeof(int64_t) + (size_t)(sequences * config->ahca.selected) * sizeof(int32_t);
  HARK_TRY(hark_size_add(p->context, bytes, own, &p->global_bytes));
  HARK_TRY(hark_allocate(p->context, p->global_bytes, &memory));
  p->global_offsets = memory;
  p->chosen = (int32_t *)(p->global_offsets + sequences + 1);
  p->global = (float *)(p->chosen + sequences * config->ahca.selected);
  return HARK_OK;
}

/* Records a pass over the written inputs; chunks NULL: by the model's rule. */
static hark_status pass(hark_predictor *p, const hark_tensor *chunks, hark_value *logits) {
  const hark_network *network = network_of(p);
  hark_forward forward = {.tape = p->tape, .parameters = &network->parameters, .plans = p->plans, .report = &p->report, .rounds = true};
  hark_network_input input = {.weight = 1, .trace = p->watch.trace};
  forward.observe = p->watch.attention;
  forward.observe_user = p->watch.user;
  const int64_t index[] = {p->host.rows * p->read.most.parts, p->shape.selected};
  if (p->select != NULL) p->index_now = hark_tensor_front(&p->index, 2, index);
  const hark_ahca_given given = {
      .starts = chunks, .choose = p->select != NULL ? choose : NULL, .user = p, .index = p->select != NULL ? &p->index_now : NULL};
  hark_tape_reset(p->tape);
  hark_tape_set_recording(p->tape, false);
  HARK_TRY(hark_packed_batch_begin(&p->read, &p->host, &forward, &input));
  if (is_ahca(&network->config)) input.given = &given;
  if (p->embeds) return hark_encoder_pool(p->context, network, &forward, &input, &p->pooling, logits);
  return network->architecture->logits(p->context, network, &forward, &input, logits);
}

/* Runs the largest passes without memory, for their shapes. */
static hark_status measure(hark_predictor *p) {
  hark_value logits = 0;
  p->host.rows = p->read.most.examples;
  p->host.tokens = p->read.most.tokens;
  p->host.longest = hark_min(network_of(p)->config.context, p->host.tokens);
  hark_tape_set_shape_only(p->tape, true);
  hark_status status = pass(p, NULL, &logits);
  if (status == HARK_OK && p->gives_chunks) status = pass(p, &p->starts, &logits);
  hark_tape_set_shape_only(p->tape, false);
  return status;
}

static hark_status make(hark_predictor *p, const hark_predictor_options *options) {
  const hark_network_config *config = &network_of(p)->config;
  p->shape = shape_of(p->model);
  HARK_TRY(take_pooling(p, options));
  p->front = hark_encoder_front(config);
  p->tokens = options->tokens;
  p->select = options->select;
  p->select_user = options->select_user;
  p->gives_chunks = options->gives_chunks;
  const int64_t sequences = options->examples * p->shape.parts;
  const hark_packed_extents most = {.examples = options->examples,
                                    .tokens = options->tokens + sequences * p->front,
                                    .parts = p->shape.parts,
                                    .features = p->shape.features,
                                    .types = config->token_types > 0};
  HARK_TRY(hark_packed_batch_create(p->context, &most, true, &p->read));
  HARK_TRY(make_host(p));
  HARK_TRY(make_decisions(p));
  const hark_pass_sizes sizes = {
      .batch = 1, .queries = most.tokens, .keys = most.tokens, .sequences = sequences, .longest = hark_min(config->context, most.tokens)};
  HARK_TRY(hark_network_plans_create(p->context, network_of(p), &sizes, false, &p->plans));
  HARK_TRY(hark_tape_create(p->context, &p->tape));
  HARK_TRY(measure(p));
  return hark_tape_reserve(p->tape);
}

hark_status hark_predictor_create(hark_context *context, const hark_model *model, const hark_predictor_options *given,
                                  hark_predictor **out) {
  hark_predictor_options options;
  void *memory = NULL;
  *out = NULL;
  HARK_TRY(take_options(context, model, given, &options));
  HARK_TRY(hark_allocate_zero(context, sizeof(hark_predictor), &memory));
  hark_predictor *predictor = memory;
  predictor->context = context;
  predictor->model = model;
  const hark_status status = make(predictor, &options);
  if (status != HARK_OK) {
    hark_predictor_destroy(&predictor);
    return status;
  }
  *out = predictor;
  return HARK_OK;
}

void hark_predictor_set_watch(hark_predictor *predictor, const hark_predictor_watch *watch) { predictor->watch = *watch; }

const hark_tape *hark_predictor_tape(const hark_predictor *predictor) { return predictor->tape; }

void hark_predictor_destroy(hark_predictor **predictor) {
  if (predictor == NULL || *predictor == NULL) return;
  hark_predictor *p = *predictor;
  hark_context *context = p->context;
  *predictor = NULL;
  hark_tape_destroy(&p->tape);
  hark_network_plans_destroy(context, network_of(p), &p->plans);
  hark_packed_batch_destroy(context, &p->read);
  hark_tensor_destroy(context, &p->starts);
  hark_tensor_destroy(context, &p->index);
  hark_release(context, p->memory, p->bytes);
  hark_release(context, p->global_offsets, p->global_bytes);
  hark_release(context, p, sizeof *p);
}

/* ---- calls ---- */

/* The type of the caller's token `from` as that of token `to`. */
static hark_status add_type(hark_predictor *p, int64_t from, int32_t type, int64_t to) {
  const int64_t types = network_of(p)->config.token_types;
  if (type < 0 || type >= types)
    return hark_fail(p->context, HARK_INVALID_ARGUMENT, "predictor: the type of token %" PRId64 " is %" PRId32 ", expected 0 to %" PRId64,
                     from, type, types - 1);
  p->types[to] = type;
  return HARK_OK;
}

/* Appends one sequence, from the caller's token `first` on. */
static hark_status add_sequence(hark_predictor *p, const hark_prediction_input *input, int64_t sequence) {
  const int64_t first = input->offsets[sequence], end = input->offsets[sequence + 1], begin = p->host.tokens;
  const int64_t vocabulary = network_of(p)->config.vocabulary, features = p->shape.features;
  if (end <= first || end - first > p->shape.longest)
    return hark_fail(p->context, HARK_INVALID_ARGUMENT,
                     "predictor: sequence %" PRId64 " begins at %" PRId64 " and ends at %" PRId64 ", expected 1 to %" PRId64 " tokens",
                     sequence, first, end, p->shape.longest);
  if (end > p->tokens)
    return hark_fail(p->context, HARK_INVALID_ARGUMENT,
                     "predictor: the first %" PRId64 " sequences have %" PRId64 " tokens, there is room for %" PRId64, sequence + 1, end,
                     p->tokens);
  const int64_t count = end - first;
  if (p->front > 0) p->host.inputs[begin] = HARK_TOKEN_CLASS;
  if (p->front > 0 && input->types != NULL) p->types[begin] = 0;
  for (int64_t i = 0; i < count; i++) {
    const int32_t token = features == 0 ? input->tokens[first + i] : 0;
    if (features == 0 && (token < 0 || token >= vocabulary))
      return hark_fail(p->context, HARK_INVALID_ARGUMENT, "predictor: token %" PRId64 " is %" PRId32 ", expected 0 to %" PRId64, first + i,
                       token, vocabulary - 1);
    p->host.inputs[begin + p->front + i] = token;
    if (input->types != NULL) HARK_TRY(add_type(p, first + i, input->types[first + i], begin + p->front + i));
  }
  for (int64_t i = 0; i < count * features; i++) {
    const float number = input->vectors[first * features + i];
    if (!isfinite(number))
      return hark_fail(p->context, HARK_INVALID_ARGUMENT, "predictor: number %" PRId64 " of vector %" PRId64 " is not finite", i % features,
                       first + i / features);
    p->host.features[begin * features + i] = number;
  }
  for (int64_t i = 0; i < count + p->front; i++) {
    p->host.positions[begin + i] = (int32_t)i;
    p->host.segments[begin + i] = sequence;
  }
  p->host.tokens += count + p->front;
  p->host.ranges[2 * sequence] = begin;
  p->host.ranges[2 * sequence + 1] = p->host.tokens;
  p->host.longest = hark_max(p->host.longest, count + p->front);
  return HARK_OK;
}

static hark_status take_input(hark_predictor *p, const hark_prediction_input *input) {
  const bool vectors = p->shape.features > 0;
  if (input->examples < 1 || input->examples > p->read.most.examples)
    return hark_fail(p->context, HARK_INVALID_ARGUMENT, "predictor: %" PRId64 " examples, expected 1 to %" PRId64, input->examples,
                     p->read.most.examples);
  if (input->offsets == NULL || (vectors ? (const void *)input->vectors : input->tokens) == NULL)
    return hark_fail(p->context, HARK_INVALID_ARGUMENT, "predictor: no %s",
                     input->offsets == NULL ? "offsets"
                     : vectors              ? "vectors"
                                            : "tokens");
  if ((vectors ? (const void *)input->tokens : input->vectors) != NULL)
    return hark_fail(p->context, HARK_INVALID_ARGUMENT, "predictor: the model reads %s, and %s are given",
                     vectors ? "real vectors" : "tokens", vectors ? "tokens" : "real vectors");
  if (input->types != NULL && p->types == NULL)
    return hark_fail(p->context, HARK_INVALID_ARGUMENT, "predictor: types of tokens are given, and the model has none (model.token_types)");
  if (input->offsets[0] != 0)
    return hark_fail(p->context, HARK_INVALID_ARGUMENT, "predictor: the first sequence begins at %" PRId64 ", expected 0",
                     input->offsets[0]);
  if (input->chunks != NULL && !p->gives_chunks)
    return hark_fail(p->context, HARK_INVALID_ARGUMENT, "predictor: chunks are given, and it was made without options.gives_chunks");
  p->host.rows = input->examples;
  p->host.tokens = p->host.longest = 0;
  p->host.types = input->types != NULL ? p->types : NULL;
  for (int64_t s = 0; s < input->examples * p->shape.parts; s++) HARK_TRY(add_sequence(p, input, s));
  return hark_packed_batch_write(p->context, &p->read, &p->host);
}

/* Writes the caller's chunks to the backend's memory. */
static hark_status take_chunks(hark_predictor *p, const hark_prediction_input *input, hark_tensor *chunks) {
  if (input->chunk_count < 1 || input->chunk_count > p->host.tokens)
    return hark_fail(p->context, HARK_INVALID_ARGUMENT, "predictor: %" PRId64 " chunks, expected 1 to %" PRId64 ", one for each token",
                     input->chunk_count, p->host.tokens);
  const int64_t count = input->chunk_count + 1;
  *chunks = hark_tensor_front(&p->starts, 1, &count);
  return hark_tensor_write(p->context, chunks, input->chunks);
}

hark_status hark_predictor_run(hark_predictor *p, const hark_prediction_input *given, float *numbers, size_t count) {
  hark_prediction_input input = {.struct_size = sizeof input};
  hark_tensor chunks = {0};
  hark_value logits = 0;
  HARK_TRY(hark_take_struct(p->context, "hark_prediction_input", given, HARK_LEAST_PREDICTION_INPUT, &input, sizeof input));
  HARK_TRY(take_input(p, &input));
  const int64_t rows = p->shape.of_tokens ? p->host.tokens : p->host.rows;
  if (numbers == NULL || count / (size_t)p->shape.outputs < (size_t)rows)
    return hark_fail(p->context, HARK_INVALID_ARGUMENT, "predictor: room for %zu numbers, expected %" PRId64 " rows of %" PRId64, count,
                     rows, p->shape.outputs);
  if (input.chunks != NULL) HARK_TRY(take_chunks(p, &input, &chunks));
  HARK_TRY(pass(p, input.chunks != NULL ? &chunks : NULL, &logits));
  const hark_tensor *output = hark_tape_tensor(p->tape, logits);
  if (hark_tensor_count(output) != rows * p->shape.outputs)
    return hark_fail(p->context, HARK_INTERNAL_ERROR, "predictor: %" PRId64 " numbers came of %" PRId64 " rows", hark_tensor_count(output),
                     rows);
  return hark_tensor_read(p->context, output, numbers);
}
