/* special.h - special functions and quadrature, by GSL: expected values come from other code than the estimates that are compared with
 * them.
 *
 * An experiment that calls any of these sets `.needs_gsl = true`: a build without GSL then refuses it, and `hark lab all` leaves it out.
 */
#ifndef HARK_LAB_SPECIAL_H
#define HARK_LAB_SPECIAL_H

#include "lab/lab.h"

/* e^-x I_order(x), the modified Bessel function of the first kind, order >= 0, x >= 0. */
double hark_lab_bessel(double order, double x);

/* The mean of the von Mises-Fisher distribution on the unit sphere of R^dim, of concentration x:
 *     A(x) = I_{dim/2}(x) / I_{dim/2 - 1}(x) */
double hark_lab_sphere_mean(int64_t dim, double x);

/* A rule sum_i weights[i] f(nodes[i]). */
typedef struct hark_lab_rule {
  int64_t count;
  const double *nodes, *weights;
} hark_lab_rule;

/* Gauss-Legendre on [low, high], exact for polynomials of degree 2 count - 1; lives as long as the lab. */
HARK_MUST_CHECK hark_status hark_lab_legendre(hark_lab *lab, int64_t count, double low, double high, hark_lab_rule *out);

/* The trapezoid rule on one period [low, high), nodes at low, low + step, ..: exponentially accurate for smooth periodic functions. */
HARK_MUST_CHECK hark_status hark_lab_trapezoid(hark_lab *lab, int64_t count, double low, double high, hark_lab_rule *out);

#endif
