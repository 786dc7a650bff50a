/* test_status.c - names, numbers and texts of statuses, and the version. */
#include <hark/hark.h>

#include <stdio.h>
#include <string.h>

#include "support/cmocka_all.h"

static const hark_status all[] = {
#define STATUS(name, number, text) name,
    HARK_STATUS_LIST(STATUS)
#undef STATUS
};

#define COUNT ((int)(sizeof all / sizeof all[0]))

/* The numbers are part of the interface: programs store and compare them. */
static void numbers_are_those_that_were_published(void **state) {
  (void)state;
  assert_int_equal(HARK_OK, 0);
  assert_int_equal(HARK_INVALID_ARGUMENT, 1);
  assert_int_equal(HARK_SHAPE_MISMATCH, 2);
  assert_int_equal(HARK_UNSUPPORTED, 3);
  assert_int_equal(HARK_OUT_OF_MEMORY, 4);
  assert_int_equal(HARK_TOO_LARGE, 5);
  assert_int_equal(HARK_NOT_FOUND, 6);
  assert_int_equal(HARK_BAD_FILE, 7);
  assert_int_equal(HARK_IO_ERROR, 8);
  assert_int_equal(HARK_NOT_FINITE, 9);
  assert_int_equal(HARK_BUSY, 10);
  assert_int_equal(HARK_NO_BACKEND, 11);
  assert_int_equal(HARK_BAD_CONFIGURATION, 12);
  assert_int_equal(HARK_CANCELLED, 13);
  assert_int_equal(HARK_INTERNAL_ERROR, 14);
}

static void names_and_texts_are_there_and_differ(void **state) {
  (void)state;
  assert_string_equal(hark_status_name(HARK_OUT_OF_MEMORY), "HARK_OUT_OF_MEMORY");
  assert_string_equal(hark_status_text(HARK_OUT_OF_MEMORY), "out of memory");
  for (int i = 0; i < COUNT; i++) {
    assert_true(strlen(hark_status_text(all[i])) > 0);
    for (int j = 0; j < i; j++) {
      assert_int_not_equal(all[i], all[j]);
      assert_string_not_equal(hark_status_name(all[i]), hark_status_name(all[j]));
      assert_string_not_equal(hark_status_text(all[i]), hark_status_text(all[j]));
    }
  }
}

static void a_number_that_is_no_status_has_a_text_too(void **state) {
  (void)state;
  assert_non_null(hark_status_name((hark_status)1000));
  assert_non_null(hark_status_text((hark_status)-1));
}

static void version_is_that_of_the_header(void **state) {
  (void)state;
  char text[32];
  (void)snprintf(text, sizeof text, "%d.%d.%d", HARK_VERSION_MAJOR, HARK_VERSION_MINOR, HARK_VERSION_PATCH);
  assert_string_equal(hark_version(), text);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(numbers_are_those_that_were_published),
      cmocka_unit_test(names_and_texts_are_there_and_differ),
      cmocka_unit_test(a_number_that_is_no_status_has_a_text_too),
      cmocka_unit_test(version_is_that_of_the_header),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
