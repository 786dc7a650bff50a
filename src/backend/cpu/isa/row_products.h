/* row_products.h - products of a row with other rows; lanes are features. */
#ifndef HARK_BACKEND_CPU_ISA_ROW_PRODUCTS_H
#define HARK_BACKEND_CPU_ISA_ROW_PRODUCTS_H

#include "backend/cpu/isa/elements.h"

HARK_SIMD float inner_product(const float *a, const float *b, int width) {
  vf sum = vf_zero();
  for (int c = 0; c < width; c += HARK_LANES) {
    const int lanes = width - c < HARK_LANES ? width - c : HARK_LANES;
    sum = vf_fma(load_lanes(a + c, lanes), load_lanes(b + c, lanes), sum);
  }
  return vf_sum(sum);
}

/* Adds products of `lanes` features to the sums of HARK_LANES rows. */
HARK_SIMD void add_products(vf sum[HARK_LANES], const float *x, const float *rows, int64_t step, int lanes) {
  const vf of_x = load_lanes(x, lanes);
  HARK_UNROLL
  for (int i = 0; i < HARK_LANES; i++) sum[i] = vf_fma(of_x, load_lanes(rows + i * step, lanes), sum[i]);
}

/* products[i] <- the product of x and row i of `count` rows, 1 to HARK_LANES. */
HARK_SIMD void row_products(const float *x, const float *rows, int64_t step, int count, int width, float products[HARK_LANES]) {
  if (count < HARK_LANES) {
    for (int i = 0; i < count; i++) products[i] = inner_product(x, rows + i * step, width);
    return;
  }
  vf sum[HARK_LANES];
  int c = 0;
  HARK_UNROLL
  for (int i = 0; i < HARK_LANES; i++) sum[i] = vf_zero();
  for (; c + HARK_LANES <= width; c += HARK_LANES) add_products(sum, x + c, rows + c, step, HARK_LANES);
  if (c < width) add_products(sum, x + c, rows + c, step, width - c);
  vf_transpose(sum);
  HARK_UNROLL
  for (int half = HARK_LANES / 2; half > 0; half /= 2) {
    HARK_UNROLL
    for (int i = 0; i < half; i++) sum[i] = sum[i] + sum[i + half];
  }
  vf_store(products, sum[0]);
}

#endif
