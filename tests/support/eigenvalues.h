/* eigenvalues.h - all eigenvalues of a small symmetric matrix. */
#ifndef HARK_TESTS_SUPPORT_EIGENVALUES_H
#define HARK_TESTS_SUPPORT_EIGENVALUES_H

/* values[n] <- the eigenvalues of the symmetric matrix [n, n], in no order; the matrix is overwritten. Cyclic Jacobi rotations: absolute
 * error about n eps times the largest one. Fails the test when they do not converge. */
void test_eigenvalues(int n, double *matrix, double *values);

/* The smallest of them. */
double test_smallest_eigenvalue(int n, double *matrix);

#endif
