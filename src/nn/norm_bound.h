/* norm_bound.h - bounds on the norms of a weight matrix, and the projection that keeps them.
 *
 * Legend: M [rows, columns] maps a vector u to M u, like weights [out, in]. |M|_r the operator norm, sup |M u|_r / |u|_r; |M|_(r,s) the
 * s-norm of the r-norms of its columns, 1/r + 1/s = 1 (assumption C.3 of Zhang et al., arXiv 2212.14852).
 *
 *   r    |M|_r                          |M|_(r,s)                        projection onto |M|_r <= a, |M|_(r,s) <= b
 *   1    largest 1-norm of a column     the same number                  every column to the nearest point of the 1-ball of min(a, b)
 *   2    largest singular value         Frobenius norm                   singular values x to min(a, t x), t <= 1 the largest that keeps b
 *   inf  largest 1-norm of a row        sum of the columns' maxima       the nearest point for b, then every row onto the 1-ball of a
 *
 * For r = 1 and 2 the result is the nearest matrix, by Frobenius norm, that satisfies both bounds. For r = infinity this is so if only one
 * bound is active; otherwise the result satisfies both, because the second step makes no number larger, but need not be the nearest.
 * Operator norms for other r are NP-hard to compute and not offered.
 */
#ifndef HARK_NN_NORM_BOUND_H
#define HARK_NN_NORM_BOUND_H

#include <stddef.h>
#include <stdint.h>

#define HARK_BOUND_WORDS "none|1|2|inf"
typedef enum hark_bound_norm { HARK_BOUND_FREE, HARK_BOUND_ONE, HARK_BOUND_TWO, HARK_BOUND_INFINITY } hark_bound_norm;

typedef struct hark_norm_bound {
  hark_bound_norm norm;
  double operator_norm, matrix_norm; /* a, b; 0: no bound */
} hark_norm_bound;

/* Number of doubles of scratch memory that the functions below need. */
size_t hark_norm_bound_scratch(int64_t rows, int64_t columns);

/* |M|_r and |M|_(r,s), computed in double; norm is not FREE. */
double hark_operator_norm(hark_bound_norm norm, int64_t rows, int64_t columns, const double *m, double *scratch);
double hark_matrix_norm(hark_bound_norm norm, int64_t rows, int64_t columns, const double *m);

/* Projects M onto its bounds, up to rounding; a matrix within its bounds is not changed. Numbers that are not finite are not changed. */
void hark_norm_bound_project(const hark_norm_bound *bound, int64_t rows, int64_t columns, double *m, double *scratch);

#endif
