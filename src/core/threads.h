/* threads.h - threads of a context for its parallel work, in builds that have them (HARK_WITH_THREADS). */
#ifndef HARK_CORE_THREADS_H
#define HARK_CORE_THREADS_H

#include "core/core.h"

typedef struct hark_threads hark_threads;

/* `count` threads, at least 2, of which the one that calls hark_threads_run is the first; the others begin with the first work.
 * HARK_OUT_OF_MEMORY. */
HARK_MUST_CHECK hark_status hark_threads_create(hark_context *context, int count, hark_threads **out);
/* Ends them. No work may be under way. */
void hark_threads_destroy(hark_context *context, hark_threads **threads);

/* Runs `count` pieces, cut into `parts` shares of neighbours; returns when all are done. Where work of these threads is under way already,
 * in a piece or by another thread of the program, the calling thread does all of it. */
void hark_threads_run(hark_threads *threads, int64_t count, int parts, hark_task *task, void *data);

#endif
