/* rotary.h - rotary positions of a layer: static rates, their scalings for contexts longer than in training, and learned rates.
 *
 * Learned rates are stored as angles per token: PREFIX.rotary.rates [R, pairs], for the pairs that rotate. Their initial values are the
 * static rates. R is the number of key heads where each key head has its own rates, else 1. Query heads that share a key head use its
 * rates, so that products of queries and keys depend on the distance alone.
 */
#ifndef HARK_NN_ROTARY_H
#define HARK_NN_ROTARY_H

#include <hark/operators.h>

#include "nn/forward.h"
#include "nn/kinds.h"

/* Name in files: the end of the tensors' names (docs/formats.md). */
#define HARK_ROTARY_TENSOR "rotary.rates"

/* One number per pair. */
#define HARK_ROTARY_FACTORS 256
typedef struct hark_rotary_factors {
  int32_t count;
  double values[HARK_ROTARY_FACTORS];
} hark_rotary_factors;

/* Settings of single scalings; 0: the published value. */
typedef struct hark_rotary_tuning {
  hark_rotary_ramp_unit ramp;                    /* yarn */
  double beta_fast, beta_slow;                   /* yarn: turns of the pairs at the ends of the ramp; 0: 32, 1 */
  bool untruncated;                              /* yarn: the ramp's ends are not rounded to whole pairs */
  double mscale, mscale_all_dim;                 /* yarn: both or neither */
  double attention_factor;                       /* yarn, longrope; 0: the formula at hark_rotary_magnitude() */
  double low_frequency, high_frequency;          /* llama3: turns; 0: 1, 4 */
  hark_rotary_factors short_factor, long_factor; /* longrope: for every pair that rotates */
} hark_rotary_tuning;

/* Tables of rates, or of factors of learned rates, [sets, pairs]. longrope has a second set, for texts longer than in training. */
typedef struct hark_rotary_tables {
  double *rates; /* NULL: there is none */
  int sets;
  int64_t pairs;
  size_t bytes;
} hark_rotary_tables;

/* The scalings with factor s (0: 1), for rates trained on texts of N = `context` tokens:
 *   linear     position / s (arXiv 2306.15595)
 *   ntk        base s^(d / (d - 2)) in place of base, which makes the slowest of the d/2 pairs s times slower
 *   dynamic    the same with s n / N - (s - 1) in place of s, for texts of n > N tokens
 *   yarn       pairs with few turns within N are slowed down by s (rotary_ramp.h), and logits are larger (arXiv 2309.00071)
 *   llama3     rate / s below `low_frequency` turns within N, the rate itself above `high_frequency`, linear in the turns between
 *   longrope   rate / short_factor[j], or in texts longer than N rate / long_factor[j] (arXiv 2402.13753)
 * Rates of dynamic and longrope depend on the final length of a text: when the text grows, earlier tokens need other rotations. */
typedef struct hark_rotary_spec {
  bool present, learned; /* learned: a scaling multiplies each rate by what it multiplies the static rate of the pair by */
  double base;
  hark_rotary_pairs pairs;
  double fraction; /* fraction of the pairs that rotate, those of the highest rates (p-RoPE, arXiv 2410.06205); 0: 1 */
  hark_rotary_scaling scaling;
  double factor;
  int64_t context, head_dim;
  const hark_rotary_tuning *tuning; /* NULL: published values */
  const hark_rotary_tables *tables; /* for yarn, llama3, longrope, and ntk of learned rates; may be NULL for static rates of ntk, and of
                                       yarn with published values only */
} hark_rotary_spec;

/* The static rate of pair j as it is trained, and in a text of `length` tokens. */
double hark_rotary_trained_rate(const hark_rotary_spec *spec, int64_t j);
double hark_rotary_rate_of(const hark_rotary_spec *spec, int64_t length, int64_t j);

/* The operator's attributes for one head at position 0: in a text of `length` tokens, and in a text no longer than in training. */
hark_rotary_attributes hark_rotary_attributes_in(const hark_rotary_spec *spec, int64_t length);
hark_rotary_attributes hark_rotary_attributes_of(const hark_rotary_spec *spec);

/* The factor on queries and on keys. yarn: 0.1 ln s + 1, or (0.1 mscale ln s + 1) / (0.1 mscale_all_dim ln s + 1); longrope: sqrt(1 + ln s
 * / ln N); or attention_factor; else 1. */
double hark_rotary_magnitude(const hark_rotary_spec *spec);

/* Whether rates depend on the length of a text, and whether they are equal for these two lengths. */
bool hark_rotary_depends_on_length(const hark_rotary_spec *spec);
bool hark_rotary_same_rates(const hark_rotary_spec *spec, int64_t length, int64_t other);

/* Makes the tables that the spec's scaling needs; spec->tables is not read. Errors: HARK_OUT_OF_MEMORY. */
HARK_MUST_CHECK hark_status hark_rotary_tables_open(hark_context *context, const hark_rotary_spec *spec, hark_rotary_tables *out);
void hark_rotary_tables_close(hark_context *context, hark_rotary_tables *tables);

/* Whether the settings of a scaling are valid; otherwise false, with the reason in message[HARK_MESSAGE_BYTES]: a list whose length is not
 * the number of pairs, a number outside its range, ends in the wrong order. */
bool hark_rotary_is_sound(const hark_rotary_spec *spec, char *message);

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

/* Rotates the `heads` heads of *value; rates 0: by the static rates. Errors: HARK_UNSUPPORTED for packed sequences where rates depend on
 * their lengths. */
HARK_MUST_CHECK hark_status hark_rotary_apply(hark_context *context, const hark_forward *forward, const hark_rotary_spec *spec,
                                              hark_value rates, int64_t heads, hark_value *value);

#endif
