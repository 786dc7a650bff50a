/* test_bf16.c - attention with product_type bf16: the same bits with the processor's dot products and without, and for every number of
 * threads; results that differ from those in f64 by roundings of operands; f32 where the products stay f32.
 *
 * With u = 2^-8, a logit changes by at most e = (2 u + u^2) scale sum |q k|, so that a weight changes by a factor of at most exp(2 e), and is
 * rounded, as the values are: an output differs from the exact one by at most (exp(2 e) (1 + u)^2 - 1) sum P |v|. In the cases below e
 * is below 1/8. Gradients are compared in norm, with the same factor for each of the two products that make them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "backend/cpu/state.h"
#include "support/attention_run.h"

#define U 0x1p-8

static const char *const cases[] = {
    "dense:B2,H2,L64,D64",
    "dense:L130,S195,D64,causal,offset=65",
    "dense:B2,H4,K2,L65,S70,D7,V5,causal",
    "dense:H2,L67,S61,D19,V33",
    "dense:H2,L131,D16,causal,dropout=0.2",
    "dense:L77,S77,D24,mask=3",
    "dense:B3,H2,L90,D32,lengths,causal",
    "dense:H2,L150,D32,segments,accumulate",
    "window:H2,L200,D32,W17,causal",
    "window:L150,D16,W9",
    "dense:H3,L3,D64",
    "dense:L1,S100,D32",
};
enum { CASES = sizeof cases / sizeof *cases };

static const attention_array results_of[] = {ARRAY_OUT, ARRAY_LSE, ARRAY_DQUERY, ARRAY_DKEY, ARRAY_DVALUE};
enum { RESULTS = sizeof results_of / sizeof *results_of };

static bool open_machine(const attention_machine *machine, int64_t threads, hark_context **out) {
  if (strcmp(machine->backend, "cpu") != 0 || machine->type != HARK_F32) return false;
  *out = attention_machine_open(machine, threads);
  return *out != NULL;
}

static void make(const char *text, bool half, attention_problem *p) {
  attention_problem_make(text, p);
  p->is.half = half;
}

/* With and without the instruction, on one and on three threads. */
static void the_same_bits(void **state) {
  (void)state;
  int compared = 0;
  for (int m = 0; m < attention_machine_count; m++)
    for (int i = 0; i < CASES; i++) {
      hark_context *context = NULL;
      attention_problem p;
      attention_results first, second, third;
      if (!open_machine(&attention_machines[m], 1, &context)) continue;
      make(cases[i], true, &p);
      hark_cpu_state *const own = context->backend_state;
      attention_run(context, HARK_F32, &p, &first);
      own->bf16_dots = false;
      attention_run(context, HARK_F32, &p, &second);
      hark_context_destroy(&context);
      assert_true(open_machine(&attention_machines[m], 3, &context));
      attention_run(context, HARK_F32, &p, &third);
      for (int k = 0; k < RESULTS; k++) {
        attention_same_bits("without the instruction", cases[i], results_of[k], &first, &second);
        attention_same_bits("on three threads", cases[i], results_of[k], &first, &third);
      }
      hark_context_destroy(&context);
      attention_results_free(&third);
      attention_results_free(&second);
      attention_results_free(&first);
      attention_problem_free(&p);
      compared++;
    }
  assert_true(compared >= CASES);
}

static double distance(const attention_results *a, const attention_results *b, attention_array array) {
  double difference = 0, size = 0;
  for (int64_t i = 0; i < a->count[array]; i++) {
    const double x = a->data[array][i], y = b->data[array][i];
    if (!isfinite(y)) {
      assert_true(x == y);
      continue;
    }
    difference += (x - y) * (x - y);
    size += y * y;
  }
  return size > 0 ? sqrt(difference / size) : 0;
}

static void results_differ_by_roundings(void **state) {
  (void)state;
  const double e = 0.125, factor = exp(2 * e) * (1 + U) * (1 + U) - 1;
  int compared = 0;
  for (int i = 0; i < CASES; i++) {
    attention_problem p;
    attention_results expected, found;
    make(cases[i], true, &p);
    p.accumulate = 0;
    assert_true(attention_run_on(ATTENTION_ORACLE, &p, &expected));
    for (int m = 0; m < attention_machine_count; m++) {
      hark_context *context = NULL;
      if (!open_machine(&attention_machines[m], 2, &context)) continue;
      attention_run(context, HARK_F32, &p, &found);
      for (int k = 0; k < RESULTS; k++) {
        const double relative = distance(&found, &expected, results_of[k]);
        /* far below the bound, as roundings are not all in one direction: a wrong pair would be above */
        if (relative > factor / 8)
          fail_msg("'%s' on %s: %s is off by %g", cases[i], attention_machines[m].name, attention_array_names[results_of[k]], relative);
      }
      const bool is_short = p.is.queries <= 8; /* computed in f32 */
      if (!is_short && distance(&found, &expected, ARRAY_OUT) < 1e-4) fail_msg("'%s': nothing was rounded", cases[i]);
      attention_results_free(&found);
      hark_context_destroy(&context);
      compared++;
    }
    attention_results_free(&expected);
    attention_problem_free(&p);
  }
  assert_true(compared >= CASES);
}

/* Distances, terms that add numbers, and structures that do not use it: as without. */
static void what_stays_f32(void **state) {
  (void)state;
  static const char *const plain[] = {"dense:H2,L70,D16,rbf", "dense:H2,L70,D16,bias=3", "dense:H2,L70,D16,causal,forget",
                                      "dense:H2,L70,D16,kernel,causal", "hierarchical:H2,L96,D16,N8"};
  for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
    for (int m = 0; m < attention_machine_count; m++) {
      hark_context *context = NULL;
      attention_problem with, without;
      attention_results a, b;
      if (!open_machine(&attention_machines[m], 2, &context)) continue;
      make(plain[i], true, &with);
      make(plain[i], false, &without);
      attention_run(context, HARK_F32, &with, &a);
      attention_run(context, HARK_F32, &without, &b);
      for (int k = 0; k < RESULTS; k++) attention_same_bits("f32", plain[i], results_of[k], &a, &b);
      attention_results_free(&b);
      attention_results_free(&a);
      attention_problem_free(&without);
      attention_problem_free(&with);
      hark_context_destroy(&context);
    }
}

/* A visible NaN reaches its rows, and hidden numbers have no effect on whether a result is finite. */
static void not_finite_numbers(void **state) {
  (void)state;
  for (int m = 0; m < attention_machine_count; m++) {
    hark_context *context = NULL;
    attention_problem p;
    attention_results r;
    if (!open_machine(&attention_machines[m], 1, &context)) continue;
    make("dense:L100,D16,causal", true, &p);
    for (int c = 0; c < 16; c++) p.array[ARRAY_VALUE].data[70 * 16 + c] = NAN; /* rows from 70 on see it */
    attention_run(context, HARK_F32, &p, &r);
    for (int64_t row = 0; row < 100; row++)
      for (int c = 0; c < 16; c++) assert_int_equal(isnan(r.data[ARRAY_OUT][row * 16 + c]) != 0, row >= 70);
    attention_results_free(&r);
    attention_problem_free(&p);
    hark_context_destroy(&context);
  }
}

static void other_types_are_refused(void **state) {
  (void)state;
  hark_context *context = attention_machine_open(ATTENTION_ORACLE, 1);
  hark_attention_desc desc = hark_attention_desc_default();
  desc.batch = desc.heads = desc.query_length = desc.key_length = desc.head_dim = 4;
  desc.type = HARK_F64;
  desc.product_type = HARK_BF16;
  assert_int_equal(hark_attention_supports(context, &desc), HARK_INVALID_ARGUMENT);
  assert_string_equal(hark_context_message(context), "attention: product_type is bf16 with type f64, expected none, or bf16 with type f32");
  desc.type = HARK_F32;
  assert_int_equal(hark_attention_supports(context, &desc), HARK_OK);
  desc.product_type = HARK_F16;
  assert_int_equal(hark_attention_supports(context, &desc), HARK_INVALID_ARGUMENT);
  hark_context_destroy(&context);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(the_same_bits), cmocka_unit_test(results_differ_by_roundings),
                                     cmocka_unit_test(what_stays_f32), cmocka_unit_test(not_finite_numbers),
                                     cmocka_unit_test(other_types_are_refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
