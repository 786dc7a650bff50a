/* line_reader.h - the lines of a file one after the other, however long they are, with the places that messages need. */
#ifndef HARK_DATA_LINE_READER_H
#define HARK_DATA_LINE_READER_H

#include "io/text.h"
#include "tokenizers/tokenizer.h"

#define HARK_LINE_BYTES ((size_t)1 << 28) /* longest line that is read */

/* Zero it before open. Between next and next, `line` points to `length` bytes of the line `number` (from 1) without its end ("\n" or
 * "\r\n"), which begins at byte `at` of the file. */
typedef struct hark_line_reader {
  const char *path;
  int descriptor;
  uint64_t size, offset; /* of the file; of the bytes behind those in `buffer` */
  hark_text buffer;
  size_t used; /* bytes of `buffer` that lie before the next line */
  const char *line;
  size_t length;
  int64_t number, at;
} hark_line_reader;

/* The path is borrowed until close, which is called after a failure too. Errors: those of hark_file_open. */
HARK_MUST_CHECK hark_status hark_lines_open(hark_context *context, hark_line_reader *lines, const char *path);
void hark_lines_close(hark_line_reader *lines);
/* The next line; *more is false behind the last one. A line end at the end of the file begins no line of its own.
 * Errors: HARK_BAD_FILE (a line of more than HARK_LINE_BYTES, a file that became shorter), HARK_IO_ERROR, HARK_OUT_OF_MEMORY. */
HARK_MUST_CHECK hark_status hark_lines_next(hark_context *context, hark_line_reader *lines, bool *more);

/* Returns HARK_BAD_FILE with "PATH:LINE:COLUMN: WHAT (byte offset BYTE)" for byte `at` of the line. */
hark_status hark_lines_fail(hark_context *context, const hark_line_reader *lines, size_t at, const char *format, ...) HARK_PRINTF(4, 5);

/* Refuses bytes at .. at + length of the line where they are not UTF-8, with the place. Errors: HARK_BAD_FILE. */
HARK_MUST_CHECK hark_status hark_lines_check_utf8(hark_context *context, const hark_line_reader *lines, size_t at, size_t length);

#endif
