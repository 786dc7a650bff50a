/* dense_few.h - the forward's two products for a few queries, as in decoding: lanes are features.
 *
 *     scores    S[i][n] = start[n] + diagonal[n - i] + q[n].k[i]            combine   O[c][n] = factor[n] O[c][n] + sum_i P[i][n] v[i][c]
 *
 * The layout of tiles is the usual one, one lane per query, but most lanes would be empty. Here every key and value is read once as whole
 * vectors, so that the cost is that of reading the cache. combine adds in the same order as hark_product_block(): the bits are the same.
 */
#ifndef HARK_BACKEND_CPU_ISA_DENSE_FEW_H
#define HARK_BACKEND_CPU_ISA_DENSE_FEW_H

#include "dense_products.h"

#define HARK_FEW_QUERIES 4

/* queries: [count][padded], zero between the features and padded. */
static void hark_few_scores(const hark_product *p, const float *queries, int count, int padded) {
  const int features = p->end;
  for (int key = 0; key < p->rows; key += HARK_LANES) {
    const int rows = p->rows - key < HARK_LANES ? p->rows - key : HARK_LANES;
    const float *keys = p->b + key * p->b_row;
    hark_product_look_ahead(p, key, HARK_LANES);
    for (int i = 0; i < rows; i++) vf_store(p->c + (key + i) * p->c_row, vf_zero());
    for (int n = 0; n < count; n++) {
      vf sums[HARK_LANES];
      const float *query = queries + (ptrdiff_t)n * padded;
      HARK_UNROLL
      for (int i = 0; i < HARK_LANES; i++) sums[i] = vf_zero();
      int c = 0;
      if (rows == HARK_LANES) {
        HARK_ROLLED
        for (; c + HARK_LANES <= features; c += HARK_LANES) {
          const vf q = vf_load(query + c);
          HARK_UNROLL
          for (int i = 0; i < HARK_LANES; i++) sums[i] = vf_fma(q, vf_load(keys + i * p->b_row + c), sums[i]);
        }
      }
      for (; c < features; c += HARK_LANES) {
        const int width = features - c < HARK_LANES ? features - c : HARK_LANES;
        for (int i = 0; i < rows; i++) sums[i] = vf_fma(vf_load(query + c), vf_load_part_or_all(keys + i * p->b_row + c, width), sums[i]);
      }
      vf_transpose(sums);
      HARK_UNROLL
      for (int width = HARK_LANES / 2; width > 0; width /= 2) {
        HARK_UNROLL
        for (int i = 0; i < width; i++) sums[i] = sums[i] + sums[i + width];
      }
      float logits[HARK_LANES];
      vf_store(logits, sums[0]);
      for (int i = 0; i < rows && p->diagonal != NULL; i++) logits[i] += p->diagonal[n - key - i];
      vf_store(logits, vf_load(logits) + vf_set(p->start[n]));
      for (int i = 0; i < rows; i++) p->c[(key + i) * p->c_row + n] = logits[i];
    }
  }
}

/* One query, some vectors of features from c on. */
HARK_SIMD void hark_few_block(const int vectors, const hark_product *p, int n, bool scaled, int c, int width) {
  vf sums[HARK_BLOCK_ROWS_MOST];
  HARK_UNROLL
  for (int m = 0; m < vectors; m++) sums[m] = vf_zero();
  const int end = p->limits != NULL ? p->limits[n / HARK_LANES] : p->end;
  for (int i = p->begin; i < end; i++) {
    const vf weight = vf_set(p->a[i * p->a_step + n]);
    const float *value = p->b + i * p->b_step + c;
    HARK_UNROLL
    for (int m = 0; m < vectors; m++)
      sums[m] = vf_fma(weight, vectors == 1 ? vf_load_part_or_all(value, width) : vf_load(value + m * HARK_LANES), sums[m]);
  }
  HARK_UNROLL
  for (int m = 0; m < vectors; m++) {
    float lanes[HARK_LANES];
    vf_store(lanes, sums[m]);
    for (int i = 0; i < (vectors == 1 ? width : HARK_LANES); i++) {
      float *out = p->c + (c + m * HARK_LANES + i) * p->c_row + n;
      const vf sum = scaled ? vf_fma(vf_set(*out), vf_set(p->factor[n]), vf_set(lanes[i])) : vf_set(*out) + vf_set(lanes[i]);
      vf_store_part(out, sum, 1);
    }
  }
}

static void hark_few_combine(const hark_product *p, int count, bool scaled) {
  const int features = p->rows;
  for (int n = 0; n < count; n++) {
    int c = 0;
    for (; c + 4 * HARK_LANES <= features; c += 4 * HARK_LANES) hark_few_block(4, p, n, scaled, c, HARK_LANES);
    for (; c < features; c += HARK_LANES) hark_few_block(1, p, n, scaled, c, features - c < HARK_LANES ? features - c : HARK_LANES);
  }
}

#endif
