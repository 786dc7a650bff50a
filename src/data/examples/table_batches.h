/* table_batches.h - tables as examples: which rows are context and which are queries, and the scaling of their numbers.
 *
 * A row has F inputs, then R targets. A sample draws n rows of context and m queries from its table, without repetition, by numbers that
 * depend on (seed, sample) alone; n is uniform in its logarithm between two bounds. With `standardise`, every column is shifted and scaled
 * by the mean and the deviation of its context rows, without missing values; a column that is constant there is only shifted. A missing
 * input (NaN) becomes 0, and F further inputs are 1 where a value is missing.
 */
#ifndef HARK_DATA_EXAMPLES_TABLE_BATCHES_H
#define HARK_DATA_EXAMPLES_TABLE_BATCHES_H

#include "data/examples/examples.h"
#include "models/example_batch.h"

typedef struct hark_table_split {
  int64_t least, most; /* rows of context; most 0: as many as leave the queries */
  int64_t queries;     /* 0: all rows that are not context */
  bool standardise;
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

/* Mean and deviation of a column; deviation 1 if it is constant, mean 0 if all values are missing. Of numbers first, first + stride, ..., `count` of them. */
hark_column_scale hark_column_scale_of(const float *numbers, int64_t stride, int64_t count);

/* Rows as a model reads them. */
typedef struct hark_table_block {
  float *inputs;  /* [rows, 2 F]: F inputs, then F numbers that are 1 where the input is missing */
  float *targets; /* [rows, R]; NULL: unknown */
  int64_t rows;
} hark_table_block;

/* Writes the numbers of a row, F inputs and then R targets, to row `to` of a block. */
void hark_table_put(const float *row, int64_t inputs, int64_t responses, const hark_table_block *block, int64_t to);

/* Scales both blocks in place by the context (without `standardise` by nothing) and marks missing inputs. scales [responses]. */
void hark_table_scale(bool standardise, int64_t inputs, int64_t responses, const hark_table_block *context, const hark_table_block *queries,
                      hark_column_scale *scales);

#endif
