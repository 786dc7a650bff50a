/* product_i8_vnni.c - product_i8.c with AVX512_VNNI, which multiplies bytes without a sign by bytes with one and adds four products.
 *
 * W + 128 has no sign: sum_i q[i] W[i] = sum_i q[i] (W[i] + 128) - 128 sum_i q[i]. Sums may wrap around 2^32; the result fits 32 bits, is
 * exact, as in product_i8.c, and has the same bits.
 */
#include "backend/cpu/isa/kernels.h"
#include "backend/cpu/simd.h"

#ifdef HARK_SIMD_AVX512

#define ROWS_W 4 /* rows of W at a time */
#define ROWS_Q 4 /* rows of q against them */
#define STEP 64
#define FETCH_AHEAD (8 * 1024) /* bytes: distance of prefetched reads */

/* The compiler's flags for AVX-512 do not include these instructions. */
#define VNNI __attribute__((target("avx512vnni")))
#define VNNI_SIMD static inline __attribute__((always_inline, target("avx512vnni")))

/* The sum of the bytes of q times the bytes of w (without a sign), and of what there is. */
VNNI_SIMD __m512i add_products(__m512i sum, __m512i w, __m512i q) { return _mm512_dpbusd_epi32(sum, w, q); }

VNNI_SIMD __m512i load_q(const int8_t *from, __mmask64 part) { return _mm512_maskz_loadu_epi8(part, from); }
VNNI_SIMD __m512i load_w(const int8_t *from, __mmask64 part) {
  return _mm512_xor_si512(_mm512_maskz_loadu_epi8(part, from), _mm512_set1_epi8(-128));
}

/* One step of up to 64 bytes; bytes of q beyond `part` are 0. */
VNNI_SIMD void step(const int rows, const int columns, __m512i sum[ROWS_Q][ROWS_W], const int8_t *q, const int8_t *w, int64_t k,
                    __mmask64 part) {
  __m512i right[ROWS_W];
  HARK_UNROLL
  for (int j = 0; j < columns; j++) {
    right[j] = load_w(w + j * k, part);
    HARK_PREFETCH_FAR(w + j * k + FETCH_AHEAD);
  }
  HARK_UNROLL
  for (int i = 0; i < rows; i++) {
    const __m512i left = load_q(q + i * k, part);
    HARK_UNROLL
    for (int j = 0; j < columns; j++) sum[i][j] = add_products(sum[i][j], right[j], left);
  }
}

/* The sum of q, as the same instruction gives it. */
VNNI_SIMD int32_t total_of(const int8_t *q, int64_t k) {
  __m512i sum = _mm512_setzero_si512();
  for (int64_t p = 0; p < k; p += STEP) {
    const __mmask64 part = k - p >= STEP ? ~(__mmask64)0 : ((__mmask64)1 << (k - p)) - 1;
    sum = _mm512_dpbusd_epi32(sum, _mm512_set1_epi8(1), load_q(q + p, part));
  }
  return _mm512_reduce_add_epi32(sum);
}

/* The totals of four sums. */
VNNI_SIMD __m128i totals(const __m512i sum[ROWS_W]) {
  __m256i half[ROWS_W];
  HARK_UNROLL
  for (int j = 0; j < ROWS_W; j++) half[j] = _mm256_add_epi32(_mm512_castsi512_si256(sum[j]), _mm512_extracti64x4_epi64(sum[j], 1));
  const __m256i four = _mm256_hadd_epi32(_mm256_hadd_epi32(half[0], half[1]), _mm256_hadd_epi32(half[2], half[3]));
  return _mm_add_epi32(_mm256_castsi256_si128(four), _mm256_extracti128_si256(four, 1));
}

/* Columns [column, column + ROWS_W) of a row of C. */
VNNI_SIMD void finish_columns(const hark_cpu_product_i8 *x, int64_t row, int64_t column, __m128i total) {
  const __m256d scale = _mm256_cvtps_pd(_mm_loadu_ps(x->scale + column));
  const __m256d product = _mm256_mul_pd(_mm256_mul_pd(_mm256_set1_pd(x->s[row]), scale), _mm256_cvtepi32_pd(total));
  __m128 y = _mm256_cvtpd_ps(product);
  if (x->bias != NULL) y = _mm_add_ps(y, _mm_loadu_ps(x->bias + column));
  _mm_storeu_ps(x->c + row * x->ldc + column, y);
}

static inline void finish_one(const hark_cpu_product_i8 *x, int64_t row, int64_t column, int32_t total) {
  const float product = (float)(x->s[row] * (double)x->scale[column] * (double)total);
  x->c[row * x->ldc + column] = x->bias != NULL ? product + x->bias[column] : product;
}

/* Elements `column` and `column` + 1 of a C of one row, and the same `half` columns further. `shift`: 128 times the sum of q. */
VNNI_SIMD void finish_four(const hark_cpu_product_i8 *x, int64_t column, int64_t half, __m128i total, uint32_t shift) {
  const __m128 scales = _mm_movelh_ps(_mm_castsi128_ps(_mm_loadl_epi64((const void *)(x->scale + column))),
                                      _mm_castsi128_ps(_mm_loadl_epi64((const void *)(x->scale + column + half))));
  const __m256d exact = _mm256_cvtepi32_pd(_mm_sub_epi32(total, _mm_set1_epi32((int)shift)));
  __m128 y = _mm256_cvtpd_ps(_mm256_mul_pd(_mm256_mul_pd(_mm256_set1_pd(x->s[0]), _mm256_cvtps_pd(scales)), exact));
  if (x->bias != NULL)
    y = _mm_add_ps(y, _mm_movelh_ps(_mm_castsi128_ps(_mm_loadl_epi64((const void *)(x->bias + column))),
                                    _mm_castsi128_ps(_mm_loadl_epi64((const void *)(x->bias + column + half)))));
  float *c = x->c + column;
  _mm_storel_pi((void *)c, y);
  _mm_storeh_pi((void *)(c + half), y);
}

/* Elements `column` and `column` + 1 of a C of one row, and the same `half` columns further: each pair of rows of W one after the other, as
 * two streams. `shift`: 128 times the sum of q. */
VNNI_SIMD void four_products(const hark_cpu_product_i8 *x, int64_t column, int64_t half, uint32_t shift) {
  __m512i sum[ROWS_W];
  HARK_UNROLL
  for (int i = 0; i < 2; i++) {
    const int8_t *w = x->w + (column + i) * x->k;
    __m512i first = _mm512_setzero_si512(), second = _mm512_setzero_si512();
    HARK_ROLLED
    for (int64_t p = 0; p < x->k; p += STEP) {
      const __mmask64 part = x->k - p >= STEP ? ~(__mmask64)0 : ((__mmask64)1 << (x->k - p)) - 1;
      const __m512i q = load_q(x->q + p, part);
      first = add_products(first, load_w(w + p, part), q);
      second = add_products(second, load_w(w + half * x->k + p, part), q);
    }
    sum[i] = first;
    sum[2 + i] = second;
  }
  finish_four(x, column, half, totals(sum), shift);
}

/* C[0..rows, 0..columns]; `shift`: 128 times the sum of each row of q. */
VNNI_SIMD void inner_products(const int rows, const int columns, const hark_cpu_product_i8 *x, int64_t row, int64_t column,
                              const uint32_t *shift) {
  __m512i sum[ROWS_Q][ROWS_W];
  HARK_UNROLL
  for (int i = 0; i < rows; i++) {
    HARK_UNROLL
    for (int j = 0; j < ROWS_W; j++) sum[i][j] = _mm512_setzero_si512();
  }
  const int8_t *q = x->q + row * x->k, *w = x->w + column * x->k;
  int64_t p = 0;
  HARK_ROLLED
  for (; p + STEP <= x->k; p += STEP) step(rows, columns, sum, q + p, w + p, x->k, ~(__mmask64)0);
  if (p < x->k) step(rows, columns, sum, q + p, w + p, x->k, ((__mmask64)1 << (x->k - p)) - 1);
  HARK_UNROLL
  for (int i = 0; i < rows; i++) {
    const uint32_t shifted = shift[row + i];
    if (columns == ROWS_W)
      finish_columns(x, row + i, column, _mm_sub_epi32(totals(sum[i]), _mm_set1_epi32((int)shifted)));
    else
      finish_one(x, row + i, column, (int32_t)((uint32_t)_mm512_reduce_add_epi32(sum[i][0]) - shifted));
  }
}

/* All rows of q against `columns` rows of W: ROWS_W or one. */
VNNI_SIMD void all_rows(const int columns, const hark_cpu_product_i8 *x, int64_t column, const uint32_t *shift) {
  int64_t row = 0;
  for (; row + ROWS_Q <= x->m; row += ROWS_Q) inner_products(ROWS_Q, columns, x, row, column, shift);
  for (; row + 2 <= x->m; row += 2) inner_products(2, columns, x, row, column, shift);
  for (; row < x->m; row++) inner_products(1, columns, x, row, column, shift);
}

VNNI void HARK_ISA(hark_cpu_product_i8_vnni)(const hark_cpu_product_i8 *x) {
  uint32_t shift[HARK_CPU_I8_ROWS];
  for (int64_t i = 0; i < x->m; i++) shift[i] = 128 * (uint32_t)total_of(x->q + i * x->k, x->k);
  int64_t column = 0;
  if (x->m == 1) {
    const int64_t half = x->n / 2 / 2 * 2;
    for (; column < half; column += 2) four_products(x, column, half, shift[0]);
    column = 2 * half;
  }
  for (; column + ROWS_W <= x->n; column += ROWS_W) all_rows(ROWS_W, x, column, shift);
  for (; column < x->n; column++) all_rows(1, x, column, shift);
}

#else

/* Never called: product_i8.c calls it in the compilation for AVX-512. */
extern const char HARK_ISA(hark_cpu_product_i8_has_no_vnni);
const char HARK_ISA(hark_cpu_product_i8_has_no_vnni) = 0;

#endif
