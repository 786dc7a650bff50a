/* optimisation.c - the excess loss of a stationary point is at most the distance of its linearisation from the empirical minimiser.
 *
 *     E_opt = E^ (y - f^)^2 - E^ (y - f~)^2 <= 2 E^ |f^ + grad f^.(theta - theta^) - f~| + gap                 for every theta of Theta
 *     gap = max over theta of Theta of grad.(theta^ - theta)
 *
 * with f^ at theta^, f~ the empirical minimiser, grad that of the empirical risk at theta^. gap is never negative, and 0 exactly where
 * (5.12) holds. Theta: 2-norms of W^q, W^k, W^v at most 3, |u| <= 1, so that gap = grad.theta^ + 3 sum |grad_W|_* + |grad_u| (nuclear
 * norms). A is fixed: then the risk is smooth, and accelerated projected gradients end at a small gap; ReLU networks have minima on kinks,
 * where no search by gradients does.
 *
 * Before absolute values are taken, the right side 2 E^ (f^ - y)(f^ + grad f^.(theta - theta^) - f~) has the minimum over Theta
 *
 *     E_opt + E^ (f^ - f~)^2 - gap
 *
 * which is below E_opt at points that are not stationary: there the inequality fails without its second term. Derivation in
 * docs/mathematics/latent-variables.md. X 5.13 prints f* = E[y | X] instead of f~: a network whose ReLUs are dead has no gradient, and
 * labels that are noise have f* = 0, so the printed right side is zero although E_opt is not.
 *
 * The right side is made small by least squares with weights (G = J J', J the gradients of the f_i), and a projection onto Theta:
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
#include "lab/singular.h"
#include "lab/tables.h"

enum { DIM = 4, SEQUENCES = 64, LENGTH = 8, WIDE_LENGTH = 4, STEPS = 8 };
#define TOLERANCE 1e-7 /* of the gradient */
#define EVALUATIONS 2000
#define GAP_TOLERANCE 1e-6
enum { ZERO_NETWORK = -1 }; /* in place of a number of columns */
#define BOUND 3.            /* of the 2-norms */
#define QUICK_SEARCH 6000   /* evaluations */
#define FULL_SEARCH 40000
#define REWEIGHTINGS 12
#define LEAST_WIDTH 16

enum {
  RESTART,
  HEAD_COLUMNS,
  START_GAP,
  START_LOST,
  START_SHARP,
  EVALUATED,
  LOSS,
  STATIONARITY,
  LOST,
  SHARP,
  RESIDUAL,
  RIGHT_SIDE,
  STATIONARY_COLUMNS
};
static const hark_lab_column stationary_columns[STATIONARY_COLUMNS] = {{"restart", NULL, NULL},
                                                                       {"columns of W^q, W^k", "-1: f = 0", NULL},
                                                                       {"gap", "at the start", NULL},
                                                                       {"E_opt", "of the start", NULL},
                                                                       {"E_opt + E^ (f^ - f~)^2 - gap", "of the start", NULL},
                                                                       {"evaluations", NULL, NULL},
                                                                       {"empirical risk", "at the end", NULL},
                                                                       {"gap", "at the end", NULL},
                                                                       {"E_opt", NULL, NULL},
                                                                       {"E_opt + E^ (f^ - f~)^2", NULL, NULL},
                                                                       {"residual", "against f~", NULL},
                                                                       {"right side", NULL, NULL}};

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
  double *all, *slopes;       /* [weights], of the searches that leave A as it is */
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

/* ---- stationary points of Theta ---- */

/* The weights without A, which come first. */
static int64_t free_weights(const problem *p) { return p->network.weights - hark_lab_weight_place(&p->network, HARK_LAB_WQ).first; }

static hark_status free_risk(void *user, const double *weights, double *value, double *gradient) {
  problem *const p = user;
  const int64_t count = free_weights(p), fixed = p->network.weights - count;
  memcpy(p->all + fixed, weights, (size_t)count * sizeof *weights);
  HARK_TRY(risk(p, p->all, value, p->slopes));
  memcpy(gradient, p->slopes + fixed, (size_t)count * sizeof *gradient);
  return HARK_OK;
}

static void project_free(void *user, double *weights) {
  problem *const p = user;
  const int64_t count = free_weights(p), fixed = p->network.weights - count;
  double all[DIM * DIM * 4 + DIM];
  memcpy(all, p->all, (size_t)fixed * sizeof *all); /* A is projected too, but not used */
  memcpy(all + fixed, weights, (size_t)count * sizeof *weights);
  hark_lab_network_project(&p->network, BOUND, all);
  memcpy(weights, all + fixed, (size_t)count * sizeof *weights);
}

/* max over theta of Theta of grad.(theta^ - theta): over a ball of the 2-norm, -grad.theta is at most the radius times the nuclear norm. */
static double gap_of(void *user, const double *weights, const double *gradient) {
  const problem *const p = user;
  const int64_t fixed = p->network.weights - free_weights(p);
  double gap = hark_lab_dot(weights, gradient, p->network.weights - fixed), matrix[DIM * DIM], values[DIM];
  for (int w = HARK_LAB_WQ; w <= HARK_LAB_WV; w++) {
    memcpy(matrix, gradient + hark_lab_weight_place(&p->network, (hark_lab_weight)w).first - fixed, sizeof matrix);
    hark_singular_values(DIM, DIM, matrix, values);
    for (int i = 0; i < DIM; i++) gap += BOUND * values[i];
  }
  const double *const of_u = gradient + hark_lab_weight_place(&p->network, HARK_LAB_U).first - fixed;
  return gap + sqrt(hark_lab_dot(of_u, of_u, DIM));
}

/* Where a search began and where it ended. */
typedef struct search {
  double *x, *f, *start_f; /* [free], [n], [n] */
  double loss, gap, start_loss, start_gap;
  int evaluations, columns;
} search;

/* The least value found of 2 mean |f^ + J (theta - theta^) - target| over Theta; *residual is its mean. */
static double least_residual(problem *p, const search *at, const double *jacobian, const double *target, double *moved) {
  enum { N = SEQUENCES };
  const int64_t count = free_weights(p);
  double gram[N * N] = {0}, factor[N * N], a[N], left[N], least = 0, trace = 0;
  hark_lab_add_right_transposed(N, count, N, jacobian, jacobian, gram);
  for (int i = 0; i < N; i++) {
    least += fabs(target[i] - at->f[i]) / N; /* theta = theta^ */
    trace += gram[(ptrdiff_t)i * (N + 1)] / N;
  }
  double ridge = 1e-12;
  for (int power = 0; power <= 5; power++) { /* ridges from 1e-10 to 1 */
    ridge *= 100;
    for (int i = 0; i < N; i++) left[i] = 1;
    for (int round = 0; round < REWEIGHTINGS; round++) {
      double sum = 0;
      memcpy(factor, gram, sizeof factor);
      for (int i = 0; i < N; i++) {
        factor[(ptrdiff_t)i * (N + 1)] += ridge * trace * hark_larger(fabs(left[i]), 1e-8);
        a[i] = target[i] - at->f[i];
      }
      if (!hark_lab_cholesky(N, factor)) break;
      hark_lab_cholesky_solve(N, factor, 1, a);
      memcpy(moved, at->x, (size_t)count * sizeof *moved);
      hark_lab_add_left_transposed(count, N, 1, jacobian, a, moved);
      project_free(p, moved);
      for (int64_t j = 0; j < count; j++) moved[j] -= at->x[j];
      for (int i = 0; i < N; i++) {
        left[i] = target[i] - at->f[i] - hark_lab_dot(jacobian + i * count, moved, count);
        sum += fabs(left[i]) / N;
      }
      least = hark_smaller(least, sum);
    }
  }
  return least;
}

/* Random weights, of which all but the first `columns` columns of W^q and W^k are 0. A step keeps these at 0: the derivative of a score
 * |q - k|^2 by a column is a multiple of that column of q - k. So the searches end at the minima of narrower networks, which are stationary
 * points of Theta. ZERO_NETWORK: W^v and u are 0, and so are all derivatives. */
static void draw_start(problem *p, uint32_t stream, int columns, int64_t count, double *x) {
  const int64_t fixed = p->network.weights - count;
  hark_lab_normal(p->lab, stream, count, x);
  for (int w = HARK_LAB_WQ; w <= HARK_LAB_U; w++) {
    const hark_lab_place place = hark_lab_weight_place(&p->network, (hark_lab_weight)w);
    double *const matrix = x + place.first - fixed;
    for (int64_t i = 0; i < place.rows * place.columns; i++)
      if (columns == ZERO_NETWORK ? w >= HARK_LAB_WV : w <= HARK_LAB_WK && i % place.columns >= columns) matrix[i] = 0;
  }
  project_free(p, x);
}

static hark_status search_from(problem *p, uint32_t stream, int columns, int evaluations, hark_lab_descent *descent, search *out) {
  const hark_lab_objective objective = {.dims = descent->dims, .evaluate = free_risk, .project = project_free, .gap = gap_of, .user = p};
  HARK_TRY(hark_lab_numbers(p->lab, descent->dims, &out->x));
  HARK_TRY(hark_lab_numbers(p->lab, SEQUENCES, &out->f));
  HARK_TRY(hark_lab_numbers(p->lab, SEQUENCES, &out->start_f));
  draw_start(p, stream, columns, descent->dims, descent->x);
  out->columns = columns;
  HARK_TRY(free_risk(p, descent->x, &out->start_loss, descent->gradient));
  out->start_gap = gap_of(p, descent->x, descent->gradient);
  memcpy(out->start_f, p->network.f, SEQUENCES * sizeof *out->start_f);
  HARK_TRY(hark_lab_project_gradients(&objective, evaluations, GAP_TOLERANCE, descent));
  memcpy(out->x, descent->x, (size_t)descent->dims * sizeof *out->x);
  HARK_TRY(free_risk(p, out->x, &out->loss, descent->gradient));
  out->gap = gap_of(p, out->x, descent->gradient);
  out->evaluations = descent->evaluations;
  memcpy(out->f, p->network.f, SEQUENCES * sizeof *out->f);
  return HARK_OK;
}

static double mean_square(const double *a, const double *b) {
  double sum = 0;
  for (int i = 0; i < SEQUENCES; i++) sum += (a[i] - b[i]) * (a[i] - b[i]) / SEQUENCES;
  return sum;
}

enum { MOST_RESTARTS = 20 };

static hark_status fill_stationary_row(problem *p, const search *at, const search *best, double *jacobian, double *moved, double *row) {
  const int64_t count = free_weights(p), fixed = p->network.weights - count;
  memcpy(p->all + fixed, at->x, (size_t)count * sizeof *at->x);
  for (int64_t i = 0; i < SEQUENCES; i++) {
    HARK_TRY(gradient_of(p, i, p->all, p->slopes));
    memcpy(jacobian + i * count, p->slopes + fixed, (size_t)count * sizeof *jacobian);
  }
  row[HEAD_COLUMNS] = at->columns;
  row[START_GAP] = at->start_gap;
  row[START_LOST] = at->start_loss - best->loss;
  row[START_SHARP] = row[START_LOST] + mean_square(at->start_f, best->f) - at->start_gap;
  row[EVALUATED] = at->evaluations;
  row[LOSS] = at->loss;
  row[STATIONARITY] = at->gap;
  row[LOST] = at->loss - best->loss;
  row[SHARP] = row[LOST] + mean_square(at->f, best->f);
  row[RESIDUAL] = least_residual(p, at, jacobian, best->f, moved);
  row[RIGHT_SIDE] = 2 * row[RESIDUAL] + at->gap;
  return HARK_OK;
}

static hark_status measure_points(hark_lab *lab) {
  const int restarts = lab->quick ? DIM + 2 : MOST_RESTARTS, evaluations = lab->quick ? QUICK_SEARCH : FULL_SEARCH;
  search searches[MOST_RESTARTS];
  int best = 0;
  problem p;
  hark_lab_descent descent;
  hark_lab_table *table;
  double *jacobian, *moved;
  HARK_TRY(hark_lab_add_table(lab, "searches from random weights, and where they end", stationary_columns, STATIONARY_COLUMNS, &table));
  HARK_TRY(make_problem(lab, DIM, LENGTH, &p));
  hark_lab_draw_latent_data(lab, 0, SEQUENCES, &p.data);
  HARK_TRY(hark_lab_draw_normal(lab, 8, p.network.weights, 1, &p.all));
  HARK_TRY(hark_lab_numbers(lab, p.network.weights, &p.slopes));
  HARK_TRY(hark_lab_make_descent(lab, free_weights(&p), 1, &descent));
  HARK_TRY(hark_lab_numbers(lab, SEQUENCES * descent.dims, &jacobian));
  HARK_TRY(hark_lab_numbers(lab, descent.dims, &moved));
  for (int r = 0; r < restarts; r++) {
    HARK_TRY(search_from(&p, 16 + (uint32_t)r, DIM - r % (DIM + 2), evaluations, &descent, &searches[r]));
    if (searches[r].loss < searches[best].loss) best = r;
  }
  for (int r = 0; r < restarts; r++) {
    double row[STATIONARY_COLUMNS] = {[RESTART] = r};
    HARK_TRY(fill_stationary_row(&p, &searches[r], &searches[best], jacobian, moved, row));
    HARK_TRY(hark_lab_add_row(lab, table, row));
  }
  return HARK_OK;
}

/* ---- dead ReLUs: searches over all weights, without bounds ---- */

/* A point theta^: f^ there, G = J J', and the gradient of the risk. */
typedef struct point {
  double *f, *gram; /* [n], [n, n] */
  double loss, norm;
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
    if (points[r].loss < points[*best].loss) *best = r;
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
  static const hark_lab_axes points = {
      .title = "stationary points of the constrained class: E_opt and its bounds", .x = "restart", .y = ""};
  static const hark_lab_drawn drawn[] = {{LINEARISATION, HARK_LAB_POINTS, "residual"}, {MOVED, HARK_LAB_LINE, "f moved by"}};
  static const hark_lab_drawn sides[] = {
      {LOST, HARK_LAB_POINTS, "E_opt"}, {SHARP, HARK_LAB_POINTS, "E_opt + E^ (f^ - f~)^2"}, {RIGHT_SIDE, HARK_LAB_POINTS, "right side"}};
  HARK_TRY(hark_lab_draw_columns(lab, &lab->tables[0], points, RESTART, sides, 3));
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
 * f|^2. Rounding: risks are of size .05 with errors of 1e-17, a ratio may be 1 + 1e-9 at most. A search that ends with a gap of 1e-6 bounds
 * E_opt to that. The starts are random, and far from stationary: the inequality without the gap must fail there, by more than the gaps at
 * the ends. With noise labels of +-1/2, least squares on p features lowers the risk 1/4 by p / n of it: u alone, on the four features of
 * any network that is not dead, by 4/64 of it, .016; the best network lowers it more. */
static hark_status judge(hark_lab *lab) {
  double right = 0, sharp = 0, gap = 0, lost = 0, missed = INFINITY, dead = INFINITY, printed = 0, corrected = 0;
  hark_lab_line line = {0};
  for (int64_t i = 0; i < hark_lab_row_count(&lab->tables[0]); i++) {
    const double *const row = hark_lab_row(&lab->tables[0], i);
    right = hark_lab_larger(right, row[LOST] / hark_lab_larger(row[RIGHT_SIDE], GAP_TOLERANCE));
    sharp = hark_lab_larger(sharp, row[LOST] / hark_lab_larger(row[SHARP], GAP_TOLERANCE));
    gap = hark_lab_larger(gap, row[STATIONARITY]);
    lost = hark_lab_larger(lost, row[LOST]);
    if (row[HEAD_COLUMNS] != ZERO_NETWORK) missed = hark_lab_smaller(missed, row[START_LOST] - row[START_SHARP]);
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
  HARK_TRY(hark_lab_require(lab, gap, 0, GAP_TOLERANCE, "gap of (5.12) where the searches end, largest"));
  HARK_TRY(hark_lab_require(lab, right, 0, 1 + 1e-9, "E_opt / (2 residual(f~) + gap), largest"));
  HARK_TRY(hark_lab_require(lab, sharp, 0, 1 + 1e-9, "E_opt / (E_opt + E^ (f^ - f~)^2), largest"));
  HARK_TRY(
      hark_lab_require(lab, missed, 0.01, INFINITY, "starts, not stationary: E_opt - (right side without absolute values and gap), least"));
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
        "Let f^ be a network at a stationary point of a class Theta with bounded norms, in the sense of (5.12), and f~ "
        "the network of the class with the least empirical risk. The empirical risk of f^ exceeds that of f~ by at most "
        "2 E^ |f^ + grad f^.(theta - theta^) - f~| for every theta of the class. At points that are not stationary, the "
        "inequality that leads to this bound fails. With f* in place of f~, as printed, the bound is false. If all "
        "ReLUs are dead and the labels are noise, the right side is zero but the left side is not. The error of "
        "linearisation about the initial weights falls with the width",
    .printed = "E_opt <= 2 min over theta of E^ |f^ + grad f^.(theta - theta^) - f*| (5.13)",
    .corrected = "f~, the minimiser of the empirical risk in the class, in place of f* = E[y | X]",
    .notes =
        "    E_opt = E^ (y - f^)^2 - E^ (y - f~)^2 <= 2 E^ |f^ + grad f^.(theta - theta^) - f~| + gap,      gap = max "
        "over Theta of grad.(theta^ - theta)\n"
        "    min over Theta of 2 E^ (f^ - y)(f^ + grad f^.(theta - theta^) - f~) = E_opt + E^ (f^ - f~)^2 - gap\n"
        "\n"
        "There are 64 sequences of 8 tokens, and E^ is the mean over them. The networks are those of (5.1) with d = 4. "
        "In Theta, the 2-norms of W^q, W^k and W^v are at most 3, and u has a length of at most 1. The gap is never "
        "negative, and zero exactly where (5.12) holds. Over these balls it is grad.theta^ + 3 times the nuclear norms "
        "of the gradients of the three matrices + the length of the gradient of u. So the table has a number that says "
        "how far from stationary a point is. The matrix A is random and fixed. A network in which A is trained has "
        "minima on kinks of the ReLUs, where no search by gradients ends at a small gap. Without A the risk is smooth. "
        "Accelerated projected gradients then end at a gap of 1e-6.\n"
        "\n"
        "A search from random weights finds the same minimum every time. Other stationary points are the minima of "
        "narrower networks: if some columns of W^q and W^k are zero at the start, their derivatives are zero too. The "
        "table has searches with 4 to 0 such columns left, and the network f = 0, which is stationary with W^v = 0 and "
        "u = 0. The network f~ is the best of the restarts. The bound holds for any theta of the class. One with a "
        "small right side is found by reweighted least squares and a projection onto Theta.\n"
        "\n"
        "Most of the bound's right side comes from the absolute values. Without them the right side has the minimum in "
        "the second formula. At a stationary point this minimum is E_opt + E^ (f^ - f~)^2, which is hardly more than "
        "E_opt. At the starts, where the gap is large, it is less than E_opt, so the inequality fails there.\n"
        "\n"
        "In the counterexample A is trained too, without bounds on the norms, by L-BFGS. The tokens have positive "
        "entries, and the matrix A has negative entries. So every ReLU has the output zero, also with nearby weights. "
        "But other weights fit the labels -1/2 and 1/2. There f~ is the best point that was found, which makes E_opt "
        "too small rather than too large.\n"
        "\n"
        "*What was changed.* An earlier version trained A too, without bounds on the norms. Its searches ended after "
        "2000 evaluations at gradients of .0002 to .06, not at stationary points.\n"
        "\n"
        "The residual is the mean E^ |f^ + grad f^.(theta - theta^) - f~| in the bound. In section 5.3 of the paper it "
        "is o(1), because wide networks are linear in their parameters. The last table compares such networks with "
        "their linearisation about the initial weights. All of A, W^q, W^k, W^v and u are trained, by eight steps of "
        "gradient descent from normal weights. The widths of queries and values are d_p = d_v = width. Features and "
        "output are divided by the square root of the width, and the output is not mapped into Y. The paper states no "
        "rate. A slope of -1/2 would be expected.\n"
        "\n"
        "*Figures.* The first figure has E_opt and its bounds at every point. The second has the error of linearisation "
        "over the width.",
    .measure = measure,
    .judge = judge};
