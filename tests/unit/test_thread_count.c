/* test_thread_count.c - how many threads there are where none are asked for: CPU quotas of control groups, from files made by hand, and
 * what batch systems and OpenMP say in the environment. */
#define _DEFAULT_SOURCE /* setenv */
#include "core/thread_count.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/cmocka_all.h"
#include "support/setups.h"
#include "support/text_files.h"

static char folder[TEST_PATH_BYTES];

static const char *const variables[] = {"OMP_NUM_THREADS", "SLURM_CPUS_PER_TASK", "OMP_THREAD_LIMIT"};

static int begin(void **state) {
  (void)state;
  test_folder_make(folder);
  for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++) assert_int_equal(unsetenv(variables[i]), 0);
  return 0;
}

static int end(void **state) {
  (void)state;
  test_folder_remove(folder);
  return 0;
}

static void write(const char *path, const char *text) { test_file_write_text(folder, path, text); }

static void expect_quota(double cores) {
  const double quota = hark_cpu_quota(folder);
  if (quota != cores) fail_msg("a quota of %g cores, expected %g", quota, cores);
}

/* ---- quotas ---- */

static void no_files_are_no_limit(void **state) {
  (void)state;
  expect_quota(0);
  write("proc/self/cgroup", "0::/a\n");
  expect_quota(0);
}

static void version_2(void **state) {
  (void)state;
  static const struct {
    const char *text;
    double cores;
  } files[] = {{"max 100000\n", 0},      {"50000 100000\n", 0.5}, {"150000 100000\n", 1.5},
               {"200000 50000\n", 4},    {"300000", 3},           {"max\n", 0},
               {"0 100000\n", 0},        {"-1 100000\n", 0},      {"", 0},
               {"many 100000\n", 0},     {"100000 0\n", 0},       {"100000 -5\n", 0},
               {"1000 1000000\n", 0.001}};
  write("proc/self/cgroup", "0::/a/b/c\n");
  for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
    write("sys/fs/cgroup/a/b/c/cpu.max", files[i].text);
    expect_quota(files[i].cores);
  }
}

/* The least of all levels, whichever has it; the topmost counts in containers. */
static void every_group_above_may_limit(void **state) {
  (void)state;
  write("proc/self/cgroup", "0::/a/b/c\n");
  write("sys/fs/cgroup/a/b/c/cpu.max", "max 100000\n");
  write("sys/fs/cgroup/a/b/cpu.max", "600000 100000\n");
  expect_quota(6);
  write("sys/fs/cgroup/a/cpu.max", "250000 100000\n");
  expect_quota(2.5);
  write("sys/fs/cgroup/cpu.max", "100000 100000\n");
  expect_quota(1);
  write("sys/fs/cgroup/a/b/c/cpu.max", "25000 100000\n");
  expect_quota(0.25);
}

static void version_1(void **state) {
  (void)state;
  write("proc/self/cgroup", "9:cpuset:/s\n4:cpu,cpuacct:/d/e\n3:memory:/m\n");
  write("sys/fs/cgroup/cpu/d/e/cpu.cfs_quota_us", "-1\n");
  write("sys/fs/cgroup/cpu/d/e/cpu.cfs_period_us", "100000\n");
  expect_quota(0);
  write("sys/fs/cgroup/cpu/d/e/cpu.cfs_quota_us", "350000\n");
  expect_quota(3.5);
  write("sys/fs/cgroup/cpu/d/cpu.cfs_quota_us", "100000\n");
  write("sys/fs/cgroup/cpu/d/cpu.cfs_period_us", "50000\n");
  expect_quota(2);
  write("sys/fs/cgroup/cpu/d/cpu.cfs_period_us", "0\n");
  expect_quota(3.5);
  /* "cpu" is no part of another controller's name */
  write("proc/self/cgroup", "4:cpuacct:/d/e\n9:cpuset:/d/e\n");
  expect_quota(0);
}

/* Groups of both versions at once, and folders that are not where they usually are. */
static void mounts_are_found(void **state) {
  (void)state;
  write("proc/self/mountinfo",
        "22 1 0:21 / /proc rw,nosuid - proc proc rw\n"
        "31 23 0:28 / /sys/fs/cgroup ro - tmpfs tmpfs ro,mode=755\n"
        "32 31 0:29 / /groups/cpu\\040time rw,relatime shared:9 master:2 - cgroup cgroup rw,cpuacct,cpu\n"
        "33 31 0:30 / /groups/cpuset rw - cgroup cgroup rw,cpuset\n"
        "41 31 0:38 / /groups/unified rw - cgroup2 cgroup2 rw,nsdelegate\n");
  write("proc/self/cgroup", "4:cpu,cpuacct:/d\n0::/u\n");
  write("sys/fs/cgroup/cpu/d/cpu.cfs_quota_us", "10000\n"); /* another folder of that name */
  write("sys/fs/cgroup/cpu/d/cpu.cfs_period_us", "100000\n");
  expect_quota(0);
  write("groups/cpu time/d/cpu.cfs_quota_us", "300000\n");
  write("groups/cpu time/d/cpu.cfs_period_us", "100000\n");
  expect_quota(3);
  write("groups/unified/u/cpu.max", "200000 100000\n");
  expect_quota(2);
}

/* In a container the group that is mounted may be the container's, and names those of the host. */
static void containers(void **state) {
  (void)state;
  write("proc/self/mountinfo", "32 31 0:29 /docker/abc /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu\n");
  write("proc/self/cgroup", "4:cpu:/docker/abc/inner\n");
  write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "400000\n");
  write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  expect_quota(4);
  write("sys/fs/cgroup/cpu/inner/cpu.cfs_quota_us", "100000\n");
  write("sys/fs/cgroup/cpu/inner/cpu.cfs_period_us", "100000\n");
  expect_quota(1);
  static const char *const others[] = {"4:cpu:/docker/abcd/inner\n", "4:cpu:/elsewhere/inner\n", "4:cpu:/../inner\n"};
  for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
    write("proc/self/cgroup", others[i]);
    expect_quota(4);
  }
}

static void damaged_files_are_no_limit(void **state) {
  (void)state;
  static const char *const groups[] = {"", "nothing", "0:", "::\n:::\n0::\n", "0::/a", "4:cpu\n"};
  static const char *const mounts[] = {"", "1 2 3", "- - - - - - - -\n", "1 2 3 4 5 - cgroup2\n",
                                       "1 2 0:3 /\\04 /x\\400 rw - cgroup2 c r\n"};
  write("sys/fs/cgroup/cpu.max", "few\n");
  for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++) {
    for (size_t k = 0; k < sizeof mounts / sizeof mounts[0]; k++) {
      write("proc/self/cgroup", groups[i]);
      write("proc/self/mountinfo", mounts[k]);
      expect_quota(0);
    }
  }
}

/* A line of overlay's mountinfo may be longer than any buffer. */
static void long_lines_are_passed_over(void **state) {
  (void)state;
  static char text[40000];
  memset(text, 'x', sizeof text - 1);
  strcpy(text + sizeof text - 100, "\n41 31 0:38 / /unified rw - cgroup2 cgroup2 rw\n");
  write("proc/self/mountinfo", text);
  write("proc/self/cgroup", "0::/u\n");
  write("unified/u/cpu.max", "100000 100000\n");
  expect_quota(1);
}

/* ---- the number ---- */

typedef struct heard {
  int warnings;
  char text[HARK_MESSAGE_BYTES];
} heard;

static void hear(void *user, hark_log_level level, const char *message) {
  heard *const h = user;
  if (level != HARK_LOG_WARNING) return;
  h->warnings++;
  (void)snprintf(h->text, sizeof h->text, "%s", message);
}

static void expect_threads(int cores, int threads, const char *from, const char *warning) {
  heard h = {0};
  const hark_context_options options = {
      .struct_size = sizeof options, .threads = 1, .backend = "reference", .logger = hear, .logger_user = &h};
  hark_context *context;
  const char *source = "";
  assert_int_equal(hark_context_create(&options, &context), HARK_OK);
  const int count = hark_thread_count(context, folder, cores, &source);
  if (count != threads || strcmp(source, from) != 0) fail_msg("%d threads by %s, expected %d by %s", count, source, threads, from);
  if ((warning != NULL) != (h.warnings == 1)) fail_msg("%d warnings: %s", h.warnings, h.text);
  if (warning != NULL && strstr(h.text, warning) == NULL) fail_msg("\"%s\" is not in \"%s\"", warning, h.text);
  hark_context_destroy(&context);
}

static void set(const char *name, const char *value) { assert_int_equal(setenv(name, value, 1), 0); }

static void quotas_are_rounded_up(void **state) {
  (void)state;
  static const struct {
    const char *quota;
    int threads;
    const char *from;
  } files[] = {{"max 100000", 8, "affinity"},        {"50000 100000", 1, "quota"},      {"100000 100000", 1, "quota"},
               {"150000 100000", 2, "quota"},        {"700000 100000", 7, "quota"},     {"750000 100000", 8, "affinity"},
               {"800000 100000", 8, "affinity"},     {"1600000 100000", 8, "affinity"}, {"9223372036854775807 1", 8, "affinity"},
               {"1 9223372036854775807", 1, "quota"}};
  write("proc/self/cgroup", "0::/\n");
  for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
    write("sys/fs/cgroup/cpu.max", files[i].quota);
    expect_threads(8, files[i].threads, files[i].from, NULL);
  }
}

static void openmp_and_slurm(void **state) {
  (void)state;
  write("proc/self/cgroup", "0::/\n");
  write("sys/fs/cgroup/cpu.max", "400000 100000\n");
  expect_threads(8, 4, "quota", NULL);
  set("SLURM_CPUS_PER_TASK", "3");
  expect_threads(8, 3, "SLURM_CPUS_PER_TASK", NULL);
  set("SLURM_CPUS_PER_TASK", "16"); /* more than there is */
  expect_threads(8, 4, "quota", NULL);
  expect_threads(2, 2, "affinity", NULL);
  set("OMP_NUM_THREADS", "6"); /* somebody has said how many */
  expect_threads(8, 6, "OMP_NUM_THREADS", NULL);
  set("OMP_THREAD_LIMIT", "5");
  expect_threads(8, 5, "OMP_THREAD_LIMIT", NULL);
  set("OMP_THREAD_LIMIT", "4294967295");
  expect_threads(8, 6, "OMP_NUM_THREADS", NULL);
}

static void what_is_malformed_is_passed_over(void **state) {
  (void)state;
  static const struct {
    const char *text;
    int threads; /* 0: malformed */
  } values[] = {{"4", 4},   {"4,2", 4}, {" 4 , 2 ", 4}, {"\t7\t", 7}, {"4096", 4096}, {"2,99999", 0},
                {"0", 0},   {"-3", 0},  {"4x", 0},      {"abc", 0},   {"4097", 0},    {"99999999999999999999999", 0},
                {"4,", 0},  {",4", 0},  {"4,,2", 0},    {"4 2", 0},   {"1e2", 0},     {"+4", 0},
                {"0x4", 0}, {"4.0", 0}, {"4;2", 0},     {"4,0", 0}};
  for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
    set("OMP_NUM_THREADS", values[i].text);
    if (values[i].threads > 0)
      expect_threads(5, values[i].threads, "OMP_NUM_THREADS", NULL);
    else
      expect_threads(5, 5, "affinity", "OMP_NUM_THREADS is \"");
  }
  set("OMP_NUM_THREADS", "");
  expect_threads(5, 5, "affinity", NULL);
  set("OMP_NUM_THREADS", "  ");
  expect_threads(5, 5, "affinity", NULL);
  set("OMP_NUM_THREADS", "two\nlines"); /* one line is said */
  expect_threads(5, 5, "affinity", "\"two?lines\", expected a whole number in [1, 4096] or a list of such; it is passed over");
  set("OMP_NUM_THREADS", "");
  set("SLURM_CPUS_PER_TASK", "4,2"); /* no list */
  expect_threads(5, 5, "affinity", "SLURM_CPUS_PER_TASK is \"4,2\"");
  set("SLURM_CPUS_PER_TASK", "0");
  expect_threads(5, 5, "affinity", "SLURM_CPUS_PER_TASK is \"0\"");
  set("SLURM_CPUS_PER_TASK", "");
  set("OMP_THREAD_LIMIT", "none");
  expect_threads(5, 5, "affinity", "OMP_THREAD_LIMIT is \"none\"");
}

/* Others' variables are theirs. */
static void other_libraries_variables_change_nothing(void **state) {
  (void)state;
  static const char *const others[] = {"MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "KMP_AFFINITY", "OMP_DYNAMIC", "SLURM_CPUS_ON_NODE"};
  for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) set(others[i], "1");
  expect_threads(5, 5, "affinity", NULL);
  for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) assert_int_equal(unsetenv(others[i]), 0);
}

static void contexts_count_so(void **state) {
  (void)state;
  set("OMP_NUM_THREADS", "3,1");
  hark_context *context;
  const hark_context_options options = {.struct_size = sizeof options, .backend = "reference"};
  assert_int_equal(hark_context_create(&options, &context), HARK_OK);
#ifdef HARK_WITH_THREADS
  assert_int_equal(hark_context_threads(context), 3);
#endif
  hark_context_destroy(&context);
}

/* ---- hyper-threading ---- */

static void logical_cores_that_share_one(void **state) {
  (void)state;
  hark_cores cores = {.count = 4, .words = {0x33}}; /* 0, 1, 4, 5 */
  assert_int_equal(hark_cores_physical(&cores, folder), 4);
  write("sys/devices/system/cpu/cpu0/topology/thread_siblings_list", "0,4\n");
  write("sys/devices/system/cpu/cpu4/topology/thread_siblings_list", "0,4\n");
  assert_int_equal(hark_cores_physical(&cores, folder), 3);
  write("sys/devices/system/cpu/cpu1/topology/thread_siblings_list", "1,5\n");
  write("sys/devices/system/cpu/cpu5/topology/thread_siblings_list", "1,5\n");
  assert_int_equal(hark_cores_physical(&cores, folder), 2);
  write("sys/devices/system/cpu/cpu5/topology/thread_siblings_list", "?\n");
  assert_int_equal(hark_cores_physical(&cores, folder), 3);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(no_files_are_no_limit),
      TEST(version_2),
      TEST(every_group_above_may_limit),
      TEST(version_1),
      TEST(mounts_are_found),
      TEST(containers),
      TEST(damaged_files_are_no_limit),
      TEST(long_lines_are_passed_over),
      TEST(quotas_are_rounded_up),
      TEST(openmp_and_slurm),
      TEST(what_is_malformed_is_passed_over),
      TEST(other_libraries_variables_change_nothing),
      TEST(contexts_count_so),
      TEST(logical_cores_that_share_one),
  };
  return cmocka_run_group_tests_name("thread_count", tests, NULL, NULL);
}
