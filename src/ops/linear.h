/* linear.h - what the records of y = x W^T + b share, whatever the types of x and W. */
#ifndef HARK_OPS_LINEAR_H
#define HARK_OPS_LINEAR_H

#include "ops/definition.h"

/* Inputs of linear and linear_bf16. */
enum { HARK_LINEAR_X, HARK_LINEAR_WEIGHT, HARK_LINEAR_BIAS, HARK_LINEAR_INPUTS };

/* db = 1^T dy, if it is requested: sums over rows in double, in their order. */
void hark_linear_bias_gradient(hark_context *context, const hark_call *call);

/* 2 N in out forward, twice that backward; and the longest sum. */
double hark_linear_operations(const void *attributes, const hark_tensor *inputs, int input_count, bool is_backward);
int64_t hark_linear_terms(const void *attributes, const hark_tensor *inputs, int input_count);

#endif
