/* launch_place.c - see launch_place.h. */
#include "group/launch_place.h"

#include <stdio.h>

#include "support/train/small_run.h"

char launch_folder[TEST_PATH_BYTES];

int launch_place_open(void **state) {
  char text[4096];
  (void)state;
  test_folder_make(launch_folder);
  for (size_t i = 0; i < sizeof text; i++) text[i] = "abcdefg hij\n"[(i * i + i / 7) % 12];
  (void)test_file_write(launch_folder, "text.txt", text, sizeof text);
  return 0;
}

int launch_place_close(void **state) {
  (void)state;
  test_folder_remove(launch_folder);
  return 0;
}

void launch_run(const char *before, const char *words, int code) {
  test_output output = {0};
  test_command_run(launch_folder, before, words, &output);
  if (output.code != code) fail_msg("%s: exit code %d, expected %d: %s%s", words, output.code, code, output.out, output.err);
  test_output_free(&output);
}

static void path_of(const char *name, char path[TEST_PATH_BYTES + 64]) {
  (void)snprintf(path, TEST_PATH_BYTES + 64, "%s/%s", launch_folder, name);
}

void launch_assert_same(const char *a, const char *b, int64_t step) {
  char left[TEST_PATH_BYTES + 64], right[TEST_PATH_BYTES + 64];
  path_of(a, left);
  path_of(b, right);
  small_run_assert_same(left, right, step);
}

void launch_assert_close(const char *a, const char *b, const char *number, int least, double bound) {
  char left[TEST_PATH_BYTES + 64], right[TEST_PATH_BYTES + 64];
  path_of(a, left);
  path_of(b, right);
  small_run_compare(left, right, number, least, bound);
}
