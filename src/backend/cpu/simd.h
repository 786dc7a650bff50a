/* simd.h - one vector of 32-bit lanes for every instruction set, and the elementary functions on it.
 *
 * vf, vu: HARK_LANES floats, HARK_LANES unsigned words; vm: one truth value per lane. 16 lanes with AVX-512, 8 with AVX2, 4 with NEON, 4
 * otherwise with gcc and clang (their vector extension), 1 with other compilers. +, -, * and / are written as operators; a * b + c becomes
 * one fused multiply-add if the instruction set has one (-ffp-contract=fast). Loads and stores only need the alignment of an element.
 *
 * Error bounds (of the results, against the exact values; tested over all binades): vf_exp2 3 ulp, vf_exp 2 ulp, vf_log 2 ulp,
 * vf_tanh 2 ulp. Sources: minimax polynomials fitted for this file; the reduction by adding 1.5 2^23 is folklore.
 *
 * Only for files that are compiled once per instruction set (isa/).
 */
#ifndef HARK_BACKEND_CPU_SIMD_H
#define HARK_BACKEND_CPU_SIMD_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__) || defined(__AVX2__) || defined(__SSE2__)
#include <immintrin.h>
#endif
#if defined(HARK_USE_NEON)
#include <arm_neon.h>
#endif

#if defined(__GNUC__)
#define HARK_SIMD static inline __attribute__((always_inline, unused))
#define HARK_SIMD_NOINLINE static __attribute__((noinline, unused))
#define HARK_PREFETCH(address) __builtin_prefetch(address)
#define HARK_PREFETCH_FAR(address) __builtin_prefetch(address, 0, 2)
#define HARK_PREFETCH_WRITE(address) __builtin_prefetch(address, 1)
#define HARK_LIKELY(x) __builtin_expect(!!(x), 1)
#define HARK_OPAQUE(pointer) __asm__("" : "+r"(pointer)) /* the compiler cannot derive it from another pointer */
#else
#define HARK_SIMD static inline
#define HARK_SIMD_NOINLINE static
#define HARK_PREFETCH(address) ((void)(address))
#define HARK_PREFETCH_FAR(address) ((void)(address))
#define HARK_PREFETCH_WRITE(address) ((void)(address))
#define HARK_LIKELY(x) (x)
#define HARK_OPAQUE(pointer) ((void)(pointer))
#endif

/* Before a loop of constant length: keep arrays of vectors in registers. HARK_ROLLED: do not unroll. */
#if defined(__clang__)
#define HARK_UNROLL _Pragma("clang loop unroll(full)")
#define HARK_ROLLED _Pragma("clang loop unroll(disable)")
#elif defined(__GNUC__)
#define HARK_UNROLL _Pragma("GCC unroll 64")
#define HARK_ROLLED _Pragma("GCC unroll 1")
#else
#define HARK_UNROLL
#define HARK_ROLLED
#endif

#if defined(__GNUC__) && defined(__AVX512F__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#define HARK_LANES 16
#define HARK_SIMD_AVX512 1
#elif defined(__GNUC__) && defined(__AVX2__) && defined(__FMA__)
#define HARK_LANES 8
#define HARK_SIMD_AVX2 1
#elif defined(HARK_USE_NEON) /* by cmake/Library.cmake: every aarch64 processor has it, so that no flag distinguishes it from generic */
#define HARK_LANES 4
#define HARK_SIMD_NEON 1
#elif defined(__GNUC__)
#define HARK_LANES 4
#define HARK_SIMD_PORTABLE 1
#else
#define HARK_LANES 1
#endif
/* Vector registers of the instruction set: tiles that are kept in them are chosen for it. */
#if defined(HARK_SIMD_AVX512) || defined(HARK_SIMD_NEON)
#define HARK_VECTOR_REGISTERS 32
#else
#define HARK_VECTOR_REGISTERS 16
#endif

/* ---- types ------------------------------------------------------------------------------------------------------------------------- */
#if HARK_LANES > 1
typedef float vf __attribute__((vector_size(HARK_LANES * 4)));
typedef uint32_t vu __attribute__((vector_size(HARK_LANES * 4)));
typedef int32_t vi __attribute__((vector_size(HARK_LANES * 4)));
#else
typedef float vf;
typedef uint32_t vu;
typedef int32_t vi;
#endif
#if defined(HARK_SIMD_AVX512)
typedef __mmask16 vm;
#else
typedef vi vm; /* all bits set where true */
#endif

/* ---- bits, loads and stores -------------------------------------------------------------------------------------------------------- */
HARK_SIMD vu vf_bits(vf x) {
  vu bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}
HARK_SIMD vf vf_from_bits(vu bits) {
  vf x;
  memcpy(&x, &bits, sizeof x);
  return x;
}
HARK_SIMD vf vf_load(const float *from) {
  vf x;
  memcpy(&x, from, sizeof x);
  return x;
}
HARK_SIMD void vf_store(float *to, vf x) { memcpy(to, &x, sizeof x); }
HARK_SIMD vu vu_load(const uint32_t *from) {
  vu x;
  memcpy(&x, from, sizeof x);
  return x;
}
HARK_SIMD void vu_store(uint32_t *to, vu x) { memcpy(to, &x, sizeof x); }
HARK_SIMD vi vi_load(const int32_t *from) {
  vi x;
  memcpy(&x, from, sizeof x);
  return x;
}
HARK_SIMD void vi_store(int32_t *to, vi x) { memcpy(to, &x, sizeof x); }

#if HARK_LANES > 1
HARK_SIMD vf vf_set(float x) { return x - (vf){0}; }
HARK_SIMD vu vu_set(uint32_t x) { return x - (vu){0}; }
HARK_SIMD vi vi_set(int32_t x) { return x - (vi){0}; }
#else
HARK_SIMD vf vf_set(float x) { return x; }
HARK_SIMD vu vu_set(uint32_t x) { return x; }
HARK_SIMD vi vi_set(int32_t x) { return x; }
#endif
HARK_SIMD vf vf_zero(void) { return vf_set(0.0f); }

/* 0, 1, 2, ... */
HARK_SIMD vu vu_lane(void) {
  uint32_t lanes[HARK_LANES];
  for (uint32_t i = 0; i < HARK_LANES; i++) lanes[i] = i;
  return vu_load(lanes);
}

/* The first `count` elements; zero beyond, where memory is not accessed. */
HARK_SIMD vf vf_load_part(const float *from, int count) {
#if defined(HARK_SIMD_AVX512)
  return (vf)_mm512_maskz_loadu_ps((__mmask16)((1u << (unsigned)count) - 1u), from);
#elif defined(HARK_SIMD_AVX2)
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return (vf)_mm256_maskload_ps(from, _mm256_cmpgt_epi32(_mm256_set1_epi32(count), lane));
#elif defined(HARK_SIMD_NEON)
  if (count >= 4) return vf_load(from);
  const float32x4_t none = vdupq_n_f32(0);
  if (count <= 1) return count == 1 ? (vf)vld1q_lane_f32(from, none, 0) : (vf)none;
  const float32x4_t two = vcombine_f32(vld1_f32(from), vget_low_f32(none));
  return count == 3 ? (vf)vld1q_lane_f32(from + 2, two, 2) : (vf)two;
#else
  float buffer[HARK_LANES] = {0};
  for (int i = 0; i < count; i++) buffer[i] = from[i];
  return vf_load(buffer);
#endif
}
/* The same, as a plain load if all exist. */
HARK_SIMD vf vf_load_part_or_all(const float *from, int count) { return count >= HARK_LANES ? vf_load(from) : vf_load_part(from, count); }
HARK_SIMD void vf_store_part(float *to, vf x, int count) {
#if defined(HARK_SIMD_AVX512)
  _mm512_mask_storeu_ps(to, (__mmask16)((1u << (unsigned)count) - 1u), (__m512)x);
#elif defined(HARK_SIMD_AVX2)
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  _mm256_maskstore_ps(to, _mm256_cmpgt_epi32(_mm256_set1_epi32(count), lane), (__m256)x);
#elif defined(HARK_SIMD_NEON)
  const float32x4_t lanes = (float32x4_t)x;
  if (count >= 4)
    vst1q_f32(to, lanes);
  else if (count >= 2)
    vst1_f32(to, vget_low_f32(lanes));
  if (count == 1) vst1q_lane_f32(to, lanes, 0);
  if (count == 3) vst1q_lane_f32(to + 2, lanes, 2);
#else
  float buffer[HARK_LANES];
  vf_store(buffer, x);
  for (int i = 0; i < count; i++) to[i] = buffer[i];
#endif
}

/* ---- truth values ------------------------------------------------------------------------------------------------------------------ */
#if defined(HARK_SIMD_AVX512)
HARK_SIMD vm vf_less(vf a, vf b) { return _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_LT_OQ); }
HARK_SIMD vm vf_equal(vf a, vf b) { return _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_EQ_OQ); }
HARK_SIMD vm vu_less(vu a, vu b) { return _mm512_cmplt_epu32_mask((__m512i)a, (__m512i)b); }
HARK_SIMD vm vi_less(vi a, vi b) { return _mm512_cmplt_epi32_mask((__m512i)a, (__m512i)b); }
HARK_SIMD vf vf_select(vm mask, vf yes, vf no) { return (vf)_mm512_mask_blend_ps(mask, (__m512)no, (__m512)yes); }
HARK_SIMD vm vm_and(vm a, vm b) { return (vm)(a & b); }
HARK_SIMD vm vm_or(vm a, vm b) { return (vm)(a | b); }
HARK_SIMD vm vm_not(vm a) { return (vm)~a; }
HARK_SIMD bool vm_any(vm a) { return a != 0; }
#else
#if HARK_LANES > 1
HARK_SIMD vm vf_less(vf a, vf b) { return (vm)(a < b); }
HARK_SIMD vm vf_equal(vf a, vf b) { return (vm)(a == b); }
HARK_SIMD vm vu_less(vu a, vu b) { return (vm)(a < b); }
HARK_SIMD vm vi_less(vi a, vi b) { return (vm)(a < b); }
#else
HARK_SIMD vm vf_less(vf a, vf b) { return a < b ? -1 : 0; }
HARK_SIMD vm vf_equal(vf a, vf b) { return a == b ? -1 : 0; }
HARK_SIMD vm vu_less(vu a, vu b) { return a < b ? -1 : 0; }
HARK_SIMD vm vi_less(vi a, vi b) { return a < b ? -1 : 0; }
#endif
HARK_SIMD vm vm_and(vm a, vm b) { return a & b; }
HARK_SIMD vm vm_or(vm a, vm b) { return a | b; }
HARK_SIMD vm vm_not(vm a) { return ~a; }
HARK_SIMD vf vf_select(vm mask, vf yes, vf no) {
#if defined(HARK_SIMD_AVX2)
  return (vf)_mm256_blendv_ps((__m256)no, (__m256)yes, (__m256)mask);
#elif defined(HARK_SIMD_NEON)
  return (vf)vbslq_f32((uint32x4_t)mask, (float32x4_t)yes, (float32x4_t)no);
#else
  return vf_from_bits(((vu)mask & vf_bits(yes)) | (~(vu)mask & vf_bits(no)));
#endif
}
HARK_SIMD bool vm_any(vm a) {
#if defined(HARK_SIMD_AVX2)
  return _mm256_movemask_ps((__m256)a) != 0;
#elif defined(HARK_SIMD_NEON)
  return vmaxvq_u32((uint32x4_t)a) != 0;
#elif defined(HARK_SIMD_PORTABLE) && defined(__SSE2__)
  return _mm_movemask_ps((__m128)a) != 0;
#else
  int32_t lanes[HARK_LANES], any = 0;
  memcpy(lanes, &a, sizeof lanes);
  for (int i = 0; i < HARK_LANES; i++) any |= lanes[i];
  return any != 0;
#endif
}
#endif

#if HARK_LANES > 1
HARK_SIMD vi vi_select(vm mask, vi yes, vi no) { return (vi)vf_select(mask, (vf)yes, (vf)no); }
#else
HARK_SIMD vi vi_select(vm mask, vi yes, vi no) { return mask != 0 ? yes : no; }
#endif

/* Bit l is set if lane l is true. */
HARK_SIMD uint32_t vm_bits(vm a) {
#if defined(HARK_SIMD_AVX512)
  return a;
#elif defined(HARK_SIMD_AVX2)
  return (uint32_t)_mm256_movemask_ps((__m256)a);
#elif defined(HARK_SIMD_PORTABLE) && defined(__SSE2__)
  return (uint32_t)_mm_movemask_ps((__m128)a);
#else
  int32_t lanes[HARK_LANES];
  uint32_t bits = 0;
  memcpy(lanes, &a, sizeof lanes);
  for (int i = 0; i < HARK_LANES; i++) bits |= (uint32_t)(lanes[i] != 0) << i;
  return bits;
#endif
}

/* The larger; b if either is NaN. vf_min: the smaller in the same way. */
HARK_SIMD vf vf_max(vf a, vf b) {
#if defined(HARK_SIMD_AVX512)
  return (vf)_mm512_max_ps((__m512)a, (__m512)b);
#elif defined(HARK_SIMD_AVX2)
  return (vf)_mm256_max_ps((__m256)a, (__m256)b);
#elif defined(HARK_SIMD_PORTABLE) && defined(__SSE2__)
  return (vf)_mm_max_ps((__m128)a, (__m128)b);
#else
  return vf_select(vf_less(b, a), a, b);
#endif
}
HARK_SIMD vf vf_min(vf a, vf b) { return vf_select(vf_less(a, b), a, b); }
/* min(x, bound); NaN stays. */
HARK_SIMD vf vf_not_above(vf x, vf bound) { return vf_min(bound, x); }
HARK_SIMD vf vf_abs(vf a) { return vf_from_bits(vf_bits(a) & vu_set(0x7FFFFFFFu)); }
/* |magnitude| with the sign of sign. */
HARK_SIMD vf vf_copy_sign(vf magnitude, vf sign) {
  return vf_from_bits((vf_bits(magnitude) & vu_set(0x7FFFFFFFu)) | (vf_bits(sign) & vu_set(0x80000000u)));
}

HARK_SIMD vf vf_sqrt(vf a) {
#if defined(HARK_SIMD_AVX512)
  return (vf)_mm512_sqrt_ps((__m512)a);
#elif defined(HARK_SIMD_AVX2)
  return (vf)_mm256_sqrt_ps((__m256)a);
#elif defined(HARK_SIMD_NEON)
  return (vf)vsqrtq_f32((float32x4_t)a);
#elif defined(HARK_SIMD_PORTABLE) && defined(__SSE2__)
  return (vf)_mm_sqrt_ps((__m128)a);
#else
  float lanes[HARK_LANES];
  vf_store(lanes, a);
  for (int i = 0; i < HARK_LANES; i++) lanes[i] = sqrtf(lanes[i]);
  return vf_load(lanes);
#endif
}

/* a b + c, with one rounding if the instruction set has it. */
HARK_SIMD vf vf_fma(vf a, vf b, vf c) {
#if defined(HARK_SIMD_AVX512)
  return (vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(HARK_SIMD_AVX2)
  return (vf)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined(HARK_SIMD_NEON)
  return (vf)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
  return a * b + c;
#endif
}

/* 1 / x for x from 1 to 2^127, to 2 roundings; exactly 1 at 1; NaN stays. An estimate and a step of Newton's method where the quotient of a
 * vector takes longer. */
HARK_SIMD vf vf_inverse(vf x) {
#if defined(HARK_SIMD_AVX512)
  const vf estimate = (vf)_mm512_rcp14_ps((__m512)x);
  return vf_fma(vf_fma(vf_zero() - x, estimate, vf_set(1.0f)), estimate, estimate);
#else
  return vf_set(1.0f) / x;
#endif
}

/* Whole numbers: x without its fraction, for |x| below 2^31; and back. */
HARK_SIMD vi vf_whole(vf x) {
#if HARK_LANES > 1
  return __builtin_convertvector(x, vi);
#else
  return (vi)x;
#endif
}
HARK_SIMD vf vi_number(vi x) {
#if HARK_LANES > 1
  return __builtin_convertvector(x, vf);
#else
  return (vf)x;
#endif
}

/* from[index], lane by lane; and to[index] += x, where all indices differ. */
HARK_SIMD vf vf_gather(const float *from, vi index) {
#if defined(HARK_SIMD_AVX512)
  return (vf)_mm512_i32gather_ps((__m512i)index, from, 4);
#elif defined(HARK_SIMD_AVX2)
  return (vf)_mm256_i32gather_ps(from, (__m256i)index, 4);
#else
  int32_t at[HARK_LANES];
  float lanes[HARK_LANES];
  memcpy(at, &index, sizeof at);
  for (int i = 0; i < HARK_LANES; i++) lanes[i] = from[at[i]];
  return vf_load(lanes);
#endif
}
HARK_SIMD void vf_scatter_add(float *to, vi index, vf x) {
#if defined(HARK_SIMD_AVX512)
  _mm512_i32scatter_ps(to, (__m512i)index, (__m512)(x + vf_gather(to, index)), 4);
#else
  int32_t at[HARK_LANES];
  float lanes[HARK_LANES];
  memcpy(at, &index, sizeof at);
  vf_store(lanes, x);
  for (int i = 0; i < HARK_LANES; i++) to[at[i]] += lanes[i];
#endif
}

/* The number of features, rounded up to whole vectors. */
static inline size_t hark_padded(int64_t features) { return (size_t)((features + HARK_LANES - 1) / HARK_LANES) * HARK_LANES; }

/* ---- across lanes ------------------------------------------------------------------------------------------------------------------ */
/* Sum and maximum of all lanes, in the order of a binary tree: lane i and i + HARK_LANES / 2 first. */
#if defined(HARK_SIMD_AVX512) || defined(HARK_SIMD_AVX2)
#if defined(HARK_SIMD_AVX512)
#define HARK_HALVES(operation, x) operation(_mm512_castps512_ps256((__m512)(x)), _mm512_extractf32x8_ps((__m512)(x), 1))
#else
#define HARK_HALVES(operation, x) ((__m256)(x))
#endif
HARK_SIMD float vf_sum(vf x) {
  const __m256 eight = HARK_HALVES(_mm256_add_ps, x);
  __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  four = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(four, _mm_movehdup_ps(four)));
}
HARK_SIMD float vf_highest(vf x) {
  const __m256 eight = HARK_HALVES(_mm256_max_ps, x);
  __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  four = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(four, _mm_movehdup_ps(four)));
}
#elif defined(HARK_SIMD_NEON)
HARK_SIMD float vf_sum(vf x) {
  const float32x4_t four = (float32x4_t)x;
  return vpadds_f32(vadd_f32(vget_low_f32(four), vget_high_f32(four)));
}
HARK_SIMD float vf_highest(vf x) { /* not vmaxvq_f32(), which has another result where there is a NaN */
  const float32x2_t low = vget_low_f32((float32x4_t)x), high = vget_high_f32((float32x4_t)x);
  const float32x2_t two = vbsl_f32(vcgt_f32(low, high), low, high);
  const float first = vget_lane_f32(two, 0), second = vget_lane_f32(two, 1);
  return first > second ? first : second;
}
#else
HARK_SIMD float vf_sum(vf x) {
  float lanes[HARK_LANES];
  vf_store(lanes, x);
  for (int width = HARK_LANES / 2; width > 0; width /= 2)
    for (int i = 0; i < width; i++) lanes[i] += lanes[i + width];
  return lanes[0];
}
HARK_SIMD float vf_highest(vf x) {
  float lanes[HARK_LANES];
  vf_store(lanes, x);
  for (int width = HARK_LANES / 2; width > 0; width /= 2)
    for (int i = 0; i < width; i++) lanes[i] = lanes[i] > lanes[i + width] ? lanes[i] : lanes[i + width];
  return lanes[0];
}
#endif

/* rows[i] lane j <-> rows[j] lane i. */
HARK_SIMD void vf_transpose(vf rows[HARK_LANES]) {
#if defined(HARK_SIMD_AVX512)
  __m512 t[16], r[16];
  HARK_UNROLL
  for (int i = 0; i < 8; i++) {
    t[2 * i] = _mm512_unpacklo_ps((__m512)rows[2 * i], (__m512)rows[2 * i + 1]);
    t[2 * i + 1] = _mm512_unpackhi_ps((__m512)rows[2 * i], (__m512)rows[2 * i + 1]);
  }
  HARK_UNROLL
  for (int i = 0; i < 4; i++) {
    r[4 * i] = (__m512)_mm512_unpacklo_pd((__m512d)t[4 * i], (__m512d)t[4 * i + 2]);
    r[4 * i + 1] = (__m512)_mm512_unpackhi_pd((__m512d)t[4 * i], (__m512d)t[4 * i + 2]);
    r[4 * i + 2] = (__m512)_mm512_unpacklo_pd((__m512d)t[4 * i + 1], (__m512d)t[4 * i + 3]);
    r[4 * i + 3] = (__m512)_mm512_unpackhi_pd((__m512d)t[4 * i + 1], (__m512d)t[4 * i + 3]);
  }
  HARK_UNROLL
  for (int i = 0; i < 4; i++) {
    t[i] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0x88);
    t[i + 4] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0xDD);
    t[i + 8] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0x88);
    t[i + 12] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0xDD);
  }
  HARK_UNROLL
  for (int i = 0; i < 8; i++) {
    rows[i] = (vf)_mm512_shuffle_f32x4(t[i], t[i + 8], 0x88);
    rows[i + 8] = (vf)_mm512_shuffle_f32x4(t[i], t[i + 8], 0xDD);
  }
#elif defined(HARK_SIMD_AVX2)
  __m256 t[8], r[8];
  HARK_UNROLL
  for (int i = 0; i < 4; i++) {
    t[2 * i] = _mm256_unpacklo_ps((__m256)rows[2 * i], (__m256)rows[2 * i + 1]);
    t[2 * i + 1] = _mm256_unpackhi_ps((__m256)rows[2 * i], (__m256)rows[2 * i + 1]);
  }
  HARK_UNROLL
  for (int i = 0; i < 2; i++) {
    r[4 * i] = (__m256)_mm256_unpacklo_pd((__m256d)t[4 * i], (__m256d)t[4 * i + 2]);
    r[4 * i + 1] = (__m256)_mm256_unpackhi_pd((__m256d)t[4 * i], (__m256d)t[4 * i + 2]);
    r[4 * i + 2] = (__m256)_mm256_unpacklo_pd((__m256d)t[4 * i + 1], (__m256d)t[4 * i + 3]);
    r[4 * i + 3] = (__m256)_mm256_unpackhi_pd((__m256d)t[4 * i + 1], (__m256d)t[4 * i + 3]);
  }
  HARK_UNROLL
  for (int i = 0; i < 4; i++) {
    rows[i] = (vf)_mm256_permute2f128_ps(r[i], r[i + 4], 0x20);
    rows[i + 4] = (vf)_mm256_permute2f128_ps(r[i], r[i + 4], 0x31);
  }
#elif defined(HARK_SIMD_NEON)
  float64x2_t even[2], odd[2]; /* pairs of lanes 0 and 2, of lanes 1 and 3 */
  HARK_UNROLL
  for (int i = 0; i < 2; i++) {
    even[i] = vreinterpretq_f64_f32(vtrn1q_f32((float32x4_t)rows[2 * i], (float32x4_t)rows[2 * i + 1]));
    odd[i] = vreinterpretq_f64_f32(vtrn2q_f32((float32x4_t)rows[2 * i], (float32x4_t)rows[2 * i + 1]));
  }
  rows[0] = (vf)vtrn1q_f64(even[0], even[1]);
  rows[1] = (vf)vtrn1q_f64(odd[0], odd[1]);
  rows[2] = (vf)vtrn2q_f64(even[0], even[1]);
  rows[3] = (vf)vtrn2q_f64(odd[0], odd[1]);
#else
  float in[HARK_LANES][HARK_LANES], out[HARK_LANES][HARK_LANES];
  memcpy(in, rows, sizeof in);
  for (int i = 0; i < HARK_LANES; i++)
    for (int j = 0; j < HARK_LANES; j++) out[j][i] = in[i][j];
  memcpy(rows, out, sizeof out);
#endif
}

/* ---- elementary functions ---------------------------------------------------------------------------------------------------------- */
#define HARK_LOG2_E 1.44269504088896340736f
#define HARK_LN_2 0.69314718055994530942f
#define HARK_ROUND_SHIFT 12582912.0f /* 1.5 2^23: adding it rounds to an integer and leaves that integer in the low bits */

/* 2^x for x <= 127, for weights of a softmax: 0 exactly for x <= -127 and -infinity; relative error below 3e-7 for x >= -126, absolute
 * error below 2^-126 between; NaN stays. */
HARK_SIMD vf vf_exp2(vf x) {
  x = vf_max(vf_set(-127.0f), x);
  /* the integer plus the exponent's bias of 127 in the low bits; a factor, so that a NaN stays one whatever its bits */
  const vf shifted = x + vf_set(HARK_ROUND_SHIFT + 127.0f);
  const vf f = x - (shifted - vf_set(HARK_ROUND_SHIFT + 127.0f));
  /* 2^f on [-1/2, 1/2], relative error 9.2e-8; exactly 1 at f = 0 */
  vf p = vf_set(1.3264729e-3f);
  p = vf_fma(p, f, vf_set(9.6715139e-3f));
  p = vf_fma(p, f, vf_set(5.5507338e-2f));
  p = vf_fma(p, f, vf_set(2.4022242e-1f));
  p = vf_fma(p, f, vf_set(6.9314698e-1f));
  p = vf_fma(p, f, vf_set(1.0f));
  return p * vf_from_bits(vf_bits(shifted) << 23);
}

/* e^x over the whole range: infinity above 88.73, subnormal and then 0 below -87.3; NaN stays. */
HARK_SIMD vf vf_exp(vf x) {
  x = vf_max(vf_set(-104.0f), x);
  x = vf_select(vf_less(vf_set(89.0f), x), vf_set(89.0f), x);
  const vf shifted = vf_fma(x, vf_set(HARK_LOG2_E), vf_set(HARK_ROUND_SHIFT));
  const vf n = shifted - vf_set(HARK_ROUND_SHIFT);
  /* ln 2 = 0.693359375 - 2.12194440e-4: the first part has nine bits, so that n times it is exact */
  vf f = x - n * vf_set(0.693359375f);
  f = f + n * vf_set(2.12194440e-4f);
  vf p = vf_set(1.3814434e-3f);
  p = vf_fma(p, f, vf_set(8.3687974e-3f));
  p = vf_fma(p, f, vf_set(4.1668396e-2f));
  p = vf_fma(p, f, vf_set(1.6666520e-1f));
  p = vf_fma(p, f, vf_set(4.9999993e-1f));
  p = vf_fma(p * f, f, f) + vf_set(1.0f);
  /* 2^n in two factors, because n = 128 and n < -126 have no normal power of two */
  const vi whole = (vi)(vf_bits(shifted) - vf_bits(vf_set(HARK_ROUND_SHIFT)));
  const vi half = whole >> 1;
  const vu bias = vu_set(127u);
  return p * vf_from_bits(((vu)half + bias) << 23) * vf_from_bits(((vu)(whole - half) + bias) << 23);
}

/* Natural logarithm: -infinity at 0, NaN below, infinity at infinity. */
HARK_SIMD vf vf_log(vf x) {
  const vm small = vf_less(x, vf_set(1.17549435e-38f));
  const vf scaled = vf_select(small, x * vf_set(8388608.0f), x); /* subnormals: times 2^23 */
  const vu bits = vf_bits(scaled);
  /* x = m 2^e with m in [sqrt(1/2), sqrt(2)) */
  const vu offset = bits - vu_set(0x3F3504F3u);
  const vi exponent = (vi)offset >> 23;
  const vf t = vf_from_bits((offset & vu_set(0x007FFFFFu)) + vu_set(0x3F3504F3u)) - vf_set(1.0f);
#if HARK_LANES > 1
  vf e = __builtin_convertvector(exponent, vf);
#else
  vf e = (float)exponent;
#endif
  e = e - vf_select(small, vf_set(23.0f), vf_zero());
  vf p = vf_set(-7.6345206e-2f);
  p = vf_fma(p, t, vf_set(1.2761615e-1f));
  p = vf_fma(p, t, vf_set(-1.3160191e-1f));
  p = vf_fma(p, t, vf_set(1.4201754e-1f));
  p = vf_fma(p, t, vf_set(-1.6623356e-1f));
  p = vf_fma(p, t, vf_set(2.0001227e-1f));
  p = vf_fma(p, t, vf_set(-2.5000821e-1f));
  p = vf_fma(p, t, vf_set(3.3333332e-1f));
  const vf square = t * t;
  vf low = p * t * square - e * vf_set(2.12194440e-4f);
  low = low - vf_set(0.5f) * square;
  vf result = low + t + e * vf_set(0.693359375f);
  result = vf_select(vf_less(x, vf_set(INFINITY)), result, x); /* infinity and NaN stay */
  result = vf_select(vf_equal(x, vf_zero()), vf_set(-INFINITY), result);
  return vf_select(vf_less(x, vf_zero()), vf_set(NAN), result);
}

HARK_SIMD vf vf_tanh(vf x) {
  const vf z = vf_abs(x);
  const vf square = z * z;
  vf p = vf_set(-5.7049715e-3f);
  p = vf_fma(p, square, vf_set(2.0639074e-2f));
  p = vf_fma(p, square, vf_set(-5.3739711e-2f));
  p = vf_fma(p, square, vf_set(1.3331442e-1f));
  p = vf_fma(p, square, vf_set(-3.3333282e-1f));
  const vf near = vf_fma(p * square, z, z);
  /* beyond 9.2 the result rounds to 1; the bound keeps the exponential finite */
  const vf far = vf_set(1.0f) - vf_set(2.0f) / (vf_exp(vf_select(vf_less(vf_set(10.0f), z), vf_set(20.0f), z + z)) + vf_set(1.0f));
  return vf_copy_sign(vf_select(vf_less(z, vf_set(0.625f)), near, far), x);
}

#endif
