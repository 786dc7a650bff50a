/* evaluate.c - see evaluate.h.
 *
 * Losses by position are computed from the batch's logits: one sum per bucket, with all other targets ignored. Together these sums read
 * every row of logits once more, and need no further memory of the size of the logits.
 */
#include "train/evaluate.h"

#include <math.h>

#define PARTS 4 /* buckets from one power of two to the next */

int64_t hark_position_first(int bucket) { return bucket < PARTS ? bucket : (int64_t)(PARTS + bucket % PARTS) << (bucket / PARTS - 1); }

int hark_position_buckets(int64_t length) {
  int count = 0;
  while (count < HARK_POSITION_BUCKETS && hark_position_first(count) < length) count++;
  return count;
}

int64_t hark_position_last(int bucket, int64_t length) { return hark_min(hark_position_first(bucket + 1), length) - 1; }

/* Windows in host memory. */
typedef struct window_batch {
  int64_t length, rows;
  int32_t *inputs, *targets; /* [rows, length] */
  int32_t *some;             /* the targets of one bucket, or the most likely tokens; NULL: neither is needed */
} window_batch;

/* some <- the targets at positions [first, last] of all windows; returns how many are not ignored. */
static int64_t choose_targets(const window_batch *batch, int64_t first, int64_t last) {
  int64_t count = 0;
  for (int64_t row = 0; row < batch->rows; row++) {
    const int32_t *from = batch->targets + row * batch->length;
    int32_t *to = batch->some + row * batch->length;
    for (int64_t i = 0; i < batch->length; i++) {
      to[i] = i >= first && i <= last ? from[i] : HARK_TARGET_IGNORED;
      count += to[i] != HARK_TARGET_IGNORED;
    }
  }
  return count;
}

static hark_status add_positions(hark_context *context, hark_engine *engine, const window_batch *batch, hark_position_loss *positions) {
  for (int bucket = 0; bucket < hark_position_buckets(batch->length); bucket++) {
    const int64_t count = choose_targets(batch, hark_position_first(bucket), hark_position_last(bucket, batch->length));
    double sum = 0;
    if (count == 0) continue;
    HARK_TRY(hark_engine_loss(context, engine, batch->some, &sum));
    positions[bucket].sum += sum;
    positions[bucket].targets += count;
  }
  return HARK_OK;
}

/* Targets for a masked encoder: masks tokens among the counted positions; masked tokens replace next tokens as targets. Returns their
 * number. */
static int64_t hide_tokens(const hark_engine *engine, int64_t first, const window_batch *batch) {
  const hark_masking masking = hark_config_masking(engine->config, engine->task.vocabulary, HARK_MASKING_EVALUATION);
  int64_t real = 0;
  for (int64_t i = 0; i < batch->rows * batch->length; i++)
    if (batch->targets[i] == HARK_TARGET_IGNORED) batch->inputs[i] = -1 - batch->inputs[i]; /* visible, not to be masked */
  for (int64_t row = 0; row < batch->rows; row++)
    real +=
        hark_mask_tokens(&masking, first + row, batch->length, batch->inputs + row * batch->length, batch->targets + row * batch->length);
  for (int64_t i = 0; i < batch->rows * batch->length; i++)
    if (batch->inputs[i] < 0) batch->inputs[i] = -1 - batch->inputs[i];
  return real;
}

/* Adds the batch of windows from `first` on to *sum and *out. A model that sees its whole window would see padding after the end of the
 * text: there the batch is one window, cut where the text ends. */
static hark_status add_batch(hark_context *context, hark_engine *engine, const hark_evaluation *evaluation, int64_t first,
                             const hark_evaluation_task *task, window_batch *batch, double *sum, hark_evaluation_result *out) {
  const bool hides = engine->network->architecture->predicts_masked;
  int64_t real = 0, correct = 0;
  double part = 0;
  HARK_TRY(hark_evaluation_read(context, evaluation, first, batch->rows, batch->inputs, batch->targets, &real));
  if (hides) {
    batch->length = hark_min(batch->length, hark_evaluation_tokens(evaluation, first));
    real = hide_tokens(engine, first, batch);
    if (real == 0) return HARK_OK;
  }
  HARK_TRY(hark_engine_predict(context, engine, batch->inputs, batch->rows, batch->length));
  HARK_TRY(hark_engine_loss(context, engine, batch->targets, &part));
  if (hides) HARK_TRY(hark_engine_correct(context, engine, batch->targets, batch->some, &correct));
  *sum += part;
  out->targets += real;
  out->correct += correct;
  return task->positions ? add_positions(context, engine, batch, out->positions) : HARK_OK;
}

/* Number of windows in the batch from `first` on: `most`, or fewer at the end. A window that the text does not fill is a separate batch. */
static int64_t batch_rows(const hark_engine *engine, const hark_evaluation *evaluation, int64_t first, int64_t most) {
  const int64_t rows = hark_min(most, evaluation->windows - first), last = first + rows - 1;
  const bool full = hark_evaluation_tokens(evaluation, last) == evaluation->settings.context;
  return engine->network->architecture->predicts_masked && !full && rows > 1 ? rows - 1 : rows;
}

hark_status hark_evaluate(hark_context *context, hark_engine *engine, const hark_corpus *corpus, const hark_evaluation_task *task,
                          hark_evaluation_result *out) {
  *out = (hark_evaluation_result){0};
  hark_evaluation evaluation;
  hark_evaluation_settings settings = task->text;
  const int64_t rows = engine->config->train.batch, length = engine->config->model.context;
  settings.context = length;
  HARK_TRY(hark_evaluation_create(context, corpus, &settings, &evaluation));
  const bool some = task->positions || engine->network->architecture->predicts_masked;
  const size_t bytes = (size_t)((some ? 3 : 2) * rows * length) * sizeof(int32_t);
  void *memory = NULL;
  HARK_TRY(hark_allocate(context, bytes, &memory));
  window_batch batch = {.inputs = memory};
  batch.targets = batch.inputs + rows * length;
  batch.some = some ? batch.targets + rows * length : NULL;
  double sum = 0;
  hark_status status = HARK_OK;
  out->complete = true;
  for (int64_t first = 0, done = 0; first < evaluation.windows && status == HARK_OK; first = done) {
    batch.rows = batch_rows(engine, &evaluation, first, rows);
    batch.length = length;
    done = first + batch.rows;
    status = add_batch(context, engine, &evaluation, first, task, &batch, &sum, out);
    if (task->progress != NULL && status == HARK_OK && !task->progress(task->user, (double)done / (double)evaluation.windows)) {
      out->complete = done >= evaluation.windows;
      break;
    }
  }
  hark_release(context, memory, bytes);
  out->loss = out->targets > 0 ? sum / (double)out->targets : NAN;
  return status;
}
