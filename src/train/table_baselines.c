/* table_baselines.c - see table_baselines.h. */
#include "train/table_baselines.h"

#include <math.h>

#include "models/table_rows.h"

#define LOG_TWO_PI 1.8378770664093454836
#define NINETY_PERCENT 1.6448536269514727 /* deviations on each side of the mean, of an interval with a probability of .9 */

void hark_table_sums_add(const hark_column_scale *scale, double target, double mean, double log_variance, hark_table_sums *sums) {
  const double error = target - mean, deviation = exp(0.5 * log_variance);
  sums->loss += log(scale->deviation) + 0.5 * (LOG_TWO_PI + log_variance + error * error / (deviation * deviation));
  sums->squared_error += error * error * scale->deviation * scale->deviation;
  sums->covered += fabs(error) <= NINETY_PERCENT * deviation;
}

void hark_class_sums_add(const float *logits, int64_t classes, int32_t target, hark_table_sums *sums) {
  double sum = 0, squares = 0;
  int64_t likeliest = 0;
  if (target < 0) return;
  for (int64_t c = 1; c < classes; c++)
    if (logits[c] > logits[likeliest]) likeliest = c;
  for (int64_t c = 0; c < classes; c++) sum += exp((double)logits[c] - logits[likeliest]);
  for (int64_t c = 0; c < classes; c++) {
    const double error = exp((double)logits[c] - logits[likeliest]) / sum - (c == target);
    squares += error * error;
  }
  sums->loss += log(sum) - ((double)logits[target] - logits[likeliest]);
  sums->squared_error += squares;
  sums->covered += likeliest == target;
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

/* ---- classes ---- */

/* Discriminants in D inputs: the covariance S = L L' in a regression, and of every class its rows, its mean, which becomes L^-1 m, and the
 * constant of its logit. */
typedef struct discriminants {
  regression g;
  int64_t classes;
  double *means, *counts, *constants; /* [classes, D], [classes], [classes] */
  float *logits;                      /* [classes] */
} discriminants;

static void find_means(const discriminants *d, const float *inputs, const int32_t *targets, int64_t rows) {
  const int64_t width = d->g.width;
  for (int64_t i = 0; i < d->classes * width; i++) d->means[i] = 0;
  for (int64_t c = 0; c < d->classes; c++) d->counts[c] = 0;
  for (int64_t n = 0; n < rows; n++) {
    d->counts[targets[n]]++;
    for (int64_t i = 0; i < width; i++) d->means[targets[n] * width + i] += inputs[n * d->g.features + i];
  }
  for (int64_t i = 0; i < d->classes * width; i++) d->means[i] /= fmax(1, d->counts[i / width]);
}

static void find_covariance(const discriminants *d, const float *inputs, const int32_t *targets, int64_t rows) {
  const regression *const g = &d->g;
  for (int64_t i = 0; i < g->width * g->width; i++) g->a[i] = i % (g->width + 1) == 0 ? 1 : 0;
  for (int64_t n = 0; n < rows; n++) {
    for (int64_t i = 0; i < g->width; i++) g->z[i] = inputs[n * g->features + i] - d->means[targets[n] * g->width + i];
    for (int64_t i = 0; i < g->width; i++)
      for (int64_t j = 0; j <= i; j++) g->a[i * g->width + j] += g->z[i] * g->z[j];
  }
  for (int64_t i = 0; i < g->width * g->width; i++) g->a[i] /= 1 + (double)rows;
}

/* log f_c - m'S^-1 m / 2; `none` for a class without rows */
static void find_constants(const discriminants *d, int64_t rows, double none) {
  for (int64_t c = 0; c < d->classes; c++) {
    double *const mean = d->means + c * d->g.width, squares = 0;
    forward_solve(&d->g, mean, 1);
    for (int64_t i = 0; i < d->g.width; i++) squares += mean[i] * mean[i];
    d->constants[c] = d->counts[c] > 0 ? log(d->counts[c] / (double)rows) - squares / 2 : none;
  }
}

static void measure_class(const discriminants *d, const float *inputs, int32_t target, hark_table_sums *sums) {
  const regression *const g = &d->g;
  for (int64_t i = 0; i < g->width; i++) g->z[i] = inputs[i];
  forward_solve(g, g->z, 1);
  for (int64_t c = 0; c < d->classes; c++) {
    double logit = d->constants[c];
    for (int64_t i = 0; i < g->width; i++) logit += g->z[i] * d->means[c * g->width + i];
    d->logits[c] = (float)logit;
  }
  hark_class_sums_add(d->logits, d->classes, target, sums);
}

hark_status hark_class_baseline(hark_context *context, const hark_example_batch *batch, int64_t features, int64_t classes, bool linear,
                                hark_table_sums *sums) {
  const int64_t width = linear ? features : 0;
  size_t numbers, bytes;
  void *memory = NULL;
  HARK_TRY(hark_size_multiply(context, (size_t)width, (size_t)(width + classes + 1), &numbers));
  HARK_TRY(hark_size_multiply(context, numbers + 3 * (size_t)classes, sizeof(double), &bytes)); /* the last third: logits */
  HARK_TRY(hark_allocate(context, bytes, &memory));
  discriminants d = {.g = {.features = features, .width = width, .a = memory}, .classes = classes};
  d.g.z = d.g.a + width * width;
  d.means = d.g.z + width;
  d.counts = d.means + width * classes;
  d.constants = d.counts + classes;
  d.logits = (float *)(d.constants + classes);
  for (int64_t table = 0; table < batch->rows; table++) {
    const int64_t first = batch->ranges[4 * table], rows = batch->ranges[4 * table + 1] - first;
    const float *const inputs = batch->features + first * features;
    const int32_t *const targets = batch->targets + first;
    find_means(&d, inputs, targets, rows);
    find_covariance(&d, inputs, targets, rows);
    factor(&d.g);
    find_constants(&d, rows, (double)HARK_CLASS_ABSENT);
    for (int64_t row = batch->ranges[4 * table + 2]; row < batch->ranges[4 * table + 3]; row++)
      measure_class(&d, batch->features + row * features, batch->targets[row], sums);
  }
  hark_release(context, memory, bytes);
  return HARK_OK;
}
