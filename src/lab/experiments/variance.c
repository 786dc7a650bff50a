/* variance.c - the predictive variance of CME attention, and its error compared with a smoother.
 *
 *     f ~ GP(0, t2 kappa),  kappa = RBF of variance 1/4,   c ~ U(-1, 1),   r = f(c) + N(0, s2)
 *     m = CME attention with lambda = s2 / t2,    var = kappa(q, q) - kappa(q, C) (K + lambda I)^-1 kappa(C, q)
 *
 * m and t2 var are the posterior of f(q): E (f - m)^2 = t2 E var, and a new response has the variance t2 var + s2, which is tested by
 * E (r - m)^2 / (t2 var + s2) = 1. t2 = 1 is X B.1. The smoother is softmax attention with an RBF (Nadaraya-Watson), its width the best of
 * many, found with the true f. Functions are drawn as sums of features
 * (gaussian_process.h); draws of f and of the noise are columns of the values. Source: X (Zhang et al.), equations 4.1 to 4.3 and appendix
 * B.1.
 */
#include "lab/attention.h"
#include "lab/fit.h"
#include "lab/gaussian_process.h"
#include "lab/tables.h"

#define WIDTH 0.5 /* of the kernel: its square is 1/4 */
#define NOISE 0.1 /* s2 */
#define LEAST_LENGTH 16
#define QUICK_LONGEST 128
#define FULL_LONGEST 512
#define QUERIES 4
#define DRAWS 40 /* of f for every set of covariates */
#define QUICK_SETS 25
#define FULL_SETS 50
enum { PRIORS = 2, WIDTHS = 16, N = HARK_GAUSSIAN_FEATURES };
static const double priors[PRIORS] = {1, 4}; /* t2 */
#define LARGEST_WIDTH2 0.2                   /* of the smoother, its square; each next one is divided by the root of 2, down to .0011 */

enum { TOKENS, CME, EXPECTED, SMOOTHER, SMOOTHER_WIDTH, GAIN, CALIBRATION, SCALED_CALIBRATION, LATENT_CALIBRATION, COLUMNS };
static const hark_lab_column columns[COLUMNS] = {{"tokens", NULL, NULL},
                                                 {"CME error", "mean square", NULL},
                                                 {"expected", "mean variance", NULL},
                                                 {"smoother's error", "mean square", NULL},
                                                 {"its best width", NULL, NULL},
                                                 {"smoother / CME", NULL, NULL},
                                                 {"calibration", "var + s2", NULL},
                                                 {"calibration, t2 = 4", "4 var + s2", NULL},
                                                 {"calibration without s2", "var", NULL}};

typedef struct sample {
  hark_lab *lab;
  int64_t length;
  double query[QUERIES], truth[QUERIES * DRAWS]; /* f at the queries, t2 = 1 */
  double *covariate, *features;                  /* [L], [L, N] */
  double *z, *function, *noise, *response;       /* [DRAWS, N], [L, DRAWS] */
  double *fresh, *out;                           /* noise of a new response, and estimates, [QUERIES, DRAWS] */
  double variance[QUERIES];
} sample;

typedef struct tally {
  hark_lab_mean cme, variance, calibration[PRIORS], latent, smoother[WIDTHS];
} tally;

static hark_status allocate(hark_lab *lab, int64_t longest, sample *s) {
  *s = (sample){.lab = lab};
  HARK_TRY(hark_lab_numbers(lab, longest, &s->covariate));
  HARK_TRY(hark_lab_numbers(lab, longest * N, &s->features));
  HARK_TRY(hark_lab_numbers(lab, (int64_t)DRAWS * N, &s->z));
  HARK_TRY(hark_lab_numbers(lab, longest * DRAWS, &s->function));
  HARK_TRY(hark_lab_numbers(lab, longest * DRAWS, &s->noise));
  HARK_TRY(hark_lab_numbers(lab, longest * DRAWS, &s->response));
  HARK_TRY(hark_lab_numbers(lab, (int64_t)QUERIES * DRAWS, &s->fresh));
  return hark_lab_numbers(lab, (int64_t)QUERIES * DRAWS, &s->out);
}

/* rows of out [count, DRAWS] <- f of every draw at points [count] */
static void evaluate(const sample *s, int64_t count, const double *points, double *out) {
  double features[N];
  for (int64_t i = 0; i < count; i++) {
    hark_gaussian_features(points[i], WIDTH, features);
    for (int64_t d = 0; d < DRAWS; d++) out[i * DRAWS + d] = hark_gaussian_value(s->z + d * N, features);
  }
}

static void draw(sample *s, int64_t set) {
  const uint32_t stream = (uint32_t)(s->length * 512 + 4 * set);
  double uniform[QUERIES];
  hark_lab_uniform(s->lab, stream, s->length, s->covariate);
  hark_lab_uniform(s->lab, stream + (UINT32_C(1) << 20), QUERIES, uniform);
  hark_lab_normal(s->lab, stream + 1, (int64_t)DRAWS * N, s->z);
  hark_lab_normal(s->lab, stream + 2, s->length * DRAWS, s->noise);
  hark_lab_normal(s->lab, stream + 3, (int64_t)QUERIES * DRAWS, s->fresh);
  for (int64_t l = 0; l < s->length; l++) s->covariate[l] = 2 * s->covariate[l] - 1;
  for (int q = 0; q < QUERIES; q++) s->query[q] = 2 * uniform[q] - 1;
  evaluate(s, s->length, s->covariate, s->function);
  evaluate(s, QUERIES, s->query, s->truth);
}

static void respond(const sample *s, double prior) {
  for (int64_t i = 0; i < s->length * DRAWS; i++) s->response[i] = sqrt(prior) * s->function[i] + sqrt(NOISE) * s->noise[i];
}

static hark_status attend(sample *s, const hark_attention_desc *choice, double *variance) {
  const hark_lab_head head = {.length = s->length,
                              .queries = QUERIES,
                              .head_dim = 1,
                              .value_dim = DRAWS,
                              .query = s->query,
                              .key = s->covariate,
                              .value = s->response,
                              .variance = variance};
  return hark_lab_attend(s->lab->context, choice, &head, s->out);
}

static hark_status tally_posterior(sample *s, int prior, tally *t) {
  const double t2 = priors[prior];
  const hark_attention_desc choice = hark_lab_kernel_ridge(WIDTH * WIDTH, NOISE / t2);
  respond(s, t2);
  HARK_TRY(attend(s, &choice, s->variance));
  for (int q = 0; q < QUERIES; q++)
    for (int d = 0; d < DRAWS; d++) {
      const int at = q * DRAWS + d;
      const double variance = t2 * s->variance[q], f = sqrt(t2) * s->truth[at], error = f - s->out[at];
      const double surprise = error + sqrt(NOISE) * s->fresh[at];
      hark_lab_mean_add(&t->calibration[prior], surprise * surprise / (variance + NOISE));
      if (prior != 0) continue;
      hark_lab_mean_add(&t->cme, error * error);
      hark_lab_mean_add(&t->variance, variance);
      hark_lab_mean_add(&t->latent, surprise * surprise / variance);
    }
  return HARK_OK;
}

static double width_of(int number) { return sqrt(LARGEST_WIDTH2 * pow(2, -0.5 * number)); }

static hark_status tally_smoothers(sample *s, tally *t) {
  hark_attention_desc choice = hark_attention_desc_default();
  choice.kernel = HARK_KERNEL_RBF;
  respond(s, 1);
  for (int w = 0; w < WIDTHS; w++) {
    choice.sigma = width_of(w);
    HARK_TRY(attend(s, &choice, NULL));
    for (int i = 0; i < QUERIES * DRAWS; i++) {
      const double error = s->truth[i] - s->out[i];
      hark_lab_mean_add(&t->smoother[w], error * error);
    }
  }
  return HARK_OK;
}

static hark_status measure_length(sample *s, hark_lab_table *table) {
  tally t = {.cme = {0}};
  for (int64_t set = 0; set < (s->lab->quick ? QUICK_SETS : FULL_SETS); set++) {
    draw(s, set);
    for (int p = 0; p < PRIORS; p++) HARK_TRY(tally_posterior(s, p, &t));
    HARK_TRY(tally_smoothers(s, &t));
  }
  int best = 0;
  for (int w = 1; w < WIDTHS; w++)
    if (t.smoother[w].mean < t.smoother[best].mean) best = w;
  const double smoother = t.smoother[best].mean;
  const double row[COLUMNS] = {
      (double)s->length,     t.cme.mean,   t.variance.mean, smoother, width_of(best), smoother / t.cme.mean, t.calibration[0].mean,
      t.calibration[1].mean, t.latent.mean};
  return hark_lab_add_row(s->lab, table, row);
}

static hark_status draw_figure(hark_lab *lab, const hark_lab_table *table) {
  static const hark_lab_axes axes = {.title = "error at a new covariate", .x = "tokens", .y = "mean square", .log_x = true, .log_y = true};
  static const hark_lab_drawn drawn[] = {{CME, HARK_LAB_POINTS, "CME attention"},
                                         {EXPECTED, HARK_LAB_LINE, "its mean variance"},
                                         {SMOOTHER, HARK_LAB_POINTS, "softmax attention of the best width"}};
  return hark_lab_draw_columns(lab, table, axes, TOKENS, drawn, sizeof drawn / sizeof drawn[0]);
}

static hark_status measure(hark_lab *lab) {
  const int64_t longest = lab->quick ? QUICK_LONGEST : FULL_LONGEST;
  sample s;
  hark_lab_table *table;
  HARK_TRY(allocate(lab, longest, &s));
  HARK_TRY(hark_lab_add_table(lab, "errors and calibration over the number of tokens", columns, COLUMNS, &table));
  for (s.length = LEAST_LENGTH; s.length <= longest; s.length *= 2) HARK_TRY(measure_length(&s, table));
  return draw_figure(lab, table);
}

/* 2000 independent draws of f (1000 quick) give squares with a relative deviation of at most sqrt(2 / 2000) = .032 (.045): [.9, 1.1], fixed
 * beforehand, is three of these, .18 four. At the keys var < lambda = s2 (its sum over them is lambda tr K (K + lambda I)^-1), so that
 * without s2 the variance of a response is more than twice too small. */
static hark_status judge(hark_lab *lab) {
  const hark_lab_table *const table = &lab->tables[0];
  const double within = lab->quick ? 0.18 : 0.1;
  const hark_lab_range one = hark_lab_column_range(table, CALIBRATION, HARK_LAB_ALONE);
  const hark_lab_range scaled = hark_lab_column_range(table, SCALED_CALIBRATION, HARK_LAB_ALONE);
  const double gain = hark_lab_column_range(table, SMOOTHER, CME).least;
  const double latent = hark_lab_column_range(table, LATENT_CALIBRATION, HARK_LAB_ALONE).least;
  HARK_TRY(hark_lab_require(lab, gain, 1, INFINITY, "error of the best smoother / error of CME, least over the lengths"));
  HARK_TRY(hark_lab_require_range(lab, one, 1 - within, 1 + within, "E (r - m)^2 / (var + s2)"));
  HARK_TRY(
      hark_lab_require_range(lab, scaled, 1 - within, 1 + within, "prior of scale t2 = 4, lambda = s2 / 4: E (r - m)^2 / (4 var + s2)"));
  HARK_TRY(hark_lab_require_range(lab, hark_lab_column_range(table, CME, EXPECTED), 1 - within, 1 + within,
                                  "error of CME / mean of its variance"));
  return hark_lab_require(lab, latent, 2, INFINITY, "E (r - m)^2 / var, without the noise, least over the lengths");
}

const hark_experiment hark_experiment_variance = {
    .summary = "for functions of a Gaussian process, CME attention has a correct variance and a smaller error than softmax attention",
    .paper = HARK_LAB_PAPER_X "equations 4.1 to 4.3 and appendix B.1",
    .statement =
        "In the Gaussian process model, the function has the prior variance t2, and the noise has the variance s2. CME "
        "attention with lambda = s2 / t2 has a smaller error than softmax attention of the best width. CME attention "
        "also returns a variance, var. The variance of a new response is t2 var + s2, and the variance of the function "
        "alone is t2 var",
    .notes =
        "    var = kappa(q, q) - kappa(q, C) (K + lambda I)^-1 kappa(C, q),   lambda = s2 / t2:   Var f(q) = t2 var,   "
        "Var r(q) = t2 var + s2\n"
        "\n"
        "Here kappa is the kernel, f the function, q the covariate of the new response, and the rows of C are the "
        "covariates of the tokens. K = kappa(C, C). The scale t2 is 1 unless a column or criterion states t2 = 4. In "
        "the criteria, m is the output of CME attention, and r is the new response.\n"
        "\n"
        "Functions are drawn from the Gaussian process itself. For every set of covariates there are 40 functions, "
        "each in one column of the value matrix of the attention. The smoother is softmax attention with an RBF. It is "
        "measured with sixteen widths. Its best width is the one with the least error for the true functions, which "
        "are unknown in practice. The interval [.9, 1.1] was fixed beforehand. It allows three standard deviations, "
        "for 2000 draws.\n"
        "\n"
        "*Figure.* The errors of CME attention and of the best smoother, and the mean of the variance that CME "
        "attention predicts.",
    .measure = measure,
    .judge = judge};
