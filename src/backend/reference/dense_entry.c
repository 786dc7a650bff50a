/* dense_entry.c - see dense_entry.h. Cost of an entry: O(d). Sources: OPERATORS section 1; forget gate: FoX, arXiv 2503.02130, eq. 4. */
#include "backend/reference/dense_entry.h"

#include <math.h>

#include "backend/kernel_table.h"

dense_head hark_dense_head(const hark_attention_call *run, const double *gates, int64_t sequence, int64_t head) {
  const hark_attention_desc *desc = &run->plan->desc;
  dense_head at = {.desc = desc,
                   .args = run->args,
                   .sequence = &run->sequences[sequence],
                   .head = head,
                   .key_head = head / (desc->heads / desc->key_heads)};
  if (desc->has_forget) at.gates = gates + (at.sequence->item * desc->heads + head) * run->args->key.shape[2] + at.sequence->key_row;
  return at;
}

/* log sigmoid(f), without overflow on either side. */
static double log_sigmoid(double f) { return f < 0 ? f - log1p(exp(f)) : -log1p(exp(-f)); }

typedef struct gates_task {
  const hark_attention_call *run;
  double *gates;
} gates_task;

static void fill_gates(void *data, int64_t index, int worker) {
  (void)worker;
  const gates_task *task = data;
  const int64_t heads = task->run->plan->desc.heads, sequence = index / heads, head = index % heads;
  const dense_head at = hark_dense_head(task->run, task->gates, sequence, head);
  double *gates = task->gates + (at.gates - task->gates);
  double sum = 0;
  for (int64_t t = 0; t < at.sequence->key_count; t++) {
    if (t > 0)
      sum += log_sigmoid(dense_get(&at.args->forget, dense_gate_index(&at, &at.args->forget, t))); /* no path passes the first gate */
    gates[t] = sum;
  }
}

void hark_dense_gates(hark_context *context, const hark_attention_call *run, double *gates) {
  gates_task task = {run, gates};
  if (run->plan->desc.has_forget) hark_parallel_for(context, run->sequence_count * run->plan->desc.heads, fill_gates, &task);
}

void hark_dense_columns(const dense_head *at, int64_t row, int64_t *first, int64_t *end) {
  const int64_t position = row + at->sequence->offset;
  *first = 0;
  *end = at->sequence->key_count;
  if (at->desc->causal) *end = hark_min(*end, position + (at->desc->normalisation == HARK_NORMALISATION_STICK_BREAKING ? 0 : 1));
  if (at->desc->structure == HARK_STRUCTURE_WINDOW) {
    *first = hark_max(*first, position - at->desc->window);
    *end = hark_min(*end, position + at->desc->window + 1);
  }
}

double hark_dense_similarity(const dense_head *at, int64_t row, int64_t column) {
  const hark_tensor *query = &at->args->query, *key = &at->args->key;
  const int64_t q = dense_query_index(at, query, row), k = dense_key_index(at, key, column);
  double sum = 0;
  if (at->desc->kernel == HARK_KERNEL_RBF) {
    for (int64_t c = 0; c < at->desc->head_dim; c++) {
      const double difference = dense_get(query, q + c) - dense_get(key, k + c);
      sum += difference * difference;
    }
    return -sum / (2 * at->desc->sigma * at->desc->sigma);
  }
  for (int64_t c = 0; c < at->desc->head_dim; c++) sum += dense_get(query, q + c) * dense_get(key, k + c);
  return at->desc->scale * sum;
}

bool hark_dense_logit(const dense_head *at, int64_t row, int64_t column, double *logit) {
  const hark_attention_args *args = at->args;
  const int64_t position = row + at->sequence->offset;
  int64_t first, end;
  hark_dense_columns(at, row, &first, &end);
  if (column < first || column >= end) return false;
  if (args->mask.type != HARK_NONE && ((const uint8_t *)args->mask.data)[dense_entry_index(at, &args->mask, row, column)] == 0)
    return false;
  double terms = 0;
  if (args->attention_bias.type != HARK_NONE)
    terms += dense_get(&args->attention_bias, dense_entry_index(at, &args->attention_bias, row, column));
  if (args->log_kernel.type != HARK_NONE) {
    const int64_t entry = hark_kernel_column(at->desc, args->log_kernel.shape[1], position - column);
    terms += dense_get(&args->log_kernel, at->head * args->log_kernel.stride[0] + entry);
  }
  if (terms == -INFINITY) return false; /* before the key is read, which may hold anything */
  if (at->gates != NULL) terms += at->gates[hark_min(position, at->sequence->key_count - 1)] - at->gates[column];
  *logit = hark_dense_similarity(at, row, column) + terms;
  return true;
}

double hark_dense_dropout(const dense_head *at, int64_t row, int64_t column) {
  if (at->desc->dropout == 0) return 1;
  const uint64_t n = (uint64_t)(at->sequence->query_row + row), i = (uint64_t)(at->sequence->key_row + column);
  const uint64_t head = (uint64_t)(at->sequence->item * at->desc->heads + at->head);
  uint32_t words[4];
  hark_random_words(&at->args->dropout, (((head << 23) + n) << 21) + i / 4, words);
  return words[i % 4] >= hark_random_threshold(at->desc->dropout) ? 1 / (1 - at->desc->dropout) : 0;
}
