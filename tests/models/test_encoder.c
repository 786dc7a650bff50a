/* test_encoder.c - encoders, and packed sequences in general: gradients against differences, pooling against a plain computation, an
 * example's logits with others beside it and alone, two towers, decoders on packed sequences, refusals. */
#include <hark/hark.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/encoder.h"
#include "positional/list.h"
#include "support/boundaries.h"
#include "support/cmocka_all.h"
#include "support/setups.h"
#include "support/text_files.h"

#define VOCABULARY 11
#define CLASSES 3
#define LONGEST 9
#define ROWS_LIMIT 8
#define SEQUENCES_LIMIT (2 * ROWS_LIMIT)
#define TOKENS_LIMIT (SEQUENCES_LIMIT * LONGEST)

typedef struct variant {
  const char *name;
  hark_network_config config;
} variant;

#define BASE(number_of_key_heads)                                                                                                          \
  .architecture = HARK_ARCHITECTURE_ENCODER, .classes = CLASSES, .vocabulary = VOCABULARY, .layers = 2, .heads = 2,                        \
  .key_heads = (number_of_key_heads), .width = 8, .feed_forward_width = 12, .context = LONGEST, .norm_epsilon = 1e-5,                      \
  .rotary.base = 10000, .attention.sigma = 2

static const variant variants[] = {
    {"rotary_class", {BASE(2), .positions = HARK_POSITIONS_ROTARY, .rotary.pairs = HARK_ROTARY_HALF, .bias = true}},
    {"sinusoidal_mean_narrow_attention",
     {BASE(1), .positions = HARK_POSITIONS_SINUSOIDAL, .pooling = HARK_POOLING_MEAN, .attention_width = 4, .head_width = 5}},
    {"learned_pairs_first_window",
     {BASE(2), .positions = HARK_POSITIONS_LEARNED, .pooling = HARK_POOLING_FIRST, .parts = 2,
      .attention.structure = HARK_EVERY_LAYER(HARK_STRUCTURE_WINDOW), .attention.window = 2, .bias = true}},
    {"hierarchical_mean_query",
     {BASE(2), .attention.structure = HARK_EVERY_LAYER(HARK_STRUCTURE_HIERARCHICAL), .attention.hierarchy_block = 2,
      .attention.hierarchical_bias = true}},
    {"hierarchical_exact_kernel_pairs_recompute",
     {BASE(1), .parts = 2, .attention.structure = HARK_EVERY_LAYER(HARK_STRUCTURE_HIERARCHICAL), .attention.hierarchy_block = 2,
      .attention.coarse_query = HARK_COARSE_QUERY_EXACT, .positional = "kerple_log", .positional_scope = HARK_SCOPE_LAYER,
      .pooling = HARK_POOLING_MEAN, .recompute = true}},
    {"kernel_shared_recompute", {BASE(2), .positional = "bank[2](decay*periodic)", .recompute = true}},
    {"directed_kernel_recompute", {BASE(2), .positional = "left(decay)*right(bank[2](rbf))", .recompute = true}},
    {"directed_kernel_hierarchical_of_layers",
     {BASE(1), .parts = 2, .attention.structure = HARK_EVERY_LAYER(HARK_STRUCTURE_HIERARCHICAL), .attention.hierarchy_block = 2,
      .positional = "left(decay)+right(t5[4])|kerple_log", .positional_scope = HARK_SCOPE_LAYER, .pooling = HARK_POOLING_MEAN}},
    {"directed_kernel_window_of_heads",
     {BASE(2), .positional = "left(decay)|matern32", .attention.structure = HARK_EVERY_LAYER(HARK_STRUCTURE_WINDOW), .attention.window = 3,
      .positional_stretch = 1.5, .pooling = HARK_POOLING_MEAN}},
    {"learned_rates_recompute",
     {BASE(1), .positions = HARK_POSITIONS_ROTARY, .rotary.learned = HARK_ROTARY_OF_HEAD, .recompute = true,
      .activation = HARK_ACTIVATION_GATED_SILU, .norm = HARK_NORM_RMS}},
    {"rbf_dropout_recompute",
     {BASE(2), .positions = HARK_POSITIONS_SINUSOIDAL, .attention.kernel = HARK_KERNEL_RBF, .dropout = 0.2, .embedding_dropout = 0.1,
      .attention.dropout = 0.3, .recompute = true}},
    {"kernel_ridge_learned_kernel",
     {BASE(1), .positions = HARK_POSITIONS_LEARNED, .attention.normalisation = HARK_EVERY_LAYER(HARK_NORMALISATION_CME),
      .attention.kernel = HARK_KERNEL_RBF, .attention.ridge = 0.5, .attention.ridge_learned = true, .attention.sigma_learned = true,
      .positional = "decay", .parts = 2, .pooling = HARK_POOLING_MEAN}},
    {"hierarchical_linear_kernel_recompute",
     {BASE(1), .attention.structure = HARK_EVERY_LAYER(HARK_STRUCTURE_HIERARCHICAL), .attention.hierarchy_block = 2,
      .attention.interpolation = HARK_INTERPOLATION_LINEAR, .attention.hierarchical_bias = true, .positional = "left(decay)*right(rbf)",
      .pooling = HARK_POOLING_MEAN, .recompute = true}},
    {"picture_of_one_column", /* of 9 pixels, on three levels */
     {BASE(1), .attention.structure = HARK_EVERY_LAYER(HARK_STRUCTURE_HIERARCHICAL), .attention.hierarchy_block = 4,
      .attention.grid_columns = 1, .pooling = HARK_POOLING_MEAN}},
    {"picture_exact_recompute",
     {BASE(2), .attention.structure = HARK_EVERY_LAYER(HARK_STRUCTURE_HIERARCHICAL), .attention.hierarchy_block = 4,
      .attention.grid_columns = 7, .attention.coarse_query = HARK_COARSE_QUERY_EXACT, .pooling = HARK_POOLING_FIRST, .recompute = true}},
    {"cme_noise",
     {BASE(1), .positions = HARK_POSITIONS_LEARNED, .attention.normalisation = HARK_EVERY_LAYER(HARK_NORMALISATION_CME),
      .attention.kernel = HARK_KERNEL_RBF, .attention.ridge = 0.5, .attention.noise_learned = true, .parts = 2,
      .pooling = HARK_POOLING_MEAN}},
};
#define VARIANTS (sizeof variants / sizeof *variants)

/* Lengths of the sequences of the examples, those of a pair next to each other. */
static const int64_t lengths[SEQUENCES_LIMIT] = {5, 9, 1, 4, 7, 2, 3, 8, 6, 6, 9, 1, 2, 5, 4, 3};

/* A network, and a packed batch for it. */
typedef struct packed {
  hark_context *context;
  hark_network *network;
  hark_attention_plan **plans;
  hark_tape *tape;
  int64_t rows, tokens, longest;
  int32_t inputs[TOKENS_LIMIT], positions[TOKENS_LIMIT], labels[ROWS_LIMIT];
  int64_t segments[TOKENS_LIMIT], ranges[2 * SEQUENCES_LIMIT];
  hark_tensor tokens_tensor, positions_tensor, ranges_tensor, labels_tensor;
  hark_packing packing;
} packed;

static int64_t parts_of(const hark_network_config *config) { return config->parts != 0 ? config->parts : 1; }

static int32_t token_at(int64_t sequence, int64_t position) {
  const hark_random_stream stream = {.seed = 3, .layer_purpose = hark_random_layer_purpose(0, HARK_RANDOM_TEST)};
  return (int32_t)(hark_random_word(&stream, (uint64_t)(sequence * LONGEST + position)) % VOCABULARY);
}

/* Packs `rows` of the examples, from number `first` on. */
static void pack(packed *p, int64_t first, int64_t rows) {
  const int64_t parts = parts_of(&p->network->config);
  p->rows = rows;
  p->tokens = p->longest = 0;
  for (int64_t i = 0; i < rows * parts; i++) {
    const int64_t sequence = first * parts + i;
    p->ranges[2 * i] = p->tokens;
    for (int64_t l = 0; l < lengths[sequence]; l++, p->tokens++) {
      p->inputs[p->tokens] = token_at(sequence, l);
      p->positions[p->tokens] = (int32_t)l;
      p->segments[p->tokens] = i;
    }
    p->ranges[2 * i + 1] = p->tokens;
    p->longest = lengths[sequence] > p->longest ? lengths[sequence] : p->longest;
  }
  for (int64_t i = 0; i < rows; i++) p->labels[i] = (int32_t)((first + i) % CLASSES);
}

static void open_network(packed *p, hark_context *context, const hark_network_config *config, hark_type type) {
  *p = (packed){.context = context};
  const hark_pass_sizes sizes = {
      .batch = 1, .queries = TOKENS_LIMIT, .keys = TOKENS_LIMIT, .sequences = SEQUENCES_LIMIT, .longest = LONGEST};
  assert_fine(context, hark_network_create(context, config, type, true, &p->network));
  assert_fine(context, hark_parameters_initialise(context, &p->network->parameters, 5));
  assert_fine(context, hark_network_plans_create(context, p->network, &sizes, true, &p->plans));
  assert_fine(context, hark_tape_create(context, &p->tape));
}

static void close_tensors(packed *p) {
  hark_tensor *const tensors[] = {&p->tokens_tensor, &p->positions_tensor, &p->ranges_tensor, &p->labels_tensor};
  for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) hark_tensor_destroy(p->context, tensors[i]);
}

static void close_network(packed *p) {
  close_tensors(p);
  hark_tape_destroy(&p->tape);
  hark_network_plans_destroy(p->context, p->network, &p->plans);
  hark_network_destroy(p->context, &p->network);
}

static void write_batch(packed *p) {
  const int64_t tokens[] = {1, p->tokens}, ranges[] = {p->rows, parts_of(&p->network->config), 2};
  close_tensors(p);
  assert_fine(p->context, hark_tensor_create(p->context, HARK_I32, 2, tokens, &p->tokens_tensor));
  assert_fine(p->context, hark_tensor_create(p->context, HARK_I32, 1, &p->tokens, &p->positions_tensor));
  assert_fine(p->context, hark_tensor_create(p->context, HARK_I64, 3, ranges, &p->ranges_tensor));
  assert_fine(p->context, hark_tensor_create(p->context, HARK_I32, 1, &p->rows, &p->labels_tensor));
  assert_fine(p->context, hark_tensor_write(p->context, &p->tokens_tensor, p->inputs));
  assert_fine(p->context, hark_tensor_write(p->context, &p->positions_tensor, p->positions));
  assert_fine(p->context, hark_tensor_write(p->context, &p->ranges_tensor, p->ranges));
  assert_fine(p->context, hark_tensor_write(p->context, &p->labels_tensor, p->labels));
  p->packing = (hark_packing){.segments = p->segments, .positions = &p->positions_tensor, .longest = p->longest};
}

static hark_forward forward_of(const packed *p, bool training) {
  return (hark_forward){
      .tape = p->tape, .parameters = &p->network->parameters, .training = training, .seed = 17, .packing = &p->packing, .plans = p->plans};
}

static hark_value begin_pass(packed *p) {
  hark_value tokens = 0;
  hark_tape_reset(p->tape);
  assert_fine(p->context, hark_tape_leaf(p->tape, &p->tokens_tensor, NULL, &tokens));
  return tokens;
}

static hark_value logits_value(packed *p, const hark_forward *forward) {
  const hark_network_input input = {.tokens = begin_pass(p), .ranges = &p->ranges_tensor};
  hark_value logits = 0;
  assert_fine(p->context, p->network->architecture->logits(p->context, p->network, forward, &input, &logits));
  return logits;
}

/* Numbers of a value, as doubles. */
static void read_value(const packed *p, hark_value value, double *out) {
  const hark_tensor *tensor = hark_tape_tensor(p->tape, value);
  const int64_t count = hark_tensor_count(tensor);
  assert_fine(p->context, hark_tensor_read(p->context, tensor, out));
  if (tensor->type == HARK_F64) return;
  float *narrow = malloc((size_t)count * sizeof *narrow);
  assert_fine(p->context, hark_tensor_read(p->context, tensor, narrow));
  for (int64_t i = 0; i < count; i++) out[i] = (double)narrow[i];
  free(narrow);
}

static void logits_of(packed *p, double *out) {
  const hark_forward forward = forward_of(p, false);
  write_batch(p);
  read_value(p, logits_value(p, &forward), out);
}

/* ---- gradients ---- */

static double loss_of(packed *p, bool backward) {
  const hark_forward forward = forward_of(p, true);
  const hark_value logits = logits_value(p, &forward);
  hark_value labels = 0, loss = 0;
  double number = 0;
  assert_fine(p->context, hark_tape_leaf(p->tape, &p->labels_tensor, NULL, &labels));
  assert_fine(p->context, hark_network_loss(p->tape, logits, labels, (hark_target_loss){0.5, 0.05, 0.02}, &loss));
  if (backward) {
    hark_tensor gradients = p->network->parameters.gradients;
    assert_fine(p->context, hark_tensor_zero(p->context, &gradients));
    assert_fine(p->context, hark_tape_backward(p->tape, loss, 1.0));
  }
  read_value(p, loss, &number);
  return number;
}

/* The head has a relu: its weights are made larger than the steps of the differences, so that no kink lies within them. */
static void enlarge_head(packed *p, double *weights) {
  for (int32_t i = 0; i < p->network->parameters.count; i++) {
    const hark_parameter *parameter = &p->network->parameters.list[i];
    if (strncmp(parameter->name, "head.", 5) != 0) continue;
    const bool bias = strstr(parameter->name, "bias") != NULL;
    for (int64_t j = 0; j < parameter->count; j++)
      weights[parameter->first + j] = bias ? (j % 2 == 0 ? 0.9 : -0.9) : 8 * weights[parameter->first + j];
  }
}

/* Four-point differences as in test_decoder.c; the bound is 1e-6 of the largest gradient. */
static void gradients_agree_with_differences(void **state) {
  (void)state;
  const double h = 1e-4;
  for (size_t v = 0; v < VARIANTS; v++) {
    hark_context *context = test_reference_open();
    packed p;
    open_network(&p, context, &variants[v].config, HARK_F64);
    pack(&p, 0, 4);
    write_batch(&p);
    hark_parameters *parameters = &p.network->parameters;
    const int64_t total = parameters->weights.shape[0];
    double *weights = malloc((size_t)total * sizeof *weights), *gradients = malloc((size_t)total * sizeof *gradients);
    assert_fine(context, hark_tensor_read(context, &parameters->weights, weights));
    enlarge_head(&p, weights);
    assert_fine(context, hark_tensor_write(context, &parameters->weights, weights));
    (void)loss_of(&p, true);
    assert_fine(context, hark_tensor_read(context, &parameters->gradients, gradients));
    double largest = 0;
    for (int64_t i = 0; i < total; i++) largest = fmax(largest, fabs(gradients[i]));
    assert_true(largest > 1e-3);
    for (int32_t n = 0; n < parameters->count; n++) {
      const hark_parameter *parameter = &parameters->list[n];
      const int64_t stride = parameter->count / 3 + 1; /* three places of each */
      for (int64_t j = stride / 2; j < parameter->count; j += stride) {
        const int64_t i = parameter->first + j;
        const double before = weights[i], steps[4] = {-2 * h, -h, h, 2 * h};
        double at[4];
        for (int k = 0; k < 4; k++) {
          weights[i] = before + steps[k];
          assert_fine(context, hark_tensor_write(context, &parameters->weights, weights));
          at[k] = loss_of(&p, false);
        }
        weights[i] = before;
        const double expected = (8 * (at[2] - at[1]) - (at[3] - at[0])) / (12 * h);
        if (!(fabs(gradients[i] - expected) <= 1e-6 * largest))
          fail_msg("%s: %s element %lld: %.10g, by differences %.10g", variants[v].name, parameter->name, (long long)j, gradients[i],
                   expected);
      }
    }
    free(weights);
    free(gradients);
    close_network(&p);
    test_setup_close(context);
  }
}

/* With right(window(0)) the first row sees itself alone, and with left(window(0)) also the keys after it. */
static void directions_are_those_of_the_tokens(void **state) {
  (void)state;
  static const struct {
    const char *expression;
    bool sees;
  } cases[] = {{"right(window(0))", false}, {"left(window(0))", true}, {"left(decay)*right(window(0))", false}};
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    hark_network_config config = {BASE(2), .pooling = HARK_POOLING_FIRST, .positional = cases[c].expression};
    hark_context *context = test_reference_open();
    double before[CLASSES], after[CLASSES];
    packed p;
    open_network(&p, context, &config, HARK_F64);
    pack(&p, 1, 1);
    logits_of(&p, before);
    for (int64_t i = 1; i < p.tokens; i++) p.inputs[i] = (p.inputs[i] + 1) % VOCABULARY;
    logits_of(&p, after);
    assert_int_equal(memcmp(before, after, sizeof before) != 0, cases[c].sees);
    close_network(&p);
    test_setup_close(context);
  }
}

/* ---- examples and their batch ---- */

/* On other backends products choose their order of summation by the number of rows: some dozen roundings of numbers of order 1 through two
 * blocks, and a head whose weights are .02. */
#define ROUNDED 1e-6

/* An example's logits have the same bits whatever lies beside it where products do not look at the number of rows, and else up to
 * rounding. */
static void an_example_does_not_know_its_batch(void **state) {
  (void)state;
  test_setup setups[TEST_MAX_SETUPS];
  const int setup_count = test_setups_guard_once(setups);
  for (int s = 0; s < setup_count; s++) {
    hark_context *context = test_setup_open(&setups[s], 2);
    for (size_t v = 0; v < VARIANTS; v++) {
      double together[ROWS_LIMIT * CLASSES], alone[CLASSES];
      packed p;
      hark_network_config config = variants[v].config;
      config.attention.dropout = 0; /* of the plans, which here are those of training */
      open_network(&p, context, &config, HARK_F32);
      pack(&p, 0, ROWS_LIMIT);
      logits_of(&p, together);
      for (int64_t row = 0; row < ROWS_LIMIT; row++) {
        pack(&p, row, 1);
        logits_of(&p, alone);
        for (int c = 0; c < CLASSES; c++)
          if (!(fabs(alone[c] - together[row * CLASSES + c]) <= (strcmp(setups[s].backend, "reference") == 0 ? 0 : ROUNDED)))
            fail_msg("%s %s: %s, example %lld: %.9g alone, %.9g in a batch", setups[s].backend, setups[s].instruction_set, variants[v].name,
                     (long long)row, alone[c], together[row * CLASSES + c]);
      }
      close_network(&p);
    }
    test_setup_close(context);
  }
}

/* ---- the head ---- */

/* A parameter's numbers. */
static void read_parameter(const packed *p, const char *name, double *out) {
  const hark_parameter *parameter = hark_parameters_find(&p->network->parameters, name);
  assert_non_null(parameter);
  assert_fine(p->context, hark_tensor_read(p->context, &parameter->weight, out));
}

/* to[out] <- W from[in] + b, and relu where asked. */
static void dense_layer(const packed *p, const char *prefix, int64_t in, int64_t out, const double *from, bool relu, double *to) {
  double weight[32 * 32], bias[32];
  char name[64];
  (void)snprintf(name, sizeof name, "%s.weight", prefix);
  read_parameter(p, name, weight);
  (void)snprintf(name, sizeof name, "%s.bias", prefix);
  read_parameter(p, name, bias);
  for (int64_t o = 0; o < out; o++) {
    to[o] = bias[o];
    for (int64_t i = 0; i < in; i++) to[o] += weight[o * in + i] * from[i];
    if (relu && to[o] < 0) to[o] = 0;
  }
}

/* norm(h) of every token: what the stack leaves, through the last norm. */
static void hidden_rows(packed *p, double *rows) {
  const hark_forward forward = forward_of(p, false);
  hark_value x = 0, y = 0;
  write_batch(p);
  assert_fine(p->context, hark_stack_apply(p->context, p->network, &forward, begin_pass(p), &x));
  assert_fine(p->context, hark_norm_apply(&forward, &p->network->final_norm, x, &y));
  read_value(p, y, rows);
}

static void pooling_and_heads_are_as_defined(void **state) {
  (void)state;
  for (int pooling = HARK_POOLING_CLASS; pooling <= HARK_POOLING_FIRST; pooling++)
    for (int64_t parts = 1; parts <= 2; parts++) {
      hark_context *context = test_reference_open();
      hark_network_config config = variants[0].config;
      config.pooling = (hark_pooling)pooling;
      config.parts = parts;
      packed p;
      open_network(&p, context, &config, HARK_F64);
      pack(&p, 0, 5);
      static double rows[TOKENS_LIMIT * 8];
      double logits[5 * CLASSES];
      const int64_t width = config.width, inner = config.feed_forward_width;
      hidden_rows(&p, rows);
      logits_of(&p, logits);
      for (int64_t n = 0; n < p.rows; n++) {
        double pooled[16] = {0}, hidden[32], second[32], expected[CLASSES];
        for (int64_t part = 0; part < parts; part++) {
          const int64_t *range = &p.ranges[2 * (n * parts + part)];
          const int64_t count = pooling == HARK_POOLING_MEAN ? range[1] - range[0] : 1;
          for (int64_t l = range[0]; l < range[0] + count; l++)
            for (int64_t d = 0; d < width; d++) pooled[part * width + d] += rows[l * width + d] / (double)count;
        }
        dense_layer(&p, "head.hidden", parts * width, inner, pooled, true, hidden);
        if (parts == 2) dense_layer(&p, "head.second", inner, inner / 2, hidden, true, second);
        dense_layer(&p, "head", parts == 2 ? inner / 2 : inner, CLASSES, parts == 2 ? second : hidden, false, expected);
        for (int c = 0; c < CLASSES; c++) assert_true(fabs(expected[c] - logits[n * CLASSES + c]) <= 1e-14);
      }
      close_network(&p);
      test_setup_close(context);
    }
}

/* Both towers are the same function: where the head weighs them alike, a pair may be turned round. */
static void towers_share_their_weights(void **state) {
  (void)state;
  hark_context *context = test_reference_open();
  hark_network_config config = variants[0].config;
  config.parts = 2;
  packed p;
  open_network(&p, context, &config, HARK_F64);
  hark_parameter *hidden = hark_parameters_find(&p.network->parameters, "head.hidden.weight");
  assert_int_equal(hidden->spec.shape[1], 2 * config.width);
  double weight[32 * 32], forth[CLASSES], back[CLASSES], other[CLASSES];
  read_parameter(&p, "head.hidden.weight", weight);
  pack(&p, 1, 1);
  logits_of(&p, other);
  for (int64_t o = 0; o < config.feed_forward_width; o++)
    memcpy(&weight[(2 * o + 1) * config.width], &weight[2 * o * config.width], (size_t)config.width * sizeof *weight);
  assert_fine(context, hark_tensor_write(context, &hidden->weight, weight));
  logits_of(&p, forth);
  for (int i = 0; i < 2; i++) { /* the second range first */
    const int64_t kept = p.ranges[i];
    p.ranges[i] = p.ranges[2 + i];
    p.ranges[2 + i] = kept;
  }
  logits_of(&p, back);
  for (int c = 0; c < CLASSES; c++) assert_true(fabs(forth[c] - back[c]) <= 1e-15);
  assert_true(fabs(forth[0] - other[0]) > 1e-9); /* before, the halves were not alike */
  close_network(&p);
  test_setup_close(context);
}

/* ---- decoders ---- */

/* What only decoders have. */
static const variant of_decoders[] = {
    {"compressed",
     {BASE(1), .positions = HARK_POSITIONS_ROTARY, .rotary.pairs = HARK_ROTARY_HALF,
      .attention.structure = HARK_EVERY_LAYER(HARK_STRUCTURE_COMPRESSED), .attention.chunk = 2, .attention.chunk_slots = 2,
      .attention.selected_slots = 1, .attention.kept_chunks = 1, .attention.global_slots = 1}},
    {"compressed_kernel",
     {BASE(1), .positions = HARK_POSITIONS_NONE, .attention.structure = HARK_EVERY_LAYER(HARK_STRUCTURE_COMPRESSED), .attention.chunk = 2,
      .attention.chunk_slots = 1, .attention.selected_slots = 1, .positional = "decay"}},
    {"compressed_delimited",
     {BASE(1), .positions = HARK_POSITIONS_ROTARY, .rotary.pairs = HARK_ROTARY_HALF,
      .attention.structure = HARK_EVERY_LAYER(HARK_STRUCTURE_COMPRESSED), .attention.chunk = 1, .attention.chunk_slots = 1,
      .attention.selected_slots = 1, .attention.chunk_delimiters = {2, 3}, .attention.chunk_delimiter_count = 2}},
    {"compressed_learned",
     {BASE(1), .positions = HARK_POSITIONS_ROTARY, .rotary.pairs = HARK_ROTARY_HALF,
      .attention.structure = {2, {HARK_STRUCTURE_DENSE, HARK_STRUCTURE_COMPRESSED}}, .attention.chunk = 1, .attention.chunk_slots = 1,
      .attention.selected_slots = 1, .attention.chunk_learned = true, .attention.chunk_maximum = 3}}};
#define OF_DECODERS (sizeof of_decoders / sizeof *of_decoders)

/* Sequences of one length, packed and in rows: the same logits, and causal. */
static void a_decoder_reads_packed_sequences(void **state) {
  (void)state;
  enum { BATCH = 3, LENGTH = 7 };
  for (size_t v = 0; v < VARIANTS + OF_DECODERS; v++) {
    hark_context *context = test_reference_open();
    const variant *of = v < VARIANTS ? &variants[v] : &of_decoders[v - VARIANTS];
    hark_network_config config = of->config;
    config.architecture = HARK_ARCHITECTURE_DECODER;
    if (hark_positional_list_direction(config.positional, "right") > 0) config.positional = "left(decay)"; /* the other is refused */
    config.attention.interpolation = HARK_INTERPOLATION_CONSTANT;                                          /* linear is refused */
    config.attention.grid_columns = 0;
    config.parts = config.head_width = 0;
    config.pooling = HARK_POOLING_CLASS;
    config.dropout = config.embedding_dropout = config.attention.dropout = 0; /* words of dropout are those of rows */
    packed p;
    open_network(&p, context, &config, HARK_F64);
    scatter_boundaries(context, &p.network->parameters);
    for (int64_t i = 0; i < BATCH * LENGTH; i++) {
      p.inputs[i] = token_at(i / LENGTH, i % LENGTH);
      p.positions[i] = (int32_t)(i % LENGTH);
      p.segments[i] = i / LENGTH;
    }
    p.rows = 1;
    p.tokens = BATCH * LENGTH;
    p.longest = LENGTH;
    double in_one[BATCH * LENGTH * VOCABULARY], in_rows[BATCH * LENGTH * VOCABULARY];
    logits_of(&p, in_one);
    hark_attention_plan **plans = NULL;
    hark_tensor rows = p.tokens_tensor;
    hark_value tokens = 0, logits = 0;
    hark_forward forward = forward_of(&p, false);
    rows.owned_bytes = 0;
    rows.shape[0] = BATCH;
    rows.shape[1] = LENGTH;
    rows.stride[0] = LENGTH;
    const hark_pass_sizes sizes = {.batch = BATCH, .queries = LENGTH, .keys = LENGTH};
    assert_fine(context, hark_network_plans_create(context, p.network, &sizes, false, &plans));
    forward.plans = plans;
    forward.packing = NULL;
    hark_tape_reset(p.tape);
    assert_fine(context, hark_tape_leaf(p.tape, &rows, NULL, &tokens));
    const hark_network_input input = {.tokens = tokens};
    assert_fine(context, p.network->architecture->logits(context, p.network, &forward, &input, &logits));
    read_value(&p, logits, in_rows);
    for (int i = 0; i < BATCH * LENGTH * VOCABULARY; i++)
      if (fabs(in_one[i] - in_rows[i]) > 1e-13) fail_msg("%s: logit %d is %.17g, expected %.17g", of->name, i, in_one[i], in_rows[i]);
    p.inputs[LENGTH - 1] = (p.inputs[LENGTH - 1] + 1) % VOCABULARY; /* the last of the first sequence */
    logits_of(&p, in_rows);
    for (int i = 0; i < BATCH * LENGTH * VOCABULARY; i++) assert_true((i / VOCABULARY == LENGTH - 1) == (in_one[i] != in_rows[i]));
    hark_network_plans_destroy(context, p.network, &plans);
    close_network(&p);
    test_setup_close(context);
  }
}

static void what_an_encoder_cannot_be_is_refused(void **state) {
  (void)state;
  hark_context *context = test_reference_open();
  struct {
    hark_network_config config;
    const char *message;
  } cases[] = {{variants[0].config, "expected at least 2"},
               {variants[0].config, "expected 1 or 2"},
               {variants[0].config, "head_width is 1"},
               {variants[0].config, "forget_gate needs model.architecture decoder"},
               {variants[0].config, "model.attention_width 7 is not divisible by model.heads 2"},
               {variants[0].config, "model.architecture is 99"}};
  cases[0].config.classes = 1;
  cases[1].config.parts = 3;
  cases[2].config.parts = 2;
  cases[2].config.head_width = 1;
  cases[3].config.attention.forget_gate = true;
  cases[4].config.attention_width = 7;
  cases[5].config.architecture = 99;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    hark_network *network = NULL;
    assert_failure(context, hark_network_declare(context, &cases[i].config, HARK_F32, &network), HARK_BAD_CONFIGURATION, cases[i].message);
    assert_null(network);
  }
  for (int kind = 0; kind < HARK_ARCHITECTURE_COUNT; kind++) { /* the words are those of the table */
    const char *at = HARK_ARCHITECTURE_WORDS;
    for (int i = 0; i < kind; i++) at = strchr(at, '|') + 1;
    const char *name = hark_architecture_of(kind)->name;
    assert_int_equal(strcspn(at, "|"), strlen(name));
    assert_memory_equal(at, name, strlen(name));
  }
  assert_null(hark_architecture_of(HARK_ARCHITECTURE_COUNT));
  test_setup_close(context);
}

/* Sample deviations of the initial weights of a matrix of n numbers lie within 5 / sqrt(2 n) of what they were drawn with. */
static void initial_weights_have_their_deviations(void **state) {
  (void)state;
  enum { LAYERS = 2, WIDTH = 48, INNER = 80, HIDDEN = 64 };
  static const struct {
    const char *name;
    double in, out;
    bool residual;
  } layers[] = {{"blocks.0.attention.query.weight", WIDTH, 32, false},
                {"blocks.1.attention.output.weight", 32, WIDTH, true},
                {"blocks.0.feed_forward.up.weight", WIDTH, INNER, false},
                {"blocks.1.feed_forward.down.weight", INNER, WIDTH, true},
                {"head.hidden.weight", WIDTH, HIDDEN, false},
                {"embedding.token.weight", 0, 0, false}};
  hark_context *context = test_reference_open();
  hark_network_config config = variants[0].config;
  config.layers = LAYERS;
  config.width = WIDTH;
  config.attention_width = 32;
  config.feed_forward_width = INNER;
  config.head_width = HIDDEN;
  config.vocabulary = 60;
  config.embedding_deviation = 0.5;
  for (int kind = 0; kind < 2; kind++) {
    hark_network *network = NULL;
    config.initialisation = kind == 0 ? HARK_INITIALISATION_GPT2 : HARK_INITIALISATION_XAVIER;
    assert_fine(context, hark_network_create(context, &config, HARK_F64, false, &network));
    assert_fine(context, hark_parameters_initialise(context, &network->parameters, 5));
    const hark_parameters *parameters = &network->parameters;
    double *const weights = malloc((size_t)hark_tensor_count(&parameters->weights) * sizeof *weights);
    assert_fine(context, hark_tensor_read(context, &parameters->weights, weights));
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
      const hark_parameter *parameter = NULL;
      for (int32_t p = 0; p < parameters->count; p++)
        if (strcmp(parameters->list[p].name, layers[i].name) == 0) parameter = &parameters->list[p];
      assert_non_null(parameter);
      double expected = kind == 0 ? 0.02 / (layers[i].residual ? sqrt(2.0 * LAYERS) : 1) : sqrt(2 / (layers[i].in + layers[i].out));
      if (layers[i].in == 0) expected = 0.5; /* embeddings have an option of their own */
      double squares = 0;
      for (int64_t n = 0; n < parameter->count; n++) squares += weights[parameter->first + n] * weights[parameter->first + n];
      const double measured = sqrt(squares / (double)parameter->count);
      if (fabs(measured / expected - 1) > 5 / sqrt(2 * (double)parameter->count))
        fail_msg("%s, kind %d: deviation %g, expected %g", layers[i].name, kind, measured, expected);
    }
    free(weights);
    hark_network_destroy(context, &network);
  }
  test_setup_close(context);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(gradients_agree_with_differences),     cmocka_unit_test(directions_are_those_of_the_tokens),
      cmocka_unit_test(an_example_does_not_know_its_batch),   cmocka_unit_test(pooling_and_heads_are_as_defined),
      cmocka_unit_test(towers_share_their_weights),           cmocka_unit_test(a_decoder_reads_packed_sequences),
      cmocka_unit_test(what_an_encoder_cannot_be_is_refused), cmocka_unit_test(initial_weights_have_their_deviations),
  };
  return cmocka_run_group_tests_name("encoder", tests, NULL, NULL);
}
