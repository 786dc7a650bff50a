/* engine.c - see engine.h. */
#include "train/engine_parts.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "backend/backend.h"
#include "train/update.h"

/* The tokens of a window that this process has. */
static hark_share own_rows(const hark_engine *engine) {
  return hark_engine_sequence(engine) != NULL ? hark_sequence_own_rows(&engine->sequence) : (hark_share){0, engine->config->model.context};
}

int64_t hark_engine_own_length(const hark_engine *engine) { return own_rows(engine).count; }

hark_status hark_engine_end_work(hark_context *context, const hark_engine *engine, hark_status status) {
  if (status != HARK_OK && hark_engine_sequence(engine) != NULL) hark_group_give_up(context, engine->sequence.group, status);
  return status;
}

const char *hark_loss_term_name(hark_loss_term term) {
  static const char *const names[HARK_LOSS_TERMS] = {[HARK_TERM_SMOOTHING] = "train/smoothing_loss",
                                                     [HARK_TERM_Z] = "train/z_loss",
                                                     [HARK_TERM_RATIO] = "train/ratio_loss",
                                                     [HARK_TERM_PONDER] = "train/ponder_loss"};
  return names[term];
}

/* A loss that is reported only: nothing is recorded for the backward. */
static hark_status unrecorded_loss(hark_engine *engine, hark_value logits, hark_value targets, hark_target_loss how, hark_value *loss) {
  const double before = hark_tape_operations(engine->tape);
  hark_tape_set_recording(engine->tape, false);
  HARK_TRY(hark_network_loss(engine->tape, logits, targets, how, loss));
  hark_tape_set_recording(engine->tape, true);
  engine->extra_operations += hark_tape_operations(engine->tape) - before;
  return HARK_OK;
}

/* The loss whose gradient is taken, in engine->total; *loss is the loss without label smoothing and z-loss. */
static hark_status loss_of_targets(hark_engine *engine, hark_value logits, hark_value targets, double weight, bool training,
                                   hark_value *loss) {
  const hark_config *config = engine->config;
  const hark_target_loss plain = {.weight = weight},
                         how = {weight, training ? config->train.label_smoothing : 0, training ? config->train.z_loss : 0};
  HARK_TRY(hark_network_loss(engine->tape, logits, targets, how, &engine->total));
  *loss = engine->total;
  if (how.smoothing == 0 && how.z == 0) return HARK_OK;
  if (how.smoothing != 0) engine->terms[HARK_TERM_SMOOTHING] = engine->total;
  if (how.z != 0) engine->terms[HARK_TERM_Z] = engine->total;
  if (how.smoothing != 0 && how.z != 0)
    HARK_TRY(unrecorded_loss(engine, logits, targets, (hark_target_loss){weight, how.smoothing, 0}, &engine->terms[HARK_TERM_SMOOTHING]));
  return unrecorded_loss(engine, logits, targets, plain, loss);
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
  const int64_t *const of_targets = engine->rows.count > 0 ? &engine->rows.count : shape;
  const hark_tensor windows[] = {hark_tensor_front(&engine->inputs, 2, shape),
                                 hark_tensor_front(&engine->targets, engine->rows.count > 0 ? 1 : 2, of_targets)};
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
  hark_value tokens = 0, targets = 0, logits = 0, penalties[HARK_PENALTIES] = {0};
  hark_tensor types;
  const int64_t length = hark_engine_own_length(engine);
  const hark_forward forward = {.tape = engine->tape,
                                .types = types_of(engine, rows, length, &types),
                                .parameters = &engine->network->parameters,
                                .slice_row = own_rows(engine).first,
                                .rows = engine->sequence.total,
                                .sequence = hark_engine_sequence(engine),
                                .training = true,
                                .seed = (uint64_t)engine->config->train.seed,
                                .first_sample = first_sample,
                                .micro_step = micro_step,
                                .logit_rows = hark_engine_rows_now(&engine->rows),
                                .plans = engine->training_plans,
                                .ratio_loss = &penalties[HARK_PENALTY_RATIO],
                                .sequence_weight = 1 / (double)(engine->config->train.batch * engine->config->train.accumulate),
                                .report = &engine->report};
  HARK_TRY(begin_pass(engine, rows, length, true, &tokens, &targets));
  if (engine->config->train.label_smoothing == 0 && engine->config->train.z_loss == 0) {
    HARK_TRY(hark_stack_loss(context, engine->network, &forward, tokens, targets, (hark_target_loss){.weight = weight}, loss));
    engine->total = *loss;
    HARK_TRY(add_penalty(engine, penalties[HARK_PENALTY_RATIO], penalties));
    return hark_tape_backward(engine->tape, engine->total, 1.0);
  }
  HARK_TRY(hark_stack_logits(context, engine->network, &forward, tokens, false, &logits));
  HARK_TRY(loss_of_targets(engine, logits, targets, weight, true, loss));
  hark_tape_release(engine->tape, logits);
  HARK_TRY(add_penalty(engine, penalties[HARK_PENALTY_RATIO], penalties));
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
                                .sequence = hark_engine_sequence(engine),
                                .logit_rows = hark_engine_rows_now(&engine->rows),
                                .plans = engine->evaluation_plans,
                                .report = &engine->report};
  HARK_TRY(begin_pass(engine, rows, length, false, &tokens, &engine->targets_read));
  return hark_stack_logits(context, engine->network, &forward, tokens, false, &engine->logits);
}

static hark_status likeliest_of_logits(hark_engine *engine, hark_value *predicted) {
  return hark_tape_apply(engine->tape, &hark_op_argmax, NULL, 1, &engine->logits, 0, predicted);
}

static hark_status loss_of_logits(hark_engine *engine, hark_value *loss) {
  return hark_network_loss(engine->tape, engine->logits, engine->targets_read, (hark_target_loss){.weight = 1}, loss);
}

/* The end of the use of logits in a pass. */
static void end_outputs(hark_engine *engine, hark_value logits) {
  if (engine->keeps_outputs)
    engine->logits = logits;
  else
    hark_tape_release(engine->tape, logits);
}

/* Loss of numbers in tables. */
static hark_status loss_of_tables(hark_engine *engine, hark_value predicted, double weight, hark_value *loss) {
  const bool squared = engine->network->config.regressor.loss == HARK_REGRESSOR_LOSS_SQUARED;
  HARK_TRY(hark_network_gaussian_loss(engine->tape, predicted, engine->packing->read.asked, weight, squared, loss));
  engine->total = *loss;
  return HARK_OK;
}

/* Loss of classes of a table's queries. */
static hark_status loss_of_classes(hark_engine *engine, const hark_example_batch *batch, hark_value logits, double weight, bool training,
                                   hark_value *loss) {
  const int64_t queries = batch->tokens - batch->context_rows;
  const hark_tensor targets = hark_tensor_front(&engine->targets, 1, &queries);
  hark_value target = 0;
  HARK_TRY(hark_tape_leaf(engine->tape, &targets, NULL, &target));
  return loss_of_targets(engine, logits, target, weight, training, loss);
}

/* Records a pass over batch->rows examples of batch->tokens tokens in total, at most batch->longest per sequence: the logits, the most
 * likely number of each of their rows, and the loss. The input of the pass is in the engine's memory. */
static hark_status packed_pass(hark_context *context, hark_engine *engine, const hark_example_batch *batch, hark_forward *forward,
                               double weight, hark_value *loss, hark_value *predicted) {
  hark_engine_packing *packing = engine->packing;
  const bool classes = hark_engine_has_classes(engine);
  const int64_t one_row[] = {1, batch->tokens}, responses[] = {batch->rows, engine->task.responses};
  forward->tape = engine->tape;
  forward->parameters = &engine->network->parameters;
  forward->logit_rows = hark_engine_rows_now(&engine->rows);
  hark_value logits = 0, target = 0, penalty = 0, penalties[HARK_PENALTIES] = {0};
  const double sequences = (double)(engine->config->train.batch * engine->config->train.accumulate);
  hark_network_input input = {.weight = classes || hark_engine_has_vectors(engine) ? weight : 1 / sequences};
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
  if (engine->task.tables) {
    HARK_TRY(engine->network->architecture->logits(context, engine->network, forward, &input, predicted));
    return engine->task.classified ? loss_of_classes(engine, batch, *predicted, weight, forward->training, loss)
                                   : loss_of_tables(engine, *predicted, weight, loss);
  }
  if (hark_engine_has_vectors(engine)) {
    const hark_tensor numbers = hark_tensor_front(&packing->responses, 2, responses);
    HARK_TRY(hark_tape_leaf(engine->tape, &numbers, NULL, &target));
    HARK_TRY(engine->network->architecture->logits(context, engine->network, forward, &input, &logits));
    HARK_TRY(hark_network_squared_error(engine->tape, logits, target, weight, loss));
    end_outputs(engine, logits);
    engine->total = *loss;
    return add_penalty(engine, penalty, penalties);
  }
  const bool some = engine->rows.count > 0;
  const hark_tensor targets = hark_tensor_front(&engine->targets, classes || some ? 1 : 2,
                                                some      ? &engine->rows.count
                                                : classes ? &batch->rows
                                                          : one_row);
  HARK_TRY(hark_tape_leaf(engine->tape, &targets, NULL, &target));
  if (forward->training) forward->ratio_loss = &engine->terms[HARK_TERM_RATIO]; /* of a decoder; it and *forward outlive the backward */
  forward->sequence_weight = input.weight;
  HARK_TRY(engine->network->architecture->logits(context, engine->network, forward, &input, &logits));
  if (engine->terms[HARK_TERM_RATIO] != 0) penalty = penalties[HARK_PENALTY_RATIO] = engine->terms[HARK_TERM_RATIO];
  HARK_TRY(hark_tape_apply(engine->tape, &hark_op_argmax, NULL, 1, &logits, 0, predicted));
  HARK_TRY(loss_of_targets(engine, logits, target, weight, forward->training, loss));
  end_outputs(engine, logits);
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

/* Measures a step of the most examples with `tokens` tokens. */
static hark_status measure_packed(hark_context *context, hark_engine *engine, int64_t tokens) {
  hark_example_batch most = {
      .rows = engine->packing->read.most.examples, .tokens = tokens, .longest = hark_min(tokens, engine->network->config.context)};
  if (engine->task.tables) most.context_rows = tokens / 2; /* each part may be a whole table */
  hark_value loss = 0, predicted = 0;
  HARK_TRY(evaluation_packed_pass(context, engine, &most, &loss, &predicted));
  return engine->training ? training_packed_pass(context, engine, &most, 0, 1, &loss, &predicted) : HARK_OK;
}

/* The same of windows. */
static hark_status measure_rectangular(hark_context *context, hark_engine *engine, int64_t tokens) {
  const int64_t length = hark_engine_own_length(engine), rows = hark_max(1, tokens / length);
  hark_value loss = 0, predicted = 0;
  HARK_TRY(prediction_pass(context, engine, rows, length));
  if (engine->network->architecture->predicts_masked) HARK_TRY(likeliest_of_logits(engine, &predicted));
  HARK_TRY(loss_of_logits(engine, &loss));
  return engine->training ? training_pass(context, engine, rows, 0, 0, 1, &loss) : HARK_OK;
}

/* Measures a step of `tokens` tokens, `with_logits` of which have logits; 0: all. */
static hark_status measure_tokens(hark_context *context, hark_engine *engine, int64_t tokens, int64_t with_logits) {
  hark_engine_rows_assume(&engine->rows, with_logits);
  HARK_TRY((hark_engine_is_packed(engine) ? measure_packed : measure_rectangular)(context, engine, tokens));
  engine->largest_operations = fmax(engine->largest_operations, hark_engine_operations(engine));
  return HARK_OK;
}

/* All tokens, of which as many have targets as may have them; and as many tokens as all have logits then. */
static hark_status measure(hark_context *context, hark_engine *engine) {
  const int64_t windows = engine->config->train.batch * hark_engine_own_length(engine);
  const int64_t tokens = hark_engine_is_packed(engine) ? engine->packing->read.most.tokens : windows;
  const int64_t some = hark_min(engine->most_targets, hark_engine_rows_most(tokens));
  if (engine->rows.index.type != HARK_NONE) HARK_TRY(measure_tokens(context, engine, tokens, some));
  return measure_tokens(context, engine, hark_min(tokens, hark_engine_rows_all(engine->most_targets)), 0);
}

hark_status hark_engine_measure_step(hark_context *context, hark_engine *engine) {
  hark_tape_set_shape_only(engine->tape, true);
  const hark_status status = measure(context, engine);
  engine->logits = 0;
  hark_tape_set_shape_only(engine->tape, false);
  return status;
}

hark_status hark_engine_begin_step(hark_context *context, hark_engine *engine) {
  hark_gradient_sum_begin(&engine->sum);
  return hark_parameters_round(context, &engine->network->parameters);
}

/* Writes the own rows of windows to the front of engine->inputs or engine->targets. */
static hark_status write_windows(hark_context *context, const hark_engine *engine, const hark_tensor *to, const int32_t *tokens,
                                 int64_t rows, int64_t length) {
  const bool spread = hark_engine_sequence(engine) != NULL;
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

/* Writes the targets of the rows with logits to the front of engine->targets. */
static hark_status write_targets(hark_context *context, const hark_engine *engine, const int32_t *targets, int64_t rows, int64_t length) {
  const int32_t *those = NULL;
  if (engine->rows.count == 0) return write_windows(context, engine, &engine->targets, targets, rows, length);
  HARK_TRY(hark_engine_rows_targets(context, &engine->rows, targets, rows * length, &those));
  return hark_backend_write(context, engine->targets.data, those, (size_t)engine->rows.count * sizeof *those);
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
  double *const terms = engine->parts.terms;
  if (engine->terms[HARK_TERM_Z] != 0) terms[HARK_TERM_Z] -= engine->terms[HARK_TERM_SMOOTHING] != 0 ? terms[HARK_TERM_SMOOTHING] : loss;
  if (engine->terms[HARK_TERM_SMOOTHING] != 0) terms[HARK_TERM_SMOOTHING] -= loss;
  bool alone = true;
  for (int term = 0; term < HARK_LOSS_TERMS; term++) alone = alone && !engine->parts.has[term];
  return alone ? HARK_OK : read_loss(context, engine, engine->total, &engine->parts.objective);
}

hark_status hark_engine_micro_batch(hark_context *context, hark_engine *engine, const int32_t *inputs, const int32_t *targets, int64_t rows,
                                    uint64_t first_sample, uint32_t micro_step, double weight, double *loss) {
  hark_value value = 0;
  const int64_t length = engine->config->model.context;
  HARK_TRY(write_windows(context, engine, &engine->inputs, inputs, rows, length));
  HARK_TRY(hark_engine_rows_find(context, &engine->rows, targets, rows * length));
  HARK_TRY(write_targets(context, engine, targets, rows, length));
  HARK_TRY(hark_gradient_sum_open(context, &engine->sum));
  HARK_TRY(training_pass(context, engine, rows, first_sample, micro_step, weight, &value));
  HARK_TRY(hark_gradient_sum_close(context, &engine->sum));
  HARK_TRY(read_loss(context, engine, value, loss));
  return read_parts(context, engine, *loss);
}

hark_status hark_engine_predict(hark_context *context, hark_engine *engine, const int32_t *inputs, const int32_t *targets, int64_t rows,
                                int64_t length) {
  HARK_TRY(write_windows(context, engine, &engine->inputs, inputs, rows, length));
  HARK_TRY(hark_engine_rows_find(context, &engine->rows, targets, rows * length));
  engine->windows = rows;
  engine->length = length;
  return prediction_pass(context, engine, rows, hark_engine_sequence(engine) != NULL ? hark_engine_own_length(engine) : length);
}

hark_status hark_engine_loss(hark_context *context, hark_engine *engine, const int32_t *targets, double *sum) {
  hark_value loss = 0;
  if (engine->logits == 0) return hark_fail(context, HARK_INVALID_ARGUMENT, "engine: a loss is requested, and nothing was predicted");
  HARK_TRY(write_targets(context, engine, targets, engine->windows, engine->length));
  HARK_TRY(loss_of_logits(engine, &loss));
  HARK_TRY(read_loss(context, engine, loss, sum));
  hark_tape_release(engine->tape, loss);
  return HARK_OK;
}

static int64_t count_correct(const int32_t *likeliest, const int32_t *targets, int64_t count) {
  int64_t correct = 0;
  for (int64_t i = 0; i < count; i++) correct += targets[i] >= 0 && likeliest[i] == targets[i]; /* ignored ones are below 0 */
  return correct;
}

hark_status hark_engine_correct(hark_context *context, hark_engine *engine, const int32_t *targets, int32_t *likeliest, int64_t *correct) {
  hark_value predicted = 0;
  if (engine->logits == 0)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "engine: correct predictions are requested, and nothing was predicted");
  HARK_TRY(likeliest_of_logits(engine, &predicted));
  HARK_TRY(hark_tensor_read(context, hark_tape_tensor(engine->tape, predicted), likeliest));
  hark_engine_rows_spread(&engine->rows, engine->windows * engine->length, likeliest);
  *correct = count_correct(likeliest, targets, engine->windows * engine->length);
  hark_tape_release(engine->tape, predicted);
  return HARK_OK;
}

/* Writes the batch to where the pass reads it. */
static hark_status write_examples(hark_context *context, hark_engine *engine, const hark_example_batch *batch) {
  hark_engine_packing *packing = engine->packing;
  if (packing == NULL) return hark_fail(context, HARK_INVALID_ARGUMENT, "engine: examples given, expected windows of a text");
  HARK_TRY(hark_packed_batch_write(context, &packing->read, batch));
  if (engine->task.classified)
    return hark_backend_write(context, engine->targets.data, batch->targets + batch->context_rows,
                              (size_t)(batch->tokens - batch->context_rows) * sizeof *batch->targets);
  if (engine->task.tables) return HARK_OK;
  if (hark_engine_has_vectors(engine)) {
    const size_t responses = (size_t)(batch->rows * engine->task.responses);
    return hark_backend_write(context, packing->responses.data, batch->responses, responses * sizeof *batch->responses);
  }
  const bool classes = hark_engine_has_classes(engine);
  const int32_t *targets = batch->targets;
  HARK_TRY(hark_engine_rows_find(context, &engine->rows, engine->all_rows ? NULL : targets, batch->tokens));
  HARK_TRY(hark_engine_rows_targets(context, &engine->rows, targets, batch->tokens, &targets));
  const int64_t count = engine->rows.count > 0 ? engine->rows.count : classes ? batch->rows : batch->tokens;
  return hark_backend_write(context, engine->targets.data, targets, (size_t)count * sizeof *targets);
}

/* Sums over the predictions of tables, in the units of their targets; the loss is theirs too. */
static hark_status read_tables(hark_context *context, hark_engine *engine, const hark_example_batch *batch, double weight,
                               hark_value predicted, hark_pass_result *result) {
  const int64_t responses = engine->task.responses;
  float *const numbers = engine->packing->numbers;
  HARK_TRY(hark_tensor_read(context, hark_tape_tensor(engine->tape, predicted), numbers));
  for (int64_t table = 0; table < batch->rows; table++)
    for (int64_t row = batch->ranges[4 * table + 2]; row < batch->ranges[4 * table + 3]; row++)
      for (int64_t r = 0; r < responses; r++) {
        const float *const prediction = numbers + 2 * (row - batch->context_rows) * responses + r;
        hark_table_sums_add(&batch->scales[table * responses + r], batch->responses[row * responses + r], prediction[0],
                            prediction[responses], &result->tables);
      }
  const bool squared = engine->network->config.regressor.loss == HARK_REGRESSOR_LOSS_SQUARED;
  result->loss = weight * (squared ? result->tables.squared_error : result->tables.loss);
  return HARK_OK;
}

/* The same of tables whose targets are classes. */
static hark_status read_classes(hark_context *context, hark_engine *engine, const hark_example_batch *batch, double weight,
                                hark_value predicted, hark_pass_result *result) {
  const int64_t classes = engine->task.responses;
  float *const logits = engine->packing->numbers;
  HARK_TRY(hark_tensor_read(context, hark_tape_tensor(engine->tape, predicted), logits));
  for (int64_t row = batch->context_rows; row < batch->tokens; row++)
    hark_class_sums_add(logits + (row - batch->context_rows) * classes, classes, batch->targets[row], &result->tables);
  result->correct = (int64_t)result->tables.covered;
  result->loss = weight * result->tables.loss;
  return HARK_OK;
}

static hark_status read_examples(hark_context *context, hark_engine *engine, const hark_example_batch *batch, double weight,
                                 hark_value loss, hark_value predicted, hark_pass_result *result) {
  int32_t *const likeliest = engine->packing->predicted;
  HARK_TRY(read_loss(context, engine, loss, &result->loss));
  if (engine->task.classified) return read_classes(context, engine, batch, weight, predicted, result);
  if (engine->task.tables) return read_tables(context, engine, batch, weight, predicted, result);
  if (predicted == 0) return HARK_OK; /* predictions of vectors are not classes */
  HARK_TRY(hark_tensor_read(context, hark_tape_tensor(engine->tape, predicted), likeliest));
  hark_engine_rows_spread(&engine->rows, batch->tokens, likeliest);
  result->correct = count_correct(likeliest, batch->targets, hark_engine_has_classes(engine) ? batch->rows : batch->tokens);
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
  HARK_TRY(read_examples(context, engine, batch, weight, loss, predicted, result));
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
  return read_examples(context, engine, batch, 1, loss, predicted, result);
}

hark_status hark_engine_outputs(hark_context *context, const hark_engine *engine, int64_t first, int64_t count, float *out) {
  if (!engine->keeps_outputs || engine->logits == 0)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "engine: outputs are requested, and none are kept");
  const hark_tensor *const logits = hark_tape_tensor(engine->tape, engine->logits);
  const int64_t width = logits->shape[logits->rank - 1], rows = hark_tensor_count(logits) / width;
  if (first < 0 || count < 1 || count > rows || first > rows - count)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "engine: rows %" PRId64 " to %" PRId64 " of the outputs requested, there are %" PRId64,
                     first, first + count, rows);
  return hark_backend_read(context, out, (const float *)logits->data + first * width, (size_t)(count * width) * sizeof *out);
}

/* The norm of a flat buffer. */
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
    if (flat[*first]->type == HARK_NONE) continue;
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
  const hark_update update = {
      .rate = rate, .gradient_scale = clip > 0 && result->gradient_norm > clip ? clip / result->gradient_norm : 1.0, .step = step};
  HARK_TRY(share_weights(context, engine, hark_update_weights(context, engine, &update)));
  HARK_TRY(hark_parameters_project(context, parameters, false));
  result->applied = true;
  return HARK_OK;
}

double hark_engine_operations(const hark_engine *engine) { return hark_tape_operations(engine->tape) - engine->extra_operations; }
