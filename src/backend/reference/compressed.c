/* compressed.c - compressed attention by its definition, in double, row by row: slots and the forward.
 *
 *     entry     key j of the chunks c - 1 and c, j <= n:  s = scale q . k_j + log G(n - j)
 *               slot b of earlier chunks:                 s = scale q . k_b + log of the sum of G(n - j) over its n_b unmasked rows j,
 *                                                         k_b, v_b: means over these rows.   Without a table of G, all G are 1
 *     out[n]    = sum over entries F e^s v / sum over entries e^s,   F: dropout's factor
 *
 * Of the slots of the kept chunks only those with the highest logits are entries (backend/chunks.h). Cost O(L (m + slots) (d + dv) +
 * L K slots), K selected slots, per head, memory O(slots (d + dv) + L) per worker.
 */
#include "backend/reference/compressed.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "backend/kernel_table.h"

static bool supports(const hark_context *context, const hark_attention_desc *desc, char *why, size_t size) {
  (void)context;
  if (desc->structure == HARK_STRUCTURE_COMPRESSED) return true;
  snprintf(why, size, "structure is not compressed");
  return false;
}

hark_status hark_compressed_doubles(hark_context *context, const hark_attention_desc *desc, bool backward, size_t *out) {
  const int64_t d = desc->head_dim, dv = desc->value_dim, rows = desc->longest;
  size_t slots, of_slots, of_rows, entries;
  HARK_TRY(hark_size_multiply(context, (size_t)hark_chunks_most(desc, rows), (size_t)desc->chunk_slots, &slots));
  HARK_TRY(hark_size_multiply(context, slots, (size_t)((d + dv) * (backward ? 2 : 1) + 1), &of_slots));
  HARK_TRY(hark_size_multiply(context, (size_t)rows, (size_t)(backward ? d + dv : 0), &of_rows));
  HARK_TRY(hark_size_add(context, slots, (size_t)(rows + hark_chunk_globals(desc)), &entries));
  HARK_TRY(hark_size_multiply(context, entries, sizeof(chunk_entry) / sizeof(double), &entries));
  HARK_TRY(hark_size_add(context, of_slots, of_rows, out));
  HARK_TRY(hark_size_add(context, *out, entries, out));
  return hark_size_add(context, *out, (size_t)(hark_chunk_globals(desc) * (d + dv + 1) + dv + (backward ? 2 * d + dv : 0)), out);
}

_Static_assert(sizeof(chunk_entry) % sizeof(double) == 0, "entries are counted in doubles");

static double *take(double **memory, int64_t count) {
  double *taken = *memory;
  *memory += count;
  return taken;
}

hark_status hark_compressed_begin(hark_context *context, const hark_attention_call *run, bool backward, chunk_task *out) {
  size_t numbers;
  size_t sums = 0;
  HARK_TRY(hark_chunk_list_numbers(context, &run->plan->desc, &numbers));
  if (backward) HARK_TRY(hark_chunk_kernel_doubles(context, &run->plan->desc, &sums));
  *out = (chunk_task){.run = run, .kernel_sums = (double *)run->scratch + numbers, .memory = (double *)run->scratch + numbers + sums};
  HARK_TRY(hark_compressed_doubles(context, &run->plan->desc, backward, &out->per_worker));
  return hark_chunk_list_fill(context, run, run->scratch, &out->list);
}

bool hark_compressed_sees(const chunk_head *t, int64_t row) {
  const hark_tensor *mask = &t->at.args->mask;
  if (row >= t->at.sequence->key_count) return false;
  return mask->type == HARK_NONE || ((const uint8_t *)mask->data)[dense_entry_index(&t->at, mask, 0, row)] != 0;
}

double hark_compressed_log_kernel(const chunk_head *t, int64_t distance) {
  const hark_tensor *table = &t->at.args->log_kernel;
  if (table->type == HARK_NONE) return 0;
  return dense_get(table, t->at.head * table->stride[0] + hark_kernel_column(t->at.desc, table->shape[1], distance));
}

/* Adds a key row and its value to sums. */
static void add_row(const chunk_head *t, int64_t row, double *key, double *value) {
  const hark_attention_args *args = t->at.args;
  const int64_t k = dense_key_index(&t->at, &args->key, row), v = dense_key_index(&t->at, &args->value, row);
  for (int64_t c = 0; c < t->at.desc->head_dim; c++) key[c] += dense_get(&args->key, k + c);
  for (int64_t c = 0; c < t->at.desc->value_dim; c++) value[c] += dense_get(&args->value, v + c);
}

static void divide(double *x, int64_t width, double count) {
  for (int64_t c = 0; c < width && count > 0; c++) x[c] /= count;
}

static void make_slot(const chunk_head *t, int64_t slot) {
  const int64_t d = t->at.desc->head_dim, dv = t->at.desc->value_dim, end = hark_chunk_slot_row(&t->chunks, slot + 1);
  double *key = t->slot_key + slot * d, *value = t->slot_value + slot * dv, count = 0;
  memset(key, 0, (size_t)d * sizeof *key);
  memset(value, 0, (size_t)dv * sizeof *value);
  for (int64_t row = hark_chunk_slot_row(&t->chunks, slot); row < end; row++) {
    if (!hark_compressed_sees(t, row)) continue;
    add_row(t, row, key, value);
    count++;
  }
  divide(key, d, count);
  divide(value, dv, count);
  t->slot_count[slot] = count;
}

chunk_head hark_compressed_head(const chunk_task *task, int64_t sequence, int64_t key_head, bool backward, int worker) {
  const hark_attention_desc *desc = &task->run->plan->desc;
  const int64_t d = desc->head_dim, dv = desc->value_dim;
  double *memory = task->memory + (size_t)worker * task->per_worker;
  chunk_head t = {.at = hark_dense_head(task->run, NULL, sequence, key_head * (desc->heads / desc->key_heads)),
                  .chunks = hark_chunks_of(desc, &task->list, sequence)};
  const int64_t slots = hark_chunks_slots(&t.chunks);
  t.slot_key = take(&memory, slots * d);
  t.slot_value = take(&memory, slots * dv);
  t.slot_count = take(&memory, slots);
  t.global_key = take(&memory, hark_chunk_globals(desc) * d);
  t.global_value = take(&memory, hark_chunk_globals(desc) * dv);
  t.global_count = take(&memory, hark_chunk_globals(desc));
  t.mixed = take(&memory, dv);
  if (backward) {
    t.dslot_key = take(&memory, slots * d);
    t.dslot_value = take(&memory, slots * dv);
    t.drow_key = take(&memory, t.chunks.rows * d);
    t.drow_value = take(&memory, t.chunks.rows * dv);
    t.row = take(&memory, 2 * d + dv);
  }
  t.entry = (chunk_entry *)(void *)memory;
  for (int64_t slot = 0; slot < slots; slot++) make_slot(&t, slot);
  return t;
}

/* The globals of the queries of the current chunk: means over all rows of their slots. */
static void make_globals(chunk_head *t) {
  const int64_t d = t->at.desc->head_dim, dv = t->at.desc->value_dim, globals = t->chunks.globals;
  int64_t from, to;
  hark_chunk_candidates(&t->chunks, t->chunk, &from, &to);
  memset(t->global_key, 0, (size_t)(globals * d) * sizeof(double));
  memset(t->global_value, 0, (size_t)(globals * dv) * sizeof(double));
  memset(t->global_count, 0, (size_t)globals * sizeof(double));
  for (int64_t row = 0, slot = 0; globals > 0 && slot < from; slot++)
    for (; row < hark_chunk_slot_row(&t->chunks, slot + 1); row++) {
      const int64_t g = slot % globals;
      if (!hark_compressed_sees(t, row)) continue;
      add_row(t, row, t->global_key + g * d, t->global_value + g * dv);
      t->global_count[g]++;
    }
  for (int64_t g = 0; g < globals; g++) {
    divide(t->global_key + g * d, d, t->global_count[g]);
    divide(t->global_value + g * dv, dv, t->global_count[g]);
  }
}

static double product(const chunk_head *t, int64_t row, const double *key) {
  const int64_t q = dense_query_index(&t->at, &t->at.args->query, row);
  double sum = 0;
  for (int64_t c = 0; c < t->at.desc->head_dim; c++) sum += dense_get(&t->at.args->query, q + c) * key[c];
  return t->at.desc->scale * sum;
}

/* The logarithm of the sum of G over the unmasked rows of a slot, of which there is one at least. */
static double slot_term(const chunk_head *t, int64_t row, int64_t slot) {
  const int64_t first = hark_chunk_slot_row(&t->chunks, slot), end = hark_chunk_slot_row(&t->chunks, slot + 1);
  double highest = -INFINITY, sum = 0;
  if (t->at.args->log_kernel.type == HARK_NONE) return log(t->slot_count[slot]);
  for (int64_t key = first; key < end; key++) {
    const double term = hark_compressed_sees(t, key) ? hark_compressed_log_kernel(t, row - key) : -INFINITY;
    if (term > highest || isnan(term)) highest = term;
  }
  if (!isfinite(highest)) return highest;
  for (int64_t key = first; key < end; key++)
    if (hark_compressed_sees(t, key)) sum += exp(hark_compressed_log_kernel(t, row - key) - highest);
  return highest + log(sum);
}

/* An entry whose G is 0 is hidden, whatever its key has. */
static void add_entry(chunk_head *t, chunk_entry_kind kind, int64_t index, double product, double term) {
  const double logit = product + term;
  if (term == -INFINITY || (kind == CHUNK_SLOT && logit == -INFINITY)) return; /* no slot is selected that has no weight */
  t->entry[t->entries++] = (chunk_entry){.logit = logit, .term = term, .index = index, .kind = kind};
}

/* True if entry a is selected before entry b. */
static bool is_better(const chunk_entry *a, const chunk_entry *b) {
  if (isnan(a->logit) != isnan(b->logit)) return isnan(a->logit);
  if (a->logit != b->logit && !isnan(a->logit)) return a->logit > b->logit;
  return a->index < b->index;
}

/* Entries of the candidates, of which the best ones remain. */
static void select_slots(chunk_head *t, int64_t row) {
  const int64_t d = t->at.desc->head_dim, most = t->at.desc->selected_slots;
  int64_t from, to;
  hark_chunk_candidates(&t->chunks, t->chunk, &from, &to);
  for (int64_t slot = from; slot < to; slot++)
    if (t->slot_count[slot] > 0) add_entry(t, CHUNK_SLOT, slot, product(t, row, t->slot_key + slot * d), slot_term(t, row, slot));
  for (int64_t place = 0; place < hark_min(most, t->entries); place++) {
    int64_t best = place;
    for (int64_t i = place + 1; i < t->entries; i++)
      if (is_better(&t->entry[i], &t->entry[best])) best = i;
    const chunk_entry moved = t->entry[place];
    t->entry[place] = t->entry[best];
    t->entry[best] = moved;
  }
  t->entries = hark_min(most, t->entries);
}

static void find_entries(chunk_head *t, int64_t row) {
  const int64_t d = t->at.desc->head_dim;
  int64_t chunk = row == 0 ? 0 : t->chunk;
  while (row >= t->chunks.start[chunk + 1]) chunk++;
  if (row == 0 || chunk != t->chunk) {
    t->chunk = chunk;
    make_globals(t);
  }
  t->entries = 0;
  select_slots(t, row);
  for (int64_t g = 0; g < t->chunks.globals; g++)
    if (t->global_count[g] > 0) add_entry(t, CHUNK_GLOBAL, g, product(t, row, t->global_key + g * d), log(t->global_count[g]));
  for (int64_t key = hark_chunk_near(&t->chunks, chunk); key <= row; key++)
    if (hark_compressed_sees(t, key))
      add_entry(t, CHUNK_KEY, key, hark_dense_similarity(&t->at, row, key), hark_compressed_log_kernel(t, row - key));
}

double hark_compressed_dropout(const chunk_head *t, int64_t row, const chunk_entry *entry) {
  /* A global slot has the first row of the slot with its number. */
  return hark_dense_dropout(&t->at, row, entry->kind == CHUNK_KEY ? entry->index : hark_chunk_slot_row(&t->chunks, entry->index));
}

static void mix(chunk_head *t, const chunk_entry *entry, double weight) {
  const hark_tensor *value = &t->at.args->value;
  const int64_t dv = t->at.desc->value_dim, from = entry->kind == CHUNK_KEY ? dense_key_index(&t->at, value, entry->index) : 0;
  const double *mean = entry->kind == CHUNK_SLOT ? t->slot_value : t->global_value;
  for (int64_t c = 0; c < dv; c++)
    t->mixed[c] += weight * (entry->kind == CHUNK_KEY ? dense_get(value, from + c) : mean[entry->index * dv + c]);
}

bool hark_compressed_row(chunk_head *t, int64_t row) {
  double highest = -INFINITY, sum = 0;
  find_entries(t, row);
  for (int64_t i = 0; i < t->entries; i++)
    if (t->entry[i].logit > highest || isnan(t->entry[i].logit)) highest = t->entry[i].logit;
  memset(t->mixed, 0, (size_t)t->at.desc->value_dim * sizeof(double));
  t->log_sum = -INFINITY;
  if (highest == -INFINITY) return false;
  for (int64_t i = 0; i < t->entries; i++) {
    t->entry[i].weight = exp(t->entry[i].logit - highest);
    sum += t->entry[i].weight;
  }
  t->log_sum = highest + log(sum);
  for (int64_t i = 0; i < t->entries; i++) {
    const double factor = hark_compressed_dropout(t, row, &t->entry[i]);
    t->entry[i].weight /= sum;
    if (factor != 0 && t->entry[i].logit != -INFINITY) mix(t, &t->entry[i], factor * t->entry[i].weight);
  }
  return true;
}

static void forward_key_head(void *data, int64_t index, int worker) {
  const chunk_task *task = data;
  const hark_attention_desc *desc = &task->run->plan->desc;
  const hark_attention_args *args = task->run->args;
  const int64_t group = desc->heads / desc->key_heads, key_head = index % desc->key_heads;
  chunk_head t = hark_compressed_head(task, index / desc->key_heads, key_head, false, worker);
  for (t.at.head = key_head * group; t.at.head < (key_head + 1) * group; t.at.head++)
    for (int64_t n = 0; n < t.at.sequence->query_count; n++) {
      const bool sees = hark_compressed_row(&t, n);
      const int64_t out = dense_query_index(&t.at, &args->out, n);
      for (int64_t c = 0; c < desc->value_dim; c++) dense_put(&args->out, out + c, sees ? t.mixed[c] : 0);
      if (args->log_sum_exp.type == HARK_NONE) continue;
      const int64_t row = (t.at.sequence->item * desc->heads + t.at.head) * args->query.shape[2] + t.at.sequence->query_row + n;
      dense_put_log_sum(&args->log_sum_exp, row, t.log_sum);
    }
}

static hark_status forward(hark_context *context, const hark_attention_call *run) {
  chunk_task task;
  HARK_TRY(hark_compressed_begin(context, run, false, &task));
  hark_parallel_for(context, run->sequence_count * run->plan->desc.key_heads, forward_key_head, &task);
  return HARK_OK;
}

static hark_status workspace(hark_context *context, const hark_attention_desc *desc, int workers, bool backward, size_t *out) {
  size_t list, doubles, sums = 0;
  HARK_TRY(hark_chunk_list_numbers(context, desc, &list));
  if (backward) HARK_TRY(hark_chunk_kernel_doubles(context, desc, &sums));
  HARK_TRY(hark_compressed_doubles(context, desc, backward, &doubles));
  HARK_TRY(hark_size_multiply(context, doubles, (size_t)workers, &doubles));
  HARK_TRY(hark_size_add(context, list, doubles, &doubles));
  HARK_TRY(hark_size_add(context, sums, doubles, &doubles));
  return hark_size_multiply(context, doubles, sizeof(double), out);
}

static hark_status sizes(hark_context *context, const hark_attention_desc *desc, int workers, hark_attention_sizes *out) {
  out->saved = 0;
  HARK_TRY(workspace(context, desc, workers, false, &out->forward_workspace));
  return workspace(context, desc, workers, true, &out->backward_workspace);
}

static int print(const hark_attention_plan *plan, char *text, size_t size) {
  return snprintf(text, size, "row by row in double, %d workers", plan->workers);
}

const hark_attention_algorithm hark_reference_compressed = {
    .name = "compressed by definition",
    .supports = supports,
    .sizes = sizes,
    .forward = forward,
    .backward = hark_compressed_backward,
    .print = print,
};
