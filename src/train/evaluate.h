/* evaluate.h - the mean loss over a split of a text, and by position in the window. */
#ifndef HARK_TRAIN_EVALUATE_H
#define HARK_TRAIN_EVALUATE_H

#include "train/engine.h"

/* Called after every batch with the fraction that is done; returns false to stop. */
typedef bool hark_evaluation_progress(void *user, double part);

/* Positions in a window in buckets: one position each up to 7, then four buckets from each power of two to the next: 8-9, 10-11, 12-13,
 * 14-15, 16-19, ... The target of position p is predicted from the first p + 1 tokens of its window. */
#define HARK_POSITION_BUCKETS 92 /* up to a context of 2^24 */
int64_t hark_position_first(int bucket);

/* Number of buckets for the positions of a window of `length` tokens, and the last position of a bucket there. */
int hark_position_buckets(int64_t length);
int64_t hark_position_last(int bucket, int64_t length);

typedef struct hark_position_loss {
  double sum; /* nats */
  int64_t targets;
} hark_position_loss;

typedef struct hark_evaluation_result {
  double loss; /* nats per target (a token, or a masked token); NaN: there was no target */
  int64_t targets;
  int64_t correct;                                     /* predictions of masked tokens, or of tokens of its input; else 0 */
  bool complete;                                       /* false: stopped, and the loss is that of the evaluated part */
  hark_position_loss positions[HARK_POSITION_BUCKETS]; /* zeros where they are not requested */
} hark_evaluation_result;

/* Zero it and fill what applies. */
typedef struct hark_evaluation_task {
  hark_evaluation_settings text; /* which targets, in which windows; the context length is the engine's */
  bool positions;                /* report the losses by position too */
  hark_evaluation_progress *progress;
  void *user;
} hark_evaluation_task;

/* Evaluates every target of the text once. The loss is the same with and without `positions`. Errors: those of data and engine. */
HARK_MUST_CHECK hark_status hark_evaluate(hark_context *context, hark_engine *engine, const hark_corpus *corpus,
                                          const hark_evaluation_task *task, hark_evaluation_result *out);

#endif
