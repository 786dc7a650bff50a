/* schedule.h - the learning rate of every step.
 *
 *   warm-up   t <= W:  peak t / W                                               (steps are counted from 1)
 *   constant  peak
 *   cosine    minimum + (peak - minimum) (1 + cos(pi u)) / 2,  u = (t - W) / (T - W)
 *   linear    peak + (minimum - peak) u
 *   rsqrt     peak sqrt(max(W, 1) / t)                                          (Vaswani et al. 2017, section 5.3)
 *
 * Two schedules of Long Range Arena (arXiv 2011.04006). The base rate is not the peak, and the cosine falls to 0 in T steps after the
 * warm-up:
 *
 *   base_rsqrt   base min(1, t / W) / sqrt(max(t, W))                           rsqrt with peak = base / sqrt(W)
 *   cycle        base min(1, t / W) (1 + cos(pi (max(t - W, 0) / T mod 1))) / 2
 *
 * A warm-up may be longer than the run; the rate then rises until the end.
 *
 * A run that is continued with another length has a new plan without warm-up, which begins after step s with a rate r:
 *
 *   constant            r
 *   cosine, linear      as above from r to minimum,  u = (t - s) / (T - s)
 *   rsqrt, base_rsqrt   r sqrt(s / t)
 *   cycle               r (1 + cos(pi u)) / 2
 *
 * If the length of a run is corrected from T to T' after step s, the schedule uses t' instead of t:
 *
 *   t' = s' + (T - s') (t - s) / (T' - s),   s' the value used for s before
 *
 * So rates do not jump and have the same final value. constant, rsqrt and base_rsqrt have no end and do not change.
 */
#ifndef HARK_TRAIN_SCHEDULE_H
#define HARK_TRAIN_SCHEDULE_H

#include "train/config.h"

/* The plan determines, with the configuration, the rates of a run's steps. It is part of the run's state, so a run in parts has the same
 * rates as an uninterrupted run. */
typedef struct hark_schedule_plan {
  int64_t steps;        /* T; 0: there is no plan yet */
  int64_t warmup;       /* W, where it is shorter than the configuration's; 0: the configuration's */
  int64_t from;         /* s; 0: the configuration's schedule applies from the first step on */
  double rate;          /* r; unused where from is 0 */
  int64_t turned;       /* step after which the length was changed; 0: never */
  double remaining;     /* fraction of the training that remained there (hark_schedule_remaining) */
  double learning_rate; /* the configuration's when the plan was made */
  int64_t bent;         /* step after which the length was corrected the last time (hark_schedule_corrected); 0: never */
  double bent_at;       /* the schedule's step t' there */
  int64_t drawn;        /* the schedule's T then: its steps bent_at .. drawn are mapped to the run's steps bent .. steps */
} hark_schedule_plan;

/* The plan of a new run of `steps` steps. */
hark_schedule_plan hark_schedule_plan_of(const hark_config *config, int64_t steps);

/* The plan, according to train.extend, of a run that has made `step` steps of the plan `before`, the last at rate `rate`, and is to have
 * `steps` steps. It is `before` if length and learning rate are the same or no steps remain. It begins with the configuration's learning
 * rate if that has changed. */
hark_schedule_plan hark_schedule_extended(const hark_config *config, const hark_schedule_plan *before, int64_t step, double rate,
                                          int64_t steps);

/* The plan of a run in progress that has made `step` steps of the plan `before` and will have `steps` steps (more than `step`), because its
 * pace differs from the planned one: the rest of the schedule is stretched or compressed to the remaining steps. */
hark_schedule_plan hark_schedule_corrected(const hark_config *config, const hark_schedule_plan *before, int64_t step, int64_t steps);

/* Rate of step `step` in [1, T]. */
double hark_schedule_plan_rate(const hark_config *config, const hark_schedule_plan *plan, int64_t step);
/* The same for the plan of a new run. */
double hark_schedule_rate(const hark_config *config, int64_t step, int64_t total);

/* Fraction of the training that remains after `micro_batches` micro-batches, `accumulate` per step: 1 at the beginning of a run, 0 at its
 * end. A run that is continued with another length keeps the value it has reached, unless train.extend is stretch. */
double hark_schedule_remaining(const hark_schedule_plan *plan, int64_t micro_batches, int64_t accumulate);

#endif
