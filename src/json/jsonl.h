/* jsonl.h - files of JSON objects, one per line: metrics.jsonl.
 *
 * A line is built in memory and written by one call, so that a reader sees complete lines and a killed process leaves at most one
 * incomplete line, the last. Reading ignores it and truncation removes it.
 *
 *     hark_jsonl metrics = {0};
 *     HARK_TRY(hark_jsonl_open(context, &metrics, path));
 *     hark_jsonl_begin(&metrics);
 *     hark_jsonl_integer(&metrics, "step", step);
 *     hark_jsonl_number(&metrics, "train/loss", loss);
 *     HARK_TRY(hark_jsonl_end(context, &metrics));
 */
#ifndef HARK_JSON_JSONL_H
#define HARK_JSON_JSONL_H

#include "json/json.h"

#define HARK_JSONL_LINE_BYTES ((size_t)1 << 20) /* longest line that is read */

typedef struct hark_jsonl {
  bool open;
  bool dropped; /* lines are made and not written */
  int descriptor;
  uint64_t bytes; /* of the file */
  hark_text line;
  char path[4096];
} hark_jsonl;

/* Opens a file for appending and creates it if necessary. An incomplete last line is removed. Set the struct to zero first. Errors, with
 * the file as it was: HARK_BAD_FILE (a file of another kind, or with an incomplete last line that is not the beginning of an object). */
HARK_MUST_CHECK hark_status hark_jsonl_open(hark_context *context, hark_jsonl *file, const char *path);

/* A file that is nowhere: its lines are dropped. For processes whose lines another one writes. */
void hark_jsonl_open_nowhere(hark_context *context, hark_jsonl *file);

/* A line: begin, members, end. Numbers keep their full precision; NaN and infinities become null. end writes the line. */
void hark_jsonl_begin(hark_jsonl *file);
void hark_jsonl_number(hark_jsonl *file, const char *name, double value);
void hark_jsonl_integer(hark_jsonl *file, const char *name, int64_t value);
void hark_jsonl_boolean(hark_jsonl *file, const char *name, bool value);
void hark_jsonl_string(hark_jsonl *file, const char *name, const char *value);
void hark_jsonl_bytes(hark_jsonl *file, const char *name, const void *bytes, size_t length); /* what is no UTF-8 becomes U+FFFD */
HARK_MUST_CHECK hark_status hark_jsonl_end(hark_context *context, hark_jsonl *file);

/* Makes everything so far durable; *bytes (may be NULL) is the length of the file, with which hark_jsonl_truncate() returns to this
 * state. */
HARK_MUST_CHECK hark_status hark_jsonl_flush(hark_context *context, hark_jsonl *file, uint64_t *bytes);
/* Flushes and closes; a file that is not open is not an error. */
HARK_MUST_CHECK hark_status hark_jsonl_close(hark_context *context, hark_jsonl *file);

/* Cuts a file to its first `bytes` bytes, which must be none or end with a line. A missing file is not an error if bytes is 0. Errors:
 * HARK_BAD_FILE (shorter, in the middle of a line, a file of another kind, other text than lines after these bytes); nothing is cut
 * then. */
HARK_MUST_CHECK hark_status hark_jsonl_truncate(hark_context *context, const char *path, uint64_t bytes);

/* Called with each object in its order; a status other than HARK_OK ends the reading. */
typedef hark_status hark_jsonl_visitor(void *user, const json_t *object, int64_t line);

/* Reads a file line by line. A last line without its newline is ignored. Errors: HARK_BAD_FILE "PATH:LINE:COLUMN: ...", and those of
 * files. */
HARK_MUST_CHECK hark_status hark_jsonl_read(hark_context *context, const char *path, hark_jsonl_visitor *visit, void *user);

#endif
