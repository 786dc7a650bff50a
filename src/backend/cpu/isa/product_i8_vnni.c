/* product_i8_vnni.c - product_i8.c with AVX512_VNNI, which multiplies bytes without a sign by bytes with one and adds four products.
 *
 * W + 128 has no sign: sum_i q[i] W[i] = sum_i q[i] (W[i] + 128) - 128 sum_i q[i]. Sums may wrap around 2^32; the result fits 32 bits, is
 * exact, as in product_i8.c, and has the same bits.
 */
#include "backend/cpu/isa/kernels.h"
#include "backend/cpu/simd.h"

#ifdef HARK_SIMD_AVX512

#define STREAMS 2 /* rows of W at a time, of both halves (few_rows.c) */
#define ROWS_Q 8  /* rows of q against them */
#define STEP 64

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
VNNI_SIMD void step(const int rows, const int streams, __m512i sum[ROWS_Q][STREAMS], const int8_t *q, const int8_t *w, int64_t k,
                    int64_t apart, __mmask64 part) {
  __m512i right[STREAMS];
  HARK_UNROLL
  for (int j = 0; j < streams; j++) right[j] = load_w(w + j * apart, part);
  HARK_UNROLL
  for (int i = 0; i < rows; i++) {
    const __m512i left = load_q(q + i * k, part);
    HARK_UNROLL
    for (int j = 0; j < streams; j++) sum[i][j] = add_products(sum[i][j], right[j], left);
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
VNNI_SIMD __m128i totals(__m512i a, __m512i b, __m512i c, __m512i d) {
  const __m512i sum[4] = {a, b, c, d};
  __m256i half[4];
  HARK_UNROLL
  for (int j = 0; j < 4; j++) half[j] = _mm256_add_epi32(_mm512_castsi512_si256(sum[j]), _mm512_extracti64x4_epi64(sum[j], 1));
  const __m256i four = _mm256_hadd_epi32(_mm256_hadd_epi32(half[0], half[1]), _mm256_hadd_epi32(half[2], half[3]));
  return _mm_add_epi32(_mm256_castsi256_si128(four), _mm256_extracti128_si256(four, 1));
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

/* An element of C. `shift`: 128 times the sum of each row of q. */
static inline void finish(const hark_cpu_product_i8 *x, int64_t row, int64_t column, int32_t total, const uint32_t *shift) {
  const double exact = (double)(int32_t)((uint32_t)total - shift[row]);
  const float product = (float)(x->s[row] * (double)x->scale[column] * exact);
  x->c[row * x->ldc + column] = x->bias != NULL ? product + x->bias[column] : product;
}

/* Four elements of a C of one row: two columns of each stream, one after the other. */
VNNI_SIMD void four_products(const hark_cpu_product_i8 *x, int64_t column, int64_t half, uint32_t shift) {
  __m512i sum[2][ROWS_Q][STREAMS]; /* of one row each */
  HARK_UNROLL
  for (int i = 0; i < 2; i++) {
    sum[i][0][0] = sum[i][0][1] = _mm512_setzero_si512();
    const int8_t *w = x->w + (column + i) * x->k;
    int64_t p = 0;
    HARK_ROLLED
    for (; p + STEP <= x->k; p += STEP) step(1, STREAMS, sum[i], x->q + p, w + p, x->k, half * x->k, ~(__mmask64)0);
    if (p < x->k) step(1, STREAMS, sum[i], x->q + p, w + p, x->k, half * x->k, ((__mmask64)1 << (x->k - p)) - 1);
  }
  finish_four(x, column, half, totals(sum[0][0][0], sum[1][0][0], sum[0][0][1], sum[1][0][1]), shift);
}

/* C[row .. row + rows, column] and, of two streams, the same in column + half. */
VNNI_SIMD void inner_products(const int rows, const int streams, const hark_cpu_product_i8 *x, int64_t row, int64_t column, int64_t half,
                              const uint32_t *shift) {
  __m512i sum[ROWS_Q][STREAMS];
  HARK_UNROLL
  for (int i = 0; i < rows; i++) {
    HARK_UNROLL
    for (int j = 0; j < STREAMS; j++) sum[i][j] = _mm512_setzero_si512();
  }
  const int8_t *q = x->q + row * x->k, *w = x->w + column * x->k;
  const int64_t apart = half * x->k;
  int64_t p = 0;
  HARK_ROLLED
  for (; p + STEP <= x->k; p += STEP) step(rows, streams, sum, q + p, w + p, x->k, apart, ~(__mmask64)0);
  if (p < x->k) step(rows, streams, sum, q + p, w + p, x->k, apart, ((__mmask64)1 << (x->k - p)) - 1);
  HARK_UNROLL
  for (int i = 0; i < rows; i += 2) {
    const int next = i + 1 < rows ? i + 1 : i;
    int32_t total[4];
    _mm_storeu_si128((__m128i *)(void *)total, totals(sum[i][0], sum[i][1], sum[next][0], sum[next][1]));
    for (int j = 0; j < streams; j++) {
      finish(x, row + i, column + j * half, total[j], shift);
      if (next > i) finish(x, row + next, column + j * half, total[2 + j], shift);
    }
  }
}

/* All rows of q against a row of W, and against the one of the second stream. */
VNNI_SIMD void all_rows(const int streams, const hark_cpu_product_i8 *x, int64_t column, int64_t half, const uint32_t *shift) {
  int64_t row = 0;
  for (; row + ROWS_Q <= x->m; row += ROWS_Q) inner_products(ROWS_Q, streams, x, row, column, half, shift);
  for (; row + 2 <= x->m; row += 2) inner_products(2, streams, x, row, column, half, shift);
  if (row < x->m) inner_products(1, streams, x, row, column, half, shift);
}

VNNI void HARK_ISA(hark_cpu_product_i8_vnni)(const hark_cpu_product_i8 *x) {
  uint32_t shift[HARK_CPU_I8_ROWS];
  for (int64_t i = 0; i < x->m; i++) shift[i] = 128 * (uint32_t)total_of(x->q + i * x->k, x->k);
  const int64_t half = x->n / 2;
  int64_t column = 0;
  for (; x->m == 1 && column + 2 <= half; column += 2) four_products(x, column, half, shift[0]);
  for (; column < half; column++) all_rows(STREAMS, x, column, half, shift);
  if (x->n % 2 != 0) all_rows(1, x, x->n - 1, 0, shift);
}

#else

/* Never called: product_i8.c calls it in the compilation for AVX-512. */
extern const char HARK_ISA(hark_cpu_product_i8_has_no_vnni);
const char HARK_ISA(hark_cpu_product_i8_has_no_vnni) = 0;

#endif
