/* dense_pack.h - moves rows into transposed tiles and back, and finds numbers that are not finite.
 *
 * A transposed tile is [features][HARK_TILE_QUERIES]: feature c of row r is at c * HARK_TILE_QUERIES + r.
 */
#ifndef HARK_BACKEND_CPU_ISA_DENSE_PACK_H
#define HARK_BACKEND_CPU_ISA_DENSE_PACK_H

#include "dense_products.h"

/* tile = (scale rows)'; whole vectors of lanes are written, zero beyond `count` rows. */
HARK_SIMD void hark_pack_transposed(const float *rows, int64_t stride, int count, int features, float scale, float *tile) {
  const vf gain = vf_set(scale);
  for (int r = 0; r < count; r += HARK_LANES)
    for (int c = 0; c < features; c += HARK_LANES) {
      const int width = features - c < HARK_LANES ? features - c : HARK_LANES;
      vf block[HARK_LANES];
      for (int i = 0; i < HARK_LANES; i++) {
        if (r + i >= count)
          block[i] = vf_zero();
        else if (width == HARK_LANES)
          block[i] = gain * vf_load(rows + (r + i) * stride + c);
        else
          block[i] = gain * vf_load_part(rows + (r + i) * stride + c, width);
      }
      vf_transpose(block);
      for (int i = 0; i < width; i++) vf_store(tile + (ptrdiff_t)(c + i) * HARK_TILE_QUERIES + r, block[i]);
    }
}

/* rows = (gain tile)', with a separate gain per lane; with `add`, rows += (gain tile)'. */
HARK_SIMD void hark_unpack_transposed(const float *tile, const float *gain, int count, int features, bool add, float *rows,
                                      int64_t stride) {
  for (int r = 0; r < count; r += HARK_LANES)
    for (int c = 0; c < features; c += HARK_LANES) {
      const int width = features - c < HARK_LANES ? features - c : HARK_LANES;
      vf block[HARK_LANES];
      for (int i = 0; i < HARK_LANES; i++)
        block[i] = i < width ? vf_load(gain + r) * vf_load(tile + (ptrdiff_t)(c + i) * HARK_TILE_QUERIES + r) : vf_zero();
      vf_transpose(block);
      for (int i = 0; i < HARK_LANES && r + i < count; i++) {
        float *to = rows + (r + i) * stride + c;
        if (width == HARK_LANES)
          vf_store(to, add ? vf_load(to) + block[i] : block[i]);
        else
          vf_store_part(to, add ? vf_load_part(to, width) + block[i] : block[i], width);
      }
    }
}

/* packed [count][padded] = scale rows, zero between features and padded, a multiple of the lanes. */
HARK_SIMD void hark_pack_rows(const float *rows, int64_t stride, int count, int features, int padded, float scale, float *packed) {
  const vf gain = vf_set(scale);
  for (int r = 0; r < count; r++)
    for (int c = 0; c < padded; c += HARK_LANES) {
      const float *from = rows + r * stride + c;
      vf_store(packed + (ptrdiff_t)r * padded + c, gain * (features - c >= HARK_LANES ? vf_load(from) : vf_load_part(from, features - c)));
    }
}

/* True if every number of the rows is finite. */
HARK_SIMD bool hark_rows_finite(const float *rows, int64_t stride, int count, int features) {
  vf poison = vf_zero(); /* 0 x is NaN for infinite and NaN x, and NaN stays */
  for (int r = 0; r < count; r++) {
    int c = 0;
    for (; c + HARK_LANES <= features; c += HARK_LANES) poison = vf_fma(vf_load(rows + r * stride + c), vf_zero(), poison);
    if (c < features) poison = vf_fma(vf_load_part(rows + r * stride + c, features - c), vf_zero(), poison);
  }
  return !vm_any(vm_not(vf_equal(poison, vf_zero())));
}

/* A weight of 0 of a visible entry (its logit is above -infinity) becomes the least normal number. This is used next to values that are not
 * finite, where weights of 0 mean hidden entries. */
HARK_SIMD vf hark_seen_weight(vf weight, vf logit) {
  const vm lost = vm_and(vf_equal(weight, vf_zero()), vm_not(vf_equal(logit, vf_set(-INFINITY))));
  return vf_select(lost, vf_set(1.17549435e-38f), weight);
}

/* Both times the dropout factors at `factors`; 0 where an entry is dropped, whatever is there. */
HARK_SIMD void hark_apply_dropout(const float *factors, vf *a, vf *b) {
  const vf factor = vf_load(factors);
  const vm dropped = vf_equal(factor, vf_zero());
  *a = vf_select(dropped, vf_zero(), factor * *a);
  *b = vf_select(dropped, vf_zero(), factor * *b);
}

/* clean [count][padded] = rows, except that rows with a number that is not finite become zero; bad[r] marks them. */
HARK_SIMD void hark_clean_rows(const float *rows, int64_t stride, int count, int features, int padded, float *clean, bool *bad) {
  for (int r = 0; r < count; r++) {
    bad[r] = !hark_rows_finite(rows + r * stride, stride, 1, features);
    if (bad[r])
      memset(clean + (ptrdiff_t)r * padded, 0, (size_t)padded * sizeof *clean);
    else
      hark_pack_rows(rows + r * stride, stride, 1, features, padded, 1.0f, clean + (ptrdiff_t)r * padded);
  }
}

#endif
