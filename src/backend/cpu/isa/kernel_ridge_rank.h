/* kernel_ridge_rank.h - what forward and backward without a factor share (kernel_ridge_rank.c, kernel_ridge_rank_backward.c). */
#ifndef HARK_BACKEND_CPU_ISA_KERNEL_RIDGE_RANK_H
#define HARK_BACKEND_CPU_ISA_KERNEL_RIDGE_RANK_H

#include "kernel_ridge_tile.h"
#include "wide.h"

#define RIDGE_RANK_VECTORS 4 /* of lanes in registers */
#define RIDGE_RANK_LANES (RIDGE_RANK_VECTORS * HARK_WIDE_LANES)

static inline double *ridge_rank_carve(double **memory, int64_t count) {
  double *at = *memory;
  *memory += hark_align_up((size_t)count * sizeof(double)) / sizeof(double);
  return at;
}

/* A row over sigma sqrt 2, every `step` numbers; false if a number is not finite. */
static inline bool ridge_rank_row(const ridge_tiles *h, const float *from, int64_t step, double *to) {
  double squares = 0, gain = sqrt(h->is.scale / 2);
  for (int64_t c = 0; c < h->desc->head_dim; c++) squares += (double)from[c] * (double)from[c];
  if (h->desc->unit && squares > 0) gain /= sqrt(squares);
  for (int64_t c = 0; c < h->desc->head_dim; c++) to[c * step] = gain * (double)from[c];
  return isfinite(squares);
}

/* kappa of a row, whose numbers are `step` apart, and RIDGE_RANK_LANES rows in lanes. */
HARK_SIMD void ridge_rank_kernels(int64_t d, const double *x, int64_t step, const double *lanes, int64_t row, vd *out) {
  vd sums[RIDGE_RANK_VECTORS];
  HARK_UNROLL
  for (int v = 0; v < RIDGE_RANK_VECTORS; v++) sums[v] = vd_set(0);
  for (int64_t c = 0; c < d; c++) {
    const vd own = vd_set(x[c * step]);
    HARK_UNROLL
    for (int v = 0; v < RIDGE_RANK_VECTORS; v++) {
      const vd difference = vd_load(lanes + c * row + v * HARK_WIDE_LANES) - own;
      sums[v] = vd_fma(difference, difference, sums[v]);
    }
  }
  HARK_UNROLL
  for (int v = 0; v < RIDGE_RANK_VECTORS; v++) out[v] = vd_exp(-sums[v]);
}

/* x -= sum over s < count of weights[s step] times row s of `rows`, RIDGE_RANK_LANES numbers of each. */
HARK_SIMD void ridge_rank_less(int count, const double *weights, int64_t step, const double *rows, int64_t row, vd *x) {
  for (int s = 0; s < count; s++) {
    const vd weight = vd_set(-weights[s * step]);
    HARK_UNROLL
    for (int v = 0; v < RIDGE_RANK_VECTORS; v++) x[v] = vd_fma(weight, vd_load(rows + s * row + v * HARK_WIDE_LANES), x[v]);
  }
}

HARK_SIMD double ridge_rank_dot(const double *a, const double *b, int64_t count) {
  vd sum = vd_set(0);
  int64_t i = 0;
  for (; i + HARK_WIDE_LANES <= count; i += HARK_WIDE_LANES) sum = vd_fma(vd_load(a + i), vd_load(b + i), sum);
  double all = vd_sum(sum);
  for (; i < count; i++) all += a[i] * b[i];
  return all;
}

/* x <- M^-1 x over all keys, with one step of refinement. t: room for `rank` numbers. */
void HARK_ISA(hark_cpu_ridge_rank_solve)(const ridge_rank *r, double *x, double *t);

#endif
