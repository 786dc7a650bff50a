/* test_statistics.c - entropies of texts whose entropies are known, and of random text against a table of all pairs. */
#include <float.h>
#include <hark/random.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/corpora/statistics.h"
#include "support/cmocka_all.h"
#include "support/text_files.h"
#include "tokenizers/utf8.h"

typedef struct fixture {
  test_memory memory;
  hark_context *context;
  char folder[TEST_PATH_BYTES];
} fixture;

static void fixture_open(fixture *f) {
  f->context = test_memory_context(&f->memory);
  test_folder_make(f->folder);
}

static void fixture_close(fixture *f) {
  test_folder_remove(f->folder);
  test_memory_context_end(f->context, &f->memory);
}

static hark_text_statistics measure(fixture *f, const void *text, size_t bytes) {
  const char *paths[] = {test_file_write(f->folder, "text", text, bytes)};
  const hark_corpus_settings settings = {.paths = paths, .path_count = 1, .cache_folder = f->folder};
  hark_corpus *corpus;
  hark_text_statistics statistics, empty;
  assert_fine(f->context, hark_corpus_open(f->context, &settings, &corpus));
  assert_fine(f->context, hark_statistics_measure(f->context, corpus, HARK_SPLIT_TRAINING, &statistics));
  assert_fine(f->context, hark_statistics_measure(f->context, corpus, HARK_SPLIT_VALIDATION, &empty));
  assert_true(empty.tokens == 0 && empty.distinct_tokens == 0 && empty.entropy == 0.0 && empty.pair_entropy == 0.0);
  hark_corpus_close(f->context, &corpus);
  return statistics;
}

/* Sums of a handful of terms below 10 are right to this. */
static void assert_near(double value, double expected) {
  if (!(fabs(value - expected) <= 64 * DBL_EPSILON)) fail_msg("%.17g, expected %.17g", value, expected);
}

static void known_texts_have_known_entropies(void **state) {
  (void)state;
  static const struct {
    const char *text;
    int64_t tokens, distinct, pairs;
    double entropy, pair_entropy; /* in bits */
  } cases[] = {
      {"a", 1, 1, 0, 0, 0},
      {"aaaaaaaa", 8, 1, 1, 0, 0},
      {"abababab", 8, 2, 2, 1, 0},
      {"aabba", 5, 2, 4, 0.97095059445466864, 1}, /* pairs aa ab bb ba, each once: what follows is even; 3 a, 2 b */
      {"abcdabcdabcd", 12, 4, 4, 2, 0},
      {"aaab", 4, 2, 2, 0.81127812445913283, 0.91829583405448956}, /* H(1/4); aa twice, ab once: H(1/3) */
  };
  fixture f;
  fixture_open(&f);
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    const hark_text_statistics s = measure(&f, cases[i].text, strlen(cases[i].text));
    assert_int_equal(s.tokens, cases[i].tokens);
    assert_int_equal(s.distinct_tokens, cases[i].distinct);
    assert_int_equal(s.distinct_pairs, cases[i].pairs);
    assert_near(s.entropy / log(2), cases[i].entropy);
    assert_near(s.pair_entropy / log(2), cases[i].pair_entropy);
  }
  fixture_close(&f);
}

/* 300 characters, 100,000 tokens over several parts: about 60,000 distinct pairs make the table of pairs grow four times. */
static void many_pairs_are_counted(void **state) {
  (void)state;
  enum { SYMBOLS = 300, TOKENS = 100000 };
  const hark_random_stream random = {.seed = 8, .layer_purpose = hark_random_layer_purpose(0, HARK_RANDOM_TEST)};
  char *text = malloc(TOKENS * HARK_UTF8_MAX_BYTES);
  double *pairs = calloc(SYMBOLS * SYMBOLS, sizeof *pairs), *firsts = calloc(SYMBOLS, sizeof *firsts),
         *singles = calloc(SYMBOLS, sizeof *singles);
  assert_true(text != NULL && pairs != NULL && firsts != NULL && singles != NULL);
  size_t bytes = 0;
  uint32_t previous = 0;
  for (int i = 0; i < TOKENS; i++) {
    const uint32_t symbol = (uint32_t)(((uint64_t)hark_random_word(&random, (uint64_t)i) * SYMBOLS) >> 32);
    bytes += hark_utf8_encode(0x400 + symbol, text + bytes);
    singles[symbol]++;
    if (i > 0) {
      pairs[previous * SYMBOLS + symbol]++;
      firsts[previous]++;
    }
    previous = symbol;
  }
  double entropy = 0, pair_entropy = 0;
  int64_t distinct_pairs = 0;
  for (int a = 0; a < SYMBOLS; a++) {
    if (singles[a] > 0) entropy -= singles[a] / TOKENS * log(singles[a] / TOKENS);
    for (int b = 0; b < SYMBOLS; b++) {
      const double n = pairs[a * SYMBOLS + b];
      if (n == 0) continue;
      distinct_pairs++;
      pair_entropy -= n / (TOKENS - 1) * log(n / firsts[a]);
    }
  }
  fixture f;
  fixture_open(&f);
  const hark_text_statistics s = measure(&f, text, bytes);
  assert_int_equal(s.tokens, TOKENS);
  assert_int_equal(s.distinct_tokens, SYMBOLS);
  assert_int_equal(s.distinct_pairs, distinct_pairs);
  assert_true(distinct_pairs > 32768);
  /* Sums of 300 and of 60,000 positive terms in another order: each addition errs by DBL_EPSILON / 2 of a sum below 10. */
  assert_true(fabs(s.entropy - entropy) < 300 * 10 * DBL_EPSILON);
  assert_true(fabs(s.pair_entropy - pair_entropy) < 60000.0 * 10 * DBL_EPSILON);
  fixture_close(&f);
  free(text);
  free(pairs);
  free(firsts);
  free(singles);
}

static void memory_may_run_out(void **state) {
  (void)state;
  fixture f;
  fixture_open(&f);
  const char *paths[] = {test_file_write_text(f.folder, "text", "some text")};
  const hark_corpus_settings settings = {.paths = paths, .path_count = 1, .cache_folder = f.folder};
  hark_corpus *corpus;
  hark_text_statistics statistics;
  assert_fine(f.context, hark_corpus_open(f.context, &settings, &corpus));
  for (long n = 1; n <= 3; n++) {
    f.memory.fail_at = f.memory.allocations + n;
    const size_t live = f.memory.live_bytes;
    assert_failure(f.context, hark_statistics_measure(f.context, corpus, HARK_SPLIT_TRAINING, &statistics), HARK_OUT_OF_MEMORY, "memory");
    assert_int_equal(f.memory.live_bytes, live);
  }
  f.memory.fail_at = 0;
  assert_fine(f.context, hark_statistics_measure(f.context, corpus, HARK_SPLIT_TRAINING, &statistics));
  hark_corpus_close(f.context, &corpus);
  fixture_close(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(known_texts_have_known_entropies),
      cmocka_unit_test(many_pairs_are_counted),
      cmocka_unit_test(memory_may_run_out),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
