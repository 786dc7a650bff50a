/* parallel.h - the default filling of the parallel table. */
#ifndef HARK_CORE_PARALLEL_H
#define HARK_CORE_PARALLEL_H

#include "core/core.h"

/* OpenMP with context->threads threads, or the calling thread alone in builds without it. */
hark_parallel hark_parallel_default(hark_context *context);

/* How many threads the default would use. */
int hark_parallel_machine_threads(void);

#endif
