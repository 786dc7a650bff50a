/* circle.h - the expected result of kernel ridge regression on a circle, from the kernel's spectrum.
 *
 * kappa = exp((cos - 1) / g), g = 1/2, is the RBF of variance g on the unit circle. With the uniform measure its eigenfunctions are the
 * Fourier modes e^(i j theta), j in Z, with eigenvalues
 *
 *     l_j = e^(-1/g) I_j(1/g),      sum_j l_j = kappa(x, x) = 1
 *
 * Computed by GSL: an experiment that calls these sets `.needs_gsl = true`.
 */
#ifndef HARK_LAB_CIRCLE_H
#define HARK_LAB_CIRCLE_H

#include "lab/lab.h"

#define HARK_CIRCLE_WIDTH 0.5 /* g */

double hark_circle_eigenvalue(int64_t j);

/* sum over j in Z of (l_j / (l_j + mu))^power: the effective dimension for power 1 (Gamma(mu) of X prop. 4.1), the part of white noise that
 * passes a ridge for power 2. mu > 0. */
double hark_circle_dimension(double mu, int power);

/* keys [count, 2] <- uniform points of the circle, from stream number `stream`. `scratch` [count]. */
void hark_circle_points(const hark_lab *lab, uint32_t stream, int64_t count, double *scratch, double *keys);

#endif
