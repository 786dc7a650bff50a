/* test_not_finite.c - a number that is not finite in an operator's input is seen in every result that depends on it, on every backend.
 *
 * One element of an input, or of an output's gradient, is NaN or infinite. Which results depend on it is found by the definition in f64:
 * those that change when the element changes a little. With NaN these are NaN in the definition, and kernels have NaN where it has and
 * nowhere else; with an infinity kernels have finite results where the definition has. What the definition refuses kernels refuse too.
 * Whole numbers, which cannot be NaN, are left to the tests of their operators.
 *
 * Rerun one case: test_not_finite 'layer_norm:wide:cpu:avx2'.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/cases.h"
#include "support/cmocka_all.h"
#include "support/compare.h"

#define PLACES 3   /* of an input that are changed, one at a time */
#define SMALL 1e-4 /* a change that turns no decision of an operator */

static const double poisons[] = {NAN, INFINITY, -INFINITY};
#define POISONS ((int)(sizeof poisons / sizeof poisons[0]))

static const test_role changed[] = {TEST_INPUT, TEST_OUTPUT_GRADIENT},
                       compared[] = {TEST_OUTPUT, TEST_SAVED, TEST_INPUT, TEST_INPUT_GRADIENT};
static const char *const names[TEST_ROLES] = {"input", "output", "saved", "gradient of output", "gradient of input"};

typedef struct element {
  test_role role;
  int tensor;
  int64_t at;
} element;

static bool is_real(const hark_tensor *tensor) { return tensor->type == HARK_F32 || tensor->type == HARK_F64; }

/* A run with one element at another value, or with `relative` at so much more than it is; false when it was refused. */
static bool run_with(hark_context *context, const test_case *c, hark_type type, const element *e, double value, bool relative,
                     test_results *results) {
  test_run run;
  const test_run_options options = {.type = type, .rerun = c->rerun};
  test_run_open(&run, context, c->op, c->sample, &options);
  run.may_refuse = true;
  double *values = test_run_read(&run, e->role, e->tensor);
  values[e->at] = relative ? values[e->at] + value : value;
  test_run_write(&run, e->role, e->tensor, values);
  free(values);
  test_run_forward(&run);
  const bool backward = c->op->differentiable != 0 && !run.refused;
  if (backward) test_run_backward(&run, 0);
  test_results_read(&run, backward, results);
  const bool refused = run.refused;
  test_run_close(&run);
  return !refused;
}
/* A gradient of kernel_ridge or kernel_ridge_posterior that is not finite reaches all gradients of its sequence and head, whose sums are
 * made by products of whole matrices. */
static bool reaches_all(const test_case *c, const element *e) {
  return e->role == TEST_OUTPUT_GRADIENT && (c->op == &hark_op_kernel_ridge || c->op == &hark_op_kernel_ridge_posterior);
}

/* Compares one tensor of results; `before` and `after` are what the definition has of it when the element changes a little. */
static void compare(const test_run *shape, const test_case *c, const element *e, double poison, const char *what, const double *before,
                    const double *after, const double *expected, const double *have, int64_t count, int64_t except) {
  for (int64_t n = 0; n < count; n++) {
    const char *wrong = NULL;
    if (n == except) continue;
    if (isnan(poison) && before[n] != after[n] && !isnan(have[n])) wrong = "depends on it";
    if (isnan(poison) && isnan(expected[n]) && !isnan(have[n])) wrong = "is NaN by the definition";
    if (isfinite(expected[n]) && !isfinite(have[n]) && !reaches_all(c, e)) wrong = "is finite by the definition";
    if (wrong == NULL) continue;
    test_run_fail(shape, "%s on %s:%s: %s %d[%d] = %g, and %s[%d], which %s, is %g, by the definition %g", c->name, c->setup.backend,
                  c->setup.instruction_set, names[e->role], e->tensor, (int)e->at, poison, what, (int)n, wrong, have[n], expected[n]);
  }
}

static void look(const test_run *shape, const test_case *c, const element *e, double poison, const test_results *before,
                 const test_results *after, const test_results *expected, const test_results *have) {
  for (size_t r = 0; r < sizeof compared / sizeof compared[0]; r++)
    for (int i = 0; i < HARK_MAX_INPUTS; i++) {
      const test_role role = compared[r];
      char what[64];
      if (have->values[role][i] == NULL || !is_real(test_run_tensor(shape, role, i))) continue;
      (void)snprintf(what, sizeof what, "%s %d", names[role], i);
      compare(shape, c, e, poison, what, before->values[role][i], after->values[role][i], expected->values[role][i], have->values[role][i],
              test_run_count(shape, role, i), role == e->role && i == e->tensor ? e->at : -1);
    }
}

/* What the definition in f64 has of an element: results as they are, with a little more, and with each poison. */
typedef struct expectation {
  element is;
  test_results before, after, with[POISONS];
  bool taken[POISONS];
} expectation;

#define MOST_ELEMENTS ((HARK_MAX_INPUTS + HARK_MAX_OUTPUTS) * PLACES)

/* Of the sample that cases run now: those that follow are of the same one on other setups. */
static const hark_sample *sample_now;
static expectation expected_now[MOST_ELEMENTS];
static int expected_count;

static void forget_expected(void) {
  for (int n = 0; n < expected_count; n++) {
    test_results_free(&expected_now[n].before);
    test_results_free(&expected_now[n].after);
    for (int k = 0; k < POISONS; k++) test_results_free(&expected_now[n].with[k]);
  }
  expected_count = 0;
  sample_now = NULL;
}

/* What hides where by an infinity is in attention/not_finite. */
static bool is_left_out(const test_case *c, double poison) { return !isnan(poison) && strcmp(c->op->name, "attention") == 0; }

static void expect_element(hark_context *oracle, const test_run *shape, const test_case *c, element is) {
  expectation *e = &expected_now[expected_count++];
  *e = (expectation){.is = is};
  const bool ran = run_with(oracle, c, HARK_F64, &is, 0, true, &e->before),
             changes = run_with(oracle, c, HARK_F64, &is, SMALL, true, &e->after);
  if (!ran || !changes) test_run_fail(shape, "%s: a sample was refused", c->name);
  for (int k = 0; k < POISONS; k++) {
    if (is_left_out(c, poisons[k])) continue;
    e->taken[k] = run_with(oracle, c, HARK_F64, &is, poisons[k], false, &e->with[k]);
    if (e->taken[k]) look(shape, c, &is, poisons[k], &e->before, &e->after, &e->with[k], &e->with[k]);
  }
}

static void expect(hark_context *oracle, const test_run *shape, const test_case *c) {
  if (sample_now == c->sample) return;
  forget_expected();
  for (size_t r = 0; r < sizeof changed / sizeof changed[0]; r++)
    for (int i = 0; i < (changed[r] == TEST_INPUT ? HARK_MAX_INPUTS : HARK_MAX_OUTPUTS); i++) {
      const hark_tensor *tensor = test_run_tensor(shape, changed[r], i);
      if (!is_real(tensor)) continue;
      const int64_t count = hark_tensor_count(tensor), at[PLACES] = {0, count * 5 / 8, count - 1};
      for (int place = 0; place < PLACES && count > 0; place++) expect_element(oracle, shape, c, (element){changed[r], i, at[place]});
    }
  sample_now = c->sample;
}

static void conform(const test_case *c) {
  if (strcmp(c->setup.backend, "guard") == 0) return; /* which has the kernels of the cpu backend */
  hark_context *context = test_setup_open(&c->setup, 1), *oracle = test_reference_open();
  test_run shape;
  const test_run_options options = {.type = HARK_F64, .rerun = c->rerun};
  test_run_open(&shape, oracle, c->op, c->sample, &options);
  expect(oracle, &shape, c);
  for (int n = 0; n < expected_count; n++)
    for (int k = 0; k < POISONS; k++) {
      const expectation *e = &expected_now[n];
      test_results have;
      if (is_left_out(c, poisons[k])) continue;
      if (run_with(context, c, HARK_F32, &e->is, poisons[k], false, &have) != e->taken[k])
        test_run_fail(&shape, "%s: %s %d[%d] = %g is refused by one of definition and kernel", c->name, names[e->is.role], e->is.tensor,
                      (int)e->is.at, poisons[k]);
      if (e->taken[k]) look(&shape, c, &e->is, poisons[k], &e->before, &e->after, &e->with[k], &have);
      test_results_free(&have);
    }
  test_run_close(&shape);
  test_setup_close(context);
  test_setup_close(oracle);
}

int main(int argument_count, char **arguments) {
  const int status = test_cases_main(argument_count, arguments, false, conform);
  forget_expected();
  return status;
}
