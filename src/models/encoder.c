/* encoder.c - see encoder.h. */
#include "models/encoder.h"

static hark_status declare(hark_context *context, hark_network *network) {
  const hark_network_config *config = &network->config;
  hark_parameters *parameters = &network->parameters;
  const int64_t parts = hark_max(1, config->parts), width = hark_encoder_head_width(config);
  const double deviation = hark_stack_deviation(config);
  HARK_TRY(hark_stack_declare(context, network));
  HARK_TRY(hark_linear_declare(context, parameters, parts * config->width, width, true, deviation, "head.hidden", &network->hidden[0]));
  if (parts == 2) HARK_TRY(hark_linear_declare(context, parameters, width, width / 2, true, deviation, "head.second", &network->hidden[1]));
  return hark_linear_declare(context, parameters, parts == 2 ? width / 2 : width, config->classes, true, deviation, "head", &network->head);
}

/* *x <- relu(W *x + b) */
static hark_status hidden_layer(const hark_forward *forward, const hark_linear *layer, hark_value *x) {
  hark_value y = 0;
  HARK_TRY(hark_linear_apply(forward, layer, *x, &y));
  hark_tape_release(forward->tape, *x);
  return hark_tape_apply(forward->tape, &hark_op_relu, NULL, 1, &y, 1, x);
}

static hark_status logits(hark_context *context, const hark_network *network, const hark_forward *forward, const hark_network_input *input,
                          hark_value *out) {
  enum { ROWS, LENGTHS, RANGES, INPUTS }; /* of pool */
  const bool mean = network->config.pooling == HARK_POOLING_MEAN;
  const hark_pool_attributes pooling = {.kind = mean ? HARK_POOL_MEAN : HARK_POOL_FIRST};
  hark_tape *tape = forward->tape;
  hark_value x = 0, pooled[INPUTS] = {0};
  if (input->ranges == NULL) return hark_fail(context, HARK_INVALID_ARGUMENT, "encoder: no ranges of examples, expected [N, parts, 2]");
  HARK_TRY(hark_stack_apply(context, network, forward, input->tokens, &x));
  HARK_TRY(hark_norm_apply(forward, &network->final_norm, x, &pooled[ROWS]));
  hark_tape_release(tape, x);
  HARK_TRY(hark_tape_leaf(tape, input->ranges, NULL, &pooled[RANGES]));
  HARK_TRY(hark_tape_apply(tape, &hark_op_pool, &pooling, INPUTS, pooled, 1u << ROWS, &x));
  HARK_TRY(hidden_layer(forward, &network->hidden[0], &x));
  if (network->hidden[1].weight != 0) HARK_TRY(hidden_layer(forward, &network->hidden[1], &x));
  HARK_TRY(hark_linear_apply(forward, &network->head, x, out));
  hark_tape_release(tape, x);
  return HARK_OK;
}

const hark_architecture hark_architecture_encoder = {
    .name = "encoder",
    .summary = "every token sees all others; predicts the class of a sequence, or of a pair of sequences",
    .predicts_classes = true,
    .declare = declare,
    .logits = logits,
};
