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
 */
#ifndef HARK_TRAIN_SCHEDULE_H
#define HARK_TRAIN_SCHEDULE_H

#include "train/config.h"

/* Rate of step t of [1, total]. */
double hark_schedule_rate(const hark_config *config, int64_t step, int64_t total);

#endif
