/* test_data.c - hark data: making tasks, describing examples, drawing them, and how wrong words and files are answered. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/common.h"
#include "io/files.h"
#include "support/cmocka_all.h"
#include "support/train/command_place.h"

static char folder[TEST_PATH_BYTES];
static test_output output;

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

static const json_t *at(const json_t *object, const char *first, const char *second) {
  const json_t *const inner = json_object_get(json_object_get(object, first), second);
  if (inner == NULL) fail_msg("no %s.%s", first, second);
  return inner;
}

static void a_task_is_made_and_told_about(void **state) {
  (void)state;
  expect("data make listops --out lists --training 60 --validation 5 --test 6 --seed 3 --json", HARK_EXIT_DONE, "", "");
  json_t *made = command_json(&output), *info;
  assert_string_equal(json_string_value(json_object_get(made, "generator")), "listops");
  assert_int_equal(json_integer_value(at(made, "parameters", "length-above")), 500);
  assert_int_equal(json_integer_value(json_object_get(at(made, "files", "test"), "examples")), 6);
  expect("data info lists --json", HARK_EXIT_DONE, "", "");
  info = command_json(&output);
  const json_t *const training = at(info, "splits", "training");
  int64_t classes = 0, operators = 0;
  const char *name;
  json_t *value;
  json_object_foreach(json_object_get(training, "classes"), name, value) classes += json_integer_value(value);
  json_object_foreach(json_object_get(training, "operators"), name, value) operators += json_integer_value(value);
  assert_int_equal(json_integer_value(json_object_get(training, "examples")), 60);
  assert_int_equal(classes, 60);
  assert_int_equal(json_object_size(json_object_get(training, "operators")), 4);
  assert_true(operators > 60 && json_integer_value(json_object_get(training, "arguments")) >= 2 * operators);
  assert_true(json_integer_value(at(training, "lengths", "least")) > 500);
  assert_true(json_integer_value(at(training, "lengths", "longest")) < 2000);
  assert_int_equal(json_integer_value(json_object_get(at(info, "splits", "test"), "examples")), 6);
  json_decref(made);
  json_decref(info);
  expect("data info lists", HARK_EXIT_DONE, "training: 60 examples", "");
  assert_non_null(strstr(output.out, "operator [MED"));
  assert_non_null(strstr(output.out, "class 9"));
  expect("data make listops --out lists", HARK_EXIT_USAGE, "", "lists: is not empty");
  expect("data make copy --training 1000000000000 --out vast", HARK_EXIT_DISK, "", "MiB are free");
  expect("data make copy --length 12 --out small --training 2 --test 0", HARK_EXIT_DONE,
         "small: 2 training 1000 validation examples of copy", "");
  expect("data info small", HARK_EXIT_DONE, "2 examples, 24 tokens, 12 targets", "");
}

static void a_text_is_made(void **state) {
  (void)state;
  expect("data make periodic-text --kind period --period 4 --tokens 32 --training 30 --validation 5 --test 0 --out text", HARK_EXIT_DONE,
         "text: 30 training 5 validation examples of periodic-text\noptimal loss, nats per token: ", "");
  assert_non_null(strstr(output.out, " validation; of a long document 1.17921\n"));
  expect("data make periodic-text --tokens 32 --training 30 --out lag --json", HARK_EXIT_DONE, "\"entropy_rate\": 1.179208", "");
  json_t *made = command_json(&output);
  assert_true(json_real_value(json_object_get(at(made, "files", "test"), "optimal_loss")) > 1.2);
  json_decref(made);
  expect("data info text", HARK_EXIT_USAGE, "", "text: its files are texts, expected a folder of labelled examples");
  expect("train --data text --steps 1 --out run", HARK_EXIT_USAGE, "",
         "expected --data text/training.txt --validation text/validation.txt");
  expect(
      "train --data text/training.txt --validation text/validation.txt --steps 1 --layers 1 --width 8 --heads 1 --context 8 --batch 2 "
      "--out run",
      HARK_EXIT_DONE, "", "");
}

/* Quantiles of known lengths, and a split of a file. */
static void files_are_reported_about(void **state) {
  (void)state;
  char text[4096];
  size_t used = 0;
  for (int i = 1; i <= 20; i++)
    used += (size_t)snprintf(text + used, sizeof text - used, "%d\t%.*s\n", i % 2, i, "aaaaaaaaaaaaaaaaaaaaaaaa");
  (void)test_file_write_text(folder, "t.tsv", text);
  expect("data info --format text t.tsv", HARK_EXIT_DONE, "least 1, 5 % 1, 25 % 5, median 10, 75 % 15, 95 % 19, longest 20", "");
  assert_non_null(strstr(output.out, "class 1                   10   50.0 %"));
  expect("data info --format text --validation-fraction 0.25 t.tsv", HARK_EXIT_DONE, "validation: 5 examples", "");
  expect("data info --format text --classes 3 t.tsv", HARK_EXIT_DONE, "class 2                    0    0.0 %", "");
  expect("data info --format text --quoted t.tsv", HARK_EXIT_DONE, "20 examples", "");
}

static void options_of_another_format_are_refused(void **state) {
  (void)state;
  (void)test_file_write_text(folder, "p.tsv", "1\ta\tb\tone\ttwo\n0\ta\tb\tthree\tfour\n");
  (void)test_file_write_text(folder, "l.tsv", "Source\tTarget\n[MAX 2 3 ]\t3\n");
  expect("data info --format pairs --quoted p.tsv", HARK_EXIT_DONE, "2 examples", "");
  expect("data info --format pairs --text-field text p.tsv", HARK_EXIT_USAGE, "",
         "--text-field: has no effect here, it needs --format text (currently pairs)");
  expect("data info --format pairs --label-field l p.tsv", HARK_EXIT_USAGE, "", "--label-field: has no effect here");
  expect("data info --format listops --quoted l.tsv", HARK_EXIT_USAGE, "",
         "--quoted: has no effect here, it needs --format text or pairs (currently listops)");
  expect("data make listops --out nested --training 4 --validation 0 --test 0", HARK_EXIT_DONE, "", "");
  expect("data info nested --quoted", HARK_EXIT_USAGE, "", "--quoted: has no effect here");
  expect("train --data nested --format examples --quoted", HARK_EXIT_USAGE, "", "--quoted: has no effect here");
}

/* By the names of the files; a folder may have files of both kinds. */
static void options_of_other_lines_are_refused(void **state) {
  (void)state;
  static const char *const cases[][2] = {
      {"l.tsv --text-field text", "--text-field: has no effect here, it needs JSON lines (.jsonl, .ndjson)"},
      {"l.tsv --label-field l", "--label-field: has no effect here, it needs JSON lines (.jsonl, .ndjson)"},
      {"o.jsonl --quoted", "--quoted: has no effect here, it needs fields that are separated by tabs, and JSON lines have none"},
      {"o.jsonl --text-field ''", "--text-field: is empty, expected "},
      {"o.jsonl --label-field ''", "--label-field: is empty, expected "}};
  static const char *const fine[] = {"o.jsonl --text-field text --label-field label", "l.tsv --quoted",
                                     "l.tsv o.jsonl --quoted --text-field text"};
  char words[256];
  (void)test_file_write_text(folder, "l.tsv", "0\tone\n1\ttwo\n0\tthree\n1\tfour\n");
  (void)test_file_write_text(folder, "o.jsonl", "{\"text\": \"one\", \"label\": 0}\n{\"text\": \"two\", \"label\": 1}\n");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    (void)snprintf(words, sizeof words, "data info --format text %s", cases[i][0]);
    expect(words, HARK_EXIT_USAGE, "", cases[i][1]);
    (void)snprintf(words, sizeof words, "train --format text --architecture encoder --out none --data %s", cases[i][0]);
    expect(words, HARK_EXIT_USAGE, "", cases[i][1]);
    assert_int_equal(test_line_count(output.err), 1);
  }
  for (size_t i = 0; i < sizeof fine / sizeof *fine; i++) {
    (void)snprintf(words, sizeof words, "data info --format text %s", fine[i]);
    expect(words, HARK_EXIT_DONE, "", "");
  }
  expect("train --data text.txt --text-field x --out none", HARK_EXIT_USAGE, "", "--text-field: has no effect here, it needs JSON lines");
  expect("train --data text.txt --text-field '' --out none", HARK_EXIT_USAGE, "", "--text-field: has no effect here, it needs JSON lines");
}

static void images_are_drawn(void **state) {
  (void)state;
  expect("data make pathfinder --out images --training 6 --validation 2 --test 0", HARK_EXIT_DONE, "", "");
  expect("data picture images --count 4 --columns 2 --scale 2 --out sheet.svg", HARK_EXIT_DONE, "", "");
  char *const svg = test_file_text(folder, "sheet.svg");
  int images = 0, zeros = 0;
  for (const char *here = svg; (here = strstr(here, "<g transform")) != NULL; here++) images++;
  for (const char *here = svg; (here = strstr(here, ">0</text>")) != NULL; here++) zeros++;
  assert_int_equal(images, 4);
  assert_int_equal(zeros, 2);
  assert_non_null(strstr(svg, "width=\"146\" height=\"174\"")); /* 6 + 2 (64 + 6), 6 + 2 (64 + 6 + 14) */
  assert_non_null(strstr(svg, "<path fill=\"#ffffff\""));       /* the discs */
  assert_string_equal(svg + strlen(svg) - 7, "</svg>\n");
  free(svg);
  expect("data picture images --split validation --out sheet.svg", HARK_EXIT_DONE, "", "");
  expect("data picture images --split test --out none.svg", HARK_EXIT_USAGE, "", "--split: there are no test examples");
  (void)test_file_write_text(folder, "p.tsv", "1\ta\n0\tb\n");
  expect("data picture --format text p.tsv --out none.svg", HARK_EXIT_USAGE, "", "examples of the format text are not images");
  assert_int_equal(hark_path_kind_of(test_path(folder, "none.svg")), HARK_PATH_NONE);
}

static void wrong_words(void **state) {
  (void)state;
  static const struct {
    const char *words;
    int code;
    const char *message;
  } wrong[] = {
      {"", 2, "usage: hark data"},
      {"mak", 2, "did you mean make?"},
      {"make --out x", 2, "TASK: missing, expected one of listops, pathfinder, recall, "},
      {"make recal --out x", 2, "recal: unknown task, expected one of listops, pathfinder, recall, "},
      {"make recal --out x", 2, "; did you mean recall?"},
      {"make recall copy --out x", 2, "copy: make makes one task at a time"},
      {"make recall", 2, "--out: missing, expected a folder"},
      {"make recall --out x --depth 3", 2, "--depth: has no effect here, it needs data make listops"},
      {"make copy --out x --pairs 3", 2, "--pairs: has no effect here, it needs data make recall"},
      {"make copy --out x --labels 3", 2, "--labels: has no effect here, it needs data make needle or runs"},
      {"make needle --out x --hops 3", 2, "--hops: has no effect here, it needs data make maps"},
      {"make runs --out x --asked after", 2, "--asked: has no effect here, it needs data make needle"},
      {"make maps --out x --length 100", 2, "--length: 100 words, expected a whole number of chunks of 9"},
      {"make maps --out x --hard 2", 2, "--hard: "},
      {"make runs --out x --chunk 3", 2, "--chunk: has no effect here, it needs data make needle"},
      {"make runs --out x --shortest 20", 2, "--shortest: runs of at least 20 words, --longest is 13"},
      {"make latent --out x --kind lag", 2, "--kind: has no effect here, it needs data make periodic-text"},
      {"make periodic-text --out x --kind none --lag 3", 2, "--lag: has no effect here, it needs --kind lag (currently none)"},
      {"make periodic-text --out x --period 3", 2, "--period: has no effect here, it needs --kind period (currently lag)"},
      {"make periodic-text --out x --features 3", 2, "--features: has no effect here, it needs data make latent"},
      {"make periodic-text --out x --lag 0", 2, "--lag: "},
      {"make periodic-text --out x --lag 2000", 2, "--lag: 2000, a document of 1024 tokens"},
      {"make periodic-text --out x --noise 2", 2, "--noise: 2, expected a probability"},
      {"make periodic-text --out x --alphabet 99", 2, "--alphabet: "},
      {"make periodic-text --out x --kind contents", 2, "--kind: "},
      {"make copy --out x --count 3", 2, "--count: has no effect here, it needs data picture"},
      {"make copy --out x --training 0", 2, "--training: 0, expected at least one example"},
      {"make recall --out x --length 20", 2, "--length: 20 words, 16 pairs and 16 queries take 48"},
      {"make pathfinder --out x --size 48", 2, "--size: \"48\" given, expected one of 32, 64, 128"},
      {"info", 2, "PATH: missing"},
      {"info t --out x", 2, "--out: has no effect here, it needs data make or picture"},
      {"info none.tsv --format text", 3, "none.tsv: cannot be opened"},
      {"info none.tsv", 3, "none.tsv: cannot be opened: No such file or directory"},
      {"info bad.tsv", 2, "bad.tsv: no format is given"},
      {"info bad.tsv --format text", 3, "bad.tsv:1:1: label 5 is out of range, expected 0 to 1"},
      {"info bad.tsv --format text2", 2, "no format of examples is called \"text2\""},
      {"info bad.tsv --format image", 3, "bad.tsv: 4 bytes, expected a multiple of 3073"},
      {"picture bad.tsv --format text", 2, "--out: missing, expected a file"},
      {"picture bad.tsv --format text --out x --json", 2, "--json: a picture has none"},
  };
  (void)test_file_write_text(folder, "bad.tsv", "5\ta\n");
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
    char words[256];
    snprintf(words, sizeof words, "data %s", wrong[i].words);
    expect(words, wrong[i].code, "", wrong[i].message);
    assert_int_equal(test_line_count(output.err), 1);
    assert_string_equal(output.out, "");
    assert_int_equal(hark_path_kind_of(test_path(folder, "x")), HARK_PATH_NONE);
  }
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
  const struct CMUnitTest tests[] = {TEST(a_task_is_made_and_told_about),
                                     TEST(a_text_is_made),
                                     TEST(files_are_reported_about),
                                     TEST(images_are_drawn),
                                     TEST(wrong_words),
                                     TEST(options_of_another_format_are_refused),
                                     TEST(options_of_other_lines_are_refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
