/* test_decoding_batch.c - several decodings in one call: the bits of single steps for every kind of position and cache, prompts, weights of
 * every type, decodings that read again, refusals, cancelling, memory.
 */
#include <hark/hark.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/cmocka_all.h"
#include "support/setups.h"
#include "support/small_models.h"
#include "support/text_files.h"

enum { MANY = 5, STEPS = 3 };
static const int64_t lengths[MANY] = {1, 9, 4, 30, 17};

/* Token `i` of text `d`. */
static int32_t token_of(int d, int64_t i) { return small_model_token(13 * d + i); }

static void texts(int32_t tokens[MANY][CONTEXT], const int32_t *pointers[MANY]) {
  for (int d = 0; d < MANY; d++) {
    for (int i = 0; i < CONTEXT; i++) tokens[d][i] = token_of(d, i);
    pointers[d] = tokens[d];
  }
}

static void open_all(hark_context *context, const hark_model *model, hark_decoding *decodings[MANY]) {
  for (int d = 0; d < MANY; d++) decodings[d] = small_model_decoding(context, model);
}

static void close_all(hark_decoding *decodings[MANY]) {
  for (int d = 0; d < MANY; d++) hark_decoding_destroy(&decodings[d]);
}

/* Reads the prompts one by one. */
static void read_prompts(hark_context *context, hark_decoding *decodings[MANY]) {
  int32_t tokens[MANY][CONTEXT];
  const int32_t *pointers[MANY];
  texts(tokens, pointers);
  for (int d = 0; d < MANY; d++) assert_fine(context, hark_decoding_prefill(decodings[d], tokens[d], lengths[d]));
}

/* Logits after STEPS more tokens, in single steps. */
static void read_alone(hark_context *context, const hark_model *model, float logits[MANY][VOCABULARY]) {
  hark_decoding *alone[MANY];
  open_all(context, model, alone);
  read_prompts(context, alone);
  for (int d = 0; d < MANY; d++) {
    for (int i = 0; i < STEPS; i++) assert_fine(context, hark_decoding_step(alone[d], token_of(d, lengths[d] + i)));
    memcpy(logits[d], hark_decoding_logits(alone[d]), VOCABULARY * sizeof(float));
  }
  close_all(alone);
}

static void step_together(hark_context *context, hark_decoding_batch *batch, hark_decoding *decodings[MANY], int count, int i) {
  int32_t tokens[MANY];
  for (int d = 0; d < count; d++) tokens[d] = token_of(d, lengths[d] + i);
  assert_fine(context, hark_decoding_batch_step(batch, decodings, tokens, count));
}

static void compare_steps(hark_context *context, const hark_model *model, const char *what) {
  float expected[MANY][VOCABULARY];
  hark_decoding *decodings[MANY];
  hark_decoding_batch *batch = NULL;
  const hark_decoding_batch_options room = {.struct_size = sizeof room, .decodings = MANY};
  read_alone(context, model, expected);
  open_all(context, model, decodings);
  assert_fine(context, hark_decoding_batch_create(context, model, &room, &batch));
  read_prompts(context, decodings);
  for (int i = 0; i < STEPS; i++) step_together(context, batch, decodings, MANY, i);
  for (int d = 0; d < MANY; d++) {
    char text[256];
    snprintf(text, sizeof text, "%s, text %d", what, d);
    assert_int_equal(hark_decoding_length(decodings[d]), lengths[d] + STEPS);
    small_model_same_logits(decodings[d], expected[d], text);
  }
  hark_decoding_batch_destroy(&batch);
  close_all(decodings);
}

static void steps_together_have_the_bits_of_single_steps(void **state) {
  (void)state;
  test_setup setups[TEST_MAX_SETUPS];
  const int count = test_setups_guard_once(setups);
  for (int s = 0; s < 2 * count; s++) {
    const test_setup *setup = &setups[s / 2];
    hark_context *context = s % 2 == 0 ? test_setup_open(setup, 2) : test_setup_open_deterministic(setup, 2);
    for (int d = 0; d < DESCRIPTIONS; d++) {
      char what[128];
      snprintf(what, sizeof what, "%s:%s%s, description %d", setup->backend, setup->instruction_set, s % 2 ? ", deterministic" : "", d);
      hark_model *model = small_model_make(context, small_model_descriptions[d], 3);
      compare_steps(context, model, what);
      hark_model_destroy(context, &model);
    }
    test_setup_close(context);
  }
}

static void weights_of_every_type_do(void **state) {
  (void)state;
  static const hark_type types[] = {HARK_BF16, HARK_F16, HARK_I8};
  test_setup setups[TEST_MAX_SETUPS];
  const int count = test_setups_guard_once(setups);
  for (int s = 0; s < count; s++) {
    hark_context *context = test_setup_open(&setups[s], 2);
    for (int t = 0; t < 3; t++) {
      hark_model_options options = small_model_options(PLAIN);
      hark_model *model = NULL;
      options.matrices = types[t];
      assert_fine(context, hark_model_create(context, &options, 3, &model));
      compare_steps(context, model, hark_type_name(types[t]));
      hark_model_destroy(context, &model);
    }
    test_setup_close(context);
  }
}

/* Prompts of 150 tokens together, of which a pass holds 128: as alone, up to rounding; and with one token, which is a step. */
static void prompts_are_read_together(void **state) {
  (void)state;
  static const int64_t counts[MANY] = {37, 30, 1, 38, 36};
  test_setup setups[TEST_MAX_SETUPS];
  const int count = test_setups_guard_once(setups);
  int32_t tokens[MANY][CONTEXT];
  const int32_t *pointers[MANY];
  texts(tokens, pointers);
  for (int s = 0; s < count; s++) {
    hark_context *context = test_setup_open(&setups[s], 2);
    for (int m = 0; m < DESCRIPTIONS; m++) {
      hark_model *model = small_model_make(context, small_model_descriptions[m], 3);
      hark_decoding *decodings[MANY], *alone = small_model_decoding(context, model);
      hark_decoding_batch *batch = NULL;
      open_all(context, model, decodings);
      assert_fine(context, hark_decoding_batch_create(context, model, NULL, &batch));
      assert_fine(context, hark_decoding_batch_prefill(batch, decodings, pointers, counts, MANY));
      for (int d = 0; d < MANY; d++) {
        char what[128];
        snprintf(what, sizeof what, "%s:%s, description %d, text %d", setups[s].backend, setups[s].instruction_set, m, d);
        assert_int_equal(hark_decoding_length(decodings[d]), counts[d]);
        assert_fine(context, hark_decoding_truncate(alone, 0));
        assert_fine(context, hark_decoding_prefill(alone, tokens[d], counts[d]));
        small_model_near_logits(decodings[d], hark_decoding_logits(alone), what);
        assert_fine(context, hark_decoding_step(alone, 70)); /* the caches are good too */
        assert_fine(context, hark_decoding_step(decodings[d], 70));
        small_model_near_logits(decodings[d], hark_decoding_logits(alone), what);
      }
      hark_decoding_batch_destroy(&batch);
      hark_decoding_destroy(&alone);
      close_all(decodings);
      hark_model_destroy(context, &model);
    }
    test_setup_close(context);
  }
}

/* After cutting, caches that keep a part only read their tokens again in the same call. */
static void cut_decodings_are_read_again(void **state) {
  (void)state;
  hark_context *context = test_reference_open();
  for (int m = 0; m < DESCRIPTIONS; m++) {
    hark_model *model = small_model_make(context, small_model_descriptions[m], 3);
    float expected[MANY][VOCABULARY];
    hark_decoding *decodings[MANY];
    hark_decoding_batch *batch = NULL;
    read_alone(context, model, expected);
    open_all(context, model, decodings);
    read_prompts(context, decodings);
    for (int d = 0; d < MANY; d++) {
      assert_fine(context, hark_decoding_step(decodings[d], 99));
      assert_fine(context, hark_decoding_truncate(decodings[d], lengths[d]));
    }
    assert_fine(context, hark_decoding_batch_create(context, model, NULL, &batch));
    for (int i = 0; i < STEPS; i++) step_together(context, batch, decodings, MANY, i);
    for (int d = 0; d < MANY; d++) small_model_near_logits(decodings[d], expected[d], small_model_descriptions[m]);
    hark_decoding_batch_destroy(&batch);
    close_all(decodings);
    hark_model_destroy(context, &model);
  }
  test_setup_close(context);
}

static void wrong_calls_are_refused(void **state) {
  (void)state;
  hark_context *context = test_reference_open();
  hark_model *model = small_model_make(context, PLAIN, 3), *other = small_model_make(context, PLAIN, 4);
  hark_decoding *decodings[MANY], *foreign = small_model_decoding(context, other), *large = NULL, *few[2];
  hark_decoding_batch *batch = NULL;
  float expected[VOCABULARY];
  const hark_decoding_batch_options two = {.struct_size = sizeof two, .decodings = 2},
                                    wrong = {.struct_size = sizeof wrong, .decodings = -1}, short_one = {.struct_size = 4};
  const hark_decoding_options longer = {.struct_size = sizeof longer, .capacity = CONTEXT + 1};
  int32_t tokens[3] = {70, 71, 72};
  assert_failure(context, hark_decoding_batch_create(context, model, &wrong, &batch), HARK_INVALID_ARGUMENT, "-1 decodings");
  assert_failure(context, hark_decoding_batch_create(context, model, &short_one, &batch), HARK_INVALID_ARGUMENT, "struct_size");
  assert_null(batch);
  assert_fine(context, hark_decoding_batch_create(context, model, &two, &batch));
  open_all(context, model, decodings);
  assert_fine(context, hark_decoding_create(context, model, &longer, &large));
  assert_fine(context, hark_decoding_step(decodings[0], 70));
  memcpy(expected, hark_decoding_logits(decodings[0]), sizeof expected);
#define REFUSED(count, message)                                                                                                            \
  assert_failure(context, hark_decoding_batch_step(batch, few, tokens, count), HARK_INVALID_ARGUMENT, message);                            \
  assert_int_equal(hark_decoding_length(decodings[0]), 1);                                                                                 \
  small_model_same_logits(decodings[0], expected, message)
  few[0] = decodings[0];
  few[1] = decodings[0];
  REFUSED(2, "batch: decodings 0 and 1 are the same");
  few[1] = foreign;
  REFUSED(2, "batch: decoding 1 is of another model");
  few[1] = NULL;
  REFUSED(2, "batch: decoding 1 is NULL");
  few[1] = large;
  REFUSED(2, "batch: decoding 1 has a capacity of 41 tokens, expected at most 40");
  few[1] = decodings[1];
  REFUSED(0, "batch: 0 decodings, expected 1 to 2");
  REFUSED(3, "batch: 3 decodings, expected 1 to 2");
  tokens[1] = VOCABULARY;
  REFUSED(2, "batch: decoding 1: decoding: token 0 is 261, expected 0 to 260");
  tokens[1] = 71;
  int32_t whole[CONTEXT];
  small_model_fill(whole, CONTEXT);
  assert_fine(context, hark_decoding_prefill(decodings[1], whole, CONTEXT));
  REFUSED(2, "batch: decoding 1: decoding: there is no room, its capacity of");
  assert_fine(context, hark_decoding_batch_step(batch, few, tokens, 1)); /* and it works after all of them */
  assert_int_equal(hark_decoding_length(decodings[0]), 2);
  hark_decoding_destroy(&large);
  hark_decoding_destroy(&foreign);
  hark_decoding_batch_destroy(&batch);
  hark_decoding_batch_destroy(&batch);
  close_all(decodings);
  hark_model_destroy(context, &other);
  hark_model_destroy(context, &model);
  test_setup_close(context);
}

static bool after_some(void *user) {
  int *const left = user;
  return --*left < 0;
}

/* Cancelled in any layer, all decodings are as before. */
static void cancelling_leaves_everything_as_before(void **state) {
  (void)state;
  hark_context *context = test_reference_open();
  for (int m = 0; m < DESCRIPTIONS; m++) {
    hark_model *model = small_model_make(context, small_model_descriptions[m], 3);
    for (int layer = 0; layer < 2; layer++) {
      float expected[MANY][VOCABULARY];
      int left = 1 << 20;
      const hark_decoding_options cancelled = {.struct_size = sizeof cancelled, .cancel = after_some, .cancel_user = &left};
      hark_decoding *decodings[MANY];
      hark_decoding_batch *batch = NULL;
      int32_t tokens[MANY] = {70, 71, 72, 73, 74};
      read_alone(context, model, expected);
      open_all(context, model, decodings);
      hark_decoding_destroy(&decodings[2]);
      assert_fine(context, hark_decoding_create(context, model, &cancelled, &decodings[2]));
      read_prompts(context, decodings);
      assert_fine(context, hark_decoding_batch_create(context, model, NULL, &batch));
      left = layer;
      assert_int_equal(hark_decoding_batch_step(batch, decodings, tokens, MANY), HARK_CANCELLED);
      left = 1 << 20;
      for (int d = 0; d < MANY; d++) {
        assert_int_equal(hark_decoding_length(decodings[d]), lengths[d]);
        assert_null(hark_decoding_logits(decodings[d]));
      }
      for (int i = 0; i < STEPS; i++) step_together(context, batch, decodings, MANY, i);
      for (int d = 0; d < MANY; d++) small_model_near_logits(decodings[d], expected[d], small_model_descriptions[m]);
      hark_decoding_batch_destroy(&batch);
      close_all(decodings);
    }
    hark_model_destroy(context, &model);
  }
  test_setup_close(context);
}

/* Calls allocate nothing, with all decodings or some, prompts or steps; the n-th allocation of making it fails for every n. */
static void memory_is_taken_when_it_is_made(void **state) {
  (void)state;
  static const int64_t counts[MANY] = {35, 30, 1, 34, 36};
  int32_t tokens[MANY][CONTEXT];
  const int32_t *pointers[MANY];
  texts(tokens, pointers);
  for (int m = 0; m < DESCRIPTIONS; m++) {
    test_memory memory;
    hark_context *context = test_memory_context(&memory);
    hark_model *model = small_model_make(context, small_model_descriptions[m], 3);
    hark_decoding *decodings[MANY];
    hark_decoding_batch *batch = NULL;
    open_all(context, model, decodings);
    hark_status status = HARK_OUT_OF_MEMORY;
    long failures = 0;
    for (long fail_at = 1; status != HARK_OK; fail_at++) {
      memory.fail_at = memory.allocations + fail_at;
      status = hark_decoding_batch_create(context, model, NULL, &batch);
      if (status != HARK_OK && status != HARK_OUT_OF_MEMORY) fail_msg("allocation %ld: %s", fail_at, hark_context_message(context));
      failures += status != HARK_OK;
    }
    assert_true(failures > 10);
    memory.fail_at = 0;
    const long before = memory.allocations;
    assert_fine(context, hark_decoding_batch_prefill(batch, decodings, pointers, counts, MANY));
    for (int i = 0; i < STEPS; i++) {
      int32_t next[MANY] = {70, 71, 72, 73, 74};
      assert_fine(context, hark_decoding_batch_step(batch, decodings, next, MANY - i));
    }
    if (memory.allocations != before) fail_msg("description %d: %ld allocations in calls", m, memory.allocations - before);
    hark_decoding_batch_destroy(&batch);
    close_all(decodings);
    hark_model_destroy(context, &model);
    test_memory_context_end(context, &memory);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(steps_together_have_the_bits_of_single_steps),
      cmocka_unit_test(weights_of_every_type_do),
      cmocka_unit_test(prompts_are_read_together),
      cmocka_unit_test(cut_decodings_are_read_again),
      cmocka_unit_test(wrong_calls_are_refused),
      cmocka_unit_test(cancelling_leaves_everything_as_before),
      cmocka_unit_test(memory_is_taken_when_it_is_made),
  };
  return cmocka_run_group_tests_name("decoding batch", tests, NULL, NULL);
}
