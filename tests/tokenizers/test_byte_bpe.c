/* test_byte_bpe.c - byte-level BPE: merges against a slow definition that counts all pairs again for each, words against a table and in
 * parts, random bytes that come back, and what a vocabulary is refused for. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/core.h"
#include "support/cmocka_all.h"
#include "support/slow_merges.h"
#include "support/text_files.h"
#include "tokenizers/tokenizer.h"
#include "tokenizers/tokenizer_kind.h"
#include "tokenizers/word_reader.h"

static uint32_t next_random(uint64_t *state) {
  *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (uint32_t)(*state >> 33);
}

static hark_status try_learn(hark_context *context, int64_t vocabulary, const void *text, size_t bytes, hark_tokenizer **out) {
  const hark_subword_settings settings = {.vocabulary = vocabulary};
  size_t consumed;
  hark_text_fault fault;
  HARK_TRY(hark_tokenizer_create(context, "byte_bpe", out));
  hark_status status = hark_tokenizer_set_subwords(context, *out, &settings);
  if (status == HARK_OK) status = hark_tokenizer_learn(context, *out, text, bytes, true, &consumed, &fault);
  if (status == HARK_OK) status = hark_tokenizer_finish(context, *out);
  if (status != HARK_OK) hark_tokenizer_destroy(context, out);
  return status;
}

static hark_tokenizer *learn(hark_context *context, int64_t vocabulary, const void *text, size_t bytes) {
  hark_tokenizer *tokenizer = NULL;
  assert_fine(context, try_learn(context, vocabulary, text, bytes, &tokenizer));
  return tokenizer;
}

/* ---- the definition ---- */

/* GPT-2's vocabulary begins with the bytes in this order: ! to ~, A1 to AC, AE to FF, then the others. */
static int place_of_byte(int byte) {
  int place = 0;
  const bool shown = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
  for (int b = 0; b < 256; b++) {
    const bool other = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
    place += other == shown ? b < byte : other;
  }
  return place;
}

/* Texts of letters, spaces and digits alone: a word is a space or none, and letters or digits. */
static void slow_learn(slow_merges *s, const char *text, int texts) {
  for (int byte = 0; byte < 256; byte++) (void)snprintf(s->text[place_of_byte(byte)], 2, "%c", byte);
  s->texts = 256;
  s->words = 0;
  for (const char *c = text; *c != '\0';) {
    slow_merges_begin_word(s);
    if (*c == ' ') slow_merges_add(s, place_of_byte(*c++));
    const bool digit = *c >= '0' && *c <= '9';
    for (; *c != '\0' && *c != ' ' && (*c >= '0' && *c <= '9') == digit; c++) slow_merges_add(s, place_of_byte((unsigned char)*c));
  }
  slow_merges_learn(s, texts);
}

static void assert_is(const hark_tokenizer *tokenizer, int32_t token, const char *text) {
  size_t bytes;
  const char *const own = hark_tokenizer_text(tokenizer, token, &bytes);
  if (bytes != strlen(text) || memcmp(own, text, bytes) != 0) fail_msg("token %d is '%.*s', expected '%s'", token, (int)bytes, own, text);
}

static void merges_follow_the_definition(void **state) {
  (void)state;
  static slow_merges slow;
  static char text[SLOW_WORDS * SLOW_SYMBOLS];
  test_memory memory;
  hark_context *context = test_memory_context(&memory);
  uint64_t seed = 1;
  for (unsigned letters = 1; letters <= 10; letters += 1 + letters / 4)
    for (unsigned longest = 2; longest < SLOW_SYMBOLS; longest += 5) {
      slow_merges_text(&seed, text, 60, letters, longest);
      slow_learn(&slow, text, letters == 1 ? 257 : 330);
      hark_tokenizer *tokenizer = learn(context, HARK_TOKEN_RESERVED + slow.texts, text, strlen(text));
      const hark_byte_merge *merges;
      const size_t count = hark_byte_merges_of(tokenizer, &merges);
      assert_true(slow.merges > 0);
      for (size_t i = 0; i < count && i < (size_t)slow.merges; i++) {
        assert_is(tokenizer, merges[i].left, slow.text[slow.left[i]]);
        assert_is(tokenizer, merges[i].right, slow.text[slow.right[i]]);
      }
      for (int t = 256; t < slow.texts; t++) assert_is(tokenizer, HARK_TOKEN_RESERVED + t, slow.text[t]);
      assert_int_equal(count, slow.merges);
      hark_tokenizer_destroy(context, &tokenizer);
    }
  test_memory_context_end(context, &memory);
}

/* ---- words ---- */

static void read_words(hark_context *context, const hark_regex *regex, const char *text, size_t bytes, hark_text *out) {
  hark_word_reader reader;
  hark_span word;
  assert_fine(context, hark_word_reader_open(context, regex, text, bytes, true, &reader));
  do {
    assert_fine(context, hark_word_reader_next(&reader, &word));
    hark_text_append_bytes(out, "|", 1);
    hark_text_append_bytes(out, word.text, word.bytes);
  } while (word.bytes > 0);
  assert_int_equal(reader.at, bytes);
  hark_word_reader_close(&reader);
}

static void words_are_those_of_the_expression(void **state) {
  (void)state;
  static const struct {
    const char *text, *words;
  } cases[] = {
      {"Hello, world", "|Hello|,| world|"},
      {"it's we'll I'd 'tis they're", "|it|'s| we|'ll| I|'d| '|tis| they|'re|"},
      {"  a   b ", "| | a|  | b| |"},
      {"x\n\n\ny\t z", "|x|\n\n|\n|y|\t| z|"},
      {"abc123 45.6%", "|abc|123| 45|.|6|%|"},
      {"caf\xC3\xA9 \xE4\xB8\xAD\xE6\x96\x87\xE3\x80\x82x", "|caf\xC3\xA9| \xE4\xB8\xAD\xE6\x96\x87|\xE3\x80\x82|x|"},
      {"a\xFF\xFE"
       "b\xC3",
       "|a|\xFF|\xFE|b|\xC3|"},
      {" \xFF 'l", "| |\xFF| '|l|"},
      {"", "|"},
  };
  test_memory memory;
  hark_context *context = test_memory_context(&memory);
  hark_regex *regex;
  assert_fine(context, hark_regex_compile(context, HARK_WORD_EXPRESSION, sizeof HARK_WORD_EXPRESSION - 1, &regex));
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    hark_text out = hark_text_empty(context);
    read_words(context, regex, cases[i].text, strlen(cases[i].text), &out);
    assert_string_equal(hark_text_get(&out), cases[i].words);
    hark_text_free(&out);
  }
  hark_regex_free(regex);
  test_memory_context_end(context, &memory);
}

/* ---- texts ---- */

enum { RANDOM_BYTES = 6000 };

/* Any bytes, many of them letters and spaces, and runs that are longer than a word may be. */
static void random_bytes(uint64_t *seed, char *text) {
  static const char common[] = "etaoin shrdlu'' \n\t01\xC3\xA9\xE4\xB8\xAD\xF0\x9F\x98\x80";
  for (size_t i = 0; i < RANDOM_BYTES;) {
    const uint32_t choice = next_random(seed);
    if (choice % 600 == 0) {
      const char byte = common[next_random(seed) % 20];
      for (size_t n = next_random(seed) % 1200; n > 0 && i < RANDOM_BYTES; n--) text[i++] = byte;
    } else {
      text[i++] = choice % 5 == 0 ? (char)next_random(seed) : common[next_random(seed) % (sizeof common - 1)];
    }
  }
}

static void assert_same_text(const hark_tokenizer *tokenizer, const int32_t *tokens, size_t count, const char *text, size_t bytes) {
  size_t at = 0;
  for (size_t i = 0; i < count; i++) {
    size_t length;
    const char *const piece = hark_tokenizer_text(tokenizer, tokens[i], &length);
    assert_true(length > 0 && at + length <= bytes);
    assert_memory_equal(piece, text + at, length);
    at += length;
  }
  assert_int_equal(at, bytes);
}

/* Encodes in parts of `size` bytes. */
static size_t encode_parts(hark_context *context, const hark_tokenizer *tokenizer, const char *text, size_t size, int32_t *tokens) {
  size_t at = 0, end = 0, made = 0;
  while (at < RANDOM_BYTES) {
    size_t here, consumed;
    hark_text_fault fault;
    end = end + size < RANDOM_BYTES ? end + size : RANDOM_BYTES;
    assert_fine(context, hark_tokenizer_encode_part(context, tokenizer, HARK_UNKNOWN_IS_ERROR, text + at, end - at, end == RANDOM_BYTES,
                                                    tokens + made, &here, &consumed, &fault));
    made += here;
    at += consumed;
    assert_true(end - at < hark_tokenizer_kind_part_bytes("byte_bpe"));
  }
  return made;
}

static void random_bytes_come_back(void **state) {
  (void)state;
  static char text[RANDOM_BYTES], other[RANDOM_BYTES];
  static int32_t whole[RANDOM_BYTES], parts[RANDOM_BYTES];
  test_memory memory;
  hark_context *context = test_memory_context(&memory);
  uint64_t seed = 11;
  random_bytes(&seed, text);
  hark_tokenizer *tokenizer = learn(context, 700, text, RANDOM_BYTES);
  for (int round = 0; round < 20; round++) {
    size_t count;
    random_bytes(&seed, other);
    assert_fine(context, hark_tokenizer_encode(context, tokenizer, HARK_UNKNOWN_IS_ERROR, "text", other, RANDOM_BYTES, whole, &count));
    assert_same_text(tokenizer, whole, count, other, RANDOM_BYTES);
    assert_true(count < RANDOM_BYTES);
    for (size_t size = 1; size < 2400; size += 197) {
      assert_int_equal(encode_parts(context, tokenizer, other, size, parts), count);
      assert_memory_equal(parts, whole, count * sizeof *whole);
    }
  }
  hark_tokenizer_destroy(context, &tokenizer);
  test_memory_context_end(context, &memory);
}

/* Learning in parts gives the vocabulary that learning from the whole gives. */
static void learning_in_parts(void **state) {
  (void)state;
  static char text[RANDOM_BYTES];
  test_memory memory;
  hark_context *context = test_memory_context(&memory);
  uint64_t seed = 13;
  random_bytes(&seed, text);
  hark_tokenizer *whole = learn(context, 500, text, RANDOM_BYTES);
  for (size_t size = 3; size < 2000; size += 391) {
    const hark_subword_settings settings = {.vocabulary = 500};
    hark_tokenizer *parts;
    hark_text_fault fault;
    assert_fine(context, hark_tokenizer_create(context, "byte_bpe", &parts));
    assert_fine(context, hark_tokenizer_set_subwords(context, parts, &settings));
    for (size_t at = 0, end = 0, consumed = 0; at < RANDOM_BYTES; at += consumed) {
      end = end + size < RANDOM_BYTES ? end + size : RANDOM_BYTES;
      assert_fine(context, hark_tokenizer_learn(context, parts, text + at, end - at, end == RANDOM_BYTES, &consumed, &fault));
    }
    assert_fine(context, hark_tokenizer_finish(context, parts));
    assert_true(hark_tokenizer_checksum(parts) == hark_tokenizer_checksum(whole));
    hark_tokenizer_destroy(context, &parts);
  }
  hark_tokenizer_destroy(context, &whole);
  test_memory_context_end(context, &memory);
}

/* ---- vocabularies ---- */

#define HEAD                                                                                                                               \
  "{\"format_version\":1,\"kind\":\"byte_bpe\",\"reserved\":[\"<padding>\",\"<unknown>\",\"<begin>\",\"<class>\",\"<mask>\"],"             \
  "\"size\":262,\"checksum\":\"0\","

static void vocabularies_are_read_strictly(void **state) {
  (void)state;
  static const struct {
    const char *text, *message;
  } cases[] = {
      {HEAD "\"symbols\":[]}", "\"merges\" is missing"},
      {HEAD "\"merges\":{}}", "\"merges\" is missing or not an array"},
      {HEAD "\"merges\":[[100]]}", "merge 0 is not a list of two tokens, from 5 to 260"},
      {HEAD "\"merges\":[[100,101,102]]}", "merge 0 is not a list"},
      {HEAD "\"merges\":[[100,\"a\"]]}", "merge 0 is not a list"},
      {HEAD "\"merges\":[[4,100]]}", "merge 0 is not a list"},
      {HEAD "\"merges\":[[100,101],[262,100]]}", "merge 1 is not a list of two tokens, from 5 to 261"},
      {HEAD "\"merges\":[[100,101],[100,101]]}", "merge 1 makes a token that is there already"},
      {HEAD "\"merges\":[[100,101],[101,102],[261,102],[100,262]]}", "merge 3 makes a token that is there already"},
      {HEAD "\"merges\":[[100,100],[261,261],[262,262],[263,263],[264,264],[265,265],[266,266],[267,267],[268,268],[269,269],[270,270]]}",
       "merge 10 has more than 1024 bytes"},
      {HEAD "\"merges\":[[100,101]],\"pieces\":[]}", "do not belong"},
      {HEAD "\"merges\":[[100,101],[101,101]]}", "\"size\" is 262, there are 263"},
      {HEAD "\"merges\":[[100,101]]}", "\"checksum\" is not that"},
  };
  test_memory memory;
  hark_context *context = test_memory_context(&memory);
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    hark_tokenizer *tokenizer;
    assert_failure(context, hark_tokenizer_parse(context, cases[i].text, strlen(cases[i].text), &tokenizer), HARK_BAD_FILE,
                   cases[i].message);
    assert_null(tokenizer);
  }
  test_memory_context_end(context, &memory);
}

static void vocabularies_survive(void **state) {
  (void)state;
  static char text[RANDOM_BYTES];
  static int32_t tokens[2][RANDOM_BYTES];
  test_memory memory;
  hark_context *context = test_memory_context(&memory);
  char folder[TEST_PATH_BYTES];
  hark_tokenizer *loaded;
  size_t count[2];
  uint64_t seed = 19;
  random_bytes(&seed, text);
  test_folder_make(folder);
  const char *const path = test_path(folder, "vocabulary.json");
  hark_tokenizer *one = learn(context, 600, text, RANDOM_BYTES), *smaller = learn(context, 599, text, RANDOM_BYTES);
  assert_fine(context, hark_tokenizer_save(context, one, path));
  assert_fine(context, hark_tokenizer_load(context, path, &loaded));
  assert_int_equal(hark_tokenizer_size(loaded), 600);
  assert_true(hark_tokenizer_checksum(loaded) == hark_tokenizer_checksum(one));
  assert_true(hark_tokenizer_checksum(smaller) != hark_tokenizer_checksum(one));
  assert_fine(context, hark_tokenizer_encode(context, one, HARK_UNKNOWN_IS_ERROR, "text", text, RANDOM_BYTES, tokens[0], &count[0]));
  assert_fine(context, hark_tokenizer_encode(context, loaded, HARK_UNKNOWN_IS_ERROR, "text", text, RANDOM_BYTES, tokens[1], &count[1]));
  assert_int_equal(count[0], count[1]);
  assert_memory_equal(tokens[0], tokens[1], count[0] * sizeof tokens[0][0]);
  hark_tokenizer_destroy(context, &loaded);
  hark_tokenizer_destroy(context, &smaller);
  hark_tokenizer_destroy(context, &one);
  test_folder_remove(folder);
  test_memory_context_end(context, &memory);
}

static void what_cannot_be_learned(void **state) {
  (void)state;
  test_memory memory;
  hark_context *context = test_memory_context(&memory);
  hark_tokenizer *tokenizer;
  assert_failure(context, try_learn(context, 300, "", 0, &tokenizer), HARK_BAD_FILE, "needs text, and there is none");
  assert_failure(context, try_learn(context, 260, "ab", 2, &tokenizer), HARK_BAD_CONFIGURATION, "expected at least the 261");
  assert_failure(context, try_learn(context, 264, "ab ab", 5, &tokenizer), HARK_BAD_CONFIGURATION,
                 "the text gives 263 at most (--subwords 263)");
  assert_fine(context, try_learn(context, 263, "ab ab", 5, &tokenizer));
  hark_tokenizer_destroy(context, &tokenizer);
  assert_fine(context, try_learn(context, 261, "ab ab", 5, &tokenizer));
  hark_tokenizer_destroy(context, &tokenizer);
  test_memory_context_end(context, &memory);
}

/* Every allocation of learning, storing and reading fails once. */
static void memory_may_end_anywhere(void **state) {
  (void)state;
  static const char text[] = "the then they there 'em 42 the then caf\xC3\xA9 \xFF";
  for (long number = 1, reached = 1; reached; number++) {
    test_memory memory = {0};
    hark_context *context = NULL;
    assert_int_equal(test_memory_create(&memory, "reference", &context), HARK_OK);
    memory.fail_at = memory.allocations + number;
    hark_tokenizer *tokenizer = NULL, *read = NULL;
    char *printed = NULL;
    size_t bytes = 0;
    hark_status status = try_learn(context, 270, text, sizeof text - 1, &tokenizer);
    if (status == HARK_OK) status = hark_tokenizer_print(context, tokenizer, &printed, &bytes);
    if (status == HARK_OK) status = hark_tokenizer_parse(context, printed, bytes, &read);
    reached = memory.allocations >= memory.fail_at;
    memory.fail_at = 0;
    assert_int_equal(status, reached ? HARK_OUT_OF_MEMORY : HARK_OK);
    assert_true(reached || number > 20);
    hark_release(context, printed, bytes);
    hark_tokenizer_destroy(context, &tokenizer);
    hark_tokenizer_destroy(context, &read);
    test_memory_context_end(context, &memory);
  }
}

static void without_pcre2_it_is_refused(void **state) {
  (void)state;
  test_memory memory;
  hark_context *context = test_memory_context(&memory);
  hark_tokenizer *tokenizer;
  assert_failure(context, try_learn(context, 300, "ab", 2, &tokenizer), HARK_UNSUPPORTED, "HARK_WITH_PCRE2");
  assert_failure(context, hark_tokenizer_parse(context, HEAD "\"merges\":[]}", sizeof HEAD - 1 + 12, &tokenizer), HARK_UNSUPPORTED,
                 "HARK_WITH_PCRE2");
  assert_false(hark_tokenizer_kind_available(HARK_TOKENIZER_BYTE_BPE));
  test_memory_context_end(context, &memory);
}

int main(void) {
  const struct CMUnitTest without[] = {cmocka_unit_test(without_pcre2_it_is_refused)};
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(merges_follow_the_definition),

      cmocka_unit_test(words_are_those_of_the_expression),
      cmocka_unit_test(random_bytes_come_back),
      cmocka_unit_test(learning_in_parts),
      cmocka_unit_test(vocabularies_are_read_strictly),
      cmocka_unit_test(vocabularies_survive),
      cmocka_unit_test(what_cannot_be_learned),
      cmocka_unit_test(memory_may_end_anywhere),
  };
  return hark_regex_available ? cmocka_run_group_tests(tests, NULL, NULL) : cmocka_run_group_tests(without, NULL, NULL);
}
