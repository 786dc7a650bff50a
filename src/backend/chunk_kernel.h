/* chunk_kernel.h - the gradient by log G in compressed attention: sums over the queries of each head of a sequence, by distance, which are
 * then added in one order.
 *
 *     dlog G[t] = sum over queries n of dS of the key n - t, if it is near,
 *               + sum over the slots of dS G[t] / (sum of G over the rows of the slot), if n - t is an unmasked row of a selected slot
 *
 * The rows of a slot are cut into parts of 2^k rows, the longest one first, from the row that is next to the query. So sums of G over 2^k
 * distances are enough for all slots.
 */
#ifndef HARK_BACKEND_CHUNK_KERNEL_H
#define HARK_BACKEND_CHUNK_KERNEL_H

#include "backend/attention_algorithm.h"
#include "core/core.h"

/* k of the first part of so many rows. */
static inline int hark_chunk_part_level(int64_t rows) {
  int level = 0;
  while ((int64_t)2 << level <= rows) level++;
  return level;
}

/* Levels of parts of slots that have at most so many rows: k = 0, 1, .. */
static inline int hark_chunk_part_levels(int64_t rows) { return 1 + hark_chunk_part_level(rows); }

/* Doubles for the sums of all sequences and heads, [items][heads][rows]; 0 without a table. Errors: HARK_TOO_LARGE. */
hark_status hark_chunk_kernel_doubles(hark_context *context, const hark_attention_desc *desc, size_t *out);

/* Those of a head of a sequence, one for each of its rows. */
static inline double *hark_chunk_kernel_sums(const hark_attention_call *run, double *sums, const hark_attention_sequence *sequence,
                                             int64_t head) {
  const hark_attention_desc *desc = &run->plan->desc;
  return sums + (sequence->item * desc->heads + head) * run->args->query.shape[2] + sequence->query_row;
}

/* dlog_kernel += the sums. */
void hark_chunk_kernel_give(hark_context *context, const hark_attention_call *run, double *sums);

#endif
