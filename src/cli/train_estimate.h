/* train_estimate.h - hark train --estimate: what a run would need, without a run. */
#ifndef HARK_CLI_TRAIN_ESTIMATE_H
#define HARK_CLI_TRAIN_ESTIMATE_H

#include "cli/common.h"
#include "train/config.h"
#include "train/run.h"

/* Prints the report of the trainer before its first step, once for all processes of a launcher, which call it alike. `folder`: where the
 * run would be; with run.resume it is there. Errors: those of the data and of the model; needs beyond the machine's, unless run.preflight
 * is false. */
HARK_MUST_CHECK hark_status hark_train_estimate(hark_invocation *call, const hark_config *config, const hark_run *folder);

#endif
