/* aggregation.c - see aggregation.h. */
#include "lab/aggregation.h"

#include <string.h>

#include "lab/matrix.h"

enum { P = HARK_LAB_AGGREGATION };

hark_status hark_lab_make_pool(hark_lab *lab, int64_t count, double noise, hark_lab_pool *out) {
  *out = (hark_lab_pool){.count = count, .noise = noise};
  HARK_TRY(hark_lab_numbers(lab, count * P, &out->features));
  HARK_TRY(hark_lab_numbers(lab, count, &out->means));
  return hark_lab_numbers(lab, count, &out->y);
}

int hark_lab_fit_aggregation(int64_t count, const double *features, const double *y, double ridge, double theta[P]) {
  double gram[P * P] = {0}, moments[P] = {0}, values[P], vectors[P * P];
  int rank = 0;
  hark_lab_add_left_transposed(P, count, P, features, features, gram);
  hark_lab_add_left_transposed(P, count, 1, features, y, moments);
  hark_lab_eigen(P, gram, values, vectors);
  for (int c = 0; c < P; c++) theta[c] = 0;
  while (rank < P && values[rank] > 1e-13 * values[0]) {
    const double *const v = vectors + (ptrdiff_t)rank * P;
    const double along = hark_lab_dot(v, moments, P) / (values[rank] + ridge);
    rank++;
    for (int c = 0; c < P; c++) theta[c] += along * v[c];
  }
  return rank;
}

hark_lab_moments hark_lab_moments_of(const hark_lab_pool *population) {
  hark_lab_moments m = {.square = 0};
  const double n = (double)population->count;
  hark_lab_add_left_transposed(P, population->count, P, population->features, population->features, m.gram);
  hark_lab_add_left_transposed(P, population->count, 1, population->features, population->means, m.cross);
  m.square = population->noise + hark_lab_dot(population->means, population->means, population->count) / n;
  for (int i = 0; i < P; i++) m.cross[i] /= n;
  for (int i = 0; i < P * P; i++) m.gram[i] /= n;
  return m;
}

double hark_lab_loss_from(const hark_lab_moments *m, const double *theta) {
  double sum = m->square;
  for (int i = 0; i < P; i++) sum += theta[i] * (hark_lab_dot(m->gram + (ptrdiff_t)i * P, theta, P) - 2 * m->cross[i]);
  return sum;
}

static double loss_of(int64_t count, const double *features, const double *y, const double *theta) {
  double sum = 0;
  for (int64_t i = 0; i < count; i++) {
    const double error = y[i] - hark_lab_dot(features + i * P, theta, P);
    sum += error * error / (double)count;
  }
  return sum;
}

void hark_lab_add_gaps(const hark_lab_pool *pieces, const hark_lab_moments *population, const double *best, int64_t n, hark_lab_mean *gap) {
  double theta[P];
  const double best_loss = hark_lab_loss_from(population, best);
  for (int64_t first = 0; first + n <= pieces->count; first += n) {
    const double *const features = pieces->features + first * P, *const y = pieces->y + first;
    (void)hark_lab_fit_aggregation(n, features, y, pieces->ridge, theta);
    hark_lab_mean_add(gap,
                      hark_lab_loss_from(population, theta) - best_loss + loss_of(n, features, y, best) - loss_of(n, features, y, theta));
  }
}

double hark_lab_first_order_gap(const hark_lab_moments *moments, double loss, double ridge, double n) {
  double gram[P * P], values[P], vectors[P * P], free = 0;
  memcpy(gram, moments->gram, sizeof gram);
  hark_lab_eigen(P, gram, values, vectors);
  for (int k = 0; k < P; k++) free += values[k] > 0 ? values[k] / (values[k] + ridge / n) : 0;
  return 2 * loss * free / n;
}

hark_lab_gap_verdict hark_lab_judge_gaps(const hark_lab_table *table, hark_lab_gap_columns at) {
  hark_lab_gap_verdict v = {.least = INFINITY, .largest = 0, .shallow = -INFINITY};
  const int64_t rows = hark_lab_row_count(table);
  for (int64_t i = 0; i < rows; i++) {
    const double *const row = hark_lab_row(table, i);
    hark_lab_line line = {0};
    for (int64_t j = 0; j < rows; j++) {
      const double *const other = hark_lab_row(table, j);
      if (other[at.width] == row[at.width]) hark_lab_line_add_power(&line, other[at.count], other[at.gap]);
    }
    v.shallow = hark_lab_larger(v.shallow, hark_lab_line_fit(&line).slope);
    v.largest = hark_lab_larger(v.largest, row[at.gap] / row[at.expected]);
    if (row[at.count] >= HARK_LAB_MANY) v.least = hark_lab_smaller(v.least, row[at.gap] / row[at.first_order]);
  }
  return v;
}

hark_status hark_lab_draw_gaps(hark_lab *lab, const char *title, const hark_lab_table *table, hark_lab_gap_columns at,
                               const int64_t *widths, int width_count) {
  const hark_lab_axes axes = {.title = title, .x = "n", .y = "gap", .log_x = true, .log_y = true};
  hark_lab_panel *panel;
  hark_lab_curve *curve;
  HARK_TRY(hark_lab_add_panel(lab, axes, &panel));
  for (int w = 0; w <= width_count; w++) {
    const bool line = w == width_count;
    const int64_t width = widths[line ? 0 : w];
    if (line)
      HARK_TRY(hark_lab_add_curve(lab, panel, HARK_LAB_LINE, &curve, "expected"));
    else
      HARK_TRY(hark_lab_add_curve(lab, panel, HARK_LAB_POINTS, &curve, "width %lld", (long long)width));
    for (int64_t i = 0; i < hark_lab_row_count(table); i++) {
      const double *const row = hark_lab_row(table, i), y = row[line ? at.expected : at.gap];
      if (row[at.width] == (double)width && y > 0) HARK_TRY(hark_lab_add_point(curve, row[at.count], y));
    }
  }
  return HARK_OK;
}
