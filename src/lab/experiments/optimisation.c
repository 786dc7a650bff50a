/* optimisation.c - the excess loss of a stationary point is at most the distance of its linearisation from the empirical minimiser.
 *
 *     E_opt = E^ (y - f^)^2 - E^ (y - f~)^2 <= 2 E^ |f^ + grad f^.(theta - theta^) - f~| + |grad| |theta - theta^|      for every theta
 *
 * with f^ at theta^, f~ the empirical minimiser, grad that of the empirical risk at theta^ (zero where it is stationary); derivation in
 * docs/mathematics/latent-variables.md. X 5.13 prints f* = E[y | X] instead of f~: a network whose ReLUs are dead has no gradient, and
 * labels that are noise have f* = 0, so the printed right side is zero although E_opt is not.
 *
 * The right side is made small by least squares with weights (G = J J', J the gradients of the f_i):
 *     theta - theta^ = J' a,  a = (G + mu / w)^-1 (f~ - f^),   w_i = 1 / |residual_i|
 *
 * Its residual should vanish for wide networks, which become linear in their parameters. In that scaling features and output are divided by
 * sqrt(width), d_p = d_v = width, and f is not bent into Y, which no width makes linear. Some steps of gradient descent lead from normal
 * weights theta_0 to theta; the residual is E^ |f_theta - f_0 - grad f_0.(theta - theta_0)|. Source: X Proposition 5.6 and appendix D.
 */
#include <string.h>

#include "lab/descent.h"
#include "lab/fit.h"
#include "lab/latent_data.h"
#include "lab/latent_network.h"
#include "lab/matrix.h"
#include "lab/tables.h"

enum { DIM = 4, SEQUENCES = 64, LENGTH = 8, WIDE_LENGTH = 4, STEPS = 8 };
#define TOLERANCE 1e-7 /* of the gradient */
#define EVALUATIONS 2000
#define REWEIGHTINGS 12
#define LEAST_WIDTH 16

enum { RESTART, LOSS, NORM, LOST, RESIDUAL, RIGHT_SIDE, RATIO, STOPPED, STATIONARY_COLUMNS };
enum { BY_GRADIENT, BY_LINE_SEARCH, BY_EVALUATIONS };
static const hark_lab_column stationary_columns[STATIONARY_COLUMNS] = {{"restart", NULL, NULL},
                                                                       {"empirical risk", NULL, NULL},
                                                                       {"|grad|", NULL, NULL},
                                                                       {"E_opt", NULL, NULL},
                                                                       {"residual", "against f~", NULL},
                                                                       {"right side", NULL, NULL},
                                                                       {"E_opt / right side", NULL, NULL},
                                                                       {"ended by", NULL, "gradient|line search|evaluations"}};

enum { LABELS, DEAD_NORM, DEAD_LOST, PRINTED, CORRECTED, DEAD_COLUMNS };
static const hark_lab_column dead_columns[DEAD_COLUMNS] = {{"labels", "number", NULL},
                                                           {"|grad|", NULL, NULL},
                                                           {"E_opt", NULL, NULL},
                                                           {"right side", "f*, printed", NULL},
                                                           {"right side", "f~", NULL}};

enum { WIDTH, LINEARISATION, MOVED, RELATIVE, WIDTH_COLUMNS };
static const hark_lab_column width_columns[WIDTH_COLUMNS] = {
    {"width", NULL, NULL}, {"residual", "mean", NULL}, {"change of f", "mean", NULL}, {"residual / change of f", NULL, NULL}};

/* A network, its data and its targets. */
typedef struct problem {
  hark_lab *lab;
  hark_lab_network network, single; /* of all sequences, and of one */
  hark_lab_latent_data data;
  hark_lab_sequences sequences;
  double mask[DIM], *scratch; /* [n] */
} problem;

static hark_status make_problem(hark_lab *lab, int64_t width, int64_t length, problem *p) {
  const bool wide = width != DIM;
  *p = (problem){.lab = lab};
  p->network = (hark_lab_network){.dim = DIM,
                                  .width = width,
                                  .head_dim = width,
                                  .value_dim = width,
                                  .length = length,
                                  .most = SEQUENCES,
                                  .variance = (double)width,
                                  .feature_scale = wide ? 1 / sqrt((double)width) : 1,
                                  .output_scale = wide ? 1 / sqrt((double)width) : 1,
                                  .unbounded = wide};
  p->single = p->network;
  p->single.most = 1;
  p->data = (hark_lab_latent_data){.count = SEQUENCES, .length = length, .dim = DIM};
  for (int c = 0; c < DIM; c++) p->mask[c] = 1 / sqrt(DIM);
  HARK_TRY(hark_lab_make_network(lab, &p->network));
  HARK_TRY(hark_lab_make_network(lab, &p->single));
  HARK_TRY(hark_lab_make_latent_data(lab, &p->data));
  HARK_TRY(hark_lab_numbers(lab, SEQUENCES, &p->scratch));
  p->sequences = (hark_lab_sequences){.count = SEQUENCES, .tokens = p->data.tokens, .masks = p->mask, .one_mask = true};
  return HARK_OK;
}

static hark_status risk(void *user, const double *weights, double *value, double *gradient) {
  problem *const p = user;
  hark_lab_tick(p->lab, 0, 0);
  return hark_lab_network_loss(p->lab->context, &p->network, &p->sequences, p->data.y, weights, p->scratch, value, gradient);
}

/* gradient [weights] <- d f_i / d weights */
static hark_status gradient_of(problem *p, int64_t i, const double *weights, double *gradient) {
  const double one = 1;
  const hark_lab_sequences sequence = {.count = 1, .tokens = p->data.tokens + i * p->data.length * DIM, .masks = p->mask, .one_mask = true};
  HARK_TRY(hark_lab_network_forward(p->lab->context, &p->single, &sequence, weights));
  return hark_lab_network_backward(p->lab->context, &p->single, &sequence, weights, &one, gradient);
}

/* ---- stationary points ---- */

/* A point theta^: f^ there, G = J J', and the gradient of the risk. */
typedef struct point {
  double *f, *gram; /* [n], [n, n] */
  double loss, norm;
  int stopped; /* what ended the search */
} point;

static hark_status look_at(problem *p, const double *weights, double *jacobian, double *gradient, point *out) {
  HARK_TRY(risk(p, weights, &out->loss, gradient));
  out->norm = sqrt(hark_lab_dot(gradient, gradient, p->network.weights));
  memcpy(out->f, p->network.f, SEQUENCES * sizeof *out->f);
  for (int64_t i = 0; i < SEQUENCES; i++) HARK_TRY(gradient_of(p, i, weights, jacobian + i * p->network.weights));
  memset(out->gram, 0, sizeof(double) * SEQUENCES * SEQUENCES);
  hark_lab_add_right_transposed(SEQUENCES, p->network.weights, SEQUENCES, jacobian, jacobian, out->gram);
  return HARK_OK;
}

/* The least value found of 2 mean |f^ + J d - target| + |grad| |d|, d = J' a; *residual is its mean. */
static double right_side(const point *at, const double *target, double *residual) {
  enum { N = SEQUENCES };
  double factor[N * N], a[N], left[N], least = 0, trace = 0;
  for (int i = 0; i < N; i++) {
    least += 2 * fabs(target[i] - at->f[i]) / N; /* d = 0 */
    trace += at->gram[(ptrdiff_t)i * (N + 1)] / N;
  }
  *residual = least / 2;
  double ridge = 1e-12;
  for (int power = 0; trace > 0 && power <= 5; power++) { /* ridges from 1e-10 to 1 */
    ridge *= 100;
    for (int i = 0; i < N; i++) left[i] = 1;
    for (int round = 0; round < REWEIGHTINGS; round++) {
      double sum = 0, squares = 0;
      memcpy(factor, at->gram, sizeof factor);
      for (int i = 0; i < N; i++) {
        factor[(ptrdiff_t)i * (N + 1)] += ridge * trace * hark_larger(fabs(left[i]), 1e-8);
        a[i] = target[i] - at->f[i];
      }
      if (!hark_lab_cholesky(N, factor)) break;
      hark_lab_cholesky_solve(N, factor, 1, a);
      for (int i = 0; i < N; i++) {
        const double along = hark_lab_dot(at->gram + (ptrdiff_t)i * N, a, N); /* (J d)_i */
        left[i] = target[i] - at->f[i] - along;
        sum += fabs(left[i]) / N;
        squares += a[i] * along; /* |d|^2 */
      }
      const double side = 2 * sum + at->norm * sqrt(hark_larger(squares, 0));
      if (side < least) {
        least = side;
        *residual = sum;
      }
    }
  }
  return least;
}

/* Restarts of L-BFGS; points [restarts], best: the index of the lowest. */
static hark_status find_points(problem *p, int restarts, uint32_t stream, point *points, int *best) {
  const hark_lab_objective objective = {.dims = p->network.weights, .evaluate = risk, .user = p};
  hark_lab_descent descent;
  double *jacobian, *gradient;
  HARK_TRY(hark_lab_make_descent(p->lab, p->network.weights, HARK_LAB_PAIRS, &descent));
  HARK_TRY(hark_lab_numbers(p->lab, SEQUENCES * p->network.weights, &jacobian));
  HARK_TRY(hark_lab_numbers(p->lab, p->network.weights, &gradient));
  *best = 0;
  for (int r = 0; r < restarts; r++) {
    HARK_TRY(hark_lab_numbers(p->lab, SEQUENCES, &points[r].f));
    HARK_TRY(hark_lab_numbers(p->lab, (int64_t)SEQUENCES * SEQUENCES, &points[r].gram));
    hark_lab_normal(p->lab, stream + (uint32_t)r, p->network.weights, descent.x);
    HARK_TRY(hark_lab_quasi_newton(&objective, EVALUATIONS, TOLERANCE, &descent));
    HARK_TRY(look_at(p, descent.x, jacobian, gradient, &points[r]));
    points[r].stopped = points[r].norm <= TOLERANCE ? BY_GRADIENT : descent.evaluations < EVALUATIONS ? BY_LINE_SEARCH : BY_EVALUATIONS;
    if (points[r].loss < points[*best].loss) *best = r;
  }
  return HARK_OK;
}

enum { MOST_RESTARTS = 20 };

static hark_status measure_points(hark_lab *lab) {
  const int restarts = lab->quick ? 6 : MOST_RESTARTS;
  point points[MOST_RESTARTS];
  int best;
  problem p;
  hark_lab_table *table;
  HARK_TRY(
      hark_lab_add_table(lab, "points where L-BFGS ends after starts from random weights", stationary_columns, STATIONARY_COLUMNS, &table));
  HARK_TRY(make_problem(lab, DIM, LENGTH, &p));
  hark_lab_draw_latent_data(lab, 0, SEQUENCES, &p.data);
  HARK_TRY(find_points(&p, restarts, 16, points, &best));
  for (int r = 0; r < restarts; r++) {
    double row[STATIONARY_COLUMNS] = {[RESTART] = r,
                                      [LOSS] = points[r].loss,
                                      [NORM] = points[r].norm,
                                      [LOST] = points[r].loss - points[best].loss,
                                      [STOPPED] = points[r].stopped};
    row[RIGHT_SIDE] = right_side(&points[r], points[best].f, &row[RESIDUAL]);
    row[RATIO] = r == best ? 0 : row[LOST] / row[RIGHT_SIDE];
    HARK_TRY(hark_lab_add_row(lab, table, row));
  }
  return HARK_OK;
}

/* Tokens in the positive part, weights A below zero: no ReLU passes anything. Labels are -1/2 or 1/2 evenly, independent of the tokens. */
static hark_status measure_dead(hark_lab *lab) {
  const int sets = lab->quick ? 2 : 8, restarts = lab->quick ? 4 : MOST_RESTARTS;
  const double nothing[SEQUENCES] = {0};
  double *weights, *jacobian, *gradient;
  problem p;
  hark_lab_table *table;
  point points[MOST_RESTARTS], dead;
  HARK_TRY(hark_lab_add_table(lab, "a network whose ReLUs are dead, labels that are noise", dead_columns, DEAD_COLUMNS, &table));
  HARK_TRY(make_problem(lab, DIM, LENGTH, &p));
  HARK_TRY(hark_lab_draw_normal(lab, 1000, p.network.weights, 1, &weights));
  HARK_TRY(hark_lab_numbers(lab, SEQUENCES * p.network.weights, &jacobian));
  HARK_TRY(hark_lab_numbers(lab, p.network.weights, &gradient));
  HARK_TRY(hark_lab_numbers(lab, SEQUENCES, &dead.f));
  HARK_TRY(hark_lab_numbers(lab, (int64_t)SEQUENCES * SEQUENCES, &dead.gram));
  for (int i = 0; i < DIM * DIM; i++) weights[i] = -fabs(weights[i]);
  for (int set = 0; set < sets; set++) {
    const uint32_t stream = 1024 + 64 * (uint32_t)set;
    int best;
    double row[DEAD_COLUMNS] = {[LABELS] = set}, residual;
    hark_lab_draw_latent_data(lab, stream, SEQUENCES, &p.data);
    for (int i = 0; i < SEQUENCES * LENGTH * DIM; i++) p.data.tokens[i] = fabs(p.data.tokens[i]);
    hark_lab_uniform(lab, stream + 4, SEQUENCES, p.data.y);
    for (int i = 0; i < SEQUENCES; i++) p.data.y[i] = p.data.y[i] < 0.5 ? -0.5 : 0.5;
    HARK_TRY(find_points(&p, restarts, stream + 8, points, &best));
    HARK_TRY(look_at(&p, weights, jacobian, gradient, &dead));
    row[DEAD_NORM] = dead.norm;
    row[DEAD_LOST] = dead.loss - points[best].loss;
    row[PRINTED] = right_side(&dead, nothing, &residual); /* f* = 0 */
    row[CORRECTED] = right_side(&dead, points[best].f, &residual);
    HARK_TRY(hark_lab_add_row(lab, table, row));
  }
  return HARK_OK;
}

/* ---- wide networks ---- */

/* out [n] <- grad f_i . direction; *squares <- mean |grad f_i|^2 */
static hark_status derivative(problem *p, const double *weights, const double *direction, double *gradient, double *out, double *squares) {
  *squares = 0;
  for (int64_t i = 0; i < SEQUENCES; i++) {
    HARK_TRY(gradient_of(p, i, weights, gradient));
    out[i] = hark_lab_dot(gradient, direction, p->network.weights);
    *squares += hark_lab_dot(gradient, gradient, p->network.weights) / SEQUENCES;
  }
  return HARK_OK;
}

/* Gradient descent of STEPS steps. For a linear network the risk's Hessian has no eigenvalue above 2 mean |grad f_i|^2, so steps of its
 * inverse cannot overshoot. */
static hark_status move(problem *p, const double *start, double *weights, double *gradient, double *change) {
  double loss, along[SEQUENCES], squares;
  const int64_t count = p->network.weights;
  HARK_TRY(derivative(p, start, start, gradient, along, &squares));
  memcpy(weights, start, (size_t)count * sizeof *weights);
  const double rate = 1 / (2 * squares);
  for (int step = 0; step < STEPS; step++) {
    HARK_TRY(risk(p, weights, &loss, gradient));
    for (int64_t i = 0; i < count; i++) weights[i] -= rate * gradient[i];
  }
  for (int64_t i = 0; i < count; i++) change[i] = weights[i] - start[i];
  return HARK_OK;
}

static hark_status measure_width(hark_lab *lab, hark_lab_table *table, int64_t width) {
  const int seeds = 2;
  double *start, *weights, *gradient, *change, along[SEQUENCES], first[SEQUENCES], squares;
  hark_lab_mean left = {0}, moved = {0};
  problem p;
  HARK_TRY(make_problem(lab, width, WIDE_LENGTH, &p));
  HARK_TRY(hark_lab_numbers(lab, p.network.weights, &start));
  HARK_TRY(hark_lab_numbers(lab, p.network.weights, &weights));
  HARK_TRY(hark_lab_numbers(lab, p.network.weights, &gradient));
  HARK_TRY(hark_lab_numbers(lab, p.network.weights, &change));
  for (int seed = 0; seed < seeds; seed++) {
    const uint32_t stream = (UINT32_C(1) << 16) + 8 * (uint32_t)seed;
    hark_lab_draw_latent_data(lab, stream, SEQUENCES, &p.data);
    hark_lab_normal(lab, stream + 4, p.network.weights, start);
    HARK_TRY(hark_lab_network_forward(lab->context, &p.network, &p.sequences, start));
    memcpy(first, p.network.f, sizeof first);
    HARK_TRY(move(&p, start, weights, gradient, change));
    HARK_TRY(derivative(&p, start, change, gradient, along, &squares));
    HARK_TRY(hark_lab_network_forward(lab->context, &p.network, &p.sequences, weights));
    for (int i = 0; i < SEQUENCES; i++) {
      hark_lab_mean_add(&left, fabs(p.network.f[i] - first[i] - along[i]));
      hark_lab_mean_add(&moved, fabs(p.network.f[i] - first[i]));
    }
  }
  const double row[WIDTH_COLUMNS] = {(double)width, left.mean, moved.mean, left.mean / moved.mean};
  return hark_lab_add_row(lab, table, row);
}

static hark_status draw(hark_lab *lab) {
  static const hark_lab_axes axes = {.title = "error of linearisation", .x = "width", .y = "mean", .log_x = true, .log_y = true};
  static const hark_lab_axes points = {.title = "stationary points: E_opt and its bound", .x = "restart", .y = ""};
  static const hark_lab_drawn drawn[] = {{LINEARISATION, HARK_LAB_POINTS, "residual"}, {MOVED, HARK_LAB_LINE, "f moved by"}};
  static const hark_lab_drawn sides[] = {{LOST, HARK_LAB_POINTS, "E_opt"}, {RIGHT_SIDE, HARK_LAB_POINTS, "right side"}};
  HARK_TRY(hark_lab_draw_columns(lab, &lab->tables[0], points, RESTART, sides, 2));
  return hark_lab_draw_columns(lab, &lab->tables[2], axes, WIDTH, drawn, 2);
}

static hark_status measure(hark_lab *lab) {
  hark_lab_table *table;
  HARK_TRY(measure_points(lab));
  HARK_TRY(measure_dead(lab));
  HARK_TRY(hark_lab_add_table(lab, "wide networks about their initial weights", width_columns, WIDTH_COLUMNS, &table));
  for (int64_t width = LEAST_WIDTH; width <= (lab->quick ? 128 : 1024); width *= 2) HARK_TRY(measure_width(lab, table, width));
  return draw(lab);
}

/* If all restarts ended at one point there would be nothing to bound: some E_opt must be at least 1e-6. None exceeds 1, the largest |y -
 * f|^2. Rounding: risks are of size .05 with errors of 1e-17, a ratio may be 1 + 1e-9 at most. With noise labels of +-1/2, least squares on
 * p features lowers the risk 1/4 by p / n of it: u alone, on the four features of any network that is not dead, by 4/64 of it, .016; the
 * best network lowers it more. */
static hark_status judge(hark_lab *lab) {
  double ratio = 0, lost = 0, dead = INFINITY, printed = 0, corrected = 0;
  hark_lab_line line = {0};
  for (int64_t i = 0; i < hark_lab_row_count(&lab->tables[0]); i++) {
    const double *const row = hark_lab_row(&lab->tables[0], i);
    ratio = hark_lab_larger(ratio, row[RATIO]);
    lost = hark_lab_larger(lost, row[LOST]);
  }
  for (int64_t i = 0; i < hark_lab_row_count(&lab->tables[1]); i++) {
    const double *const row = hark_lab_row(&lab->tables[1], i);
    dead = hark_lab_smaller(dead, row[DEAD_LOST]);
    printed = hark_lab_larger(printed, row[PRINTED]);
    corrected = hark_lab_larger(corrected, row[DEAD_LOST] / row[CORRECTED]);
  }
  for (int64_t i = 0; i < hark_lab_row_count(&lab->tables[2]); i++) {
    const double *const row = hark_lab_row(&lab->tables[2], i);
    hark_lab_line_add_power(&line, row[WIDTH], row[LINEARISATION]);
  }
  HARK_TRY(hark_lab_require(lab, ratio, 0, 1 + 1e-9, "E_opt / (2 residual(f~) + |grad| |theta - theta^|), largest"));
  HARK_TRY(hark_lab_require(lab, lost, 1e-6, 1, "E_opt, largest over the restarts: some E_opt is not 0"));
  HARK_TRY(hark_lab_require(lab, dead, 0.01, INFINITY, "dead ReLUs, noise as labels: E_opt, least"));
  HARK_TRY(hark_lab_require(lab, printed, 0, 1e-12, "dead ReLUs: right side as printed, with f*, largest (counterexample)"));
  HARK_TRY(hark_lab_require(lab, corrected, 0, 1 + 1e-9, "dead ReLUs: E_opt / right side with f~, largest"));
  return hark_lab_require(lab, hark_lab_line_fit(&line).slope, -INFINITY, 0, "slope of the error of linearisation in the width, log-log");
}

const hark_experiment hark_experiment_optimisation = {
    .summary = "the excess risk of a trained network is bounded by the distance of its linearisation from the empirical minimiser",
    .paper = HARK_LAB_PAPER_X "Proposition 5.6",
    .statement =
        "Let f^ be the network at which L-BFGS ends, and f~ the network with the least empirical risk. The empirical "
        "risk of f^ exceeds that of f~ by at most 2 E^ |f^ + grad f^.(theta - theta^) - f~| + |grad| |theta - theta^|. "
        "With f* in place of f~, as printed, this is false. If all ReLUs are dead and the labels are noise, the right "
        "side is zero but the left side is not. The error of linearisation about the initial weights falls with the "
        "width",
    .printed = "E_opt <= 2 min over theta of E^ |f^ + grad f^.(theta - theta^) - f*| (5.13)",
    .corrected = "f~, the empirical minimiser, in place of f* = E[y | X]",
    .notes =
        "    E_opt = E^ (y - f^)^2 - E^ (y - f~)^2 <= 2 E^ |f^ + grad f^.(theta - theta^) - f~| + |grad| |theta - "
        "theta^|\n"
        "\n"
        "There are 64 sequences of 8 tokens, and E^ is the mean over them. The networks are those of (5.1) with d = 4 "
        "and without bounds on the norms. The search for f^ ends at the weights theta^. The network f~ is the best of "
        "the restarts. A search is meant to end when the gradient has the norm 1e-7. But ReLU networks have minima on "
        "kinks, where L-BFGS may end with a larger gradient. The first table has the norm of the gradient at the end "
        "of each search. It also has the reason why the search ended: a gradient of norm 1e-7, a line search that "
        "found no lower point, or 2000 evaluations. The bound contains the norm of the gradient, so it also holds if "
        "theta^ is not stationary. The bound holds for any theta. A theta for which the right side of the bound is "
        "small is found by reweighted least squares. In the counterexample the tokens have positive entries, and the "
        "matrix A has negative entries. So every ReLU has the output zero, also with nearby weights. But other weights "
        "fit the labels -1/2 and 1/2.\n"
        "\n"
        "The residual is the mean E^ |f^ + grad f^.(theta - theta^) - f~| in the bound. In section 5.3 of the paper it "
        "is o(1), because wide networks are linear in their parameters. The last table compares such networks with "
        "their linearisation about the initial weights. All of A, W^q, W^k, W^v and u are trained, by eight steps of "
        "gradient descent from normal weights. The widths of queries and values are d_p = d_v = width. Features and "
        "output are divided by the square root of the width, and the output is not mapped into Y. The paper states no "
        "rate. A slope of -1/2 would be expected.\n"
        "\n"
        "*Figures.* The first figure has E_opt and its bound at every point. The second has the error of linearisation "
        "over the width.",
    .measure = measure,
    .judge = judge};
