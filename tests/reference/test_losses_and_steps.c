/* test_losses_and_steps.c - cross_entropy, adamw and sum_squares against closed forms and steps worked out by hand, in f64. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/cmocka_all.h"
#include "support/single.h"

#define ROUNDING 1e-13 /* a few hundred roundings of numbers of size one */
#define ROWS 4
#define CLASSES 6

static const hark_sample_input logits = {HARK_F32, 2, {ROWS, CLASSES}, -3, 3}, targets = {HARK_I32, 1, {ROWS}, 0, CLASSES - 1};

static void open_loss(test_single *s, const hark_cross_entropy_attributes *attributes, const double *x, const double *t) {
  test_single_open(s, &hark_op_cross_entropy, attributes, 2, (const hark_sample_input[]){logits, targets});
  if (x != NULL) test_single_set(s, 0, x);
  if (t != NULL) test_single_set(s, 1, t);
}

static double loss_of(const hark_cross_entropy_attributes *attributes, const double *x, const double *t) {
  test_single s;
  open_loss(&s, attributes, x, t);
  double *loss = test_single_forward(&s);
  const double value = loss[0];
  free(loss);
  test_single_close(&s);
  return value;
}

static void loss_of_uniform_logits_is_the_logarithm_of_the_classes(void **state) {
  (void)state;
  static const hark_cross_entropy_attributes mean = {1.0 / ROWS, 0, -1, 0}, smooth = {1.0 / ROWS, 0.3, -1, 0};
  static const double t[ROWS] = {0, 5, 2, 2};
  double x[ROWS * CLASSES];
  for (int i = 0; i < ROWS * CLASSES; i++) x[i] = 1234.5;
  test_near(loss_of(&mean, x, t), log(CLASSES), 1e-12); /* of numbers of size 1234 */
  test_near(loss_of(&smooth, x, t), log(CLASSES), 1e-12);
}

static void gradient_rows_sum_to_zero_and_hold_probabilities(void **state) {
  (void)state;
  static const hark_cross_entropy_attributes smooth = {0.25, 0.2, -1, 0};
  test_single s;
  open_loss(&s, &smooth, NULL, NULL);
  double *x = test_single_get(&s, 0), *t = test_single_get(&s, 1), *loss = test_single_forward(&s);
  test_single_backward(&s, (const double[]){2});
  double *dx = test_single_gradient(&s, 0);
  for (int n = 0; n < ROWS; n++) {
    double sum = 0, normaliser = 0;
    for (int v = 0; v < CLASSES; v++) {
      sum += dx[n * CLASSES + v];
      normaliser += exp(x[n * CLASSES + v]);
    }
    test_near(sum, 0, ROUNDING);
    for (int v = 0; v < CLASSES; v++) {
      const double target = (v == (int)t[n] ? 0.8 : 0) + 0.2 / CLASSES;
      test_near(dx[n * CLASSES + v], 2 * 0.25 * (exp(x[n * CLASSES + v]) / normaliser - target), ROUNDING);
    }
  }
  free(dx);
  free(loss);
  free(t);
  free(x);
  test_single_close(&s);
}

/* The smoothed loss is (1 - s) times the loss of the target plus s times the mean of the losses of all classes as targets. */
static void smoothing_is_a_mixture_of_targets(void **state) {
  (void)state;
  static const hark_cross_entropy_attributes plain = {1, 0, -1, 0}, smooth = {1, 0.15, -1, 0};
  double x[ROWS * CLASSES], t[ROWS], mixture = 0;
  test_random(x, ROWS * CLASSES, -3, 3, 0, 1);
  for (int v = 0; v < CLASSES; v++) {
    for (int n = 0; n < ROWS; n++) t[n] = v;
    mixture += 0.15 / CLASSES * loss_of(&plain, x, t);
  }
  for (int n = 0; n < ROWS; n++) t[n] = n;
  mixture += 0.85 * loss_of(&plain, x, t);
  test_near(loss_of(&smooth, x, t), mixture, ROUNDING * 10);
}

/* From the definition: z times the squared logarithm of the sum of exponentials, added to the loss; its gradient is 2 z log Z times the
 * probability. Ignored rows add nothing. */
static void the_squared_log_sum_is_added(void **state) {
  (void)state;
  static const hark_cross_entropy_attributes plain = {0.5, 0.2, -1, 0}, squared = {0.5, 0.2, -1, 0.3};
  static const double t[ROWS] = {1, -1, 3, 0};
  double x[ROWS * CLASSES], expected[ROWS * CLASSES], added = 0;
  test_random(x, ROWS * CLASSES, -3, 3, 0, 1);
  test_single without, with;
  open_loss(&without, &plain, x, t);
  open_loss(&with, &squared, x, t);
  double *before = test_single_forward(&without), *loss = test_single_forward(&with);
  test_single_backward(&without, (const double[]){2});
  test_single_backward(&with, (const double[]){2});
  double *dbefore = test_single_gradient(&without, 0), *dx = test_single_gradient(&with, 0);
  for (int n = 0; n < ROWS; n++) {
    double normaliser = 0;
    for (int v = 0; v < CLASSES; v++) normaliser += exp(x[n * CLASSES + v]);
    if (t[n] >= 0) added += 0.5 * 0.3 * log(normaliser) * log(normaliser);
    for (int v = 0; v < CLASSES; v++)
      expected[n * CLASSES + v] = t[n] >= 0 ? 2 * 0.5 * 2 * 0.3 * log(normaliser) * exp(x[n * CLASSES + v]) / normaliser : 0;
  }
  assert_true(added > 0.1);
  test_near(loss[0] - before[0], added, ROUNDING * 10);
  for (int i = 0; i < ROWS * CLASSES; i++) test_near(dx[i] - dbefore[i], expected[i], ROUNDING * 10);
  free(dx);
  free(dbefore);
  free(loss);
  free(before);
  test_single_close(&with);
  test_single_close(&without);
}

static void shifted_and_huge_logits_do_not_overflow(void **state) {
  (void)state;
  static const hark_cross_entropy_attributes plain = {1, 0, -1, 0};
  static const double t[ROWS] = {1, 2, 3, 4};
  double x[ROWS * CLASSES], shifted[ROWS * CLASSES];
  test_random(x, ROWS * CLASSES, -3, 3, 0, 1);
  for (int i = 0; i < ROWS * CLASSES; i++) shifted[i] = x[i] + 1024; /* adds exactly: x has 24 bits */
  test_near(loss_of(&plain, shifted, t), loss_of(&plain, x, t), 1e-11);
  for (int i = 0; i < ROWS * CLASSES; i++) x[i] = i % CLASSES == 0 ? 1e4 : -1e4;
  test_near(loss_of(&plain, x, t), ROWS * 2e4, 1e-10);
}

static void ignored_rows_are_neither_read_nor_counted(void **state) {
  (void)state;
  static const hark_cross_entropy_attributes plain = {1, 0, -1, 0};
  static const double t[ROWS] = {1, -1, 3, -1};
  double x[ROWS * CLASSES];
  test_random(x, ROWS * CLASSES, -3, 3, 0, 1);
  const double without = loss_of(&plain, x, t);
  for (int v = 0; v < CLASSES; v++) x[CLASSES + v] = x[3 * CLASSES + v] = NAN;
  test_single s;
  open_loss(&s, &plain, x, t);
  double *loss = test_single_forward(&s), *count = test_run_read(&s.run, TEST_OUTPUT, 1);
  test_near(loss[0], without, 0);
  test_near(count[0], 2, 0);
  test_single_backward(&s, (const double[]){1});
  double *dx = test_single_gradient(&s, 0);
  for (int v = 0; v < CLASSES; v++) {
    test_near(dx[CLASSES + v], 0, 0);
    test_near(dx[3 * CLASSES + v], 0, 0);
    assert_true(dx[v] != 0);
  }
  free(dx);
  free(count);
  free(loss);
  test_single_close(&s);
}

static void targets_outside_the_classes_are_refused(void **state) {
  (void)state;
  static const hark_cross_entropy_attributes plain = {1, 0, -1, 0};
  static const double wrong[] = {CLASSES, -2, 2147483647};
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
    test_single s;
    open_loss(&s, &plain, NULL, (const double[ROWS]){0, 1, wrong[i], -1});
    assert_int_equal(test_single_refusal(&s), HARK_INVALID_ARGUMENT);
    assert_non_null(strstr(hark_context_message(s.context), "target 2"));
    test_single_close(&s);
  }
}

static const hark_sample_input number = {HARK_F32, 1, {1}, 0, 0};
static const hark_sample_input four_numbers[] = {
    {HARK_F32, 1, {1}, 0, 0}, {HARK_F32, 1, {1}, 0, 0}, {HARK_F32, 1, {1}, 0, 0}, {HARK_F32, 1, {1}, 0, 0}};

/* w = 1, gradients 1/2 and -1, rate 1/10, betas 9/10 and 99/100, epsilon 1e-8, decay 1/100: worked out in decimal arithmetic. */
static void adamw_makes_the_steps_worked_out_by_hand(void **state) {
  (void)state;
  static const hark_adamw_attributes steps[] = {{0.1, 0.9, 0.99, 1e-8, 0.01, 1, 1}, {0.1, 0.9, 0.99, 1e-8, 0.01, 0.25, 2}};
  static const double gradients[] = {0.5, -4};
  static const double known[2][3] = {{0.89900000199999996, 0.05, 0.0025}, {0.93466177286972255194, -0.055, 0.012475}};
  double w = 1, m = 0, v = 0;
  for (int k = 0; k < 2; k++) {
    test_single s;
    test_single_open(&s, &hark_op_adamw, &steps[k], 4, four_numbers);
    test_single_set(&s, 0, &w);
    test_single_set(&s, 1, &gradients[k]);
    test_single_set(&s, 2, &m);
    test_single_set(&s, 3, &v);
    free(test_single_forward(&s));
    double *weight = test_single_get(&s, 0), *first = test_single_get(&s, 2), *second = test_single_get(&s, 3);
    w = weight[0], m = first[0], v = second[0];
    test_near(w, known[k][0], ROUNDING);
    test_near(m, known[k][1], ROUNDING);
    test_near(v, known[k][2], ROUNDING);
    free(second);
    free(first);
    free(weight);
    test_single_close(&s);
  }
}

/* Without epsilon and decay the first step has the size of the rate, whatever the gradient's. */
static void adamw_moves_by_the_rate_at_first(void **state) {
  (void)state;
  static const hark_adamw_attributes first = {0.125, 0.9, 0.999, 0, 0, 1, 1};
  static const double gradients[] = {1e-9, -3, 1e9};
  for (int i = 0; i < 3; i++) {
    test_single s;
    test_single_open(&s, &hark_op_adamw, &first, 4, four_numbers);
    test_single_set(&s, 1, &gradients[i]);
    free(test_single_forward(&s));
    double *weight = test_single_get(&s, 0);
    test_near(weight[0], gradients[i] > 0 ? -0.125 : 0.125, ROUNDING);
    free(weight);
    test_single_close(&s);
  }
}

static void adamw_changes_nothing_for_a_scale_that_is_not_finite(void **state) {
  (void)state;
  static const double scales[] = {NAN, INFINITY, -INFINITY};
  for (int i = 0; i < 3; i++) {
    const hark_adamw_attributes skipped = {0.1, 0.9, 0.99, 1e-8, 0.1, scales[i], 5};
    test_single s;
    test_single_open(&s, &hark_op_adamw, &skipped, 4, four_numbers);
    for (int input = 0; input < 4; input++) test_single_set(&s, input, (const double[]){0.1 + input});
    free(test_single_forward(&s));
    for (int input = 0; input < 4; input++) {
      double *value = test_single_get(&s, input);
      test_near(value[0], 0.1 + input, 0);
      free(value);
    }
    test_single_close(&s);
  }
}

static void sum_of_squares_of_whole_numbers_is_exact(void **state) {
  (void)state;
  enum { COUNT = 20011 };
  test_single s;
  test_single_open(&s, &hark_op_sum_squares, NULL, 1, (const hark_sample_input[]){{HARK_F32, 1, {COUNT}, 0, 0}});
  double *x = test_single_get(&s, 0);
  for (int i = 0; i < COUNT; i++) x[i] = i % 2 == 0 ? i + 1 : -(i + 1);
  test_single_set(&s, 0, x);
  double *sum = test_single_forward(&s);
  test_near(sum[0], (double)COUNT * (COUNT + 1) * (2 * COUNT + 1) / 6, 0);
  free(sum);
  free(x);
  test_single_close(&s);
  test_single_open(&s, &hark_op_sum_squares, NULL, 1, &number);
  test_single_set(&s, 0, (const double[]){1e-170});
  sum = test_single_forward(&s);
  test_near(sum[0], 0, 0); /* underflows in f64 too; must not be a NaN */
  free(sum);
  test_single_close(&s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(loss_of_uniform_logits_is_the_logarithm_of_the_classes),
      cmocka_unit_test(gradient_rows_sum_to_zero_and_hold_probabilities),
      cmocka_unit_test(smoothing_is_a_mixture_of_targets),
      cmocka_unit_test(the_squared_log_sum_is_added),
      cmocka_unit_test(shifted_and_huge_logits_do_not_overflow),
      cmocka_unit_test(ignored_rows_are_neither_read_nor_counted),
      cmocka_unit_test(targets_outside_the_classes_are_refused),
      cmocka_unit_test(adamw_makes_the_steps_worked_out_by_hand),
      cmocka_unit_test(adamw_moves_by_the_rate_at_first),
      cmocka_unit_test(adamw_changes_nothing_for_a_scale_that_is_not_finite),
      cmocka_unit_test(sum_of_squares_of_whole_numbers_is_exact),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
