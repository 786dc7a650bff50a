/* gelu_value.h - x Phi(x), its tanh approximation, and their derivatives, in float64: for gelu.c and gated_gelu.c. */
#ifndef HARK_OPS_GELU_VALUE_H
#define HARK_OPS_GELU_VALUE_H

#include <math.h>
#include <stdbool.h>

#define SQRT_HALF 0.70710678118654752440
#define INVERSE_SQRT_2PI 0.39894228040143267794
#define SQRT_2_OVER_PI 0.79788456080286535588
#define CUBIC 0.044715

/* erfc keeps the relative accuracy of the left tail, where 1 + erf cancels. */
static inline double gelu_value(double x, bool tanh_approximation) {
  if (tanh_approximation) return 0.5 * x * (1 + tanh(SQRT_2_OVER_PI * (x + CUBIC * x * x * x)));
  return 0.5 * x * erfc(-x * SQRT_HALF);
}

static inline double gelu_slope(double x, bool tanh_approximation) {
  if (tanh_approximation) {
    const double t = tanh(SQRT_2_OVER_PI * (x + CUBIC * x * x * x));
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * SQRT_2_OVER_PI * (1 + 3 * CUBIC * x * x);
  }
  return 0.5 * erfc(-x * SQRT_HALF) + x * INVERSE_SQRT_2PI * exp(-0.5 * x * x);
}

#endif
