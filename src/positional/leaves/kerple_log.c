/* kerple_log.c - G(d) = (1 + r2 d)^(-r1): KERPLE's logarithmic kernel (Chi, Fan, Ramadge, Rudnicky, arXiv 2205.09921). */
#include "positional/leaf.h"

enum { POWER, RATE };

static void log_value(const double *values, double constant, const double *distance, int count, double *out) {
  (void)constant;
  for (int i = 0; i < count; i++) out[i] = -values[POWER] * log1p(values[RATE] * distance[i]);
}

/* d log G / d log r1 = log G; d log G / d log r2 = -r1 r2 d / (1 + r2 d) */
static void gradient(const double *values, double constant, const double *distance, const double *weight, int count, double *sums) {
  (void)constant;
  for (int i = 0; i < count; i++) {
    const double u = values[RATE] * distance[i];
    sums[POWER] -= weight[i] * values[POWER] * log1p(u);
    sums[RATE] -= weight[i] * values[POWER] * (u / (1 + u));
  }
}

const hark_leaf hark_leaf_kerple_log = {
    .name = "kerple_log",
    .formula = "(1 + r2 d)^(-r1)",
    .definite_text = "yes",
    .text = "KERPLE's logarithmic kernel: a power law.",
    .definite = hark_leaf_always,
    .parameter_count = 2,
    .parameters = {{.name = "r1", .start = HARK_START_JITTERED}, {.name = "r2", .start = HARK_START_INVERSE_LENGTH}},
    .log_value = log_value,
    .gradient = gradient,
};
