/* t5.c - G(d) = factor[bucket(d)]: T5's learned buckets (Raffel et al., arXiv 1910.10683), K of them, written t5[K].
 *
 * bucket(d) = d below E = floor(K / 2), then min(K - 1, E + floor((K - E) ln(d / E) / ln(128 / E))): buckets of equal width in log d up to
 * distance 128. T5's decoders have K = 32 of them, which is t5 without [K]. T5's encoders have 32, 16 for each direction:
 * left(t5[16])*right(t5[16]). T5 calls the logarithm of a factor its bias; it is trained.
 */
#include "positional/leaf.h"

#define BUCKETS 32
#define FARTHEST 128 /* end of the buckets of equal width; the last one includes all larger distances */

static int bucket(double size, double distance) {
  const int buckets = (int)size, exact = buckets / 2; /* exact: distances with a separate bucket */
  if (distance < exact) return (int)distance;
  const int number = exact + (int)((buckets - exact) * log(distance / exact) / log((double)FARTHEST / exact));
  return number < buckets - 1 ? number : buckets - 1;
}

static void log_value(const double *values, double constant, const double *distance, int count, double *out) {
  for (int i = 0; i < count; i++) out[i] = log(values[bucket(constant, distance[i])]);
}

/* d log G / d log factor[b] = 1 if bucket(d) = b, otherwise 0 */
static void gradient(const double *values, double constant, const double *distance, const double *weight, int count, double *sums) {
  (void)values;
  for (int i = 0; i < count; i++) sums[bucket(constant, distance[i])] += weight[i];
}

const hark_leaf hark_leaf_t5 = {
    .name = "t5",
    .formula = "factor[b], b = d below 16, then min(31, 16 + floor(16 ln(d / 16) / ln 8))",
    .definite_text = "no",
    .text =
        "T5's buckets: a learned factor (exp of T5's bias) for each of 32 ranges of distances, or of K ranges, written t5[K]. "
        "T5's encoders: left(t5[16])*right(t5[16]).",
    .definite = hark_leaf_never,
    .size_limit = FARTHEST,
    .size_least = 2,
    .size_default = BUCKETS,
    .parameter_count = 1,
    .parameters = {{.name = "factor", .start = HARK_START_JITTERED, .sized = true}},
    .log_value = log_value,
    .gradient = gradient,
};
