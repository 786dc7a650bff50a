/* compressed_backward.c - gradients of compressed attention by their definition, in double, row by row.
 *
 *     P = e^(s - lse[n]),   D[n] = dout[n] . out[n],   dS = P (F dout[n] . v - D[n])
 *
 *     dv += F P dout[n]     dq[n] += scale dS k     dk += scale dS q[n]
 *
 * With a table of log G, dlog G(n - j) += dS for a key, and dS times the part of G(n - j) in the sum of G over the slot for its rows.
 *
 * A slot gives each of its unmasked rows an n-th part of its gradients, a global slot too. Which slots a query selects has no gradient.
 * Log-sum-exp and out are computed again, in double. Every sum is made by one task in one order.
 */
#include <math.h>
#include <string.h>

#include "backend/reference/compressed.h"

/* Adds `factor` x to the unmasked rows of a slot. */
static void give_slot(const chunk_head *t, int64_t slot, const double *key, const double *value, double factor) {
  const int64_t d = t->at.desc->head_dim, dv = t->at.desc->value_dim, end = hark_chunk_slot_row(&t->chunks, slot + 1);
  for (int64_t row = hark_chunk_slot_row(&t->chunks, slot); row < end; row++) {
    if (!hark_compressed_sees(t, row)) continue;
    for (int64_t c = 0; c < d; c++) t->drow_key[row * d + c] += factor * key[c];
    for (int64_t c = 0; c < dv; c++) t->drow_value[row * dv + c] += factor * value[c];
  }
}

/* The rows of a global slot are those of its slots before the candidates of the current chunk. */
static void give_global(const chunk_head *t, int64_t global, const double *key, const double *value) {
  int64_t from, to;
  hark_chunk_candidates(&t->chunks, t->chunk, &from, &to);
  for (int64_t slot = global; slot < from; slot += t->chunks.globals) give_slot(t, slot, key, value, 1 / t->global_count[global]);
}

/* The gradient of an entry's logit, to the distances of its rows. */
static void give_kernel(const chunk_head *t, int64_t n, const chunk_entry *entry, double gradient) {
  if (t->dkernel == NULL) return;
  if (entry->kind == CHUNK_KEY) {
    t->dkernel[n - entry->index] += gradient;
    return;
  }
  const int64_t first = hark_chunk_slot_row(&t->chunks, entry->index), end = hark_chunk_slot_row(&t->chunks, entry->index + 1);
  double sum = 0; /* 1, but for the rounding of the term */
  for (int64_t row = first; row < end; row++)
    if (hark_compressed_sees(t, row)) sum += exp(hark_compressed_log_kernel(t, n - row) - entry->term);
  if (!(sum > 0 && isfinite(sum))) sum = 1;
  for (int64_t row = first; row < end; row++)
    if (hark_compressed_sees(t, row)) t->dkernel[n - row] += gradient / sum * exp(hark_compressed_log_kernel(t, n - row) - entry->term);
}

static void entry_gradients(chunk_head *t, int64_t n, const chunk_entry *entry, double mean, double *dquery, double *dkey, double *dvalue) {
  const hark_attention_desc *desc = t->at.desc;
  const hark_attention_args *args = t->at.args;
  const int64_t d = desc->head_dim, dv = desc->value_dim, at = entry->index;
  const int64_t from = dense_query_index(&t->at, &args->dout, n), query = dense_query_index(&t->at, &args->query, n);
  const bool one = entry->kind == CHUNK_KEY;
  const int64_t key_at = one ? dense_key_index(&t->at, &args->key, at) : 0, value_at = one ? dense_key_index(&t->at, &args->value, at) : 0;
  const double *keys = entry->kind == CHUNK_SLOT ? t->slot_key : t->global_key;
  const double *values = entry->kind == CHUNK_SLOT ? t->slot_value : t->global_value;
  const double factor = hark_compressed_dropout(t, n, entry);
  double product = 0;
  for (int64_t c = 0; c < dv && factor != 0; c++)
    product += dense_get(&args->dout, from + c) * (one ? dense_get(&args->value, value_at + c) : values[at * dv + c]);
  const double of_logit = entry->weight * (factor == 0 ? -mean : factor * product - mean), gradient = desc->scale * of_logit;
  give_kernel(t, n, entry, of_logit);
  for (int64_t c = 0; c < d; c++) {
    dquery[c] += gradient * (one ? dense_get(&args->key, key_at + c) : keys[at * d + c]);
    dkey[c] = gradient * dense_get(&args->query, query + c);
  }
  for (int64_t c = 0; c < dv; c++) dvalue[c] = factor == 0 ? 0 : factor * entry->weight * dense_get(&args->dout, from + c);
}

/* Adds an entry's gradients of key and value to where they are collected. */
static void collect(chunk_head *t, const chunk_entry *entry, const double *dkey, const double *dvalue) {
  const int64_t d = t->at.desc->head_dim, dv = t->at.desc->value_dim, at = entry->index;
  if (entry->kind == CHUNK_GLOBAL) {
    give_global(t, at, dkey, dvalue);
    return;
  }
  double *key = entry->kind == CHUNK_KEY ? t->drow_key : t->dslot_key, *value = entry->kind == CHUNK_KEY ? t->drow_value : t->dslot_value;
  for (int64_t c = 0; c < d; c++) key[at * d + c] += dkey[c];
  for (int64_t c = 0; c < dv; c++) value[at * dv + c] += dvalue[c];
}

static void put(const hark_tensor *tensor, int64_t index, double value, bool add) {
  dense_put(tensor, index, add ? dense_get(tensor, index) + value : value);
}

static void row_backward(chunk_head *t, int64_t n) {
  const hark_attention_desc *desc = t->at.desc;
  const hark_attention_args *args = t->at.args;
  const int64_t d = desc->head_dim, dv = desc->value_dim;
  double *dquery = t->row, *dkey = dquery + d, *dvalue = dkey + d, mean = 0;
  memset(dquery, 0, (size_t)d * sizeof *dquery);
  const bool sees = hark_compressed_row(t, n);
  for (int64_t c = 0; c < dv; c++) mean += dense_get(&args->dout, dense_query_index(&t->at, &args->dout, n) + c) * t->mixed[c];
  for (int64_t i = 0; sees && i < t->entries; i++) {
    if (t->entry[i].logit == -INFINITY && !isnan(t->log_sum)) continue; /* hidden, except in a row that is all NaN */
    entry_gradients(t, n, &t->entry[i], mean, dquery, dkey, dvalue);
    collect(t, &t->entry[i], dkey, dvalue);
  }
  if (args->dquery.type == HARK_NONE) return;
  const int64_t to = dense_query_index(&t->at, &args->dquery, n);
  for (int64_t c = 0; c < d; c++) put(&args->dquery, to + c, dquery[c], args->accumulate & HARK_ACCUMULATE_QUERY);
}

static void store_keys(const chunk_head *t, const hark_tensor *tensor, const double *rows, int64_t width, bool add) {
  for (int64_t row = 0; tensor->type != HARK_NONE && row < t->at.sequence->key_count; row++) {
    const int64_t to = dense_key_index(&t->at, tensor, row);
    for (int64_t c = 0; c < width; c++) put(tensor, to + c, rows[row * width + c], add);
  }
}

static void backward_key_head(void *data, int64_t index, int worker) {
  const chunk_task *task = data;
  const hark_attention_desc *desc = &task->run->plan->desc;
  const hark_attention_args *args = task->run->args;
  const int64_t group = desc->heads / desc->key_heads, key_head = index % desc->key_heads, d = desc->head_dim, dv = desc->value_dim;
  chunk_head t = hark_compressed_head(task, index / desc->key_heads, key_head, true, worker);
  const int64_t slots = hark_chunks_slots(&t.chunks);
  memset(t.dslot_key, 0, (size_t)(slots * d) * sizeof(double));
  memset(t.dslot_value, 0, (size_t)(slots * dv) * sizeof(double));
  memset(t.drow_key, 0, (size_t)(t.chunks.rows * d) * sizeof(double));
  memset(t.drow_value, 0, (size_t)(t.chunks.rows * dv) * sizeof(double));
  for (t.at.head = key_head * group; t.at.head < (key_head + 1) * group; t.at.head++) {
    if (args->dlog_kernel.type != HARK_NONE) {
      t.dkernel = hark_chunk_kernel_sums(task->run, task->kernel_sums, t.at.sequence, t.at.head);
      memset(t.dkernel, 0, (size_t)t.at.sequence->query_count * sizeof(double));
    }
    for (int64_t n = 0; n < t.at.sequence->query_count; n++) row_backward(&t, n);
  }
  for (int64_t slot = 0; slot < slots; slot++)
    if (t.slot_count[slot] > 0) give_slot(&t, slot, t.dslot_key + slot * d, t.dslot_value + slot * dv, 1 / t.slot_count[slot]);
  store_keys(&t, &args->dkey, t.drow_key, d, args->accumulate & HARK_ACCUMULATE_KEY);
  store_keys(&t, &args->dvalue, t.drow_value, dv, args->accumulate & HARK_ACCUMULATE_VALUE);
}

hark_status hark_compressed_backward(hark_context *context, const hark_attention_call *run) {
  chunk_task task;
  HARK_TRY(hark_compressed_begin(context, run, true, &task));
  hark_parallel_for(context, run->sequence_count * run->plan->desc.key_heads, backward_key_head, &task);
  hark_chunk_kernel_give(context, run, task.kernel_sums);
  return HARK_OK;
}
