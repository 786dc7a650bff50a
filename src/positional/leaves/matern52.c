/* matern52.c - G(d) = sigma2 (1 + x + x^2 / 3) exp(-x), x = sqrt(5) d / l: the Matern kernel of smoothness 5/2. */
#include "positional/leaf.h"

enum { SIGMA2, LENGTH };

#define SQRT_5 2.23606797749979

static void log_value(const double *values, double constant, const double *distance, int count, double *out) {
  (void)constant;
  const double log_sigma2 = log(values[SIGMA2]);
  for (int i = 0; i < count; i++) {
    const double x = SQRT_5 * distance[i] / values[LENGTH];
    out[i] = log_sigma2 + (log1p(x + x * x / 3) - x);
  }
}

/* d log G / d log l = -x ((1 + 2 x / 3) / (1 + x + x^2 / 3) - 1) = x (x + x^2) / (3 + 3 x + x^2) */
static void gradient(const double *values, double constant, const double *distance, const double *weight, int count, double *sums) {
  (void)constant;
  for (int i = 0; i < count; i++) {
    const double x = SQRT_5 * distance[i] / values[LENGTH];
    sums[SIGMA2] += weight[i];
    sums[LENGTH] += weight[i] * (x * ((x + x * x) / (3 + 3 * x + x * x)));
  }
}

const hark_leaf hark_leaf_matern52 = {
    .name = "matern52",
    .formula = "sigma2 (1 + x + x^2 / 3) exp(-x), x = sqrt(5) d / l",
    .definite_text = "yes",
    .text = "Matern of smoothness 5/2: closer to rbf.",
    .definite = hark_leaf_always,
    .parameter_count = 2,
    .parameters = {HARK_LEAF_SIGMA2, HARK_LEAF_LENGTH},
    .log_value = log_value,
    .gradient = gradient,
};
