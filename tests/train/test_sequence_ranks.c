/* test_sequence_ranks.c - training on windows whose tokens are spread over processes: the losses are those of one process, up to rounding,
 * alone and together with processes that share the micro-batches. Threads are in the place of processes. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/attention_algorithm.h"
#include "group/part.h"
#include "support/cmocka_all.h"
#include "support/setups.h"
#include "support/train/group_threads.h"
#include "support/train/small_run.h"

#define STEPS 100 /* most */
#define FEW 25

static char folder[TEST_PATH_BYTES];

typedef struct spread_case {
  small_run small;
  char path[TEST_PATH_BYTES + 64];
  int stop_step; /* rank 0 is asked to stop then; 0: never */
} spread_case;

typedef struct stopper {
  int steps, stop_step;
} stopper;

/* Called after every step. */
static hark_request stop_later(void *user) {
  stopper *const s = user;
  return ++s->steps == s->stop_step ? HARK_REQUEST_STOP : HARK_REQUEST_NONE;
}

static hark_status train_as_rank(hark_context *context, hark_group *group, void *user) {
  const spread_case *const c = user;
  stopper s = {.stop_step = hark_group_rank(group) == 0 ? c->stop_step : 0};
  const hark_train_hooks hooks = {.user = &s, .request = stop_later};
  hark_group_part part;
  hark_train_result result;
  hark_run run = {.lock = -1};
  context->group = group;
  hark_status status = hark_group_divide(context, c->small.config.run.sequence_ranks, &part);
  if (status == HARK_OK && hark_group_rank(group) == 0) status = small_run_train(context, &c->small, c->path, &hooks, &result);
  (void)snprintf(run.path, sizeof run.path, "%s", c->path);
  if (status == HARK_OK && hark_group_rank(group) > 0) status = hark_train(context, &c->small.config, &run, &hooks, &result);
  status = hark_group_agree(context, group, status); /* as the command does */
  if (context->sequence != NULL) hark_group_release(context, &part.group);
  context->sequence = NULL;
  return status;
}

static void open_case(spread_case *c) {
  memset(c, 0, sizeof *c);
  small_run_open(&c->small, folder);
  hark_config *const config = &c->small.config;
  config->model.context = 75;
  config->model.width = 24;
  config->model.heads = config->model.key_heads = 3;
  config->model.layers = 2;
  config->train.batch = 1; /* dropout then has the numbers of one process */
  config->train.accumulate = 4;
  config->train.steps = config->train.checkpoint_every = FEW;
  config->train.evaluate_every = FEW;
}

static void name_run(spread_case *c, const char *name, int ranks, int64_t sequence_ranks) {
  (void)snprintf(c->path, sizeof c->path, "%s/%s-%d-%d", folder, name, ranks, (int)sequence_ranks);
  c->small.config.run.sequence_ranks = sequence_ranks;
}

/* One process against those that share windows, and micro-batches too. */
static void compare_ways(spread_case *c, const char *name) {
  const int steps = (int)c->small.config.train.steps;
  static const struct { int ranks, sequence_ranks; } ways[] = {{2, 2}, {3, 3}, {4, 2}};
  char alone[TEST_PATH_BYTES + 64];
  name_run(c, name, 1, 1);
  memcpy(alone, c->path, sizeof alone);
  test_group_run(1, 60, train_as_rank, c, NULL, NULL);
  for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
    name_run(c, name, ways[i].ranks, ways[i].sequence_ranks);
    test_group_run(ways[i].ranks, 60, train_as_rank, c, NULL, NULL);
    small_run_compare(alone, c->path, "\"train/loss\": ", steps, 1e-5);
    small_run_compare(alone, c->path, "\"val/loss\": ", steps / FEW, 1e-5);
    small_run_compare(alone, c->path, "\"tokens\": ", steps, 0);
    small_run_compare(alone, c->path, "\"operations\": ", steps, 0.1); /* what a process computes depends on its rows by a little */
  }
}

static void losses_are_those_of_one_process(void **state) {
  static const hark_attention_structure structures[] = {HARK_STRUCTURE_DENSE, HARK_STRUCTURE_WINDOW, HARK_STRUCTURE_HIERARCHICAL};
  static const char *const names[] = {"dense", "window", "hierarchical"};
  (void)state;
  for (int i = 0; i < 3; i++) {
    spread_case c;
    test_folder_make(folder);
    open_case(&c);
    c.small.config.model.attention.structure = (hark_layer_choice){.count = 1, .words = {structures[i]}};
    c.small.config.model.attention.window = 9;
    c.small.config.model.attention.hierarchy_block = 4;
    if (structures[i] == HARK_STRUCTURE_HIERARCHICAL) c.small.config.train.steps = STEPS;
    compare_ways(&c, names[i]);
    small_run_close(&c.small);
    test_folder_remove(folder);
  }
}

static void learned_positions_and_recomputation(void **state) {
  (void)state;
  spread_case c;
  test_folder_make(folder);
  open_case(&c);
  c.small.config.model.positions = HARK_POSITIONS_LEARNED;
  c.small.config.model.recompute = true;
  compare_ways(&c, "learned");
  small_run_close(&c.small);
  test_folder_remove(folder);
}

/* A run that is begun by some is continued by others. */
static void resumed_by_others(void **state) {
  (void)state;
  spread_case c;
  char whole[TEST_PATH_BYTES + 64];
  test_folder_make(folder);
  open_case(&c);
  name_run(&c, "whole", 1, 1);
  memcpy(whole, c.path, sizeof whole);
  test_group_run(1, 60, train_as_rank, &c, NULL, NULL);
  name_run(&c, "parts", 0, 3);
  c.stop_step = FEW / 2;
  test_group_run(3, 60, train_as_rank, &c, NULL, NULL);
  c.stop_step = 0;
  c.small.config.run.sequence_ranks = 2;
  test_group_run(4, 60, train_as_rank, &c, NULL, NULL);
  assert_true(small_run_last_number(whole, "\"tokens\": ") == small_run_last_number(c.path, "\"tokens\": "));
  const double expected = small_run_last_number(whole, "\"train/loss\": ");
  assert_true(fabs(small_run_last_number(c.path, "\"train/loss\": ") - expected) <= 1e-5 * expected);
  small_run_close(&c.small);
  test_folder_remove(folder);
}

/* ---- layers that keep their rows ---- */

#define KEPT_HEADS 3

/* A model whose layers have these structures in turn. */
typedef struct kept_case {
  const char *name;
  hark_layer_choice structures;
  int64_t context;
  int ranks, kept; /* layers that exchange a few rows; the others exchange heads */
  bool recompute, bf16;
} kept_case;

#define WORDS(...)                                                                                                                         \
  {                                                                                                                                        \
    .count = sizeof((int[]){__VA_ARGS__}) / sizeof(int), .words = { __VA_ARGS__ }                                                          \
  }

static const kept_case kept_cases[] = {
    {"window", WORDS(HARK_STRUCTURE_WINDOW), 384, 3, 2, false, false},
    {"window, uneven parts", WORDS(HARK_STRUCTURE_WINDOW), 300, 3, 0, false, false},
    {"window, more processes than heads", WORDS(HARK_STRUCTURE_WINDOW), 300, KEPT_HEADS + 2, 2, true, false},
    {"window, bf16", WORDS(HARK_STRUCTURE_WINDOW), 384, 3, 2, false, true},
    {"window and dense", WORDS(HARK_STRUCTURE_WINDOW, HARK_STRUCTURE_DENSE), 384, 3, 1, true, false},
    {"hierarchical and window", WORDS(HARK_STRUCTURE_HIERARCHICAL, HARK_STRUCTURE_WINDOW), 8300, 2, 2, true, false},
    {"hierarchical, bf16", WORDS(HARK_STRUCTURE_HIERARCHICAL, HARK_STRUCTURE_WINDOW), 8300, 2, 2, false, true},
    {"hierarchical, uneven parts", WORDS(HARK_STRUCTURE_HIERARCHICAL, HARK_STRUCTURE_WINDOW), 8300, 3, 0, false, false},
    {"fewer parts than processes", WORDS(HARK_STRUCTURE_WINDOW), 100, 3, 0, false, false},
};

typedef struct kept_run {
  const kept_case *c;
  hark_config config;
  const int32_t *tokens;
  double losses[TEST_MOST_RANKS][2]; /* of the rows of a process, in two steps */
} kept_run;

static hark_status step_once(hark_context *context, hark_engine *engine, const int32_t *tokens, double *loss) {
  const double weight = 1.0 / (double)engine->config->model.context;
  hark_step_result result;
  HARK_TRY(hark_engine_begin_step(context, engine));
  HARK_TRY(hark_engine_micro_batch(context, engine, tokens, tokens + 1, 1, 0, 0, weight, loss));
  return hark_engine_finish_step(context, engine, 1, 1e-2, *loss, &result);
}

static hark_status check_kept(hark_context *context, const kept_run *run, const hark_engine *engine) {
  int kept = 0;
  for (int64_t layer = 0; layer < run->config.model.layers; layer++) {
    kept += engine->training_plans[layer]->keeps_rows ? 1 : 0;
    if (engine->training_plans[layer]->keeps_rows != engine->evaluation_plans[layer]->keeps_rows)
      return hark_fail(context, HARK_INTERNAL_ERROR, "%s: training and evaluation differ", run->c->name);
  }
  if (context->sequence != NULL && kept != run->c->kept)
    return hark_fail(context, HARK_INTERNAL_ERROR, "%s: %d layers keep their rows, expected %d", run->c->name, kept, run->c->kept);
  return HARK_OK;
}

/* Two steps need the memory of the estimate, and the second one allocates nothing. */
static hark_status make_two_steps(hark_context *context, kept_run *run, double *losses, hark_engine **engine) {
  hark_engine_memory estimated, made;
  int64_t parameters, tensors;
  HARK_TRY(hark_engine_estimate(context, &run->config, 11, true, &estimated, &parameters, &tensors));
  HARK_TRY(hark_engine_create(context, &run->config, 11, true, engine));
  HARK_TRY(hark_parameters_initialise(context, &(*engine)->network->parameters, 1));
  HARK_TRY(check_kept(context, run, *engine));
  HARK_TRY(step_once(context, *engine, run->tokens, &losses[0]));
  const uint64_t allocations = hark_context_memory(context).allocations;
  HARK_TRY(step_once(context, *engine, run->tokens, &losses[1]));
  made = hark_engine_memory_of(*engine);
  if (memcmp(&estimated, &made, sizeof made) != 0)
    return hark_fail(context, HARK_INTERNAL_ERROR, "%s: %zu bytes of a step, estimated %zu", run->c->name, made.step, estimated.step);
  if (hark_context_memory(context).allocations != allocations)
    return hark_fail(context, HARK_INTERNAL_ERROR, "%s: a step allocates memory", run->c->name);
  return HARK_OK;
}

static hark_status step_as_rank(hark_context *context, hark_group *group, void *user) {
  kept_run *const run = user;
  hark_group_part part;
  hark_engine *engine = NULL;
  context->group = group;
  hark_status status = hark_group_divide(context, hark_group_size(group), &part);
  if (status == HARK_OK) status = make_two_steps(context, run, run->losses[hark_group_rank(group)], &engine);
  if (engine != NULL) status = hark_engine_end_work(context, engine, status);
  status = hark_group_agree(context, group, status);
  if (context->sequence != NULL) hark_group_release(context, &part.group);
  context->sequence = NULL;
  hark_engine_destroy(context, &engine);
  return status;
}

static void configure_kept(const kept_case *c, hark_config *config) {
  hark_attention_choice *const attention = &config->model.attention;
  config->model.context = c->context;
  config->model.width = (int64_t)4 * KEPT_HEADS;
  config->model.recompute = c->recompute;
  attention->structure = c->structures;
  attention->window = 9;
  attention->hierarchy_block = 4;
  config->train.accumulate = 1;
  config->train.precision = c->bf16 ? HARK_PRECISION_BF16 : HARK_PRECISION_F32;
}

/* The losses of all rows, of which each process has those of its own. */
static void assert_losses(const kept_run *alone, const kept_run *spread) {
  for (int step = 0; step < 2; step++) {
    double sum = 0;
    for (int rank = 0; rank < spread->c->ranks; rank++) sum += spread->losses[rank][step];
    const double expected = alone->losses[0][step];
    if (!(fabs(sum - expected) <= (spread->c->bf16 ? 1e-4 : 1e-5) * expected))
      fail_msg("%s: step %d has the loss %.9g, expected %.9g", spread->c->name, step, sum, expected);
  }
  assert_true(alone->losses[0][1] < alone->losses[0][0]);
}

static void steps_of_layers_that_keep_their_rows(void **state) {
  static int32_t tokens[8301];
  spread_case small;
  (void)state;
  for (int i = 0; i < 8301; i++) tokens[i] = i * i % 11;
  test_folder_make(folder);
  open_case(&small);
  for (size_t i = 0; i < sizeof kept_cases / sizeof *kept_cases; i++) {
    kept_run alone = {.c = &kept_cases[i], .config = small.small.config, .tokens = tokens};
    configure_kept(alone.c, &alone.config);
    kept_run spread = alone;
    test_group_run(1, 60, step_as_rank, &alone, NULL, NULL);
    test_group_run(spread.c->ranks, 60, step_as_rank, &spread, NULL, NULL);
    assert_losses(&alone, &spread);
  }
  small_run_close(&small.small);
  test_folder_remove(folder);
}

/* ---- what is refused ---- */

static void assert_refused(spread_case *c, int ranks, int64_t sequence_ranks, const char *message) {
  hark_status statuses[TEST_MOST_RANKS];
  char messages[TEST_MOST_RANKS][512];
  name_run(c, "refused", ranks, sequence_ranks);
  test_group_run(ranks, 60, train_as_rank, c, statuses, messages);
  for (int rank = 0; rank < ranks; rank++) {
    assert_true(statuses[rank] == HARK_BAD_CONFIGURATION || statuses[rank] == HARK_UNSUPPORTED);
    if (strstr(messages[rank], message) == NULL) fail_msg("rank %d: \"%s\", expected \"%s\"", rank, messages[rank], message);
  }
}

static void refused(void **state) {
  (void)state;
  spread_case c;
  test_folder_make(folder);
  open_case(&c);
  assert_refused(&c, 3, 2, "run.sequence_ranks is 2, and 3 processes were started, expected a multiple");
  assert_refused(&c, 1, 2, "run.sequence_ranks is 2, and 1 process was started, expected a multiple");
  assert_refused(&c, 4, 4, "run.sequence_ranks is 4, expected at most the 3 key heads of the model");
  c.small.config.train.accumulate = 1;
  assert_refused(&c, 4, 2, "train.accumulate is 1");
  c.small.config.train.accumulate = 4;
  c.small.config.model.context = 8;
  assert_refused(&c, 2, 2, "run.sequence_ranks is 2, expected at most one for 16 of the 8 tokens of a window");
  small_run_close(&c.small);
  small_run_open_examples(&c.small, folder);
  c.small.config.train.accumulate = 4;
  assert_refused(&c, 2, 2, "run.sequence_ranks is 2, and only windows of a text with next tokens are shared");
  small_run_close(&c.small);
  test_folder_remove(folder);
}

/* ---- a process that fails while the others wait for its rows ---- */

static hark_status pass_with_a_bad_token(hark_context *context, hark_group *group, void *user) {
  const spread_case *const c = user;
  hark_config config = c->small.config;
  hark_group_part part;
  hark_engine *engine = NULL;
  int32_t tokens[128] = {0};
  double loss;
  config.train.accumulate = 1;
  context->group = group;
  hark_status status = hark_group_divide(context, 2, &part);
  if (status == HARK_OK) status = hark_engine_create(context, &config, 11, true, &engine);
  if (status == HARK_OK) status = hark_engine_begin_step(context, engine);
  tokens[config.model.context - 1] = 11; /* of the last process */
  if (status == HARK_OK) status = hark_engine_micro_batch(context, engine, tokens, tokens, 1, 0, 0, 1, &loss);
  if (engine != NULL) status = hark_engine_end_work(context, engine, status);
  status = hark_group_agree(context, group, status);
  if (context->sequence != NULL) hark_group_release(context, &part.group);
  hark_engine_destroy(context, &engine);
  return status;
}

static void a_failure_within_a_pass_ends_all(void **state) {
  static const hark_attention_structure structures[] = {HARK_STRUCTURE_DENSE, HARK_STRUCTURE_WINDOW}; /* heads, rows of neighbours */
  (void)state;
  for (int i = 0; i < 2; i++) {
    spread_case c;
    hark_status statuses[TEST_MOST_RANKS];
    char messages[TEST_MOST_RANKS][512];
    test_folder_make(folder);
    open_case(&c);
    c.small.config.model.attention.structure = (hark_layer_choice){.count = 1, .words = {structures[i]}};
    test_group_run(2, 1, pass_with_a_bad_token, &c, statuses, messages);
    assert_int_equal(statuses[0], HARK_CANCELLED);
    assert_int_equal(statuses[1], HARK_INVALID_ARGUMENT);
    assert_string_equal(messages[0], "rank 1 did not answer rank 0 for 1 seconds"); /* threads cannot be aborted */
    assert_non_null(strstr(messages[1], "rank 1: embedding: "));
    small_run_close(&c.small);
    test_folder_remove(folder);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(losses_are_those_of_one_process),
                                     cmocka_unit_test(learned_positions_and_recomputation),
                                     cmocka_unit_test(resumed_by_others),
                                     cmocka_unit_test(steps_of_layers_that_keep_their_rows),
                                     cmocka_unit_test(refused),
                                     cmocka_unit_test(a_failure_within_a_pass_ends_all)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
