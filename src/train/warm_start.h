/* warm_start.h - a run that begins with the weights of another one (train.init_from), with a fresh optimiser.
 *
 * Weights go by their names. One that the source lacks, or has in another shape, is missing: it keeps its initial value, and must be
 * allowed by a pattern of train.allow_missing; one that the model lacks is unexpected: it is left out, and must be allowed by
 * train.allow_unexpected. The vocabulary is the source's. What was taken from where is kept in origin.json.
 */
#ifndef HARK_TRAIN_WARM_START_H
#define HARK_TRAIN_WARM_START_H

#include "train/run.h"

/* A line on what was found, for people. */
typedef void hark_warm_start_say(void *user, const char *line);

/* The vocabulary of the run that config->train.init_from names. The caller destroys it. Errors: HARK_BAD_CONFIGURATION when it is of
 * another kind than data.tokenizer, those of files. */
HARK_MUST_CHECK hark_status hark_warm_start_vocabulary(hark_context *context, const hark_config *config, hark_tokenizer **out);

/* Takes the weights, after their checkpoint has been compared with its manifest, and writes RUN/origin.json. The parameters hold their
 * initial values before; nothing is changed when the tensors do not fit. `say` may be NULL.
 * Errors: HARK_SHAPE_MISMATCH when a tensor is missing or unexpected that no pattern allows; HARK_BAD_FILE (a damaged checkpoint),
 * HARK_NOT_FOUND (no checkpoint), those of files. */
HARK_MUST_CHECK hark_status hark_warm_start_load(hark_context *context, const hark_config *config, const hark_run *run,
                                                 hark_parameters *parameters, hark_warm_start_say *say, void *user);

#endif
