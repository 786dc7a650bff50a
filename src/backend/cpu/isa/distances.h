/* distances.h - exponents of the Gaussian kernel: when its squared distances may come from a product, and when they must not.
 *
 *     -|x - y|^2 / (2 sigma^2) = x.y / sigma^2 - |x|^2 / (2 sigma^2) - |y|^2 / (2 sigma^2)
 *
 * The right side costs a product of matrices, but its three numbers cancel. With the half squares h(x) = |x|^2 / (2 sigma^2) its error is
 * at most (d + 4) u N, u = 2^-24, and about u N on average, where N = (sqrt h(x) + sqrt h(y))^2 is the spread of the pair. Rows of ordinary
 * size have a spread of a few times d, and products suffice. A pair with a significant weight and a spread above a bound is computed from
 * the differences of its rows in float64: its exponent is then correct to f32 wherever the two rows are. The product itself, whose error is
 * known, shows whether the weight is significant: its exponent plus HARK_DISTANCE_SLACK(d) N is an upper bound of the exponent.
 *
 * Whether a pair is computed from differences depends on its two rows, and on what the query's row saw before: never on rows that it does
 * not see, nor on the number of threads. Half squares and exponents are in units of log 2.
 */
#ifndef HARK_BACKEND_CPU_ISA_DISTANCES_H
#define HARK_BACKEND_CPU_ISA_DISTANCES_H

#include <float.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "backend/cpu/simd.h"

/* Weights of softmax come from products up to this spread: error 2^-16 of a weight, about 2^-24 per unit. */
#define HARK_DISTANCE_SPREAD 256.0f
#define HARK_DISTANCE_FAINT (-40.0f) /* a weight below 2^this of a row's sum is not significant */
/* Twice the worst rounding of a sum of d products and of the two additions. */
#define HARK_DISTANCE_SLACK(features) ((float)((features) + 16) * 0x1p-23f)

#define HARK_DISTANCE_LOG2_E 1.44269504088896340736

/* RBF: |q|^2 / (2 sigma^2) in units of log 2 from squares of q log2(e) / sigma^2. These are first divided by a power of two so that no
 * square is out of range; this changes no bit. scale2: log2(e) / sigma^2. */
typedef struct hark_square_factors {
  float before, after;
} hark_square_factors;
static inline hark_square_factors hark_square_factors_of(double scale2) {
  const int power = ilogb(scale2) / 2; /* divides them by 2^power: about |q| / sigma remains */
  return (hark_square_factors){(float)ldexp(1, -power), (float)(0.5 / ldexp(scale2, -2 * power))};
}

#if HARK_LANES > 1
typedef double hark_doubles __attribute__((vector_size(HARK_LANES * 4)));
typedef float hark_halves __attribute__((vector_size(HARK_LANES * 2)));
HARK_SIMD hark_doubles hark_doubles_of(hark_halves x) {
#if defined(HARK_SIMD_AVX512)
  return (hark_doubles)_mm512_cvtps_pd((__m256)x);
#else
  return __builtin_convertvector(x, hark_doubles);
#endif
}
HARK_SIMD hark_halves hark_halves_of(hark_doubles x) {
#if defined(HARK_SIMD_AVX512)
  return (hark_halves)_mm512_cvtpd_ps((__m512d)x);
#else
  return __builtin_convertvector(x, hark_halves);
#endif
}
HARK_SIMD hark_doubles hark_doubles_load(const float *from) {
  hark_halves x;
  memcpy(&x, from, sizeof x);
  return hark_doubles_of(x);
}
HARK_SIMD hark_doubles hark_doubles_set(float x) { return hark_doubles_of(x - (hark_halves){0}); }
#endif

/* |x - y|^2 */
HARK_SIMD_NOINLINE double hark_squared_distance(const float *x, const float *y, int features) {
  double total = 0.0;
  int c = 0;
#if HARK_LANES > 1
  const int step = HARK_LANES / 2;
  hark_doubles first = {0}, second = {0};
  for (; c + 2 * step <= features; c += 2 * step) {
    const hark_doubles a = hark_doubles_load(x + c) - hark_doubles_load(y + c);
    const hark_doubles b = hark_doubles_load(x + c + step) - hark_doubles_load(y + c + step);
    first += a * a;
    second += b * b;
  }
  double lanes[HARK_LANES / 2];
  first += second;
  memcpy(lanes, &first, sizeof lanes);
  for (int i = 0; i < step; i++) total += lanes[i];
#endif
  for (; c < features; c++) {
    const double apart = (double)x[c] - (double)y[c];
    total += apart * apart;
  }
  return total;
}

/* out[lane] = max(scale |x_lane - y|^2, -FLT_MAX) from the bits of hark_squared_distance, for HARK_LANES rows; feature c of a lane is
 * x[c row + lane]. */
HARK_SIMD vf hark_exact_exponents(const float *x, ptrdiff_t row, const float *y, int features, double scale) {
#if HARK_LANES > 1
  const int step = HARK_LANES / 2, whole = features / (2 * step) * (2 * step);
  hark_doubles total[2] = {{0}, {0}};
  hark_halves out[2];
  vf exponents;
  for (int i = 0; whole > 0 && i < step; i++) {
    hark_doubles first[2] = {{0}, {0}}, second[2] = {{0}, {0}};
    for (int c = i; c < whole; c += 2 * step)
      for (int half = 0; half < 2; half++) {
        const hark_doubles a = hark_doubles_load(x + c * row + half * step) - hark_doubles_set(y[c]);
        const hark_doubles b = hark_doubles_load(x + (c + step) * row + half * step) - hark_doubles_set(y[c + step]);
        first[half] += a * a;
        second[half] += b * b;
      }
    for (int half = 0; half < 2; half++) total[half] += first[half] + second[half];
  }
  for (int c = whole; c < features; c++)
    for (int half = 0; half < 2; half++) {
      const hark_doubles apart = hark_doubles_load(x + c * row + half * step) - hark_doubles_set(y[c]);
      total[half] += apart * apart;
    }
  for (int half = 0; half < 2; half++) out[half] = hark_halves_of(total[half] * scale);
  memcpy(&exponents, out, sizeof exponents);
  return vf_max(exponents, vf_set(-FLT_MAX));
#else
  double total = 0.0;
  for (int c = 0; c < features; c++) {
    const double apart = (double)x[c * row] - (double)y[c];
    total += apart * apart;
  }
  return vf_max((float)(scale * total), -FLT_MAX);
#endif
}

/* A log-sum-exp in f32: infinity is reserved for rows that see nothing, or have NaN. */
static inline float hark_finite_log_sum(double log_sum) {
  return isfinite(log_sum) ? (float)fmax((double)-FLT_MAX, fmin(log_sum, (double)FLT_MAX)) : (float)log_sum;
}

/* x.y */
HARK_SIMD_NOINLINE double hark_exact_product(const float *x, const float *y, int features) {
  double total = 0.0;
  int c = 0;
#if HARK_LANES > 1
  const int step = HARK_LANES / 2;
  hark_doubles sum = {0};
  for (; c + step <= features; c += step) sum += hark_doubles_load(x + c) * hark_doubles_load(y + c);
  double lanes[HARK_LANES / 2];
  memcpy(lanes, &sum, sizeof lanes);
  for (int i = 0; i < step; i++) total += lanes[i];
#endif
  for (; c < features; c++) total += (double)x[c] * (double)y[c];
  return total;
}

/* |x|^2 */
HARK_SIMD_NOINLINE double hark_square(const float *x, int features) {
  double total = 0.0;
  for (int c = 0; c < features; c++) total += (double)x[c] * (double)x[c];
  return total;
}

/* out += weight (x - y) */
HARK_SIMD void hark_add_difference(float weight, const float *x, const float *y, int features, float *out) {
  const vf gain = vf_set(weight);
  int c = 0;
  for (; c + HARK_LANES <= features; c += HARK_LANES) vf_store(out + c, vf_fma(gain, vf_load(x + c) - vf_load(y + c), vf_load(out + c)));
  if (c < features) {
    const int rest = features - c;
    const vf apart = vf_load_part(x + c, rest) - vf_load_part(y + c, rest);
    vf_store_part(out + c, vf_fma(gain, apart, vf_load_part(out + c, rest)), rest);
  }
}

#endif
