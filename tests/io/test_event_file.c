/* test_event_file.c - event files of TensorBoard (io/event_file.h): published checks of CRC-32C, and files whose records a reader of this
 * test divides into the fields of their messages. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "io/event_file.h"
#include "support/cmocka_all.h"
#include "support/event_reader.h"
#include "support/setups.h"
#include "support/text_files.h"

static hark_context *context;
static char folder[TEST_PATH_BYTES];

static int begin(void **state) {
  (void)state;
  test_folder_make(folder);
  context = test_reference_open();
  return 0;
}

static int end(void **state) {
  (void)state;
  test_folder_remove(folder);
  test_setup_close(context);
  return 0;
}

/* RFC 3720, appendix B.4, and the usual check of CRCs. */
static void checksums_are_the_published_ones(void **state) {
  (void)state;
  unsigned char bytes[32];
  memset(bytes, 0, sizeof bytes);
  assert_int_equal(hark_event_crc(bytes, 32), 0x8a9136aau);
  memset(bytes, 0xff, sizeof bytes);
  assert_int_equal(hark_event_crc(bytes, 32), 0x62a8ab43u);
  for (int i = 0; i < 32; i++) bytes[i] = (unsigned char)i;
  assert_int_equal(hark_event_crc(bytes, 32), 0x46dd794eu);
  for (int i = 0; i < 32; i++) bytes[i] = (unsigned char)(31 - i);
  assert_int_equal(hark_event_crc(bytes, 32), 0x113fdb5cu);
  assert_int_equal(hark_event_crc("123456789", 9), 0xe3069283u);
  assert_int_equal(hark_event_crc("", 0), 0);
  /* of the length 24, in front of the first event of most files that TensorFlow writes: 18 00 .. 00 a3 7f 4b 22 */
  assert_int_equal(hark_event_masked_crc("\x18\0\0\0\0\0\0", 8), 0x224b7fa3u);
}

static void numbers_come_back(void **state) {
  (void)state;
  hark_event_file file = {0};
  assert_fine(context, hark_event_file_create(context, &file, folder));
  hark_event_begin(&file, 1.5e9 + 0.25, 0);
  hark_event_scalar(&file, "train/loss", 3.25);
  hark_event_scalar(&file,
                    "a name of more than a hundred and twenty-seven bytes, whose length takes two bytes of a message, so that the "
                    "reader has to put them together",
                    -1e-3);
  assert_fine(context, hark_event_end(context, &file));
  hark_event_begin(&file, 1.5e9 + 1, 5);
  assert_fine(context, hark_event_end(context, &file)); /* no numbers: no event */
  hark_event_begin(&file, 1.5e9 + 2, INT64_C(1) << 40);
  hark_event_scalar(&file, "val/loss", INFINITY);
  assert_fine(context, hark_event_end(context, &file));
  assert_fine(context, hark_event_file_close(context, &file));
  test_events events;
  test_events_read(file.path, &events);
  assert_int_equal(events.records, 4);
  assert_string_equal(events.version, "brain.Event:2");
  assert_int_equal(events.starts, 1);
  assert_int_equal(events.count, 3);
  assert_string_equal(events.scalars[0].tag, "train/loss");
  assert_true(events.scalars[0].value == 3.25f && events.scalars[0].step == 0 && events.scalars[0].seconds == 1.5e9 + 0.25);
  assert_int_equal(strlen(events.scalars[1].tag), 140);
  assert_true(events.scalars[1].value == -1e-3f && events.scalars[1].step == 0);
  assert_true(isinf(events.scalars[2].value) && events.scalars[2].step == INT64_C(1) << 40);
  test_events_free(&events);
}

/* Names sort in the order in which the files were made, also when the clock goes back. */
static void a_new_file_is_after_the_others(void **state) {
  (void)state;
  char first[HARK_PATH_BYTES];
  hark_event_file file = {0};
  (void)test_file_write_text(folder, "keep.txt", "");
  (void)test_file_write_text(folder, HARK_EVENT_PREFIX "9000000000.host", "");
  for (int i = 0; i < 2; i++) {
    memcpy(first, file.path, sizeof first);
    assert_fine(context, hark_event_file_create(context, &file, folder));
    assert_fine(context, hark_event_file_close(context, &file));
    if (i == 0) assert_non_null(strstr(file.path, HARK_EVENT_PREFIX "9000000001."));
  }
  assert_true(strcmp(first, file.path) < 0);
  assert_fine(context, hark_event_files_remove(context, folder, file.path));
  assert_int_equal(test_folder_count(folder, "."), 2 + 2);
  assert_fine(context, hark_event_files_remove(context, folder, NULL));
  assert_int_equal(test_folder_count(folder, "."), 2 + 1);
  assert_int_equal(hark_event_file_create(context, &file, test_path(folder, "missing")), HARK_NOT_FOUND);
  assert_fine(context, hark_event_file_close(context, &file));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(checksums_are_the_published_ones),
      cmocka_unit_test_setup_teardown(numbers_come_back, begin, end),
      cmocka_unit_test_setup_teardown(a_new_file_is_after_the_others, begin, end),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
