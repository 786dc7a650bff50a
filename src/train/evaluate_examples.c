/* evaluate_examples.c - see evaluate_examples.h. */
#include "train/evaluate_examples.h"

#include <math.h>

#include "models/encoder.h"
#include "train/own_tokens.h"

/* inputs, positions, targets i32; segments i64 */
#define TOKEN_BYTES (3 * sizeof(int32_t) + sizeof(int64_t))

size_t hark_example_room_bytes(const hark_example_extents *e) {
  const int64_t sequences = e->rows * e->parts, tokens = sequences * e->longest;
  return (size_t)tokens * TOKEN_BYTES + (size_t)(sequences * 2) * sizeof(int64_t) +
         (size_t)(tokens * e->features + e->rows * e->responses) * sizeof(float);
}

hark_status hark_example_room_make(hark_context *context, const hark_example_extents *e, hark_example_room *out) {
  const int64_t sequences = e->rows * e->parts, tokens = sequences * e->longest;
  *out = (hark_example_room){.bytes = hark_example_room_bytes(e)};
  HARK_TRY(hark_allocate(context, out->bytes, &out->memory));
  hark_example_batch *batch = &out->batch;
  batch->segments = out->memory;
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
  const hark_example_extents extents = {.rows = rows,
                                        .parts = batches->parts,
                                        .longest = batches->settings.longest + batches->settings.class_token,
                                        .features = hark_examples_features(batches->examples),
                                        .responses = hark_examples_responses(batches->examples)};
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
                                         .seed = (uint64_t)config->train.seed,
                                         .class_token = encoder && config->model.pooling == HARK_POOLING_CLASS,
                                         .longest = config->model.context,
                                         .limit = split == HARK_SPLIT_TRAINING ? config->data.example_limit : 0,
                                         .named_for = "model.context"};
}

/* Adds a batch to the result and the confusion matrix. */
static void count_batch(const hark_example_batch *batch, const hark_pass_result *pass, const int32_t *predicted, int64_t classes,
                        int64_t *confusion, hark_examples_result *out) {
  out->loss += pass->loss;
  out->correct += pass->correct;
  out->targets += batch->real;
  out->examples += batch->rows;
  out->tokens += batch->tokens;
  for (int64_t i = 0; i < batch->rows && confusion != NULL && classes > 0; i++) confusion[batch->targets[i] * classes + predicted[i]]++;
}

hark_status hark_evaluate_examples(hark_context *context, hark_engine *engine, const hark_example_batches *batches, hark_example_room *room,
                                   int64_t *confusion, hark_evaluation_progress *progress, void *user, hark_examples_result *out) {
  *out = (hark_examples_result){.complete = true};
  const int64_t rows = engine->config->train.batch;
  for (int64_t first = 0; first < batches->count; first += rows) {
    const int64_t here = hark_min(rows, batches->count - first), done = first + here;
    const int32_t *predicted = NULL;
    hark_pass_result pass;
    HARK_TRY(hark_example_batches_read(context, batches, first, here, &room->batch));
    if (engine->network->architecture->predicts_masked) {
      const hark_masking masking = hark_config_masking(engine->config, engine->task.vocabulary, HARK_MASKING_EVALUATION);
      hark_example_batch_mask(&masking, first, batches->parts, &room->batch);
    }
    if (hark_config_reconstructs(engine->config)) hark_own_tokens(&room->batch);
    HARK_TRY(hark_engine_evaluate_examples(context, engine, &room->batch, &pass, &predicted));
    count_batch(&room->batch, &pass, predicted, engine->task.classes, confusion, out);
    if (progress == NULL || progress(user, (double)done / (double)batches->count)) continue;
    out->complete = done >= batches->count;
    break;
  }
  out->loss = out->targets > 0 ? out->loss / (double)out->targets : NAN;
  return HARK_OK;
}
