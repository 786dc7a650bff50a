/* cores.c - see cores.h. The OpenMP runtime is called through the symbols of the process, if there are any: hark itself does not use
 * OpenMP, but oneDNN loads gcc's runtime, and programs that use hark may have that or another one. */
#define _GNU_SOURCE /* affinity; RTLD_DEFAULT */
#include "core/cores.h"

#include <string.h>

#include "core/system_files.h"

static bool has(const hark_cores *cores, int core) {
  return (cores->words[core / HARK_CORES_WORD_BITS] >> core % HARK_CORES_WORD_BITS & 1) != 0;
}

static void add(hark_cores *cores, int core) {
  if (core < 0 || core >= HARK_CORES_LIMIT || has(cores, core)) return;
  cores->words[core / HARK_CORES_WORD_BITS] |= 1UL << core % HARK_CORES_WORD_BITS;
  cores->count++;
}

bool hark_cores_are_same(const hark_cores *a, const hark_cores *b) {
  return a->count == b->count && memcmp(a->words, b->words, sizeof a->words) == 0;
}

void hark_cores_common(const hark_cores *a, const hark_cores *b, hark_cores *out) {
  hark_cores both = {0};
  for (int core = 0; core < HARK_CORES_LIMIT; core++)
    if (has(a, core) && has(b, core)) add(&both, core);
  *out = both;
}

#ifdef __linux__
#include <dlfcn.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

void hark_cores_of_thread(hark_cores *out) {
  memset(out, 0, sizeof *out);
  if (sched_getaffinity(0, sizeof out->words, (cpu_set_t *)out->words) == 0)
    out->count = CPU_COUNT_S(sizeof out->words, (cpu_set_t *)out->words);
  else
    memset(out, 0, sizeof *out);
}

void hark_cores_use(const hark_cores *cores) {
  if (cores->count > 0) (void)sched_setaffinity(0, sizeof cores->words, (const cpu_set_t *)cores->words);
}

/* ---- OpenMP ---- */

#define BIND_PRIMARY 2 /* omp_proc_bind_primary */

typedef struct openmp {
  int (*places)(void), (*level)(void), (*proc_bind)(void), (*cores_of_place)(int place);
  void (*core_numbers)(int place, int *numbers);
} openmp;

static bool find(const char *name, void *function) {
  void *const address = dlsym(RTLD_DEFAULT, name);
  memcpy(function, &address, sizeof address);
  return address != NULL;
}

/* Calls of a runtime may start it, and bind the calling thread: only done if binding has been requested. */
static bool binding_requested(void) {
  static const char *const names[] = {"OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY"};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    const char *const value = getenv(names[i]);
    if (value != NULL && value[0] != '\0') return true;
  }
  return false;
}

static bool find_openmp(openmp *omp) {
  return binding_requested() && find("omp_get_num_places", &omp->places) && find("omp_get_level", &omp->level) &&
         find("omp_get_proc_bind", &omp->proc_bind) && find("omp_get_place_num_procs", &omp->cores_of_place) &&
         find("omp_get_place_proc_ids", &omp->core_numbers);
}

static void add_place(const openmp *omp, int place, hark_cores *out) {
  int numbers[HARK_CORES_LIMIT];
  const int count = omp->cores_of_place(place);
  if (count < 1 || count > HARK_CORES_LIMIT) return;
  omp->core_numbers(place, numbers);
  for (int i = 0; i < count; i++) add(out, numbers[i]);
}

/* Adds all places of threads, and to *first the first place, to which the first thread is bound. */
static void add_places(const openmp *omp, hark_cores *first, hark_cores *all) {
  const int places = omp->proc_bind() == BIND_PRIMARY ? 1 : omp->places();
  if (omp->places() > 0) add_place(omp, 0, first);
  for (int i = 0; i < places; i++) add_place(omp, i, all);
}

void hark_cores_of_places(hark_cores *out) {
  openmp omp;
  hark_cores before, first = {0}, after;
  memset(out, 0, sizeof *out);
  if (!find_openmp(&omp)) return;
  hark_cores_of_thread(&before);
  add_places(&omp, &first, out);
  hark_cores_of_thread(&after);
  if (!hark_cores_are_same(&before, &after)) hark_cores_use(&before);
}

void hark_cores_of_process(hark_cores *out) {
  openmp omp;
  hark_cores first = {0}, all = {0}, after;
  hark_cores_of_thread(out);
  if (out->count == 0 || !find_openmp(&omp) || omp.level() > 0) return;
  add_places(&omp, &first, &all);
  hark_cores_of_thread(&after);
  if (!hark_cores_are_same(out, &after)) hark_cores_use(out);
  if (hark_cores_are_same(out, &first)) *out = all;
}

/* ---- hyper-threading ---- */

/* The lowest logical core that shares a core with this one: "0,64" or "0-1". */
static int first_sibling(const char *root, int core) {
  char folder[512], text[64];
  char *end;
  (void)snprintf(folder, sizeof folder, "%s/sys/devices/system/cpu/cpu%d/topology", root, core);
  if (!hark_system_read(folder, "thread_siblings_list", text, sizeof text)) return core;
  const long first = strtol(text, &end, 10);
  return end == text || first < 0 || first >= HARK_CORES_LIMIT ? core : (int)first;
}

int hark_cores_physical(const hark_cores *cores, const char *root) {
  hark_cores seen = {0};
  for (int core = 0; core < HARK_CORES_LIMIT; core++)
    if (has(cores, core)) add(&seen, first_sibling(root, core));
  return seen.count;
}
#else
void hark_cores_of_thread(hark_cores *out) { memset(out, 0, sizeof *out); }
void hark_cores_of_process(hark_cores *out) { memset(out, 0, sizeof *out); }
void hark_cores_of_places(hark_cores *out) { memset(out, 0, sizeof *out); }
void hark_cores_use(const hark_cores *cores) { (void)cores; }
int hark_cores_physical(const hark_cores *cores, const char *root) { return (void)root, cores->count; }
#endif
