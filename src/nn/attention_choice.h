/* attention_choice.h - how a model attends, in one struct that goes from configurations to layers as a whole.
 *
 * A new member has a row in models/model_options.h and its user in self_attention.c; nothing copies members one by one on the way.
 */
#ifndef HARK_NN_ATTENTION_CHOICE_H
#define HARK_NN_ATTENTION_CHOICE_H

#include <hark/attention.h>

#include "core/layer_choice.h"

typedef struct hark_attention_choice {
  hark_layer_choice structure; /* hark_attention_structure of every layer */
  int64_t window;
  int64_t hierarchy_block;
  hark_hierarchy_partition partition;
  hark_coarse_query coarse_query;
  bool hierarchical_bias; /* learned, one table a head */
  hark_attention_kernel kernel;
  double sigma;
  bool forget_gate;
  bool unbiased;                   /* no biases in the projections, whatever the model has elsewhere */
  hark_layer_choice normalisation; /* hark_attention_normalisation of every layer */
  double ridge, ridge_power;       /* CME: lambda = ridge context^ridge_power, where every head starts when it is learned */
  bool ridge_learned, sigma_learned, unit;
  double dropout; /* of attention weights */
} hark_attention_choice;

#endif
