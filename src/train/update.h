/* update.h - one update of the weights by the optimiser of the run. */
#ifndef HARK_TRAIN_UPDATE_H
#define HARK_TRAIN_UPDATE_H

#include "train/engine.h"

/* The numbers of an update that do not depend on the weights. */
typedef struct hark_update {
  double rate;           /* of weights without a factor */
  double gradient_scale; /* clipping */
  int64_t step;          /* updates, from 1 */
} hark_update;

/* Updates the weights whose moments this process has. Allocates nothing. Errors: those of the operators. */
HARK_MUST_CHECK hark_status hark_update_weights(hark_context *context, hark_engine *engine, const hark_update *update);

/* Bytes of workspace that an update of this engine needs, whose parameters have been laid out. */
HARK_MUST_CHECK hark_status hark_update_workspace(hark_context *context, const hark_engine *engine, size_t *bytes);

#endif
