/* rotary.h - rotary positions of a layer: their static rates, those of contexts longer than in training, and those that are learned.
 *
 * Learned rates are natural numbers, angles a token: PREFIX.rotary.rates [R, pairs], of the pairs that turn. They start at the static ones.
 * R is 1, or the number of key heads where every one has its own; the query heads that share a key head turn by its rates, so that their
 * products depend on the distance alone.
 */
#ifndef HARK_NN_ROTARY_H
#define HARK_NN_ROTARY_H

#include <hark/operators.h>

#include "nn/forward.h"
#include "nn/kinds.h"

/* What files call them: the end of the tensors' names (docs/formats.md). */
#define HARK_ROTARY_TENSOR "rotary.rates"

typedef struct hark_rotary_spec {
  bool present;
  double base;
  hark_rotary_pairs pairs;
  double fraction; /* of the pairs, those of the highest rates, turns (p-RoPE, arXiv 2410.06205); 0: 1 */
  /* factor s (0: 1): linear turns by position / s (arXiv 2306.15595); ntk has the base s^(d / (d - 2)) base, so that the slowest of d/2 pairs
   * is s times slower; yarn slows the pairs by the turns they make in `context` tokens, those of training, and makes the logits larger (arXiv 2309.00071). */
  hark_rotary_scaling scaling;
  double factor;
  int64_t context, head_dim;
} hark_rotary_spec;

/* The record's attributes for one head at position 0. */
hark_rotary_attributes hark_rotary_attributes_of(const hark_rotary_spec *spec);

/* What queries and keys would be multiplied by: 0.1 ln s + 1 with yarn, else 1. */
double hark_rotary_magnitude(const hark_rotary_spec *spec);

/* Initial rates, which several layers may share. */
typedef struct hark_rotary_source {
  double *initial; /* [rows, pairs]; NULL: the rates are not learned */
  int64_t rows, pairs;
  size_t bytes;
} hark_rotary_source;

HARK_MUST_CHECK hark_status hark_rotary_source_open(hark_context *context, const hark_rotary_spec *spec, int64_t rows,
                                                    hark_rotary_source *out);
void hark_rotary_source_close(hark_context *context, hark_rotary_source *source);

/* prefix "" gives rotary.rates. The source must outlive the parameters' initialisation. */
HARK_MUST_CHECK hark_status hark_rotary_declare(hark_context *context, hark_parameters *parameters, const hark_rotary_source *source,
                                                const char *prefix, hark_parameter_id *rates);

/* *value <- its `heads` heads turned; rates 0: by the static ones. */
HARK_MUST_CHECK hark_status hark_rotary_apply(const hark_forward *forward, const hark_rotary_spec *spec, hark_value rates, int64_t heads,
                                              hark_value *value);

#endif
