/* test_directions.c - kernels with a direction: left(...) for keys up to the query, right(...) for keys after it. Values against the
 * definition in long double, gradients against differences, identities, the language, T5's buckets of both directions. */
#include <hark/positional.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "positional/published_positional.h"
#include "support/cmocka_all.h"
#include "support/kernel_expression.h"
#include "support/positional_subject.h"
#include "support/setups.h"
#include "support/text_files.h"

#define FARTHEST 40
#define COUNT (2 * FARTHEST + 1)
#define RANDOM_EXPRESSIONS 200
#define SMALLEST 1e-4900L /* values of long double below are not exact */

static double distances[COUNT]; /* -FARTHEST .. FARTHEST */

/* values <- log G at -FARTHEST .. FARTHEST of an expression that may have no direction: then G of the distance without its sign. */
static void evaluate(const char *text, double values[COUNT]) {
  test_subject subject;
  double given[COUNT];
  test_subject_open(&subject, text);
  const bool directed = hark_positional_is_directed(subject.kernel, NULL);
  for (int i = 0; i < COUNT; i++) given[i] = directed ? distances[i] : fabs(distances[i]);
  assert_fine(subject.context, hark_positional_log(subject.context, subject.kernel, subject.parameters, given, COUNT, values));
  test_subject_close(&subject);
}

static test_kernel expression; /* large */

static void values_are_those_of_the_definition(void **state) {
  (void)state;
  int directed = 0;
  for (int e = 0; e < RANDOM_EXPRESSIONS; e++) {
    test_subject subject;
    double values[COUNT];
    test_kernel_directed(&expression, (uint64_t)(7000 + e), e % 4);
    test_subject_open(&subject, expression.text);
    assert_int_equal(subject.count, expression.value_count);
    if (hark_positional_is_directed(subject.kernel, NULL)) {
      assert_fine(subject.context, hark_positional_log(subject.context, subject.kernel, subject.parameters, distances, COUNT, values));
      directed++;
    }
    for (int i = 0; i < COUNT && hark_positional_is_directed(subject.kernel, NULL); i++) {
      const long double value = test_kernel_value(&expression, distances[i]), expected = logl(value);
      if (value < SMALLEST && values[i] < -11000) continue;
      if (expected == -INFINITY ? values[i] != -INFINITY : !(fabsl(values[i] - expected) <= 1e-12L * (1 + fabsl(expected))))
        fail_msg("%s: log G(%g) is %.17g, expected %.17Lg", expression.text, distances[i], values[i], expected);
    }
    test_subject_close(&subject);
  }
  assert_true(directed > RANDOM_EXPRESSIONS / 3);
}

static void check_gradient(const char *text) { test_subject_check_gradient(text, distances, COUNT); }

static void gradients_are_those_of_differences(void **state) {
  (void)state;
  check_gradient("left(decay)*right(rbf)");
  check_gradient("left(bank[3](decay*periodic))+right(t5[16])+0.1*rbf");
  check_gradient("left(decay(l=9@a))*right(decay(l=@a,sigma2=0.3))");
  check_gradient("bank[2](left(decay)+right(window(5)*rbf)+0.5)*matern32");
  for (int e = 0; e < RANDOM_EXPRESSIONS; e++) {
    test_kernel_directed(&expression, (uint64_t)(8000 + e), e % 4);
    test_subject subject;
    test_subject_open(&subject, expression.text);
    const bool directed = hark_positional_is_directed(subject.kernel, NULL);
    test_subject_close(&subject);
    if (directed && expression.value_count <= 100) check_gradient(expression.text);
  }
}

/* Each pair of a query and a key has one direction, that of the query itself is left. So both directions of one expression are that
 * expression; and a direction that is not given is a factor of 1 in a product, a term of 0 in a sum, and 1 alone. */
static void identities_hold_to_the_bit(void **state) {
  (void)state;
  static const struct {
    const char *text, *left, *right; /* the expressions that hold on the two sides */
  } cases[] = {
      {"left(decay)*right(decay)", "decay", "decay"},
      {"left(decay)+right(decay)", "decay", "decay"},
      {"left(decay(l=3))*right(rbf(l=4))", "decay(l=3)", "rbf(l=4)"},
      {"left(decay(l=3))+right(rbf(l=4))", "decay(l=3)", "rbf(l=4)"},
      {"left(decay(l=3))", "decay(l=3)", "1"},
      {"right(decay(l=3))", "1", "decay(l=3)"},
      {"left(decay(l=3)+rbf(l=2))*alibi(m=0.1)", "(decay(l=3)+rbf(l=2))*alibi(m=0.1)", "alibi(m=0.1)"},
      {"left(decay(l=3))+0.1", "decay(l=3)+0.1", "0.1"},
      {"(left(decay(l=3))+right(0.5))*rbf(l=9)", "decay(l=3)*rbf(l=9)", "0.5*rbf(l=9)"},
      {"left(decay(l=3))*left(rbf(l=2))+alibi(m=0.5)", "decay(l=3)*rbf(l=2)+alibi(m=0.5)", "alibi(m=0.5)"},
      {"bank[3](left(decay(l=[3,4,5])))*rbf(l=9)", "bank[3](decay(l=[3,4,5]))*rbf(l=9)", "rbf(l=9)"},
      {"bank[2](left(decay(l=[3,4]))*rbf(l=[8,9]))", "bank[2](decay(l=[3,4])*rbf(l=[8,9]))", "bank[2](rbf(l=[8,9]))"},
      {"left(bank[2](decay(l=[3,4])))+right(window(5))", "bank[2](decay(l=[3,4]))", "window(5)"},
      {"right(window(0))", "1", "window(0)"},
  };
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    double values[COUNT], left[COUNT], right[COUNT];
    evaluate(cases[c].text, values);
    evaluate(cases[c].left, left);
    evaluate(cases[c].right, right);
    for (int i = 0; i < COUNT; i++) {
      const double expected = i < FARTHEST ? right[i] : left[i];
      if (values[i] != expected) fail_msg("%s: log G(%d) is %.17g, expected %.17g", cases[c].text, i - FARTHEST, values[i], expected);
    }
  }
}

static void spellings_have_one_form(void **state) {
  (void)state;
  static const char *const cases[][2] = {
      {" left ( decay ) * right( rbf ) ", "left(decay)*right(rbf)"},
      {"left((decay+rbf))", "left(decay+rbf)"},
      {"(left(decay))+(right(rbf*t5))", "left(decay)+right(rbf*t5)"},
      {"(left(decay)+right(rbf))*2", "(left(decay)+right(rbf))*2"},
      {"bank[2](left(decay(l=[1,2]))*rbf)", "bank[2](left(decay(l=[1,2]))*rbf)"},
      {"left(bank[2](decay))", "left(bank[2](decay))"},
      {"t5[32]*t5 [ 16 ]+t5[2]([1,2])", "t5*t5[16]+t5[2](factor=[1,2])"},
  };
  hark_context *context = test_reference_open();
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    for (int again = 0; again < 2; again++) {
      hark_positional *kernel = NULL;
      char text[256];
      assert_fine(context, hark_positional_create(context, cases[c][again], &kernel));
      (void)hark_positional_print(kernel, NULL, text, sizeof text);
      assert_string_equal(text, cases[c][1]);
      hark_positional_destroy(context, &kernel);
    }
  }
  test_setup_close(context);
}

static void mistakes_have_a_column(void **state) {
  (void)state;
  static const struct {
    const char *text;
    int column;
    const char *part;
  } cases[] = {
      {"left", 5, "found the end, expected '('"},
      {"rbf*left decay", 10, "found 'd', expected '('"},
      {"left()", 6, "found ')', expected a kernel"},
      {"left(decay", 11, "expected '+', '*' or ')'"},
      {"left[2](decay)", 5, "found '[', expected '('"},
      {"left(decay*right(rbf))", 12, "right(...) inside of the left(...) at column 1, expected only one direction"},
      {"2*right(bank[2](right(rbf)))", 17, "right(...) inside of the right(...) at column 3"},
      {"Left(decay)", 1, "no kernel is called \"Left\""},
      {"zzzzzzzzzz", 1, "bank[M](...), left(...) or right(...)"},
      {"left(decay(l=3@a))", 15, "@a occurs once"},
      {"t5[1]", 4, "the size is 1, expected a whole number from 2 to 128"},
      {"t5[129]", 4, "the size is 129"},
      {"left(t5[16]([1,2]))", 13, "factor has a list of 2, expected 16"},
  };
  hark_context *context = test_reference_open();
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    hark_positional *kernel = NULL;
    char start[64];
    const hark_status status = hark_positional_create(context, cases[c].text, &kernel);
    (void)snprintf(start, sizeof start, "positional kernel, column %d: ", cases[c].column);
    const char *message = hark_context_message(context);
    if (status != HARK_INVALID_ARGUMENT || strncmp(message, start, strlen(start)) != 0 || strstr(message, cases[c].part) == NULL)
      fail_msg("\"%s\": %s \"%s\", expected \"%s...%s\"", cases[c].text, hark_status_name(status), message, start, cases[c].part);
  }
  test_setup_close(context);
}

static void directions_are_found(void **state) {
  (void)state;
  static const struct {
    const char *text;
    bool directed;
    int right;
  } cases[] = {{"decay*rbf", false, 0},
               {"left(decay)", true, 0},
               {"2*right(decay)", true, 3},
               {"left(decay)+bank[2](right(rbf))*right(rbf)", true, 21}};
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    test_subject subject;
    int right = -1, column = 0;
    const char *reason = "";
    test_subject_open(&subject, cases[c].text);
    assert_int_equal(hark_positional_is_directed(subject.kernel, &right), cases[c].directed);
    assert_int_equal(right, cases[c].right);
    /* such a kernel is not symmetric */
    assert_int_equal(hark_positional_is_definite(subject.kernel, subject.parameters, &column, &reason), !cases[c].directed);
    if (cases[c].directed) assert_string_equal(reason, "without left(...) and right(...)");
    if (c == 2) assert_int_equal(column, 3);
    test_subject_close(&subject);
  }
}

static void negative_distances_need_a_direction(void **state) {
  (void)state;
  test_subject subject;
  const double below = -1, far = -2 * HARK_POSITIONAL_LARGEST_DISTANCE;
  double value = 7;
  test_subject_open(&subject, "decay");
  assert_failure(subject.context, hark_positional_log(subject.context, subject.kernel, subject.parameters, &below, 1, &value),
                 HARK_INVALID_ARGUMENT, "distance 0 is -1, expected a number from 0 to 2^53");
  test_subject_close(&subject);
  test_subject_open(&subject, "left(decay)");
  assert_failure(subject.context, hark_positional_log(subject.context, subject.kernel, subject.parameters, &far, 1, &value),
                 HARK_INVALID_ARGUMENT, "expected a number from -2^53 to 2^53");
  assert_true(value == 7);
  test_subject_close(&subject);
}

/* Terms of the outermost sum, also inside of directions. One that is on the other side is 0. */
static void terms_add_up(void **state) {
  (void)state;
  static const struct {
    const char *text;
    int64_t terms;
  } sums[] = {{"left(decay)", 1},
              {"left(decay)*right(rbf)", 1},
              {"left(decay)+right(rbf)", 2},
              {"left(decay+rbf)+0.5", 3},
              {"left(bank[3](decay))+right(bank[2](rbf)+t5[16])", 6}};
  for (size_t s = 0; s < sizeof sums / sizeof *sums; s++) {
    test_subject subject;
    double whole[COUNT], term[COUNT], sum[COUNT] = {0};
    test_subject_open(&subject, sums[s].text);
    assert_int_equal(hark_positional_term_count(subject.kernel), sums[s].terms);
    assert_fine(subject.context, hark_positional_log(subject.context, subject.kernel, subject.parameters, distances, COUNT, whole));
    for (int64_t t = 0; t < sums[s].terms; t++) {
      assert_fine(subject.context,
                  hark_positional_term_log(subject.context, subject.kernel, subject.parameters, t, distances, COUNT, term));
      for (int i = 0; i < COUNT; i++) sum[i] += exp(term[i]);
    }
    for (int i = 0; i < COUNT; i++)
      if (!(fabs(log(sum[i]) - whole[i]) < 1e-13 * fmax(1, fabs(whole[i]))))
        fail_msg("%s: the terms add up to %g at distance %d, expected %g", sums[s].text, log(sum[i]), i - FARTHEST, whole[i]);
    test_subject_close(&subject);
  }
}

/* Values 1 to 32 in the order of T5's table: the bucket of every distance is that of a T5 encoder. */
static void buckets_are_those_of_t5_encoders(void **state) {
  (void)state;
  test_subject subject;
  enum { DISTANCES = sizeof published_t5_encoder / sizeof *published_t5_encoder };
  test_subject_open(&subject,
                    "left(t5[16](factor=[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16]))"
                    "*right(t5[16](factor=[17,18,19,20,21,22,23,24,25,26,27,28,29,30,31,32]))");
  for (int i = 0; i < DISTANCES; i++) {
    const double distance = DISTANCES / 2 - i; /* T5's relative position is that of the key less that of the query */
    double value = 0;
    assert_fine(subject.context, hark_positional_log(subject.context, subject.kernel, subject.parameters, &distance, 1, &value));
    if (lround(exp(value)) - 1 != published_t5_encoder[i])
      fail_msg("distance %g: bucket %ld, expected %d", distance, lround(exp(value)) - 1, published_t5_encoder[i]);
  }
  test_subject_close(&subject);
}

int main(void) {
  for (int i = 0; i < COUNT; i++) distances[i] = i - FARTHEST;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(values_are_those_of_the_definition),
      cmocka_unit_test(gradients_are_those_of_differences),
      cmocka_unit_test(identities_hold_to_the_bit),
      cmocka_unit_test(spellings_have_one_form),
      cmocka_unit_test(mistakes_have_a_column),
      cmocka_unit_test(directions_are_found),
      cmocka_unit_test(negative_distances_need_a_direction),
      cmocka_unit_test(terms_add_up),
      cmocka_unit_test(buckets_are_those_of_t5_encoders),
  };
  return cmocka_run_group_tests_name("directions", tests, NULL, NULL);
}
