/* cores.h - the cores on which a thread may run, and the cores of this process. */
#ifndef HARK_CORE_CORES_H
#define HARK_CORE_CORES_H

#include <stdbool.h>

#define HARK_CORES_LIMIT 8192 /* the most for which Linux is built */
#define HARK_CORES_WORD_BITS ((int)(8 * sizeof(unsigned long)))

/* A set of logical cores; count 0: not known, as on other systems than Linux. */
typedef struct hark_cores {
  int count;
  unsigned long words[HARK_CORES_LIMIT / (8 * sizeof(unsigned long))];
} hark_cores;

/* The cores on which the calling thread may run. */
void hark_cores_of_thread(hark_cores *out);

/* The cores that this process may use, as far as the calling thread can know. Normally they are those of the thread: taskset, numactl,
 * cpusets and batch systems limit these. But if the environment requests that OpenMP binds threads (OMP_PROC_BIND, OMP_PLACES,
 * GOMP_CPU_AFFINITY), its runtime binds the first thread to the first place as soon as it is loaded, and every thread started by this one
 * gets that place too. For such a thread the result is the cores of all places: those that the process had, or those of OMP_PLACES. In a
 * parallel region of OpenMP, and with OMP_PROC_BIND=primary, the result is the thread's own cores. */
void hark_cores_of_process(hark_cores *out);

/* The cores of all places of the OpenMP runtime in this process; count 0: it binds no threads, or there is no runtime. */
void hark_cores_of_places(hark_cores *out);

/* Lets the calling thread run on these cores from now on; does nothing if they are unknown or not available. */
void hark_cores_use(const hark_cores *cores);

bool hark_cores_are_same(const hark_cores *a, const hark_cores *b);
/* The intersection of a and b. */
void hark_cores_common(const hark_cores *a, const hark_cores *b, hark_cores *out);

/* The number of physical cores among them: several logical cores may share one (hyper-threading). The count of logical cores if that is
 * unknown. `root` is a prefix of /sys. */
int hark_cores_physical(const hark_cores *cores, const char *root);

#endif
