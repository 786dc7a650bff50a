/* test_subwords.c - sub-words: dividing against the definition by trying all divisions, text that comes back, parts, faults, what a
 * vocabulary is refused for, and learning with and without a learner. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/core.h"
#include "support/cmocka_all.h"
#include "support/learner.h"
#include "support/slow_merges.h"
#include "support/text_files.h"
#include "tokenizers/tokenizer.h"
#include "tokenizers/utf8.h"

/* Spaces in rows and at both ends, tabs, line ends, characters of one to four bytes, marks that SentencePiece uses, NUL and DEL. */
static const char sample[] =
    "  the then  they\tthen the\r\n\n caf\xC3\xA9 \xE6\x97\xA5\xE6\x9C\xAC\xF0\x9D\x84\x9E "
    "\xE2\x96\x81 x\xE2\x96\x85y \0 \x7F end ";
#define SAMPLE_BYTES (sizeof sample - 1)

static hark_status try_learn(hark_context *context, const hark_subword_settings *settings, const void *text, size_t bytes,
                             hark_tokenizer **out) {
  size_t consumed;
  hark_text_fault fault;
  HARK_TRY(hark_tokenizer_create(context, "subwords", out));
  hark_status status = hark_tokenizer_set_subwords(context, *out, settings);
  if (status == HARK_OK) status = hark_tokenizer_learn(context, *out, text, bytes, true, &consumed, &fault);
  if (status == HARK_OK) status = hark_tokenizer_finish(context, *out);
  if (status != HARK_OK) hark_tokenizer_destroy(context, out);
  return status;
}

static hark_tokenizer *learn(hark_context *context, const hark_subword_settings *settings, const void *text, size_t bytes) {
  hark_tokenizer *tokenizer = NULL;
  assert_fine(context, try_learn(context, settings, text, bytes, &tokenizer));
  return tokenizer;
}

static void assert_same_text(const hark_tokenizer *tokenizer, const int32_t *tokens, size_t count, const char *text, size_t bytes) {
  size_t at = 0;
  for (size_t i = 0; i < count; i++) {
    size_t length;
    const char *piece = hark_tokenizer_text(tokenizer, tokens[i], &length);
    assert_true(length > 0 && at + length <= bytes);
    assert_memory_equal(piece, text + at, length);
    at += length;
  }
  assert_int_equal(at, bytes);
}

static void text_survives(void **state) {
  (void)state;
  test_memory memory;
  hark_context *context = test_memory_context(&memory);
  for (int model = 0; model < 2; model++)
    for (int fallback = 0; fallback < 2; fallback++)
      for (int64_t pieces = 1; pieces < 80; pieces += 13) {
        hark_subword_settings settings = test_subwords((hark_subword_model)model, pieces);
        settings.byte_fallback = fallback != 0;
        if (!settings.byte_fallback) settings.vocabulary = HARK_TOKEN_RESERVED + 80 + pieces; /* all characters are pieces */
        hark_tokenizer *tokenizer = learn(context, &settings, sample, SAMPLE_BYTES);
        assert_true(hark_tokenizer_size(tokenizer) <= settings.vocabulary);
        int32_t tokens[SAMPLE_BYTES];
        size_t count;
        assert_fine(context,
                    hark_tokenizer_encode(context, tokenizer, HARK_UNKNOWN_IS_ERROR, "sample", sample, SAMPLE_BYTES, tokens, &count));
        assert_same_text(tokenizer, tokens, count, sample, SAMPLE_BYTES);
        hark_tokenizer_destroy(context, &tokenizer);
      }
  test_memory_context_end(context, &memory);
}

/* A vocabulary as its file has it: reserved, no bytes, pieces a, b, ..., each with its score. */
static hark_tokenizer *make(hark_context *context, const char *model, bool fallback, int count, const char *const *pieces,
                            const double *scores) {
  char text[4096], mended[4096];
  int length =
      snprintf(text, sizeof text,
               "{\"format_version\":1,\"kind\":\"subwords\",\"reserved\":[\"<padding>\",\"<unknown>\",\"<begin>\",\"<class>\",\"<mask>\"],"
               "\"size\":%d,\"checksum\":\"%%s\",\"model\":\"%s\",\"byte_fallback\":%s,\"pieces\":[",
               HARK_TOKEN_RESERVED + count + (fallback ? 256 : 0), model, fallback ? "true" : "false");
  for (int i = 0; i < count; i++)
    length += snprintf(text + length, sizeof text - (size_t)length, "%s[\"%s\",%g]", i > 0 ? "," : "", pieces[i], scores[i]);
  (void)snprintf(text + length, sizeof text - (size_t)length, "]}");
  hark_tokenizer *tokenizer;
  snprintf(mended, sizeof mended, text, "0000000000000000"); /* NOLINT(clang-diagnostic-format-nonliteral) */
  assert_failure(context, hark_tokenizer_parse(context, mended, strlen(mended), &tokenizer), HARK_BAD_FILE, "\"checksum\" is not that");
  const char *const message = hark_context_message(context);
  snprintf(mended, sizeof mended, text, message + strlen(message) - 16); /* NOLINT(clang-diagnostic-format-nonliteral) */
  assert_fine(context, hark_tokenizer_parse(context, mended, strlen(mended), &tokenizer));
  return tokenizer;
}

/* The greatest sum over all divisions of text[at ..) into pieces, by trying each. */
static double best_of_all(const char *text, int count, const char *const *pieces, const double *scores) {
  if (text[0] == '\0') return 0;
  double best = -INFINITY;
  for (int i = 0; i < count; i++) {
    const size_t length = strlen(pieces[i]);
    if (strncmp(text, pieces[i], length) == 0) best = fmax(best, scores[i] + best_of_all(text + length, count, pieces, scores));
  }
  return best;
}

static void unigram_finds_the_greatest_sum(void **state) {
  (void)state;
  static const char *const pieces[] = {"a", "b", "c", "ab", "abc", "bc", "ca", "cab", "bb", "abba"};
  static const double scores[] = {-2, -2.5, -3, -3.25, -6.5, -4, -4.75, -6, -4.5, -7};
  enum { PIECES = sizeof pieces / sizeof pieces[0], LENGTH = 7 };
  test_memory memory;
  hark_context *context = test_memory_context(&memory);
  hark_tokenizer *tokenizer = make(context, "unigram", false, PIECES, pieces, scores);
  for (int number = 0; number < 2187; number++) { /* 3^7: all words of seven letters */
    char word[LENGTH + 1] = "";
    for (int i = 0, rest = number; i < LENGTH; i++, rest /= 3) word[i] = (char)('a' + rest % 3);
    int32_t tokens[LENGTH];
    size_t count;
    double sum = 0;
    assert_fine(context, hark_tokenizer_encode(context, tokenizer, HARK_UNKNOWN_IS_ERROR, "word", word, LENGTH, tokens, &count));
    for (size_t i = 0; i < count; i++) sum += scores[tokens[i] - HARK_TOKEN_RESERVED];
    assert_same_text(tokenizer, tokens, count, word, LENGTH);
    if (sum != best_of_all(word, PIECES, pieces, scores)) fail_msg("%s: sum %g", word, sum); /* sums of quarters are exact */
  }
  hark_tokenizer_destroy(context, &tokenizer);
  test_memory_context_end(context, &memory);
}

static void bpe_joins_the_best_neighbours_first(void **state) {
  (void)state;
  static const char *const pieces[] = {"ab", "bc", "abc", "aa", "a", "b", "c"};
  static const double scores[] = {-1, 0, -2, -3, -4, -5, -6};
  static const struct {
    const char *word, *divided;
  } cases[] = {
      {"abc", "abc"},                                      /* bc, then a + bc */
      {"ab", "ab"},    {"abab", "ab ab"}, {"aaa", "aa a"}, /* of equal ones the first */
      {"cab", "c ab"}, {"aabc", "a abc"},                  /* bc, a + bc before a + a */
      {"aab", "a ab"}, {"ccc", "c c c"},  {"abcbcab", "abc bc ab"},
  };
  test_memory memory;
  hark_context *context = test_memory_context(&memory);
  hark_tokenizer *tokenizer = make(context, "bpe", true, 7, pieces, scores);
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    int32_t tokens[16];
    char divided[64] = "";
    size_t count, length;
    const char *const word = cases[i].word;
    assert_fine(context, hark_tokenizer_encode(context, tokenizer, HARK_UNKNOWN_IS_ERROR, "word", word, strlen(word), tokens, &count));
    for (size_t t = 0; t < count; t++) {
      const char *const piece = hark_tokenizer_text(tokenizer, tokens[t], &length);
      snprintf(divided + strlen(divided), sizeof divided - strlen(divided), "%s%.*s", t > 0 ? " " : "", (int)length, piece);
    }
    assert_string_equal(divided, cases[i].divided);
  }
  hark_tokenizer_destroy(context, &tokenizer);
  test_memory_context_end(context, &memory);
}

/* ---- WordPiece ---- */

static hark_subword_settings word_piece(int64_t pieces) {
  return (hark_subword_settings){
      .model = HARK_SUBWORD_WORD_PIECE, .vocabulary = HARK_TOKEN_RESERVED + 256 + pieces, .byte_fallback = true, .coverage = 1};
}

/* Characters by code, then merges; a word is a space or none, and what follows. */
static void slow_learn(slow_merges *s, const char *text, int texts) {
  int symbol[128];
  s->texts = s->words = 0;
  for (int code = 1; code < 128; code++) {
    if (strchr(text, code) == NULL) continue;
    symbol[code] = s->texts;
    (void)snprintf(s->text[s->texts++], 2, "%c", code);
  }
  for (const char *c = text; *c != '\0'; c++) {
    if (c == text || *c == ' ') slow_merges_begin_word(s);
    slow_merges_add(s, symbol[(unsigned char)*c]);
  }
  slow_merges_learn(s, texts);
}

static void word_pieces_follow_the_definition(void **state) {
  (void)state;
  static slow_merges slow;
  static char text[SLOW_WORDS * SLOW_SYMBOLS];
  test_memory memory;
  hark_context *context = test_memory_context(&memory);
  uint64_t seed = 1;
  for (unsigned letters = 1; letters <= 10; letters += 1 + letters / 4)
    for (unsigned longest = 2; longest + 1 < SLOW_SYMBOLS; longest += 5) {
      slow_merges_text(&seed, text, 60, letters, longest);
      slow_learn(&slow, text, 80);
      const hark_subword_settings settings = word_piece(slow.texts);
      hark_tokenizer *tokenizer = learn(context, &settings, text, strlen(text));
      assert_true(slow.merges > 0);
      for (int t = 0; t < slow.texts; t++) {
        size_t bytes;
        const char *const piece = hark_tokenizer_text(tokenizer, HARK_TOKEN_RESERVED + 256 + t, &bytes);
        if (bytes != strlen(slow.text[t]) || memcmp(piece, slow.text[t], bytes) != 0)
          fail_msg("piece %d is '%.*s', expected '%s'", t, (int)bytes, piece, slow.text[t]);
      }
      hark_tokenizer_destroy(context, &tokenizer);
    }
  test_memory_context_end(context, &memory);
}

static void word_pieces_are_the_longest(void **state) {
  (void)state;
  static const char *const pieces[] = {"a", "b", "abc", "ab", " a", " ", "bcd", "\303\251a"};
  static const double scores[] = {0, -1, -2, -3, -4, -5, -6, -7};
  static const struct {
    const char *word, *divided;
  } cases[] = {
      {"abcd", "abc 0x64"},          {"abab", "ab ab"},  {" abcd", " a bcd"},       {"  a", "   a"},
      {"\303\251ab", "\303\251a b"}, {"cab", "0x63 ab"}, {"\xC3\xA9", "0xc3 0xa9"},
  };
  test_memory memory;
  hark_context *context = test_memory_context(&memory);
  hark_tokenizer *tokenizer = make(context, "wordpiece", true, 8, pieces, scores);
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    int32_t tokens[16];
    char divided[64] = "";
    size_t count;
    const char *const word = cases[i].word;
    assert_fine(context, hark_tokenizer_encode(context, tokenizer, HARK_UNKNOWN_IS_ERROR, "word", word, strlen(word), tokens, &count));
    for (size_t t = 0; t < count; t++) {
      char shown[16];
      size_t length;
      const char *const piece = hark_tokenizer_text(tokenizer, tokens[t], &length);
      if (tokens[t] < HARK_TOKEN_RESERVED + 256)
        (void)snprintf(shown, sizeof shown, "0x%02x", (unsigned char)piece[0]);
      else
        (void)snprintf(shown, sizeof shown, "%.*s", (int)length, piece);
      (void)snprintf(divided + strlen(divided), sizeof divided - strlen(divided), "%s%s", t > 0 ? " " : "", shown);
    }
    assert_string_equal(divided, cases[i].divided);
  }
  hark_tokenizer_destroy(context, &tokenizer);
  test_memory_context_end(context, &memory);
}

/* The sample with all its characters, with some of them, and with pieces that the text does not give. */
static void word_pieces_of_the_sample(void **state) {
  (void)state;
  test_memory memory;
  hark_context *context = test_memory_context(&memory);
  hark_tokenizer *tokenizer;
  for (int rare = 0; rare < 2; rare++)
    for (int64_t pieces = rare ? 12 : 20; pieces < (rare ? 13 : 34); pieces += 3) {
      hark_subword_settings settings = word_piece(pieces);
      int32_t tokens[SAMPLE_BYTES];
      size_t count;
      settings.coverage = rare ? 0.7 : 1;
      tokenizer = learn(context, &settings, sample, SAMPLE_BYTES);
      assert_int_equal(hark_tokenizer_size(tokenizer), settings.vocabulary);
      assert_fine(context,
                  hark_tokenizer_encode(context, tokenizer, HARK_UNKNOWN_IS_ERROR, "sample", sample, SAMPLE_BYTES, tokens, &count));
      assert_same_text(tokenizer, tokens, count, sample, SAMPLE_BYTES);
      hark_tokenizer_destroy(context, &tokenizer);
    }
  hark_subword_settings settings = word_piece(10);
  assert_failure(context, try_learn(context, &settings, sample, SAMPLE_BYTES, &tokenizer), HARK_BAD_CONFIGURATION,
                 "characters are pieces too");
  settings = word_piece(6); /* " ", a, b, ab, " ab" */
  assert_failure(context, try_learn(context, &settings, "ab ab", 5, &tokenizer), HARK_BAD_CONFIGURATION,
                 "the text gives 266 at most (--subwords 266)");
  test_memory_context_end(context, &memory);
}

/* The text in parts of every size, and a word of two units. */
static void parts_do_not_matter(void **state) {
  (void)state;
  enum { LONG = 1300 };
  static char text[LONG + SAMPLE_BYTES];
  test_memory memory;
  hark_context *context = test_memory_context(&memory);
  for (int i = 0; i < LONG; i += 2) memcpy(text + i, i % 6 == 0 ? "\xC3\xA9" : "xy", 2);
  memcpy(text + LONG, sample, SAMPLE_BYTES);
  const hark_subword_settings settings = test_subwords(HARK_SUBWORD_UNIGRAM, 30);
  hark_tokenizer *tokenizer = learn(context, &settings, text, sizeof text);
  int32_t *whole = malloc(sizeof text * sizeof *whole), *parts = malloc(sizeof text * sizeof *parts);
  size_t count = 0;
  assert_fine(context, hark_tokenizer_encode(context, tokenizer, HARK_UNKNOWN_IS_ERROR, "text", text, sizeof text, whole, &count));
  assert_same_text(tokenizer, whole, count, text, sizeof text);
  for (size_t size = 1; size < 700; size += 41) {
    size_t at = 0, end = 0, made = 0;
    while (at < sizeof text) {
      size_t here, consumed;
      hark_text_fault fault;
      end = end + size < sizeof text ? end + size : sizeof text;
      assert_fine(context, hark_tokenizer_encode_part(context, tokenizer, HARK_UNKNOWN_IS_ERROR, text + at, end - at, end == sizeof text,
                                                      parts + made, &here, &consumed, &fault));
      made += here;
      at += consumed;
      assert_true(end - at < hark_tokenizer_kind_part_bytes("subwords"));
    }
    assert_int_equal(made, count);
    assert_memory_equal(parts, whole, count * sizeof *whole);
  }
  free(whole);
  free(parts);
  hark_tokenizer_destroy(context, &tokenizer);
  test_memory_context_end(context, &memory);
}

static void characters_that_are_no_pieces(void **state) {
  (void)state;
  static const char *const pieces[] = {"a", "ab"};
  static const double scores[] = {-1, -1.5};
  test_memory memory;
  hark_context *context = test_memory_context(&memory);
  hark_tokenizer *plain = make(context, "unigram", false, 2, pieces, scores), *bytes = make(context, "unigram", true, 2, pieces, scores);
  static const char text[] = "aab\xC3\xA9z ab";
  int32_t tokens[16];
  size_t count;
  assert_failure(context, hark_tokenizer_encode(context, plain, HARK_UNKNOWN_IS_ERROR, "note", text, sizeof text - 1, tokens, &count),
                 HARK_BAD_FILE, "note:1:4: U+00E9 is not in the vocabulary (byte offset 3)");
  assert_int_equal(count, 2);
  const int32_t mapped[] = {5, 6, HARK_TOKEN_UNKNOWN, HARK_TOKEN_UNKNOWN, HARK_TOKEN_UNKNOWN, 6};
  assert_fine(context, hark_tokenizer_encode(context, plain, HARK_UNKNOWN_IS_MAPPED, "note", text, sizeof text - 1, tokens, &count));
  assert_int_equal(count, 6);
  assert_memory_equal(tokens, mapped, sizeof mapped);
  const int32_t fallen[] = {261, 262, 5 + 0xC3, 5 + 0xA9, 5 + 'z', 5 + ' ', 262};
  assert_fine(context, hark_tokenizer_encode(context, bytes, HARK_UNKNOWN_IS_ERROR, "note", text, sizeof text - 1, tokens, &count));
  assert_int_equal(count, 7);
  assert_memory_equal(tokens, fallen, sizeof fallen);
  assert_failure(context, hark_tokenizer_encode(context, bytes, HARK_UNKNOWN_IS_ERROR, "note", "a\nb\xC3", 4, tokens, &count),
                 HARK_BAD_FILE, "note:2:2: invalid UTF-8: text ends inside a character (byte offset 3)");
  hark_tokenizer_destroy(context, &plain);
  hark_tokenizer_destroy(context, &bytes);
  test_memory_context_end(context, &memory);
}

static hark_status no_pieces(const hark_subword_job *job, hark_subword_sink *sink, void *user, char message[HARK_SUBWORD_MESSAGE_BYTES]) {
  (void)job, (void)sink, (void)user;
  snprintf(message, HARK_SUBWORD_MESSAGE_BYTES, "too few words");
  return HARK_BAD_CONFIGURATION;
}
static hark_status inner_space(const hark_subword_job *job, hark_subword_sink *sink, void *user, char message[HARK_SUBWORD_MESSAGE_BYTES]) {
  (void)job, (void)message;
  return sink(user, "a b", 3, -1);
}

static void a_learner_that_fails(void **state) {
  (void)state;
  static const hark_subword_learner refusing = {"refusing", no_pieces}, wrong = {"wrong", inner_space};
  test_memory memory;
  hark_context *context = test_memory_context(&memory);
  hark_subword_settings settings = test_subwords(HARK_SUBWORD_UNIGRAM, 10);
  hark_tokenizer *tokenizer;
  settings.learner = &refusing;
  assert_failure(context, try_learn(context, &settings, "a b", 3, &tokenizer), HARK_BAD_CONFIGURATION,
                 "a vocabulary of 271 tokens, 10 of them pieces: refusing: too few words");
  settings.learner = &wrong;
  assert_failure(context, try_learn(context, &settings, "a b", 3, &tokenizer), HARK_INTERNAL_ERROR,
                 "piece 0 has a space after its first character");
  settings.learner = NULL;
  assert_failure(context, try_learn(context, &settings, "a b", 3, &tokenizer), HARK_UNSUPPORTED, "HARK_WITH_SENTENCEPIECE");
  settings.learner = &test_learner;
  assert_failure(context, try_learn(context, &settings, "  \n ", 4, &tokenizer), HARK_BAD_FILE, "the text has none");
  settings.vocabulary = 261;
  assert_failure(context, try_learn(context, &settings, "a b", 3, &tokenizer), HARK_BAD_CONFIGURATION, "expected more than the 261");
  settings.byte_fallback = false;
  settings.vocabulary = 7;
  assert_failure(context, try_learn(context, &settings, "a\tb\n", 4, &tokenizer), HARK_BAD_CONFIGURATION, "expected more than the 7");
  settings.coverage = 0;
  assert_failure(context, try_learn(context, &settings, "a b", 3, &tokenizer), HARK_BAD_CONFIGURATION, "coverage");
  test_memory_context_end(context, &memory);
}

#define HEAD                                                                                                                               \
  "{\"format_version\":1,\"kind\":\"subwords\",\"reserved\":[\"<padding>\",\"<unknown>\",\"<begin>\",\"<class>\",\"<mask>\"],"             \
  "\"size\":6,\"checksum\":\"0\","

static void vocabularies_are_read_strictly(void **state) {
  (void)state;
  static const struct {
    const char *text, *message;
  } cases[] = {
      {HEAD "\"byte_fallback\":false,\"pieces\":[[\"a\",-1]]}", "\"model\" is missing"},
      {HEAD "\"model\":\"words\",\"byte_fallback\":false,\"pieces\":[[\"a\",-1]]}", "\"model\" is missing or neither"},
      {HEAD "\"model\":\"bpe\",\"pieces\":[[\"a\",-1]]}", "\"byte_fallback\" is missing"},
      {HEAD "\"model\":\"bpe\",\"byte_fallback\":0,\"pieces\":[[\"a\",-1]]}", "\"byte_fallback\" is missing or not"},
      {HEAD "\"model\":\"bpe\",\"byte_fallback\":false}", "\"pieces\" is missing"},
      {HEAD "\"model\":\"bpe\",\"byte_fallback\":false,\"pieces\":[]}", "\"pieces\" is missing, empty"},
      {HEAD "\"model\":\"bpe\",\"byte_fallback\":false,\"pieces\":[[\"a\",-1],[\"b\"]]}", "piece 1 is not a list"},
      {HEAD "\"model\":\"bpe\",\"byte_fallback\":false,\"pieces\":[[\"a\",\"b\"]]}", "piece 0 is not a list"},
      {HEAD "\"model\":\"bpe\",\"byte_fallback\":false,\"pieces\":[[\"a\",0.1]]}", "not a number of 32 bits"},
      {HEAD "\"model\":\"bpe\",\"byte_fallback\":false,\"pieces\":[[\"a\",2e9]]}", "beyond 1e9"},
      {HEAD "\"model\":\"bpe\",\"byte_fallback\":false,\"pieces\":[[\"\",-1]]}", "is empty"},
      {HEAD "\"model\":\"bpe\",\"byte_fallback\":false,\"pieces\":[[\"a b\",-1]]}", "a space after its first character"},
      {HEAD "\"model\":\"bpe\",\"byte_fallback\":false,\"pieces\":[[\"a\\n\",-1]]}", "a control character in it"},
      {HEAD "\"model\":\"bpe\",\"byte_fallback\":false,\"pieces\":[[\"a\",-1],[\"a\",-2]]}", "piece 1 is there twice"},
      {HEAD "\"model\":\"bpe\",\"byte_fallback\":false,\"pieces\":[[\"a\",-1]],\"symbols\":[]}", "do not belong"},
      {HEAD "\"model\":\"bpe\",\"byte_fallback\":true,\"pieces\":[[\"a\",-1]]}", "\"size\" is 6, there are 262"},
      {HEAD "\"model\":\"bpe\",\"byte_fallback\":false,\"pieces\":[[\"a\",-1]]}", "\"checksum\" is not that"},
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

/* Saved and loaded it is the same; scores, model and bytes count in the checksum. */
static void vocabularies_survive(void **state) {
  (void)state;
  test_memory memory;
  hark_context *context = test_memory_context(&memory);
  char folder[TEST_PATH_BYTES];
  test_folder_make(folder);
  static const char *const pieces[] = {" a", "b"};
  static const double scores[] = {-1, -2}, others[] = {-1, -3};
  hark_tokenizer *const variants[] = {make(context, "unigram", true, 2, pieces, scores), make(context, "bpe", true, 2, pieces, scores),
                                      make(context, "unigram", false, 2, pieces, scores),
                                      make(context, "unigram", true, 2, pieces, others)};
  enum { VARIANTS = sizeof variants / sizeof variants[0] };
  for (int i = 0; i < VARIANTS; i++) {
    hark_tokenizer *loaded, *one = variants[i];
    const char *path = test_path(folder, "vocabulary.json");
    assert_fine(context, hark_tokenizer_save(context, one, path));
    assert_fine(context, hark_tokenizer_load(context, path, &loaded));
    assert_true(hark_tokenizer_checksum(loaded) == hark_tokenizer_checksum(one));
    assert_int_equal(hark_tokenizer_size(loaded), hark_tokenizer_size(one));
    hark_tokenizer_destroy(context, &loaded);
    for (int j = 0; j < i; j++) assert_true(hark_tokenizer_checksum(variants[j]) != hark_tokenizer_checksum(one));
  }
  for (int i = 0; i < VARIANTS; i++) {
    hark_tokenizer *one = variants[i];
    hark_tokenizer_destroy(context, &one);
  }
  test_folder_remove(folder);
  test_memory_context_end(context, &memory);
}

/* Every allocation of learning, storing and reading fails once. */
static void let_memory_end(const hark_subword_settings *settings) {
  for (long number = 1, reached = 1; reached; number++) {
    test_memory memory = {0};
    hark_context *context = NULL;
    assert_int_equal(test_memory_create(&memory, "reference", &context), HARK_OK);
    memory.fail_at = memory.allocations + number;
    hark_tokenizer *tokenizer = NULL, *read = NULL;
    char *text = NULL;
    size_t bytes = 0;
    hark_status status = try_learn(context, settings, sample, SAMPLE_BYTES, &tokenizer);
    if (status == HARK_OK) status = hark_tokenizer_print(context, tokenizer, &text, &bytes);
    if (status == HARK_OK) status = hark_tokenizer_parse(context, text, bytes, &read);
    reached = memory.allocations >= memory.fail_at;
    memory.fail_at = 0;
    assert_int_equal(status, reached ? HARK_OUT_OF_MEMORY : HARK_OK);
    assert_true(reached || number > 20);
    hark_release(context, text, bytes);
    hark_tokenizer_destroy(context, &tokenizer);
    hark_tokenizer_destroy(context, &read);
    test_memory_context_end(context, &memory);
  }
}

static void memory_may_end_anywhere(void **state) {
  (void)state;
  const hark_subword_settings settings[] = {test_subwords(HARK_SUBWORD_UNIGRAM, 40), word_piece(30)};
  for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) let_memory_end(&settings[i]);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(text_survives),
      cmocka_unit_test(unigram_finds_the_greatest_sum),
      cmocka_unit_test(bpe_joins_the_best_neighbours_first),
      cmocka_unit_test(word_pieces_follow_the_definition),
      cmocka_unit_test(word_pieces_are_the_longest),
      cmocka_unit_test(word_pieces_of_the_sample),
      cmocka_unit_test(parts_do_not_matter),
      cmocka_unit_test(characters_that_are_no_pieces),
      cmocka_unit_test(a_learner_that_fails),
      cmocka_unit_test(vocabularies_are_read_strictly),
      cmocka_unit_test(vocabularies_survive),
      cmocka_unit_test(memory_may_end_anywhere),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
