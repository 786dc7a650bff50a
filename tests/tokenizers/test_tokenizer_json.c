/* test_tokenizer_json.c - vocabularies of every kind as tokenizer.json: read by the pipeline of such files, they give the same tokens and
 * the same text on random texts of many scripts; and what has no counterpart there. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/core.h"
#include "support/cmocka_all.h"
#include "support/text_files.h"
#include "tokenizers/pipeline/pipeline.h"
#include "tokenizers/pipeline/regex.h"
#include "tokenizers/tokenizer.h"
#include "tokenizers/utf8.h"

/* ---- texts ---- */

static uint32_t next_random(uint64_t *state) {
  *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (uint32_t)(*state >> 33);
}

/* Characters of one to four bytes: letters, marks, digits, punctuation, spaces, control characters; of reserved names and bytes. */
static const uint32_t alphabet[] = {'a',    'b',    'c',    'd',    'e',    'k',     'm',     's',     'x',   '<',    '>',
                                    '0',    'A',    '\'',   ' ',    ' ',    ' ',     '\t',    '\n',    '\r',  0x7F,   0xA0,
                                    0xAD,   0xE9,   0x301,  0x430,  0x5D0,  0x639,   0x915,   0x94D,   0xE01, 0x2581, 0x2585,
                                    0x3042, 0x4E2D, 0x6587, 0xAC00, 0xFFFD, 0x1F600, 0x1D11E, 0x20001, '1',   '.',    '-'};
enum { ALPHABET = sizeof alphabet / sizeof alphabet[0] };

/* Appends a character. */
static size_t put(char *text, size_t at, uint32_t code) { return at + hark_utf8_encode(code, text + at); }

/* Random characters: of the first `letters` of the alphabet, and with `words` in runs of a few that repeat. */
static size_t random_text(uint64_t *seed, char *text, size_t characters, uint32_t letters) {
  size_t at = 0;
  for (size_t i = 0; i < characters; i++) at = put(text, at, alphabet[next_random(seed) % letters]);
  return at;
}

/* ---- vocabularies ---- */

/* The characters of the words, then their parts of two to four characters, in the order of their first occurrence. Scores of BPE are minus
 * the number of the piece, those of unigram quarters, whose sums are exact in f32. */
enum { PARTS = 4, MOST_PIECES = 4000 };

typedef struct part_learner {
  const hark_subword_job *job;
  hark_subword_sink *sink;
  void *user;
  int32_t made;
  const char *text[MOST_PIECES];
  size_t bytes[MOST_PIECES];
} part_learner;

static size_t character_bytes(const char *text) {
  const unsigned char lead = (unsigned char)text[0];
  return lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}

static hark_status give(part_learner *l, const char *text, size_t bytes) {
  for (int32_t i = 0; i < l->made; i++)
    if (l->bytes[i] == bytes && memcmp(l->text[i], text, bytes) == 0) return HARK_OK;
  if (l->made == l->job->pieces || l->made == MOST_PIECES) return HARK_OK;
  const double score =
      l->job->model == HARK_SUBWORD_BPE ? -l->made : -1 - (double)(l->made * 37 % 61) / 4 - (bytes == character_bytes(text) ? 9 : 0);
  l->text[l->made] = text;
  l->bytes[l->made++] = bytes;
  return l->sink(l->user, text, bytes, score);
}

static hark_status give_parts(part_learner *l, size_t word, int characters) {
  const char *const end = l->job->text + l->job->at[word + 1];
  for (const char *from = l->job->text + l->job->at[word]; from < end; from += character_bytes(from)) {
    const char *to = from;
    int count = 0;
    for (; count < characters && to < end; count++) to += character_bytes(to);
    if (count == characters) HARK_TRY(give(l, from, (size_t)(to - from)));
  }
  return HARK_OK;
}

static hark_status learn_parts(const hark_subword_job *job, hark_subword_sink *sink, void *user, char message[HARK_SUBWORD_MESSAGE_BYTES]) {
  static part_learner learner;
  learner = (part_learner){.job = job, .sink = sink, .user = user};
  message[0] = '\0';
  for (int characters = 1; characters <= PARTS; characters++)
    for (size_t w = 0; w < job->words; w++) HARK_TRY(give_parts(&learner, w, characters));
  return HARK_OK;
}
static const hark_subword_learner parts_learner = {"parts", learn_parts};

static hark_tokenizer *learn(hark_context *context, const char *kind, const hark_subword_settings *settings, const char *text,
                             size_t bytes) {
  hark_tokenizer *tokenizer;
  hark_text_fault fault;
  size_t consumed;
  assert_fine(context, hark_tokenizer_create(context, kind, &tokenizer));
  assert_fine(context, hark_tokenizer_set_subwords(context, tokenizer, settings));
  assert_fine(context, hark_tokenizer_learn(context, tokenizer, text, bytes, true, &consumed, &fault));
  assert_fine(context, hark_tokenizer_finish(context, tokenizer));
  return tokenizer;
}

/* ---- comparing ---- */

typedef struct both {
  hark_context *context;
  hark_tokenizer *own;
  hark_pipeline *pipeline;
  hark_pipeline_work *work;
} both;

static both open_both(hark_context *context, hark_tokenizer *own) {
  both b = {.context = context, .own = own};
  hark_text text = hark_text_empty(context);
  assert_fine(context, hark_tokenizer_print_json(context, own, &text));
  assert_fine(context, hark_pipeline_read(context, "tokenizer.json", hark_text_get(&text), text.length, &b.pipeline));
  assert_fine(context, hark_pipeline_work_create(context, b.pipeline, &b.work));
  assert_int_equal(hark_pipeline_size(b.pipeline), hark_tokenizer_size(own));
  hark_text_free(&text);
  return b;
}

static void close_both(both *b) {
  hark_pipeline_work_destroy(&b->work);
  hark_pipeline_destroy(b->context, &b->pipeline);
  hark_tokenizer_destroy(b->context, &b->own);
}

static void compare(const both *b, const char *text, size_t bytes, bool decodes) {
  int32_t *own = malloc((bytes + 1) * sizeof *own);
  const int32_t *theirs;
  size_t count, their_count, at;
  hark_text back = hark_text_empty(b->context);
  assert_fine(b->context, hark_tokenizer_encode(b->context, b->own, HARK_UNKNOWN_IS_MAPPED, "text", text, bytes, own, &count));
  assert_fine(b->context, hark_pipeline_encode(b->work, text, bytes, true, &theirs, &their_count, &at));
  for (size_t i = 0; i < count && i < their_count; i++)
    if (own[i] != theirs[i]) fail_msg("token %zu of '%.*s' is %d, there %d", i, (int)bytes, text, own[i], theirs[i]);
  assert_int_equal(count, their_count);
  assert_fine(b->context, hark_pipeline_decode(b->work, own, count, true, &back));
  if (decodes) assert_int_equal(back.length, bytes);
  if (decodes && bytes > 0) assert_memory_equal(hark_text_get(&back), text, bytes);
  hark_text_free(&back);
  free(own);
}

enum { LEARNED = 3000, LINES = 1500 };

/* Lines of every length, of characters that the vocabulary has (the first `known`) and, where they have tokens, of others. */
static void compare_lines(const both *b, uint32_t letters, bool decodes, size_t longest) {
  static char text[4 * LEARNED];
  uint64_t seed = 17;
  for (size_t line = 0; line < LINES; line++)
    compare(b, text, random_text(&seed, text, next_random(&seed) % (line % 10 == 0 ? longest : 20), letters), decodes);
  static const char *const named[] = {"",         "<mask>", "<padding> <unknown>", "<0x41><0xE9>",
                                      "   a  b ", "\n\n\n", "it's we'll 'd'",      "a\t\tb"};
  for (size_t i = 0; i < sizeof named / sizeof named[0]; i++) compare(b, named[i], strlen(named[i]), decodes);
}

static void characters_and_bytes(void **state) {
  (void)state;
  static char text[4 * LEARNED];
  test_memory memory;
  hark_context *context = test_memory_context(&memory);
  const hark_subword_settings none = {.coverage = 1};
  uint64_t seed = 3;
  for (int kind = HARK_TOKENIZER_CHARACTERS; kind <= HARK_TOKENIZER_BYTES; kind++)
    for (int lacking = 0; lacking < 2; lacking++) {
      const size_t bytes = random_text(&seed, text, LEARNED, lacking ? ALPHABET / 2 : ALPHABET);
      both b = open_both(context, learn(context, hark_tokenizer_kind_name(kind), &none, text, bytes));
      compare_lines(&b, ALPHABET, kind == HARK_TOKENIZER_BYTES, 600);
      close_both(&b);
    }
  test_memory_context_end(context, &memory);
}

static void subwords(void **state) {
  (void)state;
  static char text[4 * LEARNED];
  test_memory memory;
  hark_context *context = test_memory_context(&memory);
  uint64_t seed = 5;
  for (int model = HARK_SUBWORD_UNIGRAM; model <= HARK_SUBWORD_BPE; model++)
    for (int fallback = model == HARK_SUBWORD_UNIGRAM; fallback < 2; fallback++) {
      if (model == HARK_SUBWORD_UNIGRAM && !hark_regex_available) continue;
      const size_t bytes = random_text(&seed, text, 600, ALPHABET / 2);
      const hark_subword_settings settings = {.model = (hark_subword_model)model,
                                              .vocabulary = 261 + 900,
                                              .byte_fallback = fallback != 0,
                                              .coverage = 1,
                                              .learner = &parts_learner};
      both b = open_both(context, learn(context, "subwords", &settings, text, bytes));
      compare_lines(&b, ALPHABET, fallback != 0, model == HARK_SUBWORD_UNIGRAM ? 1500 : 100);
      close_both(&b);
    }
  test_memory_context_end(context, &memory);
}

static void byte_bpe(void **state) {
  (void)state;
  static char text[4 * LEARNED];
  test_memory memory;
  hark_context *context = test_memory_context(&memory);
  if (!hark_regex_available) {
    test_memory_context_end(context, &memory);
    skip();
  }
  uint64_t seed = 7;
  const size_t bytes = random_text(&seed, text, LEARNED, ALPHABET);
  const hark_subword_settings settings = {.vocabulary = 261 + 700};
  both b = open_both(context, learn(context, "byte_bpe", &settings, text, bytes));
  compare_lines(&b, ALPHABET, true, 1500);
  for (size_t run = 100; run < 600; run += 5) { /* words of one class, which are cut */
    static const char *const one[] = {"a", " ", "\xE4\xB8\xAD", "'", "1", "\xF0\x9F\x98\x80"};
    for (size_t i = 0; i < sizeof one / sizeof one[0]; i++) {
      for (size_t n = 0; n < run; n++) memcpy(text + n * strlen(one[i]), one[i], strlen(one[i]));
      text[run * strlen(one[i])] = 's';
      compare(&b, text, run * strlen(one[i]) + 1, true);
    }
  }
  close_both(&b);
  test_memory_context_end(context, &memory);
}

/* ---- what has no counterpart ---- */

typedef struct piece {
  const char *text;
  size_t bytes;
  double score;
} piece;
static const piece *given;
static size_t given_count;

static hark_status give_all(const hark_subword_job *job, hark_subword_sink *sink, void *user, char message[HARK_SUBWORD_MESSAGE_BYTES]) {
  (void)job, (void)message;
  for (size_t i = 0; i < given_count; i++) HARK_TRY(sink(user, given[i].text, given[i].bytes, given[i].score));
  return HARK_OK;
}

static void expect_refusal(hark_context *context, const char *kind, const hark_subword_settings *settings, const char *text, size_t bytes,
                           const char *reason) {
  hark_tokenizer *tokenizer = learn(context, kind, settings, text, bytes);
  hark_text out = hark_text_empty(context);
  assert_failure(context, hark_tokenizer_print_json(context, tokenizer, &out), HARK_UNSUPPORTED, reason);
  hark_text_free(&out);
  hark_tokenizer_destroy(context, &tokenizer);
}

static void what_has_no_counterpart(void **state) {
  (void)state;
  static const hark_subword_learner learner = {"given", give_all};
  static const struct {
    hark_subword_model model;
    bool fallback;
    piece pieces[9];
    const char *reason;
  } cases[] = {
      {HARK_SUBWORD_UNIGRAM, false, {{"a", 1, -1}}, "unigram without bytes"},
      {HARK_SUBWORD_UNIGRAM, true, {{"a", 1, -1}, {"ab", 2, -2}}, "a piece has a character that is not a piece itself"},
      {HARK_SUBWORD_BPE, true, {{"a", 1, -1}, {"ab", 2, -2}}, "a piece has a character that is not a piece itself"},
      {HARK_SUBWORD_BPE, true, {{"a", 1, -1}, {"b", 1, -2}, {"ab", 2, -3}, {"ba", 2, -3}}, "two pieces have the same score"},
      {HARK_SUBWORD_BPE,
       false,
       {{"<", 1, 0}, {"m", 1, -1}, {"a", 1, -2}, {"s", 1, -3}, {"k", 1, -4}, {">", 1, -5}, {"<mask>", 6, -6}},
       "a piece has the name of a reserved token"},
      {HARK_SUBWORD_BPE,
       true,
       {{"<", 1, 0}, {"0", 1, -1}, {"x", 1, -2}, {"A", 1, -3}, {">", 1, -4}, {"<0xAA>", 6, -5}},
       "a piece has the name of a byte"},
  };
  test_memory memory;
  hark_context *context = test_memory_context(&memory);
  hark_subword_settings settings = {.vocabulary = 300, .coverage = 1, .learner = &learner};
  expect_refusal(context, "characters", &settings, "a\0b", 3, "U+0000 is one of its symbols");
  const hark_subword_settings word_piece = {.model = HARK_SUBWORD_WORD_PIECE, .vocabulary = 264, .byte_fallback = true, .coverage = 1};
  expect_refusal(context, "subwords", &word_piece, "ab ab", 5, "wordpiece");
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    given = cases[i].pieces;
    for (given_count = 0; given[given_count].bytes > 0;) given_count++;
    settings.model = cases[i].model;
    settings.byte_fallback = cases[i].fallback;
    expect_refusal(context, "subwords", &settings, "ab", 2, cases[i].reason);
  }
  test_memory_context_end(context, &memory);
}

/* More digits are read differently by some readers of JSON, whose divisions of equal probability then differ. */
static void scores_have_nine_digits(void **state) {
  (void)state;
  static const hark_subword_learner learner = {"given", give_all};
  static const piece pieces[] = {{"a", 1, -3.14159274101257324}, {"b", 1, -2}};
  test_memory memory;
  hark_context *context = test_memory_context(&memory);
  const hark_subword_settings settings = {
      .model = HARK_SUBWORD_UNIGRAM, .vocabulary = 300, .byte_fallback = true, .coverage = 1, .learner = &learner};
  given = pieces;
  given_count = 2;
  hark_tokenizer *tokenizer = learn(context, "subwords", &settings, "ab", 2);
  hark_text out = hark_text_empty(context);
  assert_fine(context, hark_tokenizer_print_json(context, tokenizer, &out));
  assert_non_null(strstr(hark_text_get(&out), "[\"a\", -3.14159274]"));
  hark_text_free(&out);
  hark_tokenizer_destroy(context, &tokenizer);
  test_memory_context_end(context, &memory);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(scores_have_nine_digits),
      cmocka_unit_test(characters_and_bytes),
      cmocka_unit_test(subwords),
      cmocka_unit_test(byte_bpe),
      cmocka_unit_test(what_has_no_counterpart),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
