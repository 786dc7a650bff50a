/* test_group.c - what processes do together, with threads in their place (tests/support/train/group_threads.c). */
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/core.h"
#include "group/part.h"
#include "support/cmocka_all.h"
#include "support/train/group_threads.h"

enum { SIZES = TEST_MOST_RANKS };

static void shares_are_even_and_complete(void **state) {
  (void)state;
  static const int64_t totals[] = {1, 2, 7, 8, 100, INT64_MAX / 2};
  for (size_t t = 0; t < sizeof totals / sizeof *totals; t++)
    for (int size = 1; size <= SIZES; size++) {
      int64_t next = 0;
      for (int rank = 0; rank < size; rank++) {
        const hark_share share = hark_group_share(totals[t], rank, size);
        assert_int_equal(share.first, next);
        assert_true(share.count == totals[t] / size || share.count == totals[t] / size + 1);
        next += share.count;
      }
      assert_int_equal(next, totals[t]);
    }
}

static hark_status alone(hark_context *context) {
  int32_t number = 5, all = 0;
  HARK_TRY(hark_group_broadcast(context, NULL, &number, sizeof number));
  HARK_TRY(hark_group_gather(context, NULL, &number, sizeof number, &all));
  HARK_TRY(hark_group_exchange(context, NULL, NULL, 0));
  if (all != 5 || hark_group_rank(NULL) != 0 || hark_group_size(NULL) != 1) return HARK_INTERNAL_ERROR;
  return hark_group_agree(context, NULL, HARK_OK);
}

static hark_status all_together(hark_context *context, hark_group *group, void *user) {
  const int rank = hark_group_rank(group), size = hark_group_size(group);
  int64_t numbers[3] = {rank == 0 ? 7 : 0, rank == 0 ? 8 : 0, rank == 0 ? 9 : 0}, mine[2] = {rank, -rank}, all[2 * SIZES];
  (void)user;
  HARK_TRY(alone(context));
  for (int round = 0; round < 20; round++) {
    HARK_TRY(hark_group_broadcast(context, group, numbers, sizeof numbers));
    HARK_TRY(hark_group_gather(context, group, mine, sizeof mine, all));
    HARK_TRY(hark_group_agree(context, group, HARK_OK));
    if (numbers[0] != 7 || numbers[1] != 8 || numbers[2] != 9) return hark_fail(context, HARK_INTERNAL_ERROR, "the broadcast was lost");
    for (int r = 0; r < size; r++)
      if (all[2 * r] != r || all[2 * r + 1] != -r) return hark_fail(context, HARK_INTERNAL_ERROR, "rank %d was lost", r);
  }
  return HARK_OK;
}

static void broadcast_gather_and_agree(void **state) {
  (void)state;
  for (int size = 1; size <= SIZES; size++) test_group_run(size, 30, all_together, NULL, NULL, NULL);
}

/* Everybody with everybody, twice, of different lengths: none, few bytes, more than a piece. */
static hark_status crowd(hark_context *context, hark_group *group, void *user) {
  const size_t lengths[] = {0, 3, *(const size_t *)user};
  const int rank = hark_group_rank(group), size = hark_group_size(group);
  hark_message messages[SIZES * 6] = {{0}};
  unsigned char *data[SIZES * 6] = {0};
  int count = 0;
  for (int peer = 0; peer < size; peer++)
    for (int l = 0; l < 3; l++)
      for (int sends = 0; sends < 2; sends++) {
        if (peer == rank) continue;
        data[count] = malloc(lengths[l] + 1);
        if (data[count] == NULL) return HARK_OUT_OF_MEMORY;
        memset(data[count], sends ? 10 * rank + peer + l : 0, lengths[l] + 1);
        messages[count] = (hark_message){data[count], lengths[l], peer, sends == 1};
        count++;
      }
  hark_status status = hark_group_exchange(context, group, messages, count);
  for (int i = 0; i < count; i++) {
    const int expected = 10 * messages[i].peer + rank + i % 6 / 2;
    for (size_t b = 0; b < messages[i].bytes && !messages[i].sends; b++)
      if (data[i][b] != expected && status == HARK_OK) status = hark_fail(context, HARK_INTERNAL_ERROR, "byte %zu of message %d", b, i);
    free(data[i]);
  }
  return status;
}

static void messages_arrive_where_they_belong(void **state) {
  (void)state;
  size_t length = 1000, longest = (size_t)HARK_TRANSPORT_PIECE + 5;
  for (int size = 1; size <= SIZES; size++) test_group_run(size, 30, crowd, &length, NULL, NULL);
  test_group_run(2, 60, crowd, &longest, NULL, NULL);
}

/* ---- failures ---- */

typedef struct failures {
  hark_status of[SIZES];
  const char *messages[SIZES];
} failures;

static hark_status fail_as_given(hark_context *context, hark_group *group, void *user) {
  const failures *const f = user;
  const int rank = hark_group_rank(group);
  const hark_status own = f->of[rank] != HARK_OK ? hark_fail(context, f->of[rank], "%s", f->messages[rank]) : HARK_OK;
  return hark_group_agree(context, group, own);
}

static void assert_agree(int size, const failures *f, hark_status status, const char *message) {
  hark_status statuses[SIZES];
  char messages[SIZES][512];
  failures copy = *f;
  test_group_run(size, 30, fail_as_given, &copy, statuses, messages);
  for (int rank = 0; rank < size; rank++) {
    assert_int_equal(statuses[rank], status);
    assert_string_equal(messages[rank], message);
  }
}

static void one_failure_is_that_of_all(void **state) {
  (void)state;
  const failures one = {.of = {[2] = HARK_OUT_OF_MEMORY}, .messages = {[2] = "no memory"}};
  assert_agree(3, &one, HARK_OUT_OF_MEMORY, "rank 2: no memory");
  const failures same = {.of = {HARK_BAD_CONFIGURATION, HARK_BAD_CONFIGURATION}, .messages = {"x is 3", "x is 3"}};
  assert_agree(2, &same, HARK_BAD_CONFIGURATION, "x is 3");
  const failures different = {.of = {[1] = HARK_BAD_FILE, [3] = HARK_IO_ERROR}, .messages = {[1] = "a", [3] = "b"}};
  assert_agree(4, &different, HARK_BAD_FILE, "rank 1: a");
  const failures not_finite = {.of = {HARK_NOT_FINITE, HARK_OK, HARK_IO_ERROR}, .messages = {"nan", NULL, "disk"}};
  assert_agree(3, &not_finite, HARK_IO_ERROR, "rank 2: disk");
  const failures only_not_finite = {.of = {[1] = HARK_NOT_FINITE, [2] = HARK_NOT_FINITE}, .messages = {[1] = "nan", [2] = "inf"}};
  assert_agree(3, &only_not_finite, HARK_NOT_FINITE, "rank 1: nan");
}

/* A rank that fails earlier comes to the place where the others meet with notes, and all end with its error, also at every later place. */
static hark_status meet_elsewhere(hark_context *context, hark_group *group, void *user) {
  int32_t mine = hark_group_rank(group), all[SIZES];
  (void)user;
  HARK_TRY(hark_group_meet(context, group, HARK_OK, &mine, sizeof mine, all));
  for (int rank = 0; rank < hark_group_size(group); rank++)
    if (all[rank] != rank) return HARK_INTERNAL_ERROR;
  if (mine == 1) return hark_group_agree(context, group, hark_fail(context, HARK_IO_ERROR, "the disk is full"));
  const hark_status status = hark_group_meet(context, group, HARK_OK, &mine, sizeof mine, all);
  if (status != HARK_IO_ERROR || hark_group_gather(context, group, &mine, sizeof mine, all) != HARK_IO_ERROR) return HARK_INTERNAL_ERROR;
  return hark_group_agree(context, group, HARK_OK);
}

static void a_failure_elsewhere_ends_all(void **state) {
  (void)state;
  hark_status statuses[SIZES];
  char messages[SIZES][512];
  test_group_run(4, 30, meet_elsewhere, NULL, statuses, messages);
  for (int rank = 0; rank < 4; rank++) {
    assert_int_equal(statuses[rank], HARK_IO_ERROR);
    assert_string_equal(messages[rank], "rank 1: the disk is full");
  }
}

/* The last rank leaves without a word. */
static hark_status one_is_silent(hark_context *context, hark_group *group, void *user) {
  int32_t number = 0;
  (void)user;
  if (hark_group_rank(group) == hark_group_size(group) - 1) return HARK_OK;
  const hark_message message = {&number, sizeof number, hark_group_size(group) - 1, false};
  return hark_group_exchange(context, group, &message, 1);
}

static void a_silent_rank_is_named(void **state) {
  (void)state;
  hark_status statuses[SIZES];
  char messages[SIZES][512];
  test_group_run(3, 0.2, one_is_silent, NULL, statuses, messages);
  for (int rank = 0; rank < 2; rank++) {
    char expected[512];
    (void)snprintf(expected, sizeof expected, "rank 2 did not answer rank %d for 0.2 seconds", rank);
    assert_int_equal(statuses[rank], HARK_CANCELLED);
    assert_string_equal(messages[rank], expected);
  }
}

/* Rank 0 waits for rank 1, which waits for rank 2, which is silent until rank 0 has given up. */
static hark_status wait_in_a_chain(hark_context *context, hark_group *group, void *user) {
  atomic_bool *const given_up = user;
  int32_t number = 0;
  const int rank = hark_group_rank(group);
  const hark_message receives = {&number, sizeof number, rank + 1, false}, sends = {&number, sizeof number, 1, true};
  group->limit = rank == 0 ? 1 : 60;
  while (rank == 2 && !atomic_load(given_up)) (void)sched_yield();
  const hark_status status = hark_group_exchange(context, group, rank == 2 ? &sends : &receives, 1);
  if (rank == 0) atomic_store(given_up, true);
  return status;
}

/* In a part of the group, whose processes have other names. */
static hark_status wait_in_a_chain_of_a_part(hark_context *context, hark_group *group, void *user) {
  hark_group_part part;
  if (hark_group_rank(group) == 0) return HARK_OK;
  hark_group_part_open(group, 1, 1, 3, &part);
  const hark_status status = wait_in_a_chain(context, &part.group, user);
  hark_group_release(context, &part.group);
  return status;
}

static void who_waits_is_not_named(void **state) {
  static const char *const expected[] = {"rank 2 did not answer rank 1 for ", "rank 3 did not answer rank 2 for "};
  (void)state;
  for (int part = 0; part < 2; part++)
    for (int late = 0; late < 2; late++) {
      hark_status statuses[SIZES];
      char messages[SIZES][512];
      atomic_bool given_up = false;
      test_group_lateness = late * 3;
      test_group_run(3 + part, 60, part ? wait_in_a_chain_of_a_part : wait_in_a_chain, &given_up, statuses, messages);
      test_group_lateness = 0;
      assert_int_equal(statuses[part], HARK_CANCELLED);
      assert_int_equal(statuses[part + 1], HARK_OK);
      if (strstr(messages[part], expected[part]) != messages[part]) fail_msg("%s, expected %s", messages[part], expected[part]);
    }
}

/* Rank 1 sends its number when it has been asked, and does not read the question. All is as if nobody had asked. */
static hark_status one_is_late(hark_context *context, hark_group *group, void *user) {
  int32_t number = 7 * hark_group_rank(group), all[2];
  bool asked = hark_group_rank(group) == 0;
  int from = 0;
  (void)user;
  if (hark_group_rank(group) == 0) group->limit = 2;
  while (!asked && group->transport->arrived(group->transport, HARK_INQUIRY_QUESTION_TAG, &from, &asked) == 0) (void)sched_yield();
  for (int turn = 0; turn < 2; turn++) {
    HARK_TRY(hark_group_gather(context, group, &number, sizeof number, all));
    if (all[0] != 0 || all[1] != 7) return HARK_INTERNAL_ERROR;
  }
  return HARK_OK;
}

static void a_late_rank_is_not_lost(void **state) {
  (void)state;
  test_group_run(2, 30, one_is_late, NULL, NULL, NULL);
}

/* Processes that do different things have messages of different lengths. */
static hark_status disagree(hark_context *context, hark_group *group, void *user) {
  int64_t number = 0;
  (void)user;
  const hark_message message = {&number, hark_group_rank(group) == 0 ? 8 : 4, 1 - hark_group_rank(group), hark_group_rank(group) == 0};
  return hark_group_exchange(context, group, &message, 1);
}

static void another_length_is_an_error(void **state) {
  (void)state;
  hark_status statuses[SIZES];
  char messages[SIZES][512];
  test_group_run(2, 30, disagree, NULL, statuses, messages);
  assert_int_equal(statuses[1], HARK_CANCELLED);
  assert_string_equal(messages[1], "rank 1: the connection to rank 0 failed: 8 bytes, expected 4");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(shares_are_even_and_complete),
      cmocka_unit_test(broadcast_gather_and_agree),
      cmocka_unit_test(messages_arrive_where_they_belong),
      cmocka_unit_test(one_failure_is_that_of_all),
      cmocka_unit_test(a_failure_elsewhere_ends_all),
      cmocka_unit_test(a_silent_rank_is_named),
      cmocka_unit_test(who_waits_is_not_named),

      cmocka_unit_test(a_late_rank_is_not_lost),
      cmocka_unit_test(another_length_is_an_error),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
