/* operators.h - the table of built-in operators and their attributes.
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
  X(add)                                                                                                                                   \
  X(dropout)                                                                                                                               \
  X(pool)                                                                                                                                  \
  X(cross_entropy)                                                                                                                         \
  X(rotary)                                                                                                                                \
  X(positional)                                                                                                                            \
  X(attention)                                                                                                                             \
  X(kernel_ridge)                                                                                                                          \
  X(hierarchical_means)                                                                                                                    \
  X(hierarchical_decode)                                                                                                                   \
  X(adamw)                                                                                                                                 \
  X(sum_squares)                                                                                                                           \
  X(scale)                                                                                                                                 \
  X(argmax)

#define HARK_OPERATOR_DECLARE(name) HARK_API extern const hark_operator hark_op_##name;
HARK_OPERATORS(HARK_OPERATOR_DECLARE)
#undef HARK_OPERATOR_DECLARE

/* linear: y[N,out] = x[N,in] W^T + b; inputs x [..., in], weight [out, in], bias [out] (optional). No attributes. */

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
  double base; /* 10000 */
} hark_sinusoidal_positions_attributes;

/* layer_norm: y = gain (x - mean) / sqrt(var + epsilon) + bias over the last dimension; inputs x, gain [D], bias [D] (optional).
 * rms_norm: y = gain x / sqrt(mean(x^2) + epsilon); inputs x, gain [D].
 * Saved, in the type of x: layer_norm mean [N] and 1 / sqrt(var + epsilon) [N]; rms_norm 1 / sqrt(mean(x^2) + epsilon) [N]. */
typedef struct hark_norm_attributes {
  double epsilon;
} hark_norm_attributes;

/* gelu: y = x Phi(x), or its tanh approximation x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))). */
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

/* argmax: y[n] = the v of the largest x[n, v]; of equal ones the first, and a NaN counts as largest. inputs x [..., V]; output i32 [...].
 * No backward. No attributes. */

/* pool: over the rows of each sequence. inputs x [B, L, D], lengths i64 [B] (optional: all L rows are real). y [B, D].
 * In place of lengths: ranges i64 [N, P, 2] of the rows of x [1, L, D], from the first number on to before the second, which may overlap;
 * y [N, P * D]. A range with a number outside [0, L] is HARK_INVALID_ARGUMENT.
 * A sequence of length 0 gives zeros. Of equal maxima the first gets the gradient. A length outside [0, L] is HARK_INVALID_ARGUMENT.
 * Saved by HARK_POOL_MAX alone: the row of each maximum, i64 [B, D], -1 where the length is 0. */
typedef enum hark_pool_kind { HARK_POOL_MEAN, HARK_POOL_MAX, HARK_POOL_FIRST, HARK_POOL_LAST } hark_pool_kind;
typedef struct hark_pool_attributes {
  hark_pool_kind kind;
} hark_pool_attributes;

/* cross_entropy: loss = weight * sum over rows n with target[n] != ignore of
 *   (1 - smoothing) (lse_n - x[n, target]) + smoothing (lse_n - mean_v x[n, v]).
 * inputs logits [..., V], targets i32 [...]; outputs loss (rank 0, f64 sum stored in the logits' type), count (rank 0, i64: real targets).
 * `weight` is 1 / (global number of real targets), so that micro-batches and ranks add up to the mean. The backward may be written over the
 * logits. A target outside [0, V) that is not `ignore` is HARK_INVALID_ARGUMENT. Saved: lse [N] in the logits' type; 0 for ignored rows,
 * whose logits are not read. */
typedef struct hark_cross_entropy_attributes {
  double weight;
  double smoothing; /* [0, 1) */
  int32_t ignore;   /* usually -1 */
} hark_cross_entropy_attributes;

/* rotary: turns pairs of features by the angle position * rate of the pair. inputs x [B, L, H*d], then absent where the rates are not learned
 * rates [R, pairs], R a divisor of H: heads h R / H .. share a row; then absent, or positions i32 [L] in place of first_position + l. y of x's shape. Without rates they are base^(-2j/d).
 * interleaved: pairs (2j, 2j+1); half: pairs (j, j + d/2). Odd d is refused. RoFormer (arXiv 2104.09864).
 * Contexts longer than those of training: stretch s divides every rate (position interpolation, arXiv 2306.15595), or with original_length N
 * and no rates given those of pairs that turn seldom within N tokens (NTK by parts of YaRN, arXiv 2309.00071; hark_rotary_rate). */
typedef enum hark_rotary_pairs { HARK_ROTARY_INTERLEAVED, HARK_ROTARY_HALF } hark_rotary_pairs;
typedef struct hark_rotary_attributes {
  int64_t heads;
  int64_t first_position;
  double base; /* 10000 */
  hark_rotary_pairs pairs;
  int64_t turned;          /* pairs that turn, the first of the d/2; the others are passed on. 0: all */
  double stretch;          /* 1 or more; 0: 1 */
  int64_t original_length; /* 0: all pairs are stretched alike */
} hark_rotary_attributes;

/* The angle by which pair j of a head of d features turns from one position to the next, where no rates are given. With t = base^(-2j/d) and
 * g = N t / (2 pi) the turns within N = original_length tokens, held between 1 and 32: t / stretch without N, else
 * (1 - w) t / stretch + w t, w = (g - 1) / 31. */
HARK_API double hark_rotary_rate(const hark_rotary_attributes *attributes, int64_t d, int64_t j);

/* positional: y[k, i] = log G(i / stretch) of a positional kernel, the table that attention takes as log_kernel; -infinity where G is 0.
 * inputs: parameters [K, P] as they are trained, P = hark_positional_parameter_count(), one row for each of K heads with parameters of their
 * own, or 1. output [K, distances]. Computed in double. A row with a parameter outside its range is NaN. The expression, or the text, is
 * borrowed until the backward is done. */
typedef struct hark_positional_attributes {
  const hark_positional *expression;
  const char *text; /* where expression is NULL: parsed by every call, into HARK_POSITIONAL_PLACE_BYTES */
  int64_t distances;
  double stretch; /* 1; more pulls far distances in, as position interpolation does; 0: 1 */
} hark_positional_attributes;

/* attention: hark_attention_forward() and _backward() as an operator. inputs: query [B, Lq, H*d], key [B, Lk, Hkv*d], value [B, Lk, Hkv*dv],
 * then, absent where the plan has no use for them: attention_bias (rank 4, broadcastable), log_kernel [H or 1, T], forget [B, Lk, H],
 * mask (u8, rank 4, broadcastable), hierarchical_bias [H or 1, 4 Nr - 1], query_mask (u8, [B or 1, Lq]). output [B, Lq, H*dv]; saved:
 * log_sum_exp [B, H, Lq] and what the plan asks for. The plan, or the descriptor, and the host arrays are borrowed until the backward is done. */
typedef struct hark_attention_attributes {
  const hark_attention_plan *plan;
  const hark_attention_desc *desc; /* where plan is NULL: what to compute, of the query's type; planned anew by every call */
  const int64_t *key_lengths;      /* as in hark_attention_args; NULL: all keys are real */
  const int64_t *segments;
  bool has_query_offset;
  int64_t query_offset;
  hark_random_stream dropout;
} hark_attention_attributes;

/* kernel_ridge: attention with normalisation CME as an operator. inputs: query [B, Lq, H*d], key [B, Lk, Hkv*d], value [B, Lk, Hkv*dv], then,
 * absent where the plan has no use for them: log_ridge [H or 1] and log_sigma [H or 1], logarithms of what calls carry, log_kernel [H or 1, T].
 * output [B, Lq, H*dv]. Plan, descriptor and report are borrowed until the backward is done. */
typedef struct hark_kernel_ridge_attributes {
  const hark_attention_plan *plan;
  const hark_attention_desc *desc; /* where plan is NULL; its type is that of the query */
  hark_attention_report *report;   /* adds up what forwards mended; may be NULL */
} hark_kernel_ridge_attributes;

/* hierarchical_means: what a positional kernel adds to the logits of a hierarchy of Nr 2^levels rows. input log_kernel [K, T], output
 * [K, levels * width], level after level: of cells t tokens of the level apart, width 2 Nr, the logarithm of the mean of G over all pairs of
 * their rows; exact: of a cell of 2^l keys of which the farthest is x away, width Nr 2^levels. -infinity where the table has no distance of
 * the pair; 0 where there is no pair (a cell and itself above level 0, a cell that would reach past the query). */
typedef struct hark_hierarchical_means_attributes {
  int64_t hierarchy_block, levels;
  bool exact;
} hark_hierarchical_means_attributes;

/* hierarchical_decode: causal attention of HARK_STRUCTURE_HIERARCHICAL for new rows first_position .. behind those that the caches have seen
 * (H-Transformer-1D; docs/mathematics/hierarchical.md). inputs: query [1, R, H*d], key [1, R, Hkv*d], value [1, R, Hkv*dv]; cached_key
 * [M, 2 Nr, Hkv*d], cached_value [M, 2 Nr, Hkv*dv] and partial [M, H, dv + 2], which are changed, with Nr 2^M >= first_position + R; then,
 * where they apply, bias [H or 1, 4 Nr - 1] and means [H or 1, ...] of hierarchical_means. output [1, R, H*dv]. Nothing has to be set before
 * position 0. No backward. */
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

#ifdef __cplusplus
}
#endif
#endif
