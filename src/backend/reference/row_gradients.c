/* row_gradients.c - see row_gradients.h. Cost: O(Lq Lk (d + dv)) per head for queries, keys and values, and as much for each other
 * gradient; scratch O(Lk (d + dv)) per worker.
 */
#include "backend/reference/row_gradients.h"

#include <math.h>

int64_t hark_gradient_scratch(const hark_attention_desc *desc) {
  const int64_t sums = desc->head_dim + (desc->key_length + 1) * (desc->head_dim + desc->value_dim);
  return 4 * desc->key_length + hark_max(sums, desc->query_length + desc->key_length);
}

hark_status hark_gradient_sizes(hark_context *context, const hark_attention_desc *desc, int workers, size_t *bytes) {
  size_t gates, scratch, features;
  HARK_TRY(hark_size_multiply(context, (size_t)desc->batch * (size_t)desc->heads * sizeof(double),
                              desc->has_forget ? (size_t)desc->key_length : 0, &gates));
  HARK_TRY(hark_size_multiply(context, (size_t)desc->key_length + 1, (size_t)(desc->head_dim + desc->value_dim), &features));
  HARK_TRY(hark_size_multiply(context, (size_t)workers * sizeof(double), (size_t)hark_gradient_scratch(desc), &scratch));
  return hark_size_add(context, gates, scratch, bytes);
}

gradient_task hark_gradient_begin(hark_context *context, const hark_attention_call *run, const gradient_rule *rule) {
  gradient_task task = {.run = run, .rule = rule, .scratch = run->scratch};
  task.gates = task.scratch + hark_gradient_scratch(&run->plan->desc) * run->plan->workers;
  hark_dense_gates(context, run, task.gates);
  return task;
}

gradient_row hark_gradient_row(const gradient_task *task, int worker) {
  const hark_attention_desc *desc = &task->run->plan->desc;
  gradient_row row = {.weights = task->scratch + worker * hark_gradient_scratch(desc)};
  row.extra = row.weights + desc->key_length;
  row.gradients = row.extra + desc->key_length;
  row.products = task->rule->has_paths ? row.gradients + desc->key_length : row.gradients;
  row.sums = row.gradients + 2 * desc->key_length;
  return row;
}

double hark_gradient_of_weight(const dense_head *at, int64_t row, int64_t column) {
  const hark_tensor *dout = &at->args->dout, *value = &at->args->value;
  const int64_t o = dense_query_index(at, dout, row), v = dense_key_index(at, value, column);
  const double factor = hark_dense_dropout(at, row, column);
  double sum = 0;
  for (int64_t c = 0; factor != 0 && c < at->desc->value_dim; c++) sum += dense_get(dout, o + c) * dense_get(value, v + c);
  return factor * sum;
}

/* dq[n] = scale sum_i dC k_i. */
static void query_gradient(const gradient_rule *rule, const dense_head *at, int64_t row, const gradient_row *of) {
  const hark_attention_args *args = at->args;
  const int64_t to = dense_query_index(at, &args->dquery, row);
  for (int64_t c = 0; c < at->desc->head_dim; c++) {
    double sum = 0;
    for (int64_t i = 0; i < at->sequence->key_count; i++)
      if (of->weights[i] != HARK_DENSE_HIDDEN) sum += of->products[i] * dense_get(&args->key, dense_key_index(at, &args->key, i) + c);
    if (rule->add_to_query != NULL) sum += rule->add_to_query(at, row, of, c);
    hark_gradient_store(&args->dquery, to + c, at->desc->scale * sum, args->accumulate & HARK_ACCUMULATE_QUERY);
  }
}

/* dk[i] += dC q_n and dv[i] += m P dout_n, of all keys, in sums [keys][d + dv]. */
static void add_to_keys(const dense_head *at, int64_t row, const gradient_row *of, double *sums) {
  const hark_attention_args *args = at->args;
  const int64_t d = at->desc->head_dim, dv = at->desc->value_dim;
  const int64_t q = dense_query_index(at, &args->query, row), o = dense_query_index(at, &args->dout, row);
  for (int64_t i = 0; i < at->sequence->key_count; i++, sums += d + dv) {
    if (of->weights[i] == HARK_DENSE_HIDDEN) continue;
    for (int64_t c = 0; c < d; c++) sums[c] += of->products[i] * dense_get(&args->query, q + c);
    const double factor = hark_dense_dropout(at, row, i);
    for (int64_t c = 0; factor != 0 && c < dv; c++) sums[d + c] += factor * of->weights[i] * dense_get(&args->dout, o + c);
  }
}

static void store_keys(const dense_head *at, const double *sums) {
  const hark_attention_args *args = at->args;
  const int64_t d = at->desc->head_dim, dv = at->desc->value_dim;
  for (int64_t i = 0; i < at->sequence->key_count; i++, sums += d + dv) {
    for (int64_t c = 0; args->dkey.type != HARK_NONE && c < d; c++)
      hark_gradient_store(&args->dkey, dense_key_index(at, &args->dkey, i) + c, at->desc->scale * sums[c],
                          args->accumulate & HARK_ACCUMULATE_KEY);
    for (int64_t c = 0; args->dvalue.type != HARK_NONE && c < dv; c++)
      hark_gradient_store(&args->dvalue, dense_key_index(at, &args->dvalue, i) + c, sums[d + c], args->accumulate & HARK_ACCUMULATE_VALUE);
  }
}

/* The gradients of queries, keys and values of a key head. */
static void rows_of_key_head(void *data, int64_t index, int worker) {
  const gradient_task *task = data;
  const hark_attention_desc *desc = &task->run->plan->desc;
  const int64_t group = desc->heads / desc->key_heads, sequence = index / desc->key_heads, key_head = index % desc->key_heads;
  const gradient_row of = hark_gradient_row(task, worker);
  const dense_head first = hark_dense_head(task->run, task->gates, sequence, key_head * group);
  for (int64_t i = 0; i < first.sequence->key_count * (desc->head_dim + desc->value_dim); i++) of.sums[i] = 0;
  for (int64_t head = key_head * group; head < (key_head + 1) * group; head++) {
    const dense_head at = hark_dense_head(task->run, task->gates, sequence, head);
    for (int64_t row = 0; row < at.sequence->query_count; row++) {
      task->rule->differentiate(&at, row, &of);
      if (at.args->dquery.type != HARK_NONE) query_gradient(task->rule, &at, row, &of);
      add_to_keys(&at, row, &of, of.sums);
    }
  }
  store_keys(&first, of.sums);
}

/* df[t] = (1 - sigmoid(f_t)) sum over i < t <= p of dS[n,i]. No path passes the first gate. */
static void gates_of_head(void *data, int64_t index, int worker) {
  const gradient_task *task = data;
  const int64_t heads = task->run->plan->desc.heads;
  const dense_head at = hark_dense_head(task->run, task->gates, index / heads, index % heads);
  const hark_tensor *forget = &at.args->forget, *dforget = &at.args->dforget;
  const int64_t keys = at.sequence->key_count;
  const gradient_row of = hark_gradient_row(task, worker);
  for (int64_t t = 0; t < keys; t++) of.sums[t] = 0;
  for (int64_t row = 0; row < at.sequence->query_count; row++) {
    const int64_t last = hark_min(row + at.sequence->offset, keys - 1);
    double before = 0;
    task->rule->differentiate(&at, row, &of);
    for (int64_t t = 0; t <= last; t++) {
      of.sums[t] += before;
      before += of.gradients[t];
    }
  }
  for (int64_t t = 0; t < keys; t++) {
    const double slope = t > 0 ? 1 / (1 + exp(dense_get(forget, dense_gate_index(&at, forget, t)))) : 0;
    hark_gradient_store(dforget, dense_gate_index(&at, dforget, t), t > 0 ? of.sums[t] * slope : 0, true);
  }
}

/* One row of dattention_bias in its layout in memory: s = ... + bias[b, h, n, i], each index of it 0 where it is broadcast. */
static void row_of_bias(void *data, int64_t index, int worker) {
  const gradient_task *task = data;
  const hark_attention_call *run = task->run;
  const hark_tensor *gradient = &run->args->dattention_bias;
  const int64_t row = index % task->extent[2], head = index / task->extent[2] % task->extent[1];
  const int64_t item = index / (task->extent[2] * task->extent[1]), keys = run->args->key.shape[2];
  const gradient_row of = hark_gradient_row(task, worker);
  for (int64_t i = 0; i < keys; i++) of.sums[i] = 0;
  for (int64_t s = 0; s < run->sequence_count; s++) {
    const hark_attention_sequence *sequence = &run->sequences[s];
    if (gradient->stride[0] != 0 && sequence->item != item) continue;
    for (int64_t h = 0; h < run->plan->desc.heads; h++) {
      if (gradient->stride[1] != 0 && h != head) continue;
      const dense_head at = hark_dense_head(run, task->gates, s, h);
      for (int64_t n = 0; n < sequence->query_count; n++) {
        if (gradient->stride[2] != 0 && sequence->query_row + n != row) continue;
        task->rule->differentiate(&at, n, &of);
        for (int64_t i = 0; i < sequence->key_count; i++) of.sums[sequence->key_row + i] += of.gradients[i];
      }
    }
  }
  const int64_t to = item * gradient->stride[0] + head * gradient->stride[1] + row * gradient->stride[2];
  double total = 0;
  for (int64_t i = 0; i < keys; i++) {
    total += of.sums[i];
    if (gradient->stride[3] != 0) hark_gradient_store(gradient, to + i * gradient->stride[3], of.sums[i], true);
  }
  if (gradient->stride[3] == 0) hark_gradient_store(gradient, to, total, true);
}

/* Distances of a table that a task sums. */
static int64_t block_of(const hark_attention_desc *desc) { return desc->query_length + desc->key_length; }

/* dlogG[t] = sum over p - i = t of dS, for a block of distances of one head's table, or of that of all heads. */
static void block_of_kernel(void *data, int64_t index, int worker) {
  const gradient_task *task = data;
  const hark_attention_call *run = task->run;
  const hark_tensor *gradient = &run->args->dlog_kernel;
  const int64_t block = block_of(&run->plan->desc), blocks = hark_ceil_div(gradient->shape[1], block), table = index / blocks;
  const int64_t begin = index % blocks * block, end = hark_min(gradient->shape[1], begin + block);
  const gradient_row of = hark_gradient_row(task, worker);
  for (int64_t t = begin; t < end; t++) of.sums[t - begin] = 0;
  for (int64_t s = 0; s < run->sequence_count; s++)
    for (int64_t h = 0; h < run->plan->desc.heads; h++) {
      if (gradient->stride[0] != 0 && h != table) continue;
      const dense_head at = hark_dense_head(run, task->gates, s, h);
      for (int64_t row = 0; row < at.sequence->query_count; row++) {
        task->rule->differentiate(&at, row, &of);
        for (int64_t i = 0; i < at.sequence->key_count; i++) {
          const int64_t distance = row + at.sequence->offset - i;
          if (distance >= begin && distance < end) of.sums[distance - begin] += of.gradients[i];
        }
      }
    }
  for (int64_t t = begin; t < end; t++) hark_gradient_store(gradient, table * gradient->stride[0] + t, of.sums[t - begin], true);
}

void hark_gradient_compute(hark_context *context, gradient_task *task) {
  const hark_attention_call *run = task->run;
  const hark_attention_desc *desc = &run->plan->desc;
  const hark_attention_args *args = run->args;
  if (args->dquery.type != HARK_NONE || args->dkey.type != HARK_NONE || args->dvalue.type != HARK_NONE)
    hark_parallel_for(context, run->sequence_count * desc->key_heads, rows_of_key_head, task);
  if (args->dforget.type != HARK_NONE) hark_parallel_for(context, run->sequence_count * desc->heads, gates_of_head, task);
  if (args->dattention_bias.type != HARK_NONE) {
    for (int i = 0; i < 3; i++) task->extent[i] = args->dattention_bias.stride[i] == 0 ? 1 : args->dattention_bias.shape[i];
    hark_parallel_for(context, task->extent[0] * task->extent[1] * task->extent[2], row_of_bias, task);
  }
  if (args->dlog_kernel.type != HARK_NONE) {
    const int64_t tables = args->dlog_kernel.stride[0] == 0 ? 1 : args->dlog_kernel.shape[0];
    hark_parallel_for(context, tables * hark_ceil_div(args->dlog_kernel.shape[1], block_of(desc)), block_of_kernel, task);
  }
}
