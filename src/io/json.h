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

/* What a document may hold. One pass over its bytes checks this before anything is built, so that memory stays in proportion to what is
 * expected, however the text is nested. */
typedef struct hark_json_limits {
  int depth;            /* lists and objects in each other */
  int64_t items;        /* values, those inside of others counted too; names are not */
  const char *alphabet; /* bytes that may stand outside of texts; NULL: any */
  bool zero_bytes;      /* texts may hold U+0000 */
} hark_json_limits;

#define HARK_JSON_DEPTH 16
#define HARK_JSON_ITEMS 200000

/* What is wrong with the bytes, and *at which. */
typedef enum hark_json_fault { HARK_JSON_FINE, HARK_JSON_TOO_DEEP, HARK_JSON_TOO_MANY, HARK_JSON_ODD_BYTE } hark_json_fault;
hark_json_fault hark_json_scan(const char *text, size_t length, const hark_json_limits *limits, size_t *at);

/* Reads a document; the caller calls json_decref(). Refused: more than the limits (parse and read: HARK_JSON_DEPTH, HARK_JSON_ITEMS) or than
 * `limit` bytes, duplicate keys, anything behind the document; NaN and infinities, which JSON lacks, and numbers that overflow.
 * `name` stands for the text in messages. Errors: HARK_BAD_FILE "NAME:LINE:COLUMN: ...", HARK_OUT_OF_MEMORY, and those of files. */
HARK_MUST_CHECK hark_status hark_json_parse(hark_context *context, const char *name, const char *text, size_t length, json_t **out);
HARK_MUST_CHECK hark_status hark_json_parse_within(hark_context *context, const char *name, const char *text, size_t length,
                                                   const hark_json_limits *limits, json_t **out);
HARK_MUST_CHECK hark_status hark_json_read(hark_context *context, const char *path, size_t limit, json_t **out);

#endif
