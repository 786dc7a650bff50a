/* misspecification.c - the loss of a predictor that is linear in the latent variable when the target is not.
 *
 *     r_l = z c_l + sigma N,  l = 1 .. L;   z, c_l ~ N(0, 1);   y = g*(z) + N/10,  g*(z) = z + a sin 3z
 *     P(z | X) = N(m, v),   m = r.c / (c.c + sigma^2),   v = sigma^2 / (c.c + sigma^2)
 *     f*(X) = E[y | X] = m + a e^(-9v/2) sin 3m,     f+(X) = E[w z | X] = m at w = 1 (CME attention)
 *
 * The recovery gap is |g* - z|_inf = a, and the loss E (f* - f+)^2 is at most a^2. In closed form, given t = c.c (chi-squared of L), m is
 * N(0, 1 - v):
 *     E (f* - f+)^2 = a^2/2 int e^(-9v) (1 - e^(-18 (1 - v))) p_L(t) dt,   v = sigma^2 / (t + sigma^2)
 *
 * Networks are trained too (masked_network.h): y = h + a sin 3h + N/10 for the masked value h of a Gaussian process, h | X ~ N(m, v). Then
 * f+ = m is CME attention with the right kernel and ridge, f_theta a trained one or trained softmax attention, and
 *
 *     E (f_theta - f*)^2 <= 2 E (f* - f+)^2 + 2 E (f_theta - f+)^2 <= 2 a^2 + 2 eps_attn^2
 *
 * eps_attn^2 is measured as E (f_theta - f+)^2. The theorem has the supremum over X, which is larger (infinite for unbounded responses).
 * Source: X Theorem 5.5, Assumption 5.4.
 */
#include "lab/fit.h"
#include "lab/masked_network.h"
#include "lab/special.h"

enum { TOKENS = 4, PER_SAMPLE = 2 * TOKENS + 2, Z_AT = 2 * TOKENS, NOISE_AT };
#define VARIANCE 0.25
#define FREQUENCY 3
#define NOISE 0.1
#define BATCH 4096
#define LARGEST_SQUARE 120. /* of t: larger values have a weight of 1e-24 */
#define NODES 400
#define WITHIN 5 /* standard errors: ten comparisons exceed them with a probability of 6e-6 */

enum { AMPLITUDE, CLOSED, BETWEEN, BETWEEN_ERROR, RISK, RISK_ERROR, GAP, COLUMNS };
static const hark_lab_column columns[COLUMNS] = {{"a", NULL, NULL},
                                                 {"closed form", NULL, NULL},
                                                 {"E (f* - f+)^2", "Monte Carlo", NULL},
                                                 {"standard error", NULL, NULL},
                                                 {"excess risk", "Monte Carlo", NULL},
                                                 {"standard error", NULL, NULL},
                                                 {"a^2", NULL, NULL}};

enum { POSTERIOR_MEAN, POSTERIOR_VARIANCE, REGRESSION, QUADRATURE, REGRESSION_COLUMNS };
static const hark_lab_column regression_columns[REGRESSION_COLUMNS] = {
    {"m", NULL, NULL}, {"v", NULL, NULL}, {"E[sin 3z | X]", NULL, NULL}, {"quadrature", NULL, NULL}};

enum { NETWORK, BEND, SIGMA, RIDGE, NETWORK_LOSS, LOSS_ERROR, ATTENTION_GAP, BOUND, NETWORK_COLUMNS };
enum { CME, SOFTMAX, NETWORKS };
static const hark_lab_column network_columns[NETWORK_COLUMNS] = {{"attention", NULL, "CME|softmax"},
                                                                 {"a", NULL, NULL},
                                                                 {"sigma", "trained", NULL},
                                                                 {"lambda", "trained", NULL},
                                                                 {"E (f_theta - f*)^2", NULL, NULL},
                                                                 {"standard error", NULL, NULL},
                                                                 {"E (f_theta - f+)^2", "eps_attn^2", NULL},
                                                                 {"2 a^2 + 2 eps_attn^2", NULL, NULL}};
#define NETWORK_TOKENS 16
#define NETWORK_STREAM (UINT32_C(1) << 20)

static double latent_to_target(double z, double a) { return z + a * sin(FREQUENCY * z); }

static double sine_of_posterior(double m, double v) { return exp(-FREQUENCY * FREQUENCY * v / 2) * sin(FREQUENCY * m); }

/* a = 1. With L = 4 the density of t is t e^(-t/2) / 4. */
static double closed_form(const hark_lab_rule *rule) {
  double sum = 0;
  for (int64_t i = 0; i < rule->count; i++) {
    const double t = rule->nodes[i], v = VARIANCE / (t + VARIANCE), square = FREQUENCY * FREQUENCY;
    sum += rule->weights[i] * t * exp(-t / 2) / 4 * exp(-square * v) * (1 - exp(-2 * square * (1 - v)));
  }
  return sum / 2;
}

/* E[sin 3z] of N(m, v) by Gauss-Legendre over nine deviations to each side. */
static double integrate_sine(const hark_lab_rule *rule, double m, double v) {
  double sum = 0, all = 0;
  for (int64_t i = 0; i < rule->count; i++) {
    const double x = rule->nodes[i], weight = rule->weights[i] * exp(-x * x / 2);
    sum += weight * sin(FREQUENCY * (m + sqrt(v) * x));
    all += weight;
  }
  return sum / all;
}

/* One draw of all variables: the squared distance of the two predictors, and the difference of their squared losses. */
static void sample(const double normal[PER_SAMPLE], double a, double *between, double *risk) {
  const double z = normal[Z_AT], *const c = normal, *const noise = normal + TOKENS;
  double cc = 0, rc = 0;
  for (int l = 0; l < TOKENS; l++) {
    cc += c[l] * c[l];
    rc += (z * c[l] + sqrt(VARIANCE) * noise[l]) * c[l];
  }
  const double m = rc / (cc + VARIANCE), v = VARIANCE / (cc + VARIANCE), best = m + a * sine_of_posterior(m, v);
  const double y = latent_to_target(z, a) + NOISE * normal[NOISE_AT];
  *between = (best - m) * (best - m);
  *risk = (y - m) * (y - m) - (y - best) * (y - best);
}

static hark_status measure_amplitude(hark_lab *lab, hark_lab_table *table, double a, uint32_t stream, double closed, double *normal) {
  const int64_t samples = lab->quick ? 1 << 16 : 1 << 22;
  hark_lab_mean between = {0}, risk = {0};
  for (int64_t first = 0; first < samples; first += BATCH) {
    hark_lab_normal_from(lab, stream, (uint64_t)(first * PER_SAMPLE), (int64_t)BATCH * PER_SAMPLE, normal);
    for (int64_t i = 0; i < BATCH; i++) {
      double squares, losses;
      sample(normal + i * PER_SAMPLE, a, &squares, &losses);
      hark_lab_mean_add(&between, squares);
      hark_lab_mean_add(&risk, losses);
    }
  }
  const double row[] = {a, a * a * closed, between.mean, hark_lab_mean_error(&between), risk.mean, hark_lab_mean_error(&risk), a * a};
  return hark_lab_add_row(lab, table, row);
}

/* ---- trained networks ---- */

static void set_targets(hark_lab_masked *m, double a, uint32_t stream) {
  hark_lab_normal(m->lab, stream, m->count, m->target);
  for (int64_t i = 0; i < m->count; i++) m->target[i] = latent_to_target(m->latent[i], a) + NOISE * m->target[i];
}

static hark_status measure_network(hark_lab_masked *m, hark_lab_table *table, double a, uint32_t stream, double *features, double *f) {
  double row[NETWORK_COLUMNS] = {[NETWORK] = m->softmax ? SOFTMAX : CME, [BEND] = a};
  hark_lab_mean loss = {0}, gap = {0};
  HARK_TRY(hark_lab_draw_masked(m, stream, 0));
  set_targets(m, a, stream + 4);
  hark_lab_start_masked(m, stream + 5);
  HARK_TRY(hark_lab_train_masked(m, m->lab->quick ? 60 : 100));
  HARK_TRY(hark_lab_draw_masked(m, stream + 6, 0));
  HARK_TRY(hark_lab_apply_masked(m, features, f));
  for (int64_t i = 0; i < m->count; i++) {
    const double mean = m->exact.out[i], best = mean + a * sine_of_posterior(mean, m->exact.variance[i]);
    hark_lab_mean_add(&loss, (f[i] - best) * (f[i] - best));
    hark_lab_mean_add(&gap, (f[i] - mean) * (f[i] - mean));
  }
  row[SIGMA] = m->batch.sigma;
  row[RIDGE] = m->softmax ? 0 : m->batch.ridge;
  row[NETWORK_LOSS] = loss.mean;
  row[LOSS_ERROR] = hark_lab_mean_error(&loss);
  row[ATTENTION_GAP] = gap.mean;
  row[BOUND] = 2 * a * a + 2 * gap.mean;
  return hark_lab_add_row(m->lab, table, row);
}

static hark_status measure_networks(hark_lab *lab) {
  static const double bends[] = {0, 0.05, 0.2, 0.8};
  hark_lab_table *table;
  double *features, *f;
  HARK_TRY(hark_lab_add_table(lab, "trained networks of 16 tokens, new sequences", network_columns, NETWORK_COLUMNS, &table));
  for (int kind = 0; kind < NETWORKS; kind++) {
    hark_lab_masked m = {
        .softmax = kind == SOFTMAX, .count = lab->quick ? 256 : 1024, .length = NETWORK_TOKENS, .values = 1, .features = 1, .targets = 1};
    HARK_TRY(hark_lab_make_masked(lab, &m));
    HARK_TRY(hark_lab_numbers(lab, m.count, &features));
    HARK_TRY(hark_lab_numbers(lab, m.count, &f));
    for (uint32_t i = 0; i < sizeof bends / sizeof bends[0]; i++)
      HARK_TRY(measure_network(&m, table, bends[i], NETWORK_STREAM + 16 * i, features, f));
  }
  return HARK_OK;
}

static hark_status check_regression(hark_lab *lab) {
  hark_lab_rule rule;
  hark_lab_table *table;
  HARK_TRY(hark_lab_legendre(lab, NODES, -9, 9, &rule));
  HARK_TRY(hark_lab_add_table(lab, "the regression function, a = 1", regression_columns, REGRESSION_COLUMNS, &table));
  for (int i = 0; i < 4; i++)
    for (int j = 0; j < 4; j++) {
      const double m = -1.3 + 0.9 * i, v = ldexp(0.01, 2 * j);
      const double row[] = {m, v, sine_of_posterior(m, v), integrate_sine(&rule, m, v)};
      HARK_TRY(hark_lab_add_row(lab, table, row));
    }
  return HARK_OK;
}

static hark_status draw(hark_lab *lab) {
  static const hark_lab_axes axes = {
      .title = "loss of a linear predictor", .x = "a, the recovery gap", .y = "mean square", .log_x = true, .log_y = true};
  static const int shown[] = {CLOSED, BETWEEN, RISK, GAP};
  static const hark_lab_style styles[] = {HARK_LAB_LINE, HARK_LAB_POINTS, HARK_LAB_POINTS, HARK_LAB_DASHES};
  hark_lab_panel *panel;
  HARK_TRY(hark_lab_add_panel(lab, axes, &panel));
  for (int c = 0; c < 4; c++) {
    hark_lab_curve *curve;
    HARK_TRY(hark_lab_add_curve(lab, panel, styles[c], &curve, "%s", columns[shown[c]].name));
    for (int64_t i = 0; i < hark_lab_row_count(&lab->tables[0]); i++) {
      const double *const row = hark_lab_row(&lab->tables[0], i);
      if (row[shown[c]] > 0) HARK_TRY(hark_lab_add_point(curve, row[AMPLITUDE], row[shown[c]]));
    }
  }
  return HARK_OK;
}

static hark_status measure(hark_lab *lab) {
  static const double amplitudes[] = {0.05, 0.1, 0.2, 0.4, 0.8};
  double *normal;
  hark_lab_rule rule;
  hark_lab_table *table;
  HARK_TRY(hark_lab_numbers(lab, (int64_t)BATCH * PER_SAMPLE, &normal));
  HARK_TRY(hark_lab_legendre(lab, NODES, 0, LARGEST_SQUARE, &rule));
  HARK_TRY(hark_lab_add_table(lab, "loss of a predictor that is linear in the latent", columns, COLUMNS, &table));
  for (uint32_t i = 0; i < sizeof amplitudes / sizeof amplitudes[0]; i++)
    HARK_TRY(measure_amplitude(lab, table, amplitudes[i], i, closed_form(&rule), normal));
  HARK_TRY(check_regression(lab));
  HARK_TRY(measure_networks(lab));
  return draw(lab);
}

/* The bound follows from (x + y)^2 <= 2 x^2 + 2 y^2 and |f* - f+| <= a for every sequence, so it holds for the sample, too. Trained CME
 * attention has the right form: its loss at a = 0 is the error of its 4 weights, of order 4 / n of the variance of y, .001 (quick: .004).
 * Softmax attention averages over its kernel, whatever sigma is; its loss is a part of the variance of h that does not depend on n. Five
 * times the loss of CME (quick: twice), and more than 2 a^2 = .005 at a = .05, is the least that shows it. */
static hark_status judge_networks(hark_lab *lab) {
  const hark_lab_table *const table = &lab->tables[2];
  double bound = 0, at_zero[NETWORKS] = {NAN, NAN}, needed = NAN;
  for (int64_t i = 0; i < hark_lab_row_count(table); i++) {
    const double *const row = hark_lab_row(table, i), a = row[BEND];
    bound = hark_lab_larger(bound, row[NETWORK_LOSS] / (2 * a * a + 2 * row[ATTENTION_GAP]));
    if (i % (hark_lab_row_count(table) / NETWORKS) == 0) at_zero[(int)row[NETWORK]] = row[NETWORK_LOSS];
    if (i == hark_lab_row_count(table) / NETWORKS + 1) needed = row[NETWORK_LOSS] / (2 * a * a);
  }
  HARK_TRY(hark_lab_require(lab, bound, 0, 1, "trained networks: loss / (2 a^2 + 2 eps_attn^2), largest"));
  HARK_TRY(hark_lab_require(lab, at_zero[SOFTMAX] / at_zero[CME], lab->quick ? 2 : 5, INFINITY,
                            "trained networks, a = 0: loss of softmax / loss of CME"));
  return hark_lab_require(lab, needed, 1, INFINITY, "trained softmax, a = .05: loss / (2 a^2): the second term is needed");
}

static hark_status judge(hark_lab *lab) {
  const hark_lab_table *const losses = &lab->tables[0], *const regression = &lab->tables[1];
  double between = 0, risk = 0, gap = 0, error = 0;
  for (int64_t i = 0; i < hark_lab_row_count(losses); i++) {
    const double *const row = hark_lab_row(losses, i);
    between = hark_lab_larger(between, fabs(row[BETWEEN] - row[CLOSED]) / row[BETWEEN_ERROR]);
    risk = hark_lab_larger(risk, fabs(row[RISK] - row[CLOSED]) / row[RISK_ERROR]);
    gap = hark_lab_larger(gap, hark_lab_larger(row[CLOSED], row[BETWEEN]) / row[GAP]);
  }
  for (int64_t i = 0; i < hark_lab_row_count(regression); i++) {
    const double *const row = hark_lab_row(regression, i);
    error = hark_lab_larger(error, fabs(row[REGRESSION] - row[QUADRATURE]));
  }
  HARK_TRY(hark_lab_require(lab, error, 0, 1e-12, "E[sin 3z | X] equals quadrature, largest difference"));
  HARK_TRY(hark_lab_require(lab, between, 0, WITHIN, "E (f* - f+)^2 from its closed form, in standard errors, largest"));
  HARK_TRY(hark_lab_require(lab, risk, 0, WITHIN, "excess risk from the closed form, in standard errors, largest"));
  HARK_TRY(hark_lab_require(lab, gap, 0, 1, "loss / a^2, largest"));
  return judge_networks(lab);
}

const hark_experiment hark_experiment_misspecification = {
    .summary = "a predictor linear in the latent loses at most the squared recovery gap",
    .paper = HARK_LAB_PAPER_X "Theorem 5.5",
    .statement =
        "The target is z + a sin 3z, with four tokens and noise of variance 1/4. The excess risk of the posterior mean "
        "of z equals its closed form and is at most a^2. The excess risk of a trained attention network is at most 2 "
        "a^2 + 2 eps_attn^2, where eps_attn is its distance from the posterior mean. Trained CME attention comes close "
        "to the posterior mean, and trained softmax attention does not",
    .notes =
        "    f*(X) = m + a e^(-9v/2) sin 3m,      f+(X) = m,      z | X ~ N(m, v)\n"
        "    E (f* - f+)^2 = a^2/2 int e^(-9v) (1 - e^(-18 (1 - v))) p(t) dt,      v = sigma^2/(t + sigma^2), t "
        "chi-squared of 4\n"
        "\n"
        "Here f* is the conditional mean of the target, and f+ = m is the posterior mean of z. The theorem's bound is 2 "
        "eps_g^2 + 2 eps_attn^2. In this experiment eps_g = a, and eps_attn = 0 because the predictor is exact. So the "
        "theorem's bound is 2 a^2, and the loss is at most half of it. The reason is the inequality (x + y)^2 <= 2 x^2 "
        "+ 2 y^2, which loses a factor of two if x or y is zero. There are two Monte Carlo estimates of the loss. The "
        "first is the mean squared distance of f* and f+. The second is the difference of their risks, with noise in y. "
        "The closed form is one integral.\n"
        "\n"
        "*Trained networks.* There the target is h + a sin 3h + N/10, where h is the value of a Gaussian process at the "
        "mask of the sequence, and every sequence has another mask. The tokens are 16 values of the process with noise. "
        "The posterior of h is N(m, v), computed by CME attention with the kernel of the process and the ridge s2, and "
        "f+ = m. The networks are CME attention and softmax attention with the same form of kernel. sigma, the ridge of "
        "CME and the matrices before the output are trained by L-BFGS. The losses are those on new sequences. "
        "eps_attn^2 is measured as E (f_theta - f+)^2. The theorem has a supremum over all sequences in its place, "
        "which is larger. At a = 0 the excess risk is eps_attn^2.\n"
        "\n"
        "*A criterion that was changed.* The two Monte Carlo estimates had to be within three standard errors. One of "
        "ten comparisons exceeds three by chance in 2.7 % of the runs. Now the limit is five.\n"
        "\n"
        "*Figure.* The loss over a: the closed form, both Monte Carlo estimates, and a^2.",
    .needs_gsl = true,
    .measure = measure,
    .judge = judge};
