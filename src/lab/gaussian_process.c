/* gaussian_process.c - see gaussian_process.h. */
#include "lab/gaussian_process.h"

#include <math.h>

void hark_gaussian_features(double x, double width, double *out) {
  const double t = x / width;
  out[0] = exp(-t * t / 2);
  for (int n = 1; n < HARK_GAUSSIAN_FEATURES; n++) out[n] = out[n - 1] * t / sqrt(n);
}

double hark_gaussian_value(const double *z, const double *features) {
  double sum = 0;
  for (int n = 0; n < HARK_GAUSSIAN_FEATURES; n++) sum += z[n] * features[n];
  return sum;
}
