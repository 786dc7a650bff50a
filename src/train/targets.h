/* targets.h - checks before a run begins that its data have targets: a mean over no targets is undefined. */
#ifndef HARK_TRAIN_TARGETS_H
#define HARK_TRAIN_TARGETS_H

#include "train/material.h"

/* Searches the training part and the validation part for one target each. Samples are read one by one until the first target, which is
 * nearly always in the first sample. Masked tokens differ between epochs: for the training part, samples are drawn for one epoch, and
 * further until they have 2^22 tokens. A run may still be so short that none of its steps has a target.
 * Errors: HARK_BAD_CONFIGURATION with the part that has none and the reason; those of data. */
HARK_MUST_CHECK hark_status hark_targets_check(hark_context *context, const hark_material *material);

#endif
