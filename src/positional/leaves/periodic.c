/* periodic.c - G(d) = exp(-2 alpha^2 sin^2(d / tau)) (Bunks, Dixon, Di Giorgi 2025, eq. 3); its period is pi tau.
 *
 * log G = -alpha^2 (1 - cos(2 d / tau)): up to a constant factor exp(alpha^2 cos(2 d / tau)), the logit that a rotary pair of angle 2 / tau
 * adds. Two leaves share the formula: `periodic` trains log tau; `canonical_periodic` trains rho with 1 / tau = (pi / 2) sigmoid(rho),
 * which reaches every kernel on whole distances exactly once.
 */
#include "positional/leaf.h"

enum { ALPHA, TAU };

static void log_value(const double *values, double constant, const double *distance, int count, double *out) {
  (void)constant;
  const double factor = -2 * values[ALPHA] * values[ALPHA];
  for (int i = 0; i < count; i++) {
    const double sine = sin(distance[i] / values[TAU]);
    out[i] = factor * sine * sine;
  }
}

/* d log G / d log alpha = -4 alpha^2 sin^2(d / tau); d log G / d log tau = 2 alpha^2 (d / tau) sin(2 d / tau) */
static void gradient(const double *values, double constant, const double *distance, const double *weight, int count, double *sums) {
  (void)constant;
  const double factor = 4 * values[ALPHA] * values[ALPHA];
  for (int i = 0; i < count; i++) {
    const double angle = distance[i] / values[TAU], sine = sin(angle), cosine = cos(angle);
    sums[ALPHA] -= weight[i] * factor * sine * sine;
    sums[TAU] += weight[i] * factor * angle * sine * cosine;
  }
}

#define PERIODIC(own_name, own_text, own_transform)                                                                                        \
  {                                                                                                                                        \
    .name = own_name, .formula = "exp(-2 alpha^2 sin^2(d / tau))", .definite_text = "yes", .text = own_text, .definite = hark_leaf_always, \
    .parameter_count = 2,                                                                                                                  \
    .parameters = {{.name = "alpha", .start = HARK_START_JITTERED},                                                                        \
                   {.name = "tau",                                                                                                         \
                    .other_name = "period_length",                                                                                         \
                    .other_factor = 0.31830988618379067 /* 1 / pi */,                                                                      \
                    .transform = own_transform,                                                                                            \
                    .start = HARK_START_PERIOD}},                                                                                          \
    .log_value = log_value, .gradient = gradient,                                                                                          \
  }

const hark_leaf hark_leaf_periodic = PERIODIC("periodic", "Periodic with period pi tau, eq. 3 of the paper.", HARK_TRANSFORM_LOG);

const hark_leaf hark_leaf_canonical_periodic =
    PERIODIC("canonical_periodic", "The same with 1 / tau = (pi / 2) sigmoid(rho), rho being trained: no two values are aliases.",
             HARK_TRANSFORM_CANONICAL_PERIOD);
