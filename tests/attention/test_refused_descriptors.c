/* test_refused_descriptors.c - bad descriptors: each is refused with the right status and a message that names what is wrong, and
 * nothing is written.
 */
#include "support/cmocka_all.h"

#include <math.h>
#include <string.h>

#include "attention/refusal_case.h"

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
CHANGE(compressed_kernel, compressed(desc); desc->has_log_kernel = true; desc->kept_chunks = 2; desc->global_slots = 3)
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
    {"compressed_kernel", compressed_kernel, HARK_UNSUPPORTED, "has_log_kernel with global_slots"},
    {"compressed_forget", compressed_forget, HARK_UNSUPPORTED, "has_forget with structure compressed"},
    {"compressed_positions", compressed_positions, HARK_UNSUPPORTED, "contextual_positions with structure compressed"},
    {"compressed_window", compressed_window, HARK_UNSUPPORTED, "window is 3|compressed"},
    {"compressed_cross", compressed_cross, HARK_UNSUPPORTED, "query_length is 5|key_length 7|compressed"},
};

static void test_descriptors(void **state) {
  (void)state;
  hark_context *context = refusal_context(1);
  for (size_t i = 0; i < sizeof desc_cases / sizeof desc_cases[0]; i++) {
    const desc_case *c = &desc_cases[i];
    hark_attention_desc desc = refusal_desc();
    c->change(&desc);
    if (hark_attention_supports(context, &desc) != c->status) fail_msg("%s: '%s'", c->name, hark_context_message(context));
    refusal_message(context, c->name, c->words);
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
  hark_context *context = refusal_context(1);
  hark_attention_plan *plan;
  hark_attention_desc desc = refusal_desc();
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

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_descriptors),
      cmocka_unit_test(test_defaults),
      cmocka_unit_test(test_too_much_scratch),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
