/* fit.h - straight lines through points, for slopes of errors over lengths. */
#ifndef HARK_LAB_FIT_H
#define HARK_LAB_FIT_H

#include <stdint.h>

/* Points that have been added; starts as zeros. */
typedef struct hark_lab_line {
  double count, x, y, xx, xy, yy; /* sums, taken about the first point */
  double first_x, first_y;
} hark_lab_line;

void hark_lab_line_add(hark_lab_line *line, double x, double y);
/* Adds (log x, log y): the slope is the power of x. What is not positive makes the fit NaN, which fails every criterion. */
void hark_lab_line_add_power(hark_lab_line *line, double x, double y);

/* Least squares y = intercept + slope x. `error` is the slope's standard error as the residuals tell it (NaN below three points, NaN also
 * for the slope below two). */
typedef struct hark_lab_fit {
  double slope, intercept, error;
} hark_lab_fit;
hark_lab_fit hark_lab_line_fit(const hark_lab_line *line);

/* The slope's standard error when every y has the deviation `deviation`, independently. */
double hark_lab_line_error(const hark_lab_line *line, double deviation);

/* The power s of y = c x^s, c >= 0, from s = -4 to 4: least squares in y itself, each weighed by its standard error. Where logarithms would
 * take small y at their word, or have none of negative ones, these count for what they are: near nothing, within their error. 0 where no
 * positive c is better than none; NaN where an x or an error is not positive. */
double hark_lab_power(int64_t count, const double *x, const double *y, const double *error);

/* Mean and standard error of the mean of what has been added; starts as zeros. */
typedef struct hark_lab_mean {
  double count, mean, squares; /* squares: sum of squares about the mean (Welford) */
} hark_lab_mean;

void hark_lab_mean_add(hark_lab_mean *mean, double value);
double hark_lab_mean_error(const hark_lab_mean *mean);

#endif
