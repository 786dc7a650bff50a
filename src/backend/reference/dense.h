/* dense.h - what forward and backward of the reference attention share: rows of weights, and where scratch memory lies. */
#ifndef HARK_BACKEND_REFERENCE_DENSE_H
#define HARK_BACKEND_REFERENCE_DENSE_H

#include "backend/reference/dense_entry.h"

/* In a row of weights, which are never negative: this entry is hidden and nothing may be computed with it. */
#define HARK_DENSE_HIDDEN (-1.0)

#define HARK_DENSE_STATISTICS 2 /* numbers that the backward keeps per query row and head: log-sum-exp, mean gradient */

/* Scratch:  [ workers x per_worker | gates B H Lk, with a forget gate | log_sum_exp B H Lq | mean_gradient B H Lq ], the last two in the
 * backward only. */
typedef struct dense_memory {
  int64_t per_worker; /* doubles */
  double *scratch, *gates, *log_sum_exp, *mean_gradient;
} dense_memory;

dense_memory hark_dense_memory(const hark_attention_run *run);

/* Doubles per worker: three rows of keys, and a row of features of each kind. */
static inline int64_t hark_dense_scratch(const hark_attention_desc *desc) {
  return 3 * desc->key_length + desc->head_dim + desc->value_dim;
}

/* weights[i] <- P[row,i] before dropout, or HARK_DENSE_HIDDEN; returns log-sum-exp, -infinity when the row sees nothing. */
double hark_dense_weights(const dense_head *at, int64_t row, double *weights);

hark_status hark_dense_backward(hark_context *context, const hark_attention_run *run);

#endif
