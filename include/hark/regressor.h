/* regressor.h - predictions of a trained regressor: targets of rows of a table, with their variances, from other rows whose targets are
 * known. model.h loads the models, predictor.h serves the other models that read whole examples.
 *
 *     hark_regressor_describe    how many inputs and targets a row has
 *     hark_regressor_create      memory for tables up to a number of rows
 *     hark_regressor_run         a table -> means and variances
 *     hark_regressor_classify    a table whose target is a class -> probabilities
 *
 * The rows with targets are the context; they have no order. The prediction for a query does not depend on other queries. With a model that
 * scales columns (model.regressor.standardise), every column is shifted and scaled by its mean and deviation in the context, and results
 * are in the units of the targets. docs/regressor.md is the guide.
 *
 * Threads. A regressor belongs to the context that it was created with, and both are used by one thread at a time; any number of regressors
 * share a model. It takes its memory when it is created; calls allocate nothing through the context.
 */
#ifndef HARK_REGRESSOR_H
#define HARK_REGRESSOR_H

#include "model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Made by hark_regressor_create(). */
typedef struct hark_regressor hark_regressor;

/* Fills *inputs and *targets: numbers of a row. Errors: HARK_UNSUPPORTED for a model of another architecture; both are then 0. */
HARK_API HARK_MUST_CHECK hark_status hark_regressor_describe(hark_context *context, const hark_model *model, int64_t *inputs,
                                                             int64_t *targets);

/* *classes: the largest number of classes of the target, which is then the only one; 0 for a model of numbers. Errors: HARK_UNSUPPORTED for
 * a model of another architecture; it is then 0. */
HARK_API HARK_MUST_CHECK hark_status hark_regressor_class_count(hark_context *context, const hark_model *model, int64_t *classes);

/* How the systems of kernel ridge attention are solved, in the blocks and in the head (hark_attention_solver). */
typedef enum hark_regressor_solver {
  HARK_REGRESSOR_SOLVER_AUTOMATIC, /* a factor if context_rows of the options is at most 4,096, otherwise conjugate gradients */
  HARK_REGRESSOR_SOLVER_FACTOR,
  HARK_REGRESSOR_SOLVER_CONJUGATE_GRADIENTS
} hark_regressor_solver;

/* Set struct_size to sizeof(hark_regressor_options). */
typedef struct hark_regressor_options {
  size_t struct_size;
  int64_t context_rows; /* at most in a call; at least 2 */
  int64_t query_rows;   /* the same; at least 1 */
  int64_t solver;       /* a hark_regressor_solver */
} hark_regressor_options;

/* Makes a regressor. The model must outlive it. Errors: HARK_INVALID_ARGUMENT (struct_size, a number of rows or a solver out of range, a
 * context of another backend than the model's), HARK_UNSUPPORTED (a model of another architecture; options of a newer hark are set),
 * HARK_TOO_LARGE, HARK_OUT_OF_MEMORY. When it fails *out is NULL. */
HARK_API HARK_MUST_CHECK hark_status hark_regressor_create(hark_context *context, const hark_model *model,
                                                           const hark_regressor_options *options, hark_regressor **out);
/* Frees it and sets *regressor to NULL. NULL and a pointer to NULL are allowed. */
HARK_API void hark_regressor_destroy(hark_regressor **regressor);

/* A table. Set struct_size to sizeof(hark_regressor_table). Everything is caller-owned and read during the call. */
typedef struct hark_regressor_table {
  size_t struct_size;
  int64_t context_rows, query_rows;
  const float *context; /* [context_rows, inputs + targets]: of each row the inputs, then the targets; a missing input is NaN, and a class
                           is a whole number from 0 */
  const float *queries; /* [query_rows, inputs] */
} hark_regressor_table;

/* Writes mean and variance [query_rows, targets] of the targets of every query; the variance includes the noise of an observation.
 * Errors: HARK_INVALID_ARGUMENT (struct_size, a number of rows out of range, a target that is not finite, an infinite input, with scaled
 * columns a target that is the same in all rows of the context; the message has row and number; conjugate gradients that do not converge),
 * HARK_NOT_FINITE (results; context rows that are far apart in scale), HARK_UNSUPPORTED for a model of classes. After an error the results
 * are unchanged or a part of the new ones. */
HARK_API HARK_MUST_CHECK hark_status hark_regressor_run(hark_regressor *regressor, const hark_regressor_table *table, float *mean,
                                                        float *variance);

/* Writes probabilities [query_rows, classes], with all classes of the model; classes that the context lacks have 0. Errors: as
 * hark_regressor_run(), HARK_INVALID_ARGUMENT for a class that is no whole number of [0, classes) or for a context of one class,
 * HARK_UNSUPPORTED for a model of numbers. */
HARK_API HARK_MUST_CHECK hark_status hark_regressor_classify(hark_regressor *regressor, const hark_regressor_table *table,
                                                             float *probabilities);

#ifdef __cplusplus
}
#endif
#endif
