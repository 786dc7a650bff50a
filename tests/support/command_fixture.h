/* command_fixture.h - what most tests of the command begin and end with: `folder`, a place with text.txt in it, and `output`, what the last
 * command printed. A test program includes it once, and gives begin and end to cmocka. */
#ifndef HARK_TESTS_SUPPORT_COMMAND_FIXTURE_H
#define HARK_TESTS_SUPPORT_COMMAND_FIXTURE_H

#include "support/train/command_place.h"

static char folder[TEST_PATH_BYTES];
static test_output output;

static inline int begin(void **state) {
  (void)state;
  command_place_open(folder);
  return 0;
}

static inline int end(void **state) {
  (void)state;
  command_place_close(folder, &output);
  return 0;
}

#endif
