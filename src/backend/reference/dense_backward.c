/* dense_backward.c - gradients of attention by their definition, in double.
 *
 * With forward  s -> P = exp(s - lse) -> out[n] = sum_i m P v_i  (m: dropout factor) and g[n,i] = m[n,i] dout[n] . v_i,
 *
 *     D[n]     = sum_i P[n,i] g[n,i]                          mean gradient of the row
 *     dS[n,i]  = P[n,i] (g[n,i] - D[n])                       d loss / d s[n,i]
 *     dv[i]    = sum_n m P dout[n]
 *     dq[n]    = scale sum_i dS k_i              (rbf: sum_i dS (k_i - q_n) / sigma^2)
 *     dk[i]    = scale sum_n dS q_n              (rbf: sum_n dS (q_n - k_i) / sigma^2)
 *     dbias    = dS summed over the broadcast dimensions of bias
 *     dlogG[delta] = sum over |p - i| = delta of dS
 *     df[t]    = (1 - sigmoid(f_t)) sum over i < t <= p of dS[n,i]
 *
 * P (as e^(s - highest) / sum) and D are recomputed in double, so that f32 results are exact to their last rounding, whatever out and
 * log_sum_exp contain. Every element of a result is written by one task: the number of threads changes no bit. Cost: five products' O(Lq Lk
 * (d + dv)) per head for queries, keys and values, as much again for a bias and for a log-kernel.
 */
#include <math.h>

#include "backend/reference/dense.h"

typedef struct backward_task {
  const hark_attention_call *run;
  dense_memory memory;
  int64_t extent[3]; /* of dattention_bias: separate items, heads, rows */
} backward_task;

static void store(const hark_tensor *gradient, int64_t index, double value, bool add) {
  dense_put(gradient, index, add ? dense_get(gradient, index) + value : value);
}

/* dout[n] . v_i */
static double value_gradient(const dense_head *at, int64_t row, int64_t column) {
  const hark_tensor *dout = &at->args->dout, *value = &at->args->value;
  const int64_t o = dense_query_index(at, dout, row), v = dense_key_index(at, value, column);
  double sum = 0;
  for (int64_t c = 0; c < at->desc->value_dim; c++) sum += dense_get(dout, o + c) * dense_get(value, v + c);
  return sum;
}

/* g = m dout . v; a dropped value is not read. */
static double weight_gradient(const dense_head *at, int64_t row, int64_t column) {
  const double factor = hark_dense_dropout(at, row, column);
  return factor == 0 ? 0 : factor * value_gradient(at, row, column);
}

static int64_t row_index(const dense_head *at, int64_t row) {
  return (at->sequence->item * at->desc->heads + at->head) * at->args->query.shape[2] + at->sequence->query_row + row;
}

/* P and dS of one entry from the row's statistics; false if it is hidden. */
static bool entry(const backward_task *task, const dense_head *at, int64_t row, int64_t column, double *weight, double *gradient) {
  double logit;
  if (!hark_dense_logit(at, row, column, &logit)) return false;
  const int64_t index = row_index(at, row);
  const dense_row of = {task->memory.highest[index], task->memory.sum[index]};
  *weight = dense_weight(&of, logit);
  if (*weight == HARK_DENSE_HIDDEN) return false;
  *gradient = *weight * (weight_gradient(at, row, column) - task->memory.mean_gradient[index]);
  return true;
}

/* dquery of a row: s = scale q . k. `weights` marks hidden entries. */
static void query_gradient(const dense_head *at, int64_t row, const double *weights, const double *dlogits, double *sums) {
  const hark_attention_args *args = at->args;
  const int64_t head_dim = at->desc->head_dim, q = dense_query_index(at, &args->query, row);
  for (int64_t c = 0; c < head_dim; c++) sums[c] = 0;
  for (int64_t i = 0; i < at->sequence->key_count; i++) {
    if (weights[i] == HARK_DENSE_HIDDEN) continue;
    const int64_t k = dense_key_index(at, &args->key, i);
    for (int64_t c = 0; c < head_dim; c++) {
      const double minus = at->desc->kernel == HARK_KERNEL_RBF ? dense_get(&args->query, q + c) : 0;
      sums[c] += dlogits[i] * (dense_get(&args->key, k + c) - minus);
    }
  }
  const int64_t dq = dense_query_index(at, &args->dquery, row);
  for (int64_t c = 0; c < head_dim; c++) store(&args->dquery, dq + c, at->desc->scale * sums[c], args->accumulate & HARK_ACCUMULATE_QUERY);
}

/* Adds to passed[t] = sum of dS over entries whose path from key to query passes gate t: i < t <= min(p, Lk - 1). */
static void pass_gates(const dense_head *at, int64_t row, const double *dlogits, double *passed) {
  const int64_t last = hark_min(row + at->sequence->offset, at->sequence->key_count - 1);
  double before = 0;
  for (int64_t t = 0; t <= last; t++) {
    passed[t] += before;
    before += dlogits[t];
  }
}

/* Statistics of every row of a head, and the gradients that are summed by rows: dquery and dforget. */
static void rows_of_head(void *data, int64_t index, int worker) {
  const backward_task *task = data;
  const hark_attention_args *args = task->run->args;
  const int64_t heads = task->run->plan->desc.heads;
  const dense_head at = hark_dense_head(task->run, task->memory.gates, index / heads, index % heads);
  const int64_t keys = at.sequence->key_count;
  double *weights = task->memory.scratch + worker * task->memory.per_worker;
  double *dlogits = weights + keys, *passed = dlogits + keys, *sums = passed + keys;
  for (int64_t t = 0; t < keys; t++) passed[t] = 0;
  for (int64_t row = 0; row < at.sequence->query_count; row++) {
    const dense_row of = hark_dense_weights(&at, row, weights);
    double mean = 0;
    for (int64_t i = 0; i < keys; i++) {
      const bool hidden = weights[i] == HARK_DENSE_HIDDEN;
      dlogits[i] = hidden ? 0 : weight_gradient(&at, row, i);
      if (!hidden) mean += weights[i] * dlogits[i];
    }
    for (int64_t i = 0; i < keys; i++)
      if (weights[i] != HARK_DENSE_HIDDEN) dlogits[i] = weights[i] * (dlogits[i] - mean);
    task->memory.highest[row_index(&at, row)] = of.highest;
    task->memory.sum[row_index(&at, row)] = of.sum;
    task->memory.mean_gradient[row_index(&at, row)] = mean;
    if (args->dquery.type != HARK_NONE) query_gradient(&at, row, weights, dlogits, sums);
    if (args->dforget.type != HARK_NONE) pass_gates(&at, row, dlogits, passed);
  }
  if (args->dforget.type == HARK_NONE) return;
  /* logit += log sigmoid(f_t) for every gate that the path passes; the derivative is 1 - sigmoid(f_t) = 1 / (1 + e^f). */
  for (int64_t t = 0; t < keys; t++) {
    const double slope = 1 / (1 + exp(dense_get(&args->forget, dense_gate_index(&at, &args->forget, t))));
    const double gradient = t > 0 ? passed[t] * slope : 0; /* no path passes the first gate, which may hold anything */
    store(&args->dforget, dense_gate_index(&at, &args->dforget, t), gradient, true);
  }
}

/* dkey and dvalue of a key head: sums over its query heads and all rows. */
static void columns_of_key_head(void *data, int64_t index, int worker) {
  const backward_task *task = data;
  const hark_attention_desc *desc = &task->run->plan->desc;
  const hark_attention_args *args = task->run->args;
  const int64_t group = desc->heads / desc->key_heads, sequence = index / desc->key_heads, key_head = index % desc->key_heads;
  const int64_t head_dim = desc->head_dim, value_dim = desc->value_dim;
  const dense_head first = hark_dense_head(task->run, task->memory.gates, sequence, key_head * group);
  double *dk = task->memory.scratch + worker * task->memory.per_worker, *dv = dk + head_dim;
  for (int64_t i = 0; i < first.sequence->key_count; i++) {
    const int64_t k = dense_key_index(&first, &args->key, i);
    for (int64_t c = 0; c < head_dim; c++) dk[c] = 0;
    for (int64_t c = 0; c < value_dim; c++) dv[c] = 0;
    for (int64_t head = key_head * group; head < (key_head + 1) * group; head++) {
      const dense_head at = hark_dense_head(task->run, task->memory.gates, sequence, head);
      for (int64_t row = 0; row < at.sequence->query_count; row++) {
        double weight, dlogit;
        if (!entry(task, &at, row, i, &weight, &dlogit)) continue;
        const int64_t q = dense_query_index(&at, &args->query, row), o = dense_query_index(&at, &args->dout, row);
        for (int64_t c = 0; c < head_dim; c++) { /* s = scale q . k, or -|q - k|^2 scale / 2 */
          const double minus = desc->kernel == HARK_KERNEL_RBF ? dense_get(&args->key, k + c) : 0;
          dk[c] += dlogit * (dense_get(&args->query, q + c) - minus);
        }
        const double factor = hark_dense_dropout(&at, row, i);
        if (factor == 0) continue;
        for (int64_t c = 0; c < value_dim; c++) dv[c] += factor * weight * dense_get(&args->dout, o + c); /* out = sum m P v */
      }
    }
    if (args->dkey.type != HARK_NONE) {
      const int64_t to = dense_key_index(&first, &args->dkey, i);
      for (int64_t c = 0; c < head_dim; c++) store(&args->dkey, to + c, desc->scale * dk[c], args->accumulate & HARK_ACCUMULATE_KEY);
    }
    if (args->dvalue.type != HARK_NONE) {
      const int64_t to = dense_key_index(&first, &args->dvalue, i);
      for (int64_t c = 0; c < value_dim; c++) store(&args->dvalue, to + c, dv[c], args->accumulate & HARK_ACCUMULATE_VALUE);
    }
  }
}

/* One row of dattention_bias in its layout in memory: s = ... + bias[b, h, n, i], each index of it 0 where it is broadcast. */
static void row_of_bias(void *data, int64_t index, int worker) {
  const backward_task *task = data;
  const hark_attention_call *run = task->run;
  const hark_tensor *gradient = &run->args->dattention_bias;
  const int64_t row = index % task->extent[2], head = index / task->extent[2] % task->extent[1];
  const int64_t item = index / (task->extent[2] * task->extent[1]);
  const int64_t keys = run->args->key.shape[2];
  double *sums = task->memory.scratch + worker * task->memory.per_worker;
  for (int64_t i = 0; i < keys; i++) sums[i] = 0;
  for (int64_t s = 0; s < run->sequence_count; s++) {
    const hark_attention_sequence *sequence = &run->sequences[s];
    if (gradient->stride[0] != 0 && sequence->item != item) continue;
    for (int64_t h = 0; h < run->plan->desc.heads; h++) {
      if (gradient->stride[1] != 0 && h != head) continue;
      const dense_head at = hark_dense_head(run, task->memory.gates, s, h);
      for (int64_t n = 0; n < sequence->query_count; n++) {
        if (gradient->stride[2] != 0 && sequence->query_row + n != row) continue;
        double weight, dlogit;
        for (int64_t i = 0; i < sequence->key_count; i++)
          if (entry(task, &at, n, i, &weight, &dlogit)) sums[sequence->key_row + i] += dlogit;
      }
    }
  }
  const int64_t to = item * gradient->stride[0] + head * gradient->stride[1] + row * gradient->stride[2];
  double total = 0;
  for (int64_t i = 0; i < keys; i++) {
    total += sums[i];
    if (gradient->stride[3] != 0) store(gradient, to + i * gradient->stride[3], sums[i], true);
  }
  if (gradient->stride[3] == 0) store(gradient, to, total, true);
}

/* One entry of dlog_kernel, for one head or for all heads that share the table: s = ... + log G(|p - i|), or log G(p - i). */
static void entry_of_kernel(void *data, int64_t index, int worker) {
  (void)worker;
  const backward_task *task = data;
  const hark_attention_call *run = task->run;
  const hark_tensor *gradient = &run->args->dlog_kernel;
  const int64_t columns = gradient->shape[1], table = index / columns, column = index % columns;
  const bool directed = run->plan->desc.directed_kernel != 0;
  const int64_t distance = directed ? column - columns / 2 : column; /* with its sign if directed */
  double sum = 0;
  for (int64_t s = 0; s < run->sequence_count; s++)
    for (int64_t h = 0; h < run->plan->desc.heads; h++) {
      if (gradient->stride[0] != 0 && h != table) continue;
      const dense_head at = hark_dense_head(run, task->memory.gates, s, h);
      for (int64_t row = 0; row < at.sequence->query_count; row++) {
        const int64_t position = row + at.sequence->offset;
        double weight, dlogit;
        if (entry(task, &at, row, position - distance, &weight, &dlogit)) sum += dlogit;
        if (!directed && distance > 0 && entry(task, &at, row, position + distance, &weight, &dlogit)) sum += dlogit;
      }
    }
  store(gradient, table * gradient->stride[0] + column, sum, true);
}

hark_status hark_dense_backward(hark_context *context, const hark_attention_call *run) {
  const hark_attention_desc *desc = &run->plan->desc;
  const hark_attention_args *args = run->args;
  backward_task task = {.run = run, .memory = hark_dense_memory(run)};
  hark_dense_gates(context, run, task.memory.gates);
  hark_parallel_for(context, run->sequence_count * desc->heads, rows_of_head, &task);
  if (args->dkey.type != HARK_NONE || args->dvalue.type != HARK_NONE)
    hark_parallel_for(context, run->sequence_count * desc->key_heads, columns_of_key_head, &task);
  if (args->dattention_bias.type != HARK_NONE) {
    const hark_tensor *gradient = &args->dattention_bias;
    for (int i = 0; i < 3; i++) task.extent[i] = gradient->stride[i] == 0 ? 1 : gradient->shape[i];
    hark_parallel_for(context, task.extent[0] * task.extent[1] * task.extent[2], row_of_bias, &task);
  }
  if (args->dlog_kernel.type != HARK_NONE) {
    const int64_t tables = args->dlog_kernel.stride[0] == 0 ? 1 : args->dlog_kernel.shape[0];
    hark_parallel_for(context, tables * args->dlog_kernel.shape[1], entry_of_kernel, &task);
  }
  return HARK_OK;
}
