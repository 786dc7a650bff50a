/* test_machine.c - how much memory is left, read from files of the system made by hand: machine, control groups of both versions,
 * containers. */
#include "io/machine.h"

#include <stdio.h>
#include <string.h>

#include "support/cmocka_all.h"
#include "support/setups.h"
#include "support/text_files.h"

static char folder[TEST_PATH_BYTES];
static hark_context *context;

static int begin(void **state) {
  (void)state;
  test_folder_make(folder);
  test_file_write_text(folder, "proc/meminfo", "MemTotal:       2000 kB\nMemFree:          10 kB\nMemAvailable:   1000 kB\n");
  context = test_reference_open();
  return 0;
}

static int end(void **state) {
  (void)state;
  hark_context_destroy(&context);
  test_folder_remove(folder);
  return 0;
}

static void expect(uint64_t kibibytes, const char *limit) {
  hark_machine_memory memory;
  assert_fine(context, hark_machine_memory_left(context, folder, &memory));
  assert_true(memory.known);
  assert_string_equal(memory.limit, limit);
  if (memory.bytes != kibibytes * 1024) fail_msg("%.1f KiB, expected %d", (double)memory.bytes / 1024, (int)kibibytes);
}

static void the_machine_alone(void **state) {
  (void)state;
  expect(1000, "the machine");
  test_file_write_text(folder, "proc/self/cgroup", "0::/\n");
  expect(1000, "the machine"); /* a group without a limit file */
}

static void version_2(void **state) {
  (void)state;
  test_file_write_text(folder, "proc/self/cgroup", "0::/a/b\n");
  test_file_write_text(folder, "sys/fs/cgroup/a/b/memory.max", "max\n");
  expect(1000, "the machine");
  test_file_write_text(folder, "sys/fs/cgroup/a/b/memory.max", "819200\n"); /* 800 KiB */
  test_file_write_text(folder, "sys/fs/cgroup/a/b/memory.current", "307200\n");
  expect(500, "the control group");
  /* of the 300 KiB in use 100 are file caches */
  test_file_write_text(folder, "sys/fs/cgroup/a/b/memory.stat", "anon 1\nactive_file 5\ninactive_file 102400\n");
  expect(600, "the control group");
  /* a group above allows less */
  test_file_write_text(folder, "sys/fs/cgroup/a/memory.max", "409600\n");
  test_file_write_text(folder, "sys/fs/cgroup/a/memory.current", "358400\n");
  expect(50, "the control group");
  test_file_write_text(folder, "sys/fs/cgroup/a/memory.current", "512000\n"); /* above its limit */
  expect(0, "the control group");
}

static void version_1(void **state) {
  (void)state;
  test_file_write_text(folder, "proc/self/cgroup", "12:cpu,cpuacct:/x\n11:hugetlb,memory:/c/d\n0::/c/d\n");
  test_file_write_text(folder, "sys/fs/cgroup/memory/c/d/memory.limit_in_bytes", "9223372036854771712\n");
  test_file_write_text(folder, "sys/fs/cgroup/memory/c/d/memory.usage_in_bytes", "4096\n");
  expect(1000, "the machine");
  test_file_write_text(folder, "sys/fs/cgroup/memory/memory.limit_in_bytes", "204800\n"); /* the topmost */
  test_file_write_text(folder, "sys/fs/cgroup/memory/memory.usage_in_bytes", "102400\n");
  test_file_write_text(folder, "sys/fs/cgroup/memory/memory.stat", "inactive_file 1\ntotal_inactive_file 51200\n");
  expect(150, "the control group");
}

/* In a container the path may be the host's, or lead out of the namespace: what can be seen is the topmost. */
static void a_path_that_is_not_there(void **state) {
  (void)state;
  test_file_write_text(folder, "sys/fs/cgroup/memory.max", "204800\n");
  test_file_write_text(folder, "sys/fs/cgroup/memory.current", "0\n");
  static const char *const groups[] = {"0::/not/there\n", "0::/../../other\n", "0::/\n"};
  for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++) {
    test_file_write_text(folder, "proc/self/cgroup", groups[i]);
    expect(200, "the control group");
  }
}

static void damaged_files_set_no_limit(void **state) {
  (void)state;
  static const char *const groups[] = {"", "nothing", "0:", "::\n:::\n0::\n"};
  test_file_write_text(folder, "sys/fs/cgroup/memory.max", "many\n");
  for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++) {
    test_file_write_text(folder, "proc/self/cgroup", groups[i]);
    expect(1000, "the machine");
  }
  hark_machine_memory memory;
  assert_fine(context, hark_machine_memory_left(context, test_path(folder, "none"), &memory));
  assert_false(memory.known);
}

/* What this process has really taken is seen. */
static void this_process(void **state) {
  (void)state;
  enum { BYTES = 32 << 20 };
  hark_process_memory before, during;
  void *memory;
  assert_fine(context, hark_process_memory_use(context, &before));
  if (before.resident == 0) skip();
  assert_fine(context, hark_allocate_zero(context, BYTES, &memory));
  assert_fine(context, hark_process_memory_use(context, &during));
  assert_true(during.resident >= before.resident + BYTES * 9 / 10);
  assert_true(during.peak >= during.resident);
  hark_release(context, memory, BYTES);
}

static void the_clock_goes_forward(void **state) {
  const double before = hark_machine_seconds();
  double after = before;
  (void)state;
  assert_true(before > 0);
  while (after == before) after = hark_machine_seconds();
  assert_true(after > before && after < before + 60);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(the_machine_alone),
      TEST(version_2),
      TEST(version_1),
      TEST(a_path_that_is_not_there),
      TEST(damaged_files_set_no_limit),
      TEST(this_process),
      TEST(the_clock_goes_forward),
  };
  return cmocka_run_group_tests_name("machine", tests, NULL, NULL);
}
