/* own_tokens.c - see own_tokens.h. */
#include "train/own_tokens.h"

#include <math.h>
#include <string.h>

#include "train/evaluation_rounds.h"

void hark_own_tokens(hark_example_batch *batch) {
  memcpy(batch->targets, batch->inputs, (size_t)batch->tokens * sizeof *batch->targets);
  batch->real = batch->tokens;
}

/* Adds a window: the first `length` tokens of `window`, which is in the batch's inputs at or after its final place. */
static void add_window(const int32_t *window, int64_t length, hark_example_batch *batch) {
  const int64_t begin = batch->tokens, row = batch->rows++;
  memmove(batch->inputs + begin, window, (size_t)length * sizeof *window);
  for (int64_t i = 0; i < length; i++) {
    batch->positions[begin + i] = (int32_t)i;
    batch->segments[begin + i] = row;
  }
  batch->ranges[2 * row] = begin;
  batch->ranges[2 * row + 1] = begin + length;
  batch->tokens += length;
  batch->longest = hark_max(batch->longest, length);
}

static void begin(hark_example_batch *batch) { batch->rows = batch->tokens = batch->longest = batch->real = 0; }

hark_status hark_own_windows_read(hark_context *context, const hark_batches *batches, int64_t first, int64_t rows,
                                  hark_example_batch *batch) {
  const int64_t length = batches->settings.context;
  HARK_TRY(hark_batches_read(context, batches, first, rows, batch->inputs, batch->targets));
  begin(batch);
  for (int64_t row = 0; row < rows; row++) add_window(batch->inputs + row * length, length, batch);
  hark_own_tokens(batch);
  return HARK_OK;
}

/* Reads windows of an evaluation, without tokens after the last target. */
static hark_status read_windows(hark_context *context, const hark_evaluation *evaluation, int64_t first, int64_t rows,
                                hark_example_batch *batch) {
  const int64_t length = evaluation->settings.context;
  int64_t real = 0;
  HARK_TRY(hark_evaluation_read(context, evaluation, first, rows, batch->inputs, batch->targets, &real));
  begin(batch);
  for (int64_t row = 0; row < rows; row++) {
    int64_t count = length;
    while (count > 0 && batch->targets[row * length + count - 1] == HARK_TARGET_IGNORED) count--;
    if (count > 0) add_window(batch->inputs + row * length, count, batch);
  }
  hark_own_tokens(batch);
  return HARK_OK;
}

typedef struct own_batches {
  hark_context *context;
  hark_engine *engine;
  hark_evaluation evaluation;
  hark_example_batch *batch;
} own_batches;

static hark_status measure(void *user, int64_t index, hark_batch_sums *out) {
  const own_batches *const own = user;
  const int64_t rows = own->engine->config->train.batch, first = index * rows;
  const int32_t *predicted;
  hark_pass_result pass;
  HARK_TRY(read_windows(own->context, &own->evaluation, first, hark_min(rows, own->evaluation.windows - first), own->batch));
  HARK_TRY(hark_engine_evaluate_examples(own->context, own->engine, own->batch, &pass, &predicted));
  *out = (hark_batch_sums){.loss = pass.loss, .targets = own->batch->real, .correct = pass.correct};
  return HARK_OK;
}

hark_status hark_evaluate_own(hark_context *context, hark_engine *engine, const hark_corpus *corpus,
                              const hark_evaluation_settings *settings, hark_example_room *room, hark_evaluation_progress *progress,
                              void *user, hark_evaluation_result *out) {
  const hark_evaluation_settings text = {.split = settings->split, .context = engine->config->model.context, .targets = settings->targets};
  own_batches own = {.context = context, .engine = engine, .batch = &room->batch};
  hark_batch_sums sums;
  *out = (hark_evaluation_result){0};
  HARK_TRY(hark_evaluation_create(context, corpus, &text, &own.evaluation));
  const hark_evaluation_rounds rounds = {.batches = hark_ceil_div(own.evaluation.windows, engine->config->train.batch),
                                         .measure = measure,
                                         .user = &own,
                                         .progress = progress,
                                         .progress_user = user};
  HARK_TRY(hark_evaluate_rounds(context, engine, &rounds, &sums, &out->complete));
  out->targets = sums.targets;
  out->correct = sums.correct;
  out->loss = sums.targets > 0 ? sums.loss / (double)sums.targets : NAN;
  return HARK_OK;
}
