/* test_corpus.c - text files to splits of tokens: division, order of folders, what is refused and where, bounded memory, fault
 * injection. */
#define _XOPEN_SOURCE 700 /* symlink, mkfifo */
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/core.h"
#include "data/corpora/corpus.h"
#include "support/cmocka_all.h"
#include "support/text_files.h"
#include "tokenizers/utf8.h"

typedef struct fixture {
  test_memory memory;
  hark_context *context;
  char folder[TEST_PATH_BYTES];
  char cache[TEST_PATH_BYTES];
} fixture;

static void fixture_open(fixture *f) {
  f->context = test_memory_context(&f->memory);
  test_folder_make(f->folder);
  snprintf(f->cache, sizeof f->cache, "%s", test_path(f->folder, ".cache"));
}

static void fixture_close(fixture *f) {
  test_folder_remove(f->folder);
  test_memory_context_end(f->context, &f->memory);
}

static hark_corpus_settings whole_text(const fixture *f, const char *const *paths, int count) {
  return (hark_corpus_settings){.paths = paths, .path_count = count, .cache_folder = f->cache};
}

static hark_corpus *open_corpus(const fixture *f, const hark_corpus_settings *settings) {
  hark_corpus *corpus;
  assert_fine(f->context, hark_corpus_open(f->context, settings, &corpus));
  assert_fine(f->context, hark_corpus_verify(f->context, corpus));
  return corpus;
}

/* The text of a split, terminated, for free(); its tokens, bytes and characters must be as many as the counts say. */
static char *text_of(const fixture *f, const hark_corpus *corpus, hark_split split) {
  const hark_text_counts counts = hark_corpus_counts(corpus, split);
  int32_t *tokens = malloc((size_t)(counts.tokens + 1) * sizeof *tokens);
  char *text = malloc((size_t)counts.tokens * HARK_UTF8_MAX_BYTES + 1);
  assert_true(tokens != NULL && text != NULL);
  size_t length = 0;
  int64_t characters = 0;
  assert_fine(f->context, hark_corpus_read(f->context, corpus, split, 0, counts.tokens, tokens));
  for (int64_t i = 0; i < counts.tokens; i++) {
    size_t bytes;
    const char *symbol = hark_tokenizer_text(hark_corpus_tokenizer(corpus), tokens[i], &bytes);
    memcpy(text + length, symbol, bytes);
    length += bytes;
  }
  for (size_t i = 0; i < length; i++) characters += hark_utf8_is_lead((unsigned char)text[i]);
  text[length] = '\0';
  assert_int_equal(length, counts.bytes);
  assert_int_equal(characters, counts.characters);
  free(tokens);
  return text;
}

static void assert_split(const fixture *f, const hark_corpus *corpus, hark_split split, const char *expected) {
  char *text = text_of(f, corpus, split);
  assert_string_equal(text, expected);
  free(text);
}

static void text_is_divided(void **state) {
  (void)state;
  fixture f;
  fixture_open(&f);
  const char *paths[] = {test_file_write_text(f.folder, "b", "0123456789"), test_file_write_text(f.folder, "a", "abcdefghijklmnopqrst")};
  hark_corpus_settings settings = whole_text(&f, paths, 2);
  static const struct {
    hark_division division;
    double fraction;
    const char *training, *validation;
    int training_documents, validation_documents;
  } cases[] = {
      {HARK_DIVIDE_TAIL, 0.0, "0123456789abcdefghijklmnopqrst", "", 2, 0},
      {HARK_DIVIDE_TAIL, 0.1, "0123456789abcdefghijklmnopq", "rst", 2, 1},
      {HARK_DIVIDE_TAIL, 0.5, "0123456789abcde", "fghijklmnopqrst", 2, 1},
      {HARK_DIVIDE_TAIL, 0.8, "012345", "6789abcdefghijklmnopqrst", 1, 2},
      {HARK_DIVIDE_TAIL, 0.99, "", "0123456789abcdefghijklmnopqrst", 0, 2},
      {HARK_DIVIDE_EVERY_FILE, 0.1, "012345678abcdefghijklmnopqr", "9st", 2, 2},
      {HARK_DIVIDE_EVERY_FILE, 0.5, "01234abcdefghij", "56789klmnopqrst", 2, 2},
      {HARK_DIVIDE_EVERY_FILE, 0.0, "0123456789abcdefghijklmnopqrst", "", 2, 0},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    settings.division = cases[i].division;
    settings.validation_fraction = cases[i].fraction;
    hark_corpus *corpus = open_corpus(&f, &settings);
    assert_split(&f, corpus, HARK_SPLIT_TRAINING, cases[i].training);
    assert_split(&f, corpus, HARK_SPLIT_VALIDATION, cases[i].validation);
    assert_int_equal(hark_corpus_counts(corpus, HARK_SPLIT_TRAINING).documents, cases[i].training_documents);
    assert_int_equal(hark_corpus_counts(corpus, HARK_SPLIT_VALIDATION).documents, cases[i].validation_documents);
    hark_corpus_close(f.context, &corpus);
  }
  settings = (hark_corpus_settings){.paths = paths,
                                    .path_count = 1,
                                    .validation_paths = paths + 1,
                                    .validation_path_count = 1,
                                    .division = HARK_DIVIDE_FILES,
                                    .cache_folder = f.cache};
  hark_corpus *corpus = open_corpus(&f, &settings);
  assert_split(&f, corpus, HARK_SPLIT_TRAINING, "0123456789");
  assert_split(&f, corpus, HARK_SPLIT_VALIDATION, "abcdefghijklmnopqrst");
  assert_int_equal(hark_tokenizer_size(hark_corpus_tokenizer(corpus)), HARK_TOKEN_RESERVED + 30);
  hark_corpus_close(f.context, &corpus);
  fixture_close(&f);
}

/* Wherever a boundary falls in characters of one to four bytes: nothing is lost, each part is valid, and the boundary moves up only. */
static void boundaries_fall_between_characters(void **state) {
  (void)state;
  static const char text[] =
      "a\xC3\xA9\xE6\x97\xA5\xF0\x9D\x84\x9E"
      "b\xF0\x9D\x84\x9E\xE6\x97\xA5\xC3\xA9"
      "a";
  const int bytes = (int)sizeof text - 1;
  fixture f;
  fixture_open(&f);
  const char *paths[] = {test_file_write_text(f.folder, "text", text)};
  hark_corpus_settings settings = whole_text(&f, paths, 1);
  for (int kept = 1; kept <= bytes; kept++) {
    settings.validation_fraction = 1.0 - (kept + 0.5) / bytes; /* floor() gives kept */
    if (settings.validation_fraction < 0) settings.validation_fraction = 0;
    int boundary = kept;
    while (boundary < bytes && !hark_utf8_is_lead((unsigned char)text[boundary])) boundary++;
    hark_corpus *corpus = open_corpus(&f, &settings);
    char *training = text_of(&f, corpus, HARK_SPLIT_TRAINING), *validation = text_of(&f, corpus, HARK_SPLIT_VALIDATION);
    assert_int_equal(strlen(training), boundary);
    assert_int_equal(strlen(validation), bytes - boundary);
    assert_memory_equal(training, text, (size_t)boundary);
    assert_string_equal(validation, text + boundary);
    free(training);
    free(validation);
    hark_corpus_close(f.context, &corpus);
  }
  fixture_close(&f);
}

static void folders_are_walked_in_order(void **state) {
  (void)state;
  fixture f;
  fixture_open(&f);
  char top[TEST_PATH_BYTES];
  snprintf(top, sizeof top, "%s", test_path(f.folder, "text"));
  test_file_write_text(top, "b.txt", "3");
  test_file_write_text(top, "a/z.txt", "2");
  test_file_write_text(top, "a.txt", "1");
  test_file_write_text(top, "a/deeper/x.md", "m");
  test_file_write_text(top, "\xC3\xA9.txt", "5");
  test_file_write_text(top, "c.TXT", "4");
  test_file_write_text(top, ".hidden.txt", "h");
  test_file_write_text(top, ".git/x.txt", "g");
  test_file_write_text(f.folder, "elsewhere.txt", "3");
  assert_int_equal(symlink("../elsewhere.txt", test_path(top, "link.txt")), 0);
  assert_int_equal(symlink("..", test_path(top, "a/up")), 0);
  assert_int_equal(mkfifo(test_path(top, "pipe.txt"), 0600), 0);
  const char *paths[] = {top};
  hark_corpus_settings settings = whole_text(&f, paths, 1);
  hark_corpus *corpus = open_corpus(&f, &settings);
  /* By bytes of the path: "a.txt" < "a/deeper" < "a/z" < "b" < "c" < "link" < e acute; the link is followed, folders that links name are
   * not. */
  assert_split(&f, corpus, HARK_SPLIT_TRAINING,
               "1m2343"
               "5");
  hark_document document;
  assert_fine(f.context, hark_corpus_document(f.context, corpus, HARK_SPLIT_TRAINING, 2, &document));
  assert_non_null(strstr(document.path, "/text/a/z.txt"));
  assert_int_equal(document.first, 2);
  assert_int_equal(document.count, 1);
  assert_failure(f.context, hark_corpus_document(f.context, corpus, HARK_SPLIT_TRAINING, 7, &document), HARK_INVALID_ARGUMENT,
                 "document 7");
  hark_corpus_close(f.context, &corpus);

  const char *suffixes[] = {".md", ".TXT"};
  settings.suffixes = suffixes;
  settings.suffix_count = 2;
  corpus = open_corpus(&f, &settings);
  assert_split(&f, corpus, HARK_SPLIT_TRAINING, "m4");
  hark_corpus_close(f.context, &corpus);
  suffixes[0] = suffixes[1] = ".none";
  assert_failure(f.context, hark_corpus_open(f.context, &settings, &corpus), HARK_NOT_FOUND, "holds no text");

  const char *several[] = {test_path(top, "b.txt"), test_path(top, "a"), test_path(top, "c.TXT")};
  settings = whole_text(&f, several, 3);
  corpus = open_corpus(&f, &settings);
  assert_split(&f, corpus, HARK_SPLIT_TRAINING, "3m24");
  hark_corpus_close(f.context, &corpus);
  several[2] = several[0];
  assert_failure(f.context, hark_corpus_open(f.context, &settings, &corpus), HARK_BAD_CONFIGURATION, "b.txt: is given twice");
  settings.known = true; /* a run was begun so */
  corpus = open_corpus(&f, &settings);
  assert_split(&f, corpus, HARK_SPLIT_TRAINING, "3m23");
  hark_corpus_close(f.context, &corpus);
  fixture_close(&f);
}

static void documents_are_kept(void **state) {
  (void)state;
  fixture f;
  fixture_open(&f);
  const char *paths[] = {test_file_write_text(f.folder, "a", "xy\xC3\xA9z"), test_file_write_text(f.folder, "b", ""),
                         test_file_write_text(f.folder, "c", "0123456789")};
  hark_corpus_settings settings = whole_text(&f, paths, 3);
  settings.division = HARK_DIVIDE_EVERY_FILE;
  settings.validation_fraction = 0.5;
  hark_corpus *corpus = open_corpus(&f, &settings);
  static const struct {
    hark_split split;
    int64_t index, byte_offset, bytes, first, count;
  } expected[] = {
      {HARK_SPLIT_TRAINING, 0, 0, 2, 0, 2},   {HARK_SPLIT_TRAINING, 1, 0, 0, 2, 0},   {HARK_SPLIT_TRAINING, 2, 0, 5, 2, 5},
      {HARK_SPLIT_VALIDATION, 0, 2, 3, 0, 2}, {HARK_SPLIT_VALIDATION, 1, 5, 5, 2, 5},
  };
  for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
    hark_document document;
    assert_fine(f.context, hark_corpus_document(f.context, corpus, expected[i].split, expected[i].index, &document));
    assert_int_equal(document.byte_offset, expected[i].byte_offset);
    assert_int_equal(document.bytes, expected[i].bytes);
    assert_int_equal(document.first, expected[i].first);
    assert_int_equal(document.count, expected[i].count);
  }
  hark_corpus_close(f.context, &corpus);
  fixture_close(&f);
}

/* Length of the text before the fault; with a buffer of 16 bytes the fault comes at every place of a part. */
static void faults_have_a_place(void **state) {
  (void)state;
  fixture f;
  fixture_open(&f);
  for (int before = 0; before < 40; before++) {
    char text[128], message[256];
    const int line_break = before / 2;
    memset(text, 'x', sizeof text);
    text[line_break] = '\n';
    memcpy(text + before + 1, "\xED\xA0\x80", 3);
    const char *paths[] = {test_file_write(f.folder, "bad", text, sizeof text)};
    hark_corpus_settings settings = whole_text(&f, paths, 1);
    settings.buffer_bytes = before % 2 == 0 ? 16 : 0;
    hark_corpus *corpus;
    snprintf(message, sizeof message, "/bad:2:%d: invalid UTF-8: surrogate (byte offset %d)", before + 1 - line_break, before + 1);
    assert_failure(f.context, hark_corpus_open(f.context, &settings, &corpus), HARK_BAD_FILE, message);
    assert_null(corpus);
  }
  const char *paths[] = {test_file_write_text(f.folder, "cut", "text\n\xE6\x97")};
  hark_corpus_settings settings = whole_text(&f, paths, 1);
  hark_corpus *corpus;
  assert_failure(f.context, hark_corpus_open(f.context, &settings, &corpus), HARK_BAD_FILE,
                 "/cut:2:1: invalid UTF-8: text ends inside a character (byte offset 5)");
  settings.tokenizer_kind = "bytes";
  corpus = open_corpus(&f, &settings);
  assert_int_equal(hark_corpus_counts(corpus, HARK_SPLIT_TRAINING).tokens, 7);
  assert_int_equal(hark_corpus_counts(corpus, HARK_SPLIT_TRAINING).bytes, 7);
  assert_int_equal(hark_corpus_counts(corpus, HARK_SPLIT_TRAINING).characters, 6);
  hark_corpus_close(f.context, &corpus);
  fixture_close(&f);
}

static void a_given_vocabulary_is_used(void **state) {
  (void)state;
  fixture f;
  fixture_open(&f);
  const char *first[] = {test_file_write_text(f.folder, "first", "abc\n")};
  const char *second[] = {test_file_write_text(f.folder, "second",
                                               "cab\nb\xC3\xA9"
                                               "c")};
  hark_corpus_settings settings = whole_text(&f, first, 1);
  hark_corpus *corpus = open_corpus(&f, &settings), *other;
  settings = whole_text(&f, second, 1);
  settings.tokenizer = hark_corpus_tokenizer(corpus);
  assert_failure(f.context, hark_corpus_open(f.context, &settings, &other), HARK_BAD_FILE,
                 "/second:2:2: U+00E9 is not in the vocabulary (byte offset 5)");
  settings.unknown = HARK_UNKNOWN_IS_MAPPED;
  other = open_corpus(&f, &settings);
  assert_ptr_equal(hark_corpus_tokenizer(other), hark_corpus_tokenizer(corpus));
  int32_t tokens[7];
  assert_fine(f.context, hark_corpus_read(f.context, other, HARK_SPLIT_TRAINING, 0, 7, tokens));
  const int32_t expected[7] = {8, 6, 7, 5, 7, HARK_TOKEN_UNKNOWN, 8};
  assert_memory_equal(tokens, expected, sizeof expected);
  const hark_text_counts counts = hark_corpus_counts(other, HARK_SPLIT_TRAINING);
  assert_int_equal(counts.bytes, 8);
  assert_int_equal(counts.characters, 7);
  hark_corpus_close(f.context, &other);
  hark_corpus_close(f.context, &corpus);
  fixture_close(&f);
}

static void wrong_settings_are_refused(void **state) {
  (void)state;
  fixture f;
  fixture_open(&f);
  hark_corpus *corpus;
  const char *text = test_file_write_text(f.folder, "text", "text"), *empty = test_file_write_text(f.folder, "empty", "");
  const char *folder = test_path(f.folder, "folder"), *missing = test_path(f.folder, "missing"), *pipe = test_path(f.folder, "pipe");
  assert_int_equal(mkdir(folder, 0777), 0);
  assert_int_equal(mkfifo(pipe, 0600), 0);
  const struct {
    const char *path;
    hark_status status;
    const char *message;
  } paths[] = {
      {missing, HARK_NOT_FOUND, "/missing: "},
      {folder, HARK_NOT_FOUND, "/folder: the folder holds no text files"},
      {empty, HARK_BAD_FILE, "/empty: is empty"},
      {pipe, HARK_BAD_FILE, "/pipe: neither a file nor a folder"},
      {"", HARK_BAD_CONFIGURATION, "path of the text is empty"},
  };
  for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
    const hark_corpus_settings settings = whole_text(&f, &paths[i].path, 1);
    assert_failure(f.context, hark_corpus_open(f.context, &settings, &corpus), paths[i].status, paths[i].message);
    assert_null(corpus);
  }
  const struct {
    hark_corpus_settings settings;
    hark_status status;
    const char *message;
  } cases[] = {
      {{.cache_folder = f.cache}, HARK_BAD_CONFIGURATION, "no text is given"},
      {{.paths = &text, .path_count = 1}, HARK_INVALID_ARGUMENT, "cache_folder"},
      {{.paths = &text, .path_count = 1, .cache_folder = f.cache, .validation_fraction = 1},
       HARK_BAD_CONFIGURATION,
       "validation_fraction is 1"},
      {{.paths = &text, .path_count = 1, .cache_folder = f.cache, .validation_fraction = -0.5}, HARK_BAD_CONFIGURATION, "-0.5"},
      {{.paths = &text, .path_count = 1, .cache_folder = f.cache, .validation_fraction = NAN}, HARK_BAD_CONFIGURATION, "nan"},
      {{.paths = &text, .path_count = 1, .cache_folder = f.cache, .buffer_bytes = 15}, HARK_INVALID_ARGUMENT, "buffer_bytes is 15"},
      {{.paths = &text, .path_count = 1, .cache_folder = f.cache, .tokenizer_kind = "words"}, HARK_BAD_CONFIGURATION, "\"words\""},
      {{.paths = &text, .path_count = 1, .validation_paths = &text, .validation_path_count = 1, .cache_folder = f.cache},
       HARK_BAD_CONFIGURATION,
       "divided by fraction"},
      {{.paths = &text,
        .path_count = 1,
        .validation_paths = &text,
        .validation_path_count = 1,
        .division = HARK_DIVIDE_FILES,
        .cache_folder = f.cache},
       HARK_BAD_CONFIGURATION,
       "both for training and for validation"},
      {{.paths = &text, .path_count = 1, .cache_folder = text}, HARK_IO_ERROR, "/text"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    const hark_status status = hark_corpus_open(f.context, &cases[i].settings, &corpus);
    assert_failure(f.context, status, cases[i].status, cases[i].message);
    assert_null(corpus);
  }
  fixture_close(&f);
}

static void reads_stay_inside(void **state) {
  (void)state;
  fixture f;
  fixture_open(&f);
  const char *paths[] = {test_file_write_text(f.folder, "text", "0123456789")};
  hark_corpus_settings settings = whole_text(&f, paths, 1);
  settings.validation_fraction = 0.3;
  hark_corpus *corpus = open_corpus(&f, &settings);
  int32_t tokens[10];
  for (int64_t first = 0; first <= 7; first++)
    for (int64_t count = 0; count <= 7 - first; count++) {
      assert_fine(f.context, hark_corpus_read(f.context, corpus, HARK_SPLIT_TRAINING, first, count, tokens));
      for (int64_t i = 0; i < count; i++) assert_int_equal(tokens[i], HARK_TOKEN_RESERVED + first + i);
    }
  static const int64_t outside[][2] = {{0, 8}, {7, 1}, {-1, 1}, {8, 0}, {0, -1}, {INT64_MAX, 1}, {1, INT64_MAX}, {INT64_MIN, 2}};
  for (size_t i = 0; i < sizeof outside / sizeof outside[0]; i++)
    assert_failure(f.context, hark_corpus_read(f.context, corpus, HARK_SPLIT_TRAINING, outside[i][0], outside[i][1], tokens),
                   HARK_INVALID_ARGUMENT, "the split has 7");
  hark_corpus_close(f.context, &corpus);
  fixture_close(&f);
}

/* Vocabularies of more than 251 and more than 65531 characters need tokens of two and of four bytes. */
static void tokens_are_as_wide_as_they_must_be(void **state) {
  (void)state;
  static const int symbols[] = {251, 252, 65531, 65532, 70000};
  for (size_t i = 0; i < sizeof symbols / sizeof symbols[0]; i++) {
    fixture f;
    fixture_open(&f);
    char *text = malloc((size_t)symbols[i] * HARK_UTF8_MAX_BYTES);
    int32_t *tokens = malloc((size_t)symbols[i] * sizeof *tokens);
    assert_true(text != NULL && tokens != NULL);
    size_t bytes = 0;
    for (int s = 0; s < symbols[i]; s++) bytes += hark_utf8_encode(0x10000 + (uint32_t)s, text + bytes);
    const char *paths[] = {test_file_write(f.folder, "text", text, bytes)};
    const hark_corpus_settings settings = whole_text(&f, paths, 1);
    hark_corpus *corpus = open_corpus(&f, &settings);
    assert_fine(f.context, hark_corpus_read(f.context, corpus, HARK_SPLIT_TRAINING, 0, symbols[i], tokens));
    for (int s = 0; s < symbols[i]; s++) assert_int_equal(tokens[s], HARK_TOKEN_RESERVED + s);
    hark_corpus_close(f.context, &corpus);
    free(text);
    free(tokens);
    fixture_close(&f);
  }
}

/* A text much larger than the buffer: the same tokens as in one piece, and no more memory than the buffers and the vocabulary's bitmap. */
static void memory_is_bounded(void **state) {
  (void)state;
  enum { TEXT_BYTES = 3000000, BUFFER_BYTES = 17, BITMAP_BYTES = 0x110000 / 8, SMALL_THINGS = 65536 };
  fixture f;
  fixture_open(&f);
  char *text = malloc(TEXT_BYTES);
  assert_non_null(text);
  for (int i = 0; i < TEXT_BYTES; i += 3) memcpy(text + i, i % 7 == 0 ? "\xE6\x97\xA5" : i % 5 == 0 ? "a\xC3\xA9" : "xyz", 3);
  const char *paths[] = {test_file_write(f.folder, "text", text, TEXT_BYTES)};
  free(text);
  hark_corpus_settings settings = whole_text(&f, paths, 1);
  settings.validation_fraction = 0.25;
  hark_corpus *corpus = open_corpus(&f, &settings);
  const uint64_t checksum = hark_corpus_checksum(corpus);
  size_t bytes[2];
  unsigned char *file[2];
  file[0] = test_file_read(hark_corpus_cache_path(corpus), &bytes[0]);
  assert_int_equal(remove(hark_corpus_cache_path(corpus)), 0);
  hark_corpus_close(f.context, &corpus);
  test_memory memory;
  hark_context *context = test_memory_context(&memory);
  settings.buffer_bytes = BUFFER_BYTES;
  assert_fine(context, hark_corpus_open(context, &settings, &corpus));
  assert_false(hark_corpus_was_cached(corpus));
  assert_true(hark_corpus_checksum(corpus) == checksum);
  file[1] = test_file_read(hark_corpus_cache_path(corpus), &bytes[1]);
  assert_int_equal(bytes[0], bytes[1]);
  assert_memory_equal(file[0], file[1], bytes[0] - 256); /* the trailer has the time */
  assert_true(hark_context_memory(context).peak_bytes < BITMAP_BYTES + SMALL_THINGS);
  hark_corpus_close(context, &corpus);
  test_memory_context_end(context, &memory);
  free(file[0]);
  free(file[1]);
  fixture_close(&f);
}

static void losses_become_bits(void **state) {
  (void)state;
  const hark_text_counts counts = {.tokens = 100, .bytes = 150, .characters = 100}, none = {0};
  const double ln2 = 0.6931471805599453, rounding = 4 * DBL_EPSILON; /* of three operations on numbers up to 2 */
  assert_true(fabs(hark_bits_per_character(&counts, ln2) - 1.0) <= rounding);
  assert_true(fabs(hark_bits_per_byte(&counts, 3 * ln2) - 2.0) <= rounding);
  assert_true(hark_bits_per_byte(&none, 1.0) == 0.0);
}

/* Opening with allocation number n failing, for every n, when the tokens are made and when they are found. */
static void memory_may_run_out(void **state) {
  (void)state;
  fixture f;
  fixture_open(&f);
  test_file_write_text(f.folder, "text/a", "some text\n");
  test_file_write_text(f.folder, "text/b/c", "and more\n");
  const char *paths[] = {test_path(f.folder, "text")};
  hark_corpus_settings settings = whole_text(&f, paths, 1);
  settings.validation_fraction = 0.5;
  for (int cached = 0; cached < 2; cached++) {
    hark_status status;
    long fail_at = 0;
    do {
      test_memory memory;
      hark_context *context = test_memory_context(&memory);
      hark_corpus *corpus;
      if (!cached) test_folder_remove(f.cache);
      memory.fail_at = memory.allocations + ++fail_at;
      status = hark_corpus_open(context, &settings, &corpus);
      if (status != HARK_OK && status != HARK_OUT_OF_MEMORY) fail_msg("allocation %ld: %s", fail_at, hark_context_message(context));
      if (status == HARK_OK) assert_int_equal(hark_corpus_was_cached(corpus), cached);
      assert_true((status == HARK_OK) == (corpus != NULL));
      hark_corpus_close(context, &corpus);
      test_memory_context_end(context, &memory);
    } while (status != HARK_OK);
    assert_true(fail_at > 10); /* the corpus, two lists, the index, the vocabulary ... */
  }
  fixture_close(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(text_is_divided),
      cmocka_unit_test(boundaries_fall_between_characters),
      cmocka_unit_test(folders_are_walked_in_order),
      cmocka_unit_test(documents_are_kept),
      cmocka_unit_test(faults_have_a_place),
      cmocka_unit_test(a_given_vocabulary_is_used),
      cmocka_unit_test(wrong_settings_are_refused),
      cmocka_unit_test(reads_stay_inside),
      cmocka_unit_test(tokens_are_as_wide_as_they_must_be),
      cmocka_unit_test(memory_is_bounded),
      cmocka_unit_test(losses_become_bits),
      cmocka_unit_test(memory_may_run_out),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
