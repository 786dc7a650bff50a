/* test_ahca.c - adaptive hierarchical compressed attention as a whole: every parameter's gradient against differences, a sequence alone and among
 * others, degenerate lengths, what is refused.
 */
#include <hark/hark.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "models/ahca.h"
#include "models/ahca_layers.h"
#include "support/cmocka_all.h"
#include "support/setups.h"

#define VOCABULARY 9
#define CLASSES 3
#define FEATURES 3
#define SEQUENCES 3
#define CONTEXT 17
#define WITHIN 1e-5f /* of the largest logit: some dozen sums of 2^-24 each */

/* One row a variant: every word of the configuration occurs in at least one. Medoids are all selected: of a cluster of two, both are as near to its
 * centre, and the least step decides. */
typedef struct variant {
  const char *name;
  hark_network_config config;
} variant;

#define ANY                                                                                                                                \
  .architecture = HARK_ARCHITECTURE_ahca, .vocabulary = VOCABULARY, .layers = 3, .heads = 2, .key_heads = 2, .width = 6,                   \
  .feed_forward_width = 10, .context = CONTEXT, .norm_epsilon = 1e-5, .positions = HARK_POSITIONS_LEARNED, .window = 2
#define LABELS ANY, .structure = HARK_STRUCTURE_DENSE
#define WINDOW ANY, .structure = HARK_STRUCTURE_WINDOW, .classes = CLASSES
#define HIERARCHICAL ANY, .structure = HARK_STRUCTURE_HIERARCHICAL, .hierarchy_block = 2
#define BASE LABELS, .classes = CLASSES
#define CHUNKS(rule, size) .chunk = rule, .chunk_size = size, .chunk_minimum = 2, .chunk_maximum = 6, .delimiter = 4, .window = 2
#define SLOTS(first, second, count) .primary_slots = first, .secondary_slots = second, .selected = count

static const variant variants[] = {
    {"fixed_average_score",
     {BASE, .norm = HARK_NORM_RMS, .ahca = {CHUNKS(HARK_AHCA_FIXED, 4), SLOTS(2, 5, 2), .capacity = 0.5, .ponder_weight = 0.02}}},
    {"learned_attention_every",
     {BASE, .bias = true,
      .ahca = {CHUNKS(HARK_AHCA_LEARNED, 4), SLOTS(2, 4, 3), .primary_pool = HARK_AHCA_ATTENTION, .secondary_pool = HARK_AHCA_ATTENTION,
               .primary_width = 8, .secondary_width = 10, .join = HARK_AHCA_EVERY, .capacity = 0.4, .ratio_weight = 0.03,
               .ponder_weight = 0.02}}},
    {"delimiter_max_norm_paper",
     {BASE, .ahca = {CHUNKS(HARK_AHCA_DELIMITER, 4), SLOTS(3, 7, 7), .primary_pool = HARK_AHCA_MAX, .secondary_pool = HARK_AHCA_MAX,
                     .select = HARK_AHCA_NORM, .depth = HARK_AHCA_PAPER, .depth_score = HARK_AHCA_OF_ATTENTION}}},
    {"semantic_query_attention_score",
     {BASE, .activation = HARK_ACTIVATION_SILU,
      .ahca = {CHUNKS(HARK_AHCA_SEMANTIC, 4), SLOTS(2, 3, 2), .select = HARK_AHCA_QUERY, .depth_score = HARK_AHCA_OF_ATTENTION,
               .capacity = 0.7, .ponder_weight = 0.1}}},
    {"labels_every_two_layers",
     {LABELS, .bias = true,
      .ahca = {CHUNKS(HARK_AHCA_FIXED, 4), SLOTS(2, 5, 2), .head = HARK_AHCA_LABELS, .join = HARK_AHCA_EVERY, .primary_width = 4,
               .secondary_width = 8, .primary_depth = 2, .secondary_depth = 2, .capacity = 0.5, .ponder_weight = 0.02}}},
    {"reconstruction_learned",
     {LABELS, .ahca = {CHUNKS(HARK_AHCA_LEARNED, 4), SLOTS(3, 4, 3), .head = HARK_AHCA_RECONSTRUCTION, .capacity = 0.4,
                       .ratio_weight = 0.03, .ponder_weight = 0.02}}},
    {"labels_learned_linear",
     {LABELS, .ahca = {CHUNKS(HARK_AHCA_LEARNED, 4), SLOTS(2, 3, 2), .head = HARK_AHCA_LABELS, .layer = HARK_AHCA_LINEAR,
                       .primary_pool = HARK_AHCA_ATTENTION, .capacity = 0.7, .ratio_weight = 0.03}}},
    {"regression_delimiters",
     {BASE, .ahca = {CHUNKS(HARK_AHCA_DELIMITER, 4), SLOTS(2, 5, 3), .head = HARK_AHCA_REGRESSION, .more_delimiters = {1, 7},
                     .more_delimiter_count = 2, .primary_depth = 2, .capacity = 0.5, .ponder_weight = 0.02}}},
    {"regression_vectors",
     {BASE, .features = FEATURES, .responses = CLASSES,
      .ahca = {CHUNKS(HARK_AHCA_LEARNED, 4), SLOTS(2, 5, 3), .capacity = 0.5, .ratio_weight = 0.03, .ponder_weight = 0.02}}},
    {"selected_score",
     {BASE, .ahca = {CHUNKS(HARK_AHCA_FIXED, 3), SLOTS(2, 6, 3), .output = HARK_AHCA_OF_SELECTED, .secondary_width = 8, .capacity = 0.5,
                     .ponder_weight = 0.02}}},
    {"selected_norm_paper_linear",
     {BASE, .ahca = {CHUNKS(HARK_AHCA_SEMANTIC, 4), SLOTS(2, 5, 3), .output = HARK_AHCA_OF_SELECTED, .layer = HARK_AHCA_LINEAR,
                     .join = HARK_AHCA_EVERY, .select = HARK_AHCA_NORM, .depth = HARK_AHCA_PAPER, .depth_score = HARK_AHCA_OF_ATTENTION}}},
    {"kernel_every",
     {WINDOW, .positional = "bank[2](decay*periodic)",
      .ahca = {CHUNKS(HARK_AHCA_FIXED, 3), SLOTS(3, 5, 3), .join = HARK_AHCA_EVERY, .capacity = 0.5, .ponder_weight = 0.02}}},
    {"kernel_hierarchical_labels",
     {HIERARCHICAL, .positional = "decay",
      .ahca = {CHUNKS(HARK_AHCA_LEARNED, 4), SLOTS(5, 6, 4), .head = HARK_AHCA_LABELS, .select = HARK_AHCA_NORM, .capacity = 0.7,
               .secondary_width = 8, .ratio_weight = 0.03}}},
    /* one slot a chunk: the kernel is between chunks and selected tokens, or nowhere */
    {"kernel_one_slot",
     {BASE, .positional = "decay",
      .ahca = {CHUNKS(HARK_AHCA_FIXED, 3), SLOTS(1, 5, 3), .join = HARK_AHCA_EVERY, .capacity = 0.5, .ponder_weight = 0.02}}},
    {"medoids_paper", {BASE, .ahca = {CHUNKS(HARK_AHCA_FIXED, 3), SLOTS(4, 3, 3), .select = HARK_AHCA_MEDOIDS, .depth = HARK_AHCA_PAPER}}},
};
#define VARIANTS (sizeof variants / sizeof *variants)

/* A network and a packed batch of sequences for it. */
typedef struct model {
  hark_context *context;
  hark_network *network;
  hark_tape *tape;
  hark_tensor tokens, targets, ranges;
  hark_tensor vectors;        /* of a model that reads these */
  hark_tensor reference;      /* of the straight-through estimator; absent where there is none */
  int64_t sequences, answers; /* what is told: of sequences, or of tokens */
} model;

static bool tells_tokens(const model *m) { return hark_ahca_has_token_head(&m->network->config); }
static int64_t choices(const model *m) { return tells_tokens(m) ? VOCABULARY : CLASSES; }

static int32_t token_at(int64_t sequence, int64_t i) {
  const hark_random_stream stream = {.seed = 3, .layer_purpose = hark_random_layer_purpose(0, HARK_RANDOM_TEST)};
  return (int32_t)(hark_random_word(&stream, (uint64_t)(100 * sequence + i)) % VOCABULARY);
}

/* Three numbers of every token in the place of its name. */
static void vectors_open(model *m, const int32_t *tokens, int64_t count) {
  double numbers[SEQUENCES * CONTEXT * FEATURES];
  float single[SEQUENCES * CONTEXT * FEATURES];
  if (m->network->config.features == 0) return;
  const hark_type type = m->network->parameters.list[0].weight.type;
  const int64_t shape[] = {1, count, FEATURES};
  for (int64_t i = 0; i < count * FEATURES; i++) {
    numbers[i] = sin((double)(1 + tokens[i / FEATURES]) * (double)(1 + i % FEATURES));
    single[i] = (float)numbers[i];
  }
  assert_int_equal(hark_tensor_create(m->context, type, 3, shape, &m->vectors), HARK_OK);
  assert_int_equal(hark_tensor_write(m->context, &m->vectors, type == HARK_F64 ? (const void *)numbers : single), HARK_OK);
}

/* The value that is to be the pass's vectors; 0: the model reads tokens. */
static hark_value vectors_of(const model *m) {
  hark_value vectors = 0;
  if (m->vectors.type != HARK_NONE) assert_int_equal(hark_tape_leaf(m->tape, &m->vectors, NULL, &vectors), HARK_OK);
  return vectors;
}

/* Sequences `first` .. of the lengths. */
static void batch_open(model *m, int64_t first, const int64_t *lengths, int64_t sequences) {
  int64_t total = 0;
  int32_t tokens[SEQUENCES * CONTEXT + 1] = {0}, targets[SEQUENCES * CONTEXT + 1];
  int64_t ranges[2 * SEQUENCES];
  for (int64_t s = 0; s < sequences; s++) {
    ranges[2 * s] = total;
    for (int64_t i = 0; i < lengths[s]; i++) tokens[total++] = token_at(first + s, i);
    ranges[2 * s + 1] = total;
    targets[s] = (int32_t)((first + s) % CLASSES);
  }
  m->answers = tells_tokens(m) ? total : sequences;
  for (int64_t i = 0; i < total && tells_tokens(m); i++) targets[i] = i % 4 == 3 ? -1 : (tokens[i] + (int32_t)i) % VOCABULARY;
  const int64_t token_shape[] = {1, total}, range_shape[] = {sequences, 1, 2}, target_shape[] = {1, m->answers};
  m->sequences = sequences;
  assert_int_equal(hark_tensor_create(m->context, HARK_I32, 2, token_shape, &m->tokens), HARK_OK);
  assert_int_equal(
      hark_tensor_create(m->context, HARK_I32, tells_tokens(m) ? 2 : 1, tells_tokens(m) ? target_shape : &sequences, &m->targets), HARK_OK);
  assert_int_equal(hark_tensor_create(m->context, HARK_I64, 3, range_shape, &m->ranges), HARK_OK);
  assert_int_equal(hark_tensor_write(m->context, &m->tokens, tokens), HARK_OK);
  assert_int_equal(hark_tensor_write(m->context, &m->targets, targets), HARK_OK);
  assert_int_equal(hark_tensor_write(m->context, &m->ranges, ranges), HARK_OK);
  vectors_open(m, tokens, total);
}

static void batch_close(model *m) {
  hark_tensor_destroy(m->context, &m->vectors);
  hark_tensor_destroy(m->context, &m->tokens);
  hark_tensor_destroy(m->context, &m->targets);
  hark_tensor_destroy(m->context, &m->ranges);
  hark_tensor_destroy(m->context, &m->reference);
}

static void model_open(model *m, hark_context *context, const hark_network_config *config, hark_type type) {
  *m = (model){.context = context};
  if (hark_network_create(context, config, type, true, &m->network) != HARK_OK) fail_msg("%s", hark_context_message(context));
  assert_int_equal(hark_parameters_initialise(context, &m->network->parameters, 5), HARK_OK);
  assert_int_equal(hark_tape_create(context, &m->tape), HARK_OK);
}

static void model_close(model *m) {
  hark_tape_destroy(&m->tape);
  hark_network_destroy(m->context, &m->network);
}

static double read_number(hark_context *context, const hark_tensor *tensor) {
  double wide = 0;
  assert_int_equal(tensor->type, HARK_F64);
  assert_int_equal(hark_tensor_read(context, tensor, &wide), HARK_OK);
  return wide;
}

/* The loss with what the model adds to it; with `backward` the gradients are written. */
static double traced_loss(const model *m, double remaining, bool backward, hark_ahca_trace *trace) {
  const hark_forward forward = {.tape = m->tape, .parameters = &m->network->parameters, .training = true};
  hark_value tokens = 0, targets = 0, logits = 0, loss = 0, penalty = 0;
  hark_tape_reset(m->tape);
  assert_int_equal(hark_tape_leaf(m->tape, &m->tokens, NULL, &tokens), HARK_OK);
  assert_int_equal(hark_tape_leaf(m->tape, &m->targets, NULL, &targets), HARK_OK);
  const hark_ahca_given given = {.reference = m->reference.type != HARK_NONE ? &m->reference : NULL};
  const hark_network_input input = {.tokens = tokens,
                                    .vectors = vectors_of(m),
                                    .ranges = &m->ranges,
                                    .remaining = remaining,
                                    .weight = 1.0 / (double)m->sequences,
                                    .penalty = &penalty,
                                    .given = &given,
                                    .trace = trace};
  if (m->network->architecture->logits(m->context, m->network, &forward, &input, &logits) != HARK_OK)
    fail_msg("%s", hark_context_message(m->context));
  assert_int_equal(hark_network_loss(m->tape, logits, targets, 1.0 / (double)m->answers, 0, &loss), HARK_OK);
  if (penalty != 0) assert_int_equal(hark_forward_add(&forward, loss, penalty, &loss), HARK_OK);
  const double value = read_number(m->context, hark_tape_tensor(m->tape, loss));
  if (backward) assert_int_equal(hark_tape_backward(m->tape, loss, 1), HARK_OK);
  return value;
}

static double loss_of(const model *m, double remaining, bool backward) { return traced_loss(m, remaining, backward, NULL); }

/* The straight-through estimator's gradient is that of its surrogate, which the probabilities of this point make an ordinary function. */
static void take_reference(model *m) {
  hark_ahca_trace trace = {0};
  (void)traced_loss(m, 0, false, &trace);
  if (trace.probability == 0 || !tells_tokens(m)) return;
  const hark_tensor *probability = hark_tape_tensor(m->tape, trace.probability);
  assert_int_equal(hark_tensor_create(m->context, probability->type, 1, probability->shape, &m->reference), HARK_OK);
  assert_int_equal(hark_tensor_write(m->context, &m->reference, probability->data), HARK_OK);
}

/* The gradients of all parameters, without the surrogate, are those with it. */
static void check_straight_through(model *m, const char *name) {
  if (m->reference.type == HARK_NONE) return;
  const hark_tensor *gradients = &m->network->parameters.gradients;
  const size_t bytes = (size_t)hark_tensor_count(gradients) * sizeof(double);
  double *with = malloc(bytes);
  assert_non_null(with);
  memset(gradients->data, 0, bytes);
  (void)loss_of(m, 0, true);
  memcpy(with, gradients->data, bytes);
  hark_tensor_destroy(m->context, &m->reference);
  memset(gradients->data, 0, bytes);
  (void)loss_of(m, 0, true);
  const hark_parameter *boundary = hark_parameters_find(&m->network->parameters, "boundary.query.weight");
  assert_non_null(boundary);
  if (memcmp(with, gradients->data, bytes) != 0) fail_msg("%s: the straight-through estimator is not its surrogate", name);
  free(with);
}

/* Weights of a size at which nothing is nearly linear; norms' gains stay near one. */
static void draw_weights(const model *m) {
  const hark_random_stream stream = {.seed = 11, .layer_purpose = hark_random_layer_purpose(1, HARK_RANDOM_TEST)};
  uint64_t number = 0;
  for (int32_t i = 0; i < m->network->parameters.count; i++) {
    hark_parameter *parameter = &m->network->parameters.list[i];
    double *weights = parameter->weight.data;
    for (int64_t n = 0; n < parameter->count; n++, number++) {
      double draw;
      hark_random_uniform(&stream, number, 1, &draw);
      weights[n] = (parameter->spec.initial == HARK_INITIAL_ONE ? 1 : 0) + 0.8 * (2 * draw - 1);
    }
  }
}

/* The one slot of a chunk attends to itself: its queries and keys change nothing. */
static bool is_alone(const model *m, const char *name) {
  return m->network->config.ahca.primary_slots == 1 &&
         (strstr(name, ".attention.query.") != NULL || strstr(name, ".attention.key.") != NULL);
}

#define TOLERANCE 2e-6 /* of the gradient's size */

/* Along a random direction in each parameter, by four-point differences. */
static void check_gradients(const model *m, const char *name, double remaining) {
  static const double steps[] = {1e-3, 1e-4, 1e-5};
  const hark_parameters *parameters = &m->network->parameters;
  const hark_random_stream stream = {.seed = 23, .layer_purpose = hark_random_layer_purpose(2, HARK_RANDOM_TEST)};
  memset(parameters->gradients.data, 0, (size_t)hark_tensor_count(&parameters->gradients) * sizeof(double));
  (void)loss_of(m, remaining, true);
  for (int32_t i = 0; i < parameters->count; i++) {
    const hark_parameter *parameter = &parameters->list[i];
    double *weights = parameter->weight.data, square = 0, expected = 0, found = 0;
    const double *gradient = parameter->gradient.data;
    double *point = malloc((size_t)parameter->count * sizeof *point), *direction = malloc((size_t)parameter->count * sizeof *direction);
    assert_non_null(point);
    assert_non_null(direction);
    memcpy(point, weights, (size_t)parameter->count * sizeof *point);
    hark_random_uniform(&stream, (uint64_t)i * 1000, parameter->count, direction);
    for (int64_t n = 0; n < parameter->count; n++) {
      direction[n] = 2 * direction[n] - 1;
      expected += gradient[n] * direction[n];
      square += gradient[n] * gradient[n];
    }
    if (!(square > 0) && !is_alone(m, parameter->name)) fail_msg("%s: %s has no gradient", name, parameter->name);
    bool agrees = false;
    for (size_t s = 0; s < sizeof steps / sizeof *steps && !agrees; s++) {
      static const double factors[] = {-2, -1, 1, 2}, shares[] = {1, -8, 8, -1};
      double sum = 0;
      for (int f = 0; f < 4; f++) {
        for (int64_t n = 0; n < parameter->count; n++) weights[n] = point[n] + factors[f] * steps[s] * direction[n];
        sum += shares[f] * loss_of(m, remaining, false);
      }
      found = sum / (12 * steps[s]);
      agrees = fabs(found - expected) <= TOLERANCE * fmax(sqrt(square), 1e-3);
    }
    if (!agrees) fail_msg("%s: gradient of %s is %.12g, differences say %.12g", name, parameter->name, expected, found);
    memcpy(weights, point, (size_t)parameter->count * sizeof *point);
    free(direction);
    free(point);
  }
}

static void every_parameter_has_the_gradient_of_differences(void **state) {
  (void)state;
  static const int64_t lengths[SEQUENCES] = {17, 5, 11};
  for (size_t v = 0; v < VARIANTS; v++) {
    for (int full = 0; full < 2; full++) {
      hark_context *context = test_reference_open();
      model m;
      model_open(&m, context, &variants[v].config, HARK_F64);
      draw_weights(&m);
      batch_open(&m, 0, lengths, SEQUENCES);
      take_reference(&m);
      check_gradients(&m, variants[v].name, full);
      check_straight_through(&m, variants[v].name);
      batch_close(&m);
      model_close(&m);
      test_setup_close(context);
    }
  }
}

static void logits_of(const model *m, void *out) {
  const hark_forward forward = {.tape = m->tape, .parameters = &m->network->parameters};
  hark_value tokens = 0, logits = 0;
  hark_tape_reset(m->tape);
  hark_tape_set_recording(m->tape, false);
  assert_int_equal(hark_tape_leaf(m->tape, &m->tokens, NULL, &tokens), HARK_OK);
  const hark_network_input input = {.tokens = tokens, .vectors = vectors_of(m), .ranges = &m->ranges};
  if (m->network->architecture->logits(m->context, m->network, &forward, &input, &logits) != HARK_OK)
    fail_msg("%s", hark_context_message(m->context));
  assert_int_equal(hark_tensor_count(hark_tape_tensor(m->tape, logits)), m->answers * choices(m));
  assert_int_equal(hark_tensor_read(m->context, hark_tape_tensor(m->tape, logits), out), HARK_OK);
}

/* Bit for bit with a deterministic context, and on the reference backend with any; elsewhere products of few rows take another kernel, and the bound
 * is that of some dozen sums. Lengths 1 to 9 and those around multiples of a chunk among them. */
static void a_sequence_alone_has_the_logits_that_it_has_among_others(void **state) {
  (void)state;
  static const int64_t batches[][SEQUENCES] = {{1, 2, 3}, {4, 5, 6}, {7, 8, 9}, {17, 1, 16}, {11, 12, 13}};
  test_setup setups[TEST_MAX_SETUPS];
  const int count = test_setups_guard_once(setups);
  for (int i = 0; i < 2 * count; i++) {
    const test_setup *setup = &setups[i / 2];
    const bool deterministic = i % 2 == 0, exact = deterministic || strcmp(setup->backend, "reference") == 0;
    for (size_t v = 0; v < VARIANTS; v++) {
      hark_context *context = deterministic ? test_setup_open_deterministic(setup, 2) : test_setup_open(setup, 2);
      model m;
      model_open(&m, context, &variants[v].config, HARK_F32);
      for (size_t b = 0; b < sizeof batches / sizeof *batches; b++) {
        float together[SEQUENCES * CONTEXT * VOCABULARY], alone[CONTEXT * VOCABULARY], *of_one = together;
        batch_open(&m, 0, batches[b], SEQUENCES);
        logits_of(&m, together);
        batch_close(&m);
        for (int s = 0; s < SEQUENCES; s++) {
          batch_open(&m, s, &batches[b][s], 1);
          logits_of(&m, alone);
          batch_close(&m);
          const int64_t numbers = m.answers * choices(&m);
          float apart = 0, largest = 0;
          for (int64_t c = 0; c < numbers; c++) largest = fmaxf(largest, fabsf(alone[c]));
          for (int64_t c = 0; c < numbers; c++) apart = fmaxf(apart, fabsf(alone[c] - of_one[c]));
          for (int64_t c = 0; c < numbers; c++) assert_true(isfinite(alone[c]));
          if (exact ? memcmp(alone, of_one, (size_t)numbers * sizeof *alone) != 0 : !(apart <= WITHIN * largest))
            fail_msg("%s:%s%s: %s, a sequence of %d tokens, %g apart", setup->backend, setup->instruction_set,
                     deterministic ? ", deterministic" : "", variants[v].name, (int)batches[b][s], (double)apart);
          of_one += numbers;
        }
      }
      model_close(&m);
      test_setup_close(context);
    }
  }
}

/* A sequence of no tokens has no chunks: what it tells is finite, and the others do not notice it. */
static void a_sequence_without_tokens_changes_nothing(void **state) {
  (void)state;
  static const int64_t lengths[SEQUENCES] = {7, 0, 12};
  for (size_t v = 0; v < VARIANTS; v++) {
    hark_context *context = test_reference_open();
    model m;
    float together[SEQUENCES * CONTEXT * VOCABULARY], alone[CONTEXT * VOCABULARY];
    model_open(&m, context, &variants[v].config, HARK_F32);
    batch_open(&m, 0, lengths, SEQUENCES);
    logits_of(&m, together);
    const int64_t all = m.answers * choices(&m);
    for (int64_t i = 0; i < all; i++) assert_true(isfinite(together[i]));
    batch_close(&m);
    for (int s = 0; s < SEQUENCES; s += 2) {
      batch_open(&m, s, &lengths[s], 1);
      logits_of(&m, alone);
      const int64_t numbers = m.answers * choices(&m);
      if (memcmp(alone, together + (s == 0 ? 0 : all - numbers), (size_t)numbers * sizeof *alone) != 0)
        fail_msg("%s: sequence %d", variants[v].name, s);
      batch_close(&m);
    }
    model_close(&m);
    test_setup_close(context);
  }
}

/* weights <- factor weights + value */
static void shift_weights(const model *m, const char *name, double factor, double value) {
  const hark_parameter *parameter = hark_parameters_find(&m->network->parameters, name);
  assert_non_null(parameter);
  double *weights = parameter->weight.data;
  for (int64_t n = 0; n < parameter->count; n++) weights[n] = factor * weights[n] + value;
}

/* One slot a chunk, all of C2 selected, no number of the chunk in it, and a head that is linear at this point: log G(1) = -e^5 between two chunks leaves
 * each with its own global token, as if it were a sequence of its own, and the logits of both are the mean of the logits of each. With G = 1 they are not. */
static void a_kernel_that_ends_within_a_chunk_leaves_chunks_alone(void **state) {
  (void)state;
  static const int64_t lengths[SEQUENCES] = {8, 4, 4};
  static const int32_t tokens[] = {1, 5, 2, 7, 3, 0, 8, 6, 1, 5, 2, 7, 3, 0, 8, 6};
  for (int steep = 0; steep < 2; steep++) {
    hark_context *context = test_reference_open();
    hark_network_config config = {BASE, .positional = "decay",
                                  .ahca = {CHUNKS(HARK_AHCA_FIXED, 4), SLOTS(1, 3, 3), .select = HARK_AHCA_NORM}};
    config.layers = 1;
    model m;
    double logits[SEQUENCES][CLASSES], apart = 0;
    model_open(&m, context, &config, HARK_F64);
    draw_weights(&m);
    shift_weights(&m, "embedding.chunk.weight", 0, 0);
    shift_weights(&m, "head.hidden.bias", 1, 20);
    shift_weights(&m, "positional.parameters", 0, steep ? -5 : 20); /* logarithms */
    batch_open(&m, 0, lengths, SEQUENCES);
    assert_int_equal(hark_tensor_write(context, &m.tokens, tokens), HARK_OK);
    logits_of(&m, logits);
    for (int c = 0; c < CLASSES; c++) apart = fmax(apart, fabs(logits[0][c] - (logits[1][c] + logits[2][c]) / 2));
    if ((apart < 1e-10) != (steep == 1)) fail_msg("%s kernel: %g apart", steep ? "steep" : "flat", apart);
    batch_close(&m);
    model_close(&m);
    test_setup_close(context);
  }
}

/* Layers run on the chunks that have them: a capacity of 0 costs what one layer costs. */
static void depth_saves_the_work_of_the_layers_that_are_not_run(void **state) {
  (void)state;
  static const int64_t lengths[SEQUENCES] = {16, 16, 16};
  double operations[3];
  static const double capacities[] = {0, 0.5, 1};
  for (int i = 0; i < 3; i++) {
    hark_context *context = test_reference_open();
    hark_network_config config = variants[0].config;
    config.ahca.capacity = capacities[i];
    config.ahca.ponder_weight = 0;
    model m;
    float logits[SEQUENCES * CLASSES];
    model_open(&m, context, &config, HARK_F32);
    batch_open(&m, 0, lengths, SEQUENCES);
    logits_of(&m, logits);
    operations[i] = hark_tape_operations(m.tape);
    batch_close(&m);
    model_close(&m);
    test_setup_close(context);
  }
  /* 12 or 15 chunks: capacity 1/2 leaves 9 (a chunk more a sequence at most) and 6 of them to layers 2 and 3 */
  const double half = (operations[1] - operations[0]) / (operations[2] - operations[0]);
  assert_true(operations[0] < operations[1] && operations[1] < operations[2]);
  assert_true(half > 0.35 && half < 0.75);
}

/* Layer l has the ceil(c_l K) chunks of largest score of every sequence, and all of them at the beginning of the training. */
static void each_layer_has_the_capacity_that_is_given_for_it(void **state) {
  (void)state;
  enum { CHUNKS_OF_ONE = 4, LAYERS = 3 };
  static const int64_t lengths[SEQUENCES] = {16, 16, 16};
  static const struct {
    double capacities[LAYERS - 1];
    int32_t count;
    double remaining;
    int64_t at[LAYERS];                /* chunks of a sequence that have the layer */
  } cases[] = {{{0}, 0, 0, {4, 2, 1}}, /* powers of 1/2 */
               {{0.75, 0.75}, 2, 0, {4, 3, 3}},
               {{0.75, 0.25}, 2, 0, {4, 3, 1}},
               {{1, 0}, 2, 0, {4, 4, 0}},
               {{0.75, 0.25}, 2, 1, {4, 4, 4}}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    hark_context *context = test_reference_open();
    hark_network_config config = variants[0].config;
    hark_ahca_trace trace = {0};
    model m;
    memcpy(config.ahca.capacities, cases[i].capacities, sizeof cases[i].capacities);
    config.ahca.capacity_count = cases[i].count;
    model_open(&m, context, &config, HARK_F64);
    batch_open(&m, 0, lengths, SEQUENCES);
    (void)traced_loss(&m, cases[i].remaining, false, &trace);
    const hark_tensor *depth = hark_tape_tensor(m.tape, trace.depth);
    const int32_t *depths = depth->data;
    assert_int_equal(depth->shape[0], SEQUENCES * CHUNKS_OF_ONE);
    for (int s = 0; s < SEQUENCES; s++)
      for (int l = 0; l < LAYERS; l++) {
        int64_t found = 0;
        for (int k = 0; k < CHUNKS_OF_ONE; k++) found += depths[s * CHUNKS_OF_ONE + k] > l;
        if (found != cases[i].at[l]) fail_msg("case %d, layer %d: %d chunks", (int)i, l + 1, (int)found);
      }
    batch_close(&m);
    model_close(&m);
    test_setup_close(context);
  }
}

static double deviation_of(const hark_parameter *parameter) {
  const double *weights = parameter->weight.data;
  double square = 0;
  for (int64_t i = 0; i < parameter->count; i++) square += weights[i] * weights[i];
  return sqrt(square / (double)parameter->count);
}

static bool ends_with(const char *name, const char *end) {
  const size_t length = strlen(name), wanted = strlen(end);
  return length >= wanted && strcmp(name + length - wanted, end) == 0;
}

/* The deviation of n normal numbers is off by 1 / sqrt(2 n) of itself; five times that is allowed. */
static void initial_weights_are_as_large_as_what_they_read_asks_for(void **state) {
  (void)state;
  enum { WIDTH = 32, LAYERS = 3, CHUNK = 4, SLOTS = 2 };
  for (int v = 0; v < 3; v++) {
    static const int heads[] = {HARK_AHCA_CLASSES, HARK_AHCA_LABELS, HARK_AHCA_RECONSTRUCTION};
    static const double embedded[] = {0, 1, 0.5};
    hark_context *context = test_reference_open();
    hark_network_config config = {
        LABELS, .classes = v == 0 ? CLASSES : 0, .embedding_deviation = embedded[v],
        .ahca = {CHUNKS(HARK_AHCA_LEARNED, CHUNK), SLOTS(SLOTS, 5, 2), .capacity = 0.5, .head = heads[v],
                 .primary_pool = v == 2 ? HARK_AHCA_AVERAGE : HARK_AHCA_ATTENTION, .secondary_pool = HARK_AHCA_ATTENTION}};
    config.width = WIDTH;
    const double content = v == 0 ? 0.02 : embedded[v], slot = content / sqrt(v == 2 ? CHUNK / SLOTS : CHUNK);
    const struct {
      const char *name;
      double deviation; /* 0: it is not drawn */
    } own[] = {{"boundary.query.weight", 0},        {"boundary.key.weight", 0},
               {"embedding.token.weight", content}, {"embedding.in_chunk.weight", content},
               {"embedding.chunk.weight", slot},    {"embedding.slot.weight", slot},
               {"primary.queries.weight", 1},       {"secondary.queries.weight", 1},
               {"head.position.weight", 0.1},       {"head.chunk.weight", 0.1}};
    model m;
    int drawn = 0;
    model_open(&m, context, &config, HARK_F64);
    for (int32_t i = 0; i < m.network->parameters.count; i++) {
      const hark_parameter *parameter = &m.network->parameters.list[i];
      if (parameter->spec.rank < 2) continue;
      double expected = 1 / sqrt((double)parameter->spec.shape[1]);
      if (ends_with(parameter->name, ".output.weight") || ends_with(parameter->name, ".down.weight")) expected /= sqrt(2 * LAYERS);
      for (size_t n = 0; n < sizeof own / sizeof *own; n++)
        if (strcmp(parameter->name, own[n].name) == 0) expected = own[n].deviation;
      if (expected == 0) continue;
      const double found = deviation_of(parameter);
      if (!(fabs(found / expected - 1) <= 5 / sqrt(2 * (double)parameter->count)))
        fail_msg("%s has deviation %g, expected %g", parameter->name, found, expected);
      drawn++;
    }
    assert_true(drawn > 20);
    model_close(&m);
    test_setup_close(context);
  }
}

/* With or without model.bias, and whatever the size of embeddings: p of two tokens that differ is 1/4 within 0.43 / sqrt(d), five times which is
 * allowed, of two that do not 0. No minimum or maximum decides here. */
static void boundaries_are_the_exception_at_first(void **state) {
  (void)state;
  enum { WIDTH = 128 };
  static const int64_t lengths[SEQUENCES] = {17, 16, 15};
  for (int v = 0; v < 4; v++) {
    hark_context *context = test_reference_open();
    hark_network_config config = {BASE, .bias = v % 2 == 0, .embedding_deviation = v / 2,
                                  .ahca = {CHUNKS(HARK_AHCA_LEARNED, 4), SLOTS(2, 5, 2), .capacity = 0.5, .ratio_weight = 0.03}};
    hark_ahca_trace trace = {0};
    model m;
    config.width = WIDTH;
    config.ahca.chunk_minimum = 1;
    config.ahca.chunk_maximum = CONTEXT;
    model_open(&m, context, &config, HARK_F64);
    batch_open(&m, 0, lengths, SEQUENCES);
    (void)traced_loss(&m, 0, false, &trace);
    assert_int_equal(hark_tape_tensor(m.tape, trace.chunks)->shape[0], SEQUENCES + 1);
    const double *probability = hark_tape_tensor(m.tape, trace.probability)->data;
    for (int64_t s = 0, row = 0; s < SEQUENCES; row += lengths[s++]) {
      assert_true(probability[row] == 1);
      for (int64_t t = 1; t < lengths[s]; t++) {
        const double expected = token_at(s, t) == token_at(s, t - 1) ? 0 : 0.25;
        if (!(fabs(probability[row + t] - expected) <= (expected == 0 ? 1e-12 : 5 * 0.43 / sqrt(WIDTH))))
          fail_msg("variant %d, sequence %d, token %d: p is %g", v, (int)s, (int)t, probability[row + t]);
      }
    }
    batch_close(&m);
    model_close(&m);
    test_setup_close(context);
  }
}

/* Chunks that a rule finds cost what so many given ones cost: the count is of those that there are, whatever the minimum would allow. */
static void work_is_counted_for_the_chunks_that_there_are(void **state) {
  (void)state;
  static const int64_t lengths[SEQUENCES] = {16, 16, 16};
  double operations[2];
  for (int i = 0; i < 2; i++) {
    hark_context *context = test_reference_open();
    hark_network_config config = variants[0].config;
    model m;
    float logits[SEQUENCES * CLASSES];
    config.ahca.chunk = HARK_AHCA_DELIMITER; /* a token that does not occur: chunks of the maximum */
    config.vocabulary = VOCABULARY + 1;
    config.ahca.delimiter = VOCABULARY;
    config.ahca.chunk_minimum = i == 0 ? 1 : 4;
    config.ahca.chunk_maximum = 4;
    model_open(&m, context, &config, HARK_F32);
    batch_open(&m, 0, lengths, SEQUENCES);
    logits_of(&m, logits);
    operations[i] = hark_tape_operations(m.tape);
    batch_close(&m);
    model_close(&m);
    test_setup_close(context);
  }
  assert_true(operations[0] == operations[1]);
}

/* The first and the last global token of every sequence. */
typedef struct chooser {
  int64_t asked, rows;
} chooser;

static hark_status choose_first_and_last(void *user, const hark_tensor *global, const hark_tensor *offsets, hark_tensor *index) {
  chooser *c = user;
  const int64_t *first = offsets->data, count = index->shape[1];
  int32_t *rows = index->data;
  c->asked++;
  c->rows = first[offsets->shape[0] - 1];
  for (int64_t s = 0; s + 1 < offsets->shape[0]; s++)
    for (int64_t i = 0; i < count; i++)
      rows[s * count + i] = i == 0 && first[s] < first[s + 1]       ? (int32_t)first[s]
                            : i == 1 && first[s] + 1 < first[s + 1] ? (int32_t)first[s + 1] - 1
                                                                    : -1;
  return global->rank >= 2 ? HARK_OK : HARK_INTERNAL_ERROR;
}

/* The caller's chunks and the caller's selection; those of the rule, given, make no difference. */
static void callers_chunks_and_selection_take_the_place_of_the_rules(void **state) {
  (void)state;
  static const int64_t lengths[SEQUENCES] = {9, 1, 6}, as_fixed[] = {0, 4, 8, 9, 10, 14, 16}, own[] = {0, 1, 4, 9, 10, 13, 16},
                       wide[] = {0, 9, 10, 16}, many[] = {0, 1, 2, 3, 4, 5, 9, 10, 14, 16};
  hark_context *context = test_reference_open();
  model m;
  model_open(&m, context, &variants[0].config, HARK_F32);
  batch_open(&m, 0, lengths, SEQUENCES);
  float plain[SEQUENCES * CLASSES], found[SEQUENCES * CLASSES];
  logits_of(&m, plain);
  const struct {
    const int64_t *starts;
    int64_t count;
    bool selects, same;
    const char *refusal; /* NULL: taken */
  } cases[] = {{as_fixed, 7, false, true, NULL},
               {own, 7, false, false, "expected 1 to 4"}, /* five tokens or more, where the configuration has at most four */
               {NULL, 0, true, false, NULL},
               {wide, 4, false, false, "expected 1 to 4"},
               {many, 10, false, false, "sequence 0 is given in 6 chunks, expected at most the 5"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const int64_t shape[] = {SEQUENCES, variants[0].config.ahca.selected};
    hark_tensor starts = {0}, index = {0};
    chooser chosen = {0};
    hark_ahca_trace trace = {0};
    assert_int_equal(hark_tensor_create(context, HARK_I32, 2, shape, &index), HARK_OK);
    if (cases[i].count > 0) {
      assert_int_equal(hark_tensor_create(context, HARK_I64, 1, &cases[i].count, &starts), HARK_OK);
      assert_int_equal(hark_tensor_write(context, &starts, cases[i].starts), HARK_OK);
    }
    const hark_ahca_given given = {.starts = cases[i].count > 0 ? &starts : NULL,
                                   .choose = cases[i].selects ? choose_first_and_last : NULL,
                                   .user = &chosen,
                                   .index = &index};
    const hark_forward forward = {.tape = m.tape, .parameters = &m.network->parameters};
    hark_value tokens = 0, logits = 0;
    hark_tape_reset(m.tape);
    assert_int_equal(hark_tape_leaf(m.tape, &m.tokens, NULL, &tokens), HARK_OK);
    const hark_network_input input = {.tokens = tokens, .ranges = &m.ranges, .given = &given, .trace = &trace};
    const hark_status status = m.network->architecture->logits(context, m.network, &forward, &input, &logits);
    if (cases[i].refusal != NULL) {
      assert_int_equal(status, HARK_INVALID_ARGUMENT);
      assert_non_null(strstr(hark_context_message(context), cases[i].refusal));
    } else {
      assert_int_equal(status, HARK_OK);
      assert_int_equal(hark_tensor_read(context, hark_tape_tensor(m.tape, logits), found), HARK_OK);
      assert_int_equal(memcmp(plain, found, sizeof plain) == 0, cases[i].same);
    }
    if (cases[i].selects) {
      static const int32_t expected[] = {0, 4, 5, 6, 7, 10}; /* 6 slots make 5 global tokens, 2 make 2, 4 make 4 */
      assert_int_equal(chosen.asked, 1);
      assert_int_equal(hark_tape_tensor(m.tape, trace.selected)->shape[0], 6);
      assert_memory_equal(hark_tape_tensor(m.tape, trace.selected)->data, expected, sizeof expected);
    }
    hark_tensor_destroy(context, &starts);
    hark_tensor_destroy(context, &index);
  }
  batch_close(&m);
  model_close(&m);
  test_setup_close(context);
}

/* Without tables there are no numbers to run out of. */
static void chunks_without_numbers_may_be_as_many_as_tokens(void **state) {
  (void)state;
  static const int64_t lengths[SEQUENCES] = {9, 1, 6}, count = 17;
  int64_t each[17];
  for (int64_t i = 0; i < count; i++) each[i] = i;
  for (int learned = 0; learned < 2; learned++) {
    hark_context *context = test_reference_open();
    hark_network_config config = variants[0].config;
    hark_tensor starts = {0};
    model m;
    config.positions = learned ? HARK_POSITIONS_LEARNED : HARK_POSITIONS_NONE;
    model_open(&m, context, &config, HARK_F32);
    batch_open(&m, 0, lengths, SEQUENCES);
    assert_int_equal(hark_tensor_create(context, HARK_I64, 1, &count, &starts), HARK_OK);
    assert_int_equal(hark_tensor_write(context, &starts, each), HARK_OK);
    const hark_ahca_given given = {.starts = &starts};
    const hark_forward forward = {.tape = m.tape, .parameters = &m.network->parameters};
    hark_value tokens = 0, logits = 0;
    assert_int_equal(hark_tape_leaf(m.tape, &m.tokens, NULL, &tokens), HARK_OK);
    const hark_network_input input = {.tokens = tokens, .ranges = &m.ranges, .given = &given};
    assert_int_equal(m.network->architecture->logits(context, m.network, &forward, &input, &logits),
                     learned ? HARK_INVALID_ARGUMENT : HARK_OK);
    hark_tensor_destroy(context, &starts);
    batch_close(&m);
    model_close(&m);
    test_setup_close(context);
  }
}

static void refused(void (*change)(hark_network_config *), const char *word) {
  hark_context *context = test_reference_open();
  hark_network_config config = variants[0].config;
  hark_network *network = NULL;
  change(&config);
  assert_int_equal(hark_network_create(context, &config, HARK_F32, false, &network), HARK_BAD_CONFIGURATION);
  if (strstr(hark_context_message(context), word) == NULL) fail_msg("'%s' without '%s'", hark_context_message(context), word);
  assert_null(network);
  test_setup_close(context);
}

static void no_chunk(hark_network_config *config) { config->ahca.chunk_size = 0; }
static void crossed(hark_network_config *config) {
  config->ahca.chunk = HARK_AHCA_SEMANTIC;
  config->ahca.chunk_minimum = 9;
}
static void more_selected(hark_network_config *config) { config->ahca.selected = 6; }
static void wide_capacity(hark_network_config *config) { config->ahca.capacity = 1.5; }
static void few_capacities(hark_network_config *config) {
  config->ahca.capacities[0] = 0.5;
  config->ahca.capacity_count = 1;
}
static void growing_capacities(hark_network_config *config) {
  config->ahca.capacities[0] = 0.25;
  config->ahca.capacities[1] = 0.5;
  config->ahca.capacity_count = 2;
}
static void large_capacities(hark_network_config *config) {
  config->ahca.capacities[0] = 1.5;
  config->ahca.capacity_count = 2;
}
static void deep(hark_network_config *config) { config->layers = 65; }
static void odd_width(hark_network_config *config) { config->ahca.primary_width = 7; }
static void rotary(hark_network_config *config) { config->positions = HARK_POSITIONS_ROTARY; }
static void pairs(hark_network_config *config) { config->parts = 2; }
static void no_slots(hark_network_config *config) { config->ahca.primary_slots = 0; }
static void unequal(hark_network_config *config) {
  config->ahca.select = HARK_AHCA_QUERY;
  config->ahca.secondary_width = 4;
}
static void recomputed(hark_network_config *config) { config->recompute = true; }
static void windowed(hark_network_config *config) {
  config->structure = HARK_STRUCTURE_WINDOW;
  config->ahca.output = HARK_AHCA_OF_SELECTED;
}
static void kernel_of_selected(hark_network_config *config) {
  config->positional = "decay";
  config->ahca.output = HARK_AHCA_OF_SELECTED;
}
static void kernel_of_queries(hark_network_config *config) {
  config->positional = "decay";
  config->ahca.secondary_pool = HARK_AHCA_ATTENTION;
}
static void kernel_of_layers(hark_network_config *config) {
  config->positional = "decay";
  config->positional_scope = HARK_SCOPE_LAYER;
}
static void other_kernel(hark_network_config *config) { config->kernel = HARK_KERNEL_RBF; }

static void beyond(hark_network_config *config) {
  config->ahca.chunk = HARK_AHCA_DELIMITER;
  config->ahca.delimiter = VOCABULARY;
}
static void also_beyond(hark_network_config *config) {
  config->ahca.chunk = HARK_AHCA_DELIMITER;
  config->ahca.more_delimiters[0] = VOCABULARY;
  config->ahca.more_delimiter_count = 1;
}
static void tokens_of_selected(hark_network_config *config) {
  config->classes = 0;
  config->ahca.head = HARK_AHCA_LABELS;
  config->ahca.output = HARK_AHCA_OF_SELECTED;
}
static void labels_of_classes(hark_network_config *config) { config->ahca.head = HARK_AHCA_LABELS; }
static void without_positions(hark_network_config *config) {
  config->classes = 0;
  config->ahca.head = HARK_AHCA_RECONSTRUCTION;
  config->positions = HARK_POSITIONS_NONE;
}
static void too_deep(hark_network_config *config) { config->ahca.primary_depth = 3; }

static void what_cannot_be_is_refused_by_name(void **state) {
  (void)state;
  refused(no_chunk, "model.ahca.chunk_size");
  refused(crossed, "model.ahca.chunk_minimum");
  refused(more_selected, "model.ahca.selected");
  refused(wide_capacity, "model.ahca.capacity");
  refused(few_capacities, "model.ahca.capacities has 1 numbers, expected one for each layer but the first, 2");
  refused(growing_capacities, "model.ahca.capacities has 0.5 for layer 3, expected 0 to 0.25");
  refused(large_capacities, "model.ahca.capacities has 1.5 for layer 2, expected 0 to 1");
  refused(deep, "model.layers");
  refused(odd_width, "model.ahca.primary_width");
  refused(rotary, "rotary positions");
  refused(pairs, "one sequence");
  refused(no_slots, "model.ahca.primary_slots");
  refused(unequal, "model.ahca.select");
  refused(recomputed, "model.recompute");
  refused(windowed, "model.attention.structure");
  refused(kernel_of_selected, "model.positional");
  refused(kernel_of_queries, "model.ahca.secondary_pool");
  refused(kernel_of_layers, "model.positional_scope");
  refused(other_kernel, "model.attention.kernel");
  refused(beyond, "model.ahca.delimiter is 9, expected a token, 0 to 8");
  refused(also_beyond, "model.ahca.more_delimiters is 9, expected a token, 0 to 8");
  refused(tokens_of_selected, "model.ahca.output selected");
  refused(labels_of_classes, "model.ahca.head labels tells tokens");
  refused(without_positions, "model.positions learned");
  refused(too_deep, "model.ahca.primary_depth");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_parameter_has_the_gradient_of_differences),
      cmocka_unit_test(a_sequence_alone_has_the_logits_that_it_has_among_others),
      cmocka_unit_test(a_sequence_without_tokens_changes_nothing),
      cmocka_unit_test(a_kernel_that_ends_within_a_chunk_leaves_chunks_alone),
      cmocka_unit_test(depth_saves_the_work_of_the_layers_that_are_not_run),
      cmocka_unit_test(each_layer_has_the_capacity_that_is_given_for_it),
      cmocka_unit_test(initial_weights_are_as_large_as_what_they_read_asks_for),
      cmocka_unit_test(boundaries_are_the_exception_at_first),
      cmocka_unit_test(chunks_without_numbers_may_be_as_many_as_tokens),
      cmocka_unit_test(work_is_counted_for_the_chunks_that_there_are),
      cmocka_unit_test(callers_chunks_and_selection_take_the_place_of_the_rules),
      cmocka_unit_test(what_cannot_be_is_refused_by_name),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
