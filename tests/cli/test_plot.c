/* test_plot.c - hark plot --positional, and what a run's metrics say of its positional kernels. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/cmocka_all.h"
#include "support/command_place.h"

#define TINY "--data text.txt --layers 2 --heads 2 --width 8 --context 16 --batch 2 --threads 1 --log-every 2 --evaluate-every 2"
#define KERNEL "--positions none --positional 'bank[2](decay)+window(5)'"

static char folder[TEST_PATH_BYTES];
static test_output output;

static int begin(void **state) {
  (void)state;
  command_place_open(folder);
  return 0;
}

static int end(void **state) {
  (void)state;
  command_place_close(folder, &output);
  return 0;
}

static void hark(int expected, const char *words) { command_expect(folder, words, expected, "", "", &output); }

/* The lines of a run's metrics that have `word`; those of kernels have all words of all kernels. */
static int lines_with(const char *run, const char *word, double *last) {
  char path[TEST_PATH_BYTES + 64];
  json_error_t error;
  int count = 0;
  (void)snprintf(path, sizeof path, "%s/metrics.jsonl", run);
  char *text = test_file_text(folder, path);
  for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
    json_t *object = json_loads(line, 0, &error);
    const json_t *value = json_object_get(object, word);
    if (value != NULL) {
      *last = json_number_value(value);
      count++;
    }
    json_decref(object);
  }
  free(text);
  return count;
}

/* At the beginning and at every evaluation; at last what the checkpoint holds. Going on repeats none. */
static void kernels_stand_in_the_metrics(void **state) {
  (void)state;
  static const char *const scopes[] = {"model", "layer", "head"}, *const owners[] = {"model", "layer1", "layer1.head1"};
  for (int i = 0; i < 3; i++) {
    char words[512], run[32], name[2][96];
    double value[2] = {0, 0};
    (void)snprintf(run, sizeof run, "run-%s", scopes[i]);
    (void)snprintf(words, sizeof words, "train " TINY " " KERNEL " --positional-scope %s --steps 4 --out %s", scopes[i], run);
    hark(0, words);
    for (int copy = 0; copy < 2; copy++) {
      (void)snprintf(name[copy], sizeof name[copy], "positional/%s/9.decay.l/%d", owners[i], copy);
      assert_int_equal(lines_with(run, name[copy], &value[copy]), 3); /* steps 0, 2, 4 */
    }
    (void)snprintf(words, sizeof words, "info %s --json", run);
    hark(0, words);
    json_t *object = command_json(&output);
    const json_t *kernels = json_object_get(json_object_get(object, "positional"), "kernels");
    const char *learned = json_string_value(json_object_get(json_array_get(kernels, json_array_size(kernels) - 1), "expression"));
    double sigma2[2], l[2];
    assert_non_null(learned);
    assert_int_equal(sscanf(learned, "bank[2](decay(sigma2=[%lf,%lf],l=[%lf,%lf]))", &sigma2[0], &sigma2[1], &l[0], &l[1]), 4);
    assert_true(l[0] == value[0] && l[1] == value[1]);
    json_decref(object);
    (void)snprintf(words, sizeof words, "train --resume --steps 6 --out %s", run);
    hark(0, words);
    assert_int_equal(lines_with(run, name[0], &value[0]), 4);
  }
  hark(0, "train " TINY " --steps 2 --out plain");
  double none;
  assert_int_equal(lines_with("plain", "positional/model/9.decay.l/0", &none), 0);
}

static void kernels_are_drawn(void **state) {
  (void)state;
  hark(0, "train " TINY " " KERNEL " --positional-scope head --steps 2 --out run");
  hark(0, "plot --positional --terminal run");
  assert_non_null(strstr(output.out, "layer 0, head 0"));
  assert_non_null(strstr(output.out, "layer 1, head 1"));
  /* without gnuplot its data and script stay: a panel for each head, with three terms of each kernel */
  test_command_run(folder, "PATH=/nowhere", "plot --positional run --distances 8 -o kernels.svg", &output);
  assert_int_equal(output.code, 0);
  char *script = test_file_text(folder, "kernels.svg.gp"), *data = test_file_text(folder, "kernels.svg.dat");
  assert_non_null(strstr(script, "set multiplot layout 2,2"));
  assert_non_null(strstr(script, "set title 'layer 1, head 0'"));
  int curves = 0;
  for (const char *at = data; (at = strstr(at, "# ")) != NULL; at++) curves++;
  assert_int_equal(curves, 4 * (1 + 3));
  assert_non_null(strstr(script, "index 15 with"));
  free(script);
  free(data);
  hark(3, "plot --positional run --checkpoint step-9");
  hark(3, "plot --positional text.txt");
  hark(0, "train " TINY " --steps 2 --out plain");
  command_expect(folder, "plot --positional plain", 3, "", "has no positional kernel", &output);
  hark(2, "plot --positional run --metric val/loss");
  hark(2, "plot run --distances 9");
  hark(2, "plot --positional run plain");
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
  const struct CMUnitTest tests[] = {TEST(kernels_stand_in_the_metrics), TEST(kernels_are_drawn)};
#undef TEST
  return cmocka_run_group_tests_name("plot", tests, NULL, NULL);
}
