/* matrix.c - see matrix.h. */
#include "lab/matrix.h"

#include <float.h>
#include <math.h>

#define SWEEPS 60
#define BLOCK 32

/* Sums run over `inner` in its order, in blocks whose rows of b stay in the cache. */
void hark_lab_multiply(int64_t rows, int64_t inner, int64_t columns, const double *a, const double *b, double *out) {
  for (int64_t i = 0; i < rows * columns; i++) out[i] = 0;
  for (int64_t first = 0; first < inner; first += BLOCK)
    for (int64_t i = 0; i < rows; i++) {
      double *const row = out + i * columns;
      for (int64_t k = first; k < inner && k < first + BLOCK; k++)
        for (int64_t j = 0; j < columns; j++) row[j] += a[i * inner + k] * b[k * columns + j];
    }
}

void hark_lab_add_left_transposed(int64_t rows, int64_t inner, int64_t columns, const double *a, const double *b, double *out) {
  for (int64_t first = 0; first < inner; first += BLOCK)
    for (int64_t i = 0; i < rows; i++)
      for (int64_t k = first; k < inner && k < first + BLOCK; k++) {
        const double factor = a[k * rows + i];
        if (factor == 0) continue; /* after a ReLU half of them are */
        for (int64_t j = 0; j < columns; j++) out[i * columns + j] += factor * b[k * columns + j];
      }
}

void hark_lab_add_right_transposed(int64_t rows, int64_t inner, int64_t columns, const double *a, const double *b, double *out) {
  for (int64_t first = 0; first < columns; first += BLOCK)
    for (int64_t i = 0; i < rows; i++)
      for (int64_t j = first; j < columns && j < first + BLOCK; j++)
        out[i * columns + j] += hark_lab_dot(a + i * inner, b + j * inner, inner);
}

double hark_lab_dot(const double *a, const double *b, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; i++) sum += a[i] * b[i];
  return sum;
}

void hark_lab_put_on_sphere(int64_t count, int64_t dim, double *rows) {
  for (int64_t i = 0; i < count; i++) {
    double *const row = rows + i * dim;
    const double length = sqrt(hark_lab_dot(row, row, dim));
    for (int64_t c = 0; c < dim; c++) row[c] /= length;
  }
}

bool hark_lab_cholesky(int64_t n, double *a) {
  for (int64_t i = 0; i < n; i++)
    for (int64_t j = 0; j <= i; j++) {
      double sum = a[i * n + j];
      for (int64_t k = 0; k < j; k++) sum -= a[i * n + k] * a[j * n + k];
      if (i != j)
        a[i * n + j] = sum / a[j * n + j];
      else if (sum > 0)
        a[i * n + i] = sqrt(sum);
      else
        return false;
    }
  return true;
}

void hark_lab_cholesky_solve(int64_t n, const double *l, int64_t columns, double *b) {
  for (int64_t i = 0; i < n; i++) {
    double *const row = b + i * columns;
    for (int64_t k = 0; k < i; k++)
      for (int64_t c = 0; c < columns; c++) row[c] -= l[i * n + k] * b[k * columns + c];
    for (int64_t c = 0; c < columns; c++) row[c] /= l[i * n + i];
  }
  for (int64_t i = n - 1; i >= 0; i--) {
    double *const row = b + i * columns;
    for (int64_t k = i + 1; k < n; k++)
      for (int64_t c = 0; c < columns; c++) row[c] -= l[k * n + i] * b[k * columns + c];
    for (int64_t c = 0; c < columns; c++) row[c] /= l[i * n + i];
  }
}

/* a <- J^T a J and vectors <- J^T vectors with the rotation J of p and q that makes a[p, q] zero:
 *     t = tan of the smaller angle with  t^2 + 2 z t - 1 = 0,  z = (a[q, q] - a[p, p]) / (2 a[p, q]) */
static void rotate(int64_t n, int64_t p, int64_t q, double *a, double *vectors) {
  const double z = (a[q * n + q] - a[p * n + p]) / (2 * a[p * n + q]), t = copysign(1, z) / (fabs(z) + sqrt(1 + z * z));
  const double cosine = 1 / sqrt(1 + t * t), sine = t * cosine;
  for (int64_t k = 0; k < n; k++) {
    const double x = a[k * n + p], y = a[k * n + q];
    a[k * n + p] = cosine * x - sine * y;
    a[k * n + q] = sine * x + cosine * y;
  }
  for (int64_t k = 0; k < n; k++) {
    const double x = a[p * n + k], y = a[q * n + k], u = vectors[p * n + k], v = vectors[q * n + k];
    a[p * n + k] = cosine * x - sine * y;
    a[q * n + k] = sine * x + cosine * y;
    vectors[p * n + k] = cosine * u - sine * v;
    vectors[q * n + k] = sine * u + cosine * v;
  }
}

static void exchange(double *a, double *b) {
  const double t = *a;
  *a = *b;
  *b = t;
}

void hark_lab_eigen(int64_t n, double *a, double *values, double *vectors) {
  double all = 0;
  for (int64_t i = 0; i < n * n; i++) {
    all += a[i] * a[i];
    vectors[i] = i % (n + 1) == 0;
  }
  const double nothing = DBL_EPSILON * sqrt(all) / (double)n;
  for (int sweep = 0, turned = 1; sweep < SWEEPS && turned > 0; sweep++) {
    turned = 0;
    for (int64_t p = 0; p < n; p++)
      for (int64_t q = p + 1; q < n; q++)
        if (fabs(a[p * n + q]) > nothing) {
          rotate(n, p, q, a, vectors);
          turned++;
        }
  }
  for (int64_t i = 0; i < n; i++) values[i] = a[i * n + i];
  for (int64_t i = 0; i < n; i++) {
    int64_t largest = i;
    for (int64_t j = i + 1; j < n; j++)
      if (values[j] > values[largest]) largest = j;
    if (largest == i) continue;
    exchange(&values[i], &values[largest]);
    for (int64_t k = 0; k < n; k++) exchange(&vectors[i * n + k], &vectors[largest * n + k]);
  }
}

/* w = U S V^T becomes w V D V^T with D = min(1, bound / s); V and s^2 are those of w^T w. */
void hark_lab_cut_norm(int64_t rows, int64_t columns, double bound, double *w) {
  double gram[HARK_LAB_CUT_COLUMNS * HARK_LAB_CUT_COLUMNS] = {0}, values[HARK_LAB_CUT_COLUMNS], all = 0;
  double vectors[HARK_LAB_CUT_COLUMNS * HARK_LAB_CUT_COLUMNS], change[HARK_LAB_CUT_COLUMNS], along;
  hark_lab_add_left_transposed(columns, rows, columns, w, w, gram);
  for (int64_t c = 0; c < columns; c++) all += gram[c * columns + c];
  if (all <= bound * bound) return; /* the Frobenius norm is within the bound */
  hark_lab_eigen(columns, gram, values, vectors);
  if (values[0] <= bound * bound) return;
  for (int64_t i = 0; i < rows; i++) {
    for (int64_t c = 0; c < columns; c++) change[c] = 0;
    for (int64_t v = 0; v < columns && values[v] > bound * bound; v++) {
      along = hark_lab_dot(w + i * columns, vectors + v * columns, columns) * (1 - bound / sqrt(values[v]));
      for (int64_t c = 0; c < columns; c++) change[c] += along * vectors[v * columns + c];
    }
    for (int64_t c = 0; c < columns; c++) w[i * columns + c] -= change[c];
  }
}
