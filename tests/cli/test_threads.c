/* test_threads.c - the command's threads in the environments of clusters: how many, what that comes from, which cores they may run on, and
 * what is said where they share one. */
#define _GNU_SOURCE /* affinity */
#include <dirent.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cli/common.h"
#include "core/thread_count.h"
#include "support/cmocka_all.h"
#include "support/train/command_place.h"

static char folder[TEST_PATH_BYTES];
static test_output output;
static cpu_set_t all;

static int begin(void **state) {
  (void)state;
  command_place_open(folder);
  return 0;
}

static int end(void **state) {
  (void)state;
  command_place_close(folder, &output);
  return 0;
}

static bool is_one_core(void) {
#if defined(__linux__) && defined(HARK_WITH_THREADS)
  return sched_getaffinity(0, sizeof all, &all) != 0 || CPU_COUNT(&all) < 2;
#else
  return true;
#endif
}

static int core_number(int which) {
  for (int core = 0; core < CPU_SETSIZE; core++)
    if (CPU_ISSET(core, &all) && which-- == 0) return core;
  return 0;
}

/* "hark version --json" in an environment that says nothing else of threads. */
static void expect_version(const char *environment, int threads, const char *from, int cores) {
  char words[512];
  (void)snprintf(words, sizeof words, "env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT -u SLURM_CPUS_PER_TASK %s", environment);
  test_command_run(folder, words, "version --json", &output);
  assert_int_equal(output.code, HARK_EXIT_DONE);
  json_t *const object = command_json(&output);
  const char *const source = json_string_value(json_object_get(object, "threads_from"));
  if (command_number(object, "threads") != threads || command_number(object, "cores") != cores || source == NULL ||
      strcmp(source, from) != 0)
    fail_msg("%s: %s, expected %d threads by %s on %d cores", environment, output.out, threads, from, cores);
  json_decref(object);
}

static void version_says_where_the_number_comes_from(void **state) {
  (void)state;
  if (is_one_core() || hark_cpu_quota("") > 0) skip();
  const int count = CPU_COUNT(&all), last = core_number(count - 1);
  char environment[256];
  expect_version("", count, HARK_THREADS_AFFINITY, count);
  static const char *const binding[] = {"OMP_PROC_BIND=true", "OMP_PROC_BIND=close", "OMP_PLACES=threads", "KMP_AFFINITY=compact"};
  for (size_t i = 0; i < sizeof binding / sizeof binding[0]; i++) {
    expect_version(binding[i], count, HARK_THREADS_AFFINITY, count);
    (void)snprintf(environment, sizeof environment, "%s taskset -c %d", binding[i], last);
    expect_version(environment, 1, HARK_THREADS_AFFINITY, 1);
  }
  /* gcc's runtime would leave the core that taskset has given */
  (void)snprintf(environment, sizeof environment, "'GOMP_CPU_AFFINITY=%d %d' taskset -c %d", core_number(0), core_number(1),
                 core_number(0));
  expect_version(environment, 1, HARK_THREADS_AFFINITY, 1);
  expect_version("OMP_NUM_THREADS=3,2", 3, "OMP_NUM_THREADS", count);
  expect_version("OMP_NUM_THREADS=3 OMP_THREAD_LIMIT=2", 2, "OMP_THREAD_LIMIT", count);
  expect_version("SLURM_CPUS_PER_TASK=1", 1, "SLURM_CPUS_PER_TASK", count);
  expect_version("MKL_NUM_THREADS=1", count, HARK_THREADS_AFFINITY, count);
  test_command_run(folder, "env OMP_NUM_THREADS=none", "version", &output);
  assert_int_equal(output.code, HARK_EXIT_DONE);
  assert_non_null(strstr(output.err, "hark version: warning: OMP_NUM_THREADS is \"none\", expected a whole number in [1, 4096]"));
  assert_non_null(strstr(output.out, "by affinity"));
}

/* ---- threads that share a core ---- */

#define MODEL "--data text.txt --layers 1 --width 16 --heads 2 --context 8 --batch 2 --steps 2 "
#define SHARING "share 1 core, where 1 would be as fast"

static void expect_warning(const char *environment, const char *words, const char *warning) {
  test_command_run(folder, environment, words, &output);
  if (output.code != HARK_EXIT_DONE) fail_msg("hark %s: exit %d: %s", words, output.code, output.err);
  if ((warning != NULL) != (strstr(output.err, " share ") != NULL) || (warning != NULL && strstr(output.err, warning) == NULL))
    fail_msg("%s hark %s, expected \"%s\": %s", environment, words, warning != NULL ? warning : "", output.err);
}

static void threads_that_share_a_core_are_reported(void **state) {
  (void)state;
  if (is_one_core() || hark_cpu_quota("") > 0) skip();
  char one[128], bound[128];
  (void)snprintf(one, sizeof one, "taskset -c %d env -u OMP_NUM_THREADS", core_number(0));
  (void)snprintf(bound, sizeof bound, "OMP_PLACES={%d} env OMP_NUM_THREADS=2", core_number(0));
  expect_warning(one, "train --out a --threads 2 " MODEL, "hark train: warning: 2 threads (by request) " SHARING);
  expect_warning(one, "train --out b " MODEL, NULL);
  expect_warning(one, "bench machine --rounds 1 --threads 3", "hark bench: warning: 3 threads (by request) " SHARING);
  assert_non_null(strstr(output.out, "3, by request; 1 core"));
  assert_non_null(strstr(output.out, "one thread's peak: the threads share cores"));
  expect_warning("OMP_PROC_BIND=true env -u OMP_NUM_THREADS", "train --out c --threads 2 " MODEL, NULL);
#ifdef HARK_WITH_ONEDNN
#ifndef __clang__
  expect_warning(bound, "bench machine --rounds 1", "2 threads (by OMP_NUM_THREADS) " SHARING);
#endif
#endif
}

/* ---- the cores of a training's threads ---- */

#define PATIENCE_SECONDS 60
#define TASKS_MOST 32

/* Numbers of cores that the threads of a process may run on, from /proc; returns how many threads there are. */
static int cores_of_threads(pid_t process, int cores[TASKS_MOST]) {
  char path[64];
  int count = 0;
  (void)snprintf(path, sizeof path, "/proc/%d/task", (int)process);
  DIR *const tasks = opendir(path);
  if (tasks == NULL) return 0;
  for (const struct dirent *entry; (entry = readdir(tasks)) != NULL && count < TASKS_MOST;) {
    cpu_set_t set;
    if (entry->d_name[0] == '.' || sched_getaffinity(atoi(entry->d_name), sizeof set, &set) != 0) continue;
    cores[count++] = CPU_COUNT(&set);
  }
  (void)closedir(tasks);
  return count;
}

/* Trains in an environment until there are `threads` threads, each of which may run on `cores` cores. */
static void expect_cores(const char *const *environment, const char *threads_asked, int threads, int cores, bool restricted) {
  const pid_t process = fork();
  assert_true(process >= 0);
  if (process == 0) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core_number(1), &one);
    for (; *environment != NULL; environment++) (void)putenv((char *)*environment);
    if ((restricted && sched_setaffinity(0, sizeof one, &one) != 0) || chdir(folder) != 0) _exit(1);
    if (freopen("training.log", "w", stderr) == NULL) _exit(1);
    (void)execl(HARK_COMMAND, HARK_COMMAND, "train", "--data", "text.txt", "--layers", "2", "--width", "64", "--heads", "2", "--context",
                "64", "--batch", "16", "--steps", "100000", "--threads", threads_asked, "--out", "long", (char *)NULL);
    _exit(1);
  }
  const time_t late = time(NULL) + PATIENCE_SECONDS;
  int found[TASKS_MOST], count = 0, fitting = 0;
  do {
    const struct timespec moment = {0, 20000000};
    (void)nanosleep(&moment, NULL);
    count = cores_of_threads(process, found);
    fitting = 0;
    for (int i = 0; i < count; i++) fitting += found[i] == cores;
  } while ((count != threads || fitting != threads) && time(NULL) < late && waitpid(process, NULL, WNOHANG) == 0);
  (void)kill(process, SIGKILL);
  (void)waitpid(process, NULL, 0);
  test_folder_remove(test_path(folder, "long"));
  if (count != threads || fitting != threads) {
    for (int i = 0; i < count; i++) print_error("a thread may run on %d cores\n", found[i]);
    fail_msg("%s: %d threads, %d of them on %d cores, expected %d", environment[0], count, fitting, cores, threads);
  }
}

static void all_threads_of_a_training_have_all_cores(void **state) {
  (void)state;
  if (is_one_core()) skip();
  const int count = CPU_COUNT(&all);
  static const char *const environments[][3] = {
      {"HARK_TEST="}, {"OMP_PROC_BIND=true"}, {"OMP_PROC_BIND=close", "OMP_PLACES=cores"}, {"OMP_PLACES=threads", "OMP_NUM_THREADS=1"}};
  for (size_t i = 0; i < sizeof environments / sizeof environments[0]; i++) {
    expect_cores(environments[i], "2", 2, count, false);
    expect_cores(environments[i], "2", 2, 1, true);
  }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(version_says_where_the_number_comes_from),
      TEST(threads_that_share_a_core_are_reported),
      TEST(all_threads_of_a_training_have_all_cores),
  };
  return cmocka_run_group_tests_name("threads", tests, NULL, NULL);
}
