/* pair_trees.h - the work of an attention call divided into pairs (sequence, key head), each with a tree of intermediate results in memory:
 * several pairs at the same time, or one pair after another by all threads.
 */
#ifndef HARK_BACKEND_CPU_ISA_PAIR_TREES_H
#define HARK_BACKEND_CPU_ISA_PAIR_TREES_H

#include "backend/cpu/cpu.h"

typedef void hark_pair_task(void *data, int64_t index, int worker);

/* Trees at the same time: one per worker if there are enough pairs, otherwise one. */
static inline int64_t hark_count_trees(const hark_attention_desc *desc, int workers) {
  return desc->max_sequences >= hark_ceil_div(workers, desc->key_heads) ? workers : 1;
}

/* *out: bytes of so many elements in whole cache lines. Errors: HARK_TOO_LARGE. */
static inline hark_status hark_whole_lines(hark_context *context, size_t count, size_t element, size_t *out) {
  HARK_TRY(hark_size_multiply(context, count, element, out));
  HARK_TRY(hark_size_add(context, *out, HARK_ALIGNMENT, out));
  *out = hark_align_up(*out - HARK_ALIGNMENT);
  return HARK_OK;
}

/* Runs tasks by all threads, or if `worker` is not below 0 by this one. */
static inline void hark_run_tasks(hark_context *context, int64_t count, hark_pair_task *task, void *data, int worker) {
  if (worker < 0)
    hark_parallel_for(context, count, task, data);
  else
    for (int64_t index = 0; index < count; index++) task(data, index, worker);
}

/* Runs a task for each pair: with the number of a worker, each of which has a tree, or with -1 one after another with the first tree. */
static inline void hark_run_pairs(hark_context *context, const hark_attention_call *run, hark_pair_task *task, void *data) {
  const hark_attention_desc *desc = &run->plan->desc;
  const int64_t pairs = run->sequence_count * desc->key_heads, workers = hark_workers(context);
  if (pairs >= workers && hark_count_trees(desc, run->plan->workers) >= workers)
    hark_parallel_for(context, pairs, task, data);
  else
    for (int64_t pair = 0; pair < pairs; pair++) task(data, pair, -1);
}

#endif
