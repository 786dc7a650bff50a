/* test_cme_conjugate.c - kernel ridge (CME) attention by conjugate gradients: results and gradients on every machine against the reference,
 * which computes its definition with a factor; the same bits for any number of threads; memory; and what is refused.
 *
 *     test_cme_conjugate 'cme:B1,H1,L20,S700,D5,rbf,iterate'    these cases alone, with the differences found
 */
#include "kernel_ridge_case.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* f32 kernels have errors of 1e-6; the rest is the condition number. */
static const struct {
  const char *text;
  double wide, narrow; /* bounds for f64 and f32, relative to the largest element */
} cases[] = {
    {"cme:B1,H1,L1,D1,iterate", 1e-9, 1e-5},
    {"cme:B1,H2,L3,S70,D4,rbf,iterate,noise,ridge=0", 1e-9, 1e-4},
    {"cme:B2,H4,K2,L17,S90,D5,V3,rbf,iterate,noise,layout=1,accumulate,heads", 1e-9, 1e-4},
    {"cme:B2,H4,K2,L17,S70,D5,V3,learned,iterate,quadratic,dvariance,accumulate", 1e-9, 2e-4},
    {"cme:B1,H2,L21,S150,D7,unit,iterate,heads,quadratic", 1e-9, 2e-3},
    {"cme:B1,H2,L21,S90,D7,bound,iterate,heads,dvariance,quadratic", 1e-9, 5e-3},
    {"cme:B2,H2,L20,S20,D6,mask,perhead,rbf,iterate,power,dvariance", 1e-9, 1e-4},
    {"cme:B1,H2,L45,S90,D5,rbf,far,ragged,iterate,dvariance,noise", 1e-9, 1e-3},
    {"cme:B3,H2,L11,D4,lengths,heads,rbf,iterate,dvariance", 1e-9, 1e-4},
    {"cme:B2,H3,L99,D4,segments,learned,iterate,quadratic,noise", 1e-9, 1e-4},
    {"cme:B1,H1,L40,S400,D5,V3,rbf,iterate,heads,dvariance,quadratic,ridge=0.05,tolerance=1e-12", 1e-9, 1e-3},
    {"cme:B1,H1,L30,S641,D16,V70,rbf,iterate,ridge=0.1", 1e-8, 1e-4},
    {"cme:B1,H1,L30,S600,D4,unit,iterate,heads,ridge=0.5", 1e-6, 1e-2},
    {"cme:B1,H1,L20,S500,D5,V2,rbf,iterate,noise,uneven,ridge=0.001,tolerance=1e-12", 1e-8, 2e-2},
    {"cme:B1,H1,L20,S400,D3,V2,rbf,iterate,equal,ridge=1e-4,tolerance=1e-9", 1e-4, 0}, /* 0: M is worse than f32 */
};

static double largest(const double *x, int64_t count) {
  double size = 0;
  for (int64_t i = 0; i < count; i++) size = fmax(size, fabs(x[i]));
  return size;
}

/* Up to 256 keys the preconditioner is M itself. Otherwise the log-determinant is an estimate. */
static double bound_of(const ridge_problem *p, ridge_array array, double bound) {
  return array == RIDGE_LOG_DETERMINANT && p->keys > 256 ? 0.05 : bound;
}

static int compare(const ridge_problem *p, const attention_machine *machine, double bound, const ridge_results *want, bool verbose) {
  ridge_results have;
  int failed = 0;
  if (!ridge_run_on(machine, p, &have)) return 0;
  if (have.status != HARK_OK) fail_msg("%s on %s: %s", p->text, machine->name, have.message);
  for (int a = RIDGE_OUT; a < RIDGE_ARRAYS; a++) {
    if (want->array[a] == NULL) continue;
    const int64_t count = ridge_count_of(p, (ridge_array)a);
    const double size = fmax(largest(want->array[a], count), a == RIDGE_VARIANCE ? 1 : 0);
    double worst = 0;
    for (int64_t i = 0; i < count; i++) {
      const double error = fabs(have.array[a][i] - want->array[a][i]);
      if (!(error <= worst)) worst = isnan(error) ? INFINITY : error;
    }
    if (verbose) printf("%s on %s: %s differs by %.2g\n", p->text, machine->name, ridge_array_names[a], worst / size);
    if (worst <= bound_of(p, (ridge_array)a, bound) * size) continue;
    print_error("%s on %s: %s differs by %.3g of %.3g from the reference\n", p->text, machine->name, ridge_array_names[a], worst, size);
    failed++;
  }
  ridge_results_free(&have);
  return failed;
}

static int check(const char *text, double wide, double narrow, bool verbose) {
  ridge_problem p;
  ridge_results want;
  int failed = 0;
  ridge_problem_make(text, &p);
  ridge_run_on(ATTENTION_ORACLE, &p, &want);
  if (want.status != HARK_OK) fail_msg("%s: %s", text, want.message);
  for (int m = 0; m < attention_machine_count; m++) {
    const bool is_narrow = attention_machines[m].type == HARK_F32;
    if (is_narrow && narrow == 0) continue;
    failed += compare(&p, &attention_machines[m], is_narrow ? narrow : wide, &want, verbose);
  }
  ridge_results_free(&want);
  ridge_problem_free(&p);
  return failed;
}

static void test_reference(void **state) {
  (void)state;
  int failed = 0;
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) failed += check(cases[i].text, cases[i].wide, cases[i].narrow, false);
  assert_int_equal(failed, 0);
}

static void test_threads(void **state) {
  static const char *const texts[] = {"cme:B1,H1,L40,S400,D5,V3,rbf,iterate,learned,dvariance,quadratic,noise,threads=1",
                                      "cme:B1,H2,L70,S300,D5,V3,iterate,learned,quadratic,mask,threads=1"};
  (void)state;
  for (size_t t = 0; t < sizeof texts / sizeof texts[0]; t++)
    for (int m = 0; m < attention_machine_count; m++) {
      ridge_problem p;
      ridge_results one, more;
      ridge_problem_make(texts[t], &p);
      if (ridge_run_on(&attention_machines[m], &p, &one)) {
        assert_int_equal(one.status, HARK_OK);
        for (p.threads = 2; p.threads <= 3; p.threads++) {
          assert_true(ridge_run_on(&attention_machines[m], &p, &more));
          for (int a = RIDGE_OUT; a < RIDGE_ARRAYS; a++)
            if (one.array[a] != NULL)
              assert_memory_equal(one.array[a], more.array[a], (size_t)ridge_count_of(&p, (ridge_array)a) * sizeof(double));
          ridge_results_free(&more);
        }
        ridge_results_free(&one);
      }
      ridge_problem_free(&p);
    }
}

static bool iterates(const attention_machine *machine) { return strncmp(machine->name, "reference", 9) != 0; }

/* Too few iterations: an error with residual and number, and no NaN or infinity in its words. With enough, the report counts them. */
static void test_convergence(void **state) {
  (void)state;
  for (int m = 0; m < attention_machine_count; m++) {
    ridge_problem p;
    ridge_results have;
    ridge_problem_make("cme:B1,H1,L5,S500,D8,V2,rbf,iterate,plain,ridge=0.001,iterations=3", &p);
    if (iterates(&attention_machines[m]) && ridge_run_on(&attention_machines[m], &p, &have)) {
      assert_int_equal(have.status, HARK_INVALID_ARGUMENT);
      if (strstr(have.message, "after 3 iterations of conjugate gradients") == NULL || strstr(have.message, "residual is ") == NULL)
        fail_msg("%s: %s", attention_machines[m].name, have.message);
      assert_null(strstr(have.message, "residual is nan"));
      assert_null(strstr(have.message, "residual is inf"));
      for (int64_t i = 0; i < ridge_count_of(&p, RIDGE_OUT); i++) assert_true(isnan(have.array[RIDGE_OUT][i])); /* not written */
      ridge_results_free(&have);
      p.iterations = 0;
      assert_true(ridge_run_on(&attention_machines[m], &p, &have));
      assert_int_equal(have.status, HARK_OK);
      assert_true(have.report.iterations > 3 && have.report.iterations < 1000);
      ridge_results_free(&have);
    }
    ridge_problem_free(&p);
  }
}

static size_t workspace_of(hark_context *context, hark_type type, int64_t keys, bool backward) {
  ridge_problem p;
  hark_attention_plan *plan;
  ridge_problem_make("cme:B1,H1,L64,S64,D8,V2,rbf,iterate,dvariance,quadratic,noise", &p);
  hark_attention_desc desc = ridge_problem_desc(&p, type);
  desc.key_length = keys;
  assert_int_equal(hark_attention_plan_create(context, &desc, &plan), HARK_OK);
  const hark_attention_sizes sizes = hark_attention_plan_sizes(plan);
  hark_attention_plan_destroy(context, &plan);
  ridge_problem_free(&p);
  return backward ? sizes.backward_workspace : sizes.forward_workspace;
}

/* Memory grows with the number of keys, not with its square. */
static void test_memory(void **state) {
  (void)state;
  for (int m = 0; m < attention_machine_count; m++) {
    if (!iterates(&attention_machines[m])) continue;
    hark_context *context = attention_machine_open(&attention_machines[m], 2);
    for (int backward = 0; backward < 2 && context != NULL; backward++) {
      const size_t once = workspace_of(context, attention_machines[m].type, 20000, backward != 0),
                   twice = workspace_of(context, attention_machines[m].type, 40000, backward != 0);
      assert_true(twice > once && twice < 2 * once + once / 8);
    }
    if (context != NULL) hark_context_destroy(&context);
  }
}

static void expect_refusal(hark_context *context, const hark_attention_desc *desc, hark_status status, const char *words) {
  assert_int_equal(hark_attention_supports(context, desc), status);
  if (strstr(hark_context_message(context), words) == NULL) fail_msg("%s: expected '%s'", hark_context_message(context), words);
}

static void test_refusals(void **state) {
  (void)state;
  ridge_problem p;
  hark_context *context = attention_machine_open(ATTENTION_ORACLE, 1);
  ridge_problem_make("cme:B1,H1,L8,S8,D8,V2,rbf,iterate", &p);
  const hark_attention_desc fine = ridge_problem_desc(&p, HARK_F64);
  assert_int_equal(hark_attention_supports(context, &fine), HARK_OK);
  hark_attention_desc desc = fine;
  desc.causal = true;
  expect_refusal(context, &desc, HARK_UNSUPPORTED, "causal is set with solver conjugate gradients");
  desc = fine;
  desc.has_log_kernel = true;
  expect_refusal(context, &desc, HARK_UNSUPPORTED, "has_log_kernel is set with solver conjugate gradients");
  desc = fine;
  desc.has_dlog_determinant = 1;
  expect_refusal(context, &desc, HARK_UNSUPPORTED, "has_dlog_determinant is set with solver conjugate gradients");
  desc = fine;
  desc.solver = 2;
  expect_refusal(context, &desc, HARK_INVALID_ARGUMENT, "solver is 2");
  desc = fine;
  desc.solver_tolerance = 1;
  expect_refusal(context, &desc, HARK_INVALID_ARGUMENT, "solver_tolerance is 1");
  desc.solver_tolerance = NAN;
  expect_refusal(context, &desc, HARK_INVALID_ARGUMENT, "solver_tolerance is nan");
  desc = fine;
  desc.solver_iterations = -1;
  expect_refusal(context, &desc, HARK_INVALID_ARGUMENT, "solver_iterations is -1");
  desc = fine;
  desc.solver = HARK_SOLVER_FACTOR;
  desc.solver_tolerance = 0.5;
  expect_refusal(context, &desc, HARK_UNSUPPORTED, "solver_tolerance is set with solver factor");
  desc = hark_attention_desc_default();
  desc.batch = desc.heads = desc.key_heads = desc.query_length = desc.key_length = desc.head_dim = desc.value_dim = 1;
  desc.solver = HARK_SOLVER_CONJUGATE_GRADIENTS;
  expect_refusal(context, &desc, HARK_UNSUPPORTED, "solver is 1 with normalisation softmax");
  ridge_problem_free(&p);
  hark_context_destroy(&context);
}

int main(int argc, char **argv) {
  int failed = 0;
  for (int i = 1; i < argc; i++) failed += check(argv[i], 1e-6, 1e-2, true);
  if (argc > 1) return failed > 0;
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_reference), cmocka_unit_test(test_threads), cmocka_unit_test(test_convergence),
                                     cmocka_unit_test(test_memory), cmocka_unit_test(test_refusals)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
