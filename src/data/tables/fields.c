/* fields.c - see fields.h. */
#include "data/tables/fields.h"

#include <string.h>

/* 1 or 2 bytes of the line end at `at`, 0: there is none. */
static size_t line_end(const hark_field_reader *r, size_t at) {
  if (at < r->length && r->text[at] == '\n') return 1;
  return at + 1 < r->length && r->text[at] == '\r' && r->text[at + 1] == '\n' ? 2 : 0;
}

bool hark_fields_have_row(hark_field_reader *reader) {
  for (size_t end; (end = line_end(reader, reader->at)) > 0; reader->at += end) reader->line++;
  return reader->at < reader->length;
}

static bool is_delimiter(const hark_field_reader *r, char c) { return c != '\0' && strchr(r->delimiters, c) != NULL; }

static size_t skip_spaces(const hark_field_reader *r, size_t at) {
  while (at < r->length && r->text[at] == ' ') at++;
  return at;
}

/* The end of a field that has no quotes. */
static size_t plain_end(const hark_field_reader *r, size_t at) {
  while (at < r->length && r->text[at] != '\n' && r->text[at] != '\r' && !is_delimiter(r, r->text[at])) at++;
  return at;
}

/* Moves past the end of a field at `at`, a delimiter or the end of its row. False: it is neither. */
static bool pass_end(hark_field_reader *r, size_t at, hark_field *out) {
  const size_t end = line_end(r, at);
  if (at < r->length && end == 0 && !is_delimiter(r, r->text[at])) return false;
  out->end = at < r->length && end == 0 ? r->text[at] : '\n';
  r->at = at == r->length ? at : at + (end > 0 ? end : 1);
  r->line += end > 0;
  return true;
}

static hark_field_fault take_plain(hark_field_reader *r, size_t from, hark_field *out) {
  const size_t end = plain_end(r, from);
  out->text = r->text + from;
  out->length = end - from;
  while (out->length > 0 && out->text[out->length - 1] == ' ') out->length--;
  return pass_end(r, end, out) ? HARK_FIELD_FINE : HARK_FIELD_LONE_RETURN;
}

/* The place of the quote that closes a field whose text begins at `at`; the length of the file: none. */
static size_t find_close(hark_field_reader *r, size_t at, hark_field *out) {
  for (; at < r->length; at++) {
    r->line += r->text[at] == '\n';
    if (r->text[at] != '"') continue;
    if (at + 1 == r->length || r->text[at + 1] != '"') return at;
    out->doubled = true;
    at++;
  }
  return r->length;
}

static hark_field_fault take_quoted(hark_field_reader *r, size_t from, hark_field *out) {
  const size_t close = find_close(r, from, out);
  if (close == r->length) return HARK_FIELD_OPEN;
  out->text = r->text + from;
  out->length = close - from;
  const size_t after = skip_spaces(r, close + 1);
  if (pass_end(r, after, out)) return HARK_FIELD_FINE;
  if (r->text[after] == '\r') return HARK_FIELD_LONE_RETURN;
  out->text = r->text + after;
  out->length = plain_end(r, after) - after;
  out->line = r->line;
  return HARK_FIELD_AFTER;
}

hark_field_fault hark_fields_next(hark_field_reader *reader, hark_field *out) {
  const size_t from = skip_spaces(reader, reader->at);
  *out = (hark_field){.line = reader->line};
  if (from < reader->length && reader->text[from] == '"') return take_quoted(reader, from + 1, out);
  return take_plain(reader, from, out);
}

void hark_field_join_quotes(hark_field *field) {
  size_t length = 0;
  for (size_t i = 0; field->doubled && i < field->length; i++) {
    field->text[length++] = field->text[i];
    if (field->text[i] == '"') i++;
  }
  if (field->doubled) field->length = length;
  field->doubled = false;
}
