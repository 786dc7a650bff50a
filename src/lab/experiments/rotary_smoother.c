/* rotary_smoother.c - attention with rotary positions is a Nadaraya-Watson smoother with an asymmetric kernel that depends on contents.
 *
 *     Attention(x_n) = sum_i K(n, i) V x_i / sum_i K(n, i),     K(n, i) = exp(s sum_j Re(q_nj conj(k_ij) e^(i (n - i) theta_j)))  (K eq. 2)
 *
 * q_nj, k_ij: pairs of features of queries and keys as complex numbers. K is symmetric and positive semidefinite if queries equal keys,
 * and neither in general. The kernel K_h(x - x_i) of eq. 1 depends on the difference alone; K does if all tokens have the same content,
 * and not in general. The difference matters: with q_j = e^(-i lag theta_j) and k_j = 1 the weight is largest at distance `lag`, and the
 * smoother estimates f(n - lag) from samples of f, where a symmetric kernel of the distance estimates f(n).
 *
 *     E (estimate_n - f(n - lag))^2 = (sum_i w_ni f(i) - f(n - lag))^2 + s2 sum_i w_ni^2,     w: rows of K divided by their sums
 *
 * Source: Bunks, Dixon, Di Giorgi, "Composing Kernel Models with Self-Attention", section 2.1.
 */
#include <math.h>

#include "lab/attention.h"
#include "lab/fit.h"
#include "lab/matrix.h"
#include "lab/tables.h"

#define PI 3.14159265358979323846
#define LENGTH INT64_C(96)
#define DIM INT64_C(16)
#define PAIRS (DIM / 2)
#define BASE 10000.

#define POSITIONS INT64_C(256)
#define EDGE INT64_C(32) /* positions at both ends that do not count: their neighbours are missing */
#define NOISE 0.3
#define WIDTH_PAIRS INT64_C(32)
#define WIDTH 8.  /* tokens: rates have the deviation 1 / WIDTH */
#define LOGIT 12. /* of the largest weight: most of the weight is within WIDTH / sqrt(LOGIT) tokens */
#define QUICK_DRAWS 20
#define FULL_DRAWS 200
#define LARGEST_LAG 8

enum { INDEPENDENT, EQUAL, ONE_CONTENT, CONTENTS };
enum { K_CONTENT, K_DIFFERENCE, K_REVERSED, K_ASYMMETRY, K_EIGENVALUE, K_EXPLAINED, K_COLUMNS };
static const hark_lab_column kernel_columns[K_COLUMNS] = {{"contents", NULL, "q and k independent|q = k|the same q and k at all positions"},
                                                          {"attention - formula", "largest", NULL},
                                                          {"distance reversed", "largest", NULL},
                                                          {"asymmetry", "of log K", NULL},
                                                          {"least eigenvalue / largest", "symmetric part", NULL},
                                                          {"explained by distance", "variance of log K", NULL}};
enum { L_LAG, L_PHASE, L_PHASE_EXPECTED, L_SYMMETRIC, L_SYMMETRIC_EXPECTED, L_COLUMNS };
static const hark_lab_column lag_columns[L_COLUMNS] = {{"lag", "tokens", NULL},
                                                       {"with the phase of the lag", "mean square error", NULL},
                                                       {"expected", "mean square error", NULL},
                                                       {"symmetric", "mean square error", NULL},
                                                       {"expected", "mean square error", NULL}};

enum { STREAM_CONTENT = 1, STREAM_RATES = 8, STREAM_NOISE = 9 };

/* sum over pairs of Re(q conj(k) e^(i distance theta)). */
static double product_at(int64_t pairs, const double *rates, const double *q, const double *k, double distance) {
  double sum = 0;
  for (int64_t j = 0; j < pairs; j++) {
    const double a = distance * rates[j], real = q[2 * j] * k[2 * j] + q[2 * j + 1] * k[2 * j + 1];
    const double imaginary = q[2 * j + 1] * k[2 * j] - q[2 * j] * k[2 * j + 1];
    sum += real * cos(a) - imaginary * sin(a);
  }
  return sum;
}

/* Queries, keys and values [length, ..] through hark's rotation and attention. */
typedef struct smoother {
  hark_lab *lab;
  int64_t length, dim, columns;
  double scale;
  double *rates, *query, *key, *value, *out;
  double *turned_query, *turned_key;
  double *weights; /* [length, length] */
} smoother;

static hark_status make_smoother(hark_lab *lab, smoother *s) {
  s->lab = lab;
  HARK_TRY(hark_lab_numbers(lab, s->dim / 2, &s->rates));
  HARK_TRY(hark_lab_numbers(lab, s->length * s->dim, &s->query));
  HARK_TRY(hark_lab_numbers(lab, s->length * s->dim, &s->key));
  HARK_TRY(hark_lab_numbers(lab, s->length * s->dim, &s->turned_query));
  HARK_TRY(hark_lab_numbers(lab, s->length * s->dim, &s->turned_key));
  HARK_TRY(hark_lab_numbers(lab, s->length * s->columns, &s->value));
  HARK_TRY(hark_lab_numbers(lab, s->length * s->columns, &s->out));
  return hark_lab_numbers(lab, s->length * s->length, &s->weights);
}

static hark_status attend(const smoother *s) {
  const hark_lab_rotation rotation = {.length = s->length, .dim = s->dim, .rates = s->rates};
  hark_attention_desc dense = hark_attention_desc_default();
  dense.scale = s->scale;
  HARK_TRY(hark_lab_rotate(s->lab->context, &rotation, s->query, s->turned_query));
  HARK_TRY(hark_lab_rotate(s->lab->context, &rotation, s->key, s->turned_key));
  const hark_lab_head head = {
      .length = s->length, .head_dim = s->dim, .value_dim = s->columns, .query = s->turned_query, .key = s->turned_key, .value = s->value};
  return hark_lab_attend(s->lab->context, &dense, &head, s->out);
}

/* weights[n, i] <- log K(n, i); `sign` -1 reverses the distance. */
static void make_logs(const smoother *s, double sign) {
  for (int64_t n = 0; n < s->length; n++)
    for (int64_t i = 0; i < s->length; i++)
      s->weights[n * s->length + i] =
          s->scale * product_at(s->dim / 2, s->rates, s->query + n * s->dim, s->key + i * s->dim, sign * (double)(n - i));
}

/* From log K to the weights of the smoother. */
static void normalise(const smoother *s) {
  for (int64_t n = 0; n < s->length; n++) {
    double *const w = s->weights + n * s->length;
    double sum = 0;
    for (int64_t i = 0; i < s->length; i++) {
      w[i] = exp(w[i]);
      sum += w[i];
    }
    for (int64_t i = 0; i < s->length; i++) w[i] /= sum;
  }
}

/* The largest difference of attention from the smoother with these weights. */
static double difference(const smoother *s) {
  double largest = 0;
  for (int64_t n = 0; n < s->length; n++)
    for (int64_t c = 0; c < s->columns; c++) {
      double sum = 0;
      for (int64_t i = 0; i < s->length; i++) sum += s->weights[n * s->length + i] * s->value[i * s->columns + c];
      largest = hark_lab_larger(largest, fabs(sum - s->out[n * s->columns + c]));
    }
  return largest;
}

static double asymmetry(const smoother *s) {
  double largest = 0;
  for (int64_t n = 0; n < s->length; n++)
    for (int64_t i = 0; i < n; i++) largest = hark_lab_larger(largest, fabs(s->weights[n * s->length + i] - s->weights[i * s->length + n]));
  return largest;
}

/* 1 - variance within the distances n - i / variance of all log K. */
static double explained_by_distance(const smoother *s) {
  const int64_t L = s->length;
  hark_lab_mean all = {0};
  double within = 0, total = 0;
  for (int64_t distance = 1 - L; distance < L; distance++) {
    double count = 0, mean = 0;
    for (int64_t n = 0; n < L; n++) {
      const int64_t i = n - distance;
      if (i < 0 || i >= L) continue;
      mean += s->weights[n * L + i];
      count++;
    }
    mean /= count;
    for (int64_t n = 0; n < L; n++) {
      const int64_t i = n - distance;
      if (i >= 0 && i < L) within += (s->weights[n * L + i] - mean) * (s->weights[n * L + i] - mean);
    }
  }
  for (int64_t i = 0; i < L * L; i++) hark_lab_mean_add(&all, s->weights[i]);
  total = all.squares;
  return 1 - within / total;
}

static hark_status least_eigenvalue(const smoother *s, double *out) {
  const int64_t L = s->length;
  double *kernel, *values, *vectors;
  HARK_TRY(hark_lab_numbers(s->lab, L * L, &kernel));
  HARK_TRY(hark_lab_numbers(s->lab, L, &values));
  HARK_TRY(hark_lab_numbers(s->lab, L * L, &vectors));
  for (int64_t n = 0; n < L; n++)
    for (int64_t i = 0; i < L; i++) kernel[n * L + i] = (exp(s->weights[n * L + i]) + exp(s->weights[i * L + n])) / 2;
  hark_lab_eigen(L, kernel, values, vectors);
  *out = values[L - 1] / values[0];
  return HARK_OK;
}

static void draw_contents(const smoother *s, int contents) {
  hark_lab_normal(s->lab, STREAM_CONTENT, s->length * s->dim, s->query);
  hark_lab_normal(s->lab, STREAM_CONTENT + (contents == EQUAL ? 0 : 1), s->length * s->dim, s->key);
  for (int64_t i = s->dim; i < s->length * s->dim && contents == ONE_CONTENT; i++) {
    s->query[i] = s->query[i - s->dim];
    s->key[i] = s->key[i - s->dim];
  }
}

static hark_status measure_kernels(hark_lab *lab, hark_lab_table *table) {
  smoother s = {.length = LENGTH, .dim = DIM, .columns = 4, .scale = 1 / sqrt((double)DIM)};
  HARK_TRY(make_smoother(lab, &s));
  for (int64_t j = 0; j < PAIRS; j++) s.rates[j] = pow(BASE, -(double)j / PAIRS);
  hark_lab_normal(lab, STREAM_CONTENT + 2, s.length * s.columns, s.value);
  for (int contents = 0; contents < CONTENTS; contents++) {
    double row[K_COLUMNS] = {[K_CONTENT] = contents};
    draw_contents(&s, contents);
    HARK_TRY(attend(&s));
    make_logs(&s, -1);
    normalise(&s);
    row[K_REVERSED] = difference(&s);
    make_logs(&s, 1);
    row[K_ASYMMETRY] = asymmetry(&s);
    row[K_EXPLAINED] = explained_by_distance(&s);
    HARK_TRY(least_eigenvalue(&s, &row[K_EIGENVALUE]));
    normalise(&s);
    row[K_DIFFERENCE] = difference(&s);
    HARK_TRY(hark_lab_add_row(lab, table, row));
  }
  return HARK_OK;
}

static double function_at(double x) { return sin(8 * PI * x / POSITIONS) + 0.5 * cos(20 * PI * x / POSITIONS); }

/* Samples of the function with noise, one draw for each column. */
static void draw_samples(const smoother *s) {
  hark_lab_normal(s->lab, STREAM_NOISE, s->length * s->columns, s->value);
  for (int64_t i = 0; i < s->length; i++)
    for (int64_t c = 0; c < s->columns; c++) s->value[i * s->columns + c] = function_at((double)i) + NOISE * s->value[i * s->columns + c];
}

/* Keys 1, and queries with the phase of a lag. */
static void set_phase(const smoother *s, double lag) {
  const double size = 1 / sqrt((double)s->dim / 2);
  for (int64_t i = 0; i < s->length; i++)
    for (int64_t j = 0; j < s->dim / 2; j++) {
      double *const q = s->query + i * s->dim + 2 * j, *const k = s->key + i * s->dim + 2 * j;
      q[0] = size * cos(lag * s->rates[j]);
      q[1] = -size * sin(lag * s->rates[j]);
      k[0] = size;
      k[1] = 0;
    }
}

/* Mean square errors of the estimates of f(n - lag): measured over the draws, and expected. */
static void errors(const smoother *s, double lag, double *measured, double *expected) {
  *measured = *expected = 0;
  const double count = (double)(s->length - 2 * EDGE);
  for (int64_t n = EDGE; n < s->length - EDGE; n++) {
    const double target = function_at((double)n - lag);
    double mean = 0, squares = 0;
    for (int64_t i = 0; i < s->length; i++) {
      const double w = s->weights[n * s->length + i];
      mean += w * function_at((double)i);
      squares += w * w;
    }
    *expected += ((mean - target) * (mean - target) + NOISE * NOISE * squares) / count;
    for (int64_t c = 0; c < s->columns; c++) {
      const double error = s->out[n * s->columns + c] - target;
      *measured += error * error / count / (double)s->columns;
    }
  }
}

static hark_status measure_lags(hark_lab *lab, hark_lab_table *table, smoother *s) {
  *s = (smoother){.length = POSITIONS, .dim = 2 * WIDTH_PAIRS, .columns = lab->quick ? QUICK_DRAWS : FULL_DRAWS, .scale = LOGIT};
  HARK_TRY(make_smoother(lab, s));
  hark_lab_normal(lab, STREAM_RATES, WIDTH_PAIRS, s->rates);
  for (int64_t j = 0; j < WIDTH_PAIRS; j++) s->rates[j] /= WIDTH;
  draw_samples(s);
  for (int64_t lag = 0; lag <= LARGEST_LAG; lag = lag == 0 ? 1 : 2 * lag) {
    double row[L_COLUMNS] = {[L_LAG] = (double)lag};
    for (int symmetric = 0; symmetric < 2; symmetric++) {
      const int column = symmetric ? L_SYMMETRIC : L_PHASE;
      set_phase(s, symmetric ? 0 : (double)lag);
      HARK_TRY(attend(s));
      make_logs(s, 1);
      normalise(s);
      errors(s, (double)lag, &row[column], &row[column + 1]);
    }
    HARK_TRY(hark_lab_add_row(lab, table, row));
  }
  return HARK_OK;
}

/* One draw, and its estimates of f(n - LARGEST_LAG) with and without the phase. */
static hark_status draw(const smoother *s, const hark_lab_table *lags) {
  static const hark_lab_axes axes = {.title = "estimates of f(n - 8)", .x = "n (tokens)", .y = "value"};
  static const hark_lab_axes error_axes = {.title = "error over the lag", .x = "lag (tokens)", .y = "mean square"};
  static const hark_lab_drawn drawn[] = {{L_PHASE, HARK_LAB_POINTS, "with the phase"},
                                         {L_PHASE_EXPECTED, HARK_LAB_LINE, "expected"},
                                         {L_SYMMETRIC, HARK_LAB_POINTS, "symmetric"},
                                         {L_SYMMETRIC_EXPECTED, HARK_LAB_DASHES, "expected"}};
  hark_lab_panel *panel;
  hark_lab_curve *curve;
  HARK_TRY(hark_lab_add_panel(s->lab, axes, &panel));
  HARK_TRY(hark_lab_add_curve(s->lab, panel, HARK_LAB_DASHES, &curve, "f(n - 8)"));
  for (int64_t n = EDGE; n < s->length - EDGE; n++) HARK_TRY(hark_lab_add_point(curve, (double)n, function_at((double)(n - LARGEST_LAG))));
  for (int symmetric = 0; symmetric < 2; symmetric++) {
    set_phase(s, symmetric ? 0 : LARGEST_LAG);
    HARK_TRY(attend(s));
    HARK_TRY(hark_lab_add_curve(s->lab, panel, HARK_LAB_LINE, &curve, "%s", symmetric ? "symmetric kernel" : "with the phase of lag 8"));
    for (int64_t n = EDGE; n < s->length - EDGE; n++) HARK_TRY(hark_lab_add_point(curve, (double)n, s->out[n * s->columns]));
  }
  return hark_lab_draw_columns(s->lab, lags, error_axes, L_LAG, drawn, sizeof drawn / sizeof *drawn);
}

static hark_status measure(hark_lab *lab) {
  hark_lab_table *kernels, *lags;
  smoother s;
  HARK_TRY(hark_lab_add_table(lab, "rotary attention as a smoother with the kernel K", kernel_columns, K_COLUMNS, &kernels));
  HARK_TRY(hark_lab_add_table(lab, "estimates of f(n - lag) from samples of f", lag_columns, L_COLUMNS, &lags));
  HARK_TRY(measure_kernels(lab, kernels));
  HARK_TRY(measure_lags(lab, lags, &s));
  return draw(&s, lags);
}

/* The equality is an identity of values of size one, with rounding errors of 1e-15. Logs of K have size one, so asymmetry and reversal are
 * of this size for independent contents. Distances explain a fraction of about 2 / LENGTH of independent log K. A lag of 8 of the wave of
 * 64 positions alone gives the symmetric kernel a bias of mean square (2 sin(pi / 8))^2 / 2 = .29, and the noise an error of at most .03.
 * The error is a mean over 192 positions, about 48 of them independent, and D draws: five standard errors are 5 sqrt(2 / (48 D)), .07 of
 * 200 draws and .23 of 20. */
static hark_status judge(hark_lab *lab) {
  const double within = lab->quick ? 0.25 : 0.08;
  const hark_lab_table *const kernels = &lab->tables[0], *const lags = &lab->tables[1];
  const double *const independent = hark_lab_row(kernels, INDEPENDENT), *const equal = hark_lab_row(kernels, EQUAL);
  const double *const last = hark_lab_row(lags, hark_lab_row_count(lags) - 1);
  HARK_TRY(hark_lab_require(lab, hark_lab_column_range(kernels, K_DIFFERENCE, HARK_LAB_ALONE).largest, 0, 1e-12,
                            "attention equals the smoother with kernel K, largest difference"));
  HARK_TRY(
      hark_lab_require(lab, independent[K_REVERSED], 0.1, INFINITY, "independent q and k: difference with the distance reversed, largest"));
  HARK_TRY(hark_lab_require(lab, independent[K_ASYMMETRY], 1, INFINITY, "independent q and k: asymmetry of log K"));
  HARK_TRY(hark_lab_require(lab, independent[K_EXPLAINED], -INFINITY, 0.1, "independent q and k: log K explained by distance"));
  HARK_TRY(hark_lab_require(lab, equal[K_ASYMMETRY], 0, 1e-12, "q = k: asymmetry of log K"));
  HARK_TRY(hark_lab_require(lab, equal[K_EIGENVALUE], -1e-12, INFINITY, "q = k: least eigenvalue of K / largest"));
  HARK_TRY(hark_lab_require(lab, hark_lab_row(kernels, ONE_CONTENT)[K_EXPLAINED], 1 - 1e-12, 1 + 1e-12,
                            "one content: log K explained by distance"));
  HARK_TRY(hark_lab_require_range(lab, hark_lab_column_range(lags, L_PHASE, L_PHASE_EXPECTED), 1 - within, 1 + within,
                                  "error with the phase / expected"));
  HARK_TRY(hark_lab_require_range(lab, hark_lab_column_range(lags, L_SYMMETRIC, L_SYMMETRIC_EXPECTED), 1 - within, 1 + within,
                                  "error of the symmetric kernel / expected"));
  return hark_lab_require(lab, last[L_PHASE] / last[L_SYMMETRIC], 0, 0.25, "lag 8: error with the phase / error of the symmetric kernel");
}

const hark_experiment hark_experiment_rotary_smoother = {
    .summary = "rotary attention is a smoother with an asymmetric kernel",
    .paper = HARK_LAB_PAPER_K "section 2.1, equation 2",
    .statement =
        "Attention with rotary positions equals the Nadaraya-Watson estimate with a kernel K(n, i) of contents and "
        "distance. K is symmetric and positive semidefinite if queries and keys are equal. K is a function of the "
        "distance alone if all tokens have the same content. For independent queries and keys K is neither symmetric nor "
        "a function of the distance alone. An asymmetric K can estimate a delayed function. A symmetric kernel of the "
        "distance alone cannot do this",
    .printed =
        "\"Thus, attention can be interpreted as a proper kernel function centered around each x_i\" (this refers to "
        "equation 1, whose kernel depends on x - x_i alone)",
    .corrected = "the kernel depends on the two contents too, and has a different shape around each token",
    .notes =
        "    K(n, i) = exp(s sum_j Re(q_nj conj(k_ij) e^(i (n - i) theta_j)))\n"
        "\n"
        "The first i in the exponent is the imaginary unit, and the second is the index of the key. The factor s is "
        "the scale of the logits, 1 / sqrt(d) in the first table. The paper calls rotary attention an instance of "
        "equation 1, and mentions that attention is not symmetric. The first table shows that attention equals the "
        "estimate with the kernel K. This equality is an identity. The table also shows for which contents K is "
        "symmetric, has no negative eigenvalue, or depends on the distance alone. The column `distance reversed` has "
        "the difference between attention and the formula with i - n in place of n - i. The variance of log K is the "
        "sum of the variance between distances and the variance within distances. The last column has the fraction "
        "between distances. For independent contents nearly all of the variance is within distances.\n"
        "\n"
        "The second table shows what an asymmetric K makes possible. Noisy samples of a function f are smoothed, and "
        "all positions have the same content. If the queries are rotated by the phase of a lag, the largest weight is "
        "at the distance of this lag. The output at n is then an estimate of f(n - lag). Without this rotation K is "
        "symmetric, and the second estimate in the table is computed with this symmetric kernel. The expected errors "
        "follow from the weights, as in `nadaraya-watson`. In a causal model, a lag means attention to the token at a "
        "fixed distance, such as the previous token. A stationary positive definite kernel, such as the paper's, "
        "always has its largest value at distance 0.\n"
        "\n"
        "*Figure.* First panel: f(n - 8), and its estimates with and without the phase of the lag, for one draw. "
        "Second panel: the errors over the lag.",
    .measure = measure,
    .judge = judge};
