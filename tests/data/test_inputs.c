/* test_inputs.c - compressed files and standard input: the same bytes as the plain file, cut and damaged files, limits; corpora and
 * examples of them, of JSON lines and of folders; nothing is left in TMPDIR. */
#define _XOPEN_SOURCE 700 /* setrlimit, setenv */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#ifdef HARK_WITH_LZMA
#include <lzma.h>
#endif

#include "data/examples/examples.h"
#include "data/inputs.h"
#include "data/json_lines.h"
#include "data/sources.h"
#include "data/sources_apart.h"
#include "data/unpack/unpack.h"
#include "support/cmocka_all.h"
#include "support/train/packed.h"
#include "support/train/task_place.h"

#define LIMIT ((size_t)1 << 30)
enum { LONG = 300000, SHORT = 700 };

/* Words of eight letters, so that it compresses, but not to nothing. */
static char *make_text(size_t bytes) {
  char *const text = malloc(bytes + 1);
  uint32_t state = 7;
  for (size_t i = 0; i < bytes; i++) {
    state = state * 1664525u + 1013904223u;
    text[i] = i % 61 == 60 ? '\n' : i % 7 == 6 ? ' ' : (char)('a' + (state >> 24) % 8);
  }
  text[bytes] = '\0';
  return text;
}

static int begin(void **state) {
  (void)task_place_begin(state);
  task_place *const f = *state;
  const char *const spool = test_path(f->folder, "spool");
  test_file_write_text(f->folder, "spool/x", "");
  (void)unlink(test_path(f->folder, "spool/x"));
  return setenv("TMPDIR", spool, 1);
}

static int end(void **state) {
  const task_place *const f = *state;
  assert_int_equal(test_folder_count(f->folder, "spool"), 2);
  (void)unsetenv("TMPDIR");
  return task_place_end(state);
}
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

static hark_status read_back(const task_place *f, const char *path, hark_text *out) {
  *out = hark_text_empty(f->context);
  return hark_input_read(f->context, path, LIMIT, out);
}

static void expect_contents(const task_place *f, const char *path, const char *expected, size_t bytes) {
  hark_text text;
  assert_fine(f->context, read_back(f, path, &text));
  assert_int_equal(text.length, bytes);
  assert_memory_equal(hark_text_get(&text), expected, bytes);
  hark_text_free(&text);
}

static unsigned char *join(const unsigned char *a, size_t a_bytes, const void *b, size_t b_bytes) {
  unsigned char *const both = malloc(a_bytes + b_bytes);
  memcpy(both, a, a_bytes);
  memcpy(both + a_bytes, b, b_bytes);
  return both;
}

static void contents_are_those_of_the_plain_file(void **state) {
  const task_place *const f = *state;
  char *const text = make_text(LONG), *const twice = malloc(2 * LONG);
  memcpy(twice, text, LONG);
  memcpy(twice + LONG, text, LONG);
  expect_contents(f, test_file_write(f->folder, "plain", text, LONG), text, LONG);
  for (int i = 0; hark_packings[i] != NULL; i++) {
    const char *const name = hark_packings[i]->name;
    size_t bytes = 0, none = 0;
    unsigned char *const packed = test_pack(name, text, LONG, &bytes);
    assert_true((packed != NULL) == (hark_packings[i]->state_bytes > 0));
    if (packed == NULL) continue;
    assert_true(bytes < LONG / 2);
    expect_contents(f, test_file_write(f->folder, name, packed, bytes), text, LONG); /* by its bytes: there is no ending */
    unsigned char *const two = join(packed, bytes, packed, bytes), *const padded = join(packed, bytes, "\0\0\0\0", 4);
    expect_contents(f, test_file_write(f->folder, "two", two, 2 * bytes), twice, 2 * LONG);
    expect_contents(f, test_file_write(f->folder, "padded", padded, bytes + 4), text, LONG);
    unsigned char *const empty = test_pack(name, "", 0, &none);
    expect_contents(f, test_file_write(f->folder, "empty", empty, none), "", 0);
    free(empty);
    free(padded);
    free(two);
    free(packed);
  }
  expect_contents(f, test_file_write(f->folder, "nothing", "", 0), "", 0);
  expect_contents(f, test_file_write_text(f->folder, "begins", "BZh9 is how a text may begin"), "BZh9 is how a text may begin", 28);
  free(twice);
  free(text);
}

/* As parallel compressors of zstd begin (RFC 8878, section 3.1.2). */
static void a_skippable_frame_may_come_first(void **state) {
  const task_place *const f = *state;
  unsigned char frame[] = {0x50, 0x2A, 0x4D, 0x18, 4, 0, 0, 0, 1, 2, 3, 4};
  size_t bytes = 0;
  unsigned char *const packed = test_pack("zstd", "a text", 6, &bytes);
  for (int kind = 0; packed != NULL && kind < 16; kind++) {
    frame[0] = (unsigned char)(0x50 + kind);
    unsigned char *const both = join(frame, sizeof frame, packed, bytes);
    expect_contents(f, test_file_write(f->folder, "skips", both, sizeof frame + bytes), "a text", 6);
    free(both);
  }
  free(packed);
}

static void cut_files_are_refused_at_every_byte(void **state) {
  const task_place *const f = *state;
  char *const text = make_text(SHORT);
  for (int i = 0; hark_packings[i] != NULL; i++) {
    size_t bytes = 0;
    unsigned char *const packed = test_pack(hark_packings[i]->name, text, SHORT, &bytes);
    for (size_t left = HARK_UNPACK_FRONT_BYTES; left < bytes; left++) {
      hark_text out;
      const char *const path = test_file_write(f->folder, "cut", packed, left);
      const hark_status status = read_back(f, path, &out);
      assert_failure(f->context, status, HARK_BAD_FILE, "cut: ends within its ");
      assert_int_equal(out.length, 0);
    }
    free(packed);
  }
  free(text);
}

/* What has no meaning in a format may change: the result is then the same. */
static void damaged_files_are_refused(void **state) {
  const task_place *const f = *state;
  char *const text = make_text(SHORT);
  for (int i = 0; hark_packings[i] != NULL; i++) {
    size_t bytes = 0;
    int refused = 0;
    unsigned char *const packed = test_pack(hark_packings[i]->name, text, SHORT, &bytes);
    for (size_t at = HARK_UNPACK_FRONT_BYTES; at < bytes; at++) {
      hark_text out;
      packed[at] ^= 0x10;
      const char *const path = test_file_write(f->folder, "damaged", packed, bytes);
      packed[at] ^= 0x10;
      const hark_status status = read_back(f, path, &out);
      if (status == HARK_OK) {
        assert_int_equal(out.length, SHORT);
        assert_memory_equal(hark_text_get(&out), text, SHORT);
      } else {
        assert_failure(f->context, status, HARK_BAD_FILE, path);
        refused++;
      }
      hark_text_free(&out);
    }
    assert_true(packed == NULL || refused > (int)(bytes - HARK_UNPACK_FRONT_BYTES) * 9 / 10);
    free(packed);
  }
  free(text);
}

static void other_bytes_after_the_data_are_refused(void **state) {
  const task_place *const f = *state;
  for (int i = 0; hark_packings[i] != NULL; i++) {
    char place[96];
    size_t bytes = 0;
    unsigned char *const packed = test_pack(hark_packings[i]->name, "a text", 6, &bytes);
    if (packed == NULL) continue;
    unsigned char *const other = join(packed, bytes, "and more than that", 18), *const late = join(packed, bytes, "\0\0\0\0more", 8);
    hark_text out;
    (void)snprintf(place, sizeof place, "byte offset %zu", bytes);
    assert_failure(f->context, read_back(f, test_file_write(f->folder, "other", other, bytes + 18), &out), HARK_BAD_FILE,
                   strcmp(hark_packings[i]->name, "xz") == 0 ? "damaged xz data" : place); /* liblzma looks for the next stream itself */
    assert_int_equal(read_back(f, test_file_write(f->folder, "late", late, bytes + 8), &out), HARK_BAD_FILE);
    free(late);
    free(other);
    free(packed);
  }
}

/* Files that would need more memory than hark allows, whatever they contain. */
static void memory_is_limited(void **state) {
  const task_place *const f = *state;
  hark_text out;
#ifdef HARK_WITH_ZSTD
  static const unsigned char window[] = {0x28, 0xB5, 0x2F, 0xFD, 0x00, 20 << 3, 0x01, 0x00, 0x00}; /* 2^30 bytes; an empty block */
  assert_failure(f->context, read_back(f, test_file_write(f->folder, "window", window, sizeof window), &out), HARK_BAD_FILE,
                 "more than 256 MiB of memory");
#endif
#ifdef HARK_WITH_LZMA
  enum { HEADER = 12 };
  size_t bytes, at = HEADER + 2;
  unsigned char *const packed = test_pack("xz", "a text", 6, &bytes);
  const size_t header = 4 * ((size_t)packed[HEADER] + 1);
  while (at < HEADER + header && !(packed[at] == 0x21 && packed[at + 1] == 1))
    at++; /* LZMA2 has one property: the size of its dictionary */
  assert_true(at < HEADER + header - 4);
  packed[at + 2] = 40; /* 4 GiB */
  const uint32_t sum = lzma_crc32(packed + HEADER, header - 4, 0);
  for (int i = 0; i < 4; i++) packed[HEADER + header - 4 + (size_t)i] = (unsigned char)(sum >> (8 * i));
  assert_failure(f->context, read_back(f, test_file_write(f->folder, "dictionary", packed, bytes), &out), HARK_BAD_FILE,
                 "more than 256 MiB of memory");
  free(packed);
#endif
  (void)f;
  (void)out;
}

static hark_status no_data(void *closure, void *data, size_t bytes, size_t *got) {
  (void)closure;
  (void)data;
  *got = bytes = 0;
  return HARK_OK;
}

static hark_status no_use(void *closure, const void *data, size_t bytes) {
  (void)closure;
  (void)data;
  (void)bytes;
  return HARK_INTERNAL_ERROR;
}

static void a_missing_library_is_named(void **state) {
  const task_place *const f = *state;
  static const unsigned char fronts[][HARK_UNPACK_FRONT_BYTES] = {{0x1F, 0x8B, 0x08},
                                                                  {0xFD, '7', 'z', 'X', 'Z', 0},
                                                                  {0x28, 0xB5, 0x2F, 0xFD},
                                                                  {'B', 'Z', 'h', '9', 0x31, 0x41, 0x59, 0x26, 0x53, 0x59}};
  const hark_unpack_ends ends = {NULL, no_data, no_use};
  for (int i = 0; hark_packings[i] != NULL; i++) {
    hark_packing without = *hark_packing_of(fronts[i], sizeof fronts[i]);
    assert_string_equal(without.name, hark_packings[i]->name);
    without.state_bytes = 0;
    assert_failure(f->context, hark_unpack(f->context, "text", &without, &ends), HARK_UNSUPPORTED, without.option);
    hark_text out;
    if (hark_packings[i]->state_bytes > 0) continue;
    assert_failure(f->context, read_back(f, test_file_write(f->folder, "packed", fronts[i], sizeof fronts[i]), &out), HARK_UNSUPPORTED,
                   without.option);
  }
}

static void a_full_disk_is_reported(void **state) {
  const task_place *const f = *state;
  struct rlimit kept, little;
  char *const text = make_text(LONG);
  size_t bytes = 0;
  unsigned char *const packed = test_pack("gzip", text, LONG, &bytes);
  if (packed != NULL) {
    const char *const path = test_file_write(f->folder, "large", packed, bytes);
    hark_text out;
    void (*const handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &kept), 0);
    little = kept;
    little.rlim_cur = LONG / 2;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &little), 0);
    const hark_status status = read_back(f, path, &out);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &kept), 0);
    (void)signal(SIGXFSZ, handler);
    assert_failure(f->context, status, HARK_IO_ERROR, "(TMPDIR)");
  }
  free(packed);
  free(text);
  assert_int_equal(setenv("TMPDIR", test_path(f->folder, "none"), 1), 0);
  hark_spool spool = {0};
  const hark_status status = hark_spool_append(f->context, &spool, "x", 1);
  assert_int_equal(setenv("TMPDIR", test_path(f->folder, "spool"), 1), 0);
  assert_failure(f->context, status, HARK_IO_ERROR, "(TMPDIR)");
}

/* What a killed process has left is removed by the next one: no process has the number that is the highest one and more. */
static void abandoned_spools_are_removed(void **state) {
  const task_place *const f = *state;
  hark_spool spool = {0};
  test_file_write_text(f->folder, "spool/.hark-unpacked.tmp-2147483646-0", "left");
  assert_fine(f->context, hark_spool_append(f->context, &spool, "x", 1));
  hark_spool_close(&spool);
  assert_int_equal(test_folder_count(f->folder, "spool"), 2);
}

/* Runs with `path` as standard input. */
static hark_status read_standard(const task_place *f, const char *path, hark_text *out) {
  const int kept = dup(STDIN_FILENO);
  assert_non_null(freopen(path, "r", stdin));
  const hark_status status = read_back(f, HARK_STANDARD_INPUT, out);
  assert_int_equal(dup2(kept, STDIN_FILENO), STDIN_FILENO);
  (void)close(kept);
  return status;
}

static void standard_input_is_read(void **state) {
  const task_place *const f = *state;
  char *const text = make_text(LONG);
  size_t bytes = 0;
  hark_text out;
  assert_fine(f->context, read_standard(f, test_file_write(f->folder, "plain", text, LONG), &out));
  assert_int_equal(out.length, LONG);
  assert_memory_equal(hark_text_get(&out), text, LONG);
  hark_text_free(&out);
  unsigned char *const packed = test_pack("gzip", text, LONG, &bytes);
  if (packed != NULL) {
    assert_fine(f->context, read_standard(f, test_file_write(f->folder, "packed", packed, bytes), &out));
    assert_int_equal(out.length, LONG);
    hark_text_free(&out);
    assert_failure(f->context, read_standard(f, test_file_write(f->folder, "cut", packed, bytes - 1), &out), HARK_BAD_FILE,
                   "standard input: ends within its gzip data");
  }
  free(packed);
  free(text);
}

/* ---- corpora ---- */

/* The checksum of a corpus of the files, without validation: of its tokens. */
static uint64_t corpus_sum(const task_place *f, const char *path, const char *field, bool cached) {
  hark_corpus *corpus = NULL;
  const hark_corpus_settings settings = {
      .paths = &path, .path_count = 1, .json_field = field, .validation_fraction = 0.25, .cache_folder = test_path(f->folder, "cache")};
  assert_fine(f->context, hark_corpus_open(f->context, &settings, &corpus));
  assert_int_equal(hark_corpus_was_cached(corpus), cached);
  assert_fine(f->context, hark_corpus_verify(f->context, corpus));
  const uint64_t sum = hark_corpus_checksum(corpus);
  hark_corpus_close(f->context, &corpus);
  return sum;
}

static hark_status open_corpus(const task_place *f, const char *path, const char *validation, const char *field) {
  hark_corpus *corpus = NULL;
  const hark_corpus_settings settings = {.paths = &path,
                                         .path_count = 1,
                                         .validation_paths = &validation,
                                         .validation_path_count = validation != NULL,
                                         .division = validation != NULL ? HARK_DIVIDE_FILES : HARK_DIVIDE_TAIL,
                                         .json_field = field,
                                         .cache_folder = test_path(f->folder, "cache")};
  const hark_status status = hark_corpus_open(f->context, &settings, &corpus);
  hark_corpus_close(f->context, &corpus);
  return status;
}

static void a_compressed_text_has_the_tokens_of_the_plain_one(void **state) {
  const task_place *const f = *state;
  char *const text = make_text(LONG), plain[TEST_PATH_BYTES], packed[TEST_PATH_BYTES];
  size_t bytes = 0;
  (void)snprintf(plain, sizeof plain, "%s", test_file_write(f->folder, "plain.txt", text, LONG));
  const uint64_t sum = corpus_sum(f, plain, NULL, false);
  for (int i = 0; hark_packings[i] != NULL; i++) {
    char name[32];
    unsigned char *const data = test_pack(hark_packings[i]->name, text, LONG, &bytes);
    if (data == NULL) continue;
    (void)snprintf(name, sizeof name, "text%s", hark_packings[i]->ending);
    (void)snprintf(packed, sizeof packed, "%s", test_file_write(f->folder, name, data, bytes));
    assert_true(corpus_sum(f, packed, NULL, false) == sum);
    test_file_age(packed, 1000);
    assert_true(corpus_sum(f, packed, NULL, true) == sum); /* touched: its contents are compared */
    /* the same text, plain and compressed */
    assert_failure(f->context, open_corpus(f, plain, packed, NULL), HARK_BAD_CONFIGURATION, "has the same contents as");
    test_file_write(f->folder, name, data, bytes - 2);
    assert_failure(f->context, open_corpus(f, packed, NULL, NULL), HARK_BAD_FILE, packed);
    test_file_write(f->folder, name, data, 0);
    assert_failure(f->context, open_corpus(f, packed, NULL, NULL), HARK_BAD_FILE, "is empty");
    free(data);
  }
  free(text);
}

/* What a run that is evaluated or resumed reads: the text was not unpacked before its cache is compared. */
static hark_status open_known(const task_place *f, const char *path) {
  hark_corpus *corpus = NULL;
  const hark_corpus_settings settings = {.paths = &path,
                                         .path_count = 1,
                                         .json_field = "text",
                                         .validation_fraction = 0.25,
                                         .known = true,
                                         .cache_folder = test_path(f->folder, "cache")};
  const hark_status status = hark_corpus_open(f->context, &settings, &corpus);
  hark_corpus_close(f->context, &corpus);
  return status;
}

/* Damage that leaves the size as it is: the bytes of the file are never taken for the text. */
static void damage_beside_a_cache_is_refused(void **state) {
  const task_place *const f = *state;
  char path[TEST_PATH_BYTES];
  size_t bytes = 0;
  (void)snprintf(path, sizeof path, "%s", test_file_write_text(f->folder, "lines.jsonl", "{\"text\": \"one\"}\n"));
  assert_fine(f->context, open_known(f, path));
  test_file_write_text(f->folder, "lines.jsonl", "{\"test\": \"one\"}\n");
  assert_failure(f->context, open_known(f, path), HARK_BAD_FILE, "lines.jsonl:1:1: no member \"text\"");
  unsigned char *const data = test_pack("gzip", "one two", 7, &bytes);
  if (data == NULL) return;
  (void)snprintf(path, sizeof path, "%s", test_file_write(f->folder, "one.gz", data, bytes));
  assert_fine(f->context, open_known(f, path));
  data[bytes - 8] ^= 1; /* of its checksum */
  test_file_write(f->folder, "one.gz", data, bytes);
  assert_failure(f->context, open_known(f, path), HARK_BAD_FILE, "one.gz: damaged gzip data");
  free(data);
}

static void a_character_has_its_place_in_the_unpacked_text(void **state) {
  const task_place *const f = *state;
  size_t bytes = 0;
  unsigned char *const data = test_pack("gzip",
                                        "good\nba\xFF"
                                        "d\n",
                                        10, &bytes);
  if (data == NULL) return;
  assert_failure(f->context, open_corpus(f, test_file_write(f->folder, "a.gz", data, bytes), NULL, NULL), HARK_BAD_FILE,
                 "a.gz:2:3: invalid UTF-8");
  free(data);
}

/* ---- JSON lines ---- */

static void names_of_json_lines(void **state) {
  (void)state;
  static const char *const names[] = {"a.jsonl", "b/a.ndjson", "a.jsonl.gz", "a.jsonl.xz", "a.jsonl.zst", "a.ndjson.bz2"};
  static const char *const others[] = {"a.json", "jsonl", ".jsonl", "a.jsonl.txt", "a.gz", "a.jsonl.gz.gz", ".gz", ""};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) assert_true(hark_json_lines_is(names[i]));
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) assert_false(hark_json_lines_is(others[i]));
}

static void json_lines_are_their_texts(void **state) {
  const task_place *const f = *state;
  static const char lines[] =
      "{\"text\": \"one\", \"body\": \"uno\"}\n\n  \n{\"label\": 3, \"text\": \"t\\u00e9\\nwo\\n\", \"body\": \"dos\"}\r\n"
      "{\"text\": \"\", \"body\": \"tres\"}";
  char path[TEST_PATH_BYTES];
  size_t bytes = 0;
  (void)snprintf(path, sizeof path, "%s", test_file_write_text(f->folder, "a.jsonl", lines));
  const uint64_t text = corpus_sum(f, path, "text", false), body = corpus_sum(f, path, "body", false);
  assert_true(corpus_sum(f, path, "text", true) == text && text != body);
  assert_true(corpus_sum(f, test_file_write_text(f->folder, "text", "one\nt\xC3\xA9\nwo\n\n"), "text", false) == text);
  assert_true(corpus_sum(f, test_file_write_text(f->folder, "body", "uno\ndos\ntres\n"), "text", false) == body);
  unsigned char *const data = test_pack("gzip", lines, sizeof lines - 1, &bytes);
  if (data != NULL) assert_true(corpus_sum(f, test_file_write(f->folder, "b.jsonl.gz", data, bytes), "text", false) == text);
  free(data);
  const uint64_t raw = corpus_sum(f, test_file_write_text(f->folder, "raw", lines), "text", false);
  assert_true(corpus_sum(f, path, NULL, false) == raw); /* without a field they are text like any other */
}

static void bad_json_lines_have_their_place(void **state) {
  const task_place *const f = *state;
  static const struct {
    const char *text, *message;
  } cases[] = {{"{\"text\": \"a\"}\n{\"text\": \"b\n", "a.jsonl:2:12: JSON: "},
               {"{\"text\": \"a\"}\n{\"body\": \"b\"}\n", "a.jsonl:2:1: no member \"text\", expected a string (byte offset 14)"},
               {"{\"text\": 7}\n", "a.jsonl:1:1: \"text\" is not a string"},
               {"[\"text\"]\n", "a.jsonl:1:1: not a JSON object"},
               {"{\"text\": \"a\"} {\"text\": \"b\"}\n", "a.jsonl:1:15: JSON: "},
               {"{\"text\": \"\xFF\"}\n", "a.jsonl:1:11: JSON: "},
               {"\n\n", "a.jsonl: is empty"},
               {"", "a.jsonl: is empty"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    assert_failure(f->context, open_corpus(f, test_file_write_text(f->folder, "a.jsonl", cases[i].text), NULL, "text"), HARK_BAD_FILE,
                   cases[i].message);
  assert_int_not_equal(access(test_path(f->folder, "cache"), F_OK), 0); /* nothing was written */
}

/* ---- examples ---- */

static hark_status open_examples(const task_place *f, const char *format, const char *path, const char *text_field, hark_examples **out) {
  const hark_examples_settings settings = {.format = format, .paths = &path, .path_count = 1, .text_field = text_field};
  return hark_examples_open(f->context, &settings, out);
}

static uint64_t examples_sum(const task_place *f, const char *path, const char *text_field) {
  hark_examples *examples = NULL;
  assert_fine(f->context, open_examples(f, "text", path, text_field, &examples));
  const uint64_t sum = hark_examples_checksum(examples);
  hark_examples_close(f->context, &examples);
  return sum;
}

static void examples_in_every_form(void **state) {
  const task_place *const f = *state;
  static const char table[] =
      "1\tgood\n0\tb\xC3\xA4"
      "d\n",
                    lines[] = "{\"text\": \"good\", \"label\": 1}\n{\"label\": 0, \"text\": \"b\\u00e4d\"}\n",
                    reals[] = "{\"text\": \"good\", \"label\": 1.0}\n{\"label\": 0e0, \"text\": \"b\\u00e4d\"}\n";
  static const char review[] = "{\"review\": \"good\", \"label\": 1}\n\n{\"label\": 0, \"review\": \"b\\u00e4d\"}";
  const uint64_t sum = examples_sum(f, test_file_write_text(f->folder, "a.tsv", table), NULL);
  assert_true(examples_sum(f, test_file_write_text(f->folder, "a.jsonl", lines), NULL) == sum);
  assert_true(examples_sum(f, test_file_write_text(f->folder, "a.jsonl", reals), NULL) == sum);
  assert_true(examples_sum(f, test_file_write_text(f->folder, "b.jsonl", review), "review") == sum);
  for (int i = 0; hark_packings[i] != NULL; i++) {
    size_t bytes = 0;
    unsigned char *const data = test_pack(hark_packings[i]->name, table, sizeof table - 1, &bytes);
    if (data == NULL) continue;
    assert_true(examples_sum(f, test_file_write(f->folder, "packed", data, bytes), NULL) == sum);
    free(data);
  }
  size_t bytes = 0;
  unsigned char *const data = test_pack("gzip", lines, sizeof lines - 1, &bytes);
  if (data != NULL) assert_true(examples_sum(f, test_file_write(f->folder, "a.jsonl.gz", data, bytes), NULL) == sum);
  free(data);
}

static void bad_examples_have_their_place(void **state) {
  const task_place *const f = *state;
  static const struct {
    const char *text, *message;
  } cases[] = {{"{\"text\": \"a\", \"label\": 1}\n{\"text\": \"b\"}\n", "a.jsonl:2:1: no member \"label\", expected a whole number"},
               {"{\"text\": \"a\", \"label\": \"1\"}\n", "a.jsonl:1:1: \"label\" is not a whole number"},
               {"{\"text\": \"a\", \"label\": 1.5}\n", "a.jsonl:1:1: \"label\" is not a whole number"},
               {"{\"text\": \"a\", \"label\": 1e30}\n", "a.jsonl:1:1: \"label\" is not a whole number"},
               {"{\"text\": \"a\", \"label\": 2.0}\n", "label 2 is out of range"},
               {"{\"text\": \"a\", \"label\": 2}\n", "label 2 is out of range, expected 0 to 1"},
               {"{\"text\": \"\", \"label\": 1}\n", "empty text"},
               {"{\"text\": \"a\", \"label\"", "a.jsonl:1:22: JSON: "},
               {"\n", "a.jsonl: holds no example"},
               {"", "a.jsonl: holds no example"}};
  hark_examples *examples = NULL;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    assert_failure(f->context, open_examples(f, "text", test_file_write_text(f->folder, "a.jsonl", cases[i].text), NULL, &examples),
                   HARK_BAD_FILE, cases[i].message);
  assert_failure(f->context, open_examples(f, "pairs", test_path(f->folder, "a.jsonl"), NULL, &examples), HARK_UNSUPPORTED,
                 "JSON lines are read as format text only");
}

static hark_status open_quoted(const task_place *f, const char *format, const char *text, hark_examples **out) {
  const char *const path = test_file_write_text(f->folder, "quoted.tsv", text);
  const hark_examples_settings settings = {.format = format, .paths = &path, .path_count = 1, .quoted = true};
  return hark_examples_open(f->context, &settings, out);
}

/* A folder of the same size hides no copies. */
static void copies_beside_a_folder_are_refused(void **state) {
  const task_place *const f = *state;
  const int64_t parts[] = {0, 0, 1};
  hark_source_list list = {0};
  test_file_write_text(f->folder, "classes/a/x.txt", "1\tgood\n");
  assert_fine(f->context, hark_sources_add_folder(f->context, &list, test_path(f->folder, "classes"), 7, HARK_SPLIT_TRAINING));
  assert_fine(f->context,
              hark_sources_add_file(f->context, &list, test_file_write_text(f->folder, "one.tsv", "1\tgood\n"), HARK_SPLIT_TRAINING));
  assert_fine(f->context,
              hark_sources_add_file(f->context, &list, test_file_write_text(f->folder, "two.tsv", "1\tgood\n"), HARK_SPLIT_TEST));
  assert_fine(f->context, hark_sources_unpack(f->context, &list, NULL));
  assert_failure(f->context, hark_files_check_apart(f->context, list.items, parts, 3, ""), HARK_BAD_CONFIGURATION,
                 "has the same contents as");
  hark_sources_free(f->context, &list);
}

static void quoted_fields(void **state) {
  const task_place *const f = *state;
  static const char plain[] = "1\tA 1\tB\tthe \"first\"\tno \"quotes\" at the front\n0\tC\tD\t\"\tlast\n";
  static const char quoted[] = "1\t\"A\t1\"\tB\t\"the \"\"first\"\"\"\tno \"quotes\" at the front\r\n\"0\"\tC\tD\t\"\"\"\"\t\"last\"\n";
  const char *path = test_file_write_text(f->folder, "plain.tsv", plain);
  hark_examples *examples = NULL, *other = NULL;
  assert_fine(f->context, open_examples(f, "pairs", path, NULL, &examples));
  assert_fine(f->context, open_quoted(f, "pairs", quoted, &other));
  assert_true(hark_examples_checksum(examples) == hark_examples_checksum(other));
  hark_examples_close(f->context, &examples);
  hark_examples_close(f->context, &other);
  static const struct {
    const char *text, *message;
  } cases[] = {{"1\t\"open\n", ":1:3: the quote of a field is not closed on its line"},
               {"1\t\"a\"b\n", ":1:6: text after the closing quote of a field, expected a tab"},
               {"1\t\"a\"\tb\n", ":1:6: more than 2 fields"},
               {"1\t\"\"\n", ":1:4: empty text"},
               {"\"1\"\n", ":1:4: 1 of 2 fields"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    assert_failure(f->context, open_quoted(f, "text", cases[i].text, &examples), HARK_BAD_FILE, cases[i].message);
}

/* ---- folders of published data sets ---- */

static int64_t count_of(const hark_examples *examples, hark_split split) { return hark_examples_count(examples, split).examples; }

static void reviews_in_folders(void **state) {
  const task_place *const f = *state;
  hark_examples *folders = NULL, *tables = NULL;
  char train[TEST_PATH_BYTES], test[TEST_PATH_BYTES], both[TEST_PATH_BYTES];
  test_file_write_text(f->folder, "imdb/train/neg/0_1.txt", "bad");
  test_file_write_text(f->folder, "imdb/train/neg/.hidden", "not read");
  test_file_write_text(f->folder, "imdb/train/pos/0_9.txt", "good\n");
  test_file_write_text(f->folder, "imdb/train/pos/1_8.txt", "two\nlines");
  test_file_write_text(f->folder, "imdb/train/unsup/0_0.txt", "neither");
  test_file_write_text(f->folder, "imdb/test/neg/0_3.txt", "worse");
  test_file_write_text(f->folder, "imdb/test/pos/0_7.txt", "better");
  (void)snprintf(both, sizeof both, "%s", test_path(f->folder, "imdb"));
  (void)snprintf(train, sizeof train, "%s", test_path(f->folder, "imdb/train"));
  (void)snprintf(test, sizeof test, "%s", test_path(f->folder, "imdb/test"));
  assert_fine(f->context, open_examples(f, "text", both, NULL, &folders));
  assert_int_equal(count_of(folders, HARK_SPLIT_TRAINING), 3);
  assert_int_equal(count_of(folders, HARK_SPLIT_TEST), 2);
  static const int32_t labels[] = {0, 1, 1}, lengths[] = {3, 4, 9};
  for (int64_t i = 0; i < 3; i++) {
    assert_int_equal(hark_examples_label(folders, HARK_SPLIT_TRAINING, i), labels[i]);
    assert_int_equal(hark_examples_length(folders, HARK_SPLIT_TRAINING, i, 0), lengths[i]);
  }
  const char *const train_path = train, *const test_path_of = test;
  const hark_examples_settings settings = {
      .format = "text", .paths = &train_path, .path_count = 1, .test_paths = &test_path_of, .test_path_count = 1};
  assert_fine(f->context, hark_examples_open(f->context, &settings, &tables)); /* one by one */
  assert_true(hark_examples_checksum(tables) == hark_examples_checksum(folders));
  hark_examples_close(f->context, &tables);
  hark_examples_close(f->context, &folders);
  test_file_write_text(f->folder, "imdb/test/pos/1_7.txt", "line\nb\xFF");
  assert_failure(f->context, open_examples(f, "text", both, NULL, &folders), HARK_BAD_FILE, "imdb/test/pos/1_7.txt:2:2: invalid UTF-8");
  test_file_write_text(f->folder, "imdb/test/pos/1_7.txt", "\n");
  assert_failure(f->context, open_examples(f, "text", both, NULL, &folders), HARK_BAD_FILE, "imdb/test/pos/1_7.txt:1:1: empty text");
  assert_failure(f->context, open_examples(f, "pairs", train, NULL, &folders), HARK_NOT_FOUND, "is a folder, expected files of the format");
}

static void batches_of_cifar(void **state) {
  const task_place *const f = *state;
  static const char *const names[] = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "test_batch.bin"};
  enum { RECORD = 3073 };
  unsigned char record[RECORD] = {0};
  char folder[TEST_PATH_BYTES], name[64];
  hark_examples *examples = NULL;
  (void)snprintf(folder, sizeof folder, "%s", test_path(f->folder, "cifar"));
  for (unsigned char i = 0; i < 5; i++) {
    record[0] = i;
    (void)snprintf(name, sizeof name, "cifar/%s", names[i]);
    test_file_write(f->folder, name, record, RECORD);
  }
  assert_failure(f->context, open_examples(f, "image", folder, NULL, &examples), HARK_NOT_FOUND,
                 "data_batch_5.bin is missing; the folder has 5 of the 6 files");
  size_t bytes = 0;
  record[0] = 9;
  unsigned char *const packed = test_pack("xz", record, RECORD, &bytes);
  if (packed != NULL)
    test_file_write(f->folder, "cifar/data_batch_5.bin.xz", packed, bytes);
  else
    test_file_write(f->folder, "cifar/data_batch_5.bin", record, RECORD);
  free(packed);
  assert_fine(f->context, open_examples(f, "image", folder, NULL, &examples));
  assert_int_equal(count_of(examples, HARK_SPLIT_TRAINING), 5);
  assert_int_equal(count_of(examples, HARK_SPLIT_TEST), 1);
  for (int32_t i = 0; i < 5; i++) assert_int_equal(hark_examples_label(examples, HARK_SPLIT_TRAINING, i), i < 4 ? i : 9);
  assert_int_equal(hark_examples_label(examples, HARK_SPLIT_TEST, 0), 4);
  hark_examples_close(f->context, &examples);
}

/* ---- memory ---- */

static void memory_may_run_out(void **state) {
  task_place *const f = *state;
  static const char lines[] = "{\"text\": \"good\", \"label\": 1}\n{\"text\": \"bad\", \"label\": 0}\n";
  char path[TEST_PATH_BYTES];
  size_t bytes = 0;
  unsigned char *const packed = test_pack("xz", lines, sizeof lines - 1, &bytes);
  (void)snprintf(
      path, sizeof path, "%s",
      packed != NULL ? test_file_write(f->folder, "a.jsonl.xz", packed, bytes) : test_file_write_text(f->folder, "a.jsonl", lines));
  free(packed);
  for (int examples = 0; examples < 2; examples++) {
    hark_status status = HARK_OUT_OF_MEMORY;
    long fail_at = 0;
    while (status != HARK_OK) {
      hark_examples *opened = NULL;
      f->memory.fail_at = f->memory.allocations + ++fail_at;
      status = examples ? open_examples(f, "text", path, NULL, &opened) : open_corpus(f, path, NULL, "text");
      f->memory.fail_at = 0;
      if (status != HARK_OK && status != HARK_OUT_OF_MEMORY) fail_msg("allocation %ld: %s", fail_at, hark_context_message(f->context));
      hark_examples_close(f->context, &opened);
    }
    assert_true(fail_at > 5);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(contents_are_those_of_the_plain_file),
      TEST(a_skippable_frame_may_come_first),
      TEST(cut_files_are_refused_at_every_byte),
      TEST(damaged_files_are_refused),
      TEST(other_bytes_after_the_data_are_refused),
      TEST(memory_is_limited),
      TEST(a_missing_library_is_named),
      TEST(a_full_disk_is_reported),
      TEST(abandoned_spools_are_removed),
      TEST(standard_input_is_read),
      TEST(a_compressed_text_has_the_tokens_of_the_plain_one),
      TEST(damage_beside_a_cache_is_refused),
      TEST(a_character_has_its_place_in_the_unpacked_text),
      TEST(names_of_json_lines),
      TEST(json_lines_are_their_texts),
      TEST(bad_json_lines_have_their_place),
      TEST(examples_in_every_form),
      TEST(bad_examples_have_their_place),
      TEST(copies_beside_a_folder_are_refused),
      TEST(quoted_fields),
      TEST(reviews_in_folders),
      TEST(batches_of_cifar),
      TEST(memory_may_run_out),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
