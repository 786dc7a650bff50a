/* evaluate_examples.c - see evaluate_examples.h. */
#include "train/evaluate_examples.h"

#include <math.h>

#include "models/encoder.h"
#include "train/evaluation_rounds.h"
#include "train/own_tokens.h"

#define EVALUATION_SEED UINT64_C(0x6576616C) /* of the context of tables in evaluations, in sequential order: never changes */

/* inputs, positions, targets i32; segments i64 */
#define TOKEN_BYTES (3 * sizeof(int32_t) + sizeof(int64_t))

/* Means and deviations of targets. */
static size_t scale_bytes(const hark_example_extents *e) {
  return e->tables ? (size_t)(e->rows * e->responses) * sizeof(hark_column_scale) : 0;
}

size_t hark_example_room_bytes(const hark_example_extents *e) {
  const int64_t sequences = e->rows * e->parts, tokens = sequences * e->longest;
  const int64_t responses = (e->tables ? tokens : e->rows) * e->responses;
  return scale_bytes(e) + (size_t)tokens * TOKEN_BYTES + (size_t)(sequences * 2) * sizeof(int64_t) +
         (size_t)(tokens * e->features + responses) * sizeof(float);
}

hark_status hark_example_room_make(hark_context *context, const hark_example_extents *e, hark_example_room *out) {
  const int64_t sequences = e->rows * e->parts, tokens = sequences * e->longest;
  *out = (hark_example_room){.bytes = hark_example_room_bytes(e)};
  HARK_TRY(hark_allocate(context, out->bytes, &out->memory));
  hark_example_batch *batch = &out->batch;
  if (e->tables) batch->scales = out->memory;
  batch->segments = (int64_t *)(void *)((char *)out->memory + scale_bytes(e));
  batch->ranges = batch->segments + tokens;
  batch->inputs = (int32_t *)(batch->ranges + 2 * sequences);
  batch->positions = batch->inputs + tokens;
  batch->targets = batch->positions + tokens;
  if (e->features > 0) {
    batch->features = (float *)(batch->targets + tokens);
    batch->responses = batch->features + tokens * e->features;
  }
  return HARK_OK;
}

hark_status hark_example_room_open(hark_context *context, const hark_example_batches *batches, int64_t rows, hark_example_room *out) {
  hark_example_extents extents = {.rows = rows,
                                  .parts = batches->parts,
                                  .longest = batches->settings.longest + batches->settings.class_token,
                                  .features = hark_examples_features(batches->examples),
                                  .responses = hark_examples_responses(batches->examples),
                                  .tables = batches->tables};
  if (extents.tables) extents.features = 2 * (extents.features - extents.responses);
  if (batches->settings.tables.classes > 0) extents.responses = batches->settings.tables.classes;
  return hark_example_room_make(context, &extents, out);
}

void hark_example_room_close(hark_context *context, hark_example_room *room) {
  hark_release(context, room->memory, room->bytes);
  *room = (hark_example_room){0};
}

hark_example_batches_settings hark_example_settings(const hark_config *config, hark_split split, bool evaluation) {
  const bool encoder = config->model.architecture == HARK_ARCHITECTURE_ENCODER;
  return (hark_example_batches_settings){.split = split,
                                         .order = evaluation ? HARK_ORDER_SEQUENTIAL : (hark_order)config->data.order,
                                         .seed = evaluation ? EVALUATION_SEED : (uint64_t)config->train.seed,
                                         .class_token = encoder && config->model.pooling == HARK_POOLING_CLASS,
                                         .longest = config->model.context,
                                         .tables = {.least = config->data.context_least,
                                                    .most = config->data.context_most,
                                                    .queries = config->data.queries,
                                                    .standardise = config->model.regressor.standardise,
                                                    .classes = hark_config_table_classes(config)},
                                         .limit = split == HARK_SPLIT_TRAINING ? config->data.example_limit : 0,
                                         .named_for = "model.context"};
}

typedef struct example_walk {
  hark_context *context;
  hark_engine *engine;
  const hark_example_batches *batches;
  hark_example_batch *batch;
  int64_t *confusion;      /* NULL: none */
  hark_table_sums *tables; /* [HARK_TABLE_PREDICTORS]: of a batch of tables */
} example_walk;

/* Reads the examples from `first` on, with their tokens masked or as targets where the model predicts these. */
static hark_status read_batch(const example_walk *walk, int64_t first) {
  const hark_config *const config = walk->engine->config;
  HARK_TRY(hark_example_batches_read(walk->context, walk->batches, first, hark_min(config->train.batch, walk->batches->count - first),
                                     walk->batch));
  if (walk->engine->network->architecture->predicts_masked) {
    const hark_masking masking = hark_config_masking(config, walk->engine->task.vocabulary, HARK_MASKING_EVALUATION);
    hark_example_batch_mask(&masking, first, walk->batches->parts, walk->batch);
  }
  if (hark_config_reconstructs(config)) hark_own_tokens(walk->batch);
  return HARK_OK;
}

/* Sums of the model's predictions and of the baselines over a batch of tables. */
static hark_status measure_tables(const example_walk *walk, const hark_table_sums *model) {
  const hark_learning_task *const task = &walk->engine->task;
  hark_table_sums *const sums = walk->tables;
  for (int i = 0; i < HARK_TABLE_PREDICTORS; i++) sums[i] = (hark_table_sums){0};
  sums[HARK_TABLE_MODEL] = *model;
  hark_status (*const baseline)(hark_context *, const hark_example_batch *, int64_t, int64_t, bool, hark_table_sums *) =
      task->classified ? hark_class_baseline : hark_table_baseline;
  HARK_TRY(baseline(walk->context, walk->batch, task->features, task->responses, true, &sums[HARK_TABLE_LINEAR]));
  return baseline(walk->context, walk->batch, task->features, task->responses, false, &sums[HARK_TABLE_MEAN]);
}

static hark_status measure(void *user, int64_t index, hark_batch_sums *out) {
  const example_walk *const walk = user;
  const hark_example_batch *const batch = walk->batch;
  const int64_t classes = walk->engine->task.classes;
  const int32_t *predicted = NULL;
  hark_pass_result pass;
  HARK_TRY(read_batch(walk, index * walk->engine->config->train.batch));
  *out = (hark_batch_sums){.targets = batch->real, .examples = batch->rows, .tokens = batch->tokens};
  if (batch->real == 0 && walk->engine->statistics == NULL) return HARK_OK; /* statistics of ahca are of all tokens */
  HARK_TRY(hark_engine_evaluate_examples(walk->context, walk->engine, batch, &pass, &predicted));
  out->loss = pass.loss;
  out->correct = pass.correct;
  if (walk->batches->tables) HARK_TRY(measure_tables(walk, &pass.tables));
  for (int64_t i = 0; i < batch->rows && walk->confusion != NULL && classes > 0; i++)
    walk->confusion[batch->targets[i] * classes + predicted[i]]++;
  return HARK_OK;
}

hark_status hark_evaluate_examples(hark_context *context, hark_engine *engine, const hark_example_batches *batches, hark_example_room *room,
                                   int64_t *confusion, hark_evaluation_progress *progress, void *user, hark_examples_result *out) {
  hark_table_sums tables[HARK_TABLE_PREDICTORS] = {{0}}, all[HARK_TABLE_PREDICTORS] = {{0}};
  example_walk walk = {context, engine, batches, &room->batch, confusion, tables};
  const hark_evaluation_rounds rounds = {.batches = hark_ceil_div(batches->count, engine->config->train.batch),
                                         .measure = measure,
                                         .user = &walk,
                                         .more = batches->tables ? sizeof tables / (sizeof(double)) : 0,
                                         .more_batch = (double *)tables,
                                         .more_sums = (double *)all,
                                         .counted = confusion != NULL ? engine->task.classes * engine->task.classes : 0,
                                         .counts = confusion,
                                         .progress = progress,
                                         .progress_user = user};
  hark_batch_sums sums;
  *out = (hark_examples_result){0};
  HARK_TRY(hark_evaluate_rounds(context, engine, &rounds, &sums, &out->complete));
  *out = (hark_examples_result){.loss = sums.targets > 0 ? sums.loss / (double)sums.targets : NAN,
                                .examples = sums.examples,
                                .tokens = sums.tokens,
                                .targets = sums.targets,
                                .correct = sums.correct,
                                .complete = out->complete};
  const double numbers = (double)sums.targets;
  for (int i = 0; batches->tables && numbers > 0 && i < HARK_TABLE_PREDICTORS; i++)
    out->tables[i] = (hark_table_result){all[i].loss / numbers, all[i].squared_error / numbers, all[i].covered / numbers};
  return HARK_OK;
}
