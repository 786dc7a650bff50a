/* classes.h - the classes of a table's column: its different values, numbered in their order. */
#ifndef HARK_DATA_TABLES_CLASSES_H
#define HARK_DATA_TABLES_CLASSES_H

#include "data/tables/table.h"

/* Everything is owned by it. */
typedef struct hark_table_classes {
  int64_t count, rows;
  int32_t *of_row;          /* [rows], from 0 */
  double *numbers;          /* [count], of a column of numbers, ascending; NULL: texts */
  const char *const *texts; /* [count], of a column of texts, in the order of their bytes; owned by the table */
  size_t bytes;
} hark_table_classes;

/* Finds the classes of a column; the caller closes *out, also after a failure. Errors: HARK_BAD_FILE (a missing value, a number that is
 * infinite, more than `most` classes), HARK_OUT_OF_MEMORY. */
HARK_MUST_CHECK hark_status hark_table_classes_open(hark_context *context, const hark_table *table, int32_t column, int64_t most,
                                                    hark_table_classes *out);
void hark_table_classes_close(hark_context *context, hark_table_classes *classes);

/* The name of a class, "7" or "setosa"; `text` has room for a number. */
#define HARK_CLASS_NAME_ROOM 40
const char *hark_table_class_name(const hark_table_classes *classes, int64_t index, char text[HARK_CLASS_NAME_ROOM]);

#endif
