/* constant.c - G(d) = sigma2: a floor under a sum, a weight in a product. */
#include "positional/leaf.h"

enum { SIGMA2 };

static void log_value(const double *values, double constant, const double *distance, int count, double *out) {
  (void)constant, (void)distance;
  const double log_sigma2 = log(values[SIGMA2]);
  for (int i = 0; i < count; i++) out[i] = log_sigma2;
}

static void gradient(const double *values, double constant, const double *distance, const double *weight, int count, double *sums) {
  (void)values, (void)constant, (void)distance;
  for (int i = 0; i < count; i++) sums[SIGMA2] += weight[i];
}

const hark_leaf hark_leaf_constant = {
    .name = "constant",
    .formula = "sigma2",
    .definite_text = "yes",
    .text = "The same at every distance: a floor under a sum, a weight in a product.",
    .definite = hark_leaf_always,
    .parameter_count = 1,
    .parameters = {HARK_LEAF_SIGMA2},
    .log_value = log_value,
    .gradient = gradient,
};
