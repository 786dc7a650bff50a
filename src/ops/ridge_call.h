/* ridge_call.h - the shared part of the records of kernel ridge (CME) attention: kernel_ridge, and kernel_ridge_posterior with statistics
 * of rows. Mathematics: docs/mathematics/kernel-ridge.md.
 */
#ifndef HARK_OPS_RIDGE_CALL_H
#define HARK_OPS_RIDGE_CALL_H

#include "ops/definition.h"

enum {
  HARK_RIDGE_CALL_QUERY,
  HARK_RIDGE_CALL_KEY,
  HARK_RIDGE_CALL_VALUE,
  HARK_RIDGE_CALL_LOG_RIDGE,
  HARK_RIDGE_CALL_LOG_SIGMA,
  HARK_RIDGE_CALL_LOG_KERNEL,
  HARK_RIDGE_CALL_NOISE,
  HARK_RIDGE_CALL_QUERY_OFFSETS,
  HARK_RIDGE_CALL_KEY_OFFSETS,
  HARK_RIDGE_CALL_INPUTS
};

/* Outputs; a record of one output has no statistics. */
enum { HARK_RIDGE_CALL_OUT, HARK_RIDGE_CALL_VARIANCE, HARK_RIDGE_CALL_LOG_DETERMINANT, HARK_RIDGE_CALL_QUADRATIC, HARK_RIDGE_CALL_OUTPUTS };

/* The functions of a record `op`. */
HARK_MUST_CHECK hark_status hark_ridge_call_infer(hark_context *context, const hark_operator *op, const void *attributes,
                                                  const hark_tensor *inputs, int input_count, hark_inferred *out);
hark_status hark_ridge_call_forward(hark_context *context, const hark_call *call);
hark_status hark_ridge_call_backward(hark_context *context, const hark_call *call);
double hark_ridge_call_operations(const void *attributes, const hark_tensor *inputs, int input_count, bool is_backward);
int64_t hark_ridge_call_terms(const void *attributes, const hark_tensor *inputs, int input_count);

#endif
