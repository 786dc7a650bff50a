/* thread_pool.c - see thread_pool.h. */
#include "support/thread_pool.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

typedef struct job {
  hark_task *task;
  void *data;
  int64_t count;
  _Atomic int64_t next;
  _Atomic int workers;
} job;

static const int sizes[TEST_POOL_THREADS] = {1, 2, 3, 4, 5, 6, 7, 8};

static void *work(void *argument) {
  job *j = argument;
  const int worker = atomic_fetch_add(&j->workers, 1);
  for (int64_t index; (index = atomic_fetch_add(&j->next, 1)) < j->count;) j->task(j->data, index, worker);
  return NULL;
}

static int threads_of(void *user) { return *(const int *)user; }

static void run(void *user, int64_t count, hark_task *task, void *data) {
  job j = {.task = task, .data = data, .count = count};
  pthread_t threads[TEST_POOL_THREADS];
  int started = 0;
  while (started + 1 < threads_of(user) && started + 1 < count && pthread_create(&threads[started], NULL, work, &j) == 0) started++;
  (void)work(&j);
  for (int i = 0; i < started; i++)
    if (pthread_join(threads[i], NULL) != 0) abort();
}

hark_parallel test_pool(int threads) { return (hark_parallel){.threads = threads_of, .run = run, .user = (void *)&sizes[threads - 1]}; }
