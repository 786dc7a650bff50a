/* few_rows.c - C = A B^T + 1 bias^T for few rows of A: inner products that read B once, in the order of memory.
 *
 * A [m, k], B [n, k], C [m, n]. One step of generation is m = 1: 2 n k operations for 4 n k bytes, so memory limits the speed. Each inner
 * product has its partial sums in lanes, which are added in the order of a tree: one order whatever m is.
 */
#include "backend/cpu/isa/kernels.h"
#include "backend/cpu/simd.h"

#define ROWS_B 4               /* rows of B at a time */
#define ROWS_A 4               /* rows of A against them */
#define FETCH_AHEAD (4 * 1024) /* floats: distance of prefetched reads */

/* C[0..rows, 0..columns] for the given constant numbers of rows of A and B. */
HARK_SIMD void inner_products(const int rows, const int columns, const hark_cpu_product *x, int64_t row, int64_t column) {
  vf sum[ROWS_A][ROWS_B];
  HARK_UNROLL
  for (int i = 0; i < rows; i++) {
    HARK_UNROLL
    for (int j = 0; j < columns; j++) sum[i][j] = vf_zero();
  }
  const float *a = x->a + row * x->lda, *b = x->b + column * x->ldb;
  int64_t p = 0;
  HARK_ROLLED
  for (; p + HARK_LANES <= x->k; p += HARK_LANES) {
    vf right[ROWS_B];
    HARK_UNROLL
    for (int j = 0; j < columns; j++) {
      right[j] = vf_load(b + j * x->ldb + p);
      HARK_PREFETCH(b + j * x->ldb + p + FETCH_AHEAD);
    }
    HARK_UNROLL
    for (int i = 0; i < rows; i++) {
      const vf left = vf_load(a + i * x->lda + p);
      HARK_UNROLL
      for (int j = 0; j < columns; j++) sum[i][j] = vf_fma(left, right[j], sum[i][j]);
    }
  }
  if (p < x->k) {
    const int rest = (int)(x->k - p);
    HARK_UNROLL
    for (int i = 0; i < rows; i++) {
      const vf left = vf_load_part(a + i * x->lda + p, rest);
      HARK_UNROLL
      for (int j = 0; j < columns; j++) sum[i][j] = vf_fma(left, vf_load_part(b + j * x->ldb + p, rest), sum[i][j]);
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
HARK_SIMD void all_rows(const int columns, const hark_cpu_product *x, int64_t column) {
  int64_t row = 0;
  for (; row + ROWS_A <= x->m; row += ROWS_A) inner_products(ROWS_A, columns, x, row, column);
  if (x->m - row >= 2) {
    inner_products(2, columns, x, row, column);
    row += 2;
  }
  if (x->m - row == 1) inner_products(1, columns, x, row, column);
}

void HARK_ISA(hark_cpu_few_rows)(const hark_cpu_product *x) {
  int64_t column = 0;
  for (; column + ROWS_B <= x->n; column += ROWS_B) all_rows(ROWS_B, x, column);
  for (; column < x->n; column++) all_rows(1, x, column);
}
