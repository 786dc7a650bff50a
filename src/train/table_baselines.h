/* table_baselines.h - predictions of tables without a trained model, with which those of a regressor are compared.
 *
 * Bayesian linear regression of the targets on z = (1, inputs) of the context: coefficients have the prior N(0, s^2 I), and s^2 has an
 * inverse gamma prior with shape 2 and rate 1, in scaled units. With A = I + Z'Z and Q = y'y - y'Z A^-1 Z'y,
 *
 *     mean = z' A^-1 Z'y,   variance = (1 + Q / 2) / (1 + n / 2) (1 + z' A^-1 z)
 *
 * (Gelman et al., Bayesian Data Analysis, 14.2.) The baseline of the mean has z = 1 alone.
 *
 * If targets are classes, the linear baseline is linear discriminant analysis: class c is normal with the mean m_c of its rows and a
 * covariance S that is common to all classes, and has the probability f_c, its frequency in the context. In scaled units, S = (I + sum over
 * the rows of (x - m)(x - m)') / (1 + n), m the mean of the row's class. The other baseline has f_c alone.
 */
#ifndef HARK_TRAIN_TABLE_BASELINES_H
#define HARK_TRAIN_TABLE_BASELINES_H

#include "core/core.h"
#include "models/example_batch.h"

/* Sums over the targets of queries, in the units of the targets. Of classes: -log probabilities, Brier scores sum_c (p_c - [c is the
 * class])^2, and how often the most likely class is the right one. */
typedef struct hark_table_sums {
  double loss; /* negative logarithms of densities */
  double squared_error;
  double covered; /* targets within the interval of 90 % */
} hark_table_sums;

/* Adds one target: its scale, and mean and logarithm of the variance of the prediction in scaled units. */
void hark_table_sums_add(const hark_column_scale *scale, double target, double mean, double log_variance, hark_table_sums *sums);

/* Sums over a batch of tables for the baseline of the mean, or with `linear` on `features` inputs of a row. Errors: HARK_OUT_OF_MEMORY. */
HARK_MUST_CHECK hark_status hark_table_baseline(hark_context *context, const hark_example_batch *batch, int64_t features, int64_t responses,
                                                bool linear, hark_table_sums *sums);

/* Adds one class, by its logits; a class below 0 is not counted. */
void hark_class_sums_add(const float *logits, int64_t classes, int32_t target, hark_table_sums *sums);

/* hark_table_baseline() for classes. */
HARK_MUST_CHECK hark_status hark_class_baseline(hark_context *context, const hark_example_batch *batch, int64_t features, int64_t classes,
                                                bool linear, hark_table_sums *sums);

#endif
