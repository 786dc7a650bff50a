#include "support/boundaries.h"

#include <stdlib.h>
#include <string.h>

#include "support/cmocka_all.h"

void scatter_boundaries(hark_context *context, const hark_parameters *parameters) {
  const int64_t total = parameters->weights.shape[0];
  const bool wide = parameters->weights.type == HARK_F64;
  hark_tensor flat = parameters->weights;
  void *weights = malloc((size_t)total * sizeof(double));
  assert_non_null(weights);
  assert_int_equal(hark_tensor_read(context, &flat, weights), HARK_OK);
  for (int32_t p = 0; p < parameters->count; p++) {
    const hark_parameter *const parameter = &parameters->list[p];
    if (strncmp(parameter->name, "boundary.", 9) != 0 || strstr(parameter->name, "norm") != NULL) continue;
    for (int64_t i = 0; i < parameter->count; i++) {
      const double value = (double)((i * 7919 + 13 * p) % 2003) / 1001 - 1;
      if (wide)
        ((double *)weights)[parameter->first + i] = value;
      else
        ((float *)weights)[parameter->first + i] = (float)value;
    }
  }
  assert_int_equal(hark_tensor_write(context, &flat, weights), HARK_OK);
  free(weights);
}
