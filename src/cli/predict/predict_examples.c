/* predict_examples.c - see predict_examples.h. Examples are read in batches of train.batch, as hark eval reads them, so that both have the
 * same predictions. Rows, for logits l of n classes or tokens:
 *
 *   classes   example, predicted, [target,] probability_CLASS ...   p_c = exp(l_c - max l) / sum_k exp(l_k - max l)
 *   numbers   example, predicted_1 ..., target_1 ...
 *   tokens    example, position, token, predicted, probability, target
 */
#include "cli/predict/predict_examples.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "cli/predict/predict_output.h"
#include "cli/progress.h"
#include "cli/run_examples.h"
#include "core/print_number.h"

#define NAME_BYTES 256                             /* of a token */
#define ROW_BYTES (sizeof(double) + sizeof(float)) /* of a number of a row */

typedef enum prediction_kind { PREDICTS_CLASSES, PREDICTS_NUMBERS, PREDICTS_TOKENS } prediction_kind;

typedef struct prediction {
  hark_invocation *call;
  const hark_config *config;
  const hark_opened_run *opened;
  const hark_predict_settings *settings;
  hark_run_examples own;
  hark_engine *engine;
  prediction_kind kind;
  int64_t count, width;  /* examples; numbers of a row of outputs */
  double *probabilities; /* [width] */
  float *row;            /* [width] */
  hark_predict_output output;
  hark_progress progress;
} prediction;

const char *hark_predict_examples_refusal(const hark_config *config) {
  if (hark_config_reconstructs(config)) return "predicts the tokens that it reads, and no targets: hark eval measures it";
  if (hark_architecture_of(config->model.architecture)->predicts_masked)
    return "predicts masked tokens, and no targets: hark eval measures it, hark embed prints embeddings, and hark train --architecture "
           "encoder --init-from trains a classifier from its weights";
  if (hark_config_has_examples(config)) return NULL;
  if (config->model.architecture == HARK_ARCHITECTURE_DECODER)
    return "was trained on a text, which has no targets but its next tokens: hark generate continues a text, hark eval measures it";
  return "was trained on a text without targets: hark eval measures it";
}

/* ---- rows ---- */

static const char *token_name(const prediction *p, int32_t token, char name[NAME_BYTES]) {
  return token < 0 ? NULL : hark_examples_token_name(p->own.examples, token, name, NAME_BYTES);
}

static hark_status read_row(prediction *p, int64_t row, int64_t example) {
  HARK_TRY(hark_engine_outputs(p->call->context, p->engine, row, 1, p->row));
  for (int64_t i = 0; i < p->width; i++)
    if (!isfinite(p->row[i]))
      return hark_fail(p->call->context, HARK_NOT_FINITE, "%s, %s: the predictions for example %" PRId64 " are not finite",
                       p->opened->run.path, p->opened->checkpoint, example);
  return HARK_OK;
}

/* p->probabilities of the row's logits. */
static void find_probabilities(prediction *p) {
  double largest = p->row[0], sum = 0;
  for (int64_t i = 1; i < p->width; i++) largest = fmax(largest, p->row[i]);
  for (int64_t i = 0; i < p->width; i++) sum += p->probabilities[i] = exp(p->row[i] - largest);
  for (int64_t i = 0; i < p->width; i++) p->probabilities[i] /= sum;
}

static void write_classes(prediction *p, int32_t predicted, int32_t target) {
  find_probabilities(p);
  hark_predict_output_text(&p->output, hark_examples_class_name(p->own.examples, predicted));
  if (!p->settings->unlabelled) hark_predict_output_text(&p->output, hark_examples_class_name(p->own.examples, target));
  for (int64_t i = 0; i < p->width; i++) hark_predict_output_number(&p->output, p->probabilities[i], false);
}

static void write_numbers(prediction *p, const float *targets) {
  for (int64_t i = 0; i < p->width; i++) hark_predict_output_number(&p->output, p->row[i], true);
  for (int64_t i = 0; i < p->width; i++) hark_predict_output_number(&p->output, targets[i], true);
}

/* Row `row` of the outputs, of example `index` of the batch. */
static hark_status add_example(prediction *p, int64_t first, int64_t index, const int32_t *predicted) {
  const hark_example_batch *const batch = &p->own.room.batch;
  const int64_t example = hark_example_batches_index(&p->own.batches, first + index) + 1;
  HARK_TRY(read_row(p, index, example));
  hark_predict_output_whole(&p->output, example);
  if (p->kind == PREDICTS_CLASSES)
    write_classes(p, predicted[index], batch->targets[index]);
  else
    write_numbers(p, batch->responses + index * p->width);
  return hark_predict_output_end_row(&p->output);
}

/* The token at `at` of the batch; `begin` is that of its sequence. */
static hark_status add_token(prediction *p, int64_t example, int64_t begin, int64_t at, int64_t row, int32_t predicted) {
  const hark_example_batch *const batch = &p->own.room.batch;
  char name[NAME_BYTES];
  HARK_TRY(read_row(p, row, example));
  find_probabilities(p);
  hark_predict_output_whole(&p->output, example);
  hark_predict_output_whole(&p->output, at - begin);
  hark_predict_output_text(&p->output, token_name(p, batch->inputs[at], name));
  hark_predict_output_text(&p->output, token_name(p, predicted, name));
  hark_predict_output_number(&p->output, p->probabilities[predicted], false);
  hark_predict_output_text(&p->output, token_name(p, batch->targets[at], name));
  return hark_predict_output_end_row(&p->output);
}

/* Tokens have a row of outputs if their predicted number is not -1. */
static hark_status add_tokens(prediction *p, int64_t first, const int32_t *predicted) {
  const hark_example_batch *const batch = &p->own.room.batch;
  int64_t row = 0;
  for (int64_t i = 0; i < batch->rows; i++) {
    const int64_t example = hark_example_batches_index(&p->own.batches, first + i) + 1, begin = batch->ranges[2 * i];
    for (int64_t at = begin; at < batch->ranges[2 * i + 1]; at++) {
      if (predicted[at] < 0) continue;
      if (p->settings->all_tokens || batch->targets[at] != HARK_TARGET_IGNORED)
        HARK_TRY(add_token(p, example, begin, at, row, predicted[at]));
      row++;
    }
  }
  return HARK_OK;
}

static hark_status predict_batch(prediction *p, int64_t first) {
  hark_example_batch *const batch = &p->own.room.batch;
  const int32_t *predicted = NULL;
  hark_pass_result pass;
  HARK_TRY(hark_example_batches_read(p->call->context, &p->own.batches, first, hark_min(p->config->train.batch, p->count - first), batch));
  if (p->kind == PREDICTS_TOKENS && batch->real == 0 && !p->settings->all_tokens) return HARK_OK;
  HARK_TRY(hark_engine_evaluate_examples(p->call->context, p->engine, batch, &pass, &predicted));
  if (p->kind == PREDICTS_TOKENS) return add_tokens(p, first, predicted);
  for (int64_t i = 0; i < batch->rows; i++) HARK_TRY(add_example(p, first, i, predicted));
  return HARK_OK;
}

/* ---- opening ---- */

static hark_status open_engine(prediction *p) {
  hark_learning_task task;
  HARK_TRY(hark_material_task_of(p->call->context, p->config, p->own.examples, &task));
  if (p->settings->all_tokens && task.classes == 0) task.targets = 0; /* so that there is memory for logits of all tokens */
  HARK_TRY(hark_command_create_engine(p->call, p->opened, p->config, &task, &p->engine));
  const hark_network_config *const network = &p->engine->network->config;
  p->kind = task.features > 0 ? PREDICTS_NUMBERS : task.classes > 0 ? PREDICTS_CLASSES : PREDICTS_TOKENS;
  p->width = p->kind == PREDICTS_NUMBERS ? task.responses : p->kind == PREDICTS_CLASSES ? task.classes : network->vocabulary;
  p->engine->keeps_outputs = true;
  p->engine->all_rows = p->settings->all_tokens;
  return hark_checkpoint_load(p->call->context, &p->opened->run, p->opened->checkpoint, p->engine, NULL);
}

static void add_columns(prediction *p) {
  static const char *const of_tokens[] = {"position", "token", "predicted", "probability", "target"};
  hark_predict_output *const output = &p->output;
  char number[HARK_NUMBER_BYTES];
  hark_predict_output_column(output, "", "example");
  if (p->kind == PREDICTS_TOKENS)
    for (size_t i = 0; i < sizeof of_tokens / sizeof *of_tokens; i++) hark_predict_output_column(output, "", of_tokens[i]);
  if (p->kind == PREDICTS_CLASSES) hark_predict_output_column(output, "", "predicted");
  if (p->kind == PREDICTS_CLASSES && !p->settings->unlabelled) hark_predict_output_column(output, "", "target");
  for (int64_t i = 0; i < p->width && p->kind == PREDICTS_CLASSES; i++)
    hark_predict_output_column(output, "probability_", hark_examples_class_name(p->own.examples, (int32_t)i));
  for (int64_t i = 0; i < 2 * p->width && p->kind == PREDICTS_NUMBERS; i++)
    hark_predict_output_column(output, i < p->width ? "predicted_" : "target_", hark_number_print((double)(i % p->width + 1), number));
}

static hark_status check_tokens(const prediction *p) {
  if (!p->settings->all_tokens || p->kind == PREDICTS_TOKENS) return HARK_OK;
  return hark_fail(p->call->context, HARK_BAD_CONFIGURATION, "--tokens all: %s predicts %s of examples, and no tokens", p->opened->run.path,
                   p->kind == PREDICTS_CLASSES ? "classes" : "numbers");
}

static hark_status open_prediction(prediction *p) {
  hark_context *const context = p->call->context;
  const hark_data_use given = p->settings->unlabelled ? HARK_DATA_UNLABELLED : HARK_DATA_PREDICTED;
  HARK_TRY(hark_checkpoint_verify(context, &p->opened->run, p->opened->checkpoint, NULL));
  HARK_TRY(hark_run_examples_open(p->call, p->config, p->opened, p->settings->part, given, &p->own));
  p->count = p->settings->limit > 0 ? hark_min(p->settings->limit, p->own.batches.count) : p->own.batches.count;
  HARK_TRY(open_engine(p));
  HARK_TRY(check_tokens(p));
  void *memory = NULL;
  HARK_TRY(hark_allocate(context, (size_t)p->width * ROW_BYTES, &memory));
  p->probabilities = memory;
  p->row = (float *)(p->probabilities + p->width);
  HARK_TRY(hark_predict_output_open(context, p->settings->output, p->call->json, &p->output));
  add_columns(p);
  return hark_predict_output_begin(&p->output);
}

static void close_prediction(prediction *p) {
  hark_context *const context = p->call->context;
  hark_predict_output_close(&p->output);
  hark_release(context, p->probabilities, (size_t)p->width * ROW_BYTES);
  hark_engine_destroy(context, &p->engine);
  hark_run_examples_close(context, &p->own);
}

static hark_status predict_all(prediction *p) {
  for (int64_t first = 0; first < p->count; first += p->config->train.batch) {
    HARK_TRY(predict_batch(p, first));
    hark_progress_part(&p->progress, (double)hark_min(p->count, first + p->config->train.batch) / (double)p->count, "predicting");
  }
  return hark_predict_output_finish(&p->output);
}

hark_status hark_predict_examples(hark_invocation *call, const hark_config *config, const hark_opened_run *opened,
                                  const hark_predict_settings *settings) {
  prediction p = {.call = call, .config = config, .opened = opened, .settings = settings, .progress = hark_progress_begin()};
  hark_status status = open_prediction(&p);
  if (status == HARK_OK) status = predict_all(&p);
  hark_progress_end(&p.progress);
  close_prediction(&p);
  return status;
}
