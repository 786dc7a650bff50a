/* test_cores.c - the cores that a context's threads may run on, in programs whose environment asks OpenMP to bind threads: those that the
 * process was started with, and never more.
 *
 * The runtime reads the environment when it is loaded, so that every case is this program again, which prints what its threads find.
 */
#define _GNU_SOURCE /* affinity */
#include <dlfcn.h>
#include <hark/hark.h>
#include <math.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/core.h"
#include "core/parallel.h"
#include "core/thread_count.h"
#include "support/cmocka_all.h"
#include "support/run.h"
#include "support/setups.h"

#if defined(__linux__) && defined(HARK_WITH_THREADS)
#define CHILD "threads-of-a-child"
#define MEETING_SECONDS 20
#define TEXT_BYTES 256
#define THREADS_MOST 64

/* ---- the program again ---- */

typedef struct meeting {
  int count;
  atomic_int here;
  int cores[THREADS_MOST]; /* that the thread of a piece may run on; 0: the caller's piece */
} meeting;

static void meet(void *data, int64_t index, int worker) {
  meeting *const m = data;
  const time_t late = time(NULL) + MEETING_SECONDS;
  hark_cores own;
  atomic_fetch_add(&m->here, 1);
  while (atomic_load(&m->here) < m->count && time(NULL) <= late) (void)sched_yield();
  hark_cores_of_thread(&own);
  m->cores[index] = worker == 0 ? 0 : own.count;
}

/* Large enough for oneDNN, which must not bind the threads that call it. */
static void multiply(hark_context *context) {
  static const hark_matmul_attributes plain;
  static const hark_sample large = {"large", &plain, {{HARK_F32, 3, {2, 256, 256}, -1, 1}, {HARK_F32, 3, {2, 256, 256}, -1, 1}}};
  test_run run;
  test_run_open(&run, context, hark_operator_find("matmul"), &large, &(test_run_options){.type = HARK_F32});
  test_run_forward(&run);
  test_run_backward(&run, 0);
  test_run_close(&run);
}

/* Prints the number of threads, and the fewest and most cores that one beside the caller may run on. */
static int child(int threads) {
  hark_context *context;
  const hark_context_options options = {.struct_size = sizeof options, .threads = threads};
  if (hark_context_create(&options, &context) != HARK_OK) return 1;
  meeting m = {.count = hark_context_threads(context)};
  if (m.count > THREADS_MOST) return 1;
  int least = 0, most = 0;
  for (int i = 0; i < 2; i++) { /* before and after oneDNN */
    atomic_store(&m.here, 0);
    hark_parallel_for(context, m.count, meet, &m);
    for (int k = 0; k < m.count; k++) {
      if (m.cores[k] == 0) continue;
      least = least == 0 || m.cores[k] < least ? m.cores[k] : least;
      most = m.cores[k] > most ? m.cores[k] : most;
    }
    multiply(context);
  }
  printf("%d %d %d\n", m.count, least, most);
  hark_context_destroy(&context);
  return 0;
}

/* ---- the tests ---- */

static const char *program;
static cpu_set_t all; /* that the tests may use */

static int core_number(int which) {
  for (int core = 0; core < CPU_SETSIZE; core++)
    if (CPU_ISSET(core, &all) && which-- == 0) return core;
  return 0;
}

/* Runs this program with variables of the environment (NAME=VALUE, NULL), on `cores` of the machine's cores, counted from the last one; 0:
 * all. */
static void expect(const char *first, const char *second, int cores, int asked, int threads, int cores_of_others) {
  int ends[2];
  char text[TEXT_BYTES] = "";
  assert_int_equal(pipe(ends), 0);
  const pid_t process = fork();
  assert_true(process >= 0);
  if (process == 0) {
    char number[16];
    cpu_set_t own;
    CPU_ZERO(&own);
    for (int i = 0; i < cores; i++) CPU_SET(core_number(CPU_COUNT(&all) - 1 - i), &own);
    (void)snprintf(number, sizeof number, "%d", asked);
    static const char *const counts[] = {"OMP_NUM_THREADS", "OMP_THREAD_LIMIT", "SLURM_CPUS_PER_TASK"};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) (void)unsetenv(counts[i]);
    (void)putenv((char *)first);
    if (second != NULL) (void)putenv((char *)second);
    if (cores > 0 && sched_setaffinity(0, sizeof own, &own) != 0) _exit(1);
    if (dup2(ends[1], STDOUT_FILENO) < 0) _exit(1);
    (void)execl(program, program, CHILD, number, (char *)NULL);
    _exit(1);
  }
  (void)close(ends[1]);
  const ssize_t length = read(ends[0], text, sizeof text - 1);
  (void)close(ends[0]);
  int status = 0, found[3] = {0};
  assert_int_equal(waitpid(process, &status, 0), process);
  text[length > 0 ? length : 0] = '\0';
  if (sscanf(text, "%d %d %d", &found[0], &found[1], &found[2]) != 3) fail_msg("%s: status %x, \"%s\"", first, (unsigned)status, text);
  const int others = threads > 1 ? cores_of_others : 0;
  if (found[0] != threads || found[1] != others || found[2] != others)
    fail_msg("%s %s on %d cores, %d threads asked for: %d threads, others on %d to %d cores; expected %d on %d", first,
             second != NULL ? second : "", cores, asked, found[0], found[1], found[2], threads, others);
}

static bool is_one_core(void) {
  return sched_getaffinity(0, sizeof all, &all) != 0 || CPU_COUNT(&all) < 2 || CPU_COUNT(&all) > THREADS_MOST;
}

static void binding_leaves_the_cores_of_the_process(void **state) {
  static const char *const binding[] = {"HARK_TEST=",         "OMP_PROC_BIND=true",  "OMP_PROC_BIND=close",        "OMP_PROC_BIND=spread",
                                        "OMP_PLACES=threads", "OMP_PROC_BIND=false", "OMP_PROC_BIND=spread,close", "KMP_AFFINITY=compact"};
  (void)state;
  if (is_one_core()) skip();
  const int count = CPU_COUNT(&all);
  const double quota = hark_cpu_quota("");
  const int threads = quota > 0 && quota < count ? (int)ceil(quota) : count;
  for (size_t i = 0; i < sizeof binding / sizeof binding[0]; i++) {
    expect(binding[i], NULL, 0, 0, threads, count);
    expect(binding[i], NULL, 0, 3, 3, count);
    expect(binding[i], "OMP_PLACES=cores", 0, 0, threads, count);
    expect(binding[i], "OMP_NUM_THREADS=2,1", 0, 0, 2, count);
  }
}

/* taskset, numactl, cpusets: who has one core has one. */
static void a_process_of_one_core_keeps_to_it(void **state) {
  static const char *const binding[] = {"HARK_TEST=", "OMP_PROC_BIND=true", "OMP_PROC_BIND=close", "OMP_PLACES=threads"};
  (void)state;
  if (is_one_core()) skip();
  for (size_t i = 0; i < sizeof binding / sizeof binding[0]; i++) {
    expect(binding[i], NULL, 1, 0, 1, 1);
    expect(binding[i], NULL, 1, 3, 3, 1); /* threads that were asked for share it */
    expect(binding[i], "OMP_NUM_THREADS=2", 1, 0, 2, 1);
    expect(binding[i], "OMP_PLACES=cores", 1, 0, 1, 1);
  }
}

/* Where there is a runtime that reads them. */
static void places_that_were_chosen_are_kept_to(void **state) {
  (void)state;
  if (is_one_core() || dlsym(RTLD_DEFAULT, "omp_get_num_places") == NULL) skip();
  const int first = core_number(0), second = core_number(1);
  char one[TEXT_BYTES], both[TEXT_BYTES], old[TEXT_BYTES];
  (void)snprintf(one, sizeof one, "OMP_PLACES={%d}", second);
  (void)snprintf(both, sizeof both, "OMP_PLACES={%d},{%d}", second, first);
  (void)snprintf(old, sizeof old, "GOMP_CPU_AFFINITY=%d %d", first, second);
  expect(one, NULL, 0, 0, 1, 1);
  expect(one, NULL, 0, 2, 2, 1);
  expect(both, NULL, 0, 2, 2, 2);
  expect(old, NULL, 0, 2, 2, 2);
  expect("OMP_PROC_BIND=primary", NULL, 0, 0, 1, 1);
}

/* A thread that the program bound before it made the context is the program's choice. */
static void a_bound_thread_of_the_program(void **state) {
  (void)state;
  if (is_one_core()) skip();
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(core_number(1), &one);
  assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
  hark_context *context;
  const hark_context_options options = {.struct_size = sizeof options, .backend = "reference"};
  assert_int_equal(hark_context_create(&options, &context), HARK_OK);
  const char *const asked = getenv("OMP_NUM_THREADS");
  if (asked == NULL || asked[0] == '\0') assert_int_equal(hark_context_threads(context), 1);
  assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
  hark_context_destroy(&context);
}

/* Made by one thread, first used by another that is bound: threads are where the context was made. */
static void threads_do_not_follow_who_calls_first(void **state) {
  (void)state;
  if (is_one_core()) skip();
  hark_context *context;
  const hark_context_options options = {.struct_size = sizeof options, .backend = "reference", .threads = 2};
  assert_int_equal(hark_context_create(&options, &context), HARK_OK);
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(core_number(1), &one);
  assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
  meeting m = {.count = 2};
  hark_parallel_for(context, 2, meet, &m);
  assert_int_equal(m.cores[0] + m.cores[1], CPU_COUNT(&all));
  hark_cores own;
  hark_cores_of_thread(&own);
  assert_int_equal(own.count, 1); /* and the caller stays where it was */
  assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
  hark_context_destroy(&context);
}

int main(int count, char **arguments) {
  if (count == 3 && strcmp(arguments[1], CHILD) == 0) return child(atoi(arguments[2]));
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(binding_leaves_the_cores_of_the_process), cmocka_unit_test(a_process_of_one_core_keeps_to_it),
      cmocka_unit_test(places_that_were_chosen_are_kept_to),     cmocka_unit_test(a_bound_thread_of_the_program),
      cmocka_unit_test(threads_do_not_follow_who_calls_first),
  };
  program = arguments[0];
  return cmocka_run_group_tests(tests, NULL, NULL);
}
#else
static void nothing_to_test(void **state) {
  (void)state;
  skip();
}
int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(nothing_to_test)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
#endif
