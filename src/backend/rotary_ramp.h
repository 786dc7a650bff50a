/* rotary_ramp.h - which rates of rotary positions YaRN slows down: those of pairs that turn few times within the training length.
 *
 * Peng et al., arXiv 2309.00071, section 3.2, print a kept fraction that is linear in the turns of a pair. In their program, the
 * checkpoints trained with it, transformers' _compute_yarn_parameters and hark it is linear in the pair's index.
 */
#ifndef HARK_BACKEND_ROTARY_RAMP_H
#define HARK_BACKEND_ROTARY_RAMP_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

/* Turns from which a pair keeps its rate, and up to which the whole factor slows it down: the paper's values for Llama. */
#define HARK_ROTARY_FAST_TURNS 32.0
#define HARK_ROTARY_SLOW_TURNS 1.0

#define HARK_TWO_PI 6.283185307179586477

/* Pairs up to `first` keep their rate, pairs from `last` on keep none of it. */
typedef struct hark_rotary_ramp {
  double first, last;
} hark_rotary_ramp;

/* The (fractional) index of the pair of d features that makes so many turns within `length` tokens; the base is above 1. */
static inline double hark_rotary_pair_of_turns(double turns, double base, int64_t d, double length) {
  return (double)d * log(length / (turns * HARK_TWO_PI)) / (2 * log(base));
}

/* truncate: both ends are rounded outwards to whole numbers. */
static inline hark_rotary_ramp hark_rotary_ramp_of(double base, int64_t d, double length, double fast, double slow, bool truncate) {
  const double first = hark_rotary_pair_of_turns(fast, base, d, length), last = hark_rotary_pair_of_turns(slow, base, d, length);
  hark_rotary_ramp ramp = {fmax(0, truncate ? floor(first) : first), fmin((double)(d - 1), truncate ? ceil(last) : last)};
  if (ramp.first == ramp.last) ramp.last += 0.001; /* as published: the ramp must not have width zero */
  return ramp;
}

/* The fraction of pair j's rate that is kept; the rest is divided by the factor. */
static inline double hark_rotary_ramp_kept(hark_rotary_ramp ramp, int64_t j) {
  return 1 - fmin(1, fmax(0, ((double)j - ramp.first) / (ramp.last - ramp.first)));
}

/* The same by the formula printed in the paper, for a pair of this rate. */
static inline double hark_rotary_turns_kept(double rate, double length, double fast, double slow) {
  return fmin(1, fmax(0, (length * rate / HARK_TWO_PI - slow) / (fast - slow)));
}

#endif
