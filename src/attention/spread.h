/* spread.h - attention over a sequence whose rows are spread over the processes of a group: each has the queries, keys, values and results
 * of its own rows, and exchanges what the structure of the attention needs. Every process calls these functions in the same order, with
 * arguments that differ in the rows alone.
 *
 * Window and hierarchical attention exchange their neighbours' rows and coarse cells: bytes that grow with the logarithm of the length.
 * The results have the bits of one process that has all rows.
 */
#ifndef HARK_ATTENTION_SPREAD_H
#define HARK_ATTENTION_SPREAD_H

#include <hark/attention.h>

#include "group/group.h"

/* Where the rows of a sequence are: process r has rows first[r] .. first[r + 1] - 1. */
typedef struct hark_spread {
  hark_group *group;
  int64_t total;        /* rows of the sequence; those of all sequences of a batch */
  const int64_t *first; /* [size of the group + 1], multiples of hark_attention_spread_unit() but the last one */
} hark_spread;

/* Rows are divided at multiples of this; 0: this attention cannot be spread over rows in this way. `desc` is resolved, with lengths of the
 * whole sequence. */
int64_t hark_attention_spread_unit(const hark_attention_desc *desc, int64_t total);

#endif
