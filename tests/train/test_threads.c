/* test_threads.c - the same bits for every number of threads, whoever brings them; two contexts training at once in one process.
 *
 * Built with -fsanitize=thread this is also the test that the library's own code has no races (.ci/run threads).
 */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/cmocka_all.h"
#include "support/sanitized.h"
#include "support/setups.h"
#include "support/thread_pool.h"
#include "support/train/small_run.h"
#include "train/engine.h"

#define STEPS 2
#define VOCABULARY 61
#define CLASSES 3

/* Every option that splits work: dropout everywhere, accumulation, gradients of biases, norms, tables, gates, tied and untied heads. */
static const char *const first_words[] = {"--layers=1",
                                          "--heads=4",
                                          "--batch=4",
                                          "--accumulate=2",
                                          "--dropout=0.1",
                                          "--attention-dropout=0.1",
                                          "--bias",
                                          "--forget-gate",
                                          "--norm=layer_norm",
                                          "--positions=learned",
                                          "--train.label-smoothing=0.1",
                                          "--model.embedding-dropout=0.1",
                                          "--activation=gelu"};
static const char *const second_words[] = {"--layers=1",
                                           "--heads=4",
                                           "--key-heads=2",
                                           "--batch=5",
                                           "--norm=rms_norm",
                                           "--positions=rotary",
                                           "--activation=gated_silu",
                                           "--recompute",
                                           "--no-tie-embeddings",
                                           "--structure=window",
                                           "--window=20"};
/* Chunks of ragged batches: local layers, learned boundaries, both pools by queries, a selection, layers that some chunks have. */
static const char *const ahca_words[] = {"--architecture=ahca",
                                         "--format=text",
                                         "--layers=3",
                                         "--heads=4",
                                         "--batch=5",
                                         "--accumulate=2",
                                         "--bias",
                                         "--dropout=0.1",
                                         "--model.embedding-dropout=0.1",
                                         "--chunk=learned",
                                         "--chunk-size=4",
                                         "--primary-slots=3",
                                         "--secondary-slots=9",
                                         "--selected=5",
                                         "--model.ahca.secondary-pool=attention",
                                         "--model.ahca.join=every",
                                         "--model.ahca.local-layers=2",
                                         "--model.ahca.local-window=5"};
static const struct {
  const char *const *words;
  int count;
  bool examples; /* classes of sequences in the place of a text */
} variants[] = {{first_words, sizeof first_words / sizeof *first_words, false},
                {second_words, sizeof second_words / sizeof *second_words, false},
                {ahca_words, sizeof ahca_words / sizeof *ahca_words, true}};
enum { VARIANTS = 3 };

static hark_config configuration(const char *const *words, int count, bool large) {
  hark_config config;
  hark_options *options = NULL;
  hark_context *context = test_reference_open();
  const hark_option_group group = {&hark_config_table, &config};
  /* Large: pieces of products that oneDNN takes where it is there (src/backend/cpu/onednn.c). */
  const char *const sizes[] = {large ? "--width=256" : "--width=64", large ? "--context=80" : "--context=40", "--deterministic"};
  assert_fine(context, hark_options_create(context, "train", &group, 1, &options));
  assert_fine(context, hark_options_read_arguments(context, options, count, words));
  assert_fine(context, hark_options_read_arguments(context, options, 3, sizes));
  assert_fine(context, hark_config_finish(context, options, &config));
  for (int i = 0; i < hark_options_problem_count(options); i++) fail_msg("%s", hark_options_problem(options, i));
  hark_options_destroy(context, &options); /* none of the values used below is a text */
  test_setup_close(context);
  return config;
}

/* What came of a few steps. */
typedef struct outcome {
  float *numbers; /* weights, first moments, second moments */
  size_t elements;
  double losses[STEPS], norms[STEPS];
} outcome;

static void fill_batch(const hark_config *config, int64_t micro, int32_t *inputs, int32_t *targets) {
  const hark_random_stream stream = {.micro_step = (uint32_t)micro, .layer_purpose = hark_random_layer_purpose(0, HARK_RANDOM_TEST)};
  const int64_t count = config->train.batch * config->model.context;
  for (int64_t i = 0; i < count; i++) {
    inputs[i] = (int32_t)(hark_random_word(&stream, (uint64_t)i) % VOCABULARY);
    targets[i] = (int32_t)(hark_random_word(&stream, (uint64_t)(i + count)) % VOCABULARY);
  }
}

/* The same numbers as sequences of different lengths: row r is its window without the last 7 r tokens. */
static void cut_examples(const hark_config *config, hark_example_batch *batch) {
  const int64_t context = config->model.context;
  int64_t at = 0;
  for (int64_t r = 0; r < batch->rows; r++) {
    const int64_t length = context - 7 * r % context;
    batch->ranges[2 * r] = at;
    for (int64_t i = 0; i < length; i++, at++) {
      batch->inputs[at] = batch->inputs[r * context + i];
      batch->positions[at] = (int32_t)i;
      batch->segments[at] = r;
    }
    batch->ranges[2 * r + 1] = at;
    batch->targets[r] %= CLASSES;
  }
  batch->tokens = at;
}

static double train_examples(hark_context *context, hark_engine *engine, int64_t micro, int32_t *inputs, int32_t *targets) {
  const hark_config *config = engine->config;
  const int64_t rows = config->train.batch, tokens = rows * config->model.context;
  int32_t *positions = malloc((size_t)tokens * sizeof *positions);
  int64_t *segments = malloc((size_t)tokens * sizeof *segments), *ranges = malloc(2 * (size_t)rows * sizeof *ranges);
  assert_true(positions != NULL && segments != NULL && ranges != NULL);
  hark_example_batch batch = {.rows = rows,
                              .inputs = inputs,
                              .positions = positions,
                              .segments = segments,
                              .ranges = ranges,
                              .targets = targets,
                              .real = rows,
                              .longest = config->model.context};
  hark_pass_result result;
  cut_examples(config, &batch);
  assert_fine(context, hark_engine_train_examples(context, engine, &batch, (uint32_t)micro, 1.0 / (double)(rows * config->train.accumulate),
                                                  &result));
  free(ranges);
  free(segments);
  free(positions);
  return result.loss;
}

static outcome train_steps(hark_context *context, const hark_config *config, bool examples) {
  outcome out = {0};
  hark_engine *engine = NULL;
  const hark_learning_task task = {.vocabulary = VOCABULARY, .classes = examples ? CLASSES : 0, .parts = examples ? 1 : 0};
  assert_fine(context, hark_engine_create_for(context, config, &task, true, &engine));
  assert_fine(context, hark_parameters_initialise(context, &engine->network->parameters, 7));
  const int64_t tokens = config->train.batch * config->model.context;
  int32_t *inputs = malloc(2 * (size_t)tokens * sizeof *inputs);
  assert_non_null(inputs);
  for (int64_t step = 0; step < STEPS; step++) {
    assert_fine(context, hark_engine_begin_step(context, engine));
    for (int64_t m = 0; m < config->train.accumulate; m++) {
      const int64_t micro = step * config->train.accumulate + m;
      double loss = 0;
      fill_batch(config, micro, inputs, inputs + tokens);
      if (examples) {
        out.losses[step] += train_examples(context, engine, micro, inputs, inputs + tokens);
        continue;
      }
      assert_fine(context, hark_engine_micro_batch(context, engine, inputs, inputs + tokens, config->train.batch, 0, (uint32_t)micro,
                                                   1.0 / (double)hark_config_step_tokens(config), &loss));
      out.losses[step] += loss;
    }
    hark_step_result result;
    assert_fine(context, hark_engine_finish_step(context, engine, step + 1, 1e-2, out.losses[step], &result));
    assert_true(result.applied);
    out.norms[step] = result.gradient_norm;
  }
  free(inputs);
  const hark_tensor *flats[] = {&engine->network->parameters.weights, &engine->first_moment, &engine->second_moment};
  const size_t one = (size_t)hark_tensor_count(flats[0]);
  out.elements = 3 * one;
  out.numbers = malloc(out.elements * sizeof(float));
  assert_non_null(out.numbers);
  for (size_t i = 0; i < 3; i++) assert_fine(context, hark_tensor_read(context, flats[i], out.numbers + i * one));
  hark_engine_destroy(context, &engine);
  return out;
}

static void assert_same_bits(const outcome *a, const outcome *b, const char *what) {
  if (a->elements != b->elements || memcmp(a->numbers, b->numbers, a->elements * sizeof(float)) != 0 ||
      memcmp(a->losses, b->losses, sizeof a->losses) != 0 || memcmp(a->norms, b->norms, sizeof a->norms) != 0)
    fail_msg("%s gives other bits", what);
}

static hark_context *open_with(const test_setup *setup, int threads, bool pool, bool deterministic) {
  const hark_parallel parallel = test_pool(threads);
  const hark_context_options options = {.struct_size = sizeof options,
                                        .parallel = pool ? &parallel : NULL,
                                        .threads = threads,
                                        .backend = setup->backend,
                                        .instruction_set = setup->instruction_set,
                                        .deterministic = deterministic};
  hark_context *context = NULL;
  if (hark_context_create(&options, &context) != HARK_OK) fail_msg("no context on %s", setup->instruction_set);
  return context;
}

/* Full training steps on every instruction set with 1, 2, 3 and 7 threads of the context's and of a host program's, and with
 * --deterministic and without it: one set of bits, but for the last variant, which has products of few rows (docs/numbers.md). */
static void test_every_number_of_threads(void **state) {
  (void)state;
  static const int counts[] = {1, 2, 3, 7};
  test_setup setups[TEST_MAX_SETUPS];
  const int setup_count = test_setups(setups);
  int compared = 0;
  for (int s = 0; s < setup_count; s++) {
    if (strcmp(setups[s].backend, "cpu") != 0) continue;
    const bool large = !TEST_SANITIZED && strcmp(setups[s].instruction_set, "avx512") == 0;
    for (int v = 0; v < VARIANTS; v++) {
      const hark_config config = configuration(variants[v].words, variants[v].count, large);
      const bool one_set = !variants[v].examples;
      outcome first[2] = {{0}, {0}};
      for (int i = 0; i < 8; i++) {
        const int threads = counts[i % 4];
        const bool pool = i >= 4, deterministic = i % 2 == 0;
        char what[96];
        (void)snprintf(what, sizeof what, "%s, variant %d, %d threads%s", setups[s].instruction_set, v, threads,
                       pool ? " of the host" : "");
        hark_context *context = open_with(&setups[s], threads, pool, deterministic);
        outcome now = train_steps(context, &config, variants[v].examples);
        hark_context_destroy(&context);
        for (size_t n = 0; n < now.elements; n++)
          if (!isfinite(now.numbers[n])) fail_msg("%s: a number is not finite", what);
        outcome *const expected = &first[!one_set && deterministic];
        if (expected->numbers == NULL) {
          *expected = now;
          continue;
        }
        assert_same_bits(expected, &now, what);
        free(now.numbers);
        compared++;
      }
      free(first[0].numbers);
      free(first[1].numbers);
    }
  }
  assert_true(compared >= 7 * VARIANTS - 1);
}

/* A run in a thread of its own, with a context of its own. */
typedef struct trainee {
  const small_run *small;
  const char *path;
  hark_context *context;
  hark_status status;
} trainee;

static void *train_one(void *argument) {
  trainee *t = argument;
  hark_train_result result;
  t->status = small_run_train(t->context, t->small, t->path, NULL, &result);
  return NULL;
}

/* What two runs differ in besides their seeds. */
static void set_nothing(hark_config *config) { (void)config; }

static void set_forget_gate(hark_config *config) { config->model.attention.forget_gate = true; }

static void set_kernel(hark_config *config) {
  config->model.positions = HARK_POSITIONS_NONE;
  config->model.positional = "bank[2](decay*periodic)";
}

static void set_hierarchy(hark_config *config) {
  config->model.attention.structure = (hark_layer_choice)HARK_EVERY_LAYER(HARK_STRUCTURE_HIERARCHICAL);
  config->model.attention.hierarchy_block = 2; /* three levels in a context of 8 */
  config->model.attention.hierarchical_bias = true;
}

static void set_ridge(hark_config *config) {
  config->model.attention.normalisation = (hark_layer_choice)HARK_EVERY_LAYER(HARK_NORMALISATION_CME);
  config->model.attention.kernel = HARK_KERNEL_RBF;
  config->model.attention.ridge_learned = config->model.attention.sigma_learned = true;
  config->model.attention.dropout = 0; /* there are no normalised weights to drop */
}

static void train_two_at_once(void (*first)(hark_config *), void (*second)(hark_config *)) {
  char folder[TEST_PATH_BYTES], paths[4][TEST_PATH_BYTES + 8];
  const test_setup setup = {"cpu", "generic"};
  small_run small[2];
  test_folder_make(folder);
  for (int i = 0; i < 2; i++) small_run_open(&small[i], folder);
  small[1].config.train.seed = 5;
  first(&small[0].config);
  second(&small[1].config);
  for (int i = 0; i < 4; i++) (void)snprintf(paths[i], sizeof paths[i], "%s/run-%d", folder, i);

  for (int i = 0; i < 2; i++) { /* each alone */
    trainee alone = {.small = &small[i], .path = paths[i], .context = open_with(&setup, 2, true, true)};
    (void)train_one(&alone);
    assert_fine(alone.context, alone.status);
    hark_context_destroy(&alone.context);
  }
  for (int round = 0; round < 3; round++) {
    pthread_t threads[2];
    trainee both[2];
    for (int i = 0; i < 2; i++) {
      both[i] = (trainee){.small = &small[i], .path = paths[2 + i], .context = open_with(&setup, 2, round > 0, true)};
      assert_int_equal(pthread_create(&threads[i], NULL, train_one, &both[i]), 0);
    }
    for (int i = 0; i < 2; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (int i = 0; i < 2; i++) {
      assert_fine(both[i].context, both[i].status);
      small_run_assert_same(paths[i], paths[2 + i], small[i].config.train.steps);
      assert_int_equal(hark_folder_remove(both[i].context, paths[2 + i]), HARK_OK);
      hark_context_destroy(&both[i].context);
    }
  }
  for (int i = 0; i < 2; i++) small_run_close(&small[i]);
  test_folder_remove(folder);
}

static void test_two_contexts_at_once(void **state) {
  (void)state;
  train_two_at_once(set_nothing, set_forget_gate);
  train_two_at_once(set_kernel, set_hierarchy);
  train_two_at_once(set_ridge, set_nothing);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_every_number_of_threads),
      cmocka_unit_test(test_two_contexts_at_once),
  };
  return cmocka_run_group_tests_name("threads", tests, NULL, NULL);
}
