/* attend_rotary.h - rotary positions of hark attend: rotation of queries and keys before the attention, and of gradients after it. */
#ifndef HARK_CLI_ATTEND_ATTEND_ROTARY_H
#define HARK_CLI_ATTEND_ATTEND_ROTARY_H

#include "cli/attend/attend.h"
#include "nn/rotary.h"

/* Rates of a call; close them also after a failure. */
typedef struct hark_attend_rotary {
  hark_rotary_spec spec;
  hark_rotary_tables tables;
  hark_rotary_attributes attributes; /* for rows at position 0 */
} hark_attend_rotary;

/* Refuses combinations of options. */
HARK_MUST_CHECK hark_status hark_attend_rotary_check(hark_invocation *call);

/* The rates of the options for these tensors, or those of the tensor rotary_rates. Without --rotary all is zero. Errors:
 * HARK_SHAPE_MISMATCH for rotary_rates of another number of pairs. */
HARK_MUST_CHECK hark_status hark_attend_rotary_open(hark_context *context, const hark_attend_values *values,
                                                    const hark_attend_tensors *tensors, hark_attend_rotary *out);
void hark_attend_rotary_close(hark_context *context, hark_attend_rotary *rotary);

/* tensors->turned_query, turned_key <- q and k, rotated by their positions. */
HARK_MUST_CHECK hark_status hark_attend_rotary_turn(hark_context *context, const hark_attend_values *values,
                                                    const hark_attend_rotary *rotary, hark_attend_tensors *tensors);

/* From gradients by rotated rows to those by the given ones, in dquery and dkey; drotary_rates where rates were given. */
HARK_MUST_CHECK hark_status hark_attend_rotary_turn_back(hark_context *context, const hark_attend_values *values,
                                                         const hark_attend_rotary *rotary, hark_attend_tensors *tensors);

#endif
