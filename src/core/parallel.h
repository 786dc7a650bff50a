/* parallel.h - the default functions of the parallel table. */
#ifndef HARK_CORE_PARALLEL_H
#define HARK_CORE_PARALLEL_H

#include "core/core.h"

/* hark_parallel_for for pieces of equal length. Unless the host program has its own threads, each thread begins with a share of adjacent
 * pieces, so that successive operators find their rows in the cache of the thread that wrote them. */
void hark_parallel_for_equal(hark_context *context, int64_t count, hark_task *task, void *data);

/* True if work that takes one thread about so long is worth sharing with other threads. */
bool hark_parallel_pays(double nanoseconds);

/* hark_parallel_for_equal for work that may be short: the calling thread alone does work that is not worth sharing, in the same pieces, so
 * that the bits are the same. `nanoseconds`: of all the work. */
void hark_parallel_for_work(hark_context *context, int64_t count, double nanoseconds, hark_task *task, void *data);

/* Sets context->parallel: to the host program's table, or, if that is NULL, to context->threads threads of the context; in builds without
 * threads to the calling thread alone. HARK_OUT_OF_MEMORY. */
HARK_MUST_CHECK hark_status hark_parallel_open(hark_context *context, const hark_parallel *given);
void hark_parallel_close(hark_context *context);

#endif
