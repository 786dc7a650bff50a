/* test_decoder.c - the decoder as a whole: gradients against differences, recomputation, causality, decoding with a cache, sampling. */
#include <hark/hark.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "models/boundaries.h"
#include "models/model.h"
#include "models/sampling.h"
#include "models/stack.h"
#include "support/boundaries.h"
#include "support/cmocka_all.h"
#include "support/setups.h"

#define BATCH 2
#define LENGTH 7
#define VOCABULARY 11
#define IGNORED_TARGET 3 /* index of a target that is left out */

/* One row a variant: every option of the decoder occurs in at least one. */
typedef struct variant {
  const char *name;
  hark_network_config config;
} variant;

#define BASE(number_of_key_heads)                                                                                                          \
  .vocabulary = VOCABULARY, .layers = 2, .heads = 2, .key_heads = (number_of_key_heads), .width = 8, .feed_forward_width = 12,             \
  .context = LENGTH + 3, .norm_epsilon = 1e-5, .rotary.base = 10000, .attention.sigma = 2

static const variant variants[] = {
    {"rotary", {BASE(2), .positions = HARK_POSITIONS_ROTARY, .rotary.pairs = HARK_ROTARY_HALF, .bias = true}},
    {"interleaved_grouped_tied",
     {BASE(1), .positions = HARK_POSITIONS_ROTARY, .tie_embeddings = true, .activation = HARK_ACTIVATION_GELU_TANH}},
    {"learned_rms_gated", {BASE(2), .positions = HARK_POSITIONS_LEARNED, .norm = HARK_NORM_RMS, .activation = HARK_ACTIVATION_GATED_SILU}},
    {"gated_gelu", {BASE(1), .positions = HARK_POSITIONS_ROTARY, .activation = HARK_ACTIVATION_GATED_GELU, .bias = true}},
    {"gated_gelu_tanh_recompute",
     {BASE(2), .positions = HARK_POSITIONS_NONE, .activation = HARK_ACTIVATION_GATED_GELU_TANH, .recompute = true}},
    {"sinusoidal_silu_recompute",
     {BASE(2), .positions = HARK_POSITIONS_SINUSOIDAL, .activation = HARK_ACTIVATION_SILU, .recompute = true, .bias = true}},
    {"post_norm", {BASE(2), .positions = HARK_POSITIONS_LEARNED, .norm_place = HARK_NORM_POST, .recompute = true, .bias = true}},
    {"forget_window",
     {BASE(2), .positions = HARK_POSITIONS_NONE, .attention.forget_gate = true,
      .attention.structure = HARK_EVERY_LAYER(HARK_STRUCTURE_WINDOW), .attention.window = 3, .bias = true}},
    {"contextual_rotary",
     {BASE(1), .positions = HARK_POSITIONS_ROTARY, .rotary.pairs = HARK_ROTARY_HALF, .attention.contextual_positions = 4,
      .recompute = true}},
    {"contextual_forget_window_dropout",
     {BASE(2), .positions = HARK_POSITIONS_NONE, .attention.contextual_positions = 3, .attention.forget_gate = true,
      .attention.structure = HARK_EVERY_LAYER(HARK_STRUCTURE_WINDOW), .attention.window = 3, .attention.dropout = 0.3}},
    {"compressed",
     {BASE(1), .positions = HARK_POSITIONS_ROTARY, .attention.structure = HARK_EVERY_LAYER(HARK_STRUCTURE_COMPRESSED), .attention.chunk = 2,
      .attention.chunk_slots = 1, .attention.selected_slots = 16, .recompute = true}},
    {"compressed_kernel_shared_delimited_recompute",
     {BASE(2), .positions = HARK_POSITIONS_NONE, .attention.structure = HARK_EVERY_LAYER(HARK_STRUCTURE_COMPRESSED), .attention.chunk = 1,
      .attention.chunk_slots = 1, .attention.selected_slots = 16, .attention.chunk_delimiters = {2, 4},
      .attention.chunk_delimiter_count = 2, .attention.chunk_maximum = 3, .positional = "bank[2](decay*periodic)", .recompute = true}},
    {"compressed_kernel_by_head",
     {BASE(1), .positions = HARK_POSITIONS_ROTARY, .attention.structure = HARK_EVERY_LAYER(HARK_STRUCTURE_COMPRESSED), .attention.chunk = 3,
      .attention.chunk_slots = 1, .attention.selected_slots = 2, .attention.kept_chunks = 1, .positional = "t5",
      .positional_scope = HARK_SCOPE_HEAD}},
    {"compressed_delimited_recompute",
     {BASE(1), .positions = HARK_POSITIONS_ROTARY, .attention.structure = HARK_EVERY_LAYER(HARK_STRUCTURE_COMPRESSED), .attention.chunk = 1,
      .attention.chunk_slots = 1, .attention.selected_slots = 16, .attention.chunk_delimiters = {2, 4},
      .attention.chunk_delimiter_count = 2, .attention.chunk_maximum = 3, .recompute = true}},
    {"compressed_delimited_after_dense",
     {BASE(2), .positions = HARK_POSITIONS_NONE, .attention.structure = {2, {HARK_STRUCTURE_DENSE, HARK_STRUCTURE_COMPRESSED}},
      .attention.chunk = 1, .attention.chunk_slots = 1, .attention.selected_slots = 2, .attention.kept_chunks = 1,
      .attention.global_slots = 2, .attention.chunk_delimiters = {3}, .attention.chunk_delimiter_count = 1}},
    {"compressed_learned_recompute",
     {BASE(2), .positions = HARK_POSITIONS_ROTARY, .attention.structure = {2, {HARK_STRUCTURE_DENSE, HARK_STRUCTURE_COMPRESSED}},
      .attention.chunk = 1, .attention.chunk_slots = 1, .attention.selected_slots = 16, .attention.chunk_learned = true,
      .attention.chunk_maximum = 4, .attention.chunk_mean = 2, .attention.ratio_weight = 0.3, .recompute = true}},
    {"compressed_learned_kernel_after_window",
     {BASE(1), .positions = HARK_POSITIONS_NONE, .attention.structure = {2, {HARK_STRUCTURE_WINDOW, HARK_STRUCTURE_COMPRESSED}},
      .attention.window = 2, .attention.chunk = 2, .attention.chunk_slots = 1, .attention.selected_slots = 2, .attention.kept_chunks = 1,
      .attention.chunk_learned = true, .attention.ratio_weight = 0.3, .norm = HARK_NORM_RMS, .bias = false, .positional = "t5"}},
    {"compressed_globals_and_dense_dropout",
     {BASE(2), .positions = HARK_POSITIONS_NONE, .attention.structure = {2, {HARK_STRUCTURE_COMPRESSED, HARK_STRUCTURE_DENSE}},
      .attention.chunk = 1, .attention.chunk_slots = 1, .attention.selected_slots = 2, .attention.kept_chunks = 2,
      .attention.global_slots = 2, .attention.dropout = 0.3}},
    {"hierarchical_bias",
     {BASE(1), .positions = HARK_POSITIONS_ROTARY, .attention.structure = HARK_EVERY_LAYER(HARK_STRUCTURE_HIERARCHICAL),
      .attention.hierarchy_block = 2, .attention.hierarchical_bias = true}},
    {"hierarchical_kernel_shared",
     {BASE(2), .positions = HARK_POSITIONS_NONE, .attention.structure = HARK_EVERY_LAYER(HARK_STRUCTURE_HIERARCHICAL),
      .attention.hierarchy_block = 2, .positional = "bank[2](decay*periodic)", .recompute = true}},
    {"hierarchical_exact_kernel_by_layer_rbf",
     {BASE(1), .positions = HARK_POSITIONS_LEARNED, .attention.structure = HARK_EVERY_LAYER(HARK_STRUCTURE_HIERARCHICAL),
      .attention.hierarchy_block = 2, .attention.coarse_query = HARK_COARSE_QUERY_EXACT, .positional = "kerple_log",
      .positional_scope = HARK_SCOPE_LAYER, .attention.kernel = HARK_KERNEL_RBF}},
    {"hierarchical_exact_sibling_dropout",
     {BASE(2), .positions = HARK_POSITIONS_NONE, .attention.structure = HARK_EVERY_LAYER(HARK_STRUCTURE_HIERARCHICAL),
      .attention.hierarchy_block = 2, .attention.partition = HARK_PARTITION_SIBLING, .attention.coarse_query = HARK_COARSE_QUERY_EXACT,
      .attention.dropout = 0.3}},
    {"rbf_relu", {BASE(2), .positions = HARK_POSITIONS_NONE, .attention.kernel = HARK_KERNEL_RBF, .activation = HARK_ACTIVATION_RELU}},
    {"cme_rbf_learned_recompute",
     {BASE(1), .positions = HARK_POSITIONS_ROTARY, .attention.kernel = HARK_KERNEL_RBF,
      .attention.normalisation = HARK_EVERY_LAYER(HARK_NORMALISATION_CME), .attention.ridge = 0.5, .attention.ridge_learned = true,
      .attention.sigma_learned = true, .recompute = true}},
    {"cme_yarn_learned",
     {BASE(2), .positions = HARK_POSITIONS_ROTARY, .rotary.scaling = HARK_ROTARY_YARN, .rotary.scaling_factor = 8,
      .attention.kernel = HARK_KERNEL_RBF, .attention.normalisation = HARK_EVERY_LAYER(HARK_NORMALISATION_CME), .attention.ridge = 0.5,
      .attention.ridge_learned = true, .attention.sigma_learned = true}},
    {"cme_unit_power_kernel_by_layer",
     {BASE(2), .positions = HARK_POSITIONS_NONE, .attention.normalisation = HARK_EVERY_LAYER(HARK_NORMALISATION_CME),
      .attention.ridge = 0.2, .attention.ridge_power = 0.75, .attention.unit = true, .positional = "bank[2](decay*periodic)",
      .positional_scope = HARK_SCOPE_LAYER}},
    {"window_and_hierarchical_kernel_shared",
     {BASE(2), .positions = HARK_POSITIONS_ROTARY, .attention.structure = {2, {HARK_STRUCTURE_WINDOW, HARK_STRUCTURE_HIERARCHICAL}},
      .attention.window = 3, .attention.hierarchy_block = 2, .positional = "bank[2](decay*periodic)", .recompute = true}},
    {"hierarchical_and_cme_kernel_by_layer",
     {BASE(2), .positions = HARK_POSITIONS_NONE, .attention.structure = {2, {HARK_STRUCTURE_HIERARCHICAL, HARK_STRUCTURE_DENSE}},
      .attention.hierarchy_block = 2, .attention.hierarchical_bias = true,
      .attention.normalisation = {2, {HARK_NORMALISATION_SOFTMAX, HARK_NORMALISATION_CME}}, .attention.ridge = 0.5,
      .attention.ridge_learned = true, .attention.kernel = HARK_KERNEL_RBF, .attention.sigma_learned = true, .positional = "decay",
      .positional_scope = HARK_SCOPE_LAYER}},
    {"cme_and_softmax_kernel_shared",
     {BASE(1), .positions = HARK_POSITIONS_LEARNED, .attention.normalisation = {2, {HARK_NORMALISATION_CME, HARK_NORMALISATION_SOFTMAX}},
      .attention.ridge = 0.5, .attention.unit = true, .positional = "decay"}},
    {"stick_breaking_recompute",
     {BASE(1), .positions = HARK_POSITIONS_NONE, .attention.normalisation = HARK_EVERY_LAYER(HARK_NORMALISATION_STICK_BREAKING),
      .recompute = true}},
    {"stick_breaking_window_and_softmax",
     {BASE(2), .positions = HARK_POSITIONS_ROTARY, .attention.structure = {2, {HARK_STRUCTURE_WINDOW, HARK_STRUCTURE_DENSE}},
      .attention.window = 3, .attention.normalisation = {2, {HARK_NORMALISATION_STICK_BREAKING, HARK_NORMALISATION_SOFTMAX}},
      .attention.forget_gate = true, .attention.dropout = 0.3, .positional = "kerple_log"}},
    {"kernel_shared_recompute",
     {BASE(2), .positions = HARK_POSITIONS_NONE, .positional = "bank[3](decay*periodic)", .recompute = true, .bias = true}},
    {"kernel_by_layer_rotary_forget",
     {BASE(1), .positions = HARK_POSITIONS_ROTARY, .positional = "kerple_log+window(4)", .positional_scope = HARK_SCOPE_LAYER,
      .attention.forget_gate = true}},
    {"kernel_by_head_recompute",
     {BASE(1), .positions = HARK_POSITIONS_NONE, .positional = "alibi*rational_quadratic+t5(factor=0.3)",
      .positional_scope = HARK_SCOPE_HEAD, .recompute = true}},
    {"kernels_of_all_heads_recompute",
     {BASE(1), .positions = HARK_POSITIONS_NONE, .positional = "alibi|decay*bump|window(5)|table[4]", .positional_scope = HARK_SCOPE_HEAD,
      .recompute = true}},
    {"kernels_of_layers_hierarchical_and_dense",
     {BASE(2), .positions = HARK_POSITIONS_ROTARY, .attention.structure = {2, {HARK_STRUCTURE_HIERARCHICAL, HARK_STRUCTURE_DENSE}},
      .attention.hierarchy_block = 2, .positional = "kerple_log|bank[2](rbf)", .positional_scope = HARK_SCOPE_LAYER}},
    {"kernels_of_heads_shared",
     {BASE(1), .positions = HARK_POSITIONS_NONE, .attention.structure = {2, {HARK_STRUCTURE_WINDOW, HARK_STRUCTURE_HIERARCHICAL}},
      .attention.window = 3, .attention.hierarchy_block = 2, .positional = "t5|decay"}},
    {"kernel_without_parameters", {BASE(2), .positions = HARK_POSITIONS_LEARNED, .positional = "window(3)"}},
    {"rates_of_the_model",
     {BASE(1), .positions = HARK_POSITIONS_ROTARY, .rotary.pairs = HARK_ROTARY_HALF, .rotary.learned = HARK_ROTARY_OF_MODEL,
      .recompute = true}},
    {"rates_by_layer_some_pairs",
     {BASE(2), .positions = HARK_POSITIONS_ROTARY, .rotary.learned = HARK_ROTARY_OF_LAYER, .rotary.fraction = 0.5,
      .attention.structure = HARK_EVERY_LAYER(HARK_STRUCTURE_HIERARCHICAL), .attention.hierarchy_block = 2}},
    {"rates_by_head",
     {BASE(2), .positions = HARK_POSITIONS_ROTARY, .rotary.pairs = HARK_ROTARY_HALF, .rotary.learned = HARK_ROTARY_OF_HEAD}},
    {"rates_by_key_head_recompute",
     {BASE(1), .positions = HARK_POSITIONS_ROTARY, .rotary.learned = HARK_ROTARY_OF_HEAD, .attention.kernel = HARK_KERNEL_RBF,
      .recompute = true}},
    {"rates_by_layer_ntk",
     {BASE(1), .positions = HARK_POSITIONS_ROTARY, .rotary.learned = HARK_ROTARY_OF_LAYER, .rotary.scaling = HARK_ROTARY_NTK,
      .rotary.scaling_factor = 4}},
    {"rates_by_head_yarn_recompute",
     {BASE(2), .positions = HARK_POSITIONS_ROTARY, .rotary.learned = HARK_ROTARY_OF_HEAD, .rotary.scaling = HARK_ROTARY_YARN,
      .rotary.scaling_factor = 8, .recompute = true}},
    {"ntk", {BASE(1), .positions = HARK_POSITIONS_ROTARY, .rotary.scaling = HARK_ROTARY_NTK, .rotary.scaling_factor = 4}},
    {"yarn", {BASE(2), .positions = HARK_POSITIONS_ROTARY, .rotary.scaling = HARK_ROTARY_YARN, .rotary.scaling_factor = 8}},
    {"yarn_rbf_hierarchical",
     {BASE(2), .positions = HARK_POSITIONS_ROTARY, .rotary.scaling = HARK_ROTARY_YARN, .rotary.scaling_factor = 8,
      .attention.kernel = HARK_KERNEL_RBF, .attention.structure = HARK_EVERY_LAYER(HARK_STRUCTURE_HIERARCHICAL),
      .attention.hierarchy_block = 2}},
    {"stretched_kernel", {BASE(2), .positions = HARK_POSITIONS_NONE, .positional = "decay*periodic", .positional_stretch = 2.5}},
    {"dropout_recompute",
     {BASE(2), .positions = HARK_POSITIONS_ROTARY, .dropout = 0.2, .embedding_dropout = 0.1, .attention.dropout = 0.3, .recompute = true}},
    {"cme_noise_recompute",
     {BASE(1), .positions = HARK_POSITIONS_ROTARY, .attention.kernel = HARK_KERNEL_RBF,
      .attention.normalisation = HARK_EVERY_LAYER(HARK_NORMALISATION_CME), .attention.ridge = 0.3, .attention.sigma_learned = true,
      .attention.noise_learned = true, .recompute = true}},
    {"cme_noise_and_softmax",
     {BASE(2), .positions = HARK_POSITIONS_ROTARY, .attention.normalisation = {2, {HARK_NORMALISATION_CME, HARK_NORMALISATION_SOFTMAX}},
      .attention.ridge = 0.3, .attention.unit = true, .attention.noise_learned = true, .positional = "decay"}},
};
#define VARIANTS (sizeof variants / sizeof *variants)

static hark_network_config variant_config(const char *name) {
  size_t v = 0;
  while (v < VARIANTS && strcmp(variants[v].name, name) != 0) v++;
  assert_true(v < VARIANTS);
  return variants[v].config;
}

typedef struct model {
  hark_context *context;
  hark_network *decoder;
  hark_attention_plan **plans;
  hark_tape *tape;
  hark_tensor tokens, targets;
  uint32_t micro_step;
  hark_tensor reference; /* with learned boundaries: their probabilities in the first pass */
} model;

static void model_open(model *m, hark_context *context, const hark_network_config *config, hark_type type) {
  *m = (model){.context = context};
  const int64_t shape[] = {BATCH, LENGTH};
  int32_t tokens[BATCH * LENGTH], targets[BATCH * LENGTH];
  const hark_random_stream stream = {.seed = 3, .layer_purpose = hark_random_layer_purpose(0, HARK_RANDOM_TEST)};
  for (int i = 0; i < BATCH * LENGTH; i++) {
    tokens[i] = (int32_t)(hark_random_word(&stream, (uint64_t)i) % VOCABULARY);
    targets[i] = (int32_t)(hark_random_word(&stream, (uint64_t)(1000 + i)) % VOCABULARY);
  }
  targets[IGNORED_TARGET] = -1;
  assert_int_equal(hark_network_create(context, config, type, true, &m->decoder), HARK_OK);
  assert_int_equal(hark_parameters_initialise(context, &m->decoder->parameters, 5), HARK_OK);
  assert_int_equal(hark_network_plans_rectangular(context, m->decoder, BATCH, LENGTH, LENGTH, true, &m->plans), HARK_OK);
  assert_int_equal(hark_tape_create(context, &m->tape), HARK_OK);
  assert_int_equal(hark_tensor_create(context, HARK_I32, 2, shape, &m->tokens), HARK_OK);
  assert_int_equal(hark_tensor_create(context, HARK_I32, 2, shape, &m->targets), HARK_OK);
  assert_int_equal(hark_tensor_write(context, &m->tokens, tokens), HARK_OK);
  assert_int_equal(hark_tensor_write(context, &m->targets, targets), HARK_OK);
  scatter_boundaries(context, &m->decoder->parameters);
}

static void model_close(model *m) {
  hark_tape_destroy(&m->tape);
  hark_network_plans_destroy(m->context, m->decoder, &m->plans);
  hark_network_destroy(m->context, &m->decoder);
  hark_tensor_destroy(m->context, &m->tokens);
  hark_tensor_destroy(m->context, &m->targets);
  hark_tensor_destroy(m->context, &m->reference);
}

static hark_forward forward_of(const model *m, bool training) {
  return (hark_forward){.tape = m->tape,
                        .parameters = &m->decoder->parameters,
                        .training = training,
                        .seed = 17,
                        .micro_step = m->micro_step,
                        .plans = m->plans};
}

static double read_number(hark_context *context, const hark_tensor *tensor) {
  double wide = 0;
  float narrow = 0;
  assert_int_equal(hark_tensor_read(context, tensor, tensor->type == HARK_F64 ? (void *)&wide : (void *)&narrow), HARK_OK);
  return tensor->type == HARK_F64 ? wide : (double)narrow;
}

static void keep_reference(model *m, hark_value probability) {
  const hark_tensor *const p = hark_tape_tensor(m->tape, probability);
  double values[BATCH * LENGTH];
  assert_int_equal(p->shape[0], BATCH * LENGTH);
  assert_int_equal(hark_tensor_create(m->context, p->type, 1, p->shape, &m->reference), HARK_OK);
  assert_int_equal(hark_tensor_read(m->context, p, values), HARK_OK);
  assert_int_equal(hark_tensor_write(m->context, &m->reference, values), HARK_OK);
  int begun = 0, continued = 0; /* by their probability, which then has a gradient */
  for (int i = 0; i < BATCH * LENGTH && p->type == HARK_F64; i++) {
    begun += values[i] >= 0.5 && values[i] < 1;
    continued += values[i] < 0.5 && values[i] > 0;
  }
  if (p->type == HARK_F64) assert_true(begun > 0 && continued > 0);
}

/* Loss of a training pass; with `backward` the gradients are written. With learned boundaries it is a smooth function of the weights: the
 * straight-through factor has the probabilities of the first pass as its reference. */
static double loss_of(model *m, bool backward) {
  hark_value tokens = 0, targets = 0, loss = 0, ratio = 0;
  hark_boundary_values boundaries = {0};
  hark_forward forward = forward_of(m, true);
  forward.ratio_loss = &ratio;
  forward.sequence_weight = 0.5;
  forward.boundaries = &boundaries;
  if (m->reference.data != NULL) forward.boundary_reference = &m->reference;
  hark_tape_reset(m->tape);
  assert_int_equal(hark_tape_leaf(m->tape, &m->tokens, NULL, &tokens), HARK_OK);
  assert_int_equal(hark_tape_leaf(m->tape, &m->targets, NULL, &targets), HARK_OK);
  const hark_status status = hark_stack_loss(m->context, m->decoder, &forward, tokens, targets, (hark_target_loss){0.1, 0.05, 0.02}, &loss);
  if (status != HARK_OK) fail_msg("%s", hark_context_message(m->context));
  const hark_value both[] = {loss, ratio};
  if (ratio != 0) assert_int_equal(hark_tape_apply(m->tape, &hark_op_add, NULL, 2, both, 0, &loss), HARK_OK);
  if (boundaries.probability != 0 && m->reference.data == NULL) keep_reference(m, boundaries.probability);
  if (backward) {
    hark_tensor gradients = m->decoder->parameters.gradients;
    assert_int_equal(hark_tensor_zero(m->context, &gradients), HARK_OK);
    assert_int_equal(hark_tape_backward(m->tape, loss, 1.0), HARK_OK);
  }
  return read_number(m->context, hark_tape_tensor(m->tape, loss));
}

/* Four-point differences: with h = 1e-4 and losses of order one the difference has an error near 1e-12 from rounding and h^4 f5 / 30 from
 * the formula; weights of size 0.02 under layer norms make f5 large, hence a bound of 1e-6 of the largest gradient. */
static void test_gradients(void **state) {
  (void)state;
  const double h = 1e-4;
  for (size_t v = 0; v < VARIANTS; v++) {
    if (variants[v].config.activation == HARK_ACTIVATION_RELU)
      continue; /* kinks within h of zero; relu's own gradient is tested on its own */
    hark_context *context = test_reference_open();
    model m;
    model_open(&m, context, &variants[v].config, HARK_F64);
    hark_parameters *parameters = &m.decoder->parameters;
    const int64_t total = parameters->weights.shape[0];
    double *weights = malloc((size_t)total * sizeof *weights), *gradients = malloc((size_t)total * sizeof *gradients);
    assert_non_null(weights);
    assert_non_null(gradients);
    (void)loss_of(&m, true);
    assert_int_equal(hark_tensor_read(context, &parameters->weights, weights), HARK_OK);
    assert_int_equal(hark_tensor_read(context, &parameters->gradients, gradients), HARK_OK);
    double largest = 0;
    for (int64_t i = 0; i < total; i++) largest = fmax(largest, fabs(gradients[i]));
    assert_true(largest > 1e-3);
    for (int32_t p = 0; p < parameters->count; p++) {
      const hark_parameter *parameter = &parameters->list[p];
      const int64_t stride = parameter->count / 3 + 1; /* three places of each parameter */
      for (int64_t j = stride / 2; j < parameter->count; j += stride) {
        const int64_t i = parameter->first + j;
        const double before = weights[i];
        double at[4];
        const double steps[4] = {-2 * h, -h, h, 2 * h};
        for (int k = 0; k < 4; k++) {
          weights[i] = before + steps[k];
          assert_int_equal(hark_tensor_write(context, &parameters->weights, weights), HARK_OK);
          at[k] = loss_of(&m, false);
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
    model_close(&m);
    test_setup_close(context);
  }
}

static float *gradients_of(model *m) {
  const hark_tensor *flat = &m->decoder->parameters.gradients;
  float *values = malloc((size_t)flat->shape[0] * sizeof *values);
  assert_non_null(values);
  (void)loss_of(m, true);
  assert_int_equal(hark_tensor_read(m->context, flat, values), HARK_OK);
  return values;
}

/* On every backend, the guard among them: recomputation changes no bit, and other micro-steps drop other elements. */
static void test_recompute_and_dropout(void **state) {
  (void)state;
  test_setup setups[TEST_MAX_SETUPS];
  const int setup_count = test_setups(setups);
  assert_true(setup_count > 0);
  for (int s = 0; s < setup_count; s++) {
    hark_context *context = test_setup_open(&setups[s], 2);
    hark_network_config config = variant_config("dropout_recompute");
    model recomputed, plain;
    model_open(&recomputed, context, &config, HARK_F32);
    config.recompute = false;
    model_open(&plain, context, &config, HARK_F32);
    float *a = gradients_of(&recomputed), *b = gradients_of(&plain);
    const size_t bytes = (size_t)plain.decoder->parameters.gradients.shape[0] * sizeof *a;
    assert_memory_equal(a, b, bytes);
    plain.micro_step = 1;
    float *c = gradients_of(&plain);
    assert_memory_not_equal(b, c, bytes);
    free(a);
    free(b);
    free(c);
    model_close(&recomputed);
    model_close(&plain);
    test_setup_close(context);
  }
}

static void logits_of(const model *m, const int32_t *tokens, float *logits) {
  hark_forward forward = forward_of(m, false);
  hark_value value = 0, out = 0;
  hark_tensor tensor = m->tokens;
  assert_int_equal(hark_tensor_write(m->context, &tensor, tokens), HARK_OK);
  hark_tape_reset(m->tape);
  hark_tape_set_recording(m->tape, false);
  assert_int_equal(hark_tape_leaf(m->tape, &tensor, NULL, &value), HARK_OK);
  if (hark_stack_logits(m->context, m->decoder, &forward, value, false, &out) != HARK_OK) fail_msg("%s", hark_context_message(m->context));
  assert_int_equal(hark_tensor_read(m->context, hark_tape_tensor(m->tape, out), logits), HARK_OK);
}

/* Changing a token changes no bit of the logits before it, and does change those from it on. */
static void test_causality(void **state) {
  (void)state;
  test_setup setups[TEST_MAX_SETUPS];
  const int setup_count = test_setups(setups);
  for (int s = 0; s < setup_count; s++)
    for (size_t v = 0; v < VARIANTS; v++) {
      if (variants[v].config.attention.dropout != 0) continue; /* in its plans */
      hark_context *context = test_setup_open(&setups[s], 1);
      model m;
      model_open(&m, context, &variants[v].config, HARK_F32);
      int32_t tokens[BATCH * LENGTH];
      float before[BATCH * LENGTH * VOCABULARY], after[BATCH * LENGTH * VOCABULARY];
      assert_int_equal(hark_tensor_read(context, &m.tokens, tokens), HARK_OK);
      logits_of(&m, tokens, before);
      for (int changed = 1; changed < LENGTH; changed++) {
        const int32_t kept = tokens[changed];
        tokens[changed] = (kept + 1) % VOCABULARY;
        logits_of(&m, tokens, after);
        assert_memory_equal(before, after, (size_t)(changed * VOCABULARY) * sizeof *before);
        assert_memory_not_equal(before + changed * VOCABULARY, after + changed * VOCABULARY, VOCABULARY * sizeof *before);
        tokens[changed] = kept;
      }
      model_close(&m);
      test_setup_close(context);
    }
}

/* Logits with the cache against logits of the whole text. Both are f32 sums of at most a few dozen terms of order one through two blocks:
 * 1e-5 is some hundred roundings. */
static void test_decoding(void **state) {
  (void)state;
  test_setup setups[TEST_MAX_SETUPS];
  const int setup_count = test_setups(setups);
  for (int s = 0; s < setup_count; s++)
    for (size_t v = 0; v < VARIANTS; v++) {
      if (variants[v].config.attention.dropout != 0) continue;
      hark_context *context = test_setup_open(&setups[s], 2);
      model m;
      model_open(&m, context, &variants[v].config, HARK_F32);
      int32_t tokens[BATCH * LENGTH];
      float whole[BATCH * LENGTH * VOCABULARY], step[VOCABULARY];
      assert_int_equal(hark_tensor_read(context, &m.tokens, tokens), HARK_OK);
      logits_of(&m, tokens, whole);
      hark_model *wrapped = NULL;
      hark_decoding *decoding = NULL;
      const hark_decoding_options room = {.struct_size = sizeof room, .capacity = LENGTH};
      assert_int_equal(hark_model_wrap(context, m.decoder, &wrapped), HARK_OK);
      assert_int_equal(hark_decoding_create(context, wrapped, &room, &decoding), HARK_OK);
      /* first three tokens at once, then one by one; then back to two tokens and on from there */
      for (int pass = 0; pass < 2; pass++) {
        const int begin = pass == 0 ? 3 : 2;
        const uint64_t allocations = hark_context_memory(context).allocations;
        if (pass == 0)
          assert_int_equal(hark_decoding_prefill(decoding, tokens, begin), HARK_OK);
        else
          assert_int_equal(hark_decoding_truncate(decoding, begin), HARK_OK);
        for (int t = begin; t < LENGTH; t++) {
          assert_int_equal(hark_decoding_step(decoding, tokens[t]), HARK_OK);
          memcpy(step, hark_decoding_logits(decoding), sizeof step);
          for (int i = 0; i < VOCABULARY; i++)
            if (!(fabsf(step[i] - whole[t * VOCABULARY + i]) <= 1e-5f))
              fail_msg("%s on %s %s, token %d: %.9g with the cache, %.9g without", variants[v].name, setups[s].backend,
                       setups[s].instruction_set, t, (double)step[i], (double)whole[t * VOCABULARY + i]);
        }
        assert_int_equal(hark_context_memory(context).allocations, allocations);
      }
      assert_int_equal(hark_decoding_step(decoding, tokens[0]), HARK_INVALID_ARGUMENT); /* full */
      assert_int_equal(hark_decoding_length(decoding), LENGTH);
      hark_decoding_destroy(&decoding);
      hark_model_destroy(context, &wrapped);
      model_close(&m);
      test_setup_close(context);
    }
}

/* The base of positions that turn is an option of both kinds. */
static void test_position_base(void **state) {
  (void)state;
  static const hark_positions kinds[] = {HARK_POSITIONS_ROTARY, HARK_POSITIONS_SINUSOIDAL};
  for (int k = 0; k < 2; k++) {
    hark_context *context = test_reference_open();
    float logits[2][BATCH * LENGTH * VOCABULARY];
    for (int i = 0; i < 2; i++) {
      hark_network_config config = variants[0].config;
      config.positions = kinds[k];
      config.rotary.base = i == 0 ? 10000 : 10;
      model m;
      int32_t tokens[BATCH * LENGTH];
      model_open(&m, context, &config, HARK_F32);
      assert_int_equal(hark_tensor_read(context, &m.tokens, tokens), HARK_OK);
      logits_of(&m, tokens, logits[i]);
      model_close(&m);
    }
    assert_memory_not_equal(logits[0], logits[1], sizeof logits[0]);
    test_setup_close(context);
  }
}

/* The scalings against their formulas: s, the base s^(d/(d-2)) 10000, and the ramp between the pairs that turn 32 times and once in a
 * context, 0.84 and 12.88 made whole outwards, with the temperature of the logits. */
static void test_rotary_scalings(void **state) {
  (void)state;
  hark_rotary_spec spec = {.present = true, .base = 10000, .factor = 4, .context = 256, .head_dim = 64};
  for (int scaling = HARK_ROTARY_AS_TRAINED; scaling <= HARK_ROTARY_YARN; scaling++) {
    spec.scaling = (hark_rotary_scaling)scaling;
    const hark_rotary_attributes attributes = hark_rotary_attributes_of(&spec);
    const double magnitude = scaling == HARK_ROTARY_YARN ? 0.1 * log(4) + 1 : 1;
    assert_true(fabs(hark_rotary_magnitude(&spec) - magnitude) < 1e-15);
    for (int j = 0; j < 32; j++) {
      const double rate = pow(10000, -j / 32.0), ramp = fmax(0, 1 - j / 13.0);
      const double expected[] = {rate, rate / 4, pow(10000 * pow(4, 64 / 62.0), -j / 32.0), (1 - ramp) * rate / 4 + ramp * rate};
      assert_true(fabs(hark_rotary_rate(&attributes, 64, j) / expected[scaling] - 1) < 1e-13);
    }
  }
  spec.scaling = HARK_ROTARY_NTK; /* the fastest pair stays and the slowest is interpolated */
  const hark_rotary_attributes ntk = hark_rotary_attributes_of(&spec);
  assert_true(hark_rotary_rate(&ntk, 64, 0) == 1);
  assert_true(fabs(hark_rotary_rate(&ntk, 64, 31) * 4 / pow(10000, -31 / 32.0) - 1) < 1e-13);
  spec.head_dim = 2;
  assert_true(hark_rotary_attributes_of(&spec).base == 10000);
  spec.head_dim = 64;
  spec.fraction = 0.75;
  assert_int_equal(hark_rotary_attributes_of(&spec).turned, 24);
  spec.fraction = 1e-9;
  assert_int_equal(hark_rotary_attributes_of(&spec).turned, 1);
}

/* The turns of YaRN are counted in the context that is given, or in the model's own: in 256 tokens pairs 0 to 13, in 1024 pairs 5.66 to
 * 17.7. */
static void test_rotary_original_context(void **state) {
  (void)state;
  hark_network_config config = {.heads = 2, .width = 128, .context = 1024, .positions = HARK_POSITIONS_ROTARY, .rotary.base = 10000};
  config.rotary.scaling = HARK_ROTARY_YARN;
  config.rotary.scaling_factor = 4;
  for (int given = 0; given < 2; given++) {
    config.rotary.original_context = given ? 256 : 0;
    hark_rotary_tuning tuning;
    const hark_rotary_spec spec = hark_stack_rotary(&config, &tuning);
    const hark_rotary_attributes attributes = hark_rotary_attributes_of(&spec);
    for (int j = 0; j < 32; j++) {
      const double rate = pow(10000, -j / 32.0), first = given ? 0 : 5, last = given ? 13 : 18;
      const double ramp = fmin(1, fmax(0, (last - j) / (last - first)));
      assert_true(fabs(hark_rotary_rate(&attributes, 64, j) / ((1 - ramp) * rate / 4 + ramp * rate) - 1) < 1e-13);
    }
  }
}

static void logits_with(const hark_network_config *config, float *logits) {
  hark_context *context = test_reference_open();
  model m;
  int32_t tokens[BATCH * LENGTH];
  model_open(&m, context, config, HARK_F32);
  assert_int_equal(hark_tensor_read(context, &m.tokens, tokens), HARK_OK);
  logits_of(&m, tokens, logits);
  model_close(&m);
  test_setup_close(context);
}

/* Rates that were not trained yet are the static ones, in every scope, up to their rounding to f32; a scaling by 1 changes no bit, another
 * one does. */
static void test_rotary_starts_static(void **state) {
  (void)state;
  float expected[BATCH * LENGTH * VOCABULARY], logits[BATCH * LENGTH * VOCABULARY];
  hark_network_config config = variants[0].config;
  logits_with(&config, expected);
  for (int learned = HARK_ROTARY_OF_MODEL; learned <= HARK_ROTARY_OF_HEAD; learned++) {
    config.rotary.learned = (hark_rotary_learned)learned;
    logits_with(&config, logits);
    for (size_t i = 0; i < sizeof logits / sizeof *logits; i++) assert_true(fabsf(logits[i] - expected[i]) <= 1e-6f);
  }
  for (int scaling = HARK_ROTARY_LINEAR; scaling <= HARK_ROTARY_LONGROPE; scaling++) {
    float scaled[BATCH * LENGTH * VOCABULARY];
    if (scaling == HARK_ROTARY_DYNAMIC) continue; /* refused */
    config.rotary.scaling = (hark_rotary_scaling)scaling;
    config.rotary.short_factors = config.rotary.long_factors = (hark_rotary_factors){2, {3, 5}};
    config.rotary.scaling_factor = 4;
    config.rotary.learned = HARK_ROTARY_STATIC;
    logits_with(&config, scaled);
    assert_memory_not_equal(scaled, expected, sizeof scaled);
    for (int learned = HARK_ROTARY_OF_MODEL; learned <= HARK_ROTARY_OF_HEAD; learned++) {
      config.rotary.learned = (hark_rotary_learned)learned;
      logits_with(&config, logits);
      for (size_t i = 0; i < sizeof logits / sizeof *logits; i++) assert_true(fabsf(logits[i] - scaled[i]) <= 1e-6f);
    }
  }
  config.rotary.learned = HARK_ROTARY_STATIC;
  for (int scaling = HARK_ROTARY_LINEAR; scaling <= HARK_ROTARY_YARN; scaling++) {
    config.rotary.scaling = (hark_rotary_scaling)scaling;
    config.rotary.scaling_factor = 1;
    logits_with(&config, logits);
    assert_memory_equal(logits, expected, sizeof logits);
    config.rotary.scaling_factor = 4;
    logits_with(&config, logits);
    assert_memory_not_equal(logits, expected, sizeof logits);
  }
}

/* What a model has learned, its sigma among it, means the same with other positions: it is that of a model whose sigma is given. Both with
 * the initial weights of positions as they were trained. */
static void test_learned_sigma_of_scaled_positions(void **state) {
  (void)state;
  const float log_sigma[] = {logf(2), logf(2)};
  float expected[BATCH * LENGTH * VOCABULARY], logits[BATCH * LENGTH * VOCABULARY];
  hark_network_config config = {BASE(1),
                                .positions = HARK_POSITIONS_ROTARY,
                                .rotary.scaling_factor = 1e6,
                                .attention.kernel = HARK_KERNEL_RBF,
                                .attention.normalisation = HARK_EVERY_LAYER(HARK_NORMALISATION_CME),
                                .attention.ridge = 0.5};
  for (int scaling = HARK_ROTARY_AS_TRAINED; scaling <= HARK_ROTARY_YARN; scaling++) {
    hark_context *context = test_reference_open();
    model m;
    int32_t tokens[BATCH * LENGTH];
    config.rotary.scaling = (hark_rotary_scaling)scaling;
    config.attention.sigma_learned = false;
    logits_with(&config, expected);
    config.attention.sigma_learned = true;
    model_open(&m, context, &config, HARK_F32);
    for (int layer = 0; layer < 2; layer++) {
      const char *const name = layer == 0 ? "blocks.0.attention.log_sigma" : "blocks.1.attention.log_sigma";
      hark_parameter *const parameter = hark_parameters_find(&m.decoder->parameters, name);
      assert_non_null(parameter);
      assert_int_equal(hark_tensor_write(context, &parameter->weight, log_sigma), HARK_OK);
    }
    assert_int_equal(hark_tensor_read(context, &m.tokens, tokens), HARK_OK);
    logits_of(&m, tokens, logits);
    for (size_t i = 0; i < sizeof logits / sizeof *logits; i++) assert_true(fabsf(logits[i] - expected[i]) <= 1e-5f);
    model_close(&m);
    test_setup_close(context);
  }
}

static void test_bad_configurations(void **state) {
  (void)state;
  hark_context *context = test_reference_open();
  hark_network *decoder = NULL;
  hark_network_config config = variants[0].config;
  config.heads = 3;
  assert_int_equal(hark_network_create(context, &config, HARK_F32, true, &decoder), HARK_BAD_CONFIGURATION);
  assert_non_null(strstr(hark_context_message(context), "model.heads"));
  config = variants[0].config;
  config.heads = config.key_heads = 8; /* one feature a head: nothing to turn */
  assert_int_equal(hark_network_create(context, &config, HARK_F32, true, &decoder), HARK_BAD_CONFIGURATION);
  config = variants[0].config;
  config.rotary.learned = HARK_ROTARY_OF_LAYER;
  config.rotary.scaling = HARK_ROTARY_DYNAMIC;
  config.rotary.scaling_factor = 2;
  assert_int_equal(hark_network_create(context, &config, HARK_F32, true, &decoder), HARK_BAD_CONFIGURATION);
  assert_non_null(strstr(hark_context_message(context), "model.rotary.scaling"));
  config.rotary.scaling = HARK_ROTARY_AS_TRAINED;
  config.positions = HARK_POSITIONS_NONE;
  assert_int_equal(hark_network_create(context, &config, HARK_F32, true, &decoder), HARK_BAD_CONFIGURATION);
  assert_non_null(strstr(hark_context_message(context), "model.rotary.learned"));
  config = (hark_network_config){BASE(2),
                                 .positions = HARK_POSITIONS_ROTARY,
                                 .rotary.scaling = HARK_ROTARY_YARN,
                                 .rotary.scaling_factor = 8,
                                 .attention.kernel = HARK_KERNEL_RBF,
                                 .attention.normalisation = HARK_EVERY_LAYER(HARK_NORMALISATION_CME),
                                 .attention.ridge = 0.5,
                                 .attention.sigma_learned = true};
  config.attention.unit = true; /* whose rows are made as long as before */
  assert_int_equal(hark_network_create(context, &config, HARK_F32, true, &decoder), HARK_BAD_CONFIGURATION);
  assert_non_null(strstr(hark_context_message(context), "model.attention.unit"));
  config = variants[0].config;
  config.layers = 0;
  assert_int_equal(hark_network_create(context, &config, HARK_F32, true, &decoder), HARK_BAD_CONFIGURATION);
  assert_null(decoder);
  test_setup_close(context);
}

/* By its definition, for each token of a text once: one with a positive logit, one with a negative one, one that is not in the text. */
static void test_repetition_penalty(void **state) {
  (void)state;
  float logits[] = {3.0f, -2.0f, 1.5f, 0.0f, 4.0f};
  static const float expected[] = {2.0f, -3.0f, 1.5f, 0.0f, 4.0f};
  static const int32_t text[] = {1, 0, 1, 1, 0, 3, 99, -1};
  unsigned char seen[5];
  hark_sampling_penalise(logits, 5, text, 8, 1.5, seen);
  for (int i = 0; i < 5; i++) assert_true(logits[i] == expected[i]);
  hark_sampling_penalise(logits, 5, text, 0, 7, seen); /* no text */
  hark_sampling_penalise(logits, 5, text, 8, 1, seen); /* no penalty */
  for (int i = 0; i < 5; i++) assert_true(logits[i] == expected[i]);
}

/* Frequencies of 20,000 draws within five standard deviations of what was asked for. */
static void test_sampling(void **state) {
  (void)state;
  enum { DRAWS = 20000 };
  const float logits[] = {9.0f, 0.0f, logf(2.0f), logf(4.0f), logf(1.0f)};
  const int64_t vocabulary = sizeof logits / sizeof *logits;
  hark_context *context = test_reference_open();
  void *scratch = malloc(hark_sampling_scratch_bytes(vocabulary));
  assert_non_null(scratch);
  const struct {
    hark_sampling sampling;
    double expected[5];
  } cases[] = {{{.temperature = 1, .top_p = 1, .seed = 4}, {0, 1 / 8.0, 2 / 8.0, 4 / 8.0, 1 / 8.0}},
               {{.temperature = 1, .top_k = 2, .top_p = 1, .seed = 4}, {0, 0, 2 / 6.0, 4 / 6.0, 0}},
               {{.temperature = 1, .top_p = 0.6, .seed = 4}, {0, 0, 2 / 6.0, 4 / 6.0, 0}},
               {{.temperature = 0.5, .top_p = 1, .seed = 4}, {0, 1 / 22.0, 4 / 22.0, 16 / 22.0, 1 / 22.0}},
               {{.temperature = 0, .top_p = 1, .seed = 4}, {0, 0, 0, 1, 0}},
               {{.temperature = 1, .top_p = 1, .min_p = 0.3, .seed = 4}, {0, 0, 2 / 6.0, 4 / 6.0, 0}},
               {{.temperature = 1, .top_p = 1, .min_p = 0.24, .seed = 4}, {0, 1 / 8.0, 2 / 8.0, 4 / 8.0, 1 / 8.0}},
               {{.temperature = 0.5, .top_p = 1, .min_p = 0.3, .seed = 4}, {0, 0, 0, 1, 0}}, /* after the temperature 2 has a quarter */
               {{.temperature = 1, .top_k = 3, .top_p = 0.6, .min_p = 1, .seed = 4}, {0, 0, 0, 1, 0}}};
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    int counts[5] = {0};
    for (uint64_t i = 0; i < DRAWS; i++) {
      int32_t token = -1;
      assert_int_equal(hark_sampling_choose(context, &cases[c].sampling, logits, vocabulary, 1, i, scratch, &token), HARK_OK);
      assert_in_range(token, 1, 4);
      counts[token]++;
    }
    for (int i = 0; i < 5; i++) {
      const double p = cases[c].expected[i], deviation = sqrt(DRAWS * p * (1 - p));
      assert_true(fabs(counts[i] - DRAWS * p) <= 5 * deviation);
    }
  }
  int32_t token = -1;
  const float bad[] = {0, NAN};
  assert_int_equal(hark_sampling_choose(context, &cases[0].sampling, bad, 2, 0, 0, scratch, &token), HARK_NOT_FINITE);
  const hark_sampling beyond = {.temperature = 1, .top_p = 1, .min_p = 1.5};
  assert_int_equal(hark_sampling_choose(context, &beyond, logits, vocabulary, 0, 0, scratch, &token), HARK_INVALID_ARGUMENT);
  free(scratch);
  test_setup_close(context);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_gradients),
      cmocka_unit_test(test_recompute_and_dropout),
      cmocka_unit_test(test_causality),
      cmocka_unit_test(test_decoding),
      cmocka_unit_test(test_bad_configurations),
      cmocka_unit_test(test_position_base),
      cmocka_unit_test(test_sampling),
      cmocka_unit_test(test_repetition_penalty),
      cmocka_unit_test(test_rotary_scalings),
      cmocka_unit_test(test_rotary_starts_static),
      cmocka_unit_test(test_rotary_original_context),
      cmocka_unit_test(test_learned_sigma_of_scaled_positions),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
