/* row_gradients.h - the gradients of an attention whose rows are differentiated one by one: what algorithms by definition share.
 *
 * A rule computes P and the gradients dS of a row's logits. From them follow, as in dense_backward.c,
 *
 *     dq[n] = scale sum_i dC k_i (+ what the rule adds);   dk[i] = scale sum_n dC q_n;   dv[i] = sum_n m P dout[n]
 *     dbias = dS summed over the broadcast dimensions;   dlogG[delta] = sum over p - i = delta of dS
 *     df[t] = (1 - sigmoid(f_t)) sum over i < t <= p of dS[n,i]
 *
 * where dC is dS, plus further paths from scale q.k to the result. Every element of a result is written by one task: the number of threads
 * changes no bit. Causal only.
 */
#ifndef HARK_BACKEND_REFERENCE_ROW_GRADIENTS_H
#define HARK_BACKEND_REFERENCE_ROW_GRADIENTS_H

#include "backend/reference/dense.h"

/* A row's numbers by key, and room for the sums of a task. */
typedef struct gradient_row {
  double *weights;   /* P, or HARK_DENSE_HIDDEN */
  double *extra;     /* of the rule */
  double *gradients; /* dS */
  double *products;  /* dC */
  double *sums;
} gradient_row;

typedef struct gradient_rule {
  bool has_paths; /* products are separate numbers; otherwise they are the gradients */
  /* Fills a row: gradients and products of hidden entries are 0. */
  void (*differentiate)(const dense_head *at, int64_t row, const gradient_row *of);
  /* Element `feature` of what is added to sum_i dC k_i. Optional. */
  double (*add_to_query)(const dense_head *at, int64_t row, const gradient_row *of, int64_t feature);
} gradient_rule;

typedef struct gradient_task {
  const hark_attention_call *run;
  const gradient_rule *rule;
  double *scratch, *gates;
  int64_t extent[3]; /* of dattention_bias: separate items, heads, rows */
} gradient_task;

/* Scratch: [ workers x doubles of hark_gradient_scratch() | gates, with a forget gate ]. */
int64_t hark_gradient_scratch(const hark_attention_desc *desc);
hark_status hark_gradient_sizes(hark_context *context, const hark_attention_desc *desc, int workers, size_t *bytes);

/* Begins a forward or a backward; fills the gates. */
gradient_task hark_gradient_begin(hark_context *context, const hark_attention_call *run, const gradient_rule *rule);
gradient_row hark_gradient_row(const gradient_task *task, int worker);

/* All gradients that are requested of queries, keys, values, bias, table of log G and gates. */
void hark_gradient_compute(hark_context *context, gradient_task *task);

/* m dout[n] . v_i; a dropped value is not read. */
double hark_gradient_of_weight(const dense_head *at, int64_t row, int64_t column);

static inline void hark_gradient_store(const hark_tensor *gradient, int64_t index, double value, bool add) {
  dense_put(gradient, index, add ? dense_get(gradient, index) + value : value);
}

#endif
