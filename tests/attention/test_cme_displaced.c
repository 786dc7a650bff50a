/* test_cme_displaced.c - kernel ridge (CME) attention by the Gaussian kernel knows distances alone: queries and keys of a case are moved
 * far from the origin in several ways, and out, variance and all gradients of f32 are compared with the reference in f64, which takes
 * differences.
 *
 *     test_cme_displaced 'cme:B1,H1,L128,D16,rbf' first 200      one case again
 */
#include "kernel_ridge_case.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum displacement {
  FIRST,    /* the first key alone */
  SHIFT,    /* all rows */
  CLUSTERS, /* queries and keys to one of two places */
  THREE,    /* to one of three, the first key to the one that is left out otherwise */
  DRIFT,    /* by position: the last row by all of it */
  OTHERS,   /* all but the first key */
  QUERIES,  /* queries alone: their kernels are zero */
  DISPLACEMENTS
} displacement;

static const char *const names[DISPLACEMENTS] = {"first", "shift", "clusters", "three", "drift", "others", "queries"};

static double place_of(displacement how, bool key, int64_t row, int64_t rows) {
  const int coin = (int)((uint64_t)(row * 2654435761 + key * 40503) % 1021 / 7 % 2);
  switch (how) {
    case FIRST: return key && row == 0;
    case SHIFT: return 1;
    case CLUSTERS: return coin;
    case THREE: return key && row == 0 ? -2 : coin == 0 ? -0.5 : 1;
    case DRIFT: return (double)row / (double)rows;
    case OTHERS: return !key || row > 0;
    case QUERIES: return !key;
    case DISPLACEMENTS: break;
  }
  return 0;
}

static void displace(ridge_problem *p, displacement how, double far) {
  for (int array = RIDGE_QUERY; array <= RIDGE_KEY; array++) {
    const int64_t rows = array == RIDGE_KEY ? p->keys : p->queries, d = p->head_dim;
    for (int64_t i = 0; i < p->count[array]; i++) {
      const double by = far * p->sigma * place_of(how, array == RIDGE_KEY, i / d % rows, rows) / sqrt((double)d);
      p->array[array][i] = (double)(float)(p->array[array][i] + (i % d % 2 == 0 ? by : -by));
    }
  }
}

/* Kernels are off by at most 2^-24 x 32 of themselves, 2e-6; what solving makes of it is at most the condition, keys / lambda, and some ten
 * here. Of the largest element, or of 1; gradients of ridge and sigma are sums of all elements of both signs. Rows that lie where they were
 * drawn are as far off: 8e-6, and 2e-5 of sigma's gradient. */
#define WITHIN 4e-5
#define SUMS_WITHIN 4e-4

static int compare(const attention_machine *machine, const ridge_problem *p, const ridge_results *want, const ridge_results *have,
                   const char *what, bool print) {
  int failed = 0;
  for (int array = RIDGE_OUT; array < RIDGE_ARRAYS; array++) {
    if (want->array[array] == NULL || have->array[array] == NULL) continue;
    double largest = 1, worst = 0;
    int64_t at = 0;
    for (int64_t i = 0; i < ridge_count_of(p, (ridge_array)array); i++) largest = fmax(largest, fabs(want->array[array][i]));
    for (int64_t i = 0; i < ridge_count_of(p, (ridge_array)array); i++) {
      const double error = fabs(have->array[array][i] - want->array[array][i]) / largest;
      if (error <= worst) continue;
      worst = isnan(error) ? INFINITY : error;
      at = i;
    }
    if (print) printf("  %-12s %.3g\n", ridge_array_names[array], worst);
    const double within = array == RIDGE_DRIDGE || array == RIDGE_DSIGMA ? SUMS_WITHIN : WITHIN;
    if (worst <= within) continue;
    print_error("'%s' %s on %s: %s[%" PRId64 "] is %.9g, expected %.9g: %.3g of the largest, allowed %.3g\n", p->text, what, machine->name,
                ridge_array_names[array], at, have->array[array][at], want->array[array][at], worst, within);
    failed++;
  }
  return failed;
}

static int check(const char *text, displacement how, double far, bool print) {
  ridge_problem p;
  ridge_results want, have;
  char what[64];
  int failed = 0, ran = 0;
  snprintf(what, sizeof what, "%s %g", names[how], far);
  ridge_problem_make(text, &p);
  displace(&p, how, far);
  assert_true(ridge_run_on(ATTENTION_ORACLE, &p, &want));
  if (want.status != HARK_OK) fail_msg("%s: %s", text, want.message);
  for (int m = 0; m < attention_machine_count; m++) {
    if (attention_machines[m].type != HARK_F32 || !ridge_run_on(&attention_machines[m], &p, &have)) continue;
    if (have.status != HARK_OK) fail_msg("%s %s on %s: %s", text, what, attention_machines[m].name, have.message);
    if (print) printf("%s\n", attention_machines[m].name);
    failed += compare(&attention_machines[m], &p, &want, &have, what, print);
    ridge_results_free(&have);
    ran++;
  }
  assert_true(ran > 0);
  ridge_results_free(&want);
  ridge_problem_free(&p);
  return failed;
}

static const char *const cases[] = {
    "cme:B1,H1,L128,D16,rbf,ridge=0.1,learned",           "cme:B1,H1,L128,D16,V9,causal,rbf,ridge=0.1,learned",
    "cme:B1,H4,K2,L70,S90,D5,rbf,ridge=0.2,heads,kernel", "cme:B2,H2,L75,D7,causal,rbf,mask,perhead,shared,ridge=0.2",
    "cme:B1,H2,L66,D1,causal,rbf,ragged,threads=3",       "cme:B1,H1,L150,S140,D33,rbf,threads=3,layout=1,accumulate",
};

static void test_far_rows(void **state) {
  (void)state;
  static const double distances[] = {3, 10, 17, 40, 200, 2000, 1e5};
  int failed = 0;
  for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++)
    for (int way = 0; way < DISPLACEMENTS; way++)
      for (size_t d = 0; d < sizeof distances / sizeof distances[0]; d++) failed += check(cases[c], (displacement)way, distances[d], false);
  assert_int_equal(failed, 0);
}

/* Kernels of rows so far away that products and squares overflow in f32 are 0, not errors; equal far rows have a kernel of 1. Most far rows
 * are equal in f32, so the ridge is larger than above for a similar condition. */
static void test_overflowing_products(void **state) {
  (void)state;
  static const char *const far_cases[] = {"cme:B1,H1,L128,D16,rbf,ridge=2,learned", "cme:B1,H1,L128,D16,V9,causal,rbf,ridge=1,learned",
                                          "cme:B1,H4,K2,L70,S90,D5,rbf,ridge=1,heads,kernel",
                                          "cme:B2,H2,L75,D7,causal,rbf,mask,perhead,shared,ridge=1",
                                          "cme:B1,H2,L66,D1,causal,rbf,ragged,threads=3"};
  static const double distances[] = {1e19, 1e20, 1e36};
  int failed = 0;
  for (size_t c = 0; c < sizeof far_cases / sizeof far_cases[0]; c++)
    for (int way = 0; way < DISPLACEMENTS; way++)
      for (size_t d = 0; d < sizeof distances / sizeof distances[0]; d++)
        failed += check(far_cases[c], (displacement)way, distances[d], false);
  assert_int_equal(failed, 0);
}

/* Rows of a unit length are compared by what little they differ where sigma is small. */
static void test_unit_rows(void **state) {
  (void)state;
  int failed = 0;
  for (int way = 0; way < DISPLACEMENTS; way++) {
    failed += check("cme:B1,H2,L80,D7,unit,rbf,ridge=0.2,learned", (displacement)way, 30, false);
    failed += check("cme:B1,H2,L80,D7,unit,rbf,causal,ridge=0.2", (displacement)way, 30, false);
  }
  assert_int_equal(failed, 0);
}

/* A query has the same bits alone and among others, though distances of one query are computed one by one, those of many together. */
static void check_alone(const attention_machine *machine, const char *of_all, const char *of_one, double far) {
  ridge_problem p, one;
  ridge_results all, alone;
  ridge_problem_make(of_all, &p);
  ridge_problem_make(of_one, &one);
  displace(&p, DRIFT, far);
  if (ridge_run_on(machine, &p, &all)) {
    const int64_t d = p.head_dim, dv = p.value_dim;
    memcpy(one.array[RIDGE_KEY], p.array[RIDGE_KEY], (size_t)p.count[RIDGE_KEY] * sizeof(double));
    memcpy(one.array[RIDGE_VALUE], p.array[RIDGE_VALUE], (size_t)p.count[RIDGE_VALUE] * sizeof(double));
    for (int64_t row = 0; row < p.queries; row += 7) {
      memcpy(one.array[RIDGE_QUERY], p.array[RIDGE_QUERY] + row * d, (size_t)d * sizeof(double));
      assert_true(ridge_run_on(machine, &one, &alone));
      if (alone.array[RIDGE_VARIANCE][0] != all.array[RIDGE_VARIANCE][row])
        fail_msg("%s by %g on %s: variance[%" PRId64 "] is %.9g, alone %.9g", of_all, far, machine->name, row,
                 all.array[RIDGE_VARIANCE][row], alone.array[RIDGE_VARIANCE][0]);
      for (int64_t c = 0; c < dv; c++)
        if (alone.array[RIDGE_OUT][c] != all.array[RIDGE_OUT][row * dv + c])
          fail_msg("%s by %g on %s: out[%" PRId64 "] is %.9g, alone %.9g", of_all, far, machine->name, row * dv + c,
                   all.array[RIDGE_OUT][row * dv + c], alone.array[RIDGE_OUT][c]);
      ridge_results_free(&alone);
    }
    ridge_results_free(&all);
  }
  ridge_problem_free(&p);
  ridge_problem_free(&one);
}

static void test_queries_alone(void **state) {
  (void)state;
  static const double distances[] = {0, 17, 60};
  static const char *const of_all[] = {"cme:B1,H1,L100,S150,D57,V2,rbf,ridge=0.1", "cme:B1,H1,L73,S201,D33,V1,rbf,ridge=0.1",
                                       "cme:B1,H1,L80,S90,D8,V1,rbf,ridge=0.1"},
                           *const of_one[] = {"cme:B1,H1,L1,S150,D57,V2,rbf,ridge=0.1", "cme:B1,H1,L1,S201,D33,V1,rbf,ridge=0.1",
                                              "cme:B1,H1,L1,S90,D8,V1,rbf,ridge=0.1"};
  for (size_t k = 0; k < sizeof of_all / sizeof of_all[0]; k++)
    for (size_t d = 0; d < sizeof distances / sizeof distances[0]; d++)
      for (int m = 0; m < attention_machine_count; m++) check_alone(&attention_machines[m], of_all[k], of_one[k], distances[d]);
}

/* Rows that come later change no bit, where they lie near and what is seen far, and the other way about. */
static void test_causality(void **state) {
  (void)state;
  static const displacement ways[] = {FIRST, CLUSTERS, DRIFT};
  for (size_t w = 0; w < sizeof ways / sizeof ways[0]; w++)
    for (int m = 0; m < attention_machine_count; m++) {
      ridge_problem p;
      ridge_results before, after;
      ridge_problem_make("cme:B1,H2,L150,D6,causal,rbf,ridge=0.2", &p);
      displace(&p, ways[w], 60);
      if (ridge_run_on(&attention_machines[m], &p, &before)) {
        for (int array = RIDGE_QUERY; array <= RIDGE_KEY; array++)
          for (int64_t i = 0; i < p.count[array]; i++)
            if (i / 6 % 150 >= 70) p.array[array][i] = (double)(float)(p.array[array][i] + (i % 2 == 0 ? 900 : -3));
        assert_true(ridge_run_on(&attention_machines[m], &p, &after));
        for (int64_t i = 0; i < p.count[RIDGE_DOUT]; i++)
          if (i / 6 % 150 < 70 && before.array[RIDGE_OUT][i] != after.array[RIDGE_OUT][i])
            fail_msg("%s on %s: out[%" PRId64 "] was %.9g and is %.9g", names[ways[w]], attention_machines[m].name, i,
                     before.array[RIDGE_OUT][i], after.array[RIDGE_OUT][i]);
        ridge_results_free(&before);
        ridge_results_free(&after);
      }
      ridge_problem_free(&p);
    }
}

/* Any number of threads gives the same bits. */
static void test_threads(void **state) {
  (void)state;
  static const char *const texts[] = {"cme:B1,H1,L300,D6,causal,rbf,learned,kernel", "cme:B1,H1,L300,D6,rbf,learned"};
  static const displacement ways[] = {FIRST, CLUSTERS, DRIFT};
  static const int64_t threads[] = {2, 3, 7};
  for (size_t t = 0; t < sizeof texts / sizeof texts[0]; t++)
    for (size_t w = 0; w < sizeof ways / sizeof ways[0]; w++)
      for (int m = 0; m < attention_machine_count; m++) {
        ridge_problem p;
        ridge_problem_make(texts[t], &p);
        displace(&p, ways[w], 300);
        ridge_assert_same_bits(&attention_machines[m], &p, sizeof threads / sizeof threads[0], threads);
        ridge_problem_free(&p);
      }
}

int main(int argc, char **argv) {
  if (argc == 4) {
    int failed = 0;
    for (int way = 0; way < DISPLACEMENTS; way++)
      if (strcmp(argv[2], names[way]) == 0) failed += check(argv[1], (displacement)way, strtod(argv[3], NULL), true);
    return failed > 0;
  }
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_far_rows),  cmocka_unit_test(test_overflowing_products),
                                     cmocka_unit_test(test_unit_rows), cmocka_unit_test(test_queries_alone),
                                     cmocka_unit_test(test_causality), cmocka_unit_test(test_threads)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
