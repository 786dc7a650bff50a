/* singular.c - see singular.h. */
#include "lab/singular.h"

#include <float.h>
#include <math.h>

#define SWEEPS 60

/* Turns rows x and y so that they become orthogonal; 0 where they are, up to rounding, or where one has a square of at most `nothing`.
 *     a = |x|^2, b = |y|^2, c = x.y,  t = tan of the smaller angle with  t^2 + 2 z t - 1 = 0,  z = (b - a) / (2 c) */
static int rotate(int64_t columns, double nothing, double *x, double *y) {
  double a = 0, b = 0, c = 0;
  for (int64_t i = 0; i < columns; i++) {
    a += x[i] * x[i];
    b += y[i] * y[i];
    c += x[i] * y[i];
  }
  if (fmin(a, b) <= nothing || fabs(c) <= (double)columns * DBL_EPSILON * sqrt(a * b)) return 0;
  const double z = (b - a) / (2 * c), t = copysign(1, z) / (fabs(z) + sqrt(1 + z * z));
  const double cosine = 1 / sqrt(1 + t * t), sine = t * cosine;
  for (int64_t i = 0; i < columns; i++) {
    const double turned = cosine * x[i] - sine * y[i];
    y[i] = sine * x[i] + cosine * y[i];
    x[i] = turned;
  }
  return 1;
}

/* Insertion sort, largest first. */
static void sort(double *values, int64_t count) {
  for (int64_t i = 1; i < count; i++) {
    const double value = values[i];
    int64_t at = i;
    for (; at > 0 && values[at - 1] < value; at--) values[at] = values[at - 1];
    values[at] = value;
  }
}

void hark_singular_values(int64_t rows, int64_t columns, double *matrix, double *values) {
  double all = 0;
  for (int64_t i = 0; i < rows * columns; i++) all += matrix[i] * matrix[i];
  const double nothing = DBL_EPSILON * DBL_EPSILON * all; /* what rotations with the largest rows leave in the others */
  for (int sweep = 0, turned = 1; sweep < SWEEPS && turned > 0; sweep++) {
    turned = 0;
    for (int64_t p = 0; p < rows; p++)
      for (int64_t q = p + 1; q < rows; q++) turned += rotate(columns, nothing, matrix + p * columns, matrix + q * columns);
  }
  for (int64_t i = 0; i < rows; i++) {
    double sum = 0;
    for (int64_t j = 0; j < columns; j++) sum += matrix[i * columns + j] * matrix[i * columns + j];
    values[i] = sqrt(sum);
  }
  sort(values, rows);
}

int64_t hark_numerical_rank(const double *values, int64_t count, double tolerance) {
  double tail = 0;
  int64_t rank = count;
  while (rank > 0 && tail + values[rank - 1] < tolerance) tail += values[--rank];
  return rank;
}
