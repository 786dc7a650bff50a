/* test_text.c - texts from outside as they may stand in a message. */
#include "io/text.h"

#include <string.h>

#include "support/cmocka_all.h"

static void a_long_text_is_cut_between_characters(void **state) {
  (void)state;
  char text[200], out[HARK_SHOWN_BYTES];
  assert_string_equal(hark_text_shown("a\tb", out), "a?b");
  for (int shift = 0; shift < 2; shift++) {
    memset(text, 'x', sizeof text);
    for (size_t i = (size_t)shift; i + 2 < sizeof text; i += 2) memcpy(text + i, "\xc3\xa9", 2);
    text[sizeof text - 1] = '\0';
    const size_t length = strlen(hark_text_shown(text, out));
    assert_true(length >= HARK_SHOWN_BYTES - 3 && length < HARK_SHOWN_BYTES);
    assert_int_equal((length - 3 - (size_t)shift) % 2, 0);
    assert_string_equal(out + length - 3, "...");
  }
}

/* Wherever two texts differ, what is shown of them differs and is short; and it begins at their beginning where that is enough. */
static void the_difference_of_two_texts_is_seen(void **state) {
  (void)state;
  char a[400], b[400], shown_a[HARK_SHOWN_BYTES], shown_b[HARK_SHOWN_BYTES];
  for (size_t at = 0; at < sizeof a - 1; at++) {
    for (size_t i = 0; i < sizeof a - 1; i++) a[i] = b[i] = (char)('a' + i % 26);
    a[sizeof a - 1] = b[sizeof b - 1] = '\0';
    b[at] = '!';
    hark_text_shown_both(a, b, shown_a, shown_b);
    assert_string_not_equal(shown_a, shown_b);
    assert_non_null(strchr(shown_b, '!'));
    assert_int_equal(strncmp(shown_a, "...", 3) == 0, shown_a[0] != 'a');
    if (at < HARK_SHOWN_BYTES / 2) assert_int_equal(shown_a[0] == '!' ? 'a' : shown_a[0], 'a');
  }
  hark_text_shown_both("", "decay", shown_a, shown_b);
  assert_string_equal(shown_a, "");
  assert_string_equal(shown_b, "decay");
  /* one is the beginning of the other; characters of two bytes in front of the place */
  for (size_t i = 0; i + 2 < sizeof a; i += 2) memcpy(a + i, "\xc3\xa9", 2);
  a[300] = '\0';
  memcpy(b, a, 300);
  memcpy(b + 300, "z", 2);
  hark_text_shown_both(a, b, shown_a, shown_b);
  assert_string_not_equal(shown_a, shown_b);
  assert_int_equal((unsigned char)shown_a[3], 0xc3);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_long_text_is_cut_between_characters),
      cmocka_unit_test(the_difference_of_two_texts_is_seen),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
