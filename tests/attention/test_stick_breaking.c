/* test_stick_breaking.c - normalisation STICK_BREAKING on every backend, instruction set and type against the formulas of arXiv 2410.17980
 * in float64 (support/attention_definition.c), and what must hold of it whatever its numbers.
 *
 *     test_stick_breaking                                 everything
 *     test_stick_breaking 'dense:L65,D7,causal,stick'     these cases alone, on every machine
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/attention_run.h"

static void check_all(const char *const *cases, size_t count) {
  int failures = 0;
  for (size_t i = 0; i < count; i++) failures += attention_check_case(cases[i], false) > 0;
  assert_true(count > 0);
  if (failures > 0) fail_msg("%d of %zu cases failed; run one again with: test_stick_breaking 'CASE'", failures, count);
}

/* Every length from 1 to 70, and lengths around the edges of tiles, with options taking turns. */
static void test_lengths(void **state) {
  (void)state;
  static const char *const options[] = {"", ",forget", ",bias", ",mask", ",kernel", ",dropout=0.25"};
  static const int edges[] = {95, 96, 97, 127, 128, 129, 191, 193, 257};
  int failures = 0;
  for (int i = 1; i <= 70 + (int)(sizeof edges / sizeof *edges); i++) {
    char text[ATTENTION_CASE_BYTES];
    const int length = i <= 70 ? i : edges[i - 71], keys = i % 2 == 0 ? length : 1 + (length * 37) % 131;
    snprintf(text, sizeof text, "dense:B1,H2,K1,L%d,S%d,D%d,causal,stick%s,seed=%d", length, keys, 1 + (length * 5) % 19, options[i % 6],
             i);
    failures += attention_check_case(text, false) > 0;
  }
  if (failures > 0) fail_msg("%d cases failed", failures);
}

static void test_options(void **state) {
  (void)state;
  static const char *const cases[] = {
      "dense:L1,D1,causal,stick",
      "dense:L2,D1,causal,stick",
      "dense:B2,H4,K2,L65,D7,causal,stick,bias",
      "dense:B2,H4,K1,L66,S70,D16,V5,causal,stick",
      "dense:B2,H2,L70,S33,D8,causal,stick",
      "dense:B1,H2,L9,S70,D8,causal,stick,offset=0",
      "dense:B1,H2,L9,S70,D8,causal,stick,offset=30",
      "dense:B1,H2,L70,D8,causal,stick,offset=-20",
      "dense:B1,H2,L70,D8,causal,stick,offset=-100",
      "dense:B1,H2,L70,D8,causal,stick,offset=200",
      "dense:B2,H2,L65,D8,causal,stick,bias=1",
      "dense:B2,H2,L65,D8,causal,stick,bias=2",
      "dense:B2,H2,L65,S40,D8,causal,stick,bias=4",
      "dense:B2,H2,L65,S40,D8,causal,stick,bias=8",
      "dense:B2,H2,L265,S600,D8,causal,stick,bias=7",
      "dense:B2,H2,L65,S40,D8,causal,stick,bias=15",
      "dense:B2,H2,L65,S80,D8,causal,stick,bias,hiding",
      "dense:B2,H2,L65,D8,causal,stick,kernel,hiding",
      "dense:H2,L270,D8,causal,stick,kernel,hiding",
      "dense:B2,H3,L130,D8,causal,stick,kernel",
      "dense:B2,H3,L65,D8,causal,stick,shared,expanded,accumulate,threads=3",
      "dense:B2,H2,L65,S80,D8,causal,stick,mask=3",
      "dense:B2,H2,L65,S80,D8,causal,stick,mask=7",
      "dense:B2,H2,L65,S80,D8,causal,stick,mask=15",
      "dense:B2,H4,K2,L130,D8,causal,stick,forget",
      "dense:B2,H4,K2,L30,S130,D8,causal,stick,forget",
      "dense:B1,H2,L70,S50,D8,causal,stick,forget,offset=10",
      "dense:B2,H4,K2,L130,D8,causal,stick,forget,kernel,bias=4,mask,dropout=0.1",
      "dense:B2,H4,K2,L70,D8,causal,stick,dropout=0.9",
      "dense:B3,H2,L70,D8,causal,stick,lengths",
      "dense:B3,H4,K2,L130,D16,causal,stick,lengths,forget,dropout=0.3",
      "dense:B4,H2,L20,S70,D8,causal,stick,lengths",
      "dense:H4,K2,L200,D8,causal,stick,ragged",
      "dense:H4,K2,L200,S190,D8,causal,stick,ragged,bias,mask,kernel,forget,dropout=0.2",
      "dense:H2,L3,D8,causal,stick,ragged",
      "dense:B2,H4,K2,L200,D8,causal,stick,segments,kernel",
      "dense:B2,H4,K2,L70,D8,causal,stick,segments,bias=1,forget,dropout=0.2,mask",
      "dense:B2,H4,K2,L100,D24,V17,causal,stick,layout=2",
      "dense:B3,H4,K2,L70,D9,causal,stick,layout=2,forget,accumulate,lengths,misaligned",
      "dense:B2,H4,K2,L70,D9,causal,stick,accumulate,bias=3,kernel,forget",
      "dense:B2,H2,L130,D64,causal,stick,large",
      "dense:B1,H2,L70,D3,causal,stick,large,bias,forget",
      "dense:B2,H4,K2,L50,D8,causal,stick,roomy,forget,segments",
      "dense:B2,H2,L50,D8,causal,stick,bf16",
      "dense:B1,H1,L300,D40,causal,stick,threads=3",
      "dense:B1,H3,L1100,D16,causal,stick,threads=7",
      "dense:B1,H8,K1,L1,S300,D80,causal,stick",
      "dense:B2,H2,L1,S200,D128,causal,stick,forget,kernel",
      "dense:B2,H2,L1,S200,D16,causal,stick,bias,hiding,dropout=0.3",
      "dense:B2,H4,K2,L3,S66,D33,causal,stick,layout=2,misaligned",
      "dense:B2,H2,L4,S200,D64,causal,stick,offset=7",
      "dense:B2,H2,L8,S129,D64,causal,stick,large",
      "dense:B2,H2,L1,S40,D64,causal,stick,offset=-1",
      "dense:H2,L4,S300,D64,causal,stick,ragged",
      "window:B2,H2,L70,D8,W0,causal,stick",
      "window:B2,H2,L70,D8,W1,causal,stick",
      "window:B2,H4,K2,L200,D8,W16,causal,stick",
      "window:B2,H2,L200,D8,W63,causal,stick",
      "window:B2,H2,L200,D8,W64,causal,stick",
      "window:B2,H2,L200,S40,D8,W20,causal,stick",
      "window:B2,H2,L100,D8,W5,causal,stick,offset=-30",
      "window:B2,H2,L150,D8,W25,causal,stick,kernel,bias=1,mask=2,forget,dropout=0.2",
      "window:B2,H2,L150,D8,W9,causal,stick,segments",
      "window:B2,H2,L3,S200,D64,W20,causal,stick",
  };
  check_all(cases, sizeof cases / sizeof *cases);
}

/* Rows whose sticks reach more keys than a backward keeps: those beyond are computed again. */
static void test_long_rows(void **state) {
  (void)state;
  static const char *const cases[] = {"dense:H2,K1,L70,S4500,D4,causal,stick,bias=7", "dense:L3,S4300,D4,causal,stick,bias=7,dropout=0.3",
                                      "window:L70,S9000,D4,W4300,causal,stick,bias=7,kernel"};
  int failures = 0;
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
    attention_problem p;
    attention_expected expected;
    attention_problem_make(cases[k], &p);
    attention_numbers *const bias = &p.array[ARRAY_BIAS];
    for (int64_t i = 0; i < bias->count; i++) bias->data[i] = (double)(float)(bias->data[i] - 8);
    attention_expected_make(&p, &expected);
    for (int64_t i = 0; i < expected.array[ARRAY_LSE].count; i++) assert_true(expected.array[ARRAY_LSE].data[i] > -60);
    for (int m = 0; m < attention_machine_count; m++) {
      attention_results results;
      if (!attention_run_on(&attention_machines[m], &p, &results)) continue;
      failures += attention_compare(&attention_machines[m], &p, &expected, &results);
      attention_results_free(&results);
    }
    attention_expected_free(&expected);
    attention_problem_free(&p);
  }
  assert_int_equal(failures, 0);
}

/* Weights and what is left of the stick sum to one: with values of 1, out + exp(log_sum_exp) = 1. */
static void test_sums_to_one(void **state) {
  (void)state;
  static const char *const cases[] = {"dense:B2,H2,L70,D7,causal,stick,forget", "window:H2,L130,D8,W20,causal,stick",
                                      "dense:H2,L1,S90,D8,causal,stick,mask"};
  int count = 0;
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++)
    for (int machine = 0; machine < attention_machine_count; machine++) {
      attention_problem p;
      attention_results r;
      attention_problem_make(cases[k], &p);
      for (int64_t i = 0; i < p.array[ARRAY_VALUE].count; i++) p.array[ARRAY_VALUE].data[i] = 1;
      if (attention_run_on(&attention_machines[machine], &p, &r)) {
        for (int64_t i = 0; i < r.count[ARRAY_OUT]; i++)
          attention_assert_near(
              "a row of weights and its rest", cases[k], &attention_machines[machine], i,
              r.data[ARRAY_OUT][i] + exp(r.data[ARRAY_LSE][i / p.is.value_dim]), 1,
              8 * (double)p.is.keys * attention_machines[machine].computing_roundoff + 8 * attention_machines[machine].storing_roundoff);
        attention_results_free(&r);
        count++;
      }
      attention_problem_free(&p);
    }
  assert_true(count > 0);
}

/* The bits do not depend on the number of threads. */
static void test_threads(void **state) {
  (void)state;
  static const char *const cases[] = {"dense:H2,L400,D16,causal,stick,forget,kernel,bias", "dense:B3,H4,K2,L200,D8,causal,stick,lengths",
                                      "window:H1,L500,D8,W70,causal,stick"};
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++)
    for (int machine = 0; machine < attention_machine_count; machine++) {
      attention_problem p;
      attention_problem_make(cases[k], &p);
      attention_same_with_threads(&attention_machines[machine], &p, cases[k], 1, (const int64_t[]){5});
      attention_problem_free(&p);
    }
}

/* One key with a large logit takes the complete stick: the query sees nothing farther, and the bits of its row do not depend on it. */
static void test_used_up(void **state) {
  (void)state;
  static const char text[] = "dense:L200,D4,causal,stick";
  const int64_t dim = 4, last = 199 * dim;
  const double poisons[] = {NAN, INFINITY, 7};
  for (int machine = 0; machine < attention_machine_count; machine++)
    for (size_t k = 0; k < sizeof poisons / sizeof *poisons; k++) {
      attention_problem p;
      attention_results before, after;
      attention_problem_make(text, &p);
      for (int64_t x = 0; x < dim; x++) {
        p.array[ARRAY_QUERY].data[last + x] = 200;
        p.array[ARRAY_KEY].data[150 * dim + x] = 200;
        for (int64_t i = 151; i < 199; i++) p.array[ARRAY_KEY].data[i * dim + x] = 0;
      }
      if (attention_run_on(&attention_machines[machine], &p, &before)) {
        for (int64_t i = 0; i < 150 * dim; i++) p.array[ARRAY_KEY].data[i] = p.array[ARRAY_VALUE].data[i] = poisons[k];
        attention_run_on(&attention_machines[machine], &p, &after);
        for (int64_t x = 0; x < dim; x++) {
          attention_assert_near("out", text, &attention_machines[machine], x, after.data[ARRAY_OUT][last + x],
                                before.data[ARRAY_OUT][last + x], 0);
          attention_assert_near("dquery", text, &attention_machines[machine], x, after.data[ARRAY_DQUERY][last + x],
                                before.data[ARRAY_DQUERY][last + x], 0);
        }
        assert_true(before.data[ARRAY_LSE][199] == -INFINITY);
        attention_results_free(&before);
        attention_results_free(&after);
      }
      attention_problem_free(&p);
    }
}

/* What it does not go with is refused, and the message names it. */
static void test_refusals(void **state) {
  (void)state;
  static const struct {
    const char *text, *word;
  } refused[] = {
      {"dense:L4,D2,stick", "causal"}, {"dense:L4,D2,causal,stick,rbf", "rbf"}, {"hierarchical:L8,D2,N2,causal,stick", "hierarchical"}};
  hark_context *context = attention_machine_open(ATTENTION_ORACLE, 1);
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
    attention_problem p;
    attention_problem_make(refused[i].text, &p);
    const hark_attention_desc desc = attention_problem_desc(&p, HARK_F64);
    assert_int_equal(hark_attention_supports(context, &desc), HARK_UNSUPPORTED);
    const char *const message = hark_context_message(context);
    if (strstr(message, refused[i].word) == NULL || strstr(message, "stick_breaking") == NULL)
      fail_msg("'%s': the message is '%s', expected '%s' and stick_breaking in it", refused[i].text, message, refused[i].word);
    attention_problem_free(&p);
  }
  attention_problem p;
  attention_problem_make("dense:L4,D2,causal,stick", &p);
  hark_attention_desc desc = attention_problem_desc(&p, HARK_F64);
  desc.ridge = 0.5;
  assert_int_equal(hark_attention_supports(context, &desc), HARK_UNSUPPORTED);
  assert_non_null(strstr(hark_context_message(context), "ridge is 0.5 with normalisation stick_breaking"));
  attention_problem_free(&p);
  hark_context_destroy(&context);
}

int main(int argument_count, char **arguments) {
  if (argument_count > 1) {
    int failures = 0;
    for (int i = 1; i < argument_count; i++) failures += attention_check_case(arguments[i], true);
    return failures == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
  }
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_lengths),     cmocka_unit_test(test_options), cmocka_unit_test(test_long_rows),
                                     cmocka_unit_test(test_sums_to_one), cmocka_unit_test(test_threads), cmocka_unit_test(test_used_up),
                                     cmocka_unit_test(test_refusals)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
