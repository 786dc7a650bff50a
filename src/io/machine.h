/* machine.h - the machine's memory, and this process's part of it, as Linux reports them. On other systems nothing is known: all fields are
 * zero. And a clock. */
#ifndef HARK_IO_MACHINE_H
#define HARK_IO_MACHINE_H

#include "core/core.h"

/* Memory that a process may still allocate. */
typedef struct hark_machine_memory {
  bool known;
  uint64_t bytes;
  const char *limit; /* its origin: "the machine", "the control group"; static */
} hark_machine_memory;

/* The minimum of the memory that the machine has left without swapping (MemAvailable) and that the limits of the process's control groups
 * (version 1 and 2, including those above them) leave. File caches that can be dropped count as free. `root` is a prefix of /proc and /sys:
 * "" except in tests. Limits that cannot be read count as none. Errors: HARK_OUT_OF_MEMORY, HARK_TOO_LARGE (root). */
HARK_MUST_CHECK hark_status hark_machine_memory_left(hark_context *context, const char *root, hark_machine_memory *out);

/* Resident bytes of this process, now and at the peak; 0 if unknown. */
typedef struct hark_process_memory {
  uint64_t resident, peak;
} hark_process_memory;
HARK_MUST_CHECK hark_status hark_process_memory_use(hark_context *context, hark_process_memory *out);

/* Seconds of a clock that never goes backward. */
double hark_machine_seconds(void);

#endif
