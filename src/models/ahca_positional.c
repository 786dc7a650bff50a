/* ahca_positional.c - positional kernels of the distance in chunks. See ahca_pass.h.
 *
 *   chunks to selected tokens         logit += log G(|k - c|),        c the middle of the token's bin of the second pooling, in chunks
 *   slots of a chunk                  logit += log G(|i - j| / C1)
 *
 * One kernel for the model, whose parameters start for as many chunks as the context has. The selected tokens have other distances from
 * every chunk, so that their keys and values are gathered once for each chunk: K Cs rows.
 */
#include <hark/experimental.h>

#include "models/ahca_pass.h"
#include "models/stack.h"

hark_status hark_ahca_declare_positional(hark_context *context, hark_network *network) {
  const hark_network_config *config = &network->config;
  if (config->positional == NULL || config->positional[0] == '\0') return HARK_OK;
  HARK_TRY(hark_stack_open_positional(context, network, hark_max(2, hark_ahca_sizes_of(config).chunks)));
  return hark_positional_declare(context, &network->parameters, &network->positional_source, 0, "", &network->positional);
}

/* log G at `distances` distances of 1 / unit chunks. */
static hark_status table_of(const hark_ahca_pass *p, int64_t distances, int64_t unit, hark_value *out) {
  const hark_positional_layer *layer = &p->network->positional;
  const double stretch = layer->source->stretch != 0 ? layer->source->stretch : 1;
  const hark_positional_attributes attributes = {
      .expression = layer->source->list.items[0], .distances = distances, .stretch = stretch * (double)unit};
  hark_value parameters = 0;
  HARK_TRY(hark_forward_parameter(p->forward, layer->parameters, &parameters));
  return hark_ahca_apply_one(p, &hark_op_positional, &attributes, parameters, out);
}

/* Pairs of a chunk and a selected token of its sequence. */
static hark_status count_pairs(const hark_ahca_pass *p, int64_t *out) {
  *out = p->chunks * p->options->selected;
  if (hark_tape_tensor(p->tape, p->chunk_offsets)->data == NULL) return HARK_OK;
  int64_t chunks = 0, tokens = 0;
  *out = 0;
  for (int64_t s = 0; s <= p->sequences; s++) {
    int64_t chunk = 0, token = 0;
    HARK_TRY(hark_ahca_offset_at(p, p->chunk_offsets, s, &chunk));
    HARK_TRY(hark_ahca_offset_at(p, p->selected_offsets, s, &token));
    if (s > 0) *out += (chunk - chunks) * (token - tokens);
    chunks = chunk;
    tokens = token;
  }
  return HARK_OK;
}

hark_status hark_ahca_place_selected(hark_ahca_pass *p) {
  const hark_network_config *config = &p->network->config;
  if (p->network->positional.source == NULL) return HARK_OK;
  const hark_self_attention_spec within = {.choice = config->attention,
                                           .structure = (hark_attention_structure)hark_layer_choice_of(&config->attention.structure, 0)};
  const int64_t slots = p->options->primary_slots;
  hark_chunk_bias_attributes attributes = {.chunks = p->chunks};
  hark_value table = 0, outputs[HARK_MAX_OUTPUTS] = {0};
  HARK_TRY(table_of(p, hark_self_attention_distances(&within, slots), slots, &p->slot_kernel));
  if (!hark_ahca_has_global(config)) return HARK_OK;
  HARK_TRY(table_of(p, p->sizes.chunks, 1, &table));
  HARK_TRY(count_pairs(p, &attributes.pairs));
  const hark_value inputs[] = {table, p->chunk_offsets, p->index, p->selected_offsets, p->global_offsets, p->term};
  HARK_TRY(hark_ahca_apply(p, &hark_op_chunk_bias, &attributes, sizeof inputs / sizeof *inputs, inputs, outputs));
  hark_tape_release(p->tape, table);
  p->pair_bias = outputs[0];
  p->pair_place = outputs[1];
  p->pair_offsets = outputs[2];
  return HARK_OK;
}
