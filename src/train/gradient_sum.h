/* gradient_sum.h - the sum of the gradients of a step's micro-batches, over a fixed binary tree: parts [0, n) are [0, m) + [m, n) with m
 * the largest power of two below n. The tree depends on n alone, so the sum has the same bits wherever its parts are computed. Parts are
 * computed in the memory of the gradients; sums that wait for their other half are in separate buffers, about log2(n) of them.
 *
 *     hark_gradient_sum_begin(&sum)                      ... a step
 *     hark_gradient_sum_open(context, &sum)              ... before each part: the memory of the gradients is zero
 *     hark_gradient_sum_close(context, &sum)             ... after each part
 *     hark_gradient_sum_finish(context, &sum)            ... the sum is in the memory of the gradients
 *
 * The processes of a group (context->group) share the parts of a step, in order of ranks. Each sends the subtrees of its share, piece by
 * piece, to the process that joins this piece, and gets the sum of the piece from there: a process sends about twice the bytes of the
 * gradients, and receives as many. Pieces that the tape of the last part reports as final (hark_gradient_sum_watch()) are exchanged while
 * its backward continues: from then on they may be replaced by the sum at any time (gradient_exchange.h).
 */
#ifndef HARK_TRAIN_GRADIENT_SUM_H
#define HARK_TRAIN_GRADIENT_SUM_H

#include "autograd/watch.h"
#include "backend/backend.h"
#include "group/group.h"
#include "nn/parameters.h"
#include "train/gradient_exchange.h"

#define HARK_GRADIENT_SUM_DEPTH 64

/* A subtree: the sum of parts [first, first + count). */
typedef struct hark_sum_block {
  int64_t first, count;
} hark_sum_block;

/* The subtrees that cannot be joined yet, in the order of their parts. */
typedef struct hark_sum_blocks {
  hark_sum_block list[HARK_GRADIENT_SUM_DEPTH];
  int count;
} hark_sum_blocks;

/* Whether the last two subtrees are the halves of one: equally large, and the first one begins at a multiple of both. */
bool hark_sum_blocks_join(const hark_sum_blocks *blocks);
/* Replaces the last two by their sum. */
void hark_sum_blocks_merge(hark_sum_blocks *blocks);
void hark_sum_blocks_push(hark_sum_blocks *blocks, hark_sum_block block);
/* The subtrees of a share; *most: the largest number that waits while a part is computed. */
hark_sum_blocks hark_sum_blocks_of(hark_share share, int *most);

typedef struct hark_gradient_sum {
  hark_tensor gradients;                      /* borrowed, f32 [n]: the last subtree */
  hark_tensor saved[HARK_GRADIENT_SUM_DEPTH]; /* f32 [n]: the others */
  int saved_count;
  int64_t parts;    /* of a step */
  hark_share share; /* of this process */
  hark_sum_blocks blocks;
  int64_t next;                     /* number of the next part */
  hark_gradient_exchange *exchange; /* of several processes; NULL: one, or without memory */
  size_t exchange_bytes;
  double seconds; /* spent in hark_gradient_sum_finish() so far: of the exchange what the backward has not hidden */
} hark_gradient_sum;

/* Buffers for this process's share of the `parts` parts of a step; without `memory` they are only described. Errors: HARK_BAD_CONFIGURATION
 * where there are fewer parts than processes; those of memory. */
HARK_MUST_CHECK hark_status hark_gradient_sum_create(hark_context *context, const hark_tensor *gradients, int64_t parts, bool memory,
                                                     hark_gradient_sum *out);
void hark_gradient_sum_destroy(hark_context *context, hark_gradient_sum *sum);
/* Bytes of the buffers and of the exchange. */
size_t hark_gradient_sum_bytes(const hark_gradient_sum *sum);
/* What the tape that computes the parts reports to the sum, which must not move (hark_tape_set_watch()). With one process it is empty. The
 * exchange begins with the parameters that were declared last, which the backward is done with first. */
hark_tape_watch hark_gradient_sum_watch(hark_gradient_sum *sum, const hark_parameters *parameters);

void hark_gradient_sum_begin(hark_gradient_sum *sum);
HARK_MUST_CHECK hark_status hark_gradient_sum_open(hark_context *context, hark_gradient_sum *sum);
HARK_MUST_CHECK hark_status hark_gradient_sum_close(hark_context *context, hark_gradient_sum *sum);
/* Every process that has closed all its parts calls it, unless an agreement of the group (hark_group_agree()) has found an error since. */
HARK_MUST_CHECK hark_status hark_gradient_sum_finish(hark_context *context, hark_gradient_sum *sum);

#endif
