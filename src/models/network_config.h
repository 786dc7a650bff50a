/* network_config.h - the configuration of a network: the options of its model, and what its data determine.
 *
 * The options have a table (model_options.h), whose keys are the paths of the members here: config.attention.window is attention.window. A
 * configuration of a training run holds this struct as its member `model`, a network has a copy, and a model's file describes it.
 */
#ifndef HARK_MODELS_NETWORK_CONFIG_H
#define HARK_MODELS_NETWORK_CONFIG_H

#include "core/string_list.h"
#include "models/ahca_config.h"
#include "models/latent_config.h"
#include "models/regressor_config.h"
#include "nn/attention_choice.h"
#include "nn/rotary.h"
#include "tokenizers/end_tokens.h"

/* The table: X(name in C and in configurations, name in constants). Files have the words, not the numbers. */
#define HARK_ARCHITECTURES(X)                                                                                                              \
  X(decoder, DECODER)                                                                                                                      \
  X(encoder, ENCODER)                                                                                                                      \
  X(masked_encoder, MASKED_ENCODER)                                                                                                        \
  X(ahca, AHCA)                                                                                                                            \
  X(latent, LATENT)                                                                                                                        \
  X(finite, FINITE)                                                                                                                        \
  X(regressor, REGRESSOR)

#define HARK_ARCHITECTURE_WORDS "decoder|encoder|masked_encoder|ahca|latent|finite|regressor"
typedef enum hark_architecture_kind {
#define HARK_ARCHITECTURE_KIND(name, constant) HARK_ARCHITECTURE_##constant,
  HARK_ARCHITECTURES(HARK_ARCHITECTURE_KIND)
#undef HARK_ARCHITECTURE_KIND
      HARK_ARCHITECTURE_COUNT
} hark_architecture_kind;

#define HARK_MODEL_TYPE_WORDS "gpt"
typedef enum hark_model_type { HARK_MODEL_GPT } hark_model_type;

/* Deviation of the initial weights of linear layers. */
#define HARK_INITIALISATION_WORDS "gpt2|xavier"
typedef enum hark_initialisation {
  HARK_INITIALISATION_GPT2,  /* 0.02, and 0.02 / sqrt(2 layers) into the residual stream (Radford et al. 2019) */
  HARK_INITIALISATION_XAVIER /* sqrt(2 / (in + out)) */
} hark_initialisation;

/* Rotary positions. */
typedef struct hark_rotary_choice {
  double base; /* of sinusoidal positions too */
  hark_rotary_pairs pairs;
  hark_rotary_learned learned;
  double fraction; /* fraction of the pairs that rotate; 0: 1 */
  hark_rotary_scaling scaling;
  double scaling_factor;    /* 0: 1 */
  int64_t original_context; /* that the scaling refers to; 0: context */
  hark_rotary_ramp_unit ramp;
  double beta_fast, beta_slow; /* 0: as published */
  bool truncate;
  double attention_factor, mscale, mscale_all_dim;
  double low_freq_factor, high_freq_factor;        /* 0: as published */
  hark_string_list short_factor, long_factor;      /* the texts of the option */
  hark_rotary_factors short_factors, long_factors; /* not options: the numbers of these texts */
} hark_rotary_choice;

typedef struct hark_network_config {
  /* Options. */
  hark_model_type type;
  int architecture; /* hark_architecture_kind */
  int64_t layers, heads, key_heads, width, feed_forward_width, context;
  hark_activation activation;
  hark_norm norm;
  double norm_epsilon;
  int64_t attention_width; /* features of the queries of all heads, head_dim * heads; 0: width */
  int64_t head_width;      /* hidden features of an encoder's head; 0: feed_forward_width */
  hark_pooling pooling;    /* of encoders */
  hark_encoder_head head;
  hark_norm_place norm_place;
  int64_t token_types; /* 0: none */
  hark_positions positions;
  const char *positional;    /* expression of a positional kernel (hark/positional.h); NULL or "": none */
  double positional_stretch; /* s: the kernel is G(distance / s); 0: 1 */
  hark_positional_scope positional_scope;
  hark_initialisation initialisation;
  double dropout, embedding_dropout;
  double embedding_deviation; /* of initial embeddings of tokens; 0: HARK_INITIAL_DEVIATION */
  bool tie_embeddings, bias, recompute;
  bool embedding_norm, pooler, normalise; /* the latter two of encoders */
  hark_rotary_choice rotary;
  hark_attention_choice attention;
  hark_ahca_config ahca;           /* of architecture ahca */
  hark_latent_config latent;       /* of architecture latent */
  hark_finite_config finite;       /* of architecture finite */
  hark_regressor_config regressor; /* of architecture regressor */
  /* What the data determine. */
  int64_t vocabulary;          /* tokens */
  int64_t classes, parts;      /* classes to predict; sequences per example, 0: 1 */
  int64_t features, responses; /* of a real vector; numbers to predict per example, or per query of a table */
  bool sentences;              /* texts begin with HARK_TOKEN_BEGIN and end with their line; networks do not use it */
  bool unreserved;             /* numbers of tokens are another program's: none is reserved. Networks do not use it */
  hark_end_tokens ends;        /* likewise */
  int64_t text_limit;          /* of sentence-transformers: tokens of a text, at most; 0: the context. Likewise */
} hark_network_config;

/* Features of a head of attention. */
static inline int64_t hark_network_head_dim(const hark_network_config *config) {
  return (config->attention_width != 0 ? config->attention_width : config->width) / config->heads;
}

/* The numbers of the chosen scaling; those of other scalings are 0. */
hark_rotary_tuning hark_network_rotary_tuning(const hark_rotary_choice *rotary);

#endif
