/* kernel_ridge_solver.h - M x = b for many right-hand sides by preconditioned conjugate gradients, M = K + D, without storing M.
 *
 *     K   a symmetric positive definite kernel of the keys; tiles of 64 x 64 of it are computed whenever they are needed
 *     D   the diagonal: lambda and the noise of each key; 1 for a padded or masked key, whose kernels are zero
 *     P   the preconditioner: L L' + D, L the first columns of the Cholesky factor of K with pivots, the largest (K - L L')_ii / D_ii first
 *
 * All vectors and sums are f64, kernels f32 or f64. Columns of vectors are [columns][rows], rows padded to whole tiles. A multiplication
 * computes the tiles on and above the diagonal once for all columns. Groups of adjacent tiles are paired like players of a tournament: no
 * two pairs of a round write to the same rows, so that threads share a round, and every element has one order of its sums. Sums over all
 * rows are sums of fixed parts. So the bits do not depend on the number of threads.
 *
 * A right-hand side is done when |M x - b| <= tolerance |b|. At the end the residuals are computed from x itself, and the iteration
 * continues where one is above that. Cost of an iteration: n^2 / 2 kernels, n^2 multiply-adds and 2 n rank more for each column. Memory:
 * rows (5 columns + rank + 2) numbers and a little. Sources: docs/mathematics/kernel-ridge.md.
 */
#ifndef HARK_BACKEND_CPU_ISA_KERNEL_RIDGE_SOLVER_H
#define HARK_BACKEND_CPU_ISA_KERNEL_RIDGE_SOLVER_H

#include "backend/cpu/cpu.h"
#include "kernel_ridge_products.h"

#define RIDGE_SOLVER_RANK 256   /* columns of L at most */
#define RIDGE_SOLVER_COLUMNS 64 /* right-hand sides at a time at most */
#define RIDGE_SOLVER_PROBES 32  /* random vectors for a log-determinant */
#define RIDGE_SOLVER_STEPS 128  /* iterations with these at most */

/* A tile of kernels, f32 or f64. */
typedef union ridge_solver_tile {
  float of_floats[HARK_RIDGE_TILE_FLOATS];
  double of_doubles[HARK_RIDGE_TILE_FLOATS];
} ridge_solver_tile;

typedef struct ridge_solver {
  hark_context *context; /* threads share the work; NULL: the calling thread does it all */
  hark_context *caller;  /* whose program may end the call */
  bool wide;             /* kernels are f64 */
  /* Rows are keys of tile i, lanes keys of tile j, i <= j; zero for padded and masked keys. Called by several threads at once. */
  void (*kernels)(const void *data, int64_t i, int64_t j, ridge_solver_tile *out);
  const void *data;
  double tolerance;
  int64_t limit; /* iterations of one solve at most */
  int64_t tiles, rows, visible;
  const float *seen; /* [rows]: 1 or 0, NULL: all of `visible` */
  int columns;       /* the memory allows so many */
  int rank;          /* of L; 0 before hark_cpu_ridge_solver_prepare() */
  double *diagonal;  /* [rows]: D, set by the caller */
  double *b, *x;     /* [columns][rows]: right-hand sides, set by the caller, and solutions */
  /* what a solve leaves */
  int64_t iterations; /* most of one solve so far */
  int64_t last;       /* of the last solve */
  double residual;    /* the largest |M x - b| / |b| of the last solve */
  /* scratch */
  double *r, *p, *q, *factor, *left, *inner, *partials, *small, *steps;
} ridge_solver;

/* Doubles of memory for so many rows and columns. With memory, sets the arrays of the solver. */
size_t HARK_ISA(hark_cpu_ridge_solver_carve)(int64_t rows, int columns, double *memory, ridge_solver *out);

/* Columns for right-hand sides of so many columns in all. */
static inline int ridge_solver_columns(int64_t value_dim) {
  return (int)hark_min(RIDGE_SOLVER_COLUMNS, hark_max(value_dim, RIDGE_SOLVER_COLUMNS / 2));
}

/* Computes the preconditioner of the system that the fields describe. False if the call was cancelled or a number is not finite. */
bool HARK_ISA(hark_cpu_ridge_solver_prepare)(ridge_solver *s);

/* Solves for the first `count` columns of b. False if a residual is above the tolerance at the end. */
bool HARK_ISA(hark_cpu_ridge_solver_solve)(ridge_solver *s, int count);

/* to[c][lane] += sum over rows k of a tile of kernels of x[c][k], for the first `count` columns of x and 64 rows from `row` on. `to`:
 * [count][64]. */
void HARK_ISA(hark_cpu_ridge_solver_combine)(const ridge_solver *s, const ridge_solver_tile *kernels, int count, int64_t row, double *to);

/* log det M: that of P exactly, and an estimate of log det P^-1 M by Lanczos quadrature with fixed probes. Uses b and x. */
double HARK_ISA(hark_cpu_ridge_solver_determinant)(ridge_solver *s);

#endif
