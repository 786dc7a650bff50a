/* test_trained_experiments.c - the experiments that train networks pass their criteria, each of which can fail. */
#include <string.h>

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

static void every_trained_experiment_holds(void **state) {
  (void)state;
  int count = 0;
  for (int i = 0; i < hark_lab_entry_count; i++) {
    if (!test_laboratory_trains(hark_lab_entries[i].name)) continue;
    count++;
    if (hark_lab_missing(hark_lab_entries[i].experiment) == NULL) test_laboratory_holds(context, i);
  }
  assert_int_equal(count, 8);
}

/* With seed 7 a mean of E_gen is negative, which has no logarithm: the power of n is a number all the same, that of the others. */
static void a_negative_mean_is_no_nan(void **state) {
  (void)state;
  const int experiment = hark_lab_find("decomposition");
  if (hark_lab_missing(hark_lab_entries[experiment].experiment) != NULL) skip();
  laboratory l = test_laboratory_run(context, experiment, 7);
  const hark_lab_table *const table = &l.lab->tables[0];
  int negative = 0;
  for (int64_t i = 0; i < hark_lab_row_count(table); i++)
    for (int c = 0; c < table->column_count; c++)
      negative += strcmp(table->columns[c].name, "E_gen") == 0 && hark_lab_row(table, i)[0] == 0 && hark_lab_row(table, i)[c] < 0;
  assert_true(negative > 0);
  for (int c = 0; c < l.lab->criterion_count; c++)
    if (!hark_lab_passes(&l.lab->criteria[c])) fail_msg("%s: %g", l.lab->criteria[c].name, l.lab->criteria[c].measured);
  test_laboratory_stop(context, &l);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_trained_experiment_holds), cmocka_unit_test(a_negative_mean_is_no_nan)};
  return cmocka_run_group_tests(tests, begin, end);
}
