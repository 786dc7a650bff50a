/* own_tokens.c - see own_tokens.h. */
#include "train/own_tokens.h"

#include <math.h>
#include <string.h>

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

hark_status hark_evaluate_own(hark_context *context, hark_engine *engine, const hark_corpus *corpus,
                              const hark_evaluation_settings *settings, hark_example_room *room, hark_evaluation_progress *progress,
                              void *user, hark_evaluation_result *out) {
  const int64_t rows = engine->config->train.batch;
  const hark_evaluation_settings own = {.split = settings->split, .context = engine->config->model.context, .targets = settings->targets};
  hark_evaluation evaluation;
  double sum = 0;
  *out = (hark_evaluation_result){.complete = true};
  HARK_TRY(hark_evaluation_create(context, corpus, &own, &evaluation));
  for (int64_t first = 0; first < evaluation.windows; first += rows) {
    const int64_t here = hark_min(rows, evaluation.windows - first), done = first + here;
    const int32_t *predicted;
    hark_pass_result pass;
    HARK_TRY(read_windows(context, &evaluation, first, here, &room->batch));
    HARK_TRY(hark_engine_evaluate_examples(context, engine, &room->batch, &pass, &predicted));
    sum += pass.loss;
    out->correct += pass.correct;
    out->targets += room->batch.real;
    if (progress == NULL || progress(user, (double)done / (double)evaluation.windows)) continue;
    out->complete = done >= evaluation.windows;
    break;
  }
  out->loss = out->targets > 0 ? sum / (double)out->targets : NAN;
  return HARK_OK;
}
