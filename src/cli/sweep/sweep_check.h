/* sweep_check.h - what a plan may not say that is known only with its options: equal values of an axis, and a seed of the file of all
 * runs that the sweep would replace. */
#ifndef HARK_CLI_SWEEP_SWEEP_CHECK_H
#define HARK_CLI_SWEEP_SWEEP_CHECK_H

#include "cli/sweep/sweep_plan.h"

/* Refuses a plan whose values would be replaced, or trained twice, without notice. Values that their options refuse are left to
 * hark_sweep_configure(). Errors: HARK_BAD_CONFIGURATION with the place, those of files. */
HARK_MUST_CHECK hark_status hark_sweep_check_plan(hark_context *context, const hark_sweep_plan *plan);

#endif
