/* test_kills.c - SIGKILL at every system call and at random moments: afterwards there is a whole checkpoint, of the last step whose save had
 * ended or of a later one, and the run goes on to the same weights, moments and lines of metrics as one that nobody disturbed, to the bit.
 *
 * HARK_FAULT_KILLS sets the number of random kills (12; with HARK_FAULT_LONG 200). With HARK_FAULT_LONG a fresh run and two kinds of resumed
 * runs are killed at all of their system calls, and flushes are not left out; without it, those of one save are.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fault/child.h"
#include "support/cmocka_all.h"

#define RANDOM_KILLS 12
#define RANDOM_KILLS_LONG 200
#define RANDOM_THREADS 2

static char folder[TEST_PATH_BYTES], whole[TEST_PATH_BYTES + 8], work[TEST_PATH_BYTES + 8], part[TEST_PATH_BYTES + 8];
static small_run small;

static int begin(void **state) {
  (void)state;
  test_folder_make(folder);
  (void)snprintf(whole, sizeof whole, "%s/whole", folder);
  (void)snprintf(work, sizeof work, "%s/work", folder);
  (void)snprintf(part, sizeof part, "%s/part", folder);
  small_run_open(&small, folder);
  fault_plan plan = {.unflushed = !child_long()};
  memcpy(plan.root, folder, sizeof plan.root);
  fault_set(&plan);
  return 0;
}

static int end(void **state) {
  (void)state;
  small_run_close(&small);
  test_folder_remove(folder);
  return 0;
}

/* What a killed process left, by the library's own check: whole, and not older than `saved`. */
static void check_checkpoints(int64_t saved) {
  hark_context *context = small_run_context(1);
  hark_run run;
  char checkpoint[HARK_NAME_BYTES], name[HARK_NAME_BYTES], damaged[HARK_NAME_BYTES];
  hark_status status = hark_run_open_reading(context, work, &run, checkpoint);
  if (status == HARK_OK) status = hark_checkpoint_newest(context, &run, name, damaged);
  if (status == HARK_OK) {
    if (damaged[0] != 0) fail_msg("%s is damaged after a kill", damaged);
    if (small_run_step(name) < saved) fail_msg("%s is the newest, step %d was saved", name, (int)saved);
  } else if (saved > 0) {
    fail_msg("step %d was saved, but: %s", (int)saved, hark_context_message(context));
  }
  hark_context_destroy(&context);
}

/* Both folders hold the same names. */
static void assert_same_names(hark_context *context, const char *inside) {
  hark_names left, right;
  char path[TEST_PATH_BYTES + 32];
  (void)snprintf(path, sizeof path, "%s/%s", whole, inside);
  assert_fine(context, hark_folder_list(context, path, &left));
  (void)snprintf(path, sizeof path, "%s/%s", work, inside);
  assert_fine(context, hark_folder_list(context, path, &right));
  for (int64_t i = 0; i < left.count || i < right.count; i++) {
    const char *const a = i < left.count ? left.items[i] : "nothing", *const b = i < right.count ? right.items[i] : "nothing";
    if (strcmp(a, b) != 0) fail_msg("%s: %s, expected %s", path, b, a);
  }
  hark_names_free(context, &left);
  hark_names_free(context, &right);
}

/* Goes on undisturbed, and compares with the run that always was. */
static void finish_and_compare(void) {
  hark_context *context = small_run_context(1);
  assert_fine(context, small_run_train(context, &small, work, NULL, NULL));
  small_run_assert_same(whole, work, small.config.train.steps);
  assert_same_names(context, ".");
  assert_same_names(context, "checkpoints");
  assert_same_names(context, "cache");
  hark_context_destroy(&context);
}

/* The run that is compared with. */
static void make_whole(void) {
  test_folder_remove(whole);
  hark_context *context = small_run_context(1);
  assert_fine(context, small_run_train(context, &small, whole, NULL, NULL));
  hark_context_destroy(&context);
}

/* Kills at every call of a run that begins with a copy of `from` (NULL: with nothing). Returns the number of kills. */
static long kill_at_every_call(const char *from, fault_kind kind, unsigned groups) {
  for (long at = 1;; at++) {
    const child_report *report;
    const child_settings settings = {.small = &small, .path = work, .threads = 1, .plan = {.kind = kind, .at = at, .groups = groups}};
    test_folder_remove(work);
    if (from != NULL) small_run_copy(from, work);
    const bool killed = child_run(&settings, &report);
    if (!killed) {
      if (report->status != HARK_OK) fail_msg("%s", report->message);
      if (report->calls != at - 1) fail_msg("%ld calls, but not killed at number %ld", report->calls, at);
      return at - 1;
    }
    check_checkpoints(report->saved);
    finish_and_compare();
  }
}

/* Asked after the last step, when the save before it is over. */
static hark_request die_before_the_last_save(void *user) {
  const child_report *report = user;
  if (report->saved == small.config.train.steps - 2) (void)raise(SIGKILL);
  return HARK_REQUEST_NONE;
}

/* A run with its last save to come. */
static void make_part(void) {
  const child_report *report;
  const child_settings settings = {.small = &small, .path = part, .threads = 1, .request = die_before_the_last_save};
  test_folder_remove(part);
  assert_true(child_run(&settings, &report));
}

/* The last save of a run, whose checkpoint takes the place of an older one. */
static void at_every_call_of_a_save(void **state) {
  (void)state;
  make_whole();
  make_part();
  const unsigned groups = child_long() ? FAULT_ON_ALL : FAULT_ON_CHANGE;
  const long before = kill_at_every_call(part, FAULT_KILL, groups), behind = kill_at_every_call(part, FAULT_TEAR, groups);
  print_message("%ld kills before and %ld behind a system call of a resumed run\n", before, behind);
  assert_true(before > 40); /* a save alone writes six files and moves two */
}

/* A checkpoint of the same step is in the way: the process before was killed when it stood there and `last` had not moved. */
static void at_every_call_of_a_save_that_replaces(void **state) {
  (void)state;
  const child_report *report;
  char last[TEST_PATH_BYTES + 32];
  make_whole();
  make_part();
  const child_settings rest = {.small = &small, .path = part, .threads = 1};
  hark_context *context = small_run_context(1);
  (void)snprintf(last, sizeof last, "%s/last", part);
  hark_text before = hark_text_empty(context);
  assert_fine(context, hark_file_read(context, last, 100, &before));
  small_run kept = small;
  kept.config.train.keep = 2;
  child_settings keeping = rest;
  keeping.small = &kept;
  assert_false(child_run(&keeping, &report));
  assert_fine(context, hark_file_write(context, last, hark_text_get(&before), before.length));
  hark_text_free(&before);
  hark_context_destroy(&context);
  const unsigned groups = child_long() ? FAULT_ON_ALL : FAULT_ON_CHANGE;
  const long kills = kill_at_every_call(part, FAULT_KILL, groups) + (child_long() ? kill_at_every_call(part, FAULT_TEAR, groups) : 0);
  print_message("%ld kills of a run that replaces a checkpoint\n", kills);
}

static void at_every_call_of_a_fresh_run(void **state) {
  (void)state;
  make_whole();
  const unsigned groups = child_long() ? FAULT_ON_ALL : FAULT_ON_CHANGE;
  const long kills = kill_at_every_call(NULL, FAULT_KILL, groups) + (child_long() ? kill_at_every_call(NULL, FAULT_TEAR, groups) : 0);
  print_message("%ld kills of a fresh run\n", kills);
  assert_true(kills > 200);
}

/* Uniform in [0, below): the multiplicative generator of Lehmer (Park and Miller 1988). */
static uint64_t random_below(uint64_t *state, uint64_t below) {
  *state = *state * 48271 % 2147483647;
  return *state * below / 2147483647;
}

static long microseconds_of_a_run(void) {
  const child_report *report;
  const child_settings settings = {.small = &small, .path = work, .threads = RANDOM_THREADS};
  struct timespec from, to;
  test_folder_remove(work);
  (void)clock_gettime(CLOCK_MONOTONIC, &from);
  assert_false(child_run(&settings, &report));
  (void)clock_gettime(CLOCK_MONOTONIC, &to);
  assert_int_equal(report->status, HARK_OK);
  return (long)(to.tv_sec - from.tv_sec) * 1000000 + (to.tv_nsec - from.tv_nsec) / 1000;
}

/* Up to three kills follow each other before a run may go on to its end. A kill that came too late is none. */
static void at_random_moments(void **state) {
  (void)state;
  const char *const asked = getenv("HARK_FAULT_KILLS");
  const long wanted = asked != NULL ? strtol(asked, NULL, 10) : child_long() ? RANDOM_KILLS_LONG : RANDOM_KILLS;
  uint64_t random = 1;
  small.config.train.steps = 12;
  small.config.train.keep = 2;
  make_whole();
  long kills = 0, runs = 0, before_ready = 0;
  for (; kills < wanted && runs < 10 * wanted; runs++) {
    const long length = microseconds_of_a_run();
    test_folder_remove(work);
    int64_t saved = 0;
    for (uint64_t times = 1 + random_below(&random, 3); times > 0 && kills < wanted; times--) {
      const child_report *report;
      const child_settings settings = {.small = &small,
                                       .path = work,
                                       .threads = RANDOM_THREADS,
                                       .kill_after_microseconds = 1 + (long)random_below(&random, (uint64_t)length)};
      if (!child_run(&settings, &report)) {
        if (report->status != HARK_OK) fail_msg("%s", report->message);
        break;
      }
      kills++;
      before_ready += !report->ready;
      saved = hark_max(saved, report->saved);
      check_checkpoints(saved);
    }
    finish_and_compare();
  }
  print_message("%ld kills at random moments of %ld runs, %ld of them before the first step\n", kills, runs, before_ready);
  assert_true(kills >= wanted);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(at_every_call_of_a_save),
      cmocka_unit_test(at_every_call_of_a_save_that_replaces),
      cmocka_unit_test(at_every_call_of_a_fresh_run),
      cmocka_unit_test(at_random_moments),
  };
  return cmocka_run_group_tests(tests, begin, end);
}
