/* test_cancel.c - attention that the program ends before it is done: the status, the context afterwards, who is asked, threads of the
 * program, and calls inside operators and tapes. No call here is measured: each is repeated with twice the length until it took long enough
 * for the library to ask, on any machine. */
#include "support/cmocka_all.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <hark/hark.h>

enum { FIRST = 8192, LONGEST = 1 << 20, SHORT = 300, WIDTH = 8 };

static size_t bytes_of(int64_t length) { return (size_t)length * WIDTH * sizeof(float); }

typedef struct program {
  int asked, agrees_at; /* the number of the question to which it agrees; 0: never */
  bool elsewhere;       /* asked in another thread */
  pthread_t thread;
} program;

static bool is_asked(void *user) {
  program *const p = user;
  if (!pthread_equal(p->thread, pthread_self())) p->elsewhere = true;
  return ++p->asked == p->agrees_at;
}

static hark_context *create(program *p, const char *backend, int threads, const hark_parallel *parallel) {
  p->thread = pthread_self();
  const hark_context_options options = {
      .struct_size = sizeof options, .backend = backend, .threads = threads, .parallel = parallel, .cancel = is_asked, .cancel_user = p};
  hark_context *context;
  assert_int_equal(hark_context_create(&options, &context), HARK_OK);
  return context;
}

typedef struct rows {
  float *query, *out, *log_sum_exp, *gradient[3];
  hark_attention_desc desc;
} rows;

static float *numbers(int64_t count) {
  float *const data = malloc((size_t)count * sizeof *data);
  assert_non_null(data);
  for (int64_t i = 0; i < count; i++) data[i] = (float)sin(0.7 * (double)(i + 1));
  return data;
}

static rows make(int64_t length) {
  rows r = {.query = numbers(length * WIDTH),
            .out = numbers(length * WIDTH),
            .log_sum_exp = numbers(length),
            .desc = hark_attention_desc_default()};
  for (int i = 0; i < 3; i++) r.gradient[i] = numbers(length * WIDTH);
  r.desc.type = HARK_F32;
  r.desc.batch = r.desc.heads = 1;
  r.desc.query_length = r.desc.key_length = length;
  r.desc.head_dim = WIDTH;
  return r;
}

static void release(rows *r) {
  free(r->query);
  free(r->out);
  free(r->log_sum_exp);
  for (int i = 0; i < 3; i++) free(r->gradient[i]);
}

static hark_tensor tensor(hark_context *context, const rows *r, float *data) {
  const int64_t shape[] = {1, 1, r->desc.query_length, WIDTH};
  hark_tensor result;
  assert_int_equal(hark_tensor_wrap(context, data, HARK_F32, 4, shape, NULL, &result), HARK_OK);
  return result;
}

static hark_attention_args arguments(hark_context *context, const rows *r) {
  hark_attention_args args = {.struct_size = sizeof args};
  args.query = args.key = args.value = args.dout = tensor(context, r, r->query);
  args.out = tensor(context, r, r->out);
  args.dquery = tensor(context, r, r->gradient[0]);
  args.dkey = tensor(context, r, r->gradient[1]);
  args.dvalue = tensor(context, r, r->gradient[2]);
  if (r->desc.normalisation == HARK_NORMALISATION_CME) return args;
  const int64_t shape[] = {1, 1, r->desc.query_length};
  assert_int_equal(hark_tensor_wrap(context, r->log_sum_exp, HARK_F32, 3, shape, NULL, &args.log_sum_exp), HARK_OK);
  return args;
}

static void *reserve(size_t bytes) {
  void *const memory = aligned_alloc(64, (bytes + 64) / 64 * 64);
  assert_non_null(memory);
  return memory;
}

/* A forward, and with `back` a backward, in which alone the program may agree. */
static hark_status call(hark_context *context, program *p, const rows *r, bool back) {
  hark_attention_plan *plan;
  if (hark_attention_plan_create(context, &r->desc, &plan) != HARK_OK) fail_msg("%s", hark_context_message(context));
  const hark_attention_sizes sizes = hark_attention_plan_sizes(plan);
  hark_attention_args args = arguments(context, r);
  args.saved = reserve(sizes.saved);
  args.workspace = reserve(sizes.forward_workspace + sizes.backward_workspace);
  const int agrees_at = p->agrees_at;
  if (back) p->agrees_at = 0;
  hark_status status = hark_attention_forward(context, plan, &args);
  if (back) {
    assert_int_equal(status, HARK_OK);
    p->asked = 0;
    p->agrees_at = agrees_at;
    status = hark_attention_backward(context, plan, &args);
  }
  free(args.saved);
  free(args.workspace);
  hark_attention_plan_destroy(context, &plan);
  return status;
}

/* A short call has the bits that it has in a context that cannot be cancelled. */
static void check_usable(hark_context *context, program *p, const hark_attention_desc *kind) {
  hark_context *other;
  assert_int_equal(hark_context_create(NULL, &other), HARK_OK);
  rows expected = make(SHORT), have = make(SHORT);
  expected.desc = have.desc = *kind;
  expected.desc.query_length = expected.desc.key_length = have.desc.query_length = have.desc.key_length = SHORT;
  p->agrees_at = 0;
  assert_int_equal(call(other, p, &expected, true), HARK_OK);
  assert_int_equal(call(context, p, &have, true), HARK_OK);
  assert_memory_equal(have.out, expected.out, bytes_of(SHORT));
  for (int i = 0; i < 3; i++) assert_memory_equal(have.gradient[i], expected.gradient[i], bytes_of(SHORT));
  release(&expected);
  release(&have);
  hark_context_destroy(&other);
}

static void check_cancelled(hark_context *context, program *p, hark_status status) {
  if (status != HARK_CANCELLED) fail_msg("%s, expected HARK_CANCELLED: %s", hark_status_name(status), hark_context_message(context));
  assert_string_equal(hark_context_message(context), "cancelled");
  assert_int_equal(p->asked, p->agrees_at); /* not again after it agreed */
  assert_false(p->elsewhere);
  p->asked = 0;
}

/* Calls of growing lengths, the first of `length`, until one took so long that the program was asked: the status of that one.
 * A window reaches half the rows. */
static hark_status grow(hark_context *context, program *p, hark_attention_desc kind, int64_t length, bool back) {
  hark_status status = HARK_OK;
  for (p->asked = 0; p->asked == 0; length *= 2) {
    if (length > LONGEST) fail_msg("%d rows: the program is not asked", LONGEST);
    rows r = make(length);
    kind.query_length = kind.key_length = length;
    if (kind.structure == HARK_STRUCTURE_WINDOW) kind.window = length / 2;
    r.desc = kind;
    status = call(context, p, &r, back);
    release(&r);
  }
  return status;
}

static void cancel_kind(const char *name, const hark_attention_desc *kind, int64_t length, int threads) {
  program p = {.agrees_at = 1};
  hark_context *context = create(&p, "cpu", threads, NULL);
  const size_t before = hark_context_memory(context).live_bytes;
  for (int back = 0; back < 2; back++) {
    p.agrees_at = 1;
    check_cancelled(context, &p, grow(context, &p, *kind, length, back != 0));
  }
  if (hark_context_memory(context).live_bytes != before) fail_msg("%s: memory is left after a cancelled call", name);
  check_usable(context, &p, kind);
  hark_context_destroy(&context);
}

static void test_every_structure_ends_early(void **state) {
  (void)state;
  rows r = make(1);
  hark_attention_desc dense = r.desc, causal = r.desc, window = r.desc, rbf = r.desc;
  release(&r);
  causal.causal = true;
  window.structure = HARK_STRUCTURE_WINDOW;
  window.window = SHORT / 2;
  rbf.kernel = HARK_KERNEL_RBF;
  rbf.sigma = 1.5;
  for (int threads = 1; threads <= 3; threads += 2) {
    cancel_kind("dense", &dense, FIRST, threads);
    cancel_kind("causal", &causal, FIRST, threads);
    cancel_kind("window", &window, FIRST, threads);
    cancel_kind("rbf", &rbf, FIRST, threads);
  }
}

static void test_hierarchies_end_early(void **state) {
  (void)state;
#ifndef HARK_WITH_THREADS
  skip(); /* a head is one piece there, which is computed whole */
#endif
  rows r = make(1);
  hark_attention_desc kind = r.desc;
  release(&r);
  kind.structure = HARK_STRUCTURE_HIERARCHICAL;
  kind.hierarchy_block = 64;
  cancel_kind("hierarchical", &kind, 1 << 14, 2);
}

/* The backward of one head has eight pieces, on one thread; longer and longer calls, until more questions were asked. */
static void test_long_pieces_ask_too(void **state) {
  (void)state;
  program p = {0};
  hark_context *context = create(&p, "cpu", 1, NULL);
  for (int64_t length = FIRST; p.asked <= 8; length *= 2) {
    if (length > LONGEST / 8) fail_msg("only %d questions", p.asked);
    rows r = make(length);
    assert_int_equal(call(context, &p, &r, true), HARK_OK);
    release(&r);
  }
  assert_false(p.elsewhere);
  hark_context_destroy(&context);
}

static void test_kernel_ridge_regression_ends_early(void **state) {
  (void)state;
  rows r = make(1);
  hark_attention_desc kind = r.desc;
  release(&r);
  kind.normalisation = HARK_NORMALISATION_CME;
  kind.ridge = 0.5;
  for (int causal = 0; causal < 2; causal++) {
    kind.causal = causal != 0;
    cancel_kind("cme", &kind, 1 << 9, 2);
  }
}

static void test_a_program_that_never_agrees(void **state) {
  (void)state;
  program p = {0};
  hark_context *context = create(&p, "cpu", 2, NULL), *other;
  assert_int_equal(hark_context_create(NULL, &other), HARK_OK);
  for (int64_t length = FIRST; p.asked == 0; length *= 2) {
    if (length > LONGEST) fail_msg("%d rows: the program is not asked", LONGEST);
    rows have = make(length), expected = make(length);
    assert_int_equal(call(context, &p, &have, false), HARK_OK);
    assert_int_equal(call(other, &p, &expected, false), HARK_OK);
    assert_memory_equal(have.out, expected.out, bytes_of(length));
    release(&have);
    release(&expected);
  }
  assert_false(p.elsewhere);
  hark_context_destroy(&other);
  hark_context_destroy(&context);
}

/* ---- threads of the program ---- */

typedef struct team {
  _Atomic int64_t next;
  _Atomic int workers;
  int64_t count;
  hark_task *task;
  void *data;
} team;

static void *take(void *argument) {
  team *const t = argument;
  const int worker = atomic_fetch_add(&t->workers, 1);
  for (int64_t i = atomic_fetch_add(&t->next, 1); i < t->count; i = atomic_fetch_add(&t->next, 1)) t->task(t->data, i, worker);
  return NULL;
}

static int two(void *user) {
  (void)user;
  return 2;
}

static void run_team(void *user, int64_t count, hark_task *task, void *data) {
  (void)user;
  team t = {.count = count, .task = task, .data = data};
  pthread_t other;
  assert_int_equal(pthread_create(&other, NULL, take, &t), 0);
  take(&t);
  pthread_join(other, NULL);
}

static void test_threads_of_the_program(void **state) {
  (void)state;
#ifndef HARK_WITH_THREADS
  skip(); /* then the library cannot distinguish them */
#endif
  const hark_parallel table = {.threads = two, .run = run_team};
  program p = {.agrees_at = 1};
  hark_context *context = create(&p, "cpu", 0, &table);
  rows r = make(1);
  const hark_attention_desc dense = r.desc;
  release(&r);
  check_cancelled(context, &p, grow(context, &p, dense, FIRST, false));
  check_usable(context, &p, &dense);
  hark_context_destroy(&context);
}

/* An operator that contains attention fails as it does, also from inside a tape. */
static void test_a_tape_ends_with_the_status(void **state) {
  (void)state;
  program p = {.agrees_at = 1};
  hark_context *context = create(&p, "cpu", 2, NULL);
  hark_status status = HARK_OK;
  for (int64_t length = FIRST; p.asked == 0; length *= 2) {
    if (length > LONGEST) fail_msg("%d rows: the program is not asked", LONGEST);
    rows r = make(length);
    const int64_t shape[] = {1, length, WIDTH};
    hark_tape *tape;
    assert_int_equal(hark_tape_create(context, &tape), HARK_OK);
    const hark_value x = hark_tape_input(tape, HARK_F32, 3, shape, r.query, NULL);
    const hark_value inputs[] = {x, x, x};
    hark_value out;
    const hark_attention_attributes attributes = {.desc = &r.desc};
    status = hark_tape_apply(tape, &hark_op_attention, &attributes, 3, inputs, 0, &out);
    hark_tape_destroy(&tape);
    release(&r);
  }
  check_cancelled(context, &p, status);
  hark_context_destroy(&context);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_every_structure_ends_early),  cmocka_unit_test(test_hierarchies_end_early),
      cmocka_unit_test(test_long_pieces_ask_too),         cmocka_unit_test(test_kernel_ridge_regression_ends_early),
      cmocka_unit_test(test_a_program_that_never_agrees), cmocka_unit_test(test_threads_of_the_program),
      cmocka_unit_test(test_a_tape_ends_with_the_status),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
