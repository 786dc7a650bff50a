/* test_faults.c - several processes, and a disk that is full, processes that are killed at random moments, and a second launch on the same
 * folder: the last checkpoint stays complete, and the run is continued with the same bits, with divided moments too.
 *
 * HARK_FAULT_KILLS sets the number of random kills (4; with HARK_FAULT_LONG 40).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "group/launch_place.h"

#define STEPS 12
#define KILL_STEPS 120
#define LAST_KILL 60 /* lines of metrics: many steps follow, so that a slow script finds its run alive */
#define MODEL                                                                                                                              \
  " --layers=1 --heads=2 --width=16 --context=8 --batch=2 --accumulate=5 --keep=2 --dropout=0.1 --log-every=1 --order=shuffled "           \
  "--threads=1 --data text.txt --no-preflight"
#define SAVES " --evaluate-every=6 --checkpoint-every=2"
#define OPTIONS MODEL SAVES " --steps=12"
#define KILL_OPTIONS MODEL SAVES " --steps=120"
#define DIVIDED " --shard-optimiser"

static bool has_file(const char *name, const char *file) {
  char path[TEST_PATH_BYTES + 128];
  (void)snprintf(path, sizeof path, "%s/%s/%s", launch_folder, name, file);
  return access(path, F_OK) == 0;
}

static void write_script(const char *format, ...) {
  char text[2048];
  va_list arguments;
  va_start(arguments, format);
  const int length = vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  assert_true(length > 0 && (size_t)length < sizeof text);
  (void)test_file_write(launch_folder, "script.sh", text, (size_t)length);
}

/* Continues a run, or begins it anew where nothing of it was kept, and compares it with the one that nothing disturbed. */
static void finish_and_compare(const char *launch, const char *name, const char *options, const char *more, int64_t steps) {
  char words[512];
  if (has_file(name, "config.yaml"))
    (void)snprintf(words, sizeof words, "train --resume %s%s", name, more);
  else
    (void)snprintf(words, sizeof words, "train --out %s%s%s", name, options, more);
  launch_run(launch, words, 0);
  launch_assert_same("whole", name, steps);
}

/* ---- a full disk ---- */

/* The disk of rank 0 is full from its call `at` on. Returns whether that ended the run. */
static bool fill_disk(const char *launch, const char *name, const char *more, int at) {
  test_output output = {0};
  char words[1024];
  write_script("if [ " LAUNCH_RANK
               " = 0 ]; then\n"
               "  export LD_PRELOAD='%s' HARK_FAULT_ROOT='%s' HARK_FAULT_KIND=ENOSPC HARK_FAULT_AT=%d+ "
               "ASAN_OPTIONS=\"$ASAN_OPTIONS:verify_asan_link_order=0\"\n"
               "fi\n"
               "exec " HARK_COMMAND " train --out %s" OPTIONS "%s\n",
               HARK_FAULT_SHIM, name, at, name, more);
  (void)snprintf(words, sizeof words, "version >/dev/null; %s sh script.sh", launch);
  test_command_run(launch_folder, launch, words, &output);
  const bool failed = output.code != 0;
  /* a slow machine also says what it does */
  const int messages = test_part_count(output.err, "hark train: ") - test_part_count(output.err, "hark train: tokenising");
  if (failed && (output.code != 4 || messages != 1))
    fail_msg("call %d: exit code %d, \"%s\", expected 4 and one message", at, output.code, output.err);
  test_output_free(&output);
  return failed;
}

/* Calls of every kind, from the beginning of the folder to the last checkpoint. */
static void strike_at_many_calls(const char *launch, const char *more) {
  int failures = 0, kept = 0;
  for (int at = 2, stride = 89;; at += stride) {
    char name[64];
    (void)snprintf(name, sizeof name, "disk-%d", at);
    const bool failed = fill_disk(launch, name, more, at);
    if (!failed) break;
    failures++;
    kept += has_file(name, "last");
    if (has_file(name, "last")) {
      char words[128];
      (void)snprintf(words, sizeof words, "verify %s", name);
      launch_run("", words, 0);
    }
    finish_and_compare(LAUNCH("2"), name, OPTIONS, failures % 2 == 0 ? DIVIDED : "", STEPS);
  }
  print_message("%d failures of a full disk, %d of them after a checkpoint\n", failures, kept);
  assert_true(failures > 3 && kept > 1);
}

static void a_full_disk_ends_all(void **state) {
  (void)state;
  skip_without_launcher();
  launch_run("", "train --out whole" OPTIONS, 0);
  strike_at_many_calls(LAUNCH("2"), "");
}

static void a_full_disk_ends_all_with_divided_moments(void **state) {
  (void)state;
  skip_without_launcher();
  launch_run("", "train --out whole" OPTIONS, 0);
  strike_at_many_calls(LAUNCH("3"), DIVIDED);
}

/* ---- a second launch ---- */

static void a_second_launch_is_refused(const char *more) {
  test_output output = {0};
  write_script(LAUNCH("2") HARK_COMMAND " train --out busy" MODEL
                                        " --steps=100000000 --checkpoint-every=0 --evaluate-every=0 --max-time=120"
                                        "%s >first 2>&1 &\n"
                                        "first=$!\n"
                                        "until [ -s busy/metrics.jsonl ] || ! kill -0 $first; do sleep 0.05; done\n" LAUNCH("2")
                                            HARK_COMMAND
               " train --resume busy\n"
               "code=$?\n"
               "kill -TERM $first; wait $first\n"
               "exit $code\n",
               more);
  test_command_run(launch_folder, "", "version >/dev/null; sh script.sh", &output);
  if (output.code != 7 || test_part_count(output.err, "hark train: ") != 1)
    fail_msg("exit code %d, \"%s\", expected 7 and one message", output.code, output.err);
  test_output_free(&output);
}

static void one_folder_is_for_one_launch(void **state) {
  (void)state;
  skip_without_launcher();
  a_second_launch_is_refused("");
}

static void one_folder_is_for_one_launch_with_divided_moments(void **state) {
  (void)state;
  skip_without_launcher();
  a_second_launch_is_refused(DIVIDED);
}

/* ---- kills ---- */

/* Uniform in [0, below): the multiplicative generator of Park and Miller (1988). */
static uint64_t random_below(uint64_t *state, uint64_t below) {
  *state = *state * 48271 % 2147483647;
  return *state * below / 2147483647;
}

/* Whether a run that was killed has the rest of a save. Such a run is undamaged. */
static bool was_saving(const char *name) {
  test_output output = {0};
  char words[128];
  (void)snprintf(words, sizeof words, "verify %s", name);
  test_command_run(launch_folder, "", words, &output);
  if (output.code != 0) fail_msg("%s: exit code %d: %s%s", words, output.code, output.out, output.err);
  const bool saving = strstr(output.out, "interrupted save") != NULL || strstr(output.err, "interrupted save") != NULL;
  test_output_free(&output);
  return saving;
}

/* Another rank is killed at another moment each time, also while it starts and while the run is saved. The run is continued by another
 * number of processes, with and without the option. */
static void killed_at_random_moments(void **state) {
  static const char *const launches[] = {LAUNCH("2"), LAUNCH("3"), LAUNCH("4")};
  const char *const asked = getenv("HARK_FAULT_KILLS");
  const int planned = asked != NULL ? atoi(asked) : getenv("HARK_FAULT_LONG") != NULL ? 40 : 4;
  uint64_t random = 11;
  int killed = 0, kept = 0, saving = 0;
  (void)state;
  skip_without_launcher();
  launch_run("", "train --out whole" KILL_OPTIONS, 0);
  for (int kill = 0; kill < planned; kill++) {
    const int size = 2 + kill % 3, rank = (int)random_below(&random, (uint64_t)size);
    const int line = kill % 10 == 9 ? 0 : (int)random_below(&random, LAST_KILL + 1), later = (int)random_below(&random, 20);
    char name[32], words[512];
    test_output output = {0};
    (void)snprintf(name, sizeof name, "killed-%d", kill);
    write_script(
        "lines() { if [ -e %s/metrics.jsonl ]; then wc -l <%s/metrics.jsonl; else echo 0; fi; }\n"
        "if [ " LAUNCH_RANK
        " = %d ]; then\n"
        "  (until [ $(lines) -ge %d ] || ! kill -0 $$; do sleep 0.002; done; sleep 0.%03d; kill -9 $$) &\n"
        "fi\n"
        "exec " HARK_COMMAND " train --out %s" KILL_OPTIONS "%s\n",
        name, name, rank, line, later, name, kill % 4 == 3 ? "" : DIVIDED);
    (void)snprintf(words, sizeof words, "version >/dev/null; %s sh script.sh", launches[size - 2]);
    test_command_run(launch_folder, launches[size - 2], words, &output);
    killed += output.code != 0;
    kept += output.code != 0 && has_file(name, "last");
    saving += output.code != 0 && has_file(name, "last") && was_saving(name);
    test_output_free(&output);
    finish_and_compare(launches[(kill + 1) % 3], name, KILL_OPTIONS, kill % 2 == 0 ? DIVIDED : " --no-shard-optimiser", KILL_STEPS);
  }
  print_message("%d of %d runs were killed before their end, %d after a checkpoint, %d of these during a save\n", killed, planned, kept,
                saving);
  assert_true(2 * killed > planned);
  assert_true(saving > 0 || planned < 40);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(a_full_disk_ends_all, launch_place_open, launch_place_close),
      cmocka_unit_test_setup_teardown(a_full_disk_ends_all_with_divided_moments, launch_place_open, launch_place_close),
      cmocka_unit_test_setup_teardown(one_folder_is_for_one_launch, launch_place_open, launch_place_close),
      cmocka_unit_test_setup_teardown(one_folder_is_for_one_launch_with_divided_moments, launch_place_open, launch_place_close),
      cmocka_unit_test_setup_teardown(killed_at_random_moments, launch_place_open, launch_place_close),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
