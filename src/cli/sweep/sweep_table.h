/* sweep_table.h - the results of a sweep: means and spreads over seeds, differences between cells paired by seed, optima on a grid's
 * edge. */
#ifndef HARK_CLI_SWEEP_SWEEP_TABLE_H
#define HARK_CLI_SWEEP_SWEEP_TABLE_H

#include "cli/sweep/sweep_measure.h"
#include "cli/sweep/sweep_plan.h"
#include "io/text.h"

/* Additional numbers of a run in the table, such as its costs. */
#define HARK_SWEEP_BESIDE 6

/* Results by run (cell * seeds + seed); NaN: missing. */
typedef struct hark_sweep_results {
  const hark_sweep_plan *plan;
  char label[HARK_PATH_BYTES]; /* of the plan among others */
  const char *metric;
  bool more;                /* is better; else less */
  hark_sweep_budget budget; /* that the numbers were reached within */
  int baseline;             /* cell that the others are compared with */
  double *values;
  int beside_count;
  char beside_names[HARK_SWEEP_BESIDE][HARK_SWEEP_METRIC_BYTES];
  double *beside[HARK_SWEEP_BESIDE]; /* each by run, as values */
} hark_sweep_results;

/* Mean and sample deviation of those of `count` numbers that are not missing; NaN where there are too few. */
typedef struct hark_spread {
  int count;
  double mean, deviation;
} hark_spread;
hark_spread hark_spread_of(const double *values, int count);

hark_spread hark_sweep_cell_spread(const hark_sweep_results *results, int cell);
hark_spread hark_sweep_cell_beside(const hark_sweep_results *results, int cell, int index);
/* Of the differences from the baseline, seed by seed, where neither is missing. */
hark_spread hark_sweep_difference(const hark_sweep_results *results, int cell);

/* The cell of a variant with the best mean, or -1; whether its value on an axis of numbers is the least or greatest of three or more. */
int hark_sweep_best(const hark_sweep_results *results, int variant);
bool hark_sweep_on_edge(const hark_sweep_results *results, int cell, int axis);

/* A table for people (Markdown), with a line for each optimum on an edge; or one JSON object. */
void hark_sweep_print_table(const hark_sweep_results *results, hark_text *text);
void hark_sweep_print_json(const hark_sweep_results *results, hark_text *text);

/* One table of several sweeps, a column for each: mean and deviation of the cells of the same name. */
void hark_sweep_print_together(const hark_sweep_results *const *sweeps, int count, hark_text *text);
/* The label of plan number `index` of several: the name of its file without the ending, where that distinguishes it from the others, else
 * its path. */
void hark_sweep_label(const hark_sweep_plan *const *plans, int count, int index, char out[HARK_PATH_BYTES]);

#endif
