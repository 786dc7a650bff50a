/* test_weights.c - the weights of the backward add up to one however large the logits are.
 *
 * The gradient of values under an output gradient of one in a single row is that row's weights. In f32 a logit of 1e18 and its log-sum-exp
 * may be 1e11 apart by rounding alone, and of keys under a bias of -1e9 their log-sum-exp no longer says how many they are: highest logit
 * and sum have to be kept apart. What large terms do to whole rows is compared with the definition.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <inttypes.h>
#include <math.h>

#include "support/attention_run.h"

static void scale_up(attention_numbers *numbers, double factor) {
  for (int64_t i = 0; i < numbers->count; i++) numbers->data[i] = (double)(float)(factor * numbers->data[i]);
}

/* Rows of dvalue of a key head are the weights of the one query row: all within [0, 1], and their sum is 1 or 0. f32: up to rounding of a
 * log-sum-exp of 256, beyond which they are made otherwise; with the Gaussian kernel also that of squared distances of that size. */
static void check_row(const attention_machine *machine, const attention_problem *p, const attention_results *r, int64_t item, int64_t head,
                      int64_t row, double size) {
  const int64_t key_head = head / (p->is.heads / p->is.key_heads), dv = p->is.value_dim;
  const double *dvalue = r->data[ARRAY_DVALUE] + (item * p->is.key_heads + key_head) * p->is.keys * dv;
  const bool sees = r->data[ARRAY_LSE][(item * p->is.heads + head) * p->is.queries + row] != -INFINITY;
  double sum = 0;
  for (int64_t i = 0; i < p->is.keys * dv; i++) {
    if (!(dvalue[i] >= 0 && dvalue[i] <= 1 + 1e-6))
      fail_msg("'%s' on %s, logits times %g, head %" PRId64 ", row %" PRId64 ": weight of key %" PRId64 " is %.9g", p->is.text,
               machine->name, size, head, row, i / dv, dvalue[i]);
    if (i % dv == 0) sum += dvalue[i];
  }
  if (fabs(sum - (sees ? 1 : 0)) <= (machine->computing_roundoff > ATTENTION_ORACLE->computing_roundoff ? 1e-4 : 1e-5)) return;
  fail_msg("'%s' on %s, logits times %g, head %" PRId64 ", row %" PRId64 ": the weights' sum is %.17g", p->is.text, machine->name, size,
           head, row, sum);
}

static void check_case(const char *text) {
  static const double sizes[] = {1, 3e2, 1e4, 1e6, 1e9, 3e12};
  for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
    attention_problem p;
    attention_problem_make(text, &p);
    p.is.threads = 1; /* many small runs */
    scale_up(&p.array[ARRAY_QUERY], sizes[k]);
    scale_up(&p.array[ARRAY_KEY], sizes[k]);
    for (int m = 0; m < attention_machine_count; m++)
      for (int64_t at = 0; at < p.is.batch * p.is.heads * p.is.queries; at += 7) {
        attention_results r;
        const int64_t row = at % p.is.queries, head = at / p.is.queries % p.is.heads, item = at / p.is.queries / p.is.heads;
        for (int64_t i = 0; i < p.array[ARRAY_DOUT].count; i++) p.array[ARRAY_DOUT].data[i] = i / p.is.value_dim == at;
        if (!attention_run_on(&attention_machines[m], &p, &r)) break;
        check_row(&attention_machines[m], &p, &r, item, head, row, sizes[k] * sizes[k]);
        attention_results_free(&r);
      }
    attention_problem_free(&p);
  }
}

static void check_cases(const char *const *cases, size_t count) {
  for (size_t i = 0; i < count; i++) check_case(cases[i]);
}
#define CHECK(...)                                                                                                                         \
  do {                                                                                                                                     \
    static const char *const cases[] = {__VA_ARGS__};                                                                                      \
    (void)state;                                                                                                                           \
    check_cases(cases, sizeof cases / sizeof cases[0]);                                                                                    \
  } while (0)

static void test_dense(void **state) {
  CHECK("dense:H2,L6,S9,D3,V1", "dense:H2,L8,S90,D8,V1", "dense:H4,K2,L3,S70,D16,V1", "dense:H2,L70,D8,V1,causal",
        "dense:H2,L70,S130,D8,V1", "dense:H2,L40,D8,V1,causal,bias=3,kernel,forget", "dense:H2,L40,D8,V1,mask", "window:H2,L70,D8,V1,W9",
        "dense:H2,L33,D8,V1,rbf", "window:H2,L33,D8,V1,W9,rbf,causal");
}

static void test_grid(void **state) {
  CHECK("hierarchical:H2,L50,D5,V1,N4,grid=7", "hierarchical:H2,L50,D8,V1,N4,grid=7,exact", "hierarchical:B2,H2,L110,D8,V1,N4,grid=11,mask",
        "hierarchical:H4,K2,L90,D8,V1,N16,grid=9", "hierarchical:B2,H1,L90,D8,V1,N4,grid=45,lengths,qmask",
        "hierarchical:H1,L90,D8,V1,N4,grid=10,exact,ragged");
}

static void test_hierarchical(void **state) {
  CHECK("hierarchical:H2,L50,D5,V1,N4,mean", "hierarchical:H2,L50,D8,V1,N4,first,causal", "hierarchical:H2,L50,D8,V1,N4,exact",
        "hierarchical:B2,H2,L50,D8,V1,N4,mean,mask", "hierarchical:H2,L70,D8,V1,N16,first,sibling,hbias",
        "hierarchical:H2,L50,D8,V1,N4,mean,kernel", "hierarchical:H2,L50,D8,V1,N4,mean,linear", "hierarchical:H2,L40,D8,V1,N4,mean,rbf");
}

/* ---- large terms ---- */

typedef enum filling { ALL, SOME_ROWS, IN_TURN } filling;

/* Sets terms to a large number: all of them, those of every third row of queries, or of every second entry. */
static void fill(attention_problem *p, filling how, double value) {
  static const attention_array terms[] = {ARRAY_BIAS, ARRAY_LOG_KERNEL, ARRAY_HIERARCHICAL_BIAS};
  for (size_t t = 0; t < sizeof terms / sizeof terms[0]; t++) {
    attention_numbers *x = &p->array[terms[t]];
    const int64_t width = terms[t] == ARRAY_BIAS ? x->shape[3] : 1;
    for (int64_t i = 0; i < x->count; i++)
      if (x->data[i] != -INFINITY && (how == ALL || (how == IN_TURN ? i % 2 == 0 : i / width % 3 == 0))) x->data[i] = value;
  }
}

static double largest_of(const double *data, int64_t count) {
  double largest = 0.25; /* where one key has all the weight gradients are what rounding leaves */
  for (int64_t i = 0; i < count; i++) largest = fmax(largest, isfinite(data[i]) ? fabs(data[i]) : 0);
  return largest;
}

static void check_terms(const char *text, filling how, double value) {
  attention_problem p;
  attention_results right;
  attention_problem_make(text, &p);
  p.is.threads = 1;
  fill(&p, how, value);
  assert_true(attention_run_on(ATTENTION_ORACLE, &p, &right));
  for (int m = 1; m < attention_machine_count; m++) {
    attention_results r;
    if (!attention_run_on(&attention_machines[m], &p, &r)) continue;
    for (int array = ARRAY_OUT; array < ARRAY_COUNT; array++) {
      const double tolerance = 1e-4 * largest_of(right.data[array], array == ARRAY_LSE ? 0 : right.count[array]);
      for (int64_t i = 0; i < r.count[array]; i++) {
        const double want = right.data[array][i], have = r.data[array][i];
        const double own = array == ARRAY_LSE ? 4 * attention_machines[m].storing_roundoff * fabs(want) : 0;
        if (array == ARRAY_LSE && isfinite(want) && fabs(want) > 3.4e38) continue; /* no number of f32 */
        if (have == want || fabs(have - want) <= own + tolerance) continue;
        fail_msg("'%s' on %s, terms of %g (%d): %s[%" PRId64 "] is %.9g, expected %.9g", text, attention_machines[m].name, value, (int)how,
                 attention_array_names[array], i, have, want);
      }
    }
    attention_results_free(&r);
  }
  attention_results_free(&right);
  attention_problem_free(&p);
}

static void test_large_terms(void **state) {
  (void)state;
  static const char *const cases[] = {"dense:H1,L4,S4,D3,V2,bias",
                                      "dense:H2,L70,S130,D8,V5,bias",
                                      "dense:H2,K1,L70,D8,causal,bias=3,kernel",
                                      "dense:H2,L3,S140,D8,kernel",
                                      "dense:H2,L130,D8,kernel",
                                      "dense:H2,L130,D8,kernel,directed",
                                      "dense:B2,H2,L60,D8,bias,mask,forget,causal,threads=2",
                                      "dense:H2,L70,D8,bias,dropout=0.25",
                                      "dense:H2,L70,D8,rbf,bias,kernel",
                                      "window:H2,L150,D8,W20,bias,causal",
                                      "window:H2,L90,D8,W9,kernel,rbf",
                                      "hierarchical:H2,L64,D8,N2,mean,hbias",
                                      "hierarchical:H2,K1,L101,D8,N4,first,causal,hbias,kernel",
                                      "hierarchical:H2,L90,D8,N8,exact,hbias,dropout=0.25",
                                      "hierarchical:B2,H2,L70,D8,N4,mean,mask,qmask,kernel",
                                      "hierarchical:H2,L70,D8,N4,mean,rbf,hbias",
                                      "hierarchical:H2,L300,D8,N2,mean,linear,hbias",
                                      "hierarchical:B2,H2,L300,D8,N4,first,mask,qmask,linear,kernel"};
  static const double values[] = {-700, -1e9, -3.4028234663852886e38, 3e38};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
    for (size_t v = 0; v < sizeof values / sizeof values[0]; v++)
      for (int how = ALL; how <= IN_TURN; how++) check_terms(cases[i], (filling)how, values[v]);
  check_terms("hierarchical:H1,L8200,D3,V2,N4,mean,hbias", ALL, -1e9); /* its lowest levels are made in windows */
}

int main(int argument_count, char **arguments) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_dense), cmocka_unit_test(test_hierarchical), cmocka_unit_test(test_grid),
                                     cmocka_unit_test(test_large_terms)};
  if (argument_count > 1) {
    check_cases((const char *const *)(arguments + 1), (size_t)argument_count - 1);
    return 0;
  }
  return cmocka_run_group_tests(tests, NULL, NULL);
}
