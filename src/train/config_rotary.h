/* config_rotary.h - the part of hark_config_finish() that concerns rotary positions. */
#ifndef HARK_TRAIN_CONFIG_ROTARY_H
#define HARK_TRAIN_CONFIG_ROTARY_H

#include "train/config.h"

/* A run made before model.rotary.ramp existed records only yarn and was trained with a ramp in turns: sets the option to turns for such a
 * run. */
void hark_config_recall_rotary(const hark_options *set, hark_config *config);

/* Recalls, and reads the lists. A resumed run's options of other scalings are reset to their defaults. Errors: HARK_OUT_OF_MEMORY. */
HARK_MUST_CHECK hark_status hark_config_settle_rotary(hark_context *context, hark_options *set, hark_config *config);

/* Adds problems that the model's rules do not know: data that a scaling does not fit, and a scaling without its factor. Errors:
 * HARK_OUT_OF_MEMORY. */
HARK_MUST_CHECK hark_status hark_config_check_rotary(hark_context *context, hark_options *set, const hark_config *config);

#endif
