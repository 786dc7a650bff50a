/* moment_share.h - the optimiser's moments, divided among the processes of a group (train.shard_optimiser). The flat weights are divided
 * into contiguous ranges of about the same size, in order of ranks. A process keeps the moments of its range, updates the weights of its
 * range, and gets the other weights from the processes that have updated them: it sends (n - 1) / n times the bytes of the weights in a
 * step, and receives as many. Updates are computed number by number, so they have the same bits wherever they are computed. Alone, or
 * without the option, the range is everything.
 */
#ifndef HARK_TRAIN_MOMENT_SHARE_H
#define HARK_TRAIN_MOMENT_SHARE_H

#include "backend/backend.h"
#include "group/group.h"
#include "nn/parameters.h"

typedef struct hark_moment_share {
  bool divided;
  int64_t numbers;  /* of the flat weights */
  hark_share range; /* of this process */
  int64_t piece;    /* numbers that a process sends at once; 0: not divided */
  void *memory;     /* [size, piece] numbers and messages, so that a step allocates nothing */
  size_t memory_bytes;
} hark_moment_share;

/* The ranges of `numbers` flat weights in the group of the context; without `memory` they are only described. Errors: those of memory. */
HARK_MUST_CHECK hark_status hark_moment_share_create(hark_context *context, bool divide, int64_t numbers, bool memory,
                                                     hark_moment_share *out);
void hark_moment_share_destroy(hark_context *context, hark_moment_share *share);

/* The range of any process. */
hark_share hark_moment_share_range(const hark_moment_share *share, int rank, int size);
/* The process that has the moments of a number. */
int hark_moment_share_owner(const hark_moment_share *share, int64_t number, int size);
/* The elements of a group that are in this process's range; count is 0 if there are none. */
hark_parameter_group hark_moment_share_part(const hark_moment_share *share, const hark_parameter_group *group);
/* Numbers of a moment's tensor: those of the range, at least one. */
int64_t hark_moment_share_places(const hark_moment_share *share);

/* Replaces the weights of other ranges by those of their processes, in pieces. Does nothing where nothing is divided. Allocates nothing.
 * Errors: those of the group and of the backend. */
HARK_MUST_CHECK hark_status hark_moment_share_gather(hark_context *context, const hark_moment_share *share, const hark_tensor *weights);

#endif
