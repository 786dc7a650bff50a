/* range.h - the parameters, given as doubles, with which a type can compute.
 *
 * A parameter is checked when the operator or plan that uses it is created, against the type that it uses: a number of f64 may become
 * infinite or zero in f32, and results would be silently incorrect.
 */
#ifndef HARK_CORE_RANGE_H
#define HARK_CORE_RANGE_H

#include "core/core.h"

typedef struct hark_range {
  double least, most;
} hark_range;

/* Magnitudes of numbers with all of the type's digits. */
hark_range hark_range_of(hark_type type);

/* For a factor of logits, such as 1 / sigma^2: its products with numbers of size one are in range. */
hark_range hark_range_of_scale(hark_type type);

/* For the sigma of exp(-|q - k|^2 / (2 sigma^2)): 1 / sigma^2 has all of the type's digits, and squared distances of numbers of size one,
 * in units of sigma, are in range. */
hark_range hark_range_of_sigma(hark_type type);

/* The range's ends as messages print them with %.3g: three digits, rounded inwards, so that the printed values are accepted. */
hark_range hark_range_printed(hark_range range);

static inline bool hark_is_within(hark_range range, double value) { return value >= range.least && value <= range.most; }

/* HARK_INVALID_ARGUMENT unless the magnitude of the value is in range, or 0: "layer_norm: epsilon is 1e39, expected 0 or a magnitude of
 * 1.18e-38 to 3.4e+38, the range of f32", for a range from 0 "expected a magnitude of at most 3.4e+38, the range of f32". */
HARK_MUST_CHECK hark_status hark_check_range(hark_context *context, const char *who, const char *name, double value, hark_type type,
                                             hark_range range);

#endif
