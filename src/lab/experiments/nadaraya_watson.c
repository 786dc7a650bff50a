/* nadaraya_watson.c - kernel regression on a line, as attention computes it.
 *
 *     NW_h(x) = sum_i K_h(x - x_i) y_i / sum_i K_h(x - x_i),      K_h(u) = exp(-u^2 / (2 h^2))                        (K eq. 1, figure 1)
 *
 * is attention with logits of zero and the positional kernel rbf(l=h): x is the token's number, y its value. It is a linear smoother with
 * weights w_ij, so for y = f + noise of variance s2 the expected error is known, and also that of a point that is left out:
 *
 *     E (NW_h(x_i) - f_i)^2 = (sum_j w_ij f_j - f_i)^2 + s2 sum_j w_ij^2,      E (y_i - NW_h without i)^2 = s2 + the same without w_ii
 *
 * Draws of the noise are columns of the values; N positions, R draws. Source: Bunks, Dixon, Di Giorgi, "Composing Kernel Models with
 * Self-Attention".
 */
#include <hark/positional.h>
#include <math.h>
#include <stdio.h>

#include "lab/attention.h"
#include "lab/tables.h"

#define POSITIONS 256
#define NOISE 0.3 /* its deviation; the function's is about 0.8 */
#define QUICK_DRAWS 20
#define FULL_DRAWS 200
#define LEAST_BANDWIDTH 0.125      /* tokens: neighbours weigh exp(-32) */
#define LARGEST_BANDWIDTH 1048576. /* the farthest token weighs 1 - 3e-8 */
#define NARROW 2                   /* bandwidths that are drawn as estimates, as powers of 2 */
#define MIDDLE 8
#define WIDE 64
#define ROUNDING 1e-12
#define PI 3.14159265358979323846

/* Figure 1: a few points, and every term of the sum on a fine grid. */
#define FEW 9
#define STEPS 24 /* of the grid, from point to point */
#define FEW_BANDWIDTH 0.7

enum { BANDWIDTH, ERROR, ERROR_EXPECTED, LEFT_OUT, LEFT_OUT_EXPECTED, TO_FORMULA, TO_SAMPLES, TO_MEAN, COLUMNS };
static const hark_lab_column columns[COLUMNS] = {{"bandwidth", "tokens", NULL},
                                                 {"error", "mean square", NULL},
                                                 {"error expected", "mean square", NULL},
                                                 {"leave-one-out", "mean square", NULL},
                                                 {"leave-one-out expected", "mean square", NULL},
                                                 {"difference from the formula", "largest", NULL},
                                                 {"difference from the samples", "largest", NULL},
                                                 {"difference from the mean", "largest", NULL}};

typedef struct regression {
  hark_lab *lab;
  int64_t draws;
  double *function, *samples; /* [N], [N, R] */
  double *weights;            /* [N, N] */
  double *estimate, *direct;  /* [N, R] */
  double *zeros, *log_kernel; /* [N] */
  uint8_t *others;            /* [N, N], the diagonal masked */
} regression;

static double function_at(double x) { return sin(4 * PI * x) + 0.5 * cos(10 * PI * x * x); }

/* log G of rbf(l=h) at distances 0 .. length - 1, in units of `spacing` tokens, by the expression's own evaluation. */
static hark_status kernel_table(hark_context *context, double bandwidth, double spacing, int64_t length, double *out) {
  const double natural[] = {1, bandwidth}; /* sigma2, l */
  double parameters[2];
  hark_positional *expression;
  HARK_TRY(hark_positional_create(context, "rbf", &expression));
  for (int64_t i = 0; i < length; i++) out[i] = (double)i * spacing;
  hark_status status = hark_positional_raw(context, expression, natural, parameters);
  if (status == HARK_OK) status = hark_positional_log(context, expression, parameters, out, length, out);
  hark_positional_destroy(context, &expression);
  return status;
}

static hark_status attend(const regression *r, bool without_own, double *out) {
  const hark_attention_desc dense = hark_attention_desc_default();
  const hark_lab_head head = {.length = POSITIONS,
                              .head_dim = 1,
                              .value_dim = r->draws,
                              .query = r->zeros,
                              .key = r->zeros,
                              .value = r->samples,
                              .log_kernel = r->log_kernel,
                              .mask = without_own ? r->others : NULL};
  return hark_lab_attend(r->lab->context, &dense, &head, out);
}

/* weights[i, j] <- K_h(i - j) / sum_j K_h(i - j), without_own: the sum and j without i. */
static void make_weights(const regression *r, double bandwidth, bool without_own) {
  for (int64_t i = 0; i < POSITIONS; i++) {
    double *const w = r->weights + i * POSITIONS;
    double sum = 0;
    for (int64_t j = 0; j < POSITIONS; j++) {
      const double u = (double)(i - j) / bandwidth;
      w[j] = without_own && i == j ? 0 : exp(-u * u / 2);
      sum += w[j];
    }
    for (int64_t j = 0; j < POSITIONS; j++) w[j] /= sum;
  }
}

/* direct <- weights samples: the formula itself. */
static void evaluate_directly(const regression *r) {
  for (int64_t i = 0; i < POSITIONS; i++) {
    double *const row = r->direct + i * r->draws;
    for (int64_t c = 0; c < r->draws; c++) row[c] = 0;
    for (int64_t j = 0; j < POSITIONS; j++)
      for (int64_t c = 0; c < r->draws; c++) row[c] += r->weights[i * POSITIONS + j] * r->samples[j * r->draws + c];
  }
}

static double expected_error(const regression *r) {
  double total = 0;
  for (int64_t i = 0; i < POSITIONS; i++) {
    double mean = 0, squares = 0;
    for (int64_t j = 0; j < POSITIONS; j++) {
      const double w = r->weights[i * POSITIONS + j];
      mean += w * r->function[j];
      squares += w * w;
    }
    total += (mean - r->function[i]) * (mean - r->function[i]) + NOISE * NOISE * squares;
  }
  return total / POSITIONS;
}

/* Mean square of estimate - (function or samples). */
static double mean_square(const regression *r, const double *estimate, bool of_samples) {
  double sum = 0;
  for (int64_t i = 0; i < POSITIONS; i++)
    for (int64_t c = 0; c < r->draws; c++) {
      const int64_t at = i * r->draws + c;
      const double difference = estimate[at] - (of_samples ? r->samples[at] : r->function[i]);
      sum += difference * difference;
    }
  return sum / (double)(POSITIONS * r->draws);
}

static double largest_difference(const double *a, const double *b, int64_t count) {
  double largest = 0;
  for (int64_t i = 0; i < count; i++) largest = hark_larger(largest, fabs(a[i] - b[i]));
  return largest;
}

/* The largest distance of an estimate from the mean of its draw. */
static double distance_from_means(const regression *r) {
  double largest = 0;
  for (int64_t c = 0; c < r->draws; c++) {
    double mean = 0;
    for (int64_t i = 0; i < POSITIONS; i++) mean += r->samples[i * r->draws + c] / POSITIONS;
    for (int64_t i = 0; i < POSITIONS; i++) largest = hark_larger(largest, fabs(r->estimate[i * r->draws + c] - mean));
  }
  return largest;
}

static hark_status prepare(hark_lab *lab, regression *r) {
  void *mask;
  *r = (regression){.lab = lab, .draws = lab->quick ? QUICK_DRAWS : FULL_DRAWS};
  HARK_TRY(hark_lab_numbers(lab, POSITIONS, &r->function));
  HARK_TRY(hark_lab_numbers(lab, POSITIONS, &r->zeros));
  HARK_TRY(hark_lab_numbers(lab, POSITIONS, &r->log_kernel));
  HARK_TRY(hark_lab_numbers(lab, (int64_t)POSITIONS * POSITIONS, &r->weights));
  HARK_TRY(hark_lab_allocate(lab, (size_t)POSITIONS * POSITIONS, &mask));
  HARK_TRY(hark_lab_numbers(lab, POSITIONS * r->draws, &r->samples));
  HARK_TRY(hark_lab_numbers(lab, POSITIONS * r->draws, &r->estimate));
  HARK_TRY(hark_lab_numbers(lab, POSITIONS * r->draws, &r->direct));
  r->others = mask;
  hark_lab_normal(lab, 0, POSITIONS * r->draws, r->samples);
  for (int64_t i = 0; i < POSITIONS; i++) {
    r->function[i] = function_at((double)i / POSITIONS);
    for (int64_t c = 0; c < r->draws; c++) r->samples[i * r->draws + c] = r->function[i] + NOISE * r->samples[i * r->draws + c];
    for (int64_t j = 0; j < POSITIONS; j++) r->others[i * POSITIONS + j] = i != j;
  }
  return HARK_OK;
}

/* One bandwidth: a row of the table. */
static hark_status measure_bandwidth(const regression *r, double bandwidth, double *row) {
  HARK_TRY(kernel_table(r->lab->context, bandwidth, 1, POSITIONS, r->log_kernel));
  HARK_TRY(attend(r, true, r->estimate));
  row[BANDWIDTH] = bandwidth;
  make_weights(r, bandwidth, true);
  row[LEFT_OUT] = mean_square(r, r->estimate, true);
  row[LEFT_OUT_EXPECTED] = NOISE * NOISE + expected_error(r);
  HARK_TRY(attend(r, false, r->estimate));
  make_weights(r, bandwidth, false);
  evaluate_directly(r);
  row[ERROR] = mean_square(r, r->estimate, false);
  row[ERROR_EXPECTED] = expected_error(r);
  row[TO_FORMULA] = largest_difference(r->estimate, r->direct, POSITIONS * r->draws);
  row[TO_SAMPLES] = largest_difference(r->estimate, r->samples, POSITIONS * r->draws);
  row[TO_MEAN] = distance_from_means(r);
  return HARK_OK;
}

/* The first draw's estimate. */
static hark_status draw_estimate(const regression *r, hark_lab_panel *panel, double bandwidth) {
  hark_lab_curve *curve;
  HARK_TRY(hark_lab_add_curve(r->lab, panel, HARK_LAB_LINE, &curve, "h = %g", bandwidth));
  for (int64_t i = 0; i < POSITIONS; i++) HARK_TRY(hark_lab_add_point(curve, (double)i, r->estimate[i * r->draws]));
  return HARK_OK;
}

static hark_status draw_samples(const regression *r, hark_lab_panel **panel) {
  static const hark_lab_axes axes = {.title = "estimates of one draw", .x = "position (tokens)", .y = "y"};
  hark_lab_curve *samples, *function;
  HARK_TRY(hark_lab_add_panel(r->lab, axes, panel));
  HARK_TRY(hark_lab_add_curve(r->lab, *panel, HARK_LAB_POINTS, &samples, "samples"));
  HARK_TRY(hark_lab_add_curve(r->lab, *panel, HARK_LAB_DASHES, &function, "function"));
  for (int64_t i = 0; i < POSITIONS; i++) {
    HARK_TRY(hark_lab_add_point(samples, (double)i, r->samples[i * r->draws]));
    HARK_TRY(hark_lab_add_point(function, (double)i, r->function[i]));
  }
  return HARK_OK;
}

static hark_status draw_errors(hark_lab *lab, const hark_lab_table *table) {
  static const hark_lab_axes axes = {
      .title = "error over the bandwidth", .x = "bandwidth (tokens)", .y = "mean square", .log_x = true, .log_y = true};
  static const hark_lab_drawn drawn[] = {{ERROR, HARK_LAB_POINTS, "error"},
                                         {ERROR_EXPECTED, HARK_LAB_LINE, "error expected"},
                                         {LEFT_OUT, HARK_LAB_POINTS, "leave-one-out"},
                                         {LEFT_OUT_EXPECTED, HARK_LAB_DASHES, "leave-one-out expected"}};
  return hark_lab_draw_columns(lab, table, axes, BANDWIDTH, drawn, sizeof drawn / sizeof drawn[0]);
}

/* Figure 1 of the paper: tokens are the points of a fine grid, and every STEPS-th point is a key; value column i has only y_i, so its
 * output is the i-th term of the sum. */
static hark_status draw_terms(hark_lab *lab) {
  enum { GRID = (FEW - 1) * STEPS + 1 };
  static const hark_lab_axes axes = {.title = "the estimate and the terms of its sum (h = 0.7)", .x = "x", .y = "y"};
  double *zeros, *values, *terms, *table, y[FEW];
  void *memory;
  hark_lab_panel *panel;
  hark_lab_curve *sum, *points;
  HARK_TRY(hark_lab_numbers(lab, GRID, &zeros));
  HARK_TRY(hark_lab_numbers(lab, GRID, &table));
  HARK_TRY(hark_lab_numbers(lab, (int64_t)GRID * FEW, &values));
  HARK_TRY(hark_lab_numbers(lab, (int64_t)GRID * FEW, &terms));
  HARK_TRY(hark_lab_allocate(lab, (size_t)GRID * GRID, &memory));
  uint8_t *const mask = memory;
  HARK_TRY(kernel_table(lab->context, FEW_BANDWIDTH, 1.0 / STEPS, GRID, table));
  hark_lab_normal(lab, 1, FEW, y);
  for (int i = 0; i < FEW; i++) {
    y[i] = 1 + fabs(y[i]);
    values[i * STEPS * FEW + i] = y[i];
    for (int n = 0; n < GRID; n++) mask[n * GRID + i * STEPS] = 1;
  }
  const hark_attention_desc dense = hark_attention_desc_default();
  const hark_lab_head head = {
      .length = GRID, .head_dim = 1, .value_dim = FEW, .query = zeros, .key = zeros, .value = values, .log_kernel = table, .mask = mask};
  HARK_TRY(hark_lab_attend(lab->context, &dense, &head, terms));
  HARK_TRY(hark_lab_add_panel(lab, axes, &panel));
  HARK_TRY(hark_lab_add_curve(lab, panel, HARK_LAB_POINTS, &points, "points"));
  HARK_TRY(hark_lab_add_curve(lab, panel, HARK_LAB_LINE, &sum, "estimate"));
  for (int i = 0; i < FEW; i++) {
    hark_lab_curve *term;
    HARK_TRY(hark_lab_add_point(points, i, y[i]));
    HARK_TRY(hark_lab_add_curve(lab, panel, HARK_LAB_DASHES, &term, "%s", i == 0 ? "terms" : ""));
    for (int n = 0; n < GRID; n++) HARK_TRY(hark_lab_add_point(term, (double)n / STEPS, terms[n * FEW + i]));
  }
  for (int n = 0; n < GRID; n++) {
    double at = 0;
    for (int i = 0; i < FEW; i++) at += terms[n * FEW + i];
    HARK_TRY(hark_lab_add_point(sum, (double)n / STEPS, at));
  }
  return HARK_OK;
}

/* The statistical bounds follow from 256 R independent draws of the noise. Near the best bandwidth about 25 of 256 directions remain in the
 * estimate, so its mean square has a relative deviation of about sqrt(2 / (25 R)): .063 and .02 for 20 and 200 draws. The leave-one-out
 * error is dominated by the noise itself: sqrt(2 / (256 R)), .02 and .006, half as much again where neighbours share samples. The intervals
 * are four of these. */
static hark_status judge(hark_lab *lab) {
  const hark_lab_table *const table = &lab->tables[0];
  const int64_t last = hark_lab_row_count(table) - 1;
  double difference = 0, best = INFINITY;
  for (int64_t i = 0; i <= last; i++) {
    difference = hark_lab_larger(difference, hark_lab_row(table, i)[TO_FORMULA]);
    best = hark_lab_smaller(best, hark_lab_row(table, i)[ERROR]);
  }
  const double ends = hark_lab_smaller(hark_lab_row(table, 0)[ERROR], hark_lab_row(table, last)[ERROR]);
  HARK_TRY(hark_lab_require(lab, difference, 0, ROUNDING, "attention with rbf(l=h) equals the formula, largest difference"));
  HARK_TRY(hark_lab_require(lab, hark_lab_row(table, 0)[TO_SAMPLES], 0, ROUNDING, "the least bandwidth interpolates, largest difference"));
  HARK_TRY(hark_lab_require(lab, hark_lab_row(table, last)[TO_MEAN], 0, 1e-6, "the largest bandwidth gives the mean, largest difference"));
  HARK_TRY(hark_lab_require(lab, best / ends, 0, 0.5, "least error / the smaller error of the least and the largest bandwidth"));
  const double within = lab->quick ? 0.25 : 0.08, within_left_out = lab->quick ? 0.12 : 0.04;
  HARK_TRY(hark_lab_require_range(lab, hark_lab_column_range(table, ERROR, ERROR_EXPECTED), 1 - within, 1 + within, "error / expected"));
  return hark_lab_require_range(lab, hark_lab_column_range(table, LEFT_OUT, LEFT_OUT_EXPECTED), 1 - within_left_out, 1 + within_left_out,
                                "leave-one-out / expected");
}

static hark_status sweep(const regression *r, hark_lab_table *table, hark_lab_panel *panel) {
  const double factor = r->lab->quick ? 2 : sqrt(sqrt(2));
  double row[COLUMNS];
  for (int step = 0;; step++) {
    const double bandwidth = LEAST_BANDWIDTH * pow(factor, step);
    const bool last = bandwidth * sqrt(factor) > LARGEST_BANDWIDTH;
    HARK_TRY(measure_bandwidth(r, last ? LARGEST_BANDWIDTH : bandwidth, row));
    HARK_TRY(hark_lab_add_row(r->lab, table, row));
    const double whole = round(bandwidth);
    if (fabs(bandwidth - whole) < 1e-9 && (whole == NARROW || whole == MIDDLE || whole == WIDE)) HARK_TRY(draw_estimate(r, panel, whole));
    if (last) return HARK_OK;
  }
}

static hark_status measure(hark_lab *lab) {
  regression r;
  hark_lab_table *table;
  hark_lab_panel *panel;
  HARK_TRY(prepare(lab, &r));
  HARK_TRY(draw_terms(lab));
  HARK_TRY(draw_samples(&r, &panel));
  HARK_TRY(hark_lab_add_table(lab, "error over the bandwidth, mean over positions and draws of the noise", columns, COLUMNS, &table));
  HARK_TRY(sweep(&r, table, panel));
  return draw_errors(lab, table);
}

const hark_experiment hark_experiment_nadaraya_watson = {
    .summary = "attention with a kernel of the distance is kernel regression on a line",
    .paper = HARK_LAB_PAPER_K "equation 1 and figure 1",
    .statement =
        "Attention with zero logits and the kernel rbf(l=h) is the Nadaraya-Watson estimate. At small h this estimate "
        "equals the values of the points. At large h it equals their mean. Its error is least at a bandwidth between "
        "these. The measured error agrees with the expected error, which is computed from the weights",
    .notes =
        "The points x_i = 0, 1, ..., 255 have the values y_i = f(x_i) + noise of variance s2. The estimate of f is\n"
        "\n"
        "    NW_h(x) = sum_i K_h(x - x_i) y_i / sum_i K_h(x - x_i),      K_h(u) = exp(-u^2 / (2 h^2))\n"
        "\n"
        "This estimate equals attention with logits of zero and the positional kernel `rbf(l=h)`. hark's operator "
        "computes this attention, and the formula is evaluated separately for comparison. The estimate is a linear "
        "smoother. Let w_ij be its weights, and v_ij the weights of the estimate without point i. Then the expected "
        "errors are known:\n"
        "\n"
        "    E (NW_h(x_i) - f_i)^2 = (sum_j w_ij f_j - f_i)^2 + s2 sum_j w_ij^2\n"
        "    E (y_i - NW_h(x_i) without point i)^2 = s2 + (sum_j v_ij f_j - f_i)^2 + s2 sum_j v_ij^2\n"
        "\n"
        "The criteria for error / expected and for leave-one-out / expected allow four standard deviations. The full run "
        "has 200 draws of the noise, and `--quick` has 20.\n"
        "\n"
        "*Figure.* The first panel is the paper's figure 1: a few points, the estimate, and the terms w_i(x) y_i, whose "
        "sum is the estimate. Each term is the output of attention if only one point keeps its value and all others have "
        "the value 0. Another panel has the estimates of one draw at h = 2, 8, 64. The last panel has the error and the "
        "leave-one-out error over h. Points are measured values, and lines are expected values.",
    .measure = measure,
    .judge = judge};
