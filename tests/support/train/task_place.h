/* task_place.h - what tests of labelled examples share: a context that notices leaks, a folder for files, and tasks made in it. */
#ifndef HARK_TESTS_SUPPORT_TRAIN_TASK_PLACE_H
#define HARK_TESTS_SUPPORT_TRAIN_TASK_PLACE_H

#include "data/tasks/make.h"
#include "support/text_files.h"

typedef struct task_place {
  test_memory memory;
  hark_context *context;
  char folder[TEST_PATH_BYTES];
} task_place;

/* Set-up and tear-down of a test, whose state is a task_place. */
int task_place_begin(void **state);
int task_place_end(void **state);
#define TASK_TEST(name) cmocka_unit_test_setup_teardown(name, task_place_begin, task_place_end)

/* A task with options by name and value, up to a NULL. */
typedef struct made_task {
  const char *name;
  uint64_t seed;
  int64_t examples[HARK_SPLIT_ALL];
  const char *options[14];
} made_task;

/* Makes it in a folder; and in the place's folder `name`, where failing fails the test. */
hark_status task_make_in(hark_context *context, const char *folder, const made_task *t);
void task_make(const task_place *f, const char *name, const made_task *t);

/* The examples of the place's folder `name`; and FOLDER/NAME/FILE as text, for free(). */
hark_examples *task_open(const task_place *f, const char *name);
char *task_file(const task_place *f, const char *name, const char *file);

/* The test fails unless `measured` is within five standard deviations of what is expected. */
void task_assert_near(double measured, double expected, double deviation, const char *what);

#endif
