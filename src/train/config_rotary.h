/* config_rotary.h - the part of hark_config_finish() that concerns rotary positions. */
#ifndef HARK_TRAIN_CONFIG_ROTARY_H
#define HARK_TRAIN_CONFIG_ROTARY_H

#include "train/config.h"

/* A run from before model.rotary.ramp, which records yarn alone, was trained with a ramp in turns: that is what the option is then. */
void hark_config_recall_rotary(const hark_options *set, hark_config *config);

/* Recalls, reads the lists, and adds a problem for what the scaling lacks and for every combination that cannot work. Options of another
 * scaling that a run brings along go back to their defaults. Errors: HARK_OUT_OF_MEMORY. */
HARK_MUST_CHECK hark_status hark_config_settle_rotary(hark_context *context, hark_options *set, hark_config *config);

#endif
