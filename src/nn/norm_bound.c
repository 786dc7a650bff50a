/* norm_bound.c - see norm_bound.h.
 *
 * 1-ball of radius a: x to sign(x) max(|x| - u, 0), u >= 0 such that the 1-norm is a (Duchi et al., ICML 2008). (infinity, 1): column c to
 * c minus its nearest point in the 1-ball of radius u (Moreau). One u for all columns is found by bisection, so that the sum of the maxima
 * is b (Quattoni et al., ICML 2009).
 */
#include "nn/norm_bound.h"

#include <math.h>
#include <stdbool.h>

#include "core/core.h"
#include "core/orthogonal.h"

#define BISECTIONS 200 /* maximum number; they end when no double is between the ends */

size_t hark_norm_bound_scratch(int64_t rows, int64_t columns) {
  const int64_t least = rows < columns ? rows : columns, most = rows < columns ? columns : rows;
  return (size_t)(rows * columns + least * least + 3 * most); /* a copy, its rotation, and vectors */
}

/* A row or a column. */
typedef struct line {
  const double *first;
  int64_t count, step;
} line;

static line row_of(int64_t columns, const double *m, int64_t row) { return (line){m + row * columns, columns, 1}; }
static line column_of(int64_t rows, int64_t columns, const double *m, int64_t column) { return (line){m + column, rows, columns}; }

static double sum_of(line x) {
  double sum = 0;
  for (int64_t i = 0; i < x.count; i++) sum += fabs(x.first[i * x.step]);
  return sum;
}

static double maximum_of(line x) {
  double most = 0;
  for (int64_t i = 0; i < x.count; i++) most = hark_larger(most, fabs(x.first[i * x.step]));
  return most;
}

/* Restores the heap (no parent larger than its children) below `at` in x [count], where only x[at] may be out of place. */
static void sift(double *x, int64_t at, int64_t count) {
  const double moved = x[at];
  for (int64_t child; (child = 2 * at + 1) < count; at = child) {
    if (child + 1 < count && x[child + 1] < x[child]) child++;
    if (!(x[child] < moved)) break;
    x[at] = x[child];
  }
  x[at] = moved;
}

/* Sorts x in descending order, in place: qsort may allocate. */
static void sort_falling(double *x, int64_t count) {
  for (int64_t i = count / 2; i-- > 0;) sift(x, i, count);
  for (int64_t last = count - 1; last > 0; last--) { /* the least one is moved to the end */
    const double least = x[0];
    x[0] = x[last];
    x[last] = least;
    sift(x, 0, last);
  }
}

/* u for the 1-ball of a radius: 0 for a point inside. scratch [count] */
static double ball_threshold(line x, double radius, double *scratch) {
  double sum = 0, threshold = 0;
  if (!(sum_of(x) > radius)) return 0;
  for (int64_t i = 0; i < x.count; i++) scratch[i] = fabs(x.first[i * x.step]);
  sort_falling(scratch, x.count);
  for (int64_t i = 0; i < x.count; i++) {
    sum += scratch[i];
    const double u = (sum - radius) / (double)(i + 1);
    if (scratch[i] > u) threshold = u;
  }
  return threshold;
}

/* Moves a line of m to the nearest point of the ball. */
static void to_ball(double *m, line x, double radius, double *scratch) {
  const double u = ball_threshold(x, radius, scratch);
  double *const first = m + (x.first - m);
  for (int64_t i = 0; u > 0 && i < x.count; i++) {
    double *const number = &first[i * x.step];
    *number = copysign(fmax(fabs(*number) - u, 0), *number);
  }
}

/* ---- r = 2 ---- */

/* The shorter side of M as orthogonal rows, in scratch, followed by turn and then values. */
typedef struct spectrum {
  int64_t rows, columns;
  double *orthogonal, *turn, *values;
} spectrum;

static spectrum spectrum_of(int64_t rows, int64_t columns, const double *m, double *scratch) {
  const bool wide = rows <= columns;
  spectrum s = {wide ? rows : columns, wide ? columns : rows, scratch, NULL, NULL};
  s.turn = s.orthogonal + rows * columns;
  s.values = s.turn + s.rows * s.rows;
  for (int64_t i = 0; i < s.rows; i++)
    for (int64_t j = 0; j < s.columns; j++) s.orthogonal[i * s.columns + j] = wide ? m[i * columns + j] : m[j * columns + i];
  hark_orthogonal_rows(s.rows, s.columns, s.orthogonal, s.turn);
  for (int64_t i = 0; i < s.rows; i++) {
    double sum = 0;
    for (int64_t j = 0; j < s.columns; j++) sum += s.orthogonal[i * s.columns + j] * s.orthogonal[i * s.columns + j];
    s.values[i] = sqrt(sum);
  }
  return s;
}

/* sqrt of sum min(a, t x)^2 */
static double clipped_length(const spectrum *s, double a, double t) {
  double sum = 0;
  for (int64_t i = 0; i < s->rows; i++) sum += fmin(a, t * s->values[i]) * fmin(a, t * s->values[i]);
  return sqrt(sum);
}

static double shrinkage(const spectrum *s, double a, double b) {
  double low = 0, high = 1;
  if (!(clipped_length(s, a, 1) > b)) return 1;
  for (int i = 0; i < BISECTIONS; i++) {
    const double middle = (low + high) / 2;
    if (middle <= low || middle >= high) break;
    if (clipped_length(s, a, middle) > b) {
      high = middle;
    } else {
      low = middle;
    }
  }
  return low;
}

static void project_spectrum(const hark_norm_bound *bound, int64_t rows, int64_t columns, double *m, double *scratch) {
  const double a = bound->operator_norm > 0 ? bound->operator_norm : INFINITY, b = bound->matrix_norm > 0 ? bound->matrix_norm : INFINITY;
  if (!(hark_matrix_norm(HARK_BOUND_TWO, rows, columns, m) > fmin(a, b))) return; /* no singular value is larger than that norm */
  const spectrum s = spectrum_of(rows, columns, m, scratch);
  const double t = shrinkage(&s, a, b);
  bool changes = t < 1;
  for (int64_t i = 0; i < s.rows; i++) changes = changes || s.values[i] > a;
  if (!changes) return;
  for (int64_t i = 0; i < s.rows; i++) {
    const double factor = s.values[i] > 0 ? fmin(a, t * s.values[i]) / s.values[i] : 1;
    for (int64_t j = 0; j < s.columns; j++) s.orthogonal[i * s.columns + j] *= factor;
  }
  for (int64_t i = 0; i < s.rows; i++) { /* M = turn' (orthogonal rows) */
    for (int64_t j = 0; j < s.columns; j++) {
      double sum = 0;
      for (int64_t k = 0; k < s.rows; k++) sum += s.turn[k * s.rows + i] * s.orthogonal[k * s.columns + j];
      m[rows <= columns ? i * columns + j : j * columns + i] = sum;
    }
  }
}

/* ---- r = infinity ---- */

/* Sum over the columns of the maximum that remains after their nearest points in the 1-ball of u are subtracted. */
static double maxima_left(int64_t rows, int64_t columns, const double *m, double u, double *scratch) {
  double sum = 0;
  for (int64_t j = 0; j < columns; j++) {
    const line column = column_of(rows, columns, m, j);
    sum += sum_of(column) > u ? ball_threshold(column, u, scratch) : 0;
  }
  return sum;
}

static void project_maxima(int64_t rows, int64_t columns, double b, double *m, double *scratch) {
  double low = 0, high = 0; /* the sum is larger than b at low and zero at high */
  if (!(hark_matrix_norm(HARK_BOUND_INFINITY, rows, columns, m) > b)) return;
  for (int64_t j = 0; j < columns; j++) high = fmax(high, sum_of(column_of(rows, columns, m, j)));
  for (int i = 0; i < BISECTIONS; i++) {
    const double middle = (low + high) / 2;
    if (middle <= low || middle >= high) break;
    if (maxima_left(rows, columns, m, middle, scratch) > b) {
      low = middle;
    } else {
      high = middle;
    }
  }
  for (int64_t j = 0; j < columns; j++) { /* x minus its nearest point: clipped at the threshold */
    const line column = column_of(rows, columns, m, j);
    const double most = sum_of(column) > high ? ball_threshold(column, high, scratch) : 0;
    for (int64_t i = 0; i < rows; i++) m[i * columns + j] = copysign(fmin(fabs(m[i * columns + j]), most), m[i * columns + j]);
  }
}

/* ---- all ---- */

double hark_operator_norm(hark_bound_norm norm, int64_t rows, int64_t columns, const double *m, double *scratch) {
  double most = 0;
  if (norm == HARK_BOUND_TWO) {
    const spectrum s = spectrum_of(rows, columns, m, scratch);
    for (int64_t i = 0; i < s.rows; i++) most = hark_larger(most, s.values[i]);
    return most;
  }
  const int64_t count = norm == HARK_BOUND_ONE ? columns : rows;
  for (int64_t i = 0; i < count; i++)
    most = hark_larger(most, sum_of(norm == HARK_BOUND_ONE ? column_of(rows, columns, m, i) : row_of(columns, m, i)));
  return most;
}

double hark_matrix_norm(hark_bound_norm norm, int64_t rows, int64_t columns, const double *m) {
  double sum = 0, most = 0;
  if (norm == HARK_BOUND_TWO) {
    for (int64_t i = 0; i < rows * columns; i++) sum += m[i] * m[i];
    return sqrt(sum);
  }
  for (int64_t j = 0; j < columns; j++) {
    const line column = column_of(rows, columns, m, j);
    most = hark_larger(most, sum_of(column));
    sum += maximum_of(column);
  }
  return norm == HARK_BOUND_ONE ? most : sum;
}

void hark_norm_bound_project(const hark_norm_bound *bound, int64_t rows, int64_t columns, double *m, double *scratch) {
  const double a = bound->operator_norm, b = bound->matrix_norm;
  for (int64_t i = 0; i < rows * columns; i++)
    if (!isfinite(m[i])) return;
  switch (bound->norm) {
    case HARK_BOUND_FREE: return;
    case HARK_BOUND_ONE: {
      const double radius = a > 0 && b > 0 ? fmin(a, b) : fmax(a, b);
      for (int64_t j = 0; radius > 0 && j < columns; j++) to_ball(m, column_of(rows, columns, m, j), radius, scratch);
      return;
    }
    case HARK_BOUND_TWO: project_spectrum(bound, rows, columns, m, scratch); return;
    case HARK_BOUND_INFINITY:
      if (b > 0) project_maxima(rows, columns, b, m, scratch);
      for (int64_t i = 0; a > 0 && i < rows; i++) to_ball(m, row_of(columns, m, i), a, scratch);
  }
}
