/* compact.h - matrices of weights in one or two bytes per number: bf16 and f16 (half.h), and i8 with a scale for each row.
 *
 * i8: w = scale q, q from -127 to 127, scale = max |w| / 127 of the row: |w - scale q| <= scale / 2.
 */
#ifndef HARK_CORE_COMPACT_H
#define HARK_CORE_COMPACT_H

#include "core/core.h"
#include "core/half.h"

#define HARK_I8_LARGEST 127

/* Most terms of an exact 32-bit sum of products of two integers, one from -127 to 127 and one from -128 to 127. */
#define HARK_I8_MOST_TERMS (INT32_MAX / (127 * 128))

/* The types that linear_compact and embedding_compact accept for a matrix. */
static inline bool hark_type_is_compact(hark_type type) { return hark_type_is_half(type) || type == HARK_I8; }

/* From so many rows on, a product with a matrix of halves widens the matrix first, in parts of so many of its rows. */
#define HARK_COMPACT_FEW_ROWS 16
#define HARK_COMPACT_PANEL_NUMBERS ((int64_t)1 << 20)
static inline int64_t hark_compact_panel_rows(int64_t rows, int64_t columns) {
  return hark_min(rows, hark_max(64, HARK_COMPACT_PANEL_NUMBERS / hark_max(columns, 1) / 64 * 64));
}

/* to[i] = the number i of a row, in f32. `scale` is used for i8 only. */
void hark_compact_widen(hark_type type, const void *from, int64_t count, float scale, float *to);

/* A row of f32 as i8; returns its scale, 0 for a row of zeros, NaN or infinity if a number is not finite (the integers are then 0). */
float hark_i8_narrow(const float *from, int64_t count, int8_t *to);

/* to[i] = from[i] 127 / m rounded to the nearest integer, ties to even, with m = max |from|; the quotient is exact enough in double that no
 * result depends on its rounding. Returns m / 127; NaN, and zeros, if a number is not finite. */
double hark_i8_quantise(const float *from, int64_t count, int8_t *to);

#endif
