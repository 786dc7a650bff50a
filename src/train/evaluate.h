/* evaluate.h - the mean loss over a whole split of a text. */
#ifndef HARK_TRAIN_EVALUATE_H
#define HARK_TRAIN_EVALUATE_H

#include "train/engine.h"

/* Called after every batch with the part that is done; returns false to give up. */
typedef bool hark_evaluation_progress(void *user, double part);

typedef struct hark_evaluation_result {
  double loss; /* nats a token */
  int64_t targets;
  bool complete; /* false: given up, the loss is that of the part seen */
} hark_evaluation_result;

/* Windows of the engine's context, one after the other, each target once. `progress` may be NULL. Errors: those of data and engine. */
HARK_MUST_CHECK hark_status hark_evaluate(hark_context *context, hark_engine *engine, const hark_corpus *corpus, hark_split split,
                                          hark_evaluation_progress *progress, void *user, hark_evaluation_result *out);

#endif
