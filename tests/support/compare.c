/* compare.c - numbers against an oracle's: the first and the worst disagreement are printed. */
#include "support/compare.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void test_results_read(test_run *run, bool backward, test_results *out) {
  *out = (test_results){0};
  for (int i = 0; i < run->op->output_count; i++) out->values[TEST_OUTPUT][i] = test_run_read(run, TEST_OUTPUT, i);
  for (int i = 0; i < HARK_MAX_SAVED; i++) {
    const hark_type type = run->call.saved[i].type; /* bytes are the kernel's own business */
    if (type != HARK_NONE && type != HARK_U8) out->values[TEST_SAVED][i] = test_run_read(run, TEST_SAVED, i);
  }
  for (int i = 0; i < HARK_MAX_INPUTS; i++) {
    const bool there = run->call.inputs[i].type != HARK_NONE;
    if (there && (run->op->updates >> i & 1u) != 0) out->values[TEST_INPUT][i] = test_run_read(run, TEST_INPUT, i);
    const bool present = run->call.input_gradients[i].type != HARK_NONE;
    if (backward && present && (run->requested >> i & 1u) != 0)
      out->values[TEST_INPUT_GRADIENT][i] = test_run_read(run, TEST_INPUT_GRADIENT, i);
  }
}

void test_results_free(test_results *results) {
  for (int role = 0; role < TEST_ROLES; role++) {
    for (int i = 0; i < HARK_MAX_INPUTS; i++) free(results->values[role][i]);
  }
  *results = (test_results){0};
}

double test_epsilon(hark_type type) { return type == HARK_F64 ? DBL_EPSILON : (double)FLT_EPSILON; }

static double distance(double actual, double expected) {
  if (actual == expected || (isnan(actual) && isnan(expected))) return 0;
  const double difference = fabs(actual - expected);
  return isnan(difference) ? INFINITY : difference;
}

void test_close(const test_run *run, const char *what, const double *actual, const double *expected, int64_t count, double bound) {
  int64_t wrong = 0, worst = 0;
  for (int64_t i = 0; i < count; i++) {
    if (!(distance(actual[i], expected[i]) <= bound)) wrong++;
    if (distance(actual[i], expected[i]) > distance(actual[worst], expected[worst])) worst = i;
  }
  if (wrong == 0) return;
  test_run_fail(run, "%s: %" PRId64 " of %" PRId64 " numbers are off, worst [%" PRId64 "] = %.9g, expected %.9g within %.3g", what, wrong,
                count, worst, actual[worst], expected[worst], bound);
}

void test_same_bits(const test_run *run, const char *what, const double *actual, const double *expected, int64_t count) {
  for (int64_t i = 0; i < count; i++) {
    if (memcmp(&actual[i], &expected[i], sizeof actual[i]) == 0 || (isnan(actual[i]) && isnan(expected[i]))) continue;
    test_run_fail(run, "%s: [%" PRId64 "] = %.17g, expected the same bits as %.17g", what, i, actual[i], expected[i]);
  }
}
