/* parallel.c - work spread over the context's threads: the table that a host program may replace, filled with OpenMP by default.
 *
 * Workers take the least index that is left, so that a caller has its longest pieces first; or, of pieces of like length, each worker has a share of
 * neighbouring indices, which it takes in order, and then takes what is left of the others' shares. What a piece computes must depend on its index
 * alone. */
#include "core/parallel.h"

#ifdef _OPENMP
#include <omp.h>
#endif

#define SHARES 64 /* more threads have some in common */

#ifdef _OPENMP
typedef struct share {
  _Alignas(HARK_ALIGNMENT) int64_t next; /* a cache line of its own */
  int64_t end;
} share;

static void take_shares(share *shares, int count, int worker, hark_task *task, void *data) {
  for (int k = 0; k < count; k++) {
    share *from = &shares[(worker + k) % count];
    for (;;) {
      int64_t index;
#pragma omp atomic capture
      index = from->next++;
      if (index >= from->end) break;
      task(data, index, worker);
    }
  }
}
#endif

/* With `parts` shares; 1: the least index that is left, whoever takes it. */
static void run_shares(const hark_context *context, int64_t count, int parts, hark_task *task, void *data) {
#ifdef _OPENMP
  const int threads = (int)hark_min(context->threads, count);
  if (threads > 1 && !omp_in_parallel()) {
    share shares[SHARES];
    parts = (int)hark_min(hark_min(parts, threads), SHARES);
    for (int i = 0; i < parts; i++) shares[i] = (share){.next = count / parts * i + hark_min(i, count % parts)};
    for (int i = 0; i < parts; i++) shares[i].end = i + 1 < parts ? shares[i + 1].next : count;
#pragma omp parallel num_threads(threads)
    take_shares(shares, parts, omp_get_thread_num(), task, data);
    return;
  }
#else
  (void)context;
  (void)parts;
#endif
  for (int64_t index = 0; index < count; index++) task(data, index, 0);
}

static int default_threads(void *user) { return ((const hark_context *)user)->threads; }

static void default_run(void *user, int64_t count, hark_task *task, void *data) { run_shares(user, count, 1, task, data); }

hark_parallel hark_parallel_default(hark_context *context) {
  return (hark_parallel){.threads = default_threads, .run = default_run, .user = context};
}

int hark_parallel_machine_threads(void) {
#ifdef _OPENMP
  return omp_get_max_threads();
#else
  return 1;
#endif
}

void hark_parallel_for(hark_context *context, int64_t count, hark_task *task, void *data) {
  if (count == 1)
    task(data, 0, 0);
  else if (count > 1)
    context->parallel.run(context->parallel.user, count, task, data);
}

void hark_parallel_for_alike(hark_context *context, int64_t count, hark_task *task, void *data) {
  if (count > 1 && context->parallel.run == default_run)
    run_shares(context, count, SHARES, task, data);
  else
    hark_parallel_for(context, count, task, data);
}

/* Handing work over costs a third of a microsecond to one, and what both threads read and write has to come from the other's cache: one to three
 * microseconds in all, as measured, by how near the two are to each other. Halving less than twice that is a loss. */
#define SHARED_NANOSECONDS 6000

bool hark_parallel_pays(double nanoseconds) { return nanoseconds >= SHARED_NANOSECONDS; }

void hark_parallel_for_work(hark_context *context, int64_t count, double nanoseconds, hark_task *task, void *data) {
  if (hark_parallel_pays(nanoseconds))
    hark_parallel_for_alike(context, count, task, data);
  else
    for (int64_t index = 0; index < count; index++) task(data, index, 0);
}

int hark_workers(const hark_context *context) {
  const int threads = context->parallel.threads(context->parallel.user);
  return threads > 1 ? threads : 1;
}

int hark_context_threads(const hark_context *context) { return hark_workers(context); }
