/* threads.h - threads of a context for its parallel work, in builds that have them (HARK_WITH_THREADS). */
#ifndef HARK_CORE_THREADS_H
#define HARK_CORE_THREADS_H

#include "core/core.h"

typedef struct hark_threads hark_threads;

/* Creates `count` threads, at least 2. The thread that calls hark_threads_run is the first of them; the others start with the first work.
 * HARK_OUT_OF_MEMORY. */
HARK_MUST_CHECK hark_status hark_threads_create(hark_context *context, int count, hark_threads **out);
/* Ends them. No work may be running. */
void hark_threads_destroy(hark_context *context, hark_threads **threads);

/* Runs `count` pieces, divided into `parts` shares of adjacent pieces; returns when all are done. If these threads are already running
 * work, in a piece or for another thread of the program, the calling thread does all of it. */
void hark_threads_run(hark_threads *threads, int64_t count, int parts, hark_task *task, void *data);

#endif
