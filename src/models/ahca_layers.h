/* ahca_layers.h - the layers of an AHCA model, which ahca.c declares and ahca_pass.c applies. */
#ifndef HARK_MODELS_AHCA_LAYERS_H
#define HARK_MODELS_AHCA_LAYERS_H

#include <hark/experimental.h>

#include "models/network.h"

/* Sizes that follow from a configuration. */
typedef struct hark_ahca_sizes {
  int64_t primary_width, secondary_width; /* d', d'' */
  int64_t minimum, maximum;               /* rows of a chunk */
  int64_t chunks;                         /* of a sequence of the model's context, at most */
} hark_ahca_sizes;
hark_ahca_sizes hark_ahca_sizes_of(const hark_network_config *config);

/* The head, with HARK_AHCA_HEAD_DATA replaced by what it means. */
static inline hark_ahca_head hark_ahca_head_of(const hark_network_config *config) {
  if (config->ahca.head != HARK_AHCA_HEAD_DATA) return (hark_ahca_head)config->ahca.head;
  return config->features > 0 ? HARK_AHCA_HEAD_REGRESSION : HARK_AHCA_HEAD_CLASSES;
}
static inline bool hark_ahca_has_token_head(const hark_network_config *config) {
  return config->ahca.head == HARK_AHCA_HEAD_LABELS || config->ahca.head == HARK_AHCA_HEAD_RECONSTRUCTION;
}

/* Chunks attend to selected tokens; without any there is no second level. */
static inline bool hark_ahca_has_global(const hark_network_config *config) { return config->ahca.selected > 0; }

typedef struct hark_ahca_attention {
  hark_linear query, key, value, output;
} hark_ahca_attention;

/* A chunk's slots attend to the selected tokens. */
typedef struct hark_ahca_join_layer {
  hark_norm_layer norm;
  hark_ahca_attention attention;
} hark_ahca_join_layer;

typedef struct hark_ahca_layer {
  hark_ahca_join_layer join;
  hark_linear linear; /* of HARK_AHCA_LAYER_LINEAR, which has nothing of what follows */
  hark_norm_layer attention_norm, feed_forward_norm;
  hark_ahca_attention attention;
  hark_feed_forward feed_forward;
} hark_ahca_layer;

/* A linear layer, or two with an activation between them. */
typedef struct hark_ahca_compressor {
  hark_linear first, second; /* the latter absent in one of one */
} hark_ahca_compressor;

/* Tokens attend to the slots of their chunk and to the selected tokens of their sequence. */
typedef struct hark_ahca_token_head {
  hark_norm_layer query_norm, norm; /* norm: of the sum */
  hark_parameter_id position_table, chunk_table;
  hark_ahca_attention slots, selected;
} hark_ahca_token_head;

typedef struct hark_ahca_layers {
  hark_ahca_compressor primary, secondary;
  hark_linear features; /* of real vectors, in the place of the table of tokens */
  hark_linear boundary_query, boundary_key, primary_key, secondary_key, select, depth, from_selected;
  hark_ahca_token_head token;
  hark_parameter_id in_chunk_table, chunk_table, slot_table, primary_queries, secondary_queries;
  hark_norm_layer secondary_norm, depth_norm;
  hark_ahca_layer layers[HARK_MAX_DEPTH];
} hark_ahca_layers;

/* Refuses what does not fit together. Errors: HARK_BAD_CONFIGURATION. */
HARK_MUST_CHECK hark_status hark_ahca_check(hark_context *context, const hark_network_config *config);

/* The deviation of an element of x, an embedded token. Vectors whose numbers are of size 1 have 1 (`embedding.features`). */
double hark_ahca_content_deviation(const hark_network_config *config);

/* Deviations of initial weights: of a linear layer that preserves the size of its input, and of tables in queries of tokens. */
double hark_ahca_deviation(int64_t in);
#define HARK_AHCA_TABLE_DEVIATION 0.1

/* Declarations of local blocks, the positional kernel and the head, which ahca.c calls, and functions that these share. */
HARK_MUST_CHECK hark_status hark_ahca_declare_local(hark_context *context, hark_network *network);
HARK_MUST_CHECK hark_status hark_ahca_declare_positional(hark_context *context, hark_network *network);
HARK_MUST_CHECK hark_status hark_ahca_declare_head(hark_context *context, hark_network *network);
HARK_MUST_CHECK hark_status hark_ahca_declare_table(hark_context *context, hark_network *network, const char *name, int64_t rows,
                                                    int64_t width, double deviation, hark_parameter_id *out);
HARK_MUST_CHECK hark_status hark_ahca_declare_linear(hark_context *context, hark_network *network, const char *name, int64_t in,
                                                     int64_t out, double deviation, hark_linear *layer);
HARK_MUST_CHECK hark_status hark_ahca_declare_norm(hark_context *context, hark_network *network, const char *name, int64_t width,
                                                   hark_norm_layer *layer);
/* Features of queries, of keys and values, and of the output; inside attention has those of a slot. */
typedef struct hark_ahca_widths {
  int64_t query, key, output;
} hark_ahca_widths;
/* With a query of width 0, query and key are left out: with one key there is nothing to weigh. */
HARK_MUST_CHECK hark_status hark_ahca_declare_attention(hark_context *context, hark_network *network, const char *prefix,
                                                        const hark_ahca_widths *widths, hark_ahca_attention *attention);

#endif
