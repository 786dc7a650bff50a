/* test_ahca.c - experiments that train networks of compressed attention: quick runs, tasks, the networks themselves, and memory that runs
 * out.
 *
 * Quick runs of all of them take minutes: held to their criteria are the short ones. The others run with a few steps, which shows that
 * their tables are whole and that every criterion can fail; of their criteria those are held that nothing has to be learned for.
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

/* Criteria of what is counted and solved: they hold however little was learned. */
static bool is_untaught(const char *criterion) {
  static const char *const begins[] = {"mean depth", "operations of the layers", "the paper's rule", "white noise"};
  for (size_t i = 0; i < sizeof begins / sizeof *begins; i++)
    if (strncmp(criterion, begins[i], strlen(begins[i])) == 0) return true;
  return false;
}

static bool is_short(const char *name) { return strcmp(name, "ahca-figures") == 0 || strcmp(name, "ahca-ablations") == 0; }

static void quick_runs(void **state) {
  int count = 0, untaught_count = 0;
  (void)state;
  for (int i = 0; i < hark_lab_entry_count; i++) {
    const char *const name = hark_lab_entries[i].name;
    const hark_experiment *const experiment = hark_lab_entries[i].experiment;
    const bool held = is_short(name) && TEST_SANITIZED == 0;
    if (!experiment->trains || strncmp(name, "ahca-", 5) != 0) continue;
    hark_lab *lab = open_lab(context, held ? 0 : FEW_STEPS);
    assert_fine(context, hark_lab_run(lab, experiment));
    for (int c = 0; c < lab->criterion_count; c++) {
      const bool untaught = is_untaught(lab->criteria[c].name);
      untaught_count += untaught;
      if ((held || untaught) && !hark_lab_passes(&lab->criteria[c]))
        fail_msg("%s: %s: %g, expected [%g, %g]", name, lab->criteria[c].name, lab->criteria[c].measured, lab->criteria[c].low,
                 lab->criteria[c].high);
    }
    test_laboratory_can_fail(context, lab, i);
    hark_lab_destroy(&lab);
    count++;
  }
  assert_int_equal(count, 5);
  assert_int_equal(untaught_count, 4);
}

/* ---- tasks ---- */

/* A network that is drawn for and not trained. */
static void open_network(hark_lab *lab, hark_lab_ahca_config config, hark_lab_ahca *n) {
  assert_fine(context, hark_lab_ahca_open(lab, &config, 0, n));
}

static void needles_are_where_they_are_said(void **state) {
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
      for (int64_t k = 0; k < 32; k++) assert_int_equal(n.host_targets[b * 32 + k], token - 32);
    }
    assert_int_equal(found, 1);
  }
  hark_lab_ahca_close(&n);
  hark_lab_destroy(&lab);
}

static void hard_maps_are_asked_three_times(void **state) {
  hark_lab *lab = open_lab(context, 0);
  hark_lab_ahca n;
  (void)state;
  open_network(lab, hark_lab_maps_config(), &n);
  assert_fine(context, hark_lab_draw_maps(&n, 7, NULL));
  for (int64_t b = 0; b < n.config.sequences; b++) {
    int hard = 0;
    for (int64_t k = b * 32; k < (b + 1) * 32; k++) {
      const int32_t *const f = n.host_tokens + k * 9 + 1;
      const bool is_hard = f[-1] == 9;
      assert_true(is_hard || f[-1] == 8);
      assert_int_equal(n.host_targets[k], is_hard ? f[f[f[0]]] : f[0]);
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

/* All there is: learned chunks, both pools, selection, learned depth, token outputs. */
static hark_lab_ahca_config everything(void) {
  hark_lab_ahca_config config = hark_lab_runs_config();
  config.sequences = 3;
  config.rows = 40;
  config.layers = 3;
  config.heads = 2;
  config.slots = 2;
  config.primary_attention = config.secondary_attention = config.two_layers = config.positions = true;
  config.secondary = 6;
  config.selected = 3;
  config.depth = HARK_LAB_DEPTH_LEARNED;
  config.capacity = 0.5;
  config.ponder_weight = 0.02;
  return config;
}

/* A part without a gradient would never learn, and nothing would tell. */
static void every_parameter_gets_a_gradient(void **state) {
  static const hark_lab_reading readings[] = {HARK_LAB_READ_TOKENS, HARK_LAB_READ_POSITIONS};
  (void)state;
  for (size_t r = 0; r < sizeof readings / sizeof *readings; r++) {
    hark_lab *lab = open_lab(context, FEW_STEPS);
    hark_lab_ahca_config config = everything();
    hark_lab_ahca n;
    config.reading = readings[r];
    open_network(lab, config, &n);
    assert_fine(context, hark_lab_ahca_train(&n, FEW_STEPS, 1e-3, hark_lab_draw_runs, NULL, NULL));
    for (int32_t p = 0; p < n.training.parameters.count; p++) {
      const hark_parameter *const parameter = &n.training.parameters.list[p];
      const float *const gradient = parameter->gradient.data;
      bool some = false;
      for (int64_t i = 0; i < parameter->count; i++) {
        assert_true(isfinite(gradient[i]));
        some = some || gradient[i] != 0;
      }
      if (!some) fail_msg("%s gets no gradient", parameter->name);
    }
    hark_lab_ahca_close(&n);
    hark_lab_destroy(&lab);
  }
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

static void a_run_has_numbers_of_its_own(void **state) {
  (void)state;
  const hark_lab_runs_result a = short_run(0), b = short_run(0), c = short_run(1);
  assert_memory_equal(&a, &b, sizeof a);
  assert_memory_not_equal(&a, &c, sizeof a);
}

/* Operations of layers 2 .. 4 on a quarter of the chunks: (1 + 3 / 4) / 4 of all, and the gathering. */
static void fewer_layers_cost_less(void **state) {
  double operations[2];
  (void)state;
  for (int i = 0; i < 2; i++) {
    hark_lab *lab = open_lab(context, 0);
    hark_lab_ahca_config config = hark_lab_maps_config();
    hark_lab_ahca n;
    hark_lab_needs needs;
    if (i == 1) config.depth = HARK_LAB_DEPTH_FULL;
    open_network(lab, config, &n);
    assert_fine(context, hark_lab_ahca_needs(&n, false, &needs));
    assert_true(needs.operations > n.layer_operations && n.layer_operations > 0);
    operations[i] = n.layer_operations;
    hark_lab_ahca_close(&n);
    hark_lab_destroy(&lab);
  }
  assert_true(fabs(operations[0] / operations[1] - 1.75 / 4) < 0.05 * 1.75 / 4);
}

/* ---- a text ---- */

static void the_laboratory_has_words(void **state) {
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
  bool whole = false;
  (void)state;
  for (long fail_at = 1; !whole; fail_at *= 2) {
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
    whole = status == HARK_OK;
    assert_true(!whole || fail_at > 16);
    hark_lab_destroy(&lab);
    test_memory_context_end(tight, &memory);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(needles_are_where_they_are_said),
                                     cmocka_unit_test(hard_maps_are_asked_three_times),
                                     cmocka_unit_test(runs_have_their_lengths),
                                     cmocka_unit_test(every_parameter_gets_a_gradient),
                                     cmocka_unit_test(a_run_has_numbers_of_its_own),
                                     cmocka_unit_test(fewer_layers_cost_less),
                                     cmocka_unit_test(the_laboratory_has_words),
                                     cmocka_unit_test(training_ends_when_memory_does),
                                     cmocka_unit_test(quick_runs)};
  return cmocka_run_group_tests(tests, begin, end);
}
