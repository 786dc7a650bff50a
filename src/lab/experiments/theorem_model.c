/* theorem_model.c - the networks of X's risk analysis (sections 5.1, C.1), as model.architecture latent trains them.
 *
 * Six statements about a network with bounded matrices and tokens in the unit ball, for each form, number of layers, aggregation and norm:
 *
 *   formula     what the trainer's network computes is (C.1) to (C.5), or (5.1), computed here matrix by matrix
 *   order       tokens in another order give the same output: it is a function of the set of tokens
 *   length      every token twice gives the same output: attention and aggregation are means, so that L enters no bound
 *   size        |X(t)| <= R(t) = prod omega alpha (C.18), for the rows of every layer
 *   bounds      after a projection no norm is above its bound
 *   moved       weights W + x (V - W), V of the class too, move the output by at most 2 x M (bound_terms.h): the basis of the
 *               covering number
 *
 * each for DRAWS draws of the weights. A rectifier that is off for every token makes the output 0, and then nothing is compared; so the
 * draws with another output are counted. For contrast, `sum` replaces the mean of the rows by their sum: every token twice doubles it. The
 * small networks of latent_network.h, which other experiments train, are compared with the form `single` here. Source: X (Zhang et al.).
 */
#include <stdio.h>
#include <string.h>

#include "lab/attention.h"
#include "lab/bound_terms.h"
#include "lab/latent_network.h"
#include "lab/matrix.h"
#include "lab/tables.h"
#include "models/latent.h"

#define WIDTH 4
#define HEADS 2
#define HEAD_DIM (WIDTH / HEADS)
#define INNER 6
#define RESPONSES 2
#define OPERATOR_BOUND 1.5
#define MATRIX_BOUND 2.
#define SIZE 5.          /* of weights before the projection, over their usual one */
#define TOKEN_STREAM 900 /* the networks' weights have separate streams, by their names */
#define ORDER_STREAM 901
#define SEED_STREAM 902
#define STEP .01 /* x */
#define DRAWS 16 /* of the weights of each configuration */

enum { FORM, LAYERS_COLUMN, SKIPS, AGGREGATE, NORM, FORMULA, ORDER, TWICE, SUM, SIZE_RATIO, BOUNDS, MOVED, ALIVE, COLUMNS };
static const hark_lab_column columns[COLUMNS] = {{"form", NULL, HARK_LATENT_FORM_WORDS},
                                                 {"T", "layers", NULL},
                                                 {"skips", NULL, "no|yes"},
                                                 {"aggregation", NULL, HARK_LATENT_AGGREGATE_WORDS},
                                                 {"r", "of the norms", HARK_BOUND_WORDS},
                                                 {"formula", "difference", NULL},
                                                 {"order", "difference", NULL},
                                                 {"length", "difference", NULL},
                                                 {"sum", "relative", NULL},
                                                 {"size", "|X(t)| / R(t)", NULL},
                                                 {"bounds", "norm / bound", NULL},
                                                 {"moved", "by weights, over .02 M", NULL},
                                                 {"output not 0", "of 16 draws", NULL}};

enum { L_NORM, L_TOKENS, L_LARGEST, L_DIFFERENCE, L_ALIVE, LABORATORY_COLUMNS };
static const hark_lab_column laboratory_columns[LABORATORY_COLUMNS] = {{"r", "of the norms", HARK_BOUND_WORDS},
                                                                       {"tokens", NULL, NULL},
                                                                       {"|output|", "largest", NULL},
                                                                       {"difference", "largest", NULL},
                                                                       {"output not 0", "of 16 draws", NULL}};

typedef struct model {
  hark_lab *lab;
  hark_network *network;
  int64_t length;        /* tokens, without their copies */
  double *x, *z, *inner; /* rows of a layer, [2 L, ..] */
  double size;           /* largest |X(t)| / R(t) */
} model;

/* ---- the trainer's network ---- */

static hark_status pass_network(const model *m, int64_t length, const double *tokens, double *out) {
  hark_context *const context = m->lab->context;
  const int64_t ranges[] = {0, length}, vector_shape[] = {1, length, WIDTH}, range_shape[] = {1, 1, 2};
  hark_tensor vectors, range;
  hark_tape *tape = NULL;
  HARK_TRY(hark_tensor_wrap(context, (void *)tokens, HARK_F64, 3, vector_shape, NULL, &vectors));
  HARK_TRY(hark_tensor_wrap(context, (void *)ranges, HARK_I64, 3, range_shape, NULL, &range));
  HARK_TRY(hark_tape_create(context, &tape));
  const hark_packing packing = {.longest = length};
  const hark_forward forward = {.tape = tape, .parameters = &m->network->parameters, .packing = &packing};
  hark_network_input input = {.ranges = &range};
  hark_value y = 0;
  hark_status status = hark_tape_leaf(tape, &vectors, NULL, &input.vectors);
  if (status == HARK_OK) status = m->network->architecture->logits(context, m->network, &forward, &input, &y);
  if (status == HARK_OK) status = hark_tensor_read(context, hark_tape_tensor(tape, y), out);
  hark_tape_destroy(&tape);
  return status;
}

/* ---- the formula ---- */

/* A parameter's numbers, transposed: as the paper writes it, [in, out]. */
static hark_status matrix_of(const model *m, const char *name, double **out) {
  const hark_parameter *const parameter = hark_parameters_find(&m->network->parameters, name);
  if (parameter == NULL) return hark_fail(m->lab->context, HARK_INTERNAL_ERROR, "theorem-model: there is no %s", name);
  const int64_t rows = parameter->spec.shape[0], in = parameter->spec.shape[1];
  double *stored;
  HARK_TRY(hark_lab_numbers(m->lab, rows * in, &stored));
  HARK_TRY(hark_lab_numbers(m->lab, rows * in, out));
  HARK_TRY(hark_tensor_read(m->lab->context, &parameter->weight, stored));
  for (int64_t o = 0; o < rows; o++)
    for (int64_t i = 0; i < in; i++) (*out)[i * rows + o] = stored[o * in + i];
  return HARK_OK;
}

static hark_status part_of(const model *m, const char *prefix, const char *part, double **out) {
  char name[HARK_PARAMETER_NAME_BYTES];
  (void)snprintf(name, sizeof name, "%s.%s.weight", prefix, part);
  return matrix_of(m, name, out);
}

static hark_attention_desc kernel(void) {
  hark_attention_desc desc = hark_attention_desc_default();
  desc.kernel = HARK_KERNEL_RBF;
  desc.sigma = sqrt(hark_latent_sigma_square(HEAD_DIM));
  return desc;
}

/* out [asking, d] += the heads' attention of rows `from` to rows x. */
static hark_status add_heads(const model *m, const char *prefix, int64_t asking, const double *from, int64_t length, const double *x,
                             double *out) {
  const hark_attention_desc choice = kernel();
  for (int64_t i = 0; i < HEADS; i++) {
    char head[HARK_PARAMETER_NAME_BYTES / 2];
    double *wq, *wk, *wv, *q, *k, *v, *mixed;
    (void)snprintf(head, sizeof head, "%s.heads.%lld", prefix, (long long)i);
    HARK_TRY(part_of(m, head, "query", &wq));
    HARK_TRY(part_of(m, head, "key", &wk));
    HARK_TRY(part_of(m, head, "value", &wv));
    HARK_TRY(hark_lab_numbers(m->lab, asking * HEAD_DIM, &q));
    HARK_TRY(hark_lab_numbers(m->lab, length * HEAD_DIM, &k));
    HARK_TRY(hark_lab_numbers(m->lab, length * WIDTH, &v));
    HARK_TRY(hark_lab_numbers(m->lab, asking * WIDTH, &mixed));
    hark_lab_multiply(asking, WIDTH, HEAD_DIM, from, wq, q);
    hark_lab_multiply(length, WIDTH, HEAD_DIM, x, wk, k);
    hark_lab_multiply(length, WIDTH, WIDTH, x, wv, v);
    const hark_lab_head one = {
        .length = length, .head_dim = HEAD_DIM, .value_dim = WIDTH, .query = q, .key = k, .value = v, .queries = asking};
    HARK_TRY(hark_lab_attend(m->lab->context, &choice, &one, mixed));
    for (int64_t j = 0; j < asking * WIDTH; j++) out[j] += mixed[j];
  }
  return HARK_OK;
}

static void rectify(int64_t count, double *x) {
  for (int64_t i = 0; i < count; i++) x[i] = hark_larger(x[i], 0);
}

/* Largest r-norm of a row. */
static double row_size(const model *m, int64_t rows, const double *x) {
  const hark_bound_norm norm = (hark_bound_norm)m->network->config.latent.norm;
  double largest = 0;
  for (int64_t n = 0; n < rows; n++) /* of a matrix of one column */
    largest = hark_lab_larger(largest, norm == HARK_BOUND_INFINITY ? hark_operator_norm(norm, WIDTH, 1, x + n * WIDTH, NULL)
                                                                   : hark_matrix_norm(norm, WIDTH, 1, x + n * WIDTH));
  return largest;
}

/* (C.4): x becomes the rows of the next layer. */
static hark_status run_layer(const model *m, int64_t t, int64_t length, double *x) {
  const bool skip = m->network->config.latent.skip;
  char prefix[32];
  double *up, *down;
  (void)snprintf(prefix, sizeof prefix, "blocks.%lld", (long long)t);
  HARK_TRY(part_of(m, prefix, "feed_forward.up", &up));
  HARK_TRY(part_of(m, prefix, "feed_forward.down", &down));
  hark_lab_multiply(length, WIDTH, INNER, x, up, m->inner);
  rectify(length * INNER, m->inner);
  hark_lab_multiply(length, INNER, WIDTH, m->inner, down, m->z);
  for (int64_t i = 0; i < length * WIDTH; i++) {
    if (skip) m->z[i] += x[i];
    x[i] = skip ? m->z[i] : 0;
  }
  return add_heads(m, prefix, length, m->z, length, m->z, x);
}

/* (C.5), or (5.1): head and ball applied to the pooled rows. `sum`: head applied to the rows' sum, without the ball. */
static hark_status finish(const model *m, int64_t length, const double *x, bool sum, double *y) {
  const hark_latent_config *const latent = &m->network->config.latent;
  double pooled[WIDTH] = {0}, msk[WIDTH], *encoding, *features, *head;
  if (latent->aggregate == HARK_LATENT_AGGREGATE_QUERY && !sum) {
    HARK_TRY(matrix_of(m, "aggregate.class.weight", &encoding));
    memcpy(msk, encoding, sizeof msk);
    if (latent->form == HARK_LATENT_FORM_SINGLE) {
      HARK_TRY(matrix_of(m, "features.weight", &features));
      hark_lab_multiply(1, WIDTH, WIDTH, encoding, features, msk);
      rectify(WIDTH, msk);
    }
    HARK_TRY(add_heads(m, "aggregate", 1, msk, length, x, pooled));
  } else {
    for (int64_t i = 0; i < length * WIDTH; i++) pooled[i % WIDTH] += x[i] / (sum ? 1 : (double)length);
  }
  HARK_TRY(matrix_of(m, "head.weight", &head));
  hark_lab_multiply(1, WIDTH, RESPONSES, pooled, head, y);
  const double size = sqrt(hark_lab_dot(y, y, RESPONSES));
  for (int i = 0; !sum && size > latent->range && i < RESPONSES; i++) y[i] *= latent->range / size;
  return HARK_OK;
}

/* The formula's output for tokens; terms [T + 1]: R(t). */
static hark_status pass_formula(model *m, int64_t length, const double *tokens, const double *radius, bool sum, double *y) {
  const hark_network_config *const config = &m->network->config;
  memcpy(m->x, tokens, (size_t)(length * WIDTH) * sizeof *m->x);
  if (config->latent.form == HARK_LATENT_FORM_SINGLE) {
    double *features;
    HARK_TRY(matrix_of(m, "features.weight", &features));
    hark_lab_multiply(length, WIDTH, WIDTH, tokens, features, m->x);
    rectify(length * WIDTH, m->x);
  }
  for (int64_t t = 0; config->latent.form != HARK_LATENT_FORM_SINGLE && t < config->layers; t++) {
    HARK_TRY(run_layer(m, t, length, m->x));
    m->size = hark_lab_larger(m->size, row_size(m, length, m->x) / radius[t + 1]);
  }
  return finish(m, length, m->x, sum, y);
}

/* ---- measuring ---- */

static double difference(const double *a, const double *b) {
  double largest = 0;
  for (int i = 0; i < RESPONSES; i++) largest = hark_lab_larger(largest, fabs(a[i] - b[i]));
  return largest;
}

/* R(t) of the class that the bounds describe, t = 0 .. T, and M. */
static hark_status class_terms(const model *m, double *radius, double *moved) {
  const hark_network_config *const config = &m->network->config;
  const hark_bound_norm norm = (hark_bound_norm)config->latent.norm;
  hark_bound_network network = {.layers = config->layers,
                                .heads = HEADS,
                                .width = WIDTH,
                                .inner = INNER,
                                .head_dim = HEAD_DIM,
                                .responses = RESPONSES,
                                .single = config->latent.form == HARK_LATENT_FORM_SINGLE,
                                .query = config->latent.aggregate == HARK_LATENT_AGGREGATE_QUERY,
                                .sigma_square = config->attention.sigma * config->attention.sigma,
                                .norm = norm};
  const hark_bound_pair bound = {OPERATOR_BOUND, norm == HARK_BOUND_ONE ? OPERATOR_BOUND : MATRIX_BOUND}; /* with r 1 they are one number */
  HARK_TRY(hark_bound_make(m->lab, &network));
  for (int64_t t = 0; t < config->layers; t++) network.up[t] = network.down[t] = bound;
  for (int64_t i = 0; i < config->layers * HEADS; i++) network.attention[i] = (hark_bound_head){bound, bound, bound};
  for (int64_t i = 0; i < HEADS; i++) network.aggregation[i] = (hark_bound_head){bound, bound, bound};
  void *memory;
  HARK_TRY(hark_lab_allocate(m->lab, (size_t)config->layers * sizeof(hark_bound_layer), &memory));
  hark_bound_layer *const layers = memory;
  radius[config->layers] = hark_bound_layers(&network, 1, config->latent.skip, false, layers);
  for (int64_t t = 0; t < config->layers; t++) radius[t] = layers[t].radius;
  *moved = hark_bound_all(&network, layers, radius[config->layers], 1).moved;
  return HARK_OK;
}

/* Largest norm over its bound, of all matrices. */
static hark_status largest_norm(const model *m, double *out) {
  *out = 0;
  for (int32_t i = 0; i < m->network->parameters.count; i++) {
    const hark_parameter *const parameter = &m->network->parameters.list[i];
    const hark_norm_bound *const bound = &parameter->spec.bound;
    const int64_t rows = parameter->spec.shape[0], in = parameter->spec.shape[1];
    double *numbers, *scratch;
    HARK_TRY(hark_lab_numbers(m->lab, rows * in, &numbers));
    HARK_TRY(hark_lab_numbers(m->lab, (int64_t)hark_norm_bound_scratch(rows, in), &scratch));
    HARK_TRY(hark_tensor_read(m->lab->context, &parameter->weight, numbers));
    *out = hark_lab_larger(*out, hark_operator_norm(bound->norm, rows, in, numbers, scratch) / bound->operator_norm);
    if (bound->matrix_norm > 0) *out = hark_lab_larger(*out, hark_matrix_norm(bound->norm, rows, in, numbers) / bound->matrix_norm);
  }
  return HARK_OK;
}

/* Tokens in the unit ball of the norm: each over its norm where that is above 1. */
static hark_status draw_tokens(const model *m, double *tokens) {
  hark_lab_normal(m->lab, TOKEN_STREAM, m->length * WIDTH, tokens);
  for (int64_t l = 0; l < m->length; l++) {
    const double size = row_size(m, 1, tokens + l * WIDTH);
    for (int i = 0; size > 1 && i < WIDTH; i++) tokens[l * WIDTH + i] /= size;
  }
  return HARK_OK;
}

/* Weights W + x (V - W), both of the class, which is convex: each matrix moves by at most 2 x times its bound. *out <- the change of the
 * output. */
static hark_status move_weights(const model *m, uint64_t seed, const double *tokens, const double *plain, double *out) {
  hark_lab *const lab = m->lab;
  hark_parameters *const parameters = &m->network->parameters;
  const int64_t count = hark_tensor_count(&parameters->weights);
  double *weights, *others, moved[RESPONSES];
  HARK_TRY(hark_lab_numbers(lab, count, &weights));
  HARK_TRY(hark_lab_numbers(lab, count, &others));
  HARK_TRY(hark_tensor_read(lab->context, &parameters->weights, weights));
  HARK_TRY(hark_parameters_initialise(lab->context, parameters, seed));
  HARK_TRY(hark_bound_press(lab, parameters, SIZE));
  HARK_TRY(hark_tensor_read(lab->context, &parameters->weights, others));
  for (int64_t i = 0; i < count; i++) others[i] = weights[i] + STEP * (others[i] - weights[i]);
  HARK_TRY(hark_tensor_write(lab->context, &parameters->weights, others));
  HARK_TRY(pass_network(m, m->length, tokens, moved));
  *out = difference(plain, moved);
  return hark_tensor_write(lab->context, &parameters->weights, weights);
}

/* Seeds of the weights: two for each draw, W and V. */
static uint64_t seed_of(const hark_lab *lab, int draw, int which) {
  const hark_random_stream stream = hark_lab_stream(lab, SEED_STREAM);
  uint32_t words[4];
  hark_random_words(&stream, (uint64_t)draw, words);
  return (uint64_t)words[which == 0 ? 0 : 2] << 32 | words[which == 0 ? 1 : 3];
}

static void keep_larger(double *largest, double value) { *largest = hark_lab_larger(*largest, value); }

/* Adds one draw of the weights to the row. */
static hark_status measure_model(model *m, int draw, double *row) {
  hark_lab *const lab = m->lab;
  double all_moved, norm, moved, *tokens, *others, *uniform, *radius, plain[RESPONSES], formula[RESPONSES], other[RESPONSES],
      sums[2][RESPONSES];
  const int64_t length = m->length, layers = m->network->config.layers;
  HARK_TRY(hark_lab_numbers(lab, length * WIDTH, &tokens));
  HARK_TRY(hark_lab_numbers(lab, 2 * length * WIDTH, &others));
  HARK_TRY(hark_lab_numbers(lab, length, &uniform));
  HARK_TRY(hark_lab_numbers(lab, layers + 1, &radius));
  HARK_TRY(hark_parameters_initialise(lab->context, &m->network->parameters, seed_of(lab, draw, 0)));
  HARK_TRY(hark_bound_press(lab, &m->network->parameters, SIZE));
  HARK_TRY(draw_tokens(m, tokens));
  HARK_TRY(class_terms(m, radius, &all_moved));
  HARK_TRY(pass_network(m, length, tokens, plain));
  HARK_TRY(pass_formula(m, length, tokens, radius, false, formula));
  HARK_TRY(pass_formula(m, length, tokens, radius, true, sums[0]));
  memcpy(others, tokens, (size_t)(length * WIDTH) * sizeof *others);
  memcpy(others + length * WIDTH, tokens, (size_t)(length * WIDTH) * sizeof *others);
  HARK_TRY(pass_network(m, 2 * length, others, other));
  HARK_TRY(pass_formula(m, 2 * length, others, radius, true, sums[1]));
  keep_larger(&row[FORMULA], difference(plain, formula));
  keep_larger(&row[TWICE], difference(plain, other));
  row[ALIVE] += difference(plain, (const double[RESPONSES]){0}) > 0;
  const double size = difference(sums[0], (const double[RESPONSES]){0});
  const double sum = size > 0 ? difference(sums[0], sums[1]) / size : row[SUM];
  if (row[SUM] == 0 || fabs(sum - 1) > fabs(row[SUM] - 1)) row[SUM] = sum; /* the draw that is farthest from doubling */
  hark_lab_uniform(lab, ORDER_STREAM, length, uniform);
  for (int64_t l = 0; l < length; l++) { /* Fisher, Yates */
    const int64_t at = (int64_t)(uniform[l] * (double)(l + 1));
    memmove(others + l * WIDTH, others + at * WIDTH, WIDTH * sizeof *others);
    memcpy(others + at * WIDTH, tokens + l * WIDTH, WIDTH * sizeof *others);
  }
  HARK_TRY(pass_network(m, length, others, other));
  keep_larger(&row[ORDER], difference(plain, other));
  row[SIZE_RATIO] = m->size;
  HARK_TRY(largest_norm(m, &norm));
  HARK_TRY(move_weights(m, seed_of(lab, draw, 1), tokens, plain, &moved));
  keep_larger(&row[BOUNDS], norm);
  keep_larger(&row[MOVED], moved / (2 * STEP * all_moved));
  return HARK_OK;
}

static hark_network_config config_of(const hark_latent_config *latent, int64_t layers, int64_t heads, int64_t responses) {
  return (hark_network_config){.architecture = HARK_ARCHITECTURE_LATENT,
                               .vocabulary = 1,
                               .layers = layers,
                               .heads = heads,
                               .key_heads = heads,
                               .width = WIDTH,
                               .feed_forward_width = INNER,
                               .context = 1,
                               .activation = HARK_ACTIVATION_RELU,
                               .positions = HARK_POSITIONS_NONE,
                               .attention.kernel = HARK_KERNEL_RBF,
                               .attention.sigma = sqrt(hark_latent_sigma_square(WIDTH / heads)),
                               .features = WIDTH,
                               .responses = responses,
                               .latent = *latent};
}

static hark_status measure_config(hark_lab *lab, hark_lab_table *table, const hark_latent_config *latent, int64_t layers) {
  const hark_network_config config = config_of(latent, layers, HEADS, RESPONSES);
  model m = {.lab = lab, .length = lab->quick ? 12 : 48};
  double row[COLUMNS] = {[FORM] = latent->form,
                         [LAYERS_COLUMN] = (double)layers,
                         [SKIPS] = latent->skip,
                         [AGGREGATE] = latent->aggregate,
                         [NORM] = latent->norm};
  HARK_TRY(hark_lab_numbers(lab, 2 * m.length * WIDTH, &m.x));
  HARK_TRY(hark_lab_numbers(lab, 2 * m.length * WIDTH, &m.z));
  HARK_TRY(hark_lab_numbers(lab, 2 * m.length * INNER, &m.inner));
  HARK_TRY(hark_network_create(lab->context, &config, HARK_F64, false, &m.network));
  hark_status status = HARK_OK;
  for (int draw = 0; draw < DRAWS && status == HARK_OK; draw++) status = measure_model(&m, draw, row);
  hark_network_destroy(lab->context, &m.network);
  return status == HARK_OK ? hark_lab_add_row(lab, table, row) : status;
}

/* ---- the laboratory's own network ---- */

/* latent_network.h with the weights of the model's form `single`, one head and one number: f = t there, and the ball cuts t here. */
static hark_status run_laboratory(const model *m, const double *tokens, double *out) {
  static const char *const names[HARK_LAB_WEIGHTS] = {"features.weight", "aggregate.heads.0.query.weight", "aggregate.heads.0.key.weight",
                                                      "aggregate.heads.0.value.weight", "head.weight"};
  const double range = m->network->config.latent.range;
  hark_lab_network network = {.dim = WIDTH,
                              .width = WIDTH,
                              .head_dim = WIDTH,
                              .value_dim = WIDTH,
                              .length = m->length,
                              .most = 1,
                              .variance = hark_latent_sigma_square(WIDTH),
                              .feature_scale = 1,
                              .output_scale = 1,
                              .unbounded = true};
  double *weights, *encoding;
  HARK_TRY(hark_lab_make_network(m->lab, &network));
  HARK_TRY(hark_lab_numbers(m->lab, network.weights, &weights));
  for (int w = 0; w < HARK_LAB_WEIGHTS; w++) {
    const hark_lab_place place = hark_lab_weight_place(&network, (hark_lab_weight)w);
    double *matrix;
    HARK_TRY(matrix_of(m, names[w], &matrix));
    memcpy(weights + place.first, matrix, (size_t)(place.rows * place.columns) * sizeof *weights);
  }
  HARK_TRY(matrix_of(m, "aggregate.class.weight", &encoding));
  const hark_lab_sequences one = {.count = 1, .tokens = tokens, .masks = encoding, .one_mask = true};
  HARK_TRY(hark_lab_network_forward(m->lab->context, &network, &one, weights));
  *out = hark_larger(-range, hark_smaller(network.f[0], range));
  return HARK_OK;
}

static hark_status compare_laboratory(const model *m, int draw, double *row) {
  double *tokens, model_says, laboratory_says;
  HARK_TRY(hark_parameters_initialise(m->lab->context, &m->network->parameters, seed_of(m->lab, draw, 0)));
  HARK_TRY(hark_lab_numbers(m->lab, m->length * WIDTH, &tokens));
  HARK_TRY(draw_tokens(m, tokens));
  HARK_TRY(pass_network(m, m->length, tokens, &model_says));
  HARK_TRY(run_laboratory(m, tokens, &laboratory_says));
  keep_larger(&row[L_LARGEST], fabs(model_says));
  keep_larger(&row[L_DIFFERENCE], fabs(model_says - laboratory_says));
  row[L_ALIVE] += model_says != 0;
  return HARK_OK;
}

static hark_status measure_laboratory(hark_lab *lab, hark_lab_table *table, const hark_latent_config *latent, int64_t length) {
  const hark_network_config config = config_of(latent, 1, 1, 1);
  model m = {.lab = lab, .length = length};
  double row[LABORATORY_COLUMNS] = {[L_NORM] = latent->norm, [L_TOKENS] = (double)length};
  HARK_TRY(hark_network_create(lab->context, &config, HARK_F64, false, &m.network));
  hark_status status = HARK_OK;
  for (int draw = 0; draw < DRAWS && status == HARK_OK; draw++) status = compare_laboratory(&m, draw, row);
  hark_network_destroy(lab->context, &m.network);
  return status == HARK_OK ? hark_lab_add_row(lab, table, row) : status;
}

static hark_status measure(hark_lab *lab) {
  const int64_t most = lab->quick ? 2 : 4;
  hark_lab_table *table;
  HARK_TRY(hark_lab_add_table(lab, "networks with bounded matrices on tokens in the unit ball", columns, COLUMNS, &table));
  for (int norm = HARK_BOUND_ONE; norm <= HARK_BOUND_INFINITY; norm++) {
    hark_latent_config latent = {
        .norm = norm, .operator_norm = OPERATOR_BOUND, .matrix_norm = MATRIX_BOUND, .range = 0.5, .form = HARK_LATENT_FORM_SINGLE};
    HARK_TRY(measure_config(lab, table, &latent, 1));
    latent.form = HARK_LATENT_FORM_TRANSFORMER;
    for (int64_t layers = 1; layers <= most; layers *= 2)
      for (int skip = 0; skip < 2; skip++)
        for (int aggregate = HARK_LATENT_AGGREGATE_QUERY; aggregate <= HARK_LATENT_AGGREGATE_MEAN; aggregate++) {
          latent.skip = skip == 1;
          latent.aggregate = aggregate;
          HARK_TRY(measure_config(lab, table, &latent, layers));
        }
  }
  HARK_TRY(hark_lab_add_table(lab, "networks that experiments train (latent_network.h), compared with the form single of the model",
                              laboratory_columns, LABORATORY_COLUMNS, &table));
  for (int norm = HARK_BOUND_ONE; norm <= HARK_BOUND_INFINITY; norm++) {
    const hark_latent_config latent = {
        .norm = norm, .operator_norm = OPERATOR_BOUND, .matrix_norm = MATRIX_BOUND, .range = 0.5, .form = HARK_LATENT_FORM_SINGLE};
    for (int64_t length = 1; length <= 64; length *= 8) HARK_TRY(measure_laboratory(lab, table, &latent, length));
  }
  return HARK_OK;
}

/* Rows of layer 4 are of size (1 + 3)^4 (1 + 2.25)^4 at most, and sums of some dozen numbers in float64: differences are below 1e-10,
 * mostly 1e-15. A row's checks need only one draw whose output is not 0. After a layer of attention all rows are nearly equal, and such a
 * row switches six rectifiers off with probability 2^-6 per layer, more often where a projection leaves few numbers in a matrix (r = inf):
 * with a third of the draws at 0, all sixteen are 0 with probability 3^-16. */
static hark_status judge(hark_lab *lab) {
  const hark_lab_table *const table = &lab->tables[0];
  const double alive = hark_lab_smaller(hark_lab_column_range(table, ALIVE, HARK_LAB_ALONE).least,
                                        hark_lab_column_range(&lab->tables[1], L_ALIVE, HARK_LAB_ALONE).least);
  HARK_TRY(hark_lab_require(lab, alive, 1, DRAWS, "networks of 16 whose output is not 0, least over the rows"));
  HARK_TRY(hark_lab_require(lab, hark_lab_column_range(table, FORMULA, HARK_LAB_ALONE).largest, 0, 1e-10, "network minus formula"));
  HARK_TRY(hark_lab_require(lab, hark_lab_column_range(table, ORDER, HARK_LAB_ALONE).largest, 0, 1e-10, "tokens in another order"));
  HARK_TRY(hark_lab_require(lab, hark_lab_column_range(table, TWICE, HARK_LAB_ALONE).largest, 0, 1e-10, "every token twice"));
  HARK_TRY(hark_lab_require_range(lab, hark_lab_column_range(table, SUM, HARK_LAB_ALONE), 1 - 1e-9, 1 + 1e-9,
                                  "every token twice, rows summed, relative"));
  HARK_TRY(hark_lab_require(lab, hark_lab_column_range(table, SIZE_RATIO, HARK_LAB_ALONE).largest, 0, 1, "rows of a layer over R(t)"));
  HARK_TRY(hark_lab_require(lab, hark_lab_column_range(table, BOUNDS, HARK_LAB_ALONE).largest, 0, 1 + 1e-12, "norms over their bounds"));
  const hark_lab_range moved = hark_lab_column_range(table, MOVED, HARK_LAB_ALONE),
                       own = hark_lab_column_range(&lab->tables[1], L_DIFFERENCE, HARK_LAB_ALONE);
  HARK_TRY(hark_lab_require(lab, moved.largest, 1e-9, 1, "output moved by weights / what the covering number allows, largest"));
  return hark_lab_require(lab, own.largest, 0, 1e-12, "the laboratory's network of (5.1) minus the model's");
}

const hark_experiment hark_experiment_theorem_model = {
    .summary =
        "the trainer's bounded networks compute the theorems' formula, ignore order and repetition of tokens, and keep "
        "the bounds of rows and matrices",
    .paper = HARK_LAB_PAPER_X "sections 5.1 and C.1, (C.18)",
    .statement =
        "The model of `model.architecture latent` computes (C.1) to (C.5), or (5.1). Its output does not change if the "
        "tokens are reordered, or if every token is repeated. Rows of layer t have norms of at most R(t), the bound of "
        "(C.18). After a projection, all matrices satisfy the bounds of assumption C.3. If weights move, the output "
        "moves by at most the amount that is used for the covering number",
    .notes =
        "Every row of the table is about one kind of network. Sixteen networks of this kind are measured, each with "
        "newly drawn weights, and most columns have the largest of the sixteen measurements. The column `sum` has the "
        "one that is farthest from 1. The output of a network without skips may be 0 for all tokens. This happens "
        "because attention makes the vectors of all tokens nearly equal. If these vectors switch off all six "
        "rectifiers of a layer, the output of all later layers is 0. For such a network every difference is 0 and "
        "shows nothing. The last column counts the networks whose output is not 0. If this number is 0 in a row, a "
        "criterion fails.\n"
        "\n"
        "The weights are drawn far above their bounds and then projected. The form `single`, (5.1), has no layers of "
        "(C.4). In its rows of the table, T = 1 has no meaning, and the column `size` is 0, because the sizes of the "
        "tokens' vectors are not measured there. The column `r` has the norm that bounds the matrices: r in `|.|_(r,s)`. "
        "For the column `sum`, the vectors of the tokens are added, in place of the network's mean or class query. Then "
        "repeating every token doubles the output, so the relative change must be 1, and the aggregation is not "
        "1-Lipschitz. So assumption C.2 does not hold. The column `moved` measures the property on which covering "
        "numbers are based. Let W and V be two draws of the weights, and let x = .01. Then the weights W + x (V - W) "
        "satisfy the bounds too. They differ from W by at most 2 x = .02 times the bounds. The corrected covering number "
        "of the experiment `bound` contains a number M: if no matrix moves by more than e times its bound, the output "
        "moves by at most e M. Here e = 2 x, so the output must move by at most .02 M. Random directions are far from "
        "the worst direction, so the ratios are small.\n"
        "\n"
        "The experiments `generalisation`, `optimisation`, `decomposition` and `downstream` train small networks of "
        "(5.1) in float64. They use L-BFGS and projected Adam on plain vectors of weights. They do not use the "
        "trainer's model, because it lacks five things that they need:\n"
        "\n"
        "- the gradient of every single output, for `optimisation`;\n"
        "- training on thousands of sequences, each with its own mask;\n"
        "- widths of queries and values other than d_p and d;\n"
        "- factors 1 / sqrt(width) of features and output, with which wide networks become linear in their weights;\n"
        "- a smooth map of the output into Y = [-1/2, 1/2] (the model's projection onto a ball has a kink).\n"
        "\n"
        "Their attention is the same operator as in the trainer's model. The second table compares both kinds of "
        "networks, with the same weights.",
    .measure = measure,
    .judge = judge,
};
