/* product_i8_vnni.c - product_i8.c with AVX512_VNNI, which multiplies bytes without a sign by bytes with one and adds four products.
 *
 * W + 128 has no sign: sum_i q[i] W[i] = sum_i q[i] (W[i] + 128) - 128 sum_i q[i]. Sums may wrap around 2^32; the result fits 32 bits, is
 * exact, as in product_i8.c, and has the same bits.
 */
#include "backend/cpu/isa/kernels.h"
#include "backend/cpu/simd.h"

#ifdef HARK_SIMD_AVX512

#define ROWS_W 3 /* rows of W at a time: 24 sums, 3 rows of W and one of q are in registers */
#define ROWS_Q 8 /* rows of q against them */
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
    HARK_PREFETCH(w + j * k + FETCH_AHEAD);
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

/* C[0..rows, 0..columns]; `shift`: 128 times the sum of each row of q. */
VNNI_SIMD void inner_products(const int rows, const int columns, const hark_cpu_product_i8 *x, int64_t row, int64_t column,
                              const uint32_t *shift) {
  __m512i sum[ROWS_Q][ROWS_W];
  HARK_UNROLL
  for (int i = 0; i < rows; i++) {
    HARK_UNROLL
    for (int j = 0; j < columns; j++) sum[i][j] = _mm512_setzero_si512();
  }
  const int8_t *q = x->q + row * x->k, *w = x->w + column * x->k;
  int64_t p = 0;
  HARK_ROLLED
  for (; p + STEP <= x->k; p += STEP) step(rows, columns, sum, q + p, w + p, x->k, ~(__mmask64)0);
  if (p < x->k) step(rows, columns, sum, q + p, w + p, x->k, ((__mmask64)1 << (x->k - p)) - 1);
  HARK_UNROLL
  for (int i = 0; i < rows; i++) {
    HARK_UNROLL
    for (int j = 0; j < columns; j++) {
      const int32_t total = (int32_t)((uint32_t)_mm512_reduce_add_epi32(sum[i][j]) - shift[row + i]);
      const float product = (float)(x->s[row + i] * (double)x->scale[column + j] * (double)total);
      x->c[(row + i) * x->ldc + column + j] = x->bias != NULL ? product + x->bias[column + j] : product;
    }
  }
}

/* All rows of q against `columns` rows of W. */
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
  for (; column + ROWS_W <= x->n; column += ROWS_W) all_rows(ROWS_W, x, column, shift);
  for (; column < x->n; column++) all_rows(1, x, column, shift);
}

#else

/* Never called: product_i8.c calls it in the compilation for AVX-512. */
extern const char HARK_ISA(hark_cpu_product_i8_has_no_vnni);
const char HARK_ISA(hark_cpu_product_i8_has_no_vnni) = 0;

#endif
