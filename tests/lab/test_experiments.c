/* test_experiments.c - every experiment of the table that trains nothing: it passes its criteria, each of which can fail; the same seed
 * gives the same bits. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lab/attention.h"
#include "laboratory.h"
#include "support/cmocka_all.h"
#include "support/setups.h"
#include "support/text_files.h"

static hark_context *context;

static int begin(void **state) {
  (void)state;
  context = test_reference_open();
  return 0;
}

static int end(void **state) {
  (void)state;
  test_setup_close(context);
  return 0;
}

/* What this build cannot run; what trains networks is tested in test_ahca.c and test_trained_experiments.c. */
static bool is_elsewhere(int experiment) {
  const hark_lab_entry *entry = &hark_lab_entries[experiment];
  return hark_lab_missing(entry->experiment) != NULL || entry->experiment->trains || test_laboratory_trains(entry->name);
}

static void every_experiment_holds(void **state) {
  (void)state;
  assert_true(hark_lab_entry_count >= 3);
  for (int i = 0; i < hark_lab_entry_count; i++)
    if (!is_elsewhere(i)) test_laboratory_holds(context, i);
}

static void the_seed_decides_all_numbers(void **state) {
  (void)state;
  const int experiment = hark_lab_find("nadaraya-watson");
  laboratory a = test_laboratory_run(context, experiment, 7), b = test_laboratory_run(context, experiment, 7),
             c = test_laboratory_run(context, experiment, 8);
  const hark_text *const rows = &a.lab->tables[0].rows;
  assert_int_equal(rows->length, b.lab->tables[0].rows.length);
  assert_memory_equal(rows->data, b.lab->tables[0].rows.data, rows->length);
  assert_memory_not_equal(rows->data, c.lab->tables[0].rows.data, rows->length);
  test_laboratory_stop(context, &a);
  test_laboratory_stop(context, &b);
  test_laboratory_stop(context, &c);
}

/* Where all errors are zero nothing is said of their ratios: that is no pass. */
static void nothing_over_nothing_fails(void **state) {
  (void)state;
  const int experiment = hark_lab_find("approximation");
  laboratory l = test_laboratory_run(context, experiment, 1);
  const hark_lab_table *const table = &l.lab->tables[0];
  int failed = 0;
  for (int64_t i = 0; i < hark_lab_row_count(table); i++)
    for (int c = 0; c < table->column_count; c++)
      if (strcmp(table->columns[c].name, "error") == 0) ((double *)hark_lab_row(table, i))[c] = 0;
  assert_fine(context, hark_lab_judge(l.lab, hark_lab_entries[experiment].experiment));
  for (int c = 0; c < l.lab->criterion_count; c++) failed += isnan(l.lab->criteria[c].measured) && !hark_lab_passes(&l.lab->criteria[c]);
  assert_int_equal(failed, 4);
  test_laboratory_stop(context, &l);
}

/* ---- the seam itself ---- */

static void criteria_are_intervals(void **state) {
  (void)state;
  hark_lab *lab;
  assert_fine(context, hark_lab_create(context, true, 1, NULL, &lab));
  assert_fine(context, hark_lab_require(lab, 1, 1, 2, "%s", "low end"));
  assert_fine(context, hark_lab_require(lab, 2, 1, 2, "high end"));
  assert_true(hark_lab_all_pass(lab));
  static const double outside[] = {0.999999, 2.000001, NAN, INFINITY, -INFINITY};
  for (size_t i = 0; i < sizeof outside / sizeof outside[0]; i++) {
    lab->criterion_count = 2;
    assert_fine(context, hark_lab_require(lab, outside[i], 1, 2, "outside"));
    assert_false(hark_lab_passes(&lab->criteria[2]));
    assert_false(hark_lab_all_pass(lab));
  }
  assert_string_equal(lab->criteria[0].name, "low end");
  hark_lab_destroy(&lab);
}

static void tables_hold_numbers(void **state) {
  (void)state;
  static const hark_lab_column columns[] = {{"a", NULL, NULL}, {"b", NULL, NULL}};
  const double good[] = {1, 2}, bad[] = {3, NAN};
  hark_lab *lab;
  hark_lab_table *table;
  assert_fine(context, hark_lab_create(context, true, 1, NULL, &lab));
  assert_fine(context, hark_lab_add_table(lab, "two columns", columns, 2, &table));
  assert_fine(context, hark_lab_add_row(lab, table, good));
  assert_failure(context, hark_lab_add_row(lab, table, bad), HARK_NOT_FINITE, "two columns: b is");
  assert_int_equal(hark_lab_row_count(table), 1);
  for (int i = 1; i < HARK_LAB_TABLES; i++) assert_fine(context, hark_lab_add_table(lab, "more", columns, 2, &table));
  assert_failure(context, hark_lab_add_table(lab, "more", columns, 2, &table), HARK_INTERNAL_ERROR, "tables");
  hark_lab_destroy(&lab);
}

static hark_status do_nothing(hark_lab *lab) {
  (void)lab;
  return HARK_OK;
}

static void an_experiment_without_criteria_is_none(void **state) {
  (void)state;
  const hark_experiment empty = {.summary = "", .paper = "", .statement = "", .measure = do_nothing, .judge = do_nothing};
  hark_lab *lab;
  assert_fine(context, hark_lab_create(context, true, 1, NULL, &lab));
  assert_failure(context, hark_lab_run(lab, &empty), HARK_INTERNAL_ERROR, "cannot fail");
  hark_lab_destroy(&lab);
}

/* An experiment that uses every part of the seam, small. */
static hark_status measure_small(hark_lab *lab) {
  static const hark_lab_column columns[] = {{"number", NULL, NULL}};
  static const hark_lab_axes axes = {.title = "all", .x = "x", .y = "y"};
  const hark_attention_desc dense = hark_attention_desc_default();
  const hark_lab_cell cell = {0, 1, 0, 1, 0.5, "1"};
  double *numbers;
  hark_lab_table *table;
  hark_lab_panel *panel;
  hark_lab_curve *curve;
  HARK_TRY(hark_lab_numbers(lab, 16, &numbers));
  hark_lab_normal(lab, 0, 12, numbers);
  const hark_lab_head head = {.length = 4, .head_dim = 1, .value_dim = 1, .query = numbers, .key = numbers + 4, .value = numbers + 8};
  HARK_TRY(hark_lab_attend(lab->context, &dense, &head, numbers + 12));
  HARK_TRY(hark_lab_add_table(lab, "numbers", columns, 1, &table));
  HARK_TRY(hark_lab_add_row(lab, table, numbers + 12));
  HARK_TRY(hark_lab_add_panel(lab, axes, &panel));
  HARK_TRY(hark_lab_add_curve(lab, panel, HARK_LAB_LINE, &curve, "curve"));
  HARK_TRY(hark_lab_add_point(curve, 1, 2));
  return hark_lab_add_cell(panel, &cell);
}

static hark_status judge_small(hark_lab *lab) { return hark_lab_require(lab, 0, 0, 0, "zero"); }

/* The n-th request for memory fails, for every n: HARK_OUT_OF_MEMORY, and nothing is left. */
static void memory_may_run_out(void **state) {
  (void)state;
  const hark_experiment small = {.summary = "", .paper = "", .statement = "", .measure = measure_small, .judge = judge_small};
  hark_status status = HARK_OUT_OF_MEMORY;
  long fail_at = 0;
  while (status != HARK_OK) {
    test_memory memory;
    hark_lab *lab = NULL;
    hark_context *const tight = test_memory_context(&memory);
    memory.fail_at = memory.allocations + ++fail_at;
    status = hark_lab_create(tight, true, 1, NULL, &lab);
    if (status == HARK_OK) status = hark_lab_run(lab, &small);
    if (status != HARK_OK) assert_int_equal(status, HARK_OUT_OF_MEMORY);
    hark_lab_destroy(&lab);
    test_memory_context_end(tight, &memory);
  }
  assert_true(fail_at > 5);
}

/* What a run took for itself can go before the next one: what it found stays. */
static void numbers_can_be_forgotten(void **state) {
  (void)state;
  const hark_experiment small = {.summary = "", .paper = "", .statement = "", .measure = measure_small, .judge = judge_small};
  test_memory memory;
  hark_lab *lab;
  hark_context *const counted = test_memory_context(&memory);
  assert_fine(counted, hark_lab_create(counted, true, 1, NULL, &lab));
  assert_fine(counted, hark_lab_run(lab, &small));
  const double number = hark_lab_row(&lab->tables[0], 0)[0];
  const size_t live = memory.live_bytes;
  hark_lab_forget_numbers(lab);
  assert_true(memory.live_bytes + 16 * sizeof(double) <= live);
  hark_lab_forget_numbers(lab);
  assert_true(hark_lab_row(&lab->tables[0], 0)[0] == number && hark_lab_all_pass(lab) && lab->panels[0].curve_count == 1);
  hark_lab_destroy(&lab);
  test_memory_context_end(counted, &memory);
}

/* More than any machine has, and more than a size can count: a line each, before memory is asked for. */
static void sizes_beyond_memory_are_refused(void **state) {
  (void)state;
  hark_lab *lab;
  double *numbers;
  assert_fine(context, hark_lab_create(context, true, 1, NULL, &lab));
  assert_failure(context, hark_lab_numbers(lab, INT64_C(1) << 47, &numbers), HARK_OUT_OF_MEMORY, "");
  assert_null(numbers);
  assert_null(strchr(hark_context_message(context), '\n'));
  assert_failure(context, hark_lab_numbers(lab, INT64_MAX, &numbers), HARK_TOO_LARGE, "");
  hark_lab_destroy(&lab);
}

/* Whole experiments: the first, second, fourth, .. request for memory fails. */
static void experiments_end_when_memory_does(void **state) {
  (void)state;
  static const char *const names[] = {"definetti", "sufficiency", "exchangeability", "head-sum", "sphere", "covering", "lipschitz"};
  for (size_t n = 0; n < sizeof names / sizeof names[0]; n++) {
    const hark_experiment *const experiment = hark_lab_entries[hark_lab_find(names[n])].experiment;
    if (hark_lab_missing(experiment) != NULL) continue;
    for (long fail_at = 2; fail_at <= 64; fail_at *= 2) {
      test_memory memory;
      hark_lab *lab = NULL;
      hark_context *const tight = test_memory_context(&memory);
      memory.fail_at = memory.allocations + fail_at;
      assert_fine(tight, hark_lab_create(tight, true, 1, NULL, &lab));
      const hark_status status = hark_lab_run(lab, experiment);
      if (status != HARK_OK) assert_int_equal(status, HARK_OUT_OF_MEMORY);
      assert_true(status != HARK_OK || fail_at > 2);
      hark_lab_destroy(&lab);
      test_memory_context_end(tight, &memory);
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_experiment_holds),
                                     cmocka_unit_test(the_seed_decides_all_numbers),
                                     cmocka_unit_test(criteria_are_intervals),
                                     cmocka_unit_test(tables_hold_numbers),
                                     cmocka_unit_test(an_experiment_without_criteria_is_none),
                                     cmocka_unit_test(memory_may_run_out),
                                     cmocka_unit_test(numbers_can_be_forgotten),
                                     cmocka_unit_test(experiments_end_when_memory_does),
                                     cmocka_unit_test(nothing_over_nothing_fails),
                                     cmocka_unit_test(sizes_beyond_memory_are_refused)};
  return cmocka_run_group_tests(tests, begin, end);
}
