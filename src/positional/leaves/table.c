/* table.c - G(d) = factor[min(floor(d), K - 1)]: a learned factor for each of K distances, the last one also for all larger ones. Any
 * kernel up to distance K - 1 is such a table: what it reaches is the most that an expression can.
 */
#include "positional/leaf.h"

static int entry(double size, double distance) { return (int)(distance < size - 1 ? distance : size - 1); }

static void log_value(const double *values, double constant, const double *distance, int count, double *out) {
  for (int i = 0; i < count; i++) out[i] = log(values[entry(constant, distance[i])]);
}

/* d log G / d log factor[k] = 1 if k = min(d, K - 1), otherwise 0 */
static void gradient(const double *values, double constant, const double *distance, const double *weight, int count, double *sums) {
  (void)values;
  for (int i = 0; i < count; i++) sums[entry(constant, distance[i])] += weight[i];
}

const hark_leaf hark_leaf_table = {
    .name = "table",
    .formula = "factor[min(floor(d), K - 1)]",
    .definite_text = "no",
    .text = "A learned factor for each of K distances, written table[K]; the last one is also that of all larger distances.",
    .definite = hark_leaf_never,
    .size_limit = HARK_POSITIONAL_PARAMETERS,
    .parameter_count = 1,
    .parameters = {{.name = "factor", .start = HARK_START_JITTERED, .sized = true}},
    .log_value = log_value,
    .gradient = gradient,
};
