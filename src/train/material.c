/* material.c - see material.h. */
#include "train/material.h"

#include <string.h>

#include "models/encoder.h"
#include "train/trainer.h"

hark_status hark_material_examples(hark_context *context, const hark_config *config, hark_examples **out) {
  const hark_examples_settings settings = {.format = hark_config_format(config),
                                           .paths = config->data.paths.items,
                                           .path_count = (int)config->data.paths.count,
                                           .validation_paths = config->data.validation_paths.items,
                                           .validation_path_count = (int)config->data.validation_paths.count,
                                           .test_paths = config->data.test_paths.items,
                                           .test_path_count = (int)config->data.test_paths.count,
                                           .validation_fraction = config->data.validation_fraction,
                                           .length_limit = config->data.length_limit,
                                           .classes = (int32_t)config->data.classes};
  return hark_examples_open(context, &settings, out);
}

hark_learning_task hark_material_task_of(const hark_examples *examples) {
  return (hark_learning_task){.vocabulary = hark_examples_vocabulary_size(examples),
                              .classes = hark_examples_target_kind(examples) == HARK_TARGET_CLASS ? hark_examples_classes(examples) : 0,
                              .parts = hark_examples_parts(examples)};
}

hark_status hark_material_check_vocabulary(hark_context *context, const hark_examples *examples, const hark_run *run) {
  char path[HARK_PATH_BYTES];
  hark_text text = hark_text_empty(context);
  HARK_TRY(hark_run_path(context, run, "vocabulary.json", path));
  hark_status status = hark_file_read(context, path, HARK_VOCABULARY_MAX_BYTES, &text);
  if (status == HARK_OK) status = hark_examples_check_vocabulary(context, examples, path, hark_text_get(&text), text.length);
  hark_text_free(&text);
  return status;
}

static hark_status store_vocabulary(hark_context *context, const hark_examples *examples, const hark_run *run) {
  char path[HARK_PATH_BYTES];
  size_t bytes = 0;
  HARK_TRY(hark_run_path(context, run, "vocabulary.json", path));
  const char *text = hark_examples_vocabulary(examples, &bytes);
  return hark_file_write(context, path, text, bytes);
}

static hark_status open_examples(hark_context *context, const hark_run *run, bool resume, hark_material *m) {
  const hark_config *config = m->config;
  HARK_TRY(hark_material_examples(context, config, &m->examples));
  const hark_example_batches_settings training = hark_example_settings(config, HARK_SPLIT_TRAINING, false),
                                      validation = hark_example_settings(config, HARK_SPLIT_VALIDATION, true);
  m->task = hark_material_task_of(m->examples);
  HARK_TRY(hark_example_batches_create(context, m->examples, &training, &m->training));
  m->has_validation = hark_examples_count(m->examples, HARK_SPLIT_VALIDATION).examples > 0;
  if (m->has_validation) HARK_TRY(hark_example_batches_create(context, m->examples, &validation, &m->validation));
  m->samples_per_epoch = m->training.count;
  m->checksum = hark_examples_checksum(m->examples);
  return resume ? hark_material_check_vocabulary(context, m->examples, run) : store_vocabulary(context, m->examples, run);
}

static hark_status open_text(hark_context *context, const hark_run *run, bool resume, hark_material *m) {
  const hark_config *config = m->config;
  HARK_TRY(hark_run_corpus(context, config, run, !resume, &m->tokenizer, &m->corpus));
  const hark_batches_settings settings = {.split = HARK_SPLIT_TRAINING,
                                          .context = config->model.context,
                                          .order = (hark_order)config->data.order,
                                          .epoch = (hark_epoch_unit)config->data.epoch,
                                          .seed = (uint64_t)config->train.seed};
  HARK_TRY(hark_batches_create(context, m->corpus, &settings, &m->batches));
  m->task = (hark_learning_task){.vocabulary = hark_tokenizer_size(m->tokenizer)};
  m->has_validation = hark_corpus_counts(m->corpus, HARK_SPLIT_VALIDATION).tokens > 1;
  m->samples_per_epoch = m->batches.samples_per_epoch;
  m->checksum = hark_corpus_checksum(m->corpus);
  return HARK_OK;
}

hark_status hark_material_open(hark_context *context, const hark_config *config, const hark_run *run, bool resume, hark_material *out) {
  *out = (hark_material){.config = config};
  return hark_config_has_examples(config) ? open_examples(context, run, resume, out) : open_text(context, run, resume, out);
}

void hark_material_close(hark_context *context, hark_material *material) {
  hark_release(context, material->inputs, material->host_bytes);
  hark_corpus_close(context, &material->corpus);
  hark_tokenizer_destroy(context, &material->tokenizer);
  if (material->opened_room) hark_example_room_close(context, &material->room);
  hark_examples_close(context, &material->examples);
}

size_t hark_material_room_bytes(const hark_config *config, const hark_learning_task *task) {
  const int64_t batch = config->train.batch, length = config->model.context;
  /* inputs and targets of a micro-batch of windows, for training and for evaluation */
  if (task->parts == 0) return 4 * (size_t)(batch * length) * sizeof(int32_t);
  return hark_example_room_bytes(batch, task->parts, hark_encoder_rows((hark_pooling)config->model.pooling, length));
}

hark_status hark_material_prepare(hark_context *context, hark_material *material) {
  const hark_config *config = material->config;
  if (material->examples != NULL) {
    HARK_TRY(hark_example_room_open(context, &material->training, config->train.batch, &material->room));
    material->opened_room = true;
    return HARK_OK;
  }
  const int64_t window_numbers = config->train.batch * config->model.context;
  void *memory = NULL;
  material->host_bytes = (size_t)(2 * window_numbers) * sizeof(int32_t);
  HARK_TRY(hark_allocate(context, material->host_bytes, &memory));
  material->inputs = memory;
  material->targets = material->inputs + window_numbers;
  return HARK_OK;
}

hark_status hark_material_weight(hark_context *context, hark_material *material, int64_t first_sample, double *weight) {
  const hark_config *config = material->config;
  int64_t targets = hark_config_step_tokens(config);
  if (material->examples != NULL)
    HARK_TRY(hark_example_batches_targets(context, &material->training, first_sample, config->train.batch * config->train.accumulate,
                                          material->room.batch.targets, &targets));
  *weight = targets > 0 ? 1.0 / (double)targets : 0;
  return HARK_OK;
}

hark_status hark_material_train(hark_context *context, hark_material *material, hark_engine *engine, int64_t first_sample,
                                uint32_t micro_step, double weight, hark_material_pass *pass) {
  const int64_t rows = material->config->train.batch;
  *pass = (hark_material_pass){0};
  if (material->examples == NULL) {
    pass->tokens = rows * material->config->model.context;
    HARK_TRY(hark_batches_read(context, &material->batches, first_sample, rows, material->inputs, material->targets));
    /* Dropout: the rows of a micro-batch are numbered from 0, the micro-step tells the batches apart. */
    return hark_engine_micro_batch(context, engine, material->inputs, material->targets, rows, 0, micro_step, weight, &pass->loss);
  }
  hark_pass_result result;
  hark_example_batch *batch = &material->room.batch;
  HARK_TRY(hark_example_batches_read(context, &material->training, first_sample, rows, batch));
  HARK_TRY(hark_engine_train_examples(context, engine, batch, micro_step, weight, &result));
  *pass = (hark_material_pass){.loss = result.loss, .tokens = batch->tokens, .targets = batch->real, .right = result.right};
  return HARK_OK;
}
