/* orthogonal.h - a small matrix with rows that are orthogonal to each other, in float64. */
#ifndef HARK_CORE_ORTHOGONAL_H
#define HARK_CORE_ORTHOGONAL_H

#include <stdint.h>

/* Rotates the rows of matrix [rows, columns] until they are orthogonal: their lengths are then its singular values, in no order. One-sided
 * Jacobi rotations (Hestenes 1958): errors of about eps times the columns times the largest value. Cost O(rows^2 columns) per sweep; about
 * ten sweeps are needed. turn [rows, rows] (NULL: not needed) <- the orthogonal matrix with (matrix after) = turn (matrix before). */
void hark_orthogonal_rows(int64_t rows, int64_t columns, double *matrix, double *turn);

#endif
