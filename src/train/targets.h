/* targets.h - whether there is anything to learn, asked before a run begins: a mean over no targets is not defined. */
#ifndef HARK_TRAIN_TARGETS_H
#define HARK_TRAIN_TARGETS_H

#include "train/material.h"

/* Looks for one target among the first `samples` samples of training (those of an epoch at most), and for one in the validation part. Both are
 * read one by one until the first target, which nearly always is in the first.
 * Errors: HARK_BAD_CONFIGURATION with the part that has none and why; those of data. */
HARK_MUST_CHECK hark_status hark_targets_check(hark_context *context, const hark_material *material, int64_t samples);

#endif
