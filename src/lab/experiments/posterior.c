/* posterior.c - CME attention is a mean over the posterior of the latent variable.
 *
 *     psi(z, q) = z phi(q) [2],   z [2, 32] ~ N(0, I),   r_l = psi(z, c_l) + N(0, s2),
 *     kappa(x, y) = phi(x) . phi(y) = RBF of variance 1/4
 *     f_W(X, q) = W^T attn_CME(q, c, r) = E[W^T psi(z, q) | X],      lambda = s2                                              (X 5.7, 5.8)
 *
 * The left side is attention on the tokens. The right side is computed in the space of the latent variable (gaussian_process.h), where the
 * posterior of z given X is normal with precision A = Phi^T Phi / s2 + I and mean A^-1 Phi^T r / s2: from draws of z, and from the exact
 * mean and variance. The operator's variance is that of psi.
 *
 * Draws at different queries are not independent: the means d of n draws, less the output of attention, have the covariance Phi_q A^-1
 * Phi_q^T / n (W has length one). With its eigenvalues l_k and eigenvectors u_k, sum_k (u_k.d)^2 / l_k is chi-squared, over those
 * directions whose l_k are not rounding. Source: X (Zhang et al.), equations 5.7, 5.8 and appendix E.1.
 */
#include <string.h>

#include "lab/attention.h"
#include "lab/fit.h"
#include "lab/gaussian_process.h"
#include "lab/matrix.h"

#define WIDTH 0.5 /* of the kernel: its square is 1/4 */
#define NOISE 0.1 /* s2 = lambda */
#define QUERIES 20
#define REACH 0.95 /* of the queries; covariates are in [-1, 1] */
#define QUICK_DRAWS 2000
#define FULL_DRAWS 10000
#define ROUNDING 1e-9
enum { OUTPUTS = 2, N = HARK_GAUSSIAN_FEATURES, LENGTHS = 3, LONGEST = 256 };
static const int64_t lengths[LENGTHS] = {16, 64, LONGEST};
static const double reweighting[OUTPUTS] = {0.8, -0.6}; /* W of f_W */

enum { TOKENS, QUERY, ATTENTION, MEAN_OF_DRAWS, STANDARD_ERROR, DEVIATIONS, EXACT, VARIANCE, EXACT_VARIANCE, COLUMNS };
static const hark_lab_column columns[COLUMNS] = {{"tokens", NULL, NULL},
                                                 {"query", NULL, NULL},
                                                 {"attention", "f_W", NULL},
                                                 {"mean of draws", "W psi(z)", NULL},
                                                 {"standard error", NULL, NULL},
                                                 {"difference", "standard errors", NULL},
                                                 {"exact mean", "latent space", NULL},
                                                 {"variance", "attention", NULL},
                                                 {"exact variance", "latent space", NULL}};

/* All queries of one length together. */
enum { OF_TOKENS, DRAWS, DIRECTIONS, SQUARES, NORMAL, CHI_COLUMNS };
static const hark_lab_column chi_columns[CHI_COLUMNS] = {{"tokens", NULL, NULL},
                                                         {"draws", NULL, NULL},
                                                         {"directions", NULL, NULL},
                                                         {"chi-squared", NULL, NULL},
                                                         {"chi-squared", "as a standard normal number", NULL}};
#define LEAST_EIGENVALUE 1e-6 /* of the largest */

/* One sequence. */
typedef struct sequence {
  int64_t length;
  double *covariate, *response;            /* [L], [L, OUTPUTS] */
  double *features, *query, *at_query;     /* [L, N], [QUERIES], [QUERIES, N] */
  double *factor, *mean;                   /* of the posterior: [N, N], A = factor factor^T; [N, OUTPUTS] */
  double *attention, *variance, *solution; /* [QUERIES, OUTPUTS], [QUERIES], [N] */
} sequence;

static hark_status allocate(hark_lab *lab, sequence *s) {
  HARK_TRY(hark_lab_numbers(lab, LONGEST, &s->covariate));
  HARK_TRY(hark_lab_numbers(lab, (int64_t)LONGEST * OUTPUTS, &s->response));
  HARK_TRY(hark_lab_numbers(lab, (int64_t)LONGEST * N, &s->features));
  HARK_TRY(hark_lab_numbers(lab, QUERIES, &s->query));
  HARK_TRY(hark_lab_numbers(lab, (int64_t)QUERIES * N, &s->at_query));
  HARK_TRY(hark_lab_numbers(lab, (int64_t)N * N, &s->factor));
  HARK_TRY(hark_lab_numbers(lab, (int64_t)N * OUTPUTS, &s->mean));
  HARK_TRY(hark_lab_numbers(lab, (int64_t)QUERIES * OUTPUTS, &s->attention));
  HARK_TRY(hark_lab_numbers(lab, QUERIES, &s->variance));
  return hark_lab_numbers(lab, N, &s->solution);
}

static void draw_sequence(const hark_lab *lab, uint32_t stream, sequence *s) {
  double z[N * OUTPUTS];
  hark_lab_uniform(lab, stream, s->length, s->covariate);
  hark_lab_normal(lab, stream + 1, (int64_t)N * OUTPUTS, z);
  hark_lab_normal(lab, stream + 2, s->length * OUTPUTS, s->response);
  for (int64_t l = 0; l < s->length; l++) {
    s->covariate[l] = 2 * s->covariate[l] - 1;
    hark_gaussian_features(s->covariate[l], WIDTH, s->features + l * N);
    for (int c = 0; c < OUTPUTS; c++) {
      double *const response = &s->response[l * OUTPUTS + c];
      *response = hark_gaussian_value(z + (ptrdiff_t)c * N, s->features + l * N) + sqrt(NOISE) * *response;
    }
  }
  for (int i = 0; i < QUERIES; i++) {
    s->query[i] = REACH * (2. * i / (QUERIES - 1) - 1);
    hark_gaussian_features(s->query[i], WIDTH, s->at_query + (ptrdiff_t)i * N);
  }
}

static hark_status attend(const hark_lab *lab, const sequence *s) {
  const hark_attention_desc choice = hark_lab_kernel_ridge(WIDTH * WIDTH, NOISE);
  const hark_lab_head head = {.length = s->length,
                              .queries = QUERIES,
                              .head_dim = 1,
                              .value_dim = OUTPUTS,
                              .query = s->query,
                              .key = s->covariate,
                              .value = s->response,
                              .variance = s->variance};
  return hark_lab_attend(lab->context, &choice, &head, s->attention);
}

/* factor factor^T <- Phi^T Phi / s2 + I,  mean <- A^-1 Phi^T r / s2 */
static hark_status infer(const hark_lab *lab, sequence *s) {
  for (int i = 0; i < N; i++) {
    for (int j = 0; j < N; j++) {
      double sum = 0;
      for (int64_t l = 0; l < s->length; l++) sum += s->features[l * N + i] * s->features[l * N + j];
      s->factor[i * N + j] = sum / NOISE + (i == j);
    }
    for (int c = 0; c < OUTPUTS; c++) {
      double sum = 0;
      for (int64_t l = 0; l < s->length; l++) sum += s->features[l * N + i] * s->response[l * OUTPUTS + c];
      s->mean[i * OUTPUTS + c] = sum / NOISE;
    }
  }
  if (!hark_lab_cholesky(N, s->factor)) return hark_fail(lab->context, HARK_INTERNAL_ERROR, "the precision of a posterior is not positive");
  hark_lab_cholesky_solve(N, s->factor, OUTPUTS, s->mean);
  return HARK_OK;
}

/* x <- factor^-T x */
static void solve_transposed(const double *factor, double *x) {
  for (int i = N - 1; i >= 0; i--) {
    for (int k = i + 1; k < N; k++) x[i] -= factor[k * N + i] * x[k];
    x[i] /= factor[i * N + i];
  }
}

/* Draws of W^T psi(z, q) for all queries: z_c = mean_c + factor^-T N(0, I), the rows of z independent. */
static void draw_latent(const hark_lab *lab, uint32_t stream, int64_t draws, const sequence *s, hark_lab_mean *means) {
  double noise[N * OUTPUTS], z[N];
  for (int64_t draw = 0; draw < draws; draw++) {
    hark_lab_normal_from(lab, stream, (uint64_t)(draw * N * OUTPUTS), (int64_t)N * OUTPUTS, noise);
    for (int i = 0; i < N; i++) z[i] = 0;
    for (int c = 0; c < OUTPUTS; c++) {
      double *const row = noise + (ptrdiff_t)c * N;
      solve_transposed(s->factor, row);
      for (int i = 0; i < N; i++) z[i] += reweighting[c] * (s->mean[i * OUTPUTS + c] + row[i]);
    }
    for (int q = 0; q < QUERIES; q++) hark_lab_mean_add(&means[q], hark_gaussian_value(z, s->at_query + (ptrdiff_t)q * N));
  }
}

/* phi^T A^-1 phi */
static double exact_variance(const sequence *s, int query) {
  const double *const phi = s->at_query + (ptrdiff_t)query * N;
  for (int i = 0; i < N; i++) s->solution[i] = phi[i];
  hark_lab_cholesky_solve(N, s->factor, 1, s->solution);
  return hark_gaussian_value(s->solution, phi);
}

static void fill_row(const sequence *s, int query, const hark_lab_mean *draws, double *row) {
  const double *const phi = s->at_query + (ptrdiff_t)query * N;
  row[TOKENS] = (double)s->length;
  row[QUERY] = s->query[query];
  row[ATTENTION] = row[EXACT] = 0;
  for (int c = 0; c < OUTPUTS; c++) {
    double exact = 0;
    for (int i = 0; i < N; i++) exact += phi[i] * s->mean[i * OUTPUTS + c];
    row[ATTENTION] += reweighting[c] * s->attention[query * OUTPUTS + c];
    row[EXACT] += reweighting[c] * exact;
  }
  row[MEAN_OF_DRAWS] = draws->mean;
  row[STANDARD_ERROR] = hark_lab_mean_error(draws);
  row[DEVIATIONS] = (draws->mean - row[ATTENTION]) / row[STANDARD_ERROR];
  row[VARIANCE] = s->variance[query];
  row[EXACT_VARIANCE] = exact_variance(s, query);
}

/* Phi_q A^-1 Phi_q^T [QUERIES, QUERIES] */
static void covariance_of_queries(const sequence *s, double *out) {
  for (int i = 0; i < QUERIES; i++) {
    memcpy(s->solution, s->at_query + (ptrdiff_t)i * N, N * sizeof *s->solution);
    hark_lab_cholesky_solve(N, s->factor, 1, s->solution);
    for (int j = 0; j < QUERIES; j++) out[i * QUERIES + j] = hark_gaussian_value(s->solution, s->at_query + (ptrdiff_t)j * N);
  }
}

/* The number whose normal distribution function is that of chi-squared of `directions` (Wilson, Hilferty 1931). */
static double as_normal(double squares, double directions) {
  const double part = 2 / (9 * directions);
  return (cbrt(squares / directions) - (1 - part)) / sqrt(part);
}

static hark_status measure_together(hark_lab *lab, hark_lab_table *table, const sequence *s, const hark_lab_mean *means) {
  double covariance[QUERIES * QUERIES], values[QUERIES], vectors[QUERIES * QUERIES], away[QUERIES];
  double row[CHI_COLUMNS] = {[OF_TOKENS] = (double)s->length, [DRAWS] = means[0].count};
  covariance_of_queries(s, covariance);
  hark_lab_eigen(QUERIES, covariance, values, vectors);
  for (ptrdiff_t q = 0; q < QUERIES; q++)
    away[q] = means[q].mean - reweighting[0] * s->attention[q * OUTPUTS] - reweighting[1] * s->attention[q * OUTPUTS + 1];
  for (int k = 0; k < QUERIES && values[k] > LEAST_EIGENVALUE * values[0]; k++) {
    const double along = hark_lab_dot(vectors + (ptrdiff_t)k * QUERIES, away, QUERIES);
    row[SQUARES] += along * along * row[DRAWS] / values[k];
    row[DIRECTIONS]++;
  }
  row[NORMAL] = as_normal(row[SQUARES], row[DIRECTIONS]);
  return hark_lab_add_row(lab, table, row);
}

/* The mean, and two deviations to each side. */
static hark_status draw_band(hark_lab *lab, const hark_lab_table *table, int64_t length) {
  static const hark_lab_axes axes = {
      .title = "posterior of W psi(z, q): attention, twice its deviation, means of draws", .x = "query", .y = "f_W"};
  hark_lab_panel *panel;
  HARK_TRY(hark_lab_add_panel(lab, axes, &panel));
  static const int sides[] = {0, -1, 1}; /* the second deviation has no label, and so the colour of the first */
  for (int s = 0; s < 3; s++) {
    const int side = sides[s];
    hark_lab_curve *curve;
    HARK_TRY(hark_lab_add_curve(lab, panel, side == 0 ? HARK_LAB_LINE : HARK_LAB_DASHES, &curve, "%s",
                                side == 0    ? "attention"
                                : side == -1 ? "two deviations"
                                             : ""));
    for (int64_t i = 0; i < hark_lab_row_count(table); i++) {
      const double *const row = hark_lab_row(table, i);
      if (row[TOKENS] == (double)length) HARK_TRY(hark_lab_add_point(curve, row[QUERY], row[ATTENTION] + 2 * side * sqrt(row[VARIANCE])));
    }
  }
  hark_lab_curve *points;
  HARK_TRY(hark_lab_add_curve(lab, panel, HARK_LAB_POINTS, &points, "means of draws, %lld tokens", (long long)length));
  for (int64_t i = 0; i < hark_lab_row_count(table); i++) {
    const double *const row = hark_lab_row(table, i);
    if (row[TOKENS] == (double)length) HARK_TRY(hark_lab_add_point(points, row[QUERY], row[MEAN_OF_DRAWS]));
  }
  return HARK_OK;
}

static hark_status measure(hark_lab *lab) {
  sequence s = {.length = 0};
  hark_lab_table *table, *together;
  double row[COLUMNS];
  HARK_TRY(allocate(lab, &s));
  HARK_TRY(hark_lab_add_table(lab, "CME attention and draws of the latent posterior, at 20 queries", columns, COLUMNS, &table));
  HARK_TRY(hark_lab_add_table(lab, "means of draws - attention, all queries together", chi_columns, CHI_COLUMNS, &together));
  for (int i = 0; i < LENGTHS; i++) {
    hark_lab_mean means[QUERIES] = {{0}};
    s.length = lengths[i];
    draw_sequence(lab, (uint32_t)(8 * i), &s);
    HARK_TRY(attend(lab, &s));
    HARK_TRY(infer(lab, &s));
    draw_latent(lab, (uint32_t)(8 * i + 3), lab->quick ? QUICK_DRAWS : FULL_DRAWS, &s, means);
    for (int q = 0; q < QUERIES; q++) {
      fill_row(&s, q, &means[q], row);
      HARK_TRY(hark_lab_add_row(lab, table, row));
    }
    HARK_TRY(measure_together(lab, together, &s, means));
    HARK_TRY(draw_band(lab, table, lengths[i]));
  }
  return HARK_OK;
}

/* Draws: chi-squared of all queries, as a normal number; one is beyond 5 with a probability of 6e-7. The exact means are the same numbers
 * up to rounding, computed in another way: both systems have a condition of up to L / s2 = 2560, so 1e-9 is a wide bound. */
static hark_status judge(hark_lab *lab) {
  const hark_lab_table *const table = &lab->tables[0], *const together = &lab->tables[1];
  double means = 0, variances = 0;
  for (int64_t r = 0; r < hark_lab_row_count(table); r++) {
    const double *const row = hark_lab_row(table, r);
    means = hark_lab_larger(means, fabs(row[ATTENTION] - row[EXACT]));
    variances = hark_lab_larger(variances, fabs(row[VARIANCE] - row[EXACT_VARIANCE]));
  }
  for (int64_t r = 0; r < hark_lab_row_count(together); r++) {
    const double *const row = hark_lab_row(together, r);
    HARK_TRY(hark_lab_require(lab, as_normal(row[SQUARES], row[DIRECTIONS]), -5, 5,
                              "attention - means of draws, chi-squared as a normal number, %d tokens", (int)lengths[r]));
  }
  HARK_TRY(hark_lab_require(lab, means, 0, ROUNDING, "attention - posterior mean in latent space, largest"));
  return hark_lab_require(lab, variances, 0, ROUNDING, "attention's variance - posterior variance in latent space, largest");
}

const hark_experiment hark_experiment_posterior = {
    .summary = "CME attention is the mean of the value over the latent posterior",
    .paper = HARK_LAB_PAPER_X "equations 5.7, 5.8 and appendix E.1",
    .statement =
        "Let r = z phi(c) + noise with a normal z. Then reweighted CME attention with lambda = s2 equals E[W' psi(z) | "
        "X], and its variance is that of psi. The mean and the variance agree with the posterior that is computed in "
        "the space of z, and the mean agrees with draws from this posterior",
    .notes =
        "    f_W(X, q) = W^T attention(q, c, r) = E[W^T psi(z, q) | X],   psi(z, q) = z phi(q),   lambda = s2\n"
        "\n"
        "phi consists of the 32 functions phi_n(x) = exp(-x^2 / 2 w^2) (x / w)^n / sqrt(n!) with n = 0 .. 31. The sum "
        "of phi_n(x) phi_n(y) over n is close to the RBF of x and y. So the latent variable z is a vector, and its "
        "posterior can be computed and sampled in the space of z. The statement requires that mean and variance of this "
        "posterior agree with attention up to rounding. The means of 10,000 draws are scattered around the output of "
        "attention. At neighbouring queries they are not independent, because all queries share the same draws of z. So "
        "all 20 queries of a length are judged together: the differences divided by their standard deviations, along "
        "the eigenvectors of their covariance. The covariance is that of the exact posterior. The sum of the squares is "
        "chi-squared, with 11 or 12 directions. The table has it also as a standard normal number of the same "
        "probability (Wilson, Hilferty 1931), which is beyond 5 by chance in one of two million cases.\n"
        "\n"
        "*A criterion that was changed.* The criterion fixed beforehand was that all 60 means are within three standard "
        "errors. But also if the statement is true, one of them exceeds three standard errors in about 5 % of the runs. "
        "Three of the seeds 1 to 30 failed.\n"
        "\n"
        "*Figures.* For each length, a panel has attention over the query, with twice its standard deviation, and the "
        "means of the draws.",
    .measure = measure,
    .judge = judge};
