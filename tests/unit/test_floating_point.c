/* test_floating_point.c - the rounding, the flushing of small numbers and the traps that work is done with: those of the thread that asks
 * for it, on every thread, and nothing of it stays with threads that are the program's. */
#define _GNU_SOURCE /* feenableexcept */
#include <fenv.h>
#include <float.h>
#include <hark/hark.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/core.h"
#include "core/floating_point.h"
#include "core/parallel.h"
#include "support/cmocka_all.h"
#include "support/compare.h"
#include "support/flush.h"
#include "support/setups.h"

#define THREADS 3
#define MEETING_SECONDS 20
#define CALLS 24

typedef struct float_state {
  int rounding;
  bool flush;
} float_state;

static const float_state states[] = {
    {FE_TONEAREST, false}, {FE_TONEAREST, true}, {FE_UPWARD, false}, {FE_DOWNWARD, true}, {FE_TOWARDZERO, false}};
#define STATES ((int)(sizeof states / sizeof states[0]))

static void set(const float_state *s) {
  assert_int_equal(fesetround(s->rounding), 0);
  test_flush(s->flush);
}

/* What shows the state: a sum that is rounded, of either sign, and a product below the least normal number. */
typedef struct seen {
  double up, down;
  float tiny;
} seen;

static seen look(void) {
  static volatile double one = 1, small = 1e-20;
  static volatile float least = FLT_MIN, half = 0.5F;
  return (seen){one + small, -one + -small, least * half};
}

typedef struct meeting {
  atomic_int here;
  atomic_bool alone;
  bool divides;
  seen seen[THREADS];
  int flags[THREADS]; /* that pieces find */
} meeting;

/* Over when all are there, so that each thread has a piece. */
static void meet(void *data, int64_t index, int worker) {
  static volatile double zero = 0;
  meeting *const m = data;
  const time_t late = time(NULL) + MEETING_SECONDS;
  m->flags[index] = fetestexcept(FE_INVALID);
  atomic_fetch_add(&m->here, 1);
  while (atomic_load(&m->here) < THREADS && !atomic_load(&m->alone)) {
    (void)sched_yield();
    if (time(NULL) > late) atomic_store(&m->alone, true);
  }
  if (m->divides && worker > 0) {
    volatile const double nothing = zero / zero;
    (void)nothing;
  }
  m->seen[index] = look();
}

static void assert_like_here(const meeting *m) {
  const seen here = look();
  assert_false(atomic_load(&m->alone));
  for (int i = 0; i < THREADS; i++) {
    if (memcmp(&m->seen[i].up, &here.up, sizeof here.up) != 0 || memcmp(&m->seen[i].down, &here.down, sizeof here.down) != 0 ||
        memcmp(&m->seen[i].tiny, &here.tiny, sizeof here.tiny) != 0)
      fail_msg("piece %d has 1 + x = %a, -1 - x = %a, tiny %a; its caller %a, %a, %a", i, m->seen[i].up, m->seen[i].down,
               (double)m->seen[i].tiny, here.up, here.down, (double)here.tiny);
  }
}

static void check_states(hark_context *context) {
  fenv_t before;
  fegetenv(&before);
  for (int i = 0; i < CALLS; i++) {
    meeting m = {0};
    set(&states[i % STATES]);
    hark_parallel_for(context, THREADS, meet, &m);
    assert_like_here(&m);
    assert_int_equal(fegetround(), states[i % STATES].rounding);
  }
  fesetenv(&before);
}

static void workers_compute_as_their_caller_does(void **state) {
  (void)state;
  const test_setup setup = {"reference", NULL};
  hark_context *context = test_setup_open(&setup, THREADS);
  if (hark_context_threads(context) == THREADS) check_states(context);
  test_setup_close(context);
}

/* ---- threads of the program ---- */

typedef struct pool_work {
  hark_task *task;
  void *data;
  int64_t count;
  _Atomic int64_t next;
  atomic_int worker, changed;
} pool_work;

static void take_pieces(pool_work *w) {
  const int worker = atomic_fetch_add(&w->worker, 1);
  for (int64_t index; (index = atomic_fetch_add(&w->next, 1)) < w->count;) w->task(w->data, index, worker);
}

/* Each thread of the pool rounds downwards and flushes, and has no flag raised. */
static void *pool_thread(void *argument) {
  pool_work *const w = argument;
  const float_state own = {FE_DOWNWARD, true};
  set(&own);
  const seen before = look();
  feclearexcept(FE_ALL_EXCEPT);
  take_pieces(w);
  if (fegetround() != FE_DOWNWARD || fetestexcept(FE_ALL_EXCEPT) != 0) atomic_fetch_add(&w->changed, 1);
  const seen after = look();
  if (memcmp(&before.tiny, &after.tiny, sizeof after.tiny) != 0) atomic_fetch_add(&w->changed, 1);
  return NULL;
}

static int pool_threads(void *user) {
  (void)user;
  return THREADS;
}

static void pool_run(void *user, int64_t count, hark_task *task, void *data) {
  pool_work w = {.task = task, .data = data, .count = count};
  pthread_t threads[THREADS - 1];
  for (int i = 0; i < THREADS - 1; i++) assert_int_equal(pthread_create(&threads[i], NULL, pool_thread, &w), 0);
  while (atomic_load(&w.worker) == 0) (void)sched_yield(); /* number 0 is not the caller: nothing says that it is */
  take_pieces(&w);
  for (int i = 0; i < THREADS - 1; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
  *(int *)user += atomic_load(&w.changed);
}

/* Small results are zeros while work asks for it, on all threads; on other processors than x86 nothing changes. */
static void work_may_flush_small_results(void **state) {
  (void)state;
  const test_setup setup = {"reference", NULL};
  hark_context *context = test_setup_open(&setup, THREADS);
  const seen as_before = look();
  hark_floating_point before;
  hark_floating_point_hold_flushing(&before, true);
  meeting m = {0};
  const seen meanwhile = look();
  if (hark_context_threads(context) == THREADS) {
    hark_parallel_for(context, THREADS, meet, &m);
    assert_like_here(&m);
  }
  hark_floating_point_leave(&before);
  assert_true(look().tiny == as_before.tiny);
  assert_true(as_before.tiny > 0);
#if defined(__x86_64__)
  assert_true(meanwhile.tiny == 0);
#else
  assert_true(meanwhile.tiny > 0);
#endif
  test_setup_close(context);
}

static void threads_of_the_program_keep_their_own(void **state) {
  (void)state;
  int changed = 0;
  const hark_parallel pool = {pool_threads, pool_run, &changed};
  const hark_context_options options = {.struct_size = sizeof options, .parallel = &pool, .backend = "reference"};
  hark_context *context;
  assert_int_equal(hark_context_create(&options, &context), HARK_OK);
  check_states(context);
  assert_int_equal(changed, 0);
  hark_context_destroy(&context);
}

/* ---- products that are large enough for oneDNN, where it is there ---- */

/* Of numbers whose products lie about the least normal one. */
static const hark_matmul_attributes plain;
static const hark_sample large = {
    "large", &plain, {{HARK_F32, 3, {2, 256, 256}, -1e-19, 1e-19}, {HARK_F32, 3, {2, 256, 256}, -1e-19, 1e-19}}};

static void multiply(hark_context *context, int state, test_results *out) {
  test_run run;
  fenv_t before;
  test_run_open(&run, context, hark_operator_find("matmul"), &large, &(test_run_options){.type = HARK_F32});
  fegetenv(&before);
  set(&states[state]);
  test_run_forward(&run);
  test_run_backward(&run, 0);
  fesetenv(&before);
  test_results_read(&run, true, out);
  test_run_close(&run);
}

static void large_products_have_the_same_bits(void **state) {
  (void)state;
  const size_t bytes = (size_t)2 * 256 * 256 * sizeof(double);
  test_setup setups[TEST_MAX_SETUPS];
  for (int s = test_setups(setups) - 1; s >= 0; s--) {
    if (strcmp(setups[s].backend, "cpu") != 0) continue;
    hark_context *alone = test_setup_open(&setups[s], 1), *together = test_setup_open(&setups[s], THREADS);
    for (int i = 0; i < CALLS; i++) {
      test_results expected, results;
      multiply(alone, i % STATES, &expected);
      multiply(together, i % STATES, &results);
      assert_memory_equal(results.values[TEST_OUTPUT][0], expected.values[TEST_OUTPUT][0], bytes);
      for (int k = 0; k < 2; k++)
        assert_memory_equal(results.values[TEST_INPUT_GRADIENT][k], expected.values[TEST_INPUT_GRADIENT][k], bytes);
      test_results_free(&expected);
      test_results_free(&results);
    }
    test_setup_close(alone);
    test_setup_close(together);
  }
}

/* ---- flags and traps ---- */

static void flags_of_one_call_are_not_seen_by_the_next(void **state) {
  (void)state;
  const test_setup setup = {"reference", NULL};
  hark_context *context = test_setup_open(&setup, THREADS);
  for (int i = 0; i < 4 && hark_context_threads(context) == THREADS; i++) {
    meeting m = {.divides = true};
    feclearexcept(FE_ALL_EXCEPT);
    hark_parallel_for(context, THREADS, meet, &m);
    for (int k = 0; k < THREADS; k++) assert_int_equal(m.flags[k], 0);
  }
  test_setup_close(context);
}

/* Traps that the caller has asked for would end the program in a thread that it knows nothing of. */
static void workers_do_not_trap(void **state) {
  (void)state;
  const pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    const test_setup setup = {"reference", NULL};
    feenableexcept(FE_INVALID | FE_DIVBYZERO | FE_OVERFLOW);
    const int traps = fegetexcept(); /* many ARM processors have none */
    hark_context *context = test_setup_open(&setup, THREADS);
    meeting m = {.divides = true};
    if (hark_context_threads(context) == THREADS) hark_parallel_for(context, THREADS, meet, &m);
    _exit(fegetexcept() == traps ? 0 : 1);
  }
  int status = 0;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(workers_compute_as_their_caller_does),       cmocka_unit_test(work_may_flush_small_results),
      cmocka_unit_test(threads_of_the_program_keep_their_own),      cmocka_unit_test(large_products_have_the_same_bits),
      cmocka_unit_test(flags_of_one_call_are_not_seen_by_the_next), cmocka_unit_test(workers_do_not_trap),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
