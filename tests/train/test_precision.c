/* test_precision.c - training with products in bf16: what it changes and what it does not.
 *
 * Gradients differ from those in f32 by roundings. To first order, and with products that do not enlarge a relative error, every product on
 * the way from a number to the loss and back adds at most 2 u, u = 2^-8 (tests/reference/test_bf16.c): a decoder of n blocks has at most 4
 * products on the way through a block and one for the logits, 2 (4 n + 1) forward and backward, so that the norm of the difference is below
 * 4 (4 n + 1) u of the norm of the gradient. It is far below, as roundings are not all in one direction; 4 u for all is the lower limit at
 * which the test would notice a wrong gradient as well as one that no product has rounded.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/state.h"
#include "core/half.h"
#include "support/cmocka_all.h"
#include "support/setups.h"
#include "support/train/small_run.h"
#include "train/engine.h"

enum { VOCABULARY = 23, STEPS = 3, LAYERS = 2 };
#define U 0x1p-8

static hark_config configuration(int count, const char *const *words) {
  static const char *const sizes[] = {"--layers=2", "--heads=2", "--width=40", "--context=19", "--batch=3"};
  hark_config config;
  hark_options *options = NULL;
  hark_context *context = test_reference_open();
  const hark_option_group group = {&hark_config_table, &config};
  assert_fine(context, hark_options_create(context, "train", &group, 1, &options));
  assert_fine(context, hark_options_read_arguments(context, options, 5, sizes));
  assert_fine(context, hark_options_read_arguments(context, options, count, words));
  assert_fine(context, hark_config_finish(context, options, &config));
  for (int i = 0; i < hark_options_problem_count(options); i++) fail_msg("%s", hark_options_problem(options, i));
  hark_options_destroy(context, &options); /* none of the values used below is a text */
  test_setup_close(context);
  return config;
}

/* Weights and moments after some steps, and the gradients of the last one. */
typedef struct outcome {
  float *numbers, *gradients;
  size_t elements, weights, step_bytes;
  double loss;
} outcome;

static void drop(outcome *out) {
  free(out->numbers);
  free(out->gradients);
}

static void fill(int64_t step, int64_t count, int32_t *tokens) {
  const hark_random_stream stream = {.micro_step = (uint32_t)step, .layer_purpose = hark_random_layer_purpose(0, HARK_RANDOM_TEST)};
  for (int64_t i = 0; i < count; i++) tokens[i] = (int32_t)(hark_random_word(&stream, (uint64_t)i) % VOCABULARY);
}

static outcome train(hark_context *context, const hark_config *config, int steps) {
  outcome out = {0};
  hark_engine *engine = NULL;
  const int64_t tokens = config->train.batch * config->model.context;
  int32_t *const inputs = malloc(2 * (size_t)tokens * sizeof *inputs);
  assert_non_null(inputs);
  assert_fine(context, hark_engine_create(context, config, VOCABULARY, true, &engine));
  hark_parameters *parameters = &engine->network->parameters;
  assert_fine(context, hark_parameters_initialise(context, parameters, 7));
  for (int step = 0; step < steps; step++) {
    hark_step_result result;
    fill(step, 2 * tokens, inputs);
    assert_fine(context, hark_engine_begin_step(context, engine));
    assert_fine(context, hark_engine_micro_batch(context, engine, inputs, inputs + tokens, config->train.batch, 0, (uint32_t)step,
                                                 1.0 / (double)tokens, &out.loss));
    assert_fine(context, hark_engine_finish_step(context, engine, step + 1, 1e-2, out.loss, &result));
    assert_true(result.applied);
  }
  const hark_tensor *const flats[] = {&parameters->weights, &engine->first_moment, &engine->second_moment};
  out.weights = (size_t)hark_tensor_count(flats[0]);
  out.elements = 3 * out.weights;
  out.step_bytes = hark_engine_memory_of(engine).step;
  out.numbers = malloc(out.elements * sizeof(float));
  out.gradients = malloc(out.weights * sizeof(float));
  assert_true(out.numbers != NULL && out.gradients != NULL);
  for (size_t i = 0; i < 3; i++) assert_fine(context, hark_tensor_read(context, flats[i], out.numbers + i * out.weights));
  assert_fine(context, hark_tensor_read(context, &parameters->gradients, out.gradients));
  hark_engine_destroy(context, &engine);
  free(inputs);
  return out;
}

static void same_bits(const outcome *a, const outcome *b, const char *what) {
  assert_int_equal(a->elements, b->elements);
  if (memcmp(a->numbers, b->numbers, a->elements * sizeof(float)) != 0 || memcmp(&a->loss, &b->loss, sizeof a->loss) != 0)
    fail_msg("%s: other bits", what);
}

static const char *const variants[][4] = {
    {"--precision=bf16", "--dropout=0.1", "--bias", "--positions=learned"},
    {"--precision=bf16", "--activation=gated_silu", "--key-heads=1", "--no-tie-embeddings"},
    {"--precision=bf16", "--forget-gate", "--norm=layer_norm", "--recompute"},
};
enum { VARIANTS = sizeof variants / sizeof *variants };

/* Every number of threads, and with a recomputed forward; instruction sets differ in everything but their products. */
static void bits_do_not_depend_on_threads(void **state) {
  (void)state;
  test_setup setups[TEST_MAX_SETUPS];
  const int count = test_setups_guard_once(setups);
  int compared = 0;
  for (int s = 0; s < count; s++)
    for (int v = 0; v < VARIANTS; v++) {
      const hark_config config = configuration(4, variants[v]);
      hark_config other = config;
      other.model.recompute = !config.model.recompute;
      hark_context *one = test_setup_open(&setups[s], 1), *three = test_setup_open_deterministic(&setups[s], 3);
      outcome a = train(one, &config, STEPS), b = train(three, &config, STEPS), c = train(three, &other, STEPS);
      same_bits(&a, &b, setups[s].instruction_set);
      same_bits(&a, &c, "recomputed");
      drop(&c);
      drop(&b);
      drop(&a);
      test_setup_close(three);
      test_setup_close(one);
      compared++;
    }
  assert_true(compared >= 2 * VARIANTS);
}

static double norm_of(const float *a, const float *b, size_t count) {
  double sum = 0;
  for (size_t i = 0; i < count; i++) {
    const double difference = (double)a[i] - (b != NULL ? (double)b[i] : 0);
    sum += difference * difference;
  }
  return sqrt(sum);
}

static void gradients_differ_by_roundings(void **state) {
  (void)state;
  test_setup setups[TEST_MAX_SETUPS];
  const int count = test_setups_guard_once(setups);
  for (int s = 0; s < count; s++)
    for (int v = 0; v < VARIANTS; v++) {
      const hark_config half = configuration(4, variants[v]);
      hark_config full = half;
      full.train.precision = HARK_PRECISION_F32;
      hark_context *context = test_setup_open(&setups[s], 2);
      outcome a = train(context, &half, 1), b = train(context, &full, 1);
      const double relative = norm_of(a.gradients, b.gradients, a.weights) / norm_of(b.gradients, NULL, a.weights);
      if (!(relative > 1e-4 && relative < 4 * (4 * LAYERS + 1) * U)) fail_msg("%s: %g", setups[s].instruction_set, relative);
      if (!(fabs(a.loss - b.loss) < (4 * LAYERS + 1) * 2 * U * b.loss && a.loss != b.loss)) fail_msg("%g, %g", a.loss, b.loss);
      drop(&b);
      drop(&a);
      test_setup_close(context);
    }
}

/* Products whose operands are rounded are the same on every instruction set; and so is the rounding of weights, once per step. */
static void weights_are_rounded_every_step(void **state) {
  (void)state;
  const hark_config config = configuration(4, variants[0]);
  hark_context *context = test_reference_open();
  hark_engine *engine = NULL;
  assert_fine(context, hark_engine_create(context, &config, VOCABULARY, true, &engine));
  hark_parameters *parameters = &engine->network->parameters;
  assert_int_equal(parameters->weights.type, HARK_F32);
  for (int round = 0; round < 2; round++) {
    assert_fine(context, hark_parameters_initialise(context, parameters, (uint64_t)round + 1));
    assert_fine(context, hark_engine_begin_step(context, engine));
    for (int32_t p = 0; p < parameters->count; p++) {
      const hark_parameter *parameter = &parameters->list[p];
      if (!parameter->spec.decays) continue;
      const hark_tensor half = hark_parameters_half(parameters, p + 1);
      for (int64_t i = 0; i < parameter->count; i++)
        assert_int_equal(((const uint16_t *)half.data)[i], hark_half_narrow(HARK_BF16, ((const float *)parameter->weight.data)[i]));
    }
  }
  hark_engine_destroy(context, &engine);
  test_setup_close(context);
}

/* Activations that only products read are kept in half the memory; weights get half of theirs in addition. */
static void memory_of_a_step(void **state) {
  (void)state;
  const hark_config half = configuration(4, variants[0]);
  hark_config full = half;
  full.train.precision = HARK_PRECISION_F32;
  hark_context *context = test_reference_open();
  hark_engine_memory with, without;
  int64_t parameters = 0, tensors = 0;
  assert_fine(context, hark_engine_estimate(context, &half, VOCABULARY, true, &with, &parameters, &tensors));
  assert_fine(context, hark_engine_estimate(context, &full, VOCABULARY, true, &without, &parameters, &tensors));
  assert_true(with.step < without.step);
  assert_int_equal(with.weights, without.weights / 2 * 3);
  assert_fine(context, hark_engine_estimate(context, &half, VOCABULARY, false, &with, &parameters, &tensors));
  assert_int_equal(with.weights, without.weights); /* evaluations are f32 */
  test_setup_close(context);
}

static hark_request stop_after(void *user) { return --*(int *)user < 0 ? HARK_REQUEST_STOP : HARK_REQUEST_NONE; }

/* A run in parts is the uninterrupted one, and its checkpoints are those of f32 models. */
static void a_run_in_parts(void **state) {
  (void)state;
  char folder[TEST_PATH_BYTES], whole[TEST_PATH_BYTES + 8], parts[TEST_PATH_BYTES + 8];
  small_run small;
  hark_train_result result;
  int left = 0; /* after the first step */
  test_folder_make(folder);
  small_run_open(&small, folder);
  small.config.train.precision = HARK_PRECISION_BF16;
  (void)snprintf(whole, sizeof whole, "%s/whole", folder);
  (void)snprintf(parts, sizeof parts, "%s/parts", folder);
  hark_context *context = small_run_context(2);
  assert_fine(context, small_run_train(context, &small, whole, NULL, &result));
  const int64_t steps = result.state.step;
  const hark_train_hooks hooks = {.user = &left, .request = stop_after};
  assert_fine(context, small_run_train(context, &small, parts, &hooks, &result));
  assert_true(result.state.step < steps);
  assert_fine(context, small_run_train(context, &small, parts, NULL, &result));
  small_run_assert_same(whole, parts, steps);
  hark_context_destroy(&context);
  small_run_close(&small);
  test_folder_remove(folder);
}

/* Without an instruction set by name, and without the instructions: refused, with the reason. */
static void slow_processors_are_refused(void **state) {
  (void)state;
  const hark_config config = configuration(4, variants[0]);
  const hark_context_options options = {.struct_size = sizeof options, .threads = 1, .backend = "cpu", .instruction_set = ""};
  hark_context *context = NULL;
  hark_engine *engine = NULL;
  assert_int_equal(hark_context_create(&options, &context), HARK_OK);
  hark_cpu_state *const own = context->backend_state;
  own->bf16_dots = false; /* as on other processors */
  assert_int_equal(hark_engine_create(context, &config, VOCABULARY, true, &engine), HARK_BAD_CONFIGURATION);
  assert_non_null(strstr(hark_context_message(context), "train.precision bf16: this processor has no dot products"));
  assert_non_null(strstr(hark_context_message(context), "HARK_ARCH"));
  assert_fine(context, hark_engine_create(context, &config, VOCABULARY, false, &engine)); /* evaluations are f32 */
  hark_engine_destroy(context, &engine);
  own->chosen = true;
  assert_fine(context, hark_engine_create(context, &config, VOCABULARY, true, &engine));
  hark_engine_destroy(context, &engine);
  hark_context_destroy(&context);
}

static void f64_is_refused(void **state) {
  (void)state;
  hark_context *context = test_reference_open();
  hark_parameters parameters;
  hark_parameters_open(&parameters, HARK_F64);
  assert_fine(context, hark_parameters_lay_out(context, &parameters, true));
  assert_int_equal(hark_parameters_add_halves(context, &parameters, true), HARK_UNSUPPORTED);
  assert_string_equal(hark_context_message(context), "products in bf16 are for weights in f32, the model's are f64");
  hark_parameters_close(context, &parameters);
  test_setup_close(context);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(bits_do_not_depend_on_threads),
      cmocka_unit_test(gradients_differ_by_roundings),
      cmocka_unit_test(weights_are_rounded_every_step),
      cmocka_unit_test(memory_of_a_step),
      cmocka_unit_test(a_run_in_parts),
      cmocka_unit_test(slow_processors_are_refused),
      cmocka_unit_test(f64_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
