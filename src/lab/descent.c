/* descent.c - see descent.h. */
#include "lab/descent.h"

#include <string.h>

#include "lab/matrix.h"

#define MOMENTUM 0.9
#define SQUARES 0.999
#define TINY 1e-12
#define SUFFICIENT 1e-4             /* of the decrease that the slope promises */
#define ROUNDING 1e-15              /* of a value */
#define LONGER 1.1                  /* after a step that the model bounds */
#define CURVATURE 0.9               /* the slope after a step may be at most this fraction of the slope before */
enum { HALVINGS = 60, ARRAYS = 4 }; /* arrays in addition to the pairs */

hark_status hark_lab_make_descent(hark_lab *lab, int64_t dims, int pairs, hark_lab_descent *descent) {
  *descent = (hark_lab_descent){.lab = lab, .dims = dims, .pairs = pairs < HARK_LAB_MOST_PAIRS ? pairs : HARK_LAB_MOST_PAIRS};
  HARK_TRY(hark_lab_numbers(lab, dims, &descent->x));
  HARK_TRY(hark_lab_numbers(lab, dims, &descent->gradient));
  return hark_lab_numbers(lab, dims * (ARRAYS + 2 * descent->pairs), &descent->memory);
}

static void copy(int64_t count, const double *from, double *to) { memcpy(to, from, (size_t)count * sizeof *to); }

static hark_status evaluate(const hark_lab_objective *objective, hark_lab_descent *d) {
  hark_lab_tick(d->lab, 0, 0);
  HARK_TRY(objective->evaluate(objective->user, d->x, &d->value, d->gradient));
  d->norm = sqrt(hark_lab_dot(d->gradient, d->gradient, d->dims));
  d->evaluations++;
  return HARK_OK;
}

hark_status hark_lab_descend(hark_lab *lab, const hark_lab_objective *objective, hark_lab_adam how, hark_lab_descent *d) {
  const int64_t dims = d->dims;
  double *const first = d->memory, *const second = first + dims, *const best = second + dims, least = INFINITY, momentum = 1, squares = 1;
  memset(first, 0, (size_t)(2 * dims) * sizeof *first);
  if (objective->project != NULL) objective->project(objective->user, d->x);
  for (int step = 0; step <= how.steps; step++) {
    HARK_TRY(evaluate(objective, d));
    hark_lab_tick(lab, step, how.steps);
    if (!isfinite(d->value)) return hark_fail(lab->context, HARK_NOT_FINITE, "a loss is %g after %d steps of Adam", d->value, step);
    if (how.last || d->value < least) {
      least = d->value;
      copy(dims, d->x, best);
    }
    if (step == how.steps) break;
    const double rate = how.rate * (1 - (double)step / how.steps);
    momentum *= MOMENTUM;
    squares *= SQUARES;
    for (int64_t i = 0; i < dims; i++) {
      const double slope = d->gradient[i];
      first[i] = MOMENTUM * first[i] + (1 - MOMENTUM) * slope;
      second[i] = SQUARES * second[i] + (1 - SQUARES) * slope * slope;
      d->x[i] -= rate * first[i] / (1 - momentum) / (sqrt(second[i] / (1 - squares)) + TINY);
    }
    if (objective->project != NULL) objective->project(objective->user, d->x);
  }
  copy(dims, best, d->x);
  d->value = least;
  return HARK_OK;
}

/* ---- accelerated projected gradients ---- */

static double gap_of(const hark_lab_objective *objective, const hark_lab_descent *d) {
  return objective->gap == NULL ? d->norm : objective->gap(objective->user, d->x, d->gradient);
}

/* x <- project(from - step slope), where the model value + slope.(x - from) + |x - from|^2 / (2 step) bounds the value; *step is halved
 * until it does. */
static hark_status model_step(const hark_lab_objective *objective, const double *from, const double *slope, double value, double *step,
                              hark_lab_descent *d) {
  for (int halving = 0; halving < HALVINGS; halving++) {
    double along = 0, square = 0;
    for (int64_t i = 0; i < d->dims; i++) d->x[i] = from[i] - *step * slope[i];
    if (objective->project != NULL) objective->project(objective->user, d->x);
    HARK_TRY(evaluate(objective, d));
    for (int64_t i = 0; i < d->dims; i++) {
      along += slope[i] * (d->x[i] - from[i]);
      square += (d->x[i] - from[i]) * (d->x[i] - from[i]);
    }
    if (d->value <= value + along + square / (2 * *step) + ROUNDING * fabs(value)) break;
    *step /= 2;
  }
  return HARK_OK;
}

hark_status hark_lab_project_gradients(const hark_lab_objective *objective, int evaluations, double tolerance, hark_lab_descent *d) {
  const int64_t dims = d->dims;
  double *const last = d->memory, *const ahead = last + dims, *const slope = ahead + dims;
  double momentum = 1, step = 1;
  d->evaluations = 0;
  if (objective->project != NULL) objective->project(objective->user, d->x);
  HARK_TRY(evaluate(objective, d));
  d->norm = gap_of(objective, d);
  while (d->norm > tolerance && d->evaluations < evaluations) {
    const double before = d->value, weight = (1 + sqrt(1 + 4 * momentum * momentum)) / 2;
    if (momentum == 1) {
      copy(dims, d->x, ahead);
      copy(dims, d->x, last);
    } else {
      copy(dims, d->x, slope);
      for (int64_t i = 0; i < dims; i++) ahead[i] = d->x[i] + (momentum - 1) / weight * (d->x[i] - last[i]);
      copy(dims, slope, last);
      copy(dims, ahead, d->x);
      HARK_TRY(evaluate(objective, d));
    }
    copy(dims, d->gradient, slope);
    HARK_TRY(model_step(objective, ahead, slope, d->value, &step, d));
    momentum = weight;
    if (d->value > before) { /* back, and without momentum */
      copy(dims, last, d->x);
      HARK_TRY(evaluate(objective, d));
      momentum = 1;
    }
    step *= LONGER;
    d->norm = gap_of(objective, d);
  }
  return HARK_OK;
}

/* ---- L-BFGS ---- */

/* The last changes of x and of the gradient, the newest last. */
typedef struct history {
  int count;
  double *steps[HARK_LAB_MOST_PAIRS], *changes[HARK_LAB_MOST_PAIRS];
} history;

/* direction <- -H gradient, the recursion over the pairs */
static void find_direction(int64_t dims, const history *h, const double *gradient, double *direction) {
  double along[HARK_LAB_MOST_PAIRS];
  for (int64_t i = 0; i < dims; i++) direction[i] = -gradient[i];
  if (h->count == 0) return;
  for (int p = h->count - 1; p >= 0; p--) {
    along[p] = hark_lab_dot(h->steps[p], direction, dims) / hark_lab_dot(h->steps[p], h->changes[p], dims);
    for (int64_t i = 0; i < dims; i++) direction[i] -= along[p] * h->changes[p][i];
  }
  const double *const step = h->steps[h->count - 1], *const change = h->changes[h->count - 1];
  const double scale = hark_lab_dot(step, change, dims) / hark_lab_dot(change, change, dims);
  for (int64_t i = 0; i < dims; i++) direction[i] *= scale;
  for (int p = 0; p < h->count; p++) {
    const double back = along[p] - hark_lab_dot(h->changes[p], direction, dims) / hark_lab_dot(h->steps[p], h->changes[p], dims);
    for (int64_t i = 0; i < dims; i++) direction[i] += back * h->steps[p][i];
  }
}

/* A new pair of x - from and gradient - was; it replaces the oldest when there are too many. A pair without curvature is left out. */
static void remember(hark_lab_descent *d, history *h, const double *from, const double *was) {
  if (h->count == d->pairs) {
    double *const step = h->steps[0], *const change = h->changes[0];
    memmove(h->steps, h->steps + 1, (size_t)(d->pairs - 1) * sizeof h->steps[0]);
    memmove(h->changes, h->changes + 1, (size_t)(d->pairs - 1) * sizeof h->changes[0]);
    h->steps[d->pairs - 1] = step;
    h->changes[d->pairs - 1] = change;
    h->count--;
  }
  double *const step = h->steps[h->count], *const change = h->changes[h->count];
  for (int64_t i = 0; i < d->dims; i++) {
    step[i] = d->x[i] - from[i];
    change[i] = d->gradient[i] - was[i];
  }
  h->count += hark_lab_dot(step, change, d->dims) > 0;
}

/* A step along the direction that satisfies both conditions; false when halving finds no lower point; then d is at `from` again. */
static hark_status search_line(const hark_lab_objective *objective, int evaluations, const double *direction, const double *from,
                               const double *was, double first, hark_lab_descent *d, bool *found) {
  const double value = d->value, slope = hark_lab_dot(was, direction, d->dims);
  double low = 0, high = INFINITY, step = first;
  *found = false;
  for (int halving = 0; halving < HALVINGS && d->evaluations < evaluations; halving++) {
    for (int64_t i = 0; i < d->dims; i++) d->x[i] = from[i] + step * direction[i];
    HARK_TRY(evaluate(objective, d));
    if (!(d->value <= value + SUFFICIENT * step * slope))
      high = step;
    else if (hark_lab_dot(d->gradient, direction, d->dims) < CURVATURE * slope)
      low = step;
    else {
      *found = true;
      return HARK_OK;
    }
    step = isinf(high) ? 2 * low : (low + high) / 2;
  }
  /* at a kink no point may fulfil the second condition, though there are lower ones */
  for (int64_t i = 0; i < d->dims; i++) d->x[i] = from[i] + low * direction[i];
  HARK_TRY(evaluate(objective, d));
  *found = low > 0 && d->value < value;
  return HARK_OK;
}

hark_status hark_lab_quasi_newton(const hark_lab_objective *objective, int evaluations, double tolerance, hark_lab_descent *d) {
  const int64_t dims = d->dims;
  double *const direction = d->memory, *const from = direction + dims, *const was = from + dims;
  history h = {.count = 0};
  for (int p = 0; p < d->pairs; p++) {
    h.steps[p] = was + dims * (1 + 2 * p);
    h.changes[p] = h.steps[p] + dims;
  }
  d->evaluations = 0;
  HARK_TRY(evaluate(objective, d));
  while (d->norm > tolerance && d->evaluations < evaluations) {
    bool found;
    const bool plain = h.count == 0;
    copy(dims, d->x, from);
    copy(dims, d->gradient, was);
    find_direction(dims, &h, d->gradient, direction);
    HARK_TRY(search_line(objective, evaluations, direction, from, was, plain ? 1 / (1 + d->norm) : 1, d, &found));
    if (found)
      remember(d, &h, from, was);
    else if (plain)
      break;
    else
      h.count = 0; /* once more, along the gradient */
  }
  return HARK_OK;
}
