/* pace.h - how long a run's parts take, and what fits into a time.
 *
 * Of N steps with an evaluation every e and a checkpoint every c of them:
 *
 *   cost(N) = N step + (n_e + 1) (evaluation + save) + n_c save,   n_e = multiples of e before the last step, n_c alike
 *
 * since an evaluation and a checkpoint stand at the end, and every evaluation may be the best so far, which is saved.
 */
#ifndef HARK_TRAIN_PACE_H
#define HARK_TRAIN_PACE_H

#include "core/core.h"

/* Seconds. */
typedef struct hark_pace {
  double step, evaluation, save; /* evaluation 0: there is none */
} hark_pace;

/* Steps between evaluations and checkpoints; 0: at the end only. */
typedef struct hark_pace_every {
  int64_t evaluation, checkpoint;
} hark_pace_every;

/* Seconds of the steps (first, last], the run ending at `last`. */
double hark_pace_cost(const hark_pace *pace, const hark_pace_every *every, int64_t first, int64_t last);

/* The last step that a run which has made `first` reaches in `seconds`: at least first + 1. */
int64_t hark_pace_reach(const hark_pace *pace, const hark_pace_every *every, int64_t first, double seconds);

/* Whether an evaluation is so long that it would take more than half of the time. */
bool hark_pace_is_evaluation_too_long(const hark_pace *pace, double seconds);

/* Steps over which the rate rises in a run whose length follows from a time: `warmup`, or a tenth of the steps where that is less, but
 * 1. */
int64_t hark_pace_warmup(int64_t warmup, int64_t steps);

/* What is to be measured. A step works as one of the run does, and what comes of it is thrown away. */
typedef struct hark_pace_task {
  void *user;
  double (*clock)(void *user); /* seconds */
  hark_status (*step)(void *user, int64_t number);
  /* Evaluates until `until` at the latest, by the clock; *part: how much was done, in (0, 1]. NULL: there is nothing to evaluate. */
  hark_status (*evaluate)(void *user, double until, double *part);
  /* Saves the run somewhere else, and removes it. NULL: pace->save is known. */
  hark_status (*save)(void *user);
  bool (*stopped)(void *user); /* asked after every step; true: what is known has to do */
} hark_pace_task;

/* Measures steps (at least one, in a fiftieth of the time or so), of which the mean counts: what else takes the processor will take it from
 * the run too. Measures a save, where pace->save, what it is expected to take, is short beside the time; and an evaluation. */
HARK_MUST_CHECK hark_status hark_pace_measure(const hark_pace_task *task, double seconds, bool steps_too, hark_pace *pace);

#endif
