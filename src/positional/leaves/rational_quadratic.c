/* rational_quadratic.c - G(d) = sigma2 (1 + d^2 / (2 alpha l^2))^(-alpha): Gaussian kernels of many widths mixed; a power law far away. */
#include "positional/leaf.h"

enum { SIGMA2, ALPHA, LENGTH };

/* u = d^2 / (2 alpha l^2) */
static double ratio(const double *values, double distance) {
  const double x = distance / values[LENGTH];
  return x * x / (2 * values[ALPHA]);
}

static void log_value(const double *values, double constant, const double *distance, int count, double *out) {
  (void)constant;
  const double log_sigma2 = log(values[SIGMA2]);
  for (int i = 0; i < count; i++) out[i] = log_sigma2 - values[ALPHA] * log1p(ratio(values, distance[i]));
}

/* d log G / d log alpha = alpha (u / (1 + u) - log(1 + u)); d log G / d log l = 2 alpha u / (1 + u) */
static void gradient(const double *values, double constant, const double *distance, const double *weight, int count, double *sums) {
  (void)constant;
  for (int i = 0; i < count; i++) {
    const double u = ratio(values, distance[i]), part = u / (1 + u);
    sums[SIGMA2] += weight[i];
    sums[ALPHA] += weight[i] * values[ALPHA] * (part - log1p(u));
    sums[LENGTH] += weight[i] * 2 * values[ALPHA] * part;
  }
}

const hark_leaf hark_leaf_rational_quadratic = {
    .name = "rational_quadratic",
    .formula = "sigma2 (1 + d^2 / (2 alpha l^2))^(-alpha)",
    .definite_text = "yes",
    .text = "Gaussian kernels of many widths mixed: a power law far away.",
    .definite = hark_leaf_always,
    .parameter_count = 3,
    .parameters = {HARK_LEAF_SIGMA2, {.name = "alpha", .start = HARK_START_JITTERED}, HARK_LEAF_LENGTH},
    .log_value = log_value,
    .gradient = gradient,
};
