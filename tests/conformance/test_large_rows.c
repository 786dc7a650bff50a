/* test_large_rows.c - norms of rows whose sums or squares are beyond f32 are those of the definition, on every backend and instruction set:
 * a norm of a row is that of the row times any power of two.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "support/cmocka_all.h"
#include "support/run.h"

#define ROWS 6
#define WIDTH 37

static const char *const sets[] = {"generic", "avx2", "avx512", "neon"};
static const hark_norm_attributes usual = {1e-5};

/* x = factor (shift + x0), of which results do not depend on the factor as long as epsilon is nothing. */
static void enlarge(test_run *run, double factor, double shift) {
  double *x = test_run_read(run, TEST_INPUT, 0);
  for (int i = 0; i < ROWS * WIDTH; i++) x[i] = factor * (double)(float)(shift + x[i]);
  test_run_write(run, TEST_INPUT, 0, x);
  free(x);
}

static void expect_near(const test_run *run, const char *what, const double *have, const double *want, int count, double unit) {
  double largest = 0;
  for (int i = 0; i < count; i++) largest = fmax(largest, fabs(want[i]));
  for (int i = 0; i < count; i++)
    if (!(fabs(have[i] * unit - want[i]) <= 2e-4 * largest))
      test_run_fail(run, "%s[%d] is %g, expected %g", what, i, have[i] * unit, want[i]);
}

/* Output and gradients at a factor against those at 1, in f64 on the reference backend. */
static void check(const hark_operator *op, const hark_sample *sample, const hark_context_options *options, double factor, double shift) {
  const hark_context_options exact = {.struct_size = sizeof exact, .backend = "reference", .threads = 1};
  test_run right, run;
  hark_context *reference, *context;
  char name[96];
  if (hark_context_create(options, &context) != HARK_OK) return; /* not on this machine */
  assert_int_equal(hark_context_create(&exact, &reference), HARK_OK);
  snprintf(name, sizeof name, "%s times %g, shifted by %g, on %s %s", op->name, factor, shift, options->backend,
           options->instruction_set == NULL ? "" : options->instruction_set);
  test_run_open(&right, reference, op, sample, &(test_run_options){.type = HARK_F64, .draw = 1});
  test_run_open(&run, context, op, sample, &(test_run_options){.type = HARK_F32, .draw = 1, .rerun = name});
  enlarge(&right, 0x1p20, shift); /* epsilon is nothing */
  enlarge(&run, factor, shift);
  test_run_forward(&right);
  test_run_forward(&run);
  double *want = test_run_read(&right, TEST_OUTPUT, 0), *have = test_run_read(&run, TEST_OUTPUT, 0);
  expect_near(&run, "y", have, want, ROWS * WIDTH, 1);
  free(want);
  free(have);
  test_run_backward(&right, 0);
  test_run_backward(&run, 0);
  for (int i = 0; i < 2; i++) { /* x and gain; the gradient by x is in units of 1 / x */
    const double unit = i == 0 ? factor / 0x1p20 : 1;
    want = test_run_read(&right, TEST_INPUT_GRADIENT, i);
    have = test_run_read(&run, TEST_INPUT_GRADIENT, i);
    if (i > 0 || factor < 0x1p100)
      expect_near(&run, i == 0 ? "dx" : "dgain", have, want, (int)test_run_count(&run, TEST_INPUT_GRADIENT, i), unit);
    free(want);
    free(have);
  }
  test_run_close(&run);
  test_run_close(&right);
  hark_context_destroy(&context);
  hark_context_destroy(&reference);
}

static void check_all(const hark_operator *op, bool bias) {
  static const double factors[] = {0x1p40, 0x1p62, 0x1p70, 0x1p90, 0x1p120, 0x1p126}, shifts[] = {0, 1, 3};
  const hark_sample sample = {
      .name = "large",
      .inputs = {{HARK_F32, 2, {ROWS, WIDTH}, -0.9, 0.9}, {HARK_F32, 1, {WIDTH}, 0.5, 2}, {bias ? HARK_F32 : HARK_NONE, 1, {WIDTH}, -1, 1}},
      .attributes = &usual};
  for (size_t f = 0; f < sizeof factors / sizeof factors[0]; f++)
    for (size_t s = 0; s < sizeof shifts / sizeof shifts[0]; s++) {
      if (factors[f] * (shifts[s] + 0.9) > 3.4e38) continue;
      for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++)
        check(op, &sample,
              &(hark_context_options){
                  .struct_size = sizeof(hark_context_options), .backend = "cpu", .instruction_set = sets[i], .threads = 1},
              factors[f], shifts[s]);
      check(op, &sample, &(hark_context_options){.struct_size = sizeof(hark_context_options), .backend = "reference", .threads = 1},
            factors[f], shifts[s]);
    }
}

static void layer_norm_of_large_rows(void **state) {
  (void)state;
  check_all(&hark_op_layer_norm, true);
}
static void rms_norm_of_large_rows(void **state) {
  (void)state;
  check_all(&hark_op_rms_norm, false);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(layer_norm_of_large_rows), cmocka_unit_test(rms_norm_of_large_rows)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
