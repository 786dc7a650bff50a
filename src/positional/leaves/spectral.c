/* spectral.c - G(d) = exp(a exp(-d^2 / (2 l^2)) cos(d / tau)): the exponential of a component of a spectral mixture (Wilson, Adams, arXiv
 * 1302.4245), whose spectrum is a pair of Gaussians at the frequencies +-1 / tau. A product of several kernels adds their components in the
 * logit; sums of such components approximate any positive definite stationary function.
 */
#include "positional/leaf.h"

enum { A, LENGTH, TAU };

static void log_value(const double *values, double constant, const double *distance, int count, double *out) {
  (void)constant;
  for (int i = 0; i < count; i++) {
    const double x = distance[i] / values[LENGTH];
    out[i] = values[A] * exp(-x * x / 2) * cos(distance[i] / values[TAU]);
  }
}

/* With x = d / l, y = d / tau and e = exp(-x^2 / 2): d log G / d log a = a e cos y; d log G / d log l = a x^2 e cos y;
 * d log G / d log tau = a e y sin y */
static void gradient(const double *values, double constant, const double *distance, const double *weight, int count, double *sums) {
  (void)constant;
  for (int i = 0; i < count; i++) {
    const double x = distance[i] / values[LENGTH], y = distance[i] / values[TAU], size = weight[i] * values[A] * exp(-x * x / 2);
    sums[A] += size * cos(y);
    sums[LENGTH] += size * (x * x) * cos(y);
    sums[TAU] += size * y * sin(y);
  }
}

const hark_leaf hark_leaf_spectral = {
    .name = "spectral",
    .formula = "exp(a exp(-d^2 / (2 l^2)) cos(d / tau))",
    .definite_text = "yes",
    .text = "A cosine under a Gaussian, added to the logit: products of them approximate any positive definite term of the logit.",
    .definite = hark_leaf_always,
    .parameter_count = 3,
    .parameters =
        {{.name = "a", .start = HARK_START_JITTERED},
         HARK_LEAF_LENGTH,
         {.name = "tau", .other_name = "wavelength", .other_factor = 0.15915494309189535 /* 1 / (2 pi) */, .start = HARK_START_PERIOD}},
    .log_value = log_value,
    .gradient = gradient,
};
