/* fit.c - see fit.h. */
#include "lab/fit.h"

#include <math.h>

#include "core/core.h"

void hark_lab_line_add(hark_lab_line *line, double x, double y) {
  if (line->count == 0) {
    line->first_x = x;
    line->first_y = y;
  }
  x -= line->first_x;
  y -= line->first_y;
  line->count += 1;
  line->x += x;
  line->y += y;
  line->xx += x * x;
  line->xy += x * y;
  line->yy += y * y;
}

void hark_lab_line_add_power(hark_lab_line *line, double x, double y) {
  hark_lab_line_add(line, x > 0 ? log(x) : NAN, y > 0 ? log(y) : NAN);
}

/* Sum of squares of x about its mean. */
static double spread(const hark_lab_line *line) { return line->xx - line->x * line->x / line->count; }

hark_lab_fit hark_lab_line_fit(const hark_lab_line *line) {
  const double n = line->count, across = spread(line), both = line->xy - line->x * line->y / n, up = line->yy - line->y * line->y / n;
  hark_lab_fit fit = {NAN, NAN, NAN};
  if (n < 2 || !(across > 0)) return fit;
  fit.slope = both / across;
  fit.intercept = line->first_y + line->y / n - fit.slope * (line->first_x + line->x / n);
  if (n > 2) fit.error = sqrt(hark_larger(up - fit.slope * both, 0) / ((n - 2) * across));
  return fit;
}

double hark_lab_line_error(const hark_lab_line *line, double deviation) { return deviation / sqrt(spread(line)); }

/* The decrease of the weighted sum of squares of y by the best c for the power s; x is in units of `unit`. */
static double taken_off(int64_t count, const double *x, const double *y, const double *error, double unit, double s) {
  double both = 0, square = 0;
  for (int64_t i = 0; i < count; i++) {
    const double g = pow(x[i] / unit, s) / error[i];
    both += g * y[i] / error[i];
    square += g * g;
  }
  return both > 0 ? both * both / square : 0;
}

double hark_lab_power(int64_t count, const double *x, const double *y, const double *error) {
  const double most = 4, step = 1. / 64;
  double unit = 0, best = 0, taken = 0;
  for (int64_t i = 0; i < count; i++) {
    if (!(x[i] > 0) || !(error[i] > 0) || !isfinite(y[i])) return NAN;
    unit += log(x[i]) / (double)count;
  }
  unit = exp(unit);
  for (int i = 0; i <= (int)(2 * most / step); i++) {
    const double s = -most + i * step, now = taken_off(count, x, y, error, unit, s);
    if (now <= taken) continue;
    taken = now;
    best = s;
  }
  for (int halving = 0; taken > 0 && halving < 24; halving++) /* halves the interval around the best one, down to 1e-9 */
    for (int side = -1; side <= 1; side += 2) {
      const double width = ldexp(step, -halving);
      const double s = hark_larger(-most, hark_smaller(best + side * width, most)), now = taken_off(count, x, y, error, unit, s);
      if (now <= taken) continue;
      taken = now;
      best = s;
    }
  return best;
}

void hark_lab_mean_add(hark_lab_mean *mean, double value) {
  const double from = value - mean->mean;
  mean->count += 1;
  mean->mean += from / mean->count;
  mean->squares += from * (value - mean->mean);
}

double hark_lab_mean_error(const hark_lab_mean *mean) {
  return mean->count > 1 ? sqrt(mean->squares / (mean->count - 1) / mean->count) : NAN;
}
