/* test_refusals.c - bad descriptors and arguments: each is refused with the right status and a message that names what is wrong, and
 * nothing is written.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <hark/hark.h>

enum { BATCH = 2, HEADS = 4, KEY_HEADS = 2, QUERIES = 5, KEYS = 7, DIM = 3, VALUE_DIM = 2 };

static hark_context *open_context(int threads) {
  const hark_context_options options = {.struct_size = sizeof options, .backend = "reference", .threads = threads};
  hark_context *context;
  assert_int_equal(hark_context_create(&options, &context), HARK_OK);
  return context;
}

static hark_attention_desc good_desc(void) {
  hark_attention_desc desc = hark_attention_desc_default();
  desc.batch = BATCH;
  desc.heads = HEADS;
  desc.key_heads = KEY_HEADS;
  desc.query_length = QUERIES;
  desc.key_length = KEYS;
  desc.head_dim = DIM;
  desc.value_dim = VALUE_DIM;
  return desc;
}

/* The message must hold every word of `words`, which are separated by '|'. */
static void assert_message(hark_context *context, const char *what, const char *words) {
  const char *message = hark_context_message(context);
  for (const char *at = words; *at != '\0';) {
    const size_t length = strcspn(at, "|");
    char word[128];
    snprintf(word, sizeof word, "%.*s", (int)length, at);
    if (strstr(message, word) == NULL) fail_msg("%s: '%s' does not say '%s'", what, message, word);
    at += length + (at[length] == '|');
  }
}

/* ---- descriptors ---- */

typedef struct desc_case {
  const char *name;
  void (*change)(hark_attention_desc *desc);
  hark_status status;
  const char *words;
} desc_case;

#define CHANGE(name, statement)                                                                                                            \
  static void name(hark_attention_desc *desc) { statement; }
CHANGE(small_struct, desc->struct_size = 8)
CHANGE(type_i32, desc->type = HARK_I32)
CHANGE(structure_9, desc->structure = (hark_attention_structure)9)
CHANGE(kernel_9, desc->kernel = (hark_attention_kernel)9)
CHANGE(normalisation_9, desc->normalisation = (hark_attention_normalisation)9)
CHANGE(batch_0, desc->batch = 0)
CHANGE(heads_negative, desc->heads = -4)
CHANGE(queries_0, desc->query_length = 0)
CHANGE(keys_huge, desc->key_length = INT64_MAX)
CHANGE(dim_0, desc->head_dim = 0)
CHANGE(value_dim_negative, desc->value_dim = -1)
CHANGE(key_heads_3, desc->key_heads = 3)
CHANGE(too_large, desc->batch = (int64_t)1 << 39; desc->query_length = (int64_t)1 << 39)
CHANGE(sequences_negative, desc->max_sequences = -1)
CHANGE(scale_nan, desc->scale = NAN)
CHANGE(sigma_with_exp, desc->sigma = 1)
CHANGE(rbf_without_sigma, desc->kernel = HARK_KERNEL_RBF)
CHANGE(rbf_sigma_negative, desc->kernel = HARK_KERNEL_RBF; desc->sigma = -1)
CHANGE(rbf_with_scale, desc->kernel = HARK_KERNEL_RBF; desc->sigma = 1; desc->scale = 2)
CHANGE(rbf_sigma_tiny, desc->kernel = HARK_KERNEL_RBF; desc->sigma = 1e-200)
CHANGE(window_with_dense, desc->window = 3)
CHANGE(window_negative, desc->structure = HARK_STRUCTURE_WINDOW; desc->window = -1)
CHANGE(dropout_1, desc->dropout = 1)
CHANGE(dropout_negative, desc->dropout = -0.1)
CHANGE(dropout_nan, desc->dropout = NAN)
CHANGE(dropout_long, desc->dropout = 0.1; desc->key_length = ((int64_t)1 << 23) + 1)
CHANGE(dropout_many_heads, desc->dropout = 0.1; desc->batch = (int64_t)1 << 19)
CHANGE(forget_without_causal, desc->has_forget = true)
CHANGE(directed_2, desc->has_log_kernel = true; desc->directed_kernel = 2)
CHANGE(directed_without_table, desc->directed_kernel = 1)
CHANGE(directed_causal, desc->has_log_kernel = desc->causal = true; desc->directed_kernel = 1)
CHANGE(directed_cme, desc->has_log_kernel = true; desc->directed_kernel = 1; desc->normalisation = HARK_NORMALISATION_CME; desc->ridge = 1)

static void hierarchical(hark_attention_desc *desc) {
  desc->structure = HARK_STRUCTURE_HIERARCHICAL;
  desc->query_length = desc->key_length;
}
CHANGE(block_of_dense, desc->hierarchy_block = 16)
CHANGE(block_odd, hierarchical(desc); desc->hierarchy_block = 15)
CHANGE(block_negative, hierarchical(desc); desc->hierarchy_block = -2)
CHANGE(partition_5, hierarchical(desc); desc->partition = (hark_hierarchy_partition)5)
CHANGE(coarse_query_7, hierarchical(desc); desc->coarse_query = (hark_coarse_query)7)
CHANGE(interpolation_3, hierarchical(desc); desc->interpolation = (hark_hierarchy_interpolation)3)
CHANGE(mean_causal, hierarchical(desc); desc->causal = true; desc->coarse_query = HARK_COARSE_QUERY_MEAN)
CHANGE(linear_causal, hierarchical(desc); desc->causal = true; desc->interpolation = HARK_INTERPOLATION_LINEAR)
CHANGE(linear_exact, hierarchical(desc); desc->coarse_query = HARK_COARSE_QUERY_EXACT; desc->interpolation = HARK_INTERPOLATION_LINEAR)
CHANGE(hierarchical_cross, hierarchical(desc); desc->query_length = QUERIES)
CHANGE(hierarchical_window, hierarchical(desc); desc->window = 3)
CHANGE(hierarchical_attention_bias, hierarchical(desc); desc->has_bias = true)
CHANGE(hierarchical_forget, hierarchical(desc); desc->causal = desc->has_forget = true)
CHANGE(hierarchical_bias_of_dense, desc->has_hierarchical_bias = true)

static void picture(hark_attention_desc *desc) {
  hierarchical(desc);
  desc->grid_columns = 5;
}
CHANGE(grid_of_dense, desc->grid_columns = 5)
CHANGE(grid_negative, picture(desc); desc->grid_columns = -1)
CHANGE(grid_huge, picture(desc); desc->grid_columns = INT64_MAX)
CHANGE(grid_block_8, picture(desc); desc->hierarchy_block = 8)
CHANGE(grid_block_36, picture(desc); desc->hierarchy_block = 36)
CHANGE(grid_block_2, picture(desc); desc->hierarchy_block = 2)
CHANGE(grid_causal, picture(desc); desc->causal = true)
CHANGE(grid_sibling, picture(desc); desc->partition = HARK_PARTITION_SIBLING)
CHANGE(grid_first, picture(desc); desc->coarse_query = HARK_COARSE_QUERY_FIRST)
CHANGE(grid_linear, picture(desc); desc->interpolation = HARK_INTERPOLATION_LINEAR)
CHANGE(grid_bias, picture(desc); desc->has_hierarchical_bias = true)
CHANGE(grid_kernel, picture(desc); desc->has_log_kernel = true)
CHANGE(grid_cross, picture(desc); desc->query_length = QUERIES)

static void compressed(hark_attention_desc *desc) {
  desc->structure = HARK_STRUCTURE_COMPRESSED;
  desc->query_length = desc->key_length;
  desc->causal = true;
  desc->chunk = 4;
}
CHANGE(chunk_of_dense, desc->chunk = 4)
CHANGE(slots_of_window, desc->structure = HARK_STRUCTURE_WINDOW; desc->chunk_slots = 1)
CHANGE(starts_of_hierarchical, hierarchical(desc); desc->has_chunk_starts = 1)
CHANGE(block_of_compressed, compressed(desc); desc->hierarchy_block = 16)
CHANGE(chunk_0, compressed(desc); desc->chunk = 0)
CHANGE(chunk_huge, compressed(desc); desc->chunk = INT64_MAX)
CHANGE(slots_5, compressed(desc); desc->chunk_slots = 5)
CHANGE(slots_negative, compressed(desc); desc->chunk_slots = -1)
CHANGE(selected_4097, compressed(desc); desc->selected_slots = 4097)
CHANGE(kept_negative, compressed(desc); desc->kept_chunks = -1)
CHANGE(globals_of_all, compressed(desc); desc->global_slots = 3)
CHANGE(globals_huge, compressed(desc); desc->kept_chunks = 1; desc->global_slots = INT64_MAX)
CHANGE(starts_2, compressed(desc); desc->has_chunk_starts = 2)
CHANGE(compressed_both_sides, compressed(desc); desc->causal = false)
CHANGE(compressed_rbf, compressed(desc); desc->kernel = HARK_KERNEL_RBF; desc->sigma = 1)
CHANGE(compressed_cme, compressed(desc); desc->normalisation = HARK_NORMALISATION_CME; desc->ridge = 1)
CHANGE(compressed_stick, compressed(desc); desc->normalisation = HARK_NORMALISATION_STICK_BREAKING)
CHANGE(compressed_bias, compressed(desc); desc->has_bias = true)
CHANGE(compressed_kernel, compressed(desc); desc->has_log_kernel = true)
CHANGE(compressed_forget, compressed(desc); desc->has_forget = true)
CHANGE(compressed_positions, compressed(desc); desc->contextual_positions = 4)
CHANGE(compressed_window, compressed(desc); desc->window = 3)
CHANGE(compressed_cross, compressed(desc); desc->query_length = QUERIES)
CHANGE(grid_cme, picture(desc); desc->normalisation = HARK_NORMALISATION_CME; desc->ridge = 1)

static const desc_case desc_cases[] = {
    {"small_struct", small_struct, HARK_INVALID_ARGUMENT, "struct_size|8"},
    {"type_i32", type_i32, HARK_UNSUPPORTED, "type|i32|f32 or f64"},
    {"structure_9", structure_9, HARK_INVALID_ARGUMENT, "structure|9"},
    {"kernel_9", kernel_9, HARK_INVALID_ARGUMENT, "kernel|9"},
    {"normalisation_9", normalisation_9, HARK_INVALID_ARGUMENT, "normalisation|9"},
    {"batch_0", batch_0, HARK_INVALID_ARGUMENT, "batch is 0"},
    {"heads_negative", heads_negative, HARK_INVALID_ARGUMENT, "heads is -4"},
    {"queries_0", queries_0, HARK_INVALID_ARGUMENT, "query_length is 0"},
    {"keys_huge", keys_huge, HARK_INVALID_ARGUMENT, "key_length is 9223372036854775807"},
    {"dim_0", dim_0, HARK_INVALID_ARGUMENT, "head_dim is 0"},
    {"value_dim_negative", value_dim_negative, HARK_INVALID_ARGUMENT, "value_dim is -1"},
    {"key_heads_3", key_heads_3, HARK_INVALID_ARGUMENT, "heads is 4|key_heads = 3"},
    {"too_large", too_large, HARK_TOO_LARGE, "batch|query_length"},
    {"sequences_negative", sequences_negative, HARK_INVALID_ARGUMENT, "max_sequences is -1"},
    {"scale_nan", scale_nan, HARK_INVALID_ARGUMENT, "scale is nan"},
    {"sigma_with_exp", sigma_with_exp, HARK_UNSUPPORTED, "sigma is 1|kernel exp"},
    {"rbf_without_sigma", rbf_without_sigma, HARK_INVALID_ARGUMENT, "sigma is 0|rbf"},
    {"rbf_sigma_negative", rbf_sigma_negative, HARK_INVALID_ARGUMENT, "sigma is -1|rbf"},
    {"rbf_with_scale", rbf_with_scale, HARK_UNSUPPORTED, "scale is 2|rbf"},
    {"rbf_sigma_tiny", rbf_sigma_tiny, HARK_INVALID_ARGUMENT, "sigma is 1e-200"},
    {"window_with_dense", window_with_dense, HARK_UNSUPPORTED, "window is 3|dense"},
    {"window_negative", window_negative, HARK_INVALID_ARGUMENT, "window is -1"},
    {"directed_2", directed_2, HARK_INVALID_ARGUMENT, "directed_kernel is 2|expected 0 or 1"},
    {"directed_without_table", directed_without_table, HARK_INVALID_ARGUMENT, "directed_kernel is 1 without has_log_kernel"},
    {"directed_causal", directed_causal, HARK_UNSUPPORTED, "directed_kernel is 1 with causal|no key after it"},
    {"directed_cme", directed_cme, HARK_UNSUPPORTED, "directed_kernel is 1 with normalisation cme|not symmetric"},
    {"dropout_1", dropout_1, HARK_INVALID_ARGUMENT, "dropout is 1|[0, 1)"},
    {"dropout_negative", dropout_negative, HARK_INVALID_ARGUMENT, "dropout is -0.1"},
    {"dropout_nan", dropout_nan, HARK_INVALID_ARGUMENT, "dropout is nan"},
    {"dropout_long", dropout_long, HARK_TOO_LARGE, "key_length 8388609|2^23"},
    {"dropout_many_heads", dropout_many_heads, HARK_TOO_LARGE, "batch 524288|2^20"},
    {"forget_without_causal", forget_without_causal, HARK_UNSUPPORTED, "has_forget|causal"},
    {"block_of_dense", block_of_dense, HARK_UNSUPPORTED, "hierarchy_block is 16|dense"},
    {"block_odd", block_odd, HARK_INVALID_ARGUMENT, "hierarchy_block is 15|even"},
    {"block_negative", block_negative, HARK_INVALID_ARGUMENT, "hierarchy_block is -2|even"},
    {"partition_5", partition_5, HARK_INVALID_ARGUMENT, "partition is 5"},
    {"coarse_query_7", coarse_query_7, HARK_INVALID_ARGUMENT, "coarse_query is 7"},
    {"interpolation_3", interpolation_3, HARK_INVALID_ARGUMENT, "interpolation is 3"},
    {"mean_causal", mean_causal, HARK_UNSUPPORTED, "coarse_query is mean|causal"},
    {"linear_causal", linear_causal, HARK_UNSUPPORTED, "interpolation is linear|causal"},
    {"linear_exact", linear_exact, HARK_UNSUPPORTED, "interpolation is linear|exact"},
    {"hierarchical_cross", hierarchical_cross, HARK_UNSUPPORTED, "query_length is 5|key_length 7|hierarchical"},
    {"hierarchical_window", hierarchical_window, HARK_UNSUPPORTED, "window is 3|hierarchical"},
    {"hierarchical_attention_bias", hierarchical_attention_bias, HARK_UNSUPPORTED, "has_bias|hierarchical"},
    {"hierarchical_forget", hierarchical_forget, HARK_UNSUPPORTED, "has_forget|hierarchical"},
    {"hierarchical_bias_of_dense", hierarchical_bias_of_dense, HARK_UNSUPPORTED, "has_hierarchical_bias is 1|dense"},
    {"grid_of_dense", grid_of_dense, HARK_UNSUPPORTED, "grid_columns is 5|dense"},
    {"grid_negative", grid_negative, HARK_INVALID_ARGUMENT, "grid_columns is -1|1 to 2^40"},
    {"grid_huge", grid_huge, HARK_INVALID_ARGUMENT, "grid_columns is 9223372036854775807|1 to 2^40"},
    {"grid_block_8", grid_block_8, HARK_INVALID_ARGUMENT, "hierarchy_block is 8|grid_columns|power of 4"},
    {"grid_block_36", grid_block_36, HARK_INVALID_ARGUMENT, "hierarchy_block is 36|grid_columns|power of 4"},
    {"grid_block_2", grid_block_2, HARK_INVALID_ARGUMENT, "hierarchy_block is 2|grid_columns|power of 4"},
    {"grid_causal", grid_causal, HARK_UNSUPPORTED, "grid_columns is 5 with causal"},
    {"grid_sibling", grid_sibling, HARK_UNSUPPORTED, "grid_columns is 5 with partition sibling|neighbour"},
    {"grid_first", grid_first, HARK_UNSUPPORTED, "grid_columns is 5 with coarse_query first|mean or exact"},
    {"grid_linear", grid_linear, HARK_UNSUPPORTED, "grid_columns is 5 with interpolation linear|constant"},
    {"grid_bias", grid_bias, HARK_UNSUPPORTED, "grid_columns is 5 with has_hierarchical_bias|distance"},
    {"grid_kernel", grid_kernel, HARK_UNSUPPORTED, "grid_columns is 5 with has_log_kernel|distance"},
    {"grid_cross", grid_cross, HARK_UNSUPPORTED, "query_length is 5|key_length 7|hierarchical"},
    {"grid_cme", grid_cme, HARK_UNSUPPORTED, "structure"},
    {"chunk_of_dense", chunk_of_dense, HARK_UNSUPPORTED, "chunk is 4|dense|compressed"},
    {"slots_of_window", slots_of_window, HARK_UNSUPPORTED, "chunk_slots is 1|window|compressed"},
    {"starts_of_hierarchical", starts_of_hierarchical, HARK_UNSUPPORTED, "has_chunk_starts is 1|hierarchical|compressed"},
    {"block_of_compressed", block_of_compressed, HARK_UNSUPPORTED, "hierarchy_block is 16|compressed|hierarchical"},
    {"chunk_0", chunk_0, HARK_INVALID_ARGUMENT, "chunk is 0|1 to 1048576"},
    {"chunk_huge", chunk_huge, HARK_INVALID_ARGUMENT, "chunk is 9223372036854775807|1 to 1048576"},
    {"slots_5", slots_5, HARK_INVALID_ARGUMENT, "chunk_slots is 5|1 to 4"},
    {"slots_negative", slots_negative, HARK_INVALID_ARGUMENT, "chunk_slots is -1"},
    {"selected_4097", selected_4097, HARK_INVALID_ARGUMENT, "selected_slots is 4097|1 to 4096"},
    {"kept_negative", kept_negative, HARK_INVALID_ARGUMENT, "kept_chunks is -1"},
    {"globals_of_all", globals_of_all, HARK_UNSUPPORTED, "global_slots is 3 with kept_chunks 0"},
    {"globals_huge", globals_huge, HARK_INVALID_ARGUMENT, "global_slots is 9223372036854775807"},
    {"starts_2", starts_2, HARK_INVALID_ARGUMENT, "has_chunk_starts is 2|0 to 1"},
    {"compressed_both_sides", compressed_both_sides, HARK_UNSUPPORTED, "structure is compressed without causal"},
    {"compressed_rbf", compressed_rbf, HARK_UNSUPPORTED, "kernel is rbf with structure compressed"},
    {"compressed_cme", compressed_cme, HARK_UNSUPPORTED, "normalisation is cme with structure compressed"},
    {"compressed_stick", compressed_stick, HARK_UNSUPPORTED, "normalisation is stick_breaking with structure compressed"},
    {"compressed_bias", compressed_bias, HARK_UNSUPPORTED, "has_bias with structure compressed"},
    {"compressed_kernel", compressed_kernel, HARK_UNSUPPORTED, "has_log_kernel with structure compressed"},
    {"compressed_forget", compressed_forget, HARK_UNSUPPORTED, "has_forget with structure compressed"},
    {"compressed_positions", compressed_positions, HARK_UNSUPPORTED, "contextual_positions with structure compressed"},
    {"compressed_window", compressed_window, HARK_UNSUPPORTED, "window is 3|compressed"},
    {"compressed_cross", compressed_cross, HARK_UNSUPPORTED, "query_length is 5|key_length 7|compressed"},
};

static void test_descriptors(void **state) {
  (void)state;
  hark_context *context = open_context(1);
  for (size_t i = 0; i < sizeof desc_cases / sizeof desc_cases[0]; i++) {
    const desc_case *c = &desc_cases[i];
    hark_attention_desc desc = good_desc();
    c->change(&desc);
    if (hark_attention_supports(context, &desc) != c->status) fail_msg("%s: '%s'", c->name, hark_context_message(context));
    assert_message(context, c->name, c->words);
    hark_attention_plan *plan = (hark_attention_plan *)context;
    const size_t live = hark_context_memory(context).live_bytes;
    if (hark_attention_plan_create(context, &desc, &plan) != c->status) fail_msg("%s: plan_create", c->name);
    assert_null(plan);
    assert_int_equal(hark_context_memory(context).live_bytes, live);
  }
  hark_context_destroy(&context);
}

/* Tensors that memory could just hold, with scratch that it cannot: refused, not wrapped around. */
static void test_too_much_scratch(void **state) {
  (void)state;
  for (int k = 0; k < 16; k++) {
    const hark_context_options options = {.struct_size = sizeof options, .backend = "cpu", .threads = k < 8 ? 1 : 2};
    hark_context *context;
    assert_int_equal(hark_context_create(&options, &context), HARK_OK);
    hark_attention_plan *plan = NULL;
    hark_attention_desc desc = hark_attention_desc_default();
    desc.structure = HARK_STRUCTURE_HIERARCHICAL;
    desc.batch = desc.heads = 1;
    desc.query_length = desc.key_length = (int64_t)1 << 40;
    desc.head_dim = desc.value_dim = (int64_t)3 << 19;
    desc.forward_only = (k & 1) != 0;
    desc.has_log_kernel = (k & 2) != 0;
    desc.has_hierarchical_bias = (k & 4) != 0;
    if (hark_attention_plan_create(context, &desc, &plan) != HARK_TOO_LARGE) fail_msg("case %d: not refused", k);
    assert_null(plan);
    hark_context_destroy(&context);
  }
}

static void test_defaults(void **state) {
  (void)state;
  hark_context *context = open_context(1);
  hark_attention_plan *plan;
  hark_attention_desc desc = good_desc();
  desc.key_heads = desc.value_dim = 0;
  assert_int_equal(hark_attention_plan_create(context, &desc, &plan), HARK_OK);
  const hark_attention_desc *resolved = hark_attention_plan_desc(plan);
  assert_int_equal(resolved->key_heads, HEADS);
  assert_int_equal(resolved->value_dim, DIM);
  assert_int_equal(resolved->max_sequences, BATCH);
  assert_true(fabs(resolved->scale - 1 / sqrt((double)DIM)) < 1e-15);
  /* Two and five products of 2 operations for every pair, B H Lq Lk d. */
  const double product = 2.0 * BATCH * HEADS * QUERIES * KEYS * DIM;
  assert_true(hark_attention_plan_operations(plan, false) == 2 * product);
  assert_true(hark_attention_plan_operations(plan, true) == 5 * product);
  char text[512], start[8];
  const int length = hark_attention_plan_print(plan, text, sizeof text);
  assert_int_equal(length, strlen(text));
  assert_non_null(strstr(text, "dense exp softmax f32"));
  assert_int_equal(hark_attention_plan_print(plan, start, sizeof start), length);
  assert_int_equal(strlen(start), sizeof start - 1);
  hark_attention_plan_destroy(context, &plan);
  desc.has_segments = true;
  assert_int_equal(hark_attention_plan_create(context, &desc, &plan), HARK_OK);
  assert_int_equal(hark_attention_plan_desc(plan)->max_sequences, BATCH * KEYS);
  hark_attention_plan_destroy(context, &plan);
  desc.causal = true;
  desc.query_length = desc.key_length;
  assert_true(hark_attention_desc_operations(&desc, false) == 2 * 2.0 * BATCH * HEADS * (KEYS * (KEYS + 1) / 2) * DIM);
  desc.has_segments = false;
  desc.structure = HARK_STRUCTURE_HIERARCHICAL;
  desc.query_length = desc.key_length = 64;
  assert_true(hark_attention_desc_operations(&desc, true) == 2 * 5.0 * BATCH * HEADS * (3 * 4 - 2 - 2) * 16 * 16 * DIM);
  assert_int_equal(hark_attention_plan_create(context, &desc, &plan), HARK_OK);
  assert_int_equal(hark_attention_plan_desc(plan)->coarse_query, HARK_COARSE_QUERY_FIRST);
  assert_int_equal(hark_attention_plan_desc(plan)->hierarchy_block, 16);
  hark_attention_plan_print(plan, text, sizeof text);
  assert_non_null(strstr(text, "neighbour partition, first coarse queries, levels 2, a head 8 blocks of 16x16"));
  hark_attention_plan_destroy(context, &plan);
  desc.causal = false;
  assert_int_equal(hark_attention_plan_create(context, &desc, &plan), HARK_OK);
  assert_int_equal(hark_attention_plan_desc(plan)->coarse_query, HARK_COARSE_QUERY_MEAN);
  hark_attention_plan_destroy(context, &plan);
  hark_context_destroy(&context);
}

/* ---- arguments ---- */

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
  c->desc = good_desc();
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
  hark_context *context = open_context(1);
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
    assert_message(context, a->name, a->words);
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
  hark_context *context = open_context(1);
  open_call(&c, context); /* its tensors serve; its plan does not */
  hark_attention_plan_destroy(context, &c.plan);
  free(c.workspace);
  c.desc = good_desc();
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
    if (cases[i].words != NULL) assert_message(context, "directed table", cases[i].words);
  }
  close_call(&c);
  hark_context_destroy(&context);
}

/* A call of hierarchical attention: its tables and masks, and lengths that do not fit one hierarchy. */
static void test_hierarchical_arguments(void **state) {
  (void)state;
  enum { BLOCK = 2, TABLE = 4 * BLOCK - 1 };
  hark_context *context = open_context(1);
  static call c;
  open_call(&c, context); /* its tensors serve; its plan does not */
  hark_attention_plan_destroy(context, &c.plan);
  free(c.workspace);
  c.desc = good_desc();
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
    assert_message(context, cases[i].words, cases[i].words);
  }
  close_call(&c);
  hark_context_destroy(&context);
}

/* What a plan was not made for. */
static void test_foreign_arguments(void **state) {
  (void)state;
  hark_context *context = open_context(1);
  static call c;
  open_call(&c, context);
  hark_attention_desc desc = good_desc();
  desc.forward_only = true;
  hark_attention_plan *plain;
  assert_int_equal(hark_attention_plan_create(context, &desc, &plain), HARK_OK);
  assert_int_equal(hark_attention_plan_sizes(plain).backward_workspace, 0);
  const hark_attention_args all = c.args;
  c.args.attention_bias = c.args.log_kernel = c.args.forget = (hark_tensor){0};
  assert_int_equal(hark_attention_forward(context, plain, &c.args), HARK_INVALID_ARGUMENT);
  assert_message(context, "mask", "mask is given|has_mask");
  c.args.mask = (hark_tensor){0};
  c.args.attention_bias = all.attention_bias;
  assert_int_equal(hark_attention_forward(context, plain, &c.args), HARK_INVALID_ARGUMENT);
  assert_message(context, "bias", "attention_bias is given|has_bias");
  c.args.attention_bias = (hark_tensor){0};
  c.args.log_kernel = all.log_kernel;
  assert_int_equal(hark_attention_forward(context, plain, &c.args), HARK_INVALID_ARGUMENT);
  assert_message(context, "kernel", "log_kernel is given|has_log_kernel");
  c.args.log_kernel = (hark_tensor){0};
  c.args.forget = all.forget;
  assert_int_equal(hark_attention_forward(context, plain, &c.args), HARK_INVALID_ARGUMENT);
  assert_message(context, "forget", "forget is given|has_forget");
  c.args.forget = (hark_tensor){0};
  c.args.segments = c.segments;
  assert_int_equal(hark_attention_forward(context, plain, &c.args), HARK_INVALID_ARGUMENT);
  assert_message(context, "segments", "segments is given|has_segments");
  c.args.segments = NULL;
  assert_int_equal(hark_attention_forward(context, plain, &c.args), HARK_OK);
  assert_int_equal(hark_attention_backward(context, plain, &c.args), HARK_INVALID_ARGUMENT);
  assert_message(context, "backward", "forward_only");

  /* More sequences than the plan reckons with; offsets that fall, that begin below 0, that end beyond the rows. */
  c.args.query.shape[0] = c.args.key.shape[0] = c.args.value.shape[0] = c.args.out.shape[0] = c.args.log_sum_exp.shape[0] = 1;
  int64_t queries[] = {0, 1, 2, 3}, keys[] = {0, 1, 2, 3};
  c.args.query_offsets = queries;
  c.args.key_offsets = keys;
  c.args.sequences = 3;
  assert_int_equal(hark_attention_forward(context, plain, &c.args), HARK_SHAPE_MISMATCH);
  assert_message(context, "sequences", "3 sequences|max_sequences = 2");
  keys[2] = 0;
  assert_int_equal(hark_attention_forward(context, plain, &c.args), HARK_INVALID_ARGUMENT);
  assert_message(context, "falling", "key_offsets[2] is 0 after 1");
  keys[2] = 2;
  keys[3] = KEYS + 1;
  assert_int_equal(hark_attention_forward(context, plain, &c.args), HARK_INVALID_ARGUMENT);
  assert_message(context, "beyond", "key_offsets[3] is 8|7 rows");
  queries[0] = -1;
  assert_int_equal(hark_attention_forward(context, plain, &c.args), HARK_INVALID_ARGUMENT);
  assert_message(context, "below", "query_offsets[0] is -1");

  /* Contexts of another backend and with more threads. */
  hark_context *other;
  const hark_context_options cpu = {.struct_size = sizeof cpu, .backend = "cpu", .threads = 1};
  assert_int_equal(hark_context_create(&cpu, &other), HARK_OK);
  assert_int_equal(hark_attention_forward(other, plain, &c.args), HARK_INVALID_ARGUMENT);
  assert_message(other, "backend", "backend reference|has cpu");
  hark_context_destroy(&other);
  other = open_context(3);
  if (hark_context_threads(other) == 3) {
    assert_int_equal(hark_attention_forward(other, plain, &c.args), HARK_INVALID_ARGUMENT);
    assert_message(other, "threads", "3 threads|at most 1");
  }
  hark_context_destroy(&other);
  hark_attention_plan_destroy(context, &plain);
  close_call(&c);
  hark_context_destroy(&context);
}

/* A plan in memory of the caller's. */
static void test_placed_plan(void **state) {
  (void)state;
  hark_context *context = open_context(1);
  _Alignas(16) unsigned char memory[HARK_ATTENTION_PLAN_BYTES];
  hark_attention_plan *plan;
  const hark_attention_desc desc = good_desc();
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
  const hark_attention_desc desc = good_desc();
  hark_attention_plan *plan = (hark_attention_plan *)context;
  assert_int_equal(hark_attention_plan_create(context, &desc, &plan), HARK_OUT_OF_MEMORY);
  assert_null(plan);
  hark_context_destroy(&context);
}

/* Empty batches and no rows at all are done at once. */
static void test_nothing_to_do(void **state) {
  (void)state;
  hark_context *context = open_context(1);
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
  assert_message(context, "batch", "batch is 9223372036854775807, expected at most the plan's");
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
      cmocka_unit_test(test_descriptors),
      cmocka_unit_test(test_defaults),
      cmocka_unit_test(test_arguments),
      cmocka_unit_test(test_directed_table),
      cmocka_unit_test(test_hierarchical_arguments),
      cmocka_unit_test(test_foreign_arguments),
      cmocka_unit_test(test_placed_plan),
      cmocka_unit_test(test_out_of_memory),
      cmocka_unit_test(test_nothing_to_do),
      cmocka_unit_test(test_too_much_scratch),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
