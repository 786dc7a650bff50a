/* evaluate.h - the mean loss over a split of a text, and by position in the window. */
#ifndef HARK_TRAIN_EVALUATE_H
#define HARK_TRAIN_EVALUATE_H

#include "train/engine.h"

/* Called after every batch with the part that is done; returns false to give up. */
typedef bool hark_evaluation_progress(void *user, double part);

/* Positions in a window in buckets: one position each up to 7, then four buckets from each power of two to the next: 8-9, 10-11, 12-13,
 * 14-15, 16-19, ... The target of position p is told from the p + 1 tokens at the front of its window. */
#define HARK_POSITION_BUCKETS 92 /* up to a context of 2^24 */
int64_t hark_position_first(int bucket);

/* How many buckets the positions of a window of `length` tokens lie in, and the last position of a bucket there. */
int hark_position_buckets(int64_t length);
int64_t hark_position_last(int bucket, int64_t length);

typedef struct hark_position_loss {
  double sum; /* nats */
  int64_t targets;
} hark_position_loss;

typedef struct hark_evaluation_result {
  double loss; /* nats a target: a token, or a hidden one; NaN: there was none */
  int64_t targets;
  int64_t right;                                       /* of a model that tells hidden tokens: those that it told; else 0 */
  bool complete;                                       /* false: given up, the loss is that of the part seen */
  hark_position_loss positions[HARK_POSITION_BUCKETS]; /* zeros where they are not asked for */
} hark_evaluation_result;

/* Zero it and fill what applies. */
typedef struct hark_evaluation_task {
  hark_evaluation_settings text; /* which targets, in which windows; the context is the engine's */
  bool positions;                /* tell the losses by position too */
  hark_evaluation_progress *progress;
  void *user;
} hark_evaluation_task;

/* Every target of the text once. The loss does not depend on whether positions are asked for. Errors: those of data and engine. */
HARK_MUST_CHECK hark_status hark_evaluate(hark_context *context, hark_engine *engine, const hark_corpus *corpus,
                                          const hark_evaluation_task *task, hark_evaluation_result *out);

#endif
