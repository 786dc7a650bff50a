/* boundary_pair.h - how different two neighbouring rows are: of boundary_probability, and of decodings with learned chunks. */
#ifndef HARK_OPS_BOUNDARY_PAIR_H
#define HARK_OPS_BOUNDARY_PAIR_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

/* A query and the key of the row before it: norms, and their cosine, 0 where a norm is. */
typedef struct hark_boundary_pair {
  double query_norm, key_norm, cosine;
} hark_boundary_pair;

/* Of `width` numbers of f32, or `wide` of f64, from these places on. */
static inline hark_boundary_pair hark_boundary_pair_at(bool wide, const void *query, int64_t query_at, const void *key, int64_t key_at,
                                                       int64_t width) {
  double product = 0, q = 0, k = 0;
  for (int64_t d = 0; d < width; d++) {
    const double a = wide ? ((const double *)query)[query_at + d] : (double)((const float *)query)[query_at + d];
    const double b = wide ? ((const double *)key)[key_at + d] : (double)((const float *)key)[key_at + d];
    product += a * b;
    q += a * a;
    k += b * b;
  }
  return (hark_boundary_pair){sqrt(q), sqrt(k), q == 0 || k == 0 ? 0 : product / (sqrt(q) * sqrt(k))};
}

/* (1 - cosine) / 2, within [0, 1]; a NaN stays a NaN. */
static inline double hark_boundary_probability(hark_boundary_pair pair) {
  const double apart = (1 - pair.cosine) / 2;
  return apart < 0 ? 0 : apart > 1 ? 1 : apart;
}

#endif
