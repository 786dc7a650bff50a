/* xpos.c - G(d) = sigma2 mean over i = 0 .. 31 of zeta[i]^(d / base), zeta[i] = (i / 32 + gamma) / (1 + gamma): the decay of xPos
 * (Sun et al., arXiv 2212.10554).
 *
 * xPos multiplies the product of query and key in feature pair i by zeta[i]^(d / base), gamma = 0.4 and base = 512, so that pairs with fast
 * rotation decay faster. A factor of the attention weight cannot depend on the pair: this is the mean of the factors over the 32 pairs of a
 * head of 64, a mixture of exponentials. log zeta[i] = -log(1 + (1 - i / 32) / (i / 32 + gamma)).
 */
#include "positional/leaf.h"

enum { SIGMA2, GAMMA, BASE };

#define PAIRS 32

static double part(int pair) { return (double)pair / PAIRS; }

/* exponents[i] <- d / base log zeta[i]; returns the largest, of the last pair. */
static double decay(const double *values, double distance, double *exponents) {
  for (int i = 0; i < PAIRS; i++) exponents[i] = distance / values[BASE] * -log1p((1 - part(i)) / (part(i) + values[GAMMA]));
  return exponents[PAIRS - 1];
}

static void log_value(const double *values, double constant, const double *distance, int count, double *out) {
  (void)constant;
  for (int i = 0; i < count; i++) {
    double exponents[PAIRS], sum = 0;
    const double largest = decay(values, distance[i], exponents);
    for (int k = 0; k < PAIRS; k++) sum += exp(exponents[k] - largest);
    out[i] = log(values[SIGMA2]) + largest + log(sum / PAIRS);
  }
}

/* With p[i] = zeta[i]^(d / base) / (the sum of all): d log G / d log sigma2 = 1;
 * d log G / d log base = -sum of p[i] (d / base) log zeta[i];
 * d log zeta / d log gamma = gamma (1 - r) / ((r + gamma) (1 + gamma)), r = i / 32 */
static void gradient(const double *values, double constant, const double *distance, const double *weight, int count, double *sums) {
  (void)constant;
  const double gamma = values[GAMMA];
  for (int i = 0; i < count; i++) {
    double exponents[PAIRS], sum = 0, by_gamma = 0, by_base = 0;
    const double largest = decay(values, distance[i], exponents);
    for (int k = 0; k < PAIRS; k++) {
      const double size = exp(exponents[k] - largest);
      sum += size;
      by_gamma += size * (gamma / (part(k) + gamma)) * ((1 - part(k)) / (1 + gamma));
      by_base -= size * exponents[k];
    }
    sums[SIGMA2] += weight[i];
    sums[GAMMA] += weight[i] * (distance[i] / values[BASE]) * (by_gamma / sum);
    sums[BASE] += weight[i] * (by_base / sum);
  }
}

const hark_leaf hark_leaf_xpos = {
    .name = "xpos",
    .formula = "sigma2 mean over i = 0 .. 31 of zeta[i]^(d / base), zeta[i] = (i / 32 + gamma) / (1 + gamma)",
    .definite_text = "yes",
    .text = "The decay of xPos, as a mixture of 32 exponentials: fast near 0, slow far away; published are gamma=0.4! and base=512!.",
    .definite = hark_leaf_always,
    .parameter_count = 3,
    .parameters = {HARK_LEAF_SIGMA2,
                   {.name = "gamma", .start = HARK_START_ONE, .start_factor = 0.4},
                   {.name = "base", .start = HARK_START_JITTERED, .start_factor = 512}},
    .log_value = log_value,
    .gradient = gradient,
};
