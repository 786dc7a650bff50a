/* jsonl_csv.h - lines of JSON as a table for spreadsheets and data frames. */
#ifndef HARK_JSON_JSONL_CSV_H
#define HARK_JSON_JSONL_CSV_H

#include "json/jsonl.h"

/* Writes the objects of a file of JSON lines as comma-separated values (RFC 4180), atomically: a column for each name that occurs, in the
 * order of first occurrence, and a row for each line. Numbers keep their digits; what a line lacks, null, objects and lists are empty.
 * Errors: those of hark_jsonl_read() and of files. */
HARK_MUST_CHECK hark_status hark_jsonl_write_csv(hark_context *context, const char *from, const char *to);

#endif
