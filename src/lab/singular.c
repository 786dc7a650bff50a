/* singular.c - see singular.h. */
#include "lab/singular.h"

#include <math.h>
#include <stddef.h>

#include "core/orthogonal.h"

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
  hark_orthogonal_rows(rows, columns, matrix, NULL);
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
