/* regression.h - least squares of a few outputs on a few features. */
#ifndef HARK_LAB_REGRESSION_H
#define HARK_LAB_REGRESSION_H

#include <stdbool.h>
#include <stdint.h>

#include <hark/status.h>

#define HARK_LAB_FEATURES 4 /* at most */

/* coefficients [features, outputs] <- argmin |x c - y|^2 with x [rows, features], y [rows, outputs], by the normal equations, which need
 * features of comparable size. false when the features are dependent up to rounding; then nothing is written. */
HARK_MUST_CHECK bool hark_lab_regress(int64_t rows, int64_t features, int64_t outputs, const double *x, const double *y,
                                      double *coefficients);

/* 1 - |y - x c|^2 / |y - mean y|^2 with the best c: the part of y that a linear map of x explains; one column of x should be ones. NaN when
 * hark_lab_regress() is false. */
double hark_lab_r_squared(int64_t rows, int64_t features, int64_t outputs, const double *x, const double *y);

#endif
