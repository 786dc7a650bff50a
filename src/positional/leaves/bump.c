/* bump.c - G(d) = sigma2 exp(-(d - mu)^2 / (2 l^2)): rbf whose largest value is at distance mu. */
#include "positional/leaf.h"

enum { SIGMA2, MU, LENGTH };

static void log_value(const double *values, double constant, const double *distance, int count, double *out) {
  (void)constant;
  const double log_sigma2 = log(values[SIGMA2]);
  for (int i = 0; i < count; i++) {
    const double x = (distance[i] - values[MU]) / values[LENGTH];
    out[i] = log_sigma2 - x * x / 2;
  }
}

/* With x = (d - mu) / l: d log G / d log sigma2 = 1; d log G / d log mu = x mu / l; d log G / d log l = x^2 */
static void gradient(const double *values, double constant, const double *distance, const double *weight, int count, double *sums) {
  (void)constant;
  for (int i = 0; i < count; i++) {
    const double x = (distance[i] - values[MU]) / values[LENGTH];
    sums[SIGMA2] += weight[i];
    sums[MU] += weight[i] * (x * (values[MU] / values[LENGTH]));
    sums[LENGTH] += weight[i] * (x * x);
  }
}

const hark_leaf hark_leaf_bump = {
    .name = "bump",
    .formula = "sigma2 exp(-(d - mu)^2 / (2 l^2))",
    .definite_text = "no",
    .text = "Largest at distance mu: a preferred distance, such as the previous token's.",
    .definite = hark_leaf_never,
    .parameter_count = 3,
    .parameters = {HARK_LEAF_SIGMA2,
                   {.name = "mu", .other_name = "lag", .other_factor = 1, .start = HARK_START_LAG},
                   {.name = "l", .other_name = "length_scale", .other_factor = 1, .start = HARK_START_LAG}},
    .log_value = log_value,
    .gradient = gradient,
};
