/* dense_dropout.c - dropout of attention weights, keyed by place and not by the order of tiles.
 *
 *     entry (b, h, n, i) is kept when word i % 4 of Philox counter ((b H + h) 2^23 + n) 2^21 + i / 4 is >= p 2^32; kept weights times 1/(1-p)
 *
 * Lanes are queries; a counter gives the words of four keys. Cost: ten rounds of two 32 x 32 bit products for four entries. Source: Salmon
 * et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011; hark_random_words() is the same for one counter.
 */
#include "dense_tile.h"

#define ROUNDS 10

/* High and low words of a constant times each lane. */
HARK_SIMD void multiply(uint32_t constant, vu x, vu *high, vu *low) {
  *low = x * vu_set(constant);
#if defined(HARK_SIMD_AVX512)
  const __m512i c = _mm512_set1_epi32((int)constant);
  const __m512i even = _mm512_mul_epu32((__m512i)x, c), odd = _mm512_mul_epu32(_mm512_srli_epi64((__m512i)x, 32), c);
  *high = (vu)_mm512_mask_blend_epi32((__mmask16)0xAAAA, _mm512_srli_epi64(even, 32), odd);
#elif defined(HARK_SIMD_AVX2)
  const __m256i c = _mm256_set1_epi32((int)constant);
  const __m256i even = _mm256_mul_epu32((__m256i)x, c), odd = _mm256_mul_epu32(_mm256_srli_epi64((__m256i)x, 32), c);
  *high = (vu)_mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xAA);
#else
  uint32_t lanes[HARK_LANES];
  vu_store(lanes, x);
  for (int i = 0; i < HARK_LANES; i++) lanes[i] = (uint32_t)(((uint64_t)lanes[i] * constant) >> 32);
  *high = vu_load(lanes);
#endif
}

HARK_SIMD void philox(uint64_t seed, vu words[4]) {
  uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
  HARK_ROLLED
  for (int round = 0; round < ROUNDS; round++) {
    vu high0, low0, high1, low1;
    multiply(0xD2511F53u, words[0], &high0, &low0);
    multiply(0xCD9E8D57u, words[2], &high1, &low1);
    words[0] = high1 ^ words[1] ^ vu_set(k0);
    words[2] = high0 ^ words[3] ^ vu_set(k1);
    words[1] = low1;
    words[3] = low0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
}

void HARK_ISA(hark_dense_drop)(const hark_dense_tile *tile, float *weights) {
  const hark_dense_call *call = tile->call;
  const hark_random_stream *stream = &call->args->dropout;
  const uint64_t plane = (uint64_t)(tile->sequence->item * call->heads + tile->head) << 23;
  const uint64_t row = (uint64_t)hark_dense_query_row(tile);
  const int64_t first_key = hark_dense_key_row(tile), last_key = first_key + tile->keys;
  const vu threshold = vu_set(call->dropout_threshold);
  const vf gain = vf_set(call->dropout_gain);
  for (int m = 0; m < hark_dense_vectors(tile); m++)
    for (int64_t quad = first_key / 4; quad * 4 < last_key; quad++) {
      const int64_t begin = hark_max(quad * 4, first_key), end = hark_min(quad * 4 + 4, last_key);
      if (hark_dense_first_vector(tile, (int)(begin - first_key)) > m) continue;
      uint32_t low[HARK_LANES], high[HARK_LANES];
      for (int lane = 0; lane < HARK_LANES; lane++) {
        const uint64_t counter = ((plane + row + (uint64_t)(m * HARK_LANES + lane)) << 21) + (uint64_t)quad + stream->first_index;
        low[lane] = (uint32_t)counter;
        high[lane] = (uint32_t)(counter >> 32);
      }
      vu words[4] = {vu_load(low), vu_load(high), vu_set(stream->micro_step), vu_set(stream->layer_purpose)};
      philox(stream->seed, words);
      for (int64_t key = begin; key < end; key++) {
        float *at = weights + (key - first_key) * HARK_TILE_QUERIES + m * HARK_LANES;
        vf_store(at, vf_select(vu_less(words[key % 4], threshold), vf_zero(), vf_load(at) * gain));
      }
    }
}
