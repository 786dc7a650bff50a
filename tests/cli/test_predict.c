/* test_predict.c - hark predict: its rows are what hark eval measures and what a predictor computes by itself; CSV and JSON have the same
 * values; texts without labels, labelled tokens, numbers; the same bytes for any number of threads; what is refused. */
#include <hark/predictor.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/common.h"
#include "core/print_number.h"
#include "data/tables/table.h"
#include "support/cmocka_all.h"
#include "support/setups.h"
#include "support/train/command_place.h"

#define ENCODER                                                                                                                            \
  "--format text --classes 3 --architecture encoder --layers 1 --width 16 --heads 2 --context 12 --batch 8 --log-every 50 --threads 1 "
#define LABELS "--format sequences --layers 1 --width 16 --heads 2 --context 8 --batch 4 --log-every 50 --threads 1 --data words.tsv "
#define FINITE                                                                                                                             \
  "--architecture finite --format examples --data regression --context 7 --covariates 2 --lr 1e-2 --weight-decay 0 --batch 8 --threads 1 "
#define TOLERANCE 1e-5 /* logits of this size in f32, computed in other passes */
enum { EXAMPLES = 60, CLASSES = 3, LONGEST = 12, BATCH = 8 };

static char folder[TEST_PATH_BYTES];
static test_output output;

static void expect(const char *words, int code, const char *in_out, const char *in_err) {
  command_expect(folder, words, code, in_out, in_err, &output);
}

/* The text of an example, whose class is that of its first letter. */
enum { TEXT_BYTES = 16, LINE_BYTES = 64 };
static const char *text_of(int i, char text[TEXT_BYTES]) {
  (void)snprintf(text, TEXT_BYTES, "%c%.*s", "abc"[i % CLASSES], i % 9, &"bcabcabcabcabc"[i % 4]);
  return text;
}

static void write_texts(void) {
  char labelled[EXAMPLES * LINE_BYTES] = "", plain[EXAMPLES * LINE_BYTES] = "", json[EXAMPLES * LINE_BYTES] = "", text[TEXT_BYTES];
  for (int i = 0; i < EXAMPLES; i++) {
    (void)snprintf(labelled + strlen(labelled), LINE_BYTES, "%d\t%s\n", i % CLASSES, text_of(i, text));
    (void)snprintf(plain + strlen(plain), LINE_BYTES, "%s\n", text);
    (void)snprintf(json + strlen(json), LINE_BYTES, i % 2 == 0 ? "{\"text\": \"%s\"}\n" : "{\"label\": \"none\", \"text\": \"%s\"}\n",
                   text);
  }
  test_file_write_text(folder, "texts.tsv", labelled);
  test_file_write_text(folder, "plain.txt", plain);
  test_file_write_text(folder, "plain.jsonl", json);
}

static int begin(void **state) {
  (void)state;
  command_place_open(folder);
  write_texts();
  test_file_write_text(folder, "bad.tsv", "0\tabc\n7\tabc\n");
  test_file_write_text(folder, "words.tsv",
                       "Words\t, \"q\" ;\n, \"q\" ;\t1:;\n\"q\" ,\t0:,\n; ; , \"q\"\t0:, 3:\"q\"\n, , ; ; \"q\" \"q\" , ;\t7:,\n");
  expect("train --out run --data texts.tsv --validation-fraction 0.25 --steps 60 --lr 5e-3 " ENCODER, HARK_EXIT_DONE, "step 60", "");
  expect("train --out labels --steps 30 --lr 1e-2 " LABELS, HARK_EXIT_DONE, "step 30", "");
  return 0;
}

static int end(void **state) {
  (void)state;
  command_place_close(folder, &output);
  return 0;
}

/* ---- reading what was written ---- */

/* The table that a call of hark predict printed. */
static hark_table *table_of(hark_context *context, const char *words) {
  hark_table *table = NULL;
  expect(words, HARK_EXIT_DONE, "", "");
  assert_fine(context, hark_table_open(context, test_file_write_text(folder, "printed.csv", output.out), &table));
  return table;
}

static const hark_table_column *column(const hark_table *table, const char *name) {
  const int32_t index = hark_table_find(table, name);
  if (index < 0) fail_msg("no column \"%s\"", name);
  return &table->columns[index];
}

/* The value of a cell as a text; "" for a missing one. */
static const char *cell(const hark_table_column *c, int64_t row, char number[HARK_NUMBER_BYTES]) {
  if (c->kind == HARK_TABLE_TEXTS) return c->codes[row] < 0 ? "" : c->texts[c->codes[row]];
  return isnan(c->numbers[row]) ? "" : hark_number_print(c->numbers[row], number);
}

static double number_in(const char *words, const char *key) {
  expect(words, HARK_EXIT_DONE, "", "");
  json_t *const line = command_json(&output);
  const double number = command_number(line, key);
  json_decref(line);
  return number;
}

/* The rows whose prediction is the target. */
static int64_t count_right(const hark_table *table) {
  const hark_table_column *const predicted = column(table, "predicted"), *const target = column(table, "target");
  char a[HARK_NUMBER_BYTES], b[HARK_NUMBER_BYTES];
  int64_t right = 0;
  for (int64_t i = 0; i < table->rows; i++) right += strcmp(cell(predicted, i, a), cell(target, i, b)) == 0;
  return right;
}

/* ---- classes ---- */

static void the_accuracy_is_that_of_eval(void **state) {
  (void)state;
  static const char *const parts[] = {"", "--part training ", "--data texts.tsv ", "--checkpoint last --data texts.tsv "};
  hark_context *const context = test_reference_open();
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
    char words[128];
    (void)snprintf(words, sizeof words, "predict run %s--threads 1", parts[i]);
    hark_table *table = table_of(context, words);
    (void)snprintf(words, sizeof words, "eval run %s--threads 1 --json", parts[i]);
    assert_int_equal(number_in(words, "right"), count_right(table));
    assert_int_equal(number_in(words, "examples"), table->rows);
    hark_table_close(context, &table);
  }
  test_setup_close(context);
}

static void confusions_are_those_of_eval(void **state) {
  (void)state;
  hark_context *const context = test_reference_open();
  int64_t counts[CLASSES][CLASSES] = {{0}};
  hark_table *table = table_of(context, "predict run --data texts.tsv --threads 1");
  const double *const predicted = column(table, "predicted")->numbers, *const target = column(table, "target")->numbers;
  for (int64_t i = 0; i < EXAMPLES; i++) {
    assert_true(target[i] == (double)(i % CLASSES));
    counts[(int)target[i]][(int)predicted[i]]++;
  }
  hark_table_close(context, &table);
  test_setup_close(context);
  expect("eval run --data texts.tsv --threads 1 --json", HARK_EXIT_DONE, "", "");
  json_t *const line = command_json(&output), *const confusion = json_object_get(line, "confusion");
  for (size_t a = 0; a < CLASSES; a++)
    for (size_t b = 0; b < CLASSES; b++)
      assert_int_equal(json_integer_value(json_array_get(json_array_get(confusion, a), b)), counts[a][b]);
  json_decref(line);
}

/* The probabilities that a predictor gives for one text, from its logits in f32. */
static void predict_alone(hark_context *context, const hark_model *model, hark_predictor *predictor, const char *text,
                          double probabilities[CLASSES]) {
  int32_t tokens[LONGEST];
  float logits[CLASSES];
  size_t count;
  double sum = 0;
  assert_fine(context, hark_model_encode(context, model, text, strlen(text), false, tokens, &count));
  const int64_t offsets[] = {0, (int64_t)count};
  const hark_prediction_input input = {.struct_size = sizeof input, .examples = 1, .offsets = offsets, .tokens = tokens};
  assert_fine(context, hark_predictor_run(predictor, &input, logits, CLASSES));
  for (int c = 0; c < CLASSES; c++) sum += exp(logits[c]);
  for (int c = 0; c < CLASSES; c++) probabilities[c] = exp(logits[c]) / sum;
}

static void probabilities_are_those_of_a_predictor(void **state) {
  (void)state;
  static const char *const names[CLASSES] = {"probability_0", "probability_1", "probability_2"};
  hark_context *const context = test_reference_open();
  hark_model *model = NULL;
  hark_predictor *predictor = NULL;
  hark_table *table = table_of(context, "predict run --data texts.tsv --threads 1");
  assert_fine(context, hark_model_load(context, test_path(folder, "run"), NULL, &model));
  assert_fine(context, hark_predictor_create(context, model, NULL, &predictor));
  assert_int_equal(table->rows, EXAMPLES);
  assert_int_equal(table->column_count, 3 + CLASSES);
  for (int i = 0; i < EXAMPLES; i++) {
    char text[TEXT_BYTES];
    double expected[CLASSES], sum = 0;
    const int predicted = (int)column(table, "predicted")->numbers[i];
    predict_alone(context, model, predictor, text_of(i, text), expected);
    for (int c = 0; c < CLASSES; c++) {
      const double probability = column(table, names[c])->numbers[i];
      if (!(fabs(probability - expected[c]) <= TOLERANCE)) fail_msg("example %d: %.9f, expected %.9f", i, probability, expected[c]);
      assert_true(probability <= column(table, names[predicted])->numbers[i]);
      sum += probability;
    }
    assert_true(fabs(sum - 1) < 1e-12);
    assert_true(column(table, "example")->numbers[i] == i + 1);
  }
  hark_predictor_destroy(&predictor);
  hark_model_destroy(context, &model);
  hark_table_close(context, &table);
  test_setup_close(context);
}

/* ---- forms ---- */

/* Every line of stdout is an object with the cells of the table's row, in the order of the columns. */
static void expect_same_json(const hark_table *table) {
  int64_t row = 0;
  for (char *line = output.out, *next; *line != '\0'; line = next, row++) {
    next = strchr(line, '\n') + 1;
    json_error_t error;
    json_t *const object = json_loadb(line, (size_t)(next - line), JSON_REJECT_DUPLICATES, &error), *value;
    if (object == NULL) fail_msg("line %" PRId64 ": %s", row + 1, error.text);
    const char *name;
    int32_t index = 0;
    json_object_foreach(object, name, value) {
      char number[HARK_NUMBER_BYTES];
      const hark_table_column *const c = &table->columns[index++];
      assert_string_equal(name, c->name);
      if (json_is_null(value)) assert_string_equal(cell(c, row, number), "");
      if (json_is_string(value)) assert_string_equal(cell(c, row, number), json_string_value(value));
      if (json_is_number(value)) assert_true(c->numbers[row] == json_number_value(value));
    }
    assert_int_equal(index, table->column_count);
    json_decref(object);
  }
  assert_int_equal(row, table->rows);
}

static void json_has_the_values_of_csv(void **state) {
  (void)state;
  static const char *const calls[] = {"predict run --data texts.tsv --threads 1", "predict run --data plain.txt --unlabelled --threads 1",
                                      "predict labels --part training --tokens all --threads 1"};
  hark_context *const context = test_reference_open();
  for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
    char words[128];
    hark_table *table = table_of(context, calls[i]);
    (void)snprintf(words, sizeof words, "%s --json", calls[i]);
    expect(words, HARK_EXIT_DONE, "", "");
    expect_same_json(table);
    hark_table_close(context, &table);
  }
  test_setup_close(context);
}

static void threads_do_not_matter(void **state) {
  (void)state;
  static const char *const calls[] = {"predict run --data texts.tsv", "predict labels --part training --tokens all --json"};
  for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
    char words[128], *one = NULL;
    for (int threads = 1; threads <= 3; threads++) {
      (void)snprintf(words, sizeof words, "%s --threads %d", calls[i], threads);
      expect(words, HARK_EXIT_DONE, "", "");
      if (threads == 1) one = strdup(output.out);
      assert_string_equal(output.out, one);
    }
    free(one);
  }
}

static void a_limit_gives_the_first_rows(void **state) {
  (void)state;
  expect("predict run --data texts.tsv --threads 1", HARK_EXIT_DONE, "", "");
  char *const all = strdup(output.out);
  expect("predict run --data texts.tsv --threads 1 --limit 16", HARK_EXIT_DONE, "", ""); /* two batches: the same bits */
  assert_int_equal(test_line_count(output.out), 1 + 2 * BATCH);
  assert_memory_equal(output.out, all, strlen(output.out));
  expect("predict run --data texts.tsv --threads 1 --limit 3", HARK_EXIT_DONE, "", "");
  assert_int_equal(test_line_count(output.out), 1 + 3);
  expect("predict run --data texts.tsv --threads 1 --limit 1000", HARK_EXIT_DONE, all, "");
  free(all);
}

static void a_file_is_replaced_only_at_the_end(void **state) {
  (void)state;
  expect("predict run --data texts.tsv --threads 1", HARK_EXIT_DONE, "", "");
  char *const printed = strdup(output.out);
  expect("predict run --data texts.tsv --threads 1 -o out.csv", HARK_EXIT_DONE, "", "");
  assert_string_equal(output.out, "");
  expect("predict run --data bad.tsv -o out.csv", HARK_EXIT_BAD_INPUT, "", "bad.tsv:2:1: label 7 is out of range");
  char *const written = test_file_text(folder, "out.csv");
  assert_string_equal(written, printed);
  free(written);
  free(printed);
  expect("predict run --data texts.tsv -o nowhere/out.csv", HARK_EXIT_DISK, "", "--output nowhere/out.csv");
  expect("predict run --data texts.tsv -o texts.tsv", HARK_EXIT_USAGE, "", "would be overwritten");
  expect("predict run --data - -o out.csv < texts.tsv", HARK_EXIT_DONE, "", "");
}

/* ---- texts without labels ---- */

static void texts_may_lack_labels(void **state) {
  (void)state;
  static const char *const files[] = {"plain.txt", "plain.jsonl"};
  static const char *const names[] = {"predicted", "probability_0", "probability_1", "probability_2"};
  hark_context *const context = test_reference_open();
  hark_table *labelled = table_of(context, "predict run --data texts.tsv --threads 1");
  for (int f = 0; f < 2; f++) {
    char words[128];
    (void)snprintf(words, sizeof words, "predict run --data %s --unlabelled --threads 1", files[f]);
    hark_table *table = table_of(context, words);
    assert_int_equal(table->rows, EXAMPLES);
    assert_int_equal(hark_table_find(table, "target"), -1);
    for (size_t n = 0; n < sizeof names / sizeof *names; n++)
      assert_memory_equal(column(table, names[n])->numbers, column(labelled, names[n])->numbers, EXAMPLES * sizeof(double));
    hark_table_close(context, &table);
  }
  hark_table_close(context, &labelled);
  test_setup_close(context);
  expect("predict run --data plain.txt", HARK_EXIT_BAD_INPUT, "", "; --unlabelled reads texts without labels");
  expect("predict run --data plain.jsonl", HARK_EXIT_BAD_INPUT, "", "\"label\", expected a whole number; --unlabelled reads texts");
  expect("eval run --data plain.txt", HARK_EXIT_BAD_INPUT, "", "expected label and text, separated by a tab (byte");
  expect("predict run --unlabelled", HARK_EXIT_USAGE, "", "--unlabelled: has no effect here, it needs --data PATH");
  expect("predict labels --data words.tsv --unlabelled", HARK_EXIT_USAGE, "", "--unlabelled: has no effect here, it needs --format text");
}

/* ---- labelled tokens ---- */

static void tokens_have_a_row_for_each_target(void **state) {
  (void)state;
  static const double examples[] = {1, 2, 3, 3, 4}, positions[] = {1, 0, 0, 3, 7};
  static const char *const tokens[] = {"\"q\"", "\"q\"", ";", "\"q\"", ";"}, *const targets[] = {";", ",", ",", "\"q\"", ","};
  hark_context *const context = test_reference_open();
  hark_table *table = table_of(context, "predict labels --part training --threads 1");
  char number[HARK_NUMBER_BYTES];
  assert_int_equal(table->rows, 5);
  for (int i = 0; i < 5; i++) {
    assert_true(column(table, "example")->numbers[i] == examples[i] && column(table, "position")->numbers[i] == positions[i]);
    assert_string_equal(cell(column(table, "token"), i, number), tokens[i]);
    assert_string_equal(cell(column(table, "target"), i, number), targets[i]);
  }
  assert_int_equal(number_in("eval labels --part training --threads 1 --json", "right"), count_right(table));
  hark_table_close(context, &table);
  test_setup_close(context);
}

/* With all tokens, rows of targets are the same, up to rounding: logits are computed for more rows. */
static void all_tokens_may_have_rows(void **state) {
  (void)state;
  enum { TOKENS = 3 + 2 + 4 + 8 };
  hark_context *const context = test_reference_open();
  hark_table *some = table_of(context, "predict labels --part training --threads 1");
  hark_table *all = table_of(context, "predict labels --part training --tokens all --threads 1");
  char a[HARK_NUMBER_BYTES], b[HARK_NUMBER_BYTES];
  int64_t found = 0;
  assert_int_equal(all->rows, TOKENS);
  for (int64_t i = 0; i < TOKENS; i++) {
    const double probability = column(all, "probability")->numbers[i];
    assert_true(probability > 0 && probability <= 1);
    if (cell(column(all, "target"), i, a)[0] == '\0') continue;
    assert_string_equal(cell(column(all, "predicted"), i, a), cell(column(some, "predicted"), found, b));
    assert_true(fabs(probability - column(some, "probability")->numbers[found++]) < TOLERANCE);
  }
  assert_int_equal(found, some->rows);
  hark_table_close(context, &all);
  hark_table_close(context, &some);
  test_setup_close(context);
}

/* ---- numbers ---- */

static void numbers_have_the_error_of_eval(void **state) {
  (void)state;
  hark_context *const context = test_reference_open();
  expect("data make regression --tokens 6 --covariates 2 --training 40 --validation 20 --test 0 --out regression", HARK_EXIT_DONE, "", "");
  expect("train --out finite --steps 20 --log-every 20 " FINITE, HARK_EXIT_DONE, "step 20", "");
  hark_table *table = table_of(context, "predict finite --threads 1");
  double sum = 0;
  assert_int_equal(table->rows, 20);
  for (int64_t i = 0; i < table->rows; i++) sum += pow(column(table, "predicted_1")->numbers[i] - column(table, "target_1")->numbers[i], 2);
  const double error = number_in("eval finite --threads 1 --json", "squared_error");
  if (!(fabs(sum / 20 - error) <= 1e-5 * error)) fail_msg("%.9g, expected %.9g", sum / 20, error);
  for (int64_t i = 0; i < table->rows; i++) { /* no digit more than a float has */
    char number[HARK_NUMBER_BYTES];
    assert_in_range(strspn(cell(column(table, "predicted_1"), i, number), "-.0123456789e"), 1, 16);
  }
  hark_table_close(context, &table);
  test_setup_close(context);
  expect("predict finite --tokens all --threads 1", HARK_EXIT_USAGE, "",
         "--tokens all: finite predicts numbers of examples, and no tokens");
}

/* ---- refusals ---- */

static void models_without_targets_are_refused(void **state) {
  (void)state;
  expect("train --data text.txt --out text --steps 1 " COMMAND_TINY, HARK_EXIT_DONE, "", "");
  expect("train --data text.txt --out masked --architecture masked_encoder --steps 1 " COMMAND_TINY, HARK_EXIT_DONE, "", "");
  expect("export run --output run.safetensors", HARK_EXIT_DONE, "", "");
  const struct {
    const char *words;
    int code;
    const char *message;
  } cases[] = {
      {"predict text", HARK_EXIT_USAGE, "text: a model of architecture decoder, which was trained on a text"},
      {"predict text", HARK_EXIT_USAGE, "hark generate continues a text"},
      {"predict masked", HARK_EXIT_USAGE, "masked: a model of architecture masked_encoder, which predicts masked tokens"},
      {"predict masked --data texts.tsv", HARK_EXIT_USAGE, "hark embed prints embeddings"},
      {"predict run.safetensors", HARK_EXIT_USAGE, "run.safetensors: is a model, expected a run"},
      {"predict nothing", HARK_EXIT_BAD_INPUT, "nothing"},
      {"predict", HARK_EXIT_USAGE, "RUN"},
      {"predict run --part test", HARK_EXIT_USAGE, "there are no test examples"},
      {"predict run --test texts.tsv", HARK_EXIT_USAGE, "--test: --part test reads these files"},
      {"predict run --tokens all", HARK_EXIT_USAGE, "--tokens all: run predicts classes of examples, and no tokens"},
      {"predict run --data missing.tsv", HARK_EXIT_BAD_INPUT, "missing.tsv"},
      {"predict run --data words.tsv --format sequences --classes 0", HARK_EXIT_BAD_INPUT, "vocabulary.json"},
      {"predict run --checkpoint step-7", HARK_EXIT_BAD_INPUT, "step-7"},
      {"predict run --layers 3", HARK_EXIT_USAGE, "--layers: does not apply to predict"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    expect(cases[i].words, cases[i].code, "", cases[i].message);
    assert_string_equal(output.out, "");
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_accuracy_is_that_of_eval),
      cmocka_unit_test(confusions_are_those_of_eval),
      cmocka_unit_test(probabilities_are_those_of_a_predictor),
      cmocka_unit_test(json_has_the_values_of_csv),
      cmocka_unit_test(threads_do_not_matter),
      cmocka_unit_test(a_limit_gives_the_first_rows),
      cmocka_unit_test(a_file_is_replaced_only_at_the_end),
      cmocka_unit_test(texts_may_lack_labels),
      cmocka_unit_test(tokens_have_a_row_for_each_target),
      cmocka_unit_test(all_tokens_may_have_rows),
      cmocka_unit_test(numbers_have_the_error_of_eval),
      cmocka_unit_test(models_without_targets_are_refused),
  };
  return cmocka_run_group_tests(tests, begin, end);
}
