/* test_adafactor.c - training with Adafactor: steps of an engine are those of the definition, weight by weight; what is kept, saved and
 * refused; the same bits for every number of threads and in resumed runs. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/checkpoint_files.h"
#include "io/safetensors.h"
#include "support/cmocka_all.h"
#include "support/setups.h"
#include "support/train/small_run.h"

enum { VOCABULARY = 11, STEPS = 4 };
#define RATE 1e-2
#define FACTOR_FROM "--train.adafactor.factor-from=8"

static char folder[TEST_PATH_BYTES];

/* ---- an engine's steps ---- */

static void make_gradients(hark_context *context, hark_engine *engine, int step) {
  const hark_config *config = engine->config;
  int32_t tokens[2][64];
  const int64_t count = config->train.batch * config->model.context;
  assert_true(count <= 64);
  for (int64_t i = 0; i < count; i++) tokens[0][i] = (int32_t)(i * i + step) % VOCABULARY, tokens[1][i] = (int32_t)(i + step) % 7;
  assert_fine(context, hark_engine_begin_step(context, engine));
  for (int64_t micro = 0; micro < config->train.accumulate; micro++) {
    double loss = 0;
    assert_fine(context, hark_engine_micro_batch(context, engine, tokens[0], tokens[1], config->train.batch, 0, (uint32_t)micro,
                                                 1.0 / (double)hark_config_step_tokens(config), &loss));
  }
}

static float *read_flat(hark_context *context, const hark_tensor *flat) {
  float *const numbers = malloc((size_t)hark_tensor_count(flat) * sizeof *numbers);
  assert_non_null(numbers);
  assert_fine(context, hark_tensor_read(context, flat, numbers));
  return numbers;
}

static hark_engine *open_engine(hark_context *context, const hark_config *config) {
  hark_engine *engine = NULL;
  assert_fine(context, hark_engine_create(context, config, VOCABULARY, true, &engine));
  assert_fine(context, hark_parameters_initialise(context, &engine->network->parameters, 3));
  return engine;
}

/* The definition's state of a weight: second moments of all numbers, or sums over rows and columns. */
typedef struct weight_state {
  double *v, *m;
} weight_state;

static bool is_factored(const hark_config *config, const hark_parameter_spec *spec) {
  const int64_t least = config->train.adafactor.factor_from;
  return spec->rank == 2 && spec->shape[0] >= least && spec->shape[1] >= least;
}

/* sqrt(mean(x^2)) */
static double rms(const double *x, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; i++) sum += x[i] * x[i];
  return sqrt(sum / (double)count);
}

/* u = g / sqrt(V), with new second moments. */
static void divide(const hark_parameter_spec *spec, bool factored, double beta2, const double *g, int64_t count, weight_state *s,
                   double *u) {
  if (!factored) {
    for (int64_t i = 0; i < count; i++) {
      s->v[i] = beta2 * s->v[i] + (1 - beta2) * (g[i] * g[i] + 1e-30);
      u[i] = g[i] / sqrt(s->v[i]);
    }
    return;
  }
  const int64_t rows = spec->shape[0], columns = spec->shape[1];
  double *const r = s->v, *const c = s->v + rows, total = 0;
  for (int64_t i = 0; i < rows + columns; i++) s->v[i] *= beta2;
  for (int64_t i = 0; i < count; i++) r[i / columns] += (1 - beta2) * (g[i] * g[i] + 1e-30);
  for (int64_t i = 0; i < count; i++) c[i % columns] += (1 - beta2) * (g[i] * g[i] + 1e-30);
  for (int64_t i = 0; i < rows; i++) total += r[i];
  for (int64_t i = 0; i < count; i++) u[i] = g[i] / sqrt(r[i / columns] * c[i % columns] / total);
}

/* The weight after the step; `numbers` is the weight before it. */
static void define_step(const hark_config *config, const hark_parameter *parameter, int step, double scale, const float *gradient,
                        const float *numbers, weight_state *s, double *out) {
  const int64_t count = parameter->count;
  double *const g = malloc(3 * (size_t)count * sizeof *g), *const u = g + count, *const w = u + count;
  assert_non_null(g);
  for (int64_t i = 0; i < count; i++) g[i] = scale * (double)gradient[i], w[i] = (double)numbers[i];
  divide(&parameter->spec, is_factored(config, &parameter->spec), 1 - pow(step, -config->train.adafactor.decay_exponent), g, count, s, u);
  const double most = config->train.adafactor.update_clip, beta1 = config->train.adafactor.beta1;
  const double reduced = most > 0 ? fmax(1, rms(u, count) / most) : 1;
  const double own_rate = RATE * (parameter->spec.rate == HARK_RATE_POSITIONAL ? config->train.positional_rate
                                  : parameter->spec.rate == HARK_RATE_ROTARY   ? config->train.rotary_rate
                                                                               : 1);
  const double rate = own_rate * (config->train.adafactor.relative ? fmax(1e-3, rms(w, count)) : 1);
  const double decay = parameter->spec.decays ? own_rate * config->train.weight_decay : 0;
  for (int64_t i = 0; i < count; i++) {
    s->m[i] = beta1 * s->m[i] + (1 - beta1) * rate * u[i] / reduced;
    out[i] = w[i] - s->m[i] - decay * w[i];
  }
  free(g);
}

static void assert_near(const char *where, const hark_parameter *parameter, const float *actual, const double *expected) {
  for (int64_t i = 0; i < parameter->count; i++) { /* rounding of weights, and of updates of at most a few times the rate */
    if (!(fabs((double)actual[i] - expected[i]) <= 2e-7 * fmax(1, fabs(expected[i])) + 2e-4 * RATE))
      fail_msg("%s: %s number %d is %.9g, expected %.9g", where, parameter->name, (int)i, (double)actual[i], expected[i]);
  }
}

static int compare_with_definition(const test_setup *setup, const hark_config *config) {
  hark_context *const context = test_setup_open(setup, 2);
  hark_engine *engine = open_engine(context, config);
  const hark_parameters *const parameters = &engine->network->parameters;
  weight_state *const states = calloc((size_t)parameters->count, sizeof *states);
  int factored = 0;
  for (int32_t p = 0; p < parameters->count; p++) {
    const size_t count = (size_t)parameters->list[p].count;
    states[p].v = calloc(2 * count + 32, sizeof(double));
    states[p].m = states[p].v + count + 32;
    factored += is_factored(config, &parameters->list[p].spec);
  }
  for (int step = 1; step <= STEPS; step++) {
    hark_step_result result;
    make_gradients(context, engine, step);
    float *const before = read_flat(context, &parameters->weights);
    assert_fine(context, hark_engine_finish_step(context, engine, step, RATE, 1, &result));
    assert_true(result.applied);
    const double clip = config->train.clip, scale = result.gradient_norm > clip && clip > 0 ? clip / result.gradient_norm : 1;
    float *const gradients = read_flat(context, &parameters->gradients), *const after = read_flat(context, &parameters->weights);
    for (int32_t p = 0; p < parameters->count; p++) {
      const hark_parameter *const parameter = &parameters->list[p];
      const int64_t first = parameter->first;
      double *const expected = malloc((size_t)parameter->count * sizeof *expected);
      define_step(config, parameter, step, scale, gradients + first, before + first, &states[p], expected);
      assert_near(setup->instruction_set, parameter, after + first, expected);
      free(expected);
    }
    free(before);
    free(gradients);
    free(after);
  }
  for (int32_t p = 0; p < parameters->count; p++) free(states[p].v);
  free(states);
  hark_engine_destroy(context, &engine);
  test_setup_close(context);
  return factored;
}

static void steps_are_the_definition(void **state) {
  static const char *const words[][7] = {{"--optimiser=adafactor", FACTOR_FROM, "--clip=0.05", "--weight-decay=0.5"},
                                         {"--optimiser=adafactor", FACTOR_FROM, "--train.adafactor.relative", "--train.adafactor.beta1=0.9",
                                          "--train.adafactor.decay-exponent=0.5", "--train.adafactor.update-clip=0.5", "--clip=0"},
                                         {"--optimiser=adafactor", "--train.adafactor.update-clip=0", "--no-tie-embeddings"},
                                         {"--optimiser=adafactor", FACTOR_FROM, "--positional=bank[2](decay*periodic)",
                                          "--positional-rate=3", "--rotary-learned=head", "--train.rotary-rate=0.5"}};
  static const int counts[] = {4, 7, 3, 6};
  test_setup setups[TEST_MAX_SETUPS];
  const int count = test_setups(setups);
  (void)state;
  for (int w = 0; w < 4; w++) {
    small_run small;
    test_folder_make(folder);
    small_run_open_with(&small, folder, false, counts[w], words[w]);
    for (int s = 0; s < count; s++) {
      const int factored = compare_with_definition(&setups[s], &small.config);
      assert_true(w != 2 ? factored > 3 : factored == 0); /* matrices; none has sides of 128 */
    }
    small_run_close(&small);
    test_folder_remove(folder);
  }
}

/* The largest gradient is -3e37; with beta2 0 its moment is the largest number. Of 2e19 with beta2 0.999, it is 4e35. */
static void check_large_moments(hark_context *context, const hark_tensor *moments, bool factored, bool kept) {
  float numbers[512];
  assert_fine(context, hark_tensor_read(context, moments, numbers));
  for (int64_t i = 0; i < hark_tensor_count(moments); i++) {
    const bool largest = !kept && (factored || i % 2 == 1);
    if (largest) assert_true(numbers[i] == FLT_MAX);
    if (kept) assert_true(fabsf(numbers[i] - 4e35F) < 1e30F);
  }
}

/* Gradients whose squares f32 cannot store, or only after they are multiplied by 1 - beta2: the moments and weights stay finite. */
static void squares_may_be_too_large(void **state) {
  enum { ROWS = 9, COLUMNS = 35, NUMBERS = ROWS * COLUMNS };
  static const int64_t shape[] = {ROWS, COLUMNS};
  static double workspace[4096];
  float numbers[NUMBERS];
  test_setup setups[TEST_MAX_SETUPS];
  const int count = test_setups(setups);
  (void)state;
  for (int s = 0; s < 4 * count; s++) {
    hark_context *const context = test_setup_open(&setups[s / 4], 1);
    const bool factored = s % 2 == 0, kept = s % 4 >= 2;
    const hark_adafactor_attributes attributes = {
        .rate = RATE, .beta2 = kept ? 0.999 : 0, .epsilon = 1e-30, .most = 1, .gradient_scale = 1};
    hark_call call = {.op = &hark_op_adafactor,
                      .attributes = &attributes,
                      .input_count = factored ? 4 : 3,
                      .workspace = workspace,
                      .workspace_bytes = sizeof workspace};
    for (int i = 0; i < call.input_count; i++) {
      const bool side = factored && i >= 2;
      assert_fine(context, hark_tensor_create(context, HARK_F32, side ? 1 : 2, side ? &shape[i - 2] : shape, &call.inputs[i]));
      for (int j = 0; j < NUMBERS; j++) numbers[j] = i == 0 ? 0.5F : i > 1 ? 0 : kept ? 2e19F : j % 2 == 1 ? -3e37F : 1e18F;
      assert_fine(context, hark_tensor_write(context, &call.inputs[i], numbers));
    }
    assert_fine(context, hark_operator_forward(context, &call));
    for (int i = 2; i < call.input_count; i++) check_large_moments(context, &call.inputs[i], factored, kept);
    assert_fine(context, hark_operator_forward(context, &call));
    assert_fine(context, hark_tensor_read(context, &call.inputs[0], numbers));
    for (int j = 0; j < NUMBERS; j++) {
      assert_true(isfinite(numbers[j]) && fabsf(numbers[j] - 0.5F) <= 1);
      if (kept || j % 2 == 1) assert_true(numbers[j] != 0.5F);
    }
    for (int i = 0; i < call.input_count; i++) hark_tensor_destroy(context, &call.inputs[i]);
    test_setup_close(context);
  }
}

/* Matrices so large that several threads update them; steps allocate nothing. */
static void bits_do_not_depend_on_threads(void **state) {
  static const char *const words[] = {"--optimiser=adafactor", "--width=256", "--train.adafactor.relative", "--dropout=0"};
  test_setup setups[TEST_MAX_SETUPS];
  const int count = test_setups(setups);
  small_run small;
  (void)state;
  test_folder_make(folder);
  small_run_open_with(&small, folder, false, 4, words);
  for (int s = 0; s < count; s++) {
    float *first[2] = {NULL, NULL};
    for (int threads = 1; threads <= 3; threads++) {
      hark_context *const context = test_setup_open(&setups[s], threads);
      hark_engine *engine = open_engine(context, &small.config);
      hark_step_result result;
      const uint64_t allocations = hark_context_memory(context).allocations;
      for (int step = 1; step <= 2; step++) {
        make_gradients(context, engine, step);
        assert_fine(context, hark_engine_finish_step(context, engine, step, RATE, 1, &result));
      }
      if (strcmp(setups[s].backend, "cpu") == 0) assert_true(hark_context_memory(context).allocations == allocations);
      const hark_tensor *const flats[] = {&engine->network->parameters.weights, &engine->second_moment};
      for (int i = 0; i < 2; i++) {
        float *const numbers = read_flat(context, flats[i]);
        if (threads == 1) {
          first[i] = numbers;
          continue;
        }
        assert_memory_equal(numbers, first[i], (size_t)hark_tensor_count(flats[i]) * sizeof *numbers);
        free(numbers);
      }
      hark_engine_destroy(context, &engine);
      test_setup_close(context);
    }
    free(first[0]);
    free(first[1]);
  }
  small_run_close(&small);
  test_folder_remove(folder);
}

/* A gradient that is not finite changes no bit; frozen weights keep theirs. */
static void what_does_not_change(void **state) {
  static const char *const words[] = {"--optimiser=adafactor", FACTOR_FROM, "--train.adafactor.beta1=0.5", "--freeze=*attention*"};
  static const test_setup setup = {"cpu", "generic"};
  small_run small;
  (void)state;
  test_folder_make(folder);
  small_run_open_with(&small, folder, false, 4, words);
  hark_context *const context = test_setup_open(&setup, 1);
  hark_engine *engine = open_engine(context, &small.config);
  const hark_parameters *const parameters = &engine->network->parameters;
  const hark_tensor *const flats[] = {&parameters->weights, &engine->first_moment, &engine->second_moment};
  float *kept[3], *const initial = read_flat(context, &parameters->weights);
  hark_step_result result;
  for (int step = 1; step <= 2; step++) {
    make_gradients(context, engine, step);
    if (step == 2) ((float *)parameters->gradients.data)[7] = NAN;
    for (int i = 0; i < 3 && step == 2; i++) kept[i] = read_flat(context, flats[i]);
    assert_fine(context, hark_engine_finish_step(context, engine, step, RATE, 1, &result));
    assert_true(result.applied == (step == 1));
  }
  for (int i = 0; i < 3; i++) {
    float *const now = read_flat(context, flats[i]);
    assert_memory_equal(now, kept[i], (size_t)hark_tensor_count(flats[i]) * sizeof *now);
    free(now);
  }
  for (int32_t p = 0; p < parameters->count; p++) {
    const hark_parameter *const parameter = &parameters->list[p];
    const size_t bytes = (size_t)parameter->count * sizeof(float);
    const bool frozen = strstr(parameter->name, "attention") != NULL;
    if ((memcmp(initial + parameter->first, kept[0] + parameter->first, bytes) == 0) != frozen) fail_msg("%s", parameter->name);
  }
  for (int i = 0; i < 3; i++) free(kept[i]);
  free(initial);
  hark_engine_destroy(context, &engine);
  test_setup_close(context);
  small_run_close(&small);
  test_folder_remove(folder);
}

/* ---- runs ---- */

static hark_request stop_after_two(void *user) { return ++*(int *)user >= 2 ? HARK_REQUEST_STOP : HARK_REQUEST_NONE; }

/* Begins a run that stops early, or continues it to its end. */
static hark_status train_part(const small_run *small, const char *path, bool stops) {
  int polls = 0;
  const hark_train_hooks hooks = {.user = &polls, .request = stop_after_two};
  hark_context *const context = small_run_context(1);
  const hark_status status = small_run_train(context, small, path, stops ? &hooks : NULL, NULL);
  (void)snprintf(small->plain->message, sizeof small->plain->message, "%s", hark_context_message(context));
  test_setup_close(context);
  return status;
}

static void name_run(char path[TEST_PATH_BYTES + 64], const char *name) {
  (void)snprintf(path, TEST_PATH_BYTES + 64, "%s/%s", folder, name);
}

static void resumed_runs_have_the_same_bits(void **state) {
  static const char *const words[] = {"--optimiser=adafactor", FACTOR_FROM, "--train.adafactor.relative", "--train.adafactor.beta1=0.9"};
  (void)state;
  for (int count = 1; count <= 4; count++) {
    char whole[TEST_PATH_BYTES + 64], parts[TEST_PATH_BYTES + 64];
    small_run small;
    test_folder_make(folder);
    small_run_open_with(&small, folder, false, count, words);
    name_run(whole, "whole");
    name_run(parts, "parts");
    assert_fine(small.plain, train_part(&small, whole, false));
    assert_fine(small.plain, train_part(&small, parts, true));
    assert_fine(small.plain, train_part(&small, parts, false));
    small_run_assert_same(whole, parts, 4);
    small_run_close(&small);
    test_folder_remove(folder);
  }
}

static void assert_stored(const hark_safetensors *file, const char *prefix, const char *weight, int rank, int64_t first) {
  char name[256];
  (void)snprintf(name, sizeof name, "%s%s", prefix, weight);
  const hark_stored_tensor *const tensor = hark_safetensors_find(file, name);
  if (tensor == NULL) fail_msg("%s is missing", name);
  if (tensor->rank != rank || tensor->shape[0] != first) fail_msg("%s has another shape", name);
}

/* Matrices have only moments of rows and columns, and the file names the optimiser. */
static void checkpoints_have_factored_moments(void **state) {
  static const char *const words[] = {"--optimiser=adafactor", FACTOR_FROM, "--train.adafactor.beta1=0.9"};
  (void)state;
  for (int count = 2; count <= 3; count++) {
    char path[TEST_PATH_BYTES + 64];
    small_run small;
    hark_safetensors *file = NULL;
    test_folder_make(folder);
    small_run_open_with(&small, folder, false, count, words);
    name_run(path, "run");
    assert_fine(small.plain, train_part(&small, path, false));
    name_run(path, "run/checkpoints/step-4/optimizer.safetensors");
    assert_fine(small.plain, hark_safetensors_open(small.plain, path, &file));
    assert_string_equal(hark_safetensors_metadata(file, HARK_OPTIMISER_KEY), "adafactor");
    assert_stored(file, HARK_ROW_MOMENT, "blocks.0.feed_forward.up.weight", 1, 64);
    assert_stored(file, HARK_COLUMN_MOMENT, "blocks.0.feed_forward.up.weight", 1, 16);
    assert_stored(file, HARK_SECOND_MOMENT, "blocks.0.attention_norm.weight", 1, 16);
    assert_null(hark_safetensors_find(file, HARK_SECOND_MOMENT "blocks.0.feed_forward.up.weight"));
    if (count == 3) assert_stored(file, HARK_FIRST_MOMENT, "blocks.0.feed_forward.up.weight", 2, 64);
    if (count == 2) assert_null(hark_safetensors_find(file, HARK_FIRST_MOMENT "blocks.0.feed_forward.up.weight"));
    hark_safetensors_close(small.plain, &file);
    small_run_close(&small);
    test_folder_remove(folder);
  }
}

/* Moments of another kind are not continued, whatever the program that calls hark_train() has checked before. */
static void other_moments_are_refused(void **state) {
  static const char *const words[] = {"--optimiser=adafactor", FACTOR_FROM};
  char path[TEST_PATH_BYTES + 64];
  small_run small;
  (void)state;
  test_folder_make(folder);
  small_run_open_with(&small, folder, false, 2, words);
  name_run(path, "run");
  assert_fine(small.plain, train_part(&small, path, true));
  small.config.train.optimiser = HARK_OPTIMISER_ADAMW;
  assert_failure(small.plain, train_part(&small, path, true), HARK_BAD_FILE, "has the moments of adafactor, expected those of adamw");
  small.config.train.optimiser = HARK_OPTIMISER_ADAFACTOR;
  small.config.train.adafactor.factor_from = 1000;
  assert_failure(small.plain, train_part(&small, path, true), HARK_NOT_FOUND, "no tensor \"second_moment.");
  small.config.train.adafactor.factor_from = 8;
  small.config.train.adafactor.beta1 = 0.9;
  assert_failure(small.plain, train_part(&small, path, true), HARK_NOT_FOUND, "no tensor \"first_moment.");
  small.config.train.adafactor.beta1 = 0;
  assert_fine(small.plain, train_part(&small, path, false));
  small_run_close(&small);
  test_folder_remove(folder);
}

/* ---- memory ---- */

static hark_engine_memory memory_of(const small_run *small) {
  hark_engine_memory memory;
  int64_t parameters = 0, tensors = 0;
  assert_fine(small->plain, hark_engine_estimate(small->plain, &small->config, VOCABULARY, true, &memory, &parameters, &tensors));
  return memory;
}

static void moments_need_less_memory(void **state) {
  static const char *const words[] = {"--width=256", "--layers=2"};
  small_run small;
  (void)state;
  test_folder_make(folder);
  small_run_open_with(&small, folder, false, 2, words);
  const hark_engine_memory adamw = memory_of(&small);
  assert_true(adamw.moments == 2 * adamw.weights);
  small.config.train.optimiser = HARK_OPTIMISER_ADAFACTOR;
  assert_true(memory_of(&small).moments < adamw.weights / 20); /* the table of 11 tokens is not factored */
  assert_true(memory_of(&small).weights == adamw.weights && memory_of(&small).gradients == adamw.gradients);
  small.config.train.adafactor.factor_from = 100000;
  assert_true(memory_of(&small).moments == adamw.weights);
  small.config.train.adafactor.beta1 = 0.9;
  assert_true(memory_of(&small).moments == adamw.moments);
  small_run_close(&small);
  test_folder_remove(folder);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(steps_are_the_definition),        cmocka_unit_test(squares_may_be_too_large),
      cmocka_unit_test(bits_do_not_depend_on_threads),   cmocka_unit_test(what_does_not_change),
      cmocka_unit_test(resumed_runs_have_the_same_bits), cmocka_unit_test(checkpoints_have_factored_moments),
      cmocka_unit_test(other_moments_are_refused),       cmocka_unit_test(moments_need_less_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
