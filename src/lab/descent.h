/* descent.h - the least value of a function with a gradient: Adam with a projection, accelerated projected gradients, and L-BFGS. */
#ifndef HARK_LAB_DESCENT_H
#define HARK_LAB_DESCENT_H

#include "lab/lab.h"

/* A function of `dims` numbers. `evaluate` writes its value and its gradient. */
typedef struct hark_lab_objective {
  int64_t dims;
  hark_status (*evaluate)(void *user, const double *x, double *value, double *gradient);
  void (*project)(void *user, double *x); /* onto the allowed points; NULL: all points are allowed */
  /* How far from stationary x is, from the gradient there; NULL: the gradient's norm. For hark_lab_project_gradients() alone. */
  double (*gap)(void *user, const double *x, const double *gradient);
  void *user;
} hark_lab_objective;

/* A point, the function's value and gradient there, and memory of the lab for the searches. */
typedef struct hark_lab_descent {
  const hark_lab *lab; /* whose tick is called */
  int64_t dims;
  double *x, *gradient; /* [dims] */
  double value, norm;   /* norm: of the gradient, or the gap */
  int evaluations;
  int pairs; /* that L-BFGS stores */
  double *memory;
} hark_lab_descent;

/* `pairs`, 1 or more: HARK_LAB_PAIRS by default; for narrow valleys in few dimensions `dims`, at most HARK_LAB_MOST_PAIRS. */
#define HARK_LAB_PAIRS 20
#define HARK_LAB_MOST_PAIRS 200
HARK_MUST_CHECK hark_status hark_lab_make_descent(hark_lab *lab, int64_t dims, int pairs, hark_lab_descent *descent);

/* Adam (Kingma, Ba 2015) from descent->x, with every step projected; the rate falls linearly to zero. x and value become the best point of
 * the search, or with `last` the last one. HARK_NOT_FINITE for a value that is not finite. Errors: those of `evaluate`. */
typedef struct hark_lab_adam {
  int steps;
  double rate;
  bool last;
} hark_lab_adam;
HARK_MUST_CHECK hark_status hark_lab_descend(hark_lab *lab, const hark_lab_objective *objective, hark_lab_adam how,
                                             hark_lab_descent *descent);

/* Accelerated projected gradients (Nesterov 1983; Beck, Teboulle 2009) from descent->x, whose projection is of a convex set: steps halve
 * until a quadratic model bounds the value, and the momentum begins again when the value rises (O'Donoghue, Candes 2015). For smooth
 * functions. Ends when the gap is at most `tolerance`, or after `evaluations`. Errors: those of `evaluate`. */
HARK_MUST_CHECK hark_status hark_lab_project_gradients(const hark_lab_objective *objective, int evaluations, double tolerance,
                                                       hark_lab_descent *descent);

/* L-BFGS (Nocedal, Wright, chapter 7) from descent->x with a line search for the weak conditions of Wolfe by bisection (Lewis, Overton
 * 2013; it also works with kinks), until the gradient's norm is at most `tolerance`, the line search finds no lower point, or after
 * `evaluations`. The function must have no projection. Errors: those of `evaluate`. */
HARK_MUST_CHECK hark_status hark_lab_quasi_newton(const hark_lab_objective *objective, int evaluations, double tolerance,
                                                  hark_lab_descent *descent);

#endif
