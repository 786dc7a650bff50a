/* attention_choice.h - the attention of a model, in one struct that is passed whole from configurations to layers.
 *
 * A new member needs a row in models/model_options.h and its use in self_attention.c; no code between them copies single members.
 */
#ifndef HARK_NN_ATTENTION_CHOICE_H
#define HARK_NN_ATTENTION_CHOICE_H

#include <hark/attention.h>

#include "core/layer_choice.h"
#include "nn/kinds.h"

typedef struct hark_attention_choice {
  hark_layer_choice structure; /* hark_attention_structure of every layer */
  int64_t window;
  int64_t hierarchy_block;
  hark_hierarchy_partition partition;
  hark_coarse_query coarse_query;
  hark_hierarchy_interpolation interpolation;
  bool hierarchical_bias; /* learned, one table per head */
  hark_attention_kernel kernel;
  double sigma;
  bool forget_gate;
  bool unbiased;                   /* no biases in the projections, even if other layers have biases */
  hark_biased biased;              /* biases in the projections, where other layers have none */
  hark_layer_choice normalisation; /* hark_attention_normalisation of every layer */
  double ridge, ridge_power;       /* CME: lambda = ridge context^ridge_power; the initial value of every head where it is learned */
  bool ridge_learned, sigma_learned, unit;
  double dropout;               /* of attention weights */
  int64_t contextual_positions; /* rows of the table of positions that are counted by content; 0: none */
  int64_t grid_columns;         /* structure hierarchical: columns of the pictures whose pixels are the tokens; 0: no pictures */
  bool noise_learned;           /* CME: a noise of every key and head, from its token */
  /* structure compressed, as in hark_attention_desc */
  int64_t chunk, chunk_slots, selected_slots, kept_chunks, global_slots;
} hark_attention_choice;

#endif
