/* experimental.h - operators of research: dynamic chunks, compression and depth by importance (AHCA), latent variables.
 *
 * They are tested like all others. Names, attributes and meanings may change in any release: what docs/abi.md promises does not hold for
 * them. hark.h does not include this header.
 * Legend of dimensions: operators.h. Ragged batches and segments: there too.
 */
#ifndef HARK_EXPERIMENTAL_H
#define HARK_EXPERIMENTAL_H

#include "operators.h"

#ifdef __cplusplus
extern "C" {
#endif

#define HARK_EXPERIMENTAL_OPERATORS(X)                                                                                                     \
  X(segment_slots)                                                                                                                         \
  X(segment_index)                                                                                                                         \
  X(segment_pool)                                                                                                                          \
  X(scatter_gated)                                                                                                                         \
  X(boundary_probability)                                                                                                                  \
  X(depth_scores)                                                                                                                          \
  X(chunk_boundaries)                                                                                                                      \
  X(settled_probability)                                                                                                                   \
  X(smooth_chunks)                                                                                                                         \
  X(straight_through)                                                                                                                      \
  X(ratio_loss)                                                                                                                            \
  X(ponder_loss)                                                                                                                           \
  X(select_tokens)                                                                                                                         \
  X(chunk_depth)                                                                                                                           \
  X(chunks_at_depth)                                                                                                                       \
  X(chunk_bias)                                                                                                                            \
  X(ball)                                                                                                                                  \
  X(linear_ridge)                                                                                                                          \
  X(round_bf16)                                                                                                                            \
  X(linear_bf16)                                                                                                                           \
  X(taken_offsets)                                                                                                                         \
  X(noise_of_heads)                                                                                                                        \
  X(posterior_mixture)                                                                                                                     \
  X(gaussian_loss)                                                                                                                         \
  X(gate_segments)                                                                                                                         \
  X(class_logits)                                                                                                                          \
  X(copy_targets)                                                                                                                          \
  X(smoother_mixture)                                                                                                                      \
  X(compressed_decode)                                                                                                                     \
  X(chunk_starts)                                                                                                                          \
  X(kernel_sums)                                                                                                                           \
  X(sequence_offsets)                                                                                                                      \
  X(chunk_flags)
HARK_EXPERIMENTAL_OPERATORS(HARK_OPERATOR_DECLARE)

/* segment_slots: offsets of `slots` rows for every segment, C min(slots, length of the segment) of them with `fewer`. input offsets i64 [S
 * + 1]; output i64 [S + 1], from 0. With it, embedding of segment_index's positions and ragged attention, learned queries pool every
 * segment. No backward. */
typedef struct hark_segment_slots_attributes {
  int64_t slots, unit;
  bool fewer;
} hark_segment_slots_attributes;

/* taken_offsets: offsets of segments among the rows that an index takes. inputs index i32 [I], offsets i64 [S + 1]; output i64 [S + 1]: the
 * number of entries of the index below each offset. Of an ascending index, gather_rows takes segment s to rows y[s] .. y[s + 1] - 1. No
 * backward. No attributes. */

/* segment_index: the position of every row. input offsets i64 [S + 1]; outputs, i32 [rows / unit, unit] or with a unit of 0 [rows]:
 * position (in units from the start of the segment, at most limit - 1), slot (row % unit) and segment; 0, row % unit and -1 for rows of no
 * segment. No backward. */
typedef struct hark_segment_index_attributes {
  int64_t rows, unit, limit; /* limit 0: none */
  bool packed;               /* [1, rows], as packed tokens are */
} hark_segment_index_attributes;

/* segment_pool: y[s, i, :] = mean or maximum of rows floor(i M / C) .. ceil((i + 1) M / C) - 1 of segment s, of M rows; C = slots, or
 * min(slots, M) with `fewer`, and then rows of y follow each other as in segment_slots, zeros after the last. inputs x [..., D], offsets
 * i64 [S + 1]; y [S, slots, D], or with `fewer` and `rows` > 0 y [rows, D], in which all have to fit (HARK_INVALID_ARGUMENT). An empty
 * segment gives zeros. Of equal maxima the first gets the gradient. Saved only for the maximum: its row, i64, of y's shape. */
typedef enum hark_segment_pool_kind { HARK_SEGMENT_POOL_AVERAGE, HARK_SEGMENT_POOL_MAX } hark_segment_pool_kind;
typedef struct hark_segment_pool_attributes {
  hark_segment_pool_kind kind;
  int64_t slots, unit;
  bool fewer;
  int64_t rows; /* of y, with `fewer`; 0: slots for every segment */
} hark_segment_pool_attributes;

/* scatter_gated: y = h, y[index[i], ...] += sigmoid(score[index[i]]) update[i, ...]. inputs h [K, ...], update [I, ...], index i32 [I] (-1:
 * that update is ignored), score [K] (optional: a factor of 1). Updates of one row are added in their order. No attributes. */

/* boundary_probability: p[t] = (1 - cos(query[t], key[t - 1])) / 2, 1 for the first row of a sequence. inputs query, key [..., D], offsets
 * i64 [B + 1]; p [rows]. The cosine with a row of zeros is 0, and its gradient too. (H-Net, arXiv 2507.07955, eq. 4.) No attributes. */

/* depth_scores: how much less similar the rows on both sides of a gap are than those around it (TextTiling: Hearst 1997). inputs x [...,
 * D], offsets i64 [B + 1]; y [rows], of the gap before the row, 0 for the first row of a sequence. With g(t) the cosine of the means of up
 * to `window` rows on each side: y[t] = l + r - 2 g(t), l and r the values reached from t to the left and right as long as g does not fall.
 * No backward. */
typedef struct hark_depth_scores_attributes {
  int64_t window;
} hark_depth_scores_attributes;

/* chunk_boundaries: cuts every sequence of a batch into chunks. inputs offsets i64 [B + 1]; then, if the rule uses it, ids i32 (`rows`
 * of them), score [rows], starts i64 [K + 1]; outputs chunks i64 [capacity + 1], whose segments after the last chunk are empty, and
 * sequences i64 [B + 1], offsets into the chunks. A cut is made before row t where
 *   FIXED      the chunk has `maximum` rows
 *   DELIMITER  the chunk ends with one of the delimiters before row t
 *   GIVEN      starts has t: chunks chosen by the caller, including all starts of sequences, and no longer than `maximum`
 *   SCORE      score[t] >= threshold
 *   PEAK       score[t] > 0 is no smaller than its neighbours and at least mean + threshold * standard deviation of the sequence's rows
 *              without the first
 * and the chunk has `minimum` rows, and in any case where it has `maximum`. Only the last chunk of a sequence may be shorter than the
 * minimum. capacity: hark_chunk_capacity(). No backward. */
typedef enum hark_chunk_rule {
  HARK_CHUNK_FIXED,
  HARK_CHUNK_DELIMITER,
  HARK_CHUNK_GIVEN,
  HARK_CHUNK_SCORE,
  HARK_CHUNK_PEAK
} hark_chunk_rule;
typedef struct hark_chunk_boundaries_attributes {
  hark_chunk_rule rule;
  int64_t rows;             /* in all */
  int64_t minimum, maximum; /* 1 <= minimum <= maximum; FIXED: equal */
  double threshold;
  const int32_t *delimiters; /* as in hark_chunk_starts_attributes */
  int64_t delimiter_count;
} hark_chunk_boundaries_attributes;

/* The most chunks that `sequences` sequences of `rows` rows together can have: floor((rows + S (minimum - 1)) / minimum), S =
 * min(sequences, rows). 0 where rows or minimum is below 1. */
HARK_API int64_t hark_chunk_capacity(int64_t rows, int64_t sequences, int64_t minimum);

/* settled_probability: y[t] = p[t] where the chunks agree with p[t] >= 1/2, else the decision (1 at the start of a chunk, 0 within), which
 * has no gradient. inputs p [rows], chunks i64 [K + 1]; y [rows]. No attributes. */

/* smooth_chunks: y[k, ...] = p_k c[k, ...] + (1 - p_k) y[k - 1, ...] within each sequence, p_k = p at the chunk's first row. inputs c [K,
 * ...], p [rows], chunks i64 [K + 1], sequences i64 [B + 1] (H-Net, arXiv 2507.07955, eq. 5). Before a sequence y is zero. No
 * attributes. */

/* straight_through: y[t, :] = x[t, :] (1 + c(p[t]) - c(reference[t])), c(q) = q for the first row of a chunk, 1 - q for the others. inputs
 * x [..., D], p [rows], chunks i64 [K + 1], reference [rows] (optional: p itself without its gradient, so that y = x). No attributes. */

/* ratio_loss: weight * sum over sequences of N / (N - 1) ((N - 1) F G + (1 - F) (1 - G)), F the fraction of rows that begin a chunk, a
 * constant, G the mean of p over the sequence's rows. inputs p [rows], offsets i64 [B + 1], sequences i64 [B + 1] (offsets into the
 * chunks). output of rank 0. Empty sequences add nothing. (H-Net, eq. 10.) */
typedef struct hark_ratio_loss_attributes {
  double weight;
  double target; /* N > 1, rows of a chunk */
} hark_ratio_loss_attributes;

/* ponder_loss: weight * sum over sequences of the mean of sigmoid(score) over their chunks. inputs score [K], sequences i64 [B + 1]. output
 * of rank 0. */
typedef struct hark_ponder_loss_attributes {
  double weight;
} hark_ponder_loss_attributes;

/* select_tokens: `count` rows of every sequence, all of them if it has fewer. inputs offsets i64 [B + 1], counted in `unit` rows; then, if
 * the kind uses it, x [..., D], score [rows], query [..., D] with query_offsets i64 [B + 1], index i32 [B, count]. outputs index i32
 * [B count], row numbers, ascending within a sequence, one sequence after the other and -1 at the end; and offsets i64 [B + 1] into it.
 *   NORM     largest norm of x
 *   SCORE    largest score
 *   QUERY    largest product of x with the mean of the sequence's rows of query
 *   MEDOIDS  rows nearest to the centres of k-means, `iterations` rounds, starting with the row nearest to the mean, then the farthest
 *   GIVEN    index (-1: none), chosen by the caller
 * Of equal rows the first is selected; for MEDOIDS rows are equal if their distances differ by no more than rounding. A NaN counts as
 * lowest; for MEDOIDS a row with a NaN or an infinity is selected after all others. No backward. */
typedef enum hark_selection {
  HARK_SELECTION_NORM,
  HARK_SELECTION_SCORE,
  HARK_SELECTION_QUERY,
  HARK_SELECTION_MEDOIDS,
  HARK_SELECTION_GIVEN
} hark_selection;
typedef struct hark_select_tokens_attributes {
  hark_selection kind;
  int64_t rows; /* in all */
  int64_t count, unit;
  int64_t iterations; /* MEDOIDS */
} hark_select_tokens_attributes;

/* chunk_depth: how many of `layers` layers each chunk goes through. inputs score [K], sequences i64 [B + 1]; output i32 [K], 0 for rows of
 * no sequence. CAPACITY: 1 + number of l >= 2 with rank < ceil(capacity[l - 1] K_b), rank 0 the largest score of the sequence, of equal
 * ones the first (Mixture-of-Depths, arXiv 2404.02258). PAPER: floor(score / largest score * layers), kept within 1 and layers; 1 where the
 * largest is not positive. A NaN counts as lowest. No backward. */
typedef enum hark_depth_rule { HARK_DEPTH_CAPACITY, HARK_DEPTH_PAPER } hark_depth_rule;
#define HARK_MAX_DEPTH 64
typedef struct hark_chunk_depth_attributes {
  hark_depth_rule rule;
  int64_t layers;
  double capacity[HARK_MAX_DEPTH]; /* of layers 1 .. layers, within [0, 1], never larger than the one before; the first is not read */
} hark_chunk_depth_attributes;

/* chunks_at_depth: the rows of depth >= `depth`, in their order. input depth i32 [K]; output i32 [rows], -1 at the end. More than `rows` is
 * HARK_INVALID_ARGUMENT. No backward. */
typedef struct hark_chunks_at_depth_attributes {
  int64_t depth, rows;
} hark_chunks_at_depth_attributes;

/* The maximum number of rows that chunk_depth gives a layer of this capacity, [0, 1], for `chunks` chunks in `sequences` sequences. */
HARK_API int64_t hark_depth_capacity(double capacity, int64_t chunks, int64_t sequences);

/* chunk_bias: the terms that a kernel of the distance in chunks adds to the logits of each chunk, for tokens that represent its whole
 * sequence. inputs log_kernel [1, D]; sequences i64 [B + 1], offsets into the chunks; index i32 [I], rows of the second compression,
 * index_offsets i64 [B + 1] into it and row_offsets i64 [B + 1] of sequences in those rows; term [I] (optional). outputs bias [pairs] =
 * log_kernel[min(|k - c|, D - 1)] + term, c the middle of the row's bin in chunks, the distance rounded; place i32 [pairs], the entry of
 * the index, -1 after the last; and offsets i64 [chunks + 1]: the pairs of every chunk, one after the other. Ragged attention takes keys
 * gathered by place. docs/mathematics/ahca.md */
typedef struct hark_chunk_bias_attributes {
  int64_t chunks, pairs; /* at most: the sum over sequences of chunks times entries */
} hark_chunk_bias_attributes;

/* ball: y[n,:] = x[n,:] min(1, radius / |x[n,:]|), the nearest point of a ball around 0. */
typedef struct hark_ball_attributes {
  double radius; /* > 0 */
} hark_ball_attributes;

/* linear_ridge: y[s,q,:] = R' C (C'C + lambda I)^-1 query[s,q,:], linear ridge regression of the responses R on the covariates C within
 * each sequence s, read at its queries. inputs covariate [..., c], response [..., r] (their rows packed), query [S, c] or [S, m, c],
 * offsets i64 [S + 1], then, where the ridge is learned, log_ridge [1], its logarithm. y [S, r] or [S, m, r]; a sequence without rows gives
 * zeros. Cost O(L c (c + r) + c^3 + m c (c + r)) a sequence. A ridge that is no positive number is HARK_INVALID_ARGUMENT. */
typedef struct hark_linear_ridge_attributes {
  double ridge;     /* lambda > 0; not read with log_ridge */
  int64_t held_out; /* rows at the end of every sequence that are not used */
} hark_linear_ridge_attributes;

/* round_bf16: y = x rounded to the nearest bf16, ties to even, what is beyond the largest one to infinity; input x f32 or f64 (first
 * rounded to f32), y bf16 of its shape. Its backward is that of the identity (straight rounding): dx = dy, in the type of x. No attributes.
 */

/* linear_bf16: y[N,out] = x[N,in] W^T + b from numbers in bf16, sums in f32; inputs x bf16 [..., in], weight bf16 [out, in], bias [out]
 * (optional; y has its type, else f32). Gradients of x and weight are f32: dx = r(dy) W, dW = r(dy)^T x with r the rounding of round_bf16;
 * db = dy^T 1. Subnormal operands count as zeros, before they are rounded and after. No attributes. */

/* noise_of_heads: y[b, h, n] = least + log(1 + exp(x[b, n, h])): noises of keys or queries for every head. input x [..., N, H]; y [B, H,
 * N], or with `by_rows` as x. */
typedef struct hark_noise_of_heads_attributes {
  double least; /* from 0 */
  bool by_rows; /* as kernel_ridge_decode reads it */
} hark_noise_of_heads_attributes;

/* gate_segments: y[n, :] = x[n, :] log(1 + exp(gate[s, :])), s the segment of row n; rows of no segment are 0. inputs x [..., D], gate [S,
 * D], offsets i64 [S + 1]. No attributes. */

/* posterior_mixture: the predictions of H Gaussian processes as one mean and variance, weighted by their evidences, with an unknown scale
 * of the covariance (docs/mathematics/regressor.md). inputs, of M rows: mean [..., H R], variance, log_determinant [1, H, M] and quadratic
 * [..., H R] of kernel_ridge_posterior, noise [1, H, M] of new observations, logit [..., H], prior [3] (log(a0 - 1), log b0, log t),
 * query_offsets and key_offsets i64 [S + 1]. output [M, 2 R]: R means, then R logarithms of variances. H is at most
 * HARK_POSTERIOR_MIXTURE_HEADS. No attributes. */
#define HARK_POSTERIOR_MIXTURE_HEADS 64

/* copy_targets: y[n, h, k, r] = x[n, r]^(k + 1), k < powers. input x [N, R], output [N, heads powers R]. No gradient. */
typedef struct hark_copy_targets_attributes {
  int64_t heads;
  int64_t powers; /* 1, or 2: squares too */
} hark_copy_targets_attributes;

/* smoother_mixture: the predictions of H kernel smoothers as one mean and variance (docs/mathematics/regressor.md). inputs, of M rows:
 * moments [..., H 2 R] (for each head R means, then R mean squares), noise [1, H, M] of new observations, logit [..., H]. output [M, 2 R]:
 * R means, then R logarithms of variances. H is at most HARK_POSTERIOR_MIXTURE_HEADS. No attributes. */

/* gaussian_loss: loss = weight sum (log 2 pi + v + (target - m)^2 exp(-v)) / 2. inputs prediction [..., 2 R] (R means m, then R logarithms
 * of variances v) and target [..., R]; loss of rank 0. With `squared`, loss = weight sum (target - m)^2, and v has no effect. */
typedef struct hark_gaussian_loss_attributes {
  double weight;
  bool squared;
} hark_gaussian_loss_attributes;

/* class_logits: y[n, c] = exp(a) m[n, c] (1 + exp(b + v[n, c]))^-1/2 + level[n, c], logits of C classes. inputs prediction [..., 2 C] (C
 * means m, then C logarithms of variances v), level [..., C], which is data, and scale [2] (a, b); y [..., C]. No attributes. */

/* chunk_starts: y[b, t] = 1 where a chunk of a text begins with token t, else 0. The first token of a sequence begins a chunk. A chunk with
 * at least `minimum` tokens ends where its last tokens are one of the delimiters. A chunk with `maximum` tokens ends in any case. input
 * tokens i32 [B, L]; output u8 [B, L], as the attention of HARK_STRUCTURE_COMPRESSED takes it. No backward. */
typedef struct hark_chunk_starts_attributes {
  /* Delimiters, one after another: their last tokens as they are, and -1 - t for each token t before it. {10, -1 - 46, 32}: token 10, and
   * token 46 with token 32 after it. Borrowed until the call is done. */
  const int32_t *delimiters;
  int64_t delimiter_count;  /* of numbers */
  int64_t minimum, maximum; /* 1 <= minimum <= maximum */
  const int64_t *segments;  /* [L] or NULL, with B = 1: a run of equal numbers is a sequence; borrowed until the call is done */
} hark_chunk_starts_attributes;

/* sequence_offsets: the first rows of sequences, and the end of the last one. input tokens i32 [B, L], of which only the shape is read;
 * output i64 [B + 1], or with `packed` i64 [L + 1], where sequences that do not exist are empty. No backward. */
typedef struct hark_sequence_offsets_attributes {
  bool packed;             /* B = 1: a run of equal numbers in `segments` is a sequence */
  const int64_t *segments; /* [L]; borrowed until the call is done */
} hark_sequence_offsets_attributes;

/* chunk_flags: y[b, t] = 1 where a chunk begins at token t, else 0. inputs tokens i32 [B, L], of which only the shape is read, and chunks
 * i64 [K + 1], offsets of rows; output u8 [B, L], as the attention of HARK_STRUCTURE_COMPRESSED takes it. No attributes, no backward. */

/* kernel_sums: sums of a positional kernel over 2^k distances, k < levels. input log_kernel [K, T], output [levels, K, T]: the logarithm of
 * the sum of G(t) .. G(t + 2^k - 1), of fewer where the table ends before. */
typedef struct hark_kernel_sums_attributes {
  int64_t levels; /* 1 to 40 */
} hark_kernel_sums_attributes;

/* compressed_decode: attention of HARK_STRUCTURE_COMPRESSED for new rows first_position .. after those that the cache has seen
 * (docs/mathematics/compressed.md). Chunks have `chunk` rows; with chunk_maximum > 0 they have `chunk` to `chunk_maximum` rows, and begin
 * where chunk_starts says. inputs: query [1, R, H*d], key [1, R, Hkv*d], value [1, R, Hkv*dv]; the cache, which is changed: ring_key [1, W,
 * Hkv*d], ring_value [1, W, Hkv*dv], slot_key [S, chunk_slots, Hkv*d], slot_value [S, chunk_slots, Hkv*dv], global_key [G', 2, Hkv*d],
 * global_value [G', 2, Hkv*dv]; with chunk_maximum > 0 chunk_starts i64 [K]: the first rows of all chunks that begin at the last new row or
 * before it, from 0 on, and global_rows i64 [G', Hkv], a part of the cache; with a kernel of the distance, which global_slots exclude,
 * log_sums [levels, H or 1, D] of kernel_sums. Slots have at most 2^levels - 1 rows. D is at least the number of rows of the text up to the
 * last new one, or with kept_chunks > 0 the smaller one of this and (kept_chunks + 2) times the most rows of a chunk. All calls of a text
 * have the same W, S and G'. For a text of T rows, in chunks of at most m rows, W is min(T, 2 m) or 2 m; S is at least max(1, number
 * of chunks - 1), or with kept_chunks > 0 at least kept_chunks + 1; G' is max(1, global_slots), or as many as merged slots. output [1, R,
 * H*dv]. Nothing has to be set before position 0. Errors: HARK_INVALID_ARGUMENT if a chunk has another number of rows. No backward. */
typedef struct hark_compressed_decode_attributes {
  int64_t heads, key_heads, chunk, chunk_slots, selected_slots, kept_chunks, global_slots, first_position;
  double scale;          /* of q.k */
  int64_t chunk_maximum; /* 0: all chunks have `chunk` rows */
} hark_compressed_decode_attributes;

#ifdef __cplusplus
}
#endif
#endif
