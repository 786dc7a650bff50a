/* table.c - see table.h. The file is in memory, and its rows are read twice: to count them and to find which columns have texts, and to
 * store the values. Texts stay where they are until their column is sorted.
 *
 *   open_text        the bytes, which must be UTF-8
 *   read_header      delimiter, names
 *   walk(measure)    rows, kinds of columns
 *   walk(store)      numbers, places of texts
 *   sort_texts       different texts, codes
 */
#include "data/tables/table.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/inputs.h"
#include "data/tables/fields.h"
#include "io/foreign.h"
#include "io/number.h"
#include "io/words.h"
#include "tokenizers/tokenizer.h"
#include "tokenizers/utf8.h"

#define WHAT_BYTES 384

/* A text of a column before it has a code. */
typedef struct cell {
  const char *text; /* NULL: missing */
  size_t length;
  int64_t row;
} cell;

/* What is found in a column while the rows are read. */
typedef struct column_state {
  bool has_texts;
  hark_field beyond; /* the first number out of range; without text: none */
  cell *cells;       /* [rows] of a column of texts */
} column_state;

typedef struct reading {
  hark_context *context;
  hark_table *table;
  hark_text text;
  hark_field_reader fields;
  int64_t rows, most_cells;
  column_state *states; /* [column_count] */
} reading;

/* ---- messages ---- */

/* A text that may be long and does not end with a zero byte. */
static const char *show(const char *text, size_t length, char out[HARK_SHOWN_BYTES]) {
  char part[HARK_SHOWN_BYTES + 1];
  const size_t bytes = length < sizeof part - 1 ? length : sizeof part - 1;
  if (bytes > 0) memcpy(part, text, bytes);
  part[bytes] = '\0';
  return hark_text_shown(part, out);
}

static hark_status fail_at(hark_context *context, const hark_table *table, int64_t line, int32_t column, const char *what) {
  char name[HARK_SHOWN_BYTES];
  return hark_fail(context, HARK_BAD_FILE, "%s:%" PRId64 ": column \"%s\": %s", table->path, line,
                   hark_text_shown(table->columns[column].name, name), what);
}

hark_status hark_table_fail(hark_context *context, const hark_table *table, int64_t row, int32_t column, const char *format, ...) {
  char what[WHAT_BYTES];
  va_list arguments;
  va_start(arguments, format);
  (void)vsnprintf(what, sizeof what, format, arguments);
  va_end(arguments);
  return fail_at(context, table, table->lines[row], column, what);
}

/* What is wrong with a field that cannot be read. */
static void describe_fault(hark_field_fault fault, const hark_field *field, char what[WHAT_BYTES]) {
  char shown[HARK_SHOWN_BYTES];
  if (fault == HARK_FIELD_OPEN)
    (void)snprintf(what, WHAT_BYTES, "the quote of a field is not closed, expected a closing quote before the end of the file");
  else if (fault == HARK_FIELD_AFTER)
    (void)snprintf(what, WHAT_BYTES, "\"%s\" follows the closing quote of a field, expected a delimiter or the end of the line",
                   show(field->text, field->length, shown));
  else
    (void)snprintf(what, WHAT_BYTES, "a carriage return without a line feed, expected lines that end with \\n or \\r\\n");
}

/* ---- the bytes ---- */

static hark_status check_bytes(hark_context *context, const char *path, const hark_text *text) {
  const unsigned char *const bytes = (const unsigned char *)text->data;
  char what[WHAT_BYTES];
  for (size_t at = 0, step = 1; at < text->length; at += step, step = 1) {
    uint32_t code_point;
    if (bytes[at] != 0 && bytes[at] < 0x80) continue;
    const hark_utf8_result result = hark_utf8_decode(bytes + at, text->length - at, &code_point, &step);
    if (result == HARK_UTF8_OK && code_point != 0) continue;
    hark_text_place place = HARK_TEXT_BEGINNING;
    hark_text_place_advance(&place, text->data, at);
    if (result == HARK_UTF8_OK) return hark_text_fail(context, path, &place, "a zero byte, expected a table in UTF-8", "");
    (void)snprintf(what, sizeof what, "invalid UTF-8: %s, expected a table in UTF-8", hark_utf8_result_text(result));
    return hark_text_fail(context, path, &place, what, "");
  }
  return HARK_OK;
}

static hark_status open_text(reading *r) {
  static const char mark[] = "\xef\xbb\xbf"; /* byte order mark */
  const char *const name = r->table->path, *const path = strcmp(name, HARK_STANDARD_INPUT_NAME) == 0 ? HARK_STANDARD_INPUT : name;
  HARK_TRY(hark_input_read(r->context, path, HARK_TABLE_BYTES, &r->text));
  const char *const foreign = hark_foreign_file(hark_text_get(&r->text), r->text.length);
  if (foreign != NULL) return hark_fail(r->context, HARK_BAD_FILE, "%s: is %s, expected a table (CSV)", name, foreign);
  HARK_TRY(check_bytes(r->context, name, &r->text));
  r->fields = (hark_field_reader){.text = r->text.data, .length = r->text.length, .delimiters = HARK_DELIMITERS, .line = 1};
  if (r->text.length >= sizeof mark - 1 && memcmp(r->text.data, mark, sizeof mark - 1) == 0) r->fields.at = sizeof mark - 1;
  if (hark_fields_have_row(&r->fields)) return HARK_OK;
  return hark_fail(r->context, HARK_BAD_FILE, "%s: is empty, expected a line with the names of columns, and rows", name);
}

/* ---- the header ---- */

/* One name; `number` from 1. */
static hark_status read_name(reading *r, int64_t number, hark_field *out) {
  char what[WHAT_BYTES];
  const hark_field_fault fault = hark_fields_next(&r->fields, out);
  if (fault == HARK_FIELD_FINE) return HARK_OK;
  describe_fault(fault, out, what);
  return hark_fail(r->context, HARK_BAD_FILE, "%s:%" PRId64 ": the name of column %" PRId64 ": %s", r->table->path, out->line, number,
                   what);
}

static const char *delimiter_name(char delimiter) { return delimiter == '\t' ? "tab" : delimiter == ';' ? "\";\"" : "\",\""; }

/* Finds the delimiter and counts columns and bytes of names; the reader stays at the beginning of the header. */
static hark_status measure_header(reading *r, int64_t *columns, size_t *bytes) {
  static const char *const single[] = {",", ";", "\t"};
  const hark_field_reader begin = r->fields;
  hark_field field = {.end = '\0'};
  char delimiter = '\0';
  for (*columns = 0, *bytes = 0; field.end != '\n'; *bytes += field.length + 1) {
    HARK_TRY(read_name(r, ++*columns, &field));
    if (field.end == '\n' || field.end == delimiter) continue;
    if (delimiter != '\0')
      return hark_fail(r->context, HARK_BAD_FILE,
                       "%s:%" PRId64 ": the header has %s and %s outside of quotes, expected one delimiter: it may be \",\", \";\" or tab",
                       r->table->path, field.line, delimiter_name(delimiter), delimiter_name(field.end));
    delimiter = field.end;
  }
  r->fields = begin;
  r->fields.delimiters = single[delimiter == ';' ? 1 : delimiter == '\t' ? 2 : 0];
  if (*columns <= INT32_MAX) return HARK_OK;
  return hark_fail(r->context, HARK_BAD_FILE, "%s: %" PRId64 " columns, expected at most %" PRId32, r->table->path, *columns, INT32_MAX);
}

static hark_status allocate(hark_context *context, int64_t count, size_t size, void *out) {
  size_t bytes;
  void *memory;
  HARK_TRY(hark_size_multiply(context, (size_t)count, size, &bytes));
  HARK_TRY(hark_allocate_zero(context, bytes, &memory));
  memcpy(out, &memory, sizeof memory);
  return HARK_OK;
}

static hark_status copy_names(reading *r) {
  hark_table *const t = r->table;
  char *at = t->names;
  for (int32_t c = 0; c < t->column_count; c++) {
    hark_field field;
    HARK_TRY(read_name(r, (int64_t)c + 1, &field));
    hark_field_join_quotes(&field);
    if (field.length == 0)
      return hark_fail(r->context, HARK_BAD_FILE, "%s:%" PRId64 ": column %" PRId64 " has no name, expected one in the header", t->path,
                       field.line, (int64_t)c + 1);
    memcpy(at, field.text, field.length);
    t->columns[c] = (hark_table_column){.name = at, .first_text = -1};
    t->order[c] = &t->columns[c];
    at += field.length + 1;
  }
  return HARK_OK;
}

/* Equal names in the order of the file. */
static int compare_names(const void *a, const void *b) {
  const hark_table_column *const x = *(const hark_table_column *const *)a, *const y = *(const hark_table_column *const *)b;
  const int names = strcmp(x->name, y->name);
  return names != 0 ? names : (x > y) - (x < y);
}

static hark_status check_names(reading *r, int64_t line) {
  hark_table *const t = r->table;
  char name[HARK_SHOWN_BYTES];
  qsort((void *)t->order, (size_t)t->column_count, sizeof *t->order, compare_names);
  for (int32_t i = 1; i < t->column_count; i++) {
    const hark_table_column *const a = t->order[i - 1], *const b = t->order[i];
    if (strcmp(a->name, b->name) == 0)
      return hark_fail(r->context, HARK_BAD_FILE,
                       "%s:%" PRId64 ": columns %" PRId64 " and %" PRId64 " are both \"%s\", expected different names", t->path, line,
                       (int64_t)(a - t->columns) + 1, (int64_t)(b - t->columns) + 1, hark_text_shown(a->name, name));
  }
  return HARK_OK;
}

static hark_status read_header(reading *r) {
  hark_table *const t = r->table;
  const int64_t line = r->fields.line;
  int64_t columns;
  size_t bytes;
  HARK_TRY(measure_header(r, &columns, &bytes));
  HARK_TRY(allocate(r->context, columns, sizeof *t->columns, &t->columns));
  t->column_count = (int32_t)columns;
  HARK_TRY(allocate(r->context, columns, sizeof *t->order, &t->order));
  HARK_TRY(allocate(r->context, columns, sizeof *r->states, &r->states));
  HARK_TRY(allocate(r->context, (int64_t)bytes, 1, &t->names));
  t->name_bytes = bytes;
  HARK_TRY(copy_names(r));
  return check_names(r, line);
}

/* ---- rows ---- */

typedef hark_status field_visitor(reading *r, int64_t row, int32_t column, hark_field *field);

static hark_status read_field(reading *r, int32_t column, hark_field *out) {
  char what[WHAT_BYTES];
  const hark_field_fault fault = hark_fields_next(&r->fields, out);
  if (fault == HARK_FIELD_FINE) return HARK_OK;
  describe_fault(fault, out, what);
  return fail_at(r->context, r->table, out->line, column, what);
}

static hark_status fail_few(const reading *r, int64_t line, int32_t fields) {
  const hark_table *const t = r->table;
  char name[HARK_SHOWN_BYTES];
  return hark_fail(r->context, HARK_BAD_FILE, "%s:%" PRId64 ": %" PRId32 " of %" PRId32 " fields, expected a value of column \"%s\" next",
                   t->path, line, fields, t->column_count, hark_text_shown(t->columns[fields].name, name));
}

static hark_status fail_many(reading *r, int64_t line) {
  const hark_table *const t = r->table;
  char name[HARK_SHOWN_BYTES], value[HARK_SHOWN_BYTES];
  hark_field next;
  const bool fine = hark_fields_next(&r->fields, &next) == HARK_FIELD_FINE;
  return hark_fail(r->context, HARK_BAD_FILE,
                   "%s:%" PRId64 ": more than %" PRId32
                   " fields: \"%s\" follows the value of the last column, \"%s\"; a value with %s "
                   "belongs in quotes",
                   t->path, line, t->column_count, fine ? show(next.text, next.length, value) : "",
                   hark_text_shown(t->columns[t->column_count - 1].name, name), delimiter_name(r->fields.delimiters[0]));
}

static hark_status walk_row(reading *r, int64_t row, field_visitor *visit) {
  const int32_t columns = r->table->column_count;
  const int64_t line = r->fields.line;
  hark_field field;
  for (int32_t c = 0; c < columns; c++) {
    HARK_TRY(read_field(r, c, &field));
    if (c + 1 < columns && field.end == '\n') return fail_few(r, line, c + 1);
    if (c + 1 == columns && field.end != '\n') return fail_many(r, line);
    HARK_TRY(visit(r, row, c, &field));
  }
  if (r->table->lines != NULL) r->table->lines[row] = line;
  return HARK_OK;
}

/* All rows from the place of the reader on, which moves to the end. */
static hark_status walk(reading *r, field_visitor *visit) {
  const int64_t most = r->most_cells / r->table->column_count;
  for (r->rows = 0; hark_fields_have_row(&r->fields); r->rows++) {
    if (r->rows == most)
      return hark_fail(r->context, HARK_BAD_FILE,
                       "%s:%" PRId64 ": more than %" PRId64 " rows of %" PRId32 " columns, expected at most %" PRId64 " values",
                       r->table->path, r->fields.line, most, r->table->column_count, r->most_cells);
    HARK_TRY(walk_row(r, r->rows, visit));
  }
  return HARK_OK;
}

static bool is_missing(const hark_field *field) {
  static const char *const words[] = {"", "NA", "NaN", "nan", "?", "null"};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (field->length == strlen(words[i]) && memcmp(field->text, words[i], field->length) == 0) return true;
  return false;
}

/* The kind of a value. Whether a column has texts is known after all rows, and until then a number out of range is only noted. */
static hark_status measure(reading *r, int64_t row, int32_t column, hark_field *field) {
  column_state *const state = &r->states[column];
  double value;
  if (is_missing(field) || hark_number_read(field->text, field->length, &value)) return HARK_OK;
  const bool beyond = hark_number_is(field->text, field->length);
  if (beyond && state->beyond.text == NULL) state->beyond = *field;
  hark_table_column *const c = &r->table->columns[column];
  if (!beyond && c->first_text < 0) c->first_text = row;
  state->has_texts = state->has_texts || !beyond;
  return HARK_OK;
}

static hark_status store(reading *r, int64_t row, int32_t column, hark_field *field) {
  hark_table_column *const c = &r->table->columns[column];
  const bool missing = is_missing(field);
  if (c->kind == HARK_TABLE_NUMBERS) {
    if (missing || !hark_number_read(field->text, field->length, &c->numbers[row])) c->numbers[row] = NAN;
    return HARK_OK;
  }
  hark_field_join_quotes(field);
  r->states[column].cells[row] = (cell){missing ? NULL : field->text, missing ? 0 : field->length, row};
  return HARK_OK;
}

/* Room for the values of a column. */
static hark_status make_column(reading *r, int32_t column) {
  hark_table_column *const c = &r->table->columns[column];
  column_state *const state = &r->states[column];
  char shown[HARK_SHOWN_BYTES], what[WHAT_BYTES];
  c->kind = state->has_texts ? HARK_TABLE_TEXTS : HARK_TABLE_NUMBERS;
  if (state->has_texts) {
    HARK_TRY(allocate(r->context, r->rows, sizeof *c->codes, &c->codes));
    return allocate(r->context, r->rows, sizeof *state->cells, &state->cells);
  }
  if (state->beyond.text == NULL) return allocate(r->context, r->rows, sizeof *c->numbers, &c->numbers);
  (void)snprintf(what, sizeof what, "\"%s\" is out of range, expected a number of less than 1.8e308 in at most 512 characters",
                 show(state->beyond.text, state->beyond.length, shown));
  return fail_at(r->context, r->table, state->beyond.line, column, what);
}

/* ---- texts ---- */

/* By bytes, missing ones first. */
static int compare_cells(const void *a, const void *b) {
  const cell *const x = a, *const y = b;
  const size_t shorter = x->length < y->length ? x->length : y->length;
  if (x->text == NULL || y->text == NULL) return (x->text != NULL) - (y->text != NULL);
  const int bytes = memcmp(x->text, y->text, shorter);
  return bytes != 0 ? bytes : (x->length > y->length) - (x->length < y->length);
}

/* Gives each cell its code; returns the number of different texts, and the bytes that they need with a zero byte each. */
static int32_t number_texts(const cell *cells, int64_t rows, int32_t *codes, size_t *bytes) {
  int32_t code = -1;
  *bytes = 0;
  for (int64_t i = 0; i < rows; i++) {
    const bool is_new = cells[i].text != NULL && (i == 0 || compare_cells(&cells[i - 1], &cells[i]) != 0);
    code += is_new;
    *bytes += is_new ? cells[i].length + 1 : 0;
    codes[cells[i].row] = code;
  }
  return code + 1;
}

/* Makes texts and codes of a column; the pointers and the bytes of the texts are one piece of memory. */
static hark_status sort_texts(reading *r, int32_t column) {
  hark_table_column *const c = &r->table->columns[column];
  cell *const cells = r->states[column].cells;
  size_t bytes;
  void *memory;
  qsort(cells, (size_t)r->rows, sizeof *cells, compare_cells);
  const int32_t count = number_texts(cells, r->rows, c->codes, &bytes);
  HARK_TRY(hark_size_add(r->context, bytes, (size_t)count * sizeof *c->texts, &bytes));
  HARK_TRY(hark_allocate_zero(r->context, bytes, &memory));
  c->texts = memory;
  c->text_bytes = bytes;
  char *at = (char *)memory + (size_t)count * sizeof *c->texts;
  for (int64_t i = 0; i < r->rows; i++) {
    if (c->codes[cells[i].row] < c->text_count) continue; /* missing, or one that is stored */
    memcpy(at, cells[i].text, cells[i].length);
    c->texts[c->text_count++] = at;
    at += cells[i].length + 1;
  }
  hark_release(r->context, cells, (size_t)r->rows * sizeof *cells);
  r->states[column].cells = NULL;
  return HARK_OK;
}

static hark_status read_rows(reading *r) {
  hark_table *const t = r->table;
  const hark_field_reader begin = r->fields;
  HARK_TRY(walk(r, measure));
  if (r->rows == 0)
    return hark_fail(r->context, HARK_BAD_FILE, "%s:%" PRId64 ": no rows after the header, expected at least one", t->path, r->fields.line);
  HARK_TRY(allocate(r->context, r->rows, sizeof *t->lines, &t->lines));
  t->rows = r->rows;
  for (int32_t c = 0; c < t->column_count; c++) HARK_TRY(make_column(r, c));
  r->fields = begin;
  HARK_TRY(walk(r, store));
  for (int32_t c = 0; c < t->column_count; c++)
    if (t->columns[c].kind == HARK_TABLE_TEXTS) HARK_TRY(sort_texts(r, c));
  return HARK_OK;
}

/* ---- tables ---- */

static hark_status copy_path(hark_context *context, hark_table *table, const char *path) {
  const char *const name = hark_input_is_standard(path) ? HARK_STANDARD_INPUT_NAME : path;
  table->path_bytes = strlen(name) + 1;
  HARK_TRY(allocate(context, (int64_t)table->path_bytes, 1, &table->path));
  memcpy(table->path, name, table->path_bytes);
  return HARK_OK;
}

static void end_reading(reading *r) {
  for (int32_t c = 0; r->states != NULL && c < r->table->column_count; c++)
    hark_release(r->context, r->states[c].cells, (size_t)r->rows * sizeof(cell));
  hark_release(r->context, r->states, (size_t)r->table->column_count * sizeof *r->states);
  hark_text_free(&r->text);
}

hark_status hark_table_open_limited(hark_context *context, const char *path, int64_t most_cells, hark_table **out) {
  reading r = {.context = context, .text = hark_text_empty(context), .most_cells = most_cells};
  *out = NULL;
  HARK_TRY(allocate(context, 1, sizeof *r.table, &r.table));
  hark_status status = copy_path(context, r.table, path);
  if (status == HARK_OK) status = open_text(&r);
  if (status == HARK_OK) status = read_header(&r);
  if (status == HARK_OK) status = read_rows(&r);
  end_reading(&r);
  *out = r.table;
  if (status != HARK_OK) hark_table_close(context, out);
  return status;
}

hark_status hark_table_open(hark_context *context, const char *path, hark_table **out) {
  return hark_table_open_limited(context, path, HARK_TABLE_CELLS, out);
}

void hark_table_close(hark_context *context, hark_table **table) {
  hark_table *const t = *table;
  if (t == NULL) return;
  for (int32_t c = 0; t->columns != NULL && c < t->column_count; c++) {
    hark_release(context, t->columns[c].numbers, (size_t)t->rows * sizeof(double));
    hark_release(context, t->columns[c].codes, (size_t)t->rows * sizeof(int32_t));
    hark_release(context, (void *)t->columns[c].texts, t->columns[c].text_bytes);
  }
  hark_release(context, t->columns, (size_t)t->column_count * sizeof *t->columns);
  hark_release(context, (void *)t->order, (size_t)t->column_count * sizeof *t->order);
  hark_release(context, t->lines, (size_t)t->rows * sizeof *t->lines);
  hark_release(context, t->names, t->name_bytes);
  hark_release(context, t->path, t->path_bytes);
  hark_release(context, t, sizeof *t);
  *table = NULL;
}

int32_t hark_table_find(const hark_table *table, const char *name) {
  int32_t from = 0, to = table->column_count;
  while (from < to) {
    const int32_t middle = from + (to - from) / 2;
    const int order = strcmp(name, table->order[middle]->name);
    if (order == 0) return (int32_t)(table->order[middle] - table->columns);
    if (order < 0)
      to = middle;
    else
      from = middle + 1;
  }
  return -1;
}

static const char *column_name(const void *user, int index) { return ((const hark_table *)user)->columns[index].name; }

hark_status hark_table_need(hark_context *context, const hark_table *table, const char *name, int32_t *out) {
  char given[HARK_SHOWN_BYTES], shown[HARK_SHOWN_BYTES];
  *out = hark_table_find(table, name);
  if (*out >= 0) return HARK_OK;
  const char *const near = hark_nearest_word(name, table->column_count, column_name, table);
  return hark_fail(context, HARK_BAD_CONFIGURATION, "%s: has no column \"%s\", %s \"%s\"", table->path, hark_text_shown(name, given),
                   near != NULL ? "did you mean" : "its first column is",
                   hark_text_shown(near != NULL ? near : table->columns[0].name, shown));
}

hark_status hark_table_numbers(hark_context *context, const hark_table *table, int32_t column, const double **out) {
  const hark_table_column *const c = &table->columns[column];
  char shown[HARK_SHOWN_BYTES];
  *out = c->numbers;
  if (c->kind == HARK_TABLE_NUMBERS) return HARK_OK;
  return hark_table_fail(context, table, c->first_text, column,
                         "\"%s\" is not a number, expected numbers such as -1.5 or 2e-3, or nothing where one is missing",
                         hark_text_shown(c->texts[c->codes[c->first_text]], shown));
}
