/* command_place.c - see command_place.h. */
#include "support/train/command_place.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/cmocka_all.h"

void command_place_open(char folder[TEST_PATH_BYTES]) {
  test_folder_make(folder);
  command_text_make(folder, "text.txt", "the quick brown fox ");
}

void command_place_close(const char *folder, test_output *output) {
  test_output_free(output);
  test_folder_remove(folder);
}

int command_place_shell(const char *folder, const char *lines) {
  char command[2 * TEST_PATH_BYTES + 2048];
  (void)snprintf(command, sizeof command, "cd '%s' && { %s\n} >/dev/null 2>&1", folder, lines);
  return system(command);
}

void command_text_make(const char *folder, const char *name, const char *words) {
  static char text[4000];
  const size_t letters = strlen(words);
  for (size_t i = 0; i + 1 < sizeof text; i++) text[i] = words[(i + i / 11) % letters];
  test_file_write_text(folder, name, text);
}

void command_expect(const char *folder, const char *words, int code, const char *in_out, const char *in_err, test_output *output) {
  test_command_run(folder, "", words, output);
  if (output->code != code || strstr(output->out, in_out) == NULL || strstr(output->err, in_err) == NULL)
    fail_msg("hark %s\nexit code %d, expected %d\nstdout: %s\nstderr: %s\nexpected there: \"%s\", \"%s\"", words, output->code, code,
             output->out, output->err, in_out, in_err);
}

json_t *command_json(const test_output *output) {
  json_error_t error;
  json_t *const object = json_loads(output->out, JSON_REJECT_DUPLICATES, &error);
  if (object == NULL) fail_msg("%s in %s", error.text, output->out);
  assert_int_equal(test_line_count(output->out), 1);
  return object;
}

double command_number(const json_t *object, const char *key) {
  const json_t *const value = json_object_get(object, key);
  if (!json_is_number(value)) fail_msg("no number %s", key);
  return json_number_value(value);
}
