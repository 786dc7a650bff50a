/* head_statistics.h - what the attention heads of a model attend to while it reads a text. */
#ifndef HARK_CLI_INSPECT_HEAD_STATISTICS_H
#define HARK_CLI_INSPECT_HEAD_STATISTICS_H

#include "models/model.h"

/* Means over the queries of a head. With the weights p of a query at position n on the keys at positions i: */
typedef struct hark_head_statistics {
  double keys;     /* exp(entropy): the number of keys that equal weights of this entropy would be on */
  double entropy;  /* -sum p log p, nats */
  double distance; /* sum p |n - i|, tokens */
  double far;      /* sum of p where |n - i| > D */
  double first;    /* p of the first token */
  double negative; /* CME: the sum of p where the coefficient is below zero; else 0 */
} hark_head_statistics;

/* Softmax: p are the weights. CME: p = |w| / sum |w| of the coefficients w of the values; queries whose coefficients are all 0 do not
 * count. */
typedef struct hark_layer_statistics {
  hark_attention_structure structure;
  hark_attention_normalisation normalisation;
  hark_head_statistics *heads; /* [heads] */
} hark_layer_statistics;

typedef struct hark_model_statistics {
  int64_t layers, heads;
  hark_layer_statistics *of_layers; /* [layers] */
  hark_head_statistics *all;        /* [layers, heads], of the layers */
} hark_model_statistics;

/* Reads `tokens` (1 to the model's context) with a model whose architecture has blocks (decoder, encoder, masked_encoder), one layer after
 * the other; token types are 0. Memory: a block of weights, and six numbers per head and token of a layer. The caller frees *out, also
 * after a failure. Errors: HARK_NOT_FINITE (weights), those of the model's pass and of hark_attention_weights_visit(). */
HARK_MUST_CHECK hark_status hark_head_statistics_compute(hark_context *context, const hark_model *model, const int32_t *tokens,
                                                         int64_t count, int64_t distance, hark_model_statistics *out);
void hark_model_statistics_free(hark_context *context, hark_model_statistics *statistics);

#endif
