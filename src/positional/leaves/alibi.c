/* alibi.c - G(d) = exp(-m d): ALiBi's linear penalty (Press, Smith, Lewis, arXiv 2108.12409), a decay with l = 1 / m. */
#include "positional/leaf.h"

enum { SLOPE };

static void log_value(const double *values, double constant, const double *distance, int count, double *out) {
  (void)constant;
  for (int i = 0; i < count; i++) out[i] = -values[SLOPE] * distance[i];
}

/* d log G / d log m = -m d */
static void gradient(const double *values, double constant, const double *distance, const double *weight, int count, double *sums) {
  (void)constant;
  for (int i = 0; i < count; i++) sums[SLOPE] -= weight[i] * (values[SLOPE] * distance[i]);
}

const hark_leaf hark_leaf_alibi = {
    .name = "alibi",
    .formula = "exp(-m d)",
    .definite_text = "yes",
    .text =
        "ALiBi: a decay with l = 1 / m; head h of H starts at m = 2^(-8 h / H), and where H is no power of two as the published program "
        "does.",
    .definite = hark_leaf_always,
    .parameter_count = 1,
    .parameters = {{.name = "m", .start = HARK_START_SLOPE}},
    .log_value = log_value,
    .gradient = gradient,
};
