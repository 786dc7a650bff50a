/* ahca.h - adaptive hierarchical compressed attention (Horner 2024) as a classifier of sequences; docs/mathematics/ahca.md.
 *
 *   x = embedding[token]                                              [T, D]      packed sequences
 *   chunks of every sequence, K in all                                            fixed, after a delimiter, at valleys of similarity, or learned
 *   C1_k = pool(W x + position in chunk)                              [K, C1, d']  (learned chunks: smoothed)
 *   C2   = pool(W C1 + chunk + slot), min(C2, chunks C1) a sequence   [.., d'']
 *   S    = the Cs of largest score s (or norm, product with the mean query, medoids)
 *   A_k  = softmax(norm(C1_k) Wq (norm(C2_S) Wk)^T / sqrt(d) + log sigmoid(s)) norm(C2_S) Wv Wo;   h = C1 + A
 *   h_k += F_1(h_k);  l = 2 .. L_k: h_k += sigmoid(a_k) F_l(h_k)      F: pre-norm self-attention of a chunk's slots and feed-forward
 *   logits = W2 relu(W1 mean(norm(h)) + b1) + b2
 *
 * Layers run on the chunks that have them, gathered: of capacity c, layer l has ceil(c^(l - 1) K) chunks of every sequence. In training all have all
 * layers for the first 40 % of the steps, and the capacity falls until 70 %. Memory is for the most chunks that the minimum length allows.
 *
 * It is no decoder: pools, selection, ranks and maxima over a sequence tell a token of those behind it.
 */
#ifndef HARK_MODELS_AHCA_H
#define HARK_MODELS_AHCA_H

#include "models/network.h"

/* Ids of what a pass found out, for reports: valid until the tape's next reset; 0: the model has none. */
typedef struct hark_ahca_trace {
  hark_value chunks;    /* i64 [K + 1]: first rows */
  hark_value sequences; /* i64 [S + 1]: first chunks */
  hark_value selected;  /* i32 [S Cs] rows of C2 */
  hark_value depth;     /* i32 [K] */
} hark_ahca_trace;

/* As the architecture's logits, and tells what was decided where `trace` is not NULL: its values are then the caller's to release. */
HARK_MUST_CHECK hark_status hark_ahca_logits(hark_context *context, const hark_network *network, const hark_forward *forward,
                                             const hark_network_input *input, hark_value *logits, hark_ahca_trace *trace);

#endif
