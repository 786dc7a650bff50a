/* information_gain.c - how many directions CME attention learns: the effective dimension of its kernel matrix.
 *
 *     gamma_L = tr(K (K + lambda I)^-1),   keys uniform on the circle, kappa = RBF of variance 1/2, lambda = 1
 *
 * It is compared with sum_j l_j / (l_j + lambda / L) over the kernel's eigenvalues (circle.h). The operator computes the trace in two ways:
 *
 *     with the keys as queries its predictive variances are the diagonal of K - K (K + lambda I)^-1 K = lambda K (K + lambda I)^-1,
 *     with the unit matrix as values its outputs are K (K + lambda I)^-1 itself.
 *
 * Keys of heads have many dimensions: normal keys of R^d with the width sigma^2 = d of (5.4) are measured too. There
 *
 *     kappa(x, y) = e^(-|x|^2 / 2d) e^(-|y|^2 / 2d) sum_n (x.y / d)^n / n!
 *
 * and degree n has of order d^n / n! directions, which share 1 / (e n!) of the trace of K: of 64 dimensions, more than a thousand keys can
 * fill.
 *
 * Printed (X below prop. 4.1): Gamma <= O(L / lambda). Eigenvalues that fall like 1 / j! leave about log L / log log L of them above 1 / L.
 * Source: X (Zhang et al.), proposition 4.1.
 */
#include "lab/attention.h"
#include "lab/circle.h"
#include "lab/fit.h"
#include "lab/tables.h"

#define RIDGE 1.
#define LEAST_LENGTH 64
#define QUICK_LONGEST 512
#define FULL_LONGEST 4096
#define LONGEST_IDENTITY 256 /* as values */

enum { TOKENS, KEY_SETS, TRACE, STANDARD_ERROR, PREDICTED, RATIO, PRINTED, COLUMNS };
static const hark_lab_column columns[COLUMNS] = {{"tokens", NULL, NULL},
                                                 {"key sets", NULL, NULL},
                                                 {"trace", NULL, NULL},
                                                 {"standard error", NULL, NULL},
                                                 {"predicted", "Bessel sum", NULL},
                                                 {"trace / predicted", NULL, NULL},
                                                 {"printed rate", "L / lambda", NULL}};

enum { WAY_TOKENS, BY_VARIANCE, BY_WEIGHTS, WAY_DIFFERENCE, WAY_COLUMNS };
static const hark_lab_column way_columns[WAY_COLUMNS] = {
    {"tokens", NULL, NULL}, {"by variances", NULL, NULL}, {"by weights", NULL, NULL}, {"difference", NULL, NULL}};

/* Normal keys of many dimensions */
enum { DIM, DIM_TOKENS, DIM_TRACE, DIM_ERROR, DIM_PART, DIM_COLUMNS };
static const hark_lab_column dim_columns[DIM_COLUMNS] = {
    {"d", NULL, NULL}, {"tokens", NULL, NULL}, {"trace", NULL, NULL}, {"standard error", NULL, NULL}, {"trace / L", NULL, NULL}};
enum { MOST_DIMS = 64, QUICK_WIDE = 256, FULL_WIDE = 1024, WIDE_SETS = 4 };
#define WIDE_STREAM (UINT32_C(1) << 24)

typedef struct sample {
  hark_lab *lab;
  double *key, *scratch, *variance; /* [L, 2], [L], [L] */
  double *value, *out;              /* [L], zeros, and the output for them */
  double *unit, *weights;           /* [LONGEST_IDENTITY^2] */
} sample;

static int64_t set_count(bool quick, int64_t length) { return hark_max(1, hark_min(32, (quick ? 2048 : 8192) / length)); }

static hark_status prepare(hark_lab *lab, sample *s) {
  const int64_t longest = lab->quick ? QUICK_LONGEST : FULL_LONGEST, square = (int64_t)LONGEST_IDENTITY * LONGEST_IDENTITY;
  *s = (sample){.lab = lab};
  HARK_TRY(hark_lab_numbers(lab, hark_max(longest * 2, (int64_t)FULL_WIDE * MOST_DIMS), &s->key));
  HARK_TRY(hark_lab_numbers(lab, longest, &s->scratch));
  HARK_TRY(hark_lab_numbers(lab, longest, &s->variance));
  HARK_TRY(hark_lab_numbers(lab, longest, &s->value));
  HARK_TRY(hark_lab_numbers(lab, longest, &s->out));
  HARK_TRY(hark_lab_numbers(lab, square, &s->unit));
  return hark_lab_numbers(lab, square, &s->weights);
}

static hark_status trace_by_variances(const sample *s, int64_t length, int64_t dim, double variance, double *trace) {
  const hark_attention_desc choice = hark_lab_kernel_ridge(variance, RIDGE);
  const hark_lab_head head = {
      .length = length, .head_dim = dim, .value_dim = 1, .query = s->key, .key = s->key, .value = s->value, .variance = s->variance};
  HARK_TRY(hark_lab_attend(s->lab->context, &choice, &head, s->out));
  *trace = 0;
  for (int64_t i = 0; i < length; i++) *trace += s->variance[i] / RIDGE;
  return HARK_OK;
}

static hark_status trace_by_weights(const sample *s, int64_t length, double *trace) {
  const hark_attention_desc choice = hark_lab_kernel_ridge(HARK_CIRCLE_WIDTH, RIDGE);
  const hark_lab_head head = {.length = length, .head_dim = 2, .value_dim = length, .query = s->key, .key = s->key, .value = s->unit};
  for (int64_t i = 0; i < length * length; i++) s->unit[i] = i % (length + 1) == 0;
  HARK_TRY(hark_lab_attend(s->lab->context, &choice, &head, s->weights));
  *trace = 0;
  for (int64_t i = 0; i < length; i++) *trace += s->weights[i * (length + 1)];
  return HARK_OK;
}

/* The first set's trace is computed in both ways where it is not too large. */
static hark_status measure_length(const sample *s, hark_lab_table *table, hark_lab_table *ways, int64_t length) {
  hark_lab_mean traces = {0};
  for (int64_t set = 0; set < set_count(s->lab->quick, length); set++) {
    double trace, other;
    hark_circle_points(s->lab, (uint32_t)(length * 64 + set), length, s->scratch, s->key);
    HARK_TRY(trace_by_variances(s, length, 2, HARK_CIRCLE_WIDTH, &trace));
    hark_lab_mean_add(&traces, trace);
    if (set > 0 || length > LONGEST_IDENTITY) continue;
    HARK_TRY(trace_by_weights(s, length, &other));
    const double row[WAY_COLUMNS] = {(double)length, trace, other, fabs(trace - other)};
    HARK_TRY(hark_lab_add_row(s->lab, ways, row));
  }
  const double predicted = hark_circle_dimension(RIDGE / (double)length, 1);
  const double row[COLUMNS] = {
      (double)length,          traces.count,          traces.mean, traces.count > 1 ? hark_lab_mean_error(&traces) : 0, predicted,
      traces.mean / predicted, (double)length / RIDGE};
  return hark_lab_add_row(s->lab, table, row);
}

static hark_status measure_dimensions(const sample *s) {
  uint32_t stream = WIDE_STREAM;
  hark_lab_table *table;
  HARK_TRY(hark_lab_add_table(s->lab, "normal keys of d dimensions, sigma^2 = d, lambda = 1", dim_columns, DIM_COLUMNS, &table));
  for (int64_t dim = 1; dim <= MOST_DIMS; dim *= 4)
    for (int64_t length = LEAST_LENGTH; length <= (s->lab->quick ? QUICK_WIDE : FULL_WIDE); length *= 2) {
      hark_lab_mean traces = {0};
      for (int set = 0; set < WIDE_SETS; set++) {
        double trace;
        hark_lab_normal(s->lab, stream++, length * dim, s->key);
        HARK_TRY(trace_by_variances(s, length, dim, (double)dim, &trace));
        hark_lab_mean_add(&traces, trace);
      }
      const double row[DIM_COLUMNS] = {(double)dim, (double)length, traces.mean, hark_lab_mean_error(&traces),
                                       traces.mean / (double)length};
      HARK_TRY(hark_lab_add_row(s->lab, table, row));
    }
  return HARK_OK;
}

static hark_status draw_figure(hark_lab *lab, const hark_lab_table *table) {
  static const hark_lab_axes axes = {.title = "tr K (K + I)^-1", .x = "tokens", .y = "effective dimension", .log_x = true};
  static const hark_lab_drawn drawn[] = {{TRACE, HARK_LAB_POINTS, "trace"}, {PREDICTED, HARK_LAB_LINE, "sum of l_j / (l_j + 1 / L)"}};
  return hark_lab_draw_columns(lab, table, axes, TOKENS, drawn, sizeof drawn / sizeof drawn[0]);
}

static hark_status measure(hark_lab *lab) {
  sample s;
  hark_lab_table *table, *ways;
  HARK_TRY(prepare(lab, &s));
  HARK_TRY(hark_lab_add_table(lab, "effective dimension over the number of tokens, lambda = 1", columns, COLUMNS, &table));
  HARK_TRY(hark_lab_add_table(lab, "trace of one set of keys, computed in two ways", way_columns, WAY_COLUMNS, &ways));
  for (int64_t length = LEAST_LENGTH; length <= (lab->quick ? QUICK_LONGEST : FULL_LONGEST); length *= 2)
    HARK_TRY(measure_length(&s, table, ways, length));
  HARK_TRY(measure_dimensions(&s));
  return draw_figure(lab, table);
}

/* In 64 dimensions the constant part has one direction, degree 1 has 64, each with an eigenvalue of L / (64 e), and degree 2 has 2080, of
 * the size L / (4160 e) or, while there are fewer keys than that, 1 / (2 e) = .18 in every direction of the keys; higher degrees add .08 to
 * every eigenvalue. So at 1024 keys the trace is about 1 + 64 .85 + 960 .26 / 1.26 = 250, at 256 keys 1 + 64 .6 + 190 .26 / 1.26 = 80, and
 * from 64 keys on it grows almost like L. In one dimension the eigenvalues fall geometrically, and the trace grows like log L. */
static hark_status judge_dimensions(hark_lab *lab) {
  const hark_lab_table *const table = &lab->tables[2];
  hark_lab_line narrow = {0}, wide = {0};
  for (int64_t i = 0; i < hark_lab_row_count(table); i++) {
    const double *const row = hark_lab_row(table, i);
    if (row[DIM] == 1) hark_lab_line_add_power(&narrow, row[DIM_TOKENS], row[DIM_TRACE]);
    if (row[DIM] == MOST_DIMS) hark_lab_line_add_power(&wide, row[DIM_TOKENS], row[DIM_TRACE]);
  }
  HARK_TRY(hark_lab_require(lab, hark_lab_line_fit(&narrow).slope, 0, 0.3, "normal keys, d = 1: slope of the trace, log-log"));
  HARK_TRY(hark_lab_require(lab, hark_lab_line_fit(&wide).slope, 0.6, 1, "normal keys, d = 64: slope of the trace, log-log"));
  return hark_lab_require(lab, hark_lab_row(table, hark_lab_row_count(table) - 1)[DIM_PART], 0.2, 0.4,
                          "normal keys, d = 64: trace / L at the largest L");
}

/* A trace of L keys equals that of the kernel's operator up to terms of order 1 / L, and is below it (it is concave). Logarithmic growth
 * adds about the same with every doubling, .99 at the beginning and .77 at 4096; a power of L would add more and more, L / lambda twice as
 * much every time. The two ways differ by rounding: L terms with errors of eps times the condition number, at most L. */
static hark_status judge(hark_lab *lab) {
  const hark_lab_table *const table = &lab->tables[0], *const ways = &lab->tables[1];
  const int64_t count = hark_lab_row_count(table);
  hark_lab_line growth = {0};
  for (int64_t i = 0; i < count; i++) hark_lab_line_add_power(&growth, hark_lab_row(table, i)[TOKENS], hark_lab_row(table, i)[TRACE]);
  const double difference = hark_lab_column_range(ways, WAY_DIFFERENCE, HARK_LAB_ALONE).largest;
  const double first = hark_lab_row(table, 1)[TRACE] - hark_lab_row(table, 0)[TRACE];
  const double last = hark_lab_row(table, count - 1)[TRACE] - hark_lab_row(table, count - 2)[TRACE];
  HARK_TRY(hark_lab_require_range(lab, hark_lab_column_range(table, TRACE, PREDICTED), 0.95, 1.05, "trace / Bessel sum"));
  HARK_TRY(hark_lab_require(lab, hark_lab_line_fit(&growth).slope, 0, 0.25, "slope of the trace, log-log (L / lambda: 1)"));
  HARK_TRY(hark_lab_require(lab, last / first, 0.5, 1.5, "growth over the last doubling of L / growth over the first"));
  HARK_TRY(hark_lab_require(lab, difference, 0, 1e-9, "trace by variances - trace by weights, largest"));
  return judge_dimensions(lab);
}

const hark_experiment hark_experiment_information_gain = {
    .summary =
        "the effective dimension of CME attention grows more slowly than log L for keys on a circle, and almost like L "
        "for keys of 64 dimensions",
    .paper = HARK_LAB_PAPER_X "proposition 4.1 and the remark below it",
    .statement =
        "Let K be the Gram matrix of L keys on a circle. The mean of tr K (K + lambda I)^-1 is slightly smaller than "
        "the sum of l_j / (l_j + lambda / L) over the kernel's eigenvalues l_j. The quotient of trace and sum "
        "approaches 1 as L grows. With lambda = 1 the sum is 6.6 at 64 tokens and 11.8 at 4096 tokens. For normal keys "
        "of 64 dimensions with sigma^2 = 64, the trace is about L / 4 at 1024 keys, and grows almost like L",
    .notes =
        "    E tr K (K + lambda I)^-1 <= sum over j in Z of l_j / (l_j + lambda / L)\n"
        "\n"
        "The kernel is exp(2 (cos - 1)), where cos is the cosine of the angle between two keys. Its eigenvalues are l_j "
        "= e^-2 I_j(2), where I_j is a Bessel function. In the tables, `Bessel sum` is the sum on the right side. The "
        "trace is computed in two ways. If the keys are also the queries, the variances that CME attention returns are "
        "the diagonal of lambda K (K + lambda I)^-1. If the values are the identity matrix, the outputs are the matrix "
        "K (K + lambda I)^-1. Both give the same trace. The tolerance of 5 % was fixed beforehand. The mean trace of "
        "finitely many keys is smaller than the sum, because the trace is a concave function of K. The paper calls the "
        "sum Gamma(lambda / L) and prints Gamma(lambda / L) <= O(L / lambda). This bound is true for every bounded "
        "kernel. But it is far too large for an RBF on a bounded set of one dimension: the eigenvalues fall like 1 / "
        "j!, so Gamma(lambda / L) = O(log L / log log L).\n"
        "\n"
        "*Keys of many dimensions.* The growth like log L is that of keys on a curve. The keys of a head have d_p "
        "dimensions, for example 64. The last table has normal keys with the width of (5.4), sigma^2 = d_p. Expanded in "
        "powers of x.y / d, the kernel has of order d^n / n! directions of degree n, and these share the part 1 / (e "
        "n!) of the trace of K. In 64 dimensions the degrees from two on have more directions than there are keys. So "
        "their part of K is close to a multiple of the identity matrix, and the effective dimension is a part of L: the "
        "rate L / lambda then has the right power. The keys of a trained network are not measured here. If their "
        "distances are larger than those of normal keys, K is closer to the identity, and the trace comes closer to L / "
        "(1 + lambda), which is L / 2.\n"
        "\n"
        "*Figure.* The trace over L on a logarithmic axis. The curve is slightly concave, because the trace grows more "
        "slowly than log L.",
    .needs_gsl = true,
    .measure = measure,
    .judge = judge};
