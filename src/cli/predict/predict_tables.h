/* predict_tables.h - hark predict for regressors: rows of one table from those of another. */
#ifndef HARK_CLI_PREDICT_PREDICT_TABLES_H
#define HARK_CLI_PREDICT_PREDICT_TABLES_H

#include "cli/model.h"

typedef struct hark_predict_tables {
  const char *output, *context, *query; /* paths; CSV */
  const char *target;                   /* names of columns, separated by commas */
  const char *figure;                   /* path; "": none */
  double interval;                      /* probability of the intervals, in (0, 1) */
  int solver;                           /* a hark_regressor_solver */
} hark_predict_tables;

/* Writes a row for every row of the query: means, deviations and intervals of the targets, and the targets if the query has them.
 * Errors: HARK_BAD_FILE for tables with file, line and column, HARK_BAD_CONFIGURATION (columns that do not exist, more inputs or targets
 * than the model reads), those of hark_regressor_run(). */
HARK_MUST_CHECK hark_status hark_predict_table(hark_invocation *call, const hark_model *model, const hark_predict_tables *settings);

#endif
