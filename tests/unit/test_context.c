/* test_context.c - making contexts: options, allocator, threads, messages. */
#include <hark/hark.h>
#include <stdlib.h>
#include <string.h>

#include "core/core.h"
#include "core/parallel.h"
#include "support/cmocka_all.h"
#include "support/setups.h"

static void defaults_make_a_context_on_the_cpu(void **state) {
  (void)state;
  hark_context *context = NULL;
  assert_int_equal(hark_context_create(NULL, &context), HARK_OK);
  assert_string_equal(hark_context_backend(context), "cpu");
  assert_true(strlen(hark_context_instruction_set(context)) > 0);
  assert_true(hark_context_threads(context) >= 1);
  assert_string_equal(hark_context_message(context), "");
  hark_context_destroy(&context);
  assert_null(context);
  hark_context_destroy(&context);
  hark_context_destroy(NULL);
}

static int one_thread(void *user) {
  (void)user;
  return 1;
}

/* Tables without their functions. */
static void incomplete_tables_are_refused(void **state) {
  (void)state;
  const hark_allocator allocator = {0};
  const hark_parallel parallel = {.threads = one_thread};
  const hark_context_options options[] = {{.struct_size = sizeof *options, .allocator = &allocator},
                                          {.struct_size = sizeof *options, .parallel = &parallel}};
  for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
    hark_context *context = (hark_context *)1;
    assert_int_equal(hark_context_create(&options[i], &context), HARK_INVALID_ARGUMENT);
    assert_null(context);
  }
}

static void unknown_names_are_refused(void **state) {
  (void)state;
  const hark_context_options no_backend = {.struct_size = sizeof no_backend, .backend = "abacus"};
  const hark_context_options no_set = {.struct_size = sizeof no_set, .backend = "cpu", .instruction_set = "mmx"};
  hark_context *context = (hark_context *)1;
  assert_int_equal(hark_context_create(&no_backend, &context), HARK_NO_BACKEND);
  assert_null(context);
  context = (hark_context *)1;
  assert_int_equal(hark_context_create(&no_set, &context), HARK_NO_BACKEND);
  assert_null(context);
}

static void every_setup_has_the_names_that_were_asked_for(void **state) {
  (void)state;
  test_setup setups[TEST_MAX_SETUPS];
  const int count = test_setups(setups);
  assert_true(count >= 2); /* the reference and the generic cpu are everywhere */
  for (int i = 0; i < count; i++) {
    hark_context *context = test_setup_open(&setups[i], 1);
    assert_string_equal(hark_context_backend(context), setups[i].backend);
    assert_string_equal(hark_context_instruction_set(context), setups[i].instruction_set);
    test_setup_close(context);
  }
}

typedef struct counter {
  size_t live;
  int calls, fail_at; /* 0: never */
} counter;

static void *counted_allocate(void *user, size_t bytes, size_t alignment) {
  counter *c = user;
  if (++c->calls == c->fail_at) return NULL;
  c->live += bytes;
  return aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

static void counted_release(void *user, void *memory, size_t bytes) {
  counter *c = user;
  assert_non_null(memory);
  c->live -= bytes;
  free(memory);
}

static void everything_comes_from_the_allocator_and_goes_back(void **state) {
  (void)state;
  counter c = {0};
  const hark_allocator allocator = {counted_allocate, counted_release, &c};
  const hark_context_options options = {.struct_size = sizeof options, .allocator = &allocator};
  hark_context *context = NULL;
  assert_int_equal(hark_context_create(&options, &context), HARK_OK);
  const int64_t shape[] = {3, 5};
  hark_tensor tensor;
  const size_t before = hark_context_memory(context).live_bytes;
  assert_int_equal(hark_tensor_create(context, HARK_F64, 2, shape, &tensor), HARK_OK);
  assert_int_equal(hark_context_memory(context).live_bytes, before + 15 * sizeof(double));
  assert_int_equal(hark_context_memory(context).live_bytes, c.live);
  hark_tensor_destroy(context, &tensor);
  assert_int_equal(hark_context_memory(context).live_bytes, before);
  assert_true(hark_context_memory(context).peak_bytes >= before + 15 * sizeof(double));
  hark_context_destroy(&context);
  assert_int_equal(c.live, 0);
}

static void every_allocation_may_fail(void **state) {
  (void)state;
  int failures = 0;
  for (int fail_at = 1;; fail_at++) {
    counter c = {.fail_at = fail_at};
    const hark_allocator allocator = {counted_allocate, counted_release, &c};
    const hark_context_options options = {.struct_size = sizeof options, .allocator = &allocator};
    hark_context *context = NULL;
    hark_tensor tensor = {0};
    hark_status status = hark_context_create(&options, &context);
    if (status == HARK_OK) status = hark_tensor_create(context, HARK_F32, 1, (const int64_t[]){7}, &tensor);
    if (status == HARK_OK) {
      hark_tensor_destroy(context, &tensor);
    } else {
      assert_int_equal(status, HARK_OUT_OF_MEMORY);
      assert_null(tensor.data);
      failures++;
    }
    hark_context_destroy(&context);
    assert_int_equal(c.live, 0);
    if (status == HARK_OK) break;
  }
  assert_true(failures >= 2); /* the context and the tensor at least */
}

static void messages_are_kept_by_context(void **state) {
  (void)state;
  hark_context *a = test_reference_open(), *b = test_reference_open();
  hark_tensor tensor;
  assert_int_equal(hark_tensor_create(a, HARK_F32, 1, (const int64_t[]){-4}, &tensor), HARK_INVALID_ARGUMENT);
  assert_non_null(strstr(hark_context_message(a), "-4"));
  assert_string_equal(hark_context_message(b), "");
  assert_int_equal(hark_fail(a, HARK_BUSY, "%s", "inner"), HARK_BUSY);
  hark_fail_prefix(a, "outer %d: ", 3);
  assert_string_equal(hark_context_message(a), "outer 3: inner");
  hark_context_destroy(&a);
  hark_context_destroy(&b);
}

static void a_message_that_is_too_long_is_cut(void **state) {
  (void)state;
  char text[4 * HARK_MESSAGE_BYTES];
  memset(text, 'x', sizeof text - 1);
  text[sizeof text - 1] = '\0';
  hark_context *context = test_reference_open();
  assert_int_equal(hark_fail(context, HARK_BUSY, "%s", text), HARK_BUSY);
  assert_int_equal(strlen(hark_context_message(context)), HARK_MESSAGE_BYTES - 1);
  hark_fail_prefix(context, "%s", text);
  assert_int_equal(strlen(hark_context_message(context)), HARK_MESSAGE_BYTES - 1);
  hark_context_destroy(&context);
}

/* Whatever names and texts of others stand in it. */
static void a_message_is_one_line(void **state) {
  (void)state;
  hark_context *context = test_reference_open();
  assert_int_equal(hark_fail(context, HARK_BAD_FILE, "a%sb", "\n\r\t\x1b[31m\x7f\xc2\x9b\xc2\xa0\xc3\xa9"), HARK_BAD_FILE);
  assert_string_equal(hark_context_message(context),
                      "a????[31m???\xc2\xa0\xc3\xa9"
                      "b");
  hark_fail_prefix(context, "%s", "x\ny");
  assert_string_equal(hark_context_message(context),
                      "x?ya????[31m???\xc2\xa0\xc3\xa9"
                      "b");
  /* not cut within a character */
  char text[2 * HARK_MESSAGE_BYTES];
  for (int shift = 0; shift < 2; shift++) {
    memset(text, 'x', sizeof text);
    for (size_t i = (size_t)shift; i + 2 < sizeof text; i += 2) memcpy(text + i, "\xc3\xa9", 2);
    text[sizeof text - 1] = '\0';
    (void)hark_fail(context, HARK_BAD_FILE, "%s", text);
    const char *const message = hark_context_message(context);
    const size_t length = strlen(message);
    assert_true(length >= HARK_MESSAGE_BYTES - 3 && memcmp(message, text, length) == 0);
    assert_int_equal((length - (size_t)shift) % 2, 0);
  }
  hark_context_destroy(&context);
}

typedef struct log_record {
  int count;
  hark_log_level level;
  char text[64];
} log_record;

static void record(void *user, hark_log_level level, const char *message) {
  log_record *r = user;
  r->count++;
  r->level = level;
  strncpy(r->text, message, sizeof r->text - 1);
}

static void the_logger_hears_what_is_logged(void **state) {
  (void)state;
  log_record r = {0};
  const hark_context_options options = {.struct_size = sizeof options, .logger = record, .logger_user = &r};
  hark_context *context = NULL;
  assert_int_equal(hark_context_create(&options, &context), HARK_OK);
  hark_log(context, HARK_LOG_WARNING, "%d left", 7);
  hark_context_destroy(&context);
  assert_int_equal(r.count, 1);
  assert_int_equal(r.level, HARK_LOG_WARNING);
  assert_string_equal(r.text, "7 left");
}

#define PIECES 1000
#define MOST_WORKERS 70

typedef struct piece_counts {
  int seen[PIECES];
  int64_t last[MOST_WORKERS]; /* of each worker, plus one */
  bool bad_order;
  int workers;
  bool bad_worker;
} piece_counts;

static void count_piece(void *data, int64_t index, int worker) {
  piece_counts *counts = data;
  counts->seen[index]++; /* its own cell */
  if (index == 0)        /* long enough for the others to take what is left of this one's share */
    for (volatile int i = 0; i < 200000;) i++;
  if (worker < 0 || worker >= counts->workers) {
    counts->bad_worker = true;
  } else {
    counts->bad_order = counts->bad_order || index < counts->last[worker];
    counts->last[worker] = index + 1;
  }
}

/* The least index first; of like length, in shares; and with work for one thread and for several. */
enum { IN_ORDER, EQUAL, SHORT, LONG, WAYS };

static void run_pieces(hark_context *context, int way, int64_t count, piece_counts *counts) {
  switch (way) {
    case IN_ORDER: hark_parallel_for(context, count, count_piece, counts); break;
    case EQUAL: hark_parallel_for_equal(context, count, count_piece, counts); break;
    default: hark_parallel_for_work(context, count, way == SHORT ? 1 : 1e9, count_piece, counts); break;
  }
}

static void every_piece_runs_once(void **state) {
  (void)state;
  static const int threads[] = {1, 2, 3, 5, MOST_WORKERS}; /* the last: more than have shares of their own */
  for (size_t t = 0; t < sizeof threads / sizeof threads[0]; t++) {
    const test_setup setup = {"reference", NULL};
    hark_context *context = test_setup_open(&setup, threads[t]);
    for (int way = 0; way < WAYS; way++) {
      for (int64_t count = 0; count <= PIECES; count += count < 3 ? 1 : PIECES - 3) {
        piece_counts counts = {.workers = way == SHORT ? 1 : hark_workers(context)};
        run_pieces(context, way, count, &counts);
        for (int i = 0; i < PIECES; i++) assert_int_equal(counts.seen[i], i < count ? 1 : 0);
        assert_false(counts.bad_worker);
        if (way == IN_ORDER) assert_false(counts.bad_order);
      }
    }
    hark_context_destroy(&context);
  }
}

static int four_threads(void *user) {
  (void)user;
  return 4;
}

/* The program's own pool: backwards, to show that the order is its business. */
static void run_backwards(void *user, int64_t count, hark_task *task, void *data) {
  ++*(int *)user;
  for (int64_t i = count; i-- > 0;) task(data, i, (int)(i % 4));
}

static void a_program_may_bring_its_own_threads(void **state) {
  (void)state;
  int runs = 0;
  const hark_parallel parallel = {four_threads, run_backwards, &runs};
  const hark_context_options options = {.struct_size = sizeof options, .backend = "reference", .parallel = &parallel, .threads = 8};
  hark_context *context = NULL;
  assert_int_equal(hark_context_create(&options, &context), HARK_OK);
  assert_int_equal(hark_context_threads(context), 4);
  for (int way = 0; way < WAYS; way++) {
    piece_counts counts = {.workers = 4};
    runs = 0;
    run_pieces(context, way, PIECES, &counts);
    for (int i = 0; i < PIECES; i++) assert_int_equal(counts.seen[i], 1);
    assert_int_equal(runs, way == SHORT ? 0 : 1);
    assert_false(counts.bad_worker);
  }
  hark_context_destroy(&context);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(defaults_make_a_context_on_the_cpu),
      cmocka_unit_test(incomplete_tables_are_refused),
      cmocka_unit_test(unknown_names_are_refused),
      cmocka_unit_test(every_setup_has_the_names_that_were_asked_for),
      cmocka_unit_test(everything_comes_from_the_allocator_and_goes_back),
      cmocka_unit_test(every_allocation_may_fail),
      cmocka_unit_test(messages_are_kept_by_context),
      cmocka_unit_test(a_message_that_is_too_long_is_cut),
      cmocka_unit_test(a_message_is_one_line),
      cmocka_unit_test(the_logger_hears_what_is_logged),
      cmocka_unit_test(every_piece_runs_once),
      cmocka_unit_test(a_program_may_bring_its_own_threads),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
