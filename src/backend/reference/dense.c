/* dense.c - attention by its definition, in double, with plain loops: the algorithm's record, its sizes and its forward.
 *
 *     out[n,:] = sum_i m[n,i] P[n,i] value[i,:],   P[n,i] = exp(s[n,i] - lse[n]),   lse[n] = log sum over visible i of exp(s[n,i])
 *
 * s and the dropout factor m: dense_entry.h. Legend: B batch, H heads, Lq queries, Lk keys, d head_dim, dv value_dim.
 * Cost: O(Lq Lk (d + dv)) per head; scratch: O(Lk + d + dv) per worker; a forget gate adds B H Lk, the backward 3 B H Lq.
 */
#include "backend/reference/dense.h"

#include <math.h>
#include <stdio.h>

#include "backend/reference/contextual.h"

static bool supports(const hark_context *context, const hark_attention_desc *desc, char *why, size_t size) {
  (void)context;
  if (desc->normalisation != HARK_NORMALISATION_SOFTMAX) {
    snprintf(why, size, "normalisation is not softmax");
    return false;
  }
  if (desc->contextual_positions > 0) {
    snprintf(why, size, "contextual_positions is not 0");
    return false;
  }
  if (desc->structure == HARK_STRUCTURE_DENSE || desc->structure == HARK_STRUCTURE_WINDOW) return true;
  snprintf(why, size, "structure is neither dense nor window");
  return false;
}

static hark_status sizes(hark_context *context, const hark_attention_desc *desc, int workers, hark_attention_sizes *out) {
  size_t rows, gates, scratch, statistics;
  HARK_TRY(hark_size_multiply(context, (size_t)desc->batch * (size_t)desc->heads * sizeof(double), (size_t)desc->query_length, &rows));
  HARK_TRY(hark_size_multiply(context, (size_t)desc->batch * (size_t)desc->heads * sizeof(double),
                              desc->has_forget ? (size_t)desc->key_length : 0, &gates));
  HARK_TRY(hark_size_multiply(context, (size_t)workers * sizeof(double), (size_t)hark_dense_scratch(desc), &scratch));
  HARK_TRY(hark_size_multiply(context, HARK_DENSE_STATISTICS, rows, &statistics));
  out->saved = 0;
  HARK_TRY(hark_size_add(context, gates, scratch, &out->forward_workspace));
  return hark_size_add(context, out->forward_workspace, statistics, &out->backward_workspace);
}

dense_memory hark_dense_memory(const hark_attention_call *run) {
  const hark_attention_desc *desc = &run->plan->desc;
  dense_memory memory;
  memory.per_worker = hark_dense_scratch(desc);
  memory.scratch = run->scratch;
  memory.gates = memory.scratch + memory.per_worker * run->plan->workers;
  memory.highest = memory.gates + (desc->has_forget ? desc->batch * desc->heads * desc->key_length : 0);
  memory.sum = memory.highest + desc->batch * desc->heads * desc->query_length;
  memory.mean_gradient = memory.sum + desc->batch * desc->heads * desc->query_length;
  return memory;
}

dense_row hark_dense_weights(const dense_head *at, int64_t row, double *weights) {
  const int64_t keys = at->sequence->key_count;
  dense_row of = {.highest = -INFINITY};
  for (int64_t i = 0; i < keys; i++)
    if (!hark_dense_logit(at, row, i, &weights[i])) weights[i] = -INFINITY;
  if (at->desc->contextual_positions > 0) hark_contextual_add(at, row, weights);
  for (int64_t i = 0; i < keys; i++) of.highest = hark_larger(of.highest, weights[i]);
  for (int64_t i = 0; of.highest != -INFINITY && i < keys; i++)
    if (weights[i] != -INFINITY) of.sum += exp(weights[i] - of.highest);
  for (int64_t i = 0; i < keys; i++) {
    double logit = weights[i];
    const bool seen = isnan(of.sum) ? hark_dense_logit(at, row, i, &logit) : logit != -INFINITY;
    weights[i] = seen ? dense_weight(&of, logit) : HARK_DENSE_HIDDEN;
  }
  return of;
}

typedef struct forward_task {
  const hark_attention_call *run;
  dense_memory memory;
} forward_task;

static void forward_head(void *data, int64_t index, int worker) {
  const forward_task *task = data;
  const hark_attention_call *run = task->run;
  const hark_attention_args *args = run->args;
  const int64_t heads = run->plan->desc.heads, value_dim = run->plan->desc.value_dim;
  const dense_head at = hark_dense_head(run, task->memory.gates, index / heads, index % heads);
  const int64_t keys = at.sequence->key_count;
  double *weights = task->memory.scratch + worker * task->memory.per_worker, *sums = weights + keys;
  for (int64_t row = 0; row < at.sequence->query_count; row++) {
    const dense_row of = hark_dense_weights(&at, row, weights);
    /* out is divided by the sum of weights: if this is NaN, out is NaN too, even if all values of the row are dropped */
    for (int64_t c = 0; c < value_dim; c++) sums[c] = isnan(of.sum) ? of.sum : 0;
    for (int64_t i = 0; i < keys; i++) {
      if (weights[i] == HARK_DENSE_HIDDEN) continue;
      const double factor = hark_dense_dropout(&at, row, i);
      if (factor == 0) continue;
      const int64_t value = dense_key_index(&at, &args->value, i);
      for (int64_t c = 0; c < value_dim; c++) sums[c] += factor * weights[i] * dense_get(&args->value, value + c);
    }
    const int64_t out = dense_query_index(&at, &args->out, row);
    for (int64_t c = 0; c < value_dim; c++) dense_put(&args->out, out + c, sums[c]);
    if (args->log_sum_exp.type != HARK_NONE)
      dense_put_log_sum(&args->log_sum_exp, (at.sequence->item * heads + at.head) * args->query.shape[2] + at.sequence->query_row + row,
                        of.highest == -INFINITY ? -INFINITY : of.highest + log(of.sum));
  }
}

static hark_status forward(hark_context *context, const hark_attention_call *run) {
  forward_task task = {run, hark_dense_memory(run)};
  hark_dense_gates(context, run, task.memory.gates);
  hark_parallel_for(context, run->sequence_count * run->plan->desc.heads, forward_head, &task);
  return HARK_OK;
}

static int print(const hark_attention_plan *plan, char *text, size_t size) {
  return snprintf(text, size, "whole rows in double, %d workers", plan->workers);
}

const hark_attention_algorithm hark_reference_dense = {
    .name = "dense by definition",
    .supports = supports,
    .sizes = sizes,
    .forward = forward,
    .backward = hark_dense_backward,
    .print = print,
};
