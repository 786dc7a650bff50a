/* parameters_compact.h - the parts of parameters.c that deal with compact weights. */
#ifndef HARK_NN_PARAMETERS_COMPACT_H
#define HARK_NN_PARAMETERS_COMPACT_H

#include "core/compact.h"
#include "nn/parameters.h"

/* Lays out the buffer of compact weights. Errors: HARK_TOO_LARGE; HARK_INVALID_ARGUMENT with `training`, if there are any. */
HARK_MUST_CHECK hark_status hark_parameters_lay_out_compact(hark_context *context, hark_parameters *parameters, bool training);
/* Allocates it, with zeros. Errors: HARK_OUT_OF_MEMORY. */
HARK_MUST_CHECK hark_status hark_parameters_allocate_compact(hark_context *context, hark_parameters *parameters);

#endif
