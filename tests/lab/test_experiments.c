/* test_experiments.c - every experiment of the table: it passes its criteria, each of which can fail; the same seed gives the same bits. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lab/attention.h"
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

static const hark_option_table *const own_tables[] = {
#define OWN(id, name, options) options,
    HARK_EXPERIMENTS(OWN)
#undef OWN
};

/* A quick run, with the experiment's own options at their defaults. */
typedef struct laboratory {
  hark_lab *lab;
  hark_options *options;
  void *values;
} laboratory;

static laboratory run(int experiment, uint64_t seed) {
  laboratory l = {NULL, NULL, NULL};
  if (own_tables[experiment] != NULL) {
    l.values = calloc(1, own_tables[experiment]->values_size);
    const hark_option_group group = {own_tables[experiment], l.values};
    assert_fine(context, hark_options_create(context, "lab", &group, 1, &l.options));
  }
  assert_fine(context, hark_lab_create(context, true, seed, l.values, &l.lab));
  assert_fine(context, hark_lab_run(l.lab, hark_lab_entries[experiment].experiment));
  return l;
}

static void stop(laboratory *l) {
  hark_lab_destroy(&l->lab);
  hark_options_destroy(context, &l->options);
  free(l->values);
}

/* What this build cannot run; what trains networks is tested in test_ahca.c. */
static bool is_elsewhere(int experiment) {
  return hark_lab_missing(hark_lab_entries[experiment].experiment) != NULL || hark_lab_entries[experiment].experiment->trains;
}

static void every_experiment_passes(void **state) {
  (void)state;
  assert_true(hark_lab_entry_count >= 3);
  for (int i = 0; i < hark_lab_entry_count; i++) {
    const char *const name = hark_lab_entries[i].name;
    if (is_elsewhere(i)) continue;
    laboratory l = run(i, 1);
    for (int c = 0; c < l.lab->criterion_count; c++)
      if (!hark_lab_passes(&l.lab->criteria[c]))
        fail_msg("%s: %s: %g, expected [%g, %g]", name, l.lab->criteria[c].name, l.lab->criteria[c].measured, l.lab->criteria[c].low,
                 l.lab->criteria[c].high);
    assert_true(hark_lab_all_pass(l.lab));
    for (int t = 0; t < l.lab->table_count; t++)
      if (hark_lab_row_count(&l.lab->tables[t]) == 0) fail_msg("%s: table \"%s\" is empty", name, l.lab->tables[t].title);
    for (int p = 0; p < l.lab->panel_count; p++)
      if (l.lab->panels[p].curve_count == 0 && hark_lab_cell_count(&l.lab->panels[p]) == 0)
        fail_msg("%s: panel \"%s\" is empty", name, l.lab->panels[p].axes.title);
    stop(&l);
  }
}

/* Puts `value` into a number of a table and judges: bit c of *failed is set where criterion c fails. */
static void judge_changed(laboratory *l, int experiment, double *number, double value, uint64_t *failed) {
  const double before = *number;
  *number = value;
  assert_fine(context, hark_lab_judge(l->lab, hark_lab_entries[experiment].experiment));
  for (int c = 0; c < l->lab->criterion_count; c++)
    if (!hark_lab_passes(&l->lab->criteria[c])) *failed |= UINT64_C(1) << c;
  *number = before;
}

/* For every criterion there is a number in a table that fails it when it is another one, larger or smaller. */
static void every_criterion_can_fail(void **state) {
  (void)state;
  for (int i = 0; i < hark_lab_entry_count; i++) {
    if (is_elsewhere(i)) continue;
    laboratory l = run(i, 1);
    uint64_t failed = 0;
    for (int t = 0; t < l.lab->table_count; t++) {
      const hark_lab_table *const table = &l.lab->tables[t];
      for (int64_t row = 0; row < hark_lab_row_count(table); row++)
        for (int column = 0; column < table->column_count; column++) {
          double *const number = (double *)hark_lab_row(table, row) + column;
          if (table->columns[column].words != NULL) continue;
          judge_changed(&l, i, number, 20 * fabs(*number) + 3, &failed);
          judge_changed(&l, i, number, *number / 20 - 1e-3, &failed);
        }
    }
    assert_fine(context, hark_lab_judge(l.lab, hark_lab_entries[i].experiment));
    for (int c = 0; c < l.lab->criterion_count; c++)
      if ((failed >> c & 1) == 0) fail_msg("%s: no number of its tables fails \"%s\"", hark_lab_entries[i].name, l.lab->criteria[c].name);
    assert_true(hark_lab_all_pass(l.lab));
    stop(&l);
  }
}

static void the_seed_decides_all_numbers(void **state) {
  (void)state;
  const int experiment = hark_lab_find("nadaraya-watson");
  laboratory a = run(experiment, 7), b = run(experiment, 7), c = run(experiment, 8);
  const hark_text *const rows = &a.lab->tables[0].rows;
  assert_int_equal(rows->length, b.lab->tables[0].rows.length);
  assert_memory_equal(rows->data, b.lab->tables[0].rows.data, rows->length);
  assert_memory_not_equal(rows->data, c.lab->tables[0].rows.data, rows->length);
  stop(&a);
  stop(&b);
  stop(&c);
}

/* Where all errors are zero nothing is said of their ratios: that is no pass. */
static void nothing_over_nothing_fails(void **state) {
  (void)state;
  const int experiment = hark_lab_find("approximation");
  laboratory l = run(experiment, 1);
  const hark_lab_table *const table = &l.lab->tables[0];
  int failed = 0;
  for (int64_t i = 0; i < hark_lab_row_count(table); i++)
    for (int c = 0; c < table->column_count; c++)
      if (strcmp(table->columns[c].name, "error") == 0) ((double *)hark_lab_row(table, i))[c] = 0;
  assert_fine(context, hark_lab_judge(l.lab, hark_lab_entries[experiment].experiment));
  for (int c = 0; c < l.lab->criterion_count; c++) failed += isnan(l.lab->criteria[c].measured) && !hark_lab_passes(&l.lab->criteria[c]);
  assert_int_equal(failed, 4);
  stop(&l);
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
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_experiment_passes),      cmocka_unit_test(every_criterion_can_fail),
      cmocka_unit_test(the_seed_decides_all_numbers), cmocka_unit_test(criteria_are_intervals),
      cmocka_unit_test(tables_hold_numbers),          cmocka_unit_test(an_experiment_without_criteria_is_none),
      cmocka_unit_test(memory_may_run_out),           cmocka_unit_test(experiments_end_when_memory_does),
      cmocka_unit_test(nothing_over_nothing_fails)};
  return cmocka_run_group_tests(tests, begin, end);
}
