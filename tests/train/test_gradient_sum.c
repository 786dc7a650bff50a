/* test_gradient_sum.c - the sum of micro-batches is that of the tree in gradient_sum.h, to the bit, in one piece or in several. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/cmocka_all.h"
#include "support/setups.h"
#include "support/text_files.h"
#include "support/train/group_threads.h"
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

static void compute(hark_context *context, hark_gradient_sum *sum, hark_tensor *gradients) {
  hark_gradient_sum_begin(sum);
  for (int64_t part = sum->share.first; part < sum->share.first + sum->share.count; part++) {
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
      assert_fine(context, hark_gradient_sum_create(context, &gradients, parts, true, &sum));
      assert_true(sum.saved_count <= (int)ceil(log2((double)parts)));
      for (int round = 0; round < 2; round++) {
        compute(context, &sum, &gradients);
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

/* ---- processes ---- */

/* Numbers of a large tensor, as different as those above and cheaper. */
static float cheap_number(int64_t part, int64_t i) {
  const uint32_t mixed = (uint32_t)(i * 2654435761u + part * 40503u) ^ (uint32_t)(i >> 7);
  return ldexpf((float)(mixed % 16381) - 8190.5f, (int)((part * 5 + i) % 23) - 11);
}

static float cheap_tree(int64_t first, int64_t last, int64_t i) {
  if (last - first == 1) return cheap_number(first, i);
  int64_t left = 1;
  while (2 * left < last - first) left *= 2;
  return cheap_tree(first, first + left, i) + cheap_tree(first + left, last, i);
}

typedef struct shared_case {
  int64_t parts, numbers;
} shared_case;

static hark_status sum_together(hark_context *context, hark_group *group, void *user) {
  const shared_case *const c = user;
  const hark_tensor described = {.type = HARK_F32, .rank = 1, .shape = {c->numbers}};
  hark_tensor gradients;
  hark_gradient_sum sum;
  context->group = group;
  HARK_TRY(hark_gradient_sum_create(context, &described, c->parts, true, &sum));
  HARK_TRY(hark_tensor_create(context, HARK_F32, 1, &c->numbers, &gradients));
  sum.gradients = gradients;
  float *const numbers = malloc((size_t)c->numbers * sizeof *numbers);
  if (numbers == NULL) return HARK_OUT_OF_MEMORY;
  hark_gradient_sum_begin(&sum);
  for (int64_t part = sum.share.first; part < sum.share.first + sum.share.count; part++) {
    HARK_TRY(hark_gradient_sum_open(context, &sum));
    for (int64_t i = 0; i < c->numbers; i++) numbers[i] = cheap_number(part, i);
    HARK_TRY(hark_tensor_write(context, &gradients, numbers));
    HARK_TRY(hark_gradient_sum_close(context, &sum));
  }
  HARK_TRY(hark_gradient_sum_finish(context, &sum));
  HARK_TRY(hark_tensor_read(context, &gradients, numbers));
  hark_status status = HARK_OK;
  for (int64_t i = 0; i < c->numbers && status == HARK_OK; i++) {
    const float expected = cheap_tree(0, c->parts, i);
    if (memcmp(&numbers[i], &expected, sizeof expected) != 0)
      status = hark_fail(context, HARK_INTERNAL_ERROR, "%d parts, number %d: %a, expected %a", (int)c->parts, (int)i, (double)numbers[i],
                         (double)expected);
  }
  hark_gradient_sum_destroy(context, &sum);
  hark_group_release(context, group);
  hark_tensor_destroy(context, &gradients);
  free(numbers);
  return status;
}

/* Even and uneven shares; pieces for some processes, for all, and of several rounds. */
static void processes_get_the_same_sum(void **state) {
  (void)state;
  for (int size = 1; size <= TEST_MOST_RANKS; size++)
    for (int64_t parts = size; parts <= 17; parts += parts < 9 ? 1 : 4) {
      shared_case small = {parts, 1 + 13 * parts};
      test_group_run(size, 60, sum_together, &small, NULL, NULL);
    }
  shared_case large = {5, 3 * ((int64_t)1 << 19) + 77}, uneven = {7, ((int64_t)1 << 18) + 1};
  test_group_run(2, 60, sum_together, &large, NULL, NULL);
  test_group_run(3, 60, sum_together, &uneven, NULL, NULL);
}

/* The same, late and out of step. */
static void late_messages_change_nothing(void **state) {
  (void)state;
  static const int latenesses[] = {3, 20};
  for (size_t l = 0; l < 2; l++)
    for (int size = 2; size <= TEST_MOST_RANKS; size++) {
      shared_case uneven = {size + 3, 5 * 8192 * (int64_t)size + 77};
      test_group_lateness = latenesses[l];
      test_group_run(size, 60, sum_together, &uneven, NULL, NULL);
      test_group_lateness = 0;
    }
}

/* ---- while the last part is still computed ---- */

typedef struct early_case {
  shared_case shared;
  int ranges;       /* that become final one after the other */
  int failing;      /* a rank whose last part fails in the middle; -1: none */
  hark_status with; /* this error */
  int64_t early[TEST_MOST_RANKS];
} early_case;

/* Range i of the numbers is used by nodes from number i + 1 on, and all of them but the last one again at node 1: shared. */
static int64_t range_at(const early_case *c, int i) { return c->shared.numbers * i / c->ranges; }

static void report_leaves(const early_case *c, hark_gradient_sum *sum) {
  for (int i = c->ranges - 1; i >= 0; i--)
    hark_gradient_exchange_leaf(sum->exchange, range_at(c, i), range_at(c, i + 1) - range_at(c, i), i + 1);
  hark_gradient_exchange_leaf(sum->exchange, range_at(c, 3), range_at(c, 4) - range_at(c, 3), 1);
}

/* A part whose ranges are computed from the last one to the first; what is not computed yet is not a number. */
static hark_status compute_in_ranges(hark_context *context, early_case *c, hark_gradient_sum *sum, int64_t part, float *numbers) {
  hark_group *const group = context->group;
  for (int64_t i = 0; i < c->shared.numbers; i++) numbers[i] = NAN;
  HARK_TRY(hark_tensor_write(context, &sum->gradients, numbers));
  report_leaves(c, sum);
  for (int r = c->ranges - 1; r >= 0; r--) {
    if (r == c->ranges / 2 && hark_group_rank(group) == c->failing && part + 1 == sum->share.first + sum->share.count)
      return hark_fail(context, c->with, "part %d fails", (int)part);
    const int of = r == 3 ? -1 : r; /* the shared one comes last */
    const int64_t first = range_at(c, r), count = range_at(c, r + 1) - first;
    for (int64_t i = 0; i < count; i++) numbers[i] = cheap_number(part, first + i);
    if (of >= 0) HARK_TRY(hark_backend_write(context, (float *)sum->gradients.data + first, numbers, (size_t)count * sizeof(float)));
    for (int again = 0; again < 20 && r > 0; again++) HARK_TRY(hark_gradient_exchange_advance(sum->exchange, r + 1));
  }
  const int64_t first = range_at(c, 3), count = range_at(c, 4) - first;
  for (int64_t i = 0; i < count; i++) numbers[i] = cheap_number(part, first + i);
  HARK_TRY(hark_backend_write(context, (float *)sum->gradients.data + first, numbers, (size_t)count * sizeof(float)));
  return hark_gradient_exchange_advance(sum->exchange, 1);
}

static hark_status compute_early(hark_context *context, early_case *c, hark_gradient_sum *sum, float *numbers) {
  const int64_t begun = context->group->begun;
  hark_gradient_sum_begin(sum);
  for (int64_t part = sum->share.first; part < sum->share.first + sum->share.count; part++) {
    HARK_TRY(hark_gradient_sum_open(context, sum));
    HARK_TRY(compute_in_ranges(context, c, sum, part, numbers));
    c->early[hark_group_rank(context->group)] = context->group->begun - begun;
    HARK_TRY(hark_gradient_sum_close(context, sum));
  }
  return HARK_OK;
}

static hark_status compare_with_tree(hark_context *context, const shared_case *c, const hark_tensor *gradients, float *numbers) {
  HARK_TRY(hark_tensor_read(context, gradients, numbers));
  for (int64_t i = 0; i < c->numbers; i++) {
    const float expected = cheap_tree(0, c->parts, i);
    if (memcmp(&numbers[i], &expected, sizeof expected) != 0)
      return hark_fail(context, HARK_INTERNAL_ERROR, "%d parts, number %d: %a, expected %a", (int)c->parts, (int)i, (double)numbers[i],
                       (double)expected);
  }
  return HARK_OK;
}

/* Two steps; a rank that fails in the first one takes part in the second one, if the group is not over. */
static hark_status sum_early(hark_context *context, hark_group *group, void *user) {
  early_case own = *(const early_case *)user;
  hark_gradient_sum sum;
  hark_tensor gradients;
  context->group = group;
  HARK_TRY(hark_tensor_create(context, HARK_F32, 1, &own.shared.numbers, &gradients));
  HARK_TRY(hark_gradient_sum_create(context, &gradients, own.shared.parts, true, &sum));
  float *const numbers = malloc((size_t)own.shared.numbers * sizeof *numbers);
  if (numbers == NULL) return HARK_OUT_OF_MEMORY;
  report_leaves(&own, &sum);
  hark_status status = hark_group_agree(context, group, compute_early(context, &own, &sum, numbers));
  const hark_status first = status;
  if (status == HARK_OK) status = hark_gradient_sum_finish(context, &sum);
  if (status == HARK_OK) status = compare_with_tree(context, &own.shared, &gradients, numbers);
  own.failing = -1;
  if (status == HARK_OK || status == HARK_NOT_FINITE) {
    status = hark_group_agree(context, group, compute_early(context, &own, &sum, numbers));
    if (status == HARK_OK) status = hark_gradient_sum_finish(context, &sum);
    if (status == HARK_OK) status = compare_with_tree(context, &own.shared, &gradients, numbers);
    if (status == HARK_OK) status = first == HARK_NOT_FINITE ? hark_fail(context, first, "as it was") : HARK_OK;
  }
  ((early_case *)user)->early[hark_group_rank(group)] = own.early[hark_group_rank(group)];
  hark_gradient_sum_destroy(context, &sum);
  hark_tensor_destroy(context, &gradients);
  free(numbers);
  return status;
}

static early_case early(int size, int64_t parts) {
  return (early_case){.shared = {parts, 12 * 8192 * (int64_t)size + 1234}, .ranges = 9, .failing = -1};
}

/* Every rank begins most rounds before its last part is complete, and none too early. */
static void final_numbers_are_exchanged_early(void **state) {
  (void)state;
  static const int sizes[] = {2, 3, 4, 8};
  for (int late = 0; late < 2; late++)
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
      for (int64_t parts = sizes[s]; parts <= sizes[s] + 5; parts += 5) {
        early_case c = early(sizes[s], parts);
        test_group_lateness = late ? 10 : 0;
        test_group_run(sizes[s], 60, sum_early, &c, NULL, NULL);
        test_group_lateness = 0;
        for (int rank = 0; rank < sizes[s]; rank++)
          if (c.early[rank] < 6) fail_msg("rank %d of %d begins %d rounds early", rank, sizes[s], (int)c.early[rank]);
      }
}

/* The others have begun rounds, more than it or fewer; all end with its error, and no message is on its way. */
static void a_rank_fails_in_the_middle(void **state) {
  (void)state;
  static const hark_status errors[] = {HARK_OUT_OF_MEMORY, HARK_NOT_FINITE};
  for (size_t e = 0; e < 2; e++)
    for (int late = 0; late < 2; late++)
      for (int size = 2; size <= 4; size++)
        for (int failing = 0; failing < size; failing++) {
          hark_status statuses[TEST_MOST_RANKS];
          char messages[TEST_MOST_RANKS][512];
          early_case c = early(size, 2 * size + 1);
          c.failing = failing;
          c.with = errors[e];
          test_group_lateness = late ? 10 : 0;
          test_group_run(size, 60, sum_early, &c, statuses, messages);
          test_group_lateness = 0;
          for (int rank = 0; rank < size; rank++)
            if (statuses[rank] != errors[e])
              fail_msg("rank %d of %d, %d fails: status %d, %s", rank, size, failing, (int)statuses[rank], messages[rank]);
          assert_int_equal(test_group_lost, 0);
        }
}

static void fewer_parts_than_processes_are_refused(void **state) {
  (void)state;
  hark_status statuses[TEST_MOST_RANKS];
  char messages[TEST_MOST_RANKS][512];
  shared_case c = {2, 5};
  test_group_run(3, 60, sum_together, &c, statuses, messages);
  for (int rank = 0; rank < 3; rank++) assert_int_equal(statuses[rank], HARK_BAD_CONFIGURATION);
  assert_non_null(strstr(messages[0], "train.accumulate is 2"));
}

static void more_parts_than_buffers_are_refused(void **state) {
  (void)state;
  hark_context *context = test_reference_open();
  const int64_t shape[] = {NUMBERS};
  hark_tensor gradients;
  hark_gradient_sum sum;
  assert_fine(context, hark_tensor_create(context, HARK_F32, 1, shape, &gradients));
  assert_fine(context, hark_gradient_sum_create(context, &gradients, 1, true, &sum));
  compute(context, &sum, &gradients);
  assert_int_equal(hark_gradient_sum_open(context, &sum), HARK_INVALID_ARGUMENT);
  hark_gradient_sum_destroy(context, &sum);
  hark_tensor_destroy(context, &gradients);
  test_setup_close(context);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_sum_is_that_of_the_tree),         cmocka_unit_test(shares_are_joined_to_the_same_tree),
      cmocka_unit_test(processes_get_the_same_sum),          cmocka_unit_test(fewer_parts_than_processes_are_refused),
      cmocka_unit_test(more_parts_than_buffers_are_refused), cmocka_unit_test(late_messages_change_nothing),
      cmocka_unit_test(final_numbers_are_exchanged_early),   cmocka_unit_test(a_rank_fails_in_the_middle),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
