/* test_regressor.c - architecture regressor: predictions, of classes and of smoothers too, against plain loops in f64, gradients against
 * differences, a table alone and with others, rows of context in another order, queries without others, refusals. */
#include <hark/experimental.h>
#include <hark/hark.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/regressor.h"
#include "support/cmocka_all.h"
#include "support/setups.h"
#include "support/text_files.h"

#define INPUTS 3
#define TARGETS 2
#define WIDTH 8
#define HEADS 2
#define HEAD_DIM (WIDTH / HEADS)
#define INNER 12
#define LAYERS 2
#define PROCESSES 3
#define FEATURES 4
#define LEAST_NOISE 0.03
#define EPSILON 1e-5

#define TABLES 3
#define MOST_CONTEXT 9
#define MOST_QUERIES 5
#define MOST_ROWS (TABLES * MOST_CONTEXT)

static const int64_t contexts[TABLES] = {5, 9, 2}, queries[TABLES] = {3, 1, 5};

static hark_network_config config_of(bool ridge) {
  hark_network_config config = {.architecture = HARK_ARCHITECTURE_REGRESSOR,
                                .vocabulary = 6,
                                .layers = LAYERS,
                                .heads = HEADS,
                                .key_heads = HEADS,
                                .width = WIDTH,
                                .feed_forward_width = INNER,
                                .context = MOST_CONTEXT,
                                .norm_epsilon = EPSILON,
                                .positions = HARK_POSITIONS_NONE,
                                .features = INPUTS,
                                .responses = TARGETS,
                                .bias = true,
                                .initialisation = HARK_INITIALISATION_XAVIER,
                                .attention = {.kernel = HARK_KERNEL_EXP, .sigma = 1, .ridge = 1},
                                .regressor = {.processes = PROCESSES, .features = FEATURES, .least_noise = LEAST_NOISE}};
  if (ridge) {
    config.attention.normalisation = (hark_layer_choice)HARK_EVERY_LAYER(HARK_NORMALISATION_CME);
    config.attention.kernel = HARK_KERNEL_RBF;
    config.attention.ridge_learned = config.attention.sigma_learned = true;
    config.attention.ridge = 0.5;
    config.attention.sigma = 1.5;
  }
  return config;
}

/* Tables of a pass, and their numbers. */
typedef struct fixture {
  hark_context *context;
  hark_network *network;
  hark_attention_plan **plans;
  hark_tape *tape;
  int64_t tables, known, asked;
  double context_inputs[MOST_ROWS * INPUTS], context_targets[MOST_ROWS * TARGETS], query_inputs[MOST_ROWS * INPUTS];
  double level[MOST_ROWS * TARGETS]; /* of classes */
  int64_t target_count;              /* 0: TARGETS */
  int64_t context_offsets[TABLES + 1], query_offsets[TABLES + 1];
} fixture;

/* Uniform in [-1, 1). */
static double number_at(int64_t place, uint64_t seed) {
  const hark_random_stream stream = {.seed = seed, .layer_purpose = hark_random_layer_purpose(0, HARK_RANDOM_TEST)};
  return (double)hark_random_word(&stream, (uint64_t)place) * 0x1p-31 - 1;
}

/* Tables first .. first + count of three. */
static void fill(fixture *f, int64_t first, int64_t count) {
  f->tables = count;
  f->known = f->asked = 0;
  f->context_offsets[0] = f->query_offsets[0] = 0;
  for (int64_t t = 0; t < count; t++) {
    for (int64_t row = 0; row < contexts[first + t]; row++, f->known++) {
      for (int i = 0; i < INPUTS; i++) f->context_inputs[f->known * INPUTS + i] = number_at(((first + t) * 100 + row) * INPUTS + i, 1);
      for (int r = 0; r < TARGETS; r++) f->context_targets[f->known * TARGETS + r] = number_at(((first + t) * 100 + row) * TARGETS + r, 2);
    }
    for (int64_t row = 0; row < queries[first + t]; row++, f->asked++) {
      for (int r = 0; r < TARGETS; r++) f->level[f->asked * TARGETS + r] = number_at(((first + t) * 100 + row) * TARGETS + r, 4);
      for (int i = 0; i < INPUTS; i++) f->query_inputs[f->asked * INPUTS + i] = number_at(((first + t) * 100 + row) * INPUTS + i, 3);
    }
    f->context_offsets[t + 1] = f->known;
    f->query_offsets[t + 1] = f->asked;
  }
}

static void open_network_of(fixture *f, hark_context *context, const hark_network_config *config) {
  const hark_pass_sizes sizes = {
      .batch = 1, .queries = MOST_ROWS, .keys = MOST_ROWS, .sequences = TABLES, .longest = hark_max(MOST_CONTEXT, MOST_QUERIES)};
  *f = (fixture){.context = context};
  assert_fine(context, hark_network_create(context, config, HARK_F64, true, &f->network));
  assert_fine(context, hark_parameters_initialise(context, &f->network->parameters, 5));
  for (int32_t p = 0; p < f->network->parameters.count; p++) { /* nothing stays at an initial value that hides it */
    hark_parameter *parameter = &f->network->parameters.list[p];
    double *const numbers = parameter->weight.data;
    for (int64_t i = 0; i < parameter->count; i++) numbers[i] += 0.3 * number_at(i, 10 + (uint64_t)p);
  }
  assert_fine(context, hark_network_plans_create(context, f->network, &sizes, true, &f->plans));
  assert_fine(context, hark_tape_create(context, &f->tape));
}

static void open_network(fixture *f, hark_context *context, bool ridge) {
  const hark_network_config config = config_of(ridge);
  open_network_of(f, context, &config);
}

static void open_smoother(fixture *f, hark_context *context) {
  hark_network_config config = config_of(false);
  config.regressor.head = HARK_REGRESSOR_HEAD_SMOOTHER;
  open_network_of(f, context, &config);
}

static void open_classes(fixture *f, hark_context *context) {
  hark_network_config config = config_of(false);
  config.regressor.loss = HARK_REGRESSOR_LOSS_CLASSES;
  open_network_of(f, context, &config);
}

/* Numbers of a prediction: means and logarithms of variances, or logits. */
static int64_t width_of(const fixture *f) {
  return f->network->config.regressor.loss == HARK_REGRESSOR_LOSS_CLASSES ? TARGETS : 2 * TARGETS;
}

static void close_network(fixture *f) {
  hark_tape_destroy(&f->tape);
  hark_network_plans_destroy(f->context, f->network, &f->plans);
  hark_network_destroy(f->context, &f->network);
}

static hark_value leaf(fixture *f, hark_type type, int rank, const int64_t *shape, void *data) {
  return hark_tape_input(f->tape, type, rank, shape, data, NULL);
}

/* Records a pass: predictions [queries, width_of()]. */
static hark_value record(fixture *f, bool training) {
  const int64_t known[] = {f->known, INPUTS}, targets[] = {f->known, f->target_count > 0 ? f->target_count : TARGETS},
                asked[] = {f->asked, INPUTS}, offsets[] = {f->tables + 1}, level[] = {f->asked, TARGETS};
  hark_value out = 0;
  hark_tape_reset(f->tape);
  hark_tape_set_recording(f->tape, training);
  const hark_network_tables tables = {.count = f->tables,
                                      .context = leaf(f, HARK_F64, 2, known, f->context_inputs),
                                      .targets = leaf(f, HARK_F64, 2, targets, f->context_targets),
                                      .queries = leaf(f, HARK_F64, 2, asked, f->query_inputs),
                                      .level = leaf(f, HARK_F64, 2, level, f->level),
                                      .context_offsets = leaf(f, HARK_I64, 1, offsets, f->context_offsets),
                                      .query_offsets = leaf(f, HARK_I64, 1, offsets, f->query_offsets)};
  const hark_packing packing = {.longest = MOST_CONTEXT};
  const hark_forward forward = {
      .tape = f->tape, .parameters = &f->network->parameters, .training = training, .packing = &packing, .plans = f->plans};
  const hark_network_input input = {.tables = &tables};
  assert_fine(f->context, f->network->architecture->logits(f->context, f->network, &forward, &input, &out));
  return out;
}

static void predict(fixture *f, double *out) {
  const hark_tensor *tensor = hark_tape_tensor(f->tape, record(f, false));
  assert_int_equal(hark_tensor_count(tensor), f->asked * width_of(f));
  assert_fine(f->context, hark_tensor_read(f->context, tensor, out));
}

/* ---- the definition, as plain loops ---- */

static const double *weights(const fixture *f, const char *format, int layer, const char *part) {
  char name[HARK_PARAMETER_NAME_BYTES];
  (void)snprintf(name, sizeof name, format, layer, part);
  for (int32_t p = 0; p < f->network->parameters.count; p++)
    if (strcmp(f->network->parameters.list[p].name, name) == 0) return f->network->parameters.list[p].weight.data;
  fail_msg("no parameter %s", name);
  return NULL;
}
static const double *named(const fixture *f, const char *name) { return weights(f, name, 0, ""); }
static const double *of_block(const fixture *f, int layer, const char *part) { return weights(f, "blocks.%d.%s", layer, part); }

/* y = W x + b */
static void affine(const double *w, const double *b, int in, int out, const double *x, double *y) {
  for (int o = 0; o < out; o++) {
    y[o] = b != NULL ? b[o] : 0;
    for (int i = 0; i < in; i++) y[o] += w[o * in + i] * x[i];
  }
}

static void normalise(const double *gain, const double *bias, const double *x, double *y) {
  double mean = 0, variance = 0;
  for (int i = 0; i < WIDTH; i++) mean += x[i] / WIDTH;
  for (int i = 0; i < WIDTH; i++) variance += (x[i] - mean) * (x[i] - mean) / WIDTH;
  for (int i = 0; i < WIDTH; i++) y[i] = gain[i] * (x[i] - mean) / sqrt(variance + EPSILON) + bias[i];
}

/* Solves M x = b for `count` right sides by elimination with pivoting; M is changed. Returns log det M. */
static double solve(int n, double *m, int count, double *b) {
  double log_determinant = 0;
  for (int k = 0; k < n; k++) {
    int pivot = k;
    for (int i = k + 1; i < n; i++) pivot = fabs(m[i * n + k]) > fabs(m[pivot * n + k]) ? i : pivot;
    for (int j = 0; j < n; j++) {
      const double keep = m[k * n + j];
      m[k * n + j] = m[pivot * n + j];
      m[pivot * n + j] = keep;
    }
    for (int c = 0; c < count; c++) {
      const double keep = b[k * count + c];
      b[k * count + c] = b[pivot * count + c];
      b[pivot * count + c] = keep;
    }
    log_determinant += log(fabs(m[k * n + k]));
    for (int i = k + 1; i < n; i++) {
      const double factor = m[i * n + k] / m[k * n + k];
      for (int j = k; j < n; j++) m[i * n + j] -= factor * m[k * n + j];
      for (int c = 0; c < count; c++) b[i * count + c] -= factor * b[k * count + c];
    }
  }
  for (int i = n - 1; i >= 0; i--)
    for (int c = 0; c < count; c++) {
      for (int j = i + 1; j < n; j++) b[i * count + c] -= m[i * n + j] * b[j * count + c];
      b[i * count + c] /= m[i * n + i];
    }
  return log_determinant;
}

/* One head: y [HEAD_DIM] of a query from n keys and values, by softmax or by kernel ridge regression. */
static void attend(const fixture *f, int layer, int head, bool ridge, int n, const double *q, const double *k, const double *v, double *y) {
  double weight[MOST_CONTEXT], gram[MOST_CONTEXT * MOST_CONTEXT], sum = 0;
  const double sigma = ridge ? exp(of_block(f, layer, "attention.log_sigma")[head]) : 1;
  for (int i = 0; i < n; i++) {
    double product = 0, apart = 0;
    for (int c = 0; c < HEAD_DIM; c++) {
      product += q[c] * k[i * WIDTH + c];
      apart += (q[c] - k[i * WIDTH + c]) * (q[c] - k[i * WIDTH + c]);
    }
    weight[i] = ridge ? exp(-apart / (2 * sigma * sigma)) : exp(product / sqrt(HEAD_DIM));
    sum += weight[i];
  }
  for (int i = 0; i < n && !ridge; i++) weight[i] /= sum;
  for (int i = 0; i < n && ridge; i++)
    for (int j = 0; j < n; j++) {
      double apart = 0;
      for (int c = 0; c < HEAD_DIM; c++) apart += (k[i * WIDTH + c] - k[j * WIDTH + c]) * (k[i * WIDTH + c] - k[j * WIDTH + c]);
      gram[i * n + j] = exp(-apart / (2 * sigma * sigma)) + (i == j ? exp(of_block(f, layer, "attention.log_ridge")[head]) : 0);
    }
  if (ridge) (void)solve(n, gram, 1, weight);
  for (int c = 0; c < HEAD_DIM; c++) {
    y[c] = 0;
    for (int i = 0; i < n; i++) y[c] += weight[i] * v[i * WIDTH + c];
  }
}

/* A row after a block. */
static void pass_block(const fixture *f, int layer, bool ridge, int n, const double *k, const double *v, double *x) {
  double normed[WIDTH], q[WIDTH], mixed[WIDTH], branch[WIDTH], inner[INNER];
  normalise(of_block(f, layer, "attention_norm.weight"), of_block(f, layer, "attention_norm.bias"), x, normed);
  affine(of_block(f, layer, "attention.query.weight"), of_block(f, layer, "attention.query.bias"), WIDTH, WIDTH, normed, q);
  for (int h = 0; h < HEADS; h++) attend(f, layer, h, ridge, n, q + h * HEAD_DIM, k + h * HEAD_DIM, v + h * HEAD_DIM, mixed + h * HEAD_DIM);
  affine(of_block(f, layer, "attention.output.weight"), of_block(f, layer, "attention.output.bias"), WIDTH, WIDTH, mixed, branch);
  for (int i = 0; i < WIDTH; i++) x[i] += branch[i];
  normalise(of_block(f, layer, "feed_forward_norm.weight"), of_block(f, layer, "feed_forward_norm.bias"), x, normed);
  affine(of_block(f, layer, "feed_forward.up.weight"), of_block(f, layer, "feed_forward.up.bias"), WIDTH, INNER, normed, inner);
  for (int i = 0; i < INNER; i++) inner[i] *= 0.5 * (1 + erf(inner[i] / sqrt(2)));
  affine(of_block(f, layer, "feed_forward.down.weight"), of_block(f, layer, "feed_forward.down.bias"), INNER, WIDTH, inner, branch);
  for (int i = 0; i < WIDTH; i++) x[i] += branch[i];
}

typedef struct table_rows {
  double known[MOST_CONTEXT * WIDTH], asked[MOST_CONTEXT * WIDTH], pairs[MOST_CONTEXT * WIDTH];
} table_rows;

static void end_row(const fixture *f, double *x) {
  double y[WIDTH];
  normalise(named(f, "final_norm.weight"), named(f, "final_norm.bias"), x, y);
  memcpy(x, y, sizeof y);
}

static void run_blocks(const fixture *f, bool ridge, int n, int m, table_rows *rows) {
  double normed[WIDTH], k[MOST_CONTEXT * WIDTH], v[MOST_CONTEXT * WIDTH];
  for (int layer = 0; layer < LAYERS; layer++) {
    for (int i = 0; i < n; i++) {
      normalise(of_block(f, layer, "attention_norm.weight"), of_block(f, layer, "attention_norm.bias"), rows->pairs + i * WIDTH, normed);
      affine(of_block(f, layer, "attention.key.weight"), of_block(f, layer, "attention.key.bias"), WIDTH, WIDTH, normed, k + i * WIDTH);
      affine(of_block(f, layer, "attention.value.weight"), of_block(f, layer, "attention.value.bias"), WIDTH, WIDTH, normed, v + i * WIDTH);
    }
    for (int i = 0; i < n; i++) pass_block(f, layer, ridge, n, k, v, rows->known + i * WIDTH);
    for (int i = 0; i < m; i++) pass_block(f, layer, ridge, n, k, v, rows->asked + i * WIDTH);
    for (int i = 0; i < n; i++) pass_block(f, layer, ridge, n, k, v, rows->pairs + i * WIDTH);
  }
  for (int i = 0; i < n; i++) end_row(f, rows->known + i * WIDTH);
  for (int i = 0; i < m; i++) end_row(f, rows->asked + i * WIDTH);
  for (int i = 0; i < n; i++) end_row(f, rows->pairs + i * WIDTH);
}

/* Features [FEATURES] of a row for one process. */
static void features_of(const fixture *f, int process, const double *gate, const double *input, const double *row, double *out) {
  double of_input[FEATURES], of_row[FEATURES];
  affine(named(f, "head.input.weight") + process * FEATURES * INPUTS, NULL, INPUTS, FEATURES, input, of_input);
  affine(named(f, "head.row.weight") + process * FEATURES * WIDTH, NULL, WIDTH, FEATURES, row, of_row);
  for (int i = 0; i < FEATURES; i++) out[i] = log1p(exp(gate[process * FEATURES + i])) * (of_input[i] + of_row[i]);
}

static double noise_of(const fixture *f, int process, const double *row) {
  double raw;
  affine(named(f, "head.noise.weight") + process * WIDTH, named(f, "head.noise.bias") + process, WIDTH, 1, row, &raw);
  return LEAST_NOISE + log1p(exp(raw));
}

static double kernel(const double *a, const double *b) {
  double apart = 0;
  for (int i = 0; i < FEATURES; i++) apart += (a[i] - b[i]) * (a[i] - b[i]);
  return exp(-apart / 2);
}

/* Mean and logarithm of the variance of the targets of one query. */
static void mix(const fixture *f, int n, const double *inputs, const double *targets, const table_rows *rows, const double *gate,
                const double *query_input, const double *query, double *out) {
  const double *prior = named(f, "head.prior");
  const double shape = 1 + exp(prior[0]) + n / 2.0, rate = exp(prior[1]), temperature = exp(prior[2]);
  double mean[PROCESSES][TARGETS], variance[PROCESSES][TARGETS], weight[PROCESSES], sum = 0;
  for (int p = 0; p < PROCESSES; p++) {
    double phi[MOST_CONTEXT * FEATURES], star[FEATURES], m[MOST_CONTEXT * MOST_CONTEXT], right[MOST_CONTEXT * (1 + TARGETS)], logit;
    features_of(f, p, gate, query_input, query, star);
    for (int i = 0; i < n; i++) features_of(f, p, gate, inputs + i * INPUTS, rows->known + i * WIDTH, phi + i * FEATURES);
    for (int i = 0; i < n; i++) {
      for (int j = 0; j < n; j++) m[i * n + j] = kernel(phi + i * FEATURES, phi + j * FEATURES);
      m[i * n + i] += noise_of(f, p, rows->known + i * WIDTH);
      right[i * (1 + TARGETS)] = kernel(phi + i * FEATURES, star);
      for (int r = 0; r < TARGETS; r++) right[i * (1 + TARGETS) + 1 + r] = targets[i * TARGETS + r];
    }
    double evidence = -TARGETS * solve(n, m, 1 + TARGETS, right) / 2, spread = 1 + noise_of(f, p, query);
    for (int i = 0; i < n; i++) spread -= kernel(phi + i * FEATURES, star) * right[i * (1 + TARGETS)];
    for (int r = 0; r < TARGETS; r++) {
      double quadratic = 0;
      mean[p][r] = 0;
      for (int i = 0; i < n; i++) {
        mean[p][r] += kernel(phi + i * FEATURES, star) * right[i * (1 + TARGETS) + 1 + r];
        quadratic += targets[i * TARGETS + r] * right[i * (1 + TARGETS) + 1 + r];
      }
      evidence -= shape * log(rate + quadratic / 2);
      variance[p][r] = (rate + quadratic / 2) / (shape - 1) * spread;
    }
    affine(named(f, "head.logit.weight") + p * WIDTH, named(f, "head.logit.bias") + p, WIDTH, 1, query, &logit);
    weight[p] = exp(temperature * evidence + logit);
    sum += weight[p];
  }
  for (int r = 0; r < TARGETS; r++) {
    double first = 0, second = 0;
    for (int p = 0; p < PROCESSES; p++) first += weight[p] / sum * mean[p][r];
    for (int p = 0; p < PROCESSES; p++) second += weight[p] / sum * (variance[p][r] + mean[p][r] * mean[p][r]);
    out[r] = first;
    out[TARGETS + r] = log(second - first * first);
  }
}

/* The same by kernel smoothers. */
static void smooth(const fixture *f, int n, const double *inputs, const double *targets, const table_rows *rows, const double *gate,
                   const double *query_input, const double *query, double *out) {
  double first[PROCESSES][TARGETS] = {{0}}, second[PROCESSES][TARGETS] = {{0}}, weight[PROCESSES], sum = 0;
  for (int p = 0; p < PROCESSES; p++) {
    double star[FEATURES], phi[FEATURES], total = 0, logit;
    features_of(f, p, gate, query_input, query, star);
    for (int i = 0; i < n; i++) {
      features_of(f, p, gate, inputs + i * INPUTS, rows->known + i * WIDTH, phi);
      total += kernel(phi, star);
      for (int r = 0; r < TARGETS; r++) {
        const double target = targets[i * TARGETS + r];
        first[p][r] += kernel(phi, star) * target;
        second[p][r] += kernel(phi, star) * target * target;
      }
    }
    for (int r = 0; r < TARGETS; r++) {
      first[p][r] /= total;
      second[p][r] = second[p][r] / total + noise_of(f, p, query);
    }
    affine(named(f, "head.logit.weight") + p * WIDTH, named(f, "head.logit.bias") + p, WIDTH, 1, query, &logit);
    sum += weight[p] = exp(logit);
  }
  for (int r = 0; r < TARGETS; r++) {
    double mean = 0, square = 0;
    for (int p = 0; p < PROCESSES; p++) mean += weight[p] / sum * first[p][r];
    for (int p = 0; p < PROCESSES; p++) square += weight[p] / sum * second[p][r];
    out[r] = mean;
    out[TARGETS + r] = log(square - mean * mean);
  }
}

static void define_table(const fixture *f, bool ridge, int64_t t, double *out) {
  const int n = (int)(f->context_offsets[t + 1] - f->context_offsets[t]), m = (int)(f->query_offsets[t + 1] - f->query_offsets[t]);
  const double *inputs = f->context_inputs + f->context_offsets[t] * INPUTS,
               *targets = f->context_targets + f->context_offsets[t] * TARGETS;
  const double *asked = f->query_inputs + f->query_offsets[t] * INPUTS;
  double summary[WIDTH] = {0}, gate[PROCESSES * FEATURES];
  table_rows rows;
  for (int i = 0; i < n; i++) {
    affine(named(f, "input.weight"), named(f, "input.bias"), INPUTS, WIDTH, inputs + i * INPUTS, rows.known + i * WIDTH);
    affine(named(f, "target.weight"), rows.known + i * WIDTH, TARGETS, WIDTH, targets + i * TARGETS, rows.pairs + i * WIDTH);
  }
  for (int i = 0; i < m; i++)
    affine(named(f, "input.weight"), named(f, "input.bias"), INPUTS, WIDTH, asked + i * INPUTS, rows.asked + i * WIDTH);
  run_blocks(f, ridge, n, m, &rows);
  for (int i = 0; i < n; i++)
    for (int c = 0; c < WIDTH; c++) summary[c] += rows.pairs[i * WIDTH + c] / n;
  affine(named(f, "head.gate.weight"), named(f, "head.gate.bias"), WIDTH, PROCESSES * FEATURES, summary, gate);
  for (int i = 0; i < m; i++)
    (f->network->config.regressor.head == HARK_REGRESSOR_HEAD_SMOOTHER ? smooth : mix)(
        f, n, inputs, targets, &rows, gate, asked + i * INPUTS, rows.asked + i * WIDTH, out + (f->query_offsets[t] + i) * 2 * TARGETS);
}

/* ---- tests ---- */

static void assert_close(const double *a, const double *b, int64_t count, double tolerance) {
  for (int64_t i = 0; i < count; i++)
    if (!(fabs(a[i] - b[i]) <= tolerance * (1 + fabs(b[i])))) fail_msg("number %lld is %.15g, expected %.15g", (long long)i, a[i], b[i]);
}

static void predictions_are_the_definition(void **state) {
  fixture f;
  double found[MOST_ROWS * 2 * TARGETS], expected[MOST_ROWS * 2 * TARGETS];
  for (int kind = 0; kind < 3; kind++) {
    if (kind == 2)
      open_smoother(&f, *state);
    else
      open_network(&f, *state, kind);
    fill(&f, 0, TABLES);
    predict(&f, found);
    for (int64_t t = 0; t < TABLES; t++) define_table(&f, kind == 1, t, expected);
    assert_close(found, expected, f.asked * 2 * TARGETS, 1e-9);
    close_network(&f);
  }
}

/* Logits: exp(a) mean / sqrt(1 + exp(b) variance) + level. */
static void logits_of_classes_are_the_definition(void **state) {
  fixture f;
  double found[MOST_ROWS * TARGETS], moments[MOST_ROWS * 2 * TARGETS], expected[MOST_ROWS * TARGETS];
  open_classes(&f, *state);
  fill(&f, 0, TABLES);
  predict(&f, found);
  const double *const scale = named(&f, "head.class_scale");
  assert_true(scale[0] != scale[1]);
  for (int64_t t = 0; t < TABLES; t++) define_table(&f, false, t, moments);
  for (int64_t i = 0; i < f.asked * TARGETS; i++) {
    const int64_t place = i / TARGETS * 2 * TARGETS + i % TARGETS;
    expected[i] = exp(scale[0]) * moments[place] / sqrt(1 + exp(scale[1]) * exp(moments[place + TARGETS])) + f.level[i];
  }
  assert_close(found, expected, f.asked * TARGETS, 1e-9);
  close_network(&f);
}

/* A target that is 0 in all rows of the context changes nothing in the evidence, and so in the predictions of the other target. */
static void targets_of_zero_have_no_evidence(void **state) {
  double found[2][MOST_ROWS * 2 * TARGETS];
  for (int copy = 0; copy < 2; copy++) {
    fixture f;
    hark_network_config config = config_of(false);
    config.responses = copy == 0 ? TARGETS : 1;
    open_network_of(&f, *state, &config);
    fill(&f, 1, 1);
    for (int32_t p = 0; p < f.network->parameters.count; p++) { /* the same weights; the embedding of target 1 is not used */
      hark_parameter *const parameter = &f.network->parameters.list[p];
      double *const numbers = parameter->weight.data;
      const bool of_target = strcmp(parameter->name, "target.weight") == 0;
      for (int64_t i = 0; i < parameter->count; i++)
        numbers[i] = number_at(of_target && copy == 0 ? i / TARGETS : i, 50 + strlen(parameter->name));
    }
    for (int64_t row = 0; row < f.known; row++) {
      if (copy == 0) f.context_targets[row * TARGETS + 1] = 0;
      if (copy == 1) f.context_targets[row] = f.context_targets[row * TARGETS];
    }
    const int64_t targets[] = {f.known, config.responses};
    f.target_count = targets[1];
    const hark_tensor *const tensor = hark_tape_tensor(f.tape, record(&f, false));
    assert_fine(f.context, hark_tensor_read(f.context, tensor, found[copy]));
    close_network(&f);
  }
  assert_true(fabs(found[0][0] - found[1][0]) < 1e-10 && fabs(found[0][TARGETS] - found[1][1]) < 1e-10);
}

/* A table alone has the predictions that it has beside others, and a query alone those beside other queries. */
static void tables_and_queries_do_not_see_each_other(void **state) {
  fixture f;
  double all[MOST_ROWS * 2 * TARGETS], alone[MOST_ROWS * 2 * TARGETS];
  open_network(&f, *state, false);
  fill(&f, 0, TABLES);
  predict(&f, all);
  fill(&f, 2, 1);
  predict(&f, alone);
  assert_close(alone, all + 4 * 2 * TARGETS, 5 * 2 * TARGETS, 1e-12);
  memmove(f.query_inputs, f.query_inputs + 4 * INPUTS, INPUTS * sizeof(double));
  f.asked = f.query_offsets[1] = 1;
  predict(&f, alone);
  assert_close(alone, all + 8 * 2 * TARGETS, 2 * TARGETS, 1e-12);
  close_network(&f);
}

static void swap_rows(double *rows, int width, int a, int b) {
  for (int i = 0; i < width; i++) {
    const double keep = rows[a * width + i];
    rows[a * width + i] = rows[b * width + i];
    rows[b * width + i] = keep;
  }
}

static void the_order_of_the_context_has_no_effect(void **state) {
  fixture f;
  double before[MOST_ROWS * 2 * TARGETS], after[MOST_ROWS * 2 * TARGETS];
  open_network(&f, *state, true);
  fill(&f, 1, 1);
  predict(&f, before);
  for (int i = 0; i < 4; i++) {
    swap_rows(f.context_inputs, INPUTS, i, 8 - i);
    swap_rows(f.context_targets, TARGETS, i, 8 - i);
  }
  predict(&f, after);
  assert_close(after, before, f.asked * 2 * TARGETS, 1e-10);
  close_network(&f);
}

/* The sum of predictions, each with its own factor; with `training` its gradient is added to the parameters'. */
static double total(fixture *f, bool training) {
  const int64_t shape[] = {f->asked, width_of(f)};
  double factors[MOST_ROWS * 2 * TARGETS], sum = 0;
  for (int64_t i = 0; i < f->asked * width_of(f); i++) factors[i] = number_at(i, 7);
  const hark_squared_error_attributes half = {0.5};
  const hark_value inputs[] = {record(f, training), leaf(f, HARK_F64, 2, shape, factors)};
  hark_value loss = 0;
  assert_fine(f->context, hark_tape_apply(f->tape, &hark_op_squared_error, &half, 2, inputs, 0, &loss));
  assert_fine(f->context, hark_tensor_read(f->context, hark_tape_tensor(f->tape, loss), &sum));
  if (training) assert_fine(f->context, hark_tape_backward(f->tape, loss, 1));
  return sum;
}

static void check_gradient(fixture *f, hark_parameter *parameter, int64_t i) {
  double *const number = (double *)parameter->weight.data + i, keep = *number, h = 1e-4, value[4];
  const double steps[] = {-2, -1, 1, 2}, found = ((double *)parameter->gradient.data)[i];
  for (int s = 0; s < 4; s++) {
    *number = keep + steps[s] * h;
    value[s] = total(f, false);
  }
  *number = keep;
  const double expected = (value[0] - 8 * value[1] + 8 * value[2] - value[3]) / (12 * h);
  if (!(fabs(found - expected) <= 1e-6 * (1 + fabs(expected))))
    fail_msg("%s[%lld]: gradient %.12g, differences %.12g", parameter->name, (long long)i, found, expected);
}

static void gradients_are_those_of_differences(void **state) {
  fixture f;
  int checked = 0;
  for (int kind = 0; kind < 4; kind++) {
    if (kind >= 2)
      (kind == 2 ? open_classes : open_smoother)(&f, *state);
    else
      open_network(&f, *state, kind);
    fill(&f, 0, TABLES);
    assert_fine(f.context, hark_tensor_zero(f.context, &f.network->parameters.gradients));
    (void)total(&f, true);
    for (int32_t p = 0; p < f.network->parameters.count; p++) {
      hark_parameter *parameter = &f.network->parameters.list[p];

      for (int64_t i = 0; i < parameter->count; i += hark_max(1, parameter->count / 3), checked++) check_gradient(&f, parameter, i);
    }
    close_network(&f);
  }
  assert_true(checked > 300);
}

/* Logarithms that move far learn at the rate of kernels, which train.positional_rate multiplies. */
static void priors_learn_at_the_rate_of_kernels(void **state) {
  fixture f;
  int fast = 0;
  open_classes(&f, *state);
  for (int32_t p = 0; p < f.network->parameters.count; p++) {
    const hark_parameter *parameter = &f.network->parameters.list[p];
    const bool logarithms = strcmp(parameter->name, "head.prior") == 0 || strcmp(parameter->name, "head.class_scale") == 0;
    assert_int_equal(parameter->spec.rate, logarithms ? HARK_RATE_POSITIONAL : HARK_RATE_PLAIN);
    fast += logarithms;
  }
  assert_int_equal(fast, 2);
  close_network(&f);
}

static void configurations_are_refused(void **state) {
  hark_context *context = *state;
  hark_network *network = NULL;
  hark_network_config config = config_of(false);
  config.regressor.processes = HARK_POSTERIOR_MIXTURE_HEADS + 1;
  assert_int_equal(hark_network_create(context, &config, HARK_F32, false, &network), HARK_BAD_CONFIGURATION);
  assert_non_null(strstr(hark_context_message(context), "model.regressor.processes is 65, expected 1 to 64"));
  config = config_of(false);
  config.regressor.loss = HARK_REGRESSOR_LOSS_CLASSES;
  config.responses = HARK_CLASS_MOST + 1;
  assert_int_equal(hark_network_create(context, &config, HARK_F32, false, &network), HARK_BAD_CONFIGURATION);
  assert_non_null(strstr(hark_context_message(context), "a regressor of classes has 257 of them, expected 2 to 256"));
  config = config_of(false);
  config.positions = HARK_POSITIONS_ROTARY;
  assert_int_equal(hark_network_create(context, &config, HARK_F32, false, &network), HARK_BAD_CONFIGURATION);
  assert_non_null(strstr(hark_context_message(context), "model.architecture regressor reads exchangeable tokens"));
  config = config_of(false);
  config.features = config.responses = 0;
  assert_int_equal(hark_network_create(context, &config, HARK_F32, false, &network), HARK_BAD_CONFIGURATION);
  assert_null(network);
}

static int open_context(void **state) {
  *state = test_reference_open();
  return 0;
}

static int close_context(void **state) {
  test_setup_close(*state);
  return 0;
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_context, close_context)
  const struct CMUnitTest tests[] = {
      TEST(predictions_are_the_definition),         TEST(logits_of_classes_are_the_definition),
      TEST(targets_of_zero_have_no_evidence),       TEST(tables_and_queries_do_not_see_each_other),
      TEST(the_order_of_the_context_has_no_effect), TEST(gradients_are_those_of_differences),
      TEST(priors_learn_at_the_rate_of_kernels),    TEST(configurations_are_refused),
  };
#undef TEST
  return cmocka_run_group_tests(tests, NULL, NULL);
}
