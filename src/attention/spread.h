/* spread.h - attention over a sequence whose rows are spread over the processes of a group: each has the queries, keys, values and results
 * of its own rows, and exchanges what the structure of the attention needs. Every process calls these functions in the same order, with
 * arguments that differ in the rows alone. The results have the bits of one process that has all rows.
 *
 *     hierarchical    of 8192 rows and more: keys near the boundaries and coarse tokens (backend/cpu/isa/hierarchical_spread.c): bytes that
 *                     grow with the logarithm of the length
 *     window          rows within a window of the boundaries (attention/spread_rows.c)
 *     all others      of fewer rows: every process gets all rows, computes everything and keeps its own
 *
 * Rows are those of every item of the batch: process r has rows first[r] .. first[r + 1] - 1 of each.
 */
#ifndef HARK_ATTENTION_SPREAD_H
#define HARK_ATTENTION_SPREAD_H

#include <hark/attention.h>

#include "group/group.h"

/* Where the rows of a sequence are: process r has rows first[r] .. first[r + 1] - 1. */
typedef struct hark_spread {
  hark_group *group;
  int64_t total;        /* rows of a sequence */
  const int64_t *first; /* [size of the group + 1], multiples of hark_attention_spread_unit() or `total` */
  void *memory;         /* hark_attention_spread_bytes() of it, aligned as hark_allocate() does, with any contents, borrowed for the call;
                           NULL: from the context, in every call */
} hark_spread;

/* *unit: rows are divided at multiples of this. The plan is one for sequences of `total` rows. Errors: HARK_UNSUPPORTED, which names the
 * field of the descriptor because of which this attention cannot be spread over rows in this way. */
HARK_MUST_CHECK hark_status hark_attention_spread_unit(hark_context *context, const hark_attention_plan *plan, int64_t total,
                                                       int64_t *unit);

/* The multiple of the unit by which rows are best divided: a high power of two times the unit, because the bytes that hierarchical
 * attention exchanges grow with the levels on which a boundary divides a piece of the work. */
int64_t hark_attention_spread_grain(int64_t unit, int64_t total, int size);
/* The same where every process is to have rows, a smaller multiple if need be; 0: there is none. */
int64_t hark_attention_spread_full_grain(int64_t unit, int64_t total, int size);

/* first [size + 1] <- parts of nearly equal length at multiples of this grain. */
void hark_attention_spread_divide(int64_t unit, int64_t total, int size, int64_t *first);

/* hark_attention_forward() and hark_attention_backward() of spread rows. plan: for sequences of `total` rows, which hark_attention_args may
 * not have here: tensors have the rows of this process, so have mask [1 or B, 1, 1, rows] and query_mask. workspace is not used: see
 * hark_spread.memory. saved: not used. Gradients of log_kernel and hierarchical_bias are those of a part of
 * the work: their sum over the processes is the gradient, whose bits depend on the division. Without a group, or in a group of one process:
 * the same with all rows.
 * Errors: as those functions; HARK_UNSUPPORTED for lengths, offsets and segments, and for what hark_attention_spread_unit() refuses;
 * HARK_INVALID_ARGUMENT for other divisions; all processes return the error of one. With memory of the caller's they do not agree, which
 * would take two delays of the links: a process that fails returns its error alone, and the caller ends the group (hark_group_give_up()). A
 * call that is cancelled while it computes returns HARK_CANCELLED alone: the others get numbers that mean nothing, until the processes
 * agree the next time. */
HARK_MUST_CHECK hark_status hark_attention_spread_forward(hark_context *context, const hark_attention_plan *plan,
                                                          const hark_attention_args *args, const hark_spread *spread);
HARK_MUST_CHECK hark_status hark_attention_spread_backward(hark_context *context, const hark_attention_plan *plan,
                                                           const hark_attention_args *args, const hark_spread *spread);

/* Bytes of memory of such a call. args: of it, or with all gradients that may be requested; their data are not read. */
HARK_MUST_CHECK hark_status hark_attention_spread_bytes(hark_context *context, const hark_attention_plan *plan,
                                                        const hark_attention_args *args, bool backward, const hark_spread *spread,
                                                        size_t *bytes);

#endif
