/* product_i8.c - inner products of integers: rows of x against rows of a matrix, which is read once for all of them.
 *
 * |q| <= 127 and |W| <= 128, so pairs of products and the sum of up to HARK_I8_MOST_TERMS of them fit 32 bits: the sum is exact, in any
 * order. What follows the sum has one order and no fused operation: every instruction set gives the same bits. Integers are widened to 16
 * bits and multiplied in pairs; with AVX512_VNNI product_i8_vnni.c multiplies bytes.
 */
#include "backend/cpu/isa/kernels.h"
#include "backend/cpu/simd.h"

#define STREAMS 4 /* rows of W at a time, which are n / 4 apart (few_rows.c) */
#define ROWS_Q 4  /* rows of q against them */

#if defined(HARK_SIMD_AVX512) || defined(HARK_SIMD_AVX2)
#define STEP 16
typedef __m256i sums;
typedef __m256i words;
HARK_SIMD sums sums_zero(void) { return _mm256_setzero_si256(); }
HARK_SIMD words load_words(const int8_t *from) { return _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)from)); }
HARK_SIMD sums add_products(sums sum, words q, words w) { return _mm256_add_epi32(sum, _mm256_madd_epi16(q, w)); }
HARK_SIMD int32_t sums_total(sums sum) {
  __m128i four = _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
  four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4E));
  return _mm_cvtsi128_si32(_mm_add_epi32(four, _mm_shuffle_epi32(four, 0xB1)));
}
#elif defined(__SSE2__)
#define STEP 8
typedef __m128i sums;
typedef __m128i words;
HARK_SIMD sums sums_zero(void) { return _mm_setzero_si128(); }
HARK_SIMD words load_words(const int8_t *from) { /* sign-extended by a shift from the upper byte */
  const __m128i bytes = _mm_loadl_epi64((const __m128i *)(const void *)from);
  return _mm_srai_epi16(_mm_unpacklo_epi8(bytes, bytes), 8);
}
HARK_SIMD sums add_products(sums sum, words q, words w) { return _mm_add_epi32(sum, _mm_madd_epi16(q, w)); }
HARK_SIMD int32_t sums_total(sums sum) {
  const __m128i two = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0x4E));
  return _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32(two, 0xB1)));
}
#else
#define STEP 1
typedef int32_t sums;
typedef int32_t words;
HARK_SIMD sums sums_zero(void) { return 0; }
HARK_SIMD words load_words(const int8_t *from) { return *from; }
HARK_SIMD sums add_products(sums sum, words q, words w) { return sum + q * w; }
HARK_SIMD int32_t sums_total(sums sum) { return sum; }
#endif

/* C[row .. row + rows, column + j apart], j < streams, for the given constant numbers. */
HARK_SIMD void inner_products(const int rows, const int streams, const hark_cpu_product_i8 *x, int64_t row, int64_t column, int64_t apart) {
  sums sum[ROWS_Q][STREAMS];
  HARK_UNROLL
  for (int i = 0; i < rows; i++) {
    HARK_UNROLL
    for (int j = 0; j < streams; j++) sum[i][j] = sums_zero();
  }
  const int8_t *q = x->q + row * x->k, *w = x->w + column * x->k;
  const int64_t next = apart * x->k;
  int64_t p = 0;
  HARK_ROLLED
  for (; p + STEP <= x->k; p += STEP) {
    words right[STREAMS];
    HARK_UNROLL
    for (int j = 0; j < streams; j++) right[j] = load_words(w + j * next + p);
    HARK_UNROLL
    for (int i = 0; i < rows; i++) {
      const words left = load_words(q + i * x->k + p);
      HARK_UNROLL
      for (int j = 0; j < streams; j++) sum[i][j] = add_products(sum[i][j], left, right[j]);
    }
  }
  HARK_UNROLL
  for (int i = 0; i < rows; i++) {
    HARK_UNROLL
    for (int j = 0; j < streams; j++) {
      const int64_t at = column + j * apart;
      int32_t total = sums_total(sum[i][j]);
      for (int64_t r = p; r < x->k; r++) total += (int32_t)q[i * x->k + r] * (int32_t)w[j * next + r];
      const float product = (float)(x->s[row + i] * (double)x->scale[at] * (double)total);
      x->c[(row + i) * x->ldc + at] = x->bias != NULL ? product + x->bias[at] : product;
    }
  }
}

/* All rows of q against one row of W in each stream. */
HARK_SIMD void all_rows(const int streams, const hark_cpu_product_i8 *x, int64_t column, int64_t apart) {
  int64_t row = 0;
  for (; row + ROWS_Q <= x->m; row += ROWS_Q) inner_products(ROWS_Q, streams, x, row, column, apart);
  for (; row < x->m; row++) inner_products(1, streams, x, row, column, apart);
}

void HARK_ISA(hark_cpu_product_i8)(const hark_cpu_product_i8 *x) {
#ifdef HARK_SIMD_AVX512
  if (__builtin_cpu_supports("avx512vnni")) {
    HARK_ISA(hark_cpu_product_i8_vnni)(x);
    return;
  }
#endif
  const int64_t apart = x->n / STREAMS;
  int64_t column = 0;
  for (; column < apart; column++) all_rows(STREAMS, x, column, apart);
  for (column = STREAMS * apart; column < x->n; column++) all_rows(1, x, column, 0);
}
