/* tile_products.h - products of tiles of queries with blocks of keys, for attention whose keys are cells or slots in memory of its own.
 */
#ifndef HARK_BACKEND_CPU_ISA_TILE_PRODUCTS_H
#define HARK_BACKEND_CPU_ISA_TILE_PRODUCTS_H

#include "backend/cpu/isa/dense_products.h"

/* hark_product_run() with these ends. */
HARK_SIMD_NOINLINE void hark_tile_scores(const hark_product *p, int vectors) { hark_product_run(HARK_FINISH_STORE, p, 0, vectors); }
HARK_SIMD_NOINLINE void hark_tile_weights(const hark_product *p, int vectors) { hark_product_run(HARK_FINISH_EXP2, p, 0, vectors); }
HARK_SIMD_NOINLINE void hark_tile_spread_all(const hark_product *p, int vectors) { hark_product_run(HARK_FINISH_SPREAD, p, 0, vectors); }

/* C += B A for a weight matrix B. If not all numbers are finite, weights of 0, which hidden entries have, add nothing. Both ways give the
 * same bits where all that is added is finite. */
static inline void hark_tile_spread(bool finite, const hark_product *p, int width) {
  if (HARK_LIKELY(finite)) {
    hark_tile_spread_all(p, width / HARK_LANES);
    return;
  }
  for (int j = 0; j < p->rows; j++)
    for (int c = 0; c < width; c += HARK_LANES) {
      float *to = p->c + j * p->c_row + c;
      vf sum = vf_zero();
      for (int k = 0; k < p->end; k++) {
        const float weight = p->b[j * p->b_row + k * p->b_step];
        if (weight != 0.0f) sum = vf_fma(vf_load(p->a + k * p->a_step + c), vf_set(weight), sum);
      }
      vf_store(to, sum + vf_load(to));
    }
}

#endif
