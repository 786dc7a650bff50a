/* material.c - see material.h. */
#include "train/material.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "models/encoder.h"
#include "train/delimiters.h"
#include "train/own_tokens.h"
#include "train/trainer.h"

#define RANDOM_WINDOWS ((double)(1 << 24)) /* number of windows drawn beforehand to count their tokens */
#define SAMPLES_MOST (INT64_MAX / 2)

static bool hides(const hark_config *config) { return hark_architecture_of(config->model.architecture)->predicts_masked; }
static bool reads_tables(const hark_config *config) { return hark_architecture_of(config->model.architecture)->reads_tables; }

/* The pixels of a picture are tokens in rows of its width; other data have no rows. */
static hark_status check_grid(hark_context *context, const hark_config *config, const hark_examples *examples) {
  const int64_t columns = config->model.attention.grid_columns;
  int32_t height, width;
  if (columns == 0 || !hark_layer_choice_has(&config->model.attention.structure, HARK_STRUCTURE_HIERARCHICAL)) return HARK_OK;
  if (!hark_examples_image(examples, &height, &width))
    return hark_fail(context, HARK_BAD_CONFIGURATION,
                     "model.attention.grid_columns is %" PRId64 ", and the examples are no pictures (format %s), expected 0", columns,
                     hark_examples_format(examples));
  if (columns != width)
    return hark_fail(context, HARK_BAD_CONFIGURATION,
                     "model.attention.grid_columns is %" PRId64 ", and the pictures have %" PRId32 " columns, expected %" PRId32, columns,
                     width, width);
  return HARK_OK;
}

hark_status hark_material_examples(hark_context *context, const hark_config *config, hark_data_use use, hark_examples **out) {
  const hark_examples_settings settings = {
      .format = hark_config_format(config),
      .paths = config->data.paths.items,
      .path_count = (int)config->data.paths.count,
      .validation_paths = config->data.validation_paths.items,
      .validation_path_count = (int)config->data.validation_paths.count,
      .test_paths = config->data.test_paths.items,
      .test_path_count = (int)config->data.test_paths.count,
      .validation_fraction = config->data.validation_fraction,
      .divides = config->data.divides && use <= HARK_DATA_OF_RUN,
      .length_limit = config->data.length_limit,
      .classes = (int32_t)(reads_tables(config) ? hark_config_table_classes(config) : config->data.classes),
      .quoted = config->data.quoted,
      .text_field = config->data.text_field,
      .targets = config->data.targets,
      .label_field = config->data.label_field,
      .labels = use == HARK_DATA_UNLABELLED  ? HARK_LABELS_NONE
                : use == HARK_DATA_PREDICTED ? HARK_LABELS_EXPECTED
                                             : HARK_LABELS_NEEDED,
      .known = use == HARK_DATA_OF_RUN || use == HARK_DATA_MEASURED,
      .teaches_classes = use <= HARK_DATA_OF_RUN && !hides(config)};
  HARK_TRY(hark_examples_open(context, &settings, out));
  const hark_status status = check_grid(context, config, *out);
  if (status != HARK_OK) hark_examples_close(context, out);
  return status;
}

hark_learning_task hark_material_task_of_tables(const hark_config *config, int64_t inputs, int64_t targets) {
  const int64_t classes = hark_config_table_classes(config);
  return (hark_learning_task){.features = 2 * inputs,
                              .responses = classes > 0 ? classes : targets,
                              .parts = HARK_TABLE_PARTS,
                              .tables = true,
                              .classified = classes > 0};
}

hark_status hark_material_task_of(hark_context *context, const hark_config *config, const hark_examples *examples,
                                  hark_learning_task *out) {
  const bool classes = hark_examples_target_kind(examples) == HARK_TARGET_CLASS && !hides(config) && !hark_config_reconstructs(config);
  const int32_t responses = hark_examples_responses(examples);
  if (hark_examples_target_kind(examples) == HARK_TARGET_ROWS) {
    *out = hark_material_task_of_tables(config, hark_examples_features(examples) - responses, responses);
    out->vocabulary = hark_examples_vocabulary_size(examples);
    return HARK_OK;
  }
  *out = (hark_learning_task){.vocabulary = hark_examples_vocabulary_size(examples),
                              .classes = classes ? hark_examples_classes(examples) : 0,
                              .features = hark_examples_features(examples),
                              .responses = responses,
                              .targets = hark_config_reconstructs(config) || hides(config) ? 0 : hark_examples_most_targets(examples),
                              .parts = hark_examples_parts(examples)};
  return hark_delimiters_find(context, config, NULL, examples, &out->delimiters);
}

hark_status hark_material_task_of_text(hark_context *context, const hark_config *config, const hark_tokenizer *tokenizer,
                                       hark_learning_task *out) {
  *out = hark_material_task_of_size(config, hark_tokenizer_size(tokenizer));
  out->ends = hark_tokenizer_ends(tokenizer);
  return hark_delimiters_find(context, config, tokenizer, NULL, &out->delimiters);
}

hark_learning_task hark_material_task_of_size(const hark_config *config, int32_t vocabulary) {
  hark_learning_task task = {.vocabulary = vocabulary};
  if (hark_config_has_sentences(config)) {
    task.parts = 1;
    task.sequences = hark_sentences_most(config->model.context);
  } else if (hark_config_reconstructs(config)) {
    task.parts = 1;
  }
  const hark_model_list *const list = hark_delimiters_list(config);
  if (list != NULL && hark_model_list_has_text(list, &config->model)) task.delimiters.count = 1;
  return task;
}

hark_status hark_material_check_vocabulary(hark_context *context, const hark_examples *examples, const hark_run *run) {
  char path[HARK_PATH_BYTES];
  hark_text text = hark_text_empty(context);
  HARK_TRY(hark_run_path(context, run, "vocabulary.json", path));
  hark_status status = hark_file_read_stored(context, path, HARK_VOCABULARY_MAX_BYTES, &text);
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
  HARK_TRY(hark_material_examples(context, config, resume ? HARK_DATA_OF_RUN : HARK_DATA_FOR_NEW_RUN, &m->examples));
  const hark_example_batches_settings training = hark_example_settings(config, HARK_SPLIT_TRAINING, false),
                                      validation = hark_example_settings(config, HARK_SPLIT_VALIDATION, true);
  HARK_TRY(hark_material_task_of(context, config, m->examples, &m->task));
  HARK_TRY(hark_example_batches_create(context, m->examples, &training, &m->training));
  m->has_validation = hark_examples_count(m->examples, HARK_SPLIT_VALIDATION).examples > 0;
  if (m->has_validation) HARK_TRY(hark_example_batches_create(context, m->examples, &validation, &m->validation));
  m->samples_per_epoch = m->training.count;
  m->checksum = hark_examples_checksum(m->examples);
  return resume ? hark_material_check_vocabulary(context, m->examples, run) : store_vocabulary(context, m->examples, run);
}

static hark_status open_sentences(hark_context *context, hark_material *m) {
  const hark_sentences_settings training = hark_sentences_settings_of(m->config, HARK_SPLIT_TRAINING, false),
                                validation = hark_sentences_settings_of(m->config, HARK_SPLIT_VALIDATION, true);
  HARK_TRY(hark_sentences_open(context, m->corpus, &training, &m->sentences));
  m->has_validation = hark_corpus_counts(m->corpus, HARK_SPLIT_VALIDATION).sentences > 0;
  if (m->has_validation) HARK_TRY(hark_sentences_open(context, m->corpus, &validation, &m->validation_sentences));
  m->samples_per_epoch = m->sentences.windows;
  return HARK_OK;
}

static hark_status open_text(hark_context *context, const hark_run *run, bool resume, hark_material *m) {
  const hark_config *config = m->config;
  HARK_TRY(hark_run_corpus(context, config, run, !resume, &m->tokenizer, &m->corpus));
  HARK_TRY(hark_material_task_of_text(context, config, m->tokenizer, &m->task));
  m->checksum = hark_corpus_checksum(m->corpus);
  if (hark_config_has_sentences(config)) return open_sentences(context, m);
  const hark_batches_settings settings = {.split = HARK_SPLIT_TRAINING,
                                          .context = config->model.context,
                                          .order = (hark_order)config->data.order,
                                          .epoch = (hark_epoch_unit)config->data.epoch,
                                          .seed = (uint64_t)config->train.seed};
  HARK_TRY(hark_batches_create(context, m->corpus, &settings, &m->batches));
  m->has_validation = hark_corpus_counts(m->corpus, HARK_SPLIT_VALIDATION).tokens > 1;
  m->samples_per_epoch = m->batches.samples_per_epoch;
  return HARK_OK;
}

/* Only the data show whether there is validation: a folder of hark data make may have none. */
static hark_status check_evaluations(hark_context *context, const hark_material *m) {
  static const char hint[] = "(data.validation_fraction, data.validation_paths)";
  if (m->has_validation) return HARK_OK;
  if (m->config->train.early_stop > 0)
    return hark_fail(context, HARK_BAD_CONFIGURATION,
                     "--early-stop: has no effect here: there is nothing to validate with, and it counts evaluations %s", hint);
  if (m->config->train.evaluates && m->config->train.evaluate_every > 0)
    return hark_fail(context, HARK_BAD_CONFIGURATION, "--evaluate-every: has no effect here: there is nothing to validate with %s", hint);
  return HARK_OK;
}

hark_status hark_material_open(hark_context *context, const hark_config *config, const hark_run *run, bool resume, hark_material *out) {
  *out =
      (hark_material){.config = config,
                      .packed = hark_config_has_examples(config) || hark_config_has_sentences(config) || hark_config_reconstructs(config)};
  HARK_TRY((hark_config_has_examples(config) ? open_examples : open_text)(context, run, resume, out));
  HARK_TRY(check_evaluations(context, out));
  return hark_delimiters_check(context, config, &out->task.delimiters, out->examples, out->corpus);
}

void hark_material_close(hark_context *context, hark_material *material) {
  hark_release(context, material->inputs, material->host_bytes);
  hark_sentences_close(&material->sentences);
  hark_sentences_close(&material->validation_sentences);
  hark_corpus_close(context, &material->corpus);
  hark_tokenizer_destroy(context, &material->tokenizer);
  if (material->opened_room) hark_example_room_close(context, &material->room);
  hark_examples_close(context, &material->examples);
}

size_t hark_material_room_bytes(const hark_config *config, const hark_learning_task *task) {
  const int64_t batch = config->train.batch, length = config->model.context;
  /* inputs and targets of a micro-batch of windows, for training and for evaluation; for evaluation also the most likely tokens */
  if (task->parts == 0) return (size_t)((hides(config) ? 5 : 4) * batch * length) * sizeof(int32_t);
  const hark_example_extents extents = {.rows = batch,
                                        .parts = task->parts,
                                        .longest = hark_encoder_rows((hark_pooling)config->model.pooling, length),
                                        .features = task->features,
                                        .responses = task->responses,
                                        .tables = task->tables};
  return hark_example_room_bytes(&extents);
}

hark_status hark_material_prepare(hark_context *context, hark_material *material) {
  const hark_config *config = material->config;
  if (material->examples != NULL) {
    HARK_TRY(hark_example_room_open(context, &material->training, config->train.batch, &material->room));
    material->opened_room = true;
    return HARK_OK;
  }
  if (material->packed) {
    const hark_example_extents extents = {.rows = config->train.batch, .parts = 1, .longest = config->model.context};
    HARK_TRY(hark_example_room_make(context, &extents, &material->room));
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

int64_t hark_material_samples(const hark_material *material, int64_t tokens) {
  const hark_sentences *const s = &material->sentences;
  const double mean = (double)s->positions / (double)s->windows;
  int64_t samples = 0, seen = 0;
  if (s->settings.order == HARK_ORDER_RANDOM && (double)tokens / mean > RANDOM_WINDOWS) {
    const double guess = ceil((double)tokens / mean);
    return guess < (double)SAMPLES_MOST ? (int64_t)guess : SAMPLES_MOST;
  }
  if (s->settings.order != HARK_ORDER_RANDOM) { /* whole epochs, each window once, and a part of an epoch */
    const int64_t epochs = (tokens - 1) / s->positions;
    if (epochs > SAMPLES_MOST / s->windows - 1) return SAMPLES_MOST;
    samples = epochs * s->windows;
    seen = epochs * s->positions;
  }
  while (seen < tokens) seen += hark_sentences_targets(s, samples++, 1);
  return samples;
}

/* Number of tokens that will be masked in a step's samples. */
static int64_t count_hidden(const hark_material *m, int64_t first_sample, int64_t samples) {
  const hark_masking masking = hark_config_masking(m->config, m->task.vocabulary, HARK_MASKING_TRAINING);
  const int64_t parts = hark_max(1, m->task.parts);
  int64_t count = 0;
  for (int64_t sequence = first_sample * parts; sequence < (first_sample + samples) * parts; sequence++) {
    int64_t length = m->config->model.context;
    if (m->examples != NULL)
      length = hark_examples_length(m->examples, HARK_SPLIT_TRAINING, hark_example_batches_index(&m->training, sequence / parts),
                                    (int)(sequence % parts));
    count += hark_mask_count(&masking, sequence, length);
  }
  return count;
}

/* Number of tokens in a step's samples. */
static int64_t count_tokens(const hark_material *m, int64_t first_sample, int64_t samples) {
  if (m->examples == NULL) return samples * m->config->model.context;
  int64_t count = 0;
  for (int64_t sample = first_sample; sample < first_sample + samples; sample++)
    count += hark_examples_length(m->examples, HARK_SPLIT_TRAINING, hark_example_batches_index(&m->training, sample), 0);
  return count;
}

hark_status hark_material_targets(hark_context *context, hark_material *material, int64_t first_sample, int64_t *targets) {
  const hark_config *config = material->config;
  const int64_t samples = config->train.batch * config->train.accumulate;
  *targets = hark_config_step_tokens(config);
  if (hides(config))
    *targets = count_hidden(material, first_sample, samples);
  else if (hark_config_reconstructs(config))
    *targets = count_tokens(material, first_sample, samples);
  else if (material->examples != NULL)
    return hark_example_batches_targets(context, &material->training, first_sample, samples, material->room.batch.targets, targets);
  else if (material->packed)
    *targets = hark_sentences_targets(&material->sentences, first_sample, samples);
  return HARK_OK;
}

static hark_status read_windows(hark_context *context, hark_material *material, int64_t first_sample, int64_t *real) {
  const int64_t rows = material->config->train.batch, length = material->config->model.context;
  const hark_masking masking = hark_config_masking(material->config, material->task.vocabulary, HARK_MASKING_TRAINING);
  HARK_TRY(hark_batches_read(context, &material->batches, first_sample, rows, material->inputs, material->targets));
  *real = hides(material->config) ? 0 : rows * length;
  for (int64_t row = 0; row < rows && hides(material->config); row++)
    *real += hark_mask_tokens(&masking, first_sample + row, length, material->inputs + row * length, material->targets + row * length);
  return HARK_OK;
}

static hark_status read_packed(hark_context *context, hark_material *material, int64_t first_sample, int64_t *real) {
  const int64_t rows = material->config->train.batch;
  hark_example_batch *batch = &material->room.batch;
  if (material->examples != NULL)
    HARK_TRY(hark_example_batches_read(context, &material->training, first_sample, rows, batch));
  else if (hark_config_reconstructs(material->config))
    HARK_TRY(hark_own_windows_read(context, &material->batches, first_sample, rows, batch));
  else
    HARK_TRY(hark_sentences_read(context, &material->sentences, first_sample, rows, batch));
  if (hides(material->config)) {
    const hark_masking masking = hark_config_masking(material->config, material->task.vocabulary, HARK_MASKING_TRAINING);
    hark_example_batch_mask(&masking, first_sample, material->task.parts, batch);
  }
  if (hark_config_reconstructs(material->config)) hark_own_tokens(batch);
  *real = batch->real;
  return HARK_OK;
}

hark_status hark_material_train(hark_context *context, hark_material *material, hark_engine *engine, int64_t first_sample,
                                uint32_t micro_step, double weight, hark_material_pass *pass) {
  const int64_t rows = material->config->train.batch;
  *pass = (hark_material_pass){0};
  HARK_TRY((material->packed ? read_packed : read_windows)(context, material, first_sample, &pass->real));
  if (!material->packed) {
    pass->tokens = rows * hark_engine_own_length(engine);
    if (!hides(material->config)) pass->real = pass->tokens;
    /* Dropout: the rows of a micro-batch are numbered from 0; the micro-step distinguishes the batches. */
    HARK_TRY(hark_engine_micro_batch(context, engine, material->inputs, material->targets, rows, 0, micro_step, weight, &pass->loss));
    pass->parts = engine->parts;
    return HARK_OK;
  }
  hark_pass_result result;
  const hark_example_batch *batch = &material->room.batch;
  pass->tokens = batch->tokens;
  HARK_TRY(hark_engine_train_examples(context, engine, batch, micro_step, weight, &result));
  pass->loss = result.loss;
  pass->parts = engine->parts;
  if (material->examples == NULL) return HARK_OK;
  pass->targets = hark_task_has_classes(&material->task) ? batch->real : 0;
  pass->correct = result.correct;
  return HARK_OK;
}
