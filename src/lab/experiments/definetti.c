/* definetti.c - exchangeable sequences are mixtures over a latent variable: exactly when they are infinite, nearly when they are finite.
 *
 * Polya's urn with one red and one black ball: a ball is drawn and put back with another of its colour. Its sequences are exchangeable, the
 * latent variable z is uniform on [0, 1], and
 *
 *     P(x_l = 1 | the others) = (1 + n1) / (L + 1),  n1 ones among the L - 1 others                                              (urn)
 *                             = int z z^n1 (1 - z)^n0 dz / int z^n1 (1 - z)^n0 dz                                                (latent)
 *
 * The left side is also computed in a third way, from the urn itself: the product of the probabilities of its draws with x_l = 1, divided
 * by the sum for both values.
 *
 * An urn of L balls, half of them red, drawn without replacement, is no such mixture. The first k draws are within k (k - 1) / (2 L) of
 * independent ones in total variation (Diaconis, Freedman 1980, here with two colours). Source: X Prop. 3.1.
 */
#include "lab/fit.h"
#include "lab/special.h"

#define LONGEST 256
#define DRAWS 8
#define FIRST_FITTED 64
#define LAST_URN 4096

enum { LENGTH, ONES, TO_CLOSED, TO_QUADRATURE, PREDICTIVE_COLUMNS };
static const hark_lab_column predictive_columns[PREDICTIVE_COLUMNS] = {
    {"L", "tokens", NULL}, {"ones", NULL, NULL}, {"urn to (1 + n1)/(L + 1)", "largest", NULL}, {"urn to quadrature", "largest", NULL}};

enum { BALLS, DISTANCE, BOUND, URN_COLUMNS };
static const hark_lab_column urn_columns[URN_COLUMNS] = {
    {"L", "balls", NULL}, {"total variation", NULL, NULL}, {"k (k - 1)/(2 L)", NULL, NULL}};

/* ---- the infinite sequence ---- */

/* log of the probability that Polya's urn draws x in this order. */
static double urn_log_probability(const unsigned char *x, int64_t length) {
  double red = 1, black = 1, sum = 0;
  for (int64_t i = 0; i < length; i++) {
    double *const drawn = x[i] != 0 ? &red : &black;
    sum += log(*drawn / (red + black));
    *drawn += 1;
  }
  return sum;
}

/* P(x_at = 1 | the others) from two such products. */
static double urn_predictive(unsigned char *x, int64_t length, int64_t at) {
  const unsigned char own = x[at];
  x[at] = 1;
  const double one = urn_log_probability(x, length);
  x[at] = 0;
  const double zero = urn_log_probability(x, length);
  x[at] = own;
  return 1 / (1 + exp(zero - one));
}

static double latent_predictive(const hark_lab_rule *rule, int64_t ones, int64_t zeros) {
  double top = 0, all = 0;
  for (int64_t i = 0; i < rule->count; i++) {
    const double z = rule->nodes[i], likelihood = rule->weights[i] * pow(z, (double)ones) * pow(1 - z, (double)zeros);
    top += z * likelihood;
    all += likelihood;
  }
  return top / all;
}

/* One sequence drawn from the urn; every token is left out in turn. */
static hark_status measure_sequence(hark_lab *lab, int64_t length, uint32_t stream, hark_lab_table *table) {
  double uniform[LONGEST], red = 1;
  unsigned char x[LONGEST];
  hark_lab_rule rule;
  double row[PREDICTIVE_COLUMNS] = {[LENGTH] = (double)length};
  hark_lab_uniform(lab, stream, length, uniform);
  for (int64_t i = 0; i < length; i++) {
    x[i] = uniform[i] * (double)(i + 2) < red;
    red += x[i];
  }
  row[ONES] = red - 1;
  HARK_TRY(hark_lab_legendre(lab, length / 2 + 1, 0, 1, &rule)); /* exact: the degree is L */
  for (int64_t i = 0; i < length; i++) {
    const int64_t ones = (int64_t)row[ONES] - x[i];
    const double urn = urn_predictive(x, length, i);
    row[TO_CLOSED] = hark_lab_larger(row[TO_CLOSED], fabs(urn - (double)(1 + ones) / (double)(length + 1)));
    row[TO_QUADRATURE] = hark_lab_larger(row[TO_QUADRATURE], fabs(urn - latent_predictive(&rule, ones, length - 1 - ones)));
  }
  return hark_lab_add_row(lab, table, row);
}

/* ---- the finite one ---- */

/* Half the sum over n of |P(n red among k draws of L balls, half of them red) - binomial|; both by the path that draws the red ones first,
 * times the number of paths. */
static double distance_to_binomial(double balls) {
  double paths = 1, sum = 0;
  for (int n = 0; n <= DRAWS; n++) {
    double without = 1;
    for (int i = 0; i < DRAWS; i++) without *= (balls / 2 - (i < n ? i : i - n)) / (balls - i);
    sum += paths * fabs(without - pow(0.5, DRAWS));
    paths *= (double)(DRAWS - n) / (n + 1);
  }
  return sum / 2;
}

static hark_status draw(hark_lab *lab) {
  static const hark_lab_axes axes = {.title = "8 draws without replacement: total variation to independent ones",
                                     .x = "balls",
                                     .y = "total variation",
                                     .log_x = true,
                                     .log_y = true};
  const hark_lab_table *const table = &lab->tables[1];
  hark_lab_panel *panel;
  hark_lab_curve *measured, *bound;
  HARK_TRY(hark_lab_add_panel(lab, axes, &panel));
  HARK_TRY(hark_lab_add_curve(lab, panel, HARK_LAB_POINTS, &measured, "measured"));
  HARK_TRY(hark_lab_add_curve(lab, panel, HARK_LAB_DASHES, &bound, "k (k - 1)/(2 L)"));
  for (int64_t i = 0; i < hark_lab_row_count(table); i++) {
    const double *const row = hark_lab_row(table, i);
    HARK_TRY(hark_lab_add_point(measured, row[BALLS], row[DISTANCE]));
    HARK_TRY(hark_lab_add_point(bound, row[BALLS], row[BOUND]));
  }
  return HARK_OK;
}

static hark_status measure(hark_lab *lab) {
  const int sequences = lab->quick ? 2 : 20;
  hark_lab_table *table;
  uint32_t stream = 0;
  HARK_TRY(hark_lab_add_table(lab, "Polya's urn: the predictive distribution of a token that is left out, computed in three ways",
                              predictive_columns, PREDICTIVE_COLUMNS, &table));
  for (int64_t length = 2; length <= LONGEST; length *= 2)
    for (int i = 0; i < sequences; i++) HARK_TRY(measure_sequence(lab, length, stream++, table));
  HARK_TRY(hark_lab_add_table(lab, "an urn without replacement: the first 8 draws", urn_columns, URN_COLUMNS, &table));
  for (int64_t urn = FIRST_FITTED / 4; urn <= LAST_URN; urn *= 2) {
    const double balls = (double)urn, row[] = {balls, distance_to_binomial(balls), DRAWS * (DRAWS - 1) / (2 * balls)};
    HARK_TRY(hark_lab_add_row(lab, table, row));
  }
  return draw(lab);
}

static hark_status judge(hark_lab *lab) {
  const hark_lab_table *const predictive = &lab->tables[0], *const urn = &lab->tables[1];
  double closed = 0, quadrature = 0, ratio = 0;
  hark_lab_line line = {0};
  for (int64_t i = 0; i < hark_lab_row_count(predictive); i++) {
    closed = hark_lab_larger(closed, hark_lab_row(predictive, i)[TO_CLOSED]);
    quadrature = hark_lab_larger(quadrature, hark_lab_row(predictive, i)[TO_QUADRATURE]);
  }
  for (int64_t i = 0; i < hark_lab_row_count(urn); i++) {
    const double *const row = hark_lab_row(urn, i);
    ratio = hark_lab_larger(ratio, row[DISTANCE] / row[BOUND]);
    if (row[BALLS] >= FIRST_FITTED) hark_lab_line_add_power(&line, row[BALLS], row[DISTANCE]);
  }
  HARK_TRY(hark_lab_require(lab, closed, 0, 1e-10, "urn equals (1 + n1)/(L + 1), largest difference"));
  HARK_TRY(hark_lab_require(lab, quadrature, 0, 1e-10, "urn equals quadrature over the latent, largest difference"));
  HARK_TRY(
      hark_lab_require(lab, hark_lab_line_fit(&line).slope, -1.1, -0.9, "finite urn: slope of the total variation, L >= %d", FIRST_FITTED));
  return hark_lab_require(lab, ratio, 0, 1, "finite urn: total variation / its bound, largest");
}

const hark_experiment hark_experiment_definetti = {
    .summary = "exchangeable sequences are mixtures over a latent variable; finite ones are nearly mixtures",
    .paper = HARK_LAB_PAPER_X "Proposition 3.1",
    .statement =
        "In a sequence from Polya's urn one token is left out. Its predictive distribution equals the integral over the "
        "urn's latent variable. If 8 of L balls are drawn without replacement, the draws are within 28/L of a mixture in "
        "total variation, and this distance falls like 1/L",
    .notes =
        "Polya's urn starts with one ball of each of two colours. Its draws are exchangeable, and their latent "
        "variable z is uniform:\n"
        "\n"
        "    P(x_l = 1 | the others) = (1 + n1)/(L + 1) = int z z^n1 (1 - z)^n0 dz / int z^n1 (1 - z)^n0 dz\n"
        "\n"
        "Here n1 of the L - 1 other tokens are ones, and n0 are zeros. The left side is computed from the urn itself, "
        "as the quotient of two products of the probabilities of single draws. Every token is left out once. The right "
        "side is computed by Gauss-Legendre quadrature with L/2 + 1 nodes. This quadrature is exact. The proposition "
        "needs an infinite sequence. L balls drawn without replacement are an exchangeable sequence, but a finite one. "
        "The total variation between its first k = 8 draws and independent draws is less than k (k - 1)/(2 L). This is "
        "an upper bound of the probability that k draws with replacement take some ball twice.\n"
        "\n"
        "*Figure.* The total variation over L, and its bound.",
    .needs_gsl = true,
    .measure = measure,
    .judge = judge};
