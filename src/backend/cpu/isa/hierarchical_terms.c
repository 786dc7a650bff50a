/* hierarchical_terms.c - the terms of logits by distance in hierarchical attention: the learned bias and the means of a positional kernel.
 *
 *     S[a,b] += bias[h, b - a + 2 Nr - 1] + mean[h, l, |a - b|]          d bias[h, x], d mean[h, l, t]: sums of dS over their diagonals
 *
 * With directed_kernel there are two means, one for each sign of a - b (kernel_table.h).
 *
 * The means (backend/hierarchy_kernel.h) are computed once per call for every row of the table. Gradients are gathered by head, level and
 * signed distance, in float64 and in slots. A slot is for a run of sequences, in their order, so that as many tasks as slots and key heads
 * can run at the same time. The number of slots depends on the descriptor's sizes alone, and they are summed in their order: the bits do
 * not depend on the number of threads.
 *
 * Memory: means | sums of the slots | a kernel's sums and gradients, once per worker.
 */
#include <float.h>

#include "backend/kernel_table.h"
#include "hierarchical_tile.h"

#define HARK_FAR_TERM 256.0f                 /* in units of log 2: its rounding changes a weight by 2^-16 */
#define TABLE_TASKS 64                       /* minimum for the gradients by tables */
#define SLOT_DOUBLES_MOST ((int64_t)1 << 20) /* of all slots, if there are several */

/* Number of sums of dS per head. */
static int64_t head_sums(const hark_hierarchy *h) { return h->levels * (4 * h->block - 1); }

static int64_t slots_of(const hark_attention_desc *desc, int64_t sequences) {
  const hark_hierarchy h = hark_hierarchy_make(desc, desc->longest);
  const int64_t room = hark_max(1, SLOT_DOUBLES_MOST / head_sums(&h) / desc->heads);
  return hark_min(sequences, hark_min(room, hark_ceil_div(TABLE_TASKS, desc->key_heads)));
}

/* Doubles of a kernel; for its gradient also those of the gradients by its means and by the table's row. */
static size_t work_doubles(const hark_hierarchy *h, bool backward) {
  const int64_t kernel = hark_hierarchy_kernel_doubles(h, false);
  return (size_t)(backward ? kernel + hark_hierarchy_kernel_means(h, false) + hark_hierarchy_reach(h) : kernel);
}

static hark_status add_doubles(hark_context *context, size_t count, size_t times, size_t *bytes) {
  HARK_TRY(hark_size_multiply(context, count, times, &count));
  HARK_TRY(hark_size_multiply(context, count, sizeof(double), &count));
  return hark_size_add(context, *bytes, count, bytes);
}

hark_status HARK_ISA(hark_hierarchical_tables_bytes)(hark_context *context, const hark_attention_desc *desc, int workers, bool backward,
                                                     size_t *bytes) {
  const hark_hierarchy h = hark_hierarchy_make(desc, desc->longest);
  const size_t heads = (size_t)desc->heads;
  *bytes = 0;
  if (!hark_has_terms(desc)) return HARK_OK;
  if (backward) {
    HARK_TRY(hark_size_multiply(context, heads, (size_t)slots_of(desc, desc->max_sequences), bytes));
    HARK_TRY(hark_size_multiply(context, *bytes, (size_t)head_sums(&h) * sizeof(double), bytes));
  }
  if (!desc->has_log_kernel) return HARK_OK;
  HARK_TRY(add_doubles(context, (size_t)(hark_kernel_sides(desc) * hark_hierarchy_kernel_means(&h, false)), heads, bytes));
  return add_doubles(context, work_doubles(&h, backward), (size_t)hark_min(workers, desc->heads), bytes);
}

/* ---- means ---- */

/* Number of different rows of a table. */
static int64_t rows_of_table(const hark_tensor *table, int64_t heads) { return table->stride[0] == 0 ? 1 : heads; }

/* The means for keys up to the row (side 0), or after it (1). Without directed_kernel both are the same. */
static double *means_of(const hark_hierarchical_call *call, int64_t head, int side) {
  const int64_t row = call->args->log_kernel.stride[0] == 0 ? 0 : head;
  const int sides = hark_kernel_sides(call->desc);
  return call->tables.means + (row * sides + (sides == 1 ? 0 : side)) * hark_hierarchy_kernel_means(&call->tables.longest, false);
}

static double *work_of(const hark_hierarchical_call *call, int64_t task, int64_t tasks, int worker) {
  return call->tables.work + (size_t)hark_task_slot(task, tasks, worker, hark_workers(call->context)) * call->tables.work_doubles;
}

static void means_task(void *data, int64_t row, int worker) {
  const hark_hierarchical_call *call = data;
  const hark_hierarchy *h = &call->tables.longest;
  double *memory = work_of(call, row, rows_of_table(&call->args->log_kernel, call->desc->heads), worker);
  for (int side = 0; side < hark_kernel_sides(call->desc); side++) {
    const hark_tensor table = hark_kernel_side(call->desc, &call->args->log_kernel, side);
    const hark_hierarchy_kernel kernel = hark_hierarchy_kernel_make(h, false, &table, row, memory);
    memcpy(means_of(call, row, side), kernel.mean, (size_t)hark_hierarchy_kernel_means(h, false) * sizeof(double));
  }
}

void HARK_ISA(hark_hierarchical_tables_open)(hark_hierarchical_call *call, bool gradients, double *memory) {
  const hark_attention_desc *desc = call->desc;
  hark_hierarchical_tables *tables = &call->tables;
  if (gradients) {
    tables->slots = slots_of(desc, call->run->sequence_count);
    tables->sums = memory;
    memory += tables->slots * desc->heads * head_sums(&tables->longest);
  }
  if (!desc->has_log_kernel) return;
  const int64_t rows = rows_of_table(&call->args->log_kernel, desc->heads);
  tables->means = memory;
  tables->work = memory + rows * hark_kernel_sides(desc) * hark_hierarchy_kernel_means(&tables->longest, false);
  tables->work_doubles = work_doubles(&tables->longest, call->backward);
  hark_parallel_for(call->context, rows, means_task, call);
}

/* ---- terms of a head ---- */

/* Converts to units of log 2. A finite term stays finite, also after adding a product. */
static float term_of(double sum) {
  const double term = sum * (double)HARK_LOG2_E;
  const double largest = (double)(FLT_MAX / 8);
  return isfinite(sum) ? (float)fmax(-largest, fmin(term, largest)) : (float)sum;
}

/* A quarter of it, in two floats (hark_fine_term()). */
static void set_fine_term(float *fine, double sum) {
  const double quarter = 0.25 * sum * (double)HARK_LOG2_E;
  fine[0] = (float)quarter;
  fine[1] = isfinite(fine[0]) ? (float)(quarter - (double)fine[0]) : 0.0f;
}

static double *sums_of(const hark_hierarchical_call *call, int64_t slot, int64_t head, int level) {
  const hark_hierarchy *h = &call->tables.longest;
  return call->tables.sums + (slot * call->desc->heads + head) * head_sums(h) + level * (4 * h->block - 1);
}

void HARK_ISA(hark_hierarchical_make_terms)(hark_tree *tree, int64_t slot) {
  const hark_hierarchical_call *call = tree->call;
  const hark_tensor *bias = &call->args->hierarchical_bias;
  const int64_t block = tree->hierarchy.block, reach = 2 * block - 1;
  const bool has_kernel = call->desc->has_log_kernel;
  const double *const means[] = {has_kernel ? means_of(call, tree->head, 0) : NULL, has_kernel ? means_of(call, tree->head, 1) : NULL};
  const float *biases = call->desc->has_hierarchical_bias ? (const float *)bias->data + tree->head * bias->stride[0] : NULL;
  tree->hides = tree->far_terms = false;
  for (int level = 0; level < tree->hierarchy.levels; level++) {
    float *terms = tree->level[level].terms, *fine = tree->level[level].fine_terms;
    tree->level[level].dterms = call->tables.sums == NULL ? NULL : sums_of(call, slot, tree->head, level);
    memset(terms, 0, (size_t)hark_term_width(block) * sizeof *terms);
    memset(fine, 0, (size_t)hark_term_width(block) * 2 * sizeof *fine);
    for (int64_t difference = -reach; difference <= reach; difference++) {
      double sum = 0;
      if (biases != NULL) sum += (double)biases[reach - difference];
      if (has_kernel) sum += means[difference < 0][level * 2 * block + (difference < 0 ? -difference : difference)];
      const float term = term_of(sum);
      terms[hark_term_at(block, difference)] = term;
      set_fine_term(fine + 2 * hark_term_at(block, difference), sum);
      tree->hides = tree->hides || term == -INFINITY;
      tree->far_terms = tree->far_terms || (term != -INFINITY && fabsf(term) > HARK_FAR_TERM);
    }
  }
}

/* ---- gradients ---- */

void HARK_ISA(hark_hierarchical_tables_begin_slot)(const hark_hierarchical_call *call, int64_t slot, int64_t key_head) {
  const int64_t group = call->desc->heads / call->desc->key_heads;
  memset(sums_of(call, slot, key_head * group, 0), 0, (size_t)(group * head_sums(&call->tables.longest)) * sizeof(double));
}

/* Number of heads that share a row of a table. */
static int64_t sharing_of(const hark_tensor *table, int64_t heads) { return table->stride[0] == 0 ? heads : 1; }

static void give_bias(const hark_hierarchical_call *call) {
  const hark_tensor *gradient = &call->args->dhierarchical_bias;
  const int64_t heads = call->desc->heads, sharing = sharing_of(gradient, heads), width = 4 * call->tables.longest.block - 1;
  for (int64_t head = 0; head < heads; head += sharing)
    for (int64_t i = 0; i < width; i++) {
      double sum = 0;
      for (int64_t other = head; other < head + sharing; other++)
        for (int64_t slot = 0; slot < call->tables.slots; slot++)
          for (int level = 0; level < call->tables.longest.levels; level++) sum += sums_of(call, slot, other, level)[width - 1 - i];
      ((float *)gradient->data)[head * gradient->stride[0] + i] += (float)sum;
    }
}

/* dmean += the slots' sums for a head, by distance; with directed_kernel those of one side. */
static void add_mean_gradients(const hark_hierarchical_call *call, int64_t head, int side, double *dmean) {
  const int64_t block = call->tables.longest.block, middle = 2 * block - 1;
  const bool directed = call->desc->directed_kernel != 0;
  for (int64_t slot = 0; slot < call->tables.slots; slot++)
    for (int level = 0; level < call->tables.longest.levels; level++) {
      const double *sums = sums_of(call, slot, head, level) + middle;
      if (side == 0) dmean[level * 2 * block] += sums[0];
      for (int64_t t = 1; t < 2 * block; t++)
        dmean[level * 2 * block + t] += !directed ? sums[t] + sums[-t] : side == 0 ? sums[t] : sums[-t];
    }
}

/* A row of the gradient by log G for one side, summed over the heads that share it; heads that also share a row of the table are combined
 * first. */
static void give_side(const hark_hierarchical_call *call, int64_t row, int side, double *memory) {
  const hark_tensor table = hark_kernel_side(call->desc, &call->args->log_kernel, side);
  const hark_tensor gradient = hark_kernel_side(call->desc, &call->args->dlog_kernel, side);
  const hark_hierarchy *h = &call->tables.longest;
  const int64_t sharing = sharing_of(&gradient, call->desc->heads), means = hark_hierarchy_kernel_means(h, false);
  const int64_t distances = hark_min(gradient.shape[1], hark_hierarchy_reach(h));
  double *dmean = memory + hark_hierarchy_kernel_doubles(h, false), *sums = dmean + means;
  memset(sums, 0, (size_t)distances * sizeof *sums);
  memset(dmean, 0, (size_t)means * sizeof *dmean);
  for (int64_t head = row * sharing; head < (row + 1) * sharing; head++) {
    add_mean_gradients(call, head, side, dmean);
    if (table.stride[0] == 0 && head + 1 < (row + 1) * sharing) continue;
    const hark_hierarchy_kernel kernel = hark_hierarchy_kernel_make(h, false, &table, head, memory);
    hark_hierarchy_kernel_gradient(&kernel, dmean, sums);
    memset(dmean, 0, (size_t)means * sizeof *dmean);
  }
  float *to = (float *)gradient.data + row * sharing * gradient.stride[0];
  for (int64_t x = 0; x < distances; x++) to[x * gradient.stride[1]] += (float)sums[x];
}

static void kernel_task(void *data, int64_t row, int worker) {
  const hark_hierarchical_call *call = data;
  const int64_t tasks = call->desc->heads / sharing_of(&call->args->dlog_kernel, call->desc->heads);
  double *memory = work_of(call, row, tasks, worker);
  for (int side = 0; side < hark_kernel_sides(call->desc); side++) give_side(call, row, side, memory);
}

void HARK_ISA(hark_hierarchical_tables_give)(hark_hierarchical_call *call) {
  const int64_t heads = call->desc->heads;
  if (call->args->dhierarchical_bias.type != HARK_NONE) give_bias(call);
  if (call->args->dlog_kernel.type == HARK_NONE) return;
  hark_parallel_for(call->context, heads / sharing_of(&call->args->dlog_kernel, heads), kernel_task, call);
}
