/* gaussian_process.h - functions on a line whose covariance is a Gaussian kernel, as sums of features.
 *
 *     exp(-(x - y)^2 / (2 w^2)) = sum_n phi_n(x) phi_n(y),      phi_n(x) = exp(-x^2 / (2 w^2)) (x / w)^n / sqrt(n!),      n = 0, 1, ..
 *
 * so f = sum_n z_n phi_n with independent normal z_n is a draw, and z is the latent variable of r = z phi(c) + noise (X eq. 4.1). The sum
 * comes from exp(x y / w^2) = sum_n (x y / w^2)^n / n!; for |x|, |y| <= 2 w the terms after the first 32 add up to less than 1e-17.
 */
#ifndef HARK_LAB_GAUSSIAN_PROCESS_H
#define HARK_LAB_GAUSSIAN_PROCESS_H

#include <stdint.h>

#define HARK_GAUSSIAN_FEATURES 32
#define HARK_GAUSSIAN_REACH 2 /* widths */

/* out[HARK_GAUSSIAN_FEATURES] <- phi(x), |x| <= HARK_GAUSSIAN_REACH width. */
void hark_gaussian_features(double x, double width, double *out);

/* z . phi */
double hark_gaussian_value(const double *z, const double *features);

#endif
