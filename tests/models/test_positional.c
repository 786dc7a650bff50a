/* test_positional.c - positional kernels in the decoder: how many parameters, whose, what they start with, what attention makes of them.
 * Gradients, recomputation, causality and decoding are in test_decoder.c, whose variants have kernels among them. */
#include <hark/hark.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/model.h"
#include "models/stack.h"
#include "support/cmocka_all.h"
#include "support/setups.h"
#include "support/text_files.h"

#define LENGTH 9
#define VOCABULARY 5

static const hark_network_config plain = {.vocabulary = VOCABULARY,
                                          .layers = 3,
                                          .heads = 2,
                                          .key_heads = 2,
                                          .width = 8,
                                          .feed_forward_width = 8,
                                          .context = 256,
                                          .norm_epsilon = 1e-5,
                                          .rotary.base = 10000,
                                          .attention.sigma = 1};

static hark_network *make(hark_context *context, const char *expression, hark_positional_scope scope) {
  hark_network_config config = plain;
  hark_network *decoder = NULL;
  config.positional = expression;
  config.positional_scope = scope;
  assert_fine(context, hark_network_create(context, &config, HARK_F64, true, &decoder));
  assert_fine(context, hark_parameters_initialise(context, &decoder->parameters, 1));
  return decoder;
}

/* A bank of M decaying periodic kernels has 4 M parameters: in all, a layer, or a head. */
static void counts_are_those_of_the_paper(void **state) {
  (void)state;
  hark_context *context = test_reference_open();
  static const int64_t expected[] = {32, 3 * 32, 3 * 2 * 32};
  hark_network *without = make(context, NULL, HARK_SCOPE_MODEL);
  const int64_t base = hark_parameters_total(&without->parameters);
  for (int scope = 0; scope < 3; scope++) {
    hark_network *decoder = make(context, "bank[8](decay*periodic)", (hark_positional_scope)scope);
    assert_int_equal(hark_parameters_total(&decoder->parameters) - base, expected[scope]);
    for (int64_t layer = 0; layer < 3; layer++) {
      char name[64] = "positional.parameters";
      if (scope > 0) snprintf(name, sizeof name, "blocks.%d.attention.positional.parameters", (int)layer);
      const hark_parameter *parameter = hark_parameters_find(&decoder->parameters, name);
      assert_non_null(parameter);
      assert_ptr_equal(parameter, hark_parameters_at(&decoder->parameters, hark_stack_positional(decoder, layer)->parameters));
      assert_int_equal(parameter->weight.shape[0], scope == HARK_SCOPE_HEAD ? 2 : 1);
      assert_int_equal(parameter->weight.shape[1], 32);
      assert_false(parameter->spec.decays);
      assert_int_equal(parameter->spec.rate, HARK_RATE_POSITIONAL);
    }
    hark_network_destroy(context, &decoder);
  }
  assert_null(hark_stack_positional(without, 0)->source);
  hark_network_destroy(context, &without);
  test_setup_close(context);
}

/* They are what the expression starts with for each head, and lie in a group of the optimiser of their own, without decay. */
static void they_start_as_the_expression_says(void **state) {
  (void)state;
  hark_context *context = test_reference_open();
  hark_network *decoder = make(context, "alibi+decay(l=30)", HARK_SCOPE_HEAD);
  const hark_parameter *parameter = hark_parameters_find(&decoder->parameters, "blocks.2.attention.positional.parameters");
  double values[2][3];
  assert_non_null(parameter);
  assert_fine(context, hark_tensor_read(context, &parameter->weight, values));
  for (int h = 0; h < 2; h++) {
    assert_true(fabs(values[h][0] + 4 * (h + 1) * log(2)) < 1e-14);
    assert_true(values[h][1] == 0 && values[h][2] == log(30));
  }
  int groups = 0;
  for (int g = 0; g < decoder->parameters.group_count; g++) {
    const hark_parameter_group *group = &decoder->parameters.groups[g];
    const bool inside = parameter->first >= group->first && parameter->first < group->first + group->count;
    assert_int_equal(inside, group->rate == HARK_RATE_POSITIONAL);
    if (inside) assert_false(group->decays);
    groups += inside;
  }
  assert_int_equal(groups, 1);
  hark_network_destroy(context, &decoder);
  test_setup_close(context);
}

/* The gradient of the loss by the parameters of one kernel, for a text of LENGTH tokens. Returns the loss. */
static double gradient_of(hark_context *context, hark_network *decoder, double *gradient) {
  hark_tape *tape = NULL;
  hark_attention_plan **plans = NULL;
  const int64_t shape[] = {1, LENGTH};
  int32_t tokens[LENGTH], targets[LENGTH];
  hark_tensor token_rows, target_rows;
  hark_value inputs[2] = {0}, loss = 0;
  for (int i = 0; i < LENGTH; i++) {
    tokens[i] = i * i % VOCABULARY;
    targets[i] = (i + 2) % VOCABULARY;
  }
  assert_fine(context, hark_tensor_create(context, HARK_I32, 2, shape, &token_rows));
  assert_fine(context, hark_tensor_create(context, HARK_I32, 2, shape, &target_rows));
  assert_fine(context, hark_tensor_write(context, &token_rows, tokens));
  assert_fine(context, hark_tensor_write(context, &target_rows, targets));
  assert_fine(context, hark_tape_create(context, &tape));
  assert_fine(context, hark_network_plans_rectangular(context, decoder, 1, LENGTH, LENGTH, true, &plans));
  const hark_forward forward = {.tape = tape, .parameters = &decoder->parameters, .training = true, .plans = plans};
  assert_fine(context, hark_tape_leaf(tape, &token_rows, NULL, &inputs[0]));
  assert_fine(context, hark_tape_leaf(tape, &target_rows, NULL, &inputs[1]));
  assert_fine(context, hark_stack_loss(context, decoder, &forward, inputs[0], inputs[1], (hark_target_loss){.weight = 1}, &loss));
  assert_fine(context, hark_tape_backward(tape, loss, 1));
  assert_fine(context,
              hark_tensor_read(context, &hark_parameters_at(&decoder->parameters, hark_stack_positional(decoder, 0)->parameters)->gradient,
                               gradient));
  double value = 0;
  assert_fine(context, hark_tensor_read(context, hark_tape_tensor(tape, loss), &value));
  hark_network_plans_destroy(context, decoder, &plans);
  hark_tape_destroy(&tape);
  hark_tensor_destroy(context, &token_rows);
  hark_tensor_destroy(context, &target_rows);
  return value;
}

/* A factor common to all distances changes nothing: its derivative, the sum of dlogG over all distances, is zero; that of a length is
 * not. */
static void a_common_factor_has_no_gradient(void **state) {
  (void)state;
  hark_context *context = test_reference_open();
  hark_network *decoder = make(context, "constant*decay(sigma2=3)", HARK_SCOPE_MODEL);
  double gradient[3] = {0};
  (void)gradient_of(context, decoder, gradient);
  assert_true(fabs(gradient[2]) > 1e-9);
  assert_true(fabs(gradient[0]) < 1e-10 * fabs(gradient[2]) + 1e-16 && fabs(gradient[1]) < 1e-10 * fabs(gradient[2]) + 1e-16);
  hark_network_destroy(context, &decoder);
  test_setup_close(context);
}

#define DISTANCES 300

/* The rows of a layer's table are those of their expressions alone. */
static void check_rows(hark_context *context, hark_network *decoder, int64_t layer, const char *const *expressions) {
  const hark_positional_layer *of = hark_stack_positional(decoder, layer);
  const hark_tensor *weight = &hark_parameters_at(&decoder->parameters, of->parameters)->weight;
  const int64_t columns = weight->shape[1];
  static double numbers[2 * 32], table[2 * DISTANCES], distances[DISTANCES], alone[DISTANCES];
  hark_tape *tape = NULL;
  hark_value value = 0;
  for (int i = 0; i < DISTANCES; i++) distances[i] = i;
  assert_fine(context, hark_tensor_read(context, weight, numbers));
  assert_fine(context, hark_tape_create(context, &tape));
  const hark_forward forward = {.tape = tape, .parameters = &decoder->parameters};
  assert_fine(context, hark_positional_apply(&forward, of, DISTANCES, &value));
  assert_fine(context, hark_tensor_read(context, hark_tape_tensor(tape, value), table));
  for (int row = 0; row < 2; row++) {
    hark_positional *kernel = NULL;
    assert_fine(context, hark_positional_create(context, expressions[row], &kernel));
    assert_fine(context, hark_positional_log(context, kernel, numbers + row * columns, distances, DISTANCES, alone));
    assert_memory_equal(alone, table + row * DISTANCES, sizeof alone);
    for (int64_t i = hark_positional_parameter_count(kernel); i < columns; i++) assert_true(numbers[row * columns + i] == 0);
    hark_positional_destroy(context, &kernel);
  }
  hark_tape_destroy(&tape);
}

/* Longer rows leave numbers that no expression uses: they are 0, and their gradient is 0. */
static void heads_may_have_expressions_of_their_own(void **state) {
  (void)state;
  static const char *const expressions[] = {"alibi", "decay*bump", "rbf(l=3)", "table[3]", "constant", "t5"};
  hark_context *context = test_reference_open();
  hark_network *decoder = make(context, "alibi|decay * bump|rbf(l=3)|table[3]|constant|t5", HARK_SCOPE_HEAD);
  double gradient[2 * 5];
  for (int64_t layer = 0; layer < 3; layer++) check_rows(context, decoder, layer, expressions + 2 * layer);
  assert_string_equal(decoder->config.positional, "alibi|decay*bump|rbf(l=3)|table[3]|constant|t5");
  gradient_of(context, decoder, gradient);
  assert_true(fabs(gradient[0]) > 1e-9 && fabs(gradient[5 + 1]) > 1e-9);
  for (int i = 1; i < 5; i++) assert_true(gradient[i] == 0);
  hark_network_destroy(context, &decoder);
  test_setup_close(context);
}

/* One expression for each head, which all layers share; and one for each layer. */
static void expressions_follow_the_scope(void **state) {
  (void)state;
  hark_context *context = test_reference_open();
  hark_network *shared = make(context, "decay|t5", HARK_SCOPE_MODEL), *layers = make(context, "decay|alibi|t5", HARK_SCOPE_LAYER);
  const hark_parameter *parameter = hark_parameters_find(&shared->parameters, "positional.parameters");
  assert_non_null(parameter);
  assert_int_equal(parameter->weight.shape[0], 2);
  for (int64_t layer = 0; layer < 3; layer++) {
    static const char *const names[] = {"decay", "alibi", "t5"};
    char name[64];
    snprintf(name, sizeof name, "blocks.%d.attention.positional.parameters", (int)layer);
    parameter = hark_parameters_find(&layers->parameters, name);
    assert_non_null(parameter);
    assert_int_equal(parameter->weight.shape[0], 1);
    assert_ptr_equal(hark_stack_positional(shared, layer)->source, &shared->positional_source);
    const hark_positional *kernel = hark_positional_source_at(&layers->positional_source, layer, 0);
    assert_string_equal(hark_positional_named(kernel, 0).kernel, names[layer]);
  }
  hark_network_destroy(context, &shared);
  hark_network_destroy(context, &layers);
  test_setup_close(context);
}

static void mistakes_are_reported(void **state) {
  (void)state;
  hark_context *context = test_reference_open();
  hark_network_config config = plain;
  hark_network *decoder = NULL;
  config.positional = "decay+decai";
  assert_failure(context, hark_network_create(context, &config, HARK_F32, true, &decoder), HARK_INVALID_ARGUMENT, "column 7");
  assert_null(decoder);
  test_setup_close(context);
}

/* Making a model and what it needs to write text, with allocation number n failing, for every n: out of memory, nothing else, and no
 * leak. */
static void memory_may_run_out(void **state) {
  (void)state;
  hark_status status = HARK_OUT_OF_MEMORY;
  long fail_at = 0;
  do {
    test_memory memory;
    hark_context *context = test_memory_context(&memory);
    hark_network_config config = plain;
    hark_network *decoder = NULL;
    hark_decoding *decoding = NULL;
    hark_model *model = NULL;
    const hark_decoding_options room = {.struct_size = sizeof room, .capacity = LENGTH};
    config.positional = "bank[2](decay*periodic)|alibi";
    config.positional_scope = HARK_SCOPE_HEAD;
    config.positions = HARK_POSITIONS_ROTARY;
    config.rotary.learned = HARK_ROTARY_OF_HEAD;
    memory.fail_at = memory.allocations + ++fail_at;
    status = hark_network_create(context, &config, HARK_F32, true, &decoder);
    if (status == HARK_OK) status = hark_parameters_initialise(context, &decoder->parameters, 1);
    if (status == HARK_OK) status = hark_model_wrap(context, decoder, &model);
    if (status == HARK_OK) status = hark_decoding_create(context, model, &room, &decoding);
    if (status == HARK_OK) status = hark_decoding_step(decoding, 1);
    if (status != HARK_OK && status != HARK_OUT_OF_MEMORY) fail_msg("allocation %ld: %s", fail_at, hark_context_message(context));
    hark_decoding_destroy(&decoding);
    hark_model_destroy(context, &model);
    hark_network_destroy(context, &decoder);
    test_memory_context_end(context, &memory);
  } while (status != HARK_OK);
  assert_true(fail_at > 20);
}

#define TEXT 23        /* tokens */
#define TOKENS 261     /* of the vocabulary of bytes */
#define TOLERANCE 2e-5 /* logits are below 4; their sums have some dozen terms */

static const char *description_of(const char *expression, const char *scope, const char *structure) {
  static char text[1024];
  snprintf(text, sizeof text,
           "{\"model\": {\"type\": \"gpt\", \"layers\": 2, \"heads\": 2, \"key_heads\": 2, \"width\": 16, \"feed_forward_width\": 16, "
           "\"context\": 64, \"activation\": \"gelu\", \"norm\": \"layer_norm\", \"norm_epsilon\": 1e-5, \"positions\": \"none\", "
           "\"positional\": \"%s\", \"positional_scope\": \"%s\", \"tie_embeddings\": true, \"bias\": false, "
           "\"rotary\": {\"base\": 10000, \"pairs\": \"half\"}, "
           "\"attention\": {\"structure\": \"%s\", \"window\": 5, \"hierarchy_block\": 4, \"kernel\": \"exp\", \"sigma\": 1, "
           "\"forget_gate\": false}}}",
           expression, scope, structure);
  return text;
}

static const char *description(const char *expression, const char *scope) { return description_of(expression, scope, "dense"); }

/* Weights far from the initial ones, so that attention decides about the logits, and those of kernels differ in every layer and head. */
static void disturb(hark_context *context, hark_network *decoder) {
  for (int32_t i = 0; i < decoder->parameters.count; i++) {
    hark_parameter *parameter = &decoder->parameters.list[i];
    const bool kernel = strstr(parameter->name, "positional") != NULL;
    float *numbers = malloc((size_t)parameter->count * sizeof *numbers);
    assert_fine(context, hark_tensor_read(context, &parameter->weight, numbers));
    for (int64_t n = 0; n < parameter->count; n++) numbers[n] = kernel ? numbers[n] + 0.3f * (float)((n + i) % 5 - 2) : 8 * numbers[n];
    if (strstr(parameter->name, "norm") == NULL) assert_fine(context, hark_tensor_write(context, &parameter->weight, numbers));
    free(numbers);
  }
}

/* logits [TEXT, TOKENS] of one pass over the whole text, without caches */
static void parallel_logits(hark_context *context, const hark_network *decoder, const int32_t *text, float *logits) {
  const int64_t shape[] = {1, TEXT};
  hark_tape *tape = NULL;
  hark_attention_plan **plans = NULL;
  hark_tensor rows;
  hark_value tokens = 0, value = 0;
  assert_fine(context, hark_tensor_create(context, HARK_I32, 2, shape, &rows));
  assert_fine(context, hark_tensor_write(context, &rows, text));
  assert_fine(context, hark_tape_create(context, &tape));
  assert_fine(context, hark_network_plans_rectangular(context, decoder, 1, TEXT, TEXT, false, &plans));
  const hark_forward forward = {.tape = tape, .parameters = &decoder->parameters, .plans = plans};
  assert_fine(context, hark_tape_leaf(tape, &rows, NULL, &tokens));
  assert_fine(context, hark_stack_logits(context, decoder, &forward, tokens, false, &value));
  assert_fine(context, hark_tensor_read(context, hark_tape_tensor(tape, value), logits));
  hark_network_plans_destroy(context, decoder, &plans);
  hark_tape_destroy(&tape);
  hark_tensor_destroy(context, &rows);
}

static double distance_of(const float *a, const float *b) {
  double largest = 0;
  for (int i = 0; i < TOKENS; i++) largest = fmax(largest, fabs((double)a[i] - (double)b[i]));
  return largest;
}

/* What a decoding answers after every token, moved into a fresh one after the ninth. */
static void decode(hark_context *context, const hark_model *model, const int32_t *text, const float *expected) {
  const hark_decoding_options room = {.struct_size = sizeof room, .capacity = TEXT};
  hark_decoding *decoding = NULL;
  assert_fine(context, hark_decoding_create(context, model, &room, &decoding));
  for (int i = 0; i < TEXT; i++) {
    assert_fine(context, hark_decoding_step(decoding, text[i]));
    const double distance = distance_of(hark_decoding_logits(decoding), expected + (size_t)i * TOKENS);
    if (!(distance <= TOLERANCE)) fail_msg("token %d: %g from the parallel pass", i, distance);
    if (i != 8) continue;
    const size_t bytes = hark_decoding_saved_bytes(decoding);
    void *saved = malloc(bytes);
    assert_fine(context, hark_decoding_save(decoding, saved, bytes));
    hark_decoding_destroy(&decoding);
    assert_fine(context, hark_decoding_create(context, model, &room, &decoding));
    assert_fine(context, hark_decoding_restore(decoding, saved, bytes));
    free(saved);
  }
  hark_decoding_destroy(&decoding);
}

/* A model with a kernel through a file: the expression and what was learned come back, and decoding, in parts and saved in between, is the
 * parallel pass over the model before it was saved. */
static void a_kernel_survives_its_file(void **state) {
  (void)state;
  static const char *const expressions[] = {
      "bank[2](decay*periodic)", "alibi+rbf(l=3)", "t5*decay", "decay|t5", "rbf(l=3)|alibi", "alibi|bank[2](rbf)|decay(l=4!)|table[3]"};
  static const char *const scopes[] = {"model", "layer", "head"};
  char folder[TEST_PATH_BYTES];
  int32_t text[TEXT];
  test_folder_make(folder);
  for (int i = 0; i < TEXT; i++) text[i] = 5 + (i * 37 + i * i * 11) % 256;
  static float expected[TEXT * TOKENS], without[TEXT * TOKENS];
  for (int c = 0; c < 6; c++) {
    hark_context *context = test_setup_open(&(test_setup){"cpu", NULL}, 2);
    const char *const words = description(expressions[c], scopes[c % 3]), *const path = test_path(folder, "kernel.safetensors");
    hark_model_options options = {.struct_size = sizeof options, .description = words, .description_bytes = strlen(words)};
    hark_model *model = NULL, *loaded = NULL;
    assert_fine(context, hark_model_create(context, &options, 3, &model));
    disturb(context, model->network);
    parallel_logits(context, model->network, text, expected);
    assert_fine(context, hark_model_save(context, model, path));
    assert_fine(context, hark_model_load(context, path, NULL, &loaded));
    assert_string_equal(loaded->network->config.positional, expressions[c]);
    assert_int_equal(loaded->network->config.positional_scope, c % 3);
    decode(context, loaded, text, expected);
    hark_model_destroy(context, &loaded);
    hark_model_destroy(context, &model);

    /* the kernel is not without effect, or the above would say nothing */
    options.description = description("", "model");
    options.description_bytes = strlen(options.description);
    assert_fine(context, hark_model_create(context, &options, 3, &model));
    disturb(context, model->network);
    parallel_logits(context, model->network, text, without);
    assert_true(distance_of(without + (size_t)(TEXT - 1) * TOKENS, expected + (size_t)(TEXT - 1) * TOKENS) > 100 * TOLERANCE);
    hark_model_destroy(context, &model);
    test_setup_close(context);
  }
  test_folder_remove(folder);
}

/* The kernel of that number, with what must be given. */
static void name_kernel(int leaf, char text[64]) {
  const hark_positional_kernel what = hark_positional_kernel_at(leaf);
  bool sized = false;
  for (int p = 0; p < HARK_POSITIONAL_NAMES; p++) sized = sized || (what.parameters[p] != NULL && what.values[p] == 0);
  (void)snprintf(text, 64, "%s%s%s", what.name, sized ? "[5]" : "", what.constant != NULL ? "(9)" : "");
}

/* Every kernel in every structure: decoding is the parallel pass. */
static void every_kernel_decodes(void **state) {
  (void)state;
  static const char *const structures[] = {"dense", "window", "hierarchical"};
  static float expected[TEXT * TOKENS];
  int32_t text[TEXT];
  hark_context *context = test_setup_open(&(test_setup){"cpu", NULL}, 2);
  for (int i = 0; i < TEXT; i++) text[i] = 5 + (i * 37 + i * i * 11) % 256;
  for (int leaf = 0; leaf < hark_positional_kernel_count(); leaf++) {
    for (int s = 0; s < 3; s++) {
      char expression[64];
      name_kernel(leaf, expression);
      const char *const words = description_of(expression, leaf % 2 == 0 ? "head" : "model", structures[s]);
      const hark_model_options options = {.struct_size = sizeof options, .description = words, .description_bytes = strlen(words)};
      hark_model *model = NULL;
      assert_fine(context, hark_model_create(context, &options, 3, &model));
      disturb(context, model->network);
      parallel_logits(context, model->network, text, expected);
      decode(context, model, text, expected);
      hark_model_destroy(context, &model);
    }
  }
  test_setup_close(context);
}

/* A step down the gradient of a kernel's parameters alone lowers the loss, by about the step times the square of the gradient. */
static void every_kernel_trains(void **state) {
  (void)state;
  hark_context *context = test_reference_open();
  for (int leaf = 0; leaf < hark_positional_kernel_count(); leaf++) {
    enum { MOST = 64 };
    char expression[64], text[96];
    double gradient[MOST] = {0}, numbers[MOST], square = 0;
    name_kernel(leaf, expression);
    (void)snprintf(text, sizeof text, "decay(sigma2=1!,l=4!)+%s", expression); /* so that a factor matters too */
    hark_network *decoder = make(context, text, HARK_SCOPE_MODEL);
    hark_tensor *const weight = &hark_parameters_at(&decoder->parameters, hark_stack_positional(decoder, 0)->parameters)->weight;
    const int64_t count = hark_tensor_count(weight);
    assert_in_range(count, 2, MOST);
    const double before = gradient_of(context, decoder, gradient);
    for (int64_t p = 0; p < count; p++) square += gradient[p] * gradient[p];
    assert_true(count == 2 ? square == 0 : square > 0);
    assert_fine(context, hark_tensor_read(context, weight, numbers));
    const double step = square > 0 ? 1e-3 / sqrt(square) : 0;
    for (int64_t p = 0; p < count; p++) numbers[p] -= step * gradient[p];
    assert_fine(context, hark_tensor_write(context, weight, numbers));
    const double change = gradient_of(context, decoder, gradient) - before;
    if (!(fabs(change + step * square) <= 0.02 * step * square))
      fail_msg("%s: the loss changes by %g, expected %g", text, change, -step * square);
    hark_network_destroy(context, &decoder);
  }
  test_setup_close(context);
}

/* More numbers than are made at once start as the expression says, too. */
static void large_banks_start_as_they_should(void **state) {
  (void)state;
  enum { HEADS = 8, NUMBERS = 4096 };
  hark_context *context = test_reference_open();
  hark_network_config config = plain;
  hark_network *decoder = NULL;
  config.heads = config.key_heads = HEADS;
  config.positional = "bank[1024](decay*periodic)";
  config.positional_scope = HARK_SCOPE_HEAD;
  assert_fine(context, hark_network_create(context, &config, HARK_F64, false, &decoder));
  assert_fine(context, hark_parameters_initialise(context, &decoder->parameters, 1));
  const hark_parameter *parameter = hark_parameters_find(&decoder->parameters, "blocks.1.attention.positional.parameters");
  assert_non_null(parameter);
  assert_int_equal(parameter->count, HEADS * NUMBERS);
  double *values = malloc((size_t)parameter->count * sizeof *values);
  assert_fine(context, hark_tensor_read(context, &parameter->weight, values));
  assert_memory_equal(values, decoder->positional_source.initial, (size_t)parameter->count * sizeof *values);
  assert_true(values[NUMBERS + 1024] != values[(HEADS - 1) * NUMBERS + 1024]);
  free(values);
  hark_network_destroy(context, &decoder);
  test_setup_close(context);
}

/* Descriptions are read by the rules of expressions. */
static void descriptions_with_mistakes_are_refused(void **state) {
  (void)state;
  static const struct {
    const char *expression, *scope, *message;
  } cases[] = {{"decay+decai", "model", "description: model.positional: positional kernel, column 7"},
               {"decay|decai", "head", "description: model.positional: positional kernel, column 7"},
               {"decay", "layers", "model.positional_scope is \"layers\", expected one of model, layer, head"}};
  hark_context *context = test_reference_open();
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    const char *const words = description(cases[i].expression, cases[i].scope);
    const hark_model_options options = {.struct_size = sizeof options, .description = words, .description_bytes = strlen(words)};
    hark_model *model = NULL;
    assert_failure(context, hark_model_create(context, &options, 3, &model), HARK_BAD_FILE, cases[i].message);
    assert_null(model);
  }
  test_setup_close(context);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(counts_are_those_of_the_paper),
      cmocka_unit_test(they_start_as_the_expression_says),
      cmocka_unit_test(a_common_factor_has_no_gradient),
      cmocka_unit_test(heads_may_have_expressions_of_their_own),
      cmocka_unit_test(expressions_follow_the_scope),
      cmocka_unit_test(mistakes_are_reported),
      cmocka_unit_test(memory_may_run_out),
      cmocka_unit_test(a_kernel_survives_its_file),
      cmocka_unit_test(every_kernel_decodes),
      cmocka_unit_test(every_kernel_trains),
      cmocka_unit_test(large_banks_start_as_they_should),
      cmocka_unit_test(descriptions_with_mistakes_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
