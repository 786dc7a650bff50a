/* format_tables.c - see table_file.h; or a file is one table in CSV (tables/table.h). Rows have no symbols: all are symbol 0, and their
 * numbers are stored separately. Tables of one file have one number of rows; it may differ between files.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/print_number.h"
#include "data/examples/example_store.h"
#include "data/formats/little_endian.h"
#include "data/formats/record_header.h"
#include "data/formats/table_file.h"
#include "data/sources.h"
#include "data/tables/classes.h"
#include "data/tables/columns.h"
#include "io/files.h"

/* The class of a row is a whole number from 0. */
static hark_status check_classes(const hark_example_reader *reader, const hark_vectors_sizes *sizes, const float *numbers, uint64_t at) {
  const int32_t classes = reader->examples->classes, columns = sizes->features + 1;
  for (int64_t row = 0; row < sizes->length; row++) {
    const float number = numbers[row * columns + columns - 1];
    if (number < 0 || number >= (float)classes || number != floorf(number))
      return hark_fail(reader->context, HARK_BAD_FILE,
                       "%s: a class is %s at byte offset %" PRIu64 ", expected a whole number from 0 to %" PRId32, reader->path,
                       HARK_PRINTED((double)number), at + (uint64_t)(row * columns + columns - 1) * sizeof *numbers, classes - 1);
  }
  return HARK_OK;
}

static hark_status check_target_count(const hark_example_reader *reader, int32_t targets) {
  if (reader->examples->classes == 0 || targets == 1) return HARK_OK;
  return hark_fail(reader->context, HARK_BAD_FILE, "%s: %" PRId32 " targets, expected one, the class", reader->path, targets);
}

/* An input may be missing; a target may not, and neither may be infinite. */
static hark_status check_numbers(const hark_example_reader *reader, const hark_vectors_sizes *sizes, const float *numbers, uint64_t at) {
  const size_t columns = (size_t)sizes->features + (size_t)sizes->responses, count = (size_t)sizes->length * columns;
  for (size_t i = 0; i < count; i++) {
    const bool missing = isnan(numbers[i]) && i % columns < (size_t)sizes->features;
    if (!isfinite(numbers[i]) && !missing)
      return hark_fail(reader->context, HARK_BAD_FILE, "%s: %s that is not finite at byte offset %" PRIu64, reader->path,
                       i % columns < (size_t)sizes->features ? "an input" : "a target", at + i * sizeof *numbers);
  }
  return reader->examples->classes > 0 ? check_classes(reader, sizes, numbers, at) : HARK_OK;
}

static hark_status read_records(hark_example_reader *reader, const hark_input *file, const hark_vectors_sizes *sizes) {
  const size_t bytes = hark_tables_record(sizes->length, sizes->features, sizes->responses) * sizeof(float);
  if (sizes->count == 0) return HARK_OK; /* otherwise a record is not larger than the file */
  hark_text_resize(&reader->scratch, bytes);
  HARK_TRY(reader->scratch.status);
  float *const record = (float *)(void *)reader->scratch.data;
  for (uint64_t i = 0; i < sizes->count; i++) {
    const uint64_t at = HARK_VECTORS_HEADER_BYTES + i * bytes;
    HARK_TRY(hark_input_read_at(reader->context, file, reader->scratch.data, bytes, at));
    HARK_TRY(check_numbers(reader, sizes, record, at));
    HARK_TRY(hark_example_vectors(reader, record, (size_t)sizes->length, NULL));
    HARK_TRY(hark_example_end(reader, HARK_TARGET_IGNORED));
  }
  return HARK_OK;
}

static hark_status read_open(hark_example_reader *reader, const hark_input *file) {
  static const hark_vectors_kind kind = {.magic = HARK_TABLES_MAGIC,
                                         .name = "tables",
                                         .length = "number of rows",
                                         .features = "number of inputs",
                                         .responses = "number of targets",
                                         .record = hark_tables_record};
  hark_vectors_sizes sizes;
  bool same;
  HARK_TRY(hark_vectors_read_header(reader, file, &kind, &sizes));
  HARK_TRY(check_target_count(reader, sizes.responses));
  const hark_example_shape shape = {
      .symbols = 1, .features = sizes.features + sizes.responses, .responses = sizes.responses, .classes = reader->examples->classes};
  HARK_TRY(hark_example_shape_set(reader, &shape, NULL, 0, &same));
  if (!same)
    return hark_fail(reader->context, HARK_BAD_FILE, "%s: %" PRId32 " inputs and %" PRId32 " targets, unlike the previous files",
                     reader->path, sizes.features, sizes.responses);
  return read_records(reader, file, &sizes);
}

/* ---- CSV: one table ---- */

/* Names of the columns, inputs first, each ended by a zero byte; all are columns of numbers. order [columns]. */
static hark_status order_columns(hark_example_reader *reader, const hark_table *table, int32_t *order, int32_t *targets, hark_text *names) {
  int32_t count, inputs = 0;
  const double *numbers;
  HARK_TRY(hark_table_columns(reader->context, table, "data.targets", reader->examples->targets, targets, &count));
  for (int32_t c = 0; c < table->column_count; c++) {
    bool target = false;
    for (int32_t t = 0; t < count; t++) target = target || targets[t] == c;
    if (!target) order[inputs++] = c;
  }
  for (int32_t t = 0; t < count; t++) order[inputs + t] = targets[t];
  HARK_TRY(check_target_count(reader, count));
  for (int32_t c = 0; c < table->column_count; c++) {
    const char *const name = table->columns[order[c]].name;
    if (reader->examples->classes == 0 || c < inputs) HARK_TRY(hark_table_numbers(reader->context, table, order[c], &numbers));
    hark_text_append_bytes(names, name, strlen(name) + 1);
  }
  HARK_TRY(names->status);
  const hark_example_shape shape = {
      .symbols = 1, .features = table->column_count, .responses = count, .classes = reader->examples->classes};
  bool same;
  HARK_TRY(hark_example_shape_set(reader, &shape, hark_text_get(names), names->length, &same));
  if (same) return HARK_OK;
  return hark_fail(reader->context, HARK_BAD_FILE, "%s: its columns are not those of the previous files", reader->path);
}

/* The rows as numbers of 32 bits, in the order of the columns. */
static hark_status add_rows(hark_example_reader *reader, const hark_table *table, const int32_t *order, const hark_table_classes *classes) {
  const int32_t columns = table->column_count, inputs = columns - hark_example_reader_shape(reader)->responses;
  size_t numbers = 0;
  HARK_TRY(hark_size_multiply(reader->context, (size_t)table->rows * sizeof(float), (size_t)columns, &numbers));
  hark_text_resize(&reader->scratch, numbers);
  HARK_TRY(reader->scratch.status);
  float *const rows = (float *)(void *)reader->scratch.data;
  for (int64_t row = 0; row < table->rows; row++)
    for (int32_t c = 0; c < columns; c++) {
      const bool class = classes->count > 0 && c == inputs;
      const float number = rows[row * columns + c] = class ? (float)classes->of_row[row] : (float)table->columns[order[c]].numbers[row];
      if (isinf(number)) return hark_table_fail(reader->context, table, row, order[c], "a number beyond the range of 32 bits");
      if (isnan(number) && c >= inputs)
        return hark_table_fail(reader->context, table, row, order[c], "the target is missing, expected a number in every row");
    }
  HARK_TRY(hark_example_vectors(reader, rows, (size_t)table->rows, NULL));
  return hark_example_end(reader, HARK_TARGET_IGNORED);
}

static hark_status read_csv(hark_example_reader *reader) {
  hark_table *table = NULL;
  hark_text names = hark_text_empty(reader->context);
  void *memory = NULL;
  size_t bytes = 0;
  if (reader->examples->targets[0] == '\0')
    return hark_fail(reader->context, HARK_BAD_FILE,
                     "%s: is no file of tables, which begin with \"%s\"; a table in CSV needs the names of its targets, data.targets "
                     "(--target-columns)",
                     reader->path, HARK_TABLES_MAGIC);
  HARK_TRY(hark_table_open(reader->context, reader->path, &table));
  bytes = 2 * (size_t)table->column_count * sizeof(int32_t);
  hark_table_classes classes = {0};
  hark_status status = hark_allocate(reader->context, bytes, &memory);
  int32_t *const order = memory;
  if (status == HARK_OK) status = order_columns(reader, table, order, order + table->column_count, &names);
  if (status == HARK_OK && reader->examples->classes > 0)
    status = hark_table_classes_open(reader->context, table, order[table->column_count - 1], reader->examples->classes, &classes);
  if (status == HARK_OK) status = add_rows(reader, table, order, &classes);
  hark_table_classes_close(reader->context, &classes);
  hark_release(reader->context, memory, memory != NULL ? bytes : 0);
  hark_text_free(&names);
  hark_table_close(reader->context, &table);
  return status;
}

static hark_status begins_with_magic(hark_example_reader *reader, bool *found) {
  char front[sizeof HARK_TABLES_MAGIC - 1];
  hark_input file;
  *found = false;
  HARK_TRY(hark_source_open(reader->context, reader->source, &file));
  const hark_status status = file.size >= sizeof front ? hark_input_read_at(reader->context, &file, front, sizeof front, 0) : HARK_OK;
  *found = status == HARK_OK && file.size >= sizeof front && memcmp(front, HARK_TABLES_MAGIC, sizeof front) == 0;
  hark_input_close(&file);
  return status;
}

static hark_status read_file(hark_example_reader *reader) {
  bool records;
  HARK_TRY(begins_with_magic(reader, &records));
  return records ? hark_read_binary(reader, read_open) : read_csv(reader);
}

/* A row has at least two numbers: eight bytes, or four in CSV. */
static int64_t symbols_at_most(uint64_t file_bytes) { return (int64_t)(file_bytes / 4) + 1; }

static const char *row_name(int32_t symbol, char *text, size_t size) {
  (void)symbol;
  (void)snprintf(text, size, "row");
  return text;
}

const hark_example_format hark_example_format_tables = {
    .name = "tables",
    .summary = "tables of numbers: targets of some rows are predicted from the other rows",
    .ending = "tables",
    .parts = 1,
    .target_kind = HARK_TARGET_ROWS,
    .symbols_at_most = symbols_at_most,
    .read = read_file,
    .symbol_name = row_name,
    .symbols_are = "rows",
};
