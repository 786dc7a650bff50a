/* call_memory.h - checks the memory of a call's tensors: what an operator writes must not overlap other tensors of the call, unless the
 * operator allows it. */
#ifndef HARK_OPS_CALL_MEMORY_H
#define HARK_OPS_CALL_MEMORY_H

#include <hark/operator.h>

#include "core/core.h"

/* Refuses calls that lack inputs, output 0, attributes or data, and calls whose results would be meaningless: a tensor that is written
 * (output, saved tensor, workspace, updated input, gradient) shares memory with another tensor of the call although the operator's in_place
 * and gradient_in_place do not allow it, or its elements overlap each other. Also refuses tensors of a built-in operator that are not
 * contiguous. Errors: HARK_INVALID_ARGUMENT. */
HARK_MUST_CHECK hark_status hark_check_call_memory(hark_context *context, const hark_call *call, bool backward);

#endif
