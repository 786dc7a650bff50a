/* norm.h - common parts of the normalisation operators: y[n, d] = gain[d] xhat[n, d] (+ bias[d]), x of any rank, rows along the last
 * dimension.
 *
 * Inputs in this order: x, gain and, for operators that have one, bias. Every saved tensor has one number per row.
 */
#ifndef HARK_OPS_NORM_H
#define HARK_OPS_NORM_H

#include "ops/definition.h"

enum { HARK_NORM_X, HARK_NORM_GAIN, HARK_NORM_BIAS };

/* Columns of the gradients of gain and bias that one piece of work sums: a cache line of doubles. */
#define HARK_NORM_COLUMNS 8

/* Checks epsilon and shapes and describes the output and `saved` tensors [N].
 * Errors: HARK_INVALID_ARGUMENT, HARK_SHAPE_MISMATCH, HARK_TOO_LARGE. */
HARK_MUST_CHECK hark_status hark_norm_infer(hark_context *context, const hark_operator *op, const void *attributes,
                                            const hark_tensor *inputs, int input_count, int saved, hark_inferred *out);

/* Runs `rows` over all rows of x. */
HARK_MUST_CHECK hark_status hark_norm_forward(hark_context *context, const hark_call *call, hark_range_body *rows);

/* Runs `columns` over the features where the gradient of gain or bias is requested, and `rows` over all rows where that of x is. */
HARK_MUST_CHECK hark_status hark_norm_backward(hark_context *context, const hark_call *call, hark_range_body *rows,
                                               hark_range_body *columns);

/* The longest sum: over the features of a row, or over the rows for the gradients of gain and bias. */
int64_t hark_norm_terms(const void *attributes, const hark_tensor *inputs, int input_count);

#endif
