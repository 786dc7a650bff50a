/* boundaries.c - see boundaries.h. */
#include "models/boundaries.h"

#include <hark/experimental.h>

#include "core/layer_choice.h"

hark_status hark_boundaries_declare(hark_context *context, hark_network *network, int64_t width, double deviation, hark_linear *query,
                                    hark_linear *key) {
  const hark_parameter_spec weight = {
      .rank = 2, .shape = {width, width}, .initial = HARK_INITIAL_IDENTITY, .decays = true, .compact = true};
  const hark_parameter_spec bias = {.rank = 1, .shape = {width}, .initial = HARK_INITIAL_CONSTANT, .value = deviation};
  static const char *const names[] = {"boundary.query", "boundary.key"};
  hark_linear *const layers[] = {query, key};
  for (int i = 0; i < 2; i++) {
    HARK_TRY(hark_parameters_add(context, &network->parameters, &weight, &layers[i]->weight, "%s.weight", names[i]));
    HARK_TRY(hark_parameters_add(context, &network->parameters, &bias, &layers[i]->bias, "%s.bias", names[i]));
  }
  return HARK_OK;
}

hark_status hark_boundaries_probability(const hark_forward *forward, const hark_linear *query, const hark_linear *key, hark_value x,
                                        hark_value offsets, hark_value *out) {
  hark_value inputs[3] = {0, 0, offsets};
  HARK_TRY(hark_linear_apply(forward, query, x, &inputs[0]));
  HARK_TRY(hark_linear_apply(forward, key, x, &inputs[1]));
  HARK_TRY(hark_tape_apply(forward->tape, &hark_op_boundary_probability, NULL, 3, inputs, 0, out));
  hark_tape_release(forward->tape, inputs[0]);
  hark_tape_release(forward->tape, inputs[1]);
  return HARK_OK;
}

/* ---- of decoders ---- */

bool hark_boundaries_are_learned(const hark_network *network) { return network->boundary_query.weight != 0; }

int64_t hark_boundaries_layer(const hark_network *network) {
  int64_t layer = 0;
  while (layer + 1 < network->config.layers && network->blocks[layer].attention.spec.structure != HARK_STRUCTURE_COMPRESSED) layer++;
  return layer;
}

/* The norm makes rows whose elements have about the deviation 1. */
hark_status hark_boundaries_declare_decoder(hark_context *context, hark_network *network) {
  const hark_network_config *config = &network->config;
  if (!hark_layer_choice_has(&config->attention.structure, HARK_STRUCTURE_COMPRESSED) || !config->attention.chunk_learned) return HARK_OK;
  HARK_TRY(hark_norm_declare(context, &network->parameters, config->norm, config->norm_epsilon, config->width, config->bias,
                             "boundary.norm", &network->boundary_norm));
  return hark_boundaries_declare(context, network, config->width, 1, &network->boundary_query, &network->boundary_key);
}

/* The decodings of the pass cut their own rows. */
static hark_status give_rows(const hark_network *network, const hark_forward *forward, hark_value x) {
  hark_value query = 0, key = 0;
  HARK_TRY(hark_linear_apply(forward, &network->boundary_query, x, &query));
  HARK_TRY(hark_linear_apply(forward, &network->boundary_key, x, &key));
  const hark_tensor *const queries = hark_tape_tensor(forward->tape, query), *const keys = hark_tape_tensor(forward->tape, key);
  const hark_forward_member alone = {.forward = forward, .first = 0, .count = queries->shape[1]};
  const hark_forward_member *const members = forward->group != NULL ? forward->group->members : &alone;
  for (int64_t i = 0; i < (forward->group != NULL ? forward->group->count : 1); i++)
    HARK_TRY(members[i].forward->learn(members[i].forward->learn_user, queries, keys, members[i].first, members[i].count));
  hark_tape_release(forward->tape, query);
  hark_tape_release(forward->tape, key);
  return HARK_OK;
}

/* The loss that keeps the mean length of chunks near the intended one. */
static hark_status add_ratio_loss(const hark_network *network, const hark_forward *forward, hark_value offsets, hark_value sequences,
                                  hark_value probability) {
  const hark_attention_choice *choice = &network->config.attention;
  if (forward->ratio_loss == NULL || choice->ratio_weight == 0) return HARK_OK;
  const hark_ratio_loss_attributes ratio = {.weight = choice->ratio_weight * forward->sequence_weight,
                                            .target = (double)hark_attention_chunk_mean(choice)};
  const hark_value inputs[] = {probability, offsets, sequences};
  return hark_tape_apply(forward->tape, &hark_op_ratio_loss, &ratio, 3, inputs, 0, forward->ratio_loss);
}

static hark_status cut(const hark_network *network, const hark_forward *forward, hark_value tokens, hark_value x,
                       hark_boundary_values *out) {
  enum { SCORE = 2, INPUTS };
  hark_tape *tape = forward->tape;
  const hark_chunk_ends ends = hark_attention_chunk_ends(&network->config.attention);
  const hark_packing *packing = forward->packing;
  const hark_sequence_offsets_attributes sequences = {.packed = packing != NULL, .segments = packing != NULL ? packing->segments : NULL};
  const hark_chunk_boundaries_attributes rule = {.rule = HARK_CHUNK_SCORE,
                                                 .rows = hark_tensor_count(hark_tape_tensor(tape, tokens)),
                                                 .minimum = ends.minimum,
                                                 .maximum = ends.maximum,
                                                 .threshold = HARK_BOUNDARY_THRESHOLD};
  hark_value inputs[INPUTS] = {0}, chunks[HARK_MAX_OUTPUTS] = {0};
  HARK_TRY(hark_tape_apply(tape, &hark_op_sequence_offsets, &sequences, 1, &tokens, 0, &inputs[0]));
  HARK_TRY(hark_boundaries_probability(forward, &network->boundary_query, &network->boundary_key, x, inputs[0], &inputs[SCORE]));
  HARK_TRY(hark_tape_apply(tape, &hark_op_chunk_boundaries, &rule, INPUTS, inputs, 0, chunks));
  const hark_value places[] = {tokens, chunks[0]}, settle[] = {inputs[SCORE], chunks[0]};
  HARK_TRY(hark_tape_apply(tape, &hark_op_chunk_flags, NULL, 2, places, 0, &out->flags));
  if (forward->training) {
    HARK_TRY(hark_tape_apply(tape, &hark_op_settled_probability, NULL, 2, settle, 0, &out->probability));
    HARK_TRY(add_ratio_loss(network, forward, inputs[0], chunks[1], out->probability));
    out->chunks = chunks[0];
  } else {
    hark_tape_release(tape, chunks[0]);
  }
  hark_tape_release(tape, chunks[1]);
  hark_tape_release(tape, inputs[0]);
  hark_tape_release(tape, inputs[SCORE]);
  return HARK_OK;
}

hark_status hark_boundaries_learn(const hark_network *network, const hark_forward *forward, hark_value tokens, hark_value x,
                                  hark_boundary_values *out) {
  hark_value rows = 0;
  *out = (hark_boundary_values){0};
  HARK_TRY(hark_norm_apply(forward, &network->boundary_norm, x, &rows));
  HARK_TRY(forward->caches != NULL || forward->group != NULL ? give_rows(network, forward, rows)
                                                             : cut(network, forward, tokens, rows, out));
  hark_tape_release(forward->tape, rows);
  return HARK_OK;
}

hark_status hark_boundaries_pass_through(const hark_forward *forward, hark_value probability, hark_value chunks, hark_value *x) {
  hark_value inputs[] = {*x, probability, chunks, 0}, through = 0;
  if (forward->boundary_reference != NULL) HARK_TRY(hark_tape_leaf(forward->tape, forward->boundary_reference, NULL, &inputs[3]));
  HARK_TRY(hark_tape_apply(forward->tape, &hark_op_straight_through, NULL, 4, inputs, 0, &through));
  hark_tape_release(forward->tape, *x);
  *x = through;
  return HARK_OK;
}
