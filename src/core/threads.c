/* threads.c - threads that wait for work, and the handover of work.
 *
 *     job     index of the work, whether it is open, number of its threads
 *     inside  number of threads that may read the work
 *
 *     caller  opens the job ... its own pieces ... closes the job, waits until inside = 0
 *     worker  increments inside; if the job is unchanged: its pieces; decrements inside
 *
 * A worker that comes after the work was closed sees this and accesses nothing; a worker that came before is counted, and the caller waits
 * for it. Both require one order of all four steps (sequential consistency): either the worker sees the closed job or the caller sees the
 * worker. So the caller waits for pieces that a worker has begun, and never for a thread to come, which on a busy machine may take until
 * another program's time slice ends: the threads that are present do the work. (A team of OpenMP ends with a barrier that all threads must
 * reach.)
 *
 * Without work a worker polls for a while, so that successive operators find it awake, and then sleeps. Each worker has its own semaphore:
 * a condition variable that all wait for may block the waking thread until previous waiters have run (glibc before 2.41), and a lock may
 * block it until its holder has run. The order is as above: a worker reports that it sleeps and then checks the job once more; the caller
 * opens the job and then checks which workers sleep.
 */
#include "core/threads.h"

#include "core/floating_point.h"

#ifdef HARK_WITH_THREADS
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#define SHARES 64                  /* with more threads, some share one */
#define WATCH_NANOSECONDS 200000   /* before sleep: waking up takes tens of thousands, gaps between operators a few thousand */
#define PATIENCE_NANOSECONDS 50000 /* before the caller yields its core to the thread for which it waits */
#define LOOKS 64                   /* polls between two readings of the clock */

/* A job's code: open or not, number of its threads, count of all jobs. */
#define OPEN 1
#define WORKERS_SHIFT 1
#define WORKERS_BITS 15
#define COUNT_SHIFT (WORKERS_SHIFT + WORKERS_BITS)
#define THREADS_MAX ((1 << WORKERS_BITS) - 1)
static int workers_of(uint64_t job) { return (int)(job >> WORKERS_SHIFT & THREADS_MAX); }

typedef struct share {
  _Alignas(HARK_ALIGNMENT) _Atomic int64_t next; /* on a separate cache line */
  int64_t end;
} share;

typedef struct worker {
  hark_threads *threads;
  pthread_t thread;
  int number; /* the caller is 0 */
  sem_t wake;
  atomic_bool sleeps;
} worker;

struct hark_threads {
  _Alignas(HARK_ALIGNMENT) _Atomic uint64_t job;
  _Alignas(HARK_ALIGNMENT) atomic_int inside;
  _Alignas(HARK_ALIGNMENT) atomic_int asleep;
  atomic_bool ends;
  atomic_flag taken; /* some thread runs work */
  /* the open work */
  hark_task *task;
  void *data;
  hark_floating_point floating_point; /* of the thread that requests the work */
  int parts;                          /* number of its shares */
  share shares[SHARES];
  int count, started; /* both include the caller */
  bool tried;         /* starting the threads was tried; after a failure it is not tried again */
  pid_t process;      /* in which they were started */
  hark_cores cores;   /* of all threads but the caller */
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
    while (atomic_load_explicit(&from->next, memory_order_relaxed) < from->end) {
      const int64_t index = atomic_fetch_add_explicit(&from->next, 1, memory_order_relaxed);
      if (index >= from->end) break;
      t->task(t->data, index, number);
    }
  }
}

/* True if there is open work for this worker that it has not seen yet, or at the end. */
static bool is_news(const worker *w, uint64_t seen) {
  hark_threads *const t = w->threads;
  const uint64_t job = atomic_load(&t->job);
  return ((job & OPEN) != 0 && job != seen && w->number < workers_of(job)) || atomic_load(&t->ends);
}

static bool stops_sleeping(worker *w) {
  if (!atomic_exchange(&w->sleeps, false)) return false;
  atomic_fetch_sub(&w->threads->asleep, 1);
  return true;
}

static void sleep_until_news(worker *w, uint64_t seen) {
  atomic_fetch_add(&w->threads->asleep, 1);
  atomic_store(&w->sleeps, true);
  if (is_news(w, seen) && stops_sleeping(w)) return;
  while (sem_wait(&w->wake) != 0 && errno == EINTR) continue; /* needed also if a post follows soon */
}

static void wait_for_news(worker *w, uint64_t seen) {
  while (!is_news(w, seen)) {
    const int64_t begin = now();
    do
      for (int i = 0; i < LOOKS; i++) {
        if (is_news(w, seen)) return;
        relax();
      }
    while (now() - begin < WATCH_NANOSECONDS);
    sleep_until_news(w, seen);
  }
}

/* Wakes the workers with numbers below `workers`. */
static void wake(hark_threads *t, int workers) {
  for (int i = 1; i < workers && atomic_load(&t->asleep) > 0; i++)
    if (stops_sleeping(&t->worker[i - 1])) (void)sem_post(&t->worker[i - 1].wake);
}

static void *work(void *argument) {
  worker *const w = argument;
  hark_threads *const t = w->threads;
  uint64_t seen = 0;
  hark_cores_use(&t->cores); /* not those of the thread that started it, which may be bound to one */
  for (;;) {
    wait_for_news(w, seen);
    if (atomic_load(&t->ends)) return NULL;
    const uint64_t job = atomic_load(&t->job);
    if ((job & OPEN) == 0 || w->number >= workers_of(job)) continue;
    seen = job;
    atomic_fetch_add(&t->inside, 1);
    if (atomic_load(&t->job) == job) {
      hark_floating_point own;
      hark_floating_point_enter(&t->floating_point, &own);
      take_pieces(t, w->number);
    }
    atomic_fetch_sub(&t->inside, 1);
  }
}

/* Signals are handled by the program's own threads, except those that a thread causes itself. If fewer threads than requested start, these
 * do more work. */
static void start(hark_threads *t) {
  static const int own[] = {SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP};
  sigset_t others, before;
  t->tried = true;
  t->process = getpid();
  sigfillset(&others);
  for (size_t i = 0; i < sizeof own / sizeof *own; i++) sigdelset(&others, own[i]);
  pthread_sigmask(SIG_SETMASK, &others, &before);
  while (t->started < t->count) {
    worker *const next = &t->worker[t->started - 1];
    next->threads = t;
    next->number = t->started;
    if (sem_init(&next->wake, 0, 0) != 0) break;
    if (pthread_create(&next->thread, NULL, work, next) != 0) {
      (void)sem_destroy(&next->wake);
      break;
    }
    t->started++;
  }
  pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void wait_for_workers(hark_threads *t) {
  const int64_t begin = now();
  while (atomic_load(&t->inside) > 0) {
    for (int i = 0; i < LOOKS && atomic_load(&t->inside) > 0; i++) relax();
    if (now() - begin <= PATIENCE_NANOSECONDS) continue;
    if (t->process != getpid()) atomic_store(&t->inside, 0); /* counted a thread that a fork left in the parent */
    (void)sched_yield();
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
  if (!t->tried) start(t);
  const int workers = (int)hark_min(t->started, count);
  const uint64_t closed = atomic_load_explicit(&t->job, memory_order_relaxed);
  t->task = task;
  t->data = data;
  hark_floating_point_get(&t->floating_point);
  divide(t, count, (int)hark_min(hark_min(parts, workers), SHARES));
  atomic_store(&t->job, ((closed >> COUNT_SHIFT) + 1) << COUNT_SHIFT | (uint64_t)workers << WORKERS_SHIFT | OPEN);
  wake(t, workers);
  take_pieces(t, 0);
  atomic_fetch_sub(&t->job, OPEN);
  if (atomic_load(&t->inside) > 0) wait_for_workers(t);
  atomic_flag_clear(&t->taken);
}

hark_status hark_threads_create(hark_context *context, int count, hark_threads **out) {
  hark_threads *t;
  count = (int)hark_min(count, THREADS_MAX);
  HARK_TRY(hark_allocate_zero(context, bytes_of(count), (void **)&t));
  t->count = count;
  t->cores = context->cores;
  t->started = 1;
  atomic_flag_clear(&t->taken);
  *out = t;
  return HARK_OK;
}

void hark_threads_destroy(hark_context *context, hark_threads **threads) {
  hark_threads *const t = *threads;
  if (t == NULL) return;
  *threads = NULL;
  if (t->started == 1 || t->process == getpid()) { /* a forked child has its parent's memory, but none of the threads */
    atomic_store(&t->ends, true);
    wake(t, t->started);
    for (int i = 0; i + 1 < t->started; i++) {
      pthread_join(t->worker[i].thread, NULL);
      (void)sem_destroy(&t->worker[i].wake);
    }
  }
  hark_release(context, t, bytes_of(t->count));
}
#endif
