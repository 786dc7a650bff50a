/* softmax_limit.c - the limit of softmax attention for growing sequences, with a fixed and with a shrinking kernel width.
 *
 * Keys uniform on the unit sphere of R^d, values v = normalise(k + N/2), so that E[V | K = q] = c_d q. With L keys and exp(q.k / g), m = d
 * - 1:
 *
 *     fixed g:  attention -> A_d(1/g) c_d q, at distance about L^(-1/2); from E[V | K = q] it stays (1 - A_d(1/g)) c_d away
 *     g = L^(-2/(4+m)):  attention -> E[V | K = q], at the rate L^(-2/(4+m)): bias of order g, variance of order 1 / (L g^(m/2))
 *
 * c_d = E[(1 + X/2) / sqrt((1 + X/2)^2 + R^2/4)], X normal, R^2 chi-squared of d - 1, by quadrature. Source: X Prop. 4.2.
 */
#include "lab/attention.h"
#include "lab/fit.h"
#include "lab/matrix.h"
#include "lab/special.h"

#define QUERIES 32
#define LARGEST_DIM 3
#define SHORTEST 128
#define LONGEST 8192
#define FIXED 0.3
#define NOISE 0.5
#define HALF_WIDTH 9. /* the normal density is 1e-18 there */
#define NODES 200

enum { DIM, WIDTHS, LENGTH, WIDTH, TO_MEAN, TO_SHRUNK, FLOOR, SCATTER, COLUMNS };
enum { FIXED_WIDTH, SHRINKING };
static const hark_lab_column columns[COLUMNS] = {
    {"d", NULL, NULL},         {"widths", NULL, "fixed|shrinking"},        {"L", "tokens", NULL},
    {"g", NULL, NULL},         {"to E[V | K = q]", "rms", NULL},           {"to A c q", "rms", NULL},
    {"(1 - A) c", NULL, NULL}, {"deviation of a draw", "of log rms", NULL}};

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
  HARK_TRY(
      draw_panel(lab, FIXED_WIDTH,
                 (hark_lab_axes){.title = "a fixed width, g = 0.3", .x = "keys", .y = "distance (rms)", .log_x = true, .log_y = true}));
  return draw_panel(
      lab, SHRINKING,
      (hark_lab_axes){.title = "a width that shrinks, g = L^(-2/(4+m))", .x = "keys", .y = "distance (rms)", .log_x = true, .log_y = true});
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
  return HARK_OK;
}

const hark_experiment hark_experiment_softmax_limit = {
    .summary = "softmax attention tends to the conditional mean only when the kernel narrows as the sequence grows",
    .paper = HARK_LAB_PAPER_X "Proposition 4.2 (the limit)",
    .statement =
        "Keys are uniform on the sphere, and E[V | K = q] = c_d q. Let A_d(x) = I_{d/2}(x) / I_{d/2-1}(x), as in "
        "[softmax-kde](softmax-kde.md). Attention of fixed width g keeps the distance (1 - A_d(1/g)) c_d from this "
        "conditional mean. It approaches A_d(1/g) c_d q like L^(-1/2). With the width g = L^(-2/(4+m)), m = d - 1, "
        "attention approaches the conditional mean like g",
    .printed = "attention -> C E[V | K = q] as L -> infinity, the same limit as CME attention, with g fixed",
    .corrected =
        "at fixed g the limit is A_d(1/g) E[V | K = q] in this design, and a smoothed mean in general. The limit of CME "
        "attention is reached if g -> 0 and L g^(m/2) -> infinity",
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
        "*Figure.* Distances over L at the fixed and at the shrinking width. The floor is dashed.",
    .needs_gsl = true,
    .measure = measure,
    .judge = judge};
