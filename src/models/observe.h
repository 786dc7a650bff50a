/* observe.h - one pass of a trained model over a text, in which the attention of every layer is seen. */
#ifndef HARK_MODELS_OBSERVE_H
#define HARK_MODELS_OBSERVE_H

#include "models/network.h"
#include "nn/attention_weights.h"

/* Receives the attention of a layer, in the order of the layers; a status other than HARK_OK ends the pass. */
typedef hark_status hark_attention_observer(void *user, const hark_attention_application *seen);

/* Reads `count` tokens (1 to the model's context) with a network whose architecture has blocks (decoder, encoder, masked_encoder); token
 * types are 0. What comes after the last block is not computed. Errors: those of the pass and of the observer. */
HARK_MUST_CHECK hark_status hark_network_observe(hark_context *context, const hark_network *network, const int32_t *tokens, int64_t count,
                                                 hark_attention_observer *observe, void *user);

/* Where the attention of heads goes: distances[(layer * heads + head) * length + d] is increased by the sum, over the queries, of the
 * weights of keys at distance d, for at most `length` tokens. Errors: as above, HARK_NOT_FINITE (weights). */
HARK_MUST_CHECK hark_status hark_network_add_distances(hark_context *context, const hark_network *network, const int32_t *tokens,
                                                       int64_t count, int64_t length, double *distances);

#endif
