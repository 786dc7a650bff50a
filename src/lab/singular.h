/* singular.h - singular values of small matrices in float64. */
#ifndef HARK_LAB_SINGULAR_H
#define HARK_LAB_SINGULAR_H

#include <stdint.h>

/* values[rows] <- the singular values of matrix [rows, columns], largest first; the matrix is overwritten. With more rows than columns
 * those after the first `columns` are zero up to rounding. Accuracy and cost: core/orthogonal.h. */
void hark_singular_values(int64_t rows, int64_t columns, double *matrix, double *values);

/* The least r with sum_{i > r} values[i] < tolerance (H below eq. 7); values from the largest. */
int64_t hark_numerical_rank(const double *values, int64_t count, double tolerance);

#endif
