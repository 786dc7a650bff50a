/* rotary_rate.c - how far a pair of features turns from one position to the next, for the definition and for kernels of every backend. */
#include <hark/operators.h>
#include <math.h>

/* Turns within the original length: pairs of fewer than the first are interpolated, those of more than the second left alone (arXiv
 * 2309.00071, section 3.2: alpha and beta). */
#define SELDOM_TURNS 1.0
#define MANY_TURNS 32.0
#define TWO_PI 6.283185307179586477

double hark_rotary_rate(const hark_rotary_attributes *attributes, int64_t d, int64_t j) {
  const double rate = pow(attributes->base, -2 * (double)j / (double)d);
  if (attributes->stretch == 0) return rate;
  if (attributes->original_length == 0) return rate / attributes->stretch;
  const double turns = (double)attributes->original_length * rate / TWO_PI;
  const double kept = fmin(1, fmax(0, (turns - SELDOM_TURNS) / (MANY_TURNS - SELDOM_TURNS)));
  return (1 - kept) * rate / attributes->stretch + kept * rate;
}
