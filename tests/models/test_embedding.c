/* test_embedding.c - post-norm stacks, token types, poolers and embeddings: published numbers, a plain computation from the definition,
 * gradients against differences, predictors, the same bits with any number of threads, refusals. */
#include <hark/hark.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/encoder.h"
#include "models/model.h"
#include "models/packed_batch.h"
#include "support/cmocka_all.h"
#include "support/setups.h"
#include "support/text_files.h"

#define VOCABULARY 7
#define TYPES 2
#define LONGEST 5
#define SEQUENCES 2
#define TOKENS 8 /* of both */
#define WIDTH 4
#define INNER 6
#define HEADS 2
#define LAYERS 2
#define CLASSES 3
#define MOST_WEIGHTS 64

static const int64_t lengths[SEQUENCES] = {3, 5};
static int32_t ids[TOKENS] = {1, 4, 2, 6, 0, 3, 5, 1}, types[TOKENS] = {0, 0, 1, 0, 1, 1, 0, 0};

#define BASE(place, norm_of_embeddings, number_of_types)                                                                                   \
  .architecture = HARK_ARCHITECTURE_ENCODER, .head = HARK_ENCODER_HEAD_EMBEDDING, .vocabulary = VOCABULARY, .layers = LAYERS,              \
  .heads = HEADS, .key_heads = HEADS, .width = WIDTH, .feed_forward_width = INNER, .context = LONGEST, .norm_epsilon = 1e-12,              \
  .positions = HARK_POSITIONS_LEARNED, .norm_place = (place), .embedding_norm = (norm_of_embeddings), .token_types = (number_of_types),    \
  .bias = true, .attention.sigma = 1, .rotary.base = 10000
#define BERT BASE(HARK_NORM_POST, true, TYPES)

static const struct {
  const char *name;
  hark_network_config config;
} variants[] = {
    {"mean", {BERT, .pooler = true, .pooling = HARK_POOLING_MEAN}},
    {"pooler", {BERT, .pooler = true, .pooling = HARK_POOLING_POOLER}},
    {"first_unit", {BERT, .pooling = HARK_POOLING_FIRST, .normalise = true, .activation = HARK_ACTIVATION_GELU_TANH}},
    {"pooler_unit_recompute", {BERT, .pooler = true, .pooling = HARK_POOLING_POOLER, .normalise = true, .recompute = true}},
    {"pre_norm", {BASE(HARK_NORM_PRE, true, TYPES), .pooling = HARK_POOLING_MEAN, .normalise = true}},
    {"no_embedding_norm_no_types", {BASE(HARK_NORM_POST, false, 0), .pooling = HARK_POOLING_MEAN}},
};
#define VARIANTS (sizeof variants / sizeof *variants)
enum { MEAN = 0, POOLER = 1 };

/* A network with a packed batch for it. */
typedef struct fixture {
  hark_context *context;
  hark_network *network;
  hark_attention_plan **plans;
  hark_tape *tape;
  hark_packed_batch batch;
  hark_example_batch host;
  int32_t positions[TOKENS];
  int64_t segments[TOKENS], ranges[2 * SEQUENCES];
} fixture;

static void open_network(fixture *f, hark_context *context, const hark_network_config *config, hark_type type) {
  *f = (fixture){.context = context};
  const hark_pass_sizes sizes = {.batch = 1, .queries = TOKENS, .keys = TOKENS, .sequences = SEQUENCES, .longest = LONGEST};
  const hark_packed_extents most = {.examples = SEQUENCES, .tokens = TOKENS, .parts = 1, .types = config->token_types > 0};
  assert_fine(context, hark_network_create(context, config, type, true, &f->network));
  assert_fine(context, hark_parameters_initialise(context, &f->network->parameters, 5));
  assert_fine(context, hark_network_plans_create(context, f->network, &sizes, true, &f->plans));
  assert_fine(context, hark_tape_create(context, &f->tape));
  assert_fine(context, hark_packed_batch_create(context, &most, true, &f->batch));
  f->host = (hark_example_batch){.rows = SEQUENCES,
                                 .tokens = TOKENS,
                                 .longest = LONGEST,
                                 .inputs = ids,
                                 .types = types,
                                 .positions = f->positions,
                                 .segments = f->segments,
                                 .ranges = f->ranges};
  for (int64_t s = 0, at = 0; s < SEQUENCES; s++) {
    f->ranges[2 * s] = at;
    for (int32_t i = 0; i < lengths[s]; i++, at++) {
      f->positions[at] = i;
      f->segments[at] = s;
    }
    f->ranges[2 * s + 1] = at;
  }
}

static void close_network(fixture *f) {
  hark_packed_batch_destroy(f->context, &f->batch);
  hark_tape_destroy(&f->tape);
  hark_network_plans_destroy(f->context, f->network, &f->plans);
  hark_network_destroy(f->context, &f->network);
}

/* The logits of a pass, or the embeddings. */
static hark_value pass(fixture *f, bool training, hark_forward *forward) {
  hark_network_input input = {.weight = 1};
  hark_value out = 0;
  *forward = (hark_forward){.tape = f->tape, .parameters = &f->network->parameters, .training = training, .seed = 17, .plans = f->plans};
  hark_tape_reset(f->tape);
  assert_fine(f->context, hark_packed_batch_write(f->context, &f->batch, &f->host));
  assert_fine(f->context, hark_packed_batch_begin(&f->batch, &f->host, forward, &input));
  assert_fine(f->context, f->network->architecture->logits(f->context, f->network, forward, &input, &out));
  return out;
}

static void embeddings_of(fixture *f, double *out) {
  hark_forward forward;
  assert_fine(f->context, hark_tensor_read(f->context, hark_tape_tensor(f->tape, pass(f, false, &forward)), out));
}

/* ---- published numbers ---- */

/* Weight j of parameter n: 0.8 sin(1.3 j + 0.7 n), in norms 1 more; parameters in the order of the published program. */
static void set_published_weights(fixture *f) {
  static const char *const front[] = {"embedding.token.weight", "embedding.position.weight", "embedding.type.weight",
                                      "embedding_norm.weight", "embedding_norm.bias"};
  static const char *const parts[] = {"attention.query", "attention.key",   "attention.value",   "attention.output",
                                      "attention_norm",  "feed_forward.up", "feed_forward.down", "feed_forward_norm"};
  enum { FRONT = 5, PARTS = 8, ALL = FRONT + LAYERS * 2 * PARTS + 2 };
  for (int n = 0; n < ALL; n++) {
    char name[HARK_PARAMETER_NAME_BYTES];
    double numbers[MOST_WEIGHTS];
    const int at = n - FRONT;
    if (n < FRONT)
      (void)snprintf(name, sizeof name, "%s", front[n]);
    else if (n >= ALL - 2)
      (void)snprintf(name, sizeof name, "pooler.%s", n == ALL - 2 ? "weight" : "bias");
    else
      (void)snprintf(name, sizeof name, "blocks.%d.%s.%s", at / (2 * PARTS), parts[at % (2 * PARTS) / 2], at % 2 == 0 ? "weight" : "bias");
    hark_parameter *const parameter = hark_parameters_find(&f->network->parameters, name);
    assert_non_null(parameter);
    assert_true(parameter->count <= MOST_WEIGHTS);
    const bool gain = strstr(name, "norm.weight") != NULL;
    for (int64_t j = 0; j < parameter->count; j++) numbers[j] = 0.8 * sin(1.3 * (double)j + 0.7 * n) + (gain ? 1 : 0);
    assert_fine(f->context, hark_tensor_write(f->context, &parameter->weight, numbers));
  }
}

/* BertModel of transformers 5.24 in float64: the mean of the last hidden states, and pooler_output. Printed with 15 digits. */
static void embeddings_are_the_published_ones(void **state) {
  (void)state;
  static const double published[2][SEQUENCES * WIDTH] = {
      [MEAN] = {0.0965205181692134, 2.55297410275308, -2.00818092611261, -0.497085007564393, 0.0813188332614189, 2.57503466205644,
                -2.11862932880227, -0.427224492121927},
      [POOLER] = {0.999378435880922, 0.851107216689096, -0.994800305664551, -0.998980829036419, 0.99899201197336, 0.781860934896418,
                  -0.994311556687848, -0.998312755208723}};
  for (int v = MEAN; v <= POOLER; v++) {
    hark_context *context = test_reference_open();
    fixture f;
    double out[SEQUENCES * WIDTH];
    open_network(&f, context, &variants[v].config, HARK_F64);
    set_published_weights(&f);
    embeddings_of(&f, out);
    for (int i = 0; i < SEQUENCES * WIDTH; i++)
      if (!(fabs(out[i] - published[v][i]) <= 1e-12))
        fail_msg("%s: number %d is %.15g, expected %.15g", variants[v].name, i, out[i], published[v][i]);
    close_network(&f);
    test_setup_close(context);
  }
}

/* ---- the definition ---- */

typedef struct definition {
  fixture *f;
  int64_t length;
  double x[LONGEST][WIDTH];
} definition;

static void read_weights(const fixture *f, const char *name, double out[MOST_WEIGHTS]) {
  const hark_parameter *const parameter = hark_parameters_find(&f->network->parameters, name);
  if (parameter == NULL) fail_msg("there is no %s", name);
  assert_fine(f->context, hark_tensor_read(f->context, &parameter->weight, out));
}

/* out = W in + b */
static void dense(const fixture *f, const char *name, int in_width, int out_width, const double *in, double *out) {
  double weight[MOST_WEIGHTS], bias[MOST_WEIGHTS];
  char full[HARK_PARAMETER_NAME_BYTES];
  (void)snprintf(full, sizeof full, "%s.weight", name);
  read_weights(f, full, weight);
  (void)snprintf(full, sizeof full, "%s.bias", name);
  read_weights(f, full, bias);
  for (int o = 0; o < out_width; o++) {
    out[o] = bias[o];
    for (int i = 0; i < in_width; i++) out[o] += weight[o * in_width + i] * in[i];
  }
}

static void norm(const fixture *f, const char *name, const double in[WIDTH], double out[WIDTH]) {
  double gain[MOST_WEIGHTS], bias[MOST_WEIGHTS], mean = 0, variance = 0;
  char full[HARK_PARAMETER_NAME_BYTES];
  (void)snprintf(full, sizeof full, "%s.weight", name);
  read_weights(f, full, gain);
  (void)snprintf(full, sizeof full, "%s.bias", name);
  read_weights(f, full, bias);
  for (int d = 0; d < WIDTH; d++) mean += in[d] / WIDTH;
  for (int d = 0; d < WIDTH; d++) variance += (in[d] - mean) * (in[d] - mean) / WIDTH;
  for (int d = 0; d < WIDTH; d++) out[d] = gain[d] * (in[d] - mean) / sqrt(variance + f->network->config.norm_epsilon) + bias[d];
}

static double activation(const fixture *f, double x) {
  if (f->network->config.activation == HARK_ACTIVATION_GELU_TANH)
    return x / 2 * (1 + tanh(sqrt(2 / acos(-1.0)) * (x + 0.044715 * x * x * x)));
  return x / 2 * (1 + erf(x / sqrt(2.0)));
}

static void embed(definition *s, int64_t first) {
  const hark_network_config *const config = &s->f->network->config;
  double token[MOST_WEIGHTS], position[MOST_WEIGHTS], type[MOST_WEIGHTS] = {0};
  read_weights(s->f, "embedding.token.weight", token);
  read_weights(s->f, "embedding.position.weight", position);
  if (config->token_types > 0) read_weights(s->f, "embedding.type.weight", type);
  for (int64_t l = 0; l < s->length; l++) {
    double sum[WIDTH];
    for (int d = 0; d < WIDTH; d++)
      sum[d] = token[ids[first + l] * WIDTH + d] + position[l * WIDTH + d] + type[types[first + l] * WIDTH + d];
    if (config->embedding_norm)
      norm(s->f, "embedding_norm", sum, s->x[l]);
    else
      memcpy(s->x[l], sum, sizeof sum);
  }
}

/* out[l] = output(softmax(q k / sqrt(head_dim)) v) of the rows `in`. */
static void attend(const definition *s, int layer, double in[LONGEST][WIDTH], double out[LONGEST][WIDTH]) {
  enum { Q, K, V, D = WIDTH / HEADS };
  static const char *const parts[] = {"query", "key", "value"};
  double rows[3][LONGEST][WIDTH], mixed[LONGEST][WIDTH] = {{0}};
  char name[HARK_PARAMETER_NAME_BYTES];
  for (int part = Q; part <= V; part++) {
    (void)snprintf(name, sizeof name, "blocks.%d.attention.%s", layer, parts[part]);
    for (int64_t l = 0; l < s->length; l++) dense(s->f, name, WIDTH, WIDTH, in[l], rows[part][l]);
  }
  for (int h = 0; h < HEADS; h++)
    for (int64_t l = 0; l < s->length; l++) {
      double weights[LONGEST], sum = 0;
      for (int64_t m = 0; m < s->length; m++) {
        double product = 0;
        for (int d = h * D; d < (h + 1) * D; d++) product += rows[Q][l][d] * rows[K][m][d];
        sum += weights[m] = exp(product / sqrt((double)D));
      }
      for (int64_t m = 0; m < s->length; m++)
        for (int d = h * D; d < (h + 1) * D; d++) mixed[l][d] += weights[m] / sum * rows[V][m][d];
    }
  (void)snprintf(name, sizeof name, "blocks.%d.attention.output", layer);
  for (int64_t l = 0; l < s->length; l++) dense(s->f, name, WIDTH, WIDTH, mixed[l], out[l]);
}

static void feed_forward(const definition *s, int layer, const double in[WIDTH], double out[WIDTH]) {
  double inner[INNER];
  char name[HARK_PARAMETER_NAME_BYTES];
  (void)snprintf(name, sizeof name, "blocks.%d.feed_forward.up", layer);
  dense(s->f, name, WIDTH, INNER, in, inner);
  for (int i = 0; i < INNER; i++) inner[i] = activation(s->f, inner[i]);
  (void)snprintf(name, sizeof name, "blocks.%d.feed_forward.down", layer);
  dense(s->f, name, INNER, WIDTH, inner, out);
}

/* Post: x = norm(x + f(x)); pre: x = x + f(norm(x)). */
static void block(definition *s, int layer) {
  const bool post = s->f->network->config.norm_place == HARK_NORM_POST;
  double normed[LONGEST][WIDTH], branch[LONGEST][WIDTH], sum[WIDTH];
  char first[HARK_PARAMETER_NAME_BYTES], second[HARK_PARAMETER_NAME_BYTES];
  (void)snprintf(first, sizeof first, "blocks.%d.attention_norm", layer);
  (void)snprintf(second, sizeof second, "blocks.%d.feed_forward_norm", layer);
  for (int64_t l = 0; l < s->length && !post; l++) norm(s->f, first, s->x[l], normed[l]);
  attend(s, layer, post ? s->x : normed, branch);
  for (int64_t l = 0; l < s->length; l++) {
    for (int d = 0; d < WIDTH; d++) sum[d] = s->x[l][d] + branch[l][d];
    if (post)
      norm(s->f, first, sum, s->x[l]);
    else
      memcpy(s->x[l], sum, sizeof sum);
    if (!post) norm(s->f, second, s->x[l], normed[l]);
    feed_forward(s, layer, post ? s->x[l] : normed[l], branch[l]);
    for (int d = 0; d < WIDTH; d++) sum[d] = s->x[l][d] + branch[l][d];
    if (post)
      norm(s->f, second, sum, s->x[l]);
    else
      memcpy(s->x[l], sum, sizeof sum);
  }
}

static void pool(definition *s, double out[WIDTH]) {
  const hark_network_config *const config = &s->f->network->config;
  double rows[LONGEST][WIDTH], pooled[WIDTH] = {0}, square = 0;
  for (int64_t l = 0; l < s->length; l++) {
    if (config->norm_place == HARK_NORM_PRE)
      norm(s->f, "final_norm", s->x[l], rows[l]);
    else
      memcpy(rows[l], s->x[l], sizeof rows[l]);
  }
  const int64_t count = config->pooling == HARK_POOLING_MEAN ? s->length : 1;
  for (int64_t l = 0; l < count; l++)
    for (int d = 0; d < WIDTH; d++) pooled[d] += rows[l][d] / (double)count;
  memcpy(out, pooled, sizeof pooled);
  if (config->pooling == HARK_POOLING_POOLER) {
    dense(s->f, "pooler", WIDTH, WIDTH, pooled, out);
    for (int d = 0; d < WIDTH; d++) out[d] = tanh(out[d]);
  }
  for (int d = 0; d < WIDTH; d++) square += out[d] * out[d];
  for (int d = 0; d < WIDTH && config->normalise; d++) out[d] /= sqrt(square);
}

/* Weights of the size of 1, so that every layer changes its input. */
static void enlarge(fixture *f) {
  hark_parameters *const parameters = &f->network->parameters;
  const int64_t total = parameters->weights.shape[0];
  double *const weights = malloc((size_t)total * sizeof *weights);
  assert_fine(f->context, hark_tensor_read(f->context, &parameters->weights, weights));
  for (int64_t i = 0; i < total; i++) weights[i] += 0.6 * sin(2.1 * (double)i);
  assert_fine(f->context, hark_tensor_write(f->context, &parameters->weights, weights));
  free(weights);
}

static void networks_agree_with_the_definition(void **state) {
  (void)state;
  for (size_t v = 0; v < VARIANTS; v++) {
    hark_context *context = test_reference_open();
    fixture f;
    double out[SEQUENCES * WIDTH], expected[WIDTH];
    open_network(&f, context, &variants[v].config, HARK_F64);
    enlarge(&f);
    embeddings_of(&f, out);
    for (int64_t s = 0, first = 0; s < SEQUENCES; first += lengths[s++]) {
      definition plain = {.f = &f, .length = lengths[s]};
      embed(&plain, first);
      for (int layer = 0; layer < LAYERS; layer++) block(&plain, layer);
      pool(&plain, expected);
      for (int d = 0; d < WIDTH; d++)
        if (!(fabs(out[s * WIDTH + d] - expected[d]) <= 1e-12))
          fail_msg("%s, sequence %lld: %.15g, by the definition %.15g", variants[v].name, (long long)s, out[s * WIDTH + d], expected[d]);
    }
    close_network(&f);
    test_setup_close(context);
  }
}

/* ---- gradients ---- */

/* The squared distance of all results from 0.3, or of classes and tokens their cross entropy. */
static double loss_of(fixture *f, bool backward) {
  hark_forward forward;
  const hark_value out = pass(f, true, &forward);
  hark_value target = 0, loss = 0;
  hark_tensor targets;
  double number = 0, goal[TOKENS * WIDTH];
  const bool embeds =
      f->network->architecture == hark_architecture_of(HARK_ARCHITECTURE_ENCODER) && f->network->config.head == HARK_ENCODER_HEAD_EMBEDDING;
  const hark_tensor *const tensor = hark_tape_tensor(f->tape, out);
  const int32_t classes[TOKENS] = {2, 0, 1, 1, 2, 0, 1, 0};
  for (int i = 0; i < TOKENS * WIDTH; i++) goal[i] = 0.3;
  assert_fine(f->context, hark_tensor_create(f->context, embeds ? HARK_F64 : HARK_I32, embeds ? tensor->rank : tensor->rank - 1,
                                             tensor->shape, &targets));
  assert_fine(f->context, hark_tensor_write(f->context, &targets, embeds ? (const void *)goal : classes));
  assert_fine(f->context, hark_tape_leaf(f->tape, &targets, NULL, &target));
  if (embeds)
    assert_fine(f->context, hark_network_squared_error(f->tape, out, target, 0.5, &loss));
  else
    assert_fine(f->context, hark_network_loss(f->tape, out, target, (hark_target_loss){.weight = 0.5}, &loss));
  if (backward) {
    hark_tensor gradients = f->network->parameters.gradients;
    assert_fine(f->context, hark_tensor_zero(f->context, &gradients));
    assert_fine(f->context, hark_tape_backward(f->tape, loss, 1.0));
  }
  assert_fine(f->context, hark_tensor_read(f->context, hark_tape_tensor(f->tape, loss), &number));
  hark_tensor_destroy(f->context, &targets);
  return number;
}

/* Four-point differences as in test_encoder.c. */
static double difference(fixture *f, double *weights, int64_t i) {
  const double h = 1e-4, before = weights[i], steps[4] = {-2 * h, -h, h, 2 * h};
  double at[4];
  for (int k = 0; k < 4; k++) {
    weights[i] = before + steps[k];
    assert_fine(f->context, hark_tensor_write(f->context, &f->network->parameters.weights, weights));
    at[k] = loss_of(f, false);
  }
  weights[i] = before;
  assert_fine(f->context, hark_tensor_write(f->context, &f->network->parameters.weights, weights));
  return (8 * (at[2] - at[1]) - (at[3] - at[0])) / (12 * h);
}

static void check_gradients(const char *name, const hark_network_config *config) {
  hark_context *context = test_reference_open();
  fixture f;
  open_network(&f, context, config, HARK_F64);
  enlarge(&f);
  const int64_t total = f.network->parameters.weights.shape[0];
  double *const weights = malloc((size_t)total * sizeof *weights), *const gradients = malloc((size_t)total * sizeof *gradients);
  assert_fine(context, hark_tensor_read(context, &f.network->parameters.weights, weights));
  (void)loss_of(&f, true);
  assert_fine(context, hark_tensor_read(context, &f.network->parameters.gradients, gradients));
  double largest = 0;
  for (int64_t i = 0; i < total; i++) largest = fmax(largest, fabs(gradients[i]));
  assert_true(largest > 1e-3);
  for (int64_t i = 0; i < total; i += i % 3 + 1) {
    const double expected = difference(&f, weights, i);
    if (!(fabs(gradients[i] - expected) <= 1e-6 * largest))
      fail_msg("%s: gradient %lld is %.10g, by differences %.10g", name, (long long)i, gradients[i], expected);
  }
  free(weights);
  free(gradients);
  close_network(&f);
  test_setup_close(context);
}

/* A relu of the head would have kinks: classes are predicted by a head without them in test_encoder.c. */
static void gradients_agree_with_differences(void **state) {
  (void)state;
  for (size_t v = 0; v < VARIANTS; v++) check_gradients(variants[v].name, &variants[v].config);
  hark_network_config masked = variants[MEAN].config;
  masked.architecture = HARK_ARCHITECTURE_MASKED_ENCODER;
  masked.head = HARK_ENCODER_HEAD_CLASSES;
  masked.pooler = false;
  masked.pooling = HARK_POOLING_CLASS;
  check_gradients("masked encoder", &masked);
  masked.recompute = true;
  masked.tie_embeddings = true;
  check_gradients("masked encoder with ties, recomputed", &masked);
}

/* ---- predictors ---- */

#define DESCRIPTION(rest)                                                                                                                  \
  "{\"model\": {\"type\": \"gpt\", \"layers\": 2, \"heads\": 2, \"key_heads\": 2, \"width\": 16, \"feed_forward_width\": 40, "             \
  "\"context\": 24, \"activation\": \"gelu\", \"norm\": \"layer_norm\", \"norm_epsilon\": 1e-12, \"positions\": \"learned\", "             \
  "\"tie_embeddings\": true, \"bias\": true, \"rotary\": {\"base\": 10000, \"pairs\": \"half\"}, \"norm_place\": \"post\", "               \
  "\"embedding_norm\": true, \"attention\": {\"structure\": \"dense\", \"window\": 5, \"kernel\": \"exp\", \"sigma\": 1, "                 \
  "\"forget_gate\": false}, " rest "}}"
#define OF_BERT                                                                                                                            \
  DESCRIPTION("\"architecture\": \"encoder\", \"head\": \"embedding\", \"pooling\": \"mean\", \"pooler\": true, \"token_types\": 3")
#define OF_MASKED DESCRIPTION("\"architecture\": \"masked_encoder\"")
#define SIZE 16

static hark_model *make_model(hark_context *context, const char *description) {
  const hark_model_options options = {.struct_size = sizeof options, .description = description, .description_bytes = strlen(description)};
  hark_model *model = NULL;
  assert_fine(context, hark_model_create(context, &options, 3, &model));
  return model;
}

enum { LINES = 5, ALL = 60 };
static const int64_t offsets[LINES + 1] = {0, 24, 25, 40, 43, 60};

static hark_prediction_input input_of(const int32_t *tokens, const int32_t *of_types) {
  return (hark_prediction_input){
      .struct_size = sizeof(hark_prediction_input), .examples = LINES, .offsets = offsets, .tokens = tokens, .types = of_types};
}

static hark_status predict(hark_context *context, const hark_model *model, hark_embedding embedding, int normalise, const int32_t *of_types,
                           float out[LINES * SIZE]) {
  const hark_predictor_options options = {
      .struct_size = sizeof options, .examples = LINES, .tokens = ALL, .embedding = embedding, .normalise = normalise};
  int32_t tokens[ALL];
  hark_predictor *predictor = NULL;
  for (int i = 0; i < ALL; i++) tokens[i] = 5 + i * 7 % 250;
  HARK_TRY(hark_predictor_create(context, model, &options, &predictor));
  const hark_prediction_input input = input_of(tokens, of_types);
  const hark_status status = hark_predictor_run(predictor, &input, out, LINES * SIZE);
  hark_predictor_destroy(&predictor);
  return status;
}

static double length_of(const float *row) {
  double sum = 0;
  for (int d = 0; d < SIZE; d++) sum += (double)row[d] * (double)row[d];
  return sqrt(sum);
}

/* The model's own pooling is what a request for it gives; a normalised embedding is the other one divided by its length. */
static void predictors_embed(void **state) {
  (void)state;
  hark_context *context = test_reference_open();
  static const char *const descriptions[] = {OF_BERT, OF_MASKED};
  for (int i = 0; i < 2; i++) {
    hark_model *model = make_model(context, descriptions[i]);
    float own[LINES * SIZE], mean[LINES * SIZE], first[LINES * SIZE], unit[LINES * SIZE];
    assert_fine(context, predict(context, model, HARK_EMBEDDING_MODEL, 0, NULL, own));
    assert_fine(context, predict(context, model, HARK_EMBEDDING_MEAN, -1, NULL, mean));
    assert_fine(context, predict(context, model, HARK_EMBEDDING_FIRST, 0, NULL, first));
    assert_fine(context, predict(context, model, HARK_EMBEDDING_MEAN, 1, NULL, unit));
    assert_memory_equal(own, mean, sizeof own);
    assert_memory_not_equal(own, first, sizeof own);
    assert_memory_equal(&mean[SIZE], &first[SIZE], SIZE * sizeof *mean); /* the line of one token */
    for (int l = 0; l < LINES; l++)
      for (int d = 0; d < SIZE; d++)
        assert_true(fabs((double)unit[l * SIZE + d] - (double)mean[l * SIZE + d] / length_of(&mean[l * SIZE])) <= 1e-6);
    hark_model_destroy(context, &model);
  }
  test_setup_close(context);
}

/* A pair has the embeddings of both of its sequences, each of length 1 if that is requested. */
static void pairs_are_embedded_like_single_sequences(void **state) {
  (void)state;
  enum { PAIRS = 2, SEQUENCES_OF_PAIRS = 4 };
  static const hark_embedding kinds[] = {HARK_EMBEDDING_MODEL, HARK_EMBEDDING_FIRST, HARK_EMBEDDING_POOLER};
  hark_context *context = test_reference_open();
  hark_model *single = make_model(context, OF_BERT);
  hark_model *pairs = make_model(context, DESCRIPTION("\"architecture\": \"encoder\", \"head\": \"embedding\", \"pooling\": \"mean\", "
                                                      "\"pooler\": true, \"token_types\": 3, \"parts\": 2"));
  int32_t tokens[ALL];
  for (int i = 0; i < ALL; i++) tokens[i] = 5 + i * 7 % 250;
  for (int k = 0; k < 3; k++)
    for (int normalise = -1; normalise <= 1; normalise += 2) {
      float expected[LINES * SIZE], both[SEQUENCES_OF_PAIRS * SIZE];
      const hark_predictor_options options = {
          .struct_size = sizeof options, .examples = PAIRS, .tokens = ALL, .embedding = kinds[k], .normalise = normalise};
      hark_prediction_input input = input_of(tokens, NULL);
      hark_predictor *predictor = NULL;
      input.examples = PAIRS;
      assert_fine(context, predict(context, single, kinds[k], normalise, NULL, expected));
      assert_fine(context, hark_predictor_create(context, pairs, &options, &predictor));
      assert_fine(context, hark_predictor_run(predictor, &input, both, SEQUENCES_OF_PAIRS * SIZE));
      hark_predictor_destroy(&predictor);
      for (int i = 0; i < SEQUENCES_OF_PAIRS * SIZE; i++) assert_true(fabs((double)both[i] - (double)expected[i]) <= 1e-6);
    }
  hark_model_destroy(context, &pairs);
  hark_model_destroy(context, &single);
  test_setup_close(context);
}

/* Without a request, an encoder of embeddings predicts them. Types of 0 are those that are not given, others change the result. */
static void types_and_plain_predictions(void **state) {
  (void)state;
  hark_context *context = test_reference_open();
  hark_model *model = make_model(context, OF_BERT);
  hark_prediction_shape shape = {.struct_size = sizeof shape};
  float own[LINES * SIZE], other[LINES * SIZE];
  int32_t of_types[ALL] = {0};
  assert_fine(context, hark_predictor_shape(model, &shape));
  assert_int_equal(shape.outputs, SIZE);
  assert_false(shape.of_tokens);
  assert_fine(context, predict(context, model, HARK_EMBEDDING_MODEL, 0, NULL, own));
  assert_fine(context, predict(context, model, HARK_EMBEDDING_NONE, 0, of_types, other));
  assert_memory_equal(own, other, sizeof own);
  of_types[30] = 2; /* of the third line */
  assert_fine(context, predict(context, model, HARK_EMBEDDING_MODEL, 0, of_types, other));
  for (int l = 0; l < LINES; l++) assert_true((memcmp(&own[l * SIZE], &other[l * SIZE], SIZE * sizeof *own) != 0) == (l == 2));
  of_types[30] = 3;
  assert_failure(context, predict(context, model, HARK_EMBEDDING_MODEL, 0, of_types, other), HARK_INVALID_ARGUMENT,
                 "the type of token 30 is 3, expected 0 to 2");
  hark_model_destroy(context, &model);
  test_setup_close(context);
}

static void what_cannot_be_embedded_is_refused(void **state) {
  (void)state;
  static const int32_t of_types[ALL] = {0};
  hark_context *context = test_reference_open();
  hark_model *model = make_model(context, OF_MASKED);
  float out[LINES * SIZE];
  assert_failure(context, predict(context, model, HARK_EMBEDDING_POOLER, 0, NULL, out), HARK_INVALID_ARGUMENT, "the model has no pooler");
  assert_failure(context, predict(context, model, HARK_EMBEDDING_MEAN, 0, of_types, out), HARK_INVALID_ARGUMENT, "the model has none");
  assert_failure(context, predict(context, model, HARK_EMBEDDING_NONE, 1, NULL, out), HARK_INVALID_ARGUMENT,
                 "predictor: normalise is 1, and no embedding is computed, expected 0");
  assert_failure(context, predict(context, model, (hark_embedding)99, 0, NULL, out), HARK_INVALID_ARGUMENT,
                 "predictor: embedding is 99, expected one of hark_embedding");
  assert_failure(context, predict(context, model, (hark_embedding)-1, 0, NULL, out), HARK_INVALID_ARGUMENT, "predictor: embedding is -1");
  hark_model_destroy(context, &model);
  model = make_model(context,
                     "{\"model\": {\"type\": \"gpt\", \"architecture\": \"ahca\", \"layers\": 2, \"heads\": 2, \"key_heads\": 2, "
                     "\"width\": 16, \"feed_forward_width\": 40, \"context\": 24, \"activation\": \"gelu\", \"classes\": 3, \"ahca\": "
                     "{\"chunk\": \"fixed\", \"chunk_size\": 4, \"chunk_minimum\": 2, \"chunk_maximum\": 6, \"window\": 2, "
                     "\"primary_slots\": 2, \"secondary_slots\": 5, \"selected\": 2, \"capacity\": 1}, "
                     "\"norm\": \"layer_norm\", \"norm_epsilon\": 1e-5, \"positions\": \"learned\", \"tie_embeddings\": false, "
                     "\"bias\": true, \"rotary\": {\"base\": 10000, \"pairs\": \"half\"}, \"attention\": {\"structure\": "
                     "\"dense\", \"window\": 5, \"kernel\": \"exp\", \"sigma\": 1, \"forget_gate\": false}}}");
  assert_failure(context, predict(context, model, HARK_EMBEDDING_MEAN, 0, NULL, out), HARK_UNSUPPORTED, "this is ahca");
  hark_model_destroy(context, &model);
  test_setup_close(context);
}

/* Work is divided by sizes. Between backends and instruction sets results agree up to some hundred roundings of numbers of order 1. */
static void threads_give_the_same_bits(void **state) {
  (void)state;
  test_setup setups[TEST_MAX_SETUPS];
  float reference[LINES * SIZE] = {0};
  const int count = test_setups(setups);
  for (int s = 0; s < count; s++) {
    float one[LINES * SIZE], more[LINES * SIZE];
    for (int threads = 1; threads <= 3; threads++) {
      hark_context *context = test_setup_open(&setups[s], threads);
      hark_model *model = make_model(context, OF_BERT);
      assert_fine(context, predict(context, model, HARK_EMBEDDING_MODEL, 1, NULL, threads == 1 ? one : more));
      if (threads > 1) assert_memory_equal(one, more, sizeof one);
      hark_model_destroy(context, &model);
      test_setup_close(context);
    }
    if (s == 0) memcpy(reference, one, sizeof one);
    for (int i = 0; i < LINES * SIZE; i++) assert_true(fabs((double)one[i] - (double)reference[i]) <= 2e-5);
  }
}

/* ---- models that cannot be ---- */

static void rules_of_embeddings(void **state) {
  (void)state;
  hark_context *context = test_reference_open();
  struct {
    hark_network_config config;
    const char *message;
  } cases[] = {{variants[MEAN].config, "model.head embedding predicts no classes: there are 3, expected 0"},
               {variants[POOLER].config, "model.pooling pooler needs model.pooler"},
               {variants[POOLER].config, "model.pooling pooler reads one sequence per example, the data have 2"},
               {variants[MEAN].config, "model.token_types needs model.architecture encoder or masked_encoder"},
               {variants[MEAN].config, "model.normalise needs model.head embedding"}};
  cases[0].config.classes = CLASSES;
  cases[1].config.pooler = false;
  cases[2].config.parts = 2;
  cases[3].config.architecture = HARK_ARCHITECTURE_DECODER;
  cases[3].config.pooler = false;
  cases[4].config.head = HARK_ENCODER_HEAD_CLASSES;
  cases[4].config.classes = CLASSES;
  cases[4].config.normalise = true;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    hark_network *network = NULL;
    assert_failure(context, hark_network_declare(context, &cases[i].config, HARK_F32, &network), HARK_BAD_CONFIGURATION, cases[i].message);
  }
  test_setup_close(context);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(embeddings_are_the_published_ones),
      cmocka_unit_test(networks_agree_with_the_definition),
      cmocka_unit_test(gradients_agree_with_differences),
      cmocka_unit_test(predictors_embed),
      cmocka_unit_test(types_and_plain_predictions),
      cmocka_unit_test(what_cannot_be_embedded_is_refused),
      cmocka_unit_test(threads_give_the_same_bits),
      cmocka_unit_test(rules_of_embeddings),
      cmocka_unit_test(pairs_are_embedded_like_single_sequences),
  };
  return cmocka_run_group_tests_name("embedding", tests, NULL, NULL);
}
