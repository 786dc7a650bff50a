/* in_place.h - which gradients of a call may be in the memory of their inputs, and whether that of an output may be in the output's. */
#ifndef HARK_OPS_IN_PLACE_H
#define HARK_OPS_IN_PLACE_H

#include <hark/operators.h>

#include "core/core.h"

/* Bit i: the gradient of input i may be written over input i. The record's gradient_in_place; and for attention of very many rows
 * (hark_context.rows), where memory counts more than a copy, query, key and value if the plan's algorithm allows it. */
unsigned hark_gradients_in_place(const hark_context *context, const hark_operator *op, const void *attributes);

/* The saved tensor with the products that a backward reads in place of the output. */
#define HARK_SAVED_PRODUCTS 2

/* Whether the backward can read products of output 0 with its gradient, row by row and head by head, in place of the output: then the
 * gradient may be written over it. Attention of very many rows in one sequence, as above. Describes the products [1, H, rows]. */
bool hark_reads_products(const hark_context *context, const hark_operator *op, const void *attributes, const hark_tensor *output,
                         hark_tensor *products);
/* Computes those of rows `first` and on: output and gradient are [1, count, H dv]. */
void hark_write_products(hark_context *context, const void *attributes, const hark_tensor *output, const hark_tensor *gradient,
                         int64_t first, const hark_tensor *products);

#endif
