/* kerple_power.c - G(d) = exp(-r1 d^r2): KERPLE's power kernel (Chi, Fan, Ramadge, Rudnicky, arXiv 2205.09921).
 *
 * Positive definite for 0 < r2 <= 2 and for no larger r2 (Schoenberg 1938). If r1 d^r2 exceeds NOTHING_LEFT, G counts as 0.
 */
#include "positional/leaf.h"

enum { RATE, POWER };

#define NOTHING_LEFT 1e200

/* r1 d^r2 */
static double exponent(const double *values, double distance) { return values[RATE] * pow(distance, values[POWER]); }

static void log_value(const double *values, double constant, const double *distance, int count, double *out) {
  (void)constant;
  for (int i = 0; i < count; i++) {
    const double x = exponent(values, distance[i]);
    out[i] = x > NOTHING_LEFT ? -INFINITY : -x;
  }
}

/* d log G / d log r1 = log G; d log G / d log r2 = r2 log(d) log G, 0 at d = 0 */
static void gradient(const double *values, double constant, const double *distance, const double *weight, int count, double *sums) {
  (void)constant;
  for (int i = 0; i < count; i++) {
    const double x = exponent(values, distance[i]);
    if (distance[i] == 0 || x > NOTHING_LEFT) continue;
    sums[RATE] -= weight[i] * x;
    sums[POWER] -= weight[i] * x * (values[POWER] * log(distance[i]));
  }
}

static bool definite(const double *values, double constant) {
  (void)constant;
  return values[POWER] <= 2;
}

const hark_leaf hark_leaf_kerple_power = {
    .name = "kerple_power",
    .formula = "exp(-r1 d^r2)",
    .definite_text = "for r2 <= 2",
    .text = "KERPLE's power kernel: r2 = 1 is decay, r2 = 2 is rbf.",
    .definite = definite,
    .parameter_count = 2,
    .parameters = {{.name = "r1", .start = HARK_START_INVERSE_LENGTH}, {.name = "r2", .start = HARK_START_JITTERED}},
    .log_value = log_value,
    .gradient = gradient,
};
