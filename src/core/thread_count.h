/* thread_count.h - the default number of threads of a context, and its origin. */
#ifndef HARK_CORE_THREAD_COUNT_H
#define HARK_CORE_THREAD_COUNT_H

#include "core/core.h"

#define HARK_THREADS_LIMIT 4096

/* The help text of the option --threads, for every command. */
#define HARK_THREADS_HELP                                                                                                                  \
  "number of threads; 0: OMP_NUM_THREADS if it is set, otherwise as many as cores, CPU quota and SLURM_CPUS_PER_TASK allow"

/* The origins of a number of threads, as words for people and for JSON. */
#define HARK_THREADS_REQUESTED "request"
#define HARK_THREADS_AFFINITY "affinity"
#define HARK_THREADS_MACHINE "machine" /* if its affinity is unknown */
#define HARK_THREADS_QUOTA "quota"
#define HARK_THREADS_PROGRAM "program" /* with its own pool */
#define HARK_THREADS_BUILD "build"     /* without threads */

/* The CPU time that the control groups of this process allow, in cores: 1.5 for cpu.max "150000 100000". The minimum of its group and those
 * above it, of version 1 (cpu.cfs_quota_us, cpu.cfs_period_us) and 2 (cpu.max). 0: no limit. `root` is a prefix of /proc and /sys: ""
 * except in tests. */
double hark_cpu_quota(const char *root);

/* The number of threads, and in *from its origin: one of the words above, or the name of an environment variable.
 *
 *   OMP_NUM_THREADS (of a list "4,2" the first number); otherwise the minimum of
 *   the number of `cores`, the CPU quota, rounded up, and SLURM_CPUS_PER_TASK;
 *   and at most OMP_THREAD_LIMIT.
 *
 * An empty environment variable counts as absent; a malformed one is ignored, with a warning to the context's logger. */
int hark_thread_count(hark_context *context, const char *root, int cores, const char **from);

#endif
