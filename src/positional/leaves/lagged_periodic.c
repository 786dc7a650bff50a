/* lagged_periodic.c - G(d) = exp(-2 alpha^2 sin^2((d - mu) / tau)): periodic with its largest values at mu, mu + pi tau, ... */
#include "positional/leaf.h"

enum { ALPHA, TAU, MU };

static void log_value(const double *values, double constant, const double *distance, int count, double *out) {
  (void)constant;
  const double factor = -2 * values[ALPHA] * values[ALPHA];
  for (int i = 0; i < count; i++) {
    const double sine = sin((distance[i] - values[MU]) / values[TAU]);
    out[i] = factor * sine * sine;
  }
}

/* With x = (d - mu) / tau: d log G / d log alpha = -4 alpha^2 sin^2 x; d log G / d log tau = 2 alpha^2 x sin 2x;
 * d log G / d log mu = 2 alpha^2 (mu / tau) sin 2x */
static void gradient(const double *values, double constant, const double *distance, const double *weight, int count, double *sums) {
  (void)constant;
  const double factor = 4 * values[ALPHA] * values[ALPHA];
  for (int i = 0; i < count; i++) {
    const double angle = (distance[i] - values[MU]) / values[TAU], sine = sin(angle), cosine = cos(angle);
    sums[ALPHA] -= weight[i] * factor * sine * sine;
    sums[TAU] += weight[i] * factor * angle * sine * cosine;
    sums[MU] += weight[i] * factor * (values[MU] / values[TAU]) * sine * cosine;
  }
}

const hark_leaf hark_leaf_lagged_periodic = {
    .name = "lagged_periodic",
    .formula = "exp(-2 alpha^2 sin^2((d - mu) / tau))",
    .definite_text = "no",
    .text = "Periodic, with its largest values at mu, mu + pi tau, mu + 2 pi tau, ...",
    .definite = hark_leaf_never,
    .parameter_count = 3,
    .parameters =
        {{.name = "alpha", .start = HARK_START_JITTERED},
         {.name = "tau", .other_name = "period_length", .other_factor = 0.31830988618379067 /* 1 / pi */, .start = HARK_START_PERIOD},
         {.name = "mu", .other_name = "lag", .other_factor = 1, .start = HARK_START_LAG}},
    .log_value = log_value,
    .gradient = gradient,
};
