/* test_regressor.c - regressors by the command: training learns more than the baselines know; evaluation, prediction and the library agree;
 * the same bytes for any number of threads; tables with missing values, more columns and other units; classes; what is refused. */
#include <hark/predictor.h>
#include <hark/regressor.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/common.h"
#include "data/formats/table_file.h"
#include "data/tables/table.h"
#include "support/cmocka_all.h"
#include "support/setups.h"
#include "support/train/command_place.h"

#define TRAIN                                                                                                                              \
  "train --architecture regressor --format examples --data tasks --context 40 --data.context_least 4 --data.queries 8 --width 16 --heads " \
  "2 --layers 1 --processes 4 --process-features 2 --batch 4 --lr 3e-3 --log-every 20 --threads 1 "
enum { KNOWN = 30, ASKED = 7, TABLE_BYTES = 4096 };

static char folder[TEST_PATH_BYTES];
static test_output output;

static void expect(const char *words, int code, const char *in_out, const char *in_err) {
  command_expect(folder, words, code, in_out, in_err, &output);
}

static double input_of(int row) { return sin(12.9898 * row) * 0.9; }
static double target_of(int row) { return cos(3 * input_of(row)); }

/* Rows first .. first + count of a table. */
static void write_table(const char *name, int first, int count) {
  char text[TABLE_BYTES] = "x,y\n";
  for (int i = first; i < first + count; i++)
    (void)snprintf(text + strlen(text), sizeof text - strlen(text), "%.9g,%.9g\n", input_of(i), target_of(i));
  test_file_write_text(folder, name, text);
}

static int begin(void **state) {
  (void)state;
  command_place_open(folder);
  expect(
      "data make regression-tasks --tokens 40 --covariates 2 --noise 0.01 --scale-least 0.4 --training 400 --validation 20 --test 20 "
      "--out tasks",
      HARK_EXIT_DONE, "", "");
  expect(TRAIN "--steps 120 --out run", HARK_EXIT_DONE, "step 120", "");
  write_table("known.csv", 0, KNOWN);
  write_table("new.csv", KNOWN, ASKED);
  return 0;
}

static int end(void **state) {
  (void)state;
  command_place_close(folder, &output);
  return 0;
}

/* The table that a call printed. */
static hark_table *table_of(hark_context *context, const char *words) {
  hark_table *table = NULL;
  expect(words, HARK_EXIT_DONE, "", "");
  assert_fine(context, hark_table_open(context, test_file_write_text(folder, "printed.csv", output.out), &table));
  return table;
}

static const double *column(const hark_table *table, const char *name) {
  const int32_t index = hark_table_find(table, name);
  if (index < 0) fail_msg("no column \"%s\"", name);
  return table->columns[index].numbers;
}

#define PREDICT "predict run --context-table known.csv --query new.csv --target y "

static double member(const json_t *line, const char *predictor, const char *key) {
  return command_number(json_object_get(line, predictor), key);
}

static void training_beats_the_baselines(void **state) {
  (void)state;
  expect("eval run --part test --json", HARK_EXIT_DONE, "\"coverage_90\"", "");
  json_t *const line = command_json(&output);
  const double loss = member(line, "model", "loss");
  assert_true(loss < member(line, "linear", "loss") - 0.15);
  assert_true(member(line, "linear", "loss") < member(line, "mean", "loss"));
  assert_true(member(line, "model", "root_mean_square_error") < 0.9 * member(line, "linear", "root_mean_square_error"));
  assert_true(member(line, "model", "coverage_90") > 0.75);
  assert_true(command_number(line, "loss") == loss);
  json_decref(line);
  expect("info run", HARK_EXIT_DONE, "\n  rows  ", "");
}

static void predictions_follow_the_function(void **state) {
  (void)state;
  hark_context *const context = test_reference_open();
  hark_table *const table = table_of(context, PREDICT);
  const double *const mean = column(table, "predicted"), *const deviation = column(table, "deviation"),
                      *const lower = column(table, "lower"), *const upper = column(table, "upper"), *const target = column(table, "target");
  assert_int_equal(table->rows, ASKED);
  for (int i = 0; i < ASKED; i++) {
    assert_true(fabs(target[i] - target_of(KNOWN + i)) < 1e-6);
    assert_true(fabs(mean[i] - target[i]) < 0.4);
    assert_true(deviation[i] > 0 && deviation[i] < 1);
    assert_true(fabs(upper[i] - mean[i] - 1.6448536 * deviation[i]) < 1e-5 && fabs(mean[i] - lower[i] - 1.6448536 * deviation[i]) < 1e-5);
  }
  hark_table *const half = table_of(context, PREDICT "--interval 0.5");
  for (int i = 0; i < ASKED; i++) assert_true(fabs(column(half, "upper")[i] - mean[i] - 0.6744898 * deviation[i]) < 1e-5);
  hark_table *const iterated = table_of(context, PREDICT "--solver conjugate-gradients"), *const factored =
                                                                                              table_of(context, PREDICT "--solver factor");
  bool differs = false;
  for (int i = 0; i < ASKED; i++) {
    differs = differs || column(iterated, "deviation")[i] != deviation[i];
    assert_true(column(factored, "predicted")[i] == mean[i]);
    assert_true(fabs(column(iterated, "predicted")[i] - mean[i]) < 1e-3 && fabs(column(iterated, "deviation")[i] - deviation[i]) < 1e-3);
  }
  assert_true(differs); /* by rounding: the option has an effect */
  hark_table_close(context, (hark_table *[]){factored});
  hark_table_close(context, (hark_table *[]){iterated});
  hark_table_close(context, (hark_table *[]){half});
  hark_table_close(context, (hark_table *[]){table});
  test_setup_close(context);
}

/* hark/regressor.h has the numbers of the command. */
static void the_library_predicts_the_same(void **state) {
  (void)state;
  hark_context *const context = test_reference_open();
  hark_table *const table = table_of(context, PREDICT "--backend reference");
  float known[KNOWN * 3], asked[ASKED * 2], mean[ASKED], variance[ASKED];
  for (int i = 0; i < KNOWN; i++) {
    known[3 * i] = (float)input_of(i);
    known[3 * i + 1] = 0;
    known[3 * i + 2] = (float)target_of(i);
  }
  for (int i = 0; i < ASKED; i++) {
    asked[2 * i] = (float)input_of(KNOWN + i);
    asked[2 * i + 1] = 0;
  }
  char path[TEST_PATH_BYTES];
  (void)snprintf(path, sizeof path, "%.200s/run", folder);
  hark_model *model = NULL;
  hark_regressor *regressor = NULL;
  int64_t inputs, targets;
  const hark_regressor_options options = {.struct_size = sizeof options, .context_rows = KNOWN, .query_rows = ASKED};
  hark_regressor_table rows = {.struct_size = sizeof rows, .context_rows = KNOWN, .query_rows = ASKED, .context = known, .queries = asked};
  assert_fine(context, hark_model_load(context, path, NULL, &model));
  assert_fine(context, hark_regressor_describe(context, model, &inputs, &targets));
  assert_int_equal(inputs, 2);
  assert_int_equal(targets, 1);
  assert_fine(context, hark_regressor_create(context, model, &options, &regressor));
  for (int times = 0; times < 2; times++) assert_fine(context, hark_regressor_run(regressor, &rows, mean, variance));
  for (int i = 0; i < ASKED; i++) {
    assert_true(fabs(mean[i] - column(table, "predicted")[i]) < 1e-4);
    assert_true(fabs(sqrt(variance[i]) - column(table, "deviation")[i]) < 1e-4);
  }
  rows.context_rows = 1;
  assert_int_equal(hark_regressor_run(regressor, &rows, mean, variance), HARK_INVALID_ARGUMENT);
  assert_non_null(strstr(hark_context_message(context), "1 rows of context and 7 queries, expected 2 to 30 and 1 to 7"));
  rows.context_rows = KNOWN;
  known[5] = NAN;
  assert_int_equal(hark_regressor_run(regressor, &rows, mean, variance), HARK_INVALID_ARGUMENT);
  assert_non_null(strstr(hark_context_message(context), "target 0 of row 1 of the context is not finite"));
  hark_regressor_destroy(&regressor);
  hark_regressor_options other = options;
  other.solver = 3;
  assert_int_equal(hark_regressor_create(context, model, &other, &regressor), HARK_INVALID_ARGUMENT);
  assert_non_null(strstr(hark_context_message(context), "solver is 3"));
  hark_predictor *predictor = NULL;
  assert_int_equal(hark_predictor_create(context, model, NULL, &predictor), HARK_UNSUPPORTED);
  hark_model_destroy(context, &model);
  hark_table_close(context, (hark_table *[]){table});
  test_setup_close(context);
}

static void threads_do_not_change_a_byte(void **state) {
  (void)state;
  expect(PREDICT "--threads 1", HARK_EXIT_DONE, "predicted", "");
  char *const one = strdup(output.out);
  expect(PREDICT "--threads 3", HARK_EXIT_DONE, "predicted", "");
  assert_string_equal(output.out, one);
  free(one);
}

/* Other units and orders of columns, and a column that is always missing, change the predictions only by rounding. */
static void units_and_order_have_no_effect(void **state) {
  (void)state;
  hark_context *const context = test_reference_open();
  hark_table *const plain = table_of(context, PREDICT);
  char known[TABLE_BYTES] = "y,x,z\n", text[TABLE_BYTES] = "z;x;name\n";
  for (int i = 0; i < KNOWN; i++)
    (void)snprintf(known + strlen(known), sizeof known - strlen(known), "%.9g,%.9g,NA\n", target_of(i), input_of(i));
  test_file_write_text(folder, "known2.csv", known);
  for (int i = KNOWN; i < KNOWN + ASKED; i++)
    (void)snprintf(text + strlen(text), sizeof text - strlen(text), ";%.9g;row %d\n", input_of(i), i);
  test_file_write_text(folder, "new2.csv", text);
  hark_table *const other = table_of(context, "predict run --context-table known2.csv --query new2.csv --target y");
  assert_int_equal(hark_table_find(other, "target"), -1);
  for (int i = 0; i < ASKED; i++) assert_true(fabs(column(other, "predicted")[i] - column(plain, "predicted")[i]) < 0.2);
  char scaled[TABLE_BYTES] = "x,y\n", asked[TABLE_BYTES] = "x\n";
  for (int i = 0; i < KNOWN; i++)
    (void)snprintf(scaled + strlen(scaled), sizeof scaled - strlen(scaled), "%.12g,%.12g\n", 1000 * input_of(i) - 7, 5 * target_of(i) + 3);
  for (int i = KNOWN; i < KNOWN + ASKED; i++)
    (void)snprintf(asked + strlen(asked), sizeof asked - strlen(asked), "%.12g\n", 1000 * input_of(i) - 7);
  test_file_write_text(folder, "scaled.csv", scaled);
  test_file_write_text(folder, "asked.csv", asked);
  hark_table *const units = table_of(context, "predict run --context-table scaled.csv --query asked.csv --target y");
  for (int i = 0; i < ASKED; i++) {
    assert_true(fabs(column(units, "predicted")[i] - (5 * column(plain, "predicted")[i] + 3)) < 2e-3);
    assert_true(fabs(column(units, "deviation")[i] - 5 * column(plain, "deviation")[i]) < 2e-3);
  }
  hark_table_close(context, (hark_table *[]){units});
  hark_table_close(context, (hark_table *[]){other});
  hark_table_close(context, (hark_table *[]){plain});
  test_setup_close(context);
}

static void bad_tables_are_refused(void **state) {
  (void)state;
  const struct {
    const char *context, *query, *words;
    int code;
    const char *message;
  } cases[] = {
      {"x,y\n1,2\n3,4\n", "x\n1\n", "--target z", HARK_EXIT_USAGE, "has no column \"z\""},
      {"x,y\n1,2\n3,4\n", "w\n1\n", "--target y", HARK_EXIT_USAGE, "has no column \"x\""},
      {"x,y,z\n1,2,3\n3,4,5\n", "x\n1\n", "--target z,y", HARK_EXIT_USAGE, "the model predicts 1 target"},
      {"x,y\nred,2\n3,4\n", "x\n1\n", "--target y", HARK_EXIT_BAD_INPUT, "c.csv:2: column \"x\""},
      {"x,y\n1,2\n3,\n", "x\n1\n", "--target y", HARK_EXIT_BAD_INPUT, "c.csv:3: column \"y\": the target is missing"},
      {"x,y\n1,2\n3,2\n", "x\n1\n", "--target y", HARK_EXIT_USAGE, "is the same in all 2 rows of the context"},
      {"x,y\n1,1000000\n2,1000000.0625\n3,1000000\n", "x\n1\n", "--target y", HARK_EXIT_USAGE, "is the same in all 3 rows"},
      {"x,y\n1,2\n", "x\n1\n", "--target y", HARK_EXIT_BAD_INPUT, "1 row, expected at least 2 rows"},
      {"a,b,c,y\n1,2,3,4\n4,3,2,1\n", "a,b,c\n1,2,3\n", "--target y", HARK_EXIT_USAGE, "the model reads at most 2"},
      {"x,y\n1,2\n3e39,4\n", "x\n1\n", "--target y", HARK_EXIT_BAD_INPUT, "c.csv:3: a number is beyond the range of 32 bits"},
      {"x,y\n1,2\n3,4\n", "x\n1\n", "--target y --interval 1", HARK_EXIT_USAGE, "interval"},
      {"x,y\n1,2\n3,4\n", "x\n1\n", "", HARK_EXIT_USAGE, "expected --context-table FILE, --query FILE and --target NAME"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char words[TEST_PATH_BYTES];
    test_file_write_text(folder, "c.csv", cases[i].context);
    test_file_write_text(folder, "q.csv", cases[i].query);
    (void)snprintf(words, sizeof words, "predict run --context-table c.csv --query q.csv %s -o out.csv", cases[i].words);
    expect(words, cases[i].code, "", cases[i].message);
    (void)snprintf(words, sizeof words, "%.200s/out.csv", folder);
    assert_null(fopen(words, "rb"));
  }
  expect("train --architecture regressor --data new.csv --steps 1 --out no", HARK_EXIT_USAGE, "", "regressor reads tables");
  expect(TRAIN "--data.context_least 39 --steps 1 --out no", HARK_EXIT_USAGE, "", "has 40 rows, expected at least 47");
}

/* The blocks' kernel ridge regression has its own metrics. */
static void blocks_may_regress(void **state) {
  (void)state;
  expect(TRAIN "--normalisation cme --steps 2 --out ridge", HARK_EXIT_DONE, "step 2", "tables: 400 of 16000 rows to train on");
  expect("predict ridge --context-table known.csv --query new.csv --target y", HARK_EXIT_DONE, "predicted", "");
}

/* Options for examples have no effect on tables of CSV files. */
static void options_of_examples_are_refused(void **state) {
  (void)state;
  static const char *const options[] = {
      "--limit 3",        "--part test",  "--data tasks",   "--batch 3", "--data.context_least 3", "--data.context_most 9",
      "--data.queries 3", "--tokens all", "--format tables"};
  for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
    char words[TEST_PATH_BYTES];
    (void)snprintf(words, sizeof words, PREDICT "%s", options[i]);
    expect(words, HARK_EXIT_USAGE, "", "has no effect here: a regressor reads the tables of --context-table and --query");
  }
  expect(TRAIN "--data.context_most 3 --steps 1 --out no", HARK_EXIT_USAGE, "", "context_most is 3, and context_least is 4");
}

/* A file of two tables with two targets; the loss is a mean over targets, and so is that of the model. */
static void losses_are_means_over_targets(void **state) {
  (void)state;
  enum { ROWS = 12, COLUMNS = 3, TARGETS = 2, TABLES = 2 };
  unsigned char bytes[HARK_VECTORS_HEADER_BYTES + TABLES * ROWS * COLUMNS * sizeof(float)];
  hark_vectors_header(HARK_TABLES_MAGIC, ROWS, COLUMNS - TARGETS, TARGETS, TABLES, bytes);
  for (int i = 0; i < TABLES * ROWS * COLUMNS; i++) {
    const float number = (float)(i % COLUMNS == 0 ? input_of(i) : target_of(i));
    memcpy(bytes + HARK_VECTORS_HEADER_BYTES + (size_t)i * sizeof number, &number, sizeof number);
  }
  test_file_write(folder, "two.tables", bytes, sizeof bytes);
  expect(
      "train --architecture regressor --format tables --data two.tables --validation-fraction 0.5 --context 12 --data.context_least 5 "
      "--data.queries 3 --width 8 --heads 1 --layers 1 --processes 2 --process-features 2 --batch 2 --steps 2 --threads 1 --out two",
      HARK_EXIT_DONE, "step 2", "inputs 1, targets 2");
  expect("eval two --data two.tables --data.queries 4 --json", HARK_EXIT_DONE, "\"data.queries\": \"4\"", "");
  json_t *const line = command_json(&output);
  assert_true(command_number(line, "loss") == member(line, "model", "loss"));
  assert_true(command_number(line, "targets") == 4 * TARGETS * TABLES && command_number(line, "rows") > 0);
  assert_null(json_object_get(line, "right"));
  json_decref(line);
}

static void tables_are_described(void **state) {
  (void)state;
  expect("data info tasks", HARK_EXIT_DONE, "format tables: numbers of a row: inputs 2, targets 1", "");
  expect("data info tasks", HARK_EXIT_DONE, "training: 400 tables, 16000 rows", "");
  expect("data info tasks --json", HARK_EXIT_DONE, "\"targets\": \"rows\"", "");
  expect("report run -o report.html", HARK_EXIT_DONE, "1 run", "");
  assert_null(strstr(output.err, "warning"));
  expect("train --architecture regressor --format tables --data known.csv --steps 1 --out no", HARK_EXIT_BAD_INPUT, "",
         "is no file of tables, which begin with \"HARKTABL\"");
}

/* Duplicate rows are two observations: the deviation there is smaller. */
static void duplicates_are_observations(void **state) {
  (void)state;
  hark_context *const context = test_reference_open();
  test_file_write_text(folder, "c.csv", "x,y\n-1,1\n0,0\n1,1\n");
  test_file_write_text(folder, "d.csv", "x,y\n-1,1\n0,0\n1,1\n-1,1\n0,0\n1,1\n-1,1\n0,0\n1,1\n");
  test_file_write_text(folder, "q.csv", "x\n0\n");
  hark_table *const once = table_of(context, "predict run --context-table c.csv --query q.csv --target y");
  hark_table *const thrice = table_of(context, "predict run --context-table d.csv --query q.csv --target y");
  assert_true(column(thrice, "deviation")[0] < column(once, "deviation")[0]);
  hark_table_close(context, (hark_table *[]){thrice});
  hark_table_close(context, (hark_table *[]){once});
  test_setup_close(context);
}

/* The file of an exported model has the predictions of its run. */
static void exported_models_predict(void **state) {
  (void)state;
  expect(PREDICT, HARK_EXIT_DONE, "predicted", "");
  char *const of_run = strdup(output.out);
  expect("export run -o prior.safetensors", HARK_EXIT_DONE, "prior.safetensors", "");
  expect("predict prior.safetensors --context-table known.csv --query new.csv --target y", HARK_EXIT_DONE, "", "");
  assert_string_equal(output.out, of_run);
  free(of_run);
  expect("predict prior.safetensors", HARK_EXIT_USAGE, "", "expected --context-table FILE, --query FILE and --target NAME");
  expect("predict prior.safetensors --context-table known.csv --query new.csv --target y --checkpoint best", HARK_EXIT_USAGE, "",
         "--checkpoint: has no effect here, it needs a run");
}

/* A figure leaves the rows on standard output as they are. */
static void predictions_are_drawn(void **state) {
  (void)state;
  expect(PREDICT, HARK_EXIT_DONE, "predicted", "");
  char *const rows = strdup(output.out);
  expect(PREDICT "--figure curve.svg", HARK_EXIT_DONE, "", "");
  assert_string_equal(output.out, rows);
  free(rows);
  char path[TEST_PATH_BYTES];
  (void)snprintf(path, sizeof path, "%.200s/curve.svg", folder);
  if (strstr(output.err, "gnuplot is not installed") == NULL) {
    FILE *const file = fopen(path, "rb");
    assert_non_null(file);
    (void)fclose(file);
  }
  test_file_write_text(folder, "c.csv", "x,z,y\n1,2,2\n3,4,5\n");
  expect("predict run --context-table c.csv --query c.csv --target y --figure no.svg", HARK_EXIT_USAGE, "",
         "--figure: draws one target, a number, over one input, and c.csv has 1 target and 2 inputs");
  expect(PREDICT "--figure same.svg -o same.svg", HARK_EXIT_USAGE, "", "both write same.svg, expected two files");
}

/* ---- classes ---- */

#define CLASSIFY "predict classes --context-table kinds.csv --query asked.csv --target kind "

/* Two inputs around the corners of a triangle, and one of three texts. */
static void write_kinds(const char *name, int first, int count) {
  static const char *const kinds[] = {"left", "\"to, the right\"", "up"};
  static const double places[][2] = {{-1, 0}, {1, 0}, {0, 1.5}};
  char text[TABLE_BYTES] = "x,kind,y\n";
  for (int i = first; i < first + count; i++) {
    const int k = i * 7 % 3;
    (void)snprintf(text + strlen(text), sizeof text - strlen(text), "%.6g,%s,%.6g\n", places[k][0] + 0.3 * sin(12.9898 * i), kinds[k],
                   places[k][1] + 0.3 * cos(78.233 * i));
  }
  test_file_write_text(folder, name, text);
}

static void train_classes(void) {
  expect(
      "data make regression-tasks --tokens 40 --covariates 2 --label-classes 3 --noise 0.01 --scale-least 0.4 "
      "--training "
      "400 --validation 20 --test 20 --out kinds",
      HARK_EXIT_DONE, "", "");
  expect(
      "train --architecture regressor --format examples --data kinds --context 40 --data.context_least 8 --data.queries 8 "
      "--model.regressor.loss classes --classes 3 --width 16 --heads 2 --layers 1 --processes 4 --process-features 2 --batch 4 --lr 3e-3 "
      "--log-every 20 --threads 1 --steps 120 --out classes",
      HARK_EXIT_DONE, "best validation loss", "inputs 2, classes at most 3");
}

static void classes_beat_the_baselines(void **state) {
  (void)state;
  train_classes();
  expect("eval classes --part test --json", HARK_EXIT_DONE, "\"brier_score\"", "");
  json_t *const line = command_json(&output);
  const double loss = member(line, "model", "loss");
  assert_true(loss < member(line, "linear", "loss") - 0.02);
  assert_true(member(line, "linear", "loss") < member(line, "majority", "loss") - 0.03);
  assert_true(member(line, "model", "accuracy") > member(line, "majority", "accuracy") + 0.1);
  assert_true(member(line, "model", "brier_score") < member(line, "majority", "brier_score"));
  assert_true(command_number(line, "loss") == loss && command_number(line, "targets") <= 160);
  json_decref(line);
  expect("eval classes --part test", HARK_EXIT_DONE, "linear discriminant baseline", "");
}

static void classes_are_predicted(void **state) {
  (void)state;
  hark_context *const context = test_reference_open();
  write_kinds("kinds.csv", 0, 30);
  write_kinds("asked.csv", 30, 12);
  hark_table *const table = table_of(context, CLASSIFY);
  assert_string_equal(table->columns[0].name, "predicted");
  assert_string_equal(table->columns[1].name, "target");
  assert_string_equal(table->columns[3].name, "probability_to, the right");
  assert_int_equal(table->column_count, 5);
  for (int64_t i = 0; i < table->rows; i++) {
    const double p[] = {table->columns[2].numbers[i], table->columns[3].numbers[i], table->columns[4].numbers[i]};
    const int32_t code = table->columns[1].codes[i];
    assert_true(fabs(p[0] + p[1] + p[2] - 1) < 1e-6);
    assert_string_equal(table->columns[0].texts[table->columns[0].codes[i]], table->columns[1].texts[code]);
    assert_true(p[code] > 0.5);
  }
  hark_table_close(context, (hark_table *[]){table});
  test_file_write_text(folder, "kinds.csv", "x,kind,y\n1,2,0\n1.1,2,0\n-1,-3.5,0\n-1.1,-3.5,0\n");
  test_file_write_text(folder, "asked.csv", "y,x\n0,1\n0,-1\n");
  expect(CLASSIFY, HARK_EXIT_DONE, "predicted,probability_-3.5,probability_2\r\n2,", "");
  expect(CLASSIFY "--json", HARK_EXIT_DONE, "{\"predicted\": 2, \"probability_-3.5\": ", "");
  test_setup_close(context);
}

static void bad_classes_are_refused(void **state) {
  (void)state;
  const struct {
    const char *text, *words, *message;
    int code;
  } cases[] = {
      {"x,kind,y\n1,a,0\n2,b,0\n3,c,1\n4,d,2\n", "", "column \"kind\" has 4 different values, expected at most 3 classes",
       HARK_EXIT_BAD_INPUT},
      {"x,kind,y\n1,a,0\n2,,0\n", "", "kinds.csv:3: column \"kind\": the class is missing", HARK_EXIT_BAD_INPUT},
      {"x,kind,y\n1,a,0\n2,a,0\n", "", "column \"kind\" has the same value in all rows", HARK_EXIT_BAD_INPUT},
      {"x,kind,y\n1,a,0\n2,b,0\n", "--interval 0.5", "--interval: has no effect here", HARK_EXIT_USAGE},
  };
  test_file_write_text(folder, "asked.csv", "y,x\n0,1\n0,-1\n");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char words[TEST_PATH_BYTES];
    test_file_write_text(folder, "kinds.csv", cases[i].text);
    (void)snprintf(words, sizeof words, CLASSIFY "%s", cases[i].words);
    expect(words, cases[i].code, "", cases[i].message);
  }
  expect(TRAIN "--classes 3 --steps 1 --out no", HARK_EXIT_USAGE, "",
         "the targets of tables are numbers, expected model.regressor.loss classes");
  expect(TRAIN "--model.regressor.loss classes --classes 300 --steps 1 --out no", HARK_EXIT_USAGE, "", "a table has at most 256 classes");
  expect(TRAIN "--model.regressor.loss classes --steps 1 --out no", HARK_EXIT_BAD_INPUT, "", "expected a whole number from 0 to 9");
  expect("data make regression-tasks --label-classes 1 --out no", HARK_EXIT_USAGE, "", "--label-classes: 1, expected at least 2");
}

/* A model of classes is trained on a table in CSV; hark/regressor.h has the numbers of the command. */
static void classes_of_csv_and_the_library(void **state) {
  (void)state;
  enum { CLASSES = 10 };
  hark_context *const context = test_reference_open();
  write_kinds("kinds.csv", 0, 60);
  expect(
      "train --architecture regressor --format tables --data kinds.csv --target-columns kind --context 60 "
      "--data.context_least 20 --data.queries 10 --model.regressor.loss classes --width 8 --heads 1 --layers 1 --processes 2 --batch 2 "
      "--steps 3 --threads 1 --out csv",
      HARK_EXIT_DONE, "step 3", "");
  char path[TEST_PATH_BYTES];
  (void)snprintf(path, sizeof path, "%.200s/csv", folder);
  hark_model *model = NULL;
  hark_regressor *regressor = NULL;
  int64_t inputs, targets, classes;
  const hark_regressor_options options = {.struct_size = sizeof options, .context_rows = 5, .query_rows = 2};
  float known[] = {0, 0, 2, 1, 1, 4, 0.1F, 0, 2, 1, 0.9F, 4, 2, NAN, 4}, asked[] = {1, 1, 0, 0}, probabilities[2 * CLASSES],
        mean[2 * CLASSES];
  hark_regressor_table rows = {.struct_size = sizeof rows, .context_rows = 5, .query_rows = 2, .context = known, .queries = asked};
  assert_fine(context, hark_model_load(context, path, NULL, &model));
  assert_fine(context, hark_regressor_class_count(context, model, &classes));
  assert_fine(context, hark_regressor_describe(context, model, &inputs, &targets));
  assert_true(classes == CLASSES && inputs == 2 && targets == 1);
  assert_fine(context, hark_regressor_create(context, model, &options, &regressor));
  assert_fine(context, hark_regressor_classify(regressor, &rows, probabilities));
  for (int i = 0; i < 2; i++) {
    double sum = 0;
    for (int c = 0; c < CLASSES; c++) {
      sum += probabilities[i * CLASSES + c];
      assert_true(c == 2 || c == 4 ? probabilities[i * CLASSES + c] > 0 : probabilities[i * CLASSES + c] == 0);
    }
    assert_true(fabs(sum - 1) < 1e-5);
  }
  assert_int_equal(hark_regressor_run(regressor, &rows, mean, mean), HARK_UNSUPPORTED);
  known[2] = 2.5F;
  assert_int_equal(hark_regressor_classify(regressor, &rows, probabilities), HARK_INVALID_ARGUMENT);
  assert_non_null(strstr(hark_context_message(context), "the class of row 0 of the context is 2.5, expected a whole number from 0 to 9"));
  known[2] = known[8] = 4;
  assert_int_equal(hark_regressor_classify(regressor, &rows, probabilities), HARK_INVALID_ARGUMENT);
  assert_non_null(strstr(hark_context_message(context), "all 5 rows of the context have the same class"));
  hark_regressor_destroy(&regressor);
  hark_model_destroy(context, &model);
  test_setup_close(context);
}

/* Smoothers are trained, measured and saved; their deviation is at least that of the noise, also far from the origin. */
static void smoothers_predict(void **state) {
  (void)state;
  hark_context *const context = test_reference_open();
  expect(TRAIN "--model.regressor.head smoother --steps 60 --no-standardise --out smoother", HARK_EXIT_DONE, "step 60", "");
  expect("eval smoother --part test --json", HARK_EXIT_DONE, "", "");
  json_t *const line = command_json(&output);
  assert_true(member(line, "model", "loss") < member(line, "mean", "loss") - 0.05);
  json_decref(line);
  hark_table *const table = table_of(context, "predict smoother --context-table known.csv --query new.csv --target y");
  for (int i = 0; i < ASKED; i++) {
    assert_true(fabs(column(table, "predicted")[i] - target_of(KNOWN + i)) < 0.8);
    assert_true(column(table, "deviation")[i] > 0.01);
  }
  hark_table_close(context, (hark_table *[]){table});
  char text[TABLE_BYTES] = "x,y\n";
  for (int i = 0; i < KNOWN; i++)
    (void)snprintf(text + strlen(text), sizeof text - strlen(text), "%.9g,%.9g\n", input_of(i), 100000 + target_of(i) / 1000);
  test_file_write_text(folder, "far.csv", text);
  hark_table *const far = table_of(context, "predict smoother --context-table far.csv --query new.csv --target y");
  for (int i = 0; i < ASKED; i++) assert_true(column(far, "deviation")[i] > 0.01);
  hark_table_close(context, (hark_table *[]){far});
  test_setup_close(context);
}

/* With the squared error as the loss, the means are as good, and the loss is the squared error. */
static void means_are_learned_alone(void **state) {
  (void)state;
  expect(TRAIN "--model.regressor.loss squared --steps 60 --out squared", HARK_EXIT_DONE, "step 60", "");
  expect("eval squared --part test --json", HARK_EXIT_DONE, "", "");
  json_t *const line = command_json(&output);
  const double error = member(line, "model", "root_mean_square_error");
  assert_true(error < member(line, "linear", "root_mean_square_error"));
  assert_true(fabs(command_number(line, "loss") - error * error) < 1e-6);
  json_decref(line);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(training_beats_the_baselines),
      cmocka_unit_test(predictions_follow_the_function),
      cmocka_unit_test(the_library_predicts_the_same),
      cmocka_unit_test(threads_do_not_change_a_byte),
      cmocka_unit_test(units_and_order_have_no_effect),
      cmocka_unit_test(bad_tables_are_refused),
      cmocka_unit_test(duplicates_are_observations),
      cmocka_unit_test(blocks_may_regress),
      cmocka_unit_test(options_of_examples_are_refused),
      cmocka_unit_test(losses_are_means_over_targets),
      cmocka_unit_test(tables_are_described),
      cmocka_unit_test(exported_models_predict),
      cmocka_unit_test(predictions_are_drawn),
      cmocka_unit_test(classes_beat_the_baselines),
      cmocka_unit_test(classes_are_predicted),
      cmocka_unit_test(bad_classes_are_refused),
      cmocka_unit_test(classes_of_csv_and_the_library),
      cmocka_unit_test(means_are_learned_alone),
      cmocka_unit_test(smoothers_predict),
  };
  return cmocka_run_group_tests(tests, begin, end);
}
