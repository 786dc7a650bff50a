/* test_sentences.c - lines as sentences: their tokens, counts and boundaries; packing against its definition, written out on the text
 * itself; samples; sentences that are too long; damaged and blank text. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/core.h"
#include "data/corpora/sentences.h"
#include "io/text.h"
#include "support/cmocka_all.h"
#include "support/learner.h"
#include "support/text_files.h"

typedef struct place {
  test_memory memory;
  hark_context *context;
  char folder[TEST_PATH_BYTES], cache[TEST_PATH_BYTES];
} place;

static void place_open(place *p) {
  p->context = test_memory_context(&p->memory);
  test_folder_make(p->folder);
  snprintf(p->cache, sizeof p->cache, "%s", test_path(p->folder, "cache"));
}

static void place_close(place *p) {
  test_folder_remove(p->folder);
  test_memory_context_end(p->context, &p->memory);
}

/* Settings for shards a.txt, b.txt, ... of FOLDER/shards. */
static hark_corpus_settings shards(place *p, const char *const *path, const char *kind) {
  return (hark_corpus_settings){
      .paths = path, .path_count = 1, .unit = HARK_UNIT_SENTENCES, .tokenizer_kind = kind, .cache_folder = p->cache, .buffer_bytes = 16};
}

/* The buffer of the smallest part; a line of more than that. */
enum { LEAST = 1024, LONG = 3000 };

/* The split as text: <b> for the token in front of a sentence. The caller frees it. */
static char *show(place *p, const hark_corpus *corpus, hark_split split) {
  const int64_t count = hark_corpus_counts(corpus, split).tokens;
  int32_t *tokens = malloc((size_t)(count + 1) * sizeof *tokens);
  char *text = calloc((size_t)count + 1, 8);
  assert_fine(p->context, hark_corpus_read(p->context, corpus, split, 0, count, tokens));
  for (int64_t i = 0; i < count; i++) {
    size_t bytes;
    const char *piece = hark_tokenizer_text(hark_corpus_tokenizer(corpus), tokens[i], &bytes);
    if (tokens[i] == HARK_TOKEN_BEGIN)
      strcat(text, "<b>");
    else
      strncat(text, piece, bytes);
  }
  free(tokens);
  return text;
}

static void lines_are_sentences(void **state) {
  (void)state;
  static const char *const kinds[] = {"characters", "bytes", "subwords"};
  char longer[LONG + 1] = "", blank[LEAST] = "", text[4 * LONG], expected[4 * LONG];
  place p;
  place_open(&p);
  for (int i = 0; i < LONG; i++) longer[i] = i % 7 == 6 ? ' ' : (char)('a' + i % 5);
  memset(blank, ' ', LEAST - 1);
  snprintf(text, sizeof text, "five \xC3\xA9\n%s\n%s\n\n", blank, longer);
  snprintf(expected, sizeof expected, "<b>One two.\n<b>   three\r\n<b>four\n<b>five \xC3\xA9\n<b>%s\n", longer);
  test_file_write_text(p.folder, "shards/a.txt", "\n \t \nOne two.\n\n   three\r\n\r\nfour");
  test_file_write_text(p.folder, "shards/b.txt", text);
  test_file_write_text(p.folder, "shards/c.txt", "");
  for (int k = 0; k < 3; k++) {
    const char *const path = test_path(p.folder, "shards");
    const hark_subword_settings subwords = test_subwords(HARK_SUBWORD_UNIGRAM, 60);
    for (size_t buffer = LEAST; buffer <= 8192; buffer = buffer * 3 / 2 + 1) {
      hark_corpus_settings settings = shards(&p, &path, kinds[k]);
      hark_corpus *corpus;
      settings.buffer_bytes = buffer;
      settings.subwords = k == 2 ? &subwords : NULL;
      assert_fine(p.context, hark_corpus_open(p.context, &settings, &corpus));
      char *shown = show(&p, corpus, HARK_SPLIT_TRAINING);
      assert_string_equal(shown, expected);
      const hark_text_counts counts = hark_corpus_counts(corpus, HARK_SPLIT_TRAINING);
      assert_int_equal(counts.sentences, 5);
      assert_int_equal(counts.blank, 6);
      assert_int_equal(counts.words, 6 + (LONG + 6) / 7);
      assert_int_equal(counts.bytes, strlen(expected) - 5 * strlen("<b>"));
      assert_int_equal(counts.characters, counts.bytes - 1);
      if (k == 1) assert_int_equal(hark_text_targets(&counts), counts.bytes);
      free(shown);
      hark_corpus_close(p.context, &corpus);
      test_folder_remove(p.cache);
    }
  }
  place_close(&p);
}

/* The validation part begins with a line; with and without a fraction that falls into one. */
static void parts_of_the_text_are_whole_lines(void **state) {
  (void)state;
  static const char text[] = "aaaa\nbbbb\ncccc\ndddd\n"; /* 20 bytes */
  static const struct {
    double fraction;
    int64_t training;
  } cases[] = {{0, 4}, {0.05, 4}, {0.2, 4}, {0.25, 3}, {0.3, 3}, {0.5, 2}, {0.51, 2}, {0.95, 1}, {0.99, 0}};
  place p;
  place_open(&p);
  const char *const written = test_file_write_text(p.folder, "text.txt", text);
  char path[TEST_PATH_BYTES];
  snprintf(path, sizeof path, "%s", written);
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    const char *const paths = path;
    hark_corpus_settings settings = shards(&p, &paths, "characters");
    hark_corpus *corpus;
    settings.validation_fraction = cases[i].fraction;
    assert_fine(p.context, hark_corpus_open(p.context, &settings, &corpus));
    assert_int_equal(hark_corpus_counts(corpus, HARK_SPLIT_TRAINING).sentences, cases[i].training);
    assert_int_equal(hark_corpus_counts(corpus, HARK_SPLIT_VALIDATION).sentences, 4 - cases[i].training);
    hark_corpus_close(p.context, &corpus);
  }
  place_close(&p);
}

/* Sentences of random lengths; the same numbers every time. */
static void write_sentences(place *p, int count, char *path) {
  hark_text text = hark_text_empty(p->context);
  for (int i = 0; i < count; i++) {
    const int length = 1 + (i * i * 7 + i * 3) % 23;
    for (int c = 0; c < length; c++) hark_text_append(&text, "%c", 'a' + (i + c) % 26);
    hark_text_append(&text, "\n%s", i % 9 == 4 ? "\n" : "");
  }
  snprintf(path, TEST_PATH_BYTES, "%s", test_file_write_text(p->folder, "sentences.txt", hark_text_get(&text)));
  hark_text_free(&text);
}

typedef struct room {
  int32_t inputs[4096], targets[4096], positions[4096];
  int64_t segments[4096], ranges[1024];
} room;

static hark_example_batch batch_of(room *r) {
  return (hark_example_batch){
      .inputs = r->inputs, .targets = r->targets, .positions = r->positions, .segments = r->segments, .ranges = r->ranges};
}

/* Every window, read in turn, against packing by its definition on the tokens. */
static void packing_is_as_defined(void **state) {
  (void)state;
  static const int64_t contexts[] = {1, 2, 3, 7, 16, 23, 24, 25, 64, 1000};
  place p;
  char path[TEST_PATH_BYTES];
  place_open(&p);
  write_sentences(&p, 150, path);
  const char *const paths = path;
  const hark_corpus_settings settings = shards(&p, &paths, "bytes");
  hark_corpus *corpus;
  assert_fine(p.context, hark_corpus_open(p.context, &settings, &corpus));
  const int64_t all = hark_corpus_counts(corpus, HARK_SPLIT_TRAINING).tokens;
  int32_t *token = malloc((size_t)all * sizeof *token);
  assert_fine(p.context, hark_corpus_read(p.context, corpus, HARK_SPLIT_TRAINING, 0, all, token));
  room *r = malloc(sizeof *r);
  for (size_t c = 0; c < sizeof contexts / sizeof contexts[0]; c++) {
    const int64_t length = contexts[c];
    const hark_sentences_settings how = {.context = length, .order = HARK_ORDER_SEQUENTIAL};
    hark_sentences sentences;
    hark_example_batch batch = batch_of(r);
    assert_fine(p.context, hark_sentences_open(p.context, corpus, &how, &sentences));
    int64_t window = -1, used = length, targets = 0, longer = 0; /* of the definition: where it stands */
    for (int64_t begin = 0, end; begin < all; begin = end) {
      for (end = begin + 1; end < all && token[end] != HARK_TOKEN_BEGIN;) end++;
      const int64_t positions = end - begin - 1;
      longer += positions > length;
      for (int64_t from = 0; from < positions; from += length) {
        const int64_t part = hark_min(length, positions - from);
        const bool first = from == 0 && positions <= length && used + part <= length;
        if (!first) {
          if (window >= 0) assert_int_equal(batch.tokens, used);
          window++;
          used = 0;
          assert_fine(p.context, hark_sentences_read(p.context, &sentences, window, 1, &batch));
          assert_int_equal(hark_sentences_targets(&sentences, window, 1), batch.tokens);
          assert_true(batch.tokens <= length && batch.longest <= length);
          assert_true(batch.segments[batch.tokens - 1] < hark_sentences_most(length));
        }
        for (int64_t i = 0; i < part; i++, used++, targets++) {
          assert_int_equal(batch.inputs[used], token[begin + from + i]);
          assert_int_equal(batch.targets[used], token[begin + from + i + 1]);
          assert_int_equal(batch.positions[used], i);
          assert_int_equal(batch.segments[used], used > 0 ? batch.segments[used - 1] + (i == 0) : 0);
        }
      }
    }
    assert_int_equal(batch.tokens, used);
    assert_int_equal(sentences.windows, window + 1);
    assert_int_equal(sentences.positions, targets);
    assert_int_equal(sentences.cut, longer);
    const hark_text_counts counts = hark_corpus_counts(corpus, HARK_SPLIT_TRAINING);
    assert_int_equal(targets, hark_text_targets(&counts));
    hark_sentences_close(&sentences);
  }
  free(r);
  free(token);
  hark_corpus_close(p.context, &corpus);
  place_close(&p);
}

/* Several windows in a batch are those of each alone, one after the other; every order has every window once an epoch, or draws. */
static void samples_depend_on_their_number(void **state) {
  (void)state;
  enum { ROWS = 5 };
  place p;
  char path[TEST_PATH_BYTES];
  place_open(&p);
  write_sentences(&p, 150, path);
  const char *const paths = path;
  const hark_corpus_settings settings = shards(&p, &paths, "bytes");
  hark_corpus *corpus;
  room *rooms = malloc(2 * sizeof *rooms);
  assert_fine(p.context, hark_corpus_open(p.context, &settings, &corpus));
  for (int order = HARK_ORDER_RANDOM; order <= HARK_ORDER_SEQUENTIAL; order++) {
    const hark_sentences_settings how = {.context = 24, .order = (hark_order)order, .seed = 5};
    hark_sentences sentences;
    hark_example_batch many = batch_of(&rooms[0]), one = batch_of(&rooms[1]);
    assert_fine(p.context, hark_sentences_open(p.context, corpus, &how, &sentences));
    assert_fine(p.context, hark_sentences_read(p.context, &sentences, 1000, ROWS, &many));
    int64_t at = 0;
    for (int row = 0; row < ROWS; row++) {
      assert_fine(p.context, hark_sentences_read(p.context, &sentences, 1000 + row, 1, &one));
      assert_memory_equal(many.inputs + at, one.inputs, (size_t)one.tokens * sizeof(int32_t));
      assert_memory_equal(many.targets + at, one.targets, (size_t)one.tokens * sizeof(int32_t));
      assert_memory_equal(many.positions + at, one.positions, (size_t)one.tokens * sizeof(int32_t));
      assert_int_equal(many.ranges[2 * row], at);
      at += one.tokens;
      assert_int_equal(many.ranges[2 * row + 1], at);
    }
    assert_int_equal(many.tokens, at);
    assert_int_equal(many.real, hark_sentences_targets(&sentences, 1000, ROWS));
    for (int64_t i = 1; i < many.tokens; i++) assert_true(many.segments[i] == many.segments[i - 1] + (many.positions[i] == 0));
    int *seen = calloc((size_t)sentences.windows, sizeof *seen);
    int missing = 0;
    for (int64_t i = 0; i < sentences.windows; i++) seen[hark_sentences_window(&sentences, 3 * sentences.windows + i)]++;
    for (int64_t i = 0; i < sentences.windows; i++) missing += seen[i] == 0;
    assert_true(order == HARK_ORDER_RANDOM ? missing > 0 : missing == 0);
    free(seen);
    assert_failure(p.context, hark_sentences_read(p.context, &sentences, -1, 1, &one), HARK_INVALID_ARGUMENT, "from sample -1");
    hark_sentences_close(&sentences);
  }
  free(rooms);
  hark_corpus_close(p.context, &corpus);
  place_close(&p);
}

static void what_is_refused(void **state) {
  (void)state;
  place p;
  place_open(&p);
  hark_corpus *corpus;
  hark_sentences sentences;
  char folder[TEST_PATH_BYTES];
  test_file_write_text(p.folder, "shards/a.txt", "one\ntwo\n");
  test_file_write_text(p.folder, "shards/b.txt", "\n\nthree\n  \nfour is the longest of all\nfive\n");
  snprintf(folder, sizeof folder, "%s", test_path(p.folder, "shards"));
  const char *paths = folder;
  hark_corpus_settings settings = shards(&p, &paths, "characters");
  hark_sentences_settings how = {.context = 8, .refuse_longer = true};
  assert_fine(p.context, hark_corpus_open(p.context, &settings, &corpus));
  assert_failure(p.context, hark_sentences_open(p.context, corpus, &how, &sentences), HARK_BAD_FILE,
                 "shards/b.txt:5: the sentence has 27 tokens, model.context has room for 8");
  hark_sentences_close(&sentences);
  how.split = HARK_SPLIT_VALIDATION;
  assert_failure(p.context, hark_sentences_open(p.context, corpus, &how, &sentences), HARK_BAD_CONFIGURATION,
                 "the validation text has no sentences");
  how = (hark_sentences_settings){.context = 0};
  assert_failure(p.context, hark_sentences_open(p.context, corpus, &how, &sentences), HARK_INVALID_ARGUMENT, "context");
  hark_corpus_close(p.context, &corpus);
  /* the place in a validation part, which is a document of its own */
  settings.validation_fraction = 0.5;
  settings.division = HARK_DIVIDE_EVERY_FILE;
  assert_fine(p.context, hark_corpus_open(p.context, &settings, &corpus));
  how = (hark_sentences_settings){.split = HARK_SPLIT_VALIDATION, .context = 4, .refuse_longer = true};
  assert_failure(p.context, hark_sentences_open(p.context, corpus, &how, &sentences), HARK_BAD_FILE, "shards/b.txt:6: the sentence has 5");
  hark_sentences_close(&sentences);
  hark_corpus_close(p.context, &corpus);

  test_file_write_text(p.folder, "blank.txt", " \n\t\n\n");
  snprintf(folder, sizeof folder, "%s", test_path(p.folder, "blank.txt"));
  settings = shards(&p, &paths, "bytes");
  assert_failure(p.context, hark_corpus_open(p.context, &settings, &corpus), HARK_BAD_FILE, "blank.txt: has no sentences");
  test_file_write_text(p.folder, "wrong.txt", "fine\n\nnot \xFF\n");
  snprintf(folder, sizeof folder, "%s", test_path(p.folder, "wrong.txt"));
  settings = shards(&p, &paths, "characters");
  assert_failure(p.context, hark_corpus_open(p.context, &settings, &corpus), HARK_BAD_FILE, "wrong.txt:3:5: invalid UTF-8");
  place_close(&p);
}

/* Text and sentences of the same files, and vocabularies of other sizes, have cache files and checksums of their own. */
static void caches_are_reported_apart(void **state) {
  (void)state;
  place p;
  char path[TEST_PATH_BYTES], names[4][TEST_PATH_BYTES];
  uint64_t sums[4];
  place_open(&p);
  write_sentences(&p, 20, path);
  const char *const paths = path;
  for (int i = 0; i < 4; i++) {
    hark_corpus_settings settings = shards(&p, &paths, "subwords");
    const hark_subword_settings subwords = test_subwords(i == 3 ? HARK_SUBWORD_BPE : HARK_SUBWORD_UNIGRAM, i == 2 ? 30 : 40);
    hark_corpus *corpus;
    settings.subwords = &subwords;
    if (i == 1) settings.unit = HARK_UNIT_TEXT;
    for (int again = 0; again < 2; again++) {
      assert_fine(p.context, hark_corpus_open(p.context, &settings, &corpus));
      assert_true(hark_corpus_was_cached(corpus) == (again == 1));
      snprintf(names[i], sizeof names[i], "%s", hark_corpus_cache_path(corpus));
      sums[i] = hark_corpus_checksum(corpus);
      assert_fine(p.context, hark_corpus_verify(p.context, corpus));
      hark_corpus_close(p.context, &corpus);
    }
    for (int j = 0; j < i; j++) {
      assert_string_not_equal(names[i], names[j]);
      assert_true(sums[i] != sums[j]);
    }
  }
  place_close(&p);
}

static void words_have_a_perplexity(void **state) {
  (void)state;
  const hark_text_counts counts = {.tokens = 30, .sentences = 6, .words = 6, .bytes = 96, .characters = 48};
  assert_int_equal(hark_text_targets(&counts), 24);
  assert_true(fabs(hark_word_perplexity(&counts, 0.5) - exp(1.0)) < 1e-12); /* 24 targets, 6 words and the ends of 6 sentences */
  const hark_text_counts text = {.tokens = 24, .words = 12};
  assert_true(fabs(hark_word_perplexity(&text, 0.5) - exp(1.0)) < 1e-12);
  assert_true(fabs(hark_bits_per_byte(&counts, log(2)) - 0.25) < 1e-12);
  assert_true(fabs(hark_bits_per_character(&counts, log(2)) - 0.5) < 1e-12);
  const hark_text_counts none = {.tokens = 3};
  assert_true(hark_word_perplexity(&none, 1) == 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(lines_are_sentences),     cmocka_unit_test(parts_of_the_text_are_whole_lines),
      cmocka_unit_test(packing_is_as_defined),   cmocka_unit_test(samples_depend_on_their_number),
      cmocka_unit_test(what_is_refused),         cmocka_unit_test(caches_are_reported_apart),
      cmocka_unit_test(words_have_a_perplexity),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
