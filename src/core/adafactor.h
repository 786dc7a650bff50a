/* adafactor.h - the workspace of a step of Adafactor (ops/adafactor.c), which the definition and kernels use in the same way.
 *
 * A tensor has `rows` of `columns` numbers; one whose second moment is not factored has rows of one number. Rows are cut into pieces whose
 * bounds depend on these extents alone, and the sums of pieces are added in order, so that the bits do not depend on the threads. The
 * workspace has the totals, then of factored moments the sums of columns [pieces, columns] and one more row, all in double.
 */
#ifndef HARK_CORE_ADAFACTOR_H
#define HARK_CORE_ADAFACTOR_H

#include <hark/operators.h>

#include <math.h>

#include "core/core.h"

#define HARK_ADAFACTOR_PIECES 32
#define HARK_ADAFACTOR_LEAST 16384 /* numbers in a piece */

typedef struct hark_adafactor_totals {
  double row_mean;                       /* mean of the row moments */
  double factor;                         /* of U / max(1, RMS(U) / d): the rate, with the scale of the weights */
  double updates[HARK_ADAFACTOR_PIECES]; /* sums of U^2 */
  double weights[HARK_ADAFACTOR_PIECES]; /* sums of w^2 */
} hark_adafactor_totals;

/* Rows of a piece, and how many pieces there are. */
static inline int64_t hark_adafactor_piece(int64_t rows, int64_t columns) {
  return hark_max(hark_ceil_div(rows, HARK_ADAFACTOR_PIECES), hark_ceil_div(HARK_ADAFACTOR_LEAST, hark_max(1, columns)));
}
static inline int64_t hark_adafactor_pieces(int64_t rows, int64_t columns) {
  return hark_ceil_div(rows, hark_adafactor_piece(rows, columns));
}

static inline hark_adafactor_totals *hark_adafactor_totals_of(void *workspace) { return (hark_adafactor_totals *)workspace; }
static inline double *hark_adafactor_columns_of(void *workspace) { return (double *)(hark_adafactor_totals_of(workspace) + 1); }

/* A moment as its type can store it: squares of gradients may be too large for f32. NaN stays NaN. */
static inline double hark_adafactor_moment(double moment, double largest) { return moment > largest ? largest : moment; }

/* The larger number; NaN if x is NaN, which fmax() would hide. */
static inline double hark_adafactor_at_least(double least, double x) { return x < least ? least : x; }

/* rate max(least_scale, RMS(w)) / max(1, RMS(U) / most) */
static inline double hark_adafactor_factor(const hark_adafactor_attributes *step, const hark_adafactor_totals *totals, int64_t rows,
                                           int64_t columns) {
  const int64_t pieces = hark_adafactor_pieces(rows, columns);
  const double numbers = (double)rows * (double)columns;
  double updates = 0, weights = 0, factor = step->rate;
  for (int64_t piece = 0; piece < pieces; piece++) {
    updates += totals->updates[piece];
    weights += totals->weights[piece];
  }
  if (step->least_scale > 0) factor *= hark_adafactor_at_least(step->least_scale, sqrt(weights / numbers));
  if (step->most > 0) factor /= hark_adafactor_at_least(1, sqrt(updates / numbers) / step->most);
  return factor;
}

#endif
