/* in_place.h - which gradients of a call may be in the memory of their inputs. */
#ifndef HARK_OPS_IN_PLACE_H
#define HARK_OPS_IN_PLACE_H

#include <hark/operators.h>

#include "core/core.h"

/* Bit i: the gradient of input i may be written over input i. The record's gradient_in_place; and for attention of very many rows
 * (hark_context.rows), where memory counts more than a copy, query, key and value if the plan's algorithm allows it. */
unsigned hark_gradients_in_place(const hark_context *context, const hark_operator *op, const void *attributes);

#endif
