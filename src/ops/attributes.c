/* attributes.c - names, types and places of the attributes of every built-in record, for programs that call operators by name. */
#include <hark/experimental.h>
#include <stddef.h>

/* NUMBER and USUAL: most attributes; the words of an enumeration; the doubles of an array. */
#define NUMBER(type, field, kind)                                                                                                          \
  { #field, HARK_ATTRIBUTE_##kind, offsetof(type, field), 1, 0, NULL }
#define USUAL(type, field, kind, value)                                                                                                    \
  { #field, HARK_ATTRIBUTE_##kind, offsetof(type, field), 1, value, NULL }
#define WORDS(type, field, words)                                                                                                          \
  { #field, HARK_ATTRIBUTE_ENUM, offsetof(type, field), 1, 0, words }

static const hark_attribute of_matmul[] = {
    NUMBER(hark_matmul_attributes, transpose_a, BOOL),
    NUMBER(hark_matmul_attributes, transpose_b, BOOL),
};
static const hark_attribute of_position_embedding[] = {
    NUMBER(hark_position_embedding_attributes, first_position, I64),
};
static const hark_attribute of_sinusoidal_positions[] = {
    NUMBER(hark_sinusoidal_positions_attributes, first_position, I64),
    USUAL(hark_sinusoidal_positions_attributes, base, F64, 10000),
};
static const hark_attribute of_norm[] = {
    USUAL(hark_norm_attributes, epsilon, F64, 1e-5),
};
static const hark_attribute of_gelu[] = {
    NUMBER(hark_gelu_attributes, tanh_approximation, BOOL),
};
static const hark_attribute of_dropout[] = {
    NUMBER(hark_dropout_attributes, probability, F64),
    NUMBER(hark_dropout_attributes, stream, STREAM),
};
static const hark_attribute of_pool[] = {
    WORDS(hark_pool_attributes, kind, "mean|max|first|last"),
};
static const hark_attribute of_squared_error[] = {
    USUAL(hark_squared_error_attributes, weight, F64, 1),
};
static const hark_attribute of_cross_entropy[] = {
    USUAL(hark_cross_entropy_attributes, weight, F64, 1),
    NUMBER(hark_cross_entropy_attributes, smoothing, F64),
    USUAL(hark_cross_entropy_attributes, ignore, I32, -1),
    NUMBER(hark_cross_entropy_attributes, z, F64),
};
static const hark_attribute of_rotary[] = {
    USUAL(hark_rotary_attributes, heads, I64, 1),         NUMBER(hark_rotary_attributes, first_position, I64),
    USUAL(hark_rotary_attributes, base, F64, 10000),      WORDS(hark_rotary_attributes, pairs, "interleaved|half"),
    NUMBER(hark_rotary_attributes, turned, I64),          NUMBER(hark_rotary_attributes, stretch, F64),
    NUMBER(hark_rotary_attributes, original_length, I64), NUMBER(hark_rotary_attributes, rates, F64_LIST),
};
static const hark_attribute of_positional[] = {
    NUMBER(hark_positional_attributes, expression, HANDLE),  NUMBER(hark_positional_attributes, text, TEXT),
    NUMBER(hark_positional_attributes, distances, I64),      NUMBER(hark_positional_attributes, stretch, F64),
    NUMBER(hark_positional_attributes, expressions, HANDLE),
};
static const hark_attribute of_attention[] = {
    NUMBER(hark_attention_attributes, plan, HANDLE),           NUMBER(hark_attention_attributes, desc, DESC),
    NUMBER(hark_attention_attributes, key_lengths, I64_LIST),  NUMBER(hark_attention_attributes, segments, I64_LIST),
    NUMBER(hark_attention_attributes, has_query_offset, BOOL), NUMBER(hark_attention_attributes, query_offset, I64),
    NUMBER(hark_attention_attributes, dropout, STREAM),        NUMBER(hark_attention_attributes, keys_of_a_query, I64),
    NUMBER(hark_attention_attributes, own, DESC_INSIDE),
};
static const hark_attribute of_kernel_ridge[] = {
    NUMBER(hark_kernel_ridge_attributes, plan, HANDLE),
    NUMBER(hark_kernel_ridge_attributes, desc, DESC),
    NUMBER(hark_kernel_ridge_attributes, report, HANDLE),
    NUMBER(hark_kernel_ridge_attributes, segments, I64_LIST),
};
static const hark_attribute of_kernel_ridge_decode[] = {
    USUAL(hark_kernel_ridge_decode_attributes, heads, I64, 1),        USUAL(hark_kernel_ridge_decode_attributes, key_heads, I64, 1),
    NUMBER(hark_kernel_ridge_decode_attributes, first_position, I64), WORDS(hark_kernel_ridge_decode_attributes, kernel, "exp|rbf"),
    NUMBER(hark_kernel_ridge_decode_attributes, unit, BOOL),          NUMBER(hark_kernel_ridge_decode_attributes, ridge, F64),
    NUMBER(hark_kernel_ridge_decode_attributes, scale, F64),          NUMBER(hark_kernel_ridge_decode_attributes, sigma, F64),
    NUMBER(hark_kernel_ridge_decode_attributes, bound, F64),          NUMBER(hark_kernel_ridge_decode_attributes, report, HANDLE),
};
static const hark_attribute of_hierarchical_means[] = {
    USUAL(hark_hierarchical_means_attributes, hierarchy_block, I64, 16),
    NUMBER(hark_hierarchical_means_attributes, levels, I64),
    NUMBER(hark_hierarchical_means_attributes, exact, BOOL),
};
static const hark_attribute of_hierarchical_decode[] = {
    USUAL(hark_hierarchical_decode_attributes, heads, I64, 1),
    USUAL(hark_hierarchical_decode_attributes, key_heads, I64, 1),
    USUAL(hark_hierarchical_decode_attributes, hierarchy_block, I64, 16),
    NUMBER(hark_hierarchical_decode_attributes, first_position, I64),
    WORDS(hark_hierarchical_decode_attributes, partition, "neighbour|sibling"),
    WORDS(hark_hierarchical_decode_attributes, coarse_query, "default|mean|first|exact"),
    WORDS(hark_hierarchical_decode_attributes, kernel, "exp|rbf"),
    NUMBER(hark_hierarchical_decode_attributes, scale, F64),
};
static const hark_attribute of_compressed_decode[] = {
    USUAL(hark_compressed_decode_attributes, heads, I64, 1),
    USUAL(hark_compressed_decode_attributes, key_heads, I64, 1),
    USUAL(hark_compressed_decode_attributes, chunk, I64, 64),
    USUAL(hark_compressed_decode_attributes, chunk_slots, I64, 1),
    USUAL(hark_compressed_decode_attributes, selected_slots, I64, 16),
    NUMBER(hark_compressed_decode_attributes, kept_chunks, I64),
    NUMBER(hark_compressed_decode_attributes, global_slots, I64),
    NUMBER(hark_compressed_decode_attributes, first_position, I64),
    NUMBER(hark_compressed_decode_attributes, scale, F64),
    NUMBER(hark_compressed_decode_attributes, chunk_maximum, I64),
};
static const hark_attribute of_chunk_starts[] = {
    NUMBER(hark_chunk_starts_attributes, delimiters, I32_LIST), NUMBER(hark_chunk_starts_attributes, delimiter_count, I64),
    USUAL(hark_chunk_starts_attributes, minimum, I64, 1),       NUMBER(hark_chunk_starts_attributes, maximum, I64),
    NUMBER(hark_chunk_starts_attributes, segments, I64_LIST),
};
static const hark_attribute of_sequence_offsets[] = {
    NUMBER(hark_sequence_offsets_attributes, packed, BOOL),
    NUMBER(hark_sequence_offsets_attributes, segments, I64_LIST),
};
static const hark_attribute of_kernel_sums[] = {
    USUAL(hark_kernel_sums_attributes, levels, I64, 1),
};
static const hark_attribute of_adamw[] = {
    NUMBER(hark_adamw_attributes, rate, F64),        USUAL(hark_adamw_attributes, beta1, F64, 0.9),
    USUAL(hark_adamw_attributes, beta2, F64, 0.999), USUAL(hark_adamw_attributes, epsilon, F64, 1e-8),
    NUMBER(hark_adamw_attributes, decay, F64),       USUAL(hark_adamw_attributes, gradient_scale, F64, 1),
    USUAL(hark_adamw_attributes, step, I64, 1),
};
static const hark_attribute of_adafactor[] = {
    NUMBER(hark_adafactor_attributes, rate, F64),          NUMBER(hark_adafactor_attributes, beta1, F64),
    NUMBER(hark_adafactor_attributes, beta2, F64),         USUAL(hark_adafactor_attributes, epsilon, F64, 1e-30),
    USUAL(hark_adafactor_attributes, least_scale, F64, 0), USUAL(hark_adafactor_attributes, most, F64, 1),
    NUMBER(hark_adafactor_attributes, decay, F64),         USUAL(hark_adafactor_attributes, gradient_scale, F64, 1),
};
static const hark_attribute of_scale[] = {
    USUAL(hark_scale_attributes, factor, F64, 1),
};
static const hark_attribute of_gather_rows[] = {
    NUMBER(hark_gather_rows_attributes, leading, INT),
};
static const hark_attribute of_segment_slots[] = {
    NUMBER(hark_segment_slots_attributes, slots, I64),
    NUMBER(hark_segment_slots_attributes, unit, I64),
    NUMBER(hark_segment_slots_attributes, fewer, BOOL),
};
static const hark_attribute of_segment_index[] = {
    NUMBER(hark_segment_index_attributes, rows, I64),
    NUMBER(hark_segment_index_attributes, unit, I64),
    NUMBER(hark_segment_index_attributes, limit, I64),
    NUMBER(hark_segment_index_attributes, packed, BOOL),
};
static const hark_attribute of_segment_pool[] = {
    WORDS(hark_segment_pool_attributes, kind, "average|max"), NUMBER(hark_segment_pool_attributes, slots, I64),
    NUMBER(hark_segment_pool_attributes, unit, I64),          NUMBER(hark_segment_pool_attributes, fewer, BOOL),
    NUMBER(hark_segment_pool_attributes, rows, I64),
};
static const hark_attribute of_depth_scores[] = {
    NUMBER(hark_depth_scores_attributes, window, I64),
};
static const hark_attribute of_chunk_boundaries[] = {
    WORDS(hark_chunk_boundaries_attributes, rule, "fixed|delimiter|given|score|peak"),
    NUMBER(hark_chunk_boundaries_attributes, rows, I64),
    USUAL(hark_chunk_boundaries_attributes, minimum, I64, 1),
    NUMBER(hark_chunk_boundaries_attributes, maximum, I64),
    NUMBER(hark_chunk_boundaries_attributes, threshold, F64),
    NUMBER(hark_chunk_boundaries_attributes, delimiters, I32_LIST),
    NUMBER(hark_chunk_boundaries_attributes, delimiter_count, I64),
};
static const hark_attribute of_ratio_loss[] = {
    USUAL(hark_ratio_loss_attributes, weight, F64, 1),
    NUMBER(hark_ratio_loss_attributes, target, F64),
};
static const hark_attribute of_ponder_loss[] = {
    USUAL(hark_ponder_loss_attributes, weight, F64, 1),
};
static const hark_attribute of_select_tokens[] = {
    WORDS(hark_select_tokens_attributes, kind, "norm|score|query|medoids|given"),
    NUMBER(hark_select_tokens_attributes, rows, I64),
    NUMBER(hark_select_tokens_attributes, count, I64),
    NUMBER(hark_select_tokens_attributes, unit, I64),
    NUMBER(hark_select_tokens_attributes, iterations, I64),
};
static const hark_attribute of_chunk_depth[] = {
    WORDS(hark_chunk_depth_attributes, rule, "capacity|paper"),
    NUMBER(hark_chunk_depth_attributes, layers, I64),
    {"capacity", HARK_ATTRIBUTE_F64_ARRAY, offsetof(hark_chunk_depth_attributes, capacity), HARK_MAX_DEPTH, 1, NULL},
};
static const hark_attribute of_chunks_at_depth[] = {
    NUMBER(hark_chunks_at_depth_attributes, depth, I64),
    NUMBER(hark_chunks_at_depth_attributes, rows, I64),
};
static const hark_attribute of_chunk_bias[] = {
    NUMBER(hark_chunk_bias_attributes, chunks, I64),
    NUMBER(hark_chunk_bias_attributes, pairs, I64),
};
static const hark_attribute of_ball[] = {
    USUAL(hark_ball_attributes, radius, F64, 1),
};
static const hark_attribute of_noise_of_heads[] = {
    NUMBER(hark_noise_of_heads_attributes, least, F64),
    NUMBER(hark_noise_of_heads_attributes, by_rows, BOOL),
};
static const hark_attribute of_copy_targets[] = {
    USUAL(hark_copy_targets_attributes, heads, I64, 1),
    USUAL(hark_copy_targets_attributes, powers, I64, 1),
};
static const hark_attribute of_gaussian_loss[] = {
    USUAL(hark_gaussian_loss_attributes, weight, F64, 1),
    NUMBER(hark_gaussian_loss_attributes, squared, BOOL),
};
static const hark_attribute of_linear_ridge[] = {
    NUMBER(hark_linear_ridge_attributes, ridge, F64),
    NUMBER(hark_linear_ridge_attributes, held_out, I64),
};

#define ROWS(name, rows)                                                                                                                   \
  { &hark_op_##name, rows, (int)(sizeof rows / sizeof *rows) }
static const struct {
  const hark_operator *op;
  const hark_attribute *rows;
  int count;
} table[] = {
    ROWS(matmul, of_matmul),
    ROWS(position_embedding, of_position_embedding),
    ROWS(sinusoidal_positions, of_sinusoidal_positions),
    ROWS(layer_norm, of_norm),
    ROWS(rms_norm, of_norm),
    ROWS(gelu, of_gelu),
    ROWS(gated_gelu, of_gelu),
    ROWS(dropout, of_dropout),
    ROWS(pool, of_pool),
    ROWS(squared_error, of_squared_error),
    ROWS(cross_entropy, of_cross_entropy),
    ROWS(rotary, of_rotary),
    ROWS(positional, of_positional),
    ROWS(attention, of_attention),
    ROWS(kernel_ridge, of_kernel_ridge),
    ROWS(kernel_ridge_decode, of_kernel_ridge_decode),
    ROWS(kernel_ridge_posterior, of_kernel_ridge),
    ROWS(hierarchical_means, of_hierarchical_means),
    ROWS(hierarchical_decode, of_hierarchical_decode),
    ROWS(adamw, of_adamw),
    ROWS(adafactor, of_adafactor),
    ROWS(scale, of_scale),
    ROWS(gather_rows, of_gather_rows),
    ROWS(segment_slots, of_segment_slots),
    ROWS(segment_index, of_segment_index),
    ROWS(segment_pool, of_segment_pool),
    ROWS(depth_scores, of_depth_scores),
    ROWS(chunk_boundaries, of_chunk_boundaries),
    ROWS(ratio_loss, of_ratio_loss),
    ROWS(ponder_loss, of_ponder_loss),
    ROWS(select_tokens, of_select_tokens),
    ROWS(chunk_depth, of_chunk_depth),
    ROWS(chunks_at_depth, of_chunks_at_depth),
    ROWS(chunk_bias, of_chunk_bias),
    ROWS(ball, of_ball),
    ROWS(linear_ridge, of_linear_ridge),
    ROWS(noise_of_heads, of_noise_of_heads),
    ROWS(copy_targets, of_copy_targets),
    ROWS(gaussian_loss, of_gaussian_loss),
    ROWS(compressed_decode, of_compressed_decode),
    ROWS(chunk_starts, of_chunk_starts),
    ROWS(kernel_sums, of_kernel_sums),
    ROWS(sequence_offsets, of_sequence_offsets),
};

const hark_attribute *hark_operator_attributes(const hark_operator *op, int *count) {
  for (size_t i = 0; i < sizeof table / sizeof *table; i++)
    if (table[i].op == op) {
      *count = table[i].count;
      return table[i].rows;
    }
  *count = 0;
  return NULL;
}
