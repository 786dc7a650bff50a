/* test_floating_point.c - every sample of every record in a program that flushes small numbers, rounds otherwise and has asked for traps:
 * the same bits for any number of threads, whatever the state was when they began, and the program's state as it was.
 *
 * Rerun one case: test_floating_point 'layer_norm:wide:cpu:avx2'.
 */
#define _GNU_SOURCE /* feenableexcept */
#include <fenv.h>
#include <stdio.h>
#include <string.h>

#include "support/cases.h"
#include "support/cmocka_all.h"
#include "support/compare.h"
#include "support/flush.h"

#define TRAPS (FE_INVALID | FE_DIVBYZERO | FE_OVERFLOW | FE_UNDERFLOW)
#define THREADS 3

static const struct {
  const char *name;
  int rounding;
  bool flush, traps;
} states[] = {
    {"nearest", FE_TONEAREST, false, false}, {"flushing, upward", FE_UPWARD, true, false}, {"to zero, traps", FE_TOWARDZERO, false, true}};
#define STATES ((int)(sizeof states / sizeof states[0]))

/* Returns the traps that are set: many ARM processors have none. */
static int set(int i) {
  assert_int_equal(fesetround(states[i].rounding), 0);
  test_flush(states[i].flush);
  feclearexcept(FE_ALL_EXCEPT);
  if (states[i].traps) feenableexcept(TRAPS);
  return fegetexcept();
}

static void run_in(int state, test_run *run, test_results *results) {
  fenv_t before;
  fegetenv(&before);
  const int traps_before = set(state);
  test_run_forward(run);
  if (run->op->differentiable != 0) test_run_backward(run, 0);
  const int rounding = fegetround(), traps = fegetexcept(), flags = fetestexcept(FE_ALL_EXCEPT);
  fesetenv(&before);
  assert_int_equal(rounding, states[state].rounding);
  assert_int_equal(traps, traps_before);
  assert_int_equal(flags, 0);
  test_results_read(run, run->op->differentiable != 0, results);
}

static void compare(const test_run *run, const char *state, const test_results *a, const test_results *b) {
  for (int role = 0; role < TEST_ROLES; role++) {
    for (int i = 0; i < HARK_MAX_INPUTS; i++) {
      if (a->values[role][i] != NULL)
        test_same_bits(run, state, a->values[role][i], b->values[role][i], test_run_count(run, (test_role)role, i));
    }
  }
}

/* Threads begin in the first state; a record that changes its inputs is begun anew for every state. */
static void keeps_its_bits(const test_case *c) {
  if (strcmp(c->setup.backend, "guard") == 0) return; /* which has the kernels of the cpu backend */
  hark_context *alone = test_setup_open(&c->setup, 1), *together = test_setup_open(&c->setup, THREADS);
  const test_run_options options = {.type = HARK_F32, .rerun = c->rerun};
  for (int state = 0; state < STATES; state++) {
    test_run one, many;
    test_results expected, results;
    test_run_open(&one, alone, c->op, c->sample, &options);
    test_run_open(&many, together, c->op, c->sample, &options);
    run_in(state, &one, &expected);
    run_in(state, &many, &results);
    compare(&many, states[state].name, &results, &expected);
    test_results_free(&expected);
    test_results_free(&results);
    test_run_close(&one);
    test_run_close(&many);
  }
  test_setup_close(alone);
  test_setup_close(together);
}

int main(int argument_count, char **arguments) { return test_cases_main(argument_count, arguments, false, keeps_its_bits); }
