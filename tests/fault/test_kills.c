/* test_kills.c - SIGKILL at every system call and at random moments: afterwards there is a whole checkpoint, of the last step whose save
 * had ended or of a later one, and the run goes on to the same weights, moments and lines of metrics as one that nobody disturbed, to the
 * bit.
 *
 * HARK_FAULT_KILLS sets the number of random kills (24; with HARK_FAULT_LONG 200). Runs over labelled examples are killed at random calls.
 * Without HARK_FAULT_LONG only calls that change something are struck (the others leave the folder as the one before did), some scenarios
 * before a call only, and flushes are left out.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "fault/child.h"
#include "support/cmocka_all.h"

#define RANDOM_KILLS 24
#define RANDOM_KILLS_LONG 200
#define RANDOM_THREADS 2
#define EXAMPLE_KILLS 16

static child_place place;

static int begin(void **state) {
  (void)state;
  child_place_open(&place);
  return 0;
}

static int end(void **state) {
  (void)state;
  child_place_close(&place);
  return 0;
}

/* Kills at every call of a run that begins with a copy of `from` (NULL: with nothing). Returns the number of kills. */
static long kill_at_every_call(const char *from, fault_kind kind) {
  for (long at = 1;; at++) {
    const child_report *report;
    const child_settings settings = {.small = &place.small,
                                     .path = place.work,
                                     .threads = 1,
                                     .plan = {.kind = kind, .at = at, .groups = child_long() ? FAULT_ON_ALL : FAULT_ON_CHANGE}};
    child_begin_work(&place, from);
    if (!child_run(&settings, &report)) {
      if (report->status != HARK_OK) fail_msg("%s", report->message);
      if (report->calls != at - 1) fail_msg("%ld calls, but not killed at number %ld", report->calls, at);
      return at - 1;
    }
    child_check(&place, report->saved);
    child_finish_and_compare(&place);
  }
}

/* The last save of a run, whose checkpoint takes the place of an older one. */
static void at_every_call_of_a_save(void **state) {
  (void)state;
  child_make_whole(&place);
  child_make_part(&place);
  const long before = kill_at_every_call(place.part, FAULT_KILL), after = kill_at_every_call(place.part, FAULT_TEAR);
  print_message("%ld kills before and %ld after a system call of a resumed run\n", before, after);
  assert_true(before > 40); /* a save alone writes six files and moves two */
}

/* The last checkpoint is damaged: the run falls back to the one before and saves the same step over it. */
static void at_every_call_of_a_save_that_replaces(void **state) {
  (void)state;
  const child_report *report;
  char model[CHILD_PATH_BYTES + 64];
  child_make_whole(&place);
  child_make_part(&place);
  small_run keeping = place.small;
  keeping.config.train.keep = 2;
  const child_settings rest = {.small = &keeping, .path = place.part, .threads = 1};
  assert_false(child_run(&rest, &report));
  (void)snprintf(model, sizeof model, "checkpoints/step-%d/model.safetensors", (int)place.small.config.train.steps);
  (void)test_file_write(place.part, model, "torn", 4);
  place.damaged = true;
  const long kills = kill_at_every_call(place.part, FAULT_KILL) + (child_long() ? kill_at_every_call(place.part, FAULT_TEAR) : 0);
  place.damaged = false;
  print_message("%ld kills of a run that replaces a damaged checkpoint\n", kills);
  assert_true(kills > 40);
}

static void at_every_call_of_a_fresh_run(void **state) {
  (void)state;
  child_make_whole(&place);
  const long kills = kill_at_every_call(NULL, FAULT_KILL) + (child_long() ? kill_at_every_call(NULL, FAULT_TEAR) : 0);
  print_message("%ld kills of a fresh run\n", kills);
  assert_true(kills > 200);
}

/* Uniform in [0, below): the multiplicative generator of Park and Miller (1988). */
static uint64_t random_below(uint64_t *state, uint64_t below) {
  *state = *state * 48271 % 2147483647;
  return *state * below / 2147483647;
}

static long microseconds_of_a_run(void) {
  const child_report *report;
  const child_settings settings = {.small = &place.small, .path = place.work, .threads = RANDOM_THREADS};
  struct timespec from, to;
  child_begin_work(&place, NULL);
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
  const long planned = asked != NULL ? strtol(asked, NULL, 10) : child_long() ? RANDOM_KILLS_LONG : RANDOM_KILLS;
  uint64_t random = 1;
  place.small.config.train.steps = 12;
  place.small.config.train.keep = 2;
  child_make_whole(&place);
  long kills = 0, runs = 0, before_ready = 0, length = 0;
  for (; kills < planned && runs < 10 * planned; runs++) {
    int64_t saved = 0;
    if (runs % 10 == 0) length = microseconds_of_a_run(); /* the machine may have become busier */
    child_begin_work(&place, NULL);
    for (uint64_t times = 1 + random_below(&random, 3); times > 0 && kills < planned; times--) {
      const child_report *report;
      const child_settings settings = {.small = &place.small,
                                       .path = place.work,
                                       .threads = RANDOM_THREADS,
                                       .kill_after_microseconds = 1 + (long)random_below(&random, (uint64_t)length)};
      if (!child_run(&settings, &report)) {
        if (report->status != HARK_OK) fail_msg("%s", report->message);
        break;
      }
      kills++;
      before_ready += !report->ready;
      saved = hark_max(saved, report->saved);
      child_check(&place, saved);
    }
    child_finish_and_compare(&place);
  }
  print_message("%ld kills at random moments of %ld runs, %ld of them before the first step\n", kills, runs, before_ready);
  assert_true(kills >= planned);
}

/* An encoder over labelled examples: no windows, no tokens' file, packed batches, accuracies in the state. */
static void over_examples(void **state) {
  (void)state;
  const long planned = child_long() ? RANDOM_KILLS_LONG : EXAMPLE_KILLS;
  const child_report *report;
  child_settings settings = {.small = &place.small,
                             .path = place.work,
                             .threads = 1,
                             .plan = {.kind = FAULT_KILL, .groups = child_long() ? FAULT_ON_ALL : FAULT_ON_CHANGE}};
  uint64_t random = 7;
  child_place_take_examples(&place);
  child_make_whole(&place);
  child_begin_work(&place, NULL);
  assert_false(child_run(&settings, &report)); /* counts */
  assert_int_equal(report->status, HARK_OK);
  const uint64_t calls = (uint64_t)report->calls;
  assert_true(calls > 100);
  for (long kill = 0; kill < planned; kill++) {
    child_begin_work(&place, NULL);
    settings.plan.at = 1 + (long)random_below(&random, calls);
    settings.plan.kind = kill % 2 == 0 ? FAULT_KILL : FAULT_TEAR;
    assert_true(child_run(&settings, &report));
    child_check(&place, report->saved);
    child_finish_and_compare(&place);
  }
  print_message("%ld kills at random calls of %d of a run over examples\n", planned, (int)calls);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(at_every_call_of_a_save),
      cmocka_unit_test(at_every_call_of_a_save_that_replaces),
      cmocka_unit_test(at_every_call_of_a_fresh_run),
      cmocka_unit_test(at_random_moments),
      cmocka_unit_test(over_examples), /* which the place keeps */
  };
  return cmocka_run_group_tests(tests, begin, end);
}
