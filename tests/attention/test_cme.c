/* test_cme.c - kernel ridge (CME) attention against its definition, on every machine: out and variance against direct elimination of every
 * query's own system, gradients against four-point differences of the f64 forward, f32 gradients against those.
 *
 *     test_cme 'cme:B1,H2,L17,D4,causal'    these cases alone
 */
#include "kernel_ridge_case.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STEP 1e-3
#define GRADIENT_TOLERANCE 2e-6 /* of four-point differences, relative to the larger of 1 and the gradient */

/* Forward against the definition. */
static const char *const forward_cases[] = {
    "cme:B1,H1,L1,D1",
    "cme:B1,H1,L1,D1,causal,rbf",
    "cme:B2,H2,L2,D3,V5,causal",
    "cme:B2,H4,K2,L17,D5,V3,causal,rbf,kernel",
    "cme:B2,H2,L9,S13,D4,rbf",
    "cme:B1,H2,L5,S13,D4,causal",
    "cme:B1,H2,L13,S5,D4,causal,rbf",
    "cme:B1,H2,L6,S6,D4,causal,offset=-2",
    "cme:B1,H2,L6,S6,D4,causal,offset=3,shared",
    "cme:B1,H2,L6,S6,D4,offset=3,kernel,rbf",
    "cme:B3,H2,L11,D4,lengths,heads,rbf",
    "cme:B3,H2,L11,D4,causal,lengths,learned",
    "cme:B2,H2,L20,D6,mask,power",
    "cme:B2,H2,L20,D6,mask,perhead,causal,rbf,kernel,heads",
    "cme:B1,H2,L15,S15,D4,ragged,causal,roomy",
    "cme:B1,H2,L15,S12,D4,ragged,power,rbf",
    "cme:B2,H3,L19,D4,segments,causal,shared,learned,rbf",
    "cme:B2,H3,L19,D4,segments,power",
    "cme:B1,H2,L21,D7,unit",
    "cme:B1,H2,L21,D7,unit,causal,kernel",
    "cme:B1,H2,L21,D7,unit,rbf,causal",
    "cme:B1,H2,L21,D7,bound,heads",
    "cme:B2,H2,L24,D4,layout=1,causal",
    "cme:B1,H2,L63,D16,causal,rbf",
    "cme:B1,H2,L64,D16,V17,causal",
    "cme:B1,H2,L65,D64,causal,rbf,kernel",
    "cme:B1,H1,L66,D33,rbf,threads=1",
    "cme:B1,H1,L128,D16,V8,causal,rbf",
    "cme:B1,H1,L130,D16,V70,causal,learned",
    "cme:B1,H1,L40,S130,D16,V8,rbf,ridge=0.01",
    "cme:B1,H1,L130,S70,D16,V8,causal,rbf,offset=-40",
    "cme:B1,H1,L20,S6,D4,rbf,offset=300",
    "cme:B1,H1,L20,S70,D4,causal,offset=3,heads",
    "cme:B1,H2,L70,D6,causal,rbf,far",
    "cme:B2,H2,L30,D6,rbf,far,kernel,mask",
    "cme:B1,H2,L90,D5,rbf,far,ragged",
    "cme:B2,H4,K2,L17,D5,V3,causal,rbf,kernel,noise",
    "cme:B2,H2,L9,S13,D4,rbf,noise,ridge=0",
    "cme:B1,H2,L66,D6,noise,causal,ridge=0",
    "cme:B2,H2,L20,D6,mask,perhead,noise,heads",
    "cme:B2,H3,L19,D4,segments,noise,layout=1",
    "cme:B1,H2,L15,S12,D4,ragged,noise,rbf",
    "cme:B1,H2,L70,D7,unit,noise",
};

/* Gradients by differences: every option, small. */
static const char *const gradient_cases[] = {
    "cme:B1,H1,L1,D1,heads,rbf",
    "cme:B1,H2,L5,D3,V2,heads,rbf,kernel",
    "cme:B1,H2,L5,D3,V2,heads,kernel",
    "cme:B2,H2,L5,D3,learned,rbf,shared,causal",
    "cme:B1,H2,L6,D3,learned,causal,shared,accumulate",
    "cme:B2,H4,K2,L4,D2,heads,rbf,causal,kernel",
    "cme:B2,H4,K2,L4,D2,learned,accumulate,layout=1",
    "cme:B2,H2,L6,D3,heads,power,mask,rbf",
    "cme:B1,H2,L6,D3,heads,causal,mask,perhead",
    "cme:B1,H1,L4,S7,D3,heads,rbf,causal,kernel",
    "cme:B1,H1,L7,S4,D3,heads,causal,shared",
    "cme:B1,H1,L5,S5,D3,heads,offset=2,kernel,rbf",
    "cme:B3,H1,L6,D3,lengths,learned,causal",
    "cme:B1,H1,L9,S9,D3,ragged,learned,causal,rbf",
    "cme:B1,H1,L9,D3,segments,learned,shared",
    "cme:B1,H2,L6,D3,unit,heads",
    "cme:B1,H2,L6,D3,unit,heads,rbf,causal",
    "cme:B1,H2,L6,D3,bound,heads,causal,kernel",
    "cme:B1,H1,L3,S7,D3,heads,rbf,causal,kernel,offset=1",
    "cme:B1,H1,L1,D2,heads,dvariance",
    "cme:B1,H2,L5,D3,V2,heads,rbf,causal,kernel,dvariance",
    "cme:B1,H2,L5,D3,V2,heads,causal,kernel,dvariance",
    "cme:B1,H2,L5,D3,V2,heads,rbf,kernel,dvariance",
    "cme:B1,H2,L5,D3,V2,heads,kernel,dvariance,accumulate",
    "cme:B2,H4,K2,L4,D2,learned,rbf,shared,dvariance,layout=1,accumulate",
    "cme:B2,H2,L6,D3,heads,power,mask,rbf,dvariance",
    "cme:B1,H2,L6,D3,heads,causal,mask,perhead,dvariance",
    "cme:B1,H1,L4,S7,D3,heads,rbf,kernel,dvariance",
    "cme:B1,H1,L7,S4,D3,heads,causal,shared,dvariance",
    "cme:B1,H1,L5,S5,D3,heads,offset=-2,causal,kernel,dvariance",
    "cme:B2,H1,L6,D3,lengths,learned,dvariance,kernel",
    "cme:B1,H1,L9,S9,D3,ragged,learned,rbf,dvariance,shared",
    "cme:B1,H1,L9,D3,segments,learned,shared,causal,dvariance",
    "cme:B1,H2,L6,D3,unit,heads,dvariance",
    "cme:B1,H2,L6,D3,bound,heads,causal,kernel,dvariance",
    "cme:B1,H2,L6,D3,bound,heads,dvariance",
    "cme:B1,H1,L1,D2,heads,determinant",
    "cme:B1,H2,L5,D3,V2,heads,rbf,causal,kernel,determinant",
    "cme:B1,H2,L5,D3,V2,heads,rbf,kernel,determinant,accumulate",
    "cme:B2,H4,K2,L4,D2,learned,shared,determinant,layout=1",
    "cme:B2,H2,L6,D3,heads,power,mask,rbf,determinant",
    "cme:B1,H2,L6,D3,heads,causal,mask,perhead,determinant,dvariance",
    "cme:B1,H1,L4,S7,D3,heads,rbf,kernel,causal,determinant",
    "cme:B1,H1,L7,S4,D3,heads,causal,shared,determinant,dvariance",
    "cme:B1,H1,L5,S5,D3,heads,offset=-2,causal,kernel,determinant",
    "cme:B2,H1,L6,D3,lengths,learned,determinant,dvariance,kernel",
    "cme:B1,H1,L9,S9,D3,ragged,learned,rbf,causal,determinant,shared",
    "cme:B1,H1,L9,D3,segments,learned,shared,determinant",
    "cme:B1,H2,L6,D3,unit,heads,determinant,causal",
    "cme:B1,H2,L6,D3,bound,heads,kernel,determinant",
    "cme:B1,H1,L1,D2,heads,noise",
    "cme:B1,H2,L5,D3,V2,heads,rbf,causal,kernel,noise,dvariance,determinant",
    "cme:B1,H2,L5,D3,V2,noise,accumulate",
    "cme:B1,H2,L5,D3,V2,rbf,noise,ridge=0,determinant",
    "cme:B1,H2,L6,D3,causal,noise,ridge=0,dvariance",
    "cme:B2,H4,K2,L4,D2,learned,shared,noise,layout=1,accumulate",
    "cme:B2,H2,L6,D3,heads,power,mask,rbf,noise,determinant",
    "cme:B1,H1,L4,S7,D3,heads,rbf,kernel,noise,dvariance",
    "cme:B1,H1,L5,S5,D3,heads,offset=-2,causal,kernel,noise",
    "cme:B2,H1,L6,D3,lengths,learned,noise,kernel",
    "cme:B1,H1,L9,S9,D3,ragged,learned,rbf,causal,noise",
    "cme:B1,H1,L9,D3,segments,learned,noise,accumulate",
    "cme:B1,H2,L6,D3,unit,heads,noise,causal,dvariance",
    "cme:B1,H2,L6,D3,bound,heads,kernel,noise,determinant",
    "cme:B1,H1,L1,D2,heads,quadratic",
    "cme:B1,H2,L5,D3,V2,heads,rbf,kernel,quadratic",
    "cme:B1,H2,L5,D3,V2,heads,rbf,causal,kernel,quadratic",
    "cme:B2,H4,K2,L4,D2,V3,learned,shared,quadratic,layout=1,accumulate",
    "cme:B2,H4,K2,L4,D2,V3,learned,causal,quadratic,noise,accumulate",
    "cme:B2,H2,L6,D3,heads,power,mask,rbf,quadratic,dvariance,determinant",
    "cme:B1,H2,L6,D3,heads,causal,mask,perhead,quadratic,determinant",
    "cme:B1,H1,L4,S7,D3,V2,heads,rbf,kernel,quadratic,determinant",
    "cme:B1,H1,L7,S4,D3,V2,heads,causal,shared,quadratic,dvariance",
    "cme:B1,H1,L5,S5,D3,heads,offset=-2,causal,kernel,quadratic",
    "cme:B2,H1,L6,D3,lengths,learned,quadratic,kernel,noise",
    "cme:B1,H1,L9,S7,D3,V2,ragged,learned,rbf,quadratic,determinant,noise",
    "cme:B1,H1,L9,S7,D3,V2,ragged,learned,rbf,causal,quadratic,noise",
    "cme:B1,H1,L9,D3,segments,learned,quadratic",
    "cme:B1,H2,L6,D3,V2,unit,heads,quadratic",
    "cme:B1,H2,L6,D3,V2,bound,heads,kernel,quadratic,dvariance",
    "cme:B1,H2,L6,D3,V2,bound,heads,kernel,causal,quadratic,determinant",
};

/* f32 gradients against f64: sizes around tiles. */
static const char *const f32_cases[] = {
    "cme:B1,H2,L63,D16,V8,causal,rbf,heads,kernel",
    "cme:B1,H2,L64,D16,V8,causal,learned",
    "cme:B1,H2,L65,D20,V8,rbf,heads,shared",
    "cme:B1,H4,K2,L70,D16,V17,causal,heads,rbf",
    "cme:B1,H2,L130,D8,V8,causal,learned,rbf,kernel,accumulate",
    "cme:B1,H1,L300,D4,V3,causal,rbf,learned",
    "cme:B1,H2,L600,D4,rbf,learned",
    "cme:B1,H2,L129,D8,V8,learned,kernel",
    "cme:B2,H2,L90,S75,D8,causal,heads,rbf,mask,layout=1",
    "cme:B2,H2,L75,S140,D8,causal,heads,shared,lengths",
    "cme:B1,H1,L150,S140,D8,ragged,learned,causal,kernel,rbf",
    "cme:B2,H1,L140,D8,segments,learned,kernel,roomy",
    "cme:B1,H2,L100,D8,unit,heads,causal",
    "cme:B1,H2,L100,D8,bound,heads,kernel",
    "cme:B1,H1,L80,S70,D8,causal,offset=-30,learned",
    "cme:B1,H1,L80,S70,D8,causal,offset=-30,rbf",
    "cme:B1,H1,L20,S130,D8,causal,offset=3,learned,rbf,kernel",
    "cme:B1,H2,L70,D6,causal,rbf,far,heads",
    "cme:B2,H2,L90,D6,rbf,far,learned,mask,kernel",
    "cme:B1,H2,L70,D6,rbf,unit,learned",
    "cme:B1,H2,L65,D16,V8,causal,rbf,heads,kernel,dvariance",
    "cme:B1,H2,L130,D8,V8,learned,rbf,kernel,accumulate,dvariance",
    "cme:B1,H4,K2,L70,D16,V17,heads,dvariance",
    "cme:B2,H2,L90,S75,D8,causal,heads,rbf,mask,layout=1,dvariance",
    "cme:B2,H2,L75,S140,D8,heads,shared,lengths,dvariance",
    "cme:B1,H1,L150,S140,D8,ragged,learned,kernel,rbf,dvariance",
    "cme:B2,H1,L140,D8,segments,learned,kernel,roomy,dvariance",
    "cme:B1,H1,L300,D4,V3,rbf,learned,dvariance,threads=4",
    "cme:B1,H1,L300,D4,V3,causal,learned,dvariance,threads=4",
    "cme:B1,H2,L100,D8,bound,heads,kernel,dvariance",
    "cme:B1,H1,L80,S70,D8,causal,offset=-30,learned,dvariance",
    "cme:B2,H2,L90,D6,rbf,far,learned,mask,kernel,dvariance",
    "cme:B1,H2,L70,D6,rbf,unit,learned,causal,dvariance",
    "cme:B1,H2,L65,D16,V8,causal,rbf,heads,kernel,determinant",
    "cme:B1,H2,L130,D8,V8,learned,rbf,kernel,accumulate,determinant",
    "cme:B2,H2,L90,S75,D8,causal,heads,rbf,mask,layout=1,determinant",
    "cme:B2,H2,L75,S140,D8,heads,shared,lengths,determinant,dvariance",
    "cme:B2,H2,L75,S140,D8,heads,shared,lengths,causal,determinant",
    "cme:B1,H1,L150,S140,D8,ragged,learned,kernel,rbf,causal,determinant",
    "cme:B2,H1,L140,D8,segments,learned,kernel,roomy,determinant",
    "cme:B1,H1,L300,D4,V3,rbf,learned,determinant,threads=4",
    "cme:B1,H1,L300,D4,V3,causal,rbf,learned,determinant,threads=4",
    "cme:B1,H2,L100,D8,bound,heads,kernel,determinant",
    "cme:B1,H1,L80,S70,D8,causal,offset=-30,learned,determinant",
    "cme:B2,H2,L90,D6,rbf,far,learned,mask,kernel,determinant",
    "cme:B1,H2,L65,D16,V8,causal,rbf,heads,kernel,noise,determinant,dvariance",
    "cme:B1,H2,L130,D8,V8,learned,rbf,kernel,accumulate,noise",
    "cme:B2,H2,L90,S75,D8,causal,heads,rbf,mask,layout=1,noise",
    "cme:B2,H2,L75,S140,D8,heads,shared,lengths,noise",
    "cme:B1,H1,L150,S140,D8,ragged,learned,kernel,rbf,causal,noise",
    "cme:B2,H1,L140,D8,segments,learned,kernel,roomy,noise,determinant",
    "cme:B1,H1,L300,D4,V3,rbf,learned,noise,threads=4",
    "cme:B1,H2,L100,D8,bound,heads,kernel,noise",
    "cme:B1,H2,L65,D16,V8,causal,rbf,heads,kernel,quadratic",
    "cme:B1,H2,L130,D8,V3,causal,rbf,learned,quadratic,determinant,dvariance,noise",
    "cme:B1,H2,L130,D8,V8,learned,rbf,kernel,accumulate,quadratic",
    "cme:B2,H2,L90,S75,D8,causal,heads,rbf,mask,layout=1,quadratic",
    "cme:B2,H2,L75,S140,D8,heads,shared,lengths,quadratic,dvariance",
    "cme:B2,H4,K2,L75,S140,D8,V17,heads,shared,lengths,causal,quadratic",
    "cme:B1,H1,L150,S140,D8,ragged,learned,kernel,rbf,quadratic,determinant",
    "cme:B1,H1,L150,S140,D8,ragged,learned,kernel,rbf,causal,quadratic",
    "cme:B2,H1,L140,D8,segments,learned,kernel,roomy,quadratic",
    "cme:B1,H1,L300,D4,V3,rbf,learned,quadratic,threads=4",
    "cme:B1,H1,L300,D4,V3,causal,rbf,learned,quadratic,threads=4",
    "cme:B1,H1,L300,D4,V1,rbf,learned,quadratic,dvariance,determinant,threads=4",
    "cme:B1,H1,L60,S300,D4,V1,rbf,learned,quadratic,dvariance,determinant,mask",
    "cme:B1,H2,L100,D8,bound,heads,kernel,quadratic,dvariance",
    "cme:B1,H1,L80,S70,D8,causal,offset=-30,learned,quadratic",
    "cme:B2,H2,L90,D6,rbf,far,learned,mask,kernel,quadratic,dvariance,determinant",
};

static int compare(const attention_machine *machine, const ridge_problem *p, const char *name, const double *have, const double *want,
                   const double *bound, int64_t count) {
  int64_t worst = -1;
  double excess = 1;
  for (int64_t i = 0; i < count; i++) {
    const double within = machine->computing_roundoff * bound[i] + machine->storing_roundoff * fabs(want[i]);
    const double ratio = fabs(have[i] - want[i]) / within;
    if (ratio <= excess && !isnan(ratio)) continue;
    if (have[i] == want[i]) continue;
    worst = i;
    excess = isnan(ratio) ? INFINITY : ratio;
  }
  if (worst >= 0)
    print_error("%s on %s: %s[%" PRId64 "] is %.9g, expected %.9g; %.2g times the bound\n", p->text, machine->name, name, worst,
                have[worst], want[worst], excess);
  return worst >= 0;
}

static int check_forward(const char *text) {
  ridge_problem p;
  ridge_expected expected;
  int failed = 0;
  ridge_problem_make(text, &p);
  ridge_expected_make(&p, &expected);
  for (int m = 0; m < attention_machine_count; m++) {
    ridge_results results;
    if (!ridge_run_on(&attention_machines[m], &p, &results)) continue;
    if (results.status != HARK_OK) fail_msg("%s on %s: %s", text, attention_machines[m].name, results.message);
    const int64_t rows = p.batch * p.heads * p.queries;
    failed += compare(&attention_machines[m], &p, "out", results.array[RIDGE_OUT], expected.out, expected.out_bound, rows * p.value_dim);
    failed +=
        compare(&attention_machines[m], &p, "variance", results.array[RIDGE_VARIANCE], expected.variance, expected.variance_bound, rows);
    failed += compare(&attention_machines[m], &p, "log_determinant", results.array[RIDGE_LOG_DETERMINANT], expected.log_determinant,
                      expected.log_determinant_bound, rows);
    failed += compare(&attention_machines[m], &p, "quadratic", results.array[RIDGE_QUADRATIC], expected.quadratic, expected.quadratic_bound,
                      rows * p.value_dim);
    if (results.report.pivots != 0) {
      print_error("%s on %s: %" PRId64 " pivots mended\n", text, attention_machines[m].name, results.report.pivots);
      failed++;
    }
    ridge_results_free(&results);
  }
  ridge_expected_free(&expected);
  ridge_problem_free(&p);
  return failed;
}

/* The sum of the results times their gradients, of the oracle. */
static double loss(const ridge_problem *p) {
  ridge_results results;
  ridge_run_on(ATTENTION_ORACLE, p, &results);
  if (results.status != HARK_OK) fail_msg("%s: %s", p->text, results.message);
  double sum = 0;
  for (int64_t i = 0; i < p->count[RIDGE_DOUT]; i++) sum += results.array[RIDGE_OUT][i] * p->array[RIDGE_DOUT][i];
  for (int64_t i = 0; i < p->count[RIDGE_DVARIANCE]; i++) sum += results.array[RIDGE_VARIANCE][i] * p->array[RIDGE_DVARIANCE][i];
  for (int64_t i = 0; i < p->count[RIDGE_DLOG_DETERMINANT]; i++)
    sum += results.array[RIDGE_LOG_DETERMINANT][i] * p->array[RIDGE_DLOG_DETERMINANT][i];
  for (int64_t i = 0; i < p->count[RIDGE_DQUADRATIC]; i++) sum += results.array[RIDGE_QUADRATIC][i] * p->array[RIDGE_DQUADRATIC][i];
  ridge_results_free(&results);
  return sum;
}

static const ridge_array pairs[][2] = {
    {RIDGE_QUERY, RIDGE_DQUERY}, {RIDGE_KEY, RIDGE_DKEY},     {RIDGE_VALUE, RIDGE_DVALUE}, {RIDGE_LOG_KERNEL, RIDGE_DLOG_KERNEL},
    {RIDGE_RIDGE, RIDGE_DRIDGE}, {RIDGE_SIGMA, RIDGE_DSIGMA}, {RIDGE_NOISE, RIDGE_DNOISE}};

static int check_gradient(const char *text) {
  ridge_problem p;
  ridge_results results;
  int failed = 0;
  ridge_problem_make(text, &p);
  ridge_run_on(ATTENTION_ORACLE, &p, &results);
  if (results.status != HARK_OK) fail_msg("%s: %s", text, results.message);
  for (size_t k = 0; k < sizeof pairs / sizeof pairs[0]; k++) {
    double *x = p.array[pairs[k][0]];
    if (x == NULL) continue;
    for (int64_t i = 0; i < p.count[pairs[k][0]]; i++) {
      const double kept = x[i], h = STEP;
      static const double steps[] = {-2, -1, 1, 2}, weights[] = {1, -8, 8, -1};
      double want = 0;
      for (int s = 0; s < 4; s++) {
        x[i] = kept + steps[s] * h;
        want += weights[s] * loss(&p) / (12 * h);
      }
      x[i] = kept;
      if (p.accumulate) want += ridge_before(i);
      const double have = results.array[pairs[k][1]][i];
      if (fabs(have - want) <= GRADIENT_TOLERANCE * fmax(1, fabs(want))) continue;
      print_error("%s: %s[%" PRId64 "] is %.9g, differences give %.9g\n", text, ridge_array_names[pairs[k][1]], i, have, want);
      failed++;
      break;
    }
  }
  ridge_results_free(&results);
  ridge_problem_free(&p);
  return failed;
}

/* f32 against f64. A gradient is a sum of products of solves; to first order its relative error is a few roundoffs times the condition
 * number, which is at most trace(M) / lambda: exponents and rounding of M, and of the factorisation, count 64 of them. Measured against the
 * largest element, since sums of both signs cancel. */
static int check_f32(const char *text) {
  ridge_problem p;
  ridge_results want;
  int failed = 0;
  ridge_problem_make(text, &p);
  ridge_run_on(ATTENTION_ORACLE, &p, &want);
  if (want.status != HARK_OK) fail_msg("%s: %s", text, want.message);
  const double condition = (double)p.keys * (p.rbf ? 1.2 : exp(p.unit || p.bound ? 0.0 : 3.0)) /
                           (p.ridge > 0 ? 0.5 * p.ridge : 0.1); /* the noise is at least 0.1 */
  for (int m = 0; m < attention_machine_count; m++) {
    ridge_results have;
    if (attention_machines[m].type != HARK_F32 || !ridge_run_on(&attention_machines[m], &p, &have)) continue;
    for (int a = RIDGE_DQUERY; a < RIDGE_ARRAYS; a++) {
      if (want.array[a] == NULL) continue;
      const int64_t count = ridge_count_of(&p, (ridge_array)a);
      double largest = 1;
      for (int64_t i = 0; i < count; i++) largest = fmax(largest, fabs(want.array[a][i]));
      for (int64_t i = 0; i < count; i++) {
        const double error = fabs(have.array[a][i] - want.array[a][i]);
        if (error <= 64 * condition * 0x1p-24 * largest) continue;
        print_error("%s on %s: %s[%" PRId64 "] is %.9g, expected %.9g (largest %.3g)\n", text, attention_machines[m].name,
                    ridge_array_names[a], i, have.array[a][i], want.array[a][i], largest);
        failed++;
        break;
      }
    }
    ridge_results_free(&have);
  }
  ridge_results_free(&want);
  ridge_problem_free(&p);
  return failed;
}

static void test_forward(void **state) {
  (void)state;
  int failed = 0;
  for (size_t i = 0; i < sizeof forward_cases / sizeof forward_cases[0]; i++) failed += check_forward(forward_cases[i]);
  assert_int_equal(failed, 0);
}

/* Every length from 1 to 70, alternating the options. */
static void test_every_length(void **state) {
  (void)state;
  int failed = 0;
  for (int length = 1; length <= 70; length++) {
    char text[ATTENTION_CASE_BYTES];
    snprintf(text, sizeof text, "cme:B1,H1,L%d,D%d,V%d%s%s%s,seed=%d", length, 1 + length % 9, 1 + length % 5, length % 2 ? ",causal" : "",
             length % 3 ? ",rbf" : "", length % 5 == 0 ? ",kernel" : "", length);
    failed += check_forward(text);
  }
  assert_int_equal(failed, 0);
}

static void test_gradients(void **state) {
  (void)state;
  int failed = 0;
  for (size_t i = 0; i < sizeof gradient_cases / sizeof gradient_cases[0]; i++) failed += check_gradient(gradient_cases[i]);
  assert_int_equal(failed, 0);
}

static void test_f32_gradients(void **state) {
  (void)state;
  int failed = 0;
  for (size_t i = 0; i < sizeof f32_cases / sizeof f32_cases[0]; i++) failed += check_f32(f32_cases[i]);
  for (size_t i = 0; i < sizeof gradient_cases / sizeof gradient_cases[0]; i++) failed += check_f32(gradient_cases[i]);
  assert_int_equal(failed, 0);
}

int main(int argc, char **argv) {
  int failed = 0;
  for (int i = 1; i < argc; i++) {
    const int wrong = check_forward(argv[i]) + check_f32(argv[i]) + check_gradient(argv[i]);
    printf("%s %s\n", wrong == 0 ? "passed" : "FAILED", argv[i]);
    failed += wrong;
  }
  if (argc > 1) return failed > 0;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_forward),
      cmocka_unit_test(test_every_length),
      cmocka_unit_test(test_gradients),
      cmocka_unit_test(test_f32_gradients),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
