/* ahca.h - adaptive hierarchical compressed attention (Horner 2024); docs/mathematics/ahca.md.
 *
 *   x = embedding[token]                                              [T, D]      packed sequences
 *   x += attention(norm(x)) in a window; x += feed_forward(norm(x))   local layers, if there are any (ahca_local.c)
 *   chunks of every sequence, K in all: fixed, after a delimiter, at valleys of similarity, or learned
 *   C1_k = pool(W x + position in chunk)                              [K, C1, d']  (learned chunks: smoothed)
 *   C2   = pool(W C1 + chunk + slot), min(C2, chunks C1) a sequence   [.., d'']
 *   S    = the Cs of largest score s (or norm, product with the mean query, medoids)
 *   A_k  = softmax(norm(C1_k) Wq (norm(C2_S) Wk)^T / sqrt(d) + log sigmoid(s)) norm(C2_S) Wv Wo;   h = C1 + A
 *   h_k += F_1(h_k);  l = 2 .. L_k: h_k += sigmoid(a_k) F_l(h_k)      F: pre-norm self-attention of a chunk's slots and feed-forward
 *   logits = W2 relu(W1 mean(norm(h)) + b1) + b2        of sequences; ahca_heads.c has those of tokens
 *
 * With Cs = 0 there is no second level: no C2 and no A, so that a chunk sees itself alone.
 *
 * Layers run on the chunks that have them, gathered: of capacity c, layer l has ceil(c^(l - 1) K) chunks of every sequence, or ceil(c_l K)
 * where every layer has its own capacity. In training all have all layers for the first 40 % of the steps, and the capacity falls until 70
 * %. Memory is for the most chunks that the minimum length allows; work is that of the chunks that there are. With output selected the Cs
 * selected tokens take the chunks' place: they attend to all of C2 and have layers.
 *
 * It is no decoder: pools, selection, ranks and maxima over a sequence make a token depend on those after it.
 */
#ifndef HARK_MODELS_AHCA_H
#define HARK_MODELS_AHCA_H

#include "models/network.h"

/* Ids of what a pass found out, for reports: valid until the tape's next reset; 0: the model has none. Lists have the length that their
 * contents have, but in a run for shapes alone. */
typedef struct hark_ahca_trace {
  hark_value chunks;           /* i64 [K + 1]: first rows */
  hark_value sequences;        /* i64 [S + 1]: first chunks */
  hark_value selected;         /* i32: rows of C2, ascending in a sequence */
  hark_value selected_offsets; /* i64 [S + 1]: a sequence's first place in it */
  hark_value global_offsets;   /* i64 [S + 1]: a sequence's first row of C2 */
  hark_value units;            /* i64 [S + 1]: a sequence's first unit: chunks, or selected tokens */
  hark_value depth;            /* i32 [units] */
  hark_value score;            /* learned scores of the rows of C2 */
  hark_value probability;      /* [T], of learned boundaries, settled */
} hark_ahca_trace;

/* Which global tokens are selected: writes rows of `global`, or -1 for none, into index [S, Cs]. global [.., d''] as pooled, offsets i64 [S
 * + 1] those of sequences in its rows. Tensors are the backend's memory, good during the call. */
typedef hark_status hark_ahca_chooser(void *user, const hark_tensor *global, const hark_tensor *offsets, hark_tensor *index);

/* What the caller decides in place of the model's rules. */
typedef struct hark_ahca_given {
  /* i64 [K + 1]: first tokens of chunks and the row after the last, each sequence's first token among them; chunks within the
   * configuration's minimum (fixed: 1) and maximum, and of a sequence no more than the model's context has at most by the rule where there
   * are tables or a kernel of their positions. NULL: by the rule. */
  const hark_tensor *starts;
  hark_ahca_chooser *choose; /* NULL: by the configuration's selection */
  void *user;
  hark_tensor *index; /* i32 [S, Cs], which choose fills; the caller's until the backward is done */
  const hark_tensor
      *reference; /* [T]: what the straight-through estimator takes for the settled probabilities without their gradient, which makes
                                   an ordinary function of it (operators.h). NULL: these themselves */
  const hark_tensor
      *depth_scores;      /* f32, at least one number for each unit: with depth capacity, units are ranked by these in place of their own
                                      scores, and layers have no gates. NULL: by their own */
  bool without_smoothing; /* slots of learned chunks stay as they were pooled */
  bool without_straight_through; /* outputs of tokens have no gradient with respect to the boundaries' probabilities */
} hark_ahca_given;

/* `forward` must outlive the backward. As the architecture's logits, and with `trace` not NULL returns what was decided; the caller then
 * releases its values. */
HARK_MUST_CHECK hark_status hark_ahca_logits(hark_context *context, const hark_network *network, const hark_forward *forward,
                                             const hark_network_input *input, hark_value *logits, hark_ahca_trace *trace);

#endif
