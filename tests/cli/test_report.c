/* test_report.c - hark report: one file without network, below its size, with what the runs hold; damaged, running, empty, different and
 * many runs. scripts/check-report.sh opens such a page in a browser. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/common.h"
#include "support/cmocka_all.h"
#include "support/command_fixture.h"

#define PAGE_LIMIT 2000000 /* bytes, for ten runs of 5,000 points */

static void expect(const char *words, int code, const char *in_out, const char *in_err) {
  command_expect(folder, words, code, in_out, in_err, &output);
}

/* ---- reading a page ---- */

static char *page; /* the last one */
static json_t *data;

static void forget_page(void) {
  free(page);
  json_decref(data);
  page = NULL;
  data = NULL;
}

static void read_page(const char *name) {
  static const char begin_mark[] = "id=\"data\">", end_mark[] = "</script>";
  json_error_t error;
  forget_page();
  page = test_file_text(folder, name);
  const char *const first = strstr(page, begin_mark);
  assert_non_null(first);
  const char *const from = first + sizeof begin_mark - 1, *const to = strstr(from, end_mark);
  assert_non_null(to);
  data = json_loadb(from, (size_t)(to - from), JSON_REJECT_DUPLICATES, &error);
  if (data == NULL) fail_msg("%s: the data are no JSON: %s at %d", name, error.text, error.position);
}

static json_t *item(const char *list, size_t index) {
  json_t *const found = json_array_get(json_object_get(data, list), index);
  if (found == NULL) fail_msg("no item %zu of %s", index, list);
  return found;
}

static size_t count_of(const char *list) { return json_array_size(json_object_get(data, list)); }

static const char *text_of(const json_t *object, const char *name) {
  const char *const text = json_string_value(json_object_get(object, name));
  if (text == NULL) fail_msg("no text %s", name);
  return text;
}

/* The problem with that part is in the page, of run `run` (-1: of none). */
static void expect_problem(int run, const char *part) {
  for (size_t i = 0; i < count_of("problems"); i++) {
    const json_t *const of = json_object_get(item("problems", i), "run");
    const int index = json_is_integer(of) ? (int)json_integer_value(of) : -1;
    if (index == run && strstr(text_of(item("problems", i), "text"), part) != NULL) return;
  }
  fail_msg("no problem \"%s\" of run %d", part, run);
}

/* The last point of a curve of run 0: its x is the sum of the differences. */
static double last_point(json_t *detail, const char *metric, double *y) {
  const json_t *const curve = json_object_get(json_object_get(json_object_get(detail, "curves"), metric), "points");
  const json_t *const xs = json_object_get(curve, "x"), *const ys = json_object_get(curve, "y");
  double x = 0;
  assert_true(json_array_size(xs) > 0 && json_array_size(xs) == json_array_size(ys));
  for (size_t i = 0; i < json_array_size(xs); i++) x += json_number_value(json_array_get(xs, i));
  *y = json_number_value(json_array_get(ys, json_array_size(ys) - 1));
  return x;
}

/* ---- a page ---- */

static void a_page_is_one_file(void **state) {
  (void)state;
  double y = 0;
  expect("train --data text.txt --out run --steps 6 --evaluate-every 3 " COMMAND_TINY, HARK_EXIT_DONE, "", "");
  expect("report run", HARK_EXIT_DONE, "report.html: 1 run, ", "");
  read_page("report.html");
  static const char *const outside[] = {"<link",          " src=",  "@import", "https://", "fetch(",
                                        "XMLHttpRequest", "@DATA@", "@STYLE@", "@SCRIPT@"};
  for (size_t i = 0; i < sizeof outside / sizeof outside[0]; i++)
    if (strstr(page, outside[i]) != NULL) fail_msg("the page has %s", outside[i]);
  assert_non_null(strstr(page, "default-src 'none'"));
  assert_int_equal(count_of("runs"), 1);
  assert_string_equal(text_of(item("runs", 0), "path"), "run");
  assert_string_equal(text_of(item("runs", 0), "state"), "done");
  assert_true(last_point(item("details", 0), "train/loss", &y) == 6);
  assert_true(fabs(y - command_number(item("runs", 0), "train/loss")) < 1e-3);
  assert_true(last_point(item("details", 0), "val/loss", &y) == 6);
  assert_true(command_number(item("details", 0), "parameters") > 100);
  assert_true(command_number(json_object_get(item("details", 0), "memory"), "weights") ==
              4 * command_number(item("details", 0), "parameters"));
  assert_int_equal(count_of("problems"), 0);
  expect("report run --json", HARK_EXIT_DONE, "", "");
  json_t *const summary = command_json(&output);
  assert_true(command_number(summary, "runs") == 1 && command_number(summary, "bytes") == (double)strlen(page));
  json_decref(summary);
  /* the same bytes again: no time, no random number */
  char *const first = strdup(page);
  expect("report run", HARK_EXIT_DONE, "", "");
  read_page("report.html");
  assert_string_equal(first, page);
  free(first);
}

/* At most twelve of a run, evenly spaced; of a step that was repeated the last one. */
static void samples_are_shown(void **state) {
  (void)state;
  expect("train --data text.txt --out run --steps 3 --checkpoint-every 1 --sample-tokens 4 --sample-prompt the " COMMAND_TINY,
         HARK_EXIT_DONE, "", "");
  expect("report run", HARK_EXIT_DONE, "", "");
  read_page("report.html");
  assert_int_equal(count_of("samples"), 1);
  const json_t *texts = json_object_get(item("samples", 0), "texts");
  assert_int_equal(json_array_size(texts), 3);
  assert_string_equal(text_of(json_array_get(texts, 2), "prompt"), "the");
  assert_true(strlen(text_of(json_array_get(texts, 2), "text")) >= 4);

  FILE *const file = fopen(test_path(folder, "run/samples.jsonl"), "w");
  assert_non_null(file);
  for (int step = 1; step <= 30; step++) fprintf(file, "{\"step\": %d, \"text\": \"</script>%d\"}\n", step, step);
  fprintf(file, "{\"step\": 29, \"text\": \"again\"}\n{\"step\": 41, \"text\": \"");
  for (int i = 0; i < 1500; i++) fprintf(file, "\xc3\xa9");
  fprintf(file, "\"}\n{\"step\": 42, \"te");
  assert_int_equal(fclose(file), 0);
  expect("report run", HARK_EXIT_DONE, "", "");
  read_page("report.html");
  texts = json_object_get(item("samples", 0), "texts");
  assert_true(command_number(item("samples", 0), "count") == 30);
  assert_int_equal(json_array_size(texts), 12);
  assert_true(command_number(json_array_get(texts, 0), "step") == 1 && command_number(json_array_get(texts, 11), "step") == 41);
  assert_string_equal(text_of(json_array_get(texts, 0), "text"), "</script>1");
  assert_int_equal(strlen(text_of(json_array_get(texts, 11), "text")), 2000);
  assert_true(json_is_true(json_object_get(json_array_get(texts, 11), "text_cut")));
  assert_int_equal(count_of("problems"), 0);

  test_file_write_text(folder, "run/samples.jsonl", "{\"step\": 1, \"text\": \"a\"}\n{\"step\": 2}\n");
  expect("report run", HARK_EXIT_DONE, "", "samples.jsonl:2: no sample of text");
  read_page("report.html");
  expect_problem(0, "samples.jsonl:2: no sample of text");
}

/* Texts of users end neither the script nor the title. */
static void texts_are_escaped(void **state) {
  (void)state;
  expect("train --data text.txt --out run --steps 1 " COMMAND_TINY, HARK_EXIT_DONE, "", "");
  expect("report run -o page.html --title '</title></script><!--<b>&'", HARK_EXIT_DONE, "", "");
  read_page("page.html");
  assert_string_equal(text_of(data, "title"), "</title></script><!--<b>&");
  assert_non_null(strstr(page, "<title>&lt;/title&gt;"));
  assert_null(strstr(page, "<b>&"));
}

/* A model of bytes reads any text; a page has characters. */
static void texts_that_are_not_utf8_are_reported(void **state) {
  (void)state;
  char accents[1024] = "a"; /* more than is read, which ends within a character */
  expect("train --data text.txt --tokenizer bytes --out run --steps 1 " COMMAND_TINY, HARK_EXIT_DONE, "", "");
  test_file_write_text(folder, "latin.txt", "the \xe9t\xe9 was");
  expect("report run -o page.html --file latin.txt", HARK_EXIT_DONE, "1 run",
         "warning: latin.txt: is not UTF-8 at byte offset 4: such bytes are shown as U+FFFD");
  read_page("page.html");
  assert_string_equal(json_string_value(json_array_get(json_object_get(item("texts", 0), "tokens"), 4)), "\xef\xbf\xbd");
  expect("report run -o page.html --text 'a\xe9'", HARK_EXIT_DONE, "1 run", "warning: --text: is not UTF-8 at byte offset 1");
  for (int i = 0; i < 500; i++) strcat(accents, "\xc3\xa9");
  test_file_write_text(folder, "accents.txt", accents);
  for (int tokens = 2; tokens < 6; tokens++) {
    char words[128];
    (void)snprintf(words, sizeof words, "report run -o page.html --file accents.txt --tokens %d", tokens);
    expect(words, HARK_EXIT_DONE, "1 run", "");
    assert_null(strstr(output.err, "warning"));
  }
  expect("report run -o page.html --title 'a\xe9'", HARK_EXIT_USAGE, "", "--title: is not UTF-8");
}

/* ---- curves ---- */

/* A run of `points` lines, with one loss of 99 in the middle. */
static void make_long_run(const char *name, int points) {
  char path[128], command[2 * TEST_PATH_BYTES + 64];
  (void)snprintf(command, sizeof command, "cp -r '%s/seed' '%s/%s'", folder, folder, name);
  assert_int_equal(system(command), 0);
  (void)snprintf(path, sizeof path, "%s/metrics.jsonl", name);
  FILE *const file = fopen(test_path(folder, path), "w");
  assert_non_null(file);
  for (int step = 1; step <= points; step++)
    assert_true(fprintf(file,
                        "{\"step\": %d, \"tokens\": %d, \"time\": %.3f, \"train/loss\": %.15g, \"val/loss\": %.15g, \"lr\": %.15g, "
                        "\"grad_norm\": %.15g, \"tokens_per_second\": %.15g, \"mfu\": 0.31234567}\n",
                        step, 1024 * step, 0.125 * step, step == points / 2 ? 99 : 4 + sin(step) / 3, 4 - cos(step / 10.0) / 3, 1e-3 / step,
                        1 + fabs(sin(7.0 * step)), 1e5 + step) > 0);
  assert_int_equal(fclose(file), 0);
}

static void ten_long_runs_are_below_the_limit(void **state) {
  (void)state;
  double y = 0;
  expect("train --data text.txt --out seed --steps 1 " COMMAND_TINY, HARK_EXIT_DONE, "", "");
  for (int i = 0; i < 10; i++) {
    char name[32];
    (void)snprintf(name, sizeof name, "long/%d", i);
    test_file_write_text(folder, "long/.keep", ""); /* makes the folder */
    make_long_run(name, 5000);
  }
  expect("report long -o long.html", HARK_EXIT_DONE, "long.html: 10 runs, ", "");
  read_page("long.html");
  print_message("%zu bytes\n", strlen(page));
  assert_true(strlen(page) < PAGE_LIMIT);
  assert_int_equal(count_of("details"), 10);
  for (size_t run = 0; run < 10; run++) {
    json_t *const detail = item("details", run);
    const json_t *const curve = json_object_get(json_object_get(detail, "curves"), "train/loss");
    const json_t *const ys = json_object_get(json_object_get(curve, "points"), "y");
    double most = 0;
    for (size_t i = 0; i < json_array_size(ys); i++) most = fmax(most, json_number_value(json_array_get(ys, i)));
    assert_true(most == 99); /* no peak is lost */
    assert_true(json_array_size(ys) > 1000 && json_array_size(ys) <= 1500);
    assert_int_equal((int)command_number(curve, "all"), 5000);
    assert_true(last_point(detail, "train/loss", &y) == 5000);
    assert_true(last_point(detail, "lr", &y) == 5000);
  }
}

/* ---- runs that are not as they should be ---- */

static void shell(const char *words) {
  char command[TEST_PATH_BYTES + 1024];
  (void)snprintf(command, sizeof command, "cd '%s' && %s", folder, words);
  assert_int_equal(system(command), 0);
}

static void what_can_be_shown_is_shown(void **state) {
  (void)state;
  expect("train --data text.txt --out all/good --steps 4 " COMMAND_TINY, HARK_EXIT_DONE, "", "");
  expect("train --data text.txt --out all/torn --steps 4 " COMMAND_TINY, HARK_EXIT_DONE, "", "");
  expect("train --data text.txt --out all/lines --steps 4 " COMMAND_TINY, HARK_EXIT_DONE, "", "");
  expect("train --data text.txt --out all/working --steps 4 " COMMAND_TINY, HARK_EXIT_DONE, "", "");
  shell("mkdir all/new && cp all/good/config.yaml all/new");
  shell("printf x >>all/torn/checkpoints/step-4/model.safetensors");
  shell("printf 'no JSON\\n{\"step\": 5, \"train/loss\": 1}\\n' >>all/lines/metrics.jsonl");
  FILE *const lock = fopen(test_path(folder, "all/working/.lock"), "a");
  assert_non_null(lock);
  assert_int_equal(flock(fileno(lock), LOCK_EX | LOCK_NB), 0);
  expect("report all missing -o all.html", HARK_EXIT_BAD_INPUT, "all.html: 5 runs, 2 damaged, 1 running", "missing: no such folder\n");
  assert_non_null(strstr(output.err, "\nhark report: all.html lacks 1 of the 2 arguments\n"));
  assert_non_null(strstr(output.err, "all/torn: damaged: "));
  assert_non_null(strstr(output.err, "all/lines: damaged: all/lines/metrics.jsonl: a line at its end is no JSON"));
  assert_non_null(strstr(output.err, "all/working: a process still writes it"));
  assert_int_equal(fclose(lock), 0);
  read_page("all.html");
  static const char *const states[] = {"done", "damaged", "empty", "damaged", "running"}; /* good, lines, new, torn, working */
  double y = 0;
  for (size_t i = 0; i < 5; i++) assert_string_equal(text_of(item("runs", i), "state"), states[i]);
  expect_problem(-1, "missing: no such folder");
  expect_problem(1, "metrics.jsonl");
  for (size_t i = 0; i < 5; i++)
    if (i != 2) assert_true(last_point(item("details", i), "train/loss", &y) == 4);
  assert_int_equal(json_object_size(json_object_get(item("details", 2), "curves")), 0);
}

static void nothing_to_show_is_an_error(void **state) {
  (void)state;
  shell("mkdir nothing");
  expect("report nothing -o none.html", HARK_EXIT_BAD_INPUT, "", "hark report: nothing: no runs in this folder\n");
  assert_int_equal(test_line_count(output.err), 1);
  expect("report missing -o none.html", HARK_EXIT_BAD_INPUT, "", "hark report: missing: no such folder\n");
  expect("report nothing missing -o none.html", HARK_EXIT_BAD_INPUT, "", "none of the 2 arguments is a run");
  assert_int_not_equal(access(test_path(folder, "none.html"), F_OK), 0);
  expect("report", HARK_EXIT_USAGE, "", "missing");
  expect("report nothing --tokens 5", HARK_EXIT_USAGE, "", "--tokens: has no effect here");
  expect("train --data text.txt --out run --steps 1 " COMMAND_TINY, HARK_EXIT_DONE, "", "");
  expect("report run -o nowhere/page.html", HARK_EXIT_DISK, "", "nowhere");
}

static void ten_thousand_runs_are_counted(void **state) {
  (void)state;
  expect("train --data text.txt --out run --steps 1 " COMMAND_TINY, HARK_EXIT_DONE, "", "");
  for (int i = 0; i < 10000; i++) {
    char copy[TEST_PATH_BYTES + 64];
    (void)snprintf(copy, sizeof copy, "%s/many/%d", folder, i);
    if (i == 0) test_file_write_text(folder, "many/.keep", ""); /* makes the folder */
    assert_int_equal(mkdir(copy, 0755), 0);
    (void)snprintf(copy, sizeof copy, "%s/many/%d/config.yaml", folder, i);
    assert_int_equal(link(test_path(folder, "run/config.yaml"), copy), 0);
  }
  expect("report many -o many.html --curves 3", HARK_EXIT_DONE,
         "many.html: 10000 runs, curves of the first 3, the table lists the first 2000, ", "");
  read_page("many.html");
  assert_int_equal(count_of("runs"), 2000);
  assert_int_equal(count_of("details"), 3);
  assert_true(command_number(data, "found") == 10000);
  assert_true(strlen(page) < PAGE_LIMIT);
}

/* ---- parts ---- */

static void only_differences_are_listed(void **state) {
  (void)state;
  bool rate = false;
  expect("train --data text.txt --out a --steps 1 --lr 1e-3 " COMMAND_TINY, HARK_EXIT_DONE, "", "");
  expect("train --data text.txt --out b --steps 1 --lr 2e-3 " COMMAND_TINY, HARK_EXIT_DONE, "", "");
  expect("report a b -o two.html", HARK_EXIT_DONE, "", "");
  read_page("two.html");
  for (size_t i = 0; i < count_of("differences"); i++) {
    const json_t *const values = json_object_get(item("differences", i), "values");
    const char *const first = json_string_value(json_array_get(values, 0)), *const second = json_string_value(json_array_get(values, 1));
    assert_int_equal(json_array_size(values), 2);
    if (first != NULL && second != NULL) assert_string_not_equal(first, second);
    if (strcmp(text_of(item("differences", i), "key"), "train.learning_rate") == 0)
      rate = strcmp(first, "0.001") == 0 && strcmp(second, "0.002") == 0;
  }
  assert_true(rate);
  expect("report a -o one.html", HARK_EXIT_DONE, "", "");
  read_page("one.html");
  assert_int_equal(count_of("differences"), 0);
}

/* log decay(d), l = 4, is -d / 4. */
static void kernels_are_those_of_the_checkpoint(void **state) {
  (void)state;
  expect("train --data text.txt --out run --steps 1 --positions none --positional 'decay(l=4)' --train.positional-rate 0 " COMMAND_TINY,
         HARK_EXIT_DONE, "", "");
  expect("report run -o kernel.html", HARK_EXIT_DONE, "", "");
  read_page("kernel.html");
  assert_int_equal(count_of("kernels"), 1);
  assert_string_equal(text_of(item("kernels", 0), "title"), "model");
  const json_t *const curve = json_array_get(json_object_get(item("kernels", 0), "curves"), 0);
  const json_t *const ys = json_object_get(curve, "y");
  assert_int_equal(json_array_size(ys), 9); /* distances 0 to the context */
  for (size_t d = 0; d < 9; d++) assert_true(fabs(json_number_value(json_array_get(ys, d)) + (double)d / 4) < 1e-4);
  expect("report run -o kernel.html --kernels 0", HARK_EXIT_DONE, "", "");
  read_page("kernel.html");
  assert_int_equal(count_of("kernels"), 0);
  assert_true(command_number(data, "kernels_left_out") == 1);
}

static void different_kinds_read_a_text(void **state) {
  (void)state;
  expect("train --data text.txt --out kinds/dense --steps 1 " COMMAND_TINY, HARK_EXIT_DONE, "", "");
  expect("train --data text.txt --out kinds/tree --steps 1 --structure hierarchical --hierarchy-block 2 " COMMAND_TINY, HARK_EXIT_DONE, "",
         "");
  expect("data make recall --length 24 --pairs 4 --training 4 --validation 2 --test 0 --out recall", HARK_EXIT_DONE, "", "");
  expect(
      "train --data recall --format examples --architecture ahca --layers 2 --width 8 --heads 2 --context 32 --batch 2 --chunk-size 4 "
      "--selected 2 --secondary-slots 4 --steps 1 --threads 1 --out kinds/chunks",
      HARK_EXIT_DONE, "", "");
  expect("data make latent --out latent --training 8 --validation 4 --test 0", HARK_EXIT_DONE, "", "");
  expect(
      "train --data latent --format examples --architecture latent --width 4 --heads 2 --context 16 --batch 2 --threads 1 --steps 1 "
      "--out kinds/vectors",
      HARK_EXIT_DONE, "", "");
  test_file_write_text(folder, "read.txt", "the quick brown fox");
  expect("report kinds -o kinds.html --file read.txt --tokens 6", HARK_EXIT_DONE, "4 runs", "kinds/vectors: reads real vectors");
  read_page("kinds.html"); /* chunks, dense, tree, vectors */
  assert_int_equal(count_of("texts"), 3);
  const json_t *const chunks = json_array_get(json_object_get(item("texts", 0), "chunks"), 0);
  double tokens = 0;
  for (size_t i = 0; i < json_array_size(json_object_get(chunks, "chunks")); i++)
    tokens += json_number_value(json_array_get(json_object_get(chunks, "chunks"), i));
  assert_true(tokens == command_number(chunks, "tokens") && tokens == (double)json_array_size(json_object_get(item("texts", 0), "tokens")));
  const json_t *const words = json_object_get(item("texts", 1), "tokens");
  assert_int_equal(json_array_size(words), 6);
  assert_string_equal(json_string_value(json_array_get(words, 4)), "q");
  const json_t *const layer = json_array_get(json_object_get(item("texts", 1), "layers"), 0);
  assert_string_equal(text_of(layer, "kind"), "dense");
  assert_int_equal(json_array_size(json_object_get(layer, "heads")), 2);
  const json_t *const head = json_array_get(json_object_get(layer, "heads"), 0);
  assert_int_equal(strlen(text_of(head, "map")), 36 / 3 * 4);    /* base64 of 6 x 6 bytes */
  assert_int_equal(strncmp(text_of(head, "map"), "/4CA", 4), 0); /* the first query sees itself alone: 255, 128, 128 */
  const json_t *const tree = json_array_get(json_object_get(item("texts", 2), "layers"), 0);
  assert_string_equal(text_of(tree, "kind"), "hierarchical");
  assert_non_null(json_object_get(json_array_get(json_object_get(tree, "heads"), 0), "cells"));
  expect_problem(3, "reads real vectors");
  expect("report kinds -o kinds.html --file none.txt", HARK_EXIT_BAD_INPUT, "", "--file: none.txt: cannot be opened");
  test_file_write_text(folder, "empty.txt", "");
  expect("report kinds -o kinds.html --file empty.txt", HARK_EXIT_BAD_INPUT, "", "--file: empty.txt: is empty");
  test_file_write_text(folder, "bytes.txt", "\xff\xfe");
  expect("report kinds/dense -o lacking.html --text 'the \xc3\x9f'", HARK_EXIT_DONE, "1 run",
         "kinds/dense: 1 of 5 tokens of the text are the unknown token");
  read_page("lacking.html");
  expect_problem(0, "1 of 5 tokens of the text are the unknown token");
  expect("report kinds -o kinds.html --file bytes.txt", HARK_EXIT_DONE, "4 runs", "kinds/dense: bytes.txt: text:1:1: invalid UTF-8");
}

static void evaluations_are_taken_from_files(void **state) {
  (void)state;
  char *const text = calloc(1, 20000);
  for (int i = 0; i < 60; i++) {
    char line[64];
    (void)snprintf(line, sizeof line, "%d\tfilm %s %d\n", i % 3, i % 3 == 0 ? "good" : i % 3 == 1 ? "bad" : "dull", i % 7);
    strcat(text, line);
  }
  test_file_write_text(folder, "films.tsv", text);
  free(text);
  expect(
      "train --data films.tsv --format text --classes 3 --architecture encoder --layers 1 --width 16 --heads 2 --context 24 --batch 4 "
      "--threads 1 --steps 2 --out films",
      HARK_EXIT_DONE, "", "");
  expect("eval films --json", HARK_EXIT_DONE, "confusion", "");
  test_file_write_text(folder, "eval.json", output.out);
  expect("report films -o films.html --evaluation eval.json --evaluation films.tsv", HARK_EXIT_BAD_INPUT, "",
         "--evaluation: films.tsv:1:1: not");
  expect("report films -o films.html --evaluation eval.json --text 'film good 1'", HARK_EXIT_DONE, "", "");
  read_page("films.html");
  assert_int_equal(count_of("evaluations"), 1);
  const json_t *const confusion = json_object_get(item("evaluations", 0), "confusion");
  double all = 0;
  assert_int_equal(json_array_size(confusion), 3);
  for (size_t i = 0; i < 9; i++) all += json_number_value(json_array_get(json_array_get(confusion, i / 3), i % 3));
  assert_true(all == command_number(item("evaluations", 0), "targets"));
  const json_t *const tokens = json_object_get(item("texts", 0), "tokens"); /* with the one that the encoder inserts */
  assert_int_equal(json_array_size(tokens), 1 + strlen("film good 1"));
}

static int finish(void **state) {
  forget_page();
  return end(state);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, finish)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(a_page_is_one_file),
      TEST(texts_are_escaped),
      TEST(texts_that_are_not_utf8_are_reported),
      TEST(samples_are_shown),
      TEST(ten_long_runs_are_below_the_limit),
      TEST(what_can_be_shown_is_shown),
      TEST(nothing_to_show_is_an_error),
      TEST(ten_thousand_runs_are_counted),
      TEST(only_differences_are_listed),
      TEST(kernels_are_those_of_the_checkpoint),
      TEST(different_kinds_read_a_text),
      TEST(evaluations_are_taken_from_files),
  };
  return cmocka_run_group_tests_name("report", tests, NULL, NULL);
}
