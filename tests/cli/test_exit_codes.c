/* test_exit_codes.c - every exit code that hark documents, reached by a real situation, as a process: one row each, at least. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

#include "cli/commands.h"
#include "cli/process.h"
#include "support/cmocka_all.h"
#include "support/sanitized.h"
#include "support/train/command_place.h"

#define ENDLESS "--data text.txt --steps 1000000000 --evaluate-every 0 --checkpoint-every 0 " COMMAND_TINY
#define WAIT_SECONDS 120

static char folder[TEST_PATH_BYTES];
static test_output output;

static pid_t running; /* what start() began and finish() has not ended; 0: nothing */

static int begin(void **state) {
  (void)state;
  command_place_open(folder);
  return 0;
}

/* A test that fails leaves no process. */
static int end(void **state) {
  (void)state;
  if (running > 0) {
    (void)kill(running, SIGKILL);
    (void)waitpid(running, NULL, 0);
    running = 0;
  }
  command_place_close(folder, &output);
  return 0;
}

/* ---- processes that are stopped from outside ---- */

/* Starts "hark WORDS" in the folder, with its output thrown away. */
static void start(const char *words) {
  char command[2048];
  snprintf(command, sizeof command, "cd '%s' && exec '%s' %s >/dev/null 2>&1", folder, HARK_COMMAND, words);
  const pid_t process = fork();
  if (process == 0) {
    execl("/bin/sh", "sh", "-c", command, (char *)NULL);
    _exit(127);
  }
  assert_true(process > 0);
  running = process;
}

/* Waits until a run has logged a step; fails when its process ends before. */
static void wait_for_steps(const char *run) {
  char path[TEST_PATH_BYTES + 64], begun[TEST_PATH_BYTES + 64];
  struct stat about;
  snprintf(path, sizeof path, "%s/%s/metrics.jsonl", folder, run);
  snprintf(begun, sizeof begun, "%s/%s/config.yaml", folder, run); /* which comes after the first line of metrics */
  for (int i = 0; i < WAIT_SECONDS * 100; i++) {
    const struct timespec pause = {0, 10000000};
    int result;
    if (access(begun, F_OK) == 0 && stat(path, &about) == 0 && about.st_size > 0) return;
    if (waitpid(running, &result, WNOHANG) != 0) {
      running = 0;
      fail_msg("hark ended before its first step, with %d", result);
    }
    nanosleep(&pause, NULL);
  }
  fail_msg("no step in %d seconds", WAIT_SECONDS);
}

static int finish(int signal_number) {
  int result;
  kill(running, signal_number);
  assert_int_equal(waitpid(running, &result, 0), running);
  running = 0;
  if (!WIFEXITED(result)) fail_msg("hark was killed by signal %d instead of ending by itself", WTERMSIG(result));
  return WEXITSTATUS(result);
}

/* ---- the situations ---- */

static int run(const char *environment, const char *words) {
  test_command_run(folder, environment, words, &output);
  return output.code;
}

static int nothing_wrong(void) { return run("", "train --out run --steps 2 --data text.txt " COMMAND_TINY); }
static int time_is_up(void) { return run("", "train --out run --max-time 0.2s " ENDLESS); }

/* gnuplot is there, and fails. */
static int another_program_fails(void) {
  test_file_write_text(folder, "m.jsonl", "{\"step\": 1, \"train/loss\": 2}\n{\"step\": 2, \"train/loss\": 1}\n");
  assert_int_equal(chmod(test_file_write_text(folder, "gnuplot", "#!/bin/sh\nexit 3\n"), 0755), 0);
  return run("PATH=\"$PWD:$PATH\"", "plot m.jsonl");
}

static int unknown_flag(void) { return run("", "train --no-such-flag"); }
static int unknown_subcommand(void) { return run("", "tarin"); }
static int impossible_combination(void) { return run("", "train --data text.txt --width 15 --heads 2"); }
static int wrong_key_in_a_file(void) {
  test_file_write_text(folder, "c.yaml", "model:\n  laers: 2\n");
  return run("", "config --config c.yaml");
}

static int no_such_file(void) { return run("", "train --data none.txt --out run"); }
static int malformed_tensors(void) {
  test_file_write_text(folder, "in.safetensors", "not tensors");
  return run("", "attend --input in.safetensors --output out.safetensors");
}
static int malformed_text(void) {
  test_file_write(folder, "bad.txt", "good \xff bad", 10);
  return run("", "train --data bad.txt --out run " COMMAND_TINY);
}

static int stdout_on_a_full_disk(void) {
  char command[1024];
  snprintf(command, sizeof command, "cd '%s' && '%s' config >/dev/full 2>.err", folder, HARK_COMMAND);
  const int status = system(command);
  assert_true(WIFEXITED(status));
  return WEXITSTATUS(status);
}
static int run_folder_below_a_file(void) { return run("", "train --data text.txt --out text.txt/run " COMMAND_TINY); }
static int output_that_no_program_replaces(void) {
  assert_int_equal(nothing_wrong(), HARK_EXIT_DONE);
  return run("", "export run --output /proc/version");
}
static int no_folder_for_unpacked_text(void) {
  char command[1024];
  assert_int_equal(nothing_wrong(), HARK_EXIT_DONE);
  snprintf(command, sizeof command, "cd '%s' && gzip -c text.txt >text.gz", folder);
  assert_int_equal(system(command), 0);
  return run("TMPDIR=/nowhere", "tokenize run text.gz");
}
static int no_folder_for_tokens(void) {
  assert_int_equal(nothing_wrong(), HARK_EXIT_DONE);
  assert_int_equal(run("", "export run --output model.safetensors"), HARK_EXIT_DONE);
  return run("TMPDIR=/nowhere", "eval model.safetensors --data text.txt --targets 9");
}
static int picture_over_a_folder(void) {
  test_file_write_text(folder, "m.jsonl", "{\"step\": 1, \"train/loss\": 2}\n");
  test_file_write_text(folder, "x.svg/inside", "a folder stands where the picture must go");
  return run("", "plot m.jsonl -o x.svg");
}

/* The C library refuses: the process may not have what the model needs. The sanitizers' allocators need address space without end; with
 * them it is a model that is larger than any address space. */
static int less_memory_than_the_model_needs(void) {
  if (TEST_SANITIZED)
    return run("ASAN_OPTIONS=allocator_may_return_null=1",
               "train --data text.txt --out run --steps 1 --no-preflight --width 1048576 --layers 100");
  return run("ulimit -v 1500000 &&",
             "train --data text.txt --out run --steps 1 --no-preflight --threads 1 --width 2048 --heads 16 --layers 24");
}
static int larger_than_any_memory(void) { return run("", "bench attention dense:B1000000,H1000000,L100000000,D64"); }

static int steps_that_overflow(void) {
  return run("", "train --data text.txt --out run --steps 20 --lr 1e30 --clip 0 --train.max-bad-steps 3 " COMMAND_TINY);
}

/* Two processes on one folder: the second is refused, the first does not notice. */
static int folder_of_another_process(void) {
  start("train --out run " ENDLESS);
  wait_for_steps("run");
  const int code = run("", "train --resume --out run --data text.txt");
  assert_int_equal(kill(running, 0), 0);
  assert_int_equal(finish(SIGTERM), HARK_EXIT_TERMINATED);
  assert_int_equal(run("", "train --resume --out run --max-time 0.2s"), HARK_EXIT_DONE); /* and when it is gone, the folder is free */
  return code;
}

static int unknown_backend(void) { return run("", "train --data text.txt --out run --backend abacus " COMMAND_TINY); }
static int unknown_instruction_set(void) { return run("HARK_ARCH=abacus", "version"); }

static int stopped_by(int signal_number) {
  start("train --out run " ENDLESS);
  wait_for_steps("run");
  const int code = finish(signal_number);
  assert_int_equal(run("", "train --resume --out run --max-time 0.2s"), HARK_EXIT_DONE); /* it has saved */
  if (strstr(output.err, "continuing from step-") == NULL) fail_msg("%s", output.err);
  return code;
}
static int hung_up(void) { return stopped_by(SIGHUP); }
static int interrupted(void) { return stopped_by(SIGINT); }
static int terminated(void) { return stopped_by(SIGTERM); }

/* ---- a parent that is killed ---- */

#ifdef __linux__
/* What takes a while to save. */
#define LARGE                                                                                                                              \
  "--data text.txt --steps 1000000000 --evaluate-every 0 --checkpoint-every 0 --layers 2 --width 256 --heads 2 --context 8 --batch 2 "     \
  "--threads 1"

static void pause_milliseconds(long milliseconds) {
  const struct timespec pause = {0, milliseconds * 1000000};
  (void)nanosleep(&pause, NULL);
}

/* In a thread of a process of its own: starts a training that gets a signal when its parent ends, waits for its first step, and ends. */
static void *begin_orphan(void *unused) {
  static char command[2048], begun[TEST_PATH_BYTES + 64];
  (void)unused;
  (void)snprintf(command, sizeof command, "cd '%s' && exec '%s' train --out run %s >/dev/null 2>&1", folder, HARK_COMMAND, LARGE);
  (void)snprintf(begun, sizeof begun, "%s/run/config.yaml", folder);
  if (fork() == 0) {
    (void)prctl(PR_SET_PDEATHSIG, HARK_PARENT_ENDED);
    execl("/bin/sh", "sh", "-c", command, (char *)NULL);
    _exit(127);
  }
  for (int i = 0; i < WAIT_SECONDS * 100 && access(begun, F_OK) != 0; i++) pause_milliseconds(10);
  pause_milliseconds(100);
  return NULL;
}

/* Keeps the process for a while. */
static void *end_last(void *unused) {
  (void)unused;
  pause_milliseconds(500);
  _exit(0);
}

/* Its threads end one after another. */
static void be_parent(void) {
  pthread_t first, last;
  if (pthread_create(&first, NULL, begin_orphan, NULL) != 0 || pthread_join(first, NULL) != 0) _exit(1);
  if (pthread_create(&last, NULL, end_last, NULL) != 0) _exit(1);
  pause_milliseconds(1); /* the training is being saved */
  pthread_exit(NULL);
}
#endif

/* When a parent of several threads dies, its children pass from thread to thread, and the system sends the signal each time. This is one
 * event: the run saves. */
static void the_end_of_a_parent_is_one_event(void **state) {
  (void)state;
#ifdef __linux__
  const pid_t parent = fork();
  if (parent == 0) be_parent();
  int result;
  assert_int_equal(waitpid(parent, &result, 0), parent);
  assert_int_equal(result, 0);
  for (int i = 0; i < WAIT_SECONDS * 10 && run("", "train --resume --out run --max-time 0.2s") == HARK_EXIT_BUSY; i++)
    pause_milliseconds(100);
  if (output.code != 0 || strstr(output.err, "continuing from step-") == NULL) fail_msg("%s", output.err);
#else
  skip();
#endif
}

/* An input with an empty path, or with one that is longer than a path can be, is a missing input for every subcommand. */
static void a_path_without_a_file_is_a_missing_input(void **state) {
  (void)state;
  static const char *const commands[] = {"generate", "eval", "predict", "export", "verify", "info", "inspect", "embed"};
  static const char *const paths[] = {"''", "$(head -c 5000 /dev/zero | tr '\\0' a)"};
  char words[128];
  for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
    for (size_t p = 0; p < sizeof paths / sizeof *paths; p++) {
      test_output_free(&output);
      (void)snprintf(words, sizeof words, "%s %s%s", commands[i], paths[p], strcmp(commands[i], "embed") == 0 ? " text.txt" : "");
      const int code = run("", words);
      if (code != HARK_EXIT_BAD_INPUT) fail_msg("%s: exit code %d: %s", words, code, output.err);
    }
}

typedef struct situation {
  int code;
  const char *name;
  int (*reach)(void);
  const char *says; /* a part of the one line on stderr; NULL: not looked at */
} situation;

#define ROW(code, name, says)                                                                                                              \
  { code, #name, name, says }
static const situation situations[] = {
    ROW(HARK_EXIT_DONE, nothing_wrong, NULL),
    ROW(HARK_EXIT_DONE, time_is_up, NULL),
    ROW(HARK_EXIT_FAILED, another_program_fails, "gnuplot failed"),
    ROW(HARK_EXIT_USAGE, unknown_flag, "--no-such-flag: unknown flag"),
    ROW(HARK_EXIT_USAGE, unknown_subcommand, "did you mean train?"),
    ROW(HARK_EXIT_USAGE, impossible_combination, "not divisible"),
    ROW(HARK_EXIT_USAGE, wrong_key_in_a_file, "c.yaml:2: model.laers: unknown key; did you mean model.layers?"),
    ROW(HARK_EXIT_BAD_INPUT, no_such_file, "none.txt"),
    ROW(HARK_EXIT_BAD_INPUT, malformed_tensors, "in.safetensors"),
    ROW(HARK_EXIT_BAD_INPUT, malformed_text, "bad.txt"),
    ROW(HARK_EXIT_DISK, stdout_on_a_full_disk, NULL),
    ROW(HARK_EXIT_DISK, run_folder_below_a_file, "--out text.txt/run: cannot be a folder"),
    ROW(HARK_EXIT_DISK, picture_over_a_folder, "x.svg"),
    ROW(HARK_EXIT_DISK, output_that_no_program_replaces, "/proc/version"),
    ROW(HARK_EXIT_DISK, no_folder_for_unpacked_text, "TMPDIR"),
    ROW(HARK_EXIT_DISK, no_folder_for_tokens, "TMPDIR"),
    ROW(HARK_EXIT_MEMORY, less_memory_than_the_model_needs, "out of memory: "),
    ROW(HARK_EXIT_MEMORY, larger_than_any_memory, "larger than memory can be"),
    ROW(HARK_EXIT_NOT_FINITE, steps_that_overflow, "3 steps in a row had numbers that are not finite"),
    ROW(HARK_EXIT_BUSY, folder_of_another_process, NULL),
    ROW(HARK_EXIT_NO_BACKEND, unknown_backend, "abacus"),
    ROW(HARK_EXIT_NO_BACKEND, unknown_instruction_set, "abacus"),
    ROW(HARK_EXIT_HANGUP, hung_up, NULL),
    ROW(HARK_EXIT_INTERRUPTED, interrupted, NULL),
    ROW(HARK_EXIT_TERMINATED, terminated, NULL),
};
#undef ROW

static void every_situation_has_its_exit_code(void **state) {
  const situation *const s = *state;
  test_output_free(&output);
  const int code = s->reach();
  const char *const err = output.err != NULL ? output.err : "";
  if (code != s->code) fail_msg("%s: exit code %d, expected %d; stderr: %s", s->name, code, s->code, err);
  if (s->says != NULL && (strstr(err, s->says) == NULL || output.out[0] != 0)) {
    fail_msg("%s: stdout \"%s\", stderr \"%s\", expected \"%s\" on stderr alone", s->name, output.out, err, s->says);
  }
}

/* The numbers are an interface: they stay, each is reached above, and the documents have them all. */
static void every_exit_code_is_reached_and_documented(void **state) {
  (void)state;
#define ROW(name, number, text) {name, number, text},
  static const struct {
    int is, was;
    const char *text;
  } codes[] = {HARK_EXIT_CODES(ROW)};
#undef ROW
  static const int was[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 129, 130, 143};
  assert_int_equal(sizeof codes / sizeof codes[0], sizeof was / sizeof was[0]);
  size_t bytes;
  char *const document = (char *)test_file_read(HARK_SOURCE_DIR "/docs/formats.md", &bytes);
  assert_int_equal(run("", "--help"), 0);
  for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++) {
    char part[128];
    assert_int_equal(codes[i].is, was[i]);
    snprintf(part, sizeof part, " %d %s", codes[i].is, codes[i].text);
    if (strstr(output.out, part) == NULL) fail_msg("hark --help does not say \"%s\": %s", part, output.out);
    snprintf(part, sizeof part, codes[i].is > HARK_EXIT_SIGNAL ? "| 129, 130, 143 |" : "| %d |", codes[i].is);
    if (strstr(document, part) == NULL) fail_msg("docs/formats.md has no row of exit code %d", codes[i].is);
    size_t reached = 0;
    for (size_t s = 0; s < sizeof situations / sizeof situations[0]; s++) reached += situations[s].code == codes[i].is;
    if (reached == 0) fail_msg("no situation ends with %d", codes[i].is);
  }
  free(document);
}

int main(void) {
  enum { COUNT = sizeof situations / sizeof situations[0] };
  struct CMUnitTest tests[COUNT + 3];
  for (size_t i = 0; i < COUNT; i++) {
    tests[i] = (struct CMUnitTest){situations[i].name, every_situation_has_its_exit_code, begin, end, (void *)&situations[i]};
  }
  tests[COUNT] = (struct CMUnitTest)cmocka_unit_test_setup_teardown(every_exit_code_is_reached_and_documented, begin, end);
  tests[COUNT + 1] = (struct CMUnitTest)cmocka_unit_test_setup_teardown(the_end_of_a_parent_is_one_event, begin, end);
  tests[COUNT + 2] = (struct CMUnitTest)cmocka_unit_test_setup_teardown(a_path_without_a_file_is_a_missing_input, begin, end);
  return cmocka_run_group_tests_name("exit codes", tests, NULL, NULL);
}
