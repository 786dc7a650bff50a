/* rowwise.h - common parts of the operators that map each row of one input to a row: y[n, :] = f(x[n, :]), x and y of one shape [..., D].
 *
 * Such an operator consists of its shape inference, two loops over rows, forward_rows() and backward_rows(), and HARK_ROWWISE(...), which
 * defines the other functions from them.
 */
#ifndef HARK_OPS_ROWWISE_H
#define HARK_OPS_ROWWISE_H

#include "ops/definition.h"

/* Sum of x[i]^2 over the `width` numbers from `first` on. */
double hark_rowwise_square(hark_numbers x, int64_t first, int64_t width);

/* Runs `rows` over all rows of input 0. */
HARK_MUST_CHECK hark_status hark_rowwise_forward(hark_context *context, const hark_call *call, hark_range_body *rows);

/* The same, if there is a gradient of output 0 and that of input 0 is requested. */
HARK_MUST_CHECK hark_status hark_rowwise_backward(hark_context *context, const hark_call *call, hark_range_body *rows);

/* The longest sum: over a row. */
int64_t hark_rowwise_terms(const void *attributes, const hark_tensor *inputs, int input_count);

/* Defines forward, backward, operations and terms of an operator from the useful operations per element. */
#define HARK_ROWWISE(forward_operations, backward_operations)                                                                              \
  static hark_status forward(hark_context *context, const hark_call *call) { return hark_rowwise_forward(context, call, forward_rows); }   \
  static hark_status backward(hark_context *context, const hark_call *call) {                                                              \
    return hark_rowwise_backward(context, call, backward_rows);                                                                            \
  }                                                                                                                                        \
  static double operations(const void *attributes, const hark_tensor *inputs, int input_count, bool is_backward) {                         \
    (void)attributes, (void)input_count;                                                                                                   \
    return (is_backward ? (double)(backward_operations) : (double)(forward_operations)) * (double)hark_tensor_count(&inputs[0]);           \
  }                                                                                                                                        \
  static hark_status forward(hark_context *context, const hark_call *call) /* so that a semicolon follows */

#endif
