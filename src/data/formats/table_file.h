/* table_file.h - tables of numbers, in files of records: every record is a table whose rows have inputs, then targets.
 *
 *     "HARKTABL", then little-endian u32 version (1), rows L, inputs F, targets R, u64 records;
 *     records of L (F + R) numbers of 32 bits, row by row; an input that is NaN is missing
 */
#ifndef HARK_DATA_FORMATS_TABLE_FILE_H
#define HARK_DATA_FORMATS_TABLE_FILE_H

#include "data/formats/vector_file.h"

#define HARK_TABLES_MAGIC "HARKTABL"

/* Count of numbers of a record. */
static inline size_t hark_tables_record(int64_t rows, int64_t inputs, int64_t targets) { return (size_t)(rows * (inputs + targets)); }

#endif
