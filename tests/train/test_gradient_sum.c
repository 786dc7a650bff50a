/* test_gradient_sum.c - the sum of micro-batches is that of the tree in gradient_sum.h, to the bit, in one piece or in several. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/cmocka_all.h"
#include "support/setups.h"
#include "support/text_files.h"
#include "train/gradient_sum.h"

enum { NUMBERS = 37, MOST_PARTS = 33 };

/* Numbers of different sizes, so that another order of the sum has other bits. */
static float number(int64_t part, int64_t i) {
  const hark_random_stream stream = {.micro_step = (uint32_t)part, .layer_purpose = hark_random_layer_purpose(0, HARK_RANDOM_TEST)};
  double uniform = 0;
  hark_random_uniform(&stream, (uint64_t)i, 1, &uniform);
  return (float)ldexp(2 * uniform - 1, (int)((part * 7 + i) % 20));
}

/* The definition: parts [first, last) of a tree. */
static float defined(int64_t first, int64_t last, int64_t i) {
  if (last - first == 1) return number(first, i);
  int64_t left = 1;
  while (2 * left < last - first) left *= 2;
  return defined(first, first + left, i) + defined(first + left, last, i);
}

static void write_part(hark_context *context, hark_tensor *gradients, int64_t part) {
  float numbers[NUMBERS];
  for (int64_t i = 0; i < NUMBERS; i++) numbers[i] = number(part, i);
  assert_fine(context, hark_tensor_write(context, gradients, numbers));
}

static void compute(hark_context *context, hark_gradient_sum *sum, hark_tensor *gradients, int64_t first, int64_t count) {
  hark_gradient_sum_begin(sum, first);
  for (int64_t part = first; part < first + count; part++) {
    float zeros[NUMBERS];
    assert_fine(context, hark_gradient_sum_open(context, sum));
    assert_fine(context, hark_tensor_read(context, gradients, zeros));
    for (int i = 0; i < NUMBERS; i++) assert_true(zeros[i] == 0);
    write_part(context, gradients, part);
    assert_fine(context, hark_gradient_sum_close(context, sum));
  }
}

static void assert_is_tree(hark_context *context, const hark_tensor *gradients, int64_t first, int64_t last) {
  float numbers[NUMBERS];
  assert_fine(context, hark_tensor_read(context, gradients, numbers));
  for (int i = 0; i < NUMBERS; i++) {
    const float expected = defined(first, last, i);
    if (memcmp(&numbers[i], &expected, sizeof expected) != 0)
      fail_msg("parts %d to %d, number %d: %a, expected %a", (int)first, (int)last - 1, i, (double)numbers[i], (double)expected);
  }
}

/* Every number of parts, twice with the same buffers. */
static void the_sum_is_that_of_the_tree(void **state) {
  (void)state;
  test_setup setups[TEST_MAX_SETUPS];
  const int count = test_setups(setups);
  for (int s = 0; s < count; s++) {
    hark_context *context = test_setup_open(&setups[s], 2);
    const int64_t shape[] = {NUMBERS};
    hark_tensor gradients;
    assert_fine(context, hark_tensor_create(context, HARK_F32, 1, shape, &gradients));
    for (int64_t parts = 1; parts <= MOST_PARTS; parts++) {
      hark_gradient_sum sum;
      assert_fine(context, hark_gradient_sum_create(context, &gradients, 0, parts, true, &sum));
      assert_true(sum.saved_count <= (int)ceil(log2((double)parts)));
      for (int round = 0; round < 2; round++) {
        compute(context, &sum, &gradients, 0, parts);
        assert_fine(context, hark_gradient_sum_finish(context, &sum));
        assert_is_tree(context, &gradients, 0, parts);
      }
      hark_gradient_sum_destroy(context, &sum);
    }
    hark_tensor_destroy(context, &gradients);
    test_setup_close(context);
  }
}

/* The subtrees that any share leaves are subtrees of the whole, so that joining them in order gives the sum of the whole. */
static void shares_are_joined_to_the_same_tree(void **state) {
  (void)state;
  for (int64_t parts = 1; parts <= MOST_PARTS; parts++)
    for (int64_t ranks = 1; ranks <= parts; ranks++) {
      hark_sum_blocks all = {0};
      float sums[HARK_GRADIENT_SUM_DEPTH];
      for (int64_t rank = 0; rank < ranks; rank++) {
        hark_sum_blocks own = {0};
        for (int64_t part = rank * parts / ranks; part < (rank + 1) * parts / ranks; part++) {
          hark_sum_blocks_push(&own, (hark_sum_block){part, 1});
          while (hark_sum_blocks_join(&own)) hark_sum_blocks_merge(&own);
        }
        for (int b = 0; b < own.count; b++) {
          const hark_sum_block block = own.list[b];
          hark_sum_blocks_push(&all, block);
          sums[all.count - 1] = defined(block.first, block.first + block.count, 0);
          while (hark_sum_blocks_join(&all)) {
            hark_sum_blocks_merge(&all);
            sums[all.count - 1] += sums[all.count];
          }
        }
      }
      for (; all.count > 1; sums[all.count - 1] += sums[all.count]) hark_sum_blocks_merge(&all);
      assert_true(all.list[0].first == 0 && all.list[0].count == parts);
      assert_true(sums[0] == defined(0, parts, 0));
    }
}

static void more_parts_than_buffers_are_refused(void **state) {
  (void)state;
  hark_context *context = test_reference_open();
  const int64_t shape[] = {NUMBERS};
  hark_tensor gradients;
  hark_gradient_sum sum;
  assert_fine(context, hark_tensor_create(context, HARK_F32, 1, shape, &gradients));
  assert_fine(context, hark_gradient_sum_create(context, &gradients, 0, 1, true, &sum));
  compute(context, &sum, &gradients, 0, 1);
  assert_int_equal(hark_gradient_sum_open(context, &sum), HARK_INVALID_ARGUMENT);
  hark_gradient_sum_destroy(context, &sum);
  hark_tensor_destroy(context, &gradients);
  test_setup_close(context);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_sum_is_that_of_the_tree),
      cmocka_unit_test(shares_are_joined_to_the_same_tree),
      cmocka_unit_test(more_parts_than_buffers_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
