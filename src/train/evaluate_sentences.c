/* evaluate_sentences.c - see evaluate_sentences.h. */
#include "train/evaluate_sentences.h"

#include <math.h>

hark_sentences_settings hark_sentences_settings_of(const hark_config *config, hark_split split, bool evaluation) {
  return (hark_sentences_settings){.split = split,
                                   .context = config->model.context,
                                   .order = evaluation ? HARK_ORDER_SEQUENTIAL : (hark_order)config->data.order,
                                   .seed = (uint64_t)config->train.seed,
                                   .refuse_longer = config->data.long_sentences == HARK_LONG_REFUSE};
}

hark_status hark_evaluate_sentences(hark_context *context, hark_engine *engine, const hark_sentences *sentences, hark_example_room *room,
                                    hark_evaluation_progress *progress, void *user, hark_evaluation_result *out) {
  const int64_t rows = engine->config->train.batch;
  double sum = 0;
  *out = (hark_evaluation_result){.complete = true};
  for (int64_t first = 0; first < sentences->windows; first += rows) {
    const int64_t here = hark_min(rows, sentences->windows - first), done = first + here;
    const int32_t *predicted;
    hark_pass_result pass;
    HARK_TRY(hark_sentences_read(context, sentences, first, here, &room->batch));
    HARK_TRY(hark_engine_evaluate_examples(context, engine, &room->batch, &pass, &predicted));
    sum += pass.loss;
    out->targets += room->batch.real;
    if (progress == NULL || progress(user, (double)done / (double)sentences->windows)) continue;
    out->complete = done >= sentences->windows;
    break;
  }
  out->loss = out->targets > 0 ? sum / (double)out->targets : NAN;
  return HARK_OK;
}
