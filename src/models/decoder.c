/* decoder.c - see decoder.h. */
#include "models/decoder.h"

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

hark_status hark_decoder_declare(hark_context *context, const hark_decoder_config *config, hark_type type, hark_decoder **out) {
  return hark_network_declare(context, config, type, out);
}

hark_status hark_decoder_create(hark_context *context, const hark_decoder_config *config, hark_type type, bool training,
                                hark_decoder **out) {
  return hark_network_create(context, config, type, training, out);
}

void hark_decoder_destroy(hark_context *context, hark_decoder **decoder) { hark_network_destroy(context, decoder); }

hark_status hark_decoder_plans_create(hark_context *context, const hark_decoder *decoder, int64_t batch, int64_t queries, int64_t keys,
                                      bool training, hark_attention_plan ***out) {
  const hark_pass_sizes sizes = {.batch = batch, .queries = queries, .keys = keys};
  return hark_network_plans_create(context, decoder, &sizes, training, out);
}

void hark_decoder_plans_destroy(hark_context *context, const hark_decoder *decoder, hark_attention_plan ***plans) {
  hark_network_plans_destroy(context, decoder, plans);
}

hark_status hark_decoder_logits(hark_context *context, const hark_decoder *decoder, const hark_forward *forward, hark_value tokens,
                                bool last_only, hark_value *logits) {
  hark_tape *tape = forward->tape;
  hark_value x = 0, y = 0;
  HARK_TRY(hark_stack_apply(context, decoder, forward, tokens, &x));
  if (last_only) {
    const hark_pool_attributes last = {.kind = HARK_POOL_LAST};
    HARK_TRY(hark_tape_apply(tape, &hark_op_pool, &last, 1, &x, 1, &x));
  }
  HARK_TRY(hark_norm_apply(forward, &decoder->final_norm, x, &y));
  hark_tape_release(tape, x);
  HARK_TRY(hark_linear_apply(forward, &decoder->head, y, logits));
  hark_tape_release(tape, y);
  return HARK_OK;
}

hark_status hark_decoder_loss(hark_context *context, const hark_decoder *decoder, const hark_forward *forward, hark_value tokens,
                              hark_value targets, double weight, double smoothing, hark_value *loss) {
  hark_value logits = 0;
  HARK_TRY(hark_decoder_logits(context, decoder, forward, tokens, false, &logits));
  HARK_TRY(hark_network_loss(forward->tape, logits, targets, weight, smoothing, loss));
  hark_tape_release(forward->tape, logits);
  return HARK_OK;
}

static hark_status all_logits(hark_context *context, const hark_network *network, const hark_forward *forward,
                              const hark_network_input *input, hark_value *logits) {
  return hark_decoder_logits(context, network, forward, input->tokens, false, logits);
}

const hark_architecture hark_architecture_decoder = {
    .name = "decoder",
    .summary = "causal; tells the next token, or the targets of tokens",
    .causal = true,
    .declare = declare,
    .logits = all_logits,
};
