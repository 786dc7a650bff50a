/* test_corpus_cache.c - files of tokens: used again when nothing changed, made anew when something did, damage found, and larger than 4
 * GiB. */
#define _XOPEN_SOURCE 700 /* ftruncate, pwrite */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/core.h"
#include "data/corpora/batches.h"
#include "data/corpora/token_file.h"
#include "support/cmocka_all.h"
#include "support/text_files.h"

#define OLD_SECONDS 1000 /* an age at which times of change can be trusted */

typedef struct fixture {
  test_memory memory;
  hark_context *context;
  char folder[TEST_PATH_BYTES], cache[TEST_PATH_BYTES], text[TEST_PATH_BYTES];
  const char *paths[1];
  hark_corpus_settings settings;
} fixture;

static const char first_text[] = "the first text, with its letters", second_text[] = "the other text, with its letters";

static void fixture_open(fixture *f) {
  f->context = test_memory_context(&f->memory);
  test_folder_make(f->folder);
  snprintf(f->cache, sizeof f->cache, "%s", test_path(f->folder, "cache"));
  snprintf(f->text, sizeof f->text, "%s", test_file_write_text(f->folder, "text", first_text));
  f->paths[0] = f->text;
  f->settings = (hark_corpus_settings){.paths = f->paths, .path_count = 1, .cache_folder = f->cache, .validation_fraction = 0.25};
}

static void fixture_close(fixture *f) {
  test_folder_remove(f->folder);
  test_memory_context_end(f->context, &f->memory);
}

/* Opens; the corpus must be the text `expected`, and made or found. */
static hark_corpus *open_expecting(fixture *f, bool cached, const char *expected) {
  hark_corpus *corpus;
  assert_fine(f->context, hark_corpus_open(f->context, &f->settings, &corpus));
  assert_int_equal(hark_corpus_was_cached(corpus), cached);
  size_t at = 0;
  for (int split = 0; split < HARK_SPLIT_COUNT; split++) {
    const hark_text_counts counts = hark_corpus_counts(corpus, (hark_split)split);
    for (int64_t i = 0; i < counts.tokens; i++, at++) {
      int32_t token;
      size_t bytes;
      assert_fine(f->context, hark_corpus_read(f->context, corpus, (hark_split)split, i, 1, &token));
      if (expected[at] != *hark_tokenizer_text(hark_corpus_tokenizer(corpus), token, &bytes)) fail_msg("not the text at %zu", at);
    }
  }
  assert_int_equal(at, strlen(expected));
  return corpus;
}

static void expect(fixture *f, bool cached, const char *expected) {
  hark_corpus *corpus = open_expecting(f, cached, expected);
  hark_corpus_close(f->context, &corpus);
}

static void unchanged_text_is_read_once(void **state) {
  (void)state;
  fixture f;
  fixture_open(&f);
  expect(&f, false, first_text);
  expect(&f, true, first_text); /* new file: the contents are compared */
  test_file_age(f.text, OLD_SECONDS);
  expect(&f, true, first_text); /* other time, same contents */
  f.settings.validation_fraction = 0.5;
  expect(&f, false, first_text);
  expect(&f, true, first_text);
  f.settings.tokenizer_kind = "bytes";
  expect(&f, false, first_text);
  f.settings.tokenizer_kind = NULL;
  f.settings.unknown = HARK_UNKNOWN_IS_MAPPED;
  expect(&f, false, first_text);
  f.settings.unknown = HARK_UNKNOWN_IS_ERROR;
  expect(&f, true, first_text);
  fixture_close(&f);
}

/* A change within one tick of the file system's clock leaves the time as it was: a recent time alone is not believed. */
static void recent_times_are_not_believed(void **state) {
  (void)state;
  fixture f;
  fixture_open(&f);
  hark_source_list sources = {0};
  assert_fine(f.context, hark_sources_find(f.context, &f.settings, &sources));
  expect(&f, false, first_text);
  test_file_write_text(f.folder, "text", second_text);
  test_file_set_time(f.text, sources.items[0].modified_seconds, sources.items[0].modified_nanoseconds);
  expect(&f, false, second_text);
  hark_sources_free(f.context, &sources);
  fixture_close(&f);
}

static void changed_text_is_read_again(void **state) {
  (void)state;
  fixture f;
  fixture_open(&f);
  expect(&f, false, first_text);
  test_file_write_text(f.folder, "text", second_text); /* as long, within the grain of time */
  expect(&f, false, second_text);
  expect(&f, true, second_text);
  test_file_write_text(f.folder, "text", "shorter");
  expect(&f, false, "shorter");
  assert_int_equal(rename(f.text, test_path(f.folder, "text2")), 0);
  hark_corpus *corpus;
  assert_failure(f.context, hark_corpus_open(f.context, &f.settings, &corpus), HARK_NOT_FOUND, "/text: ");
  fixture_close(&f);
}

/* What makes opening quick: an old time of change is believed. The test changes the text but not its time and sees the old tokens. */
static void old_times_are_believed(void **state) {
  (void)state;
  fixture f;
  fixture_open(&f);
  test_file_age(f.text, OLD_SECONDS);
  expect(&f, false, first_text);
  hark_source_list sources = {0};
  assert_fine(f.context, hark_sources_find(f.context, &f.settings, &sources));
  test_file_write_text(f.folder, "text", second_text);
  test_file_set_time(f.text, sources.items[0].modified_seconds, sources.items[0].modified_nanoseconds);
  expect(&f, true, first_text);
  test_file_age(f.text, OLD_SECONDS - 5);
  expect(&f, false, second_text);
  hark_sources_free(f.context, &sources);
  fixture_close(&f);
}

/* A run that resumes gives the vocabulary that it stored, and finds the tokens that were made without one. */
static void a_stored_vocabulary_finds_the_tokens(void **state) {
  (void)state;
  fixture f;
  fixture_open(&f);
  const char *path = test_path(f.folder, "vocabulary.json");
  hark_corpus *corpus = open_expecting(&f, false, first_text);
  hark_tokenizer *tokenizer, *other;
  assert_fine(f.context, hark_tokenizer_save(f.context, hark_corpus_tokenizer(corpus), path));
  assert_fine(f.context, hark_tokenizer_load(f.context, path, &tokenizer));
  hark_corpus_close(f.context, &corpus);
  f.settings.tokenizer = tokenizer;
  expect(&f, true, first_text);
  /* A vocabulary that has more has tokens of its own, which do not replace the others. */
  size_t consumed;
  hark_text_fault fault;
  static const char alphabet[] = "abcdefghijklmnopqrstuvwxyz ,";
  assert_fine(f.context, hark_tokenizer_create(f.context, "characters", &other));
  assert_fine(f.context, hark_tokenizer_learn(f.context, other, alphabet, sizeof alphabet - 1, true, &consumed, &fault));
  assert_fine(f.context, hark_tokenizer_finish(f.context, other));
  f.settings.tokenizer = other;
  expect(&f, false, first_text);
  expect(&f, true, first_text);
  f.settings.tokenizer = tokenizer;
  expect(&f, true, first_text);
  f.settings.tokenizer = NULL;
  expect(&f, true, first_text);
  hark_tokenizer_destroy(f.context, &tokenizer);
  hark_tokenizer_destroy(f.context, &other);
  fixture_close(&f);
}

/* Whether the file can be opened at all; cheaper than a corpus, which would make it anew. */
static hark_status open_index(fixture *f, const char *path) {
  hark_token_file_info info;
  unsigned char *index;
  size_t index_bytes;
  int file;
  uint64_t size;
  assert_fine(f->context, hark_file_open(f->context, path, &file, &size));
  const hark_status status = hark_token_file_read_index(f->context, file, path, size, &info, &index, &index_bytes);
  hark_release(f->context, index, index_bytes);
  hark_file_close(&file);
  return status;
}

/* Every byte of the file is guarded: a change in header, index or trailer makes opening fail, so that the tokens are made anew (tried for
 * every 101st byte, for it takes its time); in the tokens it is found by verify, and by reading when the token is none of the
 * vocabulary's. */
static void damage_is_found(void **state) {
  (void)state;
  fixture f;
  fixture_open(&f);
  hark_corpus *corpus = open_expecting(&f, false, first_text);
  char path[TEST_PATH_BYTES];
  snprintf(path, sizeof path, "%s", hark_corpus_cache_path(corpus));
  const hark_text_counts training = hark_corpus_counts(corpus, HARK_SPLIT_TRAINING);
  const int64_t vocabulary = hark_tokenizer_size(hark_corpus_tokenizer(corpus));
  hark_corpus_close(f.context, &corpus);
  size_t bytes;
  unsigned char *good = test_file_read(path, &bytes);
  const size_t tokens_end = HARK_TOKEN_FILE_HEADER_BYTES + sizeof first_text - 1;
  for (size_t at = 0; at < bytes; at++) {
    const unsigned char kept = good[at];
    good[at] ^= (unsigned char)(1u << (at % 8));
    test_file_write(f.folder, path + strlen(f.folder) + 1, good, bytes);
    const unsigned char changed = good[at];
    good[at] = kept;
    if (at < HARK_TOKEN_FILE_HEADER_BYTES || at >= tokens_end) {
      assert_failure(f.context, open_index(&f, path), HARK_BAD_FILE, path);
      if (at % 101 == 0) expect(&f, false, first_text);
      continue;
    }
    assert_fine(f.context, hark_corpus_open(f.context, &f.settings, &corpus));
    assert_true(hark_corpus_was_cached(corpus));
    int32_t token;
    const int64_t number = (int64_t)(at - HARK_TOKEN_FILE_HEADER_BYTES);
    const hark_split split = number < training.tokens ? HARK_SPLIT_TRAINING : HARK_SPLIT_VALIDATION;
    const hark_status status =
        hark_corpus_read(f.context, corpus, split, number - (split == HARK_SPLIT_TRAINING ? 0 : training.tokens), 1, &token);
    if (changed >= vocabulary)
      assert_failure(f.context, status, HARK_BAD_FILE, "not in the vocabulary");
    else
      assert_fine(f.context, status);
    assert_failure(f.context, hark_corpus_verify(f.context, corpus), HARK_BAD_FILE, "delete it");
    hark_corpus_close(f.context, &corpus);
  }
  for (size_t part = 0; part < bytes; part++) {
    test_file_write(f.folder, path + strlen(f.folder) + 1, good, part);
    assert_failure(f.context, open_index(&f, path), HARK_BAD_FILE, path);
  }
  expect(&f, false, first_text);
  /* Cut while it is open: a read says so. */
  test_file_write(f.folder, path + strlen(f.folder) + 1, good, bytes);
  corpus = open_expecting(&f, true, first_text);
  assert_int_equal(truncate(path, HARK_TOKEN_FILE_HEADER_BYTES + 4), 0);
  int32_t tokens[8];
  assert_fine(f.context, hark_corpus_read(f.context, corpus, HARK_SPLIT_TRAINING, 0, 4, tokens));
  assert_failure(f.context, hark_corpus_read(f.context, corpus, HARK_SPLIT_TRAINING, 0, 8, tokens), HARK_BAD_FILE, "ends at byte");
  hark_corpus_close(f.context, &corpus);
  free(good);
  fixture_close(&f);
}

/* Files whose checksums are right and whose contents are not: made by the functions that write them, from wrong information. */
static void contradictions_are_refused(void **state) {
  (void)state;
  static const struct {
    hark_token_document document;
    int64_t vocabulary_size, offset;
    hark_status status;
  } cases[] = {
      {{.bytes = 4, .count = 4}, 20, 16, HARK_OK},
      {{.bytes = 4, .count = 3}, 20, 16, HARK_BAD_FILE},
      {{.bytes = 4, .count = 5}, 20, 16, HARK_BAD_FILE},
      {{.bytes = 4, .first = 1, .count = 4}, 20, 16, HARK_BAD_FILE},
      {{.bytes = 4, .first = -1, .count = 4}, 20, 16, HARK_BAD_FILE},
      {{.bytes = -4, .count = 4}, 20, 16, HARK_BAD_FILE},
      {{.bytes = 4, .count = 4, .source = 1}, 20, 16, HARK_BAD_FILE},
      {{.bytes = 4, .count = 4, .source = -1}, 20, 16, HARK_BAD_FILE},
      {{.bytes = 4, .count = 4}, 257, 16, HARK_BAD_FILE}, /* would need two bytes a token */
      {{.bytes = 4, .count = 4}, 0, 16, HARK_BAD_FILE},   /* no tokens */
      {{.bytes = 4, .count = 4}, 20, 17, HARK_BAD_FILE},
  };
  fixture f;
  fixture_open(&f);
  hark_source_list sources = {0};
  assert_fine(f.context, hark_sources_find(f.context, &f.settings, &sources));
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    const char *path = test_path(f.folder, "tokens");
    hark_token_file_info info = {.token_bytes = 1, .vocabulary_size = cases[i].vocabulary_size};
    info.split[HARK_SPLIT_TRAINING] = (hark_token_split){.offset = cases[i].offset, .counts = {.tokens = 4, .documents = 1}};
    info.split[HARK_SPLIT_VALIDATION].offset = HARK_TOKEN_FILE_HEADER_BYTES + 4;
    hark_writer writer = {0};
    assert_fine(f.context, hark_writer_open(f.context, &writer, path));
    assert_fine(f.context, hark_token_file_write_header(f.context, &writer, 1));
    assert_fine(f.context, hark_writer_append(f.context, &writer, "\5\5\5\5", 4));
    assert_fine(f.context, hark_token_file_write_index(f.context, &writer, &info, &cases[i].document, &sources, "{}", 2));
    assert_fine(f.context, hark_writer_commit(f.context, &writer, NULL));
    if (open_index(&f, path) != cases[i].status) fail_msg("case %zu: %s", i, hark_context_message(f.context));
  }
  hark_sources_free(f.context, &sources);
  fixture_close(&f);
}

/* A sparse file of 5 * 2^30 tokens in the place of the cache: counts, windows and evaluation beyond 32 bits, by reads alone. */
static void corpora_may_be_larger_than_memory(void **state) {
  (void)state;
  const int64_t tokens = (int64_t)5 << 30, marked = ((int64_t)9 << 29) + 12345;
  static const unsigned char mark[4] = {7, 6, 5, 6};
  fixture f;
  fixture_open(&f);
  f.settings.validation_fraction = 0;
  hark_corpus *corpus = open_expecting(&f, false, first_text);
  const hark_tokenizer *own = hark_corpus_tokenizer(corpus);
  hark_source_list sources = {0};
  assert_fine(f.context, hark_sources_find(f.context, &f.settings, &sources));
  assert_fine(f.context, hark_source_checksum(f.context, &sources.items[0], (char[64]){0}, 64, &sources.items[0].checksum));
  char *vocabulary;
  size_t vocabulary_bytes;
  assert_fine(f.context, hark_tokenizer_print(f.context, own, &vocabulary, &vocabulary_bytes));
  hark_token_file_info info = {
      .token_bytes = 1, .vocabulary_size = hark_tokenizer_size(own), .vocabulary_checksum = hark_tokenizer_checksum(own)};
  hark_token_split *training = &info.split[HARK_SPLIT_TRAINING];
  training->offset = HARK_TOKEN_FILE_HEADER_BYTES;
  training->counts = (hark_text_counts){.tokens = tokens, .bytes = tokens, .characters = tokens, .documents = 1};
  info.split[HARK_SPLIT_VALIDATION].offset = HARK_TOKEN_FILE_HEADER_BYTES + tokens;
  const hark_token_document document = {.bytes = tokens, .count = tokens};
  hark_writer writer = {0};
  assert_fine(f.context, hark_writer_open(f.context, &writer, hark_corpus_cache_path(corpus)));
  assert_fine(f.context, hark_token_file_write_header(f.context, &writer, 1));
  /* A hole instead of tokens: they read as 0, padding. */
  assert_int_equal(pwrite(writer.descriptor, mark, sizeof mark, HARK_TOKEN_FILE_HEADER_BYTES + marked), sizeof mark);
  assert_true(lseek(writer.descriptor, HARK_TOKEN_FILE_HEADER_BYTES + tokens, SEEK_SET) > 0);
  writer.bytes += (uint64_t)tokens;
  assert_fine(f.context, hark_token_file_write_index(f.context, &writer, &info, &document, &sources, vocabulary, vocabulary_bytes));
  assert_fine(f.context, hark_writer_commit(f.context, &writer, NULL));
  hark_release(f.context, vocabulary, vocabulary_bytes);
  hark_sources_free(f.context, &sources);
  hark_corpus_close(f.context, &corpus);

  assert_fine(f.context, hark_corpus_open(f.context, &f.settings, &corpus));
  assert_true(hark_corpus_was_cached(corpus));
  assert_true(hark_corpus_counts(corpus, HARK_SPLIT_TRAINING).tokens == tokens);
  int32_t inputs[6], targets[6];
  int64_t real;
  assert_fine(f.context, hark_corpus_read(f.context, corpus, HARK_SPLIT_TRAINING, marked - 1, 6, inputs));
  assert_memory_equal(inputs, ((int32_t[]){0, 7, 6, 5, 6, 0}), sizeof inputs);
  hark_evaluation evaluation;
  const hark_evaluation_settings threes = {.split = HARK_SPLIT_TRAINING, .context = 3};
  assert_fine(f.context, hark_evaluation_create(f.context, corpus, &threes, &evaluation));
  assert_true(evaluation.windows == (tokens - 1 + 2) / 3);
  assert_fine(f.context, hark_evaluation_read(f.context, &evaluation, marked / 3, 2, inputs, targets, &real));
  for (int i = 0; i < 6; i++) { /* the two windows from place marked / 3 * 3 on */
    const int64_t place = marked / 3 * 3 + i;
    assert_int_equal(inputs[i], place >= marked && place < marked + 4 ? mark[place - marked] : 0);
  }
  for (int order = 0; order < 3; order++)
    for (int epoch = 0; epoch < 2; epoch++) {
      hark_batches batches;
      const hark_batches_settings settings = {.context = 3, .order = (hark_order)order, .epoch = (hark_epoch_unit)epoch, .seed = 1};
      assert_fine(f.context, hark_batches_create(f.context, corpus, &settings, &batches));
      assert_true(batches.samples_per_epoch > (int64_t)1 << 30);
      int beyond = 0; /* windows that start where 32 bits do not reach: a fifth of them */
      for (int64_t i = 0; i < 100; i++) beyond += hark_batches_start(&batches, batches.samples_per_epoch - 50 + i) > (int64_t)1 << 32;
      assert_true(beyond >= 2 && beyond <= 50); /* sequential: the 50 before the end of the epoch */
      assert_fine(f.context, hark_batches_read(f.context, &batches, batches.samples_per_epoch - 1, 2, inputs, targets));
    }
  hark_corpus_close(f.context, &corpus);
  fixture_close(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(unchanged_text_is_read_once),          cmocka_unit_test(changed_text_is_read_again),
      cmocka_unit_test(recent_times_are_not_believed),        cmocka_unit_test(old_times_are_believed),
      cmocka_unit_test(a_stored_vocabulary_finds_the_tokens), cmocka_unit_test(damage_is_found),
      cmocka_unit_test(contradictions_are_refused),           cmocka_unit_test(corpora_may_be_larger_than_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
