/* threads.c - threads that wait for work, and handing it to them.
 *
 *     job     number of the work, odd while it is open:  caller   job odd ... its own pieces ... job even, wait until inside = 0
 *     inside  threads that may look at it:               worker   inside + 1, job as it was seen? its pieces, inside - 1
 *
 * A worker that comes after the work was closed sees that and touches nothing; one that came before is counted, and the caller waits for it. Both
 * rest on one order of all four steps (sequential consistency): either the worker sees the even number or the caller sees the worker. So the caller
 * waits for pieces that somebody has begun and never for a thread to come, which on a busy machine may take until another program's time is up:
 * whoever is there does the work. (A team of OpenMP's ends with a barrier that all threads have to reach.)
 *
 * Without work a worker looks out for it for a while, so that operators that follow each other find it awake, and then sleeps.
 */
#include "core/threads.h"

#ifdef HARK_WITH_THREADS
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#define SHARES 64                  /* more threads have some in common */
#define WATCH_NANOSECONDS 200000   /* before sleep: waking up takes some tens of thousands, the gaps between operators a few thousands */
#define PATIENCE_NANOSECONDS 50000 /* before the caller offers its core to whom it waits for */
#define LOOKS 64                   /* between two looks at the clock */

typedef struct share {
  _Alignas(HARK_ALIGNMENT) _Atomic int64_t next; /* a cache line of its own */
  int64_t end;
} share;

typedef struct worker {
  hark_threads *threads;
  pthread_t thread;
  int number; /* the caller is 0 */
} worker;

struct hark_threads {
  _Alignas(HARK_ALIGNMENT) _Atomic uint64_t job;
  _Alignas(HARK_ALIGNMENT) atomic_int inside;
  _Alignas(HARK_ALIGNMENT) atomic_int asleep;
  atomic_bool ends;
  atomic_flag taken; /* somebody runs work */
  /* the open work */
  hark_task *task;
  void *data;
  int workers, parts; /* that it is for; of its shares */
  share shares[SHARES];
  pthread_mutex_t lock; /* of falling asleep */
  pthread_cond_t wake;
  int count, started; /* both with the caller */
  pid_t process;      /* that they were started in */
  worker worker[];    /* [count - 1] */
};

static size_t bytes_of(int count) { return sizeof(hark_threads) + (size_t)(count - 1) * sizeof(worker); }

static int64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

static void take_pieces(hark_threads *t, int number) {
  for (int k = 0; k < t->parts; k++) {
    share *const from = &t->shares[(number + k) % t->parts];
    for (;;) {
      const int64_t index = atomic_fetch_add_explicit(&from->next, 1, memory_order_relaxed);
      if (index >= from->end) break;
      t->task(t->data, index, number);
    }
  }
}

static bool is_news(hark_threads *t, uint64_t seen) {
  const uint64_t job = atomic_load(&t->job);
  return (job % 2 == 1 && job != seen) || atomic_load(&t->ends);
}

static void sleep_until_news(hark_threads *t, uint64_t seen) {
  pthread_mutex_lock(&t->lock);
  atomic_fetch_add(&t->asleep, 1); /* before looking once more: the caller opens work before it looks who sleeps */
  while (!is_news(t, seen)) pthread_cond_wait(&t->wake, &t->lock);
  atomic_fetch_sub(&t->asleep, 1);
  pthread_mutex_unlock(&t->lock);
}

static void wait_for_news(hark_threads *t, uint64_t seen) {
  const int64_t begin = now();
  do
    for (int i = 0; i < LOOKS; i++) {
      if (is_news(t, seen)) return;
      relax();
    }
  while (now() - begin < WATCH_NANOSECONDS);
  sleep_until_news(t, seen);
}

static void wake_all(hark_threads *t) {
  pthread_mutex_lock(&t->lock);
  pthread_cond_broadcast(&t->wake);
  pthread_mutex_unlock(&t->lock);
}

static void *work(void *argument) {
  worker *const w = argument;
  hark_threads *const t = w->threads;
  uint64_t seen = 0;
  for (;;) {
    wait_for_news(t, seen);
    if (atomic_load(&t->ends)) return NULL;
    const uint64_t job = atomic_load(&t->job);
    if (job % 2 == 0) continue;
    seen = job;
    atomic_fetch_add(&t->inside, 1);
    if (atomic_load(&t->job) == job && w->number < t->workers) take_pieces(t, w->number);
    atomic_fetch_sub(&t->inside, 1);
  }
}

/* Signals are the program's: its own threads handle them. With fewer threads than were asked for the others do more. */
static void start(hark_threads *t) {
  sigset_t all, before;
  t->process = getpid();
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  while (t->started < t->count) {
    worker *const next = &t->worker[t->started - 1];
    *next = (worker){.threads = t, .number = t->started};
    if (pthread_create(&next->thread, NULL, work, next) != 0) break;
    t->started++;
  }
  pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void wait_for_workers(hark_threads *t) {
  const int64_t begin = now();
  while (atomic_load(&t->inside) > 0) {
    for (int i = 0; i < LOOKS && atomic_load(&t->inside) > 0; i++) relax();
    if (now() - begin > PATIENCE_NANOSECONDS) sched_yield();
  }
}

static void divide(hark_threads *t, int64_t count, int parts) {
  t->parts = parts;
  for (int i = 0; i < parts; i++) {
    atomic_store_explicit(&t->shares[i].next, count / parts * i + hark_min(i, count % parts), memory_order_relaxed);
    t->shares[i].end = count / parts * (i + 1) + hark_min(i + 1, count % parts);
  }
}

void hark_threads_run(hark_threads *t, int64_t count, int parts, hark_task *task, void *data) {
  if (atomic_flag_test_and_set(&t->taken)) {
    for (int64_t index = 0; index < count; index++) task(data, index, 0);
    return;
  }
  if (t->started == 1) start(t);
  t->task = task;
  t->data = data;
  t->workers = (int)hark_min(t->started, count);
  divide(t, count, (int)hark_min(hark_min(parts, t->workers), SHARES));
  atomic_fetch_add(&t->job, 1);
  if (atomic_load(&t->asleep) > 0) wake_all(t);
  take_pieces(t, 0);
  atomic_fetch_add(&t->job, 1);
  if (atomic_load(&t->inside) > 0) wait_for_workers(t);
  atomic_flag_clear(&t->taken);
}

hark_status hark_threads_create(hark_context *context, int count, hark_threads **out) {
  hark_threads *t;
  HARK_TRY(hark_allocate_zero(context, bytes_of(count), (void **)&t));
  t->count = count;
  t->started = 1;
  atomic_flag_clear(&t->taken);
  pthread_mutex_init(&t->lock, NULL);
  pthread_cond_init(&t->wake, NULL);
  *out = t;
  return HARK_OK;
}

void hark_threads_destroy(hark_context *context, hark_threads **threads) {
  hark_threads *const t = *threads;
  if (t == NULL) return;
  *threads = NULL;
  if (t->started == 1 || t->process == getpid()) { /* a forked child has the memory of its parent and none of the threads */
    atomic_store(&t->ends, true);
    wake_all(t);
    for (int i = 0; i + 1 < t->started; i++) pthread_join(t->worker[i].thread, NULL);
    pthread_cond_destroy(&t->wake);
    pthread_mutex_destroy(&t->lock);
  }
  hark_release(context, t, bytes_of(t->count));
}
#endif
