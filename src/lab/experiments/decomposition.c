/* decomposition.c - the excess risk of a trained network is the sum of approximation, generalisation and optimisation, each measured over
 * the quantity that it depends on.
 *
 *     E_gen    = E L(f^) - E^ L(f^) + E^ L(f~) - E L(f0)        f^ trained, f~ the empirical minimiser, f0 that of the population,
 *     E_approx = E L(f0) - E L(f*)                              both of the class;  f* = E[y | X]
 *     E_opt    = E^ L(f^) - E^ L(f~)                            sum = E L(f^) - E L(f*) = E (f^ - f*)^2                        (X 5.3)
 *
 * A latent angle z ~ U(-1, 1); four tokens of an alphabet of four points x_k on the circle, P(x_k | z) ~ exp(1.5 cos(phi_k - pi z)); y =
 * -1/2 or 1/2 with E[y | z] = g(z). A network of X 5.1 does not depend on the order of tokens, so there are only 35 multisets, and
 * expectations are sums:
 *
 *     E L(f) = sum over X and y of (y - f(X))^2 int P(X | z) P(y | z) dz / 2,        f*(X) = int g P(X | z) dz / int P(X | z) dz
 *
 * The left formula uses losses with labels, the right one, by another quadrature, the regression function. If the three terms add up to E
 * (f^ - f*)^2, then f* is the conditional mean and no term is counted twice. Minimisers are the lowest points that L-BFGS finds from many
 * random weights, from f0 and from f^. Source: X equation 5.3.
 */
#include <string.h>

#include "lab/descent.h"
#include "lab/fit.h"
#include "lab/latent_network.h"
#include "lab/special.h"

#define PI 3.14159265358979323846
#define SHARPNESS 1.5
enum { LETTERS = 4, TOKENS = 4, SEQUENCES = 35, DIM = 2, PER_SAMPLE = TOKENS + 2 };
#define RISK_NODES 64
#define REGRESSION_NODES 48
#define EVALUATIONS 400
#define TOLERANCE 1e-9
#define RATE 0.05 /* of Adam */
#define BASE_COUNT 256
#define BASE_WIDTH 4
#define BASE_STEPS 800
#define MOST_SAMPLES 1024
#define MOST_POINTS 16 /* over n */

enum {
  SWEEP,
  COUNT,
  WIDTH,
  STEPS,
  APPROXIMATION,
  GENERALISATION,
  OPTIMISATION,
  EXCESS,
  DIFFERENCE,
  APPROXIMATION_DIFFERENCE,
  GENERALISATION_ERROR,
  COLUMNS
};
static const hark_lab_column columns[COLUMNS] = {{"over", NULL, "n|width|steps"},
                                                 {"n", "sequences", NULL},
                                                 {"width", NULL, NULL},
                                                 {"steps", "of Adam", NULL},
                                                 {"E_approx", NULL, NULL},
                                                 {"E_gen", "mean", NULL},
                                                 {"E_opt", "mean", NULL},
                                                 {"E (f^ - f*)^2", "mean", NULL},
                                                 {"sum of the terms - E (f^ - f*)^2", "largest", NULL},
                                                 {"E_approx - E (f0 - f*)^2", NULL, NULL},
                                                 {"E_gen", "standard error", NULL}};
enum { OVER_COUNT, OVER_WIDTH, OVER_STEPS };

/* Masses of (X, y = 1/2) and (X, y = -1/2), of the population or of a sample. */
typedef struct masses {
  double plus[SEQUENCES], minus[SEQUENCES];
} masses;

typedef struct world {
  hark_lab *lab;
  double letters[LETTERS * DIM];
  int counts[SEQUENCES][LETTERS]; /* of the multisets */
  double tokens[SEQUENCES * TOKENS * DIM], mask[DIM];
  masses population;
  double probability[SEQUENCES], regression[SEQUENCES]; /* P(X), f* */
  double best_risk;                                     /* E L(f*) */
  double *uniform;                                      /* [MOST_SAMPLES, PER_SAMPLE] */
} world;

/* One width: the network, its population minimiser. */
typedef struct model {
  world *world;
  hark_lab_network network;
  hark_lab_sequences sequences;
  hark_lab_descent descent;
  masses sample;        /* for training */
  const masses *target; /* whose risk is minimised */
  double scratch[SEQUENCES];
  double *best, *trained, *lowest; /* weights of f0, f^, f~ */
  double best_risk;                /* E L(f0) */
} model;

/* ---- the world ---- */

static double mean_of_label(double z) { return 0.35 * sin(PI * z) + 0.1 * cos(2 * PI * z); }

static double angle_of(int letter) { return 0.3 + 2 * PI * letter / LETTERS; }

static void letter_probabilities(double z, double out[LETTERS]) {
  double sum = 0;
  for (int k = 0; k < LETTERS; k++) {
    out[k] = exp(SHARPNESS * cos(angle_of(k) - PI * z));
    sum += out[k];
  }
  for (int k = 0; k < LETTERS; k++) out[k] /= sum;
}

/* P(X | z), X a multiset: L! prod_k p_k^c_k / c_k! */
static double probability_of(const world *w, int sequence, const double p[LETTERS]) {
  double product = 1;
  int drawn = 0;
  for (int k = 0; k < LETTERS; k++)
    for (int c = 1; c <= w->counts[sequence][k]; c++) product *= p[k] * ++drawn / c;
  return product;
}

static int sequence_of(const world *w, const int counts[LETTERS]) {
  int at = 0;
  while (memcmp(w->counts[at], counts, sizeof w->counts[at]) != 0) at++;
  return at;
}

static void enumerate_sequences(world *w) {
  int at = 0;
  for (int a = 0; a <= TOKENS; a++)
    for (int b = 0; a + b <= TOKENS; b++)
      for (int c = 0; a + b + c <= TOKENS; c++, at++) {
        const int counts[LETTERS] = {a, b, c, TOKENS - a - b - c};
        memcpy(w->counts[at], counts, sizeof counts);
        double *token = w->tokens + (ptrdiff_t)at * TOKENS * DIM;
        for (int k = 0; k < LETTERS; k++)
          for (int i = 0; i < counts[k]; i++, token += DIM) memcpy(token, w->letters + (ptrdiff_t)k * DIM, DIM * sizeof *token);
      }
}

static double risk_of(const masses *of, const double *f) {
  double sum = 0;
  for (int x = 0; x < SEQUENCES; x++) sum += of->plus[x] * (0.5 - f[x]) * (0.5 - f[x]) + of->minus[x] * (0.5 + f[x]) * (0.5 + f[x]);
  return sum;
}

static double distance_of(const world *w, const double *f) {
  double sum = 0;
  for (int x = 0; x < SEQUENCES; x++) sum += w->probability[x] * (f[x] - w->regression[x]) * (f[x] - w->regression[x]);
  return sum;
}

static hark_status make_world(hark_lab *lab, world *w) {
  hark_lab_rule rule;
  double p[LETTERS];
  *w = (world){.lab = lab, .mask = {1, 0}};
  for (int k = 0; k < LETTERS; k++) {
    w->letters[(ptrdiff_t)k * DIM] = cos(angle_of(k));
    w->letters[k * DIM + 1] = sin(angle_of(k));
  }
  enumerate_sequences(w);
  HARK_TRY(hark_lab_numbers(lab, (int64_t)MOST_SAMPLES * PER_SAMPLE, &w->uniform));
  HARK_TRY(hark_lab_legendre(lab, RISK_NODES, -1, 1, &rule));
  for (int64_t i = 0; i < rule.count; i++) {
    const double plus = 0.5 + mean_of_label(rule.nodes[i]); /* P(y = 1/2 | z) */
    letter_probabilities(rule.nodes[i], p);
    for (int x = 0; x < SEQUENCES; x++) {
      const double mass = rule.weights[i] / 2 * probability_of(w, x, p);
      w->population.plus[x] += mass * plus;
      w->population.minus[x] += mass * (1 - plus);
    }
  }
  HARK_TRY(hark_lab_legendre(lab, REGRESSION_NODES, -1, 1, &rule));
  for (int64_t i = 0; i < rule.count; i++) {
    letter_probabilities(rule.nodes[i], p);
    for (int x = 0; x < SEQUENCES; x++) {
      const double mass = rule.weights[i] / 2 * probability_of(w, x, p);
      w->probability[x] += mass;
      w->regression[x] += mass * mean_of_label(rule.nodes[i]);
    }
  }
  for (int x = 0; x < SEQUENCES; x++) w->regression[x] /= w->probability[x];
  w->best_risk = risk_of(&w->population, w->regression);
  return HARK_OK;
}

static void draw_sample(const world *w, uint32_t stream, int64_t n, masses *out) {
  const double *uniform = w->uniform;
  double p[LETTERS];
  hark_lab_uniform(w->lab, stream, n * PER_SAMPLE, w->uniform);
  *out = (masses){{0}, {0}};
  for (int64_t i = 0; i < n; i++, uniform += PER_SAMPLE) {
    const double z = 2 * uniform[0] - 1;
    int counts[LETTERS] = {0};
    letter_probabilities(z, p);
    for (int l = 0; l < TOKENS; l++) {
      int k = 0;
      for (double at = uniform[2 + l]; k < LETTERS - 1 && at >= p[k]; k++) at -= p[k];
      counts[k]++;
    }
    const int x = sequence_of(w, counts);
    *(uniform[1] < 0.5 + mean_of_label(z) ? &out->plus[x] : &out->minus[x]) += 1 / (double)n;
  }
}

/* ---- minimising ---- */

static hark_status risk(void *user, const double *weights, double *value, double *gradient) {
  model *const m = user;
  hark_context *const context = m->world->lab->context;
  HARK_TRY(hark_lab_network_forward(context, &m->network, &m->sequences, weights));
  *value = risk_of(m->target, m->network.f);
  for (int x = 0; x < SEQUENCES; x++)
    m->scratch[x] = 2 * (m->target->plus[x] * (m->network.f[x] - 0.5) + m->target->minus[x] * (m->network.f[x] + 0.5));
  return hark_lab_network_backward(context, &m->network, &m->sequences, weights, m->scratch, gradient);
}

static hark_lab_objective objective_of(model *m) { return (hark_lab_objective){.dims = m->network.weights, .evaluate = risk, .user = m}; }

/* L-BFGS from descent->x; updates weights and *least where it finds less. */
static hark_status go_down(model *m, double *weights, double *least) {
  const hark_lab_objective objective = objective_of(m);
  HARK_TRY(hark_lab_quasi_newton(&objective, EVALUATIONS, TOLERANCE, &m->descent));
  if (m->descent.value >= *least) return HARK_OK;
  *least = m->descent.value;
  memcpy(weights, m->descent.x, (size_t)m->network.weights * sizeof *weights);
  return HARK_OK;
}

static hark_status go_down_from(model *m, const double *start, double *weights, double *least) {
  memcpy(m->descent.x, start, (size_t)m->network.weights * sizeof *start);
  return go_down(m, weights, least);
}

static hark_status search(model *m, const masses *target, int restarts, uint32_t stream, double *weights, double *least) {
  m->target = target;
  for (int r = 0; r < restarts; r++) {
    hark_lab_normal(m->world->lab, stream + (uint32_t)r, m->network.weights, m->descent.x);
    HARK_TRY(go_down(m, weights, least));
  }
  return HARK_OK;
}

/* The smaller network's function: its weights, new units that are not yet used. */
static void widen(const model *from, const model *to, uint32_t stream, double *weights) {
  hark_lab_normal(to->world->lab, stream, to->network.weights, weights);
  for (int w = 0; w < HARK_LAB_WEIGHTS; w++) {
    const hark_lab_place small = hark_lab_weight_place(&from->network, (hark_lab_weight)w);
    const hark_lab_place large = hark_lab_weight_place(&to->network, (hark_lab_weight)w);
    for (int64_t r = 0; r < large.rows; r++)
      for (int64_t c = 0; c < large.columns; c++) {
        double *const weight = weights + large.first + r * large.columns + c;
        if (r < small.rows && c < small.columns)
          *weight = from->best[small.first + r * small.columns + c];
        else if (w != HARK_LAB_A)
          *weight = 0;
      }
  }
}

static hark_status make_model(world *w, int64_t width, const model *smaller, model *m) {
  const int restarts = w->lab->quick ? 8 : 30;
  *m = (model){.world = w, .best_risk = INFINITY};
  m->network = (hark_lab_network){.dim = DIM,
                                  .width = width,
                                  .head_dim = DIM,
                                  .value_dim = DIM,
                                  .length = TOKENS,
                                  .most = SEQUENCES,
                                  .variance = DIM,
                                  .feature_scale = 1,
                                  .output_scale = 1};
  m->sequences = (hark_lab_sequences){.count = SEQUENCES, .tokens = w->tokens, .masks = w->mask, .one_mask = true};
  HARK_TRY(hark_lab_make_network(w->lab, &m->network));
  HARK_TRY(hark_lab_make_descent(w->lab, m->network.weights, HARK_LAB_PAIRS, &m->descent));
  HARK_TRY(hark_lab_numbers(w->lab, m->network.weights, &m->best));
  HARK_TRY(hark_lab_numbers(w->lab, m->network.weights, &m->trained));
  HARK_TRY(hark_lab_numbers(w->lab, m->network.weights, &m->lowest));
  HARK_TRY(search(m, &w->population, restarts, (uint32_t)(width << 8), m->best, &m->best_risk));
  if (smaller == NULL) return HARK_OK;
  widen(smaller, m, (uint32_t)(width << 8) + 64, m->descent.x);
  return go_down(m, m->best, &m->best_risk);
}

/* ---- the terms ---- */

/* The terms from one sample, one training and one long search. */
static hark_status add_terms(model *m, int64_t n, int steps, uint32_t stream, hark_lab_mean terms[3], hark_lab_mean *excess,
                             double *difference) {
  const world *const w = m->world;
  hark_context *const context = w->lab->context;
  const hark_lab_objective objective = objective_of(m);
  const hark_lab_adam how = {.steps = steps, .rate = RATE, .last = true};
  double least = INFINITY;
  draw_sample(w, stream, n, &m->sample);
  m->target = &m->sample;
  hark_lab_normal(w->lab, stream + 1, m->network.weights, m->descent.x);
  HARK_TRY(hark_lab_descend(w->lab, &objective, how, &m->descent));
  memcpy(m->trained, m->descent.x, (size_t)m->network.weights * sizeof *m->trained);
  HARK_TRY(hark_lab_network_forward(context, &m->network, &m->sequences, m->trained));
  const double on_sample = risk_of(&m->sample, m->network.f), on_population = risk_of(&w->population, m->network.f);
  const double distance = distance_of(w, m->network.f);
  HARK_TRY(go_down_from(m, m->trained, m->lowest, &least));
  HARK_TRY(go_down_from(m, m->best, m->lowest, &least));
  HARK_TRY(search(m, &m->sample, w->lab->quick ? 2 : 5, stream + 2, m->lowest, &least));
  const double each[3] = {m->best_risk - w->best_risk, on_population - on_sample + least - m->best_risk, on_sample - least};
  for (int t = 0; t < 3; t++) hark_lab_mean_add(&terms[t], each[t]);
  hark_lab_mean_add(excess, distance);
  *difference = hark_lab_larger(*difference, fabs(each[0] + each[1] + each[2] - distance));
  return HARK_OK;
}

static hark_status measure_point(hark_lab_table *table, model *m, int sweep, int64_t n, int steps, uint32_t stream) {
  hark_lab *const lab = m->world->lab;
  hark_lab_mean terms[3] = {{0}}, excess = {0};
  double row[COLUMNS] = {[SWEEP] = sweep, [COUNT] = (double)n, [WIDTH] = (double)m->network.width, [STEPS] = steps};
  for (int set = 0; set < (lab->quick ? 6 : 20); set++)
    HARK_TRY(add_terms(m, n, steps, stream + 16 * (uint32_t)set, terms, &excess, &row[DIFFERENCE]));
  row[APPROXIMATION] = terms[0].mean;
  row[GENERALISATION] = terms[1].mean;
  row[OPTIMISATION] = terms[2].mean;
  row[EXCESS] = excess.mean;
  row[GENERALISATION_ERROR] = hark_lab_mean_error(&terms[1]);
  HARK_TRY(hark_lab_network_forward(lab->context, &m->network, &m->sequences, m->best));
  row[APPROXIMATION_DIFFERENCE] = terms[0].mean - distance_of(m->world, m->network.f);
  return hark_lab_add_row(lab, table, row);
}

static hark_status draw(hark_lab *lab) {
  static const hark_lab_axes axes[] = {{.title = "over the number of sequences", .x = "n", .y = "risk", .log_x = true, .log_y = true},
                                       {.title = "over the width", .x = "width", .y = "risk", .log_x = true, .log_y = true},
                                       {.title = "over the steps of Adam", .x = "steps", .y = "risk", .log_x = true, .log_y = true}};
  static const int drawn[] = {APPROXIMATION, GENERALISATION, OPTIMISATION, EXCESS};
  for (int sweep = 0; sweep < 3; sweep++) {
    hark_lab_panel *panel;
    HARK_TRY(hark_lab_add_panel(lab, axes[sweep], &panel));
    for (int c = 0; c < 4; c++) {
      hark_lab_curve *curve;
      HARK_TRY(hark_lab_add_curve(lab, panel, drawn[c] == EXCESS ? HARK_LAB_LINE : HARK_LAB_POINTS, &curve, "%s", columns[drawn[c]].name));
      for (int64_t i = 0; i < hark_lab_row_count(&lab->tables[0]); i++) {
        const double *const row = hark_lab_row(&lab->tables[0], i);
        if (row[SWEEP] == sweep && row[drawn[c]] > 0) HARK_TRY(hark_lab_add_point(curve, row[COUNT + sweep], row[drawn[c]]));
      }
    }
  }
  return HARK_OK;
}

static hark_status measure(hark_lab *lab) {
  static const int steps[] = {5, 20, 80, 320, 1280};
  enum { MODELS = 5 }; /* widths 1, 2, .. 16 */
  const int models = lab->quick ? 4 : MODELS;
  void *memory;
  hark_lab_table *table;
  world w;
  uint32_t stream = UINT32_C(1) << 16;
  HARK_TRY(make_world(lab, &w));
  HARK_TRY(hark_lab_allocate(lab, MODELS * sizeof(model), &memory));
  model *const all = memory;
  for (int i = 0; i < models; i++) HARK_TRY(make_model(&w, INT64_C(1) << i, i > 0 ? &all[i - 1] : NULL, &all[i]));
  model *base = all;
  while (base->network.width < BASE_WIDTH) base++;
  HARK_TRY(hark_lab_add_table(lab, "the three terms, means over samples", columns, COLUMNS, &table));
  for (int64_t n = 32; n <= (lab->quick ? 512 : MOST_SAMPLES); n *= 2, stream += 1024)
    HARK_TRY(measure_point(table, base, OVER_COUNT, n, BASE_STEPS, stream));
  for (int i = 0; i < models; i++, stream += 1024) HARK_TRY(measure_point(table, &all[i], OVER_WIDTH, BASE_COUNT, BASE_STEPS, stream));
  for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++, stream += 1024)
    HARK_TRY(measure_point(table, base, OVER_STEPS, BASE_COUNT, steps[i], stream));
  return draw(lab);
}

static double slope_of(const hark_lab_table *table, int sweep, int column) {
  hark_lab_line line = {0};
  for (int64_t i = 0; i < hark_lab_row_count(table); i++) {
    const double *const row = hark_lab_row(table, i);
    if (row[SWEEP] == sweep) hark_lab_line_add_power(&line, row[COUNT + sweep], row[column]);
  }
  return hark_lab_line_fit(&line).slope;
}

/* The power of n in E_gen. A mean of E_gen over few samples may be negative, see `notes`: it has no logarithm, and is weighted by its
 * error. */
static double power_of_generalisation(const hark_lab_table *table) {
  double n[MOST_POINTS], mean[MOST_POINTS], error[MOST_POINTS];
  int64_t count = 0;
  for (int64_t i = 0; i < hark_lab_row_count(table) && count < MOST_POINTS; i++) {
    const double *const row = hark_lab_row(table, i);
    if (row[SWEEP] != OVER_COUNT) continue;
    n[count] = row[COUNT];
    mean[count] = row[GENERALISATION];
    error[count++] = row[GENERALISATION_ERROR];
  }
  return hark_lab_power(count, n, mean, error);
}

/* Wider networks contain the narrower ones, and one search begins at the minimiser of those, so E_approx cannot rise. The gap of a
 * minimiser is of order n^-1/2 at most (Theorem 5.3): slope -.4 as in `generalisation`. With p = 10 free directions a sample's term has a
 * relative deviation of sqrt(2 / 10); the means of 20 samples have .1, slopes over six n .035; of 6 samples (quick) .18, over five n .08:
 * .25 is three of these. */
static hark_status judge(hark_lab *lab) {
  const hark_lab_table *const table = &lab->tables[0];
  double difference = 0, approximation = 0, rise = -INFINITY, before = NAN;
  for (int64_t i = 0; i < hark_lab_row_count(table); i++) {
    const double *const row = hark_lab_row(table, i);
    difference = hark_lab_larger(difference, fabs(row[DIFFERENCE]));
    approximation = hark_lab_larger(approximation, fabs(row[APPROXIMATION_DIFFERENCE]));
    if (row[SWEEP] != OVER_WIDTH) continue;
    if (row[WIDTH] > 1) rise = hark_lab_larger(rise, row[APPROXIMATION] - before);
    before = row[APPROXIMATION];
  }
  HARK_TRY(hark_lab_require(lab, difference, 0, 1e-10, "E_approx + E_gen + E_opt - E (f^ - f*)^2, largest"));
  HARK_TRY(hark_lab_require(lab, approximation, 0, 1e-10, "E_approx - E (f0 - f*)^2, largest"));
  HARK_TRY(hark_lab_require(lab, rise, -INFINITY, 1e-12, "E_approx with twice the width, its largest rise"));
  HARK_TRY(hark_lab_require(lab, power_of_generalisation(table), -INFINITY, lab->quick ? -0.15 : -0.4,
                            "power of n in E_gen, each mean weighted by its error"));
  return hark_lab_require(lab, slope_of(table, OVER_STEPS, OPTIMISATION), -INFINITY, 0, "slope of E_opt in the steps, log-log");
}

const hark_experiment hark_experiment_decomposition = {
    .summary = "approximation, generalisation and optimisation add up to the excess risk",
    .paper = HARK_LAB_PAPER_X "equation 5.3",
    .statement =
        "Attention networks read sequences that depend on a latent angle, and all 35 multisets of four tokens are enumerated with their "
        "probabilities. The three "
        "terms of (5.3) add up to E (f^ - f*)^2, where f* is computed by quadrature of the posterior. The approximation "
        "term does not rise with the width. The generalisation term falls with the number of sequences, and the "
        "optimisation term falls with the number of training steps",
    .notes =
        "    E_gen = E L(f^) - E^ L(f^) + E^ L(f~) - E L(f0),   E_approx = E L(f0) - E L(f*),   E_opt = E^ L(f^) - E^ "
        "L(f~)\n"
        "\n"
        "By definition the three terms add up to E L(f^) - E L(f*), because each intermediate risk occurs once with "
        "plus and once with minus. The sum is compared with E (f^ - f*)^2, which is computed separately. For this, f* "
        "is the mean over the latent posterior, computed by quadrature. The two agree only if f* is the conditional "
        "mean. If f* had an error of one tenth of a per cent, the criterion would fail.\n"
        "\n"
        "A sequence has four tokens. Each token is one of four points x_k on the circle, at the angle phi_k. Its "
        "probability P(x_k | z) is proportional to exp(1.5 cos(phi_k - pi z)). Labels are -1/2 or 1/2, with the mean "
        "0.35 sin(pi z) + 0.1 cos(2 pi z). Three networks are compared. f^ is the network at which Adam ends if it "
        "starts from random weights. f0 is the network with the least population risk that L-BFGS reaches. Its "
        "searches start from many random weights, and also from the f0 of a narrower network if there is one. f~ is "
        "the network with the least risk on the sample, among those that L-BFGS reaches. Its searches start from "
        "random weights, from f^ and from f0. So the risks of f0 and f~ are upper bounds of the true minima. The "
        "experiment varies n, the width, and the number of steps, one at a time. The others are then 256, 4 and 800.\n"
        "\n"
        "After few steps E_gen can be negative, because f~ fits the sample better than f^ does. E_gen is the sum of "
        "two parts. The first is E (L(f^) - L(f0)) - E^ (L(f^) - L(f0)). The second is E^ L(f~) - E^ L(f0). If f^ does "
        "not fit the sample, the first part has a mean near zero, and its scatter depends on the distance of f^ from "
        "f0. The second part is never positive. So a mean of E_gen over a few samples may be negative at any n, and "
        "then it has no logarithm. Therefore the power c n^s is fitted to the means themselves. The fit is by least "
        "squares, with weights from the standard errors of the means (`hark_lab_power()`). The criterion for the power "
        "was changed later, because its first form measured nan with some seeds of `--quick`.\n"
        "\n"
        "E_approx saturates. With seed 1 it is 0.00149497 at widths 2, 4, 8 and 16. This is below its value at width "
        "1. So the experiment shows only that E_approx does not rise.\n"
        "\n"
        "*Figures.* The terms and the excess risk over n, width and steps. Negative values are not drawn.",
    .needs_gsl = true,
    .measure = measure,
    .judge = judge};
