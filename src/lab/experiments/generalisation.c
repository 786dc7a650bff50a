/* generalisation.c - how much a class of attention networks can follow noise, over the number of sequences and over their length.
 *
 *     R_n = E sup over f of (1/n) sum_i s_i f(X_i),  s_i = -1 or 1 evenly          (Rademacher complexity; Theorem 5.3 bounds E_gen by it)
 *     gap = E (y - f^)^2 - (1/n) sum_i (y_i - f^(X_i))^2,   f^ the empirical minimiser
 *
 * over the networks of X 5.1 (latent_network.h), d = m = d_p = d_v = 4, norms of all matrices at most 3, sigma^2 = d_p. The theorem has
 * n^-1/2 and no L. Adam searches for the supremum with every step projected onto the norms; the supremum and f^ are the results of such
 * searches. y as in latent_data.h, whose noise is known, so the loss on new sequences is computed from E[y | z].
 *
 * For comparison, a class whose complexity and gap do depend on L: f = w.(x_1, .., x_L) with |w| <= 1, a weight for every number of the
 * sequence in place of attention. Its complexity is E |sum_i s_i X_i| / n, of order sqrt(L / n), and its minimiser is found as the others.
 *
 * Assumption C.2, that the aggregation moves by no more than the largest row does, is measured for a sum, a mean and a class query.
 * Source: X Theorems 5.3 and C.4.
 */
#include <string.h>

#include "lab/descent.h"
#include "lab/fit.h"
#include "lab/latent_data.h"
#include "lab/latent_network.h"
#include "lab/matrix.h"
#include "lab/tables.h"

enum { DIM = 4 };
#define BOUND 3. /* of the 2-norms */
#define INITIAL 0.7
#define FIXED_COUNT 64 /* n while L varies */
#define LEAST_COUNT 32
#define LEAST_LENGTH 4
#define NEW_SEQUENCES 2048 /* for the loss on new ones */
#define SHIFT 1e-3         /* of rows, for the aggregations */

enum { SWEEP, COUNT, LENGTH, COMPLEXITY, COMPLEXITY_ERROR, TRAIN, NEW, GAP, GAP_ERROR, COLUMNS };
static const hark_lab_column columns[COLUMNS] = {
    {"over", NULL, "n|L"},          {"n", "sequences", NULL},     {"L", "tokens", NULL}, {"complexity", "R_n", NULL},
    {"standard error", NULL, NULL}, {"loss", "trained on", NULL}, {"loss", "new", NULL}, {"gap", NULL, NULL},
    {"standard error", NULL, NULL}};
enum { OVER_COUNT, OVER_LENGTH };

enum { ROWS, OF_SUM, OF_MEAN, OF_QUERY, AGGREGATION_COLUMNS };
static const hark_lab_column aggregation_columns[AGGREGATION_COLUMNS] = {
    {"L", "tokens", NULL}, {"sum", "largest ratio", NULL}, {"mean", "largest ratio", NULL}, {"class query", "largest ratio", NULL}};

enum { CONTROL_LENGTH, CONTROL_COMPLEXITY, CONTROL_ERROR, CONTROL_TRAIN, CONTROL_NEW, CONTROL_GAP, CONTROL_GAP_ERROR, CONTROL_COLUMNS };
static const hark_lab_column control_columns[CONTROL_COLUMNS] = {
    {"L", "tokens", NULL}, {"complexity", "R_n", NULL}, {"standard error", NULL, NULL}, {"loss", "trained on", NULL},
    {"loss", "new", NULL}, {"gap", NULL, NULL},         {"standard error", NULL, NULL}};
#define CONTROL_STREAM (UINT32_C(1) << 24)
#define CONTROL_RATE 0.02

typedef struct sizes {
  int64_t most_count, most_length, length; /* of the sweeps; L while n varies */
  int draws, restarts, steps, sets, fitting_steps;
} sizes;
static const sizes quick_sizes = {256, 64, 8, 8, 1, 60, 6, 80}, full_sizes = {512, 256, 16, 24, 2, 120, 24, 160};
#define RATE 0.1

/* One n and one L. */
typedef struct problem {
  hark_lab *lab;
  hark_lab_network network;
  hark_lab_latent_data data;
  hark_lab_sequences sequences;
  hark_lab_descent descent;
  double mask[DIM], *signs, *scratch; /* [n] */
  uint32_t stream;                    /* the next one */
} problem;

/* -(1/n) sum s_i f(X_i) */
static hark_status follow_signs(void *user, const double *weights, double *value, double *gradient) {
  problem *const p = user;
  const double n = (double)p->sequences.count;
  HARK_TRY(hark_lab_network_forward(p->lab->context, &p->network, &p->sequences, weights));
  *value = -hark_lab_dot(p->signs, p->network.f, p->sequences.count) / n;
  for (int64_t i = 0; i < p->sequences.count; i++) p->scratch[i] = -p->signs[i] / n;
  return hark_lab_network_backward(p->lab->context, &p->network, &p->sequences, weights, p->scratch, gradient);
}

static hark_status fit_labels(void *user, const double *weights, double *value, double *gradient) {
  problem *const p = user;
  return hark_lab_network_loss(p->lab->context, &p->network, &p->sequences, p->data.y, weights, p->scratch, value, gradient);
}

static void project(void *user, double *weights) {
  const problem *const p = user;
  hark_lab_network_project(&p->network, BOUND, weights);
}

static hark_status make_problem(hark_lab *lab, int64_t n, int64_t length, uint32_t stream, problem *p) {
  *p = (problem){.lab = lab, .stream = stream};
  p->network = (hark_lab_network){.dim = DIM,
                                  .width = DIM,
                                  .head_dim = DIM,
                                  .value_dim = DIM,
                                  .length = length,
                                  .most = n,
                                  .variance = DIM,
                                  .feature_scale = 1,
                                  .output_scale = 1};
  p->data = (hark_lab_latent_data){.count = n, .length = length, .dim = DIM};
  for (int c = 0; c < DIM; c++) p->mask[c] = 1 / sqrt(DIM);
  HARK_TRY(hark_lab_make_network(lab, &p->network));
  HARK_TRY(hark_lab_make_latent_data(lab, &p->data));
  HARK_TRY(hark_lab_make_descent(lab, p->network.weights, HARK_LAB_PAIRS, &p->descent));
  HARK_TRY(hark_lab_numbers(lab, n, &p->signs));
  HARK_TRY(hark_lab_numbers(lab, n, &p->scratch));
  p->sequences = (hark_lab_sequences){.count = n, .tokens = p->data.tokens, .masks = p->mask, .one_mask = true};
  return HARK_OK;
}

static void draw_weights(problem *p) {
  hark_lab_normal(p->lab, p->stream++, p->network.weights, p->descent.x);
  for (int64_t i = 0; i < p->network.weights; i++) p->descent.x[i] *= INITIAL;
}

static void draw_data(problem *p) {
  hark_lab_draw_latent_data(p->lab, p->stream, p->sequences.count, &p->data);
  p->stream += 3;
}

static hark_status measure_complexity(problem *p, const sizes *s, hark_lab_mean *complexity) {
  const hark_lab_objective objective = {.dims = p->network.weights, .evaluate = follow_signs, .project = project, .user = p};
  const hark_lab_adam how = {.steps = s->steps, .rate = RATE};
  for (int draw = 0; draw < s->draws; draw++) {
    double best = 0; /* f = 0 is one of them */
    draw_data(p);
    hark_lab_uniform(p->lab, p->stream++, p->sequences.count, p->signs);
    for (int64_t i = 0; i < p->sequences.count; i++) p->signs[i] = p->signs[i] < 0.5 ? -1 : 1;
    for (int restart = 0; restart < s->restarts; restart++) {
      draw_weights(p);
      HARK_TRY(hark_lab_descend(p->lab, &objective, how, &p->descent));
      best = hark_larger(best, -p->descent.value);
    }
    hark_lab_mean_add(complexity, best);
  }
  return HARK_OK;
}

/* The loss on new sequences, n at a time. */
static hark_status loss_on_new(problem *p, double *out) {
  hark_lab_mean squares = {0};
  while (squares.count < NEW_SEQUENCES) {
    draw_data(p);
    HARK_TRY(hark_lab_network_forward(p->lab->context, &p->network, &p->sequences, p->descent.x));
    for (int64_t i = 0; i < p->sequences.count; i++)
      hark_lab_mean_add(&squares, (p->network.f[i] - p->data.means[i]) * (p->network.f[i] - p->data.means[i]));
  }
  *out = HARK_LAB_LABEL_NOISE + squares.mean;
  return HARK_OK;
}

static hark_status measure_gap(problem *p, const sizes *s, double *row) {
  const hark_lab_objective objective = {.dims = p->network.weights, .evaluate = fit_labels, .project = project, .user = p};
  const hark_lab_adam how = {.steps = s->fitting_steps, .rate = RATE};
  hark_lab_mean train = {0}, new = {0}, gap = {0};
  for (int set = 0; set < s->sets; set++) {
    double loss;
    draw_data(p);
    draw_weights(p);
    HARK_TRY(hark_lab_descend(p->lab, &objective, how, &p->descent));
    HARK_TRY(loss_on_new(p, &loss));
    hark_lab_mean_add(&train, p->descent.value);
    hark_lab_mean_add(&new, loss);
    hark_lab_mean_add(&gap, loss - p->descent.value);
  }
  row[TRAIN] = train.mean;
  row[NEW] = new.mean;
  row[GAP] = gap.mean;
  row[GAP_ERROR] = hark_lab_mean_error(&gap);
  return HARK_OK;
}

static hark_status measure_point(hark_lab *lab, hark_lab_table *table, int sweep, int64_t n, int64_t length, uint32_t number) {
  const sizes *const s = lab->quick ? &quick_sizes : &full_sizes;
  double row[COLUMNS] = {[SWEEP] = sweep, [COUNT] = (double)n, [LENGTH] = (double)length};
  hark_lab_mean complexity = {0};
  problem p;
  HARK_TRY(make_problem(lab, n, length, number << 16, &p));
  HARK_TRY(measure_complexity(&p, s, &complexity));
  row[COMPLEXITY] = complexity.mean;
  row[COMPLEXITY_ERROR] = hark_lab_mean_error(&complexity);
  HARK_TRY(measure_gap(&p, s, row));
  return hark_lab_add_row(lab, table, row);
}

/* ---- a weight for every number of the sequence ---- */

typedef struct control {
  hark_lab *lab;
  hark_lab_latent_data data, new;
  hark_lab_descent descent;
  int64_t dims; /* L d */
  double *left; /* [n] */
} control;

/* Mean square of y - X w, and its gradient. */
static hark_status fit_flat(void *user, const double *w, double *value, double *gradient) {
  control *const c = user;
  const int64_t n = c->data.count;
  memset(gradient, 0, (size_t)c->dims * sizeof *gradient);
  *value = 0;
  for (int64_t i = 0; i < n; i++) {
    const double *const x = c->data.tokens + i * c->dims;
    c->left[i] = hark_lab_dot(w, x, c->dims) - c->data.y[i];
    *value += c->left[i] * c->left[i] / (double)n;
    for (int64_t j = 0; j < c->dims; j++) gradient[j] += 2 * c->left[i] * x[j] / (double)n;
  }
  return HARK_OK;
}

static void project_flat(void *user, double *w) {
  const control *const c = user;
  const double norm = sqrt(hark_lab_dot(w, w, c->dims));
  for (int64_t j = 0; norm > 1 && j < c->dims; j++) w[j] /= norm;
}

/* The supremum over |w| <= 1 of (1/n) sum s_i w.X_i is |sum s_i X_i| / n. */
static double flat_complexity(control *c, uint32_t stream) {
  hark_lab_uniform(c->lab, stream, c->data.count, c->left);
  for (int64_t j = 0; j < c->dims; j++) c->descent.gradient[j] = 0;
  for (int64_t i = 0; i < c->data.count; i++)
    for (int64_t j = 0; j < c->dims; j++) c->descent.gradient[j] += (c->left[i] < 0.5 ? -1 : 1) * c->data.tokens[i * c->dims + j];
  return sqrt(hark_lab_dot(c->descent.gradient, c->descent.gradient, c->dims)) / (double)c->data.count;
}

static double flat_loss_on_new(control *c, uint32_t stream) {
  hark_lab_mean squares = {0};
  hark_lab_draw_latent_data(c->lab, stream, c->new.count, &c->new);
  for (int64_t i = 0; i < c->new.count; i++)
    hark_lab_mean_add(&squares, pow(hark_lab_dot(c->descent.x, c->new.tokens + i * c->dims, c->dims) - c->new.means[i], 2));
  return HARK_LAB_LABEL_NOISE + squares.mean;
}

static hark_status measure_flat_length(hark_lab *lab, hark_lab_table *table, int64_t length, uint32_t stream) {
  const sizes *const s = lab->quick ? &quick_sizes : &full_sizes;
  control c = {.lab = lab, .dims = length * DIM};
  const hark_lab_objective objective = {.dims = c.dims, .evaluate = fit_flat, .project = project_flat, .user = &c};
  const hark_lab_adam how = {.steps = s->fitting_steps, .rate = CONTROL_RATE};
  hark_lab_mean complexity = {0}, train = {0}, new = {0}, gap = {0};
  c.data = (hark_lab_latent_data){.count = FIXED_COUNT, .length = length, .dim = DIM};
  c.new = (hark_lab_latent_data){.count = NEW_SEQUENCES / 4, .length = length, .dim = DIM};
  HARK_TRY(hark_lab_make_latent_data(lab, &c.data));
  HARK_TRY(hark_lab_make_latent_data(lab, &c.new));
  HARK_TRY(hark_lab_make_descent(lab, c.dims, 1, &c.descent));
  HARK_TRY(hark_lab_numbers(lab, FIXED_COUNT, &c.left));
  for (int set = 0; set < s->sets; set++, stream += 7) {
    hark_lab_draw_latent_data(lab, stream, FIXED_COUNT, &c.data);
    hark_lab_mean_add(&complexity, flat_complexity(&c, stream + 3));
    memset(c.descent.x, 0, (size_t)c.dims * sizeof *c.descent.x);
    HARK_TRY(hark_lab_descend(lab, &objective, how, &c.descent));
    const double loss = flat_loss_on_new(&c, stream + 4);
    hark_lab_mean_add(&train, c.descent.value);
    hark_lab_mean_add(&new, loss);
    hark_lab_mean_add(&gap, loss - c.descent.value);
  }
  const double row[CONTROL_COLUMNS] = {(double)length, complexity.mean, hark_lab_mean_error(&complexity), train.mean,
                                       new.mean,       gap.mean,        hark_lab_mean_error(&gap)};
  return hark_lab_add_row(lab, table, row);
}

static hark_status measure_flat(hark_lab *lab) {
  uint32_t stream = CONTROL_STREAM;
  hark_lab_table *table;
  HARK_TRY(hark_lab_add_table(lab, "a weight for every number of the sequence, 64 sequences", control_columns, CONTROL_COLUMNS, &table));
  for (int64_t length = LEAST_LENGTH; length <= (lab->quick ? quick_sizes : full_sizes).most_length; length *= 4, stream += 1024)
    HARK_TRY(measure_flat_length(lab, table, length, stream));
  return HARK_OK;
}

/* ---- aggregations ---- */

/* |agg(X + D) - agg(X)| over the largest row of D; the class query is attention with one query, whose keys and values are the rows. */
static hark_status move_rows(hark_lab *lab, int64_t length, const double *x, const double *moved, double *row) {
  static const double query[DIM] = {0.5, 0.5, 0.5, 0.5};
  double sums[2][DIM] = {{0}}, outs[2][DIM], largest = 0;
  const double *const all[] = {x, moved};
  hark_attention_desc choice = hark_attention_desc_default();
  choice.kernel = HARK_KERNEL_RBF;
  choice.sigma = sqrt(DIM);
  for (int side = 0; side < 2; side++) {
    const hark_lab_head head = {
        .length = length, .head_dim = DIM, .value_dim = DIM, .query = query, .key = all[side], .value = all[side], .queries = 1};
    HARK_TRY(hark_lab_attend(lab->context, &choice, &head, outs[side]));
    for (int64_t l = 0; l < length; l++)
      for (int c = 0; c < DIM; c++) sums[side][c] += all[side][l * DIM + c];
  }
  double of_sum = 0, of_query = 0;
  for (int c = 0; c < DIM; c++) {
    of_sum += (sums[1][c] - sums[0][c]) * (sums[1][c] - sums[0][c]);
    of_query += (outs[1][c] - outs[0][c]) * (outs[1][c] - outs[0][c]);
  }
  for (int64_t l = 0; l < length; l++) {
    double norm = 0;
    for (int c = 0; c < DIM; c++) norm += (moved[l * DIM + c] - x[l * DIM + c]) * (moved[l * DIM + c] - x[l * DIM + c]);
    largest = hark_larger(largest, sqrt(norm));
  }
  row[OF_SUM] = hark_larger(row[OF_SUM], sqrt(of_sum) / largest);
  row[OF_MEAN] = hark_larger(row[OF_MEAN], sqrt(of_sum) / largest / (double)length);
  row[OF_QUERY] = hark_larger(row[OF_QUERY], sqrt(of_query) / largest);
  return HARK_OK;
}

/* All rows moved equally, and every row moved separately. */
static hark_status measure_aggregations(hark_lab *lab) {
  enum { TRIES = 10 };
  hark_lab_table *table;
  HARK_TRY(hark_lab_add_table(lab, "how far aggregations move when their rows move", aggregation_columns, AGGREGATION_COLUMNS, &table));
  for (int64_t length = LEAST_LENGTH; length <= 256; length *= 4) {
    double row[AGGREGATION_COLUMNS] = {[ROWS] = (double)length}, *moved, *change;
    hark_lab_latent_data data = {.count = 1, .length = length, .dim = DIM};
    HARK_TRY(hark_lab_make_latent_data(lab, &data));
    HARK_TRY(hark_lab_numbers(lab, length * DIM, &moved));
    HARK_TRY(hark_lab_numbers(lab, length * DIM, &change));
    for (int i = 0; i < 2 * TRIES; i++) {
      const uint32_t stream = (UINT32_C(1) << 22) + (uint32_t)(length * 256 + (int64_t)8 * i);
      hark_lab_draw_latent_data(lab, stream, 1, &data);
      hark_lab_normal(lab, stream + 4, length * DIM, change);
      for (int64_t j = 0; j < length * DIM; j++) moved[j] = data.tokens[j] + SHIFT * change[i % 2 == 0 ? j % DIM : j];
      HARK_TRY(move_rows(lab, length, data.tokens, moved, row));
    }
    HARK_TRY(hark_lab_add_row(lab, table, row));
  }
  return HARK_OK;
}

/* Points with the columns `drawn` of one sweep, and the power of the theorem, through the first point. */
static hark_status draw(hark_lab *lab, int sweep, hark_lab_axes axes, double power) {
  static const int drawn[] = {COMPLEXITY, GAP};
  static const char *const names[] = {"complexity", "gap"};
  hark_lab_panel *panel;
  hark_lab_curve *curve, *expected;
  const int x = sweep == OVER_COUNT ? COUNT : LENGTH;
  HARK_TRY(hark_lab_add_panel(lab, axes, &panel));
  for (int i = 0; i < 2; i++) {
    double first[2] = {0};
    HARK_TRY(hark_lab_add_curve(lab, panel, HARK_LAB_POINTS, &curve, "%s", names[i]));
    HARK_TRY(hark_lab_add_curve(lab, panel, HARK_LAB_DASHES, &expected, "%s, %s", names[i],
                                sweep == OVER_COUNT ? "like n^-1/2" : "if constant"));
    for (int64_t r = 0; r < hark_lab_row_count(&lab->tables[0]); r++) {
      const double *const row = hark_lab_row(&lab->tables[0], r);
      if (row[SWEEP] != sweep || !(row[drawn[i]] > 0)) continue;
      if (first[0] == 0) {
        first[0] = row[x];
        first[1] = row[drawn[i]];
      }
      HARK_TRY(hark_lab_add_point(curve, row[x], row[drawn[i]]));
      HARK_TRY(hark_lab_add_point(expected, row[x], first[1] * pow(row[x] / first[0], power)));
    }
  }
  return HARK_OK;
}

static hark_status measure(hark_lab *lab) {
  static const hark_lab_axes over_count = {
      .title = "complexity and gap over the number of sequences", .x = "n", .y = "", .log_x = true, .log_y = true};
  static const hark_lab_axes over_length = {.title = "complexity and gap over the length", .x = "L", .y = "", .log_x = true, .log_y = true};
  const sizes *const s = lab->quick ? &quick_sizes : &full_sizes;
  hark_lab_table *table;
  uint32_t number = 0;
  HARK_TRY(hark_lab_add_table(lab, "complexity and gap of attention networks with norms of at most 3", columns, COLUMNS, &table));
  for (int64_t n = LEAST_COUNT; n <= s->most_count; n *= 2) HARK_TRY(measure_point(lab, table, OVER_COUNT, n, s->length, number++));
  for (int64_t length = LEAST_LENGTH; length <= s->most_length; length *= 4)
    HARK_TRY(measure_point(lab, table, OVER_LENGTH, FIXED_COUNT, length, number++));
  HARK_TRY(measure_aggregations(lab));
  HARK_TRY(measure_flat(lab));
  HARK_TRY(draw(lab, OVER_COUNT, over_count, -0.5));
  return draw(lab, OVER_LENGTH, over_length, 0);
}

static double slope_of(const hark_lab_table *table, int sweep, int column) {
  hark_lab_line line = {0};
  for (int64_t i = 0; i < hark_lab_row_count(table); i++) {
    const double *const row = hark_lab_row(table, i);
    if (row[SWEEP] == sweep) hark_lab_line_add_power(&line, row[sweep == OVER_COUNT ? COUNT : LENGTH], row[column]);
  }
  return hark_lab_line_fit(&line).slope;
}

/* The control. E |sum_i s_i X_i|^2 is n times the sum of the mean squares, which is of order L: the slope of its root is 1/2. |sum s_i X_i|
 * has about d free directions and a relative deviation of .35, its mean over 24 sets .07 (quick, 6 sets: .14), and a slope over four L
 * (three) .02 (.05): four of these. Least squares with p = 4 L weights has the gap 2 s2 p / n where p is far below n, and the largest one
 * near p = n, at L = 16; with more weights the norm of w bounds it. At L = 4 it is a half of s2, at L = 16 the new loss alone is above 2
 * s2. */
static hark_status judge_flat(hark_lab *lab) {
  const hark_lab_table *const table = &lab->tables[2];
  const double within = lab->quick ? 0.2 : 0.1;
  hark_lab_line line = {0};
  for (int64_t i = 0; i < hark_lab_row_count(table); i++)
    hark_lab_line_add_power(&line, hark_lab_row(table, i)[CONTROL_LENGTH], hark_lab_row(table, i)[CONTROL_COMPLEXITY]);
  const double largest = hark_lab_column_range(table, CONTROL_GAP, HARK_LAB_ALONE).largest;
  HARK_TRY(hark_lab_require(lab, hark_lab_line_fit(&line).slope, 0.5 - within, 0.5 + within,
                            "control, a weight for every number: slope of the complexity in L"));
  return hark_lab_require(lab, largest / hark_lab_row(table, 0)[CONTROL_GAP], 2, INFINITY,
                          "control, a weight for every number: largest gap over L / gap at L = 4");
}

/* The intervals of the slopes were fixed beforehand. Changing one sign moves a supremum by at most 1 / n, so its deviation is at most 1 /
 * (2 sqrt n) (Efron, Stein), .4 at most of a complexity of 1.2 / sqrt n or more. The means of 24 draws have .08, slopes over five n .037
 * and over four L .026. With 8 draws (quick) it is .14, over four n .09 and over three L .07: the quick intervals are wider by three of
 * these on both sides. The gap of a minimiser with p free parameters is of order p / n where the minimum is regular, and at most of order
 * n^-1/2: only an upper end. A class query of length 1 over rows in the unit ball moves by at most 1 + (|q| + |k|) / sigma^2 = 1.5
 * (docs/mathematics/latent-variables.md). */
static hark_status judge(hark_lab *lab) {
  const hark_lab_table *const table = &lab->tables[0];
  const double over_count = lab->quick ? 0.27 : 0, over_length = lab->quick ? 0.21 : 0;
  double mean = 0, query = 0;
  hark_lab_line sum = {0};
  for (int64_t i = 0; i < hark_lab_row_count(&lab->tables[1]); i++) {
    const double *const row = hark_lab_row(&lab->tables[1], i);
    hark_lab_line_add_power(&sum, row[ROWS], row[OF_SUM]);
    mean = hark_lab_larger(mean, row[OF_MEAN]);
    query = hark_lab_larger(query, row[OF_QUERY]);
  }
  HARK_TRY(hark_lab_require(lab, slope_of(table, OVER_COUNT, COMPLEXITY), -0.6 - over_count, -0.4 + over_count,
                            "slope of the complexity in n, log-log"));
  HARK_TRY(hark_lab_require(lab, slope_of(table, OVER_LENGTH, COMPLEXITY), -0.2 - over_length, 0.05 + over_length,
                            "slope of the complexity in L, log-log"));
  HARK_TRY(hark_lab_require(lab, slope_of(table, OVER_COUNT, GAP), -INFINITY, -0.4 + over_count, "slope of the gap in n, log-log"));
  HARK_TRY(hark_lab_require(lab, slope_of(table, OVER_LENGTH, GAP), -INFINITY, 0.05 + over_length, "slope of the gap in L, log-log"));
  HARK_TRY(hark_lab_require(lab, mean, 0, 1 + 1e-9, "change of the rows' mean / largest change of a row, largest"));
  HARK_TRY(hark_lab_require(lab, query, 0, 1.5, "change of a class query / largest change of a row, largest"));
  HARK_TRY(
      hark_lab_require(lab, hark_lab_line_fit(&sum).slope, 0.99, 1.01, "slope in L of: change of the rows' sum / largest change of a row"));
  return judge_flat(lab);
}

const hark_experiment hark_experiment_generalisation = {
    .summary = "the fit of attention networks to noise falls like n^-1/2, for any number of tokens",
    .paper = HARK_LAB_PAPER_X "Theorems 5.3 and C.4",
    .statement =
        "Two quantities of attention networks with norms of at most 3 are measured: the Rademacher complexity, and the "
        "gap between the loss on new sequences and the loss on training sequences. Both fall with the number of "
        "sequences n at least like n^-1/2, and do not grow with the number of tokens L. For a class with a weight for "
        "every number of the sequence, both depend on L. Aggregations are measured too. If every row moves by at most "
        "x, the mean of the rows moves by at most x. The output of a class query without matrices moves by at most 1.5 "
        "x. The sum of the rows can move by L x",
    .notes =
        "    R_n = E sup_f (1/n) sum_i s_i f(X_i),   s_i = -1 or 1;      gap = E (y - f^)^2 - (1/n) sum_i (y_i - "
        "f^(X_i))^2\n"
        "\n"
        "The networks are those of (5.1) with d = 4. The tokens are z + N in the unit ball, where N is normal noise. "
        "The labels are 0.3 tanh z_1 with noise of -0.2 or 0.2. Adam searches for suprema and minimisers. After every "
        "step the matrices are projected onto the bounds of their norms (singular values are cut at 3). The supremum "
        "may be larger than what Adam finds, so the result is a lower bound of the complexity. The theorem is an upper "
        "bound, so a gap that falls faster than n^-1/2 agrees with the theorem. For example, at a regular minimum the "
        "gap falls like 1/n. The growth with heads or layers is not measured, because it cannot test an upper bound.\n"
        "\n"
        "Aggregations are measured without matrices, that is, with W^q = W^k = W^v = I, and with a query of length 1. "
        "The factor 1.5 of the class query follows from a formula: it is 1 + (|q| + |k|) / sigma^2 with rows in the "
        "unit ball and sigma^2 = 4. Assumption C.2 does not hold for a class query whose matrices have norms of at most "
        "3. For example, with W^v = 3 I and equal scores, its output is three times the mean of the rows. So it can "
        "move by 3 x.\n"
        "\n"
        "The class that is compared with the networks has the functions w.(x_1, .., x_L) with |w| <= 1. It reads the "
        "same sequences, and Adam with a projection searches for its minimiser too. Its complexity is exact: it is the "
        "mean of |sum_i s_i X_i| / n. So the data and the search do not prevent a dependence on L. The gap is largest "
        "at L = 16, where there are as many weights as sequences. With more weights the norm of w bounds the gap.\n"
        "\n"
        "*Figures.* Complexity and gap over n and over L. The dashed lines have the slope of the theorem.",
    .measure = measure,
    .judge = judge};
