/* test_tokenizer.c - vocabularies: learned, stored, loaded strictly; text to tokens and back, whole and in parts; faults with their
 * places. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/core.h"
#include "support/cmocka_all.h"
#include "support/text_files.h"
#include "tokenizers/tokenizer.h"
#include "tokenizers/utf8.h"

/* Characters of one to four bytes. */
static const char sample[] = "h\xC3\xA9llo, w\xC3\xB6rld\n\xE6\x97\xA5\xE6\x9C\xAC\xF0\x9D\x84\x9E!\n";
enum { SAMPLE_CHARACTERS = 18, SAMPLE_DISTINCT = 15 };

static hark_tokenizer *learn(hark_context *context, const char *kind, const void *text, size_t bytes) {
  hark_tokenizer *tokenizer;
  size_t consumed;
  hark_text_fault fault;
  assert_fine(context, hark_tokenizer_create(context, kind, &tokenizer));
  assert_fine(context, hark_tokenizer_learn(context, tokenizer, text, bytes, true, &consumed, &fault));
  assert_int_equal(consumed, bytes);
  assert_fine(context, hark_tokenizer_finish(context, tokenizer));
  return tokenizer;
}

static void kinds_are_a_table(void **state) {
  (void)state;
  test_memory memory;
  hark_context *context = test_memory_context(&memory);
  hark_tokenizer *tokenizer;
  assert_string_equal(hark_tokenizer_kind_name(0), "characters");
  assert_string_equal(hark_tokenizer_kind_name(1), "bytes");
  assert_string_equal(hark_tokenizer_kind_name(2), "subwords");
  assert_string_equal(hark_tokenizer_kind_name(3), "byte_bpe");
  assert_string_equal(hark_tokenizer_kind_name(4), "imported");
  assert_null(hark_tokenizer_kind_name(5));
  assert_true(hark_tokenizer_kind_is_made(3));
  assert_false(hark_tokenizer_kind_is_made(4));
  assert_null(hark_tokenizer_kind_name(-1));
  assert_true(strlen(hark_tokenizer_kind_summary(1)) > 0);
  assert_failure(context, hark_tokenizer_create(context, "words", &tokenizer), HARK_BAD_CONFIGURATION,
                 "characters, bytes, subwords, byte_bpe");
  assert_null(tokenizer);
  test_memory_context_end(context, &memory);
}

static void characters_are_sorted_behind_the_reserved(void **state) {
  (void)state;
  test_memory memory;
  hark_context *context = test_memory_context(&memory);
  hark_tokenizer *tokenizer = learn(context, "characters", sample, sizeof sample - 1);
  assert_int_equal(hark_tokenizer_size(tokenizer), HARK_TOKEN_RESERVED + SAMPLE_DISTINCT);
  uint32_t previous = 0;
  for (int32_t token = HARK_TOKEN_RESERVED; token < hark_tokenizer_size(tokenizer); token++) {
    size_t bytes, length;
    uint32_t code = 0;
    const char *text = hark_tokenizer_text(tokenizer, token, &bytes);
    assert_int_equal(hark_utf8_decode((const unsigned char *)text, bytes, &code, &length), HARK_UTF8_OK);
    assert_int_equal(length, bytes);
    assert_true(code > previous);
    previous = code;
  }
  assert_int_equal(previous, 0x1D11E);
  for (int32_t token = -1; token <= HARK_TOKEN_RESERVED; token++) {
    size_t bytes;
    hark_tokenizer_text(tokenizer, token, &bytes);
    assert_int_equal(bytes, token == HARK_TOKEN_UNKNOWN ? 3 : token == HARK_TOKEN_RESERVED ? 1 : 0);
  }
  hark_tokenizer_destroy(context, &tokenizer);
  assert_null(tokenizer);
  hark_tokenizer_destroy(context, &tokenizer);
  test_memory_context_end(context, &memory);
}

/* The text of tokens; returns its length. */
static size_t decode(const hark_tokenizer *tokenizer, const int32_t *tokens, size_t count, char *out) {
  size_t length = 0;
  for (size_t i = 0; i < count; i++) {
    size_t bytes;
    const char *text = hark_tokenizer_text(tokenizer, tokens[i], &bytes);
    memcpy(out + length, text, bytes);
    length += bytes;
  }
  return length;
}

static void text_survives(void **state) {
  (void)state;
  test_memory memory;
  hark_context *context = test_memory_context(&memory);
  for (int kind = 0; kind < 2; kind++) {
    hark_tokenizer *tokenizer = learn(context, hark_tokenizer_kind_name(kind), sample, sizeof sample - 1);
    int32_t tokens[sizeof sample];
    char back[sizeof sample];
    size_t count;
    assert_fine(context,
                hark_tokenizer_encode(context, tokenizer, HARK_UNKNOWN_IS_ERROR, "sample", sample, sizeof sample - 1, tokens, &count));
    assert_int_equal(count, kind == 0 ? SAMPLE_CHARACTERS : sizeof sample - 1);
    assert_int_equal(decode(tokenizer, tokens, count, back), sizeof sample - 1);
    assert_memory_equal(back, sample, sizeof sample - 1);
    hark_tokenizer_destroy(context, &tokenizer);
  }
  test_memory_context_end(context, &memory);
}

/* Learning and encoding in parts of every size gives what the whole gives. */
static void parts_do_not_matter(void **state) {
  (void)state;
  test_memory memory;
  hark_context *context = test_memory_context(&memory);
  hark_tokenizer *whole = learn(context, "characters", sample, sizeof sample - 1);
  int32_t expected[sizeof sample];
  size_t expected_count;
  assert_fine(context,
              hark_tokenizer_encode(context, whole, HARK_UNKNOWN_IS_ERROR, "sample", sample, sizeof sample - 1, expected, &expected_count));
  for (size_t part = HARK_UTF8_MAX_BYTES; part < sizeof sample; part++) {
    hark_tokenizer *tokenizer;
    hark_text_fault fault;
    size_t consumed;
    assert_fine(context, hark_tokenizer_create(context, "characters", &tokenizer));
    for (size_t at = 0; at < sizeof sample - 1; at += consumed) {
      const size_t left = sizeof sample - 1 - at, bytes = left < part ? left : part;
      assert_fine(context, hark_tokenizer_learn(context, tokenizer, sample + at, bytes, bytes == left, &consumed, &fault));
      assert_true(consumed > 0);
    }
    assert_fine(context, hark_tokenizer_finish(context, tokenizer));
    assert_true(hark_tokenizer_checksum(tokenizer) == hark_tokenizer_checksum(whole));
    int32_t tokens[sizeof sample];
    size_t count = 0, more;
    for (size_t at = 0; at < sizeof sample - 1; at += consumed) {
      const size_t left = sizeof sample - 1 - at, bytes = left < part ? left : part;
      assert_fine(context, hark_tokenizer_encode_part(context, tokenizer, HARK_UNKNOWN_IS_ERROR, sample + at, bytes, bytes == left,
                                                      tokens + count, &more, &consumed, &fault));
      count += more;
    }
    assert_int_equal(count, expected_count);
    assert_memory_equal(tokens, expected, count * sizeof *tokens);
    hark_tokenizer_destroy(context, &tokenizer);
  }
  hark_tokenizer_destroy(context, &whole);
  test_memory_context_end(context, &memory);
}

static void faults_have_a_place(void **state) {
  (void)state;
  static const struct {
    const char *text, *message;
  } cases[] = {
      {"h\xC3\xA9llo\nw\xC3\xB6ZZ", "prompt:2:3: U+005A is not in the vocabulary (byte offset 10)"},
      {"\xF0\x9F\x98\x80", "prompt:1:1: U+1F600 is not in the vocabulary (byte offset 0)"},
      {"hollo\n\n\xFF", "prompt:3:1: invalid UTF-8: byte that never occurs (byte offset 7)"},
      {"h\xC3\xA9\xC3", "prompt:1:3: invalid UTF-8: text ends inside a character (byte offset 3)"},
      {"lo\xE0\x80\x80", "prompt:1:3: invalid UTF-8: overlong encoding (byte offset 2)"},
      {"lo\xED\xA0\x80", "prompt:1:3: invalid UTF-8: surrogate (byte offset 2)"},
  };
  test_memory memory;
  hark_context *context = test_memory_context(&memory);
  hark_tokenizer *tokenizer = learn(context, "characters", sample, sizeof sample - 1);
  int32_t tokens[64];
  size_t count;
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
    assert_failure(
        context,
        hark_tokenizer_encode(context, tokenizer, HARK_UNKNOWN_IS_ERROR, "prompt", cases[i].text, strlen(cases[i].text), tokens, &count),
        HARK_BAD_FILE, cases[i].message);
  assert_fine(context, hark_tokenizer_encode(context, tokenizer, HARK_UNKNOWN_IS_MAPPED, "prompt", "hZl", 3, tokens, &count));
  assert_int_equal(count, 3);
  assert_int_equal(tokens[1], HARK_TOKEN_UNKNOWN);
  assert_fine(context, hark_tokenizer_encode(context, tokenizer, HARK_UNKNOWN_IS_ERROR, "prompt", "", 0, tokens, &count));
  assert_int_equal(count, 0);
  /* Mapping is for characters, not for what is none. */
  assert_failure(context, hark_tokenizer_encode(context, tokenizer, HARK_UNKNOWN_IS_MAPPED, "prompt", "h\xFF", 2, tokens, &count),
                 HARK_BAD_FILE, "prompt:1:2: invalid UTF-8");
  hark_tokenizer_destroy(context, &tokenizer);
  test_memory_context_end(context, &memory);
}

static void nothing_is_no_vocabulary(void **state) {
  (void)state;
  test_memory memory;
  hark_context *context = test_memory_context(&memory);
  hark_tokenizer *tokenizer;
  assert_fine(context, hark_tokenizer_create(context, "characters", &tokenizer));
  assert_failure(context, hark_tokenizer_finish(context, tokenizer), HARK_BAD_FILE, "needs text");
  hark_tokenizer_destroy(context, &tokenizer);
  assert_fine(context, hark_tokenizer_create(context, "bytes", &tokenizer));
  assert_false(hark_tokenizer_learns(tokenizer));
  assert_fine(context, hark_tokenizer_finish(context, tokenizer));
  assert_int_equal(hark_tokenizer_size(tokenizer), HARK_TOKEN_RESERVED + 256);
  hark_tokenizer_destroy(context, &tokenizer);
  test_memory_context_end(context, &memory);
}

static void bytes_are_never_refused(void **state) {
  (void)state;
  test_memory memory;
  hark_context *context = test_memory_context(&memory);
  hark_tokenizer *tokenizer = learn(context, "bytes", "", 0);
  unsigned char text[256];
  int32_t tokens[256];
  char back[256];
  size_t count;
  for (int i = 0; i < 256; i++) text[i] = (unsigned char)(255 - i);
  assert_fine(context, hark_tokenizer_encode(context, tokenizer, HARK_UNKNOWN_IS_ERROR, "bytes", text, 256, tokens, &count));
  assert_int_equal(count, 256);
  assert_int_equal(tokens[0], HARK_TOKEN_RESERVED + 255);
  assert_int_equal(decode(tokenizer, tokens, count, back), 256);
  assert_memory_equal(back, text, 256);
  hark_tokenizer_destroy(context, &tokenizer);
  test_memory_context_end(context, &memory);
}

static void tokens_have_names(void **state) {
  (void)state;
  static const char text[] = "\n\t\a ~\xC3\xA9\xC2\x85";
  static const char *const expected[] = {"<padding>", "<unknown>", "<begin>", "<class>", "<mask>",   "U+0007", "\\t",
                                         "\\n",       " ",         "~",       "U+0085",  "\xC3\xA9", "<12>"};
  test_memory memory;
  hark_context *context = test_memory_context(&memory);
  hark_tokenizer *characters = learn(context, "characters", text, sizeof text - 1), *bytes = learn(context, "bytes", "", 0);
  char name[24];
  for (int32_t token = 0; token < (int32_t)(sizeof expected / sizeof expected[0]); token++)
    assert_string_equal(hark_tokenizer_name(characters, token, name, sizeof name), expected[token]);
  assert_string_equal(hark_tokenizer_name(bytes, HARK_TOKEN_RESERVED + 0xE9, name, sizeof name), "0xe9");
  assert_string_equal(hark_tokenizer_name(bytes, HARK_TOKEN_RESERVED + 'a', name, sizeof name), "a");
  hark_tokenizer_destroy(context, &characters);
  hark_tokenizer_destroy(context, &bytes);
  test_memory_context_end(context, &memory);
}

/* Characters that JSON must escape or that are odd: NUL, quotes, backslash, DEL, line separator, the last code points of two planes. */
static const char odd[] = "\0\"\\/\x7F\n\xE2\x80\xA8\xEF\xBF\xBF\xF4\x8F\xBF\xBF\xEF\xBB\xBF";

static void vocabularies_survive(void **state) {
  (void)state;
  test_memory memory;
  hark_context *context = test_memory_context(&memory);
  char folder[TEST_PATH_BYTES];
  test_folder_make(folder);
  const char *const kinds[] = {"characters", "bytes"};
  for (int kind = 0; kind < 2; kind++) {
    hark_tokenizer *tokenizer = learn(context, kinds[kind], odd, sizeof odd - 1), *loaded;
    const char *path = test_path(folder, "vocabulary.json");
    assert_fine(context, hark_tokenizer_save(context, tokenizer, path));
    assert_fine(context, hark_tokenizer_load(context, path, &loaded));
    assert_string_equal(hark_tokenizer_kind_of(loaded), kinds[kind]);
    assert_int_equal(hark_tokenizer_size(loaded), hark_tokenizer_size(tokenizer));
    assert_true(hark_tokenizer_checksum(loaded) == hark_tokenizer_checksum(tokenizer));
    int32_t tokens[2][sizeof odd];
    size_t count[2];
    for (int i = 0; i < 2; i++)
      assert_fine(context, hark_tokenizer_encode(context, i == 0 ? tokenizer : loaded, HARK_UNKNOWN_IS_ERROR, "odd", odd, sizeof odd - 1,
                                                 tokens[i], &count[i]));
    assert_int_equal(count[0], count[1]);
    assert_memory_equal(tokens[0], tokens[1], count[0] * sizeof(int32_t));
    hark_tokenizer_destroy(context, &tokenizer);
    hark_tokenizer_destroy(context, &loaded);
  }
  hark_tokenizer *missing;
  assert_failure(context, hark_tokenizer_load(context, test_path(folder, "none.json"), &missing), HARK_NOT_FOUND, "none.json");
  assert_null(missing);
  test_folder_remove(folder);
  test_memory_context_end(context, &memory);
}

#define RESERVED "\"reserved\":[\"<padding>\",\"<unknown>\",\"<begin>\",\"<class>\",\"<mask>\"]"

static void vocabularies_are_read_strictly(void **state) {
  (void)state;
  /* %s is the right checksum of "a", "b", so that each text has one fault only. */
  static const struct {
    const char *format, *message;
  } cases[] = {
      {"{\"format_version\":2,\"kind\":\"characters\"," RESERVED ",\"size\":7,\"checksum\":\"%s\",\"symbols\":[\"a\",\"b\"]}",
       "format_version is 2"},
      {"{\"kind\":\"characters\"," RESERVED ",\"size\":7,\"checksum\":\"%s\",\"symbols\":[\"a\",\"b\"]}", "\"format_version\" is missing"},
      {"{\"format_version\":1," RESERVED ",\"size\":7,\"checksum\":\"%s\",\"symbols\":[\"a\",\"b\"]}", "\"kind\" is missing"},
      {"{\"format_version\":1,\"kind\":\"words\"," RESERVED ",\"size\":7,\"checksum\":\"%s\",\"symbols\":[\"a\",\"b\"]}", "\"words\""},
      {"{\"format_version\":1,\"kind\":\"characters\",\"reserved\":[\"<padding>\"],\"size\":7,\"checksum\":\"%s\",\"symbols\":[\"a\",\"b\"]"
       "}",
       "\"reserved\""},
      {"{\"format_version\":1,\"kind\":\"characters\"," RESERVED ",\"checksum\":\"%s\",\"symbols\":[\"a\",\"b\"]}", "\"size\" is missing"},
      {"{\"format_version\":1,\"kind\":\"characters\"," RESERVED ",\"size\":8,\"checksum\":\"%s\",\"symbols\":[\"a\",\"b\"]}",
       "\"size\" is 8"},
      {"{\"format_version\":1,\"kind\":\"characters\"," RESERVED ",\"size\":7,\"symbols\":[\"a\",\"b\"]}", "\"checksum\" is missing"},
      {"{\"format_version\":1,\"kind\":\"characters\"," RESERVED ",\"size\":7,\"checksum\":\"0%.15s\",\"symbols\":[\"a\",\"b\"]}",
       "\"checksum\" is not that"},
      {"{\"format_version\":1,\"kind\":\"characters\"," RESERVED ",\"size\":7,\"checksum\":\"%s\",\"symbols\":[\"b\",\"a\"]}",
       "not greater"},
      {"{\"format_version\":1,\"kind\":\"characters\"," RESERVED ",\"size\":7,\"checksum\":\"%s\",\"symbols\":[\"a\",\"a\"]}",
       "not greater"},
      {"{\"format_version\":1,\"kind\":\"characters\"," RESERVED ",\"size\":7,\"checksum\":\"%s\",\"symbols\":[\"a\",\"bc\"]}",
       "one character"},
      {"{\"format_version\":1,\"kind\":\"characters\"," RESERVED ",\"size\":7,\"checksum\":\"%s\",\"symbols\":[\"a\",\"\"]}",
       "one character"},
      {"{\"format_version\":1,\"kind\":\"characters\"," RESERVED ",\"size\":7,\"checksum\":\"%s\",\"symbols\":[\"a\",98]}",
       "one character"},
      {"{\"format_version\":1,\"kind\":\"characters\"," RESERVED ",\"size\":5,\"checksum\":\"%s\",\"symbols\":[]}", "empty"},
      {"{\"format_version\":1,\"kind\":\"characters\"," RESERVED ",\"size\":7,\"checksum\":\"%s\"}", "\"symbols\" is missing"},
      {"{\"format_version\":1,\"kind\":\"characters\"," RESERVED ",\"size\":7,\"checksum\":\"%s\",\"symbols\":[\"a\",\"b\"],\"x\":0}",
       "do not belong"},
      {"{\"format_version\":1,\"kind\":\"characters\",\"kind\":\"characters\"," RESERVED
       ",\"size\":7,\"checksum\":\"%s\",\"symbols\":[\"a\",\"b\"]}",
       "duplicate"},
      {"{\"format_version\":1,\"kind\":\"characters\\u0000\"," RESERVED ",\"size\":7,\"checksum\":\"%s\",\"symbols\":[\"a\",\"b\"]}",
       "\"kind\" is missing"},
      {"{\"format_version\":1,\"kind\":\"characters\"," RESERVED ",\"size\":7,\"checksum\":\"%s\\u0000\",\"symbols\":[\"a\",\"b\"]}",
       "\"checksum\" is missing"},
      {"{\"format_version\":1,\"kind\":\"characters\"," RESERVED ",\"size\":7,\"checksum\":\"%s\",\"symbols\":[\"a\",[\"b\"]]}",
       "one character"},
      {"[\"%s\"]", "not a JSON object"},
      {"{\"format_version\":1,\"kind\":\"characters\"," RESERVED ",\"size\":7,\"checksum\":\"%s\",\"symbols\":[\"a\",\"b\"]}x",
       "end of file"},
  };
  test_memory memory;
  hark_context *context = test_memory_context(&memory);
  hark_tokenizer *tokenizer = learn(context, "characters", "ab", 2), *parsed;
  char *whole, checksum[17], text[512];
  size_t bytes;
  snprintf(checksum, sizeof checksum, "%016llx", (unsigned long long)hark_tokenizer_checksum(tokenizer));
  assert_fine(context, hark_tokenizer_print(context, tokenizer, &whole, &bytes));
  assert_fine(context, hark_tokenizer_parse(context, whole, bytes, &parsed));
  hark_tokenizer_destroy(context, &parsed);
  for (size_t part = 0; part + 1 < bytes; part++) /* the last byte may be white space */
    if (hark_tokenizer_parse(context, whole, part, &parsed) != HARK_BAD_FILE || parsed != NULL) fail_msg("first %zu bytes", part);
  int refused = 0;
  for (size_t at = 0; at < bytes; at++) { /* every value of every byte: refused, or the same vocabulary in other words */
    const char kept = whole[at];
    for (int value = 0; value < 256; value++) {
      whole[at] = (char)value;
      const hark_status status = hark_tokenizer_parse(context, whole, bytes, &parsed);
      if (status != HARK_OK && status != HARK_BAD_FILE) fail_msg("byte %zu as %d: %s", at, value, hark_status_name(status));
      if (status == HARK_OK && hark_tokenizer_checksum(parsed) != hark_tokenizer_checksum(tokenizer)) fail_msg("byte %zu as %d", at, value);
      refused += status != HARK_OK;
      hark_tokenizer_destroy(context, &parsed);
    }
    whole[at] = kept;
  }
  assert_true(refused > 10000);
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    const int length = snprintf(text, sizeof text, cases[i].format, checksum);
    assert_true(length > 0 && (size_t)length < sizeof text);
    assert_failure(context, hark_tokenizer_parse(context, text, (size_t)length, &parsed), HARK_BAD_FILE, cases[i].message);
    assert_null(parsed);
  }
  hark_release(context, whole, bytes);
  hark_tokenizer_destroy(context, &tokenizer);
  test_memory_context_end(context, &memory);
}

/* Everything that allocates, with allocation number n failing: out of memory and nothing else, for every n until all succeed. */
static void memory_may_run_out(void **state) {
  (void)state;
  hark_status status = HARK_OUT_OF_MEMORY;
  long fail_at = 0, failures = 0;
  do {
    test_memory memory;
    hark_context *context = test_memory_context(&memory);
    hark_tokenizer *tokenizer = NULL, *parsed = NULL;
    char *text = NULL;
    size_t bytes = 0, consumed;
    hark_text_fault fault;
    memory.fail_at = memory.allocations + ++fail_at;
    status = hark_tokenizer_create(context, "characters", &tokenizer);
    if (status == HARK_OK) status = hark_tokenizer_learn(context, tokenizer, sample, sizeof sample - 1, true, &consumed, &fault);
    if (status == HARK_OK) status = hark_tokenizer_finish(context, tokenizer);
    if (status == HARK_OK) status = hark_tokenizer_print(context, tokenizer, &text, &bytes);
    if (status == HARK_OK) status = hark_tokenizer_parse(context, text, bytes, &parsed);
    failures += status == HARK_OUT_OF_MEMORY;
    if (status != HARK_OK && status != HARK_OUT_OF_MEMORY) fail_msg("allocation %ld: %s", fail_at, hark_context_message(context));
    hark_release(context, text, bytes);
    hark_tokenizer_destroy(context, &tokenizer);
    hark_tokenizer_destroy(context, &parsed);
    test_memory_context_end(context, &memory);
  } while (status != HARK_OK);
  assert_true(failures >= 10); /* a tokenizer alone is five allocations, and it is made twice */
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(kinds_are_a_table),       cmocka_unit_test(characters_are_sorted_behind_the_reserved),
      cmocka_unit_test(text_survives),           cmocka_unit_test(parts_do_not_matter),
      cmocka_unit_test(faults_have_a_place),     cmocka_unit_test(nothing_is_no_vocabulary),
      cmocka_unit_test(bytes_are_never_refused), cmocka_unit_test(tokens_have_names),
      cmocka_unit_test(vocabularies_survive),    cmocka_unit_test(vocabularies_are_read_strictly),
      cmocka_unit_test(memory_may_run_out),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
