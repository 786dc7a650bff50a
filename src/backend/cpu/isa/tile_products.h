/* tile_products.h - products of tiles of queries with blocks of keys, for attention whose keys are cells or slots in memory of its own.
 */
#ifndef HARK_BACKEND_CPU_ISA_TILE_PRODUCTS_H
#define HARK_BACKEND_CPU_ISA_TILE_PRODUCTS_H

#include "backend/cpu/isa/dense_products.h"

/* hark_product_run() with these ends. */
HARK_SIMD_NOINLINE void hark_tile_scores(const hark_product *p, int vectors) { hark_product_run(HARK_FINISH_STORE, p, 0, vectors); }
HARK_SIMD_NOINLINE void hark_tile_weights(const hark_product *p, int vectors) { hark_product_run(HARK_FINISH_EXP2, p, 0, vectors); }
HARK_SIMD_NOINLINE void hark_tile_spread_all(const hark_product *p, int vectors) { hark_product_run(HARK_FINISH_SPREAD, p, 0, vectors); }

/* C += B A for a weight matrix B. If not all numbers are finite, weights of 0, which hidden entries have, add nothing. */
static inline void hark_tile_spread(bool finite, const hark_product *p, int width) {
  if (HARK_LIKELY(finite)) {
    hark_tile_spread_all(p, width / HARK_LANES);
    return;
  }
  for (int j = 0; j < p->rows; j++)
    for (int k = 0; k < p->end; k++) {
      const float weight = p->b[j * p->b_row + k * p->b_step];
      for (int c = 0; weight != 0.0f && c < width; c++) p->c[j * p->c_row + c] += weight * p->a[k * p->a_step + c];
    }
}

#endif
