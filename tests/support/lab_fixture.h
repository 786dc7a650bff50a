/* lab_fixture.h - what tests of hark lab share: a folder that they are in, a context, the command in this process, and its JSON. */
#ifndef HARK_TESTS_SUPPORT_LAB_FIXTURE_H
#define HARK_TESTS_SUPPORT_LAB_FIXTURE_H

#include <string.h>
#include <unistd.h>

#include "cli/commands.h"
#include "json/json.h"
#include "support/cmocka_all.h"
#include "support/setups.h"
#include "support/train/command_place.h"

static char folder[TEST_PATH_BYTES];
static test_output output;
static hark_context *context;

static inline int begin(void **state) {
  (void)state;
  command_place_open(folder);
  context = test_reference_open();
  return chdir(folder);
}

static inline int end(void **state) {
  (void)state;
  test_setup_close(context);
  if (chdir("/") != 0) return 1;
  command_place_close(folder, &output);
  return 0;
}

static inline void hark(const char *line, int code) {
  test_command_line(hark_main, line, &output);
  if (output.code != code)
    fail_msg("%s: exit code %d, expected %d\nstdout: %s\nstderr: %s", line, output.code, code, output.out, output.err);
}

/* By hark's own reader. */
static inline json_t *parsed(const char *text) {
  json_t *document;
  assert_fine(context, hark_json_parse(context, "JSON", text, strlen(text), &document));
  return document;
}

#endif
