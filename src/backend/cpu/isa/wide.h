/* wide.h - vectors of f64, as simd.h has them of f32: half as many lanes.
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
HARK_SIMD vd vd_set(double x) { return x - (vd){0}; }
HARK_SIMD vd vd_of_floats(const float *from) {
  vd_halves x;
  memcpy(&x, from, sizeof x);
  return __builtin_convertvector(x, vd);
}
#else
#define HARK_WIDE_LANES 1
typedef double vd;
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

HARK_SIMD double vd_sum(vd x) {
  double lanes[HARK_WIDE_LANES], sum = 0;
  vd_store(lanes, x);
  for (int i = 0; i < HARK_WIDE_LANES; i++) sum += lanes[i];
  return sum;
}

#endif
