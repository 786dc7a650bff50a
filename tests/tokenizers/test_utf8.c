/* test_utf8.c - the UTF-8 decoder against a second one written from the definition: shortest form, no surrogates, at most U+10FFFF. */
#include <hark/random.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "support/cmocka_all.h"
#include "tokenizers/utf8.h"

static bool is_scalar(uint32_t code) { return code < 0xD800 || (code > 0xDFFF && code < HARK_CODE_POINTS); }

/* Length of the character that text begins with, 0 when it begins with none: encodes every candidate length's value back and compares. */
static size_t define_length(const unsigned char *text, size_t bytes, uint32_t *code) {
  static const unsigned char lead_mask[5] = {0, 0x7F, 0x1F, 0x0F, 0x07};
  for (size_t length = 1; length <= 4 && length <= bytes; length++) {
    uint32_t value = text[0] & lead_mask[length];
    for (size_t i = 1; i < length; i++) value = value << 6 | (text[i] & 0x3F);
    char back[HARK_UTF8_MAX_BYTES];
    if (!is_scalar(value) || hark_utf8_encode(value, back) != length || memcmp(back, text, length) != 0) continue;
    *code = value;
    return length;
  }
  return 0;
}

static void check(const unsigned char *text, size_t bytes) {
  uint32_t code = 0, expected_code = 0;
  size_t length = 0;
  const size_t expected = define_length(text, bytes, &expected_code);
  const hark_utf8_result result = hark_utf8_decode(text, bytes, &code, &length);
  if ((result == HARK_UTF8_OK) != (expected > 0) || (expected > 0 && (length != expected || code != expected_code)))
    fail_msg("bytes %02x %02x %02x %02x (%zu): result %d, length %zu, U+%04X, expected length %zu, U+%04X", text[0],
             bytes > 1 ? text[1] : 0, bytes > 2 ? text[2] : 0, bytes > 3 ? text[3] : 0, bytes, (int)result, length, code, expected,
             expected_code);
}

static void every_code_point_survives(void **state) {
  (void)state;
  int seen = 0;
  for (uint32_t code = 0; code < HARK_CODE_POINTS; code++) {
    if (!is_scalar(code)) continue;
    char text[HARK_UTF8_MAX_BYTES];
    uint32_t back = 0;
    size_t length = 0;
    const size_t bytes = hark_utf8_encode(code, text);
    assert_int_equal(hark_utf8_decode((unsigned char *)text, bytes, &back, &length), HARK_UTF8_OK);
    assert_int_equal(back, code);
    assert_int_equal(length, bytes);
    for (size_t part = 1; part < bytes; part++)
      assert_int_equal(hark_utf8_decode((unsigned char *)text, part, &back, &length), HARK_UTF8_INCOMPLETE);
    seen++;
  }
  assert_int_equal(seen, 0x110000 - 0x800);
}

static void all_short_sequences_agree(void **state) {
  (void)state;
  for (uint32_t value = 0; value < 1u << 24; value++) {
    const unsigned char text[3] = {(unsigned char)(value >> 16), (unsigned char)(value >> 8), (unsigned char)value};
    check(text, 3);
    if ((value & 0xFF) == 0) check(text, 2);
    if ((value & 0xFFFF) == 0) check(text, 1);
  }
}

/* Four bytes: every lead and second byte, third and fourth around the borders of the continuation range. */
static void long_sequences_agree(void **state) {
  (void)state;
  static const unsigned char edge[] = {0x00, 0x41, 0x7F, 0x80, 0x81, 0x8F, 0x90, 0x9F, 0xA0, 0xBE, 0xBF, 0xC0, 0xF0, 0xFF};
  for (int lead = 0xE0; lead < 256; lead++)
    for (int second = 0; second < 256; second++)
      for (size_t i = 0; i < sizeof edge; i++)
        for (size_t j = 0; j < sizeof edge; j++) {
          const unsigned char text[4] = {(unsigned char)lead, (unsigned char)second, edge[i], edge[j]};
          check(text, 4);
        }
}

static void faults_are_named(void **state) {
  (void)state;
  static const struct {
    const char *text;
    hark_utf8_result result;
  } cases[] = {
      {"\x80", HARK_UTF8_UNEXPECTED_CONTINUATION},
      {"\xBF", HARK_UTF8_UNEXPECTED_CONTINUATION},
      {"\xC0\xAF", HARK_UTF8_OVERLONG},
      {"\xC1\xBF", HARK_UTF8_OVERLONG},
      {"\xE0\x80\xAF", HARK_UTF8_OVERLONG},
      {"\xE0\x80", HARK_UTF8_OVERLONG},
      {"\xF0\x80\x80\xAF", HARK_UTF8_OVERLONG},
      {"\xED\xA0\x80", HARK_UTF8_SURROGATE},
      {"\xED\xBF\xBF", HARK_UTF8_SURROGATE},
      {"\xED\xA0", HARK_UTF8_SURROGATE},
      {"\xF4\x90\x80\x80", HARK_UTF8_TOO_LARGE},
      {"\xF5\x80\x80\x80", HARK_UTF8_NEVER_A_BYTE},
      {"\xFF", HARK_UTF8_NEVER_A_BYTE},
      {"\xC2\x41", HARK_UTF8_MISSING_CONTINUATION},
      {"\xE2\x82\x41", HARK_UTF8_MISSING_CONTINUATION},
      {"\xE2\x82", HARK_UTF8_INCOMPLETE},
      {"\xC2", HARK_UTF8_INCOMPLETE},
      {"\xF0\x9D\x84", HARK_UTF8_INCOMPLETE},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    uint32_t code;
    size_t length;
    const hark_utf8_result result = hark_utf8_decode((const unsigned char *)cases[i].text, strlen(cases[i].text), &code, &length);
    if (result != cases[i].result)
      fail_msg("case %zu: %s, expected %s", i, hark_utf8_result_text(result), hark_utf8_result_text(cases[i].result));
  }
}

/* Everything that a stream writes for `bytes` bytes of text; returns its length. */
static size_t stream(const unsigned char *text, size_t bytes, char *out) {
  hark_utf8_stream held = {0};
  size_t written = 0;
  for (size_t i = 0; i < bytes; i++) {
    const size_t more = hark_utf8_stream_put(&held, text[i], out + written);
    assert_true(more <= HARK_UTF8_STREAM_BYTES);
    written += more;
  }
  return written + hark_utf8_stream_end(&held, out + written);
}

/* Tables 3-8 to 3-11 of the Unicode standard, version 15: U+FFFD for each maximal part; here written as '?'. */
static void streams_replace_maximal_parts(void **state) {
  (void)state;
  static const struct {
    const char *text, *expected;
  } cases[] = {
      {"\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64", "a???b?c??d"},
      {"\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41", "????????A"},
      {"\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41", "????????A"},
      {"\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42", "?????A??B"},
      {"\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41", "????A"},
      {"\xE2\x82", "?"},
      {"z\xC3\xA9\xE2\x82\xAC", "z\xC3\xA9\xE2\x82\xAC"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    char out[256], shown[256];
    const size_t bytes = stream((const unsigned char *)cases[i].text, strlen(cases[i].text), out);
    size_t length = 0;
    for (size_t at = 0; at < bytes; at++) {
      if (bytes - at >= 3 && memcmp(out + at, "\xEF\xBF\xBD", 3) == 0) {
        shown[length++] = '?';
        at += 2;
      } else {
        shown[length++] = out[at];
      }
    }
    shown[length] = '\0';
    assert_string_equal(shown, cases[i].expected);
  }
}

/* Random bytes, of which most are beginnings and continuations: a stream's output is valid after every byte, and valid text is
 * unchanged. */
static void streams_are_always_valid(void **state) {
  (void)state;
  static const unsigned char common[16] = {0x41, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC2, 0xC3, 0xE0, 0xE2, 0xED, 0xF0, 0xF1, 0xF4, 0xFF};
  const hark_random_stream random = {.seed = 5, .layer_purpose = hark_random_layer_purpose(0, HARK_RANDOM_TEST)};
  uint64_t word = 0;
  for (int round = 0; round < 20000; round++) {
    unsigned char text[24];
    char out[24 * HARK_UTF8_STREAM_BYTES];
    const size_t bytes = 1 + hark_random_word(&random, word++) % sizeof text;
    for (size_t i = 0; i < bytes; i++) {
      const uint32_t draw = hark_random_word(&random, word++);
      text[i] = draw & 0x100 ? (unsigned char)draw : common[draw % 16];
    }
    const size_t written = stream(text, bytes, out);
    bool valid = true;
    uint32_t code;
    size_t length = 0;
    for (size_t at = 0; at < bytes && valid; at += length) valid = hark_utf8_decode(text + at, bytes - at, &code, &length) == HARK_UTF8_OK;
    if (valid && (written != bytes || memcmp(out, text, bytes) != 0)) fail_msg("round %d: valid text was changed", round);
    for (size_t at = 0; at < written; at += length)
      if (hark_utf8_decode((unsigned char *)out + at, written - at, &code, &length) != HARK_UTF8_OK)
        fail_msg("round %d: output is not UTF-8", round);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_code_point_survives),     cmocka_unit_test(all_short_sequences_agree),
      cmocka_unit_test(long_sequences_agree),          cmocka_unit_test(faults_are_named),
      cmocka_unit_test(streams_replace_maximal_parts), cmocka_unit_test(streams_are_always_valid),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
