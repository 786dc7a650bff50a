/* json.h - JSON: parts of text written, documents read by jansson with limits. */
#ifndef HARK_IO_JSON_H
#define HARK_IO_JSON_H

#include <jansson.h>

#include "core/core.h"
#include "io/text.h"

/* Appends "value" in quotes and escaped. Bytes that are not UTF-8 become U+FFFD. */
void hark_json_append_string(hark_text *text, const char *value);
/* The same of a text that may hold zero bytes. */
void hark_json_append_bytes(hark_text *text, const char *value, size_t bytes);
/* Appends a number that reads back as the same one; NaN and infinities, which JSON lacks, as null. */
void hark_json_append_number(hark_text *text, double value);

/* Reads a document; the caller calls json_decref(). Refused: more than `limit` bytes, duplicate keys, anything behind the document.
 * `name` stands for the text in messages. Errors: HARK_BAD_FILE "NAME:LINE:COLUMN: ...", and those of files. */
HARK_MUST_CHECK hark_status hark_json_parse(hark_context *context, const char *name, const char *text, size_t length, json_t **out);
HARK_MUST_CHECK hark_status hark_json_read(hark_context *context, const char *path, size_t limit, json_t **out);

#endif
