/* search.h - looks for the largest value of a function of many numbers: adversaries of inequalities. */
#ifndef HARK_LAB_SEARCH_H
#define HARK_LAB_SEARCH_H

#include "lab/lab.h"

typedef struct hark_lab_search {
  int64_t dims;
  int steps;
  double rate; /* of the first step, in units of x; falls to zero in a straight line */
  hark_status (*value)(void *user, const double *x, double *out);
  void *user;
} hark_lab_search;

/* Adam (Kingma, Ba 2015) uphill from x with differences for gradients, dims + 1 values a step. x and *best become the best point that was
 * met; values that are not finite end it there. Errors: those of `value`. */
HARK_MUST_CHECK hark_status hark_lab_maximise(hark_lab *lab, const hark_lab_search *search, double *x, double *best);

#endif
