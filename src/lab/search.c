/* search.c - see search.h. */
#include "lab/search.h"

#include <string.h>

#define MOMENTUM 0.9
#define SQUARES 0.999
#define DIFFERENCE 1e-5 /* of x, for the gradient */
#define TINY 1e-12

hark_status hark_lab_maximise(hark_lab *lab, const hark_lab_search *search, double *x, double *best) {
  const int64_t dims = search->dims;
  double *at, *first, *second, momentum = 1, squares = 1;
  HARK_TRY(hark_lab_numbers(lab, dims, &at));
  HARK_TRY(hark_lab_numbers(lab, dims, &first));
  HARK_TRY(hark_lab_numbers(lab, dims, &second));
  memcpy(at, x, (size_t)dims * sizeof *at);
  *best = -INFINITY;
  for (int step = 0; step <= search->steps; step++) {
    double value, nearby;
    hark_lab_tick(lab, step, search->steps);
    HARK_TRY(search->value(search->user, at, &value));
    if (!isfinite(value)) return HARK_OK;
    if (value > *best) {
      *best = value;
      memcpy(x, at, (size_t)dims * sizeof *at);
    }
    if (step == search->steps) break;
    const double rate = search->rate * (1 - (double)step / search->steps);
    momentum *= MOMENTUM;
    squares *= SQUARES;
    for (int64_t i = 0; i < dims; i++) {
      const double here = at[i];
      at[i] = here + DIFFERENCE;
      HARK_TRY(search->value(search->user, at, &nearby));
      at[i] = here;
      const double slope = (nearby - value) / DIFFERENCE;
      first[i] = MOMENTUM * first[i] + (1 - MOMENTUM) * slope;
      second[i] = SQUARES * second[i] + (1 - SQUARES) * slope * slope;
    }
    for (int64_t i = 0; i < dims; i++) at[i] += rate * first[i] / (1 - momentum) / (sqrt(second[i] / (1 - squares)) + TINY);
  }
  return HARK_OK;
}
