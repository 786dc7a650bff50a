/* encoder.h - the pre-norm encoder: whole sequences to one of several classes.
 *
 *   h = stack(tokens), where every token sees all others of its sequence;   p = pool(norm(h)), one vector per sequence
 *   one sequence:   logits = W2 relu(W1 p + b1) + b2                              W1 [F, D]
 *   two towers:     logits = W3 relu(W2 relu(W1 [p; q] + b1) + b2) + b3           W1 [F, 2 D], W2 [F / 2, F]; both with the same stack
 *
 * pool is the first row (pooling class: HARK_TOKEN_CLASS, inserted when batches are filled; first: a token of the data) or the mean over
 * all rows of the sequence. F is head_width. Long Range Arena's models (arXiv 2011.04006).
 *
 * Parameters: those of the stack (network.h), head.hidden.{weight,bias}, for pairs head.second.{weight,bias}, head.{weight,bias}. The
 * layers of the head always have biases.
 */
#ifndef HARK_MODELS_ENCODER_H
#define HARK_MODELS_ENCODER_H

#include "models/stack.h"

/* Rows of the longest sequence of an encoder for data of at most `context` tokens: one more with pooling class. */
static inline int64_t hark_encoder_rows(hark_pooling pooling, int64_t context) { return context + (pooling == HARK_POOLING_CLASS); }

/* Number of tokens inserted at the beginning of a sequence: 1 (HARK_TOKEN_CLASS) or 0. */
static inline int64_t hark_encoder_front(const hark_network_config *config) {
  return config->architecture == HARK_ARCHITECTURE_ENCODER && config->pooling == HARK_POOLING_CLASS;
}

/* Hidden features of the head. */
static inline int64_t hark_encoder_head_width(const hark_network_config *config) {
  return config->head_width != 0 ? config->head_width : config->feed_forward_width;
}

#endif
