/* masked_encoder.c - an encoder that predicts masked tokens (data/corpora/masking.h; Devlin et al. 2018, arXiv 1810.04805): the stack,
 * where every token sees all others, and the decoder's head.
 *
 * Its stack has the same names as the encoder's, so an encoder can be initialised with its weights (train.init_from).
 */
#include "models/stack.h"

static hark_status declare(hark_context *context, hark_network *network) { return hark_architecture_decoder.declare(context, network); }

static hark_status logits(hark_context *context, const hark_network *network, const hark_forward *forward, const hark_network_input *input,
                          hark_value *out) {
  return hark_architecture_decoder.logits(context, network, forward, input, out);
}

const hark_architecture hark_architecture_masked_encoder = {
    .name = "masked_encoder",
    .summary = "every token sees all others; predicts masked tokens, to pre-train encoders",
    .predicts_masked = true,
    .declare = declare,
    .logits = logits,
};
