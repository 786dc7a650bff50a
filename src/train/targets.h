/* targets.h - whether there is anything to learn, asked before a run begins: a mean over no targets is not defined. */
#ifndef HARK_TRAIN_TARGETS_H
#define HARK_TRAIN_TARGETS_H

#include "train/material.h"

/* Looks for one target in the training part, and for one in the validation part. Both are read one by one until the first target, which
 * nearly always is in the first. Tokens that are hidden from a model are other ones in every epoch: there as many are drawn as an epoch
 * has, or 2^22. A run may still be so short that none of its steps has a target.
 * Errors: HARK_BAD_CONFIGURATION with the part that has none and why; those of data. */
HARK_MUST_CHECK hark_status hark_targets_check(hark_context *context, const hark_material *material);

#endif
