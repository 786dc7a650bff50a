/* training_place.c - see training_place.h. */
#include "support/train/training_place.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/cmocka_all.h"

void training_place_open_on(training_place *p, const test_setup *setup) {
  p->context = test_setup_open_deterministic(setup, 2);
  test_folder_make(p->folder);
  (void)snprintf(p->text, sizeof p->text, "%s", test_path(p->folder, "text.txt"));
  FILE *file = fopen(p->text, "w");
  assert_non_null(file);
  for (int i = 0; i < 400; i++) (void)fprintf(file, "the %d quick foxes jump over %d lazy dogs\n", i % 7, i % 5);
  assert_int_equal(fclose(file), 0);
}

void training_place_open(training_place *p) {
  const test_setup setup = {"cpu", "generic"};
  training_place_open_on(p, &setup);
}

void training_place_close(training_place *p) {
  test_folder_remove(p->folder);
  test_setup_close(p->context);
}

static const char *paths[1];

hark_config training_configuration(const training_place *p) {
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
  hark_options_destroy(p->context, &options); /* and the texts among the values, which are replaced below */
  paths[0] = p->text;
  config.data.paths = (hark_string_list){.items = paths, .count = 1};
  config.data.validation_paths = (hark_string_list){0};
  config.train.init_from = config.data.text_field = config.data.label_field = "";
  return config;
}

hark_status training_run(training_place *p, const hark_config *config, const char *name, const hark_train_hooks *hooks,
                         hark_train_result *result) {
  char config_name[64];
  hark_run run;
  const char *path = test_path(p->folder, name);
  hark_status status = hark_run_open(p->context, path, config->run.resume, &run);
  if (status != HARK_OK) return status;
  (void)snprintf(config_name, sizeof config_name, "%s/config.yaml", name);
  if (!config->run.resume) test_file_write_text(p->folder, config_name, "# a run\n");
  status = hark_train(p->context, config, &run, hooks, result);
  hark_run_close(&run);
  return status;
}

hark_text training_file(training_place *p, const char *name) {
  hark_text text = hark_text_empty(p->context);
  assert_int_equal(hark_file_read(p->context, test_path(p->folder, name), (size_t)1 << 26, &text), HARK_OK);
  return text;
}

void training_same_file(training_place *p, const char *a, const char *b) {
  hark_text left = training_file(p, a), right = training_file(p, b);
  assert_int_equal(left.length, right.length);
  assert_memory_equal(hark_text_get(&left), hark_text_get(&right), left.length);
  hark_text_free(&left);
  hark_text_free(&right);
}

hark_request training_interrupt(void *user) {
  training_interrupter *who = user;
  return --who->left <= 0 ? HARK_REQUEST_STOP : HARK_REQUEST_NONE;
}

double training_clock_now(void *user) { return ((training_clock *)user)->now; }

hark_request training_clock_tick(void *user) {
  training_clock *clock = user;
  clock->now += clock->second;
  return clock->left > 0 && --clock->left == 0 ? HARK_REQUEST_STOP : HARK_REQUEST_NONE;
}
