/* sequence.h - operators over a sequence that is spread over processes (group/sequence.h). All processes of it run them in the same order.
 * They are not in the table of operators: without a group they do nothing.
 *
 *     sequence_to_heads    x [B, own rows, H d] -> y [B, all rows, own heads d]
 *     sequence_to_rows     x [B, all rows, own heads d] -> y [B, own rows, H d]
 *     sequence_own_heads   x [H, n] -> y [own heads, n], the rows of this process's heads
 */
#ifndef HARK_OPS_SEQUENCE_H
#define HARK_OPS_SEQUENCE_H

#include <hark/operator.h>

#include "group/sequence.h"

/* Inputs and outputs f32 or f64. Errors: those of hark_group_exchange(). */
typedef struct hark_sequence_attributes {
  const hark_sequence *sequence;
  int64_t heads, key_heads; /* all of them; heads are divided as their key heads are */
} hark_sequence_attributes;

extern const hark_operator hark_op_sequence_to_heads, hark_op_sequence_to_rows, hark_op_sequence_own_heads;

#endif
