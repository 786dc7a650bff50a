/* test_abi.c - what programs that are already built rely on (docs/abi.md): the layout of public structs, and numbers. Structs of other
 * versions are in test_abi_structs.c. */
#include <hark/hark.h>
#include <stdio.h>
#include <string.h>

#include "support/cmocka_all.h"

/* ---- layout ---- */

/* On machines with 8-byte longs and pointers. A line that must be changed means that programs built before break: it takes another soname
 * (docs/abi.md), unless the version that has the line was never released. New fields of growing structs are new lines. */
typedef struct layout_row {
  const char *name;
  size_t is, was;
} layout_row;
#define SIZE(type, bytes)                                                                                                                  \
  { "sizeof(" #type ")", sizeof(type), bytes }
#define FIELD(type, field, bytes)                                                                                                          \
  { "offsetof(" #type ", " #field ")", offsetof(type, field), bytes }
static const layout_row layout[] = {
    SIZE(hark_tensor, 152),
    SIZE(hark_allocator, 24),
    SIZE(hark_parallel, 24),
    SIZE(hark_memory_use, 24),
    SIZE(hark_attention_sizes, 24),
    SIZE(hark_random_stream, 24),
    SIZE(hark_call, 5520),
    SIZE(hark_inferred, 1232),
    SIZE(hark_sample_input, 88),
    SIZE(hark_sample, 1072),
    SIZE(hark_operator, 120),
    SIZE(hark_attribute, 48),
    SIZE(hark_context_options, 80),
    SIZE(hark_attention_desc, 208),
    SIZE(hark_attention_args, 3768),
    SIZE(hark_attention_report, 40),
    SIZE(hark_model_options, 56),
    SIZE(hark_model_save_options, 16),
    SIZE(hark_model_info, 120),
    SIZE(hark_decoding_options, 48),
    SIZE(hark_sampling, 40),
    SIZE(hark_positional_start, 32),
    SIZE(hark_prediction_shape, 56),
    SIZE(hark_predictor_options, 48),
    SIZE(hark_prediction_input, 56),
    SIZE(hark_positional_parameter, 40),
    SIZE(hark_positional_kernel, 104),
    SIZE(hark_positional_attributes, 32),
    SIZE(hark_matmul_attributes, 2),
    SIZE(hark_position_embedding_attributes, 8),
    SIZE(hark_sinusoidal_positions_attributes, 16),
    SIZE(hark_norm_attributes, 8),
    SIZE(hark_gelu_attributes, 1),
    SIZE(hark_dropout_attributes, 32),
    SIZE(hark_pool_attributes, 4),
    SIZE(hark_cross_entropy_attributes, 24),
    SIZE(hark_rotary_attributes, 64),
    SIZE(hark_attention_attributes, 592),
    SIZE(hark_attention_own, 512),
    SIZE(hark_kernel_ridge_attributes, 32),
    SIZE(hark_kernel_ridge_decode_attributes, 72),
    SIZE(hark_hierarchical_means_attributes, 24),
    SIZE(hark_hierarchical_decode_attributes, 56),
    SIZE(hark_adamw_attributes, 56),
    SIZE(hark_scale_attributes, 8),
    FIELD(hark_context_options, struct_size, 0),
    FIELD(hark_context_options, allocator, 8),
    FIELD(hark_context_options, parallel, 16),
    FIELD(hark_context_options, threads, 24),
    FIELD(hark_context_options, backend, 32),
    FIELD(hark_context_options, instruction_set, 40),
    FIELD(hark_context_options, seed, 48),
    FIELD(hark_context_options, deterministic, 56),
    FIELD(hark_context_options, logger, 64),
    FIELD(hark_context_options, logger_user, 72),
    FIELD(hark_attention_desc, struct_size, 0),
    FIELD(hark_attention_desc, type, 8),
    FIELD(hark_attention_desc, structure, 12),
    FIELD(hark_attention_desc, kernel, 16),
    FIELD(hark_attention_desc, normalisation, 20),
    FIELD(hark_attention_desc, batch, 24),
    FIELD(hark_attention_desc, heads, 32),
    FIELD(hark_attention_desc, key_heads, 40),
    FIELD(hark_attention_desc, query_length, 48),
    FIELD(hark_attention_desc, key_length, 56),
    FIELD(hark_attention_desc, head_dim, 64),
    FIELD(hark_attention_desc, value_dim, 72),
    FIELD(hark_attention_desc, max_sequences, 80),
    FIELD(hark_attention_desc, causal, 88),
    FIELD(hark_attention_desc, scale, 96),
    FIELD(hark_attention_desc, sigma, 104),
    FIELD(hark_attention_desc, window, 112),
    FIELD(hark_attention_desc, dropout, 120),
    FIELD(hark_attention_desc, has_bias, 128),
    FIELD(hark_attention_desc, has_mask, 129),
    FIELD(hark_attention_desc, has_segments, 130),
    FIELD(hark_attention_desc, has_log_kernel, 131),
    FIELD(hark_attention_desc, has_forget, 132),
    FIELD(hark_attention_desc, forward_only, 133),
    FIELD(hark_attention_desc, hierarchy_block, 136),
    FIELD(hark_attention_desc, partition, 144),
    FIELD(hark_attention_desc, coarse_query, 148),
    FIELD(hark_attention_desc, interpolation, 152),
    FIELD(hark_attention_desc, has_hierarchical_bias, 156),
    FIELD(hark_attention_desc, longest, 160),
    FIELD(hark_attention_desc, ridge, 168),
    FIELD(hark_attention_desc, ridge_power, 176),
    FIELD(hark_attention_desc, bound, 184),
    FIELD(hark_attention_desc, unit, 192),
    FIELD(hark_attention_desc, has_ridge, 193),
    FIELD(hark_attention_desc, has_sigma, 194),
    FIELD(hark_attention_desc, product_type, 200),
    FIELD(hark_attention_args, struct_size, 0),
    FIELD(hark_attention_args, query, 8),
    FIELD(hark_attention_args, key, 160),
    FIELD(hark_attention_args, value, 312),
    FIELD(hark_attention_args, out, 464),
    FIELD(hark_attention_args, log_sum_exp, 616),
    FIELD(hark_attention_args, key_lengths, 768),
    FIELD(hark_attention_args, query_offsets, 776),
    FIELD(hark_attention_args, key_offsets, 784),
    FIELD(hark_attention_args, sequences, 792),
    FIELD(hark_attention_args, segments, 800),
    FIELD(hark_attention_args, has_query_offset, 808),
    FIELD(hark_attention_args, query_offset, 816),
    FIELD(hark_attention_args, mask, 824),
    FIELD(hark_attention_args, attention_bias, 976),
    FIELD(hark_attention_args, log_kernel, 1128),
    FIELD(hark_attention_args, forget, 1280),
    FIELD(hark_attention_args, dropout, 1432),
    FIELD(hark_attention_args, dout, 1456),
    FIELD(hark_attention_args, dquery, 1608),
    FIELD(hark_attention_args, dkey, 1760),
    FIELD(hark_attention_args, dvalue, 1912),
    FIELD(hark_attention_args, dattention_bias, 2064),
    FIELD(hark_attention_args, dlog_kernel, 2216),
    FIELD(hark_attention_args, dforget, 2368),
    FIELD(hark_attention_args, accumulate, 2520),
    FIELD(hark_attention_args, saved, 2528),
    FIELD(hark_attention_args, workspace, 2536),
    FIELD(hark_attention_args, hierarchical_bias, 2544),
    FIELD(hark_attention_args, query_mask, 2696),
    FIELD(hark_attention_args, dhierarchical_bias, 2848),
    FIELD(hark_attention_args, ridge, 3000),
    FIELD(hark_attention_args, sigma, 3152),
    FIELD(hark_attention_args, variance, 3304),
    FIELD(hark_attention_args, dridge, 3456),
    FIELD(hark_attention_args, dsigma, 3608),
    FIELD(hark_attention_args, report, 3760),
    FIELD(hark_attention_report, pivots, 0),
    FIELD(hark_attention_report, item, 8),
    FIELD(hark_attention_report, head, 16),
    FIELD(hark_attention_report, row, 24),
    FIELD(hark_attention_report, amount, 32),
    FIELD(hark_model_options, struct_size, 0),
    FIELD(hark_model_options, checkpoint, 8),
    FIELD(hark_model_options, skip_verification, 16),
    FIELD(hark_model_options, description, 24),
    FIELD(hark_model_options, description_bytes, 32),
    FIELD(hark_model_options, vocabulary, 40),
    FIELD(hark_model_options, vocabulary_bytes, 48),
    FIELD(hark_model_save_options, struct_size, 0),
    FIELD(hark_model_save_options, matrices, 8),
    FIELD(hark_model_info, struct_size, 0),
    FIELD(hark_model_info, type, 8),
    FIELD(hark_model_info, tokenizer, 16),
    FIELD(hark_model_info, vocabulary, 24),
    FIELD(hark_model_info, reserved, 32),
    FIELD(hark_model_info, context, 40),
    FIELD(hark_model_info, layers, 48),
    FIELD(hark_model_info, heads, 56),
    FIELD(hark_model_info, key_heads, 64),
    FIELD(hark_model_info, width, 72),
    FIELD(hark_model_info, parameters, 80),
    FIELD(hark_model_info, bytes, 88),
    FIELD(hark_model_info, fingerprint, 96),
    FIELD(hark_model_info, architecture, 104),
    FIELD(hark_model_info, begin, 112),
    FIELD(hark_decoding_options, struct_size, 0),
    FIELD(hark_decoding_options, capacity, 8),
    FIELD(hark_decoding_options, cancel, 16),
    FIELD(hark_decoding_options, cancel_user, 24),
    FIELD(hark_decoding_options, memory, 32),
    FIELD(hark_decoding_options, memory_bytes, 40),
    FIELD(hark_sampling, struct_size, 0),
    FIELD(hark_sampling, temperature, 8),
    FIELD(hark_sampling, top_k, 16),
    FIELD(hark_sampling, top_p, 24),
    FIELD(hark_sampling, seed, 32),
    FIELD(hark_positional_start, struct_size, 0),
    FIELD(hark_positional_start, length, 8),
    FIELD(hark_positional_start, heads, 16),
    FIELD(hark_positional_start, head, 24),
    FIELD(hark_prediction_shape, struct_size, 0),
    FIELD(hark_prediction_shape, outputs, 8),
    FIELD(hark_prediction_shape, of_tokens, 16),
    FIELD(hark_prediction_shape, parts, 24),
    FIELD(hark_prediction_shape, longest, 32),
    FIELD(hark_prediction_shape, features, 40),
    FIELD(hark_prediction_shape, selected, 48),
    FIELD(hark_predictor_options, struct_size, 0),
    FIELD(hark_predictor_options, examples, 8),
    FIELD(hark_predictor_options, tokens, 16),
    FIELD(hark_predictor_options, select, 24),
    FIELD(hark_predictor_options, select_user, 32),
    FIELD(hark_predictor_options, gives_chunks, 40),
    FIELD(hark_prediction_input, struct_size, 0),
    FIELD(hark_prediction_input, examples, 8),
    FIELD(hark_prediction_input, offsets, 16),
    FIELD(hark_prediction_input, tokens, 24),
    FIELD(hark_prediction_input, vectors, 32),
    FIELD(hark_prediction_input, chunks, 40),
    FIELD(hark_prediction_input, chunk_count, 48),
    FIELD(hark_tensor, data, 0),
    FIELD(hark_tensor, type, 8),
    FIELD(hark_tensor, rank, 12),
    FIELD(hark_tensor, shape, 16),
    FIELD(hark_tensor, stride, 80),
    FIELD(hark_tensor, owned_bytes, 144),
    FIELD(hark_allocator, allocate, 0),
    FIELD(hark_allocator, release, 8),
    FIELD(hark_allocator, user, 16),
    FIELD(hark_parallel, threads, 0),
    FIELD(hark_parallel, run, 8),
    FIELD(hark_parallel, user, 16),
    FIELD(hark_random_stream, seed, 0),
    FIELD(hark_random_stream, first_index, 8),
    FIELD(hark_random_stream, micro_step, 16),
    FIELD(hark_random_stream, layer_purpose, 20),
    FIELD(hark_attention_attributes, keys_of_a_query, 72),
    FIELD(hark_attention_attributes, own, 80),
    FIELD(hark_operator, name, 0),
    FIELD(hark_operator, formula, 8),
    FIELD(hark_operator, attributes_size, 16),
    FIELD(hark_operator, input_minimum, 24),
    FIELD(hark_operator, input_maximum, 28),
    FIELD(hark_operator, output_count, 32),
    FIELD(hark_operator, differentiable, 36),
    FIELD(hark_operator, backward_inputs, 40),
    FIELD(hark_operator, backward_outputs, 44),
    FIELD(hark_operator, in_place, 48),
    FIELD(hark_operator, gradient_in_place, 52),
    FIELD(hark_operator, gradient_passes, 56),
    FIELD(hark_operator, updates, 60),
    FIELD(hark_operator, infer, 64),
    FIELD(hark_operator, forward, 72),
    FIELD(hark_operator, backward, 80),
    FIELD(hark_operator, operations, 88),
    FIELD(hark_operator, terms, 96),
    FIELD(hark_operator, samples, 104),
    FIELD(hark_operator, sample_count, 112),
    FIELD(hark_call, op, 0),
    FIELD(hark_call, attributes, 8),
    FIELD(hark_call, input_count, 16),
    FIELD(hark_call, inputs, 24),
    FIELD(hark_call, outputs, 1848),
    FIELD(hark_call, saved, 2456),
    FIELD(hark_call, output_gradients, 3064),
    FIELD(hark_call, input_gradients, 3672),
    FIELD(hark_call, accumulate, 5496),
    FIELD(hark_call, workspace, 5504),
    FIELD(hark_call, workspace_bytes, 5512),
    FIELD(hark_inferred, outputs, 0),
    FIELD(hark_inferred, saved, 608),
    FIELD(hark_inferred, forward_workspace, 1216),
    FIELD(hark_inferred, backward_workspace, 1224),
};

static void the_layout_of_public_structs_stays(void **state) {
  (void)state;
  if (sizeof(void *) != 8 || sizeof(long) != 8) skip();
  int wrong = 0;
  for (size_t i = 0; i < sizeof layout / sizeof layout[0]; i++) {
    if (layout[i].is == layout[i].was) continue;
    print_error("%s is %zu, was %zu\n", layout[i].name, layout[i].is, layout[i].was);
    wrong++;
  }
  if (wrong > 0) fail_msg("%d places of public structs moved: docs/abi.md says what that means and what to do", wrong);
}

/* hark_take_struct() reads the size there. */
static void growing_structs_begin_with_their_size(void **state) {
  (void)state;
  assert_int_equal(offsetof(hark_context_options, struct_size), 0);
  assert_int_equal(offsetof(hark_attention_desc, struct_size), 0);
  assert_int_equal(offsetof(hark_attention_args, struct_size), 0);
  assert_int_equal(offsetof(hark_model_options, struct_size), 0);
  assert_int_equal(offsetof(hark_model_save_options, struct_size), 0);
  assert_int_equal(offsetof(hark_model_info, struct_size), 0);
  assert_int_equal(offsetof(hark_decoding_options, struct_size), 0);
  assert_int_equal(offsetof(hark_sampling, struct_size), 0);
  assert_int_equal(offsetof(hark_positional_start, struct_size), 0);
  assert_int_equal(offsetof(hark_prediction_shape, struct_size), 0);
  assert_int_equal(offsetof(hark_predictor_options, struct_size), 0);
  assert_int_equal(offsetof(hark_prediction_input, struct_size), 0);
}

/* Programs print these numbers, store them and compare with them. */
static void numbers_of_enumerations_stay(void **state) {
  (void)state;
  static const int is[] = {HARK_NONE,
                           HARK_F32,
                           HARK_F64,
                           HARK_I32,
                           HARK_I64,
                           HARK_U8,
                           HARK_F16,
                           HARK_BF16,
                           HARK_STRUCTURE_DENSE,
                           HARK_STRUCTURE_WINDOW,
                           HARK_KERNEL_EXP,
                           HARK_KERNEL_RBF,
                           HARK_NORMALISATION_SOFTMAX,
                           HARK_LOG_ERROR,
                           HARK_LOG_DEBUG,
                           HARK_POOL_LAST,
                           HARK_ROTARY_HALF,
                           HARK_RANDOM_INITIAL,
                           HARK_RANDOM_TEST,
                           HARK_ACCUMULATE_FORGET,
                           HARK_OK,
                           HARK_INTERNAL_ERROR,
                           HARK_MAX_RANK,
                           HARK_MAX_INPUTS,
                           HARK_MAX_OUTPUTS,
                           HARK_MAX_SAVED,
                           HARK_ATTENTION_PLAN_BYTES};
  static const int was[] = {0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 0, 1, 0, 0, 3, 3, 1, 1, 6, 32, 0, 14, 8, 12, 4, 4, 512};
  assert_int_equal(sizeof is / sizeof is[0], sizeof was / sizeof was[0]);
  for (size_t i = 0; i < sizeof is / sizeof is[0]; i++) {
    if (is[i] != was[i]) fail_msg("number %zu of the list is %d, was %d", i, is[i], was[i]);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_layout_of_public_structs_stays),
      cmocka_unit_test(growing_structs_begin_with_their_size),
      cmocka_unit_test(numbers_of_enumerations_stay),
  };
  return cmocka_run_group_tests_name("abi", tests, NULL, NULL);
}
