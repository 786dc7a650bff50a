/* test_numbers.c - numbers that are not finite: the step is left out and nothing of the state changes, it is recorded, and a run that does
 * not recover gives up with its last good checkpoint kept. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json/jsonl.h"
#include "support/cmocka_all.h"
#include "support/setups.h"
#include "support/train/small_run.h"
#include "train/schedule.h"

static char folder[TEST_PATH_BYTES];
static small_run small;

static int begin(void **state) {
  (void)state;
  test_folder_make(folder);
  small_run_open(&small, folder);
  return 0;
}

static int end(void **state) {
  (void)state;
  small_run_close(&small);
  test_folder_remove(folder);
  return 0;
}

/* Weights and both moments, as they lie in memory. */
typedef struct snapshot {
  float *numbers;
  size_t bytes;
} snapshot;

static snapshot take(hark_context *context, const hark_engine *engine) {
  const hark_tensor *flats[] = {&engine->network->parameters.weights, &engine->first_moment, &engine->second_moment};
  const size_t one = (size_t)hark_tensor_count(flats[0]);
  snapshot s = {.bytes = 3 * one * sizeof(float)};
  s.numbers = malloc(s.bytes);
  assert_non_null(s.numbers);
  for (size_t i = 0; i < 3; i++) assert_fine(context, hark_tensor_read(context, flats[i], s.numbers + i * one));
  return s;
}

/* Puts a value into one element of the gradients. */
static void poison(hark_context *context, hark_engine *engine, int64_t element, float value) {
  const hark_tensor *gradients = &engine->network->parameters.gradients;
  const int64_t one = 1;
  hark_tensor place;
  assert_fine(context, hark_tensor_describe(context, HARK_F32, 1, &one, &place));
  place.data = (char *)gradients->data + (size_t)element * sizeof(float);
  assert_fine(context, hark_tensor_write(context, &place, &value));
}

static void make_gradients(hark_context *context, hark_engine *engine, int step, double *loss) {
  const hark_config *config = engine->config;
  int32_t tokens[2][64];
  const int64_t count = config->train.batch * config->model.context;
  assert_true(count <= 64);
  for (int64_t i = 0; i < count; i++) tokens[0][i] = (int32_t)((i + step) % 7), tokens[1][i] = (int32_t)((i + step + 1) % 7);
  *loss = 0;
  assert_fine(context, hark_engine_begin_step(context, engine));
  for (int64_t micro = 0; micro < config->train.accumulate; micro++) {
    double part = 0;
    assert_fine(context, hark_engine_micro_batch(context, engine, tokens[0], tokens[1], config->train.batch, 0, (uint32_t)micro,
                                                 1.0 / (double)hark_config_step_tokens(config), &part));
    *loss += part;
  }
}

/* One element of the gradients, whichever it is, on every backend and instruction set. The largest finite number is no reason to skip. */
static void one_bad_element_changes_no_bit(void **state) {
  (void)state;
  static const float bad[] = {NAN, INFINITY, -INFINITY};
  test_setup setups[TEST_MAX_SETUPS];
  const int count = test_setups(setups);
  for (int s = 0; s < count; s++) {
    hark_context *context = test_setup_open(&setups[s], 2);
    hark_engine *engine = NULL;
    double loss = 0;
    hark_step_result result;
    assert_fine(context, hark_engine_create(context, &small.config, 7, true, &engine));
    assert_fine(context, hark_parameters_initialise(context, &engine->network->parameters, 3));
    make_gradients(context, engine, 0, &loss); /* one good step, so that moments are not zero */
    assert_fine(context, hark_engine_finish_step(context, engine, 1, 1e-2, loss, &result));
    assert_true(result.applied);
    snapshot before = take(context, engine);
    const int64_t elements = hark_tensor_count(&engine->network->parameters.weights);
    const int64_t places[] = {0, 1, elements / 2, elements / 3, elements - 1};
    for (size_t b = 0; b < sizeof bad / sizeof *bad; b++) {
      for (size_t p = 0; p < sizeof places / sizeof *places; p++) {
        make_gradients(context, engine, 1, &loss);
        poison(context, engine, places[p], bad[b]);
        assert_fine(context, hark_engine_finish_step(context, engine, 2, 1e-2, loss, &result));
        if (result.applied) fail_msg("%s:%s took element %d", setups[s].backend, setups[s].instruction_set, (int)places[p]);
        snapshot after = take(context, engine);
        assert_memory_equal(before.numbers, after.numbers, before.bytes);
        free(after.numbers);
      }
    }
    make_gradients(context, engine, 1, &loss); /* a loss alone that is not finite */
    assert_fine(context, hark_engine_finish_step(context, engine, 2, 1e-2, NAN, &result));
    assert_false(result.applied);
    make_gradients(context, engine, 1, &loss);
    poison(context, engine, 0, 3e38f);
    assert_fine(context, hark_engine_finish_step(context, engine, 2, 1e-2, loss, &result));
    assert_true(result.applied);
    assert_fine(context, hark_engine_check_finite(context, engine));
    free(before.numbers);
    hark_engine_destroy(context, &engine);
    test_setup_close(context);
  }
}

/* The n-th step or steps of a run get a bad element, in one micro-batch. */
typedef struct saboteur {
  hark_context *context;
  int64_t first, last, micro; /* steps [first, last], micro-batch */
  float value;
  snapshot before; /* of the first bad step */
  bool kept;       /* the state of the step after the last bad one was the same */
} saboteur;

static hark_status sabotage(void *user, hark_engine *engine, int64_t step, int64_t micro) {
  saboteur *who = user;
  if (step == who->first && micro == who->micro) who->before = take(who->context, engine);
  if (step >= who->first && step <= who->last && micro == who->micro) poison(who->context, engine, 5, who->value);
  if (step == who->last + 1 && micro == 0) {
    snapshot now = take(who->context, engine);
    who->kept = memcmp(now.numbers, who->before.numbers, now.bytes) == 0;
    free(now.numbers);
  }
  return HARK_OK;
}

/* What metrics say. */
typedef struct lines {
  int skipped, training;
  int64_t skipped_steps[16], first_samples[16], samples;
  double training_sum;
  double rates[16], norms[16]; /* by line; NaN: null */
} lines;

static hark_status collect(void *user, const json_t *object, int64_t line) {
  lines *all = user;
  (void)line;
  const json_t *loss = json_object_get(object, "train/loss");
  if (json_is_true(json_object_get(object, "skipped"))) {
    assert_true(all->skipped < 16);
    all->skipped_steps[all->skipped] = json_integer_value(json_object_get(object, "step"));
    all->first_samples[all->skipped++] = json_integer_value(json_object_get(object, "first_sample"));
    all->samples = json_integer_value(json_object_get(object, "samples"));
    assert_non_null(json_object_get(object, "grad_norm"));
  } else if (loss != NULL) {
    assert_true(json_is_number(loss)); /* statistics leave the bad step out: no null */
    assert_true(all->training < 16);
    const json_t *norm = json_object_get(object, "grad_norm");
    all->rates[all->training] = json_number_value(json_object_get(object, "lr"));
    all->norms[all->training++] = json_is_number(norm) ? json_number_value(norm) : NAN;
    all->training_sum += json_number_value(loss);
  }
  return HARK_OK;
}

static lines lines_of(hark_context *context, const char *run) {
  lines all = {0};
  char path[TEST_PATH_BYTES + 32];
  (void)snprintf(path, sizeof path, "%s/metrics.jsonl", run);
  assert_fine(context, hark_jsonl_read(context, path, collect, &all));
  return all;
}

/* A bad element in the first or the last of the accumulated batches of step 3: the step is left out, recorded with its windows, and the
 * mean loss of the line that holds it is that of the other steps. */
static void a_bad_step_is_left_out_and_recorded(void **state) {
  (void)state;
  static const float bad[] = {NAN, INFINITY};
  hark_context *context = small_run_context(2);
  small.config.train.steps = 6;
  small.config.train.log_every = 3;
  for (int i = 0; i < 4; i++) {
    char path[TEST_PATH_BYTES + 16];
    (void)snprintf(path, sizeof path, "%s/run-%d", folder, i);
    saboteur who = {.context = context, .first = 3, .last = 3, .micro = i / 2, .value = bad[i % 2]};
    const hark_train_hooks hooks = {.user = &who, .gradients = sabotage};
    hark_train_result result;
    assert_fine(context, small_run_train(context, &small, path, &hooks, &result));
    assert_true(who.kept);
    free(who.before.numbers);
    assert_int_equal(result.state.step, 6);
    assert_int_equal(result.state.updates, 5);
    assert_int_equal(result.state.bad_steps, 0);
    const lines all = lines_of(context, path);
    const int64_t samples = small.config.train.batch * small.config.train.accumulate;
    assert_int_equal(all.skipped, 1);
    assert_int_equal(all.skipped_steps[0], 3);
    assert_int_equal(all.first_samples[0], 2 * samples);
    assert_int_equal(all.samples, samples);
    assert_int_equal(all.training, 2);
    assert_true(all.training_sum > 0 && all.training_sum < 2 * 10);
  }
  test_setup_close(context);
}

static hark_request stop_at_once(void *user) {
  (void)user;
  return HARK_REQUEST_STOP;
}

/* A line has the rate of its step and the norm of the last step that counted, also where all steps since the run was taken up were left
 * out. */
static void a_line_of_bad_steps_has_its_rate(void **state) {
  (void)state;
  hark_context *context = small_run_context(1);
  small.config.train.steps = 6;
  small.config.train.log_every = 3;
  double norm = 0;
  for (int parts = 1; parts <= 2; parts++) {
    char path[TEST_PATH_BYTES + 16];
    (void)snprintf(path, sizeof path, "%s/parts-%d", folder, parts);
    saboteur who = {.context = context, .first = 2, .last = 3, .value = NAN};
    const hark_train_hooks stopping = {.request = stop_at_once}, hooks = {.user = &who, .gradients = sabotage};
    hark_train_result result;
    if (parts > 1) {
      assert_fine(context, small_run_train(context, &small, path, &stopping, &result));
      assert_int_equal(result.state.step, 1);
    }
    assert_fine(context, small_run_train(context, &small, path, &hooks, &result));
    free(who.before.numbers);
    const lines all = lines_of(context, path);
    assert_int_equal(all.skipped, 2);
    assert_int_equal(all.training, 2);
    assert_true(all.rates[0] == hark_schedule_rate(&small.config, 3, 6));
    assert_true(all.rates[1] == hark_schedule_rate(&small.config, 6, 6));
    assert_true(all.norms[0] > 0);
    if (parts > 1) assert_true(all.norms[0] == norm);
    norm = all.norms[0];
  }
  test_setup_close(context);
}

/* Without an end the run gives up after max_bad_steps, and goes on from its last good checkpoint as if nothing had been. */
static void a_run_that_does_not_recover_gives_up(void **state) {
  (void)state;
  char whole[TEST_PATH_BYTES + 16], broken[TEST_PATH_BYTES + 16];
  hark_context *context = small_run_context(2);
  hark_train_result result;
  (void)snprintf(whole, sizeof whole, "%s/whole", folder);
  (void)snprintf(broken, sizeof broken, "%s/broken", folder);
  small.config.train.steps = 9;
  small.config.train.checkpoint_every = 4;
  small.config.train.evaluate_every = 0;
  small.config.train.max_bad_steps = 3;
  assert_fine(context, small_run_train(context, &small, whole, NULL, &result));

  saboteur who = {.context = context, .first = 5, .last = 1000, .value = NAN};
  const hark_train_hooks hooks = {.user = &who, .gradients = sabotage};
  assert_failure(context, small_run_train(context, &small, broken, &hooks, &result), HARK_NOT_FINITE, "3 steps in a row");
  free(who.before.numbers);
  assert_int_equal(result.state.step, 7);
  assert_int_equal(result.state.bad_steps, 3);
  assert_int_equal(lines_of(context, broken).skipped, 3);
  assert_fine(context, small_run_train(context, &small, broken, NULL, &result));
  small_run_assert_same(whole, broken, 9);
  assert_int_equal(lines_of(context, broken).skipped, 0); /* cut back to the checkpoint */

  /* one fewer than that in a row: the run goes on */
  char mended[TEST_PATH_BYTES + 16];
  (void)snprintf(mended, sizeof mended, "%s/mended", folder);
  small.config.train.max_bad_steps = 2;
  saboteur once = {.context = context, .first = 3, .last = 3, .value = INFINITY};
  const hark_train_hooks mild = {.user = &once, .gradients = sabotage};
  assert_fine(context, small_run_train(context, &small, mended, &mild, &result));
  free(once.before.numbers);
  test_setup_close(context);
}

/* Weights that are not finite are not saved: the checkpoint before stays the last one. Here an update with a finite gradient does it. */
static hark_status break_weights(void *user, hark_engine *engine, int64_t step, int64_t micro) {
  hark_context *context = user;
  const float infinity = INFINITY;
  const int64_t one = 1;
  hark_tensor place;
  if (step != 6 || micro != 0) return HARK_OK;
  HARK_TRY(hark_tensor_describe(context, HARK_F32, 1, &one, &place));
  place.data = engine->second_moment.data;
  return hark_tensor_write(context, &place, &infinity);
}

static void a_state_that_is_not_finite_is_not_saved(void **state) {
  (void)state;
  char path[TEST_PATH_BYTES + 16], name[HARK_NAME_BYTES], damaged[HARK_NAME_BYTES];
  hark_context *context = small_run_context(1);
  hark_train_result result;
  hark_run run;
  (void)snprintf(path, sizeof path, "%s/run", folder);
  small.config.train.steps = 12;
  small.config.train.checkpoint_every = 4;
  small.config.train.evaluate_every = 0;
  const hark_train_hooks hooks = {.user = context, .gradients = break_weights};
  assert_failure(context, small_run_train(context, &small, path, &hooks, &result), HARK_NOT_FINITE, "second moments");
  assert_int_equal(result.state.step, 8);
  assert_fine(context, hark_run_open(context, path, true, &run));
  assert_fine(context, hark_checkpoint_newest(context, &run, name, damaged));
  assert_string_equal(name, "step-4");
  assert_string_equal(damaged, "");
  hark_run_close(&run);
  assert_fine(context, small_run_train(context, &small, path, NULL, &result));
  assert_int_equal(result.state.step, 12);
  test_setup_close(context);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(one_bad_element_changes_no_bit),       TEST(a_bad_step_is_left_out_and_recorded),     TEST(a_line_of_bad_steps_has_its_rate),
      TEST(a_run_that_does_not_recover_gives_up), TEST(a_state_that_is_not_finite_is_not_saved),
  };
  return cmocka_run_group_tests_name("numbers", tests, NULL, NULL);
}
