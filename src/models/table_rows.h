/* table_rows.h - rows of a table as a regressor reads them: scaled columns, and marks of missing inputs.
 *
 * A row has F inputs, then R targets. With `standardise`, every column is shifted and scaled by the mean and the deviation of its context
 * rows, without missing values; a column that is constant there is only shifted. A missing input (NaN) becomes 0, and F further inputs are
 * 1 where a value is missing.
 */
#ifndef HARK_MODELS_TABLE_ROWS_H
#define HARK_MODELS_TABLE_ROWS_H

#include <stdbool.h>

#include "models/example_batch.h"
#include "models/regressor_config.h"

/* Mean and deviation of a column of `count` numbers, `stride` apart; deviation 1 if it is constant, mean 0 if all values are missing.
 * *constant (may be NULL): whether it is constant up to the rounding of 32 bits. */
hark_column_scale hark_column_scale_of(const float *numbers, int64_t stride, int64_t count, bool *constant);

/* Rows as a model reads them. */
typedef struct hark_table_block {
  float *inputs;  /* [rows, 2 F]: F inputs, then F numbers that are 1 where the input is missing */
  float *targets; /* [rows, R]; NULL: unknown */
  int64_t rows;
} hark_table_block;

/* Writes the numbers of a row, F inputs and then R targets, to row `to` of a block. */
void hark_table_put(const float *row, int64_t inputs, int64_t responses, const hark_table_block *block, int64_t to);

#define HARK_CLASS_ABSENT (-1e9F) /* in place of log 0 */

/* Targets of classes. classes [rows] are those of the context, from 0 below `count`. With f their frequencies, targets [rows, count] get
 * 1 - f at the class of a row and -f at the others, and level [queries, count] gets log f, HARK_CLASS_ABSENT for 0. */
void hark_table_put_classes(const int32_t *classes, int64_t rows, int64_t count, float *targets, int64_t queries, float *level);

/* Scales both blocks in place by the context (without `standardise` by nothing) and marks missing inputs. scales [responses]. */
void hark_table_scale(bool standardise, int64_t inputs, int64_t responses, const hark_table_block *context, const hark_table_block *queries,
                      hark_column_scale *scales);

#endif
