/* finite_trained.h - the finite-dimensional example with learned features, and the constants that it shares with finite.c.
 *
 *     zbar_theta(X) c_theta(msk),   zbar_theta(X) = r_theta(X)' (c_theta(X) c_theta(X)' + I)^-1 c_theta(X)            (X 3.10)
 *
 * Tokens x_l = (c_l, r_l / spread) M and masks msk = c M' with unknown mixing matrices M [10, 10] and M' [8, 8]; c_theta, r_theta and the
 * map of the mask are linear, and all their entries are trained on the square error of y. The scale of c_theta contains the ridge.
 */
#ifndef HARK_LAB_FINITE_TRAINED_H
#define HARK_LAB_FINITE_TRAINED_H

#include "lab/lab.h"

enum { HARK_FINITE_RESPONSES = 2, HARK_FINITE_COVARIATES = 8 }; /* dr, dc */
#define HARK_FINITE_NOISE 0.25                                  /* s2 */
#define HARK_FINITE_PRIOR 4.                                    /* t2 */

/* Trains at HARK_FINITE_TRAINED_LENGTH tokens and adds a table of the predictor's excess error at other lengths, with these columns. */
#define HARK_FINITE_TRAINED_LENGTH 32
enum {
  HARK_FINITE_TOKENS,
  HARK_FINITE_TRAINED,  /* mean |y^ - z c|^2 */
  HARK_FINITE_BAYES,    /* the same of the ridge regression on c and r themselves, ridge s2 / t2 */
  HARK_FINITE_EXPECTED, /* dr s2 E tr (C'C + s2/t2 I)^-1 */
  HARK_FINITE_RATIO,    /* trained / Bayes */
  HARK_FINITE_ERROR,    /* its standard error, by the differences of both on the same sequences */
  HARK_FINITE_COLUMNS
};
HARK_MUST_CHECK hark_status hark_finite_measure_trained(hark_lab *lab);

#endif
