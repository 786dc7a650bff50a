/* task_place.c - see task_place.h. */
#include "support/train/task_place.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/core.h"
#include "support/cmocka_all.h"

#define SIGMAS 5.0
#define NAMES_BYTES 128

int task_place_begin(void **state) {
  task_place *const f = calloc(1, sizeof *f);
  f->context = test_memory_context(&f->memory);
  test_folder_make(f->folder);
  *state = f;
  return 0;
}

int task_place_end(void **state) {
  task_place *const f = *state;
  test_folder_remove(f->folder);
  test_memory_context_end(f->context, &f->memory);
  free(f);
  return 0;
}

hark_status task_make_in(hark_context *context, const char *folder, const made_task *t) {
  const hark_task_entry *const entry = hark_task_find(t->name);
  void *const values = calloc(1, entry->options->values_size);
  const hark_option_group group = {entry->options, values};
  hark_options *options;
  hark_text report = hark_text_empty(context);
  hark_status status = hark_options_create(context, NULL, &group, 1, &options);
  for (int i = 0; status == HARK_OK && t->options[i] != NULL; i += 2)
    status = hark_options_set(context, options, t->options[i], t->options[i + 1], "test", HARK_SOURCE_COMMAND);
  if (status == HARK_OK) status = hark_options_finish(context, options);
  hark_task_settings settings = {.entry = entry, .values = values, .folder = folder, .seed = t->seed};
  memcpy(settings.examples, t->examples, sizeof settings.examples);
  if (status == HARK_OK) status = hark_task_make(context, &settings, &report);
  hark_text_free(&report);
  hark_options_destroy(context, &options);
  free(values);
  return status;
}

void task_make(const task_place *f, const char *name, const made_task *t) {
  assert_fine(f->context, task_make_in(f->context, test_path(f->folder, name), t));
}

hark_examples *task_open(const task_place *f, const char *name) {
  const char *const path = test_path(f->folder, name);
  const hark_examples_settings settings = {.paths = &path, .path_count = 1};
  hark_examples *e;
  assert_fine(f->context, hark_examples_open(f->context, &settings, &e));
  return e;
}

char *task_file(const task_place *f, const char *name, const char *file) {
  char path[NAMES_BYTES];
  snprintf(path, sizeof path, "%s/%s", name, file);
  return test_file_text(f->folder, path);
}

void task_assert_near(double measured, double expected, double deviation, const char *what) {
  if (fabs(measured - expected) > SIGMAS * deviation)
    fail_msg("%s: %.6g, expected %.6g within %.3g", what, measured, expected, SIGMAS * deviation);
}
