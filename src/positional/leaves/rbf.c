/* rbf.c - G(d) = sigma2 exp(-d^2 / (2 l^2)), the Gaussian kernel. */
#include "positional/leaf.h"

enum { SIGMA2, LENGTH };

static void log_value(const double *values, double constant, const double *distance, int count, double *out) {
  (void)constant;
  const double log_sigma2 = log(values[SIGMA2]);
  for (int i = 0; i < count; i++) {
    const double x = distance[i] / values[LENGTH];
    out[i] = log_sigma2 - x * x / 2;
  }
}

/* d log G / d log sigma2 = 1; d log G / d log l = (d / l)^2 */
static void gradient(const double *values, double constant, const double *distance, const double *weight, int count, double *sums) {
  (void)constant;
  for (int i = 0; i < count; i++) {
    const double x = distance[i] / values[LENGTH];
    sums[SIGMA2] += weight[i];
    sums[LENGTH] += weight[i] * (x * x);
  }
}

const hark_leaf hark_leaf_rbf = {
    .name = "rbf",
    .formula = "sigma2 exp(-d^2 / (2 l^2))",
    .definite_text = "yes",
    .text = "Gaussian: flat near 0, then falling faster than any decay.",
    .definite = hark_leaf_always,
    .parameter_count = 2,
    .parameters = {HARK_LEAF_SIGMA2, HARK_LEAF_LENGTH},
    .log_value = log_value,
    .gradient = gradient,
};
