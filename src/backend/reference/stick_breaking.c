/* stick_breaking.c - stick-breaking attention by its definition, in double, with plain loops, forward and backward.
 *
 *     b[n,i] = sigmoid(s[n,i]);   P[n,i] = b[n,i] prod over visible j > i of (1 - b[n,j]);   out[n,:] = sum of m P[n,i] v[i,:]
 *
 * over the visible keys i before the query's position (arXiv 2410.17980). What is left after all keys has no value. log_sum_exp receives
 * log(1 - sum_i P[n,i]). If less than 2^-100 is left, nothing is: farther keys are hidden. With g[n,i] = m dout[n].v_i, and W[n,i] what the
 * stick is worth that reaches keys before i,
 *
 *     W' = W + b (g - W) from the farthest key on;   dS[n,i] = P[n,i] (1 - b[n,i]) (g[n,i] - W[n,i])
 *
 * since d log P[n,i] / ds[n,i] = 1 - b[n,i], and for j > i  d log P[n,i] / ds[n,j] = -b[n,j]. The other gradients follow from dS as in
 * row_gradients.h. Every element of a result is written by one task. Cost: O(Lq Lk (d + dv)) per head; scratch O(Lk (d + dv)) per worker.
 */
#include <math.h>
#include <stdio.h>

#include "backend/reference/row_gradients.h"

#define STICK_END 0x1p-100

static bool supports(const hark_context *context, const hark_attention_desc *desc, char *why, size_t size) {
  (void)context;
  if (desc->normalisation == HARK_NORMALISATION_STICK_BREAKING) return true;
  snprintf(why, size, "normalisation is not stick_breaking");
  return false;
}

static hark_status sizes(hark_context *context, const hark_attention_desc *desc, int workers, hark_attention_sizes *out) {
  out->saved = 0;
  HARK_TRY(hark_gradient_sizes(context, desc, workers, &out->forward_workspace));
  out->backward_workspace = out->forward_workspace;
  return HARK_OK;
}

/* P, and b as `extra`, of a row from the nearest key on; returns what is left. */
static double break_stick(const dense_head *at, int64_t row, const gradient_row *of) {
  double left = 1;
  for (int64_t i = at->sequence->key_count - 1; i >= 0; i--) {
    double logit;
    of->weights[i] = HARK_DENSE_HIDDEN;
    of->extra[i] = 0;
    if (left == 0 || !hark_dense_logit(at, row, i, &logit) || logit == -INFINITY) continue;
    const double power = exp(-fabs(logit)), small = power / (1 + power), large = 1 / (1 + power);
    const double rest = logit > 0 ? small : large;
    of->extra[i] = logit > 0 ? large : small;
    of->weights[i] = of->extra[i] * left;
    left *= rest;
    if (left < STICK_END) left = 0;
  }
  return left;
}

/* P, b and dS of a row. */
static void differentiate(const dense_head *at, int64_t row, const gradient_row *of) {
  double worth = 0;
  (void)break_stick(at, row, of);
  for (int64_t i = 0; i < at->sequence->key_count; i++) {
    of->gradients[i] = 0;
    if (of->weights[i] == HARK_DENSE_HIDDEN) continue;
    double logit = 0;
    (void)hark_dense_logit(at, row, i, &logit);
    const double rest = logit > 0 ? exp(-logit) / (1 + exp(-logit)) : 1 / (1 + exp(logit)); /* 1 - b would lose digits */
    const double difference = hark_gradient_of_weight(at, row, i) - worth;
    of->gradients[i] = of->weights[i] * rest * difference;
    worth += of->extra[i] * difference;
  }
}

static const gradient_rule rule = {.differentiate = differentiate};

static void forward_head(void *data, int64_t index, int worker) {
  const gradient_task *task = data;
  const hark_attention_call *run = task->run;
  const hark_attention_args *args = run->args;
  const int64_t heads = run->plan->desc.heads, value_dim = run->plan->desc.value_dim;
  const dense_head at = hark_dense_head(run, task->gates, index / heads, index % heads);
  const gradient_row of = hark_gradient_row(task, worker);
  for (int64_t row = 0; row < at.sequence->query_count; row++) {
    const double left = break_stick(&at, row, &of);
    for (int64_t c = 0; c < value_dim; c++) of.sums[c] = 0;
    for (int64_t i = 0; i < at.sequence->key_count; i++) {
      const double factor = of.weights[i] == HARK_DENSE_HIDDEN ? 0 : hark_dense_dropout(&at, row, i);
      if (factor == 0) continue;
      const int64_t value = dense_key_index(&at, &args->value, i);
      for (int64_t c = 0; c < value_dim; c++) of.sums[c] += factor * of.weights[i] * dense_get(&args->value, value + c);
    }
    const int64_t out = dense_query_index(&at, &args->out, row);
    for (int64_t c = 0; c < value_dim; c++) dense_put(&args->out, out + c, of.sums[c]);
    if (args->log_sum_exp.type != HARK_NONE)
      dense_put(&args->log_sum_exp, (at.sequence->item * heads + at.head) * args->query.shape[2] + at.sequence->query_row + row, log(left));
  }
}

static hark_status forward(hark_context *context, const hark_attention_call *run) {
  gradient_task task = hark_gradient_begin(context, run, &rule);
  hark_parallel_for(context, run->sequence_count * run->plan->desc.heads, forward_head, &task);
  return HARK_OK;
}

static hark_status backward(hark_context *context, const hark_attention_call *run) {
  gradient_task task = hark_gradient_begin(context, run, &rule);
  hark_gradient_compute(context, &task);
  return HARK_OK;
}

static int print(const hark_attention_plan *plan, char *text, size_t size) {
  return snprintf(text, size, "whole rows in double, %d workers", plan->workers);
}

const hark_attention_algorithm hark_reference_stick_breaking = {
    .name = "stick-breaking by definition", .supports = supports, .sizes = sizes, .forward = forward, .backward = backward, .print = print};
