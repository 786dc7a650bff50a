/* fit.h - straight lines through points, for example the slope of an error over the length. */
#ifndef HARK_LAB_FIT_H
#define HARK_LAB_FIT_H

#include <stdint.h>

/* Points that have been added; starts as zeros. */
typedef struct hark_lab_line {
  double count, x, y, xx, xy, yy; /* sums, taken about the first point */
  double first_x, first_y;
} hark_lab_line;

void hark_lab_line_add(hark_lab_line *line, double x, double y);
/* Adds (log x, log y): the slope is the power of x. A number that is not positive makes the fit NaN, which fails every criterion. */
void hark_lab_line_add_power(hark_lab_line *line, double x, double y);

/* Least squares y = intercept + slope x. `error` is the slope's standard error, estimated from the residuals (NaN below three points; below
 * two points the slope is NaN too). */
typedef struct hark_lab_fit {
  double slope, intercept, error;
} hark_lab_fit;
hark_lab_fit hark_lab_line_fit(const hark_lab_line *line);

/* The slope's standard error when every y has the deviation `deviation`, independently. */
double hark_lab_line_error(const hark_lab_line *line, double deviation);

/* The power s of y = c x^s, c >= 0, from s = -4 to 4: least squares in y itself, each weighted by its standard error. Logarithms would give
 * small y too much weight and do not exist for negative y; here such y count as what they are: zero within their error. 0 where no positive
 * c is better than c = 0; NaN where an x or an error is not positive. */
double hark_lab_power(int64_t count, const double *x, const double *y, const double *error);

/* Mean and standard error of the mean of what has been added; starts as zeros. */
typedef struct hark_lab_mean {
  double count, mean, squares; /* squares: sum of squares about the mean (Welford) */
} hark_lab_mean;

void hark_lab_mean_add(hark_lab_mean *mean, double value);
double hark_lab_mean_error(const hark_lab_mean *mean);

#endif
