/* fuzz_table.c - any bytes as a table in a CSV file. What is accepted is written with every field in quotes and read back as the same. */
#include <math.h>
#include <string.h>

#include "data/tables/table.h"
#include "data/unpack/unpack.h"
#include "fuzz/fuzz.h"
#include "io/number.h"
#include "io/text.h"

#define BYTES_A_BYTE 200 /* most are for the structs of columns without names of any length */
#define BASE_BYTES ((size_t)1 << 16)

static void check_column(const hark_table *table, int32_t index) {
  const hark_table_column *const c = &table->columns[index];
  FUZZ_CHECK(c->name[0] != '\0' && hark_table_find(table, c->name) == index, "column %d is not found", index);
  FUZZ_CHECK((c->kind == HARK_TABLE_TEXTS) == (c->text_count > 0 && c->first_text >= 0), "the kind of column %d", index);
  for (int32_t i = 1; i < c->text_count; i++) FUZZ_CHECK(strcmp(c->texts[i - 1], c->texts[i]) < 0, "texts in another order");
  for (int64_t row = 0; row < table->rows; row++) {
    if (c->kind == HARK_TABLE_NUMBERS)
      FUZZ_CHECK(!isinf(c->numbers[row]), "an infinite number");
    else
      FUZZ_CHECK(c->codes[row] >= -1 && c->codes[row] < c->text_count, "code %d", c->codes[row]);
  }
}

static void append_quoted(hark_text *out, const char *text, char end) {
  hark_text_append_bytes(out, "\"", 1);
  for (; *text != '\0'; text++) hark_text_append_bytes(out, *text == '"' ? "\"\"" : text, *text == '"' ? 2 : 1);
  hark_text_append(out, "\"%c", end);
}

static void write_table(const hark_table *table, hark_text *out) {
  char number[HARK_NUMBER_BYTES];
  for (int64_t row = -1; row < table->rows; row++)
    for (int32_t i = 0; i < table->column_count; i++) {
      const hark_table_column *const c = &table->columns[i];
      const char *value = "";
      if (row < 0)
        value = c->name;
      else if (c->kind == HARK_TABLE_TEXTS)
        value = c->codes[row] < 0 ? "" : c->texts[c->codes[row]];
      else if (!isnan(c->numbers[row]))
        value = hark_number_print(c->numbers[row], number);
      append_quoted(out, value, i + 1 < table->column_count ? ',' : '\n');
    }
}

static void expect_same(const hark_table *a, const hark_table *b) {
  FUZZ_CHECK(a->rows == b->rows && a->column_count == b->column_count, "another shape");
  for (int32_t i = 0; i < a->column_count; i++) {
    const hark_table_column *const x = &a->columns[i], *const y = &b->columns[i];
    FUZZ_CHECK(strcmp(x->name, y->name) == 0 && x->kind == y->kind && x->text_count == y->text_count, "another column %d", i);
    for (int32_t t = 0; t < x->text_count; t++) FUZZ_CHECK(strcmp(x->texts[t], y->texts[t]) == 0, "another text");
    for (int64_t row = 0; row < a->rows; row++)
      FUZZ_CHECK(x->kind == HARK_TABLE_TEXTS ? x->codes[row] == y->codes[row]
                                             : x->numbers[row] == y->numbers[row] || (isnan(x->numbers[row]) && isnan(y->numbers[row])),
                 "another value in row %lld of column %d", (long long)row, i);
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (hark_packing_of(data, size) != NULL) return 0; /* fuzz_unpack.c */
  hark_context *const context = fuzz_begin();
  hark_text written = hark_text_empty(context);
  hark_table *table = NULL, *again = NULL;
  const char *path = fuzz_file(data, size);
  const hark_status status = hark_table_open(context, path, &table);
  fuzz_check_refusal(context, status, HARK_BAD_FILE, path);
  fuzz_limit(BYTES_A_BYTE * size + BASE_BYTES);
  if (status == HARK_OK) {
    for (int32_t i = 0; i < table->column_count; i++) check_column(table, i);
    write_table(table, &written);
    path = fuzz_file(hark_text_get(&written), written.length);
    FUZZ_CHECK(hark_table_open(context, path, &again) == HARK_OK, "%s", hark_context_message(context));
    expect_same(table, again);
  }
  hark_table_close(context, &again);
  hark_table_close(context, &table);
  hark_text_free(&written);
  fuzz_end();
  return 0;
}
