/* test_weights.c - the weights that the backward makes anew from log-sum-exp lie between 0 and 1 however large the logits are.
 *
 * The gradient of values under an output gradient of one in a single row is that row's weights. In f32 a logit of 1e18 and its log-sum-exp may be
 * 1e11 apart by rounding alone; the definition, which keeps the highest logit and the sum of weights apart, has weights that sum to one.
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

/* Rows of dvalue of a key head are the weights of the one query row: all within [0, 1], and with the definition their sum is 1 or 0. */
static void check_row(const attention_machine *machine, const attention_problem *p, const attention_results *r, int64_t item, int64_t head,
                      int64_t row, double size) {
  const int64_t key_head = head / (p->is.heads / p->is.key_heads), dv = p->is.value_dim;
  const double *dvalue = r->data[ARRAY_DVALUE] + (item * p->is.key_heads + key_head) * p->is.keys * dv;
  const bool sees = r->data[ARRAY_LSE][(item * p->is.heads + head) * p->is.queries + row] != -INFINITY;
  double sum = 0;
  for (int64_t i = 0; i < p->is.keys * dv; i++) {
    if (!(dvalue[i] >= 0 && dvalue[i] <= 1))
      fail_msg("'%s' on %s, logits times %g, head %" PRId64 ", row %" PRId64 ": weight of key %" PRId64 " is %.9g", p->is.text,
               machine->name, size, head, row, i / dv, dvalue[i]);
    if (i % dv == 0) sum += dvalue[i];
  }
  if (machine->computing_roundoff > ATTENTION_ORACLE->computing_roundoff || fabs(sum - (sees ? 1 : 0)) <= 1e-5) return;
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

static void test_hierarchical(void **state) {
  CHECK("hierarchical:H2,L50,D5,V1,N4,mean", "hierarchical:H2,L50,D8,V1,N4,first,causal", "hierarchical:H2,L50,D8,V1,N4,exact",
        "hierarchical:B2,H2,L50,D8,V1,N4,mean,mask", "hierarchical:H2,L70,D8,V1,N16,first,sibling,hbias",
        "hierarchical:H2,L50,D8,V1,N4,mean,kernel", "hierarchical:H2,L50,D8,V1,N4,mean,linear", "hierarchical:H2,L40,D8,V1,N4,mean,rbf");
}

int main(int argument_count, char **arguments) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_dense), cmocka_unit_test(test_hierarchical)};
  if (argument_count > 1) {
    check_cases((const char *const *)(arguments + 1), (size_t)argument_count - 1);
    return 0;
  }
  return cmocka_run_group_tests(tests, NULL, NULL);
}
