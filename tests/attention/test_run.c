/* test_run.c - the simple calls: the bits of a plan with arguments, NULL gradients, what they refuse, and memory that comes to an end. */
#include "support/cmocka_all.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <hark/attention.h>

#include "support/setups.h"

enum { BATCH = 2, HEADS = 4, KEY_HEADS = 2, ROWS = 24, KEYS = 31, WIDTH = 8, VALUE_WIDTH = 5 };
#define LARGEST ((size_t)BATCH * HEADS * KEYS * WIDTH * sizeof(double))

typedef struct buffers {
  void *query, *key, *value, *dout, *out, *dquery, *dkey, *dvalue;
} buffers;

static void *number_buffer(hark_type type, double frequency) {
  char *const data = malloc(LARGEST);
  assert_non_null(data);
  for (size_t i = 0; i < LARGEST / hark_type_bytes(type); i++) {
    const double number = sin(frequency * (double)(i + 1));
    if (type == HARK_F64)
      ((double *)data)[i] = number;
    else
      ((float *)data)[i] = (float)number;
  }
  return data;
}

static buffers make_buffers(hark_type type) {
  return (buffers){number_buffer(type, 0.7), number_buffer(type, 1.3), number_buffer(type, 0.1), number_buffer(type, 2.3),
                   number_buffer(type, 0.2), number_buffer(type, 0.3), number_buffer(type, 0.4), number_buffer(type, 0.5)};
}

static void free_buffers(buffers *b) {
  void *const all[] = {b->query, b->key, b->value, b->dout, b->out, b->dquery, b->dkey, b->dvalue};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

/* ---- the same by a plan ---- */

static hark_tensor wrap(hark_context *context, const hark_attention_desc *desc, void *data, int64_t heads, int64_t rows, int64_t width) {
  hark_tensor tensor;
  const int64_t shape[] = {desc->batch, heads, rows, width};
  assert_int_equal(hark_tensor_wrap(context, data, desc->type, 4, shape, NULL, &tensor), HARK_OK);
  return tensor;
}

static void *reserve(size_t bytes) {
  void *const memory = aligned_alloc(64, (bytes + 64) / 64 * 64);
  assert_non_null(memory);
  return memory;
}

static void run_plan(hark_context *context, const hark_attention_desc *given, buffers *b) {
  hark_attention_plan *plan;
  if (hark_attention_plan_create(context, given, &plan) != HARK_OK) fail_msg("%s", hark_context_message(context));
  const hark_attention_desc *const desc = hark_attention_plan_desc(plan);
  const hark_attention_sizes sizes = hark_attention_plan_sizes(plan);
  const int64_t rows[] = {desc->batch, desc->heads, desc->query_length};
  void *const log_sum_exp = reserve(LARGEST), *const saved = reserve(sizes.saved);
  void *const workspace = reserve(sizes.forward_workspace + sizes.backward_workspace);
  hark_attention_args args = {.struct_size = sizeof args, .saved = saved, .workspace = workspace};
  args.query = wrap(context, desc, b->query, desc->heads, desc->query_length, desc->head_dim);
  args.key = wrap(context, desc, b->key, desc->key_heads, desc->key_length, desc->head_dim);
  args.value = wrap(context, desc, b->value, desc->key_heads, desc->key_length, desc->value_dim);
  args.out = wrap(context, desc, b->out, desc->heads, desc->query_length, desc->value_dim);
  args.dout = wrap(context, desc, b->dout, desc->heads, desc->query_length, desc->value_dim);
  args.dquery = wrap(context, desc, b->dquery, desc->heads, desc->query_length, desc->head_dim);
  args.dkey = wrap(context, desc, b->dkey, desc->key_heads, desc->key_length, desc->head_dim);
  args.dvalue = wrap(context, desc, b->dvalue, desc->key_heads, desc->key_length, desc->value_dim);
  if (desc->normalisation != HARK_NORMALISATION_CME)
    assert_int_equal(hark_tensor_wrap(context, log_sum_exp, desc->type, 3, rows, NULL, &args.log_sum_exp), HARK_OK);
  if (hark_attention_forward(context, plan, &args) != HARK_OK) fail_msg("%s", hark_context_message(context));
  if (hark_attention_backward(context, plan, &args) != HARK_OK) fail_msg("%s", hark_context_message(context));
  free(log_sum_exp);
  free(saved);
  free(workspace);
  hark_attention_plan_destroy(context, &plan);
}

static void run_simple(hark_context *context, const hark_attention_desc *desc, buffers *b) {
  if (hark_attention_run(context, desc, b->query, b->key, b->value, b->out) != HARK_OK) fail_msg("%s", hark_context_message(context));
  if (hark_attention_run_backward(context, desc, b->query, b->key, b->value, b->dout, b->dquery, b->dkey, b->dvalue) != HARK_OK)
    fail_msg("%s", hark_context_message(context));
}

static hark_attention_desc dense(hark_type type) {
  hark_attention_desc desc = hark_attention_desc_default();
  desc.type = type;
  desc.batch = BATCH;
  desc.heads = HEADS;
  desc.key_heads = KEY_HEADS;
  desc.query_length = ROWS;
  desc.key_length = KEYS;
  desc.head_dim = WIDTH;
  desc.value_dim = VALUE_WIDTH;
  return desc;
}

static const char *const kinds[] = {"dense", "causal", "window", "hierarchical", "compressed", "rbf", "cme", "defaults"};

static hark_attention_desc desc_of(const char *kind, hark_type type) {
  hark_attention_desc desc = dense(type);
  if (strcmp(kind, "causal") == 0 || strcmp(kind, "cme") == 0) desc.causal = true;
  if (strcmp(kind, "window") == 0) desc.structure = HARK_STRUCTURE_WINDOW, desc.window = 4;
  if (strcmp(kind, "hierarchical") == 0) desc.structure = HARK_STRUCTURE_HIERARCHICAL, desc.hierarchy_block = 4, desc.query_length = KEYS;
  if (strcmp(kind, "compressed") == 0) {
    desc.structure = HARK_STRUCTURE_COMPRESSED;
    desc.causal = true;
    desc.chunk = 2;
    desc.query_length = KEYS;
  }
  if (strcmp(kind, "rbf") == 0) desc.kernel = HARK_KERNEL_RBF, desc.sigma = 1.5;
  if (strcmp(kind, "cme") == 0) desc.normalisation = HARK_NORMALISATION_CME, desc.ridge = 0.5, desc.query_length = KEYS;
  if (strcmp(kind, "defaults") == 0) desc.key_heads = 0, desc.value_dim = 0;
  return desc;
}

static void same(const char *kind, const char *what, const void *a, const void *b) {
  if (memcmp(a, b, LARGEST) != 0) fail_msg("%s: %s differs from that of a plan", kind, what);
}

/* Whole buffers: nothing is written after the end of a result either. */
static void compare(hark_context *context, const char *kind, hark_type type) {
  const hark_attention_desc desc = desc_of(kind, type);
  if (hark_attention_supports(context, &desc) != HARK_OK) return;
  buffers plan = make_buffers(type), simple = make_buffers(type);
  run_plan(context, &desc, &plan);
  run_simple(context, &desc, &simple);
  same(kind, "out", plan.out, simple.out);
  same(kind, "dquery", plan.dquery, simple.dquery);
  same(kind, "dkey", plan.dkey, simple.dkey);
  same(kind, "dvalue", plan.dvalue, simple.dvalue);
  free_buffers(&plan);
  free_buffers(&simple);
}

static void test_same_as_a_plan(void **state) {
  (void)state;
  test_setup setups[TEST_MAX_SETUPS];
  const int count = test_setups(setups);
  for (int s = 0; s < count; s++) {
    hark_context *const context = test_setup_open_deterministic(&setups[s], 2);
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
      compare(context, kinds[k], HARK_F32);
      compare(context, kinds[k], HARK_F64);
    }
    test_setup_close(context);
  }
}

/* Gradients that are not asked for change nothing in the others. */
static void test_some_gradients(void **state) {
  (void)state;
  hark_context *const context = test_reference_open();
  const hark_attention_desc desc = dense(HARK_F64);
  buffers all = make_buffers(HARK_F64), some = make_buffers(HARK_F64), none = make_buffers(HARK_F64);
  run_simple(context, &desc, &all);
  for (int which = 0; which < 4; which++) {
    void *const asked[] = {which == 0 ? some.dquery : NULL, which == 1 ? some.dkey : NULL, which == 2 ? some.dvalue : NULL};
    assert_int_equal(hark_attention_run_backward(context, &desc, some.query, some.key, some.value, some.dout, asked[0], asked[1], asked[2]),
                     HARK_OK);
  }
  same("some gradients", "dquery", all.dquery, some.dquery);
  same("some gradients", "dkey", all.dkey, some.dkey);
  same("some gradients", "dvalue", all.dvalue, some.dvalue);
  same("some gradients", "out", none.out, some.out);
  free_buffers(&all);
  free_buffers(&some);
  free_buffers(&none);
  test_setup_close(context);
}

/* ---- what is refused ---- */

static void refused(hark_context *context, const hark_attention_desc *desc, const buffers *b, const char *message) {
  assert_int_equal(hark_attention_run(context, desc, b->query, b->key, b->value, b->out), HARK_INVALID_ARGUMENT);
  if (strstr(hark_context_message(context), message) == NULL) fail_msg("\"%s\", expected \"%s\"", hark_context_message(context), message);
  assert_int_equal(hark_attention_run_backward(context, desc, b->query, b->key, b->value, b->dout, b->dquery, b->dkey, b->dvalue),
                   HARK_INVALID_ARGUMENT);
}

static void test_refusals(void **state) {
  (void)state;
  hark_context *const context = test_reference_open();
  buffers b = make_buffers(HARK_F32);
  const hark_attention_desc good = dense(HARK_F32);
  hark_attention_desc desc = good;
  desc.has_mask = true;
  refused(context, &desc, &b, "hark_attention_run: desc.has_mask is set");
  desc = good;
  desc.has_log_kernel = true;
  refused(context, &desc, &b, "desc.has_log_kernel");
  desc = good;
  desc.dropout = 0.1;
  refused(context, &desc, &b, "desc.dropout");
  desc = good;
  desc.head_dim = 0;
  refused(context, &desc, &b, "head_dim");
  desc = good;
  desc.struct_size = 3;
  refused(context, &desc, &b, "struct_size is 3");
  buffers lacking = b;
  lacking.key = NULL;
  refused(context, &good, &lacking, "hark_attention_run: key is NULL");
  lacking = b;
  lacking.out = lacking.dout = NULL;
  refused(context, &good, &lacking, "hark_attention_run: out is NULL");
  lacking = b;
  lacking.out = lacking.dquery = b.query;
  refused(context, &good, &lacking, "out");
  free_buffers(&b);
  test_setup_close(context);
}

static int two_threads(void *user) {
  (void)user;
  return 2;
}

static void count_run(void *user, int64_t count, hark_task *task, void *data) {
  ++*(int *)user;
  for (int64_t i = 0; i < count; i++) task(data, i, 0);
}

/* Gradients that share memory are refused before the forward: nothing is computed. */
static void test_refused_before_work(void **state) {
  (void)state;
  int runs = 0;
  const hark_parallel parallel = {two_threads, count_run, &runs};
  const hark_context_options options = {.struct_size = sizeof options, .backend = "reference", .parallel = &parallel};
  hark_context *context = NULL;
  assert_int_equal(hark_context_create(&options, &context), HARK_OK);
  buffers b = make_buffers(HARK_F32);
  const hark_attention_desc desc = dense(HARK_F32);
  assert_int_equal(hark_attention_run_backward(context, &desc, b.query, b.key, b.value, b.dout, b.dquery, b.dkey, b.dvalue), HARK_OK);
  assert_true(runs > 0);
  runs = 0;
  assert_int_equal(hark_attention_run_backward(context, &desc, b.query, b.key, b.value, b.dout, b.dquery, b.dkey, b.dkey),
                   HARK_INVALID_ARGUMENT);
  assert_int_equal(runs, 0);
  free_buffers(&b);
  hark_context_destroy(&context);
}

/* ---- memory ---- */

typedef struct supply {
  int left, live;
} supply;

static void *take(void *user, size_t bytes, size_t alignment) {
  supply *const of = user;
  if (of->left-- <= 0) return NULL;
  of->live++;
  return aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

static void give_back(void *user, void *memory, size_t bytes) {
  (void)bytes;
  ((supply *)user)->live--;
  free(memory);
}

/* With allocation number n failing, for every n: out of memory, and no memory is left. */
static void test_out_of_memory(void **state) {
  (void)state;
  supply of = {.left = 100};
  const hark_allocator allocator = {take, give_back, &of};
  const hark_context_options options = {.struct_size = sizeof options, .backend = "cpu", .allocator = &allocator, .threads = 1};
  hark_context *context;
  assert_int_equal(hark_context_create(&options, &context), HARK_OK);
  buffers b = make_buffers(HARK_F32);
  const hark_attention_desc desc = dense(HARK_F32);
  run_simple(context, &desc, &b); /* what the backend keeps for all calls is there now */
  const int before = of.live;
  int failures = 0;
  for (hark_status status = HARK_OUT_OF_MEMORY; status != HARK_OK; failures++) {
    assert_true(failures < 20);
    of.left = failures;
    status = hark_attention_run_backward(context, &desc, b.query, b.key, b.value, b.dout, b.dquery, b.dkey, b.dvalue);
    assert_int_equal(of.live, before);
    if (status != HARK_OK) assert_int_equal(status, HARK_OUT_OF_MEMORY);
  }
  assert_true(failures > 2);
  free_buffers(&b);
  hark_context_destroy(&context);
}

/* A gradient has the same bits whichever others are requested with it, with far rows of rbf too. */
static void test_gradients_alone(void **state) {
  (void)state;
  enum { LONG = 64, FEATURES = 8, COUNT = LONG * FEATURES };
  hark_context *context;
  assert_int_equal(hark_context_create(NULL, &context), HARK_OK);
  float rows[4][COUNT], out[COUNT], all[3][COUNT], alone[COUNT];
  hark_attention_desc desc = hark_attention_desc_default();
  desc.type = HARK_F32;
  desc.batch = desc.heads = 1;
  desc.query_length = desc.key_length = LONG;
  desc.head_dim = FEATURES;
  desc.kernel = HARK_KERNEL_RBF;
  desc.causal = true;
  for (int far = 0; far < 2; far++) {
    desc.sigma = far ? 1 : 0.05;
    for (int r = 0; r < 4; r++)
      for (int i = 0; i < COUNT; i++) rows[r][i] = (float)(sin(0.7 * (i + 1) * (r + 1)) + (far && r < 2 ? 30 : 0));
    assert_int_equal(hark_attention_run(context, &desc, rows[0], rows[1], rows[2], out), HARK_OK);
    assert_int_equal(hark_attention_run_backward(context, &desc, rows[0], rows[1], rows[2], rows[3], all[0], all[1], all[2]), HARK_OK);
    for (int gradient = 0; gradient < 3; gradient++) {
      float *const to[] = {gradient == 0 ? alone : NULL, gradient == 1 ? alone : NULL, gradient == 2 ? alone : NULL};
      assert_int_equal(hark_attention_run_backward(context, &desc, rows[0], rows[1], rows[2], rows[3], to[0], to[1], to[2]), HARK_OK);
      for (int i = 0; i < COUNT; i++)
        if (alone[i] != all[gradient][i])
          fail_msg("gradient %d alone: %g, expected %g", gradient, (double)alone[i], (double)all[gradient][i]);
    }
  }
  hark_context_destroy(&context);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_gradients_alone), cmocka_unit_test(test_same_as_a_plan),      cmocka_unit_test(test_some_gradients),
      cmocka_unit_test(test_refusals),        cmocka_unit_test(test_refused_before_work), cmocka_unit_test(test_out_of_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
