/* norm_bound.h - bounds on the norms of a weight matrix, and the projection that keeps them.
 *
 * Legend: M [rows, columns] maps a vector u to M u, as weights [out, in] do. |M|_r the operator norm, sup |M u|_r / |u|_r; |M|_(r,s) the
 * s-norm of the r-norms of its columns, 1/r + 1/s = 1 (assumption C.3 of Zhang et al., arXiv 2212.14852).
 *
 *   r    |M|_r                          |M|_(r,s)                        projection onto |M|_r <= a, |M|_(r,s) <= b
 *   1    largest 1-norm of a column     the same number                  every column to the nearest point of the 1-ball of min(a, b)
 *   2    largest singular value         Frobenius norm                   singular values x to min(a, t x), t <= 1 the largest that keeps b
 *   inf  largest 1-norm of a row        sum of the columns' maxima       the nearest point for b, then every row onto the 1-ball of a
 *
 * For r 1 and 2 that is the nearest matrix, by Frobenius norm, that keeps both bounds. For r infinity it is where one of them binds alone;
 * else a matrix that keeps both: the second step makes no number larger. Operator norms for other r are NP-hard to compute, so there are
 * none.
 */
#ifndef HARK_NN_NORM_BOUND_H
#define HARK_NN_NORM_BOUND_H

#include <stddef.h>
#include <stdint.h>

#define HARK_BOUND_WORDS "none|1|2|inf"
typedef enum hark_bound_norm { HARK_BOUND_FREE, HARK_BOUND_ONE, HARK_BOUND_TWO, HARK_BOUND_INFINITY } hark_bound_norm;

typedef struct hark_norm_bound {
  hark_bound_norm norm;
  double operator_norm, matrix_norm; /* a, b; 0: free */
} hark_norm_bound;

/* Doubles of scratch memory that the functions below need. */
size_t hark_norm_bound_scratch(int64_t rows, int64_t columns);

/* |M|_r and |M|_(r,s), computed in double; norm is not FREE. */
double hark_operator_norm(hark_bound_norm norm, int64_t rows, int64_t columns, const double *m, double *scratch);
double hark_matrix_norm(hark_bound_norm norm, int64_t rows, int64_t columns, const double *m);

/* M keeps its bounds afterwards, up to rounding; untouched where it does already. Numbers that are not finite stay what they are. */
void hark_norm_bound_project(const hark_norm_bound *bound, int64_t rows, int64_t columns, double *m, double *scratch);

#endif
