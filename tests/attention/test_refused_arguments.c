/* test_refused_arguments.c - bad arguments of a call: each is refused with the right status and a message that names what is wrong, and
 * nothing is written.
 */
#include "support/cmocka_all.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "attention/refusal_case.h"

/* A call with everything a plan can have, which is right. */
typedef struct call {
  hark_context *context;
  hark_attention_desc desc;
  hark_attention_plan *plan;
  hark_attention_args args;
  float numbers[16][BATCH * HEADS * QUERIES * KEYS];
  uint8_t mask[BATCH * HEADS * QUERIES * KEYS];
  int64_t lengths[BATCH], query_offsets[3], key_offsets[3], segments[BATCH * KEYS];
  void *workspace;
} call;

static hark_tensor tensor(call *c, int number, int rank, int64_t a, int64_t b, int64_t x, int64_t y) {
  const int64_t shape[] = {a, b, x, y};
  hark_tensor out;
  assert_int_equal(hark_tensor_wrap(c->context, c->numbers[number], HARK_F32, rank, shape, NULL, &out), HARK_OK);
  return out;
}

static void open_call(call *c, hark_context *context) {
  memset(c, 0, sizeof *c);
  c->context = context;
  c->desc = refusal_desc();
  c->desc.causal = c->desc.has_bias = c->desc.has_mask = c->desc.has_log_kernel = c->desc.has_forget = c->desc.has_segments = true;
  assert_int_equal(hark_attention_plan_create(context, &c->desc, &c->plan), HARK_OK);
  const hark_attention_sizes sizes = hark_attention_plan_sizes(c->plan);
  c->workspace = aligned_alloc(64, sizes.backward_workspace + sizes.forward_workspace);
  assert_non_null(c->workspace);
  hark_attention_args *a = &c->args;
  a->struct_size = sizeof *a;
  a->query = tensor(c, 0, 4, BATCH, HEADS, QUERIES, DIM);
  a->key = tensor(c, 1, 4, BATCH, KEY_HEADS, KEYS, DIM);
  a->value = tensor(c, 2, 4, BATCH, KEY_HEADS, KEYS, VALUE_DIM);
  a->out = tensor(c, 3, 4, BATCH, HEADS, QUERIES, VALUE_DIM);
  a->log_sum_exp = tensor(c, 4, 3, BATCH, HEADS, QUERIES, 1);
  a->attention_bias = tensor(c, 5, 4, 1, HEADS, QUERIES, KEYS);
  a->log_kernel = tensor(c, 6, 2, HEADS, KEYS, 1, 1);
  a->forget = tensor(c, 7, 3, BATCH, HEADS, KEYS, 1);
  a->dout = tensor(c, 8, 4, BATCH, HEADS, QUERIES, VALUE_DIM);
  a->dquery = tensor(c, 9, 4, BATCH, HEADS, QUERIES, DIM);
  a->dkey = tensor(c, 10, 4, BATCH, KEY_HEADS, KEYS, DIM);
  a->dvalue = tensor(c, 11, 4, BATCH, KEY_HEADS, KEYS, VALUE_DIM);
  a->dattention_bias = tensor(c, 12, 4, 1, HEADS, QUERIES, KEYS);
  a->dlog_kernel = tensor(c, 13, 2, HEADS, KEYS, 1, 1);
  a->dforget = tensor(c, 14, 3, BATCH, HEADS, KEYS, 1);
  const int64_t mask_shape[] = {BATCH, 1, QUERIES, KEYS};
  memset(c->mask, 1, sizeof c->mask);
  assert_int_equal(hark_tensor_wrap(context, c->mask, HARK_U8, 4, mask_shape, NULL, &a->mask), HARK_OK);
  a->workspace = c->workspace;
}

static void close_call(call *c) {
  hark_attention_plan_destroy(c->context, &c->plan);
  free(c->workspace);
}

typedef struct args_case {
  const char *name;
  void (*change)(call *c);
  hark_status status;
  const char *words;
  bool backward; /* else the forward must refuse it */
} args_case;

#define SPOIL(name, statement)                                                                                                             \
  static void name(call *c) { statement; }
SPOIL(args_small, c->args.struct_size = 16)
SPOIL(no_query, c->args.query = (hark_tensor){0})
SPOIL(key_f64, c->args.key.type = HARK_F64)
SPOIL(query_rank, c->args.query.rank = 3)
SPOIL(query_heads, c->args.query.shape[1] = 2)
SPOIL(key_heads, c->args.key.shape[1] = 4)
SPOIL(key_dim, c->args.key.shape[3] = 2)
SPOIL(key_batch, c->args.key.shape[0] = 1)
SPOIL(value_length, c->args.value.shape[2] = 6)
SPOIL(out_shape, c->args.out.shape[3] = 3)
SPOIL(larger_than_plan, c->args.query.shape[2] = c->args.out.shape[2] = QUERIES + 1)
SPOIL(last_stride, c->args.query.stride[3] = 2)
SPOIL(negative_extent, c->args.query.shape[2] = c->args.out.shape[2] = c->args.log_sum_exp.shape[2] = -1)
SPOIL(negative_stride, c->args.key.stride[2] = -3)
SPOIL(out_repeats, c->args.out.stride[1] = 0)
SPOIL(no_data, c->args.value.data = NULL)
SPOIL(misaligned, c->args.key.data = (char *)c->args.key.data + 1)
SPOIL(lse_shape, c->args.log_sum_exp.shape[2] = 4)
SPOIL(lse_strided, c->args.log_sum_exp.stride[1] = 9)
SPOIL(no_lse, c->args.log_sum_exp = (hark_tensor){0})
SPOIL(mask_type, c->args.mask.type = HARK_I32)
SPOIL(mask_shape, c->args.mask.shape[3] = 3)
SPOIL(bias_shape, c->args.attention_bias.shape[1] = 2)
SPOIL(bias_rank, c->args.attention_bias.rank = 3)
SPOIL(no_log_kernel, c->args.log_kernel = (hark_tensor){0})
SPOIL(short_log_kernel, c->args.log_kernel.shape[1] = KEYS - 1)
SPOIL(log_kernel_heads, c->args.log_kernel.shape[0] = 2)
SPOIL(no_forget, c->args.forget = (hark_tensor){0})
SPOIL(forget_shape, c->args.forget.shape[2] = 5)
SPOIL(length_beyond, c->lengths[1] = KEYS + 1; c->args.key_lengths = c->lengths)
SPOIL(length_negative, c->lengths[0] = -1; c->args.key_lengths = c->lengths)
SPOIL(lengths_and_segments, c->args.key_lengths = c->lengths; c->args.segments = c->segments)
SPOIL(lengths_and_offsets, c->args.key_lengths = c->lengths; c->args.query_offsets = c->query_offsets)
SPOIL(offsets_and_segments, c->args.key_offsets = c->key_offsets; c->args.segments = c->segments)
SPOIL(one_offset_list, c->args.query_offsets = c->query_offsets)
SPOIL(offsets_with_batch, c->args.query_offsets = c->query_offsets; c->args.key_offsets = c->key_offsets)
SPOIL(sequences_alone, c->args.sequences = 2)
SPOIL(segments_lengths, c->args.segments = c->segments)
SPOIL(query_offset_huge, c->args.has_query_offset = true; c->args.query_offset = INT64_MAX)
SPOIL(no_workspace, c->args.workspace = NULL)
SPOIL(workspace_misaligned, c->args.workspace = (char *)c->workspace + 32)
SPOIL(no_dout, c->args.dout = (hark_tensor){0})
SPOIL(dquery_shape, c->args.dquery.shape[2] = 4)
SPOIL(dkey_repeats, c->args.dkey.stride[0] = 0)
SPOIL(dbias_shape, c->args.dattention_bias.shape[0] = BATCH)
SPOIL(dbias_of_nothing, c->args.attention_bias = (hark_tensor){0})
SPOIL(dlog_kernel_shape, c->args.dlog_kernel.shape[0] = 1)
SPOIL(dforget_type, c->args.dforget.type = HARK_F64)

static const args_case args_cases[] = {
    {"args_small", args_small, HARK_INVALID_ARGUMENT, "hark_attention_args|struct_size is 16", false},
    {"no_query", no_query, HARK_INVALID_ARGUMENT, "query is absent", false},
    {"key_f64", key_f64, HARK_INVALID_ARGUMENT, "key is f64|expected f32", false},
    {"query_rank", query_rank, HARK_SHAPE_MISMATCH, "query has shape [2, 4, 5]", false},
    {"query_heads", query_heads, HARK_SHAPE_MISMATCH, "query has shape [2, 2, 5, 3]|expected [2, 4, 5, 3]", false},
    {"key_heads", key_heads, HARK_SHAPE_MISMATCH, "key has shape [2, 4, 7, 3]|expected [2, 2, 7, 3]", false},
    {"key_dim", key_dim, HARK_SHAPE_MISMATCH, "key has shape|expected [2, 2, 7, 3]", false},
    {"key_batch", key_batch, HARK_SHAPE_MISMATCH, "key has shape [1, 2, 7, 3]", false},
    {"value_length", value_length, HARK_SHAPE_MISMATCH, "value has shape [2, 2, 6, 2]|expected [2, 2, 7, 2]", false},
    {"out_shape", out_shape, HARK_SHAPE_MISMATCH, "out has shape", false},
    {"larger_than_plan", larger_than_plan, HARK_SHAPE_MISMATCH, "query length is 6|plan's 5", false},
    {"last_stride", last_stride, HARK_INVALID_ARGUMENT, "query has stride 2|last dimension", false},
    {"negative_extent", negative_extent, HARK_INVALID_ARGUMENT, "query has extent -1 in dimension 2", false},
    {"negative_stride", negative_stride, HARK_INVALID_ARGUMENT, "key has stride -3 in dimension 2", false},
    {"out_repeats", out_repeats, HARK_INVALID_ARGUMENT, "out has stride 0 in dimension 1", false},
    {"no_data", no_data, HARK_INVALID_ARGUMENT, "value has no data", false},
    {"misaligned", misaligned, HARK_INVALID_ARGUMENT, "key is at|4 bytes", false},
    {"lse_shape", lse_shape, HARK_SHAPE_MISMATCH, "log_sum_exp has shape", false},
    {"lse_strided", lse_strided, HARK_INVALID_ARGUMENT, "log_sum_exp is strided", false},
    {"no_lse", no_lse, HARK_INVALID_ARGUMENT, "log_sum_exp is absent", true},
    {"mask_type", mask_type, HARK_INVALID_ARGUMENT, "mask is i32|expected u8", false},
    {"mask_shape", mask_shape, HARK_SHAPE_MISMATCH, "mask has shape [2, 1, 5, 3]|expected [2, 4, 5, 7]", false},
    {"bias_shape", bias_shape, HARK_SHAPE_MISMATCH, "attention_bias has shape [1, 2, 5, 7]", false},
    {"bias_rank", bias_rank, HARK_SHAPE_MISMATCH, "attention_bias has shape", false},
    {"no_log_kernel", no_log_kernel, HARK_INVALID_ARGUMENT, "log_kernel is absent", false},
    {"short_log_kernel", short_log_kernel, HARK_SHAPE_MISMATCH, "log_kernel has 6 distances|at least 7", false},
    {"log_kernel_heads", log_kernel_heads, HARK_SHAPE_MISMATCH, "log_kernel has shape [2, 7]|expected [4, 7]", false},
    {"no_forget", no_forget, HARK_INVALID_ARGUMENT, "forget is absent", false},
    {"forget_shape", forget_shape, HARK_SHAPE_MISMATCH, "forget has shape [2, 4, 5]|expected [2, 4, 7]", false},
    {"length_beyond", length_beyond, HARK_INVALID_ARGUMENT, "key_lengths[1] is 8|0 to 7", false},
    {"length_negative", length_negative, HARK_INVALID_ARGUMENT, "key_lengths[0] is -1", false},
    {"lengths_and_segments", lengths_and_segments, HARK_UNSUPPORTED, "key_lengths and segments", false},
    {"lengths_and_offsets", lengths_and_offsets, HARK_UNSUPPORTED, "key_lengths and offsets", false},
    {"offsets_and_segments", offsets_and_segments, HARK_UNSUPPORTED, "offsets and segments", false},
    {"one_offset_list", one_offset_list, HARK_INVALID_ARGUMENT, "key_offsets is absent", false},
    {"offsets_with_batch", offsets_with_batch, HARK_SHAPE_MISMATCH, "batch 2 with offsets", false},
    {"sequences_alone", sequences_alone, HARK_INVALID_ARGUMENT, "sequences is 2 without offsets", false},
    {"segments_lengths", segments_lengths, HARK_UNSUPPORTED, "segments with 5 queries and 7 keys", false},
    {"query_offset_huge", query_offset_huge, HARK_INVALID_ARGUMENT, "query_offset is 9223372036854775807", false},
    {"no_workspace", no_workspace, HARK_INVALID_ARGUMENT, "workspace is NULL", false},
    {"workspace_misaligned", workspace_misaligned, HARK_INVALID_ARGUMENT, "workspace is at|64 bytes", false},
    {"no_dout", no_dout, HARK_INVALID_ARGUMENT, "dout is absent", true},
    {"dquery_shape", dquery_shape, HARK_SHAPE_MISMATCH, "dquery has shape [2, 4, 4, 3]|expected [2, 4, 5, 3]", true},
    {"dkey_repeats", dkey_repeats, HARK_INVALID_ARGUMENT, "dkey has stride 0 in dimension 0", true},
    {"dbias_shape", dbias_shape, HARK_SHAPE_MISMATCH, "dattention_bias has shape [2, 4, 5, 7]|expected [1, 4, 5, 7]", true},
    {"dbias_of_nothing", dbias_of_nothing, HARK_INVALID_ARGUMENT, "dattention_bias is requested, but attention_bias is absent", true},
    {"dlog_kernel_shape", dlog_kernel_shape, HARK_SHAPE_MISMATCH, "dlog_kernel has shape [1, 7]|expected [4, 7]", true},
    {"dforget_type", dforget_type, HARK_INVALID_ARGUMENT, "dforget is f64", true},
};

static void test_arguments(void **state) {
  (void)state;
  hark_context *context = refusal_context(1);
  static call c, untouched;
  open_call(&c, context);
  assert_int_equal(hark_attention_forward(context, c.plan, &c.args), HARK_OK);
  assert_int_equal(hark_attention_backward(context, c.plan, &c.args), HARK_OK);
  close_call(&c);
  for (size_t i = 0; i < sizeof args_cases / sizeof args_cases[0]; i++) {
    const args_case *a = &args_cases[i];
    open_call(&c, context);
    a->change(&c);
    memcpy(untouched.numbers, c.numbers, sizeof c.numbers);
    const hark_status status =
        a->backward ? hark_attention_backward(context, c.plan, &c.args) : hark_attention_forward(context, c.plan, &c.args);
    if (status != a->status) fail_msg("%s: %s '%s'", a->name, hark_status_name(status), hark_context_message(context));
    refusal_message(context, a->name, a->words);
    if (memcmp(untouched.numbers, c.numbers, sizeof c.numbers) != 0) fail_msg("%s: something was written", a->name);
    close_call(&c);
  }
  hark_context_destroy(&context);
}

/* Tables with directions have an odd number of columns, and as many distances on each side as occur. */
static void test_directed_table(void **state) {
  (void)state;
  static const struct {
    int64_t columns;
    const char *words; /* NULL: accepted */
  } cases[] = {{2 * KEYS - 1, NULL},
               {2 * KEYS + 1, NULL},
               {2 * KEYS, "log_kernel has 14 columns with directed_kernel|expected an odd number"},
               {2 * KEYS - 3, "log_kernel has 6 distances in each direction|at least 7"},
               {1, "log_kernel has 1 distances in each direction"}};
  static call c;
  hark_context *context = refusal_context(1);
  open_call(&c, context); /* its tensors serve; its plan does not */
  hark_attention_plan_destroy(context, &c.plan);
  free(c.workspace);
  c.desc = refusal_desc();
  c.desc.has_log_kernel = true;
  c.desc.directed_kernel = 1;
  assert_int_equal(hark_attention_plan_create(context, &c.desc, &c.plan), HARK_OK);
  c.workspace = aligned_alloc(64, hark_attention_plan_sizes(c.plan).backward_workspace);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    hark_attention_args args = {.struct_size = sizeof args, .workspace = c.workspace};
    args.query = tensor(&c, 0, 4, BATCH, HEADS, QUERIES, DIM);
    args.key = tensor(&c, 1, 4, BATCH, c.desc.key_heads, KEYS, DIM);
    args.value = tensor(&c, 2, 4, BATCH, c.desc.key_heads, KEYS, c.desc.value_dim);
    args.out = tensor(&c, 3, 4, BATCH, HEADS, QUERIES, c.desc.value_dim);
    args.log_kernel = tensor(&c, 6, 2, 1, cases[i].columns, 1, 1);
    const hark_status status = hark_attention_forward(context, c.plan, &args);
    if (status != (cases[i].words == NULL ? HARK_OK : HARK_SHAPE_MISMATCH))
      fail_msg("%d columns: %s '%s'", (int)cases[i].columns, hark_status_name(status), hark_context_message(context));
    if (cases[i].words != NULL) refusal_message(context, "directed table", cases[i].words);
  }
  close_call(&c);
  hark_context_destroy(&context);
}

/* A call of hierarchical attention: its tables and masks, and lengths that do not fit one hierarchy. */
static void test_hierarchical_arguments(void **state) {
  (void)state;
  enum { BLOCK = 2, TABLE = 4 * BLOCK - 1 };
  hark_context *context = refusal_context(1);
  static call c;
  open_call(&c, context); /* its tensors serve; its plan does not */
  hark_attention_plan_destroy(context, &c.plan);
  free(c.workspace);
  c.desc = refusal_desc();
  c.desc.structure = HARK_STRUCTURE_HIERARCHICAL;
  c.desc.query_length = KEYS;
  c.desc.hierarchy_block = BLOCK;
  c.desc.has_hierarchical_bias = c.desc.has_mask = true;
  assert_int_equal(hark_attention_plan_create(context, &c.desc, &c.plan), HARK_OK);
  c.workspace = aligned_alloc(64, hark_attention_plan_sizes(c.plan).backward_workspace);
  hark_attention_args good = {.struct_size = sizeof good, .workspace = c.workspace};
  good.query = tensor(&c, 0, 4, BATCH, HEADS, KEYS, DIM);
  good.key = c.args.key;
  good.value = c.args.value;
  good.out = tensor(&c, 3, 4, BATCH, HEADS, KEYS, VALUE_DIM);
  good.log_sum_exp = tensor(&c, 4, 3, BATCH, HEADS, KEYS, 1);
  good.hierarchical_bias = tensor(&c, 5, 2, HEADS, TABLE, 1, 1);
  const int64_t rows[] = {BATCH, KEYS}, keys[] = {BATCH, 1, 1, KEYS};
  assert_int_equal(hark_tensor_wrap(context, c.mask, HARK_U8, 2, rows, NULL, &good.query_mask), HARK_OK);
  assert_int_equal(hark_tensor_wrap(context, c.mask, HARK_U8, 4, keys, NULL, &good.mask), HARK_OK);
  assert_int_equal(hark_attention_forward(context, c.plan, &good), HARK_OK);
  const int64_t fewer[] = {0, 3}, more[] = {0, 5};
  struct {
    hark_status status;
    const char *words;
    hark_attention_args args;
  } cases[] = {{HARK_INVALID_ARGUMENT, "hierarchical_bias is absent", good},
               {HARK_SHAPE_MISMATCH, "hierarchical_bias has shape [4, 6]|[4, 7]", good},
               {HARK_SHAPE_MISMATCH, "hierarchical_bias has shape [2, 7]|[4, 7]", good},
               {HARK_SHAPE_MISMATCH, "query_mask has shape [2, 5]|[2, 7]", good},
               {HARK_INVALID_ARGUMENT, "query_mask is f32|u8", good},
               {HARK_UNSUPPORTED, "mask has 1 heads and 7 query rows|hierarchical", good},
               {HARK_UNSUPPORTED, "5 queries|7 keys|hierarchical", good},
               {HARK_UNSUPPORTED, "7 queries from position 2|hierarchical", good},
               {HARK_UNSUPPORTED, "3 queries|5 keys|hierarchical", good}};
  cases[0].args.hierarchical_bias = (hark_tensor){0};
  cases[1].args.hierarchical_bias.shape[1] = 6;
  cases[2].args.hierarchical_bias.shape[0] = 2;
  cases[3].args.query_mask.shape[1] = 5;
  cases[4].args.query_mask.type = HARK_F32;
  cases[5].args.mask = tensor(&c, 6, 4, BATCH, 1, KEYS, KEYS);
  cases[5].args.mask.type = HARK_U8;
  cases[6].args.query.shape[2] = cases[6].args.out.shape[2] = cases[6].args.log_sum_exp.shape[2] = 5;
  cases[6].args.log_sum_exp = tensor(&c, 4, 3, BATCH, HEADS, 5, 1);
  cases[6].args.query_mask = (hark_tensor){0};
  cases[7].args.has_query_offset = true;
  cases[7].args.query_offset = 2;
  cases[8].args.query.shape[0] = cases[8].args.key.shape[0] = cases[8].args.value.shape[0] = cases[8].args.out.shape[0] = 1;
  cases[8].args.log_sum_exp.shape[0] = cases[8].args.mask.shape[0] = cases[8].args.query_mask.shape[0] = 1;
  cases[8].args.query_offsets = fewer;
  cases[8].args.key_offsets = more;
  cases[8].args.sequences = 1;
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    const hark_status status = hark_attention_forward(context, c.plan, &cases[i].args);
    if (status != cases[i].status) fail_msg("'%s': %s '%s'", cases[i].words, hark_status_name(status), hark_context_message(context));
    refusal_message(context, cases[i].words, cases[i].words);
  }
  close_call(&c);
  hark_context_destroy(&context);
}

/* What a plan was not made for. */
static void test_foreign_arguments(void **state) {
  (void)state;
  hark_context *context = refusal_context(1);
  static call c;
  open_call(&c, context);
  hark_attention_desc desc = refusal_desc();
  desc.forward_only = true;
  hark_attention_plan *plain;
  assert_int_equal(hark_attention_plan_create(context, &desc, &plain), HARK_OK);
  assert_int_equal(hark_attention_plan_sizes(plain).backward_workspace, 0);
  const hark_attention_args all = c.args;
  c.args.attention_bias = c.args.log_kernel = c.args.forget = (hark_tensor){0};
  assert_int_equal(hark_attention_forward(context, plain, &c.args), HARK_INVALID_ARGUMENT);
  refusal_message(context, "mask", "mask is given|has_mask");
  c.args.mask = (hark_tensor){0};
  c.args.attention_bias = all.attention_bias;
  assert_int_equal(hark_attention_forward(context, plain, &c.args), HARK_INVALID_ARGUMENT);
  refusal_message(context, "bias", "attention_bias is given|has_bias");
  c.args.attention_bias = (hark_tensor){0};
  c.args.log_kernel = all.log_kernel;
  assert_int_equal(hark_attention_forward(context, plain, &c.args), HARK_INVALID_ARGUMENT);
  refusal_message(context, "kernel", "log_kernel is given|has_log_kernel");
  c.args.log_kernel = (hark_tensor){0};
  c.args.forget = all.forget;
  assert_int_equal(hark_attention_forward(context, plain, &c.args), HARK_INVALID_ARGUMENT);
  refusal_message(context, "forget", "forget is given|has_forget");
  c.args.forget = (hark_tensor){0};
  c.args.segments = c.segments;
  assert_int_equal(hark_attention_forward(context, plain, &c.args), HARK_INVALID_ARGUMENT);
  refusal_message(context, "segments", "segments is given|has_segments");
  c.args.segments = NULL;
  assert_int_equal(hark_attention_forward(context, plain, &c.args), HARK_OK);
  assert_int_equal(hark_attention_backward(context, plain, &c.args), HARK_INVALID_ARGUMENT);
  refusal_message(context, "backward", "forward_only");

  /* More sequences than the plan reckons with; offsets that fall, that begin below 0, that end beyond the rows. */
  c.args.query.shape[0] = c.args.key.shape[0] = c.args.value.shape[0] = c.args.out.shape[0] = c.args.log_sum_exp.shape[0] = 1;
  int64_t queries[] = {0, 1, 2, 3}, keys[] = {0, 1, 2, 3};
  c.args.query_offsets = queries;
  c.args.key_offsets = keys;
  c.args.sequences = 3;
  assert_int_equal(hark_attention_forward(context, plain, &c.args), HARK_SHAPE_MISMATCH);
  refusal_message(context, "sequences", "3 sequences|max_sequences = 2");
  keys[2] = 0;
  assert_int_equal(hark_attention_forward(context, plain, &c.args), HARK_INVALID_ARGUMENT);
  refusal_message(context, "falling", "key_offsets[2] is 0 after 1");
  keys[2] = 2;
  keys[3] = KEYS + 1;
  assert_int_equal(hark_attention_forward(context, plain, &c.args), HARK_INVALID_ARGUMENT);
  refusal_message(context, "beyond", "key_offsets[3] is 8|7 rows");
  queries[0] = -1;
  assert_int_equal(hark_attention_forward(context, plain, &c.args), HARK_INVALID_ARGUMENT);
  refusal_message(context, "below", "query_offsets[0] is -1");

  /* Contexts of another backend and with more threads. */
  hark_context *other;
  const hark_context_options cpu = {.struct_size = sizeof cpu, .backend = "cpu", .threads = 1};
  assert_int_equal(hark_context_create(&cpu, &other), HARK_OK);
  assert_int_equal(hark_attention_forward(other, plain, &c.args), HARK_INVALID_ARGUMENT);
  refusal_message(other, "backend", "backend reference|has cpu");
  hark_context_destroy(&other);
  other = refusal_context(3);
  if (hark_context_threads(other) == 3) {
    assert_int_equal(hark_attention_forward(other, plain, &c.args), HARK_INVALID_ARGUMENT);
    refusal_message(other, "threads", "3 threads|at most 1");
  }
  hark_context_destroy(&other);
  hark_attention_plan_destroy(context, &plain);
  close_call(&c);
  hark_context_destroy(&context);
}

/* A plan in memory of the caller's. */
static void test_placed_plan(void **state) {
  (void)state;
  hark_context *context = refusal_context(1);
  _Alignas(16) unsigned char memory[HARK_ATTENTION_PLAN_BYTES];
  hark_attention_plan *plan;
  const hark_attention_desc desc = refusal_desc();
  const uint64_t allocations = hark_context_memory(context).allocations;
  assert_int_equal(hark_attention_plan_place(context, &desc, memory, sizeof memory, &plan), HARK_OK);
  assert_ptr_equal(plan, memory);
  assert_int_equal(hark_context_memory(context).allocations, allocations);
  hark_attention_plan_destroy(context, &plan);
  assert_null(plan);
  assert_int_equal(hark_attention_plan_place(context, &desc, memory, 16, &plan), HARK_INVALID_ARGUMENT);
  assert_int_equal(hark_attention_plan_place(context, &desc, memory + 8, sizeof memory, &plan), HARK_INVALID_ARGUMENT);
  assert_int_equal(hark_attention_plan_place(context, &desc, NULL, sizeof memory, &plan), HARK_INVALID_ARGUMENT);
  hark_context_destroy(&context);
}

static void *no_memory(void *user, size_t bytes, size_t alignment) {
  int *calls = user;
  if ((*calls)++ > 0) return NULL; /* the first one makes the context */
  return aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}
static void give_back(void *user, void *memory, size_t bytes) {
  (void)user;
  (void)bytes;
  free(memory);
}

/* Out of memory is a status, and leaves no memory. */
static void test_out_of_memory(void **state) {
  (void)state;
  int calls = 0;
  const hark_allocator allocator = {no_memory, give_back, &calls};
  const hark_context_options options = {.struct_size = sizeof options, .backend = "reference", .allocator = &allocator, .threads = 1};
  hark_context *context;
  assert_int_equal(hark_context_create(&options, &context), HARK_OK);
  const hark_attention_desc desc = refusal_desc();
  hark_attention_plan *plan = (hark_attention_plan *)context;
  assert_int_equal(hark_attention_plan_create(context, &desc, &plan), HARK_OUT_OF_MEMORY);
  assert_null(plan);
  hark_context_destroy(&context);
}

/* Empty batches and no rows at all are done at once. */
static void test_nothing_to_do(void **state) {
  (void)state;
  hark_context *context = refusal_context(1);
  static call c;
  open_call(&c, context);
  hark_attention_args *a = &c.args;
  const hark_attention_args all = *a;
  a->query.shape[0] = a->key.shape[0] = a->value.shape[0] = a->out.shape[0] = a->log_sum_exp.shape[0] = a->forget.shape[0] = 0;
  a->mask = (hark_tensor){0};
  assert_int_equal(hark_attention_forward(context, c.plan, a), HARK_OK);
  /* No keys: every query sees nothing. */
  *a = all;
  a->key.shape[2] = a->value.shape[2] = a->forget.shape[2] = 0;
  a->mask = a->attention_bias = (hark_tensor){0};
  c.numbers[3][0] = 7;
  assert_int_equal(hark_attention_forward(context, c.plan, a), HARK_OK);
  assert_true(c.numbers[3][0] == 0);
  assert_true(c.numbers[4][0] == -INFINITY);
  /* Strides that are products of extents, of which one is 0. */
  a->key.stride[0] = a->value.stride[0] = a->key.stride[1] = a->value.stride[1] = 0;
  assert_int_equal(hark_attention_forward(context, c.plan, a), HARK_OK);
  a->query.shape[2] = a->out.shape[2] = a->log_sum_exp.shape[2] = 0;
  a->out.stride[0] = a->out.stride[1] = 0;
  assert_int_equal(hark_attention_forward(context, c.plan, a), HARK_OK);
  a->query.shape[0] = INT64_MAX; /* whose number of elements cannot be counted */
  assert_int_equal(hark_attention_forward(context, c.plan, a), HARK_SHAPE_MISMATCH);
  refusal_message(context, "batch", "batch is 9223372036854775807, expected at most the plan's");
  a->query.shape[0] = all.query.shape[0];
  a->out.shape[2] = -1;
  a->query.shape[2] = -1;
  assert_int_equal(hark_attention_forward(context, c.plan, a), HARK_INVALID_ARGUMENT);
  /* No gradient requested. */
  *a = all;
  a->dquery = a->dkey = a->dvalue = a->dattention_bias = a->dlog_kernel = a->dforget = (hark_tensor){0};
  assert_int_equal(hark_attention_backward(context, c.plan, a), HARK_OK);
  close_call(&c);
  hark_context_destroy(&context);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_arguments),         cmocka_unit_test(test_directed_table), cmocka_unit_test(test_hierarchical_arguments),
      cmocka_unit_test(test_foreign_arguments), cmocka_unit_test(test_placed_plan),    cmocka_unit_test(test_out_of_memory),
      cmocka_unit_test(test_nothing_to_do),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
