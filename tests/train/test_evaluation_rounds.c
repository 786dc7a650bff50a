/* test_evaluation_rounds.c - the sums of an evaluation have the same bits for any number of processes, and rank 0 has the counts of all.
 * Threads are in the place of processes. */
#include <math.h>
#include <string.h>

#include "support/cmocka_all.h"
#include "support/text_files.h"
#include "support/train/group_threads.h"
#include "train/evaluation_rounds.h"

#define MORE 5
#define COUNTED 2500 /* more than are sent at once */

typedef struct rounds_case {
  int64_t batches;
  int64_t fails; /* the batch that fails; -1: none */
  double loss, more[MORE];
  int64_t counts[COUNTED];
} rounds_case;

typedef struct walk {
  hark_context *context;
  const rounds_case *c;
  double more_batch[MORE], more[MORE];
  int64_t counts[COUNTED];
} walk;

static double number_of(int64_t batch, int64_t i) {
  return ldexp(1 + (double)((batch * 7919 + i * 104729) % 1009) / 1013, (int)((batch + i) % 9));
}

static hark_status measure(void *user, int64_t batch, hark_batch_sums *out) {
  walk *const w = user;
  if (batch == w->c->fails) return hark_fail(w->context, HARK_NOT_FINITE, "batch %d", (int)batch);
  *out = (hark_batch_sums){.loss = number_of(batch, 0), .targets = batch + 1};
  for (int i = 0; i < MORE; i++) {
    if (w->more_batch[i] != 0) return hark_fail(w->context, HARK_INTERNAL_ERROR, "the further sums are not zero before");
    w->more_batch[i] = number_of(batch, 1 + i);
  }
  for (int64_t i = 0; i < COUNTED; i++) w->counts[i] += (batch * i) % 3;
  return HARK_OK;
}

static hark_status evaluate(hark_context *context, hark_group *group, void *user) {
  static const hark_engine none = {.config = NULL};
  const rounds_case *const c = user;
  hark_engine engine = none;
  walk w = {.context = context, .c = c};
  context->group = group;
  const hark_evaluation_rounds rounds = {.batches = c->batches,
                                         .measure = measure,
                                         .user = &w,
                                         .more = MORE,
                                         .more_batch = w.more_batch,
                                         .more_sums = w.more,
                                         .counted = COUNTED,
                                         .counts = w.counts};
  hark_batch_sums sums;
  bool complete = false;
  hark_status status = hark_evaluate_rounds(context, &engine, &rounds, &sums, &complete);
  status = hark_group_agree(context, group, status);
  if (status != HARK_OK) return status;
  if (!complete || sums.targets != c->batches * (c->batches + 1) / 2) return hark_fail(context, HARK_INTERNAL_ERROR, "batches are missing");
  if (memcmp(&sums.loss, &c->loss, sizeof c->loss) != 0 || memcmp(w.more, c->more, sizeof c->more) != 0)
    return hark_fail(context, HARK_INTERNAL_ERROR, "the sums differ");
  if (hark_group_rank(group) == 0 && memcmp(w.counts, c->counts, sizeof c->counts) != 0)
    return hark_fail(context, HARK_INTERNAL_ERROR, "the counts differ");
  return HARK_OK;
}

/* By definition: one batch after the other. */
static void define(rounds_case *c) {
  *c = (rounds_case){.batches = c->batches, .fails = -1};
  for (int64_t batch = 0; batch < c->batches; batch++) {
    c->loss += number_of(batch, 0);
    for (int i = 0; i < MORE; i++) c->more[i] += number_of(batch, 1 + i);
    for (int64_t i = 0; i < COUNTED; i++) c->counts[i] += (batch * i) % 3;
  }
}

static void sums_have_the_same_bits(void **state) {
  static rounds_case c;
  (void)state;
  for (c.batches = 0; c.batches <= 19; c.batches += c.batches < 4 ? 1 : 5) {
    define(&c);
    for (int size = 1; size <= TEST_MOST_RANKS; size++) test_group_run(size, 60, evaluate, &c, NULL, NULL);
  }
}

static void a_failure_is_that_of_all(void **state) {
  static rounds_case c = {.batches = 7};
  hark_status statuses[TEST_MOST_RANKS];
  char messages[TEST_MOST_RANKS][512];
  (void)state;
  define(&c);
  c.fails = 4;
  test_group_run(3, 60, evaluate, &c, statuses, messages);
  for (int rank = 0; rank < 3; rank++) {
    assert_int_equal(statuses[rank], HARK_NOT_FINITE);
    assert_string_equal(messages[rank], "rank 1: batch 4");
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(sums_have_the_same_bits), cmocka_unit_test(a_failure_is_that_of_all)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
