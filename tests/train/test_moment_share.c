/* test_moment_share.c - moments that are divided among processes: the ranges, the weights of all, an engine's steps and memory, checks for
 * numbers that are not finite, and moments that rank 0 reads and writes at the others. Threads are in the place of processes. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/cmocka_all.h"
#include "support/setups.h"
#include "support/text_files.h"
#include "support/train/group_threads.h"
#include "train/moment_transfer.h"

/* ---- ranges ---- */

/* Ranges follow each other, begin at whole cache lines, differ by at most one of them, and have the owner that is asked for. */
static void ranges_cover_all_weights(void **state) {
  static const int64_t numbers[] = {16, 64, 80, 640, 1008, 4096, 12345 * (int64_t)16};
  (void)state;
  for (size_t n = 0; n < sizeof numbers / sizeof *numbers; n++)
    for (int size = 1; size <= 9; size++) {
      const hark_moment_share share = {.divided = true, .numbers = numbers[n]};
      int64_t at = 0, least = INT64_MAX, most = 0;
      for (int rank = 0; rank < size; rank++) {
        const hark_share range = hark_moment_share_range(&share, rank, size);
        assert_int_equal(range.first, at);
        assert_true(range.first % 64 == 0 || range.count == 0);
        for (int64_t i = range.first; i < range.first + range.count; i += 16)
          assert_int_equal(hark_moment_share_owner(&share, i, size), rank);
        at += range.count;
        least = range.count < least ? range.count : least;
        most = range.count > most ? range.count : most;
      }
      assert_int_equal(at, numbers[n]);
      assert_true(most - least <= 64 + 63);
    }
}

static void parts_of_groups_cover_them(void **state) {
  const hark_parameter_group groups[] = {
      {.first = 0, .count = 400, .decays = true}, {.first = 400, .count = 16}, {.first = 416, .count = 608}};
  (void)state;
  for (size_t g = 0; g < 3; g++) {
    int64_t at = groups[g].first;
    for (int rank = 0; rank < 5; rank++) {
      hark_moment_share share = {.divided = true, .numbers = 1024};
      share.range = hark_moment_share_range(&share, rank, 5);
      const hark_parameter_group part = hark_moment_share_part(&share, &groups[g]);
      assert_int_equal(part.decays, groups[g].decays);
      if (part.count == 0) continue;
      assert_int_equal(part.first, at);
      assert_true(part.first >= share.range.first && part.first + part.count <= share.range.first + share.range.count);
      at += part.count;
    }
    assert_int_equal(at, groups[g].first + groups[g].count);
  }
}

/* ---- the weights of all ---- */

static float number_of(int rank, int64_t i) { return (float)(rank + 1) + (float)(i % 1000003) / 1048576; }

static hark_status gather_together(hark_context *context, hark_group *group, void *user) {
  const int64_t count = *(const int64_t *)user;
  const int rank = hark_group_rank(group), size = hark_group_size(group);
  hark_moment_share share;
  hark_tensor weights;
  context->group = group;
  HARK_TRY(hark_moment_share_create(context, true, count, true, &share));
  HARK_TRY(hark_tensor_create(context, HARK_F32, 1, &count, &weights));
  float *const numbers = malloc((size_t)count * sizeof *numbers);
  if (numbers == NULL) return HARK_OUT_OF_MEMORY;
  for (int64_t i = 0; i < count; i++) numbers[i] = number_of(rank, i);
  HARK_TRY(hark_tensor_write(context, &weights, numbers));
  const uint64_t allocations = hark_context_memory(context).allocations, sent = group->sent;
  HARK_TRY(hark_moment_share_gather(context, &share, &weights));
  hark_status status = HARK_OK;
  if (hark_context_memory(context).allocations != allocations) status = hark_fail(context, HARK_INTERNAL_ERROR, "memory was allocated");
  if (group->sent - sent != (uint64_t)(size - 1) * (uint64_t)share.range.count * sizeof(float) * (size > 1))
    status = hark_fail(context, HARK_INTERNAL_ERROR, "%d bytes were sent", (int)(group->sent - sent));
  HARK_TRY(hark_tensor_read(context, &weights, numbers));
  for (int64_t i = 0; i < count && status == HARK_OK; i++)
    if (numbers[i] != number_of(size > 1 ? hark_moment_share_owner(&share, i, size) : rank, i))
      status = hark_fail(context, HARK_INTERNAL_ERROR, "number %d: %a", (int)i, (double)numbers[i]);
  free(numbers);
  hark_moment_share_destroy(context, &share);
  hark_tensor_destroy(context, &weights);
  return status;
}

/* Also ranges of several pieces, the last of which only some processes have, and processes without any weight. */
static void every_process_gets_the_weights_of_all(void **state) {
  static int64_t counts[] = {16, 64, 80, 1040, 70000};
  int64_t large = 3 * ((int64_t)1 << 18) + 80;
  (void)state;
  for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
    for (int size = 1; size <= TEST_MOST_RANKS; size++) test_group_run(size, 60, gather_together, &counts[i], NULL, NULL);
  test_group_run(2, 60, gather_together, &large, NULL, NULL);
}

/* ---- an engine ---- */

#define WIDTH 8
#define MICRO_BATCHES 8
#define STEPS 3
#define RATE 0.5 /* far too large: steps leave the bounds */

/* A small latent network, whose matrices have bounds; the options hold the strings of the configuration. */
static hark_options *configure(hark_context *context, hark_config *config) {
  const hark_option_group group = {&hark_config_table, config};
  hark_options *options = NULL;
  assert_fine(context, hark_options_create(context, NULL, &group, 1, &options));
  config->model.architecture = HARK_ARCHITECTURE_LATENT;
  config->model.layers = 2;
  config->model.heads = config->model.key_heads = 2;
  config->model.width = WIDTH;
  config->model.feed_forward_width = 12;
  config->model.context = 3;
  config->model.positions = HARK_POSITIONS_NONE;
  config->model.activation = HARK_ACTIVATION_RELU;
  config->model.attention.kernel = HARK_KERNEL_RBF;
  config->model.latent.norm = HARK_BOUND_TWO;
  config->model.latent.operator_norm = 0.4;
  config->model.latent.matrix_norm = 0.5;
  config->train.batch = 2;
  config->train.accumulate = MICRO_BATCHES;
  config->train.clip = 0.5;
  return options;
}

static const hark_learning_task task = {.vocabulary = 6, .parts = 1, .features = WIDTH, .responses = 1};

static hark_status train_part(hark_context *context, hark_engine *engine, int64_t part) {
  int32_t tokens[] = {5, 5, 5, 5, 5}, positions[] = {0, 1, 2, 0, 1};
  int64_t segments[] = {0, 0, 0, 1, 1}, ranges[] = {0, 3, 3, 5};
  float features[5 * WIDTH], responses[2] = {0.25f, -0.25f};
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
  for (int i = 0; i < 5 * WIDTH; i++) features[i] = (float)((i * 7 + (int)part * 5) % 11 - 5) / 10;
  return hark_engine_train_examples(context, engine, &batch, 0, 0.5 / MICRO_BATCHES, &pass);
}

static hark_status train_steps(hark_context *context, hark_engine *engine) {
  hark_step_result result = {.applied = true};
  for (int64_t step = 1; step <= STEPS; step++) {
    const hark_share share = engine->sum.share;
    HARK_TRY(hark_engine_begin_step(context, engine));
    for (int64_t i = share.first; i < share.first + share.count; i++) HARK_TRY(train_part(context, engine, (step - 1) * MICRO_BATCHES + i));
    HARK_TRY(hark_engine_finish_step(context, engine, step, RATE, 1, &result));
    if (!result.applied) return hark_fail(context, HARK_NOT_FINITE, "step %d was not applied", (int)step);
  }
  return HARK_OK;
}

typedef struct engine_case {
  hark_config config;
  float *weights, *moments[2]; /* of the engine alone */
  int64_t numbers;
  int rank; /* that does something else */
} engine_case;

/* What this process has of a flat tensor, compared with [first, first + count) of the whole. */
static hark_status compare(hark_context *context, const char *what, const hark_tensor *tensor, const float *whole, hark_share range) {
  float *const numbers = malloc((size_t)hark_tensor_count(tensor) * sizeof *numbers);
  if (numbers == NULL) return HARK_OUT_OF_MEMORY;
  hark_status status = hark_tensor_read(context, tensor, numbers);
  if (status == HARK_OK && memcmp(numbers, whole + range.first, (size_t)range.count * sizeof *numbers) != 0)
    status = hark_fail(context, HARK_INTERNAL_ERROR, "the %s differ", what);
  free(numbers);
  return status;
}

static hark_status begin_engine(hark_context *context, hark_group *group, const hark_config *config, hark_engine **engine) {
  context->group = group;
  HARK_TRY(hark_engine_create_for(context, config, &task, true, engine));
  HARK_TRY(hark_parameters_initialise(context, &(*engine)->network->parameters, 3));
  return hark_parameters_project(context, &(*engine)->network->parameters, true);
}

static hark_status compare_steps(hark_context *context, hark_group *group, void *user) {
  const engine_case *const c = user;
  hark_engine *engine = NULL;
  HARK_TRY(begin_engine(context, group, &c->config, &engine));
  const uint64_t allocations = hark_context_memory(context).allocations;
  hark_status status = train_steps(context, engine);
  if (status == HARK_OK && hark_context_memory(context).allocations != allocations)
    status = hark_fail(context, HARK_INTERNAL_ERROR, "a step allocates memory");
  const hark_share all = {0, c->numbers}, own = engine->share.range;
  if (status == HARK_OK) status = compare(context, "weights", &engine->network->parameters.weights, c->weights, all);
  if (status == HARK_OK) status = compare(context, "first moments", &engine->first_moment, c->moments[0], own);
  if (status == HARK_OK) status = compare(context, "second moments", &engine->second_moment, c->moments[1], own);
  if (status == HARK_OK) status = hark_engine_check_finite(context, engine);
  hark_engine_destroy(context, &engine);
  return status;
}

static hark_options *open_engine_case(hark_context *context, engine_case *c) {
  hark_engine *engine = NULL;
  *c = (engine_case){.rank = -1};
  hark_options *options = configure(context, &c->config);
  assert_fine(context, begin_engine(context, NULL, &c->config, &engine));
  const hark_tensor *const flats[] = {&engine->network->parameters.weights, &engine->first_moment, &engine->second_moment};
  float **const copies[] = {&c->weights, &c->moments[0], &c->moments[1]};
  assert_fine(context, train_steps(context, engine));
  c->numbers = hark_tensor_count(flats[0]);
  for (int i = 0; i < 3; i++) {
    *copies[i] = malloc((size_t)c->numbers * sizeof(float));
    assert_non_null(*copies[i]);
    assert_fine(context, hark_tensor_read(context, flats[i], *copies[i]));
  }
  hark_engine_destroy(context, &engine);
  c->config.train.shard_optimiser = true;
  return options;
}

static void close_engine_case(hark_context *context, engine_case *c, hark_options *options) {
  float *const owned[] = {c->weights, c->moments[0], c->moments[1]};
  for (int i = 0; i < 3; i++) free(owned[i]);
  hark_options_destroy(context, &options);
}

static hark_context *open_context(void) {
  const test_setup setup = {"cpu", "generic"};
  return test_setup_open_deterministic(&setup, 1);
}

/* Matrices are projected after every step: they are whole at every process then, though two may have updated them. */
static void steps_of_bounded_matrices_have_the_same_bits(void **state) {
  static const int sizes[] = {1, 2, 3, 4, 8};
  engine_case c;
  (void)state;
  hark_context *context = open_context();
  hark_options *options = open_engine_case(context, &c);
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) test_group_run(sizes[i], 60, compare_steps, &c, NULL, NULL);
  close_engine_case(context, &c, options);
  test_setup_close(context);
}

/* ---- memory ---- */

static hark_status measure_memory(hark_context *context, hark_group *group, void *user) {
  const engine_case *const c = user;
  const size_t whole = 2 * (size_t)c->numbers * sizeof(float);
  hark_engine_memory estimated, made;
  hark_engine *engine = NULL;
  int64_t parameters, tensors;
  context->group = group;
  HARK_TRY(hark_engine_estimate_for(context, &c->config, &task, true, &estimated, &parameters, &tensors));
  HARK_TRY(hark_engine_create_for(context, &c->config, &task, true, &engine));
  made = hark_engine_memory_of(engine);
  const size_t room = engine->share.memory_bytes, most = whole / (size_t)hark_group_size(group) + 2 * 64 * sizeof(float);
  hark_engine_destroy(context, &engine);
  if (memcmp(&estimated, &made, sizeof made) != 0) return hark_fail(context, HARK_INTERNAL_ERROR, "the estimate differs");
  if (made.moments - room > most || room == 0)
    return hark_fail(context, HARK_INTERNAL_ERROR, "%d bytes of moments and %d to send, expected at most %d", (int)made.moments, (int)room,
                     (int)most);
  return HARK_OK;
}

static void divided_moments_need_less_memory(void **state) {
  engine_case c;
  (void)state;
  hark_context *context = open_context();
  hark_options *options = open_engine_case(context, &c);
  test_group_run(2, 60, measure_memory, &c, NULL, NULL);
  test_group_run(5, 60, measure_memory, &c, NULL, NULL);
  close_engine_case(context, &c, options);
  test_setup_close(context);
}

/* ---- numbers that are not finite ---- */

static hark_status spoil_a_moment(hark_context *context, hark_group *group, void *user) {
  const engine_case *const c = user;
  hark_engine *engine = NULL;
  HARK_TRY(begin_engine(context, group, &c->config, &engine));
  hark_tensor last = engine->second_moment;
  const float infinite = INFINITY;
  last.shape[0] = 1;
  last.data = (float *)last.data + engine->share.range.count - 1;
  hark_status status = HARK_OK;
  if (hark_group_rank(group) == c->rank) status = hark_tensor_write(context, &last, &infinite);
  if (status == HARK_OK) status = hark_engine_check_finite(context, engine);
  hark_engine_destroy(context, &engine);
  return status;
}

static void all_find_what_one_has(void **state) {
  engine_case c;
  (void)state;
  hark_context *context = open_context();
  hark_options *options = open_engine_case(context, &c);
  for (c.rank = 0; c.rank < 4; c.rank++) {
    hark_status statuses[TEST_MOST_RANKS];
    char messages[TEST_MOST_RANKS][512];
    test_group_run(3, 60, spoil_a_moment, &c, statuses, messages);
    for (int rank = 0; rank < 3; rank++) {
      assert_int_equal(statuses[rank], c.rank < 3 ? HARK_NOT_FINITE : HARK_OK);
      assert_string_equal(messages[rank], c.rank < 3 ? "the second moments have numbers that are not finite" : "");
    }
  }
  close_engine_case(context, &c, options);
  test_setup_close(context);
}

/* ---- moments at rank 0 ---- */

/* Rank 0 writes all moments and reads them again, in steps that no range has. */
static hark_status pass_moments(hark_context *context, const hark_engine *engine, const engine_case *c) {
  float numbers[100];
  for (int which = 0; which < 2; which++)
    for (int64_t at = 0; at < c->numbers; at += 100) {
      const int64_t count = c->numbers - at < 100 ? c->numbers - at : 100;
      HARK_TRY(hark_moments_write(context, engine, (hark_moment)which, at, count, c->moments[which] + at));
      HARK_TRY(hark_moments_read(context, engine, (hark_moment)which, at, count, numbers));
      if (memcmp(numbers, c->moments[which] + at, (size_t)count * sizeof *numbers) != 0)
        return hark_fail(context, HARK_INTERNAL_ERROR, "moments from %d on differ", (int)at);
      if (c->rank == 0 && which == 1 && at >= c->numbers / 2) return hark_fail(context, HARK_IO_ERROR, "the disk is full");
    }
  return HARK_OK;
}

static hark_status transfer(hark_context *context, hark_group *group, void *user) {
  const engine_case *const c = user;
  hark_engine *engine = NULL;
  HARK_TRY(begin_engine(context, group, &c->config, &engine));
  hark_status status = HARK_OK;
  if (hark_group_rank(group) == 0)
    status = hark_moments_finish(context, engine, pass_moments(context, engine, c));
  else
    status = hark_moments_serve(context, engine);
  status = hark_group_agree(context, group, status);
  const hark_share own = engine->share.range;
  if (status == HARK_OK) status = compare(context, "first moments", &engine->first_moment, c->moments[0], own);
  if (status == HARK_OK) status = compare(context, "second moments", &engine->second_moment, c->moments[1], own);
  hark_engine_destroy(context, &engine);
  return status;
}

static void moments_come_and_go(void **state) {
  engine_case c;
  (void)state;
  hark_context *context = open_context();
  hark_options *options = open_engine_case(context, &c);
  for (int size = 1; size <= 5; size++) test_group_run(size, 60, transfer, &c, NULL, NULL);
  c.config.train.shard_optimiser = false;
  test_group_run(1, 60, transfer, &c, NULL, NULL);
  close_engine_case(context, &c, options);
  test_setup_close(context);
}

/* Nobody waits for a rank 0 that has failed. */
static void a_failure_of_rank_0_ends_the_service(void **state) {
  engine_case c;
  hark_status statuses[TEST_MOST_RANKS];
  char messages[TEST_MOST_RANKS][512];
  (void)state;
  hark_context *context = open_context();
  hark_options *options = open_engine_case(context, &c);
  c.rank = 0;
  test_group_run(3, 60, transfer, &c, statuses, messages);
  for (int rank = 0; rank < 3; rank++) {
    assert_int_equal(statuses[rank], HARK_IO_ERROR);
    assert_string_equal(messages[rank], "the disk is full");
  }
  close_engine_case(context, &c, options);
  test_setup_close(context);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(ranges_cover_all_weights),
      cmocka_unit_test(parts_of_groups_cover_them),
      cmocka_unit_test(every_process_gets_the_weights_of_all),
      cmocka_unit_test(steps_of_bounded_matrices_have_the_same_bits),
      cmocka_unit_test(divided_moments_need_less_memory),
      cmocka_unit_test(all_find_what_one_has),
      cmocka_unit_test(moments_come_and_go),
      cmocka_unit_test(a_failure_of_rank_0_ends_the_service),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
