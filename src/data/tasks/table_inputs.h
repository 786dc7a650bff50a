/* table_inputs.h - inputs of the tables of regression-tasks, as tables of data have them: of different kinds, correlated, some without
 * effect on the target. */
#ifndef HARK_DATA_TASKS_TABLE_INPUTS_H
#define HARK_DATA_TASKS_TABLE_INPUTS_H

#include "data/tasks/make_vectors.h"

/* Fills x [rows, inputs], the inputs of a table, and seen [rows, inputs], which its function depends on. The number D of inputs that are
 * not constant is log-uniform in [1, inputs]; the others are 0. With probability 1/2 the D inputs are independent, otherwise they are sums
 * of up to D hidden variables and of independent parts. All have a variance of about 1/3, that of a uniform number in [-1, 1]. An input
 * then has one of 2 to 6 values with probability 1/5, and is an exponential with 1/10. `seen` has the inputs times weights, whose squares
 * have the sum 1 and of which some are 0. scratch [rows * inputs + 2 * inputs]. */
void hark_table_inputs(hark_task_random *random, int64_t rows, int64_t inputs, double *x, double *seen, double *scratch);

/* In one table of five, makes up to a tenth of the inputs NaN. */
void hark_table_lose_inputs(hark_task_random *random, int64_t rows, int64_t inputs, double *x);

#endif
