/* json.h - JSON documents of runs (state, manifest, metrics), read by jansson with limits. Files of models are read by json_tree.h. */
#ifndef HARK_JSON_JSON_H
#define HARK_JSON_JSON_H

#include <jansson.h>

#include "io/json_write.h"

#define HARK_JSON_RECORD_VALUES 200000 /* in a document of a run */

/* Reads a document; the caller calls json_decref(). Refused: more than `limit` bytes, HARK_JSON_DEPTH levels or HARK_JSON_RECORD_VALUES
 * values, duplicate keys, NaN and infinities, which JSON lacks, numbers that overflow, anything after the document. Messages call the text
 * `name`. Errors: HARK_BAD_FILE "NAME:LINE:COLUMN: ...", HARK_OUT_OF_MEMORY, and those of files. */
HARK_MUST_CHECK hark_status hark_json_parse(hark_context *context, const char *name, const char *text, size_t length, json_t **out);
/* The same for a line of a file: messages count lines from that line on. */
HARK_MUST_CHECK hark_status hark_json_parse_line(hark_context *context, const char *name, int64_t line, const char *text, size_t length,
                                                 json_t **out);
HARK_MUST_CHECK hark_status hark_json_read(hark_context *context, const char *path, size_t limit, json_t **out);

#endif
