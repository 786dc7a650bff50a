/* test_table_file.c - tables in CSV files: rules of fields, kinds of columns, missing values, texts and their codes; every complaint; a
 * generated table that is read back; out of memory at every allocation. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/tables/classes.h"
#include "data/tables/table.h"
#include "support/cmocka_all.h"
#include "support/train/packed.h"
#include "support/train/task_place.h"

static hark_status open_bytes(const task_place *f, const void *bytes, size_t length, hark_table **out) {
  return hark_table_open(f->context, test_file_write(f->folder, "a.csv", bytes, length), out);
}

static hark_status open_text(const task_place *f, const char *text, hark_table **out) { return open_bytes(f, text, strlen(text), out); }

static hark_table *read_table(const task_place *f, const char *text) {
  hark_table *table = NULL;
  assert_fine(f->context, open_text(f, text, &table));
  return table;
}

/* The column of a name, which is there. */
static const hark_table_column *column(const hark_table *table, const char *name) {
  const int32_t index = hark_table_find(table, name);
  assert_in_range(index, 0, table->column_count - 1);
  assert_string_equal(table->columns[index].name, name);
  return &table->columns[index];
}

static void expect_numbers(const hark_table *table, const char *name, const double *expected) {
  const hark_table_column *const c = column(table, name);
  assert_int_equal(c->kind, HARK_TABLE_NUMBERS);
  assert_null(c->codes);
  for (int64_t i = 0; i < table->rows; i++)
    if (isnan(expected[i]) ? !isnan(c->numbers[i]) : c->numbers[i] != expected[i])
      fail_msg("row %" PRId64 " of %s: %g, expected %g", i, name, c->numbers[i], expected[i]);
}

/* "" is a missing text. */
static void expect_texts(const hark_table *table, const char *name, const char *const *expected) {
  const hark_table_column *const c = column(table, name);
  assert_int_equal(c->kind, HARK_TABLE_TEXTS);
  assert_null(c->numbers);
  for (int64_t i = 0; i < table->rows; i++) {
    assert_in_range(c->codes[i] + 1, 0, c->text_count);
    assert_string_equal(c->codes[i] < 0 ? "" : c->texts[c->codes[i]], expected[i]);
  }
  for (int32_t i = 1; i < c->text_count; i++) assert_true(strcmp(c->texts[i - 1], c->texts[i]) < 0);
}

static void columns_have_numbers_or_texts(void **state) {
  const task_place *const f = *state;
  hark_table *table = read_table(f,
                                 "size,kind,all,code\n"
                                 "1.5,wood,NA,7\n"
                                 "-2e3,,?,08\n"
                                 ",stone,null,x\n"
                                 "NaN,nan,,9\n"
                                 " +4 , wood ,nan,8");
  assert_int_equal(table->rows, 5);
  assert_int_equal(table->column_count, 4);
  assert_int_equal(hark_table_find(table, "all"), 2);
  assert_int_equal(hark_table_find(table, "al"), -1);
  assert_int_equal(hark_table_find(table, ""), -1);
  expect_numbers(table, "size", (const double[]){1.5, -2000, NAN, NAN, 4});
  expect_texts(table, "kind", (const char *const[]){"wood", "", "stone", "", "wood"});
  assert_int_equal(column(table, "kind")->text_count, 2);
  assert_int_equal(column(table, "kind")->first_text, 0);
  expect_numbers(table, "all", (const double[]){NAN, NAN, NAN, NAN, NAN});
  expect_texts(table, "code", (const char *const[]){"7", "08", "x", "9", "8"});
  assert_int_equal(column(table, "code")->text_count, 5);
  assert_int_equal(column(table, "code")->first_text, 2);
  assert_int_equal(column(table, "size")->first_text, -1);
  for (int i = 0; i < 5; i++) assert_int_equal(table->lines[i], i + 2);
  hark_table_close(f->context, &table);
  assert_null(table);
  hark_table_close(f->context, &table);
}

static void classes_are_different_values(void **state) {
  const task_place *const f = *state;
  hark_table *table = read_table(f, "number,text,part,one\n3,b,1,x\n-0.5,a,,x\n3,b,2,x\n1e3,\"a c\",2,x\n");
  hark_table_classes classes;
  char name[HARK_CLASS_NAME_ROOM];
  assert_fine(f->context, hark_table_classes_open(f->context, table, 0, 3, &classes));
  assert_int_equal(classes.count, 3);
  for (int i = 0; i < 4; i++) assert_int_equal(classes.of_row[i], ((const int[]){1, 0, 1, 2})[i]);
  assert_string_equal(hark_table_class_name(&classes, 0, name), "-0.5");
  assert_string_equal(hark_table_class_name(&classes, 2, name), "1000");
  hark_table_classes_close(f->context, &classes);
  assert_fine(f->context, hark_table_classes_open(f->context, table, 1, 3, &classes));
  assert_int_equal(classes.count, 3);
  for (int i = 0; i < 4; i++) assert_int_equal(classes.of_row[i], ((const int[]){2, 0, 2, 1})[i]);
  assert_string_equal(hark_table_class_name(&classes, 1, name), "a c");
  hark_table_classes_close(f->context, &classes);
  assert_fine(f->context, hark_table_classes_open(f->context, table, 3, 1, &classes));
  assert_int_equal(classes.count, 1);
  hark_table_classes_close(f->context, &classes);
  assert_failure(f->context, hark_table_classes_open(f->context, table, 1, 2, &classes), HARK_BAD_FILE,
                 "column \"text\" has 3 different values, expected at most 2 classes");
  hark_table_classes_close(f->context, &classes);
  assert_failure(f->context, hark_table_classes_open(f->context, table, 2, 9, &classes), HARK_BAD_FILE,
                 "a.csv:3: column \"part\": the class is missing, expected one in every row");
  hark_table_classes_close(f->context, &classes);
  hark_table_close(f->context, &table);
}

static void quoted_fields_contain_anything(void **state) {
  const task_place *const f = *state;
  hark_table *table = read_table(f,
                                 "\xef\xbb\xbf\"a,\"\"b\"\"\",\"line\r\nend\",  \"c\"  ,d\"e\r\n"
                                 "\"x, y\" ,\"one\ntwo\"  ,\" 3 \",5\" pipe\r\n"
                                 "\r\n"
                                 "\"\"\"\",\"\r\n\", \"4\",\"\"\r\n");
  assert_int_equal(table->rows, 2);
  expect_texts(table, "a,\"b\"", (const char *const[]){"x, y", "\""});
  expect_texts(table, "line\r\nend", (const char *const[]){"one\ntwo", "\r\n"});
  expect_texts(table, "c", (const char *const[]){" 3 ", "4"}); /* spaces in quotes belong to a value */
  expect_texts(table, "d\"e", (const char *const[]){"5\" pipe", ""});
  assert_int_equal(table->lines[0], 3);
  assert_int_equal(table->lines[1], 6);
  hark_table_close(f->context, &table);
}

static void delimiters_are_found_in_the_header(void **state) {
  const task_place *const f = *state;
  static const char *const texts[] = {"a,b c\n1,x;y\n", "a;b c\n1;x,y\n", "a\tb c\n1\tx,y\n", "\"a\";\"b c\"\n\"1\";\"x\"\n"};
  static const char *const values[] = {"x;y", "x,y", "x,y", "x"};
  for (int i = 0; i < 4; i++) {
    hark_table *table = read_table(f, texts[i]);
    assert_int_equal(table->column_count, 2);
    expect_numbers(table, "a", (const double[]){1});
    expect_texts(table, "b c", &values[i]);
    hark_table_close(f->context, &table);
  }
  hark_table *table = read_table(f, "\"a,b;c\"\n\n1\n\n\n\"\"\nNA");
  assert_int_equal(table->column_count, 1);
  expect_numbers(table, "a,b;c", (const double[]){1, NAN, NAN});
  hark_table_close(f->context, &table);
  table = read_table(f, "a\tb\n \t\n1 \t2"); /* a field of spaces is empty */
  expect_numbers(table, "a", (const double[]){NAN, 1});
  expect_numbers(table, "b", (const double[]){NAN, 2});
  hark_table_close(f->context, &table);
}

static void other_forms_of_numbers_are_texts(void **state) {
  const task_place *const f = *state;
  static const char *const forms[] = {"inf", "-Infinity", "0x10", "1_000", "1 000", "\"1,5\"", "1.2.3",
                                      "e5",  "-",         ".",    "NAN",   "na",    "Null",    "5%"};
  for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
    char text[64];
    hark_table *table;
    const double *numbers;
    (void)snprintf(text, sizeof text, "a,b\n0,1\n%s,2\n", forms[i]);
    table = read_table(f, text);
    assert_int_equal(column(table, "a")->kind, HARK_TABLE_TEXTS);
    assert_failure(f->context, hark_table_numbers(f->context, table, 0, &numbers), HARK_BAD_FILE, "a.csv:3: column \"a\": \"");
    assert_fine(f->context, hark_table_numbers(f->context, table, 1, &numbers));
    assert_true(numbers[1] == 2);
    hark_table_close(f->context, &table);
  }
}

static void complaints_about_cells_name_their_place(void **state) {
  const task_place *const f = *state;
  hark_table *table = read_table(f, "size,\"note\"\n1,\"two\nlines\"\n,?\nsmall,x\n3,tiny\n");
  const double *numbers;
  int32_t index = -1;
  assert_failure(f->context, hark_table_numbers(f->context, table, 0, &numbers), HARK_BAD_FILE,
                 "a.csv:5: column \"size\": \"small\" is not a number, expected numbers such as -1.5");
  assert_failure(f->context, hark_table_fail(f->context, table, 3, 1, "is %s", "bad"), HARK_BAD_FILE, "a.csv:6: column \"note\": is bad");
  assert_fine(f->context, hark_table_need(f->context, table, "note", &index));
  assert_int_equal(index, 1);
  assert_failure(f->context, hark_table_need(f->context, table, "Sise", &index), HARK_BAD_CONFIGURATION,
                 "a.csv: has no column \"Sise\", did you mean \"size\"");
  assert_failure(f->context, hark_table_need(f->context, table, "completely different", &index), HARK_BAD_CONFIGURATION,
                 "a.csv: has no column \"completely different\", its first column is \"size\"");
  assert_int_equal(index, -1);
  hark_table_close(f->context, &table);
}

static void bad_files_are_refused(void **state) {
  const task_place *const f = *state;
  static const struct {
    const char *text, *message;
  } cases[] = {
      {"", "a.csv: is empty, expected a line with the names"},
      {"\n\r\n", "a.csv: is empty"},
      {"a,b\n", "a.csv:2: no rows after the header"},
      {"a,b\n\n", "a.csv:3: no rows after the header"},
      {"a,b", "a.csv:1: no rows after the header"},
      {"a,b\n1,2\n3\n", "a.csv:3: 1 of 2 fields, expected a value of column \"b\" next"},
      {"a,b,c\n\"1\n\",2\n", "a.csv:2: 2 of 3 fields, expected a value of column \"c\" next"},
      {"a,b\n1,2\n3,4,five\n",
       "a.csv:3: more than 2 fields: \"five\" follows the value of the last column, \"b\"; a value with \",\" belongs"},
      {"a;b\n1;2;\n", "a.csv:2: more than 2 fields: \"\" follows the value of the last column, \"b\"; a value with \";\" belongs"},
      {"a,b,\"a\"\n1,2,3\n", "a.csv:1: columns 1 and 3 are both \"a\", expected different names"},
      {"\n a , a\n1,2\n", "a.csv:2: columns 1 and 2 are both \"a\""},
      {"a,,b\n1,2,3\n", "a.csv:1: column 2 has no name"},
      {"a,\"\"\n1,2\n", "a.csv:1: column 2 has no name"},
      {"a,b,\n1,2,3\n", "a.csv:1: column 3 has no name"},
      {"a,b;c\n1,2\n", "a.csv:1: the header has \",\" and \";\" outside of quotes, expected one delimiter"},
      {"\"a\n\"\tb,c\n1,2\n", "a.csv:2: the header has tab and \",\" outside of quotes"},
      {"a,b\n1,\"open\n2,3\n", "a.csv:2: column \"b\": the quote of a field is not closed, expected a closing quote before the end"},
      {"a,b\n1,\"", "a.csv:2: column \"b\": the quote of a field is not closed"},
      {"a,\"b\n1,2\n", "a.csv:1: the name of column 2: the quote of a field is not closed"},
      {"a,b\n1,\"x\ny\"z,\n", "a.csv:3: column \"b\": \"z\" follows the closing quote of a field, expected a delimiter"},
      {"a,b\n1,\"x\" \"y\"\n", "a.csv:2: column \"b\": \"\"y\"\" follows the closing quote"},
      {"\"a\"b,c\n1,2\n", "a.csv:1: the name of column 1: \"b\" follows the closing quote"},
      {"a,b\r1,2\r", "a.csv:1: the name of column 2: a carriage return without a line feed"},
      {"a,b\n1,2\r3,4\n", "a.csv:2: column \"b\": a carriage return without a line feed"},
      {"a,b\n1,\"2\"\r3,4\n", "a.csv:2: column \"b\": a carriage return without a line feed"},
      {"a,b\n1,2\nx,caf\xe9\n", "a.csv:3:6: invalid UTF-8: "},
      {"\xff\xfe\x61", "a.csv:1:1: invalid UTF-8: "},
      {"a,b\n1,2\n3,1e999\n", "a.csv:3: column \"b\": \"1e999\" is out of range, expected a number of less than 1.8e308"},
      {"a,b\n1,2\n-1e400,x\n2,1e999\n", "a.csv:3: column \"a\": \"-1e400\" is out of range"},
      {"PK\x03\x04........................", "a.csv: is "},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    hark_table *table = (hark_table *)1;
    const hark_status status = open_text(f, cases[i].text, &table);
    assert_failure(f->context, status, HARK_BAD_FILE, cases[i].message);
    assert_null(table);
  }
  hark_table *table = NULL;
  assert_failure(f->context, open_bytes(f, "a,b\n1,\0002\n", 9, &table), HARK_BAD_FILE,
                 "a.csv:2:3: a zero byte, expected a table in UTF-8");
  assert_failure(f->context, hark_table_open(f->context, test_path(f->folder, "none.csv"), &table), HARK_NOT_FOUND, "none.csv");
}

/* In a column of texts every number is a text, also one that is out of range. */
static void texts_have_no_range(void **state) {
  const task_place *const f = *state;
  hark_table *table = read_table(f, "a\n1e999\nx\n");
  expect_texts(table, "a", (const char *const[]){"1e999", "x"});
  assert_int_equal(column(table, "a")->first_text, 1);
  hark_table_close(f->context, &table);
}

static void the_number_of_cells_is_limited(void **state) {
  const task_place *const f = *state;
  const char *const path = test_file_write_text(f->folder, "a.csv", "a,b,c\n1,2,3\n4,5,6\n");
  hark_table *table = NULL;
  assert_fine(f->context, hark_table_open_limited(f->context, path, 6, &table));
  hark_table_close(f->context, &table);
  assert_failure(f->context, hark_table_open_limited(f->context, path, 5, &table), HARK_BAD_FILE,
                 "a.csv:3: more than 1 rows of 3 columns, expected at most 5 values");
}

static void files_may_be_compressed(void **state) {
  const task_place *const f = *state;
  static const char *const formats[] = {"gzip", "xz", "zstd", "bzip2"};
  static const char text[] = "a,b\n1,x\n";
  for (int i = 0; i < 4; i++) {
    hark_table *table = NULL;
    size_t bytes;
    unsigned char *const packed = test_pack(formats[i], text, sizeof text - 1, &bytes);
    if (packed == NULL) continue; /* built without the library */
    assert_fine(f->context, open_bytes(f, packed, bytes, &table));
    expect_numbers(table, "a", (const double[]){1});
    hark_table_close(f->context, &table);
    free(packed);
  }
}

/* ---- a generated table ---- */

enum { ROWS = 3000, WORDS = 97 };

/* The text of a row in the generated column of texts, which has commas, quotes and line ends. */
static const char *word(int row, char text[32]) {
  const int number = (row * 7919) % WORDS;
  (void)snprintf(text, 32, number % 5 == 0 ? "w\"%d" : number % 5 == 1 ? "w,%d" : number % 5 == 2 ? "w\n%d" : "w%d", number);
  return text;
}

static double number(int row) { return row % 11 == 3 ? NAN : (row - 1500) / 7.0 * (row % 2 == 0 ? 1e-200 : 1e200); }

static void append_quoted(hark_text *out, const char *text) {
  hark_text_append(out, "\"");
  for (; *text != '\0'; text++) hark_text_append(out, *text == '"' ? "\"\"" : "%c", *text);
  hark_text_append(out, "\"");
}

static void write_generated(hark_text *out) {
  char text[32];
  hark_text_append(out, "word;number\r\n");
  for (int row = 0; row < ROWS; row++) {
    append_quoted(out, word(row, text));
    if (isnan(number(row)))
      hark_text_append(out, ";\r\n");
    else
      hark_text_append(out, ";%.17g\r\n", number(row));
  }
}

static void generated_tables_are_read_back(void **state) {
  const task_place *const f = *state;
  hark_text text = hark_text_empty(f->context);
  char expected[32];
  write_generated(&text);
  hark_table *table = read_table(f, hark_text_get(&text));
  hark_text_free(&text);
  assert_int_equal(table->rows, ROWS);
  const hark_table_column *const words = column(table, "word"), *const numbers = column(table, "number");
  assert_int_equal(words->text_count, WORDS);
  for (int32_t i = 1; i < WORDS; i++) assert_true(strcmp(words->texts[i - 1], words->texts[i]) < 0);
  for (int row = 0; row < ROWS; row++) {
    assert_string_equal(words->texts[words->codes[row]], word(row, expected));
    if (isnan(number(row)))
      assert_true(isnan(numbers->numbers[row]));
    else
      assert_true(numbers->numbers[row] == number(row));
  }
  hark_table_close(f->context, &table);
}

/* Every allocation may fail; nothing leaks. */
static void out_of_memory_is_reported(void **state) {
  const task_place *const f = *state;
  const char *const path = test_file_write_text(f->folder, "a.csv", "a,b,c\n1,x,3\n4,y,\n7,,\"z\"\"\"\n");
  test_memory memory;
  for (long fail = 1;; fail++) {
    hark_context *const context = test_memory_context(&memory);
    hark_table *table = NULL;
    memory.fail_at = memory.allocations + fail;
    const hark_status status = hark_table_open(context, path, &table);
    const bool failed = memory.allocations >= memory.fail_at;
    assert_int_equal(status, failed ? HARK_OUT_OF_MEMORY : HARK_OK);
    assert_int_equal(table == NULL, failed);
    memory.fail_at = 0;
    hark_table_close(context, &table);
    test_memory_context_end(context, &memory);
    if (!failed) break;
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TASK_TEST(columns_have_numbers_or_texts),
      TASK_TEST(classes_are_different_values),
      TASK_TEST(quoted_fields_contain_anything),
      TASK_TEST(delimiters_are_found_in_the_header),
      TASK_TEST(other_forms_of_numbers_are_texts),
      TASK_TEST(complaints_about_cells_name_their_place),
      TASK_TEST(bad_files_are_refused),
      TASK_TEST(texts_have_no_range),
      TASK_TEST(the_number_of_cells_is_limited),
      TASK_TEST(files_may_be_compressed),
      TASK_TEST(generated_tables_are_read_back),
      TASK_TEST(out_of_memory_is_reported),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
