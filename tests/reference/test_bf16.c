/* test_bf16.c - records of numbers in bf16 against linear in f64, which the gradient suite checks.
 *
 * linear_bf16 of x and W is linear of the same numbers, and its gradients are those of linear for the rounded dy, except db. And for x, W
 * and dy in f32 it differs from linear by roundings alone. With u = 2^-8, v = 2^-24, K the length of the sum and S its slices (of at most
 * 512)
 *
 *     |y - y'| <= (2 u + u^2) sum |x w| + (K + 1 + S) v (1 + u)^2 sum |x w| + 2^-126 (K + sum max(|x|, |w|))
 *
 * because each operand changes by at most u of itself, each product is added with one rounding, and there are S further additions. The last
 * term, of numbers that count as zeros, is below `least` here; unit/bf16 tests it.
 */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/half.h"
#include "support/cmocka_all.h"
#include "support/compare.h"
#include "support/run.h"
#include "support/setups.h"

#include <hark/experimental.h>

enum { ROWS = 23, IN = 515, OUT = 37 };
#define U 0x1p-8
#define V 0x1p-24

static const hark_sample half_sample = {
    "half", NULL, {{HARK_BF16, 2, {ROWS, IN}, -2, 2}, {HARK_BF16, 2, {OUT, IN}, -1, 1}, {HARK_F32, 1, {OUT}, -1, 1}}};
static const hark_sample plain_sample = {
    "plain", NULL, {{HARK_F32, 2, {ROWS, IN}, -2, 2}, {HARK_F32, 2, {OUT, IN}, -1, 1}, {HARK_F32, 1, {OUT}, -1, 1}}};

static double rounded(double value) { return (double)hark_half_widen(HARK_BF16, hark_half_narrow(HARK_BF16, (float)value)); }

/* linear in f64 of given numbers; `magnitudes`: of their absolute values. */
static void run_linear(const double *const given[4], bool magnitudes, test_results *results) {
  hark_context *context = test_reference_open();
  test_run run;
  const test_run_options options = {.type = HARK_F64};
  test_run_open(&run, context, &hark_op_linear, &plain_sample, &options);
  for (int i = 0; i < 4; i++) {
    const test_role role = i < 3 ? TEST_INPUT : TEST_OUTPUT_GRADIENT;
    const int64_t count = test_run_count(&run, role, i % 3);
    double *values = malloc((size_t)count * sizeof *values);
    assert_non_null(values);
    for (int64_t n = 0; n < count; n++) values[n] = magnitudes ? fabs(given[i][n]) : given[i][n];
    test_run_write(&run, role, i % 3, values);
    free(values);
  }
  test_run_forward(&run);
  test_run_backward(&run, 0);
  test_results_read(&run, true, results);
  test_run_close(&run);
  test_setup_close(context);
}

/* Reads the inputs and dy of a run. */
static void read_given(test_run *run, double *given[4]) {
  for (int i = 0; i < 4; i++) given[i] = test_run_read(run, i < 3 ? TEST_INPUT : TEST_OUTPUT_GRADIENT, i % 3);
}

static void within(const double *found, const double *expected, const double *bound, double factor, double least, int64_t count,
                   const char *what) {
  for (int64_t n = 0; n < count; n++)
    if (!(fabs(found[n] - expected[n]) <= factor * bound[n] + least))
      fail_msg("%s[%d] is %.9g, expected %.9g within %.3g", what, (int)n, found[n], expected[n], factor * bound[n] + least);
}

static double factor_of(int64_t length) {
  const double slices = ceil((double)length / 512);
  return ((double)length + 1 + slices) * V * (1 + U) * (1 + U);
}

/* Every setup: sums of the rounded numbers, with the rounding of sums alone. */
static void is_linear_of_rounded_numbers(void **state) {
  (void)state;
  test_setup setups[TEST_MAX_SETUPS];
  const int count = test_setups(setups);
  for (int s = 0; s < count; s++) {
    hark_context *context = test_setup_open(&setups[s], 2);
    test_run run;
    test_results found, expected, sizes;
    double *given[4];
    const test_run_options options = {.type = HARK_F32};
    test_run_open(&run, context, &hark_op_linear_bf16, &half_sample, &options);
    read_given(&run, given);
    test_run_forward(&run);
    test_run_backward(&run, 0);
    test_results_read(&run, true, &found);
    double *const dy = malloc(ROWS * OUT * sizeof *dy);
    assert_non_null(dy);
    for (int n = 0; n < ROWS * OUT; n++) dy[n] = rounded(given[3][n]);
    const double *const numbers[] = {given[0], given[1], given[2], dy};
    run_linear(numbers, false, &expected);
    run_linear(numbers, true, &sizes);
    const double least = 1e-30;
    within(found.values[TEST_OUTPUT][0], expected.values[TEST_OUTPUT][0], sizes.values[TEST_OUTPUT][0], factor_of(IN), least, ROWS * OUT,
           "y");
    within(found.values[TEST_INPUT_GRADIENT][0], expected.values[TEST_INPUT_GRADIENT][0], sizes.values[TEST_INPUT_GRADIENT][0],
           factor_of(OUT), least, ROWS * IN, "dx");
    within(found.values[TEST_INPUT_GRADIENT][1], expected.values[TEST_INPUT_GRADIENT][1], sizes.values[TEST_INPUT_GRADIENT][1],
           factor_of(ROWS), least, OUT * IN, "dW");
    test_results_free(&expected);
    test_results_free(&sizes);
    const double *const unrounded[] = {given[0], given[1], given[2], given[3]};
    run_linear(unrounded, false, &expected);
    run_linear(unrounded, true, &sizes);
    within(found.values[TEST_INPUT_GRADIENT][2], expected.values[TEST_INPUT_GRADIENT][2], sizes.values[TEST_INPUT_GRADIENT][2],
           factor_of(ROWS), least, OUT, "db");
    for (int i = 0; i < 4; i++) free(given[i]);
    free(dy);
    test_results_free(&sizes);
    test_results_free(&expected);
    test_results_free(&found);
    test_run_close(&run);
    test_setup_close(context);
  }
  assert_true(count > 1);
}

/* Numbers in f32 that are rounded: the bound of the head of this file, which must not be much too wide either. */
static void differs_by_roundings(void **state) {
  (void)state;
  hark_context *context = test_reference_open();
  test_run run, plain;
  test_results found, expected, sizes;
  double *given[4];
  const test_run_options options = {.type = HARK_F32, .draw = 3};
  test_run_open(&plain, context, &hark_op_linear, &plain_sample, &options);
  read_given(&plain, given);
  test_run_open(&run, context, &hark_op_linear_bf16, &half_sample, &options);
  for (int i = 0; i < 3; i++) test_run_write(&run, TEST_INPUT, i, given[i]);
  test_run_write(&run, TEST_OUTPUT_GRADIENT, 0, given[3]);
  test_run_forward(&run);
  test_run_backward(&run, 0);
  test_results_read(&run, true, &found);
  const double *const numbers[] = {given[0], given[1], given[2], given[3]};
  run_linear(numbers, false, &expected);
  run_linear(numbers, true, &sizes);
  const double rounding = 2 * U + U * U;
  within(found.values[TEST_OUTPUT][0], expected.values[TEST_OUTPUT][0], sizes.values[TEST_OUTPUT][0], rounding + factor_of(IN), 1e-30,
         ROWS * OUT, "y");
  within(found.values[TEST_INPUT_GRADIENT][0], expected.values[TEST_INPUT_GRADIENT][0], sizes.values[TEST_INPUT_GRADIENT][0],
         rounding + factor_of(OUT), 1e-30, ROWS * IN, "dx");
  within(found.values[TEST_INPUT_GRADIENT][1], expected.values[TEST_INPUT_GRADIENT][1], sizes.values[TEST_INPUT_GRADIENT][1],
         rounding + factor_of(ROWS), 1e-30, OUT * IN, "dW");
  double most = 0;
  for (int n = 0; n < ROWS * OUT; n++)
    most = fmax(most, fabs(found.values[TEST_OUTPUT][0][n] - expected.values[TEST_OUTPUT][0][n]) / sizes.values[TEST_OUTPUT][0][n]);
  assert_true(most > 1e-5); /* numbers are rounded indeed */
  for (int i = 0; i < 4; i++) free(given[i]);
  test_results_free(&sizes);
  test_results_free(&expected);
  test_results_free(&found);
  test_run_close(&run);
  test_run_close(&plain);
  test_setup_close(context);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(is_linear_of_rounded_numbers), cmocka_unit_test(differs_by_roundings)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
