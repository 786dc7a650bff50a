/* attention_weights.h - the weights of a layer's attention, as its operator computes them, a block of keys at a time. */
#ifndef HARK_NN_ATTENTION_WEIGHTS_H
#define HARK_NN_ATTENTION_WEIGHTS_H

#include "nn/forward.h"

/* The weights of all queries on keys first .. first + keys - 1. */
typedef struct hark_weights_block {
  int64_t heads, queries, first, keys;
  const float *weights; /* host, [queries, heads, keys]; 0 where a query does not meet a key; valid during the visit */
} hark_weights_block;
/* A status other than HARK_OK ends the visit. */
typedef hark_status hark_weights_visitor(void *user, const hark_weights_block *block);

/* Visits the weights of one sequence in blocks of keys, from the first key to the last; every key is in one block. A coarse key of a
 * hierarchy shares its weight equally among its keys, as it is the mean of their values. Softmax: the weights of a query sum to one;
 * stick-breaking: to at most one. Kernel ridge (CME): the coefficients of the values, which may be negative and have any sum.
 * Memory: of a block, about 2 queries * heads * keys numbers; there is never a whole matrix of weights.
 * Errors: HARK_UNSUPPORTED (several packed sequences or rows, numbers that are not f32), those of attention and of the visitor. */
HARK_MUST_CHECK hark_status hark_attention_weights_visit(hark_context *context, const hark_attention_application *seen,
                                                         hark_weights_visitor *visit, void *user);

#endif
