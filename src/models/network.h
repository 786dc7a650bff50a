/* network.h - what the trainer knows of a model: a network is a configuration, parameters, and an architecture, which says how they are used.
 *
 * An architecture is one file with a hark_architecture hark_architecture_NAME and one row of the table below; configuration, trainer,
 * checkpoints, evaluation and the command walk over the table. Most are made of the stack of blocks (stack.h) between an embedding and a head.
 *
 * Names of parameters: embedding.token.weight [V, D], embedding.position.weight [P, D], blocks.N.attention_norm.{weight,bias},
 * blocks.N.attention.{query,key,value,output,forget}.{weight,bias}, blocks.N.attention.{log_ridge,log_sigma} [heads],
 * blocks.N.feed_forward_norm.{weight,bias}, blocks.N.feed_forward.{gate,up,down}.{weight,bias},
 * positional.parameters or blocks.N.attention.positional.parameters [K, P],
 * rotary.rates or blocks.N.attention.rotary.rates [R, pairs], final_norm.{weight,bias}, and those of the architecture's head.
 */
#ifndef HARK_MODELS_NETWORK_H
#define HARK_MODELS_NETWORK_H

#include "models/network_config.h"
#include "nn/self_attention.h"

typedef struct hark_block {
  hark_norm_layer attention_norm, feed_forward_norm;
  hark_self_attention attention;
  hark_feed_forward feed_forward;
} hark_block;

#define HARK_HEAD_LAYERS 3

typedef struct hark_network {
  const struct hark_architecture *architecture;
  hark_network_config config;
  hark_parameters parameters;
  hark_block *blocks; /* [layers] */
  hark_positional_source positional_source;
  hark_positional_layer positional; /* of the whole model; absent in other scopes */
  hark_rotary_tuning rotary_tuning; /* of the configuration's scaling */
  hark_rotary_source rotary_source;
  hark_rotary_tables rotary_tables; /* of scaled rates */
  hark_parameter_id rotary_rates;   /* of the whole model; 0 in other scopes */
  hark_parameter_id token_table, position_table;
  hark_norm_layer final_norm;
  hark_linear head, hidden[HARK_HEAD_LAYERS - 1];
  /* Of the architectures of these names, which have no blocks; else NULL. */
  struct hark_ahca_layers *ahca;
  struct hark_latent_layers *latent;
  struct hark_finite_layers *finite;
} hark_network;

/* What architectures add to the loss, apart: each is a metric of its own. */
typedef enum hark_penalty { HARK_PENALTY_RATIO, HARK_PENALTY_PONDER, HARK_PENALTIES } hark_penalty;

/* What a pass reads. Rectangular: tokens [B, L], every row a sequence. Packed (hark_forward.packing): tokens [1, T], sequences one after the
 * other; `ranges` says where those of each example lie. */
typedef struct hark_network_input {
  hark_value tokens;         /* i32 */
  hark_value vectors;        /* f32 [1, T, features] of packed real vectors; 0: there are none */
  const hark_tensor *ranges; /* i64 [N, parts, 2]: first row of a sequence and the row after its last; NULL: nobody asks for examples */
  double remaining;          /* part of the training that is to come, 1 to 0; 0 in evaluation */
  double weight;             /* of a sequence in what the architecture adds to the loss */
  hark_value *penalty;       /* what the architecture adds to the loss (0: nothing); NULL: nobody asks for it */
  hark_value *penalties;     /* [HARK_PENALTIES] its summands, which stay (0: not there); NULL: nobody asks for them */
  const struct hark_ahca_given *given; /* of architecture ahca (ahca.h): what the caller decides; NULL: nothing */
  struct hark_ahca_trace *trace;       /* of architecture ahca: what was decided is put there; NULL: nobody asks */
} hark_network_input;

typedef struct hark_architecture {
  const char *name, *summary;
  const char *looks_ahead; /* how a token learns of those after it, besides attention; NULL: nothing */
  bool causal;             /* a token sees those before it alone */
  bool predicts_hidden;    /* tokens of the input that are hidden from it (data/masking.h) */
  bool predicts_classes;   /* logits [N, classes] of examples where the configuration has classes; else [B, L, V] or [1, T, V] of tokens */
  bool predicts_vectors;   /* reads vectors, and its logits are numbers [N, responses] of examples */
  bool may_read_vectors;   /* the same where the configuration has features, and reads tokens where it has none */
  /* Refuses a configuration that this architecture cannot have, beyond what all refuse. NULL: none. */
  hark_status (*check)(hark_context *context, const hark_network_config *config);
  /* Declares all parameters. */
  hark_status (*declare)(hark_context *context, hark_network *network);
  /* Gives back what declare allocated for the architecture alone, also after a declare that failed. NULL: nothing. */
  void (*close)(hark_context *context, hark_network *network);
  hark_status (*logits)(hark_context *context, const hark_network *network, const hark_forward *forward, const hark_network_input *input,
                        hark_value *logits);
} hark_architecture;

#define HARK_ARCHITECTURE_DECLARE(name, constant) extern const hark_architecture hark_architecture_##name;
HARK_ARCHITECTURES(HARK_ARCHITECTURE_DECLARE)
#undef HARK_ARCHITECTURE_DECLARE

/* The row of a kind; NULL outside of the table. */
const hark_architecture *hark_architecture_of(int kind);

/* Declares a network: its parameters have names and shapes and no memory yet, which hark_parameters_finish() gives them. Errors: as create. */
HARK_MUST_CHECK hark_status hark_network_declare(hark_context *context, const hark_network_config *config, hark_type type,
                                                 hark_network **out);
/* Declares and allocates a network; weights are zero until hark_parameters_initialise() or a checkpoint fills them.
 * Errors: HARK_BAD_CONFIGURATION with what does not fit together, HARK_OUT_OF_MEMORY. */
HARK_MUST_CHECK hark_status hark_network_create(hark_context *context, const hark_network_config *config, hark_type type, bool training,
                                                hark_network **out);
void hark_network_destroy(hark_context *context, hark_network **network);

/* One attention plan a layer of the stack; NULL for architectures without one. Destroyed with the network that they were made for. */
HARK_MUST_CHECK hark_status hark_network_plans_create(hark_context *context, const hark_network *network, const hark_pass_sizes *sizes,
                                                      bool training, hark_attention_plan ***out);
/* The same for rectangular passes of at most these sizes. */
HARK_MUST_CHECK hark_status hark_network_plans_rectangular(hark_context *context, const hark_network *network, int64_t batch,
                                                           int64_t queries, int64_t keys, bool training, hark_attention_plan ***out);
void hark_network_plans_destroy(hark_context *context, const hark_network *network, hark_attention_plan ***plans);

/* Loss of predicted numbers [N, responses]: weight * sum of squared errors. Both stay. */
HARK_MUST_CHECK hark_status hark_network_squared_error(hark_tape *tape, hark_value predictions, hark_value targets, double weight,
                                                       hark_value *loss);
/* Loss of targets i32 by logits [..., V]: weight * sum over the targets that are not -1 (see cross_entropy). Logits and targets stay. */
HARK_MUST_CHECK hark_status hark_network_loss(hark_tape *tape, hark_value logits, hark_value targets, double weight, double smoothing,
                                              hark_value *loss);

#endif
