/* stack.h - the common part of most architectures: an embedding, blocks, a final norm.
 *
 *   x = embedding[token] (+ positions, types);   x = norm(x) with model.embedding_norm
 *   pre-norm:    x += attention(norm(x));       x += feed_forward(norm(x));     y = norm(x)
 *   post-norm:   x = norm(x + attention(x));    x = norm(x + feed_forward(x));  y = x
 *
 * Attention is causal if the architecture requires it. The blocks of packed sequences (hark_forward.packing) compute nothing for padding.
 */
#ifndef HARK_MODELS_STACK_H
#define HARK_MODELS_STACK_H

#include "models/network.h"

/* Standard deviation of initial weights: GPT-2's (Radford et al. 2019). */
#define HARK_INITIAL_DEVIATION 0.02

/* Standard deviation of a linear layer's initial weights under the configuration, for hark_linear_declare(). */
static inline double hark_stack_deviation(const hark_network_config *config) {
  return config->initialisation == HARK_INITIALISATION_XAVIER ? HARK_DEVIATION_XAVIER : HARK_INITIAL_DEVIATION;
}

/* Declares the parameters of embedding, blocks and final norm. Errors: those of parameters; HARK_BAD_CONFIGURATION, HARK_OUT_OF_MEMORY. */
HARK_MUST_CHECK hark_status hark_stack_declare(hark_context *context, hark_network *network);

/* Parses the expression of the positional kernel into the network's source. Initial parameters are chosen for distances up to `length`.
 * Errors: those of hark_positional_source_open(). */
HARK_MUST_CHECK hark_status hark_stack_open_positional(hark_context *context, hark_network *network, int64_t length);

/* The output of the last block through the final norm; post-norm stacks have none. x is released. */
HARK_MUST_CHECK hark_status hark_stack_finish(const hark_network *network, const hark_forward *forward, hark_value x, hark_value *out);

/* Tokens to the output of the last block, [B, L, D], before the final norm. */
HARK_MUST_CHECK hark_status hark_stack_apply(hark_context *context, const hark_network *network, const hark_forward *forward,
                                             hark_value tokens, hark_value *out);

/* The output of the last block to logits, through final norm and network->head; x is released. */
HARK_MUST_CHECK hark_status hark_stack_head(const hark_network *network, const hark_forward *forward, hark_value x, hark_value *logits);

/* Tokens to logits, through final norm and network->head: [B, L, V], or [n, V] of forward->logit_rows, or [B, V] for the last token of each
 * sequence. `forward` must outlive the backward. */
HARK_MUST_CHECK hark_status hark_stack_logits(hark_context *context, const hark_network *network, const hark_forward *forward,
                                              hark_value tokens, bool last_only, hark_value *logits);

/* Tokens to loss (hark_network_loss); the logits are released. targets [B, L], or [n] of forward->logit_rows. */
HARK_MUST_CHECK hark_status hark_stack_loss(hark_context *context, const hark_network *network, const hark_forward *forward,
                                            hark_value tokens, hark_value targets, hark_target_loss how, hark_value *loss);

/* Declares the parameters PREFIX.NUMBER.{attention_norm,attention,feed_forward_norm,feed_forward} of a block, with the norm, the
 * activation, the width and the biases of the configuration, and fills *block. Initial weights of the feed-forward layer have the
 * attention's deviation, its last ones down_deviation. Errors: those of parameters. */
HARK_MUST_CHECK hark_status hark_stack_declare_block(hark_context *context, hark_network *network,
                                                     const hark_self_attention_spec *attention, double down_deviation, const char *prefix,
                                                     int64_t number, hark_block *block);

/* x [1, T, D] of packed sequences through `count` blocks that are not the network's stack; x is released. forward->plans has a plan of each
 * block. first_layer: the number of the first block for the dropout's random numbers. Errors: those of the operators; HARK_CANCELLED. */
HARK_MUST_CHECK hark_status hark_stack_apply_blocks(hark_context *context, const hark_network *network, const hark_forward *forward,
                                                    const hark_block *blocks, int64_t count, int64_t first_layer, hark_value x,
                                                    hark_value *out);

/* The layer with the positional kernel's parameters for a block; its source is NULL if the model has no kernel. */
const hark_positional_layer *hark_stack_positional(const hark_network *network, int64_t block);

/* How the configured stack rotates queries and keys, without tables of rates. Fills *tuning and borrows it. */
hark_rotary_spec hark_stack_rotary(const hark_network_config *config, hark_rotary_tuning *tuning);

/* The learned rotary rates of a block; 0 where they are static. */
hark_parameter_id hark_stack_rates(const hark_network *network, int64_t block);

#endif
