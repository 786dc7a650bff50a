/* attention.h - one head of hark's own attention on plain arrays in float64, for experiments. */
#ifndef HARK_LAB_ATTENTION_H
#define HARK_LAB_ATTENTION_H

#include <hark/attention.h>

#include "lab/lab.h"

/* L keys and values, N queries. */
typedef struct hark_lab_head {
  int64_t length, head_dim, value_dim;
  const double *query;      /* [N, head_dim] */
  const double *key;        /* [L, head_dim] */
  const double *value;      /* [L, value_dim] */
  const double *log_kernel; /* log G at the distances that the choice needs, [L] where it is dense and N <= L; NULL: none */
  const uint8_t *mask;      /* [N, L], 0 hides; NULL: none */
  int64_t queries;          /* N; 0: L */
  double *log_sum_exp;      /* [N], written; NULL: not needed */
  double *variance;         /* [N], written by CME; NULL: not needed */
} hark_lab_head;

/* CME attention with the kernel exp(-|q - k|^2 / (2 variance)): kernel ridge regression of the values on the keys. */
hark_attention_desc hark_lab_kernel_ridge(double variance, double ridge);

/* out [N, value_dim]. `choice` has structure, kernel and the rest; type and extents are those of the head. Errors: those of attention. */
HARK_MUST_CHECK hark_status hark_lab_attend(hark_context *context, const hark_attention_desc *choice, const hark_lab_head *head,
                                            double *out);

/* |have - expected|_F / |expected|_F, and the largest row of the difference over the root mean square of the rows of `expected`. Both are
 * 0 where both arrays are zero. */
typedef struct hark_lab_difference {
  double relative, row;
} hark_lab_difference;
hark_lab_difference hark_lab_difference_of(const double *have, const double *expected, int64_t rows, int64_t columns);

/* out[l] <- row l of x [L, d], its pairs of neighbouring features rotated by the angles rates[j] (first + l), by hark's operator; rates
 * [d / 2]. */
typedef struct hark_lab_rotation {
  int64_t length, dim, first;
  const double *rates;
} hark_lab_rotation;
HARK_MUST_CHECK hark_status hark_lab_rotate(hark_context *context, const hark_lab_rotation *rotation, const double *x, double *out);

/* Many sequences of one length, one head, with gradients: at most `batch` sequences in a call, whose arrays follow one another. */
typedef struct hark_lab_batch {
  int64_t batch, queries, length, head_dim, value_dim;
  double *query, *key, *value, *out;     /* [B, N, d], [B, L, d], [B, L, dv], [B, N, dv]; all arrays are those of hark_lab_make_batch() */
  double *dquery, *dkey, *dvalue, *dout; /* the caller fills dout, the others are written */
  double *log_sum_exp;                   /* [B, N], softmax */
  double *variance;                      /* [B, N], CME */
  double ridge, sigma, dridge, dsigma;   /* of a choice with has_ridge, has_sigma: summed over the batch */
  const hark_attention_plan *plan;
  void *saved, *workspace;
} hark_lab_batch;

/* Memory of the lab for the extents that are set, and the plan. `choice` as in hark_lab_attend(). */
HARK_MUST_CHECK hark_status hark_lab_make_batch(hark_lab *lab, const hark_attention_desc *choice, hark_lab_batch *batch);
/* The first `count` sequences. The backward follows a forward of the same numbers. */
HARK_MUST_CHECK hark_status hark_lab_batch_forward(hark_context *context, hark_lab_batch *batch, int64_t count);
HARK_MUST_CHECK hark_status hark_lab_batch_backward(hark_context *context, hark_lab_batch *batch, int64_t count);

/* h heads whose values have all d features, over L tokens (X eq. C.3):  sum_i attn(X W^q_i, X W^k_i, X W^v_i). */
typedef struct hark_lab_heads {
  int64_t heads, width, head_dim, length;
  double *query, *key; /* [h, d, head_dim] */
  double *value;       /* [h, d, d] */
  double *log_kernel;  /* [L] or NULL */
  double *scratch;     /* of hark_lab_make_heads() */
} hark_lab_heads;

/* Memory of the lab for the extents that are set: weights of zeros, and scratch. */
HARK_MUST_CHECK hark_status hark_lab_make_heads(hark_lab *lab, hark_lab_heads *heads);
/* out [L, d] from x [L, d]. */
HARK_MUST_CHECK hark_status hark_lab_sum_heads(hark_context *context, const hark_attention_desc *choice, const hark_lab_heads *heads,
                                               const double *x, double *out);

#endif
