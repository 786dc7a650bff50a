/* bf16.h - pairs of bf16 numbers: rounding f32 to them, and their dot products with the processor's instruction and without.
 *
 * A word is a pair: its low half is the number of even index. Rounding is that of core/half.h; what becomes an operand of a dot product is
 * zero where it is subnormal, before it is rounded and after, as for the processor's instructions (VCVTNE2PS2BF16, VDPBF16PS: Intel's
 * Software Developer's Manual, volume 2). bf16_product.c defines the sums.
 */
#ifndef HARK_BACKEND_CPU_ISA_BF16_H
#define HARK_BACKEND_CPU_ISA_BF16_H

#include "backend/cpu/simd.h"
#include "core/core.h"

/* The instruction is written as such, because the flags of avx512 do not allow it: most processors with AVX-512 lack it. Functions that use
 * it are called only if has_bf16_dots(). */
#if defined(HARK_SIMD_AVX512)
#define HARK_BF16_DOTS 1

/* sum + the dot products of pairs */
HARK_SIMD vf bf16_dot(vf sum, vu left, vu right) {
  __asm__("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(left), "v"(right));
  return sum;
}

/* The words of 2 HARK_LANES adjacent numbers. */
HARK_SIMD vu bf16_adjacent_dots(vf first, vf second) {
  vu words;
  __asm__("vcvtne2ps2bf16 %1, %2, %0" : "=v"(words) : "v"(first), "v"(second));
  return words;
}
#endif

/* The numbers of a pair; subnormal ones are zeros. */
static inline float bf16_number(uint32_t bits) {
  const uint32_t kept = (bits & 0x7F800000u) == 0 ? bits & 0x80000000u : bits;
  float value;
  memcpy(&value, &kept, sizeof value);
  return value;
}
static inline float bf16_odd(uint32_t pair) { return bf16_number(pair & 0xFFFF0000u); }
static inline float bf16_even(uint32_t pair) { return bf16_number(pair << 16); }

/* sum + a b with one rounding: the product is exact in double, and so is the sum whenever its lost bits could change the rounding to f32
 * (a b has 16 bits, sum 24). Below the middle between 2^-126 and its lower neighbour with 24 bits it is zero. */
static inline float bf16_add(float sum, double a, double b) {
  const double exact = (double)sum + a * b;
  const float rounded = (float)exact;
  return fabs(exact) < 0x1.ffffffp-127 ? copysignf(0, rounded) : rounded;
}

/* The same as bf16_dot() on every processor. */
HARK_SIMD_NOINLINE vf bf16_dot_emulated(vf sum, vu left, vu right) {
  float sums[HARK_LANES];
  uint32_t a[HARK_LANES], b[HARK_LANES];
  memcpy(sums, &sum, sizeof sum);
  memcpy(a, &left, sizeof left);
  memcpy(b, &right, sizeof right);
  for (int i = 0; i < HARK_LANES; i++)
    sums[i] = bf16_add(bf16_add(sums[i], bf16_odd(a[i]), bf16_odd(b[i])), bf16_even(a[i]), bf16_even(b[i]));
  memcpy(&sum, sums, sizeof sum);
  return sum;
}

/* The word of a number is in its upper half; the lower half is undefined. */
HARK_SIMD vu bf16_upper(vf x) {
  const vu bits = vf_bits(x), rounded = bits + (vu_set(0x7FFFu) + (bits >> 16 & vu_set(1)));
  const vm nan = vu_less(vu_set(0x7F800000u), bits & vu_set(0x7FFFFFFFu));
  return vf_bits(vf_select(nan, vf_from_bits(bits | vu_set(0x400000u)), vf_from_bits(rounded)));
}

/* The same of an operand. */
HARK_SIMD vu bf16_upper_operand(vf x) {
  const vu bits = vf_bits(x);
  const vm subnormal = vu_less(bits & vu_set(0x7FFFFFFFu), vu_set(0x800000u));
  return vf_bits(vf_select(subnormal, vf_from_bits(bits & vu_set(0x80000000u)), vf_from_bits(bf16_upper(x))));
}

/* The words of pairs, of operands; `dots`: with the processor's instruction. */
HARK_SIMD vu bf16_pair(bool dots, vf even, vf odd) {
#if defined(HARK_BF16_DOTS)
  if (dots) {
    const vu adjacent = bf16_adjacent_dots(even, odd);
    uint16_t order[2 * HARK_LANES];
    HARK_UNROLL
    for (int i = 0; i < 2 * HARK_LANES; i++) order[i] = (uint16_t)(i / 2 + (i % 2) * HARK_LANES);
    return (vu)_mm512_permutexvar_epi16(_mm512_loadu_si512(order), (__m512i)adjacent);
  }
#endif
  (void)dots;
  return bf16_upper_operand(even) >> 16 | (bf16_upper_operand(odd) & vu_set(0xFFFF0000u));
}

/* HARK_LANES halves as words; zero beyond `count`, where memory is not accessed. */
HARK_SIMD vu vu_load_halves(const uint16_t *from, int count) {
#if defined(HARK_SIMD_AVX512)
  const __m256i halves = count >= HARK_LANES ? _mm256_loadu_si256((const void *)from)
                                             : _mm256_maskz_loadu_epi16((__mmask16)((1u << (unsigned)count) - 1u), from);
  return (vu)_mm512_cvtepu16_epi32(halves);
#else
  uint32_t words[HARK_LANES] = {0};
  for (int i = 0; i < HARK_LANES && i < count; i++) words[i] = from[i];
  return vu_load(words);
#endif
}

/* Rounds HARK_LANES numbers and stores the first `count`. */
HARK_SIMD void bf16_store(uint16_t *to, vf x, int count) {
  const vu words = bf16_upper(x) >> 16;
#if defined(HARK_SIMD_AVX512)
  const __m256i halves = _mm512_cvtepi32_epi16((__m512i)words);
  if (count >= HARK_LANES)
    _mm256_storeu_si256((void *)to, halves);
  else
    _mm256_mask_storeu_epi16(to, (__mmask16)((1u << (unsigned)count) - 1u), halves);
#else
  uint32_t each[HARK_LANES];
  vu_store(each, words);
  for (int i = 0; i < HARK_LANES && i < count; i++) to[i] = (uint16_t)each[i];
#endif
}

/* The words of 2 HARK_LANES adjacent numbers, of which `count` exist; the others are zero. */
HARK_SIMD vu bf16_words(bool dots, const float *from, int count) {
  const vf first = vf_load_part_or_all(from, count > 0 ? count : 0);
  const vf second = count > HARK_LANES ? vf_load_part_or_all(from + HARK_LANES, count - HARK_LANES) : vf_zero();
#if defined(HARK_BF16_DOTS)
  if (dots) return bf16_adjacent_dots(first, second);
#endif
  (void)dots;
#if defined(HARK_SIMD_AVX512)
  const __m256i low = _mm512_cvtepi32_epi16((__m512i)(bf16_upper_operand(first) >> 16));
  return (vu)_mm512_inserti64x4(_mm512_castsi256_si512(low), _mm512_cvtepi32_epi16((__m512i)(bf16_upper_operand(second) >> 16)), 1);
#else
  uint32_t each[2 * HARK_LANES];
  uint16_t halves[2 * HARK_LANES];
  vu words;
  vu_store(each, bf16_upper_operand(first) >> 16);
  vu_store(each + HARK_LANES, bf16_upper_operand(second) >> 16);
  for (int i = 0; i < 2 * HARK_LANES; i++) halves[i] = (uint16_t)each[i];
  memcpy(&words, halves, sizeof words);
  return words;
#endif
}

#endif
