/* test_lab_seeds.c - hark lab --seeds: lists, what is printed of several seeds beside a run of each, and that nothing hides a seed that
 * fails. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/lab/lab_markdown.h"
#include "cli/lab/lab_seeds.h"
#include "support/lab_fixture.h"

/* ---- lists ---- */

static void lists_are_read(void **state) {
  (void)state;
  static const struct {
    const char *text;
    int count;
    int64_t seeds[8];
    const char *part; /* of the complaint; NULL: none */
  } lists[] = {{"1", 1, {1}, NULL},
               {"1-3", 3, {1, 2, 3}, NULL},
               {"1,3,7-9", 5, {1, 3, 7, 8, 9}, NULL},
               {"9,0,4-4", 3, {9, 0, 4}, NULL},
               {"9223372036854775806-9223372036854775807", 2, {INT64_MAX - 1, INT64_MAX}, NULL},
               {"", 0, {0}, "'' is neither a whole number"},
               {"1,", 0, {0}, "'' is neither a whole number"},
               {",1", 0, {0}, "'' is neither a whole number"},
               {"1,,2", 0, {0}, "'' is neither a whole number"},
               {"a", 0, {0}, "'a' is neither a whole number"},
               {"1.5", 0, {0}, "'1.5' is neither a whole number"},
               {"-3", 0, {0}, "'-3' is neither a whole number"},
               {"1 2", 0, {0}, "'1 2' is neither a whole number"},
               {"1-", 0, {0}, "'1-' is not a range"},
               {"1-2-3", 0, {0}, "'1-2-3' is not a range"},
               {"2--3", 0, {0}, "'2--3' ends below"},
               {"1,5-4", 0, {0}, "'5-4' ends below its beginning"},
               {"1,2,1", 0, {0}, "has seed 1 twice"},
               {"1-5,3", 0, {0}, "has seed 3 twice"},
               {"1-1001", 0, {0}, "more than 1000 seeds"},
               {"1-999,2000-2001", 0, {0}, "more than 1000 seeds"},
               {"0-9223372036854775807", 0, {0}, "more than 1000 seeds"},
               {"9223372036854775808", 0, {0}, "is neither a whole number"}};
  for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
    char complaint[HARK_LAB_COMPLAINT_BYTES] = "";
    hark_lab_seeds seeds;
    const bool read = hark_lab_seeds_read(lists[i].text, &seeds, complaint);
    if (read != (lists[i].part == NULL) || (!read && strstr(complaint, lists[i].part) == NULL))
      fail_msg("\"%s\": \"%s\", expected \"%s\"", lists[i].text, read ? "is read" : complaint, read ? "no complaint" : lists[i].part);
    if (!read) continue;
    assert_int_equal(seeds.count, lists[i].count);
    assert_memory_equal(seeds.list, lists[i].seeds, (size_t)seeds.count * sizeof *seeds.list);
  }
  hark_lab_seeds seeds;
  char complaint[HARK_LAB_COMPLAINT_BYTES];
  assert_true(hark_lab_seeds_read("0-999", &seeds, complaint));
  assert_int_equal(seeds.count, HARK_LAB_SEEDS);
}

static void wrong_lists_are_refused(void **state) {
  (void)state;
  static const struct {
    const char *line, *part;
  } wrong[] = {{"hark lab rank-map --quick --seeds 3-1", "--seeds: '3-1' ends below its beginning"},
               {"hark lab rank-map --quick --seeds 1,1", "--seeds: has seed 1 twice"},
               {"hark lab rank-map --quick --seeds 1-100000", "--seeds: more than 1000 seeds"},
               {"hark lab rank-map --quick --seeds one", "--seeds: 'one' is neither a whole number"},
               {"hark lab rank-map --quick --seeds=", "--seeds: is empty, expected LIST"},
               {"hark lab rank-map --quick --seed 2 --seeds 1-3", "--seed: cannot be used together with --seeds"},
               {"hark lab rank-map --quick --seeds 1-3 --terminal", "--terminal: draws one seed"},
               {"hark lab --list --seeds 1-3", "--seeds: has no effect here"}};
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
    hark(wrong[i].line, HARK_EXIT_USAGE);
    if (strstr(output.err, wrong[i].part) == NULL || test_line_count(output.err) != 1)
      fail_msg("%s: %s, expected one line with \"%s\"", wrong[i].line, output.err, wrong[i].part);
    assert_string_equal(output.out, "");
  }
}

/* ---- runs ---- */

/* What one run printed of its criteria. */
static json_t *run_alone(const char *name, int64_t seed) {
  char line[128];
  (void)snprintf(line, sizeof line, "hark lab %s --quick --seed %lld --json", name, (long long)seed);
  hark(line, 0);
  return parsed(output.out);
}

static double number(const json_t *object, const char *name) {
  const json_t *const value = json_object_get(object, name);
  assert_true(json_is_number(value));
  return json_number_value(value);
}

static void assert_near(double have, double expected, double within) {
  if (!(fabs(have - expected) <= within)) fail_msg("%.17g, expected %.17g within %g", have, expected, within);
}

/* Mean, deviation, least and largest are those of the numbers in `measured`. */
static void check_summary(const json_t *criterion) {
  const json_t *const measured = json_object_get(criterion, "measured");
  const size_t count = json_array_size(measured);
  double sum = 0, squares = 0, least = INFINITY, largest = -INFINITY;
  for (size_t s = 0; s < count; s++) {
    const double value = json_number_value(json_array_get(measured, s));
    sum += value;
    least = fmin(least, value);
    largest = fmax(largest, value);
  }
  for (size_t s = 0; s < count; s++) squares += pow(json_number_value(json_array_get(measured, s)) - sum / (double)count, 2);
  assert_near(number(criterion, "mean"), sum / (double)count, 1e-12 * (1 + fabs(sum)));
  assert_near(number(criterion, "deviation"), sqrt(squares / ((double)count - 1)), 1e-9 * (1 + fabs(largest - least)));
  assert_true(number(criterion, "least") == least && number(criterion, "largest") == largest);
}

/* --seeds says of every criterion what --seed says of it with each seed, and its exit code with --strict and its text follow. With
 * rank-map, which draws nothing, all seeds measure the same; with rotary-kernel rounding exceeds its bound with seed 28 alone. */
static void several_seeds_are_each_alone(void **state) {
  (void)state;
  static const struct {
    const char *name, *list;
    int count;
    int64_t seeds[4];
    bool differ;
  } rows[] = {{"definetti", "1-2", 2, {1, 2}, true},
              {"rank-map", "4,1", 2, {4, 1}, false},
              {"theorem-model", "3,5-6", 3, {3, 5, 6}, true},
              {"rotary-kernel", "27-30", 4, {27, 28, 29, 30}, true}};
  for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
    char line[256], expected[128];
    int passing = 0;
    bool differ = false;
    if (hark_lab_missing(hark_lab_entries[hark_lab_find(rows[r].name)].experiment) != NULL) continue;
    (void)snprintf(line, sizeof line, "hark lab %s --quick --seeds %s --json", rows[r].name, rows[r].list);
    hark(line, 0);
    assert_int_equal(test_line_count(output.out), 1);
    json_t *const all = parsed(output.out);
    assert_string_equal(json_string_value(json_object_get(all, "experiment")), rows[r].name);
    assert_true(json_is_true(json_object_get(all, "quick")));
    assert_int_equal(json_array_size(json_object_get(all, "seeds")), rows[r].count);
    const json_t *const criteria = json_object_get(all, "criteria");
    for (int s = 0; s < rows[r].count; s++) {
      json_t *const alone = run_alone(rows[r].name, rows[r].seeds[s]);
      const json_t *const own = json_object_get(alone, "criteria");
      const bool passed = json_is_true(json_object_get(alone, "passed"));
      passing += passed;
      assert_int_equal(json_integer_value(json_array_get(json_object_get(all, "seeds"), (size_t)s)), rows[r].seeds[s]);
      assert_true(json_is_true(json_array_get(json_object_get(all, "passed"), (size_t)s)) == passed);
      assert_int_equal(json_array_size(own), json_array_size(criteria));
      for (size_t c = 0; c < json_array_size(criteria); c++) {
        const json_t *const criterion = json_array_get(criteria, c), *const mine = json_array_get(own, c);
        const json_t *const measured = json_object_get(criterion, "measured");
        assert_string_equal(json_string_value(json_object_get(criterion, "name")), json_string_value(json_object_get(mine, "name")));
        assert_true(json_equal(json_array_get(measured, (size_t)s), json_object_get(mine, "measured")));
        assert_true(json_equal(json_object_get(criterion, "low"), json_object_get(mine, "low")));
        assert_true(json_equal(json_object_get(criterion, "high"), json_object_get(mine, "high")));
        assert_true(json_equal(json_array_get(json_object_get(criterion, "passed"), (size_t)s), json_object_get(mine, "passed")));
        differ = differ || !json_equal(json_array_get(measured, (size_t)s), json_array_get(measured, 0));
        check_summary(criterion);
      }
      json_decref(alone);
    }
    assert_true(differ == rows[r].differ);
    if (r == 3) assert_true(passing > 0 && passing < rows[r].count);
    json_decref(all);
    (void)snprintf(line, sizeof line, "hark lab %s --quick --seeds %s --strict --markdown %s.md --out %s", rows[r].name, rows[r].list,
                   rows[r].name, rows[r].name);
    hark(line, passing == rows[r].count ? 0 : HARK_EXIT_FAILED);
    (void)snprintf(expected, sizeof expected, "\n%s: passed with %d of %d seeds\n", rows[r].name, passing, rows[r].count);
    const char *const last = strstr(output.out, expected);
    assert_non_null(last);
    assert_true((strstr(output.out, "\nseeds that fail: ") == NULL) == (passing == rows[r].count));
    (void)snprintf(line, sizeof line, "%s/%s.md", rows[r].name, rows[r].name);
    char *const document = test_file_text(folder, line);
    (void)snprintf(expected, sizeof expected, "\nPassed with %d of %d seeds: `hark lab %s --seeds %s --quick`\n", passing, rows[r].count,
                   rows[r].name, rows[r].list);
    assert_string_equal(document + strlen(document) - strlen(expected), expected);
    free(document);
    (void)snprintf(line, sizeof line, "%s/%s.txt", rows[r].name, rows[r].name);
    char *const text = test_file_text(folder, line);
    assert_true(strncmp(output.out, text, strlen(text)) == 0);
    free(text);
  }
}

/* One seed that fails has the next one beside it in the document, and what is printed is of the one alone. */
static void a_seed_that_fails_is_not_left_alone(void **state) {
  (void)state;
  hark("hark lab rotary-kernel --quick --seed 28 --markdown alone.md --strict", HARK_EXIT_FAILED);
  assert_non_null(strstr(output.out, "\nseed: 28, quick\n"));
  assert_null(strstr(output.out, "seeds"));
  char *const document = test_file_text(folder, "alone/rotary-kernel.md");
  assert_non_null(strstr(document, " of 2 seeds: `hark lab rotary-kernel --seeds 28-29 --quick`\n"));
  assert_non_null(strstr(document, "| criterion that fails | bound | measured where it fails |\n"));
  assert_non_null(strstr(document, " (seed 28)"));
  assert_null(strstr(document, "\nPassed:"));
  free(document);
}

/* ---- what is printed ---- */

#define SEEDS 4

/* Seeds 8, 9, 10, 12 of an experiment of four criteria. */
static void make_outcomes(hark_lab_outcomes *out, const double measured[SEEDS][4]) {
  static const int64_t seeds[SEEDS] = {8, 9, 10, 12};
  static const char *const names[] = {"by chance, in standard errors", "always", "never", "later"};
  *out = (hark_lab_outcomes){.context = context};
  for (int s = 0; s < SEEDS; s++) {
    hark_lab *lab;
    assert_fine(context, hark_lab_create(context, true, (uint64_t)seeds[s], NULL, &lab));
    for (int c = 0; c < 4; c++) assert_fine(context, hark_lab_require(lab, measured[s][c], 0, 3, "%s", names[c]));
    assert_fine(context, hark_lab_outcomes_add(out, seeds[s], &lab));
    assert_null(lab);
  }
}

static void failures_are_shown(void **state) {
  (void)state;
  static const double measured[SEEDS][4] = {{3.5, 5, 1, 0}, {2.5, 6, 1, 0}, {2, 7, 1, 3.25}, {1, 8, 1, 3.5}};
  static const double passing[SEEDS][4] = {{1, 1, 1, 1}, {1, 1, 1, 1}, {1, 1, 1, 1}, {1, 1, 1, 1}};
  hark_experiment explained = *hark_lab_entries[hark_lab_find("posterior")].experiment;
  explained.failure_of = "in standard errors";
  explained.failure = "Of sixty comparisons, one exceeds three standard errors by chance in one run of eighteen.";
  const hark_lab_entry of_posterior = {.name = "posterior", .experiment = &explained}, *const entry = &of_posterior;
  char explanation[128];
  hark_lab_outcomes outcomes;
  hark_text text = hark_text_empty(context), document = hark_text_empty(context);
  make_outcomes(&outcomes, measured);
  assert_int_equal(hark_lab_passing_seeds(&outcomes), 0);
  hark_lab_print_seeds_text(&outcomes, entry, &text);
  assert_non_null(strstr(hark_text_get(&text), "\nseeds: 8-10,12, quick\n"));
  assert_non_null(strstr(hark_text_get(&text), "\nseeds that fail: 8-10,12\nposterior: passed with 0 of 4 seeds\n"));
  hark_lab_markdown_page(&outcomes, entry, "lab.md", &document);
  const char *const section = hark_text_get(&document);
  assert_non_null(strstr(section, "| by chance, in standard errors | [0, 3] | **3 of 4** | 2.25 | 1 | 1 | 3.5 |\n"));
  assert_non_null(strstr(section, "| always | [0, 3] | **0 of 4** | 6.5 | 1.3 | 5 | 8 |\n"));
  assert_non_null(strstr(section, "| never | [0, 3] | 4 of 4 | 1 | 0 | 1 | 1 |\n"));
  assert_non_null(strstr(section, "| always | [0, 3] | 5 (seed 8), 6 (seed 9), 7 (seed 10), 8 (seed 12) |\n"));
  assert_non_null(strstr(section, "| later | [0, 3] | 3.25 (seed 10), 3.5 (seed 12) |\n"));
  assert_null(strstr(section, "| never | [0, 3] | 1 (seed"));
  (void)snprintf(explanation, sizeof explanation, "*Explanation of* \"by chance, in standard errors\". %.40s", entry->experiment->failure);
  assert_non_null(strstr(section, explanation));
  assert_non_null(strstr(section, "*No explanation is known* for \"always\", \"later\".\n"));
  assert_non_null(strstr(section, "\nPassed with 0 of 4 seeds: `hark lab posterior --seeds 8-10,12 --quick`\n"));
  hark_text_free(&document);
  hark_text_free(&text);
  hark_lab_outcomes_end(&outcomes);
  document = hark_text_empty(context);
  make_outcomes(&outcomes, passing);
  hark_lab_markdown_page(&outcomes, entry, "lab.md", &document);
  assert_non_null(strstr(hark_text_get(&document), "\nPassed with 4 of 4 seeds: `hark lab posterior --seeds 8-10,12 --quick`\n"));
  assert_null(strstr(hark_text_get(&document), "criterion that fails"));
  assert_null(strstr(hark_text_get(&document), entry->experiment->failure));
  assert_null(strstr(hark_text_get(&document), "**4 of 4**"));
  hark_text_free(&document);
  hark_lab_outcomes_end(&outcomes);
}

/* One NaN among the seeds fails, and is seen in everything that is said of the criterion. */
static void a_nan_is_seen(void **state) {
  (void)state;
  static const double measured[SEEDS][4] = {{1, 1, 1, 1}, {1, NAN, 1, 1}, {1, 1, INFINITY, 1}, {1, 1, 1, 1}};
  const hark_lab_entry *const entry = &hark_lab_entries[hark_lab_find("posterior")];
  hark_lab_outcomes outcomes;
  hark_text text = hark_text_empty(context), json = hark_text_empty(context), document = hark_text_empty(context);
  make_outcomes(&outcomes, measured);
  const hark_lab_summary of = hark_lab_summarise(&outcomes, 1);
  assert_int_equal(of.passed, 3);
  assert_true(isnan(of.mean) && isnan(of.deviation) && isnan(of.least) && isnan(of.largest));
  assert_int_equal(hark_lab_passing_seeds(&outcomes), 2);
  assert_false(hark_lab_seed_passes(&outcomes, 1));
  hark_lab_print_seeds_text(&outcomes, entry, &text);
  const char *const row =
      strstr(hark_text_get(&text), "  FAIL  3 of 4        [0, 3]             nan           nan           nan           nan");
  assert_non_null(row);
  assert_non_null(strstr(hark_text_get(&text), "\nseeds that fail: 9-10\nposterior: passed with 2 of 4 seeds\n"));
  hark_lab_print_seeds_json(&outcomes, entry, &json);
  json_t *const object = parsed(hark_text_get(&json));
  const json_t *const criterion = json_array_get(json_object_get(object, "criteria"), 1);
  assert_true(json_is_null(json_array_get(json_object_get(criterion, "measured"), 1)));
  assert_true(json_is_false(json_array_get(json_object_get(criterion, "passed"), 1)));
  assert_true(json_is_true(json_array_get(json_object_get(criterion, "passed"), 2)));
  assert_true(json_is_null(json_object_get(criterion, "mean")) && json_is_null(json_object_get(criterion, "least")));
  assert_true(json_is_false(json_array_get(json_object_get(object, "passed"), 1)));
  json_decref(object);
  hark_lab_markdown_page(&outcomes, entry, "lab.md", &document);
  assert_non_null(strstr(hark_text_get(&document), "| always | [0, 3] | **3 of 4** | nan | nan | nan | nan |\n"));
  assert_non_null(strstr(hark_text_get(&document), "| always | [0, 3] | nan (seed 9) |\n"));
  hark_text_free(&text);
  hark_text_free(&json);
  hark_text_free(&document);
  hark_lab_outcomes_end(&outcomes);
}

/* A lab whose criteria are others is refused, and freed. */
static void criteria_are_the_same(void **state) {
  (void)state;
  static const double measured[SEEDS][4] = {{1, 1, 1, 1}, {1, 1, 1, 1}, {1, 1, 1, 1}, {1, 1, 1, 1}};
  hark_lab_outcomes outcomes;
  hark_lab *lab;
  make_outcomes(&outcomes, measured);
  assert_fine(context, hark_lab_create(context, true, 20, NULL, &lab));
  assert_fine(context, hark_lab_require(lab, 1, 0, 3, "another"));
  assert_failure(context, hark_lab_outcomes_add(&outcomes, 20, &lab), HARK_INTERNAL_ERROR, "criteria depend on the seed");
  assert_null(lab);
  assert_int_equal(outcomes.seeds.count, SEEDS);
  hark_lab_outcomes_end(&outcomes);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(lists_are_read),
                                     cmocka_unit_test(wrong_lists_are_refused),
                                     cmocka_unit_test(several_seeds_are_each_alone),
                                     cmocka_unit_test(a_seed_that_fails_is_not_left_alone),
                                     cmocka_unit_test(failures_are_shown),
                                     cmocka_unit_test(a_nan_is_seen),
                                     cmocka_unit_test(criteria_are_the_same)};
  return cmocka_run_group_tests(tests, begin, end);
}
