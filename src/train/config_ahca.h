/* config_ahca.h - the part of hark_config_finish() that concerns compressed chunks. */
#ifndef HARK_TRAIN_CONFIG_AHCA_H
#define HARK_TRAIN_CONFIG_AHCA_H

#include "train/config.h"

/* Reads the lists, and adds a problem for data that the model cannot learn from. The rules between its options are in
 * models/model_rules_ahca.c. Errors: HARK_OUT_OF_MEMORY. */
HARK_MUST_CHECK hark_status hark_config_settle_ahca(hark_context *context, hark_options *set, hark_config *config);

#endif
