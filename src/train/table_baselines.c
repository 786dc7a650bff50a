/* table_baselines.c - see table_baselines.h. */
#include "train/table_baselines.h"

#include <math.h>

#define LOG_TWO_PI 1.8378770664093454836
#define NINETY_PERCENT 1.6448536269514727 /* deviations on each side of the mean, of an interval with a probability of .9 */

void hark_table_sums_add(const hark_column_scale *scale, double target, double mean, double log_variance, hark_table_sums *sums) {
  const double error = target - mean, deviation = exp(0.5 * log_variance);
  sums->loss += log(scale->deviation) + 0.5 * (LOG_TWO_PI + log_variance + error * error / (deviation * deviation));
  sums->squared_error += error * error * scale->deviation * scale->deviation;
  sums->covered += fabs(error) <= NINETY_PERCENT * deviation;
}

/* A regression with D coefficients: the lower triangle of A becomes L with A = L L', and `solved` [D, R] is L^-1 Z'y. */
typedef struct regression {
  int64_t features, width, responses; /* width: D */
  double *a, *solved, *z, *squares;   /* [D, D], [D, R], [D], [R]: y'y */
} regression;

static void read_row(const regression *g, const float *inputs) {
  g->z[0] = 1;
  for (int64_t i = 1; i < g->width; i++) g->z[i] = inputs[i - 1];
}

/* x <- L^-1 x, of vectors [D] `stride` apart. */
static void forward_solve(const regression *g, double *x, int64_t stride) {
  for (int64_t i = 0; i < g->width; i++) {
    for (int64_t k = 0; k < i; k++) x[i * stride] -= g->a[i * g->width + k] * x[k * stride];
    x[i * stride] /= g->a[i * g->width + i];
  }
}

static void factor(const regression *g) {
  for (int64_t i = 0; i < g->width; i++)
    for (int64_t j = 0; j <= i; j++) {
      double sum = g->a[i * g->width + j];
      for (int64_t k = 0; k < j; k++) sum -= g->a[i * g->width + k] * g->a[j * g->width + k];
      g->a[i * g->width + j] = i == j ? sqrt(sum) : sum / g->a[j * g->width + j];
    }
}

static void regress(const regression *g, const float *inputs, const float *targets, int64_t rows) {
  for (int64_t i = 0; i < g->width * g->width; i++) g->a[i] = i % (g->width + 1) == 0 ? 1 : 0;
  for (int64_t i = 0; i < g->width * g->responses; i++) g->solved[i] = 0;
  for (int64_t r = 0; r < g->responses; r++) g->squares[r] = 0;
  for (int64_t n = 0; n < rows; n++) {
    read_row(g, inputs + n * g->features);
    for (int64_t i = 0; i < g->width; i++) {
      for (int64_t j = 0; j <= i; j++) g->a[i * g->width + j] += g->z[i] * g->z[j];
      for (int64_t r = 0; r < g->responses; r++) g->solved[i * g->responses + r] += g->z[i] * targets[n * g->responses + r];
    }
    for (int64_t r = 0; r < g->responses; r++) g->squares[r] += (double)targets[n * g->responses + r] * targets[n * g->responses + r];
  }
  factor(g);
  for (int64_t r = 0; r < g->responses; r++) forward_solve(g, g->solved + r, g->responses);
}

static void measure_query(const regression *g, int64_t rows, const float *inputs, const float *targets, const hark_column_scale *scales,
                          hark_table_sums *sums) {
  double leverage = 0;
  read_row(g, inputs);
  forward_solve(g, g->z, 1);
  for (int64_t i = 0; i < g->width; i++) leverage += g->z[i] * g->z[i];
  for (int64_t r = 0; r < g->responses; r++) {
    double mean = 0, fitted = 0;
    for (int64_t i = 0; i < g->width; i++) {
      const double solved = g->solved[i * g->responses + r];
      mean += g->z[i] * solved;
      fitted += solved * solved;
    }
    const double scale = (1 + fmax(g->squares[r] - fitted, 0) / 2) / (1 + (double)rows / 2);
    hark_table_sums_add(&scales[r], targets[r], mean, log(scale * (1 + leverage)), sums);
  }
}

hark_status hark_table_baseline(hark_context *context, const hark_example_batch *batch, int64_t features, int64_t responses, bool linear,
                                hark_table_sums *sums) {
  const int64_t width = linear ? 1 + features : 1;
  size_t numbers, bytes;
  void *memory = NULL;
  HARK_TRY(hark_size_multiply(context, (size_t)width, (size_t)(width + responses + 1), &numbers));
  HARK_TRY(hark_size_multiply(context, numbers + (size_t)responses, sizeof(double), &bytes));
  HARK_TRY(hark_allocate(context, bytes, &memory));
  regression g = {.features = features, .width = width, .responses = responses, .a = memory};
  g.solved = g.a + width * width;
  g.z = g.solved + width * responses;
  g.squares = g.z + width;
  for (int64_t table = 0; table < batch->rows; table++) {
    const int64_t first = batch->ranges[4 * table], rows = batch->ranges[4 * table + 1] - first;
    regress(&g, batch->features + first * features, batch->responses + first * responses, rows);
    for (int64_t row = batch->ranges[4 * table + 2]; row < batch->ranges[4 * table + 3]; row++)
      measure_query(&g, rows, batch->features + row * features, batch->responses + row * responses, batch->scales + table * responses,
                    sums);
  }
  hark_release(context, memory, bytes);
  return HARK_OK;
}
