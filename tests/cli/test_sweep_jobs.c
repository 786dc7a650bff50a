/* test_sweep_jobs.c - hark sweep --jobs: several runs at once have the results of one after another, also when they are interrupted, fail
 * or lose their sweep; their lines have names; they share threads and memory. */
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/cmocka_all.h"
#include "support/command_fixture.h"
#include "support/train/sweep_place.h"

#define BASE                                                                                                                               \
  "model: {layers: 1, heads: 1, width: 8, context: 8}\n"                                                                                   \
  "train: {steps: 4, batch: 2, evaluate_every: 2, log_every: 2}\n"                                                                         \
  "data: {paths: [text.txt], validation_fraction: 0.2}\n"
#define RUNS 5
#define PLAN "config: base.yaml\nout: out\nseeds: [1, 2, 3, 4, 5]\n"
#define QUIET "--no-picture --beside operations"

static int begin_plan(void **state) {
  (void)begin(state);
  test_file_write_text(folder, "base.yaml", BASE);
  test_file_write_text(folder, "plan.yaml", PLAN);
  return 0;
}

static const char *run_path(int seed, const char *file) {
  static char path[256];
  (void)snprintf(path, sizeof path, "out/all-seed=%d%s%s", seed, file[0] != '\0' ? "/" : "", file);
  return path;
}

static void rename_out(const char *from, const char *to) {
  char path[TEST_PATH_BYTES];
  (void)snprintf(path, sizeof path, "%s", test_path(folder, from));
  assert_int_equal(rename(path, test_path(folder, to)), 0);
}

/* out/ was made again as it is in `other`: configurations and the bits of the weights. Every file that depends on time is left out. */
static void expect_same_runs(const char *other) {
  char command[4 * TEST_PATH_BYTES];
  (void)snprintf(
      command, sizeof command,
      "cd '%s' && diff -r -x .lock -x cache -x 'metrics*' -x state.json -x manifest.json -x results.jsonl out '%s' > differences", folder,
      other);
  if (system(command) == 0) return;
  char *const differences = test_file_text(folder, "differences");
  fail_msg("%s", differences);
}

/* The table of the runs in out/, for free(). */
static char *table_now(void) {
  command_expect(folder, "sweep plan.yaml --table --beside operations", 0, "| val/loss | n |", "", &output);
  return strdup(output.out);
}

/* The table and the runs of one after another are in first/, and out/ is free. */
static char *make_reference(void) {
  command_expect(folder, "sweep plan.yaml " QUIET, 0, "", "", &output);
  char *const table = table_now();
  rename_out("out", "first");
  return table;
}

static void the_results_are_those_of_one_after_another(void **state) {
  (void)state;
  char *const before = make_reference();
  command_expect(folder, "sweep plan.yaml --jobs 3 " QUIET, 0, "", "3 runs at once, ", &output);
  assert_string_equal(output.out, before);
  expect_same_runs("first");
  command_expect(folder, "sweep plan.yaml --jobs 3 " QUIET, 0, before, "", &output); /* nothing is left to do */
  assert_string_equal(output.err, "");
  free(before);
}

/* More jobs than runs are as many as runs. */
static void json_is_the_same(void **state) {
  (void)state;
  command_expect(folder, "sweep plan.yaml --json --beside operations", 0, "", "", &output);
  json_t *const before = command_json(&output);
  rename_out("out", "first");
  command_expect(folder, "sweep plan.yaml --json --beside operations -j 64", 0, "", "5 runs at once, ", &output);
  json_t *const after = command_json(&output);
  assert_true(json_equal(before, after));
  json_decref(before);
  json_decref(after);
}

/* Whether a line is one of the sweep's own, or begins with the name of a run. */
static bool is_named(const char *line) {
  int seed = 0, length = 0;
  static const char *const own[] = {"run ", "3 runs at once, ", "hark sweep: "};
  for (size_t i = 0; i < sizeof own / sizeof *own; i++)
    if (strncmp(line, own[i], strlen(own[i])) == 0) return true;
  return sscanf(line, "all-seed=%d: %n", &seed, &length) == 1 && length > 0 && line[length] != '\0';
}

static void lines_have_names(void **state) {
  (void)state;
  command_expect(folder, "sweep plan.yaml --jobs 3 " QUIET, 0, "", "run 5 of 5: out/all-seed=5; ", &output);
  for (int seed = 1; seed <= RUNS; seed++) {
    char words[128];
    (void)snprintf(words, sizeof words, "\nall-seed=%d: run folder out/all-seed=%d\n", seed, seed);
    assert_non_null(strstr(output.err, words));
    (void)snprintf(words, sizeof words, "\nall-seed=%d: out/all-seed=%d: step 4 of 4 (done)", seed, seed);
    assert_non_null(strstr(output.err, words));
  }
  assert_null(strchr(output.err, '\r'));
  for (char *line = strtok(output.err, "\n"); line != NULL; line = strtok(NULL, "\n"))
    if (!is_named(line)) fail_msg("without a name: \"%s\"", line);
}

/* Runs begin in the order of the sweep. */
static void the_order_is_that_of_the_sweep(void **state) {
  (void)state;
  command_expect(folder, "sweep plan.yaml --jobs 3 " QUIET, 0, "", "", &output);
  const char *at = output.err;
  for (int run = 1; run <= RUNS; run++) {
    char words[32];
    (void)snprintf(words, sizeof words, "run %d of 5: ", run);
    at = strstr(at, words);
    if (at == NULL) fail_msg("\"%s\" is not after the others in %s", words, output.err);
  }
}

/* ---- runs that fail ---- */

static void a_run_that_fails_leaves_the_others(void **state) {
  (void)state;
  test_file_write_text(folder, "plan.yaml",
                       "config: base.yaml\nout: out\nseeds: [1, 2]\nvariants: {good: {}, bad: {train.init_from: text.txt}, more: {}}\n");
  command_expect(folder, "sweep plan.yaml " QUIET, 1, "| bad | 0 | - | - |", "2 of 6 runs failed", &output);
  char *const before = strdup(output.out);
  rename_out("out", "first");
  command_expect(folder, "sweep plan.yaml --jobs 3 " QUIET, 1, before, "2 of 6 runs failed", &output);
  assert_non_null(strstr(output.err, "\nbad-seed=2: hark train: "));
  expect_same_runs("first");
  free(before);
  test_file_write_text(folder, "plan.yaml", "config: base.yaml\nout: gone\nsettings: {data.paths: gone.txt}\nvariants: {a: {}, b: {}}\n");
  command_expect(folder, "sweep plan.yaml --jobs 2 --no-picture", 3, "| a | 0 | ", "2 of 2 runs failed", &output);
}

/* As if another process trained the run: it ends before it allocates anything. */
static int lock_run(int seed) {
  char command[2 * TEST_PATH_BYTES];
  (void)snprintf(command, sizeof command, "mkdir -p '%s'", test_path(folder, run_path(seed, "")));
  assert_int_equal(system(command), 0);
  const int lock = open(test_path(folder, run_path(seed, ".lock")), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  assert_true(lock >= 0);
  assert_int_equal(flock(lock, LOCK_EX), 0);
  return lock;
}

/* A run that another process trains ends the sweep, and its other runs save and end. */
static void a_run_in_use_ends_the_sweep(void **state) {
  (void)state;
  sweep_place_base(folder, SWEEP_LONG_STEPS);
  const int lock = lock_run(2);
  command_expect(folder, "sweep plan.yaml --jobs 2", 7, "", "out/all-seed=2: another process trains this run", &output);
  assert_null(strstr(output.err, "run 3 of"));
  assert_int_equal(close(lock), 0);
  assert_int_not_equal(access(test_path(folder, run_path(1, "checkpoints/step-60000")), F_OK), 0);
}

/* A run that is killed is one that failed. */
static void a_killed_run_leaves_the_others(void **state) {
  (void)state;
  sweep_place_base(folder, 2000);
  const pid_t process = sweep_place_begin(folder, "plan.yaml --jobs 2 --no-picture");
  sweep_place_wait_for(folder, run_path(1, "config.yaml"));
  assert_int_equal(kill(sweep_place_holder(folder, run_path(1, "")), SIGKILL), 0);
  sweep_place_expect_end(process, 1);
  char *const results = test_file_text(folder, "out/results.jsonl");
  assert_non_null(strstr(results, "\"run\": \"all-seed=1\", \"cell\": \"all\", \"seed\": 1, \"exit_code\": 137"));
  free(results);
  command_expect(folder, "sweep plan.yaml --jobs 2 --no-picture", 0, "| all | 5 | ", "1 to train", &output);
}

/* Of several plans, each after the other. */
static void several_plans_share_nothing(void **state) {
  (void)state;
  test_file_write_text(folder, "two.yaml", "config: base.yaml\nout: out-two\nseeds: [1, 2]\n");
  command_expect(folder, "sweep two.yaml plan.yaml " QUIET, 0, "## together", "", &output);
  char *const before = strdup(output.out);
  rename_out("out", "first");
  rename_out("out-two", "first-two");
  command_expect(folder, "sweep two.yaml plan.yaml --jobs 3 " QUIET, 0, before, "3 runs at once, ", &output);
  expect_same_runs("first");
  free(before);
}

/* ---- sweeps that are ended ---- */

/* Two long runs at work, on their way. */
static pid_t begin_two(void) {
  sweep_place_base(folder, SWEEP_LONG_STEPS);
  const pid_t process = sweep_place_begin(folder, "plan.yaml --jobs 2");
  for (int seed = 1; seed <= 2; seed++) sweep_place_wait_for(folder, run_path(seed, "config.yaml"));
  return process;
}

static void expect_saved(void) {
  for (int seed = 1; seed <= 2; seed++) assert_in_range(sweep_place_last_step(folder, run_path(seed, "")), 1, SWEEP_LONG_STEPS - 1);
  assert_int_not_equal(access(test_path(folder, run_path(3, "")), F_OK), 0);
}

static void an_interrupt_saves_all_runs(void **state) {
  (void)state;
  const pid_t process = begin_two();
  assert_int_equal(kill(process, SIGINT), 0);
  sweep_place_expect_end(process, 128 + SIGINT);
  expect_saved();
  sweep_place_wait_for_words(folder, "\nstopped: 5 of 5 runs are not complete; call the sweep again to continue\n");
  char *const results = test_file_text(folder, "out/results.jsonl");
  assert_string_equal(results, "");
  free(results);
}

/* A run that is ended from elsewhere ends the sweep as before, with the others saved. */
static void an_interrupted_run_ends_the_sweep(void **state) {
  (void)state;
  const pid_t process = begin_two();
  assert_int_equal(kill(sweep_place_holder(folder, run_path(2, "")), SIGTERM), 0);
  sweep_place_expect_end(process, 128 + SIGTERM);
  expect_saved();
}

/* Waits until a stopped process has been sent a signal (Linux: the masks of pending signals), or for some seconds. */
static void wait_until_pending(pid_t process, int number) {
  char path[64], line[256];
  unsigned long long own = 0, shared = 0;
  (void)snprintf(path, sizeof path, "/proc/%d/status", (int)process);
  for (int i = 0; i < 1000 && ((own | shared) >> (number - 1) & 1) == 0; i++) {
    FILE *file = fopen(path, "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
      (void)sscanf(line, "SigPnd: %llx", &own);
      (void)sscanf(line, "ShdPnd: %llx", &shared);
    }
    if (file != NULL) (void)fclose(file);
    sweep_place_pause();
  }
}

/* The second signal reaches the runs too, which then end at once: nothing is saved. These runs save nothing on their way either. */
static void a_second_signal_kills(void **state) {
  (void)state;
  test_file_write_text(folder, "plan.yaml", PLAN "settings: {train.evaluate_every: 0, train.checkpoint_every: 0}\n");
  const pid_t process = begin_two();
  pid_t runs[2];
  for (int i = 0; i < 2; i++) {
    runs[i] = sweep_place_holder(folder, run_path(i + 1, ""));
    assert_int_equal(kill(runs[i], SIGSTOP), 0);
  }
  assert_int_equal(kill(process, SIGINT), 0);
  for (int i = 0; i < 2; i++) wait_until_pending(runs[i], SIGINT);
  assert_int_equal(kill(process, SIGTERM), 0);
  for (int i = 0; i < 2; i++) wait_until_pending(runs[i], SIGTERM);
  for (int i = 0; i < 2; i++) assert_int_equal(kill(runs[i], SIGCONT), 0); /* both signals reach it now */
  sweep_place_expect_end(process, 128 + SIGTERM);
  for (int seed = 1; seed <= 2; seed++) assert_int_not_equal(access(test_path(folder, run_path(seed, "last")), F_OK), 0);
}

static void a_killed_sweep_ends_its_runs(void **state) {
  (void)state;
#ifndef __linux__
  skip();
#endif
  const pid_t process = begin_two();
  int status;
  assert_int_equal(kill(process, SIGKILL), 0);
  assert_int_equal(waitpid(process, &status, 0), process);
  assert_true(WIFSIGNALED(status));
  for (int seed = 1; seed <= 2; seed++) sweep_place_wait_for_lock(folder, run_path(seed, ""));
  expect_saved();
}

/* The same bits as if it had never been interrupted. */
static void an_interrupted_sweep_continues(void **state) {
  (void)state;
  sweep_place_base(folder, 4000);
  char *const before = make_reference();
  const pid_t process = sweep_place_begin(folder, "plan.yaml --jobs 3 " QUIET);
  sweep_place_wait_for(folder, run_path(1, "config.yaml"));
  assert_int_equal(kill(process, SIGTERM), 0);
  sweep_place_expect_end(process, 128 + SIGTERM);
  assert_int_not_equal(access(test_path(folder, run_path(5, "last")), F_OK), 0);
  command_expect(folder, "sweep plan.yaml --jobs 3 " QUIET, 0, before, "", &output);
  char *const after = table_now();
  assert_string_equal(after, before);
  for (int seed = 1; seed <= RUNS; seed++) { /* the checkpoint of the interruption may be there too */
    char path[128];
    size_t bytes[2];
    (void)snprintf(path, sizeof path, "first%s", strchr(run_path(seed, "checkpoints/step-4000/model.safetensors"), '/'));
    unsigned char *const one = test_file_read(test_path(folder, path), &bytes[0]);
    unsigned char *const other = test_file_read(test_path(folder, run_path(seed, "checkpoints/step-4000/model.safetensors")), &bytes[1]);
    assert_int_equal(bytes[0], bytes[1]);
    assert_memory_equal(one, other, bytes[0]);
    free(one);
    free(other);
  }
  free(before);
  free(after);
}

/* ---- threads and memory ---- */

/* The environment of the process that trains the first run has these words. */
static bool has_environment(const char *words) {
  char path[64], text[16384];
  (void)snprintf(path, sizeof path, "/proc/%d/environ", (int)sweep_place_holder(folder, run_path(1, "")));
  FILE *const file = fopen(path, "rb");
  assert_non_null(file);
  const size_t got = fread(text, 1, sizeof text - 1, file);
  (void)fclose(file);
  for (size_t at = 0; at < got; at += strlen(text + at) + 1) {
    text[got] = '\0';
    if (strcmp(text + at, words) == 0) return true;
  }
  return false;
}

static void threads_are_divided(void **state) {
  (void)state;
#if !defined __linux__ || !defined HARK_WITH_THREADS
  skip();
#endif
  sweep_place_base(folder, SWEEP_LONG_STEPS);
  test_file_write_text(folder, "plan.yaml", PLAN "settings: {run.threads: 0}\n");
  assert_int_equal(setenv("OMP_NUM_THREADS", "7", 1), 0);
  const pid_t process = sweep_place_begin(folder, "plan.yaml --jobs 3");
  assert_int_equal(unsetenv("OMP_NUM_THREADS"), 0);
  sweep_place_wait_for(folder, run_path(1, "config.yaml"));
  assert_true(has_environment("OMP_NUM_THREADS=2"));
  sweep_place_wait_for_words(folder, "3 runs at once, 2 threads each (");
  assert_int_equal(kill(process, SIGTERM), 0);
  sweep_place_expect_end(process, 128 + SIGTERM);
}

/* Threads that the plan asks for are those of every run; there is one warning where all together are too many. */
static void threads_of_the_plan_have_priority(void **state) {
  (void)state;
  const long cores = sysconf(_SC_NPROCESSORS_ONLN);
  char plan[256], words[64];
  (void)snprintf(plan, sizeof plan, PLAN "settings: {run.threads: %ld}\n", cores);
  test_file_write_text(folder, "plan.yaml", plan);
  (void)snprintf(words, sizeof words, "2 runs at once, %ld thread%s each (by run.threads)\n", cores, cores == 1 ? "" : "s");
  command_expect(folder, "sweep plan.yaml --jobs 2 " QUIET, 0, "", words, &output);
  (void)snprintf(words, sizeof words, "hark sweep: warning: %ld threads (by --jobs) share ", 2 * cores);
  const char *const warning = strstr(output.err, words);
  assert_non_null(warning);
  assert_null(strstr(warning + 1, words));
}

#define MANY 16

/* A batch with which not even MANY - 4 runs fit into the memory, and one does; 0: the memory is not known. */
static int64_t find_large_batch(void) {
  double memory = 0, left = 0;
  int64_t batch = 1 << 11;
  do { /* sizes of shapes: nothing is allocated */
    char line[256];
    batch *= 2;
    (void)snprintf(line, sizeof line, "train --config base.yaml --batch %lld --estimate --json --no-preflight", (long long)batch);
    command_expect(folder, line, 0, "", "", &output);
    json_t *const needs = command_json(&output);
    memory = command_number(needs, "memory_bytes");
    left = command_number(needs, "memory_left_bytes");
    json_decref(needs);
  } while (memory * (MANY - 4) < left);
  return left > 0 ? batch : 0;
}

static void write_large_plan(int64_t batch, const char *more) {
  char plan[1024];
  int used = snprintf(plan, sizeof plan, "config: base.yaml\nout: out\nsettings: {train.batch: %lld%s}\nseeds: [1", (long long)batch, more);
  for (int seed = 2; seed <= MANY; seed++) used += snprintf(plan + used, sizeof plan - (size_t)used, ", %d", seed);
  (void)snprintf(plan + used, sizeof plan - (size_t)used, "]\n");
  test_file_write_text(folder, "plan.yaml", plan);
}

/* Runs that fit alone and not together are refused before the first begins, with the number that fits, unless the sweep or the plan says
 * that memory is not checked. */
static void memory_is_enough_for_all(void **state) {
  (void)state;
  const int64_t batch = find_large_batch();
  if (batch == 0) skip();
  write_large_plan(batch, "");
  command_expect(folder, "sweep plan.yaml --jobs 16", 5, "", "--jobs: 16 runs at once need about ", &output);
  const char *const fits = strstr(output.err, " left; --jobs ");
  if (fits == NULL) fail_msg("%s", output.err);
  assert_in_range(atoi(fits + strlen(" left; --jobs ")), 1, MANY - 1);
  assert_non_null(strstr(fits, " fits, --no-preflight tries anyway\n"));
  assert_int_not_equal(access(test_path(folder, "out"), F_OK), 0); /* nothing is left of it */
  int locks[MANY];
  for (int i = 0; i < MANY; i++) locks[i] = lock_run(i + 1);
  command_expect(folder, "sweep plan.yaml --jobs 16 --no-preflight", 7, "", "another process trains this run", &output);
  char command[2 * TEST_PATH_BYTES];
  (void)snprintf(command, sizeof command, "rm '%s'/*.yaml", test_path(folder, "out"));
  assert_int_equal(system(command), 0);
  write_large_plan(batch, ", run.preflight: false");
  command_expect(folder, "sweep plan.yaml --jobs 16", 7, "", "another process trains this run", &output);
  for (int i = 0; i < MANY; i++) assert_int_equal(close(locks[i]), 0);
}

/* The switch reaches the runs, and is no setting of the plan. */
static void runs_get_the_switch(void **state) {
  (void)state;
  command_expect(folder, "sweep plan.yaml --no-preflight " QUIET, 0, "", "", &output);
  char *const configuration = test_file_text(folder, run_path(1, "config.yaml"));
  assert_non_null(strstr(configuration, "preflight: false"));
  free(configuration);
  command_expect(folder, "sweep plan.yaml --jobs 2 " QUIET, 0, "| all | 5 | ", "", &output);
  assert_string_equal(output.err, "");
}

/* No more runs at once than are left. */
static void the_last_run_is_alone(void **state) {
  (void)state;
  test_file_write_text(folder, "plan.yaml", "config: base.yaml\nout: out\nsettings: {run.threads: 1}\n");
  command_expect(folder, "sweep plan.yaml --jobs 4 " QUIET, 0, "", "1 run at once, 1 thread each (by run.threads)\n", &output);
}

static void wrong_numbers_are_refused(void **state) {
  (void)state;
  static const char *const wrong[] = {"0", "-1", "x", "65", "1.5", "''"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    char line[64];
    (void)snprintf(line, sizeof line, "sweep plan.yaml --jobs=%s", wrong[i]);
    command_expect(folder, line, 2, "", "--jobs", &output);
    assert_int_equal(test_line_count(output.err), 1);
  }
  command_expect(folder, "sweep plan.yaml --list --jobs 2", 2, "", "--jobs", &output);
  command_expect(folder, "sweep plan.yaml --table --jobs 2", 2, "", "--jobs", &output);
  assert_int_not_equal(access(test_path(folder, "out"), F_OK), 0);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin_plan, end)
  const struct CMUnitTest tests[] = {TEST(the_results_are_those_of_one_after_another),
                                     TEST(json_is_the_same),
                                     TEST(lines_have_names),
                                     TEST(the_order_is_that_of_the_sweep),
                                     TEST(a_run_that_fails_leaves_the_others),
                                     TEST(a_run_in_use_ends_the_sweep),
                                     TEST(a_killed_run_leaves_the_others),
                                     TEST(several_plans_share_nothing),
                                     TEST(an_interrupt_saves_all_runs),
                                     TEST(an_interrupted_run_ends_the_sweep),
                                     TEST(a_second_signal_kills),
                                     TEST(a_killed_sweep_ends_its_runs),
                                     TEST(an_interrupted_sweep_continues),
                                     TEST(threads_are_divided),
                                     TEST(threads_of_the_plan_have_priority),
                                     TEST(memory_is_enough_for_all),
                                     TEST(runs_get_the_switch),
                                     TEST(the_last_run_is_alone),
                                     TEST(wrong_numbers_are_refused)};
#undef TEST
  return cmocka_run_group_tests_name("sweep_jobs", tests, NULL, NULL);
}
