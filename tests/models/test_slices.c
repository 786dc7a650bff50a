/* test_slices.c - long sequences in slices of rows (autograd/rows.h): the same bits as without slices, on every backend, for one and two
 * threads; gradients against those of a computation without parts in f64; memory; failing allocations.
 *
 * The bounds of hark_context.rows are made small, so that a short sequence is long. */
#include <hark/hark.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "autograd/rows.h"
#include "models/stack.h"
#include "support/boundaries.h"
#include "support/cmocka_all.h"
#include "support/setups.h"
#include "support/text_files.h"

#define LENGTH 84 /* slices of 16 rows, and one of 4 */
#define MOST 31
#define PART 16
#define VOCABULARY 11
#define IGNORED_TARGET 40

typedef struct variant {
  const char *name;
  hark_network_config config;
} variant;

#define BASE(number_of_key_heads)                                                                                                          \
  .vocabulary = VOCABULARY, .layers = 2, .heads = 2, .key_heads = (number_of_key_heads), .width = 32, .feed_forward_width = 48,            \
  .context = LENGTH, .norm_epsilon = 1e-5, .rotary.base = 10000, .attention.sigma = 2, .recompute = true
#define HIERARCHICAL                                                                                                                       \
  .attention.structure = HARK_EVERY_LAYER(HARK_STRUCTURE_HIERARCHICAL), .attention.hierarchy_block = 4,                                    \
  .attention.coarse_query = HARK_COARSE_QUERY_FIRST

static const variant variants[] = {
    {"hierarchical_first", {BASE(2), HIERARCHICAL, .positions = HARK_POSITIONS_ROTARY, .rotary.pairs = HARK_ROTARY_HALF, .bias = true}},
    {"hierarchical_grouped_tied_dropout",
     {BASE(1), HIERARCHICAL, .positions = HARK_POSITIONS_ROTARY, .tie_embeddings = true, .dropout = 0.2, .embedding_dropout = 0.1,
      .attention.dropout = 0.3}},
    {"hierarchical_kernel_shared_gated",
     {BASE(2), HIERARCHICAL, .positions = HARK_POSITIONS_NONE, .positional = "bank[2](decay*periodic)", .norm = HARK_NORM_RMS,
      .activation = HARK_ACTIVATION_GATED_SILU}},
    {"hierarchical_kernel_by_layer_bias",
     {BASE(1), HIERARCHICAL, .positions = HARK_POSITIONS_LEARNED, .positional = "kerple_log", .positional_scope = HARK_SCOPE_LAYER,
      .attention.hierarchical_bias = true, .activation = HARK_ACTIVATION_SILU}},
    {"hierarchical_mean_rates_by_head",
     {BASE(2), .positions = HARK_POSITIONS_ROTARY, .rotary.learned = HARK_ROTARY_OF_HEAD, .bias = true,
      .attention.structure = HARK_EVERY_LAYER(HARK_STRUCTURE_HIERARCHICAL), .attention.hierarchy_block = 4, .rotary.fraction = 0.5}},
    {"dynamic_rotary",
     {BASE(2), .positions = HARK_POSITIONS_ROTARY, .rotary.scaling = HARK_ROTARY_DYNAMIC, .rotary.scaling_factor = 2,
      .rotary.original_context = 20, .activation = HARK_ACTIVATION_GELU_TANH}},
    {"forget_gates_window",
     {BASE(1), .positions = HARK_POSITIONS_SINUSOIDAL, .attention.forget_gate = true, .dropout = 0.1,
      .attention.structure = HARK_EVERY_LAYER(HARK_STRUCTURE_WINDOW), .attention.window = 9, .bias = true}},
    {"contextual_positions", {BASE(1), .positions = HARK_POSITIONS_NONE, .attention.contextual_positions = 7, .positional = "decay"}},
    {"stick_breaking",
     {BASE(2), .positions = HARK_POSITIONS_NONE, .attention.normalisation = HARK_EVERY_LAYER(HARK_NORMALISATION_STICK_BREAKING),
      .attention.forget_gate = true}},
    {"cme",
     {BASE(2), .positions = HARK_POSITIONS_ROTARY, .attention.kernel = HARK_KERNEL_RBF,
      .attention.normalisation = HARK_EVERY_LAYER(HARK_NORMALISATION_CME), .attention.ridge = 0.5, .attention.ridge_learned = true,
      .attention.sigma_learned = true}},
    {"cme_noise",
     {BASE(2), .positions = HARK_POSITIONS_ROTARY, .attention.kernel = HARK_KERNEL_RBF,
      .attention.normalisation = HARK_EVERY_LAYER(HARK_NORMALISATION_CME), .attention.ridge = 0.5, .attention.noise_learned = true}},
    {"compressed",
     {BASE(1), .positions = HARK_POSITIONS_ROTARY, .attention.structure = HARK_EVERY_LAYER(HARK_STRUCTURE_COMPRESSED), .attention.chunk = 8,
      .attention.chunk_slots = 2, .attention.selected_slots = 4, .attention.kept_chunks = 3, .attention.global_slots = 2}},
    {"compressed_kernel",
     {BASE(1), .positions = HARK_POSITIONS_NONE, .attention.structure = HARK_EVERY_LAYER(HARK_STRUCTURE_COMPRESSED), .attention.chunk = 8,
      .attention.chunk_slots = 2, .attention.selected_slots = 4, .positional = "bank[2](decay)"}},
    {"compressed_delimited",
     {BASE(1), .positions = HARK_POSITIONS_ROTARY, .attention.structure = HARK_EVERY_LAYER(HARK_STRUCTURE_COMPRESSED), .attention.chunk = 4,
      .attention.chunk_slots = 2, .attention.selected_slots = 4, .attention.kept_chunks = 3, .attention.global_slots = 2,
      .attention.chunk_delimiters = {1, 3}, .attention.chunk_delimiter_count = 2}},
    {"compressed_learned",
     {BASE(1), .positions = HARK_POSITIONS_ROTARY, .attention.structure = {2, {HARK_STRUCTURE_DENSE, HARK_STRUCTURE_COMPRESSED}},
      .attention.chunk = 4, .attention.chunk_slots = 2, .attention.selected_slots = 4, .attention.kept_chunks = 3,
      .attention.global_slots = 2, .attention.chunk_learned = true}},
};
#define VARIANTS (sizeof variants / sizeof *variants)

typedef struct model {
  hark_context *context;
  hark_network *network;
  hark_attention_plan **plans;
  hark_tape *tape;
  hark_tensor tokens, targets;
} model;

static void write_tokens(hark_context *context, const hark_tensor *to, uint64_t first) {
  const hark_random_stream stream = {.seed = 3, .layer_purpose = hark_random_layer_purpose(0, HARK_RANDOM_TEST)};
  int32_t numbers[LENGTH];
  hark_tensor tensor = *to;
  for (uint64_t i = 0; i < LENGTH; i++) numbers[i] = (int32_t)(hark_random_word(&stream, first + i) % VOCABULARY);
  if (first > 0) numbers[IGNORED_TARGET] = -1;
  assert_int_equal(hark_tensor_write(context, &tensor, numbers), HARK_OK);
}

static void model_open(model *m, hark_context *context, const hark_network_config *config, hark_type type) {
  *m = (model){.context = context};
  const int64_t shape[] = {1, LENGTH};
  if (hark_network_create(context, config, type, true, &m->network) != HARK_OK) fail_msg("%s", hark_context_message(context));
  assert_int_equal(hark_parameters_initialise(context, &m->network->parameters, 5), HARK_OK);
  scatter_boundaries(context, &m->network->parameters);
  assert_int_equal(hark_network_plans_rectangular(context, m->network, 1, LENGTH, LENGTH, true, &m->plans), HARK_OK);
  assert_int_equal(hark_tape_create(context, &m->tape), HARK_OK);
  assert_int_equal(hark_tensor_create(context, HARK_I32, 2, shape, &m->tokens), HARK_OK);
  assert_int_equal(hark_tensor_create(context, HARK_I32, 2, shape, &m->targets), HARK_OK);
  write_tokens(context, &m->tokens, 0);
  write_tokens(context, &m->targets, 1000);
}

static void model_close(model *m) {
  hark_tape_destroy(&m->tape);
  hark_network_plans_destroy(m->context, m->network, &m->plans);
  hark_network_destroy(m->context, &m->network);
  hark_tensor_destroy(m->context, &m->tokens);
  hark_tensor_destroy(m->context, &m->targets);
}

static const hark_target_loss plain_loss = {1.0 / LENGTH, 0, 0};

/* A training pass, with its gradients. */
static hark_status differentiate(const model *m, hark_target_loss how, hark_value *loss) {
  const hark_forward forward = {.tape = m->tape,
                                .parameters = &m->network->parameters,
                                .training = true,
                                .seed = 17,
                                .first_sample = 5,
                                .micro_step = 2,
                                .plans = m->plans};
  hark_tensor gradients = m->network->parameters.gradients;
  hark_value tokens = 0, targets = 0;
  hark_tape_reset(m->tape);
  HARK_TRY(hark_tensor_zero(m->context, &gradients));
  HARK_TRY(hark_tape_leaf(m->tape, &m->tokens, NULL, &tokens));
  HARK_TRY(hark_tape_leaf(m->tape, &m->targets, NULL, &targets));
  HARK_TRY(hark_stack_loss(m->context, m->network, &forward, tokens, targets, how, loss));
  return hark_tape_backward(m->tape, *loss, 1.0);
}

/* The loss, then the gradients of all parameters; and with `logits` those of an evaluation. The caller frees them. */
static void *results_of(const model *m, hark_target_loss how, size_t *count) {
  const hark_tensor *flat = &m->network->parameters.gradients;
  const size_t bytes = hark_type_bytes(flat->type), logits = LENGTH * VOCABULARY;
  hark_value loss = 0, tokens = 0, out = 0;
  *count = 1 + (size_t)flat->shape[0] + logits;
  char *numbers = malloc(*count * bytes);
  assert_non_null(numbers);
  if (differentiate(m, how, &loss) != HARK_OK) fail_msg("%s", hark_context_message(m->context));
  assert_int_equal(hark_tensor_read(m->context, hark_tape_tensor(m->tape, loss), numbers), HARK_OK);
  assert_int_equal(hark_tensor_read(m->context, flat, numbers + bytes), HARK_OK);
  const hark_forward forward = {.tape = m->tape, .parameters = &m->network->parameters, .plans = m->plans};
  hark_tape_reset(m->tape);
  hark_tape_set_recording(m->tape, false);
  assert_int_equal(hark_tape_leaf(m->tape, &m->tokens, NULL, &tokens), HARK_OK);
  assert_int_equal(hark_stack_logits(m->context, m->network, &forward, tokens, false, &out), HARK_OK);
  assert_int_equal(hark_tensor_read(m->context, hark_tape_tensor(m->tape, out), numbers + (*count - logits) * bytes), HARK_OK);
  return numbers;
}

static void *results(hark_context *context, const hark_network_config *config, hark_type type, hark_target_loss how, size_t *count) {
  model m;
  model_open(&m, context, config, type);
  void *numbers = results_of(&m, how, count);
  model_close(&m);
  return numbers;
}

static void set_rows(hark_context *context, int64_t most, int64_t part) { context->rows = (hark_row_parts){.most = most, .part = part}; }

/* Without recomputation a training pass has no slices, and its operators compute in parts. */
static void test_same_bits(void **state) {
  (void)state;
  test_setup setups[TEST_MAX_SETUPS];
  const int setup_count = test_setups_guard_once(setups);
  assert_true(setup_count > 0);
  for (int s = 0; s < setup_count; s++)
    for (size_t v = 0; v < VARIANTS; v++)
      for (int threads = 1; threads <= 2; threads++) {
        hark_context *context = test_setup_open(&setups[s], threads);
        hark_network_config whole = variants[v].config;
        whole.recompute = false;
        size_t count = 0;
        set_rows(context, MOST, PART);
        const hark_target_loss how = {1.0 / LENGTH, v == 0 ? 0.05 : 0, v == 1 ? 0.25 : 0};
        float *sliced = results(context, &variants[v].config, HARK_F32, how, &count);
        float *unsliced = results(context, &whole, HARK_F32, how, &count);
        for (size_t i = 0; i < count; i++)
          if (memcmp(&sliced[i], &unsliced[i], sizeof *sliced) != 0)
            fail_msg("%s on %s %s, %d threads: number %zu is %.9g in slices, %.9g without", variants[v].name, setups[s].backend,
                     setups[s].instruction_set, threads, i, (double)sliced[i], (double)unsliced[i]);
        free(sliced);
        free(unsliced);
        test_setup_close(context);
      }
}

static void test_threads(void **state) {
  (void)state;
  test_setup setups[TEST_MAX_SETUPS];
  const int last = test_setups_guard_once(setups) - 1;
  for (size_t v = 0; v < VARIANTS; v++) {
    float *numbers[2];
    size_t count = 0;
    for (int threads = 1; threads <= 2; threads++) {
      hark_context *context = test_setup_open(&setups[last], threads);
      set_rows(context, MOST, PART);
      numbers[threads - 1] = results(context, &variants[v].config, HARK_F32, plain_loss, &count);
      test_setup_close(context);
    }
    assert_memory_equal(numbers[0], numbers[1], count * sizeof **numbers);
    free(numbers[0]);
    free(numbers[1]);
  }
}

/* In f64 the definitions without parts, whose gradients test_decoder compares with differences. Sums in another order differ by some
 * roundings of 1e-16; 1e-11 of the largest gradient allows thousands of them. */
static void test_gradients(void **state) {
  (void)state;
  for (size_t v = 0; v < VARIANTS; v++) {
    double *numbers[2], largest = 0;
    size_t count = 0;
    for (int sliced = 0; sliced < 2; sliced++) {
      hark_context *context = test_reference_open();
      if (sliced) set_rows(context, MOST, PART);
      numbers[sliced] = results(context, &variants[v].config, HARK_F64, plain_loss, &count);
      test_setup_close(context);
    }
    for (size_t i = 0; i < count; i++) largest = fmax(largest, fabs(numbers[0][i]));
    assert_true(largest > 1e-3);
    for (size_t i = 0; i < count; i++)
      if (!(fabs(numbers[0][i] - numbers[1][i]) <= 1e-11 * largest))
        fail_msg("%s: number %zu is %.17g in slices, %.17g at once", variants[v].name, i, numbers[1][i], numbers[0][i]);
    free(numbers[0]);
    free(numbers[1]);
  }
}

/* Differences of the loss by three places of each parameter, as in test_decoder. */
static void test_differences(void **state) {
  (void)state;
  const double h = 1e-4;
  hark_context *context = test_reference_open();
  set_rows(context, MOST, PART);
  model m;
  hark_value loss = 0;
  model_open(&m, context, &variants[0].config, HARK_F64);
  const hark_parameters *parameters = &m.network->parameters;
  const size_t total = (size_t)parameters->weights.shape[0];
  double *weights = malloc(total * sizeof *weights), *gradients = malloc(total * sizeof *gradients), largest = 0;
  assert_non_null(weights);
  assert_non_null(gradients);
  hark_tensor flat = parameters->weights;
  assert_int_equal(differentiate(&m, plain_loss, &loss), HARK_OK);
  assert_int_equal(hark_tensor_read(context, &flat, weights), HARK_OK);
  assert_int_equal(hark_tensor_read(context, &parameters->gradients, gradients), HARK_OK);
  for (size_t i = 0; i < total; i++) largest = fmax(largest, fabs(gradients[i]));
  for (int32_t p = 0; p < parameters->count; p++)
    for (int64_t place = 0; place < 2; place++) {
      const int64_t i = parameters->list[p].first + place * (parameters->list[p].count / 2);
      const double before = weights[i], steps[4] = {-2 * h, -h, h, 2 * h};
      double at[4];
      for (int k = 0; k < 4; k++) {
        weights[i] = before + steps[k];
        assert_int_equal(hark_tensor_write(context, &flat, weights), HARK_OK);
        assert_int_equal(differentiate(&m, plain_loss, &loss), HARK_OK);
        assert_int_equal(hark_tensor_read(context, hark_tape_tensor(m.tape, loss), &at[k]), HARK_OK);
      }
      weights[i] = before;
      const double expected = (8 * (at[2] - at[1]) - (at[3] - at[0])) / (12 * h);
      if (!(fabs(gradients[i] - expected) <= 1e-6 * largest))
        fail_msg("%s: %.10g, by differences %.10g", parameters->list[p].name, gradients[i], expected);
    }
  free(weights);
  free(gradients);
  model_close(&m);
  test_setup_close(context);
}

/* Bytes of a step with feed-forward layers so wide that an array of all rows would dominate. */
static size_t bytes_of_step(hark_context *context, bool reserve, int64_t feed_forward_width) {
  hark_network_config config = variants[0].config;
  config.feed_forward_width = feed_forward_width;
  model m;
  hark_value loss = 0;
  model_open(&m, context, &config, HARK_F32);
  hark_tape_set_shape_only(m.tape, true);
  assert_int_equal(differentiate(&m, plain_loss, &loss), HARK_OK);
  const size_t bytes = hark_tape_peak_bytes(m.tape);
  hark_tape_set_shape_only(m.tape, false);
  if (reserve) {
    assert_int_equal(hark_tape_reserve(m.tape), HARK_OK);
    assert_int_equal(differentiate(&m, plain_loss, &loss), HARK_OK);
    const uint64_t allocations = hark_context_memory(context).allocations;
    assert_int_equal(differentiate(&m, plain_loss, &loss), HARK_OK);
    assert_int_equal(hark_context_memory(context).allocations, allocations); /* the size that was found is enough */
    assert_int_equal(hark_tape_peak_bytes(m.tape), bytes);
  }
  model_close(&m);
  return bytes;
}

static void test_bytes(void **state) {
  (void)state;
  enum { WIDE = 4096 };
  test_setup setups[TEST_MAX_SETUPS];
  const int last = test_setups_guard_once(setups) - 1;
  hark_context *context = test_setup_open(&setups[last], 2);
  const size_t array = (size_t)LENGTH * WIDE * sizeof(float);
  const size_t whole = bytes_of_step(context, false, WIDE);
  set_rows(context, MOST, PART);
  const size_t sliced = bytes_of_step(context, true, WIDE);
  assert_true(whole > sliced + array); /* what is left: slices, and the workspaces of linear layers, which do not depend on the rows */
  test_setup_close(context);
}

/* Bytes of a step of very many rows, by its shapes alone: for a row of D numbers, at the top of the second block's backward, there are the
 * gradient, queries, keys, values and the output of attention or its gradient; and the second block's input. One more array of all rows
 * would exceed this, and so would gradients of queries, keys and values of their own. */
static void test_long_step(void **state) {
  (void)state;
  enum { LONG = 300000, WIDTH = 256, ARRAYS = 6 };
  test_setup setups[TEST_MAX_SETUPS];
  const int last = test_setups_guard_once(setups) - 1;
  hark_context *context = test_setup_open(&setups[last], 2);
  hark_network_config config = variants[0].config;
  config.width = WIDTH;
  config.feed_forward_width = 4 * WIDTH;
  config.heads = config.key_heads = 8;
  config.context = LONG;
  const int64_t shape[] = {1, LONG};
  const double array = (double)LONG * WIDTH * sizeof(float);
  model m = {.context = context};
  hark_value loss = 0;
  assert_int_equal(hark_network_create(context, &config, HARK_F32, true, &m.network), HARK_OK);
  assert_int_equal(hark_network_plans_rectangular(context, m.network, 1, LONG, LONG, true, &m.plans), HARK_OK);
  assert_int_equal(hark_tape_create(context, &m.tape), HARK_OK);
  assert_int_equal(hark_tensor_describe(context, HARK_I32, 2, shape, &m.tokens), HARK_OK);
  assert_int_equal(hark_tensor_describe(context, HARK_I32, 2, shape, &m.targets), HARK_OK);
  hark_tape_set_shape_only(m.tape, true);
  assert_int_equal(differentiate(&m, plain_loss, &loss), HARK_OK);
  const double needed = (double)hark_tape_peak_bytes(m.tape) / array;
  if (!(needed > ARRAYS && needed < ARRAYS + 1)) fail_msg("%.3g arrays of all rows, expected 6 and less than one more", needed);
  model_close(&m);
  test_setup_close(context);
}

/* ---- gradients of attention over its inputs ---- */

enum { QUERY, KEY, VALUE, OUT, DOUT, DQUERY, DKEY, DVALUE, ROWS_OF };

typedef struct attention {
  hark_attention_plan *plan;
  hark_tensor rows[ROWS_OF], log_sum_exp;
  void *workspace;
} attention;

static hark_attention_args forward_args(const attention *a) {
  return (hark_attention_args){.struct_size = sizeof(hark_attention_args),
                               .query = a->rows[QUERY],
                               .key = a->rows[KEY],
                               .value = a->rows[VALUE],
                               .out = a->rows[OUT],
                               .log_sum_exp = a->log_sum_exp,
                               .workspace = a->workspace};
}

static hark_status run_backward(hark_context *context, const attention *a, bool over, unsigned accumulate) {
  hark_attention_args args = forward_args(a);
  args.dout = a->rows[DOUT];
  args.dquery = a->rows[over ? QUERY : DQUERY];
  args.dkey = a->rows[over ? KEY : DKEY];
  args.dvalue = a->rows[over ? VALUE : DVALUE];
  args.accumulate = accumulate;
  return hark_attention_backward(context, a->plan, &args);
}

static size_t attention_open(hark_context *context, const hark_attention_desc *desc, attention *a) {
  *a = (attention){0};
  if (hark_attention_plan_create(context, desc, &a->plan) != HARK_OK) fail_msg("%s", hark_context_message(context));
  const hark_attention_sizes sizes = hark_attention_plan_sizes(a->plan);
  const size_t bytes = hark_max((int64_t)sizes.forward_workspace, (int64_t)sizes.backward_workspace);
  const int64_t lse[] = {1, desc->heads, desc->query_length};
  assert_int_equal(hark_allocate(context, bytes, &a->workspace), HARK_OK);
  assert_int_equal(hark_tensor_create(context, HARK_F32, 3, lse, &a->log_sum_exp), HARK_OK);
  for (int i = 0; i < ROWS_OF; i++) {
    const bool keys = i == KEY || i == VALUE || i == DKEY || i == DVALUE;
    const int64_t shape[] = {1, keys ? desc->key_heads : desc->heads, desc->query_length, desc->head_dim};
    assert_int_equal(hark_tensor_create(context, HARK_F32, 4, shape, &a->rows[i]), HARK_OK);
    const hark_random_stream stream = {.seed = (uint64_t)i, .layer_purpose = hark_random_layer_purpose(0, HARK_RANDOM_TEST)};
    float *numbers = a->rows[i].data;
    for (int64_t k = 0; k < hark_tensor_count(&a->rows[i]); k++)
      numbers[k] = (float)(hark_random_word(&stream, (uint64_t)k) >> 8) / 8388608.0f - 1;
  }
  const hark_attention_args args = forward_args(a);
  if (hark_attention_forward(context, a->plan, &args) != HARK_OK) fail_msg("%s", hark_context_message(context));
  return bytes;
}

static void attention_close(hark_context *context, attention *a, size_t bytes) {
  for (int i = 0; i < ROWS_OF; i++) hark_tensor_destroy(context, &a->rows[i]);
  hark_tensor_destroy(context, &a->log_sum_exp);
  hark_release(context, a->workspace, bytes);
  hark_attention_plan_destroy(context, &a->plan);
}

static void compare_over_inputs(hark_context *context, const hark_attention_desc *desc) {
  attention a;
  const size_t bytes = attention_open(context, desc, &a);
  assert_int_equal(run_backward(context, &a, false, 0), HARK_OK);
  assert_int_equal(run_backward(context, &a, true, HARK_ACCUMULATE_KEY), HARK_INVALID_ARGUMENT); /* to an input nothing is added */
  if (run_backward(context, &a, true, 0) != HARK_OK) fail_msg("%s", hark_context_message(context));
  for (int i = QUERY; i <= VALUE; i++) {
    const size_t size = (size_t)hark_tensor_count(&a.rows[i]) * sizeof(float);
    assert_memory_equal(a.rows[i].data, a.rows[DQUERY + i].data, size);
  }
  attention_close(context, &a, bytes);
}

static void test_over_inputs(void **state) {
  (void)state;
  static const struct {
    int64_t heads, key_heads, length, head_dim, block;
    hark_coarse_query coarse_query;
    bool causal;
  } cases[] = {{4, 2, 300, 16, 4, HARK_COARSE_QUERY_FIRST, true},
               {2, 1, 300, 20, 4, HARK_COARSE_QUERY_MEAN, false},
               {2, 2, 8300, 32, 16, HARK_COARSE_QUERY_FIRST, true},
               {3, 3, 2100, 16, 8, HARK_COARSE_QUERY_EXACT, true},
               {1, 1, 12000, 4, 16, HARK_COARSE_QUERY_MEAN, false}};
  test_setup setups[TEST_MAX_SETUPS];
  const int count = test_setups(setups);
  for (int s = 0; s < count; s++)
    for (size_t i = 0; i < sizeof cases / sizeof *cases && strcmp(setups[s].backend, "cpu") == 0; i++) {
      hark_context *context = test_setup_open(&setups[s], 2);
      hark_attention_desc desc = hark_attention_desc_default();
      desc.structure = HARK_STRUCTURE_HIERARCHICAL;
      desc.hierarchy_block = cases[i].block;
      desc.coarse_query = cases[i].coarse_query;
      desc.causal = cases[i].causal;
      desc.batch = 1;
      desc.heads = cases[i].heads;
      desc.key_heads = cases[i].key_heads;
      desc.query_length = desc.key_length = cases[i].length;
      desc.head_dim = desc.value_dim = cases[i].head_dim;
      set_rows(context, MOST, PART);
      compare_over_inputs(context, &desc);
      test_setup_close(context);
    }
}

/* Others write separate memory, as programs must. */
static void test_not_over_inputs(void **state) {
  (void)state;
  test_setup setups[TEST_MAX_SETUPS];
  hark_context *context = test_setup_open(&setups[test_setups_guard_once(setups) > 1 ? 1 : 0], 1);
  hark_attention_desc desc = hark_attention_desc_default();
  attention a;
  desc.batch = 1;
  desc.heads = desc.key_heads = 2;
  desc.query_length = desc.key_length = 60;
  desc.head_dim = desc.value_dim = 16;
  for (int hierarchical = 0; hierarchical < 2; hierarchical++) {
    desc.structure = hierarchical ? HARK_STRUCTURE_HIERARCHICAL : HARK_STRUCTURE_DENSE;
    set_rows(context, hierarchical ? HARK_ROWS_MOST : MOST, PART); /* a dense algorithm, or a short sequence */
    const size_t bytes = attention_open(context, &desc, &a);
    assert_int_equal(run_backward(context, &a, true, 0), HARK_INVALID_ARGUMENT);
    attention_close(context, &a, bytes);
  }
  test_setup_close(context);
}

/* ---- failures ---- */

/* A step whose allocation `number` fails (0: none), and one after it. Returns whether there was such an allocation. */
static bool fail_step(long number, float *expected) {
  test_memory memory = {0};
  hark_context *context = NULL;
  model m;
  hark_value loss = 0;
  float got = 0;
  assert_int_equal(test_memory_create(&memory, "cpu", &context), HARK_OK);
  set_rows(context, MOST, PART);
  model_open(&m, context, &variants[0].config, HARK_F32);
  memory.fail_at = number > 0 ? memory.allocations + number : 0;
  const hark_status status = differentiate(&m, plain_loss, &loss);
  const bool reached = number > 0 && memory.allocations >= memory.fail_at;
  assert_int_equal(status, reached ? HARK_OUT_OF_MEMORY : HARK_OK);
  memory.fail_at = 0;
  if (reached) assert_int_equal(differentiate(&m, plain_loss, &loss), HARK_OK);
  assert_int_equal(hark_tensor_read(context, hark_tape_tensor(m.tape, loss), &got), HARK_OK);
  if (number == 0) *expected = got;
  assert_memory_equal(&got, expected, sizeof got);
  model_close(&m);
  test_memory_context_end(context, &memory);
  return reached;
}

static void test_out_of_memory(void **state) {
  (void)state;
  float expected = 0;
  long number = 1;
  (void)fail_step(0, &expected);
  while (fail_step(number, &expected)) number++;
  assert_true(number > 5);
}

static hark_status build_other_rows(void *closure, hark_tape *tape, int64_t first, const hark_value *inputs, hark_value *outputs) {
  const hark_pool_attributes last = {.kind = HARK_POOL_LAST};
  (void)closure, (void)first;
  return hark_tape_apply(tape, &hark_op_pool, &last, 1, &inputs[0], 0, outputs);
}

static void test_refusals(void **state) {
  (void)state;
  hark_context *context = test_reference_open();
  hark_tape *tape = NULL;
  hark_tensor x;
  const int64_t shape[] = {1, 40, 4}, other[] = {2, 20, 4};
  hark_value value = 0, out = 0;
  assert_int_equal(hark_tape_create(context, &tape), HARK_OK);
  assert_int_equal(hark_tensor_create(context, HARK_F32, 3, shape, &x), HARK_OK);
  assert_int_equal(hark_tape_leaf(tape, &x, NULL, &value), HARK_OK);
  hark_tape_rows part = {.build = build_other_rows, .rows = 40, .slice = 16, .input_count = 1, .inputs = {value}, .output_count = 1};
  assert_int_equal(hark_tensor_describe(context, HARK_F32, 3, shape, &part.outputs[0]), HARK_OK);
  assert_int_equal(hark_tape_rows_apply(tape, &part, &out), HARK_SHAPE_MISMATCH); /* one row of a slice */
  hark_tape_reset(tape);
  assert_int_equal(hark_tape_leaf(tape, &x, NULL, &value), HARK_OK);
  part.input_count = 2;
  part.inputs[1] = value;
  assert_int_equal(hark_tape_rows_apply(tape, &part, &out), HARK_INVALID_ARGUMENT); /* one value twice */
  part.inputs[1] = 17;
  assert_int_equal(hark_tape_rows_apply(tape, &part, &out), HARK_INVALID_ARGUMENT);
  part.inputs[1] = 0;
  part.slice = 0;
  assert_int_equal(hark_tape_rows_apply(tape, &part, &out), HARK_INVALID_ARGUMENT);
  hark_tensor two = x;
  assert_int_equal(hark_tensor_wrap(context, x.data, HARK_F32, 3, other, NULL, &two), HARK_OK);
  assert_int_equal(hark_tape_leaf(tape, &two, NULL, &part.inputs[0]), HARK_OK);
  part.slice = 16;
  assert_int_equal(hark_tape_rows_apply(tape, &part, &out), HARK_SHAPE_MISMATCH); /* two sequences */
  hark_tensor_destroy(context, &x);
  hark_tape_destroy(&tape);
  test_setup_close(context);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_same_bits),   cmocka_unit_test(test_threads),     cmocka_unit_test(test_gradients),
      cmocka_unit_test(test_differences), cmocka_unit_test(test_bytes),       cmocka_unit_test(test_out_of_memory),
      cmocka_unit_test(test_long_step),   cmocka_unit_test(test_over_inputs), cmocka_unit_test(test_not_over_inputs),
      cmocka_unit_test(test_refusals),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
