/* test_displaced.c - attention by the Gaussian kernel knows distances alone: rows may lie anywhere. Queries and keys of a case are moved
 * far from the origin in several ways, and everything is compared with the definition in float64, on every machine.
 *
 *     test_displaced 'dense:L65,D16,rbf' shift 10000       one case again
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

/* How rows are moved by `far`, along features whose signs take turns. */
typedef enum displacement {
  SHIFT,       /* all of them */
  CLUSTERS,    /* queries and keys drawn to one of two places */
  BLOCKS,      /* places by position: 11 rows here, 11 there */
  SINK,        /* the first key alone */
  DRIFT,       /* by their position: the last row by all of it */
  FAR_QUERIES, /* queries alone, keys where they were */
  FAR_KEYS,    /* keys alone */
  MIDDLE,      /* keys to both sides of the queries */
  DISPLACEMENTS
} displacement;

static const char *const names[DISPLACEMENTS] = {"shift", "clusters", "blocks", "sink", "drift", "queries", "keys", "middle"};

/* A draw of 0 or 1 for a row. */
static int coin(int64_t row, int salt) { return (int)((uint64_t)(row * 2654435761 + salt * 40503) % 1021 / 7 % 2); }

static double place_of(displacement how, bool key, int64_t row, int64_t rows) {
  switch (how) {
    case SHIFT: return 1;
    case CLUSTERS: return coin(row, key);
    case BLOCKS: return (double)(row / 11 % 2);
    case SINK: return key && row == 0;
    case DRIFT: return (double)row / (double)rows;
    case FAR_QUERIES: return !key;
    case FAR_KEYS: return key;
    case MIDDLE: return key ? (row % 2 == 0 ? 1 : -1) : 0;
    case DISPLACEMENTS: break;
  }
  return 0;
}

static void displace(attention_problem *p, displacement how, double far) {
  for (int array = ARRAY_QUERY; array <= ARRAY_KEY; array++) {
    attention_numbers *x = &p->array[array];
    const int64_t rows = x->shape[2], d = x->shape[3];
    for (int64_t i = 0; i < x->count; i++) {
      const double by = far * place_of(how, array == ARRAY_KEY, i / d % rows, rows) / sqrt((double)d);
      x->data[i] = (double)(float)(x->data[i] + (i % d % 2 == 0 ? by : -by));
    }
  }
}

/* The largest element of an array. */
static double size_of(const attention_numbers *x) {
  double largest = 0;
  for (int64_t i = 0; i < x->count; i++) largest = fmax(largest, isfinite(x->data[i]) ? fabs(x->data[i]) : 0);
  return largest;
}

/* How far a query is from the keys that it weighs, in units of sigma^2: a gradient of a key is made of terms of that size. */
static double reach_of(const attention_problem *p, const attention_expected *expected) {
  double least = 0;
  const attention_numbers *lse = &expected->array[ARRAY_LSE];
  for (int64_t i = 0; i < lse->count; i++) least = fmin(least, isfinite(lse->data[i]) ? lse->data[i] : 0);
  return sqrt(-2 * least) / p->sigma;
}

/* Results of f32 may be off by `within` of an array's largest element, or of .25 where one key has all the weight and gradients are what
 * rounding leaves of differences; log_sum_exp by that and by its own rounding. Terms of gradients are right to a few roundoffs. */
static int compare(const attention_machine *machine, const attention_problem *p, const attention_expected *expected,
                   const attention_results *results, double within, const char *what, bool print) {
  int failed = 0;
  for (int array = ARRAY_OUT; array < ARRAY_COUNT; array++) {
    const attention_numbers *want = &expected->array[array];
    const double *have = results->data[array];
    if (have == NULL || want->count == 0) continue;
    double bound = within * (array == ARRAY_LSE ? 1 : fmax(size_of(want), 0.25));
    if (array == ARRAY_DKEY || (p->is.is_hierarchical && array == ARRAY_DQUERY))
      bound += 32 * machine->computing_roundoff * reach_of(p, expected);
    double worst = 0;
    int64_t at = 0;
    for (int64_t i = 0; i < want->count; i++) {
      const double right = want->data[i] + (p->accumulate & attention_accumulate_bit((attention_array)array) ? attention_before(i) : 0);
      if (have[i] == right) continue;
      const double own = array == ARRAY_LSE ? 4 * machine->storing_roundoff * fabs(right) : 0;
      const double error = fmax(0, fabs(have[i] - right) - own) / bound;
      if (error <= worst) continue; /* not so for NaN */
      worst = isnan(error) ? INFINITY : error;
      at = i;
    }
    if (print) printf("  %-12s %.3g of %.3g\n", attention_array_names[array], worst * bound, bound);
    if (worst <= 1) continue;
    print_error("'%s' %s on %s: %s[%" PRId64 "] is %.9g, expected %.9g, allowed are %.3g\n", p->is.text, what, machine->name,
                attention_array_names[array], at, have[at], want->data[at], bound);
    failed++;
  }
  return failed;
}

static int check(const char *text, displacement how, double far, double within, bool print) {
  attention_problem p;
  attention_expected e;
  char what[64];
  int failed = 0, ran = 0;
  snprintf(what, sizeof what, "%s %g", names[how], far);
  attention_problem_make(text, &p);
  displace(&p, how, far);
  attention_expected_make(&p, &e);
  for (int m = 0; m < attention_machine_count; m++) {
    attention_results r;
    if (!attention_run_on(&attention_machines[m], &p, &r)) continue;
    if (print) printf("%s\n", attention_machines[m].name);
    failed += compare(&attention_machines[m], &p, &e, &r, within, what, print);
    attention_results_free(&r);
    ran++;
  }
  if (ran == 0) fail_msg("no machine");
  attention_expected_free(&e);
  attention_problem_free(&p);
  return failed;
}

/* Weights come from products up to a spread of 256, which is 2^-16 of a weight; gradients are sums of two such. */
#define WITHIN 6e-5

static const double distances[] = {3, 12, 20, 60, 250, 3000, 1e4, 1e6};

/* A row is so far from all keys that it sees that float64 does not hold what they are apart. */
static bool is_beyond(displacement how, double far) { return far > 1e4 && how != SHIFT && how != BLOCKS && how != DRIFT; }

static void check_all(const char *const *cases, size_t count, const displacement *ways, size_t way_count) {
  int failed = 0;
  for (size_t i = 0; i < count; i++)
    for (size_t w = 0; w < way_count; w++)
      for (size_t d = 0; d < sizeof distances / sizeof distances[0]; d++)
        if (!is_beyond(ways[w], distances[d])) failed += check(cases[i], ways[w], distances[d], WITHIN, false);
  if (failed > 0) fail_msg("%d results failed; run one again with: test_displaced CASE WAY FAR", failed);
}
#define CHECK_ALL(cases, ways) check_all(cases, sizeof cases / sizeof cases[0], ways, sizeof ways / sizeof ways[0])

static const displacement every_way[] = {SHIFT, CLUSTERS, BLOCKS, SINK, DRIFT, FAR_QUERIES, FAR_KEYS, MIDDLE};

static void test_dense(void **state) {
  (void)state;
  static const char *const cases[] = {
      "dense:H1,L2,D1,rbf",
      "dense:H2,L3,D5,rbf",
      "dense:B2,H4,K2,L70,S70,D7,V5,rbf,causal",
      "dense:H2,L66,S140,D16,rbf,bias,mask",
      "dense:H2,L130,D33,rbf,causal,forget,kernel,threads=3",
      "dense:H2,L140,D4,rbf,causal,dropout=0.25",
      "dense:B2,H2,L60,D8,rbf,lengths,bias,hiding,accumulate",
      "dense:H2,L90,D8,rbf,causal,ragged,layout=2",
  };
  CHECK_ALL(cases, every_way);
}

static void test_few_queries(void **state) {
  (void)state;
  static const char *const cases[] = {"dense:H2,K1,L1,S150,D16,rbf,causal", "dense:H2,L3,S90,D6,rbf,kernel", "dense:H1,L1,S1,D1,rbf"};
  CHECK_ALL(cases, every_way);
}

static void test_window(void **state) {
  (void)state;
  static const char *const cases[] = {"window:H2,L150,D8,W20,rbf", "window:H2,L150,D3,W9,rbf,causal,bias", "window:H1,L2,D1,W4,rbf,causal"};
  CHECK_ALL(cases, every_way);
}

static void test_hierarchical(void **state) {
  (void)state;
  static const char *const cases[] = {
      "hierarchical:H2,L64,D7,V5,N4,rbf,mean",
      "hierarchical:B2,H4,K2,L101,D16,N4,rbf,causal,first",
      "hierarchical:H2,L130,D5,N8,rbf,exact,threads=3",
      "hierarchical:H2,L90,D8,N2,rbf,mean,sibling,hbias,kernel",
      "hierarchical:B2,H2,L70,D9,N4,rbf,mean,mask,qmask,accumulate",
      "hierarchical:H2,L77,D8,N4,rbf,causal,exact,dropout=0.25",
      "hierarchical:H2,L80,D8,N8,rbf,mean,ragged",
      "hierarchical:H2,L101,D8,N4,rbf,mean,linear",
      "hierarchical:B2,H2,L70,D9,N2,rbf,first,linear,mask,qmask",
      "hierarchical:H2,L90,D8,N4,rbf,mean,sibling,linear,hbias,kernel",
  };
  CHECK_ALL(cases, every_way);
}

/* Without DRIFT: between single far pixels and means of others, gradients of one weight of 1 are what rounding in float64 leaves. */
static void test_grid(void **state) {
  (void)state;
  static const char *const cases[] = {"hierarchical:B2,H2,L90,D8,N4,grid=11,rbf,mask", "hierarchical:H2,L90,D8,N4,grid=11,rbf,exact"};
  static const displacement ways[] = {SHIFT, CLUSTERS, BLOCKS, SINK, FAR_QUERIES, FAR_KEYS, MIDDLE};
  CHECK_ALL(cases, ways);
}

/* Sequences so long that their lowest levels are made in windows, against the definition's own levels in float64. */
static void test_windows(void **state) {
  (void)state;
  static const char *const cases[] = {"hierarchical:H1,L8300,D3,V2,N4,rbf,mean", "hierarchical:H2,K1,L8192,D5,V2,N4,rbf,causal,first",
                                      "hierarchical:H1,L9000,D2,V2,N2,rbf,mean,kernel", "hierarchical:H1,L8300,D3,V2,N4,rbf,mean,linear"};
  static const displacement ways[] = {SHIFT, BLOCKS, FAR_QUERIES, CLUSTERS};
  int failed = 0;
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
    for (size_t w = 0; w < sizeof ways / sizeof ways[0]; w++) {
      attention_problem p;
      attention_results right, r;
      attention_expected e = {0};
      char what[64];
      snprintf(what, sizeof what, "%s 900", names[ways[w]]);
      attention_problem_make(cases[i], &p);
      displace(&p, ways[w], 900);
      assert_true(attention_run_on(ATTENTION_ORACLE, &p, &right));
      for (int array = ARRAY_OUT; array < ARRAY_COUNT; array++)
        e.array[array] = (attention_numbers){.count = right.count[array], .data = right.data[array]};
      for (int m = 0; m < attention_machine_count; m++) {
        if (attention_machines[m].type != HARK_F32 || !attention_run_on(&attention_machines[m], &p, &r)) continue;
        failed += compare(&attention_machines[m], &p, &e, &r, WITHIN, what, false);
        attention_results_free(&r);
      }
      attention_results_free(&right);
      attention_problem_free(&p);
    }
  assert_int_equal(failed, 0);
}

/* The smallest case there is: two keys. */
static void test_two_keys(void **state) {
  (void)state;
  const double query = (double)10000.3f, weight = 1 / (1 + exp((pow(query - 10001, 2) - pow(query - 10000, 2)) / 2));
  static const char *const cases[] = {"dense:L1,S2,D1,V1,rbf", "window:L2,S2,D1,V1,W5,rbf", "hierarchical:L2,S2,D1,V1,N2,rbf,mean"};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    attention_problem p;
    attention_problem_make(cases[i], &p);
    p.sigma = 1;
    for (int64_t n = 0; n < p.array[ARRAY_QUERY].count; n++) p.array[ARRAY_QUERY].data[n] = query;
    for (int64_t n = 0; n < 2; n++) {
      p.array[ARRAY_KEY].data[n] = 10000 + (double)n;
      p.array[ARRAY_VALUE].data[n] = (double)n;
    }
    for (int m = 0; m < attention_machine_count; m++) {
      attention_results r;
      if (!attention_run_on(&attention_machines[m], &p, &r)) continue;
      attention_assert_near("the second key's weight", cases[i], &attention_machines[m], 0, r.data[ARRAY_OUT][0], weight, 1e-6);
      attention_results_free(&r);
    }
    attention_problem_free(&p);
  }
}

/* What a row does not see changes no bit of it: keys and queries after half of a causal sequence are moved far away. */
static void test_causality(void **state) {
  (void)state;
  static const char *const cases[] = {"dense:H2,L130,D8,rbf,causal", "dense:H2,L40,D8,rbf,causal,kernel",
                                      "window:H1,L140,D5,W30,rbf,causal", "hierarchical:H2,L130,D8,N4,rbf,causal,first",
                                      "hierarchical:H1,L64,D5,N8,rbf,causal,exact"};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
    for (int far = 0; far < 2; far++) /* what is seen lies near, or far too */
      for (int m = 0; m < attention_machine_count; m++) {
        attention_problem p;
        attention_results before, after;
        attention_problem_make(cases[i], &p);
        const int64_t rows = p.is.queries, half = rows / 2;
        if (far) displace(&p, CLUSTERS, 400);
        if (!attention_run_on(&attention_machines[m], &p, &before)) {
          attention_problem_free(&p);
          continue;
        }
        for (int array = ARRAY_QUERY; array <= ARRAY_KEY; array++) {
          const int64_t d = p.array[array].shape[3];
          for (int64_t n = 0; n < p.array[array].count; n++)
            if (n / d % rows >= half) p.array[array].data[n] += 5000;
        }
        attention_run_on(&attention_machines[m], &p, &after);
        for (int array = ARRAY_OUT; array <= ARRAY_DQUERY; array++) {
          const int64_t width = array == ARRAY_LSE ? 1 : array == ARRAY_OUT ? p.is.value_dim : p.is.head_dim;
          for (int64_t n = 0; n < before.count[array]; n++) {
            /* a coarse query of a hierarchy gives its gradient to rows that it stands for: causal ones are first rows */
            if (n / width % rows >= half || (array == ARRAY_DQUERY && p.is.is_hierarchical && !p.is.exact)) continue;
            if (before.data[array][n] != after.data[array][n])
              fail_msg("'%s' on %s: %s[%" PRId64 "] was %.9g and is %.9g", cases[i], attention_machines[m].name,
                       attention_array_names[array], n, before.data[array][n], after.data[array][n]);
          }
        }
        attention_results_free(&before);
        attention_results_free(&after);
        attention_problem_free(&p);
      }
}

/* Any number of threads gives the same bits. */
static void test_threads(void **state) {
  (void)state;
  static const char *const cases[] = {"dense:B2,H2,L200,D8,rbf",
                                      "dense:H2,K1,L300,D16,rbf,causal,kernel",
                                      "window:H2,L200,D4,W40,rbf",
                                      "hierarchical:H2,K1,L300,D8,N4,rbf,mean",
                                      "hierarchical:H1,L300,D5,N8,rbf,causal,first",
                                      "hierarchical:H2,L300,D5,N4,rbf,exact"};
  static const displacement ways[] = {SHIFT, CLUSTERS, DRIFT};
  static const int64_t threads[] = {2, 3, 7};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
    for (size_t w = 0; w < sizeof ways / sizeof ways[0]; w++)
      for (int m = 0; m < attention_machine_count; m++) {
        attention_problem p;
        attention_problem_make(cases[i], &p);
        displace(&p, ways[w], 300);
        attention_same_with_threads(&attention_machines[m], &p, cases[i], sizeof threads / sizeof threads[0], threads);
        attention_problem_free(&p);
      }
}

int main(int argc, char **argv) {
  if (argc == 4) {
    int failed = 0;
    for (int way = 0; way < DISPLACEMENTS; way++)
      if (strcmp(argv[2], names[way]) == 0) failed += check(argv[1], (displacement)way, strtod(argv[3], NULL), WITHIN, true);
    return failed > 0;
  }
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_two_keys), cmocka_unit_test(test_dense),        cmocka_unit_test(test_few_queries),
      cmocka_unit_test(test_window),   cmocka_unit_test(test_hierarchical), cmocka_unit_test(test_grid),
      cmocka_unit_test(test_windows),  cmocka_unit_test(test_causality),    cmocka_unit_test(test_threads),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
