/* model_source.h - a model that is no run: a file of hark export or hark import, or a folder of another program (docs/models.md). Runs
 * begin with it (train.init_from), and it is measured as a run is. Its options are those of its description, its tokens those of its
 * tokenizer.
 */
#ifndef HARK_TRAIN_MODEL_SOURCE_H
#define HARK_TRAIN_MODEL_SOURCE_H

#include "train/config.h"

/* Whether a path refers to such a model. What is neither a run nor such a model counts as a run, whose error is then reported. */
bool hark_model_source_is(hark_context *context, const char *path);

/* Sets the options of the model, and those of data that its vocabulary determines (HARK_SOURCE_RUN). Errors: HARK_UNSUPPORTED (a model that
 * reads no text, or has no tokenizer), HARK_BAD_FILE, those of files. */
HARK_MUST_CHECK hark_status hark_model_source_read_options(hark_context *context, hark_options *options, const char *path);

#endif
