/* evaluate.c - see evaluate.h.
 *
 * Losses by position are computed from the batch's logits: one sum per bucket, with all other targets ignored. Together these sums read
 * every row of logits once more, and need no further memory of the size of the logits.
 */
#include "train/evaluate.h"

#include <math.h>

#include "train/evaluation_rounds.h"

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

/* Losses and numbers of targets by position, in turn. */
static hark_status measure_positions(hark_context *context, hark_engine *engine, const window_batch *batch, double *positions) {
  for (int bucket = 0; bucket < hark_position_buckets(batch->length); bucket++) {
    const int64_t count = choose_targets(batch, hark_position_first(bucket), hark_position_last(bucket, batch->length));
    if (count == 0) continue;
    HARK_TRY(hark_engine_loss(context, engine, batch->some, &positions[2 * (ptrdiff_t)bucket]));
    positions[2 * (ptrdiff_t)bucket + 1] = (double)count;
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

/* An evaluation of windows. The last one, if the text does not fill it, is a batch of its own for a model that sees its whole window, which
 * would see padding after the end of the text. */
typedef struct window_walk {
  hark_context *context;
  hark_engine *engine;
  hark_evaluation evaluation;
  const hark_evaluation_task *task;
  window_batch batch;
  int64_t together;                                                                        /* windows of full batches */
  double batch_positions[2 * HARK_POSITION_BUCKETS], positions[2 * HARK_POSITION_BUCKETS]; /* losses and targets of the buckets in turn */
} window_walk;

/* Number of the windows that are not a batch of their own. */
static int64_t count_together(const hark_engine *engine, const hark_evaluation *evaluation) {
  const int64_t windows = evaluation->windows;
  const bool alone = engine->network->architecture->predicts_masked && windows > 0 &&
                     hark_evaluation_tokens(evaluation, windows - 1) != evaluation->settings.context;
  return windows - alone;
}

static hark_status measure(void *user, int64_t index, hark_batch_sums *out) {
  window_walk *const walk = user;
  window_batch *const batch = &walk->batch;
  hark_engine *const engine = walk->engine;
  const bool hides = engine->network->architecture->predicts_masked;
  const int64_t rows = engine->config->train.batch, first = hark_min(index * rows, walk->together);
  batch->rows = first < walk->together ? hark_min(rows, walk->together - first) : 1;
  batch->length = engine->config->model.context;
  HARK_TRY(hark_evaluation_read(walk->context, &walk->evaluation, first, batch->rows, batch->inputs, batch->targets, &out->targets));
  if (hides) {
    batch->length = hark_min(batch->length, hark_evaluation_tokens(&walk->evaluation, first));
    out->targets = hide_tokens(engine, first, batch);
    if (out->targets == 0) return HARK_OK;
  }
  HARK_TRY(hark_engine_predict(walk->context, engine, batch->inputs, batch->targets, batch->rows, batch->length));
  HARK_TRY(hark_engine_loss(walk->context, engine, batch->targets, &out->loss));
  if (hides) HARK_TRY(hark_engine_correct(walk->context, engine, batch->targets, batch->some, &out->correct));
  return walk->task->positions ? measure_positions(walk->context, engine, batch, walk->batch_positions) : HARK_OK;
}

hark_status hark_evaluate(hark_context *context, hark_engine *engine, const hark_corpus *corpus, const hark_evaluation_task *task,
                          hark_evaluation_result *out) {
  *out = (hark_evaluation_result){0};
  window_walk walk = {.context = context, .engine = engine, .task = task};
  hark_evaluation_settings settings = task->text;
  const int64_t rows = engine->config->train.batch, length = engine->config->model.context;
  settings.context = length;
  HARK_TRY(hark_evaluation_create(context, corpus, &settings, &walk.evaluation));
  walk.together = count_together(engine, &walk.evaluation);
  const bool some = task->positions || engine->network->architecture->predicts_masked;
  const size_t bytes = (size_t)((some ? 3 : 2) * rows * length) * sizeof(int32_t);
  void *memory = NULL;
  HARK_TRY(hark_engine_end_work(context, engine, hark_allocate(context, bytes, &memory)));
  walk.batch.inputs = memory;
  walk.batch.targets = walk.batch.inputs + rows * length;
  walk.batch.some = some ? walk.batch.targets + rows * length : NULL;
  const hark_evaluation_rounds rounds = {.batches = hark_ceil_div(walk.together, rows) + (walk.evaluation.windows - walk.together),
                                         .measure = measure,
                                         .user = &walk,
                                         .more = task->positions ? 2 * HARK_POSITION_BUCKETS : 0,
                                         .more_batch = walk.batch_positions,
                                         .more_sums = walk.positions,
                                         .progress = task->progress,
                                         .progress_user = task->user};
  hark_batch_sums sums;
  const hark_status status = hark_evaluate_rounds(context, engine, &rounds, &sums, &out->complete);
  hark_release(context, memory, bytes);
  for (ptrdiff_t i = 0; i < HARK_POSITION_BUCKETS; i++)
    out->positions[i] = (hark_position_loss){.sum = walk.positions[2 * i], .targets = (int64_t)walk.positions[2 * i + 1]};
  out->targets = sums.targets;
  out->correct = sums.correct;
  out->loss = sums.targets > 0 ? sums.loss / (double)sums.targets : NAN;
  return status;
}
