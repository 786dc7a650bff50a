/* test_trainer.c - runs: resuming bit for bit, interrupts, checkpoints, folders. */
#include "train/trainer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/safetensors.h"
#include "json/jsonl.h"
#include "support/cmocka_all.h"
#include "support/sanitized.h"
#include "support/train/training_place.h"

/* All losses of a run in their order. */
typedef struct losses {
  double training[64], validation[64];
  int training_count, validation_count;
} losses;

static hark_status collect(void *user, const json_t *object, int64_t line) {
  losses *all = user;
  (void)line;
  const json_t *training = json_object_get(object, "train/loss"), *validation = json_object_get(object, "val/loss");
  if (training != NULL && all->training_count < 64) all->training[all->training_count++] = json_number_value(training);
  if (validation != NULL && all->validation_count < 64) all->validation[all->validation_count++] = json_number_value(validation);
  return HARK_OK;
}

static losses losses_of(training_place *p, const char *name) {
  losses all = {.training_count = 0};
  char path[TEST_PATH_BYTES + 64];
  (void)snprintf(path, sizeof path, "%s/%s/metrics.jsonl", p->folder, name);
  assert_int_equal(hark_jsonl_read(p->context, path, collect, &all), HARK_OK);
  return all;
}

/* 12 steps at once against 5, an interrupt in the middle of an epoch, and the rest: dropout and accumulation on. */
static void test_resume_is_exact(void **state) {
  (void)state;
  training_place p;
  training_place_open(&p);
  hark_config config = training_configuration(&p);
  hark_train_result whole, first, second;
  assert_int_equal(training_run(&p, &config, "whole", NULL, &whole), HARK_OK);
  assert_int_equal(whole.reason, HARK_STOP_DONE);

  training_interrupter who = {.left = 4};
  const hark_train_hooks hooks = {.user = &who, .request = training_interrupt};
  assert_int_equal(training_run(&p, &config, "parts", &hooks, &first), HARK_OK);
  assert_int_equal(first.reason, HARK_STOP_REQUEST);
  assert_int_equal(first.state.step, 4);
  config.run.resume = true;
  assert_int_equal(training_run(&p, &config, "parts", NULL, &second), HARK_OK);
  assert_int_equal(second.state.step, 12);

  training_same_file(&p, "whole/checkpoints/step-12/model.safetensors", "parts/checkpoints/step-12/model.safetensors");
  training_same_file(&p, "whole/checkpoints/step-12/optimizer.safetensors", "parts/checkpoints/step-12/optimizer.safetensors");
  const losses a = losses_of(&p, "whole"), b = losses_of(&p, "parts");
  assert_int_equal(a.training_count, 12);
  assert_int_equal(b.training_count, 12);
  assert_memory_equal(a.training, b.training, 12 * sizeof *a.training);
  assert_int_equal(a.validation_count, 3);
  assert_int_equal(b.validation_count, 3);
  assert_memory_equal(a.validation, b.validation, 3 * sizeof *a.validation);
  assert_true(a.training[11] < a.training[0]);
  training_place_close(&p);
}

typedef struct mended {
  double counts[16];
  int count;
} mended;

static hark_status collect_mended(void *user, const json_t *object, int64_t line) {
  mended *all = user;
  (void)line;
  const json_t *pivots = json_object_get(object, "ridge/mended_pivots");
  if (pivots != NULL && all->count < 16) all->counts[all->count++] = json_number_value(pivots);
  return HARK_OK;
}

static mended mended_of(training_place *p, const char *name) {
  mended all = {.count = 0};
  char path[TEST_PATH_BYTES + 64];
  (void)snprintf(path, sizeof path, "%s/%s/metrics.jsonl", p->folder, name);
  assert_int_equal(hark_jsonl_read(p->context, path, collect_mended, &all), HARK_OK);
  return all;
}

/* Keys that are all nearly one, and no ridge to speak of: pivots are mended. A run in parts counts them as one in one does, and forwards
 * that are made again for the backward count once. */
static void test_mended_pivots_are_counted_once(void **state) {
  (void)state;
  training_place p;
  training_place_open(&p);
  hark_config config = training_configuration(&p);
  config.model.attention.normalisation = (hark_layer_choice)HARK_EVERY_LAYER(HARK_NORMALISATION_CME);
  config.model.attention.kernel = HARK_KERNEL_RBF;
  config.model.attention.sigma = 1e3;
  config.model.attention.ridge = 1e-30;
  config.model.attention.dropout = 0;
  hark_train_result result;
  assert_fine(p.context, training_run(&p, &config, "whole", NULL, &result));
  training_interrupter who = {.left = 4};
  const hark_train_hooks hooks = {.user = &who, .request = training_interrupt};
  assert_fine(p.context, training_run(&p, &config, "parts", &hooks, &result));
  config.run.resume = true;
  assert_fine(p.context, training_run(&p, &config, "parts", NULL, &result));
  config.run.resume = false;
  config.model.recompute = true;
  assert_fine(p.context, training_run(&p, &config, "again", NULL, &result));
  const mended whole = mended_of(&p, "whole"), parts = mended_of(&p, "parts"), again = mended_of(&p, "again");
  assert_true(whole.count >= 3 && whole.counts[whole.count - 1] > whole.counts[1] && whole.counts[1] > 0);
  assert_int_equal(parts.count, whole.count);
  assert_int_equal(again.count, whole.count);
  assert_memory_equal(parts.counts, whole.counts, (size_t)whole.count * sizeof *whole.counts);
  assert_memory_equal(again.counts, whole.counts, (size_t)whole.count * sizeof *whole.counts);
  training_place_close(&p);
}

/* An interrupt between two lines of metrics, at a step that an evaluation is due at, or in the middle of an evaluation: the lines of the
 * two parts together are those of the whole run. */
static void test_interrupts_leave_the_same_lines(void **state) {
  (void)state;
  training_place p;
  training_place_open(&p);
  hark_config config = training_configuration(&p);
  config.train.log_every = 4;
  hark_train_result whole, part;
  assert_int_equal(training_run(&p, &config, "whole", NULL, &whole), HARK_OK);
  const losses a = losses_of(&p, "whole");
  assert_int_equal(a.training_count, 3);
  assert_int_equal(a.validation_count, 3);
  /* requests are asked for after every step, and after every batch of an evaluation: the fifth step is followed by the first evaluation */
  for (int64_t left = 2; left <= 7; left++) {
    char name[32];
    (void)snprintf(name, sizeof name, "part-%d", (int)left);
    training_interrupter who = {.left = left};
    const hark_train_hooks hooks = {.user = &who, .request = training_interrupt};
    assert_int_equal(training_run(&p, &config, name, &hooks, &part), HARK_OK);
    assert_int_equal(part.reason, HARK_STOP_REQUEST);
    assert_int_equal(part.state.step, left < 5 ? left : 5);
    config.run.resume = true;
    assert_int_equal(training_run(&p, &config, name, NULL, &part), HARK_OK);
    config.run.resume = false;
    const losses b = losses_of(&p, name);
    assert_int_equal(b.training_count, a.training_count);
    assert_memory_equal(a.training, b.training, 3 * sizeof *a.training);
    assert_int_equal(b.validation_count, a.validation_count);
    assert_memory_equal(a.validation, b.validation, 3 * sizeof *a.validation);
    assert_int_equal(part.state.best_step, whole.state.best_step);
  }
  training_place_close(&p);
}

/* A run that stopped early makes no step when it is taken up again, and changes none of its files; with more patience it goes on. */
static void test_early_stop_stays(void **state) {
  (void)state;
  static const char *const files[] = {"metrics.jsonl", "last", "checkpoints/step-10/model.safetensors",
                                      "checkpoints/step-10/optimizer.safetensors", "checkpoints/step-10/state.json"};
  enum { FILES = sizeof files / sizeof *files };
  training_place p;
  training_place_open(&p);
  hark_config config = training_configuration(&p);
  config.train.steps = 40;
  config.train.learning_rate = config.train.minimum_rate = 1e-30; /* no evaluation after the first one is the best */
  config.train.weight_decay = 0;
  config.train.early_stop = 1;
  hark_train_result result;
  hark_text before[FILES];
  char name[96];
  assert_int_equal(training_run(&p, &config, "run", NULL, &result), HARK_OK);
  assert_int_equal(result.reason, HARK_STOP_EARLY);
  assert_int_equal(result.state.step, 10);
  for (int i = 0; i < FILES; i++) {
    (void)snprintf(name, sizeof name, "run/%s", files[i]);
    before[i] = training_file(&p, name);
  }
  config.run.resume = true;
  assert_int_equal(training_run(&p, &config, "run", NULL, &result), HARK_OK);
  assert_int_equal(result.reason, HARK_STOP_EARLY);
  assert_int_equal(result.state.step, 10);
  for (int i = 0; i < FILES; i++) {
    (void)snprintf(name, sizeof name, "run/%s", files[i]);
    hark_text after = training_file(&p, name);
    assert_int_equal(after.length, before[i].length);
    assert_memory_equal(after.data, before[i].data, after.length);
    hark_text_free(&after);
    hark_text_free(&before[i]);
  }
  config.train.early_stop = 2;
  assert_int_equal(training_run(&p, &config, "run", NULL, &result), HARK_OK);
  assert_int_equal(result.reason, HARK_STOP_EARLY);
  assert_int_equal(result.state.step, 15);
  training_place_close(&p);
}

/* A clock whose time passes in the run's steps alone, all of it in the first one. */
typedef struct one_step_clock {
  double now;
} one_step_clock;

static double read_time(void *user) { return ((one_step_clock *)user)->now; }

static hark_status spend_time(void *user, hark_engine *engine, int64_t step, int64_t micro_batch) {
  (void)engine, (void)step, (void)micro_batch;
  ((one_step_clock *)user)->now += 1e9;
  return HARK_OK;
}

/* An evaluation that a limit of time brings forward counts for nothing but the best loss: a run in parts has as much patience as one in
 * one. */
static void test_time_spends_no_patience(void **state) {
  (void)state;
  training_place p;
  training_place_open(&p);
  hark_config config = training_configuration(&p);
  config.train.steps = 40;
  config.train.learning_rate = config.train.minimum_rate = 1e-30;
  config.train.weight_decay = 0;
  config.train.early_stop = 1;
  config.train.max_time = 1e9; /* one step a part: nothing takes any time until then */
  hark_train_result result;
  for (int64_t step = 1; step < config.train.evaluate_every; step++) {
    one_step_clock clock = {.now = 0};
    const hark_train_hooks hooks = {.user = &clock, .gradients = spend_time, .clock = read_time};
    assert_int_equal(training_run(&p, &config, "run", &hooks, &result), HARK_OK);
    assert_int_equal(result.reason, HARK_STOP_TIME);
    assert_int_equal(result.state.step, step);
    config.run.resume = true;
  }
  config.train.max_time = 0;
  assert_int_equal(training_run(&p, &config, "run", NULL, &result), HARK_OK);
  assert_int_equal(result.reason, HARK_STOP_EARLY); /* at the first evaluation that is due: the one of step 1 was no worse */
  assert_int_equal(result.state.step, config.train.evaluate_every);
  training_place_close(&p);
}

/* Asks for one checkpoint, at the call of that number. */
static hark_request ask_once(void *user) {
  training_interrupter *who = user;
  return --who->left == 0 ? HARK_REQUEST_CHECKPOINT : HARK_REQUEST_NONE;
}

/* A checkpoint asked for during an evaluation is written after it. */
static void test_request_during_evaluation(void **state) {
  (void)state;
  training_place p;
  training_place_open(&p);
  hark_config config = training_configuration(&p);
  config.train.learning_rate = config.train.minimum_rate = 1e-30; /* no evaluation after the first one is the best: none saves by itself */
  config.train.weight_decay = 0;
  config.train.keep = 10;
  training_interrupter who = {.left = 0};
  const hark_train_hooks counting = {.user = &who, .request = ask_once};
  hark_train_result result;
  config.train.steps = 5;
  assert_int_equal(training_run(&p, &config, "first", &counting, &result), HARK_OK);
  const int64_t batches = -who.left - config.train.steps; /* of an evaluation */
  assert_true(batches >= 2);
  config.train.steps = 12;
  who.left = 10 + batches + 1; /* ten steps, the evaluation at step 5, and the first batch of the one at step 10 */
  assert_int_equal(training_run(&p, &config, "run", &counting, &result), HARK_OK);
  char path[TEST_PATH_BYTES + 64];
  (void)snprintf(path, sizeof path, "%s/run/checkpoints/step-10", p.folder);
  assert_int_equal(hark_path_kind_of(path), HARK_PATH_FOLDER);
  training_place_close(&p);
}

/* What a crash may leave at every point of a save and before the first one. */
static void test_what_crashes_leave(void **state) {
  (void)state;
  training_place p;
  training_place_open(&p);
  hark_config config = training_configuration(&p);
  config.train.steps = 3;
  config.train.keep = 1;
  config.train.evaluate_every = 0;
  config.data.validation_fraction = 0;
  hark_train_result result;
  char path[TEST_PATH_BYTES + 64];

  /* before config.yaml: lines of a run that never began */
  (void)snprintf(path, sizeof path, "%s/run", p.folder);
  assert_int_equal(hark_folder_make(p.context, path), HARK_OK);
  (void)snprintf(path, sizeof path, "%s/run/metrics.jsonl", p.folder);
  assert_int_equal(hark_file_write(p.context, path, "{\"step\": 0, \"train/loss\": 7}\n", 29), HARK_OK);
  assert_int_equal(training_run(&p, &config, "run", NULL, &result), HARK_OK);
  assert_int_equal(losses_of(&p, "run").training_count, 3);

  /* a checkpoint of a later step that no pointer names: it does not count as one that is kept, and goes */
  (void)snprintf(path, sizeof path, "%s/run/checkpoints/step-100", p.folder);
  assert_int_equal(hark_folder_make(p.context, path), HARK_OK);
  config.run.resume = true;
  config.train.steps = 5;
  assert_int_equal(training_run(&p, &config, "run", NULL, &result), HARK_OK);
  (void)snprintf(path, sizeof path, "%s/run/checkpoints/step-5", p.folder);
  assert_int_equal(hark_path_kind_of(path), HARK_PATH_FOLDER);
  (void)snprintf(path, sizeof path, "%s/run/checkpoints/step-3", p.folder);
  assert_int_equal(hark_path_kind_of(path), HARK_PATH_NONE);
  (void)snprintf(path, sizeof path, "%s/run/checkpoints/step-100", p.folder);
  assert_int_equal(hark_path_kind_of(path), HARK_PATH_NONE);

  /* a damaged checkpoint: the newest whole one is taken, and the run is the same again */
  config.train.steps = 6;
  config.train.keep = 2;
  assert_int_equal(training_run(&p, &config, "run", NULL, &result), HARK_OK);
  hark_text end = training_file(&p, "run/checkpoints/step-6/model.safetensors");
  (void)snprintf(path, sizeof path, "%s/run/checkpoints/step-6/model.safetensors", p.folder);
  end.data[end.length - 1] ^= 1;
  assert_int_equal(hark_file_write(p.context, path, end.data, end.length), HARK_OK);
  assert_int_equal(training_run(&p, &config, "run", NULL, &result), HARK_OK);
  assert_int_equal(result.state.step, 6);
  hark_text again = training_file(&p, "run/checkpoints/step-6/model.safetensors");
  end.data[end.length - 1] ^= 1;
  assert_int_equal(again.length, end.length);
  assert_memory_equal(again.data, end.data, end.length);
  hark_text_free(&again);
  hark_text_free(&end);
  /* all of them damaged */
  for (int step = 5; step <= 6; step++) {
    (void)snprintf(path, sizeof path, "%s/run/checkpoints/step-%d/optimizer.safetensors", p.folder, step);
    assert_int_equal(hark_file_remove(p.context, path), HARK_OK);
  }
  assert_int_equal(training_run(&p, &config, "run", NULL, &result), HARK_BAD_FILE);
  for (int step = 5; step <= 6; step++) {
    (void)snprintf(path, sizeof path, "%s/run/checkpoints/step-%d", p.folder, step);
    assert_int_equal(hark_folder_remove(p.context, path), HARK_OK);
  }
  config.train.steps = 5;

  /* before the first checkpoint: the run begins again, and is the same run */
  (void)snprintf(path, sizeof path, "%s/run/last", p.folder);
  assert_int_equal(hark_file_remove(p.context, path), HARK_OK);
  assert_int_equal(training_run(&p, &config, "run", NULL, &result), HARK_OK);
  assert_int_equal(result.state.step, 5);
  assert_int_equal(losses_of(&p, "run").training_count, 5);
  training_place_close(&p);
}

/* `last` has moved to the best checkpoint so far, and the crash came before `best` did. */
static void test_best_follows(void **state) {
  (void)state;
  training_place p;
  training_place_open(&p);
  hark_config config = training_configuration(&p);
  config.train.steps = 10;
  config.train.keep = 1;
  hark_train_result result;
  assert_int_equal(training_run(&p, &config, "run", NULL, &result), HARK_OK);
  assert_int_equal(result.state.best_step, 10);
  char path[TEST_PATH_BYTES + 64];
  (void)snprintf(path, sizeof path, "%s/run/best", p.folder);
  assert_int_equal(hark_file_write(p.context, path, "step-5\n", 7), HARK_OK);
  config.run.resume = true;
  config.train.steps = 11;
  config.train.learning_rate = 1; /* makes it worse */
  config.train.minimum_rate = 1;
  assert_int_equal(training_run(&p, &config, "run", NULL, &result), HARK_OK);
  assert_int_equal(result.state.best_step, 10);
  hark_text best = training_file(&p, "run/best");
  assert_string_equal(hark_text_get(&best), "step-10\n");
  hark_text_free(&best);
  (void)snprintf(path, sizeof path, "%s/run/checkpoints/step-10", p.folder);
  assert_int_equal(hark_path_kind_of(path), HARK_PATH_FOLDER);
  training_place_close(&p);
}

static void test_run_folders(void **state) {
  (void)state;
  training_place p;
  training_place_open(&p);
  hark_config config = training_configuration(&p);
  config.train.steps = 3;
  config.train.checkpoint_every = 1;
  config.train.keep = 2;
  hark_train_result result;
  assert_int_equal(training_run(&p, &config, "run", NULL, &result), HARK_OK);
  assert_int_equal(training_run(&p, &config, "run", NULL, &result), HARK_BAD_CONFIGURATION); /* there is a run already */
  config.run.resume = true;
  assert_int_equal(training_run(&p, &config, "nothing", NULL, &result), HARK_BAD_CONFIGURATION);

  /* the last two, and no leftovers */
  char path[TEST_PATH_BYTES + 64];
  hark_names names;
  (void)snprintf(path, sizeof path, "%s/run/checkpoints", p.folder);
  assert_int_equal(hark_folder_list(p.context, path, &names), HARK_OK);
  assert_int_equal(names.count, 2);
  assert_string_equal(names.items[0], "step-2");
  assert_string_equal(names.items[1], "step-3");
  hark_names_free(p.context, &names);

  /* another text is noticed */
  FILE *file = fopen(p.text, "a");
  assert_non_null(file);
  assert_true(fputs("the lazy dogs\n", file) >= 0);
  assert_int_equal(fclose(file), 0);
  assert_int_equal(training_run(&p, &config, "run", NULL, &result), HARK_BAD_CONFIGURATION);
  training_place_close(&p);
}

/* Everything from text to checkpoint on every backend: on the guard, whoever touches data outside of a backend call ends the test. */
static void test_every_backend(void **state) {
  (void)state;
  test_setup setups[TEST_MAX_SETUPS];
  const int count = test_setups(setups);
  bool guarded = false;
  for (int s = 0; s < count; s++) {
    training_place p;
    training_place_open_on(&p, &setups[s]);
    guarded = guarded || strcmp(setups[s].backend, "guard") == 0;
    hark_config config = training_configuration(&p);
    config.train.steps = 2;
    config.train.evaluate_every = 0;
    config.model.recompute = true;
    config.data.validation_fraction = 0.02;
    hark_train_result result;
    assert_int_equal(training_run(&p, &config, "run", NULL, &result), HARK_OK);
    assert_true(isfinite(result.validation_loss));
    config.run.resume = true;
    config.train.steps = 3;
    assert_int_equal(training_run(&p, &config, "run", NULL, &result), HARK_OK);
    assert_int_equal(result.state.step, 3);
    training_place_close(&p);
  }
  assert_true(guarded || TEST_SANITIZED);
}

/* A second process cannot write into a run that is being written. */
static void test_folder_is_locked(void **state) {
  (void)state;
  training_place p;
  training_place_open(&p);
  char path[TEST_PATH_BYTES + 64];
  (void)snprintf(path, sizeof path, "%s/run", p.folder);
  hark_run run, other;
  assert_int_equal(hark_run_open(p.context, path, false, &run), HARK_OK);
  assert_int_equal(hark_run_open(p.context, path, false, &other), HARK_BUSY);
  hark_run_close(&run);
  assert_int_equal(hark_run_open(p.context, path, false, &other), HARK_OK);
  hark_run_close(&other);
  training_place_close(&p);
}

/* A path to a checkpoint is cut into run and name, also where little stands before it. */
static void test_cutting_paths(void **state) {
  (void)state;
  static const struct {
    const char *path, *run, *checkpoint; /* run NULL: no checkpoint's path */
  } cases[] = {{"runs/book/checkpoints/step-5", "runs/book", "step-5"},
               {"runs/book/checkpoints/step-5///", "runs/book", "step-5"},
               {"/a/checkpoints/step-12", "/a", "step-12"},
               {"/checkpoints/step-5", "/", "step-5"},
               {"checkpoints/step-5", ".", "step-5"},
               {"./checkpoints/step-5", ".", "step-5"},
               {"/step-5", NULL, NULL},
               {"step-5", NULL, NULL},
               {"/", NULL, NULL},
               {"", NULL, NULL},
               {"a/b/step-5", NULL, NULL}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char path[HARK_PATH_BYTES], checkpoint[HARK_NAME_BYTES];
    (void)snprintf(path, sizeof path, "%s", cases[i].path);
    const bool cut = hark_run_cut_checkpoint(path, checkpoint);
    if (cut != (cases[i].run != NULL)) fail_msg("\"%s\" was %scut", cases[i].path, cut ? "" : "not ");
    if (!cut) continue;
    assert_string_equal(path, cases[i].run);
    assert_string_equal(checkpoint, cases[i].checkpoint);
  }
}

/* A file of moments that holds a tensor more than the model has is not this model's. */
static void test_unexpected_moments(void **state) {
  (void)state;
  training_place p;
  training_place_open(&p);
  hark_config config = training_configuration(&p);
  config.train.steps = 1;
  hark_train_result result;
  char path[TEST_PATH_BYTES + 64], checkpoint[HARK_NAME_BYTES];
  assert_int_equal(training_run(&p, &config, "run", NULL, &result), HARK_OK);
  hark_run run;
  hark_engine *engine = NULL;
  hark_tokenizer *tokenizer = NULL;
  (void)snprintf(path, sizeof path, "%s/run/vocabulary.json", p.folder);
  assert_int_equal(hark_tokenizer_load(p.context, path, &tokenizer), HARK_OK);
  assert_int_equal(hark_engine_create(p.context, &config, hark_tokenizer_size(tokenizer), true, &engine), HARK_OK);
  (void)snprintf(path, sizeof path, "%s/run", p.folder);
  assert_int_equal(hark_run_open_reading(p.context, path, &run, checkpoint), HARK_OK);
  assert_int_equal(hark_checkpoint_load(p.context, &run, "step-1", engine, NULL), HARK_OK);

  hark_safetensors *file = NULL;
  (void)snprintf(path, sizeof path, "%s/run/checkpoints/step-1/optimizer.safetensors", p.folder);
  assert_int_equal(hark_safetensors_open(p.context, path, &file), HARK_OK);
  const int64_t count = hark_safetensors_count(file);
  hark_tensor *tensors = calloc((size_t)count + 1, sizeof *tensors);
  hark_named_tensor *named = calloc((size_t)count + 1, sizeof *named);
  assert_true(tensors != NULL && named != NULL);
  for (int64_t i = 0; i < count; i++) {
    named[i] = (hark_named_tensor){.name = hark_safetensors_tensor(file, i)->name, .tensor = &tensors[i]};
    assert_int_equal(hark_safetensors_load(p.context, file, named[i].name, &tensors[i]), HARK_OK);
  }
  const int64_t one = 1;
  assert_int_equal(hark_tensor_create(p.context, HARK_F32, 1, &one, &tensors[count]), HARK_OK);
  named[count] = (hark_named_tensor){.name = "first_moment.stranger", .tensor = &tensors[count]};
  assert_int_equal(hark_safetensors_write(p.context, path, named, count + 1, NULL, 0, NULL), HARK_OK);
  hark_safetensors_close(p.context, &file);
  for (int64_t i = 0; i <= count; i++) hark_tensor_destroy(p.context, &tensors[i]);
  free(tensors);
  free(named);
  assert_int_equal(hark_checkpoint_load(p.context, &run, "step-1", engine, NULL), HARK_BAD_FILE);
  assert_non_null(strstr(hark_context_message(p.context), "the model's moments are"));
  hark_engine_destroy(p.context, &engine);
  hark_tokenizer_destroy(p.context, &tokenizer);
  training_place_close(&p);
}

/* Removes a number from a file of JSON. */
static void remove_number(training_place *p, const char *file, const char *name) {
  char *const text = test_file_text(p->folder, file), *const at = strstr(text, name);
  assert_non_null(at);
  const char *const end = strchr(at, ',');
  assert_non_null(end);
  memmove(at, end + 1, strlen(end + 1) + 1);
  test_file_write_text(p->folder, file, text);
  free(text);
}

/* A run of a masked encoder whose checkpoint has no operations: in its version all tokens had logits, and all steps cost the same. */
static void test_operations_of_earlier_versions(void **state) {
  (void)state;
  static const char *const names[] = {"model.safetensors", "optimizer.safetensors", "state.json"};
  training_place p;
  training_place_open(&p);
  hark_config config = training_configuration(&p);
  hark_train_result all, whole, first, second;
  config.model.architecture = HARK_ARCHITECTURE_MASKED_ENCODER;
  config.train.evaluate_every = 0;
  config.data.validation_fraction = 0;
  config.train.steps = 3;
  config.train.mask_fraction = 0.99; /* so many that all tokens have logits */
  assert_int_equal(training_run(&p, &config, "all", NULL, &all), HARK_OK);
  config.train.mask_fraction = 0.1;
  assert_int_equal(training_run(&p, &config, "parts", NULL, &first), HARK_OK);
  assert_true(first.state.operations < 0.99 * all.state.operations);
  config.train.steps = 5;
  assert_int_equal(training_run(&p, &config, "whole", NULL, &whole), HARK_OK);
  remove_number(&p, "parts/checkpoints/step-3/state.json", "\"operations\":");
  test_manifest_write(p.context, p.folder, "parts/checkpoints/step-3", 3, names);
  config.run.resume = true;
  assert_int_equal(training_run(&p, &config, "parts", NULL, &second), HARK_OK);
  assert_int_equal(second.state.step, 5);
  const double expected = all.state.operations + whole.state.operations - first.state.operations;
  if (!(fabs(second.state.operations - expected) <= 1e-12 * expected))
    fail_msg("%g operations, expected %g", second.state.operations, expected);
  training_place_close(&p);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_resume_is_exact),
      cmocka_unit_test(test_operations_of_earlier_versions),
      cmocka_unit_test(test_mended_pivots_are_counted_once),
      cmocka_unit_test(test_run_folders),
      cmocka_unit_test(test_every_backend),
      cmocka_unit_test(test_folder_is_locked),
      cmocka_unit_test(test_cutting_paths),
      cmocka_unit_test(test_unexpected_moments),
      cmocka_unit_test(test_interrupts_leave_the_same_lines),
      cmocka_unit_test(test_early_stop_stays),
      cmocka_unit_test(test_time_spends_no_patience),
      cmocka_unit_test(test_request_during_evaluation),
      cmocka_unit_test(test_what_crashes_leave),
      cmocka_unit_test(test_best_follows),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
