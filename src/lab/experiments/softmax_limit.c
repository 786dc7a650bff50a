/* softmax_limit.c - the limit of softmax attention for growing sequences, with a fixed and with a shrinking kernel width.
 *
 * Keys uniform on the unit sphere of R^d, values v = normalise(k + N/2), so that E[V | K = q] = c_d q. With L keys and exp(q.k / g), m = d
 * - 1:
 *
 *     fixed g:  attention -> A_d(1/g) c_d q, at distance about L^(-1/2); from E[V | K = q] it stays (1 - A_d(1/g)) c_d away
 *     g = L^(-2/(4+m)):  attention -> E[V | K = q], at the rate L^(-2/(4+m)): bias of order g, variance of order 1 / (L g^(m/2))
 *
 * c_d = E[(1 + X/2) / sqrt((1 + X/2)^2 + R^2/4)], X normal, R^2 chi-squared of d - 1, by quadrature.
 *
 * There one constant, C = A_d(1/g), is enough. In general none is. On the circle (d = 2), with E[V | K = (cos t, sin t)] = (cos t, cos 2t),
 *
 *     fixed g:  attention -> (a_1 cos t, a_2 cos 2t),  a_j = I_j(1/g) / I_0(1/g);   rms distance from C E[V | K] at least |a_1 - a_2| / 2
 *
 * because cos and cos 2t have the mean square 1/2 each, and are orthogonal: the best C is (a_1 + a_2) / 2. Source: X Prop. 4.2.
 */
#include "lab/attention.h"
#include "lab/fit.h"
#include "lab/matrix.h"
#include "lab/special.h"
#include "lab/tables.h"

#define QUERIES 32
#define LARGEST_DIM 3
#define SHORTEST 128
#define LONGEST 8192
#define FIXED 0.3
#define NOISE 0.5
#define HALF_WIDTH 9. /* the normal density is 1e-18 there */
#define NODES 200
#define TWO_PI 6.28318530717958647693

enum { DIM, WIDTHS, LENGTH, WIDTH, TO_MEAN, TO_SHRUNK, FLOOR, SCATTER, COLUMNS };
enum { FIXED_WIDTH, SHRINKING };
static const hark_lab_column columns[COLUMNS] = {
    {"d", NULL, NULL},         {"widths", NULL, "fixed|shrinking"},        {"L", "tokens", NULL},
    {"g", NULL, NULL},         {"to E[V | K = q]", "rms", NULL},           {"to A c q", "rms", NULL},
    {"(1 - A) c", NULL, NULL}, {"deviation of a draw", "of log rms", NULL}};

/* E[V | K] with two harmonics */
enum { H_LENGTH, FIRST, SECOND, FIRST_LIMIT, SECOND_LIMIT, BEST_FACTOR, TO_BEST, TO_BEST_LIMIT, TO_LIMIT, HARMONIC_COLUMNS };
static const hark_lab_column harmonic_columns[HARMONIC_COLUMNS] = {{"L", "tokens", NULL},
                                                                   {"factor of cos t", "measured", NULL},
                                                                   {"factor of cos 2t", "measured", NULL},
                                                                   {"a_1", NULL, NULL},
                                                                   {"a_2", NULL, NULL},
                                                                   {"best C", NULL, NULL},
                                                                   {"to the best C E[V | K]", "rms", NULL},
                                                                   {"|a_1 - a_2| / 2", NULL, NULL},
                                                                   {"to (a_1 cos t, a_2 cos 2t)", "rms", NULL}};
#define HARMONICS 2
#define HARMONIC_STREAM 1

/* c_d; the density of R is proportional to r^(d-2) exp(-r^2/2). */
static hark_status mean_of_values(hark_lab *lab, int64_t dim, double *out) {
  hark_lab_rule across, along;
  double all = 0, sum = 0;
  HARK_TRY(hark_lab_legendre(lab, NODES, -HALF_WIDTH, HALF_WIDTH, &along));
  HARK_TRY(hark_lab_legendre(lab, NODES, 0, HALF_WIDTH, &across));
  for (int i = 0; i < NODES; i++)
    for (int j = 0; j < NODES; j++) {
      const double x = along.nodes[i], r = across.nodes[j], towards = 1 + NOISE * x;
      const double weight = along.weights[i] * across.weights[j] * pow(r, (double)(dim - 2)) * exp(-(x * x + r * r) / 2);
      all += weight;
      sum += weight * towards / sqrt(towards * towards + NOISE * NOISE * r * r);
    }
  *out = sum / all;
  return HARK_OK;
}

typedef struct draws {
  double *query, *key, *value, *out;
  uint64_t used; /* numbers of the stream */
} draws;

static void draw_rows(const hark_lab *lab, draws *d, int64_t count, double *out) {
  hark_lab_normal_from(lab, 0, d->used, count, out);
  d->used += (uint64_t)count;
}

/* Mean square distances of one draw's outputs to c q and to A c q. */
static hark_status measure_draw(hark_lab *lab, draws *d, int64_t dim, int64_t length, double g, double c, double mean[2]) {
  const double targets[] = {c, c * hark_lab_sphere_mean(dim, 1 / g)};
  hark_attention_desc choice = hark_attention_desc_default();
  const hark_lab_head head = {
      .length = length, .queries = QUERIES, .head_dim = dim, .value_dim = dim, .query = d->query, .key = d->key, .value = d->value};
  choice.scale = 1 / g;
  draw_rows(lab, d, QUERIES * dim, d->query);
  draw_rows(lab, d, length * dim, d->key);
  draw_rows(lab, d, length * dim, d->value);
  hark_lab_put_on_sphere(QUERIES, dim, d->query);
  hark_lab_put_on_sphere(length, dim, d->key);
  for (int64_t i = 0; i < length * dim; i++) d->value[i] = d->key[i] + NOISE * d->value[i];
  hark_lab_put_on_sphere(length, dim, d->value);
  HARK_TRY(hark_lab_attend(lab->context, &choice, &head, d->out));
  for (int t = 0; t < 2; t++) {
    mean[t] = 0;
    for (int64_t i = 0; i < QUERIES * dim; i++) mean[t] += pow(d->out[i] - targets[t] * d->query[i], 2) / QUERIES;
  }
  return HARK_OK;
}

static hark_status measure_length(hark_lab *lab, hark_lab_table *table, draws *d, int64_t dim, int widths, int64_t length, double c) {
  const double g = widths == FIXED_WIDTH ? FIXED : pow((double)length, -2 / (double)(4 + dim - 1));
  const int repeats = lab->quick ? 10 : 200;
  hark_lab_mean means[2] = {{0}};
  for (int i = 0; i < repeats; i++) {
    double squares[2];
    HARK_TRY(measure_draw(lab, d, dim, length, g, c, squares));
    for (int t = 0; t < 2; t++) hark_lab_mean_add(&means[t], squares[t]);
  }
  const hark_lab_mean *const judged = &means[widths == FIXED_WIDTH ? 1 : 0];
  const double row[] = {[DIM] = (double)dim,
                        [WIDTHS] = widths,
                        [LENGTH] = (double)length,
                        [WIDTH] = g,
                        [TO_MEAN] = sqrt(means[0].mean),
                        [TO_SHRUNK] = sqrt(means[1].mean),
                        [FLOOR] = (1 - hark_lab_sphere_mean(dim, 1 / g)) * c,
                        [SCATTER] = hark_lab_mean_error(judged) / judged->mean / 2 * sqrt(repeats)};
  return hark_lab_add_row(lab, table, row);
}

/* ---- two harmonics ---- */

/* Queries at equal angles, keys at random ones; values (cos t, cos 2t) + N/2 of the keys' angles t. */
static void draw_harmonics(const hark_lab *lab, draws *d, int64_t length) {
  for (int64_t i = 0; i < QUERIES; i++) {
    d->query[2 * i] = cos(TWO_PI * ((double)i + 0.5) / QUERIES);
    d->query[2 * i + 1] = sin(TWO_PI * ((double)i + 0.5) / QUERIES);
  }
  hark_lab_normal_from(lab, HARMONIC_STREAM, d->used, length * 2, d->key);
  hark_lab_normal_from(lab, HARMONIC_STREAM, d->used + 2 * (uint64_t)length, length * HARMONICS, d->value);
  d->used += 4 * (uint64_t)length;
  hark_lab_put_on_sphere(length, 2, d->key);
  for (int64_t i = 0; i < length; i++) {
    const double x = d->key[2 * i];
    d->value[2 * i] = x + NOISE * d->value[2 * i];
    d->value[2 * i + 1] = 2 * x * x - 1 + NOISE * d->value[2 * i + 1];
  }
}

/* What one draw's output says of the limit. */
typedef struct harmonic_means {
  hark_lab_mean factor[HARMONICS], best, to_best, to_limit;
} harmonic_means;

static hark_status measure_harmonic_draw(hark_lab *lab, draws *d, int64_t length, const double limit[HARMONICS], harmonic_means *means) {
  hark_attention_desc choice = hark_attention_desc_default();
  const hark_lab_head head = {
      .length = length, .queries = QUERIES, .head_dim = 2, .value_dim = HARMONICS, .query = d->query, .key = d->key, .value = d->value};
  double factor[HARMONICS] = {0}, to_best = 0, to_limit = 0;
  choice.scale = 1 / FIXED;
  draw_harmonics(lab, d, length);
  HARK_TRY(hark_lab_attend(lab->context, &choice, &head, d->out));
  for (int64_t i = 0; i < QUERIES; i++) {
    const double x = d->query[2 * i], mean[HARMONICS] = {x, 2 * x * x - 1};
    for (int h = 0; h < HARMONICS; h++) {
      factor[h] += d->out[HARMONICS * i + h] * mean[h] / (QUERIES / 2.); /* the sum of mean^2 over the queries is QUERIES / 2 */
      to_limit += pow(d->out[HARMONICS * i + h] - limit[h] * mean[h], 2) / QUERIES;
      to_best += pow(d->out[HARMONICS * i + h], 2) / QUERIES;
    }
  }
  const double best = (factor[0] + factor[1]) / 2;
  to_best -= best * best; /* the least over C of the mean of |out - C E[V | K]|^2: |E[V | K]|^2 has the mean 1 */
  for (int h = 0; h < HARMONICS; h++) hark_lab_mean_add(&means->factor[h], factor[h]);
  hark_lab_mean_add(&means->best, best);
  hark_lab_mean_add(&means->to_best, to_best);
  hark_lab_mean_add(&means->to_limit, to_limit);
  return HARK_OK;
}

static hark_status measure_harmonics(hark_lab *lab, draws *d) {
  const int repeats = lab->quick ? 10 : 100;
  const double whole = hark_lab_bessel(0, 1 / FIXED);
  const double limit[HARMONICS] = {hark_lab_bessel(1, 1 / FIXED) / whole, hark_lab_bessel(2, 1 / FIXED) / whole};
  hark_lab_table *table;
  d->used = 0;
  HARK_TRY(
      hark_lab_add_table(lab, "a mean of two harmonics on the circle, g = 0.3: no C fits", harmonic_columns, HARMONIC_COLUMNS, &table));
  for (int64_t length = SHORTEST; length <= LONGEST; length *= lab->quick ? 4 : 2) {
    harmonic_means means = {.best = {0}};
    for (int i = 0; i < repeats; i++) HARK_TRY(measure_harmonic_draw(lab, d, length, limit, &means));
    const double row[HARMONIC_COLUMNS] = {[H_LENGTH] = (double)length,
                                          [FIRST] = means.factor[0].mean,
                                          [SECOND] = means.factor[1].mean,
                                          [FIRST_LIMIT] = limit[0],
                                          [SECOND_LIMIT] = limit[1],
                                          [BEST_FACTOR] = means.best.mean,
                                          [TO_BEST] = sqrt(means.to_best.mean),
                                          [TO_BEST_LIMIT] = fabs(limit[0] - limit[1]) / 2,
                                          [TO_LIMIT] = sqrt(means.to_limit.mean)};
    HARK_TRY(hark_lab_add_row(lab, table, row));
  }
  return HARK_OK;
}

static hark_status draw_panel(hark_lab *lab, int widths, hark_lab_axes axes) {
  static const char *const names[] = {"to A c q", "to E[V | K = q]"};
  hark_lab_panel *panel;
  HARK_TRY(hark_lab_add_panel(lab, axes, &panel));
  for (int64_t dim = 2; dim <= LARGEST_DIM; dim++) {
    hark_lab_curve *mean, *shrunk, *floor;
    HARK_TRY(hark_lab_add_curve(lab, panel, HARK_LAB_POINTS, &mean, "d = %d, %s", (int)dim, names[1]));
    HARK_TRY(hark_lab_add_curve(lab, panel, HARK_LAB_LINE, &shrunk, "d = %d, %s", (int)dim, names[0]));
    HARK_TRY(hark_lab_add_curve(lab, panel, HARK_LAB_DASHES, &floor, "d = %d, (1 - A) c", (int)dim));
    for (int64_t i = 0; i < hark_lab_row_count(&lab->tables[0]); i++) {
      const double *const row = hark_lab_row(&lab->tables[0], i);
      if (row[DIM] != (double)dim || row[WIDTHS] != widths) continue;
      HARK_TRY(hark_lab_add_point(mean, row[LENGTH], row[TO_MEAN]));
      HARK_TRY(hark_lab_add_point(shrunk, row[LENGTH], row[TO_SHRUNK]));
      HARK_TRY(hark_lab_add_point(floor, row[LENGTH], row[FLOOR]));
    }
  }
  return HARK_OK;
}

static hark_status measure(hark_lab *lab) {
  static const hark_lab_drawn harmonics[] = {{TO_BEST, HARK_LAB_POINTS, "to the best C E[V | K = q]"},
                                             {TO_LIMIT, HARK_LAB_LINE, "to (a_1 cos t, a_2 cos 2t)"},
                                             {TO_BEST_LIMIT, HARK_LAB_DASHES, "|a_1 - a_2| / 2"}};
  draws d = {0};
  hark_lab_table *table;
  HARK_TRY(hark_lab_numbers(lab, (int64_t)QUERIES * LARGEST_DIM, &d.query));
  HARK_TRY(hark_lab_numbers(lab, (int64_t)LONGEST * LARGEST_DIM, &d.key));
  HARK_TRY(hark_lab_numbers(lab, (int64_t)LONGEST * LARGEST_DIM, &d.value));
  HARK_TRY(hark_lab_numbers(lab, (int64_t)QUERIES * LARGEST_DIM, &d.out));
  HARK_TRY(hark_lab_add_table(lab, "distance of attention over the number of keys, 32 queries", columns, COLUMNS, &table));
  for (int64_t dim = 2; dim <= LARGEST_DIM; dim++) {
    double c;
    HARK_TRY(mean_of_values(lab, dim, &c));
    for (int widths = FIXED_WIDTH; widths <= SHRINKING; widths++)
      for (int64_t length = SHORTEST; length <= LONGEST; length *= lab->quick ? 4 : 2)
        HARK_TRY(measure_length(lab, table, &d, dim, widths, length, c));
  }
  HARK_TRY(measure_harmonics(lab, &d));
  HARK_TRY(
      draw_panel(lab, FIXED_WIDTH,
                 (hark_lab_axes){.title = "a fixed width, g = 0.3", .x = "keys", .y = "distance (rms)", .log_x = true, .log_y = true}));
  HARK_TRY(
      draw_panel(lab, SHRINKING,
                 (hark_lab_axes){
                     .title = "a width that shrinks, g = L^(-2/(4+m))", .x = "keys", .y = "distance (rms)", .log_x = true, .log_y = true}));
  return hark_lab_draw_columns(
      lab, &lab->tables[1],
      (hark_lab_axes){.title = "two harmonics, g = 0.3", .x = "keys", .y = "distance (rms)", .log_x = true, .log_y = true}, H_LENGTH,
      harmonics, sizeof harmonics / sizeof harmonics[0]);
}

/* A draw's factor has the variance of the mean of N/2 and of what the kernel lets through of the keys' scatter, about 1 / (number of keys
 * in a width) over the widths around the circle, so 1 / L: the deviation over 10 draws of 8192 is .004. The best C misses the limit by .166
 * for every L, and the scatter, of rms .02 at 8192, adds to its square: less than 2 %. The distance to the corrected limit is all scatter,
 * and its slope is judged as the others. */
static hark_status judge_harmonics(hark_lab *lab) {
  const hark_lab_table *const table = &lab->tables[1];
  const double *const last = hark_lab_row(table, hark_lab_row_count(table) - 1), wider = lab->quick ? 0.09 : 0;
  hark_lab_line line = {0};
  for (int64_t i = 0; i < hark_lab_row_count(table); i++)
    hark_lab_line_add_power(&line, hark_lab_row(table, i)[H_LENGTH], hark_lab_row(table, i)[TO_LIMIT]);
  HARK_TRY(hark_lab_require(lab, last[FIRST] / last[FIRST_LIMIT], 0.97, 1.03, "two harmonics, L = %d: factor of cos t / a_1", LONGEST));
  HARK_TRY(hark_lab_require(lab, last[SECOND] / last[SECOND_LIMIT], 0.97, 1.03, "two harmonics, L = %d: factor of cos 2t / a_2", LONGEST));
  HARK_TRY(hark_lab_require(lab, last[TO_BEST] / last[TO_BEST_LIMIT], 0.95, 1.05,
                            "two harmonics, L = %d: distance to the best C E[V | K] / (|a_1 - a_2| / 2)", LONGEST));
  return hark_lab_require(lab, hark_lab_line_fit(&line).slope, -0.55 - wider, -0.45 + wider,
                          "two harmonics: slope of the distance to (a_1 cos t, a_2 cos 2t)");
}

/* The deviation of the slopes: a draw's log rms scatters by about 0.3 with d = 2, where 32 queries on a circle are about as many as the
 * kernel has widths, so 200 draws at 7 lengths give .3 / sqrt(200) / 3.7 = .006, and 10 draws at 4 lengths (spread 3.1) .03. The full
 * intervals are those of the design; quick ones are wider by three of these. */
static hark_status judge(hark_lab *lab) {
  const double wider = lab->quick ? 0.09 : 0;
  for (int64_t dim = 2; dim <= LARGEST_DIM; dim++) {
    hark_lab_line fixed = {0}, shrinking = {0};
    const double expected = -2 / (double)(4 + dim - 1);
    double ratio = NAN;
    for (int64_t i = 0; i < hark_lab_row_count(&lab->tables[0]); i++) {
      const double *const row = hark_lab_row(&lab->tables[0], i);
      if (row[DIM] != (double)dim) continue;
      if (row[WIDTHS] == SHRINKING) {
        hark_lab_line_add_power(&shrinking, row[LENGTH], row[TO_MEAN]);
        continue;
      }
      hark_lab_line_add_power(&fixed, row[LENGTH], row[TO_SHRUNK]);
      ratio = row[TO_MEAN] / row[FLOOR]; /* the last row has the longest sequence */
    }
    HARK_TRY(
        hark_lab_require(lab, ratio, 0.95, 1.05, "d = %d, fixed g, L = %d: distance to E[V | K = q] / ((1 - A) c)", (int)dim, LONGEST));
    HARK_TRY(hark_lab_require(lab, hark_lab_line_fit(&fixed).slope, -0.55 - wider, -0.45 + wider,
                              "d = %d, fixed g: slope of the distance to A c q", (int)dim));
    HARK_TRY(hark_lab_require(lab, hark_lab_line_fit(&shrinking).slope, expected - 0.06 - wider, expected + 0.06 + wider,
                              "d = %d, shrinking g: slope of the distance to E[V | K = q]", (int)dim));
  }
  return judge_harmonics(lab);
}

const hark_experiment hark_experiment_softmax_limit = {
    .summary = "softmax attention tends to the conditional mean only when the kernel narrows as the sequence grows",
    .paper = HARK_LAB_PAPER_X "Proposition 4.2 (the limit)",
    .statement =
        "Keys are uniform on the sphere, and E[V | K = q] = c_d q. Let A_d(x) = I_{d/2}(x) / I_{d/2-1}(x), as in "
        "[softmax-kde](softmax-kde.md). Attention of fixed width g keeps the distance (1 - A_d(1/g)) c_d from this "
        "conditional mean. It approaches A_d(1/g) c_d q like L^(-1/2). With the width g = L^(-2/(4+m)), m = d - 1, "
        "attention approaches the conditional mean like g. On the circle, let E[V | K] be (cos t, cos 2t) at the angle "
        "t. Then the limit at g = 0.3 is (.832 cos t, .501 cos 2t), which is not C E[V | K] for any number C",
    .printed = "attention -> C E[V | K = q] as L -> infinity, the same limit as CME attention, with g fixed",
    .corrected =
        "at fixed g the limit is A_d(1/g) E[V | K = q] if this mean is linear in q, and a smoothed mean in general, "
        "which is no multiple of E[V | K = q]. The limit of CME attention is reached if g -> 0 and L g^(m/2) -> "
        "infinity",
    .notes =
        "    rms distance to E[V | K = q]:    (1 - A_d(1/g)) c_d at fixed g;    of order L^(-2/(4+m)) at g = "
        "L^(-2/(4+m))\n"
        "\n"
        "The proposition assumes that the density estimate converges to the conditional density. With kernels of fixed "
        "width it cannot converge, because the kernel of the keys averages over a cap of the sphere. Here this "
        "multiplies the mean by A_d(1/g). If the width shrinks, the bias is of order g and the standard deviation of "
        "order (L g^(m/2))^(-1/2). The two balance at g = L^(-2/(4+m)). The constant c_d is computed by quadrature, and "
        "A_d with GSL's Bessel functions.\n"
        "\n"
        "The second table has a conditional mean with two harmonics. The kernel multiplies cos jt by a_j = I_j(1/g) / "
        "I_0(1/g), so a_1 and a_2 are the factors in the limit. The two harmonics are orthogonal and have the same mean "
        "square. So the C with the least distance is (a_1 + a_2) / 2, and this distance is |a_1 - a_2| / 2 = .166. The "
        "proposition allows a C that depends on the width. No such C makes the distance smaller.\n"
        "\n"
        "*Figures.* Distances over L at the fixed and at the shrinking width. The floor is dashed. The third figure has "
        "the mean of two harmonics.",
    .needs_gsl = true,
    .measure = measure,
    .judge = judge};
