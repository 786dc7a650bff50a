/* cores.h - which cores of the machine a thread may run on, and which ones this process has. */
#ifndef HARK_CORE_CORES_H
#define HARK_CORE_CORES_H

#include <stdbool.h>

#define HARK_CORES_LIMIT 8192 /* that Linux is built for at most */
#define HARK_CORES_WORD_BITS ((int)(8 * sizeof(unsigned long)))

/* A set of logical cores; count 0: not known, as on other systems than Linux. */
typedef struct hark_cores {
  int count;
  unsigned long words[HARK_CORES_LIMIT / (8 * sizeof(unsigned long))];
} hark_cores;

/* Those that the calling thread may run on. */
void hark_cores_of_thread(hark_cores *out);

/* Those that this process may use, as far as the calling thread can know. They are those of the thread: taskset, numactl, cpusets and batch
 * systems limit these. But where the environment asks OpenMP to bind threads (OMP_PROC_BIND, OMP_PLACES, GOMP_CPU_AFFINITY), its runtime
 * binds the first thread to the first place as soon as it is loaded, and every thread that this one starts is on that place too. Such a
 * thread has the cores of all places, which are those that the process had, or those of OMP_PLACES; in a parallel region of OpenMP, and
 * with OMP_PROC_BIND=primary, its own. */
void hark_cores_of_process(hark_cores *out);

/* Those of all places of the OpenMP runtime in this process; count 0: it binds no threads, or there is none. */
void hark_cores_of_places(hark_cores *out);

/* The calling thread may run on these from now on; nothing happens where they are not known or not to be had. */
void hark_cores_use(const hark_cores *cores);

bool hark_cores_are_same(const hark_cores *a, const hark_cores *b);
/* a and b: those that are in both. */
void hark_cores_common(const hark_cores *a, const hark_cores *b, hark_cores *out);

/* How many of them are cores of their own: several logical ones may share one (hyper-threading). The count where that is not known. `root`
 * stands in front of /sys. */
int hark_cores_physical(const hark_cores *cores, const char *root);

#endif
