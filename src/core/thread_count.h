/* thread_count.h - how many threads a context has that is not given a number, and what that comes from. */
#ifndef HARK_CORE_THREAD_COUNT_H
#define HARK_CORE_THREAD_COUNT_H

#include "core/core.h"

#define HARK_THREADS_LIMIT 4096

/* The option of every command that has it. */
#define HARK_THREADS_HELP "threads; 0: OMP_NUM_THREADS, else as many as cores, CPU quota and SLURM_CPUS_PER_TASK allow"

/* What a number of threads comes from, in words for people and for JSON. */
#define HARK_THREADS_ASKED "request"
#define HARK_THREADS_AFFINITY "affinity"
#define HARK_THREADS_MACHINE "machine" /* whose affinity is not known */
#define HARK_THREADS_QUOTA "quota"
#define HARK_THREADS_PROGRAM "program" /* its own pool */
#define HARK_THREADS_BUILD "build"     /* without threads */

/* How many cores' worth of time the control groups of this process leave it: 1.5 for cpu.max "150000 100000", the least of its group and
 * those above, of version 1 (cpu.cfs_quota_us, cpu.cfs_period_us) and 2 (cpu.max). 0: no limit. `root` stands in front of /proc and /sys:
 * "" but in tests. */
double hark_cpu_quota(const char *root);

/* The number of threads, and in *from what it comes from: one of the words above, or the name of an environment variable.
 *
 *   OMP_NUM_THREADS, of whose list "4,2" the first number counts; else the least of
 *   the number of `cores`, the CPU quota, rounded up, and SLURM_CPUS_PER_TASK;
 *   and not more than OMP_THREAD_LIMIT.
 *
 * An environment variable that is empty is none; one that is malformed is passed over with a warning to the context's logger. */
int hark_thread_count(hark_context *context, const char *root, int cores, const char **from);

#endif
