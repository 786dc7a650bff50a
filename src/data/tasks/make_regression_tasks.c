/* make_regression_tasks.c - tables, each with its own function of the inputs: tasks for regression in context.
 *
 * Inputs x are uniform in [-1, 1]^F; y = f(x) + noise with the variance --noise. The functions have a variance of about 1:
 *
 *     gaussian    Gaussian process with the kernel exp(-|x - x'|^2 / (2 w^2)); log w is uniform between --scale-least and --scale-most
 *     periodic    a sum of three sines of one direction of the inputs, with the wave lengths w, w / 2 and w / 3 of such a w
 *     network     a random network of one hidden layer of 16 tanh features, whose inputs are divided by such a w
 *     piecewise   constant between 2 to 8 cuts of one direction of the inputs
 *     heavy       gaussian, with noise of Student's t distribution with 3 degrees of freedom, scaled to the variance --noise
 *     mixed       one of these for each table
 *
 * With --inputs varied, tables differ in their inputs (table_inputs.h), and the variance of the noise is log-uniform between a thousandth
 * of --noise and --noise. In a third of the tables, the noise of a row grows with its first input, and in a sixth of those of numbers the
 * target is exp(y). With --label-classes C, a table has K classes, K uniform from 2 to C, and K such functions, each with a constant
 * of its own: the class of a row is the function with the largest y.
 */
#include <math.h>
#include <string.h>

#include "data/formats/table_file.h"
#include "data/tasks/make_vectors.h"
#include "data/tasks/table_inputs.h"

#define MOST_ROWS 4096 /* a Gaussian process needs the square of this in memory */
#define HIDDEN 16
#define WAVES 3
#define MOST_CUTS 8
#define LEAST_CUTS 2
#define FREEDOM 3
#define JITTER 1e-9      /* added to the covariance's diagonal */
#define LEVEL 0.5        /* deviation of the constants of classes */
#define MOST_GROWTH 1.5  /* of the logarithm of the noise, for a growth of the first input by its deviation */
#define LEAST_NOISE 1e-3 /* the smallest variance of --inputs varied, as a part of --noise */
#define PI 3.14159265358979323846

enum { GAUSSIAN, PERIODIC, NETWORK, PIECEWISE, HEAVY, MIXED };
enum { UNIFORM, VARIED };

static hark_status settle(hark_context *context, void *values) {
  hark_vector_values *const v = values;
  if (v->tokens == 0) v->tokens = 64;
  if (v->tokens > MOST_ROWS)
    return hark_fail(context, HARK_BAD_CONFIGURATION, "--tokens: %lld rows, expected at most %d", (long long)v->tokens, MOST_ROWS);
  if (v->scale_most < v->scale_least)
    return hark_fail(context, HARK_BAD_CONFIGURATION, "--scale-most: is below --scale-least, expected at least the same");
  if (v->label_classes == 1) return hark_fail(context, HARK_BAD_CONFIGURATION, "--label-classes: 1, expected at least 2, or 0 for numbers");
  return hark_vectors_settle(context, v->tokens, (v->covariates + 2) * (v->label_classes > 0 ? v->label_classes : 1), 0);
}

/* Inputs, values of the function, and of a Gaussian process its covariance. */
static hark_task_sizes sizes(const void *values) {
  const hark_vector_values *const v = values;
  return (hark_task_sizes){
      .example_bytes = hark_tables_record(v->tokens, v->covariates, 1) * sizeof(float),
      .scratch_bytes = (size_t)(v->tokens * (2 * v->covariates + 5 + hark_max(v->tokens, v->covariates)) + HIDDEN * (v->covariates + 2)) *
                       sizeof(double)};
}

static hark_status header(const hark_task_generator *generator, const void *values, int64_t count, hark_text *out) {
  (void)generator;
  const hark_vector_values *const v = values;
  unsigned char bytes[HARK_VECTORS_HEADER_BYTES];
  hark_vectors_header(HARK_TABLES_MAGIC, v->tokens, v->covariates, 1, count, bytes);
  hark_text_append_bytes(out, (const char *)bytes, sizeof bytes);
  return out->status;
}

typedef struct table {
  const hark_vector_values *values;
  hark_task_random *random;
  int64_t rows, inputs;
  double width, noise, growth;      /* w; variance of the noise, and how its logarithm grows with the first input */
  double *x, *y, *direction, *more; /* [rows, inputs] that the function sees, [rows], [rows] projections, and scratch */
  double *shown;                    /* [rows, inputs] of the table */
  double *best, *class;             /* [rows] largest y, and its function */
  double *kept;                     /* [rows] the first input in deviations, before some are lost */
} table;

/* more <- L with L L' = K. */
static void factor(const table *t) {
  double *const k = t->more;
  for (int64_t i = 0; i < t->rows; i++)
    for (int64_t j = 0; j <= i; j++) {
      double sum = 0;
      for (int64_t c = 0; c < t->inputs; c++) {
        const double apart = t->x[i * t->inputs + c] - t->x[j * t->inputs + c];
        sum += apart * apart;
      }
      double entry = exp(-sum / (2 * t->width * t->width)) + (i == j ? JITTER : 0);
      for (int64_t l = 0; l < j; l++) entry -= k[i * t->rows + l] * k[j * t->rows + l];
      k[i * t->rows + j] = i == j ? sqrt(fmax(entry, JITTER)) : entry / k[j * t->rows + j];
    }
}

/* y <- L z: f at the inputs. */
static void draw_process(const table *t) {
  hark_task_fill_normal(t->random, 1, t->rows, t->direction); /* z */
  for (int64_t i = 0; i < t->rows; i++) {
    t->y[i] = 0;
    for (int64_t j = 0; j <= i; j++) t->y[i] += t->more[i * t->rows + j] * t->direction[j];
  }
}

/* direction <- inputs along a random unit vector; varied inputs have weights already, and get random signs. */
static void project(const table *t) {
  double *const vector = t->more, squares = 0;
  hark_task_fill_normal(t->random, 1, t->inputs, vector);
  for (int64_t c = 0; c < t->inputs; c++) {
    if (t->values->inputs == VARIED) vector[c] = copysign(1, vector[c]);
    squares += vector[c] * vector[c];
  }
  if (t->values->inputs == VARIED) squares = 1;
  for (int64_t i = 0; i < t->rows; i++) {
    t->direction[i] = 0;
    for (int64_t c = 0; c < t->inputs; c++) t->direction[i] += t->x[i * t->inputs + c] * vector[c] / sqrt(squares);
  }
}

static void draw_waves(const table *t) {
  double sine[WAVES], cosine[WAVES];
  project(t);
  hark_task_fill_normal(t->random, sqrt(1.0 / WAVES), WAVES, sine);
  hark_task_fill_normal(t->random, sqrt(1.0 / WAVES), WAVES, cosine);
  for (int64_t i = 0; i < t->rows; i++) {
    t->y[i] = 0;
    for (int k = 0; k < WAVES; k++) {
      const double angle = 2 * PI * (k + 1) * t->direction[i] / t->width;
      t->y[i] += sine[k] * sin(angle) + cosine[k] * cos(angle);
    }
  }
}

static void draw_network(const table *t) {
  double *const in = t->more, *const bias = in + HIDDEN * t->inputs, *const out = bias + HIDDEN;
  hark_task_fill_normal(t->random, 1 / t->width, HIDDEN * t->inputs, in);
  hark_task_fill_normal(t->random, 1, HIDDEN, bias);
  hark_task_fill_normal(t->random, sqrt(2.0 / HIDDEN), HIDDEN, out);
  for (int64_t i = 0; i < t->rows; i++) {
    t->y[i] = 0;
    for (int h = 0; h < HIDDEN; h++) {
      double sum = bias[h];
      for (int64_t c = 0; c < t->inputs; c++) sum += in[h * t->inputs + c] * t->x[i * t->inputs + c];
      t->y[i] += out[h] * tanh(sum);
    }
  }
}

static void draw_pieces(const table *t) {
  const int cuts = LEAST_CUTS + hark_task_random_below(t->random, MOST_CUTS - LEAST_CUTS + 1);
  double place[MOST_CUTS], level[MOST_CUTS + 1];
  project(t);
  for (int k = 0; k < cuts; k++) place[k] = 2 * hark_task_random_uniform(t->random) - 1;
  hark_task_fill_normal(t->random, 1, cuts + 1, level);
  for (int64_t i = 0; i < t->rows; i++) {
    int above = 0; /* cuts below the row */
    for (int k = 0; k < cuts; k++) above += t->direction[i] > place[k];
    t->y[i] = level[above];
  }
}

/* Noise of row i, normal or of Student's t, whose variance without a scale is FREEDOM / (FREEDOM - 2). */
static double draw_noise(const table *t, int64_t i, bool heavy) {
  double normal[FREEDOM + 1], squares = 0;
  const double first = t->growth > 0 ? fmin(t->kept[i], 3) : 0, deviation = sqrt(t->noise * exp(t->growth * first));
  hark_task_fill_normal(t->random, 1, heavy ? FREEDOM + 1 : 1, normal);
  if (!heavy) return deviation * normal[0];
  for (int k = 1; k <= FREEDOM; k++) squares += normal[k] * normal[k];
  return deviation * sqrt((FREEDOM - 2.0) / FREEDOM) * normal[0] / sqrt(squares / FREEDOM);
}

static void fill_inputs(table *t) {
  if (t->values->inputs == VARIED) {
    t->noise *= pow(LEAST_NOISE, hark_task_random_uniform(t->random));
    hark_table_inputs(t->random, t->rows, t->inputs, t->shown, t->x, t->more);
    if (hark_task_random_below(t->random, 3) == 0) t->growth = MOST_GROWTH * hark_task_random_uniform(t->random);
    for (int64_t i = 0; i < t->rows; i++) t->kept[i] = t->shown[i * t->inputs] * sqrt(3);
    hark_table_lose_inputs(t->random, t->rows, t->inputs, t->shown);
    return;
  }
  for (int64_t i = 0; i < t->rows * t->inputs; i++) t->x[i] = 2 * hark_task_random_uniform(t->random) - 1;
}

/* The rows where function c, in y, is larger than those before it become its class. */
static void compete(const table *t, int32_t c, bool heavy) {
  double level;
  hark_task_fill_normal(t->random, LEVEL, 1, &level);
  for (int64_t i = 0; i < t->rows; i++) {
    const double y = t->y[i] + level + draw_noise(t, i, heavy);
    if (c > 0 && y <= t->best[i]) continue;
    t->best[i] = y;
    t->class[i] = c;
  }
}

static size_t write_rows(const table *t, const double *targets, unsigned char *out) {
  unsigned char *end = out;
  for (int64_t i = 0; i < t->rows; i++) {
    end = hark_vectors_write(t->shown + i * t->inputs, t->inputs, end);
    end = hark_vectors_write(&targets[i], 1, end);
  }
  return (size_t)(end - out);
}

static size_t make(hark_task_order *order, unsigned char *out) {
  static void (*const draw[])(const table *) = {draw_process, draw_waves, draw_network, draw_pieces, draw_process};
  const hark_vector_values *const v = order->values;
  table t = {.values = v, .random = &order->random, .rows = v->tokens, .inputs = v->covariates, .noise = v->noise, .x = order->scratch};
  t.y = t.x + t.rows * t.inputs;
  t.direction = t.y + t.rows;
  t.best = t.direction + t.rows;
  t.class = t.best + t.rows;
  t.kept = t.class + t.rows;
  t.shown = v->inputs == VARIED ? t.kept + t.rows : t.x;
  t.more = t.kept + t.rows + (v->inputs == VARIED ? t.rows * t.inputs : 0);
  const int function = v->function == MIXED ? hark_task_random_below(t.random, MIXED) : v->function;
  const bool heavy = function == HEAVY;
  t.width = v->scale_least * pow(v->scale_most / v->scale_least, hark_task_random_uniform(t.random));
  fill_inputs(&t);
  if (draw[function] == draw_process) factor(&t);
  draw[function](&t);
  if (v->label_classes > 0) {
    const int32_t classes = 2 + hark_task_random_below(t.random, (int32_t)v->label_classes - 1);
    for (int32_t c = 0; c < classes; c++) {
      if (c > 0) draw[function](&t);
      compete(&t, c, heavy);
    }
    return write_rows(&t, t.class, out);
  }
  const bool skewed = v->inputs == VARIED && hark_task_random_below(t.random, 6) == 0;
  for (int64_t i = 0; i < t.rows; i++) {
    const double y = t.y[i] + draw_noise(&t, i, heavy);
    t.best[i] = skewed ? exp(fmin(y, 4)) : y;
  }
  return write_rows(&t, t.best, out);
}

const hark_task_generator hark_task_regression_tasks = {
    .summary = "tables, each with its own function of the inputs: regression in context",
    .format = "tables",
    .parameters = "tokens covariates function inputs scale_least scale_most noise label_classes",
    .examples = {4000, 200, 200},
    .settle = settle,
    .sizes = sizes,
    .header = header,
    .make = make,
};
