/* layers.h - layers with parameters. Each has a function that declares its parameters and one that applies it (records its operators).
 *
 * Legend: B batch, L length, D width, F width of the feed-forward layer. The caller keeps the input value unless a comment says that it is
 * released. Names of parameters begin with the prefix: "PREFIX.weight", "PREFIX.bias".
 */
#ifndef HARK_NN_LAYERS_H
#define HARK_NN_LAYERS_H

#include <math.h>

#include "nn/forward.h"
#include "nn/kinds.h"

/* Given as the deviation of initial weights, it means Xavier's for the layer: sqrt(2 / (in + out)) (Glorot and Bengio 2010). */
#define HARK_DEVIATION_XAVIER 0.0
static inline double hark_deviation_for(double deviation, int64_t in, int64_t out) {
  return deviation != HARK_DEVIATION_XAVIER ? deviation : sqrt(2.0 / (double)(in + out));
}

/* y = x W^T + b */
typedef struct hark_linear {
  hark_parameter_id weight, bias;
} hark_linear;
HARK_MUST_CHECK hark_status hark_linear_declare(hark_context *context, hark_parameters *parameters, int64_t in, int64_t out, bool bias,
                                                double deviation, const char *prefix, hark_linear *layer);
HARK_MUST_CHECK hark_status hark_linear_apply(const hark_forward *forward, const hark_linear *layer, hark_value x, hark_value *out);

/* out[n, :] = table[ids[n], :]; ids i32 of any shape. */
HARK_MUST_CHECK hark_status hark_embedding_apply(const hark_forward *forward, hark_parameter_id table, hark_value ids, hark_value *out);

/* Layer norm or RMS norm over the features. */
typedef struct hark_norm_layer {
  hark_norm kind;
  double epsilon;
  hark_parameter_id weight, bias;
} hark_norm_layer;
HARK_MUST_CHECK hark_status hark_norm_declare(hark_context *context, hark_parameters *parameters, hark_norm kind, double epsilon,
                                              int64_t features, bool bias, const char *prefix, hark_norm_layer *layer);
HARK_MUST_CHECK hark_status hark_norm_apply(const hark_forward *forward, const hark_norm_layer *layer, hark_value x, hark_value *out);

/* y = down(activation(up(x))), or down(silu(gate(x)) * up(x)) for the gated one. */
typedef struct hark_feed_forward {
  hark_activation activation;
  hark_linear gate, up, down;
} hark_feed_forward;
HARK_MUST_CHECK hark_status hark_feed_forward_declare(hark_context *context, hark_parameters *parameters, hark_activation activation,
                                                      int64_t width, int64_t inner, bool bias, double deviation, double output_deviation,
                                                      const char *prefix, hark_feed_forward *layer);
HARK_MUST_CHECK hark_status hark_feed_forward_apply(const hark_forward *forward, const hark_feed_forward *layer, hark_value x,
                                                    hark_value *out);

#endif
