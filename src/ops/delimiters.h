/* delimiters.h - the check of the delimiters that an operator takes. */
#ifndef HARK_OPS_DELIMITERS_H
#define HARK_OPS_DELIMITERS_H

#include <inttypes.h>

#include "core/core.h"
#include "ops/chunk_ends.h"

/* HARK_OK for a count of at least 0 whose last number ends a delimiter. Errors: HARK_INVALID_ARGUMENT. */
static inline hark_status hark_check_delimiters(hark_context *context, const hark_operator *op, const int32_t *delimiters, int64_t count) {
  if (count < 0)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "%s: delimiter_count is %" PRId64 ", expected 0 or more", op->name, count);
  if (count > 0 && hark_delimiter_goes_on(delimiters[count - 1]))
    return hark_fail(context, HARK_INVALID_ARGUMENT, "%s: delimiters ends with %" PRId32 ", expected a token", op->name,
                     delimiters[count - 1]);
  return HARK_OK;
}

#endif
