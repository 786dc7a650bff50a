/* model_options.h - the table of the options of a model: everything about an option is in its row, except for the code that uses it.
 *
 * A row describes the option for configurations, the command line, --help and the reference (options/option.h), how a change of it affects
 * existing weights, and when a model's file contains it. The table determines configurations of runs (train/config.h), descriptions of
 * models (description.h), and what may change when a run is resumed or begins with other weights. tests/train/test_model_options.c tests
 * every row. docs/adding-a-model-option.md is the guide.
 */
#ifndef HARK_MODELS_MODEL_OPTIONS_H
#define HARK_MODELS_MODEL_OPTIONS_H

#include "models/network_config.h"
#include "nn/norm_bound.h"
#include "options/option.h"

/* How a change of an option affects existing weights. An option without a bond may change when a run is resumed; when another run begins
 * with the weights, its change is not reported. A change of the others is refused when a run is resumed, and reported when another run
 * begins with the weights. When a model is evaluated, options of MEANING may be replaced. */
typedef enum hark_bond {
  HARK_BOND_NONE,    /* not at all: length, speed, dropout */
  HARK_BOND_MEANING, /* the same weights fit, but have another meaning */
  HARK_BOND_WEIGHTS  /* the option determines which weights there are, and their meaning */
} hark_bond;

/* When a model's file contains an option. An option that a file does not contain has its default when the file is read. */
typedef enum hark_stored {
  HARK_STORED_NEVER,       /* only training uses it */
  HARK_STORED_ALWAYS,      /* and a file without it is refused */
  HARK_STORED_SETTLED,     /* the same; 0, which means a derived value in configurations, is replaced by that value */
  HARK_STORED_CHANGED,     /* if it has an effect and differs from the default: most options */
  HARK_STORED_GROUP,       /* if the first condition of `needs` holds; a file without it means 0 or the first word, not the default */
  HARK_STORED_GROUP_NEEDED /* the same, but a file without it is refused */
} hark_stored;

/* Subcommands that accept an option of a model as a flag. The second list is for options that may be replaced when a trained model is
 * evaluated. */
#define HARK_FLAG_OF_TRAINING "train bench config"
#define HARK_FLAG_OF_EXCHANGE "train eval embed bench config"

/* Of the column `needs`. */
#define HARK_NEEDS_NOT_FINITE "model.architecture !finite" /* which has neither heads nor layers */
#define HARK_NEEDS_STACK "model.architecture decoder|encoder|masked_encoder"
#define HARK_NEEDS_OF_TOKENS "model.architecture !latent|finite"
#define HARK_NEEDS_POSITIONAL "model.positional given"
#define HARK_NEEDS_ROTARY "model.positions rotary"
#define HARK_NEEDS_SCALED "model.rotary.scaling !none"
#define HARK_NEEDS_HIERARCHICAL "model.attention.structure hierarchical"
#define HARK_NEEDS_COMPRESSED "model.attention.structure compressed"
#define HARK_NEEDS_CME "model.attention.normalisation cme"
#define HARK_NEEDS_AHCA "model.architecture ahca"
#define HARK_NEEDS_DEEP ", model.layers >=2"
#define HARK_NEEDS_GLOBAL HARK_NEEDS_AHCA ", model.ahca.selected >=1"
#define HARK_NEEDS_OF_CAPACITY HARK_NEEDS_AHCA ", model.ahca.depth capacity" HARK_NEEDS_DEEP
#define HARK_NEEDS_LATENT "model.architecture latent"
#define HARK_NEEDS_FINITE "model.architecture finite"
#define HARK_NEEDS_REGRESSOR "model.architecture regressor"

/* The table: X(member of hark_network_config and key after "model.", flags, type, default, range or words, subcommands, argument, help,
 *              needs, bond, stored, place).
 * The members of one section are next to each other, and configurations have them in this order. A description has the keys of a section
 * in the order of their places, which keeps the order of older files; keys with the same place are in the order of the table. A new option
 * has place 1. */
#define HARK_MODEL_OPTIONS(X)                                                                                                              \
  X(type, NULL, ENUM, "gpt", HARK_MODEL_TYPE_WORDS, HARK_FLAG_OF_TRAINING, NULL,                                                           \
    "family of models; gpt is the only one, and all architectures belong to it", NULL, WEIGHTS, ALWAYS, 0)                                 \
  X(architecture, "architecture", ENUM, "decoder", HARK_ARCHITECTURE_WORDS, HARK_FLAG_OF_TRAINING, NULL,                                   \
    "decoder: predicts the next token from the previous tokens; encoder: predicts the class of an example, "                               \
    "with attention to all tokens; masked_encoder: predicts masked tokens; ahca: predicts classes, token "                                 \
    "labels, numbers or its own input, with compressed chunks; latent, finite: map sequences of real vectors "                             \
    "to a real vector; regressor: predicts rows of a table from other rows",                                                               \
    NULL, WEIGHTS, CHANGED, 2)                                                                                                             \
  X(layers, "layers", INT, "4", "[1, 10000]", HARK_FLAG_OF_TRAINING, NULL, "number of blocks", HARK_NEEDS_NOT_FINITE, WEIGHTS, ALWAYS, 1)  \
  X(heads, "heads", INT, "4", "[1, 65536]", HARK_FLAG_OF_TRAINING, NULL, "attention heads of a block", HARK_NEEDS_NOT_FINITE, MEANING,     \
    ALWAYS, 1)                                                                                                                             \
  X(key_heads, "key-heads", INT, "0", "[0, 65536]", HARK_FLAG_OF_TRAINING, NULL,                                                           \
    "key and value heads, a divisor of heads; 0: as many as heads", HARK_NEEDS_NOT_FINITE, WEIGHTS, SETTLED, 1)                            \
  X(width, "width", INT, "512", "[1, 1048576]", HARK_FLAG_OF_TRAINING, NULL, "features of a token", HARK_NEEDS_NOT_FINITE, WEIGHTS,        \
    ALWAYS, 1)                                                                                                                             \
  X(feed_forward_width, NULL, INT, "0", "[0, 16777216]", HARK_FLAG_OF_TRAINING, NULL,                                                      \
    "hidden features of the feed-forward layer; 0: four times the width", "model.finite.map network or model.architecture !finite",        \
    WEIGHTS, SETTLED, 1)                                                                                                                   \
  X(context, "context", INT, "256", "[1, 16777216]", HARK_FLAG_OF_TRAINING, NULL,                                                          \
    "tokens of a training window, or of the longest example", NULL, WEIGHTS, ALWAYS, 1)                                                    \
  X(activation, "activation", ENUM, "gelu", HARK_ACTIVATION_WORDS, HARK_FLAG_OF_TRAINING, NULL, "activation of the feed-forward layer",    \
    "model.finite.map network or model.architecture !finite, model.ahca.layer block or model.architecture !ahca", WEIGHTS, ALWAYS, 1)      \
  X(norm, "norm", ENUM, "layer_norm", HARK_NORM_WORDS, HARK_FLAG_OF_TRAINING, NULL, "kind of normalisation layers", HARK_NEEDS_OF_TOKENS,  \
    WEIGHTS, ALWAYS, 1)                                                                                                                    \
  X(norm_epsilon, NULL, FLOAT, "1e-5", "(0, 1]", HARK_FLAG_OF_TRAINING, NULL, "added to the variance in normalisation layers",             \
    HARK_NEEDS_OF_TOKENS, MEANING, ALWAYS, 1)                                                                                              \
  X(norm_place, "norm-place", ENUM, "pre", HARK_NORM_PLACE_WORDS, HARK_FLAG_OF_TRAINING, NULL,                                             \
    "place of the norm in a block; pre: x + f(norm(x)), and one more norm after the last block; post: norm(x "                             \
    "+ f(x)), as in BERT, and no norm after the last block",                                                                               \
    HARK_NEEDS_STACK, WEIGHTS, CHANGED, 1)                                                                                                 \
  X(embedding_norm, "embedding-norm", BOOL, "false", NULL, HARK_FLAG_OF_TRAINING, NULL,                                                    \
    "a normalisation layer after the sum of the embeddings, as in BERT", HARK_NEEDS_STACK, WEIGHTS, CHANGED, 1)                            \
  X(token_types, "token-types", INT, "0", "[0, 65536]", HARK_FLAG_OF_TRAINING, NULL,                                                       \
    "number of token types, as in BERT; every type has a learned vector, which is added to the embeddings of "                             \
    "its tokens; 0: no types",                                                                                                             \
    "model.architecture encoder|masked_encoder", WEIGHTS, CHANGED, 1)                                                                      \
  X(attention_width, "attention-width", INT, "0", "[0, 1048576]", HARK_FLAG_OF_TRAINING, NULL,                                             \
    "width of the queries of all heads together, a multiple of heads; 0: the same as width", HARK_NEEDS_NOT_FINITE, WEIGHTS, CHANGED, 2)   \
  X(pooling, "pooling", ENUM, "class", HARK_POOLING_WORDS, HARK_FLAG_OF_TRAINING, NULL,                                                    \
    "what represents a sequence in an encoder; class: a token added at the beginning; mean: the mean over its "                            \
    "tokens; first: its first token; pooler: the pooler's output for its first token",                                                     \
    "model.architecture encoder", MEANING, CHANGED, 2)                                                                                     \
  X(pooler, "pooler", BOOL, "false", NULL, HARK_FLAG_OF_TRAINING, NULL,                                                                    \
    "the model has the weights of a pooler, as in BERT: tanh(W h + b), where h is the first row of a sequence",                            \
    "model.architecture encoder", WEIGHTS, CHANGED, 1)                                                                                     \
  X(head, "head", ENUM, "classes", HARK_ENCODER_HEAD_WORDS, HARK_FLAG_OF_TRAINING, NULL,                                                   \
    "result of an encoder; classes: logits of the classes; embedding: the embedding of the sequence (imported "                            \
    "models only)",                                                                                                                        \
    "model.architecture encoder", WEIGHTS, CHANGED, 1)                                                                                     \
  X(normalise, "normalise", BOOL, "false", NULL, HARK_FLAG_OF_TRAINING, NULL, "divide the embedding by its Euclidean length",              \
    "model.architecture encoder, model.head embedding", MEANING, CHANGED, 1)                                                               \
  X(head_width, "head-width", INT, "0", "[0, 16777216]", HARK_FLAG_OF_TRAINING, NULL,                                                      \
    "hidden features of the head; 0: feed_forward_width", "model.architecture encoder|ahca, model.head classes", WEIGHTS, CHANGED, 2)      \
  X(positions, "positions", ENUM, "rotary", HARK_POSITIONS_WORDS, HARK_FLAG_OF_TRAINING, NULL, "how the model represents positions", NULL, \
    WEIGHTS, ALWAYS, 1)                                                                                                                    \
  X(positional, "positional", STRING, "", NULL, HARK_FLAG_OF_TRAINING, "EXPR",                                                             \
    "kernel of the token distance, such as bank[8](decay*periodic), or in encoders left(decay)*right(rbf); it multiplies the "             \
    "similarity; several kernels, separated by |, such as decay|rbf|t5|alibi: for the layers with positional_scope layer, "                \
    "otherwise for the heads; empty: no kernel",                                                                                           \
    NULL, WEIGHTS, CHANGED, 1)                                                                                                             \
  X(positional_scope, "positional-scope", ENUM, "model", HARK_POSITIONAL_SCOPE_WORDS, HARK_FLAG_OF_TRAINING, NULL,                         \
    "which parts have their own parameters of the kernel: the whole model, each layer, or each head", HARK_NEEDS_POSITIONAL, WEIGHTS,      \
    GROUP, 1)                                                                                                                              \
  X(positional_stretch, "positional-stretch", FLOAT, "1", "[1, inf)", HARK_FLAG_OF_EXCHANGE, NULL,                                         \
    "number by which token distances are divided before the positional kernel is computed, for contexts longer than in training",          \
    HARK_NEEDS_POSITIONAL, MEANING, CHANGED, 1)                                                                                            \
  X(tie_embeddings, "tie-embeddings", BOOL, "true", NULL, HARK_FLAG_OF_TRAINING, NULL,                                                     \
    "share the weights of the token embedding with the output layer", "model.architecture decoder|masked_encoder", WEIGHTS, ALWAYS, 3)     \
  X(bias, "bias", BOOL, "false", NULL, HARK_FLAG_OF_TRAINING, NULL, "biases in linear layers and layer norms", NULL, WEIGHTS, ALWAYS, 3)   \
  X(dropout, "dropout", FLOAT, "0", "[0, 1)", HARK_FLAG_OF_TRAINING, NULL, "dropout on the residual branches", NULL, NONE, NEVER, 1)       \
  X(embedding_dropout, NULL, FLOAT, "0", "[0, 1)", HARK_FLAG_OF_TRAINING, NULL, "dropout on the sum of embeddings", NULL, NONE, NEVER, 1)  \
  X(initialisation, NULL, ENUM, "gpt2", HARK_INITIALISATION_WORDS, HARK_FLAG_OF_TRAINING, NULL,                                            \
    "standard deviation of initial weights; gpt2: 0.02, and 0.02 / sqrt(2 layers) in layers that add to the "                              \
    "residual stream; xavier: sqrt(2 / (in + out)), which is larger in narrow models; with ahca, gpt2 means 1 "                            \
    "/ sqrt(in), and xavier is refused",                                                                                                   \
    HARK_NEEDS_OF_TOKENS, NONE, NEVER, 1)                                                                                                  \
  X(embedding_deviation, NULL, FLOAT, "0.02", "(0, inf)", HARK_FLAG_OF_TRAINING, NULL,                                                     \
    "standard deviation of the initial token embeddings; for comparison, sinusoidal positions lie between -1 "                             \
    "and 1",                                                                                                                               \
    HARK_NEEDS_OF_TOKENS, NONE, NEVER, 1)                                                                                                  \
  X(recompute, "recompute", BOOL, "false", NULL, HARK_FLAG_OF_TRAINING, NULL,                                                              \
    "the backward pass computes the forward pass of each block (in ahca of each local block) again, which "                                \
    "needs less memory and a third more work",                                                                                             \
    NULL, NONE, NEVER, 1)                                                                                                                  \
  X(rotary.base, NULL, FLOAT, "10000", "(1, inf)", HARK_FLAG_OF_TRAINING, NULL,                                                            \
    "base b of rotary and sinusoidal positions: pair j of d features has the rate b^(-2j/d)", "model.positions rotary|sinusoidal",         \
    MEANING, ALWAYS, 1)                                                                                                                    \
  X(rotary.pairs, NULL, ENUM, "half", HARK_ROTARY_PAIRS_WORDS, HARK_FLAG_OF_TRAINING, NULL,                                                \
    "pairs of features that are rotated together; interleaved: (2j, 2j+1); half: (j, j + head_dim/2)", HARK_NEEDS_ROTARY, MEANING, ALWAYS, \
    1)                                                                                                                                     \
  X(rotary.learned, "rotary-learned", ENUM, "none", HARK_ROTARY_LEARNED_WORDS, HARK_FLAG_OF_TRAINING, NULL,                                \
    "parts that learn separate rates; learned rates start from the fixed rates; head: every key head", HARK_NEEDS_ROTARY, WEIGHTS,         \
    CHANGED, 1)                                                                                                                            \
  X(rotary.fraction, NULL, FLOAT, "1", "(0, 1]", HARK_FLAG_OF_TRAINING, NULL,                                                              \
    "fraction of the pairs that is rotated; these are the pairs with the highest rates (p-RoPE, arXiv "                                    \
    "2410.06205)",                                                                                                                         \
    HARK_NEEDS_ROTARY, WEIGHTS, CHANGED, 1)                                                                                                \
  X(rotary.scaling, "rotary-scaling", ENUM, "none", HARK_ROTARY_SCALING_WORDS, HARK_FLAG_OF_EXCHANGE, NULL,                                \
    "change of the rates for contexts longer than in training; linear: interpolated positions; ntk: a larger "                             \
    "base; yarn: arXiv 2309.00071; llama3: as in Llama 3; dynamic: a base that grows with the length of the "                              \
    "text; longrope: arXiv 2402.13753",                                                                                                    \
    HARK_NEEDS_ROTARY, MEANING, CHANGED, 1)                                                                                                \
  X(rotary.scaling_factor, "rotary-factor", FLOAT, "1", "[1, inf)", HARK_FLAG_OF_EXCHANGE, "S",                                            \
    "factor s of the scaling: the context divided by the context in training", HARK_NEEDS_SCALED, MEANING, CHANGED, 1)                     \
  X(rotary.original_context, NULL, INT, "0", "[0, 16777216]", HARK_FLAG_OF_EXCHANGE, NULL,                                                 \
    "context in training before the scaling, in tokens; 0: model.context", HARK_NEEDS_SCALED, MEANING, CHANGED, 1)                         \
  X(rotary.ramp, NULL, ENUM, "pair", HARK_ROTARY_RAMP_WORDS, HARK_FLAG_OF_EXCHANGE, NULL,                                                  \
    "yarn: how rates change between fast pairs, which keep their rate, and slow pairs, whose rate is divided by the factor; pair: "        \
    "linearly in the index of the pair, as in published models; turns: linearly in the "                                                   \
    "number of turns, as in the paper",                                                                                                    \
    "model.rotary.scaling yarn", MEANING, GROUP, 1)                                                                                        \
  X(rotary.beta_fast, NULL, FLOAT, "32", "(0, inf)", HARK_FLAG_OF_EXCHANGE, NULL,                                                          \
    "yarn: pairs that make at least this number of turns within the original context keep their rate", "model.rotary.scaling yarn",        \
    MEANING, CHANGED, 1)                                                                                                                   \
  X(rotary.beta_slow, NULL, FLOAT, "1", "(0, inf)", HARK_FLAG_OF_EXCHANGE, NULL,                                                           \
    "yarn: the rate of pairs that make at most this number of turns is divided by the scaling factor", "model.rotary.scaling yarn",        \
    MEANING, CHANGED, 1)                                                                                                                   \
  X(rotary.truncate, NULL, BOOL, "true", NULL, HARK_FLAG_OF_EXCHANGE, NULL,                                                                \
    "round the ends of yarn's ramp to whole pairs; a ramp that is not rounded may begin and end between two pairs",                        \
    "model.rotary.scaling yarn", MEANING, CHANGED, 1)                                                                                      \
  X(rotary.attention_factor, NULL, FLOAT, "0", "[0, inf)", HARK_FLAG_OF_EXCHANGE, NULL,                                                    \
    "yarn, longrope: factor that multiplies rotated queries and keys; 0: the factor of the scaling's formula",                             \
    "model.rotary.scaling yarn|longrope", MEANING, CHANGED, 1)                                                                             \
  X(rotary.mscale, NULL, FLOAT, "0", "[0, inf)", HARK_FLAG_OF_EXCHANGE, NULL,                                                              \
    "yarn: m in the attention factor (0.1 m ln s + 1) / (0.1 n ln s + 1), where s is scaling_factor and n is "                             \
    "mscale_all_dim; m and n must be given together; 0: not given",                                                                        \
    "model.rotary.scaling yarn", MEANING, CHANGED, 1)                                                                                      \
  X(rotary.mscale_all_dim, NULL, FLOAT, "0", "[0, inf)", HARK_FLAG_OF_EXCHANGE, NULL,                                                      \
    "yarn: n in the attention factor; model.rotary.mscale has the formula; 0: not given", "model.rotary.scaling yarn", MEANING, CHANGED,   \
    1)                                                                                                                                     \
  X(rotary.low_freq_factor, NULL, FLOAT, "1", "(0, inf)", HARK_FLAG_OF_EXCHANGE, NULL,                                                     \
    "llama3: the rate of pairs that make at most this number of turns within the original context is divided "                             \
    "by the scaling factor",                                                                                                               \
    "model.rotary.scaling llama3", MEANING, CHANGED, 1)                                                                                    \
  X(rotary.high_freq_factor, NULL, FLOAT, "4", "(0, inf)", HARK_FLAG_OF_EXCHANGE, NULL,                                                    \
    "llama3: pairs that make at least this number of turns keep their rate", "model.rotary.scaling llama3", MEANING, CHANGED, 1)           \
  X(rotary.short_factor, NULL, LIST, "", "(0, inf)", HARK_FLAG_OF_EXCHANGE, "X,...",                                                       \
    "longrope: divisors of the rates, one for every rotated pair, in texts up to the original context", "model.rotary.scaling longrope",   \
    MEANING, CHANGED, 1)                                                                                                                   \
  X(rotary.long_factor, NULL, LIST, "", "(0, inf)", HARK_FLAG_OF_EXCHANGE, "X,...",                                                        \
    "longrope: divisors of the rates in longer texts, one for every rotated pair", "model.rotary.scaling longrope", MEANING, CHANGED, 1)   \
  X(attention.structure, "structure", LAYERS, "dense", HARK_STRUCTURE_WORDS, HARK_FLAG_OF_EXCHANGE, NULL,                                  \
    "which keys a query attends to; several words, with commas, apply to the layers in turn", NULL, MEANING, ALWAYS, 1)                    \
  X(attention.window, "window", INT, "128", "[0, 16777216]", HARK_FLAG_OF_EXCHANGE, NULL,                                                  \
    "number of positions on each side that a query of structure window may attend to", "model.attention.structure window", MEANING,        \
    ALWAYS, 1)                                                                                                                             \
  X(attention.hierarchy_block, "hierarchy-block", INT, "16", "[2, 1048576]", HARK_FLAG_OF_EXCHANGE, "NR",                                  \
    "number of tokens in a block of structure hierarchical, an even number", HARK_NEEDS_HIERARCHICAL, MEANING, GROUP_NEEDED, 1)            \
  X(attention.partition, "partition", ENUM, "neighbour", HARK_PARTITION_WORDS, HARK_FLAG_OF_EXCHANGE, NULL,                                \
    "which cells a cell of structure hierarchical attends to; neighbour: its neighbours; sibling: the other "                              \
    "half of its parent",                                                                                                                  \
    HARK_NEEDS_HIERARCHICAL, MEANING, GROUP, 1)                                                                                            \
  X(attention.coarse_query, "coarse-query", ENUM, "default", HARK_COARSE_QUERY_WORDS, HARK_FLAG_OF_EXCHANGE, NULL,                         \
    "structure hierarchical: the query that represents a cell when it attends to coarse keys; mean: the mean of its queries; first: "      \
    "its first query; exact: each query by itself; default: first if the attention is causal, otherwise mean",                             \
    HARK_NEEDS_HIERARCHICAL, MEANING, GROUP, 1)                                                                                            \
  X(attention.hierarchical_bias, "hierarchical-bias", BOOL, "false", NULL, HARK_FLAG_OF_TRAINING, NULL,                                    \
    "structure hierarchical learns a bias for every distance between query and key; at coarse levels, "                                    \
    "distances are counted in cells",                                                                                                      \
    HARK_NEEDS_HIERARCHICAL, WEIGHTS, GROUP, 1)                                                                                            \
  X(attention.kernel, "kernel", ENUM, "exp", HARK_KERNEL_WORDS, HARK_FLAG_OF_EXCHANGE, NULL,                                               \
    "similarity of query q and key k, which have d features; exp: exp(q.k / sqrt(d)); rbf: exp(-|q - k|^2 / "                              \
    "(2 sigma^2))",                                                                                                                        \
    HARK_NEEDS_NOT_FINITE, MEANING, ALWAYS, 1)                                                                                             \
  X(attention.sigma, "sigma", FLOAT, "1", "(0, inf)", HARK_FLAG_OF_EXCHANGE, NULL, "sigma of kernel rbf", "model.attention.kernel rbf",    \
    MEANING, ALWAYS, 1)                                                                                                                    \
  X(attention.forget_gate, "forget-gate", BOOL, "false", NULL, HARK_FLAG_OF_EXCHANGE, NULL,                                                \
    "learned forget gates add a bias to the logits (FoX, arXiv 2503.02130)", NULL, WEIGHTS, ALWAYS, 1)                                     \
  X(attention.unbiased, NULL, BOOL, "false", NULL, HARK_FLAG_OF_TRAINING, NULL,                                                            \
    "attention's projections have no biases, although model.bias is on", "model.bias true", WEIGHTS, CHANGED, 1)                           \
  X(attention.biased, NULL, ENUM, "none", HARK_BIASED_WORDS, HARK_FLAG_OF_TRAINING, NULL,                                                  \
    "which projections of attention have biases although model.bias is off; input: those of queries, keys and "                            \
    "values; all: that of the output too",                                                                                                 \
    "model.architecture decoder|encoder|masked_encoder, model.bias false", WEIGHTS, CHANGED, 1)                                            \
  X(attention.normalisation, "normalisation", LAYERS, "softmax", HARK_NORMALISATION_WORDS, HARK_FLAG_OF_EXCHANGE, NULL,                    \
    "how values are combined; softmax: kernel smoothing; cme: kernel ridge regression of the values on the "                               \
    "keys (structure dense); stick_breaking: causal attention that needs no positions (arXiv 2410.17980)",                                 \
    NULL, MEANING, CHANGED, 1)                                                                                                             \
  X(attention.ridge, "ridge", FLOAT, "1", "(0, inf)", HARK_FLAG_OF_EXCHANGE, NULL,                                                         \
    "normalisation cme: c in the ridge lambda = c n^ridge_power, where n is model.context", HARK_NEEDS_CME, MEANING, GROUP, 1)             \
  X(attention.ridge_power, "ridge-power", FLOAT, "0", "[0, 1]", HARK_FLAG_OF_EXCHANGE, NULL,                                               \
    "normalisation cme: power of model.context in the ridge; 0: the ridge does not depend on the context", HARK_NEEDS_CME, MEANING, GROUP, \
    1)                                                                                                                                     \
  X(attention.ridge_learned, "ridge-learned", BOOL, "false", NULL, HARK_FLAG_OF_TRAINING, NULL,                                            \
    "every head learns its own ridge; its learning rate is multiplied by train.positional_rate", HARK_NEEDS_CME, WEIGHTS, GROUP, 1)        \
  X(attention.sigma_learned, "sigma-learned", BOOL, "false", NULL, HARK_FLAG_OF_TRAINING, NULL,                                            \
    "every head learns its own sigma, with normalisation cme and kernel rbf", HARK_NEEDS_CME ", model.attention.kernel rbf", WEIGHTS,      \
    GROUP, 1)                                                                                                                              \
  X(attention.unit, "unit-norm", BOOL, "false", NULL, HARK_FLAG_OF_EXCHANGE, NULL,                                                         \
    "normalisation cme: before the kernel, divide queries and keys by their Euclidean lengths", HARK_NEEDS_CME, MEANING, GROUP, 1)         \
  X(attention.dropout, "attention-dropout", FLOAT, "0", "[0, 1)", HARK_FLAG_OF_TRAINING, NULL, "dropout on the attention weights", NULL,   \
    NONE, NEVER, 1)                                                                                                                        \
  X(attention.contextual_positions, "contextual-positions", INT, "0", "[0, 1048576]", HARK_FLAG_OF_TRAINING, "N",                          \
    "positions that count only the tokens that a query selects (CoPE, arXiv 2405.18719): every layer learns a table of N rows; 0: none",   \
    "model.architecture decoder", WEIGHTS, CHANGED, 1)                                                                                     \
  X(attention.interpolation, "interpolation", ENUM, "constant", HARK_INTERPOLATION_WORDS, HARK_FLAG_OF_EXCHANGE, NULL,                     \
    "structure hierarchical: how the sums of coarse cells pass to their halves; constant: both halves receive those of their cell; "       \
    "linear: the second half receives the mean of its cell's and the next cell's",                                                         \
    HARK_NEEDS_HIERARCHICAL ", model.architecture encoder|masked_encoder|ahca", MEANING, CHANGED, 1)                                       \
  X(attention.grid_columns, "grid-columns", INT, "0", "[0, 16777216]", HARK_FLAG_OF_TRAINING, "C",                                         \
    "structure hierarchical: tokens are the pixels of pictures with C columns, whose rows and columns are halved together; 0: no "         \
    "pictures",                                                                                                                            \
    HARK_NEEDS_HIERARCHICAL ", model.architecture encoder", MEANING, CHANGED, 1)                                                           \
  X(attention.noise_learned, NULL, BOOL, "false", NULL, HARK_FLAG_OF_TRAINING, NULL,                                                       \
    "normalisation cme: learn a noise of every key and head, which is computed from its token and added to the ridge",                     \
    HARK_NEEDS_CME ", model.architecture decoder|encoder|masked_encoder", WEIGHTS, CHANGED, 1)                                             \
  X(attention.chunk, "attention-chunk", INT, "64", "[1, 1048576]", HARK_FLAG_OF_EXCHANGE, "M",                                             \
    "structure compressed: number of tokens in a chunk, with delimiters or learned chunks the fewest; a query attends one by one to "      \
    "the tokens of its chunk and of the one before",                                                                                       \
    HARK_NEEDS_COMPRESSED, MEANING, GROUP_NEEDED, 1)                                                                                       \
  X(attention.chunk_slots, "chunk-slots", INT, "1", "[1, 1048576]", HARK_FLAG_OF_EXCHANGE, "C",                                            \
    "structure compressed: number of slots of an earlier chunk, which are means of keys and values over parts of it",                      \
    HARK_NEEDS_COMPRESSED, MEANING, GROUP_NEEDED, 1)                                                                                       \
  X(attention.selected_slots, "selected-slots", INT, "16", "[1, 4096]", HARK_FLAG_OF_EXCHANGE, "K",                                        \
    "structure compressed: number of slots that a query attends to, those with the highest logits", HARK_NEEDS_COMPRESSED, MEANING,        \
    GROUP_NEEDED, 1)                                                                                                                       \
  X(attention.kept_chunks, "kept-chunks", INT, "0", "[0, 16777216]", HARK_FLAG_OF_EXCHANGE, "N",                                           \
    "structure compressed: a query selects from the slots of N chunks, the nearest before those whose tokens it attends to one by one; "   \
    "0: from those of all chunks",                                                                                                         \
    HARK_NEEDS_COMPRESSED, MEANING, GROUP, 1)                                                                                              \
  X(attention.global_slots, "global-slots", INT, "0", "[0, 1048576]", HARK_FLAG_OF_EXCHANGE, "G",                                          \
    "structure compressed: number of global slots, into which older chunks are merged; a query attends to all of them; 0: it does not "    \
    "attend to older chunks",                                                                                                              \
    HARK_NEEDS_COMPRESSED ", model.attention.kept_chunks >=1", MEANING, GROUP, 1)                                                          \
  X(attention.delimiters, "chunk-delimiters", LIST, "", "[0, 2147483647]", HARK_FLAG_OF_EXCHANGE, "ID,...|TEXT",                           \
    "structure compressed: tokens or texts after which a chunk ends, if it has at least attention.chunk tokens; 46+32: token 46 with "     \
    "token 32 after it; a text does not begin with a digit; at most 64 tokens; none: all chunks have attention.chunk tokens",              \
    HARK_NEEDS_COMPRESSED, MEANING, CHANGED, 1)                                                                                            \
  X(attention.chunk_maximum, NULL, INT, "0", "[0, 1048576]", HARK_FLAG_OF_EXCHANGE, "M",                                                   \
    "structure compressed with delimiters or learned chunks: number of tokens at which a chunk ends in any case; 0: four times "           \
    "attention.chunk, "                                                                                                                    \
    "at most 1048576",                                                                                                                     \
    HARK_NEEDS_COMPRESSED ", model.attention.delimiters given or model.attention.chunk_learned true", MEANING, CHANGED, 1)                 \
  X(attention.chunk_learned, "learned-chunks", BOOL, "false", NULL, HARK_FLAG_OF_TRAINING, NULL,                                           \
    "structure compressed: chunks begin where a learned probability is 1/2 or more, which is computed from the input of the first layer "  \
    "with this structure; with at least attention.chunk tokens and at most attention.chunk_maximum",                                       \
    HARK_NEEDS_COMPRESSED ", model.attention.delimiters none, model.layers >=2", WEIGHTS, CHANGED, 1)                                      \
  X(attention.chunk_mean, NULL, INT, "0", "[0, 1048576]", HARK_FLAG_OF_TRAINING, "M",                                                      \
    "structure compressed with learned chunks: intended number of tokens in a chunk; 0: twice attention.chunk",                            \
    HARK_NEEDS_COMPRESSED ", model.attention.chunk_learned true", NONE, NEVER, 1)                                                          \
  X(attention.ratio_weight, NULL, FLOAT, "0.03", "[0, inf)", HARK_FLAG_OF_TRAINING, NULL,                                                  \
    "structure compressed with learned chunks: weight of the loss that keeps the mean number of tokens in a chunk",                        \
    HARK_NEEDS_COMPRESSED ", model.attention.chunk_learned true", NONE, NEVER, 1)                                                          \
  X(ahca.chunk, "chunk", ENUM, "fixed", HARK_AHCA_CHUNK_WORDS, HARK_FLAG_OF_TRAINING, NULL,                                                \
    "where ahca cuts a sequence into chunks; fixed: every chunk_size tokens; delimiter: after a delimiter; semantic: at "                  \
    "valleys of similarity; learned: where a learned probability is high",                                                                 \
    HARK_NEEDS_AHCA, WEIGHTS, GROUP, 1)                                                                                                    \
  X(ahca.chunk_size, "chunk-size", INT, "64", "[1, 16777216]", HARK_FLAG_OF_TRAINING, NULL,                                                \
    "number of tokens in a fixed chunk; for learned chunks, their desired mean length", HARK_NEEDS_AHCA, WEIGHTS, GROUP, 1)                \
  X(ahca.chunk_minimum, NULL, INT, "0", "[0, 16777216]", HARK_FLAG_OF_TRAINING, NULL,                                                      \
    "smallest number of tokens in a chunk that is not fixed, which limits the number of chunks; 0: a quarter "                             \
    "of chunk_size",                                                                                                                       \
    HARK_NEEDS_AHCA ", model.ahca.chunk !fixed", WEIGHTS, GROUP, 1)                                                                        \
  X(ahca.chunk_maximum, NULL, INT, "0", "[0, 16777216]", HARK_FLAG_OF_TRAINING, NULL,                                                      \
    "largest number of tokens in a chunk that is not fixed; 0: four times chunk_size", HARK_NEEDS_AHCA ", model.ahca.chunk !fixed",        \
    WEIGHTS, GROUP, 1)                                                                                                                     \
  X(ahca.boundary, NULL, ENUM, "tokens", HARK_AHCA_BOUNDARY_WORDS, HARK_FLAG_OF_TRAINING, NULL,                                            \
    "what learned boundaries are predicted from; tokens: embedded tokens; compressed: their rows after the "                               \
    "linear layers of the primary compression",                                                                                            \
    HARK_NEEDS_AHCA ", model.ahca.chunk learned", WEIGHTS, CHANGED, 1)                                                                     \
  X(ahca.straight_through, NULL, ENUM, "before_norm", HARK_AHCA_STRAIGHT_WORDS, HARK_FLAG_OF_TRAINING, NULL,                               \
    "place of the straight-through factor, which has the value 1 and gives learned boundaries their gradient; "                            \
    "before_norm: before the norm of the token head, which removes most of this gradient; after_norm: after "                              \
    "this norm",                                                                                                                           \
    HARK_NEEDS_AHCA ", model.ahca.chunk learned", NONE, NEVER, 1)                                                                          \
  X(ahca.delimiter, NULL, INT, "0", "[-1, 2147483647]", HARK_FLAG_OF_TRAINING, "ID",                                                       \
    "chunk delimiter: token after which a chunk ends; -1: only those of more_delimiters", HARK_NEEDS_AHCA ", model.ahca.chunk delimiter",  \
    WEIGHTS, GROUP, 1)                                                                                                                     \
  X(ahca.more_delimiters, NULL, LIST, "", "[0, 2147483647]", HARK_FLAG_OF_TRAINING, "ID,...|TEXT",                                         \
    "chunk delimiter: further tokens or texts after which a chunk ends, as in attention.delimiters",                                       \
    HARK_NEEDS_AHCA ", model.ahca.chunk delimiter", WEIGHTS, CHANGED, 1)                                                                   \
  X(ahca.window, NULL, INT, "8", "[1, 16777216]", HARK_FLAG_OF_TRAINING, NULL,                                                             \
    "chunk semantic: number of tokens on each side of a place that are compared", HARK_NEEDS_AHCA ", model.ahca.chunk semantic", WEIGHTS,  \
    GROUP, 1)                                                                                                                              \
  X(ahca.threshold, NULL, FLOAT, "0.5", "[-10, 10]", HARK_FLAG_OF_TRAINING, NULL,                                                          \
    "chunk semantic: a chunk ends at a valley of similarity whose depth exceeds the mean depth of the sequence by at least "               \
    "this number of standard deviations",                                                                                                  \
    HARK_NEEDS_AHCA ", model.ahca.chunk semantic", WEIGHTS, GROUP, 1)                                                                      \
  X(ahca.primary_slots, "primary-slots", INT, "4", "[1, 65536]", HARK_FLAG_OF_TRAINING, "C1",                                              \
    "number of compressed tokens (slots) per chunk", HARK_NEEDS_AHCA, WEIGHTS, GROUP, 1)                                                   \
  X(ahca.secondary_slots, "secondary-slots", INT, "64", "[1, 1048576]", HARK_FLAG_OF_TRAINING, "C2",                                       \
    "number of global tokens of a sequence; all its slots are compressed to these", HARK_NEEDS_GLOBAL, WEIGHTS, GROUP, 1)                  \
  X(ahca.selected, "selected", INT, "16", "[0, 1048576]", HARK_FLAG_OF_TRAINING, "CS",                                                     \
    "number of global tokens that are selected and that every chunk attends to; 0: a chunk attends only to "                               \
    "itself",                                                                                                                              \
    HARK_NEEDS_AHCA, WEIGHTS, GROUP, 1)                                                                                                    \
  X(ahca.primary_pool, NULL, ENUM, "attention", HARK_AHCA_POOL_WORDS, HARK_FLAG_OF_TRAINING, NULL,                                         \
    "how the tokens of a chunk become slots", HARK_NEEDS_AHCA, WEIGHTS, GROUP, 1)                                                          \
  X(ahca.secondary_pool, NULL, ENUM, "average", HARK_AHCA_POOL_WORDS, HARK_FLAG_OF_TRAINING, NULL,                                         \
    "how the slots of a sequence become global tokens", HARK_NEEDS_GLOBAL, WEIGHTS, GROUP, 1)                                              \
  X(ahca.primary_width, NULL, INT, "0", "[0, 1048576]", HARK_FLAG_OF_TRAINING, NULL,                                                       \
    "features of a slot, a multiple of heads; 0: the same as width", HARK_NEEDS_AHCA, WEIGHTS, GROUP, 1)                                   \
  X(ahca.secondary_width, NULL, INT, "0", "[0, 1048576]", HARK_FLAG_OF_TRAINING, NULL,                                                     \
    "features of a global token; 0: the same as primary_width", HARK_NEEDS_GLOBAL, WEIGHTS, GROUP, 1)                                      \
  X(ahca.select, "select", ENUM, "score", HARK_AHCA_SELECT_WORDS, HARK_FLAG_OF_TRAINING, NULL,                                             \
    "which global tokens are selected; score, norm, query: those with the largest learned score, norm, or "                                \
    "product with the mean query; medoids: the medoids of clusters",                                                                       \
    HARK_NEEDS_GLOBAL, WEIGHTS, GROUP, 1)                                                                                                  \
  X(ahca.join, NULL, ENUM, "once", HARK_AHCA_JOIN_WORDS, HARK_FLAG_OF_TRAINING, NULL,                                                      \
    "chunks attend to the selected tokens once, or before every layer", HARK_NEEDS_GLOBAL, WEIGHTS, GROUP, 1)                              \
  X(ahca.depth, NULL, ENUM, "capacity", HARK_AHCA_DEPTH_WORDS, HARK_FLAG_OF_TRAINING, NULL,                                                \
    "how many layers a chunk passes through; capacity: each layer keeps the chunks with the highest scores, "                              \
    "up to its capacity; paper: a number in proportion to score / largest score",                                                          \
    HARK_NEEDS_AHCA HARK_NEEDS_DEEP, WEIGHTS, GROUP, 1)                                                                                    \
  X(ahca.depth_score, NULL, ENUM, "chunk", HARK_AHCA_DEPTH_SCORE_WORDS, HARK_FLAG_OF_TRAINING, NULL,                                       \
    "what the score of a chunk is predicted from; chunk: the chunk; attention: the norm of its attention to "                              \
    "the selected tokens",                                                                                                                 \
    HARK_NEEDS_GLOBAL HARK_NEEDS_DEEP, WEIGHTS, GROUP, 1)                                                                                  \
  X(ahca.capacity, "capacity", FLOAT, "0.5", "[0, 1]", HARK_FLAG_OF_TRAINING, NULL,                                                        \
    "depth capacity: fraction of the chunks that continue from each layer to the next",                                                    \
    HARK_NEEDS_OF_CAPACITY ", model.ahca.capacities none", WEIGHTS, GROUP, 1)                                                              \
  X(ahca.capacities, NULL, LIST, "", "[0, 1]", HARK_FLAG_OF_TRAINING, "X,...",                                                             \
    "fraction of all chunks that each layer keeps, from the second layer on: numbers between 0 and 1, none "                               \
    "larger than the previous one; empty: powers of capacity",                                                                             \
    HARK_NEEDS_OF_CAPACITY, WEIGHTS, CHANGED, 1)                                                                                           \
  X(ahca.ratio_weight, NULL, FLOAT, "0.03", "[0, inf)", HARK_FLAG_OF_TRAINING, NULL,                                                       \
    "weight of the loss that keeps learned chunks near chunk_size", HARK_NEEDS_AHCA ", model.ahca.chunk learned", WEIGHTS, GROUP, 1)       \
  X(ahca.ponder_weight, NULL, FLOAT, "0.02", "[0, inf)", HARK_FLAG_OF_TRAINING, NULL,                                                      \
    "depth capacity: weight of the loss that increases with the scores of the chunks", HARK_NEEDS_OF_CAPACITY, WEIGHTS, GROUP, 2)          \
  X(ahca.head, NULL, ENUM, "data", HARK_AHCA_HEAD_WORDS, HARK_FLAG_OF_TRAINING, NULL,                                                      \
    "what ahca predicts; classes, labels, regression: classes, token labels or numbers; data: whichever of these the data have; "          \
    "reconstruction: the tokens of its own input",                                                                                         \
    HARK_NEEDS_AHCA, WEIGHTS, GROUP, 1)                                                                                                    \
  X(ahca.output, NULL, ENUM, "chunks", HARK_AHCA_OUTPUT_WORDS, HARK_FLAG_OF_TRAINING, NULL,                                                \
    "which rows pass through the layers; chunks: the slots of the chunks; selected: the selected tokens, "                                 \
    "which then attend to all global tokens",                                                                                              \
    HARK_NEEDS_GLOBAL, WEIGHTS, GROUP, 1)                                                                                                  \
  X(ahca.layer, NULL, ENUM, "block", HARK_AHCA_LAYER_WORDS, HARK_FLAG_OF_TRAINING, NULL,                                                   \
    "layers of ahca; block: attention among the slots of a chunk, then a feed-forward layer; linear: relu(W h "                            \
    "+ b)",                                                                                                                                \
    HARK_NEEDS_AHCA, WEIGHTS, GROUP, 1)                                                                                                    \
  X(ahca.primary_depth, NULL, INT, "1", "[1, 2]", HARK_FLAG_OF_TRAINING, NULL, "linear layers before the primary pool", HARK_NEEDS_AHCA,   \
    WEIGHTS, GROUP, 1)                                                                                                                     \
  X(ahca.secondary_depth, NULL, INT, "1", "[1, 2]", HARK_FLAG_OF_TRAINING, NULL, "linear layers before the secondary pool",                \
    HARK_NEEDS_GLOBAL, WEIGHTS, GROUP, 1)                                                                                                  \
  X(ahca.local_layers, NULL, INT, "0", "[0, 10000]", HARK_FLAG_OF_TRAINING, NULL,                                                          \
    "number of blocks on the tokens, with window attention, before chunks are cut; boundaries and slots then depend on the neighbours of " \
    "a token; the blocks have rotary positions, or none with model.positions none",                                                        \
    HARK_NEEDS_AHCA, WEIGHTS, CHANGED, 1)                                                                                                  \
  X(ahca.local_window, NULL, INT, "8", "[0, 16777216]", HARK_FLAG_OF_EXCHANGE, NULL,                                                       \
    "number of tokens on each side that a token attends to in the local layers", HARK_NEEDS_AHCA ", model.ahca.local_layers >=1", MEANING, \
    CHANGED, 1)                                                                                                                            \
  X(latent.form, "latent-form", ENUM, "transformer", HARK_LATENT_FORM_WORDS, HARK_FLAG_OF_TRAINING, NULL,                                  \
    "form of the network (arXiv 2212.14852); transformer: layers of features and attention (appendix C.1); "                               \
    "single: one layer of features, to which a class query attends (section 5.1)",                                                         \
    HARK_NEEDS_LATENT, WEIGHTS, GROUP, 1)                                                                                                  \
  X(latent.skip, NULL, BOOL, "true", NULL, HARK_FLAG_OF_TRAINING, NULL, "use skip connections in form transformer", HARK_NEEDS_LATENT,     \
    WEIGHTS, GROUP, 1)                                                                                                                     \
  X(latent.aggregate, "aggregate", ENUM, "query", HARK_LATENT_AGGREGATE_WORDS, HARK_FLAG_OF_TRAINING, NULL,                                \
    "how the rows of a sequence are aggregated; query: a learned class query attends to them; mean: their mean", HARK_NEEDS_LATENT,        \
    WEIGHTS, GROUP, 1)                                                                                                                     \
  X(latent.norm, "latent-norm", ENUM, "2", HARK_BOUND_WORDS, HARK_FLAG_OF_TRAINING, NULL,                                                  \
    "the number r in the two matrix norms that operator_norm and matrix_norm bound; after every step, every matrix is projected onto "     \
    "the set of matrices within these bounds; none: no bounds",                                                                            \
    HARK_NEEDS_LATENT, NONE, GROUP, 1)                                                                                                     \
  X(latent.operator_norm, "operator-norm", FLOAT, "3", "[0, inf)", HARK_FLAG_OF_TRAINING, NULL,                                            \
    "upper bound of the operator norm of every matrix with respect to the r-norm; 0: no bound", HARK_NEEDS_LATENT, NONE, GROUP, 1)         \
  X(latent.matrix_norm, "matrix-norm", FLOAT, "3", "[0, inf)", HARK_FLAG_OF_TRAINING, NULL,                                                \
    "upper bound of the (r, s)-norm of every matrix, which is the s-norm of the r-norms of its columns, with "                             \
    "1/r + 1/s = 1; for r = 2 this is the Frobenius norm; 0: no bound",                                                                    \
    HARK_NEEDS_LATENT, NONE, GROUP, 1)                                                                                                     \
  X(latent.range, NULL, FLOAT, "0.5", "[0, inf)", HARK_FLAG_OF_TRAINING, NULL,                                                             \
    "radius of the ball into which the outputs are projected; 0: no projection", HARK_NEEDS_LATENT, WEIGHTS, GROUP, 1)                     \
  X(finite.map, "finite-map", ENUM, "linear", HARK_FINITE_MAP_WORDS, HARK_FLAG_OF_TRAINING, NULL,                                          \
    "how covariates and responses are computed from tokens; linear: by a linear map; network: by a network "                               \
    "with one hidden layer of feed_forward_width features",                                                                                \
    HARK_NEEDS_FINITE, WEIGHTS, GROUP, 1)                                                                                                  \
  X(finite.covariates, "covariates", INT, "8", "[1, 32768]", HARK_FLAG_OF_TRAINING, NULL, "features of a covariate", HARK_NEEDS_FINITE,    \
    WEIGHTS, GROUP, 1)                                                                                                                     \
  X(finite.ridge, NULL, FLOAT, "1", "(0, inf)", HARK_FLAG_OF_TRAINING, NULL,                                                               \
    "ridge of the regression; its initial value if the ridge is learned", HARK_NEEDS_FINITE, WEIGHTS, GROUP, 1)                            \
  X(finite.ridge_learned, NULL, BOOL, "true", NULL, HARK_FLAG_OF_TRAINING, NULL, "learn the ridge", HARK_NEEDS_FINITE, WEIGHTS, GROUP, 1)  \
  X(regressor.processes, "processes", INT, "8", "[1, 64]", HARK_FLAG_OF_TRAINING, NULL,                                                    \
    "number of Gaussian processes whose predictions a regressor mixes, by their evidence", HARK_NEEDS_REGRESSOR, WEIGHTS, GROUP, 1)        \
  X(regressor.features, "process-features", INT, "8", "[1, 65536]", HARK_FLAG_OF_TRAINING, NULL,                                           \
    "number of features of a row that the kernel of a process compares", HARK_NEEDS_REGRESSOR, WEIGHTS, GROUP, 1)                          \
  X(regressor.least_noise, NULL, FLOAT, "1e-4", "[1e-6, 1]", HARK_FLAG_OF_TRAINING, NULL,                                                  \
    "smallest variance of the noise, compared with a variance of 1 of the process", HARK_NEEDS_REGRESSOR, MEANING, GROUP, 1)               \
  X(regressor.standardise, "standardise", BOOL, "true", NULL, HARK_FLAG_OF_TRAINING, NULL,                                                 \
    "shift and scale every column of a table by its mean and standard deviation in the context", HARK_NEEDS_REGRESSOR, MEANING, GROUP, 1)  \
  X(regressor.loss, NULL, ENUM, "gaussian", HARK_REGRESSOR_LOSS_WORDS, HARK_FLAG_OF_TRAINING, NULL,                                        \
    "what is learned; gaussian: the distribution of the targets; squared: their mean; classes: the target is a class",                     \
    HARK_NEEDS_REGRESSOR, WEIGHTS, GROUP, 1)                                                                                               \
  X(regressor.head, NULL, ENUM, "posterior", HARK_REGRESSOR_HEAD_WORDS, HARK_FLAG_OF_TRAINING, NULL,                                       \
    "how targets are predicted; posterior: by Gaussian processes; smoother: by means of the context's targets, weighted by kernels",       \
    HARK_NEEDS_REGRESSOR, WEIGHTS, GROUP, 1)

/* What the data determine; it is in a model's file and in no configuration: X(member and key, type, range, stored, place). */
#define HARK_MODEL_FACTS(X)                                                                                                                \
  X(vocabulary, INT, "[1, 2147483647]", ALWAYS, 0)                                                                                         \
  X(classes, INT, "[0, 1048576]", CHANGED, 2)                                                                                              \
  X(parts, INT, "[0, 2]", CHANGED, 2)                                                                                                      \
  X(features, INT, "[0, 2147483647]", CHANGED, 2)                                                                                          \
  X(responses, INT, "[0, 2147483647]", CHANGED, 2)                                                                                         \
  X(sentences, BOOL, NULL, CHANGED, 2)                                                                                                     \
  X(unreserved, BOOL, NULL, CHANGED, 2)                                                                                                    \
  X(ends, LIST, "[0, 2147483647]", CHANGED, 2)                                                                                             \
  X(text_limit, INT, "[0, 16777216]", CHANGED, 2)

/* A row. */
typedef struct hark_model_option {
  hark_option option; /* its field is a member of hark_network_config */
  hark_bond bond;
  hark_stored stored;
  int place;
  bool fact; /* of HARK_MODEL_FACTS */
} hark_model_option;

#define HARK_MODEL_ONE(...) +1
enum { HARK_MODEL_ROWS = 0 HARK_MODEL_OPTIONS(HARK_MODEL_ONE) HARK_MODEL_FACTS(HARK_MODEL_ONE) };
#undef HARK_MODEL_ONE

#define HARK_MODEL_PREFIX "model."
#define HARK_MODEL_PLACES 4

/* Row number `index`: the options, then the facts; NULL when there are no more. */
const hark_model_option *hark_model_option_at(int index);
/* The row of "model.layers"; NULL: there is none. */
const hark_model_option *hark_model_option_find(const char *name);

/* The member of a configuration that a row is of. */
static inline void *hark_model_option_field(const hark_model_option *row, hark_network_config *config) {
  return (char *)config + row->option.offset;
}
static inline const void *hark_model_option_value(const hark_model_option *row, const hark_network_config *config) {
  return (const char *)config + row->option.offset;
}

/* Whether all that the row needs is there; and the first condition of it. */
bool hark_model_option_has_effect(const hark_model_option *row, const hark_network_config *config);
bool hark_model_option_in_group(const hark_model_option *row, const hark_network_config *config);

/* Whether the value is the default; 0 is, where it is none of the values, for it has not been said then. */
bool hark_model_option_is_default(const hark_model_option *row, const hark_network_config *config);
/* Puts the default in its place. Texts are of the table. */
void hark_model_option_reset(const hark_model_option *row, hark_network_config *config);

/* The numbers of an option that is a list: what was read of its texts. The range of the row is that of each number. */
typedef struct hark_model_list {
  const char *name;
  size_t count, values; /* members: int32_t, and double or (whole) int32_t [most] */
  int32_t most;
  bool whole;
  bool delimiters; /* tokens as in ops/chunk_ends.h: "10,46+32" are token 10, and token 46 with token 32 after it; configurations also have
                      texts, which are no numbers */
} hark_model_list;

/* NULL where the row is no list. */
const hark_model_list *hark_model_list_of(const char *name);
int32_t hark_model_list_count(const hark_model_list *list, const hark_network_config *config);
double hark_model_list_number(const hark_model_list *list, const hark_network_config *config, int32_t index);
/* The same where delimiters are printed: the token, and whether it continues the one before, and the next one it. */
typedef struct hark_list_part {
  double number;
  bool continues, goes_on;
} hark_list_part;
hark_list_part hark_model_list_part(const hark_model_list *list, const hark_network_config *config, int32_t index);
void hark_model_list_clear(const hark_model_list *list, hark_network_config *config);

typedef enum hark_list_reading { HARK_LIST_READ, HARK_LIST_FULL, HARK_LIST_WRONG } hark_list_reading;
/* Appends a number, or all those of a text such as "1,1.05". A text without numbers is HARK_LIST_WRONG, also in a list of delimiters. */
hark_list_reading hark_model_list_add(const hark_model_list *list, double number, hark_network_config *config);
hark_list_reading hark_model_list_read(const hark_model_list *list, const char *text, hark_network_config *config);

/* The last token, of a delimiter, is followed by another one. */
void hark_model_list_go_on(const hark_model_list *list, hark_network_config *config);
/* In place of the tokens of a delimiter that is a text, until a vocabulary is known. No vocabulary has it. */
#define HARK_DELIMITER_TEXT INT32_MAX
/* Whether the list has a text in place of numbers, which only configurations have. */
bool hark_model_list_has_text(const hark_model_list *list, const hark_network_config *config);

/* Forgets the texts of lists, which belong to who read them: a network has the numbers. */
void hark_model_forget_texts(hark_network_config *config);

#endif
