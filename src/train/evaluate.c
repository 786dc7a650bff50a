/* evaluate.c - see evaluate.h. */
#include "train/evaluate.h"

hark_status hark_evaluate(hark_context *context, hark_engine *engine, const hark_corpus *corpus, hark_split split,
                          hark_evaluation_progress *progress, void *user, hark_evaluation_result *out) {
  *out = (hark_evaluation_result){0};
  hark_evaluation evaluation;
  const int64_t batch = engine->config->train.batch, length = engine->config->model.context;
  HARK_TRY(hark_evaluation_create(context, corpus, split, length, &evaluation));
  const size_t bytes = (size_t)(2 * batch * length) * sizeof(int32_t);
  void *memory = NULL;
  HARK_TRY(hark_allocate(context, bytes, &memory));
  int32_t *inputs = memory, *targets = inputs + batch * length;
  double sum = 0;
  hark_status status = HARK_OK;
  out->complete = true;
  for (int64_t first = 0; first < evaluation.windows && status == HARK_OK; first += batch) {
    const int64_t rows = hark_min(batch, evaluation.windows - first);
    int64_t real = 0;
    double part = 0;
    status = hark_evaluation_read(context, &evaluation, first, rows, inputs, targets, &real);
    if (status == HARK_OK) status = hark_engine_evaluate(context, engine, inputs, targets, rows, &part);
    sum += part;
    out->targets += real;
    if (progress != NULL && status == HARK_OK && !progress(user, (double)(first + rows) / (double)evaluation.windows)) {
      out->complete = first + rows >= evaluation.windows;
      break;
    }
  }
  hark_release(context, memory, bytes);
  if (out->targets > 0) out->loss = sum / (double)out->targets;
  return status;
}
