/* dense.h - shared by forward and backward of the reference attention: rows of weights, and the layout of scratch memory. */
#ifndef HARK_BACKEND_REFERENCE_DENSE_H
#define HARK_BACKEND_REFERENCE_DENSE_H

#include <math.h>

#include "backend/reference/dense_entry.h"

/* Marks a hidden entry in a row of weights (which are never negative): it must not be used. */
#define HARK_DENSE_HIDDEN (-1.0)

#define HARK_DENSE_STATISTICS 3 /* numbers that the backward keeps per query row and head: highest, sum, mean gradient */

/* The logits of a row. log-sum-exp is highest + log sum. Weights are computed without this addition, because log sum vanishes in it if
 * logits are 1e17 or more. */
typedef struct dense_row {
  double highest; /* -infinity: the row sees no key */
  double sum;     /* of e^(logit - highest): from 1 on, or NaN */
} dense_row;

/* Scratch:  [ workers x per_worker | gates B H Lk, with a forget gate | highest B H Lq | sum B H Lq | mean_gradient B H Lq ]. The last
 * three exist in the backward only. */
typedef struct dense_memory {
  int64_t per_worker; /* doubles */
  double *scratch, *gates, *highest, *sum, *mean_gradient;
} dense_memory;

dense_memory hark_dense_memory(const hark_attention_call *run);

/* Doubles per worker: three rows of keys, and a row of features of each kind. */
static inline int64_t hark_dense_scratch(const hark_attention_desc *desc) {
  return 3 * desc->key_length + desc->head_dim + desc->value_dim;
}

/* P[row,i] before dropout, from 0 to 1, or HARK_DENSE_HIDDEN. A logit of -infinity hides its entry, except in a row that is all NaN. */
static inline double dense_weight(const dense_row *of, double logit) {
  return logit == -INFINITY && of->sum == of->sum ? HARK_DENSE_HIDDEN : exp(logit - of->highest) / of->sum;
}

/* weights[i] <- P[row,i] before dropout, or HARK_DENSE_HIDDEN. */
dense_row hark_dense_weights(const dense_head *at, int64_t row, double *weights);

hark_status hark_dense_backward(hark_context *context, const hark_attention_call *run);

#endif
