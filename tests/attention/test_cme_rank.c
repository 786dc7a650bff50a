/* test_cme_rank.c - full kernel ridge (CME) attention whose kernel of the keys has a low numerical rank: every f32 machine against the f64
 * reference.
 *
 *     test_cme_rank 'cme:B1,H2,L70,S700,D1,V2,rbf' [SIGMA [STRETCH]]     this case alone, with the differences found
 *
 * Without a factor, results differ from the exact ones by little more than one rounding. The f32 factor of such ill-conditioned systems has
 * errors that are hundreds of times larger. So the bounds of those cases, a few roundings, also show that there was no factor.
 */
#include "kernel_ridge_case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define ROUNDOFF 0x1p-24

typedef struct rank_case {
  const char *text;
  double sigma, stretch; /* stretch: what queries are multiplied by */
} rank_case;

/* Within ROUNDINGS. */
static const rank_case low[] = {
    {"cme:B1,H2,L70,S400,D1,V2,rbf,ridge=0.01", 0.2, 1},
    {"cme:B1,H1,L150,S520,D1,V1,rbf,learned,quadratic,determinant,dvariance", 0.75, 1},
    {"cme:B1,H2,L129,S400,D2,V3,rbf,ridge=0.02,noise,quadratic,determinant", 1.5, 1},
    {"cme:B2,H2,K1,L65,S400,D1,V3,rbf,mask,perhead,uneven,noise,layout=1,dvariance,accumulate", 0.75, 1},
    {"cme:B1,H1,L40,S400,D3,V2,rbf,equal,ridge=0.3,determinant", 3, 1},
    {"cme:B1,H2,L40,S400,D1,V9,rbf,heads,power,roomy,dvariance,quadratic", 0.75, 1},
    {"cme:B1,H1,L100,S300,D1,V1,rbf,ridge=0.0002", 1, 1},
    {"cme:B1,H1,L100,S300,D1,V1,rbf,ridge=0.0002,seed=2", 1, 1},
    {"cme:B1,H1,L70,S520,D1,V1,rbf,ridge=0.001,noise", 1, 1},
    {"cme:B1,H1,L70,S520,D1,V1,rbf,ridge=0.0001", 1, 2},
    {"cme:B1,H1,L70,S520,D1,V1,rbf,ridge=0.00001", 1, 1},
    {"cme:B1,H1,L50,S300,D1,V1,rbf,equal,ridge=0.000001", 1, 1},
    {"cme:B1,H1,L100,S300,D2,V2,rbf,unit,ridge=0.1,dvariance", 0.9, 1},
    {"cme:B1,H2,L600,S900,D1,V1,rbf,ragged,ridge=0.05,noise,determinant,dvariance,quadratic", 0.75, 1},
    {"cme:B2,H2,L200,S600,D1,V1,rbf,lengths,ridge=0.05,dvariance", 0.75, 1},
    {"cme:B1,H1,L70,S300,D1,V2,rbf,far,dvariance", 0.5, 1},
    /* more queries with gradients of variances than there is memory for at once */
    {"cme:B1,H2,K1,L150,S300,D1,V1,rbf,ridge=0.1,dvariance,determinant,accumulate", 0.75, 1},
    /* queries at other places than the keys: far from all of them, and all distances between */
    {"cme:B1,H2,L256,S400,D1,V2,rbf,ridge=0.01,dvariance", 0.2, 3},
    {"cme:B1,H1,L100,S400,D2,V2,rbf,ridge=0.1,noise,dvariance", 1.2, 20},
};
#define ROUNDINGS 8           /* of results */
#define GRADIENT_ROUNDINGS 32 /* what is left out of the kernel has more effect on them */
#define VARIANCE_PART 1e-4    /* of a variance, which is a sum of positive terms */

/* A factor, with its errors: `errs` if they are larger than any without a factor. */
static const struct {
  rank_case at;
  bool errs;
} high[] = {
    {{"cme:B1,H1,L70,S500,D2,V2,rbf,ridge=0.1", 0.4, 1}, true}, /* too many columns */
    {{"cme:B1,H1,L70,S500,D2,V2,rbf,ridge=0.5", 0.1, 1}, false},
    {{"cme:B1,H1,L70,S500,D16,V2,rbf,ridge=0.5", 0.75, 1}, false},
    {{"cme:B1,H1,L70,S255,D1,V2,rbf,ridge=0.1", 0.75, 1}, true},          /* too few keys */
    {{"cme:B1,H1,L70,S260,D60,V3,rbf,ridge=0.5", 20, 1}, false},          /* no memory for so many features */
    {{"cme:B1,H1,L70,S300,D1,V2,rbf,kernel,ridge=0.5", 0.75, 1}, false},  /* a positional kernel */
    {{"cme:B1,H1,L300,S300,D1,V2,rbf,causal,ridge=0.5", 0.75, 1}, false}, /* a system for each query */
    /* only the backward */
    {{"cme:B1,H1,L320,S300,D1,V1,rbf,dvariance,ridge=0.1", 0.75, 1}, true},   /* more queries than keys */
    {{"cme:B1,H1,L60,S300,D1,V24,rbf,determinant,ridge=0.1", 0.75, 1}, true}, /* too many features */
};
#define FACTOR_ROUNDINGS 20000

static double largest(const double *x, int64_t count) {
  double size = 0;
  for (int64_t i = 0; i < count; i++) size = fmax(size, fabs(x[i]));
  return size;
}

static void make(const rank_case *at, ridge_problem *p) {
  ridge_problem_make(at->text, p);
  p->sigma = at->sigma;
  for (int64_t i = 0; i < p->count[RIDGE_QUERY]; i++) p->array[RIDGE_QUERY][i] = (double)(float)(p->array[RIDGE_QUERY][i] * at->stretch);
}

/* Elements are rounded once, so errors are in units of the largest one; of 1 for variances. */
static int compare(const rank_case *at, const char *name, const ridge_problem *p, const ridge_results *want, const ridge_results *have,
                   double roundings, bool verbose, double *most_of_all) {
  int failed = 0;
  for (int a = RIDGE_OUT; a < RIDGE_ARRAYS; a++) {
    if (want->array[a] == NULL) continue;
    const int64_t count = ridge_count_of(p, (ridge_array)a);
    const double size = a == RIDGE_VARIANCE ? 1 : fmax(largest(want->array[a], count), a == RIDGE_LOG_DETERMINANT ? 1 : 0);
    double worst = 0;
    int lost = 0;
    for (int64_t i = 0; i < count; i++) {
      const double error = fabs(have->array[a][i] - want->array[a][i]) / size / ROUNDOFF;
      if (!(error <= worst)) worst = isnan(error) ? INFINITY : error;
      if (a == RIDGE_VARIANCE && roundings <= ROUNDINGS && error * ROUNDOFF > VARIANCE_PART * fabs(want->array[a][i])) lost++;
    }
    if (lost > 0) print_error("%s on %s: %d variances differ by more than %g of themselves\n", at->text, name, lost, VARIANCE_PART);
    failed += lost;
    if (verbose) printf("%s on %s: %s differs by %.3g roundings\n", at->text, name, ridge_array_names[a], worst);
    *most_of_all = fmax(*most_of_all, worst);
    const double most = a > RIDGE_QUADRATIC ? fmax(roundings, GRADIENT_ROUNDINGS) : roundings;
    if (worst <= most) continue;
    print_error("%s on %s: %s differs by %.3g roundings from the reference, expected at most %g\n", at->text, name, ridge_array_names[a],
                worst, most);
    failed++;
  }
  return failed;
}

/* *least: the largest error on the most exact machine, in roundings. */
static int check(const rank_case *at, double roundings, bool verbose, double *least) {
  ridge_problem p;
  ridge_results want, have;
  int failed = 0;
  make(at, &p);
  ridge_run_on(ATTENTION_ORACLE, &p, &want);
  if (want.status != HARK_OK) fail_msg("%s: %s", at->text, want.message);
  for (int m = 0; m < attention_machine_count; m++) {
    const attention_machine *machine = &attention_machines[m];
    if (machine->computing_roundoff < ROUNDOFF || !ridge_run_on(machine, &p, &have)) continue;
    if (have.status != HARK_OK) fail_msg("%s on %s: %s", at->text, machine->name, have.message);
    double largest_error = 0;
    failed += compare(at, machine->name, &p, &want, &have, roundings, verbose, &largest_error);
    *least = fmin(*least, largest_error);
    ridge_results_free(&have);
  }
  ridge_results_free(&want);
  ridge_problem_free(&p);
  return failed;
}

static void low_ranks_need_no_factor(void **state) {
  (void)state;
  int failed = 0;
  double least = INFINITY;
  for (size_t i = 0; i < sizeof low / sizeof low[0]; i++) failed += check(&low[i], ROUNDINGS, false, &least);
  assert_int_equal(failed, 0);
}

static void high_ranks_have_a_factor(void **state) {
  (void)state;
  int failed = 0;
  for (size_t i = 0; i < sizeof high / sizeof high[0]; i++) {
    double least = INFINITY;
    failed += check(&high[i].at, FACTOR_ROUNDINGS, false, &least);
    if (high[i].errs && least <= GRADIENT_ROUNDINGS) fail_msg("%s: errors of %g roundings: no factor?", high[i].at.text, least);
  }
  assert_int_equal(failed, 0);
}

/* Keys with very small noise among others: an error of the factor that reports a pivot, or a correct result. */
static void very_small_noise_is_not_lost(void **state) {
  (void)state;
  static const double noises[] = {1e-5, 1e-8, 1e-10, 1e-12, 1e-16, 1e-20, 1e-36, 1e-40};
  for (size_t n = 0; n < sizeof noises / sizeof noises[0]; n++) {
    const rank_case at = {"cme:B1,H1,L50,S300,D1,V1,rbf,ridge=0,noise,plain", 1, 1};
    ridge_problem p;
    ridge_results want, have;
    make(&at, &p);
    for (int64_t i = 0; i < p.count[RIDGE_NOISE]; i++) p.array[RIDGE_NOISE][i] = i % 100 == 50 ? (double)(float)noises[n] : 0.5;
    ridge_run_on(ATTENTION_ORACLE, &p, &want);
    for (int m = 0; m < attention_machine_count; m++) {
      if (attention_machines[m].computing_roundoff < ROUNDOFF || !ridge_run_on(&attention_machines[m], &p, &have)) continue;
      if (n == 0) assert_true(have.status == HARK_OK && have.report.pivots == 0);
      if (have.status == HARK_OK && have.report.pivots == 0 && want.status == HARK_OK && want.report.pivots == 0)
        for (int64_t i = 0; i < p.count[RIDGE_OUT]; i++)
          if (!(fabs(have.array[RIDGE_OUT][i] - want.array[RIDGE_OUT][i]) <= 1e-3))
            fail_msg("noise %g on %s: out %g, expected %g", noises[n], attention_machines[m].name, have.array[RIDGE_OUT][i],
                     want.array[RIDGE_OUT][i]);
      ridge_results_free(&have);
    }
    ridge_results_free(&want);
    ridge_problem_free(&p);
  }
}

static void threads_change_no_bit(void **state) {
  (void)state;
  static const rank_case cases[] = {{"cme:B1,H1,L200,S300,D1,V2,rbf,ridge=0.01", 0.3, 2},
                                    {"cme:B1,H3,L100,S300,D1,V2,rbf,ridge=0.01,dvariance,determinant,noise", 0.3, 2}};
  for (int m = 0; m < attention_machine_count; m++)
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
      ridge_problem p;
      if (attention_machines[m].computing_roundoff < ROUNDOFF) continue;
      make(&cases[i], &p);
      ridge_assert_same_bits(&attention_machines[m], &p, 1, (const int64_t[]){3});
      ridge_problem_free(&p);
    }
}

/* `array` with one number replaced, in a case of low rank: the call fails with that message on every f32 machine. */
static void refuse(ridge_array array, int64_t at, double number, const char *message) {
  const rank_case plain = {"cme:B1,H2,L100,S300,D1,V2,rbf,plain", 0.75, 1};
  for (int m = 0; m < attention_machine_count; m++) {
    ridge_problem p;
    ridge_results have;
    make(&plain, &p);
    p.array[array][at] = number;
    if (attention_machines[m].computing_roundoff >= ROUNDOFF && ridge_run_on(&attention_machines[m], &p, &have)) {
      assert_int_equal(have.status, HARK_NOT_FINITE);
      if (strstr(have.message, message) == NULL) fail_msg("\"%s\" is not in: %s", message, have.message);
      ridge_results_free(&have);
    }
    ridge_problem_free(&p);
  }
}

static void numbers_that_are_not_finite_are_named(void **state) {
  (void)state;
  refuse(RIDGE_QUERY, 100 + 77, NAN, "row 77");
  refuse(RIDGE_QUERY, 5, -INFINITY, "row 5");
  refuse(RIDGE_KEY, 299, INFINITY, "row 299");
  refuse(RIDGE_VALUE, 2 * 120, NAN, "row 120");
}

int main(int argc, char **argv) {
  if (argc > 1) {
    const rank_case given = {argv[1], argc > 2 ? atof(argv[2]) : 0.75, argc > 3 ? atof(argv[3]) : 1};
    double least = INFINITY;
    return check(&given, ROUNDINGS, true, &least) > 0;
  }
  const struct CMUnitTest tests[] = {cmocka_unit_test(low_ranks_need_no_factor), cmocka_unit_test(high_ranks_have_a_factor),
                                     cmocka_unit_test(very_small_noise_is_not_lost), cmocka_unit_test(threads_change_no_bit),
                                     cmocka_unit_test(numbers_that_are_not_finite_are_named)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
