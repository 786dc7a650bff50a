/* schedule.h - the learning rate of every step.
 *
 *   warm-up   t <= W:  peak t / W                                               (steps are counted from 1)
 *   constant  peak
 *   cosine    minimum + (peak - minimum) (1 + cos(pi u)) / 2,  u = (t - W) / (T - W)
 *   linear    peak + (minimum - peak) u
 *   rsqrt     peak sqrt(max(W, 1) / t)                                          (Vaswani et al. 2017, section 5.3)
 */
#ifndef HARK_TRAIN_SCHEDULE_H
#define HARK_TRAIN_SCHEDULE_H

#include "train/config.h"

/* Rate of step t of [1, total]. */
double hark_schedule_rate(const hark_config *config, int64_t step, int64_t total);

#endif
