/* engine_create.c - making an engine: what the configuration and the data determine, its memory, and how much it would need. */
#include <fnmatch.h>
#include <string.h>

#include "attention/spread.h"
#include "backend/backend.h"
#include "models/encoder.h"
#include "train/engine_parts.h"
#include "train/update.h"

hark_network_config hark_engine_text_config(const hark_config *config, int32_t vocabulary) {
  const hark_learning_task task = {.vocabulary = vocabulary};
  return hark_engine_network_config(config, &task);
}

/* The head that the data need, unless one is chosen. */
static int ahca_head(int head, const hark_learning_task *task) {
  if (head != HARK_AHCA_HEAD_DATA) return head;
  return task->features > 0 ? HARK_AHCA_HEAD_REGRESSION : task->classes > 0 ? HARK_AHCA_HEAD_CLASSES : HARK_AHCA_HEAD_LABELS;
}

/* Tokens in place of texts. */
static void take_delimiters(const hark_config *config, const hark_learning_task *task, hark_network_config *network) {
  if (task->delimiters.count == 0) return;
  const bool ahca = config->model.architecture == HARK_ARCHITECTURE_AHCA;
  memcpy(ahca ? network->ahca.other_delimiters : network->attention.chunk_delimiters, task->delimiters.numbers,
         sizeof task->delimiters.numbers);
  *(ahca ? &network->ahca.other_delimiter_count : &network->attention.chunk_delimiter_count) = task->delimiters.count;
}

hark_network_config hark_engine_network_config(const hark_config *config, const hark_learning_task *task) {
  const bool encoder = config->model.architecture == HARK_ARCHITECTURE_ENCODER, ahca = config->model.architecture == HARK_ARCHITECTURE_AHCA;
  hark_network_config network = config->model;
  network.vocabulary = task->vocabulary;
  network.sentences = hark_config_has_sentences(config);
  network.unreserved = hark_config_has_imported_tokens(config);
  network.classes = ahca || (encoder && network.head == HARK_ENCODER_HEAD_CLASSES) ? task->classes : 0;
  network.parts = encoder || ahca ? task->parts : 0;
  network.features = task->features;
  network.responses = task->responses;
  network.ends = task->ends;
  network.ahca.head = ahca_head(network.ahca.head, task);
  take_delimiters(config, task, &network);
  if (encoder) network.context = hark_encoder_rows(network.pooling, network.context);
  hark_model_forget_texts(&network);
  return network;
}

#define EXCHANGED_PIECES 64 /* of messages to each process that shares windows */

/* Puts the parameters that train.freeze names into a separate group, which no step changes. A pattern that matches none is refused. */
static hark_status freeze_parameters(hark_context *context, hark_engine *engine) {
  const hark_string_list *patterns = &engine->config->train.freeze;
  hark_parameters *parameters = &engine->network->parameters;
  for (int64_t i = 0; i < patterns->count; i++) {
    int32_t found = 0;
    for (int32_t p = 0; p < parameters->count; p++) {
      if (fnmatch(patterns->items[i], parameters->list[p].name, 0) != 0) continue;
      parameters->list[p].spec.rate = HARK_RATE_FROZEN;
      found++;
    }
    if (found == 0)
      return hark_fail(context, HARK_BAD_CONFIGURATION, "train.freeze: %.200s matches no weight of the model", patterns->items[i]);
  }
  return HARK_OK;
}

static size_t predicted_bytes(const hark_engine_packing *packing) { return (size_t)packing->read.most.tokens * sizeof *packing->predicted; }

static size_t number_bytes(const hark_engine_packing *packing) {
  return (size_t)(2 * packing->read.most.tokens * packing->read.most.responses) * sizeof *packing->numbers;
}

/* Makes the memory for packed examples. */
static hark_status build_packing(hark_context *context, hark_engine *engine, bool memory) {
  void *allocated = NULL;
  HARK_TRY(hark_allocate_zero(context, sizeof *engine->packing, &allocated));
  hark_engine_packing *packing = engine->packing = allocated;
  const int64_t rows = engine->config->train.batch, responses[] = {rows, engine->task.responses};
  const hark_packed_extents most = {.examples = rows,
                                    .tokens = rows * engine->task.parts * engine->network->config.context,
                                    .parts = engine->task.parts,
                                    .features = engine->task.features,
                                    .responses = engine->task.tables ? engine->task.responses : 0,
                                    .types = engine->network->config.token_types > 0};
  HARK_TRY(hark_packed_batch_create(context, &most, memory, &packing->read));
  if (hark_engine_has_vectors(engine) && !engine->task.tables)
    HARK_TRY(hark_tensor_make(context, memory, HARK_F32, 2, responses, &packing->responses));
  if (!memory) return HARK_OK;
  HARK_TRY(hark_allocate(context, predicted_bytes(packing), &allocated));
  packing->predicted = allocated;
  if (!engine->task.tables) return HARK_OK;
  HARK_TRY(hark_allocate(context, number_bytes(packing), &allocated));
  packing->numbers = allocated;
  return HARK_OK;
}

static void destroy_packing(hark_context *context, hark_engine_packing *packing) {
  if (packing == NULL) return;
  if (packing->predicted != NULL) hark_release(context, packing->predicted, predicted_bytes(packing));
  if (packing->numbers != NULL) hark_release(context, packing->numbers, number_bytes(packing));
  hark_packed_batch_destroy(context, &packing->read);
  hark_tensor_destroy(context, &packing->responses);
  hark_release(context, packing, sizeof *packing);
}

/* The largest passes. */
static hark_pass_sizes pass_sizes(const hark_engine *engine) {
  const int64_t batch = engine->config->train.batch, length = engine->config->model.context;
  if (!hark_engine_is_packed(engine))
    return (hark_pass_sizes){.batch = batch, .queries = length, .keys = length, .sequence = hark_engine_sequence(engine)};
  const int64_t tokens = engine->packing->read.most.tokens;
  return (hark_pass_sizes){.batch = 1,
                           .queries = tokens,
                           .keys = tokens,
                           .sequences = batch * hark_max(engine->task.parts, engine->task.sequences),
                           .longest = engine->network->config.context};
}

/* The targets of a batch: of windows [batch, context], of packed tokens [1, tokens], classes [batch]. */
static hark_status make_targets(hark_context *context, hark_engine *engine, bool memory) {
  const int64_t windows[] = {engine->config->train.batch, hark_engine_own_length(engine)};
  if (!hark_engine_is_packed(engine)) return hark_tensor_make(context, memory, HARK_I32, 2, windows, &engine->targets);
  const int64_t packed[] = {1, engine->packing->read.most.tokens};
  return hark_engine_has_classes(engine) ? hark_tensor_make(context, memory, HARK_I32, 1, windows, &engine->targets)
                                         : hark_tensor_make(context, memory, HARK_I32, 2, packed, &engine->targets);
}

/* The most targets of a pass over `tokens` tokens. */
static int64_t most_targets(const hark_engine *engine, int64_t tokens) {
  const hark_config *const config = engine->config;
  if (engine->network->architecture->predicts_masked) return hark_engine_rows_masked(tokens, config->train.mask_fraction);
  return engine->task.targets > 0 ? hark_min(tokens, config->train.batch * engine->task.targets) : tokens;
}

/* Passes with one result for each example, over spread windows and in slices have logits of all rows. */
static hark_status make_rows(hark_context *context, hark_engine *engine, bool memory) {
  const int64_t batch = engine->config->train.batch, length = engine->config->model.context;
  const bool packed = hark_engine_is_packed(engine), sliced = !packed && batch == 1 && length > context->rows.most;
  const int64_t tokens = packed ? engine->packing->read.most.tokens : batch * length;
  engine->most_targets = tokens;
  if (hark_engine_has_classes(engine) || hark_engine_has_vectors(engine) || hark_engine_sequence(engine) != NULL || sliced) return HARK_OK;
  engine->most_targets = most_targets(engine, tokens);
  return hark_engine_rows_open(context, tokens, memory, &engine->rows);
}

/* Windows of a text have type 0. */
static hark_status make_types(hark_context *context, hark_engine *engine, bool memory) {
  const int64_t windows[] = {engine->config->train.batch, hark_engine_own_length(engine)};
  if (hark_engine_is_packed(engine) || engine->config->model.token_types == 0) return HARK_OK;
  HARK_TRY(hark_tensor_make(context, memory, HARK_I32, 2, windows, &engine->types));
  return memory ? hark_tensor_zero(context, &engine->types) : HARK_OK;
}

/* An embedding has no targets. */
static hark_status check_head(hark_context *context, const hark_engine *engine) {
  const hark_network_config *const model = &engine->config->model;
  if (model->architecture == HARK_ARCHITECTURE_ENCODER && model->head == HARK_ENCODER_HEAD_EMBEDDING)
    return hark_fail(context, HARK_BAD_CONFIGURATION,
                     "model.head embedding predicts nothing that data could be compared with: expected classes");
  return HARK_OK;
}

/* Numbers to predict come with real vectors. */
static hark_status check_regression(hark_context *context, const hark_engine *engine) {
  const hark_network_config *const model = &engine->config->model;
  if (model->architecture == HARK_ARCHITECTURE_AHCA && model->ahca.head == HARK_AHCA_HEAD_REGRESSION && engine->task.features == 0)
    return hark_fail(context, HARK_BAD_CONFIGURATION,
                     "model.ahca.head regression predicts numbers, and the data have none: expected real vectors");
  return HARK_OK;
}

/* Products in bf16, if they are configured. */
static hark_status add_halves(hark_context *context, hark_engine *engine, bool memory) {
  const char *const slow = context->backend->slow_bf16 != NULL ? context->backend->slow_bf16(context) : NULL;
  if (!engine->training || engine->config->train.precision != HARK_PRECISION_BF16) return HARK_OK;
  if (slow != NULL) return hark_fail(context, HARK_BAD_CONFIGURATION, "train.precision bf16: %s", slow);
  return hark_parameters_add_halves(context, &engine->network->parameters, memory);
}

/* The largest part is at most an eighth above the mean. */
static bool is_even(const hark_sequence *sequence) {
  const int size = hark_group_size(sequence->group);
  int64_t largest = 0;
  for (int rank = 0; rank < size; rank++) largest = hark_max(largest, hark_sequence_rows(sequence, rank).count);
  return 8 * largest * size <= 9 * sequence->total;
}

/* Rows are divided as attention that exchanges little needs it, if the parts are then about equal. With more processes than key heads,
 * whose exchange is impossible, it is enough that every process has some. */
static hark_status divide_rows(hark_context *context, hark_engine *engine) {
  hark_sequence divided = engine->sequence;
  if (divided.group == NULL || hark_engine_is_packed(engine)) return HARK_OK;
  const hark_pass_sizes sizes = pass_sizes(engine);
  const int size = hark_group_size(divided.group);
  int64_t unit = 0;
  HARK_TRY(hark_network_row_unit(context, engine->network, &sizes, &unit));
  if (unit > 0) divided.unit = hark_attention_spread_full_grain(unit, divided.total, size);
  if (size > engine->network->config.key_heads || is_even(&divided)) engine->sequence.unit = divided.unit;
  return HARK_OK;
}

/* What processes can share. */
static hark_status check_sequence(hark_context *context, const hark_engine *engine) {
  const hark_sequence *const sequence = hark_engine_sequence(engine);
  if (sequence == NULL) return HARK_OK;
  const int size = hark_group_size(sequence->group);
  if (hark_engine_is_packed(engine) || engine->network->blocks == NULL || engine->network->architecture->predicts_masked)
    return hark_fail(context, HARK_BAD_CONFIGURATION, "run.sequence_ranks is %d, and only windows of a text with next tokens are shared",
                     size);
  /* a sequence with a unit of its own has rows for every process */
  if (hark_sequence_rows(sequence, size - 1).count < 1 || hark_sequence_rows(sequence, 0).count < 1)
    return hark_fail(context, HARK_BAD_CONFIGURATION,
                     "run.sequence_ranks is %d, expected at most one for %d of the %lld tokens of a window", size, HARK_SEQUENCE_UNIT,
                     (long long)sequence->total);
  return HARK_OK;
}

/* The moments, on the processes that have them. */
static hark_status make_moments(hark_context *context, hark_engine *engine, bool memory) {
  const hark_config *const config = engine->config;
  const hark_parameters *const parameters = &engine->network->parameters;
  const bool all = config->train.optimiser == HARK_OPTIMISER_ADAMW, divides = all && config->train.shard_optimiser;
  HARK_TRY(hark_moment_share_create(context, divides, parameters->weights.shape[0], memory, &engine->share));
  const int64_t first = hark_moment_share_places(&engine->share);
  const int64_t second = all ? first : hark_max(1, hark_moment_numbers(config, parameters));
  if (hark_moments_have_first(config))
    HARK_TRY(hark_tensor_make(context, memory, parameters->weights.type, 1, &first, &engine->first_moment));
  return hark_tensor_make(context, memory, parameters->weights.type, 1, &second, &engine->second_moment);
}

/* What sums of squares and the optimiser need. */
static hark_status make_workspace(hark_context *context, hark_engine *engine, bool memory) {
  hark_inferred inferred = {0};
  size_t update = 0;
  HARK_TRY(hark_op_sum_squares.infer(context, NULL, &engine->network->parameters.gradients, 1, &inferred));
  HARK_TRY(hark_update_workspace(context, engine, &update));
  const int64_t bytes = hark_max((int64_t)inferred.forward_workspace, (int64_t)update);
  return hark_tensor_make(context, memory, HARK_U8, 1, &bytes, &engine->workspace);
}

/* Gradients of several micro-batches, and what an update needs. */
static hark_status build_optimiser(hark_context *context, hark_engine *engine, bool memory) {
  const int64_t one = 1;
  HARK_TRY(hark_gradient_sum_create(context, &engine->network->parameters.gradients,
                                    engine->config->train.accumulate * hark_group_size(engine->sequence.group), memory, &engine->sum));
  HARK_TRY(make_moments(context, engine, memory));
  HARK_TRY(hark_tensor_make(context, memory, HARK_F64, 1, &one, &engine->square_sum));
  return make_workspace(context, engine, memory);
}

/* Without `memory` tensors are only described: such an engine reports sizes and cannot run. */
static hark_status build(hark_context *context, hark_engine *engine, bool memory) {
  const hark_network_config network = hark_engine_network_config(engine->config, &engine->task);
  HARK_TRY(check_regression(context, engine));
  HARK_TRY(check_head(context, engine));
  HARK_TRY(hark_network_declare(context, &network, HARK_F32, &engine->network));
  if (hark_engine_has_classes(engine) != (engine->task.classes > 0) || (hark_engine_has_classes(engine) && !hark_engine_is_packed(engine)))
    return hark_fail(context, HARK_BAD_CONFIGURATION, "model.architecture %s %s, and the data have %s", engine->network->architecture->name,
                     hark_engine_has_classes(engine) ? "predicts classes" : "predicts tokens",
                     engine->task.classes > 0 ? "classes" : "tokens as targets");
  if (engine->network->blocks == NULL && !hark_engine_is_packed(engine))
    return hark_fail(context, HARK_BAD_CONFIGURATION, "model.architecture %s reads complete sequences, and the data are windows of a text",
                     engine->network->architecture->name);
  HARK_TRY(divide_rows(context, engine));
  HARK_TRY(check_sequence(context, engine));
  HARK_TRY(freeze_parameters(context, engine));
  if (hark_engine_is_packed(engine)) HARK_TRY(build_packing(context, engine, memory));
  if (engine->matrices != HARK_NONE) HARK_TRY(hark_parameters_hold(context, &engine->network->parameters, engine->matrices));
  HARK_TRY((memory ? hark_parameters_finish : hark_parameters_lay_out)(context, &engine->network->parameters, engine->training));
  HARK_TRY(add_halves(context, engine, memory));
  const hark_pass_sizes sizes = pass_sizes(engine);
  HARK_TRY(hark_network_plans_create(context, engine->network, &sizes, false, &engine->evaluation_plans));
  if (engine->training) HARK_TRY(hark_network_plans_create(context, engine->network, &sizes, true, &engine->training_plans));
  const int64_t windows[] = {engine->config->train.batch, hark_engine_own_length(engine)};
  if (!hark_engine_is_packed(engine)) HARK_TRY(hark_tensor_make(context, memory, HARK_I32, 2, windows, &engine->inputs));
  HARK_TRY(make_types(context, engine, memory));
  HARK_TRY(make_targets(context, engine, memory));
  HARK_TRY(make_rows(context, engine, memory));
  if (engine->training) HARK_TRY(build_optimiser(context, engine, memory));
  if (memory && hark_engine_sequence(engine) != NULL) /* no exchange of rows needs memory */
    HARK_TRY(hark_group_reserve(context, engine->sequence.group, (int64_t)hark_group_size(engine->sequence.group) * EXCHANGED_PIECES));
  HARK_TRY(hark_tape_create(context, &engine->tape));
  HARK_TRY(hark_engine_measure_step(context, engine));
  const hark_tape_watch watch = hark_gradient_sum_watch(&engine->sum, &engine->network->parameters);
  hark_tape_set_watch(engine->tape, &watch);
  return memory ? hark_tape_reserve(engine->tape) : HARK_OK;
}

static hark_status make(hark_context *context, const hark_config *config, const hark_learning_task *task, bool training, hark_type matrices,
                        bool memory_too, hark_engine **out) {
  *out = NULL;
  void *memory = NULL;
  HARK_TRY(hark_allocate_zero(context, sizeof(hark_engine), &memory));
  hark_engine *engine = memory;
  engine->config = config;
  engine->task = *task;
  engine->training = training;
  engine->matrices = matrices;
  if (training && context->sequence != NULL) engine->sequence = (hark_sequence){.group = context->sequence, .total = config->model.context};
  const hark_status status = build(context, engine, memory_too);
  if (status != HARK_OK) {
    hark_engine_destroy(context, &engine);
    return status;
  }
  *out = engine;
  return HARK_OK;
}

hark_status hark_engine_create(hark_context *context, const hark_config *config, int32_t vocabulary, bool training, hark_engine **out) {
  const hark_learning_task task = {.vocabulary = vocabulary};
  return make(context, config, &task, training, HARK_NONE, true, out);
}

hark_status hark_engine_create_for(hark_context *context, const hark_config *config, const hark_learning_task *task, bool training,
                                   hark_engine **out) {
  return make(context, config, task, training, HARK_NONE, true, out);
}

hark_status hark_engine_create_to_measure(hark_context *context, const hark_config *config, const hark_learning_task *task,
                                          hark_type matrices, hark_engine **out) {
  return make(context, config, task, false, matrices, true, out);
}

hark_status hark_engine_estimate(hark_context *context, const hark_config *config, int32_t vocabulary, bool training,
                                 hark_engine_memory *memory, int64_t *parameters, int64_t *tensors) {
  const hark_learning_task task = {.vocabulary = vocabulary};
  return hark_engine_estimate_for(context, config, &task, training, memory, parameters, tensors);
}

hark_status hark_engine_estimate_for(hark_context *context, const hark_config *config, const hark_learning_task *task, bool training,
                                     hark_engine_memory *memory, int64_t *parameters, int64_t *tensors) {
  hark_engine *engine = NULL;
  HARK_TRY(make(context, config, task, training, HARK_NONE, false, &engine));
  *memory = hark_engine_memory_of(engine);
  *parameters = hark_parameters_total(&engine->network->parameters);
  *tensors = engine->network->parameters.count;
  hark_engine_destroy(context, &engine);
  return HARK_OK;
}

hark_status hark_engine_operations_of_all(hark_context *context, const hark_config *config, const hark_learning_task *task,
                                          double *operations) {
  hark_config all = *config;
  hark_engine *engine = NULL;
  all.train.mask_fraction = 1;
  HARK_TRY(make(context, &all, task, true, HARK_NONE, false, &engine));
  *operations = engine->largest_operations;
  hark_engine_destroy(context, &engine);
  return HARK_OK;
}

void hark_engine_destroy(hark_context *context, hark_engine **engine_pointer) {
  if (engine_pointer == NULL || *engine_pointer == NULL) return;
  hark_engine *engine = *engine_pointer;
  *engine_pointer = NULL;
  hark_tape_destroy(&engine->tape);
  if (engine->network != NULL) {
    hark_network_plans_destroy(context, engine->network, &engine->training_plans);
    hark_network_plans_destroy(context, engine->network, &engine->evaluation_plans);
  }
  hark_tensor *const owned[] = {&engine->first_moment, &engine->second_moment, &engine->inputs, &engine->targets,
                                &engine->square_sum,   &engine->workspace,     &engine->types};
  for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) hark_tensor_destroy(context, owned[i]);
  hark_gradient_sum_destroy(context, &engine->sum);
  hark_moment_share_destroy(context, &engine->share);
  destroy_packing(context, engine->packing);
  hark_engine_rows_close(context, &engine->rows);
  hark_network_destroy(context, &engine->network);
  hark_release(context, engine, sizeof *engine);
}

static size_t bytes_of(const hark_tensor *tensor) {
  return tensor->type != HARK_NONE ? (size_t)hark_tensor_count(tensor) * hark_type_bytes(tensor->type) : 0;
}

static size_t packing_bytes(const hark_engine_packing *packing) {
  if (packing == NULL) return 0;
  return hark_packed_batch_bytes(&packing->read) + bytes_of(&packing->responses) + predicted_bytes(packing);
}

hark_engine_memory hark_engine_memory_of(const hark_engine *engine) {
  return (hark_engine_memory){.weights = bytes_of(&engine->network->parameters.weights) + bytes_of(&engine->network->parameters.halves),
                              .gradients = bytes_of(&engine->network->parameters.gradients) + hark_gradient_sum_bytes(&engine->sum),
                              .moments = bytes_of(&engine->first_moment) + bytes_of(&engine->second_moment) + engine->share.memory_bytes,
                              .step = hark_tape_peak_bytes(engine->tape),
                              .batch = bytes_of(&engine->inputs) + bytes_of(&engine->types) + bytes_of(&engine->targets) +
                                       bytes_of(&engine->workspace) + bytes_of(&engine->rows.index) + engine->rows.bytes +
                                       packing_bytes(engine->packing)};
}
