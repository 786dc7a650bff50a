/* regression.c - see regression.h. */
#include "lab/regression.h"

#include <math.h>
#include <string.h>

#include "lab/matrix.h"

bool hark_lab_regress(int64_t rows, int64_t features, int64_t outputs, const double *x, const double *y, double *coefficients) {
  double gram[HARK_LAB_FEATURES * HARK_LAB_FEATURES] = {0}, moments[HARK_LAB_FEATURES * HARK_LAB_FEATURES] = {0};
  for (int64_t i = 0; i < rows; i++)
    for (int64_t a = 0; a < features; a++) {
      const double feature = x[i * features + a];
      for (int64_t b = 0; b <= a; b++) gram[a * features + b] += feature * x[i * features + b];
      for (int64_t b = 0; b < outputs; b++) moments[a * outputs + b] += feature * y[i * outputs + b];
    }
  if (!hark_lab_cholesky(features, gram)) return false;
  hark_lab_cholesky_solve(features, gram, outputs, moments);
  memcpy(coefficients, moments, (size_t)(features * outputs) * sizeof *moments);
  return true;
}

double hark_lab_r_squared(int64_t rows, int64_t features, int64_t outputs, const double *x, const double *y) {
  double coefficients[HARK_LAB_FEATURES * HARK_LAB_FEATURES], means[HARK_LAB_FEATURES] = {0}, residual = 0, all = 0;
  if (!hark_lab_regress(rows, features, outputs, x, y, coefficients)) return NAN;
  for (int64_t i = 0; i < rows; i++)
    for (int64_t b = 0; b < outputs; b++) means[b] += y[i * outputs + b] / (double)rows;
  for (int64_t i = 0; i < rows; i++)
    for (int64_t b = 0; b < outputs; b++) {
      double left = y[i * outputs + b], from = left - means[b];
      for (int64_t a = 0; a < features; a++) left -= x[i * features + a] * coefficients[a * outputs + b];
      residual += left * left;
      all += from * from;
    }
  return 1 - residual / all;
}
