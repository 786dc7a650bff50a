/* eigenvalues.c - cyclic Jacobi: every pair (p, q) in turn is rotated so that its entry becomes zero (Golub, Van Loan, Matrix Computations,
 * 8.5). */
#include "support/eigenvalues.h"

#include <float.h>
#include <math.h>

#include "support/cmocka_all.h"

#define SWEEPS 60 /* ten are enough in practice: convergence is quadratic */

/* A <- J^T A J with the rotation that makes A[p, q] zero. */
static void rotate(int n, double *a, int p, int q) {
  const double theta = (a[q * n + q] - a[p * n + p]) / (2 * a[p * n + q]);
  const double t = (theta >= 0 ? 1 : -1) / (fabs(theta) + hypot(theta, 1)), c = 1 / hypot(t, 1), s = t * c;
  for (int k = 0; k < n; k++) {
    const double x = a[k * n + p], y = a[k * n + q];
    a[k * n + p] = c * x - s * y;
    a[k * n + q] = s * x + c * y;
  }
  for (int k = 0; k < n; k++) {
    const double x = a[p * n + k], y = a[q * n + k];
    a[p * n + k] = c * x - s * y;
    a[q * n + k] = s * x + c * y;
  }
}

void test_eigenvalues(int n, double *matrix, double *values) {
  for (int sweep = 0;; sweep++) {
    double off = 0, all = 0;
    for (int i = 0; i < n * n; i++) {
      all += matrix[i] * matrix[i];
      if (i / n != i % n) off += matrix[i] * matrix[i];
    }
    if (sqrt(off) <= n * DBL_EPSILON * sqrt(all)) break;
    if (sweep == SWEEPS) fail_msg("eigenvalues of %d rows: not converged, off-diagonal %g of %g", n, sqrt(off), sqrt(all));
    for (int p = 0; p < n; p++) {
      for (int q = p + 1; q < n; q++) {
        if (matrix[p * n + q] != 0) rotate(n, matrix, p, q);
      }
    }
  }
  for (int i = 0; i < n; i++) values[i] = matrix[i * n + i];
}

double test_smallest_eigenvalue(int n, double *matrix) {
  double values[256], smallest = INFINITY;
  assert_in_range(n, 1, 256);
  test_eigenvalues(n, matrix, values);
  for (int i = 0; i < n; i++) smallest = values[i] < smallest ? values[i] : smallest;
  return smallest;
}
