/* columns.h - the columns of a table that are predicted, by names that a user gave. */
#ifndef HARK_DATA_TABLES_COLUMNS_H
#define HARK_DATA_TABLES_COLUMNS_H

#include "data/tables/table.h"

/* Finds the columns of names separated by commas, such as "price,area"; columns has room for as many as the table has. `option` is the
 * option that has the names, for messages. Errors: HARK_BAD_CONFIGURATION (no name, a name that the table lacks, a name twice, all
 * columns). */
HARK_MUST_CHECK hark_status hark_table_columns(hark_context *context, const hark_table *table, const char *option, const char *names,
                                               int32_t *columns, int32_t *count);

#endif
