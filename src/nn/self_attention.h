/* self_attention.h - multi-head self-attention, causal or not, with its projections, rotary embedding and forget gate, and its cache for
 * decoding.
 *
 *   q = x Wq^T + bq, k = x Wk^T + bk, v = x Wv^T + bv;   y = attention(rotary(q), rotary(k), v) Wo^T + bo
 */
#ifndef HARK_NN_SELF_ATTENTION_H
#define HARK_NN_SELF_ATTENTION_H

#include <hark/operators.h>

#include "nn/attention_choice.h"
#include "nn/layers.h"
#include "nn/positional_layer.h"
#include "nn/rotary.h"

/* What files call the learned logarithms of kernel ridge attention: the end of the tensors' names. */
#define HARK_RIDGE_TENSOR "log_ridge"
#define HARK_SIGMA_TENSOR "log_sigma"

typedef struct hark_self_attention_spec {
  int64_t width, heads, key_heads;
  int64_t head_dim;
  bool causal;
  double deviation, output_deviation; /* of the initial weights */
  hark_rotary_spec rotary;
  const hark_rotary_source *rotary_source; /* of rates of the layer's own; NULL: it has none */
  hark_parameter_id rotary_rates;          /* those of the whole model; 0: there are none */
  hark_attention_choice choice;            /* the model's; of its words and its powers a layer reads what follows */
  hark_attention_structure structure;      /* of this layer */
  hark_attention_normalisation normalisation;
  double ridge;                                    /* CME: lambda, where every head starts when it is learned */
  const hark_positional_source *positional_source; /* of parameters of the layer's own; NULL: the table is given to every pass */
  bool bias;
  bool positional; /* a table of log G multiplies the similarity */
} hark_self_attention_spec;

typedef struct hark_self_attention {
  hark_self_attention_spec spec;
  int64_t layer; /* number in the model: names its random numbers, its plan and its cache */
  hark_linear query, key, value, forget, output;
  hark_positional_layer positional;
  hark_parameter_id hierarchical_bias;
  hark_parameter_id log_ridge, log_sigma; /* [heads]; 0: not learned */
  hark_parameter_id rotary_rates;         /* the layer's own or the model's; 0: they are not learned */
} hark_self_attention;

/* What a layer keeps of the tokens that it has seen. Dense and window: a row for each, keys and values [1, capacity, key_heads * head_dim],
 * gate logits [1, capacity, heads]. Kernel ridge: keys, rows of U and the factor (kernel_ridge_decode in hark/operators.h). Hierarchical:
 * keys and values [M, 2 Nr, key_heads * head_dim] of the last tokens of every level, and the sums [M, heads, head_dim + 2] that rows to
 * come share (hierarchical_decode in hark/operators.h). Absent parts have type HARK_NONE. */
enum {
  HARK_CACHE_KEY,
  HARK_CACHE_VALUE, /* kernel ridge: rows of U */
  HARK_CACHE_FORGET,
  HARK_CACHE_PARTIAL,
  HARK_CACHE_FACTOR, /* kernel ridge */
  HARK_CACHE_PARTS
};
typedef struct hark_attention_cache {
  hark_tensor part[HARK_CACHE_PARTS];
} hark_attention_cache;

HARK_MUST_CHECK hark_status hark_self_attention_declare(hark_context *context, hark_parameters *parameters,
                                                        const hark_self_attention_spec *spec, int64_t layer, const char *prefix,
                                                        hark_self_attention *out);

/* At most so large are the passes that plans are made for. */
typedef struct hark_pass_sizes {
  int64_t batch, queries, keys; /* rectangular: sequences, new tokens, tokens in all */
  int64_t sequences;            /* packed: how many, of `queries` = `keys` tokens together in a batch of 1; 0: rectangular */
  int64_t longest;              /* packed: tokens of one of them */
  bool cached;                  /* keys and values lie in caches: layers with a record of their own need no plan */
} hark_pass_sizes;

/* Destroyed by the caller. */
HARK_MUST_CHECK hark_status hark_self_attention_plan(hark_context *context, const hark_self_attention_spec *spec, hark_type type,
                                                     const hark_pass_sizes *sizes, bool training, hark_attention_plan **out);

/* Type and shapes of a cache, without memory: enough for shape-only runs. */
HARK_MUST_CHECK hark_status hark_attention_cache_describe(hark_context *context, const hark_self_attention_spec *spec, hark_type type,
                                                          int64_t capacity, hark_attention_cache *out);
/* Gives a described cache its memory, of zeros. */
HARK_MUST_CHECK hark_status hark_attention_cache_create(hark_context *context, hark_attention_cache *cache);
void hark_attention_cache_destroy(hark_context *context, hark_attention_cache *cache);

/* Whether a record of its own attends to the cache: then passes with caches have no plan. */
bool hark_self_attention_has_record(const hark_self_attention_spec *spec);
/* Whether the first n tokens of a cache are what a cache of n tokens holds: those behind them can be forgotten. */
bool hark_attention_cache_goes_back(const hark_self_attention_spec *spec);
/* Numbers at the front of a part that belong to its first `tokens` tokens, with caches that go back. */
int64_t hark_attention_cache_front(const hark_attention_cache *cache, int part, int64_t tokens);

/* Distances that a table of log G needs for `length` tokens: more than there are between tokens where cells reach farther. */
int64_t hark_self_attention_distances(const hark_self_attention_spec *spec, int64_t length);
/* With caches of `capacity` tokens: whether attention takes the means of such a table instead, and how to make them. */
bool hark_self_attention_means(const hark_self_attention_spec *spec, int64_t capacity, hark_hierarchical_means_attributes *out);

/* x [B, L, width]; with caches B is 1 and L more tokens are put behind forward->first_position. log_kernel: the table of a positional
 * kernel that the model shares, 0 where the layer has its own or none. Both stay with the caller. */
HARK_MUST_CHECK hark_status hark_self_attention_apply(hark_context *context, const hark_forward *forward, const hark_self_attention *layer,
                                                      hark_value x, hark_value log_kernel, hark_value *out);

#endif
