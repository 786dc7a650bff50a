/* adafactor.h - the workspace of a step of Adafactor (ops/adafactor.c), which the definition and kernels use in the same way.
 *
 * A tensor has `rows` of `columns` numbers; one whose second moment is not factored has rows of one number. Rows are cut into pieces whose
 * bounds depend on these extents alone, and the sums of pieces are added in order, so that the bits do not depend on the threads. The
 * workspace has the totals, then of factored moments the sums of columns [pieces, columns] and one more row, all in double.
 */
#ifndef HARK_CORE_ADAFACTOR_H
#define HARK_CORE_ADAFACTOR_H

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

#endif
