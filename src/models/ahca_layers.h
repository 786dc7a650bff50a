/* ahca_layers.h - the layers of an AHCA model, which ahca.c declares and ahca_pass.c applies. */
#ifndef HARK_MODELS_AHCA_LAYERS_H
#define HARK_MODELS_AHCA_LAYERS_H

#include <hark/operators.h>

#include "models/network.h"

/* What follows from a configuration. */
typedef struct hark_ahca_sizes {
  int64_t primary_width, secondary_width; /* d', d'' */
  int64_t minimum, maximum;               /* rows of a chunk */
  int64_t chunks;                         /* of a sequence of the model's context, at most */
} hark_ahca_sizes;
hark_ahca_sizes hark_ahca_sizes_of(const hark_network_config *config);

typedef struct hark_ahca_attention {
  hark_linear query, key, value, output;
} hark_ahca_attention;

/* A chunk's slots ask the selected tokens. */
typedef struct hark_ahca_join_layer {
  hark_norm_layer norm;
  hark_ahca_attention attention;
} hark_ahca_join_layer;

typedef struct hark_ahca_layer {
  hark_ahca_join_layer join;
  hark_norm_layer attention_norm, feed_forward_norm;
  hark_ahca_attention attention;
  hark_feed_forward feed_forward;
} hark_ahca_layer;

typedef struct hark_ahca_layers {
  hark_linear boundary_query, boundary_key, primary, primary_key, secondary, secondary_key, select, depth;
  hark_parameter_id in_chunk_table, chunk_table, slot_table, primary_queries, secondary_queries;
  hark_norm_layer secondary_norm, depth_norm;
  hark_ahca_layer layers[HARK_MAX_DEPTH];
} hark_ahca_layers;

#endif
