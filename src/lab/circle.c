/* circle.c - see circle.h. */
#include "lab/circle.h"

#include "lab/special.h"

#define TWO_PI 6.28318530717958647693
#define NOTHING 1e-18 /* l_j falls faster than any power: the following ones are even smaller */

double hark_circle_eigenvalue(int64_t j) { return hark_lab_bessel((double)j, 1 / HARK_CIRCLE_WIDTH); }

double hark_circle_dimension(double mu, int power) {
  double sum = 0;
  for (int64_t j = 0;; j++) {
    const double l = hark_circle_eigenvalue(j), term = pow(l / (l + mu), power);
    sum += j == 0 ? term : 2 * term;
    if (!(term > NOTHING)) return sum;
  }
}

void hark_circle_points(const hark_lab *lab, uint32_t stream, int64_t count, double *scratch, double *keys) {
  hark_lab_uniform(lab, stream, count, scratch);
  for (int64_t i = 0; i < count; i++) {
    keys[2 * i] = cos(TWO_PI * scratch[i]);
    keys[2 * i + 1] = sin(TWO_PI * scratch[i]);
  }
}
