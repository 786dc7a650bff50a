/* adafactor.c - one step of Adafactor in place (the formulas: ops/adafactor.c).
 *
 * Limited by memory. Factored moments: 20 bytes per number (the gradient is read three times, the weight once, and written). Others: 28.
 * 4 more if the rate is relative, where the weight is read twice. Squares are added in double. Shazeer, Stern, arXiv 1804.04235.
 */
#include "core/adafactor.h"
#include <float.h>
#include <math.h>

#include "backend/cpu/isa/kernels.h"
#include "backend/cpu/ranges.h"

#define SUMS 16 /* independent sums of a row: whole vectors of doubles in every instruction set */

enum { WEIGHT, GRADIENT, SECOND_MOMENT, COLUMN_MOMENT, FIRST_MOMENT };

typedef struct step {
  const hark_adafactor_attributes *attributes;
  float *weight, *first_moment, *second, *column; /* first_moment, column: NULL if absent */
  const float *gradient;
  int64_t rows, columns;
  hark_adafactor_totals *totals;
  double *sums; /* [pieces, columns] */
  float *roots; /* [columns] 1 / sqrt(c) */
  float scale;
} step;

static step step_of(const hark_call *call) {
  const hark_tensor *const in = call->inputs;
  step s = {.attributes = call->attributes,
            .weight = in[WEIGHT].data,
            .gradient = in[GRADIENT].data,
            .second = in[SECOND_MOMENT].data,
            .rows = hark_tensor_count(&in[WEIGHT]),
            .columns = 1,
            .totals = hark_adafactor_totals_of(call->workspace)};
  s.scale = (float)s.attributes->gradient_scale;
  if (in[FIRST_MOMENT].type != HARK_NONE) s.first_moment = in[FIRST_MOMENT].data;
  if (in[COLUMN_MOMENT].type == HARK_NONE) return s;
  s.column = in[COLUMN_MOMENT].data;
  s.rows = in[WEIGHT].shape[0];
  s.columns = in[WEIGHT].shape[1];
  s.sums = hark_adafactor_columns_of(call->workspace);
  s.roots = (float *)(s.sums + hark_adafactor_pieces(s.rows, s.columns) * s.columns);
  return s;
}

static double total_of(double sum[SUMS]) {
  for (int width = SUMS / 2; width > 0; width /= 2)
    for (int j = 0; j < width; j++) sum[j] += sum[j + width];
  return sum[0];
}

/* The sum of (scale x y)^2; y NULL: ones. */
static double squares(const float *restrict x, const float *restrict y, float scale, int64_t count) {
  double sum[SUMS] = {0};
  int64_t i = 0;
  for (; i + SUMS <= count; i += SUMS) {
    for (int j = 0; j < SUMS; j++) {
      const double z = (double)(y != NULL ? scale * x[i + j] * y[i + j] : scale * x[i + j]);
      sum[j] += z * z;
    }
  }
  for (int j = 0; i < count; i++, j++) {
    const double z = (double)(y != NULL ? scale * x[i] * y[i] : scale * x[i]);
    sum[j] += z * z;
  }
  return total_of(sum);
}

/* ---- factored moments ---- */

/* The sum of (scale x)^2, which are also added to `columns`. */
static double squares_by_column(const float *restrict x, float scale, int64_t count, double *restrict columns) {
  double sum[SUMS] = {0};
  int64_t i = 0;
  for (; i + SUMS <= count; i += SUMS) {
    for (int j = 0; j < SUMS; j++) {
      const double z = (double)(scale * x[i + j]);
      sum[j] += z * z;
      columns[i + j] += z * z;
    }
  }
  for (int j = 0; i < count; i++, j++) {
    const double z = (double)(scale * x[i]);
    sum[j] += z * z;
    columns[i] += z * z;
  }
  return total_of(sum);
}

/* beta2 moment + (1 - beta2) (mean + epsilon) */
static float renewed(const hark_adafactor_attributes *a, float moment, double mean) {
  return (float)hark_adafactor_moment(a->beta2 * (double)moment + (1 - a->beta2) * (mean + a->epsilon), (double)FLT_MAX);
}

/* The same for a single number; in f32, where the largest number takes the place of infinity. */
static inline float renewed_number(float beta2, float rest, float epsilon, float moment, float g) {
  const float v = beta2 * moment + ((rest * g) * g + rest * epsilon); /* g g may be too large where v is not */
  return v > FLT_MAX ? FLT_MAX : v;
}

static void renew_rows(const hark_call *call, int64_t first, int64_t last) {
  const step s = step_of(call);
  double *const columns = s.sums + first / hark_adafactor_piece(s.rows, s.columns) * s.columns;
  for (int64_t j = 0; j < s.columns; j++) columns[j] = 0;
  for (int64_t i = first; i < last; i++) {
    const double sum = squares_by_column(s.gradient + i * s.columns, s.scale, s.columns, columns);
    s.second[i] = renewed(s.attributes, s.second[i], sum / (double)s.columns);
  }
}

static void renew_columns(const hark_call *call, int64_t first, int64_t last) {
  const step s = step_of(call);
  const int64_t pieces = hark_adafactor_pieces(s.rows, s.columns);
  for (int64_t j = first; j < last; j++) {
    double sum = 0;
    for (int64_t piece = 0; piece < pieces; piece++) sum += s.sums[piece * s.columns + j];
    s.column[j] = renewed(s.attributes, s.column[j], sum / (double)s.rows);
    s.roots[j] = (float)(1 / sqrt((double)s.column[j]));
  }
}

static double mean_of(const float *x, int64_t count) {
  double sum[SUMS] = {0};
  int64_t i = 0;
  for (; i + SUMS <= count; i += SUMS)
    for (int j = 0; j < SUMS; j++) sum[j] += (double)x[i + j];
  for (int j = 0; i < count; i++, j++) sum[j] += (double)x[i];
  return total_of(sum) / (double)count;
}

/* U_ij = g_ij roots_j root_of_row(i) */
static double root_of_row(const step *s, int64_t i) { return sqrt(s->totals->row_mean / (double)s->second[i]); }

static void add_squares_of_rows(const hark_call *call, int64_t first, int64_t last) {
  const step s = step_of(call);
  const int64_t piece = first / hark_adafactor_piece(s.rows, s.columns), m = s.columns;
  double updates = 0;
  for (int64_t i = first; i < last; i++) {
    const double root = root_of_row(&s, i);
    updates += root * root * squares(s.gradient + i * m, s.roots, s.scale, m);
  }
  s.totals->updates[piece] = updates;
  s.totals->weights[piece] = s.attributes->least_scale > 0 ? squares(s.weight + first * m, NULL, 1, (last - first) * m) : 0;
}

/* w -= factor scale g roots + decay w, or the average of these updates instead of the first term. */
static void step_row(const step *s, float factor, float decay, const float *restrict g, float *restrict w, float *restrict average) {
  const float beta1 = (float)s->attributes->beta1, rest = (float)(1 - s->attributes->beta1), scale = s->scale;
  const float *restrict const roots = s->roots;
  if (average == NULL) {
    for (int64_t j = 0; j < s->columns; j++) w[j] -= scale * g[j] * roots[j] * factor + decay * w[j];
    return;
  }
  for (int64_t j = 0; j < s->columns; j++) {
    average[j] = beta1 * average[j] + rest * (scale * g[j] * roots[j] * factor);
    w[j] -= average[j] + decay * w[j];
  }
}

static void step_rows(const hark_call *call, int64_t first, int64_t last) {
  const step s = step_of(call);
  const float decay = (float)(s.attributes->rate * s.attributes->decay);
  for (int64_t i = first; i < last; i++) {
    const float factor = (float)(root_of_row(&s, i) * s.totals->factor);
    const int64_t at = i * s.columns;
    step_row(&s, factor, decay, s.gradient + at, s.weight + at, s.first_moment == NULL ? NULL : s.first_moment + at);
  }
}

/* ---- moments of single numbers ---- */

static void renew_numbers(const hark_call *call, int64_t first, int64_t last) {
  const step s = step_of(call);
  const float beta2 = (float)s.attributes->beta2, rest = (float)(1 - s.attributes->beta2), epsilon = (float)s.attributes->epsilon;
  const float *restrict const gradient = s.gradient;
  float *restrict const second = s.second;
  const int64_t piece = first / hark_adafactor_piece(s.rows, 1);
  double sum[SUMS] = {0};
  int64_t i = first;
  for (; i + SUMS <= last; i += SUMS) {
    for (int j = 0; j < SUMS; j++) {
      const float g = s.scale * gradient[i + j], v = renewed_number(beta2, rest, epsilon, second[i + j], g);
      second[i + j] = v;
      sum[j] += (double)g * (double)g / (double)v;
    }
  }
  for (int j = 0; i < last; i++, j++) {
    const float g = s.scale * gradient[i], v = renewed_number(beta2, rest, epsilon, second[i], g);
    second[i] = v;
    sum[j] += (double)g * (double)g / (double)v;
  }
  s.totals->updates[piece] = total_of(sum);
  s.totals->weights[piece] = s.attributes->least_scale > 0 ? squares(s.weight + first, NULL, 1, last - first) : 0;
}

static void step_numbers(const hark_call *call, int64_t first, int64_t last) {
  const step s = step_of(call);
  const float factor = (float)s.totals->factor, decay = (float)(s.attributes->rate * s.attributes->decay), scale = s.scale;
  const float beta1 = (float)s.attributes->beta1, rest = (float)(1 - s.attributes->beta1);
  const float *restrict const g = s.gradient, *restrict const v = s.second;
  float *restrict const w = s.weight, *restrict const average = s.first_moment;
  if (average == NULL) {
    for (int64_t i = first; i < last; i++) w[i] -= scale * g[i] / sqrtf(v[i]) * factor + decay * w[i];
    return;
  }
  for (int64_t i = first; i < last; i++) {
    average[i] = beta1 * average[i] + rest * (scale * g[i] / sqrtf(v[i]) * factor);
    w[i] -= average[i] + decay * w[i];
  }
}

/* ---- the step ---- */

hark_status HARK_ISA(hark_cpu_adafactor_forward)(hark_context *context, const hark_call *call) {
  const step s = step_of(call);
  const int64_t piece = hark_adafactor_piece(s.rows, s.columns);
  if (!isfinite(s.attributes->gradient_scale) || s.rows == 0 || s.columns == 0) return HARK_OK; /* the step is skipped */
  if (s.column == NULL) {
    hark_cpu_ranges(context, call, s.rows, piece, piece + 1, renew_numbers);
    s.totals->factor = hark_adafactor_factor(s.attributes, s.totals, s.rows, s.columns);
    hark_cpu_ranges(context, call, s.rows, piece, piece + 1, step_numbers);
    return HARK_OK;
  }
  hark_cpu_ranges(context, call, s.rows, piece, piece + 1, renew_rows);
  hark_cpu_ranges(context, call, s.columns, SUMS * SUMS, HARK_CPU_GRAIN / HARK_ADAFACTOR_PIECES, renew_columns);
  s.totals->row_mean = mean_of(s.second, s.rows);
  const bool summed = s.attributes->least_scale > 0 || s.attributes->most > 0;
  if (summed) hark_cpu_ranges(context, call, s.rows, piece, piece + 1, add_squares_of_rows);
  s.totals->factor = summed ? hark_adafactor_factor(s.attributes, s.totals, s.rows, s.columns) : s.attributes->rate;
  hark_cpu_ranges(context, call, s.rows, piece, piece + 1, step_rows);
  return HARK_OK;
}
