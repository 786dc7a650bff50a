/* example_batch.h - examples packed one after the other in host memory, as a network reads them. data/examples/example_batches.h fills it.
 *
 * Legend: P parts of an example, T tokens of the batch. A table has two parts, its rows of context and its queries. The context of all
 * tables comes first, then all queries, in the same order of tables.
 */
#ifndef HARK_MODELS_EXAMPLE_BATCH_H
#define HARK_MODELS_EXAMPLE_BATCH_H

#include <stdint.h>

#define HARK_TABLE_PARTS 2 /* of a table: context and queries */

/* What the numbers of a column of a table are shifted and divided by. */
typedef struct hark_column_scale {
  double mean, deviation;
} hark_column_scale;

/* A batch in host memory. */
typedef struct hark_example_batch {
  int64_t rows, tokens;
  int32_t *inputs, *positions; /* [T] */
  int32_t *types;              /* [T] token types; NULL: all 0 */
  int64_t *segments;           /* [T] */
  int64_t *ranges;             /* [rows, P, 2] */
  int32_t *targets;            /* [rows] or [T]; of tables whose targets are classes [T], -1 at queries whose class the context lacks */
  float *features;             /* [T, features], of format vectors */
  float *responses;          /* [rows, responses], in place of targets; of tables [T, responses]; of classes see hark_table_put_classes() */
  hark_column_scale *scales; /* of tables: [rows, responses], by which targets were scaled */
  int64_t context_rows;      /* of tables: rows of context, which come first; the others are queries. Otherwise 0 */
  int64_t real;              /* number of targets other than HARK_TARGET_IGNORED; of tables the numbers to predict */
  int64_t longest;           /* tokens of the longest sequence of this batch */
} hark_example_batch;

#endif
