/* call_memory.h - where the tensors of a call lie: what a record writes is apart from all else of the call, but for what the record
 * allows. */
#ifndef HARK_OPS_CALL_MEMORY_H
#define HARK_OPS_CALL_MEMORY_H

#include <hark/operator.h>

#include "core/core.h"

/* Refuses a call whose results would be numbers of nothing: an output (what is saved, the workspace, an updated input, a gradient) that
 * shares memory with another tensor of the call and may not by the record's in_place and gradient_in_place, or whose elements lie in one
 * place; tensors of a built-in record that are not contiguous. Errors: HARK_INVALID_ARGUMENT. */
HARK_MUST_CHECK hark_status hark_check_call_memory(hark_context *context, const hark_call *call, bool backward);

#endif
