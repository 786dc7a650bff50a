/* test_inputs.c - the command with compressed files, JSON lines and standard input: the same results as with plain files, and what is
 * refused. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/common.h"
#include "support/cmocka_all.h"
#include "support/train/command_place.h"
#include "support/train/packed.h"

#define SMALL                                                                                                                              \
  "--layers 1 --width 8 --heads 1 --context 4 --batch 1 --steps 2 --log-every 1 --threads 1 --validation-fraction 0.2 --checkpoint-every " \
  "1"

static char folder[TEST_PATH_BYTES];
static test_output output;

static const char text[] = "ab ba abba\nbab a\nab ba abba\nbab a\nab ba abba\n", reviews[] = "1\tgood\n0\tbad\n1\tfine\n";
static const char json_text[] = "{\"text\": \"ab ba abba\\nbab a\"}\n{\"text\": \"ab ba abba\\nbab a\"}\n{\"text\": \"ab ba abba\"}\n";

static int begin(void **state) {
  (void)state;
  test_folder_make(folder);
  return 0;
}

static int end(void **state) {
  (void)state;
  command_place_close(folder, &output);
  return 0;
}

static void expect(const char *words, int code, const char *in_out, const char *in_err) {
  command_expect(folder, words, code, in_out, in_err, &output);
}

/* By the shell, which can redirect. */
static void expect_process(const char *words, int code, const char *in_out, const char *in_err) {
  test_command_run(folder, "", words, &output);
  if (output.code != code || strstr(output.out, in_out) == NULL || strstr(output.err, in_err) == NULL)
    fail_msg("hark %s: %d\n%s%s", words, output.code, output.out, output.err);
}

static bool write_packed(const char *name, const char *format, const char *data, size_t cut) {
  size_t bytes = 0;
  unsigned char *const packed = test_pack(format, data, strlen(data), &bytes);
  if (packed != NULL) test_file_write(folder, name, packed, bytes - cut);
  free(packed);
  return packed != NULL;
}

/* The validation losses of `hark eval run` of a run trained on the data; for free(). */
static char *trained_on(const char *data) {
  char line[512];
  test_folder_remove(test_path(folder, "run"));
  (void)snprintf(line, sizeof line, "train --out run --data %s " SMALL, data);
  expect(line, HARK_EXIT_DONE, "", "");
  expect("eval run --part validation", HARK_EXIT_DONE, "", "");
  char *const result = strdup(output.out);
  (void)snprintf(line, sizeof line, "train --resume --out run --data %s --steps 3", data);
  expect(line, HARK_EXIT_DONE, "", "");
  return result;
}

static void runs_are_the_same_as_on_plain_text(void **state) {
  (void)state;
  test_file_write_text(folder, "text.txt", text);
  test_file_write_text(folder, "text.jsonl", json_text);
  char *const plain = trained_on("text.txt"), *const lines = trained_on("text.jsonl");
  assert_string_equal(lines, plain);
  if (write_packed("text.gz", "gzip", text, 0)) {
    char *const packed = trained_on("text.gz");
    assert_string_equal(packed, plain);
    free(packed);
  }
  free(plain);
  free(lines);
}

static void standard_input(void **state) {
  (void)state;
  test_file_write_text(folder, "text.txt", text);
  test_file_write_text(folder, "reviews.tsv", reviews);
  test_folder_remove(test_path(folder, "run"));
  expect("train --out run --data text.txt " SMALL, HARK_EXIT_DONE, "", "");
  expect("eval run --data text.txt", HARK_EXIT_DONE, "", "");
  char *const of_file = strdup(output.out);
  expect_process("eval run --data - < text.txt", HARK_EXIT_DONE, "", "");
  assert_string_equal(output.out, of_file);
  free(of_file);
  expect_process("eval run --data - < reviews.tsv", HARK_EXIT_BAD_INPUT, "", "standard input:1:1: ");
  expect_process("eval run --data - < /dev/null", HARK_EXIT_BAD_INPUT, "", "standard input: is empty");
  expect_process("tokenize run - < text.txt", HARK_EXIT_DONE, "[7, 8, 6, 8, 7, 6, 7, 8, 8, 7]", "");
  test_file_write_text(folder, "tokens.jsonl", output.out);
  expect_process("detokenize run - < tokens.jsonl", HARK_EXIT_DONE, text, "");
  expect_process("data info --format text - < reviews.tsv", HARK_EXIT_DONE, "training: 3 examples", "");
  if (write_packed("reviews.xz", "xz", reviews, 0))
    expect_process("data info --format text - < reviews.xz", HARK_EXIT_DONE, "training: 3 examples", "");
  expect("train --out none --data - " SMALL, HARK_EXIT_USAGE, "", "standard input cannot be read again");
  assert_false(test_folder_count(folder, "run") == 0);
}

/* A run of an earlier version, whose configuration has no data.text_field, was trained on the bytes of its file. */
static void runs_from_before_json_lines_continue(void **state) {
  (void)state;
  test_file_write_text(folder, "text.jsonl", json_text);
  test_folder_remove(test_path(folder, "run"));
  expect("train --out run --data text.jsonl --text-field '' " SMALL, HARK_EXIT_DONE, "", "");
  expect("eval run --part validation", HARK_EXIT_DONE, "", "");
  char *const losses = strdup(output.out), *const yaml = test_file_text(folder, "run/config.yaml");
  char *const line = strstr(yaml, "  text_field: "), *const next = line != NULL ? strchr(line, '\n') + 1 : NULL;
  assert_non_null(line);
  losses[strcspn(losses, ";")] = '\0'; /* after it comes the time */
  memmove(line, next, strlen(next) + 1);
  test_file_write_text(folder, "run/config.yaml", yaml);
  expect("eval run --part validation", HARK_EXIT_DONE, losses, "");
  expect("train --resume run --steps 3", HARK_EXIT_DONE, "step 3 of 3", "");
  expect("eval run --part validation", HARK_EXIT_DONE, "", "");
  free(losses);
  free(yaml);
}

static void what_is_refused(void **state) {
  (void)state;
  test_file_write_text(folder, "bad.jsonl", "{\"text\": \"a\"}\n{\"body\": \"b\"}\n");
  expect("train --out none --data bad.jsonl " SMALL, HARK_EXIT_BAD_INPUT, "", "bad.jsonl:2:1: no member \"text\"");
  expect("train --out none --data bad.jsonl --text-field body " SMALL, HARK_EXIT_BAD_INPUT, "", "bad.jsonl:1:1: no member \"body\"");
  expect("data info --format text bad.jsonl", HARK_EXIT_BAD_INPUT, "", "bad.jsonl:1:1: no member \"label\"");
  expect("train --out none --data text.txt --label-field x " SMALL, HARK_EXIT_USAGE, "", "--label-field: has no effect here");
  if (write_packed("cut.zst", "zstd", text, 3)) {
    expect("train --out none --data cut.zst " SMALL, HARK_EXIT_BAD_INPUT, "", "cut.zst: ends within its zstd data");
    assert_int_equal(test_line_count(output.err), 1);
  }
}

static void folders_of_reviews(void **state) {
  (void)state;
  static const char *const places[] = {"imdb/train/pos/", "imdb/train/neg/", "imdb/test/pos/", "imdb/test/neg/"};
  char name[64], line[32];
  for (int i = 0; i < 16; i++) {
    (void)snprintf(name, sizeof name, "%s%d.txt", places[i % 4], i);
    (void)snprintf(line, sizeof line, "%s %d", i % 2 == 0 ? "good" : "bad", i);
    test_file_write_text(folder, name, line);
  }
  expect(
      "train --out reviews --data imdb --format text --architecture encoder --layers 1 --width 8 --heads 1 --context 8 --batch 2 --steps 2 "
      "--threads 1 --validation-fraction 0.25",
      HARK_EXIT_DONE, "", "");
  expect("eval reviews --part test", HARK_EXIT_DONE, "(", "");
  char *const of_run = strdup(strstr(output.out, "accuracy"));
  expect("eval reviews --data imdb/test", HARK_EXIT_DONE, "(", "");
  const size_t same = strcspn(of_run, ";"); /* after it comes the time */
  if (strncmp(strstr(output.out, "accuracy"), of_run, same) != 0) fail_msg("%s, not %s", output.out, of_run);
  free(of_run);
  expect("eval reviews --data imdb --part test", HARK_EXIT_DONE, "test accuracy", "");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(runs_are_the_same_as_on_plain_text),
      cmocka_unit_test(standard_input),
      cmocka_unit_test(runs_from_before_json_lines_continue),
      cmocka_unit_test(what_is_refused),
      cmocka_unit_test(folders_of_reviews),
  };
  return cmocka_run_group_tests(tests, begin, end);
}
