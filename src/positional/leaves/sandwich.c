/* sandwich.c - log G(d) = a (mean over i = 1 .. 64 of cos(d / base^(i / 64)) - 1): Sandwich (Chi, Fan, Rudnicky, Ramadge,
 * arXiv 2212.10356), the inner product of the sinusoidal embeddings of two positions as a term of the logit.
 *
 * Embeddings of width 128 have 64 pairs (sin, cos) of the angles n base^(-i / 64), base = 10000. The inner product of those of n and n - d
 * is the sum of cos(d base^(-i / 64)); Sandwich adds (this sum - 64) H / (8 h) to the logits of head h = 1 .. H. So a = 8 H / h, with which
 * the heads start. Here a and base are learned. The -1, which makes G(0) = 1, cancels in the normalisation. Up to that factor the kernel is
 * a product of 64 periodic kernels with 2 alpha^2 = a / 32.
 */
#include "positional/leaf.h"

enum { A, BASE };

#define PAIRS 64

/* theta[i - 1] <- base^(-i / 64) */
static void angles(double base, double *theta) {
  for (int i = 1; i <= PAIRS; i++) theta[i - 1] = pow(base, -(double)i / PAIRS);
}

/* 1 - cos(x), without cancellation */
static double versine(double x) {
  const double sine = sin(x / 2);
  return 2 * sine * sine;
}

static void log_value(const double *values, double constant, const double *distance, int count, double *out) {
  (void)constant;
  double theta[PAIRS];
  angles(values[BASE], theta);
  for (int i = 0; i < count; i++) {
    double sum = 0;
    for (int k = 0; k < PAIRS; k++) sum += versine(distance[i] * theta[k]);
    out[i] = 0 - values[A] * (sum / PAIRS);
  }
}

/* d log G / d log a = log G; d theta[i] / d log base = -(i / 64) theta[i], so
 * d log G / d log base = a mean of (i / 64) d theta[i] sin(d theta[i]) */
static void gradient(const double *values, double constant, const double *distance, const double *weight, int count, double *sums) {
  (void)constant;
  double theta[PAIRS];
  angles(values[BASE], theta);
  for (int i = 0; i < count; i++) {
    double sum = 0, turned = 0;
    for (int k = 0; k < PAIRS; k++) {
      const double angle = distance[i] * theta[k];
      sum += versine(angle);
      turned += (double)(k + 1) / PAIRS * angle * sin(angle);
    }
    sums[A] -= weight[i] * values[A] * (sum / PAIRS);
    sums[BASE] += weight[i] * values[A] * (turned / PAIRS);
  }
}

const hark_leaf hark_leaf_sandwich = {
    .name = "sandwich",
    .formula = "exp(a (mean of cos(d / base^(i / 64)) over i = 1 .. 64, less 1))",
    .definite_text = "yes",
    .text = "Sandwich: the inner product of sinusoidal embeddings of 64 pairs; heads start as published, where base=10000! is fixed.",
    .definite = hark_leaf_always,
    .parameter_count = 2,
    .parameters = {{.name = "a", .start = HARK_START_HARMONIC, .start_factor = 8},
                   {.name = "base", .start = HARK_START_ONE, .start_factor = 10000}},
    .log_value = log_value,
    .gradient = gradient,
};
