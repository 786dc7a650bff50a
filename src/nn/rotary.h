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

/* One number a pair. */
#define HARK_ROTARY_FACTORS 256
typedef struct hark_rotary_factors {
  int32_t count;
  double values[HARK_ROTARY_FACTORS];
} hark_rotary_factors;

/* Numbers that single scalings have; 0 stands for what is published. */
typedef struct hark_rotary_tuning {
  hark_rotary_ramp_unit ramp;                    /* yarn */
  double beta_fast, beta_slow;                   /* yarn: turns of the pairs between which the ramp lies; 0: 32, 1 */
  bool untruncated;                              /* yarn: the ramp's ends are no whole pairs */
  double mscale, mscale_all_dim;                 /* yarn: both, or neither */
  double attention_factor;                       /* yarn, longrope; 0: hark_rotary_magnitude's formula */
  double low_frequency, high_frequency;          /* llama3: turns; 0: 1, 4 */
  hark_rotary_factors short_factor, long_factor; /* longrope: of every pair that turns */
} hark_rotary_tuning;

/* Rates that have a table: [sets, pairs], of longrope the second one for texts longer than those of training. */
typedef struct hark_rotary_tables {
  double *rates; /* NULL: there is none */
  int sets;
  int64_t pairs;
  size_t bytes;
} hark_rotary_tables;

/* The scalings, of factor s (0: 1), for rates trained in texts of `context` tokens, N:
 *   linear     position / s (arXiv 2306.15595)
 *   ntk        base s^(d / (d - 2)) in place of base, so that the slowest of d/2 pairs is s times slower
 *   dynamic    the same with s n / N - (s - 1) in place of s, for texts of n > N tokens
 *   yarn       pairs that turn seldom within N are slowed down by s, as rotary_ramp.h says, and logits are larger (arXiv 2309.00071)
 *   llama3     rate / s below `low_frequency` turns within N, the rate itself above `high_frequency`, linear in the turns between
 *   longrope   rate / short_factor[j], or in texts longer than N rate / long_factor[j] (arXiv 2402.13753)
 * Rates of dynamic and longrope depend on the length that a text has in the end: what was read turns otherwise when more has come. */
typedef struct hark_rotary_spec {
  bool present;
  double base;
  hark_rotary_pairs pairs;
  double fraction; /* of the pairs, those of the highest rates, turns (p-RoPE, arXiv 2410.06205); 0: 1 */
  hark_rotary_scaling scaling;
  double factor;
  int64_t context, head_dim;
  const hark_rotary_tuning *tuning; /* NULL: all as published */
  const hark_rotary_tables *tables; /* of yarn, llama3, longrope; NULL: yarn as published alone */
} hark_rotary_spec;

/* The rate of pair j in a text of `length` tokens. */
double hark_rotary_rate_of(const hark_rotary_spec *spec, int64_t length, int64_t j);

/* The record's attributes for one head at position 0 of a text of `length` tokens; and of one no longer than those of training. */
hark_rotary_attributes hark_rotary_attributes_in(const hark_rotary_spec *spec, int64_t length);
hark_rotary_attributes hark_rotary_attributes_of(const hark_rotary_spec *spec);

/* What queries and keys would be multiplied by. yarn: 0.1 ln s + 1, or (0.1 mscale ln s + 1) / (0.1 mscale_all_dim ln s + 1); longrope:
 * sqrt(1 + ln s / ln N); or attention_factor; else 1. */
double hark_rotary_magnitude(const hark_rotary_spec *spec);

/* Whether rates depend on how long a text is, and whether they are the same in texts of these lengths. */
bool hark_rotary_depends_on_length(const hark_rotary_spec *spec);
bool hark_rotary_same_rates(const hark_rotary_spec *spec, int64_t length, int64_t other);

/* Makes the tables that the spec's scaling needs, of spec->tables' place in it nothing is read. Errors: HARK_OUT_OF_MEMORY. */
HARK_MUST_CHECK hark_status hark_rotary_tables_open(hark_context *context, const hark_rotary_spec *spec, hark_rotary_tables *out);
void hark_rotary_tables_close(hark_context *context, hark_rotary_tables *tables);

/* Refuses, as a configuration, numbers that a scaling cannot have: lists of another length than there are pairs, ranges, turned ends. */
HARK_MUST_CHECK hark_status hark_rotary_check(hark_context *context, const hark_rotary_spec *spec);

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

/* *value <- its `heads` heads turned; rates 0: by the static ones. Errors: HARK_UNSUPPORTED for packed sequences where rates depend on
 * their lengths. */
HARK_MUST_CHECK hark_status hark_rotary_apply(hark_context *context, const hark_forward *forward, const hark_rotary_spec *spec,
                                              hark_value rates, int64_t heads, hark_value *value);

#endif
