/* test_conditional.c - what the experiments on conditional expectations are made of: features of Gaussian functions, the spectrum on a
 * circle, small regressions, CME attention on plain arrays, columns of tables. */
#include <math.h>

#include "lab/attention.h"
#include "lab/circle.h"
#include "lab/gaussian_process.h"
#include "lab/matrix.h"
#include "lab/regression.h"
#include "lab/tables.h"
#include "support/cmocka_all.h"
#include "support/setups.h"
#include "support/text_files.h"

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

/* phi(x) . phi(y) is the kernel as far as the features reach; beyond, they are too few. */
static void features_give_the_kernel(void **state) {
  (void)state;
  static const double width = 0.5;
  double a[HARK_GAUSSIAN_FEATURES], b[HARK_GAUSSIAN_FEATURES];
  for (double x = -1; x <= 1; x += 0.125)
    for (double y = -1; y <= 1; y += 0.25) {
      hark_gaussian_features(x, width, a);
      hark_gaussian_features(y, width, b);
      assert_near(hark_gaussian_value(a, b), exp(-(x - y) * (x - y) / (2 * width * width)), 1e-15);
    }
  hark_gaussian_features(3, width, a);
  assert_true(hark_gaussian_value(a, a) < 0.9);
}

/* Keys that stand evenly on the circle make a circulant matrix, whose eigenvalues over n are sums of l_{j + n k}: its dimensions are those
 * of the spectrum up to l_{n/2}, which is nothing at n = 48. */
static void the_circle_has_the_spectrum_of_its_kernel(void **state) {
  (void)state;
#ifdef HARK_WITH_GSL
  enum { COUNT = 48 };
  static const double ridges[] = {1, 0.1, 1e-3};
  double kernel[COUNT * COUNT], values[COUNT], vectors[COUNT * COUNT];
  double sum = hark_circle_eigenvalue(0);
  for (int64_t j = 1; j < 40; j++) sum += 2 * hark_circle_eigenvalue(j);
  assert_near(sum, 1, 1e-14);
  for (int i = 0; i < COUNT; i++)
    for (int j = 0; j < COUNT; j++) kernel[i * COUNT + j] = exp((cos(2 * acos(-1) * (i - j) / COUNT) - 1) / HARK_CIRCLE_WIDTH) / COUNT;
  hark_lab_eigen(COUNT, kernel, values, vectors);
  assert_near(values[0], hark_circle_eigenvalue(0), 1e-14);
  assert_near(values[1], hark_circle_eigenvalue(1), 1e-14);
  for (int r = 0; r < 3; r++)
    for (int power = 1; power <= 2; power++) {
      double dimension = 0;
      for (int i = 0; i < COUNT; i++) dimension += pow(values[i] / (values[i] + ridges[r]), power);
      assert_near(hark_circle_dimension(ridges[r], power), dimension, 1e-11);
    }
#else
  assert_true(isnan(hark_circle_eigenvalue(0)));
#endif
}

static void points_of_the_circle_lie_on_it(void **state) {
  (void)state;
  enum { COUNT = 4000 };
  double *keys, *scratch, mean[2] = {0};
  assert_fine(context, hark_lab_numbers(lab, (int64_t)2 * COUNT, &keys));
  assert_fine(context, hark_lab_numbers(lab, COUNT, &scratch));
  hark_circle_points(lab, 0, COUNT, scratch, keys);
  for (int i = 0; i < COUNT; i++) {
    assert_near(hypot(keys[2 * i], keys[2 * i + 1]), 1, 1e-15);
    for (int c = 0; c < 2; c++) mean[c] += keys[2 * i + c] / COUNT;
  }
  for (int c = 0; c < 2; c++) assert_near(mean[c], 0, 4 * sqrt(0.5 / COUNT)); /* four deviations */
}

/* y = 2 - x + 3 x^2 exactly; then with a part that no feature explains: +-1 in turn on a symmetric grid of pairs. */
static void regressions_find_what_is_there(void **state) {
  (void)state;
  enum { ROWS = 40 };
  double x[ROWS * 3], twice[ROWS * 2], y[ROWS], c[3], all = 0, mean = 0;
  for (int i = 0; i < ROWS; i++) {
    const double t = i / 2 / 10. - 1;
    x[3 * i] = 1;
    x[3 * i + 1] = t;
    x[3 * i + 2] = t * t;
    twice[2 * i] = t;
    twice[2 * i + 1] = 2 * t;
    y[i] = 2 - t + 3 * t * t;
  }
  assert_true(hark_lab_regress(ROWS, 3, 1, x, y, c));
  assert_near(c[0], 2, 1e-12);
  assert_near(c[1], -1, 1e-12);
  assert_near(c[2], 3, 1e-12);
  assert_near(hark_lab_r_squared(ROWS, 3, 1, x, y), 1, 1e-12);
  for (int i = 0; i < ROWS; i++) y[i] += i % 2 == 0 ? 1 : -1;
  for (int i = 0; i < ROWS; i++) mean += y[i] / ROWS;
  for (int i = 0; i < ROWS; i++) all += (y[i] - mean) * (y[i] - mean);
  assert_near(hark_lab_r_squared(ROWS, 3, 1, x, y), 1 - ROWS / all, 1e-12);
  assert_false(hark_lab_regress(ROWS, 2, 1, twice, y, c));
  assert_true(isnan(hark_lab_r_squared(ROWS, 2, 1, twice, y)));
}

/* Two outputs at three queries from four keys, against the formula as it stands. */
static void kernel_ridge_of_a_head_is_the_formula(void **state) {
  (void)state;
  enum { KEYS = 4, QUERIES = 3, OUTPUTS = 2 };
  static const double key[KEYS] = {-1, 0.25, 0.5, 2}, query[QUERIES] = {-2, 0.3, 9}, variance = 0.7, ridge = 0.2;
  static const double value[KEYS * OUTPUTS] = {1, -3, 2, 0.5, -1, 4, 0, 2};
  double matrix[KEYS * KEYS], weights[KEYS], have[QUERIES * OUTPUTS], have_variance[QUERIES];
  const hark_attention_desc choice = hark_lab_kernel_ridge(variance, ridge);
  const hark_lab_head head = {.length = KEYS,
                              .queries = QUERIES,
                              .head_dim = 1,
                              .value_dim = OUTPUTS,
                              .query = query,
                              .key = key,
                              .value = value,
                              .variance = have_variance};
  assert_fine(context, hark_lab_attend(context, &choice, &head, have));
  for (int i = 0; i < KEYS; i++)
    for (int j = 0; j < KEYS; j++)
      matrix[i * KEYS + j] = exp(-(key[i] - key[j]) * (key[i] - key[j]) / (2 * variance)) + (i == j ? ridge : 0);
  assert_true(hark_lab_cholesky(KEYS, matrix));
  for (int q = 0; q < QUERIES; q++) {
    double want[OUTPUTS] = {0}, explained = 0, kernel[KEYS];
    for (int i = 0; i < KEYS; i++) weights[i] = kernel[i] = exp(-(query[q] - key[i]) * (query[q] - key[i]) / (2 * variance));
    hark_lab_cholesky_solve(KEYS, matrix, 1, weights);
    for (int i = 0; i < KEYS; i++) {
      explained += weights[i] * kernel[i];
      for (int c = 0; c < OUTPUTS; c++) want[c] += weights[i] * value[i * OUTPUTS + c];
    }
    for (int c = 0; c < OUTPUTS; c++) assert_near(have[q * OUTPUTS + c], want[c], 1e-13);
    assert_near(have_variance[q], 1 - explained, 1e-13);
  }
}

/* Columns as ranges and curves; a NaN, which add_row refuses, would be both ends of a range. */
static void columns_are_ranges_and_curves(void **state) {
  (void)state;
  static const hark_lab_column columns[] = {{"x", NULL, NULL}, {"y", NULL, NULL}};
  static const double rows[3][2] = {{1, 4}, {2, -6}, {4, 2}};
  static const hark_lab_drawn drawn[] = {{1, HARK_LAB_LINE, "y"}, {0, HARK_LAB_POINTS, ""}};
  hark_lab *own;
  hark_lab_table *table;
  assert_fine(context, hark_lab_create(context, true, 1, NULL, &own));
  assert_fine(context, hark_lab_add_table(own, "numbers", columns, 2, &table));
  for (int i = 0; i < 3; i++) assert_fine(context, hark_lab_add_row(own, table, rows[i]));
  const hark_lab_range alone = hark_lab_column_range(table, 1, HARK_LAB_ALONE), over = hark_lab_column_range(table, 1, 0);
  assert_true(alone.least == -6 && alone.largest == 4);
  assert_true(over.least == -3 && over.largest == 4);
  assert_fine(context, hark_lab_require_range(own, alone, -6, 3, "y"));
  assert_int_equal(own->criterion_count, 2);
  assert_true(hark_lab_passes(&own->criteria[0]));
  assert_false(hark_lab_passes(&own->criteria[1]));
  assert_string_equal(own->criteria[1].name, "y, largest");
  assert_fine(context, hark_lab_draw_columns(own, table, (hark_lab_axes){.title = "t", .x = "x", .y = "y"}, 0, drawn, 2));
  assert_int_equal(own->panels[0].curve_count, 2);
  assert_int_equal(hark_lab_point_count(&own->panels[0].curves[0]), 3);
  const double *const points = hark_lab_points(&own->panels[0].curves[0]);
  assert_true(points[2] == 2 && points[3] == -6);
  ((double *)hark_lab_row(table, 1))[1] = NAN;
  const hark_lab_range none = hark_lab_column_range(table, 1, HARK_LAB_ALONE);
  assert_true(isnan(none.least) && isnan(none.largest));
  hark_lab_destroy(&own);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(features_give_the_kernel),
                                     cmocka_unit_test(the_circle_has_the_spectrum_of_its_kernel),
                                     cmocka_unit_test(points_of_the_circle_lie_on_it),
                                     cmocka_unit_test(regressions_find_what_is_there),
                                     cmocka_unit_test(kernel_ridge_of_a_head_is_the_formula),
                                     cmocka_unit_test(columns_are_ranges_and_curves)};
  return cmocka_run_group_tests(tests, begin, end);
}
