/* test_search.c - the search for adversaries finds what is known to be largest, and the ratios of lemmas are those of the formulas. */
#include <math.h>
#include <string.h>

#include "lab/ratios.h"
#include "lab/search.h"
#include "support/cmocka_all.h"
#include "support/setups.h"
#include "support/text_files.h"

static hark_context *context;
static hark_lab *lab;

static int begin(void **state) {
  (void)state;
  context = test_reference_open();
  assert_fine(context, hark_lab_create(context, true, 1, NULL, &lab));
  return 0;
}

static int end(void **state) {
  (void)state;
  hark_lab_destroy(&lab);
  test_setup_close(context);
  return 0;
}

/* 7 - (x - 1)^2 - 10 (y + 2)^2, largest at (1, -2). */
static hark_status hill(void *user, const double *x, double *out) {
  (void)user;
  *out = 7 - (x[0] - 1) * (x[0] - 1) - 10 * (x[1] + 2) * (x[1] + 2);
  return HARK_OK;
}

static hark_status cliff(void *user, const double *x, double *out) {
  (void)user;
  *out = x[0] < 2 ? x[0] : NAN;
  return HARK_OK;
}

static hark_status failing(void *user, const double *x, double *out) {
  (void)x;
  *out = 0;
  return ++*(int *)user == 5 ? HARK_OUT_OF_MEMORY : HARK_OK;
}

static void the_top_of_a_hill_is_found(void **state) {
  (void)state;
  double x[2] = {-3, 4}, best;
  const hark_lab_search search = {.dims = 2, .steps = 2000, .rate = 0.1, .value = hill};
  assert_fine(context, hark_lab_maximise(lab, &search, x, &best));
  assert_true(fabs(best - 7) < 1e-4 && fabs(x[0] - 1) < 1e-2 && fabs(x[1] + 2) < 1e-2);
  double start[2] = {-3, 4};
  const hark_lab_search none = {.dims = 2, .steps = 0, .rate = 0.1, .value = hill};
  assert_fine(context, hark_lab_maximise(lab, &none, start, &best));
  assert_true(best == 7 - 16 - 360 && start[0] == -3 && start[1] == 4);
}

/* The best point that was met stays, whatever comes after it. */
static void values_that_are_none_end_a_search(void **state) {
  (void)state;
  double x[1] = {0}, best;
  int calls = 0;
  const hark_lab_search search = {.dims = 1, .steps = 1000, .rate = 0.1, .value = cliff};
  assert_fine(context, hark_lab_maximise(lab, &search, x, &best));
  assert_true(best == x[0] && best > 1.5 && best < 2);
  const hark_lab_search stopped = {.dims = 1, .steps = 1000, .rate = 0.1, .value = failing, .user = &calls};
  assert_int_equal(hark_lab_maximise(lab, &stopped, x, &best), HARK_OUT_OF_MEMORY);
  assert_int_equal(calls, 5);
}

/* Two keys at distances 0 and 1 of the query: p = 1 / (1 + e^(-1/(2 s2))). Moved onto the query: one half each. */
static void softmax_weights_move_as_by_hand(void **state) {
  (void)state;
  const double q[1] = {0}, k[2] = {0, 1}, moved[2] = {0, 0}, variance = 0.7;
  double distance;
  assert_fine(context, hark_lab_weights_distance(lab, variance, 2, 1, q, q, k, moved, &distance));
  assert_true(fabs(distance - 2 * (1 / (1 + exp(-1 / (2 * variance))) - 0.5)) < 1e-15);
}

/* Printed and corrected right sides differ by a known factor, so the largest ratios do: w^v / s2 of C.12, and 1 / s2 of F.6. */
static void ratios_differ_by_the_correction(void **state) {
  (void)state;
  const hark_lab_layer layer = {.heads = 1, .head_dim = 2, .length = 3, .radius = 1, .value_norm = 5, .query_norm = 1, .variance = 2};
  hark_lab_ratio ratio;
  assert_fine(context, hark_lab_largest_ratio(lab, HARK_LAB_C12, &layer, 1, 5, 0, &ratio));
  assert_true(ratio.corrected > 0 && fabs(ratio.printed / ratio.corrected - (5 + 1e-4) / 2) < 1e-9);
  assert_fine(context, hark_lab_largest_ratio(lab, HARK_LAB_F6, &layer, 1, 5, 0, &ratio));
  assert_true(ratio.corrected > 0 && fabs(ratio.printed / ratio.corrected - 1 / 2.) < 1e-12);
  const hark_lab_layer large = {.heads = 1, .head_dim = 2, .length = 1000, .radius = 1, .value_norm = 5, .query_norm = 1, .variance = 2};
  assert_failure(context, hark_lab_largest_ratio(lab, HARK_LAB_C12, &large, 1, 5, 0, &ratio), HARK_TOO_LARGE, "more than");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(the_top_of_a_hill_is_found), cmocka_unit_test(values_that_are_none_end_a_search),
                                     cmocka_unit_test(softmax_weights_move_as_by_hand), cmocka_unit_test(ratios_differ_by_the_correction)};
  return cmocka_run_group_tests(tests, begin, end);
}
