/* evaluation_rounds.h - the batches of an evaluation, one after the other, or each by one process of a group: as many at once as there are
 * processes. Sums are added in the order of batches, so that they have the same bits for any number of processes. */
#ifndef HARK_TRAIN_EVALUATION_ROUNDS_H
#define HARK_TRAIN_EVALUATION_ROUNDS_H

#include "train/evaluate.h"

typedef struct hark_batch_sums {
  double loss;
  int64_t targets, correct, examples, tokens;
  int64_t pivots; /* of kernel ridge attention, set by hark_evaluate_rounds() */
} hark_batch_sums;

typedef struct hark_evaluation_rounds {
  int64_t batches;
  hark_status (*measure)(void *user, int64_t batch, hark_batch_sums *out); /* of one batch; *out is zero before */
  void *user;
  int64_t more;                       /* further sums of a batch, as many of every batch; 0: none */
  double *more_batch;                 /* [more]: set by measure, zeros before */
  double *more_sums;                  /* [more]: of all batches, added to what is there */
  int64_t counted;                    /* numbers that measure has counted itself, which are added at the end; 0: none */
  int64_t *counts;                    /* [counted]: of this process, then of all at rank 0 */
  hark_evaluation_progress *progress; /* NULL: none */
  void *progress_user;
} hark_evaluation_rounds;

/* *sums <- those of all batches; *complete: none is missing, because progress has not stopped it. With statistics of ahca, which are sums
 * over batches too, every process measures all batches. Errors: those of measure, of any process. */
HARK_MUST_CHECK hark_status hark_evaluate_rounds(hark_context *context, hark_engine *engine, const hark_evaluation_rounds *rounds,
                                                 hark_batch_sums *sums, bool *complete);

#endif
