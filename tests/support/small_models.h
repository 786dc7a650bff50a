/* small_models.h - models for tests, of every kind of position and of cache, and a text that is always the same. */
#ifndef HARK_TESTS_SMALL_MODELS_H
#define HARK_TESTS_SMALL_MODELS_H

#include <hark/model.h>

/* Every kind of position and of cache; contexts shorter than what some tests read, but for the first. */
#define MODEL(positions, rest)                                                                                                             \
  "{\"model\": {\"type\": \"gpt\", \"layers\": 2, \"heads\": 4, \"key_heads\": 2, \"width\": 32, \"feed_forward_width\": 48, "             \
  "\"context\": 40, \"activation\": \"gated_silu\", \"norm\": \"rms_norm\", \"norm_epsilon\": 1e-5, \"positions\": \"" positions           \
  "\", \"tie_embeddings\": true, \"bias\": false, \"rotary\": {\"base\": 10000, \"pairs\": \"half\"}, \"attention\": {" rest "}}}"
#define ATTENTION(structure, gate)                                                                                                         \
  "\"structure\": \"" structure "\", \"window\": 5, \"kernel\": \"exp\", \"sigma\": 1, \"forget_gate\": " gate
/* Blocks of the hierarchy hold `block` tokens. */
#define HIERARCHY(block, partition, query)                                                                                                 \
  ATTENTION("hierarchical", "false")                                                                                                       \
  ", \"hierarchy_block\": " block ", \"partition\": \"" partition "\", \"coarse_query\": \"" query "\""
/* Kernel ridge attention; `learned`: ridge and sigma. */
#define RIDGE(learned)                                                                                                                     \
  "\"structure\": \"dense\", \"window\": 5, \"kernel\": \"rbf\", \"sigma\": 1, \"forget_gate\": false, \"normalisation\": \"cme\", "       \
  "\"ridge\": 0.5, "                                                                                                                       \
  "\"ridge_power\": 0.25, \"unit\": true, \"ridge_learned\": " learned ", \"sigma_learned\": " learned
/* The first layer hierarchical, the second dense by kernel ridge. */
#define MIXED                                                                                                                              \
  "\"structure\": \"hierarchical,dense\", \"window\": 5, \"kernel\": \"exp\", \"sigma\": 1, \"forget_gate\": false, "                      \
  "\"hierarchy_block\": 4, \"normalisation\": \"softmax,cme\", \"ridge\": 0.5, \"unit\": true"
/* In the place of positions: none of them, and a positional kernel. */
#define KERNEL(expression, scope) "none\", \"positional\": \"" expression "\", \"positional_scope\": \"" scope
/* In the place of positions: rotary ones, scaled for texts of more than 24 tokens. */
#define SCALED(scaling, rest)                                                                                                              \
  "rotary\", \"rotary.scaling_factor\": 3, \"rotary.original_context\": 24, " rest "\"rotary.scaling\": \"" scaling
/* In the place of positions: rotary ones, and an option outside of attention. */
#define WITH(option, value) "rotary\", \"" option "\": " value ", \"norm_place\": \"pre"
#define PLAIN MODEL("rotary", ATTENTION("dense", "false"))
extern const char *const small_model_descriptions[];
#define DESCRIPTIONS 30 /* small_model_descriptions[0] is PLAIN */
#define VOCABULARY 261  /* bytes, and the reserved tokens */
#define CONTEXT 40

/* Caches of the model keep a part of the tokens only: what was cut off is read again, in other passes than before. */
bool small_model_reads_again(const char *description);

/* How to make a model of this description. */
hark_model_options small_model_options(const char *description);

/* A model with weights drawn by `seed`; a decoding with room for its context. They fail the test rather than return NULL. */
hark_model *small_model_make(hark_context *context, const char *description, uint64_t seed);
hark_decoding *small_model_decoding(hark_context *context, const hark_model *model);

/* The text's tokens 0 .. count - 1. */
int32_t small_model_token(int64_t i);
void small_model_fill(int32_t *tokens, int64_t count);

/* Fails the test unless the decoding's logits have these bits; `what` says which they are. */
void small_model_same_logits(hark_decoding *decoding, const float *expected, const char *what);

/* The same up to rounding, as where a text is read in other parts. Logits of an untrained model of two blocks are of order 1/4; their sums
 * have some dozen terms: 1e-5 is some hundred roundings. */
#define SMALL_MODEL_WITHIN 1e-5f
void small_model_near_logits(hark_decoding *decoding, const float *expected, const char *what);

#endif
