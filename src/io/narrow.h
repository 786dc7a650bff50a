/* narrow.h - rounding rows of f32 to the types of compact weights (core/compact.h), with errors that name the number. */
#ifndef HARK_IO_NARROW_H
#define HARK_IO_NARROW_H

#include "core/compact.h"

typedef struct hark_narrowing {
  const char *path, *name; /* of the file and the tensor, for messages */
  hark_type type;          /* bf16, f16 or i8 */
  int64_t first;           /* number of the first element in the tensor */
} hark_narrowing;

/* Writes `rows` rows of `columns` numbers, and with i8 the scale of each row; `scales` is not used otherwise. Errors: HARK_NOT_FINITE with
 * the first number that is not finite in the type. */
HARK_MUST_CHECK hark_status hark_narrow(hark_context *context, const hark_narrowing *to, int64_t rows, int64_t columns, const float *from,
                                        void *numbers, float *scales);

#endif
