/* latent.h - the networks of the excess risk analysis of X (Zhang et al., arXiv 2212.14852): sections 5.1 and C.1.
 *
 * Tokens X [L, d], as rows; d = d_p h. Weights W are stored as [out, in]: the transposes of the paper's matrices, and the transposes are
 * what the paper bounds.
 *
 *   transformer (C.1 - C.5), T layers:        Z = relu(X A^x) A^s + X;      X <- sum over heads of attention(Z W^q, Z W^k, Z W^v) + Z
 *   single (4.7, 5.1):                        X <- relu(X A), for the class encoding too
 *   aggregation: query                        p = sum over heads of attention(W^q msk, X W^k, X W^v) for a learned class encoding msk
 *                mean                         p = mean of the rows of X
 *   y = ball(W p)                             of radius `range` (assumption 5.2)
 *
 * Without skip connections, the terms + X and + Z are absent. W^v is d x d for every head. There is no bias, layer norm or dropout. The
 * kernel is exp(-|q - k|^2 / (2 sigma^2)) with sigma^2 = d_p as in (5.4), or with another sigma. With model.latent.norm, a projection after
 * every step keeps the norms of all matrices bounded (nn/norm_bound.h, assumption C.3). The bounds are those of the configuration; the last
 * W has an operator norm of at most 1 (assumption C.2), and msk a norm of at most 1.
 *
 * Parameters: features.weight [d, d] of single; blocks.T.feed_forward.{up,down}.weight [F, d], [d, F];
 * blocks.T.heads.I.{query,key,value}.weight [d_p, d] twice, [d, d]; aggregate.class.weight [1, d],
 * aggregate.heads.I.{query,key,value}.weight; head.weight [r, d].
 */
#ifndef HARK_MODELS_LATENT_H
#define HARK_MODELS_LATENT_H

#include "models/network.h"

typedef struct hark_latent_head {
  hark_linear query, key, value;
} hark_latent_head;

typedef struct hark_latent_layer {
  hark_linear up, down;
  hark_latent_head *heads; /* [heads] */
} hark_latent_layer;

typedef struct hark_latent_layers {
  hark_linear features;
  hark_parameter_id class_encoding; /* 0 with mean */
  hark_latent_layer *layers;        /* [layers]; NULL in single */
  hark_latent_head *aggregate;      /* [heads]; NULL with mean */
  size_t bytes;                     /* of the whole struct, one allocation */
} hark_latent_layers;

/* sigma^2 of (5.4) for heads of `head_dim` features. */
static inline double hark_latent_sigma_square(int64_t head_dim) { return (double)head_dim; }

#endif
