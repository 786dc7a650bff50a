/* test_recipes.c - the models of recipes/lra and recipes/one-billion-word are those that their sources state: sizes, budgets, and the
 * number of parameters, counted here from the sizes. (That every recipe can be read is a test of cli/examples.)
 */
#include <stdio.h>

#include "models/network.h"
#include "support/cmocka_all.h"
#include "support/setups.h"
#include "support/text_files.h"
#include "train/config.h"
#include "train/engine.h"
#include "train/schedule.h"

#define RESERVED 5 /* tokens of every vocabulary */
#define BYTES 256

typedef struct recipe {
  hark_context *context;
  hark_options *options;
  hark_config config;
} recipe;

static void open_recipe(recipe *r, const char *name) {
  char path[512];
  const hark_option_group group = {&hark_config_table, &r->config};
  r->context = test_reference_open();
  (void)snprintf(path, sizeof path, "%s/recipes/%s.yaml", HARK_SOURCE_DIR, name);
  assert_fine(r->context, hark_options_create(r->context, "train", &group, 1, &r->options));
  assert_fine(r->context, hark_options_read_yaml(r->context, r->options, path, HARK_SOURCE_FILE));
  assert_fine(r->context, hark_config_finish(r->context, r->options, &r->config));
  for (int i = 0; i < hark_options_problem_count(r->options); i++) fail_msg("%s: %s", name, hark_options_problem(r->options, i));
}

static void close_recipe(recipe *r) {
  hark_options_destroy(r->context, &r->options);
  test_setup_close(r->context);
}

static int64_t parameters_of(recipe *r, const hark_learning_task *task) {
  hark_engine_memory memory;
  int64_t parameters = 0, tensors = 0;
  assert_fine(r->context, hark_engine_estimate_for(r->context, &r->config, task, true, &memory, &parameters, &tensors));
  return parameters;
}

/* The benchmark's table: its code, as "Long Range Arena" (Tay et al. 2020, arXiv 2011.04006) published it. */
typedef struct arena_task {
  const char *name;
  int64_t length, symbols, classes, parts, layers, heads, width, qkv, mlp, examples, steps, warmup;
  double rate, decay;
  bool learned_positions;
  hark_pooling pooling;
  double dropout, attention_dropout, clip;
} arena_task;

static const arena_task tasks[] = {
    {"listops", 2000, 15, 10, 1, 4, 8, 512, 512, 1024, 32, 5000, 1000, 0.05, 0.1, false, HARK_POOLING_CLASS, 0.1, 0.1, 0},
    {"text", 1000, BYTES, 2, 1, 4, 4, 256, 256, 1024, 32, 20000, 8000, 0.05, 0.1, false, HARK_POOLING_CLASS, 0.1, 0.1, 0},
    {"retrieval", 4000, BYTES, 2, 2, 4, 4, 128, 128, 512, 32, 5000, 8000, 0.05, 0.1, false, HARK_POOLING_FIRST, 0.1, 0.1, 0},
    {"image", 1024, BYTES, 10, 1, 1, 8, 128, 64, 128, 256, 35000, 175, 5e-4, 0, true, HARK_POOLING_CLASS, 0.3, 0.2, 0},
    {"pathfinder", 1024, BYTES, 2, 1, 1, 4, 128, 64, 128, 512, 62400, 312, 1e-3, 0, false, HARK_POOLING_MEAN, 0.2, 0.1, 0},
    {"path-x", 16384, BYTES, 2, 1, 1, 2, 32, 16, 32, 64, 500000, 2500, 1e-3, 0, true, HARK_POOLING_MEAN, 0.1, 0.1, 1},
};

/* Embeddings, blocks of two norms, attention without biases and two dense layers, a norm, and the head: hidden layers of mlp features
 * (pairs: another of half as many) and one number a class. */
static int64_t count_parameters(const arena_task *t) {
  const int64_t norm = 2 * t->width, rows = t->length + (t->pooling == HARK_POOLING_CLASS);
  const int64_t block = 2 * norm + 4 * t->width * t->qkv + t->width * t->mlp + t->mlp + t->mlp * t->width + t->width;
  const int64_t second = t->parts == 2 ? t->mlp * (t->mlp / 2) + t->mlp / 2 : 0, last = t->parts == 2 ? t->mlp / 2 : t->mlp;
  return (RESERVED + t->symbols) * t->width + (t->learned_positions ? rows * t->width : 0) + t->layers * block + norm +
         t->parts * t->width * t->mlp + t->mlp + second + last * t->classes + t->classes;
}

/* What all tasks have in common, and what they set apart. */
static void check_training(const arena_task *t, const hark_config *c) {
  const bool falls = t->decay > 0; /* the rate with one over the root of the steps, of the others as a cosine */
  assert_true(c->train.learning_rate == t->rate && c->train.weight_decay == t->decay && c->train.clip == t->clip);
  assert_true(c->train.beta1 == 0.9 && c->train.beta2 == 0.98 && c->train.epsilon == 1e-9 && c->train.label_smoothing == 0);
  assert_int_equal(c->train.schedule, falls ? HARK_SCHEDULE_BASE_RSQRT : HARK_SCHEDULE_CYCLE);
  assert_int_equal(c->train.batch * c->train.accumulate, t->examples);
  assert_int_equal(c->train.steps, t->steps);
  assert_int_equal(c->train.warmup, t->warmup);
  assert_int_equal(c->data.length_limit, t->symbols == BYTES && falls ? t->length : 0); /* of what is as long as it is */
  assert_int_equal(c->model.pooling, t->pooling);
  assert_int_equal(c->model.positions, t->learned_positions ? HARK_POSITIONS_LEARNED : HARK_POSITIONS_SINUSOIDAL);
  assert_int_equal(c->model.activation, HARK_ACTIVATION_GELU);
  assert_int_equal(c->model.initialisation, HARK_INITIALISATION_XAVIER);
  assert_true(c->model.dropout == t->dropout && c->model.embedding_dropout == t->dropout && c->model.embedding_deviation == 1);
  assert_true(c->model.bias && c->model.attention.unbiased && c->model.attention.dropout == t->attention_dropout);
}

static void the_arena_has_its_models(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof tasks / sizeof *tasks; i++) {
    const arena_task *t = &tasks[i];
    char name[64];
    recipe r;
    (void)snprintf(name, sizeof name, "lra/%s", t->name);
    open_recipe(&r, name);
    const hark_learning_task task = {
        .vocabulary = (int32_t)(RESERVED + t->symbols), .classes = (int32_t)t->classes, .parts = (int)t->parts};
    const int64_t found = parameters_of(&r, &task), expected = count_parameters(t);
    if (found != expected) fail_msg("%s: %lld parameters, expected %lld", t->name, (long long)found, (long long)expected);
    assert_int_equal(r.config.model.context, t->length);
    assert_int_equal(r.config.model.layers, t->layers);
    assert_int_equal(r.config.model.heads, t->heads);
    check_training(t, &r.config);
    close_recipe(&r);
  }
}

/* Table 2 of H-Transformer-1D: 53 and 144 million, to their last digit. */
static void one_billion_word_has_its_models(void **state) {
  (void)state;
  static const struct {
    const char *name;
    double millions;
  } models[] = {{"one-billion-word/53m", 53}, {"one-billion-word/144m", 144}};
  for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
    recipe r;
    open_recipe(&r, models[i].name);
    const int64_t pieces = r.config.data.subwords.vocabulary;
    const hark_learning_task task = {.vocabulary = (int32_t)(RESERVED + pieces), .parts = 1, .sequences = r.config.model.context};
    const double found = (double)parameters_of(&r, &task) / 1e6;
    if (!(found >= models[i].millions - 0.5 && found < models[i].millions + 0.5))
      fail_msg("%s: %.2f million parameters", models[i].name, found);
    assert_false(r.config.model.tie_embeddings);
    assert_true(r.config.model.embedding_deviation == 1); /* the size of the positions that are added */
    close_recipe(&r);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_arena_has_its_models),
      cmocka_unit_test(one_billion_word_has_its_models),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
