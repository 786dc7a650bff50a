/* classes.c - see classes.h. */
#include "data/tables/classes.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/print_number.h"

static int compare(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static hark_status check_values(hark_context *context, const hark_table *table, int32_t column) {
  const hark_table_column *const c = &table->columns[column];
  for (int64_t row = 0; row < table->rows; row++) {
    if (c->kind == HARK_TABLE_TEXTS ? c->codes[row] < 0 : isnan(c->numbers[row]))
      return hark_table_fail(context, table, row, column, "the class is missing, expected one in every row");
    if (c->kind == HARK_TABLE_NUMBERS && isinf(c->numbers[row]))
      return hark_table_fail(context, table, row, column, "the class is an infinite number");
  }
  return HARK_OK;
}

/* Different numbers of the column, ascending. */
static void find_numbers(const hark_table_column *column, hark_table_classes *out) {
  int64_t kept = 0;
  for (int64_t row = 0; row < out->rows; row++) out->numbers[row] = column->numbers[row];
  qsort(out->numbers, (size_t)out->rows, sizeof *out->numbers, compare);
  for (int64_t i = 0; i < out->rows; i++)
    if (i == 0 || out->numbers[i] != out->numbers[kept - 1]) out->numbers[kept++] = out->numbers[i];
  out->count = kept;
  for (int64_t row = 0; row < out->rows; row++) {
    const double *const place = bsearch(&column->numbers[row], out->numbers, (size_t)kept, sizeof *out->numbers, compare); /* it is there */
    out->of_row[row] = (int32_t)(place - out->numbers);
  }
}

/* All texts occur: columns have no others. */
static void find_texts(const hark_table_column *column, hark_table_classes *out) {
  out->numbers = NULL;
  out->texts = column->texts;
  out->count = column->text_count;
  for (int64_t row = 0; row < out->rows; row++) out->of_row[row] = column->codes[row];
}

hark_status hark_table_classes_open(hark_context *context, const hark_table *table, int32_t column, int64_t most, hark_table_classes *out) {
  const hark_table_column *const c = &table->columns[column];
  void *memory = NULL;
  *out = (hark_table_classes){.rows = table->rows};
  HARK_TRY(check_values(context, table, column));
  HARK_TRY(hark_size_multiply(context, (size_t)table->rows, sizeof(double) + sizeof(int32_t), &out->bytes));
  HARK_TRY(hark_allocate(context, out->bytes, &memory));
  double *const numbers = out->numbers = memory;
  out->of_row = (int32_t *)(numbers + table->rows);
  (c->kind == HARK_TABLE_TEXTS ? find_texts : find_numbers)(c, out);
  if (out->count <= most) return HARK_OK;
  return hark_fail(context, HARK_BAD_FILE, "%s: column \"%s\" has %" PRId64 " different values, expected at most %" PRId64 " classes",
                   table->path, c->name, out->count, most);
}

void hark_table_classes_close(hark_context *context, hark_table_classes *classes) {
  if (classes->of_row != NULL) hark_release(context, (double *)(void *)classes->of_row - classes->rows, classes->bytes);
  *classes = (hark_table_classes){0};
}

const char *hark_table_class_name(const hark_table_classes *classes, int64_t index, char text[HARK_CLASS_NAME_ROOM]) {
  if (classes->numbers == NULL) return classes->texts[index];
  (void)snprintf(text, HARK_CLASS_NAME_ROOM, "%s", HARK_PRINTED(classes->numbers[index]));
  return text;
}
