/* test_masking.c - which tokens are hidden: how many, how they are shown, and that nothing but seed, stream, sequence and position
 * matters. */
#include <string.h>

#include "data/corpora/batches.h"
#include "data/corpora/masking.h"
#include "support/cmocka_all.h"
#include "tokenizers/tokenizer.h"

#define LENGTH 100000
#define VOCABULARY 1005 /* a symbol drawn from 1,000 is the old one once in a thousand times */

static int32_t inputs[LENGTH], targets[LENGTH];

static hark_masking usual(void) { return (hark_masking){.seed = 5, .fraction = 0.15, .vocabulary = VOCABULARY}; }

static void fill(void) {
  for (int i = 0; i < LENGTH; i++) inputs[i] = HARK_TOKEN_RESERVED + i % (VOCABULARY - HARK_TOKEN_RESERVED);
}

/* 100,000 tokens: 15,000 chosen with a deviation of 113, of these 80 % (49), 10 % (37), 10 % (37); five deviations of each. */
static void shares_are_as_told(void **state) {
  (void)state;
  const hark_masking masking = usual();
  fill();
  const int64_t count = hark_mask_tokens(&masking, 3, LENGTH, inputs, targets);
  int64_t chosen = 0, hidden = 0, kept = 0, other = 0;
  for (int i = 0; i < LENGTH; i++) {
    const int32_t was = HARK_TOKEN_RESERVED + i % (VOCABULARY - HARK_TOKEN_RESERVED);
    if (targets[i] == HARK_TARGET_IGNORED) {
      assert_int_equal(inputs[i], was);
      continue;
    }
    assert_int_equal(targets[i], was);
    chosen++;
    hidden += inputs[i] == HARK_TOKEN_MASK;
    kept += inputs[i] == was;
    other += inputs[i] != HARK_TOKEN_MASK && inputs[i] != was;
    assert_true(inputs[i] == HARK_TOKEN_MASK || (inputs[i] >= HARK_TOKEN_RESERVED && inputs[i] < VOCABULARY));
  }
  assert_int_equal(chosen, count);
  assert_in_range(chosen, 15000 - 565, 15000 + 565);
  assert_in_range(hidden, chosen * 8 / 10 - 245, chosen * 8 / 10 + 245);
  assert_in_range(kept, chosen / 10 - 185, chosen / 10 + 185);
  assert_in_range(other, chosen / 10 - 185, chosen / 10 + 185);
  assert_int_equal(hark_mask_count(&masking, 3, LENGTH), count);
}

static void the_choice_is_the_sequences_own(void **state) {
  (void)state;
  static int32_t again[LENGTH], again_targets[LENGTH];
  hark_masking masking = usual();
  fill();
  memcpy(again, inputs, sizeof again);
  (void)hark_mask_tokens(&masking, 7, 1000, inputs, targets);
  (void)hark_mask_tokens(&masking, 7, 500, again, again_targets); /* a shorter sequence begins alike */
  assert_memory_equal(targets, again_targets, 500 * sizeof *targets);
  assert_memory_equal(inputs, again, 500 * sizeof *inputs);
  for (int i = 0; i < 3; i++) { /* another sequence, stream, seed */
    hark_masking other = masking;
    if (i == 1) other.stream = HARK_MASKING_EVALUATION;
    if (i == 2) other.seed = 6;
    fill();
    (void)hark_mask_tokens(&other, i == 0 ? 8 : 7, 500, inputs, again_targets);
    assert_memory_not_equal(targets, again_targets, 500 * sizeof *targets);
  }
}

static void reserved_tokens_are_not_chosen(void **state) {
  (void)state;
  const hark_masking masking = {.seed = 1, .fraction = 0.9, .vocabulary = VOCABULARY};
  for (int i = 0; i < 1000; i++) inputs[i] = i % HARK_TOKEN_RESERVED;
  assert_int_equal(hark_mask_tokens(&masking, 0, 1000, inputs, targets), 0);
  for (int i = 0; i < 1000; i++) {
    assert_int_equal(inputs[i], i % HARK_TOKEN_RESERVED);
    assert_int_equal(targets[i], HARK_TARGET_IGNORED);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(shares_are_as_told), cmocka_unit_test(the_choice_is_the_sequences_own),
                                     cmocka_unit_test(reserved_tokens_are_not_chosen)};
  return cmocka_run_group_tests_name("masking", tests, NULL, NULL);
}
