/* few_rows.c - C = A B^T + 1 bias^T for few rows of A: inner products that read B once, in the order of memory.
 *
 * A [m, k], B [n, k] of f32, bf16 or f16, C [m, n]. One step of generation is m = 1: 2 n k operations for 4 n k bytes (2 n k for halves),
 * so memory limits the speed. Each inner product has its partial sums in lanes, which are added in the order of a tree: one order whatever
 * m is. Halves become f32 in registers, exactly.
 */
#include "backend/cpu/isa/kernels.h"
#include "backend/cpu/simd.h"
#include "core/half.h"

#define ROWS_B 4                /* rows of B at a time */
#define ROWS_A 4                /* rows of A against them */
#define LINE 64                 /* bytes that one prefetch reads */
#define FETCH_AHEAD (16 * 1024) /* bytes: distance of prefetched reads */

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

/* Adds the products of the HARK_LANES numbers from p on of each row. */
HARK_SIMD void add_products(const hark_type type, const int rows, const int columns, int64_t lda, const float *a, int64_t stride,
                            const char *b, int64_t p, vf sum[ROWS_A][ROWS_B]) {
  const int64_t bytes = type == HARK_F32 ? (int64_t)sizeof(float) : (int64_t)sizeof(uint16_t);
  vf right[ROWS_B];
  HARK_UNROLL
  for (int j = 0; j < columns; j++) right[j] = load(type, b + j * stride + p * bytes);
  HARK_UNROLL
  for (int i = 0; i < rows; i++) {
    const vf left = vf_load(a + i * lda + p);
    HARK_UNROLL
    for (int j = 0; j < columns; j++) sum[i][j] = vf_fma(left, right[j], sum[i][j]);
  }
}

/* C[0..rows, 0..columns] for the given constant numbers of rows of A and B. */
HARK_SIMD void inner_products(const hark_type type, const int rows, const int columns, const hark_cpu_product *x, const char *matrix,
                              int64_t row, int64_t column) {
  vf sum[ROWS_A][ROWS_B];
  HARK_UNROLL
  for (int i = 0; i < rows; i++) {
    HARK_UNROLL
    for (int j = 0; j < columns; j++) sum[i][j] = vf_zero();
  }
  const int64_t bytes = type == HARK_F32 ? (int64_t)sizeof(float) : (int64_t)sizeof(uint16_t), stride = x->ldb * bytes;
  const float *a = x->a + row * x->lda;
  const char *b = matrix + column * stride;
  const char *next = b + FETCH_AHEAD;
  int64_t p = 0;
  HARK_ROLLED
  for (; p + LINE / bytes <= x->k; p += LINE / bytes) {
    HARK_UNROLL
    for (int j = 0; j < columns; j++) HARK_PREFETCH(next + j * LINE); /* in the order of memory, where rows follow each other */
    next += columns * LINE;
    HARK_UNROLL
    for (int v = 0; v < LINE / bytes / HARK_LANES; v++) add_products(type, rows, columns, x->lda, a, stride, b, p + v * HARK_LANES, sum);
  }
  for (; p + HARK_LANES <= x->k; p += HARK_LANES) add_products(type, rows, columns, x->lda, a, stride, b, p, sum);
  if (p < x->k) {
    const int rest = (int)(x->k - p);
    HARK_UNROLL
    for (int i = 0; i < rows; i++) {
      const vf left = vf_load_part(a + i * x->lda + p, rest);
      HARK_UNROLL
      for (int j = 0; j < columns; j++) sum[i][j] = vf_fma(left, load_part(type, b + j * stride + p * bytes, rest), sum[i][j]);
    }
  }
  HARK_UNROLL
  for (int i = 0; i < rows; i++) {
    HARK_UNROLL
    for (int j = 0; j < columns; j++) {
      const float bias = x->bias != NULL ? x->bias[column + j] : 0;
      x->c[(row + i) * x->ldc + column + j] = vf_sum(sum[i][j]) + bias;
    }
  }
}

/* All rows of A against `columns` rows of B. */
HARK_SIMD void all_rows(const hark_type type, const int columns, const hark_cpu_product *x, const char *matrix, int64_t column) {
  int64_t row = 0;
  for (; row + ROWS_A <= x->m; row += ROWS_A) inner_products(type, ROWS_A, columns, x, matrix, row, column);
  if (x->m - row >= 2) {
    inner_products(type, 2, columns, x, matrix, row, column);
    row += 2;
  }
  if (x->m - row == 1) inner_products(type, 1, columns, x, matrix, row, column);
}

HARK_SIMD void all(const hark_type type, const hark_cpu_product *x, const char *matrix) {
  int64_t column = 0;
  for (; column + ROWS_B <= x->n; column += ROWS_B) all_rows(type, ROWS_B, x, matrix, column);
  for (; column < x->n; column++) all_rows(type, 1, x, matrix, column);
}

void HARK_ISA(hark_cpu_few_rows)(const hark_cpu_product *x) { all(HARK_F32, x, (const char *)x->b); }

void HARK_ISA(hark_cpu_few_rows_halves)(const hark_cpu_product *x, hark_type type, const uint16_t *matrix) {
  if (type == HARK_BF16)
    all(HARK_BF16, x, (const char *)matrix);
  else
    all(HARK_F16, x, (const char *)matrix);
}
