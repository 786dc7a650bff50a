/* mlp.c - log G(d) = sum over k of w[k] max(0, log((1 + c d) / (1 + c t[k]))): a network with one hidden layer of K rectified units, whose
 * input is the logarithm of the distance, as in FIRE (Li et al., arXiv 2310.04418).
 *
 * FIRE adds f(psi(d) / psi(max(L, n))) to the logit of query n, psi(d) = log(1 + c d) and f(x) = b + sum over k of v[k] max(0, u[k] x +
 * b[k]). Where n <= L (a learned threshold) this is a function of the distance alone: a piecewise linear function of psi(d). Up to a
 * constant, which the normalisation cancels, it is the sum above: a unit with u > 0 has its knot where u psi + b = 0, one with u < 0 is
 * the negative of such a unit plus a linear function, and a linear function is a unit whose knot t is near 0. Dividing by psi(L) scales
 * weights. So H hidden units need K = H + 1 here, and no two sets of values are the same function but for the order of units. What is not
 * there is FIRE's compression of distances for queries n > L, which depends on n: beyond the last knot G continues as a power of 1 + c d.
 */
#include "positional/leaf.h"

enum { C, KNOTS };

/* x[k] <- log(1 + c t[k]) */
static void place_knots(const double *values, int units, double *x) {
  for (int k = 0; k < units; k++) x[k] = log1p(values[C] * values[KNOTS + k]);
}

static void log_value(const double *values, double constant, const double *distance, int count, double *out) {
  const int units = (int)constant;
  const double *const weights = values + KNOTS + units;
  double knots[HARK_LEAF_SIZE];
  place_knots(values, units, knots);
  for (int i = 0; i < count; i++) {
    const double x = log1p(values[C] * distance[i]);
    out[i] = 0;
    for (int k = 0; k < units; k++) out[i] += weights[k] * fmax(0, x - knots[k]);
  }
}

/* d log(1 + c d) / d log c = d log(1 + c d) / d log d = c d / (1 + c d) */
static double rate(double c, double distance) { return c * distance / (1 + c * distance); }

/* Where d > t[k]: d log G / d log c = sum of w[k] (rate(d) - rate(t[k])); d log G / d log t[k] = -w[k] rate(t[k]);
 * d log G / d w[k] = log(1 + c d) - log(1 + c t[k]) */
static void gradient(const double *values, double constant, const double *distance, const double *weight, int count, double *sums) {
  const int units = (int)constant;
  const double *const weights = values + KNOTS + units;
  double knots[HARK_LEAF_SIZE], rates[HARK_LEAF_SIZE];
  place_knots(values, units, knots);
  for (int k = 0; k < units; k++) rates[k] = rate(values[C], values[KNOTS + k]);
  for (int i = 0; i < count; i++) {
    const double x = log1p(values[C] * distance[i]), own = rate(values[C], distance[i]);
    for (int k = 0; k < units; k++) {
      if (x <= knots[k]) continue;
      sums[C] += weight[i] * weights[k] * (own - rates[k]);
      sums[KNOTS + k] -= weight[i] * weights[k] * rates[k];
      sums[KNOTS + units + k] += weight[i] * (x - knots[k]);
    }
  }
}

const hark_leaf hark_leaf_mlp = {
    .name = "mlp",
    .formula = "exp(sum over k of w[k] max(0, log((1 + c d) / (1 + c t[k]))))",
    .definite_text = "no",
    .text = "A network of K rectified units over the logarithm of the distance, written mlp[K], as in FIRE; weights w may be negative.",
    .definite = hark_leaf_never,
    .size_limit = HARK_LEAF_SIZE,
    .parameter_count = 3,
    .parameters = {{.name = "c", .start = HARK_START_INVERSE_LENGTH},
                   {.name = "t", .start = HARK_START_KNOT, .sized = true},
                   {.name = "w", .transform = HARK_TRANSFORM_SIGNED, .start = HARK_START_FALL, .sized = true}},
    .log_value = log_value,
    .gradient = gradient,
};
