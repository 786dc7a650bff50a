/* sequence.h - a sequence whose rows are spread over processes: each has a range of the rows of every sequence of a batch, in order of
 * ranks. What computes a row from itself alone works on these rows as on any others. Attention exchanges what it needs of the others' rows
 * (ops/sequence_attention.h), or sees all rows of some heads instead (ops/sequence.h). */
#ifndef HARK_GROUP_SEQUENCE_H
#define HARK_GROUP_SEQUENCE_H

#include "core/core.h"
#include "group/group.h"

#define HARK_SEQUENCE_UNIT 16 /* rows are divided at multiples of it, unless a sequence has another unit */

typedef struct hark_sequence {
  hark_group *group; /* the processes that share a sequence */
  int64_t total;     /* rows of a sequence */
  int64_t unit;      /* rows are divided at multiples of it; 0: HARK_SEQUENCE_UNIT */
} hark_sequence;

/* The rows of a process. */
static inline hark_share hark_sequence_rows(const hark_sequence *sequence, int rank) {
  const int64_t unit = sequence->unit > 0 ? sequence->unit : HARK_SEQUENCE_UNIT;
  return hark_group_share_units(sequence->total, unit, rank, hark_group_size(sequence->group));
}
static inline hark_share hark_sequence_own_rows(const hark_sequence *sequence) {
  return hark_sequence_rows(sequence, hark_group_rank(sequence->group));
}

/* The heads of a process, of `heads` in all; of key heads and of the query heads that read them. */
static inline hark_share hark_sequence_heads(const hark_sequence *sequence, int64_t heads, int64_t key_heads, int rank) {
  const int64_t each = heads / key_heads;
  const hark_share keys = hark_group_share(key_heads, rank, hark_group_size(sequence->group));
  return (hark_share){keys.first * each, keys.count * each};
}
static inline hark_share hark_sequence_own_heads(const hark_sequence *sequence, int64_t heads, int64_t key_heads) {
  return hark_sequence_heads(sequence, heads, key_heads, hark_group_rank(sequence->group));
}

#endif
