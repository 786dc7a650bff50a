/* dense_words.h - the operands of attention's products in bf16, as words of pairs along the sum (bf16.h, dense_products.h).
 *
 *     row pairs       to[p][c] = (x[2 p][c], x[2 p + 1][c])     queries and dout by features, P and dS by keys, values, keys and rows
 *                                                               by rows
 *     adjacent pairs  to[r][p] = (x[r][2 p], x[r][2 p + 1])     keys and values by features, P and dS by queries
 *
 * Rounding is that of bf16.h. Numbers that do not exist are zero. The bits are the same by the processor's instructions and without.
 */
#ifndef HARK_BACKEND_CPU_ISA_DENSE_WORDS_H
#define HARK_BACKEND_CPU_ISA_DENSE_WORDS_H

#include "dense_products.h"

/* Words of a row of adjacent pairs, in whole vectors. */
static inline int hark_row_words(int features) { return (features + 2 * HARK_LANES - 1) / (2 * HARK_LANES) * HARK_LANES; }

/* `width`: numbers of a row of words, whole vectors; `features` of them exist in x. */
HARK_SIMD void hark_word_rows(hark_product_arithmetic by, const float *x, int64_t stride, int rows, int features, int width, float *to) {
  for (int r = 0; r < rows; r += 2)
    for (int c = 0; c < width; c += HARK_LANES) {
      const int here = features - c < HARK_LANES ? (features > c ? features - c : 0) : HARK_LANES;
      const vf even = vf_load_part_or_all(x + r * stride + c, here);
      const vf odd = r + 1 < rows ? vf_load_part_or_all(x + (r + 1) * stride + c, here) : vf_zero();
      vf_store(to + r / 2 * width + c, vf_from_bits(bf16_pair(by == HARK_ADD_DOTS, even, odd)));
    }
}

/* The same of a tile [keys][HARK_TILE_QUERIES], of whose vector m the keys below limits[m] exist. */
HARK_SIMD void hark_word_tile(hark_product_arithmetic by, const float *tile, int keys, int vectors, const int *limits, float *to) {
  for (int key = 0; key < keys; key += 2)
    for (int m = 0; m < vectors; m++) {
      const int limit = limits != NULL ? limits[m] : keys;
      const float *from = tile + (ptrdiff_t)key * HARK_TILE_QUERIES + m * HARK_LANES;
      const vf even = key < limit ? vf_load(from) : vf_zero(), odd = key + 1 < limit ? vf_load(from + HARK_TILE_QUERIES) : vf_zero();
      vf_store(to + key / 2 * HARK_TILE_QUERIES + m * HARK_LANES, vf_from_bits(bf16_pair(by == HARK_ADD_DOTS, even, odd)));
    }
}

/* to [rows][hark_row_words(features)] */
HARK_SIMD void hark_word_pairs(hark_product_arithmetic by, const float *x, int64_t stride, int rows, int features, float *to) {
  const int width = hark_row_words(features);
  for (int r = 0; r < rows; r++)
    for (int p = 0; p < width; p += HARK_LANES)
      vf_store(to + r * width + p, vf_from_bits(bf16_words(by == HARK_ADD_DOTS, x + r * stride + 2 * p, features - 2 * p)));
}

#endif
