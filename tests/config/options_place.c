/* options_place.c - see options_place.h. */
#include "config/options_place.h"

#include <stdio.h>
#include <string.h>

hark_context *context;
hark_options *options;
char folder[TEST_PATH_BYTES];

static void create(const hark_option_table *table, void *values) {
  const hark_option_group group = {table, values};
  assert_fine(context, hark_options_create(context, "train", &group, 1, &options));
}

static void destroy(void) {
  const size_t before = hark_context_memory(context).live_bytes;
  hark_options_destroy(context, &options);
  assert_null(options);
  assert_true(hark_context_memory(context).live_bytes < before);
}

void options_place_open(const hark_option_table *table, void *values) {
  test_folder_make(folder);
  context = test_reference_open();
  create(table, values);
}

void options_place_again(const hark_option_table *table, void *values) {
  destroy();
  create(table, values);
}

void options_place_close(void) {
  destroy();
  hark_context_destroy(&context);
  test_folder_remove(folder);
}

void arguments(const char *line) {
  char copy[512];
  const char *words[32];
  int count = 0;
  snprintf(copy, sizeof copy, "%s", line);
  for (char *at = strtok(copy, " "); at != NULL; at = strtok(NULL, " ")) words[count++] = at;
  assert_fine(context, hark_options_read_arguments(context, options, count, words));
}

void yaml(const char *text) {
  assert_fine(context, hark_options_read_yaml(context, options, test_file_write_text(folder, "c.yaml", text), HARK_SOURCE_FILE));
}

void expect_problems(const char *const *parts, int count) {
  for (int i = 0; i < hark_options_problem_count(options); i++) {
    if (i < count && strstr(hark_options_problem(options, i), parts[i]) == NULL)
      fail_msg("\"%s\" lacks \"%s\"", hark_options_problem(options, i), parts[i]);
    assert_null(strchr(hark_options_problem(options, i), '\n'));
  }
  assert_int_equal(hark_options_problem_count(options), count);
}

void expect_problem(const char *part) { expect_problems(&part, 1); }
