/* test_kernels.c - what positional kernels are: values against their definitions in long double, gradients against differences, Gram
 * matrices, extremes of parameters and distances, sums that are zero. A failure prints the expression. */
#include <hark/positional.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "positional/leaf.h"
#include "support/cmocka_all.h"
#include "support/eigenvalues.h"
#include "support/kernel_expression.h"
#include "support/positional_subject.h"
#include "support/setups.h"
#include "support/text_files.h"

#define DISTANCES 48
#define SMALLEST 1e-4900L /* values of long double below are not exact */
#define RANDOM_EXPRESSIONS 150

static double log_at(const test_subject *subject, double distance) {
  double value = NAN;
  assert_fine(subject->context, hark_positional_log(subject->context, subject->kernel, subject->parameters, &distance, 1, &value));
  return value;
}

static test_kernel expression; /* large */

/* log G against the definition at whole distances and between; the definition keeps 1e-18 of G, a sum's terms lose nothing else. */
static void check_values(const test_kernel *kernel) {
  test_subject subject;
  const bool whole = strstr(kernel->text, "t5") != NULL || strstr(kernel->text, "table") != NULL; /* defined at whole distances */
  test_subject_open(&subject, kernel->text);
  assert_int_equal(subject.count, kernel->value_count);
  for (int i = 0; i < 2 * DISTANCES; i++) {
    const double between = i % 2 == 0 ? i / 2 : i * i / 40.0, distance = whole ? floor(between) : between;
    const long double value = test_kernel_value(kernel, distance), expected = logl(value);
    const double actual = log_at(&subject, distance);
    if (value < SMALLEST && actual < -11000) continue; /* the definition has run out of exponents; or G is 0 */
    if (expected == -INFINITY ? actual != -INFINITY : !(fabsl(actual - expected) <= 1e-12L * (1 + fabsl(expected))))
      fail_msg("%s: log G(%.17g) is %.17g, expected %.17Lg", kernel->text, distance, actual, expected);
  }
  test_subject_close(&subject);
}

static void values_are_those_of_the_definitions(void **state) {
  (void)state;
  for (int leaf = 0; leaf < hark_positional_kernel_count(); leaf++) {
    for (int bank = 0; bank <= 3; bank++) {
      test_kernel_single(&expression, leaf, bank, (uint64_t)(10 * leaf + bank));
      check_values(&expression);
    }
  }
}

static void values_of_compositions_too(void **state) {
  (void)state;
  for (int i = 0; i < RANDOM_EXPRESSIONS; i++) {
    test_kernel_random(&expression, (uint64_t)i, 1 + i % 3, false);
    check_values(&expression);
  }
}

static void check_gradient(const char *text) {
  double distances[DISTANCES];
  for (int i = 0; i < DISTANCES; i++) distances[i] = i;
  test_subject_check_gradient(text, distances, DISTANCES);
}

static void gradients_are_those_of_differences(void **state) {
  (void)state;
  for (int leaf = 0; leaf < hark_positional_kernel_count(); leaf++) {
    for (int bank = 0; bank <= 3; bank += 3) {
      test_kernel_single(&expression, leaf, bank, (uint64_t)(100 + 10 * leaf + bank));
      check_gradient(expression.text);
    }
  }
  check_gradient("bank[8](decay*periodic)");
  check_gradient("bank[2](decay(l=[5,20]@a)*rbf(l=@a))+lagged_periodic(alpha=2@b,mu=@b)*0.5*decay(l=12!)");
  check_gradient("bank[2](periodic*bank[3](rbf+constant))+matern52*window(9)+t5");
}

static void gradients_of_compositions_too(void **state) {
  (void)state;
  for (int i = 0; i < RANDOM_EXPRESSIONS; i++) {
    test_kernel_random(&expression, (uint64_t)(1000 + i), 1 + i % 3, false);
    if (expression.value_count <= 200) check_gradient(expression.text);
  }
}

/* Natural gradients: for a logarithm r, d / d e^r = e^-r d / d r. */
static void gradients_by_natural_values(void **state) {
  (void)state;
  test_subject subject;
  test_subject_open(&subject, "decay(sigma2=2,l=12)+canonical_periodic(alpha=0.5,tau=3)");
  const double raw[] = {1, 2, 3, 4};
  double natural[4], gradient[4], back[4];
  assert_fine(subject.context, hark_positional_natural(subject.context, subject.kernel, subject.parameters, natural));
  assert_fine(subject.context, hark_positional_natural_gradient(subject.context, subject.kernel, subject.parameters, raw, gradient));
  const double expected[] = {2, 12, 0.5, 3};
  for (int i = 0; i < 4; i++) assert_true(fabs(natural[i] - expected[i]) < 1e-14 * expected[i]);
  for (int i = 0; i < 3; i++) assert_true(fabs(gradient[i] - raw[i] / expected[i]) < 1e-14);
  /* 1 / tau = pi/2 sigmoid(r): d tau / d r = -tau (1 - sigmoid(r)), sigmoid(r) = 2 / (3 pi) */
  assert_true(fabs(gradient[3] - 4 / (-3 * (1 - 2 / (3 * 3.14159265358979323846)))) < 1e-13);
  assert_fine(subject.context, hark_positional_raw(subject.context, subject.kernel, natural, back));
  for (int i = 0; i < 4; i++) assert_true(fabs(back[i] - subject.parameters[i]) < 1e-14);
  test_subject_close(&subject);
}

/* Those of a weight that may be negative are by its value, at every value. */
static void gradients_by_signed_values(void **state) {
  (void)state;
  test_subject subject;
  test_subject_open(&subject, "decay(l=9)*mlp[3](c=0.5,t=[0.5,4.5,20.5],w=[-0.75,0,2.5])");
  enum { COUNT = 9, WEIGHTS = 6 };
  const double natural[] = {-0.75, 0, 2.5}, distances[] = {0, 1, 7, 30, 100}, weights[] = {1, -2, 0.5, 3, -1};
  double raw[COUNT], values[COUNT], gradient[COUNT], by_value[COUNT], back[COUNT];
  assert_int_equal(subject.count, COUNT);
  for (int k = 0; k < 3; k++) assert_true(subject.parameters[WEIGHTS + k] == natural[k]);
  assert_fine(subject.context, hark_positional_natural(subject.context, subject.kernel, subject.parameters, values));
  for (int k = 0; k < 3; k++) assert_true(values[WEIGHTS + k] == natural[k]);
  assert_fine(subject.context, hark_positional_raw(subject.context, subject.kernel, values, back));
  for (int p = 0; p < COUNT; p++) assert_true(fabs(back[p] - subject.parameters[p]) < 1e-14);
  assert_fine(subject.context, hark_positional_gradient(subject.context, subject.kernel, subject.parameters, distances, weights, 5, raw));
  assert_fine(subject.context, hark_positional_natural_gradient(subject.context, subject.kernel, subject.parameters, raw, gradient));
  for (int k = 0; k < 3; k++) {
    double expected = 0; /* the sum over distances beyond the knot of weight log((1 + d / 2) / (1 + t / 2)) */
    const double knot = values[WEIGHTS - 3 + k];
    for (int i = 0; i < 5; i++) expected += distances[i] > knot ? weights[i] * log((1 + distances[i] / 2) / (1 + knot / 2)) : 0;
    assert_true(fabs(gradient[WEIGHTS + k] - expected) < 1e-13 && gradient[WEIGHTS + k] == raw[WEIGHTS + k]);
  }
  memcpy(by_value, raw, sizeof raw);
  assert_fine(subject.context, hark_positional_natural_gradient(subject.context, subject.kernel, subject.parameters, by_value, by_value));
  assert_memory_equal(by_value, gradient, sizeof gradient);
  test_subject_close(&subject);
}

/* --- Gram matrices
 * --------------------------------------------------------------------------------------------------------------------- */

/* The smallest eigenvalue of G(|i - j|) / G(0). */
static double smallest(const test_subject *subject) {
  static double matrix[DISTANCES * DISTANCES];
  double distances[DISTANCES], values[DISTANCES];
  for (int i = 0; i < DISTANCES; i++) distances[i] = i;
  assert_fine(subject->context, hark_positional_log(subject->context, subject->kernel, subject->parameters, distances, DISTANCES, values));
  for (int i = 0; i < DISTANCES * DISTANCES; i++) matrix[i] = exp(values[abs(i / DISTANCES - i % DISTANCES)] - values[0]);
  return test_smallest_eigenvalue(DISTANCES, matrix);
}

static void definite_ones_have_no_negative_eigenvalue(void **state) {
  (void)state;
  int tried = 0;
  for (int i = 0; i < RANDOM_EXPRESSIONS; i++) {
    test_subject subject;
    if (i < hark_positional_kernel_count())
      test_kernel_single(&expression, i, 2, (uint64_t)i);
    else
      test_kernel_random(&expression, (uint64_t)(2000 + i), 1 + i % 3, true);
    test_subject_open(&subject, expression.text);
    if (hark_positional_is_definite(subject.kernel, subject.parameters, NULL, NULL)) {
      const double value = smallest(&subject);
      if (value < -1e-10) fail_msg("%s: eigenvalue %g", expression.text, value);
      tried++;
    }
    test_subject_close(&subject);
  }
  assert_true(tried >= RANDOM_EXPRESSIONS - 7); /* all but bump, lagged_periodic, t5, table, mlp, window and perhaps kerple_power */
}

static void others_have_one(void **state) {
  (void)state;
  static const struct {
    const char *text;
    int column;
  } cases[] = {{"window(1)", 1},
               {"table[4](factor=[1,1,0.01,0.01])", 1},
               {"mlp[1](c=1,t=0.5,w=0.2)", 1},
               {"decay+mlp[2](c=0.1,t=[0.1,9],w=[0.5,-3])", 7},
               {"2*bump(mu=4,l=2)", 3},
               {"lagged_periodic(alpha=1,tau=3,mu=2)", 1},
               {"decay*window(3)+constant", 7},
               {"kerple_power(r1=0.001,r2=3)", 1},
               {"constant+bank[2](kerple_power(r1=0.01,r2=[1.9,4]))", 18},
               {"t5(factor=[1,1,0.01,0.01,0.01,0.01,0.01,0.01,0.01,0.01,0.01,0.01,0.01,0.01,0.01,0.01,0.01,0.01,0.01,0.01,0.01,0.01,0.01,"
                "0.01,0.01,0.01,0.01,0.01,0.01,0.01,0.01,0.01])",
                1}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    test_subject subject;
    int column = 0;
    const char *reason = NULL;
    test_subject_open(&subject, cases[i].text);
    assert_false(hark_positional_is_definite(subject.kernel, subject.parameters, &column, &reason));
    assert_int_equal(column, cases[i].column);
    assert_non_null(reason);
    const double value = smallest(&subject);
    if (value > -1e-3) fail_msg("%s: the smallest eigenvalue is %g", cases[i].text, value);
    test_subject_close(&subject);
  }
}

static void definiteness_depends_on_values(void **state) {
  (void)state;
  test_subject subject;
  test_subject_open(&subject, "kerple_power(r1=0.01,r2=2)*window(0)");
  assert_true(hark_positional_is_definite(subject.kernel, subject.parameters, NULL, NULL));
  subject.parameters[1] = log(2.000001);
  assert_false(hark_positional_is_definite(subject.kernel, subject.parameters, NULL, NULL));
  subject.parameters[1] = NAN;
  assert_false(hark_positional_is_definite(subject.kernel, subject.parameters, NULL, NULL));
  test_subject_close(&subject);
}

/* --- extremes
 * -------------------------------------------------------------------------------------------------------------------------- */

static void far_distances_are_exact(void **state) {
  (void)state;
  const double far = 1048576; /* 2^20 */
  static const char *const texts[] = {
      "decay(sigma2=3,l=50)",
      "periodic(alpha=1.3,tau=5.1)",
      "canonical_periodic(alpha=1.3,tau=5.1)",
      "rbf(sigma2=3,l=1000)",
      "rational_quadratic(sigma2=3,alpha=0.7,l=11)",
      "matern32(sigma2=3,l=70)",
      "matern52(sigma2=3,l=70)",
      "alibi(m=0.01)",
      "kerple_log(r1=2,r2=0.3)",
      "kerple_power(r1=0.2,r2=0.9)",
      "constant(sigma2=0.7)",
      "t5(factor=[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31,0.3])",
      "bump(sigma2=3,mu=1048000,l=200)",
      "lagged_periodic(alpha=1.3,tau=5.1,mu=100)",
      "spectral(a=0.8,l=1e6,tau=5.1)",
      "table[3](factor=[1,2,0.3])",
      "mlp[3](c=0.25,t=[1e-60,20,1e7],w=[-0.5,0.75,3])",
      "sandwich(a=3,base=1e6)",
      "xpos(sigma2=3,gamma=0.4,base=200000)",
      "window(1048576)",
      "window(1048577)*constant(sigma2=2)+window(1048575)",
      "bank[2](decay(sigma2=[3,2],l=[50000,90000])*periodic(alpha=1.3,tau=[5.1,7.7]))+kerple_log(r1=2,r2=0.3)"};
  const double x32 = sqrt(3) * far / 70, x52 = sqrt(5) * far / 70, sine = (double)sinl(1048576 / 5.1L);
  const double other = (double)sinl(1048576 / 7.7L), late = (double)sinl((1048576 - 100) / 5.1L);
  double pairs = 0, fading = 0;
  for (int i = 0; i < 64; i++) pairs += (double)cosl(1048576 * powl(1e6L, -(i + 1) / 64.0L)) / 64;
  for (int i = 0; i < 32; i++) fading += pow((i + 12.8) / 44.8, far / 200000) / 32;
  const double expected[] = {
      log(3) - far / 50,
      -2 * 1.69 * sine * sine,
      -2 * 1.69 * sine * sine,
      log(3) - far * far / 2e6,
      log(3) - 0.7 * log(1 + far * far / (1.4 * 121)),
      log(3) + log(1 + x32) - x32,
      log(3) + log(1 + x52 + x52 * x52 / 3) - x52,
      -0.01 * far,
      -2 * log(1 + 0.3 * far),
      -0.2 * pow(far, 0.9),
      log(0.7),
      log(0.3),
      log(3) - 576 * 576 / 8e4,
      -2 * 1.69 * late * late,
      0.8 * exp(-far * far / 2e12) * (double)cosl(1048576 / 5.1L),
      log(0.3),
      0.25 * log(1 + 0.25 * far) - 0.75 * log(6),
      3 * (pairs - 1),
      log(3 * fading),
      0,
      log(2),
      log(3 * exp(-far / 50000 - 3.38 * sine * sine) + 2 * exp(-far / 90000 - 3.38 * other * other) + pow(1 + 0.3 * far, -2))};
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
    test_subject subject;
    test_subject_open(&subject, texts[i]);
    if (!(fabs(log_at(&subject, far) - expected[i]) <= 1e-6))
      fail_msg("%s: %.12g, expected %.12g", texts[i], log_at(&subject, far), expected[i]);
    test_subject_close(&subject);
  }
}

/* The trained number of an end of the range of parameter p of a kernel. */
static double limit_of(int leaf, int p, bool low) {
  int count = 0;
  const hark_transform transform = hark_leaves(&count)[leaf]->parameters[p].transform;
  if (transform == HARK_TRANSFORM_SIGNED) return low ? -HARK_POSITIONAL_LARGEST_SIGNED : HARK_POSITIONAL_LARGEST_SIGNED;
  if (transform == HARK_TRANSFORM_CANONICAL_PERIOD) return low ? 40 : -138;
  return low ? -138.155 : 138.155; /* log 1e60 = 138.1551 */
}

/* Every kernel with all its parameters at their limits: logarithms are numbers or -infinity, gradients are finite. */
static void limits_give_numbers(void **state) {
  (void)state;
  const double distances[] = {0, 1e-300, 0.5, 1, 15, 16, 127, 128, 1e6, HARK_POSITIONAL_LARGEST_DISTANCE};
  enum { COUNT = sizeof distances / sizeof distances[0] };
  const double weights[COUNT] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
  for (int leaf = 0; leaf < hark_positional_kernel_count(); leaf++) {
    for (int corner = 0; corner < 8; corner++) {
      test_subject subject;
      double gradient[3 * HARK_LEAF_SIZE], values[COUNT];
      char text[64];
      const hark_positional_kernel what = hark_positional_kernel_at(leaf);
      snprintf(text, sizeof text, "%s%s", what.name, what.constant != NULL ? "(7)" : test_kernel_is_sized(leaf) ? "[20]" : "");
      test_subject_open(&subject, text);
      assert_in_range(subject.count, 0, sizeof gradient / sizeof *gradient);
      for (int q = 0; q < hark_positional_named_count(subject.kernel); q++) {
        const hark_positional_parameter named = hark_positional_named(subject.kernel, q);
        for (int64_t p = named.first; p < named.first + named.count; p++)
          subject.parameters[p] = limit_of(leaf, q, (corner >> (subject.count == named.count ? p : q) % 3 & 1) != 0);
      }
      assert_fine(subject.context, hark_positional_log(subject.context, subject.kernel, subject.parameters, distances, COUNT, values));
      for (int i = 0; i < COUNT; i++)
        if (isnan(values[i]) || values[i] == INFINITY) fail_msg("%s, corner %d: log G(%g) is %g", text, corner, distances[i], values[i]);
      assert_fine(subject.context,
                  hark_positional_gradient(subject.context, subject.kernel, subject.parameters, distances, weights, COUNT, gradient));
      for (int64_t p = 0; p < subject.count; p++)
        if (!isfinite(gradient[p])) fail_msg("%s, corner %d: derivative %d is %g", text, corner, (int)p, gradient[p]);
      test_subject_close(&subject);
    }
  }
}

/* A sum whose terms are all zero at a distance is zero there, with no gradient; a term that is zero takes none. */
static void sums_of_zeros_are_zero(void **state) {
  (void)state;
  test_subject subject;
  double gradient[2];
  const double distances[] = {2, 3, 5, 6, 100}, weights[] = {1, 1, 1, INFINITY, NAN};
  test_subject_open(&subject, "window(2)*constant(sigma2=3)+window(5)*constant(sigma2=5)");
  assert_true(fabs(log_at(&subject, 2) - log(8)) < 1e-15);
  assert_true(fabs(log_at(&subject, 5) - log(5)) < 1e-15);
  assert_true(log_at(&subject, 6) == -INFINITY && log_at(&subject, 1e15) == -INFINITY);
  assert_fine(subject.context,
              hark_positional_gradient(subject.context, subject.kernel, subject.parameters, distances, weights, 5, gradient));
  assert_true(fabs(gradient[0] - 3.0 / 8) < 1e-15);
  assert_true(fabs(gradient[1] - (5.0 / 8 + 1 + 1)) < 1e-15);
  test_subject_close(&subject);
  test_subject_open(&subject, "bank[3](window(4)*decay)");
  double more[6];
  assert_fine(subject.context,
              hark_positional_gradient(subject.context, subject.kernel, subject.parameters, distances + 3, weights + 3, 2, more));
  for (int i = 0; i < 6; i++) assert_true(more[i] == 0);
  test_subject_close(&subject);
}

/* On whole distances the period with the smallest rate gives the same kernel. */
static void periods_have_a_canonical_form(void **state) {
  (void)state;
  for (int i = 1; i < 60; i++) {
    const double tau = 0.037 * i * i, canonical = hark_positional_canonical_tau(tau);
    assert_true(canonical >= 2 / 3.14159265358979323846 * (1 - 1e-15));
    for (int d = 0; d < 100; d++) {
      const double sine = sin(d / tau), other = sin(d / canonical);
      if (fabs(sine * sine - other * other) > 1e-10) fail_msg("tau %g and its canonical form %g differ at distance %d", tau, canonical, d);
    }
    if (tau >= 2 / 3.14159) assert_true(fabs(canonical - tau) < 1e-12 * tau);
  }
}

/* The terms of the outermost sum add up to it; a product is one. */
static void terms_add_up(void **state) {
  (void)state;
  static const struct {
    const char *text;
    int64_t terms;
  } sums[] = {{"decay", 1}, {"decay*(rbf+constant)", 1}, {"bank[3](decay*periodic)", 3}, {"alibi+bank[2](decay+rbf)+t5", 6}};
  hark_context *context = test_reference_open();
  for (size_t i = 0; i < sizeof sums / sizeof *sums; i++) {
    const double distances[] = {0, 1, 7, 100};
    double parameters[64], whole[4], term[4], sum[4] = {0};
    hark_positional *kernel = NULL;
    const hark_positional_start start = {.struct_size = sizeof start, .length = 64};
    assert_fine(context, hark_positional_create(context, sums[i].text, &kernel));
    assert_true(hark_positional_parameter_count(kernel) <= 64);
    assert_fine(context, hark_positional_initial(context, kernel, &start, parameters));
    assert_fine(context, hark_positional_log(context, kernel, parameters, distances, 4, whole));
    assert_int_equal(hark_positional_term_count(kernel), sums[i].terms);
    for (int64_t t = 0; t < sums[i].terms; t++) {
      assert_fine(context, hark_positional_term_log(context, kernel, parameters, t, distances, 4, term));
      for (int k = 0; k < 4; k++) sum[k] += exp(term[k]);
    }
    for (int k = 0; k < 4; k++) assert_true(fabs(log(sum[k]) - whole[k]) < 1e-13 * fmax(1, fabs(whole[k])));
    assert_int_equal(hark_positional_term_log(context, kernel, parameters, sums[i].terms, distances, 4, term), HARK_INVALID_ARGUMENT);
    assert_int_equal(hark_positional_term_log(context, kernel, parameters, -1, distances, 4, term), HARK_INVALID_ARGUMENT);
    hark_positional_destroy(context, &kernel);
  }
  test_setup_close(context);
}

static void bad_arguments_are_refused(void **state) {
  (void)state;
  test_subject subject;
  double distance = -1, value = 7, weight = 1, gradient[2];
  test_subject_open(&subject, "constant+decay");
  assert_failure(subject.context, hark_positional_log(subject.context, subject.kernel, subject.parameters, &distance, 1, &value),
                 HARK_INVALID_ARGUMENT, "distance 0 is -1");
  distance = NAN;
  assert_failure(subject.context,
                 hark_positional_gradient(subject.context, subject.kernel, subject.parameters, &distance, &weight, 1, gradient),
                 HARK_INVALID_ARGUMENT, "distance 0 is ");
  distance = 1;
  subject.parameters[2] = NAN;
  assert_failure(subject.context, hark_positional_log(subject.context, subject.kernel, subject.parameters, &distance, 1, &value),
                 HARK_NOT_FINITE, "column 10: value 0 of l of decay is nan");
  subject.parameters[2] = 800;
  assert_failure(subject.context, hark_positional_log(subject.context, subject.kernel, subject.parameters, &distance, 1, &value),
                 HARK_NOT_FINITE, "value 0 of l of decay is inf, expected a positive number");
  assert_true(value == 7);
  test_subject_close(&subject);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(values_are_those_of_the_definitions),
      cmocka_unit_test(values_of_compositions_too),
      cmocka_unit_test(gradients_are_those_of_differences),
      cmocka_unit_test(gradients_of_compositions_too),
      cmocka_unit_test(gradients_by_natural_values),
      cmocka_unit_test(gradients_by_signed_values),
      cmocka_unit_test(definite_ones_have_no_negative_eigenvalue),
      cmocka_unit_test(others_have_one),
      cmocka_unit_test(definiteness_depends_on_values),
      cmocka_unit_test(far_distances_are_exact),
      cmocka_unit_test(limits_give_numbers),
      cmocka_unit_test(sums_of_zeros_are_zero),
      cmocka_unit_test(periods_have_a_canonical_form),
      cmocka_unit_test(terms_add_up),
      cmocka_unit_test(bad_arguments_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
