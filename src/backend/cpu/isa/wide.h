/* wide.h - vectors of f64, as simd.h has them of f32: half as many lanes. vd_exp has an error of at most 2 ulp from -708 on; tested.
 *
 * Sums over lanes and rows have an order that depends on the instruction set alone.
 */
#ifndef HARK_BACKEND_CPU_ISA_WIDE_H
#define HARK_BACKEND_CPU_ISA_WIDE_H

#include "backend/cpu/simd.h"

#if HARK_LANES > 1
#define HARK_WIDE_LANES (HARK_LANES / 2)
typedef double vd __attribute__((vector_size(HARK_LANES * 4)));
typedef float vd_halves __attribute__((vector_size(HARK_LANES * 2)));
typedef uint64_t vd_bits_of __attribute__((vector_size(HARK_LANES * 4)));
HARK_SIMD vd vd_set(double x) { return x - (vd){0}; }
HARK_SIMD vd vd_of_floats(const float *from) {
  vd_halves x;
  memcpy(&x, from, sizeof x);
  return __builtin_convertvector(x, vd);
}
#else
#define HARK_WIDE_LANES 1
typedef double vd;
typedef uint64_t vd_bits_of;
HARK_SIMD vd vd_set(double x) { return x; }
HARK_SIMD vd vd_of_floats(const float *from) { return (double)*from; }
#endif

HARK_SIMD vd vd_load(const double *from) {
  vd x;
  memcpy(&x, from, sizeof x);
  return x;
}
HARK_SIMD void vd_store(double *to, vd x) { memcpy(to, &x, sizeof x); }

/* a b + c, with one rounding if the instruction set has it. */
HARK_SIMD vd vd_fma(vd a, vd b, vd c) {
#if defined(HARK_SIMD_AVX512)
  return (vd)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c);
#elif defined(HARK_SIMD_AVX2)
  return (vd)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)c);
#elif defined(HARK_SIMD_NEON)
  return (vd)vfmaq_f64((float64x2_t)c, (float64x2_t)a, (float64x2_t)b);
#else
  return a * b + c;
#endif
}

HARK_SIMD vd vd_max(vd a, vd b) {
#if defined(HARK_SIMD_AVX512)
  return (vd)_mm512_max_pd((__m512d)a, (__m512d)b);
#elif defined(HARK_SIMD_AVX2)
  return (vd)_mm256_max_pd((__m256d)a, (__m256d)b);
#elif defined(HARK_SIMD_NEON)
  return (vd)vmaxq_f64((float64x2_t)a, (float64x2_t)b);
#elif HARK_WIDE_LANES > 1
  vd larger = b;
  for (int i = 0; i < HARK_WIDE_LANES; i++)
    if (a[i] > b[i]) larger[i] = a[i];
  return larger;
#else
  return a > b ? a : b;
#endif
}

#define HARK_WIDE_ROUND_SHIFT 0x1.8p52 /* adding it rounds to an integer and leaves that integer in the low bits */

/* e^x for x <= 0: at least e^-708, a normal number. */
HARK_SIMD vd vd_exp(vd x) {
  x = vd_max(vd_set(-708), x);
  const vd shifted = vd_fma(x, vd_set(0x1.71547652b82fep0), vd_set(HARK_WIDE_ROUND_SHIFT));
  const vd n = shifted - vd_set(HARK_WIDE_ROUND_SHIFT);
  /* ln 2 in two parts: the first has 32 bits, so that n times it is exact */
  vd f = vd_fma(n, vd_set(-0x1.62e42feep-1), x);
  f = vd_fma(n, vd_set(-0x1.a39ef35793c76p-33), f);
  /* the sum of f^k / k! to k = 13: beyond it, 4e-18 on [-ln 2 / 2, ln 2 / 2] */
  vd p = vd_set(1.0 / 6227020800.0);
  p = vd_fma(p, f, vd_set(1.0 / 479001600.0));
  p = vd_fma(p, f, vd_set(1.0 / 39916800.0));
  p = vd_fma(p, f, vd_set(1.0 / 3628800.0));
  p = vd_fma(p, f, vd_set(1.0 / 362880.0));
  p = vd_fma(p, f, vd_set(1.0 / 40320.0));
  p = vd_fma(p, f, vd_set(1.0 / 5040.0));
  p = vd_fma(p, f, vd_set(1.0 / 720.0));
  p = vd_fma(p, f, vd_set(1.0 / 120.0));
  p = vd_fma(p, f, vd_set(1.0 / 24.0));
  p = vd_fma(p, f, vd_set(1.0 / 6.0));
  p = vd_fma(p, f, vd_set(0.5));
  p = vd_fma(p, f, vd_set(1));
  p = vd_fma(p, f, vd_set(1));
  vd_bits_of bits;
  vd scale;
  memcpy(&bits, &shifted, sizeof bits);
  bits = (bits + 1023) << 52;
  memcpy(&scale, &bits, sizeof scale);
  return p * scale;
}

HARK_SIMD double vd_sum(vd x) {
  double lanes[HARK_WIDE_LANES], sum = 0;
  vd_store(lanes, x);
  for (int i = 0; i < HARK_WIDE_LANES; i++) sum += lanes[i];
  return sum;
}

#endif
