/* search.h - searches for the largest value of a function of many numbers, for example for a violation of an inequality. */
#ifndef HARK_LAB_SEARCH_H
#define HARK_LAB_SEARCH_H

#include "lab/lab.h"

typedef struct hark_lab_search {
  int64_t dims;
  int steps;
  double rate; /* of the first step, in units of x; falls linearly to zero */
  hark_status (*value)(void *user, const double *x, double *out);
  void *user;
} hark_lab_search;

/* Adam (Kingma, Ba 2015) uphill from x with differences as gradients, dims + 1 values per step. x and *best become the best point of the
 * search, which ends at a value that is not finite. Errors: those of `value`. */
HARK_MUST_CHECK hark_status hark_lab_maximise(hark_lab *lab, const hark_lab_search *search, double *x, double *best);

#endif
