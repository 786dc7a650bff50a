/* rotary_rate.c - the angle by which a pair of features turns per position, for the definition and for kernels of every backend. */
#include <hark/operators.h>
#include <math.h>

#include "backend/rotary_ramp.h"

double hark_rotary_rate(const hark_rotary_attributes *attributes, int64_t d, int64_t j) {
  const double rate = attributes->rates != NULL ? attributes->rates[j] : pow(attributes->base, -2 * (double)j / (double)d);
  if (attributes->stretch == 0) return rate;
  if (attributes->original_length == 0) return rate / attributes->stretch;
  const hark_rotary_ramp ramp =
      hark_rotary_ramp_of(attributes->base, d, (double)attributes->original_length, HARK_ROTARY_FAST_TURNS, HARK_ROTARY_SLOW_TURNS, true);
  const double kept = hark_rotary_ramp_kept(ramp, j);
  return (1 - kept) * rate / attributes->stretch + kept * rate;
}
