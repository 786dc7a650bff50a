/* test_norms_and_activations.c - norms and activations against what is known of them by other means than their definition: moments,
 * invariances, values from tables, identities. In f64 on the reference backend; tolerances are a few hundred roundings. */
#include <math.h>
#include <stdlib.h>

#include "support/cmocka_all.h"
#include "support/single.h"

#define ROUNDING 1e-13 /* a few hundred roundings of numbers of size one */
#define ROWS 5
#define WIDTH 37

static const hark_sample_input matrix = {HARK_F32, 2, {ROWS, WIDTH}, -2, 2}, unit_gain = {HARK_F32, 1, {WIDTH}, 1, 1};
static const hark_norm_attributes no_epsilon = {0};

static double dot(const double *a, const double *b, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; i++) sum += a[i] * b[i];
  return sum;
}

static double total(const double *a, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; i++) sum += a[i];
  return sum;
}

static void layer_norm_has_mean_zero_and_variance_one(void **state) {
  (void)state;
  test_single s;
  test_single_open(&s, &hark_op_layer_norm, &no_epsilon, 2, (const hark_sample_input[]){matrix, unit_gain});
  double *y = test_single_forward(&s);
  for (int n = 0; n < ROWS; n++) {
    test_near(total(y + n * WIDTH, WIDTH) / WIDTH, 0, ROUNDING);
    test_near(dot(y + n * WIDTH, y + n * WIDTH, WIDTH) / WIDTH, 1, ROUNDING);
  }
  free(y);
  test_single_close(&s);
}

/* y(c x + d) = y(x) for c > 0, so the gradient has no part along 1 and none along xhat. */
static void layer_norm_ignores_shift_and_scale(void **state) {
  (void)state;
  test_single s;
  test_single_open(&s, &hark_op_layer_norm, &no_epsilon, 3, (const hark_sample_input[]){matrix, unit_gain, unit_gain});
  double *x = test_single_get(&s, 0), *y = test_single_forward(&s);
  test_single_backward(&s, NULL);
  double *dx = test_single_gradient(&s, 0);
  for (int n = 0; n < ROWS; n++) {
    test_near(total(dx + n * WIDTH, WIDTH), 0, ROUNDING);
    test_near(dot(dx + n * WIDTH, x + n * WIDTH, WIDTH), 0, 10 * ROUNDING);
  }
  for (int i = 0; i < ROWS * WIDTH; i++) x[i] = 3 * x[i] + 7;
  test_single_set(&s, 0, x);
  double *moved = test_single_forward(&s);
  for (int i = 0; i < ROWS * WIDTH; i++) test_near(moved[i], y[i], 10 * ROUNDING);
  free(moved);
  free(dx);
  free(y);
  free(x);
  test_single_close(&s);
}

static void layer_norm_of_equal_numbers_is_the_bias(void **state) {
  (void)state;
  static const hark_norm_attributes usual = {1e-5};
  test_single s;
  test_single_open(&s, &hark_op_layer_norm, &usual, 3,
                   (const hark_sample_input[]){{HARK_F32, 2, {ROWS, WIDTH}, 4, 4}, unit_gain, {HARK_F32, 1, {WIDTH}, -1, 1}});
  double *bias = test_single_get(&s, 2), *y = test_single_forward(&s);
  for (int i = 0; i < ROWS * WIDTH; i++) test_near(y[i], bias[i % WIDTH], 1e-9); /* rounding of the mean, times 1 / sqrt(epsilon) */
  free(y);
  free(bias);
  test_single_close(&s);
}

static void rms_norm_has_mean_square_one_and_ignores_scale(void **state) {
  (void)state;
  test_single s;
  test_single_open(&s, &hark_op_rms_norm, &no_epsilon, 2, (const hark_sample_input[]){matrix, unit_gain});
  double *x = test_single_get(&s, 0), *y = test_single_forward(&s);
  test_single_backward(&s, NULL);
  double *dx = test_single_gradient(&s, 0);
  for (int n = 0; n < ROWS; n++) {
    test_near(dot(y + n * WIDTH, y + n * WIDTH, WIDTH) / WIDTH, 1, ROUNDING);
    test_near(dot(dx + n * WIDTH, x + n * WIDTH, WIDTH), 0, 10 * ROUNDING); /* y(c x) = y(x) */
  }
  for (int i = 0; i < ROWS * WIDTH; i++) x[i] *= 1e6;
  test_single_set(&s, 0, x);
  double *scaled = test_single_forward(&s);
  for (int i = 0; i < ROWS * WIDTH; i++) test_near(scaled[i], y[i], 10 * ROUNDING);
  free(scaled);
  free(dx);
  free(y);
  free(x);
  test_single_close(&s);
}

#define POINTS 7

/* y = f(x) for POINTS numbers. */
static void apply(const hark_operator *op, const void *attributes, const double *x, double *y) {
  test_single s;
  test_single_open(&s, op, attributes, 1, (const hark_sample_input[]){{HARK_F32, 1, {POINTS}, 0, 0}});
  test_single_set(&s, 0, x);
  double *values = test_single_forward(&s);
  for (int i = 0; i < POINTS; i++) y[i] = values[i];
  free(values);
  test_single_close(&s);
}

static void gelu_has_the_values_of_the_normal_distribution(void **state) {
  (void)state;
  /* x Phi(x) to 30 digits by mpmath. The last is a relative error: 1 + erf would cancel there. */
  static const double x[POINTS] = {0, 0.5, 1, 2, -1, -3, -6};
  static const double known[POINTS] = {0,
                                       0.345731230637006551818852305304,
                                       0.841344746068542948585232545632,
                                       1.95449973610364158559943472567,
                                       -0.158655253931457051414767454368,
                                       -0.00404969409489028357995544430279,
                                       -5.91952587022618844205184791e-9};
  static const hark_gelu_attributes exact = {false};
  double y[POINTS];
  apply(&hark_op_gelu, &exact, x, y);
  for (int i = 0; i < POINTS; i++) test_near(y[i], known[i], 1e-14 * fabs(known[i]));
}

static void gelu_tanh_is_close_to_gelu(void **state) {
  (void)state;
  static const double x[POINTS] = {0, 1, -2, 0.3, 2.7, -0.9, 6};
  static const hark_gelu_attributes exact = {false}, approximate = {true};
  const double worst = 4.74e-4; /* the largest distance of the two over all x */
  double y[POINTS], t[POINTS];
  apply(&hark_op_gelu, &exact, x, y);
  apply(&hark_op_gelu, &approximate, x, t);
  for (int i = 0; i < POINTS; i++) test_near(t[i], y[i], worst);
  test_near(t[1], 0.8411919906082768, ROUNDING); /* the published values of the approximation */
  test_near(t[2], -0.04540230591222494, ROUNDING);
}

/* f(x) - f(-x) = x holds for x times any symmetric distribution function: gelu, silu, relu. */
static void odd_part_is_half_the_identity(void **state) {
  (void)state;
  static const hark_gelu_attributes exact = {false}, approximate = {true};
  static const double x[POINTS] = {0, 0.1, 0.7, 1.9, 3.3, 11, 700};
  const struct {
    const hark_operator *op;
    const void *attributes;
  } functions[] = {{&hark_op_gelu, &exact}, {&hark_op_gelu, &approximate}, {&hark_op_silu, NULL}, {&hark_op_relu, NULL}};
  double minus_x[POINTS], y[POINTS], minus_y[POINTS];
  for (int i = 0; i < POINTS; i++) minus_x[i] = -x[i];
  for (size_t f = 0; f < sizeof functions / sizeof functions[0]; f++) {
    apply(functions[f].op, functions[f].attributes, x, y);
    apply(functions[f].op, functions[f].attributes, minus_x, minus_y);
    for (int i = 0; i < POINTS; i++) test_near(y[i] - minus_y[i], x[i], ROUNDING * fmax(1, x[i]));
  }
}

static void silu_has_known_values(void **state) {
  (void)state;
  static const double x[POINTS] = {0, 1, -2, -1000, 1000, -0.0, 0};
  double y[POINTS];
  apply(&hark_op_silu, NULL, x, y);
  test_near(y[0], 0, 0);
  test_near(y[1], 0.731058578630004879, ROUNDING);
  test_near(y[2], -0.238405844044235120, ROUNDING);
  test_near(y[3], 0, 0);
  test_near(y[4], 1000, 0);
}

static void relu_has_derivative_zero_at_zero_and_keeps_nan(void **state) {
  (void)state;
  test_single s;
  test_single_open(&s, &hark_op_relu, NULL, 1, (const hark_sample_input[]){{HARK_F32, 1, {4}, 0, 0}});
  test_single_set(&s, 0, (const double[]){0, -3, 2, NAN});
  double *y = test_single_forward(&s);
  test_single_backward(&s, (const double[]){5, 5, 5, 5});
  double *dx = test_single_gradient(&s, 0);
  test_near(y[0], 0, 0);
  test_near(y[1], 0, 0);
  test_near(y[2], 2, 0);
  assert_true(isnan(y[3]));
  test_near(dx[0], 0, 0);
  test_near(dx[1], 0, 0);
  test_near(dx[2], 5, 0);
  free(dx);
  free(y);
  test_single_close(&s);
}

static void check_gated(const hark_operator *gated, const hark_operator *plain, const void *attributes) {
  static const hark_sample_input vector = {HARK_F32, 1, {POINTS}, -4, 4};
  test_single s;
  test_single_open(&s, gated, attributes, 2, (const hark_sample_input[]){vector, vector});
  double *a = test_single_get(&s, 0), *b = test_single_get(&s, 1), *y = test_single_forward(&s), alone[POINTS];
  test_single_backward(&s, (const double[]){1, 1, 1, 1, 1, 1, 1});
  double *db = test_single_gradient(&s, 1);
  apply(plain, attributes, a, alone);
  for (int i = 0; i < POINTS; i++) {
    test_near(y[i], alone[i] * b[i], ROUNDING);
    test_near(db[i], alone[i], ROUNDING); /* linear in b */
  }
  free(db);
  free(y);
  free(b);
  free(a);
  test_single_close(&s);
}

static void gated_functions_are_those_times_the_gate(void **state) {
  (void)state;
  static const hark_gelu_attributes exact = {false}, approximate = {true};
  check_gated(&hark_op_gated_silu, &hark_op_silu, NULL);
  check_gated(&hark_op_gated_gelu, &hark_op_gelu, &exact);
  check_gated(&hark_op_gated_gelu, &hark_op_gelu, &approximate);
}

static void add_and_scale_are_what_they_say(void **state) {
  (void)state;
  static const hark_sample_input vector = {HARK_F32, 1, {3}, 0, 0};
  static const hark_scale_attributes half = {-0.5};
  test_single s;
  test_single_open(&s, &hark_op_add, NULL, 2, (const hark_sample_input[]){vector, vector});
  test_single_set(&s, 0, (const double[]){1, -2, 1e300});
  test_single_set(&s, 1, (const double[]){2, 2, -1e300});
  double *y = test_single_forward(&s);
  test_numbers(y, 3, 0, 0);
  free(y);
  test_single_close(&s);
  test_single_open(&s, &hark_op_scale, &half, 1, (const hark_sample_input[]){vector});
  test_single_set(&s, 0, (const double[]){1, -8, 0});
  y = test_single_forward(&s);
  test_numbers(y, -0.5, 4, 0);
  free(y);
  test_single_close(&s);
}

/* tanh(ln 2) = 3/5, tanh(ln 3) = 4/5; dy/dx = 1 - y^2. */
static void tanh_has_known_values(void **state) {
  (void)state;
  test_single s;
  test_single_open(&s, &hark_op_tanh, NULL, 1, (const hark_sample_input[]){{HARK_F32, 1, {4}, 0, 0}});
  test_single_set(&s, 0, (const double[]){log(2), -log(3), 0, 1000});
  double *y = test_single_forward(&s);
  test_single_backward(&s, (const double[]){1, 1, 1, 1});
  double *dx = test_single_gradient(&s, 0);
  const double values[] = {0.6, -0.8, 0, 1}, slopes[] = {0.64, 0.36, 1, 0};
  for (int i = 0; i < 4; i++) {
    test_near(y[i], values[i], ROUNDING);
    test_near(dx[i], slopes[i], ROUNDING);
  }
  free(dx);
  free(y);
  test_single_close(&s);
}

/* (3, 4) / 5; the gradient has no part along the row. A row of zeros stays, without a gradient. */
static void unit_rows_have_length_one(void **state) {
  (void)state;
  test_single s;
  test_single_open(&s, &hark_op_unit_rows, NULL, 1, (const hark_sample_input[]){{HARK_F32, 2, {2, 2}, 0, 0}});
  test_single_set(&s, 0, (const double[]){3, 4, 0, 0});
  double *y = test_single_forward(&s);
  test_single_backward(&s, (const double[]){1, 0, 1, 1});
  double *dx = test_single_gradient(&s, 0);
  const double values[] = {0.6, 0.8, 0, 0}, slopes[] = {0.128, -0.096, 0, 0};
  for (int i = 0; i < 4; i++) {
    test_near(y[i], values[i], ROUNDING);
    test_near(dx[i], slopes[i], ROUNDING);
  }
  free(dx);
  free(y);
  test_single_close(&s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(layer_norm_has_mean_zero_and_variance_one),
      cmocka_unit_test(layer_norm_ignores_shift_and_scale),
      cmocka_unit_test(layer_norm_of_equal_numbers_is_the_bias),
      cmocka_unit_test(rms_norm_has_mean_square_one_and_ignores_scale),
      cmocka_unit_test(gelu_has_the_values_of_the_normal_distribution),
      cmocka_unit_test(gelu_tanh_is_close_to_gelu),
      cmocka_unit_test(odd_part_is_half_the_identity),
      cmocka_unit_test(silu_has_known_values),
      cmocka_unit_test(relu_has_derivative_zero_at_zero_and_keeps_nan),
      cmocka_unit_test(gated_functions_are_those_times_the_gate),
      cmocka_unit_test(add_and_scale_are_what_they_say),
      cmocka_unit_test(tanh_has_known_values),
      cmocka_unit_test(unit_rows_have_length_one),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
