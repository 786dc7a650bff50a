/* test_engine_rows.c - passes in which only rows with a target have logits, against the same passes with logits of all rows.
 *
 * Both differ in the order of sums: gradients of the head are sums over other rows, and products of few rows have another kernel. A sum of
 * n terms is off by at most n u of the sum of their sizes, u = 2^-24, and here n is at most 64. From a number to the loss and back to a
 * weight there are at most 20 sums, so that the norm of the difference is below 20 * 64 u of the norm of the gradient.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/cmocka_all.h"
#include "support/setups.h"
#include "support/text_files.h"
#include "train/engine.h"

enum { VOCABULARY = 23, WIDTH = 24, CONTEXT = 19, BATCH = 3, TOKENS = BATCH * CONTEXT };
#define WITHIN (20 * 64 * 0x1p-24)

#define AHCA                                                                                                                               \
  "--format=examples", "--architecture=ahca", "--positions=learned", "--model.ahca.head=labels", "--chunk-size=4", "--primary-slots=2",    \
      "--secondary-slots=5", "--selected=2"

/* So many that a batch may consist of them: the memory of a pass is for the most targets that it may have. Other fractions and numbers of
 * targets: passes_with_few_targets_fit_what_was_measured. */
#define MANY_MASKS "--train.mask-fraction=0.9"

static const struct {
  const char *name;
  bool packed;
  const char *words[12];
} variants[] = {
    {"decoder", false, {"--architecture=decoder"}},
    {"decoder, recomputed, smoothed", false, {"--recompute", "--train.label-smoothing=0.1", "--train.z-loss=1e-3", "--bias"}},
    {"masked encoder", false, {"--architecture=masked_encoder", "--dropout=0.1", MANY_MASKS}},
    {"packed masked encoder", true, {"--architecture=masked_encoder", "--no-tie-embeddings", MANY_MASKS}},
    {"packed decoder", true, {"--architecture=decoder", "--structure=window", "--window=3"}},
    {"ahca", true, {AHCA, "--bias", "--train.z-loss=1e-3"}},
    {"ahca, learned", true, {AHCA, "--chunk=learned", "--model.ahca.local-layers=1"}},
    {"ahca, learned, after the norm", true, {AHCA, "--chunk=learned", "--model.ahca.straight-through=after_norm"}},
};
enum { VARIANTS = sizeof variants / sizeof *variants, FIRST_AHCA = 5 };

/* Which rows have targets. */
typedef enum target_pattern { ALL, MOST, SOME, ONE, NONE } target_pattern;

static hark_config configuration(int variant) {
  static const char *const sizes[] = {"--layers=2", "--heads=2", "--width=24", "--context=19", "--batch=3"};
  hark_config config;
  hark_options *options = NULL;
  hark_context *context = test_reference_open();
  const hark_option_group group = {&hark_config_table, &config};
  int count = 0;
  while (variants[variant].words[count] != NULL) count++;
  assert_fine(context, hark_options_create(context, "train", &group, 1, &options));
  assert_fine(context, hark_options_read_arguments(context, options, 5, sizes));
  assert_fine(context, hark_options_read_arguments(context, options, count, variants[variant].words));
  assert_fine(context, hark_config_finish(context, options, &config));
  for (int i = 0; i < hark_options_problem_count(options); i++) fail_msg("%s", hark_options_problem(options, i));
  hark_options_destroy(context, &options); /* none of the values used below is a text */
  test_setup_close(context);
  return config;
}

/* Windows, or three sequences of 19, 7 and 12 tokens. */
typedef struct data {
  int32_t inputs[TOKENS], targets[TOKENS], positions[TOKENS];
  int64_t segments[TOKENS], ranges[2 * BATCH];
  hark_example_batch batch;
  int64_t with_target;
} data;

static void fill(int variant, target_pattern pattern, data *d) {
  static const int64_t lengths[2][BATCH] = {{CONTEXT, CONTEXT, CONTEXT}, {CONTEXT, 7, 12}};
  const hark_random_stream stream = {.seed = 5, .layer_purpose = hark_random_layer_purpose(0, HARK_RANDOM_TEST)};
  int64_t total = 0;
  *d = (data){.batch = {.rows = BATCH, .longest = CONTEXT}};
  for (int64_t s = 0; s < BATCH; s++) {
    d->ranges[2 * s] = total;
    for (int64_t i = 0; i < lengths[variants[variant].packed][s]; i++, total++) {
      d->inputs[total] = (int32_t)(5 + hark_random_word(&stream, (uint64_t)total) % (VOCABULARY - 5));
      d->positions[total] = (int32_t)i;
      d->segments[total] = s;
      const bool has[] = {
          [ALL] = true, [MOST] = total % 5 != 0, [SOME] = total % 4 == 1 || total % 7 == 0, [ONE] = total == 11, [NONE] = false};
      d->targets[total] = has[pattern] ? (int32_t)(5 + hark_random_word(&stream, (uint64_t)(TOKENS + total)) % (VOCABULARY - 5)) : -1;
      d->with_target += has[pattern];
    }
    d->ranges[2 * s + 1] = total;
  }
  d->batch.tokens = total;
  d->batch.inputs = d->inputs;
  d->batch.targets = d->targets;
  d->batch.positions = d->positions;
  d->batch.segments = d->segments;
  d->batch.ranges = d->ranges;
  d->batch.real = d->with_target;
}

/* Of a training pass and an evaluation. */
typedef struct outcome {
  float *gradients;
  size_t count;
  double loss, objective, evaluated, operations, evaluated_operations;
  int64_t correct, evaluated_correct;
  int64_t with_logits; /* rows; 0: all */
} outcome;

static hark_engine *open_engine(hark_context *context, const hark_config *config, int variant, bool all_rows) {
  const hark_learning_task task = {.vocabulary = VOCABULARY, .parts = variants[variant].packed ? 1 : 0};
  hark_engine *engine = NULL;
  assert_fine(context, hark_engine_create_for(context, config, &task, true, &engine));
  assert_fine(context, hark_parameters_initialise(context, &engine->network->parameters, 7));
  assert_int_equal(engine->rows.index.shape[0], 3 * TOKENS / 4);
  if (all_rows) hark_engine_rows_close(context, &engine->rows);
  return engine;
}

static void train(hark_context *context, hark_engine *engine, int variant, data *d, outcome *out) {
  const double weight = 1.0 / (double)hark_max(1, d->with_target);
  hark_pass_result pass = {0};
  const size_t planned = hark_engine_memory_of(engine).step;
  assert_fine(context, hark_engine_begin_step(context, engine));
  if (variants[variant].packed) {
    assert_fine(context, hark_engine_train_examples(context, engine, &d->batch, 3, weight, &pass));
    out->loss = pass.loss;
    out->correct = pass.correct;
  } else {
    assert_fine(context, hark_engine_micro_batch(context, engine, d->inputs, d->targets, BATCH, 0, 3, weight, &out->loss));
  }
  out->objective = engine->parts.objective;
  out->operations = hark_engine_operations(engine);
  out->with_logits = engine->rows.count;
  assert_int_equal(hark_engine_memory_of(engine).step, planned); /* what was measured is enough */
}

static void evaluate(hark_context *context, hark_engine *engine, int variant, data *d, outcome *out) {
  int32_t likeliest[TOKENS];
  const int32_t *predicted = likeliest;
  hark_pass_result pass;
  if (variants[variant].packed) {
    assert_fine(context, hark_engine_evaluate_examples(context, engine, &d->batch, &pass, &predicted));
    out->evaluated = pass.loss;
    out->evaluated_correct = pass.correct;
  } else {
    assert_fine(context, hark_engine_predict(context, engine, d->inputs, d->targets, BATCH, CONTEXT));
    assert_fine(context, hark_engine_loss(context, engine, d->targets, &out->evaluated));
    assert_fine(context, hark_engine_correct(context, engine, d->targets, likeliest, &out->evaluated_correct));
  }
  out->evaluated_operations = hark_engine_operations(engine);
  for (int64_t i = 0; i < d->batch.tokens; i++)
    if ((predicted[i] < 0) != (engine->rows.count > 0 && d->targets[i] < 0 && (d->with_target > 0 || i > 0)))
      fail_msg("token %d: %d is predicted", (int)i, (int)predicted[i]);
}

static outcome run(hark_context *context, int variant, target_pattern pattern, bool all_rows) {
  const hark_config config = configuration(variant);
  hark_engine *engine = open_engine(context, &config, variant, all_rows);
  const hark_tensor *gradients = &engine->network->parameters.gradients;
  outcome out = {.count = (size_t)hark_tensor_count(gradients)};
  data d;
  fill(variant, pattern, &d);
  train(context, engine, variant, &d, &out);
  out.gradients = malloc(out.count * sizeof *out.gradients);
  assert_non_null(out.gradients);
  assert_fine(context, hark_tensor_read(context, gradients, out.gradients));
  evaluate(context, engine, variant, &d, &out);
  hark_engine_destroy(context, &engine);
  return out;
}

static bool is_near(double a, double b) { return fabs(a - b) <= WITHIN * fabs(b); }

static void compare(const outcome *some, const outcome *all, const char *where, const char *name) {
  double square = 0, apart = 0;
  assert_int_equal(some->count, all->count);
  for (size_t i = 0; i < all->count; i++) {
    const double difference = (double)some->gradients[i] - (double)all->gradients[i];
    apart += difference * difference;
    square += (double)all->gradients[i] * (double)all->gradients[i];
  }
  if (!(sqrt(apart) <= WITHIN * sqrt(square)) || !(square > 0))
    fail_msg("%s, %s: gradients of norm %g are %g apart", where, name, sqrt(square), sqrt(apart));
  if (!is_near(some->loss, all->loss) || !is_near(some->objective, all->objective) || !is_near(some->evaluated, all->evaluated))
    fail_msg("%s, %s: losses %.9g, %.9g, %.9g, of all rows %.9g, %.9g, %.9g", where, name, some->loss, some->objective, some->evaluated,
             all->loss, all->objective, all->evaluated);
  assert_int_equal(some->correct, all->correct);
  assert_int_equal(some->evaluated_correct, all->evaluated_correct);
}

static void same_bits(const outcome *a, const outcome *b, const char *where, const char *name) {
  assert_int_equal(a->count, b->count);
  if (memcmp(a->gradients, b->gradients, a->count * sizeof *a->gradients) != 0 || a->loss != b->loss || a->objective != b->objective ||
      a->evaluated != b->evaluated || a->correct != b->correct)
    fail_msg("%s, %s: other bits", where, name);
}

static void losses_and_gradients_are_those_of_all_rows(void **state) {
  (void)state;
  static const target_pattern patterns[] = {SOME, ONE};
  test_setup setups[TEST_MAX_SETUPS];
  const int count = test_setups_guard_once(setups);
  for (int s = 0; s < count; s++) {
    for (int v = 0; v < VARIANTS; v++) {
      for (size_t p = 0; p < sizeof patterns / sizeof *patterns; p++) {
        hark_context *context = test_setup_open(&setups[s], 2);
        data d;
        fill(v, patterns[p], &d);
        outcome some = run(context, v, patterns[p], false), all = run(context, v, patterns[p], true);
        assert_int_equal(some.with_logits, d.with_target);
        assert_int_equal(all.with_logits, 0);
        compare(&some, &all, setups[s].backend, variants[v].name);
        /* the logits alone take 6 D V operations of a row */
        const double rows = (double)(d.batch.tokens - d.with_target);
        if (!(all.operations - some.operations >= rows * 6 * WIDTH * VOCABULARY))
          fail_msg("%s: %g operations, of all rows %g", variants[v].name, some.operations, all.operations);
        /* in an evaluation of ahca, also queries and outputs of its two attentions, and both layers of the head of width 4 D */
        const double row = v >= FIRST_AHCA ? 2 * WIDTH * (4 * WIDTH + 4 * WIDTH) + 2 * 4 * WIDTH * VOCABULARY : 2 * WIDTH * VOCABULARY;
        if (!(all.evaluated_operations - some.evaluated_operations >= rows * row))
          fail_msg("%s: %g operations of an evaluation, of all rows %g", variants[v].name, some.evaluated_operations,
                   all.evaluated_operations);
        free(some.gradients);
        free(all.gradients);
        test_setup_close(context);
      }
    }
  }
}

/* Where few rows or none have no target, all rows have logits. */
static void passes_whose_rows_nearly_all_have_targets_keep_their_bits(void **state) {
  (void)state;
  static const target_pattern patterns[] = {ALL, MOST};
  for (int v = 0; v < VARIANTS; v++) {
    for (size_t p = 0; p < sizeof patterns / sizeof *patterns; p++) {
      hark_context *context = test_reference_open();
      outcome some = run(context, v, patterns[p], false), all = run(context, v, patterns[p], true);
      assert_int_equal(some.with_logits, 0);
      same_bits(&some, &all, "reference", variants[v].name);
      assert_true(some.operations == all.operations);
      free(some.gradients);
      free(all.gradients);
      test_setup_close(context);
    }
  }
}

/* Where no row has a target, one row has logits: nothing of it reaches the loss, and what else has gradients keeps them. */
static void passes_without_targets_have_logits_of_one_row(void **state) {
  (void)state;
  for (int v = 0; v < VARIANTS; v++) {
    hark_context *context = test_reference_open();
    outcome some = run(context, v, NONE, false), all = run(context, v, NONE, true);
    assert_int_equal(some.with_logits, 1);
    assert_int_equal(all.with_logits, 0);
    assert_true(some.loss == 0 && some.evaluated == 0 && some.correct == 0 && some.evaluated_correct == 0);
    assert_true(some.objective == all.objective);
    for (size_t i = 0; i < all.count; i++)
      if (some.gradients[i] != all.gradients[i])
        fail_msg("%s: gradient %zu is %g, of all rows %g", variants[v].name, i, (double)some.gradients[i], (double)all.gradients[i]);
    assert_true(some.operations < all.operations);
    free(some.gradients);
    free(all.gradients);
    test_setup_close(context);
  }
}

static void bits_do_not_depend_on_threads(void **state) {
  (void)state;
  test_setup setups[TEST_MAX_SETUPS];
  const int count = test_setups_guard_once(setups);
  for (int s = 0; s < count; s++) {
    for (int v = 0; v < VARIANTS; v++) {
      hark_context *one = test_setup_open(&setups[s], 1), *three = test_setup_open(&setups[s], 3);
      outcome a = run(one, v, SOME, false), b = run(three, v, SOME, false);
      same_bits(&a, &b, setups[s].backend, variants[v].name);
      free(a.gradients);
      free(b.gradients);
      test_setup_close(three);
      test_setup_close(one);
    }
  }
}

/* The planned memory is that of the most targets: of examples, or with a fraction of masked tokens. */
static void memory_is_that_of_the_most_targets(void **state) {
  (void)state;
  enum { AHCA_LABELS = 5, MASKED = 2, OF_EXAMPLE = 4 };
  hark_context *context = test_reference_open();
  for (int v = 0; v < 2; v++) {
    const int variant = v == 0 ? AHCA_LABELS : MASKED;
    hark_config config = configuration(variant);
    hark_learning_task task = {.vocabulary = 40 * VOCABULARY, .parts = variants[variant].packed ? 1 : 0};
    size_t bytes[2];
    double operations[2];
    int64_t most[2];
    config.train.batch = variant == MASKED ? 40 : BATCH;
    for (int few = 0; few < 2; few++) {
      hark_engine *engine = NULL;
      outcome out = {0};
      data d;
      if (few) task.targets = OF_EXAMPLE;
      if (few) config.train.mask_fraction = 0.1;
      assert_fine(context, hark_engine_create_for(context, &config, &task, true, &engine));
      assert_fine(context, hark_parameters_initialise(context, &engine->network->parameters, 7));
      bytes[few] = hark_engine_memory_of(engine).step;
      operations[few] = engine->largest_operations;
      most[few] = hark_engine_rows_all(engine->most_targets);
      fill(variant, NONE, &d);
      for (int64_t i = 0; i < d.batch.tokens && d.with_target < BATCH * OF_EXAMPLE; i += 3, d.with_target++) d.targets[i] = 7;
      if (few && variant == AHCA_LABELS) train(context, engine, variant, &d, &out);
      if (few && variant == AHCA_LABELS) assert_int_equal(out.with_logits, BATCH * OF_EXAMPLE);
      hark_engine_destroy(context, &engine);
    }
    const int64_t tokens = config.train.batch * CONTEXT;
    assert_true(2 * most[1] < tokens && most[0] >= tokens);
    if (!(bytes[1] < bytes[0] && bytes[0] - bytes[1] >= (size_t)((tokens - most[1]) * task.vocabulary) * sizeof(float) &&
          operations[1] < operations[0]))
      fail_msg("%s: %zu and %zu bytes, %g and %g operations", variants[variant].name, bytes[0], bytes[1], operations[0], operations[1]);
  }
  test_setup_close(context);
}

/* What was measured for few targets is enough for one and for none: train() compares. */
static void passes_with_few_targets_fit_what_was_measured(void **state) {
  (void)state;
  enum { OF_EXAMPLE = 4 };
  static const target_pattern patterns[] = {NONE, ONE};
  static const double fractions[] = {.15, .01};
  for (int v = 0; v < VARIANTS; v++) {
    for (int i = 0; i < 4; i++) {
      hark_context *context = test_reference_open();
      hark_config config = configuration(v);
      const hark_learning_task task = {
          .vocabulary = 40 * VOCABULARY, .parts = variants[v].packed ? 1 : 0, .targets = variants[v].packed ? OF_EXAMPLE : 0};
      hark_engine *engine = NULL;
      outcome out = {0};
      data d;
      config.train.mask_fraction = fractions[i / 2];
      fill(v, patterns[i % 2], &d);
      assert_fine(context, hark_engine_create_for(context, &config, &task, true, &engine));
      assert_fine(context, hark_parameters_initialise(context, &engine->network->parameters, 7));
      const size_t planned = hark_engine_memory_of(engine).step;
      train(context, engine, v, &d, &out);
      evaluate(context, engine, v, &d, &out);
      assert_int_equal(out.with_logits, 1);
      assert_true(out.operations <= engine->largest_operations);
      assert_int_equal(hark_engine_memory_of(engine).step, planned);
      hark_engine_destroy(context, &engine);
      test_setup_close(context);
    }
  }
}

/* log P(j of n) */
static double log_binomial(int64_t n, int64_t j, double p) {
  const double all = (double)n, some = (double)j;
  return lgamma(all + 1) - lgamma(some + 1) - lgamma(all - some + 1) + some * log(p) + (all - some) * log1p(-p);
}

/* More masked tokens than have memory are as improbable as is documented, by sums of binomial probabilities. The number is not larger than
 * necessary either: Chernoff's bound is above the probability by a factor of at most sqrt(8 n) < 10^3 (Ash 1965), so that at least a fifth
 * fewer above the mean are more probable. */
static void more_masked_tokens_than_planned_are_improbable(void **state) {
  (void)state;
  static const int64_t counts[] = {1, 2, 19, 64, 256, 4096, 65536};
  static const double fractions[] = {1e-9, 1e-3, .01, .05, .15, .5, .9, .999, 1};
  for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
    for (size_t f = 0; f < sizeof fractions / sizeof *fractions; f++) {
      const int64_t n = counts[c], most = hark_engine_rows_masked(n, fractions[f]);
      const int64_t fewer = (int64_t)(fractions[f] * (double)n + 0.8 * ((double)most - fractions[f] * (double)n)) - 1;
      double above = 0, above_fewer = 0;
      assert_true(most >= 1 && most <= n && (double)most >= fractions[f] * (double)n);
      for (int64_t j = n; j > hark_max(0, fewer) && fractions[f] < 1; j--) {
        above_fewer += exp(log_binomial(n, j, fractions[f]));
        if (j > most) above = above_fewer;
      }
      if (!(above <= 1e-14)) fail_msg("%d tokens, %g: more than %d with probability %g", (int)n, fractions[f], (int)most, above);
      if (fewer >= 1 && most < n && !(above_fewer > 1e-14))
        fail_msg("%d tokens, %g: more than %d with probability %g, and %d are planned", (int)n, fractions[f], (int)fewer, above_fewer,
                 (int)most);
    }
  }
}

/* A loss may be requested of a part of the targets; a target without logits is refused. */
static void targets_without_logits_are_refused(void **state) {
  (void)state;
  const hark_config config = configuration(2);
  hark_context *context = test_reference_open();
  hark_engine *engine = open_engine(context, &config, 2, false);
  data d;
  double whole = 0, first = 0, second = 0;
  int32_t part[2][TOKENS];
  fill(2, SOME, &d);
  for (int i = 0; i < TOKENS; i++) {
    part[0][i] = i < CONTEXT ? d.targets[i] : -1;
    part[1][i] = i < CONTEXT ? -1 : d.targets[i];
  }
  assert_fine(context, hark_engine_predict(context, engine, d.inputs, d.targets, BATCH, CONTEXT));
  assert_fine(context, hark_engine_loss(context, engine, d.targets, &whole));
  assert_fine(context, hark_engine_loss(context, engine, part[0], &first));
  assert_fine(context, hark_engine_loss(context, engine, part[1], &second));
  assert_true(first > 0 && second > 0 && is_near(first + second, whole));
  part[0][2] = 7;
  assert_int_equal(hark_engine_loss(context, engine, part[0], &first), HARK_INVALID_ARGUMENT);
  assert_non_null(strstr(hark_context_message(context), "row 2 has a target, and was predicted without one"));
  /* without targets, every row has logits */
  assert_fine(context, hark_engine_predict(context, engine, d.inputs, NULL, BATCH, CONTEXT));
  assert_fine(context, hark_engine_loss(context, engine, part[0], &first));
  hark_engine_destroy(context, &engine);
  test_setup_close(context);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(losses_and_gradients_are_those_of_all_rows),
      cmocka_unit_test(passes_whose_rows_nearly_all_have_targets_keep_their_bits),
      cmocka_unit_test(passes_without_targets_have_logits_of_one_row),
      cmocka_unit_test(bits_do_not_depend_on_threads),
      cmocka_unit_test(memory_is_that_of_the_most_targets),
      cmocka_unit_test(passes_with_few_targets_fit_what_was_measured),
      cmocka_unit_test(more_masked_tokens_than_planned_are_improbable),
      cmocka_unit_test(targets_without_logits_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
