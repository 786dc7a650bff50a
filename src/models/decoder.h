/* decoder.h - the pre-norm decoder-only Transformer (GPT): next-token logits and loss.
 *
 *   x = embedding[token] (+ positions);   x += attention(norm(x));   x += feed_forward(norm(x));   logits = norm(x) head^T
 *
 * Parameters: those of the stack (network.h), and head.weight (absent when tied to embedding.token.weight).
 */
#ifndef HARK_MODELS_DECODER_H
#define HARK_MODELS_DECODER_H

#include "models/stack.h"

typedef hark_network_config hark_decoder_config;
typedef hark_network hark_decoder;

/* hark_network_declare(), _create() and _destroy() under the names that programs around decoders use. */
HARK_MUST_CHECK hark_status hark_decoder_declare(hark_context *context, const hark_decoder_config *config, hark_type type,
                                                 hark_decoder **out);
HARK_MUST_CHECK hark_status hark_decoder_create(hark_context *context, const hark_decoder_config *config, hark_type type, bool training,
                                                hark_decoder **out);
void hark_decoder_destroy(hark_context *context, hark_decoder **decoder);

/* One attention plan a layer, for rectangular passes of at most these sizes. */
HARK_MUST_CHECK hark_status hark_decoder_plans_create(hark_context *context, const hark_decoder *decoder, int64_t batch, int64_t queries,
                                                      int64_t keys, bool training, hark_attention_plan ***out);
void hark_decoder_plans_destroy(hark_context *context, const hark_decoder *decoder, hark_attention_plan ***plans);

/* tokens i32 [B, L] -> logits [B, L, V], or [B, V] of each sequence's last token. `forward` must outlive the backward. */
HARK_MUST_CHECK hark_status hark_decoder_logits(hark_context *context, const hark_decoder *decoder, const hark_forward *forward,
                                                hark_value tokens, bool last_only, hark_value *logits);

/* Tokens to loss (hark_network_loss); the logits are released. */
HARK_MUST_CHECK hark_status hark_decoder_loss(hark_context *context, const hark_decoder *decoder, const hark_forward *forward,
                                              hark_value tokens, hark_value targets, double weight, double smoothing, hark_value *loss);

#endif
