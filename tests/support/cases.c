/* cases.c - the list of cases of a suite over operator records, chosen from the command line and given to cmocka. */
#include "support/cases.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/cmocka_all.h"

typedef struct case_state {
  const test_case *c;
  test_case_body *body;
} case_state;

static void run_case(void **state) {
  const case_state *s = *state;
  s->body(s->c);
}

/* The words of `chosen` are the first words of `name`. */
static bool is_chosen(const char *name, int chosen_count, char **chosen) {
  for (int i = 0; i < chosen_count; i++) {
    const size_t length = strlen(chosen[i]);
    if (strncmp(name, chosen[i], length) == 0 && (name[length] == '\0' || name[length] == ':')) return true;
  }
  return chosen_count == 0;
}

/* Appends the cases of one record; returns their number. */
static int add_cases(const hark_operator *op, const test_setup *setups, int setup_count, bool reference_only, int argument_count,
                     char **arguments, test_case *cases) {
  const char *program = strrchr(arguments[0], '/') != NULL ? strrchr(arguments[0], '/') + 1 : arguments[0];
  int count = 0;
  for (int s = 0; s < op->sample_count; s++) {
    for (int i = 0; i < (reference_only ? 1 : setup_count); i++) {
      test_case *c = &cases[count];
      *c = (test_case){.op = op, .sample = &op->samples[s], .setup = setups[i]};
      if (reference_only) {
        (void)snprintf(c->name, sizeof c->name, "%s:%s", op->name, op->samples[s].name);
      } else {
        (void)snprintf(c->name, sizeof c->name, "%s:%s:%s:%s", op->name, op->samples[s].name, setups[i].backend, setups[i].instruction_set);
      }
      (void)snprintf(c->rerun, sizeof c->rerun, "%s '%s'", program, c->name);
      if (is_chosen(c->name, argument_count - 1, arguments + 1)) count++;
    }
  }
  return count;
}

int test_cases_main(int argument_count, char **arguments, bool reference_only, test_case_body *body) {
  test_setup setups[TEST_MAX_SETUPS];
  const int setup_count = test_setups(setups);
  int op_count = 0, limit = 0, count = 0, failures = 0;
  const hark_operator *const *ops = hark_operators(&op_count);
  for (int i = 0; i < op_count; i++) {
    limit += ops[i]->sample_count * setup_count;
    if (ops[i]->sample_count > 0) continue;
    print_error("%s has no samples\n", ops[i]->name);
    failures++;
  }
  test_case *cases = calloc((size_t)limit + 1, sizeof *cases);
  case_state *states = calloc((size_t)limit + 1, sizeof *states);
  struct CMUnitTest *tests = calloc((size_t)limit + 1, sizeof *tests);
  if (cases == NULL || states == NULL || tests == NULL) return 1;
  for (int i = 0; i < op_count; i++) {
    if (reference_only && ops[i]->differentiable == 0) continue;
    count += add_cases(ops[i], setups, setup_count, reference_only, argument_count, arguments, cases + count);
  }
  for (int i = 0; i < count; i++) {
    states[i] = (case_state){.c = &cases[i], .body = body};
    tests[i] = (struct CMUnitTest){.name = cases[i].name, .test_func = run_case, .initial_state = &states[i]};
  }
  if (count == 0) {
    print_error("no case ran\n");
    failures++;
  } else {
    failures += _cmocka_run_group_tests("cases", tests, (size_t)count, NULL, NULL);
  }
  free(tests);
  free(states);
  free(cases);
  return failures == 0 ? 0 : 1;
}
