/* test_numbers.c - lines, means, matrices, special functions and quadrature that experiments are judged with, against what is known. */
#include <hark/random.h>
#include <math.h>
#include <string.h>

#include "lab/fit.h"
#include "lab/matrix.h"
#include "lab/special.h"
#include "support/cmocka_all.h"
#include "support/setups.h"
#include "support/text_files.h"

#define PI 3.14159265358979323846

static hark_context *context;
static hark_lab *lab;

static int begin(void **state) {
  (void)state;
  context = test_reference_open();
  assert_fine(context, hark_lab_create(context, true, 1, NULL, &lab));
  return 0;
}

static int end(void **state) {
  (void)state;
  hark_lab_destroy(&lab);
  test_setup_close(context);
  return 0;
}

static void assert_near(double have, double want, double within) {
  if (!(fabs(have - want) <= within)) fail_msg("%.17g, expected %.17g within %g", have, want, within);
}

/* ---- lines ---- */

/* Points (1, 1), (2, 3), (3, 2), (4, 6): by hand slope 7/5 (sum xy about the means 7, of x 5), intercept 3 - 3.5 * 1.4, residual sum of
 * squares 14 - 1.4 * 7 = 4.2, error sqrt(4.2 / (2 * 5)). */
static void slopes_are_least_squares(void **state) {
  (void)state;
  static const double y[] = {1, 3, 2, 6};
  hark_lab_line line = {0};
  for (int i = 0; i < 4; i++) hark_lab_line_add(&line, i + 1, y[i]);
  const hark_lab_fit fit = hark_lab_line_fit(&line);
  assert_near(fit.slope, 1.4, 1e-14);
  assert_near(fit.intercept, 3 - 2.5 * 1.4, 1e-14);
  assert_near(fit.error, sqrt(0.42), 1e-14);
  assert_near(hark_lab_line_error(&line, 2), 2 / sqrt(5), 1e-14);
}

static void powers_are_found_and_nothing_else(void **state) {
  (void)state;
  hark_lab_line line = {0}, zero = {0}, one = {0};
  for (int i = 0; i < 7; i++) hark_lab_line_add_power(&line, ldexp(64, i), 3e-9 * pow(ldexp(64, i), -1.25));
  assert_near(hark_lab_line_fit(&line).slope, -1.25, 1e-13);
  assert_near(hark_lab_line_fit(&line).error, 0, 1e-7); /* square root of rounding */
  hark_lab_line_add_power(&zero, 1, 1);
  hark_lab_line_add_power(&zero, 2, 0);
  hark_lab_line_add_power(&zero, 3, 1);
  assert_true(isnan(hark_lab_line_fit(&zero).slope));
  hark_lab_line_add(&one, 1, 1);
  assert_true(isnan(hark_lab_line_fit(&one).slope));
  hark_lab_line_add(&one, 1, 2);
  assert_true(isnan(hark_lab_line_fit(&one).slope));
}

/* A power is found from its points; what is negative counts by its error, and where there is nothing but noise below zero nothing falls. */
static void powers_are_found_beside_what_is_negative(void **state) {
  (void)state;
  enum { COUNT = 6 };
  static const double negative[COUNT] = {-1, -2, -1, -3, -1, -2};
  double x[COUNT], y[COUNT], error[COUNT];
  for (int i = 0; i < COUNT; i++) {
    x[i] = ldexp(32, i);
    y[i] = 7 * pow(x[i], -1.1);
    error[i] = 0.1 * y[i];
  }
  assert_near(hark_lab_power(COUNT, x, y, error), -1.1, 1e-7);
  for (int i = 0; i < COUNT; i++) error[i] = 1e-3; /* whatever the weights are */
  assert_near(hark_lab_power(COUNT, x, y, error), -1.1, 1e-7);
  assert_near(hark_lab_power(COUNT, x, negative, error), 0, 0);
  y[COUNT - 1] = -0.002; /* one that is off by a little more than its error, of 0.0042 */
  error[COUNT - 1] = 0.005;
  const double power = hark_lab_power(COUNT, x, y, error);
  assert_true(isfinite(power) && power < -1.05 && power > -1.25);
  /* two points: c and s go through both, and s is the line's of their logarithms */
  assert_near(hark_lab_power(2, x, (const double[]){3, 1.5}, (const double[]){0.1, 0.7}), -1, 1e-7);
  /* rising, and beyond the search */
  assert_near(hark_lab_power(2, x, (const double[]){1, 2}, (const double[]){0.1, 0.1}), 1, 1e-7);
  assert_near(hark_lab_power(2, x, (const double[]){1, -1e-6}, (const double[]){0.1, 0.1}), -4, 0);
  assert_true(isnan(hark_lab_power(2, x, y, (const double[]){0, 1})));
  assert_true(isnan(hark_lab_power(2, (const double[]){-1, 1}, y, error)));
  assert_true(isnan(hark_lab_power(2, x, (const double[]){1, NAN}, error)));
}

static void means_have_standard_errors(void **state) {
  (void)state;
  static const double values[] = {1e9 + 1, 1e9 + 2, 1e9 + 3, 1e9 + 4};
  hark_lab_mean mean = {0};
  hark_lab_mean_add(&mean, values[0]);
  assert_true(isnan(hark_lab_mean_error(&mean)));
  for (int i = 1; i < 4; i++) hark_lab_mean_add(&mean, values[i]);
  assert_near(mean.mean, 1e9 + 2.5, 0);
  assert_near(hark_lab_mean_error(&mean), sqrt(5.0 / 3 / 4), 1e-14);
}

/* ---- matrices ---- */

enum { N = 7, COLUMNS = 3 };

/* a = b b^T + I, of which b is random. */
static void make_positive(double *a) {
  double b[N * N];
  const hark_random_stream stream = {.seed = 3, .layer_purpose = hark_random_layer_purpose(0, HARK_RANDOM_TEST)};
  hark_random_normal(&stream, 0, (int64_t)N * N, b);
  for (int i = 0; i < N; i++)
    for (int j = 0; j < N; j++) {
      a[i * N + j] = i == j;
      for (int k = 0; k < N; k++) a[i * N + j] += b[i * N + k] * b[j * N + k];
    }
}

static void cholesky_solves(void **state) {
  (void)state;
  double a[N * N], l[N * N], x[N * COLUMNS], b[N * COLUMNS], not_positive[4] = {1, 9, 2, 1};
  make_positive(a);
  for (int i = 0; i < N * COLUMNS; i++) x[i] = sin(i);
  hark_lab_multiply(N, N, COLUMNS, a, x, b);
  memcpy(l, a, sizeof l);
  assert_true(hark_lab_cholesky(N, l));
  hark_lab_cholesky_solve(N, l, COLUMNS, b);
  for (int i = 0; i < N * COLUMNS; i++) assert_near(b[i], x[i], 1e-12);
  for (int i = 0; i < N; i++)
    for (int j = i + 1; j < N; j++) assert_near(l[i * N + j], a[i * N + j], 0); /* untouched */
  assert_false(hark_lab_cholesky(2, not_positive));
}

/* a v = value v, vectors orthonormal, largest first; known values of [2 1; 1 2]. */
static void eigenvectors_are(void **state) {
  (void)state;
  double a[N * N], copy[N * N], values[N], vectors[N * N], two[4] = {2, 1, 1, 2};
  make_positive(a);
  memcpy(copy, a, sizeof copy);
  hark_lab_eigen(N, copy, values, vectors);
  for (int i = 0; i < N; i++) {
    assert_true(i == 0 || values[i - 1] >= values[i]);
    for (int r = 0; r < N; r++) {
      double product = 0, dot = 0;
      for (int c = 0; c < N; c++) {
        product += a[r * N + c] * vectors[i * N + c];
        dot += vectors[r * N + c] * vectors[i * N + c];
      }
      assert_near(product, values[i] * vectors[i * N + r], 1e-13 * values[0]);
      assert_near(dot, i == r, 1e-14);
    }
  }
  hark_lab_eigen(2, two, values, vectors);
  assert_near(values[0], 3, 1e-15);
  assert_near(values[1], 1, 1e-15);
}

/* ---- special functions and quadrature ---- */

static bool without_gsl(void) {
  const hark_experiment some = {.needs_gsl = true};
  return hark_lab_missing(&some) != NULL;
}

/* I_{1/2}(x) = sqrt(2 / (pi x)) sinh x; A of dimension 3 is coth x - 1/x; I_0(1) from its series. */
static void bessel_functions_are(void **state) {
  (void)state;
  if (without_gsl()) skip();
  double series = 0, term = 1;
  for (int k = 1; k < 30; k++) {
    series += term;
    term *= 0.25 / (k * k);
  }
  assert_near(hark_lab_bessel(0, 1), series * exp(-1), 1e-15);
  for (int i = 0; i < 6; i++) {
    const double x = ldexp(0.5, i);
    assert_near(hark_lab_bessel(0.5, x), sqrt(2 / (PI * x)) * sinh(x) * exp(-x), 1e-14);
    assert_near(hark_lab_sphere_mean(3, x), 1 / tanh(x) - 1 / x, 1e-13);
  }
  assert_true(isnan(hark_lab_bessel(-1, 1)));
}

static void rules_integrate(void **state) {
  (void)state;
  hark_lab_rule rule;
  assert_fine(context, hark_lab_trapezoid(lab, 32, 0, 2 * PI, &rule));
  double sum = 0;
  for (int64_t i = 0; i < rule.count; i++) sum += rule.weights[i] * exp(cos(rule.nodes[i]));
  assert_near(sum, 2 * PI * 1.2660658777520083, 1e-13); /* 2 pi I_0(1) */
  if (without_gsl()) {
    assert_failure(context, hark_lab_legendre(lab, 5, 0, 1, &rule), HARK_UNSUPPORTED, "GSL");
    return;
  }
  assert_fine(context, hark_lab_legendre(lab, 5, 1, 3, &rule)); /* exact for x^9 */
  sum = 0;
  for (int64_t i = 0; i < rule.count; i++) sum += rule.weights[i] * pow(rule.nodes[i], 9);
  assert_near(sum, (pow(3, 10) - 1) / 10, 1e-10);
}

/* What a build lacks is said by name, and not measured. */
static void missing_parts_are_refused(void **state) {
  (void)state;
  hark_lab *other;
  const hark_experiment some = {.needs_gsl = true};
  if (!without_gsl()) skip();
  assert_fine(context, hark_lab_create(context, true, 1, NULL, &other));
  assert_failure(context, hark_lab_run(other, &some), HARK_UNSUPPORTED, "needs GSL (Debian: libgsl-dev), which this build does not have");
  hark_lab_destroy(&other);
}

/* A stream's numbers are the same taken at once or in pieces; uniform ones lie in [0, 1). */
static void draws_are_streams(void **state) {
  (void)state;
  double all[40], piece[15], uniform[1000], mean = 0;
  hark_lab_normal(lab, 3, 40, all);
  hark_lab_normal_from(lab, 3, 10, 15, piece);
  assert_memory_equal(piece, all + 10, sizeof piece);
  hark_lab_uniform(lab, 4, 1000, uniform);
  for (int i = 0; i < 1000; i++) {
    assert_true(uniform[i] >= 0 && uniform[i] < 1);
    mean += uniform[i] / 1000;
  }
  assert_near(mean, 0.5, 4 * sqrt(1.0 / 12 / 1000));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(slopes_are_least_squares),
                                     cmocka_unit_test(powers_are_found_and_nothing_else),
                                     cmocka_unit_test(powers_are_found_beside_what_is_negative),
                                     cmocka_unit_test(means_have_standard_errors),
                                     cmocka_unit_test(cholesky_solves),
                                     cmocka_unit_test(eigenvectors_are),
                                     cmocka_unit_test(bessel_functions_are),
                                     cmocka_unit_test(rules_integrate),
                                     cmocka_unit_test(missing_parts_are_refused),
                                     cmocka_unit_test(draws_are_streams)};
  return cmocka_run_group_tests(tests, begin, end);
}
