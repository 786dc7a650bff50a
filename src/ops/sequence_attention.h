/* sequence_attention.h - attention over a sequence that is spread over processes (group/sequence.h), in which each has the rows of its part
 * and exchanges what the structure of the attention needs (attention/spread.h). All processes of it run the operator in the same order. It
 * is not in the table of operators.
 *
 * inputs: query [B, own rows, H d], key [B, own rows, Hkv d], value [B, own rows, Hkv dv], log_kernel [H or 1, T], hierarchical_bias
 * [H or 1, 4 Nr - 1]; output [B, own rows, H dv]; saved: log_sum_exp [B, H, own rows]. Results and gradients of rows have the bits of one
 * process. The gradients of tables are parts of sums over the processes.
 */
#ifndef HARK_OPS_SEQUENCE_ATTENTION_H
#define HARK_OPS_SEQUENCE_ATTENTION_H

#include <hark/operators.h>

#include "group/sequence.h"

/* The plan is for all rows and all heads, and the sequence's unit is a multiple of its unit; both are borrowed until the backward is done.
 * hark_sequence_attention_measure() has seen the plan.
 * Errors: those of hark_attention_spread_forward(). */
typedef struct hark_sequence_attention_attributes {
  const hark_attention_plan *plan;
  const hark_sequence *sequence;
  hark_random_stream dropout;
} hark_sequence_attention_attributes;

enum {
  HARK_SEQUENCE_ATTENTION_QUERY,
  HARK_SEQUENCE_ATTENTION_KEY,
  HARK_SEQUENCE_ATTENTION_VALUE,
  HARK_SEQUENCE_ATTENTION_LOG_KERNEL,
  HARK_SEQUENCE_ATTENTION_HIERARCHICAL_BIAS,
  HARK_SEQUENCE_ATTENTION_INPUTS
};

extern const hark_operator hark_op_sequence_attention;

/* Makes a plan one that keeps rows: sets keeps_rows and the bytes of memory of its calls with the own rows, with all gradients. */
HARK_MUST_CHECK hark_status hark_sequence_attention_measure(hark_context *context, const hark_sequence *sequence,
                                                            hark_attention_plan *plan);

#endif
