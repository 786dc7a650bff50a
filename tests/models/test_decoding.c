/* test_decoding.c - <hark/model.h>: decoding with all its ways out, and four threads that share a model. */
#include <hark/hark.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/checksum.h"
#include "core/core.h"
#include "support/cmocka_all.h"
#include "support/setups.h"
#include "support/small_models.h"
#include "support/text_files.h"

/* Read at once, token by token, and in parts: the same up to rounding. */
static void reading_at_once_agrees_with_steps(void **state) {
  (void)state;
  enum { LONG = 300, ROOM = 320 };
  test_setup setups[TEST_MAX_SETUPS];
  const int setup_count = test_setups_guard_once(setups);
  static int32_t tokens[LONG];
  small_model_fill(tokens, LONG);
  for (int s = 0; s < setup_count; s++)
    for (int d = 0; d < DESCRIPTIONS; d++) {
      hark_context *context = test_setup_open(&setups[s], 2);
      hark_model *model = small_model_make(context, small_model_descriptions[d], 3);
      /* positions that end, or all of what was read anew for every token: no long text */
      const bool bounded = strstr(small_model_descriptions[d], "learned") != NULL || strstr(small_model_descriptions[d], "dynamic") != NULL;
      const int64_t count = bounded ? CONTEXT : LONG;
      const hark_decoding_options options = {.struct_size = sizeof options, .capacity = bounded ? 0 : ROOM};
      hark_decoding *whole = NULL, *steps = NULL;
      assert_fine(context, hark_decoding_create(context, model, &options, &whole));
      assert_fine(context, hark_decoding_create(context, model, &options, &steps));
      assert_int_equal(hark_decoding_capacity(whole), bounded ? CONTEXT : ROOM);
      assert_fine(context, hark_decoding_prefill(whole, tokens, count));
      for (int64_t i = 0; i < count; i++) assert_fine(context, hark_decoding_step(steps, tokens[i]));
      char what[96];
      (void)snprintf(what, sizeof what, "%s %s, model %d, by steps", setups[s].backend, setups[s].instruction_set, d);
      const float *logits = hark_decoding_logits(whole);
      small_model_near_logits(steps, logits, what);
      float largest = 0;
      for (int i = 0; i < VOCABULARY; i++) largest = fmaxf(largest, fabsf(logits[i]));
      assert_true(largest > 0.01f);
      hark_decoding_destroy(&whole);
      hark_decoding_destroy(&steps);
      hark_model_destroy(context, &model);
      test_setup_close(context);
    }
}

/* The logits after FILLED tokens and after one more, in a decoding with that capacity. */
enum { FILLED = 5 };
static void read_with_capacity(hark_context *context, const hark_model *model, int64_t capacity, float logits[2][VOCABULARY]) {
  const hark_decoding_options options = {.struct_size = sizeof options, .capacity = capacity};
  hark_decoding *decoding = NULL;
  int32_t tokens[FILLED + 1];
  small_model_fill(tokens, FILLED + 1);
  assert_fine(context, hark_decoding_create(context, model, &options, &decoding));
  assert_fine(context, hark_decoding_prefill(decoding, tokens, FILLED));
  memcpy(logits[0], hark_decoding_logits(decoding), sizeof logits[0]);
  assert_fine(context, hark_decoding_step(decoding, tokens[FILLED]));
  memcpy(logits[1], hark_decoding_logits(decoding), sizeof logits[1]);
  hark_decoding_destroy(&decoding);
}

/* Room that is not used changes no bit. */
static void the_capacity_changes_nothing(void **state) {
  (void)state;
  test_setup setups[TEST_MAX_SETUPS];
  const int setup_count = test_setups_guard_once(setups);
  for (int s = 0; s < setup_count; s++)
    for (int d = 0; d < DESCRIPTIONS; d++) {
      float enough[2][VOCABULARY], more[2][VOCABULARY];
      hark_context *context = test_setup_open(&setups[s], 2);
      hark_model *model = small_model_make(context, small_model_descriptions[d], 3);
      read_with_capacity(context, model, FILLED + 1, enough);
      read_with_capacity(context, model, CONTEXT, more);
      if (memcmp(enough, more, sizeof more) != 0) fail_msg("%s: %s: other bits", setups[s].backend, small_model_descriptions[d]);
      hark_model_destroy(context, &model);
      test_setup_close(context);
    }
}

/* Nothing is allocated between create and destroy, whatever the lengths of what is read; with the caller's memory, nothing at all stays. */
static void nothing_is_allocated_per_token(void **state) {
  (void)state;
  test_setup setups[TEST_MAX_SETUPS];
  const int setup_count = test_setups_guard_once(setups);
  for (int s = 0; s < setup_count; s++)
    for (int d = 0; d < DESCRIPTIONS; d++) {
      hark_context *context = test_setup_open(&setups[s], 3);
      hark_model *model = small_model_make(context, small_model_descriptions[d], 3);
      hark_decoding_options options = {.struct_size = sizeof options};
      size_t bytes = 0;
      assert_fine(context, hark_decoding_size(context, model, &options, &bytes));
      char *memory = malloc(bytes + 1);
      assert_non_null(memory);
      for (int own = 0; own < 2; own++) {
        hark_decoding *decoding = NULL;
        options.memory = own ? memory + 1 : NULL; /* any alignment */
        options.memory_bytes = own ? bytes : 0;
        const size_t live = hark_context_memory(context).live_bytes;
        assert_fine(context, hark_decoding_create(context, model, &options, &decoding));
        const hark_memory_use before = hark_context_memory(context);
        if (own) assert_int_equal(before.live_bytes, live);
        int32_t tokens[CONTEXT], token = 0;
        small_model_fill(tokens, CONTEXT);
        hark_sampling sampling = hark_sampling_default();
        for (int64_t count = CONTEXT; count >= 1; count--) {
          assert_fine(context, hark_decoding_truncate(decoding, 0));
          assert_fine(context, hark_decoding_prefill(decoding, tokens, count));
          assert_fine(context, hark_decoding_choose(decoding, &sampling, (uint64_t)count, &token));
          assert_in_range(token, 5, VOCABULARY - 1);
        }
        for (int64_t i = 1; i < CONTEXT; i++) assert_fine(context, hark_decoding_step(decoding, tokens[i]));
        assert_int_equal(hark_decoding_length(decoding), CONTEXT);
        const size_t saved = hark_decoding_saved_bytes(decoding);
        void *copy = malloc(saved);
        assert_fine(context, hark_decoding_save(decoding, copy, saved));
        assert_fine(context, hark_decoding_restore(decoding, copy, saved));
        free(copy);
        const hark_memory_use after = hark_context_memory(context);
        assert_int_equal(after.allocations, before.allocations);
        assert_int_equal(after.live_bytes, before.live_bytes);
        hark_decoding_destroy(&decoding);
        assert_null(decoding);
        assert_int_equal(hark_context_memory(context).live_bytes, live);
      }
      /* one byte too few is reported, and nothing is written beyond it */
      hark_decoding *none = NULL;
      options.memory = memory + 1;
      options.memory_bytes = bytes - HARK_ALIGNMENT;
      assert_failure(context, hark_decoding_create(context, model, &options, &none), HARK_INVALID_ARGUMENT, "bytes of memory, expected");
      assert_null(none);
      free(memory);
      hark_model_destroy(context, &model);
      test_setup_close(context);
    }
}

/* Bytes outside of the block that was asked for stay as they are. */
static void the_callers_memory_is_not_left(void **state) {
  (void)state;
  enum { FENCE = 256 };
  hark_context *context = test_setup_open(&(test_setup){"cpu", NULL}, 2);
  hark_model *model = small_model_make(context, PLAIN, 3);
  hark_decoding_options options = {.struct_size = sizeof options};
  size_t bytes = 0;
  assert_fine(context, hark_decoding_size(context, model, &options, &bytes));
  unsigned char *memory = malloc(bytes + 2 * FENCE);
  assert_non_null(memory);
  memset(memory, 0xa5, bytes + 2 * FENCE);
  options.memory = memory + FENCE;
  options.memory_bytes = bytes;
  hark_decoding *decoding = NULL;
  int32_t tokens[CONTEXT];
  small_model_fill(tokens, CONTEXT);
  assert_fine(context, hark_decoding_create(context, model, &options, &decoding));
  assert_fine(context, hark_decoding_prefill(decoding, tokens, CONTEXT));
  hark_decoding_destroy(&decoding);
  for (size_t i = 0; i < FENCE; i++)
    if (memory[i] != 0xa5 || memory[FENCE + bytes + i] != 0xa5) fail_msg("byte %zu beside the block was written", i);
  free(memory);
  hark_model_destroy(context, &model);
  test_setup_close(context);
}

/* Saved after every token and restored into a fresh decoding: the rest has the same bits. */
static void saving_is_no_interruption(void **state) {
  (void)state;
  enum { PREFIX = 7 };
  test_setup setups[TEST_MAX_SETUPS];
  const int setup_count = test_setups_guard_once(setups);
  int32_t tokens[CONTEXT];
  small_model_fill(tokens, CONTEXT);
  for (int s = 0; s < setup_count; s++)
    for (int d = 0; d < DESCRIPTIONS; d++) {
      hark_context *context = test_setup_open(&setups[s], 1);
      hark_model *model = small_model_make(context, small_model_descriptions[d], 3);
      hark_decoding *whole = small_model_decoding(context, model);
      static float expected[CONTEXT][VOCABULARY];
      assert_fine(context, hark_decoding_prefill(whole, tokens, PREFIX));
      memcpy(expected[PREFIX - 1], hark_decoding_logits(whole), sizeof expected[0]);
      for (int i = PREFIX; i < CONTEXT; i++) {
        assert_fine(context, hark_decoding_step(whole, tokens[i]));
        memcpy(expected[i], hark_decoding_logits(whole), sizeof expected[0]);
      }
      for (int at = PREFIX; at < CONTEXT; at += 8) {
        hark_decoding *before = small_model_decoding(context, model), *after = small_model_decoding(context, model);
        assert_fine(context, hark_decoding_prefill(before, tokens, PREFIX));
        for (int i = PREFIX; i < at; i++) assert_fine(context, hark_decoding_step(before, tokens[i]));
        const size_t bytes = hark_decoding_saved_bytes(before);
        void *saved = malloc(bytes);
        assert_fine(context, hark_decoding_save(before, saved, bytes));
        hark_decoding_destroy(&before);
        assert_fine(context, hark_decoding_prefill(after, tokens, 3)); /* what it held is replaced */
        assert_fine(context, hark_decoding_restore(after, saved, bytes));
        assert_int_equal(hark_decoding_length(after), at);
        small_model_same_logits(after, expected[at - 1], "restored");
        for (int i = at; i < CONTEXT; i++) {
          assert_fine(context, hark_decoding_step(after, tokens[i]));
          small_model_same_logits(after, expected[i], "going on");
        }
        /* and once more, cut back to more than what was saved */
        assert_fine(context, hark_decoding_truncate(after, at));
        assert_null(hark_decoding_logits(after));
        assert_fine(context, hark_decoding_step(after, tokens[at]));
        if (small_model_reads_again(small_model_descriptions[d]))
          small_model_near_logits(after, expected[at], "cut back");
        else
          small_model_same_logits(after, expected[at], "cut back");
        hark_decoding_destroy(&after);
        free(saved);
      }
      hark_decoding_destroy(&whole);
      hark_model_destroy(context, &model);
      test_setup_close(context);
    }
}

/* What a decoding of one capacity has read, others take over that have room for it, whatever their caches look like; then they go on. */
static void saved_bytes_fit_other_capacities(void **state) {
  (void)state;
  enum { READ = 20, MORE = 4 };
  static const int64_t from[] = {READ, CONTEXT, 700}, to[] = {READ, READ + MORE, CONTEXT, 100, 700};
  hark_context *context = test_setup_open(&(test_setup){"cpu", NULL}, 1);
  int32_t tokens[READ + MORE];
  float expected[MORE + 1][VOCABULARY];
  small_model_fill(tokens, READ + MORE);
  for (int d = 0; d < DESCRIPTIONS; d++) {
    if (strstr(small_model_descriptions[d], "learned") != NULL) continue; /* has room for its context only */
    hark_model *model = small_model_make(context, small_model_descriptions[d], 3);
    for (size_t f = 0; f < sizeof from / sizeof *from; f++)
      for (size_t t = 0; t < sizeof to / sizeof *to; t++) {
        hark_decoding *before = NULL, *after = NULL, *small = NULL;
        hark_decoding_options options = {.struct_size = sizeof options, .capacity = from[f]};
        char what[96];
        (void)snprintf(what, sizeof what, "model %d, from %d to %d tokens", d, (int)from[f], (int)to[t]);
        assert_fine(context, hark_decoding_create(context, model, &options, &before));
        options.capacity = to[t];
        assert_fine(context, hark_decoding_create(context, model, &options, &after));
        options.capacity = READ - 1;
        assert_fine(context, hark_decoding_create(context, model, &options, &small));
        assert_fine(context, hark_decoding_prefill(before, tokens, READ));
        memcpy(expected[0], hark_decoding_logits(before), sizeof expected[0]);
        const size_t bytes = hark_decoding_saved_bytes(before);
        void *saved = malloc(bytes);
        assert_fine(context, hark_decoding_save(before, saved, bytes));
        assert_failure(context, hark_decoding_restore(small, saved, bytes), HARK_INVALID_ARGUMENT, "holds 20 tokens, there is room for 19");
        assert_fine(context, hark_decoding_prefill(after, tokens + 1, 5)); /* what it held is replaced */
        assert_fine(context, hark_decoding_restore(after, saved, bytes));
        assert_int_equal(hark_decoding_length(after), READ);
        small_model_same_logits(after, expected[0], what);
        for (int i = 0; i < MORE && READ + i < to[t]; i++) {
          assert_fine(context, hark_decoding_step(after, tokens[READ + i]));
          if (READ + i >= from[f]) continue;
          assert_fine(context, hark_decoding_step(before, tokens[READ + i]));
          small_model_near_logits(after, hark_decoding_logits(before), what);
        }
        free(saved);
        hark_decoding_destroy(&before);
        hark_decoding_destroy(&after);
        hark_decoding_destroy(&small);
      }
    hark_model_destroy(context, &model);
  }
  test_setup_close(context);
}

/* Stores the correct checksum after bytes that were changed, as someone would who wants them accepted. */
static void sign(unsigned char *saved, size_t bytes) {
  const uint64_t checksum = hark_checksum_block(HARK_CHECKSUM_START, saved, bytes - sizeof checksum);
  memcpy(saved + bytes - sizeof checksum, &checksum, sizeof checksum);
}

/* Counts that do not belong to the bytes, up to those that overflow, under a right checksum. */
static void forged_counts_are_refused(void **state) {
  (void)state;
  enum { BYTES_AT = 24, LENGTH_AT = 32, LOGITS_AT = 40, LEVELS_AT = 48, FINISHED_AT = 56 }; /* in the header */
  static const int at[] = {BYTES_AT, LENGTH_AT, LOGITS_AT, LEVELS_AT, FINISHED_AT};
  static const uint64_t counts[] = {0,         1, 2, 3, 6, 19, 41, 42, 1 << 20, (uint64_t)1 << 32, (uint64_t)1 << 60, UINT64_MAX / 2 + 1,
                                    UINT64_MAX};
  hark_context *context = test_setup_open(&(test_setup){"cpu", NULL}, 1);
  int32_t tokens[20];
  small_model_fill(tokens, 20);
  for (int d = 0; d < DESCRIPTIONS; d++) {
    hark_model *model = small_model_make(context, small_model_descriptions[d], 3);
    hark_decoding *decoding = small_model_decoding(context, model);
    assert_fine(context, hark_decoding_prefill(decoding, tokens, 20));
    const size_t bytes = hark_decoding_saved_bytes(decoding);
    unsigned char *saved = malloc(bytes);
    assert_fine(context, hark_decoding_save(decoding, saved, bytes));
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
      uint64_t honest;
      memcpy(&honest, saved + at[i], sizeof honest);
      for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        if (counts[c] == honest) continue;
        memcpy(saved + at[i], &counts[c], sizeof counts[c]);
        sign(saved, bytes);
        const hark_status status = hark_decoding_restore(decoding, saved, bytes);
        if (status != HARK_BAD_FILE && status != HARK_INVALID_ARGUMENT)
          fail_msg("model %d: %llu at byte %d: %s", d, (unsigned long long)counts[c], at[i], hark_status_name(status));
        assert_int_equal(hark_decoding_length(decoding), 20);
      }
      memcpy(saved + at[i], &honest, sizeof honest);
    }
    sign(saved, bytes);
    assert_fine(context, hark_decoding_restore(decoding, saved, bytes));
    free(saved);
    hark_decoding_destroy(&decoding);
    hark_model_destroy(context, &model);
  }
  test_setup_close(context);
}

/* Numbers of rows in global slots below 1 or above the text, wherever they are saved. */
static void forged_rows_of_globals_are_refused(void **state) {
  (void)state;
  enum { HEADER = 64, TOKENS = 20 };
  static const int64_t forged[] = {-5, 0, TOKENS + 1, INT64_MAX, INT64_MIN};
  hark_context *context = test_setup_open(&(test_setup){"cpu", NULL}, 1);
  int32_t tokens[TOKENS];
  int found = 0;
  small_model_fill(tokens, TOKENS);
  for (int d = 0; d < DESCRIPTIONS; d++) {
    if (strstr(small_model_descriptions[d], "global_slots") == NULL || strstr(small_model_descriptions[d], "delimiters") == NULL) continue;
    hark_model *model = small_model_make(context, small_model_descriptions[d], 3);
    hark_decoding *decoding = small_model_decoding(context, model);
    assert_fine(context, hark_decoding_prefill(decoding, tokens, TOKENS));
    const size_t bytes = hark_decoding_saved_bytes(decoding);
    unsigned char *saved = malloc(bytes);
    assert_fine(context, hark_decoding_save(decoding, saved, bytes));
    for (size_t at = HEADER + sizeof tokens; at + 2 * sizeof(int64_t) <= bytes; at += sizeof(float))
      for (size_t f = 0; f < sizeof forged / sizeof *forged; f++) {
        int64_t honest;
        char message[64];
        (void)snprintf(message, sizeof message, " has %lld rows, expected 1 to 20", (long long)forged[f]);
        memcpy(&honest, saved + at, sizeof honest);
        memcpy(saved + at, &forged[f], sizeof forged[f]);
        sign(saved, bytes);
        const hark_status status = hark_decoding_restore(decoding, saved, bytes);
        found += status == HARK_BAD_FILE && strstr(hark_context_message(context), message) != NULL;
        memcpy(saved + at, &honest, sizeof honest);
      }
    sign(saved, bytes);
    assert_fine(context, hark_decoding_restore(decoding, saved, bytes));
    free(saved);
    hark_decoding_destroy(&decoding);
    hark_model_destroy(context, &model);
  }
  assert_int_equal(found, 2 * 3 * 2 * (5 + 1)); /* layers, global slots, key heads, forged numbers; 0 also from 4 bytes before */
  test_setup_close(context);
}

/* Capacities whose memory cannot be counted, or not addressed, in one line with the number; those that only cannot be had are not
 * hidden. */
static void capacities_have_limits(void **state) {
  (void)state;
  static const int64_t far[] = {((int64_t)1 << 40) + 1, INT64_MAX / 4, INT64_MAX - 127, INT64_MAX};
  hark_context *context = test_setup_open(&(test_setup){"cpu", NULL}, 1);
  for (int d = 0; d < DESCRIPTIONS; d++) {
    if (strstr(small_model_descriptions[d], "learned") != NULL) continue;
    hark_model *model = small_model_make(context, small_model_descriptions[d], 3);
    for (size_t i = 0; i < sizeof far / sizeof *far; i++) {
      const hark_decoding_options options = {.struct_size = sizeof options, .capacity = far[i]};
      hark_decoding *decoding = NULL;
      size_t bytes = 1;
      char expected[96];
      (void)snprintf(expected, sizeof expected, "capacity of %lld tokens, expected at most 1099511627776", (long long)far[i]);
      assert_failure(context, hark_decoding_size(context, model, &options, &bytes), HARK_TOO_LARGE, expected);
      assert_int_equal(bytes, 0);
      assert_failure(context, hark_decoding_create(context, model, &options, &decoding), HARK_TOO_LARGE, expected);
      assert_null(decoding);
    }
    if (small_model_reads_again(small_model_descriptions[d]) &&
        strstr(small_model_descriptions[d], "cme") == NULL) { /* its history alone is 4 bytes a token */
      const hark_decoding_options options = {.struct_size = sizeof options, .capacity = (int64_t)1 << 40};
      size_t bytes = 0;
      assert_fine(context, hark_decoding_size(context, model, &options, &bytes));
      assert_true(bytes > (size_t)4 << 40);
    }
    hark_model_destroy(context, &model);
  }
  test_setup_close(context);
}

static void wrong_saved_bytes_change_nothing(void **state) {
  (void)state;
  hark_context *context = test_setup_open(&(test_setup){"cpu", NULL}, 1);
  hark_model *model = small_model_make(context, PLAIN, 3), *other = small_model_make(context, PLAIN, 4);
  hark_decoding *decoding = small_model_decoding(context, model), *of_other = small_model_decoding(context, other), *small = NULL;
  const hark_decoding_options little = {.struct_size = sizeof little, .capacity = 8};
  assert_fine(context, hark_decoding_create(context, model, &little, &small));
  int32_t tokens[20];
  float logits[VOCABULARY];
  small_model_fill(tokens, 20);
  assert_fine(context, hark_decoding_prefill(small, tokens, 8));
  assert_failure(context, hark_decoding_step(small, 1), HARK_INVALID_ARGUMENT, "there is no room, its capacity of 8 tokens is used");
  assert_fine(context, hark_decoding_truncate(small, 0));
  assert_failure(context, hark_decoding_prefill(small, tokens, 9), HARK_INVALID_ARGUMENT, "9 tokens to read, expected 1 to 8");
  assert_failure(context, hark_decoding_prefill(small, NULL, 2), HARK_INVALID_ARGUMENT, "no tokens");
  assert_fine(context, hark_decoding_prefill(decoding, tokens, 20));
  memcpy(logits, hark_decoding_logits(decoding), sizeof logits);
  const size_t bytes = hark_decoding_saved_bytes(decoding);
  unsigned char *saved = malloc(bytes);
  assert_failure(context, hark_decoding_save(decoding, saved, bytes - 1), HARK_INVALID_ARGUMENT, "to save into");
  assert_fine(context, hark_decoding_save(decoding, saved, bytes));
  for (size_t at = 0; at < bytes; at += at < 64 ? 1 : 101) { /* every byte of the header */
    saved[at] ^= 0x10;
    if (hark_decoding_restore(decoding, saved, bytes) != HARK_BAD_FILE) fail_msg("byte %zu was changed", at);
    saved[at] ^= 0x10;
  }
  for (size_t part = 0; part < bytes; part += part < 64 ? 1 : 1009)
    if (hark_decoding_restore(decoding, saved, part) != HARK_BAD_FILE) fail_msg("the first %zu bytes", part);
  assert_failure(context, hark_decoding_restore(of_other, saved, bytes), HARK_BAD_FILE, "another model");
  assert_failure(context, hark_decoding_restore(small, saved, bytes), HARK_INVALID_ARGUMENT, "room for 8");
  assert_int_equal(hark_decoding_length(of_other), 0);
  assert_int_equal(hark_decoding_length(decoding), 20);
  small_model_same_logits(decoding, logits, "after refusals");
  assert_fine(context, hark_decoding_restore(decoding, saved, bytes));
  small_model_same_logits(decoding, logits, "after restoring");
  free(saved);
  hark_decoding_destroy(&decoding);
  hark_decoding_destroy(&of_other);
  hark_decoding_destroy(&small);
  hark_model_destroy(context, &model);
  hark_model_destroy(context, &other);
  test_setup_close(context);
}

/* Asked `left` more times, then it says stop. */
static bool cancel_after(void *user) {
  int *left = user;
  return (*left)-- <= 0;
}

/* Before every layer of every pass there is a place to stop; afterwards everything is as before the call. */
static void a_call_can_be_cancelled(void **state) {
  (void)state;
  enum { LONG = 300 };
  hark_context *context = test_setup_open(&(test_setup){"cpu", NULL}, 1);
  hark_model *model = small_model_make(context, PLAIN, 3);
  static int32_t tokens[LONG];
  int left = 1 << 30;
  const hark_decoding_options options = {.struct_size = sizeof options, .capacity = LONG + 8, .cancel = cancel_after, .cancel_user = &left};
  hark_decoding *decoding = NULL;
  float expected[VOCABULARY];
  small_model_fill(tokens, LONG);
  assert_fine(context, hark_decoding_create(context, model, &options, &decoding));
  assert_fine(context, hark_decoding_prefill(decoding, tokens, 5));
  assert_fine(context, hark_decoding_prefill(decoding, tokens, LONG));
  memcpy(expected, hark_decoding_logits(decoding), sizeof expected);
  assert_fine(context, hark_decoding_truncate(decoding, 5));
  int places = 0;
  for (hark_status status = HARK_CANCELLED; status != HARK_OK; places++) {
    left = places;
    status = hark_decoding_prefill(decoding, tokens, LONG);
    if (status == HARK_OK) break;
    assert_int_equal(status, HARK_CANCELLED);
    assert_string_equal(hark_context_message(context), "cancelled");
    assert_int_equal(hark_decoding_length(decoding), 5);
    assert_null(hark_decoding_logits(decoding));
  }
  assert_int_equal(places, 3 * 2); /* three passes of two layers */
  small_model_same_logits(decoding, expected, "after cancelled calls");
  hark_decoding_destroy(&decoding);
  hark_model_destroy(context, &model);
  test_setup_close(context);
}

/* The models that can read a stream. */
static const char *const streaming[] = {
    MODEL("rotary", ATTENTION("compressed", "false") ", \"chunk\": 3, \"chunk_slots\": 2, \"selected_slots\": 9, \"kept_chunks\": 2, "
                                                     "\"global_slots\": 3"),
    MODEL("none", ATTENTION("compressed,hierarchical", "false") ", \"hierarchy_block\": 2, \"chunk\": 2, \"chunk_slots\": 2, "
                                                                "\"selected_slots\": 3, \"kept_chunks\": 3"),
    MODEL(KERNEL("decay", "model"),
          ATTENTION("compressed", "false") ", \"chunk\": 5, \"chunk_slots\": 2, \"selected_slots\": 90, \"kept_chunks\": 2")};
#define STREAMING (sizeof streaming / sizeof *streaming)

/* The bits of a decoding with room for the text, in memory that does not grow with the text. */
static void streams_have_no_end(void **state) {
  (void)state;
  enum { LONG = 900, BEGUN = 130 };
  static int32_t tokens[LONG];
  hark_context *context = test_setup_open(&(test_setup){"cpu", NULL}, 1);
  small_model_fill(tokens, LONG);
  for (size_t d = 0; d < STREAMING; d++) {
    hark_model *model = small_model_make(context, streaming[d], 3);
    const bool levels = strstr(streaming[d], "hierarchical") != NULL; /* a cache of more levels for more tokens */
    int left = 1 << 30;
    hark_decoding_options options = {
        .struct_size = sizeof options, .stream = true, .cancel = cancel_after, .cancel_user = &left, .capacity = levels ? 1 << 20 : 0};
    const hark_decoding_options room = {.struct_size = sizeof room, .capacity = levels ? 1 << 20 : LONG};
    hark_decoding *stream = NULL, *whole = NULL, *again = NULL;
    size_t bytes = 0, longer = 0;
    float expected[VOCABULARY];
    assert_fine(context, hark_decoding_create(context, model, &options, &stream));
    assert_fine(context, hark_decoding_create(context, model, &options, &again));
    assert_fine(context, hark_decoding_create(context, model, &room, &whole));
    assert_int_equal(hark_decoding_capacity(stream), levels ? 1 << 20 : (int64_t)1 << 40);
    assert_fine(context, hark_decoding_prefill(stream, tokens, BEGUN));
    assert_fine(context, hark_decoding_prefill(whole, tokens, BEGUN));
    for (int i = BEGUN; i < LONG; i++) {
      assert_fine(context, hark_decoding_step(stream, tokens[i]));
      assert_fine(context, hark_decoding_step(whole, tokens[i]));
      small_model_same_logits(stream, hark_decoding_logits(whole), "a stream");
    }
    memcpy(expected, hark_decoding_logits(whole), sizeof expected);
    /* saved without its tokens */
    const size_t size = hark_decoding_saved_bytes(stream);
    unsigned char *saved = malloc(size);
    assert_non_null(saved);
    assert_true(size + LONG * sizeof *tokens <= hark_decoding_saved_bytes(whole));
    assert_fine(context, hark_decoding_save(stream, saved, size));
    assert_fine(context, hark_decoding_restore(again, saved, size));
    small_model_same_logits(again, expected, "a restored stream");
    assert_fine(context, hark_decoding_step(again, 7));
    assert_fine(context, hark_decoding_step(stream, 7));
    small_model_same_logits(again, hark_decoding_logits(stream), "a stream that goes on");
    assert_failure(context, hark_decoding_restore(whole, saved, size), HARK_BAD_FILE, "do not hold 900 tokens");
    /* cut, and interrupted */
    assert_failure(context, hark_decoding_truncate(stream, 5), HARK_UNSUPPORTED, "a stream cannot be cut to 5 tokens, expected 0");
    assert_failure(context, hark_decoding_step(stream, -1), HARK_INVALID_ARGUMENT, "token 0 is -1");
    assert_fine(context, hark_decoding_step(stream, 9));
    left = 1;
    assert_int_equal(hark_decoding_step(stream, 9), HARK_CANCELLED);
    left = 1 << 30;
    assert_failure(context, hark_decoding_step(stream, 9), HARK_INVALID_ARGUMENT, "an error interrupted this stream after 902 tokens");
    assert_failure(context, hark_decoding_save(stream, saved, hark_decoding_saved_bytes(stream)), HARK_INVALID_ARGUMENT, "nothing to save");
    assert_fine(context, hark_decoding_truncate(stream, 0));
    assert_fine(context, hark_decoding_prefill(stream, tokens, BEGUN));
    for (int i = BEGUN; i < LONG; i++) assert_fine(context, hark_decoding_step(stream, tokens[i]));
    small_model_same_logits(stream, expected, "a stream that began again");
    if (!levels) {
      assert_fine(context, hark_decoding_size(context, model, &options, &bytes));
      options.capacity = 4096;
      assert_fine(context, hark_decoding_size(context, model, &options, &longer));
      assert_int_equal(bytes, longer);
    }
    free(saved);
    hark_decoding_destroy(&stream);
    hark_decoding_destroy(&again);
    hark_decoding_destroy(&whole);
    hark_model_destroy(context, &model);
  }
  test_setup_close(context);
}

/* Models with a cache that grows with the text. */
static void other_models_read_no_streams(void **state) {
  (void)state;
  static const struct {
    const char *description, *message;
  } cases[] = {
      {PLAIN, "a stream, and layer 1 keeps every token, expected layers of structure compressed or hierarchical"},
      {MODEL("learned", ATTENTION("dense", "false")), "a stream, and learned positions end at the context of 40 tokens"},
      {MODEL("none", ATTENTION("compressed,window", "false") ", \"chunk\": 4, \"chunk_slots\": 1, \"selected_slots\": 9, "
                                                             "\"kept_chunks\": 2"),
       "a stream, and layer 2 keeps every token"},
      {MODEL("none", ATTENTION("compressed", "false") ", \"chunk\": 4, \"chunk_slots\": 1, \"selected_slots\": 9"),
       "compressed attention with kept_chunks 0 keeps something of every chunk"},
      {MODEL("none", ATTENTION("compressed", "false") ", \"chunk\": 4, \"chunk_slots\": 1, \"selected_slots\": 9, \"kept_chunks\": 2, "
                                                      "\"delimiters\": [7]"),
       "compressed attention with chunks of different lengths keeps something of every chunk"},
      {MODEL(SCALED("dynamic", ""), HIERARCHY("4", "neighbour", "first")), "rotary rates depend on the length of the text"}};
  hark_context *context = test_setup_open(&(test_setup){"cpu", NULL}, 1);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const hark_decoding_options options = {.struct_size = sizeof options, .stream = true};
    hark_decoding *decoding = NULL;
    size_t bytes = 1;
    hark_model *model = small_model_make(context, cases[i].description, 3);
    assert_failure(context, hark_decoding_create(context, model, &options, &decoding), HARK_UNSUPPORTED, cases[i].message);
    assert_null(decoding);
    assert_failure(context, hark_decoding_size(context, model, &options, &bytes), HARK_UNSUPPORTED, cases[i].message);
    hark_model_destroy(context, &model);
  }
  test_setup_close(context);
}

static void what_does_not_fit_is_refused(void **state) {
  (void)state;
  hark_context *context = test_setup_open(&(test_setup){"cpu", NULL}, 1), *reference = test_reference_open();
  hark_model *model = small_model_make(context, small_model_descriptions[1], 3);
  hark_decoding *decoding = NULL;
  hark_decoding_options options = {.struct_size = sizeof options, .capacity = CONTEXT + 1};
  assert_failure(context, hark_decoding_create(context, model, &options, &decoding), HARK_INVALID_ARGUMENT, "learned positions end");
  assert_null(decoding);
  options.capacity = -1;
  assert_failure(context, hark_decoding_create(context, model, &options, &decoding), HARK_INVALID_ARGUMENT, "at least 1");
  options.struct_size = 1;
  assert_failure(context, hark_decoding_create(context, model, &options, &decoding), HARK_INVALID_ARGUMENT, "struct_size");
  assert_failure(reference, hark_decoding_create(reference, model, NULL, &decoding), HARK_INVALID_ARGUMENT, "backend is reference");
  decoding = small_model_decoding(context, model);
  int32_t tokens[CONTEXT + 1], token = -1;
  hark_sampling sampling = hark_sampling_default();
  small_model_fill(tokens, CONTEXT + 1);
  assert_failure(context, hark_decoding_choose(decoding, &sampling, 0, &token), HARK_INVALID_ARGUMENT, "no logits");
  assert_failure(context, hark_decoding_prefill(decoding, tokens, 0), HARK_INVALID_ARGUMENT, "expected 1 to 40");
  assert_failure(context, hark_decoding_prefill(decoding, tokens, CONTEXT + 1), HARK_INVALID_ARGUMENT, "expected 1 to 40");
  assert_failure(context, hark_decoding_step(decoding, VOCABULARY), HARK_INVALID_ARGUMENT, "token 0 is 261, expected 0 to 260");
  assert_failure(context, hark_decoding_step(decoding, -1), HARK_INVALID_ARGUMENT, "token 0 is -1");
  assert_int_equal(hark_decoding_length(decoding), 0);
  assert_fine(context, hark_decoding_prefill(decoding, tokens, CONTEXT));
  assert_failure(context, hark_decoding_truncate(decoding, CONTEXT + 1), HARK_INVALID_ARGUMENT, "cannot cut 40");
  assert_failure(context, hark_decoding_truncate(decoding, -1), HARK_INVALID_ARGUMENT, "cannot cut 40");
  assert_int_equal(hark_decoding_length(decoding), CONTEXT);
  sampling.top_p = 0;
  assert_failure(context, hark_decoding_choose(decoding, &sampling, 0, &token), HARK_INVALID_ARGUMENT, "top_p is 0");
  sampling = hark_sampling_default();
  sampling.temperature = NAN;
  assert_failure(context, hark_decoding_choose(decoding, &sampling, 0, &token), HARK_INVALID_ARGUMENT, "temperature is nan");
  sampling = hark_sampling_default();
  sampling.top_k = -1;
  assert_failure(context, hark_decoding_choose(decoding, &sampling, 0, &token), HARK_INVALID_ARGUMENT, "top_k is -1");
  sampling = hark_sampling_default();
  float *logits = hark_decoding_logits(decoding); /* the caller's to change */
  for (int i = 0; i < VOCABULARY; i++) logits[i] = i == 100 ? -9.0f : -INFINITY;
  assert_fine(context, hark_decoding_choose(decoding, &sampling, 0, &token));
  assert_int_equal(token, 100);
  logits[100] = -INFINITY;
  assert_failure(context, hark_decoding_choose(decoding, &sampling, 0, &token), HARK_INVALID_ARGUMENT, "no token");
  logits[100] = INFINITY;
  assert_failure(context, hark_decoding_choose(decoding, &sampling, 0, &token), HARK_NOT_FINITE, "token 100");
  hark_decoding_destroy(&decoding);
  hark_decoding_destroy(&decoding);
  hark_model_destroy(context, &model);
  test_setup_close(context);
  test_setup_close(reference);
}

/* ---- threads ---- */

#define THREADS 4
#define ROUNDS 3
#define MADE 30

typedef struct worker {
  pthread_t thread;
  const hark_model *model;
  int32_t first;
  int threads; /* of its context */
  bool failed;
  int32_t tokens[ROUNDS][MADE];
  float logits[ROUNDS][VOCABULARY];
} worker;

/* Generates ROUNDS texts, each beginning with tokens of its own. Assertions belong to the main thread: a failure is only noted. */
static void *generate(void *data) {
  worker *w = data;
  hark_context *context = NULL;
  hark_decoding *decoding = NULL;
  const hark_context_options options = {.struct_size = sizeof options, .backend = "cpu", .threads = w->threads};
  w->failed = hark_context_create(&options, &context) != HARK_OK || hark_decoding_create(context, w->model, NULL, &decoding) != HARK_OK;
  hark_sampling sampling = hark_sampling_default();
  for (int round = 0; round < ROUNDS && !w->failed; round++) {
    const int32_t prompt[] = {w->first, (int32_t)(10 + round), 77};
    sampling.seed = (uint64_t)(w->first + round);
    w->failed = hark_decoding_truncate(decoding, 0) != HARK_OK || hark_decoding_prefill(decoding, prompt, 3) != HARK_OK;
    for (int i = 0; i < MADE && !w->failed; i++) {
      int32_t token = 0;
      w->failed =
          hark_decoding_choose(decoding, &sampling, (uint64_t)i, &token) != HARK_OK || hark_decoding_step(decoding, token) != HARK_OK;
      w->tokens[round][i] = token;
    }
    if (!w->failed) memcpy(w->logits[round], hark_decoding_logits(decoding), sizeof w->logits[round]);
  }
  hark_decoding_destroy(&decoding);
  hark_context_destroy(&context);
  return NULL;
}

/* Four threads with one model and a context each, against the same work one after the other; then with contexts of several threads. */
static void four_threads_share_a_model(void **state) {
  (void)state;
  hark_context *context = test_setup_open(&(test_setup){"cpu", NULL}, 1);
  static worker alone[THREADS], together[THREADS], wide[THREADS];
  for (int d = 0; d < DESCRIPTIONS; d++) {
    hark_model *model = small_model_make(context, small_model_descriptions[d], 3);
    for (int i = 0; i < THREADS; i++) {
      alone[i] = together[i] = wide[i] = (worker){.model = model, .first = (int32_t)(50 + i), .threads = 1};
      wide[i].threads = 3;
      generate(&alone[i]);
      generate(&wide[i]);
      assert_false(alone[i].failed);
    }
    for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&together[i].thread, NULL, generate, &together[i]), 0);
    for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_join(together[i].thread, NULL), 0);
    for (int i = 0; i < THREADS; i++) {
      assert_false(together[i].failed);
      assert_memory_equal(together[i].tokens, alone[i].tokens, sizeof alone[i].tokens);
      assert_memory_equal(together[i].logits, alone[i].logits, sizeof alone[i].logits);
      assert_memory_equal(wide[i].logits, alone[i].logits, sizeof alone[i].logits);
    }
    assert_memory_not_equal(alone[0].tokens, alone[1].tokens, sizeof alone[0].tokens); /* the texts differ at all */
    hark_model_destroy(context, &model);
  }
  test_setup_close(context);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(reading_at_once_agrees_with_steps),
      cmocka_unit_test(the_capacity_changes_nothing),
      cmocka_unit_test(nothing_is_allocated_per_token),
      cmocka_unit_test(the_callers_memory_is_not_left),
      cmocka_unit_test(saving_is_no_interruption),
      cmocka_unit_test(saved_bytes_fit_other_capacities),
      cmocka_unit_test(forged_counts_are_refused),
      cmocka_unit_test(forged_rows_of_globals_are_refused),
      cmocka_unit_test(streams_have_no_end),
      cmocka_unit_test(other_models_read_no_streams),
      cmocka_unit_test(capacities_have_limits),
      cmocka_unit_test(wrong_saved_bytes_change_nothing),
      cmocka_unit_test(a_call_can_be_cancelled),
      cmocka_unit_test(what_does_not_fit_is_refused),
      cmocka_unit_test(four_threads_share_a_model),
  };
  return cmocka_run_group_tests_name("decoding", tests, NULL, NULL);
}
