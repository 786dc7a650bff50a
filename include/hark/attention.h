/* attention.h - attention on plain buffers: describe, plan, execute.
 *
 *     out[n,:] = sum_i P[n,i] value[i,:],   P[n,:] = softmax over visible i of ( scale query[n].key[i] + terms[n,i] )
 *
 * Fill a descriptor, make a plan from it (which checks it, chooses the algorithm and reports how much memory a call needs), and execute the
 * plan as often as you like with arguments of the plan's maximum sizes or smaller. Executing allocates nothing.
 * Legend: B batch, H query heads, Hkv key/value heads (H a multiple; query head h reads key head h / (H / Hkv)), Lq queries, Lk keys,
 * d head_dim, dv value_dim.
 */
#ifndef HARK_ATTENTION_H
#define HARK_ATTENTION_H

#include <string.h>

#include "random.h"
#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Which keys a query meets. */
typedef enum hark_attention_structure {
  HARK_STRUCTURE_DENSE,
  HARK_STRUCTURE_WINDOW,       /* keys with |position difference| <= window; cost O(L window) */
  HARK_STRUCTURE_HIERARCHICAL, /* near keys one by one, farther ones by cells of 2, 4, 8, ... tokens; cost O(L) (H-Transformer-1D) */
  HARK_STRUCTURE_COMPRESSED /* causal: near keys one by one, farther ones by the slots of chunks, of which a query meets the best (AHCA) */
} hark_attention_structure;

/* HIERARCHICAL: which blocks of tokens meet on a level (docs/mathematics/hierarchical.md). */
typedef enum hark_hierarchy_partition {
  HARK_PARTITION_NEIGHBOUR, /* a block and its neighbours, less what the level below covers (H section 6) */
  HARK_PARTITION_SIBLING    /* the two halves of a parent (H appendix A.5): cheaper, coarser */
} hark_hierarchy_partition;

/* HIERARCHICAL: the query that meets the keys of a level above the lowest. */
typedef enum hark_coarse_query {
  HARK_COARSE_QUERY_DEFAULT, /* first when causal, else mean */
  HARK_COARSE_QUERY_MEAN,    /* the mean of the cell's queries; not when causal: it depends on later ones */
  HARK_COARSE_QUERY_FIRST,   /* the first query of the cell */
  HARK_COARSE_QUERY_EXACT    /* every query itself; O(L log L) */
} hark_coarse_query;

/* HIERARCHICAL: how the rows of a level pass their sums on to the level below. */
typedef enum hark_hierarchy_interpolation {
  HARK_INTERPOLATION_CONSTANT, /* both children take the parent's */
  HARK_INTERPOLATION_LINEAR    /* the second child takes the mean of its parent's and the next parent's; not when causal, not with exact */
} hark_hierarchy_interpolation;

/* kappa(q, k), to which positional kernels, biases and gates are factors (terms of the logits). */
typedef enum hark_attention_kernel {
  HARK_KERNEL_EXP, /* exp(scale q.k) */
  HARK_KERNEL_RBF  /* exp(-|q - k|^2 / (2 sigma^2)) */
} hark_attention_kernel;

/* How a row of kernels becomes weights. */
typedef enum hark_attention_normalisation {
  HARK_NORMALISATION_SOFTMAX, /* kernel smoothing: kappa(q, k_i) / sum over visible j of kappa(q, k_j) */
  HARK_NORMALISATION_CME,     /* kernel ridge regression of the values on the keys (docs/mathematics/kernel-ridge.md); cost O(L^3) */
  /* sigmoid(logit i) times what nearer keys leave of a stick of length 1 (docs/mathematics/stick-breaking.md); causal, dense or window,
   * kernel exp; a query sees only keys before its position */
  HARK_NORMALISATION_STICK_BREAKING
} hark_attention_normalisation;

/* CME: how the system M x = b of the keys is solved (docs/mathematics/kernel-ridge.md). */
typedef enum hark_attention_solver {
  HARK_SOLVER_FACTOR,             /* a Cholesky factor of M; cost O(L^3), memory O(L^2) */
  HARK_SOLVER_CONJUGATE_GRADIENTS /* preconditioned, M is never stored; cost O(L^2) for each iteration, memory O(L) */
} hark_attention_solver;

/* What to compute, at most how large. Start from hark_attention_desc_default(). Fields left zero that do not apply must stay zero: a sigma
 * without RBF, a scale with it, a window without WINDOW are refused by name. */
typedef struct hark_attention_desc {
  size_t struct_size; /* sizeof; a caller built against an older, smaller struct is served, what it lacks takes its default */
  hark_type type;     /* HARK_F32 or HARK_F64 */
  hark_attention_structure structure;
  hark_attention_kernel kernel;
  hark_attention_normalisation normalisation;
  int64_t batch, heads, key_heads;  /* maxima; heads a multiple of key_heads */
  int64_t query_length, key_length; /* maxima */
  int64_t head_dim, value_dim;      /* exact */
  int64_t max_sequences;            /* segments or ragged sequences in a call; 0: batch, or batch * key_length with segments */
  bool causal;                      /* query at position p sees keys at positions <= p */
  double scale;                     /* EXP; 0: 1 / sqrt(head_dim); f32: a magnitude of 1.18e-38 to 5.07e30 */
  double sigma;                     /* RBF: > 0; f32: 4.45e-16 to 9.22e18 */
  int64_t window;                   /* WINDOW: positions to each side */
  double dropout;                   /* probability, [0, 1), on the normalised weights */
  bool has_bias;                    /* calls may carry attention_bias */
  bool has_mask;                    /* calls may carry a byte mask */
  bool has_segments;                /* calls may carry segment ids */
  bool has_log_kernel;              /* calls carry a table of log G(|n - i|) */
  bool has_forget;                  /* calls carry forget-gate logits; needs causal */
  bool forward_only;                /* no backward will be requested */
  /* HIERARCHICAL. As many keys as queries in every sequence, query_offset 0; no attention_bias, no forget gates; masks by key only. */
  int64_t hierarchy_block; /* Nr, tokens of a block, an even number; 0: 16 */
  hark_hierarchy_partition partition;
  hark_coarse_query coarse_query;
  hark_hierarchy_interpolation interpolation;
  bool has_hierarchical_bias; /* calls carry hierarchical_bias */
  int64_t longest;            /* rows of the longest sequence of a segmented or ragged call; 0: query_length or key_length */
  /* CME. Dense; masks by key only; no attention_bias, forget gates or dropout. kernel EXP is computed as exp(scale (q.k - bound)) with the
   * ridge and the variance scaled alike, which changes no result and keeps numbers in range where scale q.k is large. */
  double ridge;       /* lambda > 0, with has_noise from 0, or c of lambda = c L^ridge_power; 0 with has_ridge */
  double ridge_power; /* p in [0, 1], L the visible keys of a sequence; not when causal: a row would know how many keys come after it */
  double bound;       /* EXP: what q.k never exceeds; 0 is right where scale q.k is small. With unit it is 1 */
  bool unit;          /* every query and key is divided by its length first */
  bool has_ridge;     /* calls carry ridge */
  bool has_sigma;     /* RBF: calls carry sigma */
  /* BF16: products may be computed from numbers rounded to bf16, with f32 sums; type f32. The cpu backend does so for dense and windowed
   * softmax with kernel exp and no bias, table or forget gates; all else is as without it. 0: products of the type. A hark_type, in 64 bits
   * so that it begins where the struct ended before. */
  int64_t product_type;
  /* N, rows of the table `contextual` that calls carry: positions that are counted by content (docs/mathematics/contextual-positions.md);
   * 2 to 2^20, 0: none. Causal, dense or window, kernel exp, softmax. */
  int64_t contextual_positions;
  /* 0, or 1 with has_log_kernel: the table has a separate number for each direction, log G(n - i). Not causal, no CME. In 64 bits, like
   * product_type. */
  int64_t directed_kernel;
  /* HIERARCHICAL: 0, or columns of a picture, whose pixels are the rows of a sequence in the order of reading: row n is pixel (n / columns,
   * n mod columns). Rows and columns are then halved together (docs/mathematics/hierarchical-2d.md): cells are squares of 2^l x 2^l pixels,
   * and hierarchy_block is the number of cells of a square block: 4, 16, 64, ..., a power of 4. Partition neighbour, constant
   * interpolation, coarse_query mean or exact; not causal, no hierarchical_bias, no log_kernel. The last row may be incomplete. */
  int64_t grid_columns;
  /* 0, or 1 with CME: backwards may carry dvariance. Full attention then needs a little more memory than a causal backward, and more
   * operations. In 64 bits, like product_type. */
  int64_t has_dvariance;
  int64_t has_dlog_determinant; /* the same for dlog_determinant */
  int64_t has_noise;            /* 0, or 1 with CME: calls carry noise. ridge may then be 0 */
  /* 0, or 1 with CME: backwards may carry dquadratic. Full attention then needs no more memory. Causal attention needs L^3 / 3 more
   * multiply-adds for each value feature (L queries and keys). */
  int64_t has_dquadratic;
  /* CME: a hark_attention_solver, in 64 bits like product_type. HARK_SOLVER_CONJUGATE_GRADIENTS is for long contexts: not causal, no
   * log_kernel, no dlog_determinant. The reference backend computes its definition, with a factor, for both. */
  int64_t solver;
  /* CONJUGATE_GRADIENTS: the residual |M x - b| / |b| that every right-hand side is solved to, above 0 and below 1; 0: 1e-6 for f32, 1e-10
   * for f64. */
  double solver_tolerance;
  int64_t solver_iterations; /* CONJUGATE_GRADIENTS: iterations of one solve at most, from 1; 0: 1000 */
  /* COMPRESSED (docs/mathematics/compressed.md). Needs causal; kernel exp, softmax, as many keys as queries in every sequence, query_offset
   * 0; no attention_bias or forget gates; log_kernel without global_slots; masks by key only. */
  int64_t chunk;          /* rows of a chunk, 1 to 2^20; with has_chunk_starts the fewest rows of a chunk */
  int64_t chunk_slots;    /* C, slots of a chunk: means of keys and values of C parts of its rows; 1 to chunk; 0: 1 */
  int64_t selected_slots; /* slots that a query meets: those with the highest logits; 1 to 4096; 0: 16 */
  int64_t kept_chunks;    /* N: of the chunks before the near ones, so many keep separate slots; 0: all */
  int64_t global_slots; /* G, with kept_chunks: the older slots are merged into so many, all of which a query meets; 0: they are not seen */
  int64_t has_chunk_starts; /* 0, or 1: calls carry chunk_starts */
} hark_attention_desc;

/* f32, dense, exp, softmax; everything else zero. Inline, so that the struct has the size that the caller was built with. */
static inline hark_attention_desc hark_attention_desc_default(void) {
  hark_attention_desc desc;
  memset(&desc, 0, sizeof desc);
  desc.struct_size = sizeof desc;
  desc.type = HARK_F32;
  desc.structure = HARK_STRUCTURE_DENSE;
  desc.kernel = HARK_KERNEL_EXP;
  desc.normalisation = HARK_NORMALISATION_SOFTMAX;
  return desc;
}

/* A checked descriptor with the algorithm that computes it. Made by hark_attention_plan_create() or _place(). */
typedef struct hark_attention_plan hark_attention_plan;

/* HARK_OK when the context's backend can do it; else HARK_UNSUPPORTED or HARK_INVALID_ARGUMENT, and the message names the fields at
 * fault. */
HARK_API HARK_MUST_CHECK hark_status hark_attention_supports(hark_context *context, const hark_attention_desc *desc);

/* Makes a plan: bound to the context's backend, immutable, usable by several threads at once each with its own context on the same
 * backend. The caller destroys it, with a context that has the same allocator. Errors: as supports; HARK_OUT_OF_MEMORY; HARK_TOO_LARGE. */
HARK_API HARK_MUST_CHECK hark_status hark_attention_plan_create(hark_context *context, const hark_attention_desc *desc,
                                                                hark_attention_plan **out);
HARK_API void hark_attention_plan_destroy(hark_context *context, hark_attention_plan **plan);

/* The same in caller-owned memory, for instance on the stack: HARK_ATTENTION_PLAN_BYTES bytes, aligned to 16. Allocates nothing, needs
 * no destroy; *out points into `memory`. Errors: as supports; HARK_INVALID_ARGUMENT for too little or misaligned memory; HARK_TOO_LARGE. */
#define HARK_ATTENTION_PLAN_BYTES 512
HARK_API HARK_MUST_CHECK hark_status hark_attention_plan_place(hark_context *context, const hark_attention_desc *desc, void *memory,
                                                               size_t bytes, hark_attention_plan **out);

/* Bytes that the caller provides, 64-byte aligned: `saved` from forward to backward, and scratch for each of the two. May be 0. */
typedef struct hark_attention_sizes {
  size_t saved, forward_workspace, backward_workspace;
} hark_attention_sizes;
HARK_API hark_attention_sizes hark_attention_plan_sizes(const hark_attention_plan *plan);

/* The descriptor with its defaults resolved (key_heads: heads, value_dim: head_dim, scale, which is 1 / sigma^2 with RBF, max_sequences);
 * part of the plan, valid as long as the plan. */
HARK_API const hark_attention_desc *hark_attention_plan_desc(const hark_attention_plan *plan);

/* Useful floating-point operations at the maximum sizes: forward two products over the visible pairs, backward five. Causal counts
 * L(L+1)/2 pairs; HIERARCHICAL counts the Nr^2 pairs of every block, with grid_columns all pairs of cells that meet; CME the products and
 * solves of docs/mathematics/kernel-ridge.md, with conjugate gradients one iteration of each solve. Contextual positions add the products
 * of a query and the rows of their table that it can reach, backward three times. The first takes any descriptor whose extents are set; 0
 * when its struct_size is refused. */
HARK_API double hark_attention_desc_operations(const hark_attention_desc *desc, bool backward);
HARK_API double hark_attention_plan_operations(const hark_attention_plan *plan, bool backward);

/* T, the distances 0..T-1 that a table of log G needs (log_kernel [H or 1, T], with directed_kernel [H or 1, 2 T - 1]) for every call that
 * the plan allows with this query_offset, or with the default one: up to the farthest key of a query, with CME also of a key; with
 * HIERARCHICAL up to what its cells reach, Nr 2^M, which is more than there are between rows. Longer tables do the same. Returns how long
 * a table has to be, whether the plan's has_log_kernel is set or not. 0 for an offset beyond 2^40, which calls refuse. */
HARK_API int64_t hark_attention_plan_distances(const hark_attention_plan *plan, bool has_query_offset, int64_t query_offset);

/* Writes one line of text that describes the plan (algorithm, tiles, sizes) into `text` of `size` bytes, always terminated; returns the
 * length of the complete text. */
HARK_API int hark_attention_plan_print(const hark_attention_plan *plan, char *text, size_t size);

/* CME: what a forward had to raise. A pivot of the factorisation that is not positive, because keys are duplicates beyond the type's
 * precision or the kernel is not positive definite, is raised alone. Calls add to `pivots` and keep the largest amount; the caller zeroes
 * it. */
typedef struct hark_attention_report {
  int64_t pivots;          /* raised so far */
  int64_t item, head, row; /* of the largest amount: batch item, query head, key row of the item */
  double amount;           /* that was added to the pivot */
  /* Written only by plans with HARK_SOLVER_CONJUGATE_GRADIENTS: the most iterations of one solve so far. */
  int64_t iterations;
} hark_attention_report;

/* Everything that changes from call to call. Zero it, set struct_size, fill what applies; tensors left zero are absent.
 *
 * Rectangular batches: query [B, H, Lq, d], key [B, Hkv, Lk, d], value [B, Hkv, Lk, dv], out [B, H, Lq, dv], in any strides whose last is 1
 * (so [B, L, H, d] and packed projections need no copy); B, Lq, Lk are taken from the shapes and may be smaller than the plan's, also 0.
 * key_lengths marks keys at and after a sequence's length as padding: their memory is never read.
 * Ragged batches: query_offsets and key_offsets [sequences + 1] into packed rows; then query is [1, H, total rows, d] and so on, and mask
 * and attention_bias are indexed by packed rows. Segments: every run of equal ids is a separate sequence, on the query and the key side
 * alike. Only one of key_lengths, offsets and segments may be given. Rows that belong to no sequence count as queries and keys of nothing.
 *
 * Positions: query row r of a sequence has position r + o among its keys, o = query_offset. The default when causal is Lk - Lq, the
 * last query meeting the last key: for rectangular batches from the tensors' shapes, whatever key_lengths says (with Lq == Lk it is 0, and
 * sequences padded on the right have the results that they have alone); for ragged batches from each sequence's own counts. A key/value
 * cache that is larger than its contents is passed as a view of shape [B, Hkv, rows in use, d] with the cache's strides, and then the
 * default is right; sequences of different lengths in one cache are decoded as a ragged batch or in one call each, because one
 * query_offset serves all sequences of a call. With segments o is always 0.
 *
 * Masked entries are not used: the contents of a key, value or bias that no query may see, also NaN or infinity, have no effect on out or
 * gradients. A logit of -infinity (from attention_bias or log_kernel, or of an infinite query or key) masks its entry; a slot of COMPRESSED
 * is one entry, masked where log_kernel is -infinity for all of its rows. What is visible is seen: a NaN reaches every result that depends
 * on it (docs/numbers.md).
 * A query that sees no key gives zeros in out, zero gradients, and log_sum_exp = -infinity.
 *
 * HIERARCHICAL: every sequence has a separate hierarchy, which begins with its first row; queries and keys are the same number of rows.
 * mask is a key mask, [1 or B, 1, 1, Lk]; query_mask takes rows out as queries: they give zeros, and coarse queries are made without them.
 * All rows of a sequence are queries otherwise, those at and after key_lengths too: with mean queries, padded batches that should come out
 * as if each sequence were alone give a query_mask as well. log_kernel: a coarse entry takes the mean of G over the distances between its
 * two cells (exact: between the query and the key cell). Cells are always complete, also at the end, so that the result of a row does not
 * depend on how many rows follow it: their distances go up to Nr 2^M - 1, more than there are between rows, and
 * hark_attention_plan_distances() counts them. A table that ends earlier (but not before the farthest row) defines a kernel that ends
 * there: distances that it does not have are left out of the means. Give one table to sequences of all lengths, or one of all distances:
 * tables cut to each sequence's rows are different kernels. Dropout drops complete coarse entries, with the word of its first row and
 * first key.
 *
 * COMPRESSED: a query sees the keys of its own chunk and of the one before it, up to its position. It sees earlier keys by slots, with the
 * logit scale query.k + log n: k and the value of a slot are the means of its n unmasked keys and values. Among the slots of kept_chunks
 * chunks it sees the selected_slots with the highest logits (of equal ones the earliest; NaN counts as the highest), which the backward
 * does not choose again. With log_kernel, the sum of G over these n keys is in the place of n. Every global slot is seen. A slot without
 * unmasked keys does not exist. mask is a key mask, [1 or B, 1, 1, Lk]. Dropout drops complete slots, with the word of the first row of a
 * slot, of a global one that of its first slot.
 *
 * CME: out[n] = sum over visible i of w[n,i] value[i] with w[n,:] = kappa(q_n, K) (kappa(K, K) + lambda I)^-1 over the keys that the query
 * sees: all of them, or when causal those up to its position. With noise, the noise of each key is added to its lambda. kappa includes G.
 * Errors of forward and backward, each naming item, head and row: HARK_INVALID_ARGUMENT (a ridge, sigma or noise that is not a number in
 * the range of the type; sigma is above 0, and so is the sum of ridge and noise of each visible key), HARK_NOT_FINITE (a visible query, key
 * or value that is no finite number, or a kernel beyond the range of the type, with variance or dvariance also kappa(q, q) G(0): results
 * are then undefined). HARK_SOLVER_CONJUGATE_GRADIENTS: HARK_INVALID_ARGUMENT, with residual and number of iterations, if a residual is
 * above the tolerance after solver_iterations, or if the matrix is not positive definite after rounding; the log-determinant is an
 * estimate (its error: kernel-ridge.md). There is no log_sum_exp. Amounts added to raised pivots are constants to the backward, and a
 * variance that rounding made 0 has the gradient of the exact one. A query that sees no key, because all are masked, later or not there
 * (key_lengths 0, an empty range of offsets), has zeros in out, log_determinant and quadratic, and the prior's variance kappa(q, q) G(0); a
 * row of no sequence has zeros in all four.
 *
 * Memory: all of it is the caller's and is borrowed for the call. What a call writes (forward: out, log_sum_exp, variance,
 * log_determinant, quadratic, saved, workspace; backward: the gradients and workspace) shares no element with anything else that it is
 * given, and has strides by which no two of its own elements share an address: else HARK_INVALID_ARGUMENT, as far as places and strides
 * show it. A stride of 0 in dattention_bias, dlog_kernel and dhierarchical_bias is allowed and requests the sum. Views of one buffer are
 * fine as long as no element is in two of them: query, key and value of one packed projection, and dquery, dkey and dvalue of another. What
 * is only read may be one and the same, and may repeat itself (strides of 0, overlapping rows). */
typedef struct hark_attention_args {
  size_t struct_size;
  hark_tensor query, key, value;
  hark_tensor out;
  /* [B, H, Lq] contiguous, natural logarithm; forward writes, backward reads. May be absent when no backward follows. STICK_BREAKING:
   * log(1 - sum of the row's weights); 0 for a query of a sequence with keys that sees none, -infinity if less than 2^-100 is left. */
  hark_tensor log_sum_exp;

  const int64_t *key_lengths;   /* host, [B], or NULL */
  const int64_t *query_offsets; /* host, [sequences + 1], or NULL; with key_offsets */
  const int64_t *key_offsets;
  int64_t sequences;
  const int64_t *segments; /* host, [B, Lk]: a run of equal ids is one sequence; negative ids are padding. Needs Lq == Lk, query_offset 0 */
  bool has_query_offset;   /* position of query row 0 of a sequence among its keys: */
  int64_t query_offset;    /*   default Lk - Lq when causal, else 0 */

  hark_tensor mask;           /* U8, zero masks; broadcastable (stride 0 or extent 1) to [B, H, Lq, Lk] */
  hark_tensor attention_bias; /* added to the logits; broadcastable to [B, H, Lq, Lk] */
  /* [H, T] or [1, T] (shared): log G at distances 0..T-1, T > every distance between rows that occurs, or better
   * hark_attention_plan_distances(); -infinity masks. With directed_kernel [H or 1, 2 T - 1]: entry T - 1 + d for d = position of the query
   * less that of the key, from -(T - 1) to T - 1; d < 0: the key is after the query */
  hark_tensor log_kernel;
  /* [B, H, Lk] in any strides: finite gate logits f. Adds sum over t in (i, n] of log sigmoid(f_t) (FoX, arXiv 2503.02130); t runs over the
   * sequence's keys, so that a query beyond the last key is gated as if it stood on it. */
  hark_tensor forget;

  /* Entry (b, h, n, i) is kept when word i % 4 of counter ((b H + h) 2^23 + n) 2^21 + i / 4 >= hark_random_threshold(dropout); n and i are
   * rows of the batch item. */
  hark_random_stream dropout;

  /* backward only; absent: not requested */
  hark_tensor dout;                 /* like out */
  hark_tensor dquery, dkey, dvalue; /* shapes of query, key and value, with separate strides */
  hark_tensor dattention_bias;      /* shape of attention_bias: summed over every dimension of its own extent 1 or stride 0 */
  hark_tensor dlog_kernel;          /* shape of log_kernel */
  hark_tensor dforget;              /* shape of forget */
  unsigned accumulate;              /* bits HARK_ACCUMULATE_*: add to that gradient instead of overwriting it */

  void *saved;     /* hark_attention_sizes.saved bytes: forward writes, backward reads. NULL where that is 0 */
  void *workspace; /* forward_workspace or backward_workspace bytes; its contents mean nothing before and after */

  /* HIERARCHICAL: added to the logits of every level, [H, 4 Nr - 1] or [1, 4 Nr - 1] (shared): entry (key - query, in tokens of that level)
   * + 2 Nr - 1. */
  hark_tensor hierarchical_bias;
  hark_tensor query_mask;         /* HIERARCHICAL, with has_mask: U8 [1 or B, Lq], zero: not a query */
  hark_tensor dhierarchical_bias; /* backward: shape of hierarchical_bias */

  hark_tensor ridge; /* CME, with has_ridge: [H] or [1], positive, with has_noise from 0; lambda, or c with ridge_power */
  hark_tensor sigma; /* CME, with has_sigma: [H] or [1], positive, in place of the descriptor's */
  /* CME, optional: [B, H, Lq] contiguous: kappa(q,q) G(0) - kappa(q,K) M^-1 kappa(K,q) >= 0 with M = kappa(K,K) + lambda I + diag(noise) */
  hark_tensor variance;
  hark_tensor dridge, dsigma;    /* backward: shapes of ridge and sigma */
  hark_attention_report *report; /* CME, or NULL */

  /* With contextual_positions: e, [H, N, d] or [1, N, d] (shared). Adds scale query.e[c] to a logit, c = sum of sigmoid(scale query.key_t)
   * over the visible keys t from this key to the query, at most N - 1; between whole numbers e[c] is interpolated (CoPE, arXiv 2405.18719).
   * Rows of e beyond the largest c + 1 are not read. */
  hark_tensor contextual;
  hark_tensor dcontextual; /* backward: shape of contextual; a first stride of 0 requests the sum over heads */

  /* CME, backward, with has_dvariance: [B, H, Lq] contiguous, the gradient by variance, which adds to dquery, dkey, dlog_kernel, dridge,
   * dsigma, dnoise; absent: 0. Then dout may be absent, which is 0 too, and out with it. The forward need not compute the variance. */
  hark_tensor dvariance;

  /* CME, optional: [B, H, Lq] contiguous: log det M, M as for variance, over the keys that the query sees. Without causal, all rows of a
   * sequence and head are equal. 0 for a query that sees none, and for a row of no sequence. Raised pivots count as raised. */
  hark_tensor log_determinant;
  hark_tensor dlog_determinant; /* backward, with has_dlog_determinant: as dvariance, the gradient by log_determinant */

  /* CME, with has_noise: [B, H, Lk] in any strides, finite numbers from 0. The noise of a key is added to lambda in its diagonal entry of
   * kappa(K,K) + lambda I, before pivots are checked: for values that are not equally certain. Of masked keys it is not read. The ridge
   * may be 0 if the noise of every visible key is above 0. HARK_INVALID_ARGUMENT if both are 0, or if the noise is negative, NaN or
   * infinite. */
  hark_tensor noise;
  hark_tensor dnoise; /* backward: shape of noise */

  /* CME, optional: [B, H, Lq, dv] in any strides whose last is 1: V_c^T M^-1 V_c for each column c of the values, M and V over the keys
   * that the query sees. Without causal, all rows of a sequence and head are equal. 0 for a query that sees none, and for a row of no
   * sequence. A number beyond the range of the type is infinite. */
  hark_tensor quadratic;
  hark_tensor dquadratic; /* backward, with has_dquadratic: the gradient by quadratic, of the same shape, in any strides whose last is 1. It
                           * adds to dvalue too, but not to dquery. As with dvariance, dout may then be absent */

  /* COMPRESSED, with has_chunk_starts: U8 [1 or B, Lk], the last stride 1, not zero where a chunk begins. The first row of a sequence
   * always begins one, and rows at and after key_lengths begin none. HARK_INVALID_ARGUMENT, which names item and row, if a chunk that
   * another one follows has fewer than desc->chunk rows. */
  hark_tensor chunk_starts;
} hark_attention_args;

/* Bits of hark_attention_args.accumulate: the gradient is added to what is there. */
enum {
  HARK_ACCUMULATE_QUERY = 1,
  HARK_ACCUMULATE_KEY = 2,
  HARK_ACCUMULATE_VALUE = 4,
  HARK_ACCUMULATE_BIAS = 8,
  HARK_ACCUMULATE_LOG_KERNEL = 16,
  HARK_ACCUMULATE_FORGET = 32,
  HARK_ACCUMULATE_HIERARCHICAL_BIAS = 64,
  HARK_ACCUMULATE_RIDGE = 128,
  HARK_ACCUMULATE_SIGMA = 256,
  HARK_ACCUMULATE_CONTEXTUAL = 512,
  HARK_ACCUMULATE_NOISE = 1024
};

/* Executes a plan. Errors: HARK_SHAPE_MISMATCH, HARK_INVALID_ARGUMENT, HARK_UNSUPPORTED with a message that names the argument; nothing was
 * written then. HARK_NOT_FINITE, those of ridge, sigma and noise (CME, above) and those of the contents of chunk_starts come while it
 * computes: what was written is undefined then. */
HARK_API HARK_MUST_CHECK hark_status hark_attention_forward(hark_context *context, const hark_attention_plan *plan,
                                                            const hark_attention_args *args);
HARK_API HARK_MUST_CHECK hark_status hark_attention_backward(hark_context *context, const hark_attention_plan *plan,
                                                             const hark_attention_args *args);

/* The gradient of sigma of kernel RBF with SOFTMAX, where sigma is a number of the descriptor, from what a backward computed:
 *
 *     *gradient <- -(<query, dquery> + <key, dkey>) / sigma
 *
 * since the logits -|q - k|^2 / (2 sigma^2) are homogeneous of degree 2 in (q, k) (Euler); every head is shifted by a weighted mean of its
 * rows first, which changes no exact result. All sums are in double, on the calling thread.
 * Shapes: query and dquery [B, H, Lq, d], key and dkey [B, Hkv, Lk, d], f32 or f64, any strides: what the forward read, and its gradients,
 * not added to others. Memory: d numbers from the context. (CME has hark_attention_args.dsigma.)
 * Errors: HARK_SHAPE_MISMATCH (types and shapes), HARK_INVALID_ARGUMENT (sigma is not a positive number), HARK_OUT_OF_MEMORY. */
HARK_API HARK_MUST_CHECK hark_status hark_attention_sigma_gradient(hark_context *context, double sigma, const hark_tensor *query,
                                                                   const hark_tensor *dquery, const hark_tensor *key,
                                                                   const hark_tensor *dkey, double *gradient);

/* The simple calls, for contiguous buffers and calls that need only the descriptor: query [B, H, Lq, d], key [B, Hkv, Lk,
 * d], value [B, Hkv, Lk, dv], out [B, H, Lq, dv], of desc->type and of the descriptor's sizes exactly; out shares no memory with the
 * others. Each makes a plan, takes its memory from the context's allocator and releases it. The results have the bits of
 * hark_attention_forward(), which is there for everything else: strides, padding, masks, biases, positional kernels, dropout, and calls
 * that allocate nothing. Errors: as hark_attention_plan_create() and hark_attention_forward(); HARK_INVALID_ARGUMENT for a NULL buffer, for
 * dropout, and where a has_... field is set, since there is no argument for it. */
HARK_API HARK_MUST_CHECK hark_status hark_attention_run(hark_context *context, const hark_attention_desc *desc, const void *query,
                                                        const void *key, const void *value, void *out);
/* Gradients of a function of out, dout [B, H, Lq, dv] being its gradient: dquery, dkey and dvalue have the shapes of query, key and value
 * and are overwritten; NULL: not requested. The forward is computed again first; with hark_attention_backward() a program keeps it. */
HARK_API HARK_MUST_CHECK hark_status hark_attention_run_backward(hark_context *context, const hark_attention_desc *desc, const void *query,
                                                                 const void *key, const void *value, const void *dout, void *dquery,
                                                                 void *dkey, void *dvalue);

#ifdef __cplusplus
}
#endif
#endif
