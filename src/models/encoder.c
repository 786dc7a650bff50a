/* encoder.c - see encoder.h. */
#include "models/encoder.h"

static hark_status declare_head(hark_context *context, hark_network *network) {
  const hark_network_config *config = &network->config;
  hark_parameters *parameters = &network->parameters;
  const int64_t parts = hark_max(1, config->parts), width = hark_encoder_head_width(config);
  const double deviation = hark_stack_deviation(config);
  HARK_TRY(hark_linear_declare(context, parameters, parts * config->width, width, true, deviation, "head.hidden", &network->hidden[0]));
  if (parts == 2) HARK_TRY(hark_linear_declare(context, parameters, width, width / 2, true, deviation, "head.second", &network->hidden[1]));
  return hark_linear_declare(context, parameters, parts == 2 ? width / 2 : width, config->classes, true, deviation, "head", &network->head);
}

static hark_status declare(hark_context *context, hark_network *network) {
  const hark_network_config *config = &network->config;
  HARK_TRY(hark_stack_declare(context, network));
  if (config->pooler)
    HARK_TRY(hark_linear_declare(context, &network->parameters, config->width, config->width, true, hark_stack_deviation(config), "pooler",
                                 &network->pooler));
  return config->head == HARK_ENCODER_HEAD_CLASSES ? declare_head(context, network) : HARK_OK;
}

/* *x <- tanh(W *x + b), for the rows of *x [N, D]. */
static hark_status apply_pooler(const hark_network *network, const hark_forward *forward, hark_value *x) {
  hark_value y = 0;
  HARK_TRY(hark_linear_apply(forward, &network->pooler, *x, &y));
  hark_tape_release(forward->tape, *x);
  return hark_tape_apply(forward->tape, &hark_op_tanh, NULL, 1, &y, 1, x);
}

/* The ranges of examples [N, parts, 2]; with layers that are for single embeddings as [N * parts, 1, 2], so that every part is a row. */
static hark_tensor ranges_of(const hark_network_input *input, const hark_encoder_pooling *pooling) {
  hark_tensor ranges = *input->ranges;
  if (!pooling->pooler && !pooling->normalise) return ranges;
  ranges.shape[0] *= ranges.shape[1];
  ranges.shape[1] = 1;
  ranges.stride[0] = 2;
  return ranges;
}

hark_status hark_encoder_pool(hark_context *context, const hark_network *network, const hark_forward *forward,
                              const hark_network_input *input, const hark_encoder_pooling *pooling, hark_value *out) {
  enum { ROWS, LENGTHS, RANGES, INPUTS }; /* of pool */
  const hark_pool_attributes attributes = {.kind = pooling->kind};
  hark_tape *tape = forward->tape;
  hark_value x = 0, pooled[INPUTS] = {0};
  if (input->ranges == NULL) return hark_fail(context, HARK_INVALID_ARGUMENT, "encoder: no ranges of examples, expected [N, parts, 2]");
  HARK_TRY(hark_stack_apply(context, network, forward, input->tokens, &x));
  HARK_TRY(hark_stack_finish(network, forward, x, &pooled[ROWS]));
  const hark_tensor ranges = ranges_of(input, pooling);
  HARK_TRY(hark_tape_leaf(tape, &ranges, NULL, &pooled[RANGES]));
  HARK_TRY(hark_tape_apply(tape, &hark_op_pool, &attributes, INPUTS, pooled, 1u << ROWS, out));
  if (pooling->pooler) HARK_TRY(apply_pooler(network, forward, out));
  return pooling->normalise ? hark_tape_apply(tape, &hark_op_unit_rows, NULL, 1, out, 1, out) : HARK_OK;
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
  const hark_encoder_pooling pooling = hark_encoder_pooling_of(&network->config);
  hark_tape *tape = forward->tape;
  hark_value x = 0;
  HARK_TRY(hark_encoder_pool(context, network, forward, input, &pooling, &x));
  *out = x;
  if (network->config.head == HARK_ENCODER_HEAD_EMBEDDING) return HARK_OK;
  HARK_TRY(hidden_layer(forward, &network->hidden[0], &x));
  if (network->hidden[1].weight != 0) HARK_TRY(hidden_layer(forward, &network->hidden[1], &x));
  HARK_TRY(hark_linear_apply(forward, &network->head, x, out));
  hark_tape_release(tape, x);
  return HARK_OK;
}

const hark_architecture hark_architecture_encoder = {
    .name = "encoder",
    .summary = "every token sees all others; predicts the class of a sequence, or of a pair of sequences, or computes its embedding",
    .predicts_classes = true,
    .declare = declare,
    .logits = logits,
};
