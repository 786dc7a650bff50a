/* line_reader.h - reads the lines of a file one after the other, of any length, and knows their places for messages. */
#ifndef HARK_DATA_LINE_READER_H
#define HARK_DATA_LINE_READER_H

#include "data/inputs.h"
#include "tokenizers/tokenizer.h"

struct hark_source;

#define HARK_LINE_BYTES ((size_t)1 << 28) /* maximum length of a line */

/* Zero it before hark_lines_open(). After hark_lines_next(), `line` points to the `length` bytes of line `number` (from 1) without its end
 * ("\n" or "\r\n"), until the next call; the line begins at byte `at` of the file. */
typedef struct hark_line_reader {
  const char *path;
  hark_spool spool; /* of hark_lines_open() */
  hark_input input;
  uint64_t offset; /* of the first byte after those in `buffer` */
  hark_text buffer;
  size_t used; /* bytes of `buffer` before the next line */
  const char *line;
  size_t length;
  int64_t number, at;
} hark_line_reader;

/* A file, compressed or not, or standard input ("-"). The path is borrowed until hark_lines_close(), which is called after a failure too.
 * Errors: those of hark_input_open. */
HARK_MUST_CHECK hark_status hark_lines_open(hark_context *context, hark_line_reader *lines, const char *path);
/* The contents of a source that was unpacked (sources.h). */
HARK_MUST_CHECK hark_status hark_lines_open_source(hark_context *context, hark_line_reader *lines, const struct hark_source *source);
void hark_lines_close(hark_line_reader *lines);
/* Reads the next line; *more is false after the last one. A line end at the end of the file does not begin another line.
 * Errors: HARK_BAD_FILE (a line of more than HARK_LINE_BYTES, a file that became shorter), HARK_IO_ERROR, HARK_OUT_OF_MEMORY. */
HARK_MUST_CHECK hark_status hark_lines_next(hark_context *context, hark_line_reader *lines, bool *more);

/* Returns HARK_BAD_FILE with "PATH:LINE:COLUMN: WHAT (byte offset BYTE)" for byte `at` of the line. */
hark_status hark_lines_fail(hark_context *context, const hark_line_reader *lines, size_t at, const char *format, ...) HARK_PRINTF(4, 5);

/* The same for a fault that was found in the line, with what is printed after the place. */
hark_status hark_lines_fail_fault(hark_context *context, const hark_line_reader *lines, const hark_text_fault *fault);

/* Refuses bytes at .. at + length of the line unless they are UTF-8; the message contains the place. Errors: HARK_BAD_FILE. */
HARK_MUST_CHECK hark_status hark_lines_check_utf8(hark_context *context, const hark_line_reader *lines, size_t at, size_t length);

#endif
