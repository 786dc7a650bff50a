/* engine.c - see engine.h. */
#include "train/engine.h"

#include <fnmatch.h>
#include <math.h>
#include <string.h>

#include "backend/backend.h"
#include "models/encoder.h"

hark_network_config hark_engine_text_config(const hark_config *config, int32_t vocabulary) {
  const hark_learning_task task = {.vocabulary = vocabulary};
  return hark_engine_network_config(config, &task);
}

/* The head that the data need, unless one is chosen. */
static int ahca_head(int head, const hark_learning_task *task) {
  if (head != HARK_AHCA_HEAD_DATA) return head;
  return task->features > 0 ? HARK_AHCA_HEAD_REGRESSION : task->classes > 0 ? HARK_AHCA_HEAD_CLASSES : HARK_AHCA_HEAD_LABELS;
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
  if (encoder) network.context = hark_encoder_rows(network.pooling, network.context);
  hark_model_forget_texts(&network);
  return network;
}

static bool is_packed(const hark_engine *engine) { return engine->task.parts > 0; }
static bool has_classes(const hark_engine *engine) {
  return engine->network->architecture->predicts_classes && engine->network->config.classes > 0;
}
static bool has_vectors(const hark_engine *engine) { return engine->task.features > 0; }

static const hark_sequence *sequence_of(const hark_engine *engine) { return engine->sequence.group != NULL ? &engine->sequence : NULL; }

/* The tokens of a window that this process has. */
static hark_share own_rows(const hark_engine *engine) {
  return sequence_of(engine) != NULL ? hark_sequence_own_rows(&engine->sequence) : (hark_share){0, engine->config->model.context};
}

int64_t hark_engine_own_length(const hark_engine *engine) { return own_rows(engine).count; }

hark_status hark_engine_end_work(hark_context *context, const hark_engine *engine, hark_status status) {
  if (status != HARK_OK && sequence_of(engine) != NULL) hark_group_give_up(context, engine->sequence.group, status);
  return status;
}

const char *hark_loss_term_name(hark_loss_term term) {
  static const char *const names[HARK_LOSS_TERMS] = {
      [HARK_TERM_SMOOTHING] = "train/smoothing_loss", [HARK_TERM_RATIO] = "train/ratio_loss", [HARK_TERM_PONDER] = "train/ponder_loss"};
  return names[term];
}

/* The loss whose gradient is taken, in engine->total; *loss is the loss without label smoothing. */
static hark_status loss_of_targets(hark_engine *engine, hark_value logits, hark_value targets, double weight, bool training,
                                   hark_value *loss) {
  const double smoothing = training ? engine->config->train.label_smoothing : 0;
  HARK_TRY(hark_network_loss(engine->tape, logits, targets, weight, smoothing, &engine->total));
  *loss = engine->total;
  if (smoothing == 0) return HARK_OK;
  engine->terms[HARK_TERM_SMOOTHING] = engine->total;
  const double before = hark_tape_operations(engine->tape);
  hark_tape_set_recording(engine->tape, false);
  HARK_TRY(hark_network_loss(engine->tape, logits, targets, weight, 0, loss));
  hark_tape_set_recording(engine->tape, true);
  engine->extra_operations = hark_tape_operations(engine->tape) - before;
  return HARK_OK;
}

/* Adds the architecture's own losses to the total. No value is released: they are read after the backward. */
static hark_status add_penalty(hark_engine *engine, hark_value penalty, const hark_value *penalties) {
  const hark_value both[] = {engine->total, penalty};
  if (penalty == 0) return HARK_OK;
  engine->terms[HARK_TERM_RATIO] = penalties[HARK_PENALTY_RATIO];
  engine->terms[HARK_TERM_PONDER] = penalties[HARK_PENALTY_PONDER];
  return hark_tape_apply(engine->tape, &hark_op_add, NULL, 2, both, 0, &engine->total);
}

static void forget_parts(hark_engine *engine) {
  memset(engine->terms, 0, sizeof engine->terms);
  engine->total = 0;
  engine->extra_operations = 0;
}

/* Forgets the previous pass. The tokens and targets of the new one are `rows` windows of `length` tokens at the front of engine->inputs and
 * engine->targets. */
static hark_status begin_pass(hark_engine *engine, int64_t rows, int64_t length, bool recording, hark_value *tokens, hark_value *targets) {
  const int64_t shape[] = {rows, length};
  const hark_tensor windows[] = {hark_tensor_front(&engine->inputs, 2, shape), hark_tensor_front(&engine->targets, 2, shape)};
  engine->logits = 0;
  forget_parts(engine);
  hark_tape_reset(engine->tape);
  hark_tape_set_recording(engine->tape, recording);
  HARK_TRY(hark_tape_leaf(engine->tape, &windows[0], NULL, tokens));
  return hark_tape_leaf(engine->tape, &windows[1], NULL, targets);
}

/* The types of `rows` windows of `length` tokens, in *types; NULL for a model that has none. */
static const hark_tensor *types_of(const hark_engine *engine, int64_t rows, int64_t length, hark_tensor *types) {
  const int64_t shape[] = {rows, length};
  if (engine->types.type == HARK_NONE) return NULL;
  *types = hark_tensor_front(&engine->types, 2, shape);
  return types;
}

static hark_status training_pass(hark_context *context, hark_engine *engine, int64_t rows, uint64_t first_sample, uint32_t micro_step,
                                 double weight, hark_value *loss) {
  hark_value tokens = 0, targets = 0, logits = 0;
  hark_tensor types;
  const int64_t length = hark_engine_own_length(engine);
  const hark_forward forward = {.tape = engine->tape,
                                .types = types_of(engine, rows, length, &types),
                                .parameters = &engine->network->parameters,
                                .slice_row = own_rows(engine).first,
                                .rows = engine->sequence.total,
                                .sequence = sequence_of(engine),
                                .training = true,
                                .seed = (uint64_t)engine->config->train.seed,
                                .first_sample = first_sample,
                                .micro_step = micro_step,
                                .plans = engine->training_plans,
                                .report = &engine->report};
  HARK_TRY(begin_pass(engine, rows, length, true, &tokens, &targets));
  if (engine->config->train.label_smoothing == 0) {
    HARK_TRY(hark_stack_loss(context, engine->network, &forward, tokens, targets, weight, 0, loss));
    engine->total = *loss;
    return hark_tape_backward(engine->tape, engine->total, 1.0);
  }
  HARK_TRY(hark_stack_logits(context, engine->network, &forward, tokens, false, &logits));
  HARK_TRY(loss_of_targets(engine, logits, targets, weight, true, loss));
  hark_tape_release(engine->tape, logits);
  return hark_tape_backward(engine->tape, engine->total, 1.0);
}

/* Sets engine->logits. */
static hark_status prediction_pass(hark_context *context, hark_engine *engine, int64_t rows, int64_t length) {
  hark_value tokens = 0;
  hark_tensor types;
  const hark_forward forward = {.tape = engine->tape,
                                .types = types_of(engine, rows, length, &types),
                                .parameters = &engine->network->parameters,
                                .slice_row = own_rows(engine).first,
                                .rows = engine->sequence.total,
                                .sequence = sequence_of(engine),
                                .plans = engine->evaluation_plans,
                                .report = &engine->report};
  HARK_TRY(begin_pass(engine, rows, length, false, &tokens, &engine->targets_read));
  return hark_stack_logits(context, engine->network, &forward, tokens, false, &engine->logits);
}

static hark_status likeliest_of_logits(hark_engine *engine, hark_value *predicted) {
  return hark_tape_apply(engine->tape, &hark_op_argmax, NULL, 1, &engine->logits, 0, predicted);
}

static hark_status loss_of_logits(hark_engine *engine, hark_value *loss) {
  return hark_network_loss(engine->tape, engine->logits, engine->targets_read, 1, 0, loss);
}

/* Records a pass over batch->rows examples of batch->tokens tokens in total, at most batch->longest per sequence: the logits, the most
 * likely number of each of their rows, and the loss. The input of the pass is in the engine's memory. */
static hark_status packed_pass(hark_context *context, hark_engine *engine, const hark_example_batch *batch, hark_forward *forward,
                               double weight, hark_value *loss, hark_value *predicted) {
  hark_engine_packing *packing = engine->packing;
  const bool classes = has_classes(engine);
  const int64_t one_row[] = {1, batch->tokens}, responses[] = {batch->rows, engine->task.responses};
  forward->tape = engine->tape;
  forward->parameters = &engine->network->parameters;
  hark_value logits = 0, target = 0, penalty = 0, penalties[HARK_PENALTIES] = {0};
  const double sequences = (double)(engine->config->train.batch * engine->config->train.accumulate);
  hark_network_input input = {.weight = classes || has_vectors(engine) ? weight : 1 / sequences};
  if (forward->training) {
    input.remaining = hark_schedule_remaining(&engine->plan, forward->micro_step, hark_max(1, engine->config->train.accumulate));
    input.penalty = &penalty;
    input.penalties = penalties;
  } else if (engine->statistics != NULL) {
    engine->trace = (hark_ahca_trace){0};
    input.trace = &engine->trace;
  }
  engine->logits = 0;
  forget_parts(engine);
  hark_tape_reset(engine->tape);
  hark_tape_set_recording(engine->tape, forward->training);
  HARK_TRY(hark_packed_batch_begin(&packing->read, batch, forward, &input));
  *predicted = 0;
  if (has_vectors(engine)) {
    const hark_tensor numbers = hark_tensor_front(&packing->responses, 2, responses);
    HARK_TRY(hark_tape_leaf(engine->tape, &numbers, NULL, &target));
    HARK_TRY(engine->network->architecture->logits(context, engine->network, forward, &input, &logits));
    HARK_TRY(hark_network_squared_error(engine->tape, logits, target, weight, loss));
    hark_tape_release(engine->tape, logits);
    engine->total = *loss;
    return add_penalty(engine, penalty, penalties);
  }
  const hark_tensor targets = hark_tensor_front(&engine->targets, classes ? 1 : 2, classes ? &batch->rows : one_row);
  HARK_TRY(hark_tape_leaf(engine->tape, &targets, NULL, &target));
  HARK_TRY(engine->network->architecture->logits(context, engine->network, forward, &input, &logits));
  HARK_TRY(hark_tape_apply(engine->tape, &hark_op_argmax, NULL, 1, &logits, 0, predicted));
  HARK_TRY(loss_of_targets(engine, logits, target, weight, forward->training, loss));
  hark_tape_release(engine->tape, logits);
  return add_penalty(engine, penalty, penalties);
}

static hark_status training_packed_pass(hark_context *context, hark_engine *engine, const hark_example_batch *batch, uint32_t micro_step,
                                        double weight, hark_value *loss, hark_value *predicted) {
  hark_forward forward = {.training = true,
                          .seed = (uint64_t)engine->config->train.seed,
                          .micro_step = micro_step,
                          .plans = engine->training_plans,
                          .report = &engine->report};
  HARK_TRY(packed_pass(context, engine, batch, &forward, weight, loss, predicted));
  return hark_tape_backward(engine->tape, engine->total, 1.0);
}

static hark_status evaluation_packed_pass(hark_context *context, hark_engine *engine, const hark_example_batch *batch, hark_value *loss,
                                          hark_value *predicted) {
  hark_forward forward = {.plans = engine->evaluation_plans, .report = &engine->report};
  return packed_pass(context, engine, batch, &forward, 1, loss, predicted);
}

/* Measures the largest packed step. */
static hark_status measure_packed(hark_context *context, hark_engine *engine) {
  const hark_packed_extents *extents = &engine->packing->read.most;
  const hark_example_batch most = {.rows = extents->examples, .tokens = extents->tokens, .longest = engine->network->config.context};
  hark_value loss = 0, predicted = 0;
  HARK_TRY(evaluation_packed_pass(context, engine, &most, &loss, &predicted));
  return engine->training ? training_packed_pass(context, engine, &most, 0, 1, &loss, &predicted) : HARK_OK;
}

static hark_status measure_rectangular(hark_context *context, hark_engine *engine) {
  const int64_t rows = engine->config->train.batch;
  hark_value loss = 0, predicted = 0;
  HARK_TRY(prediction_pass(context, engine, rows, hark_engine_own_length(engine)));
  if (engine->network->architecture->predicts_masked) HARK_TRY(likeliest_of_logits(engine, &predicted));
  HARK_TRY(loss_of_logits(engine, &loss));
  return engine->training ? training_pass(context, engine, rows, 0, 0, 1, &loss) : HARK_OK;
}

/* Records a step without computing it, to find out how much memory it needs. */
static hark_status measure_step(hark_context *context, hark_engine *engine) {
  hark_tape_set_shape_only(engine->tape, true);
  const hark_status status = is_packed(engine) ? measure_packed(context, engine) : measure_rectangular(context, engine);
  engine->logits = 0;
  engine->largest_operations = hark_engine_operations(engine);
  hark_tape_set_shape_only(engine->tape, false);
  return status;
}

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
                                    .types = engine->network->config.token_types > 0};
  HARK_TRY(hark_packed_batch_create(context, &most, memory, &packing->read));
  if (has_vectors(engine)) HARK_TRY(hark_tensor_make(context, memory, HARK_F32, 2, responses, &packing->responses));
  if (!memory) return HARK_OK;
  HARK_TRY(hark_allocate(context, predicted_bytes(packing), &allocated));
  packing->predicted = allocated;
  return HARK_OK;
}

static void destroy_packing(hark_context *context, hark_engine_packing *packing) {
  if (packing == NULL) return;
  if (packing->predicted != NULL) hark_release(context, packing->predicted, predicted_bytes(packing));
  hark_packed_batch_destroy(context, &packing->read);
  hark_tensor_destroy(context, &packing->responses);
  hark_release(context, packing, sizeof *packing);
}

/* The largest passes. */
static hark_pass_sizes pass_sizes(const hark_engine *engine) {
  const int64_t batch = engine->config->train.batch, length = engine->config->model.context;
  if (!is_packed(engine)) return (hark_pass_sizes){.batch = batch, .queries = length, .keys = length, .sequence = sequence_of(engine)};
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
  if (!is_packed(engine)) return hark_tensor_make(context, memory, HARK_I32, 2, windows, &engine->targets);
  const int64_t packed[] = {1, engine->packing->read.most.tokens};
  return has_classes(engine) ? hark_tensor_make(context, memory, HARK_I32, 1, windows, &engine->targets)
                             : hark_tensor_make(context, memory, HARK_I32, 2, packed, &engine->targets);
}

/* Windows of a text have type 0. */
static hark_status make_types(hark_context *context, hark_engine *engine, bool memory) {
  const int64_t windows[] = {engine->config->train.batch, hark_engine_own_length(engine)};
  if (is_packed(engine) || engine->config->model.token_types == 0) return HARK_OK;
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

#define EXCHANGED_PIECES 64 /* of messages to each process that shares windows */

/* What processes can share. */
static hark_status check_sequence(hark_context *context, const hark_engine *engine) {
  const hark_sequence *const sequence = sequence_of(engine);
  if (sequence == NULL) return HARK_OK;
  const int size = hark_group_size(sequence->group);
  if (is_packed(engine) || engine->network->blocks == NULL || engine->network->architecture->predicts_masked)
    return hark_fail(context, HARK_BAD_CONFIGURATION, "run.sequence_ranks is %d, and only windows of a text with next tokens are shared",
                     size);
  if (hark_sequence_rows(sequence, size - 1).count < 1 || hark_sequence_rows(sequence, 0).count < 1)
    return hark_fail(context, HARK_BAD_CONFIGURATION,
                     "run.sequence_ranks is %d, expected at most one for %d of the %lld tokens of a window", size, HARK_SEQUENCE_UNIT,
                     (long long)sequence->total);
  return HARK_OK;
}

/* Without `memory` tensors are only described: such an engine reports sizes and cannot run. */
static hark_status build(hark_context *context, hark_engine *engine, bool memory) {
  const int64_t one = 1;
  const hark_network_config network = hark_engine_network_config(engine->config, &engine->task);
  HARK_TRY(check_regression(context, engine));
  HARK_TRY(check_head(context, engine));
  HARK_TRY(hark_network_declare(context, &network, HARK_F32, &engine->network));
  if (has_classes(engine) != (engine->task.classes > 0) || (has_classes(engine) && !is_packed(engine)))
    return hark_fail(context, HARK_BAD_CONFIGURATION, "model.architecture %s %s, and the data have %s", engine->network->architecture->name,
                     has_classes(engine) ? "predicts classes" : "predicts tokens",
                     engine->task.classes > 0 ? "classes" : "tokens as targets");
  if (engine->network->blocks == NULL && !is_packed(engine))
    return hark_fail(context, HARK_BAD_CONFIGURATION, "model.architecture %s reads complete sequences, and the data are windows of a text",
                     engine->network->architecture->name);
  HARK_TRY(check_sequence(context, engine));
  HARK_TRY(freeze_parameters(context, engine));
  if (is_packed(engine)) HARK_TRY(build_packing(context, engine, memory));
  if (engine->matrices != HARK_NONE) HARK_TRY(hark_parameters_hold(context, &engine->network->parameters, engine->matrices));
  HARK_TRY((memory ? hark_parameters_finish : hark_parameters_lay_out)(context, &engine->network->parameters, engine->training));
  HARK_TRY(add_halves(context, engine, memory));
  const hark_pass_sizes sizes = pass_sizes(engine);
  HARK_TRY(hark_network_plans_create(context, engine->network, &sizes, false, &engine->evaluation_plans));
  if (engine->training) HARK_TRY(hark_network_plans_create(context, engine->network, &sizes, true, &engine->training_plans));
  const int64_t windows[] = {engine->config->train.batch, hark_engine_own_length(engine)};
  if (!is_packed(engine)) HARK_TRY(hark_tensor_make(context, memory, HARK_I32, 2, windows, &engine->inputs));
  HARK_TRY(make_types(context, engine, memory));
  HARK_TRY(make_targets(context, engine, memory));
  if (engine->training) {
    const hark_tensor *weights = &engine->network->parameters.weights;
    HARK_TRY(hark_gradient_sum_create(context, &engine->network->parameters.gradients,
                                      engine->config->train.accumulate * hark_group_size(engine->sequence.group), memory, &engine->sum));
    HARK_TRY(hark_moment_share_create(context, engine->config->train.shard_optimiser, weights->shape[0], memory, &engine->share));
    const int64_t moments = hark_moment_share_places(&engine->share);
    HARK_TRY(hark_tensor_make(context, memory, weights->type, 1, &moments, &engine->first_moment));
    HARK_TRY(hark_tensor_make(context, memory, weights->type, 1, &moments, &engine->second_moment));
    HARK_TRY(hark_tensor_make(context, memory, HARK_F64, 1, &one, &engine->square_sum));
    hark_inferred inferred = {0};
    HARK_TRY(hark_op_sum_squares.infer(context, NULL, &engine->network->parameters.gradients, 1, &inferred));
    const int64_t bytes = (int64_t)inferred.forward_workspace;
    HARK_TRY(hark_tensor_make(context, memory, HARK_U8, 1, &bytes, &engine->workspace));
  }
  if (memory && sequence_of(engine) != NULL) /* no exchange of rows needs memory */
    HARK_TRY(hark_group_reserve(context, engine->sequence.group, (int64_t)hark_group_size(engine->sequence.group) * EXCHANGED_PIECES));
  HARK_TRY(hark_tape_create(context, &engine->tape));
  HARK_TRY(measure_step(context, engine));
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
  if (training && context->sequence != NULL) engine->sequence = (hark_sequence){context->sequence, config->model.context};
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
                                       bytes_of(&engine->workspace) + packing_bytes(engine->packing)};
}

hark_status hark_engine_begin_step(hark_context *context, hark_engine *engine) {
  hark_gradient_sum_begin(&engine->sum);
  return hark_parameters_round(context, &engine->network->parameters);
}

/* Writes the own rows of windows to the front of engine->inputs or engine->targets. */
static hark_status write_windows(hark_context *context, const hark_engine *engine, const hark_tensor *to, const int32_t *tokens,
                                 int64_t rows, int64_t length) {
  const bool spread = sequence_of(engine) != NULL;
  const int64_t most = spread ? engine->sequence.total : to->shape[1], least = spread ? most : 1; /* a spread window is whole */
  const hark_share own = spread ? own_rows(engine) : (hark_share){0, length};
  if (rows < 1 || rows > to->shape[0] || length < least || length > most)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "engine: %lld rows of %lld tokens given, expected 1 to %lld of %lld to %lld",
                     (long long)rows, (long long)length, (long long)to->shape[0], (long long)least, (long long)most);
  if (!spread) return hark_backend_write(context, to->data, tokens, (size_t)(rows * length) * sizeof(int32_t));
  for (int64_t row = 0; row < rows; row++)
    HARK_TRY(hark_backend_write(context, (int32_t *)to->data + row * own.count, tokens + row * length + own.first,
                                (size_t)own.count * sizeof(int32_t)));
  return HARK_OK;
}

static hark_status read_loss(hark_context *context, const hark_engine *engine, hark_value value, double *loss) {
  float number = 0;
  HARK_TRY(hark_tensor_read(context, hark_tape_tensor(engine->tape, value), &number));
  *loss = number;
  return HARK_OK;
}

/* Reads the parts of the loss of the last training pass. */
static hark_status read_parts(hark_context *context, hark_engine *engine, double loss) {
  engine->parts = (hark_loss_parts){.objective = loss};
  for (int term = 0; term < HARK_LOSS_TERMS; term++) {
    engine->parts.has[term] = engine->terms[term] != 0;
    if (engine->terms[term] != 0) HARK_TRY(read_loss(context, engine, engine->terms[term], &engine->parts.terms[term]));
  }
  if (engine->terms[HARK_TERM_SMOOTHING] != 0) engine->parts.terms[HARK_TERM_SMOOTHING] -= loss;
  bool alone = true;
  for (int term = 0; term < HARK_LOSS_TERMS; term++) alone = alone && !engine->parts.has[term];
  return alone ? HARK_OK : read_loss(context, engine, engine->total, &engine->parts.objective);
}

hark_status hark_engine_micro_batch(hark_context *context, hark_engine *engine, const int32_t *inputs, const int32_t *targets, int64_t rows,
                                    uint64_t first_sample, uint32_t micro_step, double weight, double *loss) {
  hark_value value = 0;
  const int64_t length = engine->config->model.context;
  HARK_TRY(write_windows(context, engine, &engine->inputs, inputs, rows, length));
  HARK_TRY(write_windows(context, engine, &engine->targets, targets, rows, length));
  HARK_TRY(hark_gradient_sum_open(context, &engine->sum));
  HARK_TRY(training_pass(context, engine, rows, first_sample, micro_step, weight, &value));
  HARK_TRY(hark_gradient_sum_close(context, &engine->sum));
  HARK_TRY(read_loss(context, engine, value, loss));
  return read_parts(context, engine, *loss);
}

hark_status hark_engine_predict(hark_context *context, hark_engine *engine, const int32_t *inputs, int64_t rows, int64_t length) {
  HARK_TRY(write_windows(context, engine, &engine->inputs, inputs, rows, length));
  return prediction_pass(context, engine, rows, sequence_of(engine) != NULL ? hark_engine_own_length(engine) : length);
}

hark_status hark_engine_loss(hark_context *context, hark_engine *engine, const int32_t *targets, double *sum) {
  hark_value loss = 0;
  if (engine->logits == 0) return hark_fail(context, HARK_INVALID_ARGUMENT, "engine: a loss is requested, and nothing was predicted");
  const int64_t *shape = hark_tape_tensor(engine->tape, engine->logits)->shape;
  HARK_TRY(
      write_windows(context, engine, &engine->targets, targets, shape[0], sequence_of(engine) != NULL ? engine->sequence.total : shape[1]));
  HARK_TRY(loss_of_logits(engine, &loss));
  HARK_TRY(read_loss(context, engine, loss, sum));
  hark_tape_release(engine->tape, loss);
  return HARK_OK;
}

hark_status hark_engine_correct(hark_context *context, hark_engine *engine, const int32_t *targets, int32_t *likeliest, int64_t *correct) {
  hark_value predicted = 0;
  if (engine->logits == 0)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "engine: correct predictions are requested, and nothing was predicted");
  HARK_TRY(likeliest_of_logits(engine, &predicted));
  const hark_tensor *rows = hark_tape_tensor(engine->tape, predicted);
  HARK_TRY(hark_tensor_read(context, rows, likeliest));
  *correct = 0;
  for (int64_t i = 0; i < hark_tensor_count(rows); i++)
    *correct += likeliest[i] == targets[i]; /* no token has the number of ignored targets */
  hark_tape_release(engine->tape, predicted);
  return HARK_OK;
}

/* Writes the batch to where the pass reads it. */
static hark_status write_examples(hark_context *context, hark_engine *engine, const hark_example_batch *batch) {
  hark_engine_packing *packing = engine->packing;
  if (packing == NULL) return hark_fail(context, HARK_INVALID_ARGUMENT, "engine: examples given, expected windows of a text");
  HARK_TRY(hark_packed_batch_write(context, &packing->read, batch));
  if (has_vectors(engine)) {
    const size_t responses = (size_t)(batch->rows * engine->task.responses);
    return hark_backend_write(context, packing->responses.data, batch->responses, responses * sizeof *batch->responses);
  }
  const size_t targets = (size_t)(has_classes(engine) ? batch->rows : batch->tokens);
  return hark_backend_write(context, engine->targets.data, batch->targets, targets * sizeof *batch->targets);
}

static hark_status read_examples(hark_context *context, hark_engine *engine, const hark_example_batch *batch, hark_value loss,
                                 hark_value predicted, hark_pass_result *result) {
  int32_t *const likeliest = engine->packing->predicted;
  HARK_TRY(read_loss(context, engine, loss, &result->loss));
  if (predicted == 0) return HARK_OK; /* predictions of vectors are not classes */
  const hark_tensor *rows = hark_tape_tensor(engine->tape, predicted);
  HARK_TRY(hark_tensor_read(context, rows, likeliest));
  for (int64_t i = 0; i < hark_tensor_count(rows); i++)
    result->correct += likeliest[i] == batch->targets[i]; /* no token has the number of ignored targets */
  return HARK_OK;
}

hark_status hark_engine_train_examples(hark_context *context, hark_engine *engine, const hark_example_batch *batch, uint32_t micro_step,
                                       double weight, hark_pass_result *result) {
  hark_value loss = 0, predicted = 0;
  *result = (hark_pass_result){0};
  HARK_TRY(write_examples(context, engine, batch));
  HARK_TRY(hark_gradient_sum_open(context, &engine->sum));
  HARK_TRY(training_packed_pass(context, engine, batch, micro_step, weight, &loss, &predicted));
  HARK_TRY(hark_gradient_sum_close(context, &engine->sum));
  HARK_TRY(read_examples(context, engine, batch, loss, predicted, result));
  return read_parts(context, engine, result->loss);
}

hark_status hark_engine_evaluate_examples(hark_context *context, hark_engine *engine, const hark_example_batch *batch,
                                          hark_pass_result *result, const int32_t **predicted_rows) {
  hark_value loss = 0, predicted = 0;
  *result = (hark_pass_result){0};
  HARK_TRY(write_examples(context, engine, batch));
  HARK_TRY(evaluation_packed_pass(context, engine, batch, &loss, &predicted));
  *predicted_rows = engine->packing->predicted;
  if (engine->statistics != NULL)
    HARK_TRY(hark_ahca_statistics_add(context, engine->tape, &engine->trace, batch->tokens, engine->statistics));
  return read_examples(context, engine, batch, loss, predicted, result);
}

/* The norm of a flat buffer, at most of the size of the weights. */
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

#define FLAT_STATES 3 /* weights and both moments */

/* *first: the first part of the state with a number that is not finite; FLAT_STATES: there is none. */
static hark_status find_not_finite(hark_context *context, hark_engine *engine, int32_t *first) {
  const hark_tensor *const flat[FLAT_STATES] = {&engine->network->parameters.weights, &engine->first_moment, &engine->second_moment};
  double norm = 0; /* in f64: the squares of finite numbers in f32 do not overflow */
  for (*first = 0; *first < FLAT_STATES; ++*first) {
    HARK_TRY(norm_of(context, engine, flat[*first], &norm));
    if (!isfinite(norm)) break;
  }
  return HARK_OK;
}

hark_status hark_engine_check_finite(hark_context *context, hark_engine *engine) {
  static const char *const names[FLAT_STATES] = {"weights", "first moments", "second moments"};
  int32_t first = FLAT_STATES, all[HARK_GROUP_MOST];
  hark_status status = find_not_finite(context, engine, &first);
  const int size = engine->share.divided ? hark_group_size(context->group) : 1;
  if (size > 1) status = hark_group_meet(context, context->group, status, &first, sizeof first, all);
  HARK_TRY(status);
  for (int rank = 0; rank < size && size > 1; rank++) first = all[rank] < first ? all[rank] : first;
  return first == FLAT_STATES ? HARK_OK : hark_fail(context, HARK_NOT_FINITE, "the %s have numbers that are not finite", names[first]);
}

/* Updates the weights whose moments this process has; `all` has the numbers of the step that do not depend on the weights. */
static hark_status update_weights(hark_context *context, hark_engine *engine, const hark_adamw_attributes *all) {
  const hark_config *config = engine->config;
  const hark_parameters *parameters = &engine->network->parameters;
  const double rate_factors[HARK_RATE_KINDS] = {
      [HARK_RATE_PLAIN] = 1, [HARK_RATE_POSITIONAL] = config->train.positional_rate, [HARK_RATE_ROTARY] = config->train.rotary_rate};
  hark_adamw_attributes attributes = *all;
  for (int i = 0; i < parameters->group_count; i++) {
    const hark_parameter_group group = hark_moment_share_part(&engine->share, &parameters->groups[i]);
    hark_parameter_group moments = group;
    if (group.rate == HARK_RATE_FROZEN || group.count == 0) continue;
    moments.first -= engine->share.range.first;
    attributes.decay = group.decays ? config->train.weight_decay : 0.0;
    attributes.rate = all->rate * rate_factors[group.rate];
    const hark_call call = {
        .op = &hark_op_adamw,
        .attributes = &attributes,
        .input_count = 4,
        .inputs = {hark_parameters_part(&parameters->weights, &group), hark_parameters_part(&parameters->gradients, &group),
                   hark_parameters_part(&engine->first_moment, &moments), hark_parameters_part(&engine->second_moment, &moments)}};
    HARK_TRY(hark_operator_forward(context, &call));
  }
  return HARK_OK;
}

/* The weights after the update at all processes. One that cannot update its range does not leave the others waiting for it. */
static hark_status share_weights(hark_context *context, hark_engine *engine, hark_status updated) {
  if (!engine->share.divided) return updated;
  HARK_TRY(hark_group_agree(context, context->group, updated));
  return hark_moment_share_gather(context, &engine->share, &engine->network->parameters.weights);
}

hark_status hark_engine_finish_step(hark_context *context, hark_engine *engine, int64_t step, double rate, double loss,
                                    hark_step_result *result) {
  *result = (hark_step_result){0};
  const hark_config *config = engine->config;
  const hark_parameters *parameters = &engine->network->parameters;
  HARK_TRY(hark_gradient_sum_finish(context, &engine->sum));
  for (int i = 0; i < parameters->group_count; i++) { /* gradients of frozen weights are not part of the norm that is clipped */
    if (parameters->groups[i].rate != HARK_RATE_FROZEN) continue;
    hark_tensor gradients = hark_parameters_part(&parameters->gradients, &parameters->groups[i]);
    HARK_TRY(hark_tensor_zero(context, &gradients));
  }
  HARK_TRY(norm_of(context, engine, &parameters->gradients, &result->gradient_norm));
  if (!isfinite(loss) || !isfinite(result->gradient_norm)) return HARK_OK;
  const double clip = config->train.clip;
  const hark_adamw_attributes attributes = {.rate = rate,
                                            .beta1 = config->train.beta1,
                                            .beta2 = config->train.beta2,
                                            .epsilon = config->train.epsilon,
                                            .gradient_scale = clip > 0 && result->gradient_norm > clip ? clip / result->gradient_norm : 1.0,
                                            .step = step};
  HARK_TRY(share_weights(context, engine, update_weights(context, engine, &attributes)));
  HARK_TRY(hark_parameters_project(context, parameters, false));
  result->applied = true;
  return HARK_OK;
}

double hark_engine_operations(const hark_engine *engine) { return hark_tape_operations(engine->tape) - engine->extra_operations; }
