/* test_not_finite.c - a number that is not finite is seen in every result that depends on it, and on every backend in the same ones.
 *
 * One element of an input is NaN or infinite. Which results depend on it is found by the definition in f64: those that change when the
 * element has another finite value. With NaN these are NaN on every machine, and all machines have NaN at the same places. With an
 * infinity, which may hide an entry because its logit becomes -infinity, all machines have finite results at the same places, and the same
 * ones there. That what no visible entry holds leaves no trace is in test_hidden.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/attention_run.h"

#define PLACES 4 /* of an input that are changed, one at a time */

/* The first element, the last, and two between that begin no block. */
static int64_t place_of(const attention_numbers *numbers, int which) {
  const int64_t at[PLACES] = {0, numbers->count * 5 / 13, numbers->count * 10 / 13, numbers->count - 1};
  return at[which];
}

/* Marks results that change with the element; what does not change by one value may by another. */
static void find_dependents(attention_problem *p, attention_array input, int64_t at, bool *depends[ARRAY_COUNT]) {
  const double kept = p->array[input].data[at], others[] = {kept + 0.5, kept - 0.25};
  attention_results before;
  attention_run_on(ATTENTION_ORACLE, p, &before);
  for (int r = ARRAY_OUT; r < ARRAY_COUNT; r++) {
    depends[r] = calloc((size_t)before.count[r] + 1, sizeof(bool));
    assert_non_null(depends[r]);
  }
  for (size_t k = 0; k < sizeof others / sizeof others[0]; k++) {
    attention_results after;
    p->array[input].data[at] = others[k];
    attention_run_on(ATTENTION_ORACLE, p, &after);
    for (int r = ARRAY_OUT; r < ARRAY_COUNT; r++)
      for (int64_t i = 0; i < before.count[r]; i++) depends[r][i] = depends[r][i] || before.data[r][i] != after.data[r][i];
    attention_results_free(&after);
  }
  p->array[input].data[at] = kept;
  attention_results_free(&before);
}

/* Fails when results are not what the definition's `expected` and the dependence ask for. */
static void look(const char *text, const attention_machine *machine, attention_array input, int64_t at, double poison,
                 bool *const depends[ARRAY_COUNT], const attention_results *expected, const attention_results *have, double within) {
  for (int r = ARRAY_OUT; r < ARRAY_COUNT; r++)
    for (int64_t i = 0; i < have->count[r]; i++) {
      const double x = have->data[r][i], e = expected->data[r][i];
      const char *wrong = NULL;
      if (isnan(poison) && depends[r][i] && !isnan(x)) wrong = "depends on it";
      if (isnan(poison) && isnan(x) != isnan(e)) wrong = "is not NaN where the definition is";
      if (isfinite(x) != isfinite(e)) wrong = "is not finite where the definition is";
      if (isfinite(x) && isfinite(e) && fabs(x - e) > within * (1 + fabs(e))) wrong = "is not what the definition has";
      if (wrong != NULL)
        fail_msg("'%s' on %s, %s[%" PRId64 "] = %g: %s[%" PRId64 "] %s: %g, expected %g", text, machine->name, attention_array_names[input],
                 at, poison, attention_array_names[r], i, wrong, x, e);
    }
}

static void check_element(attention_problem *p, attention_array input, int64_t at) {
  static const double poisons[] = {NAN, INFINITY, -INFINITY};
  const double kept = p->array[input].data[at];
  bool *depends[ARRAY_COUNT] = {0};
  find_dependents(p, input, at, depends);
  for (size_t k = 0; k < sizeof poisons / sizeof poisons[0]; k++) {
    attention_results expected;
    p->array[input].data[at] = poisons[k];
    attention_run_on(ATTENTION_ORACLE, p, &expected);
    for (int m = 0; m < attention_machine_count; m++) {
      attention_results have;
      if (!attention_run_on(&attention_machines[m], p, &have)) continue;
      look(p->is.text, &attention_machines[m], input, at, poisons[k], depends, &expected, &have, p->is.large ? INFINITY : 1e-3);
      attention_results_free(&have);
    }
    attention_results_free(&expected);
  }
  p->array[input].data[at] = kept;
  for (int r = ARRAY_OUT; r < ARRAY_COUNT; r++) free(depends[r]);
}

static void check_cases(const char *const *cases, size_t count) {
  for (size_t i = 0; i < count; i++) {
    attention_problem p;
    attention_problem_make(cases[i], &p);
    p.is.threads = 1; /* many small runs */
    for (int input = 0; input < ARRAY_OUT; input++)
      for (int which = 0; which < PLACES && p.array[input].count > 0; which++)
        check_element(&p, (attention_array)input, place_of(&p.array[input], which));
    attention_problem_free(&p);
  }
}
#define CHECK(...)                                                                                                                         \
  do {                                                                                                                                     \
    static const char *const cases[] = {__VA_ARGS__};                                                                                      \
    (void)state;                                                                                                                           \
    check_cases(cases, sizeof cases / sizeof cases[0]);                                                                                    \
  } while (0)

static void test_dense(void **state) {
  CHECK("dense:B2,H2,L5,S9,D3,V2", "dense:L8,S300,D16,V8", "dense:H4,K2,L70,S150,D20,V9", "dense:H4,K2,L3,S70,D16,V8",
        "dense:B2,H2,L130,D8,causal", "dense:H2,L100,D8,causal,bias=3,kernel,forget", "dense:H2,L70,D8,causal,dropout=0.3",
        "dense:B3,H2,L20,S40,D8,lengths,kernel", "dense:H2,L60,S70,D8,ragged,causal", "dense:H2,L70,D8,bias,hiding,mask",
        "window:H2,L150,D8,W20", "window:H2,L150,D8,W20,causal,kernel,dropout=0.2", "window:H2,L90,D8,W2,causal,forget",
        "dense:B2,H2,L7,D3,causal,forget");
}

static void test_stick_breaking(void **state) {
  CHECK("dense:B2,H2,L7,D3,causal,stick", "dense:H4,K2,L70,S150,D20,V9,causal,stick", "dense:H4,K2,L3,S70,D16,V8,causal,stick",
        "dense:H2,L130,D8,causal,stick,bias=3,kernel,forget", "dense:H2,L70,D8,causal,stick,dropout=0.3",
        "dense:B3,H2,L20,S40,D8,causal,stick,lengths,kernel", "dense:H2,L70,D8,causal,stick,bias,hiding,mask",
        "window:H2,L150,D8,W20,causal,stick,kernel,dropout=0.2");
}

static void test_contextual(void **state) {
  CHECK("dense:B2,H2,L7,D3,C4,causal", "dense:H2,K1,L20,S30,D10,V9,C9,causal", "dense:H4,K2,L3,S40,D8,C9,causal,cshared",
        "dense:H2,L20,D4,C9,causal,bias=3,kernel,forget", "dense:H2,L20,D4,C9,causal,dropout=0.3",
        "dense:B3,H2,L9,S20,D4,C9,causal,lengths,kernel", "dense:H2,L20,D4,C9,causal,bias,hiding,mask",
        "window:H2,L20,D4,C9,W8,causal,kernel,dropout=0.2", "dense:L5,S200,D3,C90,causal", "dense:L70,S200,D3,C3,causal");
}

static void test_compressed(void **state) {
  /* All slots are selected: which ones a NaN would select is another function of it. */
  CHECK("compressed:H4,K2,L64,D5,V3,N4,slots=2,select=40", "compressed:H2,L100,D8,N8,kept=3,globals=2",
        "compressed:B2,H2,L70,D8,N4,mask,starts,select=40", "compressed:H2,L70,D8,N4,dropout=0.2,kept=4,globals=3",
        "compressed:B2,H2,L60,D8,N4,segments,select=70", "compressed:H2,L64,D5,V3,N8,slots=2,select=40,kernel",
        "compressed:B2,H2,L70,D8,N6,mask,starts,select=40,shared");
}

static void test_hierarchical(void **state) {
  CHECK("hierarchical:H4,K2,L64,D5,V3,N4,mean", "hierarchical:H2,L100,D8,N8,mean,hbias", "hierarchical:H2,L100,D8,N16,mean,sibling",
        "hierarchical:H2,L100,D8,N4,first", "hierarchical:H2,L100,D8,N8,first,causal,hbias", "hierarchical:H2,L100,D8,N4,exact",
        "hierarchical:H2,L100,D8,N4,exact,causal,sibling,kernel", "hierarchical:H2,L100,D8,N4,mean,linear",
        "hierarchical:H2,L70,D8,N4,mean,hbias,kernel,dropout=0.2", "hierarchical:B2,H2,L70,D8,N4,mean,mask,qmask",
        "hierarchical:B2,H2,L70,D8,N4,mean,mask,qmask,linear", "hierarchical:B2,H2,L60,D8,N4,mean,segments",
        "hierarchical:H4,K2,L130,D5,V3,N4,grid=13", "hierarchical:H2,L130,D8,N4,grid=13,exact",
        "hierarchical:B2,H2,L130,D8,N4,grid=13,mask,qmask", "hierarchical:H2,L130,D8,N4,grid=13,dropout=0.2");
}

static void test_rbf(void **state) {
  CHECK("dense:H2,L70,D8,V5,rbf", "dense:H2,L70,D8,bias,hiding,mask,rbf", "window:H2,L90,D8,W10,rbf,causal",
        "dense:H2,K1,L3,S90,D5,rbf,kernel", "dense:B2,H2,L70,D8,rbf,causal,forget,dropout=0.2,lengths",
        "hierarchical:B2,H2,L70,D8,N4,mean,mask,qmask,rbf", "hierarchical:H2,L70,D8,N4,exact,causal,rbf",
        "hierarchical:H2,K1,L70,D8,N4,first,causal,rbf,hbias", "hierarchical:H2,L50,D5,N4,mean,sibling,rbf,dropout=0.2");
}

/* Weights that underflow: what is seen under a weight of 0 is seen all the same. */
static void test_large(void **state) {
  CHECK("dense:H2,L100,D8,large,causal", "dense:H2,L70,D8,causal,dropout=0.3,large", "dense:H2,L100,D8,large,mask",
        "dense:H4,K2,L3,S70,D16,V8,large", "window:H2,L150,D8,W20,large", "hierarchical:H2,L100,D8,N4,first,causal,large",
        "hierarchical:H2,L100,D8,N4,mean,large,mask", "hierarchical:H2,L100,D8,N4,exact,large",
        "hierarchical:H2,L70,D8,N4,mean,large,dropout=0.2", "hierarchical:H2,L100,D8,N4,mean,linear,large",
        "compressed:H2,L100,D8,N4,select=60,large", "compressed:H2,L100,D8,N4,select=60,kernel,large",
        "compressed:H2,L100,D8,N8,kept=3,globals=2,mask,large", "hierarchical:H2,L130,D8,N4,grid=13,large",
        "hierarchical:H2,L130,D8,N4,grid=13,exact,large", "hierarchical:B2,H2,L100,D8,N4,grid=13,mask,qmask,large",
        "hierarchical:B2,H2,L100,D8,N4,grid=13,dropout=0.2,lengths,large");
}

int main(int argument_count, char **arguments) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_dense),      cmocka_unit_test(test_stick_breaking),
                                     cmocka_unit_test(test_contextual), cmocka_unit_test(test_hierarchical),
                                     cmocka_unit_test(test_compressed), cmocka_unit_test(test_rbf),
                                     cmocka_unit_test(test_large)};
  if (argument_count > 1) {
    check_cases((const char *const *)(arguments + 1), (size_t)argument_count - 1);
    return 0;
  }
  return cmocka_run_group_tests(tests, NULL, NULL);
}
