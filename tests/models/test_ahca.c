/* test_ahca.c - adaptive hierarchical compressed attention as a whole: every parameter's gradient against differences, a sequence alone and
 * among others, degenerate lengths, work, the caller's chunks.
 */
#include <hark/hark.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "models/ahca_model.h"
#include "support/cmocka_all.h"
#include "support/setups.h"

#define WITHIN 1e-5f /* of the largest logit: some dozen sums of 2^-24 each */

/* The straight-through estimator's gradient is that of its surrogate, which the probabilities of this point make an ordinary function. */
static void take_reference(ahca_model *m) {
  hark_ahca_trace trace = {0};
  (void)ahca_traced_loss(m, 0, false, &trace);
  if (trace.probability == 0 || !ahca_predicts_tokens(m)) return;
  const hark_tensor *probability = hark_tape_tensor(m->tape, trace.probability);
  assert_int_equal(hark_tensor_create(m->context, probability->type, 1, probability->shape, &m->reference), HARK_OK);
  assert_int_equal(hark_tensor_write(m->context, &m->reference, probability->data), HARK_OK);
}

/* The gradients of all parameters, without the surrogate, are those with it. */
static void check_straight_through(ahca_model *m, const char *name) {
  if (m->reference.type == HARK_NONE) return;
  const hark_tensor *gradients = &m->network->parameters.gradients;
  const size_t bytes = (size_t)hark_tensor_count(gradients) * sizeof(double);
  double *with = malloc(bytes);
  assert_non_null(with);
  memset(gradients->data, 0, bytes);
  (void)ahca_loss_of(m, 0, true);
  memcpy(with, gradients->data, bytes);
  hark_tensor_destroy(m->context, &m->reference);
  memset(gradients->data, 0, bytes);
  (void)ahca_loss_of(m, 0, true);
  const hark_parameter *boundary = hark_parameters_find(&m->network->parameters, "boundary.query.weight");
  assert_non_null(boundary);
  if (memcmp(with, gradients->data, bytes) != 0) fail_msg("%s: the straight-through estimator is not its surrogate", name);
  free(with);
}

/* Weights of a size at which nothing is nearly linear; norms' gains stay near one. */
static void draw_weights(const ahca_model *m) {
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
static bool is_alone(const ahca_model *m, const char *name) {
  return m->network->config.ahca.primary_slots == 1 &&
         (strstr(name, ".attention.query.") != NULL || strstr(name, ".attention.key.") != NULL);
}

#define TOLERANCE 2e-6 /* of the gradient's size */

/* Along a random direction in each parameter, by four-point differences. */
static void check_gradients(const ahca_model *m, const char *name, double remaining) {
  static const double steps[] = {1e-3, 1e-4, 1e-5};
  const hark_parameters *parameters = &m->network->parameters;
  const hark_random_stream stream = {.seed = 23, .layer_purpose = hark_random_layer_purpose(2, HARK_RANDOM_TEST)};
  memset(parameters->gradients.data, 0, (size_t)hark_tensor_count(&parameters->gradients) * sizeof(double));
  (void)ahca_loss_of(m, remaining, true);
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
        sum += shares[f] * ahca_loss_of(m, remaining, false);
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
  for (size_t v = 0; (int)v < ahca_variant_count; v++) {
    for (int full = 0; full < 2; full++) {
      hark_context *context = test_reference_open();
      ahca_model m;
      ahca_model_open(&m, context, &ahca_variants[v].config, HARK_F64);
      draw_weights(&m);
      ahca_batch_open(&m, 0, lengths, SEQUENCES);
      take_reference(&m);
      check_gradients(&m, ahca_variants[v].name, full);
      check_straight_through(&m, ahca_variants[v].name);
      ahca_batch_close(&m);
      ahca_model_close(&m);
      test_setup_close(context);
    }
  }
}

/* Length of the gradient of the boundaries' queries where the straight-through estimator is all that reaches them. Queries of tokens are
 * zero, so that a factor of a_t is one of all that the norm reads. */
static double straight_through_gradient(int place) {
  static const int64_t lengths[SEQUENCES] = {17, 5, 11};
  static const char *const queries[] = {"head.position.weight", "head.chunk.weight"};
  const hark_network_config config = {LABELS, .ahca = {CHUNKS(HARK_AHCA_CHUNK_LEARNED, 4), SLOTS(2, 4, 0), .straight_through = place,
                                                       .head = HARK_AHCA_HEAD_RECONSTRUCTION, .capacity = 1}};
  hark_context *context = test_reference_open();
  ahca_model m;
  ahca_model_open(&m, context, &config, HARK_F64);
  draw_weights(&m);
  m.without_smoothing = true;
  for (int i = 0; i < 2; i++) {
    const hark_parameter *table = hark_parameters_find(&m.network->parameters, queries[i]);
    assert_non_null(table);
    memset(table->weight.data, 0, (size_t)table->count * sizeof(double));
  }
  ahca_batch_open(&m, 0, lengths, SEQUENCES);
  (void)ahca_loss_of(&m, 0, true);
  const hark_parameter *boundary = hark_parameters_find(&m.network->parameters, "boundary.query.weight");
  assert_non_null(boundary);
  double square = 0;
  for (int64_t i = 0; i < boundary->count; i++) square += pow(((const double *)boundary->gradient.data)[i], 2);
  ahca_batch_close(&m);
  ahca_model_close(&m);
  test_setup_close(context);
  return sqrt(square);
}

/* norm(c y) = norm(y) but for the norm's epsilon, 1e-5 of squares that are here of the order of 1. */
static void a_norm_removes_the_straight_through_factor(void **state) {
  (void)state;
  const double before = straight_through_gradient(HARK_AHCA_STRAIGHT_BEFORE_NORM),
               after = straight_through_gradient(HARK_AHCA_STRAIGHT_AFTER_NORM);
  if (!(before > 0 && after > 100 * before)) fail_msg("the gradient is %g before the norm and %g after it", before, after);
}

static void logits_of(const ahca_model *m, void *out) {
  hark_forward forward = {.tape = m->tape, .parameters = &m->network->parameters};
  ahca_packing_give(&m->packed, &forward);
  hark_value tokens = 0, logits = 0;
  hark_tape_reset(m->tape);
  hark_tape_set_recording(m->tape, false);
  assert_int_equal(hark_tape_leaf(m->tape, &m->tokens, NULL, &tokens), HARK_OK);
  const hark_network_input input = {.tokens = tokens, .vectors = ahca_vectors_of(m), .ranges = &m->ranges};
  if (m->network->architecture->logits(m->context, m->network, &forward, &input, &logits) != HARK_OK)
    fail_msg("%s", hark_context_message(m->context));
  assert_int_equal(hark_tensor_count(hark_tape_tensor(m->tape, logits)), m->answers * ahca_choices(m));
  assert_int_equal(hark_tensor_read(m->context, hark_tape_tensor(m->tape, logits), out), HARK_OK);
}

/* Bit for bit with a deterministic context, and on the reference backend with any; elsewhere products of few rows take another kernel, and
 * the bound is that of some dozen sums. Lengths 1 to 9 and those around multiples of a chunk among them. */
static void a_sequence_alone_has_the_logits_that_it_has_among_others(void **state) {
  (void)state;
  static const int64_t batches[][SEQUENCES] = {{1, 2, 3}, {4, 5, 6}, {7, 8, 9}, {17, 1, 16}, {11, 12, 13}};
  test_setup setups[TEST_MAX_SETUPS];
  const int count = test_setups_guard_once(setups);
  for (int i = 0; i < 2 * count; i++) {
    const test_setup *setup = &setups[i / 2];
    const bool deterministic = i % 2 == 0, exact = deterministic || strcmp(setup->backend, "reference") == 0;
    for (size_t v = 0; (int)v < ahca_variant_count; v++) {
      hark_context *context = deterministic ? test_setup_open_deterministic(setup, 2) : test_setup_open(setup, 2);
      ahca_model m;
      ahca_model_open(&m, context, &ahca_variants[v].config, HARK_F32);
      for (size_t b = 0; b < sizeof batches / sizeof *batches; b++) {
        float together[SEQUENCES * CONTEXT * VOCABULARY], alone[CONTEXT * VOCABULARY], *of_one = together;
        ahca_batch_open(&m, 0, batches[b], SEQUENCES);
        logits_of(&m, together);
        ahca_batch_close(&m);
        for (int s = 0; s < SEQUENCES; s++) {
          ahca_batch_open(&m, s, &batches[b][s], 1);
          logits_of(&m, alone);
          ahca_batch_close(&m);
          const int64_t numbers = m.answers * ahca_choices(&m);
          float apart = 0, largest = 0;
          for (int64_t c = 0; c < numbers; c++) largest = fmaxf(largest, fabsf(alone[c]));
          for (int64_t c = 0; c < numbers; c++) apart = fmaxf(apart, fabsf(alone[c] - of_one[c]));
          for (int64_t c = 0; c < numbers; c++) assert_true(isfinite(alone[c]));
          if (exact ? memcmp(alone, of_one, (size_t)numbers * sizeof *alone) != 0 : !(apart <= WITHIN * largest))
            fail_msg("%s:%s%s: %s, a sequence of %d tokens, %g apart", setup->backend, setup->instruction_set,
                     deterministic ? ", deterministic" : "", ahca_variants[v].name, (int)batches[b][s], (double)apart);
          of_one += numbers;
        }
      }
      ahca_model_close(&m);
      test_setup_close(context);
    }
  }
}

/* A sequence of no tokens has no chunks and no slots, whose mean is zero, and the head's biases are zero at first: so are its logits, and
 * the others do not notice it. */
static void a_sequence_without_tokens_changes_nothing(void **state) {
  (void)state;
  static const int64_t lengths[SEQUENCES] = {7, 0, 12};
  for (size_t v = 0; (int)v < ahca_variant_count; v++) {
    hark_context *context = test_reference_open();
    ahca_model m;
    float together[SEQUENCES * CONTEXT * VOCABULARY], alone[CONTEXT * VOCABULARY];
    ahca_model_open(&m, context, &ahca_variants[v].config, HARK_F32);
    ahca_batch_open(&m, 0, lengths, SEQUENCES);
    logits_of(&m, together);
    const int64_t all = m.answers * ahca_choices(&m);
    for (int64_t i = 0; i < all; i++) assert_true(isfinite(together[i]));
    for (int c = 0; c < CLASSES && !ahca_predicts_tokens(&m); c++) assert_true(together[CLASSES + c] == 0.0f);
    ahca_batch_close(&m);
    for (int s = 0; s < SEQUENCES; s += 2) {
      ahca_batch_open(&m, s, &lengths[s], 1);
      logits_of(&m, alone);
      const int64_t numbers = m.answers * ahca_choices(&m);
      if (memcmp(alone, together + (s == 0 ? 0 : all - numbers), (size_t)numbers * sizeof *alone) != 0)
        fail_msg("%s: sequence %d", ahca_variants[v].name, s);
      ahca_batch_close(&m);
    }
    ahca_model_close(&m);
    test_setup_close(context);
  }
}

/* Weights a hundred times larger than they begin make logits of attention and scores of some ten thousand, where exponentials overflow that
 * were not made from differences. */
static void magnify(const ahca_model *m) {
  enum { MAGNIFIED = 100, MOST = 4096 };
  for (int i = 0; i < m->network->parameters.count; i++) {
    hark_parameter *parameter = &m->network->parameters.list[i];
    double wide[MOST];
    float narrow[MOST];
    void *numbers = parameter->weight.type == HARK_F64 ? (void *)wide : narrow;
    if (strcmp(parameter->name, "positional.parameters") == 0) continue; /* are logarithms */
    assert_in_range(parameter->count, 1, MOST);
    assert_int_equal(hark_tensor_read(m->context, &parameter->weight, numbers), HARK_OK);
    for (int64_t n = 0; n < parameter->count; n++) {
      if (numbers == wide)
        wide[n] *= MAGNIFIED;
      else
        narrow[n] *= MAGNIFIED;
    }
    assert_int_equal(hark_tensor_write(m->context, &parameter->weight, numbers), HARK_OK);
  }
}

static void check_depths(const ahca_model *m, const hark_ahca_trace *trace) {
  int32_t depth[SEQUENCES * CONTEXT];
  const hark_tensor *depths = hark_tape_tensor(m->tape, trace->depth);
  assert_in_range(hark_tensor_count(depths), 1, SEQUENCES * CONTEXT);
  assert_int_equal(hark_tensor_read(m->context, depths, depth), HARK_OK);
  for (int64_t k = 0; k < hark_tensor_count(depths); k++) assert_in_range(depth[k], 1, m->network->config.layers);
}

static void large_weights_overflow_nowhere(void **state) {
  (void)state;
  static const int64_t lengths[SEQUENCES] = {17, 1, 8};
  test_setup setups[TEST_MAX_SETUPS];
  const int count = test_setups_guard_once(setups);
  for (size_t v = 0; (int)v < ahca_variant_count; v++) {
    ahca_model m;
    for (int i = 0; i < count; i++) { /* f32 */
      float logits[SEQUENCES * CONTEXT * VOCABULARY];
      hark_context *context = test_setup_open(&setups[i], 2);
      ahca_model_open(&m, context, &ahca_variants[v].config, HARK_F32);
      magnify(&m);
      ahca_batch_open(&m, 0, lengths, SEQUENCES);
      logits_of(&m, logits);
      for (int64_t n = 0; n < m.answers * ahca_choices(&m); n++)
        if (!isfinite(logits[n]))
          fail_msg("%s:%s: %s: %g", setups[i].backend, setups[i].instruction_set, ahca_variants[v].name, (double)logits[n]);
      ahca_batch_close(&m);
      ahca_model_close(&m);
      test_setup_close(context);
    }
    hark_context *context = test_reference_open();
    hark_ahca_trace trace = {0};
    ahca_model_open(&m, context, &ahca_variants[v].config, HARK_F64);
    magnify(&m);
    ahca_batch_open(&m, 0, lengths, SEQUENCES);
    assert_true(isfinite(ahca_traced_loss(&m, 0, true, &trace)));
    if (trace.depth != 0) check_depths(&m, &trace);
    for (int i = 0; i < m.network->parameters.count; i++) {
      const hark_parameter *parameter = &m.network->parameters.list[i];
      for (int64_t n = 0; n < parameter->count; n++)
        if (!isfinite(((const double *)parameter->gradient.data)[n]))
          fail_msg("%s: gradient of %s", ahca_variants[v].name, parameter->name);
    }
    ahca_batch_close(&m);
    ahca_model_close(&m);
    test_setup_close(context);
  }
}

/* weights <- factor weights + value */
static void shift_weights(const ahca_model *m, const char *name, double factor, double value) {
  const hark_parameter *parameter = hark_parameters_find(&m->network->parameters, name);
  assert_non_null(parameter);
  double *weights = parameter->weight.data;
  for (int64_t n = 0; n < parameter->count; n++) weights[n] = factor * weights[n] + value;
}

/* One slot a chunk, all of C2 selected, no number of the chunk in it, and a head that is linear at this point: log G(1) = -e^5 between two
 * chunks leaves each with its own global token, as if it were a separate sequence, and the logits of both are the mean of the logits of
 * each. With G = 1 they are not. */
static void a_kernel_that_ends_within_a_chunk_leaves_chunks_alone(void **state) {
  (void)state;
  static const int64_t lengths[SEQUENCES] = {8, 4, 4};
  static const int32_t tokens[] = {1, 5, 2, 7, 3, 0, 8, 6, 1, 5, 2, 7, 3, 0, 8, 6};
  for (int steep = 0; steep < 2; steep++) {
    hark_context *context = test_reference_open();
    hark_network_config config = {BASE, .positional = "decay",
                                  .ahca = {CHUNKS(HARK_AHCA_CHUNK_FIXED, 4), SLOTS(1, 3, 3), .select = HARK_AHCA_SELECT_NORM}};
    config.layers = 1;
    ahca_model m;
    double logits[SEQUENCES][CLASSES], apart = 0;
    ahca_model_open(&m, context, &config, HARK_F64);
    draw_weights(&m);
    shift_weights(&m, "embedding.chunk.weight", 0, 0);
    shift_weights(&m, "head.hidden.bias", 1, 20);
    shift_weights(&m, "positional.parameters", 0, steep ? -5 : 20); /* logarithms */
    ahca_batch_open(&m, 0, lengths, SEQUENCES);
    assert_int_equal(hark_tensor_write(context, &m.tokens, tokens), HARK_OK);
    logits_of(&m, logits);
    for (int c = 0; c < CLASSES; c++) apart = fmax(apart, fabs(logits[0][c] - (logits[1][c] + logits[2][c]) / 2));
    if ((apart < 1e-10) != (steep == 1)) fail_msg("%s kernel: %g apart", steep ? "steep" : "flat", apart);
    ahca_batch_close(&m);
    ahca_model_close(&m);
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
    hark_network_config config = ahca_variants[0].config;
    config.ahca.capacity = capacities[i];
    config.ahca.ponder_weight = 0;
    ahca_model m;
    float logits[SEQUENCES * CLASSES];
    ahca_model_open(&m, context, &config, HARK_F32);
    ahca_batch_open(&m, 0, lengths, SEQUENCES);
    logits_of(&m, logits);
    operations[i] = hark_tape_operations(m.tape);
    ahca_batch_close(&m);
    ahca_model_close(&m);
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
    hark_network_config config = ahca_variants[0].config;
    hark_ahca_trace trace = {0};
    ahca_model m;
    memcpy(config.ahca.layer_capacities, cases[i].capacities, sizeof cases[i].capacities);
    config.ahca.capacity_count = cases[i].count;
    ahca_model_open(&m, context, &config, HARK_F64);
    ahca_batch_open(&m, 0, lengths, SEQUENCES);
    (void)ahca_traced_loss(&m, cases[i].remaining, false, &trace);
    const hark_tensor *depth = hark_tape_tensor(m.tape, trace.depth);
    const int32_t *depths = depth->data;
    assert_int_equal(depth->shape[0], SEQUENCES * CHUNKS_OF_ONE);
    for (int s = 0; s < SEQUENCES; s++)
      for (int l = 0; l < LAYERS; l++) {
        int64_t found = 0;
        for (int k = 0; k < CHUNKS_OF_ONE; k++) found += depths[s * CHUNKS_OF_ONE + k] > l;
        if (found != cases[i].at[l]) fail_msg("case %d, layer %d: %d chunks", (int)i, l + 1, (int)found);
      }
    ahca_batch_close(&m);
    ahca_model_close(&m);
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
    hark_network_config config = ahca_variants[0].config;
    ahca_model m;
    float logits[SEQUENCES * CLASSES];
    config.ahca.chunk = HARK_AHCA_CHUNK_DELIMITER; /* a token that does not occur: chunks of the maximum */
    config.vocabulary = VOCABULARY + 1;
    config.ahca.delimiter = VOCABULARY;
    config.ahca.chunk_minimum = i == 0 ? 1 : 4;
    config.ahca.chunk_maximum = 4;
    ahca_model_open(&m, context, &config, HARK_F32);
    ahca_batch_open(&m, 0, lengths, SEQUENCES);
    logits_of(&m, logits);
    operations[i] = hark_tape_operations(m.tape);
    ahca_batch_close(&m);
    ahca_model_close(&m);
    test_setup_close(context);
  }
  assert_true(operations[0] == operations[1]);
}

/* The first and the last global token of every sequence. */
typedef struct chooser {
  int64_t calls, rows;
} chooser;

static hark_status choose_first_and_last(void *user, const hark_tensor *global, const hark_tensor *offsets, hark_tensor *index) {
  chooser *c = user;
  const int64_t *first = offsets->data, count = index->shape[1];
  int32_t *rows = index->data;
  c->calls++;
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
  ahca_model m;
  ahca_model_open(&m, context, &ahca_variants[0].config, HARK_F32);
  ahca_batch_open(&m, 0, lengths, SEQUENCES);
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
    const int64_t shape[] = {SEQUENCES, ahca_variants[0].config.ahca.selected};
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
      assert_int_equal(chosen.calls, 1);
      assert_int_equal(hark_tape_tensor(m.tape, trace.selected)->shape[0], 6);
      assert_memory_equal(hark_tape_tensor(m.tape, trace.selected)->data, expected, sizeof expected);
    }
    hark_tensor_destroy(context, &starts);
    hark_tensor_destroy(context, &index);
  }
  ahca_batch_close(&m);
  ahca_model_close(&m);
  test_setup_close(context);
}

/* ---- local layers ---- */

/* One sequence, in which the pair 5 6 begins at 3 and at 10. The tokens at most 2 before and after both pairs are equal, or one of them
 * differs. All others differ. */
#define FIRST_PAIR 4 /* the second tokens of the pairs, before which a boundary may be */
#define SECOND_PAIR 11
static const int32_t equal_neighbours[] = {0, 7, 8, 5, 6, 1, 2, 3, 7, 8, 5, 6, 1, 2, 0, 4, 4};
static const int32_t another_neighbour[] = {0, 7, 8, 5, 6, 1, 2, 3, 7, 8, 5, 6, 1, 3, 0, 4, 4};

/* p of the second pair less p of the first. */
static double difference_of_boundaries(int64_t layers, int64_t window, const int32_t *tokens) {
  static const int64_t length = CONTEXT;
  hark_network_config config = {EVEN, .attention.structure = HARK_EVERY_LAYER(HARK_STRUCTURE_DENSE), .classes = CLASSES,
                                .ahca = {CHUNKS(HARK_AHCA_CHUNK_LEARNED, 4), SLOTS(2, 5, 2), .capacity = 0.5}};
  hark_context *context = test_reference_open();
  hark_ahca_trace trace = {0};
  ahca_model m;
  config.ahca.local_layers = layers;
  config.ahca.local_window = window;
  config.ahca.chunk_minimum = 1; /* neither of the lengths decides */
  config.ahca.chunk_maximum = CONTEXT;
  ahca_model_open(&m, context, &config, HARK_F64);
  draw_weights(&m);
  ahca_batch_open(&m, 0, &length, 1);
  assert_int_equal(hark_tensor_write(context, &m.tokens, tokens), HARK_OK);
  (void)ahca_traced_loss(&m, 0, false, &trace);
  const double *p = hark_tape_tensor(m.tape, trace.probability)->data;
  const double difference = p[SECOND_PAIR] - p[FIRST_PAIR];
  ahca_batch_close(&m);
  ahca_model_close(&m);
  test_setup_close(context);
  return difference;
}

/* A boundary is the function of a pair of tokens without local layers, and with them of the tokens around the pair: those within the
 * window, one more window for every layer. Equal neighbours have equal numbers within rounding, since rotary angles depend on the place. */
static void a_boundary_depends_on_the_neighbours_of_its_pair(void **state) {
  (void)state;
  static const struct {
    int64_t layers, window;
    bool sees; /* the token 2 after the pair */
  } cases[] = {{1, 1, false}, {1, 2, true}, {2, 1, true}};
  assert_true(difference_of_boundaries(0, 2, equal_neighbours) == 0);
  assert_true(difference_of_boundaries(0, 2, another_neighbour) == 0);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const double equal = difference_of_boundaries(cases[i].layers, cases[i].window, equal_neighbours),
                 other = difference_of_boundaries(cases[i].layers, cases[i].window, another_neighbour);
    if (!(fabs(equal) < 1e-12)) fail_msg("%d layers: %g with equal neighbours", (int)cases[i].layers, equal);
    if (cases[i].sees != (fabs(other) > 1e-4)) fail_msg("case %d: %g with another neighbour", (int)i, other);
  }
  /* a window of 3 sees tokens that differ in both */
  assert_true(fabs(difference_of_boundaries(1, 3, equal_neighbours)) > 1e-4);
}

/* The loss, and the gradients, which are allocated. */
static double loss_and_gradients(const hark_network_config *config, double **gradients, int64_t *count) {
  static const int64_t lengths[SEQUENCES] = {17, 5, 11};
  hark_context *context = test_reference_open();
  ahca_model m;
  ahca_model_open(&m, context, config, HARK_F64);
  draw_weights(&m);
  ahca_batch_open(&m, 0, lengths, SEQUENCES);
  const hark_tensor *flat = &m.network->parameters.gradients;
  memset(flat->data, 0, (size_t)hark_tensor_count(flat) * sizeof(double));
  const double loss = ahca_loss_of(&m, 0, true);
  *count = hark_tensor_count(flat);
  *gradients = malloc((size_t)*count * sizeof(double));
  assert_non_null(*gradients);
  memcpy(*gradients, flat->data, (size_t)*count * sizeof(double));
  ahca_batch_close(&m);
  ahca_model_close(&m);
  test_setup_close(context);
  return loss;
}

/* With dropout: a block that is built again drops the same numbers. */
static void local_layers_that_are_recomputed_have_the_same_bits(void **state) {
  (void)state;
  hark_network_config config = {EVEN, .attention.structure = HARK_EVERY_LAYER(HARK_STRUCTURE_DENSE), .classes = CLASSES, .dropout = 0.3,
                                .ahca = {CHUNKS(HARK_AHCA_CHUNK_FIXED, 4), SLOTS(2, 5, 2), LOCAL(2, 2), .capacity = 0.5}};
  double *gradients[2], loss[2];
  int64_t count[2];
  for (int i = 0; i < 2; i++) {
    config.recompute = i == 1;
    loss[i] = loss_and_gradients(&config, &gradients[i], &count[i]);
  }
  assert_true(loss[0] == loss[1]);
  assert_int_equal(count[0], count[1]);
  assert_memory_equal(gradients[0], gradients[1], (size_t)count[0] * sizeof(double));
  for (int i = 0; i < 2; i++) free(gradients[i]);
}

static void local_layers_without_plans_are_refused(void **state) {
  (void)state;
  static const int64_t length = 5;
  const hark_network_config config = {EVEN, .attention.structure = HARK_EVERY_LAYER(HARK_STRUCTURE_DENSE), .classes = CLASSES,
                                      .ahca = {CHUNKS(HARK_AHCA_CHUNK_FIXED, 4), SLOTS(2, 5, 2), LOCAL(1, 2), .capacity = 0.5}};
  hark_context *context = test_reference_open();
  ahca_model m;
  ahca_model_open(&m, context, &config, HARK_F32);
  ahca_batch_open(&m, 0, &length, 1);
  const hark_forward forward = {.tape = m.tape, .parameters = &m.network->parameters};
  hark_value tokens = 0, logits = 0;
  assert_int_equal(hark_tape_leaf(m.tape, &m.tokens, NULL, &tokens), HARK_OK);
  const hark_network_input input = {.tokens = tokens, .ranges = &m.ranges};
  assert_int_equal(m.network->architecture->logits(context, m.network, &forward, &input, &logits), HARK_INVALID_ARGUMENT);
  assert_non_null(strstr(hark_context_message(context), "local layers need attention plans"));
  ahca_batch_close(&m);
  ahca_model_close(&m);
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
    hark_network_config config = ahca_variants[0].config;
    hark_tensor starts = {0};
    ahca_model m;
    config.positions = learned ? HARK_POSITIONS_LEARNED : HARK_POSITIONS_NONE;
    ahca_model_open(&m, context, &config, HARK_F32);
    ahca_batch_open(&m, 0, lengths, SEQUENCES);
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
    ahca_batch_close(&m);
    ahca_model_close(&m);
    test_setup_close(context);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_parameter_has_the_gradient_of_differences),
      cmocka_unit_test(a_norm_removes_the_straight_through_factor),
      cmocka_unit_test(a_sequence_alone_has_the_logits_that_it_has_among_others),
      cmocka_unit_test(a_sequence_without_tokens_changes_nothing),
      cmocka_unit_test(large_weights_overflow_nowhere),
      cmocka_unit_test(a_kernel_that_ends_within_a_chunk_leaves_chunks_alone),
      cmocka_unit_test(depth_saves_the_work_of_the_layers_that_are_not_run),
      cmocka_unit_test(each_layer_has_the_capacity_that_is_given_for_it),
      cmocka_unit_test(chunks_without_numbers_may_be_as_many_as_tokens),
      cmocka_unit_test(work_is_counted_for_the_chunks_that_there_are),
      cmocka_unit_test(a_boundary_depends_on_the_neighbours_of_its_pair),
      cmocka_unit_test(local_layers_that_are_recomputed_have_the_same_bits),
      cmocka_unit_test(local_layers_without_plans_are_refused),
      cmocka_unit_test(callers_chunks_and_selection_take_the_place_of_the_rules),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
