/* table_samples.h - tables as examples: which rows are context and which are queries.
 *
 * A row has F inputs, then R targets. A sample draws n rows of context and m queries from its table, without repetition, by numbers that
 * depend on (seed, sample) alone; n is uniform in its logarithm between two bounds. Their numbers are scaled by models/table_rows.h.
 */
#ifndef HARK_DATA_EXAMPLES_TABLE_SAMPLES_H
#define HARK_DATA_EXAMPLES_TABLE_SAMPLES_H

#include "data/examples/examples.h"
#include "models/example_batch.h"

typedef struct hark_table_split {
  int64_t least, most; /* rows of context; most 0: as many as leave the queries */
  int64_t queries;     /* 0: all rows that are not context */
  bool standardise;    /* columns (models/table_rows.h) */
  int64_t classes;     /* the target of a row is its class, one of so many; 0: targets are numbers */
} hark_table_split;

/* The fewest rows that a table must have. */
int64_t hark_table_split_least(const hark_table_split *split);

/* Numbers of rows of context and queries in a sample, for a table of `rows` rows. */
typedef struct hark_table_sizes {
  int64_t context, queries;
} hark_table_sizes;
hark_table_sizes hark_table_split_sizes(const hark_table_split *split, uint64_t seed, int64_t sample, int64_t rows);

/* The row of the table that is at `place` in the sample: context first, then queries. */
int64_t hark_table_split_row(uint64_t seed, int64_t sample, int64_t rows, int64_t place);

#endif
