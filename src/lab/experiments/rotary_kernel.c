/* rotary_kernel.c - the product of rotated queries and keys is a kernel of the distance, and the rates choose which.
 *
 *     (R_n q)^T (R_m k) = sum_j Re(q_j conj(k_j) e^(i (n - m) theta_j))                 q_j, k_j: pairs of features as complex numbers
 *
 * depends on n - m alone. With q = k it is sum_j |q_j|^2 cos((n - m) theta_j): symmetric and positive semidefinite, for all rates. With
 * |q_j|^2 = 1 / P and rates that are drawn from a distribution it is an estimate of this distribution's characteristic function (Bochner;
 * Rahimi and Recht 2007), and every stationary positive definite kernel is one:
 *
 *     normal rates of deviation 1 / l: exp(-d^2 / (2 l^2));      Cauchy rates of scale 1 / l: exp(-d / l), the paper's decay
 *     var cos(d theta) = (1 + g(2 d)) / 2 - g(d)^2 for a mean g(d),                     so the mean square error at d is this divided by P
 *
 * Source: Bunks, Dixon, Di Giorgi, "Composing Kernel Models with Self-Attention", section 2.1 ("Theta^T Theta is a function of the indicial
 * distance").
 */
#include <inttypes.h>
#include <math.h>

#include "lab/attention.h"
#include "lab/matrix.h"
#include "lab/tables.h"

#define PI 3.14159265358979323846
#define LENGTH INT64_C(64)
#define DIM INT64_C(32)
#define SCALE 12. /* l, tokens */
#define QUICK_DRAWS 60
#define FULL_DRAWS 400
#define MOST_PAIRS INT64_C(256)
#define QUICK_MOST_PAIRS 64
#define BASE 10000.

enum { STATIC, NORMAL, CAUCHY, RATES };
#define RATE_WORDS "static|normal|Cauchy"

enum { S_RATES, S_SHIFT, S_DIFFERENCE, S_KEYS_ONLY, S_COLUMNS };
static const hark_lab_column shift_columns[S_COLUMNS] = {{"rates", NULL, RATE_WORDS},
                                                         {"shift", "tokens", NULL},
                                                         {"both shifted", "largest difference", NULL},
                                                         {"keys shifted", "largest difference", NULL}};
enum { G_RATES, G_LEAST, G_ASYMMETRY, G_OTHER_ASYMMETRY, G_COLUMNS };
static const hark_lab_column gram_columns[G_COLUMNS] = {{"rates", NULL, RATE_WORDS},
                                                        {"least eigenvalue / largest", "q = k", NULL},
                                                        {"asymmetry", "q = k", NULL},
                                                        {"asymmetry", "q and k independent", NULL}};
enum { E_RATES, E_PAIRS, E_MEASURED, E_EXPECTED, E_COLUMNS };
static const hark_lab_column error_columns[E_COLUMNS] = {
    {"rates", NULL, RATE_WORDS}, {"pairs", NULL, NULL}, {"error", "mean square", NULL}, {"expected", "mean square", NULL}};

/* Streams of random numbers: those of a table do not depend on the sizes of another. */
enum { STREAM_CONTENT = 1, STREAM_RATES = 8, STREAM_DRAWS = 16 };

typedef struct rotary {
  hark_lab *lab;
  double *rates;            /* [MOST_PAIRS] */
  double *x, *query, *key;  /* [LENGTH, 2 MOST_PAIRS] */
  double *product, *spare;  /* [LENGTH, LENGTH] */
  double *values, *vectors; /* [LENGTH], [LENGTH, LENGTH] */
} rotary;

static double kernel_at(int kind, double distance) {
  return kind == NORMAL ? exp(-distance * distance / (2 * SCALE * SCALE)) : exp(-fabs(distance) / SCALE);
}

static void draw_rates(const rotary *r, int kind, uint32_t stream, int64_t pairs) {
  if (kind == NORMAL) hark_lab_normal(r->lab, stream, pairs, r->rates);
  if (kind == CAUCHY) hark_lab_uniform(r->lab, stream, pairs, r->rates);
  for (int64_t j = 0; j < pairs; j++) {
    if (kind == STATIC) r->rates[j] = pow(BASE, -(double)j / (double)pairs);
    if (kind == NORMAL) r->rates[j] /= SCALE;
    if (kind == CAUCHY) r->rates[j] = tan(PI * (r->rates[j] - 0.5)) / SCALE;
  }
}

/* product[n, m] <- (R_(n + first) x_n)^T (R_(m + key_first) y_m). */
static hark_status multiply(const rotary *r, int64_t dim, const double *x, const double *y, int64_t first, int64_t key_first) {
  hark_lab_rotation rotation = {.length = LENGTH, .dim = dim, .first = first, .rates = r->rates};
  HARK_TRY(hark_lab_rotate(r->lab->context, &rotation, x, r->query));
  rotation.first = key_first;
  HARK_TRY(hark_lab_rotate(r->lab->context, &rotation, y, r->key));
  for (int64_t i = 0; i < LENGTH * LENGTH; i++) r->product[i] = 0;
  hark_lab_add_right_transposed(LENGTH, dim, LENGTH, r->query, r->key, r->product);
  return HARK_OK;
}

static double difference(const rotary *r) {
  double largest = 0;
  for (int64_t i = 0; i < LENGTH * LENGTH; i++) largest = hark_lab_larger(largest, fabs(r->product[i] - r->spare[i]));
  return largest;
}

static hark_status measure_shifts(const rotary *r, hark_lab_table *table) {
  static const int64_t shifts[] = {1, 30, 1000, 10000};
  double *const x = r->x, *const y = r->x + LENGTH * DIM;
  for (int kind = 0; kind < RATES; kind++) {
    draw_rates(r, kind, STREAM_RATES + (uint32_t)kind, DIM / 2);
    hark_lab_normal(r->lab, STREAM_CONTENT, LENGTH * DIM, x);
    hark_lab_normal(r->lab, STREAM_CONTENT + 1, LENGTH * DIM, y);
    for (size_t s = 0; s < sizeof shifts / sizeof *shifts; s++) {
      double row[S_COLUMNS] = {[S_RATES] = kind, [S_SHIFT] = (double)shifts[s]};
      HARK_TRY(multiply(r, DIM, x, y, 0, 0));
      for (int64_t i = 0; i < LENGTH * LENGTH; i++) r->spare[i] = r->product[i];
      HARK_TRY(multiply(r, DIM, x, y, shifts[s], shifts[s]));
      row[S_DIFFERENCE] = difference(r);
      HARK_TRY(multiply(r, DIM, x, y, 0, shifts[s]));
      row[S_KEYS_ONLY] = difference(r);
      HARK_TRY(hark_lab_add_row(r->lab, table, row));
    }
  }
  return HARK_OK;
}

/* Every row of [LENGTH, DIM] is the same draw: one content at all positions. */
static void repeat_content(const rotary *r, uint32_t stream, double *x) {
  hark_lab_normal(r->lab, stream, DIM, x);
  for (int64_t i = DIM; i < LENGTH * DIM; i++) x[i] = x[i - DIM];
}

/* |A - A^T| / |A| in the Frobenius norm. */
static double asymmetry(const double *a) {
  double differences = 0, squares = 0;
  for (int64_t n = 0; n < LENGTH; n++)
    for (int64_t m = 0; m < LENGTH; m++) {
      const double change = a[n * LENGTH + m] - a[m * LENGTH + n];
      differences += change * change;
      squares += a[n * LENGTH + m] * a[n * LENGTH + m];
    }
  return sqrt(differences / squares);
}

static hark_status measure_gram(const rotary *r, hark_lab_table *table) {
  double *const x = r->x, *const y = r->x + LENGTH * DIM;
  for (int kind = 0; kind < RATES; kind++) {
    double row[G_COLUMNS] = {[G_RATES] = kind};
    draw_rates(r, kind, STREAM_RATES + (uint32_t)kind, DIM / 2);
    repeat_content(r, STREAM_CONTENT + 2, x);
    repeat_content(r, STREAM_CONTENT + 3, y);
    HARK_TRY(multiply(r, DIM, x, y, 0, 0));
    row[G_OTHER_ASYMMETRY] = asymmetry(r->product);
    HARK_TRY(multiply(r, DIM, x, x, 0, 0));
    row[G_ASYMMETRY] = asymmetry(r->product);
    hark_lab_eigen(LENGTH, r->product, r->values, r->vectors);
    row[G_LEAST] = r->values[LENGTH - 1] / r->values[0];
    HARK_TRY(hark_lab_add_row(r->lab, table, row));
  }
  return HARK_OK;
}

/* The first row of the products: an estimate of the kernel at distances 0 .. LENGTH - 1. */
static hark_status estimate(const rotary *r, int kind, uint32_t stream, int64_t pairs) {
  draw_rates(r, kind, stream, pairs);
  for (int64_t i = 0; i < LENGTH; i++)
    for (int64_t j = 0; j < pairs; j++) {
      r->x[(i * pairs + j) * 2] = 1 / sqrt((double)pairs);
      r->x[(i * pairs + j) * 2 + 1] = 0;
    }
  return multiply(r, 2 * pairs, r->x, r->x, 0, 0);
}

static double expected_error(int kind, int64_t pairs) {
  double sum = 0;
  for (int64_t d = 0; d < LENGTH; d++) {
    const double mean = kernel_at(kind, (double)d);
    sum += ((1 + kernel_at(kind, 2 * (double)d)) / 2 - mean * mean) / (double)pairs;
  }
  return sum / LENGTH;
}

static hark_status measure_errors(const rotary *r, hark_lab_table *table) {
  const int64_t most = r->lab->quick ? QUICK_MOST_PAIRS : MOST_PAIRS;
  const uint32_t draws = r->lab->quick ? QUICK_DRAWS : FULL_DRAWS;
  uint32_t stream = STREAM_DRAWS;
  for (int kind = NORMAL; kind < RATES; kind++)
    for (int64_t pairs = 4; pairs <= most; pairs *= 4) {
      double sum = 0;
      for (uint32_t draw = 0; draw < draws; draw++) {
        HARK_TRY(estimate(r, kind, stream++, pairs));
        for (int64_t d = 0; d < LENGTH; d++) {
          const double error = r->product[d] - kernel_at(kind, (double)d);
          sum += error * error;
        }
      }
      const double row[E_COLUMNS] = {kind, (double)pairs, sum / (LENGTH * draws), expected_error(kind, pairs)};
      HARK_TRY(hark_lab_add_row(r->lab, table, row));
    }
  return HARK_OK;
}

static hark_status draw_curve(const rotary *r, hark_lab_panel *panel, int kind, int64_t pairs) {
  hark_lab_curve *estimated, *limit;
  HARK_TRY(hark_lab_add_curve(r->lab, panel, HARK_LAB_POINTS, &estimated,
                              kind == STATIC ? "%" PRId64 " static rates" : "%" PRId64 " drawn rates", pairs));
  HARK_TRY(estimate(r, kind, STREAM_DRAWS - 1, pairs));
  for (int64_t d = 0; d < LENGTH; d++) HARK_TRY(hark_lab_add_point(estimated, (double)d, r->product[d]));
  if (kind == STATIC) return HARK_OK;
  HARK_TRY(hark_lab_add_curve(r->lab, panel, HARK_LAB_LINE, &limit, kind == NORMAL ? "exp(-d^2 / 2 l^2)" : "exp(-d / l)"));
  for (int64_t d = 0; d < LENGTH; d++) HARK_TRY(hark_lab_add_point(limit, (double)d, kernel_at(kind, (double)d)));
  return HARK_OK;
}

static hark_status draw(const rotary *r, const hark_lab_table *errors) {
  static const hark_lab_axes kernels[RATES] = {{.title = "equal queries and keys, static rates", .x = "distance (tokens)", .y = "product"},
                                               {.title = "normal rates", .x = "distance (tokens)", .y = "product"},
                                               {.title = "Cauchy rates", .x = "distance (tokens)", .y = "product"}};
  static const hark_lab_axes axes = {.title = "error of drawn rates", .x = "pairs", .y = "mean square", .log_x = true, .log_y = true};
  hark_lab_panel *panel;
  for (int kind = 0; kind < RATES; kind++) {
    HARK_TRY(hark_lab_add_panel(r->lab, kernels[kind], &panel));
    HARK_TRY(draw_curve(r, panel, kind, QUICK_MOST_PAIRS));
  }
  HARK_TRY(hark_lab_add_panel(r->lab, axes, &panel));
  for (int kind = NORMAL; kind < RATES; kind++) {
    hark_lab_curve *points, *line;
    HARK_TRY(hark_lab_add_curve(r->lab, panel, HARK_LAB_POINTS, &points, "%s", kind == NORMAL ? "normal" : "Cauchy"));
    HARK_TRY(hark_lab_add_curve(r->lab, panel, HARK_LAB_LINE, &line, "expected, %s", kind == NORMAL ? "normal" : "Cauchy"));
    for (int64_t i = 0; i < hark_lab_row_count(errors); i++) {
      const double *const row = hark_lab_row(errors, i);
      if (row[E_RATES] != kind) continue;
      HARK_TRY(hark_lab_add_point(points, row[E_PAIRS], row[E_MEASURED]));
      HARK_TRY(hark_lab_add_point(line, row[E_PAIRS], row[E_EXPECTED]));
    }
  }
  return HARK_OK;
}

static hark_status measure(hark_lab *lab) {
  rotary r = {.lab = lab};
  hark_lab_table *shifts, *gram, *errors;
  HARK_TRY(hark_lab_numbers(lab, MOST_PAIRS, &r.rates));
  HARK_TRY(hark_lab_numbers(lab, LENGTH * 2 * MOST_PAIRS, &r.x));
  HARK_TRY(hark_lab_numbers(lab, LENGTH * 2 * MOST_PAIRS, &r.query));
  HARK_TRY(hark_lab_numbers(lab, LENGTH * 2 * MOST_PAIRS, &r.key));
  HARK_TRY(hark_lab_numbers(lab, LENGTH * LENGTH, &r.product));
  HARK_TRY(hark_lab_numbers(lab, LENGTH * LENGTH, &r.spare));
  HARK_TRY(hark_lab_numbers(lab, LENGTH, &r.values));
  HARK_TRY(hark_lab_numbers(lab, LENGTH * LENGTH, &r.vectors));
  HARK_TRY(hark_lab_add_table(lab, "products after a shift of all positions", shift_columns, S_COLUMNS, &shifts));
  HARK_TRY(hark_lab_add_table(lab, "Gram matrices of one content at all positions", gram_columns, G_COLUMNS, &gram));
  HARK_TRY(
      hark_lab_add_table(lab, "kernels of drawn rates, compared with the kernel of the distribution", error_columns, E_COLUMNS, &errors));
  HARK_TRY(measure_shifts(&r, shifts));
  HARK_TRY(measure_gram(&r, gram));
  HARK_TRY(measure_errors(&r, errors));
  return draw(&r, errors);
}

/* Products are of size sqrt(32) = 5.7, so that differences of one tenth of it count as large; and the angle of a shift of 1e4 tokens at
 * rates of about one radian has a rounding error of 1e-12: 1e-9 leaves room for the tails of Cauchy rates. A row's mean square error is a
 * mean over D draws whose relative deviation is at most sqrt(2) for a normal error of one distance, and less for a mean over 64; four pairs
 * are far from normal. Five standard errors of sqrt(2 / D) are .35 of 400 draws, and .91 of 60. */
static hark_status judge(hark_lab *lab) {
  const double within = lab->quick ? 0.91 : 0.35;
  const hark_lab_table *const shifts = &lab->tables[0], *const gram = &lab->tables[1], *const errors = &lab->tables[2];
  HARK_TRY(hark_lab_require(lab, hark_lab_column_range(shifts, S_DIFFERENCE, HARK_LAB_ALONE).largest, 0, 1e-9,
                            "queries and keys shifted together, largest difference"));
  HARK_TRY(hark_lab_require(lab, hark_lab_column_range(shifts, S_KEYS_ONLY, HARK_LAB_ALONE).least, 0.5, INFINITY,
                            "only keys shifted, least of the largest differences"));
  HARK_TRY(hark_lab_require(lab, hark_lab_column_range(gram, G_LEAST, HARK_LAB_ALONE).least, -1e-12, INFINITY,
                            "q = k: least eigenvalue / largest, least"));
  HARK_TRY(hark_lab_require(lab, hark_lab_column_range(gram, G_ASYMMETRY, HARK_LAB_ALONE).largest, 0, 1e-12, "q = k: asymmetry, largest"));
  HARK_TRY(hark_lab_require(lab, hark_lab_column_range(gram, G_OTHER_ASYMMETRY, HARK_LAB_ALONE).least, 0.2, INFINITY,
                            "q and k independent: asymmetry, least"));
  return hark_lab_require_range(lab, hark_lab_column_range(errors, E_MEASURED, E_EXPECTED), 1 - within, 1 + within,
                                "mean square error of drawn rates / expected");
}

const hark_experiment hark_experiment_rotary_kernel = {
    .summary = "rotary products depend on the distance alone; the rates determine the kernel",
    .paper = HARK_LAB_PAPER_K "section 2.1",
    .statement =
        "Products of rotated queries and keys depend on the distance alone. For equal queries and keys they are a "
        "positive semidefinite kernel. This kernel is approximately rbf if the rates are drawn from a normal "
        "distribution, and approximately decay if they are drawn from a Cauchy distribution. The mean square error of "
        "this approximation is known, and falls as 1 / (number of pairs)",
    .notes =
        "    (R_n q)^T (R_m k) = sum_j Re(q_j conj(k_j) e^(i (n - m) theta_j))\n"
        "\n"
        "The rates of the first two tables are the usual rates 10000^(-j / pairs) (`static`), or random. In the first "
        "table the positions of queries and keys are shifted together. For comparison, the last column has the results "
        "if only the keys are shifted. In the second table all positions have the same query q and the same key k. If "
        "q = k, the product is sum_j |q_j|^2 cos((n - m) theta_j), which is symmetric and positive semidefinite for "
        "any rates. If q and k are independent draws, the product is not symmetric, because the phase between q_j and "
        "k_j shifts the cosine. So a head can prefer a distance other than 0.\n"
        "\n"
        "In the third table queries and keys are equal, and the rates are random. Every |q_j|^2 is 1 / pairs, where "
        "pairs is the number of rates. The product then estimates g, the characteristic function of the distribution "
        "of the rates. For normal rates of standard deviation 1 / l, g(d) = exp(-d^2 / (2 l^2)). For Cauchy rates of "
        "scale 1 / l, g(d) = exp(-d / l). In both cases l = 12. The mean square error at distance d is ((1 + g(2 d)) / "
        "2 - g(d)^2) / pairs. So sums of cosines approximate any stationary positive definite kernel, for example the "
        "paper's decay. Rotary positions give such sums, so they can approximate these kernels too. With drawn rates "
        "the error falls slowly: an error of 1 % (root mean square) needs thousands of pairs. Chosen rates, as in a "
        "Fourier series, can give a smaller error. This is not measured here.\n"
        "\n"
        "*Figure.* The first panel has the kernel of the usual rates, in which a few pairs with large rates cause "
        "waves at all distances. The next panels have kernels of 64 drawn rates, and the kernels that they "
        "approximate. The last panel has the error over the number of pairs.",
    .measure = measure,
    .judge = judge};
