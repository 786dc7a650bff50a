/* encoder.h - the encoder: whole sequences to one of several classes, or to an embedding.
 *
 *   h = stack(tokens), where every token sees all others of its sequence;   p = pool(h), one vector per sequence
 *   embedding:      p, or p / |p|
 *   one sequence:   logits = W2 relu(W1 p + b1) + b2                              W1 [F, D]
 *   two towers:     logits = W3 relu(W2 relu(W1 [p; q] + b1) + b2) + b3           W1 [F, 2 D], W2 [F / 2, F]; both with the same stack
 *
 * pool is the first row (pooling class: HARK_TOKEN_CLASS, inserted when batches are filled; first: a token of the data), that row h through
 * the pooler, tanh(W h + b) (BERT, arXiv 1810.04805), or the mean over all rows of the sequence (Reimers and Gurevych, arXiv 1908.10084).
 * F is head_width. Long Range Arena's models (arXiv 2011.04006).
 *
 * Parameters: those of the stack (network.h), pooler.{weight,bias}, head.hidden.{weight,bias}, for pairs head.second.{weight,bias},
 * head.{weight,bias}. The layers of the head always have biases.
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

/* How the rows of a sequence become one vector. */
typedef struct hark_encoder_pooling {
  hark_pool_kind kind;
  bool pooler;    /* the result through the network's pooler, which it must have */
  bool normalise; /* divided by its length */
} hark_encoder_pooling;

static inline hark_encoder_pooling hark_encoder_pooling_of(const hark_network_config *config) {
  return (hark_encoder_pooling){.kind = config->pooling == HARK_POOLING_MEAN ? HARK_POOL_MEAN : HARK_POOL_FIRST,
                                .pooler = config->pooling == HARK_POOLING_POOLER,
                                .normalise = config->normalise};
}

/* The embeddings of the examples of input->ranges, of any stack of blocks: [N, parts * D], or with pooler or normalise [N * parts, D], in
 * the same order, since every part has one of its own. Errors: HARK_INVALID_ARGUMENT (no ranges), those
 * of the stack. */
HARK_MUST_CHECK hark_status hark_encoder_pool(hark_context *context, const hark_network *network, const hark_forward *forward,
                                              const hark_network_input *input, const hark_encoder_pooling *pooling, hark_value *out);

/* Hidden features of the head. */
static inline int64_t hark_encoder_head_width(const hark_network_config *config) {
  return config->head_width != 0 ? config->head_width : config->feed_forward_width;
}

#endif
