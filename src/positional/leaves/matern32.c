/* matern32.c - G(d) = sigma2 (1 + x) exp(-x), x = sqrt(3) d / l: the Matern kernel of smoothness 3/2. */
#include "positional/leaf.h"

enum { SIGMA2, LENGTH };

#define SQRT_3 1.7320508075688772

static void log_value(const double *values, double constant, const double *distance, int count, double *out) {
  (void)constant;
  const double log_sigma2 = log(values[SIGMA2]);
  for (int i = 0; i < count; i++) {
    const double x = SQRT_3 * distance[i] / values[LENGTH];
    out[i] = log_sigma2 + (log1p(x) - x);
  }
}

/* d log G / d log l = -x (1 / (1 + x) - 1) = x^2 / (1 + x) */
static void gradient(const double *values, double constant, const double *distance, const double *weight, int count, double *sums) {
  (void)constant;
  for (int i = 0; i < count; i++) {
    const double x = SQRT_3 * distance[i] / values[LENGTH];
    sums[SIGMA2] += weight[i];
    sums[LENGTH] += weight[i] * (x * (x / (1 + x)));
  }
}

const hark_leaf hark_leaf_matern32 = {
    .name = "matern32",
    .formula = "sigma2 (1 + x) exp(-x), x = sqrt(3) d / l",
    .definite_text = "yes",
    .text = "Matern of smoothness 3/2: between decay and rbf.",
    .definite = hark_leaf_always,
    .parameter_count = 2,
    .parameters = {HARK_LEAF_SIGMA2, HARK_LEAF_LENGTH},
    .log_value = log_value,
    .gradient = gradient,
};
