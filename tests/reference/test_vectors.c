/* test_vectors.c - squared_error, ball and linear_ridge against closed forms, in f64. */
#include <hark/experimental.h>
#include <math.h>
#include <stdlib.h>

#include "support/cmocka_all.h"
#include "support/single.h"

#define ROUNDING 1e-13

static hark_sample_input real(int64_t rows, int64_t columns) {
  return (hark_sample_input){.type = HARK_F32, .rank = 2, .shape = {rows, columns}, .low = -1, .high = 1};
}
static hark_sample_input offsets_of(int64_t segments, double last) {
  return (hark_sample_input){.type = HARK_I64, .rank = 1, .shape = {segments + 1}, .low = last, .high = 0};
}

static void squared_error_of_whole_numbers_is_exact(void **state) {
  (void)state;
  static const hark_squared_error_attributes half = {0.5};
  static const double x[] = {1, 2, 3, 4, 5, 6}, t[] = {0, 2, 5, 4, 5, 3};
  test_single s;
  test_single_open(&s, &hark_op_squared_error, &half, 2, (const hark_sample_input[]){real(3, 2), real(3, 2)});
  test_single_set(&s, 0, x);
  test_single_set(&s, 1, t);
  double *const loss = test_single_forward(&s);
  test_numbers(loss, 0.5 * (1 + 4 + 9));
  test_single_backward(&s, (const double[]){2});
  double *const gradient = test_single_gradient(&s, 0);
  test_numbers(gradient, 2, 0, -4, 0, 0, 6);
  free(loss);
  free(gradient);
  test_single_close(&s);
}

static void a_ball_moves_no_rows_apart(void **state) {
  (void)state;
  static const hark_ball_attributes half = {0.5};
  enum { ROWS = 40, WIDTH = 3 };
  test_single s;
  test_single_open(&s, &hark_op_ball, &half, 1, (const hark_sample_input[]){real(ROWS, WIDTH)});
  double *const x = test_single_get(&s, 0), *const y = test_single_forward(&s);
  int outside = 0;
  for (int n = 0; n < ROWS; n++) {
    double before = 0, after = 0, from = 0, to = 0;
    for (int i = 0; i < WIDTH; i++) {
      const int at = n * WIDTH + i, other = (n + 1) % ROWS * WIDTH + i;
      before += x[at] * x[at];
      after += y[at] * y[at];
      from += (x[at] - x[other]) * (x[at] - x[other]);
      to += (y[at] - y[other]) * (y[at] - y[other]);
    }
    outside += before > 0.25;
    test_near(sqrt(after), fmin(0.5, sqrt(before)), ROUNDING);
    assert_true(to <= from * (1 + ROUNDING));
    for (int i = 0; before <= 0.25 && i < WIDTH; i++) assert_true(y[n * WIDTH + i] == x[n * WIDTH + i]);
  }
  assert_in_range(outside, 1, ROWS - 1);
  free(x);
  free(y);
  test_single_close(&s);
}

/* One covariate: y = q sum c r / (sum c^2 + lambda). */
static void a_ridge_of_one_covariate_is_a_quotient(void **state) {
  (void)state;
  static const hark_linear_ridge_attributes ridge = {0.5, 1};
  static const double c[] = {1, 2, 9, -1, 3, 9, 9}, r[] = {2, 1, 9, 4, 0, 9, 9}, q[] = {3, 2, 5}, offsets[] = {0, 3, 6, 7};
  test_single s;
  test_single_open(&s, &hark_op_linear_ridge, &ridge, 4, (const hark_sample_input[]){real(7, 1), real(7, 1), real(3, 1), offsets_of(3, 7)});
  test_single_set(&s, 0, c);
  test_single_set(&s, 1, r);
  test_single_set(&s, 2, q);
  test_single_set(&s, 3, offsets);
  double *const y = test_single_forward(&s);
  test_near(y[0], 3 * 4 / 5.5, ROUNDING);
  test_near(y[1], 2 * -4 / 10.5, ROUNDING);
  test_near(y[2], 0, 0); /* all of it is held out */
  free(y);
  test_single_close(&s);
}

/* Each query of a sequence is asked of its regression, in the order [S, m]. */
static void a_sequence_may_have_many_queries(void **state) {
  (void)state;
  static const hark_linear_ridge_attributes ridge = {0.5, 0};
  static const double c[] = {1, 2, -1, 3}, r[] = {2, 1, 4, 0}, q[] = {3, 1, 0, 2, 4, -1}, offsets[] = {0, 2, 4};
  static const double slopes[] = {4 / 5.5, -4 / 10.5};
  hark_sample_input queries = real(2, 1);
  queries.rank = 3;
  queries.shape[0] = 2;
  queries.shape[1] = 3;
  queries.shape[2] = 1;
  test_single s;
  test_single_open(&s, &hark_op_linear_ridge, &ridge, 4, (const hark_sample_input[]){real(4, 1), real(4, 1), queries, offsets_of(2, 4)});
  test_single_set(&s, 0, c);
  test_single_set(&s, 1, r);
  test_single_set(&s, 2, q);
  test_single_set(&s, 3, offsets);
  double *const y = test_single_forward(&s);
  for (int i = 0; i < 6; i++) test_near(y[i], q[i] * slopes[i / 3], ROUNDING);
  free(y);
  test_single_close(&s);
}

/* As many orthogonal covariates as tokens and hardly a ridge: the responses themselves. */
static void without_a_ridge_responses_come_back(void **state) {
  (void)state;
  static const hark_linear_ridge_attributes ridge = {1e-13, 0};
  static const double c[] = {1, 0, 0, -2}, q[] = {1, 0}, offsets[] = {0, 2};
  test_single s;
  test_single_open(&s, &hark_op_linear_ridge, &ridge, 4, (const hark_sample_input[]){real(2, 2), real(2, 3), real(1, 2), offsets_of(1, 2)});
  test_single_set(&s, 0, c);
  test_single_set(&s, 2, q);
  test_single_set(&s, 3, offsets);
  double *const r = test_single_get(&s, 1), *const y = test_single_forward(&s);
  for (int i = 0; i < 3; i++) test_near(y[i], r[i], 1e-12);
  free(r);
  free(y);
  test_single_close(&s);
}

/* Twice the same large covariate, and a ridge that is lost beside it: finite, and the response of the covariate. */
static void covariates_may_be_the_same(void **state) {
  (void)state;
  static const hark_linear_ridge_attributes ridge = {1e-6, 0};
  static const double c[] = {1e6, 1e6, -1e6, -1e6, 1.1e6, 1.1e6}, r[] = {1, -1, 1.1}, q[] = {1e6, 1e6}, offsets[] = {0, 3};
  test_single s;
  test_single_open(&s, &hark_op_linear_ridge, &ridge, 4, (const hark_sample_input[]){real(3, 2), real(3, 1), real(1, 2), offsets_of(1, 3)});
  test_single_set(&s, 0, c);
  test_single_set(&s, 1, r);
  test_single_set(&s, 2, q);
  test_single_set(&s, 3, offsets);
  double *const y = test_single_forward(&s);
  test_near(y[0], 1, 1e-3);
  free(y);
  test_single_close(&s);
}

static void a_ridge_that_is_no_positive_number_is_refused(void **state) {
  (void)state;
  static const hark_linear_ridge_attributes one = {1, 0};
  const hark_sample_input log_ridge = {.type = HARK_F32, .rank = 1, .shape = {1}, .low = 0, .high = 1};
  test_single s;
  test_single_open(&s, &hark_op_linear_ridge, &one, 5,
                   (const hark_sample_input[]){real(2, 2), real(2, 3), real(1, 2), offsets_of(1, 2), log_ridge});
  test_single_set(&s, 4, (const double[]){1000}); /* e^1000 is infinite */
  assert_int_equal(test_single_refusal(&s), HARK_INVALID_ARGUMENT);
  test_single_set(&s, 4, (const double[]){0});
  test_single_set(&s, 3, (const double[]){0, 3});
  assert_int_equal(test_single_refusal(&s), HARK_INVALID_ARGUMENT);
  test_single_close(&s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(squared_error_of_whole_numbers_is_exact),
      cmocka_unit_test(a_ball_moves_no_rows_apart),
      cmocka_unit_test(a_ridge_of_one_covariate_is_a_quotient),
      cmocka_unit_test(without_a_ridge_responses_come_back),
      cmocka_unit_test(a_ridge_that_is_no_positive_number_is_refused),
      cmocka_unit_test(covariates_may_be_the_same),
      cmocka_unit_test(a_sequence_may_have_many_queries),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
