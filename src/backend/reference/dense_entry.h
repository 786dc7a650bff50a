/* dense_entry.h - one entry (query n, key i) of attention: its visibility, its logit, its dropout factor.
 *
 *     s[n,i] = scale q_n . k_i                       kernel exp
 *            = -|q_n - k_i|^2 / (2 sigma^2)          kernel rbf
 *            + bias[n,i] + log G(|p - i|) + F[min(p, Lk-1)] - F[i],      p = n + offset,  F[i] = sum over t <= i of log sigmoid(f_t)
 *
 * With directed_kernel, log G is of p - i with its sign. All numbers are doubles, whatever the tensors hold. Rows and columns count from 0
 * inside the sequence.
 */
#ifndef HARK_BACKEND_REFERENCE_DENSE_ENTRY_H
#define HARK_BACKEND_REFERENCE_DENSE_ENTRY_H

#include <float.h>
#include <math.h>

#include "backend/reference/reference.h"

/* One query head of one sequence. */
typedef struct dense_head {
  const hark_attention_desc *desc;
  const hark_attention_args *args;
  const hark_attention_sequence *sequence;
  int64_t head, key_head;
  const double *gates; /* F of this sequence and head, [key_count]; NULL without forget gate */
} dense_head;

/* `gates` holds F of all items and heads, [B, H, Lk]. */
dense_head hark_dense_head(const hark_attention_call *run, const double *gates, int64_t sequence, int64_t head);

/* Fills F. */
void hark_dense_gates(hark_context *context, const hark_attention_call *run, double *gates);

/* False if the entry is hidden: by causal, window, mask, or a bias or table of -infinity. */
bool hark_dense_logit(const dense_head *at, int64_t row, int64_t column, double *logit);

/* scale q . k, or the same of kernel rbf, of a visible entry. */
double hark_dense_similarity(const dense_head *at, int64_t row, int64_t column);

/* The factor of the normalised weight: 0 if dropped, otherwise 1 / (1 - p). */
double hark_dense_dropout(const dense_head *at, int64_t row, int64_t column);

/* Columns [first, end) of a row: causal (with stick-breaking before the own position) and window hide all others. */
void hark_dense_columns(const dense_head *at, int64_t row, int64_t *first, int64_t *end);

/* Index of the first element of a row in [B, H, L, d] tensors of the query side and of the key side. */
static inline int64_t dense_query_index(const dense_head *at, const hark_tensor *tensor, int64_t row) {
  return at->sequence->item * tensor->stride[0] + at->head * tensor->stride[1] + (at->sequence->query_row + row) * tensor->stride[2];
}
static inline int64_t dense_key_index(const dense_head *at, const hark_tensor *tensor, int64_t column) {
  return at->sequence->item * tensor->stride[0] + at->key_head * tensor->stride[1] + (at->sequence->key_row + column) * tensor->stride[2];
}
/* Index in [B, H, Lk] tensors: forget and its gradient. */
static inline int64_t dense_gate_index(const dense_head *at, const hark_tensor *tensor, int64_t column) {
  return at->sequence->item * tensor->stride[0] + at->head * tensor->stride[1] + (at->sequence->key_row + column) * tensor->stride[2];
}
/* Index in [B, H, Lq, Lk] tensors, whose strides are 0 where they are broadcast. */
static inline int64_t dense_entry_index(const dense_head *at, const hark_tensor *tensor, int64_t row, int64_t column) {
  return at->sequence->item * tensor->stride[0] + at->head * tensor->stride[1] + (at->sequence->query_row + row) * tensor->stride[2] +
         (at->sequence->key_row + column) * tensor->stride[3];
}

static inline double dense_get(const hark_tensor *tensor, int64_t index) {
  return tensor->type == HARK_F64 ? ((const double *)tensor->data)[index] : (double)((const float *)tensor->data)[index];
}
static inline void dense_put(const hark_tensor *tensor, int64_t index, double value) {
  if (tensor->type == HARK_F64)
    ((double *)tensor->data)[index] = value;
  else
    ((float *)tensor->data)[index] = (float)value;
}

/* A log-sum-exp that is finite stays finite: in f32 -infinity is the number of rows that see nothing. */
static inline void dense_put_log_sum(const hark_tensor *tensor, int64_t index, double value) {
  const bool narrow = tensor->type != HARK_F64 && isfinite(value);
  dense_put(tensor, index, narrow ? fmax((double)-FLT_MAX, fmin(value, (double)FLT_MAX)) : value);
}

#endif
