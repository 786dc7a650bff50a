/* test_allocations_files.c - every allocation fails in turn (failing.h): saving and loading checkpoints, opening text, making tasks, whole
 * runs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/corpora/corpus.h"
#include "data/tasks/make.h"
#include "fault/child.h"
#include "fault/failing.h"
#include "support/cmocka_all.h"
#include "support/learner.h"
#include "train/data_place.h"
#include "train/material.h"

enum { VOCABULARY = 30 };

static child_place place;

typedef struct file_work {
  hark_config config;
  hark_engine *engine;
  hark_run run;
  hark_run_state state;
} file_work;

/* ---- checkpoints ---- */

static hark_status begin_checkpoint(hark_context *context, void *data) {
  file_work *m = data;
  child_begin_work(&place, NULL);
  m->state = (hark_run_state){.step = 7, .best_step = 7, .best_loss = 1};
  HARK_TRY(hark_engine_create(context, &m->config, VOCABULARY, true, &m->engine));
  HARK_TRY(hark_parameters_initialise(context, &m->engine->network->parameters, 1));
  return hark_run_open(context, place.work, false, &m->run);
}

static hark_status save(hark_context *context, void *data) {
  file_work *m = data;
  m->state.step++;
  m->state.best_step = m->state.step;
  return hark_checkpoint_save(context, &m->run, m->engine, &m->state, 2);
}

static hark_status begin_saved(hark_context *context, void *data) {
  HARK_TRY(begin_checkpoint(context, data));
  return save(context, data);
}

static hark_status load(hark_context *context, void *data) {
  file_work *m = data;
  char name[HARK_NAME_BYTES], damaged[HARK_NAME_BYTES];
  HARK_TRY(hark_checkpoint_newest(context, &m->run, name, damaged));
  return hark_checkpoint_load(context, &m->run, name, m->engine, &m->state);
}

static void end_checkpoint(hark_context *context, void *data) {
  file_work *m = data;
  hark_run_close(&m->run);
  hark_engine_destroy(context, &m->engine);
}

static void checkpoints(void **state) {
  (void)state;
  file_work m = {.config = place.small.config};
  work what = {
      .name = "saving a checkpoint", .begin = begin_checkpoint, .run = save, .end = end_checkpoint, .backend = "cpu", .at_least = 20};
  fail_at_each(&what, &m);
  what.name = "finding, checking and loading a checkpoint";
  what.begin = begin_saved;
  what.run = load;
  fail_at_each(&what, &m);
}

/* A save that fails takes nothing away. */
static bool fail_second_save(const void *what, void *data, long number, bool onwards) {
  (void)what;
  file_work *const m = data;
  test_memory memory = {0};
  hark_context *context = NULL;
  char name[HARK_NAME_BYTES], damaged[HARK_NAME_BYTES];
  assert_int_equal(test_memory_create(&memory, "cpu", &context), HARK_OK);
  assert_fine(context, begin_checkpoint(context, m));
  assert_fine(context, save(context, m)); /* step 8 */
  memory.fail_at = memory.allocations + number;
  memory.onwards = onwards;
  const hark_status status = save(context, m); /* step 9 */
  const bool reached = memory.allocations >= memory.fail_at;
  memory.fail_at = 0;
  assert_int_equal(status, reached ? HARK_OUT_OF_MEMORY : HARK_OK);
  assert_fine(context, hark_checkpoint_newest(context, &m->run, name, damaged));
  assert_string_equal(damaged, "");
  if (!reached) assert_string_equal(name, "step-9");
  assert_fine(context, hark_checkpoint_verify(context, &m->run, name, NULL));
  end_checkpoint(context, m);
  test_memory_context_end(context, &memory);
  return reached;
}

static void a_failed_save_leaves_the_last_one(void **state) {
  (void)state;
  file_work m = {.config = place.small.config};
  assert_true(fail_each(fail_second_save, NULL, &m) > 20);
}

/* ---- text, and whole runs ---- */

static hark_status open_text(hark_context *context, void *data) {
  const bool *again = data;
  hark_tokenizer *tokenizer = NULL;
  hark_corpus *corpus = NULL;
  hark_run run;
  if (!*again) test_folder_remove(place.work);
  HARK_TRY(hark_run_open(context, place.work, false, &run));
  const hark_status status = hark_run_corpus(context, &place.small.config, &run, !*again, &tokenizer, &corpus);
  hark_corpus_close(context, &corpus);
  hark_tokenizer_destroy(context, &tokenizer);
  hark_run_close(&run);
  return status;
}

static hark_status open_sentences(hark_context *context, void *data) {
  (void)data;
  hark_material material;
  hark_run run;
  test_folder_remove(place.work);
  HARK_TRY(hark_run_open(context, place.work, false, &run));
  hark_status status = hark_material_open(context, &place.small.config, &run, false, &material);
  if (status == HARK_OK) status = hark_material_prepare(context, &material);
  hark_material_close(context, &material);
  hark_run_close(&run);
  return status;
}

/* Data of two files: compared with each other, written down, and found again. */
static hark_status find_data(hark_context *context, void *data) {
  const char *const file = place.small.config.data.paths.items[0];
  hark_config config;
  const hark_option_group group = {&hark_config_table, &config};
  hark_options *options = NULL;
  hark_tokenizer *tokenizer = NULL;
  hark_data_place found = {.folder = ""};
  hark_run run = {.lock = -1};
  (void)data;
  (void)snprintf(run.path, sizeof run.path, "%s", place.folder);
  hark_status status = hark_options_create(context, NULL, &group, 1, &options);
  if (status == HARK_OK) status = hark_options_set_item(context, options, "data.paths", 0, file, "test", HARK_SOURCE_RUN);
  if (status == HARK_OK)
    status = hark_options_set_item(context, options, "data.paths", 1, test_path(place.folder, "more.txt"), "test", HARK_SOURCE_RUN);
  if (status == HARK_OK) status = hark_run_learn_vocabulary(context, &config, &tokenizer);
  if (status == HARK_OK) status = hark_data_place_write(context, &config, &run, &found);
  if (status == HARK_OK) status = hark_data_place_find(context, options, &config, run.path, &found);
  hark_tokenizer_destroy(context, &tokenizer);
  hark_options_destroy(context, &options);
  return status;
}

static void data(void **state) {
  (void)state;
  const work what = {.name = "data that are found again", .run = find_data, .backend = "reference", .at_least = 30};
  test_file_write_text(place.folder, "more.txt", "another text\n");
  fail_at_each(&what, NULL);
}

static void text(void **state) {
  (void)state;
  bool again = false;
  work what = {.name = "opening a folder, learning a vocabulary, making tokens", .run = open_text, .backend = "reference", .at_least = 20};
  child_begin_work(&place, NULL);
  fail_at_each(&what, &again);
  again = true;
  what.name = "opening what is there";
  what.at_least = 10;
  fail_at_each(&what, &again);
  const hark_config config = place.small.config;
  place.small.config.data.unit = HARK_UNIT_SENTENCES;
  place.small.config.data.tokenizer = HARK_TOKENIZER_SUBWORDS;
  place.small.config.data.subwords.vocabulary = HARK_TOKEN_RESERVED + 256 + 20;
  place.small.config.data.subwords.learner = &test_learner;
  again = false;
  what.name = "learning sub-words, packing sentences";
  what.run = open_sentences;
  what.at_least = 40;
  fail_at_each(&what, &again);
  place.small.config = config;
}

/* A small task of a generator: made, and read with a part of it to validate. */
static hark_status make_task(hark_context *context, const hark_task_entry *entry, void *values, hark_text *report) {
  hark_task_settings settings = {.entry = entry, .values = values, .folder = place.work, .seed = 1};
  settings.examples[HARK_SPLIT_TRAINING] = 5;
  settings.examples[HARK_SPLIT_TEST] = 2;
  test_folder_remove(place.work);
  return hark_task_make(context, &settings, report);
}

static hark_status make_and_read_task(hark_context *context, void *data) {
  const hark_task_entry *const entry = data;
  void *const values = calloc(1, entry->options->values_size);
  const hark_option_group group = {entry->options, values};
  const char *const path = place.work;
  const hark_examples_settings settings = {.paths = &path, .path_count = 1, .validation_fraction = 0.4};
  hark_options *options = NULL;
  hark_examples *examples = NULL;
  hark_text report = hark_text_empty(context);
  hark_status status = hark_options_create(context, NULL, &group, 1, &options);
  if (status == HARK_OK) status = make_task(context, entry, values, &report);
  if (status == HARK_OK && strcmp(entry->generator->format, HARK_TASK_TEXT) != 0)
    status = hark_examples_open(context, &settings, &examples);
  hark_examples_close(context, &examples);
  hark_text_free(&report);
  hark_options_destroy(context, &options);
  free(values);
  return status;
}

static void tasks(void **state) {
  (void)state;
  child_begin_work(&place, NULL);
  for (int i = 0; i < hark_task_entry_count; i++) {
    hark_task_entry entry = hark_task_entries[i];
    const bool is_read = strcmp(entry.generator->format, HARK_TASK_TEXT) != 0; /* as examples; texts are only made */
    const work what = {.name = entry.name, .run = make_and_read_task, .backend = "reference", .at_least = is_read ? 15 : 8};
    fail_at_each(&what, &entry);
  }
}

typedef struct run_work {
  const char *from;
} run_work;

static hark_status train(hark_context *context, void *data) {
  const run_work *r = data;
  child_begin_work(&place, r->from);
  return small_run_train(context, &place.small, place.work, NULL, NULL);
}

/* The same context goes on with the run, to the same end. */
static void go_on(hark_context *context, void *data) {
  (void)data;
  assert_fine(context, small_run_train(context, &place.small, place.work, NULL, NULL));
  small_run_assert_same(place.whole, place.work, place.small.config.train.steps);
}

static void runs(void **state) {
  (void)state;
  run_work r = {.from = NULL};
  place.small.config.train.steps = 3;
  work what = {.name = "a fresh run", .run = train, .failed = go_on, .backend = "cpu", .at_least = 100};
  child_make_whole(&place);
  child_make_part(&place);
  fail_at_each(&what, &r);
  r.from = place.part;
  what.name = "a resumed run";
  fail_at_each(&what, &r);
}

static void runs_over_examples(void **state) {
  (void)state;
  run_work r = {.from = NULL};
  work what = {.name = "a fresh run over examples", .run = train, .failed = go_on, .backend = "cpu", .at_least = 100};
  child_place_take_examples(&place);
  place.small.config.train.steps = 2;
  child_make_whole(&place);
  fail_at_each(&what, &r);
}

static int begin(void **state) {
  (void)state;
  child_place_open(&place);
  return 0;
}

static int end(void **state) {
  (void)state;
  child_place_close(&place);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(checkpoints),
      cmocka_unit_test(text),
      cmocka_unit_test(data),
      cmocka_unit_test(a_failed_save_leaves_the_last_one),
      cmocka_unit_test(runs),
      cmocka_unit_test(tasks),
      cmocka_unit_test(runs_over_examples), /* which the place keeps */
  };
  return cmocka_run_group_tests(tests, begin, end);
}
