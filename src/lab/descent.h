/* descent.h - the least value of a function with a gradient: Adam with a projection, and L-BFGS. */
#ifndef HARK_LAB_DESCENT_H
#define HARK_LAB_DESCENT_H

#include "lab/lab.h"

/* A function of `dims` numbers. `evaluate` gives its value and writes its gradient. */
typedef struct hark_lab_objective {
  int64_t dims;
  hark_status (*evaluate)(void *user, const double *x, double *value, double *gradient);
  void (*project)(void *user, double *x); /* onto the points that are allowed; NULL: all are */
  void *user;
} hark_lab_objective;

/* A point, what the function is there, and memory of the lab for the ways to it. */
typedef struct hark_lab_descent {
  const hark_lab *lab; /* whose tick is called */
  int64_t dims;
  double *x, *gradient; /* [dims] */
  double value, norm;   /* norm: of the gradient */
  int evaluations;
  int pairs; /* that L-BFGS remembers */
  double *memory;
} hark_lab_descent;

/* `pairs`, 1 or more: HARK_LAB_PAIRS as a rule; as many as there are numbers, at most HARK_LAB_MOST_PAIRS, for narrow valleys of few
 * numbers. */
#define HARK_LAB_PAIRS 20
#define HARK_LAB_MOST_PAIRS 200
HARK_MUST_CHECK hark_status hark_lab_make_descent(hark_lab *lab, int64_t dims, int pairs, hark_lab_descent *descent);

/* Adam (Kingma, Ba 2015) from descent->x, every step projected; the rate falls to zero in a straight line. x and value become the best
 * point that was met, or with `last` the last one. HARK_NOT_FINITE when a value is none. Errors: those of `evaluate`. */
typedef struct hark_lab_adam {
  int steps;
  double rate;
  bool last;
} hark_lab_adam;
HARK_MUST_CHECK hark_status hark_lab_descend(hark_lab *lab, const hark_lab_objective *objective, hark_lab_adam how,
                                             hark_lab_descent *descent);

/* L-BFGS (Nocedal, Wright, chapter 7) from descent->x with a line search for the weak conditions of Wolfe by bisection (Lewis, Overton
 * 2013: it also gets along with kinks), until the gradient's norm is at most `tolerance`, the line search finds no lower point, or after
 * `evaluations`. The function must have no projection. Errors: those of `evaluate`. */
HARK_MUST_CHECK hark_status hark_lab_quasi_newton(const hark_lab_objective *objective, int evaluations, double tolerance,
                                                  hark_lab_descent *descent);

#endif
