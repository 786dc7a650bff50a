/* test_kernels.c - hark kernels: fits of what a run has learned, exports against the table of the expression, a whole search, small, which
 * continues and refuses other options, and what is refused. The fits themselves are in positional/fit. */
#include <hark/positional.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/common.h"
#include "cli/kernels/repetitions.h"
#include "io/safetensors.h"
#include "support/cmocka_all.h"
#include "support/command_fixture.h"
#include "support/setups.h"
#include "support/text_files.h"

#define CONTEXT 16
#define TINY "--data text.txt --layers 2 --heads 2 --width 8 --context 16 --batch 2 --threads 1 --steps 3 --positions none "
#define KERNELS "--positional 'decay(l=2)|bump(mu=4,l=1)|alibi(m=0.5)+0.01|table[5]' --positional-scope head "

static void expect(const char *words, int code, const char *in_out, const char *in_err) {
  command_expect(folder, words, code, in_out, in_err, &output);
}

/* ---- fit and export ---- */

/* log G of every head, from the expressions that hark info prints. */
static void expected_tables(double tables[4][CONTEXT]) {
  expect("info run --json", 0, "", "");
  json_t *object = command_json(&output);
  const json_t *rows = json_object_get(json_object_get(object, "positional"), "kernels");
  hark_context *context = test_reference_open();
  assert_int_equal(json_array_size(rows), 4);
  for (size_t i = 0; i < 4; i++) {
    hark_positional *kernel = NULL;
    double parameters[64], distances[CONTEXT];
    const hark_positional_start start = {.struct_size = sizeof start};
    const char *text = json_string_value(json_object_get(json_array_get(rows, i), "expression"));
    for (int d = 0; d < CONTEXT; d++) distances[d] = d;
    assert_fine(context, hark_positional_create(context, text, &kernel));
    assert_fine(context, hark_positional_initial(context, kernel, &start, parameters));
    assert_fine(context, hark_positional_log(context, kernel, parameters, distances, CONTEXT, tables[i]));
    hark_positional_destroy(context, &kernel);
  }
  test_setup_close(context);
  json_decref(object);
}

static void near(double actual, double expected, const char *what) {
  if (!(fabs(actual - expected) <= 1e-5 * (1 + fabs(expected)))) fail_msg("%s: %g, expected %g", what, actual, expected);
}

static void check_csv(double tables[4][CONTEXT]) {
  char *text = test_file_text(folder, "k.csv"), *at = strchr(text, '\n') + 1;
  assert_int_equal(strncmp(text, "distance,layer0.head0,layer0.head1,layer1.head0,layer1.head1\n", 61), 0);
  for (int d = 0; d < CONTEXT; d++) {
    assert_int_equal(strtol(at, &at, 10), d);
    for (int i = 0; i < 4; i++) near(strtod(at + 1, &at), tables[i][d], "CSV");
  }
  assert_string_equal(at, "\n");
  free(text);
}

static void check_safetensors(double tables[4][CONTEXT]) {
  hark_context *context = test_reference_open();
  hark_safetensors *file = NULL;
  float numbers[2 * CONTEXT];
  assert_fine(context, hark_safetensors_open(context, test_path(folder, "k.safetensors"), &file));
  assert_int_equal(hark_safetensors_count(file), 2);
  for (int layer = 0; layer < 2; layer++) {
    const hark_stored_tensor *stored = hark_safetensors_find(file, layer == 0 ? "layers.0.log_kernel" : "layers.1.log_kernel");
    assert_non_null(stored);
    assert_true(stored->shape[0] == 2 && stored->shape[1] == CONTEXT);
    assert_fine(context, hark_safetensors_read(context, file, stored, numbers));
    for (int i = 0; i < 2 * CONTEXT; i++) near((double)numbers[i], tables[2 * layer + i / CONTEXT][i % CONTEXT], "safetensors");
  }
  hark_safetensors_close(context, &file);
  test_setup_close(context);
}

static void learned_kernels_are_exported(void **state) {
  (void)state;
  double tables[4][CONTEXT];
  expect("train " TINY KERNELS "--out run", 0, "", "");
  expected_tables(tables);
  expect("kernels export run --output k.csv", 0, "k.csv: log G of 2 layers of 2 heads at 16 distances\n", "");
  check_csv(tables);
  expect("kernels export run --output k.safetensors", 0, "", "");
  check_safetensors(tables);
  expect("kernels export run --output k.py --distances 3", 0, "", "");
  char *python = test_file_text(folder, "k.py");
  assert_non_null(strstr(python, "def score_mod(layer, device=None"));
  assert_non_null(strstr(python, "EXPRESSION = \"decay(l=2)|bump(mu=4,l=1)|alibi(m=0.5)+0.01|table[5]\"\n"));
  const char *const row = strstr(python, "LOG_G = [\n    [\n        [");
  assert_non_null(row);
  near(strtod(row + 25, NULL), tables[0][0], "Python");
  free(python);
}

/* Kernels near their start are what they were started with, and cost nothing more. */
static void learned_kernels_are_fitted(void **state) {
  (void)state;
  expect("train " TINY KERNELS "--positional-rate 0 --out run", 0, "", "");
  expect("kernels fit run --text text.txt --json", 0, "", "");
  (void)test_file_write_text(folder, "bad.txt", "the \xff");
  expect("kernels fit run --text bad.txt", HARK_EXIT_BAD_INPUT, "", "bad.txt: text:1:5: invalid UTF-8");
  (void)test_file_write_text(folder, "strange.txt", "\xce\xb1\xce\xb2\xce\xb3\xce\xb4");
  expect("kernels fit run --text strange.txt", 0, "--positional ", "strange.txt: 4 of 4 tokens are the unknown token");
  expect("kernels fit run --text text.txt --json", 0, "", "");
  json_t *object = command_json(&output);
  const json_t *kernels = json_object_get(object, "kernels");
  static const char *const begins[] = {"decay(sigma2=1!,l=2)", "bump(sigma2=1!,mu=4,l=1)", "", ""};
  for (size_t i = 0; i < 4; i++) {
    const json_t *kernel = json_array_get(kernels, i);
    const char *expression = json_string_value(json_object_get(kernel, "expression"));
    if (strncmp(expression, begins[i], strlen(begins[i])) != 0) fail_msg("kernel %zu is %s", i, expression);
    assert_true(json_number_value(json_object_get(kernel, "lost")) < 1e-2);
    assert_true(json_integer_value(json_object_get(kernel, "layer")) == (json_int_t)(i / 2));
  }
  char *list = strdup(json_string_value(json_object_get(object, "expression")));
  json_decref(object);
  char words[1024];
  (void)snprintf(words, sizeof words, "train " TINY "--positional-scope head --positional '%s' --out again", list);
  expect(words, 0, "", "");
  free(list);
  expect("kernels fit run --text text.txt", 0, "--positional-scope head --positional 'decay(sigma2=1!,l=2)|bump(", "");
}

/* ---- evidence ---- */

#define PERIOD 9
#define SYMBOLS 4000

/* A pattern of 9 letters, a fourth of them replaced by others. */
static void write_pattern(char text[SYMBOLS + 1]) {
  uint32_t random = 12345;
  for (int t = 0; t < SYMBOLS; t++) {
    random = random * 1664525u + 1013904223u;
    text[t] = (char)('a' + ((random >> 24) % 4 == 0 ? (int)(random >> 16) % 16 : (t % PERIOD * 7) % 16));
  }
  text[SYMBOLS] = '\0';
  (void)test_file_write_text(folder, "pattern.txt", text);
}

static double rate_of(const char *text, int d) {
  int equal = 0;
  for (int t = d; t < SYMBOLS; t++) equal += text[t] == text[t - d];
  return (double)equal / (SYMBOLS - d);
}

/* Lags and periods of kernels, with the fractions counted here; equal ones once; those beyond the distances have none. */
static void lags_and_periods_are_compared_with_the_text(void **state) {
  (void)state;
  static const struct {
    const char *kernel;
    bool period, confirmed;
    double value;
  } expected[] = {{"attention", false, true, 9},  {"lagged_periodic", true, true, 9}, {"periodic", true, false, 7},
                  {"attention", false, true, 18}, {"attention", false, false, 8},     {"attention", false, false, 301}};
  static char text[SYMBOLS + 1];
  char run[TEST_PATH_BYTES], file[TEST_PATH_BYTES];
  hark_fitted_kernel kernels[4] = {{.grown.text = "bump(mu=8.2,l=1)", .lag_count = 2, .lags = {8, 8}},
                                   {.grown.text = "lagged_periodic(alpha=1,period_length=9,mu=17)*periodic(alpha=1,period_length=7)"},
                                   {.grown.text = "decay(l=4)", .lag_count = 3, .lags = {17, 7, 300}},
                                   {.grown.text = "spectral(a=1,l=9,wavelength=8.9)*rbf"}}; /* nearly the period 9 again */
  const hark_fitted_kernels of = {.count = 4, .length = 100, .items = kernels};
  static hark_repetitions found;
  hark_context *context = test_reference_open();
  write_pattern(text);
  expect("train --data pattern.txt --layers 1 --heads 1 --width 8 --context 16 --batch 2 --steps 1 --threads 1 --out run", 0, "", "");
  (void)snprintf(run, sizeof run, "%s", test_path(folder, "run"));
  (void)snprintf(file, sizeof file, "%s", test_path(folder, "pattern.txt"));
  assert_fine(context, hark_repetitions_find(context, run, file, &of, &found));
  assert_int_equal(found.tokens, SYMBOLS);
  assert_int_equal(found.distances, 100);
  assert_int_equal(found.count, sizeof expected / sizeof *expected);
  for (int i = 0; i < found.count; i++) {
    const hark_repetition *item = &found.items[i];
    double rate = INFINITY;
    assert_string_equal(item->kernel, expected[i].kernel);
    assert_true(item->period == expected[i].period && fabs(item->value - expected[i].value) < 1e-6);
    if (item->confirmed != expected[i].confirmed) fail_msg("%s of %g: %d", item->kernel, item->value, item->confirmed);
    for (int k = 1; k <= (item->period ? 3 : 1); k++) rate = fmin(rate, rate_of(text, k * (int)item->value));
    if (item->value <= 100)
      near(item->rate, rate, item->kernel);
    else
      assert_true(isnan(item->rate));
  }
  test_setup_close(context);
}

/* ---- search ---- */

#define SEARCH "kernels search --data text.txt --base base.yaml --out found --seeds 2 --terms 2"

static int trainings(const char *text) {
  int count = 0;
  for (const char *at = text; (at = strstr(at, "(done)")) != NULL; at++) count++;
  return count;
}

static void write_base(int64_t tokens) {
  char text[512];
  (void)snprintf(text, sizeof text,
                 "model:\n  layers: 1\n  heads: 2\n  width: 8\n  context: 16\ntrain:\n  tokens: %d\n  batch: 4\n  learning_rate: 1e-2\n"
                 "run:\n  threads: 1\n",
                 (int)tokens);
  (void)test_file_write_text(folder, "base.yaml", text);
}

static void a_search_reports_continues_and_keeps_its_options(void **state) {
  (void)state;
  write_base(640);
  expect(SEARCH " --json", 0, "", "");
  assert_int_equal(trainings(output.err), 8);
  json_t *object = command_json(&output);
  const json_t *rows = json_object_get(object, "trainings");
  assert_int_equal(json_array_size(rows), 4);
  for (size_t i = 0; i < 4; i++) {
    const json_t *row = json_array_get(rows, i), *losses = json_object_get(row, "losses");
    const double a = json_number_value(json_array_get(losses, 0)), b = json_number_value(json_array_get(losses, 1));
    assert_int_equal(json_array_size(losses), 2);
    near(json_number_value(json_object_get(row, "loss")), (a + b) / 2, "mean");
    near(json_number_value(json_object_get(row, "deviation")), fabs(a - b) / sqrt(2), "deviation");
  }
  assert_int_equal(json_array_size(json_object_get(object, "kernels")), 2);
  assert_int_equal(json_integer_value(json_object_get(json_array_get(rows, 1), "parameters")), 2 * 16);
  json_decref(object);
  char *first = test_file_text(folder, "found/search.md");
  expect(SEARCH, 0, "# Positional kernels of a text", "");
  assert_int_equal(trainings(output.err), 0);
  assert_string_equal(output.out + strlen(output.out) - strlen(first), first);
  free(first);
  expect(SEARCH " --table 7", HARK_EXIT_USAGE, "", "table.yaml: this search was begun with other options");
  expect("kernels search --data text.txt --base base.yaml --out short --terms 1 --no-proof --seed 5 --json", 0, "", "");
  assert_int_equal(trainings(output.err), 2);
  object = command_json(&output);
  assert_int_equal(json_array_size(json_object_get(object, "trainings")), 2);
  assert_int_equal(json_array_size(json_object_get(object, "kernels")), 2);
  json_decref(object);
  assert_int_equal(access(test_path(folder, "short/table/all-seed=5/config.yaml"), F_OK), 0);
  write_base(1280);
  expect(SEARCH, HARK_EXIT_USAGE, "", "base.yaml: this search was begun with other options");
}

static void failures_end_a_search(void **state) {
  (void)state;
  (void)test_file_write_text(folder, "base.yaml", "model:\n  layers: 1\n  heads: 3\n  width: 8\n  context: 16\n");
  expect(SEARCH, HARK_EXIT_USAGE, "", "model.width 8 is not divisible by model.heads 3");
  write_base(640);
  expect("kernels search --data none.txt --base base.yaml --out other", HARK_EXIT_BAD_INPUT, "", "none.txt");
  expect("kernels search --data text.txt --base none.yaml --out third", HARK_EXIT_BAD_INPUT, "", "none.yaml");
}

static void what_has_no_kernels_is_refused(void **state) {
  (void)state;
  expect("train --data text.txt --steps 2 --out plain " COMMAND_TINY, 0, "", "");
  expect("kernels fit plain --text text.txt", HARK_EXIT_USAGE, "", "plain: this model has no positional kernels");
  expect("kernels export plain --output k.csv", HARK_EXIT_USAGE, "", "plain: this model has no positional kernels");
  expect("kernels fit none --text text.txt", HARK_EXIT_BAD_INPUT, "", "none");
  expect("kernels fit", HARK_EXIT_USAGE, "", "fit: needs a run or a file of a model");
  expect("kernels search run --data text.txt --out x", HARK_EXIT_USAGE, "",
         "run: unexpected argument; usage: hark kernels search [options]\n");
  expect("kernels fit plain other --text text.txt", HARK_EXIT_USAGE, "",
         "hark kernels: other: unexpected argument; usage: hark kernels fit [options] RUN|FILE\n");
  assert_int_equal(test_line_count(output.err), 1);
  expect("kernels search", HARK_EXIT_USAGE, "", "--data: missing, expected a text");
  expect("kernels export plain", HARK_EXIT_USAGE, "", "--output: missing, expected a file");
  expect("kernels export plain --output k.txt", HARK_EXIT_USAGE, "", "--output: expected a name that ends in .py, .csv or .safetensors");
  expect("kernels fit plain --text text.txt --seeds 2", HARK_EXIT_USAGE, "", "--seeds: has no effect here, it needs kernels search");
  expect("train " TINY "--positional decay --normalisation cme --ridge 1 --out ridge", 0, "", "");
  expect("kernels fit ridge --text text.txt", HARK_EXIT_USAGE, "", "expected layers with model.attention.normalisation softmax alone");
  expect("train " TINY "--positional decay --out run", 0, "", "");
  (void)test_file_write_text(folder, "one.txt", "t");
  expect("kernels fit run --text one.txt", HARK_EXIT_BAD_INPUT, "", "one.txt: 1 token, expected at least 2");
  expect("kernels fit run --text .", HARK_EXIT_BAD_INPUT, "", "is a folder");
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, begin, end)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(learned_kernels_are_exported),
      TEST(learned_kernels_are_fitted),
      TEST(lags_and_periods_are_compared_with_the_text),
      TEST(a_search_reports_continues_and_keeps_its_options),
      TEST(failures_end_a_search),
      TEST(what_has_no_kernels_is_refused),
  };
  return cmocka_run_group_tests_name("kernels", tests, NULL, NULL);
}
