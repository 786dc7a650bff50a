/* evaluate_sentences.c - see evaluate_sentences.h. */
#include "train/evaluate_sentences.h"

#include <math.h>

#include "train/evaluation_rounds.h"

hark_sentences_settings hark_sentences_settings_of(const hark_config *config, hark_split split, bool evaluation) {
  return (hark_sentences_settings){.split = split,
                                   .context = config->model.context,
                                   .order = evaluation ? HARK_ORDER_SEQUENTIAL : (hark_order)config->data.order,
                                   .seed = (uint64_t)config->train.seed,
                                   .refuse_longer = config->data.long_sentences == HARK_LONG_REFUSE};
}

typedef struct sentence_batches {
  hark_context *context;
  hark_engine *engine;
  const hark_sentences *sentences;
  hark_example_batch *batch;
} sentence_batches;

static hark_status measure(void *user, int64_t index, hark_batch_sums *out) {
  const sentence_batches *const s = user;
  const int64_t rows = s->engine->config->train.batch, first = index * rows;
  const int32_t *predicted;
  hark_pass_result pass;
  HARK_TRY(hark_sentences_read(s->context, s->sentences, first, hark_min(rows, s->sentences->windows - first), s->batch));
  HARK_TRY(hark_engine_evaluate_examples(s->context, s->engine, s->batch, &pass, &predicted));
  *out = (hark_batch_sums){.loss = pass.loss, .targets = s->batch->real};
  return HARK_OK;
}

hark_status hark_evaluate_sentences(hark_context *context, hark_engine *engine, const hark_sentences *sentences, hark_example_room *room,
                                    hark_evaluation_progress *progress, void *user, hark_evaluation_result *out) {
  sentence_batches batches = {context, engine, sentences, &room->batch};
  const hark_evaluation_rounds rounds = {.batches = hark_ceil_div(sentences->windows, engine->config->train.batch),
                                         .measure = measure,
                                         .user = &batches,
                                         .progress = progress,
                                         .progress_user = user};
  hark_batch_sums sums;
  *out = (hark_evaluation_result){0};
  HARK_TRY(hark_evaluate_rounds(context, engine, &rounds, &sums, &out->complete));
  out->targets = sums.targets;
  out->loss = sums.targets > 0 ? sums.loss / (double)sums.targets : NAN;
  return HARK_OK;
}
