/* test_ahca.c - experiments that train networks of compressed attention: quick runs, tasks, the networks themselves, and memory that runs
 * out.
 *
 * Quick runs of all of them take minutes. The short ones are run and have to meet their criteria. The others run with a few steps, which
 * shows that their tables are complete and that every criterion can fail; they have to meet the criteria that need no training.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lab/ahca_tasks.h"
#include "lab/lab_text.h"
#include "laboratory.h"
#include "support/cmocka_all.h"
#include "support/sanitized.h"
#include "support/setups.h"
#include "support/text_files.h"

#define FEW_STEPS 2

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

static hark_lab *open_lab(hark_context *with, int64_t most_steps) {
  hark_lab *lab;
  assert_fine(with, hark_lab_create(with, true, 1, NULL, &lab));
  lab->most_steps = most_steps;
  return lab;
}

/* ---- experiments ---- */

/* Criteria of what is counted and solved: they hold without training. */
static bool needs_no_training(const char *criterion) {
  static const char *const begins[] = {"mean depth", "operations of the layers", "the paper's rule", "white noise"};
  for (size_t i = 0; i < sizeof begins / sizeof *begins; i++)
    if (strncmp(criterion, begins[i], strlen(begins[i])) == 0) return true;
  return false;
}

static bool is_short(const char *name) { return strcmp(name, "ahca-figures") == 0 || strcmp(name, "ahca-ablations") == 0; }

static void quick_runs(void **state) {
  int count = 0, untrained_count = 0;
  (void)state;
  for (int i = 0; i < hark_lab_entry_count; i++) {
    const char *const name = hark_lab_entries[i].name;
    const hark_experiment *const experiment = hark_lab_entries[i].experiment;
    const bool judged = is_short(name) && TEST_SANITIZED == 0;
    if (!experiment->trains || strncmp(name, "ahca-", 5) != 0) continue;
    hark_lab *lab = open_lab(context, judged ? 0 : FEW_STEPS);
    assert_fine(context, hark_lab_run(lab, experiment));
    for (int c = 0; c < lab->criterion_count; c++) {
      const bool untrained = needs_no_training(lab->criteria[c].name);
      untrained_count += untrained;
      if ((judged || untrained) && !hark_lab_passes(&lab->criteria[c]))
        fail_msg("%s: %s: %g, expected [%g, %g]", name, lab->criteria[c].name, lab->criteria[c].measured, lab->criteria[c].low,
                 lab->criteria[c].high);
    }
    test_laboratory_can_fail(context, lab, i);
    hark_lab_destroy(&lab);
    count++;
  }
  assert_int_equal(count, 5);
  assert_int_equal(untrained_count, 4);
}

/* ---- tasks ---- */

/* A network for batches, without training. */
static void open_network(hark_lab *lab, hark_lab_ahca_config config, hark_lab_ahca *n) {
  assert_fine(context, hark_lab_ahca_open(lab, &config, 0, n));
}

static void needles_are_where_they_are_reported(void **state) {
  int64_t where[16];
  hark_lab *lab = open_lab(context, 0);
  hark_lab_ahca n;
  (void)state;
  open_network(lab, hark_lab_needle_config(), &n);
  assert_fine(context, hark_lab_draw_needle(&n, 5, where));
  for (int64_t b = 0; b < n.config.sequences; b++) {
    int found = 0;
    for (int64_t t = 0; t < n.config.rows; t++) {
      const int32_t token = n.host_tokens[b * n.config.rows + t];
      if (token < 32) continue;
      found++;
      assert_int_equal(t, where[b]);
      for (int64_t i = 0; i < n.config.rows; i++) assert_int_equal(n.host_targets[b * n.config.rows + i], i % 16 == 15 ? token : -1);
    }
    assert_int_equal(found, 1);
  }
  hark_lab_ahca_close(&n);
  hark_lab_destroy(&lab);
}

static void hard_maps_are_followed_further(void **state) {
  enum { SYMBOLS = HARK_LAB_MAPS_SYMBOLS, ROWS = SYMBOLS + 1 };
  hark_lab *lab = open_lab(context, 0);
  hark_lab_ahca n;
  (void)state;
  open_network(lab, hark_lab_maps_config(), &n);
  assert_fine(context, hark_lab_draw_maps(&n, 7, NULL));
  for (int64_t b = 0; b < n.config.sequences; b++) {
    int hard = 0;
    for (int64_t k = b * 32; k < (b + 1) * 32; k++) {
      const int32_t *const f = n.host_tokens + k * ROWS + 1;
      const bool is_hard = f[-1] == SYMBOLS + 1;
      assert_true(is_hard || f[-1] == SYMBOLS);
      assert_int_equal(n.host_targets[k * ROWS + SYMBOLS], is_hard ? f[f[f[f[0]]]] : f[0]);
      for (int64_t t = k * ROWS; t < k * ROWS + SYMBOLS; t++) assert_int_equal(n.host_targets[t], -1);
      hard += is_hard;
    }
    assert_int_equal(hard, 8);
  }
  hark_lab_ahca_close(&n);
  hark_lab_destroy(&lab);
}

static void runs_have_their_lengths(void **state) {
  hark_lab *lab = open_lab(context, 0);
  hark_lab_ahca n;
  int64_t shortest = 100, longest = 0;
  (void)state;
  open_network(lab, hark_lab_runs_config(), &n);
  assert_fine(context, hark_lab_draw_runs(&n, 9, NULL));
  for (int64_t b = 0; b < n.config.sequences; b++)
    for (int64_t t = 0, length = 0; t < n.config.rows; t++) {
      const int64_t at = b * n.config.rows + t;
      assert_int_equal(n.host_tokens[at] / 4, n.host_targets[at]);
      length = t > 0 && n.host_targets[at] == n.host_targets[at - 1] ? length + 1 : 1;
      if (t + 1 == n.config.rows || n.host_targets[at] == n.host_targets[at + 1]) continue; /* the last run is cut off */
      if (length < shortest) shortest = length;
      if (length > longest) longest = length;
    }
  assert_int_equal(shortest, 3);
  assert_int_equal(longest, 13);
  hark_lab_ahca_close(&n);
  hark_lab_destroy(&lab);
}

/* ---- networks ---- */

/* Everything: learned chunks, both pools by queries, selection, learned depth. */
static hark_lab_ahca_config everything(void) {
  hark_lab_ahca_config config = hark_lab_runs_config();
  hark_ahca_config *const ahca = &config.model.ahca;
  config.sequences = 3;
  config.rows = config.model.context = 40;
  config.model.layers = 3;
  config.model.heads = config.model.key_heads = 2;
  ahca->primary_depth = 2;
  ahca->primary_slots = 2;
  ahca->primary_pool = ahca->secondary_pool = HARK_AHCA_POOL_ATTENTION;
  ahca->secondary_slots = 6;
  ahca->selected = 3;
  ahca->ponder_weight = 0.02;
  hark_lab_ahca_give_capacity(&config, 0.5);
  return config;
}

/* What the experiment decides in place of the model reaches it: `without` gets no gradient then, and everything else does. NULL: everything
 * does. */
static void check_gradients(const hark_lab_ahca_config *config, const char *without) {
  hark_lab *lab = open_lab(context, FEW_STEPS);
  hark_lab_ahca n;
  int left_out = 0;
  open_network(lab, *config, &n);
  assert_fine(context, hark_lab_ahca_train(&n, FEW_STEPS, 1e-3, hark_lab_draw_runs, NULL, NULL));
  for (int32_t p = 0; p < n.network->parameters.count; p++) {
    const hark_parameter *const parameter = &n.network->parameters.list[p];
    const float *const gradient = parameter->gradient.data;
    const bool expected = without == NULL || strncmp(parameter->name, without, strlen(without)) != 0;
    bool some = false;
    left_out += !expected;
    for (int64_t i = 0; i < parameter->count; i++) {
      assert_true(isfinite(gradient[i]));
      some = some || gradient[i] != 0;
    }
    if (some != expected) fail_msg("%s gets %s gradient", parameter->name, some ? "a" : "no");
  }
  assert_int_equal(left_out > 0, without != NULL);
  hark_lab_ahca_close(&n);
  hark_lab_destroy(&lab);
}

/* A part without a gradient would never learn, and nothing would report it. */
static void decisions_take_the_gradients_of_what_they_replace(void **state) {
  (void)state;
  hark_lab_ahca_config config = everything();
  check_gradients(&config, NULL);
  config.model.ahca.ratio_weight = 0;
  check_gradients(&config, NULL); /* boundaries still learn from smoothing and from the straight-through estimator .. */
  config.without_smoothing = config.without_straight_through = true;
  check_gradients(&config, "boundary."); /* .. and without both from nothing */
  config = everything();
  config.random_depth = true;
  check_gradients(&config, "depth");
}

/* Random selections are of a sequence's own rows, each of them once, and not the same in two passes. */
static void selections_are_drawn_for_every_pass(void **state) {
  enum { TESTS = 2, MOST = 16 * 4 };
  hark_lab *lab = open_lab(context, 0);
  hark_lab_ahca_config config = hark_lab_needle_config();
  hark_lab_ahca n;
  int64_t where[16];
  int32_t chosen[TESTS][MOST];
  (void)state;
  config.model.ahca.select = HARK_AHCA_SELECT_NORM;
  config.random_selection = true;
  open_network(lab, config, &n);
  for (uint32_t test = 0; test < TESTS; test++) {
    assert_fine(context, hark_lab_ahca_test(&n, test, hark_lab_draw_needle, where, NULL));
    assert_int_equal(hark_lab_ahca_length(&n, n.trace.selected), MOST);
    assert_fine(context, hark_lab_ahca_read(&n, n.trace.selected, chosen[test]));
    for (int i = 0; i < MOST; i++) {
      assert_int_equal(chosen[test][i] / 32, i / 4);
      if (i % 4 > 0) assert_true(chosen[test][i] > chosen[test][i - 1]);
    }
  }
  assert_memory_not_equal(chosen[0], chosen[1], sizeof chosen[0]);
  hark_lab_ahca_close(&n);
  hark_lab_destroy(&lab);
}

static hark_lab_runs_result short_run(uint32_t run) {
  const hark_lab_ahca_config config = everything();
  const hark_lab_study study = {.run = run, .steps = 6, .tests = 2};
  hark_lab *lab = open_lab(context, 0);
  hark_lab_runs_result result;
  assert_fine(context, hark_lab_learn_runs(lab, &config, &study, &result));
  hark_lab_destroy(&lab);
  return result;
}

static void runs_draw_separate_numbers(void **state) {
  (void)state;
  const hark_lab_runs_result a = short_run(0), b = short_run(0), c = short_run(1);
  assert_memory_equal(&a, &b, sizeof a);
  assert_memory_not_equal(&a, &c, sizeof a);
}

/* ---- a text ---- */

static void the_laboratory_has_a_text(void **state) {
  hark_lab *lab = open_lab(context, 0);
  hark_lab_text text;
  uint64_t drawn = 0;
  (void)state;
  assert_fine(context, hark_lab_text_read(lab, "", 256, &text));
  assert_true(text.letters > 40 && text.letters <= 256);
  assert_true(text.entropy > 2.5 && text.entropy < 3.6); /* of English in both cases, with signs */
  assert_int_equal(text.held_out, text.length - text.length / 10);
  const hark_random_stream words = hark_lab_stream(lab, 3);
  for (int i = 0; i < 1000; i++) {
    const int64_t seen = hark_lab_text_window(&text, false, 100, &words, &drawn),
                  held = hark_lab_text_window(&text, true, 100, &words, &drawn);
    assert_true(seen >= 0 && seen + 100 <= text.held_out);
    assert_true(held >= text.held_out && held + 100 <= text.length);
  }
  assert_int_equal(drawn, 2000);
  assert_failure(context, hark_lab_text_read(lab, HARK_SOURCE_DIR "/CMakeLists.txt", 1 << 20, &text), HARK_BAD_FILE, "expected at least");
  assert_failure(context, hark_lab_text_read(lab, "/nonexistent/text", 1, &text), HARK_NOT_FOUND, "text");
  hark_lab_destroy(&lab);
}

/* ---- memory ---- */

/* The first, second, fourth, .. request for memory fails: HARK_OUT_OF_MEMORY, and nothing is left. */
static void training_ends_when_memory_does(void **state) {
  bool complete = false;
  (void)state;
  for (long fail_at = 1; !complete; fail_at *= 2) {
    const hark_lab_ahca_config config = everything();
    const hark_lab_study study = {.steps = 1, .tests = 1};
    test_memory memory;
    hark_lab *lab = NULL;
    hark_lab_runs_result result;
    hark_context *const tight = test_memory_context(&memory);
    assert_fine(tight, hark_lab_create(tight, true, 1, NULL, &lab));
    memory.fail_at = memory.allocations + fail_at;
    const hark_status status = hark_lab_learn_runs(lab, &config, &study, &result);
    if (status != HARK_OK) assert_int_equal(status, HARK_OUT_OF_MEMORY);
    complete = status == HARK_OK;
    assert_true(!complete || fail_at > 16);
    hark_lab_destroy(&lab);
    test_memory_context_end(tight, &memory);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(needles_are_where_they_are_reported),
                                     cmocka_unit_test(hard_maps_are_followed_further),
                                     cmocka_unit_test(runs_have_their_lengths),
                                     cmocka_unit_test(decisions_take_the_gradients_of_what_they_replace),
                                     cmocka_unit_test(selections_are_drawn_for_every_pass),
                                     cmocka_unit_test(runs_draw_separate_numbers),
                                     cmocka_unit_test(the_laboratory_has_a_text),
                                     cmocka_unit_test(training_ends_when_memory_does),
                                     cmocka_unit_test(quick_runs)};
  return cmocka_run_group_tests(tests, begin, end);
}
