/* jsonl_csv.c - see jsonl_csv.h. The file is read twice: for the names of the columns, and for the rows. */
#include "json/jsonl_csv.h"

#include <inttypes.h>
#include <string.h>

#include "io/files.h"
#include "io/number.h"

typedef struct table {
  hark_context *context;
  json_t *columns; /* name: number of the column */
  hark_writer writer;
  hark_text row;
  const json_t **cells; /* [columns] */
} table;

static hark_status fail_memory(const table *t) { return hark_fail(t->context, HARK_OUT_OF_MEMORY, "out of memory for a table of metrics"); }

static hark_status find_columns(void *user, const json_t *object, int64_t line) {
  table *const t = user;
  const char *name;
  json_t *value;
  (void)line;
  json_object_foreach((json_t *)object, name, value) {
    if (json_object_get(t->columns, name) != NULL) continue;
    if (json_object_set_new(t->columns, name, json_integer((json_int_t)json_object_size(t->columns))) != 0) return fail_memory(t);
  }
  return HARK_OK;
}

static void append_cell(hark_text *row, const json_t *value) {
  char number[HARK_NUMBER_BYTES];
  if (json_is_integer(value))
    hark_text_append(row, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
  else if (json_is_real(value))
    hark_text_append(row, "%s", hark_number_print(json_real_value(value), number));
  else if (json_is_boolean(value))
    hark_text_append(row, json_is_true(value) ? "true" : "false");
  else if (json_is_string(value))
    hark_text_append_csv(row, json_string_value(value));
}

static hark_status write_row(table *t) {
  hark_text_append_bytes(&t->row, "\r\n", 2);
  HARK_TRY(t->row.status);
  const hark_status status = hark_writer_append(t->context, &t->writer, t->row.data, t->row.length);
  hark_text_resize(&t->row, 0);
  return status;
}

static hark_status write_names(table *t) {
  const char *name;
  json_t *number;
  json_object_foreach(t->columns, name, number) { /* in the order of insertion */
    if (json_integer_value(number) > 0) hark_text_append_bytes(&t->row, ",", 1);
    hark_text_append_csv(&t->row, name);
  }
  return write_row(t);
}

static hark_status write_line(void *user, const json_t *object, int64_t line) {
  table *const t = user;
  const size_t columns = json_object_size(t->columns);
  const char *name;
  json_t *value;
  (void)line;
  memset(t->cells, 0, columns * sizeof(const json_t *));
  json_object_foreach((json_t *)object, name, value) {
    const json_t *const column = json_object_get(t->columns, name);
    if (column != NULL) t->cells[json_integer_value(column)] = value; /* else the file has grown */
  }
  for (size_t i = 0; i < columns; i++) {
    if (i > 0) hark_text_append_bytes(&t->row, ",", 1);
    if (t->cells[i] != NULL) append_cell(&t->row, t->cells[i]);
  }
  return write_row(t);
}

static hark_status write_rows(table *t, const char *from, const char *to) {
  const size_t bytes = (json_object_size(t->columns) + 1) * sizeof(const json_t *);
  void *cells = NULL;
  HARK_TRY(hark_allocate(t->context, bytes, &cells));
  t->cells = cells;
  hark_status status = hark_writer_open(t->context, &t->writer, to);
  if (status == HARK_OK) status = write_names(t);
  if (status == HARK_OK) status = hark_jsonl_read(t->context, from, write_line, t);
  if (status == HARK_OK) status = hark_writer_commit(t->context, &t->writer, NULL);
  hark_writer_discard(&t->writer);
  hark_release(t->context, cells, bytes);
  return status;
}

hark_status hark_jsonl_write_csv(hark_context *context, const char *from, const char *to) {
  table t = {.context = context, .columns = json_object(), .row = hark_text_empty(context)};
  hark_status status = t.columns != NULL ? hark_jsonl_read(context, from, find_columns, &t) : fail_memory(&t);
  if (status == HARK_OK) status = write_rows(&t, from, to);
  hark_text_free(&t.row);
  json_decref(t.columns);
  return status;
}
