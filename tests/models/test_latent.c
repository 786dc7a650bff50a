/* test_latent.c - the models of real vectors, latent and finite: forward against the formulas of the paper in f64, gradients against
 * differences, an example with others beside it and alone, bounds after projection, refusals. */
#include <hark/hark.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/latent.h"
#include "support/cmocka_all.h"
#include "support/setups.h"
#include "support/text_files.h"

#define FEATURES 4
#define RESPONSES 2
#define LONGEST 7
#define EXAMPLES 6
#define TOKENS_LIMIT (EXAMPLES * LONGEST)
#define WIDEST 8

typedef struct variant {
  const char *name;
  hark_network_config config;
} variant;

#define BASE(kind, layer_count, head_count, similarity)                                                                                    \
  .architecture = HARK_ARCHITECTURE_##kind, .vocabulary = 6, .layers = (layer_count), .heads = (head_count), .key_heads = (head_count),    \
  .width = FEATURES, .feed_forward_width = 6, .context = LONGEST, .norm_epsilon = 1e-5, .positions = HARK_POSITIONS_NONE,                  \
  .features = FEATURES, .responses = RESPONSES, .activation = HARK_ACTIVATION_RELU, .attention.kernel = HARK_KERNEL_##similarity,          \
  .attention.sigma = 1.25
#define BOUNDS .norm = HARK_BOUND_TWO, .operator_norm = 3, .matrix_norm = 3

static const variant variants[] = {
    {"single", {BASE(LATENT, 1, 2, RBF), .latent = {.form = HARK_LATENT_FORM_SINGLE, BOUNDS}}},
    {"single_ball", {BASE(LATENT, 1, 2, RBF), .latent = {.form = HARK_LATENT_FORM_SINGLE, BOUNDS, .range = 0.05}}},
    {"transformer_skip_query", {BASE(LATENT, 2, 2, RBF), .latent = {.skip = true, BOUNDS}}},
    {"transformer_mean", {BASE(LATENT, 2, 2, RBF), .latent = {.aggregate = HARK_LATENT_AGGREGATE_MEAN, BOUNDS}}},
    {"one_head_exp", {BASE(LATENT, 1, 1, EXP), .latent = {.skip = true, BOUNDS}}},
    {"finite_linear", {BASE(FINITE, 1, 2, RBF), .finite = {.covariates = 3, .ridge = 0.5, .ridge_learned = true}}},
    {"finite_network_given_ridge", {BASE(FINITE, 1, 2, RBF), .finite = {.map = HARK_FINITE_MAP_NETWORK, .covariates = 5, .ridge = 0.25}}},
};
#define VARIANTS (sizeof variants / sizeof *variants)

static const int64_t lengths[EXAMPLES] = {5, 7, 1, 4, 2, 3};

/* A network, and a packed batch for it. */
typedef struct packed {
  hark_context *context;
  hark_network *network;
  hark_tape *tape;
  int64_t rows, tokens, longest;
  double vectors[TOKENS_LIMIT * FEATURES], responses[EXAMPLES * RESPONSES];
  int32_t positions[TOKENS_LIMIT];
  int64_t segments[TOKENS_LIMIT], ranges[2 * EXAMPLES];
  hark_tensor vectors_tensor, responses_tensor, positions_tensor, ranges_tensor;
  hark_packing packing;
} packed;

/* Uniform in [-.5, .5), a multiple of 2^-16, and so the same number in f32. */
static double number_at(int64_t place, uint64_t seed) {
  const hark_random_stream stream = {.seed = seed, .layer_purpose = hark_random_layer_purpose(0, HARK_RANDOM_TEST)};
  return (double)(hark_random_word(&stream, (uint64_t)place) >> 16) / 65536 - 0.5;
}

static void pack(packed *p, int64_t first, int64_t rows) {
  p->rows = rows;
  p->tokens = p->longest = 0;
  for (int64_t i = 0; i < rows; i++) {
    p->ranges[2 * i] = p->tokens;
    for (int64_t l = 0; l < lengths[first + i]; l++, p->tokens++) {
      for (int f = 0; f < FEATURES; f++) p->vectors[p->tokens * FEATURES + f] = number_at(((first + i) * LONGEST + l) * FEATURES + f, 3);
      p->positions[p->tokens] = (int32_t)l;
      p->segments[p->tokens] = i;
    }
    p->ranges[2 * i + 1] = p->tokens;
    p->longest = lengths[first + i] > p->longest ? lengths[first + i] : p->longest;
    for (int r = 0; r < RESPONSES; r++) p->responses[i * RESPONSES + r] = number_at((first + i) * RESPONSES + r, 4);
  }
}

static void open_network(packed *p, hark_context *context, const hark_network_config *config, hark_type type) {
  *p = (packed){.context = context};
  assert_fine(context, hark_network_create(context, config, type, true, &p->network));
  assert_fine(context, hark_parameters_initialise(context, &p->network->parameters, 5));
  assert_fine(context, hark_tape_create(context, &p->tape));
}

static void close_tensors(packed *p) {
  hark_tensor *const tensors[] = {&p->vectors_tensor, &p->responses_tensor, &p->positions_tensor, &p->ranges_tensor};
  for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) hark_tensor_destroy(p->context, tensors[i]);
}

static void close_network(packed *p) {
  close_tensors(p);
  hark_tape_destroy(&p->tape);
  hark_network_destroy(p->context, &p->network);
}

static void write_numbers(packed *p, int rank, const int64_t *shape, const double *numbers, hark_tensor *out) {
  const hark_type type = p->network->parameters.type;
  assert_fine(p->context, hark_tensor_create(p->context, type, rank, shape, out));
  float narrow[TOKENS_LIMIT * FEATURES];
  for (int64_t i = 0; i < hark_tensor_count(out); i++) narrow[i] = (float)numbers[i];
  assert_fine(p->context, hark_tensor_write(p->context, out, type == HARK_F64 ? (const void *)numbers : narrow));
}

static void write_batch(packed *p) {
  const int64_t vectors[] = {1, p->tokens, FEATURES}, responses[] = {p->rows, RESPONSES}, ranges[] = {p->rows, 1, 2};
  close_tensors(p);
  write_numbers(p, 3, vectors, p->vectors, &p->vectors_tensor);
  write_numbers(p, 2, responses, p->responses, &p->responses_tensor);
  assert_fine(p->context, hark_tensor_create(p->context, HARK_I32, 1, &p->tokens, &p->positions_tensor));
  assert_fine(p->context, hark_tensor_create(p->context, HARK_I64, 3, ranges, &p->ranges_tensor));
  assert_fine(p->context, hark_tensor_write(p->context, &p->positions_tensor, p->positions));
  assert_fine(p->context, hark_tensor_write(p->context, &p->ranges_tensor, p->ranges));
  p->packing = (hark_packing){.segments = p->segments, .positions = &p->positions_tensor, .longest = p->longest};
}

static hark_value outputs_value(packed *p, bool training) {
  const hark_forward forward = {.tape = p->tape, .parameters = &p->network->parameters, .training = training, .packing = &p->packing};
  hark_network_input input = {.ranges = &p->ranges_tensor};
  hark_value out = 0;
  hark_tape_reset(p->tape);
  assert_fine(p->context, hark_tape_leaf(p->tape, &p->vectors_tensor, NULL, &input.vectors));
  assert_fine(p->context, p->network->architecture->logits(p->context, p->network, &forward, &input, &out));
  return out;
}

static void read_value(const packed *p, hark_value value, double *out) {
  const hark_tensor *tensor = hark_tape_tensor(p->tape, value);
  float narrow[EXAMPLES * RESPONSES];
  if (tensor->type == HARK_F64) {
    assert_fine(p->context, hark_tensor_read(p->context, tensor, out));
    return;
  }
  assert_fine(p->context, hark_tensor_read(p->context, tensor, narrow));
  for (int64_t i = 0; i < hark_tensor_count(tensor); i++) out[i] = (double)narrow[i];
}

static void outputs_of(packed *p, double *out) {
  write_batch(p);
  read_value(p, outputs_value(p, false), out);
}

/* ---- the formulas ---- */

/* Numbers of a parameter in f64; returns the rows. */
static int64_t read_parameter(const packed *p, const char *name, double *out) {
  const hark_parameter *parameter = hark_parameters_find(&p->network->parameters, name);
  assert_non_null(parameter);
  assert_fine(p->context, hark_tensor_read(p->context, &parameter->weight, out));
  return parameter->spec.shape[0];
}

/* out [rows, w] <- x [rows, in] W'; returns w. */
static int64_t apply(const packed *p, const char *name, int64_t rows, int64_t in, const double *x, bool relu, double *out) {
  double weight[WIDEST * WIDEST];
  const int64_t w = read_parameter(p, name, weight);
  for (int64_t n = 0; n < rows; n++)
    for (int64_t o = 0; o < w; o++) {
      double sum = 0;
      for (int64_t i = 0; i < in; i++) sum += x[n * in + i] * weight[o * in + i];
      out[n * w + o] = relu ? fmax(sum, 0) : sum;
    }
  return w;
}

/* out [asking, d] += attention of one head, the kernel's values over their sum. */
static void attend(const packed *p, const char *prefix, int64_t asking, const double *from, int64_t rows, const double *x, double *out) {
  const hark_network_config *config = &p->network->config;
  double q[LONGEST * WIDEST], k[LONGEST * WIDEST], v[LONGEST * WIDEST];
  for (int64_t head = 0; head < config->heads; head++) {
    char name[96];
    (void)snprintf(name, sizeof name, "%s.heads.%lld.query.weight", prefix, (long long)head);
    const int64_t dim = apply(p, name, asking, FEATURES, from, false, q);
    (void)snprintf(name, sizeof name, "%s.heads.%lld.key.weight", prefix, (long long)head);
    (void)apply(p, name, rows, FEATURES, x, false, k);
    (void)snprintf(name, sizeof name, "%s.heads.%lld.value.weight", prefix, (long long)head);
    (void)apply(p, name, rows, FEATURES, x, false, v);
    for (int64_t n = 0; n < asking; n++) {
      double all = 0, sum[FEATURES] = {0};
      for (int64_t l = 0; l < rows; l++) {
        double square = 0, product = 0;
        for (int64_t i = 0; i < dim; i++) {
          square += (q[n * dim + i] - k[l * dim + i]) * (q[n * dim + i] - k[l * dim + i]);
          product += q[n * dim + i] * k[l * dim + i];
        }
        const double kernel = config->attention.kernel == HARK_KERNEL_RBF
                                  ? exp(-square / (2 * config->attention.sigma * config->attention.sigma))
                                  : exp(product / sqrt((double)dim));
        all += kernel;
        for (int f = 0; f < FEATURES; f++) sum[f] += kernel * v[l * FEATURES + f];
      }
      for (int f = 0; f < FEATURES; f++) out[n * FEATURES + f] += sum[f] / all;
    }
  }
}

/* C.1 - C.5, or 5.1. */
static void latent_by_hand(const packed *p, int64_t rows, const double *tokens, double *y) {
  const hark_latent_config *latent = &p->network->config.latent;
  const bool single = latent->form == HARK_LATENT_FORM_SINGLE;
  double x[LONGEST * WIDEST], z[LONGEST * WIDEST], inner[LONGEST * WIDEST], msk[FEATURES], pooled[FEATURES] = {0};
  memcpy(x, tokens, (size_t)(rows * FEATURES) * sizeof *x);
  if (single) (void)apply(p, "features.weight", rows, FEATURES, tokens, true, x);
  for (int64_t t = 0; !single && t < p->network->config.layers; t++) {
    char name[96], prefix[32];
    (void)snprintf(prefix, sizeof prefix, "blocks.%lld", (long long)t);
    (void)snprintf(name, sizeof name, "%s.feed_forward.up.weight", prefix);
    const int64_t width = apply(p, name, rows, FEATURES, x, true, inner);
    (void)snprintf(name, sizeof name, "%s.feed_forward.down.weight", prefix);
    (void)apply(p, name, rows, width, inner, false, z);
    for (int64_t i = 0; i < rows * FEATURES; i++) {
      z[i] += latent->skip ? x[i] : 0;
      x[i] = latent->skip ? z[i] : 0;
    }
    attend(p, prefix, rows, z, rows, z, x);
  }
  if (latent->aggregate == HARK_LATENT_AGGREGATE_QUERY) {
    (void)read_parameter(p, "aggregate.class.weight", msk);
    if (single) (void)apply(p, "features.weight", 1, FEATURES, msk, true, inner);
    attend(p, "aggregate", 1, single ? inner : msk, rows, x, pooled);
  } else {
    for (int64_t i = 0; i < rows * FEATURES; i++) pooled[i % FEATURES] += x[i] / (double)rows;
  }
  (void)apply(p, "head.weight", 1, FEATURES, pooled, false, y);
  const double length = sqrt(y[0] * y[0] + y[1] * y[1]);
  for (int r = 0; latent->range > 0 && length > latent->range && r < RESPONSES; r++) y[r] *= latent->range / length;
}

/* (3.10), (3.13) in the form of L equations: y = R'(CC' + lambda I)^-1 C q, by elimination. */
static void finite_by_hand(const packed *p, int64_t length, const double *tokens, double *y) {
  const hark_finite_config *finite = &p->network->config.finite;
  const int64_t rows = length - 1;
  const char *const names[] = {"covariate", "response", "query"};
  double maps[3][LONGEST * WIDEST], inner[LONGEST * WIDEST], system[LONGEST * (LONGEST + 1)], ridge = log(finite->ridge);
  for (int m = 0; m < 3; m++) {
    char name[96];
    const double *from = tokens;
    int64_t width = FEATURES;
    if (finite->map == HARK_FINITE_MAP_NETWORK) {
      (void)snprintf(name, sizeof name, "%s.up.weight", names[m]);
      width = apply(p, name, length, FEATURES, tokens, true, inner);
      from = inner;
    }
    (void)snprintf(name, sizeof name, "%s.weight", names[m]);
    (void)apply(p, name, length, width, from, false, maps[m]);
  }
  if (finite->ridge_learned) (void)read_parameter(p, "log_ridge", &ridge);
  const int64_t c = finite->covariates, wide = rows + 1;
  for (int64_t i = 0; i < rows; i++) {
    for (int64_t j = 0; j <= rows; j++) {
      const double *const other = j < rows ? &maps[0][j * c] : &maps[2][rows * c];
      double sum = i == j ? exp(ridge) : 0;
      for (int64_t f = 0; f < c; f++) sum += maps[0][i * c + f] * other[f];
      system[i * wide + j] = sum;
    }
  }
  for (int64_t i = 0; i < rows; i++) /* positive definite: no pivots are sought */
    for (int64_t j = 0; j < rows; j++) {
      if (i == j) continue;
      const double factor = system[j * wide + i] / system[i * wide + i];
      for (int64_t k = i; k <= rows; k++) system[j * wide + k] -= factor * system[i * wide + k];
    }
  for (int r = 0; r < RESPONSES; r++) {
    y[r] = 0;
    for (int64_t i = 0; i < rows; i++) y[r] += maps[1][i * RESPONSES + r] * system[i * wide + rows] / system[i * wide + i];
  }
}

/* Numbers of order 1, sums of some dozen terms in other orders. */
#define ROUNDING 1e-12

static void outputs_are_as_defined(void **state) {
  (void)state;
  for (size_t v = 0; v < VARIANTS; v++) {
    hark_context *context = test_reference_open();
    packed p;
    double out[EXAMPLES * RESPONSES], size = 0;
    open_network(&p, context, &variants[v].config, HARK_F64);
    pack(&p, 0, EXAMPLES);
    outputs_of(&p, out);
    for (int64_t i = 0; i < EXAMPLES; i++) {
      double expected[RESPONSES];
      const double *const tokens = p.vectors + p.ranges[2 * i] * FEATURES;
      (variants[v].config.architecture == HARK_ARCHITECTURE_LATENT ? latent_by_hand : finite_by_hand)(&p, lengths[i], tokens, expected);
      for (int r = 0; r < RESPONSES; r++) {
        size = fmax(size, fabs(expected[r]));
        if (!(fabs(out[i * RESPONSES + r] - expected[r]) <= ROUNDING))
          fail_msg("%s: example %lld response %d is %.15g, by hand %.15g", variants[v].name, (long long)i, r, out[i * RESPONSES + r],
                   expected[r]);
      }
    }
    assert_true(size > 1e-3);
    close_network(&p);
    test_setup_close(context);
  }
}

/* ---- gradients ---- */

static double loss_of(packed *p, bool backward) {
  const hark_value out = outputs_value(p, true);
  hark_value responses = 0, loss = 0;
  double number = 0;
  assert_fine(p->context, hark_tape_leaf(p->tape, &p->responses_tensor, NULL, &responses));
  assert_fine(p->context, hark_network_squared_error(p->tape, out, responses, 0.5, &loss));
  if (backward) {
    hark_tensor gradients = p->network->parameters.gradients;
    assert_fine(p->context, hark_tensor_zero(p->context, &gradients));
    assert_fine(p->context, hark_tape_backward(p->tape, loss, 1.0));
  }
  read_value(p, loss, &number);
  return number;
}

/* By four-point differences of two steps: a kink of a relu spoils one that lies across it, a wrong gradient agrees with neither. */
static void check_element(packed *p, const char *name, const hark_parameter *parameter, double *weights, int64_t j, double gradient,
                          double largest) {
  static const double steps[] = {1e-4, 1e-5};
  const int64_t i = parameter->first + j;
  double expected = 0;
  for (size_t s = 0; s < sizeof steps / sizeof *steps; s++) {
    const double before = weights[i], h = steps[s], at_steps[4] = {-2 * h, -h, h, 2 * h};
    double at[4];
    for (int k = 0; k < 4; k++) {
      weights[i] = before + at_steps[k];
      assert_fine(p->context, hark_tensor_write(p->context, &p->network->parameters.weights, weights));
      at[k] = loss_of(p, false);
    }
    weights[i] = before;
    expected = (8 * (at[2] - at[1]) - (at[3] - at[0])) / (12 * h);
    if (fabs(gradient - expected) <= 1e-6 * largest) return;
  }
  fail_msg("%s: %s element %lld: %.10g, by differences %.10g", name, parameter->name, (long long)j, gradient, expected);
}

static void gradients_agree_with_differences(void **state) {
  (void)state;
  for (size_t v = 0; v < VARIANTS; v++) {
    hark_context *context = test_reference_open();
    packed p;
    open_network(&p, context, &variants[v].config, HARK_F64);
    pack(&p, 0, EXAMPLES);
    write_batch(&p);
    hark_parameters *parameters = &p.network->parameters;
    const int64_t total = parameters->weights.shape[0];
    double *weights = malloc((size_t)total * sizeof *weights), *gradients = malloc((size_t)total * sizeof *gradients), largest = 0;
    assert_fine(context, hark_tensor_read(context, &parameters->weights, weights));
    (void)loss_of(&p, true);
    assert_fine(context, hark_tensor_read(context, &parameters->gradients, gradients));
    for (int64_t i = 0; i < total; i++) largest = fmax(largest, fabs(gradients[i]));
    assert_true(largest > 1e-3);
    for (int32_t n = 0; n < parameters->count; n++) {
      const hark_parameter *parameter = &parameters->list[n];
      const int64_t stride = parameter->count / 4 + 1; /* four places of each */
      for (int64_t j = stride / 2; j < parameter->count; j += stride)
        check_element(&p, variants[v].name, parameter, weights, j, gradients[parameter->first + j], largest);
    }
    free(weights);
    free(gradients);
    close_network(&p);
    test_setup_close(context);
  }
}

/* ---- examples and their batch ---- */

#define ROUNDED 1e-6 /* some dozen roundings of numbers of order 1, where products choose their order by the number of rows */

static void an_example_does_not_know_its_batch(void **state) {
  (void)state;
  test_setup setups[TEST_MAX_SETUPS];
  const int setup_count = test_setups_guard_once(setups);
  for (int s = 0; s < setup_count; s++) {
    hark_context *context = test_setup_open(&setups[s], 2);
    for (size_t v = 0; v < VARIANTS; v++) {
      double together[EXAMPLES * RESPONSES], alone[RESPONSES];
      packed p;
      open_network(&p, context, &variants[v].config, HARK_F32);
      pack(&p, 0, EXAMPLES);
      outputs_of(&p, together);
      for (int64_t row = 0; row < EXAMPLES; row++) {
        pack(&p, row, 1);
        outputs_of(&p, alone);
        for (int r = 0; r < RESPONSES; r++)
          if (!(fabs(alone[r] - together[row * RESPONSES + r]) <= (strcmp(setups[s].backend, "reference") == 0 ? 0 : ROUNDED)))
            fail_msg("%s %s: %s, example %lld: %.9g alone, %.9g in a batch", setups[s].backend, setups[s].instruction_set, variants[v].name,
                     (long long)row, alone[r], together[row * RESPONSES + r]);
      }
      close_network(&p);
    }
    test_setup_close(context);
  }
}

/* ---- bounds ---- */

/* Every matrix of a network whose weights are far too large keeps its bounds after a projection, and not before. */
static void a_projection_keeps_every_bound(void **state) {
  (void)state;
  for (int norm = HARK_BOUND_ONE; norm <= HARK_BOUND_INFINITY; norm++) {
    hark_context *context = test_reference_open();
    hark_network_config config = variants[2].config;
    config.latent.norm = norm;
    config.latent.operator_norm = 0.75;
    config.latent.matrix_norm = 1.25;
    packed p;
    open_network(&p, context, &config, HARK_F32);
    hark_parameters *parameters = &p.network->parameters;
    int32_t bounded = 0;
    for (int32_t n = 0; n < parameters->count; n++) {
      hark_parameter *parameter = &parameters->list[n];
      const hark_norm_bound *bound = &parameter->spec.bound;
      const int64_t rows = parameter->spec.shape[0], columns = parameter->spec.shape[1];
      double numbers[WIDEST * WIDEST], scratch[4 * WIDEST * WIDEST];
      float narrow[WIDEST * WIDEST];
      assert_true(bound->norm != HARK_BOUND_FREE && hark_norm_bound_scratch(rows, columns) <= sizeof scratch / sizeof *scratch);
      for (int64_t i = 0; i < parameter->count; i++) narrow[i] = (float)(20 * number_at(i, (uint64_t)n));
      assert_fine(context, hark_tensor_write(context, &parameter->weight, narrow));
      assert_fine(context, hark_parameters_project(context, parameters, false));
      assert_fine(context, hark_tensor_read(context, &parameter->weight, narrow));
      for (int64_t i = 0; i < parameter->count; i++) numbers[i] = (double)narrow[i];
      const double operator_norm = hark_operator_norm(bound->norm, rows, columns, numbers, scratch);
      const double matrix_norm = hark_matrix_norm(bound->norm, rows, columns, numbers);
      const double a = bound->operator_norm, b = bound->matrix_norm > 0 ? bound->matrix_norm : INFINITY;
      if (!(operator_norm <= a * (1 + 1e-6)) || !(matrix_norm <= b * (1 + 1e-6)))
        fail_msg("norm %d: %s has norms %.9g and %.9g, bounds %g and %g", norm, parameter->name, operator_norm, matrix_norm, a, b);
      assert_true(operator_norm > a * (1 - 1e-6) || matrix_norm > b * (1 - 1e-6)); /* no farther than the bounds ask for */
      bounded++;
    }
    assert_int_equal(bounded, 2 * (2 + 6) + 1 + 6 + 1);
    close_network(&p);
    test_setup_close(context);
  }
}

/* ---- refusals ---- */

static void what_they_cannot_be_is_refused(void **state) {
  (void)state;
  hark_context *context = test_reference_open();
  struct {
    size_t variant;
    hark_network_config config;
    const char *message;
  } cases[13];
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    cases[i].variant = i < 10 ? (i < 7 ? 2 : 0) : 5;
    cases[i].config = variants[cases[i].variant].config;
  }
  cases[0].config.features = 0, cases[0].message = "reads real vectors";
  cases[1].config.bias = true, cases[1].message = "expected model.bias false";
  cases[2].config.positions = HARK_POSITIONS_LEARNED, cases[2].message = "exchangeable tokens";
  cases[3].config.attention.structure = (hark_layer_choice)HARK_EVERY_LAYER(HARK_STRUCTURE_WINDOW),
  cases[3].message = "expected model.attention.structure dense";
  cases[4].config.features = 5, cases[4].message = "they have 5 features, and model.width is 4";
  cases[5].config.activation = HARK_ACTIVATION_GELU, cases[5].message = "model.activation relu";
  cases[6].config.key_heads = 1, cases[6].message = "model.key_heads is 1, expected as many as model.heads";
  cases[7].config.layers = 2, cases[7].message = "model.layers 1";
  cases[8].config.attention.sigma = NAN, cases[8].message = "model.attention.sigma";
  cases[9].config.latent.matrix_norm = -1, cases[9].message = "matrix_norm -1";
  cases[10].config.finite.covariates = 0, cases[10].message = "model.finite.covariates is 0";
  cases[11].config.finite.ridge = 0, cases[11].message = "model.finite.ridge is 0";
  cases[12].config.dropout = 0.1, cases[12].message = "finite has no dropout";
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    hark_network *network = NULL;
    assert_int_equal(hark_network_create(context, &cases[i].config, HARK_F32, true, &network), HARK_BAD_CONFIGURATION);
    if (strstr(hark_context_message(context), cases[i].message) == NULL)
      fail_msg("case %zu: \"%s\", expected \"%s\" in it", i, hark_context_message(context), cases[i].message);
  }
  test_setup_close(context);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(outputs_are_as_defined),
      cmocka_unit_test(gradients_agree_with_differences),
      cmocka_unit_test(an_example_does_not_know_its_batch),
      cmocka_unit_test(a_projection_keeps_every_bound),
      cmocka_unit_test(what_they_cannot_be_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
