/* test_threads.c - a context's own threads: work inside work, work from several threads of the program, work that is over before a worker
 * comes, and threads that are not there. */
#define _DEFAULT_SOURCE /* setrlimit of address space */
#include <hark/hark.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/core.h"
#include "core/parallel.h"
#include "support/cmocka_all.h"
#include "support/sanitized.h"
#include "support/setups.h"

static hark_context *open_threads(int threads) {
  const test_setup setup = {"reference", NULL};
  return test_setup_open(&setup, threads);
}

static void pause_for(long nanoseconds) {
  const struct timespec time = {0, nanoseconds};
  (void)nanosleep(&time, NULL);
}

/* ---- work that is over ---- */

#define PIECES 7

typedef struct brief {
  int64_t number; /* of the work */
  int64_t sums[PIECES];
} brief;

static void add_number(void *data, int64_t index, int worker) {
  brief *const b = data;
  (void)worker;
  b->sums[index] += b->number;
}

/* Each work has the same memory: a worker that came late, or looked at the work before, would add once more or another number. */
static void workers_that_come_late_touch_nothing(void **state) {
  (void)state;
  hark_context *context = open_threads(4);
  for (int64_t number = 1; number <= 20000; number++) {
    brief b = {.number = number};
    hark_parallel_for_equal(context, 2 + number % (PIECES - 1), add_number, &b);
    for (int64_t i = 0; i < PIECES; i++) assert_int_equal(b.sums[i], i < 2 + number % (PIECES - 1) ? number : 0);
    if (number % 1000 == 0) pause_for(2000000); /* they fall asleep, and are woken */
  }
  hark_context_destroy(&context);
}

/* ---- work for all ---- */

#define MEETING 3
#define MEETING_SECONDS 20
#define MEETINGS 300

typedef struct meeting {
  atomic_int here;
  atomic_bool alone;
} meeting;

/* Over when all are there, each in a thread of its own. */
static void meet(void *data, int64_t index, int worker) {
  meeting *const m = data;
  const time_t late = time(NULL) + MEETING_SECONDS;
  (void)index, (void)worker;
  atomic_fetch_add(&m->here, 1);
  while (atomic_load(&m->here) < MEETING && !atomic_load(&m->alone)) {
    (void)sched_yield();
    if (time(NULL) > late) atomic_store(&m->alone, true);
  }
}

/* Awake, asleep, and about to fall asleep, which is when a call is easily missed: between works that many nanoseconds. */
static void all_threads_come(void **state) {
  static const long pauses[] = {0, 150000, 200000, 250000, 2000000};
  (void)state;
  hark_context *context = open_threads(MEETING);
  for (int i = 0; i < MEETINGS && hark_context_threads(context) == MEETING; i++) {
    meeting m = {0};
    hark_parallel_for(context, MEETING, meet, &m);
    assert_false(atomic_load(&m.alone));
    pause_for(pauses[i % (int)(sizeof pauses / sizeof *pauses)]);
  }
  hark_context_destroy(&context);
}

/* ---- work inside work, and beside it ---- */

#define OUTER 24
#define INNER 9

typedef struct nested {
  hark_context *context;
  atomic_int seen[OUTER][INNER];
  atomic_bool bad_worker;
} nested;

typedef struct row {
  nested *all;
  int64_t outer;
} row;

static void inner_piece(void *data, int64_t index, int worker) {
  const row *const r = data;
  atomic_fetch_add(&r->all->seen[r->outer][index], 1);
  if (worker != 0) atomic_store(&r->all->bad_worker, true); /* the thread that asks does all of it */
}

static void outer_piece(void *data, int64_t index, int worker) {
  row r = {data, index};
  (void)worker;
  hark_parallel_for(r.all->context, INNER, inner_piece, &r);
}

static void assert_seen(nested *n, int times) {
  for (int i = 0; i < OUTER; i++)
    for (int j = 0; j < INNER; j++) assert_int_equal(atomic_load(&n->seen[i][j]), times);
}

static void work_inside_of_a_piece_is_done_there(void **state) {
  (void)state;
  nested n = {.context = open_threads(3)};
  hark_parallel_for(n.context, OUTER, outer_piece, &n);
  assert_seen(&n, 1);
  assert_false(atomic_load(&n.bad_worker));
  hark_context_destroy(&n.context);
}

#define CALLERS 3
#define TIMES 200

static void *call_often(void *argument) {
  nested *const n = argument;
  for (int i = 0; i < TIMES; i++) hark_parallel_for_equal(n->context, OUTER, outer_piece, n);
  return NULL;
}

static void several_threads_of_the_program_may_ask(void **state) {
  (void)state;
  nested n = {.context = open_threads(3)};
  pthread_t callers[CALLERS];
  for (int i = 0; i < CALLERS; i++) assert_int_equal(pthread_create(&callers[i], NULL, call_often, &n), 0);
  for (int i = 0; i < CALLERS; i++) assert_int_equal(pthread_join(callers[i], NULL), 0);
  assert_seen(&n, CALLERS * TIMES);
  hark_context_destroy(&n.context);
}

/* ---- threads that are not there ---- */

#if !TEST_SANITIZED
#define CHILD_SECONDS 20 /* a child that waits for a thread that does not come is ended by its alarm */

static int pieces_done(hark_context *context) {
  brief b = {.number = 1};
  int done = 0;
  hark_parallel_for(context, PIECES, add_number, &b);
  for (int i = 0; i < PIECES; i++) done += (int)b.sums[i];
  return done;
}

static void assert_child_does_all(pid_t child) {
  int status = 0;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), PIECES);
}

#define FORKS 300

/* Nobody waits for a thread to come, only for pieces that one has begun: neither while workers look out for work, nor fall asleep, nor
 * sleep. */
static void forked_children_do_the_work_alone(void **state) {
  (void)state;
  hark_context *context = open_threads(4);
  for (int i = 0; i < FORKS; i++) {
    assert_int_equal(pieces_done(context), PIECES);
    if (i % 3 > 0) pause_for(i % 3 == 1 ? 200000 + 1000 * i : 2000000);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
      (void)alarm(CHILD_SECONDS);
      const int done = pieces_done(context);
      hark_context_destroy(&context);
      _exit(done);
    }
    assert_child_does_all(child);
  }
  assert_int_equal(pieces_done(context), PIECES);
  hark_context_destroy(&context);
}

/* There is no memory for their stacks. */
static void threads_that_cannot_begin_are_done_without(void **state) {
  (void)state;
  const pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    (void)alarm(CHILD_SECONDS);
    hark_context *context = open_threads(3);
    const struct rlimit none = {1, 1};
    if (setrlimit(RLIMIT_AS, &none) != 0) _exit(0);
    _exit(pieces_done(context));
  }
  assert_child_does_all(child);
}
#endif

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(workers_that_come_late_touch_nothing),
    cmocka_unit_test(all_threads_come),
    cmocka_unit_test(work_inside_of_a_piece_is_done_there),
    cmocka_unit_test(several_threads_of_the_program_may_ask),
#if !TEST_SANITIZED
    cmocka_unit_test(forked_children_do_the_work_alone),
    cmocka_unit_test(threads_that_cannot_begin_are_done_without),
#endif
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
