/* line_reader.c - see line_reader.h. The buffer contains a part of the file. A line that does not end in it is moved to its beginning and
 * the buffer grows, so memory is that of the longest line. */
#include "data/line_reader.h"

#include <stdio.h>
#include <string.h>

#include "data/sources.h"
#include "tokenizers/utf8.h"

#define PART_BYTES ((size_t)1 << 18)
#define WHAT_BYTES 256

hark_status hark_lines_open(hark_context *context, hark_line_reader *lines, const char *path) {
  *lines = (hark_line_reader){.path = path, .buffer = hark_text_empty(context)};
  HARK_TRY(hark_input_open(context, path, &lines->spool, &lines->input));
  lines->path = lines->input.path;
  return HARK_OK;
}

hark_status hark_lines_open_source(hark_context *context, hark_line_reader *lines, const hark_source *source) {
  *lines = (hark_line_reader){.path = source->path, .buffer = hark_text_empty(context)};
  return hark_source_open(context, source, &lines->input);
}

void hark_lines_close(hark_line_reader *lines) {
  if (lines->path == NULL) return; /* was never opened */
  hark_input_close(&lines->input);
  hark_spool_close(&lines->spool);
  hark_text_free(&lines->buffer);
}

/* Drops everything before the next line and appends a part of the file to the rest. */
static hark_status fill(hark_context *context, hark_line_reader *lines) {
  hark_text *const buffer = &lines->buffer;
  const size_t left = buffer->length - lines->used;
  const size_t part = (size_t)hark_min((int64_t)PART_BYTES, (int64_t)(lines->input.size - lines->offset));
  if (left > 0) memmove(buffer->data, buffer->data + lines->used, left);
  lines->used = 0;
  buffer->length = left;
  hark_text_resize(buffer, left + part);
  HARK_TRY(buffer->status);
  HARK_TRY(hark_input_read_at(context, &lines->input, buffer->data + left, part, lines->offset));
  lines->offset += part;
  return HARK_OK;
}

/* Makes the next `whole` bytes of the buffer the current line, whose text has `length` bytes. */
static void take(hark_line_reader *lines, size_t length, size_t whole) {
  lines->line = lines->buffer.data + lines->used;
  lines->length = length > 0 && lines->line[length - 1] == '\r' ? length - 1 : length;
  lines->used += whole;
}

hark_status hark_lines_next(hark_context *context, hark_line_reader *lines, bool *more) {
  size_t searched = 0;
  *more = true;
  lines->at = (int64_t)(lines->offset - (lines->buffer.length - lines->used));
  lines->number++;
  for (;;) {
    const size_t there = lines->buffer.length - lines->used;
    const char *const from = there > 0 ? lines->buffer.data + lines->used : NULL;
    const char *const end = there > searched ? memchr(from + searched, '\n', there - searched) : NULL;
    if (end != NULL) {
      take(lines, (size_t)(end - from), (size_t)(end - from) + 1);
      return HARK_OK;
    }
    if (lines->offset == lines->input.size) {
      *more = there > 0;
      if (there > 0) take(lines, there, there);
      return HARK_OK;
    }
    if (there > HARK_LINE_BYTES) return hark_lines_fail(context, lines, 0, "a line of more than %zu bytes", HARK_LINE_BYTES);
    searched = there;
    HARK_TRY(fill(context, lines));
  }
}

hark_status hark_lines_fail(hark_context *context, const hark_line_reader *lines, size_t at, const char *format, ...) {
  char what[WHAT_BYTES];
  va_list arguments;
  va_start(arguments, format);
  (void)vsnprintf(what, sizeof what, format, arguments);
  va_end(arguments);
  hark_text_place place = {lines->at, lines->number, 1};
  if (at > 0) hark_text_place_advance(&place, lines->line, at);
  return hark_text_fail(context, lines->path, &place, what, "");
}

hark_status hark_lines_fail_fault(hark_context *context, const hark_line_reader *lines, const hark_text_fault *fault) {
  hark_text_place place = {lines->at, lines->number, 1};
  if (fault->at > 0) hark_text_place_advance(&place, lines->line, fault->at);
  return hark_text_fail(context, lines->path, &place, fault->what, fault->more);
}

hark_status hark_lines_check_utf8(hark_context *context, const hark_line_reader *lines, size_t at, size_t length) {
  const unsigned char *const text = (const unsigned char *)lines->line;
  const size_t end = at + length;
  for (size_t bytes = 1; at < end; at += bytes, bytes = 1) {
    uint32_t code_point;
    if (text[at] < 0x80) continue;
    const hark_utf8_result result = hark_utf8_decode(text + at, end - at, &code_point, &bytes);
    if (result != HARK_UTF8_OK) return hark_lines_fail(context, lines, at, "invalid UTF-8: %s", hark_utf8_result_text(result));
  }
  return HARK_OK;
}
