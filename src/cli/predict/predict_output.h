/* predict_output.h - the table that hark predict writes: CSV (RFC 4180, with CRLF) or JSON lines, with the same columns.
 *
 *     hark_predict_output_open      the columns are added
 *     hark_predict_output_begin     the header of CSV
 *     .._text, .._number, .._whole  the values of a row, in the order of the columns
 *     hark_predict_output_end_row
 *     hark_predict_output_finish    only now is a file replaced
 */
#ifndef HARK_CLI_PREDICT_PREDICT_OUTPUT_H
#define HARK_CLI_PREDICT_PREDICT_OUTPUT_H

#include "io/files.h"
#include "io/text.h"

/* Zero it before it is opened. */
typedef struct hark_predict_output {
  hark_context *context;
  bool json;
  hark_writer writer;
  hark_text names;  /* of the columns, each ended by a zero byte */
  const char *name; /* of the next value of the row */
  hark_text text;   /* rows that are not written yet */
} hark_predict_output;

/* Opens FILE, or /dev/stdout. The caller closes the output, also after a failure. Errors: those of files. */
HARK_MUST_CHECK hark_status hark_predict_output_open(hark_context *context, const char *path, bool json, hark_predict_output *out);
/* Without hark_predict_output_finish() before, the file is not changed, or lacks rows if it is a pipe. */
void hark_predict_output_close(hark_predict_output *output);

/* Adds the column PREFIXNAME, before the first row. Names are different. */
void hark_predict_output_column(hark_predict_output *output, const char *prefix, const char *name);
HARK_MUST_CHECK hark_status hark_predict_output_begin(hark_predict_output *output);

/* The next value of the row. Text NULL: missing, which is an empty field of CSV, and null in JSON. */
void hark_predict_output_text(hark_predict_output *output, const char *value);
/* The shortest number that reads back as `value`, if `single` as a number of 32 bits. */
void hark_predict_output_number(hark_predict_output *output, double value, bool single);
void hark_predict_output_whole(hark_predict_output *output, int64_t value);

/* Errors: HARK_OUT_OF_MEMORY, those of files. */
HARK_MUST_CHECK hark_status hark_predict_output_end_row(hark_predict_output *output);
HARK_MUST_CHECK hark_status hark_predict_output_finish(hark_predict_output *output);

#endif
