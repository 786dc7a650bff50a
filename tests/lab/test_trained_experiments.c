/* test_trained_experiments.c - the experiments that train networks pass their criteria, each of which can fail. */
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
  assert_int_equal(count, 6);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_trained_experiment_holds)};
  return cmocka_run_group_tests(tests, begin, end);
}
