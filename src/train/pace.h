/* pace.h - how long the parts of a run take, and how many steps fit into a given time.
 *
 * Of N steps with an evaluation every e and a checkpoint every c of them:
 *
 *   cost(N) = N step + (n_e + 1) (evaluation + save) + n_c save,   n_e, n_c = multiples of e and c before the last step
 *
 * because a run ends with an evaluation and a checkpoint, and every evaluation may be the best so far, which is then saved.
 */
#ifndef HARK_TRAIN_PACE_H
#define HARK_TRAIN_PACE_H

#include "core/core.h"

/* Seconds. */
typedef struct hark_pace {
  double step, evaluation, save; /* evaluation 0: no evaluations */
} hark_pace;

/* Steps between evaluations and between checkpoints; 0: only at the end. */
typedef struct hark_pace_every {
  int64_t evaluation, checkpoint;
} hark_pace_every;

/* Seconds of the steps (first, last] of a run that ends at `last`. */
double hark_pace_cost(const hark_pace *pace, const hark_pace_every *every, int64_t first, int64_t last);

/* The last step that a run reaches in `seconds` after `first` steps: at least first + 1. */
int64_t hark_pace_reach(const hark_pace *pace, const hark_pace_every *every, int64_t first, double seconds);

/* Whether an evaluation would take more than half of the time. */
bool hark_pace_is_evaluation_too_long(const hark_pace *pace, double seconds);

/* Warm-up steps of a run whose length is derived from a time: the smaller of `warmup` and a tenth of the steps, but at least 1. */
int64_t hark_pace_warmup(int64_t warmup, int64_t steps);

/* Functions to be measured. A step does the same work as a step of the run; its result is discarded. */
typedef struct hark_pace_task {
  void *user;
  double (*clock)(void *user); /* seconds */
  hark_status (*step)(void *user, int64_t number);
  /* Evaluates until the time `until` of the clock at the latest; *part: the fraction done, in (0, 1]. NULL: there is no evaluation. */
  hark_status (*evaluate)(void *user, double until, double *part);
  /* Saves the run at another place and removes it there. NULL: pace->save is known. */
  hark_status (*save)(void *user);
  bool (*stopped)(void *user); /* called after every step; true: measuring ends with what is known so far */
} hark_pace_task;

/* Measures steps (at least one, for about a fiftieth of the time) and uses their mean, since other load on the processor will slow the run
 * too. Measures a save if pace->save, its expected time, is short compared with the time; and an evaluation. */
HARK_MUST_CHECK hark_status hark_pace_measure(const hark_pace_task *task, double seconds, bool steps_too, hark_pace *pace);

#endif
