/* test_bounds.c - matrices with bounds in training: every step ends within them, frozen ones stay, and a model without bounds leaves
 * them. */
#include <math.h>
#include <string.h>

#include "support/cmocka_all.h"
#include "support/setups.h"
#include "support/text_files.h"
#include "train/engine.h"

#define WIDTH 4
#define STEPS 12
#define RATE 0.5 /* far too large: steps leave the bounds */
#define NUMBERS 64

/* The configuration of a small latent network; the options hold its strings. */
static hark_options *configure(hark_context *context, int norm, hark_config *config) {
  const hark_option_group group = {&hark_config_table, config};
  hark_options *options = NULL;
  assert_fine(context, hark_options_create(context, NULL, &group, 1, &options));
  config->model.architecture = HARK_ARCHITECTURE_LATENT;
  config->model.layers = 2;
  config->model.heads = config->model.key_heads = 2;
  config->model.width = WIDTH;
  config->model.feed_forward_width = 6;
  config->model.context = 3;
  config->model.positions = HARK_POSITIONS_NONE;
  config->model.activation = HARK_ACTIVATION_RELU;
  config->model.attention.kernel = HARK_KERNEL_RBF;
  config->model.latent.norm = norm;
  config->model.latent.operator_norm = 1.2;
  config->model.latent.matrix_norm = 1.5;
  config->train.batch = 2;
  return options;
}

static void step(hark_context *context, hark_engine *engine, int64_t number) {
  static int32_t tokens[] = {5, 5, 5, 5, 5}, positions[] = {0, 1, 2, 0, 1};
  static int64_t segments[] = {0, 0, 0, 1, 1}, ranges[] = {0, 3, 3, 5};
  static float features[5 * WIDTH], responses[2] = {0.25f, -0.25f};
  const hark_example_batch batch = {.rows = 2,
                                    .tokens = 5,
                                    .inputs = tokens,
                                    .positions = positions,
                                    .segments = segments,
                                    .ranges = ranges,
                                    .features = features,
                                    .responses = responses,
                                    .real = 2,
                                    .longest = 3};
  hark_pass_result pass;
  hark_step_result result;
  for (int i = 0; i < 5 * WIDTH; i++) features[i] = (float)((i * 7 + (int)number * 5) % 11 - 5) / 10;
  assert_fine(context, hark_engine_begin_step(context, engine));
  assert_fine(context, hark_engine_train_examples(context, engine, &batch, 0, 0.5, &pass));
  assert_fine(context, hark_engine_finish_step(context, engine, number, RATE, pass.loss, &result));
  assert_true(result.applied);
}

/* Largest norm of a weight over the bound that is asked for. */
static double largest(hark_context *context, const hark_engine *engine, hark_bound_norm norm, double operator_norm, double matrix_norm) {
  const hark_parameters *parameters = &engine->network->parameters;
  double most = 0;
  for (int32_t n = 0; n < parameters->count; n++) {
    const hark_parameter *parameter = &parameters->list[n];
    const int64_t rows = parameter->spec.shape[0], columns = parameter->spec.shape[1];
    float stored[NUMBERS];
    double numbers[NUMBERS], scratch[4 * NUMBERS];
    if (strstr(parameter->name, "blocks.") == NULL) continue; /* the others have bounds of their own */
    assert_fine(context, hark_tensor_read(context, &parameter->weight, stored));
    for (int64_t i = 0; i < parameter->count; i++) numbers[i] = (double)stored[i];
    most = fmax(most, hark_operator_norm(norm, rows, columns, numbers, scratch) / operator_norm);
    most = fmax(most, hark_matrix_norm(norm, rows, columns, numbers) / matrix_norm);
  }
  return most;
}

static void every_step_ends_within_the_bounds(void **state) {
  (void)state;
  const hark_learning_task task = {.vocabulary = 6, .parts = 1, .features = WIDTH, .responses = 1};
  test_setup setups[TEST_MAX_SETUPS];
  const int setup_count = test_setups_guard_once(setups);
  for (int s = 0; s < setup_count; s++)
    for (int norm = HARK_BOUND_FREE; norm <= HARK_BOUND_INFINITY; norm++) {
      hark_context *context = test_setup_open(&setups[s], 2);
      hark_config config;
      hark_options *options = configure(context, norm, &config);
      hark_engine *engine = NULL;
      double most = 0;
      assert_fine(context, hark_engine_create_for(context, &config, &task, true, &engine));
      assert_fine(context, hark_parameters_initialise(context, &engine->network->parameters, 3));
      for (int64_t number = 1; number <= STEPS; number++) {
        step(context, engine, number);
        most = fmax(most, largest(context, engine, norm == HARK_BOUND_FREE ? HARK_BOUND_TWO : (hark_bound_norm)norm, 1.2, 1.5));
      }
      if (norm == HARK_BOUND_FREE ? most < 1.5 : !(most <= 1 + 1e-6)) fail_msg("norm %d: %.9g of its bound after a step", norm, most);
      if (norm != HARK_BOUND_FREE) assert_true(most > 1 - 1e-5); /* the steps do press against it */
      hark_engine_destroy(context, &engine);
      hark_options_destroy(context, &options);
      test_setup_close(context);
    }
}

static void frozen_weights_keep_their_bits(void **state) {
  (void)state;
  static const char *patterns[] = {"blocks.0.*"};
  const hark_learning_task task = {.vocabulary = 6, .parts = 1, .features = WIDTH, .responses = 1};
  hark_context *context = test_reference_open();
  hark_config config;
  hark_options *options = configure(context, HARK_BOUND_TWO, &config);
  hark_engine *engine = NULL;
  const hark_string_list before_list = config.train.freeze;
  config.train.freeze = (hark_string_list){.items = patterns, .count = 1};
  assert_fine(context, hark_engine_create_for(context, &config, &task, true, &engine));
  assert_fine(context, hark_parameters_initialise(context, &engine->network->parameters, 3));
  hark_parameter *frozen = hark_parameters_find(&engine->network->parameters, "blocks.0.heads.1.value.weight");
  float large[WIDTH * WIDTH], after[WIDTH * WIDTH];
  for (int i = 0; i < WIDTH * WIDTH; i++) large[i] = 3;
  assert_fine(context, hark_tensor_write(context, &frozen->weight, large));
  step(context, engine, 1);
  assert_fine(context, hark_tensor_read(context, &frozen->weight, after));
  assert_memory_equal(after, large, sizeof large);
  assert_fine(context, hark_parameters_project(context, &engine->network->parameters, true)); /* where a run begins */
  assert_fine(context, hark_tensor_read(context, &frozen->weight, after));
  assert_true(fabsf(after[0] - 0.3f) < 1e-6f); /* one singular value, 12, becomes 1.2 */
  config.train.freeze = before_list;
  hark_engine_destroy(context, &engine);
  hark_options_destroy(context, &options);
  test_setup_close(context);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_step_ends_within_the_bounds), cmocka_unit_test(frozen_weights_keep_their_bits)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
