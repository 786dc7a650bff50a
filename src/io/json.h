/* json.h - JSON documents of runs (state, manifest, metrics), read by jansson with limits. What a model needs is read by json_tree.h. */
#ifndef HARK_IO_JSON_H
#define HARK_IO_JSON_H

#include <jansson.h>

#include "io/json_write.h"

/* Reads a document; the caller calls json_decref(). Refused: more than `limit` bytes, duplicate keys, anything behind the document.
 * `name` stands for the text in messages. Errors: HARK_BAD_FILE "NAME:LINE:COLUMN: ...", and those of files. */
HARK_MUST_CHECK hark_status hark_json_parse(hark_context *context, const char *name, const char *text, size_t length, json_t **out);
HARK_MUST_CHECK hark_status hark_json_read(hark_context *context, const char *path, size_t limit, json_t **out);

#endif
