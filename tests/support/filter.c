/* filter.c - HARK_TEST in the environment: only the tests of a program whose names match it, where * stands for anything.
 *
 *     HARK_TEST='*memory*' build/tests/unit/test_context
 *
 * CTest takes it away, so that a suite is always run whole.
 */
#include <stdlib.h>

#include "support/cmocka_all.h"

__attribute__((constructor)) static void choose_tests(void) {
  const char *const pattern = getenv("HARK_TEST");
  if (pattern != NULL && pattern[0] != '\0') cmocka_set_test_filter(pattern);
}
