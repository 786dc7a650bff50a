/* compact.h - the checks that records with a matrix of bf16, f16 or i8 share. */
#ifndef HARK_OPS_COMPACT_H
#define HARK_OPS_COMPACT_H

#include "core/compact.h"
#include "ops/definition.h"

/* The type that hark_check_inputs() is to expect of the matrix: its own if it is compact, else bf16. */
static inline hark_type hark_compact_rule(const hark_tensor *inputs, int input_count, int i) {
  return i < input_count && hark_type_is_compact(inputs[i].type) ? inputs[i].type : HARK_BF16;
}

/* Refuses an i8 matrix without a scale per row, and a scale with another type. Errors: HARK_INVALID_ARGUMENT, HARK_SHAPE_MISMATCH. */
HARK_MUST_CHECK hark_status hark_check_scale(hark_context *context, const hark_operator *op, const char *name, const hark_tensor *matrix,
                                             const hark_tensor *scale);

/* The number of a matrix [rows, columns] at a place; of i8 the integer. */
static inline double hark_compact_get(const hark_tensor *matrix, int64_t row, int64_t column) {
  const int64_t at = row * matrix->shape[1] + column;
  if (matrix->type == HARK_I8) return (double)((const int8_t *)matrix->data)[at];
  return (double)hark_half_widen(matrix->type, ((const uint16_t *)matrix->data)[at]);
}

#endif
