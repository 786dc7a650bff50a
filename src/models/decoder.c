/* decoder.c - the pre-norm decoder-only Transformer (GPT): next-token logits.
 *
 *   x = embedding[token] (+ positions);   x += attention(norm(x));   x += feed_forward(norm(x));   logits = norm(x) head^T
 *
 * Parameters: those of the stack (network.h), and head.weight (absent when tied to embedding.token.weight).
 */
#include "models/stack.h"

static hark_status declare(hark_context *context, hark_network *network) {
  const hark_network_config *config = &network->config;
  HARK_TRY(hark_stack_declare(context, network));
  if (config->tie_embeddings) {
    network->head.weight = network->token_table;
    return HARK_OK;
  }
  return hark_linear_declare(context, &network->parameters, config->width, config->vocabulary, false, hark_stack_deviation(config), "head",
                             &network->head);
}

static hark_status all_logits(hark_context *context, const hark_network *network, const hark_forward *forward,
                              const hark_network_input *input, hark_value *logits) {
  return hark_stack_logits(context, network, forward, input->tokens, false, logits);
}

const hark_architecture hark_architecture_decoder = {
    .name = "decoder",
    .summary = "causal; predicts the next token, or the targets of tokens",
    .causal = true,
    .declare = declare,
    .logits = all_logits,
};
