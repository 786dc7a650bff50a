/* test_tables.c - tables as examples: files against what was written and files that are refused; samples, whose rows are different rows of
 * their table and whose columns are scaled by their context; classes; missing inputs; tables with too few rows; the generator. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/examples/example_batches.h"
#include "data/formats/table_file.h"
#include "support/cmocka_all.h"
#include "support/train/task_place.h"
#include "train/evaluate_examples.h"

enum { ROWS = 11, INPUTS = 2, TARGETS = 1, COLUMNS = INPUTS + TARGETS, COUNT = 4, RECORD = ROWS * COLUMNS };
#define FILE_BYTES (HARK_VECTORS_HEADER_BYTES + COUNT * RECORD * sizeof(float))

/* Row n of table t: inputs 100 t + n and n^2, target -n; input 1 of row 3 is missing. */
static float number_of(int t, int row, int column) {
  if (column == 1 && row == 3) return NAN;
  return column == 0 ? (float)(100 * t + row) : column == 1 ? (float)(row * row) : (float)-row;
}

static void fill(unsigned char *bytes) {
  hark_vectors_header(HARK_TABLES_MAGIC, ROWS, INPUTS, TARGETS, COUNT, bytes);
  for (int i = 0; i < COUNT * RECORD; i++) {
    const float number = number_of(i / RECORD, i % RECORD / COLUMNS, i % COLUMNS);
    memcpy(bytes + HARK_VECTORS_HEADER_BYTES + (size_t)i * sizeof number, &number, sizeof number);
  }
}

static hark_status open_file(const task_place *f, const void *bytes, size_t count, hark_examples **out) {
  const char *const path = test_file_write(f->folder, "a.tables", bytes, count);
  const hark_examples_settings settings = {.format = "tables", .paths = &path, .path_count = 1};
  return hark_examples_open(f->context, &settings, out);
}

static hark_examples *open_tables(const task_place *f) {
  unsigned char bytes[FILE_BYTES];
  hark_examples *e = NULL;
  fill(bytes);
  assert_fine(f->context, open_file(f, bytes, sizeof bytes, &e));
  return e;
}

static void tables_come_back(void **state) {
  const task_place *const f = *state;
  hark_examples *e = open_tables(f);
  assert_int_equal(hark_examples_target_kind(e), HARK_TARGET_ROWS);
  assert_int_equal(hark_examples_features(e), COLUMNS);
  assert_int_equal(hark_examples_responses(e), TARGETS);
  assert_int_equal(hark_examples_count(e, HARK_SPLIT_TRAINING).examples, COUNT);
  for (int t = 0; t < COUNT; t++) {
    const float *const table = hark_examples_table(e, HARK_SPLIT_TRAINING, t);
    assert_non_null(table);
    for (int i = 0; i < RECORD; i++) {
      const float expected = number_of(t, i / COLUMNS, i % COLUMNS);
      assert_true(table[i] == expected || (isnan(table[i]) && isnan(expected)));
    }
  }
  assert_null(hark_examples_table(e, HARK_SPLIT_TRAINING, COUNT));
  hark_examples_close(f->context, &e);
}

static void bad_files_are_refused(void **state) {
  const task_place *const f = *state;
  const float infinite = INFINITY, missing = NAN;
  const struct {
    size_t at;
    const void *bytes;
    size_t count;
    const char *message;
  } cases[] = {
      {0, "HARKVECS", 8, "is no file of tables, which begin with \"HARKTABL\""},
      {HARK_VECTORS_HEADER_BYTES + 4, &infinite, 4, "an input that is not finite at byte offset 36"},
      {HARK_VECTORS_HEADER_BYTES + 8, &missing, 4, "a target that is not finite at byte offset 40"},
      {20, "\0\0\0\0", 4, "number of targets"},
      {12, "\x0c\0\0\0", 4, "bytes, expected"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    unsigned char bytes[FILE_BYTES];
    hark_examples *e = NULL;
    fill(bytes);
    memcpy(bytes + cases[i].at, cases[i].bytes, cases[i].count);
    assert_int_equal(open_file(f, bytes, sizeof bytes, &e), HARK_BAD_FILE);
    if (strstr(hark_context_message(f->context), cases[i].message) == NULL)
      fail_msg("\"%s\", expected \"%s\"", hark_context_message(f->context), cases[i].message);
    assert_null(e);
  }
}

static hark_status open_csv(const task_place *f, const char *name, const char *text, const char *targets, hark_examples **out) {
  const char *const path = test_file_write_text(f->folder, name, text);
  const hark_examples_settings settings = {.format = "tables", .paths = &path, .path_count = 1, .targets = targets};
  return hark_examples_open(f->context, &settings, out);
}

/* Targets come last, in the order of their names; a missing input is NaN. */
static void a_table_in_csv_is_an_example(void **state) {
  const task_place *const f = *state;
  hark_examples *e = NULL;
  const float expected[] = {2, 0.5F, 4, 1, 6, NAN, 8, 5};
  assert_fine(f->context, open_csv(f, "a.csv", "b;a;d;c\n1;2;4;0.5\n5;6;8;NA\n", "d,b", &e));
  assert_int_equal(hark_examples_count(e, HARK_SPLIT_TRAINING).examples, 1);
  assert_int_equal(hark_examples_length(e, HARK_SPLIT_TRAINING, 0, 0), 2);
  assert_int_equal(hark_examples_features(e), 4);
  assert_int_equal(hark_examples_responses(e), 2);
  const float *const table = hark_examples_table(e, HARK_SPLIT_TRAINING, 0);
  for (int i = 0; i < 8; i++) assert_true(table[i] == expected[i] || (isnan(table[i]) && isnan(expected[i])));
  hark_examples_close(f->context, &e);
}

static void bad_csv_is_refused(void **state) {
  const task_place *const f = *state;
  const struct {
    const char *text, *targets;
    hark_status status;
    const char *message;
  } cases[] = {
      {"a,b\n1,2\n", "", HARK_BAD_FILE, "a table in CSV needs the names of its targets, data.targets"},
      {"a,b\n1,2\n", "c", HARK_BAD_CONFIGURATION, "has no column \"c\""},
      {"a,b\n1,2\n", "b,b", HARK_BAD_CONFIGURATION, "column \"b\" occurs twice"},
      {"a,b\n1,2\n", "a,b", HARK_BAD_CONFIGURATION, "names all columns"},
      {"a,b\nred,2\n", "b", HARK_BAD_FILE, "bad.csv:2: column \"a\""},
      {"a,b\n1,\n", "b", HARK_BAD_FILE, "the target is missing"},
      {"a,b\n1e39,2\n", "b", HARK_BAD_FILE, "beyond the range of 32 bits"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    hark_examples *e = NULL;
    assert_int_equal(open_csv(f, "bad.csv", cases[i].text, cases[i].targets, &e), cases[i].status);
    if (strstr(hark_context_message(f->context), cases[i].message) == NULL)
      fail_msg("\"%s\", expected \"%s\"", hark_context_message(f->context), cases[i].message);
    assert_null(e);
  }
}

static hark_example_batches describe(const task_place *f, const hark_examples *e, hark_table_split split) {
  const hark_example_batches_settings settings = {.split = HARK_SPLIT_TRAINING,
                                                  .order = HARK_ORDER_SEQUENTIAL,
                                                  .seed = 3,
                                                  .longest = ROWS,
                                                  .named_for = "model.context",
                                                  .tables = split};
  hark_example_batches batches;
  assert_fine(f->context, hark_example_batches_create(f->context, e, &settings, &batches));
  return batches;
}

/* Without scales, rows are recognised by their numbers: every row occurs at most once, and the batch is in order. */
static void samples_are_rows_of_their_table(void **state) {
  const task_place *const f = *state;
  hark_examples *e = open_tables(f);
  const hark_example_batches batches = describe(f, e, (hark_table_split){.least = 2, .most = 6, .queries = 3});
  hark_example_room room;
  bool sizes[ROWS + 1] = {false};
  assert_fine(f->context, hark_example_room_open(f->context, &batches, COUNT, &room));
  const hark_example_batch *const b = &room.batch;
  for (int64_t first = 0; first < 40 * COUNT; first += COUNT) {
    int64_t real = 0;
    assert_fine(f->context, hark_example_batches_targets(f->context, &batches, first, COUNT, b->targets, &real));
    assert_fine(f->context, hark_example_batches_read(f->context, &batches, first, COUNT, &room.batch));
    assert_int_equal(real, 3 * COUNT);
    assert_int_equal(b->real, real);
    assert_int_equal(b->tokens, b->context_rows + real);
    for (int t = 0; t < COUNT; t++) {
      bool seen[ROWS] = {false};
      const int64_t *const ranges = b->ranges + 4 * t, n = ranges[1] - ranges[0];
      assert_true(n >= 2 && n <= 6);
      sizes[n] = true;
      assert_int_equal(ranges[0], t == 0 ? 0 : ranges[-3]);
      assert_int_equal(ranges[2], t == 0 ? b->context_rows : ranges[-1]);
      assert_int_equal(ranges[3] - ranges[2], 3);
      for (int part = 0; part < 2; part++)
        for (int64_t row = ranges[2 * part]; row < ranges[2 * part + 1]; row++) {
          const int source = (int)-b->responses[row];
          assert_in_range(source, 0, ROWS - 1);
          assert_false(seen[source]);
          seen[source] = true;
          assert_true(b->features[4 * row] == number_of(t, source, 0));
          assert_true(b->features[4 * row + 1] == (source == 3 ? 0 : number_of(t, source, 1)));
          assert_true(b->features[4 * row + 2] == 0 && b->features[4 * row + 3] == (source == 3));
        }
    }
  }
  for (int n = 2; n <= 6; n++) assert_true(sizes[n]);
  hark_example_room_close(f->context, &room);
  hark_examples_close(f->context, &e);
}

/* Of every column in the context the mean is 0 and the deviation 1, and targets are restored by their scale. */
static void columns_are_scaled_by_the_context(void **state) {
  const task_place *const f = *state;
  hark_examples *e = open_tables(f);
  const hark_example_batches batches = describe(f, e, (hark_table_split){.least = 5, .queries = 0, .standardise = true});
  hark_example_room room;
  assert_fine(f->context, hark_example_room_open(f->context, &batches, COUNT, &room));
  const hark_example_batch *const b = &room.batch;
  assert_fine(f->context, hark_example_batches_read(f->context, &batches, 7, COUNT, &room.batch));
  for (int t = 0; t < COUNT; t++) {
    const int64_t *const ranges = b->ranges + 4 * t;
    const hark_column_scale *const scale = &b->scales[t];
    assert_int_equal(ranges[1] - ranges[0] + ranges[3] - ranges[2], ROWS);
    for (int c = 0; c < COLUMNS; c++) {
      double sum = 0, squares = 0, present = 0;
      for (int64_t row = ranges[0]; row < ranges[1]; row++) {
        const double x = c < INPUTS ? b->features[4 * row + c] : b->responses[row];
        if (c == 1 && b->features[4 * row + 3] == 1) continue;
        sum += x;
        squares += x * x;
        present++;
      }
      assert_true(fabs(sum / present) < 1e-5 && fabs(squares / present - 1) < 1e-5);
    }
    for (int64_t row = ranges[2]; row < ranges[3]; row++) {
      const double target = b->responses[row] * scale->deviation + scale->mean;
      assert_true(fabs(target - nearbyint(target)) < 1e-5 && target <= 1e-5 && target > -ROWS);
    }
  }
  hark_example_room_close(f->context, &room);
  hark_examples_close(f->context, &e);
}

/* A constant column is only shifted, and a column without values stays 0. */
static void columns_without_scale(void **state) {
  (void)state;
  float known[] = {4, NAN, 1, 0, 0, 4, NAN, 3, 0, 0}, inputs[8] = {0}, targets[2], query[4] = {6, 5, 0, 0};
  const hark_table_block context = {inputs, targets, 2}, asked = {query, NULL, 1};
  hark_column_scale scale;
  for (int row = 0; row < 2; row++) hark_table_put(known + 5 * row, 2, 1, &context, row);
  hark_table_scale(true, 2, 1, &context, &asked, &scale);
  for (int row = 0; row < 2; row++) {
    assert_true(inputs[4 * row] == 0 && inputs[4 * row + 1] == 0 && inputs[4 * row + 2] == 0 && inputs[4 * row + 3] == 1);
    assert_true(targets[row] == (row == 0 ? -1 : 1));
  }
  assert_true(scale.mean == 2 && scale.deviation == 1);
  assert_true(query[0] == 2 && query[1] == 5 && query[2] == 0 && query[3] == 0);
}

/* Eleven rows of the classes 0, 2, 0, 2 ..., and the last of class 1. */
static hark_examples *open_classes(const task_place *f, int32_t classes, hark_status expected, const char *message) {
  unsigned char bytes[HARK_VECTORS_HEADER_BYTES + ROWS * 2 * sizeof(float)];
  hark_vectors_header(HARK_TABLES_MAGIC, ROWS, 1, 1, 1, bytes);
  for (int i = 0; i < 2 * ROWS; i++) {
    const int row = i / 2;
    const float number = i % 2 == 0 ? (float)row : row == ROWS - 1 ? 1 : (float)(2 * (row % 2));
    memcpy(bytes + HARK_VECTORS_HEADER_BYTES + (size_t)i * sizeof number, &number, sizeof number);
  }
  const char *const path = test_file_write(f->folder, "c.tables", bytes, sizeof bytes);
  const hark_examples_settings settings = {.format = "tables", .paths = &path, .path_count = 1, .classes = classes};
  hark_examples *e = NULL;
  const hark_status status = hark_examples_open(f->context, &settings, &e);
  assert_int_equal(status, expected);
  if (status != HARK_OK) assert_non_null(strstr(hark_context_message(f->context), message));
  return e;
}

static void targets_of_classes_are_centred(void **state) {
  const task_place *const f = *state;
  enum { CLASSES = 4, LEAST = 3, QUERIES = 6, SAMPLES = 40 };
  hark_examples *e = open_classes(f, CLASSES, HARK_OK, "");
  const hark_example_batches_settings settings = {.split = HARK_SPLIT_TRAINING,
                                                  .order = HARK_ORDER_SEQUENTIAL,
                                                  .longest = ROWS,
                                                  .named_for = "model.context",
                                                  .tables = {.least = LEAST, .queries = QUERIES, .classes = CLASSES}};
  hark_example_batches batches;
  hark_example_room room;
  int64_t ignored = 0, counted = 0;
  assert_fine(f->context, hark_example_batches_create(f->context, e, &settings, &batches));
  assert_fine(f->context, hark_example_room_open(f->context, &batches, 2, &room));
  const hark_example_batch *const b = &room.batch;
  for (int64_t sample = 0; sample < SAMPLES; sample += 2) {
    int64_t real = 0, without = 0;
    assert_fine(f->context, hark_example_batches_read(f->context, &batches, sample, 2, &room.batch));
    for (int table = 0; table < 2; table++) {
      int64_t count[CLASSES] = {0};
      const int64_t *const range = b->ranges + 4 * (ptrdiff_t)table, n = range[1] - range[0];
      for (int64_t i = range[0]; i < range[1]; i++) {
        const float input = b->features[2 * i];
        assert_int_equal(b->targets[i], input == ROWS - 1 ? 1 : 2 * ((int)input % 2));
        count[b->targets[i]]++;
      }
      for (int64_t i = range[0]; i < range[1]; i++)
        for (int c = 0; c < CLASSES; c++)
          assert_true(fabs(b->responses[i * CLASSES + c] - ((b->targets[i] == c) - (double)count[c] / (double)n)) < 1e-6);
      for (int64_t i = range[2]; i < range[3]; i++) {
        const int own = b->features[2 * i] == ROWS - 1 ? 1 : 2 * ((int)b->features[2 * i] % 2);
        assert_int_equal(b->targets[i], count[own] > 0 ? own : -1);
        without += count[own] == 0;
        for (int c = 0; c < CLASSES; c++) {
          const float level = b->responses[i * CLASSES + c];
          assert_true(count[c] > 0 ? fabs(level - log((double)count[c] / (double)n)) < 1e-6 : level < -1e8F);
        }
      }
    }
    assert_int_equal(b->real, 2 * QUERIES - without);
    assert_fine(f->context, hark_example_batches_targets(f->context, &batches, sample, 2, b->targets, &real));
    assert_int_equal(real, b->real);
    ignored += without;
    counted += real;
  }
  assert_true(ignored > 5 && counted > 100);
  hark_example_room_close(f->context, &room);
  hark_examples_close(f->context, &e);
  assert_null(open_classes(f, 2, HARK_BAD_FILE, "a class is 2 at byte offset 44, expected a whole number from 0 to 1"));
}

static void short_tables_are_refused(void **state) {
  const task_place *const f = *state;
  hark_examples *e = open_tables(f);
  hark_example_batches_settings settings = {.split = HARK_SPLIT_TRAINING,
                                            .order = HARK_ORDER_SEQUENTIAL,
                                            .longest = ROWS,
                                            .named_for = "model.context",
                                            .tables = {.least = 8, .queries = 4}};
  hark_example_batches batches;
  assert_int_equal(hark_example_batches_create(f->context, e, &settings, &batches), HARK_BAD_CONFIGURATION);
  assert_non_null(strstr(hark_context_message(f->context),
                         "training table 1 has 11 rows, expected at least 12: data.context_least 8 and 4 to predict"));
  settings.tables.queries = 3;
  assert_fine(f->context, hark_example_batches_create(f->context, e, &settings, &batches));
  hark_examples_close(f->context, &e);
}

/* With a long length scale and little noise, targets of near inputs are nearly equal; with a short one they are not. */
static void generated_functions_have_their_length_scale(void **state) {
  const task_place *const f = *state;
  double apart[2];
  for (int i = 0; i < 2; i++) {
    const char *const scale = i == 0 ? "0.02" : "1";
    const made_task t = {.name = "regression-tasks",
                         .seed = 1,
                         .examples = {40, 0, 0},
                         .options = {"tokens", "64", "covariates", "1", "noise", "1e-4", "scale_least", scale, "scale_most", scale}};
    task_make(f, i == 0 ? "short" : "long", &t);
    hark_examples *e = task_open(f, i == 0 ? "short" : "long");
    double sum = 0;
    int64_t pairs = 0;
    for (int64_t n = 0; n < 40; n++) {
      const float *const table = hark_examples_table(e, HARK_SPLIT_TRAINING, n);
      for (int a = 0; a < 64; a++)
        for (int b = 0; b < a; b++) {
          if (fabsf(table[2 * a] - table[2 * b]) > 0.1F || fabsf(table[2 * a] - table[2 * b]) < 0.08F) continue;
          sum += pow(table[2 * a + 1] - table[2 * b + 1], 2);
          pairs++;
        }
    }
    assert_true(pairs > 500);
    apart[i] = sum / (double)pairs;
    hark_examples_close(f->context, &e);
  }
  assert_true(apart[0] > 1.2);  /* 2 (1 - exp(-.09^2 / (2 .02^2))) = 2 */
  assert_true(apart[1] < 0.03); /* 2 (1 - exp(-.09^2 / 2)) = .008 */
}

/* Classes and inputs of varied tables: of all numbers of classes, some inputs constant, missing, or with few values. */
static void generated_tables_vary(void **state) {
  const task_place *const f = *state;
  enum { TABLES = 300, LENGTH = 48, COLUMNS_VARIED = 5 };
  const made_task t = {.name = "regression-tasks",
                       .seed = 2,
                       .examples = {TABLES, 0, 0},
                       .options = {"tokens", "48", "covariates", "5", "function", "mixed", "inputs", "varied", "label_classes", "4"}};
  task_make(f, "varied", &t);
  hark_examples *e = task_open(f, "varied");
  int of_classes[5] = {0}, lost = 0, constant[COLUMNS_VARIED] = {0}, few = 0;
  for (int64_t n = 0; n < TABLES; n++) {
    const float *const table = hark_examples_table(e, HARK_SPLIT_TRAINING, n);
    int largest = 0;
    for (int i = 0; i < LENGTH; i++) {
      const float class = table[i * (COLUMNS_VARIED + 1) + COLUMNS_VARIED];
      assert_true(class == floorf(class) && class >= 0 && class < 4);
      largest = class > (float)largest ? (int)class : largest;
    }
    of_classes[largest + 1]++;
    for (int c = 0; c < COLUMNS_VARIED; c++) {
      float different[LENGTH];
      int count = 0;
      for (int i = 0; i < LENGTH; i++) {
        const float x = table[i * (COLUMNS_VARIED + 1) + c];
        int k = 0;
        lost += isnan(x);
        while (k < count && different[k] != x) k++;
        if (k == count && !isnan(x)) different[count++] = x;
      }
      constant[c] += count <= 1;
      few += count >= 2 && count <= 6;
    }
  }
  for (int k = 2; k <= 4; k++) assert_true(of_classes[k] > 30);
  assert_int_equal(constant[0], 0);
  for (int c = 1; c < COLUMNS_VARIED; c++) assert_true(constant[c] >= constant[c - 1]);
  assert_true(constant[COLUMNS_VARIED - 1] > 220 && constant[COLUMNS_VARIED - 1] < 295);
  assert_true(lost > 100 && lost < 2000 && few > 60);
  hark_examples_close(f->context, &e);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TASK_TEST(tables_come_back),
      TASK_TEST(bad_files_are_refused),
      TASK_TEST(a_table_in_csv_is_an_example),
      TASK_TEST(bad_csv_is_refused),
      TASK_TEST(samples_are_rows_of_their_table),
      TASK_TEST(columns_are_scaled_by_the_context),
      TASK_TEST(columns_without_scale),
      TASK_TEST(targets_of_classes_are_centred),
      TASK_TEST(short_tables_are_refused),
      TASK_TEST(generated_functions_have_their_length_scale),
      TASK_TEST(generated_tables_vary),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
