/* parallel.h - the default filling of the parallel table. */
#ifndef HARK_CORE_PARALLEL_H
#define HARK_CORE_PARALLEL_H

#include "core/core.h"

/* hark_parallel_for for work that may be short: the calling thread alone does what takes less than a few microseconds, in the same pieces, so that
 * the bits are the same. `nanoseconds`: about how long all of it takes one thread of a present processor. */
void hark_parallel_for_work(hark_context *context, int64_t count, double nanoseconds, hark_task *task, void *data);

/* OpenMP with context->threads threads, or the calling thread alone in builds without it. */
hark_parallel hark_parallel_default(hark_context *context);

/* How many threads the default would use. */
int hark_parallel_machine_threads(void);

#endif
