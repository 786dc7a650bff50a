/* matrix.h - small dense matrices in float64, row by row. */
#ifndef HARK_LAB_MATRIX_H
#define HARK_LAB_MATRIX_H

#include <stdbool.h>
#include <stdint.h>

#include <hark/status.h>

/* out [rows, columns] <- a [rows, inner] b [inner, columns]. */
void hark_lab_multiply(int64_t rows, int64_t inner, int64_t columns, const double *a, const double *b, double *out);

/* out [rows, columns] <- out + a^T b of a [inner, rows] and b [inner, columns]; out <- out + a b^T of a [rows, inner] and b [columns,
 * inner]. */
void hark_lab_add_left_transposed(int64_t rows, int64_t inner, int64_t columns, const double *a, const double *b, double *out);
void hark_lab_add_right_transposed(int64_t rows, int64_t inner, int64_t columns, const double *a, const double *b, double *out);

double hark_lab_dot(const double *a, const double *b, int64_t count);

/* Every row of [count, dim] divided by its length. */
void hark_lab_put_on_sphere(int64_t count, int64_t dim, double *rows);

/* The lower triangle of the symmetric matrix a [n, n] becomes L with a = L L^T; false when it is not positive definite up to rounding.
 * Entries above the diagonal are neither read nor written. */
HARK_MUST_CHECK bool hark_lab_cholesky(int64_t n, double *a);
/* b [n, columns] <- (L L^T)^-1 b, with L from above. */
void hark_lab_cholesky_solve(int64_t n, const double *l, int64_t columns, double *b);

/* w [rows, columns] <- the nearest matrix (in the Frobenius norm) whose 2-norm is at most `bound`: its singular values are cut there. At
 * most HARK_LAB_CUT_COLUMNS columns. */
#define HARK_LAB_CUT_COLUMNS 16
void hark_lab_cut_norm(int64_t rows, int64_t columns, double bound, double *w);

/* Eigenvalues of the symmetric matrix a [n, n], largest first, and their vectors as rows of vectors [n, n]; a is overwritten. Cyclic Jacobi
 * rotations: absolute errors of about n eps times the largest one. */
void hark_lab_eigen(int64_t n, double *a, double *values, double *vectors);

#endif
