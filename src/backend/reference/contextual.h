/* contextual.h - the term of contextual positions in a row of logits of the reference attention.
 *
 *     g[n,i] = sigmoid(scale q_n.k_i);   c[n,i] = min(sum over visible t >= i of g[n,t], N - 1);   x = floor c,  f = c - x
 *     s[n,i] += scale q_n.((1 - f) e[x] + f e[x + 1])
 *
 * Hidden keys count nothing. A position that is NaN takes f = NaN in row 0; its gradient reaches all rows that it might be at.
 */
#ifndef HARK_BACKEND_REFERENCE_CONTEXTUAL_H
#define HARK_BACKEND_REFERENCE_CONTEXTUAL_H

#include "backend/reference/dense_entry.h"

/* Adds the terms to logits [key_count] of a row; entries of -infinity stay. */
void hark_contextual_add(const dense_head *at, int64_t row, double *logits);

/* Index of the first element of a row of e, or of its gradient. */
static inline int64_t dense_contextual_index(const dense_head *at, const hark_tensor *tensor, int64_t position) {
  return at->head * tensor->stride[0] + position * tensor->stride[1];
}

#endif
