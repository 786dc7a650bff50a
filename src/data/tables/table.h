/* table.h - tables in CSV files: a header line with the names of the columns, and a row per line (RFC 4180).
 *
 *   file       plain or compressed, or standard input ("-"), in UTF-8, with or without a byte order mark; lines end with "\n" or "\r\n";
 *              empty lines are skipped
 *   delimiter  the one of `,` `;` and tab that is in the header outside of quotes; a header with two of them is refused, and one without
 *              any is a single column
 *   field      spaces around it do not belong to it. A field that begins with a double quote ends at the next one that is not doubled; a
 *              doubled one means one. Quoted fields may contain delimiters, line ends and spaces at both ends
 *   missing    an empty field, NA, NaN, nan, ? or null, quoted or not
 *
 * A column is one of numbers if none of its values is anything else, also if all of them are missing. Otherwise it is a column of texts.
 *
 * Memory while a file is read: the file's bytes (up to twice), 8 bytes for a number and up to 40 for a text; afterwards 8 bytes for a
 * number, 4 for a text, each different text once, and 8 for a row.
 */
#ifndef HARK_DATA_TABLES_TABLE_H
#define HARK_DATA_TABLES_TABLE_H

#include "core/core.h"

#define HARK_TABLE_CELLS ((int64_t)1 << 31) /* rows times columns, at most */
#define HARK_TABLE_BYTES ((size_t)1 << 36)  /* of a file, unpacked, at most */

typedef enum hark_table_kind { HARK_TABLE_NUMBERS, HARK_TABLE_TEXTS } hark_table_kind;

/* A column; `rows` is that of the table. Everything is owned by the table. */
typedef struct hark_table_column {
  const char *name; /* not empty, and no other column has it */
  hark_table_kind kind;
  double *numbers;    /* [rows], NaN: missing; NULL for texts */
  int32_t *codes;     /* [rows], the index of the text in `texts`, -1: missing; NULL for numbers */
  const char **texts; /* [text_count], different, in the order of their bytes; NULL for numbers */
  int32_t text_count;
  int64_t first_text; /* row of the first value that is not a number; -1 for numbers */
  size_t text_bytes;  /* for the release of `texts` */
} hark_table_column;

typedef struct hark_table {
  char *path; /* for messages */
  int64_t rows;
  int32_t column_count;
  hark_table_column *columns;      /* [column_count], in the order of the file */
  int64_t *lines;                  /* [rows], the line of the file where the row begins, from 1 */
  const hark_table_column **order; /* [column_count], columns in the order of their names */
  char *names;
  size_t path_bytes, name_bytes;
} hark_table;

/* Reads a table; the caller closes it. *out is NULL after a failure.
 * Errors: HARK_BAD_FILE with file and line, and column and value where there are any: a row with too few or too many fields, two columns of
 * one name, an empty name, two delimiters in the header, no rows, a quote that is not closed, characters after a closing quote, bytes that
 * are not UTF-8, a zero byte, "\r" without "\n", a number out of the range of a double in a column of numbers, more than HARK_TABLE_CELLS
 * or HARK_TABLE_BYTES; those of hark_input_open(); HARK_OUT_OF_MEMORY. */
HARK_MUST_CHECK hark_status hark_table_open(hark_context *context, const char *path, hark_table **out);
/* The same with another limit on the number of cells. */
HARK_MUST_CHECK hark_status hark_table_open_limited(hark_context *context, const char *path, int64_t most_cells, hark_table **out);
/* Sets *table to NULL; does nothing for NULL. */
void hark_table_close(hark_context *context, hark_table **table);

/* The column of a name, or -1. */
int32_t hark_table_find(const hark_table *table, const char *name);
/* The same for a name that a user gave. Errors: HARK_BAD_CONFIGURATION with the nearest name. */
HARK_MUST_CHECK hark_status hark_table_need(hark_context *context, const hark_table *table, const char *name, int32_t *out);

/* The numbers [rows] of a column that must have numbers, owned by the table; missing ones are NaN.
 * Errors: HARK_BAD_FILE for a column of texts, with file, line, column and value of the first text. */
HARK_MUST_CHECK hark_status hark_table_numbers(hark_context *context, const hark_table *table, int32_t column, const double **out);

/* Returns HARK_BAD_FILE with the message "PATH:LINE: column "NAME": WHAT" for a cell; the line is that where the row begins. */
hark_status hark_table_fail(hark_context *context, const hark_table *table, int64_t row, int32_t column, const char *format, ...)
    HARK_PRINTF(5, 6);

#endif
