/* test_compressed.c - compressed attention: against its definition, and facts about what a query sees.
 *
 *     test_compressed                                    all
 *     test_compressed 'compressed:L65,D7,N4,select=2'    these cases alone, on every machine (attention_case.h has the words)
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/attention_run.h"

static void check_cases(const char *const *cases, size_t count) {
  int failures = 0;
  for (size_t i = 0; i < count; i++) failures += attention_check_case(cases[i], false) > 0;
  if (failures > 0) fail_msg("%d of %zu cases failed; run one again with: test_compressed 'CASE'", failures, count);
}
#define CHECK(cases) check_cases(cases, sizeof(cases) / sizeof *(cases))

/* Lengths around those of chunks and tiles, chunks of one row to more than a sequence, few and many slots. */
static void test_shapes(void **state) {
  (void)state;
  static const struct {
    int chunk, slots, select, kept, globals;
  } layouts[] = {{1, 1, 3, 0, 0},  {2, 2, 1, 0, 0},   {4, 2, 5, 0, 0},   {5, 3, 4, 2, 2},   {16, 4, 8, 0, 0}, {16, 1, 1, 3, 5},
                 {64, 8, 7, 1, 1}, {64, 3, 20, 2, 9}, {100, 7, 5, 0, 0}, {130, 9, 6, 1, 4}, {3, 3, 17, 4, 0}, {7, 1, 64, 6, 70}};
  static const char *const options[] = {"", ",starts", ",mask", ",dropout=0.3", ",starts,mask", ",large", ",starts,dropout=0.2"};
  static const char *const kernels[] = {"", ",kernel", ",shared", ",kernel,hiding"}; /* not with globals */
  static const int lengths[] = {1, 2, 31, 64, 65, 129, 200, 397};
  int failures = 0;
  for (size_t s = 0; s < sizeof layouts / sizeof layouts[0]; s++)
    for (size_t l = 0; l < sizeof lengths / sizeof lengths[0]; l++) {
      char text[ATTENTION_CASE_BYTES];
      const int length = lengths[l], turn = (int)(s + 3 * l);
      snprintf(text, sizeof text, "compressed:B1,H2,K1,L%d,D%d,V%d,N%d,slots=%d,select=%d,kept=%d,globals=%d%s%s,seed=%d", length,
               1 + length % 19, 1 + length % 7, layouts[s].chunk, layouts[s].slots, layouts[s].select, layouts[s].kept, layouts[s].globals,
               options[turn % 7], layouts[s].globals > 0 ? "" : kernels[turn % 4], turn + 1);
      failures += attention_check_case(text, false) > 0;
    }
  if (failures > 0) fail_msg("%d cases failed", failures);
}

static void test_options(void **state) {
  (void)state;
  static const char *const cases[] = {
      "compressed:B1,H1,L1330,D6,V4,N16,slots=2,select=8,seed=2",
      "compressed:B1,H1,L1190,D16,V6,N8,slots=2,select=12,kept=20,globals=8",
      "compressed:B2,H4,K2,L320,D16,N16,slots=4,select=6,seed=2",
      "compressed:B2,H6,K3,L317,D8,V33,N8,select=16,kept=5,globals=3",
      "compressed:B1,H2,L700,D64,N64,slots=8,select=16",
      "compressed:B1,H1,L400,D80,N32,slots=4,select=40",
      "compressed:B1,H1,L300,D257,V1,N16,slots=2",
      "compressed:B1,H1,L300,D17,V65,N16,slots=2,select=130,kept=10,globals=130",
      "compressed:B2,H2,L324,D8,N8,slots=2,dropout=0.5",
      "compressed:B2,H4,K2,L324,D8,N8,kept=3,globals=4,dropout=0.3",
      "compressed:B1,H2,L40,D8,N8,slots=2,kept=1,globals=1000,dropout=0.2",
      "compressed:B1,H2,L70,D8,N8,select=4000,kept=2,globals=1",
      "compressed:B3,H2,L300,D8,N8,lengths,slots=2",
      "compressed:B3,H4,K2,L300,D16,N8,lengths,kept=4,globals=2,starts",
      "compressed:B3,H2,L300,D8,N8,mask,slots=3",
      "compressed:B3,H2,L300,D8,N8,mask=7,kept=2,globals=3",
      "compressed:B2,H2,L300,D8,N8,mask,starts,expanded",
      "compressed:H4,K2,L900,D8,N8,ragged,slots=2",
      "compressed:H4,K2,L900,D8,N8,ragged,starts,kept=5,globals=5,dropout=0.2",
      "compressed:H2,L3,D8,N4,ragged",
      "compressed:B2,H4,K2,L600,D8,N8,segments,slots=2",
      "compressed:B2,H4,K2,L300,D8,N4,segments,starts,mask,kept=3,globals=1",
      "compressed:B3,H2,L3,D8,N1,segments",
      "compressed:B2,H2,L300,D24,N16,layout=1",
      "compressed:B2,H4,K2,L300,D24,V17,N8,slots=2,layout=2",
      "compressed:B3,H4,K2,L300,D9,V17,N8,layout=2,lengths,misaligned,kept=3,globals=2",
      "compressed:B2,H4,K2,L300,D9,N8,slots=2,accumulate",
      "compressed:B2,H4,K2,L300,D9,N8,kept=3,globals=2,accumulate,layout=2",
      "compressed:H2,L300,D9,N8,accumulate,ragged,mask",
      "compressed:B2,H2,L300,D64,N16,slots=4,large,seed=2",
      "compressed:B2,H2,L300,D64,N8,kept=4,globals=4,large",
      "compressed:B2,H2,L300,D8,N8,slots=2,roomy",
      "compressed:B3,H2,L300,D8,N8,roomy=100,lengths,dropout=0.1,kept=3,globals=2",
      "compressed:B2,H4,K2,L300,D8,N8,roomy,segments,starts",
      "compressed:B2,H2,L1,D1,N1",
      "compressed:L90,D2,N1024",
      "compressed:B1,H1,L900,D40,N16,slots=2,threads=3",
      "compressed:B1,H3,L900,D40,N16,kept=9,globals=6,threads=7",
      "compressed:B2,H2,L300,D8,N8,bf16",
      "compressed:B2,H4,K2,L320,D16,N16,slots=4,select=6,kernel,seed=4",
      "compressed:B1,H6,K3,L317,D8,V33,N8,select=16,kept=5,shared",
      "compressed:B1,H2,L700,D64,N64,slots=8,select=16,kernel,seed=4",
      "compressed:B1,H2,L700,D6,N64,slots=5,kernel",
      "compressed:B1,H1,L900,D8,N200,slots=3,kernel,hiding",
      "compressed:B2,H2,L324,D8,N8,slots=2,dropout=0.5,kernel",
      "compressed:B3,H4,K2,L300,D16,N8,lengths,kept=4,starts,kernel",
      "compressed:B3,H2,L300,D8,N8,mask,slots=2,kernel",
      "compressed:B2,H2,L300,D8,N8,mask,starts,shared,expanded",
      "compressed:H4,K2,L900,D8,N8,ragged,starts,kept=5,kernel,dropout=0.2",
      "compressed:B2,H4,K2,L600,D8,N8,segments,slots=2,kernel,seed=2",
      "compressed:B2,H4,K2,L300,D9,N8,slots=2,kernel,accumulate,layout=2",
      "compressed:H2,L300,D9,N8,shared,accumulate,ragged,mask",
      "compressed:B2,H2,L300,D64,N16,slots=4,large,kernel,seed=2",
      "compressed:B3,H2,L300,D8,N8,roomy=100,lengths,kernel",
      "compressed:B2,H2,L1,D1,N1,kernel",
      "compressed:B1,H3,L900,D40,N16,kept=9,kernel,threads=7",
  };
  CHECK(cases);
}

/* Sequences of two chunks, and slots of one row that are all selected, have all entries of dense attention. Slots that are never seen leave
 * those of a window that is as long. */
static void test_limits(void **state) {
  (void)state;
  attention_check_equal("compressed:B2,H4,K2,L128,D16,N64,slots=4", "dense:B2,H4,K2,L128,D16,causal");
  attention_check_equal("compressed:B2,H2,L150,D8,N1,select=150", "dense:B2,H2,L150,D8,causal");
  attention_check_equal("compressed:B2,H2,L150,D8,N3,slots=3,select=150", "dense:B2,H2,L150,D8,causal");
  attention_check_equal("compressed:B2,H2,L150,D8,N1,select=4,kept=3,globals=150", "dense:B2,H2,L150,D8,causal");
  attention_check_equal("compressed:B2,H2,L150,D8,N1,select=12,kept=12", "window:B2,H2,L150,D8,causal,W13");
  attention_check_equal("compressed:B2,H2,L150,D8,N3,slots=3,select=150,kernel", "dense:B2,H2,L150,D8,causal,kernel");
}

/* The same bits with 1 to 4 threads, one head or many, in every result. */
static void test_threads(void **state) {
  (void)state;
  static const char *const cases[] = {
      "compressed:B1,H1,L1330,D16,N16,slots=2,select=8",      "compressed:B1,H2,K1,L1200,D16,N8,kept=20,globals=4",
      "compressed:B2,H4,K2,L900,D8,N16,starts,seed=2",        "compressed:B1,H1,L600,D8,N8,dropout=0.2,kept=9,globals=3",
      "compressed:B3,H1,L700,D8,N8,lengths,slots=4",          "compressed:B1,H1,L1200,D8,N300,slots=64",
      "compressed:B1,H2,K1,L1100,D8,N16,slots=2,kernel",      "compressed:B3,H2,L500,D8,N8,starts,mask,shared",
      "compressed:B1,H1,L900,D8,N8,kept=9,kernel,dropout=0.2"};
  static const int64_t threads[] = {2, 3, 4};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
    for (int m = 0; m < attention_machine_count; m++) {
      attention_problem problem;
      attention_problem_make(cases[i], &problem);
      attention_same_with_threads(&attention_machines[m], &problem, cases[i], sizeof threads / sizeof threads[0], threads);
      attention_problem_free(&problem);
    }
}

/* Rows from `from` on have other numbers; starts of chunks there are taken away. */
static void change_later(attention_problem *p, int64_t from) {
  const attention_case *c = &p->is;
  const attention_array arrays[] = {ARRAY_QUERY, ARRAY_KEY, ARRAY_VALUE};
  for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++) {
    attention_numbers *a = &p->array[arrays[i]];
    for (int64_t at = 0; at < a->count; at++)
      if (at / a->shape[3] % a->shape[2] >= from) a->data[at] = arrays[i] == ARRAY_VALUE ? 1e30 : 100 - 3 * a->data[at];
  }
  for (int64_t b = 0; p->chunk_starts != NULL && b < c->batch; b++)
    for (int64_t row = from; row < c->keys; row++) p->chunk_starts[b * c->keys + row] = 0;
}

/* Compares a problem whose numbers were changed with its definition. */
static void check_problem(const attention_problem *problem) {
  attention_expected expected;
  attention_expected_make(problem, &expected);
  for (int m = 0; m < attention_machine_count; m++) {
    attention_results results;
    if (!attention_run_on(&attention_machines[m], problem, &results)) continue;
    assert_int_equal(attention_compare(&attention_machines[m], problem, &expected, &results), 0);
    attention_results_free(&results);
  }
  attention_expected_free(&expected);
}

/* Of equal logits the first slots are selected: keys that repeat, queries of zeros, in lists and in buffers. */
static void test_equal_logits(void **state) {
  (void)state;
  static const char *const cases[] = {"compressed:H2,L60,D4,V3,N1,select=2", "compressed:H2,L90,D4,V3,N4,slots=4,select=6",
                                      "compressed:H1,L150,D3,V2,N1,select=5,kept=40,globals=3", "compressed:H1,L260,D3,V2,N1,select=70",
                                      "compressed:H1,L300,D3,V2,N2,slots=2,select=65"};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
    for (int64_t period = 1; period <= 9; period += 4) {
      attention_problem p;
      attention_problem_make(cases[i], &p);
      attention_numbers *k = &p.array[ARRAY_KEY], *q = &p.array[ARRAY_QUERY];
      const int64_t width = k->shape[3], rows = k->shape[2];
      for (int64_t at = 0; at < k->count; at++)
        k->data[at] = k->data[at / (rows * width) * rows * width + at / width % rows % period * width + at % width];
      for (int64_t at = 0; at < q->count; at++)
        if (at / width % rows % 11 == 3) q->data[at] = 0;
      check_problem(&p);
      attention_problem_free(&p);
    }
}

/* Makes a case whose table is that of quarters, or with `constant` of zeros, each plus `factor`, which f32 has, too. */
static void make_factored(const char *name, double factor, bool constant, attention_problem *p) {
  attention_problem_make(name, p);
  attention_numbers *const table = &p->array[ARRAY_LOG_KERNEL];
  for (int64_t at = 0; at < table->count; at++)
    if (isfinite(table->data[at])) table->data[at] = factor + (constant ? 0 : round(4 * table->data[at]) / 4);
}

/* A factor of G changes no weight and no gradient, and log-sum-exp by its logarithm, whatever its size. */
static void test_factors_of_the_kernel(void **state) {
  (void)state;
  static const char *const cases[] = {"compressed:B1,H1,L150,D8,N8,kernel", "compressed:B1,H1,L100,D8,N8,slots=8,select=90,kernel",
                                      "compressed:B1,H2,L120,D8,N16,slots=2,shared,mask", "compressed:B1,H1,L120,D8,N8,kernel,hiding"};
  static const double factors[] = {-1e9, -1e4, 300, 1048576};
  static const int compared[] = {ARRAY_OUT, ARRAY_DQUERY, ARRAY_DKEY, ARRAY_DVALUE, ARRAY_DLOG_KERNEL};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
    for (size_t f = 0; f < sizeof factors / sizeof *factors; f++)
      for (int m = 0; m < attention_machine_count; m++) {
        attention_problem plain, factored;
        attention_results expected, is;
        const bool constant = fabs(factors[f]) > 1e8;
        make_factored(cases[i], 0, constant, &plain);
        make_factored(cases[i], factors[f], constant, &factored);
        const bool ran =
            attention_run_on(&attention_machines[m], &plain, &expected) && attention_run_on(&attention_machines[m], &factored, &is);
        for (size_t c = 0; ran && c < sizeof compared / sizeof *compared; c++) {
          const int array = compared[c];
          double largest = 0;
          for (int64_t at = 0; at < is.count[array]; at++) largest = fmax(largest, fabs(expected.data[array][at]));
          for (int64_t at = 0; at < is.count[array]; at++)
            if (!(fabs(is.data[array][at] - expected.data[array][at]) <= 3e-5 * largest))
              fail_msg("'%s' times e^%g on %s: %s[%" PRId64 "] is %.9g, expected %.9g", cases[i], factors[f], attention_machines[m].name,
                       attention_array_names[array], at, is.data[array][at], expected.data[array][at]);
        }
        for (int64_t at = 0; ran && at < is.count[ARRAY_LSE]; at++) {
          const double lse = expected.data[ARRAY_LSE][at] + factors[f];
          if (is.data[ARRAY_LSE][at] != lse && !(fabs(is.data[ARRAY_LSE][at] - lse) <= 1e-6 * (1 + fabs(lse))))
            fail_msg("'%s' times e^%g on %s: log_sum_exp[%" PRId64 "] is %.9g, expected %.9g", cases[i], factors[f],
                     attention_machines[m].name, at, is.data[ARRAY_LSE][at], lse);
        }
        if (ran) attention_results_free(&expected);
        if (ran) attention_results_free(&is);
        attention_problem_free(&plain);
        attention_problem_free(&factored);
      }
}

/* Weights that are rounded to 0 stay 0 if later rows are not finite. */
static void test_faint_weights(void **state) {
  (void)state;
  for (int m = 0; m < attention_machine_count; m++) {
    attention_results results[2];
    bool ran = true;
    for (int later = 0; later < 2; later++) {
      attention_problem p;
      attention_problem_make("compressed:L130,D1,V1,N16,select=3", &p);
      for (int64_t n = 0; n < 130; n++) {
        p.array[ARRAY_QUERY].data[n] = 1;
        p.array[ARRAY_KEY].data[n] = n % 9 == 0 ? 200 : 0;
        p.array[ARRAY_VALUE].data[n] = n % 9 == 0 ? 0 : 1;
      }
      if (later == 1) p.array[ARRAY_KEY].data[129] = p.array[ARRAY_VALUE].data[129] = NAN;
      ran = ran && attention_run_on(&attention_machines[m], &p, &results[later]);
      attention_problem_free(&p);
    }
    for (int64_t n = 0; ran && n < 129; n++)
      if (memcmp(&results[0].data[ARRAY_OUT][n], &results[1].data[ARRAY_OUT][n], sizeof(double)) != 0 ||
          memcmp(&results[0].data[ARRAY_DQUERY][n], &results[1].data[ARRAY_DQUERY][n], sizeof(double)) != 0)
        fail_msg("%s: row %d is %g after a later NaN, %g without it", attention_machines[m].name, (int)n, results[1].data[ARRAY_OUT][n],
                 results[0].data[ARRAY_OUT][n]);
    for (int later = 0; ran && later < 2; later++) attention_results_free(&results[later]);
  }
}

/* No later row changes a bit of a row's output. */
static void test_causality(void **state) {
  (void)state;
  static const char *const cases[] = {"compressed:B2,H2,L260,D16,N16,slots=4,select=6", "compressed:B2,H2,L260,D16,N8,starts,select=3",
                                      "compressed:B1,H4,K2,L260,D16,N8,kept=5,globals=4"};
  static const int64_t cuts[] = {1, 15, 16, 17, 63, 64, 65, 128, 200, 259};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
    for (int m = 0; m < attention_machine_count; m++)
      for (size_t k = 0; k < sizeof cuts / sizeof cuts[0]; k++) {
        attention_problem one, other;
        attention_results first, second;
        attention_problem_make(cases[i], &one);
        attention_problem_make(cases[i], &other);
        change_later(&other, cuts[k]);
        const bool ran =
            attention_run_on(&attention_machines[m], &one, &first) && attention_run_on(&attention_machines[m], &other, &second);
        const int64_t width = one.is.value_dim, rows = one.is.queries;
        for (int64_t at = 0; ran && at < first.count[ARRAY_OUT]; at++)
          if (at / width % rows < cuts[k] && memcmp(&first.data[ARRAY_OUT][at], &second.data[ARRAY_OUT][at], sizeof(double)) != 0)
            fail_msg("'%s' on %s: row %" PRId64 " depends on row %" PRId64 " or a later one", cases[i], attention_machines[m].name,
                     at / width % rows, cuts[k]);
        if (ran) {
          attention_results_free(&first);
          attention_results_free(&second);
        }
        attention_problem_free(&one);
        attention_problem_free(&other);
      }
}

static void test_rows_sum_to_one(void **state) {
  (void)state;
  for (int m = 0; m < attention_machine_count; m++) {
    hark_context *context = attention_machine_open(&attention_machines[m], 1);
    if (context == NULL) continue;
    hark_context_destroy(&context);
    attention_rows_sum_to_one(&attention_machines[m], "compressed:B2,H2,L700,D8,N16,slots=4,mask");
    attention_rows_sum_to_one(&attention_machines[m], "compressed:B2,H2,L700,D8,N8,kept=7,globals=5,starts");
    attention_rows_sum_to_one(&attention_machines[m], "compressed:B2,H2,L700,D8,N16,slots=4,kernel,seed=5");
  }
}

/* A start too near the one before it is refused, with its place; one on the first row, and ends of sequences, are not. */
static void test_near_starts(void **state) {
  (void)state;
  static const struct {
    int64_t starts[3]; /* of item 1 */
    const char *message;
  } cases[] = {{{0, 4, 10}, NULL},
               {{4, 8, 19}, NULL},
               {{4, 7, 12}, "chunk_starts has a start at row 7 of item 1, 3 rows after"},
               {{2, 8, 12}, "chunk_starts has a start at row 2 of item 1, 2 rows after"}};
  static const char *const names[] = {"reference", "cpu"};
  enum { ROWS = 20 };
  float numbers[2 * ROWS] = {0}, out[2 * ROWS];
  for (size_t k = 0; k < 2 * sizeof cases / sizeof cases[0]; k++) {
    hark_context *context;
    hark_context_options options = {.struct_size = sizeof options, .backend = names[k % 2]};
    assert_int_equal(hark_context_create(&options, &context), HARK_OK);
    hark_attention_desc desc = hark_attention_desc_default();
    desc.structure = HARK_STRUCTURE_COMPRESSED;
    desc.batch = 2;
    desc.heads = desc.head_dim = 1;
    desc.query_length = desc.key_length = ROWS;
    desc.causal = desc.forward_only = true;
    desc.chunk = 4;
    desc.has_chunk_starts = 1;
    hark_attention_plan *plan;
    assert_int_equal(hark_attention_plan_create(context, &desc, &plan), HARK_OK);
    const hark_attention_sizes sizes = hark_attention_plan_sizes(plan);
    void *workspace = aligned_alloc(64, (sizes.forward_workspace + 63) / 64 * 64);
    uint8_t starts[2 * ROWS] = {0};
    for (int i = 0; i < 3; i++) starts[ROWS + cases[k / 2].starts[i]] = 1;
    const int64_t shape[] = {2, 1, ROWS, 1}, starts_shape[] = {2, ROWS};
    float saved[16] = {0};
    hark_attention_args args = {.struct_size = sizeof args, .workspace = workspace, .saved = saved}; /* which is not touched */
    hark_tensor *const inputs[] = {&args.query, &args.key, &args.value};
    for (int i = 0; i < 3; i++) assert_int_equal(hark_tensor_wrap(context, numbers, HARK_F32, 4, shape, NULL, inputs[i]), HARK_OK);
    assert_int_equal(hark_tensor_wrap(context, out, HARK_F32, 4, shape, NULL, &args.out), HARK_OK);
    assert_int_equal(hark_tensor_wrap(context, starts, HARK_U8, 2, starts_shape, NULL, &args.chunk_starts), HARK_OK);
    const hark_status status = hark_attention_forward(context, plan, &args);
    const char *message = cases[k / 2].message;
    if (status != (message == NULL ? HARK_OK : HARK_INVALID_ARGUMENT) ||
        (message != NULL && strstr(hark_context_message(context), message) == NULL))
      fail_msg("case %zu on %s: '%s'", k / 2, names[k % 2], hark_context_message(context));
    for (int i = 0; i < 16; i++) assert_true(saved[i] == 0);
    free(workspace);
    hark_attention_plan_destroy(context, &plan);
    hark_context_destroy(&context);
  }
}

int main(int argument_count, char **arguments) {
  if (argument_count > 1) {
    int failures = 0;
    for (int i = 1; i < argument_count; i++) failures += attention_check_case(arguments[i], true);
    return failures > 0;
  }
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_shapes),        cmocka_unit_test(test_options),
                                     cmocka_unit_test(test_limits),        cmocka_unit_test(test_threads),
                                     cmocka_unit_test(test_causality),     cmocka_unit_test(test_rows_sum_to_one),
                                     cmocka_unit_test(test_near_starts),   cmocka_unit_test(test_equal_logits),
                                     cmocka_unit_test(test_faint_weights), cmocka_unit_test(test_factors_of_the_kernel)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
