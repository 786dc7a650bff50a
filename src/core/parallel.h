/* parallel.h - the default filling of the parallel table. */
#ifndef HARK_CORE_PARALLEL_H
#define HARK_CORE_PARALLEL_H

#include "core/core.h"

/* hark_parallel_for for pieces of like length: unless the host program has threads of its own each thread begins with a share of
 * neighbouring pieces, so that operators that follow each other find their rows in the cache of the thread that wrote them. */
void hark_parallel_for_alike(hark_context *context, int64_t count, hark_task *task, void *data);

/* Whether work that takes one thread of a present processor about so long is worth handing to others. */
bool hark_parallel_pays(double nanoseconds);

/* hark_parallel_for_alike for work that may be short: the calling thread alone does what does not pay, in the same pieces, so that the bits
 * are the same. `nanoseconds`: of all of it. */
void hark_parallel_for_work(hark_context *context, int64_t count, double nanoseconds, hark_task *task, void *data);

/* Fills context->parallel: with the host program's table, or, where that is NULL, with context->threads threads of the context's own; the
 * calling thread alone in builds without. HARK_OUT_OF_MEMORY. */
HARK_MUST_CHECK hark_status hark_parallel_open(hark_context *context, const hark_parallel *given);
void hark_parallel_close(hark_context *context);

#endif
