/* test_aliasing.c - where the arguments of a call lie: packed layouts, whose parts share a buffer but no element, give the numbers of parts
 * that lie apart; an output that shares memory with anything else, or with itself, is refused and nothing is written.
 */
#include <hark/hark.h>
#include <stdio.h>
#include <string.h>

#include "support/cmocka_all.h"
#include "support/setups.h"
#include "support/text_files.h"

enum { BATCH = 2, LENGTH = 9, HEADS = 4, KEY_HEADS = 2, DIM = 8, ROW = HEADS * DIM, KEY_ROW = KEY_HEADS * DIM, ARENA = 1 << 17 };

/* All memory of a call, so that one comparison finds whatever was written. */
static _Alignas(64) float arena[ARENA];
static int64_t used;
static hark_context *context;
static hark_attention_plan *plan;

static float *take(int64_t count) {
  float *const at = arena + used;
  used += (count + 15) / 16 * 16;
  assert_true(used <= ARENA);
  return at;
}

static hark_tensor strided(float *data, int rank, const int64_t *shape, const int64_t *stride) {
  hark_tensor tensor;
  assert_fine(context, hark_tensor_wrap(context, data, HARK_F32, rank, shape, stride, &tensor));
  return tensor;
}

/* [BATCH, heads, LENGTH, DIM] in rows of `row` numbers, as activations lie. */
static hark_tensor rows_at(float *data, int64_t heads, int64_t row) {
  const int64_t shape[] = {BATCH, heads, LENGTH, DIM}, stride[] = {LENGTH * row, DIM, row, 1};
  return strided(data, 4, shape, stride);
}

static hark_tensor rows(int64_t heads) { return rows_at(take(BATCH * LENGTH * heads * DIM), heads, heads * DIM); }

static hark_tensor dense(int rank, const int64_t *shape) {
  int64_t count = 1;
  for (int i = 0; i < rank; i++) count *= shape[i];
  return strided(take(count), rank, shape, NULL);
}

static hark_attention_args apart(void) {
  hark_attention_args args;
  memset(&args, 0, sizeof args);
  args.struct_size = sizeof args;
  const hark_attention_sizes sizes = hark_attention_plan_sizes(plan);
  const int64_t per_row[] = {BATCH, HEADS, LENGTH}, table[] = {HEADS, LENGTH}, bias[] = {BATCH, HEADS, LENGTH, LENGTH};
  used = 0;
  args.query = rows(HEADS);
  args.key = rows(KEY_HEADS);
  args.value = rows(KEY_HEADS);
  args.out = rows(HEADS);
  args.dout = rows(HEADS);
  args.dquery = rows(HEADS);
  args.dkey = rows(KEY_HEADS);
  args.dvalue = rows(KEY_HEADS);
  args.log_sum_exp = dense(3, per_row);
  args.attention_bias = dense(4, bias);
  args.dattention_bias = dense(4, bias);
  args.log_kernel = dense(2, table);
  args.dlog_kernel = dense(2, table);
  args.forget = dense(3, per_row);
  args.dforget = dense(3, per_row);
  args.workspace = take((int64_t)(sizes.forward_workspace + sizes.backward_workspace) / 4);
  args.saved = take((int64_t)sizes.saved / 4 + 16);
  return args;
}

static float number(int64_t i) { return (float)(i * 37 % 101) / 101 - 0.5f; }

/* The same numbers wherever they lie. */
static void set(const hark_tensor *tensor, int salt) {
  const int64_t count = hark_tensor_count(tensor);
  for (int64_t i = 0; i < count; i++) {
    int64_t rest = i, at = 0;
    for (int k = tensor->rank - 1; k >= 0; k--) {
      at += rest % tensor->shape[k] * tensor->stride[k];
      rest /= tensor->shape[k];
    }
    ((float *)tensor->data)[at] = number(i + salt);
  }
}

static void set_inputs(const hark_attention_args *args) {
  memset(arena, 0, sizeof arena);
  set(&args->query, 1);
  set(&args->key, 2);
  set(&args->value, 3);
  set(&args->dout, 4);
  set(&args->attention_bias, 5);
  set(&args->log_kernel, 6);
  set(&args->forget, 7);
}

/* Sums that name each element's place: equal only for equal numbers in equal places. */
static double weigh(const hark_tensor *tensor) {
  const int64_t count = hark_tensor_count(tensor);
  double sum = 0;
  for (int64_t i = 0; i < count; i++) {
    int64_t rest = i, at = 0;
    for (int k = tensor->rank - 1; k >= 0; k--) {
      at += rest % tensor->shape[k] * tensor->stride[k];
      rest /= tensor->shape[k];
    }
    sum += (double)((const float *)tensor->data)[at] * (double)(1 + i % 97);
  }
  return sum;
}

enum { RESULTS = 8 };
static void weigh_results(const hark_attention_args *args, double *sums) {
  const hark_tensor *const results[RESULTS] = {&args->out,    &args->log_sum_exp,     &args->dquery,      &args->dkey,
                                               &args->dvalue, &args->dattention_bias, &args->dlog_kernel, &args->dforget};
  for (int i = 0; i < RESULTS; i++) sums[i] = weigh(results[i]);
}

static void run(const hark_attention_args *args, double *sums) {
  set_inputs(args);
  assert_fine(context, hark_attention_forward(context, plan, args));
  assert_fine(context, hark_attention_backward(context, plan, args));
  weigh_results(args, sums);
}

static int begin_on(const char *backend) {
  const hark_context_options options = {.struct_size = sizeof options, .backend = backend, .threads = 1};
  assert_int_equal(hark_context_create(&options, &context), HARK_OK);
  hark_attention_desc desc = hark_attention_desc_default();
  desc.batch = BATCH;
  desc.heads = HEADS;
  desc.key_heads = KEY_HEADS;
  desc.query_length = desc.key_length = LENGTH;
  desc.head_dim = DIM;
  desc.causal = desc.has_bias = desc.has_log_kernel = desc.has_forget = true;
  assert_fine(context, hark_attention_plan_create(context, &desc, &plan));
  return 0;
}

static int begin(void **state) {
  (void)state;
  return begin_on("cpu");
}

static int begin_reference(void **state) {
  (void)state;
  return begin_on("reference");
}

static int end(void **state) {
  (void)state;
  hark_attention_plan_destroy(context, &plan);
  hark_context_destroy(&context);
  return 0;
}

/* ---- what is allowed ---- */

/* Queries, keys and values of one projection, and their gradients of another. */
static void pack_rows(hark_attention_args *args) {
  enum { ALL = ROW + 2 * KEY_ROW };
  float *const x = take(BATCH * LENGTH * ALL), *const dx = take(BATCH * LENGTH * ALL);
  args->query = rows_at(x, HEADS, ALL);
  args->key = rows_at(x + ROW, KEY_HEADS, ALL);
  args->value = rows_at(x + ROW + KEY_ROW, KEY_HEADS, ALL);
  args->dquery = rows_at(dx, HEADS, ALL);
  args->dkey = rows_at(dx + ROW, KEY_HEADS, ALL);
  args->dvalue = rows_at(dx + ROW + KEY_ROW, KEY_HEADS, ALL);
}

/* The output between the queries of the next row: [B, L, 2, H, d]. */
static void pack_output(hark_attention_args *args) {
  float *const x = take(BATCH * LENGTH * 2 * ROW), *const dx = take(BATCH * LENGTH * 2 * ROW);
  args->query = rows_at(x, HEADS, 2 * ROW);
  args->out = rows_at(x + ROW, HEADS, 2 * ROW);
  args->dquery = rows_at(dx, HEADS, 2 * ROW);
  args->dout = rows_at(dx + ROW, HEADS, 2 * ROW);
}

/* Keys and values of one tensor, whose last dimension is twice as long: [B, Hkv, L, 2, d]. */
static void pack_heads(hark_attention_args *args) {
  const int64_t shape[] = {BATCH, KEY_HEADS, LENGTH, DIM}, stride[] = {2 * LENGTH * KEY_ROW, 2 * LENGTH * DIM, 2 * DIM, 1};
  float *const x = take(2 * BATCH * LENGTH * KEY_ROW), *const dx = take(2 * BATCH * LENGTH * KEY_ROW);
  args->key = strided(x, 4, shape, stride);
  args->value = strided(x + DIM, 4, shape, stride);
  args->dkey = strided(dx, 4, shape, stride);
  args->dvalue = strided(dx + DIM, 4, shape, stride);
}

/* Inputs may be one and the same, and may repeat their own elements. */
static void packed_layouts_give_the_same_numbers(void **state) {
  (void)state;
  static void (*const layouts[])(hark_attention_args * args) = {pack_rows, pack_output, pack_heads};
  double expected[RESULTS], have[RESULTS];
  hark_attention_args args = apart();
  run(&args, expected);
  for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
    args = apart();
    layouts[i](&args);
    run(&args, have);
    for (int k = 0; k < RESULTS; k++)
      if (have[k] != expected[k]) fail_msg("layout %zu, result %d: %.17g, expected %.17g", i, k, have[k], expected[k]);
  }
}

static void inputs_may_be_one(void **state) {
  (void)state;
  double expected[RESULTS], have[RESULTS];
  hark_attention_args args = apart();
  const int64_t shape[] = {BATCH, KEY_HEADS, LENGTH, DIM}, repeated[] = {LENGTH * KEY_ROW, 0, KEY_ROW, 1}, windows[] = {0, 0, 3, 1};
  run(&args, expected);
  args.value = args.key;
  args.dout = args.query;
  run(&args, have);
  assert_true(have[0] != expected[0]);
  args.value = strided(args.value.data, 4, shape, repeated);
  run(&args, have);
  args.value = strided(args.value.data, 4, shape, windows);
  run(&args, have);
}

/* A gradient of a bias is summed over dimensions with a stride of 0. */
static void gradients_may_be_sums(void **state) {
  (void)state;
  double sums[RESULTS];
  hark_attention_args args = apart();
  const int64_t shape[] = {BATCH, HEADS, LENGTH, LENGTH}, stride[] = {0, 0, LENGTH, 1}, table[] = {HEADS, LENGTH}, shared[] = {0, 1};
  args.dattention_bias = strided(args.dattention_bias.data, 4, shape, stride);
  args.dlog_kernel = strided(args.dlog_kernel.data, 2, table, shared);
  run(&args, sums);
}

/* ---- what is refused ---- */

static void short_rows(hark_attention_args *a) { a->out.stride[2] = ROW / 2; }
static void short_heads(hark_attention_args *a) { a->out.stride[1] = DIM - 1; }
static void repeated_head(hark_attention_args *a) { a->out.stride[1] = 0; }
static void backward_rows(hark_attention_args *a) { a->out.stride[2] = -ROW; }
static void out_over_query(hark_attention_args *a) { a->out = a->query; }
static void out_later_in_query(hark_attention_args *a) { a->out.data = (float *)a->query.data + 3 * ROW; }
static void out_over_value(hark_attention_args *a) { a->out.data = a->value.data; }
static void out_over_key_end(hark_attention_args *a) { a->out.data = (float *)a->key.data + BATCH * LENGTH * KEY_ROW - 1; }
static void out_over_bias(hark_attention_args *a) { a->out.data = (float *)a->attention_bias.data; }
static void out_over_gates(hark_attention_args *a) { a->out.data = a->forget.data; }
static void out_over_workspace(hark_attention_args *a) { a->out.data = a->workspace; }
static void sums_over_out(hark_attention_args *a) { a->log_sum_exp.data = a->out.data; }
static void sums_over_kernel(hark_attention_args *a) { a->log_sum_exp.data = a->log_kernel.data; }
static void workspace_over_key(hark_attention_args *a) { a->workspace = a->key.data; }
static void lengths_in_out(hark_attention_args *a) {
  a->key_lengths = a->out.data; /* zeros */
  a->out.data = (float *)a->out.data + 1;
}

static void dquery_over_query(hark_attention_args *a) { a->dquery = a->query; }
static void dquery_over_dout(hark_attention_args *a) { a->dquery = a->dout; }
static void dquery_over_out(hark_attention_args *a) { a->dquery = a->out; }
static void dkey_over_dvalue(hark_attention_args *a) { a->dkey = a->dvalue; }
static void dkey_beside_dvalue(hark_attention_args *a) { a->dkey.data = (float *)a->dvalue.data + DIM / 2; }
static void dvalue_over_sums(hark_attention_args *a) { a->dvalue.data = a->log_sum_exp.data; }
static void dbias_over_bias(hark_attention_args *a) { a->dattention_bias = a->attention_bias; }
static void dbias_short(hark_attention_args *a) { a->dattention_bias.stride[2] = LENGTH - 1; }
static void dkernel_over_kernel(hark_attention_args *a) { a->dlog_kernel = a->log_kernel; }
static void dgates_over_gates(hark_attention_args *a) { a->dforget = a->forget; }
static void dgates_repeat(hark_attention_args *a) { a->dforget.stride[0] = a->dforget.stride[1] = LENGTH - 1; }
static void dkey_short(hark_attention_args *a) { a->dkey.stride[2] = DIM + 1; }
static void dvalue_repeats(hark_attention_args *a) { a->dvalue.stride[0] = 0; }
static void scratch_over_dout(hark_attention_args *a) { a->workspace = a->dout.data; }

typedef struct refusal {
  const char *name;
  void (*change)(hark_attention_args *args);
  bool backward;
  const char *words[3];
} refusal;
#define REFUSAL(change, backward, ...)                                                                                                     \
  {                                                                                                                                        \
#change, change, backward, { __VA_ARGS__ }                                                                                             \
  }
static const refusal refusals[] = {
    REFUSAL(short_rows, false, "out [2, 4, 9, 8] has strides [288, 8, 16, 1]", "in one place"),
    REFUSAL(short_heads, false, "out", "strides [288, 7, 32, 1]"),
    REFUSAL(repeated_head, false, "out has stride 0 in dimension 1"),
    REFUSAL(backward_rows, false, "out has stride -32 in dimension 2"),
    REFUSAL(out_over_query, false, "out and query share memory"),
    REFUSAL(out_later_in_query, false, "out and query share memory"),
    REFUSAL(out_over_value, false, "out and value share memory"),
    REFUSAL(out_over_key_end, false, "out and key share memory"),
    REFUSAL(out_over_bias, false, "out and attention_bias share memory"),
    REFUSAL(out_over_gates, false, "out and ", "share memory"),
    REFUSAL(out_over_workspace, false, "out and workspace share memory"),
    REFUSAL(sums_over_out, false, "out and log_sum_exp share memory"),
    REFUSAL(sums_over_kernel, false, "log_sum_exp and log_kernel share memory"),
    REFUSAL(workspace_over_key, false, "workspace", "share memory"),
    REFUSAL(lengths_in_out, false, "out and key_lengths share memory"),
    REFUSAL(dquery_over_query, true, "dquery and query share memory"),
    REFUSAL(dquery_over_dout, true, "dquery and dout share memory"),
    REFUSAL(dquery_over_out, true, "dquery and out share memory"),
    REFUSAL(dkey_over_dvalue, true, "dkey and dvalue share memory"),
    REFUSAL(dkey_beside_dvalue, true, "dkey and dvalue share memory"),
    REFUSAL(dvalue_over_sums, true, "dvalue and log_sum_exp share memory"),
    REFUSAL(dbias_over_bias, true, "dattention_bias and attention_bias share memory"),
    REFUSAL(dbias_short, true, "dattention_bias [2, 4, 9, 9] has strides [324, 81, 8, 1]"),
    REFUSAL(dkernel_over_kernel, true, "dlog_kernel and log_kernel share memory"),
    REFUSAL(dgates_over_gates, true, "dforget and forget share memory"),
    REFUSAL(dgates_repeat, true, "dforget", "in one place"),
    REFUSAL(dkey_short, true, "dkey", "strides [144, 8, 9, 1]"),
    REFUSAL(dvalue_repeats, true, "dvalue has stride 0"),
    REFUSAL(scratch_over_dout, true, "workspace", "share memory"),
};

static void check_refusal(const refusal *r) {
  static float before[ARENA];
  hark_attention_args args = apart();
  set_inputs(&args);
  r->change(&args);
  memcpy(before, arena, sizeof before);
  const hark_status status = (r->backward ? hark_attention_backward : hark_attention_forward)(context, plan, &args);
  const char *const message = hark_context_message(context);
  if (status != HARK_INVALID_ARGUMENT) fail_msg("%s: %s (\"%s\")", r->name, hark_status_name(status), message);
  for (int i = 0; i < 3 && r->words[i] != NULL; i++)
    if (strstr(message, r->words[i]) == NULL) fail_msg("%s: \"%s\" does not say \"%s\"", r->name, message, r->words[i]);
  if (memcmp(before, arena, sizeof before) != 0) fail_msg("%s: something was written", r->name);
}

static void shared_memory_is_refused(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) check_refusal(&refusals[i]);
}

/* What a call does not look at may lie anywhere: a forward has no gradients, and what is absent has no place. */
static void unused_arguments_may_lie_anywhere(void **state) {
  (void)state;
  hark_attention_args args = apart();
  set_inputs(&args);
  args.dquery = args.query;
  args.dout = args.out;
  assert_fine(context, hark_attention_forward(context, plan, &args));
}

/* The report is written like an output; a call without kernel ridge attention does not look at it. */
static void check_report(const hark_attention_plan *ridge_plan, hark_attention_args *args) {
  const hark_tensor *const over[] = {&args->out, &args->query, &args->variance, &args->ridge};
  const char *const names[] = {"out and report", "report and query", "report", "report and ridge"};
  for (int i = 0; i < 5; i++) {
    args->report = i == 4 ? args->workspace : over[i]->data;
    assert_int_equal(hark_attention_forward(context, ridge_plan, args), HARK_INVALID_ARGUMENT);
    if (strstr(hark_context_message(context), i == 4 ? "workspace and report" : names[i]) == NULL ||
        strstr(hark_context_message(context), "share memory") == NULL)
      fail_msg("case %d: %s", i, hark_context_message(context));
  }
  hark_attention_report apart = {0};
  args->report = &apart;
  assert_fine(context, hark_attention_forward(context, ridge_plan, args));
}

/* Kernel ridge attention has two outputs more, and parameters of the calls. */
static void kernel_ridge_is_checked_alike(void **state) {
  (void)state;
  hark_attention_desc desc = hark_attention_desc_default();
  hark_attention_plan *ridge_plan;
  desc.batch = BATCH;
  desc.heads = desc.key_heads = HEADS;
  desc.query_length = desc.key_length = LENGTH;
  desc.head_dim = DIM;
  desc.normalisation = HARK_NORMALISATION_CME;
  desc.has_ridge = true;
  assert_fine(context, hark_attention_plan_create(context, &desc, &ridge_plan));
  const hark_attention_sizes sizes = hark_attention_plan_sizes(ridge_plan);
  hark_attention_args args;
  memset(&args, 0, sizeof args);
  args.struct_size = sizeof args;
  used = 0;
  hark_tensor *const tensors[] = {&args.query, &args.key, &args.value, &args.out, &args.dout, &args.dquery};
  for (int i = 0; i < 6; i++) {
    *tensors[i] = rows(HEADS);
    set(tensors[i], i);
  }
  args.variance = dense(3, (int64_t[]){BATCH, HEADS, LENGTH});
  args.ridge = dense(1, (int64_t[]){HEADS});
  args.dridge = dense(1, (int64_t[]){HEADS});
  for (int i = 0; i < HEADS; i++) ((float *)args.ridge.data)[i] = 1;
  args.workspace = take((int64_t)(sizes.forward_workspace + sizes.backward_workspace) / 4);
  args.saved = take((int64_t)sizes.saved / 4 + 16);
  assert_fine(context, hark_attention_forward(context, ridge_plan, &args));
  assert_fine(context, hark_attention_backward(context, ridge_plan, &args));
  const struct {
    hark_tensor *tensor;
    const hark_tensor *over;
    bool backward;
    const char *words;
  } cases[] = {{&args.variance, &args.out, false, "out and variance share memory"},
               {&args.variance, &args.value, false, "variance and value share memory"},
               {&args.dridge, &args.ridge, true, "dridge and ridge share memory"},
               {&args.dridge, &args.dquery, true, "dquery and dridge share memory"}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    void *const own = cases[i].tensor->data;
    cases[i].tensor->data = cases[i].over->data;
    const hark_status status = (cases[i].backward ? hark_attention_backward : hark_attention_forward)(context, ridge_plan, &args);
    assert_int_equal(status, HARK_INVALID_ARGUMENT);
    if (strstr(hark_context_message(context), cases[i].words) == NULL) fail_msg("case %zu: %s", i, hark_context_message(context));
    cases[i].tensor->data = own;
  }
  check_report(ridge_plan, &args);
  hark_attention_plan_destroy(context, &ridge_plan);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(packed_layouts_give_the_same_numbers, begin, end),
      cmocka_unit_test_setup_teardown(packed_layouts_give_the_same_numbers, begin_reference, end),
      cmocka_unit_test_setup_teardown(inputs_may_be_one, begin, end),
      cmocka_unit_test_setup_teardown(gradients_may_be_sums, begin, end),
      cmocka_unit_test_setup_teardown(shared_memory_is_refused, begin, end),
      cmocka_unit_test_setup_teardown(shared_memory_is_refused, begin_reference, end),
      cmocka_unit_test_setup_teardown(unused_arguments_may_lie_anywhere, begin, end),
      cmocka_unit_test_setup_teardown(kernel_ridge_is_checked_alike, begin, end),
  };
  return cmocka_run_group_tests_name("aliasing", tests, NULL, NULL);
}
