/* decay.c - G(d) = sigma2 exp(-d / l), exponential decay (Bunks, Dixon, Di Giorgi 2025, eq. 4; in the field Matern 1/2,
 * Ornstein-Uhlenbeck). */
#include "positional/leaf.h"

enum { SIGMA2, LENGTH };

static void log_value(const double *values, double constant, const double *distance, int count, double *out) {
  (void)constant;
  const double log_sigma2 = log(values[SIGMA2]);
  for (int i = 0; i < count; i++) out[i] = log_sigma2 - distance[i] / values[LENGTH];
}

/* d log G / d log sigma2 = 1; d log G / d log l = d / l */
static void gradient(const double *values, double constant, const double *distance, const double *weight, int count, double *sums) {
  (void)constant;
  for (int i = 0; i < count; i++) {
    sums[SIGMA2] += weight[i];
    sums[LENGTH] += weight[i] * (distance[i] / values[LENGTH]);
  }
}

const hark_leaf hark_leaf_decay = {
    .name = "decay",
    .formula = "sigma2 exp(-d / l)",
    .definite_text = "yes",
    .text = "Exponential decay, eq. 4 of the paper; Matern 1/2 in the field's words.",
    .definite = hark_leaf_always,
    .parameter_count = 2,
    .parameters = {HARK_LEAF_SIGMA2, HARK_LEAF_LENGTH},
    .log_value = log_value,
    .gradient = gradient,
};
