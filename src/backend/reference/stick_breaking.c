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
 * dense_backward.c. Every element of a result is written by one task. Cost: O(Lq Lk (d + dv)) per head; scratch O(Lk (d + dv)) per worker.
 */
#include <math.h>
#include <stdio.h>

#include "backend/reference/dense_entry.h"

#define HIDDEN (-1.0)
#define STICK_END 0x1p-100

static bool supports(const hark_context *context, const hark_attention_desc *desc, char *why, size_t size) {
  (void)context;
  if (desc->normalisation == HARK_NORMALISATION_STICK_BREAKING) return true;
  snprintf(why, size, "normalisation is not stick_breaking");
  return false;
}

/* Doubles per worker: weights, shares and gradients of the logits of a row, and sums of a task. */
static int64_t per_worker(const hark_attention_desc *desc) {
  const int64_t sums = desc->head_dim + desc->key_length * (desc->head_dim + desc->value_dim);
  return 3 * desc->key_length + hark_max(sums, desc->query_length + desc->key_length);
}

static hark_status sizes(hark_context *context, const hark_attention_desc *desc, int workers, hark_attention_sizes *out) {
  size_t gates, scratch, features;
  HARK_TRY(hark_size_multiply(context, (size_t)desc->batch * (size_t)desc->heads * sizeof(double),
                              desc->has_forget ? (size_t)desc->key_length : 0, &gates));
  HARK_TRY(hark_size_multiply(context, (size_t)desc->key_length, (size_t)(desc->head_dim + desc->value_dim), &features));
  HARK_TRY(hark_size_multiply(context, (size_t)workers * sizeof(double), (size_t)per_worker(desc), &scratch));
  out->saved = 0;
  HARK_TRY(hark_size_add(context, gates, scratch, &out->forward_workspace));
  out->backward_workspace = out->forward_workspace;
  return HARK_OK;
}

typedef struct stick_task {
  const hark_attention_call *run;
  double *scratch, *gates;
  int64_t extent[3]; /* of dattention_bias: separate items, heads, rows */
} stick_task;

typedef struct stick_row {
  double *weights, *shares, *gradients; /* P or HIDDEN, b, dS */
  double *sums;                         /* of the task */
} stick_row;

static stick_task begin(hark_context *context, const hark_attention_call *run) {
  stick_task task = {.run = run, .scratch = run->scratch};
  task.gates = task.scratch + per_worker(&run->plan->desc) * run->plan->workers;
  hark_dense_gates(context, run, task.gates);
  return task;
}

static stick_row row_of(const stick_task *task, int worker) {
  const hark_attention_desc *desc = &task->run->plan->desc;
  stick_row row = {.weights = task->scratch + worker * per_worker(desc)};
  row.shares = row.weights + desc->key_length;
  row.gradients = row.shares + desc->key_length;
  row.sums = row.gradients + desc->key_length;
  return row;
}

/* P and b of a row from the nearest key on; returns what is left. */
static double break_stick(const dense_head *at, int64_t row, const stick_row *of) {
  double left = 1;
  for (int64_t i = at->sequence->key_count - 1; i >= 0; i--) {
    double logit;
    of->weights[i] = HIDDEN;
    of->shares[i] = 0;
    if (left == 0 || !hark_dense_logit(at, row, i, &logit) || logit == -INFINITY) continue;
    const double power = exp(-fabs(logit)), small = power / (1 + power), large = 1 / (1 + power);
    const double rest = logit > 0 ? small : large;
    of->shares[i] = logit > 0 ? large : small;
    of->weights[i] = of->shares[i] * left;
    left *= rest;
    if (left < STICK_END) left = 0;
  }
  return left;
}

/* dout[n] . v_i times the dropout factor; a dropped value is not read. */
static double value_gradient(const dense_head *at, int64_t row, int64_t column) {
  const hark_tensor *dout = &at->args->dout, *value = &at->args->value;
  const int64_t o = dense_query_index(at, dout, row), v = dense_key_index(at, value, column);
  const double factor = hark_dense_dropout(at, row, column);
  double sum = 0;
  for (int64_t c = 0; factor != 0 && c < at->desc->value_dim; c++) sum += dense_get(dout, o + c) * dense_get(value, v + c);
  return factor * sum;
}

/* P, b and dS of a row. */
static void differentiate(const dense_head *at, int64_t row, const stick_row *of) {
  double worth = 0;
  (void)break_stick(at, row, of);
  for (int64_t i = 0; i < at->sequence->key_count; i++) {
    of->gradients[i] = 0;
    if (of->weights[i] == HIDDEN) continue;
    double logit = 0;
    (void)hark_dense_logit(at, row, i, &logit);
    const double rest = logit > 0 ? exp(-logit) / (1 + exp(-logit)) : 1 / (1 + exp(logit)); /* 1 - b would lose digits */
    const double difference = value_gradient(at, row, i) - worth;
    of->gradients[i] = of->weights[i] * rest * difference;
    worth += of->shares[i] * difference;
  }
}

static void forward_head(void *data, int64_t index, int worker) {
  const stick_task *task = data;
  const hark_attention_call *run = task->run;
  const hark_attention_args *args = run->args;
  const int64_t heads = run->plan->desc.heads, value_dim = run->plan->desc.value_dim;
  const dense_head at = hark_dense_head(run, task->gates, index / heads, index % heads);
  const stick_row of = row_of(task, worker);
  for (int64_t row = 0; row < at.sequence->query_count; row++) {
    const double left = break_stick(&at, row, &of);
    for (int64_t c = 0; c < value_dim; c++) of.sums[c] = 0;
    for (int64_t i = 0; i < at.sequence->key_count; i++) {
      const double factor = of.weights[i] == HIDDEN ? 0 : hark_dense_dropout(&at, row, i);
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
  stick_task task = begin(context, run);
  hark_parallel_for(context, run->sequence_count * run->plan->desc.heads, forward_head, &task);
  return HARK_OK;
}

static void store(const hark_tensor *gradient, int64_t index, double value, bool add) {
  dense_put(gradient, index, add ? dense_get(gradient, index) + value : value);
}

/* dq[n] = scale sum_i dS k_i. */
static void query_gradient(const dense_head *at, int64_t row, const stick_row *of) {
  const hark_attention_args *args = at->args;
  const int64_t to = dense_query_index(at, &args->dquery, row);
  for (int64_t c = 0; c < at->desc->head_dim; c++) {
    double sum = 0;
    for (int64_t i = 0; i < at->sequence->key_count; i++)
      if (of->weights[i] != HIDDEN) sum += of->gradients[i] * dense_get(&args->key, dense_key_index(at, &args->key, i) + c);
    store(&args->dquery, to + c, at->desc->scale * sum, args->accumulate & HARK_ACCUMULATE_QUERY);
  }
}

/* dk[i] += dS q_n and dv[i] += m P dout_n, of all keys, in sums [keys][d + dv]. */
static void add_to_keys(const dense_head *at, int64_t row, const stick_row *of, double *sums) {
  const hark_attention_args *args = at->args;
  const int64_t d = at->desc->head_dim, dv = at->desc->value_dim;
  const int64_t q = dense_query_index(at, &args->query, row), o = dense_query_index(at, &args->dout, row);
  for (int64_t i = 0; i < at->sequence->key_count; i++, sums += d + dv) {
    if (of->weights[i] == HIDDEN) continue;
    for (int64_t c = 0; c < d; c++) sums[c] += of->gradients[i] * dense_get(&args->query, q + c);
    const double factor = hark_dense_dropout(at, row, i);
    for (int64_t c = 0; factor != 0 && c < dv; c++) sums[d + c] += factor * of->weights[i] * dense_get(&args->dout, o + c);
  }
}

static void store_keys(const dense_head *at, const double *sums) {
  const hark_attention_args *args = at->args;
  const int64_t d = at->desc->head_dim, dv = at->desc->value_dim;
  for (int64_t i = 0; i < at->sequence->key_count; i++, sums += d + dv) {
    for (int64_t c = 0; args->dkey.type != HARK_NONE && c < d; c++)
      store(&args->dkey, dense_key_index(at, &args->dkey, i) + c, at->desc->scale * sums[c], args->accumulate & HARK_ACCUMULATE_KEY);
    for (int64_t c = 0; args->dvalue.type != HARK_NONE && c < dv; c++)
      store(&args->dvalue, dense_key_index(at, &args->dvalue, i) + c, sums[d + c], args->accumulate & HARK_ACCUMULATE_VALUE);
  }
}

/* The gradients of queries, keys and values of a key head. */
static void rows_of_key_head(void *data, int64_t index, int worker) {
  const stick_task *task = data;
  const hark_attention_desc *desc = &task->run->plan->desc;
  const int64_t group = desc->heads / desc->key_heads, sequence = index / desc->key_heads, key_head = index % desc->key_heads;
  const stick_row of = row_of(task, worker);
  const dense_head first = hark_dense_head(task->run, task->gates, sequence, key_head * group);
  for (int64_t i = 0; i < first.sequence->key_count * (desc->head_dim + desc->value_dim); i++) of.sums[i] = 0;
  for (int64_t head = key_head * group; head < (key_head + 1) * group; head++) {
    const dense_head at = hark_dense_head(task->run, task->gates, sequence, head);
    for (int64_t row = 0; row < at.sequence->query_count; row++) {
      differentiate(&at, row, &of);
      if (at.args->dquery.type != HARK_NONE) query_gradient(&at, row, &of);
      add_to_keys(&at, row, &of, of.sums);
    }
  }
  store_keys(&first, of.sums);
}

/* df[t] = (1 - sigmoid(f_t)) sum over i < t <= p of dS[n,i]. No path passes the first gate. */
static void gates_of_head(void *data, int64_t index, int worker) {
  const stick_task *task = data;
  const int64_t heads = task->run->plan->desc.heads;
  const dense_head at = hark_dense_head(task->run, task->gates, index / heads, index % heads);
  const hark_tensor *forget = &at.args->forget, *dforget = &at.args->dforget;
  const int64_t keys = at.sequence->key_count;
  const stick_row of = row_of(task, worker);
  for (int64_t t = 0; t < keys; t++) of.sums[t] = 0;
  for (int64_t row = 0; row < at.sequence->query_count; row++) {
    const int64_t last = hark_min(row + at.sequence->offset, keys - 1);
    double before = 0;
    differentiate(&at, row, &of);
    for (int64_t t = 0; t <= last; t++) {
      of.sums[t] += before;
      before += of.gradients[t];
    }
  }
  for (int64_t t = 0; t < keys; t++) {
    const double slope = t > 0 ? 1 / (1 + exp(dense_get(forget, dense_gate_index(&at, forget, t)))) : 0;
    store(dforget, dense_gate_index(&at, dforget, t), t > 0 ? of.sums[t] * slope : 0, true);
  }
}

/* One row of dattention_bias in its layout in memory: s = ... + bias[b, h, n, i], each index of it 0 where it is broadcast. */
static void row_of_bias(void *data, int64_t index, int worker) {
  const stick_task *task = data;
  const hark_attention_call *run = task->run;
  const hark_tensor *gradient = &run->args->dattention_bias;
  const int64_t row = index % task->extent[2], head = index / task->extent[2] % task->extent[1];
  const int64_t item = index / (task->extent[2] * task->extent[1]), keys = run->args->key.shape[2];
  const stick_row of = row_of(task, worker);
  for (int64_t i = 0; i < keys; i++) of.sums[i] = 0;
  for (int64_t s = 0; s < run->sequence_count; s++) {
    const hark_attention_sequence *sequence = &run->sequences[s];
    if (gradient->stride[0] != 0 && sequence->item != item) continue;
    for (int64_t h = 0; h < run->plan->desc.heads; h++) {
      if (gradient->stride[1] != 0 && h != head) continue;
      const dense_head at = hark_dense_head(run, task->gates, s, h);
      for (int64_t n = 0; n < sequence->query_count; n++) {
        if (gradient->stride[2] != 0 && sequence->query_row + n != row) continue;
        differentiate(&at, n, &of);
        for (int64_t i = 0; i < sequence->key_count; i++) of.sums[sequence->key_row + i] += of.gradients[i];
      }
    }
  }
  const int64_t to = item * gradient->stride[0] + head * gradient->stride[1] + row * gradient->stride[2];
  double total = 0;
  for (int64_t i = 0; i < keys; i++) {
    total += of.sums[i];
    if (gradient->stride[3] != 0) store(gradient, to + i * gradient->stride[3], of.sums[i], true);
  }
  if (gradient->stride[3] == 0) store(gradient, to, total, true);
}

/* Distances of a table that a task sums. */
static int64_t block_of(const hark_attention_desc *desc) { return desc->query_length + desc->key_length; }

/* dlogG[t] = sum over p - i = t of dS, for a block of distances of one head's table, or of that of all heads. */
static void block_of_kernel(void *data, int64_t index, int worker) {
  const stick_task *task = data;
  const hark_attention_call *run = task->run;
  const hark_tensor *gradient = &run->args->dlog_kernel;
  const int64_t block = block_of(&run->plan->desc), blocks = hark_ceil_div(gradient->shape[1], block), table = index / blocks;
  const int64_t begin = index % blocks * block, end = hark_min(gradient->shape[1], begin + block);
  const stick_row of = row_of(task, worker);
  for (int64_t t = begin; t < end; t++) of.sums[t - begin] = 0;
  for (int64_t s = 0; s < run->sequence_count; s++)
    for (int64_t h = 0; h < run->plan->desc.heads; h++) {
      if (gradient->stride[0] != 0 && h != table) continue;
      const dense_head at = hark_dense_head(run, task->gates, s, h);
      for (int64_t row = 0; row < at.sequence->query_count; row++) {
        differentiate(&at, row, &of);
        for (int64_t i = 0; i < at.sequence->key_count; i++) {
          const int64_t distance = row + at.sequence->offset - i;
          if (distance >= begin && distance < end) of.sums[distance - begin] += of.gradients[i];
        }
      }
    }
  for (int64_t t = begin; t < end; t++) store(gradient, table * gradient->stride[0] + t, of.sums[t - begin], true);
}

static hark_status backward(hark_context *context, const hark_attention_call *run) {
  const hark_attention_desc *desc = &run->plan->desc;
  const hark_attention_args *args = run->args;
  stick_task task = begin(context, run);
  if (args->dquery.type != HARK_NONE || args->dkey.type != HARK_NONE || args->dvalue.type != HARK_NONE)
    hark_parallel_for(context, run->sequence_count * desc->key_heads, rows_of_key_head, &task);
  if (args->dforget.type != HARK_NONE) hark_parallel_for(context, run->sequence_count * desc->heads, gates_of_head, &task);
  if (args->dattention_bias.type != HARK_NONE) {
    for (int i = 0; i < 3; i++) task.extent[i] = args->dattention_bias.stride[i] == 0 ? 1 : args->dattention_bias.shape[i];
    hark_parallel_for(context, task.extent[0] * task.extent[1] * task.extent[2], row_of_bias, &task);
  }
  if (args->dlog_kernel.type != HARK_NONE) {
    const int64_t tables = args->dlog_kernel.stride[0] == 0 ? 1 : args->dlog_kernel.shape[0];
    hark_parallel_for(context, tables * hark_ceil_div(args->dlog_kernel.shape[1], block_of(desc)), block_of_kernel, &task);
  }
  return HARK_OK;
}

static int print(const hark_attention_plan *plan, char *text, size_t size) {
  return snprintf(text, size, "whole rows in double, %d workers", plan->workers);
}

const hark_attention_algorithm hark_reference_stick_breaking = {
    .name = "stick-breaking by definition", .supports = supports, .sizes = sizes, .forward = forward, .backward = backward, .print = print};
