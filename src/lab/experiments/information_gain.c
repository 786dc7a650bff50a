/* information_gain.c - how many directions CME attention learns: the effective dimension of its kernel matrix.
 *
 *     gamma_L = tr(K (K + lambda I)^-1),   keys uniform on the circle, kappa = RBF of variance 1/2, lambda = 1
 *
 * It is compared with sum_j l_j / (l_j + lambda / L) over the kernel's eigenvalues (circle.h). The operator computes the trace in two ways:
 *
 *     with the keys as queries its predictive variances are the diagonal of K - K (K + lambda I)^-1 K = lambda K (K + lambda I)^-1,
 *     with the unit matrix as values its outputs are K (K + lambda I)^-1 itself.
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
  HARK_TRY(hark_lab_numbers(lab, longest * 2, &s->key));
  HARK_TRY(hark_lab_numbers(lab, longest, &s->scratch));
  HARK_TRY(hark_lab_numbers(lab, longest, &s->variance));
  HARK_TRY(hark_lab_numbers(lab, longest, &s->value));
  HARK_TRY(hark_lab_numbers(lab, longest, &s->out));
  HARK_TRY(hark_lab_numbers(lab, square, &s->unit));
  return hark_lab_numbers(lab, square, &s->weights);
}

static hark_status trace_by_variances(const sample *s, int64_t length, double *trace) {
  const hark_attention_desc choice = hark_lab_kernel_ridge(HARK_CIRCLE_WIDTH, RIDGE);
  const hark_lab_head head = {
      .length = length, .head_dim = 2, .value_dim = 1, .query = s->key, .key = s->key, .value = s->value, .variance = s->variance};
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
    HARK_TRY(trace_by_variances(s, length, &trace));
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
  return draw_figure(lab, table);
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
  return hark_lab_require(lab, difference, 0, 1e-9, "trace by variances - trace by weights, largest");
}

const hark_experiment hark_experiment_information_gain = {
    .summary = "the effective dimension of CME attention grows more slowly than log L, far more slowly than L / lambda",
    .paper = HARK_LAB_PAPER_X "proposition 4.1 and the remark below it",
    .statement =
        "Let K be the Gram matrix of L keys on a circle. The mean of tr K (K + lambda I)^-1 is slightly smaller than "
        "the sum of l_j / (l_j + lambda / L) over the kernel's eigenvalues l_j. The quotient of trace and sum "
        "approaches 1 as L grows. With lambda = 1 the sum is 6.6 at 64 tokens and 11.8 at 4096 tokens",
    .notes =
        "    E tr K (K + lambda I)^-1 <= sum over j in Z of l_j / (l_j + lambda / L)\n"
        "\n"
        "The kernel is exp(2 (cos - 1)), where cos is the cosine of the angle between two keys. Its eigenvalues are "
        "l_j = e^-2 I_j(2), where I_j is a Bessel function. In the tables, `Bessel sum` is the sum on the right side. "
        "The trace is computed in two ways. If the keys are also the queries, the variances that CME attention returns "
        "are the diagonal of lambda K (K + lambda I)^-1. If the values are the identity matrix, the outputs are the "
        "matrix K (K + lambda I)^-1. Both give the same trace. The tolerance of 5 % was fixed beforehand. The mean "
        "trace of finitely many keys is smaller than the sum, because the trace is a concave function of K. The paper "
        "calls the sum Gamma(lambda / L) and prints Gamma(lambda / L) <= O(L / lambda). This bound is true for every "
        "bounded kernel. But it is far too large for an RBF on a bounded set of one dimension: the eigenvalues fall "
        "like 1 / j!, so Gamma(lambda / L) = O(log L / log log L).\n"
        "\n"
        "*Figure.* The trace over L on a logarithmic axis. The curve is slightly concave, because the trace grows more "
        "slowly than log L.",
    .needs_gsl = true,
    .measure = measure,
    .judge = judge};
