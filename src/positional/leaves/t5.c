/* t5.c - G(d) = factor[bucket(d)]: T5's learned buckets (Raffel et al., arXiv 1910.10683), as for a causal decoder.
 *
 * bucket(d) = d below 16, then min(31, 16 + floor(16 ln(d / 16) / ln 8)): buckets of equal width in log d up to distance 128. T5 calls the
 * logarithm of a factor its bias; it is trained.
 */
#include "positional/leaf.h"

#define BUCKETS 32
#define EXACT 16     /* distances with a separate bucket */
#define FARTHEST 128 /* end of the buckets of equal width; the last one includes all larger distances */

static int bucket(double distance) {
  if (distance < EXACT) return (int)distance;
  const int number = EXACT + (int)((BUCKETS - EXACT) * log(distance / EXACT) / log((double)FARTHEST / EXACT));
  return number < BUCKETS - 1 ? number : BUCKETS - 1;
}

static void log_value(const double *values, double constant, const double *distance, int count, double *out) {
  (void)constant;
  for (int i = 0; i < count; i++) out[i] = log(values[bucket(distance[i])]);
}

/* d log G / d log factor[b] = 1 if bucket(d) = b, otherwise 0 */
static void gradient(const double *values, double constant, const double *distance, const double *weight, int count, double *sums) {
  (void)values, (void)constant;
  for (int i = 0; i < count; i++) sums[bucket(distance[i])] += weight[i];
}

const hark_leaf hark_leaf_t5 = {
    .name = "t5",
    .formula = "factor[b], b = d below 16, then min(31, 16 + floor(16 ln(d / 16) / ln 8))",
    .definite_text = "no",
    .text = "T5's buckets: a learned factor (exp of T5's bias) for each of 32 ranges of distances.",
    .definite = hark_leaf_never,
    .parameter_count = 1,
    .parameters = {{.name = "factor", .start = HARK_START_JITTERED, .count = BUCKETS}},
    .log_value = log_value,
    .gradient = gradient,
};
