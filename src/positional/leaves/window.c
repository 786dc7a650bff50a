/* window.c - G(d) = 1 for d <= w, otherwise 0: hard local attention. Nothing is learned. Positive definite only for w = 0. */
#include "positional/leaf.h"

static void log_value(const double *values, double constant, const double *distance, int count, double *out) {
  (void)values;
  for (int i = 0; i < count; i++) out[i] = distance[i] <= constant ? 0 : -INFINITY;
}

static bool definite(const double *values, double constant) {
  (void)values;
  return constant == 0;
}

const hark_leaf hark_leaf_window = {
    .name = "window",
    .formula = "1 for d <= w, else 0",
    .definite_text = "for w = 0",
    .text = "Hard local attention; w is a whole number that must be given and is not learned.",
    .definite = definite,
    .constant = "w",
    .log_value = log_value,
};
