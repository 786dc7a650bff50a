/* self_attention.h - multi-head self-attention, causal or not, with its projections, rotary embedding and forget gate.
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

/* Names in files of the learned logarithms of kernel ridge attention: the ends of the tensors' names. */
#define HARK_RIDGE_TENSOR "log_ridge"
#define HARK_SIGMA_TENSOR "log_sigma"

typedef struct hark_self_attention_spec {
  int64_t width, heads, key_heads;
  int64_t head_dim;
  bool causal;
  double deviation, output_deviation; /* standard deviations of initial weights */
  hark_rotary_spec rotary;
  const hark_rotary_source *rotary_source; /* where the layer has its own rates; else NULL */
  hark_parameter_id rotary_rates;          /* shared rates of the model; 0: none */
  /* the model's; its options that vary by layer or need a power are resolved in the members below */
  hark_attention_choice choice;
  hark_attention_structure structure; /* of this layer */
  hark_attention_normalisation normalisation;
  double ridge;                                    /* CME: lambda, or the initial value of every head where it is learned */
  const hark_positional_source *positional_source; /* where the layer has its own parameters; NULL: every pass is given the table */
  bool bias, output_bias;                          /* of queries, keys and values; of the output */
  bool positional;                                 /* a table of log G multiplies the similarity */
  bool directed;                                   /* the table has both directions; not causal */
} hark_self_attention_spec;

typedef struct hark_self_attention {
  hark_self_attention_spec spec;
  int64_t layer;                                        /* index in the model: selects its random numbers, plan and cache */
  hark_linear query, key, value, forget, noise, output; /* forget gates and noise: absent, or a number of each head */
  hark_positional_layer positional;
  hark_parameter_id hierarchical_bias;
  hark_parameter_id contextual;           /* [1, N, head_dim]: for all heads; 0: none */
  hark_parameter_id log_ridge, log_sigma; /* [heads]; 0: not learned */
  hark_parameter_id rotary_rates;         /* the layer's or the model's; 0: not learned */
} hark_self_attention;

HARK_MUST_CHECK hark_status hark_self_attention_declare(hark_context *context, hark_parameters *parameters,
                                                        const hark_self_attention_spec *spec, int64_t layer, const char *prefix,
                                                        hark_self_attention *out);

/* The largest passes that a plan is made for. */
typedef struct hark_pass_sizes {
  int64_t batch, queries, keys; /* rectangular: sequences, new tokens, tokens in all */
  int64_t sequences;            /* packed: number of sequences, of `queries` = `keys` tokens in total, in a batch of 1; 0: rectangular */
  int64_t longest;              /* packed: tokens of the longest sequence */
  hark_type product_type;       /* of attention's products in training (hark_attention_desc); set by hark_network_plans_create() */
  hark_attention_solver solver; /* of kernel ridge attention */
  bool cached;                  /* keys and values are in caches: layers whose cache has its own operator need no plan */
  const struct hark_sequence *sequence; /* whose rows are spread over processes; queries and keys are all rows; or NULL */
} hark_pass_sizes;

/* *unit: at multiples of this many rows processes may divide sequences, so that the layer exchanges what its structure needs. 0: the layer
 * exchanges rows for heads, and any division will do. */
HARK_MUST_CHECK hark_status hark_self_attention_row_unit(hark_context *context, const hark_self_attention_spec *spec, hark_type type,
                                                         const hark_pass_sizes *sizes, int64_t *unit);

/* Makes the plan of a layer. The caller destroys it. Errors: HARK_UNSUPPORTED for a spread sequence with kernel ridge attention, or with
 * more processes than key heads where rows are exchanged for heads. */
HARK_MUST_CHECK hark_status hark_self_attention_plan(hark_context *context, const hark_self_attention_spec *spec, hark_type type,
                                                     const hark_pass_sizes *sizes, bool training, hark_attention_plan **out);

/* Whether project() gives parts[GATE]. */
bool hark_self_attention_has_gate(const hark_self_attention_spec *spec);
/* Number of distances that a table of log G needs for `length` tokens; larger than the distances between tokens where cells extend
 * farther. */
int64_t hark_self_attention_distances(const hark_self_attention_spec *spec, int64_t length);

/* The same as an argument of hark_positional_apply(): below 0 for a table with both directions. */
int64_t hark_self_attention_table(const hark_self_attention_spec *spec, int64_t length);
/* Scale of q.k, or sigma of |q - k|, that includes the rotary magnitude of queries and keys. */
double hark_self_attention_scale(const hark_self_attention_spec *spec);
double hark_self_attention_sigma(const hark_self_attention_spec *spec);

/* The noise of keys from its logits, which are consumed; 0 stays 0. `by_rows`: for decoding. */
HARK_MUST_CHECK hark_status hark_self_attention_noise(const hark_forward *forward, hark_value logits, bool by_rows, hark_value *noise);

/* Inputs of attention, in this order. */
enum { HARK_ATTENTION_QUERY, HARK_ATTENTION_KEY, HARK_ATTENTION_VALUE, HARK_ATTENTION_GATE, HARK_ATTENTION_PARTS };

/* The layer in three steps, of which the first and the last need no row of another: projections and rotary positions of x [B, L, width];
 * attention of these parts, which are released; the output's projection of `mixed` [B, L, heads * head_dim], which is released. The second
 * step applies rotary positions with learned rates, whose gradients are sums over all queries and then over all keys. parts[GATE] [B, L,
 * heads] are the logits of forget gates, or those of the noise of keys; 0 if there are none. */
HARK_MUST_CHECK hark_status hark_self_attention_project(hark_context *context, const hark_forward *forward,
                                                        const hark_self_attention *layer, hark_value x, hark_value *parts);
HARK_MUST_CHECK hark_status hark_self_attention_mix(hark_context *context, const hark_forward *forward, const hark_self_attention *layer,
                                                    const hark_value *parts, hark_value log_kernel, hark_value *mixed);
HARK_MUST_CHECK hark_status hark_self_attention_output(const hark_forward *forward, const hark_self_attention *layer, hark_value mixed,
                                                       hark_value *out);

/* Applies the layer to x [B, L, width]. With caches B is 1, and the L tokens are stored from position forward->first_position on.
 * log_kernel: the table of the model's shared positional kernel; 0 where the layer has its own or none. The caller keeps both values. */
HARK_MUST_CHECK hark_status hark_self_attention_apply(hark_context *context, const hark_forward *forward, const hark_self_attention *layer,
                                                      hark_value x, hark_value log_kernel, hark_value *out);

#endif
