/* cancel.h - calls that a program may end before they are done (hark_context_options.cancel).
 *
 *     hark_cancel_enter(context);
 *     status = ... work through hark_parallel_for() ...;
 *     return hark_cancel_leave(context, status);
 *
 * Between the two the program's function is called now and then. After it has returned true, hark_parallel_for() leaves out all further
 * pieces; a call with one piece always computes it, unless the piece itself calls the function. So serial code between pieces must be safe
 * with whatever is in the memory that pieces fill; its results are not used. Such calls may contain each other.
 */
#ifndef HARK_CORE_CANCEL_H
#define HARK_CORE_CANCEL_H

#include "core/core.h"

/* Sets context->cancelling; nothing if `cancel` is NULL. HARK_OUT_OF_MEMORY. */
HARK_MUST_CHECK hark_status hark_cancel_open(hark_context *context, hark_cancel *cancel, void *user);
void hark_cancel_close(hark_context *context);

void hark_cancel_enter(hark_context *context);
/* HARK_CANCELLED with its message if the call was cancelled, whatever `status` is; else `status`. */
hark_status hark_cancel_leave(hark_context *context, hark_status status);

/* True between enter and leave in a context that can be cancelled. */
bool hark_cancel_watches(const hark_context *context);
/* True if a piece is not to be computed. Asks the program if it was not asked for a while and the thread is that of the call. */
bool hark_cancel_ends(struct hark_cancelling *cancelling);
/* The same for the rest of a long piece: true if the call ends early. Takes some 30 ns; false in a context that cannot be cancelled. */
bool hark_cancel_now(hark_context *context);

#endif
