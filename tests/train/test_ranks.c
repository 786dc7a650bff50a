/* test_ranks.c - training by several processes has the bits of training by one, also when a run is resumed by another number of them.
 * Threads are in the place of processes (support/train/group_threads.h). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/cmocka_all.h"
#include "support/setups.h"
#include "support/train/group_threads.h"
#include "support/train/small_run.h"

static char folder[TEST_PATH_BYTES];

typedef struct training_case {
  small_run small;
  char path[TEST_PATH_BYTES + 64];
  int stopping_rank; /* of the one that is asked to stop; -1: none */
  int stop_step;
} training_case;

typedef struct stopper {
  const training_case *c;
  int rank, polls;
} stopper;

/* Called after every step, and during evaluations. */
static hark_request stop_later(void *user) {
  stopper *const s = user;
  if (s->c->stopping_rank != s->rank) return HARK_REQUEST_NONE;
  return ++s->polls >= s->c->stop_step ? HARK_REQUEST_STOP : HARK_REQUEST_NONE;
}

static hark_status train_as_rank(hark_context *context, hark_group *group, void *user) {
  const training_case *const c = user;
  stopper s = {.c = c, .rank = hark_group_rank(group)};
  const hark_train_hooks hooks = {.user = &s, .request = stop_later};
  context->group = group;
  if (s.rank == 0) return hark_group_agree(context, group, small_run_train(context, &c->small, c->path, &hooks, NULL));
  hark_run run = {.lock = -1};
  hark_train_result result;
  (void)snprintf(run.path, sizeof run.path, "%s", c->path);
  return hark_group_agree(context, group, hark_train(context, &c->small.config, &run, &hooks, &result)); /* as the command does */
}

static void open_case_with(training_case *c, bool examples, int count, const char *const *words) {
  memset(c, 0, sizeof *c);
  small_run_open_with(&c->small, folder, examples, count, words);
  c->small.config.train.accumulate = 9;
  c->small.config.train.clip = 0.05;
  c->small.config.train.steps = 6;
  c->small.config.train.keep = 10;
  c->stopping_rank = -1;
}

static void open_case(training_case *c, bool examples) { open_case_with(c, examples, 0, NULL); }

static void name_run(training_case *c, const char *name) { (void)snprintf(c->path, sizeof c->path, "%s/%s", folder, name); }

static void train_by(training_case *c, int ranks) { test_group_run(ranks, 60, train_as_rank, c, NULL, NULL); }

/* Alone without the option, by others with moments that are divided or not. */
static void compare_numbers_of_ranks(bool examples, bool divided, int count, const char *const *words) {
  static const int sizes[] = {2, 3, 4, 8};
  training_case c;
  char alone[TEST_PATH_BYTES + 64];
  test_folder_make(folder);
  open_case_with(&c, examples, count, words);
  name_run(&c, "alone");
  memcpy(alone, c.path, sizeof alone);
  hark_context *context = small_run_context(1);
  assert_fine(context, small_run_train(context, &c.small, c.path, NULL, NULL));
  test_setup_close(context);
  c.small.config.train.shard_optimiser = divided;
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    char name[32];
    (void)snprintf(name, sizeof name, "by-%d", sizes[i]);
    name_run(&c, name);
    train_by(&c, sizes[i]);
    small_run_assert_same(alone, c.path, 6);
  }
  small_run_close(&c.small);
  test_folder_remove(folder);
}

static void windows_of_a_text(void **state) {
  (void)state;
  compare_numbers_of_ranks(false, false, 0, NULL);
}

/* Matrices have only moments of rows and columns. */
static void windows_with_adafactor(void **state) {
  static const char *const words[] = {"--optimiser=adafactor", "--train.adafactor.factor-from=8", "--train.adafactor.relative",
                                      "--train.adafactor.beta1=0.9"};
  (void)state;
  compare_numbers_of_ranks(false, false, 4, words);
  compare_numbers_of_ranks(true, false, 2, words);
}

static void windows_with_divided_moments(void **state) {
  (void)state;
  compare_numbers_of_ranks(false, true, 0, NULL);
}

static void examples(void **state) {
  (void)state;
  compare_numbers_of_ranks(true, false, 0, NULL);
}

/* So many weights that they are exchanged in several rounds, which begin while the backward runs; messages are late. */
static void rounds_during_the_backward(void **state) {
  (void)state;
  static const char *const plain[] = {"--layers=4", "--width=64", "--heads=4", "--steps=2"};
  static const char *const tied[] = {"--layers=2", "--width=64", "--heads=4", "--recompute", "--positions=learned", "--no-tie-embeddings"};
  test_group_lateness = 5;
  compare_numbers_of_ranks(false, false, 4, plain);
  compare_numbers_of_ranks(false, true, 6, tied);
  compare_numbers_of_ranks(true, false, 4, plain);
  test_group_lateness = 0;
}

static void examples_with_divided_moments(void **state) {
  (void)state;
  compare_numbers_of_ranks(true, true, 0, NULL);
}

/* Weights that are frozen, and those with other rates and decays, have ranges of their own, which the bounds of processes divide. */
static void divided_groups_of_parameters(void **state) {
  static const char *frozen[] = {"*norm*", "blocks.0.attention.key.*"};
  training_case c;
  char alone[TEST_PATH_BYTES + 64];
  (void)state;
  test_folder_make(folder);
  open_case(&c, false);
  c.small.config.train.freeze = (hark_string_list){.items = frozen, .count = 2};
  c.small.config.train.positional_rate = 0.3;
  c.small.config.model.positional = "bank[2](decay*periodic)";
  name_run(&c, "alone");
  memcpy(alone, c.path, sizeof alone);
  train_by(&c, 1);
  c.small.config.train.shard_optimiser = true;
  name_run(&c, "divided");
  train_by(&c, 5);
  small_run_assert_same(alone, c.path, 6);
  small_run_close(&c.small);
  test_folder_remove(folder);
}

/* Begun by four, of which the last one is asked to stop; resumed by three, and by one. */
static void resumed_by_others(void **state) {
  (void)state;
  training_case c;
  char whole[TEST_PATH_BYTES + 64];
  test_folder_make(folder);
  open_case(&c, false);
  name_run(&c, "whole");
  memcpy(whole, c.path, sizeof whole);
  train_by(&c, 1);
  name_run(&c, "parts");
  c.stopping_rank = 3;
  c.stop_step = 1;
  train_by(&c, 4);
  c.stopping_rank = 1;
  train_by(&c, 3);
  c.stopping_rank = -1;
  train_by(&c, 1);
  small_run_assert_same(whole, c.path, 6);
  small_run_close(&c.small);
  test_folder_remove(folder);
}

/* Moments of rows and columns, begun by three, resumed by four and by one. */
static void adafactor_resumed_by_others(void **state) {
  static const char *const words[] = {"--optimiser=adafactor", "--train.adafactor.factor-from=8"};
  static const int ranks[] = {3, 4, 1};
  training_case c;
  char whole[TEST_PATH_BYTES + 64];
  (void)state;
  test_folder_make(folder);
  open_case_with(&c, false, 2, words);
  name_run(&c, "whole");
  memcpy(whole, c.path, sizeof whole);
  train_by(&c, 1);
  name_run(&c, "parts");
  for (int part = 0; part < 3; part++) {
    c.stopping_rank = part < 2 ? 0 : -1;
    c.stop_step = 1;
    train_by(&c, ranks[part]);
  }
  small_run_assert_same(whole, c.path, 6);
  small_run_close(&c.small);
  test_folder_remove(folder);
}

/* Moments are divided, undivided, and divided among others. */
static void resumed_with_and_without_divided_moments(void **state) {
  static const int ranks[] = {4, 3, 2, 1, 3, 2};
  training_case c;
  char whole[TEST_PATH_BYTES + 64];
  (void)state;
  test_folder_make(folder);
  open_case(&c, false);
  name_run(&c, "whole");
  memcpy(whole, c.path, sizeof whole);
  train_by(&c, 1);
  name_run(&c, "parts");
  for (int part = 0; part < 6; part++) {
    c.stopping_rank = part < 5 ? ranks[part] - 1 : -1;
    c.stop_step = 1;
    c.small.config.train.shard_optimiser = part % 2 == 0 || part == 3;
    train_by(&c, ranks[part]);
  }
  small_run_assert_same(whole, c.path, 6);
  small_run_close(&c.small);
  test_folder_remove(folder);
}

/* ---- what is refused ---- */

static void assert_refused(training_case *c, int ranks, hark_status status, const char *message) {
  hark_status statuses[TEST_MOST_RANKS];
  char messages[TEST_MOST_RANKS][512];
  test_group_run(ranks, 60, train_as_rank, c, statuses, messages);
  for (int rank = 0; rank < ranks; rank++) {
    assert_int_equal(statuses[rank], status);
    if (strstr(messages[rank], message) == NULL) fail_msg("rank %d: \"%s\", expected \"%s\"", rank, messages[rank], message);
  }
}

static void refused(void **state) {
  (void)state;
  training_case c;
  test_folder_make(folder);
  open_case(&c, false);
  name_run(&c, "refused");
  c.small.config.train.accumulate = 2;
  assert_refused(&c, 3, HARK_BAD_CONFIGURATION, "train.accumulate is 2");
  small_run_close(&c.small);
  test_folder_remove(folder);
}

/* The last rank reads another text. */
static hark_status train_on_another_text(hark_context *context, hark_group *group, void *user) {
  training_case copy = *(const training_case *)user;
  char other[TEST_PATH_BYTES + 64];
  const char *paths[] = {other};
  (void)snprintf(other, sizeof other, "%s/other.txt", folder);
  if (hark_group_rank(group) == hark_group_size(group) - 1) copy.small.config.data.paths = (hark_string_list){.items = paths, .count = 1};
  return train_as_rank(context, group, &copy);
}

static void another_text_is_found(void **state) {
  (void)state;
  training_case c;
  hark_status statuses[TEST_MOST_RANKS];
  char messages[TEST_MOST_RANKS][512];
  test_folder_make(folder);
  open_case(&c, false);
  name_run(&c, "another");
  size_t bytes;
  unsigned char *text = test_file_read(c.small.text, &bytes);
  text[bytes / 2] = text[bytes / 2 + 1];
  text[bytes / 2 + 7] = text[bytes / 2 + 1];
  (void)test_file_write(folder, "other.txt", text, bytes);
  free(text);
  test_group_run(3, 60, train_on_another_text, &c, statuses, messages);
  for (int rank = 0; rank < 3; rank++) {
    assert_int_equal(statuses[rank], HARK_BAD_CONFIGURATION);
    assert_string_equal(messages[rank], "rank 2: the data are not those of rank 0");
  }
  small_run_close(&c.small);
  test_folder_remove(folder);
}

/* ---- a rank fails in the middle of its backward ---- */

typedef struct saboteur {
  hark_context *context;
  hark_status with;
  hark_engine *engine;
  hark_tape_watch real;
  int64_t step, micro_batch; /* where it fails */
  bool next;
} saboteur;

static void pass_leaf(void *user, const hark_tensor *gradient, int32_t node) {
  const saboteur *const s = user;
  if (s->real.leaf != NULL) s->real.leaf(s->real.user, gradient, node);
}

/* Fails at the tenth node from the end of the backward. */
static hark_status fail_at_node(void *user, int32_t node) {
  const saboteur *const s = user;
  if (s->real.done != NULL) HARK_TRY(s->real.done(s->real.user, node));
  return s->next && node == 10 ? hark_fail(s->context, s->with, "sabotage") : HARK_OK;
}

/* Called after a micro-batch: the next one of this rank may be the one that fails. */
static hark_status prepare_to_fail(void *user, hark_engine *engine, int64_t step, int64_t micro_batch) {
  saboteur *const s = user;
  const hark_tape_watch watch = {s, pass_leaf, fail_at_node};
  if (s->engine == NULL) {
    s->real = hark_gradient_sum_watch(&engine->sum, &engine->network->parameters);
    hark_tape_set_watch(engine->tape, &watch);
  }
  s->engine = engine;
  s->next = step == s->step && micro_batch + 1 == s->micro_batch;
  return HARK_OK;
}

typedef struct sabotaged_case {
  training_case training;
  hark_status with;
} sabotaged_case;

/* Micro-batch 5 of 9 in step 3: of 3 ranks the last one of the second, of 4 that of the third. */
static hark_status train_sabotaged(hark_context *context, hark_group *group, void *user) {
  const sabotaged_case *const c = user;
  saboteur s = {.context = context, .with = c->with, .step = 3, .micro_batch = 5};
  const hark_train_hooks hooks = {.user = &s, .gradients = prepare_to_fail};
  context->group = group;
  if (hark_group_rank(group) == 0)
    return hark_group_agree(context, group, small_run_train(context, &c->training.small, c->training.path, &hooks, NULL));
  hark_run run = {.lock = -1};
  hark_train_result result;
  (void)snprintf(run.path, sizeof run.path, "%s", c->training.path);
  return hark_group_agree(context, group, hark_train(context, &c->training.small.config, &run, &hooks, &result));
}

static void open_sabotaged(sabotaged_case *c, hark_status with) {
  static const char *const words[] = {"--layers=4", "--width=64", "--heads=4"};
  test_folder_make(folder);
  open_case_with(&c->training, false, 3, words);
  c->training.small.config.train.steps = 4;
  c->with = with;
}

static void a_backward_fails(void **state) {
  (void)state;
  static const int sizes[] = {2, 3, 4};
  sabotaged_case c;
  open_sabotaged(&c, HARK_IO_ERROR);
  for (size_t i = 0; i < 3; i++) {
    hark_status statuses[TEST_MOST_RANKS];
    char messages[TEST_MOST_RANKS][512], name[32];
    (void)snprintf(name, sizeof name, "failing-%d", sizes[i]);
    name_run(&c.training, name);
    test_group_run(sizes[i], 60, train_sabotaged, &c, statuses, messages);
    for (int rank = 0; rank < sizes[i]; rank++) {
      assert_int_equal(statuses[rank], HARK_IO_ERROR);
      assert_non_null(strstr(messages[rank], "sabotage"));
    }
    assert_int_equal(test_group_lost, 0);
  }
  small_run_close(&c.training.small);
  test_folder_remove(folder);
}

/* A step whose numbers one rank cannot compute is left out by all, and the next one has the same bits as alone. */
static void a_step_is_left_out(void **state) {
  (void)state;
  static const int sizes[] = {1, 2, 3, 4};
  sabotaged_case c;
  char alone[TEST_PATH_BYTES + 64];
  open_sabotaged(&c, HARK_NOT_FINITE);
  for (size_t i = 0; i < 4; i++) {
    char name[32];
    (void)snprintf(name, sizeof name, "left-out-%d", sizes[i]);
    name_run(&c.training, name);
    test_group_run(sizes[i], 60, train_sabotaged, &c, NULL, NULL);
    if (sizes[i] == 1) memcpy(alone, c.training.path, sizeof alone);
    small_run_assert_same(alone, c.training.path, 4);
    assert_int_equal(test_group_lost, 0);
  }
  small_run_close(&c.training.small);
  test_folder_remove(folder);
}

/* ---- no memory at one rank ---- */

typedef struct memory_case {
  training_case training;
  int rank;    /* whose allocation fails */
  long number; /* which one; 0: none */
  long made;   /* allocations of that rank */
} memory_case;

static hark_status train_with_little_memory(hark_context *context, hark_group *group, void *user) {
  memory_case *const c = user;
  test_memory memory = {.fail_at = 0};
  hark_context *own = NULL;
  if (hark_group_rank(group) != c->rank) return train_as_rank(context, group, &c->training);
  HARK_TRY(test_memory_create(&memory, "cpu", &own));
  memory.fail_at = c->number > 0 ? memory.allocations + c->number : 0;
  const long before = memory.allocations;
  const hark_status status = train_as_rank(own, group, &c->training);
  c->made = memory.allocations - before;
  memory.fail_at = 0;
  const hark_status same = status == HARK_OK ? HARK_OK : hark_fail(context, status, "%s", hark_context_message(own));
  hark_group_release(own, group);
  test_memory_context_end(own, &memory);
  return same;
}

/* One allocation fails somewhere in the run of a rank: all ranks end, with this error. */
static void fail_at_one_rank(bool divided) {
  enum { RANKS = 3, PLACES = 50 };
  memory_case c = {.number = 0};
  test_folder_make(folder);
  open_case(&c.training, false);
  c.training.small.config.train.shard_optimiser = divided;
  c.training.small.config.train.steps = 2;
  for (c.rank = 0; c.rank < 2; c.rank++) {
    long all = PLACES;
    for (int place = 0; place <= PLACES; place++) {
      hark_status statuses[TEST_MOST_RANKS];
      char messages[TEST_MOST_RANKS][512], name[32];
      (void)snprintf(name, sizeof name, "memory-%d-%d", c.rank, place);
      name_run(&c.training, name);
      c.number = place == 0 ? 0 : 1 + (place - 1) * (all - 1) / (PLACES - 1);
      test_group_run(RANKS, 60, train_with_little_memory, &c, statuses, messages);
      if (place == 0) all = c.made;
      const bool reached = place > 0 && c.made >= c.number; /* the last one is not made in every run */
      for (int rank = 0; rank < RANKS; rank++)
        if (statuses[rank] != (reached ? HARK_OUT_OF_MEMORY : HARK_OK))
          fail_msg("allocation %ld of %ld at rank %d: rank %d has status %d, %s", c.number, all, c.rank, rank, (int)statuses[rank],
                   messages[rank]);
    }
    assert_true(all > PLACES);
  }
  small_run_close(&c.training.small);
  test_folder_remove(folder);
}

static void no_memory_at_one_rank(void **state) {
  (void)state;
  fail_at_one_rank(false);
}

static void no_memory_at_one_rank_with_divided_moments(void **state) {
  (void)state;
  fail_at_one_rank(true);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(windows_of_a_text),
      cmocka_unit_test(examples),
      cmocka_unit_test(resumed_by_others),
      cmocka_unit_test(refused),
      cmocka_unit_test(rounds_during_the_backward),
      cmocka_unit_test(a_backward_fails),
      cmocka_unit_test(a_step_is_left_out),
      cmocka_unit_test(another_text_is_found),
      cmocka_unit_test(no_memory_at_one_rank),
      cmocka_unit_test(windows_with_adafactor),
      cmocka_unit_test(windows_with_divided_moments),
      cmocka_unit_test(examples_with_divided_moments),
      cmocka_unit_test(divided_groups_of_parameters),
      cmocka_unit_test(adafactor_resumed_by_others),
      cmocka_unit_test(resumed_with_and_without_divided_moments),
      cmocka_unit_test(no_memory_at_one_rank_with_divided_moments),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
