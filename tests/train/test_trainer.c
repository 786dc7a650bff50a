/* test_trainer.c - runs: learning something, resuming bit for bit, schedules, checkpoints. */
#include "train/trainer.h"

#include <hark/positional.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/jsonl.h"
#include "io/safetensors.h"
#include "support/cmocka_all.h"
#include "support/setups.h"
#include "train/schedule.h"

/* A folder of its own for every test, removed at the end. */
typedef struct place {
  hark_context *context;
  char folder[64], text[96];
} place;

static void place_open_on(place *p, const test_setup *setup) {
  p->context = test_setup_open(setup, 2);
  (void)snprintf(p->folder, sizeof p->folder, "/tmp/hark-test-XXXXXX");
  assert_non_null(mkdtemp(p->folder));
  (void)snprintf(p->text, sizeof p->text, "%s/text.txt", p->folder);
  FILE *file = fopen(p->text, "w");
  assert_non_null(file);
  for (int i = 0; i < 400; i++) (void)fprintf(file, "the %d quick foxes jump over %d lazy dogs\n", i % 7, i % 5);
  assert_int_equal(fclose(file), 0);
}

static void place_open(place *p) {
  const test_setup setup = {"cpu", "generic"};
  place_open_on(p, &setup);
}

static void place_close(place *p) {
  assert_int_equal(hark_folder_remove(p->context, p->folder), HARK_OK);
  test_setup_close(p->context);
}

static const char *paths[1];

static hark_config configuration(const place *p) {
  hark_config config;
  hark_options *options = NULL;
  const hark_option_group group = {&hark_config_table, &config};
  assert_int_equal(hark_options_create(p->context, "train", &group, 1, &options), HARK_OK);
  static const char *const words[] = {
      "--layers=2",     "--heads=2",          "--width=16",           "--context=16",     "--batch=4",
      "--accumulate=2", "--steps=12",         "--warmup=3",           "--dropout=0.1",    "--attention-dropout=0.1",
      "--log-every=1",  "--evaluate-every=5", "--checkpoint-every=0", "--order=shuffled", "--lr=3e-3"};
  assert_int_equal(hark_options_read_arguments(p->context, options, (int)(sizeof words / sizeof *words), words), HARK_OK);
  assert_int_equal(hark_config_finish(p->context, options, &config), HARK_OK);
  assert_int_equal(hark_options_problem_count(options), 0);
  hark_options_destroy(p->context, &options); /* none of the values used below is a text */
  paths[0] = p->text;
  config.data.paths = (hark_string_list){.items = paths, .count = 1};
  config.data.validation_paths = (hark_string_list){0};
  config.train.init_from = "";
  return config;
}

/* Trains in FOLDER/name; a fresh run leaves a config.yaml, which is what makes a folder a run. */
static hark_status train(place *p, const hark_config *config, const char *name, const hark_train_hooks *hooks, hark_train_result *result) {
  char path[160], file[200];
  hark_run run;
  (void)snprintf(path, sizeof path, "%s/%s", p->folder, name);
  hark_status status = hark_run_open(p->context, path, config->run.resume, &run);
  if (status != HARK_OK) return status;
  (void)snprintf(file, sizeof file, "%s/config.yaml", path);
  if (!config->run.resume) status = hark_file_write(p->context, file, "# a run\n", 8);
  if (status == HARK_OK) status = hark_train(p->context, config, &run, hooks, result);
  hark_run_close(&run);
  return status;
}

static hark_text read_file(place *p, const char *name) {
  char path[256];
  hark_text text = hark_text_empty(p->context);
  (void)snprintf(path, sizeof path, "%s/%s", p->folder, name);
  assert_int_equal(hark_file_read(p->context, path, (size_t)1 << 26, &text), HARK_OK);
  return text;
}

static void assert_same_file(place *p, const char *a, const char *b) {
  hark_text left = read_file(p, a), right = read_file(p, b);
  assert_int_equal(left.length, right.length);
  assert_memory_equal(hark_text_get(&left), hark_text_get(&right), left.length);
  hark_text_free(&left);
  hark_text_free(&right);
}

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

static losses losses_of(place *p, const char *name) {
  losses all = {.training_count = 0};
  char path[256];
  (void)snprintf(path, sizeof path, "%s/%s/metrics.jsonl", p->folder, name);
  assert_int_equal(hark_jsonl_read(p->context, path, collect, &all), HARK_OK);
  return all;
}

/* Stops after a number of steps, as an interrupt would. */
typedef struct interrupter {
  int64_t left;
} interrupter;

static hark_request interrupt(void *user) {
  interrupter *who = user;
  return --who->left <= 0 ? HARK_REQUEST_STOP : HARK_REQUEST_NONE;
}

/* 12 steps at once against 5, an interrupt in the middle of an epoch, and the rest: dropout and accumulation on. */
static void test_resume_is_exact(void **state) {
  (void)state;
  place p;
  place_open(&p);
  hark_config config = configuration(&p);
  hark_train_result whole, first, second;
  assert_int_equal(train(&p, &config, "whole", NULL, &whole), HARK_OK);
  assert_int_equal(whole.reason, HARK_STOP_DONE);

  interrupter who = {.left = 4};
  const hark_train_hooks hooks = {.user = &who, .request = interrupt};
  assert_int_equal(train(&p, &config, "parts", &hooks, &first), HARK_OK);
  assert_int_equal(first.reason, HARK_STOP_REQUEST);
  assert_int_equal(first.state.step, 4);
  config.run.resume = true;
  assert_int_equal(train(&p, &config, "parts", NULL, &second), HARK_OK);
  assert_int_equal(second.state.step, 12);

  assert_same_file(&p, "whole/checkpoints/step-12/model.safetensors", "parts/checkpoints/step-12/model.safetensors");
  assert_same_file(&p, "whole/checkpoints/step-12/optimizer.safetensors", "parts/checkpoints/step-12/optimizer.safetensors");
  const losses a = losses_of(&p, "whole"), b = losses_of(&p, "parts");
  assert_int_equal(a.training_count, 12);
  assert_int_equal(b.training_count, 12);
  assert_memory_equal(a.training, b.training, 12 * sizeof *a.training);
  assert_int_equal(a.validation_count, 3);
  assert_int_equal(b.validation_count, 3);
  assert_memory_equal(a.validation, b.validation, 3 * sizeof *a.validation);
  assert_true(a.training[11] < a.training[0]);
  place_close(&p);
}

/* An interrupt between two lines of metrics, at a step that an evaluation is due at, or in the middle of an evaluation: the lines of the two
 * parts together are those of the whole run. */
static void test_interrupts_leave_the_same_lines(void **state) {
  (void)state;
  place p;
  place_open(&p);
  hark_config config = configuration(&p);
  config.train.log_every = 4;
  hark_train_result whole, part;
  assert_int_equal(train(&p, &config, "whole", NULL, &whole), HARK_OK);
  const losses a = losses_of(&p, "whole");
  assert_int_equal(a.training_count, 3);
  assert_int_equal(a.validation_count, 3);
  /* requests are asked for after every step, and after every batch of an evaluation: the fifth step is followed by the first evaluation */
  for (int64_t left = 2; left <= 7; left++) {
    char name[32];
    (void)snprintf(name, sizeof name, "part-%d", (int)left);
    interrupter who = {.left = left};
    const hark_train_hooks hooks = {.user = &who, .request = interrupt};
    assert_int_equal(train(&p, &config, name, &hooks, &part), HARK_OK);
    assert_int_equal(part.reason, HARK_STOP_REQUEST);
    assert_int_equal(part.state.step, left < 5 ? left : 5);
    config.run.resume = true;
    assert_int_equal(train(&p, &config, name, NULL, &part), HARK_OK);
    config.run.resume = false;
    const losses b = losses_of(&p, name);
    assert_int_equal(b.training_count, a.training_count);
    assert_memory_equal(a.training, b.training, 3 * sizeof *a.training);
    assert_int_equal(b.validation_count, a.validation_count);
    assert_memory_equal(a.validation, b.validation, 3 * sizeof *a.validation);
    assert_int_equal(part.state.best_step, whole.state.best_step);
  }
  place_close(&p);
}

/* A run that stopped early makes no step when it is taken up again, and changes none of its files; with more patience it goes on. */
static void test_early_stop_stays(void **state) {
  (void)state;
  static const char *const files[] = {"metrics.jsonl", "last", "checkpoints/step-10/model.safetensors",
                                      "checkpoints/step-10/optimizer.safetensors", "checkpoints/step-10/state.json"};
  enum { FILES = sizeof files / sizeof *files };
  place p;
  place_open(&p);
  hark_config config = configuration(&p);
  config.train.steps = 40;
  config.train.learning_rate = config.train.minimum_rate = 1e-30; /* no evaluation after the first one is the best */
  config.train.weight_decay = 0;
  config.train.early_stop = 1;
  hark_train_result result;
  hark_text before[FILES];
  char name[96];
  assert_int_equal(train(&p, &config, "run", NULL, &result), HARK_OK);
  assert_int_equal(result.reason, HARK_STOP_EARLY);
  assert_int_equal(result.state.step, 10);
  for (int i = 0; i < FILES; i++) {
    (void)snprintf(name, sizeof name, "run/%s", files[i]);
    before[i] = read_file(&p, name);
  }
  config.run.resume = true;
  assert_int_equal(train(&p, &config, "run", NULL, &result), HARK_OK);
  assert_int_equal(result.reason, HARK_STOP_EARLY);
  assert_int_equal(result.state.step, 10);
  for (int i = 0; i < FILES; i++) {
    (void)snprintf(name, sizeof name, "run/%s", files[i]);
    hark_text after = read_file(&p, name);
    assert_int_equal(after.length, before[i].length);
    assert_memory_equal(after.data, before[i].data, after.length);
    hark_text_free(&after);
    hark_text_free(&before[i]);
  }
  config.train.early_stop = 2;
  assert_int_equal(train(&p, &config, "run", NULL, &result), HARK_OK);
  assert_int_equal(result.reason, HARK_STOP_EARLY);
  assert_int_equal(result.state.step, 15);
  place_close(&p);
}

/* An evaluation that a limit of time brings forward counts for nothing but the best loss: a run in parts has as much patience as one in one. */
static void test_time_spends_no_patience(void **state) {
  (void)state;
  place p;
  place_open(&p);
  hark_config config = configuration(&p);
  config.train.steps = 40;
  config.train.learning_rate = config.train.minimum_rate = 1e-30;
  config.train.weight_decay = 0;
  config.train.early_stop = 1;
  config.train.max_time = 1e-9; /* one step a part */
  hark_train_result result;
  for (int64_t step = 1; step < config.train.evaluate_every; step++) {
    assert_int_equal(train(&p, &config, "run", NULL, &result), HARK_OK);
    assert_int_equal(result.reason, HARK_STOP_TIME);
    assert_int_equal(result.state.step, step);
    config.run.resume = true;
  }
  config.train.max_time = 0;
  assert_int_equal(train(&p, &config, "run", NULL, &result), HARK_OK);
  assert_int_equal(result.reason, HARK_STOP_EARLY); /* at the first evaluation that is due: the one of step 1 was no worse */
  assert_int_equal(result.state.step, config.train.evaluate_every);
  place_close(&p);
}

/* Asks for one checkpoint, at the call of that number. */
static hark_request ask_once(void *user) {
  interrupter *who = user;
  return --who->left == 0 ? HARK_REQUEST_CHECKPOINT : HARK_REQUEST_NONE;
}

/* A checkpoint asked for during an evaluation is written after it. */
static void test_request_during_evaluation(void **state) {
  (void)state;
  place p;
  place_open(&p);
  hark_config config = configuration(&p);
  config.train.learning_rate = config.train.minimum_rate = 1e-30; /* no evaluation after the first one is the best: none saves by itself */
  config.train.weight_decay = 0;
  config.train.keep = 10;
  interrupter who = {.left = 0};
  const hark_train_hooks counting = {.user = &who, .request = ask_once};
  hark_train_result result;
  config.train.steps = 5;
  assert_int_equal(train(&p, &config, "first", &counting, &result), HARK_OK);
  const int64_t batches = -who.left - config.train.steps; /* of an evaluation */
  assert_true(batches >= 2);
  config.train.steps = 12;
  who.left = 10 + batches + 1; /* ten steps, the evaluation at step 5, and the first batch of the one at step 10 */
  assert_int_equal(train(&p, &config, "run", &counting, &result), HARK_OK);
  char path[160];
  (void)snprintf(path, sizeof path, "%s/run/checkpoints/step-10", p.folder);
  assert_int_equal(hark_path_kind_of(path), HARK_PATH_FOLDER);
  place_close(&p);
}

/* What a crash may leave behind at every point of a save and before the first one. */
static void test_what_crashes_leave(void **state) {
  (void)state;
  place p;
  place_open(&p);
  hark_config config = configuration(&p);
  config.train.steps = 3;
  config.train.keep = 1;
  config.train.evaluate_every = 0;
  config.data.validation_fraction = 0;
  hark_train_result result;
  char path[200];

  /* before config.yaml: lines of a run that never began */
  (void)snprintf(path, sizeof path, "%s/run", p.folder);
  assert_int_equal(hark_folder_make(p.context, path), HARK_OK);
  (void)snprintf(path, sizeof path, "%s/run/metrics.jsonl", p.folder);
  assert_int_equal(hark_file_write(p.context, path, "{\"train/loss\": 7}\n", 18), HARK_OK);
  assert_int_equal(train(&p, &config, "run", NULL, &result), HARK_OK);
  assert_int_equal(losses_of(&p, "run").training_count, 3);

  /* a checkpoint of a later step that no pointer names: it does not count as one that is kept, and goes */
  (void)snprintf(path, sizeof path, "%s/run/checkpoints/step-100", p.folder);
  assert_int_equal(hark_folder_make(p.context, path), HARK_OK);
  config.run.resume = true;
  config.train.steps = 5;
  assert_int_equal(train(&p, &config, "run", NULL, &result), HARK_OK);
  (void)snprintf(path, sizeof path, "%s/run/checkpoints/step-5", p.folder);
  assert_int_equal(hark_path_kind_of(path), HARK_PATH_FOLDER);
  (void)snprintf(path, sizeof path, "%s/run/checkpoints/step-3", p.folder);
  assert_int_equal(hark_path_kind_of(path), HARK_PATH_NONE);
  (void)snprintf(path, sizeof path, "%s/run/checkpoints/step-100", p.folder);
  assert_int_equal(hark_path_kind_of(path), HARK_PATH_NONE);

  /* a damaged checkpoint: the newest whole one is taken, and the run is the same again */
  config.train.steps = 6;
  config.train.keep = 2;
  assert_int_equal(train(&p, &config, "run", NULL, &result), HARK_OK);
  hark_text end = read_file(&p, "run/checkpoints/step-6/model.safetensors");
  (void)snprintf(path, sizeof path, "%s/run/checkpoints/step-6/model.safetensors", p.folder);
  end.data[end.length - 1] ^= 1;
  assert_int_equal(hark_file_write(p.context, path, end.data, end.length), HARK_OK);
  assert_int_equal(train(&p, &config, "run", NULL, &result), HARK_OK);
  assert_int_equal(result.state.step, 6);
  hark_text again = read_file(&p, "run/checkpoints/step-6/model.safetensors");
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
  assert_int_equal(train(&p, &config, "run", NULL, &result), HARK_BAD_FILE);
  for (int step = 5; step <= 6; step++) {
    (void)snprintf(path, sizeof path, "%s/run/checkpoints/step-%d", p.folder, step);
    assert_int_equal(hark_folder_remove(p.context, path), HARK_OK);
  }
  config.train.steps = 5;

  /* before the first checkpoint: the run begins again, and is the same run */
  (void)snprintf(path, sizeof path, "%s/run/last", p.folder);
  assert_int_equal(hark_file_remove(p.context, path), HARK_OK);
  assert_int_equal(train(&p, &config, "run", NULL, &result), HARK_OK);
  assert_int_equal(result.state.step, 5);
  assert_int_equal(losses_of(&p, "run").training_count, 5);
  place_close(&p);
}

/* `last` has moved to the best checkpoint so far, and the crash came before `best` did. */
static void test_best_follows(void **state) {
  (void)state;
  place p;
  place_open(&p);
  hark_config config = configuration(&p);
  config.train.steps = 10;
  config.train.keep = 1;
  hark_train_result result;
  assert_int_equal(train(&p, &config, "run", NULL, &result), HARK_OK);
  assert_int_equal(result.state.best_step, 10);
  char path[200];
  (void)snprintf(path, sizeof path, "%s/run/best", p.folder);
  assert_int_equal(hark_file_write(p.context, path, "step-5\n", 7), HARK_OK);
  config.run.resume = true;
  config.train.steps = 11;
  config.train.learning_rate = 1; /* makes it worse */
  config.train.minimum_rate = 1;
  assert_int_equal(train(&p, &config, "run", NULL, &result), HARK_OK);
  assert_int_equal(result.state.best_step, 10);
  hark_text best = read_file(&p, "run/best");
  assert_string_equal(hark_text_get(&best), "step-10\n");
  hark_text_free(&best);
  (void)snprintf(path, sizeof path, "%s/run/checkpoints/step-10", p.folder);
  assert_int_equal(hark_path_kind_of(path), HARK_PATH_FOLDER);
  place_close(&p);
}

static void test_run_folders(void **state) {
  (void)state;
  place p;
  place_open(&p);
  hark_config config = configuration(&p);
  config.train.steps = 3;
  config.train.checkpoint_every = 1;
  config.train.keep = 2;
  hark_train_result result;
  assert_int_equal(train(&p, &config, "run", NULL, &result), HARK_OK);
  assert_int_equal(train(&p, &config, "run", NULL, &result), HARK_BAD_CONFIGURATION); /* there is a run already */
  config.run.resume = true;
  assert_int_equal(train(&p, &config, "nothing", NULL, &result), HARK_BAD_CONFIGURATION);

  /* the last two, and no leftovers */
  char path[160];
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
  assert_int_equal(train(&p, &config, "run", NULL, &result), HARK_BAD_CONFIGURATION);
  place_close(&p);
}

/* Everything from text to checkpoint on every backend: on the guard, whoever touches data outside of a backend call ends the test. */
static void test_every_backend(void **state) {
  (void)state;
  test_setup setups[TEST_MAX_SETUPS];
  const int count = test_setups(setups);
  bool guarded = false;
  for (int s = 0; s < count; s++) {
    place p;
    place_open_on(&p, &setups[s]);
    guarded = guarded || strcmp(setups[s].backend, "guard") == 0;
    hark_config config = configuration(&p);
    config.train.steps = 2;
    config.train.evaluate_every = 0;
    config.model.recompute = true;
    config.data.validation_fraction = 0.02;
    hark_train_result result;
    assert_int_equal(train(&p, &config, "run", NULL, &result), HARK_OK);
    assert_true(isfinite(result.validation_loss));
    config.run.resume = true;
    config.train.steps = 3;
    assert_int_equal(train(&p, &config, "run", NULL, &result), HARK_OK);
    assert_int_equal(result.state.step, 3);
    place_close(&p);
  }
  assert_true(guarded);
}

/* A second process cannot write into a run that is being written. */
static void test_folder_is_locked(void **state) {
  (void)state;
  place p;
  place_open(&p);
  char path[160];
  (void)snprintf(path, sizeof path, "%s/run", p.folder);
  hark_run run, other;
  assert_int_equal(hark_run_open(p.context, path, false, &run), HARK_OK);
  assert_int_equal(hark_run_open(p.context, path, false, &other), HARK_BUSY);
  hark_run_close(&run);
  assert_int_equal(hark_run_open(p.context, path, false, &other), HARK_OK);
  hark_run_close(&other);
  place_close(&p);
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
  place p;
  place_open(&p);
  hark_config config = configuration(&p);
  config.train.steps = 1;
  hark_train_result result;
  char path[200], checkpoint[HARK_NAME_BYTES];
  assert_int_equal(train(&p, &config, "run", NULL, &result), HARK_OK);
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
    named[i] = (hark_named_tensor){hark_safetensors_tensor(file, i)->name, &tensors[i]};
    assert_int_equal(hark_safetensors_load(p.context, file, named[i].name, &tensors[i]), HARK_OK);
  }
  const int64_t one = 1;
  assert_int_equal(hark_tensor_create(p.context, HARK_F32, 1, &one, &tensors[count]), HARK_OK);
  named[count] = (hark_named_tensor){"first_moment.stranger", &tensors[count]};
  assert_int_equal(hark_safetensors_write(p.context, path, named, count + 1, NULL, 0, NULL), HARK_OK);
  hark_safetensors_close(p.context, &file);
  for (int64_t i = 0; i <= count; i++) hark_tensor_destroy(p.context, &tensors[i]);
  free(tensors);
  free(named);
  assert_int_equal(hark_checkpoint_load(p.context, &run, "step-1", engine, NULL), HARK_BAD_FILE);
  assert_non_null(strstr(hark_context_message(p.context), "the model's moments are"));
  hark_engine_destroy(p.context, &engine);
  hark_tokenizer_destroy(p.context, &tokenizer);
  place_close(&p);
}

static void test_schedules(void **state) {
  (void)state;
  hark_config config;
  memset(&config, 0, sizeof config);
  config.train.learning_rate = 2;
  config.train.minimum_rate = 0.5;
  config.train.warmup = 10;
  const double tolerance = 1e-12;
  const struct {
    hark_schedule schedule;
    int64_t step;
    double rate;
  } expected[] = {{HARK_SCHEDULE_CONSTANT, 1, 0.2}, {HARK_SCHEDULE_CONSTANT, 10, 2},  {HARK_SCHEDULE_CONSTANT, 110, 2},
                  {HARK_SCHEDULE_COSINE, 5, 1},     {HARK_SCHEDULE_COSINE, 10, 2},    {HARK_SCHEDULE_COSINE, 60, 1.25},
                  {HARK_SCHEDULE_COSINE, 110, 0.5}, {HARK_SCHEDULE_COSINE, 500, 0.5}, {HARK_SCHEDULE_LINEAR, 35, 1.625},
                  {HARK_SCHEDULE_LINEAR, 110, 0.5}, {HARK_SCHEDULE_RSQRT, 10, 2},     {HARK_SCHEDULE_RSQRT, 40, 1},
                  {HARK_SCHEDULE_RSQRT, 5, 1}};
  for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
    config.train.schedule = expected[i].schedule;
    assert_true(fabs(hark_schedule_rate(&config, expected[i].step, 110) - expected[i].rate) <= tolerance);
  }
  /* a warm-up as long as the run ends at the peak */
  config.train.schedule = HARK_SCHEDULE_COSINE;
  assert_true(fabs(hark_schedule_rate(&config, 10, 10) - 2) <= tolerance);
  config.train.schedule = HARK_SCHEDULE_LINEAR;
  assert_true(fabs(hark_schedule_rate(&config, 10, 10) - 2) <= tolerance);
  config.train.warmup = 0;
  assert_true(fabs(hark_schedule_rate(&config, 1, 1) - 0.5) <= tolerance);
}

/* A rate that blows the model up: steps with numbers that are not finite change nothing, and after the allowed number the run gives up. */
static void test_not_finite(void **state) {
  (void)state;
  place p;
  place_open(&p);
  hark_config config = configuration(&p);
  config.train.steps = 200;
  config.train.learning_rate = 1e30;
  config.train.minimum_rate = 1e30;
  config.train.warmup = 0;
  config.train.max_bad_steps = 3;
  config.train.evaluate_every = 0;
  config.train.clip = 0;
  hark_train_result result;
  assert_int_equal(train(&p, &config, "run", NULL, &result), HARK_NOT_FINITE);
  assert_int_equal(result.state.bad_steps, 3);
  assert_int_equal(result.state.updates, result.state.step - 3);
  place_close(&p);
}

/* Parameters of a positional kernel learn at their own rate, are resumed with the rest, and belong to their expression. */
static void test_positional_kernels(void **state) {
  (void)state;
  static const char parameters[] = "positional.parameters";
  place p;
  place_open(&p);
  hark_config config = configuration(&p);
  config.model.positional = "bank[2](decay*periodic)";
  config.train.weight_decay = 0.5;
  hark_train_result result;
  char path[256];
  double largest[2] = {0};
  for (int moving = 0; moving < 2; moving++) {
    const char *name = moving ? "moving" : "still";
    config.train.positional_rate = moving ? 3 : 0;
    assert_int_equal(train(&p, &config, name, NULL, &result), HARK_OK);
    hark_positional *kernel = NULL;
    double start[8];
    float learned[8];
    const hark_positional_start from = {.struct_size = sizeof from, .length = config.model.context};
    assert_int_equal(hark_positional_create(p.context, config.model.positional, &kernel), HARK_OK);
    assert_int_equal(hark_positional_initial(p.context, kernel, &from, start), HARK_OK);
    hark_safetensors *file = NULL;
    (void)snprintf(path, sizeof path, "%s/%s/checkpoints/step-12/model.safetensors", p.folder, name);
    assert_int_equal(hark_safetensors_open(p.context, path, &file), HARK_OK);
    assert_int_equal(hark_safetensors_read(p.context, file, hark_safetensors_find(file, parameters), learned), HARK_OK);
    assert_string_equal(hark_safetensors_metadata(file, "positional"), "bank[2](decay*periodic)");
    assert_string_equal(hark_safetensors_metadata(file, "positional_scope"), "model");
    for (int i = 0; i < 8; i++) largest[moving] = fmax(largest[moving], fabs((double)learned[i] - (double)(float)start[i]));
    hark_safetensors_close(p.context, &file);
    hark_positional_destroy(p.context, &kernel);
  }
  assert_true(largest[0] == 0 && largest[1] > 1e-4);

  interrupter who = {.left = 4};
  const hark_train_hooks hooks = {.user = &who, .request = interrupt};
  assert_int_equal(train(&p, &config, "parts", &hooks, &result), HARK_OK);
  config.run.resume = true;
  config.model.positional = "bank[2](decay*rbf)"; /* as many parameters, and other ones */
  assert_int_equal(train(&p, &config, "parts", NULL, &result), HARK_BAD_FILE);
  assert_non_null(strstr(hark_context_message(p.context), "\"bank[2](decay*periodic)\", the configuration has \"bank[2](decay*rbf)\""));
  config.model.positional = "";
  assert_int_equal(train(&p, &config, "parts", NULL, &result), HARK_BAD_FILE);
  config.model.positional = " bank [2] ((decay) * periodic)";
  assert_int_equal(train(&p, &config, "parts", NULL, &result), HARK_OK);
  assert_same_file(&p, "moving/checkpoints/step-12/model.safetensors", "parts/checkpoints/step-12/model.safetensors");
  assert_same_file(&p, "moving/checkpoints/step-12/optimizer.safetensors", "parts/checkpoints/step-12/optimizer.safetensors");
  place_close(&p);
}

/* Parameters that run away are seen in the loss, like other weights that do. */
static void test_positional_kernels_not_finite(void **state) {
  (void)state;
  place p;
  place_open(&p);
  hark_config config = configuration(&p);
  config.model.positional = "decay*periodic";
  config.train.steps = 60;
  config.train.positional_rate = 1e30;
  config.train.max_bad_steps = 3;
  config.train.evaluate_every = 0;
  hark_train_result result;
  assert_int_equal(train(&p, &config, "run", NULL, &result), HARK_NOT_FINITE);
  assert_int_equal(result.state.bad_steps, 3);
  place_close(&p);
}

/* Learned rates have a rate of their own and no decay, are told in metrics, and are resumed with the rest. */
static void test_learned_rates(void **state) {
  (void)state;
  enum { PAIRS = 64 };
  place p;
  place_open(&p);
  hark_config config = configuration(&p);
  config.model.positions = HARK_POSITIONS_ROTARY;
  config.model.rotary.learned = HARK_ROTARY_OF_LAYER;
  config.train.weight_decay = 0.5;
  const int64_t head_dim = config.model.width / config.model.heads;
  const hark_rotary_attributes rotary = {.heads = 1, .base = config.model.rotary.base};
  hark_train_result result;
  double largest[2] = {0};
  assert_in_range(head_dim / 2, 1, PAIRS);
  for (int moving = 0; moving < 2; moving++) {
    const char *name = moving ? "moving" : "still";
    float learned[PAIRS];
    char path[256];
    config.train.rotary_rate = moving;
    assert_int_equal(train(&p, &config, name, NULL, &result), HARK_OK);
    hark_safetensors *file = NULL;
    (void)snprintf(path, sizeof path, "%s/%s/checkpoints/step-12/model.safetensors", p.folder, name);
    assert_int_equal(hark_safetensors_open(p.context, path, &file), HARK_OK);
    const hark_stored_tensor *rates = hark_safetensors_find(file, "blocks.0.attention.rotary.rates");
    assert_non_null(rates);
    assert_int_equal(rates->shape[1], head_dim / 2);
    assert_int_equal(hark_safetensors_read(p.context, file, rates, learned), HARK_OK);
    for (int64_t j = 0; j < head_dim / 2; j++)
      largest[moving] = fmax(largest[moving], fabs((double)learned[j] - (double)(float)hark_rotary_rate(&rotary, head_dim, j)));
    hark_safetensors_close(p.context, &file);
  }
  assert_true(largest[0] == 0 && largest[1] > 1e-4);
  interrupter who = {.left = 4};
  const hark_train_hooks hooks = {.user = &who, .request = interrupt};
  assert_int_equal(train(&p, &config, "parts", &hooks, &result), HARK_OK);
  config.run.resume = true;
  assert_int_equal(train(&p, &config, "parts", NULL, &result), HARK_OK);
  assert_same_file(&p, "moving/checkpoints/step-12/model.safetensors", "parts/checkpoints/step-12/model.safetensors");
  assert_same_file(&p, "moving/checkpoints/step-12/optimizer.safetensors", "parts/checkpoints/step-12/optimizer.safetensors");
  place_close(&p);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_resume_is_exact),
      cmocka_unit_test(test_run_folders),
      cmocka_unit_test(test_every_backend),
      cmocka_unit_test(test_folder_is_locked),
      cmocka_unit_test(test_cutting_paths),
      cmocka_unit_test(test_unexpected_moments),
      cmocka_unit_test(test_schedules),
      cmocka_unit_test(test_not_finite),
      cmocka_unit_test(test_interrupts_leave_the_same_lines),
      cmocka_unit_test(test_early_stop_stays),
      cmocka_unit_test(test_time_spends_no_patience),
      cmocka_unit_test(test_request_during_evaluation),
      cmocka_unit_test(test_what_crashes_leave),
      cmocka_unit_test(test_best_follows),
      cmocka_unit_test(test_positional_kernels),
      cmocka_unit_test(test_positional_kernels_not_finite),
      cmocka_unit_test(test_learned_rates),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
