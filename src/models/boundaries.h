/* boundaries.h - learned boundaries of chunks: p[t] = (1 - cos(Wq x_t + bq, Wk x_{t - 1} + bk)) / 2. A chunk begins at t where p[t] is at
 * least 1/2, within its least and its most rows. Of ahca, and of compressed attention in decoders (docs/mathematics/compressed.md). */
#ifndef HARK_MODELS_BOUNDARIES_H
#define HARK_MODELS_BOUNDARIES_H

#include "models/network.h"

#define HARK_BOUNDARY_THRESHOLD 0.5

/* Declares "boundary.query" and "boundary.key" for rows x of `width` numbers of this deviation. Query and key begin as x plus one constant,
 * as large as x: q_t = x_t + e, k_{t-1} = x_{t-1} + e. Of elements that are independent and of deviation e, q . k is about d e^2 and |q|^2
 * and |k|^2 about 2 d e^2. So the cosine of neighbours is 1/2, within 0.7 / sqrt(d), and p about 1/4, whatever e is: boundaries are the
 * exception that has to be learned. Without the constant the cosine is about 0 and p about 1/2, every other token begins a chunk, and a
 * network that cuts everywhere labels every token correctly. Therefore these two layers have their bias in every model. */
HARK_MUST_CHECK hark_status hark_boundaries_declare(hark_context *context, hark_network *network, int64_t width, double deviation,
                                                    hark_linear *query, hark_linear *key);

/* p [rows] of rows x [..., width] in sequences with these offsets. x stays. */
HARK_MUST_CHECK hark_status hark_boundaries_probability(const hark_forward *forward, const hark_linear *query, const hark_linear *key,
                                                        hark_value x, hark_value offsets, hark_value *out);

/* ---- of decoders ---- */

/* Whether chunks of a decoder's compressed layers have learned boundaries. */
bool hark_boundaries_are_learned(const hark_network *network);
/* The first layer with compressed attention: its input decides about boundaries. */
int64_t hark_boundaries_layer(const hark_network *network);
HARK_MUST_CHECK hark_status hark_boundaries_declare_decoder(hark_context *context, hark_network *network);

/* What compressed layers read. With caches all are 0, and the decodings receive queries and keys (forward.h, `learn`). */
typedef struct hark_boundary_values {
  hark_value flags;               /* u8, of the shape of the tokens: where chunks begin */
  hark_value probability, chunks; /* in training: p [rows], 0 or 1 where the least or the most rows decided; offsets of chunks */
} hark_boundary_values;
/* Decides about the chunks of `tokens` by the input x of hark_boundaries_layer(), which stays; adds the ratio loss to the pass, where it is
 * requested (forward->ratio_loss). */
HARK_MUST_CHECK hark_status hark_boundaries_learn(const hark_network *network, const hark_forward *forward, hark_value tokens, hark_value x,
                                                  hark_boundary_values *out);
/* The output of a compressed layer's attention [B, L, width] with the straight-through factor, whose value is 1 (straight_through in
 * hark/experimental.h); *x is replaced. */
HARK_MUST_CHECK hark_status hark_boundaries_pass_through(const hark_forward *forward, hark_value probability, hark_value chunks,
                                                         hark_value *x);

#endif
