/* schedule.h - the learning rate of every step.
 *
 *   warm-up   t <= W:  peak t / W                                               (steps are counted from 1)
 *   constant  peak
 *   cosine    minimum + (peak - minimum) (1 + cos(pi u)) / 2,  u = (t - W) / (T - W)
 *   linear    peak + (minimum - peak) u
 *   rsqrt     peak sqrt(max(W, 1) / t)                                          (Vaswani et al. 2017, section 5.3)
 *
 * Two of Long Range Arena's (arXiv 2011.04006), whose rate is not a peak and whose cosine has the period of the whole run:
 *
 *   base_rsqrt   base min(1, t / W) / sqrt(max(t, W))                           rsqrt with peak = base / sqrt(W)
 *   cycle        base min(1, t / W) (1 + cos(pi (max(t - W, 0) / T mod 1))) / 2
 *
 * A warm-up may be longer than the run, whose rate then rises to its end.
 *
 * A run that goes on with another length has a new plan, which begins after step s with a rate r of its own and has no warm-up:
 *
 *   constant            r
 *   cosine, linear      as above from r to minimum,  u = (t - s) / (T - s)
 *   rsqrt, base_rsqrt   r sqrt(s / t)
 *   cycle               r (1 + cos(pi u)) / 2
 *
 * A run whose length is corrected on the way from T to T', after its step s, has in the place of t
 *
 *   t' = s' + (T - s') (t - s) / (T' - s),   s' what stood in the place of s,
 *
 * so that its rates have no jump and come to the same end; constant, rsqrt and base_rsqrt, which have none, stay as they are.
 */
#ifndef HARK_TRAIN_SCHEDULE_H
#define HARK_TRAIN_SCHEDULE_H

#include "train/config.h"

/* What the rates of a run's steps follow from, beside its configuration. It is a part of the run's state: a run in parts has the rates of a
 * run in one. */
typedef struct hark_schedule_plan {
  int64_t steps;        /* T; 0: there is no plan yet */
  int64_t warmup;       /* W, where it is shorter than the configuration's; 0: that one */
  int64_t from;         /* s; 0: the configuration's schedule from the first step on */
  double rate;          /* r; of no meaning where from is 0 */
  int64_t turned;       /* step after which the length was changed; 0: never */
  double remaining;     /* part of the training that was to come there, for what changes in its course (hark_schedule_remaining) */
  double learning_rate; /* of the configuration when the plan was made */
  int64_t bent;         /* step after which the length was corrected the last time (hark_schedule_corrected); 0: never */
  double bent_at;       /* the schedule's own step there */
  int64_t drawn;        /* T of the schedule then: its steps from bent_at to there stretch over the run's from `bent` to `steps` */
} hark_schedule_plan;

/* The plan of a run of `steps` steps from its first one on. */
hark_schedule_plan hark_schedule_plan_of(const hark_config *config, int64_t steps);

/* The plan of a run that has made `step` steps of `before`, whose last one had the rate `rate`, and is to have `steps`: as train.extend
 * says. It is `before` where length and learning rate are the same, or nothing is left to do; it begins with config's learning rate where
 * that is another one. */
hark_schedule_plan hark_schedule_extended(const hark_config *config, const hark_schedule_plan *before, int64_t step, double rate,
                                          int64_t steps);

/* The plan of a run that is under way, has made `step` steps of `before`, and will have `steps` (more than `step`) because its pace is
 * another one than was planned with: what is left of the schedule is stretched or pressed together over what is left of the steps. */
hark_schedule_plan hark_schedule_corrected(const hark_config *config, const hark_schedule_plan *before, int64_t step, int64_t steps);

/* Rate of step t of [1, T]. */
double hark_schedule_plan_rate(const hark_config *config, const hark_schedule_plan *plan, int64_t step);
/* The same of a run from its first step on. */
double hark_schedule_rate(const hark_config *config, int64_t step, int64_t total);

/* Part of the training that is to come after so many micro-batches, of which a step has `accumulate`: 1 at the beginning of a run, 0 at its
 * end. One that goes on with another length keeps what it has reached, unless train.extend is stretch. */
double hark_schedule_remaining(const hark_schedule_plan *plan, int64_t micro_batches, int64_t accumulate);

#endif
