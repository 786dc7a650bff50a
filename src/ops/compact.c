/* compact.c - see compact.h. */
#include "ops/compact.h"

hark_status hark_check_scale(hark_context *context, const hark_operator *op, const char *name, const hark_tensor *matrix,
                             const hark_tensor *scale) {
  const bool needed = matrix->type == HARK_I8;
  if (needed != hark_present(scale))
    return hark_fail(context, HARK_INVALID_ARGUMENT, "%s: scale is %s and %s is %s, expected a scale for i8 and no other type", op->name,
                     needed ? "absent" : "present", name, hark_type_name(matrix->type));
  return needed ? hark_check_vector(context, op, "scale", scale, matrix->shape[0], "the rows of the matrix") : HARK_OK;
}
