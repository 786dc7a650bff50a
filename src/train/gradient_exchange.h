/* gradient_exchange.h - the sum of the gradients of all processes of a group, while the backward still runs.
 *
 * The flat gradients are exchanged in rounds; a round has one piece for each process. A process sends its subtrees of every piece to the
 * process that joins this piece over the tree of gradient_sum.h, and gets the sum from there. A round begins as soon as nothing more is
 * added to its numbers at this process (autograd/watch.h). All processes begin the rounds in the same order, at most
 * HARK_EXCHANGE_ROUNDS at once, and no message waits for another round. So which process is fast, and when messages arrive, changes no bit.
 *
 * Rounds make progress between the operators of the last backward of a step, and where a process waits for others.
 */
#ifndef HARK_TRAIN_GRADIENT_EXCHANGE_H
#define HARK_TRAIN_GRADIENT_EXCHANGE_H

#include "backend/backend.h"
#include "group/group.h"

#define HARK_EXCHANGE_ROUNDS 16 /* under way at once, at most */

struct hark_gradient_sum;
typedef struct hark_gradient_exchange hark_gradient_exchange;

/* Memory for the exchange of a sum whose share and buffers are described, or without `memory` its size alone. The exchange is the
 * background of context->group until it is destroyed. Errors: HARK_OUT_OF_MEMORY. */
HARK_MUST_CHECK hark_status hark_gradient_exchange_create(hark_context *context, struct hark_gradient_sum *sum, bool memory,
                                                          hark_gradient_exchange **out, size_t *bytes);
void hark_gradient_exchange_destroy(hark_context *context, hark_gradient_exchange **exchange);

/* A leaf was made whose gradient is numbers [first, first + count): nodes from `node` on add to it. In the last part of a step this
 * determines when rounds may begin. Before the first step it determines their order, from the largest to the smallest `node`, and must be
 * called alike by all processes. */
void hark_gradient_exchange_leaf(hark_gradient_exchange *exchange, int64_t first, int64_t count, int32_t node);

/* A step begins. */
void hark_gradient_exchange_begin(hark_gradient_exchange *exchange);
/* The last part of a step begins. */
void hark_gradient_exchange_arm(hark_gradient_exchange *exchange);
/* In the backward of the last part the nodes from `node` on are done. Does nothing in other parts. Errors: HARK_CANCELLED. */
HARK_MUST_CHECK hark_status hark_gradient_exchange_advance(hark_gradient_exchange *exchange, int32_t node);
/* The last part is complete: all rounds may begin. */
void hark_gradient_exchange_close(hark_gradient_exchange *exchange);
/* Waits for all rounds. The sums are then in the memory of the gradients. Errors: HARK_CANCELLED. */
HARK_MUST_CHECK hark_status hark_gradient_exchange_finish(hark_gradient_exchange *exchange);

#endif
