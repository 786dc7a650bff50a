/* test_cme_long.c - kernel ridge (CME) attention over more than a thousand keys: the f64 reference against elimination at single rows, and
 * f32 on every machine against the reference, out, variance and gradients.
 *
 *     test_cme_long 'cme:B1,H1,L1024,D16,V8,rbf'    these cases alone, with the differences found
 *
 * Bounds. Those of test_cme.c take every rounding to be as bad as it can be, which at these lengths says nothing. Roundings that are as
 * good as random make the error E of M of the order sqrt(n) u instead of n u, and that of a result the same times a constant for the
 * condition of these cases (lambda of 0.01 to 0.375, rows of length one): `part` sqrt(n) u of the largest element, with a part for each
 * case, 128 of them 2.4e-4 at 1024 and 3.5e-4 at 2048 keys; 4 sqrt(n) u of kappa(q, q) for the variance. The parts are two to six times
 * what was found when they were set.
 */
#include "kernel_ridge_case.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define ROUNDOFF 0x1p-24
#define VARIANCE_PART 4
#define DEFINITION_TOLERANCE 1e-10 /* of the f64 reference: n trace(M) / lambda roundoffs of f64 are 1e-9 and never all come together */
#define DEFINITION_KEYS 1200       /* elimination over more takes seconds */

static const struct {
  const char *text;
  double part;
} cases[] = {
    {"cme:B1,H1,L200,S1024,D16,V8,rbf,learned", 64},
    {"cme:B1,H1,L1024,D16,V8,causal,rbf,learned", 32},
    {"cme:B1,H2,K1,L70,S641,D33,V5,causal,unit,heads,kernel", 4},
    {"cme:B1,H1,L20,S2048,D16,V8,rbf,ridge=0.01", 128},
    {"cme:B1,H1,L20,S2048,D16,V8,causal,rbf,learned", 32},
};
#define MOST_PART 128 /* of cases by hand */

static double largest(const double *x, int64_t count) {
  double size = 0;
  for (int64_t i = 0; i < count; i++) size = fmax(size, fabs(x[i]));
  return size;
}

static double squares_of_products(const double *x, const double *y, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; i++) sum += x[i] * y[i] * x[i] * y[i];
  return sum;
}

/* What results are measured against: the largest element. Two are sums that cancel: dsigma = -(<q, dq> + <k, dk>) / sigma, where errors of
 * the terms are as good as random, and dridge = trace dM, where four times itself was enough. */
static double size_of(const ridge_problem *p, const ridge_results *want, ridge_array array, int64_t count) {
  if (array == RIDGE_VARIANCE) return p->rbf ? 1 : exp(p->scale);
  if (array == RIDGE_DSIGMA)
    return sqrt(squares_of_products(p->array[RIDGE_QUERY], want->array[RIDGE_DQUERY], p->count[RIDGE_QUERY]) +
                squares_of_products(p->array[RIDGE_KEY], want->array[RIDGE_DKEY], p->count[RIDGE_KEY])) /
           p->array[RIDGE_SIGMA][0];
  if (array == RIDGE_DRIDGE) return 4 * largest(want->array[array], count);
  return largest(want->array[array], count);
}

static int check_definition(const ridge_problem *p, const ridge_results *have) {
  if (p->keys > DEFINITION_KEYS) return 0;
  const int64_t row = p->queries - 1;
  ridge_expected expected;
  int failed = 0;
  ridge_expected_rows(p, 1, &row, &expected);
  for (int64_t head = 0; head < p->heads; head++) {
    const int64_t at = head * p->queries + row;
    for (int64_t c = 0; c < p->value_dim; c++)
      failed += !(fabs(have->array[RIDGE_OUT][at * p->value_dim + c] - expected.out[at * p->value_dim + c]) <= DEFINITION_TOLERANCE);
    failed += !(fabs(have->array[RIDGE_VARIANCE][at] - expected.variance[at]) <= DEFINITION_TOLERANCE * exp(p->rbf ? 0 : p->scale));
  }
  if (failed > 0) print_error("%s: the reference's last rows differ from elimination in %d numbers\n", p->text, failed);
  ridge_expected_free(&expected);
  return failed;
}

static int check(const char *text, double part, bool verbose) {
  ridge_problem p;
  ridge_results want, have;
  ridge_problem_make(text, &p);
  ridge_run_on(ATTENTION_ORACLE, &p, &want);
  if (want.status != HARK_OK) fail_msg("%s: %s", text, want.message);
  int failed = check_definition(&p, &want);
  for (int m = 0; m < attention_machine_count; m++) {
    const attention_machine *machine = &attention_machines[m];
    if (machine->computing_roundoff < ROUNDOFF || !ridge_run_on(machine, &p, &have)) continue; /* the reference's own arithmetic */
    if (have.status != HARK_OK) fail_msg("%s on %s: %s", text, machine->name, have.message);
    assert_int_equal(have.report.pivots, 0);
    for (int a = RIDGE_OUT; a < RIDGE_ARRAYS; a++) {
      if (want.array[a] == NULL) continue;
      const int64_t count = ridge_count_of(&p, (ridge_array)a);
      const double bound = (a == RIDGE_VARIANCE ? VARIANCE_PART : part) * sqrt((double)p.keys) * ROUNDOFF;
      const double size = size_of(&p, &want, (ridge_array)a, count);
      double worst = 0;
      for (int64_t i = 0; i < count; i++) {
        const double error = fabs(have.array[a][i] - want.array[a][i]);
        if (!(error <= worst)) worst = isnan(error) ? INFINITY : error;
      }
      if (verbose) printf("%s on %s: %s differs by %.2g of its bound\n", text, machine->name, ridge_array_names[a], worst / (bound * size));
      if (worst <= bound * size) continue;
      print_error("%s on %s: %s differs by %.3g from the reference, expected at most %.3g\n", text, machine->name, ridge_array_names[a],
                  worst, bound * size);
      failed++;
    }
    ridge_results_free(&have);
  }
  ridge_results_free(&want);
  ridge_problem_free(&p);
  return failed;
}

static void test_long(void **state) {
  (void)state;
  int failed = 0;
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) failed += check(cases[i].text, cases[i].part, false);
  assert_int_equal(failed, 0);
}

/* From 1,985 keys on threads share squares of tiles: the same bits as those of one thread. */
static void test_threads(void **state) {
  (void)state;
  for (int m = 0; m < attention_machine_count; m++) {
    ridge_problem p;
    if (attention_machines[m].computing_roundoff < ROUNDOFF) continue;
    ridge_problem_make("cme:B1,H1,L20,S2100,D4,V3,causal,rbf,learned,kernel", &p);
    ridge_assert_same_bits(&attention_machines[m], &p, 1, (const int64_t[]){3});
    ridge_problem_free(&p);
  }
}

int main(int argc, char **argv) {
  int failed = 0;
  for (int i = 1; i < argc; i++) failed += check(argv[i], MOST_PART, true);
  if (argc > 1) return failed > 0;
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_long), cmocka_unit_test(test_threads)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
