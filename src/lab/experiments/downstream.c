/* downstream.c - a network is trained to predict masked tokens, then frozen, and a new aggregation is fitted for another task: the
 * generalisation gap.
 *
 *     z ~ N(0, I_2),  tokens x_l = (cos t_l, sin t_l, r_l),  r_l = z.(cos t_l, sin t_l) + 0.3 N,  t_l ~ U(0, 2 pi),  l = 1 .. 8
 *     pre-training:  msk = (cos t, sin t, 0) of a ninth token whose r is the target;
 *                    networks of X 5.1 (latent_network.h), all weights trained
 *     downstream:    y = tanh z_1 + N(0, 1);  msk = (1, 0, 0);  y^ = theta.o,
 *                    o [8] the frozen attention, theta [8] by ridge regression on n sequences
 *
 * The gap (aggregation.h) is that of a regression on p = 8 features, for every width of the frozen network. With a file of reviews the
 * same is done with bytes (reviews.h). Source: X section 6 (equation 6.2), Theorem 5.3 for the aggregation alone.
 */
#include <string.h>

#include "lab/aggregation.h"
#include "lab/descent.h"
#include "lab/latent_network.h"
#include "lab/matrix.h"
#include "lab/reviews.h"
#include "lab/tables.h"

typedef struct downstream_values {
  const char *reviews;
} downstream_values;

static const hark_option options[] = {
    {"reviews", "reviews", HARK_OPTION_STRING, offsetof(downstream_values, reviews), "", NULL, NULL, "FILE",
     "downstream: file of labelled texts; every line is a label (0 or 1), a tab and a text; the tokens are bytes", "$1 downstream|all"},
};
const hark_option_table hark_lab_downstream_options = {options, 1, NULL, sizeof(downstream_values), false};

enum { DIM = 3, LENGTH = 8, HEAD_DIM = 4, AGGREGATION = HARK_LAB_AGGREGATION, LATENT = 2, WIDTHS = 3 };
static const int64_t widths[WIDTHS] = {8, 32, 128};
#define TWO_PI 6.28318530717958647692
#define TOKEN_NOISE 0.3
#define RATE 0.02
#define LEAST_COUNT 32
#define MOST_COUNT 512
#define BATCH 512
#define RIDGE 1. /* of an aggregation */

enum { WIDTH, COUNT, MASKED_LOSS, LOSS_OF_ZERO, BEST, GAP, GAP_ERROR, EXPECTED, FIRST_ORDER, RANDOM_BEST, COLUMNS };
static const hark_lab_column columns[COLUMNS] = {{"width", "frozen", NULL},
                                                 {"n", "sequences", NULL},
                                                 {"masked loss", "new sequences", NULL},
                                                 {"masked loss", "of zero", NULL},
                                                 {"loss of the best theta", "pre-trained", NULL},
                                                 {"gap", NULL, NULL},
                                                 {"standard error", NULL, NULL},
                                                 {"gap expected", "normal features", NULL},
                                                 {"gap expected", "first order", NULL},
                                                 {"loss of the best theta", "random weights", NULL}};
static const hark_lab_gap_columns gap_columns = {WIDTH, COUNT, GAP, EXPECTED, FIRST_ORDER};

typedef struct sizes {
  int64_t pre_training, pool; /* sequences; pieces of the pool are fitted downstream, as many more sequences are the population */
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

/* Sequences, each with its own mask, and the masked response, of streams stream .. stream + 1; latent [count, 2] may be NULL. */
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

static hark_status fill_pool(problem *p, const double *weights, uint32_t stream, hark_lab_pool *out) {
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

static hark_status measure_width(hark_lab *lab, hark_lab_table *table, int64_t width, hark_lab_pool *pieces, hark_lab_pool *population) {
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
  (void)hark_lab_fit_aggregation(population->count, population->features, population->means, 0, random_theta);
  const hark_lab_moments of_random = hark_lab_moments_of(population);
  row[RANDOM_BEST] = hark_lab_loss_from(&of_random, random_theta);
  draw_sequences(&p, 0, s->pre_training, NULL);
  HARK_TRY(hark_lab_descend(lab, &objective, how, &p.descent));
  draw_sequences(&p, 2, s->pre_training, NULL);
  HARK_TRY(masked_loss(&p, p.descent.x, &row[MASKED_LOSS], p.descent.gradient));
  row[LOSS_OF_ZERO] = hark_lab_dot(p.targets, p.targets, s->pre_training) / (double)s->pre_training;
  HARK_TRY(fill_pool(&p, p.descent.x, UINT32_C(1) << 16, population));
  HARK_TRY(fill_pool(&p, p.descent.x, UINT32_C(1) << 20, pieces));
  (void)hark_lab_fit_aggregation(population->count, population->features, population->means, 0, theta);
  const hark_lab_moments of_population = hark_lab_moments_of(population);
  row[BEST] = hark_lab_loss_from(&of_population, theta);
  for (int64_t n = LEAST_COUNT; n <= MOST_COUNT; n *= 2) {
    hark_lab_mean gap = {0};
    hark_lab_add_gaps(pieces, &of_population, theta, n, &gap);
    row[COUNT] = (double)n;
    row[GAP] = gap.mean;
    row[GAP_ERROR] = hark_lab_mean_error(&gap);
    row[EXPECTED] = hark_lab_expected_gap(row[BEST], (double)n);
    row[FIRST_ORDER] = hark_lab_first_order_gap(&of_population, row[BEST], RIDGE, (double)n);
    HARK_TRY(hark_lab_add_row(lab, table, row));
  }
  return HARK_OK;
}

static hark_status measure(hark_lab *lab) {
  const downstream_values *const v = lab->options;
  const sizes *const s = lab->quick ? &quick_sizes : &full_sizes;
  hark_lab_table *table;
  hark_lab_pool pieces, population;
  HARK_TRY(hark_lab_make_pool(lab, s->pool, 1, &pieces));
  HARK_TRY(hark_lab_make_pool(lab, s->pool, 1, &population));
  pieces.ridge = RIDGE;
  HARK_TRY(hark_lab_add_table(lab, "frozen networks after masked pre-training, with a new aggregation of eight weights", columns, COLUMNS,
                              &table));
  for (int w = 0; w < WIDTHS; w++) HARK_TRY(measure_width(lab, table, widths[w], &pieces, &population));
  HARK_TRY(hark_lab_draw_gaps(lab, "gap of a new aggregation on a frozen network", table, gap_columns, widths, WIDTHS));
  return v != NULL && v->reviews[0] != 0 ? hark_lab_measure_reviews(lab, v->reviews) : HARK_OK;
}

static hark_status check(hark_context *context, const void *values) {
  const downstream_values *const v = values;
  return v->reviews[0] != 0 ? hark_lab_check_reviews(context, v->reviews) : HARK_OK;
}

/* .8, 1.25 and -.4 were fixed beforehand, for other ratios (see `notes`). A gap is a sum of two squares of the same p = 8 directions: its
 * relative deviation is about sqrt(2 / 8) = .5 per piece and .05 for 96 pieces of 512 (49152 sequences). For 24 pieces (quick) it is .1:
 * .65 and 1.5 are four of these away. The gap of normal features exceeds the first order by 4.5 / n of it, and the ridge only lowers the
 * gap. The masked response has the variance 1.09, and a mean over 512 has a relative deviation of .06: a loss below .9 of that of the
 * prediction zero, on the same new sequences, shows that something was learned. */
static hark_status judge(hark_lab *lab) {
  const hark_lab_table *const table = &lab->tables[0];
  const hark_lab_gap_verdict v = hark_lab_judge_gaps(table, gap_columns);
  const double trained = hark_lab_column_range(table, MASKED_LOSS, LOSS_OF_ZERO).largest;
  HARK_TRY(hark_lab_require(lab, v.largest, 0, lab->quick ? 1.5 : 1.25, "gap / gap of normal features, largest over widths and n"));
  HARK_TRY(hark_lab_require(lab, v.least, lab->quick ? 0.65 : 0.8, INFINITY, "gap / first order, n of 256 or more, least over the widths"));
  HARK_TRY(hark_lab_require(lab, v.shallow, -INFINITY, -0.4, "slope of the gap in n, log-log, largest over the widths"));
  HARK_TRY(hark_lab_require(lab, trained, 0, 0.9, "masked loss on new sequences / that of predicting zero, largest"));
  return lab->table_count > 1 ? hark_lab_judge_reviews(lab, &lab->tables[1]) : HARK_OK;
}

const hark_experiment hark_experiment_downstream = {
    .summary = "the generalisation of a new aggregation on a frozen network depends on its own size, not on that of the network",
    .paper = HARK_LAB_PAPER_X "section 6, equation 6.2",
    .statement =
        "Networks of width 8, 32 and 128 are pre-trained on masked tokens and frozen. Then a new aggregation of eight "
        "weights is fitted to n sequences. The gap is the loss of this aggregation on new sequences, minus its loss on "
        "the n sequences. For every width it is at most that of eight normal features, and falls at least like n^-0.4. "
        "From 256 sequences on it is the gap of d free weights, 2 s2 d / n, where d is at most 8",
    .notes =
        "    theta = (sum o o' + I)^-1 sum o y,   o [8] frozen attention over (cos t, sin t, z.(cos t, sin t) + 0.3 "
        "N)\n"
        "    gap <= s2 (p/n + p/(n - p - 1)), p = 8;      gap = 2 s2 d/n + ..,   d = sum_k l_k/(l_k + 1/n)\n"
        "\n"
        "Theorem 5.3 is applied to the class of downstream networks, in which only the parameters of the aggregation "
        "are free. Each network is trained as a whole to predict the response of a masked token. Then everything but "
        "the aggregation is frozen. The aggregation is fitted to y = tanh z_1 + N(0, 1) by a regression with the ridge "
        "1. One pool of sequences is divided into pieces of n sequences, and each gap is the mean over these pieces. A "
        "second pool of the same size gives the losses on new sequences. The best theta is fitted to the whole second "
        "pool by least squares, and s2 is its loss. This loss is subtracted from both losses of a gap. This does not "
        "change the mean of the gap, and removes most of its scatter. The l_k are the eigenvalues of E o o'. The last "
        "column of the table has the loss of the best theta for the features of a network with random weights.\n"
        "\n"
        "*Criteria that were changed.* In an earlier version the aggregation was fitted without a ridge, and each gap "
        "was compared with that of width 8. The ratio had to be at least 0.8, and the slope at least -1.2. Six of ten "
        "seeds failed. The theorem does not say that gaps are equal or how fast they fall. It bounds the gap from "
        "above, for aggregations of bounded weights. Without a ridge the weights are not bounded: at width 8 some "
        "rectifiers are rarely active. If few of the n sequences have a feature, its weight is determined by their "
        "noise, and a new sequence that has it is predicted badly. With seed 3 the gap at n = 32 was fifty times that "
        "of the other widths for this reason. The ridge bounds the weights, as the theorem's assumptions do. Now gaps "
        "are compared with two formulas: from above with the gap of normal features, and from below, where n is large, "
        "with the first order in 1/n. The first order counts the weights that the ridge leaves free.\n"
        "\n"
        "`--reviews FILE` adds real text, such as the reviews of IMDb. Each line of the file has a label, a tab and a "
        "text. Networks of the same form read windows of 64 bytes. Here x_l is the sum of the embedding of byte l and "
        "the embedding of its position. The networks are trained in f32 to predict masked bytes. The query of such a "
        "prediction comes from the position of the masked byte. Then the networks are frozen. A new aggregation of the "
        "attention at the middle position is fitted to the labels, which are -1/2 and 1/2. Pre-training, fits, and "
        "losses on new text use different reviews. Windows of the same review are not independent. So all windows of a "
        "fit, which are at most 512, come from different reviews. Only the best theta is fitted to several windows of "
        "each review. The aggregation is fitted without a ridge. The criteria are the same as above, with one more: "
        "masked bytes are predicted better than by their frequencies (the unigram baseline). The first run was a quick "
        "run with a learning rate of 0.004 and 300 steps, and it learned nothing about the bytes. So the learning rate "
        "and the number of steps were changed after it. With the 25000 training reviews of IMDb, the loss of the best "
        "theta is lower than the loss of predicting zero by less than 1 %. So this aggregation predicts the labels "
        "hardly better than zero does. The experiment measures the gap, not the quality of the prediction. Only seed 1 "
        "was measured, with the earlier criteria. The gaps were 0.90 to 1.00 times those of width 8, and the slopes "
        "-1.09 to -1.05. The cross-entropy of masked bytes was at most 0.95 of their entropy. For whole models, "
        "`recipes/downstream/` has learning curves and a comparison with training from scratch.\n"
        "\n"
        "*Figure.* Gaps over n for the three widths, and the expected gap.",
    .check = check,
    .measure = measure,
    .judge = judge};
