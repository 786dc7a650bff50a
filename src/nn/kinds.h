/* kinds.h - the words that choose between layers. The members of an enum are in the order of its words. */
#ifndef HARK_NN_KINDS_H
#define HARK_NN_KINDS_H

/* The words, for tables of options and descriptions of models. */
#define HARK_ACTIVATION_WORDS "gelu|gelu_tanh|relu|silu|gated_silu|gated_gelu|gated_gelu_tanh"
#define HARK_NORM_WORDS "layer_norm|rms_norm"
#define HARK_POSITIONS_WORDS "none|learned|sinusoidal|rotary"
#define HARK_POSITIONAL_SCOPE_WORDS "model|layer|head"
#define HARK_ROTARY_PAIRS_WORDS "interleaved|half"
#define HARK_ROTARY_LEARNED_WORDS "none|model|layer|head"
#define HARK_ROTARY_SCALING_WORDS "none|linear|ntk|yarn|llama3|dynamic|longrope"
#define HARK_ROTARY_RAMP_WORDS "pair|turns"
#define HARK_STRUCTURE_WORDS "dense|window|hierarchical|compressed"
#define HARK_PARTITION_WORDS "neighbour|sibling"
#define HARK_COARSE_QUERY_WORDS "default|mean|first|exact"
#define HARK_INTERPOLATION_WORDS "constant|linear"
#define HARK_KERNEL_WORDS "exp|rbf"
#define HARK_NORM_PLACE_WORDS "pre|post"
#define HARK_POOLING_WORDS "class|mean|first|pooler"
#define HARK_ENCODER_HEAD_WORDS "classes|embedding"
#define HARK_NORMALISATION_WORDS "softmax|cme|stick_breaking"
#define HARK_BIASED_WORDS "none|input|all"

typedef enum hark_activation {
  HARK_ACTIVATION_GELU,
  HARK_ACTIVATION_GELU_TANH,
  HARK_ACTIVATION_RELU,
  HARK_ACTIVATION_SILU,
  HARK_ACTIVATION_GATED_SILU,
  HARK_ACTIVATION_GATED_GELU,
  HARK_ACTIVATION_GATED_GELU_TANH
} hark_activation;

/* Which projections of attention have biases in a model whose other layers have none: queries, keys and values, or the output too. */
typedef enum hark_biased { HARK_BIASED_NONE, HARK_BIASED_INPUT, HARK_BIASED_ALL } hark_biased;

typedef enum hark_norm { HARK_NORM_LAYER, HARK_NORM_RMS } hark_norm;

/* x + f(norm(x)), or norm(x + f(x)) (Vaswani et al., arXiv 1706.03762; BERT). */
typedef enum hark_norm_place { HARK_NORM_PRE, HARK_NORM_POST } hark_norm_place;

typedef enum hark_positions {
  HARK_POSITIONS_NONE,
  HARK_POSITIONS_LEARNED,
  HARK_POSITIONS_SINUSOIDAL,
  HARK_POSITIONS_ROTARY
} hark_positions;

/* What represents a sequence: the row of HARK_TOKEN_CLASS, inserted at its beginning; the mean over its tokens; the row of its first
 * token; or that row h through the pooler, tanh(W h + b). */
typedef enum hark_pooling { HARK_POOLING_CLASS, HARK_POOLING_MEAN, HARK_POOLING_FIRST, HARK_POOLING_POOLER } hark_pooling;

/* The result of an encoder: logits of classes, or what represents the sequence. */
typedef enum hark_encoder_head { HARK_ENCODER_HEAD_CLASSES, HARK_ENCODER_HEAD_EMBEDDING } hark_encoder_head;

/* What has its own parameters of a positional kernel: the whole model, every layer, or every head of every layer. */
typedef enum hark_positional_scope { HARK_SCOPE_MODEL, HARK_SCOPE_LAYER, HARK_SCOPE_HEAD } hark_positional_scope;

/* What has its own learned rotary rates: nothing, the whole model, every layer, or every key head (with the query heads that share it). */
typedef enum hark_rotary_learned {
  HARK_ROTARY_STATIC,
  HARK_ROTARY_OF_MODEL,
  HARK_ROTARY_OF_LAYER,
  HARK_ROTARY_OF_HEAD
} hark_rotary_learned;

/* How static rates change in contexts longer than in training (nn/rotary.h). */
typedef enum hark_rotary_scaling {
  HARK_ROTARY_AS_TRAINED,
  HARK_ROTARY_LINEAR,
  HARK_ROTARY_NTK,
  HARK_ROTARY_YARN,
  HARK_ROTARY_LLAMA3,
  HARK_ROTARY_DYNAMIC,
  HARK_ROTARY_LONGROPE
} hark_rotary_scaling;

/* YaRN keeps a fraction of each rate. This fraction is linear in the pair's index (as in published programs) or in its number of turns (as
 * in the paper). */
typedef enum hark_rotary_ramp_unit { HARK_ROTARY_RAMP_PAIR, HARK_ROTARY_RAMP_TURNS } hark_rotary_ramp_unit;

#endif
