/* machine.h - how much memory there is, and how much of it this process has, as Linux reports it. Elsewhere nothing is known: all fields zero.
 * And a clock. */
#ifndef HARK_IO_MACHINE_H
#define HARK_IO_MACHINE_H

#include "core/core.h"

/* Memory that a process may still take. */
typedef struct hark_machine_memory {
  bool known;
  uint64_t bytes;
  const char *limit; /* what sets it: "the machine", "the control group"; static */
} hark_machine_memory;

/* The least of what the machine has left without swapping (MemAvailable) and of what the limits of the process's control groups (version 1
 * and 2, with those above them) leave. File caches that can be dropped count as free. `root` stands in front of /proc and /sys: "" but in
 * tests. What cannot be read is taken as no limit. Errors: HARK_OUT_OF_MEMORY, HARK_TOO_LARGE (root). */
HARK_MUST_CHECK hark_status hark_machine_memory_left(hark_context *context, const char *root, hark_machine_memory *out);

/* Resident bytes of this process, now and at most so far; 0 where they are not known. */
typedef struct hark_process_memory {
  uint64_t resident, peak;
} hark_process_memory;
HARK_MUST_CHECK hark_status hark_process_memory_use(hark_context *context, hark_process_memory *out);

/* Seconds of a clock that only goes forward. */
double hark_machine_seconds(void);

#endif
