/* test_reviews.c - the real text of the experiment downstream: its table from a small file, criteria that can fail, and files that are
 * refused. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "io/files.h"
#include "lab/reviews.h"
#include "support/cmocka_all.h"
#include "support/setups.h"
#include "support/text_files.h"

#define REVIEWS 1600
#define LETTERS 80 /* of a review */

static hark_context *context;
static char folder[TEST_PATH_BYTES];

static int begin(void **state) {
  (void)state;
  context = test_reference_open();
  test_folder_make(folder);
  return 0;
}

static int end(void **state) {
  (void)state;
  test_setup_close(context);
  test_folder_remove(folder);
  return 0;
}

/* One of `every` has label 1; a and b as often as each other, b more often in one of them. */
static const char *write_reviews(int count, int longest, int every) {
  static char path[TEST_PATH_BYTES];
  hark_text text = hark_text_empty(context);
  for (int i = 0; i < count; i++) {
    const int label = i % every == 1;
    hark_text_append(&text, "%d\t", label);
    for (int l = 0; l < longest; l++) hark_text_append(&text, "%c", (l + i / 2) % 4 == 0 ? 'a' + (1 - label) : 'a' + label);
    hark_text_append(&text, "\n");
  }
  const char *const written = test_file_write(folder, "reviews.tsv", hark_text_get(&text), text.length);
  (void)snprintf(path, sizeof path, "%s", written);
  hark_text_free(&text);
  return path;
}

static void gaps_of_reviews_are_measured(void **state) {
  (void)state;
  enum { WIDTH, COUNT, MASKED, FREQUENCIES, BEST, ZERO, GAP };
  hark_lab *lab;
  const char *const path = write_reviews(REVIEWS, LETTERS, 2);
  assert_fine(context, hark_lab_check_reviews(context, path));
  assert_fine(context, hark_lab_create(context, true, 1, NULL, &lab));
  lab->most_steps = 3;
  assert_fine(context, hark_lab_measure_reviews(lab, path));
  assert_int_equal(lab->table_count, 1);
  const hark_lab_table *const table = &lab->tables[0];
  assert_int_equal(hark_lab_row_count(table), 3 * 5);
  for (int64_t i = 0; i < hark_lab_row_count(table); i++) {
    const double *const row = hark_lab_row(table, i);
    assert_true(fabs(row[FREQUENCIES] - log(2)) < 1e-12); /* two letters, as often as each other */
    assert_true(fabs(row[ZERO] - 0.25) < 1e-12);
    assert_true(row[BEST] < 0.2); /* the letters determine the label, whatever the network has learned of them */
    assert_true(row[GAP] > 0);
  }
  assert_fine(context, hark_lab_judge_reviews(lab, table));
  assert_int_equal(lab->criterion_count, 4);
  double *const gap = (double *)hark_lab_row(table, 7) + GAP;
  *gap *= 100;
  lab->criterion_count = 0;
  assert_fine(context, hark_lab_judge_reviews(lab, table));
  assert_false(hark_lab_passes(&lab->criteria[1]));
  hark_lab_destroy(&lab);
}

static void other_files_are_refused(void **state) {
  (void)state;
  assert_int_equal(hark_lab_check_reviews(context, write_reviews(100, LETTERS, 2)), HARK_BAD_FILE);
  assert_non_null(strstr(hark_context_message(context), "100 texts of 64 bytes or more, expected at least 1500"));
  assert_int_equal(hark_lab_check_reviews(context, write_reviews(REVIEWS, 63, 2)), HARK_BAD_FILE);
  assert_non_null(strstr(hark_context_message(context), "0 texts of 64 bytes or more"));
  assert_int_equal(hark_lab_check_reviews(context, write_reviews(REVIEWS, LETTERS, 20)), HARK_BAD_FILE);
  assert_non_null(strstr(hark_context_message(context), "labels are 1, expected a tenth of each label at least"));
  static const char *const wrong[] = {"0\tshort\n2\ttext\n", "0\tshort\nno label\n", "0\tshort\n1 text\n"};
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
    assert_int_equal(hark_lab_check_reviews(context, test_file_write_text(folder, "wrong.tsv", wrong[i])), HARK_BAD_FILE);
    assert_non_null(strstr(hark_context_message(context), "wrong.tsv:2:1: expected a label, 0 or 1, a tab and a text"));
  }
  assert_int_equal(hark_lab_check_reviews(context, "nowhere.tsv"), HARK_NOT_FOUND);
}

/* The n-th request for memory fails: for every n of reading, for some of measuring, and no memory is left. */
static void memory_may_run_out(void **state) {
  (void)state;
  char path[TEST_PATH_BYTES];
  hark_status status = HARK_OUT_OF_MEMORY;
  long fail_at = 0;
  (void)snprintf(path, sizeof path, "%s", write_reviews(REVIEWS, LETTERS, 2));
  while (status != HARK_OK) {
    test_memory memory;
    hark_context *const tight = test_memory_context(&memory);
    memory.fail_at = memory.allocations + ++fail_at;
    status = hark_lab_check_reviews(tight, path);
    if (status != HARK_OK) assert_int_equal(status, HARK_OUT_OF_MEMORY);
    test_memory_context_end(tight, &memory);
  }
  assert_true(fail_at > 5);
  for (fail_at = 1, status = HARK_OUT_OF_MEMORY; status != HARK_OK; fail_at += 1 + fail_at / 2) {
    test_memory memory;
    hark_lab *tight_lab = NULL;
    hark_context *const tight = test_memory_context(&memory);
    memory.fail_at = memory.allocations + fail_at;
    status = hark_lab_create(tight, true, 1, NULL, &tight_lab);
    if (status == HARK_OK) {
      tight_lab->most_steps = 1;
      status = hark_lab_measure_reviews(tight_lab, path);
    }
    if (status != HARK_OK) assert_int_equal(status, HARK_OUT_OF_MEMORY);
    hark_lab_destroy(&tight_lab);
    test_memory_context_end(tight, &memory);
  }
  assert_true(fail_at > 100);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(gaps_of_reviews_are_measured), cmocka_unit_test(other_files_are_refused),
                                     cmocka_unit_test(memory_may_run_out)};
  return cmocka_run_group_tests(tests, begin, end);
}
