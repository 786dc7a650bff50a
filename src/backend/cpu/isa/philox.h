/* philox.h - Philox 4x32-10 with one counter per lane: hark_random_words() of hark/random.h for HARK_LANES counters at a time.
 *
 * Ten rounds of two 32 x 32 bit products. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
 */
#ifndef HARK_BACKEND_CPU_ISA_PHILOX_H
#define HARK_BACKEND_CPU_ISA_PHILOX_H

#include "backend/cpu/simd.h"

#define PHILOX_ROUNDS 10

/* High and low words of a constant times each lane. */
HARK_SIMD void philox_multiply(uint32_t constant, vu x, vu *high, vu *low) {
  *low = x * vu_set(constant);
#if defined(HARK_SIMD_AVX512)
  const __m512i c = _mm512_set1_epi32((int)constant);
  const __m512i even = _mm512_mul_epu32((__m512i)x, c), odd = _mm512_mul_epu32(_mm512_srli_epi64((__m512i)x, 32), c);
  *high = (vu)_mm512_mask_blend_epi32((__mmask16)0xAAAA, _mm512_srli_epi64(even, 32), odd);
#elif defined(HARK_SIMD_AVX2)
  const __m256i c = _mm256_set1_epi32((int)constant);
  const __m256i even = _mm256_mul_epu32((__m256i)x, c), odd = _mm256_mul_epu32(_mm256_srli_epi64((__m256i)x, 32), c);
  *high = (vu)_mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xAA);
#elif defined(HARK_SIMD_NEON)
  const uint32x4_t four = (uint32x4_t)x;
  const uint64x2_t first = vmull_n_u32(vget_low_u32(four), constant), last = vmull_high_n_u32(four, constant);
  *high = (vu)vuzp2q_u32(vreinterpretq_u32_u64(first), vreinterpretq_u32_u64(last));
#else
  uint32_t lanes[HARK_LANES];
  vu_store(lanes, x);
  for (int i = 0; i < HARK_LANES; i++) lanes[i] = (uint32_t)(((uint64_t)lanes[i] * constant) >> 32);
  *high = vu_load(lanes);
#endif
}

/* words: the four words of the counters (low, high, micro_step, layer_purpose) <- their random words. */
HARK_SIMD void philox(uint64_t seed, vu words[4]) {
  uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
  HARK_ROLLED
  for (int round = 0; round < PHILOX_ROUNDS; round++) {
    vu high0, low0, high1, low1;
    philox_multiply(0xD2511F53u, words[0], &high0, &low0);
    philox_multiply(0xCD9E8D57u, words[2], &high1, &low1);
    words[0] = high1 ^ words[1] ^ vu_set(k0);
    words[2] = high0 ^ words[3] ^ vu_set(k1);
    words[1] = low1;
    words[3] = low0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
}

#endif
