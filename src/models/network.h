/* network.h - a model as the trainer sees it: a configuration, parameters, and an architecture, which defines how they are used.
 *
 * An architecture is one file with a hark_architecture hark_architecture_NAME, and one row of the table HARK_ARCHITECTURES, which
 * configuration, trainer, checkpoints, evaluation and the command use. Most are a stack of blocks (stack.h) between an embedding and a
 * head.
 *
 * Names of parameters: embedding.token.weight [V, D], embedding.position.weight [P, D], embedding.type.weight [types, D],
 * embedding_norm.{weight,bias}, blocks.N.attention_norm.{weight,bias},
 * blocks.N.attention.{query,key,value,output,forget,noise}.{weight,bias}, blocks.N.attention.{log_ridge,log_sigma} [heads],
 * blocks.N.feed_forward_norm.{weight,bias}, blocks.N.feed_forward.{gate,up,down}.{weight,bias},
 * positional.parameters or blocks.N.attention.positional.parameters [K, P],
 * rotary.rates or blocks.N.attention.rotary.rates [R, pairs], final_norm.{weight,bias}, boundary.norm.{weight,bias},
 * boundary.{query,key}.{weight,bias}, and those of the architecture's head. The local
 * blocks of ahca are local.N with the same parts. Regressors: regressor.h.
 */
#ifndef HARK_MODELS_NETWORK_H
#define HARK_MODELS_NETWORK_H

#include "models/network_config.h"
#include "nn/self_attention.h"

typedef struct hark_block {
  hark_norm_layer attention_norm, feed_forward_norm;
  hark_self_attention attention;
  hark_feed_forward feed_forward;
  bool post; /* the norms are after the sums */
} hark_block;

#define HARK_HEAD_LAYERS 3

typedef struct hark_network {
  const struct hark_architecture *architecture;
  hark_network_config config;
  hark_parameters parameters;
  hark_block *blocks; /* [layers]; NULL: the architecture is no stack */
  hark_block *local;  /* [ahca.local_layers], on the tokens of architecture ahca; NULL: none */
  hark_positional_source positional_source;
  hark_positional_layer positional; /* of the whole model; absent in other scopes */
  hark_rotary_tuning rotary_tuning; /* of the configuration's scaling */
  hark_rotary_source rotary_source;
  hark_rotary_tables rotary_tables; /* of scaled rates */
  hark_parameter_id rotary_rates;   /* of the whole model; 0 in other scopes */
  hark_parameter_id token_table, position_table, type_table;
  hark_norm_layer embedding_norm; /* absent: weight 0 */
  hark_norm_layer final_norm;     /* absent in post-norm stacks */
  hark_norm_layer boundary_norm;  /* of learned boundaries of compressed attention (boundaries.h), also the next line; absent: weight 0 */
  hark_linear boundary_query, boundary_key;
  hark_linear head, hidden[HARK_HEAD_LAYERS - 1];
  hark_linear pooler; /* of encoders; absent: weight 0 */
  /* Layers of the architectures with these names, which have no blocks; otherwise NULL. */
  struct hark_ahca_layers *ahca;
  struct hark_latent_layers *latent;
  struct hark_finite_layers *finite;
  struct hark_regressor_layers *regressor;
} hark_network;

/* Tables of a pass (regressor.h): T rows, of which C are context and the others queries. Rows of context come first, table after table;
 * then the queries in the same order. Leaves of the tape. */
typedef struct hark_network_tables {
  int64_t count;                             /* tables, N */
  hark_value context, targets, queries;      /* f32 [C, features], [C, responses], [T - C, features] */
  hark_value level;                          /* f32 [T - C, responses], where targets are classes: log frequencies in the context */
  hark_value context_offsets, query_offsets; /* i64 [N + 1]: rows of each table */
} hark_network_tables;

/* Terms that architectures add to the loss; each is a separate metric. */
typedef enum hark_penalty { HARK_PENALTY_RATIO, HARK_PENALTY_PONDER, HARK_PENALTIES } hark_penalty;

/* The input of a pass. Rectangular: tokens [B, L], every row a sequence. Packed (hark_forward.packing): tokens [1, T], sequences one after
 * the other; `ranges` has the rows of each example. */
typedef struct hark_network_input {
  hark_value tokens;                 /* i32 */
  hark_value vectors;                /* f32 [1, T, features] of packed real vectors; 0: tokens */
  const hark_network_tables *tables; /* of architectures that read tables, in place of all above and below it; NULL: none */
  const hark_tensor *ranges; /* i64 [N, parts, 2]: first row of a sequence and the row after its last; NULL: no results per example */
  double remaining;          /* fraction of the training that remains, 1 to 0; 0 in evaluation */
  double weight;             /* of a sequence in the terms that the architecture adds to the loss */
  hark_value *penalty;       /* the sum of the terms that the architecture adds to the loss (0: none); NULL: not computed */
  hark_value *penalties;     /* [HARK_PENALTIES] these terms, which are not released (0: absent); NULL: not returned */
  const struct hark_ahca_given *given; /* of architecture ahca (ahca.h): decisions of the caller; NULL: none */
  struct hark_ahca_trace *trace;       /* of architecture ahca: receives the decisions; NULL: not returned */
} hark_network_input;

typedef struct hark_architecture {
  const char *name, *summary;
  const char *looks_ahead; /* how later tokens reach a token, besides attention; NULL: they do not */
  bool causal;             /* a token sees only previous tokens */
  bool predicts_masked;    /* masked tokens of the input (data/corpora/masking.h) */
  bool predicts_classes; /* logits [N, classes] of examples if the configuration has classes; otherwise [B, L, V] or [1, T, V] of tokens */
  bool predicts_vectors; /* reads real vectors; its logits are numbers [N, responses] of examples */
  bool reads_tables; /* predicts_vectors, but of tables: a mean and a logarithm of a variance for every response of a query, or logits */
  bool may_read_vectors; /* the same if the configuration has features; otherwise it reads tokens */
  /* Refuses numbers of the architecture's own options that are out of range. NULL: it has none. Rules between options: model_rules.h. */
  hark_status (*check)(hark_context *context, const hark_network_config *config);
  /* Declares all parameters. */
  hark_status (*declare)(hark_context *context, hark_network *network);
  /* Releases what declare allocated for this architecture, also after a declare that failed. NULL: nothing. */
  void (*close)(hark_context *context, hark_network *network);
  hark_status (*logits)(hark_context *context, const hark_network *network, const hark_forward *forward, const hark_network_input *input,
                        hark_value *logits);
} hark_architecture;

#define HARK_ARCHITECTURE_DECLARE(name, constant) extern const hark_architecture hark_architecture_##name;
HARK_ARCHITECTURES(HARK_ARCHITECTURE_DECLARE)
#undef HARK_ARCHITECTURE_DECLARE

/* The row of a kind; NULL if there is none. */
const hark_architecture *hark_architecture_of(int kind);

/* Declares a network: its parameters have names and shapes, but no memory before hark_parameters_finish(). Errors: as create. */
HARK_MUST_CHECK hark_status hark_network_declare(hark_context *context, const hark_network_config *config, hark_type type,
                                                 hark_network **out);
/* Declares and allocates a network; weights are zero until hark_parameters_initialise() or a checkpoint fills them.
 * Errors: HARK_BAD_CONFIGURATION with the first violated rule (model_rules.h) or number out of range, HARK_OUT_OF_MEMORY. */
HARK_MUST_CHECK hark_status hark_network_create(hark_context *context, const hark_network_config *config, hark_type type, bool training,
                                                hark_network **out);
void hark_network_destroy(hark_context *context, hark_network **network);

/* *unit: the multiple of rows at which processes may divide sequences for all layers that then exchange what their structure needs
 * (hark_self_attention_row_unit()); 0: there are none. */
HARK_MUST_CHECK hark_status hark_network_row_unit(hark_context *context, const hark_network *network, const hark_pass_sizes *sizes,
                                                  int64_t *unit);

/* One attention plan per block of the stack, of ahca's local blocks or of a regressor, whose head has one more; NULL for layers without
 * one. Destroyed with the same network. */
HARK_MUST_CHECK hark_status hark_network_plans_create(hark_context *context, const hark_network *network, const hark_pass_sizes *sizes,
                                                      bool training, hark_attention_plan ***out);
/* The same, for rectangular passes of at most these sizes. */
HARK_MUST_CHECK hark_status hark_network_plans_rectangular(hark_context *context, const hark_network *network, int64_t batch,
                                                           int64_t queries, int64_t keys, bool training, hark_attention_plan ***out);
void hark_network_plans_destroy(hark_context *context, const hark_network *network, hark_attention_plan ***plans);

/* Loss of predicted numbers [N, responses]: weight * sum of squared errors. Predictions and targets are not released. */
HARK_MUST_CHECK hark_status hark_network_squared_error(hark_tape *tape, hark_value predictions, hark_value targets, double weight,
                                                       hark_value *loss);
/* Loss of predictions [N, 2 responses], means and logarithms of variances: weight * sum of -log densities, or of squared errors of the
 * means. Neither is released. */
HARK_MUST_CHECK hark_status hark_network_gaussian_loss(hark_tape *tape, hark_value predictions, hark_value targets, double weight,
                                                       bool squared, hark_value *loss);
/* How the loss of targets is computed, see cross_entropy. */
typedef struct hark_target_loss {
  double weight, smoothing, z;
} hark_target_loss;
/* Loss of targets i32 by logits [..., V]: weight * sum over the targets that are not -1. Neither is released. */
HARK_MUST_CHECK hark_status hark_network_loss(hark_tape *tape, hark_value logits, hark_value targets, hark_target_loss how,
                                              hark_value *loss);

#endif
