/* table_inputs.c - see table_inputs.h. */
#include "data/tasks/table_inputs.h"

#include <math.h>

#define DEVIATION 0.57735026918962576 /* of a uniform number in [-1, 1] */
#define MOST_VALUES 6
#define PART_OF_VALUES 0.2
#define PART_OF_EXPONENTIALS 0.1
#define PART_LOST 0.1 /* of the inputs of a table, at most */

static int64_t drawn_count(hark_task_random *random, int64_t most) {
  return hark_min(most, (int64_t)pow((double)most + 1, hark_task_random_uniform(random)));
}

/* Column c <- uniform or normal numbers. */
static void fill_independent(hark_task_random *random, int64_t rows, int64_t inputs, int64_t c, double *x) {
  const bool normal = hark_task_random_below(random, 2) == 0;
  for (int64_t i = 0; i < rows; i++) {
    double number = 2 * hark_task_random_uniform(random) - 1;
    if (normal) hark_task_fill_normal(random, DEVIATION, 1, &number);
    x[i * inputs + c] = number;
  }
}

/* Column c <- part of the hidden variables, with a random direction, and of itself. hidden [rows, count], direction [count]. */
static void mix(hark_task_random *random, int64_t rows, int64_t inputs, int64_t c, int64_t count, const double *hidden, double *direction,
                double *x) {
  const double part = hark_task_random_uniform(random);
  double squares = 0;
  hark_task_fill_normal(random, 1, count, direction);
  for (int64_t k = 0; k < count; k++) squares += direction[k] * direction[k];
  for (int64_t i = 0; i < rows; i++) {
    double sum = 0;
    for (int64_t k = 0; k < count; k++) sum += direction[k] * hidden[i * count + k];
    x[i * inputs + c] = sqrt(part / squares) * sum + sqrt(1 - part) * x[i * inputs + c];
  }
}

/* One of a few values, at cuts between them. */
static double rounded(double number, int32_t values) {
  const double place = floor((number / DEVIATION + 1.5) / 3 * values);
  return DEVIATION * (2 * fmin(fmax(place, 0), values - 1) / (values - 1) - 1);
}

static void change_kind(hark_task_random *random, int64_t rows, int64_t inputs, int64_t c, double *x) {
  const double kind = hark_task_random_uniform(random);
  const int32_t values = 2 + hark_task_random_below(random, MOST_VALUES - 1);
  for (int64_t i = 0; i < rows; i++) {
    double *const number = &x[i * inputs + c];
    if (kind < PART_OF_VALUES)
      *number = rounded(*number, values);
    else if (kind < PART_OF_VALUES + PART_OF_EXPONENTIALS)
      *number = DEVIATION * (exp(*number / DEVIATION) - 1.6) / 2; /* of about the same mean and deviation */
  }
}

/* weight [count]: its squares have the sum 1, and with a probability that is drawn first a weight is 0. */
static void draw_weights(hark_task_random *random, int64_t count, double *weight) {
  const double part = 0.2 + 0.8 * hark_task_random_uniform(random);
  const int32_t kept = hark_task_random_below(random, (int32_t)count);
  double squares = 0;
  hark_task_fill_normal(random, 1, count, weight);
  for (int64_t c = 0; c < count; c++) {
    weight[c] = hark_task_random_uniform(random) < part || c == kept ? exp(weight[c] / 2) : 0;
    squares += weight[c] * weight[c];
  }
  for (int64_t c = 0; c < count; c++) weight[c] /= sqrt(squares);
}

void hark_table_inputs(hark_task_random *random, int64_t rows, int64_t inputs, double *x, double *seen, double *scratch) {
  const int64_t count = drawn_count(random, inputs), hidden_count = drawn_count(random, count);
  double *const hidden = scratch, *const direction = hidden + rows * inputs, *const weight = direction + inputs;
  const bool independent = hark_task_random_below(random, 2) == 0;
  for (int64_t i = 0; i < rows * inputs; i++) x[i] = seen[i] = 0;
  hark_task_fill_normal(random, DEVIATION, rows * hidden_count, hidden);
  for (int64_t c = 0; c < count; c++) {
    fill_independent(random, rows, inputs, c, x);
    if (!independent) mix(random, rows, inputs, c, hidden_count, hidden, direction, x);
    change_kind(random, rows, inputs, c, x);
  }
  draw_weights(random, count, weight);
  for (int64_t i = 0; i < rows * inputs; i++)
    if (i % inputs < count) seen[i] = weight[i % inputs] * x[i];
}

void hark_table_lose_inputs(hark_task_random *random, int64_t rows, int64_t inputs, double *x) {
  const double part = PART_LOST * hark_task_random_uniform(random);
  if (hark_task_random_below(random, 5) != 0) return;
  for (int64_t i = 0; i < rows * inputs; i++)
    if (hark_task_random_uniform(random) < part) x[i] = NAN;
}
