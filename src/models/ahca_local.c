/* ahca_local.c - blocks on the tokens of every sequence, before it is cut into chunks. See ahca_pass.h.
 *
 *   x += attention(norm(x)) to the tokens at most `local_window` before and after;   x += feed_forward(norm(x))
 *
 * They are the blocks of a stack (stack.h), with rotary positions unless the model has no positions. Without them a token is the same row
 * of a table everywhere, so that a learned boundary depends on the pair of tokens next to it alone.
 *
 * Initial weights: those that write into x are such that all branches together are about as large as x, whatever the deviation e of
 * embedded tokens is: e / sqrt(2 layers) each. So boundaries begin with the probabilities of hark_boundaries_declare (boundaries.h).
 */
#include <math.h>

#include "models/ahca_pass.h"
#include "models/stack.h"

#define ROTARY_BASE 10000

static hark_self_attention_spec attention_of(const hark_network_config *config) {
  const double output = hark_ahca_content_deviation(config) / sqrt(2.0 * (double)config->ahca.local_layers);
  return (hark_self_attention_spec){.width = config->width,
                                    .heads = config->heads,
                                    .key_heads = config->heads,
                                    .head_dim = config->width / config->heads,
                                    .deviation = hark_ahca_deviation(config->width),
                                    .output_deviation = hark_ahca_deviation(config->width) * output,
                                    .rotary = {.present = config->positions != HARK_POSITIONS_NONE,
                                               .base = ROTARY_BASE,
                                               .pairs = HARK_ROTARY_HALF,
                                               .head_dim = config->width / config->heads},
                                    .choice = {.window = config->ahca.local_window},
                                    .structure = HARK_STRUCTURE_WINDOW,
                                    .bias = config->bias,
                                    .output_bias = config->bias};
}

hark_status hark_ahca_declare_local(hark_context *context, hark_network *network) {
  const hark_network_config *config = &network->config;
  if (config->ahca.local_layers == 0) return HARK_OK;
  const hark_self_attention_spec attention = attention_of(config);
  const double down = attention.output_deviation * sqrt((double)config->width / (double)config->feed_forward_width);
  void *memory = NULL;
  HARK_TRY(hark_allocate_zero(context, (size_t)config->ahca.local_layers * sizeof *network->local, &memory));
  network->local = memory;
  for (int64_t i = 0; i < config->ahca.local_layers; i++)
    HARK_TRY(hark_stack_declare_block(context, network, &attention, down, "local", i, &network->local[i]));
  return HARK_OK;
}

hark_status hark_ahca_mix_tokens(const hark_ahca_pass *p, hark_value *x) {
  const hark_network_config *config = &p->network->config;
  if (p->network->local == NULL) return HARK_OK;
  if (p->forward->plans == NULL || p->forward->packing == NULL)
    return hark_fail(p->context, HARK_INVALID_ARGUMENT, "ahca: local layers need attention plans and packed sequences, and there are none");
  return hark_stack_apply_blocks(p->context, p->network, p->forward, p->network->local, config->ahca.local_layers, config->layers, *x, x);
}
