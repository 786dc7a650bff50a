/* test_signals.c - signals that a program handles while hark computes change nothing: a timer's interrupts the products of a layer,
 * thousands of times, and gradients keep their bits and the heap its order. */
#define _DEFAULT_SOURCE /* setitimer */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

#include "support/cmocka_all.h"
#include "support/run.h"
#include "support/setups.h"

#define INTERVAL_MICROSECONDS 200
#define ROUNDS 24

static volatile sig_atomic_t signals;

static void count_signal(int number) {
  (void)number;
  signals++;
}

static void set_timer(long microseconds) {
  const struct itimerval timer = {{0, microseconds}, {0, microseconds}};
  assert_int_equal(setitimer(ITIMER_REAL, &timer, NULL), 0);
}

/* Puts the heap to the test: a damaged one ends the program. */
static void use_heap(void) {
  void *blocks[64];
  for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
    blocks[i] = malloc(100 + 700 * i);
    assert_non_null(blocks[i]);
    memset(blocks[i], 1, 100 + 700 * i);
  }
  for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) free(blocks[i]);
}

static void same_numbers(test_run *run, int input, const double *expected) {
  double *actual = test_run_read(run, TEST_INPUT_GRADIENT, input);
  for (int64_t i = 0; i < test_run_count(run, TEST_INPUT_GRADIENT, input); i++) assert_true(actual[i] == expected[i]);
  free(actual);
}

static void interrupted_products(void **state) {
  (void)state;
  static const hark_sample layer = {"layer", NULL, {{HARK_F32, 2, {1024, 256}, -1, 1}, {HARK_F32, 2, {512, 256}, -1, 1}}};
  const struct sigaction action = {.sa_handler = count_signal, .sa_flags = SA_RESTART};
  struct sigaction before;
  assert_int_equal(sigaction(SIGALRM, &action, &before), 0);
  test_setup setups[TEST_MAX_SETUPS];
  const int count = test_setups(setups);
  for (int s = 0; s < count; s++) {
    if (strcmp(setups[s].backend, "cpu") != 0) continue;
    hark_context *context = test_setup_open(&setups[s], 2);
    const test_run_options options = {.type = HARK_F32};
    test_run run;
    test_run_open(&run, context, &hark_op_linear, &layer, &options);
    test_run_forward(&run);
    test_run_backward(&run, 0);
    double *dx = test_run_read(&run, TEST_INPUT_GRADIENT, 0), *dweight = test_run_read(&run, TEST_INPUT_GRADIENT, 1);
    signals = 0;
    set_timer(INTERVAL_MICROSECONDS);
    for (int round = 0; round < ROUNDS; round++) {
      test_run_backward(&run, 0);
      use_heap();
    }
    set_timer(0);
    assert_true(signals > 0);
    same_numbers(&run, 0, dx);
    same_numbers(&run, 1, dweight);
    free(dx);
    free(dweight);
    test_run_close(&run);
    test_setup_close(context);
  }
  assert_int_equal(sigaction(SIGALRM, &before, NULL), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(interrupted_products)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
