/* downstream.c - a network is trained to predict masked tokens, frozen, and given a new aggregation for another task: what that costs.
 *
 *     z ~ N(0, I_2),  tokens x_l = (cos t_l, sin t_l, r_l),  r_l = z.(cos t_l, sin t_l) + 0.3 N,  t_l ~ U(0, 2 pi),  l = 1 .. 8
 *     pre-training:  msk = (cos t, sin t, 0) of a ninth token whose r is the target; networks of X 5.1 (latent_network.h), all weights trained
 *     downstream:    y = tanh z_1 + N(0, 1);  msk = (1, 0, 0);  y^ = theta.o,  o [8] the frozen attention, theta [8] by least squares on n tokens
 *
 * The gap  E (y - y^)^2 - (1/n) sum (y_i - y^_i)^2  belongs to least squares on p = 8 features, whatever the width of what was frozen:
 *
 *     gap = s2 (p / n + p / (n - p - 1))        for normal features that are right up to noise of variance s2
 *
 * The loss of the best theta (of many sequences that are not trained on) is taken from both losses: its mean difference is zero, and its scatter,
 * which is larger than the gap, goes. Source: X section 6 (equation 6.2), Theorem 5.3 for the aggregation alone.
 */
#include <string.h>

#include "lab/descent.h"
#include "lab/fit.h"
#include "lab/latent_network.h"
#include "lab/matrix.h"

enum { DIM = 3, LENGTH = 8, HEAD_DIM = 4, AGGREGATION = 8, LATENT = 2, WIDTHS = 3 };
static const int64_t widths[WIDTHS] = {8, 32, 128};
#define TWO_PI 6.28318530717958647692
#define TOKEN_NOISE 0.3
#define RATE 0.02
#define LEAST_COUNT 32
#define MOST_COUNT 512
#define BATCH 512

enum { WIDTH, COUNT, MASKED_LOSS, LOSS_OF_ZERO, BEST, GAP, GAP_ERROR, EXPECTED, RANDOM_BEST, COLUMNS };
static const hark_lab_column columns[COLUMNS] = {{"width", "frozen", NULL},
                                                 {"n", "sequences", NULL},
                                                 {"masked loss", "new sequences", NULL},
                                                 {"masked loss", "of zero", NULL},
                                                 {"loss of the best theta", "pre-trained", NULL},
                                                 {"gap", NULL, NULL},
                                                 {"standard error", NULL, NULL},
                                                 {"gap expected", "normal features", NULL},
                                                 {"loss of the best theta", "random weights", NULL}};

typedef struct sizes {
  int64_t pre_training, pool; /* sequences; the pool is trained on downstream, in pieces, and as many more are the population */
  int steps;
} sizes;
static const sizes quick_sizes = {512, 12288, 120}, full_sizes = {2048, 49152, 400};

typedef struct problem {
  hark_lab *lab;
  hark_lab_network network;
  hark_lab_sequences sequences;
  hark_lab_descent descent;
  double *tokens, *masks, *targets, *scratch, *normal, *uniform;
} problem;

/* Sequences with a mask of their own each and the masked response, of streams stream .. stream + 1; latent [count, 2] may be NULL. */
static void draw_sequences(problem *p, uint32_t stream, int64_t count, double *latent) {
  enum { NORMAL = LATENT + LENGTH + 1 };
  hark_lab_normal(p->lab, stream, count * NORMAL, p->normal);
  hark_lab_uniform(p->lab, stream + 1, count * (LENGTH + 1), p->uniform);
  for (int64_t i = 0; i < count; i++) {
    const double *const z = p->normal + i * NORMAL, *const noise = z + LATENT;
    for (int l = 0; l <= LENGTH; l++) {
      const double angle = TWO_PI * p->uniform[i * (LENGTH + 1) + l], x = cos(angle), y = sin(angle);
      const double response = z[0] * x + z[1] * y + TOKEN_NOISE * noise[l];
      double *const token = l < LENGTH ? p->tokens + (i * LENGTH + l) * DIM : p->masks + i * DIM;
      token[0] = x;
      token[1] = y;
      token[2] = l < LENGTH ? response : 0;
      if (l == LENGTH) p->targets[i] = response;
    }
    for (int c = 0; latent != NULL && c < LATENT; c++) latent[i * LATENT + c] = z[c];
  }
}

static hark_status masked_loss(void *user, const double *weights, double *value, double *gradient) {
  problem *const p = user;
  return hark_lab_network_loss(p->lab->context, &p->network, &p->sequences, p->targets, weights, p->scratch, value, gradient);
}

static hark_status make_problem(hark_lab *lab, int64_t width, int64_t most, problem *p) {
  *p = (problem){.lab = lab};
  p->network = (hark_lab_network){.dim = DIM,
                                  .width = width,
                                  .head_dim = HEAD_DIM,
                                  .value_dim = AGGREGATION,
                                  .length = LENGTH,
                                  .most = most,
                                  .variance = HEAD_DIM,
                                  .feature_scale = 1 / sqrt((double)width),
                                  .output_scale = 1,
                                  .unbounded = true};
  HARK_TRY(hark_lab_make_network(lab, &p->network));
  HARK_TRY(hark_lab_make_descent(lab, p->network.weights, HARK_LAB_PAIRS, &p->descent));
  HARK_TRY(hark_lab_numbers(lab, most * LENGTH * DIM, &p->tokens));
  HARK_TRY(hark_lab_numbers(lab, most * DIM, &p->masks));
  HARK_TRY(hark_lab_numbers(lab, most, &p->targets));
  HARK_TRY(hark_lab_numbers(lab, most, &p->scratch));
  HARK_TRY(hark_lab_numbers(lab, most * (LATENT + LENGTH + 1), &p->normal));
  HARK_TRY(hark_lab_numbers(lab, most * (LENGTH + 1), &p->uniform));
  p->sequences = (hark_lab_sequences){.count = most, .tokens = p->tokens, .masks = p->masks};
  return HARK_OK;
}

/* ---- downstream ---- */

/* Frozen features of many sequences and what is asked of them. */
typedef struct pool {
  int64_t count;
  double *features, *means, *y; /* [count, AGGREGATION], [count] E[y | z], [count] */
} pool;

static hark_status fill_pool(problem *p, const double *weights, uint32_t stream, pool *out) {
  static const double mask[DIM] = {1, 0, 0};
  double latent[BATCH * LATENT];
  for (int64_t first = 0; first < out->count; first += BATCH, stream += 2) {
    draw_sequences(p, stream, BATCH, latent);
    const hark_lab_sequences sequences = {.count = BATCH, .tokens = p->tokens, .masks = mask, .one_mask = true};
    HARK_TRY(hark_lab_network_forward(p->lab->context, &p->network, &sequences, weights));
    memcpy(out->features + first * AGGREGATION, p->network.batch.out, sizeof(double) * BATCH * AGGREGATION);
    for (int64_t i = 0; i < BATCH; i++) out->means[first + i] = tanh(latent[i * LATENT]);
  }
  hark_lab_normal(p->lab, stream, out->count, out->y);
  for (int64_t i = 0; i < out->count; i++) out->y[i] += out->means[i];
  return HARK_OK;
}

/* Least squares of y on features, by eigenvectors of F'F: directions below `count` eps of the largest do not exist. Returns their number. */
static int fit_aggregation(int64_t count, const double *features, const double *y, double theta[AGGREGATION]) {
  double gram[AGGREGATION * AGGREGATION] = {0}, moments[AGGREGATION] = {0}, values[AGGREGATION], vectors[AGGREGATION * AGGREGATION];
  int rank = 0;
  hark_lab_add_left_transposed(AGGREGATION, count, AGGREGATION, features, features, gram);
  hark_lab_add_left_transposed(AGGREGATION, count, 1, features, y, moments);
  hark_lab_eigen(AGGREGATION, gram, values, vectors);
  for (int c = 0; c < AGGREGATION; c++) theta[c] = 0;
  while (rank < AGGREGATION && values[rank] > 1e-13 * values[0]) {
    const double *const v = vectors + (ptrdiff_t)rank * AGGREGATION;
    const double along = hark_lab_dot(v, moments, AGGREGATION) / values[rank++];
    for (int c = 0; c < AGGREGATION; c++) theta[c] += along * v[c];
  }
  return rank;
}

static double loss_of(int64_t count, const double *features, const double *y, const double *theta) {
  double sum = 0;
  for (int64_t i = 0; i < count; i++) {
    const double error = y[i] - hark_lab_dot(features + i * AGGREGATION, theta, AGGREGATION);
    sum += error * error / (double)count;
  }
  return sum;
}

/* E (y - theta.o)^2 over the population's sequences, the noise of y apart: its variance is 1. */
static double loss_on_population(const pool *population, const double *theta) {
  return 1 + loss_of(population->count, population->features, population->means, theta);
}

static hark_status make_pool(hark_lab *lab, int64_t count, pool *out) {
  *out = (pool){.count = count};
  HARK_TRY(hark_lab_numbers(lab, count * AGGREGATION, &out->features));
  HARK_TRY(hark_lab_numbers(lab, count, &out->means));
  return hark_lab_numbers(lab, count, &out->y);
}

/* second moments of the features, so that a population's loss costs p^2 instead of its sequences: E (m - theta.o)^2 = E m^2 - 2 b.theta + theta'G theta */
typedef struct moments {
  double square, cross[AGGREGATION], gram[AGGREGATION * AGGREGATION];
} moments;

static moments moments_of(const pool *population) {
  moments m = {.square = 0};
  const double n = (double)population->count;
  hark_lab_add_left_transposed(AGGREGATION, population->count, AGGREGATION, population->features, population->features, m.gram);
  hark_lab_add_left_transposed(AGGREGATION, population->count, 1, population->features, population->means, m.cross);
  m.square = hark_lab_dot(population->means, population->means, population->count) / n;
  for (int i = 0; i < AGGREGATION; i++) m.cross[i] /= n;
  for (int i = 0; i < AGGREGATION * AGGREGATION; i++) m.gram[i] /= n;
  return m;
}

static double loss_from(const moments *m, const double *theta) {
  double sum = 1 + m->square;
  for (int i = 0; i < AGGREGATION; i++)
    sum += theta[i] * (hark_lab_dot(m->gram + (ptrdiff_t)i * AGGREGATION, theta, AGGREGATION) - 2 * m->cross[i]);
  return sum;
}

/* Gaps of pieces of n sequences. */
static void measure_gaps(const pool *pieces, const moments *population, const double *best, int64_t n, hark_lab_mean *gap) {
  double theta[AGGREGATION];
  const double best_loss = loss_from(population, best);
  for (int64_t first = 0; first + n <= pieces->count; first += n) {
    const double *const features = pieces->features + first * AGGREGATION, *const y = pieces->y + first;
    (void)fit_aggregation(n, features, y, theta);
    hark_lab_mean_add(gap, loss_from(population, theta) - best_loss + loss_of(n, features, y, best) - loss_of(n, features, y, theta));
  }
}

static hark_status measure_width(hark_lab *lab, hark_lab_table *table, int64_t width, pool *pieces, pool *population) {
  const sizes *const s = lab->quick ? &quick_sizes : &full_sizes;
  const hark_lab_adam how = {.steps = s->steps, .rate = RATE};
  double random_theta[AGGREGATION], theta[AGGREGATION];
  double row[COLUMNS] = {[WIDTH] = (double)width};
  problem p;
  HARK_TRY(make_problem(lab, width, s->pre_training, &p));
  const hark_lab_objective objective = {.dims = p.network.weights, .evaluate = masked_loss, .user = &p};
  hark_lab_normal(lab, 16 + (uint32_t)width, p.network.weights, p.descent.x);
  for (int64_t i = hark_lab_weight_place(&p.network, HARK_LAB_U).first; i < p.network.weights; i++) p.descent.x[i] /= AGGREGATION;
  HARK_TRY(fill_pool(&p, p.descent.x, UINT32_C(1) << 16, population));
  (void)fit_aggregation(population->count, population->features, population->means, random_theta);
  row[RANDOM_BEST] = loss_on_population(population, random_theta);
  draw_sequences(&p, 0, s->pre_training, NULL);
  HARK_TRY(hark_lab_descend(lab, &objective, how, &p.descent));
  draw_sequences(&p, 2, s->pre_training, NULL);
  HARK_TRY(masked_loss(&p, p.descent.x, &row[MASKED_LOSS], p.descent.gradient));
  row[LOSS_OF_ZERO] = hark_lab_dot(p.targets, p.targets, s->pre_training) / (double)s->pre_training;
  HARK_TRY(fill_pool(&p, p.descent.x, UINT32_C(1) << 16, population));
  HARK_TRY(fill_pool(&p, p.descent.x, UINT32_C(1) << 20, pieces));
  (void)fit_aggregation(population->count, population->features, population->means, theta);
  const moments of_population = moments_of(population);
  row[BEST] = loss_on_population(population, theta);
  for (int64_t n = LEAST_COUNT; n <= MOST_COUNT; n *= 2) {
    hark_lab_mean gap = {0};
    measure_gaps(pieces, &of_population, theta, n, &gap);
    row[COUNT] = (double)n;
    row[GAP] = gap.mean;
    row[GAP_ERROR] = hark_lab_mean_error(&gap);
    row[EXPECTED] = row[BEST] * (AGGREGATION / (double)n + AGGREGATION / (double)(n - AGGREGATION - 1));
    HARK_TRY(hark_lab_add_row(lab, table, row));
  }
  return HARK_OK;
}

static hark_status draw(hark_lab *lab) {
  static const hark_lab_axes axes = {
      .title = "gap of a new aggregation on a frozen network", .x = "n", .y = "gap", .log_x = true, .log_y = true};
  hark_lab_panel *panel;
  hark_lab_curve *curve;
  HARK_TRY(hark_lab_add_panel(lab, axes, &panel));
  for (int w = 0; w <= WIDTHS; w++) {
    const int64_t width = widths[w < WIDTHS ? w : 0];
    if (w < WIDTHS)
      HARK_TRY(hark_lab_add_curve(lab, panel, HARK_LAB_POINTS, &curve, "width %lld", (long long)width));
    else
      HARK_TRY(hark_lab_add_curve(lab, panel, HARK_LAB_LINE, &curve, "expected"));
    for (int64_t i = 0; i < hark_lab_row_count(&lab->tables[0]); i++) {
      const double *const row = hark_lab_row(&lab->tables[0], i);
      const double y = row[w < WIDTHS ? GAP : EXPECTED];
      if (row[WIDTH] == (double)width && y > 0) HARK_TRY(hark_lab_add_point(curve, row[COUNT], y));
    }
  }
  return HARK_OK;
}

static hark_status measure(hark_lab *lab) {
  const sizes *const s = lab->quick ? &quick_sizes : &full_sizes;
  hark_lab_table *table;
  pool pieces, population;
  HARK_TRY(make_pool(lab, s->pool, &pieces));
  HARK_TRY(make_pool(lab, s->pool, &population));
  HARK_TRY(hark_lab_add_table(lab, "masked pre-training, frozen, and a new aggregation of eight weights", columns, COLUMNS, &table));
  for (int w = 0; w < WIDTHS; w++) HARK_TRY(measure_width(lab, table, widths[w], &pieces, &population));
  return draw(lab);
}

/* [.8, 1.25] and [-1.2, -.4] were fixed beforehand. A gap is a sum of two squares of the same p = 8 directions: its relative deviation is about
 * sqrt(2 / 8) = .5 a piece, .05 for 96 pieces of 512 (49152 sequences), and the widths see the same sequences. 24 pieces (quick) have .1: the ratio
 * of two that were independent .14; [.65, 1.5] is three of these beyond 1, a slope over five n moves by .05 at most: it keeps its interval.
 * The masked response has the variance 1.09, whose mean of 512 has a deviation of .06 in proportion: a loss below .9 of that of zero, on the same new
 * sequences, is something learned. */
static hark_status judge(hark_lab *lab) {
  const hark_lab_table *const table = &lab->tables[0];
  double least = INFINITY, largest = 0, shallow = -INFINITY, steep = INFINITY, trained = 0;
  for (int64_t i = 0; i < hark_lab_row_count(table); i++) {
    const double *const row = hark_lab_row(table, i);
    trained = hark_lab_larger(trained, row[MASKED_LOSS] / row[LOSS_OF_ZERO]);
    for (int64_t j = 0; j < hark_lab_row_count(table); j++) {
      const double *const other = hark_lab_row(table, j);
      if (row[WIDTH] != (double)widths[0] || other[COUNT] != row[COUNT] || other[WIDTH] == row[WIDTH]) continue;
      least = hark_lab_smaller(least, other[GAP] / row[GAP]);
      largest = hark_lab_larger(largest, other[GAP] / row[GAP]);
    }
  }
  for (int w = 0; w < WIDTHS; w++) {
    hark_lab_line line = {0};
    for (int64_t i = 0; i < hark_lab_row_count(table); i++) {
      const double *const row = hark_lab_row(table, i);
      if (row[WIDTH] == (double)widths[w]) hark_lab_line_add_power(&line, row[COUNT], row[GAP]);
    }
    shallow = hark_lab_larger(shallow, hark_lab_line_fit(&line).slope);
    steep = hark_lab_smaller(steep, hark_lab_line_fit(&line).slope);
  }
  HARK_TRY(hark_lab_require(lab, least, lab->quick ? 0.65 : 0.8, INFINITY, "gap / that of width 8 with the same n, least"));
  HARK_TRY(hark_lab_require(lab, largest, 0, lab->quick ? 1.5 : 1.25, "gap / that of width 8 with the same n, largest"));
  HARK_TRY(hark_lab_require(lab, steep, -1.2, INFINITY, "slope of the gap in n, log-log, least over the widths"));
  HARK_TRY(hark_lab_require(lab, shallow, -INFINITY, -0.4, "slope of the gap in n, log-log, largest over the widths"));
  return hark_lab_require(lab, trained, 0, 0.9, "masked loss on new sequences / that of predicting zero, largest");
}

const hark_experiment hark_experiment_downstream = {
    .summary = "a new aggregation on a frozen network generalises by its own size, not by that of what is frozen",
    .paper = HARK_LAB_PAPER_X "section 6, equation 6.2",
    .statement =
        "networks of width 8, 32 and 128 pre-trained on masked tokens and frozen: the gap of a new aggregation of eight weights between "
        "new sequences and those it was fitted on is the same for all, and falls with their number n between n^-0.4 and n^-1.2",
    .notes =
        "    y^ = theta.o,   o [8] frozen attention over (cos t, sin t, z.(cos t, sin t) + 0.3 N);      gap = s2 (p/n + p/(n - p - 1)), p "
        "= 8\n"
        "\n"
        "Theorem 5.3 for the class of downstream networks has only the aggregation's parameters free. Each network is trained as a whole "
        "on "
        "the response of a masked token; then all but the aggregation is frozen, which is fitted by least squares to y = tanh z_1 + N(0, "
        "1). "
        "Gaps are means over pieces of one pool of sequences; the loss of the best theta, found on as many other sequences, is taken from "
        "both losses, which leaves the mean as it is and removes most of the scatter. The expected gap is that of normal features; those "
        "here are bounded, and what they miss of tanh z_1 is not independent of them. The last column is the loss that the same "
        "aggregation has at best on the network's random weights. Real text: recipes/ and docs/results/, not this experiment.\n"
        "\n"
        "*Figure.* Gaps over n for the three widths, and the expected one.",
    .measure = measure,
    .judge = judge};
