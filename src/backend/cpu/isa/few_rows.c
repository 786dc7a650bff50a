/* few_rows.c - C = A B^T + 1 bias^T for few rows of A: inner products that read B once, as two or four streams.
 *
 * A [m, k], B [n, k] of f32, bf16 or f16, C [m, n]. One step of generation is m = 1: 2 n k operations for 4 n k bytes (2 n k for halves),
 * so memory limits the speed. B's rows are read as streams: of two, one begins at the first row and one in the middle, and each goes
 * through its rows one after another. A Zen 4, on which this was measured, recognises streams and fetches what comes next. It does not
 * recognise four neighbouring rows at a time (docs/notes/training.md). From m = ROWS_A on, arithmetic takes time between the reads. Then
 * there are four streams, whose next rows are fetched meanwhile. Each inner product has its partial sums in lanes, which are added in the
 * order of a tree: one order whatever m is. Halves become f32 in registers, exactly.
 */
#include "backend/cpu/isa/kernels.h"
#include "backend/cpu/simd.h"
#include "core/half.h"

#define ROWS_A 4                                 /* rows of A at a time */
#define STREAMS 4                                /* rows of B against them, at most */
#define FEWER_STREAMS (HARK_LANES == 16 ? 2 : 4) /* against fewer rows of A: short vectors need more sums that do not wait for each other */
#define LINE 64                                  /* bytes that one prefetch reads */

/* HARK_LANES numbers of B. */
HARK_SIMD vf load(const hark_type type, const char *from) {
  if (type == HARK_F32) return vf_load((const float *)(const void *)from);
#if defined(HARK_SIMD_AVX512)
  const __m256i halves = _mm256_loadu_si256((const __m256i *)(const void *)from);
  if (type == HARK_F16) return (vf)_mm512_cvtph_ps(halves);
  return (vf)_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
#elif defined(HARK_SIMD_AVX2)
  const __m128i halves = _mm_loadu_si128((const __m128i *)(const void *)from);
  if (type == HARK_F16) return (vf)_mm256_cvtph_ps(halves);
  return (vf)_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
#else
  float numbers[HARK_LANES];
  if (type == HARK_F16) {
    hark_half_to_f32(HARK_F16, from, HARK_LANES, numbers);
    return vf_load(numbers);
  }
  uint16_t halves[HARK_LANES];
  uint32_t bits[HARK_LANES];
  memcpy(halves, from, sizeof halves);
  for (int i = 0; i < HARK_LANES; i++) bits[i] = (uint32_t)halves[i] << 16;
  return vf_from_bits(vu_load(bits));
#endif
}

/* The first `count` of them, zero beyond. */
HARK_SIMD vf load_part(const hark_type type, const char *from, int count) {
  if (type == HARK_F32) return vf_load_part((const float *)(const void *)from, count);
  uint16_t halves[HARK_LANES] = {0};
  memcpy(halves, from, (size_t)count * sizeof *halves);
  return load(type, (const char *)halves);
}

/* Adds the products of the `count` numbers from p on of each row: HARK_LANES, or fewer at the end. */
HARK_SIMD void add_products(const hark_type type, const int rows, const int streams, int64_t lda, const float *a, int64_t apart,
                            const char *b, int64_t p, int count, vf sum[ROWS_A][STREAMS]) {
  const int64_t bytes = type == HARK_F32 ? (int64_t)sizeof(float) : (int64_t)sizeof(uint16_t);
  vf right[STREAMS];
  HARK_UNROLL
  for (int j = 0; j < streams; j++) {
    const char *from = b + j * apart + p * bytes;
    right[j] = count == HARK_LANES ? load(type, from) : load_part(type, from, count);
  }
  HARK_UNROLL
  for (int i = 0; i < rows; i++) {
    const vf left = count == HARK_LANES ? vf_load(a + i * lda + p) : vf_load_part(a + i * lda + p, count);
    HARK_UNROLL
    for (int j = 0; j < streams; j++) sum[i][j] = vf_fma(left, right[j], sum[i][j]);
  }
}

/* C[row .. row + rows, column + j apart], j < streams, where `rows` and `streams` are constants. Of the streams [first, end) it fetches the
 * rows that are multiplied next. */
HARK_SIMD void inner_products(const hark_type type, const int rows, const int streams, const int first, const int end,
                              const hark_cpu_product *x, const char *matrix, int64_t row, int64_t column, int64_t apart) {
  vf sum[ROWS_A][STREAMS];
  HARK_UNROLL
  for (int i = 0; i < rows; i++) {
    HARK_UNROLL
    for (int j = 0; j < streams; j++) sum[i][j] = vf_zero();
  }
  const int64_t bytes = type == HARK_F32 ? (int64_t)sizeof(float) : (int64_t)sizeof(uint16_t), stride = x->ldb * bytes;
  const float *a = x->a + row * x->lda;
  const char *b = matrix + column * stride;
  int64_t p = 0;
  HARK_ROLLED
  for (; p + 2 * HARK_LANES <= x->k; p += 2 * HARK_LANES) {
    HARK_UNROLL
    for (int j = first; j < end; j++) {
      HARK_UNROLL
      for (int line = 0; line < 2 * HARK_LANES * (int)bytes; line += LINE)
        HARK_PREFETCH_FAR(b + (j * apart + 1) * stride + p * bytes + line);
    }
    add_products(type, rows, streams, x->lda, a, apart * stride, b, p, HARK_LANES, sum);
    add_products(type, rows, streams, x->lda, a, apart * stride, b, p + HARK_LANES, HARK_LANES, sum);
  }
  if (p + HARK_LANES <= x->k) {
    add_products(type, rows, streams, x->lda, a, apart * stride, b, p, HARK_LANES, sum);
    p += HARK_LANES;
  }
  if (p < x->k) add_products(type, rows, streams, x->lda, a, apart * stride, b, p, (int)(x->k - p), sum);
  HARK_UNROLL
  for (int i = 0; i < rows; i++) {
    HARK_UNROLL
    for (int j = 0; j < streams; j++) {
      const int64_t at = column + j * apart;
      x->c[(row + i) * x->ldc + at] = vf_sum(sum[i][j]) + (x->bias != NULL ? x->bias[at] : 0);
    }
  }
}

/* All rows of A against one row of each stream. */
HARK_SIMD void all_rows(const hark_type type, const int streams, const hark_cpu_product *x, const char *matrix, int64_t column,
                        int64_t apart) {
  int64_t row = 0;
  if (x->m >= 2 * ROWS_A) { /* each of two groups fetches for half of the streams, so that memory is busy all the time */
    inner_products(type, ROWS_A, streams, 0, streams / 2, x, matrix, 0, column, apart);
    inner_products(type, ROWS_A, streams, streams / 2, streams, x, matrix, ROWS_A, column, apart);
    row = 2 * ROWS_A;
  } else if (x->m >= ROWS_A) {
    inner_products(type, ROWS_A, streams, 0, streams, x, matrix, 0, column, apart);
    row = ROWS_A;
  }
  for (; row + ROWS_A <= x->m; row += ROWS_A) inner_products(type, ROWS_A, streams, 0, 0, x, matrix, row, column, apart);
  if (x->m - row >= 2) {
    inner_products(type, 2, streams, 0, 0, x, matrix, row, column, apart);
    row += 2;
  }
  if (x->m - row == 1) inner_products(type, 1, streams, 0, 0, x, matrix, row, column, apart);
}

HARK_SIMD void all_streams(const hark_type type, const int streams, const hark_cpu_product *x, const char *matrix) {
  const int64_t apart = x->n / streams;
  int64_t column = 0;
  for (; column < apart; column++) all_rows(type, streams, x, matrix, column, apart);
  for (column = streams * apart; column < x->n; column++) all_rows(type, 1, x, matrix, column, 0);
}

HARK_SIMD void all(const hark_type type, const hark_cpu_product *x, const char *matrix) {
  if (FEWER_STREAMS < STREAMS && x->m < ROWS_A)
    all_streams(type, FEWER_STREAMS, x, matrix);
  else
    all_streams(type, STREAMS, x, matrix);
}

void HARK_ISA(hark_cpu_few_rows)(const hark_cpu_product *x) { all(HARK_F32, x, (const char *)x->b); }

void HARK_ISA(hark_cpu_few_rows_halves)(const hark_cpu_product *x, hark_type type, const uint16_t *matrix) {
  if (type == HARK_BF16)
    all(HARK_BF16, x, (const char *)matrix);
  else
    all(HARK_F16, x, (const char *)matrix);
}

void HARK_ISA(hark_cpu_widen_halves)(hark_type type, const uint16_t *from, int64_t count, float *to) {
  int64_t i = 0;
  for (; i + HARK_LANES <= count; i += HARK_LANES)
    vf_store(to + i, type == HARK_BF16 ? load(HARK_BF16, (const char *)(from + i)) : load(HARK_F16, (const char *)(from + i)));
  if (i < count) hark_half_to_f32(type, from + i, count - i, to + i);
}
