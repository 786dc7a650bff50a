/* decoder.h - the pre-norm decoder-only Transformer (GPT): next-token logits and loss.
 *
 *   x = embedding[token] (+ positions);   x += attention(norm(x));   x += feed_forward(norm(x));   logits = norm(x) head^T
 *
 * Names of parameters: embedding.token.weight [V, D], embedding.position.weight [P, D], blocks.N.attention_norm.{weight,bias},
 * blocks.N.attention.{query,key,value,output,forget}.{weight,bias}, blocks.N.feed_forward_norm.{weight,bias},
 * blocks.N.feed_forward.{gate,up,down}.{weight,bias}, positional.parameters or blocks.N.attention.positional.parameters [K, P],
 * rotary.rates or blocks.N.attention.rotary.rates [R, pairs],
 * blocks.N.attention.{log_ridge,log_sigma} [heads], final_norm.{weight,bias}, head.weight (absent when tied to embedding.token.weight).
 */
#ifndef HARK_MODELS_DECODER_H
#define HARK_MODELS_DECODER_H

#include "nn/self_attention.h"

typedef struct hark_decoder_config {
  int64_t vocabulary, layers, heads, key_heads, width, feed_forward_width, context;
  hark_activation activation;
  hark_norm norm;
  double norm_epsilon;
  hark_positions positions;
  double rotary_base; /* of rotary and of sinusoidal positions */
  hark_rotary_pairs rotary_pairs;
  hark_rotary_learned rotary_learned;
  hark_rotary_scaling rotary_scaling;
  double rotary_factor;            /* of the scaling; 0: 1 */
  int64_t rotary_original_context; /* that it refers to; 0: context */
  double rotary_fraction;          /* of the pairs that turn; 0: 1 */
  bool tie_embeddings, bias, recompute;
  double dropout, embedding_dropout, attention_dropout;
  hark_attention_structure structure;
  int64_t hierarchy_block;
  hark_hierarchy_partition partition;
  hark_coarse_query coarse_query;
  bool hierarchical_bias;
  int64_t window;
  hark_attention_kernel kernel;
  double sigma;
  bool forget_gate;
  hark_attention_normalisation normalisation;
  double ridge, ridge_power; /* CME: lambda = ridge context^ridge_power */
  bool ridge_learned, sigma_learned, unit;
  hark_positional_scope positional_scope;
  const char *positional;    /* expression of a positional kernel (hark/positional.h); NULL or "": none. Read by create alone */
  double positional_stretch; /* s: the kernel is G(distance / s); 0: 1 */
} hark_decoder_config;

typedef struct hark_decoder_block {
  hark_norm_layer attention_norm, feed_forward_norm;
  hark_self_attention attention;
  hark_feed_forward feed_forward;
} hark_decoder_block;

typedef struct hark_decoder {
  hark_decoder_config config;
  hark_parameters parameters;
  hark_decoder_block *blocks; /* [layers] */
  hark_positional_source positional_source;
  hark_positional_layer positional; /* of the whole model; absent in other scopes */
  hark_rotary_source rotary_source;
  hark_parameter_id rotary_rates; /* of the whole model; 0 in other scopes */
  hark_parameter_id token_table, position_table;
  hark_norm_layer final_norm;
  hark_linear head;
} hark_decoder;

/* Declares a model: its parameters have names and shapes and no memory yet, which hark_parameters_finish() gives them. Errors: as create. */
HARK_MUST_CHECK hark_status hark_decoder_declare(hark_context *context, const hark_decoder_config *config, hark_type type,
                                                 hark_decoder **out);
/* Declares and allocates a model; weights are zero until hark_parameters_initialise() or a checkpoint fills them.
 * Errors: HARK_BAD_CONFIGURATION with what does not fit together, HARK_OUT_OF_MEMORY. */
HARK_MUST_CHECK hark_status hark_decoder_create(hark_context *context, const hark_decoder_config *config, hark_type type, bool training,
                                                hark_decoder **out);
void hark_decoder_destroy(hark_context *context, hark_decoder **decoder);

/* One attention plan a layer, for passes of at most these sizes. */
HARK_MUST_CHECK hark_status hark_decoder_plans_create(hark_context *context, const hark_decoder *decoder, int64_t batch, int64_t queries,
                                                      int64_t keys, bool training, hark_attention_plan ***out);
void hark_decoder_plans_destroy(hark_context *context, const hark_decoder *decoder, hark_attention_plan ***plans);

/* The layer that holds the positional kernel's parameters for a block; its source is NULL where the model has no kernel. */
const hark_positional_layer *hark_decoder_positional(const hark_decoder *decoder, int64_t block);

/* How a configured decoder turns queries and keys. */
hark_rotary_spec hark_decoder_rotary(const hark_decoder_config *config);

/* The learned rates that a block turns by; 0 where they are static. */
hark_parameter_id hark_decoder_rates(const hark_decoder *decoder, int64_t block);

/* tokens i32 [B, L] -> logits [B, L, V], or [B, V] of each sequence's last token. `forward` must outlive the backward. */
HARK_MUST_CHECK hark_status hark_decoder_logits(hark_context *context, const hark_decoder *decoder, const hark_forward *forward,
                                                hark_value tokens, bool last_only, hark_value *logits);

/* Loss of targets i32 [B, L] by logits [B, L, V]: weight * sum over the targets that are not -1 (see cross_entropy). Logits and targets stay. */
HARK_MUST_CHECK hark_status hark_decoder_loss_of_logits(hark_tape *tape, hark_value logits, hark_value targets, double weight,
                                                        double smoothing, hark_value *loss);

/* Tokens to loss; the logits are released. */
HARK_MUST_CHECK hark_status hark_decoder_loss(hark_context *context, const hark_decoder *decoder, const hark_forward *forward,
                                              hark_value tokens, hark_value targets, double weight, double smoothing, hark_value *loss);

#endif
