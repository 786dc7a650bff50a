/* test_jsonl.c - lines of JSON: precision, torn lines, cutting back, malformed files. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/files.h"
#include "json/jsonl.h"
#include "support/cmocka_all.h"
#include "support/setups.h"
#include "support/text_files.h"

static hark_context *context;
static char folder[TEST_PATH_BYTES];

static int begin(void **state) {
  (void)state;
  test_folder_make(folder);
  context = test_reference_open();
  return 0;
}

static int end(void **state) {
  (void)state;
  hark_context_destroy(&context);
  test_folder_remove(folder);
  return 0;
}

static void append(hark_jsonl *file, int64_t step, double loss) {
  hark_jsonl_begin(file);
  hark_jsonl_integer(file, "step", step);
  hark_jsonl_number(file, "train/loss", loss);
  assert_fine(context, hark_jsonl_end(context, file));
}

static void expect_file(const char *path, const char *contents) {
  size_t bytes;
  unsigned char *const data = test_file_read(path, &bytes);
  if (bytes != strlen(contents) || memcmp(data, contents, bytes) != 0) fail_msg("%s holds %.*s", path, (int)bytes, (const char *)data);
  free(data);
}

static void lines_are_objects(void **state) {
  (void)state;
  hark_jsonl file = {0};
  uint64_t bytes;
  const char *const path = test_path(folder, "m.jsonl");
  assert_fine(context, hark_jsonl_open(context, &file, path));
  append(&file, INT64_MAX, 0.1);
  append(&file, 2, NAN);
  hark_jsonl_begin(&file);
  hark_jsonl_boolean(&file, "x", true);
  hark_jsonl_number(&file, "y", -INFINITY);
  hark_jsonl_string(&file, "z \"", "a\\\n\x01\xc3\xa9\xff\xed\xa0\x80");
  assert_fine(context, hark_jsonl_end(context, &file));
  hark_jsonl_begin(&file);
  assert_fine(context, hark_jsonl_end(context, &file));
  assert_fine(context, hark_jsonl_flush(context, &file, &bytes));
  static const char contents[] =
      "{\"step\": 9223372036854775807, \"train/loss\": 0.1}\n"
      "{\"step\": 2, \"train/loss\": null}\n"
      "{\"x\": true, \"y\": null, \"z \\\"\": \"a\\\\\\n\\u0001\xc3\xa9\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"}\n"
      "{}\n";
  expect_file(path, contents);
  assert_int_equal(bytes, sizeof contents - 1);
  assert_fine(context, hark_jsonl_close(context, &file));
  assert_fine(context, hark_jsonl_close(context, &file));
  assert_int_equal(hark_jsonl_end(context, &file), HARK_INTERNAL_ERROR);
}

typedef struct sums {
  double losses;
  int64_t lines, last;
} sums;

static hark_status add_line(void *user, const json_t *object, int64_t line) {
  sums *const s = user;
  s->losses += json_number_value(json_object_get(object, "train/loss"));
  s->lines++;
  s->last = line;
  return HARK_OK;
}

static void numbers_read_back_exactly(void **state) {
  (void)state;
  const int count = 5000; /* more than one part of the reader */
  double expected = 0;
  hark_jsonl file = {0};
  const char *const path = test_path(folder, "m.jsonl");
  assert_fine(context, hark_jsonl_open(context, &file, path));
  for (int i = 0; i < count; i++) {
    const double loss = 1.0 / (i + 3);
    append(&file, i, loss);
    expected += loss;
  }
  assert_fine(context, hark_jsonl_close(context, &file));
  sums s = {0};
  assert_fine(context, hark_jsonl_read(context, path, add_line, &s));
  assert_true(s.losses == expected);
  assert_int_equal(s.lines, count);
  assert_int_equal(s.last, count);
}

/* Wherever a write is cut off, the complete lines before it are read, and opening again continues after them. */
static void torn_lines_are_left_out_and_cut_off(void **state) {
  (void)state;
  static const char good[] = "{\"step\": 1, \"train/loss\": 2}\n{\"step\": 2, \"train/loss\": 3}\n";
  const size_t first = strlen("{\"step\": 1, \"train/loss\": 2}\n");
  for (size_t length = 0; length <= sizeof good - 1; length++) {
    const char *const path = test_file_write(folder, "m.jsonl", good, length);
    const int64_t whole = length == sizeof good - 1 ? 2 : length >= first ? 1 : 0;
    sums s = {0};
    assert_fine(context, hark_jsonl_read(context, path, add_line, &s));
    assert_int_equal(s.lines, whole);
    hark_jsonl file = {0};
    assert_fine(context, hark_jsonl_open(context, &file, path));
    append(&file, 9, 9);
    assert_fine(context, hark_jsonl_close(context, &file));
    s = (sums){0};
    assert_fine(context, hark_jsonl_read(context, path, add_line, &s));
    assert_int_equal(s.lines, whole + 1);
  }
}

static void files_are_cut_back_to_lines(void **state) {
  (void)state;
  const char *const path = test_file_write_text(folder, "m.jsonl", "{}\n{\"a\": 1}\n{}\n");
  assert_failure(context, hark_jsonl_truncate(context, path, 5), HARK_BAD_FILE, "not the end of a line");
  assert_failure(context, hark_jsonl_truncate(context, path, 100), HARK_BAD_FILE, "at least 100 expected");
  assert_fine(context, hark_jsonl_truncate(context, path, 12));
  expect_file(path, "{}\n{\"a\": 1}\n");
  assert_fine(context, hark_jsonl_truncate(context, path, 0));
  expect_file(path, "");
  assert_fine(context, hark_jsonl_truncate(context, test_path(folder, "none"), 0));
  assert_failure(context, hark_jsonl_truncate(context, test_path(folder, "none"), 1), HARK_NOT_FOUND, "none");
}

static void malformed_lines_are_named(void **state) {
  (void)state;
  static const char *const bad[] = {"{}\n{\n",     "{}\n[1]\n", "{}\n\n", "{}\n{\"a\": 1, \"a\": 2}\n", "{}\n{\"a\": nan}\n",
                                    "{}\n{} {}\n", "{}\n\xff\n"};
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
    sums s = {0};
    assert_failure(context, hark_jsonl_read(context, test_file_write_text(folder, "m.jsonl", bad[i]), add_line, &s), HARK_BAD_FILE,
                   "m.jsonl:2:");
    assert_int_equal(s.lines, 1);
  }
  hark_text text = hark_text_empty(context);
  hark_text_resize(&text, HARK_JSONL_LINE_BYTES + 100000);
  memset(text.data, ' ', text.length);
  sums s = {0};
  const char *const path = test_file_write(folder, "m.jsonl", text.data, text.length);
  assert_failure(context, hark_jsonl_read(context, path, add_line, &s), HARK_BAD_FILE, "m.jsonl:1: line of more than");
  hark_text_free(&text);
}

static void a_full_device_is_reported(void **state) {
  (void)state;
  hark_jsonl file = {0};
  if (hark_path_kind_of("/dev/full") == HARK_PATH_NONE) skip();
  assert_fine(context, hark_jsonl_open(context, &file, "/dev/full"));
  hark_jsonl_begin(&file);
  assert_failure(context, hark_jsonl_end(context, &file), HARK_IO_ERROR, "/dev/full: cannot be written");
  hark_file_close(&file.descriptor);
  hark_text_free(&file.line);
}

/* Files of other kinds, with or without an end of line, are no torn lines to be cut and nothing to append to. */
static void other_files_are_kept(void **state) {
  (void)state;
  static const struct {
    const char *contents, *message;
  } cases[] = {{"version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 123", "is a git-LFS pointer"},
               {"<!DOCTYPE html><title>404</title>", "is an HTML page"},
               {"<html>\n", "is an HTML page"},
               {"\x1f\x8b\x08 compressed", "is compressed with gzip"},
               {"\x1f\x8b\x08 \n", "is compressed with gzip"},
               {"PK\x03\x04\n{", "is a zip archive"},
               {"my notes", "what follows byte 0 is not a line of JSON"},
               {"{}\nmy notes", "what follows byte 3 is not a line of JSON"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    hark_jsonl file = {0};
    const char *const path = test_file_write_text(folder, "metrics.jsonl", cases[i].contents);
    assert_failure(context, hark_jsonl_open(context, &file, path), HARK_BAD_FILE, cases[i].message);
    expect_file(path, cases[i].contents);
    /* a run that is resumed before its first checkpoint, or from one with one line */
    const size_t kept = strncmp(cases[i].contents, "{}\n", 3) == 0 ? 3 : 0;
    assert_failure(context, hark_jsonl_truncate(context, path, kept), HARK_BAD_FILE, cases[i].message);
    expect_file(path, cases[i].contents);
  }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
/* Escapes, zero bytes, and bytes that are not UTF-8: a sequence cut short by the end of the text is not read beyond it. */
static void strings_are_escaped(void **state) {
  (void)state;
  const struct {
    const char *bytes;
    size_t length;
    const char *expected;
  } cases[] = {{"a\0b", 3, "\"a\\u0000b\""},      {"\"\\\n\t\x01", 5, "\"\\\"\\\\\\n\\t\\u0001\""},
               {"\xc3\xa9", 2, "\"\xc3\xa9\""},   {"\xc3\xa9", 1, "\"\xef\xbf\xbd\""},
               {"\xff-", 2, "\"\xef\xbf\xbd-\""}, {"", 0, "\"\""}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    hark_text text = hark_text_empty(context);
    hark_json_append_bytes(&text, cases[i].bytes, cases[i].length);
    assert_int_equal(text.status, HARK_OK);
    assert_string_equal(hark_text_get(&text), cases[i].expected);
    hark_text_free(&text);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {TEST(other_files_are_kept),        TEST(lines_are_objects),
                                     TEST(numbers_read_back_exactly),   TEST(torn_lines_are_left_out_and_cut_off),
                                     TEST(files_are_cut_back_to_lines), TEST(malformed_lines_are_named),
                                     TEST(a_full_device_is_reported),   TEST(strings_are_escaped)};
  return cmocka_run_group_tests_name("jsonl", tests, NULL, NULL);
}
