/* attend_needs.h - which tensors of the input hark attend can use with which options. */
#ifndef HARK_CLI_ATTEND_ATTEND_NEEDS_H
#define HARK_CLI_ATTEND_ATTEND_NEEDS_H

#include "cli/attend/attend.h"

/* Refuses a tensor that the options do not use or allow, or that another tensor excludes. Errors: HARK_BAD_CONFIGURATION "tensor NAME ..."
 * where other options can use it, HARK_BAD_FILE where none can. */
HARK_MUST_CHECK hark_status hark_attend_needs_check(hark_context *context, const hark_attend_values *values,
                                                    const hark_attend_tensors *tensors);

#endif
