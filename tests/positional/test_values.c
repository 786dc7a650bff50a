/* test_values.c - the values of positional kernels: which are learned, fixed and shared, their order, the ends of their range, and what
 * training starts with. The language is in test_expressions.c. */
#include <hark/positional.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "positional/published_positional.h"
#include "support/cmocka_all.h"
#include "support/kernel_expression.h"
#include "support/setups.h"
#include "support/text_files.h"

#define PI 3.14159265358979323846

static char text[4096];

static hark_positional *parse(hark_context *context, const char *expression) {
  hark_positional *kernel = NULL;
  const hark_status status = hark_positional_create(context, expression, &kernel);
  if (status != HARK_OK) fail_msg("%s: %s", expression, hark_context_message(context));
  return kernel;
}

/* A fixed value is that of the text whatever the parameters are, and has no gradient; the others have theirs. */
static void fixed_values_stay(void **state) {
  (void)state;
  static const bool fixed[] = {false, true, true, true, false, false, true, false};
  static const double natural[] = {1, 12, 2, 2, 4, 5, 0.5, 3};
  hark_context *context = test_reference_open();
  hark_positional *kernel = parse(context, "decay(sigma2=1,l=12!)+bank[2](2*alibi(m=[4,5]))+0.5*constant(3)");
  double parameters[8], values[8], gradient[8];
  const double distances[] = {0, 3}, weights[] = {1, -2};
  const hark_positional_start start = {.struct_size = sizeof start};
  assert_int_equal(hark_positional_parameter_count(kernel), 8);
  assert_fine(context, hark_positional_initial(context, kernel, &start, parameters));
  for (int p = 0; p < 8; p++) {
    assert_int_equal(hark_positional_is_learned(kernel, p), !fixed[p]);
    if (fixed[p]) parameters[p] = p == 1 ? NAN : 7;
  }
  assert_false(hark_positional_is_learned(kernel, -1) || hark_positional_is_learned(kernel, 8));
  assert_fine(context, hark_positional_natural(context, kernel, parameters, values));
  for (int p = 0; p < 8; p++) assert_true(fixed[p] ? values[p] == natural[p] : fabs(values[p] - natural[p]) < 1e-15 * natural[p]);
  assert_fine(context, hark_positional_gradient(context, kernel, parameters, distances, weights, 2, gradient));
  for (int p = 0; p < 8; p++) assert_true(fixed[p] ? gradient[p] == 0 : gradient[p] != 0);
  assert_true(hark_positional_is_definite(kernel, parameters, NULL, NULL));
  (void)hark_positional_print(kernel, parameters, text, sizeof text);
  assert_string_equal(text, "decay(sigma2=1,l=12!)+bank[2](2*alibi(m=[4,5]))+0.5*constant(sigma2=3)");
  hark_positional_destroy(context, &kernel);
  test_setup_close(context);
}

/* A value stays within its bounds whatever the parameter is. Beyond a bound only a gradient that leads back is kept, and that of a shared
 * value is judged as a sum. */
static void bounded_values_stay_inside(void **state) {
  (void)state;
  static const struct {
    const char *bounded, *plain;
    double beyond, bound; /* a natural value of parameter 1, and the nearest one within the bounds */
  } cases[] = {
      {"decay(l=12{2:40})", "decay(l=12)", 60, 40},
      {"decay(l=12{2:40})", "decay(l=12)", 1, 2},
      {"canonical_periodic(tau=5{4:6})", "canonical_periodic(tau=5)", 8, 6},
      {"canonical_periodic(tau=5{4:6})", "canonical_periodic(tau=5)", 3, 4},
      {"mlp[1](w=-1{-2:0},t=1,c=1)", "mlp[1](w=-1,t=1,c=1)", 1, 0},
      {"decay(l=12{2:40}@a)*rbf(l=@a)", "decay(l=12@a)*rbf(l=@a)", 60, 40},
  };
  enum { MOST = 8, DISTANCES = 3 };
  hark_context *context = test_reference_open();
  const hark_positional_start start = {.struct_size = sizeof start};
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    hark_positional *bounded = parse(context, cases[c].bounded), *plain = parse(context, cases[c].plain);
    const int64_t count = hark_positional_parameter_count(bounded), at = strncmp(cases[c].plain, "mlp", 3) == 0 ? 2 : 1;
    double inside[MOST], parameters[MOST], natural[MOST], values[MOST], gradient[MOST], expected[MOST];
    assert_fine(context, hark_positional_initial(context, bounded, &start, inside));
    assert_fine(context, hark_positional_natural(context, plain, inside, natural));
    natural[at] = cases[c].beyond;
    assert_fine(context, hark_positional_raw(context, plain, natural, parameters));
    assert_fine(context, hark_positional_natural(context, bounded, parameters, values));
    assert_true(values[at] == cases[c].bound);
    natural[at] = cases[c].bound;
    double at_bound[MOST];
    assert_fine(context, hark_positional_raw(context, plain, natural, at_bound));
    for (int sign = -1; sign <= 1; sign += 2) {
      const double distances[DISTANCES] = {1, 2, 5}, weights[DISTANCES] = {sign * 1.0, sign * 0.5, sign * 2.0};
      assert_fine(context, hark_positional_gradient(context, bounded, parameters, distances, weights, DISTANCES, gradient));
      assert_fine(context, hark_positional_gradient(context, plain, at_bound, distances, weights, DISTANCES, expected));
      const bool raw_is_above = parameters[at] > at_bound[at];
      assert_true((gradient[at] != 0) == ((expected[at] > 0) == raw_is_above)); /* a step goes against the gradient */
      if (gradient[at] != 0) assert_true((gradient[at] > 0) == (expected[at] > 0));
      for (int64_t p = 0; p < count; p++)
        if (p != at && strchr(cases[c].bounded, '@') == NULL) assert_true(fabs(gradient[p] - expected[p]) <= 1e-13 * fabs(expected[p]));
      assert_fine(context, hark_positional_gradient(context, bounded, inside, distances, weights, DISTANCES, gradient));
      assert_fine(context, hark_positional_gradient(context, plain, inside, distances, weights, DISTANCES, expected));
      assert_memory_equal(gradient, expected, (size_t)count * sizeof *gradient);
    }
    hark_positional_destroy(context, &bounded);
    hark_positional_destroy(context, &plain);
  }
  hark_positional *const kernel = parse(context, "bank[4](decay(l={3:20}))"); /* initial values, and a value in the text at a bound */
  double parameters[MOST], values[MOST];
  assert_fine(context, hark_positional_initial(context, kernel, &start, parameters));
  assert_fine(context, hark_positional_natural(context, kernel, parameters, values));
  assert_true(fabs(values[4] - 3) < 1e-14 && fabs(values[7] - 20) < 1e-13 && values[5] > 3.1 && values[6] <= 20);
  parameters[4] = log(100);
  (void)hark_positional_print(kernel, parameters, text, sizeof text);
  assert_non_null(strstr(text, "l=[20,"));
  assert_non_null(strstr(text, "]{3:20})"));
  hark_positional *freed = kernel;
  hark_positional_destroy(context, &freed);
  test_setup_close(context);
}

/* What has one letter is one value, that of the first place, with the sum of the gradients; the other places are not learned. */
static void letters_share_values(void **state) {
  (void)state;
  hark_context *context = test_reference_open();
  hark_positional *shared = parse(context, "bank[2](decay(sigma2=2,l=[12,30]@a)*rbf(sigma2=1,l=@a))+alibi(m=0.1!@m)*alibi(@m)");
  hark_positional *apart = parse(context, "bank[2](decay(sigma2=2,l=[12,30])*rbf(sigma2=1,l=[12,30]))+alibi(m=0.1)*alibi(m=0.1)");
  enum { COUNT = 10, DISTANCES = 5 };
  const double distances[DISTANCES] = {0, 1, 5, 20, 60}, weights[DISTANCES] = {1, -2, 0.5, 3, -1};
  double parameters[COUNT], others[COUNT], gradient[COUNT], expected[COUNT], values[DISTANCES], log_apart[DISTANCES];
  const hark_positional_start start = {.struct_size = sizeof start};
  assert_int_equal(hark_positional_parameter_count(shared), COUNT);
  assert_fine(context, hark_positional_initial(context, shared, &start, parameters));
  assert_fine(context, hark_positional_initial(context, apart, &start, others));
  assert_memory_equal(parameters, others, sizeof others);
  parameters[6] = parameters[7] = NAN; /* places of the second l */
  parameters[2] = others[2] = others[6] = log(9);
  assert_fine(context, hark_positional_log(context, shared, parameters, distances, DISTANCES, values));
  assert_fine(context, hark_positional_log(context, apart, others, distances, DISTANCES, log_apart));
  assert_memory_equal(values, log_apart, sizeof values);
  assert_fine(context, hark_positional_gradient(context, shared, parameters, distances, weights, DISTANCES, gradient));
  assert_fine(context, hark_positional_gradient(context, apart, others, distances, weights, DISTANCES, expected));
  for (int p = 0; p < COUNT; p++) {
    const bool owner = p == 2 || p == 3, learned = p < 6;
    assert_int_equal(hark_positional_is_learned(shared, p), learned);
    const double whole = !learned ? 0 : owner ? expected[p] + expected[p + 4] : expected[p];
    assert_true(fabs(gradient[p] - whole) <= 1e-15 * fabs(whole));
  }
  memcpy(others, gradient, sizeof others);
  assert_fine(context, hark_positional_natural_gradient(context, shared, parameters, gradient, others));
  for (int p = 0; p < COUNT; p++) assert_true(p < 6 ? others[p] != 0 : others[p] == 0);
  (void)hark_positional_print(shared, parameters, text, sizeof text);
  hark_positional *again_read = parse(context, text);
  assert_fine(context, hark_positional_initial(context, again_read, &start, others));
  for (int p = 0; p < COUNT; p++) assert_true(p == 6 || p == 7 || others[p] == parameters[p]);
  assert_true(others[6] == parameters[2] && others[7] == parameters[3]);
  hark_positional_destroy(context, &again_read);
  hark_positional_destroy(context, &shared);
  hark_positional_destroy(context, &apart);
  test_setup_close(context);
}

/* --- parameters
 * ------------------------------------------------------------------------------------------------------------------------ */

static void parameters_stand_in_order(void **state) {
  (void)state;
  hark_context *context = test_reference_open();
  hark_positional *kernel = parse(context, "window(4)*bank[3](decay*window(2)*bank[2](periodic))+t5");
  static const hark_positional_parameter expected[] = {{"decay", "sigma2", 1, 19, 0, 3},
                                                       {"decay", "l", 1, 19, 3, 3},
                                                       {"periodic", "alpha", 3, 43, 6, 6},
                                                       {"periodic", "tau", 3, 43, 12, 6},
                                                       {"t5", "factor", 4, 54, 18, 32}};
  assert_int_equal(hark_positional_named_count(kernel), 5);
  assert_int_equal(hark_positional_parameter_count(kernel), 50);
  for (int i = 0; i < 5; i++) {
    const hark_positional_parameter actual = hark_positional_named(kernel, i);
    assert_string_equal(actual.kernel, expected[i].kernel);
    assert_string_equal(actual.name, expected[i].name);
    assert_int_equal(actual.kernel_number, expected[i].kernel_number);
    assert_int_equal(actual.column, expected[i].column);
    assert_int_equal(actual.first, expected[i].first);
    assert_int_equal(actual.count, expected[i].count);
  }
  hark_positional_destroy(context, &kernel);
  kernel = parse(context, "window(4)");
  assert_int_equal(hark_positional_named_count(kernel), 0);
  assert_int_equal(hark_positional_parameter_count(kernel), 0);
  hark_positional_destroy(context, &kernel);
  test_setup_close(context);
}

/* Models hold the logarithms in f32, which rounds those of the ends of the range beyond them. */
static void ends_of_the_range_survive_f32(void **state) {
  (void)state;
  static const struct {
    const char *text;
    double value;
  } cases[] = {{"decay(l=1e-60)", 1e-60},
               {"decay(l=1e60)", 1e60},
               {"canonical_periodic(tau=1e60)", 1e60},
               {"mlp[1](w=1e30)", 1e30},
               {"mlp[1](w=-1e30)", -1e30}};
  hark_context *context = test_reference_open();
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const hark_positional_start start = {.struct_size = sizeof start, .length = 16};
    double raw[4], natural[4], gradient[4], ones[4] = {1, 1, 1, 1};
    hark_positional *kernel = parse(context, cases[i].text);
    const int64_t last = hark_positional_parameter_count(kernel) - 1;
    assert_fine(context, hark_positional_initial(context, kernel, &start, raw));
    for (int64_t p = 0; p <= last; p++) raw[p] = (double)(float)raw[p];
    assert_fine(context, hark_positional_natural(context, kernel, raw, natural));
    assert_true(natural[last] == cases[i].value);
    assert_fine(context, hark_positional_natural_gradient(context, kernel, raw, ones, gradient));
    const char *reason = "";
    assert_true(hark_positional_is_definite(kernel, raw, NULL, &reason) || strcmp(reason, "no") == 0); /* not: outside its range */
    raw[last] += fmax(1e-3, fabs(raw[last]) / 1e4) * (raw[last] > 0 ? 1 : -1); /* what is farther beyond the range is refused */
    assert_int_equal(hark_positional_natural(context, kernel, raw, natural), HARK_NOT_FINITE);
    hark_positional_destroy(context, &kernel);
  }
  test_setup_close(context);
}

static void initial_values_are_those_of_the_definition(void **state) {
  (void)state;
  hark_context *context = test_reference_open();
  const hark_positional_start start = {.struct_size = sizeof start, .length = 256};
  double raw[32], natural[32];
  hark_positional *kernel = parse(context, "bank[8](decay*periodic)");
  assert_fine(context, hark_positional_initial(context, kernel, &start, raw));
  assert_fine(context, hark_positional_natural(context, kernel, raw, natural));
  for (int k = 0; k < 8; k++) {
    assert_true(natural[k] == 1);
    assert_true(fabs(natural[8 + k] - 2 * pow(256, k / 7.0)) < 1e-10); /* 2 to 2 L */
    assert_true(fabs(natural[16 + k] - 1) < 0.11);
    for (int j = 0; j < k; j++) assert_true(fabs(natural[16 + k] - natural[16 + j]) > 1e-3);
    assert_true(fabs(PI * natural[24 + k] - 3 * pow(256 / 3.0, k / 7.0)) < 1e-10); /* 3 to L */
  }
  hark_positional_destroy(context, &kernel);
  kernel = parse(context, "alibi");
  for (size_t c = 0; c < sizeof published_alibi / sizeof *published_alibi; c++) /* BLOOM's in f32 */
    for (int h = 0; h < published_alibi[c].heads; h++) {
      const hark_positional_start head = {.struct_size = sizeof head, .heads = published_alibi[c].heads, .head = h};
      assert_fine(context, hark_positional_initial(context, kernel, &head, raw));
      if (!(fabs(exp(raw[0]) / published_alibi[c].slopes[h] - 1) < 1e-6))
        fail_msg("slope %d of %d is %.9g, expected %.9g", h, published_alibi[c].heads, exp(raw[0]), published_alibi[c].slopes[h]);
    }
  hark_positional_destroy(context, &kernel);
  kernel = parse(context, "bank[3](alibi)"); /* copies of a head are slots of their own: twelve of them */
  for (int h = 0; h < 4; h++) {
    const hark_positional_start head = {.struct_size = sizeof head, .heads = 4, .head = h};
    assert_fine(context, hark_positional_initial(context, kernel, &head, raw));
    for (int copy = 0; copy < 3; copy++) {
      const int slot = 4 * copy + h;
      assert_true(fabs(raw[copy] + log(2) * (slot < 8 ? slot + 1 : slot - 7.5)) < 1e-14);
    }
  }
  hark_positional_destroy(context, &kernel);
  kernel = parse(context, "bank[2](decay(l=[30,8]))");
  for (int h = 0; h < 3; h++) {
    const hark_positional_start head = {.struct_size = sizeof head, .heads = 3, .head = h, .length = 100};
    assert_fine(context, hark_positional_initial(context, kernel, &head, raw));
    assert_true(raw[2] == log(30) && raw[3] == log(8));
  }
  const hark_positional_start none = {.struct_size = sizeof none, .heads = 2, .head = 2}, wrong = {.struct_size = 4};
  assert_failure(context, hark_positional_initial(context, kernel, &none, raw), HARK_INVALID_ARGUMENT, "head 2 of 2");
  assert_failure(context, hark_positional_initial(context, kernel, &wrong, raw), HARK_INVALID_ARGUMENT, "struct_size");
  hark_positional_destroy(context, &kernel);
  test_setup_close(context);
}

/* The bucket of every distance is that of a causal T5. */
static void buckets_are_those_of_t5(void **state) {
  (void)state;
  hark_context *context = test_reference_open();
  hark_positional *kernel =
      parse(context, "t5(factor=[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31,32])");
  const hark_positional_start start = {.struct_size = sizeof start};
  double raw[32];
  assert_fine(context, hark_positional_initial(context, kernel, &start, raw));
  for (size_t d = 0; d < sizeof published_t5 / sizeof *published_t5; d++) {
    const double distance = (double)d;
    double value = 0;
    assert_fine(context, hark_positional_log(context, kernel, raw, &distance, 1, &value));
    assert_int_equal(lround(exp(value)) - 1, published_t5[d]);
  }
  hark_positional_destroy(context, &kernel);
  test_setup_close(context);
}

/* Every context from 1 token up starts with values that are in range, and no two components equal. */
static void initial_values_differ_for_every_length(void **state) {
  (void)state;
  hark_context *context = test_reference_open();
  hark_positional *kernel = parse(context, "bank[5](decay*periodic+alibi+kerple_log+kerple_power+canonical_periodic)");
  const int64_t count = hark_positional_parameter_count(kernel);
  for (int64_t length = 1; length < 2000000; length *= 3) {
    const hark_positional_start start = {.struct_size = sizeof start, .length = length};
    double raw[64], natural[64];
    assert_in_range(count, 1, 64);
    assert_fine(context, hark_positional_initial(context, kernel, &start, raw));
    assert_fine(context, hark_positional_natural(context, kernel, raw, natural));
    for (int64_t p = 5; p < count; p++) assert_true(p % 5 == 0 || natural[p] != natural[p - 1]);
  }
  hark_positional_destroy(context, &kernel);
  test_setup_close(context);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(fixed_values_stay),
      cmocka_unit_test(bounded_values_stay_inside),
      cmocka_unit_test(letters_share_values),
      cmocka_unit_test(parameters_stand_in_order),
      cmocka_unit_test(initial_values_are_those_of_the_definition),
      cmocka_unit_test(ends_of_the_range_survive_f32),
      cmocka_unit_test(buckets_are_those_of_t5),
      cmocka_unit_test(initial_values_differ_for_every_length),
  };
  return cmocka_run_group_tests_name("values", tests, NULL, NULL);
}
