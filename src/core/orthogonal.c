/* orthogonal.c - see orthogonal.h. */
#include "core/orthogonal.h"

#include <float.h>
#include <math.h>
#include <stddef.h>

#define SWEEPS 60

/* x <- c x - s y, y <- s x + c y */
static void turn_pair(int64_t count, double cosine, double sine, double *x, double *y) {
  for (int64_t i = 0; i < count; i++) {
    const double turned = cosine * x[i] - sine * y[i];
    y[i] = sine * x[i] + cosine * y[i];
    x[i] = turned;
  }
}

/* Rotates rows p and q so that they become orthogonal; 0 if they already are, up to rounding, or if one has a square of at most `nothing`.
 *     a = |x|^2, b = |y|^2, c = x.y,  t = tan of the smaller angle with  t^2 + 2 z t - 1 = 0,  z = (b - a) / (2 c) */
static int rotate(int64_t rows, int64_t columns, double nothing, double *matrix, double *turn, int64_t p, int64_t q) {
  double *const x = matrix + p * columns, *const y = matrix + q * columns;
  double a = 0, b = 0, c = 0;
  for (int64_t i = 0; i < columns; i++) {
    a += x[i] * x[i];
    b += y[i] * y[i];
    c += x[i] * y[i];
  }
  if (fmin(a, b) <= nothing || fabs(c) <= (double)columns * DBL_EPSILON * sqrt(a * b)) return 0;
  const double z = (b - a) / (2 * c), t = copysign(1, z) / (fabs(z) + sqrt(1 + z * z));
  const double cosine = 1 / sqrt(1 + t * t), sine = t * cosine;
  turn_pair(columns, cosine, sine, x, y);
  if (turn != NULL) turn_pair(rows, cosine, sine, turn + p * rows, turn + q * rows);
  return 1;
}

void hark_orthogonal_rows(int64_t rows, int64_t columns, double *matrix, double *turn) {
  double all = 0;
  for (int64_t i = 0; i < rows * columns; i++) all += matrix[i] * matrix[i];
  const double nothing = DBL_EPSILON * DBL_EPSILON * all; /* rounding errors that rotations with the largest rows leave in the others */
  for (int64_t i = 0; turn != NULL && i < rows * rows; i++) turn[i] = i % (rows + 1) == 0;
  for (int sweep = 0, turned = 1; sweep < SWEEPS && turned > 0; sweep++) {
    turned = 0;
    for (int64_t p = 0; p < rows; p++)
      for (int64_t q = p + 1; q < rows; q++) turned += rotate(rows, columns, nothing, matrix, turn, p, q);
  }
}
