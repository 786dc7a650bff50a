/* operators.h - the table of built-in operators and their attributes. Those of research are in experimental.h.
 *
 * Adding an operator: one file src/ops/NAME.c with its record hark_op_NAME, and one row here.
 * Legend of dimensions: N rows (all leading dimensions together), D features of a row, B batch, L length, H heads, V vocabulary.
 */
#ifndef HARK_OPERATORS_H
#define HARK_OPERATORS_H

#include "attention.h"
#include "operator.h"
#include "positional.h"

#ifdef __cplusplus
extern "C" {
#endif

#define HARK_OPERATORS(X)                                                                                                                  \
  X(linear)                                                                                                                                \
  X(matmul)                                                                                                                                \
  X(embedding)                                                                                                                             \
  X(position_embedding)                                                                                                                    \
  X(sinusoidal_positions)                                                                                                                  \
  X(layer_norm)                                                                                                                            \
  X(rms_norm)                                                                                                                              \
  X(gelu)                                                                                                                                  \
  X(silu)                                                                                                                                  \
  X(relu)                                                                                                                                  \
  X(gated_silu)                                                                                                                            \
  X(gated_gelu)                                                                                                                            \
  X(add)                                                                                                                                   \
  X(dropout)                                                                                                                               \
  X(pool)                                                                                                                                  \
  X(cross_entropy)                                                                                                                         \
  X(rotary)                                                                                                                                \
  X(positional)                                                                                                                            \
  X(attention)                                                                                                                             \
  X(kernel_ridge)                                                                                                                          \
  X(kernel_ridge_decode)                                                                                                                   \
  X(hierarchical_means)                                                                                                                    \
  X(hierarchical_decode)                                                                                                                   \
  X(adamw)                                                                                                                                 \
  X(sum_squares)                                                                                                                           \
  X(scale)                                                                                                                                 \
  X(log_sigmoid)                                                                                                                           \
  X(row_norm)                                                                                                                              \
  X(pack)                                                                                                                                  \
  X(range_offsets)                                                                                                                         \
  X(gather_rows)                                                                                                                           \
  X(argmax)                                                                                                                                \
  X(squared_error)                                                                                                                         \
  X(linear_compact)                                                                                                                        \
  X(embedding_compact)                                                                                                                     \
  X(tanh)                                                                                                                                  \
  X(unit_rows)                                                                                                                             \
  X(adafactor)                                                                                                                             \
  X(kernel_ridge_posterior)

#define HARK_OPERATOR_DECLARE(name) HARK_API extern const hark_operator hark_op_##name;
HARK_OPERATORS(HARK_OPERATOR_DECLARE)

/* linear: y[N,out] = x[N,in] W^T + b; inputs x [..., in], weight [out, in], bias [out] (optional). No attributes. */

/* linear_compact: linear with a weight of bf16, f16 or i8. inputs x [..., in], weight [out, in], scale [out] (for i8, otherwise absent),
 * bias [out] (optional). bf16, f16: the weight's numbers are exact in f32, and products and sums are those of linear. i8: with
 * s = max_i |x[n, i]| / 127 and q[n, i] = x[n, i] / s rounded to the nearest integer, ties to even (0 if s is 0),
 * y[n, o] = s scale[o] sum_i q[n, i] weight[o, i] + bias[o]. The sum is exact, so results have the same bits for every instruction set. A
 * row with a number that is not finite gives NaN. More than 132104 features of i8 are HARK_TOO_LARGE. No backward. No attributes.
 * embedding_compact: embedding from a table of bf16, f16 or i8. inputs ids i32 [...], table [V, D], scale f32 [V] (for i8, otherwise
 * absent); y f32 [..., D], numbers of i8 times their row's scale. No backward. No attributes. */

/* matmul: c = op(a) op(b) on the last two dimensions; leading dimensions (batch) equal. */
typedef struct hark_matmul_attributes {
  bool transpose_a, transpose_b;
} hark_matmul_attributes;

/* embedding: y[n,:] = table[id[n],:]; inputs ids i32 [...], table [V, D]. An id outside [0, V) is HARK_INVALID_ARGUMENT. */

/* position_embedding: y[b,l,:] = x[b,l,:] + table[first_position + l,:]; inputs x [B, L, D], table [P, D] with first_position + L <= P. */
typedef struct hark_position_embedding_attributes {
  int64_t first_position;
} hark_position_embedding_attributes;

/* sinusoidal_positions: y = x + s, s[l, 2j] = sin(p w_j), s[l, 2j+1] = cos(p w_j), p = first_position + l, w_j = base^(-2j/D); x [B, L, D],
 * then, where positions are given, p = positions i32 [L] of every row (first_position is not used). */
typedef struct hark_sinusoidal_positions_attributes {
  int64_t first_position;
  double base; /* 10000; at least 1 */
} hark_sinusoidal_positions_attributes;

/* layer_norm: y = gain (x - mean) / sqrt(var + epsilon) + bias over the last dimension; inputs x, gain [D], bias [D] (optional).
 * rms_norm: y = gain x / sqrt(mean(x^2) + epsilon); inputs x, gain [D].
 * Saved, in the type of x: layer_norm mean [N] and 1 / sqrt(var + epsilon) [N]; rms_norm 1 / sqrt(mean(x^2) + epsilon) [N]. */
typedef struct hark_norm_attributes {
  double epsilon;
} hark_norm_attributes;

/* gelu: y = x Phi(x), or its tanh approximation x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))).
 * gated_gelu: y = gelu(a) b, inputs a, b of one shape. */
typedef struct hark_gelu_attributes {
  bool tanh_approximation;
} hark_gelu_attributes;

/* silu: y = x sigmoid(x). relu: y = max(x, 0), derivative 0 at 0. gated_silu: y = silu(a) b, inputs a, b of one shape. No attributes. */

/* add: y = a + b of one shape (the residual connection). No attributes. */

/* dropout: y = keep(i) x / (1 - probability); element i is kept when word i of the stream >= hark_random_threshold(probability). */
typedef struct hark_dropout_attributes {
  double probability; /* [0, 1) */
  hark_random_stream stream;
} hark_dropout_attributes;

/* argmax: y[n] = the v of the largest x[n, v]; of equal ones the first; a NaN counts as largest. inputs x [..., V]; output i32 [...].
 * No backward. No attributes. */

/* pool: over the rows of each sequence. inputs x [B, L, D], lengths i64 [B] (optional: all L rows are real). y [B, D].
 * In place of lengths: ranges i64 [N, P, 2] of the rows of x [1, L, D], from the first number to before the second; ranges may overlap;
 * y [N, P * D]. A range with a number outside [0, L] is HARK_INVALID_ARGUMENT.
 * A sequence of length 0 gives zeros. Of equal maxima the first gets the gradient. A length outside [0, L] is HARK_INVALID_ARGUMENT.
 * Saved by HARK_POOL_MAX alone: the row of each maximum, i64 [B, D], -1 where the length is 0. */
typedef enum hark_pool_kind { HARK_POOL_MEAN, HARK_POOL_MAX, HARK_POOL_FIRST, HARK_POOL_LAST } hark_pool_kind;
typedef struct hark_pool_attributes {
  hark_pool_kind kind;
} hark_pool_attributes;

/* squared_error: loss = weight * sum of (prediction - target)^2. inputs prediction and target of one shape; output of rank 0, summed in
 * f64. The target has no gradient. The backward may be written over the prediction. */
typedef struct hark_squared_error_attributes {
  double weight;
} hark_squared_error_attributes;

/* cross_entropy: loss = weight * sum over rows n with target[n] != ignore of
 *   (1 - smoothing) (lse_n - x[n, target]) + smoothing (lse_n - mean_v x[n, v]) + z lse_n^2.
 * inputs logits [..., V], targets i32 [...]; outputs loss (rank 0, f64 sum stored in the logits' type), count (rank 0, i64: real targets).
 * `weight` is 1 / (global number of real targets), so that micro-batches and ranks add up to the mean. The backward may be written over the
 * logits. A target outside [0, V) that is not `ignore` is HARK_INVALID_ARGUMENT. Saved: lse [N] in the logits' type; 0 for ignored rows,
 * whose logits are not read. */
typedef struct hark_cross_entropy_attributes {
  double weight;
  double smoothing; /* [0, 1) */
  int32_t ignore;   /* usually -1 */
  double z;         /* 0 or more: keeps the sums of exponentials near 1 (z-loss: Chowdhery et al., arXiv 2204.02311, section 5) */
} hark_cross_entropy_attributes;

/* rotary: rotates pairs of features by the angle position * rate of the pair. inputs x [B, L, H*d]; then rates [R, pairs], absent if the
 * rates are not learned, R a divisor of H: heads h R / H .. share a row; then absent, or positions i32 [L] in place of first_position + l.
 * y of x's shape. Without rates, which the attributes may give too, they are base^(-2j/d). Where both are given, the attributes' rates are
 * factors of the others: learned rates that are scaled pair by pair.
 * interleaved: pairs (2j, 2j+1); half: pairs (j, j + d/2). Odd d is refused. RoFormer (arXiv 2104.09864).
 * Contexts longer than those of training: stretch s divides every rate (position interpolation, arXiv 2306.15595). With original_length N,
 * and no rates given, it divides only the rates of pairs that make few turns within N tokens (NTK by parts of YaRN, arXiv 2309.00071;
 * hark_rotary_rate). */
typedef enum hark_rotary_pairs { HARK_ROTARY_INTERLEAVED, HARK_ROTARY_HALF } hark_rotary_pairs;
typedef struct hark_rotary_attributes {
  int64_t heads;
  int64_t first_position;
  double base; /* 10000; at least 1, above 1 where original_length is given */
  hark_rotary_pairs pairs;
  int64_t turned;          /* pairs that are rotated, the first of the d/2; the others are unchanged. 0: all */
  double stretch;          /* 1 or more; 0: 1 */
  int64_t original_length; /* 0: all pairs are stretched equally */
  const double *rates;     /* host, [rotated pairs]: angles per token, or factors of the input's; for all heads; borrowed until the
                              backward is done. NULL: of base, or no factors */
} hark_rotary_attributes;

/* The angle by which pair j of a head of d features turns from one position to the next, where no rates are an input. With t the
 * attributes' rates[j], or base^(-2j/d): t / stretch without original_length N, else (1 - w) t / stretch + w t. The weight w falls from 1
 * to 0, linear in j, between pair a and pair b: a = max(floor(p(32)), 0) turns about 32 times within N tokens, b = min(ceil(p(1)), d - 1)
 * about once, with p(r) = d ln(N / (2 pi r)) / (2 ln base); where a = b, b is a + 0.001. */
HARK_API double hark_rotary_rate(const hark_rotary_attributes *attributes, int64_t d, int64_t j);

/* positional: y[k, i] = log G(i / stretch) of a positional kernel, the table that attention takes as log_kernel; -infinity where G is 0.
 * inputs: parameters [K, P] as they are trained, P = hark_positional_parameter_count(), one row for each of K heads with separate
 * parameters, or 1. output [K, distances], of keys up to the query if the kernel has a direction. With distances -T the output is [K, 2 T
 * - 1], y[k, i] = log G((i - (T - 1)) / stretch), the table for directed_kernel, with directions or without. Computed in double. A row
 * with a parameter outside its range is NaN. With `expressions`, row k has its own expression, whose parameters are the first numbers of
 * the row; P is the largest number of parameters, and the gradient of the others is 0. Expressions and texts are borrowed until the
 * backward is done. */
typedef struct hark_positional_attributes {
  const hark_positional *expression;
  const char *text;                          /* if expression is NULL: parsed by every call, into HARK_POSITIONAL_PLACE_BYTES */
  int64_t distances;                         /* T, or -T for a table with a number for each direction */
  double stretch;                            /* 1; a larger number divides distances, as position interpolation does; 0: 1 */
  const hark_positional *const *expressions; /* [K], instead of expression and text; NULL: one for all rows */
} hark_positional_attributes;

/* A descriptor inside of attributes. Attributes never grow, but descriptors may: the remaining bytes are room for those of later versions.
 * Set .desc as usual, including struct_size. */
#define HARK_ATTENTION_OWN_BYTES 512
typedef union hark_attention_own {
  hark_attention_desc desc;
  unsigned char room[HARK_ATTENTION_OWN_BYTES];
} hark_attention_own;

/* attention: hark_attention_forward() and _backward() as an operator. inputs: query [B, Lq, H*d], key [B, Lk, Hkv*d], value [B, Lk,
 * Hkv*dv], then, absent if the plan does not use them: attention_bias (rank 4, broadcastable), log_kernel [H or 1, T or 2 T - 1], forget
 * [B, Lk, H], mask (u8, rank 4, broadcastable), hierarchical_bias [H or 1, 4 Nr - 1], query_mask (u8, [B or 1, Lq]), query_offsets and
 * key_offsets (i64 [sequences + 1]), contextual [H or 1, N, d], chunk_starts (u8, [B or 1, Lk]). output [B, Lq, H*dv]; saved: log_sum_exp
 * [B, H, Lq] and what the plan requires. With offsets the batch is ragged: all leading dimensions of query, key and value, of any number,
 * are packed rows, and attention_bias may have one number for each row of key, in any shape. The plan, or the descriptor, and the host
 * arrays are borrowed until the backward is done. */
typedef struct hark_attention_attributes {
  const hark_attention_plan *plan;
  const hark_attention_desc *desc; /* if plan is NULL: what to compute, of the query's type; every call makes a new plan */
  const int64_t *key_lengths;      /* as in hark_attention_args; NULL: all keys are real */
  const int64_t *segments;
  bool has_query_offset;
  int64_t query_offset;
  hark_random_stream dropout;
  int64_t keys_of_a_query; /* ragged: the maximum number of keys that a query meets, only for the count of operations; 0: all */
  hark_attention_own own;  /* if plan and desc are NULL: what to compute, copied with the attributes */
} hark_attention_attributes;

/* kernel_ridge: attention with normalisation CME as an operator. inputs: query [B, Lq, H*d], key [B, Lk, Hkv*d], value [B, Lk, Hkv*dv],
 * then, absent if the plan does not use them: log_ridge [H or 1] and log_sigma [H or 1], logarithms of the arguments of calls, log_kernel
 * [H or 1, T], noise [B, H, Lk], query_offsets and key_offsets (i64 [sequences + 1]). output [B, Lq, H*dv]. With offsets the batch is
 * ragged, as for attention, and noise is [1, H, rows of key]. Plan, descriptor and report are borrowed until the backward is done.
 * kernel_ridge_posterior: the same with three more outputs, variance and log_determinant [B, H, Lq] and quadratic [B, Lq, H*dv] of
 * hark_attention_args, which also have gradients: the plan has has_dvariance, has_dlog_determinant and has_dquadratic, or is
 * forward_only. */
typedef struct hark_kernel_ridge_attributes {
  const hark_attention_plan *plan;
  const hark_attention_desc *desc; /* if plan is NULL; its type is that of the query */
  hark_attention_report *report;   /* adds up the pivots that forwards raised; may be NULL */
  const int64_t *segments;         /* as in hark_attention_args, if the plan has them */
} hark_kernel_ridge_attributes;

/* kernel_ridge_decode: causal attention with normalisation CME for new rows first_position .. after those that the caches have seen, at the
 * cost of a row of the factor each (docs/mathematics/kernel-ridge.md). inputs: query [1, R, H*d], key [1, R, Hkv*d], value [1, R, Hkv*dv];
 * the caches, which are changed: cached_key [1, C, Hkv*d], solved [1, C, H*dv'] with dv' = dv rounded up to 16, factor [b (b + 1) / 2, H,
 * 256] with b = C / 16 rounded up, for first_position + R <= C; then, where they apply, log_ridge [H or 1] and log_sigma [H or 1] in place
 * of the attributes' constants, log_kernel [H or 1, T] with T >= first_position + R, and noise [1, R, H] of the new keys. With noise, the
 * ridge may be 0. output [1, R, H*dv]. Caches need not be initialised before position 0. A caller forgets the last tokens by continuing
 * from a lower position. Errors of the forward: as hark_attention_forward() for the same rows. No backward. Report is borrowed. */
typedef struct hark_kernel_ridge_decode_attributes {
  int64_t heads, key_heads, first_position;
  hark_attention_kernel kernel;
  bool unit;                     /* every query and key is divided by its length first */
  double ridge;                  /* lambda, without log_ridge */
  double scale;                  /* exp: of q.k */
  double sigma;                  /* rbf, without log_sigma */
  double bound;                  /* as in hark_attention_desc; with unit it is 1 */
  hark_attention_report *report; /* adds up the raised pivots; may be NULL */
} hark_kernel_ridge_decode_attributes;

/* hierarchical_means: the terms that a positional kernel adds to the logits of a hierarchy of Nr 2^levels rows. input log_kernel [K, T],
 * output [K, levels * width], level after level. An entry is the logarithm of the mean of G over all pairs of rows of two cells that are t
 * tokens of the level apart, width 2 Nr; with exact, over a query and a cell of 2^l keys whose farthest key is at distance x, width Nr
 * 2^levels. -infinity where the table has no distance of the pair; 0 where there is no pair (a cell and itself above level 0, a cell that
 * would extend beyond the query). */
typedef struct hark_hierarchical_means_attributes {
  int64_t hierarchy_block, levels;
  bool exact;
} hark_hierarchical_means_attributes;

/* hierarchical_decode: causal attention of HARK_STRUCTURE_HIERARCHICAL for new rows first_position .. after those that the caches have seen
 * (H-Transformer-1D; docs/mathematics/hierarchical.md). inputs: query [1, R, H*d], key [1, R, Hkv*d], value [1, R, Hkv*dv]; cached_key
 * [M, 2 Nr, Hkv*d], cached_value [M, 2 Nr, Hkv*dv] and partial [M, H, dv + 2], which are changed, with Nr 2^M >= first_position + R; then,
 * where they apply, bias [H or 1, 4 Nr - 1] and means [H or 1, ...] of hierarchical_means. output [1, R, H*dv]. Nothing has to be set
 * before position 0. No backward. */
typedef struct hark_hierarchical_decode_attributes {
  int64_t heads, key_heads, hierarchy_block, first_position;
  hark_hierarchy_partition partition;
  hark_coarse_query coarse_query; /* FIRST or EXACT */
  hark_attention_kernel kernel;
  double scale; /* of q.k; rbf: 1 / sigma^2 */
} hark_hierarchical_decode_attributes;

/* adamw: one step of AdamW (Loshchilov, Hutter: arXiv 1711.05101) on flat buffers, in place.
 * inputs weight [n], gradient [n], first_moment [n], second_moment [n]; no outputs; nothing is changed where gradient_scale is not finite.
 *   g = gradient_scale * gradient; m = beta1 m + (1 - beta1) g; v = beta2 v + (1 - beta2) g^2
 *   w -= rate * (m / (1 - beta1^step) / (sqrt(v / (1 - beta2^step)) + epsilon) + decay * w) */
typedef struct hark_adamw_attributes {
  double rate, beta1, beta2, epsilon, decay;
  double gradient_scale; /* clipping */
  int64_t step;          /* from 1 */
} hark_adamw_attributes;

/* sum_squares: output f64 [1] = sum over all elements of x^2, summed in a fixed order, in f64. No backward. */

/* scale: y = factor x. */
typedef struct hark_scale_attributes {
  double factor;
} hark_scale_attributes;

/* log_sigmoid: y = log sigmoid(x) = -log(1 + exp(-x)), finite for every finite x. No attributes. */

/* Ragged batches. A list of segments is offsets i64 [S + 1], non-decreasing, from 0 or more: segment s has the rows offsets[s] ..
 * offsets[s + 1] - 1 of a tensor whose rows are all its leading dimensions together, or `unit` rows for each number (0: 1). Rows of no
 * segment give and get zeros. Sequences of a batch and chunks of a sequence are both such lists; lists of chunks have the maximum possible
 * length, and the segments after the last chunk are empty. Offsets that decrease or exceed the rows are HARK_INVALID_ARGUMENT.
 * docs/mathematics/ahca.md */

/* tanh: y = tanh(x); x of any shape. No attributes. */

/* adafactor: one step of Adafactor (Shazeer, Stern: arXiv 1804.04235) on one tensor, in place.
 * inputs weight, gradient, second_moment, column_moment (optional), first_moment (optional); no outputs. With column_moment [m] the second
 * moment of a weight [n, m] is factored: second_moment is [n], the means of rows. Without it, second_moment has the weight's shape, as
 * gradient and first_moment always have. Nothing is changed where gradient_scale is not finite. RMS(x) = sqrt(mean(x^2)).
 *   g = gradient_scale * gradient
 *   r_i = beta2 r_i + (1 - beta2) mean_j(g_ij^2 + epsilon); c_j = beta2 c_j + (1 - beta2) mean_i(g_ij^2 + epsilon); V = r c / mean(r)
 *   or V = v = beta2 v + (1 - beta2) (g^2 + epsilon)
 *   U = g / sqrt(V); u = rate * max(least_scale, RMS(w)) * U / max(1, RMS(U) / most)
 *   m = beta1 m + (1 - beta1) u; u = m, with first_moment; w -= u + rate * decay * w */
typedef struct hark_adafactor_attributes {
  double rate;
  double beta1; /* 0 without first_moment */
  double beta2; /* of this step: 1 - step^-0.8 in the paper, 0 in the first step */
  double epsilon;
  double least_scale; /* 0: the rate is not multiplied by RMS(w) */
  double most;        /* the largest RMS(U) that is not reduced; 0: none is */
  double decay;
  double gradient_scale; /* clipping */
} hark_adafactor_attributes;

/* unit_rows: y[n,:] = x[n,:] / |x[n,:]|; x [..., D]. A row of zeros stays zero, and its gradient is zero. No attributes. */

/* row_norm: y[k] = sqrt(sum of squares of x[k, ...]); x [K, ...] of rank 2 or more. The gradient at a row of zeros is zero. No
 * attributes. */

/* pack: the real ids of rows padded on the right, one after the other. inputs ids i32 [B, L], lengths i64 [B] (optional: all L are real);
 * outputs ids i32 [B L], zeros at the end, and offsets i64 [B + 1]. No backward. No attributes. */

/* range_offsets: offsets i64 [S + 1] of packed sequences from ranges i64 [.., 2] (first row, the row after the last), each of which begins
 * where the previous one ends. No backward. No attributes. */

/* gather_rows: y[i, ...] = x[index[i], ...], zeros where the index is -1. inputs x of rank 2 or more, whose `leading` first dimensions (0:
 * 1) number the rows together; index i32 [I]. Any other index outside the rows is HARK_INVALID_ARGUMENT. */
typedef struct hark_gather_rows_attributes {
  int leading;
} hark_gather_rows_attributes;

#ifdef __cplusplus
}
#endif
#endif
