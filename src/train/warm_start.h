/* warm_start.h - a run that starts with the weights of another run, or of a model that is no run (model_source.h), and a new optimiser
 * (train.init_from).
 *
 * Weights are matched by name. A weight that the source lacks, or has in another shape, is missing: it keeps its initial value and must
 * match a pattern of train.allow_missing. A weight that the model lacks is unexpected: it is not read and must match a pattern of
 * train.allow_unexpected. The vocabulary is the source's. origin.json records the source and the weights that were read.
 */
#ifndef HARK_TRAIN_WARM_START_H
#define HARK_TRAIN_WARM_START_H

#include "train/run.h"

/* Receives a line for the user about the weights that were found. */
typedef void hark_warm_start_say(void *user, const char *line);

/* The vocabulary of the run or model that config->train.init_from names. The caller destroys it. Errors: HARK_BAD_CONFIGURATION when its
 * kind is not data.tokenizer; those of files. */
HARK_MUST_CHECK hark_status hark_warm_start_vocabulary(hark_context *context, const hark_config *config, hark_tokenizer **out);

/* Compares the source's file with its manifest, reads the weights, and writes RUN/origin.json. The parameters must have their initial
 * values before the call; they are not changed when the tensors do not fit. `say` may be NULL.
 * Errors: HARK_SHAPE_MISMATCH when a tensor is missing or unexpected that no pattern allows; HARK_BAD_FILE (a damaged checkpoint),
 * HARK_NOT_FOUND (no checkpoint), those of files. */
HARK_MUST_CHECK hark_status hark_warm_start_load(hark_context *context, const hark_config *config, const hark_run *run,
                                                 hark_parameters *parameters, hark_warm_start_say *say, void *user);

#endif
