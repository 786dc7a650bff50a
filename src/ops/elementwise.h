/* elementwise.h - common parts of the operators whose inputs and output have one shape: y[i] = f(a[i], b[i], ...).
 *
 * Such an operator consists of its shape inference, written with hark_elementwise_infer(), two loops, forward_range() and backward_range(),
 * and HARK_ELEMENTWISE(...), which defines the other functions from them.
 */
#ifndef HARK_OPS_ELEMENTWISE_H
#define HARK_OPS_ELEMENTWISE_H

#include "ops/definition.h"

/* Checks that the inputs, called names[i], are floating-point tensors of one type and shape, of any rank, and describes output 0 like them.
 * Errors: HARK_INVALID_ARGUMENT, HARK_SHAPE_MISMATCH. */
HARK_MUST_CHECK hark_status hark_elementwise_infer(hark_context *context, const hark_operator *op, const char *const *names,
                                                   const void *attributes, const hark_tensor *inputs, int input_count, hark_inferred *out);

/* Runs `body` over the elements of output 0. */
HARK_MUST_CHECK hark_status hark_elementwise_forward(hark_context *context, const hark_call *call, hark_range_body *body);

/* Runs `body` over the elements of the gradient of output 0, if there is one and the gradient of any input is requested. */
HARK_MUST_CHECK hark_status hark_elementwise_backward(hark_context *context, const hark_call *call, hark_range_body *body);

/* Defines forward, backward, operations and terms of an operator from the useful operations per element and the length of the longest
 * sum. */
#define HARK_ELEMENTWISE(forward_operations, backward_operations, longest_sum)                                                             \
  static hark_status forward(hark_context *context, const hark_call *call) {                                                               \
    return hark_elementwise_forward(context, call, forward_range);                                                                         \
  }                                                                                                                                        \
  static hark_status backward(hark_context *context, const hark_call *call) {                                                              \
    return hark_elementwise_backward(context, call, backward_range);                                                                       \
  }                                                                                                                                        \
  static double operations(const void *attributes, const hark_tensor *inputs, int input_count, bool is_backward) {                         \
    (void)attributes, (void)input_count;                                                                                                   \
    return (is_backward ? (double)(backward_operations) : (double)(forward_operations)) * (double)hark_tensor_count(&inputs[0]);           \
  }                                                                                                                                        \
  static int64_t terms(const void *attributes, const hark_tensor *inputs, int input_count) {                                               \
    (void)attributes, (void)inputs, (void)input_count;                                                                                     \
    return longest_sum;                                                                                                                    \
  }                                                                                                                                        \
  _Static_assert((longest_sum) >= 1, "a result is at least one term")

#endif
