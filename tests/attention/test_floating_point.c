/* test_floating_point.c - attention in a program that flushes small numbers, rounds otherwise or has asked for traps: the same bits call
 * after call and for any number of threads, and the program's state as it was. */
#define _GNU_SOURCE /* feenableexcept */
#include <fenv.h>
#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/attention_run.h"
#include "support/cmocka_all.h"
#include "support/flush.h"
#include "support/thread_pool.h"

#define CALLS 12

static const char *const cases[] = {
    "dense:B2,H4,K2,L70,D16,V16,causal",         "dense:B1,H4,L70,D16,V16,rbf,mask=15,bias=15",
    "window:B2,H4,L70,D16,V16,W9,causal",        "hierarchical:B2,H4,L96,D16,V16,N8,causal,first",
    "hierarchical:B2,H4,L96,D16,V16,N4,grid=12", "compressed:B2,H4,L96,D16,V16,N8,kept=3,globals=2",
};

static const struct {
  const char *name;
  int rounding;
  bool flush;
} states[] = {{"nearest", FE_TONEAREST, false},
              {"flushing", FE_TONEAREST, true},
              {"upward", FE_UPWARD, false},
              {"to zero, flushing", FE_TOWARDZERO, true}};
#define STATES ((int)(sizeof states / sizeof states[0]))

static void set(int i) {
  assert_int_equal(fesetround(states[i].rounding), 0);
  test_flush(states[i].flush);
}

/* Values so small that what they are weighted with makes them smaller than the least normal number of f32. */
static void make(const char *text, attention_problem *problem) {
  attention_problem_make(text, problem);
  attention_numbers *const values = &problem->array[ARRAY_VALUE];
  for (int64_t i = 0; i < values->count; i++) values->data[i] = (double)FLT_MIN * (1 + (double)(i % 64) / 64);
}

static hark_context *open_pool(const attention_machine *machine, int threads) {
  const hark_parallel pool = test_pool(threads);
  const hark_context_options options = {
      .struct_size = sizeof options, .backend = machine->backend, .instruction_set = machine->instruction_set, .parallel = &pool};
  hark_context *context;
  assert_int_equal(hark_context_create(&options, &context), HARK_OK);
  return context;
}

static void run_in(int state, hark_context *context, const attention_machine *machine, const attention_problem *problem,
                   attention_results *out) {
  fenv_t before;
  fegetenv(&before);
  set(state);
  attention_run(context, machine->type, problem, out);
  fesetenv(&before);
}

static void compare(const attention_machine *machine, const char *text, const attention_problem *problem) {
  static const int threads[] = {2, 3, 7, -3}; /* negative: of the program */
  attention_results expected[STATES];
  hark_context *alone = attention_machine_open(machine, 1);
  if (alone == NULL) return;
  for (int i = 0; i < STATES; i++) run_in(i, alone, machine, problem, &expected[i]);
  hark_context_destroy(&alone);
  for (size_t t = 0; t < sizeof threads / sizeof threads[0]; t++) {
    hark_context *context = threads[t] > 0 ? attention_machine_open(machine, threads[t]) : open_pool(machine, -threads[t]);
    for (int call = 0; call < CALLS; call++) {
      char what[96];
      attention_results results;
      (void)snprintf(what, sizeof what, "%s, %d threads, call %d, %s", machine->name, threads[t], call, states[call % STATES].name);
      run_in(call % STATES, context, machine, problem, &results);
      for (int array = ARRAY_OUT; array < ARRAY_COUNT; array++)
        attention_same_bits(what, text, (attention_array)array, &results, &expected[call % STATES]);
      attention_results_free(&results);
    }
    hark_context_destroy(&context);
  }
  for (int i = 0; i < STATES; i++) attention_results_free(&expected[i]);
}

static void the_same_bits_whatever_the_state(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    attention_problem problem;
    make(cases[i], &problem);
    for (int m = 0; m < attention_machine_count; m++) compare(&attention_machines[m], cases[i], &problem);
    attention_problem_free(&problem);
  }
}

#if TEST_CAN_FLUSH
/* The test can fail: what the states change is seen in results of one thread. */
static void states_change_results(void **state) {
  (void)state;
  attention_problem problem;
  attention_results results[STATES];
  make(cases[0], &problem);
  const attention_machine *const machine = &attention_machines[2];
  hark_context *context = attention_machine_open(machine, 1);
  for (int i = 0; i < STATES; i++) run_in(i, context, machine, &problem, &results[i]);
  for (int i = 1; i < STATES; i++) {
    const size_t bytes = (size_t)results[0].count[ARRAY_OUT] * sizeof(double);
    assert_memory_not_equal(results[0].data[ARRAY_OUT], results[i].data[ARRAY_OUT], bytes);
  }
  for (int i = 0; i < STATES; i++) attention_results_free(&results[i]);
  hark_context_destroy(&context);
  attention_problem_free(&problem);
}
#endif

/* Masked entries are infinities that are taken from each other, and lanes of vectors beyond the last row hold anything: flags that say
 * nothing. */
static void a_program_that_asked_for_traps_meets_none(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    for (int m = 0; m < attention_machine_count; m++) {
      const pid_t child = fork();
      assert_true(child >= 0);
      if (child == 0) {
        attention_problem problem;
        attention_results results;
        make(cases[i], &problem);
        hark_context *context = attention_machine_open(&attention_machines[m], 3);
        if (context == NULL) _exit(0);
        feclearexcept(FE_ALL_EXCEPT);
        feenableexcept(FE_INVALID | FE_DIVBYZERO | FE_OVERFLOW | FE_UNDERFLOW);
        const int traps = fegetexcept(); /* many ARM processors have none */
        attention_run(context, attention_machines[m].type, &problem, &results);
        _exit(fegetexcept() == traps ? 0 : 1);
      }
      int status = 0;
      assert_int_equal(waitpid(child, &status, 0), child);
      if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail_msg("%s on %s: ended with status %x", cases[i], attention_machines[m].name, (unsigned)status);
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_same_bits_whatever_the_state),
#if TEST_CAN_FLUSH
    cmocka_unit_test(states_change_results),
#endif
    cmocka_unit_test(a_program_that_asked_for_traps_meets_none),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
