/* test_sweep.c - hark sweep under a launcher: real processes share the runs, with the results of one process; errors are printed once; a
 * rank that is killed is named, and any number of processes continues. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "group/launch_place.h"
#include "support/train/sweep_place.h"

#define RUNS 4
#define STEPS 4000 /* of a run that is disturbed: about half a second */
#define PLAN "config: base.yaml\nout: out\nseeds: [1, 2, 3, 4]\n"
#define QUIET " --no-picture --beside operations"
#define SCRIPT "version >/dev/null; sh script.sh" /* after hark */

static int place_open(void **state) {
  (void)launch_place_open(state);
  sweep_place_base(launch_folder, 4);
  test_file_write_text(launch_folder, "plan.yaml", PLAN);
  return 0;
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

/* What "BEFORE hark WORDS" prints on stdout, for free(); its stderr is in the file err.txt. */
static char *print(const char *before, const char *words, int code) {
  test_output output = {0};
  test_command_run(launch_folder, before, words, &output);
  if (output.code != code) { /* a message of a failure has a limit */
    const size_t length = strlen(output.err);
    fail_msg("%s: exit code %d, expected %d: %s...%s", words, output.code, code, output.out,
             output.err + (length > 600 ? length - 600 : 0));
  }
  test_file_write_text(launch_folder, "err.txt", output.err);
  char *const text = strdup(output.out);
  test_output_free(&output);
  return text;
}

static void expect(const char *before, const char *words, const char *printed) {
  char *const text = print(before, words, 0);
  assert_string_equal(text, printed);
  free(text);
}

/* How often err.txt has a part. */
static int messages(const char *part) {
  char *const text = test_file_text(launch_folder, "err.txt");
  const int count = test_part_count(text, part);
  free(text);
  return count;
}

static void in_shell(const char *words) {
  char command[TEST_PATH_BYTES + 512];
  (void)snprintf(command, sizeof command, "cd '%s' && %s", launch_folder, words);
  if (system(command) != 0) fail_msg("%s", words);
}

/* The table of one process alone; its runs are in first/, and out/ is free. */
static char *make_reference(void) {
  char *const table = print("", "sweep plan.yaml" QUIET, 0);
  in_shell("mv out first");
  return table;
}

#define MODELS                                                                                                                             \
  "for run in first/*/; do cmp $run/checkpoints/step-%d/model.safetensors out/${run#first/}/checkpoints/step-%d/model.safetensors || "     \
  "exit 1; done"

/* The same files, but for those that depend on time; the same lines of results in some order. */
static void expect_same(void) {
  in_shell(
      "diff -r -x cache -x 'metrics*' -x state.json -x manifest.json -x results.jsonl -x .lock out first && "
      "sort first/results.jsonl >a && sort out/results.jsonl >b && cmp a b");
}

/* ---- sharing ---- */

/* Every line is of the sweep, or begins with the name of a run. */
static void expect_names(void) {
  static const char *const own[] = {"run ", "4 runs at once in 2 processes, 1 thread each", "hark sweep: warning: "};
  char *const text = test_file_text(launch_folder, "err.txt");
  for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
    int seed = 0, length = 0;
    bool named = sscanf(line, "all-seed=%d: %n", &seed, &length) == 1 && length > 0 && line[length] != '\0';
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) named = named || strncmp(line, own[i], strlen(own[i])) == 0;
    if (!named) fail_msg("without a name: \"%s\"", line);
  }
  free(text);
}

static void processes_share_the_runs(void **state) {
  (void)state;
  skip_without_launcher();
  char *const table = make_reference();
  expect(LAUNCH("3"), "sweep plan.yaml" QUIET, table);
  expect_same();
  in_shell("rm -r out");
  expect(LAUNCH("2"), "sweep plan.yaml --jobs 2" QUIET, table);
  expect_same();
  for (int run = 1; run <= RUNS; run++) {
    char words[64];
    (void)snprintf(words, sizeof words, "run %d of %d: out/all-seed=%d; ", run, RUNS, run);
    assert_int_equal(messages(words), 1);
  }
  expect_names();
  expect(LAUNCH("2"), "sweep plan.yaml" QUIET, table); /* nothing is left */
  expect(LAUNCH("2"), "sweep plan.yaml --table --beside operations", table);
  assert_int_equal(messages("run "), 0);
  expect("", "sweep plan.yaml" QUIET, table);
  free(table);
}

static void runs_that_fail_are_reported_once(void **state) {
  (void)state;
  skip_without_launcher();
  test_file_write_text(launch_folder, "plan.yaml",
                       "config: base.yaml\nout: out\nseeds: [1, 2]\nvariants: {good: {}, bad: {train.init_from: text.txt}, more: {}}\n");
  char *const alone = print("", "sweep plan.yaml" QUIET, 1);
  in_shell("mv out first");
  char *const shared = print(LAUNCH("3"), "sweep plan.yaml" QUIET, 1);
  assert_string_equal(shared, alone);
  assert_int_equal(messages("2 of 6 runs failed"), 1);
  assert_int_equal(messages("bad-seed=1: hark train: "), 1);
  expect_same();
  free(alone);
  free(shared);
}

static void expect_error(const char *before, const char *words, int code, const char *message) {
  char *const text = print(before, words, code);
  assert_string_equal(text, "");
  if (messages(message) != 1 || messages("hark sweep: ") != 1) {
    char *const found = test_file_text(launch_folder, "err.txt");
    fail_msg("%s: \"%s\", expected \"%s\" once", words, found, message);
  }
  free(text);
}

static void errors_are_printed_once(void **state) {
  (void)state;
  skip_without_launcher();
  expect_error(LAUNCH("3"), "sweep gone.yaml", 3, "gone.yaml: cannot be opened");
  expect_error(LAUNCH("3"), "sweep plan.yaml --baseline=none", 2, "there is no cell 'none'");
  expect_error(LAUNCH("2"), "sweep plan.yaml --jobs=0", 2, "--jobs");
  expect_error(LAUNCH("2"),
               "version >/dev/null; " LAUNCH("2") "sh -c 'exec " HARK_COMMAND " sweep plan.yaml --jobs=$((1 + " LAUNCH_RANK "))'", 2,
               "rank 1: the options are not those of rank 0");
  test_file_write_text(launch_folder, "plan.yaml", PLAN "settings: {model.widht: 3}\n");
  expect_error(LAUNCH("3"), "sweep plan.yaml", 2, "model.widht");
  assert_int_not_equal(access(test_path(launch_folder, "out"), F_OK), 0);
}

/* ---- processes that end ---- */

/* The number of different processes that train, or have trained, runs 1 to 2: parents of those that hold their locks. */
#define PARENTS                                                                                                                            \
  "parents() { for run in 1 2; do sed -n 's/^PPid:.//p' /proc/$(cat out/all-seed=$run/.lock)/status; done | sort -u | wc -l; }\n"

/* Their first steps can be seen: before them a run has nothing to save. */
static void plan_long_runs(void) {
  sweep_place_base(launch_folder, STEPS);
  test_file_write_text(launch_folder, "plan.yaml", PLAN "settings: {train.log_every: 20}\n");
}

#define TRAINS "trains() { grep -q '\"step\": *[1-9]' out/all-seed=$1/metrics.jsonl 2>/dev/null; }\n"

/* Waits for steps of both runs, notes how many processes have them, and kills `rank` by a signal: the script is what each process runs. */
static void disturb(int rank, const char *signal) {
  write_script(PARENTS TRAINS "if [ \"" LAUNCH_RANK
                              "\" = %d ]; then\n"
                              "  (until trains 1 && trains 2 || ! kill -0 $$; do sleep 0.01; done\n"
                              "  parents >parents; kill -%s $$) &\n"
                              "fi\n"
                              "exec " HARK_COMMAND " sweep plan.yaml" QUIET "\n",
               rank, signal);
}

/* Runs of processes that were killed save and end by themselves. That of the killed process does so at once; another one may be over, so
 * that a later run had begun. */
static void wait_until_saved(void) {
  int64_t least = STEPS;
  for (int seed = 1; seed <= RUNS; seed++) {
    char run[32], lock[48];
    (void)snprintf(run, sizeof run, "out/all-seed=%d", seed);
    (void)snprintf(lock, sizeof lock, "%s/.lock", run);
    if (seed > 2 && access(test_path(launch_folder, lock), F_OK) != 0) continue;
    sweep_place_wait_for_lock(launch_folder, run);
    if (seed > 2) continue;
    const int64_t last = sweep_place_last_step(launch_folder, run);
    assert_in_range(last, 1, STEPS);
    least = last < least ? last : least;
  }
  assert_true(least < STEPS);
}

static void expect_parents(void) {
  char *const parents = test_file_text(launch_folder, "parents");
  assert_string_equal(parents, "2\n");
  free(parents);
}

static void expect_models(void) {
  char words[512];
  (void)snprintf(words, sizeof words, MODELS, STEPS, STEPS);
  in_shell(words);
}

static void run_disturbed(const char *launch, int rank, const char *signal) {
  test_output output = {0};
  disturb(rank, signal);
  char words[1024];
  (void)snprintf(words, sizeof words, "version >/dev/null; %s sh script.sh", launch);
  test_command_run(launch_folder, "", words, &output);
  test_file_write_text(launch_folder, "err.txt", output.err);
  if (output.code == 0) fail_msg("the sweep was not disturbed: %s", output.err);
  assert_string_equal(output.out, "");
  test_output_free(&output);
}

/* Rank 1, then rank 0; continued by 3 processes, which are killed too, and by one. */
static void a_killed_rank_is_named(void **state) {
  (void)state;
  skip_without_launcher();
  plan_long_runs();
  char *const table = make_reference();
  run_disturbed(LAUNCH("2"), 1, "KILL");
  assert_int_equal(messages("hark sweep: the process of rank 1 was killed; "), 1);
  expect_parents();
  wait_until_saved();
  expect(LAUNCH("3"), "sweep plan.yaml" QUIET, table);
  expect_models();
  in_shell("rm -r out");
  run_disturbed(LAUNCH("3"), 0, "KILL");
  assert_int_equal(messages("hark sweep: rank 1: the process of rank 0 was killed; "), 1);
  wait_until_saved();
  expect("", "sweep plan.yaml --jobs 2" QUIET, table);
  expect_models();
  assert_int_not_equal(access(test_path(launch_folder, "out/.ranks"), F_OK), 0);
  free(table);
}

/* A signal to one process ends the sweep as a signal to a sweep of one process does: all runs save. */
static void a_signal_stops_all(void **state) {
  (void)state;
  skip_without_launcher();
  sweep_place_base(launch_folder, SWEEP_LONG_STEPS);
  for (int rank = 0; rank < 2; rank++) {
    run_disturbed(LAUNCH("2"), rank, "TERM");
    assert_int_equal(messages("stopped: 4 of 4 runs are not complete; call the sweep again to continue\n"), 1);
    assert_int_equal(messages("was killed"), 0);
    for (int seed = 1; seed <= 2; seed++) {
      char run[32];
      (void)snprintf(run, sizeof run, "out/all-seed=%d", seed);
      assert_in_range(sweep_place_last_step(launch_folder, run), 1, SWEEP_LONG_STEPS - 1);
    }
    in_shell("rm -r out");
  }
}

static void one_folder_is_for_one_launch(void **state) {
  (void)state;
  skip_without_launcher();
  sweep_place_base(launch_folder, SWEEP_LONG_STEPS);
  write_script(LAUNCH("2") HARK_COMMAND
               " sweep plan.yaml >first 2>&1 &\n"
               "first=$!\n"
               "until [ -e out/all-seed=2/metrics.jsonl ] || ! kill -0 $first; do sleep 0.05; done\n" LAUNCH("2") HARK_COMMAND
               " sweep plan.yaml\n"
               "code=$?\n"
               "kill -TERM $first; wait $first\n"
               "exit $code\n");
  expect_error("", SCRIPT, 7, "out: another sweep trains runs in this folder");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(processes_share_the_runs, place_open, launch_place_close),
      cmocka_unit_test_setup_teardown(runs_that_fail_are_reported_once, place_open, launch_place_close),
      cmocka_unit_test_setup_teardown(errors_are_printed_once, place_open, launch_place_close),
      cmocka_unit_test_setup_teardown(a_killed_rank_is_named, place_open, launch_place_close),
      cmocka_unit_test_setup_teardown(a_signal_stops_all, place_open, launch_place_close),
      cmocka_unit_test_setup_teardown(one_folder_is_for_one_launch, place_open, launch_place_close),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
